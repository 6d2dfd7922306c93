"""Claims that wait without a request.

A client that does not want to keep a connection polls its claim now and then,
and the polls keep the claim's place; a client with a key may also repeat its
request.  Both kinds of claims outlive their clients for zk_lock_grace, and then
end.  What takes longer than the grace is tried at once with many locks, each
asked for in another way or at another place: at the worker that has the claim,
at its sibling, or at the other gateway.
"""

import itertools
import time

import pytest

from lib.checks import gone, grant, problem, wait_over
from lib.client import lock_path
from lib.process import wait_until
from lib.queues import kill, wait
from lib.repeats import (KEPT, LEAVES, PLACES, SOON, acquire, alike, begin,
                         elsewhere, everywhere, granted, holds, joined, kind,
                         only, poll, queue, queued, released, told, unless_away,
                         waits)
from lib.repeats import kept, name, pair        # fixtures      # noqa: F401
from lib.tokens import claim_of

MODES = [{}, {"mode": "shared"}, {"mode": "write"},
         {"mode": "semaphore", "permits": "2"}, {"mode": "member"}]


def test_nobody_asks(kept, tree, name):
    """A claim ends after the grace, not before, however the client left; also
    if there was no client from the start, and if the claim was granted, though
    the lease is long.
    """
    here, there = kept
    spots = itertools.cycle(everywhere(here, there))
    claims = []
    for leave, turn in itertools.product(LEAVES + ["queued"], [False, True]):
        lock = "%s-%s-%s" % (name, leave, turn)
        gateway, worker = next(spots)
        blocker = there.hold(lock, ttl="1h").token
        began = time.monotonic()
        if leave == "queued":
            mine = queued(queue(gateway, lock, None, worker, ttl="1h"), lock)
        else:
            first = begin(gateway, lock, "key", worker, ttl="1h")
            mine = joined(here, tree, lock, 2)
            began = time.monotonic()
            getattr(first, leave)()
        behind = here.begin(lock, wait="1m")
        if turn:
            joined(here, tree, lock, 3)
            released(there, lock, blocker)
        claims.append((lock, turn, blocker, mine, behind, began))
    for lock, turn, blocker, mine, behind, began in claims:
        tree.wait_gone(here.znode(lock) + "/" + claim_of(mine), SOON)
        assert time.monotonic() - began >= KEPT - 0.01
        gone(there, lock, mine)
        if not turn:
            assert behind.silent_for(0)
            released(there, lock, blocker)
        released(there, lock, grant(behind.response(SOON), lock)["token"])


class Keeper:
    """A claim whose client has left, and one that asks for the claim."""

    WAYS = ["repeats and leaves", "repeats with a short wait", "waits again",
            "is queued again", "polls", "polls for long"]

    def __init__(self, way, place, pair, tree, name):
        (here, one), (self.gateway, self.worker) = elsewhere(pair, place)
        self.way = way
        self.name = "%s-%s-%s" % (name, way, place)
        self.line = None
        self.blocker = here.hold(self.name, ttl="1h").token
        if "queued" in way or "polls" in way:
            self.token = queued(queue(here, self.name, "key", one), self.name)
        else:
            # the wait of a client that has left does not count
            first = begin(here, self.name, "key", one, wait="3s")
            self.token = joined(here, tree, self.name, 2)
            getattr(first, LEAVES[PLACES.index(place)])()

    def ask(self):
        where = self.gateway, self.name
        wait = "100ms" if "short" in self.way else "1m"
        if self.line and "short" in self.way:
            wait_over(self.line.response(SOON), self.gateway)
        elif self.line:
            assert self.line.silent_for(0)
        if self.way == "is queued again":
            answer = queue(*where, "key", self.worker)
            assert queued(answer, self.name) == self.token
        elif self.way == "polls":
            assert waits(poll(*where, self.token, self.worker), self.name,
                         self.token)
        elif self.way == "polls for long":
            self.line = self.line or self.gateway.connect(self.worker).send(
                "GET", lock_path(self.name, self.token), {"wait": "1m"})
        elif self.way != "waits again" or not self.line:
            self.leave()
            self.line = begin(*where, "key", self.worker, wait=wait)

    def leave(self):
        if self.line:
            self.line.close()


def test_place_is_kept(kept, tree, name):
    """Who asks keeps the place for another grace, and a call that waits keeps
    the place while it waits.  Then nobody asks, and the claims end.
    """
    here = kept[0]
    keepers = []
    for place in PLACES:
        keepers += [Keeper(way, place, kept, tree, name) for way in Keeper.WAYS]
        for keeper in keepers:
            keeper.ask()
    behind = [here.begin(keeper.name, wait="1m") for keeper in keepers]
    end = time.monotonic() + 1.5 * KEPT
    while time.monotonic() < end:
        for keeper in keepers:
            keeper.ask()
        time.sleep(0.2)
    wait(*behind)
    for keeper in keepers:
        if keeper.way == "waits again":
            released(here, keeper.name, keeper.blocker)
            assert holds(keeper.line.response(SOON), keeper.name, keeper.token)
            keeper.blocker = keeper.token
        keeper.leave()
    for keeper, waiter in zip(keepers, behind):
        if keeper.blocker != keeper.token:
            tree.wait_gone(here.znode(keeper.name) + "/"
                           + claim_of(keeper.token), SOON)
        assert waiter.silent_for(0)
        released(here, keeper.name, keeper.blocker)
        released(here, keeper.name, waiter.response(SOON).token)


def test_grant_has_to_be_seen(kept, tree, name):
    """The first poll, repeat or share that sees a grant begins the lease, which
    needs no client.  To have asked before the grant is not enough.
    """
    seen = []
    for way, place in itertools.product(["poll", "repeat", "share", None],
                                        PLACES):
        lock = "%s-%s-%s" % (name, way, place)
        (here, one), (there, other) = elsewhere(kept, place)
        holder = here.hold(lock).token
        token = queued(queue(here, lock, "key", one, ttl="1h"), lock)
        assert waits(poll(there, lock, token, other), lock, token)
        released(here, lock, holder)
        wait_until(lambda: here.inspect(lock).json["holders"][0].get("since"),
                   SOON)

        def look():
            if way == "share":
                return there.renew(lock, token, worker=other, mode="shared")
            if way == "repeat":
                return queue(there, lock, "key", other, ttl="1h")
            return poll(there, lock, token, other)

        if way:
            wait_until(lambda: look().json.get("state") == "held", SOON)
        seen.append((lock, way, token, here.begin(
            lock, wait="%ds" % (2 * KEPT - 2))))
    for lock, way, token, behind in seen:
        if way:
            wait_over(behind.response(SOON), kept[0])
            for gateway, worker in everywhere(*kept):
                told(poll(gateway, lock, token, worker), 200, lock, "held",
                     "shared" if way == "share" else "exclusive")
            left = kept[0].inspect(lock, token).json.get("expires_in_ms")
            assert left is None or left > 3000000
        else:
            gone(kept[0], lock, token)
            token = grant(behind.response(SOON), lock)["token"]
        released(kept[1], lock, token)


def test_looks_renew_no_lease(pair, name):
    """A lease ends, though polls and repeats come to every worker all the time;
    a repeat is told what is left of the lease, and then gets a new claim.
    """
    here, there = pair
    token = granted(acquire(here, name, "key", ttl="3s"), name)
    left = []

    def over():
        for gateway, worker in everywhere(here, there):
            answer = poll(gateway, name, token, worker)
            again = acquire(gateway, name, "key", worker, ttl="3s")
            if answer.status == 410 or again.token != token:
                return again
            left.append(again.json.get("expires_in_ms", 3000))

    released(there, name, granted(wait_until(over, 2 * SOON), name))
    assert min(left) < 2500
    gone(there, name, token)


# claims that wait without a request

def test_queued_answer(pair, tree, name):
    """202 tells the place in the queue, with each way to write the preference;
    a lock that is free is granted at once, in each mode.
    """
    here, there = pair
    for mode in MODES:
        lock = name + kind(mode)
        answer = queue(here, lock, **mode)
        released(there, lock, granted(answer, lock, 201, kind(mode)))
    line = [here.hold(name).token]
    for prefer, (gateway, worker) in itertools.product(
            ("respond-async, wait=10", "Respond-Async",
             'foo="a,b", respond-async;x=1'), everywhere(here, there)):
        answer = gateway.acquire(name, None, {"Prefer": prefer}, worker)
        token = queued(answer, name, len(line) - 1)
        line.append(token)
        assert joined(here, tree, name, len(line)) == token
        path = answer.headers["Location"]
        assert waits(there.call("GET", path[path.index("/locks/"):]), name,
                     token, len(line) - 2)
    for prefer in ("respond-asynchronously", "respond-async=x",
                   'foo="respond-async"'):
        problem(here.in_reach(lambda: here.acquire(
            name, None, {"Prefer": prefer}, wait="10ms")), 423)
    for token in line[::-1]:
        released(there, name, token)


def test_polls_everywhere(pair, name):
    """Every worker tells the places in the queue, and the grant; the grant
    answers all polls that wait.  The wait is an argument or a preference.
    """
    here, there = pair
    spots = everywhere(here, there)
    holder = here.hold(name).token
    line = [queued(queue(gateway, name, worker=worker, ttl="1h"), name, i)
            for i, (gateway, worker) in enumerate(spots)]

    def ask(token):
        """A long poll at each worker."""
        return [gateway.connect(worker).send("GET", lock_path(name, token), *(
            ({"wait": "40s"},) if spot % 2 else (None, {"Prefer": "wait=40"})))
            for spot, (gateway, worker) in enumerate(spots)]

    # a renewal of a claim that waits renews nothing, as only the status says
    answer = there.renew(name, line[0], ttl="2m")
    assert answer.status == 202
    assert answer.json == poll(there, name, line[0]).json
    for header in ("Preference-Applied", "Location"):
        assert header not in answer.headers
    while line:
        for gateway, worker in spots:
            for i, token in enumerate(line):
                assert waits(poll(gateway, name, token, worker), name, token, i)
        asked = ask(line[0])
        others = ask(line[-1]) if line[1:] else []
        wait(*asked, *others)
        released(there, name, holder)
        for gateway, worker in spots:
            problem(gateway.inspect(name, holder, worker), 410)
        holder = line.pop(0)
        for each in asked:
            assert holds(each.response(SOON), name, holder)
        assert all(each.silent_for(0) for each in others)
        for gateway, worker in spots:
            assert holds(gateway.call(
                "GET", lock_path(name), headers={"Lock-Token": holder},
                worker=worker), name, holder)
    released(here, name, holder)


@pytest.mark.parametrize("place", PLACES)
def test_cancelled(pair, tree, name, place):
    """The request that waits gets 410, and does not queue again; the claims
    behind move up.
    """
    (here, one), (gateway, worker) = elsewhere(pair, place)
    holder = here.hold(name).token
    waiter = begin(here, name, "key", one)
    token = joined(here, tree, name, 2)
    behind = queued(queue(pair[1], name), name, 1)
    asked = pair[1].connect().send("GET", lock_path(name, token),
                                   {"wait": "40s"})
    assert queued(queue(gateway, name, "key", worker), name) == token
    assert gateway.release(name, token, worker).status == 204
    problem(waiter.response(SOON), 410)
    problem(asked.response(SOON), 410)
    for other, at in everywhere(*pair):
        gone(other, name, token, at)
        assert waits(poll(other, name, behind, at), name, behind)
    for token in (behind, holder):
        released(here, name, token)


# workers that come and go

def test_reload_keeps_the_place(start_gateway):
    """The worker that has the claim stays while clients poll the claim."""
    here, there = [start_gateway(location="zk_lock_grace 30s;",
                                 session_timeout="60s") for _ in range(2)]
    holder = there.hold("x", ttl="1h").token
    line = [queued(queue(here, "x", key, worker), "x", i) for i, (key, worker)
            in enumerate(zip([None, "key"], here.worker_pids()))]
    for _ in range(2):
        here.reload()
        here.wait_served()
        for gateway, worker in everywhere(here, there):
            for i, token in enumerate(line):
                assert waits(poll(gateway, "x", token, worker), "x", token, i)
            assert queued(queue(gateway, "x", "key", worker), "x",
                          1) == line[1]
    for token in line:
        released(there, "x", holder)
        assert holds(poll(here, "x", token, wait="20"), "x", token)
        holder = token
    released(here, "x", holder)
    wait_until(lambda: not here.worker_pids(leaving=True), SOON,
               "the old workers are gone")


def test_worker_dies(start_gateway, tree):
    """A claim that waits is lost: a poll gets 410, and a repeat that waits
    elsewhere begins anew.  A claim that a client saw as held stays held.
    """
    here, there = [start_gateway(location="zk_lock_grace 1m;",
                                 session_timeout="60s") for _ in range(2)]
    dead, other = here.worker_pids()
    holder = there.hold("x", ttl="1h").token
    lost = queued(queue(here, "x", None, dead), "x")
    first = begin(here, "x", "key", dead, ttl="1h")
    joined(here, tree, "x", 3)
    stays = queued(queue(here, "x", None, other, ttl="1h"), "x", 2)
    again = [begin(gateway, "x", "key", worker, ttl="1h")
             for gateway, worker in everywhere(here, there) if worker != dead]
    wait(*again)
    kill(here, dead)
    assert first.closed_by_server(SOON)
    joined(here, tree, "x", 3)
    for gateway, worker in everywhere(here, there):
        wait_until(lambda: poll(gateway, "x", lost, worker).status == 410, SOON)
        assert waits(poll(gateway, "x", stays, worker), "x", stays)
    released(there, "x", holder)
    assert holds(poll(there, "x", stays, wait="20"), "x", stays)
    wait(*again)
    kill(here, other)
    for gateway, worker in everywhere(here, there):
        answer, _ = unless_away(lambda: poll(gateway, "x", stays, worker))
        assert holds(answer, "x", stays)
    released(here, "x", stays)

    again = again[1:]       # the first was at the worker that has died
    token = alike([waiter.response(SOON) for waiter in again], "x")
    for worker in here.worker_pids():
        kill(here, worker)
    for gateway, worker in everywhere(here, there):
        answer, _ = unless_away(lambda: acquire(gateway, "x", "key", worker,
                                                ttl="1h"))
        assert holds(answer, "x", token)
    only(here, tree, "x", token)
    released(there, "x", token)
