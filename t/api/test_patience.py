"""How long a request waits for ZooKeeper.

An acquire waits for ZooKeeper as long as the acquire waits for the lock.  All
other calls, and an acquire that tries once, wait for zk_lock_timeout.  In that
time ZooKeeper's silence, a lost connection, an election and a lost session
cause no error; after that time the answer is 503, never 423.  Each test has
ZooKeeper servers of its own.
"""

import asyncio
import os
import re
import time

import pytest

from lib import streams
from lib.checks import problem, retry_after
from lib.client import AsyncConnection, lock_path
from lib.process import wait_until

TIMEOUT = "10s"     # of the session
ROOM = "zk_lock_timeout 20s;"   # where no call may be refused
CLIENTS = int(os.environ.get("ZK_LOCK_CLIENTS", "24"))
BACK = 20.0


# clients that go on and on

class Crowd:
    """Clients that acquire with wait=30s, each in its own way, and release;
    every answer is noted.
    """

    def __init__(self, gateway, number):
        self.gateway = gateway
        self.number = number
        self.stopping = False
        self.acquired = []
        self.released = []

    def run(self, fault):
        """Has the clients work before, while and after fault() happens."""
        asyncio.run(self._run(fault))
        assert len(self.acquired) > self.number

    async def _run(self, fault):
        clients = [asyncio.ensure_future(self._client(i))
                   for i in range(self.number)]
        await self._goes_on()
        await asyncio.get_running_loop().run_in_executor(None, fault)
        await self._goes_on()
        self.stopping = True
        await asyncio.gather(*clients)

    async def _goes_on(self):
        seen = len(self.released)
        while len(self.released) < seen + 3 * self.number:
            await asyncio.sleep(0.01)

    async def _client(self, i):
        connection = AsyncConnection(self.gateway.port)
        turns = 0
        while not self.stopping:
            turns += 1
            response = await self._acquire(connection, i, turns)
            self.acquired.append(response)
            if response.status in (200, 201):
                await self._release(connection, i, response)
        connection.close()

    async def _acquire(self, connection, i, turns):
        path, query, headers, body = (lock_path("lock%d" % (i % 6)),
                                      {"wait": "30s"}, None, None)
        if i % 4 == 1:
            headers = {"Idempotency-Key": "key-%d-%d" % (i, turns)}
        elif i % 4 == 2:
            path, query = "/locks/", None
            body = {"names": ["lock%d" % (i % 6), "other%d" % (i % 2)],
                    "wait": "30s"}
        elif i % 4 == 3:
            path = lock_path("alone%d" % i)
        return await connection.request("POST", path, query, headers, body)

    async def _release(self, connection, i, response):
        path = "/locks/" if i % 4 == 2 else lock_path(response.json["name"])
        while True:
            answer = await connection.request(
                "DELETE", path, headers={"Lock-Token": response.token})
            self.released.append(answer)
            if answer.status != 503:
                return


def errors(responses, *expected):
    return [response for response in responses
            if response.status not in expected]


@pytest.mark.parametrize("seconds", [1, 3, 8])
def test_stall(private_zookeeper, start_gateway, connect_tree, seconds):
    """ZooKeeper stands still, and goes on: no client is told an error."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT,
                            location="zk_lock_timeout 7s;")

    def stall():
        private_zookeeper.freeze()
        time.sleep(seconds)
        private_zookeeper.thaw()

    crowd = Crowd(gateway, CLIENTS)
    crowd.run(stall)
    assert not errors(crowd.acquired, 200, 201)

    # a release waits for zk_lock_timeout, and still happens after a 503
    if seconds < 7:
        assert not errors(crowd.released, 204)
    else:
        assert not errors(crowd.released, 204, 503, 410)

    tree = connect_tree(private_zookeeper.address)
    for lock in tree.children(gateway.root):
        tree.wait_claims(gateway.znode(lock), 0)


def test_election(ensemble, start_gateway):
    """For a while there is no quorum: no client is told an error."""
    ensemble.start()
    gateway = start_gateway(zookeeper=ensemble, session_timeout=TIMEOUT)

    def elect():
        leader, follower = ensemble.leader(), ensemble.follower()
        leader.kill()
        follower.kill()
        follower.start(wait=False)
        ensemble.leader()

    crowd = Crowd(gateway, CLIENTS)
    crowd.run(elect)
    assert not errors(crowd.acquired, 200, 201)


def test_session_is_lost(private_zookeeper, start_gateway):
    """No client is told an error, though the outage outlasts the session."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, session_timeout="2s")

    def lose():
        private_zookeeper.freeze()
        wait_until(lambda: "connection is lost" in gateway.log_text(), BACK)
        private_zookeeper.kill()
        private_zookeeper.start()

    crowd = Crowd(gateway, CLIENTS)
    crowd.run(lose)
    assert not errors(crowd.acquired, 200, 201)


# single calls

def frozen(private_zookeeper, start_gateway, seconds, location=""):
    """A gateway with a holder of "x".  ZooKeeper is silent for so many seconds;
    above zero the gateway knows that ZooKeeper is out of reach.
    """
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            session_timeout=TIMEOUT, location=location)
    holder = gateway.hold("x", ttl="1h")
    private_zookeeper.freeze()
    return gateway, holder, gateway.connect().silent_for(seconds)


def calls(gateway, holder):
    """The connection of each kind of call that does not wait for a lock."""
    token = {"Lock-Token": holder.token}
    sent = {}
    for what, method, path, headers, body in [
            ("try", "POST", "/locks/y?wait=0", None, None),
            ("try a taken lock", "POST", "/locks/x?wait=0", None, None),
            ("try with a key", "POST", "/locks/x?wait=0",
             {"Idempotency-Key": "k"}, None),
            ("try a member", "POST", "/locks/m?wait=0&mode=member", None,
             None),
            ("try several", "POST", "/locks/", None,
             {"names": ["a", "b"], "wait": "0"}),
            ("renew", "PUT", "/locks/x", token, None),
            ("hold", "POST", "/locks/x", token, None),
            ("inspect", "GET", "/locks/x", token, None),
            ("look", "GET", "/locks/x", None, None),
            ("list", "GET", "/locks/", None, None)]:
        sent[what] = gateway.connect()
        sent[what].send(method, path, None, headers, body)
    return sent


EXPECTED = {"try": 201, "try a taken lock": 423, "try with a key": 423,
            "try a member": 201, "try several": 201, "renew": 200,
            "hold": 200, "inspect": 200, "look": 200, "list": 200}


@pytest.mark.parametrize("begun", ["before it is known", "after"])
def test_calls_wait(private_zookeeper, start_gateway, begun):
    gateway, holder, _ = frozen(private_zookeeper, start_gateway,
                                1.5 if begun == "after" else 0, ROOM)
    sent = calls(gateway, holder)
    assert all(connection.silent_for(0) for connection in sent.values())
    assert sent["try"].silent_for(1.5)
    assert all(connection.silent_for(0) for connection in sent.values())
    private_zookeeper.thaw()
    told = {what: connection.response(BACK).status
            for what, connection in sent.items()}
    assert told == EXPECTED


def test_looks_that_wait(private_zookeeper, start_gateway):
    """A GET that waits for a lock waits as long for ZooKeeper."""
    gateway, holder, _ = frozen(private_zookeeper, start_gateway, 1.5,
                                "zk_lock_timeout 1s;")
    sent = []
    for path, headers in [("x?wait=1m", {"Lock-Token": holder.token}),
                          ("y?wait=1m&until=free", None)]:
        sent.append(gateway.connect())
        sent[-1].send("GET", "/locks/" + path, None, headers)
    assert sent[0].silent_for(2.5)
    assert sent[1].silent_for(0)
    private_zookeeper.thaw()
    assert [way.response(BACK).status for way in sent] == [200, 204]


def test_release_waits(private_zookeeper, start_gateway):
    """A release is answered when the znode is gone, at either worker."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT, location=ROOM)
    workers = gateway.worker_pids()
    holders = [(gateway.hold("x%d" % i, worker=workers[0], ttl="1h"), worker)
               for i, worker in enumerate(workers)]
    ways = [gateway.connect(worker) for _, worker in holders]
    private_zookeeper.freeze()
    for i, way in enumerate(ways):
        way.send("DELETE", lock_path("x%d" % i, holders[i][0].token))
    assert ways[0].silent_for(2)
    assert ways[1].silent_for(0)
    private_zookeeper.thaw()
    assert [way.response(BACK).status for way in ways] == [204, 204]


def test_renewal_counts_from_when_it_came(private_zookeeper, start_gateway):
    """The lease would end while the call waits for ZooKeeper."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            session_timeout="30s", location=ROOM)
    holder = gateway.hold("x", ttl="6s")
    ends = time.monotonic() + 6.0
    private_zookeeper.freeze()
    other = gateway.connect()
    other.send("GET", lock_path("y"))
    wait_until(lambda: "out of reach" in gateway.log_text(), BACK)
    renewal = gateway.connect()
    renewal.send("PUT", lock_path("x", holder.token), {"ttl": "1h"})
    time.sleep(max(ends - time.monotonic(), 0) + 0.3)
    private_zookeeper.thaw()
    assert renewal.response(BACK).status == 200
    assert other.response(BACK).status == 404
    assert "zookeeper answers again" in gateway.log_text()
    assert gateway.release("x", holder.token).status == 204


@pytest.mark.parametrize("how", ["kill", "hole"])
def test_asks_whose_connection_breaks(zookeeper, start_gateway, start_proxy,
                                      how):
    """The gateway repeats the calls that the broken connection interrupted."""
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, workers=1,
                            session_timeout=TIMEOUT, location=ROOM)
    holder = gateway.hold("x", ttl="1h")
    gateway.release("y", gateway.hold("y").token)
    gateway.release("m", gateway.hold("m").token)
    proxy.hole()
    sent = calls(gateway, holder)
    assert sent["renew"].silent_for(0.5)
    proxy.refuse()
    proxy.kill()
    wait_until(lambda: "connection is lost" in gateway.log_text(), BACK)
    if how == "hole":
        assert sent["renew"].silent_for(1.5)
    proxy.pass_on()
    proxy.listen()
    responses = {what: connection.response(BACK)
                 for what, connection in sent.items()}
    assert {what: response.status for what, response in responses.items()
            } == EXPECTED
    for what in ("try", "try a member", "try several"):
        response = responses[what]
        assert gateway.call("DELETE", lock_path(response.json.get("name", "")),
                            headers={"Lock-Token": response.token}
                            ).status == 204
    assert [gateway.release("x", holder.token).status
            for _ in range(2)] == [200, 204]


def test_release_of_two_holds_that_is_told_503(private_zookeeper,
                                               start_gateway):
    """A client may repeat the release, because a release with 503 is not
    counted.
    """
    private_zookeeper.start()
    # the session outlasts two calls of three seconds and a slow machine
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            session_timeout="30s",
                            location="zk_lock_timeout 3s;")
    token = gateway.hold("x", ttl="1h").token
    twice = gateway.acquire("x", headers={"Lock-Token": token})
    assert (twice.status, twice.json["holds"]) == (200, 2)
    private_zookeeper.freeze()
    wait_until(lambda: gateway.inspect("x", token).status == 503, BACK)
    problem(gateway.release("x", token), 503)
    private_zookeeper.thaw()
    wait_until(lambda: gateway.inspect("x", token).status == 200, BACK)
    assert gateway.inspect("x", token).json["holds"] == 2
    assert [gateway.release("x", token).status for _ in range(3)] == [
        200, 204, 410]


def test_list_whose_connection_breaks(zookeeper, start_gateway, start_proxy):
    """The break comes while the locks are listed, or each lock's claims."""
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, workers=1,
                            session_timeout=TIMEOUT)
    names = sorted("x%d" % i for i in range(12))
    tokens = {name: gateway.hold(name).token for name in names}
    for halves in (1, 3, 5, 7, 9):
        proxy.delay = 0.1
        call = gateway.connect()
        call.send("GET", "/locks/")
        time.sleep(halves * 0.1)
        proxy.kill()
        proxy.delay = 0.0
        response = call.response(BACK)
        assert response.status == 200, response
        assert [lock["name"] for lock in response.json["locks"]] == names
    for name, token in tokens.items():
        wait_until(lambda: gateway.release(name, token).status in (204, 410),
                   BACK)


def test_timeout(private_zookeeper, start_gateway):
    gateway, holder, _ = frozen(private_zookeeper, start_gateway, 0,
                                "zk_lock_timeout 1s;")
    for rounds in range(2):
        sent = calls(gateway, holder)
        release = gateway.connect()
        release.send("DELETE", lock_path("z", holder.token))
        for what, connection in sent.items():
            response = connection.response(5)
            problem(response, 503, "out of reach")
            retry_after(response)
        problem(release.response(5), 404)
    release = gateway.release("x", holder.token)
    problem(release, 503, "not confirmed")
    private_zookeeper.thaw()
    wait_until(lambda: gateway.inspect("x").status == 404, BACK,
               "the lock is released all the same")


def test_directive(private_zookeeper, start_gateway):
    """Each level inherits from the level above, or has a value of its own."""
    private_zookeeper.start()
    gateway = start_gateway(
        zookeeper=private_zookeeper, http="zk_lock_timeout 1s;", workers=1,
        server="location /slow/ { zk_lock_api; zk_lock_timeout 1m; }")
    private_zookeeper.freeze()
    quick, slow = gateway.connect(), gateway.connect()
    slow.send("GET", "/slow/x")
    quick.send("GET", "/locks/x")
    problem(quick.response(5), 503)
    assert slow.silent_for(0)
    private_zookeeper.thaw()
    assert slow.response(BACK).status == 404


def test_directive_takes_a_time(start_gateway):
    gateway = start_gateway(start=False, location="zk_lock_timeout 0;")
    gateway.allow("zk_lock_timeout")
    code, says = gateway.test_conf()
    assert code != 0
    assert re.search(r"zk_lock_timeout.* above zero", says)


def test_wait_is_over(private_zookeeper, start_gateway, connect_tree):
    """503 for each kind of waiter, whether its claim is in the queue or not."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            session_timeout="30s",
                            location="zk_lock_timeout 1m;")
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    holder = gateway.hold("x", ttl="1h")
    waiters = waiting(gateway, "6s")
    tree.wait_claims(gateway.znode("x"), 1 + len(waiters))
    gateway.catch_up("x")
    private_zookeeper.freeze()
    waiters += waiting(gateway)
    for waiter in waiters:
        problem(waiter.response(20), 503, "out of reach")
    for waiter in waiting(gateway):
        problem(waiter.response(20), 503, "out of reach")
    private_zookeeper.thaw()
    tree.wait_claims(gateway.znode("x"), 1, BACK)
    assert gateway.release("x", holder.token).status == 204


def waiting(gateway, wait="2s"):
    several = gateway.connect()
    several.send("POST", "/locks/", None, None,
                 {"names": ["x", "z"], "wait": wait})
    return [several,
            gateway.begin("x", wait=wait),
            gateway.begin("x", wait=wait, mode="exclusive", ttl="1h"),
            gateway.begin("x", headers={"Idempotency-Key": "again"},
                          wait=wait)]


def test_streams_wait(private_zookeeper, start_gateway):
    """A stream that waits goes on; a stream that holds tells its client at once
    that ZooKeeper is out of reach.
    """
    gateway, holder, _ = frozen(private_zookeeper, start_gateway, 0)
    private_zookeeper.thaw()
    held = streams.hold(gateway, "s")
    held.event("granted")
    queued = streams.hold(gateway, "x", wait="1m")
    queued.event("queued")
    private_zookeeper.freeze()
    assert held.event("ending")["reason"] == "zookeeper"
    new = streams.hold(gateway, "t", wait="1m")
    watcher = streams.watch(gateway, "x")
    private_zookeeper.thaw()
    held.event("granted")
    new.event("granted")
    watcher.event("change")
    assert gateway.release("x", holder.token).status == 204
    queued.event("granted")


@pytest.mark.parametrize("how", ["freeze", "stop"])
def test_worker_that_leaves(private_zookeeper, start_gateway, how):
    """The worker stays until each request is answered in time."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            session_timeout=TIMEOUT,
                            location="zk_lock_timeout 3s;")
    holder = gateway.hold("x", ttl="1h")
    getattr(private_zookeeper, how)()
    old = gateway.worker_pids()
    sent = calls(gateway, holder)
    release = gateway.connect()
    release.send("DELETE", lock_path("x", holder.token))
    assert gateway.call("GET", "/ready").status == 204
    gateway.reload(wait=False)
    for connection in sent.values():
        problem(connection.response(10), 503)
    problem(release.response(10), 503)
    wait_until(lambda: not set(old) & set(gateway.worker_pids(leaving=True)),
               BACK, "the old worker ends")


def test_release_beside_a_worker_that_stands_still(start_gateway, tree):
    """The caller waited and got 503.  The release still happens, although the
    lease and the session would have kept the claim.
    """
    gateway = start_gateway(session_timeout="30s",
                            location="zk_lock_timeout 200ms;")
    worker, sibling = gateway.worker_pids()
    holder = gateway.hold("x", worker=worker, ttl="1h")
    connection = gateway.connect(sibling)
    with gateway.frozen_worker(worker):
        problem(connection.request("DELETE", lock_path("x", holder.token)),
                503)
        tree.wait_claims(gateway.znode("x"), 0, BACK)


def test_log_of_the_library(private_zookeeper, start_gateway):
    """Messages that libzookeeper repeats many times a second are counted."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            level="warn")
    gateway.hold("x", ttl="1h")
    before = said(gateway)
    private_zookeeper.stop()
    wait_until(lambda: len(left_out(gateway)) > 0, 30, "a line with a count")
    assert len(said(gateway)) - len(before) <= 3, said(gateway)
    assert left_out(gateway)[0] > 10
    private_zookeeper.start()
    wait_until(lambda: len(left_out(gateway)) > 1, 30, "the rest of the count")
    gateway.hold("y")
    assert len(said(gateway)) - len(before) <= 5, said(gateway)


def said(gateway):
    return re.findall(r"libzookeeper: .*", gateway.log_text())


def left_out(gateway):
    return [int(number) for number in re.findall(
        r"libzookeeper: (\d+) more lines left out", gateway.log_text())]
