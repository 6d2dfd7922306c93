"""A claim is held again by its token, and an exclusive claim becomes shared.

Held again: a POST with the token counts up, a DELETE counts down, and the lock
is free when the last hold is dropped.  All gateways and workers have the same
count, and the count outlives the workers.  Shared: a PUT with mode=shared lets
in the waiters for a shared lock, and no other waiter; the token, the fencing
token and the place in the queue stay.

ZK_LOCK_SEED is the seed of the random choices.
"""

import itertools
import time

import pytest

from lib.checks import gone, problem
from lib.client import Gone, lock_path
from lib.holders import wait_dead
from lib.process import wait_until
from lib.proxy import LOSE, TORN, UNANSWERED
from lib.queues import (
    ALONE, Line, MARKERS, MODES, SOON, chance, granted, kill, wait)
from lib.tokens import claim_of

USES = {mode: {"mode": mode} for mode in MODES + ("member",)}
USES["semaphore"] = {"mode": "semaphore", "permits": 2}


@pytest.fixture
def places(shared_pair):
    """All places; the first place is the worker of the claims."""
    return everywhere(shared_pair)


@pytest.fixture
def at(places):
    """The places as the worker of the claims sees them."""
    return dict(zip(("worker", "sibling", "gateway"), places))


@pytest.fixture
def cut_off(start_gateway, start_proxy, zookeeper):
    """A gateway behind a proxy, another gateway, and the proxy."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         wait_sessions=False)
    return here, start_gateway(session_timeout="60s"), proxy


def everywhere(gateways):
    return [(gateway, worker) for gateway in gateways
            for worker in gateway.worker_pids()]


class Claim:
    """A claim that is held; the calls come to any place."""

    numbers = itertools.count()

    def __init__(self, place, tree, name=None, **query):
        gateway, worker = place
        self.name = name or "h%d" % next(self.numbers)
        self.tree = tree
        self.znode = gateway.znode(self.name)
        self.mode = query.get("mode", "exclusive")
        response = gateway.hold(self.name, worker=worker, **query)
        self.token = response.token
        self.fencing = response.fencing
        assert "holds" not in response.json, response

    def begin(self, place, method, **query):
        """The connection of a call, to be answered."""
        gateway, worker = place
        connection = gateway.connect(worker)
        connection.send(method, lock_path(self.name), query,
                        {"Lock-Token": self.token})
        return connection

    def call(self, place, method, body=None, **query):
        gateway, worker = place
        return gateway.call(method, lock_path(self.name), query,
                            {"Lock-Token": self.token}, body, worker=worker)

    def hold(self, place, **query):
        return self.count(self.call(place, "POST", **query))

    def drop(self, place):
        return self.count(self.call(place, "DELETE"))

    def share(self, place):
        response, self.mode = self.call(place, "PUT", mode="shared"), "shared"
        self.count(response)
        assert response.headers["Lock-Token"] == self.token
        assert response.headers["Lock-Fencing-Token"] == str(self.fencing)

    def count(self, response):
        """How often the claim is held, as an answer says; 0 after a release."""
        if response.status == 204:
            assert response.body == b"" and "Lock-Token" not in (
                response.headers), response.headers.pairs
            return 0
        assert response.status == 200, response
        content = response.json
        assert content["name"] == self.name
        assert content["state"] == "held" and content["mode"] == self.mode
        assert content["token"] == self.token
        assert content["fencing_token"] == self.fencing
        assert content.get("holds", 2) > 1, content
        return content.get("holds", 1)

    def is_held(self, number, places):
        """Each place says that the claim is held so often."""
        for place in places:
            for method in ("GET", "PUT"):
                assert self.count(self.call(place, method)) == number, place

    def settled(self, place, method="GET", **query):
        """The first answer other than 503: the place may have just begun."""
        return wait_until(lambda: [response for response in [
            self.call(place, method, **query)] if response.status != 503],
            20, "an answer")[0]

    def agreed(self, number, places):
        """All places tell the same count, perhaps a moment later."""
        for place in places:
            wait_until(lambda: self.count(self.settled(place)) == number, SOON,
                       "%d holds at %s" % (number, place))
        self.is_held(number, places)

    def free(self, number, places):
        """The lock is free after so many drops, each at the next place."""
        for left, place in zip(reversed(range(number)),
                               itertools.cycle(places)):
            assert self.drop(place) == left
        self.released(places)

    def released(self, places):
        for gateway, worker in places:
            gone(gateway, self.name, self.token, worker)
        self.tree.wait_claims(self.znode, 0)


def status_of(connection):
    """The status of the answer, or None if there is no answer."""
    with connection:
        try:
            return connection.response().status
        except (OSError, Gone):
            return None


def answers(connections):
    """The answers of calls that were sent at once."""
    responses = []
    for connection in connections:
        with connection:
            responses.append(connection.response())
    return responses


# held again

def test_up_and_down(at, places, tree):
    """In any mode, wherever the holds and the drops come: the lock is free
    after the last drop.
    """
    for (up, down), use in zip(itertools.product(at.values(), repeat=2),
                               itertools.cycle(USES.values())):
        claim = Claim(at["worker"], tree, **use)
        for number in (2, 3):
            assert claim.hold(up) == number
            claim.is_held(number, places)
        assert claim.drop(down) == 2
        claim.is_held(2, places)
        claim.free(2, [down])
        claim.released(places)


@pytest.mark.parametrize("where", ["worker", "gateway"])
def test_hold_renews_the_lease(at, places, tree, where):
    """For its ttl, for a day at most, and without a ttl for the claim's.  The
    share keeps the lease.
    """
    claim = Claim(at["worker"], tree, ttl="20s")

    def times(place=at["worker"]):
        content = claim.call(place, "GET").json
        return content["ttl_ms"], content.get("expires_in_ms")

    for number, (arguments, ttl) in enumerate((
            ({"ttl": "30m"}, 1800000), ({"body": {"ttl": 600}}, 600000),
            ({"ttl": "100h"}, 24 * 3600000)), 2):
        response = claim.call(at[where], "POST", **arguments)
        assert claim.count(response) == number
        assert response.json["ttl_ms"] == ttl
        for place in (at["worker"], at["sibling"]):
            wait_until(lambda: times(place)[0] == ttl, SOON,
                       "the gateway that granted knows of it")
        assert ttl * 0.9 < times()[1] <= ttl
    wait_until(lambda: times()[1] < ttl)
    claim.share(at[where])
    assert times()[0] == ttl
    left = times()[1]
    assert claim.hold(at[where]) == 5
    wait_until(lambda: times()[1] > left, SOON, "the lease is renewed")
    assert times()[0] == ttl
    claim.free(5, [at[where]])


def test_hold_moves_the_end_of_the_lease(at, places, zookeeper, tree):
    """Later, and the waiters wait on; or sooner, and claims that are held three
    times end, also if shared.
    """
    later = [Claim(at["worker"], tree, ttl="3s") for _ in at]
    for claim, place in zip(later, at.values()):
        assert claim.hold(place, ttl="1h") == 2
    for where in ("worker", "sibling"):
        # the hold is newer than the renewal in the claim data
        claim = Claim(at["worker"], tree, ttl="1h")
        later.append(claim)
        renewed = claim.call(at["gateway"], "PUT", ttl="1s")
        assert renewed.json["ttl_ms"] == 1000
        assert claim.hold(at[where], ttl="1h") == 2
        wait_until(lambda: claim.znode + "/" + claim_of(claim.token)
                   in zookeeper.watched_paths(), SOON)
    sooner = [Claim(at["worker"], tree, ttl="1h") for _ in at]
    waiters = [at["gateway"][0].begin(claim.name) for claim in later + sooner]
    for claim in later + sooner:
        tree.wait_claims(claim.znode, 2)
    sooner[1].share(at["gateway"])
    for claim, place in zip(sooner, at.values()):
        assert claim.hold(place) == 2
        assert claim.hold(place, ttl="3s") == 3

    for claim, waiter in zip(sooner, waiters[len(later):]):
        # by now the former leases of the others would be over
        response = granted(waiter.response(SOON), claim.name, "exclusive")
        for gateway, worker in places:
            gone(gateway, claim.name, claim.token, worker)
            problem(claim.call((gateway, worker), "PUT", mode="shared"), 410)
        at["worker"][0].release(claim.name, response.token)
    for claim, waiter in zip(later, waiters):
        assert waiter.silent_for(0)
        waiter.close()
        claim.agreed(2, places)
        claim.free(2, places)


def test_claim_that_is_not_held(at, places, tree):
    """409 while the claim waits; 410 when the claim is gone, also while another
    claim holds the lock.
    """
    def refused(name, token, status):
        for gateway, worker in at.values():
            for method, query in (("POST", {}), ("PUT", {"mode": "shared"})):
                problem(gateway.call(method, lock_path(name), query,
                                     {"Lock-Token": token}, worker=worker),
                        status)

    claim = Claim(at["worker"], tree)
    gateway, worker = at["worker"]
    queued = gateway.acquire(claim.name, worker=worker,
                             headers={"Prefer": "respond-async"})
    assert queued.status == 202, queued
    before = tree.claims(claim.znode)
    refused(claim.name, queued.token, 409)
    assert tree.claims(claim.znode) == before
    claim.is_held(1, places)
    assert gateway.release(claim.name, queued.token).status == 204
    assert claim.drop(at["worker"]) == 0
    refused(claim.name, claim.token, 410)
    other = Claim(at["sibling"], tree, claim.name)
    refused(claim.name, claim.token, 410)
    other.is_held(1, places)
    assert other.drop(at["gateway"]) == 0


def test_calls_that_are_wrong(at, places, tree):
    """Neither the count changes, nor the mode."""
    claim = Claim(at["worker"], tree)
    other = Claim(at["worker"], tree, mode="shared")
    wrong = [("POST", *argument.split("=")) for argument in (
        "wait=1s", "mode=exclusive", "mode=shared", "owner=me", "permits=1",
        "data=1", "hold=lease", "hold=connection", "holds=2", "ttl=0",
        "ttl=soon")] + [("PUT", "mode", mode) for mode in (
            "exclusive", "write", "semaphore", "member", "", "readers")]
    for method, name, value in wrong:
        for each in (claim, other):
            problem(each.call(at["worker"], method, **{name: value}), 400)
            problem(each.call(at["gateway"], method, body={name: value}), 400)
    for body in (b"{", b"[]", b'{"ttl": 60, "ttl": 60}', b'{"ttl": null}'):
        problem(claim.call(at["worker"], "POST", body=body), 400)
    gateway, _ = at["worker"]
    for token in (claim.token[:-1] + "*", claim.token[:-4], other.token):
        problem(gateway.acquire(claim.name, headers={"Lock-Token": token}),
                404)
    assert gateway.call("POST", lock_path(claim.name, claim.token)
                        ).status == 405
    # shared in another way
    rest = [Claim(at["worker"], tree, **USES[use])
            for use in ("semaphore", "member")]
    for each, place in itertools.product(rest, places):
        problem(each.call(place, "PUT", mode="shared"), 409)
    for claim in (claim, other, *rest):
        claim.free(1, places)


# at the same time

@pytest.mark.parametrize("many", [1, 4])
def test_holds_and_drops_at_once(at, places, tree, many):
    """Each hold counts exactly once.  The last drop alone lets in a waiter; if
    several come at once, each may be told so, and none that the claim was lost.
    """
    dice, choice = chance(), places[:many]

    def at_once(*methods):
        methods = dice.sample(methods, len(methods))
        return answers([claim.begin(dice.choice(choice), method)
                        for method in methods])

    for _ in range(3):
        claim = Claim(at["worker"], tree)
        waiter = dice.choice(choice)[0].begin(claim.name)
        tree.wait_claims(claim.znode, 2)
        for methods, number in ((["POST"] * 8, 9),
                                (["POST"] * 4 + ["DELETE"] * 6, 7),
                                (["DELETE"] * 4, 3)):
            for answer in at_once(*methods):
                assert claim.count(answer) > 0
            claim.is_held(number, places)
        wait(waiter)
        statuses = {answer.status for answer in at_once(*["DELETE"] * 3)}
        assert 204 in statuses and statuses <= {200, 204}, statuses
        response = granted(waiter.response(SOON), claim.name, "exclusive")
        for gateway, worker in places:
            gone(gateway, claim.name, claim.token, worker)
        assert at["worker"][0].release(claim.name,
                                       response.token).status == 204


@pytest.mark.parametrize("calls, number", [
    ([("PUT", {"mode": "shared"})] * 7, 1), ([("POST", {})] * 3, 4),
    ([("PUT", {"ttl": "2h"})], 1), ([("POST", {"ttl": "2h"})] * 2, 3)])
def test_share_and_other_calls_at_once(places, tree, calls, number):
    """All calls count, and the claim is shared by one znode."""
    dice = chance()
    for mode in ALONE * 2:
        claim = Claim(places[0], tree, mode=mode)
        claim.mode = "shared"
        reader = places[-1][0].begin(claim.name, mode="shared")
        before = tree.wait_claims(claim.znode, 2)
        together = [("PUT", {"mode": "shared"})] + calls
        dice.shuffle(together)
        for answer in answers([
                claim.begin(dice.choice(places), method, **query)
                for method, query in together]):
            assert answer.status == 200, answer
            assert answer.json["fencing_token"] == claim.fencing
        if "ttl" in calls[0][1]:
            content = claim.call(places[0], "GET").json
            assert content["ttl_ms"] == 7200000, content
        response = granted(reader.response(SOON), claim.name, "shared")
        assert tree.claims(claim.znode) == [shared_name(before[0]), before[1]]
        places[0][0].release(claim.name, response.token)
        claim.is_held(number, places)
        claim.free(number, places)


# what the count and the share outlive

@pytest.mark.parametrize("how", ["worker dies", "reload", "stop"])
def test_outlives(start_gateway, tree, how):
    """The count and the share stay, wherever they come from, and all places
    know them and count on.
    """
    timeout, query = ("4s", {"durable": "1"}) if how == "stop" else ("60s", {})
    pair = [start_gateway(session_timeout=timeout) for _ in range(2)]
    places = everywhere(pair)
    claims = [Claim(places[0], tree, ttl="1h", **query) for _ in range(3)]
    for claim, place in zip(claims, places):
        assert claim.hold(place) == 2
        if claim is not claims[0]:
            claim.share(place)
        assert claim.hold(place) == 3

    here, there = pair
    if how == "worker dies":
        for dead in here.worker_pids():
            kill(here, dead)
    elif how == "reload":
        wait_dead(here.reload() | there.reload())
    else:
        here.stop()
        for claim in claims:
            claim.agreed(3, everywhere([there]))
        here.start()
        here.wait_served()
    places = everywhere(pair)
    for claim, place in zip(claims, places[1:]):
        claim.agreed(3, places)
        problem(there.acquire(claim.name, wait="0"), 423)
        reader = there.acquire(claim.name, mode="shared", wait="0")
        assert reader.status == (201 if claim.mode == "shared" else 423)
        if reader.status == 201:
            there.release(claim.name, reader.token)
        assert claim.hold(place) == 4
        claim.free(4, [place])


CALLS = {"POST": ({}, 1), "DELETE": ({}, -1), "PUT": ({"mode": "shared"}, 0)}


class Tried:
    """A claim that is held twice, a client that waits for the share, and a call
    that may fail.
    """

    def __init__(self, home, reads_at, tree, method):
        self.claim = Claim(home, tree, ttl="1h")
        assert self.claim.hold(home) == 2
        self.reader = reads_at.begin(self.claim.name, mode="shared", wait="1m")
        self.znodes = tree.wait_claims(self.claim.znode, 2)
        self.method = method
        self.query, self.change = CALLS[method]

    def judge(self, places, status):
        """The call has done its work if answered with 200; else it may have,
        as all places agree.  The share works then, and the claim has a single
        znode.
        """
        assert status in (200, 503, None)
        claim = self.claim
        wait_until(lambda: b'"want"' not in claim.tree.data(
            claim.znode + "/" + claim.tree.claims(claim.znode)[0]), 20,
            "nothing is wanted of the claim")
        content = claim.settled(places[0]).json
        number = content.get("holds", 1)
        done = {(2 + self.change,
                 "shared" if self.method == "PUT" else "exclusive")}
        if status != 200:
            done.add((2, "exclusive"))
        assert (number, content["mode"]) in done, content
        assert claim.settled(places[-1], "PUT", mode="shared").status == 200
        claim.mode = "shared"
        response = granted(self.reader.response(SOON), claim.name, "shared")
        assert claim.tree.claims(claim.znode) == [
            shared_name(self.znodes[0]), self.znodes[1]]
        claim.agreed(number, places)
        gateway, _ = places[-1]
        problem(gateway.acquire(claim.name, wait="0"), 423)
        assert gateway.release(claim.name, response.token).status == 204
        claim.free(number, places[:1])


def test_worker_dies_while_it_is_called(start_gateway, tree):
    """By its own clients, by a sibling, and by another gateway."""
    pair = here, there = [start_gateway(session_timeout="60s")
                          for _ in range(2)]
    for longest in (0.003, 0.01, 0.03):
        home, sibling, other, _ = everywhere(pair)
        tries = [(Tried(home, there, tree, method), place)
                 for place in (home, sibling, other) for method in CALLS]
        asking = [tried.claim.begin(place, tried.method, **tried.query)
                  for tried, place in tries]
        time.sleep(chance().random() * longest)
        kill(here, home[1])
        for (tried, _), connection in zip(tries, asking):
            tried.judge(everywhere(pair), status_of(connection))


@pytest.mark.parametrize("home, asked", [(0, 0), (0, 1), (1, 0)])
def test_connection_breaks_while_it_is_called(cut_off, tree, home, asked):
    """The connection of the first gateway to ZooKeeper."""
    here, there, proxy = cut_off
    places = everywhere([here, there])
    for how, method in itertools.product((LOSE, UNANSWERED, TORN),
                                         ("POST", "PUT")):
        tried = Tried(places[2 * home], there, tree, method)
        fault = proxy.fault(("setData", "multi"), how)
        response = tried.claim.call(places[2 * asked], method, **tried.query)
        fault.wait()
        tried.judge(places, response.status)


def test_handed_over_a_moment_ago(cut_off, tree):
    """A claim is held whose gateway still has to delete the claim ahead, which
    another gateway sees.  Some calls ask the claim's gateway, and get 503 if
    that is out of reach, because then nothing is sure.
    """
    here, there, proxy = cut_off
    home, _, other, _ = places = everywhere([here, there])
    worker, claim = home[1], Claim(home, tree, ttl="1h")
    waiter = here.begin(claim.name, worker=worker, wait="1m", ttl="1h")
    tree.wait_claims(claim.znode, 2)
    for _ in range(2):
        # the worker's earlier reads are answered by then
        assert here.inspect(claim.name, worker=worker).status == 200
    proxy.hole()
    release = claim.begin(home, "DELETE")
    response = waiter.response(SOON)
    claim.token, claim.fencing = response.token, response.fencing

    for method, query in (("GET", {}), ("PUT", {"ttl": "1h"})):
        assert claim.count(claim.call(other, method, **query)) == 1
    problem(claim.call(other, "PUT", mode="shared"), 503)
    asking = [claim.begin(other, "POST"),
              claim.begin(other, "PUT", mode="shared")]
    wait(*asking)
    proxy.pass_on()
    for answer in answers(asking):
        assert answer.status == 200 and answer.json["state"] == "held", answer
    assert release.response(SOON).status in (204, 503)
    claim.mode = "shared"
    claim.agreed(2, places)
    claim.free(2, places)


# shared from now on

def shared_name(claim):
    """The name of a claim's znode when the claim is shared."""
    for mode in ALONE:
        claim = claim.replace(MARKERS[mode], MARKERS["shared"])
    return claim


@pytest.mark.parametrize("mode, where, size", [
    ("exclusive", "worker", 5000), ("write", "sibling", 0),
    ("exclusive", "gateway", 100000)])
def test_share(at, places, tree, mode, where, size):
    """The waiters for a shared lock go on, up to the first other waiter, and
    the data of the lock stay.
    """
    line, place = Line(tree, itertools.cycle(places)), at[where]
    claim = Claim(places[0], tree, line.name, mode=mode)
    tree.client.set(claim.znode, b"x" * size)
    readers = [line.join("shared") for _ in range(2)]
    alone = [line.join(each) for each in ALONE]
    late = [line.join("shared") for _ in range(2)]
    wait(*readers, *alone, *late)
    before = tree.claims(line.znode)

    claim.share(place)
    readers = [line.granted(reader, "shared") for reader in readers]
    wait(*alone, *late)
    assert tree.claims(line.znode) == ([shared_name(before[0])] + before[1:])
    assert tree.client.get(claim.znode)[0] == b"x" * size
    line.taken(*MODES)

    line.release(*readers)
    wait(*alone, *late)
    claim.is_held(1, places)
    assert claim.drop(place) == 0
    for waiter, mode in zip(alone + late, ALONE + ("shared", "shared")):
        line.release(line.granted(waiter, mode))
    line.empty()


@pytest.mark.parametrize("mode", MODES)
def test_shared_claim_by_its_old_token(at, places, tree, mode):
    """The share keeps token and count, at each place; a repeat, or the share of
    a claim that was shared before, changes nothing.
    """
    for shares, place in itertools.product(at.values(), repeat=2):
        claim = Claim(at["worker"], tree, mode=mode)
        assert claim.hold(place) == 2
        claim.share(shares)
        claim.is_held(2, places)
        assert claim.hold(place) == 3
        claims = tree.claims(claim.znode)
        claim.share(place)
        assert tree.claims(claim.znode) == claims
        assert claim.call(place, "PUT", mode="read").status == 200
        claim.free(3, [place, shares])
        claim.released(places)


# foreign clients that wait

def test_curator_waits(at, tree, curator):
    """Two readers wait for the share, and the writer behind for the release."""
    claim = Claim(at["worker"], tree, mode="write")
    clients = [curator.client() for _ in range(3)]
    readers = [client.begin("read", claim.znode) for client in clients[:2]]
    tree.wait_claims(claim.znode, 3)
    writer = clients[2].begin("write", claim.znode)
    claims = tree.wait_claims(claim.znode, 4)
    assert readers[0].silent_for(0.2) and readers[1].silent_for(0)
    claim.share(at["gateway"])
    assert {reader.claim() for reader in readers} == set(claims[1:3])
    assert writer.silent_for(0.2)
    for client in clients[:2]:
        client.release()
    assert writer.silent_for(0.2)
    assert claim.drop(at["gateway"]) == 0
    assert writer.claim() == claims[3]
    clients[2].release()
    tree.wait_claims(claim.znode, 0)
