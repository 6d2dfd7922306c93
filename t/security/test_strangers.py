"""Strangers: clients that dribble, flood and do not read, and a client of
ZooKeeper that writes anything below the root of the locks.

Whatever a stranger does, limits answer as documented, all other clients are
served, no worker has died, and neither the workers nor the error log have grown
without bound.  SECURITY.md says what a client that may write to the locks'
znodes can do to a lock; these tests show what that client cannot do to the
gateway.
"""

import asyncio
import json
import os
import re
import socket
import struct
import time
import uuid

import pytest

from conftest import gateways
from lib import streams
from lib.checks import gone, grant, problem
from lib.client import AsyncConnection, Gone, encode, lock_path
from lib.gateway import leaks_can_be_found
from lib.process import wait_until
from lib.tokens import claim_of
from lib.zookeeper import Server, Tree

SOON = 20.0
FLOOD = int(os.environ.get("ZK_LOCK_FLOOD") or 10000)

# the growth of workers allowed in a test, in kB: less than a hostile client
# sends
GROWTH = 64 * 1024
LINES = 2000


def memory(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"^VmRSS:\s*(\d+) kB$", f.read(), re.M).group(1))


def peak(pid):
    """The most memory that the process had since forget_peak()."""
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"^VmHWM:\s*(\d+) kB$", f.read(), re.M).group(1))


def forget_peak(pid):
    with open("/proc/%d/clear_refs" % pid, "w") as f:
        f.write("5")


class Judge:
    """Checks that the gateway is unharmed after what strangers do inside."""

    def __init__(self, gateway, growth=GROWTH):
        self.gateway = gateway
        self.growth = growth

    def __enter__(self):
        serves(self.gateway)
        self.lines = len(self.gateway.log_text().splitlines())
        self.before = {pid: memory(pid)
                       for pid in self.gateway.worker_pids()}
        return self

    def __exit__(self, *failure):
        if failure[0] is not None:
            return
        serves(self.gateway)
        after = {pid: memory(pid) for pid in self.gateway.worker_pids()}
        assert set(after) == set(self.before), "workers have died"
        for pid, before in self.before.items():
            assert after[pid] - before < self.growth, (before, after[pid])
        errors = [line for line in self.gateway.log_text().splitlines()
                  [self.lines:] if "[info]" not in line]
        assert len(errors) < LINES, errors[:10]


def serves(gateway):
    """Every worker grants, tells and releases another client's lock."""
    for worker in gateway.worker_pids():
        held = gateway.hold("calm", worker=worker, timeout=20)
        assert gateway.inspect("calm", held.token,
                               worker=worker).json["state"] == "held"
        assert gateway.release("calm", held.token,
                               worker=worker).status == 204


# clients of HTTP

def dribble(connections, text, pieces, pause):
    """Sends a piece of text to each connection that is open, so many times."""
    alive = list(connections)
    for i in range(pieces):
        for connection in list(alive):
            try:
                connection.socket.sendall(text[i:i + 1])
            except OSError:
                alive.remove(connection)
        pause()
    return alive


SLOW = ("client_header_timeout 3s;\nclient_body_timeout 3s;\n"
        "send_timeout 3s;\n")


@pytest.mark.parametrize("part", ["header", "body"])
def test_requests_that_do_not_come(start_gateway, tree, part):
    """nginx's timeouts end slow requests: a head's timeout is for the whole
    head, a body's between two pieces.  No claim is made.
    """
    gateway = start_gateway(http=SLOW)
    head = (b"POST /locks/x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
            b"Content-Type: application/json\r\nX-Long: ")
    with Judge(gateway):
        slow = [gateway.connect() for _ in range(200)]
        for connection in slow:
            connection.send_bytes(head if part == "header" else
                                  head + b"\r\n\r\n{")
        if part == "header":
            # a byte for each connection while any is open
            wait_until(lambda: not dribble(slow, b"x", 1,
                                           lambda: time.sleep(0.05)), SOON)
        for connection in slow:
            try:
                assert connection.response(SOON).status == 408
            except (Gone, ConnectionError):
                pass
        assert tree.children(gateway.znode("x")) == []


def test_bodies_that_come_slowly(start_gateway, tree):
    """Slow bodies are read, and hold up no other client meanwhile."""
    gateway = start_gateway()
    body = json.dumps({"ttl": "1m", "owner": "slow"}).encode()
    with Judge(gateway):
        slow = []
        for i in range(50):
            slow.append(gateway.connect())
            slow[-1].send_bytes(encode("POST", "/locks/slow%d" % i, {
                "Content-Length": str(len(body)),
                "Content-Type": "application/json"}))
        alive = dribble(slow, body, len(body),
                        lambda: gateway.call("GET", "/locks/slow0"))
        assert len(alive) == len(slow)
        for i, connection in enumerate(slow):
            name = "slow%d" % i
            token = grant(connection.response(), name)["token"]
            gateway.release(name, token)


def unread(gateway, method, path, headers=None):
    """A request whose answer is not read, with little room for the answer."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect(("127.0.0.1", gateway.port))
    sock.sendall(encode(method, path, headers))
    return sock


@pytest.mark.plain("they keep what is freed")
def test_answers_that_nobody_reads(start_gateway, tree):
    """Long answers: a list of many locks, and the waiters of a lock."""
    gateway = start_gateway(http=SLOW, workers=1)
    data = json.dumps({"x": "y" * 900})
    held = [gateway.hold("many%02d" % i, data=data) for i in range(60)]
    waiters = [gateway.begin("many00", data=data) for _ in range(60)]
    tree.wait_claims(gateway.znode("many00"), 61)
    with Judge(gateway):
        sockets = [unread(gateway, "GET", path, headers)
                   for path, headers in (
                       ("/locks/", None), ("/locks/many00", None),
                       ("/locks/many00", {"Accept": streams.SSE}))
                   for _ in range(50)]
        # pipelined requests as well, unread
        for sock in sockets[:20]:
            try:
                sock.sendall(encode("GET", "/locks/many00") * 50)
            except OSError:
                pass
        for _ in range(5):
            serves(gateway)
        for sock in sockets:
            sock.close()
    for waiter in waiters:
        waiter.close()
    for i, response in enumerate(held):
        gateway.release("many%02d" % i, response.token)


@pytest.mark.plain("they keep what is freed")
def test_many_look_at_many(start_gateway, tree):
    """All polls of a lock look at the lock at once, and many clients hold it.
    """
    gateway = start_gateway(workers=1)
    with gateway.connect() as connection:
        tokens = [connection.request(
            "POST", lock_path("x"), {"mode": "member", "ttl": "1h"}).token
            for _ in range(300)]
    tag = gateway.inspect("x").headers["ETag"]

    def poll(headers=None, **query):
        connection = gateway.connect()
        return connection.send("GET", lock_path("x"), dict(query, wait="5m"),
                               headers)

    with Judge(gateway):
        polls = [poll(until="free") for _ in range(400)]
        last = poll({"If-None-Match": tag})
        assert last.silent_for(0.2)
        worker, = gateway.worker_pids()
        forget_peak(worker)
        before = peak(worker)
        tokens.append(gateway.acquire("x", mode="member", ttl="1h").token)
        response = last.response(60)
        assert len(response.json["holders"]) == len(tokens)
        grown = peak(worker) - before
        assert grown < GROWTH, "%d kB more for a moment" % grown

        # polls that still wait for their turn leave, too
        gateway.release("x", tokens.pop())
        for connection in polls:
            connection.close()
        assert len(gateway.inspect("x").json["holders"]) == len(tokens)
    for token in tokens:
        gateway.release("x", token)


async def flood(gateway, number, path, during, query=None, tokens=None):
    """So many acquires at once; during() is called while the acquires wait.

    tokens gets the tokens of the granted, by path.
    """
    connections = [AsyncConnection(gateway.port) for _ in range(number)]
    gate = asyncio.Semaphore(500)
    statuses = {}

    async def come(connection, name):
        async with gate:
            await connection.send("POST", name, query)
        response = await connection.response()
        statuses[response.status] = statuses.get(response.status, 0) + 1
        if response.status == 201:
            tokens[name] = response.token

    tasks = [asyncio.ensure_future(come(connection, path(i)))
             for i, connection in enumerate(connections)]
    try:
        await asyncio.get_event_loop().run_in_executor(None, during, statuses)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            if connection.writer is not None:
                connection.close()
    return statuses


@pytest.mark.plain("they keep what is freed")
def test_flood_of_one_lock(start_gateway, tree):
    """The queue is as long as allowed, all further acquires get 429, and other
    locks are served.
    """
    room = 300
    gateway = start_gateway(location="zk_lock_max_queue %d;" % room,
                            session_timeout="60s")
    holder = gateway.hold("hot", ttl="1h")

    def during(statuses):
        wait_until(lambda: statuses.get(429, 0) >= FLOOD - room - 20, 120,
                   "the rest is refused")
        serves(gateway)
        tree.wait_claims(gateway.znode("hot"),
                         lambda claims: len(claims) <= room + 20, 30)
        assert gateway.inspect("hot", holder.token).json["state"] == "held"

    with Judge(gateway):
        statuses = asyncio.new_event_loop().run_until_complete(
            flood(gateway, FLOOD, lambda i: "/locks/hot", during,
                  {"wait": "5m"}))
        assert set(statuses) == {429}, statuses
        tree.wait_claims(gateway.znode("hot"), 1, 60)
        assert gateway.release("hot", holder.token).status == 204


def test_flood_of_locks(start_gateway):
    """A zone that is full: 503 for further acquires, holders go on holding."""
    # AddressSanitizer would keep up to 256 MB of what is freed
    gateway = start_gateway(
        http="zk_lock_zone 256k;", metrics=True, session_timeout="60s",
        environment={
            "ASAN_OPTIONS": "detect_leaks=%d:quarantine_size_mb=16"
                            % leaks_can_be_found()})
    first = gateway.hold("first", ttl="1h")
    number = 3000

    def during(statuses):
        wait_until(lambda: sum(statuses.values()) >= number, 120,
                   "all are answered")
        assert gateway.inspect("first", first.token).json["state"] == "held"
        assert gateway.renew("first", first.token).status == 200
        problem(gateway.acquire("late"), 503, "no room")

    with Judge(gateway):
        tokens = {}
        statuses = asyncio.new_event_loop().run_until_complete(
            flood(gateway, number, lambda i: "/locks/l%d" % i, during,
                  {"ttl": "1h"}, tokens))
        assert set(statuses) == {201, 503}, statuses
        assert statuses[201] == len(tokens)
        with gateway.connect() as connection:
            for path, token in tokens.items():
                assert connection.request(
                    "DELETE", path, None,
                    {"Lock-Token": token}).status == 204
        wait_until(lambda: gateway.metrics()[("claims", "held")] == 1, 60)
    assert gateway.release("first", first.token).status == 204


def test_limits_of_nginx(start_gateway):
    """limit_conn counts waiters, as in conf-examples/limits.conf."""
    gateway = start_gateway(
        http="limit_conn_zone $arg_owner zone=held:1m;",
        location="limit_conn held 5; limit_conn_status 429;")
    holder = gateway.hold("x")
    greedy = [gateway.begin("x", owner="greedy") for _ in range(50)]
    for worker in gateway.worker_pids():
        # the worker has refused by then what came before
        assert gateway.call("GET", "/ready", worker=worker).status == 204
    kept = [waiter for waiter in greedy if waiter.silent_for(0)]
    assert 5 <= len(kept) <= 5 * gateway.workers
    for waiter in greedy:
        if waiter not in kept:
            assert waiter.response().status == 429
    modest = gateway.begin("x", owner="modest")
    for waiter in kept:
        waiter.close()
    gateway.catch_up("x")
    gateway.release("x", holder.token)
    gateway.release("x", modest.response(SOON).token)


HOSTILE_NAMES = [
    "%2e%2e%2f%2e%2e%2fzookeeper%2fconfig", "..%5c..%5c", "%3cscript%3e",
    "%27%20or%201=1--", "%24%7bjndi:ldap:x%7d", "%25s%25n%25n%25s",
    "_c_00000000-0000-0000-0000-000000000000-lock-0000000000",
    "lock-0000000000", "%22%2c%22x%22:%22", "a%e2%80%ae", "%09", "%1b[2J",
    "%5c%22", "zk_lock_gates", "n" * 200]


@pytest.mark.shows("bad input is answered with 4xx, and harms nothing")
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names(gateway, tree, name):
    """The gateway refuses the name, or tells it back unchanged."""
    answer = gateway.call("POST", "/locks/" + name)
    if answer.status != 201:
        assert answer.status in (400, 404, 405), answer
        return
    told = answer.json["name"]
    assert tree.stat(gateway.root + "/" + told)
    listed = gateway.call("GET", "/locks/").json["locks"]
    assert told in [lock["name"] for lock in listed]
    assert gateway.call("DELETE", "/locks/" + name, None,
                        {"Lock-Token": answer.token}).status == 204


# a client of ZooKeeper

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def hostile(server):
    tree = Tree(server.address)
    yield tree
    tree.close()


@pytest.fixture
def start(request, tmp_path, server, hostile, root):
    with gateways(request.node, tmp_path, server, hostile, root) as make:
        yield make


@pytest.fixture
def victim(start):
    return start(location="zk_lock_admin on;")


def put(tree, lock, names, data=b"", **options):
    """Children of a lock's znode, hundreds at a time."""
    tree.client.ensure_path(lock)
    pending = [tree.client.create_async(lock + "/" + name, data, **options)
               for name in names]
    return [result.get(60) for result in pending]


def clean(tree, path):
    pending = [tree.client.delete_async(path + "/" + child)
               for child in tree.children(path)]
    for result in pending:
        assert result.wait(60), "ZooKeeper does not answer"


def every_call(gateway, name):
    """The answers to all calls about a lock that need no token."""
    path = lock_path(name)
    return [gateway.acquire(name, wait="0", timeout=20),
            gateway.acquire(name, wait="300ms", timeout=20),
            gateway.inspect(name),
            gateway.call("GET", path, {"until": "free", "wait": "300ms"}),
            gateway.call("GET", "/locks/"),
            gateway.acquire(name, wait="0", headers={
                "Idempotency-Key": "k" * 20}),
            gateway.acquire(name, wait="0", mode="semaphore", permits="2"),
            gateway.call("POST", "/locks/", body={"names": [name, "calm2"],
                                                  "wait": "200ms"}),
            gateway.call("LOCK", path, {"wait": "200ms"}, None, {"ID": "a"}),
            gateway.call("PUT", path, {"revoke": "1"}, {"If-Match": "*"})]


def finished(answers, gateway, name):
    """The answers make sense; releases each lock that was granted."""
    for answer in answers:
        assert answer.status in (200, 201, 202, 204, 404, 409, 412, 413, 423,
                                 500, 503), answer
        if answer.body and answer.status != 204:
            answer.json
        if answer.status == 201:
            token = answer.token
            path = lock_path(name) if "." not in token else "/locks/"
            assert gateway.call("DELETE", path, None,
                                {"Lock-Token": token}).status == 204
    gateway.call("UNLOCK", lock_path(name), None, None, {"ID": "a"})


NO_CLAIMS = {
    "thousands": ["garbage-%d" % i for i in range(5000)],
    "nearly claims": ["_c_%s-lock-%s" % (uuid.UUID(int=i), digits)
                      for i in range(50)
                      for digits in ("", "1", "000000001", "00000000001x",
                                     "+000000001", " 000000001",
                                     "0x00000001", "9999999999",
                                     "99999999999999999999")],
    "huge names": ["%d" % i + "h" * 100000 for i in range(20)],
    "odd names": ["\u00e4" * 1000, "%s%n%s%n", "\u202e", "\"quoted\"", "\\",
                  "{}", "a b", "<x>", "-", "--", "_c_", "_c_-lock-"],
}


@pytest.mark.parametrize("what", sorted(NO_CLAIMS))
def test_children_that_are_no_claims(victim, hostile, what):
    """Such children take no part: the lock is granted, told and released.

    Many children cost time, because each list has all of the names.
    """
    lock = victim.znode("x")
    put(hostile, lock, NO_CLAIMS[what])
    with Judge(victim):
        for worker in victim.worker_pids():
            held = victim.hold("x", worker=worker, timeout=20)
            problem(victim.acquire("x", wait="0", worker=worker), 423)
            told = victim.inspect("x").json
            assert told["held"] == 1 and told["queued"] == 0
            waiter = victim.begin("x")
            hostile.wait_claims(lock, lambda children: len(
                [c for c in children if c.endswith(tuple("0123456789"))
                 and "-lock-" in c]) >= 2)
            victim.release("x", held.token)
            victim.release("x", waiter.response(SOON).token)
        listed = victim.call("GET", "/locks/").json["locks"]
        assert "x" not in [entry["name"] for entry in listed]
    clean(hostile, lock)


def claim_name(number, marker="-lock-", digits="%010d"):
    return "_c_%s%s%s" % (uuid.uuid4(), marker, digits % number)


BLOCKING = {
    "persistent": lambda: [claim_name(0)],
    "same number": lambda: [claim_name(0) for _ in range(20)],
    "same number, other kinds": lambda: [
        claim_name(0, marker) for marker in (
            "-lock-", "-__READ__", "-__WRIT__", "-member-", "-permit2-",
            "-permit1000-")],
    "negative": lambda: [claim_name(n, digits="%011d")
                         for n in (-1, -2147483648, -2147483647)],
    "last numbers": lambda: [claim_name(2147483647), claim_name(2147483646)],
    "thousands": lambda: [claim_name(i) for i in range(3000)],
}


@pytest.mark.parametrize("what", sorted(BLOCKING))
def test_claims_that_no_recipe_makes(victim, hostile, what):
    """Such claims may block the lock, but not the gateway; when the claims are
    gone, the lock is free.
    """
    lock = victim.znode("x")
    put(hostile, lock, BLOCKING[what]())
    with Judge(victim):
        for name in ("x", "free"):
            finished(every_call(victim, name), victim, name)
        clean(hostile, lock)
        hostile.wait_claims(lock, 0, 20)
    hostile.client.delete(lock)
    victim.release("x", victim.hold("x", timeout=20).token)


def test_claim_with_children(victim, hostile):
    """Such a claim is persistent, because ephemeral znodes have no children,
    and cannot be broken.
    """
    lock = victim.znode("x")
    claim, = put(hostile, lock, [claim_name(0)])
    hostile.client.ensure_path(claim + "/a/b/c/d/e/f/g")
    with Judge(victim):
        finished(every_call(victim, "x"), victim, "x")
        broken = victim.call("DELETE", lock_path("x"), {"force": "1"},
                             {"If-Match": "*"})
        assert broken.status in (500, 503), broken
        assert hostile.stat(claim)
    hostile.delete_tree(lock)


LABELS = {
    "a megabyte": b"x" * 1000000,
    "a megabyte of lines": b"\n" * 1000000,
    "a megabyte of JSON": b"me\n{\"data\":\"" + b"x" * 999000 + b"\"}",
    "deep": b"me\n" + b"[" * 100000,
    "deep data": b"me\n{\"index\":\"00\",\"data\":" + b"[" * 1000
    + b"]" * 1000 + b"}",
    "binary": bytes(range(256)) * 16, "zeros": b"\0" * 4096,
    "escapes": b"\x1b[2J\x07\r\n{\"index\":\"00\",\"from\":\"\x1b[2J\"}",
    "no end": b"me\n{\"index\":\"00\",\"ttl\":",
    "numbers": b"me\n{\"index\":\"ff\",\"ttl\":-9223372036854775808,"
    b"\"holds\":99999999999999999999,\"renewals\":-1,\"czxid\":-1}",
    "more numbers": b"me\n{\"index\":\"zz\",\"ttl\":1e999,\"holds\":0,"
    b"\"renewals\":4294967296,\"czxid\":9223372036854775807}",
    "types": b"me\n{\"index\":[],\"ttl\":{},\"id\":1,\"from\":[],\"want\":1,"
    b"\"revoke\":\"yes\",\"async\":2,\"params\":{}}",
    "wishes": b"me\n{\"index\":\"00\",\"ttl\":1,\"want\":\"drop\"}",
    "other wishes": b"me\n{\"index\":\"00\",\"ttl\":1,\"holds\":3,"
    b"\"renewals\":7,\"want\":\"shared\",\"revoke\":true}",
    "revoked": b"__REVOKE__", "empty": b"",
    "html": b"<script>alert(1)</script>\n{\"from\":\"<b>\"}",
}


@pytest.mark.parametrize("what", sorted(LABELS))
def test_data_of_a_foreign_claim(victim, hostile, what):
    """The data are shown as far as possible, in well-formed JSON."""
    lock = victim.znode("x")
    claims = put(hostile, lock, [claim_name(0), claim_name(1, "-__READ__")],
                 LABELS[what])
    hostile.client.set(lock, LABELS[what])
    with Judge(victim):
        for worker in victim.worker_pids():
            told = victim.inspect("x", worker=worker)
            assert told.status == 200 and told.json["held"] >= 1
            owner = told.json["holders"][0].get("owner", "")
            assert not re.search(r"[\x00-\x1f\x7f]", owner)
            refused = victim.acquire("x", wait="0", worker=worker)
            problem(refused, 423)
        finished(every_call(victim, "x"), victim, "x")
        for claim in claims:
            hostile.delete(claim)
        victim.release("x", victim.hold("x", timeout=20).token)
    hostile.delete_tree(lock)


@pytest.mark.parametrize("what", sorted(LABELS))
def test_data_of_a_gateways_claim(start, hostile, what):
    """A stranger overwrites a held claim's data and a waiting claim's data.

    The stranger can end a lease, or request the lock from the holder; the
    holder is told the truth.
    """
    here, there = start(), start()
    lock = here.znode("x")
    holder = here.hold("x", ttl="1h")
    waiter = here.begin("x")
    claims = hostile.wait_claims(lock, 2)
    with Judge(here), Judge(there):
        for claim in claims:
            hostile.client.set(lock + "/" + claim, LABELS[what])
        for gateway in (there, here):
            for answer in (gateway.inspect("x", holder.token),
                           gateway.inspect("x"),
                           gateway.renew("x", holder.token),
                           gateway.acquire("x", wait="0")):
                assert answer.status in (200, 404, 409, 410, 423, 503), answer
                answer.json
        released = there.release("x", holder.token)
        assert released.status in (200, 204, 409, 410, 503), released
        if released.status not in (204, 410):
            again = here.release("x", holder.token)
            assert again.status in (200, 204, 410), again
            if again.status == 200:
                hostile.delete(lock + "/" + claim_of(holder.token))
        content = grant(waiter.response(20), "x")
        # a lease and a remote request that were written there count, too
        assert here.release("x", content["token"]).status in (200, 204, 410)
        clean(hostile, lock)


def test_a_root_full_of_what_is_no_lock(victim, hostile):
    """The pages of a list are short, and have the locks in use."""
    root = victim.root
    put(hostile, root, ["g-%d\u00e4\"\\" % i for i in range(3000)])
    put(hostile, root, ["big%d" % i for i in range(5)], b"x" * 900000)
    for i in range(3):
        put(hostile, root + "/h%d" % i, [claim_name(0)], b"<&>\x1b")
    held = victim.hold("mine")
    with Judge(victim):
        names, path = [], "/locks/"
        query = None
        while True:
            page = victim.call("GET", path, query)
            assert page.status == 200, page
            content = page.json
            names += [entry["name"] for entry in content["locks"]]
            if not content.get("next"):
                break
            assert len(names) < 100
            query = {"after": content["next"]}
        assert {"h0", "h1", "h2", "mine"} <= set(names)
        assert len(names) < 10
    victim.release("mine", held.token)
    for i in range(3):
        hostile.delete_tree(root + "/h%d" % i)
    clean(hostile, root)


def test_a_lock_that_never_rests(victim, hostile):
    """Children come and go, and the lock's data is written, as fast as a client
    can: the holder, the waiter and the watcher are served.
    """
    lock = victim.znode("x")
    holder = victim.hold("x", ttl="1h")
    watcher = streams.watch(victim, "x")
    watcher.event("change")
    waiter = victim.begin("x")
    hostile.wait_claims(lock, 2)
    with Judge(victim):
        for i in range(20):
            pending = []
            for j in range(50):
                name = lock + "/" + claim_name(100000 + i * 50 + j)
                pending += [hostile.client.create_async(name, ephemeral=True),
                            hostile.client.set_async(lock, b"%d" % j),
                            hostile.client.delete_async(name)]
            for result in pending:
                result.wait(30)
            assert victim.inspect("x", holder.token).json["state"] == "held"
        assert victim.release("x", holder.token).status == 204
        token = grant(waiter.response(SOON), "x")["token"]
        watcher.until(lambda event: event.data.get("queued") == 0)
        watcher.close()
        assert victim.release("x", token).status == 204


def test_claims_are_deleted_as_fast_as_they_are_made(victim, hostile):
    """No client without a claim is granted; a holder is told of the loss."""
    lock = victim.znode("x")
    with Judge(victim):
        for worker in victim.worker_pids() * 5:
            held = victim.hold("x", worker=worker, timeout=20)
            clean(hostile, lock)
            gone(victim, "x", held.token)


def test_the_gate_is_deleted(victim, hostile):
    """A client with write access can delete a gate: the session is closed,
    and waiters queue again.
    """
    for gate in hostile.children("/zk_lock_gates"):
        hostile.delete("/zk_lock_gates/" + gate)
    with Judge(victim):
        waiters = [victim.begin("x%d" % i) for i in range(60)]
        for i, waiter in enumerate(waiters):
            token = grant(waiter.response(20), "x%d" % i)["token"]
            victim.release("x%d" % i, token)


# while ZooKeeper is out of reach

def burst(first, number):
    """The bytes of an HTTP/2 client that looks at so many locks at once."""
    text = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    for i in range(number):
        path = b"/locks/%s%06d?until=free&wait=1m" % (b"x" * 190, first + i)
        # GET, http; a literal path of 127 and more bytes; an authority
        fields = (b"\x82\x86\x04\x7f" + integer(len(path) - 127) + path
                  + b"\x01\x01x")
        text += frame(1, 5, 2 * i + 1, fields)
    return text


def frame(kind, flags, stream, payload):
    return (struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
            + struct.pack(">I", stream) + payload)


def integer(n):
    """The rest of an HPACK integer."""
    return bytes([n % 128 + 128, n // 128]) if n >= 128 else bytes([n])


def watches(server):
    return int(re.search(r"Total watches:(\d+)",
                         server.command("wchs")).group(1))


def test_watches_of_what_never_is(start_gateway, private_zookeeper):
    """A session has no more watches than a packet sets again after a break."""
    server = private_zookeeper.start()
    gateway = start_gateway(workers=1, zookeeper=server)
    held = gateway.hold("held", ttl="1h")
    bursts = [burst(100 * i, 100) for i in range(100)]
    sockets = [socket.create_connection(("127.0.0.1", gateway.http2_port))
               for _ in bursts]
    for i, (sock, text) in enumerate(zip(sockets, bursts)):
        sock.sendall(text)
        if i < 16:
            # the worker refuses looks that come faster than it can look
            wait_until(lambda: watches(server) >= 100 * (i + 1), 60.0,
                       "there are watches")
    serves(gateway)
    for sock in sockets:
        sock.close()
    server.stop()
    server.start()
    wait_until(lambda: gateway.renew("held", held.token).status == 200, 60.0,
               "ZooKeeper is in reach again")
    gateway.release("held", held.token)


def test_wait_without_a_watch(start_gateway, private_zookeeper):
    """A claim whose lock cannot be watched is granted all the same."""
    server = private_zookeeper.start()
    gateway, other = (start_gateway(workers=1, zookeeper=server,
                                    location="zk_lock_layout node;")
                      for _ in range(2))
    name = "x" * 195 + "y"
    size = len(gateway.znode(name)) + 5
    held = other.hold(name)
    sockets = []
    for i in range(500000 // size // 100 + 2):
        sockets.append(socket.create_connection(("127.0.0.1",
                                                 gateway.http2_port)))
        sockets[-1].sendall(burst(100 * i, 100))
        # the worker refuses looks that come faster than it can look
        wait_until(lambda: watches(server) >= min(100 * (i + 1),
                                                  490000 // size), 60.0,
                   "there are watches")
    waiter = gateway.begin(name, wait="30s")
    wait_until(lambda: gateway.metrics()["claims", "new"]
               + gateway.metrics()["claims", "waiting"] == 1, 20.0)
    assert other.inspect(name, held.token).status == 200
    # the holder's gateway has a watch, and is alone
    watched = server.command("wchp").split(gateway.znode(name) + "\n")[1]
    assert re.match(r"(\t0x[0-9a-f]+\n)*", watched).group().count("\n") == 1
    assert other.release(name, held.token).status == 204
    response = waiter.response(40.0)
    assert response.status == 201
    for sock in sockets:
        sock.close()
    assert gateway.release(name, response.token).status == 204


def test_releases_of_what_nobody_waits_for(start_gateway, private_zookeeper,
                                           start_proxy):
    """A worker that is out of reach owes only so many releases."""
    server = private_zookeeper.start()
    proxy = start_proxy(server)
    gateway = start_gateway(workers=1, servers=proxy.address,
                            http="http2_max_concurrent_streams 200;"
                                 "zk_lock_timeout 1s;")
    token = gateway.hold("x").token
    assert gateway.release("x", token).status == 204
    server.stop()
    wait_until(lambda: gateway.inspect("x").status == 503, 20.0,
               "it is out of reach")
    for _ in range(80):
        connection = gateway.connect_http2()
        for stream in [connection.send("DELETE", lock_path("x", token))
                       for _ in range(100)]:
            problem(connection.response(stream), 503)
        connection.close()
    before = proxy.requests["getData"]
    server.start()
    wait_until(lambda: gateway.inspect("x").status == 404, 60.0,
               "it is in reach again")
    serves(gateway)
    # each release reads both names that a claim can have
    assert proxy.requests["getData"] - before < 10000
