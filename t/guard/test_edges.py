"""Guarded requests to which two things happen at once."""

import hashlib
import time
from urllib.parse import quote

import pytest

from lib.backend import Backend
from lib.checks import problem
from lib.client import Gone
from lib.guards import SOON, begin, free, location, log, lose
from lib.process import wait_until


def chunked(gateway, path="/app/"):
    """A request whose body has not come yet."""
    client = gateway.connect()
    client.send_bytes(("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                       "chunked\r\n\r\n" % path).encode())
    return client


def claims(tree, gateway, name, n):
    tree.wait_claims(gateway.znode(name), n)


def test_lost_while_the_lock_is_waited_for(guarded, backend, tree):
    """The loss is told once, and the lock, granted later, changes nothing."""
    gateway = guarded("zk_lock_request_body off; zk_lock one;\n"
                      "zk_lock_require three lost=abort;")
    one, three = gateway.hold("one").json, gateway.hold("three").json
    client = gateway.connect()
    client.send_bytes(("POST /app/ HTTP/1.1\r\nHost: x\r\nLock-Token: %s\r\n"
                       "Content-Length: 100\r\n\r\nabc"
                       % three["token"]).encode())
    claims(tree, gateway, "one", 2)
    gateway.release("three", three["token"])
    assert client.response().status == 503
    claims(tree, gateway, "one", 1)
    gateway.release("one", one["token"])
    client.send_bytes(b"x" * 97)
    free(tree, gateway)
    assert backend.idle()
    assert gateway.call("GET", "/ready").status == 204


def test_lost_with_an_error_page_of_a_backend(guarded, backend, tree):
    """The page is asked for once."""
    pages = Backend()
    gateway = guarded("zk_lock one; error_page 503 = /page/;", server=location(
        "", "proxy_pass http://%s;" % pages.address, "/page/"))
    client = begin(gateway)
    seen = backend.next()
    lose(tree, gateway)
    pages.next().answer(200, b"sorry\n")
    response = client.response()
    assert (response.status, response.body) == (200, b"sorry\n")
    seen.wait_cut()
    assert pages.total == 1
    pages.close()


def test_too_large_a_body_with_an_error_page(guarded, backend):
    """The page is served, although its location is guarded, too."""
    gateway = guarded("client_max_body_size 10; error_page 413 /app/large;",
                      http="zk_lock one;")
    client = chunked(gateway)
    assert gateway.call("GET", "/ready").status == 204
    client.send_bytes(b"14\r\n" + b"x" * 20 + b"\r\n0\r\n\r\n")
    seen = backend.next()
    assert seen.path == "/app/large"
    seen.answer(200, b"too large\n")
    assert client.response().status == 413


def test_refused_error_page(guarded, backend, tree):
    """The status of a refusal is its own, not that of the error before."""
    gateway = guarded("error_page 404 =200 /page/;", "return 404;",
                      server=location("zk_lock one wait=0;", "root /none;",
                                      "/page/"))
    held = gateway.hold("one").json
    assert gateway.call("GET", "/app/").status == 423
    gateway.release("one", held["token"])


def test_the_api_is_not_guarded(guarded):
    """Not by an inherited rule, nor in an "if"."""
    gateway = guarded("zk_lock \"\";", http="zk_lock all wait=0;", server="""
        location /more/ {
            zk_lock_api;
            if ($http_x) {
                set $y 1;
            }
        }
        location /nodes/ {
            zk_lock_api;
            zk_lock_layout node;
        }
        """)
    held = gateway.hold("all").json
    for path in ("/locks/a", "/more/b", "/nodes/c"):
        response = gateway.call("POST", path, headers={"X": "1"})
        assert response.status == 201, path
        assert gateway.call("DELETE", path, headers={
            "Lock-Token": response.json["token"]}).status == 204, path
    gateway.release("all", held["token"])


def test_within_a_location_that_is_not_guarded(start_gateway):
    """The locations within inherit the rules of the server all the same."""
    gateway = start_gateway(http="zk_lock_require shown;", server="""
        zk_lock all wait=0;
        location /more/ {
            zk_lock_api;
            location /more/app/ { try_files /none =204; }
            location /more/free/ {
                zk_lock ""; zk_lock_require "";
                location /more/free/app/ { try_files /none =204; }
            }
        }
        """)
    shown = {"Lock-Token": gateway.hold("shown").token}
    assert gateway.call("POST", "/more/x").status == 201
    assert gateway.call("GET", "/more/app/").status == 423
    assert gateway.call("GET", "/more/app/", headers=shown).status == 204
    held = gateway.hold("all")
    assert gateway.call("GET", "/more/app/", headers=shown).status == 423
    assert gateway.call("GET", "/more/free/app/").status == 204
    gateway.release("all", held.token)


def test_lost_before_the_second_lock(guarded, backend, tree):
    """A grant does not hide a loss, nor does the second wait the first."""
    gateway = guarded(
        "zk_lock one; zk_lock_lost continue;",
        "try_files /none /second/;", server=location(
            "zk_lock two;", "proxy_pass http://%s;" % backend.address,
            "/second/"))
    two = gateway.hold("two").json
    client = begin(gateway)
    claims(tree, gateway, "two", 2)
    lose(tree, gateway)
    wait_until(lambda: "was lost" in gateway.log_text(), SOON, "the loss")
    gateway.release("two", two["token"])
    backend.next().answer()
    assert client.response().status == 200
    line = log(gateway, 1)
    assert (line.name, line.outcome) == ("one", "lost")
    assert float(line.wait) > 0
    assert len(line.fencings.split(",")) == 2
    free(tree, gateway, "two")


def test_waits_for_two_locks(guarded, backend, tree):
    """The log has the time of both waits together, and all fencing tokens."""
    gateway = guarded(
        "zk_lock one;", "try_files /none /second/;", server=location(
            "zk_lock two;", "proxy_pass http://%s;" % backend.address,
            "/second/"))
    held = {name: gateway.hold(name) for name in ("one", "two")}
    client = begin(gateway)
    waited = 0
    for name in ("one", "two"):
        claims(tree, gateway, name, 2)
        began = time.monotonic()
        assert client.silent_for(0.2)
        waited += time.monotonic() - began
        gateway.release(name, held[name].token)
    seen = backend.next()
    tokens = [str(gateway.inspect(name).json["holders"][0]["fencing_token"])
              for name in ("one", "two")]
    seen.answer()
    assert client.response().status == 200
    line = log(gateway, 1)
    assert (line.name, line.outcome) == ("one", "granted")
    assert (line.fencing, line.fencings) == (tokens[0], ",".join(tokens))
    assert float(line.wait) >= waited - 0.05


def test_owners(guarded, backend):
    """Each lock has the owner of its own directive."""
    gateway = guarded('zk_lock a "owner=the $arg_who"; zk_lock b;')
    client = begin(gateway, "/app/?who=%s" % ("x" * 300))
    seen = backend.next()
    owner = gateway.inspect("a").json["holders"][0]["owner"]
    assert owner == ("the " + "x" * 300)[:255]
    assert "owner" not in gateway.inspect("b").json["holders"][0]
    seen.answer()
    assert client.response().status == 200


def test_another_order_than_that_of_the_paths(guarded, backend, tree):
    """Each rule keeps its own mode, owner and wait, and its place in logs."""
    gateway = guarded("zk_lock c owner=cee mode=shared wait=0;\n"
                      "zk_lock b; zk_lock a owner=$arg_who mode=write;\n"
                      "zk_lock_wait 20s;")
    client = begin(gateway, "/app/?who=ay")
    seen = backend.next()
    locks = [gateway.inspect(name).json for name in "cba"]
    assert [lock["mode"] for lock in locks] == ["shared", "exclusive", "write"]
    holders = [lock["holders"][0] for lock in locks]
    assert [holder.get("owner") for holder in holders] == ["cee", None, "ay"]
    seen.answer()
    assert client.response().status == 200
    line = log(gateway, 1)
    fencings = [str(holder["fencing_token"]) for holder in holders]
    assert (line.name, line.fencing) == ("c", fencings[0])
    assert line.fencings.split(",") == fencings

    held = {name: gateway.hold(name, mode=mode) for name, mode
            in (("c", "write"), ("a", "shared"))}
    client = begin(gateway)
    claims(tree, gateway, "a", 2)
    assert client.silent_for(0.1)
    gateway.release("a", held["a"].token)
    assert client.response().status == 423
    line = log(gateway, 2)
    assert (line.name, line.outcome, line.fencing) == ("c", "taken", "-")
    gateway.release("c", held["c"].token)
    for name in "abc":
        free(tree, gateway, name)


def test_lost_behind_the_answer(guarded, backend, tree):
    """A mirror keeps the request, but the client has the whole answer."""
    mirrored = Backend()
    gateway = guarded("zk_lock one; mirror /copy/;", server=location(
        "", "proxy_pass http://%s;" % mirrored.address, "/copy/"))
    client = begin(gateway)
    seen, copy = backend.next(), mirrored.next()
    size = 300000
    seen.answer(200, b"z" * size)
    wait_until(lambda: backend.inside == 0, SOON, "the answer")
    lose(tree, gateway)
    wait_until(lambda: "was deleted by" in gateway.log_text(), SOON, "a loss")
    assert len(client.response().body) == size
    copy.answer()
    mirrored.close()


def test_a_slash_at_the_beginning(start_gateway):
    """No name of the API begins with a slash, so rules for paths hold."""
    gateway = start_gateway(server="""
        merge_slashes off;
        location = /more/secret { return 403; }
        location /more/ { zk_lock_api; }
        """)
    assert gateway.call("POST", "/more/secret").status == 403
    assert gateway.call("POST", "/more/%2Fsecret").status == 400


def test_post_action(start_gateway):
    gateway = start_gateway(start=False, server="""
        location /app/ { zk_lock one; post_action @after; }
        location @after { return 204; }
        """)
    gateway.allow("post_action")
    code, output = gateway.test_conf()
    assert code != 0 and "post_action" in output


def hashed(start, name):
    return start + "%sha1-" + hashlib.sha1(name.encode()).hexdigest()


HASH = "%sha1-" + "0" * 40


@pytest.mark.parametrize("path, znode", [
    ("x" * 188, "app%2F" + "x" * 188),
    ("x" * 192, "app%2F" + "x" * 192),
    ("x" * 195, hashed("app%2F" + "x" * 148, "app%2F" + "x" * 195)),
    ("x" * 3000, hashed("app%2F" + "x" * 148, "app%2F" + "x" * 3000)),
    ("/".join("abc" * 18),
     hashed(("app%2F" + "%2F".join("abc" * 18))[:154],
            "app%2F" + "%2F".join("abc" * 18))),
    ("\u9396" * 70, hashed("app%2F" + "\u9396" * 49,
                           "app%2F" + "\u9396" * 70)),
    ("a\U0001f512b", hashed("app%2Fa", "app%2Fa\U0001f512b")),
    ("100%/x", "app%2F100%%2Fx"),
    ("100%2Fx", "app%2F100%252Fx"),
    ("a%2fb", "app%2Fa%2fb"),
    ("x" + HASH, "app%2Fx%25" + HASH[1:]),
    ("\x7f", hashed("app%2F", "app%2F\x7f"))])
def test_every_path_has_a_lock(guarded, backend, tree, path, znode):
    """By $uri; the API has the lock by the name, and lists show the name."""
    gateway = guarded("zk_lock $uri;")
    client = begin(gateway, "/app/" + quote(path))
    seen = backend.next()
    lock = "/locks/" + quote(znode, safe="")
    tree.wait_claims(gateway.znode(znode), 1)
    problem(gateway.call("POST", lock, {"wait": 0}),
            400 if "%sha1-" in znode else 423)
    assert len(gateway.call("GET", lock).json["holders"]) == 1
    if "%2" not in path and HASH not in path:
        # the API escapes nothing but slashes
        full = "/locks/" + quote("app/" + path, safe="")
        problem(gateway.call("POST", full, {"wait": 0}), 423)
        name = gateway.call("GET", full).json["name"]
        assert name == (znode if len(path) > 512 or "\x7f" in path else
                        "app%2F" + path.replace("/", "%2F"))
    seen.answer()
    assert client.response().status == 200
    free(tree, gateway, znode)


def test_names_are_of_one_text(guarded, backend):
    """A text with "%2F" has not the lock of the text with a slash."""
    gateway = guarded("zk_lock $uri;")
    clients = [begin(gateway, "/app/a" + slash + "b")
               for slash in ("/", "%252F", "%252f", "%25252f")]
    for seen in [backend.next() for _ in clients]:
        seen.answer()
    assert [client.response().status for client in clients] == [200] * 4


def test_lost_in_the_middle_of_an_upload(guarded, tree):
    """The body is passed on as it comes; the claim is lost meanwhile."""
    gateway = guarded("zk_lock one; zk_lock_request_body off;\n"
                      "proxy_request_buffering off; proxy_http_version 1.1;")
    client = gateway.connect()
    client.send_bytes(b"POST /app/ HTTP/1.1\r\nHost: x\r\n"
                      b"Content-Length: 100\r\n\r\nabc")
    claims(tree, gateway, "one", 1)
    lose(tree, gateway)
    try:
        assert client.response().status == 503
    except (Gone, ConnectionResetError):
        pass
    free(tree, gateway)


def test_shown_before_a_wait(guarded, backend, tree):
    """What the client showed is looked at again when the lock is held."""
    gateway = guarded("zk_lock_require three; zk_lock one;")
    one, three = gateway.hold("one").json, gateway.hold("three").json
    clients = [begin(gateway, headers={"Lock-Token": three["token"]})
               for _ in range(2)]
    claims(tree, gateway, "one", 3)
    gateway.release("one", one["token"])
    seen = backend.next()
    gateway.release("three", three["token"])
    seen.answer()
    assert sorted(client.response().status for client in clients) == [200, 412]
    assert backend.idle()
    free(tree, gateway)


def test_shown_before_a_redirect_and_a_wait(guarded, backend, tree):
    """The rule of the first location is looked at again, too."""
    gateway = guarded("zk_lock_require three token=$arg_token;",
                      "try_files /none /second/;",
                      server=location("zk_lock one;", "proxy_pass http://%s;"
                                      % backend.address, "/second/"))
    one, three = gateway.hold("one").json, gateway.hold("three").json
    for released in (False, True):
        client = begin(gateway, "/app/?token=" + three["token"])
        claims(tree, gateway, "one", 2)
        if released:
            gateway.release("three", three["token"])
        gateway.release("one", one["token"])
        if not released:
            backend.next().answer()
        assert client.response().status == (412 if released else 200)
        one = gateway.hold("one").json
    assert backend.idle()


def test_shown_before_zookeeper_was_away(private_zookeeper, connect_tree,
                                         guarded, backend):
    """zk_lock_unreachable lets a request pass without the lock that the
    request waits for, and not without what the client has to show.
    """
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    gateway = guarded("zk_lock_require three; zk_lock one;\n"
                      "zk_lock_timeout 1s; zk_lock_unreachable pass;",
                      zookeeper=private_zookeeper, session_timeout="60s")
    gateway.hold("one")
    three = gateway.hold("three").json
    client = begin(gateway, headers={"Lock-Token": three["token"]})
    claims(tree, gateway, "one", 2)
    gateway.release("three", three["token"])
    private_zookeeper.freeze()
    assert client.response().status == 503
    assert backend.idle()
    private_zookeeper.thaw()


def test_lost_in_a_location_of_another_layout(guarded, backend, tree):
    """The lock is watched as in the location that asked for it."""
    gateway = guarded("zk_lock_require one lost=abort;", server="""
        location /other/ { zk_lock_layout node; proxy_pass http://%s; }
        """ % backend.address)
    one = gateway.hold("one").json
    client = begin(gateway, headers={"Lock-Token": one["token"]})
    backend.next().answer(headers={"X-Accel-Redirect": "/other/"})
    seen = backend.next()
    waiter = gateway.begin("one", wait="1m")
    claims(tree, gateway, "one", 2)
    assert client.silent_for(0.2)
    gateway.release("one", one["token"])
    assert client.response().status == 503
    seen.wait_cut()
    gateway.release("one", waiter.response().token)
