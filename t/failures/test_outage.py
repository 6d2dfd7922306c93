"""ZooKeeper out of reach: no request hangs, and no lock is lost needlessly.

A request waits for ZooKeeper as long as for the lock, and gets 503 then.  A
request that is in the queue already goes on waiting, and gets the lock when
ZooKeeper is back within the session timeout.  Most tests have a separate
server, which they stop or freeze; the other tests cut the way to the server.
"""

import time

import pytest

from lib.checks import gone, grant, problem, retry_after
from lib.client import lock_path
from lib.process import wait_until
from lib.sessions import stay_ephemeral

IN_TIME = 8.0       # a second, and a stall of the machine
PATIENT = "zk_lock_timeout 20s;"    # so IN_TIME is not due to this time
TIMEOUT = "20s"     # of the session: longer than any outage here lasts
SHORT = "4s"        # of a session that a test waits for
BACK = 40.0


def refused(gateway, name="x", worker=None, wait="1s"):
    """A new acquire is told in time that no lock was granted."""
    connection = gateway.connect(worker)
    began = time.monotonic()
    response = connection.request("POST", lock_path(name), {"wait": wait})
    assert time.monotonic() - began < IN_TIME
    connection.close()
    problem(response, 503)
    retry_after(response)


def comes_back(gateway, name="x"):
    """Acquires as soon as the gateway can grant again."""
    response = wait_until(
        lambda: [r for r in [gateway.acquire(name, wait="20s")]
                 if r.status != 503], BACK, "the gateway is back")[0]
    grant(response, name)
    return response


def in_line(gateway, tree, name, number, **query):
    """Waiters, in turn at all workers, when each worker knows the claims."""
    present = len(tree.claims(gateway.znode(name)))
    workers = gateway.worker_pids()
    waiters = [gateway.begin(name, worker=workers[i % len(workers)], **query)
               for i in range(number)]
    tree.wait_claims(gateway.znode(name), present + number)
    gateway.catch_up(name)
    return waiters


def outages(zookeeper):
    """(begin, end) of an outage, by the way in which it happens."""
    return {
        "stopped": (zookeeper.stop, zookeeper.start),
        "killed": (zookeeper.kill, zookeeper.start),
        "frozen": (zookeeper.freeze, zookeeper.thaw),
    }


def test_down_at_the_start(private_zookeeper, start_gateway):
    gateway = start_gateway(zookeeper=private_zookeeper, wait_sessions=False,
                            location="zk_lock_timeout 1s;")
    for worker in gateway.worker_pids():
        refused(gateway, worker=worker)
        refused(gateway, worker=worker, wait="0")
    assert gateway.call("GET", "/ready").status == 204

    private_zookeeper.start()
    for _ in gateway.worker_pids():
        response = comes_back(gateway)
        gateway.release("x", response.token)


def test_workers_that_start_at_once(private_zookeeper, start_gateway,
                                    connect_tree):
    """Each worker has a gate, also where no worker has been before."""
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    gateway = start_gateway(zookeeper=private_zookeeper, workers=8)
    for _ in range(4):
        wait_until(lambda: len(tree.children("/zk_lock_gates")) == 8)
        gateway.stop()
        wait_until(lambda: tree.children("/zk_lock_gates") == [])
        tree.delete("/zk_lock_gates")
        gateway.start()
    wait_until(lambda: len(tree.children("/zk_lock_gates")) == 8)


def test_silent_at_the_start(private_zookeeper, start_gateway):
    """The port is open, but the server behind does not answer."""
    private_zookeeper.start()
    private_zookeeper.freeze()
    gateway = start_gateway(zookeeper=private_zookeeper, wait_sessions=False,
                            session_timeout="4s", location=PATIENT)
    for worker in gateway.worker_pids():
        refused(gateway, worker=worker)
    private_zookeeper.thaw()
    gateway.release("x", comes_back(gateway).token)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_each_address_is_tried(zookeeper, start_gateway, start_proxy, number):
    """The only address that answers is found, whichever that is."""
    proxies = [start_proxy(zookeeper) for _ in range(number)]
    for proxy in proxies:
        proxy.refuse()
    gateway = start_gateway(servers=",".join(proxy.address
                                             for proxy in proxies),
                            wait_sessions=False, workers=4,
                            location=PATIENT)
    for proxy in proxies:
        refused(gateway)
        proxy.listen()
        gateway.wait_served()
        proxy.refuse()
        proxy.kill()


@pytest.mark.shows("each request that waits is answered")
@pytest.mark.parametrize("how", ["stopped", "killed", "frozen"])
def test_waiters_wait_on(private_zookeeper, start_gateway, connect_tree, how):
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT, location=PATIENT)
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    workers = gateway.worker_pids()
    holder = gateway.hold("x", ttl="1h")
    waiters = in_line(gateway, tree, "x", 6, wait="2m")

    begin, end = outages(private_zookeeper)[how]
    begin()
    for worker in workers:
        refused(gateway, "y", worker)
        refused(gateway, "x", worker)
    assert all(waiter.silent_for(0) for waiter in waiters)
    end()

    tree.wait_back()
    gateway.release("y", comes_back(gateway, "y").token)
    # a refused acquire may have made a claim that has to be removed
    tree.wait_claims(gateway.znode("x"), 7)
    assert all(waiter.silent_for(0) for waiter in waiters)
    release_by_turns(gateway, holder, waiters)
    tree.wait_claims(gateway.znode("x"), 0)


def release(gateway, name, holder, asked=False):
    """Releases until confirmed; an unconfirmed release may be done later."""
    told = []
    wait_until(lambda: told.append(gateway.release(name, holder.token))
               or told[-1].status != 503, BACK, "a release")
    assert told[-1].status in ((204, 410) if asked or len(told) > 1
                               else (204,)), told


def release_by_turns(gateway, holder, waiters):
    """The waiters have any order; each gets the lock in turn."""
    waiters = list(waiters)
    while True:
        release(gateway, "x", holder)
        if not waiters:
            return
        ready = wait_until(lambda: [w for w in waiters
                                    if not w.silent_for(0)], BACK, "a grant")
        assert len(ready) == 1
        waiters.remove(ready[0])
        response = ready[0].response()
        grant(response, "x")
        assert response.fencing > holder.fencing
        holder = response


def test_held_locks_are_held_on(private_zookeeper, start_gateway):
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT, location=PATIENT)
    holder = gateway.hold("x", ttl="1h")
    private_zookeeper.stop()
    refused(gateway)
    private_zookeeper.start()
    for worker in gateway.worker_pids():
        wait_until(lambda: gateway.acquire("x", wait="0", worker=worker
                                           ).status == 423, BACK)
        response = gateway.inspect("x", holder.token, worker=worker)
        assert response.json["state"] == "held"
    assert gateway.release("x", holder.token).status == 204


def test_release_without_zookeeper(private_zookeeper, start_gateway,
                                   connect_tree):
    """The release waits and gets 503 then; the client may repeat it, and the
    gateway carries it out.
    """
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT,
                            location="zk_lock_timeout 1s;")
    holder = gateway.hold("x", ttl="1h")
    private_zookeeper.freeze()
    began = time.monotonic()
    response = gateway.release("x", holder.token)
    assert time.monotonic() - began < IN_TIME
    problem(response, 503)
    private_zookeeper.thaw()

    release(gateway, "x", holder, asked=True)
    tree = connect_tree(private_zookeeper.address)
    tree.wait_claims(gateway.znode("x"), 0)
    gateway.wait_served()
    gone(gateway, "x", holder.token)
    gateway.release("x", gateway.hold("x").token)


def test_release_without_zookeeper_and_a_reload(zookeeper, tree, start_gateway,
                                                start_proxy):
    """A worker that has to leave answers the waiting releases first: the
    connection broke after ZooKeeper had been out of reach for a while.
    """
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout=TIMEOUT)
    holders = {worker: gateway.hold("x%d" % worker, ttl="1h", worker=worker)
               for worker in gateway.worker_pids()}
    ways = {worker: gateway.connect(worker) for worker in holders}

    proxy.hole()
    for worker in holders:
        refused(gateway, worker=worker)
    proxy.refuse()
    proxy.kill()
    wait_until(lambda: gateway.log_text().count("connection is lost")
               == len(holders), what="the connections are lost")

    for worker, way in ways.items():
        way.send("DELETE", lock_path("x%d" % worker, holders[worker].token))
        assert gateway.call("GET", "/ready", worker=worker).status == 204
    gateway.reload(wait=False)
    for worker, way in ways.items():
        problem(way.response(), 503)

    proxy.pass_on()
    proxy.listen()
    for worker in holders:
        tree.wait_claims(gateway.znode("x%d" % worker), 0, BACK)


def test_wait_that_ends_meanwhile(private_zookeeper, start_gateway,
                                  connect_tree):
    """The wait is over while ZooKeeper is away: an answer, and no claim."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT)
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    holder = gateway.hold("x", ttl="1h")
    waiters = in_line(gateway, tree, "x", 4, wait="6s")
    private_zookeeper.freeze()
    for waiter in waiters:
        response = waiter.response()
        problem(response, 503)
    private_zookeeper.thaw()
    tree.wait_claims(gateway.znode("x"), 1, BACK)
    gateway.release("x", holder.token)


def test_clients_that_leave_meanwhile(private_zookeeper, start_gateway,
                                      connect_tree):
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT)
    tree = connect_tree(private_zookeeper.address, timeout=20.0)
    holder = gateway.hold("x", ttl="1h")
    waiters = in_line(gateway, tree, "x", 10, wait="1m")
    private_zookeeper.stop()
    for waiter in waiters:
        waiter.close()
    private_zookeeper.start()
    # a server that starts may have accepted the other connection, to serve
    # that later
    tree = connect_tree(private_zookeeper.address, timeout=20.0)
    tree.wait_claims(gateway.znode("x"), 1, 50)
    release(gateway, "x", holder)


def test_lease_that_ends_meanwhile(private_zookeeper, start_gateway,
                                   connect_tree):
    """The lease ends by the gateway's clock; the next waiter is granted."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout=TIMEOUT)
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    holder = gateway.hold("x", ttl="3s")
    waiter, = in_line(gateway, tree, "x", 1, wait="1m")
    private_zookeeper.freeze()
    waiter.silent_for(3.5)
    private_zookeeper.thaw()
    response = waiter.response(BACK)
    grant(response, "x")
    gateway.wait_served()
    gone(gateway, "x", holder.token)
    gateway.release("x", response.token)


@pytest.mark.parametrize("break_it", ["kill", "hole", "noreply", "refuse"])
def test_connection_breaks(zookeeper, tree, start_gateway, start_proxy,
                           break_it):
    """ZooKeeper is well; only the connection breaks, under a busy gateway."""
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout=TIMEOUT, location=PATIENT)
    holder = gateway.hold("x", ttl="1h")
    waiters = in_line(gateway, tree, "x", 4, wait="2m")

    getattr(proxy, break_it)()
    if break_it == "refuse":
        proxy.kill()
    if break_it != "kill":
        refused(gateway, "y")
    proxy.kill()
    proxy.pass_on()
    proxy.listen()

    gateway.release("y", comes_back(gateway, "y").token)
    tree.wait_claims(gateway.root + "/y", 0, BACK)
    release_by_turns(gateway, holder, waiters)
    tree.wait_claims(gateway.znode("x"), 0)


def test_another_server_takes_over(ensemble, start_gateway, connect_tree):
    """The server that the workers are connected to dies; the ensemble goes
    on, holders go on holding, and waiters go on waiting.
    """
    ensemble.start()
    gateway = start_gateway(zookeeper=ensemble, session_timeout=TIMEOUT)
    tree = connect_tree(ensemble.address)
    holder = gateway.hold("x", ttl="1h")
    waiters = in_line(gateway, tree, "x", 4, wait="2m")
    ensemble.leader().kill()
    ensemble.leader()
    gateway.release("y", comes_back(gateway, "y").token)
    release_by_turns(gateway, holder, waiters)


@pytest.mark.shows("a durable lease outlives its session")
def test_session_is_lost(zookeeper, tree, foreign, start_gateway,
                         start_proxy):
    """ZooKeeper was out of reach for longer than the session lives, and has
    given the lock to another client: the holder is never told "held", and then
    told that the claim is gone; the waiters queue again.
    """
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout=SHORT)
    gateway.wait_served()
    lock = gateway.znode("x")
    stay_ephemeral(tree, lock)
    holder = gateway.hold("x", ttl="1h")
    waiters = in_line(gateway, tree, "x", 4, wait="2m")

    proxy.hole()
    tree.wait_claims(lock, 0, BACK)
    hand = foreign.make_claim(lock)
    for worker in gateway.worker_pids():
        for ask in (gateway.inspect, gateway.renew):
            assert ask("x", holder.token, worker=worker).status in (410, 503)
    proxy.kill()
    proxy.pass_on()

    tree.wait_claims(lock, 5, BACK)
    gateway.wait_served()
    for worker in gateway.worker_pids():
        gone(gateway, "x", holder.token, worker)
        gateway.release("y", comes_back(gateway, "y").token)
    assert all(waiter.silent_for(0) for waiter in waiters)

    foreign.delete(hand)
    first, = wait_until(lambda: [w for w in waiters if not w.silent_for(0)],
                        BACK)
    response = first.response()
    grant(response, "x")
    assert response.fencing > holder.fencing
    assert "note" in response.json
    release_by_turns(gateway, response, [w for w in waiters if w != first])
    tree.wait_claims(lock, 0)


@pytest.mark.parametrize("ends", ["lease", "release"])
def test_worker_that_slept(zookeeper, tree, foreign, start_gateway, ends):
    """A worker stands still for longer than the session lives, and another
    client takes the lock.  When the worker wakes, its memory says that its
    waiter is next, but the worker must not grant.
    """
    gateway = start_gateway(session_timeout=SHORT)
    lock = gateway.znode("x")
    stay_ephemeral(tree, lock)
    worker = gateway.worker_pids()[0]
    holder = gateway.hold("x", worker=worker, ttl="1h")
    waiter = gateway.begin("x", worker=worker, wait="1m")
    releaser = gateway.connect(worker)
    tree.wait_claims(lock, 2)
    if ends == "lease":
        renewal = lock_path("x", holder.token)
        assert releaser.request("PUT", renewal, {"ttl": "2s"}).status == 200

    with gateway.frozen_worker(worker):
        if ends == "release":
            releaser.send("DELETE", lock_path("x", holder.token))
        tree.wait_claims(lock, 0, BACK)
        hand = foreign.make_claim(lock)

    tree.wait_claims(lock, 2, BACK)
    assert waiter.silent_for(0.3)
    gone(gateway, "x", holder.token, worker)
    foreign.delete(hand)
    response = waiter.response(BACK)
    grant(response, "x")
    assert "note" in response.json
    gateway.release("x", response.token)
