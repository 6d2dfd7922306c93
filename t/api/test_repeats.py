"""Requests that are repeated, and requests that do not wait for the answer.

A client that does not know what has become of its request repeats the request
with the same key, at any gateway, and ends up with a single claim.  A client
that does not want to keep a connection polls its claim now and then, and the
polls keep the claim's place.  Both kinds of claims outlive their clients for
zk_lock_grace, and then end.

The grace is a minute here, where no claim may end by the grace, or six
seconds, where a claim has to.  What takes longer than the grace is tried at
once with many locks, each asked for in another way or at another place: at the
worker that has the claim, at its sibling, or at the other gateway.

Environment:
    ZK_LOCK_ROUNDS  how often a test tries what depends on the moment
    ZK_LOCK_SEED    the seed of the moments, printed with a failure
"""

import itertools
import os
import re
import time
import uuid
import zlib

import pytest

from lib.checks import gone, grant, problem, wait_over
from lib.client import Connection, Gone, encode, lock_path
from lib.cutter import Cutter
from lib.process import wait_until
from lib.queues import chance, kill, wait
from lib.tokens import claim_of, token_of

ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS") or 8)
SOON = 15.0
KEPT = 6.0              # the grace of claims that clients keep for longer
ASYNC = {"Prefer": "respond-async"}
LEAVES = ["close", "reset", "half_close"]
PLACES = ["same", "sibling", "other"]
MODES = [{}, {"mode": "shared"}, {"mode": "write"},
         {"mode": "semaphore", "permits": "2"}]
MEMBER = {"mode": "member"}     # never waits



@pytest.fixture(scope="module")
def pair(start_shared):
    """Two gateways whose grace is longer than a test."""
    return [start_shared(location="zk_lock_grace 1m;") for _ in range(2)]


@pytest.fixture(scope="module")
def kept(start_shared):
    """Two gateways whose grace ends while a test waits."""
    return [start_shared(location="zk_lock_grace %ds;" % KEPT)
            for _ in range(2)]


@pytest.fixture
def name(request, pair, tree):
    """A name that only this test uses, also as the beginning of names; the test
    leaves no claim.
    """
    name = re.sub(r"\W", "-", request.node.name)
    yield name
    for lock in tree.children(pair[0].root):
        if lock.startswith(name):
            tree.wait_claims(pair[0].znode(lock), 0, SOON)


# requests

def new_key():
    return str(uuid.uuid4())


def keyed(key, **headers):
    return dict(headers, **{"Idempotency-Key": key})


def acquire(gateway, name, key, worker=None, body=None, **query):
    return gateway.acquire(name, body, keyed(key), worker, **query)


def begin(gateway, name, key, worker=None, **query):
    query.setdefault("wait", "1m")
    return gateway.begin(name, None, keyed(key), worker, **query)


def queue(gateway, name, key=None, worker=None, **query):
    """An acquire that is answered 202 while the claim waits."""
    headers = dict(ASYNC) if key is None else keyed(key, **ASYNC)
    return gateway.acquire(name, None, headers, worker, **query)


def poll(gateway, name, token, worker=None, wait=None):
    query = None if wait is None else {"wait": wait}
    return gateway.call("GET", lock_path(name, token), query, worker=worker)


def everywhere(*several):
    return [(gateway, worker) for gateway in several
            for worker in gateway.worker_pids()]


def elsewhere(pair, place):
    """(gateway, worker) of a first request, and of a later request."""
    here, there = pair
    one, sibling = here.worker_pids()[:2]
    other = {"same": (here, one), "sibling": (here, sibling),
             "other": (there, there.worker_pids()[0])}[place]
    return (here, one), other


def kind(mode):
    return mode.get("mode", "exclusive")


# answers

def told(response, status, name, state, mode="exclusive", position=None):
    """The token of a claim in that state; docs/openapi.yaml describes the rest
    of the answer.
    """
    assert response.status == status, response
    content = response.json
    assert (content["name"], content["state"], content["mode"],
            content.get("position")) == (name, state, mode, position), content
    assert response.headers["Lock-Token"] == content["token"]
    if status != 200:
        assert response.headers["Location"].endswith(
            lock_path(name, content["token"]))
    return content["token"]


def granted(response, name, status=201, mode="exclusive"):
    """The token of a grant, the first grant or a repeated grant."""
    assert response.headers["Lock-Fencing-Token"] == str(response.fencing)
    return told(response, status, name, "held", mode)


def queued(response, name, position=0):
    """The token of a 202."""
    assert "respond-async" in response.headers.all("Preference-Applied")
    return told(response, 202, name, "queued", position=position)


def waits(response, name, token, position=0):
    return told(response, 200, name, "queued", position=position) == token


def holds(response, name, token):
    return granted(response, name, 200) == token


def joined(gateway, tree, name, number):
    """The token of the last claim, when there are so many."""
    znode = gateway.znode(name)
    return token_of(znode, tree.wait_claims(znode, number, SOON)[-1])


def only(gateway, tree, name, token):
    """Only the claim of that token is left."""
    assert joined(gateway, tree, name, 1) == token


def alike(answers, name, mode="exclusive"):
    """Of requests with the same key, the first gets 201, the rest get 200."""
    assert [200] * (len(answers) - 1) + [201] == sorted(
        a.status for a in answers), answers
    assert len({a.fencing for a in answers}) == 1, answers
    token, = {granted(a, name, a.status, mode) for a in answers}
    return token


def unless_away(ask):
    """The first answer that is not 503, and the number of the try."""
    answers = []
    wait_until(lambda: answers.append(ask()) or answers[-1].status != 503,
               SOON)
    return answers[-1], len(answers)


def released(gateway, name, token):
    """Repeats a release until it is confirmed; an early try may have worked."""
    answer, tries = unless_away(lambda: gateway.release(name, token))
    assert answer.status in ((204,) if tries == 1 else (204, 410)), answer


# a key, again

def test_again_while_held(pair, tree, name):
    """Every worker tells the key of the same grant, in the words of the first
    answer, and there is a single claim.
    """
    here, there = pair
    said = dict(ttl="1h", owner="me", data='{"job":[1]}')
    timed = {"waited_ms", "expires_in_ms", "since"}
    first = acquire(here, name, "key", **said)
    token = granted(first, name)
    for gateway, worker in everywhere(here, there) * 2:
        again = acquire(gateway, name, "key", worker, **said)
        # only the gateway that granted the claim knows when the lease ends
        assert timed - set(again.json) <= {"expires_in_ms"}
        assert ({k: v for k, v in first.json.items() if k not in timed}
                == {k: v for k, v in again.json.items() if k not in timed})
        assert holds(again, name, token)
        only(here, tree, name, token)
    released(there, name, token)


@pytest.mark.parametrize("mode", MODES[:3], ids=kind)
def test_again_while_waiting(pair, tree, name, mode):
    """All requests wait with the same claim, and all hear of the grant; many
    ask for the claim at once.
    """
    here, there = pair
    blocker = here.hold(name).token
    key = new_key()
    waiters = [begin(here, name, key, **mode)]
    mine = joined(here, tree, name, 2)
    behind = there.begin(name, wait="1m")
    joined(here, tree, name, 3)
    waiters += [begin(gateway, name, key, worker, **mode)
                for gateway, worker in everywhere(here, there)
                for _ in range(2 if mode else 20)]
    http2 = there.connect_http2()
    streams = [http2.send("POST", lock_path(name), dict(mode, wait="1m"),
                          keyed(key)) for _ in range(2)]
    wait(behind, *waiters)
    http2.cancel(streams[0])
    joined(here, tree, name, 3)
    released(there, name, blocker)
    answers = [waiter.response(SOON) for waiter in waiters]
    answers.append(http2.response(streams[1], SOON))
    assert alike(answers, name, kind(mode)) == mine
    assert behind.silent_for(0)
    released(here, name, mine)
    released(there, name, behind.response(SOON).token)


@pytest.mark.shows("one `Idempotency-Key` has one claim")
@pytest.mark.parametrize("taken", [False, True])
def test_first_requests_at_once(pair, tree, name, taken):
    """Every worker gets the key at almost the same time: there is one claim."""
    here, there = pair
    dice = chance()
    lines = [gateway.connect(worker)
             for gateway, worker in everywhere(here, there) * 2]
    modes = itertools.cycle(MODES[:3] if taken else MODES + [MEMBER])
    for mode in itertools.islice(modes, 2 * ROUNDS):
        blocker = here.hold(name).token if taken else None
        key = new_key()
        said = dict(mode, wait="1m" if taken else dice.choice(["0", "1m"]))
        spread = dice.choice([0, 0, 0.001, 0.005])
        dice.shuffle(lines)
        for connection in lines:
            connection.send("POST", lock_path(name), said, keyed(key))
            time.sleep(dice.uniform(0, spread))
        if taken:
            if dice.random() < 0.7:
                joined(here, tree, name, 2)
            released(dice.choice(pair), name, blocker)
        answers = [connection.response(SOON) for connection in lines]
        token = alike(answers, name, kind(mode))
        only(here, tree, name, token)
        released(dice.choice(pair), name, token)
        tree.wait_claims(here.znode(name), 0)


@pytest.mark.parametrize("state", ["held", "waiting", "queued"])
def test_other_parameters(pair, tree, name, state):
    """A key stands for the same request at each gateway, whatever the state;
    only the wait may differ.  The claim has a checksum of what was said, which
    each gateway computes alike, whatever its defaults are.
    """
    here, there = pair
    body = {"ttl": "70s", "owner": "me"} if state == "held" else {"owner": "me"}
    headers = keyed(new_key(), **(ASYNC if state == "queued" else {}))
    blockers = [] if state == "held" else [here.hold(name).token]
    first = here.begin(name, body, headers, wait="1m")
    token = joined(here, tree, name, len(blockers) + 1)
    label = tree.data("%s/%s" % (here.znode(name), claim_of(token)))
    assert b'"params":"%08x"' % zlib.crc32(
        b"0 70000 me\0" if state == "held" else b"0 -1 me\0") in label
    for gateway, worker in everywhere(here, there):
        for other in ({"mode": "shared"}, {"mode": "write"}, {"ttl": "77s"},
                      {"mode": "semaphore", "permits": 3}, {"owner": "you"},
                      {"data": {"a": 2}}):
            answer = gateway.acquire(name, dict(body, **other), headers, worker)
            problem(answer, 422, "Idempotency-Key")
            assert "Lock-Token" not in answer.headers
    joined(here, tree, name, len(blockers) + 1)
    assert state != "waiting" or first.silent_for(0)
    for blocker in blockers:
        released(there, name, blocker)
    assert first.response(SOON).token == token
    for gateway, worker in everywhere(here, there):
        answer = gateway.acquire(name, dict(body, wait="7s"), keyed(
            headers["Idempotency-Key"]), worker)
        assert holds(answer, name, token)
    released(here, name, token)


def test_keys(pair, tree, name):
    """A key may come as the string of a structured field (RFC 8941): it loses
    a single pair of quotes, and nothing else.  nginx itself refuses some of the
    bad keys.
    """
    here, there = pair
    whole = "x" * 255
    for key, again in [("x", '"x"'), (whole, '"%s"' % whole), ('"a"', "a"),
                       ('"', '"'), ('"""', '"'), ("!~\\/;,=:",) * 2]:
        token = granted(acquire(here, name, key), name)
        assert holds(acquire(there, name, again, wait="0"), name, token)
        released(there, name, token)

    token = granted(acquire(here, name, "Key"), name)
    for other in ('""Key""', '"Key', 'Key"', "'Key'", "KEY", "Ke", "Key0"):
        problem(acquire(there, name, other, wait="0"), 423)
        only(here, tree, name, token)
    released(there, name, token)

    request = encode("POST", lock_path(name), keyed("KEY"))
    for key in (b"", b" ", b"x" * 256, b"a b", b"a\tb", b"a\x7fb", b"\xc3\xa4",
                b"a\x01", b'""', b'"a b"', b'"%s"' % (b"x" * 256),
                b"a\r\nIdempotency-Key: b"):
        with here.connect() as connection:
            connection.send_bytes(request.replace(b"KEY", key))
            answer = connection.response()
            assert answer.status == 400, (key, answer)


def test_rest_of_the_wait(pair, tree, name):
    """The claim that a repeat waits with is cancelled.  The repeat waits on,
    with a new claim, for the rest of its wait.
    """
    here = pair[0]
    requests = []
    for place in PLACES:
        lock, key = name + place, new_key()
        (_, one), (there, other) = elsewhere(pair, place)
        blocker = here.hold(lock).token
        first = begin(here, lock, key, one)
        mine = joined(here, tree, lock, 2)
        again = begin(there, lock, key, other, wait="4s")
        # 2 s later the claim is cancelled
        others = [there.begin(lock, worker=other, wait=each)
                  for each in ("2s", "5s")]
        requests.append((lock, there, blocker, first, mine, again, others))
    for lock, there, _, first, mine, _, others in requests:
        wait_over(others[0].response(SOON), there)
        released(here, lock, mine)
        problem(first.response(SOON), 410)
    for lock, there, blocker, _, _, again, others in requests:
        wait_over(others[1].response(SOON), there)
        assert not again.silent_for(0), "its wait has begun anew"
        wait_over(again.response(SOON), there)
        only(here, tree, lock, blocker)
        released(here, lock, blocker)


def test_directives(start_gateway):
    """A repeat takes no place in a full queue.  Neither zk_lock_wait nor
    zk_lock_max_wait ends a claim that is polled; both end calls.  A repeat that
    is refused does not deny the grant of the request before.
    """
    gateway = start_gateway(
        location="zk_lock_grace 1m; zk_lock_max_queue 1; zk_lock_wait 100ms; "
                 "zk_lock_max_wait 300ms; zk_lock_max_claims 1 $http_from;")
    holder = gateway.hold("x").token
    token = queued(queue(gateway, "x", "key"), "x")
    problem(acquire(gateway, "x", "other"), 429)
    for worker in gateway.worker_pids():
        assert queued(queue(gateway, "x", "key", worker), "x") == token
        wait_over(acquire(gateway, "x", "key", worker, wait="1h"), gateway)
        assert waits(gateway.in_reach(lambda: poll(
            gateway, "x", token, worker, wait="1h")), "x", token)
    released(gateway, "x", holder)
    assert holds(poll(gateway, "x", token, wait="20"), "x", token)

    headers = keyed("key", From="me")
    other = granted(gateway.acquire("y", None, headers), "y")
    detail = problem(gateway.acquire("y", None, headers), 429)
    assert detail["detail"].endswith("this request was granted nothing")
    released(gateway, "x", token)
    released(gateway, "y", other)


# a claim whose client has left

@pytest.mark.parametrize("leave, place", list(zip(LEAVES, PLACES)))
def test_grant_that_nobody_heard_of(pair, tree, name, leave, place):
    """The worker learns at once that the client has left and that the claim
    has its turn.  The repeat gets the grant, with the lease that was asked for.
    """
    (here, one), (there, other) = elsewhere(pair, place)
    blocker = pair[1].hold(name).token
    first = begin(here, name, "key", one, ttl="1h")
    mine = joined(here, tree, name, 2)
    with here.frozen_worker(one):
        getattr(first, leave)()
        assert pair[1].release(name, blocker).status == 204
    only(here, tree, name, mine)
    assert holds(acquire(there, name, "key", other, ttl="1h"), name, mine)
    for gateway in pair:
        problem(gateway.acquire(name, wait="0"), 423)
        seen = gateway.inspect(name, mine).json
        assert seen["state"] == "held" and seen["ttl_ms"] == 3600000
        assert seen.get("expires_in_ms", 3600000) > 3000000
    released(there, name, mine)


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


# an answer that is lost on its way

@pytest.fixture
def cutter(pair):
    cutter = Cutter(pair[0].port)
    yield cutter
    cutter.close()


BODY = {"owner": "me", "data": {"a": [1, 2]}, "ttl": "50s", "wait": "40s"}
# a byte of the request or of the answer, or a moment between the two
CUTS = ([("request", byte) for byte in (0, 1, 30, 120, -9, -1, 1 << 20)]
        + [("unheard", s) for s in (0, 0.001, 0.002, 0.004, 0.008, 0.02)]
        + [("answer", byte) for byte in (0, 9, 60, -40, -2, -1)])


def cuts(pair, cutter):
    """(where, cut, first gateway, repeating gateway) of each cut."""
    ways = itertools.cycle(itertools.product(["close", "reset"], pair, pair))
    for (where, point), (how, first, again) in zip(CUTS, ways):
        cutter.retarget(first.port)
        yield where, cutter.cut(how=how, **{where: point}), first, again


def send(cutter, data, method="POST"):
    """Sends a request whose connection is cut."""
    connection = Connection(cutter.port)
    connection.send_bytes(data, method)
    return connection


def lost(connection, cut):
    with connection, pytest.raises((OSError, Gone)):
        connection.response(60)
    cut.wait()


@pytest.mark.parametrize("released_when", ["free", "cut", "repeated"])
def test_acquire_is_cut(pair, tree, name, cutter, released_when):
    """The repeat gets a single grant, the same as was lost on its way, whether
    the lock is free, released at the cut, or while the repeat waits.
    """
    for where, cut, first, again in cuts(pair, cutter):
        blocker = None if released_when == "free" else first.hold(name).token
        key = new_key()
        connection = send(cutter, encode("POST", lock_path(name), keyed(key),
                                         BODY))
        early = released_when == "cut" or where == "answer"
        if blocker and where == "answer":
            joined(first, tree, name, 2)
        elif blocker:
            cut.wait()
        if blocker and early:
            released(again, name, blocker)
        if early or not blocker:
            lost(connection, cut)
        repeat = again.begin(name, BODY, keyed(key))
        if blocker and not early:
            wait(repeat)
            joined(first, tree, name, 2)
            released(again, name, blocker)
        answer = repeat.response(SOON)
        assert answer.status in (200, 201), (where, answer)
        token = granted(answer, name, answer.status)
        if cut.lost:
            assert answer.status == 200 and token.encode() in cut.lost
            assert (b"Lock-Fencing-Token: %d\r\n" % answer.fencing) in cut.lost
        for worker in first.worker_pids():
            # what was sent before is read by then, however late it is
            first.connect(worker).close()
        only(first, tree, name, token)
        released(again, name, token)
        if tree.claims(first.znode(name)):
            # the gateway has read the first request after all of that
            late = again.acquire(name, BODY, keyed(key))
            released(again, name, granted(late, name, late.status))


def test_release_is_cut(pair, tree, name, cutter):
    """The repeat of a release succeeds, whether the first worked or not, and
    the lock goes to the next claim.  Then the key gets a new claim.
    """
    for where, cut, first, again in cuts(pair, cutter):
        token = granted(acquire(again, name, "key"), name)
        waiter = first.begin(name, wait="1m")
        joined(first, tree, name, 2)
        request = encode("DELETE", lock_path(name), {"Lock-Token": token})
        lost(send(cutter, request, "DELETE"), cut)
        whole = where != "request" or cut.passed_on == len(request)
        answer, _ = unless_away(lambda: again.release(name, token))
        assert answer.status in ((204, 410) if whole else (204,)), where
        token = grant(waiter.response(SOON), name)["token"]
        only(first, tree, name, token)
        released(again, name, token)


# claims that wait without a request

def test_queued_answer(pair, tree, name):
    """202 tells the place in the queue, with each way to write the preference;
    a lock that is free is granted at once, in each mode.
    """
    here, there = pair
    for mode in MODES + [MEMBER]:
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
