"""zk_lock_metrics: counters agree with what clients were told.

A request is counted once, when it has ended, in the zone: so a counter outlives
the worker that counted, and is the same at each worker.  The names, the help
and the types are what Prometheus' own program wants to see.

ZK_LOCK_CALLS is how many calls the clients of the last test make, while workers
die and nginx reloads.
"""

import collections
import contextlib
import os
import random
import shutil
import subprocess
import time

import pytest

from lib import streams
from lib.backend import Backend
from lib.checks import problem
from lib.client import lock_path
from lib.holders import wait_dead
from lib.metrics import Crowd, Scraper, counted, more, series, text
from lib.process import wait_until

CALLS = int(os.environ.get("ZK_LOCK_CALLS") or 3000)
CLIENTS = 12

SOON = 20.0
FAR = 40.0

SERVER = """
location = /guarded { zk_lock $arg_lock wait=0; try_files /none =204; }
location = /patient { zk_lock $arg_lock; try_files /none =204; }
location = /single { zk_lock $arg_lock; zk_lock_max_claims 1 all;
                     try_files /none =204; }
location = /modes { zk_lock $arg_lock; zk_lock x mode=shared;
                    try_files /none =204; }
location /one/ { zk_lock_api; zk_lock_max_claims 1 $arg_owner; }
location = /required { zk_lock_require $arg_lock; try_files /none =204; }
location /short/ { zk_lock_api; zk_lock_max_queue 1; }
location /nobody/ { zk_lock_api; zk_lock_admin off; }
location = /operator { zk_lock_health; zk_lock_admin on; }
"""


@pytest.fixture
def start(start_gateway):
    def start(**options):
        options.setdefault("session_timeout", "60s")
        options.setdefault("location", "zk_lock_admin on;")
        return start_gateway(metrics=True, server=SERVER
                             + options.pop("server", ""), **options)
    return start


def ready(gateway):
    """Each worker takes locks; no request is counted that asks for health."""
    for worker in gateway.worker_pids():
        wait_until(lambda: gateway.call("GET", "/operator", worker=worker
                                        ).status == 200, FAR,
                   "each worker takes locks")


@pytest.fixture
def gateway(start):
    gateway = start()
    ready(gateway)
    return gateway


@contextlib.contextmanager
def counts(gateway, expected):
    """The requests of the block are counted as this, and as nothing else."""
    def settled():
        return counted(gateway)
    before = settled()
    yield
    wait_until(lambda: more(settled(), before) == dict(expected), SOON,
               "%r is counted, not %r" % (expected,
                                          more(settled(), before)))


def holds(gateway):
    return series(gateway)["zk_lock_hold_seconds_count"]


def grants(gateway, outcome="granted"):
    return series(gateway)['zk_lock_wait_seconds_count{outcome="%s"}'
                           % outcome]


# the form

def test_promtool(gateway):
    """Names, units, help and types, with a series of each kind."""
    acquires(gateway)
    program = shutil.which("promtool")
    assert program, "no promtool: scripts/install-deps test"
    run = subprocess.run([program, "check", "metrics"], timeout=30,
                         input=text(gateway).encode(),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert (run.returncode, run.stdout) == (0, b""), run.stdout.decode()


def test_media_type(gateway):
    for method in ("GET", "HEAD"):
        response = gateway.call(method, "/metrics")
        assert response.status == 200
        assert response.headers["Content-Type"] == (
            "text/plain; version=0.0.4; charset=utf-8")
        assert int(response.headers["Content-Length"]) > 1000


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
def test_other_methods(gateway, method):
    response = gateway.call(method, "/metrics", body=b"text")
    problem(response, 405)
    assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("header, value", [
    ("If-None-Match", "*"), ("If-Match", '"x"'),
    ("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")])
def test_conditions(gateway, header, value):
    """The metrics have no version: 200, not 304 or 412."""
    response = gateway.call("GET", "/metrics", headers={header: value})
    assert response.status == 200 and response.body


def test_histograms_are_whole(gateway):
    """Buckets grow with their bounds; the last bucket is the count."""
    acquires(gateway)
    found = series(gateway)
    buckets = collections.defaultdict(list)
    for name, value in found.items():
        if "_bucket{" in name:
            head, _, bound = name.rstrip('"}').partition('le="')
            buckets[head.rstrip(",{")].append((float(bound.replace("+Inf",
                                                                   "inf")),
                                               value))
    assert len(buckets) == 5
    for head, pairs in buckets.items():
        assert pairs == sorted(pairs), head
        assert [value for _, value in pairs] == sorted(
            value for _, value in pairs), head
        assert pairs[-1][0] == float("inf")
        count = head.replace("_bucket", "_count")
        assert found[count + "}" if "{" in count else count] == pairs[-1][1]


def test_no_name_of_a_lock(gateway):
    """No label has a value that a client chooses."""
    gateway.release("very-secret", gateway.hold("very-secret").token)
    gateway.call("GET", "/guarded", {"lock": "very-secret"})
    wait_until(lambda: counted(gateway)["guard", "granted"], SOON)
    assert "secret" not in text(gateway)


# each call

def with_token(gateway, method, name, token, path="/locks/", **query):
    return gateway.call(method, lock_path(name, prefix=path), query,
                        {"Lock-Token": token})


class Expected(collections.Counter):
    """What requests are counted as."""

    def note(self, call, outcome, response, status):
        assert response.status == status, response
        self[call, outcome] += 1
        return response


def acquires(gateway):
    """Makes acquires and releases; what they are counted as."""
    expected = Expected()
    note = expected.note

    holder = note("acquire", "granted", gateway.acquire("a"), 201)
    note("acquire", "taken", gateway.acquire("a", wait="0"), 423)
    note("acquire", "taken", gateway.acquire("a", wait="10ms"), 423)
    note("acquire", "invalid", gateway.acquire("a", ttl="0"), 400)
    queued = note("acquire", "queued", gateway.acquire(
        "a", headers={"Prefer": "respond-async"}, wait="1m"), 202)
    note("acquire", "full", gateway.call("POST", "/short/a"), 429)
    note("inspect", "queued", gateway.inspect("a", queued.token), 200)
    note("renew", "queued", gateway.renew("a", queued.token), 202)
    note("release", "released", gateway.release("a", queued.token), 204)
    note("release", "lost", gateway.release("a", queued.token), 410)
    note("release", "released", gateway.release("a", holder.token), 204)

    seat = note("acquire", "granted", gateway.acquire(
        "s", mode="semaphore", permits=2), 201)
    note("acquire", "conflict", gateway.acquire(
        "s", mode="semaphore", permits=3, wait="0"), 409)
    note("release", "released", gateway.release("s", seat.token), 204)

    key = {"Idempotency-Key": '"one"'}
    keyed = note("acquire", "granted", gateway.acquire("k", headers=key), 201)
    note("acquire", "held", gateway.acquire("k", headers=key), 200)
    note("acquire", "refused", gateway.acquire("k", headers=key, ttl="1s"),
         422)
    note("release", "released", gateway.release("k", keyed.token), 204)

    pair = note("acquire", "granted", gateway.call(
        "POST", "/locks/", body={"names": ["a", "b"]}), 201)
    for method, call, outcome, status in (
            ("PUT", "renew", "held", 200), ("GET", "inspect", "held", 200),
            ("DELETE", "release", "released", 204)):
        note(call, outcome, gateway.call(method, "/locks/", None, {
            "Lock-Token": pair.token}), status)

    info = {"ID": "4711"}
    note("acquire", "granted", gateway.call("LOCK", "/locks/t", body=info),
         200)
    note("acquire", "taken", gateway.call("LOCK", "/locks/t", {"wait": "0"},
                                          body={"ID": "4712"}), 423)
    note("release", "released", gateway.call("UNLOCK", "/locks/t", body=info),
         200)
    return expected


def holders(gateway):
    """Calls with a token, and looks."""
    expected = Expected()
    note = expected.note

    token = note("acquire", "granted", gateway.acquire("h"), 201).token
    note("renew", "held", gateway.renew("h", token), 200)
    note("renew", "invalid", gateway.renew("h", token, ttl="0"), 400)
    note("hold", "held", with_token(gateway, "POST", "h", token), 200)
    note("inspect", "held", gateway.inspect("h", token), 200)
    look = note("inspect", "listed", gateway.inspect("h"), 200)
    tag = {"If-None-Match": look.headers["ETag"]}
    note("inspect", "unchanged", gateway.call("GET", lock_path("h"), None,
                                              tag), 304)
    note("watch", "unchanged", gateway.call(
        "GET", lock_path("h"), {"wait": "10ms"}, tag), 304)
    note("watch", "taken", gateway.call(
        "GET", lock_path("h"), {"until": "free", "wait": "10ms"}), 423)
    note("inspect", "free", gateway.inspect("nobodys"), 404)
    note("list", "listed", gateway.call("GET", "/locks/"), 200)
    note("list", "invalid", gateway.call("GET", "/locks/", {"limit": "0"}),
         400)
    note("release", "held", gateway.release("h", token), 200)
    note("release", "released", gateway.release("h", token), 204)
    for call, method in (("renew", "PUT"), ("hold", "POST"),
                         ("inspect", "GET"), ("release", "DELETE")):
        note(call, "lost", with_token(gateway, method, "h", token), 410)
    note("watch", "free", gateway.call(
        "GET", lock_path("h"), {"until": "free", "wait": "1s"}), 204)
    note("other", "invalid", gateway.call("PATCH", "/locks/h"), 405)
    note("other", "invalid", gateway.inspect("h", "A" * 32), 404)
    return expected


def operators(gateway):
    expected = Expected()
    note = expected.note

    def ask(method, path, **query):
        return gateway.call(method, path, query, {"If-Match": "*"})

    note("acquire", "granted", gateway.acquire("o"), 201)
    note("revoke", "revoked", ask("PUT", "/locks/o", revoke="1"), 202)
    note("revoke", "free", ask("PUT", "/locks/f", revoke="1"), 404)
    note("revoke", "refused", ask("PUT", "/nobody/o", revoke="1"), 403)
    note("break", "refused", ask("DELETE", "/nobody/o", force="1"), 403)
    note("break", "broken", ask("DELETE", "/locks/o", force="1"), 204)
    note("break", "free", ask("DELETE", "/locks/o", force="1"), 404)
    return expected


def guards(gateway):
    """Requests around any content; an empty name is no request for a lock."""
    expected = Expected()
    note = expected.note

    def ask(path, token=None, **query):
        return gateway.call("GET", path, query,
                            {"Lock-Token": token} if token else None)

    assert ask("/guarded").status == ask("/required").status == 204
    token = gateway.acquire("g").token
    expected["acquire", "granted"] += 1
    note("guard", "granted", ask("/guarded", lock="g2"), 204)
    note("guard", "taken", ask("/guarded", lock="g"), 423)
    note("require", "passed", ask("/required", token, lock="g"), 204)
    note("require", "refused", ask("/required", lock="g"), 423)
    note("require", "refused", ask("/required", token, lock="g2"), 412)
    assert gateway.release("g", token).status == 204
    expected["release", "released"] += 1
    return expected


def drains(gateway):
    """New locks are refused; the gauge says so."""
    expected = collections.Counter()
    gateway.call("PUT", "/operator", {"drain": "on"})
    assert series(gateway)["zk_lock_drained"] == 1
    assert gateway.acquire("d").status == 503
    assert gateway.call("GET", "/guarded", {"lock": "d"}).status == 503
    gateway.call("PUT", "/operator", {"drain": "off"})
    assert series(gateway)["zk_lock_drained"] == 0
    expected.update([("acquire", "drained"), ("guard", "drained")])
    return expected


KINDS = [acquires, holders, operators, guards, drains]


def waiting(gateway, number):
    wait_until(lambda: gateway.metrics()["claims", "waiting"] == number, SOON,
               "%d wait" % number)


def streams_that_end(gateway):
    """Each stream is counted by its last event, or by its grant."""
    expected = Expected()
    holder = streams.hold(gateway, "s")
    holder.event("granted")
    refused = streams.hold(gateway, "s", wait="1s")
    refused.until(lambda event: event.name == "taken")
    expected["acquire", "taken"] += 1
    leaver = streams.hold(gateway, "s", wait="1m")
    leaver.event("queued")
    leaver.close()
    expected["acquire", "gone"] += 1
    waiting(gateway, 0)
    heir = streams.hold(gateway, "s", wait="1m")
    heir.event("queued")
    expected.note("break", "broken", gateway.call(
        "DELETE", "/locks/s", {"force": "1"}, {"If-Match": "*"}), 204)
    holder.until(lambda event: event.name == "lost")
    expected["acquire", "released"] += 1
    heir.until(lambda event: event.name == "granted")
    heir.close()
    expected["acquire", "granted"] += 1
    leased = streams.hold(gateway, "l", ttl="100ms")
    leased.until(lambda event: event.name == "lost")
    expected["acquire", "lost"] += 1
    expected.note("acquire", "invalid", gateway.acquire(
        "s", hold="connection", mode="no"), 400)
    return expected


def several_that_end(gateway):
    expected = Expected()

    def ask(path="/locks/", **body):
        return gateway.call("POST", path, body=dict({"names": ["a", "b"]},
                                                    **body))

    holder = expected.note("acquire", "granted", gateway.acquire("b"), 201)
    expected.note("acquire", "taken", ask(wait="10ms"), 423)
    expected.note("acquire", "conflict", ask(mode="member"), 409)
    expected.note("acquire", "invalid", ask(wait="x"), 400)
    expected.note("acquire", "quota", ask("/one/?owner=me"), 429)
    # "b" is the first that is asked for, so the claim that waits is that of "b"
    leaver = gateway.connect().send("POST", "/locks/", body={
        "names": ["b", "c"], "wait": "1m"})
    waiting(gateway, 1)
    expected.note("acquire", "full", ask(
        "/short/", names=["b", "c"]), 429)
    leaver.close()
    expected["acquire", "gone"] += 1
    waiting(gateway, 0)
    gateway.release("b", holder.token)
    expected["release", "released"] += 1

    token = expected.note("acquire", "granted", ask(), 201).token
    expected.note("break", "broken", gateway.call(
        "DELETE", "/locks/a", {"force": "1"}, {"If-Match": "*"}), 204)
    for method, call in (("GET", "inspect"), ("PUT", "renew"),
                         ("DELETE", "release")):
        expected.note(call, "lost", gateway.call(
            method, "/locks/", headers={"Lock-Token": token}), 410)
    return expected


def guards_that_end(gateway):
    expected = Expected()

    def ask(path, lock="g"):
        return gateway.call("GET", path, {"lock": lock})

    holder = expected.note("acquire", "granted", gateway.acquire("g"), 201)
    expected.note("acquire", "granted", gateway.acquire(
        "m", mode="semaphore", permits=2), 201)
    leaver = gateway.connect().send("GET", "/patient", {"lock": "g"})
    waiting(gateway, 1)
    leaver.close()
    expected["guard", "gone"] += 1
    waiting(gateway, 0)
    waiter = gateway.connect().send("GET", "/single", {"lock": "g"})
    waiting(gateway, 1)
    expected.note("guard", "quota", ask("/single"), 429)
    expected.note("release", "released", gateway.release(
        "g", holder.token), 204)
    expected.note("guard", "granted", waiter.response(SOON), 204)
    expected.note("guard", "conflict", ask("/guarded", "m"), 409)
    expected.note("guard", "invalid", ask("/modes", "x"), 400)
    expected.note("guard", "granted", ask("/modes", "y"), 204)
    return expected


ENDINGS = [streams_that_end, several_that_end, guards_that_end]


@pytest.mark.parametrize("kind", KINDS + ENDINGS,
                         ids=lambda kind: kind.__name__)
def test_each_call(gateway, kind):
    """Each worker tells what all workers have counted."""
    for _ in range(2):
        before = counted(gateway)
        expected = kind(gateway)
        for worker in gateway.worker_pids():
            way = gateway.connect(worker)
            wait_until(lambda: more(counted(way), before) == expected, SOON,
                       "%r is counted, not %r"
                       % (expected, more(counted(way), before)))


def test_over_reloads_and_deaths(gateway):
    """What was counted stays counted, and no death counts anything twice."""
    expected = collections.Counter()
    with Scraper(gateway) as scraper:
        for turn in range(4):
            for kind in KINDS:
                expected += kind(gateway)
            wait_until(lambda: counted(gateway) == expected, SOON,
                       "the counters agree")
            if turn % 2:
                wait_dead(gateway.reload())
            else:
                die(gateway, gateway.worker_pids()[0])
            ready(gateway)
        assert scraper.answers > 10
    wait_until(lambda: counted(gateway) == expected, SOON)


def die(gateway, worker):
    """A worker dies, and a new worker is there."""
    gateway.kill_worker(worker)
    wait_until(lambda: worker not in gateway.worker_pids()
               and len(gateway.worker_pids()) == gateway.workers, SOON)


# what ends later, or otherwise

def test_streams(gateway):
    """A stream is counted when the stream ends."""
    with counts(gateway, {("acquire", "released"): 1,
                          ("release", "released"): 1,
                          ("watch", "watched"): 1}):
        watch = streams.watch(gateway, "x")
        watch.next()
        events = streams.hold(gateway, "x", wait="5s")
        token = events.event("granted")["token"]
        before = counted(gateway)
        assert not before["acquire", "released"]
        assert not before["watch", "watched"]
        gateway.call("DELETE", lock_path("x"), headers={"Lock-Token": token})
        events.until(lambda event: event.name == "lost")
        watch.close()


def test_clients_that_leave(gateway, tree):
    holder = gateway.hold("x")
    with counts(gateway, {("acquire", "gone"): 3}):
        waiters = [gateway.begin("x", wait="1m") for _ in range(3)]
        tree.wait_claims(gateway.znode("x"), 4)
        for waiter in waiters:
            waiter.close()
        tree.wait_claims(gateway.znode("x"), 1)
    gateway.release("x", holder.token)


def test_old_workers(start, tree):
    """An old worker counts, until it has to leave."""
    gateway = start(main="worker_shutdown_timeout 1s;")
    holder = gateway.hold("x")
    with counts(gateway, {("acquire", "shut"): 2}):
        waiters = [gateway.begin("x", wait="1m") for _ in range(2)]
        tree.wait_claims(gateway.znode("x"), 3)
        gateway.reload()
        for waiter in waiters:
            assert waiter.response().status == 503
    gateway.release("x", holder.token)


def test_guarded_request_is_lost(guarded, tree):
    """The word of the loss, and not that of the grant before."""
    application = Backend()
    gateway = guarded("zk_lock one;",
                      "proxy_pass http://%s;" % application.address,
                      metrics=True)
    with counts(gateway, {("guard", "lost"): 1}):
        connection = gateway.connect().send("GET", "/app/")
        application.next()
        for claim in tree.claims(gateway.znode("one")):
            tree.delete(gateway.znode("one") + "/" + claim)
        assert connection.response().status == 503
    application.close()


def test_no_room(start):
    gateway = start(workers=1, http="zk_lock_zone 256k;")
    ready(gateway)
    limit = series(gateway)["zk_lock_claims_limit"]
    with gateway.connect() as connection:
        for number in range(int(limit) + 1):
            response = connection.request("POST", "/locks/x%d" % number,
                                          {"ttl": "1h"})
            if response.status != 201:
                break
        wait_until(lambda: counted(gateway)["acquire", "no_room"] == 1, SOON)
        assert counted(gateway)["acquire", "granted"] == number
        assert series(gateway)["zk_lock_claims_used"] == number


def test_out_of_reach(private_zookeeper, start):
    """Each call that needs ZooKeeper is unreachable; sessions have events."""
    private_zookeeper.start()
    gateway = start(zookeeper=private_zookeeper, session_timeout="8s",
                    location="zk_lock_timeout 500ms; zk_lock_admin on;",
                    workers=1, server="zk_lock_timeout 500ms;")
    ready(gateway)
    token = gateway.hold("x").token
    before = series(gateway)
    assert before['zk_lock_session_events_total{event="connected"}'] == 1
    private_zookeeper.freeze()
    with counts(gateway, {(call, "unreachable"): 1 for call in (
            "acquire", "release", "renew", "hold", "inspect", "list",
            "break", "revoke", "guard")}):
        for method, path, query, headers in (
                ("POST", "/locks/y", {"wait": "0"}, {}),
                ("DELETE", "/locks/x", {}, {"Lock-Token": token}),
                ("PUT", "/locks/x", {}, {"Lock-Token": token}),
                ("POST", "/locks/x", {}, {"Lock-Token": token}),
                ("GET", "/locks/x", {}, {}),
                ("GET", "/locks/", {}, {}),
                ("DELETE", "/locks/y", {"force": "1"}, {"If-Match": "*"}),
                ("PUT", "/locks/y", {"revoke": "1"}, {"If-Match": "*"}),
                ("GET", "/guarded", {"lock": "y"}, {})):
            response = gateway.call(method, path, query, headers)
            assert response.status == 503, (method, path, response)
    wait_until(lambda: series(gateway)[
        'zk_lock_session_events_total{event="suspended"}'] == 1, FAR)
    private_zookeeper.thaw()
    wait_until(lambda: series(gateway)[
        'zk_lock_session_events_total{event="connected"}'] > 1, FAR)


def test_expired(zookeeper, tree, start_proxy, start):
    """A claim that goes with its session shows that the session is over."""
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, wait_sessions=False, workers=1,
                    session_timeout="5s")
    ready(gateway)
    gateway.begin("x", wait="1m", hold="connection")
    tree.wait_claims(gateway.znode("x"), 1)
    events = session_events(gateway)
    proxy.hole()
    tree.wait_claims(gateway.znode("x"), 0, FAR)
    assert series(gateway)["zk_lock_session_alive_seconds"] == 0
    wait_until(lambda: more(session_events(gateway), events)
               == {"suspended": 1}, FAR, "the connection is lost")
    proxy.kill()
    proxy.pass_on()
    for event in ("expired", "connected"):
        wait_until(lambda: more(session_events(gateway), events).get(event)
                   == 1, FAR, event)


def session_events(gateway):
    head = 'zk_lock_session_events_total{event="'
    return {name[len(head):-2]: value for name, value
            in series(gateway).items() if name.startswith(head)}


# times

def test_waits(gateway, tree):
    """Grants and refusals by the wait; the sum is that of the waits."""
    before = series(gateway)
    began = time.monotonic()
    holder = gateway.hold("x")
    waiter = gateway.begin("x", wait="1m")
    tree.wait_claims(gateway.znode("x"), 2)
    assert gateway.acquire("x", wait="1s").status == 423
    gateway.release("x", holder.token)
    gateway.release("x", waiter.response().token)
    most = time.monotonic() - began

    head = "zk_lock_wait_seconds_%s{outcome=\"%s\"}"

    def counted_waits():
        found = more(series(gateway), before)
        return [found.get(head % ("count", outcome))
                for outcome in ("granted", "taken")]

    # a worker counts after the answer
    wait_until(lambda: counted_waits() == [2, 1], SOON, "the waits count")
    found = more(series(gateway), before)
    for outcome in ("granted", "taken"):
        assert 0.9 < found[head % ("sum", outcome)] <= most + 0.1
    bucket = 'zk_lock_wait_seconds_bucket{outcome="taken",le="%s"}'
    assert bucket % "0.5" not in found and found[bucket % "60"] == 1


@pytest.mark.parametrize("end", ["release", "lease", "break", "death"])
def test_hold(gateway, tree, end):
    """A hold counts once, however it ends, with the whole time."""
    worker, other = gateway.worker_pids()
    before = series(gateway)
    holder = gateway.hold("x", worker=worker,
                          ttl="6s" if end == "lease" else "1h")
    began = time.monotonic()
    waiter = gateway.begin("x", wait="10ms", worker=other)
    assert waiter.response().status == 423
    if end == "death":
        die(gateway, worker)
        for pid in gateway.worker_pids():
            wait_until(lambda: gateway.inspect("x", holder.token, worker=pid
                                               ).status == 200, FAR)
    if end == "break":
        assert gateway.call("DELETE", "/locks/x", {"force": "1"},
                            {"If-Match": "*"}).status == 204
    elif end != "lease":
        assert gateway.release("x", holder.token).status == 204
    least = time.monotonic() - began
    tree.wait_claims(gateway.znode("x"), 0, SOON)
    wait_until(lambda: holds(gateway) > before["zk_lock_hold_seconds_count"],
               SOON, "the hold is counted")

    # nothing is left that could count the hold once more
    wait_until(lambda: gateway.metrics()["claims_used", ""] == 0, SOON)
    found = more(series(gateway), before)
    assert found["zk_lock_hold_seconds_count"] == 1
    assert found['zk_lock_wait_seconds_count{outcome="granted"}'] == 1
    assert found["zk_lock_hold_seconds_sum"] >= least - 0.1
    if end == "lease":
        assert found["zk_lock_hold_seconds_sum"] >= 5.9


def test_operations(gateway, zookeeper):
    """Answers of ZooKeeper: as many times as operations that went alone."""
    for number in range(20):
        gateway.release("x%d" % number, gateway.hold("x%d" % number).token)
    found = series(gateway)
    for operation in ("read", "write"):
        count = found['zk_lock_zookeeper_seconds_count{operation="%s"}'
                      % operation]
        total = found['zk_lock_zookeeper_operations_total{operation="%s"}'
                      % operation]
        assert 20 < count <= total or operation == "read", found
    assert found["zk_lock_zookeeper_transactions_total"] <= found[
        'zk_lock_zookeeper_operations_total{operation="write"}']


# many clients

def test_agreement(start):
    """Workers die and nginx reloads under many clients.  The counters differ
    from what the clients saw by no more than the calls that were in flight in
    workers that died.
    """
    gateway = start(workers=3)
    ready(gateway)
    before = counted(gateway)
    began = series(gateway)
    crowd = Crowd(gateway, CLIENTS)
    dead = []
    with Scraper(gateway) as scraper, crowd:
        dice = random.Random(1)
        step = max(200, CALLS // 40)
        for at in range(step, CALLS + 1, step):
            crowd.wait_calls(at)
            if dice.random() < 0.3:
                gateway.reload()
            else:
                worker = dice.choice(gateway.worker_pids())
                dead.append(worker)
                die(gateway, worker)
            assert not crowd.errors and not scraper.errors
        crowd.wait_calls(CALLS)
    wait_until(lambda: not gateway.worker_pids(leaving=True), FAR,
               "the old workers have left")
    wait_until(lambda: gateway.metrics()["claims_used", ""] == 0, FAR,
               "all leases have ended")
    judge(gateway, crowd, dead, before, began)
    print("%d answers to %d scrapes" % (crowd.calls, scraper.answers))


def judge(gateway, crowd, dead, before, began):
    """A worker counts after the answer, so one answer of each may be missing.
    """
    in_flight = crowd.cut(dead)
    seen = crowd.seen
    difference = more(more(counted(gateway), before), seen)
    extra = sum(number for number in difference.values() if number > 0)
    missing = -sum(number for number in difference.values() if number < 0)
    found = more(series(gateway), began)
    granted = found['zk_lock_wait_seconds_count{outcome="granted"}']
    held = found["zk_lock_hold_seconds_count"]
    print("%d calls, %d deaths, %d in flight there; %d more counted, %d less; "
          "%d grants, %d holds; %r"
          % (crowd.calls, len(dead), in_flight, extra, missing, granted, held,
             difference))
    assert sum(seen.values()) == crowd.calls >= CALLS
    assert extra <= in_flight
    assert missing <= len(dead)
    told = sum(seen[call, "granted"] for call in ("acquire", "guard"))
    assert abs(granted - told) <= in_flight + len(dead)
    assert abs(held - granted) <= len(dead)
    # each call, and no single word only
    assert {call for call, _ in seen} == {call for call, _ in counted(gateway)}
    assert len({call for call, _ in seen}) == 12
