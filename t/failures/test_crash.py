"""A worker dies without a word: kill -9, as a crash or the kernel would do it.

The worker's clients are cut off, and no lock is lost.  Another worker takes the
session over within a second.  Claims that waited, and claims whose grant was
not told, are deleted because no client is there to be granted; held locks stay
held.  Until then, and in that very moment, every other worker answers calls
with the tokens of the dead worker.

The session timeout is long here: a claim that is gone was deleted by a worker,
and a claim that stays was kept.  ZK_LOCK_DEATHS is the number of deaths of the
last test, ZK_LOCK_LATE that of late requests.
"""

import contextlib
import os
import random
import re
import signal
import time

import pytest

from lib import streams
from lib.checks import gone, grant, problem
from lib.client import Gone, lock_path
from lib.holders import Held, Keeper, Load, Sessions
from lib.process import alive, state, wait_until
from lib.proxy import SWALLOWED
from lib.tokens import claim_of

DEATHS = int(os.environ.get("ZK_LOCK_DEATHS") or 12)
LATE = int(os.environ.get("ZK_LOCK_LATE") or 3)

TIMEOUT = "60s"
SOON = 20.0
CREATES = ("create", "create2", "multi")
DELETES = ("delete", "multi")


@pytest.fixture
def sessions(zookeeper, tree):
    return Sessions(zookeeper, tree)


@pytest.fixture
def start(sessions, start_gateway):
    def start(**options):
        options.setdefault("session_timeout", TIMEOUT)
        gateway = start_gateway(**options)
        return gateway
    return start


@pytest.fixture
def gateway(start):
    return start()


@pytest.fixture
def held(gateway, tree):
    return Held(gateway, tree)


def kill(gateway, *workers):
    """Kills the workers, and waits until the master has replaced them."""
    for worker in workers:
        gateway.kill_worker(worker)
    respawned(gateway, workers)


def respawned(gateway, dead):
    wait_until(lambda: len(gateway.worker_pids()) == gateway.workers
               and not set(dead) & set(gateway.worker_pids()), SOON,
               "new workers")
    gateway._note_processes()


def released(gateway, name, token, worker=None):
    """Releases until a worker knows the claim's end; returns the status."""
    def ask():
        try:
            response = gateway.release(name, token, worker)
        except (OSError, Gone):
            return None
        return None if response.status == 503 else response.status
    return wait_until(ask, 20, "an answer to the release")


@pytest.mark.shows("a held lock outlives its worker, and reloads")
def test_held_locks(gateway, held, sessions):
    """Locks are renewed all the time, at living workers and at new workers."""
    held.spread(8)
    with Keeper(held, pause=0) as keeper:
        for worker in gateway.worker_pids():
            keeper.next_rounds()
            kill(gateway, worker)
            keeper.next_rounds(2)
            held.check()
    held.release()
    sessions.wait_owning(2)


def test_released_elsewhere(start, tree):
    """A release at this gateway comes before the worker that keeps the claim
    has learnt of the release at the other gateway: the answer is 410.
    """
    here, there = start(), start()
    for _ in range(2):
        dead, other = here.worker_pids()
        names = ["x%d" % i for i in range(100)]
        tokens = [here.hold(name, worker=dead).token for name in names]
        kill(here, dead)
        here.wait_served()
        elsewhere = there.connect()
        for i, (name, token) in enumerate(zip(names, tokens)):
            connection = here.connect(here.worker_pids()[i % 2])
            assert elsewhere.request("DELETE", lock_path(name), headers={
                "Lock-Token": token}).status == 204
            problem(connection.request("DELETE", lock_path(name), headers={
                "Lock-Token": token}), 410)
            connection.close()


def test_claims_that_waited(gateway, held, tree):
    """The claims go at once, and the claims behind have their turn."""
    dead, other = gateway.worker_pids()
    lock = held.add("x", other)
    waiters = []
    for worker in (dead, other, dead, dead, other):
        waiters.append(gateway.begin("x", wait="1m", worker=worker))
        tree.wait_claims(gateway.znode("x"), 1 + len(waiters))

    kill(gateway, dead)
    tree.wait_claims(gateway.znode("x"), 3, SOON)
    for i in (0, 2, 3):
        assert waiters[i].closed_by_server(SOON)
    for i in (1, 4):
        assert waiters[i].silent_for(0)
    held.check()

    fencing = lock.fencing
    held.release()
    for i in (1, 4):
        response = waiters[i].response(SOON)
        grant(response, "x")
        assert response.fencing > fencing
        fencing = response.fencing
        assert gateway.release("x", response.token).status == 204
    tree.wait_claims(gateway.znode("x"), 0)


def test_waiter_behind_the_dead_alone(gateway, tree):
    """Ahead of the waiter is only a claim whose worker died before its turn.
    """
    dead, other = gateway.worker_pids()
    holder = gateway.hold("x", worker=other)
    gateway.begin("x", wait="1m", worker=dead)
    tree.wait_claims(gateway.znode("x"), 2)
    waiter = gateway.begin("x", wait="1m", worker=other)
    tree.wait_claims(gateway.znode("x"), 3)
    releaser = gateway.connect(other)
    gateway.kill_worker(dead)
    releaser.send("DELETE", lock_path("x", holder.token))
    assert releaser.response(SOON).status == 204
    response = waiter.response(SOON)
    grant(response, "x")
    tree.wait_claims(gateway.znode("x"), 1, SOON)
    respawned(gateway, [dead])
    gateway.wait_served()
    assert gateway.release("x", response.token).status == 204


def test_behind_a_lock_of_the_dead(gateway, held, tree):
    """A waiter behind a lock that a dead worker granted waits for the release.
    """
    dead, other = gateway.worker_pids()
    held.add("x", dead)
    waiter = gateway.begin("x", wait="1m", worker=other)
    tree.wait_claims(gateway.znode("x"), 2)
    kill(gateway, dead)
    held.check()
    for worker in gateway.worker_pids():
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
    assert waiter.silent_for(0)
    held.release()
    grant(waiter.response(SOON), "x")


def test_lease_of_a_dead_worker(gateway, tree):
    """The lease ends in time, neither with the worker nor later."""
    dead, other = gateway.worker_pids()
    began = time.monotonic()
    holder = gateway.hold("x", ttl="3s", worker=dead)
    waiter = gateway.begin("x", wait="1m", worker=other)
    tree.wait_claims(gateway.znode("x"), lambda claims: (
        set(claims) - {claim_of(holder.token)}))
    kill(gateway, dead)
    response = waiter.response(SOON)
    assert time.monotonic() - began >= 2.99
    grant(response, "x")
    gateway.wait_served()
    gone(gateway, "x", holder.token)
    tree.wait_claims(gateway.znode("x"), 1, SOON)
    assert gateway.release("x", response.token).status == 204


def test_lease_over_in_the_moment_of_death(gateway, tree):
    """A lease of 100 ms may end while the claim has no worker."""
    for _ in range(3):
        dead, other = gateway.worker_pids()
        waiter = gateway.connect(other)
        holder = gateway.hold("x", ttl="100ms", worker=dead)
        waiter.send("POST", lock_path("x"), {"wait": "1m"})
        tree.wait_claims(gateway.znode("x"), lambda claims: (
            set(claims) - {claim_of(holder.token)}))
        gateway.kill_worker(dead)
        response = waiter.response(SOON)
        grant(response, "x")
        respawned(gateway, [dead])
        gateway.wait_served()
        assert gateway.release("x", response.token).status == 204
        wait_until(lambda: gateway.renew("x", holder.token).status == 410,
                   SOON, "the lease is over")
        tree.wait_claims(gateway.znode("x"), 0, SOON)


@pytest.mark.parametrize("at", ["dead", "other"])
def test_release_in_the_moment_of_death(gateway, tree, at):
    """Answered or not, the release may be repeated, and the next waiter gets
    the lock.
    """
    for i in range(5):
        dead, other = gateway.worker_pids()
        holder = gateway.hold("x", ttl="1h", worker=dead)
        waiter = gateway.begin("x", wait="1m", worker=other)
        releaser = gateway.connect(dead if at == "dead" else other)
        tree.wait_claims(gateway.znode("x"), 2)
        if i == 4:
            gateway.kill_worker(dead)
        releaser.send("DELETE", lock_path("x", holder.token))
        if i < 4:
            time.sleep(i * 0.0005)
            gateway.kill_worker(dead)
        status = answer_or_end(releaser)
        assert status in (204, 503, None)
        assert released(gateway, "x", holder.token) in (204, 410)
        response = waiter.response(SOON)
        grant(response, "x")
        assert response.fencing > holder.fencing
        respawned(gateway, [dead])
        gateway.wait_served()
        assert gateway.release("x", response.token).status == 204
        tree.wait_claims(gateway.znode("x"), 0, SOON)


def answer_or_end(connection):
    """The status, or None if the connection was cut."""
    try:
        return connection.response().status
    except (ConnectionError, Gone):
        return None


def test_acquires_in_the_moment_of_death(gateway, held, tree):
    """A client that was told of a grant has the lock; other claims are gone."""
    for i in range(3):
        dead = gateway.worker_pids()[0]
        connections = [gateway.connect(dead) for _ in range(20)]
        names = ["x%d.%d" % (i, n) for n in range(len(connections))]
        for name, connection in zip(names, connections):
            connection.send("POST", lock_path(name),
                            {"wait": "10s", "ttl": "20s"})
        time.sleep(i * 0.001)
        kill(gateway, dead)
        for name, connection in zip(names, connections):
            try:
                response = connection.response(SOON)
            except (ConnectionError, Gone):
                continue
            # a new worker may not have a session yet
            renewed = wait_until(lambda: [
                r for r in [gateway.renew(name, response.token, ttl="1h")]
                if r.status != 503], SOON, "a renewal")[0]
            assert renewed.status == 200, renewed
            held.note(name, response)
        for name in names:
            own = sum(lock.name == name for lock in held.locks)
            tree.wait_claims(gateway.znode(name), own, SOON + 20)
    held.check()
    held.release()


@pytest.fixture
def behind_proxy(zookeeper, start, start_proxy):
    proxy = start_proxy(zookeeper)
    return start(servers=proxy.address, wait_sessions=False), proxy


def test_claim_that_nobody_knows_of(behind_proxy, tree):
    """ZooKeeper made the claim, and the name never reached the worker."""
    gateway, proxy = behind_proxy
    dead, other = gateway.worker_pids()
    for worker in (dead, other):
        gateway.release("x", gateway.hold("x", worker=worker).token)
    fault = proxy.fault(CREATES, SWALLOWED)
    gateway.begin("x", wait="1m", worker=dead)
    fault.wait()
    tree.wait_claims(gateway.znode("x"), 1)
    kill(gateway, dead)
    tree.wait_claims(gateway.znode("x"), 0, SOON)


def test_late_requests_of_the_dead(ensemble, start_gateway, start_proxy,
                                   connect_tree):
    """A worker that died has sent a create to a server that stands still, and
    another worker closes the session at another server: the create comes late
    and makes no claim, and the young lease of the dead worker stays.
    """
    ensemble.start()
    slow = ensemble.follower()
    well = next(server for server in ensemble.servers if server is not slow)
    tree = connect_tree(well.address)
    proxy = start_proxy(slow)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False)

    for i in range(LATE):
        gateway.wait_served()
        dead, other = gateway.worker_pids()
        leases = [gateway.hold("%s%d" % (name, i), ttl="1h", worker=worker)
                  for name, worker in (("dead", dead), ("other", other))]
        sessions = [owner(tree, gateway, "%s%d" % (name, i))
                    for name in ("dead", "other")]

        slow.freeze()
        sent = creates(proxy)
        gateway.begin("x", wait="1m", worker=dead)
        wait_until(lambda: creates(proxy) > sent, SOON, "the create is sent")
        proxy.retarget(well.port)
        proxy.kill(sessions[1])
        kill(gateway, dead)
        wait_until(lambda: sessions[0] not in well.living_sessions(), SOON,
                   "the session is closed")
        slow.thaw()
        wait_until(slow.serving, SOON, "the server is back")

        gateway.wait_served()
        gateway.release("x", gateway.hold("x", wait="0").token)
        tree.wait_claims(gateway.znode("x"), 0)
        for name, lease in zip(("dead", "other"), leases):
            name = "%s%d" % (name, i)
            assert gateway.renew(name, lease.token).status == 200
            gateway.release(name, lease.token)
        proxy.retarget(slow.port)
        proxy.kill()


def owner(tree, gateway, name):
    """The session of the lock's only claim."""
    claim, = tree.claims(gateway.znode(name))
    return tree.stat(gateway.znode(name) + "/" + claim).ephemeralOwner


def creates(proxy):
    return sum(proxy.requests[create] for create in CREATES)


def test_release_that_nobody_knows_of(behind_proxy, tree):
    """ZooKeeper deleted the claim, and no worker was told."""
    gateway, proxy = behind_proxy
    dead = gateway.worker_pids()[0]
    connection = gateway.connect(dead)
    # two seconds later the lease would become durable, which is a "multi", too
    holder = gateway.hold("x", ttl="1h", worker=dead)
    fault = proxy.fault(DELETES, SWALLOWED)
    connection.send("DELETE", lock_path("x", holder.token))
    fault.wait()
    tree.wait_claims(gateway.znode("x"), 0)
    kill(gateway, dead)
    wait_until(lambda: gateway.inspect("x", holder.token).status == 410,
               SOON, "it is known to be gone")
    gateway.wait_served()
    problem(gateway.inspect("x", holder.token), 410)
    problem(gateway.renew("x", holder.token), 410)
    # 204 as long as no worker has inherited the release
    assert gateway.release("x", holder.token).status in (204, 410)
    gateway.release("x", gateway.hold("x").token)


@pytest.mark.parametrize("workers", [1, 3])
def test_all_at_once(start, tree, sessions, workers):
    """No worker is left to take over but the workers that start next."""
    gateway = start(workers=workers)
    held = Held(gateway, tree).spread(6)
    waiters = [gateway.begin("held0", wait="1m", worker=worker)
               for worker in gateway.worker_pids()]
    tree.wait_claims(gateway.znode("held0"), 1 + workers)
    kill(gateway, *gateway.worker_pids())
    tree.wait_claims(gateway.znode("held0"), 1, SOON)
    for waiter in waiters:
        assert waiter.closed_by_server(SOON)
    held.check()
    held.release()
    sessions.wait_owning(workers)


def test_heirs_die_too(start, tree, sessions):
    """The worker that took over dies soon after, again and again."""
    gateway = start(workers=3)
    held = Held(gateway, tree).spread(6)
    for worker in gateway.worker_pids():
        gateway.kill_worker(worker)
        wait_until(lambda: not alive(worker))
        held.check_znodes()
    respawned(gateway, [])
    for _ in range(2):
        for worker in gateway.worker_pids():
            kill(gateway, worker)
            held.check()
    held.release()
    sessions.wait_owning(3)


def test_frozen_and_killed(gateway, held, tree):
    """A worker that stands still is not dead, so no worker takes over; then
    the worker dies.
    """
    frozen, other = gateway.worker_pids()
    lock = held.add("x", frozen)
    gateway.begin("x", wait="1m", worker=frozen)
    tree.wait_claims(gateway.znode("x"), 2)
    waiter = gateway.begin("x", wait="1m", worker=other)
    tree.wait_claims(gateway.znode("x"), 3)
    asking = gateway.connect(other)

    os.kill(frozen, signal.SIGSTOP)
    wait_until(lambda: state(frozen) == "T")
    for method in ("PUT", "GET"):
        response = asking.request(method, lock_path("x", lock.token))
        assert response.status == 200, response
    # a take-over that must not happen has no event to wait for
    assert waiter.silent_for(1.5)
    assert len(tree.claims(gateway.znode("x"))) == 3

    kill(gateway, frozen)
    tree.wait_claims(gateway.znode("x"), 2, SOON)
    held.check()
    held.release()
    grant(waiter.response(SOON), "x")


def test_grant_that_was_told_to_nobody(start, tree):
    """The worker dies: the grant ends with the grace, not with the lease."""
    gateway = start(location="zk_lock_grace 6s;", metrics=True)
    one, other = gateway.worker_pids()
    holder = gateway.hold("x", worker=other)
    queued = gateway.acquire("x", headers={"Prefer": "respond-async"},
                             ttl="1h", worker=one)
    assert queued.status == 202
    tree.wait_claims(gateway.znode("x"), 2, SOON)
    gateway.release("x", holder.token, worker=other)
    tree.wait_claims(gateway.znode("x"), 1, SOON)
    wait_until(lambda: gateway.metrics(other).get(("claims", "held")) == 1,
               SOON, "it is granted, and nobody is told")
    kill(gateway, one)
    token = grant(gateway.acquire("x", wait="30s", worker=other,
                                  timeout=40), "x")["token"]
    assert gateway.release("x", token).status == 204


def test_crash_and_reload(gateway, held, sessions):
    """The heir leaves, and has to pass on the claims that it inherited."""
    held.spread(6)
    kill(gateway, gateway.worker_pids()[0])
    old = gateway.reload()
    held.check()
    wait_until(lambda: not any(alive(pid) for pid in old), SOON,
               "the old workers are gone")
    held.check()
    kill(gateway, *gateway.worker_pids())
    held.check()
    held.release()
    sessions.wait_owning(2)


def test_release_while_a_session_is_closed(zookeeper, start, start_proxy,
                                           tree):
    """The waiter's worker, which waits for ZooKeeper to close the session of a
    worker that died, hears of a sibling's release all the same.
    """
    proxy = start_proxy(zookeeper)
    gateway = start(servers=proxy.address, wait_sessions=False, workers=3)
    holding, waiting, dying = gateway.worker_pids()
    holder = gateway.hold("x", worker=holding)
    waiter = gateway.begin("x", worker=waiting, wait="1m")
    tree.wait_claims(gateway.znode("x"), 2)
    way = gateway.connect(holding)

    def adopts():
        return re.search(r" %d#.* that has gone is adopted" % waiting,
                         gateway.log_text())

    proxy.delay = 0.06          # the close takes four times as long
    os.kill(holding, signal.SIGSTOP)
    try:
        while not adopts():
            # a new worker that was faster is the next to die
            workers = {holding, waiting, dying}
            gateway.kill_worker(dying)
            dying, = wait_until(
                lambda: set(gateway.worker_pids()) - workers, SOON)
            os.kill(dying, signal.SIGSTOP)
            with contextlib.suppress(AssertionError):
                wait_until(adopts, 3.0)
    finally:
        for worker in (holding, dying):
            os.kill(worker, signal.SIGCONT)
    time.sleep(3 * proxy.delay)

    way.send("DELETE", lock_path("x", holder.token))
    began = time.monotonic()
    response = waiter.response(SOON)
    assert time.monotonic() - began < 0.5
    grant(response, "x")
    proxy.pass_on()
    assert way.response(SOON).status == 204
    gateway.release("x", response.token)


def die_at_random(gateway, rng):
    """Kills a worker, or two in the same moment or in turn; new workers too.
    """
    victims = rng.sample(gateway.worker_pids(), rng.choice((1, 1, 1, 2)))
    for victim in victims:
        gateway.kill_worker(victim)
        if rng.random() < 0.3:
            wait_until(lambda: not alive(victim))
    respawned(gateway, victims)
    return len(victims)


def test_renewal_of_a_dead_worker(start_gateway):
    """The claim's worker hears of the renewal when its client has been cut off,
    and may have renewed for longer.
    """
    gateway = start_gateway(session_timeout=TIMEOUT)
    mine, dead = gateway.worker_pids()
    holder = gateway.hold("x", ttl="1h", worker=mine)
    cut, beside = gateway.connect(dead), gateway.connect(dead)
    with gateway.frozen_worker(mine):
        cut.send("PUT", lock_path("x", holder.token), {"ttl": "20s"})
        # the worker reads the renewal first, and has asked the claim's worker
        assert beside.request("GET", "/ready").worker == dead
        gateway.kill_worker(dead)
        wait_until(lambda: not alive(dead), SOON)
        with pytest.raises(Gone):
            cut.response()
    for _ in range(20):
        state, = gateway.inspect("x", worker=mine).json["holders"]
        assert state["ttl_ms"] == 3600000
        time.sleep(0.1)
    assert gateway.release("x", holder.token).status == 204


def test_connection_of_a_claim_that_is_held_twice_ends(
        start_gateway, start_proxy, zookeeper, tree):
    """The client leaves, and the worker dies before it has deleted the claim,
    and does not know of a renewal at another gateway.
    """
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout=TIMEOUT,
                         wait_sessions=False)
    there = start_gateway()
    here.wait_served()
    worker = here.worker_pids()[0]
    holder = streams.hold(here, "x", worker=worker, ttl="1h")
    token = holder.event("granted")["token"]
    again = there.acquire("x", headers={"Lock-Token": token})
    assert again.status == 200 and again.json["holds"] == 2

    proxy.hole()
    assert there.renew("x", token, ttl="2h").status == 200
    holder.close()
    wait_until(lambda: re.search(r" %d#.* prematurely closed" % worker,
                                 here.log_text()), SOON)
    here.kill_worker(worker)
    proxy.kill()                # the delete is lost
    proxy.pass_on()
    tree.wait_claims(here.znode("x"), 0)


@pytest.mark.shows("a lock is free when its reason is gone")
def test_many_deaths(start, tree, sessions):
    """Workers die under load.  In the end the gateway's memory and ZooKeeper
    agree, and have no trace of the dead workers.
    """
    rng = random.Random(DEATHS)
    gateway = start(workers=3, metrics=True)
    held = Held(gateway, tree).spread(12)
    with Load(gateway, clients=4) as load, Keeper(held) as keeper:
        deaths = 0
        while deaths < DEATHS:
            deaths += die_at_random(gateway, rng)
            if rng.random() < 0.5:
                keeper.next_rounds()
            load.judge()
        keeper.next_rounds()
    load.gone(tree)
    held.check()
    agrees(gateway, tree, sessions, len(held.locks))
    held.release()
    agrees(gateway, tree, sessions, 0)


def agrees(gateway, tree, sessions, claims):
    """The gateway counts what ZooKeeper has, as soon as all is quiet."""
    # a claim that becomes durable between the looks is in both
    wait_until(lambda: (len(tree.ephemerals(gateway.root))
                        + len(tree.durables(gateway.root))) == claims, 20.0,
               "ZooKeeper has these claims")
    wait_until(lambda: quiet(gateway.metrics(), claims)
               and gateway.metrics()["sessions_used", ""]
               == len(sessions.owning()), 20.0,
               "ZooKeeper and the gateway agree")
    metrics = gateway.metrics()
    assert metrics["sessions", "own"] == 3, metrics
    assert (metrics["sessions_used", ""]
            == 3 + metrics["sessions", "adopted"]), metrics
    if not claims:
        wait_until(lambda: gateway.metrics()["sessions_used", ""] == 3, 20.0,
                   "only the sessions of living workers are left")


def quiet(metrics, claims):
    return (metrics["claims", "held"] == claims
            and metrics["claims_used", ""] == claims
            and not any(metrics[what] for what in (
                ("claims", "new"), ("claims", "waiting"), ("claims", "ended"),
                ("sessions", "orphaned"))))
