"""Clients that leave while they wait: such a client is never granted a lock.

A client leaves by closing, by resetting, by closing half of the connection, by
cancelling a stream of HTTP/2 or by losing all streams.  The client's claim
goes, and no waiter is held up, whatever else happens in that moment.
"""

import asyncio
import itertools
import random
import socket
import time

import pytest

from lib.checks import grant
from lib.client import AsyncConnection, ask, lock_path
from lib.process import wait_until

SOON = 20.0         # before a wait would be over, which is 30 s by default
LEAVES = ["close", "reset", "half_close"]


@pytest.mark.parametrize("leave", LEAVES)
def test_waiter_leaves(gateway, tree, leave):
    znode = gateway.znode("x")
    holder = gateway.hold("x")
    for worker in gateway.worker_pids():
        leaver = gateway.begin("x", worker=worker)
        tree.wait_claims(znode, 2)
        stayer = gateway.begin("x", worker=worker)
        tree.wait_claims(znode, 3)

        getattr(leaver, leave)()
        tree.wait_claims(znode, 2)
        assert stayer.silent_for(0.1)

        gateway.release("x", holder.token)
        holder = stayer.response(SOON)
        grant(holder, "x")
    gateway.release("x", holder.token)
    tree.wait_claims(znode, 0)


@pytest.mark.parametrize("leave", LEAVES)
def test_all_waiters_leave(gateway, tree, leave):
    znode = gateway.znode("x")
    holder = gateway.hold("x")
    waiters = [gateway.begin("x") for _ in range(30)]
    tree.wait_claims(znode, 31)
    for waiter in waiters:
        getattr(waiter, leave)()
    tree.wait_claims(znode, 1)
    assert gateway.inspect("x", holder.token).json["state"] == "held"
    assert gateway.inspect("x").json["queued"] == 0
    gateway.release("x", holder.token)
    gateway.release("x", gateway.hold("x", wait="0").token)


def send_and_leave(connection, i):
    """Cuts the request off behind the last byte, or in the middle."""
    request = (b"POST /locks/x?wait=60s HTTP/1.1\r\nHost: a\r\n"
               b"Content-Length: 2\r\n\r\n{}")
    connection.send_bytes(request[:len(request) - i % 4])
    getattr(connection, LEAVES[i % 3])()


def test_left_before_the_request_is_read(gateway, tree):
    """The lock is free, but each client that wants the lock has left."""
    workers = gateway.worker_pids()
    for i in range(24):
        worker = workers[i % 2]
        connection = gateway.connect(worker)
        with gateway.frozen_worker(worker):
            send_and_leave(connection, i)
    tree.wait_claims(gateway.znode("x"), 0)
    token = gateway.hold("x", timeout=SOON).token
    tree.wait_claims(gateway.znode("x"), 1)
    gateway.release("x", token)


def test_leaves_while_the_claim_is_made(gateway, tree):
    """Clients leave, whatever the worker knows by then; the lock is held."""
    holder = gateway.hold("x")
    for i in range(40):
        send_and_leave(gateway.connect(), i)
    stayer = gateway.begin("x")
    tree.wait_claims(gateway.znode("x"), 2)
    gateway.release("x", holder.token)
    gateway.release("x", stayer.response(SOON).token)
    tree.wait_claims(gateway.znode("x"), 0)


def test_holder_leaves_and_keeps_the_lock(gateway, tree):
    """A delivered grant lasts, however the connection ends."""
    for leave in LEAVES:
        connection = gateway.begin("x")
        response = connection.response()
        grant(response, "x")
        getattr(connection, leave)()
        gateway.refused("x", wait="200ms")
        assert gateway.inspect("x", response.token).status == 200
        gateway.release("x", response.token)


@pytest.mark.shows("a client that has left leaves no claim")
@pytest.mark.parametrize("leave", LEAVES)
def test_left_before_its_turn(gateway, tree, leave):
    """The worker learns of the client's end and of the claim's turn in the
    same moment, in either order: the client had left before the lock was free.
    """
    one, other = gateway.worker_pids()
    for _ in range(5):
        holder = gateway.hold("x", worker=other, timeout=SOON)
        waiter = gateway.begin("x", worker=one)
        releaser = gateway.connect(other)
        tree.wait_claims(gateway.znode("x"), 2)
        with gateway.frozen_worker(one):
            getattr(waiter, leave)()
            response = releaser.request("DELETE",
                                        lock_path("x", holder.token))
            assert response.status == 204
        holder = gateway.hold("x", worker=other, timeout=SOON)
        gateway.release("x", holder.token, other)
    tree.wait_claims(gateway.znode("x"), 0)


def test_release_and_leaving_at_once(gateway, tree):
    """The next client gets the lock, whether or not the waiter got the lock.

    A grant may be on the way when the client leaves, and the gateway cannot
    know: then the grant lasts as long as the lease.
    """
    znode = gateway.znode("x")
    for i in range(30):
        holder = gateway.hold("x", timeout=SOON)
        waiter = gateway.begin("x", ttl="200ms")
        tree.wait_claims(znode, 2)
        releaser = gateway.connect()
        steps = [lambda: releaser.send("DELETE",
                                       lock_path("x", holder.token)),
                 getattr(waiter, LEAVES[i % 3])]
        for step in steps[::(-1) ** i]:
            step()
        assert releaser.response(SOON).status == 204
        holder = gateway.hold("x", timeout=SOON)
        gateway.release("x", holder.token)
    tree.wait_claims(znode, 0)


def test_leaves_while_zookeeper_is_silent(start_gateway, zookeeper, tree,
                                          start_proxy):
    """The create is under way when the client leaves: the claim is deleted."""
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False)
    gateway.release("x", gateway.hold("x").token)
    znode = gateway.znode("x")

    proxy.noreply()
    waiters = [gateway.begin("x") for _ in range(5)]
    tree.wait_claims(znode, lambda claims: claims)
    for waiter in waiters:
        waiter.reset()
    proxy.kill()
    proxy.pass_on()

    tree.wait_claims(znode, 0)
    gateway.release("x", gateway.hold("x", timeout=SOON).token)


AMID = """
location = /guarded { zk_lock free; zk_lock $arg_lock; try_files /none =204; }
location = /required { zk_lock_require $arg_lock fencing=$http_x_fencing
                       lost=abort; try_files /none =204; }
"""
ANY = {"If-Match": "*"}
SSE = {"Accept": "text/event-stream"}
INFO = {"ID": "4711", "Who": "me"}


def calls(held, several, tag):
    """All kinds of call: a lock that is held, several, and a free lock."""
    one, all_of_them = {"Lock-Token": held}, {"Lock-Token": several}
    for name in "held", "free":
        path = lock_path(name)
        for headers in {}, SSE, {"If-None-Match": tag}:
            yield "GET", path, {"wait": "1m"}, headers, None
        yield "GET", path, {"until": "free"}, {}, None
        yield "POST", path, {"wait": "0"}, {}, None
        yield "POST", path, {"hold": "connection"}, SSE, None
        yield "POST", path, {}, {"Idempotency-Key": "k"}, None
        yield "POST", path, {}, {"Prefer": "respond-async"}, None
        yield "PUT", path, {"revoke": "1"}, ANY, None
        yield "LOCK", path, {}, {}, INFO
        yield "UNLOCK", path, {}, {}, INFO
        yield "GET", "/guarded", {"lock": name}, {}, None
        for headers in {}, one, {"X-Fencing": "256"}:
            yield "GET", "/required", {"lock": name}, headers, None
    for method in "GET", "PUT", "POST", "DELETE":
        yield method, lock_path("held"), {}, one, None
    yield "POST", "/locks/", {}, {}, {"names": ["free", "held"]}
    for method in "GET", "PUT", "DELETE":
        yield method, "/locks/", {}, all_of_them, None
    for query in {}, {"holders": "1"}, {"sort": "since"}:
        yield "GET", "/locks/", query, {}, None
    yield "DELETE", lock_path("held"), {"force": "1"}, ANY, None


@pytest.mark.parametrize("passing", range(5))
def test_leaves_amid_any_call(start_gateway, zookeeper, start_proxy, passing):
    """The worker waits for the first answer of ZooKeeper, or for a later one,
    which then comes all the same.
    """
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, session_timeout="60s",
                            wait_sessions=False, workers=1, server=AMID,
                            location="zk_lock_admin on; zk_lock_grace 100ms;")
    gateway.wait_served()
    workers = gateway.worker_pids()
    held = gateway.hold("held", ttl="1h")
    several = gateway.call("POST", "/locks/", body={"names": ["a", "b"]})
    tag = gateway.inspect("held").headers["ETag"]
    ways = itertools.cycle(LEAVES)
    for call in calls(held.token, several.token, tag):
        proxy.keep(passing)
        leaver = gateway.connect().send(*call)
        with gateway.connect() as other:
            # the worker has read the one when it answers the other
            other.request("GET", "/ready")
            getattr(leaver, next(ways))()
            other.request("GET", "/ready")
        proxy.pass_on()
        gateway.in_reach(lambda: gateway.inspect("held"))
        assert gateway.worker_pids() == workers, call
    for name in "held", "free":
        gateway.call("DELETE", lock_path(name), {"force": "1"}, ANY)
    wait_until(lambda: gateway.metrics()["claims_used", ""] == 0, SOON,
               "no claim is left")


@pytest.mark.parametrize("seed", [1, 2])
def test_half_of_two_hundred_leave(start_gateway, tree, seed):
    """Clients leave at random moments, in all ways, as the lock is passed on.
    """
    gateway = start_gateway(http="http2_max_concurrent_streams 200;")
    asyncio.run(Crowd(gateway, seed).play())
    tree.wait_claims(gateway.znode("x"), 0)


class Crowd:
    """A hundred clients that stay for the lock, and a hundred that leave."""

    def __init__(self, gateway, seed, number=100):
        self.gateway = gateway
        self.number = number
        self.random = random.Random(seed)
        self.holding = False
        self.http2 = gateway.connect_http2()
        self.streams = []

    async def play(self):
        port = self.gateway.port
        holder = await ask(port, "POST", lock_path("x"))
        stayers = [asyncio.ensure_future(self.stay())
                   for _ in range(self.number)]
        leavers = [asyncio.ensure_future(self.leave(i))
                   for i in range(self.number)]
        await asyncio.sleep(0.2)
        await ask(port, "DELETE", lock_path("x", holder.token))
        await asyncio.wait_for(asyncio.gather(*stayers, *leavers), 60)
        self.http2.close()

    async def stay(self):
        await asyncio.sleep(self.random.random() * 0.2)
        connection = AsyncConnection(self.gateway.port)
        response = await connection.request("POST", lock_path("x"),
                                            {"wait": "60s"})
        grant(response, "x")
        assert not self.holding
        self.holding = True
        await asyncio.sleep(0.003)
        self.holding = False
        connection.close()
        response = await ask(self.gateway.port, "DELETE",
                             lock_path("x", response.token))
        assert response.status == 204

    async def leave(self, i):
        """A grant to a client that leaves ends with the lease of a second."""
        await asyncio.sleep(self.random.random() * 0.2)
        if i % 4 == 3:
            return await self.leave_http2()
        connection = AsyncConnection(self.gateway.port)
        await connection.send("POST", lock_path("x"), {"wait": "60s",
                                                       "ttl": "1s"})
        await asyncio.sleep(self.random.random() * 0.5)
        getattr(connection, LEAVES[i % 4])()

    async def leave_http2(self):
        stream = self.http2.send("POST", lock_path("x"), {"wait": "60s",
                                                          "ttl": "1s"})
        await asyncio.sleep(self.random.random() * 0.5)
        self.http2.cancel(stream)


def test_crowd_leaves_in_one_moment(gateway, tree):
    """Hundreds of claims go, and the lock can be acquired again at once."""
    znode = gateway.znode("x")
    holder = gateway.hold("x")
    waiters = [gateway.begin("x", wait="60s") for _ in range(300)]
    tree.wait_claims(znode, 301, SOON)
    began = time.monotonic()
    for waiter in waiters:
        waiter.close()
    gateway.release("x", holder.token)
    gateway.release("x", gateway.hold("x", timeout=SOON).token)
    tree.wait_claims(znode, 0)
    assert time.monotonic() - began < SOON


def test_gone_after_it_was_told(start_gateway, tree):
    """A request that nginx mirrors lives on; the grant was told, and lasts."""
    with socket.create_server(("127.0.0.1", 0)) as mirror:
        gateway = start_gateway(
            location="mirror /mirror;",
            server="location = /mirror { internal; proxy_pass "
                   "http://127.0.0.1:%d; }" % mirror.getsockname()[1])
        connection = gateway.connect_http2()
        holder = connection.request("POST", lock_path("x"), {"ttl": "1m"})
        token = grant(holder, "x")["token"]
        copy, _ = mirror.accept()
        connection.close()
        wait_until(lambda: "closed" in gateway.log_text(), SOON, "it is gone")
        copy.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        copy.close()
        with gateway.connect() as other:
            other.request("GET", "/ready")
        assert gateway.inspect("x", token).json["state"] == "held"
        gateway.release("x", token)
