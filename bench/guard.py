"""Guarded requests, side by side with other ways to the same answer.

The answer is a 204 without a body, of one content at each way:

    guarded       with zk_lock in front of the content
    three         the client acquires over HTTP, asks, and releases
    limit_conn    with limit_conn in front of the content: one host's limit
    plain         with nothing in front of the content
    raw           no HTTP: what a create takes, by ZooKeeper's C client; the
                  client deletes a znode before the client makes the next znode
    raw, ahead    the same, but the client waits for no delete

The ways over HTTP share one gateway.  In each round every case is measured once
at each way, and the next round begins with another way.
"""

import contextlib

import common
from common import median, table
from contenders import Loaded, Place, Raw
from throughput import (FIRST_CLIENTS, FIRST_TURNS, FIRST_WARM_UP, Meter,
                        left_of, lookup, words_of)

ROOT = "/locks"
PAUSE = 5               # ms between two requests of a calm client

WORKS = {"own": "a lock each", "hot": "one hot lock",
         "calm": "a request each %d ms" % PAUSE}
NONE = float("nan")

# what is asked of a guarded request: so many times the three requests' rate,
# and at most so many creates' time
CLIENTS = 128
RATE = 1.6
LATENCY = 1.25


def pause_of(work):
    return ["-g", str(PAUSE)] if work == "calm" else []


class Way(Loaded):
    """A way to the answer at the gateway that all ways share."""

    works = ("own", "hot", "calm")
    dialect = "one"
    location = ""
    extra = ()

    def run(self, work, clients, seconds, warm_up):
        self.extra = pause_of(work)
        return super().run(work, clients, seconds, warm_up)

    def more(self, clients):
        return self.extra

    def start(self):
        self.ports = [self.place.gateway.port]
        self.settings = {"location": "/%s/" % self.location}

    def lock_name(self, work):
        """The same in all runs: the znodes of its locks are there."""
        return "%s/?lock=%s" % (self.location, work)

    def serves(self):
        return dict(super().serves(),
                    workers=self.place.gateway.worker_pids())


class Guarded(Way):
    name = "guarded"
    root = ROOT
    location = "guard"


class Three(Way):
    name = "three"
    root = ROOT
    location = "plain"
    dialect = "three"
    fencing = True

    def lock_name(self, work):
        """Not a lock of guarded requests: both ways know their locks."""
        return work + "3"


class LimitConn(Way):
    name = "limit_conn"
    works = ("own", "calm")
    location = "limit"


class Plain(Way):
    name = "plain"
    works = ("own", "calm")
    location = "plain"


class RawPaused(Raw):
    works = ("own", "calm")

    def run(self, work, clients, seconds, warm_up):
        return self.load(clients, seconds, warm_up, *pause_of(work))


class RawAhead(Raw):
    name = "raw, ahead"

    def run(self, work, clients, seconds, warm_up):
        return self.load(clients, seconds, warm_up, "-a")


WAYS = (Guarded, Three, LimitConn, Plain, RawPaused, RawAhead)


class GuardMeter(Meter):
    """Notes also how many znodes each request made, changed and deleted, and
    how many reads were of locks: pings are not among these.
    """

    def _measured(self, contender, work, clients, seconds):
        before = self._of_locks()
        result = super()._measured(contender, work, clients, seconds)
        after = self._of_locks()
        for key, value in after.items():
            result[key] = (value - before[key]) / max(result["total"], 1)
        return result

    def _of_locks(self):
        return {"writes": max(each.writes(ROOT) for each in self.servers),
                "lock_reads": sum(each.reads(ROOT) for each in self.servers)}


# --- the measurement ----------------------------------------------------------

def cases_of(args):
    return ([("own", clients) for clients in args.own]
            + [("hot", clients) for clients in args.hot] + [("calm", 1)])


def warm_up(ways, args):
    """ZooKeeper is compiled for what all ways ask for."""
    seconds = FIRST_WARM_UP / (2 if args.quick else 1)
    for _ in range(1 if args.quick else FIRST_TURNS):
        for way in ways:
            if way.root is not None:
                way.run("own", FIRST_CLIENTS, seconds, 0)


def measure(meter, ways, args):
    warm_up(ways, args)
    for i in range(args.rounds):
        began = common.now()
        first = i % len(ways)
        for work, clients in cases_of(args):
            for way in ways[first:] + ways[:first]:
                if work in way.works:
                    meter.run(way, work, clients, args.seconds)
        print("    round %d of %d: %.0f s"
              % (i + 1, args.rounds, common.now() - began), flush=True)


def ratio(meter, work, clients, key, over, under):
    """The median of the rounds' ratios, the least, and the most; or None."""
    runs = [lookup(meter.rounds, name, work, str(clients))
            for name in (over, under)]
    if None in runs:
        return None
    ratios = [a[key] / b[key] for a, b in zip(*runs) if b[key]]
    return [median(ratios), min(ratios), max(ratios)] if ratios else None


def ratios_of(meter, args):
    """What guarded requests are compared with, case by case."""
    found = {}
    for work, clients in cases_of(args):
        for name in (way.name for way in WAYS if way is not Guarded):
            for key in ("per_second", "acquire_p50_us", "servers_us"):
                value = ratio(meter, work, clients, key, "guarded", name)
                if value is not None:
                    found["%s %d: %s of %s" % (work, clients, key,
                                               name)] = value
    return found


# --- what is printed ----------------------------------------------------------

HEAD = ["", "requests/s", "least..most", "p50 ms", "p99 ms",
        "create p50 ms", "CPU us each: servers", "clients", "zk txn",
        "znodes changed", "reads", "guarded is"]


def row(meter, medians, ratios, name, work, clients):
    m = lookup(medians, name, work, str(clients))
    rates = [run["per_second"]
             for run in lookup(meter.rounds, name, work, str(clients))]
    times = ratios.get("%s %d: per_second of %s" % (work, clients, name))
    raw = name.startswith("raw")
    locks = name in ("guarded", "three")
    return [name, m["per_second"],
            "%s..%s" % (common.number(min(rates)), common.number(max(rates))),
            m["cycle_p50_us"] / 1e3, m["cycle_p99_us"] / 1e3,
            m["acquire_p50_us"] / 1e3 if raw else NONE,
            m["servers_us"], m["clients_us"], m.get("transactions", NONE),
            m["writes"] if locks else NONE,
            m["lock_reads"] if locks else NONE,
            "%.2f x" % times[0] if times else ""]


def print_case(meter, medians, ratios, work, clients):
    names = [way.name for way in WAYS
             if lookup(meter.rounds, way.name, work, str(clients))]
    table("%s, %s clients" % (WORKS[work], common.number(clients)), HEAD,
          [row(meter, medians, ratios, name, work, clients)
           for name in names])
    for way in WAYS:
        said = words_of(lookup(meter.rounds, way.name, work, str(clients))
                        or [], way.fencing)
        if said:
            print("    *** %s %s" % (way.name, said))


def print_ratios(ratios):
    table("guarded requests' figures, by those of the other ways: medians of "
          "the rounds' ratios", ["", "median", "least", "most"],
          [[name] + values for name, values in ratios.items()])


def print_wanted(ratios):
    wanted = (("own %d: per_second of three" % CLIENTS, "at least", RATE),
              ("calm 1: acquire_p50_us of raw", "at most", LATENCY),
              ("own 1: acquire_p50_us of raw, ahead", "at most", LATENCY),
              ("own 1: acquire_p50_us of raw", "at most", LATENCY))
    table("what is wanted of them", ["", "is", "", "wanted"],
          [[name, ratios[name][0], how, bound]
           for name, how, bound in wanted if name in ratios])


def results_of(meter, ways, args, left):
    medians = meter.medians()
    ratios = ratios_of(meter, args)
    for work, clients in cases_of(args):
        print_case(meter, medians, ratios, work, clients)
    print("\n    'guarded is' so many times as fast; CPU us, transactions, "
          "znodes made, changed\n    and deleted, and reads of locks are for "
          "each request, or, with 'three', for\n    all three")
    print_ratios(ratios)
    print_wanted(ratios)
    for name, count in left.items():
        if count:
            print("    *** %s left %d claims in ZooKeeper" % (name, count))
    return {"settings": {way.name: way.settings for way in ways},
            "medians": medians, "ratios": ratios, "failed": meter.failed,
            "checks": meter.checks(), "left": left, "rounds": meter.rounds}


# --- all ----------------------------------------------------------------------

def arguments():
    p = common.parser(__doc__)
    p.add_argument("--workers", type=int, default=2, help="of nginx (2)")
    p.add_argument("--rounds", type=int, help="of everything (7)")
    p.add_argument("--seconds", type=float, help="of a measurement (2)")
    p.add_argument("--own", type=int, nargs="*", metavar="CLIENTS",
                   help="with a lock each (1 16 128)")
    p.add_argument("--hot", type=int, nargs="*", metavar="CLIENTS",
                   help="of one lock (64)")
    quick = {"rounds": 1, "seconds": 1.0, "own": [1, 128], "hot": [64]}
    whole = {"rounds": 7, "seconds": 2.0, "own": [1, 16, 128], "hot": [64]}
    args = p.parse_args()
    return common.fill_in(args, quick, whole)


def main():
    args = arguments()
    most = max(args.own + args.hot + [FIRST_CLIENTS])
    common.raise_open_files(4 * most + 1000)
    common.end_in_order()

    results = {"setup": common.setup(
        args, workers=args.workers,
        rounds="%d of %g s, a second of warm-up before each; medians of rounds"
               % (args.rounds, args.seconds),
        load="on the same cores: what it uses, the others lack")}

    began = common.now()
    with contextlib.ExitStack() as stack:
        zookeeper, tree = stack.enter_context(common.zookeeper(args.data))
        place = Place(zookeeper, args.data or common.OUT, clients=most)
        place.gateway = stack.enter_context(common.gateway(
            "guard", zookeeper, workers=args.workers,
            connections=most + 512))
        meter = GuardMeter(zookeeper)
        ways = [stack.enter_context(way(place)) for way in WAYS]
        measure(meter, ways, args)
        results.update(results_of(meter, ways, args, left_of(ways, tree)))

    results["seconds"] = common.now() - began
    common.write("guard", results)


if __name__ == "__main__":
    main()
