"""Locks a second through the gateway, and of raw ZooKeeper beside it.

In each round every measurement is made once, the gateway's and ZooKeeper's own
in turn, so that what else the machine does meets all of them alike.
"""

import os

import common
from common import median, table

LOAD = os.path.join(common.OUT, "load")
RAW = os.path.join(common.OUT, "rawzk")

WARM_UP = 0.5           # seconds in front of each measurement
ROUNDS_WARM = 3.0       # seconds in front of all, of each sort
GRACE = 30.0


def load(gateway, clients, seconds, one_lock=False, warm_up=WARM_UP):
    command = [LOAD, "-p", str(gateway.port), "-c", str(clients),
               "-t", str(seconds), "-w", str(warm_up),
               "-n", "hot" if one_lock else "own"]
    return common.run_json(command + (["-o"] if one_lock else []),
                           warm_up + seconds + GRACE)


def raw(server, in_flight, seconds, warm_up=WARM_UP):
    return common.run_json([RAW, "-s", server.address, "-c", str(in_flight),
                            "-t", str(seconds), "-w", str(warm_up)],
                           warm_up + seconds + GRACE)


class Meter:
    """Runs a measurement, and notes what each lock cost.

    On a machine that does other things too, these are steadier than any rate.
    """

    def __init__(self, server, gateway):
        self.server = server
        self.gateway = gateway
        self.workers = gateway.worker_pids()
        self.results = {}

    def run(self, key, measure):
        before = self._counters()
        result = measure()
        after = self._counters()
        workers, zookeeper, transactions = (
            (y - x) / max(result["total"], 1) for x, y in zip(before, after))
        result["workers_us"] = 1e6 * workers
        result["zookeeper_us"] = 1e6 * zookeeper
        result["transactions"] = transactions
        self.results.setdefault(key, []).append(result)

    def _counters(self):
        return (common.cpu_of(self.workers),
                common.cpu(self.server.process.pid),
                self.server.transactions())

    def medians(self):
        return {key: {name: median([run[name] for run in runs])
                      for name in runs[0]}
                for key, runs in self.results.items()}

    def worst(self, name):
        return max((run[name] for runs in self.results.values()
                    for run in runs if name in run), default=0)


def measure(server, gateway, args):
    meter = Meter(server, gateway)

    load(gateway, max(args.own), ROUNDS_WARM / 2, warm_up=0)
    raw(server, max(args.own), ROUNDS_WARM / 2, warm_up=0)

    for _ in range(args.rounds):
        for k in args.own:
            meter.run("own-%d" % k, lambda: load(gateway, k, args.seconds))
            meter.run("raw-%d" % k, lambda: raw(server, k, args.seconds))
        for k in args.hot:
            meter.run("hot-%d" % k,
                      lambda: load(gateway, k, args.seconds, one_lock=True))
    return meter


# --- what is printed ---------------------------------------------------------

HEAD = ["clients", "a second", "least..most", "p50 ms", "p99 ms",
        "CPU us each: workers", "zk", "zk txn each"]


def row(meter, medians, key):
    m = medians[key]
    rates = [run["per_second"] for run in meter.results[key]]
    return [key.partition("-")[2], m["per_second"],
            "%s..%s" % (common.number(min(rates)),
                        common.number(max(rates))),
            m["cycle_p50_us"] / 1e3, m["cycle_p99_us"] / 1e3,
            m["workers_us"], m["zookeeper_us"], m["transactions"]]


def print_results(meter, args):
    medians = meter.medians()

    table("the gateway: each client its own lock, acquire + release",
          HEAD, [row(meter, medians, "own-%d" % k) for k in args.own])
    table("raw libzookeeper: create + delete, one session, so many in flight",
          HEAD, [row(meter, medians, "raw-%d" % k) for k in args.own])

    ratios = {}
    for k in args.own:
        own, bare = medians["own-%d" % k], medians["raw-%d" % k]
        ratios[k] = {"per_second": own["per_second"] / bare["per_second"],
                     "p50": own["cycle_p50_us"] / bare["cycle_p50_us"],
                     "p99": own["cycle_p99_us"] / bare["cycle_p99_us"]}
    table("gateway / raw",
          ["clients", "a second", "p50", "p99"],
          [[str(k), r["per_second"], r["p50"], r["p99"]]
           for k, r in ratios.items()])

    table("the gateway: one hot lock, grants (waiting is in p50 and p99)",
          HEAD, [row(meter, medians, "hot-%d" % k) for k in args.hot])

    checks = {name: meter.worst(name) for name in
              ("overlaps", "fencing_backwards", "wrong_answers",
               "unfinished")}
    print("    checked at every grant: overlaps %(overlaps)d, fencing tokens "
          "that did not\n    grow %(fencing_backwards)d; wrong answers "
          "%(wrong_answers)d, unfinished %(unfinished)d" % checks)

    return {"medians": medians, "ratios": ratios, "checks": checks,
            "rounds": meter.results}


def print_left(gateway, tree):
    """Claims that are left where nobody holds or waits."""
    left = {path: owner for path, owner
            in tree.ephemerals(gateway.root).items()}
    print("    claims left in ZooKeeper: %d" % len(left))
    return len(left)


def arguments():
    p = common.parser(__doc__)
    p.add_argument("--rounds", type=int, help="of everything (3)")
    p.add_argument("--seconds", type=float, help="of a measurement (2)")
    p.add_argument("--workers", type=int, default=2, help="(2)")
    p.add_argument("--own", type=int, nargs="+", default=[1, 16, 128],
                   help="clients with a lock each (1 16 128)")
    p.add_argument("--hot", type=int, nargs="+", default=[2, 16, 64],
                   help="clients of one lock (2 16 64)")
    args = p.parse_args()
    if args.rounds is None:
        args.rounds = 1 if args.quick else 3
    if args.seconds is None:
        args.seconds = 1.0 if args.quick else 2.0
    return args


def main():
    args = arguments()
    print()
    results = {"setup": common.setup(
        args,
        workers="%d, a listening socket each (reuseport)" % args.workers,
        nginx_settings=common.sizes_text(common.SMALL),
        module="zk_lock_zone 16m, access_log off, error_log notice",
        rounds="%d of %g s, %g s of warm-up before each; medians of rounds"
               % (args.rounds, args.seconds, WARM_UP),
        load="on the same cores: what it uses, the others lack")}

    began = common.now()
    with common.zookeeper(args.data) as (server, tree):
        with common.gateway("throughput", server,
                            workers=args.workers) as gateway:
            meter = measure(server, gateway, args)
            results.update(print_results(meter, args))
            results["left"] = print_left(gateway, tree)

    results["seconds"] = common.now() - began
    common.write("throughput", results)


if __name__ == "__main__":
    main()
