"""A witness behind two gateways sees which requests are served at once.

Fifty clients send guarded requests to both gateways.  At the same time
neighbours take the same lock in other ways: clients of the API, and Curator or
kazoo, which do not exclude each other.  The application tells the witness when
a request enters and leaves, and each neighbour tells the same.

The witness finds holders that exclude each other together, and an order of
entry that is not the order of the claims: of two holders that exclude each
other the first has the smaller fencing token.  A foreign claim's token is made
from the transaction that made the claim.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lib.backend import Backend
from lib.guards import free, location
from lib.queues import WRITER_SEES

CLIENTS = 50
ROUNDS = 3
NEIGHBOURS = 2          # of each kind, and of each gateway
PERMITS = 3
INSIDE = 0.002          # seconds: long enough for a wrong grant to be seen
PATIENCE = 60.0

PASS = "proxy_set_header X-Fencing-Token $zk_lock_fencing_token;\n"


class Witness:
    """Who is inside, as mode and fencing token, and what was wrong."""

    def __init__(self, crowd=1):
        self.crowd = crowd
        self.crowded = threading.Event()        # so many were inside at once
        self.lock = threading.Lock()
        self.inside = []
        self.entered = []
        self.most = 0
        self.wrong = []

    def enter(self, mode, fencing):
        with self.lock:
            came = mode, fencing
            self.wrong += [("together", other, came) for other in self.inside
                           if exclude(other[0], mode)]
            self.wrong += [("order", other, came) for other in self.entered
                           if exclude(other[0], mode) and other[1] >= fencing]
            self.inside.append(came)
            self.entered.append(came)
            self.most = max(self.most, len(self.inside))
            if self.most >= self.crowd:
                self.crowded.set()

    def leave(self, mode, fencing):
        with self.lock:
            self.inside.remove((mode, fencing))

    def visit(self, mode, fencing):
        self.enter(mode, fencing)
        self.crowded.wait(PATIENCE)
        time.sleep(INSIDE)
        self.leave(mode, fencing)


def exclude(a, b):
    return not (a == b and a in ("shared", "semaphore"))


@pytest.fixture
def behind(start_gateway):
    """A function of a witness and modes: the gateways in front of it."""
    backends = []

    def make(witness, *modes, rule="zk_lock one mode=%s wait=1m;"):
        def work(seen):
            witness.visit(seen.path.strip("/"),
                          int(seen.headers.get("X-Fencing-Token") or 0))
            return 200, b"done\n"

        backend = Backend(work=work)
        backends.append(backend)
        content = PASS + "proxy_pass http://%s;" % backend.address
        server = "".join(location(rule % mode if "%" in rule else rule,
                                  content, "/%s/" % mode.split()[0])
                         for mode in modes)
        return [start_gateway(server=server) for _ in range(2)]

    yield make
    for backend in backends:
        backend.close()


class Visits:
    """Guarded clients, and neighbours for as long as the clients come."""

    def __init__(self, witness, gateways):
        self.witness = witness
        self.gateways = gateways
        self.clients = []
        self.neighbours = []
        self.visited = {}           # neighbour -> visits
        self.over = threading.Event()

    def guarded(self, modes):
        """Each client has a mode, and goes to the gateways in turn."""
        for i in range(CLIENTS):
            self.clients.append((self._requests, i, modes[i % len(modes)]))

    def _requests(self, number, mode):
        for turn in range(ROUNDS):
            gateway = self.gateways[(number + turn) % 2]
            answer = gateway.call("GET", "/%s/" % mode, timeout=2 * PATIENCE)
            assert answer.status == 200, answer

    def neighbour(self, kind, mode, take):
        """take() returns the fencing token, and what releases the lock."""
        self.neighbours.append((self._stay, (kind, len(self.neighbours)),
                                mode, take))

    def _stay(self, name, mode, take):
        self.visited[name] = 0
        while not self.over.is_set():
            fencing, release = take()
            self.witness.visit(mode, fencing)
            release()
            self.visited[name] += 1

    def api(self, mode, **query):
        for gateway in self.gateways * NEIGHBOURS:
            self.neighbour("api", mode, lambda gateway=gateway: self._acquire(
                gateway, mode=mode, **query))

    @staticmethod
    def _acquire(gateway, **query):
        answer = gateway.acquire("one", wait="1m", timeout=2 * PATIENCE,
                                 **query)
        assert answer.status == 201, answer

        def release():
            assert gateway.release("one", answer.token).status == 204
        return answer.fencing, release

    def curator(self, curator, tree, kind, mode):
        path = self.gateways[0].znode("one")

        def take(client):
            claim = client.acquire(kind, path, PATIENCE)
            return fencing_of(tree, path + "/" + claim), client.release

        for _ in range(NEIGHBOURS):
            client = curator.client()
            self.neighbour("curator", mode, lambda client=client: take(client))

    def kazoo(self, connect_tree, address, mode):
        path = self.gateways[0].znode("one")

        def take(tree):
            recipe, sees = (
                (tree.client.WriteLock, WRITER_SEES) if mode == "write"
                else (tree.client.Lock, ["-lock-"]))
            lock = recipe(path, "kazoo", extra_lock_patterns=sees)
            assert lock.acquire(timeout=PATIENCE)
            return fencing_of(tree, path + "/" + lock.node), lock.release

        for _ in range(NEIGHBOURS):
            tree = connect_tree(address)
            self.neighbour("kazoo", mode, lambda tree=tree: take(tree))

    def play(self):
        with ThreadPoolExecutor(len(self.clients + self.neighbours)) as pool:
            neighbours = [pool.submit(*each) for each in self.neighbours]
            clients = [pool.submit(*each) for each in self.clients]
            try:
                for future in clients:
                    future.result(2 * PATIENCE)
            finally:
                self.over.set()
            for future in neighbours:
                future.result(2 * PATIENCE)
        assert not self.witness.inside
        assert not self.witness.wrong, self.witness.wrong[:5]
        assert len(self.witness.entered) == (CLIENTS * ROUNDS
                                             + sum(self.visited.values()))
        assert all(self.visited.values()), self.visited


def fencing_of(tree, claim):
    """The fencing token that a claim of another client would have."""
    return tree.stat(claim).czxid * 256


@pytest.fixture
def visits(tree):
    made = []

    def make(witness, gateways):
        made.append(Visits(witness, gateways))
        return made[-1]

    yield make
    for each in made:
        free(tree, each.gateways[0])


def test_alone_beside_curator(behind, visits, curator, tree):
    witness = Witness()
    each = visits(witness, behind(witness, "exclusive"))
    each.guarded(["exclusive"])
    each.api("exclusive")
    each.curator(curator, tree, "mutex", "exclusive")
    each.play()
    assert witness.most == 1


def test_alone_beside_kazoo(behind, visits, connect_tree, zookeeper):
    witness = Witness()
    each = visits(witness, behind(witness, "exclusive"))
    connect_tree(zookeeper.address).make(each.gateways[0].znode("one"))
    each.guarded(["exclusive"])
    each.api("exclusive")
    each.kazoo(connect_tree, zookeeper.address, "exclusive")
    each.play()
    assert witness.most == 1


def test_no_more_than_the_permits(behind, visits):
    """No visitor leaves before so many have been inside at once."""
    witness = Witness(crowd=PERMITS)
    each = visits(witness, behind(witness, "semaphore permits=%d" % PERMITS))
    each.guarded(["semaphore"])
    each.api("semaphore", permits=PERMITS)
    each.play()
    assert witness.most == PERMITS


def test_readers_and_writers_beside_curator(behind, visits, curator, tree):
    witness = Witness()
    each = visits(witness, behind(witness, "shared", "write"))
    each.guarded(["shared"] * 3 + ["write"])
    for mode, kind in (("shared", "read"), ("write", "write")):
        each.api(mode)
        each.curator(curator, tree, kind, mode)
    each.play()


def test_readers_and_writers_beside_kazoo(behind, visits, connect_tree,
                                          zookeeper):
    """A ReadLock of kazoo 2.8 would wait for writers behind, too."""
    witness = Witness()
    each = visits(witness, behind(witness, "shared", "write"))
    connect_tree(zookeeper.address).make(each.gateways[0].znode("one"))
    each.guarded(["shared"] * 3 + ["write"])
    for mode in ("shared", "write"):
        each.api(mode)
    each.kazoo(connect_tree, zookeeper.address, "write")
    each.play()


def test_the_witness_sees_all(behind, visits):
    """Without a lock two requests are inside at once, and no order is kept."""
    witness = Witness(crowd=2)
    each = visits(witness, behind(witness, "exclusive", rule='zk_lock "";'))
    each.guarded(["exclusive"])
    with pytest.raises(AssertionError, match="together"):
        each.play()
    assert {what for what, _, _ in witness.wrong} == {"together", "order"}
