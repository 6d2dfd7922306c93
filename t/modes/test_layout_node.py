"""Locks that are a single znode each (zk_lock_layout node).

The client that makes the znode has the lock; all other clients wait for the
znode's delete.  Other clients of this old recipe take part: here kazoo clients
make the ephemeral and watch the znode by hand.  Of each worker only one claim
at a time goes to ZooKeeper: the tests count the server's watches and the
requests that a proxy sees.

A client must not delete another client's znode, but the znode's name does not
tell whose znode it is.  So many tests are about who deleted the znode, and who
has made the znode anew.
"""

import contextlib
import json
import os
import threading
import time

import pytest
from kazoo.exceptions import NodeExistsError

from lib.checks import gone, grant, problem
from lib.client import Gone, lock_path
from lib.process import wait_until
from lib.proxy import CUT, HALF, LOSE, SWALLOWED, TORN, UNANSWERED
from lib.streams import hold, watch
from lib.zookeeper import GATES

SOON = 20.0
ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS", "2"))
LAYOUT = "zk_lock_layout node;"


@pytest.fixture
def start(start_gateway):
    """A function that starts a gateway whose locks are a single znode each."""
    def make(location="", **options):
        return start_gateway(location=LAYOUT + location, **options)
    return make


@pytest.fixture
def pair(start):
    """Two gateways with two workers each."""
    return start(), start()


class Plain:
    """A client of the old recipe, with a session of its own."""

    def __init__(self, tree):
        self.client = tree.client
        self.tree = tree

    def take(self, path, data=b"plain"):
        """Whether the client has the lock now."""
        try:
            self.client.create(path, data, ephemeral=True, makepath=True)
            return True
        except NodeExistsError:
            return False

    def wait(self, path, data=b"plain", timeout=30.0):
        """Takes the lock when the lock is free; how often a watch woke the
        client.
        """
        wakes = 0
        deadline = time.monotonic() + timeout
        while not self.take(path, data):
            deleted = threading.Event()
            if self.client.exists(path, watch=lambda _: deleted.set()):
                assert deleted.wait(max(deadline - time.monotonic(), 0))
                wakes += 1
        return wakes

    def drop(self, path):
        self.client.delete(path)


@pytest.fixture
def plain(foreign):
    return Plain(foreign)


def label(tree, gateway, name):
    """The label that a gateway wrote into the lock's znode."""
    return json.loads(tree.data(gateway.znode(name)).split(b"\n", 1)[1])


def waits_at(zookeeper, path):
    """How many sessions watch the znode."""
    return len(zookeeper.watched_paths().get(path, ()))


def granted(line):
    """The connections of the line that have an answer; at least one."""
    return wait_until(lambda: [c for c in line if not c.silent_for(0.001)],
                      SOON, "a grant")


# one lock

def test_the_lock_is_one_ephemeral(start, tree):
    gateway = start()
    answer = gateway.acquire("door", {"owner": "me", "data": {"n": 1}})
    content = grant(answer, "door")
    stat = tree.stat(gateway.znode("door"))
    assert stat.ephemeralOwner != 0 and stat.numChildren == 0
    assert content["fencing_token"] == stat.czxid * 256
    assert tree.data(gateway.znode("door")).startswith(b"me\n")
    written = label(tree, gateway, "door")
    assert len(written["id"]) == 32 and written["data"] == {"n": 1}
    assert gateway.release("door", answer.token).status == 204
    assert tree.stat(gateway.znode("door")) is None
    gone(gateway, "door", answer.token)


def test_held_for_a_moment(start, tree):
    """A lock that is held for a moment costs no persistent znode."""
    gateway = start(workers=1)
    gateway.hold("marked", durable="1")
    began = time.monotonic()
    holder = gateway.hold("x")
    for _ in range(5):
        # the session of the only worker keeps the order
        assert gateway.release("y", gateway.hold("y").token).status == 204
    stat = tree.stat(gateway.znode("x"))
    assert stat.ephemeralOwner or time.monotonic() - began > 2.0
    assert gateway.release("x", holder.token).status == 204


def test_parents_are_made_and_stay(start, tree):
    gateway = start()
    for _ in range(3):
        answer = gateway.hold("a")
        assert gateway.release("a", answer.token).status == 204
    assert tree.stat(gateway.root).ephemeralOwner == 0


def test_a_lock_at_the_top(start, tree):
    gateway = start(root="/")
    name = "top-%d" % os.getpid()
    answer = gateway.hold(name)
    assert tree.stat("/" + name).ephemeralOwner != 0
    assert gateway.release(name, answer.token).status == 204


def test_fencing_tokens_grow(start, plain):
    gateway = start()
    last = 0
    for _ in range(5):
        answer = gateway.hold("f")
        assert answer.fencing > last
        last = answer.fencing
        assert gateway.release("f", answer.token).status == 204
        assert plain.take(gateway.znode("f"))
        plain.drop(gateway.znode("f"))


def test_inspect_renew_and_list(pair):
    here, there = pair
    answer = here.hold("l", {"owner": "me", "ttl": "20s"})
    for gateway in pair:
        for worker in gateway.worker_pids():
            content = gateway.inspect("l", answer.token, worker).json
            assert content["mode"] == "exclusive"
            assert content["fencing_token"] == answer.fencing
            content = gateway.inspect("l", worker=worker).json
            assert len(content["holders"]) == 1 and not content["queue"]
            assert content["holders"][0]["owner"] == "me"
            assert gateway.renew("l", answer.token, worker=worker,
                                 ttl="30s").json["ttl_ms"] == 30000
    assert there.release("l", answer.token).status == 204
    for gateway in pair:
        gone(gateway, "l", answer.token)
        problem(gateway.inspect("l"), 404)


@pytest.mark.parametrize("where", ["own", "sibling", "other"])
def test_release_anywhere_wakes_the_next(pair, where):
    here, there = pair
    workers = here.worker_pids()
    answer = here.hold("r", worker=workers[0])
    waiting = [here.begin("r", worker=workers[0], wait="20s"),
               here.begin("r", worker=workers[1], wait="20s"),
               there.begin("r", wait="20s")]
    time.sleep(0.3)
    gateway, worker = {"own": (here, workers[0]),
                       "sibling": (here, workers[1]),
                       "other": (there, None)}[where]
    assert gateway.release("r", answer.token, worker).status == 204
    gone(here, "r", answer.token)
    last = answer.fencing
    while waiting:
        ready, = granted(waiting)
        content = grant(ready.response(), "r")
        assert content["fencing_token"] > last
        last = content["fencing_token"]
        assert here.release("r", content["token"]).status == 204
        waiting.remove(ready)


# the queue

def reached(gateway, worker):
    """The requests that were sent to the worker are in the worker's queue."""
    assert gateway.call("GET", "/ready", worker=worker).status == 204


def test_first_come_first_served(start):
    """Each worker serves in the order of the requests.

    There is no order among workers, but each claim has its turn.
    """
    gateway = start()
    workers = gateway.worker_pids()
    token = gateway.hold("q", worker=workers[0]).token
    lines = [[], []]
    for i in range(12):
        lines[i % 2].append(gateway.begin("q", worker=workers[i % 2],
                                          wait="30s"))
        reached(gateway, workers[i % 2])
    while any(lines):
        assert gateway.release("q", token).status == 204
        ready, = granted(lines[0] + lines[1])
        line, = [line for line in lines if line[:1] == [ready]]
        token = grant(line.pop(0).response(), "q")["token"]
    assert gateway.release("q", token).status == 204


def test_one_contender_per_worker(pair, zookeeper, plain):
    """However many claims wait, a worker has a single watch and create."""
    path = pair[0].znode("c")
    assert plain.take(path)
    line = [gateway.begin("c", worker=worker, wait="60s", ttl="30s")
            for _ in range(5)
            for gateway in pair for worker in gateway.worker_pids()]
    wait_until(lambda: waits_at(zookeeper, path) == 4, SOON, "the watches")
    time.sleep(1.5)
    assert waits_at(zookeeper, path) == 4
    for connection in line:
        assert connection.silent_for(0.001)
    plain.drop(path)
    while line:
        ready, = granted(line)
        line.remove(ready)
        token = grant(ready.response(), "c")["token"]
        assert pair[0].release("c", token).status == 204


def spent(proxy):
    """The requests for locks, without the lists of the gates, which change by
    other gateways' sessions too.
    """
    return sum(n for what, n in proxy.requests.items()
               if what not in ("ping", "getChildren",
                                "getChildren2"))


def test_requests_of_a_handoff(start, zookeeper, start_proxy, plain):
    """A foreign release costs the same for fifty waiters as for a single."""
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, workers=2, session_timeout="60s")
    path = gateway.znode("h")
    assert plain.take(path)
    line = [gateway.begin("h", worker=worker, wait="60s")
            for _ in range(25) for worker in gateway.worker_pids()]
    wait_until(lambda: waits_at(zookeeper, path) == 2, SOON, "the watches")
    time.sleep(0.3)
    before = spent(proxy)
    plain.drop(path)
    ready, = granted(line)
    time.sleep(0.3)
    after = spent(proxy)
    # some more for an answer that is late, or a lease that becomes durable
    assert after - before <= 12, proxy.requests
    line.remove(ready)
    for connection in line:
        connection.close()
    token = grant(ready.response(), "h")["token"]
    assert gateway.release("h", token).status == 204
    wait_until(lambda: gateway.inspect("h").status == 404, SOON, "the end")


def test_mutual_exclusion_with_plain_clients(pair, zookeeper, connect_tree):
    """Gateways' clients and plain clients, all at the same lock."""
    path = pair[0].znode("m")
    inside = []
    worst = []
    order = []
    guard = threading.Lock()

    @contextlib.contextmanager
    def room(who):
        with guard:
            inside.append(who)
            worst.append(len(inside))
            order.append(who[0])
        time.sleep(0.005)
        yield
        with guard:
            inside.remove(who)

    def of_a_gateway(number):
        gateway = pair[number % 2]
        for _ in range(6 * ROUNDS):
            answer = gateway.acquire("m", wait="60s", ttl="30s", timeout=90)
            assert answer.status == 201, answer
            with room(("gateway", number)):
                pass
            assert gateway.release("m", answer.token).status == 204

    def of_others(number):
        client = Plain(connect_tree(zookeeper.address))
        for _ in range(6 * ROUNDS):
            client.wait(path, timeout=60.0)
            with room(("plain", number)):
                pass
            client.drop(path)

    failed = []

    def run(what, number):
        try:
            what(number)
        except BaseException as e:
            failed.append(e)
            raise

    threads = [threading.Thread(target=run, args=(what, i))
               for what in (of_a_gateway, of_others) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed and max(worst) == 1
    assert order.count("gateway") == order.count("plain") == 24 * ROUNDS


# claims that do not get the lock

def test_the_wait_is_over(pair, plain):
    path = pair[0].znode("w")
    assert plain.take(path, b"somebody")
    for gateway in pair:
        for worker in gateway.worker_pids():
            started = time.monotonic()
            refusal = gateway.refusal("w", worker=worker)
            assert refusal["holder"]["owner"] == "somebody"
            gateway.refused("w", wait="300ms", worker=worker)
            assert 0.25 < time.monotonic() - started < 10.0
    plain.drop(path)
    answer = pair[0].hold("w")
    for gateway in pair:
        for worker in gateway.worker_pids():
            problem(gateway.acquire("w", wait="0", worker=worker), 423)
            gateway.refused("w", wait="100ms", worker=worker)
    assert pair[1].release("w", answer.token).status == 204
    answer = pair[1].acquire("w", wait="0")
    grant(answer, "w")
    assert pair[1].release("w", answer.token).status == 204


def test_who_waits_leaves(start, plain):
    """When the contender leaves, another claim contends."""
    gateway = start()
    path = gateway.znode("x")
    assert plain.take(path)
    line = []
    for worker in gateway.worker_pids() * 3:
        line.append(gateway.begin("x", worker=worker, wait="30s"))
        reached(gateway, worker)
    for connection in line[:4]:
        connection.reset()
    time.sleep(0.2)
    plain.drop(path)
    ready, = granted(line[4:])
    token = grant(ready.response(), "x")["token"]
    for connection in line[4:]:
        if connection is not ready:
            connection.close()
    assert gateway.release("x", token).status == 204
    wait_until(lambda: gateway.inspect("x").status == 404, SOON, "the end")
    assert plain.take(path)
    plain.drop(path)


def test_a_full_line(start):
    gateway = start("zk_lock_max_queue 2;", workers=1)
    held = gateway.hold("full")
    line = [gateway.begin("full", wait="20s") for _ in range(2)]
    time.sleep(0.2)
    problem(gateway.acquire("full", wait="20s"), 429)
    token = held.token
    for connection in line:
        assert gateway.release("full", token).status == 204
        token = grant(connection.response(SOON), "full")["token"]
    assert gateway.release("full", token).status == 204


# leases

def test_a_lease_ends(pair, tree):
    here, other = pair
    answer = here.hold("e", ttl="700ms")
    line = [other.begin("e", wait="20s"), here.begin("e", wait="20s")]
    ready, = granted(line)
    gone(here, "e", answer.token)
    gone(other, "e", answer.token)
    line.remove(ready)
    token = grant(ready.response(), "e")["token"]
    assert here.release("e", token).status == 204
    token = grant(line[0].response(SOON), "e")["token"]
    assert here.release("e", token).status == 204


def test_a_renewal_elsewhere_counts(pair):
    here, other = pair
    # ZooKeeper or a worker may stand still for some seconds
    answer = here.hold("n", ttl="7s")
    for _ in range(8):
        time.sleep(1.0)
        assert other.renew("n", answer.token).status == 200
    assert here.inspect("n", answer.token).status == 200
    assert other.release("n", answer.token).status == 204
    gone(here, "n", answer.token)


def test_an_old_lease_deletes_nobodys_znode(pair, plain, tree):
    """The lock is released and taken elsewhere before the lease ends."""
    here, other = pair
    answers = []
    for i in range(10):
        answers.append(here.hold("o%d" % i, ttl="4s"))
        assert other.release("o%d" % i, answers[i].token).status == 204
        assert plain.take(here.znode("o%d" % i))
    time.sleep(5.0)
    for i, answer in enumerate(answers):
        path = here.znode("o%d" % i)
        assert tree.stat(path).ephemeralOwner == plain.tree.session
        gone(here, "o%d" % i, answer.token)
        gone(other, "o%d" % i, answer.token)
        assert tree.stat(path).ephemeralOwner == plain.tree.session
        plain.drop(path)


def test_a_znode_deleted_by_hand(start, plain, tree):
    gateway = start()
    for pause in (0.0, 0.2):
        answer = gateway.hold("d", ttl="30s")
        path = gateway.znode("d")
        time.sleep(pause)
        plain.drop(path)
        assert plain.take(path)
        gone(gateway, "d", answer.token)
        assert tree.stat(path).ephemeralOwner == plain.tree.session
        assert gateway.inspect("d").json["holders"][0]["owner"] == "plain"
        plain.drop(path)


# foreign znodes

def test_a_foreign_znode(start, plain):
    gateway = start("zk_lock_admin on;")
    gateway.allow("was broken by")
    path = gateway.znode("z")
    for data, owner in ((b"host-1\nmore", "host-1"), (b"\xff\xfe", None),
                        (b"", None)):
        assert plain.take(path, data)
        holder = gateway.inspect("z").json["holders"][0]
        assert holder.get("owner") == owner, holder
        problem(gateway.acquire("z", wait="0"), 423)
        plain.drop(path)
    assert plain.take(path)
    fencing = gateway.inspect("z").json["holders"][0]["fencing_token"]
    answer = gateway.call("PUT", lock_path("z"), {"revoke": "1"})
    problem(answer, 409)
    answer = gateway.call("DELETE", lock_path("z"), {"force": "1"},
                          {"If-Match": str(fencing + 256)})
    problem(answer, 412)
    waiting = gateway.begin("z", wait="20s")
    time.sleep(0.1)
    answer = gateway.call("DELETE", lock_path("z"), {"force": "1"},
                          {"If-Match": str(fencing)})
    assert answer.status == 204, answer
    token = grant(waiting.response(SOON), "z")["token"]
    answer = gateway.call("PUT", lock_path("z"), {"revoke": "1"})
    assert answer.status == 202, answer
    answer = gateway.call("DELETE", lock_path("z"), {"force": "1"},
                          {"If-Match": "*"})
    assert answer.status == 204, answer
    gone(gateway, "z", token)


def test_a_znode_that_stays_is_no_lock(start, tree):
    gateway = start()
    path = gateway.znode("p")
    tree.make(path)
    for worker in gateway.worker_pids():
        problem(gateway.acquire("p", wait="5s", worker=worker), 409, "layout")
        problem(gateway.acquire("p", wait="0", worker=worker), 409, "layout")
        problem(gateway.inspect("p", worker=worker), 409, "layout")
    tree.delete(path)
    answer = gateway.hold("p")
    assert gateway.release("p", answer.token).status == 204


def test_both_layouts_at_one_root(start_gateway, start):
    queue, node = start_gateway(), start()
    answer = queue.hold("b")
    problem(node.acquire("b", wait="5s"), 409, "layout")
    assert node.inspect("b", answer.token).status == 200
    assert node.release("b", answer.token).status == 204
    answer = node.hold("c")
    problem(queue.acquire("c", wait="5s"), 409, "layout")
    assert queue.inspect("c", answer.token).status == 200
    assert queue.release("c", answer.token).status == 204


def test_both_layouts_in_one_gateway(start_gateway):
    gateway = start_gateway(
        workers=1,
        server="location /nodes/ { zk_lock_api; zk_lock_layout node; }")
    answer = gateway.hold("g")
    path = lock_path("g", prefix="/nodes/")
    problem(gateway.call("POST", path, {"wait": "0"}), 409, "layout")
    assert gateway.release("g", answer.token).status == 204
    answer = gateway.call("POST", lock_path("i", prefix="/nodes/"))
    grant(answer, "i", prefix="/nodes/")
    problem(gateway.acquire("i", wait="0"), 409, "layout")
    assert gateway.call("DELETE", lock_path("i", answer.token,
                                            "/nodes/")).status == 204
    wait_until(lambda: gateway.acquire("i", wait="0").status == 201, SOON,
               "the other layout")


# what is not served here

@pytest.mark.parametrize("body", [
    {"mode": "shared"}, {"mode": "write"}, {"mode": "member"},
    {"mode": "semaphore", "permits": 2}, {"permits": 2}, {"mode": "nonsense"},
])
def test_bad_modes(start, body):
    problem(start(workers=1).acquire("k", body), 400)


def test_bad_requests(start):
    gateway = start()
    problem(gateway.acquire("k", headers={"Idempotency-Key": "1"}), 400,
            "Idempotency-Key")
    problem(gateway.call("LOCK", lock_path("k"), body={"ID": "1"}), 400)
    problem(gateway.call("UNLOCK", lock_path("k"), body={"ID": "1"}), 400)
    problem(gateway.acquire("k", {"ID": "1", "Operation": "x", "Who": "me"}),
            400)
    for method in ("POST", "PUT", "DELETE", "GET"):
        problem(gateway.call(method, "/locks/", body={"names": ["a", "b"]}),
                400)
    answer = gateway.hold("k")
    problem(gateway.call("POST", lock_path("k"),
                         headers={"Lock-Token": answer.token}), 400, "once")
    problem(gateway.renew("k", answer.token, mode="shared"), 409)
    assert gateway.inspect("k", answer.token).status == 200
    assert gateway.release("k", answer.token).status == 204
    answer = gateway.acquire("k", headers={"Prefer": "respond-async"})
    grant(answer, "k")
    assert gateway.release("k", answer.token).status == 204


def test_a_bad_directive(start_gateway):
    gateway = start_gateway(start=False, location="zk_lock_layout tree;")
    gateway.allow(r"\[emerg\]")
    status, output = gateway.test_conf()
    assert status != 0 and 'invalid value "tree"' in output


# long polls and streams

def test_long_polls(pair, plain):
    here, other = pair
    answer = here.inspect("y")
    assert answer.status == 404
    tag = answer.headers["ETag"]
    waiting = here.connect()
    waiting.send("GET", lock_path("y"), {"wait": "20s"},
                 {"If-None-Match": tag})
    time.sleep(0.2)
    assert waiting.silent_for(0.1)
    grant_ = other.hold("y")
    answer = waiting.response(SOON)
    assert answer.status == 200
    until = here.connect()
    until.send("GET", lock_path("y"), {"until": "free", "wait": "20s"})
    assert until.silent_for(0.3)
    assert other.release("y", grant_.token).status == 204
    assert until.response(SOON).status == 204
    assert plain.take(here.znode("y"))
    until.send("GET", lock_path("y"), {"until": "free", "wait": "20s"})
    assert until.silent_for(0.3)
    plain.client.set(here.znode("y"), b"again")
    assert until.silent_for(0.3)
    plain.drop(here.znode("y"))
    assert until.response(SOON).status == 204


def test_streams(pair, plain):
    here, other = pair
    events = watch(here, "s")
    events.head()
    first = events.next(SOON)
    held = other.hold("s")
    second = events.next(SOON)
    assert first != second
    stream = hold(here, "s")
    stream.event("queued", SOON)
    assert other.release("s", held.token).status == 204
    stream.event("granted", SOON)
    assert not plain.take(here.znode("s"))
    stream.close()
    wait_until(lambda: plain.take(here.znode("s")), SOON, "the release")
    plain.drop(here.znode("s"))
    events.close()


# workers that die or leave

def kill(gateway, worker):
    gateway.kill_worker(worker)
    wait_until(lambda: len(gateway.worker_pids()) == gateway.workers
               and worker not in gateway.worker_pids(), SOON, "a new worker")
    gateway._note_processes()
    gateway.wait_served()


def test_what_is_held_outlives_its_worker(start, tree):
    gateway = start(session_timeout="60s")
    dying, staying = gateway.worker_pids()
    answer = gateway.hold("v", worker=dying, ttl="30s")
    short = gateway.hold("short", worker=dying, ttl="1500ms")
    waiting = gateway.begin("v", worker=staying, wait="30s")
    made = tree.made(gateway.znode("v"))
    kill(gateway, dying)
    for _ in range(3):
        for worker in gateway.worker_pids():
            assert gateway.inspect("v", answer.token, worker).status == 200
            assert gateway.renew("v", answer.token,
                                 worker=worker).status == 200
        time.sleep(0.5)
    assert tree.made(gateway.znode("v")) == made
    wait_until(lambda: gateway.inspect("short").status == 404, SOON,
               "the end of the lease")
    gone(gateway, "short", short.token)
    assert waiting.silent_for(0.1)
    assert gateway.release("v", answer.token).status == 204
    gone(gateway, "v", answer.token)
    token = grant(waiting.response(SOON), "v")["token"]
    assert gateway.release("v", token).status == 204


def test_an_adopted_lock_that_others_delete(pair, plain, tree):
    here, other = pair
    dying = here.worker_pids()[0]
    first = here.hold("v1", worker=dying, ttl="9s")
    began = time.monotonic()
    second = here.hold("v2", worker=dying, ttl="30s")
    kill(here, dying)
    wait_until(lambda: here.inspect("v2", second.token).status == 200, SOON,
               "the adoption")
    for name, answer in (("v1", first), ("v2", second)):
        if name == "v1":
            assert other.release(name, answer.token).status == 204
        else:
            plain.drop(here.znode(name))
        assert plain.take(here.znode(name))
    time.sleep(max(0.0, began + 10.0 - time.monotonic()))
    for name, answer in (("v1", first), ("v2", second)):
        gone(here, name, answer.token)
        gone(other, name, answer.token)
        assert (tree.stat(here.znode(name)).ephemeralOwner
                == plain.tree.session)
        plain.drop(here.znode(name))


def test_dies_between_create_and_answer(start, zookeeper, start_proxy, tree):
    """No client was told of the grant, so the grant is undone."""
    gates = set(tree.children(GATES))
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, session_timeout="60s")
    gateway.release("warm", gateway.hold("warm").token)
    dying, staying = gateway.worker_pids()
    # a worker that begins makes a gate, by the operation that is to break
    wait_until(lambda: len(set(tree.children(GATES)) - gates) == 2, SOON,
               "each worker has a gate")
    fault = proxy.fault("create2", SWALLOWED)
    first = gateway.begin("ba", worker=dying, wait="30s")
    fault.wait()
    wait_until(lambda: tree.stat(gateway.znode("ba")) is not None, SOON,
               "the znode")
    kill(gateway, dying)
    with pytest.raises((Gone, OSError)):
        first.response(SOON)
    second = gateway.acquire("ba", wait="20s", worker=staying)
    token = grant(second, "ba")["token"]
    assert gateway.release("ba", token).status == 204


@pytest.mark.shows("no two holders, and no more than the mode allows")
def test_many_deaths(start, tree, connect_tree, zookeeper):
    """Workers die under load; two clients never have the lock at once."""
    gateway = start(session_timeout="60s")
    other = start()
    stop = threading.Event()
    inside, worst, grants, failed = [], [], [], []
    guard = threading.Lock()

    def use(number):
        while not stop.is_set():
            at = (gateway, other)[number % 2]
            try:
                answer = at.acquire("md", wait="10s", ttl="10s")
            except (OSError, Gone):
                continue
            if answer.status != 201:
                continue
            with guard:
                inside.append(number)
                worst.append(len(inside))
                grants.append(answer.fencing)
            time.sleep(0.002)
            with guard:
                inside.remove(number)
            while True:
                try:
                    told = other.release("md", answer.token)
                    if told.status != 503:
                        break
                except (OSError, Gone):
                    pass
            if told.status not in (204, 410):
                failed.append(told)

    def use_plain():
        client = Plain(connect_tree(zookeeper.address))
        while not stop.is_set():
            client.wait(gateway.znode("md"), timeout=60.0)
            with guard:
                inside.append("plain")
                worst.append(len(inside))
            time.sleep(0.002)
            with guard:
                inside.remove("plain")
            client.drop(gateway.znode("md"))

    threads = [threading.Thread(target=use, args=(i,)) for i in range(6)]
    threads.append(threading.Thread(target=use_plain))
    for thread in threads:
        thread.start()
    for _ in range(3 * ROUNDS):
        time.sleep(0.4)
        kill(gateway, gateway.worker_pids()[0])
    # a grant whose answer was lost lasts until the end of its lease
    wait_until(lambda: failed or len(grants) > 20, 60.0, "more grants")
    stop.set()
    for thread in threads:
        thread.join(90)
    assert not failed and max(worst) == 1


def test_a_worker_stands_still(start, plain, zookeeper):
    """A worker that comes first, and does nothing, does not block a sibling."""
    gateway = start(session_timeout="6s")
    still, other = gateway.worker_pids()
    path = gateway.znode("st")
    assert plain.take(path)
    first = gateway.begin("st", worker=still, wait="40s")
    wait_until(lambda: waits_at(zookeeper, path) == 1, SOON, "the watch")
    second = gateway.begin("st", worker=other, wait="40s")
    time.sleep(0.2)
    with gateway.frozen_worker(still):
        plain.drop(path)
        token = grant(second.response(SOON), "st")["token"]
        time.sleep(1.0)
    assert first.silent_for(0.5)
    assert gateway.release("st", token).status == 204
    token = grant(first.response(SOON), "st")["token"]
    assert gateway.release("st", token).status == 204


def test_a_reload(start, plain, tree):
    gateway = start()
    answer = gateway.hold("re", ttl="60s")
    line = [gateway.begin("re", wait="30s")]
    made = tree.made(gateway.znode("re"))
    gateway.reload(wait=False)
    line.append(gateway.begin("re", wait="30s"))
    time.sleep(0.5)
    assert gateway.inspect("re", answer.token).status == 200
    assert tree.made(gateway.znode("re")) == made
    assert gateway.release("re", answer.token).status == 204
    while line:
        ready, = granted(line)
        line.remove(ready)
        token = grant(ready.response(), "re")["token"]
        assert gateway.release("re", token).status == 204
        ready.close()


# a durable lease

def durable(tree, gateway, name):
    wait_until(lambda: tree.is_durable(gateway.znode(name)), SOON,
               "a durable claim")


def test_it_becomes_durable(pair, tree, plain):
    """No waiter gets the lock: here, elsewhere, or by the old recipe."""
    here, there = pair
    holder = here.hold("d", ttl="60s")
    line = [here.begin("d", wait="30s"), there.begin("d", wait="30s")]
    foreigner = threading.Thread(target=plain.wait, args=[here.znode("d")])
    foreigner.start()
    durable(tree, here, "d")
    assert tree.made(here.znode("d")) == holder.fencing / 256
    for gateway in pair:
        assert gateway.inspect("d", holder.token).json["state"] == "held"
        assert gateway.renew("d", holder.token).status == 200
        problem(gateway.acquire("d", wait="0"), 423)
    assert all(connection.silent_for(0.2) for connection in line)
    assert here.release("d", holder.token).status == 204
    taken = 0
    while line or foreigner.is_alive():
        ready = [c for c in line if not c.silent_for(0.01)]
        assert len(ready) <= 1
        for connection in ready:
            line.remove(connection)
            token = grant(connection.response(), "d")["token"]
            assert there.release("d", token).status == 204
            taken += 1
        if (stat := tree.stat(here.znode("d"))) is not None:
            if stat.ephemeralOwner == plain.tree.session:
                foreigner.join(SOON)
                plain.drop(here.znode("d"))
    assert taken == 2


def test_durable_from_the_start(start, tree):
    gateway = start()
    holder = gateway.hold("d", durable="1", ttl="60s")
    assert tree.is_durable(gateway.znode("d"))
    assert holder.fencing == tree.made(gateway.znode("d")) * 256
    waiting = gateway.begin("d", wait="30s", durable="1")
    assert gateway.release("d", holder.token).status == 204
    token = grant(waiting.response(SOON), "d")["token"]
    assert tree.is_durable(gateway.znode("d"))
    assert gateway.release("d", token).status == 204
    short = gateway.hold("d", durable="1", ttl="1500ms")
    wait_until(lambda: tree.stat(gateway.znode("d")) is None, SOON,
               "the end of the lease")
    gone(gateway, "d", short.token)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_it_outlives_its_gateway(start, tree, plain, how):
    """Another gateway counts, renews and releases the lease."""
    here, there = start(session_timeout="4s"), start()
    holder = here.hold("d", ttl="60s")
    short = here.hold("short", ttl="9s")
    waiting = there.begin("d", wait="60s")
    next_one = there.begin("short", wait="60s")
    durable(tree, here, "d")
    durable(tree, here, "short")
    wait = tree.wait_taken_over(here.znode("d"))
    here.kill() if how == "killed" else here.stop()
    wait()
    assert waiting.silent_for(0.1)
    for ask in there.inspect, there.renew:
        told = wait_until(lambda: [
            r for r in [ask("d", holder.token)] if r.status != 503], SOON,
            "an answer")[0]
        assert (told.status, told.fencing) == (200, holder.fencing)
        assert told.json["state"] == "held"
    token = grant(next_one.response(40.0), "short")["token"]
    gone(there, "short", short.token)
    assert there.release("short", token).status == 204
    assert there.release("d", holder.token).status == 204
    token = grant(waiting.response(SOON), "d")["token"]
    assert there.release("d", token).status == 204


@pytest.mark.shows("a durable lease outlives its session")
def test_it_outlives_nginx(start, tree):
    """A gateway that starts again goes on with the lease."""
    gateway = start()
    holder = gateway.hold("d", ttl="60s")
    gateway.stop()
    assert tree.is_durable(gateway.znode("d"))
    gateway.start()
    wait_until(lambda: gateway.inspect("d", holder.token).status == 200, 20.0,
               "it is held again")
    problem(gateway.acquire("d", wait="0"), 423)
    assert gateway.release("d", holder.token).status == 204
    assert tree.stat(gateway.znode("d")) is None


def test_no_queue_in_a_durable_claim(start, start_gateway, tree):
    """A gateway of the other layout makes no claim below the znode."""
    gateway, other = start(), start_gateway()
    holder = gateway.hold("d", durable="1", ttl="60s")
    path = gateway.znode("d")
    response = other.call("POST", lock_path("d"), {"wait": "0"})
    assert response.status == 500, response
    assert gateway.inspect("d", holder.token).status == 200
    assert tree.children(path) == []
    assert gateway.release("d", holder.token).status == 204


# what ZooKeeper does not answer

@pytest.fixture
def proxy(zookeeper, start_proxy):
    return start_proxy(zookeeper)


@pytest.fixture
def behind(proxy, start):
    """A gateway behind a proxy, with a single worker."""
    gateway = start(servers=proxy.address, workers=1, session_timeout="10s")
    assert gateway.release("warm", gateway.hold("warm").token).status == 204
    return gateway


@pytest.mark.parametrize("how", [LOSE, HALF, CUT, UNANSWERED, TORN])
def test_the_create_is_cut(behind, proxy, how, tree):
    fault = proxy.fault("create2", how)
    line = [behind.begin("k", wait="20s"), behind.begin("k", wait="20s")]
    fault.wait()
    ready, = granted(line)
    answer = ready.response()
    line.remove(ready)
    if answer.status == 503:
        answer = line[0].response(SOON)
        line.clear()
    content = grant(answer, "k")
    assert content["fencing_token"] == tree.made(behind.znode("k")) * 256
    assert behind.release("k", content["token"]).status == 204
    for connection in line:
        token = grant(connection.response(SOON), "k")["token"]
        assert behind.release("k", token).status == 204


@pytest.mark.parametrize("how", [LOSE, UNANSWERED, TORN])
def test_the_create_is_cut_and_another_has_it(behind, proxy, how, plain):
    """After the cut the znode exists, and belongs to another client."""
    assert plain.take(behind.znode("k"))
    fault = proxy.fault("create2", how)
    waiting = behind.begin("k", wait="20s")
    fault.wait()
    assert waiting.silent_for(0.5)
    behind.refused("k", wait="300ms")
    plain.drop(behind.znode("k"))
    token = grant(waiting.response(SOON), "k")["token"]
    assert behind.release("k", token).status == 204


@pytest.mark.parametrize("how", [LOSE, CUT, UNANSWERED, TORN])
def test_the_delete_is_cut(behind, proxy, how, tree, plain):
    """If another client has the lock by then, that client keeps the lock."""
    answer = behind.hold("k", ttl="60s")
    stop = threading.Event()
    took = []

    def take():
        plain.wait(behind.znode("k"))
        took.append(tree.stat(behind.znode("k")).czxid)
        stop.wait(30)
        plain.drop(behind.znode("k"))

    thread = threading.Thread(target=take)
    thread.start()
    try:
        time.sleep(0.3)
        # after two seconds the lease becomes durable, by a "multi"
        fault = proxy.fault(("delete", "multi"), how)
        response = behind.release("k", answer.token)
        assert response.status in (204, 503), response
        fault.wait()
        wait_until(lambda: took, SOON, "the other one")
        time.sleep(2.5)
        assert tree.stat(behind.znode("k")).czxid == took[0]
        gone(behind, "k", answer.token)
        assert tree.stat(behind.znode("k")).czxid == took[0]
    finally:
        stop.set()
        thread.join(10)


def test_waiters_outlive_an_outage(behind, proxy, plain):
    assert plain.take(behind.znode("k"))
    line = [behind.begin("k", wait="30s") for _ in range(3)]
    time.sleep(0.3)
    proxy.hole()
    time.sleep(2.0)
    for connection in line:
        assert connection.silent_for(0.01)
    plain.drop(behind.znode("k"))
    proxy.pass_on()
    proxy.kill()
    while line:
        ready, = granted(line)
        line.remove(ready)
        token = grant(ready.response(), "k")["token"]
        assert behind.release("k", token).status == 204


def test_a_lost_session(proxy, start, plain, tree):
    """The holder's claim is lost, and the gateway says so; waiters go on."""
    gateway = start(servers=proxy.address, workers=1, session_timeout="4s")
    worker, = gateway.worker_pids()
    assert plain.take(gateway.znode("s2"))
    other = gateway.begin("s2", wait="40s")
    reached(gateway, worker)
    # the session has to end before the lease of two seconds is durable
    held = gateway.hold("s1", ttl="60s")
    waiting = gateway.begin("s1", wait="40s")
    reached(gateway, worker)
    proxy.hole()
    wait_until(lambda: tree.stat(gateway.znode("s1")) is None, SOON,
               "the end of the session")
    assert plain.take(gateway.znode("s1"))
    proxy.pass_on()
    proxy.kill()
    wait_until(lambda: gateway.inspect("s1").status == 200, SOON, "it is back")
    gone(gateway, "s1", held.token)
    assert tree.stat(gateway.znode("s1")).ephemeralOwner == plain.tree.session
    plain.drop(gateway.znode("s1"))
    token = grant(waiting.response(SOON), "s1")["token"]
    assert gateway.release("s1", token).status == 204
    plain.drop(gateway.znode("s2"))
    token = grant(other.response(SOON), "s2")["token"]
    assert gateway.release("s2", token).status == 204
