"""Watchmen: each sends calls about a claim to a worker, repeatedly."""

import contextlib
import threading
import time

from lib.client import lock_path
from lib.process import wait_until

SHORT = 4.0     # of a session that is to end
LONG = 12.0     # of a session that is to live
BACK = 40.0

# the answers are watched closely: no call waits for long
QUICK = "zk_lock_timeout 1200ms;"


class Watchman(threading.Thread):
    """Sends calls about a claim to a worker and notes the answers.

    notes: (sent, received, status), by the clock of the server's log.
    """

    def __init__(self, gateway, worker, method, name, token):
        super().__init__(daemon=True)
        self.connection = gateway.connect(worker)
        self.request = method, lock_path(name, token)
        self.title = "%s at worker %d" % (method, worker)
        self.notes = []
        self.ended = threading.Event()
        self.failure = None

    def run(self):
        try:
            while not self.ended.wait(0.01):
                sent = time.time()
                response = self.connection.request(*self.request)
                self.notes.append((sent, time.time(), response.status))
        except Exception as e:
            self.failure = e

    def stop(self):
        self.ended.set()
        self.join(BACK)
        assert self.failure is None and not self.is_alive(), self.failure

    @property
    def last(self):
        return self.notes[-1][2] if self.notes else None

    def statuses(self):
        return {status for _, _, status in self.notes}

    def held(self):
        """(sent, received) of each answer that said that the claim is held."""
        return [(sent, received) for sent, received, status in self.notes
                if status == 200]

    def said_held_between(self, begin, end):
        return [(sent, received) for sent, received in self.held()
                if begin < received < end]


@contextlib.contextmanager
def watched(name, token, *gateways):
    """Watchmen call every worker all the time."""
    men = [Watchman(gateway, worker, method, name, token)
           for gateway in gateways for worker in gateway.worker_pids()
           for method in ("GET", "PUT")]
    for man in men:
        man.start()
    for man in men:
        wait_until(lambda: man.last == 200, BACK, "it is held")
    try:
        yield men
    finally:
        for man in men:
            man.ended.set()
        for man in men:
            man.stop()


def never_held_after(men, expired):
    """No "held" came later; a claim that was gone stayed gone."""
    for man in men:
        late = [received - expired for _, received in man.held()
                if received > expired]
        assert not late, "%s: held, so long after the end: %s" % (man.title,
                                                                  late)
        statuses = [status for _, _, status in man.notes]
        assert set(statuses) <= {200, 410, 503}
        if 410 in statuses:
            assert 200 not in statuses[statuses.index(410):]


def all_say(men, status, timeout=BACK):
    for man in men:
        wait_until(lambda: man.last == status, timeout,
                   "%s says %d" % (man.title, status))


def in_line(gateway, tree, name, workers, **query):
    """Waiters at these workers, queued in this order."""
    present = len(tree.claims(gateway.znode(name)))
    waiters = []
    for i, worker in enumerate(workers):
        waiters.append(gateway.begin(name, worker=worker, **query))
        tree.wait_claims(gateway.znode(name), present + i + 1)
    gateway.catch_up(name)
    return waiters


def in_reach(gateway):
    for worker in gateway.worker_pids():
        wait_until(lambda: gateway.inspect("none", worker=worker).status
                   == 404, BACK, "the gateway has its session")
