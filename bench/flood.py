"""One client that floods a root, and what another root's clients see of that.

Two gateways, if --old has another module, each in its turn with a ZooKeeper of
its own, so that no gateway takes over the leases of the other: many names below
a root, a lock with many readers, and a lock with a hundred claims of 1 KB.
Each kind of flood runs for some seconds, while probes renew, acquire and
release in the other root, one request after the other.
"""

import json
import multiprocessing
import os
import random
import selectors
import shutil
import socket
import threading
import time

import common
from common import memory

from lib.gateway import Gateway     # noqa: E402

KINDS = ["nothing", "lists", "keyed", "watchers", "looks", "quota", "mixed"]

HTTP = """\
zk_lock_zone 64m;
zk_lock_max_ttl 1h;
zk_lock_max_queue 1000000;
zk_lock_timeout 5s;
"""

SERVER = """\
location /many/ {
    zk_lock_api;
    zk_lock_root /many;
}

location /other/ {
    zk_lock_api;
    zk_lock_root /other;
}

location /quota/ {
    zk_lock_api;
    zk_lock_root /quota;
    zk_lock_max_claims 10 $http_x_client;
}
"""


def request_of(kind, i):
    """The bytes of a request, and whether the client reads the answer."""
    if kind == "mixed":
        kind = KINDS[1 + i % 5]
    readers, wide = "/many/readers-" + Probe.of, "/many/wide-" + Probe.of
    if kind == "lists":
        line, headers = "GET /many/?limit=1", ""
    elif kind == "keyed":
        line = "POST %s?wait=0" % readers
        headers = "Idempotency-Key: %032x\r\n" % random.getrandbits(128)
    elif kind == "watchers":
        line, headers = "GET " + wide, "Accept: text/event-stream\r\n"
    elif kind == "looks":
        line, headers = "GET " + readers, ""
    else:
        line = "POST /quota/q%d-%s?wait=0&ttl=1h" % (i, Probe.of)
        headers = "X-Client: me\r\n"
    return request(*line.split(), headers), kind != "watchers"


def request(method, target, headers="", body=""):
    return ("%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s"
            % (method, target, headers, len(body), body)).encode()


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


def answer_of(data):
    """(status, body, the rest) of data with a whole answer, or None."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return None
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if len(body) < length:
        return None
    return int(head[9:12]), body[:length], body[length:]


def flood(port, kind, connections, stop, counts):
    """Asks again and again on all connections."""
    answers = {}
    selector = selectors.DefaultSelector()
    for i in range(connections):
        ask, reads = request_of(kind, i)
        connection = connect(port)
        connection.sendall(ask)
        if reads:
            selector.register(connection, selectors.EVENT_READ, [i, b""])
        else:
            answers.setdefault("kept", []).append(connection)
    statuses = {}
    while not stop.is_set():
        for key, _ in selector.select(0.1):
            state = key.data
            try:
                data = key.fileobj.recv(1 << 18)
            except ConnectionError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                connection = connect(port)
                selector.register(connection, selectors.EVENT_READ,
                                  [state[0], b""])
                connection.sendall(request_of(kind, state[0])[0])
                continue
            state[1] += data
            answer = answer_of(state[1])
            if answer is not None:
                statuses[answer[0]] = statuses.get(answer[0], 0) + 1
                state[1] = answer[2]
                key.fileobj.sendall(request_of(kind, state[0])[0])
    counts.put(statuses)


class Client:
    """A blocking connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60.0)
        self.left = b""

    def ask(self, requests):
        """The (status, body) of each, which are sent at once."""
        self.socket.sendall(b"".join(requests))
        return [self.answer() for _ in requests]

    def answer(self):
        while True:
            found = answer_of(self.left)
            if found is not None:
                status, body, self.left = found
                return status, body
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError
            self.left += data


class Probe(threading.Thread):
    """One client of the other root; (what, seconds, status) of each call."""

    of = None           # the name of the gateway

    def __init__(self, port, number, over):
        super().__init__()
        self.port = port
        self.path = "/other/probe%d-%s" % (number, self.of)
        self.over = over
        self.seen = []
        self.client = Client(port)

    def call(self, what, request):
        began = time.monotonic()
        try:
            (status, body), = self.client.ask([request])
        except OSError:
            status, body = 0, b""
            self.client = Client(self.port)
        self.seen.append((what, time.monotonic() - began, status))
        return status, body

    def run(self):
        while not self.over.is_set():
            status, body = self.call("acquire", request(
                "POST", self.path + "?wait=0&ttl=60s"))
            if status != 201:
                time.sleep(0.1)
                continue
            token = "Lock-Token: %s\r\n" % json.loads(body)["token"]
            for _ in range(4):
                self.call("renewal", request("PUT", self.path, token))
                time.sleep(0.02)
            self.call("release", request("DELETE", self.path, token))


def measure(gateway, kind, args):
    """A kind of flood, for some seconds, with probes."""
    workers = gateway.worker_pids()
    before = memory(workers)["private"]
    stop, over = multiprocessing.Event(), threading.Event()
    counts = multiprocessing.Queue()
    floods = []
    if kind != "nothing":
        each = args.connections // 2
        floods = [multiprocessing.Process(target=flood, args=(
            gateway.port, kind, each, stop, counts)) for _ in range(2)]
        for process in floods:
            process.start()
        time.sleep(1.0)
    probes = [Probe(gateway.port, i, over) for i in range(4)]
    for probe in probes:
        probe.start()
    most = 0
    until = time.monotonic() + args.seconds
    while time.monotonic() < until:
        time.sleep(0.5)
        most = max(most, memory(workers)["private"])
    over.set()
    for probe in probes:
        probe.join()
    stop.set()
    statuses = {}
    for process in floods:
        for status, n in counts.get().items():
            statuses[str(status)] = statuses.get(str(status), 0) + n
        process.join()
    seen = [call for probe in probes for call in probe.seen]
    found = {"flood": statuses, "grown": most - before,
             "refused": sum(not 200 <= call[2] < 300 for call in seen)}
    for what in "renewal", "acquire", "release":
        times = sorted(call[1] for call in seen if call[0] == what)
        found[what] = {"n": len(times)}
        for p in 50, 99, 100:
            found[what]["p%d" % p] = (
                1e3 * times[min(len(times) * p // 100, len(times) - 1)]
                if times else float("nan"))
    return found


def fill(tree, args):
    """Names that no claim uses, by hand."""
    tree.client.ensure_path("/many")
    for first in range(0, args.names, 1000):
        transaction = tree.client.transaction()
        for i in range(first, min(first + 1000, args.names)):
            transaction.create("/many/name%06d" % i)
        transaction.commit()


def claims(gateway, args):
    """A lock with many readers, one with a hundred long claims, and others'."""
    wide = json.dumps({"mode": "shared", "ttl": "1h", "data": "d" * 900})
    posts = [request("POST", "/many/readers-%s?mode=shared&ttl=1h" % Probe.of)
             for _ in range(args.readers)]
    posts += [request("POST", "/many/wide-" + Probe.of,
                      "Content-Type: application/json\r\n", wide)
              for _ in range(100)]
    posts += [request("POST", "/quota/o%d-%s?ttl=1h" % (i, Probe.of),
                      "X-Client: c%d\r\n" % (i // 8))
              for i in range(args.others)]
    clients = [Client(gateway.port) for _ in range(64)]
    for first in range(0, len(posts), 64):
        some = list(zip(clients, posts[first:first + 64]))
        for client, post in some:
            client.socket.sendall(post)
        for client, _ in some:
            status, body = client.answer()
            assert status == 201, (status, body)


def arguments():
    p = common.parser(__doc__.partition("\n")[0])
    p.add_argument("--names", type=int, help="below the root (150000)")
    p.add_argument("--readers", type=int, help="of a lock (9000)")
    p.add_argument("--others", type=int, help="claims that count (8000)")
    p.add_argument("--connections", type=int, default=400, help="(400)")
    p.add_argument("--seconds", type=float, default=10.0, help="each (10)")
    p.add_argument("--kinds", default=",".join(KINDS), help="of floods")
    p.add_argument("--old", metavar="MODULE", help="another build beside")
    args = p.parse_args()
    for name, all_, quick in (("names", 150000, 15000),
                              ("readers", 9000, 1000),
                              ("others", 8000, 1000)):
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else all_)
    return args


def main():
    args = arguments()
    common.raise_open_files(args.connections + 1000)
    results = {"setup": common.setup(
        args, workers="2, a listening socket each (reuseport)",
        flood="%d connections that ask again and again" % args.connections)}
    modules = [("new", {})]
    if args.old:
        modules.insert(0, ("old", {"module": os.path.abspath(args.old)}))

    for name, options in modules:
        results[name] = {}
        Probe.of = name
        prefix = os.path.join(common.OUT, "gateway-flood-" + name)
        shutil.rmtree(prefix, ignore_errors=True)
        with common.zookeeper(args.data) as (server, tree):
            fill(tree, args)
            with common.served(Gateway(prefix, server, level="notice",
                                       http=HTTP, server=SERVER, **options),
                               4096) as gateway:
                claims(gateway, args)
                for kind in args.kinds.split(","):
                    results[name][kind] = measure(gateway, kind, args)
                    show(name, kind, results[name][kind])

    common.write("flood", results)


def show(name, kind, found):
    print("%-4s %-9s" % (name, kind), end="")
    for what in "renewal", "acquire", "release":
        print("  %s p50 %.0f p99 %.0f max %.0f ms (%d)"
              % (what, found[what]["p50"], found[what]["p99"],
                 found[what]["p100"], found[what]["n"]), end="")
    print("  refused %d  grown %.0f MB  flood %s"
          % (found["refused"], found["grown"] / 1e6, found["flood"]),
          flush=True)


if __name__ == "__main__":
    main()
