"""nginx ends and is started again: durable leases survive.

No part of a durable lease is on the machine: the lease is a persistent znode,
which the next nginx finds under the same token and counts.  So nginx may be
stopped, may be killed and may change the binary.  The waiters, their claims and
the leases that were not durable yet are gone: at once if nginx was stopped,
when their sessions end if nginx was killed.
"""

import os
import signal
import time

import pytest

from lib.checks import gone, grant, problem
from lib.client import lock_path
from lib.holders import Held, Keeper, Sessions, wait_dead
from lib.process import alive, wait_until
from lib.sessions import stay_ephemeral

SOON = 20.0
SHORT = "6s"            # a session timeout short enough to wait for


@pytest.fixture
def sessions(zookeeper, tree):
    return Sessions(zookeeper, tree)


@pytest.fixture
def gateway(sessions, start_gateway):
    return start_gateway(session_timeout=SHORT)


@pytest.fixture
def held(gateway, tree):
    return Held(gateway, tree)


def all_durable(held):
    """The leases become durable without a further call."""
    root = held.gateway.root
    wait_until(lambda: len(held.tree.durables(root)) == len(held.locks),
               SOON, "all leases are durable")


def end(gateway, how):
    """Ends the old processes, and the connections to them."""
    getattr(gateway, how)()


def restart(gateway, how):
    end(gateway, how)
    gateway.start()


def status_in_time(gateway, name, token):
    """The status of a renewal as soon as ZooKeeper is in reach."""
    return wait_until(lambda: [r.status for r in [gateway.renew(name, token)]
                               if r.status != 503], 20, "an answer")[0]


@pytest.mark.shows("a durable lease outlives its session")
def test_again_and_again(gateway, held, sessions):
    """Every generation adds locks to the inherited locks."""
    for i, how in enumerate(["terminate", "kill", "stop", "kill",
                             "terminate"]):
        held.spread(2, "%d.%%d" % i, durable="1")
        restart(gateway, how)
        held.check()
    held.release()
    sessions.wait_owning(2)


def test_heirs_are_gone_at_once(gateway, held, sessions):
    """New workers are killed while they take over, three times."""
    held.spread(6, durable="1")
    for _ in range(3):
        end(gateway, "kill")
        gateway.start(wait_sessions=False)
    held.check()
    held.release()
    sessions.wait_owning(2)


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_waiters(gateway, held, tree, how):
    """Waiters are cut off, and their claims do not come back."""
    held.add("x", durable="1")
    waiters = [gateway.begin("x", wait="1m", worker=worker)
               for worker in gateway.worker_pids()]
    tree.wait_claims(gateway.znode("x"), 3)
    restart(gateway, how)
    for waiter in waiters:
        assert waiter.closed_by_server(SOON)
    tree.wait_claims(gateway.znode("x"), 1, SOON)
    held.check()

    waiter = gateway.begin("x", wait="1m")
    tree.wait_claims(gateway.znode("x"), 2)
    held.release()
    response = waiter.response(SOON)
    grant(response, "x")
    assert gateway.release("x", response.token).status == 204


@pytest.mark.parametrize("workers", [1, 4])
def test_number_of_workers_changes(gateway, held, sessions, workers):
    held.spread(6, durable="1")
    end(gateway, "terminate")
    gateway.change_conf("worker_processes 2;",
                        "worker_processes %d;" % workers)
    gateway.workers = workers
    gateway.start()
    held.check()
    held.release()
    sessions.wait_owning(workers)


def test_after_crash_and_reload(gateway, held, sessions):
    """A lease that was inherited once is inherited again."""
    held.spread(4)
    gateway.reload()
    held.spread(4, "more%d")
    gateway.kill_worker(gateway.worker_pids()[0])
    all_durable(held)
    end(gateway, "kill")
    gateway.start()
    held.check()
    held.release()
    sessions.wait_owning(2)


def ask_for_many(gateway, name):
    """Sends many acquires; every worker is busy with claims on return."""
    for worker in gateway.worker_pids():
        response = gateway.hold("y", worker=worker)
        assert gateway.release("y", response.token).status == 204
    connections = [gateway.connect(worker)
                   for worker in gateway.worker_pids() for _ in range(10)]
    names = [name % i for i in range(len(connections))]
    for connection, name in zip(connections, names):
        connection.send("POST", lock_path(name), {"ttl": "1s"})
    return names


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_end_while_much_is_under_way(gateway, tree, sessions, how):
    """No claim stays, whether or not ZooKeeper carried out the acquire."""
    names = []
    for i in range(5):
        names += ask_for_many(gateway, "x%d.%%d" % i)
        time.sleep(i * 0.001)
        restart(gateway, how)
    for name in names:
        tree.wait_claims(gateway.znode(name), 0, SOON)
    sessions.wait_owning(2)


# leases

def counted(gateway, name, token):
    """The state of a lease as soon as the answer says when the lease ends."""
    return wait_until(lambda: [
        r.json for r in [gateway.inspect(name, token)]
        if r.status == 200 and "expires_in_ms" in r.json], SOON,
        "the lease is counted")[0]


def test_lease_goes_on(gateway, held):
    """A lease lasts for the last told time, counted from the takeover."""
    lock = held.add("x", ttl="10m", durable="1")
    assert gateway.renew("x", lock.token, ttl="30m").status == 200
    before = counted(gateway, "x", lock.token)
    ends = time.monotonic() + before["expires_in_ms"] / 1000
    restart(gateway, "terminate")
    after = counted(gateway, "x", lock.token)
    assert after["ttl_ms"] == before["ttl_ms"] == 1800000
    assert after["expires_in_ms"] <= 1800000
    assert time.monotonic() + after["expires_in_ms"] / 1000 > ends
    held.release()


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_lease_that_ended_meanwhile(gateway, tree, how):
    """No other client took the lock: the holder may renew the lease again."""
    # nginx ends within this time, also after a pause of the machine
    holder = gateway.hold("x", ttl="10s", durable="1")
    ends = time.monotonic() + 10.0
    end(gateway, how)
    time.sleep(max(0.0, ends + 0.1 - time.monotonic()))
    assert len(tree.claims(gateway.znode("x"))) == 1
    gateway.start()
    assert status_in_time(gateway, "x", holder.token) == 200
    tree.wait_claims(gateway.znode("x"), 0, 20)
    gone(gateway, "x", holder.token)
    response = gateway.hold("x", wait="0")
    assert gateway.release("x", response.token).status == 204


def test_longer_than_the_session_lives(gateway, tree, sessions):
    """A durable lease survives; else the lock is free, and the holder gets 410.
    """
    kept = {"x%d" % i: gateway.hold("x%d" % i, ttl="1h", durable="1")
            for i in range(4)}
    stay_ephemeral(tree, *(gateway.znode("y%d" % i) for i in range(4)))
    lost = {"y%d" % i: gateway.hold("y%d" % i, ttl="1h") for i in range(4)}
    end(gateway, "kill")
    for name in lost:
        tree.wait_claims(gateway.znode(name), 0, 20)
    gateway.start()
    for name, holder in lost.items():
        assert status_in_time(gateway, name, holder.token) == 410
        for worker in gateway.worker_pids():
            gone(gateway, name, holder.token, worker)
        gateway.release(name, gateway.hold(name, wait="0").token)
    for name, holder in kept.items():
        for worker in gateway.worker_pids():
            problem(gateway.acquire(name, wait="0", worker=worker), 423)
        assert status_in_time(gateway, name, holder.token) == 200
        assert gateway.release(name, holder.token).status == 204
        tree.wait_claims(gateway.znode(name), 0)
    sessions.wait_owning(2)


def test_released_after_its_session(gateway, tree):
    """A release is answered 410 or 503, never 204, as the session is over."""
    stay_ephemeral(tree, *(gateway.znode("x%d" % i) for i in range(4)))
    holders = [gateway.hold("x%d" % i, ttl="1h") for i in range(4)]
    gateway.terminate()
    for i in range(len(holders)):
        tree.wait_claims(gateway.znode("x%d" % i), 0, SOON)
    gateway.start(wait_sessions=False)
    for i, holder in enumerate(holders):
        response = gateway.release("x%d" % i, holder.token)
        assert response.status in (410, 503), response


# the sessions

def all_closed(sessions):
    """A process ends when the request that closes its session is sent."""
    wait_until(lambda: not sessions.now(), SOON, "no session is left")


def test_a_clean_end_and_a_start(start_gateway, tree, sessions):
    """A young lease is free at once, for all clients and for the next nginx."""
    gateway = start_gateway(session_timeout="60s")
    stay_ephemeral(tree, gateway.znode("x"))
    holder = gateway.hold("x", ttl="1h")
    end(gateway, "terminate")
    tree.wait_claims(gateway.znode("x"), 0, SOON)
    all_closed(sessions)
    gateway.start()
    again = gateway.hold("x", wait="0")
    assert gateway.renew("x", holder.token).status in (404, 410)
    assert gateway.release("x", again.token).status == 204


@pytest.mark.parametrize("how, query", [("stop", {}),
                                        ("stop", {"durable": "1"}),
                                        ("terminate", {"durable": "1"})])
def test_durable_lease_over_a_restart(start_gateway, tree, sessions, how,
                                      query):
    """No session holds a durable lease; the next nginx goes on with the lease.

    A worker that is told to quit makes the other leases durable.
    """
    gateway = start_gateway(session_timeout="60s")
    holder = gateway.hold("x", ttl="1h", **query)
    claim, = tree.claims(gateway.znode("x"))
    end(gateway, how)
    assert tree.claims(gateway.znode("x")) == [claim]
    all_closed(sessions)
    assert not tree.ephemerals(gateway.root)
    gateway.start()
    for worker in gateway.worker_pids():
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
    assert status_in_time(gateway, "x", holder.token) == 200
    assert gateway.release("x", holder.token).status == 204
    tree.wait_claims(gateway.znode("x"), 0, SOON)


def test_clean_end_while_much_is_under_way(start_gateway, sessions):
    """An answer of ZooKeeper at that moment does not keep a session open."""
    gateway = start_gateway(session_timeout="60s")
    for i in range(5):
        ask_for_many(gateway, "x%d.%%d" % i)
        time.sleep(i * 0.001)
        end(gateway, "terminate")
        all_closed(sessions)
        gateway.start()


def test_all_killed_and_started(start_gateway, tree):
    """The locks are free when their sessions are over, and no earlier."""
    gateway = start_gateway(session_timeout="12s")
    stay_ephemeral(tree, gateway.znode("x"))
    holder = gateway.hold("x", ttl="1h")
    restart(gateway, "kill")
    problem(gateway.acquire("x", wait="0"), 423)
    response = gateway.hold("x", wait="20s")
    assert response.fencing > holder.fencing
    assert gateway.release("x", response.token).status == 204


# the master

def test_master_and_orphans_die(gateway, held, sessions):
    """Workers without a master serve on; then the workers die, too."""
    held.spread(6, durable="1")
    orphans = gateway.kill_master()
    held.check(orphans)
    gateway.kill_orphans()
    gateway.start()
    held.check()
    held.release()
    sessions.wait_owning(2)


def test_orphan_inherits_from_an_orphan(gateway, held):
    """No new worker replaces the orphan that dies."""
    held.spread(4)
    dead, other = gateway.kill_master()
    connection = gateway.connect(other)
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: not alive(dead))
    held.check_at(connection)
    all_durable(held)
    gateway.kill_orphans()
    gateway.start()
    held.check()
    held.release()


def test_start_beside_orphans(gateway, held, sessions):
    """A new nginx serves beside workers of the old nginx: two gateways, and
    every worker knows every token.
    """
    held.spread(4)
    orphans = gateway.kill_master()
    gateway.start()
    held.spread(4, "new%d")
    held.check()
    held.check(orphans)
    all_durable(held)
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in orphans))
    held.check()
    held.release()
    sessions.wait_owning(2)


def test_upgrade(start_gateway, tree, sessions):
    """SIGUSR2: two gateways, until the old gateway leaves and hands over."""
    gateway = start_gateway(daemon=True)
    held = Held(gateway, tree).spread(4)
    held.add("x")
    with Keeper(held) as keeper:
        waiter = gateway.begin("x", wait="1m", ttl="1h")
        tree.wait_claims(gateway.znode("x"), 2)
        old, workers = gateway.upgrade()
        held.spread(4, "new%d")
        held.check()
        held.check(workers)
        keeper.next_rounds()

        held.release("x")
        held.note("x", waiter.response(SOON))
        gateway.end_upgrade(old, workers)
        held.check()
        keeper.next_rounds()
    held.release()
    sessions.wait_owning(2)


@pytest.mark.plain("a new binary is without their options")
def test_upgrade_is_taken_back(start_gateway, tree, sessions):
    """The new master leaves; the locks that its workers granted stay."""
    gateway = start_gateway(daemon=True)
    held = Held(gateway, tree).spread(4)
    old, workers = gateway.upgrade()
    held.spread(4, "new%d", durable="1")
    gateway.downgrade(old)
    held.check()
    assert sorted(gateway.worker_pids()) == sorted(workers)
    held.release()
    sessions.wait_owning(2)


def test_no_session_is_left(start_gateway, private_zookeeper, connect_tree):
    """Both workers quit at the same moment, and hold durable leases only."""
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    sessions = Sessions(private_zookeeper, tree)
    gateway = start_gateway(zookeeper=private_zookeeper, session_timeout="60s")
    holders = [gateway.hold("x%d" % i, ttl="1h", durable="1", worker=worker)
               for i, worker in enumerate(gateway.worker_pids())]
    for _ in range(8):
        end(gateway, "stop")
        all_closed(sessions)
        gateway.start()
        for i, holder in enumerate(holders):
            assert status_in_time(gateway, "x%d" % i, holder.token) == 200


def test_a_worker_dies_before_a_quit(start_gateway, private_zookeeper,
                                     connect_tree):
    """The dead worker's leases become durable, and the session is closed."""
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    sessions = Sessions(private_zookeeper, tree)
    gateway = start_gateway(zookeeper=private_zookeeper, session_timeout="60s")
    for i in range(4):
        worker = gateway.worker_pids()[i % 2]
        holder = gateway.hold("x%d" % i, ttl="1h", worker=worker)
        gateway.kill_worker(worker)
        wait_dead([worker])
        end(gateway, "stop")
        assert len(tree.durables(gateway.znode("x%d" % i))) == 1
        wait_until(lambda: not sessions.owning(), SOON, "none owns a znode")
        gateway.start()
        assert status_in_time(gateway, "x%d" % i, holder.token) == 200
