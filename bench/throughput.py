"""Locks a second, of all contenders side by side.

In each round every case is measured once with each contender, one after the
other, and the next round begins with another one, so that what else the machine
does meets all of them alike.  A contender that fails is started again, and is
not asked for the same once more.
"""

import contextlib

import common
import contenders
from common import median, table
from contenders import Failed, Place

WARM_UP = 1.0           # seconds in front of each measurement

# a long line takes its time to form, and who is in it more than one measurement
LONG_LINE = 500         # clients of one lock
LONG_WARM_UP = 2.0
LONGER = 2              # times as long
FIRST_WARM_UP = 6.0     # seconds of each contender and work, in front of all
FIRST_CLIENTS = 64      # at most
FIRST_TURNS = 4         # of those that share ZooKeeper, which is compiled for
                        # what all of them ask for, and not for the last one

PROBLEMS = (Failed, AssertionError, OSError)

CHECKS = ("overlaps", "fencing_backwards", "wrong_answers", "unfinished")
WORKS = {"own": "a lock each", "hot": "one hot lock"}


class Meter:
    """Runs measurements, and notes what each lock cost.

    On a machine that does other things too, these are steadier than any rate.
    """

    def __init__(self, zookeeper):
        self.servers = common.servers_of(zookeeper)
        self.rounds = {}        # contender -> work -> clients -> results
        self.failed = {}        # contender -> work -> clients -> sentence
        self.gone = set()       # names of those that did not start again

    def run(self, contender, work, clients, seconds):
        key = (contender.name, work, str(clients))
        if contender.name in self.gone or lookup(self.failed, *key):
            return
        try:
            result = self._measured(contender, work, clients, seconds)
        except Failed as e:
            note(self.failed, *key, value=str(e))
            self.restart(contender)
            return
        if lookup(self.rounds, *key) is None:
            note(self.rounds, *key, value=[])
        lookup(self.rounds, *key).append(result)

    def restart(self, contender):
        try:
            contender.restart()
        except PROBLEMS as e:
            self.gone.add(contender.name)
            print("\n*** %s could not be started again: %s"
                  % (contender.name, e))

    def _measured(self, contender, work, clients, seconds):
        before = self._counters(contender)
        result = contender.run(work, clients, *times_of(work, clients,
                                                        seconds))
        after = self._counters(contender)
        total = max(result["total"], 1)
        each = {name: (after[name] - before[name]) / total for name in after}
        if contender.root is not None:
            result["transactions"] = each.pop("transactions")
            result["reads"] = each.pop("reads")
        result["cpu_us"] = {name: 1e6 * each[name]
                            for name in contender.serves()}
        result["servers_us"] = sum(result["cpu_us"].values())
        return result

    def _counters(self, contender):
        found = {name: common.cpu_of(pids)
                 for name, pids in contender.serves().items()}
        if contender.root is not None:
            found["transactions"] = max(server.transactions()
                                        for server in self.servers)
            found["reads"] = sum(server.lookups() for server in self.servers)
        return found

    def medians(self):
        return {name: {work: {clients: medians_of(runs)
                              for clients, runs in cases.items()}
                       for work, cases in works.items()}
                for name, works in self.rounds.items()}

    def checks(self):
        """contender -> what must not happen -> how often it did."""
        return {name: {check: sum(run.get(check, 0)
                                  for cases in works.values()
                                  for runs in cases.values() for run in runs)
                       for check in CHECKS}
                for name, works in self.rounds.items()}


def times_of(work, clients, seconds):
    """(seconds to count, seconds in front)"""
    if work == "hot" and clients >= LONG_LINE:
        return seconds * LONGER, LONG_WARM_UP
    return seconds, WARM_UP


def lookup(tree, *keys):
    for key in keys:
        if tree is None:
            return None
        tree = tree.get(key)
    return tree


def note(tree, *keys, value):
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = value


def medians_of(runs):
    """Of every number, those of members in it, too."""
    result = {}
    for name, value in runs[0].items():
        if isinstance(value, dict):
            result[name] = medians_of([run[name] for run in runs])
        else:
            result[name] = median([run[name] for run in runs])
    return result


RATIOS = {"per_second": "per_second", "p50": "cycle_p50_us",
          "p99": "cycle_p99_us", "servers": "servers_us"}


def ratios_of(medians):
    """The gateway's by each other's."""
    ratios = {}
    for name, works in medians.items():
        for work, cases in works.items():
            for clients, theirs in cases.items():
                ours = lookup(medians, "gateway", work, clients)
                if name == "gateway" or ours is None:
                    continue
                note(ratios, name, work, clients, value={
                    ratio: ours[key] / theirs[key]
                    for ratio, key in RATIOS.items() if theirs[key]})
    return ratios


# --- the measurement ----------------------------------------------------------

def cases_of(args):
    return ([("own", clients) for clients in args.own]
            + [("hot", clients) for clients in args.hot])


def warm_up(meter, those, args):
    """What is compiled, opened and made when it is used for the first time."""
    for turn in range(1 if args.quick else FIRST_TURNS):
        for contender in list(those):
            if turn == 0 or contender.root is not None:
                warm_up_one(meter, contender, args)


def warm_up_one(meter, contender, args):
    for work in contender.works:
        counts = args.own if work == "own" else args.hot
        if not counts:
            continue
        try:
            contender.run(work, min(max(counts), FIRST_CLIENTS),
                          FIRST_WARM_UP / 2 if args.quick else FIRST_WARM_UP,
                          0)
        except Failed as e:
            note(meter.failed, contender.name, "start", work, value=str(e))
            print("\n*** %s failed to warm up: %s" % (contender.name, e))
            meter.restart(contender)


def measure(meter, those, args):
    warm_up(meter, those, args)
    for i in range(args.rounds):
        began = common.now()
        first = i % len(those)
        order = those[first:] + those[:first]
        for work, clients in cases_of(args):
            for contender in order:
                if work in contender.works:
                    meter.run(contender, work, clients, args.seconds)
        print("    round %d of %d: %.0f s"
              % (i + 1, args.rounds, common.now() - began), flush=True)


def start(wanted, place, stack, failed):
    """Those that could be started."""
    found = []
    for contender in wanted:
        try:
            found.append(stack.enter_context(contender(place)))
        except PROBLEMS as e:
            note(failed, contender.name, "start", "", value=str(e))
            print("\n*** %s could not be started: %s" % (contender.name, e))
    return found


def left_of(those, tree):
    """Claims that are left where nobody holds or waits."""
    return {contender.name: len(tree.ephemerals(contender.root))
            for contender in those if contender.root is not None}


# --- what is printed ----------------------------------------------------------

HEAD = ["", "locks/s", "least..most", "cycle p50 ms", "p99 ms",
        "acquire p50 ms", "CPU us each: servers", "clients", "zk txn",
        "zk reads", "gateway is"]
NONE = float("nan")


def row(meter, medians, ratios, name, work, clients):
    m = lookup(medians, name, work, clients)
    rates = [run["per_second"] for run in lookup(meter.rounds, name, work,
                                                 clients)]
    ratio = lookup(ratios, name, work, clients, "per_second")
    nothing = not m["cycles"]
    return [name, m["per_second"],
            "%s..%s" % (common.number(min(rates)), common.number(max(rates)))
            ] + [NONE if nothing else m[key] / 1e3
                 for key in ("cycle_p50_us", "cycle_p99_us", "acquire_p50_us")
                 ] + [m["servers_us"], m["clients_us"],
                      m.get("transactions", NONE), m.get("reads", NONE),
                      "%.2f x" % ratio if ratio else ""]


def words_of(runs, fencing):
    """What must not happen, in words."""
    said = []
    for check, words in (
            ("overlaps", "let two hold one lock at once, %d times"),
            ("fencing_backwards", "gave %d fencing tokens that did not grow"),
            ("wrong_answers", "gave %d answers that were not expected"),
            ("unfinished", "left %d clients without the lock at the end")):
        n = sum(run.get(check, 0) for run in runs)
        if n and (fencing or check != "fencing_backwards"):
            said.append(words % n)
    stood = [run for run in runs if not run["cycles"]]
    if stood:
        said.append("got no lock in the seconds that count, in %d of %d rounds"
                    % (len(stood), len(runs)))
    return ", ".join(said)


def print_case(meter, medians, ratios, work, clients):
    key = str(clients)
    names = [contender.name for contender in contenders.ALL
             if lookup(meter.rounds, contender.name, work, key)]
    if names:
        table("%s, %s clients" % (WORKS[work], common.number(clients)), HEAD,
              [row(meter, medians, ratios, name, work, key)
               for name in names])
    for contender in contenders.ALL:
        name = contender.name
        said = words_of(lookup(meter.rounds, name, work, key) or [],
                        contender.fencing)
        failed = lookup(meter.failed, name, work, key)
        if said:
            print("    *** %s %s" % (name, said))
        if failed:
            print("    *** %s failed: %s" % (name, failed))


def print_checks(those, meter, left):
    checks = meter.checks()
    print()
    for contender in those:
        found = checks.get(contender.name)
        if found is None or "hot" not in contender.works:
            continue
        print("    %s, checked at every grant: overlaps %d, fencing tokens "
              "that did not\n        grow %s; wrong answers %d, unfinished %d"
              % (contender.name, found["overlaps"],
                 found["fencing_backwards"] if contender.fencing
                 else "(it has none)",
                 found["wrong_answers"], found["unfinished"]))
    for name, count in left.items():
        if count:
            print("    *** %s left %d claims in ZooKeeper" % (name, count))
    print("    claims left in ZooKeeper: %d" % sum(left.values()))


def print_settings(those):
    for contender in those:
        print("\n%s" % contender.name)
        for key, value in contender.settings.items():
            print("    %-14s %s" % (key, value))
    print()


def results_of(meter, those, args, left):
    medians = meter.medians()
    ratios = ratios_of(medians)
    for work, clients in cases_of(args):
        print_case(meter, medians, ratios, work, clients)
    print("\n    'gateway is' so many times as fast; CPU us, ZooKeeper's "
          "transactions and its\n    reads (all lookups) are for each lock; "
          "waiting for a lock is in its cycle")
    print_checks(those, meter, left)
    return {"contenders": {c.name: c.settings for c in those},
            "medians": medians, "ratios": ratios, "failed": meter.failed,
            "checks": meter.checks(), "left": left, "rounds": meter.rounds}


# --- all ----------------------------------------------------------------------

def arguments():
    p = common.parser(__doc__)
    p.add_argument("--ensemble", action="store_true",
                   help="ZooKeeper, and etcd, on three servers")
    p.add_argument("--only", metavar="NAME[,NAME]...", type=contenders_of,
                   default=[c for c in contenders.ALL if not c.asked],
                   help="of the contenders: "
                   + ", ".join(c.name for c in contenders.ALL))
    p.add_argument("--rounds", type=int, help="of everything (3)")
    p.add_argument("--seconds", type=float, help="of a measurement (2)")
    p.add_argument("--own", type=int, nargs="*", metavar="CLIENTS",
                   help="with a lock each (1 16 128 1000)")
    p.add_argument("--hot", type=int, nargs="*", metavar="CLIENTS",
                   help="of one lock (2 16 64 1000)")
    args = p.parse_args()
    quick = {"rounds": 1, "seconds": 1.0, "own": [1, 16, 128], "hot": [2, 16]}
    whole = {"rounds": 3, "seconds": 2.0, "own": [1, 16, 128, 1000],
             "hot": [2, 16, 64, 1000]}
    for key, value in (quick if args.quick else whole).items():
        if getattr(args, key) is None:
            setattr(args, key, value)
    if not args.own and not args.hot:
        p.error("nothing is to be measured")
    return args


def contenders_of(text):
    known = {contender.name: contender for contender in contenders.ALL}
    return [known[name] for name in text.split(",")]


def present(args, members):
    """The contenders that are here; says which are not, and why."""
    found = []
    for contender in args.only:
        missing = contender.missing()
        if missing:
            print("%s is left out: install %s" % (contender.name, missing))
        elif members not in contender.members:
            print("%s is left out: it cannot be had on %d servers"
                  % (contender.name, members))
        else:
            found.append(contender)
    return found


def setup(args, members):
    more = {}
    if members > 1:
        more["zookeeper"] = ("an ensemble of %d on this machine, loopback, "
                             "fsync of all to %s, %s"
                             % (members, args.data or "build/bench",
                                " ".join(common.JAVA_FLAGS)))
    return common.setup(
        args,
        rounds="%d of %g s, %g s of warm-up before each; medians of rounds"
               % (args.rounds, args.seconds, WARM_UP),
        long_lines="of %d clients and more: %g s, %g s of warm-up"
                   % (LONG_LINE, args.seconds * LONGER, LONG_WARM_UP),
        load="on the same cores: what it uses, the others lack", **more)


def main():
    args = arguments()
    members = 3 if args.ensemble else 1
    most = max(args.own + args.hot)
    common.raise_open_files(4 * most + 1000)
    common.end_in_order()

    print()
    wanted = present(args, members)
    results = {"setup": setup(args, members)}

    began = common.now()
    with contextlib.ExitStack() as stack:
        zookeeper, tree = stack.enter_context(
            common.zookeeper(args.data, members))
        meter = Meter(zookeeper)
        those = start(wanted, Place(zookeeper, args.data or common.OUT,
                                    members, most), stack, meter.failed)
        print_settings(those)
        if those:
            measure(meter, those, args)
            results.update(results_of(meter, those, args,
                                      left_of(those, tree)))

    results["seconds"] = common.now() - began
    common.write("throughput-ensemble" if args.ensemble else "throughput",
                 results)


if __name__ == "__main__":
    main()
