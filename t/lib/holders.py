"""Holders of locks that notice every loss of a lock.

Held      locks that are held for long.  A watch on each znode from the grant on
          shows if a znode was gone even for a moment.  A claim that is made
          durable is deleted and created in the same transaction.
Keeper    renews all of these locks the whole time, whatever the gateway does.
          A connection may be cut and an answer may be a 503, but no answer may
          say that a lock is lost, and in the end each renewal is a 200.
Load      clients that take a few locks repeatedly, hold each lock for a moment
          and check that no other client is in.

The end of a worker cuts connections and loses answers: a client that repeats a
call uses a new connection.
"""

import collections
import random
import threading
import time
import traceback

from kazoo.protocol.states import EventType

from lib.checks import may_be_over, problem, retry_after
from lib.client import Connection, Gone, lock_path
from lib.process import alive, wait_until

PAUSE = 0.005
PATIENCE = 20.0
CUT = (OSError, Gone)


class Lock:
    """A held lock, and what must not change while the lock is held."""

    def __init__(self, name, response, claim, czxid, session):
        self.name = name
        self.token = response.token
        self.fencing = response.fencing
        self.claim = claim
        self.czxid = czxid
        self.session = session
        self.over = False       # the release has begun


class Held:
    """Held locks; a 503 is repeated, because ZooKeeper may stall."""

    def __init__(self, gateway, tree):
        self.gateway = gateway
        self.tree = tree
        self.locks = []
        self.lost = []          # claims that were gone while held

    def add(self, name, worker=None, **query):
        query.setdefault("ttl", "1h")
        return self.note(name, self.gateway.hold(name, worker=worker,
                                                 timeout=20, **query))

    def spread(self, number, name="held%d", **query):
        """Takes the given number of locks, in turn at all workers."""
        workers = self.gateway.worker_pids()
        for i in range(number):
            self.add(name % i, workers[i % len(workers)], **query)
        return self

    def note(self, name, response):
        """Watches over a lock that was granted."""
        znode = self.gateway.znode(name)
        claim = znode + "/" + self.tree.claims(znode)[0]
        lock = Lock(name, response, claim, self.tree.made(claim),
                    self.tree.stat(claim).ephemeralOwner)
        self.locks.append(lock)
        self._watch(lock)
        return lock

    def _watch(self, lock):
        """Looks for the claim at each event, as claim names never recur."""
        def changed(event):
            if not lock.over and event.type != EventType.NONE:
                self.tree.client.exists_async(
                    lock.claim, watch=changed).rawlink(found)

        def found(result):
            if result.successful() and not result.value and not lock.over:
                self.lost.append(lock.claim)

        if not self.tree.client.exists(lock.claim, watch=changed):
            self.lost.append(lock.claim)

    def check(self, workers=None):
        """Every worker and ZooKeeper know the locks to be held."""
        for worker in workers or self.gateway.worker_pids():
            try:
                connection = self.gateway.connect(worker)
            except AssertionError:
                if worker in self.gateway.worker_pids():
                    raise
                # the worker was told to leave after the siblings were replaced
                continue
            with connection:
                self.check_at(connection)
        self.check_znodes()

    def check_at(self, connection):
        for lock in self.locks:
            self._check_lock(connection, lock)

    def _check_lock(self, connection, lock):
        for method in ("PUT", "GET"):
            response = self._ask(connection, method, lock)[0]
            assert response.status == 200, (lock.name, method, response)
            content = response.json
            assert content["state"] == "held", (lock.name, content)
            assert content["fencing_token"] == lock.fencing, lock.name
            assert content["token"] == lock.token

    def _ask(self, connection, method, lock):
        """(the first answer but 503, whether the first call got this answer)"""
        deadline = time.monotonic() + PATIENCE
        first = True
        while True:
            response = connection.request(method,
                                          lock_path(lock.name, lock.token))
            if response.status != 503:
                return response, first
            problem(response, 503)
            retry_after(response)
            assert time.monotonic() < deadline, response
            first = False
            time.sleep(PAUSE)

    def check_znodes(self):
        """The granted claims are there and were there all the time."""
        assert not self.lost, "lost: %s" % self.lost
        for lock in self.locks:
            stat = self.tree.stat(lock.claim)
            assert stat, "%s is gone" % lock.claim
            assert self.tree.made(lock.claim) == lock.czxid, lock.claim
            assert stat.ephemeralOwner in (lock.session, 0), lock.claim

    def release(self, *names):
        """Releases these or all locks, in turn at all workers."""
        self.check_znodes()
        locks = [lock for lock in self.locks
                 if lock.name in names or not names]
        connections = list(self.gateway.each_worker().values())
        for i, lock in enumerate(locks):
            self._release_lock(connections[i % len(connections)], lock)
        for connection in connections:
            connection.close()
        for lock in locks:
            self.tree.wait_gone(lock.claim)
            self.locks.remove(lock)

    def _release_lock(self, connection, lock):
        lock.over = True
        response, first = self._ask(connection, "DELETE", lock)
        # an unconfirmed release may have been carried out
        assert response.status == 204 or (
            response.status == 410 and not first), (lock.name, response)


class Repeating:
    """A connection that is made anew after every cut."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.connection = None

    def ask(self, method, path, query=None):
        """The answer; None if no answer came and the outcome is open."""
        try:
            if self.connection is None:
                self.connection = Connection(self.gateway.port)
            return self.connection.request(method, path, query)
        except CUT:
            self.close()
            time.sleep(PAUSE)
            return None

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Background:
    """Threads that call turn() repeatedly as long as `with` lasts."""

    def __init__(self, threads):
        self.over = threading.Event()
        self.wrong = []
        self.threads = [threading.Thread(target=self._run, daemon=True)
                        for _ in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        if kind is None:
            self.judge()
            assert self.busy(), self.answers

    def _run(self):
        try:
            while not self.over.is_set() and not self.wrong:
                self.turn()
        except Exception:
            self.wrong.append(traceback.format_exc())

    def judge(self):
        assert not self.wrong, "\n".join(self.wrong)


class Keeper(Background):
    """Renews the held locks in turn."""

    def __init__(self, held, pause=PAUSE):
        super().__init__(1)
        self.held = held
        self.pause = pause
        self.connection = Repeating(held.gateway)
        self.answers = collections.Counter()    # status or None -> number
        self.rounds = 0

    def turn(self):
        for lock in list(self.held.locks):
            deadline = time.monotonic() + PATIENCE
            while not self.renewed(lock) and not self.wrong:
                assert time.monotonic() < deadline, (lock.name, self.answers)
            self.over.wait(self.pause)
        self.rounds += 1

    def renewed(self, lock):
        response = self.connection.ask("PUT",
                                       lock_path(lock.name, lock.token))
        if lock.over:
            return True
        self.answers[response and response.status] += 1
        if response is None:
            return False
        if response.status == 503:
            problem(response, 503)
            retry_after(response)
            time.sleep(PAUSE)
            return False
        if response.status != 200 or response.fencing != lock.fencing:
            self.wrong.append("%s: %r" % (lock.name, response))
        return True

    def next_rounds(self, number=1, timeout=20.0):
        """Waits until each lock was renewed so many more times."""
        goal = self.rounds + 1 + number
        wait_until(lambda: self.wrong or self.rounds >= goal, timeout,
                   "all locks were renewed")
        self.judge()

    def busy(self):
        return self.answers[200]


class Load(Background):
    """Takes locks for a moment; at most one client is in at a time.

    A client that was stopped until the lease was over is not in.
    """

    TTL = 3.0
    NAME = "busy%d"

    def __init__(self, gateway, clients=3, locks=2):
        super().__init__(clients)
        self.gateway = gateway
        self.names = [self.NAME % i for i in range(locks)]
        self.mutex = threading.Lock()
        self.inside = {}                    # name -> (client, until when)
        self.fencing = dict.fromkeys(self.names, 0)
        self.answers = collections.Counter()    # (method, status) -> number
        self.local = threading.local()

    def turn(self):
        if not hasattr(self.local, "connection"):
            self.local.connection = Repeating(self.gateway)
        name = random.choice(self.names)
        sent = time.monotonic()
        response = self.ask("POST", lock_path(name),
                            {"wait": "2s", "ttl": "%gs" % self.TTL})
        if response is None:
            return
        if response.status != 201:
            assert response.status in (423, 503), response
            retry_after(response)
            time.sleep(PAUSE)
            return
        self.enter(name, sent, response)
        time.sleep(random.random() * PAUSE)
        self.leave(name, response.token)
        self.release(name, sent, response)

    def ask(self, method, path, query=None):
        response = self.local.connection.ask(method, path, query)
        self.answers[method, response and response.status] += 1
        return response

    def enter(self, name, sent, response):
        with self.mutex:
            if may_be_over(sent, response):
                return
            who, end = self.inside.get(name, (None, 0.0))
            assert time.monotonic() > end, "%s is held by %s and %s" % (
                name, who, response.token)
            assert response.fencing > self.fencing[name], response
            self.fencing[name] = response.fencing
            self.inside[name] = response.token, sent + self.TTL

    def leave(self, name, token):
        with self.mutex:
            if self.inside.get(name, (None,))[0] == token:
                del self.inside[name]

    def release(self, name, sent, grant):
        """Repeats the call until an answer tells the outcome."""
        allowed = {204}
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            response = self.ask("DELETE", lock_path(name, grant.token))
            if may_be_over(sent, grant):
                allowed = {204, 410}
            if response is not None and response.status != 503:
                assert response.status in allowed, response
                return
            allowed = {204, 410}
        raise AssertionError("nobody answers the release of " + name)

    def busy(self):
        return self.answers["POST", 201]

    def gone(self, tree):
        """No claim of the load is left when the leases are over."""
        for name in self.names:
            tree.wait_claims(self.gateway.znode(name), 0, self.TTL + 10)


class Sessions:
    """The ZooKeeper sessions of a test's gateways."""

    def __init__(self, zookeeper, tree):
        self.zookeeper = zookeeper
        self.tree = tree
        self.before = zookeeper.living_sessions()

    def now(self):
        return (self.zookeeper.living_sessions() - self.before
                - self.tree.sessions)

    def owning(self):
        """The sessions that own a znode.

        A session without a znode, not even a gate, is that of a worker that
        was killed before hearing of the session: no process can close such a
        session, and no harm comes from the session.
        """
        return self.now() & self.zookeeper.owning_sessions()

    def wait(self, number, timeout=20.0):
        """Waits until there are so many, connected or not."""
        wait_until(lambda: len(self.now()) == number, timeout,
                   "%d sessions" % number)
        return self.now()

    def wait_owning(self, number, timeout=20.0):
        wait_until(lambda: len(self.owning()) == number, timeout,
                   "%d sessions that own something" % number)


def wait_dead(pids, timeout=20.0):
    wait_until(lambda: not any(alive(pid) for pid in pids), timeout,
               "%s are gone" % sorted(pids))
