"""A claim is held again by its token, and an exclusive claim becomes shared.

Held again: a POST with the token counts up, a DELETE counts down, and the lock
is free when the last hold is dropped.  All gateways and workers have the same
count, and the count outlives the workers.  Shared: a PUT with mode=shared lets
in the waiters for a shared lock, and no other waiter; the token, the fencing
token and the place in the queue stay.

ZK_LOCK_SEED is the seed of all random choices, ZK_LOCK_GRANTS the number of
grants of the load.
"""

import asyncio
import itertools
import time

import pytest

from lib.checks import gone, may_be_over, problem, wait_over
from lib.client import Gone, ask, lock_path
from lib.curator import Curator
from lib.holders import wait_dead
from lib.process import wait_until
from lib.proxy import CUT, HALF, LOSE, TORN, UNANSWERED
from lib.queues import (
    ALONE, GRANTS, Kazoo, Line, MARKERS, MODES, SOON, Visitors, chance,
    granted, kill, patience, play, wait)
from lib.room import Room
from lib.sessions import stay_ephemeral
from lib.tokens import claim_of
from lib.zookeeper import sequence

BREAKS = (LOSE, HALF, CUT, UNANSWERED, TORN)
SHORT = "4s"        # the session timeout of a gateway that is killed
USES = {mode: {"mode": mode} for mode in MODES + ("member",)}
USES["semaphore"] = {"mode": "semaphore", "permits": 2}
PLACES = ("worker", "sibling", "gateway", "gateway's other")
KINDS = {"exclusive": "mutex", "write": "write"}


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


@pytest.fixture
def places(shared_pair):
    """All places; the first place is the worker of the claims."""
    return [(gateway, worker) for gateway in shared_pair
            for worker in gateway.worker_pids()]


@pytest.fixture
def at(places):
    return dict(zip(PLACES, places))


@pytest.fixture
def line(tree, places):
    return Line(tree, itertools.cycle(places))


@pytest.fixture
def sturdy(start_gateway):
    """Two gateways whose sessions outlive the test, and the workers' deaths."""
    return [start_gateway(session_timeout="60s") for _ in range(2)]


def everywhere(pair):
    return [(gateway, worker) for gateway in pair
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

    def call(self, place, method, body=None, **query):
        gateway, worker = place
        return gateway.call(method, lock_path(self.name), query,
                            {"Lock-Token": self.token}, body, worker=worker)

    def hold(self, place, body=None, **query):
        return self.count(self.call(place, "POST", body, **query))

    def drop(self, place):
        return self.count(self.call(place, "DELETE"))

    def share(self, place):
        response = self.call(place, "PUT", mode="shared")
        self.mode = "shared"
        self.count(response)
        return response

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

    def wish_is_over(self):
        """No remote request is waiting in the claim data."""
        claim, = self.tree.claims(self.znode)
        wait_until(lambda: b'"want"' not in self.tree.data(
            self.znode + "/" + claim), 20, "nothing is wanted of the claim")

    def released(self, places):
        for gateway, worker in places:
            gone(gateway, self.name, self.token, worker)
        self.tree.wait_claims(self.znode, 0)


def settled(claim, place, method="GET", **query):
    """The first answer other than 503, of a place that may have just begun."""
    return wait_until(lambda: [r for r in [claim.call(place, method, **query)]
                               if r.status != 503], 20, "an answer")[0]


def seen(claim, place):
    return claim.count(settled(claim, place))


def all_at_once(claim, calls):
    """Sends all calls, (place, method), at once; the answers in that order."""
    connections = [gateway.connect(worker) for (gateway, worker), _ in calls]
    for connection, (_, method) in zip(connections, calls):
        connection.send(method, lock_path(claim.name),
                        headers={"Lock-Token": claim.token})
    answers = [connection.response() for connection in connections]
    for connection in connections:
        connection.close()
    return answers


# held again

@pytest.mark.parametrize("up", PLACES)
@pytest.mark.parametrize("down", PLACES)
def test_up_and_down(at, places, tree, up, down):
    """A lock that is held three times is free after three drops."""
    claim = Claim(at["worker"], tree)
    claim.is_held(1, places)
    assert claim.hold(at[up]) == 2
    claim.is_held(2, places)
    assert claim.hold(at[up]) == 3
    assert claim.drop(at[down]) == 2
    claim.is_held(2, places)
    assert claim.drop(at[down]) == 1
    claim.is_held(1, places)
    assert claim.drop(at[down]) == 0
    claim.released(places)


def test_at_random_places(places, tree):
    """The test counts the holds too, and compares."""
    dice = chance()
    for _ in range(3):
        claim, number = Claim(dice.choice(places), tree), 1
        for step in range(40):
            less = dice.random() < (0.4 if step < 20 else 0.6)
            if less and (number > 1 or step > 35):
                number -= 1
                assert claim.drop(dice.choice(places)) == number
            else:
                number += 1
                assert claim.hold(dice.choice(places)) == number
            if number == 0:
                break
            claim.is_held(number, [dice.choice(places)])
        while number:
            number -= 1
            assert claim.drop(dice.choice(places)) == number
        claim.released(places)


@pytest.mark.parametrize("use", USES)
def test_any_mode(at, places, tree, use):
    for place in PLACES:
        claim = Claim(at["worker"], tree, **USES[use])
        assert claim.hold(at[place]) == 2
        claim.is_held(2, places)
        assert claim.drop(at[place]) == 1
        assert claim.drop(at[place]) == 0
        claim.released(places)


def test_of_several_holders_each_has_its_own(at, places, tree):
    """The claims of a shared lock have separate counts."""
    one = Claim(at["worker"], tree, mode="shared")
    other = Claim(at["gateway"], tree, one.name, mode="shared")
    assert one.hold(at["gateway"]) == 2
    assert other.hold(at["gateway"]) == 2
    assert one.hold(at["worker"]) == 3
    one.is_held(3, places)
    other.is_held(2, places)
    for claim, number in ((other, 2), (one, 3)):
        for left in reversed(range(number)):
            assert claim.drop(at["sibling"]) == left
    one.released(places)


@pytest.mark.parametrize("where", PLACES)
def test_waiters_wait_for_the_last_drop(at, tree, line, where):
    holder = line.take("exclusive")
    for _ in range(2):
        response = line.gateway.acquire(
            line.name, headers={"Lock-Token": holder.token})
        assert response.status == 200, response
    waiters = [line.join(mode) for mode in ("shared",) * 4 + ("write",)]
    gateway, worker = at[where]
    for left in (2, 1):
        response = gateway.release(line.name, holder.token, worker)
        assert response.status == 200, response
        assert response.json.get("holds", 1) == left
        wait(*waiters)
        line.taken("shared", "exclusive")
    assert gateway.release(line.name, holder.token, worker).status == 204
    line.release(*[line.granted(waiter, "shared")
                   for waiter in waiters[:4]])
    line.release(line.granted(waiters[4], "write"))
    line.empty()


@pytest.mark.parametrize("where", PLACES)
def test_lease_is_renewed(at, places, tree, where):
    """A hold renews for its ttl, or without a ttl for the claim's."""
    claim = Claim(at["worker"], tree, ttl="20s")
    for arguments, ttl in (({"ttl": "30m"}, 1800000), ({}, 1800000),
                           ({"body": {"ttl": 600}}, 600000),
                           ({"ttl": "100h"}, 24 * 3600000)):
        content = claim.call(at[where], "POST", **arguments).json
        assert content["ttl_ms"] == ttl, content
        assert ttl * 0.9 < content.get("expires_in_ms", ttl) <= ttl, content
        for place in (at["worker"], at["sibling"]):
            wait_until(lambda: claim.call(place, "GET").json["ttl_ms"] == ttl,
                       SOON, "the gateway that granted knows of it")
            content = claim.call(place, "GET").json
            assert ttl * 0.9 < content.get("expires_in_ms", ttl) <= ttl
    for left in (4, 3, 2, 1, 0):
        assert claim.drop(at[where]) == left
    claim.released(places)


@pytest.mark.parametrize("where", PLACES)
def test_lease_that_would_have_ended(at, tree, where):
    """A hold moves the end of the lease, and so keeps the waiters out."""
    claim = Claim(at["worker"], tree, ttl="3s")
    waiter = at["gateway"][0].begin(claim.name)
    assert claim.hold(at[where], ttl="1h") == 2
    tree.wait_claims(claim.znode, 2)
    assert waiter.silent_for(3.5)
    assert claim.drop(at[where]) == 1
    assert claim.drop(at[where]) == 0
    response = waiter.response(SOON)
    at["worker"][0].release(claim.name, response.token)


@pytest.mark.parametrize("where", ("worker", "sibling"))
def test_hold_after_a_shorter_renewal_elsewhere(at, zookeeper, tree, where):
    """The hold is newer than the renewal in the claim data, and so counts."""
    claim = Claim(at["worker"], tree, ttl="1h")
    assert claim.call(at["gateway"], "PUT", ttl="1s").json["ttl_ms"] == 1000
    assert claim.hold(at[where], ttl="1h") == 2
    znode = "%s/%s" % (claim.znode, claim_of(claim.token))
    wait_until(lambda: znode in zookeeper.watched_paths(), SOON)
    waiter = at["gateway"][0].begin(claim.name)
    assert waiter.silent_for(2.5)
    waiter.close()
    assert claim.drop(at[where]) == 1
    assert claim.drop(at[where]) == 0


@pytest.mark.parametrize("where", PLACES)
def test_end_of_the_lease_ends_all_holds(at, places, tree, where):
    claim = Claim(at["worker"], tree)
    for number in (2, 3, 4):
        assert claim.hold(at[where]) == number
    waiter = at["gateway"][0].begin(claim.name)
    tree.wait_claims(claim.znode, 2)
    assert claim.hold(at[where], ttl="2s") == 5
    response = granted(waiter.response(SOON), claim.name, "exclusive")
    for gateway, worker in places:
        gone(gateway, claim.name, claim.token, worker)
        problem(claim.call((gateway, worker), "POST"), 410)
    at["worker"][0].release(claim.name, response.token)


def test_claim_that_is_gone(at, places, tree):
    """The claim was released; later another claim holds the lock."""
    claim = Claim(at["worker"], tree)
    assert claim.drop(at["worker"]) == 0
    for place in places:
        problem(claim.call(place, "POST"), 410)
    other = Claim(at["sibling"], tree, claim.name)
    for place in places:
        problem(claim.call(place, "POST"), 410)
        problem(claim.call(place, "POST", ttl="1m"), 410)
    other.is_held(1, places)
    assert other.drop(at["gateway"]) == 0


@pytest.mark.parametrize("mode", MODES)
def test_claim_that_waits(at, places, tree, mode):
    holder = Claim(at["worker"], tree)
    gateway, worker = at["worker"]
    queued = gateway.acquire(holder.name, mode=mode, worker=worker,
                             headers={"Prefer": "respond-async"})
    assert queued.status == 202, queued
    for gateway, worker in places:
        for query in ({}, {"ttl": "1m"}):
            problem(gateway.acquire(
                holder.name, headers={"Lock-Token": queued.token},
                worker=worker, **query), 409)
    holder.is_held(1, places)
    assert gateway.release(holder.name, queued.token).status == 204
    assert holder.drop(at["worker"]) == 0


@pytest.mark.parametrize("arguments", [
    {"wait": "1s"}, {"mode": "exclusive"}, {"mode": "shared"},
    {"owner": "me"}, {"permits": "1"}, {"hold": "lease"}, {"data": "1"},
    {"hold": "connection"}, {"ttl": "0"}, {"ttl": "-1s"}, {"ttl": "soon"},
    {"holds": "2"}, {"ttl": "1m", "wait": "1s"}])
def test_other_arguments(at, places, tree, arguments):
    """In the query or in the body; the count does not change."""
    claim = Claim(at["worker"], tree)
    for place in (at["worker"], at["gateway"]):
        problem(claim.call(place, "POST", **arguments), 400)
        problem(claim.call(place, "POST", body=arguments), 400)
    claim.is_held(1, places)
    assert claim.drop(at["worker"]) == 0


def test_bodies_and_tokens_that_are_wrong(at, places, tree):
    claim = Claim(at["worker"], tree)
    other = Claim(at["worker"], tree)
    gateway, worker = at["worker"]
    for body in (b"{", b"[]", b'{"ttl": 60, "ttl": 60}', b'{"ttl": null}'):
        problem(claim.call(at["worker"], "POST", body=body), 400)
    for token in (claim.token[:-1] + "*", claim.token[:-4], other.token):
        problem(gateway.acquire(claim.name, headers={"Lock-Token": token}),
                404)
    assert gateway.call("POST", lock_path(claim.name, claim.token)
                        ).status == 405
    claim.is_held(1, places)
    for each in (claim, other):
        assert each.drop(at["gateway"]) == 0


# at the same time

@pytest.mark.parametrize("where", ["worker", "siblings", "gateway", "all"])
def test_sum_of_what_comes_at_once(at, places, tree, where):
    """Each hold counts exactly once; only the last drop frees the lock."""
    dice = chance()
    choice = {"worker": [at["worker"]], "gateway": [at["gateway"]],
              "siblings": [at["worker"], at["sibling"]],
              "all": places}[where]
    for _ in range(4):
        claim = Claim(at["worker"], tree)
        ups = [(dice.choice(choice), "POST") for _ in range(8)]
        for answer in all_at_once(claim, ups):
            assert claim.count(answer) > 1
        claim.is_held(9, places)

        mixed = [(dice.choice(choice), method)
                 for method in ["POST"] * 4 + ["DELETE"] * 6]
        dice.shuffle(mixed)
        for answer in all_at_once(claim, mixed):
            assert claim.count(answer) > 0
        claim.is_held(7, places)

        waiter = dice.choice(choice)[0].begin(claim.name)
        tree.wait_claims(claim.znode, 2)
        downs = [(dice.choice(choice), "DELETE") for _ in range(6)]
        for answer in all_at_once(claim, downs):
            assert claim.count(answer) > 0
        claim.is_held(1, places)
        assert waiter.silent_for(0)
        assert claim.drop(dice.choice(choice)) == 0
        response = waiter.response(SOON)
        assert at["worker"][0].release(claim.name,
                                       response.token).status == 204


@pytest.mark.parametrize("where", ["worker", "siblings", "gateway", "all"])
def test_last_drop_of_several_at_once(at, places, tree, where):
    """A drop frees the lock, and is told so.  Other drops may be told the same,
    because each was the last when it was answered; no drop is told that the
    claim was lost.
    """
    dice = chance()
    choice = {"worker": [at["worker"]], "gateway": [at["gateway"]],
              "siblings": [at["worker"], at["sibling"]],
              "all": places}[where]
    for _ in range(5):
        claim = Claim(at["worker"], tree)
        for number in (2, 3, 4):
            assert claim.hold(dice.choice(choice)) == number
        waiter = dice.choice(choice)[0].begin(claim.name)
        tree.wait_claims(claim.znode, 2)
        downs = [(dice.choice(choice), "DELETE") for _ in range(4)]
        statuses = [answer.status for answer in all_at_once(claim, downs)]
        assert set(statuses) <= {200, 204} and 204 in statuses, statuses
        response = waiter.response(SOON)
        for gateway, worker in places:
            gone(gateway, claim.name, claim.token, worker)
        at["worker"][0].release(claim.name, response.token)


# what the count outlives

@pytest.mark.parametrize("where", ["worker", "sibling", "gateway"])
def test_worker_dies(sturdy, tree, where):
    """The granting worker dies, and its heir counts on."""
    here, there = sturdy
    worker, sibling = here.worker_pids()
    place = {"worker": (here, worker), "sibling": (here, sibling),
             "gateway": (there, there.worker_pids()[0])}[where]
    claim = Claim((here, worker), tree)
    for number in (2, 3):
        assert claim.hold(place) == number
    kill(here, worker)
    places = everywhere(sturdy)
    for place in places:
        assert seen(claim, place) == 3
    claim.is_held(3, places)
    assert claim.hold(places[0]) == 4
    assert claim.hold(places[-1]) == 5
    for dead in here.worker_pids():
        kill(here, dead)
    places = everywhere(sturdy)
    for place in places:
        assert seen(claim, place) == 5
    for left in (4, 3, 2, 1, 0):
        assert claim.drop(places[left % len(places)]) == left
    claim.released(places)


@pytest.mark.parametrize("asked", ["worker", "sibling", "gateway"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_worker_dies_while_it_counts(sturdy, tree, asked, method):
    """Answered calls count; an unanswered call may count or not.  All places
    have the same count in any case.
    """
    dice = chance()
    here, there = sturdy
    change = 1 if method == "POST" else -1
    for _ in range(5):
        worker, sibling = here.worker_pids()
        place = {"worker": (here, worker), "sibling": (here, sibling),
                 "gateway": (there, there.worker_pids()[0])}[asked]
        claim = Claim((here, worker), tree)
        for number in (2, 3):
            assert claim.hold(place) == number
        connection = place[0].connect(place[1])
        connection.send(method, lock_path(claim.name),
                        headers={"Lock-Token": claim.token})
        time.sleep(dice.random() * 0.01)
        kill(here, worker)
        try:
            status = connection.response().status
        except (OSError, Gone):
            status = None
        assert status in (200, 503, None)
        places = everywhere(sturdy)
        claim.wish_is_over()
        number = seen(claim, places[0])
        assert number - 3 in ([change] if status == 200 else [0, change])
        agree(claim, places, number)
        free(claim, places, number)


def agree(claim, places, number):
    """All places tell the same count, perhaps a moment later."""
    for place in places:
        wait_until(lambda: seen(claim, place) == number, SOON,
                   "%d holds at %s" % (number, place))
    claim.is_held(number, places)


def free(claim, places, number):
    """The lock is free after so many drops."""
    turns = itertools.cycle(places)
    for left in reversed(range(number)):
        assert claim.drop(next(turns)) == left
    claim.released(places)


def test_reload(sturdy, tree):
    here, there = sturdy
    claim = Claim(everywhere(sturdy)[0], tree)
    assert claim.hold(everywhere(sturdy)[1]) == 2
    assert claim.hold(everywhere(sturdy)[2]) == 3
    old = here.reload()
    agree(claim, everywhere(sturdy), 3)
    wait_dead(old)
    agree(claim, everywhere(sturdy), 3)
    for number, place in enumerate(everywhere(sturdy), 4):
        assert claim.hold(place) == number
    wait_dead(there.reload())
    wait_dead(here.reload())
    agree(claim, everywhere(sturdy), 7)
    free(claim, everywhere(sturdy), 7)


@pytest.mark.parametrize("how", ["stop", "terminate", "kill"])
def test_restart(start_gateway, tree, how):
    """The claim and its count stay, at the other gateway too."""
    here = start_gateway(session_timeout=SHORT)
    there = start_gateway()
    claim = Claim((here, here.worker_pids()[0]), tree, durable="1")
    places = everywhere((here, there))
    for number, place in enumerate(places, 2):
        assert claim.hold(place) == number
    path, = tree.durables(claim.znode)
    wait = tree.wait_taken_over(path)
    getattr(here, how)()
    wait()
    agree(claim, everywhere((there,)), 5)
    here.start()
    places = everywhere((here, there))
    for place in places:
        assert seen(claim, place) == 5
    agree(claim, places, 5)
    assert claim.hold(places[0]) == 6
    free(claim, places, 6)


@pytest.mark.parametrize("asked", ["its own", "another"])
@pytest.mark.parametrize("cut", ["its own", "another"])
@pytest.mark.parametrize("how", BREAKS)
def test_connection_breaks_while_it_counts(start_gateway, start_proxy,
                                           zookeeper, tree, how, cut, asked):
    """The connection to ZooKeeper breaks at either gateway."""
    proxy = start_proxy(zookeeper)
    pair = {"its own": None, "another": None}
    for which in pair:
        servers = {"servers": proxy.address} if which == cut else {}
        pair[which] = start_gateway(workers=1, session_timeout="60s",
                                    wait_sessions=not servers, **servers)
    places = everywhere(pair.values())
    place = everywhere([pair[asked]])[0]
    claim = Claim(places[0], tree, ttl="1h")
    for number in (2, 3, 4):
        assert claim.hold(places[number % 2]) == number
    for method, change in (("POST", 1), ("DELETE", -1)) * 3:
        fault = proxy.fault(("setData", "multi"), how)
        response = claim.call(place, method)
        assert response.status in (200, 503), response
        if fault in proxy.faults:
            assert cut != asked
            proxy.faults.remove(fault)
        else:
            fault.wait()
        told = response.status == 200
        if told:
            assert claim.count(response) == number + change
        claim.wish_is_over()
        after = seen(claim, places[0])
        assert after - number in ([change] if told else [0, change])
        agree(claim, places, after)
        number = after
    free(claim, places, number)


# shared from now on

def shared_name(claim):
    """The name of a claim's znode when the claim is shared."""
    for mode in ALONE:
        claim = claim.replace(MARKERS[mode], MARKERS["shared"])
    return claim


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("mode", ALONE)
def test_share(at, places, tree, line, mode, where):
    """The waiters for a shared lock go on, up to the first other waiter."""
    place = at[where]
    claim = Claim(places[0], tree, line.name, mode=mode)
    readers = [line.join("shared") for _ in places]
    alone = [line.join(each) for each in ALONE]
    late = [line.join("shared") for _ in places]
    wait(*readers, *alone, *late)
    before = tree.claims(line.znode)

    claim.share(place)
    readers = [line.granted(reader, "shared") for reader in readers]
    wait(*alone, *late)
    assert tree.claims(line.znode) == ([shared_name(before[0])] + before[1:])
    claim.is_held(1, places)
    line.taken(*MODES)

    line.release(*readers)
    wait(*alone, *late)
    claim.is_held(1, places)
    assert claim.drop(place) == 0
    for waiter, mode in zip(alone, ALONE):
        response = line.granted(waiter, mode)
        wait(*late)
        line.release(response)
    line.release(*[line.granted(reader, "shared") for reader in late])
    line.empty()


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("size", [0, 100, 1664, 5000])
def test_data_of_the_lock_itself(at, places, tree, where, size):
    """The data belong to the lock's users; the share keeps all of the data."""
    claim = Claim(at["worker"], tree)
    data = b"x" * size
    tree.client.set(claim.znode, data)
    claim.share(at[where])
    assert tree.client.get(claim.znode)[0] == data
    reader = at["gateway"][0].acquire(claim.name, mode="shared", wait="5s")
    granted(reader, claim.name, "shared")
    assert at["gateway"][0].release(claim.name, reader.token).status == 204
    assert claim.drop(at[where]) == 0
    claim.released(places)
    assert tree.client.get(claim.znode)[0] == data


@pytest.mark.parametrize("size", [100, 5000, 100000])
def test_share_is_no_end_to_another_gateway(at, places, tree, size):
    """A waiter for an exclusive lock at another gateway waits on."""
    claim = Claim(at["worker"], tree)
    tree.client.set(claim.znode, b"x" * size)
    gateway, worker = at["gateway"]
    waiter = gateway.begin(claim.name, worker=worker, wait="1m")
    tree.wait_claims(claim.znode, 2)
    wait_until(lambda: gateway.inspect(claim.name,
                                       worker=worker).json["queued"] == 1)
    claim.share(at["worker"])
    assert waiter.silent_for(0.5)
    assert claim.drop(at["worker"]) == 0
    second = waiter.response(SOON)
    assert second.status == 201
    assert gateway.release(claim.name, second.token).status == 204
    claim.released(places)


def test_wish_under_a_mark(at, tree, foreign):
    """A hold that a Curator client has overwritten is not told as counted."""
    claim = Claim(at["worker"], tree)
    gateway, worker = at["gateway"]
    znode, = tree.claims(claim.znode)
    path = claim.znode + "/" + znode
    owner = at["worker"][0]
    with owner.frozen_worker(at["worker"][1]):
        asker = gateway.connect(worker)
        asker.send("POST", lock_path(claim.name),
                   headers={"Lock-Token": claim.token})
        wait_until(lambda: b'"want":"hold' in tree.data(path), 10.0,
                   "the wish is written")
        foreign.client.set(path, b"__REVOKE__")
    problem(asker.response(20), 503)
    wait_until(lambda: tree.data(path) != b"__REVOKE__")
    assert b'"mended":' in tree.data(path)
    assert claim.drop(at["worker"]) == 0
    tree.wait_claims(claim.znode, 0)


def test_release_under_a_mark(at, tree, foreign):
    """A release of a claim whose holds a Curator client has overwritten."""
    claim = Claim(at["worker"], tree)
    gateway, worker = at["gateway"]
    znode, = tree.claims(claim.znode)
    path = claim.znode + "/" + znode
    owner = at["worker"][0]
    assert claim.hold(at["worker"]) == 2
    with owner.frozen_worker(at["worker"][1]):
        foreign.client.set(path, b"__REVOKE__")
        asker = gateway.connect(worker)
        asker.send("DELETE", lock_path(claim.name),
                   headers={"Lock-Token": claim.token})
        # ZooKeeper answers this behind what the release has read
        assert gateway.inspect(claim.name, worker=worker).status == 200
        assert tree.claims(claim.znode) == [znode]
    assert claim.count(asker.response(20)) == 1
    assert b'"mended":' in tree.data(path)
    assert claim.drop(at["worker"]) == 0
    tree.wait_claims(claim.znode, 0)


@pytest.mark.parametrize("mode", ALONE)
def test_shared_claim_by_its_old_token(at, places, tree, mode):
    """The old token inspects, holds again and releases, at each place."""
    for shares, place in itertools.product(at.values(), places):
        claim = Claim(at["worker"], tree, mode=mode)
        response = claim.share(shares)
        assert response.headers["Lock-Token"] == claim.token
        assert response.headers["Lock-Fencing-Token"] == str(claim.fencing)
        claim.is_held(1, places)
        holders = place[0].inspect(claim.name, worker=place[1]).json
        assert holders["mode"] == "shared" and holders["queued"] == 0
        assert holders["holders"][0]["fencing_token"] == claim.fencing
        assert claim.hold(place) == 2
        assert claim.drop(place) == 1
        claim.share(place)
        assert claim.drop(place) == 0
        claim.released(places)


@pytest.mark.parametrize("where", PLACES)
def test_lease_of_a_claim_that_is_shared(at, places, tree, where):
    """The share keeps the lease; a renewal works, and the lease ends."""
    claim = Claim(at["worker"], tree, ttl="30m")
    claim.share(at[where])
    assert claim.call(at[where], "GET").json["ttl_ms"] == 1800000
    waiter = at["gateway"][0].begin(claim.name)
    tree.wait_claims(claim.znode, 2)
    response = claim.call(at[where], "PUT", ttl="1500ms")
    assert response.json["ttl_ms"] == 1500
    # the claim's gateway learns of a foreign renewal when the claim is durable
    response = granted(waiter.response(2 * SOON), claim.name, "exclusive")
    assert response.fencing > claim.fencing
    for gateway, worker in places:
        gone(gateway, claim.name, claim.token, worker)
        problem(claim.call((gateway, worker), "PUT", mode="shared"), 410)
    at["worker"][0].release(claim.name, response.token)


def test_lease_that_was_short_before(at, places, tree):
    """The share, at any place, does not renew the lease."""
    for place in places:
        claim = Claim(at["worker"], tree, ttl="3s")
        claim.share(place)
        tree.wait_claims(claim.znode, 0)
        for gateway, worker in places:
            gone(gateway, claim.name, claim.token, worker)


@pytest.mark.parametrize("first", PLACES)
@pytest.mark.parametrize("then", PLACES)
def test_held_more_than_once(at, places, tree, first, then):
    """The share keeps the count."""
    claim = Claim(at["worker"], tree)
    assert claim.hold(at[first]) == 2
    assert claim.hold(at[then]) == 3
    claim.share(at[first])
    claim.is_held(3, places)
    assert claim.hold(at[then]) == 4
    reader = at["gateway"][0].acquire(claim.name, mode="shared", wait="0")
    granted(reader, claim.name, "shared")
    at["gateway"][0].release(claim.name, reader.token)
    for left in (3, 2, 1, 0):
        assert claim.drop(at[then]) == left
    claim.released(places)


def test_share_what_is_shared(at, places, tree):
    """A repeated share changes nothing, at any place."""
    claim = Claim(at["worker"], tree, mode="shared")
    znode, = tree.claims(claim.znode)
    created = tree.stat(claim.znode + "/" + znode).czxid
    for place in places * 2:
        claim.share(place)
    assert tree.claims(claim.znode) == [znode]
    stat = tree.stat(claim.znode + "/" + znode)
    # a lease that has become durable has another znode of the same name
    assert stat.czxid == created or not stat.ephemeralOwner
    assert claim.call(places[0], "PUT", mode="read").status == 200
    assert claim.drop(places[0]) == 0


@pytest.mark.parametrize("mode", ALONE)
def test_share_at_many_places_at_once(at, places, tree, mode):
    for _ in range(5):
        claim = Claim(at["worker"], tree, mode=mode)
        claim.mode = "shared"
        reader = at["gateway"][0].begin(claim.name, mode="shared")
        before = tree.wait_claims(claim.znode, 2)
        connections = [gateway.connect(worker)
                       for gateway, worker in places * 2]
        for connection in connections:
            connection.send("PUT", lock_path(claim.name), {"mode": "shared"},
                            {"Lock-Token": claim.token})
        for connection in connections:
            assert claim.count(connection.response()) == 1
        assert tree.claims(claim.znode) == [shared_name(before[0]),
                                            before[1]]
        response = granted(reader.response(SOON), claim.name, "shared")
        claim.is_held(1, places)
        at["worker"][0].release(claim.name, response.token)
        assert claim.drop(at["gateway"]) == 0
        claim.released(places)


@pytest.mark.parametrize("calls, number", [
    ([("POST", {})] * 3, 4), ([("PUT", {"ttl": "2h"})], 1),
    ([("POST", {"ttl": "2h"}), ("POST", {"ttl": "2h"})], 3)])
def test_share_hold_and_renew_at_once(places, tree, calls, number):
    """Share, hold and renewal all count, at any place."""
    dice = chance()
    for _ in range(12):
        claim = Claim(places[0], tree)
        claim.mode = "shared"
        together = [("PUT", {"mode": "shared"})] + calls
        dice.shuffle(together)
        connections = []
        for _ in together:
            gateway, worker = dice.choice(places)
            connections.append(gateway.connect(worker))
        for connection, (method, query) in zip(connections, together):
            connection.send(method, lock_path(claim.name), query,
                            {"Lock-Token": claim.token})
        for connection in connections:
            response = connection.response()
            assert response.status == 200, response
            assert response.json["fencing_token"] == claim.fencing
            connection.close()
        content = claim.call(places[0], "GET").json
        if "ttl" in calls[0][1]:
            assert content["ttl_ms"] == 7200000, content
        claim.is_held(number, places)
        free(claim, places, number)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mode", ["exclusive", "write", "semaphore",
                                  "member", "", "readers"])
def test_other_modes(at, places, tree, use, mode):
    claim = Claim(at["worker"], tree, **USES[use])
    for place in (at["worker"], at["gateway"]):
        problem(claim.call(place, "PUT", mode=mode), 400)
        problem(claim.call(place, "PUT", body={"mode": mode}), 400)
    claim.is_held(1, places)
    assert claim.drop(at["worker"]) == 0


@pytest.mark.parametrize("use", ["semaphore", "member"])
def test_share_what_is_shared_otherwise(at, places, tree, use):
    claim = Claim(at["worker"], tree, **USES[use])
    for place in places:
        problem(claim.call(place, "PUT", mode="shared"), 409)
    claim.is_held(1, places)
    assert claim.drop(at["worker"]) == 0


def test_share_what_is_not_held(at, places, tree):
    """409 for a claim that waits, 410 for a claim that is gone."""
    holder = Claim(at["worker"], tree)
    gateway, worker = at["worker"]
    queued = gateway.acquire(holder.name, worker=worker,
                             headers={"Prefer": "respond-async"})
    assert queued.status == 202, queued
    before = tree.claims(holder.znode)
    for gateway, worker in places:
        problem(gateway.renew(holder.name, queued.token, worker=worker,
                              mode="shared"), 409)
    assert tree.claims(holder.znode) == before
    assert gateway.release(holder.name, queued.token).status == 204
    assert holder.drop(at["worker"]) == 0
    for place in places:
        problem(holder.call(place, "PUT", mode="shared"), 410)


# foreign clients that wait

@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("mode", ALONE)
def test_kazoo_reads(at, tree, foreign, mode, where):
    """No writer waits behind, which kazoo's reader would wait for too."""
    claim = Claim(at["worker"], tree, mode=mode)
    reader = Kazoo(foreign, claim.znode, "shared").begin()
    tree.wait_claims(claim.znode, 2)
    assert reader.waits()
    claim.share(at[where])
    assert reader.got.wait(SOON)
    reader.release()
    assert claim.drop(at[where]) == 0


@pytest.mark.parametrize("where", PLACES)
def test_kazoo_writes(at, tree, foreign, where):
    """kazoo's writer waits until the lock is released."""
    claim = Claim(at["worker"], tree)
    writer = Kazoo(foreign, claim.znode, "write").begin()
    tree.wait_claims(claim.znode, 2)
    claim.share(at[where])
    assert writer.waits()
    assert claim.drop(at[where]) == 0
    assert writer.got.wait(SOON)
    writer.release()


@pytest.fixture(scope="module")
def curator(class_path, zookeeper, tmp_path_factory):
    curator = Curator(class_path, zookeeper.address,
                      tmp_path_factory.mktemp("curator") / "log")
    yield curator.wait_ready()
    curator.close()


@pytest.mark.parametrize("where", PLACES)
def test_curator_reads(at, tree, curator, where):
    """Two readers go on, and the writer behind the readers waits on."""
    claim = Claim(at["worker"], tree, mode="write")
    clients = [curator.client() for _ in range(3)]
    reading = [client.begin("read", claim.znode) for client in clients[:2]]
    tree.wait_claims(claim.znode, 3)
    writing = clients[2].begin("write", claim.znode)
    claims = tree.wait_claims(claim.znode, 4)
    assert reading[0].silent_for(0.2) and reading[1].silent_for(0)
    claim.share(at[where])
    assert {each.claim() for each in reading} == set(claims[1:3])
    assert writing.silent_for(0.2)
    for client in clients[:2]:
        client.release()
    assert writing.silent_for(0.2)
    assert claim.drop(at[where]) == 0
    assert writing.claim() == claims[3]
    clients[2].release()
    tree.wait_claims(claim.znode, 0)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("mode", ALONE)
def test_curator_waits_behind(at, tree, curator, mode, where):
    """A writer behind an exclusive claim, or behind a write claim."""
    claim, client = Claim(at["worker"], tree, mode=mode), curator.client()
    waiting = client.begin("write", claim.znode)
    claims = tree.wait_claims(claim.znode, 2)
    if mode == "exclusive":
        # the writer ignores a mutex, but sees the reader that the mutex becomes
        assert waiting.claim() == claims[1]
        client.release()
        claim.share(at[where])
        waiting = client.begin("write", claim.znode)
        claims = tree.wait_claims(claim.znode, 2)
    else:
        claim.share(at[where])
    assert waiting.silent_for(0.2)
    assert claim.drop(at[where]) == 0
    assert waiting.claim() == claims[1]
    client.release()
    tree.wait_claims(claim.znode, 0)


# a share and a fault at once

def judge_share(claim, places, reader, sure):
    """After a break: the claim is shared if an answer said so; else the claim
    is as before, or shared.  A share and a release still work, and the claim
    has a single znode.
    """
    own, behind = claim_of(claim.token), claim.tree.claims(claim.znode)[-1]
    response = settled(claim, places[0])
    assert response.status == 200, response
    content = response.json
    modes = ["shared"] if sure else ["exclusive", "shared"]
    assert content["mode"] in modes and content["state"] == "held", content
    assert settled(claim, places[-1], "PUT", mode="shared").status == 200
    response = granted(reader.response(SOON), claim.name, "shared")
    assert claim.tree.claims(claim.znode) == [shared_name(own), behind]
    claim.mode = "shared"
    claim.is_held(1, places)
    problem(places[-1][0].acquire(claim.name, wait="0"), 423)
    assert places[-1][0].release(claim.name, response.token).status == 204
    assert claim.drop(places[sequence(own) % len(places)]) == 0
    claim.released(places)


@pytest.mark.parametrize("asked", ["worker", "sibling", "gateway"])
def test_worker_dies_while_it_shares(sturdy, tree, asked):
    dice = chance()
    here, there = sturdy
    for i in range(8):
        worker, sibling = here.worker_pids()
        place = {"worker": (here, worker), "sibling": (here, sibling),
                 "gateway": (there, there.worker_pids()[0])}[asked]
        claim = Claim((here, worker), tree, ttl="1h")
        reader = there.begin(claim.name, mode="shared", wait="1m")
        tree.wait_claims(claim.znode, 2)
        connection = place[0].connect(place[1])
        connection.send("PUT", lock_path(claim.name), {"mode": "shared"},
                        {"Lock-Token": claim.token})
        time.sleep(dice.random() * (0.006 if asked == "worker" else 0.03))
        kill(here, worker)
        try:
            status = connection.response().status
        except (OSError, Gone):
            status = None
        assert status in (200, 503, None)
        judge_share(claim, everywhere(sturdy), reader, status == 200)


@pytest.mark.parametrize("asked", ["its own", "another"])
@pytest.mark.parametrize("operation", ["multi", "setData", "getData"])
@pytest.mark.parametrize("how", BREAKS)
def test_connection_breaks_while_it_shares(start_gateway, start_proxy,
                                           zookeeper, tree, how, operation,
                                           asked):
    """The connection of the granting gateway breaks."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         wait_sessions=False)
    there = start_gateway()
    places = everywhere([here, there])
    claim = Claim(places[0], tree, ttl="1h")
    place = places[0] if asked == "its own" else places[-1]
    reader = there.begin(claim.name, mode="shared", wait="1m")
    tree.wait_claims(claim.znode, 2)
    fault = proxy.fault(operation, how)
    response = claim.call(place, "PUT", mode="shared")
    assert response.status in (200, 503), response
    if fault in proxy.faults:
        assert operation == "setData"
        proxy.faults.remove(fault)
    else:
        fault.wait()
    judge_share(claim, places, reader, response.status == 200)


@pytest.fixture
def handed_over(start_gateway, start_proxy, zookeeper, tree):
    """A claim whose gateway still has to delete the claim ahead, that gateway's
    proxy, and another gateway.
    """
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         wait_sessions=False)
    there = start_gateway()
    worker = here.worker_pids()[0]
    claim = Claim((here, worker), tree, ttl="1h")
    waiter = here.begin(claim.name, worker=worker, wait="1m", ttl="1h")
    tree.wait_claims(claim.znode, 2)
    for _ in range(2):
        # the worker's earlier reads are answered by then
        assert here.inspect(claim.name, worker=worker).status == 200
    release = here.connect(worker)
    proxy.hole()
    release.send("DELETE", lock_path(claim.name), None,
                 {"Lock-Token": claim.token})
    claim.token = waiter.response(SOON).token
    yield claim, proxy, there
    proxy.pass_on()
    assert release.response(SOON).status in (204, 503)
    while settled(claim, (here, worker), "DELETE").status == 200:
        pass        # the claim was held once more
    tree.wait_claims(claim.znode, 0)


@pytest.mark.parametrize("method, query, asks", [
    ("PUT", {"mode": "shared"}, True), ("PUT", {"ttl": "1h"}, False),
    ("POST", {}, True), ("GET", {}, False)])
def test_handed_over_a_moment_ago(handed_over, method, query, asks):
    """The claim is held, though another gateway still sees a claim ahead; some
    calls ask the claim's gateway.
    """
    claim, proxy, there = handed_over
    connection = there.connect()
    connection.send(method, lock_path(claim.name), query,
                    {"Lock-Token": claim.token})
    if asks:
        assert connection.silent_for(0.2)
        proxy.pass_on()
    response = connection.response(SOON)
    assert response.status == 200 and response.json["state"] == "held", (
        response)


def test_handed_over_and_out_of_reach(handed_over):
    """The other gateway cannot know then whether the claim is held."""
    claim, proxy, there = handed_over
    problem(claim.call(everywhere([there])[0], "PUT", mode="shared"), 503)
    proxy.pass_on()
    assert settled(claim, everywhere([there])[0], "PUT",
                   mode="shared").status == 200


@pytest.mark.parametrize("asked", [0, 1])
def test_zookeeper_is_out_of_reach(start_gateway, start_proxy, zookeeper,
                                   tree, asked):
    """The result is unknown; a repeat of the share works."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         wait_sessions=False)
    there = start_gateway()
    places = everywhere([here, there])
    claim = Claim(places[0], tree, ttl="1h")
    reader = there.begin(claim.name, mode="shared", wait="1m")
    tree.wait_claims(claim.znode, 2)
    proxy.refuse()
    proxy.kill()
    place = everywhere([[here, there][asked]])[0]
    problem(claim.call(place, "PUT", mode="shared"), 503)
    assert reader.silent_for(0)
    proxy.listen()
    here.wait_served()
    judge_share(claim, places, reader, False)


def test_session_ends(start_gateway, start_proxy, zookeeper, tree):
    """A shared claim ends with its session, as any claim does."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout=SHORT,
                         wait_sessions=False)
    there = start_gateway()
    claim = Claim(everywhere([here])[0], tree, ttl="1h")
    claim.share(everywhere([there])[0])
    stay_ephemeral(tree, claim.znode)
    writer = there.begin(claim.name, wait="1m")
    tree.wait_claims(claim.znode, 2)
    proxy.refuse()
    proxy.kill()
    response = granted(writer.response(2 * SOON), claim.name, "exclusive")
    proxy.listen()
    assert settled(claim, everywhere([here])[0]).status == 410
    there.release(claim.name, response.token)
    tree.wait_claims(claim.znode, 0)


@pytest.mark.parametrize("how", ["reload", "stop", "kill"])
def test_shared_claim_outlives_its_workers(start_gateway, tree, how):
    here = start_gateway(session_timeout=SHORT)
    there = start_gateway()
    claims = []
    for place in everywhere([here, there]):
        claims.append(Claim(everywhere([here])[0], tree, durable="1"))
        claims[-1].share(place)
    if how == "reload":
        wait_dead(here.reload())
    else:
        getattr(here, how)()
        here.start()
    here.wait_served()
    places = everywhere([here, there])
    for place, claim in zip(places, claims):
        assert seen(claim, place) == 1
        claim.is_held(1, places)
        reader = there.acquire(claim.name, mode="shared", wait="0")
        granted(reader, claim.name, "shared")
        problem(here.acquire(claim.name, wait="0"), 423)
        assert here.release(claim.name, reader.token).status == 204
        assert claim.drop(place) == 0
        claim.released(places)


# a load

class Sharers(Visitors):
    """Visitors; half of the exclusive holders share in the end."""

    shared = 0

    async def take(self, fate, mode, sent, response):
        if fate == "hurries" and response.status != 201:
            return wait_over(response, *self.gateways)
        granted(response, self.name, mode)
        who = "%s %d" % (mode, next(self.numbers))
        token = {"Lock-Token": response.token}
        self.granted[mode] += 1
        self.workers.add(response.worker)
        if fate == "dies" and may_be_over(sent, response):
            return
        self.room.enter(who, mode in ALONE,
                        sequence(claim_of(response.token)), response.fencing)
        if fate != "dies":
            await asyncio.sleep(self.dice.random() * 0.004)
        shares = mode in ALONE and self.dice.random() < 0.5
        if fate == "dies":
            self.room.leave(who)
            if shares:
                answer = await self.ask("PUT", token, {"mode": "shared"})
                assert answer.status in (200, 410), answer
            return
        if shares:
            # from here on readers may be inside too
            self.room.inside[who] = False
            answer = await self.ask("PUT", token, {"mode": "shared"})
            assert answer.status == 200, answer
            assert answer.json["mode"] == "shared"
            assert answer.fencing == response.fencing
            self.shared += 1
            await asyncio.sleep(self.dice.random() * 0.02)
        self.room.leave(who)
        answer = await self.ask("DELETE", token)
        assert answer.status == 204, answer

    def ask(self, method, headers, query=None):
        return ask(self.port(), method, lock_path(self.name), query, headers)


def test_load(start_gateway, tree):
    """Two gateways; a shared lock has company, no other lock has."""
    pair = [start_gateway(session_timeout="60s") for _ in range(2)]
    znode = pair[0].znode("x")
    tree.make(znode)
    room = Room()
    visitors = Sharers(pair, room, chance())

    def enough():
        return (visitors.total() >= GRANTS and visitors.shared >= GRANTS / 10
                and all(visitors.ends.values()))

    play(*(visitors.come(enough) for _ in range(16)),
         timeout=patience(GRANTS))
    tree.wait_claims(znode, 0)
    visitors.judge()
    room.judge()
    assert room.most > 1, "nobody ever shared"
