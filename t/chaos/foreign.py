"""The kazoo clients of a run, on the same locks as the HTTP clients.

usage: foreign.py JOB

Each client is a thread with a separate session and a kazoo Lock that knows the
gateways' layout.  A holder looks for the claim behind a sync; the holder may be
sure of what the look shows.  Some clients leave with the session.  The process
ends when its standard input ends.
"""

import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from kazoo.client import KazooClient                # noqa: E402
from kazoo.exceptions import (KazooException, LockTimeout,    # noqa: E402
                              NoNodeError)
from kazoo.handlers.threading import KazooTimeoutError      # noqa: E402

from chaos.clients import Job                       # noqa: E402
from chaos.guard import Guarded                     # noqa: E402
from chaos.record import Record                     # noqa: E402

FAILURES = (KazooException, KazooTimeoutError, OSError)
TIMEOUT = 10.0


class Client:
    def __init__(self, job, record, name, stop):
        self.job = job
        self.record = record
        self.name = name
        self.stop = stop
        self.rng = random.Random("%s %s" % (job.seed, name))
        self.guard = Guarded(job.guard)
        self.zk = None

    def run(self):
        while not self.stop.is_set():
            try:
                self._connect()
                self._turn()
            except FAILURES:
                # claims that the client left go with the session
                self._disconnect()
            self.stop.wait(self.rng.uniform(0, self.job.pause))
        self._disconnect()

    def _connect(self):
        if self.zk is None:
            self.zk = KazooClient(hosts=self.job.servers,
                                  timeout=self.job.session_timeout)
            self.zk.start(timeout=TIMEOUT)

    def _disconnect(self):
        if self.zk is not None:
            zk, self.zk = self.zk, None
            try:
                zk.stop()
                zk.close()
            except FAILURES:
                pass

    def _turn(self):
        name = self.rng.choice(self.job.locks)
        path = self.job.root + "/" + name
        lock = self.zk.Lock(path, self.name,
                            extra_lock_patterns=["-lock-"])
        fields = {"who": self.name, "lock": name, "mode": "exclusive"}
        if not self._acquire(lock, fields):
            return
        claim = path + "/" + lock.node
        end = time.monotonic() + self.rng.uniform(*self.job.hold)
        while self._look(claim, fields) and time.monotonic() < end:
            time.sleep(self.rng.uniform(0, 0.3))
        if self.rng.random() < 0.1:
            self._disconnect()      # the session ends, and the claim
        else:
            self._release(lock, claim, fields)

    def _acquire(self, lock, fields):
        wait = self.rng.uniform(0.1, self.job.wait)
        number = self.record.ask(kind="acquire", wait=wait, **fields)
        told = {"status": 423}
        try:
            if lock.acquire(timeout=wait):
                claim = lock.path + "/" + lock.node
                stat = self.zk.exists(claim)
                if stat is not None:
                    self.fencing = stat.czxid * 256
                    told = {"status": 201, "claim": claim,
                            "fencing": self.fencing}
        except LockTimeout:
            pass
        except FAILURES:
            told = {"status": "error"}
        self.record.write("told", id=number, **told)
        if told["status"] == "error":
            self._disconnect()
        elif told["status"] == 423:
            self._cancel(lock)
        return told["status"] == 201

    @staticmethod
    def _cancel(lock):
        """kazoo may keep a claim whose wait was over in a retry."""
        try:
            if lock.node is not None:
                lock.client.delete(lock.path + "/" + lock.node)
        except NoNodeError:
            pass

    def _look(self, claim, fields):
        number = self.record.ask(kind="look", claim=claim, **fields)
        try:
            self.zk.sync(claim)
            status = 200 if self.zk.exists(claim) else 410
        except FAILURES:
            status = "error"
        self.record.write("told", id=number, status=status)
        if status == 200:
            asked = time.monotonic()
            ok = self.guard.operate(fields["lock"], self.fencing)
            self.record.write("op", who=self.name, lock=fields["lock"],
                              claim=claim, fencing=self.fencing, asked=asked,
                              ok=ok)
        return status == 200

    def _release(self, lock, claim, fields):
        number = self.record.ask(kind="release", claim=claim, **fields)
        status = "error"
        try:
            lock.release()
            status = 204
        finally:
            self.record.write("told", id=number, status=status)


def main(job):
    record = Record(job.record, job.name)
    stop = threading.Event()
    clients = [Client(job, record, "%s%d" % (job.name, i), stop)
               for i in range(job.clients)]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    record.close()


if __name__ == "__main__":
    main(Job(sys.argv[1]))
