"""Everything at once: reloads, crashes and restarts, and no lock is lost.

Locks are held and renewed all the time, further locks have waiters at workers
of every generation, and clients take and release some more without a pause.
Meanwhile the gateway is reloaded again and again, then each worker is killed,
then the gateway is terminated and started, then killed and started.  The test
watches the znodes of held locks, and the clients check that each is alone.

    ZK_LOCK_HELD        locks that are held
    ZK_LOCK_WAITING     requests that wait
    ZK_LOCK_RELOADS     reloads in a row
"""

import collections
import os
import select

import pytest

from lib.checks import grant
from lib.holders import Held, Keeper, Load, Sessions, wait_dead
from lib.process import alive, wait_until

HELD = int(os.environ.get("ZK_LOCK_HELD") or 60)
WAITING = int(os.environ.get("ZK_LOCK_WAITING") or 20)
RELOADS = int(os.environ.get("ZK_LOCK_RELOADS") or 4)

TIMEOUT = "60s"
SHORT = "4s"        # when a gateway is killed: its leases are taken over then
IN_LINE = 5         # waiters of one lock, at most
A_GRANT = 20.0


class Waiter:
    def __init__(self, worker, connection, place):
        self.worker = worker
        self.connection = connection
        self.place = place


class Queues:
    """Held locks, each with waiters of several generations."""

    def __init__(self, gateway, tree, number):
        self.gateway = gateway
        self.tree = tree
        self.held = Held(gateway, tree)
        self.held.spread(-(-number // IN_LINE), "queue%d")
        self.waiters = collections.defaultdict(list)
        self.number = 0

    def add(self, number):
        """Adds so many waiters, in turn at all workers that do not leave."""
        workers = self.gateway.worker_pids()
        for i in range(number):
            lock = self.held.locks[self.number % len(self.held.locks)]
            worker = workers[i % len(workers)]
            connection = self.gateway.begin(lock.name, wait="5m", ttl="1h",
                                            worker=worker)
            waiters = self.waiters[lock.name]
            waiters.append(Waiter(worker, connection, len(waiters)))
            self.tree.wait_claims(self.gateway.znode(lock.name),
                                  1 + len(waiters))
            self.number += 1

    def workers(self):
        """The workers that have to stay for a waiter."""
        return {waiter.worker for waiters in self.waiters.values()
                for waiter in waiters}

    def killed(self, worker):
        """The worker's waiters are cut off, and their claims go."""
        for name, waiters in self.waiters.items():
            cut = [waiter for waiter in waiters if waiter.worker == worker]
            for waiter in cut:
                assert waiter.connection.closed_by_server(A_GRANT)
                waiters.remove(waiter)
            self.tree.wait_claims(self.gateway.znode(name), 1 + len(waiters))

    def all_wait(self):
        """No waiter was granted or sent off."""
        sockets = [waiter.connection.socket
                   for waiters in self.waiters.values() for waiter in waiters]
        assert not select.select(sockets, [], [], 0)[0]

    def have_their_turns(self):
        """All waiters are granted in order, each when the holder releases."""
        for name, waiters in self.waiters.items():
            while waiters:
                fencing = self.fencing(name)
                self.held.release(name)
                waiter = waiters.pop(0)
                response = waiter.connection.response(A_GRANT)
                grant(response, name)
                assert response.fencing > fencing
                assert response.worker == waiter.worker
                self.all_wait()
                self.held.note(name, response)

    def fencing(self, name):
        lock, = [lock for lock in self.held.locks if lock.name == name]
        return lock.fencing


@pytest.fixture
def sessions(zookeeper, tree):
    return Sessions(zookeeper, tree)


@pytest.fixture
def gateway(sessions, start_gateway):
    gateway = start_gateway(session_timeout=TIMEOUT, metrics=True)
    return gateway


def test_survival(gateway, tree, sessions):
    held = Held(gateway, tree).spread(HELD)
    queues = Queues(gateway, tree, WAITING)
    with Keeper(held, pause=0) as keeper:
        with Load(gateway, locks=3) as load:
            reloads(gateway, held, queues, keeper)
            crashes(gateway, held, queues, keeper)
            turns(gateway, held, queues, keeper)
        load.gone(tree)
        all_durable(gateway, tree, held, queues.held)
        restarts(gateway, held, keeper)

    held.check()
    held.release()
    queues.held.release()
    nothing_is_left(gateway, tree, sessions)


def reloads(gateway, held, queues, keeper):
    """Each generation has separate waiters, and stays for these waiters."""
    for i in range(RELOADS):
        queues.add(WAITING * (i + 1) // (RELOADS + 1) - queues.number)
        gateway.reload()
        queues.all_wait()
        held.check_znodes()
    queues.add(WAITING - queues.number)
    keeper.next_rounds()
    only_those_with_waiters(gateway, queues)
    held.check()
    queues.held.check()


def only_those_with_waiters(gateway, queues):
    """Of the old workers, only workers with waiters are left."""
    wait_until(lambda: set(gateway.worker_pids(leaving=True))
               == queues.workers() - set(gateway.worker_pids()), A_GRANT,
               "only those workers are left at which somebody waits")


def crashes(gateway, held, queues, keeper):
    """Kills every worker that takes requests, and a worker that leaves."""
    victims = (gateway.worker_pids(leaving=True)[:1]
               + gateway.worker_pids())
    for victim in victims:
        gateway.kill_worker(victim)
        queues.killed(victim)
        wait_until(lambda: len(gateway.worker_pids()) == gateway.workers
                   and not alive(victim), A_GRANT, "a new worker")
        keeper.next_rounds()
        held.check()
        queues.all_wait()
        queues.held.check()


def turns(gateway, held, queues, keeper):
    """All waiters have their turns, and then no old worker stays."""
    assert queues.workers()
    queues.have_their_turns()
    wait_dead(gateway.worker_pids(leaving=True), A_GRANT)
    keeper.next_rounds()
    held.check()
    queues.held.check()


def all_durable(gateway, tree, *groups):
    number = sum(len(held.locks) for held in groups)
    wait_until(lambda: len(tree.durables(gateway.root)) == number, A_GRANT,
               "all leases are durable")


def restarts(gateway, held, keeper):
    gateway.change_conf("session_timeout %s;" % TIMEOUT,
                        "session_timeout %s;" % SHORT)
    for end in gateway.terminate, gateway.kill:
        end()
        held.check_znodes()
        gateway.start()
        keeper.next_rounds()
        held.check()


def nothing_is_left(gateway, tree, sessions):
    """No claim, no session, no record of dead workers is left."""
    assert not tree.ephemerals(gateway.root)
    sessions.wait_owning(gateway.workers)

    def clean():
        metrics = gateway.metrics()
        return (metrics["sessions", "own"] == gateway.workers
                and metrics["sessions_used", ""] == gateway.workers
                and not any(metrics[what] for what in (
                    ("sessions", "adopted"), ("sessions", "orphaned"),
                    ("claims", "held"), ("claims", "waiting"),
                    ("claims", "new"), ("claims", "ended"),
                    ("claims_used", ""))))

    wait_until(clean, A_GRANT, "no record of dead workers is left")
