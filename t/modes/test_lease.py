"""Leases: a grant ends by itself unless a client renews the grant.

A lease begins with the grant, not with the request, and is over no earlier than
the answer says.  At the end the claim leaves ZooKeeper, the next claim is
granted, and a call with the old token is answered 410.
"""

import time

import pytest

from lib.checks import gone, grant, problem, wait_over
from lib.client import lock_path
from lib.proxy import LOSE
from lib.tokens import claim_of

SOON = 20.0         # shorter than any lease that does not have to end


@pytest.mark.shows("a lock is free when its reason is gone")
def test_lease_ends_by_itself(gateway, tree):
    znode = gateway.znode("x")
    for worker in gateway.worker_pids():
        began = time.monotonic()
        token = gateway.hold("x", ttl="400ms", worker=worker).token
        tree.wait_claims(znode, 0, SOON)
        assert time.monotonic() - began >= 0.39
        for asked in gateway.worker_pids():
            gone(gateway, "x", token, asked)
            problem(gateway.inspect("x", worker=asked), 404)


def test_next_is_granted_when_the_lease_ends(gateway, tree):
    one, other = gateway.worker_pids()
    for waiting in (one, other):
        began = time.monotonic()
        holder = gateway.hold("x", ttl="500ms", worker=one)
        waiter = gateway.begin("x", worker=waiting)
        response = waiter.response(SOON)
        assert time.monotonic() - began >= 0.49
        grant(response, "x")
        assert response.fencing > holder.fencing
        gone(gateway, "x", holder.token)
        gateway.release("x", response.token)


def test_lease_is_over_before_the_claim_is_gone(zookeeper, tree,
                                                start_gateway, start_proxy):
    """The delete is still on its way when the next claim already holds the
    lock: the late holder's release gets 410.
    """
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False)
    one, other = gateway.worker_pids()
    for asked in (one, other):
        holder = gateway.hold("x", ttl="2s", worker=one)
        waiter = gateway.begin("x", worker=one)
        tree.wait_claims(gateway.znode("x"), lambda claims: (
            set(claims) - {claim_of(holder.token)}))
        gateway.catch_up("x")
        releaser = gateway.connect(asked)
        proxy.delay = 0.3
        response = waiter.response(SOON)
        grant(response, "x")
        late = releaser.request("DELETE", lock_path("x", holder.token))
        proxy.pass_on()
        problem(late, 410)
        gateway.release("x", response.token)


def test_leases_of_a_whole_queue_end_in_turn(gateway, tree):
    """No client releases, and still every client gets the lock."""
    waiters = [gateway.begin("x", ttl="100ms") for _ in range(8)]
    answers = sorted((waiter.response() for waiter in waiters),
                     key=lambda response: response.fencing)
    for response in answers:
        grant(response, "x")
    tree.wait_claims(gateway.znode("x"), 0)


def test_lease_begins_with_the_grant(gateway, tree):
    holder = gateway.hold("x")
    waiter = gateway.begin("x", ttl="2s")
    tree.wait_claims(gateway.znode("x"), 2)
    assert waiter.silent_for(2.1)
    released = time.monotonic()
    gateway.release("x", holder.token)
    response = waiter.response()
    assert response.json["expires_in_ms"] > 300
    seen = gateway.inspect("x", response.token)
    assert seen.status == 200 or time.monotonic() - released > 2.0, seen
    tree.wait_claims(gateway.znode("x"), 0, SOON)
    assert time.monotonic() - released >= 1.99


def test_rest_of_a_lease_is_told(gateway):
    token = gateway.hold("x", ttl="30s").token
    rests = []
    for worker in gateway.worker_pids() * 3:
        rests.append(gateway.inspect("x", token,
                                     worker=worker).json["expires_in_ms"])
    assert rests == sorted(rests, reverse=True)
    assert 20000 < rests[-1] <= rests[0] <= 30000
    gateway.release("x", token)


@pytest.mark.shows("a lease lasts as long as was told")
def test_renewed_lease_goes_on(gateway, tree):
    """Each renewal counts from its own moment, at either worker."""
    workers = gateway.worker_pids()
    # ZooKeeper or a worker may stand still for some seconds
    holder = gateway.hold("x", ttl="6s")
    began = time.monotonic()
    renewals = 0
    while time.monotonic() - began < 8.0:
        worker = workers[renewals % 2]
        response = gateway.renew("x", holder.token, worker=worker)
        content = grant(response, "x", 200)
        assert content["fencing_token"] == holder.fencing
        assert content["ttl_ms"] == 6000
        assert content["state"] == "held"
        renewals += 1
        wait_over(gateway.acquire("x", wait="100ms"), gateway)
    tree.wait_claims(gateway.znode("x"), 0, SOON)
    gone(gateway, "x", holder.token)


def test_renewal_with_another_ttl(gateway, tree):
    for change in ({"ttl": "30s"}, {"body": {"ttl": 30}}):
        token = gateway.hold("x", ttl="3s").token
        content = gateway.renew("x", token, **change).json
        assert content["ttl_ms"] == 30000
        assert 25000 < content["expires_in_ms"] <= 30000
        gateway.refused("x", wait="3500ms")
        content = gateway.inspect("x", token).json
        assert content["state"] == "held" and content["ttl_ms"] == 30000
        gateway.release("x", token)


def test_renewal_of_a_lease_that_becomes_durable(behind_proxy):
    """The znode has the old ttl until the transaction is done: the call waits
    a moment for that.
    """
    gateway, proxy = behind_proxy
    own, other = gateway.worker_pids()
    token = gateway.hold("x", ttl="3s", worker=own).token
    assert gateway.renew("x", token, ttl="30s", worker=own).status == 200
    proxy.fault("multi", LOSE).wait()
    content = gateway.inspect("x", token, worker=other).json
    assert content["ttl_ms"] == 30000 and content["expires_in_ms"] > 20000
    gateway.wait_served()
    gateway.release("x", token)


def test_renewal_that_shortens(gateway, tree):
    """The claim's worker has to learn of either worker's renewal in time."""
    for worker in gateway.worker_pids():
        token = gateway.hold("x", ttl="60s",
                             worker=gateway.worker_pids()[0]).token
        content = gateway.renew("x", token, ttl="300ms", worker=worker).json
        assert content["ttl_ms"] == 300
        tree.wait_claims(gateway.znode("x"), 0, SOON)
        gone(gateway, "x", token)


def test_renewal_by_header(gateway):
    token = gateway.hold("x", ttl="5s").token
    response = gateway.call("PUT", lock_path("x"), {"ttl": "50s"},
                            {"Lock-Token": token})
    assert grant(response, "x", 200)["ttl_ms"] == 50000
    gateway.release("x", token)


def test_release_ends_the_lease(gateway):
    """The deadline of a released claim does not end later claims."""
    for _ in range(3):
        token = gateway.hold("x", ttl="300ms").token
        gateway.release("x", token)
    token = gateway.hold("x", ttl="10s").token
    gateway.refused("x", wait="500ms")
    gateway.release("x", token)


def test_release_at_the_end_of_the_lease(gateway, tree):
    """Whichever comes first, the claim ends, and the next claim is granted."""
    for i in range(20):
        holder = gateway.hold("x", ttl="100ms", timeout=SOON)
        waiter = gateway.begin("x")
        waiter.silent_for(0.08 + i * 0.002)
        response = gateway.release("x", holder.token)
        assert response.status in (204, 410), response
        response = waiter.response(SOON)
        grant(response, "x")
        gateway.release("x", response.token)
    tree.wait_claims(gateway.znode("x"), 0)


def test_many_leases_end(gateway, tree):
    """Two hundred locks have leases that end at two hundred moments."""
    began = time.monotonic()
    with gateway.connect() as connection:
        for i in range(200):
            response = connection.request("POST", lock_path("x%d" % i),
                                          {"ttl": "%dms" % (300 + i)})
            assert response.status == 201
    for i in range(200):
        tree.wait_claims(gateway.znode("x%d" % i), 0, SOON)
    assert time.monotonic() - began < 2 * SOON
