"""The harness: the checks that judge a gateway must be able to fail.

These tests run nginx without the module, so that a failure here points to the
harness or the machine, and never to the module.
"""

import os
import socket
import threading

import pytest

from lib.client import Gone
from lib.process import wait_until
from lib.proxy import LOSE, UNANSWERED
from lib.zookeeper import Tree

SERVER = """
location = /echo {
    return 200 "hello";
}
location = /hang {
    proxy_pass http://127.0.0.1:%d;
}
"""


@pytest.fixture
def plain(start_gateway, listener):
    """An nginx without the module, and a backend that never answers."""
    return start_gateway(module=None, zookeeper=None,
                         server=SERVER % listener.getsockname()[1])


@pytest.fixture
def listener():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(16)
        s.settimeout(20)
        yield s


def test_worker_is_known_and_can_be_picked(plain):
    pids = plain.worker_pids()
    assert len(pids) == 2
    for pid in pids:
        assert plain.call("GET", "/ready", worker=pid).worker == pid


def test_reload_replaces_workers(plain):
    old = plain.reload()
    assert not old & set(plain.worker_pids())
    wait_until(lambda: not plain.worker_pids(leaving=True), 20,
               "old workers are gone")


def test_killed_worker_is_allowed_for(plain):
    victim = plain.worker_pids()[0]
    plain.kill_worker(victim)
    wait_until(lambda: len(plain.worker_pids()) == 2
               and victim not in plain.worker_pids(), 20, "a new worker")


def test_alert_in_log_is_a_failure(plain):
    with open(plain.error_log, "a") as f:
        f.write("2020/01/01 00:00:00 [alert] 1#1: open socket #3 left\n")
    with pytest.raises(AssertionError, match="open socket"):
        plain.finish()
    plain.allow("open socket #3 left")


def test_sanitizer_report_is_a_failure(plain):
    path = os.path.join(plain.prefix, "sanitizer.123")
    with open(path, "w") as f:
        f.write("==123==ERROR: AddressSanitizer: heap-use-after-free\n")
    with pytest.raises(AssertionError, match="heap-use-after-free"):
        plain.finish()
    os.unlink(path)


@pytest.mark.plain("they report the crash themselves")
def test_crash_is_a_failure(plain):
    os.kill(plain.worker_pids()[0], 11)
    wait_until(lambda: "exited on signal" in plain.log_text(), 20,
               "the alert")
    with pytest.raises(AssertionError, match="exited on signal 11"):
        plain.finish()
    plain.allow("exited on signal 11")


def test_keep_alive_and_leaving(plain, listener):
    with plain.connect() as connection:
        first = connection.request("GET", "/echo")
        second = connection.request("GET", "/echo")
        assert first.body == second.body == b"hello"
        assert first.worker == second.worker

    asked = []
    for leave in ("close", "reset", "half_close"):
        connection = plain.connect()
        connection.send("GET", "/hang")
        asked.append(listener.accept()[0])
        assert connection.silent_for(0.3)
        getattr(connection, leave)()

    access = os.path.join(plain.prefix, "access.log")
    wait_until(lambda: open(access).read().count('" 499 ') == 3, 20,
               "nginx saw three clients leave")
    for backend in asked:
        backend.close()


def test_http2_client(plain, listener):
    with plain.connect_http2() as connection:
        assert connection.request("GET", "/echo").body == b"hello"
        stream = connection.send("GET", "/hang")
        asked = listener.accept()[0]
        assert connection.silent_for(0.3)
        connection.cancel(stream)
        assert connection.request("GET", "/echo").status == 200

    access = os.path.join(plain.prefix, "access.log")
    wait_until(lambda: '"GET /hang HTTP/2.0" 499' in open(access).read(), 20,
               "nginx saw the stream's end")
    asked.close()


def test_counters(private_zookeeper, connect_tree, root):
    zookeeper = private_zookeeper
    zookeeper.start()
    hand = connect_tree(zookeeper.address)
    hand.make(root)
    top = "/" + root.split("/")[1]

    before = zookeeper.transactions(), zookeeper.reads(top)
    transaction = hand.client.transaction()
    for i in range(20):
        transaction.create("%s/%d" % (root, i))
    transaction.commit()
    assert zookeeper.transactions() - before[0] == 1
    assert zookeeper.reads(top) == before[1]

    hand.children(root)
    hand.data(root)
    assert zookeeper.transactions() - before[0] == 1
    assert zookeeper.reads(top) - before[1] == 2


def test_sessions_and_watches(zookeeper, connect_tree, root):
    hand = connect_tree(zookeeper.address)
    assert hand.session in zookeeper.sessions()
    hand.make(root)
    hand.client.get(root, watch=lambda event: None)
    assert hand.session in zookeeper.watched_paths()[root]


def test_waiting_for_claims(tree, foreign, root):
    lock = root + "/x"
    timer = threading.Timer(0.1, foreign.make_claim, [lock])
    timer.start()
    claims = tree.wait_claims(lock, 1)
    timer.join()
    foreign.delete(lock + "/" + claims[0])
    tree.wait_claims(lock, 0)


def test_stop_freeze_and_start_again(private_zookeeper):
    server = private_zookeeper.start()
    tree = Tree(server.address)
    tree.make("/a", b"1")
    server.freeze()
    with pytest.raises(OSError):
        server.command("srvr", timeout=0.2)
    server.thaw()
    server.stop()
    server.start()
    tree.wait_back()
    assert tree.data("/a") == b"1"
    tree.close()


def test_ensemble_changes_leader(ensemble, connect_tree):
    ensemble.start()
    tree = connect_tree(ensemble.address)
    tree.make("/a")
    leader = ensemble.leader()
    leader.kill()
    assert ensemble.leader() is not leader
    tree.wait_back()
    wait_until(lambda: tree.client.retry(tree.client.exists, "/a"), 30)


def test_proxy_passes_counts_and_cuts(zookeeper, start_proxy, connect_tree,
                                      root):
    proxy = start_proxy(zookeeper)
    tree = connect_tree(proxy.address)
    tree.make(root)
    assert proxy.accepted == 1
    assert proxy.requests["create"] >= 1
    session = tree.session
    proxy.kill()
    wait_until(lambda: proxy.accepted == 2 and tree.client.connected, 20,
               "the client is back")
    assert tree.session == session


def test_proxy_swallows_an_answer(zookeeper, tree, start_proxy, connect_tree,
                                  root):
    proxy = start_proxy(zookeeper)
    behind = connect_tree(proxy.address)
    tree.make(root)
    for how, exists in ((LOSE, False), (UNANSWERED, True)):
        fault = proxy.fault("create", how)
        with pytest.raises(Exception):
            behind.client.create(root + "/" + how)
        assert fault.happened.is_set()
        assert bool(tree.stat(root + "/" + how)) is exists
        behind.wait_back()


def test_proxy_hole_and_delay(zookeeper, start_proxy, connect_tree):
    proxy = start_proxy(zookeeper)
    tree = connect_tree(proxy.address)
    proxy.hole()
    answer = tree.client.get_children_async("/")
    answer.wait(0.2)
    assert not answer.ready()
    proxy.pass_on()
    assert "zookeeper" in answer.get(timeout=20)


def test_no_answer_is_told_from_an_end(plain):
    connection = plain.connect()
    connection.send_bytes(b"GET /echo HTTP/1.1\r\n\r\n", "GET")
    assert connection.response().status == 400
    with pytest.raises(Gone):
        connection.response()
