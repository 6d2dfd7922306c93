"""No cache keeps an answer about locks.

An answer about a lock is true at the moment of the answer.  A cache that keeps
answers without a word from the server, as nginx does with proxy_cache_valid,
would tell of a free lock while the lock is held.
"""

import contextlib
import http.client

import pytest

from lib.checks import problem
from lib.client import TIMEOUT, Response, lock_path, target
from lib.process import free_port, wait_until

CACHE = """
proxy_cache_path cache keys_zone=answers:1m;

server {
    listen 127.0.0.1:%(cache)d;
    location / {
        proxy_pass http://127.0.0.1:$http_port;
        proxy_cache answers;
        proxy_cache_key $request_method$request_uri$http_lock_token;
        proxy_cache_methods GET HEAD POST;
        proxy_cache_valid any 1h;
        add_header X-Cache $upstream_cache_status always;
    }
}
"""

SERVER = """
location = /metrics { zk_lock_metrics; }
location = /health { zk_lock_health; }
location = /page { zk_lock_page /locks/; }
location /kept/ { return 200 kept; }
location /app/ { zk_lock guarded wait=0; }
location /moved/ { zk_lock guarded wait=0; error_page 423 = @moved; }
location @moved { return 302 /kept/; }
location /shown/ { zk_lock_require other; }
"""


@pytest.fixture
def cached(start_gateway):
    """gateway, and ask(): a call by way of a cache in front."""
    port = free_port()
    gateway = start_gateway(http=CACHE % {"cache": port}, server=SERVER)

    def ask(method, path, query=None, headers=None):
        cache = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        with contextlib.closing(cache):
            cache.request(method, target(path, query), headers=dict(
                headers or {}, Port=str(gateway.port)))
            answer = cache.getresponse()
            return Response(answer.status, answer.getheaders(), answer.read())

    # the cache keeps what it may keep, a moment after the client has it
    assert ask("GET", "/kept/").headers["X-Cache"] == "MISS"
    wait_until(lambda: ask("GET", "/kept/").headers["X-Cache"] == "HIT",
               what="an answer of the cache")
    return gateway, ask


def test_state_is_never_kept(cached):
    """What a client reads by way of the cache is the state of the lock."""
    gateway, ask = cached
    path = lock_path("job")

    for _ in range(2):
        problem(ask("GET", path), 404)
        assert ask("GET", path, {"until": "free"}).status == 204
        assert ask("GET", "/locks/").json["locks"] == []

        token = gateway.hold("job").token
        assert ask("GET", path).json["held"] == 1
        problem(ask("GET", path, {"until": "free", "wait": "0"}), 423)
        assert len(ask("GET", "/locks/").json["locks"]) == 1
        claim = {"Lock-Token": token}
        assert ask("GET", path, headers=claim).json["state"] == "held"

        assert gateway.release("job", token).status == 204
        problem(ask("GET", path, headers=claim), 410)


def test_no_answer_is_kept(cached):
    """Each kind of answer, refusals too, and those of guards."""
    gateway, ask = cached
    path = lock_path("job")
    token = gateway.hold("job").token
    gateway.hold("guarded")

    seen = {}

    def never(method, path, status, query=None, headers=None):
        for _ in range(2):
            answer = ask(method, path, query, headers)
            assert answer.status == status, answer
            assert answer.headers.get("X-Cache") in ("MISS", "EXPIRED"), (
                path, answer.headers.pairs)
            assert answer.headers["Cache-Control"] == "no-store"
        seen[status] = path

    for method in "GET", "HEAD":
        never(method, path, 200)
        never(method, "/locks/", 200)
        never(method, lock_path("free"), 404)
        never(method, lock_path("free"), 204, {"until": "free"})
        never(method, path, 423, {"until": "free", "wait": "0"})
        never(method, path, 200, headers={"Lock-Token": token})
        never(method, path, 400, {"wait": "soon"})
        never(method, "/metrics", 200)
        never(method, "/health", 200)
        never(method, "/app/x", 423)
        never(method, "/moved/x", 302)
        never(method, "/shown/x", 423)
        never(method, "/shown/x", 412, headers={"Lock-Token": token})
    never("POST", path, 423, {"wait": "0"})
    never("POST", path, 409, {"wait": "0", "mode": "member"})
    never("POST", "/metrics", 405)
    never("POST", path + "/" + token, 405)
    assert gateway.release("job", token).status == 204
    never("GET", path, 410, headers={"Lock-Token": token})
    assert set(seen) == {200, 204, 302, 400, 404, 405, 409, 410, 412, 423}


def test_page(cached):
    """The page tells of no lock: a cache may keep it, if it asks again."""
    assert cached[1]("GET", "/page").headers["Cache-Control"] == "no-cache"


def test_unchanged(cached):
    gateway, ask = cached
    tag = gateway.inspect("job").headers["ETag"]
    answer = gateway.call("GET", lock_path("job"),
                          headers={"If-None-Match": tag})
    assert answer.status == 304
    assert answer.headers["Cache-Control"] == "no-store"
