"""The same over HTTP/2: each request of a connection is a separate client.

A client that cancels its stream has left; the other streams of the connection
stay.  The end of a connection ends all of the connection's streams.
"""

import fcntl
import socket
import sys
import termios
import time

import h2.settings
import pytest

from lib.checks import grant, problem
from lib.client import lock_path
from lib.metrics import counted
from lib.process import wait_until

WAIT = {"wait": "1m"}


@pytest.fixture
def connection(gateway):
    return gateway.connect_http2()


def release(connection, name, token):
    return connection.request("DELETE", lock_path(name),
                              headers={"Lock-Token": token})


def test_all_calls(gateway, connection):
    response = connection.request("POST", lock_path("x"), {"ttl": "10s"})
    content = grant(response, "x")
    token = content["token"]
    for path in (lock_path("x"), lock_path("x", token)):
        assert connection.request("GET", path).status == 200
    response = connection.request("PUT", lock_path("x", token),
                                  body={"ttl": "20s"})
    assert grant(response, "x", 200)["ttl_ms"] == 20000
    problem(connection.request("POST", lock_path("x"), {"wait": "0"}), 423)
    assert release(connection, "x", token).status == 204
    problem(connection.request("GET", lock_path("x")), 404)
    problem(connection.request("POST", lock_path("x"), body=[]), 400)


def test_body_in_frames(connection):
    stream = connection.send("POST", lock_path("x"), end=False,
                             headers={"Content-Type": "application/json"})
    body = b'{"owner":"me","ttl":"5s"}'
    for i in range(len(body)):
        connection.h2.send_data(stream, body[i:i + 1],
                                end_stream=i == len(body) - 1)
        connection._flush()
    content = grant(connection.response(stream), "x")
    assert content["ttl_ms"] == 5000
    release(connection, "x", content["token"])


def test_many_waiters_on_one_connection(gateway, tree, connection):
    holder = gateway.hold("x")
    streams = []
    for i in range(50):
        streams.append(connection.send("POST", lock_path("x"), WAIT))
        tree.wait_claims(gateway.znode("x"), i + 2)
    assert connection.silent_for(0.1)
    token, fencing = holder.token, holder.fencing
    for stream in streams:
        assert release(connection, "x", token).status == 204
        response = connection.response(stream, 10)
        grant(response, "x")
        assert response.fencing > fencing
        token, fencing = response.token, response.fencing
    assert release(connection, "x", token).status == 204
    tree.wait_claims(gateway.znode("x"), 0)


def test_cancelled_stream(gateway, tree, connection):
    holder = gateway.hold("x")
    streams = []
    for i in range(6):
        streams.append(connection.send("POST", lock_path("x"), WAIT))
        tree.wait_claims(gateway.znode("x"), i + 2)
    for stream in streams[::2]:
        connection.cancel(stream)
    tree.wait_claims(gateway.znode("x"), 4)

    token = holder.token
    for stream in streams[1::2]:
        assert release(connection, "x", token).status == 204
        response = connection.response(stream, 10)
        grant(response, "x")
        token = response.token
    assert release(connection, "x", token).status == 204
    tree.wait_claims(gateway.znode("x"), 0)


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_connection_ends(gateway, tree, leave):
    holder = gateway.hold("x")
    connection = gateway.connect_http2()
    for _ in range(30):
        connection.send("POST", lock_path("x"), WAIT)
    tree.wait_claims(gateway.znode("x"), 31)
    stayer = gateway.begin("x")
    tree.wait_claims(gateway.znode("x"), 32)
    getattr(connection, leave)()
    tree.wait_claims(gateway.znode("x"), 2)
    gateway.release("x", holder.token)
    gateway.release("x", stayer.response(10).token)


def test_cancelled_and_released_at_once(gateway, tree, connection):
    """A grant may already be on the way, and lasts as long as the lease."""
    for i in range(30):
        holder = gateway.hold("x", timeout=20)
        stream = connection.send("POST", lock_path("x"),
                                 {"wait": "1m", "ttl": "200ms"})
        tree.wait_claims(gateway.znode("x"), 2)
        releaser = gateway.connect()
        steps = [lambda: connection.cancel(stream),
                 lambda: releaser.send("DELETE",
                                       lock_path("x", holder.token))]
        for step in steps[::(-1) ** i]:
            step()
        assert releaser.response(20).status == 204
        again = gateway.hold("x", timeout=20)
        gateway.release("x", again.token)
    tree.wait_claims(gateway.znode("x"), 0)


def test_order_when_a_release_fails(start_gateway, tree):
    """Operations that fail together with a release are sent again, in order."""
    gateway = start_gateway(workers=1)
    worker, = gateway.worker_pids()
    with gateway.connect_http2() as connection:
        for _ in range(10):
            for name in ("x", "y"):
                gateway.release(name, gateway.hold(name).token)
            holder = gateway.hold("x")
            with gateway.frozen_worker(worker):
                claim, = tree.claims(gateway.znode("x"))
                tree.delete(gateway.znode("x") + "/" + claim)
                failing = connection.send("DELETE",
                                          lock_path("x", holder.token))
                waiters = [connection.send("POST", lock_path("y"), WAIT)
                           for _ in range(3)]
            assert connection.response(failing, 10).status in (204, 410)
            for stream in waiters:
                response = connection.response(stream, 10)
                grant(response, "y")
                assert release(connection, "y", response.token).status == 204
            tree.wait_claims(gateway.znode("y"), 0)


def test_cancelled_before_the_body_is_there(gateway, tree, connection):
    for _ in range(10):
        stream = connection.send("POST", lock_path("x"), end=False,
                                 headers={"Content-Type":
                                          "application/json"})
        connection.h2.send_data(stream, b'{"wait":')
        connection._flush()
        connection.cancel(stream)
    response = connection.request("POST", lock_path("x"), {"wait": "0"})
    grant(response, "x")
    release(connection, "x", response.token)
    tree.wait_claims(gateway.znode("x"), 0)


@pytest.mark.parametrize("asks", ["watches", "holds"])
def test_condition_on_a_stream_without_room(start_gateway, asks):
    """nginx's filters do not answer 412, and the stream goes on."""
    gateway = start_gateway(workers=1)
    workers = gateway.worker_pids()
    connection = gateway.connect_http2()
    connection.h2.update_settings(
        {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    connection._flush()
    condition = {"If-Match": '"1"', "Accept": "text/event-stream"}
    if asks == "watches":
        stream = connection.send("GET", lock_path("x"), headers=condition)
    else:
        stream = connection.send("POST", lock_path("x"),
                                 {"hold": "connection"}, condition)
    wait_until(lambda: begun(connection, stream), 20.0, "the answer begins")
    assert connection.answers[stream][0] == 200
    connection.h2.increment_flow_control_window(100000, stream)
    connection._flush()
    wait_until(lambda: begun(connection, stream)
               and connection.answers[stream][2], 20.0, "an event comes")
    assert gateway.worker_pids() == workers


@pytest.mark.parametrize("path, body", [
    (lock_path("x"), {"ttl": "1h"}),
    ("/locks/", {"ttl": "1h", "names": ["x", "y"]})])
@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_grant_that_was_begun(start_gateway, tree, leave, path, body):
    """A client that leaves in the middle of the grant holds no lock, and is
    counted as one that has left.
    """
    gateway = start_gateway(metrics=True)
    with gateway.connect_http2() as connection:
        connection.h2.update_settings(
            {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        connection._flush()
        stream = connection.send("POST", path, body=body)
        wait_until(lambda: begun(connection, stream), 20.0,
                   "the answer begins")
        assert connection.answers[stream][0] == 201
        tree.wait_claims(gateway.znode("x"), 1)
        if leave == "cancel":
            connection.cancel(stream)
        else:
            connection.close()
        tree.wait_claims(gateway.znode("x"), 0)
    wait_until(lambda: counted(gateway) == {("acquire", "gone"): 1}, 20.0,
               "the client counts")


def begun(connection, stream):
    try:
        connection._take(0.05)
    except TimeoutError:
        pass
    return stream in connection.answers


def test_grant_behind_a_full_connection(start_gateway, tree, tmp_path):
    """The whole answer comes, though the header could not be sent at once."""
    size = 6000000
    (tmp_path / "big").write_bytes(b"x" * size)
    gateway = start_gateway(server="location = /big { root %s; }" % tmp_path)
    with gateway.connect_http2() as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF,
                                     65536)
        connection.h2.update_settings(
            {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2 * size})
        connection.h2.increment_flow_control_window(2 * size)
        big = connection.send("GET", "/big")
        wait_until(lambda: full(connection), 20.0, "nginx cannot send more")
        stream = connection.send("POST", lock_path("x"), {"ttl": "1h"})
        tree.wait_claims(gateway.znode("x"), 1)
        content = grant(connection.response(stream), "x")
        assert len(connection.response(big).body) == size
        assert release(connection, "x", content["token"]).status == 204


def full(connection):
    """Whether what the client has not read stays the same for a moment."""
    unread = []
    for _ in range(2):
        buf = bytearray(4)
        fcntl.ioctl(connection.socket, termios.FIONREAD, buf)
        unread.append(int.from_bytes(buf, sys.byteorder))
        time.sleep(0.3)
    return unread[0] == unread[1] != 0
