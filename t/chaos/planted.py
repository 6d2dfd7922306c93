"""Violations that are planted, to see that the whole run can fail.

Real servers, real clients and the real checker, without any fault except the
planted fault:

    roots       the gateways have different roots, and so different locks, in
                front of one resource: two holders
    liar        a server that answers every acquire 201, without ZooKeeper
    guards      the same, but the clients' requests go through guards
    outlive     clients that go on when their lease is over: the fault is the
                clients', and has to be seen, and the service does not violate
                a promise
    nothing     no fault at all: no violation
"""

import collections
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from chaos import checker
from chaos.arena import ROOT, Arena
from chaos.crowd import Crowd
from chaos.guard import Guard
from chaos.record import Record, read
from chaos.witness import Witness
from lib.process import wait_until

CLIENTS = 6
GRANTS = 5                  # at each gateway, before a run ends
TIMEOUT = 120.0
LOCKS = ["own1"]


class Liar(BaseHTTPRequestHandler):
    """Grants every acquire."""

    protocol_version = "HTTP/1.1"
    numbers = 0

    def do_POST(self):
        Liar.numbers += 1
        self._say(201, {"token": "liar%d" % Liar.numbers, "waited_ms": 0,
                        "fencing_token": Liar.numbers,
                        "expires_in_ms": 5000})

    def do_PUT(self):
        self._say(200, {"token": self.headers["Lock-Token"],
                        "fencing_token": 1, "expires_in_ms": 5000})

    do_GET = do_PUT

    def do_DELETE(self):
        self._say(204, None)

    def _say(self, status, body):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def lines_of(directory, arena, gateways, seed, **changes):
    """The record of a few clients at these gateways, without faults."""
    os.makedirs(directory)
    record = Record(directory, "run")
    guard = Guard(record)
    witness = Witness(arena.witness, guard, record, arena.address)
    crowd = Crowd(directory, guard, arena.address, gateways, seed)
    try:
        crowd.http("http", CLIENTS, LOCKS, wait=3, hold=[1, 2], **changes)
        wait_until(lambda: all(granted(directory)[name] >= GRANTS
                               for name in gateways), TIMEOUT,
                   "%d grants at each gateway" % GRANTS)
        for complaint in crowd.finish():
            record.write("bad", gateway="clients", line=complaint)
    finally:
        crowd.kill()
        witness.close()
        guard.close()
    for session, gateways in arena.sessions():
        record.write("session", session=session, gateways=gateways)
    for session, t in arena.expirations():
        record.write("expired", session=session, t=t)
    record.write("end")
    record.close()
    return read(directory)


def granted(directory):
    """How many grants each gateway has told."""
    lines = read(directory)
    # 409: the guard has granted the lock, and the resource has refused
    told = {line["id"] for line in lines
            if line["what"] == "told" and line["status"] in (200, 201, 409)}
    return collections.Counter(
        line["gateway"] for line in lines
        if line["what"] == "ask" and line["kind"] in ("acquire", "guarded")
        and "gateway" in line and line["id"] in told)


def liar(directory, arena, seed):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return lines_of(directory, arena,
                        {"liar": server.server_address}, seed)
    finally:
        server.shutdown()
        server.server_close()


def names(violations):
    return {violation.name for violation in violations}


def run(directory, seed):
    """Whether all planted violations were found; prints what was found."""
    os.makedirs(directory)
    arena = Arena(directory, loopback=True, roots=(ROOT, ROOT + "/other"))
    try:
        arena.start()
        first, second = arena.gateways
        at = {g.name: (g.host, g.port) for g in (first, second)}
        one = {first.name: at[first.name]}

        def record(name, gateways, **changes):
            return lines_of(os.path.join(directory, name), arena, gateways,
                            seed, **changes)

        nothing = checker.check(record("nothing", one))
        roots = names(checker.check(record("roots", at, stays=True)))
        guards = names(checker.check(record("guards", at, stays=True,
                                            turns={"guarded": 1})))
        lied = names(checker.check(liar(os.path.join(directory, "liar"),
                                        arena, seed)))
        outlive = record("outlive", one, outlive=True,
                         turns={"outlives": 1})
        theirs = len(checker.clients_faults(checker.History(outlive)))
        service = checker.check(outlive)
    finally:
        arena.close()

    return all([say("nothing", not nothing, nothing),
                say("roots", "two holders" in roots, roots),
                say("guards", "two holders" in guards, guards),
                say("liar", "two holders" in lied, lied),
                say("outlive", theirs > 0 and not service,
                    "%d operations after the lease, %s" % (theirs, service))])


def say(name, right, seen):
    print("planted: %-8s %s: %s" % (name, "as it should be" if right
                                    else "WRONG", seen), flush=True)
    return right
