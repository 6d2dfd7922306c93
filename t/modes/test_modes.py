"""Readers share a lock, writers have it alone, and no claim jumps the queue.

A claim of mode exclusive has the layout of Curator's mutex; claims of modes
shared (or read) and write have the layouts of Curator's read-write lock.  The
gateway mixes all three: shared waits for any exclusive or write ahead, the
other two wait for every claim ahead.

Foreign claims on the same path are kazoo's and Curator's own locks, which are
told of each other's layouts where possible.  Where not possible, a test says
what happens.  ZK_LOCK_GRANTS is the number of grants of each of the loads.
"""

import asyncio
import itertools
import re
import time

import kazoo
import pytest

from lib.checks import gone, problem, wait_over
from lib.client import lock_path
from lib.curator import Curator
from lib.holders import wait_dead
from lib.queues import (
    ALONE, GRANTS, Kazoo, Line, MARKERS, MODES, SOON, Visitors, chance,
    granted, kill, patience, play, wait)
from lib.room import Room
from lib.sessions import stay_ephemeral
from lib.tokens import claim_of
from lib.zookeeper import sequence


GUID = "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71"


@pytest.fixture
def pair(start_gateway):
    return [start_gateway(session_timeout="60s") for _ in range(2)]


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


@pytest.fixture
def places(shared_pair):
    """(gateway, worker), endlessly: all workers of two gateways in turn."""
    one, other = pair = shared_pair
    return itertools.cycle([
        place for workers in zip(one.worker_pids(), other.worker_pids())
        for place in zip(pair, workers)])


@pytest.fixture
def line(tree, places):
    return Line(tree, places)


@pytest.fixture
def short_line(tree, shared_pair):
    """The same at a single gateway."""
    gateway = shared_pair[0]
    return Line(tree, itertools.cycle([(gateway, worker) for worker
                                       in gateway.worker_pids()]))


# what a mode is

@pytest.mark.parametrize("said, mode", [
    ("exclusive", "exclusive"), ("shared", "shared"), ("read", "shared"),
    ("write", "write"), (None, "exclusive")])
def test_mode_is_told(gateway, tree, said, mode):
    """The grant, a GET with the token and a GET of the lock tell the mode."""
    for query, body in (({"mode": said}, None), ({}, {"mode": said}),
                        ({"mode": "write"}, {"mode": said})):
        if said is None:
            query, body = {}, None
        holder = granted(gateway.hold("x", body, **query), "x", mode)
        claim, = tree.claims(gateway.znode("x"))
        assert re.match(r"_c_[0-9a-f-]{36}%s\d{10}$" % MARKERS[mode], claim)
        for worker in gateway.worker_pids():
            seen = gateway.inspect("x", holder.token, worker).json
            assert seen["mode"] == mode and seen["state"] == "held"
            assert gateway.renew("x", holder.token,
                                 worker=worker).json["mode"] == mode
            assert gateway.inspect("x", worker=worker).json["mode"] == mode
        assert gateway.release("x", holder.token).status == 204
        gone(gateway, "x", holder.token)


@pytest.mark.parametrize("mode", [
    "", "Shared", "EXCLUSIVE", "readers", "rea", "shared ", "write\0",
    "semaphores", "exclusive,shared", "a" * 300])
def test_mode_that_is_none(shared_gateway, tree, mode):
    for arguments in ({"mode": mode}, {"body": {"mode": mode}}):
        problem(shared_gateway.acquire("bad", **arguments), 400, "mode")
    assert tree.children(shared_gateway.znode("bad")) == []


@pytest.mark.parametrize("body", [
    b'{"mode": 1}', b'{"mode": null}', b'{"mode": ["shared"]}',
    b'{"mode": true}', b'{"mode": "read", "mode": "read"}',
    b'{"Mode": "shared"}', b'{"mode": "sha'])
def test_mode_that_is_no_text(shared_gateway, tree, body):
    response = shared_gateway.call(
        "POST", "/locks/bad", headers={"Content-Type": "application/json"},
        body=body)
    problem(response, 400)
    assert tree.children(shared_gateway.znode("bad")) == []


def test_mode_of_other_calls(shared_gateway):
    """A held claim can only change to shared; no other call takes a mode."""
    holder = shared_gateway.hold("x", mode="shared")
    problem(shared_gateway.renew("x", holder.token, mode="write"), 400)
    problem(shared_gateway.call("GET", "/locks/x/" + holder.token,
                                {"mode": "shared"}), 400)
    problem(shared_gateway.call("DELETE", "/locks/x/" + holder.token,
                                body={"mode": "shared"}), 400)
    assert shared_gateway.release("x", holder.token).status == 204


# which claims wait for which

@pytest.mark.parametrize("ahead", MODES)
@pytest.mark.parametrize("behind", MODES)
def test_two(short_line, ahead, behind):
    """Two readers share; all other pairs take turns."""
    for _ in range(2):
        first = short_line.take(ahead)
        if ahead == behind == "shared":
            second = short_line.take(behind, wait="0")
            short_line.release(first)
        else:
            short_line.taken(behind)
            waiter = short_line.join(behind)
            wait(waiter)
            short_line.release(first)
            second = short_line.granted(waiter, behind)
        short_line.release(second)
        short_line.empty()


@pytest.mark.parametrize("marker", [
    GUID + "-lock-", "lock-", "0123456789abcdef0123456789abcdef__lock__",
    GUID + "-__WRIT__", GUID + "-__READ__",
    "0123456789abcdef0123456789abcdef__rlock__"])
def test_beside_claims_made_by_hand(gateway, foreign, marker):
    """Claims of all layouts; a reader passes the claims that read."""
    lock = gateway.znode("x")
    reads = "__READ__" in marker or "__rlock__" in marker
    for worker in gateway.worker_pids():
        claim = foreign.make_claim(lock, before=marker)
        waiters = []
        if reads:
            for _ in range(2):
                waiters.append(granted(gateway.acquire(
                    "x", mode="shared", wait="0", worker=worker),
                    "x", "shared"))
        for mode in MODES[0 if not reads else 2:]:
            problem(gateway.acquire("x", mode=mode, wait="0", worker=worker),
                    423)
        waiter = gateway.begin("x", mode="shared" if not reads else "write",
                               worker=worker)
        foreign.wait_claims(lock, 2 + len(waiters))
        for reader in waiters:
            gateway.release("x", reader.token)
        wait(waiter)
        foreign.delete(claim)
        gateway.release("x", waiter.response(SOON).token)


def test_readers_share(line):
    readers = [line.take("shared", wait="0") for _ in range(12)]
    line.taken(*ALONE)
    assert len({reader.token for reader in readers}) == 12
    line.release(*readers[::2])
    line.taken(*ALONE)
    readers[::2] = [line.take("shared", wait="0") for _ in range(6)]
    line.release(*readers)
    line.release(line.take("write", wait="0"))
    line.empty()


@pytest.mark.parametrize("mode", ALONE)
def test_readers_behind_a_waiting_writer_wait(line, mode):
    """The readers wait although the holders are readers too."""
    holders = [line.take("shared") for _ in range(3)]
    writer = line.join(mode)
    readers = [line.join("shared") for _ in range(4)]
    line.taken("shared")
    for holder in (holders[1], holders[0], holders[2]):
        wait(writer, *readers)
        line.release(holder)
    alone = line.granted(writer, mode)
    wait(*readers)
    line.release(alone)
    line.release(*[line.granted(reader, "shared") for reader in readers])
    line.empty()


@pytest.mark.shows("first come, first served")
@pytest.mark.parametrize("order", ["RRWRRXRWWRRR", "WRWRWR", "XXRRRX",
                                   "RXRWRXRW"])
def test_whole_line(line, order):
    """Neighbouring readers are granted together, and no other claims are."""
    modes = {"R": "shared", "W": "write", "X": "exclusive"}
    holder = line.take("exclusive")
    queue = [(line.join(modes[letter]), modes[letter]) for letter in order]
    holders = [holder]
    for readers, group in itertools.groupby(
            queue, lambda entry: entry[1] == "shared"):
        group = list(group)
        for together in [group] if readers else [[one] for one in group]:
            assert all(waiter.silent_for(0) for waiter, _ in queue)
            line.release(*holders)
            holders = [line.granted(*entry) for entry in together]
            queue = queue[len(together):]
            if queue:
                wait(*(waiter for waiter, _ in queue))
    line.release(*holders)
    line.empty()


@pytest.mark.parametrize("mode", ALONE)
@pytest.mark.parametrize("how", ["close", "reset", "wait ends"])
def test_waiting_writer_leaves(line, mode, how):
    """Readers behind the writer join the readers that hold the lock."""
    holder = line.take("shared")
    writer = line.join(mode, wait="700ms" if how == "wait ends" else "1m")
    asked = line.gateway
    readers = [line.join("shared") for _ in range(4)]
    if how == "wait ends":
        wait_over(writer.response(SOON), asked)
    else:
        wait(*readers)
        getattr(writer, how)()
    readers = [line.granted(reader, "shared") for reader in readers]
    line.release(holder, *readers)
    line.empty()


def test_waiting_writer_is_deleted_by_hand(line, tree):
    """Readers at the other gateway go on at once.  Readers at the writer's
    gateway, which has not read the queue, go on when the holder leaves.  The
    writer queues again, behind the readers.
    """
    holder = line.take("shared")
    writer = line.join("write")
    claim = tree.claims(line.znode)[-1]
    readers = [line.join("shared") for _ in range(4)]
    wait(*readers)
    tree.delete(line.znode + "/" + claim)
    others = [line.granted(reader, "shared") for reader in readers[::2]]
    line.release(holder)
    line.fencing = 0
    line.release(*[line.granted(reader, "shared")
                   for reader in readers[1::2]])
    line.release(*others)
    line.release(line.granted(writer, "write"))
    line.empty()


def test_readers_are_released_elsewhere_at_once(pair, tree):
    """Both readers are released at the other gateway at once.  The readers'
    gateway has to learn that each reader is gone, because a writer waits there.
    """
    here, there = pair
    worker = here.worker_pids()[0]
    deadline = time.monotonic() + 4 * SOON
    for _ in range(30):
        readers = [here.hold("x", mode="shared", worker=worker)
                   for _ in range(2)]
        writer = here.begin("x", mode="write", worker=worker)
        tree.wait_claims(here.znode("x"), 3)
        releasing = [there.connect() for _ in readers]
        for connection, reader in zip(releasing, readers):
            connection.send("DELETE", lock_path("x", reader.token))
        for connection in releasing:
            assert connection.response(SOON).status == 204
        response = writer.response(max(0.01, deadline - time.monotonic()))
        here.release("x", granted(response, "x", "write").token)


def test_waiting_reader_leaves(line):
    """The leave grants no claim, because writers are ahead and behind."""
    holder = line.take("write")
    leavers = [line.join("shared") for _ in range(3)]
    writer = line.join("write")
    reader = line.join("shared")
    leavers[1].close()
    line.tree.wait_claims(line.znode, 5)
    wait(leavers[0], leavers[2], writer, reader)
    line.release(holder)
    stayed = [line.granted(leavers[i], "shared") for i in (0, 2)]
    wait(writer, reader)
    line.release(*stayed)
    alone = line.granted(writer, "write")
    wait(reader)
    line.release(alone)
    line.release(line.granted(reader, "shared"))
    line.empty()


# leases

@pytest.mark.parametrize("mode", MODES)
def test_lease_ends(line, mode):
    holder = line.take(mode, ttl="1500ms")
    writer = line.join("write")
    reader = line.join("shared")
    alone = line.granted(writer, "write")
    gone(line.gateway, line.name, holder.token)
    wait(reader)
    line.release(alone)
    line.release(line.granted(reader, "shared"))
    line.empty()


def test_lease_of_one_of_several_readers_ends(line):
    """The other readers stay, and a writer waits for their releases."""
    holders = [line.take("shared", ttl=ttl) for ttl in ("1m", "1500ms", "1m")]
    writer = line.join("write")
    line.tree.wait_claims(line.znode, 3)
    gone(line.gateway, line.name, holders[1].token)
    wait(writer)
    for holder in holders[::2]:
        seen = line.gateway.renew(line.name, holder.token)
        assert seen.status == 200 and seen.json["state"] == "held"
        line.release(holder)
    line.release(line.granted(writer, "write"))
    line.empty()


def test_leases_of_a_whole_line_end(line):
    """No client releases, and every client gets the lock."""
    modes = ("shared", "write", "shared", "shared", "exclusive", "shared")
    holder = line.take("exclusive")
    waiters = [line.join(mode, ttl="200ms") for mode in modes]
    line.release(holder)
    for waiter, mode in zip(waiters, modes):
        line.granted(waiter, mode)
    line.empty()


# looks

@pytest.mark.parametrize("mode", MODES)
def test_holders_are_shown(line, mode):
    number = 3 if mode == "shared" else 1
    holders = [line.take(mode, owner="h%d" % i) for i in range(number)]
    waiters = [line.join("write", owner="w"), line.join("shared", owner="r")]
    for _ in range(4):
        gateway, worker = next(line.places)
        seen = gateway.inspect(line.name, worker=worker).json
        assert seen["mode"] == mode
        assert [(holder["owner"], holder["fencing_token"])
                for holder in seen["holders"]] == [
                    ("h%d" % i, holder.fencing)
                    for i, holder in enumerate(holders)]
        assert [claim["owner"] for claim in seen["queue"]] == ["w", "r"]
        assert seen["queued"] == 2
        for tried in MODES:
            refusal = gateway.refusal(line.name, mode=tried, worker=worker)
            assert refusal["holder"]["owner"] == "h0"
            assert refusal["holder"]["fencing_token"] == holders[0].fencing
        for holder in holders:
            seen = gateway.inspect(line.name, holder.token, worker).json
            assert seen["state"] == "held" and seen["mode"] == mode
    line.release(*holders)
    alone = line.granted(waiters[0], "write")
    line.release(alone)
    line.release(line.granted(waiters[1], "shared"))
    line.empty()


def test_readers_by_hand_are_shown(gateway, foreign):
    """All foreign layouts that read, among the gateway's own readers."""
    lock = gateway.znode("x")
    foreign.make_claim(lock, before=GUID + "-__READ__", data=b"one")
    reader = gateway.hold("x", mode="shared", owner="two")
    foreign.make_claim(lock, data=b"three",
                       before="0123456789abcdef0123456789abcdef__rlock__")
    writer = foreign.make_claim(lock, data=b"four", layout="-__WRIT__")
    for worker in gateway.worker_pids():
        seen = gateway.inspect("x", worker=worker).json
        assert seen["mode"] == "shared"
        assert [claim["owner"] for claim in seen["holders"]] == [
            "one", "two", "three"]
        assert [claim["owner"] for claim in seen["queue"]] == ["four"]
    foreign.delete(writer)
    gateway.release("x", reader.token)


# what a lock survives

class Shared:
    """Readers that hold a lock, whatever becomes of their workers."""

    def __init__(self, line, number):
        self.line = line
        self.readers = [line.take("shared", ttl="1h") for _ in range(number)]
        self.znode = line.znode
        self.created = self._created()

    def _created(self):
        """The claims, and the first time at which each claim was made."""
        claims = self.line.tree.claims(self.znode)[:len(self.readers)]
        return [(claim, self.line.tree.made(self.znode + "/" + claim))
                for claim in claims]

    def check(self, gateway):
        """The claims are held and shared, and no writer gets the lock."""
        assert self._created() == self.created
        for worker in gateway.worker_pids():
            for reader in self.readers:
                for ask_for in (gateway.inspect, gateway.renew):
                    seen = ask_for(self.line.name, reader.token, worker=worker)
                    assert seen.status == 200, seen
                    assert seen.json["state"] == "held"
                    assert seen.json["mode"] == "shared"
                    assert seen.json["fencing_token"] == reader.fencing
            for mode in ALONE:
                problem(gateway.acquire(self.line.name, mode=mode, wait="0",
                                        worker=worker), 423)

    def join(self, gateway):
        """Other readers may share the lock, at every worker."""
        for worker in gateway.worker_pids():
            response = granted(
                gateway.acquire(self.line.name, mode="shared", wait="0",
                                worker=worker), self.line.name, "shared")
            assert response.fencing > self.readers[-1].fencing
            gateway.release(self.line.name, response.token)


@pytest.fixture
def sturdy(start_gateway, tree):
    """A gateway whose sessions outlive the test, and a queue there."""
    gateway = start_gateway(session_timeout="60s")
    return gateway, Line(tree, itertools.cycle([(gateway, None)]))


def test_reload(sturdy):
    """Held claims stay shared; waiters get their turns at an old worker."""
    gateway, line = sturdy
    shared = Shared(line, 6)
    writer = line.join("write", wait="1m")
    reader = line.join("shared", wait="1m")
    old = gateway.reload()
    gateway.wait_served()
    shared.check(gateway)
    wait(writer, reader)
    line.release(*shared.readers)
    alone = line.granted(writer, "write")
    wait(reader)
    line.release(alone)
    line.release(line.granted(reader, "shared"))
    wait_dead(old)
    line.empty()


def test_reload_twice(sturdy):
    gateway, line = sturdy
    shared = Shared(line, 6)
    for _ in range(2):
        wait_dead(gateway.reload())
        gateway.wait_served()
        shared.check(gateway)
        shared.join(gateway)
    line.release(*shared.readers)
    line.release(line.take("exclusive"))
    line.empty()


def test_crash(sturdy):
    """Each worker dies in turn, with its readers and a waiting writer.  The
    readers' claims stay shared, and the writer does not block any claim.
    """
    gateway, line = sturdy
    shared = Shared(line, 6)
    for dead in gateway.worker_pids():
        before = line.tree.claims(line.znode)
        writer = gateway.begin(line.name, worker=dead, mode="write", wait="1m")
        line.tree.wait_claims(line.znode, len(before) + 1)
        kill(gateway, dead)
        assert writer.closed_by_server(SOON)
        line.tree.wait_claims(line.znode,
                              lambda claims: claims == before)
        shared.check(gateway)
        shared.join(gateway)
    line.release(*shared.readers)
    line.release(line.take("write"))
    line.empty()


def test_crash_with_readers_behind_the_dead(sturdy):
    """The waiting writer dies with its worker; the readers behind go on."""
    gateway, line = sturdy
    dead, other = gateway.worker_pids()
    line.places = itertools.cycle([(gateway, other)])
    holder = line.take("shared", ttl="1h")
    line.places = itertools.cycle([(gateway, dead)])
    line.join("write", wait="1m")
    line.places = itertools.cycle([(gateway, other)])
    readers = [line.join("shared", wait="1m") for _ in range(3)]
    wait(*readers)
    kill(gateway, dead)
    readers = [line.granted(reader, "shared") for reader in readers]
    line.release(holder, *readers)
    line.empty()


# loads

def test_room_says_no():
    """The class that judges the loads notices errors."""
    wrong = [(("a", True, 0), ("b", True, 1)),
             (("a", True, 0), ("b", False, 1)),
             (("a", False, 0), ("b", True, 1))]
    for first, second in wrong:
        room = Room()
        room.enter(*first)
        with pytest.raises(AssertionError, match="b is granted while"):
            room.enter(*second)
    for first, second in ((True, True), (True, False), (False, True)):
        room = Room()
        room.enter("a", first, 5)
        room.leave("a")
        with pytest.raises(AssertionError, match="passed"):
            room.enter("b", second, 4)
    room = Room()
    room.enter("a", False, 5, 50)
    room.enter("b", False, 4, 51)
    with pytest.raises(AssertionError, match="a"):
        room.judge()
    room.leave("a")
    room.leave("b")
    with pytest.raises(AssertionError, match="fencing"):
        room.judge()


def test_load(pair, tree):
    """Two gateways, all modes; some clients hang up, die or are impatient."""
    znode = pair[0].znode("x")
    tree.make(znode)
    room = Room()
    visitors = Visitors(pair, room, chance())

    def enough():
        return visitors.total() >= GRANTS and all(visitors.ends.values())

    play(*(visitors.come(enough) for _ in range(16)),
         timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
    visitors.judge()
    room.judge()
    assert room.most > 1, "no reader ever shared"


def test_load_of_many_readers(pair, tree):
    """Readers come all the time, and still a writer gets its turn."""
    znode = pair[0].znode("x")
    tree.make(znode)
    room = Room()
    dice = chance()
    number = GRANTS // 20
    readers = Visitors(pair, room, dice, modes=["shared"], fates=["stays"])
    writers = Visitors(pair, room, dice, modes=ALONE, fates=["stays"])

    def enough():
        return writers.total() >= number

    play(*(readers.come(enough) for _ in range(12)), writers.come(enough),
         timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
    room.judge()
    assert room.most > 2 and readers.total() > number


# kazoo's locks


@pytest.mark.parametrize("mode", MODES)
def test_kazoo_waits_for_us(gateway, foreign, mode):
    for worker in gateway.worker_pids():
        for kind in ("write", "shared"):
            path = gateway.znode("x")
            holder = gateway.hold("x", mode=mode, worker=worker)
            other = Kazoo(foreign, path, kind).begin()
            foreign.wait_claims(path, 2)
            if mode == kind == "shared":
                assert other.got.wait(SOON)
            else:
                assert other.waits()
            gateway.release("x", holder.token)
            other.release()


@pytest.mark.parametrize("mode", MODES)
def test_we_wait_for_kazoo(gateway, foreign, mode):
    for worker in gateway.worker_pids():
        for kind in ("write", "shared"):
            path = gateway.znode("x")
            other = Kazoo(foreign, path, kind).take()
            waiter = gateway.begin("x", mode=mode, worker=worker)
            if mode != "shared" or kind != "shared":
                foreign.wait_claims(path, 2)
                wait(waiter)
                other.release()
            response = granted(waiter.response(SOON), "x", mode)
            if mode == kind == "shared":
                other.release()
            gateway.release("x", response.token)


def test_kazoo_writers_and_us_in_turn(gateway, foreign):
    """A queue of both kinds: the gateway's readers, kazoo's writers."""
    path = gateway.znode("x")
    holder = gateway.hold("x", mode="write")
    writers, readers = [], []
    for i in range(3):
        readers.append([gateway.begin("x", mode="shared") for _ in range(2)])
        foreign.wait_claims(path, 3 * i + 3)
        writers.append(Kazoo(foreign, path, "write").begin())
        foreign.wait_claims(path, 3 * i + 4)
    gateway.release("x", holder.token)
    while writers:
        writer, two = writers.pop(0), readers.pop(0)
        held = [granted(reader.response(SOON), "x", "shared")
                for reader in two]
        assert writer.waits()
        for reader in held:
            gateway.release("x", reader.token)
        assert writer.got.wait(SOON)
        assert all(reader.silent_for(0.1) for two in readers
                   for reader in two)
        writer.release()
    foreign.wait_claims(path, 0)


def test_kazoo_reader_and_a_writer_behind(gateway, foreign):
    """kazoo 2.8 has readers wait for writers behind, so such a pair would wait
    for ever.  The end of the reader's or the writer's wait breaks the tie.
    """
    path = gateway.znode("x")
    holder = gateway.hold("x", mode="write")
    reader = Kazoo(foreign, path, "shared").begin()
    foreign.wait_claims(path, 2)
    writer = gateway.begin("x", mode="write", wait="1s")
    # the wait may be over before this look
    foreign.wait_claims(path, lambda claims: (
        len(claims) == 3 or not writer.silent_for(0)))
    gateway.release("x", holder.token)
    if kazoo.__version__.startswith("2.8."):
        wait_over(writer.response(SOON), gateway)
    reader.release()


def test_kazoo_without_patterns(gateway, foreign):
    """kazoo then does not see the gateway's claims, and does not wait; the
    gateway sees kazoo's claims in any case.
    """
    path = gateway.znode("x")
    holder = gateway.hold("x", mode="write")
    blind = foreign.client.WriteLock(path, "kazoo")
    assert blind.acquire(timeout=SOON)
    gateway.release("x", holder.token)
    for mode in MODES:
        problem(gateway.acquire("x", mode=mode, wait="0"), 423)
    blind.release()
    gateway.release("x", gateway.hold("x", mode="write").token)


# Curator's locks

KINDS = {"mutex": "exclusive", "read": "shared", "write": "write"}


@pytest.fixture(scope="module")
def curator(class_path, zookeeper, tmp_path_factory):
    curator = Curator(class_path, zookeeper.address,
                      tmp_path_factory.mktemp("curator") / "log")
    yield curator.wait_ready()
    curator.close()


@pytest.mark.parametrize("ahead, behind", [
    ("mutex", "mutex"), ("read", "read"), ("read", "write"),
    ("write", "read"), ("write", "write")])
def test_curator_and_us(short_line, tree, curator, ahead, behind):
    """Either client comes first: the other client waits, or both share."""
    line, client = short_line, curator.client()
    path = line.znode
    for _ in range(2):
        holder = line.take(KINDS[ahead])
        other = client.begin(behind, path)
        tree.wait_claims(path, 2)
        if ahead != "read" or behind != "read":
            assert other.silent_for(0.2)
            line.release(holder)
            assert other.claim() == tree.claims(path)[0]
        else:
            assert other.claim() == tree.claims(path)[1]
            line.release(holder)

        waiter = line.join(KINDS[ahead])
        if ahead != "read" or behind != "read":
            wait(waiter)
            client.release()
            line.release(line.granted(waiter, KINDS[ahead]))
        else:
            line.release(line.granted(waiter, KINDS[ahead]))
            client.release()
    line.empty()


def test_curator_knows_who_takes_part(gateway, tree, curator):
    """Curator lists the gateway's claims and its own, in their order."""
    client, asking = curator.client(), curator.client()
    path = gateway.znode("m")
    holder = gateway.hold("m", {"owner": "me", "data": {"a": [1]}})
    waiting = client.begin("mutex", path)
    tree.wait_claims(path, 2)
    waiter = gateway.begin("m")
    claims = tree.wait_claims(path, 3)
    assert asking.participants("mutex", path) == claims
    assert claims[0] == claim_of(holder.token)
    gateway.release("m", holder.token)
    assert waiting.claim() == claims[1]
    client.release()
    gateway.release("m", waiter.response(SOON).token)
    tree.wait_claims(path, 0)

    path = gateway.znode("rw")
    readers = [gateway.hold("rw", {"mode": "read", "owner": "r%d" % i})
               for i in range(2)]
    assert client.acquire("read", path)
    writer = gateway.begin("rw", {"mode": "write", "owner": "w"})
    claims = tree.wait_claims(path, 4)
    assert asking.participants("read", path) == claims[:3]
    assert asking.participants("write", path) == claims[3:]
    client.release()
    for reader in readers:
        gateway.release("rw", reader.token)
    gateway.release("rw", writer.response(SOON).token)


def test_curator_shows_in_ours(gateway, tree, curator):
    clients = [curator.client() for _ in range(3)]
    path = gateway.znode("x")
    for client in clients[:2]:
        assert client.acquire("read", path)
    writing = clients[2].begin("write", path)
    tree.wait_claims(path, 3)
    for worker in gateway.worker_pids():
        seen = gateway.inspect("x", worker=worker).json
        assert seen["mode"] == "shared"
        assert len(seen["holders"]) == 2 and seen["queued"] == 1
    for client in clients[:2]:
        client.release()
    assert writing.claim()
    assert gateway.inspect("x").json["mode"] == "write"
    clients[2].release()


class Curators:
    """Clients of Curator that come to the same lock, as Visitors do."""

    def __init__(self, curator, path, room, dice, kinds):
        self.curator = curator
        self.path = path
        self.room = room
        self.dice = dice
        self.granted = dict.fromkeys(kinds, 0)
        self.refused = 0

    def total(self):
        return sum(self.granted.values())

    async def come(self, until):
        client = self.curator.client()
        while not until():
            kind = self.dice.choice(list(self.granted))
            seconds = self.dice.choice((120, 120, 120, 0.02))
            claim = await self.take(client, kind, seconds)
            if claim is None:
                assert seconds < 1, "%s was not granted" % kind
                self.refused += 1
                continue
            self.granted[kind] += 1
            self.room.enter(client.name, kind != "read", sequence(claim))
            await asyncio.sleep(self.dice.random() * 0.004)
            self.room.leave(client.name)
            await asyncio.wrap_future(client.begin_release())

    async def take(self, client, kind, seconds):
        waiting = client.begin(kind, self.path, seconds)
        await asyncio.wrap_future(waiting.future)
        return waiting.claim()


@pytest.mark.shows("no two holders, and no more than the mode allows")
@pytest.mark.parametrize("kinds", [["mutex"], ["read", "write"]])
def test_load_with_curator(pair, tree, curator, kinds):
    """Half of the clients use Curator, half the gateway; some clients die."""
    znode = pair[0].znode("x")
    tree.make(znode)
    room, dice = Room(), chance()
    ours = Visitors(pair, room, dice, modes=[KINDS[kind] for kind in kinds])
    theirs = Curators(curator, znode, room, dice, kinds)

    def shared(times):
        """Neither side has that many times the grants of the other side."""
        shares = [(ours.granted[KINDS[kind]], theirs.granted[kind])
                  for kind in kinds]
        return all(min(share) * times > max(share) for share in shares)

    # the one side may be slow to begin, but does not stay behind
    def enough():
        return (ours.total() + theirs.total() >= GRANTS
                and all(ours.ends.values()) and shared(5))

    play(*(ours.come(enough) for _ in range(8)),
         *(theirs.come(enough) for _ in range(8)), timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
    ours.judge()
    room.judge()
    assert shared(10), (ours.granted, theirs.granted)
    assert (room.most > 1) == ("read" in kinds)


@pytest.mark.parametrize("kind", ["mutex", "read", "write"])
def test_curator_dies(gateway, tree, zookeeper, class_path, tmp_path, kind):
    """The session ends, and with the session the held and waiting claims."""
    curator = Curator(class_path, zookeeper.address, tmp_path / "log",
                      session_timeout=4000).wait_ready()
    path = gateway.znode("x")
    assert curator.client().acquire(kind, path)
    curator.client().begin("mutex" if kind == "mutex" else "write", path)
    tree.wait_claims(path, 2)
    waiter = gateway.begin("x", mode=KINDS[kind])
    tree.wait_claims(path, 3)
    wait(waiter)
    curator.kill()
    response = granted(waiter.response(SOON), "x", KINDS[kind])
    gateway.release("x", response.token)
    tree.wait_claims(path, 0)


@pytest.mark.parametrize("kind", ["mutex", "read", "write"])
def test_gateway_dies(start_gateway, tree, curator, kind):
    """The gateway dies suddenly, as a machine does; Curator gets the lock."""
    gateway = start_gateway(session_timeout="4s")
    client, path = curator.client(), gateway.znode("x")
    stay_ephemeral(tree, path)
    gateway.hold("x", mode=KINDS[kind])
    gateway.begin("x", mode="exclusive" if kind == "mutex" else "write")
    tree.wait_claims(path, 2)
    waiting = client.begin(kind, path)
    tree.wait_claims(path, 3)
    assert waiting.silent_for(0.2)
    gateway.kill()
    claim = waiting.claim()
    assert [claim] == tree.wait_claims(path, 1)
    client.release()


def test_curators_own_mixture(gateway, tree, curator):
    """Curator's mutex ignores readers and writers, which ignore a mutex.
    Beside Curator's read-write lock use write, not exclusive.  The gateway sees
    all kinds.
    """
    path = gateway.znode("x")
    client = curator.client()
    for mode, blind in (("exclusive", ("read", "write")),
                        ("write", ("mutex",)), ("shared", ("mutex",))):
        for kind in blind:
            holder = gateway.hold("x", mode=mode)
            assert client.acquire(kind, path)
            gateway.release("x", holder.token)
            for tried in MODES:
                response = gateway.acquire("x", mode=tried, wait="0")
                if tried == "shared" and kind == "read":
                    granted(response, "x", tried)
                    gateway.release("x", response.token)
                else:
                    problem(response, 423)
            client.release()
            tree.wait_claims(path, 0)
