"""Puts a real ensemble and real gateways under faults, and judges the record.

usage: run.py DIRECTORY     (empty, or not there; the record stays in it)

Environment, which `make chaos` passes on:
    CHAOS_SECONDS   how long faults are injected at most, 600
    CHAOS_FAULTS    ends sooner: when each kind was injected so often; 0: never
    CHAOS_SEED      of what is random here; of the clock if not set
    CHAOS_CLIENTS   HTTP clients, 24
    CHAOS_PLANTED   0: the planted violations are left out
    CHAOS_SERVERS   0: ZooKeeper's servers are left alone
    CHAOS_LOOPBACK  1: as on a machine that gives no rights for namespaces

Exit status: 0 if nothing was broken, 1 if a promise was, or if a planted
violation was not found, 2 if the run itself failed.  README.md tells more.
"""

import collections
import os
import signal
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from kazoo.exceptions import NoNodeError                # noqa: E402

from chaos import checker, planted                      # noqa: E402
from chaos import faults as kinds                       # noqa: E402
from chaos.arena import ROOT, Arena                     # noqa: E402
from chaos.audit import Audit                           # noqa: E402
from chaos.crowd import CURATOR, HTTP, KAZOO, Crowd     # noqa: E402
from chaos.guard import Guard                           # noqa: E402
from chaos.record import Record, read                   # noqa: E402
from chaos.witness import Witness                       # noqa: E402
from lib.client import Gone                             # noqa: E402
from lib.process import wait_until                      # noqa: E402
from lib.zookeeper import Tree                          # noqa: E402

TRIES = 30                  # of the last acquires
AGREE_TIMEOUT = 30.0        # for servers to have the same znodes
CLEAN_TIMEOUT = 60.0        # for the last claims to go
HELD = 5                    # locks at each gateway while claims are compared
REPORT = 30.0               # between progress lines
SHOWN = 20                  # violations that are printed


def option(name, default):
    return type(default)(os.environ.get("CHAOS_" + name) or default)


def main(directory):
    directory = os.path.abspath(directory)
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
        sys.exit("%s is not empty" % directory)
    seed = option("SEED", int(time.time()))
    print("chaos: CHAOS_SEED=%d, record in %s" % (seed, directory), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(2))

    wrong = []
    if option("PLANTED", 1):
        wrong = planted.run(os.path.join(directory, "planted"), seed)
    path = os.path.join(directory, "run")
    os.makedirs(path)
    lines = under_faults(path, seed)
    violations, theirs = checker.judge(lines)
    report(lines, violations, theirs)
    for line in wrong:
        print("chaos: FAILED: " + line)
    sys.exit(1 if wrong or violations else 0)


def under_faults(directory, seed):
    record = Record(directory, "run")
    arena = crowd = audit = witness = None
    try:
        arena = Arena(directory, loopback=bool(option("LOOPBACK", 0)))
        for line in arena.missing:
            print("chaos: NOT RUN: " + line, flush=True)
        arena.start()
        guard = Guard(record)
        witness = Witness(arena.witness, guard, record, arena.address)
        audit = Audit(arena.servers, ROOT, record)
        crowd = Crowd(directory, guard, arena.address,
                      {g.name: (g.host, g.port) for g in arena.gateways}, seed)
        crowd.http("http", option("CLIENTS", 24))
        crowd.kazoo(4)
        crowd.curator(4)
        lanes = inject(arena, record, crowd, seed)
        finish(arena, record, crowd)
    finally:
        if audit is not None:
            audit.close()
        if crowd is not None:
            crowd.kill()
        if witness is not None:
            witness.close()
        if arena is not None:
            arena.close()
    for lane in lanes:
        lane.may_end.set()
    record.close()
    return read(directory)


def inject(arena, record, crowd, seed):
    stop = threading.Event()
    lanes = kinds.lanes(arena, record, seed, stop,
                        servers_too=bool(option("SERVERS", 1)))
    begin = shown = time.monotonic()
    enough = option("FAULTS", 0)
    for lane in lanes:
        lane.start()
    try:
        while time.monotonic() < begin + option("SECONDS", 600.0):
            if stop.wait(0.5) or enough and kinds.least(lanes) >= enough:
                break
            if crowd.dead():
                raise AssertionError(crowd.dead())
            if time.monotonic() > shown + REPORT:
                shown = time.monotonic()
                print("chaos: %4d s, %d faults, at least %d of each kind"
                      % (shown - begin,
                         sum(sum(lane.counts.values()) for lane in lanes),
                         kinds.least(lanes)), flush=True)
    finally:
        stop.set()
        for lane in lanes:
            lane.done.wait()
    for lane in lanes:
        if lane.error is not None:
            raise lane.error
    return lanes


def finish(arena, record, crowd):
    """Everything is whole again: clients end, locks are free, claims gone."""
    arena.wait_quorum()
    record.write("servers", **{how: sum(getattr(server, how)
                                        for server in arena.servers)
                               for how in ("replaced", "stuck")})
    for complaint in crowd.finish():
        record.write("bad", gateway="clients", line=complaint)
    for name in HTTP + KAZOO + CURATOR:
        for gateway in arena.gateways:
            available(gateway, name, record)
    compared(arena, record)
    left_claims(arena, record)
    arena.compare(record, CLEAN_TIMEOUT)
    agreed(arena, record)
    for session, gateways in arena.sessions():
        record.write("session", session=session, gateways=gateways)
    for session, t in arena.expirations():
        record.write("expired", session=session, t=t)
    for gateway, line in arena.bad_lines():
        record.write("bad", gateway=gateway, line=line)
    record.write("end")


def available(gateway, name, record):
    """Each lock can be had at each gateway again, in so many tries."""
    query = {"wait": 10, "ttl": 5}
    if name.startswith("sem"):
        query.update(mode="semaphore", permits=checker.PERMITS)
    elif name.startswith("rw"):
        query.update(mode="write")
    for tries in range(1, TRIES + 1):
        try:
            answer = gateway.acquire(name, **query)
            if answer.status == 201:
                gateway.release(name, answer.token)
                break
        except (OSError, Gone):
            pass
        time.sleep(0.1)
    else:
        answer = None
    record.write("final", lock=name, gateway=gateway.name, tries=tries,
                 ok=answer is not None)


def compared(arena, record):
    """Some locks are held; records and znodes are the same claims."""
    held = []
    for gateway in arena.gateways:
        for i in range(HELD):
            name = "calm%d-%s" % (i, gateway.name)
            held.append((gateway, name, gateway.hold(name, ttl="5m")))
    arena.compare(record, CLEAN_TIMEOUT)
    for gateway, name, holder in held:
        gateway.release(name, holder.token)


def left_claims(arena, record):
    tree = Tree(arena.address)
    paths = []

    def gone():
        paths[:] = [*tree.ephemerals(ROOT), *tree.durables(ROOT)]
        return not paths

    try:
        wait_until(gone, CLEAN_TIMEOUT)
    except AssertionError:
        pass
    record.write("znodes", paths=paths)
    tree.close()


def agreed(arena, record):
    """All servers have the same znodes, or ZooKeeper itself is at fault."""
    trees = [Tree(server.address) for server in arena.servers]
    looks = []

    def same():
        looks[:] = [znodes(tree.client, ROOT) for tree in trees]
        return all(look == looks[0] for look in looks)

    try:
        wait_until(same, AGREE_TIMEOUT)
    except AssertionError:
        everywhere = set.intersection(*looks)
        for path in sorted(set.union(*looks) - everywhere):
            record.write("zookeeper", path=path, lock=lock_of(path))
    for tree in trees:
        tree.close()


def lock_of(path):
    return (path[len(ROOT):].split("/") + [""])[1]


def znodes(client, path):
    client.sync(path)
    found = {path}
    try:
        for child in client.get_children(path):
            found |= znodes(client, path + "/" + child)
    except NoNodeError:
        return set()
    return found


def report(lines, violations, theirs):
    figures = checker.figures(lines)
    times = collections.defaultdict(float)
    begun = {}
    for line in lines:
        if line["what"] == "fault":
            if "healed" in line:
                times[line["kind"]] += line["t"] - begun[line["id"]]
            begun[line["id"]] = line["t"]
    faults = figures.pop("faults")
    print("\n%-36s %6s %10s" % ("fault", "times", "seconds"))
    for kind, number in sorted(faults.items()):
        print("%-36s %6d %10.1f" % (kind, number, times[kind]))
    print()
    for name, value in figures.items():
        if isinstance(value, dict):
            value = ", ".join("%s: %d" % pair for pair in
                              sorted(value.items()))
        print("%-52s %s" % (name, value))
    for how, what in (("replaced", "servers whose data had to be thrown away"),
                      ("stuck", "servers that were stuck, and started again")):
        print("%-52s %d" % (what, sum(line[how] for line in lines
                                      if line["what"] == "servers")))
    show("violations", violations)
    show("at locks about which ZooKeeper disagreed", theirs)
    print("\nchaos: %d faults of %d kinds, %d grants, %d violations"
          % (sum(faults.values()), len(faults), figures["grants"],
             len(violations)))


def show(title, violations):
    print("\n%-52s %d" % (title, len(violations)))
    for violation in violations[:SHOWN]:
        print("  %s: %s" % violation[:2])
    if len(violations) > SHOWN:
        print("  and %d more" % (len(violations) - SHOWN))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: run.py DIR, see t/chaos/README.md")
    try:
        main(sys.argv[1])
    except Exception:
        traceback.print_exc()
        sys.exit(2)
