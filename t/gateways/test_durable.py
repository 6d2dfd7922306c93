"""Durable leases outlive the worker, the gateway and the session.

The claim of a lease that has been held for two seconds, or that was requested
with durable=1, is a persistent znode under the same name.  The gateway that
granted the lease counts it; when that gateway is gone, another gateway does.
No waiter is granted the lock before the lease is released or over.

A call at a gateway that takes a lease over may get 503 for a moment.
"""

import itertools
import os
import re
import subprocess
import threading
import time

import pytest

from conftest import top
from lib.checks import gone, grant, problem
from lib.client import lock_path
from lib.process import wait_until
from lib.streams import SSE, hold
from lib.tokens import claim_of
from lib.zookeeper import GATES, LEASES

SOON = 20.0
SHORT = "4s"            # a session's time that a test waits for
MODES = {
    "exclusive": {},
    "read": {"mode": "read"},
    "write": {"mode": "write"},
    "semaphore": {"mode": "semaphore", "permits": "2"},
    "member": {"mode": "member"},
}
ALL_MODES = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def pair(start_gateway):
    return [start_gateway(session_timeout="60s") for _ in range(2)]


@pytest.fixture
def mortal(start_gateway):
    """(here, there): here is to be killed and has sessions that end soon."""
    return start_gateway(session_timeout=SHORT), start_gateway()


def everywhere(*gateways):
    return [(gateway, worker) for gateway in gateways
            for worker in gateway.worker_pids()]


def ask(gateway, method, name, token, worker=None, **query):
    """The first answer that is no 503."""
    return wait_until(lambda: [
        response for response in [gateway.call(
            method, lock_path(name), query, {"Lock-Token": token},
            worker=worker)]
        if response.status != 503], SOON, "an answer")[0]


def made_durable(tree, gateway, name="x", number=1):
    """The paths of the lock's persistent claims, when there are so many."""
    znode = gateway.znode(name)
    wait_until(lambda: len(tree.durables(znode)) == number, SOON,
               "%d durable claims" % number)
    return tree.durables(znode)


def is_held(name, holder, places):
    """Every worker tells the lock as held, with that token and fencing token.
    """
    for gateway, worker in places:
        for method in ("GET", "PUT"):
            response = ask(gateway, method, name, holder.token, worker)
            assert response.status == 200, response
            assert response.json["state"] == "held"
            assert response.json["token"] == holder.token
            assert response.fencing == holder.fencing


def is_taken(name, places, **query):
    for gateway, worker in places:
        problem(gateway.acquire(name, worker=worker, wait="0", **query), 423)


def is_over(tree, name, holder, places):
    """The lock has no holder and no claims, and every worker says so."""
    tree.wait_claims(places[0][0].znode(name), 0, SOON)
    for gateway, worker in places:
        ask(gateway, "GET", name, holder.token, worker)     # it has a session
        gone(gateway, name, holder.token, worker)


# a lease becomes durable

@pytest.mark.parametrize("where", ["worker", "sibling", "gateway"])
def test_held_for_long(pair, tree, where):
    """Every worker shows the same claim, and any worker releases the claim."""
    here, there = pair
    one, sibling = here.worker_pids()
    holder = here.hold("x", ttl="1h", worker=one)
    claim = here.znode("x") + "/" + claim_of(holder.token)
    before = tree.stat(claim)
    assert before.ephemeralOwner
    assert made_durable(tree, here) == [claim]
    assert tree.label(claim)["czxid"] == before.czxid
    is_held("x", holder, everywhere(*pair))
    is_taken("x", everywhere(*pair))
    gateway, worker = {"worker": (here, one), "sibling": (here, sibling),
                       "gateway": (there, None)}[where]
    assert gateway.release("x", holder.token, worker).status == 204
    is_over(tree, "x", holder, everywhere(*pair))


@pytest.mark.parametrize("marked", [True, False],
                         ids=["not the first", "the first"])
def test_shortened_elsewhere(pair, tree, marked):
    """The lease that the other gateway told the holder last is what counts."""
    here, there = pair
    worker = here.worker_pids()[0]
    if marked:
        other = here.hold("y", durable="1", worker=worker)
        here.release("y", other.token)
    holder = here.hold("x", ttl="30m", worker=worker)
    longer = here.hold("z", ttl="6s", worker=worker)
    assert there.renew("x", holder.token, ttl="5s").status == 200
    assert there.renew("z", longer.token, ttl="30m").status == 200
    claim, = made_durable(tree, here)
    assert tree.label(claim)["ttl"] == 5000
    claim, = made_durable(tree, here, "z")
    assert tree.label(claim)["ttl"] == 1800000
    is_over(tree, "x", holder, everywhere(*pair))
    is_held("z", longer, everywhere(*pair))
    assert there.release("z", longer.token).status == 204


def test_gates_differ(start_gateway, tree, tmp_path):
    """No session takes another session's gate for its own.

    libzookeeper seeds random() with 32 bits: here each seed gives the same.
    """
    library = str(tmp_path / "same.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"],
                   input=b"long random(void) { return 4; }\n", check=True)
    tree.client.ensure_path(GATES)
    before = set(tree.children(GATES))
    start_gateway(workers=3, environment={"LD_PRELOAD": library})
    wait_until(lambda: len([name for name in tree.children(GATES)
                            if "." not in name and name not in before]) == 3,
               SOON, "a gate of each session")


def test_held_for_a_moment(gateway, tree):
    """A lock that is held for a moment costs no persistent znode, nor does a
    waiting claim.
    """
    for _ in range(3):
        holder = gateway.hold("x")
        claim = gateway.znode("x") + "/" + claim_of(holder.token)
        assert tree.stat(claim).ephemeralOwner
        gateway.release("x", holder.token)
    holder = gateway.hold("x")
    waiter = gateway.begin("x", wait="1m")
    durable = made_durable(tree, gateway)
    assert durable == [gateway.znode("x") + "/" + claim_of(holder.token)]
    claims = tree.claims(gateway.znode("x"))
    assert len(claims) == 2
    assert tree.stat(gateway.znode("x") + "/" + claims[1]).ephemeralOwner
    gateway.release("x", holder.token)
    gateway.release("x", waiter.response(SOON).token)


def test_stream_stays_ephemeral(gateway, tree):
    """A claim that a connection holds ends with the connection."""
    stream = hold(gateway, "x", SSE, ttl="1h")
    stream.event("granted")
    lease = gateway.hold("y", ttl="1h")
    made_durable(tree, gateway, "y")
    claim, = tree.claims(gateway.znode("x"))
    assert tree.stat(gateway.znode("x") + "/" + claim).ephemeralOwner
    stream.close()
    tree.wait_claims(gateway.znode("x"), 0)
    gateway.release("y", lease.token)


@pytest.mark.parametrize("first", ["here", "there"])
@pytest.mark.parametrize("mode", ["exclusive", "read", "write", "semaphore"])
def test_waiters_notice_nothing(pair, tree, mode, first):
    """Waiters of any mode, at any worker, wait on when a claim gets durable.

    The znode that the first waiter watches is deleted, and a new znode is there
    at once.
    """
    here, there = pair
    holders = [here.hold("x", ttl="1h", **MODES[mode])
               for _ in range(2 if mode == "semaphore" else 1)]
    query = MODES[mode] if mode == "semaphore" else {"mode": "write"}
    places = (everywhere(here, there) if first == "here"
              else everywhere(there, here))
    waiters = []
    for gateway, worker in places:
        waiters.append(gateway.begin("x", wait="1m", worker=worker, **query))
        tree.wait_claims(here.znode("x"), len(holders) + len(waiters))
    made_durable(tree, here, number=len(holders))
    for gateway, worker in places:
        # this answer comes behind the events of the change
        assert gateway.inspect("x", worker=worker).status == 200
    assert waiters[0].silent_for(0.5)
    assert all(waiter.silent_for(0) for waiter in waiters)
    for holder in holders:
        is_held("x", holder, places)

    assert there.release("x", holders.pop().token).status == 204
    for waiter in waiters:
        response = waiter.response(SOON)
        assert response.status == 201, response
        assert there.release("x", response.token).status == 204
    for holder in holders:
        assert there.release("x", holder.token).status == 204
    tree.wait_claims(here.znode("x"), 0)


# requested by the client or by the directive

@pytest.mark.parametrize("how", ["query", "body", "directive"])
def test_durable_at_once(start_gateway, tree, how):
    """The claim is persistent already when the answer comes."""
    gateway = start_gateway(
        location="zk_lock_durable on;" if how == "directive" else "")
    for worker in gateway.worker_pids() * 2:
        query = {"ttl": "1h", "durable": "1"} if how == "query" else {}
        body = {"ttl": 3600, "durable": 1} if how == "body" else None
        if how == "directive":
            query = {"ttl": "1h"}
        holder = gateway.hold("x", body, worker=worker, **query)
        claim = gateway.znode("x") + "/" + claim_of(holder.token)
        assert tree.durables(gateway.znode("x")) == [claim]
        content = grant(holder, "x")
        assert content["ttl_ms"] == 3600000
        assert tree.label(claim)["czxid"] * 256 <= holder.fencing
        is_held("x", holder, everywhere(gateway))
        is_taken("x", everywhere(gateway))
        assert gateway.release("x", holder.token).status == 204
        is_over(tree, "x", holder, everywhere(gateway))


def test_durable_of_all_modes(gateway, tree):
    for mode, query in MODES.items():
        holder = gateway.hold(mode, durable="1", **query)
        claim = gateway.znode(mode) + "/" + claim_of(holder.token)
        assert tree.durables(gateway.znode(mode)) == [claim]
        assert gateway.release(mode, holder.token).status == 204
        tree.wait_claims(gateway.znode(mode), 0)


def test_durable_after_a_wait(pair, tree):
    """The lease begins when it is durable, not when the request comes."""
    here, there = pair
    holder = there.hold("x")
    waiter = here.begin("x", wait="1m", durable="1", ttl="20s")
    tree.wait_claims(here.znode("x"), 2)
    assert waiter.silent_for(1.0)
    assert there.release("x", holder.token).status == 204
    response = waiter.response(SOON)
    content = grant(response, "x")
    assert content["expires_in_ms"] > 19000
    claim = here.znode("x") + "/" + claim_of(response.token)
    assert tree.durables(here.znode("x")) == [claim]
    assert there.release("x", response.token).status == 204


def test_what_cannot_be_durable(start_gateway, tree):
    """The gateway refuses such requests and makes no claim; the directive does
    not apply to streams and "respond-async".
    """
    gateway = start_gateway()
    problem(gateway.acquire("x", durable="1", hold="connection"), 400,
            "durable")
    problem(gateway.acquire("x", headers={"Prefer": "respond-async"},
                            durable="1"), 400, "durable")
    for wrong in ("0", "2", "yes", ""):
        problem(gateway.acquire("x", durable=wrong), 400, "durable")
    problem(gateway.acquire("x", {"durable": "yes"}), 400)
    assert tree.claims(gateway.znode("x")) == []

    gateway = start_gateway(http="zk_lock_durable on;")
    stream = hold(gateway, "x", SSE)
    stream.event("granted")
    stream.close()
    tree.wait_claims(gateway.znode("x"), 0)
    response = gateway.acquire("x", headers={"Prefer": "respond-async"})
    assert response.status in (201, 202), response
    assert gateway.release("x", response.token).status == 204
    tree.wait_claims(gateway.znode("x"), 0)


def test_directive_by_location(start_gateway, tree):
    gateway = start_gateway(
        http="zk_lock_durable on;",
        server="location /off/ { zk_lock_api; zk_lock_durable off; }")
    holder = gateway.hold("x")
    assert len(tree.durables(gateway.znode("x"))) == 1
    other = gateway.call("POST", "/off/y")
    assert other.status == 201 and not tree.durables(gateway.znode("y"))
    gateway.release("x", holder.token)
    gateway.release("y", other.token)


# the gateway that granted is gone

def held_and_waited_for(here, there, tree, early):
    """(holder, waiter), with the waiter from before or after the change."""
    holder = here.hold("x", ttl="1h")
    if not early:
        made_durable(tree, here)
    waiter = there.begin("x", wait="2m")
    tree.wait_claims(here.znode("x"), 2)
    return holder, waiter


def kazoo_waiter(client, path):
    """(lock, event, thread) of a kazoo lock that waits."""
    lock = client.Lock(path, "kazoo", extra_lock_patterns=["-lock-"])
    got = threading.Event()
    thread = threading.Thread(target=lambda: (lock.acquire(timeout=60),
                                              got.set()))
    thread.start()
    return lock, got, thread


@pytest.mark.parametrize("early", [True, False],
                         ids=["they wait already", "they wait later"])
def test_killed_gateway_and_kazoo(mortal, tree, foreign, early):
    """An HTTP client and a kazoo client wait until the lease is released."""
    here, there = mortal
    path = here.znode("x")
    holder, waiter = held_and_waited_for(here, there, tree, early)
    lock, got, thread = kazoo_waiter(foreign.client, path)
    tree.wait_claims(path, 3)

    release_after_death(here, there, tree, holder, waiter, got.is_set)
    assert got.wait(SOON)
    thread.join()
    lock.release()
    tree.wait_claims(path, 0)


@pytest.mark.parametrize("early", [True, False],
                         ids=["they wait already", "they wait later"])
def test_killed_gateway_and_curator(mortal, tree, curator, early):
    """An HTTP client and a Curator client wait until the lease is released."""
    here, there = mortal
    path = here.znode("x")
    holder, waiter = held_and_waited_for(here, there, tree, early)
    client = curator.client()
    theirs = client.begin("mutex", path)
    tree.wait_claims(path, 3)

    release_after_death(here, there, tree, holder, waiter,
                        theirs.future.done)
    assert theirs.claim(SOON)
    client.release()
    tree.wait_claims(path, 0)


def release_after_death(here, there, tree, holder, waiter, granted):
    """The holder's gateway dies; each release grants the lock to the next: the
    waiter elsewhere, then the last client, and neither is granted too early.
    """
    path = here.znode("x")
    wait = tree.wait_taken_over(*made_durable(tree, here))
    here.kill()
    wait()
    assert waiter.silent_for(0.3) and not granted()
    assert len(tree.claims(path)) == 3
    is_held("x", holder, everywhere(there))

    assert there.release("x", holder.token).status == 204
    response = waiter.response(SOON)
    grant(response, "x")
    assert response.fencing > holder.fencing
    time.sleep(0.2)
    assert not granted()
    assert there.release("x", response.token).status == 204


@pytest.mark.shows("a durable lease outlives its session")
@ALL_MODES
def test_every_mode_outlives_a_gateway(mortal, tree, mode):
    """The holder goes on holding, and releases at another gateway."""
    here, there = mortal
    holder = here.hold("x", ttl="1h", durable="1", **MODES[mode])
    wait = tree.wait_taken_over(*made_durable(tree, here))
    here.kill()
    wait()
    is_held("x", holder, everywhere(there))
    if mode in ("exclusive", "read", "write"):
        is_taken("x", everywhere(there))
    assert there.release("x", holder.token).status == 204
    is_over(tree, "x", holder, everywhere(there))


def test_seats_outlive_a_gateway(mortal, tree):
    """A semaphore with two permits admits a second holder, and no third."""
    here, there = mortal
    use = MODES["semaphore"]
    holder = here.hold("x", ttl="1h", durable="1", **use)
    wait = tree.wait_taken_over(*made_durable(tree, here))
    here.kill()
    wait()
    second = there.hold("x", wait="0", **use)
    is_taken("x", everywhere(there), **use)
    is_held("x", holder, everywhere(there))
    assert there.release("x", holder.token).status == 204
    third = there.hold("x", wait="0", **use)
    for response in (second, third):
        assert there.release("x", response.token).status == 204
    tree.wait_claims(there.znode("x"), 0)


def test_holds_outlive_a_gateway(mortal, tree):
    """A holder that has held the lock twice releases twice."""
    here, there = mortal
    holder = here.hold("x", ttl="1h", durable="1")
    again = ask(here, "POST", "x", holder.token)
    assert again.status == 200 and again.json["holds"] == 2, again
    wait = tree.wait_taken_over(*made_durable(tree, here))
    here.kill()
    wait()
    response = ask(there, "GET", "x", holder.token)
    assert response.json["holds"] == 2, response
    response = ask(there, "DELETE", "x", holder.token)
    assert response.status == 200, response
    assert response.json.get("holds", 1) == 1
    is_taken("x", everywhere(there))
    assert ask(there, "DELETE", "x", holder.token).status == 204
    is_over(tree, "x", holder, everywhere(there))


def test_label_outlives_a_gateway(mortal, tree):
    """The claim keeps the owner, the data and the lease that was told."""
    here, there = mortal
    holder = here.hold("x", {"owner": "me", "data": {"a": [1, None]},
                             "ttl": 3600, "durable": 1})
    wait = tree.wait_taken_over(*made_durable(tree, here))
    here.kill()
    wait()
    for gateway, worker in everywhere(there):
        content = ask(gateway, "GET", "x", holder.token, worker).json
        assert content["ttl_ms"] == 3600000
        shown, = gateway.inspect("x", worker=worker).json["holders"]
        assert shown["owner"] == "me" and shown["data"] == {"a": [1, None]}
    assert there.release("x", holder.token).status == 204


def test_many_leases_of_many_gateways(start_gateway, tree):
    """Each lease is taken over by a single worker; no lease is lost."""
    gateways = [start_gateway(session_timeout=SHORT) for _ in range(3)]
    there = start_gateway()
    holders = {}
    for i, (gateway, worker) in zip(range(30),
                                    itertools.cycle(everywhere(*gateways))):
        holders["x%d" % i] = gateway.hold("x%d" % i, ttl="1h", durable="1",
                                          worker=worker)
    wait = tree.wait_taken_over(*[path for name in holders
                              for path in tree.durables(there.znode(name))])
    for gateway in gateways:
        gateway.kill()
    wait()
    for name, holder in holders.items():
        is_held(name, holder, everywhere(there))
        assert there.release(name, holder.token).status == 204
        tree.wait_claims(there.znode(name), 0)


def heirs(tree, gateways, path):
    """Kills the gateway that counts the lease, until one gateway is left;
    before each death, yields the gateway that counts the lease.
    """
    victim = gateways[0]
    while len(gateways) > 1:
        yield victim
        wait = tree.wait_taken_over(path)
        victim.kill()
        gateways.remove(victim)
        wait()
        victim, = wait_until(lambda: [
            gateway for gateway in gateways
            if "is counted by this worker" in gateway.log_text()], SOON,
            "one says that it counts the lease")


def test_heir_of_an_heir(start_gateway, tree):
    """Two gateways that count the lease die in turn; the third counts on."""
    gateways = [start_gateway(session_timeout=SHORT) for _ in range(3)]
    holder = gateways[0].hold("x", ttl="1h", durable="1")
    path, = made_durable(tree, gateways[0])
    for _ in heirs(tree, gateways, path):
        is_held("x", holder, everywhere(*gateways))
    is_held("x", holder, everywhere(*gateways))
    assert gateways[0].release("x", holder.token).status == 204
    is_over(tree, "x", holder, everywhere(*gateways))


def test_heir_keeps_what_the_last_heir_told(start_gateway, tree):
    """Each gateway that counts the lease tells a longer time before it dies."""
    gateways = [start_gateway(session_timeout=SHORT) for _ in range(3)]
    holder = gateways[0].hold("x", ttl="1m", durable="1")
    path, = made_durable(tree, gateways[0])
    for hours, victim in enumerate(heirs(tree, gateways, path), 1):
        renewed = victim.renew("x", holder.token, ttl="%dh" % hours)
        assert renewed.status == 200, renewed
    left = wait_until(lambda: [
        response.json["expires_in_ms"] for response in [
            gateway.inspect("x", holder.token, worker)
            for gateway, worker in everywhere(*gateways)]
        if "expires_in_ms" in response.json], SOON, "the lease is counted")[0]
    assert left > hours * 3600000 - 60000
    assert gateways[0].release("x", holder.token).status == 204


def test_killed_while_it_makes_them_durable(mortal, tree):
    """Each lease is durable or ends with the session, and never both."""
    here, there = mortal
    holders = {"x%d" % i: here.hold("x%d" % i, ttl="1h", worker=worker)
               for i, worker in zip(range(30), itertools.cycle(
                   here.worker_pids()))}
    wait_until(lambda: tree.durables(here.root), SOON, "one is durable")
    here.kill()
    sessions = set(tree.ephemerals(here.root).values())
    wait_until(lambda: not sessions & set(tree.ephemerals(
        here.root).values()), 20.0, "the sessions are over")
    held = [name for name in holders if tree.durables(here.znode(name))]
    assert held
    for name, holder in holders.items():
        if name in held:
            is_held(name, holder, everywhere(there))
            is_taken(name, everywhere(there))
            assert there.release(name, holder.token).status == 204
        is_over(tree, name, holder, everywhere(there))
        again = there.hold(name, wait="0")
        assert again.fencing > holder.fencing
        there.release(name, again.token)


def test_gateway_stands_still(start_gateway, tree):
    """The gateway is taken for dead, and finds that another counts the lease.
    """
    here = start_gateway(session_timeout=SHORT, workers=1)
    there = start_gateway()
    holder = here.hold("x", ttl="1h", durable="1")
    wait = tree.wait_taken_over(*made_durable(tree, here))
    with here.frozen_worker(*here.worker_pids()):
        wait()
        is_held("x", holder, everywhere(there))
    places = everywhere(here, there)
    is_held("x", holder, places)
    is_taken("x", places)
    assert ask(here, "DELETE", "x", holder.token).status == 204
    is_over(tree, "x", holder, places)


def test_gateway_stands_still_for_longer_than_the_lease(start_gateway, tree):
    """When the gateway goes on, another client has the lock and keeps it."""
    here = start_gateway(session_timeout=SHORT, workers=1)
    there = start_gateway()
    holder = here.hold("x", ttl="3s", durable="1")
    waiter = there.begin("x", wait="1m", ttl="1h")
    tree.wait_claims(here.znode("x"), 2)
    with here.frozen_worker(*here.worker_pids()):
        response = waiter.response(2 * SOON)
        grant(response, "x")
    for gateway, worker in everywhere(here, there):
        assert ask(gateway, "GET", "x", holder.token, worker).status == 410
        gone(gateway, "x", holder.token, worker)
    is_held("x", response, everywhere(here, there))
    assert ask(here, "DELETE", "x", response.token).status == 204
    is_over(tree, "x", response, everywhere(here, there))


# no client renews or releases

def test_lease_of_a_dead_gateway_ends(mortal, tree):
    """The whole lease counts from the take-over on; then the lease is over."""
    here, there = mortal
    holder = here.hold("x", ttl="5s", durable="1")
    waiter = there.begin("x", wait="1m")
    tree.wait_claims(there.znode("x"), 2)
    assert here.renew("x", holder.token).status == 200
    wait = tree.wait_taken_over(*made_durable(tree, here))
    killed = time.monotonic()
    here.kill()
    wait()
    response = waiter.response(2 * SOON)
    assert time.monotonic() - killed >= 5.0
    grant(response, "x")
    assert response.fencing > holder.fencing
    for gateway, worker in everywhere(there):
        gone(gateway, "x", holder.token, worker)
    assert there.release("x", response.token).status == 204
    tree.wait_claims(there.znode("x"), 0)


def test_lease_ends_as_ever(pair, tree):
    """Durable or not, a lease that no client renews ends in time."""
    here, there = pair
    began = time.monotonic()
    holder = here.hold("x", ttl="4s")
    waiter = there.begin("x", wait="1m")
    tree.wait_claims(here.znode("x"), 2)
    made_durable(tree, here)
    response = waiter.response(SOON)
    assert time.monotonic() - began >= 3.99
    grant(response, "x")
    tree.wait_claims(here.znode("x"), 1)
    for gateway, worker in everywhere(*pair):
        gone(gateway, "x", holder.token, worker)
    assert there.release("x", response.token).status == 204


# nginx ends and comes back

@pytest.mark.shows("a durable lease outlives its session")
@pytest.mark.parametrize("how", ["stop", "terminate", "kill"])
def test_next_workers_find_it(start_gateway, tree, how):
    """The next workers find the leases of the last workers."""
    gateway = start_gateway(session_timeout=SHORT)
    holders = {"x%d" % i: gateway.hold("x%d" % i, ttl="1h", durable="1",
                                       worker=worker)
               for i, worker in enumerate(gateway.worker_pids() * 2)}
    wait = tree.wait_taken_over(*[path for name in holders for path
                              in tree.durables(gateway.znode(name))])
    getattr(gateway, how)()
    gateway.start()
    for name in holders:
        is_taken_or_out_of_reach(gateway, name)
    wait()
    for name, holder in holders.items():
        is_held(name, holder, everywhere(gateway))
        is_taken(name, everywhere(gateway))
        assert gateway.release(name, holder.token).status == 204
        is_over(tree, name, holder, everywhere(gateway))


def is_taken_or_out_of_reach(gateway, name):
    for worker in gateway.worker_pids():
        response = gateway.acquire(name, worker=worker, wait="0")
        assert response.status in (423, 503), response


# ZooKeeper is gone for longer than the session lives

def test_server_is_down_for_long(private_zookeeper, start_gateway,
                                 connect_tree):
    """The lease goes on, with the same holder; the session need not."""
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    gateway = start_gateway(zookeeper=private_zookeeper, session_timeout="2s")
    holder = gateway.hold("x", ttl="1h", durable="1")
    brief = gateway.hold("y", ttl="1s", durable="1")
    claim, = tree.durables(gateway.znode("x"))
    private_zookeeper.stop()
    assert ask_nothing_for(gateway, "x", holder, 4.0)
    private_zookeeper.start()
    tree.wait_back()
    is_held("x", holder, everywhere(gateway))
    is_taken("x", everywhere(gateway))
    assert tree.durables(gateway.znode("x")) == [claim]
    assert tree.claims(gateway.znode("x")) == [claim_of(holder.token)]
    is_over(tree, "y", brief, everywhere(gateway))
    assert gateway.release("x", holder.token).status == 204
    is_over(tree, "x", holder, everywhere(gateway))


def ask_nothing_for(gateway, name, holder, seconds):
    """In all that time no renewal is told that the lease is lost."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        response = gateway.renew(name, holder.token)
        assert response.status in (200, 503), response
        time.sleep(0.1)
    return True


def expired(zookeeper, sessions):
    wait_until(lambda: not sessions & zookeeper.living_sessions(), 20.0,
               "the sessions are over")


@pytest.mark.shows("a durable lease outlives its session")
@pytest.mark.parametrize("alone", [True, False],
                         ids=["alone", "beside another gateway"])
def test_session_expires(start_gateway, start_proxy, zookeeper, tree, alone):
    """A gateway that comes back finds the lease, or that another counts it."""
    there = None if alone else start_gateway()
    proxy = start_proxy(zookeeper)
    before = zookeeper.living_sessions()
    here = start_gateway(servers=proxy.address, wait_sessions=False,
                         session_timeout=SHORT)
    here.wait_served()
    sessions = zookeeper.living_sessions() - before
    holder = here.hold("x", ttl="1h", durable="1")
    wait = tree.wait_taken_over(*made_durable(tree, here))
    proxy.refuse()
    proxy.kill()
    expired(zookeeper, sessions)
    if not alone:
        wait()
        is_held("x", holder, everywhere(there))
    proxy.listen()
    wait()
    places = everywhere(here) + ([] if alone else everywhere(there))
    is_held("x", holder, places)
    is_taken("x", places)
    assert tree.claims(here.znode("x")) == [claim_of(holder.token)]
    assert ask(here, "DELETE", "x", holder.token).status == 204
    is_over(tree, "x", holder, places)


def test_session_and_lease_are_over(start_gateway, start_proxy, zookeeper,
                                    tree):
    """The holder is told that the lease is over, and the lock is free."""
    proxy = start_proxy(zookeeper)
    before = zookeeper.living_sessions()
    # a sibling that is back earlier would count the lease anew
    here = start_gateway(servers=proxy.address, wait_sessions=False,
                         session_timeout=SHORT, workers=1)
    here.wait_served()
    sessions = zookeeper.living_sessions() - before
    holder = here.hold("x", ttl="3s", durable="1")
    proxy.refuse()
    proxy.kill()
    expired(zookeeper, sessions)
    assert len(tree.durables(here.znode("x"))) == 1
    # a renewal before the worker reads the claim keeps the lease, because no
    # client has had the lock since
    proxy.listen()
    is_over(tree, "x", holder, everywhere(here))
    response = here.hold("x", wait="0")
    assert response.fencing > holder.fencing
    here.release("x", response.token)


# a durable lease is shared

@pytest.mark.parametrize("where", ["here", "there"])
@pytest.mark.parametrize("mode", ["exclusive", "write"])
def test_durable_lease_is_shared(pair, tree, mode, where):
    """Readers get in, wherever the call to share comes; the lease stays
    durable.
    """
    here, there = pair
    holder = here.hold("x", ttl="1h", durable="1", mode=mode)
    readers = [gateway.begin("x", wait="1m", mode="read", worker=worker)
               for gateway, worker in everywhere(*pair)]
    tree.wait_claims(here.znode("x"), 1 + len(readers))
    shared = ask(here if where == "here" else there, "PUT", "x", holder.token,
                 mode="read")
    assert shared.status == 200 and shared.json["mode"] == "shared", shared
    responses = [reader.response(SOON) for reader in readers]
    assert all(response.status == 201 for response in responses), responses
    is_held("x", holder, everywhere(*pair))
    is_taken("x", everywhere(*pair))
    path = tree.durables(here.znode("x"))
    assert any("-__READ__" in claim for claim in path), path
    for response in responses + [holder]:
        assert ask(there, "DELETE", "x", response.token).status == 204
    is_over(tree, "x", holder, everywhere(*pair))


def test_shared_lease_outlives_a_gateway(mortal, tree):
    """The token leads to the lease, though the znode has another name."""
    here, there = mortal
    holder = here.hold("x", ttl="1h", durable="1")
    assert ask(here, "PUT", "x", holder.token, mode="read").status == 200
    wait = tree.wait_taken_over(*made_durable(tree, here))
    here.kill()
    wait()
    is_held("x", holder, everywhere(there))
    is_taken("x", everywhere(there))
    reader = there.hold("x", wait="0", mode="read")
    for response in (holder, reader):
        assert there.release("x", response.token).status == 204
    is_over(tree, "x", holder, everywhere(there))


# claims, gates and entries

def test_nothing_is_left(start_gateway, tree, root):
    """No claim, no entry and no gate is left after all releases and takeovers.
    """
    here, there = start_gateway(session_timeout=SHORT), start_gateway()
    places = everywhere(here, there)
    holders = {"x%d" % i: gateway.hold("x%d" % i, ttl="1h", durable="1",
                                       worker=worker)
               for i, (gateway, worker) in enumerate(places)}
    entries = tree.entries(root)
    assert len(entries) == len(places)
    directories = {os.path.dirname(entry) for entry in entries}
    wait = tree.wait_taken_over(*[path for name in holders
                                  for path in tree.durables(there.znode(name))
                                  if name in ("x0", "x1")])
    here.kill()
    wait()
    for name, holder in holders.items():
        assert ask(there, "DELETE", name, holder.token).status == 204
    wait_until(lambda: not tree.entries(root), SOON, "no entry is left")
    there.stop()
    assert not tree.durables(top(root))

    last = start_gateway()
    wait_until(lambda: not any(tree.stat(directory)
                               for directory in directories), 20.0,
               "no directory is left")
    last.stop()
    assert not tree.ephemerals(top(root))
    assert not tree.durables(top(root))


def test_chroot_that_is_not_there_yet(start_gateway, zookeeper, tree):
    """The first acquire makes the chroot; the claim is durable before the 201.
    """
    gateway = start_gateway(servers=zookeeper.address + "/made")
    try:
        holder = gateway.hold("x", durable="1")
        assert len(tree.durables("/made")) == 1
        assert gateway.release("x", holder.token).status == 204
    finally:
        gateway.stop()
        tree.client.delete("/made", recursive=True)


def test_its_gates_and_entries_are_removed(start_gateway, tree, root):
    """The gateways count on, and make gates and entries again, because no
    other gateway would find the leases otherwise.
    """
    others = set(tree.children(GATES))      # of sessions that tests have left
    pair = [start_gateway(session_timeout="60s") for _ in range(2)]
    here, there = pair

    holders = [here.hold("x%d" % i, ttl="1h", durable="1", worker=worker)
               for i, worker in enumerate(here.worker_pids())]
    paths = [path for i in range(len(holders))
             for path in tree.durables(here.znode("x%d" % i))]
    assert len(tree.entries(root)) == len(holders)
    # a directory first: else an entry may be there again in between
    for name in sorted(set(tree.children(GATES)) - others, reverse=True):
        tree.client.delete(GATES + "/" + name, recursive=True)
    wait_until(lambda: all(tree.counts(path) for path in paths)
               and sorted(tree.entries(root).values()) == sorted(paths), SOON,
               "gates and entries are there again")
    for i, holder in enumerate(holders):
        is_held("x%d" % i, holder, everywhere(*pair))


def test_its_gate_is_taken_for_a_moment(start_gateway, start_proxy, zookeeper,
                                        tree, root):
    """A client has removed the entry, so who takes the gate leaves it again."""
    proxy = start_proxy(zookeeper)
    before = zookeeper.living_sessions()
    here = start_gateway(servers=proxy.address, wait_sessions=False,
                         session_timeout=SHORT, workers=1)
    here.wait_served()
    sessions = zookeeper.living_sessions() - before
    holder = here.hold("x", ttl="1h", durable="1")
    path, = made_durable(tree, here)
    entry, = tree.entries(root)
    directory = os.path.dirname(entry)
    gate = directory[:-len(LEASES)]
    proxy.refuse()
    proxy.kill()
    expired(zookeeper, sessions)
    tree.client.delete(directory, recursive=True)
    tree.client.create(gate, ephemeral=True)
    proxy.listen()
    here.wait_served()
    time.sleep(0.3)
    tree.client.delete(gate)
    wait_until(lambda: tree.counts(path)
               and tree.entries(root) == {entry: path}, SOON,
               "the gateway counts the lease again")
    is_held("x", holder, everywhere(here))


def test_directory_of_its_gate_is_written(start_gateway, start_proxy, zookeeper,
                                          tree, root):
    """The session counts on, and keeps its gate when the last lease ends."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, workers=1)
    holder = here.hold("x", ttl="1h", durable="1")
    entry, = tree.entries(root)
    directory = os.path.dirname(entry)
    tree.client.set(directory, b"somebody else's")
    version = tree.stat(directory).version
    proxy.kill()
    wait_until(lambda: tree.stat(directory).version > version, SOON,
               "the directory is set again")
    is_held("x", holder, everywhere(here))
    assert here.release("x", holder.token).status == 204
    wait_until(lambda: not tree.entries(root), SOON, "the entry is deleted")
    time.sleep(0.5)
    holder = here.hold("x", ttl="1h", durable="1")
    assert [os.path.dirname(path) for path in tree.entries(root)] == [directory]
    assert here.release("x", holder.token).status == 204


def test_successor_below_a_written_directory(start_gateway, start_proxy,
                                             zookeeper, tree, root):
    """A successor counts the lease on, and not anew."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, workers=1,
                         session_timeout=SHORT)
    here.hold("w", ttl="1h", durable="1")
    entry, = tree.entries(root)
    directory = os.path.dirname(entry)
    tree.client.set(directory, b"somebody else's")
    version = tree.stat(directory).version
    proxy.kill()
    wait_until(lambda: tree.stat(directory).version > version, SOON,
               "the directory is set again")
    holder = here.hold("x", ttl="1h", durable="1")
    path, = tree.durables(here.znode("x"))
    time.sleep(1)
    before, = here.inspect("x").json["holders"]
    wait = tree.wait_taken_over(path)
    worker, = here.worker_pids()
    here.kill_worker(worker)
    wait()
    wait_until(lambda: here.inspect("x").json["holders"], SOON, "x is held")
    after, = here.inspect("x").json["holders"]
    assert after["expires_in_ms"] <= before["expires_in_ms"]
    is_held("x", holder, everywhere(here))


def test_entries_that_name_no_lease(start_gateway, tree, root):
    """A takeover is not held up by what somebody else has written there."""
    here = start_gateway(session_timeout=SHORT)
    there = start_gateway()
    holder = here.hold("x", ttl="1h", durable="1")
    path, = made_durable(tree, here)
    entry, = tree.entries(root)
    directory = os.path.dirname(entry)
    text = tree.client.get(entry)[0]
    for i, data in enumerate([b"", b"nonsense", b"/\n\n{}", b"\xff\n\n\n",
                              text.replace(b"x", b"y"), text]):
        tree.client.create("%s/%012x" % (directory, i), data)
    wait = tree.wait_taken_over(path)
    here.kill()
    wait()
    wait_until(lambda: tree.children(directory) == [os.path.basename(entry)],
               SOON, "the other entries are deleted")
    assert "names no claim" in there.log_text()
    is_held("x", holder, everywhere(there))


def test_many_entries_that_name_no_lease(start_gateway, zookeeper, tree, root):
    """The lock that they name is not listed for each of them, the claim of
    another gate stays, and the log has one line.
    """
    here = start_gateway(session_timeout=SHORT)
    there = start_gateway(workers=1)
    holder = here.hold("x", ttl="1h", durable="1")
    entry, = tree.entries(root)
    directory = os.path.dirname(entry)
    gate = directory[:-len(LEASES)]
    semaphore = {"mode": "semaphore", "permits": "2"}
    other = there.hold("y", ttl="1h", durable="1", **semaphore)
    begin, own, end = re.fullmatch("(_c_[-0-9a-f]{24})([0-9a-f]{12})(-.*)",
                                   claim_of(other.token)).groups()
    for i, number in enumerate(["%012x" % i for i in range(199)] + [own]):
        text = "%s\n%s\n{}" % (there.znode("y"), begin + number + end)
        tree.client.create("%s/%s" % (directory, number),
                           text.encode() if i % 2 else b"nonsense")
    here.kill()
    before = zookeeper.reads(top(root))
    wait_until(lambda: not tree.stat(gate), SOON, "the session is over")
    wait_until(lambda: tree.children(directory) == [os.path.basename(entry)],
               SOON, "the other entries are deleted")
    assert zookeeper.reads(top(root)) - before < 50
    assert there.log_text().count("names no claim") == 1
    second = there.hold("y", **semaphore)
    is_held("x", holder, everywhere(there))
    for name, response in (("x", holder), ("y", other), ("y", second)):
        assert there.release(name, response.token).status == 204


def test_revoked_while_no_gateway_counts(start_gateway, tree):
    """Curator's mark over the data of a lease whose gateway is gone: the next
    gateway has the data of the entry, and the lease goes on.
    """
    here = start_gateway(session_timeout=SHORT, workers=1)
    holder = here.hold("x", ttl="1h", durable="1", owner="me")
    path, = made_durable(tree, here)
    gate = GATES + "/" + tree.label(path)["gate"]
    with here.frozen_worker(*here.worker_pids()):
        tree.client.set(path, b"__REVOKE__")
        here.kill()
    wait_until(lambda: not tree.stat(gate), 20.0, "the session is over")

    there = start_gateway()
    wait_until(lambda: tree.stat(gate), 2 * SOON, "a session counts the lease")
    wait_until(lambda: tree.label(path).get("revoke"), SOON,
               "the data are written anew")
    is_held("x", holder, everywhere(there))
    assert there.inspect("x", holder.token).json["owner"] == "me"
    is_taken("x", everywhere(there))
    assert ask(there, "DELETE", "x", holder.token).status == 204
    is_over(tree, "x", holder, everywhere(there))
