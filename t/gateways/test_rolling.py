"""Gateways behind a balancer, and ZooKeeper's servers, restarted in turn.

The commands are those of docs/operations.md, and the balancer is that of
docs/monitoring.md.  All the time a hundred leases are renewed, half of these
locks have a waiter, and the clients of clients/ take a lock in a loop.  No
lease and no waiter may be lost, and no lock may have two holders.

The balancer's log has all that the clients are told: nothing but 2xx and 423,
and for each restart one 503 for a client at most, which the client repeats.

ZK_LOCK_ROLLS is how often all are restarted.
"""

import collections
import os
import subprocess
import threading
import time
import traceback
import types
import uuid

from lib.checks import retry_after
from lib.client import Connection, lock_path
from lib.drivers import LANGUAGES
from lib.examples import codes
from lib.holders import Keeper, Lock
from lib.process import tied, wait_until, whole_lines

ROLLS = int(os.environ.get("ZK_LOCK_ROLLS") or 1)
LEASES = 100
WAITERS = 50
TTL = "30s"
PATIENCE = 60.0

OPERATIONS = "docs/operations.md"
MONITORING = "docs/monitoring.md"

# a client says its name as the user
LOG = """
log_format clients '$msec $status $http_authorization $request_method '
                   '$http_idempotency_key $sent_http_retry_after '
                   '$request_time';
access_log clients.log clients;
"""


class Caller:
    """A client; each call has its own connection, and has to be answered."""

    def __init__(self, port, name):
        self.port = port
        self.name = name

    def ask(self, method, path, query=None, key=None):
        headers = {"Authorization": self.name}
        if key:
            headers["Idempotency-Key"] = key
        with Connection(self.port) as connection:
            return connection.request(method, path, query, headers,
                                      timeout=300)

    def repeat(self, method, path, query=None, key=None):
        """The first answer but 503."""
        while True:
            response = self.ask(method, path, query, key)
            if response.status != 503:
                return response
            time.sleep(retry_after(response))

    def acquire(self, name, wait):
        return self.repeat("POST", lock_path(name), {"wait": wait, "ttl": TTL},
                           str(uuid.uuid4()))


class Renewals:
    """As Keeper asks: each holder is a client."""

    def __init__(self, port):
        self.port = port

    def ask(self, method, path):
        return Caller(self.port, "holder-" + path.split("/")[2]).ask(method,
                                                                     path)


class Waiter(threading.Thread):
    """Waits for a lock that is held, and lets go."""

    def __init__(self, port, lock):
        super().__init__(daemon=True)
        self.caller = Caller(port, "waiter-" + lock.name)
        self.lock = lock
        self.wrong = "waits"
        self.start()

    def run(self):
        try:
            self.wait()
            self.wrong = None
        except Exception:
            self.wrong = traceback.format_exc()

    def wait(self):
        response = self.caller.acquire(self.lock.name, "5m")
        assert response.status in (200, 201), response
        assert self.lock.over, "%s has two holders" % self.lock.name
        assert response.fencing > self.lock.fencing
        released = self.caller.repeat(
            "DELETE", lock_path(self.lock.name, response.token))
        assert released.status == 204, released


class Loops:
    """The clients of all languages take a lock in turn, and say so in a file,
    which so has the order of what happened.
    """

    def __init__(self, commands, port, path):
        self.path = str(path)
        self.processes = [self._start(commands[language], port, language)
                          for language in LANGUAGES]

    def _start(self, command, port, language):
        with open(self.path, "ab") as file:
            return subprocess.Popen(
                tied(command + ["http://127.0.0.1:%d/locks" % port, "loop",
                                "0", "loop=0.1", "owner=" + language,
                                "auth=" + language, "wait=60", "ttl=10"]),
                stdin=subprocess.PIPE, stdout=file, stderr=file)

    def rounds(self):
        """language -> how often it has held the lock, in the file so far."""
        inside, last = None, 0
        rounds = collections.Counter()
        for line in whole_lines(self.path):
            what, *words = line.split()
            if what == "in":
                who, fencing = words
                assert inside is None, (inside, line)
                assert int(fencing) > last, (last, line)
                inside, last = words, int(fencing)
                rounds[who] += 1
            elif what == "out":
                assert words == inside, (inside, line)
                inside = None
            else:
                assert line == "end released", line
        return rounds

    def go_on(self, number=2):
        """Waits until each has had the lock so many more times."""
        before = self.rounds()
        wait_until(lambda: all(self.rounds()[language]
                               >= before[language] + number
                               for language in LANGUAGES), PATIENCE,
                   "each language has the lock again")

    def end(self):
        for process in self.processes:
            process.communicate(b"release\n", timeout=PATIENCE)
        assert whole_lines(self.path).count("end released") == len(LANGUAGES)
        return self.rounds()

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()


class Site:
    """Two gateways, the balancer, and the servers."""

    def __init__(self, ensemble, start_gateway):
        self.ensemble = ensemble.start()
        operator = codes(MONITORING, "Draining")[0].partition("curl")[0]
        self.gateways = [start_gateway(
            zookeeper=ensemble, daemon=True, server=operator,
            location="zk_lock_durable on;") for _ in range(2)]
        upstream, location = codes(MONITORING, "Health")[2].split("\n\n", 1)
        for address, gateway in zip(("10.0.0.11:8080", "10.0.0.12:8080"),
                                    self.gateways):
            upstream = upstream.replace(address, self.address(gateway))
        self.balancer = start_gateway(module=None, zookeeper=None,
                                      http=upstream + LOG, server=location)
        self.restarts = []      # (when, what)

    @staticmethod
    def address(gateway):
        return "127.0.0.1:%d" % gateway.port

    def note(self, what):
        self.restarts.append((time.time(), what))

    def balance(self, gateway, script):
        """At the balancer; waits until the new workers serve."""
        old = set(self.balancer.worker_pids())
        self.balancer.operate(
            script.replace("10.0.0.11:8080", self.address(gateway))
            .replace("/etc/nginx/conf.d/locks.conf", self.balancer.conf))
        wait_until(lambda: not old & set(self.balancer.worker_pids()),
                   PATIENCE, "the balancer's new workers serve")

    def restart_gateway(self, gateway):
        leave, restart, back = codes(OPERATIONS, "A rolling restart")[:3]
        self.note("gateway %d" % self.gateways.index(gateway))
        self.balance(gateway, leave)
        gateway.operate(restart.replace("127.0.0.1:8080",
                                        self.address(gateway))
                        .replace("/run/nginx.pid", gateway.pid_file)
                        .replace("seq 60", "seq 2"))
        gateway.restarted()
        self.balance(gateway, back)

    def restart_server(self, server):
        serves = codes(OPERATIONS, "A rolling restart")[3]
        addresses = " ".join(s.address for s in self.ensemble.servers)
        self.note("server %s, a %s" % (server.address, server.mode()))
        server.stop()
        server.start(wait=False)
        self.balancer.operate(serves.replace(
            "10.0.0.1:2181 10.0.0.2:2181 10.0.0.3:2181", addresses))
        for gateway in self.gateways:
            wait_until(lambda: gateway.call("GET", "/operator/health").status
                       == 200, PATIENCE, "the gateway is well")

    def restart_all(self):
        """Yields after each restart."""
        for gateway in self.gateways:
            self.restart_gateway(gateway)
            yield
        leader = self.ensemble.leader()
        for server in self.ensemble.servers:
            if server is not leader:
                self.restart_server(server)
                yield
        self.restart_server(leader)
        yield

    # what the clients were told

    def told(self):
        """client -> (when, status, method, key, Retry-After) in the order of
        the requests, which two workers log.
        """
        requests = []
        for line in whole_lines(self.balancer.prefix + "/clients.log"):
            when, status, client, method, key, after, time_ = line.split(" ")
            requests.append((float(when) - float(time_), client,
                             (float(when), int(status), method, key, after)))
        answers = collections.defaultdict(list)
        for _, client, answer in sorted(requests):
            answers[client].append(answer)
        return answers

    def judge(self):
        refused = collections.Counter()     # (what was restarted, client)
        for client, answers in self.told().items():
            done = set()                    # the keys of answered acquires
            for i, (when, status, method, key, after) in enumerate(answers):
                assert key == "-" or key not in done, (client, answers)
                if 200 <= status < 300 or status == 423:
                    done.add(key)
                    continue
                assert status == 503, (client, answers[i])
                assert after.isdigit(), (client, answers[i])
                assert i + 1 < len(answers), (client, "gives up", answers[i])
                # the repeat is the same call
                assert answers[i + 1][2:4] == (method, key), (client, answers)
                refused[max(r for r in self.restarts if r[0] <= when),
                        client] += 1
        assert all(n == 1 for n in refused.values()), {
            key: n for key, n in refused.items() if n > 1}
        return collections.Counter(what for (_, what), _ in refused)


def acquire_all(port):
    """The locks, and the holders that take them."""
    locks = []
    for name in ("held%d" % i for i in range(LEASES)):
        response = Caller(port, "holder-" + name).acquire(name, "30s")
        assert response.status == 201, response
        locks.append(Lock(name, response, None, None, None))
    return locks


def all_wait(gateway, waiters):
    """Each waiter is in the queue, once, at whatever gateway."""
    for waiter in waiters:
        # a gateway that cannot tell says 503
        wait_until(lambda: gateway.inspect(waiter.lock.name).json.get("queued")
                   == 1 or waiter.wrong != "waits", PATIENCE,
                   "a waiter of " + waiter.lock.name)
        assert waiter.wrong == "waits", waiter.wrong


def test_rolling(ensemble, start_gateway, commands, tmp_path):
    site = Site(ensemble, start_gateway)
    port = site.balancer.port
    locks = acquire_all(port)
    waiters = [Waiter(port, lock) for lock in locks[:WAITERS]]
    all_wait(site.gateways[0], waiters)

    keeper = Keeper(types.SimpleNamespace(gateway=site.balancer, locks=locks))
    keeper.connection = Renewals(port)
    loops = Loops(commands, port, tmp_path / "loops")
    try:
        with keeper:
            for _ in range(ROLLS):
                for _ in site.restart_all():
                    loops.go_on()
                    all_wait(site.gateways[0], waiters)
                keeper.next_rounds(timeout=PATIENCE)
        rounds = loops.end()
    finally:
        loops.kill()

    for lock in locks:
        lock.over = True
        response = Caller(port, "holder-" + lock.name).repeat(
            "DELETE", lock_path(lock.name, lock.token))
        assert response.status == 204, (lock.name, response)
    for waiter in waiters:
        waiter.join(PATIENCE)
        assert waiter.wrong is None, waiter.wrong
    print("rounds of the loops: %s; 503: %s" % (dict(rounds),
                                                dict(site.judge())))
