"""No holder is told "held" after ZooKeeper may have given the lock away.

The gateway knows by its own clock until when its session surely lives, because
ZooKeeper can tell of the end only when the connection is back.  Here there is
no connection: ZooKeeper stands still or is killed, the network loses packets,
answers are swallowed, or a worker stands still.  All the time the test sends
GET and PUT of the claim to every worker, and notes the moments of the request
and of the answer.  ZooKeeper's log says when the session ended, by the clock of
the same machine: no "held" may have come after that.

An outage that is shorter than the session timeout does no harm: a holder is
told 503 at worst and goes on holding, a waiter goes on waiting, and no claim is
granted.
"""

import time

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from lib.checks import grant, problem
from lib.client import lock_path
from lib.process import wait_until
from lib.sessions import stay_ephemeral
from lib.tokens import claim_of
from lib.watchmen import (
    BACK, LONG, QUICK, SHORT, all_say, in_line, in_reach, never_held_after,
    watched)


def owner_of(tree, gateway, name, token):
    """The id of the session that a claim belongs to."""
    path = gateway.znode(name) + "/" + claim_of(token)
    return tree.stat(path).ephemeralOwner


def told(ask, *arguments, **options):
    """The first answer but 503: each call waits for a moment only."""
    return wait_until(lambda: [
        r for r in [ask(*arguments, **options)] if r.status != 503], BACK,
        "an answer")[0]


def gone(gateway, name, token, worker):
    """Every call at the worker is told that the claim is gone."""
    for ask in gateway.inspect, gateway.renew, gateway.release:
        problem(told(ask, name, token, worker=worker), 410)


def release(gateway, name, token):
    """Releases; a release that got 503 may have been carried out since."""
    answers = []
    told(lambda: answers.append(gateway.release(name, token)) or answers[-1])
    assert answers[-1].status in ((204, 410) if answers[1:] else (204,))


def release_all(gateway, name, response, waiters):
    """The holder releases, and each waiter that is granted releases in turn."""
    for waiter in waiters:
        release(gateway, name, response.token)
        response = waiter.response(BACK)
        grant(response, name)
    release(gateway, name, response.token)


@pytest.fixture
def proxy(zookeeper, start_proxy):
    return start_proxy(zookeeper)


@pytest.fixture
def gateway(proxy, start_gateway):
    """A gateway behind the proxy, with sessions that end soon."""
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout="%gs" % SHORT, metrics=True,
                            location=QUICK)
    in_reach(gateway)
    return gateway


# the session ends and the gateway does not know

@pytest.mark.shows("no `held` is told after another client may have the lock")
@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_session_ends_behind_a_hole(gateway, proxy, zookeeper, tree, foreign,
                                    delay):
    """All workers lose their sessions at once; many locks are lost, and every
    worker tells every holder so.
    """
    lock = gateway.znode("x")
    names = ["y%d" % i for i in range(20)]
    stay_ephemeral(tree, *map(gateway.znode, ["x"] + names))
    holder = gateway.hold("x", ttl="1h")
    others = {name: gateway.hold(name, ttl="1h").token for name in names}
    session = owner_of(tree, gateway, "x", holder.token)
    foreign.make_claim(lock)
    proxy.delay = delay

    with watched("x", holder.token, gateway) as men:
        proxy.hole()
        tree.wait_claims(lock, 1, BACK)
        for name in others:
            tree.wait_claims(gateway.znode(name), 0, BACK)
        time.sleep(0.3)
        proxy.pass_on()
        proxy.kill()
        all_say(men, 410)
    never_held_after(men, zookeeper.expirations()[session])

    for worker in gateway.worker_pids():
        for name, token in others.items():
            gone(gateway, name, token, worker)
        counters = gateway.metrics(worker)
        assert counters["claims", "held"] == 0
        assert counters["sessions", "own"] == 2
    assert len(tree.claims(lock)) == 1


def test_session_of_one_worker_ends(gateway, proxy, zookeeper, tree):
    """The sibling hears of the end before the worker does; a waiter at the
    sibling is granted the lock and keeps it.
    """
    lock = gateway.znode("x")
    stay_ephemeral(tree, lock)
    worker, sibling = gateway.worker_pids()
    holder = gateway.hold("x", ttl="1h", worker=worker)
    session = owner_of(tree, gateway, "x", holder.token)
    lost, = in_line(gateway, tree, "x", [worker], ttl="1h", wait="2m")
    kept, = in_line(gateway, tree, "x", [sibling], ttl="1h", wait="2m")

    with watched("x", holder.token, gateway) as men:
        well = [man for man in men if str(sibling) in man.title]
        proxy.cut_off(session)
        proxy.kill(session)
        response = kept.response(BACK)
        grant(response, "x")
        assert "note" not in response.json
        all_say(well, 410)
        assert lost.silent_for(0.3)
        assert told(gateway.inspect, "x", response.token,
                    sibling).status == 200
        proxy.pass_on()
        proxy.kill(session)
        all_say(men, 410)
    expired = zookeeper.expirations()[session]
    never_held_after(men, expired)

    tree.wait_claims(lock, 2, BACK)
    release(gateway, "x", response.token)
    response = lost.response(BACK)
    grant(response, "x")
    assert "note" in response.json
    release(gateway, "x", response.token)


def test_release_beside_a_session_that_is_cut_off(gateway, proxy, tree):
    """The session of the worker that gets the release has no answers, but the
    session of the claim has: the release waits for the claim's worker, however
    long ZooKeeper takes.
    """
    worker, sibling = gateway.worker_pids()
    response = gateway.hold("y", ttl="1h", worker=sibling)
    proxy.cut_off(owner_of(tree, gateway, "y", response.token))
    wait_until(lambda: gateway.renew("y", response.token,
                                     worker=sibling).status == 503,
               BACK, "a worker out of reach")
    holder = gateway.hold("x", ttl="1h", worker=worker)
    proxy.delay = 0.1
    before, _ = gateway.outages()
    released = gateway.release("x", holder.token, worker=sibling)
    # unless the claim's worker has no answers for a second either
    assert released.status == 204 or (
        released.status == 503 and gateway.outages()[0] > before), released
    tree.wait_claims(gateway.znode("x"), 0)
    proxy.pass_on()
    in_reach(gateway)


def test_session_of_one_gateway_ends(gateway, proxy, zookeeper, tree,
                                     start_gateway):
    """The other gateway goes by ZooKeeper alone: as long as ZooKeeper has the
    claim, no other claim can hold the lock.
    """
    there = start_gateway()
    lock = gateway.znode("x")
    stay_ephemeral(tree, lock)
    holder = gateway.hold("x", ttl="1h")
    session = owner_of(tree, gateway, "x", holder.token)
    lost = in_line(gateway, tree, "x", gateway.worker_pids(), ttl="1h",
                   wait="2m")
    hand = tree.make_claim(lock)

    with watched("x", holder.token, gateway, there) as men:
        here, well = men[:4], men[4:]
        proxy.hole()
        tree.wait_claims(lock, 1, BACK)
        free = time.time()
        all_say(well, 410)
        proxy.pass_on()
        proxy.kill()
        all_say(men, 410)
    never_held_after(here, zookeeper.expirations()[session])
    assert all(sent < free for man in well for sent, _ in man.held())

    tree.wait_claims(lock, 3, BACK)
    assert all(waiter.silent_for(0) for waiter in lost)
    tree.client.set_acls(lock, OPEN_ACL_UNSAFE)     # for releases elsewhere
    tree.delete(hand)
    for _ in range(2):
        waiter, = wait_until(lambda: [w for w in lost if not w.silent_for(0)],
                             BACK)
        lost.remove(waiter)
        response = waiter.response()
        grant(response, "x")
        assert "note" in response.json
        release(there, "x", response.token)
    tree.wait_claims(lock, 0)


def test_wait_goes_on_over_a_lost_session(gateway, proxy, tree, foreign):
    """The time before the loss counts: the wait ends at the time that was set.
    """
    lock = gateway.znode("x")
    hand = foreign.make_claim(lock)
    began = time.monotonic()
    waiters = in_line(gateway, tree, "x", gateway.worker_pids(), wait="16s")
    patient = in_line(gateway, tree, "x", gateway.worker_pids(), wait="2m")
    queued = time.monotonic()
    proxy.hole()
    tree.wait_claims(lock, 1, BACK)
    proxy.pass_on()
    proxy.kill()
    tree.wait_claims(lock, 5, BACK)
    before, _ = gateway.outages()
    for waiter in waiters:
        answer = waiter.response()
        if answer.status != 503 or gateway.outages()[0] == before:
            problem(answer, 423)
        assert time.monotonic() - began >= 15.9
    tree.wait_claims(lock, 3)

    waited = time.monotonic() - queued
    foreign.delete(hand)
    for _ in range(2):
        waiter, = wait_until(lambda: [w for w in patient
                                      if not w.silent_for(0)], BACK)
        patient.remove(waiter)
        response = waiter.response()
        grant(response, "x")
        assert "note" in response.json
        assert response.json["waited_ms"] >= 1000 * waited - 100
        gateway.release("x", response.token)
    tree.wait_claims(lock, 0)


def test_answers_are_swallowed(gateway, proxy, tree):
    """ZooKeeper hears the gateway and keeps the session, but the gateway does
    not hear ZooKeeper and cannot know.
    """
    holder = gateway.hold("x", ttl="1h")
    with watched("x", holder.token, gateway) as men:
        proxy.noreply()
        began = time.time()
        time.sleep(SHORT + 0.6)
        healed = time.time()
        proxy.pass_on()
        proxy.kill()
        in_reach(gateway)
        there = len(tree.claims(gateway.znode("x"))) == 1
        all_say(men, 200 if there else 410)
    for man in men:
        assert not man.said_held_between(began + SHORT, healed)
        assert 503 in man.statuses()
    if there:
        release(gateway, "x", holder.token)


# ZooKeeper stands still, or is gone

OUTAGES = {"frozen": ("freeze", "thaw"), "killed": ("kill", "start")}


@pytest.mark.parametrize("how", OUTAGES)
def test_short_outage(private_zookeeper, start_gateway, connect_tree, how):
    """Holders go on holding, waiters go on waiting, and no claim is granted."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout="%gs" % LONG, location=QUICK)
    tree = connect_tree(private_zookeeper.address, timeout=30.0)
    holder = gateway.hold("x", ttl="1h")
    waiters = in_line(gateway, tree, "x", gateway.worker_pids() * 2,
                      ttl="1h", wait="2m")
    free = [gateway.connect(worker) for worker in gateway.worker_pids()]

    begin, end = (getattr(private_zookeeper, act) for act in OUTAGES[how])
    with watched("x", holder.token, gateway) as men:
        begin()
        for i, connection in enumerate(free):
            connection.send("POST", lock_path("free%d" % i),
                            {"ttl": "1h", "wait": "1s"})
        all_say(men, 503)
        assert all(waiter.silent_for(0) for waiter in waiters)
        for connection in free:
            problem(connection.response(), 503)
        end()
        all_say(men, 200)
    for man in men:
        assert man.statuses() <= {200, 503}

    assert all(waiter.silent_for(0) for waiter in waiters)
    tree.wait_back()
    tree.wait_claims(gateway.znode("x"), 5)
    for i in range(len(free)):
        tree.wait_claims(gateway.znode("free%d" % i), 0)
    release_all(gateway, "x", holder, waiters)


@pytest.mark.parametrize("how", OUTAGES)
def test_long_outage(private_zookeeper, start_gateway, connect_tree, how):
    """ZooKeeper was out of reach for longer than the session timeout.  If
    ZooKeeper has ended the session, every worker tells that the lock is lost,
    and else that the lock is held.
    """
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout="%gs" % SHORT, location=QUICK)
    tree = connect_tree(private_zookeeper.address, timeout=30.0)
    stay_ephemeral(tree, gateway.znode("x"))
    holder = gateway.hold("x", ttl="1h")
    session = owner_of(tree, gateway, "x", holder.token)

    begin, end = (getattr(private_zookeeper, act) for act in OUTAGES[how])
    with watched("x", holder.token, gateway) as men:
        begin()
        began = time.time()
        time.sleep(SHORT + 0.6)
        ended = time.time()
        end()
        in_reach(gateway)
        tree.wait_back()
        expired = private_zookeeper.expirations().get(session)
        all_say(men, 200 if expired is None else 410)
    for man in men:
        assert not man.said_held_between(began + SHORT, ended)
    never_held_after(men, expired or time.time())
    if expired is None:
        release(gateway, "x", holder.token)
    tree.wait_claims(gateway.znode("x"), 0)


# a worker stands still
#
# The worker's listening socket goes on taking connections, so connections for
# the time of the sleep, at whatever worker, are made before.

def ask_all(connections, name, token):
    """Sends a holder's requests and an acquire; the worker sleeps meanwhile."""
    for method in ("GET", "PUT", "DELETE"):
        connections[method].send(method, lock_path(name, token))
    connections["POST"].send("POST", lock_path(name), {"wait": "1m",
                                                       "ttl": "1h"})


@pytest.mark.shows("no `held` is told after another client may have the lock")
def test_worker_that_slept_too_long(start_gateway, zookeeper, tree, foreign):
    """The worker confirms no request that came while it slept."""
    gateway = start_gateway(session_timeout="%gs" % SHORT, metrics=True)
    lock = gateway.znode("x")
    stay_ephemeral(tree, lock)
    worker, sibling = gateway.worker_pids()
    holder = gateway.hold("x", worker=worker, ttl="1h")
    session = owner_of(tree, gateway, "x", holder.token)
    requests = {method: gateway.connect(worker)
                for method in ("GET", "PUT", "DELETE", "POST")}

    with watched("x", holder.token, gateway) as men:
        with gateway.frozen_worker(worker):
            ask_all(requests, "x", holder.token)
            tree.wait_claims(lock, 0, BACK)
            hand = foreign.make_claim(lock)
            all_say([man for man in men if str(sibling) in man.title], 410)
        woken = time.time()
        all_say(men, 410)
    never_held_after(men, zookeeper.expirations()[session])
    assert not any(man.said_held_between(woken, time.time()) for man in men)

    answers = {method: requests[method].response()
               for method in ("GET", "PUT", "DELETE")}
    for method in ("GET", "PUT"):
        assert answers[method].status in (410, 503), answers
        problem(answers[method], answers[method].status)
    if not requests["POST"].silent_for(0.3):
        # the worker read it when it knew that ZooKeeper does not answer
        problem(requests["POST"].response(), 503)
        requests["POST"] = gateway.begin("x", worker=worker, wait="1m",
                                         ttl="1h")
    tree.wait_claims(lock, 2, BACK)
    assert lock + "/" + tree.claims(lock)[0] == hand
    assert requests["POST"].silent_for(0.3)
    foreign.delete(hand)
    response = requests["POST"].response(BACK)
    grant(response, "x")
    gone(gateway, "x", holder.token, worker)
    release(gateway, "x", response.token)
    wait_until(lambda: gateway.metrics()["claims", "held"] == 0)
    assert answers["DELETE"].status in (410, 503), answers


@pytest.mark.shows("a release that was answered with 204 was carried out")
def test_release_beside_a_worker_that_sleeps(start_gateway, tree, foreign):
    """The worker's session is over: the lock is lost, and another client may
    have it.
    """
    gateway = start_gateway(session_timeout="%gs" % SHORT)
    lock = gateway.znode("x")
    stay_ephemeral(tree, lock)
    worker, sibling = gateway.worker_pids()
    token = gateway.hold("x", worker=worker, ttl="1h").token
    connection = gateway.connect(sibling)
    with gateway.frozen_worker(worker):
        tree.wait_claims(lock, 0, BACK)
        hand = foreign.make_claim(lock)
        problem(connection.request("DELETE", lock_path("x", token)), 410)
        assert foreign.claims(lock) == [hand.rsplit("/", 1)[1]]
        foreign.delete(hand)
    gone(gateway, "x", token, sibling)


@pytest.mark.parametrize("ahead", ["foreign", "sibling", "both"])
def test_waiter_whose_turn_came_in_sleep(start_gateway, tree, foreign, ahead):
    """While the worker slept, the claims ahead of the waiter went, and then
    the waiter's claim: what the worker learns when it wakes is no grant.
    """
    gateway = start_gateway(session_timeout="%gs" % SHORT)
    lock = gateway.znode("x")
    worker, sibling = gateway.worker_pids()
    hand = holder = None
    if ahead != "sibling":
        hand = foreign.make_claim(lock)
    if ahead == "sibling":
        holder = gateway.hold("x", worker=sibling, ttl="1h")
    if ahead == "both":
        between = gateway.begin("x", worker=sibling, wait="1m")
        tree.wait_claims(lock, 2)
    waiter, = in_line(gateway, tree, "x", [worker], wait="1m")
    behind, = in_line(gateway, tree, "x", [sibling], wait="1m")
    releaser = gateway.connect(sibling)
    ours = tree.claims(lock)[-2]

    with gateway.frozen_worker(worker):
        if hand:
            foreign.delete(hand)
        if ahead == "both":
            holder = between.response(BACK)
        if holder:
            releaser.send("DELETE", lock_path("x", holder.token))
            assert releaser.response().status == 204
        assert behind.silent_for(0.2)
        tree.wait_claims(lock, lambda claims: ours not in claims, BACK)
        response = behind.response(BACK)
        grant(response, "x")
        assert "note" not in response.json

    tree.wait_claims(lock, 2, BACK)
    assert waiter.silent_for(0.3)
    seen = told(gateway.inspect, "x", response.token)
    assert seen.json["state"] == "held"
    release(gateway, "x", response.token)
    response = waiter.response(BACK)
    grant(response, "x")
    assert "note" in response.json
    release(gateway, "x", response.token)


def test_worker_that_napped(start_gateway, tree):
    """The worker slept for less than the session timeout: no lock is lost."""
    gateway = start_gateway(session_timeout="%gs" % LONG)
    lock = gateway.znode("x")
    worker, sibling = gateway.worker_pids()
    holder = gateway.hold("x", worker=worker, ttl="1h")
    waiters = in_line(gateway, tree, "x", [worker, sibling, worker],
                      wait="1m", ttl="1h")
    renewal, look = gateway.connect(worker), gateway.connect(sibling)
    with gateway.frozen_worker(worker):
        renewal.send("PUT", lock_path("x", holder.token))
        for method in "GET", "PUT":
            seen = look.request(method, lock_path("x", holder.token))
            assert seen.status == 200, (method, seen)
        assert renewal.silent_for(1.0)
    assert grant(renewal.response(), "x", 200)["state"] == "held"
    assert len(tree.claims(lock)) == 4
    assert all(waiter.silent_for(0) for waiter in waiters)
    release_all(gateway, "x", holder, waiters)
