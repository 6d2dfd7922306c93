"""The check of answers against docs/openapi.yaml: it sees all, and can fail.

A server of a test says what a gateway would never say, at the port of a
gateway's configuration, and each client of the tests has to notice.
"""

import asyncio
import contextlib
import json

import pytest

from lib import openapi
from lib.backend import Backend
from lib.client import AsyncConnection, Connection, encode
from lib.streams import LINES, hold, watch

TOKEN = "A" * 32
LOCATIONS = """
location /locks/ { zk_lock_api; }
location /quiet/ { zk_lock_api; error_page 503 = @away; }
location = /metrics { zk_lock_metrics; }
location ~ ^/state/(?<state>.*)$ { proxy_pass http://127.0.0.1:1; }
location / { proxy_pass http://127.0.0.1:1; }
"""

CACHE = {"Cache-Control": "no-store"}
JSON = dict(CACHE, **{"Content-Type": "application/json"})
PROBLEM = dict(CACHE, **{"Content-Type": "application/problem+json"})
TEXT = dict(CACHE, **{"Content-Type": "text/plain"})
HTML = dict(CACHE, **{"Content-Type": "text/html"})
ODD = dict(CACHE, **{"Content-Type": "text/json"})
LOCK = {"name": "x", "mode": "exclusive", "held": 1,
        "holders": [{"owner": "me", "fencing_token": 7,
                     "since": "2026-11-21T13:28:37Z"}],
        "queued": 0, "queue": []}
GRANT = {"name": "x", "state": "held", "token": TOKEN, "mode": "exclusive",
         "fencing_token": 7, "ttl_ms": 1000, "expires_in_ms": 1000,
         "waited_ms": 0}
GRANTED = dict(JSON, **{
    "Lock-Token": TOKEN, "Lock-Fencing-Token": "7",
    "Location": "/locks/x/" + TOKEN})
TAKEN = {"type": "/problems/taken", "title": "The lock is taken",
         "status": 423, "detail": "so", "retry_after_ms": 1000}
LATER = dict(PROBLEM, **{"Retry-After": "1"})
FOUND = {"type": "/problems/not-found", "title": "Not found", "status": 404,
         "detail": "so"}


def without(mapping, *names):
    return {name: value for name, value in mapping.items()
            if name not in names}


@pytest.fixture
def planted(monkeypatch):
    """A server that answers by hand, and is a gateway by its configuration."""
    monkeypatch.setattr(openapi, "seen", set())     # by no gateway
    backend = Backend()
    conf = "http { server { listen 127.0.0.1:%d; %s } }" % (backend.port,
                                                            LOCATIONS)
    openapi.serves(conf)
    yield backend
    openapi.forget(conf)
    backend.close()


def told(planted, method, path, status, headers, body):
    """What the check says of this answer."""
    with Connection(planted.port) as connection:
        connection.send(method, path)
        planted.next().answer(status, content(body), headers)
        assert connection.response().status == status
    return openapi.drifts()


def content(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


RIGHT = {
    "lock": ("GET", "/locks/x", 200, JSON, LOCK),
    "grant": ("POST", "/locks/x", 201, GRANTED, GRANT),
    "taken": ("POST", "/locks/x", 423, LATER, TAKEN),
    "LOCK": ("LOCK", "/locks/x", 423, LATER, dict(TAKEN, ID="1", Who="me")),
    "not found": ("DELETE", "/locks/x/" + TOKEN, 404, PROBLEM, FOUND),
    "method": ("PATCH", "/locks/x", 405, dict(PROBLEM, Allow="GET"),
               dict(FOUND, type="/problems/method", title="Method not allowed",
                    status=405)),
    "guard": ("GET", "/app", 404, PROBLEM, FOUND),
    "metrics": ("GET", "/metrics", 200, TEXT,
                b'# HELP x\nzk_lock_claims{state="new"} 1\n'),
}

WRONG = {
    "a further member": ("GET", "/locks/x", 200, JSON, dict(LOCK, more=1)),
    "a further member within": (
        "GET", "/locks/x", 200, JSON,
        dict(LOCK, holders=[{"owner": "me", "more": 1}])),
    "a further member of a grant": (
        "POST", "/locks/x", 201, GRANTED, dict(GRANT, more=1)),
    "a further member of a problem": (
        "POST", "/locks/x", 423, LATER, dict(TAKEN, more=1)),
    "a member less": ("GET", "/locks/x", 200, JSON, without(LOCK, "queue")),
    "another kind of value": ("GET", "/locks/x", 200, JSON,
                              dict(LOCK, held="1")),
    "permits of another mode": ("GET", "/locks/x", 200, JSON,
                                dict(LOCK, permits=3)),
    "another status": ("GET", "/locks/x", 206, JSON, LOCK),
    "a status of another call": ("GET", "/locks/x", 201, GRANTED, GRANT),
    "a status of another path": ("POST", "/locks/", 404, PROBLEM, FOUND),
    "another status in the body": (
        "POST", "/locks/x", 423, LATER, dict(TAKEN, status=503)),
    "another type of problem": (
        "GET", "/locks/x", 404, PROBLEM, dict(FOUND, type="/problems/gone")),
    "a URN": ("GET", "/locks/x", 404, PROBLEM,
              dict(FOUND, type="urn:zk-lock:not-found")),
    "a header less": ("POST", "/locks/x", 201, without(GRANTED, "Lock-Token"),
                      GRANT),
    "no Retry-After": ("POST", "/locks/x", 423, PROBLEM, TAKEN),
    "a header more": ("GET", "/locks/", 200, dict(JSON, ETag='W/"free"'),
                      {"locks": []}),
    "another header": ("GET", "/locks/x", 200, dict(JSON, ETag="free"), LOCK),
    "another type": ("GET", "/locks/x", 200, ODD, LOCK),
    "a page of a lock": ("GET", "/locks/x", 200, HTML, b"<html></html>"),
    "no type": ("GET", "/locks/x", 200, CACHE, LOCK),
    "a cache may keep it": ("GET", "/locks/x", 200, without(JSON, *CACHE),
                            LOCK),
    "a broken body": ("GET", "/locks/x", 200, JSON, b"{"),
    "a body in 204": ("DELETE", "/locks/x", 204, JSON, b""),
    "a method": ("PATCH", "/locks/x", 200, JSON, LOCK),
    "UNLOCK": ("UNLOCK", "/locks/x", 201, GRANTED, GRANT),
    "HEAD": ("HEAD", "/locks/x", 206, JSON, b""),
    "a guard": ("GET", "/app", 404, PROBLEM, dict(FOUND, more=1)),
    "metrics": ("GET", "/metrics", 200, TEXT,
                b"zk_lock_claims one\n"),
}

LEFT_OUT = {
    "a page of nginx": ("GET", "/locks/x", 502, HTML, b"<html></html>"),
    "an error page": ("GET", "/quiet/x", 503, JSON, {"more": 1}),
    "an application": ("GET", "/app", 206, JSON, {"more": 1}),
    "a location by a pattern": ("GET", "/state/x", 206, JSON, {"more": 1}),
}


@pytest.mark.parametrize("what", sorted(RIGHT))
def test_right(planted, what):
    before = sum(openapi.counts.values())
    assert told(planted, *RIGHT[what]) == []
    assert sum(openapi.counts.values()) == before + 1


@pytest.mark.parametrize("what", sorted(WRONG))
def test_wrong(planted, what):
    assert len(told(planted, *WRONG[what])) == 1


@pytest.mark.parametrize("what", sorted(LEFT_OUT))
def test_left_out(planted, what):
    before = sum(openapi.counts.values())
    assert told(planted, *LEFT_OUT[what]) == []
    assert sum(openapi.counts.values()) == before


def test_bytes_by_hand(planted):
    """The request line counts, and each of several requests has one."""
    with Connection(planted.port) as connection:
        connection.send_bytes(encode("GET", "/locks/x"))
        planted.next().answer(206, content(LOCK), JSON)
        connection.response()
    assert len(openapi.drifts()) == 1
    requests = encode("POST", "/locks/x", body=b"{}") + encode("GET", "/y?z=1")
    assert openapi.requests_of(requests) == [("POST", "/locks/x"),
                                             ("GET", "/y?z=1")]
    assert openapi.requests_of(b"the rest of a body") == []


def test_asyncio(planted):
    async def ask():
        connection = AsyncConnection(planted.port)
        await connection.send("GET", "/locks/x")
        seen = await asyncio.to_thread(planted.next)
        seen.answer(200, content(dict(LOCK, more=1)), JSON)
        assert (await connection.response("GET")).status == 200
        connection.close()

    asyncio.run(ask())
    assert len(openapi.drifts()) == 1


EVENTS = {
    "an event of a lock": ("change", {}, 1),
    "another event": ("changed", {}, 1),
    "a further member": ("queued", {"more": 1}, 1),
    "the event": ("queued", {}, 0),
}


@pytest.mark.parametrize("what", sorted(EVENTS))
def test_stream(planted, what):
    name, more, wrong = EVENTS[what]
    line = dict({"event": name, "name": "x", "mode": "exclusive",
                 "position": 0}, **more)
    with contextlib.closing(Connection(planted.port)) as connection:
        stream = hold(planted, "x", accept=LINES, connection=connection)
        seen = planted.next()
        seen.begin(200, headers={"Content-Type": LINES,
                                 "Cache-Control": "no-store"})
        seen.send(content(line) + b"\n")
        assert stream.next().name == name
        seen.end()
    assert len(openapi.drifts()) == wrong


# with a gateway: nothing that is described is left out

SERVER = """
location /app/ { zk_lock y wait=0; try_files /none =204; }
location = /health { zk_lock_health; zk_lock_admin on; }
location = /page { zk_lock_page /locks/; }
"""


def test_every_operation(start_gateway):
    """An answer of success, and a refusal, of each operation is checked."""
    gateway = start_gateway(metrics=True, location="zk_lock_admin on;",
                            server=SERVER)
    openapi.counts.clear()
    _one_lock(gateway)
    _several_locks(gateway)
    _streams(gateway)
    gateway.metrics()
    _health(gateway)
    assert gateway.call("GET", "/page").status == 200
    assert gateway.call("POST", "/page").status == 405
    with contextlib.closing(gateway.connect_http2()) as connection:
        assert connection.request("GET", "/locks/x").status == 404

    operations = {operation["operationId"]
                  for path in openapi.description()["paths"].values()
                  for method, operation in path.items()
                  if method != "parameters"}
    told = {operation for operation, status in openapi.counts
            if str(status).startswith("2")}
    refused = {operation for operation, status in openapi.counts
               if str(status).startswith("4")}
    assert told == operations
    assert refused == (operations - {"metrics", "health", "page"}
                       | {"guard", "other"})
    assert openapi.counts["lookAtLock", "change"] == 1
    assert openapi.counts["acquire", "granted"] == 1
    assert openapi.counts["lookAtLock", 404] == 1
    assert openapi.counts["health", 503] == 1


def _one_lock(gateway):
    token = gateway.hold("x").token
    assert gateway.inspect("x").status == 200
    assert gateway.call("GET", "/locks/x", {"until": "none"}).status == 400
    assert gateway.acquire("x", wait=0).status == 423
    for method in "GET", "PUT", "DELETE":
        path = "/locks/x/" + token
        assert gateway.call(method, path, {"limit": 1}).status == 400
        assert gateway.call(method, "/locks/x", {"limit": 1}).status == 400
        assert gateway.call(method, path).status in (200, 204)
    token = gateway.hold("x").token
    assert gateway.renew("x", token).status == 200
    assert gateway.call("PUT", "/locks/x", None,
                        {"Lock-Token": token}).status == 200
    assert gateway.release("x", token).status == 204
    assert gateway.call("PATCH", "/locks/x").status == 405

    token = gateway.hold("y").token
    assert gateway.call("GET", "/app/").status == 423
    gateway.release("y", token)


def _several_locks(gateway):
    response = gateway.call("POST", "/locks/", body={"names": ["a", "b"]})
    assert response.status == 201
    for method in "GET", "PUT", "DELETE":
        assert gateway.call(method, "/locks/", {"wait": 1}).status == 400
        assert gateway.call(method, "/locks/", None, {
            "Lock-Token": response.token}).status in (200, 204)
    assert gateway.call("POST", "/locks/").status == 400
    assert gateway.call("GET", "/locks/").status == 200


def _health(gateway):
    assert gateway.call("GET", "/health").status == 200
    assert gateway.call("PUT", "/health", {"drain": "no"}).status == 400
    assert gateway.call("PUT", "/health", {"drain": "on"}).status == 200
    assert gateway.call("GET", "/health").status == 503
    for response in gateway.call("GET", "/app/"), gateway.acquire("x"):
        assert response.json["type"] == "/problems/drained"
    assert gateway.call("PUT", "/health", {"drain": "off"}).status == 200


def _streams(gateway):
    stream = hold(gateway, "z")
    stream.event("granted")
    other = watch(gateway, "z", accept=LINES)
    other.event("change")
    other.close()
    stream.close()
