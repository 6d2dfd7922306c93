"""Requests that are made up, beside a hostile client of ZooKeeper.

Clients send made-up requests to two gateways that serve the same locks: every
method, argument, header and body of the API, right and wrong, with tokens that
are true, changed, or of another lock; some requests are bytes that were
changed, are cut off, or come in pairs, and some answers are not read.
Meanwhile a client of ZooKeeper makes, copies, renames, writes and deletes
children of the locks' znodes by name, with numbers that ZooKeeper would not
give, and deletes the znodes.

Then both end, and the children that the stranger made are deleted.  No worker
has died or complained, no answer was another than described, memory has not
grown without bound, records and znodes are the same claims, and each worker
grants each lock.

Environment:
    ZK_LOCK_FUZZ_SECONDS    how long, 5
    ZK_LOCK_SEED            of all choices; the test prints it, and what came
"""

import collections
import json
import os
import random
import re
import threading
import time
import uuid
from urllib.parse import quote

import pytest
from kazoo.exceptions import KazooException

from lib import claims
from lib.backend import Backend
from lib.client import Connection, Gone, encode, lock_path
from lib.gateway import leaks_can_be_found
from lib.guards import location
from lib.process import wait_until
from lib.tokens import token_of
from lib.zookeeper import Server, Tree, sequence

SECONDS = float(os.environ.get("ZK_LOCK_FUZZ_SECONDS") or 5)
SEED = int(os.environ.get("ZK_LOCK_SEED") or 33)
CLIENTS = 16
STRANGERS = 3
MADE = 15               # children of a stranger at a time
AGAIN = 60.0            # for leases and sessions to end
SHOWN = 60.0            # between lines of figures
GROWTH = 96 * 1024      # kB of a worker, from a third of the time on

NAMES = ["a", "b", "c", "d/e", "long" * 60, "\u00e4\U0001f512"]

METHODS = ["POST"] * 8 + ["GET"] * 6 + ["PUT"] * 5 + ["DELETE"] * 6 + [
    "LOCK", "LOCK", "UNLOCK", "UNLOCK", "HEAD", "OPTIONS", "PATCH", "TRACE",
    "post", "X" * 40]

# the first half of each is right
VALUES = {
    "wait": ["0", "50ms", "300ms", "1s", "", "-1", "x", "9" * 30],
    "ttl": ["50ms", "300ms", "1s", "3s", "0", "1h", "x", "1.5s"],
    "mode": ["exclusive", "shared", "write", "member", "semaphore",
             "semaphore", "", "x", "read", "SHARED", "node", "m" * 99],
    "permits": ["1", "2", "3", "0", "1001", "x"],
    "owner": ["me", "\u00e4", "o" * 128, "", "a\nb", "o" * 999],
    "data": ['{"a":[1,{"b":null}]}', '"text"', "[", "{" * 99],
    "hold": ["shared", "exclusive", "none", "x"],
    "until": ["free", "held", "", "x"],
    "prefix": ["", "d/", "%", "p" * 999],
    "limit": ["1", "1000", "0", "1001"],
    "after": ["YQ", "b", "%", "a" * 500],
    "holders": ["1", "", "2", "x"],
    "sort": ["since", "waiting", "x", ""],
    "force": ["1", "", "x", "0"], "revoke": ["1", "", "x", "0"],
    "durable": ["1", "", "x", "0"], "nothing": ["1", ""],
}

HEADERS = {
    "Idempotency-Key": ["k" * 20, '"k1"', "", "k" * 999],
    "Prefer": ["respond-async", "respond-async, wait=1", "wait=x", "a=b; c"],
    "If-Match": ["*", '"7680"', 'W/"7680"', "x", '"1", "2"'],
    "If-None-Match": ["*", '"x"', "x", '"1", W/"2"'],
    "Accept": ["*/*", "application/json", "text/html", "text/event-stream",
               "x", "text/event-stream;q=0, a/b"],
    "Sec-Fetch-Site": ["none", "same-origin", "cross-site", "x"],
    "Origin": ["http://localhost", "null", "http://elsewhere", "x"],
    "Expect": ["100-continue", "x"],
    "Range": ["bytes=0-1", "x"],
    "Last-Event-ID": ["1", "x"],
    "Content-Type": ["application/json", "text/plain", "", "x"],
}

CLAIM = re.compile(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-")

MARKERS = ["-lock-", "-lock-", "-__READ__", "-__WRIT__", "-member-",
           "-permit2-", "-permit1000-", "-permit0-", "__lock__", "-x-"]


def data_of(rng):
    """Data of a znode: nothing, noise, or nearly what a gateway writes."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice([b"", b"__REVOKE__", b"me", b"me\n{}", b"\0" * 500,
                           b"x" * 50000, b"me\n" + b"[" * 5000])
    if kind == 1:
        return rng.randbytes(rng.randrange(200))
    members = {"index": rng.choice(["00", "0f", "ff", "zz", 1]),
               "ttl": rng.choice([1, 300, 5000, 0, -1, 1 << 63, "x"])}
    for name, values in {
            "holds": [0, 2, 7, 1 << 32], "renewals": [0, 1, 9, 1 << 32, -1],
            "mended": [1, 2, -1], "czxid": [0, 1, 1 << 54, 1 << 60, -1],
            "gate": ["0123456789abcdef", "f" * 16, "x"], "async": [True, 1],
            "revoke": [True, "x"], "params": ["00c0ffee", "x"],
            "want": ["shared", "drop", "hold", "less", "x y"],
            "from": ["192.0.2.1", "\u202e" * 50], "name": ["a", "x" * 600],
            "data": [{"x": "y" * 900}, 1]}.items():
        if rng.random() < 0.25:
            members[name] = rng.choice(values)
    text = b"me\n" + json.dumps(members).encode()
    return mutated(rng, text) if kind == 4 else text


def mutated(rng, text):
    """The same with a few bytes changed, left out, or twice."""
    text = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            text[at:at + 1] = rng.randbytes(1)
        elif kind == 1:
            text[at:at] = rng.choice([b"\r\n", b"\n", b"\0", b" ", b":", b"/",
                                      b"%", b"%2F", b"9" * 20, b"\xff"])
        elif kind == 2:
            del text[at:at + rng.randrange(1, 20)]
        elif kind == 3:
            text[at:at] = text[at:at + rng.randrange(1, 40)]
        else:
            del text[at + rng.randrange(200):]
    return bytes(text)


class Figures:
    """What came of it all; threads share it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.statuses = collections.Counter()
        self.changes = collections.Counter()
        self.errors = []
        self.failures = collections.Counter()   # 500, or no answer in time
        self.tokens = collections.deque(maxlen=300)     # (name, token)
        self.fencings = collections.deque(maxlen=50)

    def count(self, counter, what):
        with self.lock:
            counter[what] += 1

    def __str__(self):
        return "%d requests: %s; %d changes by the stranger: %s" % (
            sum(self.statuses.values()),
            sorted(self.statuses.items(), key=str),
            sum(self.changes.values()), sorted(self.changes.items()))


class Worker(threading.Thread):
    """Makes steps until the end; what a step raises is an error."""

    def __init__(self, seed, figures, end):
        super().__init__(daemon=True)
        self.rng = random.Random(seed)
        self.figures = figures
        self.end = end
        self.start()

    def run(self):
        try:
            while not self.end.is_set():
                self.step()
        except Exception as e:
            self.figures.errors.append("%s: %r" % (type(self).__name__, e))


class Client(Worker):
    def __init__(self, gateways, *rest):
        self.gateways = gateways
        self.connection = None
        super().__init__(*rest)

    def step(self):
        """One request, or two at once; then the answer, or the client leaves.
        """
        rng = self.rng
        if self.connection is None:
            self.connection = Connection(rng.choice(self.gateways).port)
        method, data, streams = self.request()
        broken = rng.random() < 0.1
        status = "not read"
        try:
            if broken:
                self.connection.methods.append(method)
                self.connection.socket.sendall(mutated(rng, data))
            else:
                self.connection.send_bytes(data, method)
                if rng.random() < 0.03 and not streams:
                    self.connection.send_bytes(data, method)
                    self.note(self.answer(method, 6.0))
            if rng.random() < 0.12 or streams:
                self.leave(rng.random() / 4)
            else:
                response = self.answer(method, 0.3 if broken else 6.0)
                status = response.status
                self.note(response)
                if status == 500:
                    self.figures.count(self.figures.failures,
                                       response.body[:300])
                if broken or response.headers.get("Connection") == "close":
                    self.leave()
        except TimeoutError:
            status = "no answer in time" + (", of broken" if broken else "")
            if not broken:
                self.figures.count(self.figures.failures, data[:300])
            self.leave()
        except (Gone, OSError, AssertionError) as e:
            if not broken and isinstance(e, AssertionError):
                raise
            status = "closed"
            self.leave()
        self.figures.count(self.figures.statuses, status)

    def answer(self, method, seconds):
        """The final answer; lib.client takes a 100 for the answer."""
        response = self.connection.response(seconds)
        if response.status == 100:
            self.connection.methods.insert(0, method)
            response = self.connection.response(seconds)
        return response

    def leave(self, seconds=0.0):
        if seconds and not self.connection.silent_for(seconds):
            try:
                self.connection.socket.recv(65536)
            except OSError:
                pass
        if self.rng.random() < 0.5:
            self.connection.reset()
        else:
            self.connection.close()
        self.connection = None

    def note(self, response):
        if response.status in (200, 201, 202):
            token = response.headers.get("Lock-Token")
            if token and response.body.startswith(b"{"):
                content = response.json
                self.figures.tokens.append((content.get("name", "a"), token))
                self.figures.fencings.append(content.get("fencing_token", 1))

    def value(self, name):
        values = VALUES[name]
        right = values[:max(1, len(values) // 2)]
        return self.rng.choice(right if self.rng.random() < 0.97 else values)

    def arguments(self, likely):
        rng = self.rng
        names = [name for name in likely if rng.random() < 0.5]
        if rng.random() < 0.03:
            names.append(rng.choice(list(VALUES)))
        return {name: self.value(name) for name in names}

    def token(self, name):
        """A token of that lock if there is one, or something else."""
        rng = self.rng
        tokens = list(self.figures.tokens)
        own = [token for of, token in tokens if of == name]
        kind = rng.random()
        if kind < 0.75 and own:
            return rng.choice(own[-20:])
        if kind < 0.85 and tokens:
            return rng.choice(tokens)[1]
        if kind < 0.95 and tokens:
            token = list(rng.choice(tokens)[1])
            token[rng.randrange(len(token))] = rng.choice("Aa0-_.x")
            return "".join(token)
        return rng.choice(["", "x", "A" * 32, "t" * 3000, "%", "a.b"])

    def request(self):
        """(method, bytes, whether the answer may have no end)"""
        rng = self.rng
        method = rng.choice(METHODS)
        name = rng.choice(NAMES)
        headers = {}
        body = None
        where = rng.random()
        if where < 0.06:
            path = rng.choice(["/locks/", "/locks", "/zone", "/locks//",
                               "/locks/..", "/locks/%00", "/locks/%zz"])
            query = self.arguments(["limit", "after", "prefix", "sort",
                                    "holders"])
        elif where < 0.14:
            path = rng.choice(["/app/", "/need/", "/lost/"])
            query = {"lock": name}
        else:
            path = lock_path(name)
            if rng.random() < 0.03:
                path = rng.choice([path.upper(), path + "/", path + "%2F",
                                   path + "/a/b", "/locks/" + "n" * 9000])
            query = self.arguments({
                "POST": ["wait", "ttl", "mode", "owner", "data", "permits",
                         "durable"],
                "PUT": ["ttl", "hold", "revoke"], "GET": ["wait", "until"],
                "LOCK": ["wait"]}.get(method, []))
            if query.get("mode") == "semaphore":
                query.setdefault("permits", "2")
            elif rng.random() < 0.97:
                query.pop("permits", None)
            if method == "POST" and rng.random() < 0.06:
                path, query = "/locks/", {}
                body = {"names": rng.sample(NAMES, rng.randrange(1, 5)),
                        "wait": self.value("wait")}
        if method == "DELETE" and rng.random() < 0.1:
            query["force"] = "1"
            headers["If-Match"] = "*"
        elif (method in ("PUT", "DELETE", "HEAD")
              or rng.random() < (0.5 if method == "GET" else 0.03)):
            token = self.token(name)
            query.pop("until", None)
            if rng.random() < 0.5:
                headers["Lock-Token"] = token
            elif "locks" in path:
                path += "/" + quote(token, safe="")
        if "need" in path or "lost" in path:
            headers["Lock-Token"] = self.token(name)
            headers["Lock-Fencing-Token"] = str(rng.choice(
                list(self.figures.fencings) or [1]))
        for header, values in HEADERS.items():
            if rng.random() < 0.04:
                headers[header] = rng.choice(values)
        if method == "POST" and rng.random() < 0.2:
            headers["Idempotency-Key"] = "key-%d" % rng.randrange(20)
        if method == "POST" and rng.random() < 0.2 and "durable" not in query:
            headers["Prefer"] = "respond-async"
        if rng.random() < 0.005:
            headers["X-HTTP-Method-Override"] = rng.choice(METHODS)
        if method in ("LOCK", "UNLOCK"):
            body = {"ID": "id-%d" % rng.randrange(3), "Who": "me",
                    "Operation": "o", "Info": "", "Version": "1"}
        elif body is None and query and rng.random() < 0.25:
            body, query = query, {}
        if body is not None and rng.random() < 0.2:
            body = mutated(rng, json.dumps(body).encode())
            headers.setdefault("Content-Type", "application/json")
        query = "&".join("%s=%s" % (k, quote(str(v))) for k, v in query.items())
        data = encode(method, path + ("?" + query if query else ""), {
            k: v.replace("\n", " ") for k, v in headers.items()}, body)
        return method, data, "event-stream" in headers.get("Accept", "")


class Stranger(Worker):
    """A client of ZooKeeper that does anything below the root."""

    def __init__(self, tree, root, *rest):
        self.tree = tree
        self.root = root
        self.made = set()
        self.actions = ([self.make] * 6 + [self.in_line] * 3
                        + [self.rename] * 2 + [self.copy] * 2
                        + [self.write] * 4 + [self.write_lock]
                        + [self.delete] * 3 + [self.below])
        super().__init__(*rest)

    def step(self):
        rng = self.rng
        action = rng.choice(self.actions)
        if rng.random() < 0.01:
            action = self.remove
        if len(self.made) > MADE:
            action = self.tidy
        locks = self.tree.children(self.root) or ["a"]
        lock = self.root + "/" + rng.choice(locks)
        try:
            action(lock, self.tree.claims(lock))
            what = action.__name__
        except KazooException as e:
            what = "%s refused: %s" % (action.__name__, type(e).__name__)
        self.figures.count(self.figures.changes, what)
        self.end.wait(rng.random() / 50)

    def digits(self, children):
        """Numbers that are low, high, equal, negative, and no numbers."""
        numbers = [sequence(child) for child in children] or [0]
        last = max(numbers)
        number = self.rng.choice(numbers + [
            0, 1, last + 1, last + 1, last + 2, last - 1, last + 100,
            2147483647, 2147483646, -1, -2147483648, 10 ** 10 + last])
        return "%010d" % number if number >= 0 else "%011d" % number

    def make(self, lock, children, name=None):
        name = name or "_c_%s%s%s" % (uuid.UUID(bytes=self.rng.randbytes(16)),
                                      self.rng.choice(MARKERS),
                                      self.digits(children))
        self.made.add(lock + "/" + name)
        self.tree.client.create(lock + "/" + name, data_of(self.rng),
                                ephemeral=self.rng.random() < 0.7)

    def in_line(self, lock, children):
        path = self.tree.client.create(
            "%s/_c_%s%s" % (lock, uuid.UUID(bytes=self.rng.randbytes(16)),
                            self.rng.choice(MARKERS)),
            data_of(self.rng), ephemeral=True, sequence=True)
        self.made.add(path)

    def copy(self, lock, children):
        """The id of a claim, in a name with another number or marker."""
        child = self.rng.choice(children or ["_c_x-lock-0000000000"])
        marker = child[39:-10] if self.rng.random() < 0.6 else (
            self.rng.choice(MARKERS))
        self.make(lock, children, child[:39] + marker + self.digits(children))
        if CLAIM.match(child) and marker in ("-lock-", "-member-"):
            name = child[:39] + marker + "%010d" % self.rng.randrange(50)
            self.figures.tokens.append(("a", token_of(lock, name)))

    def rename(self, lock, children):
        if children:
            child = self.rng.choice(children)
            self.tree.client.delete(lock + "/" + child)
            self.make(lock, children, child[:-10] + self.digits(children))

    def write(self, lock, children):
        if children:
            self.tree.client.set(lock + "/" + self.rng.choice(children),
                                 data_of(self.rng))

    def write_lock(self, lock, children):
        self.tree.client.set(lock, data_of(self.rng))

    def delete(self, lock, children):
        if children:
            self.tree.client.delete(lock + "/" + self.rng.choice(children))

    def below(self, lock, children):
        if children:
            path = lock + "/" + self.rng.choice(children)
            self.tree.client.ensure_path(path + "/x/y")
            self.made.add(path)

    def remove(self, lock, children):
        """The lock's znode goes with all claims, or the whole root."""
        self.tree.delete_tree(lock if self.rng.random() < 0.8 else self.root)

    def tidy(self, *_):
        for path in sorted(self.made):
            self.tree.delete_tree(path)
        self.made.clear()


def memory(gateways):
    """pid -> kB, of all workers."""
    found = {}
    for gateway in gateways:
        for pid in gateway.worker_pids():
            with open("/proc/%d/statm" % pid) as f:
                found[pid] = int(f.read().split()[1]) * 4
    return found


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def tree(zookeeper):
    tree = Tree(zookeeper.address)
    yield tree
    tree.close()


@pytest.fixture
def app():
    app = Backend(work=lambda seen: (200, b"done\n"))
    yield app
    app.close()


@pytest.fixture
def pair(start_gateway, app):
    content = "proxy_pass http://%s;" % app.address
    rule = "zk_lock_require $arg_lock fencing=$http_lock_fencing_token"
    server = (location("zk_lock $arg_lock wait=300ms;", content)
              + location(rule + " if_held;", content, "/need/")
              + location(rule + " lost=abort;", content, "/lost/"))
    return [start_gateway(
        server=server, location="zk_lock_admin on; zk_lock_max_ttl 3s;\n"
        "zk_lock_ttl 2s; zk_lock_max_wait 2s; zk_lock_max_queue 200;",
        http="zk_lock_grace 2s;\nclient_header_timeout 5s;\n"
        "client_body_timeout 5s;\nlarge_client_header_buffers 4 8k;",
        # AddressSanitizer would keep up to 256 MB of what is freed
        environment={"ASAN_OPTIONS": "detect_leaks=%d:quarantine_size_mb=16"
                     % leaks_can_be_found()}) for _ in range(2)]


def play(pair, tree, root, figures):
    """Returns the workers' memory after a third of the time."""
    end = threading.Event()
    begin = time.monotonic()
    early = None
    shown = begin
    workers = [Client(pair, "%d-%d" % (SEED, i), figures, end)
               for i in range(CLIENTS)]
    strangers = [Stranger(tree, root, "%d-stranger%d" % (SEED, i), figures,
                          end) for i in range(STRANGERS)]
    try:
        while time.monotonic() < begin + SECONDS and not figures.errors:
            time.sleep(0.1)
            now = time.monotonic()
            if early is None and now > begin + SECONDS / 3:
                early = memory(pair)
            if now > shown + SHOWN:
                shown = now
                print("%d s, kB %s, %s" % (now - begin, sorted(
                    memory(pair).values()), figures), flush=True)
    finally:
        end.set()
        for worker in workers + strangers:
            worker.join(60)
    for worker in workers:
        if worker.connection is not None:
            worker.connection.close()
    for stranger in strangers:
        stranger.tidy()
    return early


def had_again(gateway, worker, name):
    """A worker grants the lock, and takes it back."""
    def granted():
        response = gateway.acquire(name, worker=worker, wait="2s", ttl="3s")
        return response if response.status == 201 else None

    try:
        response = wait_until(granted, AGAIN)
    except AssertionError:
        raise AssertionError("worker %d does not grant %s: %s, %s" % (
            worker, name, gateway.acquire(name, worker=worker, wait="0"),
            gateway.inspect(name, worker=worker)))
    assert gateway.release(name, response.token, worker).status == 204


def test_made_up_requests_beside_a_stranger(pair, tree, root):
    print("ZK_LOCK_SEED=%d" % SEED)
    figures = Figures()
    tree.client.ensure_path(root)
    before = [gateway.worker_pids() for gateway in pair]
    early = play(pair, tree, root, figures)
    print(figures)
    print("500 or late: %s" % dict(figures.failures))
    assert not figures.errors
    assert [gateway.worker_pids() for gateway in pair] == before, "a death"
    for gateway in pair:
        for worker in gateway.worker_pids():
            for name in NAMES:
                had_again(gateway, worker, name)
    left = [(tree.ephemerals, "claims"), (tree.durables, "durable claims")]
    for find, what in left:
        wait_until(lambda: not [path for path in find(root)], AGAIN,
                   "no %s are left: %s" % (what, find(root)))
    wait_until(lambda: claims.known(pair) == (0, 0), AGAIN, "no record is left")
    late = memory(pair)
    print("kB of each worker: %s" % {pid: (early[pid], late[pid])
                                     for pid in early})
    for pid, kb in early.items():
        assert late[pid] - kb < GROWTH, (kb, late[pid])
