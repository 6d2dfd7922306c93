"""zk_lock_health: whether a worker takes new locks, and the switch to drain.

A load balancer asks for health and sends new requests elsewhere after a 503.
So a worker that answers 200 grants locks, each reason for a 503 is a state in
which new locks are refused, and an outage shows though no request for a lock
comes.  A drained gateway refuses new locks in all workers and serves all else.
"""

import os
import time

import pytest

from lib.checks import grant, problem, retry_after
from lib.client import lock_path
from lib.holders import wait_dead
from lib.process import free_port, wait_until, whole_lines

HEALTH = """
location = /health { zk_lock_health; }
location = /operator { zk_lock_health; zk_lock_admin on; }
"""

CALLS = [(method, path)
         for path in ("/locks/", "/locks/x", "/locks/x/" + "A" * 32)
         for method in ("GET", "POST", "PUT", "DELETE")
         if method != "POST" or path.count("/") < 3]

SOON = 15.0
FAR = 30.0

# a worker of these has no place in the zone: the zone has at most 256
SLOTS = min(256, 64 + 16 * os.cpu_count())


@pytest.fixture
def start(start_gateway):
    def start(server=HEALTH, **options):
        options.setdefault("session_timeout", "10s")
        return start_gateway(server=server, metrics=True, **options)
    return start


@pytest.fixture
def gateway(start):
    gateway = start()
    everywhere(gateway, None)
    return gateway


def health(gateway, worker=None):
    return gateway.call("GET", "/health", worker=worker)


def reason(response):
    """Why new locks are refused, None if not; the answer is whole."""
    content = response.json
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    assert content["session_alive_ms"] >= 0
    if response.status == 200:
        assert content["status"] == "ok", content
        assert sorted(content) == ["drained", "session_alive_ms", "status"]
        assert content["drained"] is False
        return None
    assert response.status == 503, response
    assert content["status"] == "unavailable" and content["detail"], content
    assert content.get("drained", False) == (content["reason"] == "drained")
    return content["reason"]


def everywhere(gateway, *reasons, timeout=FAR):
    """Waits until each worker says one of the reasons."""
    for worker in gateway.worker_pids():
        wait_until(lambda: reason(health(gateway, worker)) in reasons, timeout,
                   "each worker says %s" % (reasons,))


def drain(gateway, how, worker=None):
    response = gateway.call("PUT", "/operator", {"drain": how}, worker=worker)
    assert response.status == 200, response
    assert response.json["drained"] == (how == "on")
    return response


def is_drained(gateway, worker=None):
    """Health tells so before all else, also while ZooKeeper stands still."""
    return reason(health(gateway, worker)) == "drained"


def drained(response):
    content = problem(response, 503, "drained")
    assert content["type"] == "/problems/drained"
    retry_after(response)


def served(response, status):
    assert response.status == status, response
    return response


# the answer

def test_ok(gateway):
    for worker in gateway.worker_pids():
        assert reason(health(gateway, worker)) is None
        assert 0 < health(gateway, worker).json["session_alive_ms"] <= 10000


def test_part_of_a_page(start, tmp_path):
    """The answer to a subrequest does not end the page that includes it."""
    page = tmp_path / "page"
    page.write_text('before <!--# include virtual="/health" --> after')
    gateway = start(server=HEALTH + """
        location = /page { root %s; ssi on; ssi_types *; }
    """ % tmp_path)
    everywhere(gateway, None)
    with gateway.connect() as connection:
        for _ in range(2):
            text = connection.request("GET", "/page").body.decode()
            assert text.startswith('before {"status":"ok"'), text
            assert text.endswith("}\n after"), text


def test_head(gateway):
    response = gateway.call("HEAD", "/health")
    assert response.status == 200 and response.body == b""
    drain(gateway, "on")
    assert gateway.call("HEAD", "/health").status == 503


def test_no_request_to_zookeeper(start, zookeeper):
    """A balancer that asks often costs ZooKeeper nothing: there are fewer
    operations than questions, those of a gateway that is left alone.
    """
    gateway = start(session_timeout="60s")
    everywhere(gateway, None)
    with gateway.connect() as connection:
        def operations():
            text = gateway.call("GET", "/metrics").body.decode()
            return sum(int(line.split()[1]) for line in text.splitlines()
                       if line.startswith("zk_lock_zookeeper_operations"))
        before = operations()
        for _ in range(2000):
            assert connection.request("GET", "/health").status == 200
        assert operations() - before < 1000


def test_behind_auth(start):
    gateway = start("""
        location = /health {
            zk_lock_health;
            zk_lock_admin on;
            auth_basic operators;
            auth_basic_user_file users;
        }
        """, start=False)
    with open(gateway.prefix + "/users", "w", encoding="ascii") as file:
        file.write("me:{PLAIN}secret\n")
    gateway.start()
    credentials = {"Authorization": "Basic bWU6c2VjcmV0"}
    served(gateway.call("GET", "/health"), 401)
    served(gateway.call("PUT", "/health", {"drain": "on"}), 401)
    wait_until(lambda: gateway.call("GET", "/health", headers=credentials
                                    ).status == 200, SOON)
    served(gateway.call("PUT", "/health", {"drain": "on"}, credentials), 200)
    served(gateway.call("GET", "/health", headers=credentials), 503)


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
def test_other_methods(gateway, method):
    """Without zk_lock_admin there is nothing to change."""
    response = gateway.call(method, "/health", {"drain": "on"}, body=b"text")
    problem(response, 405)
    assert response.headers["Allow"] == "GET, HEAD"
    if method != "PUT":
        response = gateway.call(method, "/operator", {"drain": "on"})
        problem(response, 405)
        assert response.headers["Allow"] == "GET, HEAD, PUT"
    assert not is_drained(gateway)


@pytest.mark.parametrize("query", ["", "drain", "drain=", "drain=ON",
                                   "drain=1", "drain=offf", "drain=o",
                                   "drained=on"])
@pytest.mark.parametrize("before", ["on", "off"])
def test_bad_values(gateway, query, before):
    drain(gateway, before)
    problem(gateway.call("PUT", "/operator", query), 400, '"on"', '"off"')
    assert is_drained(gateway) == (before == "on")


# the reasons

def test_full(start):
    gateway = start(workers=1, http="zk_lock_zone 256k;")
    everywhere(gateway, None)
    tokens = []
    with gateway.connect() as connection:
        while True:
            path = lock_path("x%d" % len(tokens))
            response = connection.request("POST", path, {"ttl": "1h"})
            if response.status == 503:
                break
            tokens.append((path, served(response, 201).token))
        problem(response, 503)
        assert reason(health(gateway)) == "full"
        assert len(tokens) > 100

        path, token = tokens.pop()
        served(connection.request("DELETE", path, None,
                                  {"Lock-Token": token}), 204)
        wait_until(lambda: reason(health(gateway)) is None, SOON)
        served(gateway.acquire("again"), 201)


@pytest.mark.plain("a hundred workers, or more")
def test_no_room(start):
    """A worker that finds no slot for a session."""
    gateway = start(workers=SLOTS + 1, wait_sessions=False, zookeeper=None,
                    servers="127.0.0.1:%d" % free_port())
    found = wait_until(lambda: roomless(gateway), FAR, "no place")
    assert "drained" not in found.json
    assert found.json["session_alive_ms"] == 0

    worker = next(pid for pid in gateway.worker_pids()
                  if reason(health(gateway, pid)) == "no_room")
    for method, path in CALLS:
        problem(gateway.call(method, path, worker=worker), 503, "no place")
    for method, path, query in (("PUT", "/operator", {"drain": "on"}),
                                ("GET", "/metrics", None)):
        assert gateway.call(method, path, query, worker=worker).status == 503


def roomless(gateway):
    response = health(gateway)
    return response if reason(response) == "no_room" else None


def test_disconnected(zookeeper, start_proxy, start):
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, wait_sessions=False)
    everywhere(gateway, None)
    proxy.refuse()
    proxy.kill()
    everywhere(gateway, "disconnected")
    proxy.listen()
    everywhere(gateway, None)


def test_no_server(start):
    """nginx starts without ZooKeeper, and is of no use yet."""
    gateway = start(wait_sessions=False, zookeeper=None,
                    servers="127.0.0.1:%d" % free_port())
    everywhere(gateway, "disconnected")
    assert health(gateway).json["session_alive_ms"] == 0


def test_leaving(gateway):
    """A request whose head was on the way when the worker had to leave."""
    connections = gateway.each_worker()
    for connection in connections.values():
        connection.send_bytes(b"GET /health HTTP/1.1\r\n", "GET")
    # the worker has read that, because the answer to this comes behind it
    for worker in connections:
        gateway.call("GET", "/ready", worker=worker)

    assert gateway.reload() == set(connections)
    for worker, connection in connections.items():
        connection.send_bytes(b"Host: localhost\r\n\r\n", "GET")
        response = connection.response()
        assert response.worker == worker
        assert reason(response) == "leaving"
    everywhere(gateway, None)


class Still:
    """Whether a number has not changed for some seconds."""

    def __init__(self, number, seconds):
        self.number = number
        self.seconds = seconds
        self.last = None
        self.since = None

    def __call__(self):
        now = self.number()
        if now != self.last:
            self.last, self.since = now, time.monotonic()
        return time.monotonic() - self.since > self.seconds


def alive(way):
    """The gauge of the time for which all sessions surely live.

    The way is a connection, or a gateway.
    """
    ask = way.request if hasattr(way, "request") else way.call
    text = ask("GET", "/metrics").body.decode()
    return next(float(line.split()[1]) for line in text.splitlines()
                if line.startswith("zk_lock_session_alive_seconds "))


def test_outage_without_calls(private_zookeeper, start):
    """No call for a lock comes: health, metrics and the log tell of the
    outage, and of the end.
    """
    private_zookeeper.start()
    # after two thirds of this time a worker gives the silent connection up
    gateway = start(zookeeper=private_zookeeper, session_timeout="12s")
    workers = gateway.worker_pids()
    wait_until(lambda: alive(gateway) > 8, SOON, "the sessions live")
    everywhere(gateway, None)
    before = gateway.log_text().count("is out of reach")

    private_zookeeper.freeze()
    everywhere(gateway, "silent")
    assert gateway.log_text().count("is out of reach") == before + len(workers)
    wait_until(lambda: alive(gateway) == 0, FAR, "the gauge falls")
    everywhere(gateway, "silent", "disconnected")

    private_zookeeper.thaw()
    everywhere(gateway, "recovering", None)
    everywhere(gateway, None)
    wait_until(lambda: alive(gateway) > 0, SOON, "the gauge rises")
    wait_until(lambda: "answers again" in gateway.log_text()
               or "session is back" in gateway.log_text()
               or gateway.log_text().count("session is open")
               > len(workers), SOON, "the log tells of the end")


def test_outage_and_a_long_timeout(private_zookeeper, start):
    """Without a call the session itself would ask in the next 40 s only."""
    private_zookeeper.start()
    gateway = start(zookeeper=private_zookeeper, session_timeout="120s",
                    workers=4)
    everywhere(gateway, None, timeout=60.0)
    wait_until(Still(private_zookeeper.transactions, 6.0), FAR,
               "the workers have made, and looked for, all they need")
    private_zookeeper.freeze()
    everywhere(gateway, "silent", timeout=SOON)
    private_zookeeper.thaw()
    everywhere(gateway, None, timeout=SOON)


def test_frozen_sibling(gateway):
    """The gauge is that of the worst worker; health is each worker's own."""
    one, other = gateway.worker_pids()
    connection = gateway.connect(other)
    with gateway.frozen_worker(one):
        wait_until(lambda: alive(connection) < 5, FAR, "the gauge falls")
        assert reason(connection.request("GET", "/health")) is None
    everywhere(gateway, None)


# drained

def test_seen_by_all_workers(gateway):
    one, other = gateway.worker_pids()
    response = drain(gateway, "on", one)
    assert response.json["reason"] == "drained"
    drain(gateway, "on", other)
    for worker in (one, other):
        assert reason(health(gateway, worker)) == "drained"
        assert gateway.metrics(worker)["drained", ""] == 1
        drained(gateway.acquire("x", worker=worker))
    drain(gateway, "off", other)
    drain(gateway, "off", one)
    for worker in (one, other):
        assert not is_drained(gateway, worker)
        assert gateway.metrics(worker)["drained", ""] == 0
        grant(gateway.acquire("x%d" % worker, worker=worker), "x%d" % worker)
    everywhere(gateway, None)
    lines = gateway.log_text()
    assert lines.count("this gateway is drained") == 1
    assert lines.count("takes new locks again") == 1


def test_waiting(gateway, tree):
    """An operator sees when no claim waits at any worker any more."""
    one, other = gateway.worker_pids()
    holder = gateway.hold("x", worker=one)
    waiters = []
    for worker in (one, other):
        waiters.append(gateway.begin("x", wait="1m", worker=worker))
        tree.wait_claims(gateway.znode("x"), 1 + len(waiters))
    assert "waiting" not in health(gateway).json
    assert drain(gateway, "on").json["waiting"] == 2
    for left, waiter in zip((1, 0), waiters):
        served(gateway.release("x", holder.token), 204)
        holder = served(waiter.response(SOON), 201)
        for worker in (one, other):
            assert health(gateway, worker).json["waiting"] == left
    served(gateway.release("x", holder.token), 204)
    assert "waiting" not in drain(gateway, "off").json


def test_waiting_without_zookeeper(zookeeper, start_proxy, start):
    """A claim whose znode is not made yet waits, too."""
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, location="zk_lock_timeout 1m;")
    everywhere(gateway, None)
    proxy.refuse()
    proxy.kill()
    everywhere(gateway, "disconnected")
    waiters = [gateway.begin("x", wait="1m", worker=worker)
               for worker in gateway.worker_pids()]
    wait_until(lambda: gateway.metrics()["claims", "new"] == 2, SOON)
    assert drain(gateway, "on").json["waiting"] == 2
    waiters[0].close()
    wait_until(lambda: health(gateway).json["waiting"] == 1, SOON)
    proxy.listen()
    served(waiters[1].response(FAR), 201)
    assert health(gateway).json["waiting"] == 0


def test_over_a_reload(gateway):
    drain(gateway, "on")
    for _ in range(2):
        gateway.reload()
        everywhere(gateway, "drained")
        drained(gateway.acquire("x"))
    drain(gateway, "off")
    gateway.reload()
    everywhere(gateway, None)
    grant(gateway.acquire("x"), "x")


def test_over_the_death_of_workers(gateway):
    drain(gateway, "on")
    dead = gateway.worker_pids()
    for worker in dead:
        gateway.kill_worker(worker)
    wait_dead(dead)
    wait_until(lambda: len(gateway.worker_pids()) == 2, SOON)
    everywhere(gateway, "drained")


@pytest.mark.parametrize("request_", [
    ("POST", "/locks/x", {}, {}, None),
    ("POST", "/locks/x", {"wait": "0"}, {}, None),
    ("POST", "/locks/x", {"mode": "shared"}, {}, None),
    ("POST", "/locks/x", {"hold": "connection"}, {}, None),
    ("POST", "/locks/x", {}, {"Prefer": "respond-async"}, None),
    ("POST", "/locks/x", {}, {"Idempotency-Key": '"key"'}, None),
    ("POST", "/locks/", {}, {}, {"names": ["x", "y"]}),
    ("LOCK", "/locks/x", {}, {}, {"ID": "1"}),
    ("GET", "/guarded", {}, {}, None),
], ids=lambda request: "-".join([request[0], request[1].strip("/")]
                                + sorted(request[2]) + sorted(request[3])))
def test_new_locks_are_refused(start, tree, request_):
    """At once, without a znode, and the word for logs is "drained"."""
    gateway = start(HEALTH + """
        location = /guarded { zk_lock x; try_files /none =204; }
        """, http="log_format word '$request_method $uri $zk_lock_outcome';\n"
                  "access_log word.log word;")
    everywhere(gateway, None)
    drain(gateway, "on")
    method, path, query, headers, body = request_
    drained(gateway.call(method, path, query, headers, body))
    assert not tree.claims(gateway.znode("x"))
    line = "%s %s drained" % (method, path)
    wait_until(lambda: line in whole_lines(gateway.prefix + "/word.log"),
               SOON, "the line of the log")


def test_all_else_is_served(gateway, tree):
    """What is held is told, renewed and released; waiters are granted."""
    holder = gateway.hold("x")
    other = gateway.hold("y", mode="shared")
    waiter = gateway.begin("x", wait="1m")
    tree.wait_claims(gateway.znode("x"), 2)
    polled = gateway.acquire("x", headers={"Prefer": "respond-async"},
                             wait="1m")
    served(polled, 202)
    drain(gateway, "on")

    for worker in gateway.worker_pids():
        served(gateway.inspect("x", holder.token, worker=worker), 200)
        served(gateway.renew("x", holder.token, worker=worker), 200)
        served(gateway.inspect("x", worker=worker), 200)
        assert len(served(gateway.call("GET", "/locks/", worker=worker),
                          200).json["locks"]) == 2
    again = gateway.call("POST", lock_path("y"),
                         headers={"Lock-Token": other.token})
    assert served(again, 200).json["holds"] == 2
    for status in (200, 204):
        served(gateway.release("y", other.token), status)

    served(gateway.release("x", holder.token), 204)
    response = waiter.response(SOON)
    grant(response, "x")
    served(gateway.release("x", response.token), 204)
    wait_until(lambda: gateway.inspect("x", polled.token).json["state"]
               == "held", SOON, "the polled claim is granted")
    served(gateway.release("x", polled.token), 204)
    tree.wait_claims(gateway.znode("x"), 0)


def test_the_rest_of_several_locks(gateway, tree):
    """A request waits for the first of its locks, and then gets all."""
    holder = gateway.hold("a")
    waiter = gateway.connect().send("POST", "/locks/", None, None,
                                    {"names": ["a", "b"], "wait": "1m"})
    tree.wait_claims(gateway.znode("a"), 2)
    drain(gateway, "on")
    served(gateway.release("a", holder.token), 204)
    response = served(waiter.response(SOON), 201)
    served(gateway.call("DELETE", "/locks/", None,
                        {"Lock-Token": response.token}), 204)


def test_held_over_a_worker_that_dies(gateway):
    """Claims are adopted while the gateway is drained."""
    worker = gateway.worker_pids()[0]
    holder = gateway.hold("x", worker=worker)
    drain(gateway, "on")
    gateway.kill_worker(worker)
    wait_until(lambda: len(gateway.worker_pids()) == 2
               and worker not in gateway.worker_pids(), SOON)
    for other in gateway.worker_pids():
        wait_until(lambda: gateway.inspect("x", holder.token, worker=other
                                           ).status == 200, FAR)
    served(gateway.release("x", holder.token), 204)


def test_guarded_requests(guarded, backend):
    """A request under a lock goes on, and one that waits is served."""
    gateway = guarded("zk_lock one;", server=HEALTH, metrics=True)
    everywhere(gateway, None)
    first = gateway.connect().send("GET", "/app/")
    inside = backend.next()
    second = gateway.connect().send("GET", "/app/")
    wait_until(lambda: gateway.metrics()["claims", "waiting"] == 1, SOON)
    drain(gateway, "on")
    drained(gateway.call("GET", "/app/"))
    inside.answer()
    served(first.response(), 200)
    backend.next().answer()
    served(second.response(), 200)
    drain(gateway, "off")
    third = gateway.connect().send("GET", "/app/")
    backend.next().answer()
    served(third.response(), 200)


def test_another_gateway_goes_on(gateway, start):
    """Drained is one gateway, and not the ensemble."""
    other = start()
    everywhere(other, None)
    drain(gateway, "on")
    assert not is_drained(other)
    response = other.acquire("x")
    grant(response, "x")
    served(gateway.release("x", response.token), 204)
