"""Load of kazoo's own lock: clients that acquire and release in a loop.

usage: kazoo_load.py -s HOST:PORT[,HOST:PORT...] [-p PROCESSES]
                     [-e gevent|threads]

It connects, and then carries out what it reads, line by line, until an empty
line or the end of its input:

    WORK CLIENTS SECONDS WARM_UP

and answers each with one line, the JSON object that load.c prints.

WORK is "own", each client has a lock of its own, or "hot", all share one.  A
client has a kazoo Lock of its own, which it keeps, and is a greenlet of gevent,
or with -e threads a thread.  Greenlets were chosen because many threads of one
Python spend their time on handing each other the right to run: where many have
locks of their own greenlets do much more, and elsewhere it is much the same.

A Python computes on one core at most, so there are several processes, each with
one KazooClient, and the clients are dealt out to them in turn.  Four did more
than one or two where each client has a lock of its own, and lost nothing else;
with eight, fewer shared locks were granted.  Of greenlets kazoo bears no more
than the bytes that fit into the socket by which it wakes itself, so for many
clients there are more processes.

A Lock that was used before looks for a claim that it may have left, a list of
children more for each acquire.  It is told that there is none (create_tried).

The rules are those of load.c.  What ends in the first WARM_UP seconds is not
counted; after the last second nothing is begun, and what was begun is brought
to its end.  On the shared lock a client holds from when acquire() has returned
until release() is called; who is granted the lock while another one holds, in
whatever process, is an overlap.  A wrong answer is an exception, the first of
which is shown on stderr.  There are no fencing tokens, so none that goes
backwards.
"""

import argparse
import json
import logging
import multiprocessing
import os
import sys
import threading
import time

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TREE, "t"))

from kazoo.client import KazooClient                # noqa: E402
from kazoo.exceptions import LockTimeout            # noqa: E402
from kazoo.handlers.threading import (              # noqa: E402
    SequentialThreadingHandler)

from lib.process import die_with_parent             # noqa: E402

PROCESSES = 4
GREENLETS = 256         # of a process, at most: kazoo's socket has room for 278
SESSION_TIMEOUT = 30.0
CONNECT_TIMEOUT = 30.0
CLIENTS_MAX = 4096
STACK = 256 * 1024

SECOND_NS = 1e9

# what is under way at the end has so long to end; beyond that a client is
# given up
DRAIN = 30.0
GIVE_UP = 10.0

NOBODY = -1


# --- a histogram, as histogram.h has it -------------------------------------

BITS = 5
SUB = 1 << BITS


class Histogram:
    """32 buckets to an octave; made of times in ns when a run is over."""

    def __init__(self):
        self.buckets = {}
        self.n = 0
        self.max = 0

    def add(self, value):
        shift = max(0, value.bit_length() - 1 - BITS)
        bucket = shift * SUB + (value >> shift)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.n += 1
        self.max = max(self.max, value)

    def merge(self, other):
        for bucket, n in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + n
        self.n += other.n
        self.max = max(self.max, other.max)

    def quantile(self, q):
        """The middle of the bucket in which the part q is reached."""
        rank = int(q * self.n)
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen > rank:
                if bucket < SUB:
                    return bucket
                shift = bucket // SUB - 1
                return (bucket - shift * SUB + 0.5) * (1 << shift)
        return self.max

    def members(self, name):
        return {name + "_p50_us": round(self.quantile(0.50) / 1e3, 1),
                name + "_p99_us": round(self.quantile(0.99) / 1e3, 1),
                name + "_max_us": round(self.max / 1e3, 1)}


class Counts:
    """What a run of a process comes to; those of processes add up."""

    NAMES = ("total", "overlaps", "wrong", "unfinished")

    def __init__(self):
        self.cycles = Histogram()
        self.acquires = Histogram()
        self.total = self.overlaps = self.wrong = self.unfinished = 0

    def add(self, other):
        self.cycles.merge(other.cycles)
        self.acquires.merge(other.acquires)
        for name in self.NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


# --- a process of clients ---------------------------------------------------

class Client:
    """A greenlet, or a thread, of a run."""

    def __init__(self, worker, number):
        self.worker = worker
        self.number = number
        self.times = []             # (began, granted, released) of each cycle
        self.overlaps = self.wrong = 0
        self.busy = False
        self.thread = worker.client.handler.spawn(self._run)

    def _run(self):
        worker = self.worker
        worker.start.wait()
        until = worker.count_until
        while time.monotonic_ns() < until:
            self.busy = True
            try:
                self._cycle()
            except LockTimeout:
                return
            except Exception as e:
                self._complain(e)
            self.busy = False

    def _cycle(self):
        worker = self.worker
        began = time.monotonic_ns()
        lock = worker.lock(self.number)
        lock.acquire(timeout=(worker.drain_until - began) / SECOND_NS)
        granted = time.monotonic_ns()
        if worker.hot:
            self._holds()
            worker.holder.value = NOBODY
        lock.release()
        self.times.append((began, granted, time.monotonic_ns()))

    def _holds(self):
        holder = self.worker.holder
        with holder.get_lock():
            self.overlaps += (holder.value != NOBODY)
            holder.value = self.number

    def _complain(self, e):
        self.wrong += 1
        self.worker.forget(self.number)
        if not self.worker.complained:
            self.worker.complained = True
            print("kazoo_load: %s: %s" % (type(e).__name__, e),
                  file=sys.stderr, flush=True)


class Worker:
    """A process: one KazooClient, and the clients that share it."""

    def __init__(self, servers, engine, holder, pipe):
        self.holder = holder
        self.pipe = pipe
        self.locks = {}             # path and number -> Lock
        self.client = KazooClient(hosts=servers, timeout=SESSION_TIMEOUT,
                                  handler=handler(engine))
        try:
            self.client.start(timeout=CONNECT_TIMEOUT)
        except self.client.handler.timeout_exception:
            raise OSError("no connection to " + servers) from None
        self.pipe.send("connected")

    def serve(self):
        while True:
            asked = self._hear()
            if asked is None:
                break
            self.pipe.send(self._carry_out(*asked))
        self.client.stop()
        self.client.close()

    def _hear(self):
        """What the pipe says; meanwhile all others go on, heartbeats too."""
        self.client.handler.select([self.pipe], [], [])
        return self.pipe.recv()

    def _carry_out(self, hot, numbers):
        """Counts of a run; the clock is told when all are ready."""
        self.hot = hot
        self.complained = False
        self.start = self.client.handler.event_object()
        clients = [Client(self, number) for number in numbers]

        self.pipe.send("ready")
        self.count_from, self.count_until = self._hear()
        self.drain_until = self.count_until + int(DRAIN * SECOND_NS)
        self.start.set()

        for client in clients:
            left = self.drain_until - time.monotonic_ns()
            client.thread.join(max(0, left / SECOND_NS + GIVE_UP))
        return self._counts(clients)

    def _counts(self, clients):
        counts = Counts()
        for client in clients:
            counts.total += len(client.times)
            counts.overlaps += client.overlaps
            counts.wrong += client.wrong
            counts.unfinished += client.busy
            for began, granted, released in client.times:
                if self.count_from <= released < self.count_until:
                    counts.cycles.add(released - began)
                    counts.acquires.add(granted - began)
        return counts

    def lock(self, number):
        key = (self.hot, number)
        if key not in self.locks:
            path = "/kazoo/hot" if self.hot else "/kazoo/own-%d" % number
            self.locks[key] = self.client.Lock(path)
        self.locks[key].create_tried = False
        return self.locks[key]

    def forget(self, number):
        """What a lock is like after an exception nobody knows."""
        self.locks.pop((self.hot, number), None)


def handler(engine):
    """kazoo's way of doing several things at a time."""
    if engine == "gevent":
        from kazoo.handlers.gevent import SequentialGeventHandler
        return SequentialGeventHandler()
    threading.stack_size(STACK)
    return SequentialThreadingHandler()


def work(servers, engine, holder, pipe):
    """The whole of a process."""
    die_with_parent()
    try:
        Worker(servers, engine, holder, pipe).serve()
    except (EOFError, KeyboardInterrupt):
        pass
    except Exception as e:
        print("kazoo_load: %s: %s" % (type(e).__name__, e), file=sys.stderr,
              flush=True)
        os._exit(1)


# --- the one that is asked --------------------------------------------------

class Load:
    def __init__(self, servers, processes, engine):
        self.context = multiprocessing.get_context("fork")
        self.servers = servers
        self.engine = engine
        self.least = processes
        self.holder = self.context.Value("q", NOBODY)
        self.pipes = []
        self.processes = []
        self._grow(processes)

    def _grow(self, n):
        """The pipes of n processes; those that are missing are started."""
        new = []
        while len(self.pipes) < n:
            ours, theirs = self.context.Pipe()
            process = self.context.Process(
                target=work, daemon=True,
                args=(self.servers, self.engine, self.holder, theirs))
            process.start()
            theirs.close()
            new.append(ours)
            self.pipes.append(ours)
            self.processes.append(process)
        expect(new, "connected")
        return self.pipes[:n]

    def _for(self, clients):
        """The pipes of as many processes as so many clients take."""
        n = self.least
        if self.engine == "gevent":
            n = max(n, -(-clients // GREENLETS))
        return self._grow(n)

    def run(self, line):
        kind, clients, seconds, warm_up = parse(line)

        pipes = self._for(clients)
        self.holder.value = NOBODY
        for i, pipe in enumerate(pipes):
            pipe.send((kind == "hot", range(i, clients, len(pipes))))
        expect(pipes, "ready")

        count_from = time.monotonic_ns() + int(warm_up * SECOND_NS)
        count_until = count_from + int(seconds * SECOND_NS)
        for pipe in pipes:
            pipe.send((count_from, count_until))

        counts = Counts()
        for pipe in pipes:
            counts.add(pipe.recv())
        return report(clients, seconds, counts)

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(SESSION_TIMEOUT)


def parse(line):
    words = line.split()
    try:
        kind, clients, seconds, warm_up = words
        clients, seconds, warm_up = int(clients), float(seconds), float(warm_up)
    except ValueError:
        kind = None
    if (kind not in ("own", "hot") or not 1 <= clients <= CLIENTS_MAX
            or seconds <= 0 or warm_up < 0):
        raise ValueError("not understood: " + line.strip())
    return kind, clients, seconds, warm_up


def expect(pipes, word):
    for pipe in pipes:
        said = pipe.recv()
        if said != word:
            raise EOFError(said)


def report(clients, seconds, counts):
    result = {"clients": clients, "seconds": seconds,
              "cycles": counts.cycles.n, "total": counts.total,
              "per_second": round(counts.cycles.n / seconds, 1)}
    result.update(counts.cycles.members("cycle"))
    result.update(counts.acquires.members("acquire"))
    result.update({"overlaps": counts.overlaps, "fencing_backwards": 0,
                   "wrong_answers": counts.wrong,
                   "unfinished": counts.unfinished})
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("-s", dest="servers", required=True,
                   metavar="HOST:PORT[,HOST:PORT...]")
    p.add_argument("-p", dest="processes", type=int, default=PROCESSES,
                   help="processes, a KazooClient each (%(default)s)")
    p.add_argument("-e", dest="engine", choices=("gevent", "threads"),
                   default="gevent", help="what a client is (%(default)s)")
    args = p.parse_args()
    if args.processes < 1:
        p.error("at least one process")

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        load = Load(args.servers, args.processes, args.engine)
        for line in sys.stdin:
            if not line.strip():
                break
            print(json.dumps(load.run(line)), flush=True)
        load.end()
    except (EOFError, BrokenPipeError):
        sys.exit("kazoo_load: a process of clients has ended")
    except ValueError as e:
        sys.exit("kazoo_load: %s" % e)


if __name__ == "__main__":
    main()
