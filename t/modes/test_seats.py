"""Seats: a semaphore has a number of seats, and members need no seat.

At most as many claims hold a semaphore as the semaphore has permits, and the
other claims keep their order: when a claim leaves its seat, at any gateway, the
next claim in the queue gets the seat.  A member never waits in a queue.  A lock
has a single use at a time: a claim with another mode is refused with 409 while
a claim is ahead, and does not wait; a claim with other permits waits for the
claims ahead, and gets 409 when its wait is over.

Foreign claims on the same path are made by hand, as another gateway makes
claims.  ZK_LOCK_GRANTS is the number of grants of each of the loads, and
ZK_LOCK_SEED the seed of all random choices.
"""

import asyncio
import itertools
import re
import time

import pytest

from lib.checks import TOKEN, gone, grant, may_be_over, problem, wait_over
from lib.client import AsyncConnection, ask, lock_path
from lib.holders import wait_dead
from lib.process import wait_until
from lib.queues import (
    GRANTS, SOON, chance, kill, patience, play, wait)
from lib.room import Seats
from lib.sessions import stay_ephemeral
from lib.streams import hold
from lib.tokens import claim_of
from lib.zookeeper import sequence

USES = {"exclusive": {"mode": "exclusive"}, "shared": {"mode": "shared"},
        "write": {"mode": "write"}, "member": {"mode": "member"},
        "semaphore1": {"mode": "semaphore", "permits": 1},
        "semaphore2": {"mode": "semaphore", "permits": 2}}
MIXED = ("exclusive", "shared", "write")
ROOMY = ("shared", "member", "semaphore2")      # two hold the lock
MODES = ("exclusive", "shared", "write", "semaphore", "member")
APART = [(one, other) for one, other in itertools.permutations(USES, 2)
         if one not in MIXED or other not in MIXED]
MARKERS = {"exclusive": "lock-", "shared": "__READ__", "write": "__WRIT__",
           "semaphore": "permit%s-", "member": "member-"}
GUID = "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71"


@pytest.fixture
def pair(start_gateway):
    return [start_gateway(session_timeout="60s") for _ in range(2)]


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


@pytest.fixture
def near_and_far(shared_pair):
    """The places as seen from a worker."""
    one, other = shared_pair
    here, sibling = one.worker_pids()
    return {"worker": (one, here), "sibling": (one, sibling),
            "gateway": (other, other.worker_pids()[0])}


@pytest.fixture
def start_line(tree, shared_pair):
    """A queue at all workers of two gateways, for a semaphore or other use."""
    def start(permits=None, **use):
        if permits is not None:
            use = {"mode": "semaphore", "permits": permits}
        return Line(tree, all_places(*shared_pair), **use)

    return start


def all_places(*gateways):
    """(gateway, worker), endlessly: all workers, at the gateways in turn."""
    return itertools.cycle([
        place for workers in zip(*[gateway.worker_pids()
                                   for gateway in gateways])
        for place in zip(gateways, workers)])


def is_claim_of(claim, mode, permits=None):
    marker = MARKERS[mode]
    if permits is not None:
        marker %= permits
    return re.match(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-%s\d{10}$"
                    % marker, claim)


def told(content, mode, permits=None):
    """The answer tells the lock's mode, and permits only for a semaphore."""
    assert content["mode"] == mode, content
    assert content.get("permits") == permits, content
    assert "permits" not in content or mode == "semaphore", content
    return content


def granted(response, name, mode, permits=None):
    assert response.status == 201, response
    content = told(response.json, mode, permits)
    assert content["name"] == name
    assert TOKEN.match(content["token"]) and content["fencing_token"] > 0
    assert response.headers["Lock-Token"] == content["token"]
    assert is_claim_of(claim_of(content["token"]), mode, permits)
    return response


def answer(connection):
    """The connection's last answer."""
    with connection:
        return connection.response(SOON)


class Line:
    """Claims of the same use for the same lock, in order.

    Each claim is made at the next place, unless the test names a place.
    """

    numbers = itertools.count()

    def __init__(self, tree, places, **use):
        self.tree = tree
        self.places = places
        self.use = use
        self.name = "s%d" % next(self.numbers)
        self.gateway = next(places)[0]
        self.znode = self.gateway.znode(self.name)
        self.fencing = 0

    def join(self, place=None, **query):
        """The connection of a claim that is in the queue, or is answered."""
        self.gateway, worker = place or next(self.places)
        before = set(self.tree.children(self.znode))
        waiter = self.gateway.begin(self.name, worker=worker,
                                    **dict(self.use, **query))
        self.tree.wait_claims(
            self.znode, lambda claims: (set(claims) - before
                                        or not waiter.silent_for(0)))
        return waiter

    def granted(self, waiter):
        response = granted(answer(waiter), self.name, **self.use)
        assert response.fencing > self.fencing
        self.fencing = response.fencing
        return response

    def take(self, place=None, **query):
        """Joins, and is granted the lock at once."""
        return self.granted(self.join(place, **query))

    def release(self, *responses, place=None):
        for response in responses:
            gateway, worker = place or next(self.places)
            assert gateway.release(self.name, response.token,
                                   worker).status == 204

    def tried(self, status, **use):
        """An acquire with this use is refused at each place."""
        answers = []
        for _ in range(4):
            gateway, worker = next(self.places)
            arguments = dict(use or self.use, worker=worker, timeout=SOON)
            if status == 423:
                answers.append(gateway.refusal(self.name, **arguments))
                continue
            response = gateway.acquire(self.name, wait="0", **arguments)
            answers.append(problem(response, status))
        return answers

    def holds(self, *holders):
        """Each place says that all of these claims hold the lock."""
        for _ in range(4):
            gateway, worker = next(self.places)
            for holder in holders:
                for response in (
                        gateway.inspect(self.name, holder.token, worker),
                        gateway.renew(self.name, holder.token,
                                      worker=worker)):
                    assert response.status == 200, response
                    content = told(response.json, **self.use)
                    assert content["state"] == "held"
                    assert content["fencing_token"] == holder.fencing

    def shown(self):
        """What each place shows of the lock: (holders, queue) by owner."""
        seen = []
        for _ in range(4):
            gateway, worker = next(self.places)
            response = gateway.inspect(self.name, worker=worker)
            assert response.status == 200, response
            content = told(response.json, **self.use)
            assert content["queued"] == len(content["queue"])
            fencing = [claim["fencing_token"] for claim in content["holders"]]
            assert fencing == sorted(set(fencing))
            seen.append(tuple([claim["owner"] for claim in content[which]]
                              for which in ("holders", "queue")))
        assert all(other == seen[0] for other in seen), seen
        return seen[0]

    def empty(self):
        self.tree.wait_claims(self.znode, 0)


# what a semaphore is

@pytest.mark.parametrize("permits", [1, 2, 10, 999, 1000])
def test_permits_are_told(gateway, tree, permits):
    """The grant, and GET with and without the token, tell the permits."""
    use = {"mode": "semaphore", "permits": permits}
    for query, body in ((use, None), ({}, use),
                        ({"mode": "semaphore"}, {"permits": permits}),
                        ({"permits": permits}, {"mode": "semaphore"}),
                        ({"mode": "write", "permits": 7}, use)):
        holder = granted(gateway.hold("x", body, **query), "x", **use)
        claim, = tree.claims(gateway.znode("x"))
        assert is_claim_of(claim, **use) and claim == claim_of(holder.token)
        for worker in gateway.worker_pids():
            seen = gateway.inspect("x", holder.token, worker).json
            assert told(seen, **use)["state"] == "held"
            told(gateway.renew("x", holder.token, worker=worker).json, **use)
            told(gateway.inspect("x", worker=worker).json, **use)
        assert gateway.release("x", holder.token).status == 204
        gone(gateway, "x", holder.token)


def test_permits_are_missing(shared_gateway, tree):
    for arguments in ({"mode": "semaphore"}, {"body": {"mode": "semaphore"}},
                      {"mode": "write", "body": {"mode": "semaphore"}}):
        problem(shared_gateway.acquire("bad", **arguments), 400, "permits")
    assert tree.children(shared_gateway.znode("bad")) == []


@pytest.mark.parametrize("permits", [
    "", "0", "00", "1001", "10000", "-1", "+1", "1.5", "1,5", "1 ", " 1",
    "three", "0x10", "1e2", "1s", "4294967297", "18446744073709551617",
    "9" * 300, "\u0663"])
def test_permits_that_are_none(shared_gateway, tree, permits):
    problem(shared_gateway.acquire("bad", mode="semaphore", permits=permits),
            400, "permits")
    problem(shared_gateway.acquire("bad", {"mode": "semaphore",
                                           "permits": permits}),
            400, "permits")
    assert tree.children(shared_gateway.znode("bad")) == []


@pytest.mark.parametrize("permits", [
    b"0", b"1001", b"-1", b"1.5", b"4294967297", b"18446744073709551617",
    b"1e400", b"null", b"true", b"[3]", b'{"n": 3}', b'3, "permits": 3',
    b"", b"03"])
def test_permits_that_are_no_number(shared_gateway, tree, permits):
    response = shared_gateway.call(
        "POST", "/locks/bad", headers={"Content-Type": "application/json"},
        body=b'{"mode": "semaphore", "permits": ' + permits + b"}")
    problem(response, 400)
    assert tree.children(shared_gateway.znode("bad")) == []


@pytest.mark.parametrize("mode", [None, "exclusive", "shared", "read",
                                  "write", "member"])
def test_permits_of_another_mode(shared_gateway, tree, mode):
    use = {"permits": 2} if mode is None else {"permits": 2, "mode": mode}
    problem(shared_gateway.acquire("bad", **use), 400, "permits")
    problem(shared_gateway.acquire("bad", use), 400, "permits")
    assert tree.children(shared_gateway.znode("bad")) == []


def test_permits_of_other_calls(shared_gateway):
    """Only an acquire takes permits."""
    use = {"mode": "semaphore", "permits": 2}
    holder = granted(shared_gateway.hold("x", **use), "x", **use)
    path = lock_path("x", holder.token)
    for method in ("GET", "PUT", "DELETE"):
        problem(shared_gateway.call(method, path, {"permits": 2}), 400)
    problem(shared_gateway.call("PUT", path, body={"permits": 2}), 400)
    problem(shared_gateway.call("GET", "/locks/x", {"permits": 2}), 400)
    assert shared_gateway.release("x", holder.token).status == 204


# which claims have a seat

@pytest.mark.parametrize("permits", [1, 2, 3, 7])
def test_at_most_so_many(start_line, permits):
    line = start_line(permits)
    for _ in range(2):
        holders = [line.take(wait="0") for _ in range(permits)]
        line.tried(423)
        waiters = [line.join() for _ in range(permits + 1)]
        line.tried(423)
        line.holds(*holders)
        for _ in range(len(waiters)):
            wait(*waiters)
            line.release(holders.pop(len(holders) // 2))
            holders.append(line.granted(waiters.pop(0)))
        line.tried(423)
        line.release(*holders[1:])
        last = [line.take(wait="0") for _ in range(permits - 1)]
        line.tried(423)
        line.release(holders[0], *last)
        line.empty()


@pytest.mark.parametrize("seat", range(3))
@pytest.mark.parametrize("where", [
    "worker worker worker", "sibling sibling sibling",
    "gateway gateway gateway", "worker sibling gateway",
    "gateway worker sibling"])
def test_any_seat_ahead(start_line, near_and_far, where, seat):
    """Whichever seat is freed, at any place: the first waiter gets the seat,
    and the waiter behind does not.
    """
    line = start_line(3)
    here = near_and_far["worker"]
    for freed_at in near_and_far.values():
        holders = [line.take(near_and_far[place]) for place in where.split()]
        waiters = [line.join(here), line.join(here)]
        wait(*waiters)
        line.release(holders.pop(seat), place=freed_at)
        holders.append(line.granted(waiters[0]))
        wait(waiters[1])
        line.release(holders.pop(seat % len(holders)), place=freed_at)
        holders.append(line.granted(waiters[1]))
        line.release(*holders)
        line.empty()


@pytest.mark.parametrize("seat", range(3))
def test_seat_of_who_came_last(start_line, near_and_far, seat):
    """A claim that waited gets a seat and leaves before all other holders; then
    the claims ahead leave, in turn.
    """
    line = start_line(3)
    for where in itertools.permutations(near_and_far.values()):
        holders = [line.take(place) for place in where]
        waiters = [line.join(place) for place in where]
        line.release(holders.pop(seat), place=where[0])
        brief = line.granted(waiters[0])
        line.release(brief, place=where[1])
        holders.append(line.granted(waiters[1]))
        assert waiters[2].silent_for(0.05)
        line.release(holders.pop(0), place=where[2])
        holders.append(line.granted(waiters[2]))
        line.release(*holders)
        line.empty()


def test_seats_are_freed_at_once(start_line):
    """All seats are freed at once, at different places; each waiter gets a
    seat.
    """
    line = start_line(4)
    holders = [line.take() for _ in range(4)]
    for _ in range(20):
        waiters = [line.join() for _ in holders]
        places = [next(line.places) for _ in holders]
        releasing = [gateway.connect(worker) for gateway, worker in places]
        for connection, holder in zip(releasing, holders):
            connection.send("DELETE", lock_path(line.name, holder.token))
        for connection in releasing:
            assert answer(connection).status == 204
        holders = [line.granted(waiter) for waiter in waiters]
    line.tried(423)
    line.release(*holders)
    line.empty()


@pytest.mark.parametrize("how", ["close", "reset", "wait ends"])
def test_waiting_one_leaves(start_line, how):
    """The leave grants no claim, but moves up the claims behind."""
    line = start_line(2)
    holders = [line.take() for _ in range(2)]
    leaver = line.join(wait="700ms" if how == "wait ends" else "1m")
    asked = line.gateway
    waiters = [line.join() for _ in range(2)]
    if how == "wait ends":
        wait_over(answer(leaver), asked)
    else:
        getattr(leaver, how)()
    line.tree.wait_claims(line.znode, 4)
    wait(*waiters)
    line.tried(423)
    for waiter in waiters:
        wait(waiter)
        line.release(holders.pop(1))
        holders.append(line.granted(waiter))
    line.release(*holders)
    line.empty()


@pytest.mark.parametrize("permits", [1, 2, 3, 5])
def test_line_in_any_order(start_line, permits):
    """Claims come, and leave their seats and places, at random."""
    dice = chance()
    line = start_line(permits)
    holders, waiters = [], []
    for _ in range(40 + permits * 10):
        what = dice.choice(("comes", "comes", "frees", "frees", "leaves"))
        places = [next(line.places) for _ in range(4)]
        if what == "comes" and len(waiters) < 6:
            waiters.append(line.join(dice.choice(places)))
        elif what == "frees" and holders:
            line.release(holders.pop(dice.randrange(len(holders))),
                         place=dice.choice(places))
        elif what == "leaves" and waiters:
            leaver = waiters.pop(dice.randrange(len(waiters)))
            dice.choice((leaver.close, leaver.reset))()
        while waiters and len(holders) < permits:
            holders.append(line.granted(waiters.pop(0)))
        line.tree.wait_claims(line.znode, len(holders) + len(waiters))
        assert all(waiter.silent_for(0) for waiter in waiters)
    if waiters:
        wait(*waiters)
    while holders:
        line.release(holders.pop(0))
        if waiters:
            holders.append(line.granted(waiters.pop(0)))
    line.empty()


@pytest.mark.parametrize("seat", range(3))
def test_seat_taken_by_hand(gateway, foreign, seat):
    """As another gateway makes the claim: the claim counts, and claims wait."""
    use = {"mode": "semaphore", "permits": 3}
    lock = gateway.znode("x")
    for worker in gateway.worker_pids():
        ours = []
        for i in range(3):
            if i == seat:
                claim = foreign.make_claim(lock, before=GUID + "-permit3-",
                                           data=b"hand")
            else:
                ours.append(granted(gateway.hold("x", worker=worker,
                                                 owner="ours", **use),
                                    "x", **use))
        for asked in gateway.worker_pids():
            problem(gateway.acquire("x", wait="0", worker=asked, **use), 423)
            problem(gateway.acquire("x", wait="0", worker=asked,
                                    mode="semaphore", permits=4), 409)
            seen = told(gateway.inspect("x", worker=asked).json, **use)
            assert [holder["owner"] for holder in seen["holders"]] == [
                "hand" if i == seat else "ours" for i in range(3)]
        waiter = gateway.begin("x", worker=worker, **use)
        foreign.wait_claims(lock, 4)
        wait(waiter)
        foreign.delete(claim)
        ours.append(granted(answer(waiter), "x", **use))
        for holder in ours:
            gateway.release("x", holder.token)
        foreign.wait_claims(lock, 0)


@pytest.mark.parametrize("seat", range(2))
def test_seat_is_freed_by_hand(start_line, tree, near_and_far, seat):
    """The gateway's claim is deleted by hand: a waiter elsewhere goes on."""
    line = start_line(2)
    for place in near_and_far.values():
        holders = [line.take(near_and_far["worker"]) for _ in range(2)]
        waiter = line.join(near_and_far["gateway"])
        wait(waiter)
        lost = holders.pop(seat)
        tree.delete(line.znode + "/" + claim_of(lost.token))
        holders.append(line.granted(waiter))
        gateway, worker = place
        problem(gateway.inspect(line.name, lost.token, worker), 410)
        line.release(*holders)
        line.empty()


# looks

def test_seats_are_shown(start_line):
    line = start_line(3)
    holders = [line.take(owner="h%d" % i) for i in range(2)]
    assert line.shown() == (["h0", "h1"], [])
    holders.append(line.take(owner="h2"))
    waiters = [line.join(owner="w%d" % i) for i in range(2)]
    assert line.shown() == (["h0", "h1", "h2"], ["w0", "w1"])
    for refusal in line.tried(423):
        assert refusal["holder"]["owner"] == "h0"
        assert refusal["holder"]["fencing_token"] == holders[0].fencing
    line.release(holders.pop(1))
    holders.append(line.granted(waiters[0]))
    assert line.shown() == (["h0", "h2", "w0"], ["w1"])
    line.release(holders.pop(0))
    holders.append(line.granted(waiters[1]))
    assert line.shown() == (["h2", "w0", "w1"], [])
    line.holds(*holders)
    line.release(*holders)
    line.empty()
    problem(line.gateway.inspect(line.name), 404)


def test_seat_is_released_once(start_line, near_and_far):
    """The release ends the claim at each place, and not the other claim."""
    line = start_line(2)
    for place in near_and_far.values():
        one, other = line.take(), line.take()
        line.release(one, place=place)
        for gateway, worker in near_and_far.values():
            gone(gateway, line.name, one.token, worker)
        line.holds(other)
        line.release(other)
        line.empty()


# one use at a time

@pytest.mark.parametrize("behind", [{"mode": "semaphore", "permits": 3},
                                    {"mode": "member"}])
def test_another_use_that_waits_is_not_told_as_held(start_gateway, tree,
                                                    behind):
    """No place tells so while a claim of the first use is ahead."""
    here, there = start_gateway(), start_gateway()
    one, other = here.worker_pids()
    holder = here.hold("x", worker=one)
    waiter = here.begin("x", worker=other)
    tree.wait_claims(here.znode("x"), 2)
    answer = here.acquire("x", headers={"Prefer": "respond-async"},
                          worker=other, **behind)
    if answer.status == 202:
        for gateway, worker in [(there, None), (here, one), (here, other)]:
            told = gateway.inspect("x", answer.token, worker)
            assert told.status != 200 or told.json["state"] != "held", told
    else:
        problem(answer, 409)
    assert there.inspect("x").json["held"] == 1
    here.release("x", holder.token)
    here.release("x", grant(waiter.response(SOON), "x")["token"])



def may_wait(*uses):
    """Only the permits differ."""
    return all("permits" in USES[use] for use in uses)


@pytest.mark.parametrize("ahead, behind", APART)
def test_another_use(start_line, ahead, behind):
    """The claim is refused, and does no harm: whatever its wait, or, with
    other permits, when the wait is over.
    """
    line = start_line(**USES[ahead])
    one, other = line.take(), USES[behind]
    long = "300ms" if may_wait(ahead, behind) else "1m"
    for wait_for in ("0", long):
        for _ in range(4):
            gateway, worker = next(line.places)
            problem(gateway.acquire(line.name, worker=worker, timeout=SOON,
                                    **dict(other, wait=wait_for)), 409)
    line.tree.wait_claims(line.znode, 1)
    line.holds(one)

    if ahead in ROOMY:
        another = line.take(wait="0")
        line.release(one)
    else:
        line.tried(423)
        waiters = [line.join() for _ in range(4)]
        line.tried(409, **other)
        for headers in (None, {"Idempotency-Key": "k"}):
            for gateway, worker in itertools.islice(line.places, 4):
                problem(gateway.acquire(
                    line.name, None, headers, worker, timeout=SOON,
                    **dict(other, wait=long)), 409)
        for waiter in waiters:
            wait(waiter)
        for waiter in waiters:
            line.release(one)
            one = line.granted(waiter)
        another = one
    line.tried(409, **other)
    line.release(another)
    line.empty()

    line.use = other
    line.release(line.take(wait="0"))
    line.empty()


@pytest.mark.parametrize("one, other", [(1, 2), (2, 3), (10, 1), (100, 1000)])
def test_other_permits(start_line, one, other):
    """Neither more permits nor fewer, in both directions."""
    line = start_line(one)
    for permits, beside in ((one, other), (other, one)) * 2:
        line.use["permits"] = permits
        holder = line.take()
        line.tried(409, mode="semaphore", permits=beside)
        line.holds(holder)
        line.release(holder)
        line.empty()


@pytest.mark.parametrize("one, other", [(1, 2), (3, 2), (2, 5)])
def test_other_permits_wait_in_turn(start_line, one, other):
    """A claim with other permits is granted in its turn, and later claims with
    the first permits are not granted before: so the number can be changed
    while clients overlap.  The two never hold at once.
    """
    line = start_line(one)
    holders = [line.take() for _ in range(one)]
    first = line.join(permits=other, wait="1m")
    beside = line.join(permits=other, wait="1m")
    late = line.join(permits=one, wait="1m")
    for waiter in first, beside, late:
        wait(waiter)
    seen = told(line.gateway.inspect(line.name).json, **line.use)
    assert seen["held"] == one and seen["queued"] == 3

    for holder in holders[:-1]:
        line.release(holder)
        wait(first)
    line.release(holders[-1])
    use = {"mode": "semaphore", "permits": other}
    ours = [granted(answer(waiter), line.name, **use)
            for waiter in (first, beside)[:min(other, 2)]]
    if other == 1:
        wait(beside)
    wait(late)
    for holder in ours:
        line.release(holder)
    line.release(granted(answer(late), line.name, mode="semaphore",
                         permits=one))
    line.empty()


def test_other_permits_whose_wait_is_over(start_line):
    """409 at the end of the wait, and the claims behind go on."""
    line = start_line(2)
    holder = line.take()
    waiter = line.join(permits=3, wait="2s")
    behind = line.join(wait="1m")
    wait(waiter)
    problem(answer(waiter), 409, "permits")
    line.release(line.granted(behind), holder)
    line.empty()


def test_other_permits_of_a_client_that_leaves(start_line):
    line = start_line(2)
    holder = line.take()
    waiter = line.join(permits=3, wait="1m")
    behind = line.join(wait="1m")
    wait(behind)
    waiter.close()
    line.release(line.granted(behind), holder)
    line.empty()


GUARD = """
location /app/ {
    zk_lock x mode=semaphore permits=3 wait=1m;
    try_files /none =204;
}
location /soon/ {
    zk_lock x mode=semaphore permits=3 wait=300ms;
    try_files /none =204;
}
"""


@pytest.mark.parametrize("how", ["key", "several", "guard"])
def test_other_permits_of_each_kind_of_acquire(start_gateway, tree, how):
    """409 when the wait is over, and a grant in its turn."""
    here, there = start_gateway(server=GUARD), start_gateway()
    holder = there.hold("x", mode="semaphore", permits=2)
    use = {"mode": "semaphore", "permits": 3}

    def begin(wait):
        connection = here.connect()
        if how == "guard":
            return connection.send("GET", "/app/" if wait == "1m"
                                   else "/soon/")
        if how == "several":
            return connection.send("POST", "/locks/", body=dict(
                use, wait=wait, names=["a", "x", "y"]))
        return connection.send("POST", lock_path("x"), dict(use, wait=wait),
                               {"Idempotency-Key": wait})

    problem(answer(begin("300ms")), 409, "permits")
    tree.wait_claims(here.znode("x"), 1)

    waiter = begin("1m")
    tree.wait_claims(here.znode("x"), 2)
    wait(waiter)
    assert there.release("x", holder.token).status == 204
    response = answer(waiter)
    assert response.status == (204 if how == "guard" else 201), response
    if how != "guard":
        path = "/locks/" if how == "several" else lock_path("x")
        assert here.call("DELETE", path, headers={
            "Lock-Token": response.token}).status == 204
    tree.wait_claims(here.znode("x"), 0)


def test_other_permits_of_a_claim_that_is_polled(start_gateway, tree):
    here, there = start_gateway(), start_gateway()
    holder = there.hold("x", mode="semaphore", permits=2)
    use = {"mode": "semaphore", "permits": 3}
    later = {"Prefer": "respond-async"}

    problem(here.acquire("x", headers=later, wait="0", **use), 409, "permits")
    token = here.acquire("x", headers=later, **use)
    assert token.status == 202, token
    with here.connect() as poll:
        poll.send("GET", lock_path("x", token.token), {"wait": "1m"})
        wait(poll)
        for gateway in here, there:
            seen = gateway.inspect("x", token.token).json
            assert seen["state"] == "queued", seen
        assert there.release("x", holder.token).status == 204
        assert poll.response(SOON).json["state"] == "held"
    assert here.release("x", token.token).status == 204
    tree.wait_claims(here.znode("x"), 0)

    # the wait is over while the client polls
    holder = there.hold("x", mode="semaphore", permits=2)
    token = here.acquire("x", headers=later, wait="1s", **use)
    assert token.status == 202, token
    gone = problem(here.call("GET", lock_path("x", token.token),
                             {"wait": "1m"}, timeout=SOON), 410)
    assert gone.get("reason") == "expired", gone
    there.release("x", holder.token)


def test_other_permits_of_a_stream(start_gateway):
    here, there = start_gateway(), start_gateway()
    holder = there.hold("x", mode="semaphore", permits=2)
    use = {"mode": "semaphore", "permits": 3}

    stream = hold(here, "x", wait="1s", **use)
    assert stream.event("queued")["position"] == 0
    assert stream.event("lost")["reason"] == "conflict"
    stream.close()

    stream = hold(here, "x", wait="1m", **use)
    assert stream.event("queued")["permits"] == 3
    there.release("x", holder.token)
    assert stream.event("granted")["permits"] == 3
    stream.close()


def test_any_use_in_turn(start_line):
    """A free lock does not remember its last use."""
    line = start_line(**USES["exclusive"])
    for uses in itertools.permutations(USES, 2):
        for use in uses:
            line.use = USES[use]
            line.release(line.take(wait="0"))


@pytest.mark.parametrize("ahead, behind", APART)
def test_uses_at_once(start_line, ahead, behind):
    """The first claim in the queue decides the use, and no other use gets in.

    A claim that could share with the first may have to wait until the other
    claims are refused.
    """
    line = start_line(**USES[ahead])
    long = "2s" if may_wait(ahead, behind) else "1m"
    roomy = shared = 0
    for _ in range(8):
        uses = [ahead, behind] * 2
        connections = []
        for use in uses:
            gateway, worker = next(line.places)
            connections.append(gateway.connect(worker))
        next(line.places)   # the next round begins elsewhere
        for use, connection in zip(uses, connections):
            connection.send("POST", lock_path(line.name),
                            dict(USES[use], wait=long if use in ROOMY else 0))
        answers = [answer(connection) for connection in connections]
        held = [(use, response) for use, response in zip(uses, answers)
                if response.status == 201]
        for use, response in held:
            granted(response, line.name, **USES[use])
        assert len({use for use, _ in held}) == 1, answers
        won = held[0][0]
        for use, response in zip(uses, answers):
            if response.status != 201:
                # a refused claim may have been the first for a moment
                problem(response, 409 if use != won or won in ROOMY
                        or response.status == 409 else 423)
        roomy += won in ROOMY
        shared += len(held) == 2
        line.release(*[response for _, response in held])
        line.empty()
    assert shared or roomy < 4, "nobody shares"


@pytest.mark.parametrize("marker, use", [
    ("-lock-", "exclusive"), ("-__WRIT__", "write"), ("-__READ__", "shared"),
    ("-permit2-", "semaphore2"), ("-permit1-", "semaphore1"),
    ("-member-", "member")])
def test_another_use_than_that_of_a_claim_by_hand(gateway, foreign, marker,
                                                  use):
    lock = gateway.znode("x")
    claim = foreign.make_claim(lock, before=GUID + marker)
    for worker in gateway.worker_pids():
        told(gateway.inspect("x", worker=worker).json, **USES[use])
        for one, other in APART:
            if one == use:
                problem(gateway.acquire("x", worker=worker, wait="0",
                                        **USES[other]), 409)
    foreign.wait_claims(lock, 1)
    foreign.delete(claim)
    for worker in gateway.worker_pids():
        for use in USES.values():
            holder = gateway.acquire("x", worker=worker, wait="0", **use)
            gateway.release("x", granted(holder, "x", **use).token)


# members

def test_members(start_line):
    """Members come and go, no member waits, and all members are shown."""
    line = start_line(**USES["member"])
    members = {"m%d" % i: line.take(wait="0", owner="m%d" % i)
               for i in range(12)}
    assert line.shown() == (list(members), [])
    line.holds(*members.values())
    for name in ("m4", "m0", "m11", "m5"):
        member = members.pop(name)
        line.release(member)
        gone(line.gateway, line.name, member.token)
        assert line.shown() == (list(members), [])
    members["late"] = line.take(wait="0", owner="late")
    assert line.shown() == (list(members), [])
    assert len({member.token for member in members.values()}) == 9
    line.release(*members.values())
    line.empty()
    problem(line.gateway.inspect(line.name), 404)


def test_member_is_told(gateway, tree):
    for query, body in ((USES["member"], None), ({}, USES["member"]),
                        ({"mode": "write"}, USES["member"])):
        member = granted(gateway.hold("x", body, **query), "x", "member")
        claim, = tree.claims(gateway.znode("x"))
        assert is_claim_of(claim, "member")
        assert claim == claim_of(member.token)
        for worker in gateway.worker_pids():
            seen = gateway.inspect("x", member.token, worker).json
            assert told(seen, "member")["state"] == "held"
            told(gateway.renew("x", member.token, worker=worker).json,
                 "member")
            told(gateway.inspect("x", worker=worker).json, "member")
        assert gateway.release("x", member.token).status == 204
        gone(gateway, "x", member.token)


def test_members_at_once(start_line):
    line = start_line(**USES["member"])
    connections = []
    for i in range(40):
        gateway, worker = next(line.places)
        connections.append(gateway.connect(worker))
    for i, connection in enumerate(connections):
        connection.send("POST", lock_path(line.name),
                        dict(line.use, owner="m%d" % i, wait="0"))
    members = [granted(answer(connection), line.name, "member")
               for connection in connections]
    holders, queue = line.shown()
    assert set(holders) == {"m%d" % i for i in range(40)} and not queue
    line.release(*members)
    line.empty()


def test_member_by_hand_is_shown(gateway, foreign):
    lock = gateway.znode("x")
    foreign.make_claim(lock, before=GUID + "-member-", data=b"one")
    ours = granted(gateway.hold("x", owner="two", **USES["member"]), "x",
                   "member")
    last = foreign.make_claim(lock, layout="-member-", data=b"three")
    for worker in gateway.worker_pids():
        seen = told(gateway.inspect("x", worker=worker).json, "member")
        assert [claim["owner"] for claim in seen["holders"]] == [
            "one", "two", "three"]
        assert seen["queue"] == [] and seen["queued"] == 0
    foreign.delete(last)
    gateway.release("x", ours.token)


# leases

@pytest.mark.parametrize("seat", range(3))
def test_lease_of_one_seat_ends(start_line, seat):
    """A waiter gets the seat, and the other holders stay."""
    line = start_line(3)
    holders = [line.take(ttl="400ms" if i == seat else "1m")
               for i in range(3)]
    waiter = line.join()
    holders.append(line.granted(waiter))
    lost = holders.pop(seat)
    gone(line.gateway, line.name, lost.token)
    line.holds(*holders)
    line.tried(423)
    line.release(*holders)
    line.empty()


def test_leases_of_a_whole_line_end(start_line):
    """No client releases, and every client gets a seat."""
    line = start_line(2)
    for waiter in [line.join(ttl="200ms") for _ in range(8)]:
        line.granted(waiter)
    line.empty()


@pytest.mark.parametrize("member", range(3))
def test_lease_of_a_member_ends(start_line, member):
    line = start_line(**USES["member"])
    owners = ["m0", "m1", "m2"]
    members = [line.take(owner=owner, ttl="300ms" if i == member else "1m")
               for i, owner in enumerate(owners)]
    line.tree.wait_claims(line.znode, 2)
    lost = members.pop(member)
    gone(line.gateway, line.name, lost.token)
    owners.pop(member)
    assert line.shown() == (owners, [])
    line.holds(*members)
    line.release(*members)
    line.empty()


# what a seat survives

@pytest.fixture
def sturdy(start_gateway):
    """Two gateways whose sessions outlive the test."""
    return [start_gateway(session_timeout="60s") for _ in range(2)]


def line_of(tree, pair, permits):
    """A queue for a semaphore, at all current workers."""
    return Line(tree, all_places(*pair), mode="semaphore", permits=permits)


@pytest.mark.parametrize("seat", range(3))
def test_crash(sturdy, tree, seat):
    """A worker that holds seats dies: no waiter gets those seats, but waiters
    get the seats that are released.
    """
    one, other = sturdy
    dead, sibling = one.worker_pids()
    line = line_of(tree, sturdy, 3)
    holders = [line.take((one, worker), ttl="1h")
               for worker in (dead, sibling, dead)]
    before = tree.claims(line.znode)
    lost = line.join((one, dead), wait="1m")
    waiters = [line.join(place, wait="1m") for place in
               ((one, sibling), (other, other.worker_pids()[0]),
                (one, sibling))]
    kill(one, dead)
    assert lost.closed_by_server(SOON)
    tree.wait_claims(line.znode, 6)
    line.places = all_places(*sturdy)
    assert tree.claims(line.znode)[:3] == before
    line.holds(*holders)
    line.tried(423)
    wait(*waiters)
    for waiter in waiters:
        line.release(holders.pop(seat % len(holders)))
        holders.insert(0, line.granted(waiter))
        assert all(behind.silent_for(0.05)
                   for behind in waiters[waiters.index(waiter) + 1:])
    line.tried(423)
    line.release(*holders)
    line.empty()


def test_all_workers_crash(sturdy, tree):
    """The workers die in turn, at both gateways.  The last seat was released
    just before at a worker of the other gateway, which may be the next to die:
    the release was told when the worker that granted had heard of it, too.
    """
    line = line_of(tree, sturdy, 4)
    holders = [line.take(ttl="1h") for _ in range(3)]
    for gateway in sturdy:
        for dead in gateway.worker_pids():
            kill(gateway, dead)
            line.places = all_places(*sturdy)
            line.holds(*holders)
            last = line.take(wait="0")
            line.tried(423)
            line.release(last)
    line.release(*holders)
    line.empty()


def test_members_of_a_worker_that_dies(sturdy, tree):
    one, _ = sturdy
    dead, sibling = one.worker_pids()
    line = Line(tree, all_places(*sturdy), **USES["member"])
    members = [line.take((one, worker), owner="m%d" % i, ttl="1h")
               for i, worker in enumerate((dead, sibling, dead))]
    kill(one, dead)
    line.places = all_places(*sturdy)
    line.holds(*members)
    members.append(line.take(wait="0", owner="m3"))
    assert line.shown() == (["m0", "m1", "m2", "m3"], [])
    line.release(*members)
    line.empty()


def test_reload(sturdy, tree):
    """Seats stay; waiters get their turns at an old worker."""
    one, _ = sturdy
    line = line_of(tree, sturdy, 3)
    workers = one.worker_pids()
    holders = [line.take((one, worker), ttl="1h")
               for worker in workers + workers[:1]]
    waiters = [line.join((one, worker), wait="1m") for worker in workers]
    old = one.reload()
    one.wait_served()
    line.places = all_places(*sturdy)
    line.holds(*holders)
    line.tried(423)
    wait(*waiters)
    for waiter in waiters:
        line.release(holders.pop(1))
        holders.append(line.granted(waiter))
    wait_dead(old)
    line.holds(*holders)
    line.tried(423)
    line.release(*holders)
    line.empty()


def test_gateway_dies(start_gateway, tree):
    """The gateway dies suddenly, as a machine does.  Its seats are free when
    ZooKeeper ends its sessions; the other gateway's seats stay.
    """
    one, other = pair = [start_gateway(session_timeout="4s"), start_gateway()]
    line = line_of(tree, pair, 3)
    stay_ephemeral(tree, line.znode)
    stays = [line.take((gateway, None)) for gateway in (one, other, one)][1]
    line.places = all_places(other)
    waiters = [line.join(wait="1m") for _ in range(3)]
    wait(*waiters)
    one.kill()
    granted_now = [line.granted(waiter) for waiter in waiters[:2]]
    wait(waiters[2])
    line.holds(stays, *granted_now)
    line.release(stays)
    line.release(line.granted(waiters[2]), *granted_now)
    line.empty()


# loads

def test_seats_say_no():
    """The class that judges the loads notices errors."""
    room = Seats(2)
    room.enter("a", 1, 10)
    room.enter("b", 2, 20)
    with pytest.raises(AssertionError, match="c is granted while"):
        room.enter("c", 3, 30)
    with pytest.raises(AssertionError, match="'a': 1"):
        room.judge()
    room.leave("a")
    room.leave("b")
    room.judge()

    # a claim may come in late, but the second claim here has been passed
    room = Seats(2)
    room.enter("c", 3, 30)
    room.enter("b", 2, 20)
    room.leave("c")
    with pytest.raises(AssertionError, match="a, 1, is passed by 3"):
        room.enter("a", 1, 10)

    # a claim that is inside and ahead counts as a waiter does
    room = Seats(2)
    room.enter("a", 1, 10)
    room.enter("c", 3, 30)
    room.leave("a")
    with pytest.raises(AssertionError, match="b, 2, is passed by 3"):
        room.enter("b", 2, 20)

    room = Seats(2)
    room.enter("a", 1, 20)
    room.enter("b", 2, 10)
    room.leave("a")
    room.leave("b")
    with pytest.raises(AssertionError, match="fencing"):
        room.judge()


class Visitors:
    """Clients over HTTP that come to the same lock.

    Most clients stay until the grant, and release.  The rest leave: while the
    client waits, with a short wait, or without a word while the client holds a
    short lease.  Such a client does not enter the room when the lease may be
    over by then.
    """

    LEASE = "250ms"
    FATES = ("stays",) * 20 + ("hurries",) * 4 + ("leaves",) * 3 + ("dies",)

    def __init__(self, gateways, room, dice, fates=FATES, name="x"):
        self.gateways = gateways
        self.room = room
        self.dice = dice
        self.fates = fates
        self.name = name
        self.numbers = itertools.count()
        self.granted = 0
        self.ends = dict.fromkeys(fates, 0)
        self.workers = set()

    def done(self):
        return self.granted >= GRANTS and all(self.ends.values())

    async def come(self, **use):
        while not self.done():
            fate = self.dice.choice(self.fates)
            await self.visit(fate, use)
            self.ends[fate] += 1

    async def visit(self, fate, use):
        query = dict(use, wait="2m")
        if fate == "hurries":
            query["wait"] = "%dms" % self.dice.randrange(30)
        if fate in ("leaves", "dies"):
            query["ttl"] = self.LEASE
        connection = AsyncConnection(self.port())
        sent = time.monotonic()
        await connection.send("POST", lock_path(self.name), query)
        if fate == "leaves":
            await asyncio.sleep(self.dice.random() * 0.03)
        else:
            await self.take(fate, use, sent, await connection.response())
        if self.dice.random() < 0.5 and fate in ("leaves", "dies"):
            connection.reset()
        else:
            connection.close()

    async def take(self, fate, use, sent, response):
        if fate == "hurries" and response.status != 201:
            return wait_over(response, *self.gateways)
        granted(response, self.name, **use)
        who = "visitor %d" % next(self.numbers)
        self.granted += 1
        self.workers.add(response.worker)
        if fate == "dies" and may_be_over(sent, response):
            return
        self.room.enter(who, sequence(claim_of(response.token)),
                        response.fencing)
        if fate != "dies":
            await self.stay(who, response)
        self.room.leave(who)
        if fate != "dies":
            released = await ask(self.port(), "DELETE", lock_path(self.name),
                                 headers={"Lock-Token": response.token})
            assert released.status == 204, released

    async def stay(self, who, response):
        await asyncio.sleep(self.dice.random() * 0.004 * self.room.seats)

    def port(self):
        return self.dice.choice(self.gateways).port

    def judge(self):
        self.room.judge()
        assert self.workers == {worker for gateway in self.gateways
                                for worker in gateway.worker_pids()}


@pytest.mark.shows("no two holders, and no more than the mode allows")
@pytest.mark.parametrize("permits", [1, 2, 3, 8])
def test_load(pair, tree, permits):
    """Some clients hang up, die or are impatient.  There are never more holders
    than seats, no waiter is passed, and no waiter waits for ever.
    """
    znode = pair[0].znode("x")
    tree.make(znode)
    room = Seats(permits)
    visitors = Visitors(pair, room, chance())
    play(*(visitors.come(mode="semaphore", permits=permits)
           for _ in range(12 + 2 * permits)), timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
    visitors.judge()
    assert room.most > permits // 2


class Members(Visitors):
    """Members list the lock while present, and see every present member."""

    FATES = ("stays",) * 20 + ("leaves",) * 3 + ("dies",)

    def __init__(self, gateways, room, dice):
        super().__init__(gateways, room, dice, self.FATES)
        self.present = {}       # visitor -> fencing token

    async def stay(self, who, response):
        self.present[who] = response.fencing
        before = set(self.present.values())
        look = await ask(self.port(), "GET", lock_path(self.name))
        assert look.status == 200, look
        content = told(look.json, "member")
        assert content["queue"] == [] and content["queued"] == 0, content
        seen = {holder["fencing_token"] for holder in content["holders"]}
        missed = before & set(self.present.values()) - seen
        assert not missed, (missed, content)
        del self.present[who]


def test_load_of_members(pair, tree):
    znode = pair[0].znode("x")
    tree.make(znode)
    clients = 16
    room = Seats(clients + 1)
    members = Members(pair, room, chance())
    play(*(members.come(mode="member") for _ in range(clients)),
         timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
    room.judge()
    assert room.most > 2


class Rivals:
    """Clients that want the lock for different uses.

    A refused client comes again and wants the same use; so the current use has
    fewer and fewer clients until the lock is free for another use.  A refused
    client takes a break first, because its claim would block other claims too.
    """

    def __init__(self, gateways, dice):
        self.gateways = gateways
        self.dice = dice
        self.inside = {}        # client -> name of its use
        self.numbers = itertools.count()
        self.granted = dict.fromkeys(USES, 0)
        self.refused = 0

    def done(self):
        return (sum(self.granted.values()) >= GRANTS and self.refused
                and min(self.granted.values()) > 2)

    async def come(self):
        while not self.done():
            name = self.dice.choice(list(USES))
            response = await self.ask_for(name)
            while response.status == 409 and not self.done():
                problem(response, 409)
                self.refused += 1
                await asyncio.sleep(self.dice.random() * 0.05)
                response = await self.ask_for(name)
            if response.status != 409:
                await self.use(name, response)

    async def ask_for(self, name):
        return await ask(self.port(), "POST", lock_path("x"),
                         dict(USES[name], wait="2m"))

    async def use(self, name, response):
        granted(response, "x", **USES[name])
        who = next(self.numbers)
        self.enter(who, name)
        await asyncio.sleep(self.dice.random() * 0.002)
        del self.inside[who]
        released = await ask(self.port(), "DELETE",
                             lock_path("x", response.token))
        assert released.status == 204, released

    def enter(self, who, name):
        others = list(self.inside.values())
        assert all(name == other or name in MIXED and other in MIXED
                   for other in others), (name, others)
        if name in ("exclusive", "write", "semaphore1"):
            assert not others, (name, others)
        assert "exclusive" not in others and "write" not in others
        assert name != "semaphore2" or len(others) < 2
        self.inside[who] = name
        self.granted[name] += 1

    def port(self):
        return self.dice.choice(self.gateways).port


def test_load_of_rivals(pair, tree):
    """The lock has a single use at a time, and each use gets its turn."""
    znode = pair[0].znode("x")
    tree.make(znode)
    rivals = Rivals(pair, chance())
    play(*(rivals.come() for _ in range(6)), timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
