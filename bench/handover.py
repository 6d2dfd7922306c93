"""Hand-over of a lock, and what a grant costs as its queue grows.

A hand-over is from when a release is sent until the next in line has read its
grant.  Each way is measured once in each round, beside a raw round trip to
ZooKeeper.  Peers that are not installed are left out, and that is said.
"""

import contextlib
import json
import os
import select
import subprocess
import sys

import common
from common import median, table
from contenders import CLASSES, CURATOR_FLAGS, Etcd, Failed, Place

from lib.curator import NAMES
from lib.process import tied, wait_until
from lib.zookeeper import JARS, JAVA

HERE = os.path.dirname(os.path.abspath(__file__))
HAND_OVER = os.path.join(common.OUT, "handover")
RAW = os.path.join(common.OUT, "rawzk")

GRACE = 60.0            # seconds more than a program should take
RAW_SECONDS = 1.0
WARM_UP = 100           # rounds in front of all, of peers
LOCK = "line"           # with a standing queue
ARRIVE = 60.0           # seconds, for all to be in it

# Who waits in etcd watches.  A watch is told of what happens at once from when
# etcd has brought it up to date, which it does for new ones each 100 ms.
ETCD_GAP = 150
ETCD_SOON = "etcd, soon"

GATEWAYS = ("local", "sibling", "other gateway")
OURS = GATEWAYS + ("raw round trip",)
FLAGS = {"local": "local", "sibling": "sibling", "other gateway": "other"}


# --- peers -------------------------------------------------------------------

class Peer:
    """A program that carries out lines, and answers each with one."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            tied(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            bufsize=0)

    def measure(self, rounds, gap):
        self.process.stdin.write(b"%d %d\n" % (rounds, gap))
        line = read_line(self.process, rounds * (gap / 1e3 + 0.1) + GRACE)
        found = json.loads(line.decode())
        if not found["handover_us"]:
            raise RuntimeError("it measured nothing")
        result = {name: found[name] for name in ("overlaps", "wrong_answers")}
        for name in ("handover", "release"):
            times = sorted(found[name + "_us"])
            result[name + "_p50_us"] = times[len(times) // 2]
            result[name + "_p99_us"] = times[len(times) * 99 // 100]
            result[name + "_max_us"] = times[-1]
        return dict(result, rounds=len(times))

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        end(self.process)


def read_line(process, timeout):
    """The next line of a process whose pipes are not buffered here."""
    if not select.select([process.stdout], [], [], timeout)[0]:
        raise RuntimeError("no answer after %g s" % timeout)
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("it ended with %s" % process.wait(GRACE))
    return line


def end(process):
    """It ends by itself, or else by its pid."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def curator_command(server):
    """None if something is not installed, or was not compiled."""
    jars = [os.path.join(JARS, name + ".jar") for name in NAMES]
    needed = jars + [os.path.join(CLASSES, "CuratorHandover.class")]
    if not all(os.path.exists(path) for path in needed):
        return None
    return ([JAVA] + CURATOR_FLAGS + ["-cp", ":".join([CLASSES] + jars),
                                      "CuratorHandover",
                                      "-s", server.address])


def kazoo_command(server):
    return [sys.executable, os.path.join(HERE, "kazoo_handover.py"),
            server.address]


@contextlib.contextmanager
def peer(name, command):
    """A Peer that has warmed up, or None."""
    if command is None:
        print("\n    %s is left out: it is not installed" % name)
        yield None
        return
    program = Peer(command)
    try:
        yield program if warmed_up(name, program) else None
    finally:
        program.end()


def warmed_up(name, program):
    try:
        program.measure(WARM_UP, 1)
    except RuntimeError as e:
        print("\n*** %s is left out: %s" % (name, e))
        return False
    return True


def http_contender(contender, server, args, stack):
    """One that is asked over HTTP, started; None if it cannot be."""
    missing = contender.missing()
    if missing:
        print("\n    %s is left out: %s is not installed"
              % (contender.name, missing))
        return None
    try:
        return stack.enter_context(contender(Place(server,
                                                   args.data or common.OUT)))
    except (Failed, AssertionError) as e:
        print("\n*** %s is left out: %s" % (contender.name, e))
        return None


# --- hand-over ---------------------------------------------------------------

def hand_over(flag, port, args, other=None, n=None, gap=None):
    n, gap = n or args.n, gap or args.gap
    command = [HAND_OVER, "-v", flag, "-p", str(port), "-n", str(n),
               "-g", str(gap), "-b", str(args.bound)]
    if other is not None:
        command += ["-q", str(other)]
    return common.run_json(command, n * (gap / 1e3 + 0.1) + GRACE)


def raw_round_trip(server):
    """A create, one at a time, as fast as it goes."""
    result = common.run_json([RAW, "-s", server.address, "-c", "1",
                              "-t", str(RAW_SECONDS)], RAW_SECONDS + GRACE)
    return {"handover_%s_us" % name: result["acquire_%s_us" % name]
            for name in ("p50", "p99", "max")}


def ways(server, gateways, args, stack):
    """name -> what measures it once."""
    first, second = gateways
    found = {"raw round trip": lambda: raw_round_trip(server)}

    for name in GATEWAYS:
        other = second.port if name == "other gateway" else None
        found[name] = lambda flag=FLAGS[name], other=other: hand_over(
            flag, first.port, args, other)

    for name, command in (("curator", curator_command(server)),
                          ("kazoo", kazoo_command(server))):
        program = stack.enter_context(peer(name, command))
        if program is not None:
            found[name] = lambda program=program: program.measure(args.n,
                                                                  args.gap)

    etcd = http_contender(Etcd, server, args, stack)
    if etcd is not None:
        port = etcd.ports[0]
        found["etcd"] = lambda: hand_over("etcd", port, args, n=args.n // 5,
                                          gap=ETCD_GAP)
        found[ETCD_SOON] = lambda: hand_over("etcd", port, args,
                                                n=args.n // 5)
    return found


def measure_ways(server, args):
    runs = {}
    with contextlib.ExitStack() as stack:
        gateways = [stack.enter_context(common.gateway("handover-%d" % i,
                                                       server))
                    for i in (1, 2)]
        measures = ways(server, gateways, args, stack)
        for _ in range(args.rounds):
            for name in list(measures):
                if stuck(runs.get(name, [])):
                    continue
                try:
                    runs.setdefault(name, []).append(measures[name]())
                except (RuntimeError, subprocess.SubprocessError) as e:
                    if name in OURS:
                        raise
                    print("\n*** %s is left out: %s" % (name, e))
                    del measures[name], runs[name]
    return runs


def stuck(runs):
    """Once is enough to know that nobody is woken."""
    return any(run.get("not_granted") for run in runs)


def medians(runs):
    result = {}
    for name, found in runs.items():
        if stuck(found):
            continue
        result[name] = {
            key: median([run["handover_%s_us" % key] for run in found])
            for key in ("p50", "p99")}
        result[name]["max"] = max(run["handover_max_us"] for run in found)
        if "release_p50_us" in found[0]:
            result[name]["release_p50"] = median(
                [run["release_p50_us"] for run in found])
    return {name: {key + "_us": value for key, value in m.items()}
            for name, m in result.items()}


def print_ways(runs, args):
    found = medians(runs)
    raw = found["raw round trip"]["p50_us"]
    rows = []
    for name, m in found.items():
        rows.append([name, m["p50_us"], m["p99_us"], m["max_us"],
                     m.get("release_p50_us", float("nan")),
                     m["p50_us"] / raw])
    table("hand-over, us: from a release that is sent to the next grant that "
          "is read\n    (%d in each of %d rounds, %d ms of quiet before each)"
          % (args.n, args.rounds, args.gap),
          ["", "p50", "p99", "max", "the releaser's answer, p50",
           "p50 / raw p50"], rows)
    if "etcd" in found:
        print("    etcd brings new watches up to date each 100 ms: it has %d "
              "ms of quiet,\n    and '%s' as much as the others"
              % (ETCD_GAP, ETCD_SOON))
    for name in [name for name in runs if stuck(runs[name])]:
        print("    %s: %d hand-overs, then who waited was not granted within "
              "%g s of the release" % (name, runs[name][-1]["rounds"],
                                       args.bound))
    print("    webdis and Redis: no queue, so nobody is handed anything: left "
          "out")
    print_checks(runs)
    return found


def print_checks(runs):
    checks = {name: sum(run.get(name, 0) for found in runs.values()
                        for run in found)
              for name in ("overlaps", "fencing_backwards", "wrong_answers")}
    print("    checked at every grant: overlaps %(overlaps)d, fencing tokens "
          "that did not\n    grow %(fencing_backwards)d; wrong answers "
          "%(wrong_answers)d" % checks)


# --- a queue -----------------------------------------------------------------

class Queue:
    """Measures what a grant costs in a queue of some depth."""

    def __init__(self, server, tree, gateway, args):
        self.server = server
        self.tree = tree
        self.gateway = gateway
        self.args = args
        self.workers = gateway.worker_pids()

    def measure(self, depth):
        process = subprocess.Popen(
            tied([HAND_OVER, "-v", "queue", "-p", str(self.gateway.port),
                  "-c", str(depth), "-t", str(self.args.seconds), "-l", LOCK]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        try:
            return self._watch(process, depth)
        finally:
            process.kill()
            process.stdin.close()
            end(process)

    def _watch(self, process, depth):
        began = common.now()
        wait_until(lambda: self._claims() == depth, ARRIVE,
                   "all %d are in line" % depth)
        arrived = common.now() - began
        process.stdin.write(b"\n")

        before = self._counters_at(process, b"begin")
        after = self._counters_at(process, b"end")
        result = json.loads(read_line(process, GRACE + 60).decode())

        for name in ("p50", "p99", "max"):
            result["grant_%s_us" % name] = result.pop("handover_%s_us" % name)
        grants = max(result["rounds"], 1)
        for name, x, y in zip(("workers_us", "zookeeper_us", "reads_each",
                               "transactions"), before, after):
            result[name] = (y - x) / grants
        result["arrive_s"] = arrived
        result["claims_left"] = self._claims()
        return result

    def _claims(self):
        stat = self.tree.stat(self.gateway.root + "/" + LOCK)
        return stat.numChildren if stat else 0

    def _counters_at(self, process, word):
        said = read_line(process, self.args.seconds + GRACE).strip()
        assert said == word, said
        return (1e6 * common.cpu_of(self.workers),
                1e6 * common.cpu(self.server.process.pid),
                self.server.reads(self.gateway.root),
                self.server.transactions())


def measure_depths(server, tree, args):
    runs = {}
    with common.gateway("queue", server,
                        connections=args.connections) as gateway:
        queue = Queue(server, tree, gateway, args)
        queue.measure(min(args.depths))
        for _ in range(args.rounds):
            for depth in args.depths:
                runs.setdefault(depth, []).append(queue.measure(depth))
    return runs


DEPTH_KEYS = ("per_second", "grant_p50_us", "grant_p99_us",
              "workers_us", "zookeeper_us", "reads_each", "transactions")


def print_depths(runs, args):
    found = {str(depth): {key: median([run[key] for run in these])
                          for key in DEPTH_KEYS}
             for depth, these in runs.items()}
    table("a grant as the queue grows: a closed loop of so many clients on "
          "one lock\n    (%g s in each of %d rounds; CPU us, reads and "
          "transactions of ZooKeeper for each grant)"
          % (args.seconds, args.rounds),
          ["in line", "grants/s", "hand-over p50 us", "p99 us",
           "CPU: workers", "zk", "zk reads", "zk txn"],
          [[depth] + [m[key] for key in DEPTH_KEYS]
           for depth, m in found.items()])
    print_checks(runs)
    for what, name in (("unfinished", "not_granted"),
                       ("claims left", "claims_left")):
        n = max(run[name] for these in runs.values() for run in these)
        print("    %s: %d" % (what, n))
    return found


# --- all ---------------------------------------------------------------------

def arguments():
    p = common.parser(__doc__)
    p.add_argument("-n", type=int, help="hand-overs in a round (300)")
    p.add_argument("--gap", type=int, default=3,
                   help="ms of quiet before each (3)")
    p.add_argument("--bound", type=float, default=5.0,
                   help="seconds to wait for a grant (5)")
    p.add_argument("--rounds", type=int, help="of everything (3)")
    p.add_argument("--depths", type=int, nargs="+",
                   help="clients in line (10 100 1000 10000)")
    p.add_argument("--seconds", type=float, help="of each depth (3)")
    p.add_argument("--only", choices=("ways", "depth"))
    args = p.parse_args()
    quick = {"n": 100, "rounds": 1, "depths": [10, 100, 1000], "seconds": 1.0}
    whole = {"n": 300, "rounds": 3, "depths": [10, 100, 1000, 10000],
             "seconds": 3.0}
    return common.fill_in(args, quick, whole)


def main():
    args = arguments()
    most = max(args.depths)
    files = common.raise_open_files(most + 1000)
    if files < most + 500:
        args.depths = sorted({min(depth, files - 500)
                              for depth in args.depths})
        print("only %d open files are allowed: %d in line, not %d"
              % (files, args.depths[-1], most))
    args.connections = max(max(args.depths) + 500, 1024)

    print()
    results = {"setup": common.setup(
        args,
        workers="2, a listening socket each (reuseport)",
        nginx_settings=common.sizes_text(common.SMALL),
        module="zk_lock_zone 16m, access_log off, error_log notice",
        curator="two sessions of one Java, " + " ".join(CURATOR_FLAGS),
        kazoo="two processes, a session each",
        etcd="one private server, loopback, its JSON gateway")}

    began = common.now()
    with common.zookeeper(args.data) as (server, tree):
        if args.only != "depth":
            runs = measure_ways(server, args)
            results["ways"] = print_ways(runs, args)
            results["etcd_soon"] = results["ways"].pop(ETCD_SOON, None)
            results["ways_rounds"] = runs
        if args.only != "ways":
            runs = measure_depths(server, tree, args)
            results["depth"] = print_depths(runs, args)
            results["depth_rounds"] = runs

    results["seconds"] = common.now() - began
    common.write("handover", results)


if __name__ == "__main__":
    main()
