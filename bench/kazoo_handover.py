"""Hand-over of kazoo's own lock: how long after a release was begun has the
next in line been granted?

usage: kazoo_handover.py HOST:PORT[,HOST:PORT...]

It connects, and then carries out what it reads, line by line, until an empty
line or the end of its input:

    ROUNDS GAP_MS

and answers each with one line, a JSON object with the times of all rounds.

Two processes, each with a session and a Lock of its own, take turns, as the
connections of handover.c do: A holds, B asks and waits.  When a third session
sees both claims, nothing happens for GAP_MS more.  Then A calls release(), and
the clock, which is the same in all processes, runs until B's acquire() has
returned.  A grant before the release is an overlap, and an exception is a
wrong answer.
"""

import json
import logging
import multiprocessing
import os
import sys
import time

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TREE, "t"))

from kazoo.client import KazooClient                # noqa: E402

from lib.process import die_with_parent             # noqa: E402

SESSION_TIMEOUT = 30.0
CONNECT_TIMEOUT = 30.0
BOUND = 10.0            # seconds, for a grant

PATH = "/kazoo/handover"


def connect(servers):
    client = KazooClient(hosts=servers, timeout=SESSION_TIMEOUT)
    client.start(timeout=CONNECT_TIMEOUT)
    return client


# --- a process of one client -------------------------------------------------

def work(servers, pipe):
    """Carries out "acquire" and "release"; answers with (began, done) in ns,
    or with what went wrong.
    """
    die_with_parent()
    try:
        client = connect(servers)
        lock = client.Lock(PATH)
        pipe.send("connected")
        while True:
            asked = pipe.recv()
            if asked is None:
                break
            pipe.send(carry_out(lock, asked))
        client.stop()
        client.close()
    except EOFError:
        pass


def carry_out(lock, asked):
    began = time.monotonic_ns()
    try:
        if asked == "acquire":
            lock.acquire(timeout=BOUND)
        else:
            lock.release()
    except Exception as e:
        return "%s: %s" % (type(e).__name__, e)
    return began, time.monotonic_ns()


# --- the one that is asked ---------------------------------------------------

class Client:
    """The other end of such a process."""

    def __init__(self, context, servers):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, daemon=True,
                                       args=(servers, theirs))
        self.process.start()
        theirs.close()

    def begin(self, what):
        self.pipe.send(what)

    def result(self):
        result = self.pipe.recv()
        if isinstance(result, str):
            raise RuntimeError(result)
        return result

    def end(self):
        self.pipe.send(None)
        self.process.join(SESSION_TIMEOUT)


class HandOver:
    def __init__(self, servers):
        # no thread may run when processes are forked
        context = multiprocessing.get_context("fork")
        self.clients = [Client(context, servers) for _ in range(2)]
        for client in self.clients:
            assert client.pipe.recv() == "connected"
        self.eye = connect(servers)

    def run(self, line):
        rounds, gap = (int(word) for word in line.split())
        result = {"handover_us": [], "release_us": [], "overlaps": 0,
                  "wrong_answers": 0}
        try:
            self.clients[0].begin("acquire")
            self.clients[0].result()
            for i in range(rounds):
                self._hand_over(self.clients[i % 2], self.clients[1 - i % 2],
                                gap / 1e3, result)
            last = self.clients[rounds % 2]
            last.begin("release")
            last.result()
        except RuntimeError as e:
            print("kazoo_handover: %s" % e, file=sys.stderr, flush=True)
            result["wrong_answers"] += 1
        return result

    def _hand_over(self, holder, waiter, gap, result):
        waiter.begin("acquire")
        while len(self.eye.get_children(PATH)) < 2:
            time.sleep(0.001)
        time.sleep(gap)

        holder.begin("release")
        began, done = holder.result()
        _, granted = waiter.result()
        if granted < began:
            result["overlaps"] += 1
            return
        result["handover_us"].append((granted - began) // 1000)
        result["release_us"].append((done - began) // 1000)

    def end(self):
        for client in self.clients:
            client.end()
        self.eye.stop()
        self.eye.close()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: kazoo_handover.py HOST:PORT[,HOST:PORT...]")

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        hand_over = HandOver(sys.argv[1])
        for line in sys.stdin:
            if not line.strip():
                break
            print(json.dumps(hand_over.run(line)), flush=True)
        hand_over.end()
    except (EOFError, BrokenPipeError):
        sys.exit("kazoo_handover: a process of a client has ended")


if __name__ == "__main__":
    main()
