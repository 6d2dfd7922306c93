"""Locks that a connection holds, and locks that a client watches.

A claim's stream tells what happens to the claim, and the claim lasts as long as
the stream: whatever ends the connection, the lock is free at once.  A lock's
stream tells each state of the lock, for as long as the client reads.

Sessions live long here, except where a test loses a session: so a lock that is
free was released, and did not end with a session.  The streams are calm, except
where a test stops ZooKeeper.
"""

import contextlib
import ctypes
import random
import re
import socket
import ssl
import subprocess
import threading
import time

import h2.config
import h2.connection
import pytest

from conftest import gateways, new_root
from lib import streams
from lib.checks import TOKEN, gone, grant, problem
from lib.client import (TIMEOUT, Connection, Http2Connection, encode,
                        lock_path, target)
from lib.process import alive, free_port, wait_until, whole_lines
from lib.proxy import LAST
from lib.streams import FORMATS, LINES, SSE, Http2Stream, Stream, watch
from lib.tokens import claim_of, token_of

SESSION = "60s"
SOON = 8.0          # less than the grace
LEAVES = ["close", "reset", "half_close"]
CLONE_NEWNET = 0x40000000

every_format = pytest.mark.parametrize("accept", FORMATS)


@pytest.fixture(scope="module")
def shared(request, tmp_path_factory, zookeeper, tree):
    """A gateway for all tests that leave no claims behind."""
    directory = tmp_path_factory.mktemp("streams")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        yield make(session_timeout=SESSION, location="zk_lock_admin on;",
                   http="http2_max_concurrent_streams 200;")


@pytest.fixture
def gateway(shared, tree, name):
    yield shared
    while shared.connections:
        shared.connections.pop().close()
    tree.wait_claims(shared.znode(name), 0)


@pytest.fixture
def name(request):
    """A name that only this test uses."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def start(start_gateway):
    def start(**options):
        options.setdefault("session_timeout", SESSION)
        return start_gateway(**options)
    return start


def hold(gateway, name, *arguments, **options):
    stream = streams.hold(gateway, name, *arguments, **options)
    stream.calm = True
    return stream


def claims(gateway, tree, name, number, timeout=SOON):
    return tree.wait_claims(gateway.znode(name), number, timeout)


def granted(stream, name, timeout=SOON, leased=False):
    """The next event is a complete grant."""
    data = stream.event("granted", timeout)
    assert data["name"] == name
    assert data["mode"] == "exclusive"
    assert TOKEN.match(data["token"])
    assert isinstance(data["fencing_token"], int)
    assert data["waited_ms"] >= 0
    assert ("ttl_ms" in data) == leased
    assert ("expires_in_ms" in data) == leased
    return data


def queued(stream, name, position, timeout=SOON):
    data = stream.event("queued", timeout)
    assert (data["name"], data["position"]) == (name, position)
    return data


def over(stream, event, name, timeout=SOON, **members):
    """The last event, and then the end of the stream."""
    data = stream.event(event, timeout)
    assert data["name"] == name
    assert {key: data.get(key) for key in members} == members
    assert stream.ended(SOON)
    return data


def wait_ends(gateway, name, begin):
    """The last event of a stream that waits, and gets the lock in no time.

    If ZooKeeper stalls as the wait ends, as the log tells, another stream
    begins.
    """
    def unless_away():
        before = gateway.outages()
        stream = begin()
        if stream.head().status == 200:
            queued(stream, name, 0)
            event = stream.next(SOON)
            if event.data.get("reason") != "unreachable":
                return stream, event
        else:
            problem(stream.head(), 503)
        assert gateway.told_of_outage(before)
        return None

    stream, event = wait_until(unless_away, 60, "ZooKeeper's answer")
    assert (event.name, event.data["name"]) == ("taken", name)
    assert stream.ended(SOON)
    return stream, event.data


def lost(stream, name, reason, timeout=SOON):
    return over(stream, "lost", name, timeout, reason=reason)


def line(gateway, tree, name, workers, **query):
    """Streams that wait in this order, and were told their places."""
    present = len(tree.claims(gateway.znode(name)))
    waiters = []
    for i, worker in enumerate(workers):
        waiters.append(hold(gateway, name, worker=worker, **query))
        queued(waiters[i], name, present + i - 1)
    return waiters


# what a holder is told

@every_format
def test_free_lock(gateway, tree, name, accept):
    stream = hold(gateway, name, accept)
    response = stream.head()
    assert response.status == 200
    assert response.headers["Content-Type"] == accept
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in response.headers
    assert "Lock-Token" not in response.headers

    data = granted(stream, name)
    for worker in gateway.worker_pids():
        seen = gateway.inspect(name, data["token"], worker).json
        assert seen["state"] == "held"
        assert seen["fencing_token"] == data["fencing_token"]
        assert "expires_in_ms" not in seen
        problem(gateway.acquire(name, wait="0", worker=worker), 423)
    claims(gateway, tree, name, 1)
    stream.close()
    claims(gateway, tree, name, 0)


@pytest.mark.parametrize("accept, format", [
    (None, LINES), ("*/*", LINES), ("application/json", LINES),
    ("application/jsonl", LINES), ("application/x-ndjson", LINES),
    ("text/event-stream", SSE), ("Text/Event-Stream; charset=utf-8", SSE)])
def test_format(gateway, name, accept, format):
    stream = hold(gateway, name, accept)
    assert stream.head().headers["Content-Type"] == format
    granted(stream, name)
    stream.close()


@pytest.mark.parametrize("mode, permits", [
    ("exclusive", None), ("shared", None), ("write", None),
    ("semaphore", 3), ("member", None)])
def test_modes(gateway, name, mode, permits):
    query = {"permits": permits} if permits else {}
    with contextlib.closing(hold(gateway, name, mode=mode, **query)) as stream:
        data = stream.event("granted")
        assert data["mode"] == mode
        assert data.get("permits") == permits


@every_format
def test_line(gateway, tree, name, accept):
    """Each stream tells its place, each move up, and the grant."""
    one, other = gateway.worker_pids()
    holder = hold(gateway, name, accept, worker=one)
    fencing = granted(holder, name)["fencing_token"]
    waiters = line(gateway, tree, name, [one, other, one, other],
                   accept=accept)
    assert waiters[-1].silent_for(0.1)

    while waiters:
        holder.close()
        holder, waiters = waiters[0], waiters[1:]
        data = granted(holder, name)
        assert data["fencing_token"] > fencing
        fencing = data["fencing_token"]
        for place, waiter in enumerate(waiters):
            queued(waiter, name, place)
    holder.close()


def test_behind_a_lease(gateway, tree, name):
    """Holders by a stream and holders by a lease wait in the same queue."""
    holder = gateway.hold(name)
    stream, = line(gateway, tree, name, gateway.worker_pids()[:1])
    waiter = gateway.begin(name)
    claims(gateway, tree, name, 3)
    gateway.release(name, holder.token)
    data = granted(stream, name)
    assert data["fencing_token"] > holder.fencing
    assert waiter.silent_for(0.1)
    stream.close()
    response = waiter.response(SOON)
    grant(response, name)
    assert response.fencing > data["fencing_token"]
    gateway.release(name, response.token)


@every_format
def test_wait_is_over(gateway, tree, name, accept):
    holder = gateway.hold(name, owner="me")
    for worker in gateway.worker_pids():
        stream, data = wait_ends(gateway, name, lambda: hold(
            gateway, name, accept, worker, wait="1s"))
        assert data["holder"]["owner"] == "me"
        assert data["holder"]["fencing_token"] == holder.fencing
        assert holder.token not in str(data)
        claims(gateway, tree, name, 1)
        # the stream ended as any answer does: the connection goes on
        assert stream.connection.request("GET", "/ready").status == 204
    gateway.release(name, holder.token)


def test_refused_at_once(gateway, tree, name):
    """A problem answers the request, and no stream begins."""
    holder = gateway.hold(name, owner="me")
    for worker in gateway.worker_pids():
        response = hold(gateway, name, worker=worker, wait="0").head()
        assert problem(response, 423)["holder"]["owner"] == "me"
        problem(hold(gateway, name, worker=worker, mode="member").head(), 409)
    problem(hold(gateway, name, ttl="x").head(), 400)
    problem(hold(gateway, name, hold="hand").head(), 400)
    problem(hold(gateway, name, headers={"Idempotency-Key": "k"}).head(), 400)
    claims(gateway, tree, name, 1)
    gateway.release(name, holder.token)


def test_queue_is_full(start, tree):
    gateway = start(location="zk_lock_max_queue 2;")
    holder = hold(gateway, "x")
    granted(holder, "x")
    line(gateway, tree, "x", gateway.worker_pids())
    for worker in gateway.worker_pids():
        problem(hold(gateway, "x", worker=worker).head(), 429)


def test_asked_to_let_go(gateway, name):
    one, other = gateway.worker_pids()
    stream = hold(gateway, name, worker=one)
    token = granted(stream, name)["token"]
    response = gateway.call("PUT", lock_path(name), {"revoke": "1"},
                            worker=other)
    assert response.status == 202
    assert response.json == {"name": name, "asked": 1}
    assert stream.event("revoke") == {"name": name}
    assert gateway.inspect(name, token).json["state"] == "held"
    stream.close()


@every_format
def test_lease_ends(gateway, tree, name, accept):

    def told_before():
        stream = hold(gateway, name, accept, ttl="4500ms")
        data = granted(stream, name, leased=True)
        assert data["ttl_ms"] == 4500
        waiter, = line(gateway, tree, name, gateway.worker_pids()[:1])
        event = stream.next()
        if event.name == "ending":
            assert event.data["reason"] == "lease"
            assert 0 < event.data["expires_in_ms"] <= 1500
            lost(stream, name, "lease")
        else:
            assert event.name == "lost" and event.data["reason"] == "lease"
        granted(waiter, name)
        waiter.close()
        claims(gateway, tree, name, 0)
        return event.name == "ending"

    # a worker that stands still until the lease is over tells only that
    assert told_before() or told_before() or told_before()


def test_what_is_left_after_a_silence(private_zookeeper, start, name):
    """The repeated grant tells the rest of the lease."""
    private_zookeeper.start()
    gateway = start(zookeeper=private_zookeeper, workers=1,
                    session_timeout="20s")
    stream = streams.hold(gateway, name, ttl="1m")
    first = granted(stream, name, leased=True)
    private_zookeeper.freeze()
    assert stream.event("ending")["reason"] == "zookeeper"
    private_zookeeper.thaw()
    again = stream.event("granted")
    assert again["ttl_ms"] == first["ttl_ms"] == 60000
    assert 0 < again["expires_in_ms"] <= 60000 - 900
    stream.close()


def test_lease_is_renewed(gateway, tree, name):
    """The stream tells each time that the lease is about to end."""
    one, other = gateway.worker_pids()

    def in_time():
        stream = hold(gateway, name, worker=one, ttl="9s")
        begun = time.monotonic()
        token = granted(stream, name, leased=True)["token"]
        for worker in (one, other, other):
            event = stream.next(20)
            renewed = time.monotonic()
            answer = gateway.renew(name, token, worker=worker)
            if answer.status == 410 and time.monotonic() - begun > 8:
                stream.close()
                return False
            assert event.name == "ending", event
            assert event.data["reason"] == "lease"
            assert answer.status == 200, answer
            begun = renewed
        assert gateway.renew(name, token, ttl="1h").json["ttl_ms"] == 3600000
        assert stream.silent_for(1.5)
        stream.close()
        return True

    # a process that stands still may be late
    assert in_time() or in_time() or in_time()


def test_nothing_to_renew(gateway, name):
    stream = hold(gateway, name)
    token = granted(stream, name)["token"]
    for worker in gateway.worker_pids():
        response = gateway.renew(name, token, worker=worker)
        assert response.status == 200
        assert "expires_in_ms" not in response.json
    assert stream.silent_for(0.1)
    stream.close()


@pytest.mark.parametrize("ttl", [{}, {"ttl": "1s"}])
def test_nothing_to_renew_at_another_gateway(start, zookeeper, tree, name, ttl):
    """A claim without a lease gets no lease from any gateway's renewal."""
    here, there = start(), start()
    stream = hold(here, name)
    token = granted(stream, name)["token"]
    for gateway in (here, there):
        assert "ttl_ms" not in gateway.inspect(name, token).json
    there.renew(name, token, **ttl)
    for worker in here.worker_pids():
        response = here.renew(name, token, worker=worker, **ttl)
        assert response.status == 200
        assert "expires_in_ms" not in response.json
    there.renew(name, token, **ttl)
    claim = "%s/%s" % (here.znode(name), claim_of(token))
    wait_until(lambda: claim in zookeeper.watched_paths(), 20)
    there.renew(name, token, **ttl)
    assert stream.silent_for(2.5)
    stream.close()


# how a lock is lost

@every_format
@pytest.mark.parametrize("at", ["same worker", "sibling"])
def test_released_by_token(gateway, tree, name, at, accept):
    one, other = gateway.worker_pids()
    stream = hold(gateway, name, accept, worker=one)
    token = granted(stream, name)["token"]
    waiter, = line(gateway, tree, name, [other])
    worker = one if at == "same worker" else other
    assert gateway.release(name, token, worker).status == 204
    lost(stream, name, "released")
    granted(waiter, name)
    waiter.close()
    gone(gateway, name, token)


@every_format
def test_waiter_is_cancelled(gateway, tree, name, accept):
    """A client with the token cancels; the waiter was not told the token."""
    holder = hold(gateway, name)
    granted(holder, name)
    for worker in gateway.worker_pids():
        waiter, = line(gateway, tree, name, [worker], accept=accept)
        token = token_of(gateway.znode(name),
                         tree.claims(gateway.znode(name))[1])
        assert gateway.release(name, token).status == 204
        lost(waiter, name, "cancelled")
    holder.close()


def test_deleted_by_hand(gateway, tree, name):
    one, other = gateway.worker_pids()
    stream = hold(gateway, name, worker=one)
    granted(stream, name)
    waiter, = line(gateway, tree, name, [other])
    tree.delete(gateway.znode(name) + "/"
                + tree.claims(gateway.znode(name))[0])
    lost(stream, name, "deleted")
    granted(waiter, name)
    waiter.close()


def test_waiter_deleted_by_hand(gateway, tree, name):
    """The waiter queues again, because the waiter held nothing."""
    holder = hold(gateway, name)
    granted(holder, name)
    waiter, = line(gateway, tree, name, gateway.worker_pids()[:1])
    claim = tree.claims(gateway.znode(name))[1]
    tree.delete(gateway.znode(name) + "/" + claim)
    holder.close()
    waiter.until(lambda event: event.name == "granted")
    waiter.close()


@pytest.fixture
def there(start, zookeeper, start_proxy):
    """A gateway behind a proxy, with a session that ends soon."""
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, wait_sessions=False, workers=1,
                    session_timeout="6s")
    wait_until(lambda: gateway.inspect("none").status == 404, 20,
               "the gateway has its session")
    return gateway, proxy


@pytest.mark.parametrize("lease", [{}, {"ttl": "1h"}], ids=["none", "1h"])
def test_session_is_lost(there, start, zookeeper, tree, lease):
    """The holder hears of the loss before another claim is granted."""
    gateway, proxy = there
    here = start()
    stream = streams.hold(gateway, "x", **lease)
    stream.event("granted")
    claim, = tree.claims(gateway.znode("x"))
    session = tree.stat(gateway.znode("x") + "/" + claim).ephemeralOwner
    waiter, = line(here, tree, "x", here.worker_pids()[:1], wait="5m")
    others = [streams.hold(gateway, "y%d" % i) for i in range(5)]
    for i, other in enumerate(others):
        granted(other, "y%d" % i)

    proxy.hole()
    data = stream.event("ending")
    assert data["reason"] == "zookeeper"
    assert 0 < data["expires_in_ms"] < 6000
    lost(stream, "x", "session")
    told = time.time()
    for i, other in enumerate(others):
        assert other.event("ending")["reason"] == "zookeeper"
        lost(other, "y%d" % i, "session")
    granted(waiter, "x", 20)
    assert told < zookeeper.expirations()[session]
    proxy.pass_on()
    proxy.kill()
    waiter.close()


def test_follower_stops_before_it_reports(ensemble, start, start_proxy,
                                          connect_tree):
    """A follower to which the session moves asks the leader at once, and the
    leader counts from then.  The leader may never know what the follower hears
    later.
    """
    ensemble.start()
    follower, leader = ensemble.follower(), ensemble.leader()
    proxy = start_proxy(follower)
    tree = connect_tree(leader.address)
    gateway = start(servers=proxy.address, wait_sessions=False, workers=1,
                    session_timeout="6s")
    here = start(servers=leader.address, wait_sessions=False, workers=1)
    for each in (gateway, here):
        each.wait_served()
    stream = streams.hold(gateway, "x")
    granted(stream, "x")
    claim, = tree.claims(gateway.znode("x"))
    session = tree.stat(gateway.znode("x") + "/" + claim).ephemeralOwner
    waiter, = line(here, tree, "x", here.worker_pids(), wait="5m")

    proxy.greet_late(3.0)
    fault = proxy.fault("barrier", LAST)
    proxy.kill()
    fault.wait()
    follower.freeze()
    stream.until(lambda event: event.name == "lost")
    told = time.time()
    granted(waiter, "x", 20)
    assert told < leader.expirations()[session]
    waiter.close()


@pytest.mark.parametrize("goes, comes, timeout", [("freeze", "thaw", 10),
                                                  ("kill", "start", 30)])
def test_zookeeper_comes_back(private_zookeeper, start, connect_tree, goes,
                              comes, timeout):
    """ZooKeeper is back in time: a warned holder is told of its lock again, but
    only when the gateway is sure.
    """
    private_zookeeper.start()
    gateway = start(zookeeper=private_zookeeper,
                    session_timeout="%ds" % timeout)
    tree = connect_tree(private_zookeeper.address, timeout=30.0)

    def in_time():
        held = [streams.hold(gateway, "x", worker=worker, mode="shared")
                for worker in gateway.worker_pids()]
        tokens = [stream.event("granted")["token"] for stream in held]
        waiter = streams.hold(gateway, "x", mode="write", wait="5m")
        queued(waiter, "x", 0)

        gone_at = time.monotonic()
        getattr(private_zookeeper, goes)()
        for stream in held:
            data = stream.event("ending")
            assert data["reason"] == "zookeeper"
            assert 0 < data["expires_in_ms"] < timeout * 1000
        assert held[0].silent_for(1.2) and held[1].silent_for(0)
        getattr(private_zookeeper, comes)()
        events = [stream.next(40) for stream in held]
        late = time.monotonic() - gone_at > timeout / 2
        for event, token in zip(events, tokens):
            if event.name == "lost" and late:
                assert event.data["reason"] == "session"
            else:
                assert (event.name, event.data["token"]) == ("granted", token)

        back = all(event.name == "granted" for event in events)
        assert not back or waiter.silent_for(0)
        tree.wait_back()
        for stream in held:
            stream.close()
        waiter.until(lambda event: event.name == "granted")
        waiter.close()
        tree.wait_claims(gateway.znode("x"), 0)
        return back

    # a server that begins may serve its connections late
    assert in_time() or in_time() or in_time()


def test_zookeeper_is_out_of_reach(private_zookeeper, start, connect_tree):
    """A new stream is refused as any acquire is; an old waiter waits on."""
    private_zookeeper.start()
    gateway = start(zookeeper=private_zookeeper, session_timeout="10s",
                    location="zk_lock_timeout 1s;")
    holder = streams.hold(gateway, "x")
    granted(holder, "x")
    tree = connect_tree(private_zookeeper.address, timeout=30.0)
    waiter, = line(gateway, tree, "x", gateway.worker_pids()[:1],
                   wait="5m")
    private_zookeeper.freeze()
    problem(streams.hold(gateway, "y", wait="1s").head(), 503)
    problem(watch(gateway, "y").head(), 503)
    assert waiter.silent_for(0)
    private_zookeeper.thaw()
    tree.wait_back()
    holder.close()
    granted(waiter, "x", 20)
    waiter.close()


# clients that leave

@pytest.mark.shows("a lock that a connection holds ends with the connection")
@every_format
@pytest.mark.parametrize("leave", LEAVES)
def test_client_leaves(gateway, tree, name, leave, accept):
    """The client that leaves holds the lock, or waits for the lock."""
    for worker in gateway.worker_pids():
        holder = hold(gateway, name, accept, worker)
        granted(holder, name)
        leaver, waiter = line(gateway, tree, name,
                              gateway.worker_pids(), accept=accept)
        getattr(leaver, leave)()
        claims(gateway, tree, name, 2)
        queued(waiter, name, 0)
        getattr(holder, leave)()
        granted(waiter, name)
        getattr(waiter, leave)()
        claims(gateway, tree, name, 0)


def test_crowd_leaves(gateway, tree, name):
    """All clients leave at once, in each way, while claims are granted."""
    holders = [hold(gateway, name) for _ in range(60)]
    claims(gateway, tree, name, 60, 20)
    for i, holder in enumerate(holders):
        getattr(holder, LEAVES[i % 3])()
    claims(gateway, tree, name, 0)


def test_client_left_before_its_turn(gateway, tree, name):
    one, other = gateway.worker_pids()
    for leave in LEAVES:
        holder = hold(gateway, name, worker=other)
        granted(holder, name)
        waiter, = line(gateway, tree, name, [one])
        with gateway.frozen_worker(one):
            getattr(waiter, leave)()
            holder.close()
            claims(gateway, tree, name, 1)
        claims(gateway, tree, name, 0)


class Island:
    """A network with a single link, which can be cut."""

    def __init__(self):
        number = random.randrange(1 << 14)
        self.name = "zklock%d" % number
        net = "198.18.%d.%d" % (number >> 6, number % 64 * 4)
        base, last = net.rsplit(".", 1)
        self.here, self.there = ("%s.%d" % (base, int(last) + i)
                                 for i in (1, 2))
        self.made = False

    def __enter__(self):
        try:
            self.ip("netns add %s" % self.name)
            self.made = True
            self.ip("link add %s type veth peer name there netns %s"
                    % (self.name, self.name))
            self.ip("addr add %s/30 dev %s" % (self.here, self.name))
            self.ip("link set %s up" % self.name)
            self.ip("-n %s addr add %s/30 dev there" % (self.name,
                                                        self.there))
            self.ip("-n %s link set there up" % self.name)
        except (OSError, subprocess.CalledProcessError):
            self.__exit__()
            pytest.skip("no network namespaces here")
        return self

    def __exit__(self, *_):
        if self.made:
            self.ip("netns del %s" % self.name)

    @staticmethod
    def ip(command):
        subprocess.run(["ip"] + command.split(), check=True, timeout=30,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def connect(self, port):
        """A connection from the island to the gateway."""
        made = []
        thread = threading.Thread(target=self._connect, args=(port, made))
        thread.start()
        thread.join()
        return made[0]

    def _connect(self, port, made):
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/run/netns/" + self.name) as f:
            assert libc.setns(f.fileno(), CLONE_NEWNET) == 0
        made.append(FarConnection(self.here, port))

    def sink(self):
        self.ip("-n %s link set there down" % self.name)


class FarConnection(Connection):
    def __init__(self, address, port):
        self.port = port
        self.timeout = TIMEOUT
        self.buffer = b""
        self.methods = []
        self.asked = []
        self.socket = socket.create_connection((address, port), TIMEOUT)


def test_client_vanishes(start, tree):
    """The client is gone without a word; nginx probes, and gives up."""
    with Island() as island:
        port = free_port()
        gateway = start(server="listen %s:%d so_keepalive=1s:1s:2;"
                               % (island.here, port))
        stream = hold(gateway, "x", connection=island.connect(port))
        granted(stream, "x")
        other = watch(gateway, "x", connection=island.connect(port))
        other.event("change")
        waiter, = line(gateway, tree, "x", gateway.worker_pids()[:1])
        island.sink()
        granted(waiter, "x", 20)
        claims(gateway, tree, "x", 1)
        waiter.close()


def test_client_starts_anew(start, tree):
    """The client's machine forgot all connections."""
    port = free_port()
    gateway = start(server="listen 127.0.0.1:%d so_keepalive=1s:1s:2;" % port)
    stream = hold(gateway, "x", connection=Connection(port))
    granted(stream, "x")
    waiter, = line(gateway, tree, "x", gateway.worker_pids()[:1])
    try:
        streams.vanish(stream.connection)
    except PermissionError:
        pytest.skip("this may not be done to a socket here")
    granted(waiter, "x", 20)
    waiter.close()


# other ways to come

@pytest.fixture
def http2(shared):
    return shared.connect_http2()


def hold2(connection, name, accept=SSE, **query):
    query.setdefault("hold", "connection")
    stream = Http2Stream(connection, "POST", lock_path(name), query,
                         {"Accept": accept})
    stream.calm = True
    return stream


@every_format
def test_http2(gateway, http2, tree, name, accept):
    """Many streams on the same connection, each a separate client."""
    held = [hold2(http2, name, accept) for _ in range(20)]
    waiting = list(held)
    data = granted(waiting.pop(0), name)
    assert held[0].head().headers["Content-Type"] == accept
    for place, stream in enumerate(waiting):
        queued(stream, name, place)
    response = http2.request("GET", lock_path(name, data["token"]))
    assert response.json["state"] == "held"

    held[0].cancel()
    granted(waiting.pop(0), name)
    waiting[0].cancel()
    claims(gateway, tree, name, 18)
    token = gateway.inspect(name).json["holders"][0]
    assert token["fencing_token"] > data["fencing_token"]
    http2.close()
    claims(gateway, tree, name, 0)


def test_http2_ends(gateway, http2, tree, name):
    stream = hold2(http2, name, ttl="1h")
    token = granted(stream, name, leased=True)["token"]
    wait_ends(gateway, name, lambda: hold2(http2, name, wait="1s"))
    seen = Http2Stream(http2, "GET", lock_path(name), {}, {"Accept": SSE})
    assert len(seen.event("change")["holders"]) == 1
    assert gateway.release(name, token).status == 204
    lost(stream, name, "released")
    assert seen.event("change")["holders"] == []
    seen.cancel()
    assert http2.request("GET", "/ready").status == 204
    http2.reset()


GZIP = ("gzip on; gzip_types text/event-stream application/x-ndjson; "
        "gzip_http_version 1.0; gzip_proxied any; ")

PROXY = """
listen 127.0.0.1:%(port)d;
location /old/ {
    proxy_pass http://127.0.0.1:%(port)d/locks/;
}
location /new/ {
    proxy_pass http://127.0.0.1:%(port)d/locks/;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
}
"""


@pytest.fixture(scope="module")
def proxied(request, tmp_path_factory, zookeeper, tree):
    """A gateway that compresses its answers, and is a proxy for itself."""
    directory = tmp_path_factory.mktemp("proxied")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        yield make(session_timeout=SESSION, location=GZIP,
                   server=PROXY % {"port": free_port()})


def in_time(gateway, tree, name, accept=SSE, **options):
    """Each event arrives at once, and does not wait for later events."""
    holder = hold(gateway, name, accept, **options)
    token = granted(holder, name)["token"]
    waiter = hold(gateway, name, accept, **options)
    queued(waiter, name, 0)
    path = options.pop("path", None)
    seen = watch(gateway, name, accept, path=path, **options)
    assert seen.event("change")["queued"] == 1
    assert gateway.release(name, token).status == 204
    lost(holder, name, "released")
    granted(waiter, name)
    assert seen.event("change")["queued"] == 0
    waiter.close()
    assert seen.event("change")["holders"] == []
    seen.close()
    claims(gateway, tree, name, 0)
    return holder


@every_format
def test_compressed(proxied, tree, name, accept):
    holder = in_time(proxied, tree, name, accept,
                     headers={"Accept-Encoding": "gzip"})
    assert holder.decoder is not None


@pytest.mark.parametrize("coding", ["gzip", "identity"])
@pytest.mark.parametrize("protocol", ["old", "new"])
def test_behind_a_proxy(proxied, tree, name, protocol, coding):
    holder = in_time(proxied, tree, name,
                     path="/%s/%s" % (protocol, name),
                     headers={"Accept-Encoding": coding})
    assert (holder.decoder is not None) == (coding == "gzip")


@every_format
def test_old_protocol(gateway, tree, name, accept):
    """HTTP/1.0 has no chunks: the end of the connection ends the stream."""
    connection = gateway.connect()
    stream = Stream.__new__(Stream)
    streams.Events.__init__(stream)
    stream.connection, stream.method = connection, "POST"
    stream.raw, stream.chunked = b"", False
    request = encode("POST", target(lock_path(name), {"hold": "connection"}),
                     {"Accept": accept})
    connection.send_bytes(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
    token = granted(stream, name)["token"]
    assert stream.head().headers["Connection"] == "close"
    gateway.release(name, token)
    lost(stream, name, "released")


def test_tls(start, tree, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048",
                    "-nodes", "-subj", "/CN=localhost", "-days", "2",
                    "-keyout", str(key), "-out", str(certificate)],
                   check=True, timeout=30, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    port = free_port()
    gateway = start(server="listen 127.0.0.1:%d ssl;\n"
                           "ssl_certificate %s;\nssl_certificate_key %s;"
                           % (port, certificate, key))
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    held = []
    for _ in range(3):
        connection = Connection(port)
        connection.socket = context.wrap_socket(connection.socket)
        gateway.connections.append(connection)
        held.append(hold(gateway, "x", connection=connection))
        held[-1].next()
    claims(gateway, tree, "x", 3)
    held[0].close()
    granted(held[1], "x")
    queued(held[2], "x", 0)
    held[1].close()
    granted(held[2], "x")
    held[2].close()
    claims(gateway, tree, "x", 0)


# workers that leave

@pytest.mark.shows("a lock that a connection holds ends with the connection")
def test_worker_dies(start, tree):
    """The lock is free as soon as another worker takes over."""
    gateway = start(workers=3)
    dead, other, third = gateway.worker_pids()
    holder = hold(gateway, "x", worker=dead)
    granted(holder, "x")
    line(gateway, tree, "x", [dead])
    leased = hold(gateway, "leased", worker=dead, ttl="1h")
    granted(leased, "leased", leased=True)
    kept = gateway.hold("kept", ttl="1h", worker=dead)
    waiter = hold(gateway, "x", worker=other)
    queued(waiter, "x", 1)
    gateway.kill_worker(dead)
    waiter.until(lambda event: event.name == "granted")
    claims(gateway, tree, "x", 1)
    claims(gateway, tree, "leased", 0)
    wait_until(lambda: len(gateway.worker_pids()) == 3, SOON, "a new worker")
    gateway._note_processes()
    gateway.wait_served()
    assert gateway.inspect("kept", kept.token).json["state"] == "held"
    assert gateway.release("kept", kept.token).status == 204
    waiter.close()


def test_all_workers_die(start, tree):
    gateway = start()
    held = [hold(gateway, "x%d" % i, worker=worker)
            for i, worker in enumerate(gateway.worker_pids())]
    for i, stream in enumerate(held):
        granted(stream, "x%d" % i)
    dead = gateway.worker_pids()
    for worker in dead:
        gateway.kill_worker(worker)
    wait_until(lambda: len(gateway.worker_pids()) == 2
               and not set(dead) & set(gateway.worker_pids()), SOON,
               "new workers")
    gateway._note_processes()
    for i in range(len(held)):
        claims(gateway, tree, "x%d" % i, 0)


def test_reload(start, tree):
    """An old worker stays as long as a stream of the worker is open."""
    gateway = start()
    one, other = gateway.worker_pids()
    holder = hold(gateway, "x", worker=one)
    token = granted(holder, "x")["token"]
    waiter, = line(gateway, tree, "x", [other])
    seen = watch(gateway, "x", worker=other)
    assert seen.event("change")["queued"] == 1

    gateway.reload()
    gateway.wait_served()
    for worker in gateway.worker_pids():
        assert gateway.inspect("x", token, worker).json["state"] == "held"
    young, = line(gateway, tree, "x", gateway.worker_pids()[:1])
    assert seen.event("change")["queued"] == 2
    assert holder.silent_for(1)
    assert alive(one) and alive(other)

    holder.close()
    granted(waiter, "x")
    queued(young, "x", 0)
    wait_until(lambda: not alive(one), SOON, "the first worker is gone")
    assert seen.event("change")["queued"] == 1
    waiter.close()
    granted(young, "x")
    assert seen.event("change")["queued"] == 0
    assert seen.silent_for(1)
    assert alive(other)
    seen.close()
    wait_until(lambda: not alive(other), SOON, "the other is gone, too")
    claims(gateway, tree, "x", 1)
    young.close()


def test_shutdown_timeout(start, tree):
    """Each client is told before its connection ends."""
    gateway = start(main="worker_shutdown_timeout 1s;")
    workers = gateway.worker_pids()
    holders = [hold(gateway, "x%d" % i, worker=worker)
               for i, worker in enumerate(workers)]
    for i, holder in enumerate(holders):
        granted(holder, "x%d" % i)
    waiters = line(gateway, tree, "x0", workers)
    old = gateway.reload()
    for i, holder in enumerate(holders):
        lost(holder, "x%d" % i, "shutdown")
    for waiter in waiters:
        data = waiter.until(lambda event: event.name == "lost")
        assert data == {"name": "x0", "reason": "shutdown"}
        assert waiter.ended()
    wait_until(lambda: not any(alive(pid) for pid in old), SOON,
               "the old workers are gone")
    for i in range(len(holders)):
        claims(gateway, tree, "x%d" % i, 0)


# the states of a lock

FREE = {"holders": [], "queue": [], "queued": 0}


@every_format
def test_watch(gateway, tree, name, accept):
    """Each worker tells the changes that any worker makes."""
    seen = [watch(gateway, name, accept, worker)
            for worker in gateway.worker_pids()]
    assert seen[0].head().headers["Content-Type"] == accept
    assert seen[0].head().headers["Cache-Control"] == "no-store"

    def change():
        """What both workers' streams tell."""
        states = [stream.event("change") for stream in seen]
        for state in states:
            assert state["name"] == name
            for claim in state["holders"]:
                claim.pop("expires_in_ms", None)
        assert states[0] == states[1]
        return states[0]

    def free():
        state = change()
        return {key: state[key] for key in FREE} == FREE

    assert free()
    holder = gateway.hold(name, owner="me", ttl="1h")
    state = change()
    assert [claim["owner"] for claim in state["holders"]] == ["me"]
    assert state["holders"][0]["fencing_token"] == holder.fencing
    assert state["queue"] == []
    assert holder.token not in str(state)

    waiter = gateway.begin(name, owner="you")
    state = change()
    assert [claim["owner"] for claim in state["queue"]] == ["you"]
    assert state["queued"] == 1

    gateway.release(name, holder.token)
    state = change()
    assert [claim["owner"] for claim in state["holders"]] == ["you"]
    assert state["queued"] == 0

    gateway.release(name, waiter.response(SOON).token)
    assert free()
    for stream in seen:
        assert stream.silent_for(0.1)
        stream.close()


def test_watch_of_others_claims(gateway, tree, name, foreign):
    """Foreign claims, also claims that are older than the watch."""
    one = foreign.make_claim(gateway.znode(name), data=b"curator")
    seen = watch(gateway, name)
    state = seen.event("change")
    assert [claim["owner"] for claim in state["holders"]] == ["curator"]
    two = foreign.make_claim(gateway.znode(name))
    assert seen.event("change")["queued"] == 1
    foreign.delete(one)
    assert seen.event("change")["queued"] == 0
    foreign.delete(two)
    assert seen.event("change")["holders"] == []
    seen.close()


def test_watch_over_the_making_of_a_lock(start, tree):
    """First the znode and its parents do not exist; later the znode goes."""
    gateway = start()
    seen = watch(gateway, "x")
    assert seen.event("change")["holders"] == []
    for _ in range(2):
        token = gateway.hold("x").token
        assert len(seen.event("change")["holders"]) == 1
        gateway.release("x", token)
        assert seen.event("change")["holders"] == []
        tree.delete_tree(gateway.znode("x"))
    seen.close()


def test_watch_as_a_lock_is_made(gateway, tree, name):
    """The watch begins at any moment, and tells the last state."""
    one, other = gateway.worker_pids()
    for i in range(60):
        lock = "%s-%d" % (name, i)
        acquire = gateway.connect(other)
        acquire.request("GET", "/ready")
        acquire.send("POST", lock_path(lock))
        time.sleep(i % 20 / 5000.0)
        seen = watch(gateway, lock, worker=one)
        token = acquire.response().token
        seen.until(lambda event: len(event.data["holders"]) == 1)
        gateway.release(lock, token)
        seen.until(lambda event: event.data["holders"] == [])
        seen.close()
        acquire.close()


def test_watch_tells_the_last_state(gateway, tree, name):
    """If a lock changes all the time, the stream skips states, but not the
    last.
    """
    seen = watch(gateway, name)
    seen.event("change")
    for i in range(200):
        gateway.release(name, gateway.hold(name).token)
    holder = gateway.hold(name, owner="last")
    seen.until(lambda event: [claim.get("owner") for claim
                              in event.data["holders"]] == ["last"])
    gateway.release(name, holder.token)
    seen.close()


def test_watch_of_a_lock_that_changes_during_a_look(start, start_proxy,
                                                    zookeeper, foreign):
    """ZooKeeper is slow, so the event of a change comes while the look that the
    change before began is under way: between a list and the claims' data.
    """
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, wait_sessions=False, workers=1)
    gateway.wait_served()
    lock = gateway.znode("x")
    claims = [foreign.make_claim(lock)]
    seen = watch(gateway, "x")
    seen.until(lambda event: len(event.data["holders"]) == 1)
    proxy.delay = 0.1
    proxy.mode = "delay"
    for trips in (2.0, 2.5, 3.0, 3.5, 4.0, 4.5):
        claims.append(foreign.make_claim(lock))
        time.sleep(trips * proxy.delay)
        claims.append(foreign.make_claim(lock))
        seen.until(lambda event: event.data["queued"] == len(claims) - 1)
    proxy.pass_on()

    # more claims than a worker reads at a time
    claims += [foreign.make_claim(lock) for _ in range(100)]
    seen.until(lambda event: event.data["queued"] == len(claims) - 1)
    for stays in (True, False):
        proxy.delay = 0.1
        before = proxy.lists[lock]
        claims.append(foreign.make_claim(lock))
        if not stays:
            foreign.delete(claims.pop())
        # the list by which the stream is told, and that of its look
        wait_until(lambda: proxy.lists[lock] >= before + 2, SOON, "a look")
        claims.append(foreign.make_claim(lock))
        seen.until(lambda event: event.data["queued"] == len(claims) - 1)
        proxy.pass_on()
    for claim in claims:
        foreign.delete(claim)
    seen.until(lambda event: event.data["holders"] == [])
    seen.close()


def test_watch_tells_each_state_once(start, start_proxy, zookeeper, foreign):
    """A look that failed is made again, though the lock has not changed since;
    a state that was told is not told again, though the lock has changed since.
    """
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, wait_sessions=False, workers=1,
                    location="zk_lock_timeout 300ms;")
    gateway.wait_served()
    seen = watch(gateway, "x")
    assert seen.event("change")["holders"] == []
    lock = gateway.znode("x")
    queue = []
    for number in range(3):
        # of the look the first answer, or more than that, does not come
        proxy.keep(1 + number)
        queue.append(foreign.make_claim(lock))
        wait_until(lambda: proxy.passing == 0, SOON, "the worker looks")
        problem(gateway.inspect("x"), 503)
        proxy.pass_on()
        state = seen.event("change")
        assert len(state["holders"]) + state["queued"] == len(queue)

        proxy.hole()
        foreign.delete(foreign.make_claim(lock))
        proxy.pass_on()
        # the worker has heard of that before it answers this
        assert gateway.inspect("x").json["queued"] == number
        assert seen.silent_for(0.2)
    seen.close()


def test_head_of_a_watch(gateway, name):
    for accept in FORMATS:
        response = gateway.call("HEAD", lock_path(name),
                                headers={"Accept": accept})
        assert response.status == 200
        assert response.headers["Content-Type"] == accept
        assert response.body == b""


@pytest.mark.parametrize("accept", [None, "*/*", "application/json"])
def test_no_watch(gateway, name, accept):
    """A client that accepts no stream gets a single state."""
    headers = streams.accepting(None, accept)
    token = gateway.hold(name).token
    response = gateway.call("GET", lock_path(name), headers=headers)
    assert response.headers["Content-Type"] == "application/json"
    gateway.release(name, token)
    problem(gateway.call("GET", lock_path(name), headers=headers), 404)


def test_watch_over_an_outage(private_zookeeper, start, connect_tree):
    """The stream goes on, and tells the changes that it missed."""
    private_zookeeper.start()
    gateway = start(zookeeper=private_zookeeper)
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    claim = tree.make_claim(gateway.znode("x"))
    seen = [watch(gateway, "x", worker=worker)
            for worker in gateway.worker_pids()]
    for stream in seen:
        assert len(stream.event("change")["holders"]) == 1
    private_zookeeper.kill()
    wait_until(lambda: gateway.inspect("x").status == 503, 20,
               "it is out of reach")
    private_zookeeper.start()
    tree.wait_back()
    tree.delete(claim)
    for stream in seen:
        assert stream.event("change", 60)["holders"] == []
        stream.close()


# streams that go on for long

def test_signs_of_life(gateway, tree, name):
    held = [hold(gateway, name, SSE)]
    granted(held[0], name)
    held += line(gateway, tree, name, gateway.worker_pids()[:1],
                 accept=LINES)
    seen = [watch(gateway, name, accept) for accept in FORMATS]
    for stream in seen:
        stream.event("change")
    for stream in held + seen:
        stream.wait_alive(1, 40)
        assert not stream.events
    for stream in held[::-1] + seen:
        stream.close()


def memory(pid):
    """The KiB that a process has in memory."""
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"^VmRSS:\s*(\d+) kB$", f.read(), re.M).group(1))


def crowd(gateway, tree, name, number):
    """So many claims with long data, so that a state is big."""
    body = {"data": "x" * 1000}
    waiters = [gateway.begin(name, body, wait="5m") for _ in range(number)]
    claims(gateway, tree, name, number + 1, 30)
    return waiters


@pytest.mark.plain("they keep what is freed")
def test_memory_does_not_grow(start, tree):
    """The worker frees each big event when the event is sent."""
    gateway = start(workers=1)
    holder = gateway.hold("x", ttl="1h")
    crowd(gateway, tree, "x", 90)
    worker, = gateway.worker_pids()
    seen = [watch(gateway, "x") for _ in range(4)]

    def shake(times):
        for _ in range(times):
            waiter = gateway.begin("x", wait="1m")
            for stream in seen:
                stream.until(lambda event: event.data["queued"] == 91)
            waiter.close()
            for stream in seen:
                stream.until(lambda event: event.data["queued"] == 90)

    shake(10)
    before, told = memory(worker), seen[0].size
    shake(60)
    told = seen[0].size - told
    grown = memory(worker) - before
    assert told > 100 * 90 * 1000
    assert grown < 4096, "%d KiB for %d bytes, four times" % (grown, told)
    for stream in seen:
        stream.close()
    gateway.release("x", holder.token)


def test_slow_reader(start, tree):
    """The worker drops a slow reader, and other readers do not wait."""
    port = free_port()
    gateway = start(workers=1, location="send_timeout 3s;",
                    server="listen 127.0.0.1:%d sndbuf=8k;" % port)
    holder = gateway.hold("x", ttl="1h")
    crowd(gateway, tree, "x", 90)
    slow = [narrow(port) for _ in range(3)]
    for connection in slow:
        connection.send("GET", lock_path("x"), headers={"Accept": SSE})
    quick = watch(gateway, "x")
    quick.event("change")

    def dropped():
        waiter = gateway.begin("x", wait="1m")
        quick.until(lambda event: event.data["queued"] == 91)
        waiter.close()
        quick.until(lambda event: event.data["queued"] == 90)
        return gateway.log_text().count("does not read its events") == 3

    wait_until(dropped, 30, "those who do not read are dropped")
    assert gateway.inspect("x", holder.token).json["state"] == "held"
    quick.close()
    gateway.release("x", holder.token)


@pytest.mark.parametrize("keepalive", ["", "so_keepalive=8s:4s:3"])
def test_slow_reader_catches_up(start, tree, keepalive):
    """The reader misses states, but not the last state. nginx does not drop a
    reader that is away for less time than keepalive allows.
    """
    port = free_port()
    gateway = start(workers=1, server="listen 127.0.0.1:%d sndbuf=8k %s;"
                                      % (port, keepalive))
    holder = gateway.hold("x", ttl="1h", durable="1")
    waiting = crowd(gateway, tree, "x", 90)
    slow = watch(gateway, "x", connection=narrow(port))
    quick = watch(gateway, "x")
    quick.event("change")
    for _ in range(10):
        waiter = gateway.begin("x", wait="1m")
        quick.until(lambda event: event.data["queued"] == 91)
        waiter.close()
        quick.until(lambda event: event.data["queued"] == 90)
    for waiter in waiting:
        waiter.close()
    quick.until(lambda event: event.data["queued"] == 0)

    # no change of the lock is to come, and the rest of the slow stream between
    # two events is over, too

    other = watch(gateway, "y")
    other.event("change")
    second = gateway.hold("y")
    other.event("change")

    events = 1
    while slow.event("change")["queued"] != 0:
        events += 1
    assert events < 10
    for stream in (slow, quick, other):
        stream.close()
    gateway.release("x", holder.token)
    gateway.release("y", second.token)


def narrow(port):
    """A connection that takes little data before the test reads."""
    connection = Connection.__new__(Connection)
    connection.port, connection.timeout = port, TIMEOUT
    connection.buffer, connection.methods, connection.asked = b"", [], []
    connection.socket = narrow_socket(port)
    return connection


def narrow_socket(port):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    return sock


class NarrowHttp2(Http2Connection):
    """The same over HTTP/2, where only the connection sets limits."""

    def __init__(self, port):
        super().__init__(port)
        self.socket.close()
        self.socket = narrow_socket(port)
        self.socket.settimeout(TIMEOUT)
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(header_encoding="latin-1"))
        self.h2.local_settings.initial_window_size = 1 << 24
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(1 << 24)
        self._flush()


@pytest.mark.parametrize("leave", ["cancel", "close", "reset", "stay"])
def test_http2_does_not_read(start, tree, leave):
    """Some or all streams end in the middle of an event.  The rest of the event
    is sent, from memory that is still valid.
    """
    port = free_port()
    # only the client that stays is to be dropped
    timeout = 3 if leave == "stay" else 60
    gateway = start(workers=1, location="send_timeout %ds;" % timeout,
                    server="listen 127.0.0.1:%d http2 sndbuf=8k;" % port)
    holder = gateway.hold("x", ttl="1h")
    crowd(gateway, tree, "x", 60)
    connection = NarrowHttp2(port)
    seen = [Http2Stream(connection, "GET", lock_path("x"), {},
                        {"Accept": SSE}) for _ in range(4)]
    held = hold2(connection, "y")
    claims(gateway, tree, "y", 1)
    quick = watch(gateway, "x")
    quick.event("change")
    waiter = hold(gateway, "y")
    queued(waiter, "y", 0)

    if leave == "cancel":
        for stream in seen[:3] + [held]:
            stream.cancel()
        granted(waiter, "y")
        while seen[3].event("change")["queued"] != 60:
            pass
    elif leave == "stay":
        granted(waiter, "y", 20)
        wait_until(lambda: gateway.log_text().count("does not read"), 20)
    else:
        getattr(connection, leave)()
        granted(waiter, "y")

    another = gateway.begin("x")
    assert quick.event("change")["queued"] == 61
    another.close()
    waiter.close()
    claims(gateway, tree, "y", 0)
    connection.close()
    gateway.release("x", holder.token)


# for operators

def test_logs(start, tree):
    """The log line of a stream that has ended, with the wait time."""
    gateway = start(
        http="log_format locks '$request_method $status $zk_lock_name "
             "$zk_lock_outcome $zk_lock_wait_time $zk_lock_fencing_token';",
        server="access_log locks.log locks;")
    path = gateway.prefix + "/locks.log"

    def logged():
        # ZooKeeper may stall as the wait ends
        return [line for line in whole_lines(path) if " x " in line
                and " unreachable " not in line]

    def last(number):
        wait_until(lambda: len(logged()) == number, SOON, "it is logged")
        return logged()[-1]

    holder = hold(gateway, "x")
    data = granted(holder, "x")
    fencing = data["fencing_token"]
    wait_ends(gateway, "x", lambda: hold(gateway, "x", wait="1s"))
    assert re.match(r"POST 200 x taken [1-9]", last(1))
    waiter, = line(gateway, tree, "x", gateway.worker_pids()[:1])
    waiter.close()
    assert last(2).startswith("POST 200 x gone ")
    holder.close()
    assert re.match(r"POST 200 x granted \d\.\d{3} %d$" % fencing, last(3))

    holder = hold(gateway, "x")
    granted(holder, "x")
    tree.delete(gateway.znode("x") + "/"
                + tree.claims(gateway.znode("x"))[0])
    lost(holder, "x", "deleted")
    assert last(4).startswith("POST 200 x lost ")

    seen = watch(gateway, "x")
    seen.event("change")
    seen.close()
    assert last(5).startswith("GET 200 x watched - -")

    holder = hold(gateway, "x")
    token = granted(holder, "x")["token"]
    gateway.release("x", token)
    lost(holder, "x", "released")
    wait_until(lambda: len(logged()) == 7, SOON, "it is logged")
    assert any(line.startswith("POST 200 x released ") for line in logged())
