"""A gateway that ends for good: the leases go on, but no lock is granted.

A worker closes the session at its end.  Before that the worker makes the held
leases durable, and another gateway then serves them.
A worker that leaves without an heir grants no lock any more.  Waiters are told
to come again, and the waiters' claims are gone before a waiter of another
gateway is granted the lock.

ZK_LOCK_QUITS is the number of rounds of the test that repeats all this.
"""

import os
import re
import signal

import pytest

from lib.checks import TERRAFORM, grant, problem, retry_after
from lib.client import lock_path
from lib.holders import Sessions, wait_dead
from lib.process import wait_until
from lib.streams import SSE, hold

ROUNDS = int(os.environ.get("ZK_LOCK_QUITS") or 5)
SOON = 15.0
INFO = {"ID": "4711", "Operation": "OperationTypeApply", "Info": "",
        "Who": "me", "Version": "1.9.8", "Path": "",
        "Created": "2026-11-21T13:28:37.123456789Z"}


@pytest.fixture
def start(start_gateway):
    """A gateway whose sessions end only when a worker closes them."""
    def make(**options):
        options.setdefault("session_timeout", "60s")
        return start_gateway(**options)
    return make


def refused(response):
    """No lock was granted, and the answer asks for a repeat."""
    problem(response, 503, "leaves")
    retry_after(response)


def quit_with(gateway, tree, name, claims):
    """Waits for the claims; then nginx quits."""
    tree.wait_claims(gateway.znode(name), claims)
    gateway.process.send_signal(signal.SIGQUIT)


def ended(gateway):
    gateway.process.wait(SOON)
    gateway.process = None
    wait_until(lambda: not gateway.left(), SOON, "all processes are gone")


def granted_elsewhere(there, tree, waiter, holder, name="x"):
    """The waiter at another gateway is granted the lock after the release.

    The lock is held until then, though the holder's gateway has ended.
    """
    tree.wait_claims(there.znode(name), 2, SOON)
    assert waiter.silent_for(0.2)
    assert there.release(name, holder.token).status == 204
    response = waiter.response(SOON)
    grant(response, name)
    tree.wait_claims(there.znode(name), 1, SOON)
    assert there.release(name, response.token).status == 204


def lead(gateway, tree):
    """(holder, waiters): waiters at both workers, ahead of all other clients.

    The lease of the holder belongs to the first worker.
    """
    one, other = gateway.worker_pids()
    holder = gateway.hold("x", ttl="10m", worker=one)
    waiters = []
    for worker in (other, one, other):
        waiters.append(gateway.begin("x", wait="1m", worker=worker))
        tree.wait_claims(gateway.znode("x"), 1 + len(waiters))
    return holder, waiters


def test_waiters(start, tree):
    """Another gateway's waiter behind the refused waiters gets the lock."""
    here, there = start(), start()
    holder, waiters = lead(here, tree)
    last = there.begin("x", wait="1m")
    quit_with(here, tree, "x", 5)
    for waiter in waiters:
        refused(waiter.response(SOON))
    ended(here)
    granted_elsewhere(there, tree, last, holder)


@pytest.mark.shows("a gateway that quits grants nothing any more")
def test_rounds(start, tree):
    here, there = start(workers=3), start()
    for i in range(ROUNDS):
        name = "x%d" % i
        workers = here.worker_pids()
        holder = here.hold(name, ttl="10m", worker=workers[i % 3])
        waiters = [here.begin(name, wait="1m", worker=worker)
                   for worker in workers for _ in range(3)]
        tree.wait_claims(here.znode(name), 10)
        last = there.begin(name, wait="1m")
        quit_with(here, tree, name, 11)
        for waiter in waiters:
            refused(waiter.response(SOON))
        ended(here)
        granted_elsewhere(there, tree, last, holder, name)
        here.start()


def test_polled(start, tree):
    """A claim without a waiter is not granted either."""
    here, there = start(), start()
    one, other = here.worker_pids()
    holder = here.hold("x", ttl="10m", worker=one)
    polled = here.acquire("x", headers={"Prefer": "respond-async"},
                          worker=other)
    assert polled.status == 202
    poll = here.connect(other)
    poll.send("GET", lock_path("x", polled.token), {"wait": "1m"})
    last = there.begin("x", wait="1m")
    quit_with(here, tree, "x", 3)
    problem(poll.response(SOON), 410)
    ended(here)
    granted_elsewhere(there, tree, last, holder)


def test_keyed(start, tree):
    """A repeat of the request waits at another worker for the same claim."""
    here, there = start(), start()
    one, other = here.worker_pids()
    holder = here.hold("x", ttl="10m", worker=one)
    headers = {"Idempotency-Key": "k"}
    waiters = [here.begin("x", None, headers, other, wait="1m")]
    tree.wait_claims(here.znode("x"), 2)
    waiters.append(here.begin("x", None, headers, one, wait="1m"))
    assert waiters[1].silent_for(0.3)   # the second claim came and is gone
    last = there.begin("x", wait="1m")
    quit_with(here, tree, "x", 3)
    for waiter in waiters:
        refused(waiter.response(SOON))
    ended(here)
    granted_elsewhere(there, tree, last, holder)


def test_stream(start, tree):
    """A holding stream and its worker stay; a waiting stream ends."""
    here, there = start(), start()
    one, other = here.worker_pids()
    holder = here.hold("x", ttl="10m", worker=one)
    waiting = hold(here, "x", SSE, other)
    assert waiting.event("queued")["position"] == 0
    holding = hold(here, "y", SSE, other)
    holding.event("granted")
    last = there.begin("x", wait="1m")
    quit_with(here, tree, "x", 3)
    assert waiting.event("lost")["reason"] == "shutdown"
    granted_elsewhere(there, tree, last, holder)
    problem(there.acquire("y", wait="0"), 423)
    holding.close()
    ended(here)
    tree.wait_claims(here.znode("y"), 0, SOON)


def test_several(start, tree):
    """A waiter for several locks gives up the locks that were granted."""
    here, there = start(), start()
    one, other = here.worker_pids()
    holder = here.hold("b", ttl="10m", worker=one)
    waiter = here.connect(other)
    waiter.send("POST", "/locks/", {"wait": "1m"}, None,
                {"names": ["a", "b", "c"]})
    tree.wait_claims(here.znode("b"), 2)
    tree.wait_claims(here.znode("a"), 1)
    last = there.connect()
    last.send("POST", "/locks/", {"wait": "1m"}, None, {"names": ["a", "b"]})
    quit_with(here, tree, "a", 2)
    refused(waiter.response(SOON))
    ended(here)
    tree.wait_claims(there.znode("a"), 1, SOON)
    assert last.silent_for(0.2)
    assert there.release("b", holder.token).status == 204
    response = last.response(SOON)
    assert response.status == 201, response
    assert there.call("DELETE", "/locks/", None,
                      {"Lock-Token": response.token}).status == 204


def test_terraform(start, tree):
    here, there = start(), start()
    one, other = here.worker_pids()
    holder = here.hold("x", ttl="10m", worker=one)
    waiter = here.connect(other)
    waiter.send("LOCK", lock_path("x"), {"wait": "1m"}, None, INFO)
    last = there.begin("x", wait="1m")
    quit_with(here, tree, "x", 3)
    response = waiter.response(SOON)
    assert response.status == 503, response
    assert not TERRAFORM & {key.lower() for key in response.json}
    ended(here)
    granted_elsewhere(there, tree, last, holder)


def test_one_znode(start, tree):
    """Leases of this layout are durable, too."""
    here, there = [start(location="zk_lock_layout node;") for _ in range(2)]
    one, other = here.worker_pids()
    holder = here.hold("x", ttl="10m", worker=one)
    waiters = [here.begin("x", wait="1m", worker=worker)
               for worker in (other, one)]
    last = there.begin("x", wait="1m")
    here.catch_up("x")
    there.catch_up("x")
    here.process.send_signal(signal.SIGQUIT)
    for waiter in waiters:
        refused(waiter.response(SOON))
    ended(here)
    assert last.silent_for(0.2)
    assert there.release("x", holder.token).status == 204
    response = last.response(SOON)
    grant(response, "x")
    assert there.release("x", response.token).status == 204


@pytest.mark.shows("a gateway that quits grants nothing any more")
def test_after_a_reload(start, tree):
    """The old workers' heirs are the new workers, which leave as well."""
    here, there = start(), start()
    holder, waiters = lead(here, tree)
    here.reload()
    here.wait_served()
    waiters.append(here.begin("x", wait="1m"))
    last = there.begin("x", wait="1m")
    quit_with(here, tree, "x", 6)
    for waiter in waiters:
        refused(waiter.response(SOON))
    ended(here)
    granted_elsewhere(there, tree, last, holder)


def test_another_zone(start, tree):
    """The new workers are another gateway and only take the leases over."""
    here = start(http="zk_lock_zone 2m;")
    holder, waiters = lead(here, tree)
    here.change_conf("zk_lock_zone 2m;", "zk_lock_zone 3m;")
    here.reload()
    for waiter in waiters:
        refused(waiter.response(SOON))
    here.wait_served()
    last = here.begin("x", wait="1m")
    granted_elsewhere(here, tree, last, holder)


def test_worker_quits_alone(start, tree):
    """The lock and the waiter stay, because another worker is the heir."""
    here = start()
    one, other = here.worker_pids()
    holder = here.hold("x", ttl="10m", worker=one)
    waiter = here.begin("x", wait="1m", ttl="10m", worker=one)
    tree.wait_claims(here.znode("x"), 2)
    side = here.connect(other)      # a new connection may miss this worker
    os.kill(one, signal.SIGQUIT)
    assert waiter.silent_for(0.3)
    assert side.request("DELETE", lock_path("x", holder.token)).status == 204
    response = waiter.response(SOON)
    grant(response, "x")
    assert response.worker == one
    wait_until(lambda: one not in here.left(), SOON, "it is gone")
    path = lock_path("x", response.token)
    assert wait_until(lambda: [r.status for r in [side.request("PUT", path)]
                               if r.status != 503])[0] == 200
    assert side.request("DELETE", path).status == 204


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGHUP])
def test_amid_an_adoption(start, start_proxy, zookeeper, tree, how):
    """The heir of a worker that died leaves at any point of its work on the
    dead worker's claims: leases go on, and what waited is gone.
    """
    sessions = Sessions(zookeeper, tree)
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, wait_sessions=False)
    gateway.wait_served()
    for passing in range(0, 12, 2):
        dying, heir = gateway.worker_pids()
        holders = [gateway.hold(name, ttl="10m", worker=dying)
                   for name in ("x", "y")]
        streams = [hold(gateway, name, worker=dying) for name in ("z", "x")]
        streams[0].event("granted")
        tree.wait_claims(gateway.znode("x"), 2)
        before = gateway.log_text().count("is adopted")

        proxy.keep(passing)
        gateway.kill_worker(dying)
        wait_until(lambda: gateway.log_text().count("is adopted") > before,
                   SOON, "a worker adopts the session")
        wait_until(lambda: proxy.passing == 0, SOON, "answers are kept")
        gateway.process.send_signal(how)
        wait_until(lambda: re.search(r"%d#%d: gracefully shutting down"
                                     % (heir, heir), gateway.log_text()),
                   SOON, "the heir leaves")
        proxy.pass_on()
        if how == signal.SIGQUIT:
            ended(gateway)
            assert len(tree.durables(gateway.root)) == 2
            assert not sessions.owning()
            gateway.start(wait_sessions=False)
        else:
            wait_dead([heir])
            wait_until(lambda: len(gateway.worker_pids()) == 2, SOON)
        gateway.wait_served()
        for name, claims in (("x", 1), ("y", 1), ("z", 0)):
            tree.wait_claims(gateway.znode(name), claims, SOON)
        for name, holder in zip("xy", holders):
            assert gateway.renew(name, holder.token).status == 200
            assert gateway.release(name, holder.token).status == 204


@pytest.mark.shows("a gateway that quits grants nothing any more")
def test_sibling_is_told_late(start, tree):
    """The sibling counts as the heir until the sibling learns of the quit."""
    here, there = start(), start()
    holder, waiters = lead(here, tree)
    last = there.begin("x", wait="1m")
    with here.frozen_worker(here.worker_pids()[1]):
        quit_with(here, tree, "x", 5)
        assert waiters[1].silent_for(0.5)
    for waiter in waiters:
        refused(waiter.response(SOON))
    ended(here)
    granted_elsewhere(there, tree, last, holder)


@pytest.mark.plain("a new binary is without their options")
def test_upgrade(start, tree):
    """The new binary is another gateway, which takes over."""
    here = start(daemon=True)
    holder, waiters = lead(here, tree)
    old, _ = here.upgrade()
    last = here.begin("x", wait="1m", worker=here.worker_pids()[0])
    tree.wait_claims(here.znode("x"), 5)
    old.send_signal(signal.SIGQUIT)
    for waiter in waiters:
        refused(waiter.response(SOON))
    old.wait(SOON)
    granted_elsewhere(here, tree, last, holder)
