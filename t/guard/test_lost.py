"""A lock that is lost while the request is between two things.

What the request waits for then - another lock, a subrequest, an entry of the
cache - must not go on for a request that was cut off.
"""

import pytest

from lib.client import Gone
from lib.guards import SOON, begin, free, log, lose
from lib.process import wait_until

SORRY = """
location @sorry {
    proxy_pass http://%s;
}
"""

SECOND = SORRY + """
location /second/ {
    %s
    error_page 503 = @sorry;
    proxy_pass http://%s;
}
"""


def cut(client):
    with pytest.raises((Gone, ConnectionError)):
        client.response()


def page_of_the_error(gateway, backend, client, tree, token):
    """The request waits for "two" no more, also while the page is made."""
    sorry = backend.next()
    tree.wait_claims(gateway.znode("two"), 1)
    gateway.release("two", token)
    free(tree, gateway, "two")
    sorry.answer(200, b"sorry\n")
    assert client.response().body == b"sorry\n"
    assert backend.idle()
    assert log(gateway, 1).outcome == "lost"
    client.send("GET", "/ready")
    assert client.response().status == 204


def test_lost_while_the_next_lock_is_waited_for(guarded, backend, tree):
    gateway = guarded("zk_lock one; error_page 503 = @sorry;",
                      server=SECOND % (backend.address, "zk_lock two wait=1m;",
                                       backend.address))
    held = gateway.hold("two")
    client = begin(gateway)
    backend.next().answer(headers={"X-Accel-Redirect": "/second/"})
    tree.wait_claims(gateway.znode("two"), 2)
    tree.wait_claims(gateway.znode("one"), 1)
    lose(tree, gateway, "one")
    page_of_the_error(gateway, backend, client, tree, held.token)


def test_required_and_lost_while_another_is_waited_for(guarded, backend, tree):
    gateway = guarded("zk_lock_require one lost=abort; zk_lock two wait=1m;\n"
                      "error_page 503 = @sorry;",
                      server=SORRY % backend.address)
    held = gateway.hold("two")
    shown = gateway.hold("one")
    client = begin(gateway, headers={"Lock-Token": shown.token})
    tree.wait_claims(gateway.znode("two"), 2)
    gateway.release("one", shown.token)
    page_of_the_error(gateway, backend, client, tree, held.token)


def test_lost_beside_a_mirror(guarded, backend, tree):
    """The copy of the request goes on; the claim is gone already."""
    gateway = guarded("zk_lock one; mirror /mirror;",
                      server="location = /mirror { internal; proxy_pass "
                      "http://%s; }\n" % backend.address)
    client = begin(gateway)
    seen = {}
    for _ in range(2):
        request = backend.next()
        seen[request.path] = request
    lose(tree, gateway)
    assert client.response().status == 503
    seen["/app/"].wait_cut()
    seen["/mirror"].answer()
    assert log(gateway, 1).outcome == "lost"
    client.send("GET", "/ready")
    assert client.response().status == 204


def test_lost_within_a_page_of_parts(guarded, backend, tree, tmp_path):
    """A part of the page comes from an upstream, which is cut off, too."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "index.html").write_text(
        'begin <!--# include virtual="/part/" --> end\n')
    tmp_path.chmod(0o755)
    gateway = guarded(content="root %s; ssi on;" % tmp_path,
                      server="location /part/ { proxy_pass http://%s; }\n"
                      % backend.address)
    client = begin(gateway)
    part = backend.next()
    tree.wait_claims(gateway.znode("one"), 1)
    lose(tree, gateway)
    cut(client)
    part.wait_cut()
    assert log(gateway, 1).outcome == "lost"


def test_lost_while_the_cache_is_waited_for(guarded, backend, tree, tmp_path):
    """Another request fetches what both ask for; only then nginx cuts off."""
    gateway = guarded(
        "zk_lock $arg_lock;",
        "proxy_pass http://%s; proxy_cache c; proxy_cache_lock on;\n"
        "proxy_cache_lock_timeout 30s; proxy_cache_lock_age 30s;\n"
        "proxy_cache_key same; proxy_cache_valid 1m;" % backend.address,
        http="proxy_cache_path %s/cache keys_zone=c:1m;\n" % tmp_path,
        workers=1)
    first = begin(gateway, "/app/?lock=one")
    fetch = backend.next()
    second = begin(gateway, "/app/?lock=two")
    tree.wait_claims(gateway.znode("two"), 1)
    lose(tree, gateway, "two")
    wait_until(lambda: "was lost" in gateway.log_text(), SOON, "the loss")
    fetch.answer(200, b"kept\n")
    assert first.response().body == b"kept\n"
    cut(second)
    free(tree, gateway, "one")
    third = begin(gateway, "/app/?lock=three")
    assert third.response().body == b"kept\n"
    assert backend.idle()
    lines = {line.name: line for line in (log(gateway, n) for n in (1, 2, 3))}
    assert lines["two"].outcome == "lost"
    assert lines["one"].outcome == lines["three"].outcome == "granted"


def test_lost_while_access_is_checked(guarded, backend, tree):
    """A location that the request is sent to asks a third party first."""
    gateway = guarded("zk_lock one;", server="""
        location /second/ {
            auth_request /auth;
            proxy_pass http://%s;
        }
        location = /auth {
            internal;
            proxy_pass http://%s;
        }
        """ % (backend.address, backend.address))
    client = begin(gateway)
    backend.next().answer(headers={"X-Accel-Redirect": "/second/"})
    auth = backend.next()
    assert auth.path == "/auth"
    lose(tree, gateway)
    cut(client)
    auth.wait_cut()
    assert backend.idle()
    assert log(gateway, 1).outcome == "lost"


@pytest.mark.parametrize("protocol", ["1.1", "2"])
def test_lost_twice(guarded, backend, tree, protocol):
    """Both locks of a request are lost at once: one answer."""
    gateway = guarded("zk_lock one; zk_lock two;")
    if protocol == "2":
        connection = gateway.connect_http2()
        stream = connection.send("GET", "/app/")
    else:
        connection = begin(gateway)
    seen = backend.next()
    lose(tree, gateway, "one")
    lose(tree, gateway, "two")
    response = (connection.response(stream) if protocol == "2"
                else connection.response())
    assert response.status == 503
    seen.wait_cut()
    assert log(gateway, 1).outcome == "lost"
    wait_until(lambda: gateway.call("GET", "/ready").status == 204, SOON)
