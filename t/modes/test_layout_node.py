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

import json
import os
import threading
import time

import pytest
from kazoo.exceptions import NodeExistsError

from lib.checks import gone, grant, problem
from lib.client import Gone, lock_path
from lib.process import wait_until
from lib.streams import hold, watch

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
        """Takes the lock when the lock is free."""
        deadline = time.monotonic() + timeout
        while not self.take(path, data):
            deleted = threading.Event()
            if self.client.exists(path, watch=lambda _: deleted.set()):
                assert deleted.wait(max(deadline - time.monotonic(), 0))

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


def pass_on(gateway, name, *line):
    """Each waiter gets the lock, one after the other, and releases the lock."""
    line = list(line)
    last = 0
    while line:
        ready, = granted(line)
        line.remove(ready)
        content = grant(ready.response(), name)
        assert content["fencing_token"] > last
        last = content["fencing_token"]
        assert gateway.release(name, content["token"]).status == 204


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
    for gateway in pair:
        gateway.catch_up("r")
    gateway, worker = {"own": (here, workers[0]),
                       "sibling": (here, workers[1]),
                       "other": (there, None)}[where]
    assert gateway.release("r", answer.token, worker).status == 204
    gone(here, "r", answer.token)
    pass_on(here, "r", *waiting)


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


def spent(proxy):
    """The requests for locks, without the lists of the gates, which change by
    other gateways' sessions too.
    """
    return sum(n for what, n in proxy.requests.items()
               if what not in ("ping", "getChildren",
                                "getChildren2"))


def test_requests_of_a_handoff(start, zookeeper, start_proxy, plain):
    """However many claims wait, a worker has a single watch and create: a
    foreign release costs the same for fifty waiters as for a single.
    """
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, workers=2, session_timeout="60s")
    path = gateway.znode("h")
    assert plain.take(path)
    line = [gateway.begin("h", worker=worker, wait="60s")
            for _ in range(25) for worker in gateway.worker_pids()]
    wait_until(lambda: waits_at(zookeeper, path) == 2, SOON, "the watches")
    gateway.catch_up("h")
    before = spent(proxy)
    plain.drop(path)
    ready, = granted(line)
    gateway.catch_up("h")
    # some more for an answer that is late, or a lease that becomes durable
    assert spent(proxy) - before <= 16, proxy.requests
    line.remove(ready)
    for connection in line:
        connection.close()
    token = grant(ready.response(), "h")["token"]
    assert gateway.release("h", token).status == 204
    wait_until(lambda: gateway.inspect("h").status == 404, SOON, "the end")


# claims that do not get the lock

def test_the_wait_is_over(pair, plain):
    path = pair[0].znode("w")
    assert plain.take(path, b"somebody")
    for gateway in pair:
        for worker in gateway.worker_pids():
            refusal = gateway.refusal("w", worker=worker)
            assert refusal["holder"]["owner"] == "somebody"
            gateway.refused("w", wait="300ms", worker=worker)
    plain.drop(path)
    answer = pair[0].hold("w")
    for gateway in pair:
        for worker in gateway.worker_pids():
            gateway.refused("w", wait="0", worker=worker)
            gateway.refused("w", wait="100ms", worker=worker)
    assert pair[1].release("w", answer.token).status == 204
    answer = pair[1].acquire("w", wait="0")
    grant(answer, "w")
    assert pair[1].release("w", answer.token).status == 204


def test_a_waiter_leaves(start, plain):
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
    gateway.catch_up("x")
    plain.drop(path)
    pass_on(gateway, "x", *line[4:])
    wait_until(lambda: gateway.inspect("x").status == 404, SOON, "the end")
    assert plain.take(path)
    plain.drop(path)


# leases

@pytest.mark.parametrize("worker", ["lives", "dies"])
def test_an_old_lease_deletes_no_other_znode(pair, plain, tree, worker):
    """The lock is released, by a gateway or by hand, and taken elsewhere before
    the lease ends.
    """
    here, other = pair
    began = time.monotonic()
    dying = here.worker_pids()[0]
    answers = [here.hold("o%d" % i, ttl="6s", worker=dying) for i in range(6)]
    if worker == "dies":
        kill(here, dying)
        # a lease that becomes durable meanwhile may take the other's znode
        wait_until(lambda: not any(
            tree.stat(here.znode("o%d" % i)).ephemeralOwner for i in range(6)),
                   SOON, "the adoption")
    for i, answer in enumerate(answers):
        if i % 2:
            assert other.release("o%d" % i, answer.token).status == 204
        else:
            plain.drop(here.znode("o%d" % i))
        assert plain.take(here.znode("o%d" % i))
    time.sleep(max(0.0, began + 7.0 - time.monotonic()))
    for i, answer in enumerate(answers):
        path = here.znode("o%d" % i)
        gone(here, "o%d" % i, answer.token)
        gone(other, "o%d" % i, answer.token)
        assert tree.stat(path).ephemeralOwner == plain.tree.session
        plain.drop(path)


# foreign znodes

def test_a_foreign_znode(start, plain):
    gateway = start("zk_lock_admin on;")
    gateway.allow("was broken by")
    path = gateway.znode("z")

    def break_(fencing):
        return gateway.call("DELETE", lock_path("z"), {"force": "1"},
                            {"If-Match": str(fencing)})

    for data, owner in ((b"host-1\nmore", "host-1"), (b"\xff\xfe", None),
                        (b"", None)):
        assert plain.take(path, data)
        holder = gateway.inspect("z").json["holders"][0]
        assert holder.get("owner") == owner, holder
        problem(gateway.acquire("z", wait="0"), 423)
        plain.drop(path)
    assert plain.take(path)
    fencing = gateway.inspect("z").json["holders"][0]["fencing_token"]
    problem(gateway.call("PUT", lock_path("z"), {"revoke": "1"}), 409)
    problem(break_(fencing + 256), 412)
    waiting = gateway.begin("z", wait="20s")
    gateway.catch_up("z")
    assert break_(fencing).status == 204
    token = grant(waiting.response(SOON), "z")["token"]
    answer = gateway.call("PUT", lock_path("z"), {"revoke": "1"})
    assert answer.status == 202, answer
    assert break_("*").status == 204
    gone(gateway, "z", token)


def test_a_znode_that_stays_is_no_lock(start, tree):
    gateway = start()
    path = gateway.znode("p")
    tree.make(path)
    for worker in gateway.worker_pids():
        for wait in "5s", "0":
            problem(gateway.acquire("p", wait=wait, worker=worker), 409,
                    "layout")
        problem(gateway.inspect("p", worker=worker), 409, "layout")
    tree.delete(path)
    assert gateway.release("p", gateway.hold("p").token).status == 204


def test_both_layouts_at_one_root(start_gateway, start):
    queue, node = start_gateway(), start()
    for name, one, other in ("b", queue, node), ("c", node, queue):
        answer = one.hold(name)
        problem(other.acquire(name, wait="5s"), 409, "layout")
        assert other.inspect(name, answer.token).status == 200
        assert other.release(name, answer.token).status == 204


# what is not served here

def test_bad_requests(start):
    gateway = start()
    for body in ({"mode": "shared"}, {"mode": "write"}, {"mode": "member"},
                 {"mode": "semaphore", "permits": 2}, {"permits": 2},
                 {"mode": "nonsense"},
                 {"ID": "1", "Operation": "x", "Who": "me"}):
        problem(gateway.acquire("k", body), 400)
    problem(gateway.acquire("k", headers={"Idempotency-Key": "1"}), 400,
            "Idempotency-Key")
    for method in ("LOCK", "UNLOCK"):
        problem(gateway.call(method, lock_path("k"), body={"ID": "1"}), 400)
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


# long polls and streams

def test_long_polls(pair, plain):
    here, other = pair
    path = here.znode("y")

    def poll(query, headers=None):
        connection = here.connect()
        connection.send("GET", lock_path("y"), dict(query, wait="20s"), headers)
        assert connection.silent_for(0.2)
        return connection

    free = here.inspect("y")
    assert free.status == 404
    changed = poll({}, {"If-None-Match": free.headers["ETag"]})
    held = other.hold("y")
    assert changed.response(SOON).status == 200
    until = poll({"until": "free"})
    assert other.release("y", held.token).status == 204
    assert until.response(SOON).status == 204
    assert plain.take(path)
    until = poll({"until": "free"})
    plain.client.set(path, b"again")
    assert until.silent_for(0.3)
    plain.drop(path)
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


@pytest.mark.shows("no two holders, and no more than the mode allows")
def test_many_deaths(start, connect_tree, zookeeper):
    """Workers die under load of two gateways and of plain clients; two clients
    never have the lock at once.
    """
    gateway, other = start(session_timeout="60s"), start()
    stop = threading.Event()
    room = threading.Lock()
    grants, failed = [], []

    def visit(who):
        if not room.acquire(blocking=False):
            failed.append("%s is not alone" % who)
            return
        time.sleep(0.002)
        grants.append(who)
        room.release()

    def use(at):
        try:
            answer = at.acquire("md", wait="10s", ttl="10s")
        except (OSError, Gone):
            return
        if answer.status != 201:
            return
        visit("gateway")
        told = wait_until(lambda: [
            r for r in [other.release("md", answer.token)]
            if r.status != 503], SOON, "a release")[0]
        if told.status not in (204, 410):
            failed.append(told)

    def use_plain(client):
        client.wait(gateway.znode("md"), timeout=60.0)
        visit("plain")
        client.drop(gateway.znode("md"))

    def run(what, at):
        try:
            while not stop.is_set():
                what(at)
        except Exception as e:
            failed.append(e)
            raise

    threads = [threading.Thread(target=run, args=(use, at))
               for at in (gateway, other) * 3]
    threads += [threading.Thread(target=run, args=(
        use_plain, Plain(connect_tree(zookeeper.address)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3 * ROUNDS):
        time.sleep(0.4)
        kill(gateway, gateway.worker_pids()[0])
    # a grant whose answer was lost lasts until the end of its lease
    wait_until(lambda: failed or min(grants.count("plain"),
                                     grants.count("gateway")) > 20, 60.0,
               "more grants")
    stop.set()
    for thread in threads:
        thread.join(90)
    assert not failed


# a durable lease

def durable(tree, gateway, name):
    wait_until(lambda: tree.is_durable(gateway.znode(name)), SOON,
               "a durable claim")


def test_it_becomes_durable(pair, tree, plain):
    """No waiter gets the lock: here, elsewhere, or by the old recipe."""
    here, there = pair
    path = here.znode("d")
    holder = here.hold("d", ttl="60s")
    line = [here.begin("d", wait="30s"), there.begin("d", wait="30s")]
    foreigner = threading.Thread(
        target=lambda: (plain.wait(path), plain.drop(path)))
    foreigner.start()
    durable(tree, here, "d")
    assert tree.made(path) == holder.fencing / 256
    for gateway in pair:
        assert gateway.inspect("d", holder.token).json["state"] == "held"
        assert gateway.renew("d", holder.token).status == 200
        problem(gateway.acquire("d", wait="0"), 423)
    assert all(connection.silent_for(0.2) for connection in line)
    assert foreigner.is_alive() and tree.is_durable(path)
    assert here.release("d", holder.token).status == 204
    pass_on(there, "d", *line)
    foreigner.join(SOON)
    assert not foreigner.is_alive()


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


def test_durable_from_the_start(start, start_gateway, tree):
    """A gateway of the other layout makes no claim below the znode."""
    gateway, other = start(), start_gateway()
    holder = gateway.hold("d", durable="1", ttl="60s")
    path = gateway.znode("d")
    assert tree.is_durable(path)
    assert holder.fencing == tree.made(path) * 256
    response = other.call("POST", lock_path("d"), {"wait": "0"})
    assert response.status == 500, response
    assert gateway.inspect("d", holder.token).status == 200
    assert tree.children(path) == []
    waiting = gateway.begin("d", wait="30s", durable="1", ttl="1500ms")
    assert gateway.release("d", holder.token).status == 204
    token = grant(waiting.response(SOON), "d")["token"]
    assert tree.is_durable(path)
    wait_until(lambda: tree.stat(path) is None, SOON, "the end of the lease")
    gone(gateway, "d", token)
