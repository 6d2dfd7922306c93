"""The ends of guarded requests: an end of nginx or a worker, an outage."""

import signal

import pytest

from lib.client import Gone
from lib.guards import SOON, begin, free, location, log


def contend(gateway, backend, tree, worker=None):
    """A request that is served, as the application sees it, and a waiter."""
    client = begin(gateway, worker=worker)
    seen = backend.next()
    waiter = begin(gateway, worker=worker)
    tree.wait_claims(gateway.znode("one"), 2)
    return client, seen, waiter


def refused(client, timeout=SOON):
    response = client.response(timeout)
    assert response.status == 503
    assert response.headers["Retry-After"] == "1"
    return response


def cut(client):
    with pytest.raises((Gone, ConnectionResetError)):
        client.response(SOON)


def test_quit(guarded, backend, tree):
    """The request is served to the end, and the waiter is refused at once."""
    gateway = guarded()
    client, seen, waiter = contend(gateway, backend, tree)
    gateway.process.send_signal(signal.SIGQUIT)
    refused(waiter)
    seen.answer(200, b"done\n")
    assert client.response(SOON).status == 200
    free(tree, gateway)
    gateway.stop()


def test_reload(guarded, backend, tree):
    """The old worker serves both."""
    gateway = guarded()
    client, seen, waiter = contend(gateway, backend, tree)
    gateway.reload()
    seen.answer()
    assert client.response(SOON).status == 200
    backend.next().answer()
    assert waiter.response(SOON).status == 200
    free(tree, gateway)


def test_shutdown_timeout(guarded, backend, tree):
    # of two workers the later might grant and pass on what the first cuts off
    gateway = guarded(main="worker_shutdown_timeout 1s;")
    client, seen, waiter = contend(gateway, backend, tree,
                                   gateway.worker_pids()[0])
    gateway.reload()
    refused(waiter)
    cut(client)
    seen.wait_cut()
    free(tree, gateway)


@pytest.mark.shows("no claim of a guarded request is left")
def test_worker_dies(guarded, backend, tree):
    """The claims of the worker are removed, the one that is held, too."""
    gateway = guarded()
    worker, other = gateway.worker_pids()
    client, seen, waiter = contend(gateway, backend, tree, worker)
    last = begin(gateway, worker=other)
    tree.wait_claims(gateway.znode("one"), 3)
    gateway.kill_worker(worker)
    cut(client)
    cut(waiter)
    seen.wait_cut()
    backend.next().answer()
    assert last.response(SOON).status == 200
    free(tree, gateway)


def test_operator_breaks_the_lock(guarded, backend, tree):
    gateway = guarded(server="location /locks/admin/ {\n"
                             "zk_lock_api;\nzk_lock_admin on;\n}\n")
    client, seen, waiter = contend(gateway, backend, tree)
    assert gateway.call("DELETE", "/locks/admin/one?force=1",
                        headers={"If-Match": "*"}).status == 204
    refused(client)
    seen.wait_cut()
    backend.next().answer()
    assert waiter.response(SOON).status == 200
    assert log(gateway, 1).outcome == "lost"


def test_zookeeper_is_away(private_zookeeper, guarded, backend):
    """Refused, when the wait is over; or served without a lock."""
    private_zookeeper.start()
    content = "proxy_pass http://%s;" % backend.address
    gateway = guarded(
        "zk_lock one wait=1s;", zookeeper=private_zookeeper,
        server=location("zk_lock one;\nzk_lock_timeout 1s;\n"
                        "zk_lock_unreachable pass;", content, "/pass/"))
    private_zookeeper.freeze()
    response = gateway.call("GET", "/app/")
    assert response.status == 503
    assert "Retry-After" in response.headers
    assert backend.idle()
    client = begin(gateway, "/pass/")
    backend.next().answer()
    assert client.response().status == 200
    assert log(gateway, 1).outcome == "unreachable"
    assert log(gateway, 2).outcome == "unlocked"
    private_zookeeper.thaw()


def test_zookeeper_is_away_while_served(guarded, backend, zookeeper,
                                        start_proxy, tree):
    """A request that has its lock waits for ZooKeeper no more: it is served
    once, with the lock, while others pass without.
    """
    proxy = start_proxy(zookeeper)
    gateway = guarded("zk_lock $arg_n;\nzk_lock_timeout 300ms;\n"
                      "zk_lock_unreachable pass;", servers=proxy.address,
                      session_timeout="60s", wait_sessions=False, workers=1)
    gateway.wait_served()
    holder = gateway.hold("one")
    client = begin(gateway, "/app/?n=one")
    tree.wait_claims(gateway.znode("one"), 2)
    gateway.release("one", holder.token)
    seen = backend.next()
    proxy.hole()
    for name in "two", "one":
        other = begin(gateway, "/app/?n=" + name)
        backend.next().answer()
        assert other.response().status == 200
        assert log(gateway, 1 if name == "two" else 2).outcome == "unlocked"
    assert backend.idle() and backend.total == 3
    proxy.pass_on()
    gateway.refused("one", wait="0")
    seen.answer()
    assert client.response().status == 200
    assert log(gateway, 3).outcome == "granted"
    free(tree, gateway)


@pytest.mark.shows("a guarded request is served only while the lock is held")
def test_session_is_lost(private_zookeeper, guarded, backend):
    """The request is cut off when the session is not sure to live."""
    private_zookeeper.start()
    gateway = guarded(zookeeper=private_zookeeper, session_timeout="4s")
    client = begin(gateway)
    seen = backend.next()
    private_zookeeper.freeze()
    refused(client, 20)
    seen.wait_cut()
    assert log(gateway, 1).outcome == "lost"
    private_zookeeper.thaw()
