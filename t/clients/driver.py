"""A program that uses clients/python; test_clients.py says what it does."""

import os
import select
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "..", "clients", "python"))

import zk_lock      # noqa: E402
from zk_lock import LockError, lock     # noqa: E402

NUMBERS = {"wait": float, "ttl": float, "permits": int, "durable": "1".__eq__,
           "loop": float}


def say(*words):
    print(*words, flush=True)


def options_of(words):
    pairs = [word.split("=", 1) for word in words]
    options = {name: NUMBERS.get(name, str)(value) for name, value in pairs}
    if "auth" in options:
        options["headers"] = {"Authorization": options.pop("auth")}
    return options


def use(held):
    say("held", held.token, held.fencing_token, held.owner, held.mode)
    for line in sys.stdin:
        if line == "raise\n":
            raise RuntimeError("raised")
        if line == "late\n":
            zk_lock.now = lambda: time.monotonic() + 3600
        if line == "early\n":
            held.release()
        if line in ("release\n", "early\n", "late\n"):
            return
        say("yes" if held.is_held() else "no")


def lost(held):
    say("lost", held.lost)


def raises(held):
    raise RuntimeError("raised")


def crowd(name, number, options):
    granted = []

    def wait():
        with lock(name, **dict(options, wait=120)) as held:
            granted.append(held)

    with lock(name, **options) as held:
        threads = [threading.Thread(target=wait) for _ in range(number)]
        for thread in threads:
            thread.start()
        use(held)
    for thread in threads:
        thread.join()
    say("granted", len(granted))


def rounds(name, work, options):
    while not select.select([sys.stdin], [], [], 0)[0]:
        with lock(name, **options) as held:
            say("in", held.owner, held.fencing_token)
            time.sleep(work)
            held.check()
            say("out", held.owner, held.fencing_token)


def main(url, name, number, *words):
    options = dict(options_of(words), url=url)
    options["on_lost"] = raises if options.pop("raises", None) else lost
    work = options.pop("loop", None)
    try:
        if work is not None:
            rounds(name, work, options)
        elif number != "0":
            crowd(name, int(number), options)
        else:
            with lock(name, **options) as held:
                use(held)
        say("end", "released")
    except RuntimeError as e:
        say("end", e)
    except LockError as e:
        say("end", type(e).__name__.lower(), e)
    except KeyboardInterrupt:
        say("end", "cancelled")


main(*sys.argv[1:])
