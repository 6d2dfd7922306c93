"""What a lock costs ZooKeeper, by the server's own counters.

A lock that one worker takes and gives back repeatedly costs two transactions
each time and no read; a hand-over to a waiter of the same gateway costs no
read; and many requests at once share few transactions.  Since lookups() counts
pings too, the test bounds that count; reads() counts lookups of the test's own
znodes and has to stay zero.  Only this file uses the server, so no other
session begins or ends and no container is reaped during a count.
"""

import asyncio
import select
import time

import pytest

from lib.client import AsyncConnection, lock_path
from lib.process import wait_until
from lib.tokens import claim_of
from lib.zookeeper import Server, Tree

ROUNDS = 100
PINGS = 10
LONG_HOLD = 2.0         # seconds, after which a lease is made durable
TRIES = 5


class Cost:
    """The differences of the counters since the object was made."""

    def __init__(self, zookeeper, root):
        self.zookeeper = zookeeper
        self.top = "/" + root.split("/")[1]
        self.before = self._now()

    def _now(self):
        return (self.zookeeper.transactions(),
                self.zookeeper.reads(self.top), self.zookeeper.lookups())

    def spent(self):
        return [now - before for now, before in zip(self._now(),
                                                    self.before)]


class Holds:
    """How long the claims of a measurement were held, at most."""

    def __init__(self):
        self.longest = 0.0
        self.begin()

    def begin(self):
        """No grant that counts was made before this."""
        self.since = time.monotonic()

    def end(self):
        """What was granted since begin() is released."""
        self.longest = max(self.longest, time.monotonic() - self.since)


def short(measure):
    """What a measurement has spent in which each claim was held for a moment.

    Where the machine stands still, a lease may be made durable, which costs, so
    the measurement is made anew.  measure(holds) tells holds of each claim.
    """
    for _ in range(TRIES):
        holds = Holds()
        spent = measure(holds)
        if holds.longest < LONG_HOLD:
            return spent
    raise AssertionError("a claim is held for %g s each time" % holds.longest)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("counted"),
                    container_check=3600000).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def tree(zookeeper):
    tree = Tree(zookeeper.address)
    yield tree
    tree.close()


@pytest.fixture
def single(start_gateway):
    return start_gateway(workers=1, session_timeout="30s")


def warm_up(gateway, *names):
    with gateway.connect() as connection:
        for name in names:
            for _ in range(2):
                response = connection.request("POST", lock_path(name))
                assert response.status == 201
                response = connection.request(
                    "DELETE", lock_path(name, response.token))
                assert response.status == 204


def test_acquire_and_release_again_and_again(single, zookeeper):
    def measure(holds):
        warm_up(single, "x")
        cost = Cost(zookeeper, single.root)
        again_and_again(single, ["x"], ROUNDS, holds)
        return cost.spent()

    transactions, reads, lookups = short(measure)
    assert transactions <= 2 * ROUNDS + 2
    assert reads == 0
    assert lookups <= PINGS


def test_first_use_of_a_lock_costs_no_list(zookeeper, start_proxy,
                                           start_gateway):
    """Number 0 proves that a claim is the first."""
    # the proxy stays until the gateway has ended the session
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            workers=1)
    gateway.wait_served()

    def lists():
        return (proxy.requests["getChildren"]
                + proxy.requests["getChildren2"])

    before = lists()
    warm_up(gateway, *["x%d" % i for i in range(20)])
    assert lists() == before, proxy.requests


def test_hand_over_to_local_waiters(single, zookeeper, tree):
    """No read and no wait for a watch: the worker knows the next claim."""
    def measure(holds):
        warm_up(single, "x")
        holder = single.hold("x")
        waiters = []
        for i in range(ROUNDS // 2 + 1):
            waiters.append(single.begin("x", wait="1m"))
        tree.wait_claims(single.znode("x"), ROUNDS // 2 + 2)

        holds.begin()
        left, token = hand_over(single, holder, waiters)
        cost = Cost(zookeeper, single.root)
        with single.connect() as connection:
            while True:
                since = time.monotonic()
                response = connection.request("DELETE", lock_path("x", token))
                assert response.status == 204
                holds.end()
                if not left:
                    return cost.spent()
                holds.since = since
                token = first_answer(left).token

    transactions, reads, lookups = short(measure)
    assert transactions <= ROUNDS // 2 + 3
    assert reads == 0
    assert lookups <= PINGS


def hand_over(gateway, holder, waiters):
    """The waiters that are left, and the token of the first.

    The first holder may have held the lock for two seconds, and then the lease
    is being made durable, which costs.
    """
    assert gateway.release("x", holder.token).status == 204
    left = list(waiters)
    return left, first_answer(left).token


def first_answer(waiters):
    """The only waiter that was granted; removed from the list."""
    ready = select.select([w.socket for w in waiters], [], [], 10)[0]
    assert len(ready) == 1
    waiter, = [w for w in waiters if w.socket is ready[0]]
    waiters.remove(waiter)
    response = waiter.response()
    assert response.status == 201
    return response


def test_hand_over_to_waiters_of_a_sibling(gateway, zookeeper, tree):
    """Two workers, waiters in turn at either: still no list."""
    workers = gateway.worker_pids()

    def measure(holds):
        for worker in workers:
            gateway.release("x", gateway.hold("x", worker=worker).token)
        holder = gateway.hold("x", worker=workers[0])
        waiters = []
        for i in range(21):
            waiters.append(gateway.begin("x", wait="1m",
                                         worker=workers[i % 2]))
            tree.wait_claims(gateway.znode("x"), i + 2)

        holds.begin()
        left, token = hand_over(gateway, holder, waiters)
        cost = Cost(zookeeper, gateway.root)
        while True:
            since = time.monotonic()
            assert gateway.release("x", token, workers[0]).status == 204
            holds.end()
            if not left:
                return cost.spent()
            holds.since = since
            token = first_answer(left).token

    assert short(measure)[1] == 0


def test_an_idle_worker_shows_that_its_session_lives(start_gateway, zookeeper):
    """It writes repeatedly, and what it writes changes no znode."""
    gateway = start_gateway(workers=1, session_timeout="3s")
    gateway.release("x", gateway.hold("x").token)
    top = "/" + gateway.root.split("/")[1]
    before, changes = zookeeper.transactions(), zookeeper.writes(top)
    wait_until(lambda: zookeeper.transactions() >= before + 3, 20)
    assert zookeeper.writes(top) == changes


async def at_once(single, connections, method, paths):
    """The answers to requests that the worker finds all together."""
    worker, = single.worker_pids()
    with single.frozen_worker(worker):
        for connection, path in zip(connections, paths):
            await connection.send(method, path)
    return await asyncio.gather(*(connection.response(method)
                                  for connection in connections))


async def look(single, name, each, rounds):
    """Many clients that look at a lock at once, repeatedly."""
    connections = [await AsyncConnection(single.port).open()
                   for _ in range(each)]
    for _ in range(rounds):
        answers = await at_once(single, connections, "GET",
                                [lock_path(name)] * each)
        assert {answer.status for answer in answers} == {200}
    for connection in connections:
        connection.close()


def test_those_who_look_at_once_share_a_transaction(single, zookeeper):
    """The read for an answer follows a write."""
    warm_up(single, "x")
    holder = single.hold("x")
    before = zookeeper.transactions()
    asyncio.run(look(single, "x", 64, 20))
    spent = zookeeper.transactions() - before
    assert spent < 64 * 20 / 2
    assert single.release("x", holder.token).status == 204


async def contend(port, name, workers, rounds, each):
    """Many clients at each worker, which take the lock in a closed loop."""
    async def client(worker):
        while True:
            connection = await AsyncConnection(port).open()
            answer = await connection.request("GET", "/ready")
            if answer.worker == worker:
                break
            connection.close()
        for _ in range(rounds):
            answer = await connection.request("POST", lock_path(name))
            assert answer.status == 201, answer
            answer = await connection.request(
                "DELETE", lock_path(name, answer.token))
            assert answer.status == 204, answer
        connection.close()

    await asyncio.gather(*(client(worker) for worker in workers
                           for _ in range(each)))


@pytest.mark.parametrize("each", [1, 8, 32])
def test_a_hot_lock_is_never_read(gateway, zookeeper, each):
    """Two workers' clients, in any order: the zone has all claims of both.

    One read in twenty grants is allowed, because on a busy machine a worker may
    not hear of the sibling for a millisecond; without the zone each grant costs
    a read.
    """
    workers, rounds = gateway.worker_pids(), 640 // (2 * each)
    asyncio.run(contend(gateway.port, "x", workers, 4, each))
    cost = Cost(zookeeper, gateway.root)
    asyncio.run(contend(gateway.port, "x", workers, rounds, each))
    transactions, reads, _ = cost.spent()
    assert reads <= rounds * 2 * each / 20
    if each == 32:
        # waiters whose turn is far off share transactions
        assert transactions < rounds * 2 * each


def again_and_again(gateway, names, rounds, holds):
    with gateway.connect() as connection:
        for _ in range(rounds):
            for name in names:
                holds.begin()
                answer = connection.request("POST", lock_path(name))
                assert answer.status == 201
                answer = connection.request("DELETE",
                                            lock_path(name, answer.token))
                assert answer.status == 204
                holds.end()


def test_idle_locks_are_remembered(start_gateway, zookeeper):
    """As many as zk_lock_cache says, the locks that were used last."""
    gateway = start_gateway(workers=1, http="zk_lock_cache 5;")
    few, many = (["x%d" % i for i in range(n)] for n in (5, 6))

    def reads(names):
        def measure(holds):
            again_and_again(gateway, names, 3, Holds())
            cost = Cost(zookeeper, gateway.root)
            again_and_again(gateway, names, 10, holds)
            return cost.spent()

        return short(measure)[1]

    assert reads(few) == 0
    # the next lock is always the lock that was just forgotten
    assert reads(many) >= 60
    assert gateway.inspect("x0").status == 404


def test_no_idle_lock_is_remembered(start_gateway, zookeeper, tree):
    gateway = start_gateway(workers=1, http="zk_lock_cache 0;")
    again_and_again(gateway, ["x"], 3, Holds())
    cost = Cost(zookeeper, gateway.root)
    again_and_again(gateway, ["x"], 10, Holds())
    assert cost.spent()[1] >= 10
    tree.wait_claims(gateway.znode("x"), 0)


@pytest.mark.parametrize("number", [200])
def test_many_at_once_share_transactions(single, zookeeper, number):
    """Acquires of different locks, and then releases."""
    names = ["x%d" % i for i in range(number)]

    def measure(holds):
        warm_up(single, *names)
        cost = Cost(zookeeper, single.root)
        asyncio.run(acquire_and_release(single, names, holds))
        return cost.spent()

    transactions, reads, lookups = short(measure)
    assert transactions < number / 2, "acquires and releases: %d" % (
        transactions)
    assert reads == 0
    assert lookups <= PINGS


async def acquire_and_release(single, names, holds):
    connections = [await AsyncConnection(single.port).open() for _ in names]
    holds.begin()
    answers = await at_once(single, connections, "POST",
                            [lock_path(name) for name in names])
    assert {answer.status for answer in answers} == {201}
    answers = await at_once(single, connections, "DELETE",
                            [lock_path(name, answer.token)
                             for name, answer in zip(names, answers)])
    assert {answer.status for answer in answers} == {204}
    holds.end()
    for connection in connections:
        connection.close()


def test_waiters_watch_one_znode(gateway, zookeeper, tree, foreign):
    """At any length of the queue a worker watches one claim."""
    lock = gateway.znode("x")
    foreign.make_claim(lock)
    workers = gateway.worker_pids()
    waiters = [gateway.begin("x", worker=workers[i % 2]) for i in range(20)]
    foreign.wait_claims(lock, 21)
    for worker in workers:
        gateway.inspect("x", worker=worker)
    ours = {path: sessions for path, sessions
            in zookeeper.watched_paths().items()
            if path.startswith(lock + "/")}
    assert sum(len(sessions) for sessions in ours.values()) <= 2, ours
    assert all(waiter.silent_for(0) for waiter in waiters)


def wait_durable(gateway, zookeeper, tree, holder):
    """A long lease is made durable, and then read once and watched."""
    claim = "%s/%s" % (gateway.znode("x"), claim_of(holder.token))
    wait_until(lambda: tree.durables(gateway.znode("x")) == [claim], 20)
    wait_until(lambda: claim in zookeeper.watched_paths(), 20)


def test_bogus_releases_cost_nobody_a_transaction(single, zookeeper, tree):
    """A false token does not get as far as ZooKeeper."""
    holder = single.hold("x")
    wait_durable(single, zookeeper, tree, holder)
    cost = Cost(zookeeper, single.root)
    with single.connect() as connection:
        for i in range(50):
            wrong = holder.token[:-2] + "%02d" % i
            if wrong != holder.token:
                response = connection.request("DELETE", lock_path("x", wrong))
                assert response.status == 404
    assert cost.spent()[0] <= 1
    single.release("x", holder.token)


def test_waiting_and_idling_costs_nothing(single, zookeeper, tree):
    holder = single.hold("x")
    waiters = [single.begin("x", wait="1m") for _ in range(20)]
    tree.wait_claims(single.znode("x"), 21)

    wait_durable(single, zookeeper, tree, holder)
    cost = Cost(zookeeper, single.root)
    assert waiters[0].silent_for(1.0)
    transactions, reads, lookups = cost.spent()
    assert transactions == 0
    assert reads == 0
    assert lookups <= PINGS
    for waiter in waiters:
        waiter.close()
    single.release("x", holder.token)


def test_many_that_become_durable_are_not_read_each_time(single, zookeeper,
                                                         tree):
    """Each changes the lock, which has the gateway read what is held; but the
    reads do not grow with the square of the number.
    """
    number = 100
    holders = [single.hold("x", mode="shared", ttl="5m")
               for _ in range(number)]
    claims = {"%s/%s" % (single.znode("x"), name)
              for name in tree.claims(single.znode("x"))}
    cost = Cost(zookeeper, single.root)

    # a claim is watched when it is durable
    wait_until(lambda: claims <= set(zookeeper.watched_paths()), 60)
    _, reads, _ = cost.spent()
    assert reads < 40 * number
    for holder in holders:
        single.release("x", holder.token)
