"""What waiters cost: memory, their leaving, their neighbours, idle CPU."""

import re
import subprocess
import time

import common
from common import (answered, crowd, get, leave, less, median, memory, post,
                    table)

SETTLE = 0.5            # seconds; what is late after a crowd has come
ARRIVE = 60.0           # seconds; for a crowd's claims to be made
LEAVE = 30.0            # seconds; for them to go

LOCK = "crowded"
WAIT = post("/locks/%s?wait=1h" % LOCK)
HELD = post("/held/1k?as=long-as-it")       # as WAIT
GUARDED = post("/guard/?lock=%s&x" % LOCK)
STATIC = get("/static/1k")

assert len(WAIT) == len(HELD) == len(GUARDED)


class Queue:
    """A lock of a gateway, held by one claim, and those who wait for it."""

    def __init__(self, gateway, tree):
        self.gateway = gateway
        self.tree = tree
        self.znode = gateway.znode(LOCK)
        self.crowds = 0
        self.sockets = []
        self.token = gateway.hold(LOCK, ttl="1h").token

    def claims(self):
        """The number of claims, without a list of them."""
        stat = self.tree.stat(self.znode)
        return stat.numChildren if stat else 0

    def arrive(self, n, request=WAIT):
        """n waiters; the seconds until all their claims are made."""
        began = common.now()
        self.crowds += 1
        self.sockets = crowd(self.gateway.port, n, request,
                             source=2 + self.crowds % 200)
        self._until(n + 1, ARRIVE)
        seconds = common.now() - began
        time.sleep(SETTLE)
        if answered(self.sockets):
            print("\n*** %d do not wait" % answered(self.sockets))
        return seconds

    def leave(self):
        """All hang up; (seconds of hanging up, until no claim is left,
        waiters' claims that are left).
        """
        began = common.now()
        leave(self.sockets)
        hung_up = common.now() - began
        self.sockets = []
        self._until(1, LEAVE)
        return hung_up, common.now() - began, self.claims() - 1

    def _until(self, n, timeout):
        deadline = common.now() + timeout
        while self.claims() != n and common.now() < deadline:
            time.sleep(0.005)
        if self.claims() != n:
            print("\n*** %d claims after %g s instead of %d"
                  % (self.claims(), timeout, n))

    def end(self):
        self.gateway.release(LOCK, self.token)


# --- 1. memory --------------------------------------------------------------

def grown(gateway, n, come):
    """What n of something that comes add to the workers, in bytes each."""
    workers = gateway.worker_pids()
    before = memory(workers)
    come()
    time.sleep(SETTLE)
    added = less(memory(workers), before)
    return {key: value / n for key, value in added.items()}


def connections_grown(server, args, name, sizes, **how):
    with common.gateway(name, server, connections=args.connections,
                        sizes=sizes) as gateway:
        sockets = []
        gateway.call("GET", "/static/1k")
        result = grown(gateway, args.n, lambda: sockets.extend(
            crowd(gateway.port, args.n, **how)))
        if "answer" not in how and answered(sockets) > 1:
            print("\n*** %d were answered" % answered(sockets))
        leave(sockets)
        return result


def waiters_grown(server, tree, args, name, sizes, request=WAIT):
    with common.gateway(name, server, connections=args.connections,
                        sizes=sizes) as gateway:
        queue = Queue(gateway, tree)
        result = grown(gateway, args.n, lambda: queue.arrive(args.n, request))
        queue.leave()
        queue.end()
        return result


def memory_of_waiters(server, tree, args, sizes, waiter=None):
    """A crowd of each sort on a fresh gateway of equal settings."""
    grows = {}
    if waiter is None:
        grows["idle connection"] = connections_grown(
            server, args, "idle", sizes)
        grows["keep-alive connection"] = connections_grown(
            server, args, "keepalive", sizes, request=STATIC, answer=True)
    grows["request held by nginx"] = connections_grown(
        server, args, "held", sizes, request=HELD)
    if waiter is None:
        waiter = waiters_grown(server, tree, args, "waiters", sizes)
    grows["request waiting for a lock"] = waiter
    grows["guarded request waiting"] = waiters_grown(
        server, tree, args, "guarded", sizes, GUARDED)

    print_memory(grows, args, sizes)
    return {"settings": sizes, "bytes_each": grows}


def print_memory(grows, args, sizes):
    waiter = grows["request waiting for a lock"]
    rows = []
    for name, each in grows.items():
        rows.append([name, int(each["private"]), int(each["pss"]),
                     int(each["shared"]), int(each["rss"]),
                     int(waiter["pss"] - each["pss"])])
    table("memory: bytes each, of %d, over both workers\n"
          "    (%s)" % (args.n, common.sizes_text(sizes)),
          ["", "private", "pss", "of it zone", "rss", "waiter's pss more"],
          rows)
    held = grows["request held by nginx"]["pss"]
    print("    nginx's own request and connection: %.0f %% of a waiter"
          % (100 * held / waiter["pss"]))


# --- 1, 2 and 4 on one gateway ------------------------------------------------

def cpu_while(workers, server, seconds):
    """CPU seconds of the workers, and of ZooKeeper."""
    groups = (workers, [server.process.pid])
    before = [common.cpu_of(pids) for pids in groups]
    time.sleep(seconds)
    return [common.cpu_of(pids) - used for pids, used in zip(groups, before)]


def crowd_on_one_gateway(server, tree, args):
    """Idle CPU without and with waiters, then all hang up, several times."""
    result = {"cpu": {}, "leave": [], "arrive_s": [], "memory_after": []}

    with common.gateway("crowd", server,
                        connections=args.connections) as gateway:
        workers = gateway.worker_pids()
        queue = Queue(gateway, tree)
        result["cpu"]["none"] = cpu_while(workers, server, args.idle)
        start = memory(workers)

        for i in range(args.rounds):
            result["arrive_s"].append(queue.arrive(args.n))
            if i == 0:
                result["cpu"]["waiting"] = cpu_while(workers, server,
                                                     args.idle)
            result["leave"].append(queue.leave())
            time.sleep(SETTLE)
            result["memory_after"].append(
                less(memory(workers), start)["pss"])
        queue.end()
    return result


def print_crowd(result, args):
    table("hang-up: %d waiters of one lock close at once, %d rounds"
          % (args.n, args.rounds),
          ["round", "arrive s", "closing s", "none left after s", "left",
           "pss over start, MB"],
          [[str(i + 1), arrive, closing, seconds, left, after / 1e6]
           for i, (arrive, (closing, seconds, left), after)
           in enumerate(zip(result["arrive_s"], result["leave"],
                            result["memory_after"]))])
    print("    median: %.2f s until no claim is left; left: %d"
          % (median([seconds for _, seconds, _ in result["leave"]]),
             max(left for _, _, left in result["leave"])))

    table("idle CPU: seconds used by both workers, and by ZooKeeper, in %g s"
          % args.idle,
          ["waiters", "workers", "of a core", "ZooKeeper", "of a core"],
          [[waiters] + [cell for used in result["cpu"][which]
                        for cell in (used, "%.2f %%" % (100 * used
                                                        / args.idle))]
           for waiters, which in (("0", "none"),
                                  (str(args.n), "waiting"))])


# --- 3. neighbours -----------------------------------------------------------

KEYS = ("per_second", "p50_ms", "p99_ms", "worker_us")


def wrk(gateway, seconds):
    """Requests a second, p50 and p99 in ms, CPU us of the worker for each, of
    a static file of 1 KiB.
    """
    workers = gateway.worker_pids()
    before = common.cpu_of(workers)
    run = subprocess.run(["wrk", "-t1", "-c16", "-d%ds" % seconds,
                          "--latency",
                          "http://127.0.0.1:%d/static/1k" % gateway.port],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         timeout=seconds + 30, check=True)
    used = common.cpu_of(workers) - before
    text = run.stdout.decode()
    assert "Non-2xx" not in text and "Socket errors" not in text, text
    requests = int(re.search(r"(\d+) requests in", text).group(1))
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)
    return {"per_second": float(rate),
            "p50_ms": quantile(text, "50%"),
            "p99_ms": quantile(text, "99%"),
            "worker_us": 1e6 * used / requests}


def quantile(text, name):
    value, unit = re.search(r"\s%s\s+([\d.]+)(us|ms|s)\b" % name,
                            text).groups()
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def neighbours(server, tree, args):
    rounds = {"without": [], "with": []}
    with common.gateway("neighbours", server, workers=1,
                        connections=args.connections) as gateway:
        queue = Queue(gateway, tree)
        wrk(gateway, 1)
        for _ in range(args.wrk_rounds):
            rounds["without"].append(wrk(gateway, args.wrk_seconds))
            queue.arrive(args.neighbours)
            rounds["with"].append(wrk(gateway, args.wrk_seconds))
            queue.leave()
            time.sleep(SETTLE)
        queue.end()

    medians = {which: {key: median([r[key] for r in rounds[which]])
                       for key in KEYS}
               for which in rounds}
    ratios = {key: medians["with"][key] / medians["without"][key]
              for key in medians["with"]}
    print_neighbours(rounds, medians, ratios, args)
    return {"rounds": rounds, "medians": medians, "ratios": ratios}


def print_neighbours(rounds, medians, ratios, args):
    rows = []
    for i in range(args.wrk_rounds):
        for which in ("without", "with"):
            rows.append(["%d %s" % (i + 1, which)]
                        + [rounds[which][i][key] for key in KEYS])
    for which in ("without", "with"):
        rows.append(["median " + which] + [medians[which][key]
                                           for key in KEYS])
    rows.append(["with / without"] + [ratios[key] for key in KEYS])
    table("neighbours: a static file of 1 KiB from one worker, without and "
          "with %d waiters\n    (wrk -t1 -c16 -d%ds)"
          % (args.neighbours, args.wrk_seconds),
          ["round", "requests/s", "p50 ms", "p99 ms", "CPU us each"], rows)


# --- all ---------------------------------------------------------------------

def arguments():
    p = common.parser(__doc__)
    p.add_argument("-n", type=int, help="waiters (10000)")
    p.add_argument("--rounds", type=int, help="of hanging up (3)")
    p.add_argument("--idle", type=float, help="seconds of idle CPU (10)")
    p.add_argument("--neighbours", type=int, default=1000,
                   help="waiters beside the static file (1000)")
    p.add_argument("--wrk-rounds", type=int, help="of each sort (8)")
    p.add_argument("--wrk-seconds", type=int, default=1,
                   help="of each round (1)")
    args = p.parse_args()
    quick = {"n": 2000, "rounds": 2, "idle": 3.0, "wrk_rounds": 2}
    whole = {"n": 10000, "rounds": 3, "idle": 10.0, "wrk_rounds": 8}
    return common.fill_in(args, quick, whole)


def main():
    args = arguments()
    files = common.raise_open_files(2 * args.n + 1000)
    if files < args.n + 500:
        fewer = files - 500
        print("only %d open files are allowed: %d waiters, not %d"
              % (files, fewer, args.n))
        args.n = fewer
    args.connections = max(args.n + 500, 1024)

    results = {"setup": common.setup(
        args,
        workers="2, a listening socket each (reuseport); 1 for neighbours",
        connections="worker_connections %d, open files %d"
                    % (args.connections, files),
        nginx_settings=common.sizes_text(common.SMALL),
        module="zk_lock_zone 16m, access_log off, error_log notice")}

    began = common.now()
    with common.zookeeper(args.data) as (server, tree):
        results["memory"] = memory_of_waiters(server, tree, args,
                                              common.SMALL)
        if not args.quick:
            results["memory_defaults"] = memory_of_waiters(
                server, tree, args, common.DEFAULTS,
                waiters_grown(server, tree, args, "waiters",
                              common.DEFAULTS))
        results["crowd"] = crowd_on_one_gateway(server, tree, args)
        print_crowd(results["crowd"], args)
        results["neighbours"] = neighbours(server, tree, args)

    results["seconds"] = common.now() - began
    common.write("waiters", results)


if __name__ == "__main__":
    main()
