"""A broken way to ZooKeeper: the gateway learns what happened, and cleans up.

The tests' proxy stands between the workers and an ensemble of three.  The proxy
loses requests and answers, cuts in the middle of either, swallows single
answers, delays, and leads the workers to another server.  The sessions survive
all faults.  After each fault the claims in ZooKeeper are exactly the claims
that clients were told of: a claim for each 201, none for a refusal or a
release, also when the release was not confirmed and no client repeated it; and
the queue moves on.

The tests tell claims apart by the owner, which is unique to each acquire.

Environment:
    ZK_LOCK_ROUNDS  rounds of the random test
    ZK_LOCK_SEED    seed of the random test, which prints it
"""

import asyncio
import itertools
import os
import random
import threading
import time

import pytest
from kazoo.exceptions import NoNodeError

from lib.checks import gone, grant, problem, wait_over
from lib.client import AsyncConnection, lock_path
from lib.process import wait_until
from lib.proxy import (CUT, HALF, LOSE, SWALLOWED, TORN, UNANSWERED)
from lib.tokens import claim_of
from lib.zookeeper import Ensemble, Tree

TIMEOUT = "30s"     # of the sessions: longer than any outage here lasts
BACK = 40.0
ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS", "4"))

CREATES = ("create", "create2", "multi")
DELETES = ("delete", "multi")
CHANGES = ("setData", "multi")
WAYS = [LOSE, HALF, CUT, UNANSWERED, TORN, SWALLOWED]

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    servers = Ensemble(tmp_path_factory.mktemp("ensemble")).start()
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def tree(zookeeper):
    tree = Tree(zookeeper.address)
    yield tree
    tree.close()


@pytest.fixture
def proxy(zookeeper, start_proxy):
    return start_proxy(zookeeper.servers[0])


@pytest.fixture
def start_gateway(proxy, start_gateway):
    """The fixture ends the gateways before the proxy ends."""
    return start_gateway


@pytest.fixture
def start_behind(start_gateway, proxy):
    """A function that makes a gateway behind the proxy."""
    def start(location="", **options):
        gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                                session_timeout=TIMEOUT, metrics=True,
                                location="zk_lock_timeout 20s;" + location,
                                **options)
        in_reach(gateway)
        return gateway
    return start


@pytest.fixture
def gateway(start_behind):
    return start_behind()


@pytest.fixture
def single(start_behind):
    return start_behind(workers=1)


@pytest.fixture(params=["same server", "another server"])
def leads(request, zookeeper, proxy):
    """Chooses the server that the worker finds after the cut."""
    if request.param == "another server":
        return lambda: proxy.retarget(another(zookeeper, proxy).port)
    return lambda: None


def another(ensemble, proxy):
    return random.choice([server for server in ensemble.servers
                          if server.port != proxy.target])


def in_reach(gateway):
    for worker in gateway.worker_pids():
        wait_until(lambda: gateway.inspect("none", worker=worker).status
                   == 404, BACK, "the gateway has its session")


def new_owner():
    return "owner%d" % next(NUMBERS)


# what ZooKeeper has, and what the gateway says

def owners(tree, lock):
    """The owners in the queue; None if the queue changes at this moment."""
    try:
        tree.client.sync(lock)
        return [tree.data(lock + "/" + claim).split(b"\n")[0].decode()
                for claim in tree.claims(lock)]
    except NoNodeError:
        return None


def shown(gateway, name, worker):
    seen = gateway.inspect(name, worker=worker)
    if seen.status == 404:
        return []
    if seen.status != 200:
        return None
    content = seen.json
    return [claim.get("owner")
            for claim in content["holders"] + content["queue"]]


def agree(gateway, tree, name, expected):
    """ZooKeeper has the claims of these owners, and each worker shows them."""
    lock = gateway.znode(name)
    wait_until(lambda: (owners(tree, lock) or []) == expected, BACK,
               "the claims of %s are of %s; %s" % (name, expected,
                                                   owners(tree, lock)))
    for worker in gateway.worker_pids():
        wait_until(lambda: shown(gateway, name, worker) == expected, BACK,
                   "worker %d says that %s are in line" % (worker, expected))


def counted(gateway, held, waiting=0):
    """The gateway has so many claims, and no remains of other claims."""
    expected = {"held": held, "waiting": waiting, "new": 0, "ended": 0}
    for worker in gateway.worker_pids():
        wait_until(lambda: {state: gateway.metrics(worker)["claims", state]
                            for state in expected} == expected, BACK,
                   "the counters are %s; %s" % (expected, gateway.metrics()))


def held(gateway, name, response):
    """The grant is good at every worker."""
    for worker in gateway.worker_pids():
        seen = wait_until(lambda: [
            r for r in [gateway.inspect(name, response.token, worker)]
            if r.status != 503], BACK)[0]
        assert seen.status == 200, seen
        assert seen.json["state"] == "held"
        assert seen.json["fencing_token"] == response.fencing


def released(gateway, name, response):
    """Releases again and again while the release is not confirmed."""
    answer = wait_until(lambda: [
        r for r in [gateway.release(name, response.token)]
        if r.status != 503], BACK)[0]
    assert answer.status in (204, 410), answer


def usable(gateway, tree, name):
    """The next acquire is granted at every worker."""
    for worker in gateway.worker_pids():
        response = gateway.hold(name, worker=worker, timeout=BACK)
        assert gateway.release(name, response.token).status == 204
    agree(gateway, tree, name, [])
    counted(gateway, 0)


# acquires

@pytest.mark.parametrize("how", WAYS)
def test_acquire_without_an_answer(single, zookeeper, tree, proxy, how):
    """The claim is made once, and the client is told the grant."""
    usable(single, tree, "x")
    for target in (proxy.target, another(zookeeper, proxy).port):
        proxy.retarget(target)
        fault = proxy.fault(CREATES, how)
        owner = new_owner()
        response = single.acquire("x", owner=owner, timeout=BACK)
        fault.wait()
        grant(response, "x")
        agree(single, tree, "x", [owner])
        counted(single, 1)
        held(single, "x", response)
        released(single, "x", response)
        usable(single, tree, "x")


@pytest.mark.parametrize("how", WAYS)
def test_acquire_that_has_to_wait(single, tree, proxy, leads, how):
    """The same behind a holder: the claim has one place, and gets a turn."""
    first = new_owner()
    holder = single.hold("x", owner=first, ttl="1h")
    leads()
    fault = proxy.fault(CREATES, how)
    owner = new_owner()
    waiter = single.begin("x", owner=owner, wait="1m", ttl="1h")
    fault.wait()
    wait_until(lambda: owners(tree, single.znode("x")) == [first, owner], BACK)
    single.wait_served()    # by then the worker knows the claim's fate
    assert waiter.silent_for(0)
    agree(single, tree, "x", [first, owner])
    counted(single, 1, 1)
    released(single, "x", holder)
    holder = waiter.response(BACK)
    grant(holder, "x")
    released(single, "x", holder)
    usable(single, tree, "x")


def test_acquire_is_lost_again_and_again(single, tree, proxy):
    """Each create is lost in another way; the acquire makes a single claim."""
    usable(single, tree, "x")
    faults = [proxy.fault(CREATES, how) for how in WAYS * 2]
    while faults:
        owner = new_owner()
        response = single.acquire("x", owner=owner, timeout=BACK)
        grant(response, "x")
        agree(single, tree, "x", [owner])
        released(single, "x", response)
        agree(single, tree, "x", [])
        faults = [fault for fault in faults if not fault.happened.is_set()]
    usable(single, tree, "x")


def test_client_leaves_before_the_outcome_is_known(single, tree, proxy):
    """No client is told of the claim that was made; so it must be deleted."""
    usable(single, tree, "x")
    for how in WAYS:
        proxy.refuse()
        fault = proxy.fault(CREATES, how)
        waiter = single.begin("x", wait="1m")
        fault.wait()
        waiter.close()
        proxy.listen()
        proxy.kill()
        agree(single, tree, "x", [])
    usable(single, tree, "x")


# ends of claims: what ends the last claim of the lock, and all claims

def by_release(gateway, tree, name):
    holder = gateway.hold(name, ttl="1h")
    return (lambda: gateway.release(name, holder.token),
            [claim_of(holder.token)])


def by_release_at_a_sibling(gateway, tree, name):
    one, other = gateway.worker_pids()
    connection = gateway.connect(other)
    holder = gateway.hold(name, ttl="1h", worker=one)
    return (lambda: connection.request("DELETE", lock_path(name), headers={
        "Lock-Token": holder.token}), [claim_of(holder.token)])


def by_lease(gateway, tree, name):
    holder = gateway.hold(name, ttl="2s")
    return lambda: None, [claim_of(holder.token)]


def by_client_that_leaves(gateway, tree, name):
    waiter, claims = behind_a_holder(gateway, tree, name, wait="1m")
    return waiter.close, claims


def by_wait_that_ends(gateway, tree, name):
    waiter, claims = behind_a_holder(gateway, tree, name, wait="4s")
    return waiter.response, claims


def behind_a_holder(gateway, tree, name, **query):
    tree.make_claim(gateway.znode(name))
    waiter = gateway.begin(name, **query)
    claims = tree.wait_claims(gateway.znode(name), 2)
    gateway.catch_up(name)
    return waiter, claims


ENDS = {"release": by_release, "sibling": by_release_at_a_sibling,
        "lease": by_lease, "client left": by_client_that_leaves,
        "wait over": by_wait_that_ends}


@pytest.mark.shows("a release that was answered with 204 was carried out")
@pytest.mark.parametrize("how", [LOSE, UNANSWERED, SWALLOWED])
@pytest.mark.parametrize("end", ENDS)
def test_delete_without_an_answer(gateway, zookeeper, tree, proxy, end, how):
    """The worker repeats the delete until it is known to be done; the client
    gets one answer, and need not repeat the request.
    """
    lock = gateway.znode("x")
    proxy.retarget(another(zookeeper, proxy).port)
    finish, claims = ENDS[end](gateway, tree, "x")
    faults = [proxy.fault(DELETES, how) for _ in range(3)]
    response = finish()
    if response is not None and response.status != 204:
        problem(response, response.status)
        assert response.status in (410, 423, 503), response
    for fault in faults if how == LOSE else faults[:1]:
        fault.wait(BACK)
    assert tree.wait_claims(lock, len(claims) - 1, BACK) == claims[:-1]
    proxy.faults.clear()
    for claim in claims[:-1]:
        tree.delete(lock + "/" + claim)
    usable(gateway, tree, "x")


# a claim that is shared from now on, and so renamed

def shared(gateway, name, response):
    """Shares the claim, again and again while the answer is 503."""
    return wait_until(lambda: [
        r for r in [gateway.renew(name, response.token, mode="shared")]
        if r.status != 503], BACK)[0]


@pytest.mark.parametrize("how", WAYS)
def test_share_without_an_answer(gateway, tree, proxy, leads, how):
    """The claim was renamed or not: in the end it has the reader's name."""
    holder = gateway.hold("x", owner=new_owner(), ttl="1h")
    reader = gateway.begin("x", mode="shared", wait="1m")
    claims = tree.wait_claims(gateway.znode("x"), 2)
    leads()
    fault = proxy.fault("multi", how)
    response = gateway.renew("x", holder.token, mode="shared")
    assert response.status in (200, 503), response
    fault.wait()
    assert shared(gateway, "x", holder).status == 200
    second = reader.response(BACK)
    assert second.status == 201, second
    assert (tree.claims(gateway.znode("x"))
            == [claims[0].replace("-lock-", "-__READ__"), claims[1]])
    held(gateway, "x", holder)
    released(gateway, "x", holder)
    released(gateway, "x", second)
    usable(gateway, tree, "x")


@pytest.mark.parametrize("how", [LOSE, UNANSWERED])
def test_share_of_a_claim_that_is_gone(single, tree, proxy, how):
    """The claim is deleted by hand before the worker is back: it is lost."""
    holder = single.hold("x", owner=new_owner(), ttl="1h")
    waiter = single.begin("x", wait="1m")
    tree.wait_claims(single.znode("x"), 2)
    fault = proxy.fault("multi", how)
    asker = single.connect()
    asker.send("PUT", lock_path("x", holder.token), {"mode": "shared"})
    fault.wait()
    proxy.refuse()
    proxy.kill()
    tree.client.sync(single.znode("x"))
    name = tree.claims(single.znode("x"))[0]
    tree.delete(single.znode("x") + "/" + name)
    proxy.listen()
    assert asker.response(BACK).status in (410, 503)
    response = waiter.response(BACK)
    grant(response, "x")
    assert response.fencing > holder.fencing
    gone(single, "x", holder.token)
    released(single, "x", response)
    usable(single, tree, "x")


def test_lease_of_one_znode_that_ended(start_behind, tree, proxy):
    """The delete happened, the worker hears of that neither by the answer nor
    by the watch, and another client makes the znode anew: that znode stays.
    """
    gateway = start_behind(workers=1, location="zk_lock_layout node;")
    path = gateway.znode("x")
    gateway.release("x", gateway.hold("x").token)
    holder = gateway.hold("x", ttl="1s")
    in_reach(gateway)
    proxy.noreply()
    wait_until(lambda: not tree.stat(path), BACK, "the lease is over")
    tree.client.create(path, b"", ephemeral=True)
    proxy.refuse()
    proxy.kill()
    proxy.pass_on()
    proxy.listen()
    in_reach(gateway)
    gone(gateway, "x", holder.token)
    problem(gateway.acquire("x", wait="1s"), 423)
    assert tree.stat(path).ephemeralOwner == tree.session
    tree.delete(path)
    gateway.release("x", gateway.hold("x").token)


@pytest.mark.parametrize("how", WAYS)
def test_next_is_granted_once(gateway, zookeeper, tree, proxy, how):
    """The release hands the lock over, and the delete is lost."""
    labels = [new_owner() for _ in range(5)]
    holder = gateway.hold("x", owner=labels[0], ttl="1h")
    waiters = []
    for i, label in enumerate(labels[1:]):
        waiters.append(gateway.begin("x", owner=label, ttl="1h", wait="1m"))
        tree.wait_claims(gateway.znode("x"), 2 + i)
    gateway.catch_up("x")
    while waiters:
        if len(waiters) % 2:
            proxy.retarget(another(zookeeper, proxy).port)
        fault = proxy.fault(DELETES, how)
        released(gateway, "x", holder)
        fault.wait()
        response = waiters.pop(0).response(BACK)
        grant(response, "x")
        assert response.fencing > holder.fencing
        assert "note" not in response.json
        assert all(waiter.silent_for(0) for waiter in waiters)
        labels.pop(0)
        agree(gateway, tree, "x", labels)
        holder = response
    released(gateway, "x", holder)
    usable(gateway, tree, "x")


# many at once

@pytest.mark.parametrize("how", WAYS)
def test_multi_without_an_answer(single, tree, proxy, leads, how):
    """Acquires and releases share a transaction and its fate."""
    names = ["x%d" % i for i in range(40)]
    holders = {name: single.hold(name, owner=new_owner(), ttl="1h")
               for name in names}
    for name in names[20:]:
        released(single, name, holders.pop(name))
    leads()

    fault = proxy.fault("multi", how)
    answers = asyncio.run(at_once(single.port, names, holders))
    fault.wait()

    for name, (owner, response) in answers.items():
        if name in holders:
            assert response.status == 204, response
            agree(single, tree, name, [])
        else:
            grant(response, name)
            agree(single, tree, name, [owner])
    grants = {name: response for name, (_, response) in answers.items()
              if response.status == 201}
    counted(single, len(grants))
    for name, response in grants.items():
        assert single.inspect(name, response.token).json["state"] == "held"
        released(single, name, response)
    counted(single, 0)


async def at_once(port, names, holders):
    """Releases held locks, acquires free locks: name -> (owner, answer)."""
    async def one(name):
        connection = await AsyncConnection(port).open()
        owner = new_owner()
        if name in holders:
            response = await connection.request(
                "DELETE", lock_path(name, holders[name].token))
        else:
            response = await connection.request(
                "POST", lock_path(name), {"owner": owner, "ttl": "1h"})
        connection.close()
        return owner, response

    return dict(zip(names, await asyncio.gather(*map(one, names))))


def test_releases_that_were_never_sent(single, tree, proxy):
    """Unsent releases are not taken for done when the connection breaks.

    A few transactions are under way, and the releases that are gathered behind
    stay at the gateway.  The claims of these are deleted by hand meanwhile: so
    the releases get 410.
    """
    names = ["x%d" % i for i in range(12)]
    holders = {name: single.hold(name, ttl="1h") for name in names}
    proxy.hole()
    connections = []
    for name in names:
        connection = single.connect()
        connection.send("DELETE", lock_path(name, holders[name].token))
        connections.append(connection)

        # each release in a separate turn of the event loop
        single.call("GET", "/ready")

    for name in names[4:]:
        claim, = tree.claims(single.znode(name))
        tree.delete(single.znode(name) + "/" + claim)
    proxy.kill()
    proxy.pass_on()
    for connection in connections[:4]:
        assert connection.response(BACK).status == 204
    for connection in connections[4:]:
        problem(connection.response(BACK), 410)
    counted(single, 0)


@pytest.mark.parametrize("how", WAYS)
def test_look_without_an_answer(start_gateway, single, proxy, leads, how):
    """The worker reads all again: no holder is left out, the lock is not free.
    """
    there = start_gateway()
    owners = {new_owner() for _ in range(6)}
    holders = [there.hold("x", owner=owner, ttl="1h", mode="shared")
               for owner in owners]
    assert shown(single, "x", None) is not None
    leads()
    for _ in range(3):
        fault = proxy.fault("getData", how)
        seen = single.inspect("x")
        fault.wait()
        assert seen.status == 200, seen
        assert {holder["owner"] for holder in seen.json["holders"]} == owners
    for holder in holders:
        released(there, "x", holder)


# another server

def test_server_that_lags(single, zookeeper, tree, proxy):
    """The worker is led to a server that stood still while the claim was made
    or deleted, so that server does not show the change yet.
    """
    leader = zookeeper.leader()
    laggard = zookeeper.follower()
    steady, = [server for server in zookeeper.servers
               if server not in (leader, laggard)]
    usable(single, tree, "x")
    for _ in range(3):
        for target in (steady, leader):
            owner = new_owner()
            with cut_towards(single, proxy, target, laggard, CREATES):
                waiter = single.begin("x", owner=owner, ttl="1h")
            response = waiter.response(BACK)
            grant(response, "x")
            agree(single, tree, "x", [owner])
            with cut_towards(single, proxy, target, laggard, DELETES):
                releaser = single.connect().send(
                    "DELETE", lock_path("x", response.token))
            assert releaser.response(BACK).status == 204
            agree(single, tree, "x", [])
    usable(single, tree, "x")


class cut_towards:
    """Requests in the block get no answer from target; then the worker finds
    only the laggard, which missed the requests.
    """

    def __init__(self, gateway, proxy, target, laggard, operations):
        self.proxy = proxy
        self.laggard = laggard
        proxy.retarget(target.port)
        proxy.kill()
        in_reach(gateway)
        self.fault = proxy.fault(operations, UNANSWERED)

    def __enter__(self):
        self.proxy.retarget(self.laggard.port)
        self.laggard.freeze()

    def __exit__(self, *_):
        try:
            self.fault.wait()
        finally:
            self.laggard.thaw()


def test_queue_moves_while_the_way_is_cut(gateway, zookeeper, tree, proxy):
    """Claims ahead go, a new claim comes, and no watch tells of that."""
    lock = gateway.znode("x")
    for _ in range(3):
        ahead = [tree.make_claim(lock) for _ in range(3)]
        waiters = []
        for i, worker in enumerate(gateway.worker_pids() * 2):
            waiters.append(gateway.begin("x", worker=worker, wait="1m"))
            tree.wait_claims(lock, 4 + i)
        gateway.catch_up("x")

        proxy.refuse()
        proxy.kill()
        for claim in ahead:
            tree.delete(claim)
        behind = tree.make_claim(lock)
        assert all(waiter.silent_for(0) for waiter in waiters)
        proxy.retarget(another(zookeeper, proxy).port)
        proxy.listen()

        for waiter in waiters:
            response = waiter.response(BACK)
            grant(response, "x")
            assert "note" not in response.json
            released(gateway, "x", response)
        tree.wait_claims(lock, 1, BACK)
        tree.delete(behind)
    usable(gateway, tree, "x")


def test_led_from_server_to_server(gateway, zookeeper, tree, proxy):
    """Ten moves with a holder and waiters in the queue: no client notices."""
    labels = [new_owner() for _ in range(5)]
    holder = gateway.hold("x", owner=labels[0], ttl="1h")
    waiters = []
    for i, label in enumerate(labels[1:]):
        waiters.append(gateway.begin("x", owner=label, ttl="1h", wait="2m"))
        tree.wait_claims(gateway.znode("x"), 2 + i)
    for _ in range(10):
        proxy.retarget(another(zookeeper, proxy).port)
        proxy.kill()
        held(gateway, "x", holder)
    agree(gateway, tree, "x", labels)
    counted(gateway, 1, 4)
    for waiter in waiters:
        assert waiter.silent_for(0)
        released(gateway, "x", holder)
        holder = waiter.response(BACK)
        grant(holder, "x")
        assert "note" not in holder.json
    released(gateway, "x", holder)
    usable(gateway, tree, "x")


# two gateways

@pytest.mark.parametrize("how", [LOSE, UNANSWERED, SWALLOWED])
def test_renewal_at_another_gateway(start_gateway, start_behind, zookeeper,
                                    tree, proxy, how):
    """The renewal is repeated until confirmed, and the told lease is kept."""
    here = start_gateway()
    there = start_behind(workers=1)
    holder = here.hold("x", ttl="10s")
    proxy.retarget(another(zookeeper, proxy).port)
    for _ in range(3):
        fault = proxy.fault(CHANGES, how)
        response = there.renew("x", holder.token, ttl="10s")
        fault.wait()
        assert response.status == 200
        renewed(there, "x", holder, "10s")
        wait_over(here.acquire("x", wait="100ms"), here)
    began = renewed(there, "x", holder, "1s")
    tree.wait_claims(here.znode("x"), 0, BACK)
    assert time.monotonic() - began >= 0.99
    gone(here, "x", holder.token)
    gone(there, "x", holder.token)


def renewed(gateway, name, holder, ttl):
    """Renews until confirmed; returns when the last request was sent."""
    def renew():
        began = time.monotonic()
        response = gateway.renew(name, holder.token, ttl=ttl)
        return (began, response) if response.status != 503 else None

    began, response = wait_until(renew, BACK, "it is renewed")
    assert grant(response, name, 200)["fencing_token"] == holder.fencing
    return began


@pytest.mark.parametrize("how", [LOSE, UNANSWERED, SWALLOWED])
def test_release_at_another_gateway(start_gateway, start_behind, zookeeper,
                                    tree, proxy, how):
    """The release is repeated until confirmed, as at the claim's gateway."""
    here = start_gateway(metrics=True)
    there = start_behind(workers=1)
    holder = here.hold("x", ttl="1h")
    waiter = here.begin("x", wait="1m", ttl="1h")
    tree.wait_claims(here.znode("x"), 2)
    proxy.retarget(another(zookeeper, proxy).port)
    fault = proxy.fault(DELETES, how)
    response = there.release("x", holder.token)
    fault.wait()
    assert response.status == 204
    response = waiter.response(BACK)
    grant(response, "x")
    there.wait_served()
    for gateway in (here, there):
        problem(gateway.inspect("x", holder.token), 410)
    released(there, "x", response)
    usable(here, tree, "x")


# any faults, in any order

def test_random_faults(gateway, zookeeper, tree, proxy):
    """Clients at work, faults in turn; then all is still: a client that was
    told of a grant holds the lock, and ZooKeeper has no other claims.
    """
    seed = int(os.environ.get("ZK_LOCK_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    dice = random.Random(seed)
    crowd = Crowd(gateway, dice, locks=6, clients=16)
    try:
        for _ in range(ROUNDS):
            crowd.go_on()
            for _ in range(dice.randrange(2, 6)):
                dice.choice(MISHAPS)(zookeeper, proxy, dice)
                crowd.check()
            crowd.pause()
            heal(proxy)
            settled(gateway, tree, crowd)
    finally:
        crowd.end()
    crowd.release_all()
    for name in crowd.names:
        agree(gateway, tree, name, [])
    usable(gateway, tree, "x0")


def heal(proxy):
    proxy.faults.clear()
    proxy.pass_on()
    proxy.listen()
    proxy.kill()


def settled(gateway, tree, crowd):
    for name in crowd.names:
        holder = crowd.holders.get(name)
        agree(gateway, tree, name, [holder[0]] if holder else [])
        if holder:
            held(gateway, name, holder[1])
    counted(gateway, len(crowd.holders))


def mishap_kill(ensemble, proxy, dice):
    proxy.kill()


def mishap_hole(ensemble, proxy, dice):
    proxy.hole()
    time.sleep(dice.uniform(0.0, 0.4))
    proxy.pass_on()
    if dice.random() < 0.5:
        proxy.kill()


def mishap_noreply(ensemble, proxy, dice):
    proxy.noreply()
    time.sleep(dice.uniform(0.0, 0.4))
    proxy.pass_on()
    proxy.kill()


def mishap_delay(ensemble, proxy, dice):
    proxy.delay = dice.uniform(0.01, 0.15)
    time.sleep(dice.uniform(0.0, 0.5))
    if dice.random() < 0.5:
        proxy.kill()
    proxy.pass_on()


def mishap_refuse(ensemble, proxy, dice):
    proxy.refuse()
    proxy.kill()
    time.sleep(dice.uniform(0.0, 0.4))
    proxy.listen()


def mishap_move(ensemble, proxy, dice):
    proxy.retarget(another(ensemble, proxy).port)
    proxy.kill()


def mishap_faults(ensemble, proxy, dice):
    if dice.random() < 0.5:
        proxy.retarget(another(ensemble, proxy).port)
    faults = [proxy.fault(dice.choice([CREATES, DELETES, "multi", "barrier",
                                       ("getChildren", "getChildren2")]),
                          dice.choice(WAYS))
              for _ in range(dice.randrange(1, 5))]
    for fault in faults:
        fault.happened.wait(0.2)


MISHAPS = [mishap_kill, mishap_hole, mishap_noreply, mishap_delay,
           mishap_refuse, mishap_move, mishap_faults, mishap_faults]


class Crowd:
    """Clients that acquire and release, and the answers that they got.

    holders: name -> (owner, grant), from the 201 until the release is begun;
    at any moment at most one client of a lock has a grant.
    """

    def __init__(self, gateway, dice, locks, clients):
        self.gateway = gateway
        self.names = ["x%d" % i for i in range(locks)]
        self.holders = {}
        self.fencing = dict.fromkeys(self.names, 0)
        self.complaints = []
        self.changed = threading.Condition()    # of all fields below
        self.going = self.ended = False
        self.idle = 0
        self.threads = [
            threading.Thread(target=self._client, daemon=True,
                             args=(random.Random(dice.random()),))
            for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    # the test's side

    def go_on(self):
        with self.changed:
            self.going = True
            self.changed.notify_all()

    def pause(self):
        """Each client has the answer to the last call; some hold a lock."""
        with self.changed:
            self.going = False
            assert self.changed.wait_for(
                lambda: self.idle == len(self.threads), 60), "no answer"
        self.check()

    def end(self):
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join(60)

    def check(self):
        assert not self.complaints, self.complaints

    def release_all(self):
        for name, (_, response) in list(self.holders.items()):
            released(self.gateway, name, response)

    # a client

    def _client(self, dice):
        mine = None
        while self._may_go_on():
            try:
                if mine:
                    self._release(*mine, dice)
                    mine = None
                elif dice.random() < 0.05:
                    self._leave(dice)
                else:
                    mine = self._acquire(dice)
            except Exception as e:
                self.complaints.append(repr(e))

    def _may_go_on(self):
        with self.changed:
            self.idle += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.going or self.ended)
            self.idle -= 1
            return not self.ended

    def _acquire(self, dice):
        name, owner = dice.choice(self.names), new_owner()
        response = self.gateway.acquire(name, owner=owner, ttl="1h",
                                        wait="%dms" % dice.randrange(1000))
        if response.status != 201:
            assert response.status in (423, 503), response
            return None
        with self.changed:
            assert name not in self.holders, (
                "%s for %s, while %s holds it" % (response, owner,
                                                  self.holders[name]))
            assert response.fencing > self.fencing[name]
            self.fencing[name] = response.fencing
            self.holders[name] = owner, response
        if dice.random() < 0.3:
            answer = self.gateway.renew(name, response.token)
            assert answer.status in (200, 503), answer
        return name, response

    def _leave(self, dice):
        """A client that leaves before the answer, if it can."""
        with self.gateway.begin(dice.choice(self.names), owner=new_owner(),
                                wait="5s", ttl="100ms") as connection:
            connection.silent_for(dice.uniform(0.0, 0.1))

    def _release(self, name, response, dice):
        with self.changed:
            del self.holders[name]
        while True:
            answer = self.gateway.release(name, response.token)
            assert answer.status in (204, 410, 503), answer
            if answer.status != 503 or dice.random() < 0.5:
                return
