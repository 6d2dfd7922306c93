"""Queues of claims that a test sets up, and loads of clients.

ZK_LOCK_GRANTS is the number of grants of each load, ZK_LOCK_SEED the seed of
the random choices.
"""

import asyncio
import itertools
import os
import random
import threading
import time

from lib.checks import TOKEN, may_be_over, problem, wait_over
from lib.client import AsyncConnection, ask, lock_path
from lib.process import wait_until
from lib.tokens import claim_of
from lib.zookeeper import sequence

GRANTS = int(os.environ.get("ZK_LOCK_GRANTS") or 300)
SEED = os.environ.get("ZK_LOCK_SEED")

SOON = 8.0
MODES = ("exclusive", "shared", "write")
ALONE = ("exclusive", "write")
MARKERS = {"exclusive": "-lock-", "shared": "-__READ__",
           "write": "-__WRIT__"}
READER_SEES = ["-lock-", "-__WRIT__"]
WRITER_SEES = ["-lock-", "-__WRIT__", "-__READ__"]


def granted(response, name, mode):
    assert response.status == 201, response
    content = response.json
    assert content["name"] == name and content["mode"] == mode, content
    assert TOKEN.match(content["token"]) and content["fencing_token"] > 0
    assert response.headers["Lock-Token"] == content["token"]
    assert MARKERS[mode] in claim_of(content["token"])
    return response


class Line:
    """Claims for a lock, queued in order, each at the next place."""

    numbers = itertools.count()

    def __init__(self, tree, places):
        self.tree = tree
        self.places = places
        self.name = "x%d" % next(self.numbers)
        self.gateway = next(places)[0]
        self.znode = self.gateway.znode(self.name)
        self.fencing = 0

    def join(self, mode, place=None, **query):
        """The connection of a claim that is in the queue now."""
        self.gateway, worker = place or next(self.places)
        before = set(self.tree.claims(self.znode))
        waiter = self.gateway.begin(self.name, worker=worker, mode=mode,
                                    **query)
        # claims ahead may end meanwhile, and so may this wait
        self.tree.wait_claims(self.znode, lambda claims: (
            set(claims) - before or not waiter.silent_for(0)))
        return waiter

    def granted(self, waiter, mode):
        response = granted(waiter.response(SOON), self.name, mode)
        assert response.fencing > self.fencing
        self.fencing = response.fencing
        return response

    def take(self, mode, **query):
        """Joins, and is granted the lock at once."""
        return self.granted(self.join(mode, **query), mode)

    def release(self, *responses, place=None):
        for response in responses:
            gateway, worker = place or next(self.places)
            assert gateway.release(self.name, response.token,
                                   worker).status == 204

    def taken(self, *modes):
        """An acquire in these modes is refused at every gateway."""
        for mode in modes:
            for _ in range(4):
                gateway, worker = next(self.places)
                problem(gateway.acquire(self.name, mode=mode, wait="0",
                                        worker=worker), 423)

    def empty(self):
        self.tree.wait_claims(self.znode, 0)


def wait(*waiters):
    """All waiters wait, and go on waiting."""
    assert waiters[0].silent_for(0.2)
    assert all(waiter.silent_for(0) for waiter in waiters)


def kill(gateway, worker):
    """Kills the worker; the master starts a new worker."""
    gateway.kill_worker(worker)
    wait_until(lambda: len(gateway.worker_pids()) == gateway.workers
               and worker not in gateway.worker_pids(), SOON, "a new worker")
    gateway._note_processes()
    gateway.wait_served()


def chance():
    seed = int(SEED) if SEED else random.randrange(1 << 32)
    print("ZK_LOCK_SEED=%d" % seed)
    return random.Random(seed)


class Visitors:
    """Clients over HTTP that come to a lock in all modes.

    Most clients wait until the lock is granted, and release the lock.  Some
    leave while they wait, some have a short wait, and some vanish while they
    hold the lock, whose lease is short then.  Such a client does not enter the
    room when the lease may be over by then.
    """

    LEASE = "250ms"
    FATES = ("stays",) * 20 + ("hurries",) * 4 + ("leaves",) * 3 + ("dies",)

    def __init__(self, gateways, room, dice, name="x", modes=MODES,
                 fates=FATES):
        self.gateways = gateways
        self.room = room
        self.dice = dice
        self.name = name
        self.modes = modes
        self.fates = fates
        self.numbers = itertools.count()
        self.granted = dict.fromkeys(modes, 0)
        self.ends = dict.fromkeys(fates, 0)
        self.workers = set()

    def total(self):
        return sum(self.granted.values())

    async def come(self, until):
        while not until():
            fate = self.dice.choice(self.fates)
            await self.visit(fate, self.dice.choice(self.modes))
            self.ends[fate] += 1

    async def visit(self, fate, mode):
        query = dict(self.use(mode), wait="2m")
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
            await self.take(fate, mode, sent, await connection.response())
        if self.dice.random() < 0.5 and fate in ("leaves", "dies"):
            connection.reset()
        else:
            connection.close()

    async def take(self, fate, mode, sent, response):
        if fate == "hurries" and response.status != 201:
            wait_over(response, *self.gateways)
            return
        self.is_granted(response, mode)
        who = "%s %d" % (mode, next(self.numbers))
        self.granted[mode] += 1
        self.workers.add(response.worker)
        if fate == "dies" and may_be_over(sent, response):
            return
        self.enter(who, mode, sequence(claim_of(response.token)), response)
        if fate != "dies":
            await self.stay(who, mode, response)
        self.room.leave(who)
        if fate != "dies":
            answer = await ask(self.port(), "DELETE", lock_path(self.name),
                               headers={"Lock-Token": response.token})
            assert answer.status == 204, answer

    # what loads of other kinds do in another way

    def use(self, mode):
        return {"mode": mode}

    def is_granted(self, response, mode):
        granted(response, self.name, mode)

    def enter(self, who, mode, number, response):
        self.room.enter(who, mode in ALONE, number, response.fencing)

    async def stay(self, who, mode, response):
        await asyncio.sleep(self.dice.random() * 0.004)

    def port(self):
        return self.dice.choice(self.gateways).port

    def judge(self):
        assert all(self.granted.values()), self.granted
        assert all(self.ends.values()), self.ends
        assert self.workers == {worker for gateway in self.gateways
                                for worker in gateway.worker_pids()}


class Kazoo:
    """A lock of kazoo's, taken in a separate thread."""

    def __init__(self, foreign, path, mode):
        recipe = {"shared": foreign.client.ReadLock,
                  "write": foreign.client.WriteLock}[mode]
        sees = READER_SEES if mode == "shared" else WRITER_SEES
        self.lock = recipe(path, "kazoo", extra_lock_patterns=sees)
        self.got = threading.Event()
        self.thread = None

    def begin(self):
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()
        return self

    def _take(self):
        if self.lock.acquire(timeout=20):
            self.got.set()

    def take(self):
        self.begin()
        assert self.got.wait(SOON)
        return self

    def waits(self):
        return not self.got.wait(0.2)

    def release(self):
        assert self.got.wait(SOON)
        self.lock.release()
        self.thread.join()


def play(*clients, timeout=None):
    """Runs all clients to the end; the first failure fails the run."""
    async def together():
        tasks = [asyncio.ensure_future(client) for client in clients]
        await asyncio.wait_for(asyncio.gather(*tasks), timeout)

    asyncio.run(together())


def patience(grants):
    return 30 + grants / 10
