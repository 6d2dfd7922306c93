"""A reload replaces the workers; the locks and their holders stay the same.

An old worker serves all waiters to the end, and exits at once if no client
waits.  A granted lock stays granted: a new worker takes over the session and
the claims, whose znodes do not change.  Because a token does
not name a worker, each worker answers for every claim, before, during and after
the reload.

The session timeout is long here, so that no claim and no session ends because
ZooKeeper let the session expire.
"""

import re
import time

import pytest

from lib.checks import gone, grant, problem, retry_after
from lib.client import lock_path
from lib.holders import Held, Keeper, Load, Sessions, wait_dead
from lib.process import alive, wait_until

TIMEOUT = "60s"
SOON = 15.0


@pytest.fixture
def sessions(zookeeper, tree):
    return Sessions(zookeeper, tree)


@pytest.fixture
def gateway(sessions, start_gateway):
    return start_gateway(session_timeout=TIMEOUT)


@pytest.fixture
def held(gateway, tree):
    return Held(gateway, tree)


def settled(gateway, sessions):
    """No old worker and no session of an old worker is left."""
    wait_until(lambda: not gateway.worker_pids(leaving=True), SOON,
               "the old workers are gone")
    sessions.wait(gateway.workers)


@pytest.mark.shows("a held lock outlives its worker, and reloads")
def test_held_locks(gateway, held, sessions):
    """Other workers than the granting workers renew, inspect and release."""
    held.spread(6)
    old = gateway.reload()
    held.check()
    wait_dead(old)
    held.check()
    held.release()
    settled(gateway, sessions)


def timeouts(zookeeper):
    """{session: timeout in milliseconds} of the connected sessions."""
    return {int(sid, 16): int(timeout) for sid, timeout in
            re.findall(r"\bsid=0x([0-9a-f]+),.*?\bto=(\d+)",
                       zookeeper.command("cons"))}


def test_another_session_timeout(gateway, held, sessions, zookeeper):
    """ZooKeeper keeps the timeout that a session began with, so the new workers
    have sessions of their own, and the sessions of the old workers are closed.
    """
    held.spread(2)
    gateway.change_conf("zk_lock_session_timeout " + TIMEOUT,
                        "zk_lock_session_timeout 100s")
    wait_dead(gateway.reload())
    wait_until(lambda: {timeouts(zookeeper).get(session)
                        for session in sessions.now()} == {100000}, SOON,
               "only the new sessions are there")
    held.check()
    held.release()
    settled(gateway, sessions)


def test_taken_locks_are_taken(gateway, held):
    """A new worker refuses to grant a held lock, and names the owner."""
    for worker in gateway.worker_pids():
        held.add("of %d" % worker, worker, owner="somebody")
    old = gateway.reload()
    gateway.wait_served()
    for wait_for_end in (False, True):
        if wait_for_end:
            wait_dead(old)
        for worker in gateway.worker_pids():
            for lock in held.locks:
                problem(gateway.acquire(lock.name, wait="0", worker=worker),
                        423)
                holders = gateway.inspect(lock.name,
                                          worker=worker).json["holders"]
                assert [holder["owner"] for holder in holders] == ["somebody"]
    held.release()


@pytest.mark.shows("each request that waits is answered")
@pytest.mark.parametrize("of", ["same worker", "sibling"])
def test_waiter_of_an_old_worker(gateway, held, tree, sessions, of):
    """The waiter's own worker grants the lock to the waiter."""
    one, other = gateway.worker_pids()
    lock = held.add("x", one)
    waiting = one if of == "same worker" else other
    waiter = gateway.begin("x", wait="1m", ttl="1h", worker=waiting)
    tree.wait_claims(gateway.znode("x"), 2)

    gateway.reload()
    held.check()
    assert waiter.silent_for(0.1)
    wait_until(lambda: gateway.worker_pids(leaving=True) == [waiting], SOON,
               "only that worker is left")
    held.release()

    response = waiter.response(SOON)
    grant(response, "x")
    assert response.worker == waiting
    assert response.fencing > lock.fencing
    held.note("x", response)
    wait_dead([waiting])
    held.check()
    held.release()
    settled(gateway, sessions)


def test_waiters_in_two_generations(gateway, held, tree, sessions):
    """Waiters of old workers and of new workers take turns."""
    held.add("x")
    waiters = []
    for _ in range(3):
        for worker in gateway.worker_pids():
            waiters.append(gateway.begin("x", wait="1m", worker=worker))
            tree.wait_claims(gateway.znode("x"), 1 + len(waiters))
        gateway.reload()
        gateway.wait_served()
    assert len(gateway.worker_pids(leaving=True)) == 6
    held.check()

    fencing = held.locks[0].fencing
    held.release()
    for waiter in waiters:
        response = waiter.response(SOON)
        grant(response, "x")
        assert response.fencing > fencing
        fencing = response.fencing
        assert gateway.release("x", response.token).status == 204
    settled(gateway, sessions)
    tree.wait_claims(gateway.znode("x"), 0)


def test_only_waiters_keep_an_old_worker(gateway, held, tree):
    """A granted lock does not keep the worker, however long the lease is."""
    one, other = gateway.worker_pids()
    held.add("x", one)
    held.add("y", other)
    waiter = gateway.begin("x", wait="1m", worker=other)
    tree.wait_claims(gateway.znode("x"), 2)

    gateway.reload()
    wait_dead([one], SOON)
    assert alive(other)
    held.check()

    waiter.close()
    wait_dead([other], SOON)
    tree.wait_claims(gateway.znode("x"), 1)
    held.check()
    held.release()


def test_wait_ends_at_an_old_worker(gateway, held, tree):
    """423 in due time, no claim, and no worker that stays for the waiter."""
    held.add("x", gateway.worker_pids()[0])
    waiters = [gateway.begin("x", wait="5s", worker=worker)
               for worker in gateway.worker_pids()]
    tree.wait_claims(gateway.znode("x"), 3)
    old = gateway.reload()
    for waiter in waiters:
        problem(waiter.response(SOON), 423)
    tree.wait_claims(gateway.znode("x"), 1)
    wait_dead(old)
    held.check()
    held.release()


def test_behind_a_claim_of_an_old_worker(gateway, held, tree):
    """A waiter of a new worker; the holder's worker drains, or is gone."""
    one, other = gateway.worker_pids()
    for name in ("x", "y"):
        held.add(name, one)
    keeps_it = gateway.begin("y", wait="1m", worker=one)
    tree.wait_claims(gateway.znode("y"), 2)

    gateway.reload()
    gateway.wait_served()
    waiters = [gateway.begin("x", wait="1m", ttl="1h", worker=worker)
               for worker in gateway.worker_pids()]
    tree.wait_claims(gateway.znode("x"), 3)
    assert alive(one)
    held.release("x")
    first, = wait_until(lambda: [w for w in waiters if not w.silent_for(0)])
    waiters.remove(first)
    held.note("x", first.response())

    keeps_it.close()
    wait_dead([one])
    held.check()
    assert waiters[0].silent_for(0)
    held.release()
    grant(waiters[0].response(SOON), "x")


def test_lease_ends_after_the_hand_over(gateway, tree):
    """The lease ends on time and not earlier; the next waiter gets the lock."""
    began = time.monotonic()
    holder = gateway.hold("x", ttl="12s")
    old = gateway.reload()
    wait_dead(old)
    gateway.wait_served()
    waiter = gateway.begin("x", wait="1m", ttl="1h")
    tree.wait_claims(gateway.znode("x"), 2)
    assert gateway.inspect("x", holder.token).json["expires_in_ms"] <= 12000

    response = waiter.response(20)
    assert time.monotonic() - began >= 11.99
    grant(response, "x")
    tree.wait_claims(gateway.znode("x"), 1)
    for worker in gateway.worker_pids():
        gone(gateway, "x", holder.token, worker)
        assert gateway.inspect("x", response.token,
                               worker=worker).json["state"] == "held"
    assert gateway.release("x", response.token).status == 204


def test_lease_is_renewed_before_the_hand_over(gateway, tree):
    """The last deadline that the holder was told counts."""
    worker = gateway.worker_pids()[0]
    longer = gateway.hold("longer", ttl="6s", worker=worker)
    shorter = gateway.hold("shorter", ttl="1h", worker=worker)
    assert gateway.renew("longer", longer.token, ttl="1h").status == 200
    assert gateway.renew("shorter", shorter.token, ttl="6s").status == 200
    wait_dead(gateway.reload())
    gateway.wait_served()
    tree.wait_claims(gateway.znode("shorter"), 0, SOON)
    gone(gateway, "shorter", shorter.token)
    content = gateway.inspect("longer", longer.token).json
    assert content["state"] == "held"
    assert content["expires_in_ms"] > 3000000
    assert gateway.release("longer", longer.token).status == 204


def test_reloads_in_a_row(gateway, held, tree, sessions):
    """Under load; the next reload begins before the old workers have left."""
    held.spread(10)
    with Keeper(held) as keeper, Load(gateway) as load:
        for _ in range(3):
            gateway.reload()
            for worker in gateway.worker_pids():
                held.add("by %d" % worker, worker)
        for _ in range(2):
            gateway.reload()
            wait_until(lambda: not gateway.worker_pids(leaving=True), 10,
                       "the old workers are gone")
            keeper.next_rounds()
    held.check()
    held.release()
    load.gone(tree)
    settled(gateway, sessions)


@pytest.mark.parametrize("workers", [1, 3])
def test_number_of_workers_changes(gateway, held, sessions, workers):
    held.spread(6)
    gateway.change_conf("worker_processes 2;",
                        "worker_processes %d;" % workers)
    gateway.workers = workers
    wait_dead(gateway.reload())
    held.check()
    held.release()
    settled(gateway, sessions)


def counts(gateway, worker):
    metrics = gateway.metrics(worker)
    return [metrics["claims", state] for state in ("held", "waiting")] + [
        metrics["sessions", state] for state in ("own", "adopted", "orphaned")]


def test_one_session_for_each_worker(start_gateway, tree, sessions):
    """Sessions of old workers are closed at once, whatever they hold."""
    gateway = start_gateway(session_timeout=TIMEOUT, metrics=True)
    held = Held(gateway, tree).spread(4)
    for _ in range(3):
        wait_dead(gateway.reload())
        sessions.wait(2)
        for worker in gateway.worker_pids():
            # durable leases are counted a moment after the adoption
            wait_until(lambda: counts(gateway, worker) == [4, 0, 2, 0, 0],
                       SOON, "a worker counts each lease and session")
        held.check()
    held.release()
    settled(gateway, sessions)


def test_old_worker_is_killed(gateway, held, tree):
    """The killed worker was draining: waiters are cut off, claims stay."""
    worker = gateway.worker_pids()[0]
    held.add("x", worker)
    waiter = gateway.begin("x", wait="1m", worker=worker)
    tree.wait_claims(gateway.znode("x"), 2)
    gateway.reload()
    gateway.kill_worker(worker)
    assert waiter.closed_by_server(SOON)
    tree.wait_claims(gateway.znode("x"), 1, SOON)
    held.check()
    held.release()


@pytest.fixture
def hasty(start_gateway):
    """A gateway whose old workers have to exit within a second."""
    return start_gateway(session_timeout=TIMEOUT,
                         main="worker_shutdown_timeout 1s;")


def test_shutdown_timeout(hasty, tree, sessions):
    """Waiters get 503 and may retry; held locks are handed over."""
    held = Held(hasty, tree).spread(4)
    held.add("x")
    plain = [hasty.begin("x", wait="1m", worker=worker)
             for worker in hasty.worker_pids() for _ in range(3)]
    connection = hasty.connect_http2()
    streams = [connection.send("POST", lock_path("x"), {"wait": "1m"})
               for _ in range(3)]
    tree.wait_claims(hasty.znode("x"), 10)

    old = hasty.reload()
    answers = ([waiter.response(SOON) for waiter in plain]
               + [connection.response(stream, SOON) for stream in streams])
    for response in answers:
        problem(response, 503)
        retry_after(response)
        assert response.worker in old
    tree.wait_claims(hasty.znode("x"), 1)
    wait_dead(old)
    held.check()
    held.release()
    wait_until(lambda: len(sessions.now()) == 2, SOON, "two sessions")


def test_shutdown_timeout_and_those_behind(hasty, tree):
    """A waiter of a new worker does not wait behind the refused waiters."""
    held = Held(hasty, tree)
    held.add("x")
    sent_off = [hasty.begin("x", wait="1m", worker=worker)
                for worker in hasty.worker_pids()]
    tree.wait_claims(hasty.znode("x"), 3)
    old = hasty.reload()
    hasty.wait_served()
    waiter = hasty.begin("x", wait="1m")
    for connection in sent_off:
        problem(connection.response(SOON), 503)
    wait_dead(old)
    tree.wait_claims(hasty.znode("x"), 2)
    held.release()
    grant(waiter.response(SOON), "x")


def test_another_zone_is_another_gateway(start_gateway, tree, sessions):
    """The new workers find the old workers' leases in ZooKeeper."""
    gateway = start_gateway(session_timeout=TIMEOUT,
                            http="zk_lock_zone 2m;")
    holder = gateway.hold("x", ttl="1h")
    gateway.change_conf("zk_lock_zone 2m;", "zk_lock_zone 3m;")
    old = gateway.reload()
    wait_dead(old)
    gateway.wait_served()
    tree.wait_claims(gateway.znode("x"), 1)
    for worker in gateway.worker_pids():
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
        assert wait_until(lambda: [
            r.status for r in [gateway.renew("x", holder.token, worker=worker)]
            if r.status != 503], SOON, "an answer")[0] == 200
    assert gateway.release("x", holder.token).status == 204
    tree.wait_claims(gateway.znode("x"), 0)
    settled(gateway, sessions)


@pytest.mark.parametrize("headers", [None, {"Idempotency-Key": '"k"'}])
def test_wait_is_over_in_a_worker_that_leaves(start_gateway, start_proxy,
                                              zookeeper, tree, headers):
    """The deciding read is under way when the connection breaks."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout=TIMEOUT,
                         wait_sessions=False, location="zk_lock_grace 1s;")
    there = start_gateway()
    holder = there.hold("x", ttl="1h")
    worker = here.worker_pids()[0]
    wait_until(lambda: here.inspect("x", worker=worker).status == 200)

    def lists():
        return proxy.requests["getChildren"] + proxy.requests["getChildren2"]

    before = lists()
    proxy.delay = 0.3
    waiter = here.begin("x", None, headers, worker, wait="1s")
    wait_until(lambda: lists() > before, what="a list is asked for")
    proxy.hole()
    here.reload(wait=False)
    waiter.silent_for(0.3)      # the wait is over, but the outcome is unknown
    proxy.kill()
    response = waiter.response(SOON)
    assert response.status in (423, 503), response
    proxy.pass_on()
    wait_dead([worker])
    assert there.release("x", holder.token).status == 204
    tree.wait_claims(there.znode("x"), 0)
