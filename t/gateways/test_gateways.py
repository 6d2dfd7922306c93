"""Several gateways on one ZooKeeper: a token is good at each gateway.

A client may make every call of the granting gateway at any other gateway, and
gets the same answers.  Only ZooKeeper is between the two: a renewal changes the
claim's znode, and the gateway that keeps the lease has to find the change
before it lets the lease end.  A gateway keeps what the other gateway promised,
also when both act at the same moment.

A waiter is told the token only with the grant, so the tests make the tokens of
waiters from the znodes.
"""

import asyncio
import contextlib
import itertools
import os
import random
import time

import pytest

from lib.checks import gone, grant, problem, wait_over
from lib.client import AsyncConnection, lock_path
from lib.process import wait_until
from lib.proxy import LAST
from lib.sessions import stay_ephemeral
from lib.tokens import claim_of, token_of

SOON = 20.0
SHORT = "4s"        # of a session that a test waits for
STALLED = 6         # s; longer than ZooKeeper or a worker may stand still
IN_TURN = 2000
ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS", "2"))
AT_ONCE = 30


@pytest.fixture
def pair(start_gateway):
    """Two gateways with two workers each."""
    return [start_gateway(session_timeout="60s") for _ in range(2)]


@pytest.fixture(params=["granted here", "granted there"])
def here_and_there(request, pair):
    """(the gateway that grants, the other gateway), either way round."""
    return pair if request.param == "granted here" else pair[::-1]


def everywhere(*gateways):
    return [(gateway, worker) for gateway in gateways
            for worker in gateway.worker_pids()]


def steady(response):
    """The content of an answer without times, which may differ a little."""
    assert response.status == 200, response
    content = response.json
    for claim in ([content] + content.get("holders", [])
                  + content.get("queue", [])):
        claim.pop("expires_in_ms", None)
        claim.pop("since", None)
    return content


def told_gone(gateway, name, token, worker=None):
    """Like gone(), but a late release may get 204."""
    problem(gateway.inspect(name, token, worker), 410)
    problem(gateway.renew(name, token, worker=worker), 410)
    assert gateway.release(name, token, worker).status in (204, 410)


def the_same(answers):
    first, *others = answers
    for other in others:
        assert other == first
    return first


def queue_up(tree, gateways, name, keyed=False, **query):
    """Queues a waiter at each gateway in turn, with owners w0, w1, and so on.

    A client holds the lock already.  keyed: further clients may be told the
    waiters' tokens.
    """
    znode = gateways[0].znode(name)
    waiters = []
    for i, gateway in enumerate(gateways):
        before = set(tree.claims(znode))
        headers = {"Idempotency-Key": "key%d" % i} if keyed else None
        waiters.append(gateway.begin(name, None, headers, owner="w%d" % i,
                                     **query))
        tree.wait_claims(znode, lambda claims: set(claims) - before)
    return waiters


def queue_alone(gateways, name, **query):
    """Queues claims that wait without a request; returns the tokens.

    A waiter with a request knows no token.
    """
    tokens = []
    for i, gateway in enumerate(gateways):
        response = gateway.acquire(name, headers={"Prefer": "respond-async"},
                                   owner="w%d" % i, **query)
        assert response.status == 202, response
        tokens.append(response.token)
    return tokens


def tokens_in_line(tree, gateway, name):
    znode = gateway.znode(name)
    return [token_of(znode, claim) for claim in tree.claims(znode)]


def pass_through(name, holder, waiters, releasers):
    """Releases for each waiter, at gateways in turn; grants are in order."""
    token, fencing = holder.token, holder.fencing
    releasers = itertools.cycle(releasers)
    for i, waiter in enumerate(waiters):
        assert all(behind.silent_for(0) for behind in waiters[i:])
        assert next(releasers).release(name, token).status == 204
        response = waiter.response(SOON)
        grant(response, name)
        assert response.fencing > fencing
        token, fencing = response.token, response.fencing
    assert next(releasers).release(name, token).status == 204


# looks

def test_tokens_of_the_tests_are_those_of_the_gateway(pair, tree):
    here, _ = pair
    holder = here.hold("a b")
    claim, = tree.claims(here.znode("a b"))
    assert claim_of(holder.token) == claim
    assert token_of(here.znode("a b"), claim) == holder.token
    here.release("a b", holder.token)


def test_held_claim_is_shown_alike(pair):
    here, there = pair
    holder = here.hold("x", {"owner": "me", "data": {"a": [1, None]},
                             "ttl": "90s"})
    answers = [gateway.inspect("x", holder.token, worker)
               for gateway, worker in everywhere(here, there)]
    for answer in answers:
        assert answer.headers["Lock-Token"] == holder.token
        assert answer.headers["Lock-Fencing-Token"] == str(holder.fencing)
    content = the_same([steady(answer) for answer in answers])
    assert content["state"] == "held"
    assert content["owner"] == "me" and content["data"] == {"a": [1, None]}
    assert content["ttl_ms"] == 90000
    here.release("x", holder.token)


def test_queued_claims_are_shown_alike(pair, tree):
    here, there = pair
    holder = here.hold("x")
    tokens = queue_alone([there, here, there], "x", ttl="70s")
    assert tokens_in_line(tree, here, "x") == [holder.token] + tokens
    for position, token in enumerate(tokens):
        content = the_same([steady(gateway.inspect("x", token, worker))
                            for gateway, worker in everywhere(here, there)])
        assert content["state"] == "queued"
        assert content["position"] == position
        assert content["owner"] == "w%d" % position
    for token in tokens[::-1] + [holder.token]:
        assert here.release("x", token).status == 204


def test_lock_is_listed_alike(pair, tree):
    here, there = pair
    problem(there.inspect("x"), 404)
    holder = here.hold("x", {"owner": "me", "data": [1]})
    waiters = queue_up(tree, [there, here, there], "x")
    content = the_same([steady(gateway.inspect("x", worker=worker))
                        for gateway, worker in everywhere(here, there)])
    assert [claim["owner"] for claim in content["holders"]] == ["me"]
    assert content["holders"][0]["fencing_token"] == holder.fencing
    assert [claim["owner"] for claim in content["queue"]] == [
        "w0", "w1", "w2"]
    assert content["queued"] == 3
    pass_through("x", holder, waiters, [here])
    for gateway, worker in everywhere(here, there):
        problem(gateway.inspect("x", worker=worker), 404)


def test_refusal_names_the_holder(pair):
    here, there = pair
    holder = here.hold("x", {"owner": "me", "data": [1]})
    refusals = [gateway.refusal("x", worker=worker)
                for gateway, worker in everywhere(here, there)]
    for refusal in refusals:
        assert refusal["holder"]["owner"] == "me"
        assert refusal["holder"]["data"] == [1]
        assert refusal["holder"]["fencing_token"] == holder.fencing
    here.release("x", holder.token)


# renewals

@pytest.mark.parametrize("ttl, milliseconds", [
    ({}, 90000), ({"ttl": "20s"}, 20000), ({"body": {"ttl": 30}}, 30000)])
def test_renewed_at_the_other(here_and_there, ttl, milliseconds):
    here, there = here_and_there
    holder = here.hold("x", {"owner": "me", "data": {"a": 1}}, ttl="90s")
    for worker in there.worker_pids():
        content = grant(there.renew("x", holder.token, worker=worker, **ttl),
                        "x", 200)
        assert content["state"] == "held"
        assert content["fencing_token"] == holder.fencing
        assert content["ttl_ms"] == milliseconds
        assert content["expires_in_ms"] > milliseconds - 10000
        assert content["owner"] == "me" and content["data"] == {"a": 1}
        seen = steady(there.inspect("x", holder.token, worker))
        assert seen["ttl_ms"] == milliseconds
    response = there.call("PUT", lock_path("x"),
                          headers={"Lock-Token": holder.token})
    assert grant(response, "x", 200)["ttl_ms"] == milliseconds
    assert here.release("x", holder.token).status == 204
    gone(there, "x", holder.token)


def test_rest_of_a_lease_is_told_where_it_was_renewed(pair):
    """The gateway that keeps the lease tells the rest, too; no gateway tells
    more than the rest.
    """
    here, there = pair
    holder = here.hold("x", ttl="90s")
    there.renew("x", holder.token, ttl="40s")
    for gateway in pair:
        seen = gateway.inspect("x", holder.token).json
        assert seen["state"] == "held" and seen["ttl_ms"] == 40000
        assert 30000 < seen.get("expires_in_ms", 40000) <= 40000
    here.release("x", holder.token)


def test_renewal_changes_nothing_that_others_see(pair, tree):
    """Only the lease changes: owner, data, fencing token, place are the same.
    """
    here, there = pair
    holder = here.hold("x", {"owner": "me", "data": [1]}, ttl="40s")
    waiters = queue_up(tree, [here, there], "x")
    before = steady(here.inspect("x"))
    assert there.renew("x", holder.token).status == 200
    for gateway, worker in everywhere(here, there):
        assert steady(gateway.inspect("x", worker=worker)) == before
    pass_through("x", holder, waiters, [there])


def test_ttl_of_a_renewal_is_known_everywhere(pair):
    """A renewal without a ttl repeats the last ttl."""
    here, there = pair
    holder = here.hold("x", ttl="90s")
    there.renew("x", holder.token, ttl="40s")
    for gateway, worker in everywhere(here, there):
        seen = steady(gateway.inspect("x", holder.token, worker))
        assert seen["ttl_ms"] == 40000
    for gateway, worker in everywhere(here, there):
        content = grant(gateway.renew("x", holder.token, worker=worker), "x",
                        200)
        assert content["ttl_ms"] == 40000
    here.release("x", holder.token)


def test_longest_lease_of_a_renewal(start_gateway):
    """Each gateway has a separate bound for renewals there."""
    here = start_gateway()
    there = start_gateway(location="zk_lock_max_ttl 8s;")
    holder = here.hold("x", ttl="1h")
    content = grant(there.renew("x", holder.token, ttl="1h"), "x", 200)
    assert content["ttl_ms"] == 8000
    here.release("x", holder.token)


@pytest.mark.parametrize("ttl", [{}, {"ttl": "50s"}])
def test_queued_claim_is_renewed(here_and_there, tree, ttl):
    """The claim keeps its place; the lease has not begun."""
    here, there = here_and_there
    holder = here.hold("x")
    tokens = queue_alone([here, here], "x")
    for position, token in enumerate(tokens):
        for worker in there.worker_pids():
            response = there.renew("x", token, worker=worker, **ttl)
            assert response.status == 202, response
            assert response.json["state"] == "queued"
            assert response.json["position"] == position
    for token in [holder.token] + tokens:
        assert there.release("x", token).status == 204


def test_lease_is_kept_alive_at_the_other_alone(here_and_there, tree):
    """The lease ends a ttl after the last renewal, and not before."""
    here, there = here_and_there
    lock = here.znode("x")
    holder = here.hold("x", ttl="%ds" % STALLED)
    began = time.monotonic()
    while time.monotonic() - began < STALLED + 2.0:
        last = time.monotonic()
        content = grant(there.renew("x", holder.token), "x", 200)
        assert content["ttl_ms"] == 1000 * STALLED
        assert content["fencing_token"] == holder.fencing
        assert here.inspect("x", holder.token).json["state"] == "held"
        wait_over(here.acquire("x", wait="100ms"), here)
    tree.wait_claims(lock, 0, 2 * STALLED + SOON)
    assert time.monotonic() - last >= STALLED - 0.01
    gone(here, "x", holder.token)
    gone(there, "x", holder.token)


def test_many_leases_are_kept_alive_at_the_other(pair, tree):
    """Every second of a hundred leases is renewed; only these leases stay."""
    here, there = pair
    names = ["x%d" % i for i in range(100)]
    tokens = {}
    for i, name in enumerate(names):
        began = time.monotonic()
        tokens[name] = here.hold(name, ttl="2s").token
        if i % 2 == 0:
            answer = there.renew(name, tokens[name], ttl="1m")
            while answer.status == 410 and time.monotonic() - began > 2.0:
                # the lease was over before the renewal
                began = time.monotonic()
                tokens[name] = here.hold(name, ttl="2s").token
                answer = there.renew(name, tokens[name], ttl="1m")
            assert grant(answer, name, 200)["ttl_ms"] == 60000
    for name in names[1::2]:
        tree.wait_claims(here.znode(name), 0, SOON)
    for name in names[::2]:
        assert there.inspect(name, tokens[name]).json["state"] == "held"
        assert here.release(name, tokens[name]).status == 204


def test_lease_that_was_lengthened_at_the_other(here_and_there):
    """The deadline at the first gateway passes, and the lock stays held."""
    here, there = here_and_there
    holder = here.hold("x", ttl="3s")
    there.renew("x", holder.token, ttl="60s")
    wait_over(here.acquire("x", wait="4s"), here)
    for gateway, worker in everywhere(here, there):
        content = gateway.inspect("x", holder.token, worker).json
        assert content["state"] == "held" and content["ttl_ms"] == 60000
        assert 40000 < content.get("expires_in_ms", 60000) <= 60000
    assert there.release("x", holder.token).status == 204


def test_lease_that_was_shortened_at_the_other(here_and_there, tree):
    here, there = here_and_there
    holder = here.hold("x", ttl="1h")
    waiters = queue_up(tree, [here, there], "x", ttl="1h")
    began = time.monotonic()
    content = grant(there.renew("x", holder.token, ttl="300ms"), "x", 200)
    assert content["ttl_ms"] == 300
    response = waiters[0].response(SOON)
    assert time.monotonic() - began >= 0.29
    grant(response, "x")
    gone(here, "x", holder.token)
    gone(there, "x", holder.token)
    pass_through("x", response, waiters[1:], [here])


def test_renewed_at_both_in_turn(pair, tree):
    """The last renewal counts, at whatever gateway, whatever was before."""
    for last in pair:
        holder = pair[0].hold("x", ttl="3s")
        for gateway in pair * 3:
            time.sleep(0.1)
            grant(gateway.renew("x", holder.token), "x", 200)
        began = time.monotonic()
        content = grant(last.renew("x", holder.token, ttl="6s"), "x", 200)
        assert content["ttl_ms"] == 6000
        wait_over(pair[0].acquire("x", wait="3500ms"), pair[0])
        for gateway in pair:
            seen = gateway.inspect("x", holder.token)
            assert seen.status == 200 or time.monotonic() - began > 6.0, seen
        tree.wait_claims(pair[0].znode("x"), 0, SOON)
        assert time.monotonic() - began >= 5.99


# releases

def test_released_at_the_other(here_and_there, tree):
    here, there = here_and_there
    for owner in here.worker_pids():
        for worker in there.worker_pids():
            token = here.hold("x", worker=owner).token
            assert there.release("x", token, worker).status == 204
            assert tree.claims(here.znode("x")) == []
            for gateway, asked in everywhere(here, there):
                told_gone(gateway, "x", token, asked)
                problem(gateway.inspect("x", worker=asked), 404)


@pytest.mark.shows("a release that was answered with 204 was carried out")
def test_released_while_the_znode_changes(start_gateway, start_proxy, zookeeper,
                                          tree):
    """The lock's znode changes between the read and the write of a release, as
    when a lease becomes durable.  The delete alone succeeds then, but the
    client is told when the gateway that granted has heard of it, too.
    """
    proxy = start_proxy(zookeeper)
    here = start_gateway(session_timeout="60s")
    there = start_gateway(servers=proxy.address, workers=1,
                          session_timeout="60s")
    for number, worker in enumerate(here.worker_pids() * 2):
        name = "x%d" % number
        token = here.hold(name, worker=worker).token
        with there.connect() as releasing:
            reads = proxy.requests["getData"]
            proxy.delay = 0.1
            releasing.send("DELETE", lock_path(name),
                           headers={"Lock-Token": token})

            # of the claim, and of the lock's znode
            wait_until(lambda: proxy.requests["getData"] >= reads + 2)
            tree.client.set(here.znode(name), b"")
            assert releasing.response(SOON).status == 204
        again = here.acquire(name, wait="0", worker=worker)
        proxy.pass_on()
        assert again.status == 201, again
        assert here.release(name, again.token, worker).status == 204


def test_released_twice(here_and_there):
    """The second release gets 410, at the gateway of the first or elsewhere."""
    here, there = here_and_there
    worker = here.worker_pids()[0]
    token = here.hold("x", worker=worker).token
    assert there.release("x", token).status == 204
    problem(here.release("x", token, worker), 410)
    problem(there.release("x", token), 410)


def test_release_at_the_other_grants_the_next(here_and_there, tree):
    here, there = here_and_there
    for waits in (here, there):
        holder = here.hold("x")
        waiters = queue_up(tree, [waits], "x")
        pass_through("x", holder, waiters, [there])


def test_released_at_both_at_once(pair, tree):
    """A release gets 204, and afterwards no gateway tells the claim as held."""
    for i in range(10):
        token = pair[i % 2].hold("x", timeout=SOON).token
        connections = [gateway.connect() for gateway in pair]
        for connection in connections:
            connection.send("DELETE", lock_path("x"),
                            headers={"Lock-Token": token})
        statuses = {c.response().status for c in connections}
        assert statuses <= {204, 410} and 204 in statuses
        for gateway in pair:
            told_gone(gateway, "x", token)
    tree.wait_claims(pair[0].znode("x"), 0)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_queued_claim_is_released(pair, tree, place):
    """The claim's waiter is told 410, and the claims behind move up."""
    here, there = pair
    holder = here.hold("x")
    waiters = queue_up(tree, [here, here, here], "x", keyed=True)
    token = tokens_in_line(tree, here, "x")[1 + place]
    assert there.release("x", token).status == 204
    assert claim_of(token) not in tree.claims(here.znode("x"))
    problem(waiters.pop(place).response(SOON), 410)
    for gateway, worker in everywhere(here, there):
        gone(gateway, "x", token, worker)
    assert len(tree.claims(here.znode("x"))) == 3
    pass_through("x", holder, waiters, [there, here])


def test_queued_claims_are_released_at_once(pair, tree):
    """Releases that meet at the lock are all heard of by the waiters' gateway.
    """
    here, there = pair
    holder = here.hold("x")
    waiters = queue_up(tree, [here] * 12, "x", keyed=True)
    tokens = tokens_in_line(tree, here, "x")[1:]
    connections = [there.connect(worker) for _, worker in zip(
        tokens, itertools.cycle(there.worker_pids()))]
    for connection, token in zip(connections, tokens):
        connection.send("DELETE", lock_path("x"),
                        headers={"Lock-Token": token})
    for connection in connections:
        assert connection.response().status == 204
    for waiter in waiters:
        problem(waiter.response(SOON), 410)
    assert tree.claims(here.znode("x")) == [claim_of(holder.token)]
    assert here.release("x", holder.token).status == 204


def test_queued_claim_is_released_twice_at_once(start_gateway, start_proxy,
                                                zookeeper, tree):
    """The waiter is told 410, and does not queue again, though its gateway
    lists the lock just when the claim is gone.  A transaction has both
    releases, and fails for the second.
    """
    near, far = start_proxy(zookeeper), start_proxy(zookeeper)
    here = start_gateway(servers=near.address, workers=1, session_timeout="60s")
    there = start_gateway(servers=far.address, workers=1, session_timeout="60s")
    worker, = there.worker_pids()
    holder = here.hold("x")
    for _ in range(3):
        waiter, = queue_up(tree, [here], "x", keyed=True)
        _, token = tokens_in_line(tree, here, "x")
        releasing = [there.connect() for _ in range(2)]
        alone = far.fault("delete", LAST)
        reads = far.requests["getData"]
        far.delay = 0.1
        for connection in releasing:
            connection.send("DELETE", lock_path("x"),
                            headers={"Lock-Token": token})

        # of the claim, and of the lock's znode; mostly answered in one turn

        wait_until(lambda: far.requests["getData"] >= reads + 4)
        with there.frozen_worker(worker):
            time.sleep(0.3)
        alone.wait()
        tree.wait_claims(here.znode("x"), 1)
        near.kill()
        problem(waiter.response(SOON), 410)
        far.pass_on()
        assert {connection.response(SOON).status
                for connection in releasing} == {204, 410}
    assert tree.claims(here.znode("x")) == [claim_of(holder.token)]
    assert here.release("x", holder.token).status == 204


def test_lease_ends_for_all_gateways(here_and_there, tree):
    here, there = here_and_there
    holder = here.hold("x", ttl="400ms")
    waiter, = queue_up(tree, [there], "x")
    response = waiter.response(SOON)
    grant(response, "x")
    assert response.fencing > holder.fencing
    for gateway, worker in everywhere(here, there):
        gone(gateway, "x", holder.token, worker)
        assert gateway.inspect("x", response.token, worker).status == 200
    there.release("x", response.token)


def test_released_at_the_other_and_used_in_another_way(pair):
    """The lock is free at the first gateway, too, whatever that has heard."""
    here, there = pair
    uses = [{"mode": "shared"}, {"mode": "semaphore", "permits": "2"}]
    with contextlib.ExitStack() as stack:
        ones = [stack.enter_context(here.connect(worker))
                for worker in here.worker_pids()]
        other = stack.enter_context(there.connect())
        for i in range(IN_TURN):
            response = ones[i // 3 % 2].request(
                "POST", lock_path("x"), dict(uses[i % 2], wait="0"))
            assert response.status == 201, (i, response)
            assert other.request("DELETE", lock_path(
                "x", response.token)).status == 204


# order

@pytest.mark.shows("first come, first served")
def test_first_come_first_served(pair, tree):
    """Grants come in order over all workers, at whatever gateway a release is.
    """
    here, there = pair
    holder = here.hold("x")
    waiters = queue_up(tree, [here, there, there, here] * 2, "x")
    pass_through("x", holder, waiters, [there, here, there])
    tree.wait_claims(here.znode("x"), 0)


@pytest.mark.shows("fencing tokens grow with each grant")
def test_fencing_tokens_grow_over_gateways(pair):
    last = 0
    for gateway, worker in everywhere(*pair) * 2:
        response = gateway.hold("x", worker=worker)
        assert response.fencing > last
        last = response.fencing
        assert pair[0].release("x", response.token).status == 204


# races

def test_lease_end_against_a_renewal_at_the_other(pair):
    """The lease is renewed, for as long as the answer says, or it is gone.

    The next waiter proves the answer: it must not be granted before that time.
    The clock starts before the renewal is sent, so that a slow machine can only
    hide a fault.
    """
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    statuses = []
    rounds = 0
    while rounds < ROUNDS or (200 not in statuses and rounds < 10 * ROUNDS):
        statuses += asyncio.run(race(pair, dice))
        rounds += 1
    assert set(statuses) <= {200, 410}
    assert 200 in statuses, "no renewal came in time: nothing was tried"


async def race(pair, dice):
    """Many races at once, each with a separate lock."""
    return sum(await asyncio.gather(*(
        race_for(lock_path("x%d" % i), *dice.sample(pair, 2), dice)
        for i in range(AT_ONCE))), [])


async def race_for(path, here, there, dice):
    async with connections() as connect:
        holder = await connect(here).request("POST", path, {"ttl": "400ms"})
        assert holder.status == 201, holder
        waiter = connect(dice.choice([here, there]))
        await waiter.send("POST", path, {"wait": "1m"})
        await asyncio.sleep(0.4 + dice.uniform(-0.06, 0.02))

        token = {"Lock-Token": holder.token}
        asked = [there] if dice.random() < 0.7 else [there, here]
        began = time.monotonic()
        answers = await asyncio.gather(*(
            connect(gateway).request(
                "PUT", path, {"ttl": "%dms" % dice.randrange(100, 500)},
                token) for gateway in asked))
        promised = [answer.json["expires_in_ms"] / 1000
                    for answer in answers if answer.status == 200]

        response = await waiter.response()
        assert response.status == 201, response
        assert response.fencing > holder.fencing
        waited = time.monotonic() - began
        # of two renewals at once, the last counts
        if promised:
            assert waited >= min(promised), "%s: promised %s, given %g" % (
                path, promised, waited)
        await connect(there).request("DELETE", path,
                                     headers={"Lock-Token": response.token})
    return [answer.status for answer in answers]


@contextlib.asynccontextmanager
async def connections():
    opened = []

    def connect(gateway):
        opened.append(AsyncConnection(gateway.port))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


# tokens that are no tokens, or are of another lock or claim

def test_tokens_that_are_none(pair):
    here, there = pair
    holder = here.hold("x")
    for gateway, worker in everywhere(here, there):
        for call in (gateway.inspect, gateway.renew, gateway.release):
            problem(call("x", holder.token[::-1], worker=worker), 404)
        # a text that cannot be a token belongs to the name: no token is shown
        for wrong in holder.token[:-1] + "*", holder.token[:-4]:
            problem(gateway.inspect("x", wrong, worker=worker), 404)
            problem(gateway.renew("x", wrong, worker=worker), 400)
            problem(gateway.release("x", wrong, worker=worker), 404)
        for call in (gateway.inspect, gateway.renew, gateway.release):
            problem(call("y", holder.token, worker=worker), 404)
    assert there.inspect("x", holder.token).json["state"] == "held"
    here.release("x", holder.token)


def test_token_of_another_root(start_gateway, root):
    """Gateways keep the roots apart: another root's token is unknown."""
    here = start_gateway(root=root + "/a")
    there = start_gateway(root=root + "/b")
    holder = here.hold("x")
    other = there.hold("x")
    for call in (there.inspect, there.renew, there.release):
        problem(call("x", holder.token), 404)
    assert here.release("x", holder.token).status == 204
    assert there.release("x", other.token).status == 204


def test_claims_that_no_gateway_made(pair, foreign):
    """A foreign program takes part: its claim is shown, and never changed."""
    lock = pair[0].znode("x")
    claim = foreign.make_claim(lock, data=b"10.0.0.7")
    token = token_of(lock, claim.rpartition("/")[2])
    for gateway, worker in everywhere(*pair):
        seen = gateway.inspect("x", token, worker)
        assert seen.status == 200, seen
        assert seen.json["state"] == "held"
        assert seen.json["owner"] == "10.0.0.7"
        response = gateway.renew("x", token, worker=worker)
        assert response.status != 200, response
        problem(response, response.status)
    assert foreign.data(claim) == b"10.0.0.7"
    assert foreign.stat(claim).version == 0
    foreign.delete(claim)
    for gateway, worker in everywhere(*pair):
        gone(gateway, "x", token, worker)


def test_held_claim_deleted_by_hand(pair, tree):
    """Both gateways learn of the delete at a call, in either order."""
    here, there = pair
    for first in (pair, pair[::-1]):
        holder = here.hold("x")
        there.renew("x", holder.token, ttl="1h")
        tree.delete(here.znode("x") + "/" + claim_of(holder.token))
        for gateway, worker in everywhere(*first):
            told_gone(gateway, "x", holder.token, worker)
        there.release("x", there.hold("x", timeout=SOON).token)


# gateways that go

def test_claim_that_has_waited_is_deleted_by_hand(start_gateway, zookeeper,
                                                  tree):
    """The claim of a holder that has waited is watched, as any held claim."""
    gateway = start_gateway(workers=1)
    holder = gateway.hold("x")
    second, third = queue_up(tree, [gateway] * 2, "x", ttl="1h")
    assert gateway.release("x", holder.token).status == 204
    response = second.response(SOON)
    grant(response, "x")
    znode = gateway.znode("x") + "/" + claim_of(response.token)
    wait_until(lambda: znode in zookeeper.watched_paths(), SOON)
    tree.delete(znode)
    last = third.response(SOON)
    grant(last, "x")
    gone(gateway, "x", response.token)
    assert gateway.release("x", last.token).status == 204


def test_gateway_that_granted_is_gone(start_gateway, zookeeper, tree):
    """An ephemeral claim holds the lock until ZooKeeper ends the session, and
    not longer, also at the other gateway.
    """
    here = start_gateway(session_timeout=SHORT)
    there = start_gateway()
    lock = here.znode("x")
    stay_ephemeral(tree, lock)
    holder = here.hold("x", ttl="1h")
    session = tree.stat(lock + "/" + claim_of(holder.token)).ephemeralOwner
    waiter, = queue_up(tree, [there], "x")

    here.kill()
    assert there.inspect("x", holder.token).json["state"] == "held"
    response = waiter.response(SOON)
    granted = time.time()
    grant(response, "x")
    assert "note" not in response.json
    assert granted >= zookeeper.expirations()[session]
    for worker in there.worker_pids():
        gone(there, "x", holder.token, worker)
    there.release("x", response.token)


@pytest.mark.shows("a lease lasts as long as was told")
def test_gateway_that_renewed_is_gone(start_gateway, tree):
    """The lease that the gateway told is kept all the same."""
    here = start_gateway()
    there = start_gateway()
    holder = here.hold("x", ttl="3s")
    began = time.monotonic()
    grant(there.renew("x", holder.token, ttl="8s"), "x", 200)
    there.kill()
    wait_over(here.acquire("x", wait="4s"), here)
    tree.wait_claims(here.znode("x"), 0, SOON)
    assert time.monotonic() - began >= 7.99
    gone(here, "x", holder.token)


# an ensemble

def test_each_gateway_at_another_server(ensemble, start_gateway,
                                        connect_tree):
    """A gateway sees what the other told, though the server may lag."""
    ensemble.start()
    pair = [start_gateway(zookeeper=server)
            for server in (ensemble.follower(), ensemble.leader())]
    tree = connect_tree(ensemble.address)
    for here, there in (pair, pair[::-1]) * 3:
        holder = here.hold("x", owner="me")
        assert there.inspect("x", holder.token).json["state"] == "held"
        refusal = there.refusal("x")
        assert refusal["holder"]["owner"] == "me"
        assert there.release("x", holder.token).status == 204
        problem(here.inspect("x", holder.token), 410)
        problem(here.inspect("x"), 404)
    holder = pair[0].hold("x")
    waiters = queue_up(tree, pair * 3, "x")
    pass_through("x", holder, waiters, pair[::-1])


def test_renewed_at_another_server(ensemble, start_gateway):
    ensemble.start()
    pair = [start_gateway(zookeeper=server)
            for server in (ensemble.follower(), ensemble.leader())]
    for here, there in (pair, pair[::-1]):
        holder = here.hold("x", ttl="%ds" % STALLED)
        began = time.monotonic()
        while time.monotonic() - began < STALLED + 2.0:
            content = grant(there.renew("x", holder.token), "x", 200)
            assert content["fencing_token"] == holder.fencing
            wait_over(here.acquire("x", wait="200ms"), here)
        wait_until(lambda: here.inspect("x").status == 404, SOON)
        gone(here, "x", holder.token)
        gone(there, "x", holder.token)
