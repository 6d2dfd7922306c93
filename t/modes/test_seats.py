"""Seats: a semaphore has a number of seats, and members need no seat.

At most as many claims hold a semaphore as the semaphore has permits, and the
other claims keep their order: when a claim leaves its seat, at any gateway, the
next claim in the queue gets the seat.  A member never waits in a queue.  A lock
has a single use at a time: a claim with another mode is refused with 409 while
a claim is ahead, and does not wait; a claim with other permits waits for the
claims ahead, and gets 409 when its wait is over.

Foreign claims on the same path are made by hand, as another gateway makes
claims.  ZK_LOCK_GRANTS is the number of grants of the load, and ZK_LOCK_SEED
the seed of the random choices.
"""

import asyncio
import itertools
import re

import pytest

from lib import queues
from lib.checks import TOKEN, gone, problem
from lib.client import lock_path
from lib.queues import GRANTS, SOON, chance, kill, patience, play, wait
from lib.room import Seats
from lib.sessions import stay_ephemeral
from lib.streams import hold
from lib.tokens import claim_of

USES = {"exclusive": {"mode": "exclusive"}, "shared": {"mode": "shared"},
        "write": {"mode": "write"}, "member": {"mode": "member"},
        "semaphore1": {"mode": "semaphore", "permits": 1},
        "semaphore2": {"mode": "semaphore", "permits": 2}}
ROOMY = ("shared", "member", "semaphore2")      # two hold the lock
# each use is ahead of another, and behind another
APART = [("exclusive", "semaphore1"), ("semaphore1", "shared"),
         ("shared", "semaphore2"), ("semaphore2", "write"),
         ("write", "member"), ("member", "exclusive"),
         ("semaphore1", "semaphore2"), ("semaphore2", "semaphore1")]
MARKERS = {"exclusive": "lock-", "shared": "__READ__", "write": "__WRIT__",
           "semaphore": "permit%s-", "member": "member-"}
GUID = "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71"
MEMBER = USES["member"]


def semaphore(permits):
    return {"mode": "semaphore", "permits": permits}


@pytest.fixture
def sturdy(start_gateway):
    """Two gateways whose sessions outlive the test."""
    return [start_gateway(session_timeout="60s") for _ in range(2)]


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


@pytest.fixture
def places(shared_pair):
    """A worker, its sibling, and a worker of another gateway."""
    one, other = shared_pair
    return [(one, worker) for worker in one.worker_pids()] + [
        (other, other.worker_pids()[0])]


@pytest.fixture
def start_line(tree, shared_pair):
    """A queue for a use of the lock, at all workers of two gateways."""
    return lambda use: Line(tree, shared_pair, use)


def all_places(gateways):
    """(gateway, worker), endlessly: all workers, at the gateways in turn."""
    return itertools.cycle([
        place for workers in zip(*[gateway.worker_pids()
                                   for gateway in gateways])
        for place in zip(gateways, workers)])


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
    marker = MARKERS[mode] if permits is None else MARKERS[mode] % permits
    assert re.match(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-%s\d{10}$"
                    % marker, claim_of(content["token"]))
    return response


def answer(connection):
    """The connection's last answer."""
    with connection:
        return connection.response(SOON)


class Line(queues.Line):
    """Claims of the same use for the same lock, in order.

    Each claim is made at the next place, unless the test names a place.
    """

    def __init__(self, tree, gateways, use):
        super().__init__(tree, all_places(gateways))
        self.use = use

    def join(self, place=None, **query):
        return super().join(place=place, **dict(self.use, **query))

    def granted(self, waiter):
        response = granted(answer(waiter), self.name, **self.use)
        assert response.fencing > self.fencing
        self.fencing = response.fencing
        return response

    def take(self, place=None, **query):
        """Joins, and is granted the lock at once."""
        return self.granted(self.join(place, **query))

    def tried(self, status, **use):
        """An acquire with this use is refused at each place."""
        answers = []
        for gateway, worker in itertools.islice(self.places, 4):
            arguments = dict(use or self.use, worker=worker, timeout=SOON)
            if status == 423:
                answers.append(gateway.refusal(self.name, **arguments))
            else:
                answers.append(problem(gateway.acquire(
                    self.name, **dict({"wait": "0"}, **arguments)), status))
        return answers

    def holds(self, *holders):
        """Each place says that all of these claims hold the lock."""
        for gateway, worker in itertools.islice(self.places, 4):
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
        for gateway, worker in itertools.islice(self.places, 4):
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

    def end(self, *holders):
        """The last holders release."""
        self.release(*holders)
        self.empty()


# what a use is

@pytest.mark.parametrize("use", [semaphore(1), semaphore(1000), MEMBER])
def test_use_is_told(gateway, tree, use):
    """By the grant, and by GET and PUT; a body comes before the query."""
    name, value = list(use.items())[-1]
    rest = {other: use[other] for other in use if other != name}
    for query, body in ((use, None), ({}, use), (rest, {name: value}),
                        ({"mode": "write"}, use)):
        holder = granted(gateway.hold("x", body, **query), "x", **use)
        assert tree.claims(gateway.znode("x")) == [claim_of(holder.token)]
        for worker in gateway.worker_pids():
            seen = gateway.inspect("x", holder.token, worker).json
            assert told(seen, **use)["state"] == "held"
            told(gateway.renew("x", holder.token, worker=worker).json, **use)
            told(gateway.inspect("x", worker=worker).json, **use)
        assert gateway.release("x", holder.token).status == 204
        gone(gateway, "x", holder.token)


def test_permits_that_are_wrong(gateway, tree):
    """None, no such number, with another mode, or in another call."""
    wrong = [semaphore(permits) for permits in (
        "", "0", "1001", "1.5", "1s", "4294967297", "\u0663")]
    wrong += [{"mode": "semaphore"}, {"permits": 2}]
    wrong += [{"mode": mode, "permits": 2} for mode in (
        "exclusive", "shared", "read", "write", "member")]
    for use in wrong:
        problem(gateway.acquire("bad", **use), 400, "permits")
        problem(gateway.acquire("bad", use), 400, "permits")
    for permits in (b"0", b"1e400", b"null", b'3, "permits": 3', b"", b"03"):
        problem(gateway.call(
            "POST", "/locks/bad", headers={"Content-Type": "application/json"},
            body=b'{"mode": "semaphore", "permits": ' + permits + b"}"), 400)
    assert tree.children(gateway.znode("bad")) == []

    holder = granted(gateway.hold("x", **semaphore(2)), "x", **semaphore(2))
    path = lock_path("x", holder.token)
    for method in ("GET", "PUT", "DELETE"):
        problem(gateway.call(method, path, {"permits": 2}), 400)
    problem(gateway.call("PUT", path, body={"permits": 2}), 400)
    problem(gateway.call("GET", "/locks/x", {"permits": 2}), 400)
    assert gateway.release("x", holder.token).status == 204


# which claims have a seat

@pytest.mark.parametrize("permits", [1, 3])
def test_at_most_so_many(start_line, permits):
    """Seats that are freed go to the waiters in turn, or stay free.  A waiter
    that leaves moves up those behind.
    """
    line = start_line(semaphore(permits))
    holders = [line.take(wait="0") for _ in range(permits)]
    waiters = [line.join() for _ in range(permits + 2)]
    waiters.pop(1).close()
    line.tree.wait_claims(line.znode, 2 * permits + 1)
    line.tried(423)
    line.holds(*holders)
    while waiters:
        wait(*waiters)
        line.release(holders.pop(len(holders) // 2))
        holders.append(line.granted(waiters.pop(0)))
    line.tried(423)
    line.release(*holders[1:])
    last = [line.take(wait="0") for _ in range(permits - 1)]
    line.tried(423)
    line.end(holders[0], *last)


@pytest.mark.parametrize("seat", range(3))
def test_any_seat_ahead(start_line, places, seat):
    """Whichever seat is freed, at any place: the first waiter gets the seat,
    and the waiter behind does not, also if the first waiter leaves first.
    """
    line = start_line(semaphore(3))
    for where in itertools.permutations(places):
        holders = [line.take(place) for place in where]
        waiters = [line.join(place) for place in where]
        line.release(holders.pop(seat), place=where[0])
        brief = line.granted(waiters[0])
        wait(*waiters[1:])
        line.release(brief, place=where[1])
        holders.append(line.granted(waiters[1]))
        wait(waiters[2])
        line.release(holders.pop(0), place=where[2])
        holders.append(line.granted(waiters[2]))
        line.end(*holders)


def test_seats_are_shown(start_line):
    line = start_line(semaphore(3))
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
    line.end(*holders)
    problem(line.gateway.inspect(line.name), 404)


def test_members_are_shown(start_line):
    """Members come at once and go, and no member waits."""
    line = start_line(MEMBER)
    connections = [gateway.connect(worker) for gateway, worker
                   in itertools.islice(line.places, 12)]
    for i, connection in enumerate(connections):
        connection.send("POST", lock_path(line.name),
                        dict(MEMBER, owner="m%d" % i, wait="0"))
    members = {"m%d" % i: granted(answer(connection), line.name, "member")
               for i, connection in enumerate(connections)}
    owners, queue = line.shown()
    assert sorted(owners) == sorted(members) and queue == []
    for name in ("m4", "m0", "m11"):
        member = members.pop(name)
        line.release(member)
        for gateway, worker in itertools.islice(line.places, 4):
            gone(gateway, line.name, member.token, worker)
        owners.remove(name)
        assert line.shown() == (owners, [])
    line.holds(*members.values())
    line.end(*members.values())


def test_leases(start_line):
    """A lease ends, and the other holders stay; a line of clients that do not
    release goes on.
    """
    line = start_line(semaphore(3))
    holders = [line.take(ttl=ttl) for ttl in ("1m", "400ms", "1m")]
    holders.append(line.granted(line.join()))
    gone(line.gateway, line.name, holders.pop(1).token)
    line.holds(*holders)
    line.tried(423)
    line.release(*holders)
    for waiter in [line.join(ttl="200ms") for _ in range(9)]:
        line.granted(waiter)
    line.empty()


# one use at a time

@pytest.mark.parametrize("ahead, behind", APART)
def test_another_use(start_line, ahead, behind):
    """The claim is refused, and does no harm: whatever its wait, or, with
    other permits, when the wait is over.  A free lock takes any use.
    """
    line = start_line(USES[ahead])
    one, other = line.take(), USES[behind]
    long = "300ms" if {ahead, behind} <= {"semaphore1", "semaphore2"} else "1m"
    for wait_for in ("0", long):
        line.tried(409, **dict(other, wait=wait_for))
    line.tree.wait_claims(line.znode, 1)
    line.holds(one)

    if ahead in ROOMY:
        waiters = []
        line.end(one, line.take(wait="0"))
    else:
        line.tried(423)
        waiters = [line.join() for _ in range(2)]
        line.tried(409, **dict(other, wait=long))
        line.tried(409, headers={"Idempotency-Key": "k"},
                   **dict(other, wait=long))
        wait(*waiters)
        for waiter in waiters:
            line.release(one)
            one = line.granted(waiter)
        line.tried(409, **other)
        line.end(one)
    line.use = other
    line.end(line.take(wait="0"))


@pytest.mark.parametrize("one, other", [(3, 1), (2, 5)])
def test_other_permits_wait_in_turn(start_line, one, other):
    """A claim with other permits is granted in its turn, and later claims with
    the first permits are not granted before: so the number can be changed
    while clients overlap.  The two never hold at once.
    """
    line = start_line(semaphore(one))
    holders = [line.take() for _ in range(one)]
    ours = [line.join(permits=other, wait="1m") for _ in range(2)]
    late = line.join(wait="1m")
    wait(*ours, late)
    seen = told(line.gateway.inspect(line.name).json, **line.use)
    assert seen["held"] == one and seen["queued"] == 3
    for holder in holders[:-1]:
        line.release(holder)
        wait(ours[0])
    line.release(holders[-1])
    line.use = semaphore(other)
    held = [line.granted(waiter) for waiter in ours[:min(other, 2)]]
    wait(*ours[len(held):], late)
    line.release(*held)
    line.release(*[line.granted(waiter) for waiter in ours[len(held):]])
    line.use = semaphore(one)
    line.end(line.granted(late))


GUARD = "".join("""
location /%s/ {
    zk_lock x mode=semaphore permits=3 wait=%s;
    try_files /none =204;
}
""" % (wait, wait) for wait in ("1m", "300ms"))


def test_other_permits_of_each_kind_of_acquire(start_gateway, tree):
    """409 when the wait is over, and a grant in its turn."""
    here, there = start_gateway(server=GUARD), start_gateway()
    use, znode = semaphore(3), here.znode("x")

    def begin(kind, wait):
        connection = here.connect()
        if kind == "guard":
            return connection.send("GET", "/%s/" % wait)
        if kind == "several":
            return connection.send("POST", "/locks/", body=dict(
                use, wait=wait, names=["a", "x", "y"]))
        if kind == "key":
            return connection.send("POST", lock_path("x"), dict(
                use, wait=wait), {"Idempotency-Key": wait})
        queued = here.acquire("x", headers={"Prefer": "respond-async"},
                              **dict(use, wait=wait))
        return connection.send("GET", lock_path("x", queued.token),
                               {"wait": "1m"})

    for kind, granted_by in (("key", 201), ("several", 201), ("guard", 204),
                             ("poll", 200)):
        holder = there.hold("x", **semaphore(2))
        over = answer(begin(kind, "300ms"))
        if kind == "poll":
            assert problem(over, 410).get("reason") == "expired", over
        else:
            problem(over, 409, "permits")
        tree.wait_claims(znode, 1)
        waiter = begin(kind, "1m")
        tree.wait_claims(znode, 2)
        wait(waiter)
        assert there.release("x", holder.token).status == 204
        response = answer(waiter)
        assert response.status == granted_by, response
        if kind != "guard":
            path = "/locks/" if kind == "several" else lock_path("x")
            assert here.call("DELETE", path, headers={
                "Lock-Token": response.token}).status == 204
        tree.wait_claims(znode, 0)

    holder = there.hold("x", **semaphore(2))
    stream = hold(here, "x", wait="1s", **use)
    assert stream.event("queued")["position"] == 0
    assert stream.event("lost")["reason"] == "conflict"
    stream.close()
    stream = hold(here, "x", wait="1m", **use)
    assert stream.event("queued")["permits"] == 3
    there.release("x", holder.token)
    assert stream.event("granted")["permits"] == 3
    stream.close()


def test_claim_of_any_use_by_hand(start_line, foreign):
    """Its use and owner are shown, it takes a seat, and other uses are
    refused, as with a claim of a gateway.
    """
    for ahead, behind in APART:
        line = start_line(USES[ahead])
        marker = MARKERS[line.use["mode"]].replace(
            "%s", str(line.use.get("permits")))
        claim = foreign.make_claim(line.znode, before=GUID + "-" + marker,
                                   data=b"hand")
        assert line.shown() == (["hand"], [])
        line.tried(409, **USES[behind])
        if ahead in ROOMY:
            line.release(line.take())
        if ahead == "semaphore2":
            ours, waiter = line.take(), line.join()
            wait(waiter)
            foreign.delete(claim)
            line.end(ours, line.granted(waiter))
        else:
            foreign.delete(claim)
            line.end(line.take())


# what a seat survives

def test_crash(sturdy, tree):
    """A worker that holds seats dies: no waiter gets those seats, but waiters
    get the seats that are released.  Its members stay, too.
    """
    one, other = sturdy
    dead, sibling = one.worker_pids()
    line, group = [Line(tree, sturdy, use) for use in (semaphore(3), MEMBER)]
    holders, members = [[each.take((one, worker), ttl="1h", owner="dead")
                         for worker in (dead, sibling, dead)]
                        for each in (line, group)]
    before = tree.claims(line.znode)
    lost = line.join((one, dead), wait="1m")
    waiters = [line.join(place, wait="1m") for place in
               ((one, sibling), (other, other.worker_pids()[0]))]
    kill(one, dead)
    assert lost.closed_by_server(SOON)
    tree.wait_claims(line.znode, 5)
    line.places = group.places = all_places(sturdy)
    assert tree.claims(line.znode)[:3] == before
    line.holds(*holders)
    line.tried(423)
    wait(*waiters)
    for waiter in waiters:
        line.release(holders.pop(0))
        holders.append(line.granted(waiter))
    line.tried(423)
    line.end(*holders)
    group.holds(*members)
    members.append(group.take(wait="0", owner="late"))
    assert group.shown() == (["dead"] * 3 + ["late"], [])
    group.end(*members)


def test_all_workers_crash(sturdy, tree):
    """The workers die in turn, at both gateways.  The last seat was released
    just before at a worker of the other gateway, which may be the next to die:
    the release was told when the worker that granted had heard of it, too.
    """
    line = Line(tree, sturdy, semaphore(4))
    holders = [line.take(ttl="1h") for _ in range(3)]
    for gateway in sturdy:
        for dead in gateway.worker_pids():
            kill(gateway, dead)
            line.places = all_places(sturdy)
            line.holds(*holders)
            last = line.take(wait="0")
            line.tried(423)
            line.release(last)
    line.end(*holders)


def test_gateway_dies(start_gateway, tree):
    """The gateway dies suddenly, as a machine does.  Its seats are free when
    ZooKeeper ends its sessions; the other gateway's seats stay.
    """
    one, other = pair = [start_gateway(session_timeout="4s"), start_gateway()]
    line = Line(tree, pair, semaphore(3))
    stay_ephemeral(tree, line.znode)
    stays = [line.take((gateway, None)) for gateway in (one, other, one)][1]
    line.places = all_places([other])
    waiters = [line.join(wait="1m") for _ in range(3)]
    wait(*waiters)
    one.kill()
    held = [line.granted(waiter) for waiter in waiters[:2]]
    wait(waiters[2])
    line.holds(stays, *held)
    line.release(stays)
    line.end(line.granted(waiters[2]), *held)


# a load

def test_seats_say_no():
    """The class that judges the load notices errors."""
    def room(*moves):
        seats = Seats(2)
        for who, *claim in moves:
            seats.enter(who, *claim) if claim else seats.leave(who)
        return seats

    room(("a", 1, 10), ("b", 2, 20), ("a",), ("b",)).judge()
    with pytest.raises(AssertionError, match="c is granted while"):
        room(("a", 1, 10), ("b", 2, 20), ("c", 3, 30))
    with pytest.raises(AssertionError, match="'a': 1"):
        room(("a", 1, 10)).judge()
    # a claim may come in late, but the second claim here has been passed
    with pytest.raises(AssertionError, match="a, 1, is passed by 3"):
        room(("c", 3, 30), ("b", 2, 20), ("c",), ("a", 1, 10))
    # a claim that is inside and ahead counts as a waiter does
    with pytest.raises(AssertionError, match="b, 2, is passed by 3"):
        room(("a", 1, 10), ("c", 3, 30), ("a",), ("b", 2, 20))
    with pytest.raises(AssertionError, match="fencing"):
        room(("a", 1, 20), ("b", 2, 10), ("a",), ("b",)).judge()


class Visitors(queues.Visitors):
    def use(self, mode):
        return semaphore(self.room.seats)

    def is_granted(self, response, mode):
        granted(response, self.name, **self.use(mode))

    def enter(self, who, mode, number, response):
        self.room.enter(who, number, response.fencing)

    async def stay(self, who, mode, response):
        await asyncio.sleep(self.dice.random() * 0.004 * self.room.seats)


@pytest.mark.shows("no two holders, and no more than the mode allows")
@pytest.mark.parametrize("permits", [1, 3])
def test_load(sturdy, tree, permits):
    """Some clients hang up, die or are impatient.  There are never more holders
    than seats, no waiter is passed, and no waiter waits for ever.
    """
    znode = sturdy[0].znode("x")
    tree.make(znode)
    room = Seats(permits)
    visitors = Visitors(sturdy, room, chance(), modes=("semaphore",))
    play(*(visitors.come(lambda: visitors.total() >= GRANTS
                         and all(visitors.ends.values()))
           for _ in range(12 + 2 * permits)), timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
    visitors.judge()
    room.judge()
    assert room.most > permits // 2
