"""What everybody writes down: one JSON object a line, with the time.

All times are seconds of the machine's monotonic clock, which every process of
the run shares, whatever its network namespace, Java's System.nanoTime() as
well.  These are the lines, by their `what`:

    ask     somebody is about to ask: id, who, kind (acquire, look, renew,
            release), lock, mode; gateway, wait, ttl, key, durable of an
            acquire; claim of the others.  A claim is named by its token, or, of
            kazoo's and Curator's, by its znode
    told    the answer to the ask with that id: status, and of a grant claim,
            fencing, expires and waited (seconds).  Instead of a status: cut,
            unreached (no connection), left (its own will), timeout
    op      a guarded operation: who, lock, claim, fencing, asked, ok; over is
            true if by its own clock the lease was over when it was asked
    guard   what the guarded resource saw: lock, fencing, ok
    fault   id, kind, target; healed: when, in a second line with that id
    session which gateway opened which session, or which of them may have
    expired ZooKeeper found a session's time to be over
    zookeeper   a claim that one server has and another has seen the end of:
            lock, path
    final   after all faults: lock, gateway, tries, ok
    znodes  claims that are left at the end
    bad     a line of an error log that nobody expected
    end     everybody was waited for
"""

import glob
import itertools
import json
import os
import threading
import time


class Record:
    """A file of a process's own; any thread may write."""

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

    def ask(self, **fields):
        """Writes an ask and returns its id."""
        number = "%s.%d" % (self.name, next(self.numbers))
        self.write("ask", id=number, **fields)
        return number

    def close(self):
        self.file.close()


def read(directory):
    """All lines of all files, in the order of their times."""
    lines = []
    for path in glob.glob(os.path.join(str(directory), "*.jsonl")):
        with open(path) as f:
            for line in f:
                if line.endswith("\n"):     # its writer may have been killed
                    lines.append(json.loads(line))
    return sorted(lines, key=lambda line: line["t"])
