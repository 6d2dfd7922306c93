"""What it takes to count the leases of a gateway that has died.

A gateway has durable leases, beside many names that have none, and all of its
processes are killed.  Another gateway takes the leases over.  How long does
that take from the end of the first gateway's sessions, what does it cost
ZooKeeper, are claims written, and what are the other clients told meanwhile?
A lease is counted when both workers tell its deadline by the token.
"""

import contextlib
import http.client
import threading
import time

import common
from common import table

from lib import metrics
from lib.client import lock_path

TTL = "30m"
TIMEOUT = 10.0          # seconds: the sessions' timeout
PATIENCE = 600.0


class Other(threading.Thread):
    """A client of the gateway that lives: takes a lock and lets go."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port,
                                                     timeout=30)
        self.times = []
        self.refused = 0
        self.over = False
        self.start()

    def run(self):
        while not self.over:
            began = common.now()
            answer = self.ask("POST", lock_path("other") + "?wait=10s&ttl=10s")
            if answer.status == 201:
                self.ask("DELETE", answer.headers["Location"])
            self.refused += (answer.status != 201)
            self.times.append(common.now() - began)
            time.sleep(0.01)

    def ask(self, method, path):
        self.connection.request(method, path)
        answer = self.connection.getresponse()
        answer.read()
        return answer

    def end(self):
        self.over = True
        self.join()


def make_names(tree, root, number):
    for first in range(0, number, 1000):
        transaction = tree.client.transaction()
        for i in range(first, min(first + 1000, number)):
            transaction.create("%s/name%d" % (root, i), b"")
        transaction.commit()


def path(name):
    return "%s?ttl=%s&durable=1" % (lock_path(name), TTL)


def hold(gateway, number):
    """number durable leases: (name, location of the token) each."""
    leases = []
    clients = [http.client.HTTPConnection("127.0.0.1", gateway.port)
               for _ in range(32)]
    for first in range(0, number, len(clients)):
        names = ["lease%d" % i
                 for i in range(first, min(first + len(clients), number))]
        for client, name in zip(clients, names):
            client.request("POST", path(name))
        for client, name in zip(clients, names):
            answer = client.getresponse()
            answer.read()
            while answer.status == 503:     # ZooKeeper's disk stood still
                time.sleep(1)
                client.request("POST", path(name))
                answer = client.getresponse()
                answer.read()
            assert answer.status == 201, answer.status
            leases.append((name, answer.headers["Location"]))
    return leases


def counted(connections, leases):
    """How many of the leases have a deadline by the token, at each worker."""
    return [sum("expires_in_ms" in (client.request("GET", location).json or {})
                for _, location in leases)
            for client in connections.values()]


def series(gateway):
    return metrics.parse(gateway.call("GET", gateway.gauges).body.decode())


def held(gateway):
    return series(gateway)['zk_lock_claims{state="held"}']


def operations(gateway):
    """What ZooKeeper has answered so far: reads, writes."""
    now = series(gateway)
    return [now['zk_lock_zookeeper_operations_total{operation="%s"}' % kind]
            for kind in ("read", "write")]


def written(tree, claims):
    """Which znode each claim is, and how often its data were written."""
    stats = [tree.stat(claim) for claim in claims]
    return [(stat.czxid, stat.version) for stat in stats]


def measure(server, tree, args):
    with contextlib.ExitStack() as stack:
        lives, dies = [stack.enter_context(common.gateway(
            name, server, connections=4096))
            for name in ("lives", "dies")]
        make_names(tree, dies.root, args.names)
        leases = hold(dies, args.leases)
        claims = [dies.znode(name) + "/" + tree.claims(dies.znode(name))[0]
                  for name, _ in leases]
        before = written(tree, claims)
        connections = lives.each_worker()
        reads, writes = operations(lives)
        other = Other(lives.port)

        dies.kill()
        killed = common.now()
        while held(lives) < args.leases:
            assert common.now() < killed + PATIENCE, held(lives)
            time.sleep(0.05)
        seconds = common.now() - killed

        other.end()
        after = operations(lives)
        rounds = len(other.times)
        result = {
            "leases": args.leases, "names": args.names,
            "seconds_after_kill": seconds,
            "reads": after[0] - reads, "writes": after[1] - writes,
            "by_token": counted(connections, leases),
            "claims_written": sum(one != two for one, two in
                                  zip(before, written(tree, claims))),
            "others": rounds, "others_refused": other.refused,
            "others_worst_ms": 1e3 * max(other.times)}
        for name, location in leases:
            lives.call("DELETE", location)
    return result


def main():
    args = arguments()
    common.raise_open_files(10000)
    common.HTTP = common.HTTP.replace("zk_lock_zone 16m", "zk_lock_zone 128m")

    print()
    results = {"setup": common.setup(
        args, workers="2 a gateway", timeout="%g s" % TIMEOUT)}

    with common.zookeeper(args.data) as (server, tree):
        found = results["takeover"] = measure(server, tree, args)

    table("A gateway with %s leases dies, beside %s other names"
          % (common.number(found["leases"]), common.number(found["names"])),
          ["", ""],
          [["all are counted after, s", found["seconds_after_kill"]],
           ["of these, the sessions' timeout, s", TIMEOUT],
           ["reads of ZooKeeper, by the others' %d rounds, too"
            % found["others"], found["reads"]],
           ["writes", found["writes"]],
           ["claims that were written", found["claims_written"]],
           ["deadlines by the token, at worker 1", found["by_token"][0]],
           ["at worker 2", found["by_token"][1]],
           ["rounds of another client", found["others"]],
           ["refused", found["others_refused"]],
           ["the longest, ms", found["others_worst_ms"]]])
    common.write("takeover", results)


def arguments():
    parser = common.parser(__doc__)
    parser.add_argument("--leases", type=int, default=3000)
    parser.add_argument("--names", type=int, default=100000)
    args = parser.parse_args()
    if args.quick:
        args.leases, args.names = 200, 2000
    return args


if __name__ == "__main__":
    main()
