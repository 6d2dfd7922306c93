"""Lists and looks that many clients ask for at once share what is read.

A worker that was stopped finds all requests at the same time when it goes on:
so these tests know which requests are there before the first read.
"""

import contextlib
import threading
import time

import pytest

from lib.checks import problem
from lib.client import lock_path
from lib.process import wait_until
from lib.streams import watch

PATH = "/locks/"
CLIENTS = 40
TURNS, WAITING = 32, 128    # lists of a worker: under way, and behind these


@contextlib.contextmanager
def at_once(gateway, n):
    """Connections whose requests a worker finds all at once."""
    worker, = gateway.worker_pids()
    connections = [gateway.connect() for _ in range(n)]
    for connection in connections:      # a worker accepts one at a time
        assert connection.request("GET", "/").status == 404
    with gateway.frozen_worker(worker):
        yield connections


@pytest.fixture
def counted(zookeeper, tree, start_gateway):
    """A gateway with a worker, and a function: reads of znodes so far."""
    gateway = start_gateway(workers=1)
    top = gateway.root.split("/")[1]
    return gateway, lambda: zookeeper.reads(top)


def settled(reads):
    """The reads so far, when the worker has set its watches on its claims."""
    def same():
        before = reads()
        time.sleep(0.5)
        return before if reads() == before else None

    return wait_until(same)


def test_lists_of_a_root(counted):
    """Many lists: the root is listed once, each lock is looked at once."""
    gateway, reads = counted
    token = gateway.hold("x", ttl="1h").token
    before = reads()
    with at_once(gateway, TURNS) as connections:
        for connection in connections:
            connection.send("GET", PATH, {"limit": "1"})
    for connection in connections:
        answer = connection.response()
        assert [lock["name"] for lock in answer.json["locks"]] == ["x"]
    assert reads() - before <= 8
    gateway.release("x", token)


def test_lists_of_different_questions(counted):
    """Each gets its own answer from the list that is shared."""
    gateway, _ = counted
    tokens = {name: gateway.hold(name, ttl="1h", owner="of-" + name).token
              for name in ("a1", "a2", "b1", "b2")}
    questions = [({"prefix": "a"}, ["a1", "a2"]),
                 ({"prefix": "b", "limit": "1"}, ["b1"]),
                 ({"owner": "of-a2"}, ["a2"]),
                 ({"owner": "of-b1", "holders": "1"}, ["b1"]),
                 ({"holders": "1"}, ["a1", "a2", "b1", "b2"]),
                 ({"sort": "since"}, ["a1", "a2", "b1", "b2"])]
    with at_once(gateway, 2 * len(questions)) as connections:
        for connection, (query, _) in zip(connections, 2 * questions):
            connection.send("GET", PATH, query)
    for connection, (query, names) in zip(connections, 2 * questions):
        locks = connection.response().json["locks"]
        assert sorted(lock["name"] for lock in locks) == names, query
        for lock in locks:
            for holder in lock.get("holders", []):
                assert holder["owner"] == "of-" + lock["name"]
    for name, token in tokens.items():
        gateway.release(name, token)


def test_too_many_lists(counted):
    """So many lists have turns, so many wait, the others are told at once."""
    gateway, _ = counted
    token = gateway.hold("x", ttl="1h").token
    n = TURNS + WAITING + CLIENTS
    with at_once(gateway, n) as connections:
        for connection in connections:
            connection.send("GET", PATH, {"limit": "1"})
    answers = [connection.response() for connection in connections]
    refused = [answer for answer in answers if answer.status != 200]
    assert 0 < len(refused) <= CLIENTS
    for answer in refused:
        assert "at a time" in problem(answer, 503)["detail"]
        assert int(answer.headers["Retry-After"]) > 0
    # a call about a claim does not wait for turns
    assert gateway.renew("x", token).status == 200
    gateway.release("x", token)


def test_looks_at_a_lock(counted):
    """Many looks at a lock: its claims are read once."""
    gateway, reads = counted
    tokens = [gateway.hold("x", mode="shared", ttl="1h",
                           durable="1").token
              for _ in range(20)]
    before = settled(reads)
    with at_once(gateway, CLIENTS) as connections:
        for connection in connections:
            connection.send("GET", lock_path("x"))
    for connection in connections:
        assert len(connection.response().json["holders"]) == 20
    assert reads() - before <= 2 * 21
    for token in tokens:
        gateway.release("x", token)


def test_watchers_of_a_lock(counted):
    """A change leads to few looks, however many streams there are."""
    gateway, reads = counted
    tokens = [gateway.hold("x", mode="shared", ttl="1h",
                           durable="1").token
              for _ in range(20)]
    streams = [watch(gateway, "x") for _ in range(CLIENTS)]
    for stream in streams:
        assert len(stream.event("change")["holders"]) == 20
    before = reads()
    gateway.release("x", tokens.pop())
    for stream in streams:
        assert len(stream.event("change")["holders"]) == 19
    assert reads() - before <= 4 * 22
    for stream in streams:
        stream.close()
    for token in tokens:
        gateway.release("x", token)


def test_keyed_acquires(counted):
    """The lists that tell whether a key is used already are shared, too."""
    gateway, reads = counted
    token = gateway.hold("x", ttl="1h").token
    before = reads()
    with at_once(gateway, CLIENTS) as connections:
        for i, connection in enumerate(connections):
            connection.send("POST", lock_path("x"), {"wait": "0"},
                            {"Idempotency-Key": "%032x" % i})
    for connection in connections:
        problem(connection.response(), 423)
    assert reads() - before < CLIENTS / 2
    gateway.release("x", token)


def test_each_sees_its_own_time(counted):
    """A look that shares another look is no older than its request."""
    gateway, _ = counted
    over = threading.Event()

    def looks():
        with gateway.connect() as connection:
            while not over.is_set():
                assert connection.request("GET", lock_path("x")).status in (
                    200, 404)
                assert connection.request("GET", PATH).status == 200

    threads = [threading.Thread(target=looks) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            token = gateway.hold("x").token
            assert gateway.call("GET", lock_path("x")).status == 200
            names = [lock["name"]
                     for lock in gateway.call("GET", PATH).json["locks"]]
            assert names == ["x"]
            gateway.release("x", token)
            assert gateway.call("GET", lock_path("x")).status == 404
            assert gateway.call("GET", PATH).json["locks"] == []
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_clients_leave(counted):
    """The look of a client that leaves serves the others, and is no leak."""
    gateway, _ = counted
    token = gateway.hold("x", ttl="1h").token
    for _ in range(5):
        with at_once(gateway, CLIENTS) as connections:
            for connection in connections:
                connection.send("GET", lock_path("x"))
            for connection in connections[::2]:
                connection.reset()
        for connection in connections[1::2]:
            assert connection.response().json["held"]
    gateway.release("x", token)
