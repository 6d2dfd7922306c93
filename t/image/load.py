#!/usr/bin/python3
"""Clients while gateways and ZooKeeper servers restart in turn.

usage: load.py URL

HOLDERS clients hold a durable lease each and renew it, WAITERS clients wait for
the first of these locks, and TRIERS clients try again and again to take the
others.  Each is a client of clients/python/, and all of its answers are looked
at.

    standard input          standard output
                            ready       all leases are held, all waiters wait
    step NAME               NAME ...    a further restart begins; what the
                                        clients saw in the former
    end                     the leases are released, all waiters are granted,
                            and the exit code tells whether all that holds:

* no lease is lost, and no lock is granted while another client holds it;
* each answer is 2xx, 423 or 503, and no client gets 503 twice in a step.
"""

import collections
import os
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "clients", "python"))

import zk_lock                      # noqa: E402

HOLDERS = int(os.environ.get("HOLDERS", "100"))
WAITERS = int(os.environ.get("WAITERS", "50"))
TRIERS = 10
WAIT = 280
# a client waits a third of the lease for an answer to a renewal: that is longer
# than zk_lock_timeout, after which a gateway without ZooKeeper answers 503
TTL = 18
SOON = 60


class Record:
    """What the clients saw in each step, and what must not be."""

    def __init__(self):
        self.step = "start"
        self.statuses = collections.Counter()
        self.refused = collections.Counter()
        self.breaches = []
        self.mutex = threading.Lock()

    def answer(self, client, answer):
        status = answer.status
        with self.mutex:
            self.statuses[status] += 1
            if status == 503:
                self.refused[client] += 1
            if not (200 <= status < 300 or status in (423, 503)):
                self.breach("%s: %d %s" % (client, status, answer.detail()))
            if self.refused[client] > 1 and status == 503:
                self.breach("%s: 503 again: %s" % (client, answer.detail()))

    def breach(self, text):
        self.breaches.append("%s: %s" % (self.step, text))

    def next(self, step):
        with self.mutex:
            print(self.step, " ".join("%d:%d" % pair for pair in
                                      sorted(self.statuses.items())),
                  "breaches:%d" % len(self.breaches), flush=True)
            self.step = step
            self.statuses.clear()
            self.refused.clear()


record = Record()


class Client(zk_lock.lock):
    """A lock whose answers are recorded under the client's own name."""

    def __init__(self, client, name, **options):
        super().__init__(name, url=sys.argv[1], ttl=TTL, owner=client,
                         on_lost=self._on_lost, **options)
        self.client = client
        self.releases = False

    def _call(self, method, *arguments):
        self.releases = self.releases or method == "DELETE"
        answer = super()._call(method, *arguments)

        # a renewal that is under way may meet the client's own release
        if not (method == "PUT" and answer.status == 410 and self.releases):
            record.answer(self.client, answer)
        return answer

    def _on_lost(self, held):
        record.breach("%s: lost: %s" % (self.client, held.lost))


def name(i):
    return "held%d" % i


class Holder:
    def __init__(self, i):
        self.held = Client("holder%d" % i, name(i), wait=SOON).acquire()
        self.released = False

    def release(self):
        if not self.held.is_held():
            record.breach("%s: not held at the end" % self.held.name)
        self.released = True
        if not self.held.release():
            record.breach("%s: not released" % self.held.name)


class Waiter(threading.Thread):
    """Waits for the lock of a holder, and lets go when granted."""

    def __init__(self, i, holder):
        super().__init__(daemon=True)
        self.lock = Client("waiter%d" % i, name(i), wait=WAIT)
        self.holder = holder
        self.start()

    def run(self):
        try:
            held = self.lock.acquire()
        except zk_lock.LockError as e:
            record.breach("%s: %s" % (self.lock.client, e))
            return
        if not self.holder.released:
            record.breach("%s: granted beside the holder" % self.lock.client)
        held.release()


class Trier(threading.Thread):
    """Asks for a lock that is held, and has to get 423."""

    def __init__(self, i, end):
        super().__init__(daemon=True)
        self.lock = Client("trier%d" % i, name(HOLDERS - 1 - i), wait=0)
        self.end = end
        self.start()

    def run(self):
        while not self.end.wait(0.5):
            answer = self.lock._call("POST", {}, 10.0, "?wait=0")
            if answer.status == 201:
                record.breach("%s: granted beside the holder"
                              % self.lock.client)


def queued():
    """How many clients wait, as a look at the locks tells."""
    looks = [zk_lock.lock(name(i), url=sys.argv[1]) for i in range(WAITERS)]
    return sum(look._call("GET", {}, 10.0).json()["queued"]
               for look in looks)


def main():
    holders = [Holder(i) for i in range(HOLDERS)]
    waiters = [Waiter(i, holders[i]) for i in range(WAITERS)]
    end = threading.Event()
    triers = [Trier(i, end) for i in range(TRIERS)]
    deadline = time.monotonic() + SOON
    while queued() < WAITERS:
        assert time.monotonic() < deadline, queued()
        time.sleep(0.5)
    print("ready", flush=True)

    for line in sys.stdin:
        if line == "end\n":
            break
        record.next(line.split()[1])
    record.next("end")

    end.set()
    for thread in triers:
        thread.join()
    for holder in holders:
        holder.release()
    for thread in waiters:
        thread.join(SOON)
        if thread.is_alive():
            record.breach("%s: not granted at the end" % thread.lock.client)
    record.next("")
    for breach in record.breaches[:20]:
        print("breach:", breach, flush=True)
    return 1 if record.breaches else 0


sys.exit(main())
