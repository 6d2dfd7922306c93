"""Requests that are repeated, and requests that do not wait for the answer.

A client that does not know what has become of its request repeats the request
with the same key, at any gateway, and ends up with a single claim.  A client
that does not want to keep a connection polls its claim now and then, and the
polls keep the claim's place.  Both kinds of claims outlive their clients for
zk_lock_grace, and then end.

The grace is a minute here, where no claim may end by the grace, or two seconds,
where a claim has to.  Where clients keep a claim beyond the grace, and the test
waits for its end as well, the grace is four seconds.

Environment:
    ZK_LOCK_ROUNDS  how often a test tries what depends on the moment
    ZK_LOCK_SEED    the seed of the moments, printed with a failure
"""

import contextlib
import os
import random
import re
import signal
import time
import uuid
import zlib

import pytest

from conftest import gateways, new_root
from lib.checks import TOKEN, gone, grant, problem, stalled, wait_over
from lib.client import Connection, Gone, encode, lock_path
from lib.cutter import Cutter
from lib.process import wait_until
from lib.tokens import claim_of, token_of

ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS") or 15)
SOON = 15.0
GRACE = 2.0
KEPT = 4.0              # the grace of claims that clients keep for longer
NOTICED = 6.0           # s; a gateway has heard of foreign changes by then
LONG = "location", "zk_lock_grace 1m;"
BRIEF = "location", "zk_lock_grace 2s;"
ASYNC = {"Prefer": "respond-async"}
LEAVES = ["close", "reset", "half_close"]
CUT = (OSError, Gone)

MODES = [{}, {"mode": "shared"}, {"mode": "write"},
         {"mode": "semaphore", "permits": "2"}]
MEMBER = {"mode": "member"}     # never waits


def each_mode(modes):
    return pytest.mark.parametrize(
        "mode", modes, ids=lambda mode: mode.get("mode", "mutex"))


modes = each_mode(MODES + [MEMBER])
waiting_modes = each_mode(MODES)
places = pytest.mark.parametrize("place", ["same", "sibling", "other"])


@pytest.fixture(scope="module")
def long_pair(request, tmp_path_factory, zookeeper, tree):
    directory = tmp_path_factory.mktemp("long")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        yield make(**dict([LONG])), make(**dict([LONG]))


@pytest.fixture(scope="module")
def brief_pair(request, tmp_path_factory, zookeeper, tree):
    directory = tmp_path_factory.mktemp("brief")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        yield make(**dict([BRIEF])), make(**dict([BRIEF]))


@pytest.fixture(scope="module")
def kept_pair(request, tmp_path_factory, zookeeper, tree):
    directory = tmp_path_factory.mktemp("kept")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        yield [make(location="zk_lock_grace %ds;" % KEPT) for _ in range(2)]


@pytest.fixture
def name(request):
    """A name that only this test uses."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def pair(long_pair, tree, name):
    """Two gateways whose grace is longer than a test."""
    yield from tidy(long_pair, tree, name)


@pytest.fixture
def brief(brief_pair, tree, name):
    """Two gateways whose grace is short."""
    yield from tidy(brief_pair, tree, name)


@pytest.fixture
def kept(kept_pair, tree, name):
    """Two gateways whose grace bears a client that is late."""
    yield from tidy(kept_pair, tree, name)


def tidy(pair, tree, name):
    yield pair
    leave(pair)
    try:
        tree.wait_claims(pair[0].znode(name), 0, SOON)
    finally:
        # the claims of a failed test do not block later tests
        clear(pair, tree, name)


def leave(pair):
    for gateway in pair:
        while gateway.connections:
            gateway.connections.pop().close()


def clear(pair, tree, name):
    znode = pair[0].znode(name)
    for claim in tree.claims(znode):
        tree.delete(znode + "/" + claim)


class Pace:
    """Whether a client took more time than it has from step to step, because a
    process stood still.
    """

    def __init__(self, most):
        self.most = most
        self.last = time.monotonic()
        self.late = False

    def step(self):
        now = time.monotonic()
        self.late |= now - self.last > self.most
        self.last = now


def in_pace(pair, tree, name, attempt, most=KEPT - 1):
    """An attempt that was late, or in which ZooKeeper stalled as the log tells,
    may fail, and then there is another.
    """
    for last in (False, False, True):
        pace = Pace(most)
        before = [gateway.outages() for gateway in pair]
        try:
            return attempt(pace.step)
        except (AssertionError, LookupError, TimeoutError):
            if last or not (pace.late or before != [gateway.outages()
                                                    for gateway in pair]):
                raise
        leave(pair)
        clear(pair, tree, name)
        tree.wait_claims(pair[0].znode(name), 0, SOON)


@pytest.fixture
def dice():
    seed = int(os.environ.get("ZK_LOCK_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    return random.Random(seed)


# requests

def new_key():
    return str(uuid.uuid4())


def keyed(key, **headers):
    return dict(headers, **{"Idempotency-Key": key})


def acquire(gateway, name, key, worker=None, body=None, **query):
    return gateway.acquire(name, body, keyed(key), worker, **query)


def begin(gateway, name, key, worker=None, **query):
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


# answers

def granted(response, name, status=201, mode="exclusive"):
    """The token of a grant, the first grant or a repeated grant."""
    assert response.status == status, response
    content = response.json
    assert content["name"] == name
    assert content["mode"] == mode
    assert TOKEN.match(content["token"])
    assert response.headers["Lock-Token"] == content["token"]
    assert response.headers["Lock-Fencing-Token"] == str(
        content["fencing_token"])
    assert content["waited_ms"] >= 0
    assert content["state"] == "held"
    assert response.headers["Location"].endswith(
        lock_path(name, content["token"]))
    return content["token"]


def queued(response, name, position):
    """The token of a 202."""
    assert response.status == 202, response
    assert "respond-async" in response.headers.all("Preference-Applied")
    content = response.json
    assert content["name"] == name
    assert content["state"] == "queued"
    assert content["mode"] == "exclusive"
    assert content["position"] == position
    token = content["token"]
    assert TOKEN.match(token)
    assert response.headers["Lock-Token"] == token
    assert response.headers["Location"].endswith(lock_path(name, token))
    return token


def waits(response, token, position=0):
    assert response.status == 200, response
    content = response.json
    assert content["state"] == "queued", content
    assert content["token"] == token
    assert content["position"] == position
    return True


def holds(response, token):
    assert response.status == 200, response
    content = response.json
    assert content["state"] == "held", content
    assert content["token"] == token
    assert response.headers["Lock-Token"] == token
    assert response.headers["Lock-Fencing-Token"] == str(
        content["fencing_token"])
    return True


def tokens(gateway, tree, name):
    """The tokens of all claims that ZooKeeper has, in their order."""
    znode = gateway.znode(name)
    tree.client.sync(znode)
    return [token_of(znode, claim) for claim in tree.claims(znode)]


def only(gateway, tree, name, token):
    """Only the claim of that token is left."""
    claim, = tree.wait_claims(gateway.znode(name), 1)
    assert claim == claim_of(token)
    return True


def alike(answers, name, mode="exclusive"):
    """Of requests with the same key, the first gets 201, the rest get 200."""
    assert sorted(a.status for a in answers) == (
        [200] * (len(answers) - 1) + [201]), answers
    told = {granted(a, name, a.status, mode) for a in answers}
    assert len(told) == 1, answers
    assert len({a.fencing for a in answers}) == 1, answers
    return told.pop()


def released(gateway, name, token):
    """Repeats a release until it is confirmed; an early try may have worked."""
    told = []
    wait_until(lambda: told.append(gateway.release(name, token))
               or told[-1].status != 503)
    assert told[-1].status in ((204,) if len(told) == 1 else (204, 410)), told


def free(gateway, tree, name):
    tree.wait_claims(gateway.znode(name), 0)


def settled(waiters, seconds=0.3):
    """No waiter gets an answer in this time."""
    deadline = time.monotonic() + seconds
    for i, waiter in enumerate(waiters):
        if not waiter.silent_for(max(0.0, deadline - time.monotonic())):
            raise AssertionError("number %d of %d is told %s"
                                 % (i, len(waiters), waiter.response()))
    return True


# a key, again

@modes
def test_again_while_held(pair, tree, name, mode):
    """Each worker of both gateways gets the key again, and more than once."""
    here, there = pair
    key = new_key()
    first = acquire(here, name, key, **mode)
    what = mode.get("mode", "exclusive")
    token = granted(first, name, 201, what)
    for gateway, worker in everywhere(here, there) * 2:
        again = acquire(gateway, name, key, worker, **mode)
        assert granted(again, name, 200, what) == token
        assert again.fencing == first.fencing
        only(here, tree, name, token)
    released(there, name, token)
    free(here, tree, name)


def test_many_again_at_once(pair, tree, name):
    """Many repeats find the same claim, and write to the claim, at once."""
    here, there = pair
    holder = here.hold(name)
    key = new_key()
    waiters = [begin(here, name, key, wait="1m")]
    mine, = tree.wait_claims(here.znode(name), 2)[1:]
    waiters += [begin(there, name, key, worker, wait="1m")
                for worker in there.worker_pids() for _ in range(20)]
    assert settled(waiters, 1.0)
    released(here, name, holder.token)
    answers = [waiter.response(SOON) for waiter in waiters]
    assert claim_of(alike(answers, name)) == mine
    released(here, name, answers[0].token)
    free(here, tree, name)


@waiting_modes
def test_again_while_waiting(pair, tree, name, mode):
    """All requests wait with the same claim, and all hear of the grant."""
    here, there = pair
    znode = here.znode(name)
    if mode.get("mode") == "semaphore":
        blockers = [here.hold(name, **mode) for _ in range(2)]
    else:
        blockers = [here.hold(name, mode="write")]
    before = len(blockers)
    key = new_key()
    waiters = [begin(here, name, key, wait="1m", **mode)]
    tree.wait_claims(znode, before + 1)
    mine = tokens(here, tree, name)[-1]
    behind = there.begin(name, wait="1m", **(mode if "permits" in mode
                                             else {"mode": "write"}))
    tree.wait_claims(znode, before + 2)
    for gateway, worker in everywhere(here, there) * 2:
        waiters.append(begin(gateway, name, key, worker, wait="1m", **mode))
    assert settled(waiters + [behind])
    tree.wait_claims(znode, before + 2)

    released(there, name, blockers[0].token)
    answers = [waiter.response(SOON) for waiter in waiters]
    assert alike(answers, name, mode.get("mode", "exclusive")) == mine
    assert behind.silent_for(0)
    released(here, name, mine)
    answer = behind.response(SOON)
    assert answer.status == 201, answer
    released(there, name, answer.token)
    for blocker in blockers[1:]:
        released(there, name, blocker.token)
    free(here, tree, name)


@modes
def test_first_requests_for_a_free_lock(pair, tree, name, dice, mode):
    """As below, for a free lock in each mode: the key gets a single claim."""
    here, there = pair
    lines = [gateway.connect(worker)
             for gateway, worker in everywhere(here, there) * 2]
    for _ in range(ROUNDS):
        key = new_key()
        dice.shuffle(lines)
        for connection in lines:
            connection.send("POST", lock_path(name), mode, keyed(key))
        answers = [connection.response(SOON) for connection in lines]
        token = alike(answers, name, mode.get("mode", "exclusive"))
        only(here, tree, name, token)
        released(dice.choice(pair), name, token)
        free(here, tree, name)


@pytest.mark.shows("one `Idempotency-Key` has one claim")
@pytest.mark.parametrize("taken", [False, True])
def test_first_requests_at_once(pair, tree, name, dice, taken):
    """Every worker gets the key at almost the same time: there is one claim."""
    here, there = pair
    lines = [gateway.connect(worker)
             for gateway, worker in everywhere(here, there) * 2]
    for i in range(ROUNDS):
        blocker = here.hold(name).token if taken else None
        key = new_key()
        wait = {"wait": "1m"} if taken else dice.choice(
            [{}, {"wait": "0"}, {"wait": "1m"}])
        spread = dice.choice([0, 0, 0.001, 0.005])
        dice.shuffle(lines)
        for connection in lines:
            connection.send("POST", lock_path(name), wait, keyed(key))
            if spread:
                time.sleep(dice.uniform(0, spread))
        if taken:
            if dice.random() < 0.7:
                tree.wait_claims(here.znode(name), 2)
            released(dice.choice(pair), name, blocker)
        answers = [connection.response(SOON) for connection in lines]
        token = alike(answers, name)
        only(here, tree, name, token)
        released(dice.choice(pair), name, token)
        free(here, tree, name)


def test_keys_compete(pair, tree, name, dice):
    """Several keys come at once, several times each: each key gets a turn."""
    here, there = pair
    spots = everywhere(here, there)
    for _ in range(3):
        keys = [new_key() for _ in range(4)]
        waiters = {key: [] for key in keys}
        for key in dice.sample(keys * 3, 12):
            gateway, worker = dice.choice(spots)
            waiters[key].append(begin(gateway, name, key, worker, wait="1m"))
        fencing = 0
        for _ in range(len(keys)):
            def first():
                return [key for key in keys
                        if not waiters[key][0].silent_for(0)]
            key, = wait_until(first, SOON, "a grant")
            answers = [waiter.response(SOON) for waiter in waiters[key]]
            token = alike(answers, name)
            assert answers[0].fencing > fencing
            fencing = answers[0].fencing
            keys.remove(key)
            released(dice.choice(pair), name, token)
        free(here, tree, name)


OTHERS = {
    "mode": {"mode": "shared"},
    "write": {"mode": "write"},
    "permits": {"mode": "semaphore", "permits": "3"},
    "ttl": {"ttl": "77s"},
    "owner": {"owner": "you"},
    "data": {"data": {"a": 2}},
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("state", ["held", "waiting"])
def test_other_parameters(pair, tree, name, state, other):
    """A key stands for the same request at each gateway, whatever the state."""
    here, there = pair
    body = {"ttl": "70s", "owner": "me", "data": {"a": 1}}
    key = new_key()
    blocker = here.hold(name).token if state == "waiting" else None
    first = here.begin(name, body, keyed(key), wait="1m")
    tree.wait_claims(here.znode(name), 2 if blocker else 1)
    if not blocker:
        token = granted(first.response(), name)
    for gateway, worker in everywhere(here, there):
        answer = acquire(gateway, name, key, worker, dict(body,
                                                          **OTHERS[other]))
        problem(answer, 422, "Idempotency-Key")
        assert "Lock-Token" not in answer.headers
    tree.wait_claims(here.znode(name), 2 if blocker else 1)
    if blocker:
        assert first.silent_for(0)
        released(there, name, blocker)
        token = granted(first.response(SOON), name)
    for gateway, worker in everywhere(here, there):
        answer = acquire(gateway, name, key, worker, dict(body, wait="7s"))
        assert granted(answer, name, 200) == token
    released(here, name, token)
    free(here, tree, name)


def test_parameters_as_they_were_said(long_pair, tree, name):
    """The claim data have a checksum that every gateway computes alike."""
    gateway = long_pair[0]
    for query, said in [({}, b"0 -1 \0"), ({"ttl": "70s"}, b"0 70000 \0"),
                        ({"mode": "semaphore", "permits": "5", "owner": "me"},
                         b"1284 -1 me\0")]:
        token = acquire(gateway, name, new_key(), **query).token
        label = tree.data("%s/%s" % (gateway.znode(name), claim_of(token)))
        assert b'"params":"%08x"' % zlib.crc32(said) in label
        released(gateway, name, token)


def test_default_that_a_reload_changes(start_gateway, tree, name):
    """The repeat has the same arguments as before, so the key matches."""
    gateway = start_gateway(http="zk_lock_ttl 1h;")
    key = new_key()
    token = granted(acquire(gateway, name, key), name)
    capped = new_key()
    other = granted(acquire(gateway, name + "2", capped, ttl="2h"),
                    name + "2")
    gateway.change_conf("zk_lock_ttl 1h;",
                        "zk_lock_ttl 30m; zk_lock_max_ttl 90m;")
    gateway.reload()
    gateway.wait_served()
    for worker in gateway.worker_pids():
        assert granted(acquire(gateway, name, key, worker), name,
                       200) == token
        assert granted(acquire(gateway, name + "2", capped, worker,
                               ttl="2h"), name + "2", 200) == other
    released(gateway, name, token)
    released(gateway, name + "2", other)


def test_number_of_permits(pair, tree, name):
    here, there = pair
    key = new_key()
    mode = {"mode": "semaphore", "permits": "2"}
    token = granted(acquire(here, name, key, **mode), name, 201, "semaphore")
    for gateway, worker in everywhere(here, there):
        problem(acquire(gateway, name, key, worker,
                        **dict(mode, permits="3")), 422, "Idempotency-Key")
    released(there, name, token)
    free(here, tree, name)


def test_bad_keys(pair, tree, name):
    """nginx itself refuses some of the keys."""
    here, there = pair
    request = encode("POST", lock_path(name), keyed("KEY"))
    for key in (b"", b" ", b"x" * 256, b"a b", b"a\tb", b"a\x7fb",
                b"\xc3\xa4", b"a\x01", b'""', b'"a b"',
                b'"' + b"x" * 256 + b'"'):
        for gateway in pair:
            connection = gateway.connect()
            connection.send_bytes(request.replace(b"KEY", key))
            answer = connection.response()
            assert answer.status == 400, (key, answer)
    free(here, tree, name)


def test_good_keys(pair, tree, name):
    here, there = pair
    for key in ("x", "x" * 255, '"%s"' % ("x" * 255), '"', '"""',
                "!~\\/;,=:"):
        token = granted(acquire(here, name, key), name)
        assert granted(acquire(there, name, key), name, 200) == token
        released(there, name, token)


def test_quotes_are_not_a_part_of_the_key(pair, tree, name):
    """The key may come as the string of a structured field (RFC 8941)."""
    here, there = pair
    key = new_key()
    for first, second in ((key, '"%s"' % key), ('"%s"' % key, key)):
        token = granted(acquire(here, name, first), name)
        assert granted(acquire(there, name, second, wait="0"), name,
                       200) == token
        released(there, name, token)


def test_grant_and_repeat_have_one_shape(pair, tree, name):
    here, there = pair
    key = new_key()
    said = {"ttl": "1h", "owner": "me", "data": '{"job":[1]}'}
    first = acquire(here, name, key, **said)
    token = granted(first, name)
    for gateway, worker in everywhere(here, there):
        again = acquire(gateway, name, key, worker, **said)
        assert granted(again, name, 200) == token
        timed = {"waited_ms", "expires_in_ms", "since"}
        for content in (first.json, again.json):
            # only the gateway that granted the claim knows when the lease ends
            assert timed - set(content) <= ({"expires_in_ms"}
                                            if gateway is there else set())
        assert ({k: v for k, v in first.json.items() if k not in timed}
                == {k: v for k, v in again.json.items() if k not in timed})
        assert again.headers["Location"] == first.headers["Location"]
    released(there, name, token)


def test_other_keys(pair, tree, name):
    """A key loses a single pair of quotes, and nothing else."""
    here, there = pair
    key = new_key()
    token = granted(acquire(here, name, key), name)
    for other in ('""%s""' % key, '"' + key, key + '"', "'%s'" % key,
                  key.upper(), key[:-1], key + "0"):
        problem(acquire(there, name, other, wait="0"), 423)
    released(there, name, token)


def test_two_keys(pair, tree, name):
    for gateway in pair:
        request = encode("POST", lock_path(name), {"Idempotency-Key": "a"})
        request = request.replace(b"\r\n\r\n",
                                  b"\r\nIdempotency-Key: b\r\n\r\n")
        connection = gateway.connect()
        connection.send_bytes(request)
        problem(connection.response(), 400, "Idempotency-Key")
    free(pair[0], tree, name)


def test_where_a_key_has_no_place(pair, tree, name):
    for gateway in pair:
        problem(acquire(gateway, name, new_key(), hold="connection"), 400)
        problem(gateway.call("POST", "/locks/", None, keyed(new_key()),
                             {"names": [name]}), 400)
    free(pair[0], tree, name)


@pytest.mark.parametrize("end", ["released", "lease", "cancelled", "deleted"])
def test_key_after_the_end(pair, tree, name, end):
    """The same request makes a new claim, at every worker."""
    here, there = pair
    key = new_key()
    old = set()
    for gateway, worker in everywhere(here, there):
        blocker = here.hold(name).token if end == "cancelled" else None
        if end == "cancelled":
            waiter = begin(gateway, name, key, worker, wait="1m")
            tree.wait_claims(here.znode(name), 2)
            token = tokens(here, tree, name)[1]
            released(there, name, token)
            problem(waiter.response(SOON), 410)
            released(here, name, blocker)
        else:
            token = granted(acquire(gateway, name, key, worker, ttl="1s"
                                    if end == "lease" else "1m"), name)
        if end == "released":
            released(there, name, token)
        elif end == "deleted":
            tree.delete(here.znode(name) + "/" + claim_of(token))
        free(here, tree, name)
        assert token not in old
        old.add(token)
    for token in old:
        gone(there, name, token)


def test_one_key_for_several_locks(pair, tree, name):
    here, there = pair
    key = new_key()
    names = [name, name + "1", name + "2"]
    first = {each: granted(acquire(here, each, key), each) for each in names}
    assert len(set(first.values())) == len(names)
    for each in names:
        assert granted(acquire(there, each, key), each, 200) == first[each]
        only(here, tree, each, first[each])
        released(there, each, first[each])
        free(here, tree, each)


def test_own_wait(pair, tree, name):
    """A request whose wait is over ends; a waiting request keeps the place."""
    here, there = pair
    blocker = here.hold(name).token
    key = new_key()
    stayer = begin(here, name, key, wait="1m")
    tree.wait_claims(here.znode(name), 2)
    mine = tokens(here, tree, name)[1]
    for gateway, worker in everywhere(here, there):
        refusal = problem(acquire(gateway, name, key, worker, wait="0"), 423)
        assert refusal["holder"]["fencing_token"]
        problem(gateway.in_reach(lambda: acquire(
            gateway, name, key, worker, wait="200ms")), 423)
        tree.wait_claims(here.znode(name), 2)
        assert tokens(here, tree, name)[1] == mine
    assert stayer.silent_for(0)
    released(there, name, blocker)
    assert granted(stayer.response(SOON), name) == mine
    released(here, name, mine)


@places
def test_wait_of_the_first_is_over(pair, tree, name, place):
    """The first gets 423; a repeat that waits keeps the place."""
    (here, one), (there, other) = elsewhere(pair, place)

    def attempt(step):
        blocker = here.hold(name).token
        key = new_key()
        step()
        first = begin(here, name, key, one, wait="3s")
        tree.wait_claims(here.znode(name), 2)
        stayer = begin(there, name, key, other, wait="1m")
        behind = here.begin(name, wait="1m")
        tree.wait_claims(here.znode(name), lambda c: len(c) >= 3)
        # the repeat has to come before the wait is over
        step()
        wait_over(first.response(SOON), here)
        assert settled([stayer, behind])
        tree.wait_claims(here.znode(name), 3)
        released(there, name, blocker)
        token = granted(stayer.response(SOON), name, 200)
        assert behind.silent_for(0)
        released(here, name, token)
        released(here, name, grant(behind.response(SOON), name)["token"])

    in_pace(pair, tree, name, attempt, 2.0)


@places
def test_wait_of_the_last_is_over(brief, tree, name, place):
    """The claim ends because no request waits with the claim any more."""
    (here, one), (there, other) = elsewhere(brief, place)
    blocker = here.hold(name, ttl="1h").token
    key = new_key()
    first = begin(here, name, key, one, wait="1m")
    tree.wait_claims(here.znode(name), 2)
    first.close()
    problem(there.in_reach(lambda: acquire(
        there, name, key, other, wait="100ms")), 423)
    tree.wait_claims(here.znode(name), 1, SOON)
    released(there, name, blocker)


@places
def test_rest_of_the_wait(pair, tree, name, place):
    """The claim that a repeat waits with is cancelled.  The repeat waits on,
    with a new claim, for the rest of its wait.
    """
    (here, one), (there, other) = elsewhere(pair, place)
    blocker = here.hold(name).token
    key = new_key()
    first = begin(here, name, key, one, wait="1m")
    tree.wait_claims(here.znode(name), 2)
    mine = tokens(here, tree, name)[1]
    began = time.monotonic()
    again = begin(there, name, key, other, wait="6s")
    assert settled([again])
    later = there.begin(name, worker=other, wait="7s")
    wait_over(there.acquire(name, worker=other, wait="2s"), there)
    assert again.silent_for(0) or time.monotonic() - began > 5
    released(here, name, mine)
    problem(first.response(SOON), 410)
    wait_over(later.response(SOON), there)
    assert not again.silent_for(0), "its wait has begun anew"
    wait_over(again.response(SOON), there)
    tree.wait_claims(here.znode(name), 1)
    released(here, name, blocker)


def test_wait_is_over_without_a_repeat(pair, tree, name):
    here, there = pair
    blocker = here.hold(name).token
    for gateway, worker in everywhere(here, there):
        for wait in ("0", "200ms"):
            problem(gateway.in_reach(lambda: acquire(
                gateway, name, new_key(), worker, wait=wait)), 423)
            tree.wait_claims(here.znode(name), 1)
    released(there, name, blocker)


def test_repeat_when_the_queue_is_full(start_gateway, tree):
    """The repeat takes no place of its own."""
    gateway = start_gateway(location="zk_lock_grace 1m; zk_lock_max_queue 1;")
    worker = gateway.worker_pids()[0]
    blocker = gateway.hold("x", worker=worker).token
    key = new_key()
    first = begin(gateway, "x", key, worker, wait="1m")
    tree.wait_claims(gateway.znode("x"), 2)
    problem(acquire(gateway, "x", new_key(), worker), 429)
    first.close()
    again = [begin(gateway, "x", key, worker, wait="1m")
             for worker in gateway.worker_pids()]
    assert settled(again)
    released(gateway, "x", blocker)
    told = {granted(waiter.response(SOON), "x", 200) for waiter in again}
    token, = told
    released(gateway, "x", token)


def test_repeat_that_is_refused(start_gateway):
    """The answer does not deny the grant of the request before."""
    gateway = start_gateway(location="zk_lock_max_claims 1;")
    key = new_key()
    token = granted(acquire(gateway, "x", key), "x")
    detail = problem(acquire(gateway, "x", key), 429)["detail"]
    assert detail.endswith("this request was granted nothing")
    assert gateway.inspect("x", token).json["state"] == "held"
    released(gateway, "x", token)


# a key whose client has left

@places
@pytest.mark.parametrize("leave", LEAVES)
def test_client_leaves_while_it_waits(pair, tree, name, leave, place):
    """The claim keeps its place, ahead of later claims."""
    (here, one), (there, other) = elsewhere(pair, place)
    blocker = here.hold(name).token
    key = new_key()
    first = begin(here, name, key, one, wait="1m")
    tree.wait_claims(here.znode(name), 2)
    mine = tokens(here, tree, name)[1]
    getattr(first, leave)()
    behind = there.begin(name, wait="1m")
    tree.wait_claims(here.znode(name), 3)
    again = begin(there, name, key, other, wait="1m")
    assert settled([again, behind])
    tree.wait_claims(here.znode(name), 3)
    released(here, name, blocker)
    assert granted(again.response(SOON), name, 200) == mine
    assert behind.silent_for(0)
    released(here, name, mine)
    released(here, name, grant(behind.response(SOON), name)["token"])


@pytest.mark.parametrize("leave", LEAVES)
def test_place_is_kept_for_the_grace(brief, tree, name, leave):
    """The claim ends after the grace, because no repeat comes."""
    here, there = brief
    blocker = there.hold(name, ttl="1h").token
    key = new_key()
    for worker in here.worker_pids():
        first = begin(here, name, key, worker, wait="1m")
        tree.wait_claims(here.znode(name), 2)
        behind = there.begin(name, wait="1m")
        tree.wait_claims(here.znode(name), 3)
        left = time.monotonic()
        getattr(first, leave)()
        tree.wait_claims(here.znode(name), 2, SOON)
        assert time.monotonic() - left >= GRACE - 0.01
        assert behind.silent_for(0)
        released(there, name, blocker)
        blocker = grant(behind.response(SOON), name)["token"]
    released(there, name, blocker)


@places
def test_repeats_keep_the_place(kept, tree, name, place):
    """Each repeat keeps the place for another grace, though no repeat waits
    long.
    """
    (here, one), (there, other) = elsewhere(kept, place)

    def attempt(step):
        blocker = here.hold(name, ttl="1h").token
        key = new_key()
        first = begin(here, name, key, one, wait="1m")
        tree.wait_claims(here.znode(name), 2)
        mine = tokens(here, tree, name)[1]
        step()
        first.close()
        began = last = time.monotonic()
        while time.monotonic() - began < 1.5 * KEPT:
            last = time.monotonic()
            again = begin(there, name, key, other, wait="1m")
            silent = again.silent_for(0.3)
            again.close()
            present = tokens(here, tree, name)
            step()
            assert silent and mine in present
        tree.wait_claims(here.znode(name), 1, SOON)
        # the grace begins when the repeat comes, or when its client leaves
        assert time.monotonic() - last >= KEPT - 0.1
        released(there, name, blocker)

    in_pace(kept, tree, name, attempt)


@places
def test_repeat_waits_for_longer_than_the_grace(kept, tree, name, place):
    """The waiting repeat keeps the place, though the first client left."""
    (here, one), (there, other) = elsewhere(kept, place)

    def attempt(step):
        blocker = here.hold(name, ttl="1h").token
        key = new_key()
        first = begin(here, name, key, one, wait="1m")
        tree.wait_claims(here.znode(name), 2)
        mine = tokens(here, tree, name)[1]
        again = begin(there, name, key, other, wait="1m")
        assert again.silent_for(0.2)
        behind = here.begin(name, wait="1m")
        tree.wait_claims(here.znode(name), 3)
        first.close()
        assert settled([again, behind], 1.5 * KEPT)
        assert tokens(here, tree, name)[1] == mine
        released(here, name, blocker)
        assert granted(again.response(SOON), name, 200) == mine
        released(here, name, mine)
        released(here, name, grant(behind.response(SOON), name)["token"])

    # the repeat asks ZooKeeper for the claim, and a stall may be as long as the
    # grace
    in_pace(kept, tree, name, attempt)


@places
def test_first_wait_ends_while_a_repeat_waits(pair, tree, name, place):
    """A client that has left waits no more, so its wait does not count."""
    (here, one), (there, other) = elsewhere(pair, place)
    blocker = here.hold(name, ttl="1h").token
    key = new_key()
    over = time.monotonic() + 3.0
    first = begin(here, name, key, one, wait="3s")
    tree.wait_claims(here.znode(name), 2)
    mine = tokens(here, tree, name)[1]
    first.close()
    again = begin(there, name, key, other, wait="1m")
    behind = here.begin(name, wait="1m")
    tree.wait_claims(here.znode(name), lambda c: len(c) >= 3)
    assert settled([again, behind], over - time.monotonic() + 0.8)
    released(here, name, blocker)
    assert granted(again.response(SOON), name, 200) == mine
    released(here, name, mine)
    released(here, name, grant(behind.response(SOON), name)["token"])


@contextlib.contextmanager
def lost_grant(pair, tree, name, leave, key):
    """A client leaves, and then its claim is granted: the answer is lost.

    The worker learns of both at the same moment.
    """
    here, there = pair
    worker = here.worker_pids()[0]
    blocker = there.hold(name).token
    first = begin(here, name, key, worker, wait="1m", ttl="1h")
    tree.wait_claims(here.znode(name), 2)
    releaser = there.connect()
    with here.frozen_worker(worker):
        yield tokens(here, tree, name)[1]
        getattr(first, leave)()
        answer = releaser.request("DELETE", lock_path(name, blocker))
        assert answer.status == 204, answer


@places
@pytest.mark.parametrize("leave", LEAVES)
def test_grant_that_nobody_heard_of(pair, tree, name, leave, place):
    """The repeat gets the grant, with the lease that the client named."""
    (here, _), (there, other) = elsewhere(pair, place)
    key = new_key()
    with lost_grant(pair, tree, name, leave, key) as mine:
        pass
    only(here, tree, name, mine)
    answer = acquire(there, name, key, other, ttl="1h")
    assert granted(answer, name, 200) == mine
    for gateway in pair:
        problem(gateway.acquire(name, wait="0"), 423)
        seen = gateway.inspect(name, mine).json
        assert seen["state"] == "held" and seen["ttl_ms"] == 3600000
        assert seen.get("expires_in_ms", 3600000) > 3000000
    released(there, name, mine)


@pytest.mark.parametrize("leave", LEAVES)
def test_grant_without_a_repeat(brief, tree, name, leave):
    """The next claim is granted after the grace, though the lease is long."""
    here, there = brief
    key = new_key()
    with lost_grant(brief, tree, name, leave, key) as mine:
        left = time.monotonic()
    waiter = there.begin(name, wait="1m")
    token = grant(waiter.response(SOON), name)["token"]
    assert time.monotonic() - left >= GRACE - 0.01
    gone(here, name, mine)
    released(here, name, token)


@places
def test_repeat_begins_the_lease(kept, tree, name, place):
    """The first repeat begins the lease, which lasts beyond the grace."""
    (here, _), (there, other) = elsewhere(kept, place)

    def attempt(step):
        key = new_key()
        with lost_grant(kept, tree, name, "close", key) as mine:
            step()
        answer = acquire(there, name, key, other, ttl="1h")
        step()
        assert granted(answer, name, 200) == mine
        wait_over(here.acquire(name, wait="%dms" % (1.5 * KEPT * 1000)), here)
        for gateway, worker in everywhere(*kept):
            assert holds(gateway.inspect(name, mine, worker), mine)
        released(there, name, mine)

    in_pace(kept, tree, name, attempt)


def test_looks_renew_no_lease(pair, tree, name):
    """Neither a repeat nor a look renews a lease that has begun.  The first
    look at another gateway may, because that gateway cannot know that the lease
    began.
    """
    here, there = pair
    key = new_key()
    answer = acquire(here, name, key, ttl="1h")
    token = granted(answer, name)
    assert holds(there.inspect(name, token), token)
    began = time.monotonic()

    def rest():
        """The rest of the lease, at the gateway that keeps the lease."""
        left = wait_until(lambda: here.inspect(name, token).json.get(
            "expires_in_ms"), SOON)
        passed = (time.monotonic() - began) * 1000
        assert left <= 3600000 - passed + 1000 * NOTICED + 300, "it was renewed"
        return left

    wait_until(lambda: rest() < 3600000 - 1000 * (NOTICED + 1), 2 * SOON)
    for gateway, worker in everywhere(here, there) * 2:
        assert holds(gateway.inspect(name, token, worker), token)
        rest()
        again = acquire(gateway, name, key, worker, ttl="1h")
        assert granted(again, name, 200) == token
        rest()
    wait_over(here.acquire(name, wait="1500ms"), here)
    rest()
    released(there, name, token)


def test_look_elsewhere_shortens_no_lease(pair, zookeeper, name):
    """The other gateway knows only the ttl of the acquire and reports a look
    with that ttl.  The longer ttl of a renewal here still counts.
    """
    here, there = pair
    token = granted(acquire(here, name, new_key(), ttl="5s"), name)
    grant(here.renew(name, token, ttl="1h"), name, 200)
    claim = "%s/%s" % (here.znode(name), claim_of(token))
    wait_until(lambda: claim in zookeeper.watched_paths(), SOON)
    assert holds(there.inspect(name, token), token)
    wait_over(here.acquire(name, wait="7s"), here)
    for gateway, worker in everywhere(here, there):
        assert holds(gateway.inspect(name, token, worker), token)
    left = here.inspect(name, token).json["expires_in_ms"]
    assert left > 3500000
    released(there, name, token)



def test_wait_ends_as_the_lock_is_free(pair, tree, name, dice):
    """The first request and the repeat both get true answers."""
    here, there = pair
    for i in range(2 * ROUNDS):
        blocker = here.hold(name).token
        key = new_key()
        releaser = there.connect()
        first = begin(here, name, key, wait="300ms")
        at = time.monotonic() + 0.3
        tree.wait_claims(here.znode(name), lambda claims: (
            len(claims) >= 2 or not first.silent_for(0)))
        again = begin(dice.choice(pair), name, key, wait="1m")
        time.sleep(max(0.0, at - time.monotonic()
                       + dice.uniform(-0.012, 0.008)))
        releaser.send("DELETE", lock_path(name, blocker))
        answers = [first.response(SOON), again.response(SOON)]
        assert releaser.response().status == 204
        if answers[0].status not in (200, 201):
            wait_over(answers[0], here)
        assert answers[1].status in (200, 201), answers
        token = granted(answers[1], name, answers[1].status)
        if answers[0].status in (200, 201):
            assert granted(answers[0], name, answers[0].status) == token
        only(here, tree, name, token)
        for gateway in pair:
            assert holds(gateway.inspect(name, token), token)
        released(there, name, token)
        free(here, tree, name)


# an answer that is lost on its way

@pytest.fixture
def cutter(pair):
    cutter = Cutter(pair[0].port)
    yield cutter
    cutter.close()


def send_off(cutter, cut, data, method="POST"):
    """Sends a request whose connection is cut."""
    connection = Connection(cutter.port)
    with connection:
        connection.send_bytes(data, method)
        try:
            answer = connection.response(60)
        except CUT:
            answer = None
        cut.wait()
    return answer


BODY = {"owner": "me", "data": {"a": [1, 2]}, "ttl": "50s", "wait": "40s"}


def request_of(name, key):
    return encode("POST", lock_path(name), keyed(key), BODY)


def points(number, step):
    """Every step-th of so many bytes, and the last bytes."""
    return sorted(set(range(0, number, step)) | {number - 1, number})


@pytest.mark.parametrize("how", ["close", "reset"])
def test_acquire_is_cut(pair, tree, name, cutter, how):
    """The cut is at a byte of the request: the repeat gets a single grant."""
    length = len(request_of(name, new_key()))
    for i, byte in enumerate(points(length, 13)):
        here, there = pair[::(-1) ** i]
        cutter.retarget(here.port)
        key = new_key()
        request = request_of(name, key)
        cut = cutter.cut(request=byte, how=how)
        assert send_off(cutter, cut, request) is None
        assert cut.passed_on == byte
        again_at = dice_of(pair, i)
        answer = again_at.acquire(name, BODY, keyed(key))
        assert answer.status in ([200, 201] if byte == length else [201]), (
            byte, answer)
        token = granted(answer, name, answer.status)
        read(here)
        only(here, tree, name, token)
        released(there, name, token)
        free(here, tree, name)


def read(gateway):
    """The gateway has read all that was sent before, however late it is."""
    for worker in gateway.worker_pids():
        gateway.connect(worker).close()


def dice_of(pair, i):
    """Here, there, there, here: each gateway repeats after each gateway."""
    return pair[(i // 2) % 2]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_acquire_is_cut_while_it_is_served(pair, tree, name, cutter, how):
    """The cut comes at any moment of the gateway's work."""
    for i in range(3 * ROUNDS):
        here, there = pair[::(-1) ** i]
        cutter.retarget(here.port)
        key = new_key()
        cut = cutter.cut(unheard=(i % 15) * 0.001, how=how)
        assert send_off(cutter, cut, request_of(name, key)) is None
        answer = dice_of(pair, i).acquire(name, BODY, keyed(key))
        assert answer.status in (200, 201), (i, answer)
        token = granted(answer, name, answer.status)
        read(here)
        only(here, tree, name, token)
        released(there, name, token)
        if tree.claims(here.znode(name)):
            # the gateway may have read the first request after all of that
            late = here.acquire(name, BODY, keyed(key))
            released(there, name, granted(late, name, late.status))
        free(here, tree, name)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_grant_is_cut(pair, tree, name, cutter, how):
    """The cut is at a byte of the answer: the repeat gets the same grant."""
    for i, byte in enumerate(list(range(0, 500, 23)) + [-2, -1]):
        here, there = pair[::(-1) ** i]
        cutter.retarget(here.port)
        key = new_key()
        cut = cutter.cut(answer=byte, how=how)
        assert send_off(cutter, cut, request_of(name, key)) is None
        assert cut.passed_on < len(cut.lost)
        answer = dice_of(pair, i).acquire(name, BODY, keyed(key))
        token = granted(answer, name, 200)
        assert token.encode() in cut.lost
        assert b"Lock-Fencing-Token: %d\r\n" % answer.fencing in cut.lost
        only(here, tree, name, token)
        released(there, name, token)
        free(here, tree, name)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("where", ["request", "unheard", "answer"])
def test_cut_while_another_holds_it(pair, tree, name, cutter, where, how):
    """The holder releases before the repeat, or while the repeat waits."""
    length = len(request_of(name, new_key()))
    bytes_of = {"request": points(length, 41), "answer": [0, 7, 150, -1],
                "unheard": [0, 0.001, 0.003, 0.01, 0.05]}[where]
    for i, byte in enumerate(bytes_of * 2):
        here, there = pair[::(-1) ** i]
        cutter.retarget(here.port)
        blocker = there.hold(name).token
        key = new_key()
        cut = cutter.cut(how=how, **{where: byte})
        first = Connection(cutter.port)
        here.connections.append(first)
        first.send_bytes(request_of(name, key))
        if where == "answer":
            tree.wait_claims(here.znode(name), 2)
        else:
            cut.wait()
        early = i >= len(bytes_of)
        if early or where == "answer":
            released(here, name, blocker)
            cut.wait()
        again = dice_of(pair, i).begin(name, BODY, keyed(key))
        if not early and where != "answer":
            assert settled([again], 0.1)
            tree.wait_claims(here.znode(name), 2)
            released(here, name, blocker)
        answer = again.response(SOON)
        assert answer.status in (200, 201), (byte, answer)
        token = granted(answer, name, answer.status)
        if cut.lost:
            assert answer.status == 200 and token.encode() in cut.lost
        read(here)
        only(here, tree, name, token)
        released(there, name, token)
        free(here, tree, name)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("where", ["request", "unheard", "answer"])
def test_release_is_cut(pair, tree, name, cutter, where, how):
    """The repeat of a release succeeds, whether the first worked or not."""
    length = len(encode("DELETE", lock_path(name),
                        {"Lock-Token": "x" * 32}))
    bytes_of = {"request": points(length, 19), "answer": [0, 1, 40, -1],
                "unheard": [0.0005 * i for i in range(20)]}[where]
    for i, byte in enumerate(bytes_of):
        here, there = pair[::(-1) ** i]
        cutter.retarget(here.port)
        key = new_key()
        token = granted(acquire(dice_of(pair, i), name, key), name)
        waiter = there.begin(name, wait="1m") if i % 3 == 0 else None
        if waiter:
            tree.wait_claims(here.znode(name), 2)
        cut = cutter.cut(how=how, **{where: byte})
        request = encode("DELETE", lock_path(name), {"Lock-Token": token})
        assert send_off(cutter, cut, request, "DELETE") is None
        whole = where != "request" or cut.passed_on == len(request)
        answer = wait_until(lambda: [
            r for r in [dice_of(pair, i + 1).release(name, token)]
            if r.status != 503])[0]
        assert answer.status in ((204, 410) if whole else (204,)), (byte,
                                                                    answer)
        if waiter:
            token = grant(waiter.response(SOON), name)["token"]
            only(here, tree, name, token)
            released(there, name, token)
        free(here, tree, name)
        again = granted(acquire(there, name, key), name)
        released(here, name, again)


# claims that wait without a request

def test_queued_answer(pair, tree, name):
    here, there = pair
    answer = queue(here, name, ttl="1h")
    blocker = grant(answer, name)["token"]
    assert "Preference-Applied" not in answer.headers or (
        answer.headers["Preference-Applied"] == "respond-async")
    line = []
    for i, (gateway, worker) in enumerate(everywhere(here, there)):
        answer = queue(gateway, name, worker=worker, ttl="1h")
        line.append(queued(answer, name, i))
        assert tokens(here, tree, name)[1:] == line
        assert answer.headers["Content-Type"].split(";")[0] == (
            "application/json")
        path = answer.headers["Location"]
        path = path[path.index("/locks/"):]
        assert waits(there.call("GET", path), line[i], i)
    for prefer in ("respond-async, wait=10", "wait=10, respond-async",
                   "Respond-Async", 'foo="a,b", respond-async;x=1'):
        answer = here.acquire(name, None, {"Prefer": prefer})
        line.append(queued(answer, name, len(line)))
    for prefer in ("respond-asynchronously", "respond-async=x",
                   'foo="respond-async"'):
        problem(here.in_reach(lambda: here.acquire(
            name, None, {"Prefer": prefer}, wait="10ms")), 423)
    for token in line[::-1] + [blocker]:
        released(there, name, token)


@modes
def test_granted_at_once(pair, tree, name, mode):
    here, there = pair
    for gateway, worker in everywhere(here, there):
        answer = queue(gateway, name, worker=worker, **mode)
        token = granted(answer, name, 201, mode.get("mode", "exclusive"))
        only(here, tree, name, token)
        released(there, name, token)
        free(here, tree, name)


def test_renewal_of_a_claim_that_waits(pair, tree, name):
    """The renewal renews nothing, and only the status says so."""
    here, there = pair
    holder = here.hold(name).token
    token = queued(queue(here, name, ttl="1m"), name, 0)
    for gateway, worker in everywhere(here, there):
        for arguments in ({}, {"ttl": "2m"}):
            answer = gateway.renew(name, token, worker=worker, **arguments)
            assert answer.status == 202, answer
            content = answer.json
            seen = poll(gateway, name, token, worker)
            assert waits(seen, token)
            assert content == seen.json
            for header in ("Preference-Applied", "Location"):
                assert header not in answer.headers
    released(there, name, holder)
    wait_until(lambda: poll(here, name, token).json["state"] == "held", SOON)
    for gateway, worker in everywhere(here, there):
        assert gateway.renew(name, token, worker=worker).status == 200
    released(there, name, token)


def test_polls_everywhere(pair, tree, name):
    """Every worker tells the places in the queue, and the grant."""
    here, there = pair
    spots = everywhere(here, there)
    holder = here.hold(name).token
    line = [queued(queue(gateway, name, worker=worker), name, i)
            for i, (gateway, worker) in enumerate(spots)]
    while line:
        for gateway, worker in spots:
            for i, token in enumerate(line):
                assert waits(poll(gateway, name, token, worker), token, i)
                assert waits(gateway.call(
                    "GET", lock_path(name), headers={"Lock-Token": token},
                    worker=worker), token, i)
        released(there, name, holder)
        for gateway, worker in spots:
            problem(gateway.inspect(name, holder, worker), 410)
        holder = line.pop(0)
        for gateway, worker in spots:
            wait_until(lambda: poll(gateway, name, holder, worker
                                    ).json["state"] == "held", SOON)
            assert holds(poll(gateway, name, holder, worker), holder)
    released(here, name, holder)


def test_place_behind_readers_that_wait(pair, tree, name):
    """All readers but the holder are in the queue."""
    here, there = pair
    holder = here.hold(name, mode="shared").token
    waiters = []
    for mode in ("write", "shared"):
        waiters.append(here.begin(name, mode=mode, wait="1m"))
        tree.wait_claims(here.znode(name), 1 + len(waiters))
    answer = queue(here, name)
    token = answer.headers["Lock-Token"]
    assert answer.json["position"] == 2
    for gateway, worker in everywhere(here, there):
        assert waits(poll(gateway, name, token, worker), token, 2)
    released(there, name, holder)
    for waiter, mode in zip(waiters, ("write", "shared")):
        released(there, name, granted(waiter.response(SOON), name, 201, mode))
    wait_until(lambda: poll(there, name, token).json["state"] == "held", SOON)
    released(here, name, token)
    free(here, tree, name)


@pytest.mark.parametrize("how", ["query", "header"])
def test_long_polls(pair, tree, name, how):
    """The grant answers all long polls, even if the grant comes late."""
    here, there = pair
    spots = everywhere(here, there)
    holder = here.hold(name).token
    line = [queued(queue(gateway, name), name, i)
            for i, (gateway, _) in enumerate(spots)]

    def ask(gateway, worker, token, wait):
        connection = gateway.connect(worker)
        connection.send("GET", lock_path(name, token),
                        {"wait": wait} if how == "query" else None,
                        {} if how == "query" else {"Prefer": "wait=" + wait})
        return connection

    began = time.monotonic()
    polls = [(ask(gateway, worker, token, "2"), token, i)
             for gateway, worker in spots for i, token in enumerate(line)]
    for asked, token, i in polls:
        answer = asked.response(SOON)
        assert stalled(answer, here, there) or waits(answer, token, i)
        assert time.monotonic() - began >= 1.99
    for position, token in enumerate(list(line)):
        polls = [ask(gateway, worker, token, "40")
                 for gateway, worker in spots]
        behind = [ask(gateway, worker, line[-1], "40")
                  for gateway, worker in spots if token != line[-1]]
        assert settled(polls + behind)
        released(there, name, holder)
        for asked in polls:
            assert holds(asked.response(SOON), token)
        assert all(asked.silent_for(0) for asked in behind)
        for asked in behind:
            asked.close()
        holder = token
    released(here, name, holder)
    gone(there, name, holder)


def test_long_poll_is_cut_to_the_longest_wait(start_gateway, tree):
    gateway = start_gateway(location="zk_lock_grace 1m; zk_lock_max_wait 1s;")
    holder = gateway.hold("x").token
    token = queued(queue(gateway, "x"), "x", 0)
    began = time.monotonic()
    answer = poll(gateway, "x", token, wait="1h")
    assert stalled(answer, gateway) or waits(answer, token)
    assert time.monotonic() - began >= 0.99
    released(gateway, "x", token)
    released(gateway, "x", holder)


@places
def test_polls_keep_the_place(kept, tree, name, place):
    """Polls keep the place beyond the grace; without polls the claim ends."""
    (here, one), (there, other) = elsewhere(kept, place)

    def attempt(step):
        holder = here.hold(name, ttl="1h").token
        step()
        token = queued(queue(here, name, worker=one), name, 0)
        behind = there.begin(name, wait="1m")
        tree.wait_claims(here.znode(name), 3)
        began = time.monotonic()
        while time.monotonic() - began < 1.5 * KEPT:
            last = time.monotonic()
            answer = poll(there, name, token, other)
            step()
            assert waits(answer, token)
            assert behind.silent_for(0.1)
        tree.wait_claims(here.znode(name), 2, SOON)
        assert time.monotonic() - last >= KEPT - 0.2
        for gateway, worker in everywhere(*kept):
            problem(poll(gateway, name, token, worker), 410)
        assert behind.silent_for(0)
        released(there, name, holder)
        released(there, name, grant(behind.response(SOON), name)["token"])

    in_pace(kept, tree, name, attempt)


@places
def test_long_poll_keeps_the_place(kept, tree, name, place):
    """A long poll keeps the place while it lasts, and for another grace."""
    (here, one), (there, other) = elsewhere(kept, place)

    def attempt(step):
        holder = here.hold(name, ttl="1h").token
        token = queued(queue(here, name, worker=one), name, 0)
        step()
        asked = time.monotonic()
        answer = poll(there, name, token, other,
                      wait="%dms" % (1.25 * KEPT * 1000))
        assert stalled(answer, there) or waits(answer, token)
        tree.wait_claims(here.znode(name), 1, SOON)
        assert time.monotonic() - asked >= 2.25 * KEPT - 0.3
        problem(poll(there, name, token), 410)
        released(there, name, holder)

    in_pace(kept, tree, name, attempt)


def test_nobody_asks(brief, tree, name):
    here, there = brief
    holder = here.hold(name, ttl="1h").token
    for gateway, worker in everywhere(here, there):
        began = time.monotonic()
        token = queued(queue(gateway, name, worker=worker), name, 0)
        tree.wait_claims(here.znode(name), 1, SOON)
        assert time.monotonic() - began >= GRACE - 0.01
        gone(there, name, token)
    released(there, name, holder)


@places
def test_grant_has_to_be_seen(kept, tree, name, place):
    """An unseen grant ends after the grace; a seen grant has its lease."""
    (here, one), (there, other) = elsewhere(kept, place)

    def attempt(step):
        holder = there.hold(name, ttl="1h").token
        unseen = queued(queue(here, name, worker=one, ttl="1h"), name, 0)
        seen = queued(queue(here, name, worker=one, ttl="1h"), name, 1)
        # a call for a claim that waits is no sight of the grant
        assert waits(poll(there, name, unseen, other), unseen)
        began = time.monotonic()
        step()
        released(there, name, holder)

        def state():
            answer = poll(there, name, seen, other)
            step()
            assert answer.status == 200, answer
            if unseen in tokens(here, tree, name):
                assert waits(answer, seen)
            return answer.json["state"] == "held"

        wait_until(state, SOON, "the second is granted")
        assert time.monotonic() - began >= KEPT - 0.1
        gone(here, name, unseen)

        # from here on the claim needs no polls
        wait_over(here.acquire(name, wait="%dms" % (1.5 * KEPT * 1000)), here)
        for gateway, worker in everywhere(*kept):
            assert holds(poll(gateway, name, seen, worker), seen)
        content = here.inspect(name, seen).json
        assert content["ttl_ms"] == 3600000
        assert content.get("expires_in_ms", 3600000) > 3000000
        released(there, name, seen)

    in_pace(kept, tree, name, attempt)


@places
def test_share_is_the_first_look(kept, tree, name, place):
    """The share is the first to see the grant, and begins the lease."""
    (here, one), (there, other) = elsewhere(kept, place)

    def attempt(step):
        holder = here.hold(name).token
        step()
        token = queued(queue(here, name, worker=one, ttl="1h"), name, 0)
        released(here, name, holder)
        claim = here.znode(name) + "/" + claim_of(token)
        wait_until(lambda: here.inspect(name).json["holders"][0].get("since"),
                   SOON)
        step()
        answer = wait_until(lambda: [r for r in [there.call(
            "PUT", lock_path(name), {"mode": "shared"}, {"Lock-Token": token},
            worker=other)] if r.status == 200], SOON)[0]
        step()
        assert answer.json["state"] == "held"
        tree.wait_gone(claim)
        wait_over(here.acquire(name, wait="%dms" % (1.5 * KEPT * 1000)), here)
        for gateway, worker in everywhere(*kept):
            assert poll(gateway, name, token, worker).json["state"] == "held"
        released(there, name, token)

    in_pace(kept, tree, name, attempt)


@places
def test_polls_renew_no_lease(kept, tree, name, place):
    """Once a client has seen the grant, polls do not extend the lease.

    If another gateway told the client, the gateway that keeps the lease learns
    so a moment later, at the end of the grace at the latest.
    """
    (here, one), (there, other) = elsewhere(kept, place)
    # ZooKeeper may stall meanwhile; a lease that polls renew has no end at all
    late = NOTICED + KEPT
    holder = there.hold(name).token
    token = queued(queue(here, name, worker=one, ttl="6s"), name, 0)
    began = time.monotonic()
    released(there, name, holder)
    wait_until(lambda: poll(there, name, token, other).json["state"]
               == "held", SOON)
    spots = everywhere(*kept)
    for gateway, worker in spots:
        # another gateway sees the grant for the first time
        assert poll(gateway, name, token, worker).json["state"] == "held"
    seen = time.monotonic()
    while True:
        before = time.monotonic()
        for gateway, worker in spots:
            answer = poll(gateway, name, token, worker)
            if answer.status != 200:
                break
            left = answer.json.get("expires_in_ms", 0) / 1000
            assert before + left <= seen + late + 6.5, "it was renewed"
        else:
            assert time.monotonic() - seen < 2 * SOON, "it does not end"
            continue
        break
    problem(answer, 410)
    assert time.monotonic() - began >= 5.9
    free(here, tree, name)


def test_cancelled(pair, tree, name):
    """Any worker cancels; the claims behind move up, and polls get 410."""
    here, there = pair
    spots = everywhere(here, there)
    holder = here.hold(name).token
    for gateway, worker in spots:
        token = queued(queue(here, name), name, 0)
        behind = queued(queue(there, name), name, 1)
        polls = []
        for other, at in spots:
            polls.append(other.connect(at).send(
                "GET", lock_path(name, token), {"wait": "40s"}))
        assert settled(polls, 0.1)
        assert gateway.release(name, token, worker).status == 204
        for asked in polls:
            problem(asked.response(SOON), 410)
        for other, at in spots:
            problem(poll(other, name, token, at), 410)
            assert waits(poll(other, name, behind, at), behind)
        problem(gateway.release(name, token, worker), 410)
        released(gateway, name, behind)
    assert holds(there.inspect(name, holder), holder)
    released(here, name, holder)


@places
def test_cancelled_while_its_request_waits(pair, tree, name, place):
    """The request that waits gets 410, and does not queue again."""
    here, there = pair
    worker, sibling = here.worker_pids()
    holder = here.hold(name).token
    key = new_key()
    waiter = begin(here, name, key, worker, wait="1m")
    tree.wait_claims(here.znode(name), 2)
    gateway, at = {"same": (here, worker), "sibling": (here, sibling),
                   "other": (there, None)}[place]
    token = queued(queue(gateway, name, key, at), name, 0)
    assert gateway.release(name, token, at).status == 204
    problem(waiter.response(SOON), 410)
    tree.wait_claims(here.znode(name), 1)
    released(here, name, holder)
    free(here, tree, name)


def test_wait_that_was_said_runs_out(pair, tree, name):
    """Polls do not extend the claim's wait; a claim without wait stays."""
    here, there = pair
    holder = here.hold(name, ttl="1h").token
    for gateway, worker in everywhere(here, there):
        patient = queue(gateway, name).token
        # a sibling may not know yet that the last claim was released
        wait_until(lambda: poll(gateway, name, patient).json["position"] == 0,
                   SOON)
        began = time.monotonic()
        token = gateway.in_reach(lambda: queue(
            gateway, name, worker=worker, wait="1s")).token
        problem(wait_until(lambda: [
            answer for answer in [poll(there, name, token)]
            if answer.status not in (200, 503)], SOON)[0], 410)
        assert time.monotonic() - began >= 0.99
        for other, at in everywhere(here, there):
            problem(poll(other, name, token, at), 410)
        assert waits(poll(here, name, patient), patient)
        released(there, name, patient)
    answer = queue(here, name, wait="0")
    if answer.status == 423:
        problem(answer, 423)
    else:
        problem(poll(there, name, queued(answer, name, 0)), 410)
    released(there, name, holder)


def test_no_wait_is_no_limit(start_gateway, tree):
    """Neither zk_lock_wait nor zk_lock_max_wait ends a claim that is polled."""
    gateway = start_gateway(location="zk_lock_grace 1m; zk_lock_wait 100ms; "
                                     "zk_lock_max_wait 300ms;")
    holder = gateway.hold("x").token
    token = queued(queue(gateway, "x"), "x", 0)
    began = time.monotonic()
    while time.monotonic() - began < 1.5:
        assert waits(poll(gateway, "x", token), token)
    released(gateway, "x", holder)
    assert holds(wait_until(lambda: [
        answer for answer in [poll(gateway, "x", token)]
        if answer.json["state"] == "held"], SOON)[0], token)
    released(gateway, "x", token)


def test_grant_as_the_wait_ends(pair, tree, name, dice):
    """A claim that a poll reported as held is held."""
    here, there = pair
    spots = everywhere(here, there)
    for i in range(2 * ROUNDS):
        holder = here.hold(name).token
        releaser = there.connect()
        gateway, worker = dice.choice(spots)

        def ask():
            tree.wait_claims(here.znode(name), 1)
            moments.append(time.monotonic() + 0.5)
            return queue(here, name, wait="500ms")

        moments = []
        token = queued(here.in_reach(ask), name, 0)
        at = moments[-1]
        asked = gateway.connect(worker)
        time.sleep(max(0.0, at - time.monotonic()
                       + dice.uniform(-0.01, 0.01)))
        releaser.send("DELETE", lock_path(name, holder))
        asked.send("GET", lock_path(name, token), {"wait": "2s"})
        answer = asked.response(SOON)
        assert releaser.response().status == 204
        if stalled(answer, gateway):
            answer = gateway.in_reach(lambda: poll(gateway, name, token,
                                                   worker))
        if answer.status == 200:
            assert holds(answer, token)
            for other, at in spots:
                assert holds(poll(other, name, token, at), token)
            only(here, tree, name, token)
            released(there, name, token)
        else:
            problem(answer, 410)
        free(here, tree, name)


def test_only_its_worker_grants(pair, tree, name):
    """A claim that comes first waits until its worker has granted it, whichever
    gateway is asked; then every gateway tells so.
    """
    here, there = pair
    one, sibling = here.worker_pids()
    holder = there.hold(name).token
    token = queued(queue(here, name, worker=one), name, 0)
    beside = here.connect(sibling)
    with here.frozen_worker(one):
        released(there, name, holder)
        assert waits(poll(there, name, token), token)
        assert waits(beside.request("GET", lock_path(name, token)), token)
        asked = there.connect()
        asked.send("GET", lock_path(name, token), {"wait": "1m"})
        settled([asked])
    assert holds(asked.response(SOON), token)
    assert holds(poll(here, name, token, sibling), token)
    released(there, name, token)
    free(here, tree, name)


# with a key, too

def test_queued_with_a_key(pair, tree, name):
    """A repeat of a 202 gets 202 until the grant, and then 200."""
    here, there = pair
    spots = everywhere(here, there)
    holder = here.hold(name).token
    key = new_key()
    token = queued(queue(here, name, key, ttl="1h"), name, 0)
    behind = queued(queue(there, name, ttl="1h"), name, 1)
    for gateway, worker in spots * 2:
        again = queue(gateway, name, key, worker, ttl="1h")
        assert queued(again, name, 0) == token
        tree.wait_claims(here.znode(name), 3)
        problem(queue(gateway, name, key, worker, ttl="2h"), 422)
        tree.wait_claims(here.znode(name), 3)
        assert waits(poll(gateway, name, token, worker), token)
    waiters = [begin(gateway, name, key, worker, wait="1m", ttl="1h")
               for gateway, worker in spots]
    assert settled(waiters)
    released(there, name, holder)
    for waiter in waiters:
        assert granted(waiter.response(SOON), name, 200) == token
    for gateway, worker in spots:
        again = queue(gateway, name, key, worker, ttl="1h")
        assert granted(again, name, 200) == token
        assert holds(poll(gateway, name, token, worker), token)
        assert waits(poll(gateway, name, behind, worker), behind)
    released(there, name, behind)
    released(there, name, token)
    free(here, tree, name)


def test_queued_with_a_key_at_once(pair, tree, name, dice):
    """Simultaneous first requests have the same place."""
    here, there = pair
    lines = [gateway.connect(worker)
             for gateway, worker in everywhere(here, there) * 2]
    holder = here.hold(name, ttl="1h").token
    for _ in range(ROUNDS):
        key = new_key()
        wait = dice.choice([{}, {"wait": "1m"}])
        dice.shuffle(lines)
        for connection in lines:
            connection.send("POST", lock_path(name), wait,
                            keyed(key, **ASYNC))
        told = {queued(connection.response(SOON), name, 0)
                for connection in lines}
        assert len(told) == 1, told
        token = told.pop()
        tree.wait_claims(here.znode(name), 2)
        assert tokens(here, tree, name)[1] == token
        released(dice.choice(pair), name, token)
        tree.wait_claims(here.znode(name), 1)
    released(there, name, holder)


def test_cancelled_before_its_gateway_looks(start_gateway, start_proxy,
                                            zookeeper, tree, name):
    """The gateway has not read the lock between the claim's create and the
    cancel.
    """
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         wait_sessions=False)
    there = start_gateway()
    blocker = there.hold(name)
    worker = here.worker_pids()[0]
    here.wait_served()
    assert here.inspect(name, worker=worker).status == 200
    key = new_key()
    connection = here.connect(worker)
    proxy.delay = 0.3
    connection.send("POST", lock_path(name), None, keyed(key, **ASYNC))
    mine = tree.wait_claims(here.znode(name), 2)[-1]
    # the claim's own gateway does not know of the create yet
    assert there.release(name, token_of(here.znode(name),
                                        mine)).status == 204
    connection.response(SOON)
    proxy.pass_on()
    for _ in range(2):
        # the worker's earlier reads are answered by then
        assert here.inspect(name, worker=worker).status == 200
    assert len(tree.claims(here.znode(name))) == 1
    released(there, name, blocker.token)
    free(here, tree, name)


def test_cancelled_elsewhere_before_a_release(start_gateway, start_proxy,
                                              zookeeper, tree, name):
    """The claim's worker knows only that the lock has changed, so the worker
    hands the lock to no claim yet.
    """
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         workers=1, wait_sessions=False)
    there = start_gateway()
    here.wait_served()
    holder = here.hold(name)
    waiting = here.connect()
    waiting.send("POST", lock_path(name), {"wait": "1m"}, keyed(new_key()))
    mine = tree.wait_claims(here.znode(name), 2)[-1]
    here.catch_up(name)
    lists = proxy.requests["getChildren2"]
    proxy.delay = 0.5
    assert there.release(name, token_of(here.znode(name),
                                        mine)).status == 204
    # the list is on the way to ZooKeeper, and the answer comes half a second
    # later
    wait_until(lambda: proxy.requests["getChildren2"] > lists)
    release = here.connect()
    release.send("DELETE", lock_path(name, holder.token))
    problem(waiting.response(SOON), 410)
    proxy.pass_on()
    assert release.response(SOON).status == 204
    free(here, tree, name)


@pytest.mark.parametrize("wait", [{}, {"wait": "1m"}])
def test_repeat_as_it_is_cancelled(pair, tree, name, dice, wait):
    """The repeat gets the cancelled claim's place, or a new place."""
    here, there = pair
    holder = here.hold(name, ttl="1h").token
    for _ in range(2 * ROUNDS):
        key = new_key()
        token = queued(queue(here, name, key, **wait), name, 0)
        one, other = dice.choice(pair).connect(), dice.choice(pair).connect()
        one.send("DELETE", lock_path(name, token))
        time.sleep(dice.uniform(0, 0.006))
        other.send("POST", lock_path(name), wait, keyed(key, **ASYNC))
        assert one.response(SOON).status == 204
        answer = other.response(SOON)
        assert answer.status == 202, answer
        if answer.token == token:
            tree.wait_claims(here.znode(name), 1)
        else:
            tree.wait_claims(here.znode(name), 2)
            assert tokens(here, tree, name)[1] == answer.token
            released(there, name, answer.token)
    released(there, name, holder)


@places
def test_repeats_of_a_queued_one_keep_the_place(kept, tree, name, place):
    (here, one), (there, other) = elsewhere(kept, place)

    def attempt(step):
        holder = here.hold(name, ttl="1h").token
        key = new_key()
        step()
        token = queued(queue(here, name, key, one), name, 0)
        began = time.monotonic()
        while time.monotonic() - began < 1.5 * KEPT:
            last = time.monotonic()
            again = queue(there, name, key, other)
            step()
            assert queued(again, name, 0) == token
            time.sleep(0.1)
        tree.wait_claims(here.znode(name), 1, SOON)
        assert time.monotonic() - last >= KEPT - 0.2
        released(there, name, holder)

    in_pace(kept, tree, name, attempt)


@pytest.mark.parametrize("byte", [0, 60, 300, -1])
def test_queued_answer_is_cut(pair, tree, name, cutter, byte):
    for i, gateway in enumerate(pair * 2):
        cutter.retarget(gateway.port)
        holder = pair[0].hold(name).token
        key = new_key()
        cut = cutter.cut(answer=byte)
        request = encode("POST", lock_path(name), keyed(key, **ASYNC), BODY)
        assert send_off(cutter, cut, request) is None
        again_at = dice_of(pair, i)
        answer = again_at.acquire(name, BODY, keyed(key, **ASYNC))
        token = queued(answer, name, 0)
        assert token.encode() in cut.lost
        tree.wait_claims(gateway.znode(name), 2)
        released(gateway, name, holder)
        assert holds(poll(again_at, name, token, wait="20"), token)
        only(gateway, tree, name, token)
        released(gateway, name, token)


# workers that come and go

@pytest.fixture
def start(start_gateway):
    def start(**options):
        options.setdefault("session_timeout", "60s")
        gateway = start_gateway(**options)
        return gateway
    return start


@pytest.mark.parametrize("key", [None, "key"])
def test_reload_keeps_the_place(start, tree, key):
    """The worker that has the claim stays while clients poll the claim."""
    here = start(location="zk_lock_grace 30s;")
    there = start(location="zk_lock_grace 30s;")
    holder = there.hold("x", ttl="1h").token
    line = [queued(queue(here, "x", key and key + str(i), worker), "x", i)
            for i, worker in enumerate(here.worker_pids())]
    behind = there.begin("x", wait="2m")
    tree.wait_claims(here.znode("x"), 4)
    for _ in range(2):
        here.reload()
        here.wait_served()
        for gateway, worker in everywhere(here, there):
            for i, token in enumerate(line):
                assert waits(poll(gateway, "x", token, worker), token, i)
        if key:
            for i, token in enumerate(line):
                for gateway, worker in everywhere(here, there):
                    again = queue(gateway, "x", key + str(i), worker)
                    assert queued(again, "x", i) == token
    while line:
        assert behind.silent_for(0)
        released(there, "x", holder)
        holder = line.pop(0)
        answer = poll(here, "x", holder, wait="20")
        assert holds(answer, holder)
        for i, token in enumerate(line):
            assert waits(poll(here, "x", token), token, i)
    released(here, "x", holder)
    released(here, "x", grant(behind.response(SOON), "x")["token"])
    tree.wait_claims(here.znode("x"), 0)
    wait_until(lambda: not here.worker_pids(leaving=True), SOON,
               "the old workers are gone")


def kill(gateway, worker):
    gateway.kill_worker(worker)
    wait_until(lambda: len(gateway.worker_pids()) == gateway.workers
               and worker not in gateway.worker_pids(), SOON, "a new worker")
    gateway._note_processes()
    gateway.wait_served()


@pytest.mark.parametrize("key", [None, "key"])
def test_worker_of_a_queued_claim_dies(start, tree, key):
    """A waiting claim is lost; a claim that a client saw as held stays held."""
    here = start(location="zk_lock_grace 1m;")
    there = start(location="zk_lock_grace 1m;")
    dead, other = here.worker_pids()
    holder = there.hold("x", ttl="1h").token
    lost = queued(queue(here, "x", key, dead), "x", 0)
    stays = queued(queue(here, "x", key and key + "2", other), "x", 1)
    kill(here, dead)
    tree.wait_claims(here.znode("x"), 2)
    for gateway, worker in everywhere(here, there):
        wait_until(lambda: poll(gateway, "x", lost, worker).status == 410,
                   SOON)
        assert waits(poll(gateway, "x", stays, worker), stays)
    if key:
        lost = queued(queue(here, "x", key), "x", 1)
        released(there, "x", lost)
    released(there, "x", holder)
    assert holds(poll(there, "x", stays, wait="20"), stays)

    kill(here, other)
    for gateway, worker in everywhere(here, there):
        answer = wait_until(lambda: [
            r for r in [poll(gateway, "x", stays, worker)]
            if r.status != 503], SOON)[0]
        assert holds(answer, stays)
    released(here, "x", stays)


def test_worker_of_a_keyed_claim_dies(start, tree):
    """A repeat that waits elsewhere begins anew; a held claim stays held."""
    here = start(location="zk_lock_grace 1m;")
    there = start(location="zk_lock_grace 1m;")
    dead, other = here.worker_pids()
    blocker = there.hold("x", ttl="1h").token
    first = begin(here, "x", "key", dead, wait="1m", ttl="1h")
    tree.wait_claims(here.znode("x"), 2)
    again = [begin(gateway, "x", "key", worker, wait="1m", ttl="1h")
             for gateway, worker in everywhere(here, there)
             if worker != dead]
    assert settled(again)
    kill(here, dead)
    assert first.closed_by_server(SOON)
    tree.wait_claims(here.znode("x"), 2)
    assert settled(again)
    released(there, "x", blocker)
    answers = [waiter.response(SOON) for waiter in again]
    token = alike(answers, "x")
    only(here, tree, "x", token)

    for worker in here.worker_pids():
        kill(here, worker)
    for gateway, worker in everywhere(here, there):
        answer = wait_until(lambda: [
            r for r in [acquire(gateway, "x", "key", worker, ttl="1h")]
            if r.status != 503], SOON)[0]
        assert granted(answer, "x", 200) == token
    only(here, tree, "x", token)
    released(there, "x", token)


# HTTP/2

def test_http2(pair, tree, name):
    """Repeats on the same connection, cancelled streams, and polls."""
    here, there = pair
    path = lock_path(name)
    one, other = here.connect_http2(), there.connect_http2()
    blocker = here.hold(name).token
    key = new_key()
    first = one.send("POST", path, {"wait": "1m"}, keyed(key))
    tree.wait_claims(here.znode(name), 2)
    mine = tokens(here, tree, name)[1]
    streams = [(c, c.send("POST", path, {"wait": "1m"}, keyed(key)))
               for c in (one, other, one, other)]
    assert one.silent_for(0.2) and other.silent_for(0)
    one.cancel(first)
    one.cancel(streams[0][1])
    token = queued(other.request("POST", path, None, ASYNC), name, 1)
    polling = one.send("GET", lock_path(name, token), {"wait": "40s"})
    released(there, name, blocker)
    for connection, stream in streams[1:]:
        answer = connection.response(stream, SOON)
        assert granted(answer, name, 200) == mine
    problem(one.request("POST", path, {"ttl": "77s"}, keyed(key)), 422)
    released(there, name, mine)
    assert holds(one.response(polling, SOON), token)
    released(here, name, token)
