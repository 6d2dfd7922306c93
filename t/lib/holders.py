"""Holders of locks who notice whatever becomes of these.

Held      locks that are held for long.  Their znodes are watched from the
          grant on: that one was gone for a moment is never overlooked.  A
          claim that is made durable is deleted and created at once.
Keeper    renews all of them the whole time, whatever happens to the gateway.
          Connections may be cut and an answer may be a 503, but never a word
          that a lock is lost, and in the end each renewal is a 200.
Load      clients who take a few locks again and again, hold them for a moment
          and watch that they are alone.

A worker's end cuts connections, and with them answers: who asks again and
again here does it over new ones.
"""

import collections
import random
import threading
import time
import traceback

from kazoo.protocol.states import EventType

from lib.checks import problem, retry_after
from lib.client import Connection, Gone, lock_path
from lib.process import alive, wait_until

PAUSE = 0.005
PATIENCE = 10.0
CUT = (OSError, Gone)


class Lock:
    """A lock that is held, and what must not change while it is."""

    def __init__(self, name, response, claim, czxid, session):
        self.name = name
        self.token = response.token
        self.fencing = response.fencing
        self.claim = claim
        self.czxid = czxid
        self.session = session
        self.over = False       # its release has begun


class Held:
    """Who asks may be told to come again: ZooKeeper stalls now and then."""

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
        """So many locks, in turn at all workers."""
        workers = self.gateway.worker_pids()
        for i in range(number):
            self.add(name % i, workers[i % len(workers)], **query)
        return self

    def note(self, name, response):
        """Takes care of a lock that somebody was granted."""
        znode = self.gateway.znode(name)
        claim = znode + "/" + self.tree.claims(znode)[0]
        lock = Lock(name, response, claim, self.tree.made(claim),
                    self.tree.stat(claim).ephemeralOwner)
        self.locks.append(lock)
        self._watch(lock)
        return lock

    def _watch(self, lock):
        """No claim has the name of one that is gone: so it is looked for."""
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
        """Every worker knows them to be held, and ZooKeeper does."""
        for worker in workers or self.gateway.worker_pids():
            try:
                connection = self.gateway.connect(worker)
            except AssertionError:
                if worker in self.gateway.worker_pids():
                    raise
                # it was told to leave after the others were replaced
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
        """(the first answer that is one, whether it was the first at all)"""
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
        """The claims are those that were granted, all the time."""
        assert not self.lost, "lost: %s" % self.lost
        for lock in self.locks:
            stat = self.tree.stat(lock.claim)
            assert stat, "%s is gone" % lock.claim
            assert self.tree.made(lock.claim) == lock.czxid, lock.claim
            assert stat.ephemeralOwner in (lock.session, 0), lock.claim

    def release(self, *names):
        """These or all, in turn at all workers; each is free afterwards."""
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
        # what was not confirmed may have been carried out
        assert response.status == 204 or (
            response.status == 410 and not first), (lock.name, response)


class Repeating:
    """A connection that is made anew whenever it was cut."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.connection = None

    def ask(self, method, path, query=None):
        """The answer; None if there came none, and what happened is open."""
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
    """Threads that do turn() again and again as long as `with` lasts."""

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
    """Renews what is held, one after the other."""

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
        """Waits until everything was renewed so many times from now on."""
        goal = self.rounds + 1 + number
        wait_until(lambda: self.wrong or self.rounds >= goal, timeout,
                   "all locks were renewed")
        self.judge()

    def busy(self):
        return self.answers[200]


class Load(Background):
    """Takes locks for a moment; at most one client is in at a time."""

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
        self.enter(name, response, sent + self.TTL)
        time.sleep(random.random() * PAUSE)
        self.leave(name, response.token)
        self.release(name, response.token)

    def ask(self, method, path, query=None):
        response = self.local.connection.ask(method, path, query)
        self.answers[method, response and response.status] += 1
        return response

    def enter(self, name, response, until):
        with self.mutex:
            who, end = self.inside.get(name, (None, 0.0))
            assert time.monotonic() > end, "%s is held by %s and %s" % (
                name, who, response.token)
            assert response.fencing > self.fencing[name], response
            self.fencing[name] = response.fencing
            self.inside[name] = response.token, until

    def leave(self, name, token):
        with self.mutex:
            if self.inside.get(name, (None,))[0] == token:
                del self.inside[name]

    def release(self, name, token):
        """Again and again, until somebody says what has become of it."""
        allowed = {204}
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            response = self.ask("DELETE", lock_path(name, token))
            if response is not None and response.status != 503:
                assert response.status in allowed, response
                return
            allowed = {204, 410}
        raise AssertionError("nobody answers the release of " + name)

    def busy(self):
        return self.answers["POST", 201]

    def gone(self, tree):
        """Nothing of it is left, at the latest when the leases are over."""
        for name in self.names:
            tree.wait_claims(self.gateway.znode(name), 0, self.TTL + 10)


class Sessions:
    """The sessions in ZooKeeper that a test's gateways brought about."""

    def __init__(self, zookeeper, tree):
        self.zookeeper = zookeeper
        self.tree = tree
        self.before = zookeeper.living_sessions()

    def now(self):
        return (self.zookeeper.living_sessions() - self.before
                - self.tree.sessions)

    def owning(self):
        """Those of them that own something.

        One that owns nothing, not even a gate, is that of a worker that was
        killed before it heard of it: nobody can close it, and it harms nobody.
        """
        return self.now() & self.zookeeper.owning_sessions()

    def wait(self, number, timeout=10.0):
        """Waits until there are so many, connected or not."""
        wait_until(lambda: len(self.now()) == number, timeout,
                   "%d sessions" % number)
        return self.now()

    def wait_owning(self, number, timeout=10.0):
        wait_until(lambda: len(self.owning()) == number, timeout,
                   "%d sessions that own something" % number)


def wait_dead(pids, timeout=10.0):
    wait_until(lambda: not any(alive(pid) for pid in pids), timeout,
               "%s are gone" % sorted(pids))
