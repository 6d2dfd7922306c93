"""Many clients for a lock: each is granted the lock, alone and in order.

The clients check this: between 201 and DELETE each client holds the lock alone,
and fencing tokens grow in the order of holding.  ZooKeeper tells the order in
which the clients entered the queue.
"""

import asyncio
import itertools
import random

import pytest

from lib.checks import grant
from lib.client import AsyncConnection, ask, lock_path
from lib.zookeeper import sequence

HOLD = 0.004    # seconds at most; long enough for a wrong grant to be seen


class Ring:
    """Holders of a lock, as the clients see the holders."""

    def __init__(self):
        self.holder = None
        self.fencing = 0
        self.order = []

    def enter(self, who, response):
        assert self.holder is None, "%s and %s hold it" % (self.holder, who)
        assert response.fencing > self.fencing
        self.holder = who
        self.fencing = response.fencing
        self.order.append(who)

    def leave(self, who):
        assert self.holder == who
        self.holder = None


async def take_turn(port, name, who, ring):
    """Waits, holds the lock for a moment, releases over a new connection."""
    connection = AsyncConnection(port)
    response = await connection.request("POST", lock_path(name),
                                        {"wait": "2m", "owner": str(who)})
    grant(response, name)
    ring.enter(who, response)
    await asyncio.sleep(HOLD * random.random())
    ring.leave(who)
    answer = await ask(port, "DELETE", lock_path(name),
                       headers={"Lock-Token": response.token})
    assert answer.status == 204
    connection.close()
    return response.worker


def test_five_hundred_waiters(gateway, tree):
    """The waiters use two workers; a new connection releases each claim."""
    number = 500
    znode = gateway.znode("x")
    holder = gateway.hold("x")
    ring = Ring()

    async def play():
        tasks = [asyncio.ensure_future(take_turn(gateway.port, "x", who, ring))
                 for who in range(number)]
        loop = asyncio.get_running_loop()
        claims = await loop.run_in_executor(None, tree.wait_claims, znode,
                                            number + 1, 30)
        owners = await loop.run_in_executor(None, owners_of, tree, znode,
                                            claims[1:])
        await ask(gateway.port, "DELETE", lock_path("x", holder.token))
        workers = await asyncio.wait_for(asyncio.gather(*tasks), 90)
        return owners, set(workers)

    owners, workers = asyncio.run(play())
    assert ring.order == owners, "the order of grants is not that of claims"
    assert sorted(ring.order) == list(range(number))
    assert workers == set(gateway.worker_pids())
    tree.wait_claims(znode, 0)


def owners_of(tree, znode, claims):
    """The makers of the claims, in the order of the claims."""
    assert [sequence(claim) for claim in claims] == sorted(
        sequence(claim) for claim in claims)
    return [int(tree.data(znode + "/" + claim).split(b"\n")[0])
            for claim in claims]


def test_round_and_round(gateway, tree):
    """Twenty clients take the lock ten times each."""
    ring = Ring()

    async def client(number):
        for turn in range(10):
            await take_turn(gateway.port, "x", (number, turn), ring)

    async def play():
        await asyncio.wait_for(asyncio.gather(*map(client, range(20))), 60)

    asyncio.run(play())
    assert len(ring.order) == 200
    tree.wait_claims(gateway.znode("x"), 0)


def test_many_locks_at_once(gateway, tree):
    """Forty clients and eight locks; each lock has a separate order."""
    rings = [Ring() for _ in range(8)]

    async def client(number):
        for turn in range(16):
            i = (number * 7 + turn * 3) % len(rings)
            await take_turn(gateway.port, "x%d" % i, (number, turn), rings[i])

    async def play():
        await asyncio.wait_for(asyncio.gather(*map(client, range(40))), 60)

    asyncio.run(play())
    assert sum(len(ring.order) for ring in rings) == 40 * 16
    for i in range(8):
        tree.wait_claims(gateway.znode("x%d" % i), 0)


def test_more_looks_than_are_under_way(start_gateway, start_proxy, zookeeper):
    """Looks at different locks wait for their turn; none is refused."""
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, workers=1,
                            location="zk_lock_timeout 1m;")
    gateway.release("x", gateway.hold("x").token)
    proxy.delay = 0.05

    async def look(number):
        return await ask(gateway.port, "GET", lock_path("x%d" % number))

    async def play():
        return await asyncio.wait_for(
            asyncio.gather(*map(look, range(1000))), 90)

    assert {answer.status for answer in asyncio.run(play())} == {404}


@pytest.mark.shows("no two holders, and no more than the mode allows")
def test_two_gateways(start_gateway, tree):
    """Two gateways on the same path: each must notice the other's claims."""
    gateways = [start_gateway(), start_gateway()]
    ring = Ring()

    async def client(number):
        for turn in range(5):
            port = gateways[(number + turn) % 2].port
            await take_turn(port, "x", (number, turn), ring)

    async def play():
        await asyncio.wait_for(asyncio.gather(*map(client, range(40))), 90)

    asyncio.run(play())
    assert len(ring.order) == 200
    tree.wait_claims(gateways[0].znode("x"), 0)


def test_others_in_between(gateway, tree, foreign):
    """A client that makes claims by hand takes turns with HTTP clients."""
    ring = Ring()
    znode = gateway.znode("x")
    hand_made = itertools.count()

    def turn_by_hand():
        claim = foreign.make_claim(znode)
        own = claim.rpartition("/")[2]
        foreign.wait_claims(znode, lambda claims: claims[0] == own, 20)
        who = "hand %d" % next(hand_made)
        assert ring.holder is None
        ring.holder = who
        data = foreign.data(claim)
        ring.leave(who)
        foreign.delete(claim)
        return data

    async def by_hand():
        loop = asyncio.get_running_loop()
        for _ in range(20):
            await loop.run_in_executor(None, turn_by_hand)

    async def client(number):
        for turn in range(4):
            await take_turn(gateway.port, "x", (number, turn), ring)

    async def play():
        await asyncio.wait_for(
            asyncio.gather(by_hand(), *map(client, range(25))), 90)

    asyncio.run(play())
    assert len(ring.order) == 100
    tree.wait_claims(znode, 0)
