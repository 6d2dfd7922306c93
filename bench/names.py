"""Many different names, each used a few times; what is kept of them.

A pass takes each name once: its lock is acquired and released, by whichever of
the clients comes to it.  In the first pass of the gateway each lock's znode has
to be made as well.  These are containers: ZooKeeper removes those that are
unused, but no more than 10,000 a minute, so later passes find most of them.

With --million there are so many names, each used once: what do the workers
keep?
"""

import contextlib
import json
import subprocess
import time

import common
from common import median, memory, table
from contenders import Etcd, Webdis
from handover import GRACE, HAND_OVER, end, http_contender, read_line

from lib.process import tied

# seconds behind the million, to see ZooKeeper's own cleaning
REST = 75.0

HEAP = "-Xmx2g"         # of ZooKeeper, for a million znodes


class Names:
    """The program that uses names, and counters around each pass."""

    def __init__(self, dialect, port, clients, counters):
        self.counters = counters
        self.process = subprocess.Popen(
            tied([HAND_OVER, "-v", "names", "-d", dialect, "-p", str(port),
                  "-c", str(clients), "-l", "name"]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        end(self.process)

    def use(self, first, count):
        """One pass; counters are for each name."""
        before = self.counters()
        self.process.stdin.write(b"%d %d\n" % (first, count))
        result = json.loads(read_line(self.process,
                                      count / 50 + GRACE).decode())
        after = self.counters()
        for name in after:
            result[name] = (after[name] - before[name]) / count
        return result


# --- a few passes ------------------------------------------------------------

def gateway_counters(server, gateway):
    workers = gateway.worker_pids()
    return lambda: {
        "workers_us": 1e6 * common.cpu_of(workers),
        "zookeeper_us": 1e6 * common.cpu(server.process.pid),
        "reads_each": server.reads(gateway.root),
        "transactions": server.transactions()}


def left(server, tree):
    """Claims that are left: all ephemerals but one of each session's own."""
    return (int(server.mntr()["zk_ephemerals_count"])
            - len(tree.children("/zk_lock_gates")))


def through_gateway(server, tree, args, chunks):
    """A result for each chunk (first name, count), with the memory behind it
    and ZooKeeper's.
    """
    runs = []
    with common.gateway("names", server) as gateway:
        workers = gateway.worker_pids()
        start = memory(workers)
        with Names("gateway", gateway.port, args.clients,
                   gateway_counters(server, gateway)) as names:
            for first, count in chunks:
                result = names.use(first, count)
                result["workers"] = memory(workers)
                result["znodes"] = int(server.mntr()["zk_znode_count"])
                result["zookeeper_rss"] = memory([server.process.pid])["rss"]
                result["left"] = left(server, tree)
                runs.append(result)
    return {"start": start, "passes": runs}


def through(contender, server, args, chunks):
    """The same of one that is asked over HTTP; None if it is not there."""
    with contextlib.ExitStack() as stack:
        started = http_contender(contender, server, args, stack)
        if started is None:
            return None
        pids = started.pids()
        names = stack.enter_context(Names(
            contender.dialect, started.ports[0], args.clients,
            lambda: {"server_us": 1e6 * common.cpu_of(pids)}))
        return {"passes": [names.use(*chunk) for chunk in chunks],
                "settings": started.settings}


COLUMNS = [("workers_us", "CPU us each: workers"), ("zookeeper_us", "zk"),
           ("server_us", "CPU us each"), ("reads_each", "zk reads"),
           ("transactions", "zk txn")]


def print_passes(name, found):
    first = found["passes"][0]
    columns = [column for column in COLUMNS if column[0] in first]
    table("%s: %s names a pass, each acquired and released once"
          % (name, common.number(first["total"])),
          ["pass", "a second", "p50 ms", "p99 ms"]
          + [words for _, words in columns],
          [[str(i + 1), run["per_second"], run["cycle_p50_us"] / 1e3,
            run["cycle_p99_us"] / 1e3] + [run[key] for key, _ in columns]
           for i, run in enumerate(found["passes"])])
    wrong = sum(run["wrong_answers"] for run in found["passes"])
    print("    wrong answers: %d" % wrong)


def print_memory(title, found):
    def row(name, workers, run):
        return [name, workers["private"] / 1e6, workers["pss"] / 1e6,
                run.get("znodes", float("nan")),
                run.get("zookeeper_rss", float("nan")) / 1e6]

    rows = [row("start", found["start"], {})]
    names = 0
    for run in found["passes"]:
        names += run["total"]
        rows.append(row("after %s" % common.number(names), run["workers"],
                        run))
    table(title, ["locks", "workers' private MB", "pss MB",
                  "znodes in ZooKeeper", "its rss MB"], rows)
    print("    claims left in ZooKeeper: %d"
          % max(run["left"] for run in found["passes"]))


def passes(server, tree, args):
    """All contenders; the later passes of the gateway are its rate."""
    chunks = [(0, args.names)] * args.passes
    found = {"gateway": through_gateway(server, tree, args, chunks)}
    print_passes("gateway", found["gateway"])
    print_memory("memory of the gateway's workers", found["gateway"])

    for contender in (Etcd, Webdis):
        these = through(contender, server, args, chunks)
        if these is not None:
            found[contender.name] = these
            print_passes(contender.name, these)
            for what, words in these["settings"].items():
                print("    %s: %s" % (what, words))

    medians = {}
    for name, these in found.items():
        first, *later = [run["per_second"] for run in these["passes"]]
        medians[name] = {"first": first,
                         "per_second": median(later or [first])}
    return {"medians": medians, "contenders": found}


# --- a million ---------------------------------------------------------------

def million(server, tree, args):
    chunks = [(first, args.names)
              for first in range(0, args.million, args.names)]
    found = through_gateway(server, tree, args, chunks)
    print_passes("gateway", found)
    print_memory("%s different names, each used once"
                 % common.number(args.million), found)

    before = found["passes"][-1]["znodes"]
    time.sleep(REST)
    after = int(server.mntr()["zk_znode_count"])
    print("    ZooKeeper removed %s unused znodes in the %g s behind"
          % (common.number(before - after), REST))
    return dict(found, rest={"seconds": REST, "removed": before - after})


# --- all ---------------------------------------------------------------------

def arguments():
    p = common.parser(__doc__.partition("\n")[0])
    p.add_argument("--names", type=int, help="of a pass (100000)")
    p.add_argument("--passes", type=int, default=3, help="(3)")
    p.add_argument("--clients", type=int, default=128, help="(128)")
    p.add_argument("--million", type=int, nargs="?", const=1000000,
                   metavar="N", help="different names, each once, instead")
    args = p.parse_args()
    if args.names is None:
        args.names = 5000 if args.quick else 100000
    if args.million and args.quick:
        args.million = min(args.million, 10 * args.names)
    return args


def main():
    args = arguments()
    common.raise_open_files(args.clients + 1000)
    if args.million:
        common.JAVA_FLAGS = [flag for flag in common.JAVA_FLAGS
                             if not flag.startswith("-Xmx")] + [HEAP]

    print()
    results = {"setup": common.setup(
        args,
        workers="2, a listening socket each (reuseport)",
        clients="%d, keep-alive" % args.clients,
        nginx_settings=common.sizes_text(common.SMALL),
        module="zk_lock_zone 16m, access_log off, error_log notice")}

    began = common.now()
    with common.zookeeper(args.data) as (server, tree):
        if args.million:
            results["million"] = million(server, tree, args)
        else:
            results.update(passes(server, tree, args))

    results["seconds"] = common.now() - began
    common.write("names-million" if args.million else "names", results)


if __name__ == "__main__":
    main()
