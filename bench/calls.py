"""What a call takes at the worker that has the claim, and at a sibling.

One client, one request after the other, on connections that stay open: a
renewal, a look, one more hold and its release, and the release of a lock that
was just granted.  With --old and the path of another module each round measures
both modules, one after the other.
"""

import contextlib
import os

import common
from common import median, table

from lib.client import lock_path

CALLS = ["renewal", "look", "hold", "release of a hold", "release"]


def call(connection, method, name, token, query=None):
    answer = connection.request(method, lock_path(name), query,
                                {"Lock-Token": token})
    assert answer.status in (200, 204), (method, answer.status, answer.body)


def timed(times, what, *args):
    began = common.now()
    call(*args)
    times[what].append(1e6 * (common.now() - began))


def measure(gateway, there, number):
    """Microseconds of the calls at a worker, of claims that another made."""
    connections = list(gateway.each_worker().values())
    home, place = connections[0], connections[1 if there else 0]
    times = {what: [] for what in CALLS}
    for i in range(number):
        name = "n%d" % (i % 16)
        token = home.request("POST", lock_path(name),
                             {"ttl": "1m"}).headers["Lock-Token"]
        for _ in range(3):
            timed(times, "renewal", place, "PUT", name, token)
            timed(times, "look", place, "GET", name, token)
        timed(times, "hold", place, "POST", name, token)
        timed(times, "release of a hold", place, "DELETE", name, token)
        timed(times, "release", place, "DELETE", name, token)
    for connection in connections:
        connection.close()
    return {what: median(times[what]) for what in CALLS}


def main():
    args = arguments()
    modules = [("new", {})]
    if args.old:
        modules.append(("old", {"module": os.path.abspath(args.old),
                                "page": False}))
    places = ["same worker", "sibling"]
    rounds = []

    print()
    results = {"setup": common.setup(args, workers="2 a gateway"),
               "rounds": rounds}

    with contextlib.ExitStack() as stack:
        server, _ = stack.enter_context(common.zookeeper(args.data))
        gateways = {name: stack.enter_context(common.gateway(
            "calls-" + name, server, **options)) for name, options in modules}
        for i in range(args.rounds + 1):
            order = list(gateways) if i % 2 else list(gateways)[::-1]
            found = {name: [measure(gateways[name], there, args.number)
                            for there in range(len(places))]
                     for name in order}
            if i != 0:      # the first warms ZooKeeper up
                rounds.append(found)

    for there, place in enumerate(places):
        table("At the %s: microseconds, medians of %d rounds"
              % (place, args.rounds), [""] + list(gateways),
              [[what] + [median([found[name][there][what]
                                 for found in rounds])
                         for name in gateways] for what in CALLS])
    common.write("calls", results)


def arguments():
    parser = common.parser(__doc__)
    parser.add_argument("--old", metavar="MODULE", help="another module")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--number", type=int, default=300,
                        help="locks a round")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.number = 2, 50
    return args


if __name__ == "__main__":
    main()
