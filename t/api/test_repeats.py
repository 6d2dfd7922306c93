"""Requests that are repeated.

A client that does not know what has become of its request repeats the request
with the same key, at any gateway, and ends up with a single claim.

Environment:
    ZK_LOCK_ROUNDS  how often a test tries what depends on the moment
    ZK_LOCK_SEED    the seed of the moments, printed with a failure
"""

import itertools
import os
import time
import zlib

import pytest

from lib.checks import grant, problem, wait_over
from lib.client import Connection, Gone, encode, lock_path
from lib.cutter import Cutter
from lib.queues import chance, wait
from lib.repeats import (ASYNC, LEAVES, PLACES, SOON, acquire, alike, begin,
                         elsewhere, everywhere, granted, holds, joined, keyed,
                         kind, new_key, only, poll, queue, queued, released,
                         unless_away, waits)
from lib.repeats import name, pair      # fixtures      # noqa: F401
from lib.tokens import claim_of

ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS") or 8)
MODES = [{}, {"mode": "shared"}, {"mode": "write"},
         {"mode": "semaphore", "permits": "2"}]
MEMBER = {"mode": "member"}     # never waits


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
