"""Carries frames between two interfaces, delays frames and loses some.

usage: relay.py INTERFACE INTERFACE DELAY LOSS SEED

Each frame is late by a random time of up to DELAY seconds, so that frames
overtake each other, and lost with the probability LOSS.  The relay prints
"ready" when listening, and at the end (SIGTERM) how many frames passed and got
lost.
"""

import heapq
import itertools
import random
import select
import signal
import socket
import sys
import time

ETH_P_ALL = 3
FRAME = 65600


def listen(interface):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                      socket.htons(ETH_P_ALL))
    s.bind((interface, ETH_P_ALL))
    s.setblocking(False)
    return s


def frames(s):
    """The frames that came in from outside since the last call."""
    while True:
        try:
            frame, origin = s.recvfrom(FRAME)
        except (BlockingIOError, OSError):
            return
        if origin[2] != socket.PACKET_OUTGOING:
            yield frame


def send(s, frame):
    try:
        s.send(frame)
    except OSError:
        pass        # an interface that is down loses frames, too


def main(one, other, delay, loss, seed):
    delay, loss = float(delay), float(loss)
    rng = random.Random(seed)
    a, b = listen(one), listen(other)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    late, numbers = [], itertools.count()
    passed = lost = 0
    print("ready", flush=True)
    try:
        while True:
            wait = late[0][0] - time.monotonic() if late else None
            ready = select.select([a, b], [], [],
                                  wait if wait is None else max(wait, 0))[0]
            for s in ready:
                for frame in frames(s):
                    if rng.random() < loss:
                        lost += 1
                        continue
                    at = time.monotonic() + rng.uniform(0, delay)
                    heapq.heappush(late, (at, next(numbers), frame,
                                          b if s is a else a))
            while late and late[0][0] <= time.monotonic():
                send(*reversed(heapq.heappop(late)[2:]))
                passed += 1
    finally:
        # a relay that stood still has read none of these yet
        for s in (a, b):
            lost += sum(rng.random() < loss for _ in frames(s))
        print(passed, lost, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
