"""Several locks at once: all of the locks, or none.

POST on the location's own path acquires the locks that the body names, in the
order of the locks' paths, whatever order the body has.  So requests that want
some of the same locks never wait for each other in a ring.  A single token
stands for all of the locks, at each worker and gateway.

Until the last lock is granted the gateway promises nothing: if the client
leaves or the worker dies before, no claim stays.  Afterwards each lock is like
any other lock.

The clients of the load watch each lock: between a grant and its release no
other client is in, and fencing tokens grow.  ZK_LOCK_GRANTS is the number of
grants of the load.
"""

import asyncio
import base64
import itertools
import re
import time

import pytest
from kazoo.security import make_acl

from lib.checks import problem, wait_over
from lib.client import AsyncConnection, Gone, ask
from lib.process import wait_until
from lib.queues import GRANTS, SOON, chance, kill, patience, play, wait
from lib.room import Room
from lib.streams import hold
from lib.tokens import claim_of, token_of
from lib.zookeeper import sequence

PATH = "/locks/"
SEVERAL = re.compile(r"^[A-Za-z0-9_-]{32}\.[A-Za-z0-9_-]+$")
NAMES = ["a", "b", "c"]


@pytest.fixture
def pair(start_gateway):
    return [start_gateway(), start_gateway()]


@pytest.fixture
def sturdy(start_gateway):
    """Two gateways whose sessions outlive the test."""
    return [start_gateway(session_timeout="60s") for _ in range(2)]


def everywhere(*gateways):
    return [(gateway, worker) for gateway in gateways
            for worker in gateway.worker_pids()]


# calls

def acquire(gateway, names, worker=None, headers=None, **body):
    return gateway.call("POST", PATH, None, headers,
                        dict(body, names=names), worker=worker)


def begin(gateway, names, worker=None, **body):
    """Sends an acquire; the test reads the answer from the connection."""
    connection = gateway.connect(worker)
    connection.send("POST", PATH, None, None, dict(body, names=names))
    return connection


def call(method, gateway, token, worker=None, **query):
    return gateway.call(method, PATH, query, {"Lock-Token": token},
                        worker=worker)


def release(gateway, token, worker=None):
    return call("DELETE", gateway, token, worker)


def renew(gateway, token, worker=None, **query):
    return call("PUT", gateway, token, worker, **query)


def inspect(gateway, token, worker=None):
    return call("GET", gateway, token, worker)


# answers

def told(content, names, mode="exclusive", permits=None):
    assert SEVERAL.match(content["token"]), content
    assert content["mode"] == mode and content.get("permits") == permits
    assert [lock["name"] for lock in content["locks"]] == sorted(
        names, key=str.encode)
    for lock in content["locks"]:
        assert isinstance(lock["fencing_token"], int)
        assert 0 < lock["fencing_token"] < 1 << 63
    assert 0 < content["ttl_ms"]
    return content


def granted(response, names, mode="exclusive", permits=None):
    assert response.status == 201, response
    content = told(response.json, names, mode, permits)
    assert response.headers["Lock-Token"] == content["token"]
    assert response.headers["Cache-Control"] == "no-store"
    assert "Lock-Fencing-Token" not in response.headers
    assert 0 < content["expires_in_ms"] <= content["ttl_ms"]
    assert 0 <= content["waited_ms"]
    return response


def held(response, names, **of):
    assert response.status == 200, response
    content = told(response.json, names, **of)
    assert content["state"] == "held"
    assert response.headers["Lock-Token"] == content["token"]
    return content


def gone(response, names):
    assert problem(response, 410)["gone"] == names


def refused(response, name, owner=None):
    content = problem(response, 423)
    assert content["name"] == name
    if owner is not None:
        assert content["holder"]["owner"] == owner
    return content


def fencing(response):
    return [lock["fencing_token"] for lock in response.json["locks"]]


def claims(tree, gateway, names):
    return [tree.claims(gateway.znode(name)) for name in names]


def wait_free(tree, gateway, names):
    for name in names:
        tree.wait_claims(gateway.znode(name), 0)


def key(claim):
    """What the ids of the claims have in common."""
    return claim[3:21]


# all locks

@pytest.mark.parametrize("names", [
    ["a"], ["b", "a"], ["c", "a", "b"], ["a b", "a", "a.b", "ä", "Z", "%2F"],
    ["n%d" % i for i in range(32)]], ids=len)
def test_all_are_granted(pair, tree, names):
    here, there = pair
    response = granted(acquire(here, names, owner="me", data={"a": [1]},
                               ttl="90s"), names)
    assert response.json["ttl_ms"] == 90000

    lines = claims(tree, here, names)
    assert all(len(line) == 1 for line in lines)
    assert len({key(claim) for claim, in lines}) == 1

    for gateway, worker in everywhere(here, there):
        content = held(inspect(gateway, response.token, worker), names)
        assert content["token"] == response.token
        assert content["locks"] == response.json["locks"]
        assert content["owner"] == "me" and content["data"] == {"a": [1]}
        assert content["ttl_ms"] == 90000
    for lock in response.json["locks"]:
        holder, = there.inspect(lock["name"]).json["holders"]
        assert holder["owner"] == "me"
        assert holder["fencing_token"] == lock["fencing_token"]
        problem(there.acquire(lock["name"], wait="0"), 423)

    assert release(there, response.token).status == 204
    assert claims(tree, here, names) == [[]] * len(names)
    for gateway, worker in everywhere(here, there):
        for method in ("GET", "PUT", "DELETE"):
            gone(call(method, gateway, response.token, worker),
                 [lock["name"] for lock in response.json["locks"]])


@pytest.mark.parametrize("mode, permits", [
    ("exclusive", None), ("shared", None), ("write", None), ("semaphore", 2),
    ("member", None)])
def test_modes(pair, tree, mode, permits):
    """All locks have the same mode, which shares as for a single lock."""
    here, there = pair
    body = {"mode": mode}
    if permits:
        body["permits"] = permits
    alone = mode in ("exclusive", "write")

    one = granted(acquire(here, NAMES, **body), NAMES, mode, permits)
    for gateway, worker in everywhere(here, there):
        held(inspect(gateway, one.token, worker), NAMES, mode=mode,
             permits=permits)
    if alone:
        refused(acquire(there, ["x", "c"], wait="0", **body), "c")
    else:
        other = granted(acquire(there, ["b", "x"], wait="0", **body),
                        ["b", "x"], mode, permits)
        assert release(here, other.token).status == 204
    if mode == "semaphore":
        problem(acquire(there, ["a", "x"], mode=mode, permits=3, wait="0"),
                409)
    assert release(there, one.token).status == 204
    wait_free(tree, here, NAMES + ["x"])


def test_arguments_in_the_query(gateway):
    response = gateway.call("POST", PATH, {"ttl": "50s", "mode": "write",
                                           "wait": "1s", "owner": "me"},
                            body={"names": NAMES})
    granted(response, NAMES, "write")
    assert response.json["ttl_ms"] == 50000
    content = held(inspect(gateway, response.token), NAMES, mode="write")
    assert content["owner"] == "me"
    release(gateway, response.token)


def test_what_is_preferred(gateway):
    """Prefer may have a wait; respond-async does not apply to several locks."""
    holder = gateway.hold("b", owner="me")
    refused(acquire(gateway, NAMES, headers={
        "Prefer": "respond-async, wait=0"}), "b", "me")
    gateway.release("b", holder.token)
    response = granted(acquire(gateway, NAMES, headers={
        "Prefer": "respond-async"}), NAMES)
    release(gateway, response.token)


def test_head(gateway):
    response = acquire(gateway, NAMES)
    answer = call("HEAD", gateway, response.token)
    assert answer.status == 200 and answer.body == b""
    assert answer.headers["Lock-Token"] == response.token
    release(gateway, response.token)
    assert call("HEAD", gateway, response.token).status == 410


# bad requests for several locks

LONG = ["n%02d" % i + 61 * "x" for i in range(32)]      # 2048 bytes

@pytest.mark.parametrize("body", [
    None, {}, {"name": "a"}, {"names": []}, {"names": "a"}, {"names": [1]},
    {"names": {"a": 1}}, {"names": [["a"]]}, {"names": None},
    {"names": ["a", "b", "a"]}, {"names": ["a/b", "a%2Fb"]}, {"names": ["."]},
    {"names": ["a", ""]}, {"names": ["%sha1-" + 40 * "0"]},
    {"names": [2049 * "a"]}, {"names": ["n%d" % i for i in range(33)]},
    {"names": LONG[:-1] + [LONG[-1] + "x"]},
    {"names": ["a"], "hold": "connection"}, {"names": ["a"], "hold": "no"},
    {"names": ["a"], "mode": "no"}, {"names": ["a"], "mode": "semaphore"},
    {"names": ["a"], "permits": 2}, {"names": ["a"], "ttl": 0},
    {"names": ["a"], "ttl": "x"}, {"names": ["a"], "more": 1},
    {"names": ["a"], "until": "free"}], ids=lambda body: str(body)[:40])
def test_refused_bodies(shared_gateway, tree, body):
    problem(shared_gateway.call("POST", PATH, body=body), 400)
    assert tree.children(shared_gateway.root) == []


@pytest.mark.parametrize("query", ["names=a", "force=1", "limit=2"])
def test_refused_queries(shared_gateway, tree, query):
    problem(shared_gateway.call("POST", PATH, query, body={"names": ["a"]}),
            400)
    assert tree.children(shared_gateway.root) == []


@pytest.mark.parametrize("headers", [
    {"Idempotency-Key": "k"}, {"Lock-Token": 32 * "a"},
    {"Lock-Token": ""}, {"Prefer": "wait=x"}])
def test_refused_headers(shared_gateway, tree, headers):
    problem(acquire(shared_gateway, ["a"], headers=headers), 400)
    assert tree.children(shared_gateway.root) == []


def test_most_names_and_bytes(pair):
    here, there = pair
    assert len(LONG) == 32 and sum(map(len, LONG)) == 2048
    response = granted(acquire(here, LONG[::-1]), LONG)
    held(renew(there, response.token), LONG)
    assert release(there, response.token).status == 204


def test_root_and_name_are_too_long(start_gateway, root):
    gateway = start_gateway(root=root + "/" + 300 * "r")
    problem(acquire(gateway, ["a", 200 * "n"]), 400)
    response = granted(acquire(gateway, ["a", 100 * "n"]), ["a", 100 * "n"])
    assert release(gateway, response.token).status == 204


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_queries_of_other_calls(shared_gateway, method):
    response = acquire(shared_gateway, ["a"])
    for query in ("wait=1s", "mode=shared", "revoke=1", "force=1", "x=1"):
        if query.startswith("wait") and method == "GET":
            continue
        problem(shared_gateway.call(method, PATH, query, {
            "Lock-Token": response.token}), 400)
    problem(renew(shared_gateway, response.token, ttl="0"), 400)
    assert release(shared_gateway, response.token).status == 204


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_token_is_missing(shared_gateway, method):
    problem(shared_gateway.call(method, PATH), 400)


# tokens

def text_of(names):
    return base64.urlsafe_b64encode("/".join(names).encode()).decode(
        ).rstrip("=")


def forged(token):
    """Texts that resemble this token; none is a token."""
    head, names = token.split(".")
    yield from ("", ".", head, head + ".", "." + names, names, token + ".",
                token + "A", token[:-1], head[:-1] + "." + names,
                head[::-1] + "." + names, token + "=")
    for other in (["a", "b"], ["a", "b", "c", "d"], ["b", "a", "c"],
                  ["a", "b", "b"], ["a", "b", "x"], ["a", "", "b", "c"],
                  ["a", "b", "c", ""], ["", "a", "b", "c"], ["a", ".", "c"],
                  [40 * "a", 300 * "b"], ["n%02d" % i for i in range(33)]):
        yield head + "." + text_of(other)


def test_tokens_that_are_none(pair):
    here, there = pair
    response = acquire(here, NAMES)
    for text in forged(response.token):
        for method in ("GET", "PUT", "DELETE"):
            problem(call(method, there, text), 404)
    held(inspect(there, response.token), NAMES)
    problem(here.inspect("a", response.token), 404)
    assert release(here, response.token).status == 204


def test_token_of_another_root(start_gateway, root):
    here = start_gateway(root=root + "/a")
    there = start_gateway(root=root + "/b")
    one, other = acquire(here, NAMES), acquire(there, NAMES)
    for method in ("GET", "PUT", "DELETE"):
        problem(call(method, there, one.token), 404)
        problem(call(method, here, other.token), 404)
    assert release(here, one.token).status == 204
    assert release(there, other.token).status == 204


# or none

@pytest.mark.parametrize("wait", ["0", "150ms"])
@pytest.mark.parametrize("taken", NAMES)
def test_one_is_taken(pair, tree, taken, wait):
    here, there = pair
    holder = here.hold(taken, owner="me")
    for gateway, worker in everywhere(here, there):
        refused(gateway.in_reach(lambda: acquire(
            gateway, NAMES, worker, wait=wait)), taken, "me")
        for name in NAMES:
            tree.wait_claims(here.znode(name), int(name == taken))
    free = acquire(there, [name for name in NAMES if name != taken],
                   wait="0")
    assert free.status == 201, free
    assert release(here, free.token).status == 204
    assert here.release(taken, holder.token).status == 204


def test_first_one_that_is_taken_is_named(pair):
    here, there = pair
    one = acquire(here, ["b", "d"], owner="one")
    other = acquire(there, ["c"], owner="other")
    refused(acquire(there, ["d", "c", "b", "a"], wait="0"), "b", "one")
    release(here, one.token)
    refused(acquire(here, ["d", "c", "b", "a"], wait="0"), "c", "other")
    release(there, other.token)


def test_used_in_another_way(pair, tree):
    here, there = pair
    holder = acquire(here, ["b"], mode="semaphore", permits=2)
    content = problem(acquire(there, NAMES), 409)
    assert content["name"] == "b"
    wait_free(tree, here, ["a", "c"])
    release(here, holder.token)


def test_queue_is_full(start_gateway, tree):
    gateway = start_gateway(location="zk_lock_max_queue 1;")
    worker = gateway.worker_pids()[0]
    holder = gateway.hold("b", worker=worker)
    waiter = begin(gateway, ["b", "x"], worker, wait="1m")
    tree.wait_claims(gateway.znode("b"), 2)
    content = problem(acquire(gateway, NAMES, worker, wait="1m"), 429)
    assert content["name"] == "b"
    wait_free(tree, gateway, ["a", "c"])
    gateway.release("b", holder.token)
    release(gateway, granted(waiter.response(SOON), ["b", "x"]).token)


def test_waits_for_one_after_the_other(pair, tree):
    """Meanwhile the request holds the earlier locks, and no later lock."""
    here, there = pair
    holders = {name: there.hold(name) for name in NAMES}
    waiter = begin(here, NAMES[::-1], wait="1m")
    for i, name in enumerate(NAMES):
        tree.wait_claims(here.znode(name), 2)
        assert [len(line) for line in claims(tree, here, NAMES)] == (
            [1] * i + [2] + [1] * (len(NAMES) - i - 1))
        wait(waiter)
        there.release(name, holders[name].token)
    response = granted(waiter.response(SOON), NAMES)
    assert all(token > holders[name].fencing for name, token
               in zip(NAMES, fencing(response)))
    assert release(there, response.token).status == 204


# The names have another order than the paths, which the locks are in here: a
# long name ends in a hash, and so does one that ZooKeeper does not take.
PATHS = {
    "long": ["n" * 300, "n" * 154 + "a", "n" * 154 + "b"],
    "not a znode's": ["a!", "a\x01", "a'"],
    "slash": ["a/b", "a'", "a("],
}

BOTH_WAYS = """
location /app/ {
    zk_lock $http_x_2; zk_lock $http_x_0; zk_lock $http_x_1;
    try_files /none =204;
}
"""


@pytest.mark.parametrize("kind", sorted(PATHS))
@pytest.mark.parametrize("guards", [False, True])
def test_order_of_the_paths(start_gateway, tree, kind, guards):
    """ZooKeeper's order is that of every request, also of a guard's rules."""
    here, there = start_gateway(server=BOTH_WAYS), start_gateway()
    names = PATHS[kind]
    holders = [there.hold(name) for name in names]
    told = [holder.json["name"] for holder in holders]
    if guards:
        waiter = here.connect().send("GET", "/app/", None, {
            "X-%d" % i: name for i, name in enumerate(names)})
    else:
        waiter = begin(here, sorted(names, reverse=True), wait="1m")

    def waiting():
        return [there.inspect(name).json["queued"] for name in names]

    for i, name in enumerate(names):
        wait_until(lambda: waiting()[i], SOON, "it waits for this lock")
        assert waiting() == [0] * i + [1] + [0] * (len(names) - i - 1)
        there.release(name, holders[i].token)
    response = waiter.response(SOON)
    if guards:
        assert response.status == 204
        return
    assert response.status == 201, response
    assert [lock["name"] for lock in response.json["locks"]] == told

    # only where the znode's name does not show the lock's, the data do
    shown = [tree.label(claim).get("name") for lock in
             sorted(tree.children(here.root)) for claim in
             [here.znode(lock) + "/" + tree.claims(here.znode(lock))[0]]]
    assert shown == [name if "%sha1-" not in name and len(name) > 200
                     else None for name in told]
    assert renew(there, response.token).status == 200
    content = inspect(here, response.token).json
    assert [lock["name"] for lock in content["locks"]] == told
    assert release(there, response.token).status == 204
    gone(release(here, response.token), told)


def test_wait_is_shared(pair, tree):
    """All locks share the wait of a single lock.  A request that came later,
    and waits for the last lock alone, is not refused earlier.
    """
    here, there = pair
    holders = {name: there.hold(name) for name in ("a", "b")}
    began = time.monotonic()
    waiter = begin(here, ["a", "b"], wait="6s")
    tree.wait_claims(here.znode("a"), 2)
    later = there.begin("b", wait="6s")
    clock = there.begin("a", wait="3s")
    wait_over(clock.response(SOON), there)
    there.release("a", holders["a"].token)
    in_time = time.monotonic() - began < 5
    wait_over(later.response(SOON), there)
    # if its wait had begun anew, three seconds would be left
    assert not waiter.silent_for(2.0)
    response = waiter.response()
    wait_over(response, here)
    if response.status == 423 and in_time:
        refused(response, "b")
    wait_free(tree, here, ["a"])
    there.release("b", holders["b"].token)


# clients that leave

@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("taken", NAMES)
def test_client_leaves(pair, tree, taken, how):
    here, there = pair
    holder = there.hold(taken)
    for worker in here.worker_pids():
        waiter = begin(here, NAMES, worker, wait="1m")
        tree.wait_claims(here.znode(taken), 2)
        getattr(waiter, how)()
        for name in NAMES:
            tree.wait_claims(here.znode(name), int(name == taken))
    there.release(taken, holder.token)


def test_client_leaves_with_its_stream(pair, tree):
    here, there = pair
    holder = there.hold("c")
    connection = here.connect_http2()
    stream = connection.send("POST", PATH, body={"names": NAMES,
                                                 "wait": "1m"})
    tree.wait_claims(here.znode("c"), 2)
    connection.cancel(stream)
    for name in NAMES:
        tree.wait_claims(here.znode(name), int(name == "c"))
    there.release("c", holder.token)


def test_client_leaves_while_it_is_granted(pair, tree):
    """The leave or the grant comes first.  A grant may be on its way when the
    client leaves, which the gateway cannot see, and then lasts as long as its
    lease.
    """
    here, there = pair
    for i in range(40):
        holder = there.hold("c")
        waiter = begin(here, NAMES, wait="1m", ttl="2s")
        tree.wait_claims(here.znode("c"), 2)
        connection = there.connect()
        ways = [lambda: connection.send("DELETE", "/locks/c", None,
                                        {"Lock-Token": holder.token}),
                waiter.reset if i % 4 < 2 else waiter.close]
        for way in ways[::1 if i % 2 else -1]:
            way()
        assert connection.response().status == 204
        wait_free(tree, here, NAMES)


@pytest.mark.shows("a client that has left leaves no claim")
@pytest.mark.parametrize("how", ["close", "reset"])
def test_client_left_before_it_is_granted(pair, tree, how):
    """The worker hears of both at the same moment, and keeps no claim."""
    here, there = pair
    for worker in here.worker_pids() * 3:
        holder = there.hold("c")
        waiter = begin(here, NAMES, worker, wait="1m", ttl="1h")
        tree.wait_claims(here.znode("c"), 2)
        with here.frozen_worker(worker):
            getattr(waiter, how)()
            there.release("c", holder.token)
        wait_free(tree, here, NAMES)


@pytest.mark.parametrize("broken", ["a", "b"])
def test_one_is_lost_meanwhile(pair, tree, broken):
    """A claim that was granted is deleted during the wait: no claim stays."""
    here, there = pair
    holder = there.hold("c")
    waiter = begin(here, NAMES, wait="1m")
    tree.wait_claims(here.znode("c"), 2)
    claim, = tree.claims(here.znode(broken))
    there.release(broken, token_of(here.znode(broken), claim))
    assert problem(waiter.response(SOON), 410)["name"] == broken
    for name in NAMES:
        tree.wait_claims(here.znode(name), int(name == "c"))
    there.release("c", holder.token)


def test_lost_as_the_last_one_is_granted(pair, tree):
    """The worker hears of the loss and the grant in the same turn."""
    here, _ = pair
    for worker, sibling in itertools.permutations(here.worker_pids()):
        holder = here.hold("b", worker=sibling)
        waiter = begin(here, ["a", "b"], worker, wait="1m")
        tree.wait_claims(here.znode("b"), 2)
        claim, = tree.claims(here.znode("a"))
        token = token_of(here.znode("a"), claim)
        breaker, releaser = here.connect(sibling), here.connect(sibling)
        with here.frozen_worker(worker):
            breaker.send("DELETE", "/locks/a", None, {"Lock-Token": token})
            assert releaser.request("DELETE", "/locks/b", None, {
                "Lock-Token": holder.token}).status == 204
        answer = waiter.response(SOON)
        assert breaker.response(SOON).status == 204
        if answer.status == 201:
            assert release(here, answer.token).status in (204, 410)
        else:
            assert problem(answer, 410)["name"] == "a"
        wait_free(tree, here, ["a", "b"])


def test_lost_and_refused_at_once(pair, tree):
    """Whichever is known first, the request is answered and keeps no claim."""
    here, there = pair
    for _ in range(10):
        holder = there.hold("c")
        waiter = begin(here, NAMES, wait="1m")
        tree.wait_claims(here.znode("c"), 2)
        own = tree.claims(here.znode("c"))[1]
        asked = []
        for name, claim in (("a", tree.claims(here.znode("a"))[0]),
                            ("b", tree.claims(here.znode("b"))[0]),
                            ("c", own)):
            asked.append(here.connect())
            asked[-1].send("DELETE", PATH + name, None, {
                "Lock-Token": token_of(here.znode(name), claim)})
        problem(waiter.response(SOON), 410)
        for connection in asked:
            assert connection.response().status in (204, 410)
        for name in NAMES:
            tree.wait_claims(here.znode(name), int(name == "c"))
        there.release("c", holder.token)


def test_queued_one_is_cancelled(pair, tree):
    here, there = pair
    holder = there.hold("b")
    waiter = begin(here, NAMES, wait="1m")
    tree.wait_claims(here.znode("b"), 2)
    own = tree.claims(here.znode("b"))[1]
    assert here.release("b", token_of(here.znode("b"), own)).status == 204
    assert problem(waiter.response(SOON), 410)["name"] == "b"
    wait_free(tree, here, ["a", "c"])
    there.release("b", holder.token)


def test_queued_one_is_deleted_elsewhere(pair, tree):
    """No client was told the token, so this is a delete by hand to the waiter's
    gateway: the claim queues again.
    """
    here, there = pair
    holder = there.hold("b")
    waiter = begin(here, NAMES, wait="1m")
    tree.wait_claims(here.znode("b"), 2)
    own = tree.claims(here.znode("b"))[1]
    assert there.release("b", token_of(here.znode("b"), own)).status == 204
    tree.wait_claims(here.znode("b"), lambda claims: (
        len(claims) == 2 and claims[1] != own))
    there.release("b", holder.token)
    response = waiter.response(SOON)
    assert response.status == 201, response
    assert here.call("DELETE", "/locks/", headers={
        "Lock-Token": response.token}).status == 204


# ZooKeeper

def test_zookeeper_is_gone_meanwhile(private_zookeeper, start_gateway,
                                     connect_tree):
    """The outage lasts longer than the gateway can be sure of the granted
    claims.  No grant was told so far, so the gateway acquires all locks anew
    while there is time.
    """
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            session_timeout="4s")
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    holder = gateway.hold("c", ttl="1h")
    stream = hold(gateway, "s")
    stream.event("granted")
    waiter = begin(gateway, NAMES, wait="1m")
    hasty = begin(gateway, ["c", "d"], wait="4s")
    tree.wait_claims(gateway.znode("c"), 3)
    private_zookeeper.freeze()
    problem(hasty.response(20), 503)
    assert stream.event("ending")["reason"] == "zookeeper"
    assert stream.event("lost")["reason"] == "session"
    private_zookeeper.thaw()
    wait_until(lambda: gateway.release("c", holder.token).status != 503, 20)
    response = waiter.response(20)
    granted(response, NAMES)
    for name in NAMES:
        tree.wait_claims(gateway.znode(name), 1)
    assert release(gateway, response.token).status == 204
    wait_free(tree, gateway, NAMES)


def test_zookeeper_does_not_answer(private_zookeeper, start_gateway,
                                   connect_tree):
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper)
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    response = acquire(gateway, NAMES)
    private_zookeeper.freeze()
    for method in ("GET", "PUT", "DELETE"):
        problem(call(method, gateway, response.token), 503)
    problem(acquire(gateway, ["d", "e"], wait="1s"), 503)
    private_zookeeper.thaw()
    wait_until(lambda: release(gateway, response.token).status in (204, 410),
               30)
    wait_free(tree, gateway, NAMES)


# leases

def test_renewed_anywhere(pair):
    here, there = pair
    response = acquire(here, NAMES, ttl="90s", owner="me")
    for gateway, worker in everywhere(here, there):
        content = held(renew(gateway, response.token, worker), NAMES)
        assert content["ttl_ms"] == 90000
        assert 80000 < content["expires_in_ms"] <= 90000
        assert content["owner"] == "me"
        assert content["locks"] == response.json["locks"]
    for gateway, worker in everywhere(there, here):
        content = held(renew(gateway, response.token, worker, ttl="40s"),
                       NAMES)
        assert content["ttl_ms"] == 40000
        assert 30000 < content["expires_in_ms"] <= 40000
        for other, asked in everywhere(here, there):
            assert inspect(other, response.token,
                           asked).json["ttl_ms"] == 40000
    assert release(there, response.token).status == 204


@pytest.mark.parametrize("shorter", NAMES)
def test_least_of_the_leases(pair, tree, shorter):
    """A client that knows a claim's own token has renewed one lease alone."""
    here, there = pair
    response = acquire(here, NAMES, ttl="90s")
    lock = here.znode(shorter)
    claim, = tree.claims(lock)
    token = token_of(lock, claim)
    for renewing, ttl in (there, 60000), (here, 30000):
        assert renewing.renew(shorter, token, ttl="%dms" % ttl).status == 200
        for worker in here.worker_pids():
            content = held(inspect(here, response.token, worker), NAMES)
            assert content["ttl_ms"] == ttl
            # not known for a while after a renewal at another gateway
            least = ttl - 10000 if renewing is here else 0
            assert least <= content.get("expires_in_ms", 0) <= ttl
    assert release(there, response.token).status == 204


@pytest.mark.parametrize("stays", NAMES)
def test_one_cannot_be_released(pair, tree, stays):
    """The answer tells of the failure, whichever claim's answer is the last.
    """
    here, there = pair
    for gateway, worker in everywhere(here, there):
        response = acquire(here, NAMES)
        lock = here.znode(stays)
        acls, _ = tree.client.get_acls(lock)
        tree.client.set_acls(lock, [make_acl("world", "anyone", read=True,
                                             write=True, create=True,
                                             admin=True)])
        problem(release(gateway, response.token, worker), 500)
        tree.client.set_acls(lock, acls)
        wait_until(lambda: release(here, response.token).status == 410, SOON,
                   "all are released")
        wait_free(tree, here, NAMES)


def test_longest_lease(start_gateway):
    gateway = start_gateway(location="zk_lock_max_ttl 8s;")
    response = granted(acquire(gateway, NAMES, ttl="1h"), NAMES)
    assert response.json["ttl_ms"] == 8000
    assert renew(gateway, response.token, ttl="1h").json["ttl_ms"] == 8000
    release(gateway, response.token)


def test_leases_end(pair, tree):
    """All leases end; a waiter for some of the locks gets the locks."""
    here, there = pair
    response = acquire(here, NAMES, ttl="300ms")
    waiter = begin(there, ["c", "x", "a"], wait="1m")
    after = granted(waiter.response(SOON), ["a", "c", "x"])
    tree.wait_claims(here.znode("b"), 0)
    for gateway, worker in everywhere(here, there):
        gone(inspect(gateway, response.token, worker), NAMES)
    assert release(here, after.token).status == 204


def test_leases_begin_with_the_last_grant(pair, tree):
    """Earlier grants have no lease before, so no lease has ended."""
    here, there = pair
    holder = there.hold("c", ttl="1h")
    waiter = begin(here, NAMES, wait="1m", ttl="500ms")
    tree.wait_claims(here.znode("c"), 2)
    refused(there.in_reach(lambda: acquire(there, ["a"], wait="1s")), "a")
    there.release("c", holder.token)
    response = granted(waiter.response(SOON), NAMES)
    assert response.json["expires_in_ms"] == response.json["ttl_ms"] == 500
    wait_free(tree, here, NAMES)
    gone(release(there, response.token), NAMES)


# a part of the locks

@pytest.mark.parametrize("lost", [["a"], ["b", "c"], ["c"]])
def test_some_are_gone(pair, tree, lost):
    here, there = pair
    response = acquire(here, NAMES, ttl="90s")
    for name in lost:
        claim, = tree.claims(here.znode(name))
        token = token_of(here.znode(name), claim)
        assert there.release(name, token).status == 204
    for gateway, worker in everywhere(here, there):
        gone(inspect(gateway, response.token, worker), lost)
        gone(renew(gateway, response.token, worker, ttl="50s"), lost)
    for name in NAMES:
        if name in lost:
            problem(here.inspect(name), 404)
        else:
            holder, = here.inspect(name).json["holders"]
            assert holder["ttl_ms"] == 50000
    gone(release(there, response.token), lost)
    wait_free(tree, here, NAMES)
    gone(release(here, response.token), NAMES)


def test_somebody_else_has_one(pair, tree):
    """The other client's claim stays."""
    here, there = pair
    response = acquire(here, NAMES)
    claim, = tree.claims(here.znode("b"))
    there.release("b", token_of(here.znode("b"), claim))
    other = there.hold("b")
    gone(renew(here, response.token), ["b"])
    gone(release(there, response.token), ["b"])
    assert here.inspect("b", other.token).json["state"] == "held"
    assert here.release("b", other.token).status == 204


# workers that die

@pytest.mark.parametrize("taken", ["b", "c"])
def test_worker_dies_meanwhile(sturdy, tree, taken):
    """The heir deletes the claims that the worker had by then."""
    here, there = sturdy
    for worker in here.worker_pids():
        holder = there.hold(taken)
        waiter = begin(here, NAMES, worker, wait="1m", ttl="1h")
        tree.wait_claims(here.znode(taken), 2)
        kill(here, worker)
        assert waiter.closed_by_server(SOON)
        for name in NAMES:
            tree.wait_claims(here.znode(name), int(name == taken))
        there.release(taken, holder.token)


def test_worker_dies_afterwards(sturdy, tree):
    """All locks stay held, and the token works at every worker."""
    here, there = sturdy
    tokens = []
    for worker in here.worker_pids():
        names = [name + str(worker) for name in NAMES]
        tokens.append((names, acquire(here, names, worker, ttl="1h").token))
    before = [claims(tree, here, names) for names, _ in tokens]
    for worker in here.worker_pids():
        kill(here, worker)
    for names, token in tokens:
        for gateway, worker in everywhere(here, there):
            wait_until(lambda: inspect(gateway, token, worker).status != 503)
            held(inspect(gateway, token, worker), names)
            held(renew(gateway, token, worker), names)
        refused(acquire(there, names[1:], wait="0"), names[1])
    assert [claims(tree, here, names) for names, _ in tokens] == before
    for (names, token), gateway in zip(tokens, sturdy):
        assert release(gateway, token).status == 204
        wait_free(tree, here, names)


@pytest.mark.parametrize("lost", ["a", "b"])
def test_worker_dies_when_one_is_gone(sturdy, tree, lost):
    """The other locks stay, though new claims have the lost claim's record."""
    here, there = sturdy
    worker = here.worker_pids()[0]
    response = acquire(here, NAMES, worker, ttl="1h")
    claim, = tree.claims(here.znode(lost))
    assert here.release(lost, token_of(here.znode(lost), claim),
                        worker).status == 204
    others = "pqrst"
    streams = [here.begin(name, worker=worker, hold="connection")
               for name in others]
    for name in others:
        tree.wait_claims(here.znode(name), 1)
    kill(here, worker)
    for stream in streams:
        stream.close()
    wait_free(tree, here, others)
    left = [name for name in NAMES if name != lost]
    gone(wait_until(lambda: [answer for answer in [renew(there,
                                                         response.token)]
                             if answer.status != 503])[0], [lost])
    assert [len(line) for line in claims(tree, here, left)] == [1, 1]
    gone(release(there, response.token), [lost])
    wait_free(tree, here, NAMES)


def test_workers_die_again_and_again(sturdy, tree):
    """Granted claims stay; claims that were not granted do not come back."""
    here, there = sturdy
    response = acquire(here, NAMES, ttl="1h")
    holder = there.hold("y")
    for _ in range(3):
        for worker in here.worker_pids():
            begin(here, ["x", "y"], worker, wait="1m")
            tree.wait_claims(here.znode("y"), 2)
            kill(here, worker)
            tree.wait_claims(here.znode("y"), 1)
            tree.wait_claims(here.znode("x"), 0)
    here.wait_served()
    held(inspect(here, response.token), NAMES)
    assert release(here, response.token).status == 204
    there.release("y", holder.token)


def test_reload(sturdy, tree):
    """A request at an old worker is granted in its turn, and the claims stay
    when the old worker has ended.
    """
    here, there = sturdy
    holder = there.hold("c")
    worker = here.worker_pids()[0]
    waiter = begin(here, NAMES, worker, wait="1m", ttl="1h")
    tree.wait_claims(here.znode("c"), 2)
    old = here.reload()
    wait(waiter)
    there.release("c", holder.token)
    response = granted(waiter.response(SOON), NAMES)
    assert response.worker == worker
    waiter.close()
    wait_until(lambda: not old & set(here.worker_pids(leaving=True)))
    for gateway, worker in everywhere(here, there):
        wait_until(lambda: inspect(gateway, response.token,
                                   worker).status != 503)
        held(renew(gateway, response.token, worker), NAMES)
    assert release(here, response.token).status == 204


def test_worker_has_to_leave(start_gateway, tree):
    """The request gets 503, and its claims are deleted."""
    gateway = start_gateway(main="worker_shutdown_timeout 1s;")
    holder = gateway.hold("c", ttl="1h")
    waiter = begin(gateway, NAMES, gateway.worker_pids()[0], wait="1m")
    tree.wait_claims(gateway.znode("c"), 2)
    gateway.reload()
    problem(waiter.response(SOON), 503)
    for name in NAMES:
        tree.wait_claims(gateway.znode(name), int(name == "c"))
    wait_until(lambda: gateway.release("c", holder.token).status != 503)


# the load

NAMES_OF_LOAD = ["x%d" % i for i in range(6)]
LEASE = 10      # s; of the locks of a load whose workers die


class Visitors:
    """Clients that want some locks of a few, in any order, and all at once.

    Most clients release at another gateway.  Some are impatient, some hang up,
    perhaps after the grant, and some want a single lock in the usual way.
    """

    FATES = ("stays",) * 14 + ("hurries",) * 3 + ("leaves",) * 2 + ("one",) * 3

    def __init__(self, gateways, dice):
        self.gateways = gateways
        self.dice = dice
        self.rooms = {name: Room() for name in NAMES_OF_LOAD}
        self.numbers = itertools.count()
        self.grants = 0
        self.sets = 0           # of several locks
        self.ends = dict.fromkeys(self.FATES, 0)

    def place(self):
        return self.dice.choice(self.gateways).port

    async def come(self, enough):
        while not enough():
            await self.visit(next(self.numbers),
                             self.dice.choice(self.FATES))

    async def visit(self, who, fate):
        names = self.dice.sample(NAMES_OF_LOAD, 1 if fate == "one" else
                                 self.dice.randint(1, 4))
        mode = self.dice.choice(("exclusive", "exclusive", "shared"))
        connection = AsyncConnection(self.place())
        body = {"names": names, "mode": mode,
                "ttl": "250ms" if fate == "leaves" else "1m",
                "wait": "30ms" if fate == "hurries" else "2m"}
        path = PATH
        if fate == "one":
            path += body.pop("names")[0]
        await connection.send("POST", path, body=body)
        if fate == "leaves":
            await asyncio.sleep(self.dice.random() * 0.05)
            connection.reset()
            self.ends[fate] += 1
            return
        try:
            response = await connection.response()
        finally:
            connection.close()
        self.ends[fate] += 1
        if fate == "hurries" and response.status != 201:
            wait_over(response, *self.gateways)
            assert response.status != 423 or response.json["name"] in names
            return
        assert response.status == 201, response
        await self.stay(who, path, names, mode, response)

    async def stay(self, who, path, names, mode, response):
        locks = response.json.get("locks", [response.json])
        assert [lock["name"] for lock in locks] == sorted(names)
        self.grants += 1
        self.sets += len(locks) > 1
        for lock in locks:
            self.rooms[lock["name"]].enter(who, mode == "exclusive",
                                           lock["fencing_token"])
        await asyncio.sleep(self.dice.random() * 0.004)
        for lock in locks:
            self.rooms[lock["name"]].leave(who)
        answer = await ask(self.place(), "DELETE", path,
                           headers={"Lock-Token": response.token})
        assert answer.status == 204, answer

    def judge(self):
        for room in self.rooms.values():
            room.judge()


@pytest.mark.shows("of several locks all or none, and no deadlock")
def test_load(pair, tree):
    """Many clients want the same locks, in opposite orders, at two gateways: no
    client waits for ever, and no client is in with another.
    """
    for name in NAMES_OF_LOAD:
        tree.make(pair[0].znode(name))
    visitors = Visitors(pair, chance())

    def enough():
        return visitors.sets >= GRANTS and all(visitors.ends.values())

    play(*(visitors.come(enough) for _ in range(20)),
         timeout=patience(3 * GRANTS))
    wait_free(tree, pair[0], NAMES_OF_LOAD)
    visitors.judge()


def test_opposite_orders(pair, tree):
    """Clients take the same two locks in opposite orders, again and again."""
    ends = itertools.count()

    async def client(i):
        names = ["a", "b"] if i % 2 else ["b", "a"]
        while next(ends) < GRANTS:
            response = await ask(pair[i // 2 % 2].port, "POST", PATH, body={
                "names": names, "wait": "1m"})
            assert response.status == 201, response
            answer = await ask(pair[i % 2].port, "DELETE", PATH, headers={
                "Lock-Token": response.token})
            assert answer.status == 204, answer

    play(*map(client, range(4)), timeout=patience(GRANTS))
    wait_free(tree, pair[0], ["a", "b"])


@pytest.mark.shows("of several locks all or none, and no deadlock")
def test_killed_under_load(sturdy, tree):
    """Workers die, and connections and answers break.  A lock that an answer
    told of stays held; locks whose answer was lost end with their lease.
    """
    here, there = sturdy
    dice = chance()
    over = []
    kept = []

    async def client(i):
        while not over:
            some = dice.sample(NAMES_OF_LOAD, 2)
            try:
                response = await ask(here.port, "POST", PATH, body={
                    "names": some, "wait": "1m", "ttl": "%ds" % LEASE})
            except (OSError, Gone):
                continue
            if response.status == 201:
                await give_back(response.token)
            else:
                assert response.status in (423, 503), response

    async def give_back(token):
        statuses = []
        told = time.monotonic()
        while not statuses or statuses[-1] == 503:
            answer = await ask(there.port, "DELETE", PATH,
                               headers={"Lock-Token": token})
            statuses.append(answer.status)
        late = time.monotonic() - told > LEASE / 2
        assert statuses[-1] == 204 or len(statuses) > 1 or late, statuses
        kept.append(token)

    async def killer():
        loop = asyncio.get_running_loop()
        for _ in range(4):
            before = len(kept)
            while len(kept) < before + 10:
                await asyncio.sleep(0.01)
            await loop.run_in_executor(None, kill, here,
                                       dice.choice(here.worker_pids()))
        over.append(True)

    play(killer(), *map(client, range(8)), timeout=120)
    # a client whose answer was lost may hold locks
    for name in NAMES_OF_LOAD:
        for claim in tree.claims(here.znode(name)):
            there.release(name, token_of(here.znode(name), claim))
    wait_free(tree, here, NAMES_OF_LOAD)


def test_claims_are_in_order(pair, tree):
    """The request that came first to a lock gets the lock first."""
    here, there = pair
    holder = there.hold("b")
    waiters = []
    for i in range(4):
        waiters.append(begin(pair[i % 2], ["b", "c%d" % i], wait="1m"))
        tree.wait_claims(here.znode("b"), i + 2)
    order = [sequence(claim) for claim in tree.claims(here.znode("b"))]
    assert order == sorted(order)
    there.release("b", holder.token)
    last = holder.fencing
    for i, waiter in enumerate(waiters):
        response = granted(waiter.response(SOON), ["b", "c%d" % i])
        assert all(other.silent_for(0) for other in waiters[i + 1:])
        assert fencing(response)[0] > last
        last = fencing(response)[0]
        assert release(pair[i // 2 % 2], response.token).status == 204
    assert claim_of(holder.token) not in tree.claims(here.znode("b"))
