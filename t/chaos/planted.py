"""Violations that are planted, to see that the whole run can fail.

Real servers, real clients and the real checker, without any fault except the
planted fault.  The clients of a violation end when the checker has found the
violation, and the clients of a right service end after some grants:

    roots       the gateways have different roots, and so different locks, in
                front of one resource: two holders
    liar        a server that answers every acquire 201, without ZooKeeper
    guards      the same, but the clients' requests go through guards
    outlive     clients that go on when their lease is over: the fault is the
                clients', and has to be seen, and the service does not violate
                a promise
    nothing     no fault at all: no violation
    stray       an ephemeral claim that no gateway knows
    elsewhere   a claim that a gateway knows, and no znode
"""

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
from lib.zookeeper import Tree

CLIENTS = 6
GRANTS = 5                  # of a right service
TIMEOUT = 120.0
CALM = 3.0                  # for claims that never are the same
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


def lines_of(directory, arena, gateways, seed, enough, **changes):
    """The record of a few clients, up to when enough(lines) is true."""
    os.makedirs(directory)
    record = Record(directory, "run")
    guard = Guard(record)
    witness = Witness(arena.witness, guard, record, arena.address)
    crowd = Crowd(directory, guard, arena.address, gateways, seed)
    try:
        crowd.http("http", CLIENTS, LOCKS, wait=3, hold=[1, 2], **changes)
        try:
            wait_until(lambda: enough(read(directory)), TIMEOUT)
        except AssertionError:
            pass                # what is missing is the verdict's to tell
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


def served(lines):
    return len(checker.History(lines).claims) >= GRANTS


def outlived(lines):
    return len(checker.clients_faults(checker.History(lines))) >= GRANTS


def two_holders(lines):
    return any(checker.two_holders(checker.History(lines)))


def liar(directory, arena, seed):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return lines_of(directory, arena,
                        {"liar": server.server_address}, seed, two_holders)
    finally:
        server.shutdown()
        server.server_close()


def compared(directory, arena, root=ROOT):
    """What is wrong with the claims of records and znodes."""
    os.makedirs(directory)
    record = Record(directory, "run")
    arena.compare(record, CALM, root)
    record.close()
    return {violation.text for violation in checker.apart(
        checker.History(read(directory)))}


def stray(directory, arena):
    tree = Tree(arena.address)
    path = tree.make_claim(ROOT + "/stray")
    found = compared(directory, arena)
    tree.close()
    return any(path in text for text in found), found


def elsewhere(directory, arena):
    gateway = arena.gateways[0]
    holder = gateway.hold("elsewhere")
    here = compared(os.path.join(directory, "here"), arena)
    there = compared(os.path.join(directory, "there"), arena,
                     ROOT + "/elsewhere/none")
    gateway.release("elsewhere", holder.token)
    return not here and any("are held" in text for text in there), there


def run(directory, seed):
    """What is wrong with what was found, a line each; prints what was found."""
    os.makedirs(directory)
    arena = Arena(directory, loopback=True, roots=(ROOT, ROOT + "/other"))
    try:
        arena.start()
        first, second = arena.gateways
        at = {g.name: (g.host, g.port) for g in (first, second)}
        one = {first.name: at[first.name]}

        def record(name, gateways, enough, **changes):
            return lines_of(os.path.join(directory, name), arena, gateways,
                            seed, enough, **changes)

        nothing = record("nothing", one, served)
        roots = record("roots", at, two_holders, stays=True)
        guards = record("guards", at, two_holders, stays=True,
                        turns={"guarded": 1})
        lied = liar(os.path.join(directory, "liar"), arena, seed)
        outlive = record("outlive", one, outlived, outlive=True,
                         turns={"outlives": 1})
        strays = stray(os.path.join(directory, "stray"), arena)
        apart = elsewhere(os.path.join(directory, "elsewhere"), arena)
    finally:
        arena.close()

    return [wrong for wrong in (right("nothing", nothing, served),
                                violated("roots", roots),
                                violated("guards", guards),
                                violated("liar", lied),
                                right("outlive", outlive, outlived),
                                say("stray", *strays),
                                say("elsewhere", *apart))
            if wrong is not None]


def right(name, lines, enough):
    """The service kept its promises, and the clients did enough to tell."""
    violations = checker.check(lines)
    return say(name, enough(lines) and not violations,
               violations or "%d grants, %d operations after the lease"
               % (len(checker.History(lines).claims),
                  len(checker.clients_faults(checker.History(lines)))))


def violated(name, lines):
    return say(name, two_holders(lines),
               {violation.name for violation in checker.check(lines)})


def say(name, as_it_should_be, seen):
    """Prints the verdict, and returns it if it is wrong."""
    verdict = "planted: %-9s %s: %s" % (
        name, "as it should be" if as_it_should_be else "WRONG", seen)
    print(verdict, flush=True)
    return None if as_it_should_be else verdict
