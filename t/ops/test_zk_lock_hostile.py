"""zk-lock under ASan and UBSan, and a gateway that answers with random bytes.

ZK_LOCK_HOSTILE_SECONDS is the time of the run (15 s).  ZK_LOCK_HOSTILE_SEED
repeats the answers of a run, but not the order in which threads get them.
"""

import contextlib
import itertools
import json
import os
import random
import re
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time

import pytest

from lib.gateway import TREE
from lib.jobs import LOST, OUT_OF_REACH, TAKEN, USAGE, ZK_LOCK
from lib.process import tied

SECONDS = float(os.environ.get("ZK_LOCK_HOSTILE_SECONDS", 15))
SEED = int(os.environ.get("ZK_LOCK_HOSTILE_SEED",
                          random.SystemRandom().randrange(1 << 32)))
FINDING = 99        # the exit status of the sanitizers
# also behind an interim answer
GRANT = re.compile(rb"(HTTP/\S*|ICY)\s+20[01].*lock-token", re.I | re.S)
CLAIM = {"name": "x", "ttl_ms": 8000, "expires_in_ms": 3500, "since": "now",
         "fencing_token": 7, "owner": "o\u202e", "mode": "exclusive"}
LOCK = {"name": "x", "held": 1, "queued": 1, "holders": [CLAIM],
        "queue": [dict(CLAIM, revoke=True)]}


def answer(body, status=b"200 OK", head=()):
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *head]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def honest(method, path):
    """What a gateway answers; a lease that is short is renewed soon."""
    if method == b"POST":
        return answer(json.dumps(CLAIM).encode(), b"201 Created",
                      [b"Lock-Token: token", b"Lock-Fencing-Token: 7"])
    if method == b"DELETE":
        return answer(b"", b"204 No Content")
    if b"/health" in path:
        return answer(b'{"status": "up", "drained": false}')
    if b"limit=" in path:
        return answer(json.dumps({"locks": [LOCK] * 3, "next": ""}).encode())
    if method == b"PUT":
        return answer(json.dumps(CLAIM).encode())
    return answer(json.dumps(dict(LOCK, event="change")).encode() + b"\n")


def garbage(r, n):
    return bytes(r.randrange(256) for _ in range(r.randrange(n)))


def odd_json(r):
    number = r.choice(["-1", "0", "1e999", "9223372036854775807", "0.5", "null",
                       "9223372036854775808", "[]", '"7"', "3500", "NaN"])
    return r.choice([
        b'{"ttl_ms": %s, "expires_in_ms": %s, "held": %s, "holders": [%s]}'
        % ((number.encode(),) * 4),
        b'{"holders": [{"owner": "\\u0000\\ud800\x1b[2J"}], "event": "change"}',
        b'{"locks": ' * 5000, b"[" * 40000, b'{"a": "' + b"x" * 70000,
        b"\xff\xfe{\x00}\x00", b'{"detail": "' + garbage(r, 400) + b'"}',
        b'{"event": "alive"}\n' * 1000, b"\n" * 3000, b"", b"{}", b"null",
        b'{"next": "again", "locks": [], "complete": false}' if
        r.random() < 0.5 else b'{"locks": [null, 7, {"holders": 7}]}',
        b'{"status": 7, "detail": ["x"]}\0{"status": "up"}'])


def mutate(r, whole):
    data = bytearray(whole)
    for _ in range(r.randrange(1, 6)):
        at = r.randrange(len(data) + 1)
        what = r.randrange(4)
        if what == 0:
            data[at:at + r.randrange(9)] = b""
        elif what == 1:
            data[at:at] = garbage(r, 9)
        elif what == 2:
            data[at:at + 1] = bytes([r.randrange(256)])
        else:
            data[at:at] = data[at:at + r.randrange(99)]
    return bytes(data)


def hostile(r, method, path):
    """The bytes of an answer, and what the head of another has to be."""
    whole = honest(method, path)
    token = r.choice([b"", b"t" * 255, b"t" * 256, b"t" * 99999, b"\x1b[2J\xff",
                      b"a\r\nLock-Token: b"])
    return r.choice([
        lambda: garbage(r, 3000),
        lambda: b"HTTP/1.1 " + r.choice([b"2o1", b"99999999999", b"-1", b"",
                                         b"201", b"\xff\0"]) + whole[12:],
        lambda: r.choice([b"HTTP/9.9", b"ICY", b"http/1.1", b"HTTP/2",
                          b"HTTP/0.9"]) + whole[8:],
        lambda: b"HTTP/1.1 200 OK\r\n" + b"".join(
            b"X-%d: %s\r\n" % (i, b"y" * 90) for i in range(6000)),
        lambda: b"HTTP/1.1 200 OK\r\nX: " + b"y" * 400000,
        lambda: answer(b"{}", b"201 Created", [b"Lock-Token: " + token]),
        lambda: answer(b"{}", r.choice([b"301 Moved", b"307 Again"]),
                       [b"Location: /locks/elsewhere"]),
        lambda: b"HTTP/1.1 100 Continue\r\n\r\n" * r.randrange(2000) + whole,
        lambda: b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n" + whole,
        lambda: answer(odd_json(r), b"%d Odd" % r.choice(
            [200, 200, 201, 204, 304, 404, 409, 410, 423, 429, 503, 504, 999]),
            [r.choice([b"Lock-Token: t", b"X: y"]), b'ETag: "1"',
             b"Retry-After: " + r.choice(
                 [b"0", b"1", b"-1", b"99999999999", b"Fri", b""])]),
        lambda: answer(odd_json(r), head=[b"Lock-Token: t", b"ETag: x"]),
        lambda: whole[:r.randrange(len(whole) + 1)],
        lambda: b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n{}" % r.choice(
            [b"-1", b"99999999999999999999", b"9223372036854775807", b"x"]),
        lambda: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n%s" % (
            r.choice([b"chunked", b"gzip", b"chunked, chunked", b"x"]),
            r.choice([b"fffffffffffffffff\r\n", b"-1\r\n", b"zz\r\n{}\r\n",
                      b"ffff\r\n" + b"y" * 65535 + b"\r\nffff\r\n"])),
        lambda: answer(garbage(r, 300), head=[b"Content-Encoding: gzip"]),
        lambda: b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * r.randrange(1 << 21),
        lambda: whole + whole,
        lambda: mutate(r, whole),
        lambda: mutate(r, whole),
    ])()


class Handler(socketserver.BaseRequestHandler):
    """Answers the requests of a connection, most of them with anything."""

    def handle(self):
        server = self.server
        r = random.Random(SEED * 1000003 + next(server.numbers))
        self.request.settimeout(20)
        with contextlib.suppress(OSError):
            while self.answer(server, r):
                pass

    def answer(self, server, r):
        """Whether the connection is kept."""
        request = b""
        while b"\r\n\r\n" not in request:
            got = self.request.recv(65536)
            if not got:
                return False
            request += got
        method, path = request.split(b" ", 2)[:2]
        if r.random() < 0.4:
            data, kept = honest(method, path), True
        else:
            data, kept = hostile(r, method, path), r.random() < 0.3
        if method == b"POST" and GRANT.search(data):
            server.granted.add(path.partition(b"?")[0].decode())
        server.answers += 1
        if r.random() < 0.1:
            slow = data[:100]       # bytes that come one by one
            for i in range(len(slow)):
                self.request.sendall(slow[i:i + 1])
                time.sleep(0.01)
            data = data[100:]
        self.request.sendall(data)
        if not kept and r.random() < 0.3:
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                    struct.pack("ii", 1, 0))    # a reset
        return kept


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.numbers = itertools.count(1)
        self.granted = set()        # the paths that may have got a grant
        self.answers = 0
        self.url = "http://127.0.0.1:%d/locks" % self.server_address[1]

    def handle_error(self, request, client_address):
        pass


@pytest.fixture(scope="module")
def program():
    """zk-lock with ASan and UBSan."""
    subprocess.run(["make", "-C", TREE, "build/zk-lock-asan"], check=True,
                   timeout=600, stdout=subprocess.DEVNULL)
    return os.path.join(TREE, "build", "zk-lock-asan")


@pytest.fixture
def server():
    with Server() as it:
        thread = threading.Thread(target=it.serve_forever, args=(0.1,))
        thread.start()
        yield it
        it.shutdown()
        thread.join()


def arguments(r, name, witness):
    """A command of zk-lock, and the seconds after which TERM is sent."""
    held = ["sh", "-c", 'echo >> "$0"; exec sleep %.1f' % r.uniform(0, 4),
            witness]
    json_too = ["--json"] if r.random() < 0.3 else []
    return r.choice([
        (["run", "-w", "2", "-t", "8", "-g", "0", name, "--", *held], 6),
        (["run", "-w", "0", "--min-hold", "1", name, "--", *held], 6),
        (["run", "-w", "1", "--permits", "2", name, "--", *held], 6),
        (["lead", "-t", "8", "-g", "0", name, "--", *held], 4),
        (["join", "-t", "8", "-g", "0", name, "address"], 3),
        (["ls", *json_too, "--sort", "waiting"], 2),
        (["show", *json_too, name], 2),
        (["show", "--owners", name], 2),
        (["watch", *json_too, name, name + "-2"], 3),
        (["break", name, "7"], 2),
        (["drain", *json_too, "status"], 2),
    ])


def check(program, server, r, name, tmp_path):
    """Runs a command, and returns what was wrong, or None."""
    witness = str(tmp_path / name)
    command, patience = arguments(r, name, witness)
    environment = dict(
        os.environ, ZK_LOCK_URL=server.url,
        ASAN_OPTIONS="exitcode=%d:detect_leaks=1" % FINDING,
        UBSAN_OPTIONS="exitcode=%d:print_stacktrace=1" % FINDING)
    process = subprocess.Popen(tied([program, *command]), env=environment,
                               stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, told = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        # the release is repeated for ten seconds
        out, told = process.communicate(timeout=60)

    wrong = []
    # ls, show, break and drain have no handler of TERM
    if process.returncode not in (0, 1, USAGE, OUT_OF_REACH, LOST, TAKEN,
                                  128 + signal.SIGTERM, -signal.SIGTERM):
        wrong.append("status %d" % process.returncode)
    if re.search(rb"Sanitizer|runtime error", told):
        wrong.append("a finding")
    if re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", told):
        wrong.append("control characters")
    if "--json" not in command and re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", out):
        wrong.append("control characters on standard output")
    if os.path.exists(witness) and "/locks/" + name not in server.granted:
        wrong.append("ran without a grant")
    if wrong:
        return "%s: %s\n%s" % (command, ", ".join(wrong),
                               told.decode(errors="replace")[-4000:])
    return None


def test_a_gateway_answers_with_anything(program, server, tmp_path):
    print("ZK_LOCK_HOSTILE_SEED=%d" % SEED)
    end = time.monotonic() + SECONDS
    found, runs = [], itertools.count()

    def work(k):
        r = random.Random(SEED + k)
        while time.monotonic() < end and not found:
            name = "lock%d" % next(runs)
            try:
                wrong = check(program, server, r, name, tmp_path)
            except subprocess.TimeoutExpired as e:
                wrong = str(e)
            if wrong:
                found.append(wrong)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("%d commands, %d answers, %d grants"
          % (next(runs), server.answers, len(server.granted)))
    assert not found, "\n".join(found)
    assert server.answers > 50 and server.granted


class Fixed(socketserver.BaseRequestHandler):
    """Sends the same bytes to each request, and a body without an end behind
    a head that says no length, as far as the client takes it.
    """

    def handle(self):
        server = self.server
        self.request.settimeout(20)
        self.request.recv(65536)
        with contextlib.suppress(OSError):
            self.request.sendall(server.bytes)
            while b"Length" not in server.bytes and server.sent < ENDLESS:
                server.sent += self.request.send(b"y" * 65536)


ENDLESS = 1 << 28


@contextlib.contextmanager
def gateway_that_sends(data):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Fixed) as server:
        server.bytes = data
        server.sent = 0
        thread = threading.Thread(target=server.serve_forever, args=(0.1,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def status_of(program, server, *command):
    url = "http://127.0.0.1:%d/locks" % server.server_address[1]
    return subprocess.run([program, *command],
                          env=dict(os.environ, ZK_LOCK_URL=url),
                          capture_output=True, timeout=60).returncode


@pytest.mark.parametrize("command", [["run", "x", "true"], ["ls"],
                                     ["show", "x"], ["drain", "status"]])
def test_an_answer_without_an_end(command):
    """zk-lock takes of each no more than an answer has."""
    head = (b"HTTP/1.1 20%d Fine\r\nLock-Token: t\r\n\r\n"
            % (command[0] == "run"))
    with gateway_that_sends(head) as server:
        assert status_of(ZK_LOCK, server, *command) in (USAGE, OUT_OF_REACH)
    assert 0 < server.sent < ENDLESS // 2    # with what the sockets hold


@pytest.mark.parametrize("status", [202, 203, 204, 206, 226, 300, 302, 304, 400,
                                    404, 409, 410, 423, 500, 503])
def test_no_grant(program, tmp_path, status):
    """Whatever the answer has besides, its status is not that of a grant."""
    data = honest(b"POST", b"/locks/x").replace(b"201", b"%d" % status, 1)
    with gateway_that_sends(data) as server:
        assert status_of(program, server, "run", "x", "touch",
                         str(tmp_path / "ran")) in (USAGE, OUT_OF_REACH, TAKEN)
    assert not os.path.exists(tmp_path / "ran")
