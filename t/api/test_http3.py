"""The same over HTTP/3, with an nginx that has HTTP/3.

A client of HTTP/3 can leave in more ways than other clients.  The client may
say that the client reads no more of an answer (STOP_SENDING), that nothing more
of the request comes (RESET_STREAM), or both; the connection may end.  Each time
the client's waits, and the locks that the client holds by a stream, end at
once, and all other requests of the connection stay.
"""

import subprocess

import pytest

from lib.checks import grant, problem
from lib.client import Gone, lock_path
from lib.gateway import NGINX
from lib.guards import location, lose
from lib.process import wait_until
from lib.streams import SSE, Http2Stream

if b"--with-http_v3_module" not in subprocess.run(
        [NGINX, "-V"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=30).stdout:
    pytest.skip("this nginx has no HTTP/3", allow_module_level=True)

from lib.http3 import Http3Connection       # noqa: E402

WAIT = {"wait": "1m"}
CANCELS = ["stop", "reset", "cancel"]
SERVER = """\
listen 127.0.0.1:%d quic reuseport;
ssl_certificate %s/localhost.pem;
ssl_certificate_key %s/localhost.key;
%s
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-keyout", "localhost.key",
         "-out", "localhost.pem"],
        cwd=folder, check=True, stderr=subprocess.DEVNULL)
    return folder


@pytest.fixture
def start(start_gateway, certificate):
    """A gateway that serves HTTP/3 at the port of the gateway's HTTP/2."""
    def start(server="", **options):
        gateway = start_gateway(start=False, **options)
        gateway.change_conf("        location = /ready {", SERVER % (
            gateway.http2_port, certificate, certificate, server)
            + "        location = /ready {")
        return gateway.start()
    return start


@pytest.fixture
def gateway(start):
    return start()


@pytest.fixture
def connect(gateway):
    connections = []

    def connect():
        connections.append(Http3Connection(gateway.http2_port))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


@pytest.fixture
def connection(connect):
    return connect()


def release(connection, name, token):
    return connection.request("DELETE", lock_path(name),
                              headers={"Lock-Token": token})


def left(gateway, times):
    """Whether at least so many requests ended because their clients left."""
    with open(gateway.prefix + "/access.log") as f:
        return f.read().count('" 499 ') >= times


def test_all_calls(gateway, connection):
    response = connection.request("POST", lock_path("x"), {"ttl": "10s"})
    token = grant(response, "x")["token"]
    for path in (lock_path("x"), lock_path("x", token)):
        assert connection.request("GET", path).status == 200
    response = connection.request("PUT", lock_path("x", token),
                                  body={"ttl": "20s"})
    assert grant(response, "x", 200)["ttl_ms"] == 20000
    problem(connection.request("POST", lock_path("x"), {"wait": "0"}), 423)
    assert release(connection, "x", token).status == 204
    problem(connection.request("GET", lock_path("x")), 404)
    problem(connection.request("POST", lock_path("x"), body=[]), 400)


@pytest.mark.parametrize("cancel", CANCELS)
def test_cancelled_waiters(gateway, tree, connection, cancel):
    holder = gateway.hold("x")
    streams = []
    for i in range(6):
        streams.append(connection.send("POST", lock_path("x"), WAIT))
        tree.wait_claims(gateway.znode("x"), i + 2)
    for stream in streams[::2]:
        getattr(connection, cancel)(stream)
    tree.wait_claims(gateway.znode("x"), 4)
    token = holder.token
    for stream in streams[1::2]:
        assert release(connection, "x", token).status == 204
        token = connection.response(stream).token
    assert release(connection, "x", token).status == 204
    tree.wait_claims(gateway.znode("x"), 0)


@pytest.mark.parametrize("cancel", CANCELS)
def test_cancelled_with_its_request(gateway, tree, connection, cancel):
    """The request and the cancel come in the same datagram, before any wait."""
    holder = gateway.hold("x")
    streams = []
    for _ in range(3):
        streams.append(connection.send("POST", lock_path("x"), WAIT,
                                       flush=False))
        getattr(connection, cancel)(streams[-1])
    stayer = connection.send("POST", lock_path("x"), WAIT)
    tree.wait_claims(gateway.znode("x"), 2)
    gateway.release("x", holder.token)
    release(connection, "x", connection.response(stayer).token)
    tree.wait_claims(gateway.znode("x"), 0)


def test_connection_ends(gateway, tree, connect):
    holder = gateway.hold("x")
    connection = connect()
    for _ in range(5):
        connection.send("POST", lock_path("x"), WAIT)
    tree.wait_claims(gateway.znode("x"), 6)
    connection.close()
    tree.wait_claims(gateway.znode("x"), 1)
    gateway.release("x", holder.token)


@pytest.mark.parametrize("cancel", CANCELS)
def test_cancelled_wait_for_several(gateway, tree, connection, cancel):
    holder = gateway.hold("y")
    stream = connection.send("POST", "/locks/", WAIT,
                             body={"names": ["x", "y"]})
    tree.wait_claims(gateway.znode("y"), 2)
    getattr(connection, cancel)(stream)
    tree.wait_claims(gateway.znode("y"), 1)
    tree.wait_claims(gateway.znode("x"), 0)
    gateway.release("y", holder.token)


@pytest.mark.parametrize("cancel", CANCELS)
def test_cancelled_watch(gateway, connection, cancel):
    holder = gateway.hold("x")
    response = connection.request("GET", lock_path("x"))
    stream = connection.send("GET", lock_path("x"), WAIT, headers={
        "If-None-Match": response.headers["ETag"]})
    # the worker has read the earlier request by then
    assert connection.request("GET", "/ready").status == 204
    assert connection.silent_for(0.1)
    getattr(connection, cancel)(stream)
    wait_until(lambda: left(gateway, 1), 10.0, "the watch has ended")
    gateway.release("x", holder.token)


@pytest.mark.parametrize("cancel", CANCELS)
def test_cancelled_hold(gateway, tree, connection, cancel):
    """A lock that is held by a stream is free when the client leaves."""
    holds = Http2Stream(connection, "POST", lock_path("x"),
                        {"hold": "connection"}, {"Accept": SSE})
    assert holds.next().name == "granted"
    waits = Http2Stream(connection, "POST", lock_path("x"),
                        {"hold": "connection"}, {"Accept": SSE})
    assert waits.next().name == "queued"
    getattr(connection, cancel)(holds.stream)
    assert waits.event("granted")
    getattr(connection, cancel)(waits.stream)
    tree.wait_claims(gateway.znode("x"), 0)


@pytest.mark.parametrize("cancel", CANCELS)
def test_cancelled_stream_of_a_lock(gateway, connection, cancel):
    watch = Http2Stream(connection, "GET", lock_path("x"),
                        headers={"Accept": SSE})
    watch.next()
    getattr(connection, cancel)(watch.stream)
    assert release(connection, "x", gateway.hold("x").token).status == 204
    assert connection.silent_for(0.1) or watch.stream in connection.broken
    wait_until(lambda: '"GET %s HTTP/3.0" ' % lock_path("x")
               in open(gateway.prefix + "/access.log").read(), 10.0,
               "the stream has ended")


def test_no_option_of_tcp_on_the_socket(gateway, connection):
    holds = Http2Stream(connection, "POST", lock_path("x"),
                        {"hold": "connection"}, {"Accept": SSE})
    assert holds.next().name == "granted"
    connection.cancel(holds.stream)
    assert "setsockopt" not in gateway.log_text()


def test_silent_client(start, tree):
    """After keepalive_timeout nginx gives up a client that sends nothing."""
    gateway = start(server="keepalive_timeout 3s;")
    holder = gateway.hold("x")
    connection = Http3Connection(gateway.http2_port)
    stream = connection.send("POST", lock_path("x"), WAIT)
    tree.wait_claims(gateway.znode("x"), 2)
    with pytest.raises(Gone):
        connection.response(stream)
    connection.vanish()
    tree.wait_claims(gateway.znode("x"), 1)
    gateway.release("x", holder.token)


@pytest.fixture
def guarded(start, backend):
    return start(location("zk_lock x;", "proxy_pass http://%s;"
                          % backend.address))


@pytest.fixture
def guarded_connection(guarded):
    connection = Http3Connection(guarded.http2_port)
    yield connection
    connection.close()


def test_guarded(guarded, guarded_connection, backend, tree):
    stream = guarded_connection.send("POST", "/app/", body={"a": 1})
    seen = backend.next()
    assert guarded.acquire("x", wait="0").status == 423
    seen.answer(200, b"hello\n")
    assert guarded_connection.response(stream).body == b"hello\n"
    tree.wait_claims(guarded.znode("x"), 0)


@pytest.mark.parametrize("cancel", CANCELS)
def test_guarded_and_cancelled(guarded, guarded_connection, backend, tree,
                               cancel):
    """While the request waits, and while it is served.

    A proxied request that was sent whole goes on if only its side is reset.
    """
    served = guarded_connection.send("GET", "/app/")
    seen = backend.next()
    waits = guarded_connection.send("GET", "/app/")
    tree.wait_claims(guarded.znode("x"), 2)
    getattr(guarded_connection, cancel)(waits)
    tree.wait_claims(guarded.znode("x"), 1)
    getattr(guarded_connection, cancel)(served)
    if cancel == "reset":
        seen.answer()
    else:
        seen.wait_cut()
    tree.wait_claims(guarded.znode("x"), 0)
    assert backend.idle()


def test_guarded_and_lost(guarded, guarded_connection, backend, tree):
    """503, or a reset of the stream; the connection lives."""
    stream = guarded_connection.send("GET", "/app/")
    seen = backend.next()
    lose(tree, guarded, "x")
    problem(guarded_connection.response(stream), 503)
    seen.wait_cut()
    stream = guarded_connection.send("GET", "/app/")
    seen = backend.next()
    seen.begin(200, 100000)
    seen.send(b"x" * 50000)
    lose(tree, guarded, "x")
    with pytest.raises(Gone):
        guarded_connection.response(stream)
    seen.wait_cut()
    assert guarded_connection.request("GET", "/ready").status == 204
