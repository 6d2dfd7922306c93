"""What every process writes down: one JSON object a line, with the time.

All times are seconds of the machine's monotonic clock, which every process of
the run shares in any network namespace, and which Java reads as
System.nanoTime().  These are the lines, by `what`:

    ask     a client is about to call: id, who, kind (acquire, look, renew,
            release, guarded), lock, mode, gateway (HTTP clients); of an acquire
            wait, ttl, key, durable; else claim.  The name of a claim is the
            token, or, for kazoo and Curator, the znode.  `guarded`: the witness
            holds the lock by a request, which is a call of kind guarded
    told    the answer to the ask with that id: status, and of a grant claim,
            fencing, expires and waited (seconds).  Instead of a status: cut,
            unreached (no connection), left (by choice), timeout
    op      a guarded operation: who, lock, claim, fencing, asked, ok; over is
            true if the lease was over by the client's clock at the start
    guard   what the guarded resource saw: lock, fencing, ok
    fault   id, kind, target; healed: when, in a second line with that id
    session which gateway opened which session, or which gateways may have
    expired ZooKeeper found a session's time to be over
    zookeeper   a claim that a server has and whose end another has seen: lock,
            path
    final   after all faults: lock, gateway, tries, ok
    znodes  claims that are left at the end
    bad     an unexpected line of an error log
    end     the run has waited for all clients
"""

import glob
import itertools
import json
import os
import threading
import time


class Record:
    """The file of a process; any thread may write."""

    def __init__(self, directory, name):
        self.name = name
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.file = open(os.path.join(str(directory), name + ".jsonl"), "a",
                         buffering=1)

    def write(self, what, t=None, **fields):
        fields = {k: v for k, v in fields.items() if v is not None}
        with self.lock:
            t = time.monotonic() if t is None else t
            line = json.dumps(dict(fields, what=what, t=round(t, 6)))
            self.file.write(line + "\n")
        return t

    def ask(self, t=None, **fields):
        """Writes an ask and returns the id."""
        number = "%s.%d" % (self.name, next(self.numbers))
        self.write("ask", t=t, id=number, **fields)
        return number

    def close(self):
        self.file.close()


def read(directory):
    """All lines of all files, in the order of their times."""
    lines = []
    for path in glob.glob(os.path.join(str(directory), "*.jsonl")):
        with open(path) as f:
            for line in f:
                if line.endswith("\n"):     # the writer may have been killed
                    lines.append(json.loads(line))
    return sorted(lines, key=lambda line: line["t"])
