"""zk_lock: a lock around a request."""

import hashlib
import itertools

import pytest

from lib.client import Gone
from lib.guards import SOON, begin, free, log, lose
from lib.process import wait_until


@pytest.mark.shows("a guarded request is served only while the lock is held")
def test_held_while_served(guarded, backend, tree):
    gateway = guarded()
    client = begin(gateway)
    seen = backend.next()
    tree.wait_claims(gateway.znode("one"), 1)
    assert gateway.acquire("one", wait="0").status == 423
    seen.answer(200, b"hello\n")
    response = client.response()
    assert (response.status, response.body) == (200, b"hello\n")
    free(tree, gateway)
    line = log(gateway, 1)
    assert line[:3] == ("200", "one", "granted")
    assert line.fencing == line.fencings and int(line.fencing) > 0


@pytest.mark.shows("a guarded request is served only while the lock is held")
def test_waits_for_the_lock(guarded, backend, tree):
    gateway = guarded()
    held = gateway.hold("one")
    client = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 2)
    assert backend.idle()
    gateway.release("one", held.json["token"])
    backend.next().answer()
    assert client.response().status == 200
    free(tree, gateway)


def test_busy_to_the_end(guarded, backend, tree):
    gateway = guarded("zk_lock one wait=300ms;")
    held = gateway.hold("one")
    asked = itertools.count()

    def ask():
        next(asked)
        return gateway.call("GET", "/app/")

    response = gateway.in_reach(ask)
    assert response.status == 423
    assert response.headers["Retry-After"] == "1"
    assert response.json["type"] == "/problems/taken"
    assert "holder" not in response.json
    assert backend.idle()
    tree.wait_claims(gateway.znode("one"), 1)
    gateway.release("one", held.json["token"])
    assert log(gateway, next(asked)).outcome == "taken"


@pytest.mark.shows("no claim of a guarded request is left")
def test_client_leaves_while_waiting(guarded, backend, tree):
    gateway = guarded()
    held = gateway.hold("one")
    client = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 2)
    client.close()
    tree.wait_claims(gateway.znode("one"), 1)
    gateway.release("one", held.json["token"])
    assert log(gateway, 1)[:3] == ("499", "one", "gone")
    assert backend.idle()


@pytest.mark.shows("no claim of a guarded request is left")
def test_client_leaves_while_served(guarded, backend, tree):
    gateway = guarded()
    client = begin(gateway)
    seen = backend.next()
    client.close()
    seen.wait_cut()
    free(tree, gateway)


@pytest.mark.shows("a guarded request is served only while the lock is held")
def test_lost_before_the_header(guarded, backend, tree):
    """503, and the upstream is cut off."""
    gateway = guarded()
    client = begin(gateway)
    seen = backend.next()
    lose(tree, gateway)
    response = client.response()
    assert response.status == 503
    assert "lost" in response.json["detail"]
    seen.wait_cut()
    assert log(gateway, 1).outcome == "lost"
    # the connection lives
    client.send("GET", "/app/")
    backend.next().answer()
    assert client.response().status == 200
    free(tree, gateway)


def test_lost_behind_the_header(guarded, backend, tree):
    gateway = guarded()
    client = begin(gateway)
    seen = backend.next()
    seen.begin(200, 1000)
    seen.send(b"x" * 10)
    lose(tree, gateway)
    with pytest.raises((Gone, ConnectionResetError)):
        client.response()
    seen.wait_cut()
    assert log(gateway, 1).outcome == "lost"


def test_lost_and_served_on(guarded, backend, tree):
    gateway = guarded("zk_lock one; zk_lock_lost continue;")
    client = begin(gateway)
    seen = backend.next()
    lose(tree, gateway)
    wait_until(lambda: "was lost" in gateway.log_text(), SOON, "the loss")
    seen.answer()
    assert client.response().status == 200
    assert log(gateway, 1).outcome == "lost"


def test_body_is_read_before(guarded, backend, tree):
    """A slow upload delays no waiter."""
    gateway = guarded()
    slow = gateway.connect()
    slow.send_bytes(b"POST /app/ HTTP/1.1\r\nHost: x\r\n"
                    b"Content-Length: 10\r\n\r\nhalf")
    assert gateway.call("GET", "/ready").status == 204
    response = gateway.acquire("one", wait="0")
    assert response.status == 201
    gateway.release("one", response.json["token"])
    slow.send_bytes(b"behind")
    seen = backend.next()
    assert seen.body == b"halfbehind"
    seen.answer()
    assert slow.response().status == 200
    free(tree, gateway)


def test_several_locks(guarded, backend, tree):
    gateway = guarded("zk_lock b; zk_lock a;")
    client = begin(gateway)
    seen = backend.next()
    for name in "ab":
        assert gateway.acquire(name, wait="0").status == 423
    seen.answer()
    assert client.response().status == 200
    free(tree, gateway, "a")
    free(tree, gateway, "b")
    line = log(gateway, 1)
    assert line.name == "b"
    assert line.fencings.split(",")[0] == line.fencing
    assert len(line.fencings.split(",")) == 2


def test_empty_name(guarded, backend, tree):
    gateway = guarded("zk_lock $arg_lock;")
    client = begin(gateway)
    backend.next().answer()
    assert client.response().status == 200
    assert tree.claims(gateway.znode("")[:-1]) == []


@pytest.mark.parametrize("name", ["..", ".", "x" * 201, "zookeeper"])
def test_name_that_no_znode_has(guarded, backend, tree, name):
    gateway = guarded("zk_lock $arg_lock;")
    client = begin(gateway, "/app/?lock=" + name)
    seen = backend.next()
    znode = "%s%%sha1-%s" % (name[:154],
                             hashlib.sha1(name.encode()).hexdigest())
    tree.wait_claims(gateway.znode(znode), 1)
    seen.answer()
    assert client.response().status == 200


def test_name_with_control_characters(guarded, backend):
    """The log tells the name of the znode."""
    gateway = guarded("zk_lock $uri;")
    client = begin(gateway, "/app/a%0Aforged%1B%7F%FF/")
    backend.next().answer()
    assert client.response().status == 200
    assert not any(line.startswith("forged")
                   for line in gateway.log_text().splitlines())


def test_root_that_is_too_long(guarded, backend):
    root = "/" + "r" * 300
    gateway = guarded("zk_lock $arg_lock; zk_lock_root %s;" % root)
    response = gateway.call("GET", "/app/", {"lock": "x" * 170})
    assert response.status == 400
    assert response.json["type"] == "/problems/bad-request"
    assert backend.idle()


def test_name_with_slashes(guarded, backend, tree):
    gateway = guarded("zk_lock $uri;")
    client = begin(gateway, "/app/x/y")
    seen = backend.next()
    tree.wait_claims(gateway.znode("app%2Fx%2Fy"), 1)
    for path in ["/locks/app%2Fx%2Fy", "/locks/app%252Fx%252Fy",
                 "/locks/%2Fapp%2fx%2Fy"]:
        response = gateway.call("POST", path + "?wait=0")
        assert response.status == 423, path
    seen.answer()
    assert client.response().status == 200
