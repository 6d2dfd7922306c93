"""Memory runs short: each allocation fails in turn, once or from there on.

A worker that gets no memory answers 500 or 503, or cuts the connection where
nginx has no memory for an answer either.  The worker lives on and leaves no
claim and no record behind, and the next client is granted the lock.

Every scenario is played again and again: the first allocation fails, then the
second, and so on until the scenario ends before an allocation fails.  The
worker's timers and ZooKeeper's answers meanwhile are hit as well.

Under the sanitizers each piece of a pool is a separate allocation, and leaks
are found at the end.  In a plain nginx the pieces of a pool come in blocks, so
a request has only a few allocations.

Environment:
    ZK_LOCK_SHORTAGES   how many allocations of a scenario fail in turn, evenly
                        spread from a random first on; 0 means all, which
                        takes two minutes for each kind of failure, and ten if
                        allocations fail for good
    ZK_LOCK_TRACES      a file to which each place of a failure is written
"""

import contextlib
import os
import random

import pytest

from conftest import gateways, new_root
from lib.process import wait_until
from lib.scenarios import CUT, FAILED, OPTIONS, SCENARIOS, World, play
from lib.sessions import stay_ephemeral
from lib.shortage import LOOP, NEVER, OTHERS, Shortage

SOON = 20.0
LIMIT = int(os.environ.get("ZK_LOCK_SHORTAGES") or 0)
TRACES = os.environ.get("ZK_LOCK_TRACES")
HOWS = {"once": (12, LOOP), "for_good": (4, LOOP), "foreign": (4, OTHERS)}

# the message of nginx and of libzookeeper's threads about a failure
TOLD = (r"(malloc|posix_memalign)\(\d+(, \d+)?\) failed \(12: ",)


@pytest.fixture(scope="module")
def worlds(request, tmp_path_factory, zookeeper, tree):
    """A function that makes a world."""
    directory = tmp_path_factory.mktemp("allocations")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        def start():
            shortage = Shortage(directory)
            tried = make(environment=shortage.environment, **OPTIONS)
            for line in TOLD:
                tried.allow(line)
            return World(tried, make(**OPTIONS), tree, shortage)
        yield start


_world = []


@pytest.fixture
def world(worlds):
    """The same world for all tests, until a test has failed."""
    if not _world or _world[0].spoiled:
        _world[:] = [worlds()]
    return _world[0]


@contextlib.contextmanager
def short(world, **how):
    world.shortage.arm(world.worker, **how)
    try:
        yield
    finally:
        world.shortage.disarm()


def act(world, scenario, **how):
    """Plays a turn; returns how many allocations failed."""
    try:
        play(world, scenario, short(world, **how))
    except Exception as e:
        world.spoiled = True
        e.add_note("allocation %s failed: %s" % (how, places(world)))
        raise
    return world.shortage.failed


@pytest.mark.shows("no memory for a request harms no other request")
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("scenario", SCENARIOS,
                         ids=lambda scenario: scenario.__name__)
def test_each_allocation_fails(world, scenario, how):
    limit, threads = HOWS[how]
    # a worker that has missed an answer of ZooKeeper gives the session up:
    # then a token has no claim, and a lock has no holder
    world.also = (404, 410, 412) if how == "foreign" else ()
    if "ZK_LOCK_SHORTAGES" in os.environ:
        limit = LIMIT
    for _ in range(2):      # the first turn makes what is made only once
        act(world, scenario, threads=threads)
    total = world.shortage.count
    step = -(-total // limit) if limit else 1
    first, failed = random.randint(1, max(step, 1)), 1
    while failed:
        failed = act(world, scenario, first=first, threads=threads,
                     for_good=how == "for_good")
        if TRACES and failed:
            tell(world, scenario, first)
        first += step


# events that no request causes

def one_by_one(shortage, limit, turn):
    """Calls turn(first) again and again, until no allocation has failed."""
    if "ZK_LOCK_SHORTAGES" in os.environ:
        limit = LIMIT
    turn(NEVER)
    step = -(-shortage.count // limit) if limit else 1
    first, failed = random.randint(1, max(step, 1)), 1
    while failed:
        turn(first)
        failed = shortage.failed
        first += step


def made_short(start_gateway, directory, **options):
    shortage = Shortage(directory)
    gateway = start_gateway(environment=shortage.environment, **options)
    for line in TOLD:
        gateway.allow(line)
    return gateway, shortage


def settled(call, right, lost=lambda: False):
    """The first answer that reports no lack of memory or of ZooKeeper.

    A claim may have gone before the release if lost() says so.
    """
    tries = []

    def tried():
        tries.append(None)
        with contextlib.suppress(*CUT):
            answer = call()
            return answer if answer.status not in FAILED else None

    answer = wait_until(tried, SOON, "an answer")

    # a release that was not confirmed may have been done since
    assert answer.status == right or (
        right == 204 and answer.status == 410
        and (len(tries) > 1 or lost())), answer
    return answer


@pytest.mark.parametrize("threads", [LOOP, pytest.param(
    OTHERS, marks=pytest.mark.plain("AddressSanitizer itself needs memory "
                                    "when a thread begins"))])
def test_session_ends_and_the_next_begins(start_gateway, start_proxy,
                                          zookeeper, tree, tmp_path, threads):
    """A lock is lost with the old session, and free in the next session."""
    proxy = start_proxy(zookeeper)
    before = zookeeper.living_sessions()
    gateway, shortage = made_short(start_gateway, tmp_path, workers=1,
                                   servers=proxy.address,
                                   session_timeout="2s", wait_sessions=False)
    worker, = gateway.worker_pids()
    stay_ephemeral(tree, gateway.znode("x"))

    def turn(first):
        token = settled(lambda: gateway.acquire("x", ttl="1h"), 201).token
        ends = zookeeper.living_sessions() - before
        proxy.refuse()
        shortage.arm(worker, first=first, threads=threads)
        proxy.kill()
        wait_until(lambda: not ends & zookeeper.living_sessions(), SOON)
        expired = set(zookeeper.expirations())
        proxy.listen()
        settled(lambda: gateway.release("x", token), 410)
        token = settled(lambda: gateway.acquire("x"), 201).token
        shortage.disarm()
        # the next session ends, too, if ZooKeeper stands still
        settled(lambda: gateway.release("x", token), 204,
                lambda: set(zookeeper.expirations()) - expired)
        assert gateway.worker_pids() == [worker]

    one_by_one(shortage, 4, turn)


def test_dead_worker_is_inherited(start_gateway, tree, tmp_path):
    """A lock that the worker told as held stays held; a waiter's claim goes.
    """
    gateway, shortage = made_short(start_gateway, tmp_path, workers=2,
                                   session_timeout="60s")

    def turn(first):
        dies, heir = gateway.worker_pids()
        token = gateway.hold("x", worker=dies, ttl="1h").token
        waiter = gateway.begin("x", worker=dies, wait="1m")
        tree.wait_claims(gateway.znode("x"), 2)
        shortage.arm(heir, first=first)
        gateway.kill_worker(dies)
        tree.wait_claims(gateway.znode("x"), 1, SOON)
        shortage.disarm()
        assert waiter.closed_by_server()
        settled(lambda: gateway.release("x", token), 204)
        tree.wait_claims(gateway.znode("x"), 0)
        wait_until(lambda: len(gateway.worker_pids()) == 2, SOON)
        assert heir in gateway.worker_pids()

    one_by_one(shortage, 8, turn)


def several(gateway):
    response = gateway.call("POST", "/locks/",
                            body={"names": ["a", "b", "c", "d"]})
    token = {"Lock-Token": response.token}
    return (("DELETE", "/locks/", None, token),
            lambda: gateway.call("DELETE", "/locks/", headers=token))


def members(gateway):
    for _ in range(4):
        assert gateway.acquire("x", mode="member").status == 201
    request = "DELETE", "/locks/x", {"force": "1"}, {"If-Match": "*"}
    return request, lambda: gateway.call(*request)


def watched(gateway):
    token = gateway.hold("x").token
    return (("GET", "/locks/x", {"until": "free", "wait": "200ms"}),
            lambda: gateway.release("x", token))


@pytest.mark.parametrize("of", [several, members, watched])
def test_page_of_a_failure_takes_long(start_gateway, backend, tree, tmp_path,
                                      of):
    """No call of the failed request answers meanwhile."""
    gateway, shortage = made_short(
        start_gateway, tmp_path, workers=1, session_timeout="60s",
        location="zk_lock_admin on; error_page 500 /late/;",
        server="location /late/ { proxy_pass http://%s; }" % backend.address)
    worker, = gateway.worker_pids()
    pages = []

    def turn(first):
        request, undo = of(gateway)
        shortage.arm(worker, first=first)
        client = gateway.connect().send(*request)
        wait_until(lambda: not backend.idle() or not client.silent_for(0))
        shortage.disarm()
        if not backend.idle():
            pages.append(first)
            seen = backend.next()
            assert client.silent_for(0.5)
            seen.answer(200, b"late\n")
        with contextlib.suppress(*CUT):
            response = client.response(SOON)
            assert (response.body == b"late\n") == (first in pages), response
        wait_until(lambda: undo().status in (204, 404, 410), SOON)
        for name in "abcdx":
            tree.wait_claims(gateway.znode(name), 0)
        assert gateway.worker_pids() == [worker]

    one_by_one(shortage, 0, turn)
    assert pages


def places(world):
    """The functions in which allocations failed."""
    return "\n".join(" < ".join(trace)
                     for trace in world.shortage.traces(world.worker)[:3])


def tell(world, scenario, first):
    with open(TRACES, "a") as f:
        f.write("%s %d: %s\n" % (scenario.__name__, first, places(world)))
