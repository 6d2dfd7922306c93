"""Other clients of ZooKeeper on the same path, by claims made by hand.

The layout is Curator's: a client that makes an ephemeral sequential child
"_c_UUID-lock-" takes part in the lock: the client waits for the claims ahead,
and the claims behind wait for the client.  Here kazoo plays that client, and
the tests read the queue in ZooKeeper.
"""

import os
import threading
import uuid

import pytest
from kazoo.exceptions import NoNodeError

from lib.checks import gone, grant, problem
from lib.process import wait_until
from lib.tokens import claim_of
from lib.zookeeper import GATES, sequence

CURATOR_PATTERN = ["-lock-"]
SOON = 20.0
GRANTS = int(os.environ.get("ZK_LOCK_GRANTS") or 200)


def settle(gateway, waiter):
    """Gives a wrong grant the time to happen; the waiter must get none."""
    for worker in gateway.worker_pids():
        gateway.inspect("x", worker=worker)
    assert waiter.silent_for(0.3)


def test_waits_for_a_claim_made_by_hand(gateway, foreign):
    lock = gateway.znode("x")
    for worker in gateway.worker_pids():
        claim = foreign.make_claim(lock)
        waiter = gateway.begin("x", worker=worker)
        foreign.wait_claims(lock, 2)
        settle(gateway, waiter)
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
        foreign.delete(claim)
        response = waiter.response(SOON)
        grant(response, "x")
        gateway.release("x", response.token)


def test_claim_made_by_hand_waits(gateway, foreign):
    lock = gateway.znode("x")
    holder = gateway.hold("x")
    claim = foreign.make_claim(lock)
    claims = foreign.claims(lock)
    assert lock + "/" + claims[1] == claim and len(claims) == 2
    waiter = gateway.begin("x")
    foreign.wait_claims(lock, 3)

    gateway.release("x", holder.token)
    claims = foreign.wait_claims(lock, 2)
    assert lock + "/" + claims[0] == claim
    settle(gateway, waiter)
    foreign.delete(claim)
    response = waiter.response(SOON)
    gateway.release("x", response.token)


def test_everybody_in_turn(gateway, foreign):
    """Claims of the gateway and foreign claims alternate in the queue."""
    lock = gateway.znode("x")
    workers = gateway.worker_pids()
    hand = foreign.make_claim(lock)
    queue = []
    for i in range(4):
        queue.append(gateway.begin("x", worker=workers[i % 2]))
        foreign.wait_claims(lock, 2 * i + 2)
        queue.append(foreign.make_claim(lock))
    foreign.delete(hand)

    fencing = 0
    while queue:
        waiter = queue.pop(0)
        response = waiter.response(SOON)
        grant(response, "x")
        assert response.fencing > fencing
        fencing = response.fencing
        assert gateway.release("x", response.token).status == 204

        hand = queue.pop(0)
        claims = foreign.wait_claims(lock, len(queue) + 1)
        assert lock + "/" + claims[0] == hand
        if queue:
            assert queue[0].silent_for(0.1)
        foreign.delete(hand)
    foreign.wait_claims(lock, 0)


def test_claim_ahead_goes_without_having_held(gateway, foreign):
    """A foreign claim still holds the lock: the waiter is not granted yet."""
    lock = gateway.znode("x")
    for worker in gateway.worker_pids():
        holder = foreign.make_claim(lock)
        between = [foreign.make_claim(lock) for _ in range(3)]
        waiter = gateway.begin("x", worker=worker)
        foreign.wait_claims(lock, 5)
        for claim in (between[2], between[0], between[1]):
            foreign.delete(claim)
            settle(gateway, waiter)
        foreign.delete(holder)
        response = waiter.response(SOON)
        gateway.release("x", response.token)


def test_all_ahead_go_at_once(gateway, foreign):
    lock = gateway.znode("x")
    ahead = [foreign.make_claim(lock) for _ in range(50)]
    waiter = gateway.begin("x")
    foreign.wait_claims(lock, 51)
    transaction = foreign.client.transaction()
    for claim in ahead:
        transaction.delete(claim)
    transaction.commit()
    gateway.release("x", waiter.response(SOON).token)


def test_waiter_between_goes(gateway, foreign):
    """A local claim between two foreign claims goes, then the claim behind."""
    lock = gateway.znode("x")
    one, other = gateway.worker_pids()
    for first, second in ((one, one), (one, other)):
        holder = foreign.make_claim(lock)
        leaver = gateway.begin("x", worker=first)
        foreign.wait_claims(lock, 2)
        between = foreign.make_claim(lock)
        waiter = gateway.begin("x", worker=second)
        foreign.wait_claims(lock, 4)

        leaver.close()
        foreign.wait_claims(lock, 3)
        settle(gateway, waiter)
        foreign.delete(between)
        settle(gateway, waiter)
        foreign.delete(holder)
        gateway.release("x", waiter.response(SOON).token)


def test_grant_passes_a_claim_that_left(gateway, foreign):
    """The claim that is next by number has gone before its turn."""
    lock = gateway.znode("x")
    holder = gateway.hold("x")
    skipped = foreign.make_claim(lock)
    waiter = gateway.begin("x")
    foreign.wait_claims(lock, 3)
    foreign.delete(skipped)
    settle(gateway, waiter)
    gateway.release("x", holder.token)
    gateway.release("x", waiter.response(SOON).token)


def test_session_of_the_holder_ends(gateway, zookeeper, connect_tree):
    dying = connect_tree(zookeeper.address)
    lock = gateway.znode("x")
    dying.make_claim(lock)
    waiter = gateway.begin("x")
    dying.wait_claims(lock, 2)
    assert waiter.silent_for(0.2)
    dying.client.stop()
    gateway.release("x", waiter.response(SOON).token)


def test_children_that_are_no_claims(gateway, foreign):
    """Such children do not block the lock, and the gateway leaves them alone.
    """
    lock = gateway.znode("x")
    foreign.make(lock)
    strangers = ["config", "x-123-", "n_", "_c_not-a-claim", "-", "lock",
                 "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71-latch-",
                 "\u00e4", "0000000000", "a" * 300]
    for name in strangers:
        foreign.client.create(lock + "/" + name,
                              sequence=name.endswith(("-", "_")))
    names = sorted(foreign.children(lock))
    for worker in gateway.worker_pids():
        response = gateway.hold("x", wait="0", worker=worker)
        assert gateway.acquire("x", wait="0").status == 423
        content = gateway.inspect("x", worker=worker).json
        assert len(content["holders"]) == 1 and content["queued"] == 0
        gateway.release("x", response.token)
    assert sorted(foreign.children(lock)) == names
    problem(gateway.inspect("x"), 404)


@pytest.mark.parametrize("prefix", [
    "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71-lock-",
    "_c_0123456789abcdef0123456789abcdef-lock-", "lock-",
    "0123456789abcdef0123456789abcdef__lock__",
    "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71-__WRIT__",
    "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71-__READ__",
    "0123456789abcdef0123456789abcdef__rlock__"])
def test_layouts_that_block(gateway, foreign, prefix):
    lock = gateway.znode("x")
    claim = foreign.make_claim(lock, before=prefix)
    waiter = gateway.begin("x")
    foreign.wait_claims(lock, 2)
    settle(gateway, waiter)
    foreign.delete(claim)
    gateway.release("x", waiter.response(SOON).token)


def test_kazoo_lock_in_the_same_line(gateway, foreign):
    """kazoo's recipe, told of the layout, excludes and is excluded."""
    kazoo = foreign.client.Lock(gateway.znode("x"), "kazoo",
                                extra_lock_patterns=CURATOR_PATTERN)
    holder = gateway.hold("x", owner="gateway")
    assert not kazoo.acquire(blocking=False)

    got = threading.Event()
    thread = threading.Thread(target=lambda: (kazoo.acquire(timeout=30),
                                              got.set()))
    thread.start()
    foreign.wait_claims(gateway.znode("x"), 2)
    assert not got.wait(0.3)
    gateway.release("x", holder.token)
    assert got.wait(SOON)
    thread.join()

    waiter = gateway.begin("x")
    foreign.wait_claims(gateway.znode("x"), 2)
    seen = gateway.inspect("x").json
    assert seen["holders"][0]["owner"] == "kazoo"
    settle(gateway, waiter)
    kazoo.release()
    gateway.release("x", waiter.response(SOON).token)


def test_others_are_shown(gateway, foreign):
    lock = gateway.znode("x")
    foreign.make_claim(lock, data=b"10.0.0.7")
    foreign.make_claim(lock, data=b"\xff\xfe not text")
    foreign.make_claim(lock, data=b"")
    waiter = gateway.begin("x", owner="me")
    foreign.wait_claims(lock, 4)
    for worker in gateway.worker_pids():
        content = gateway.inspect("x", worker=worker).json
        assert [h["owner"] for h in content["holders"]] == ["10.0.0.7"]
        assert content["queued"] == 3
        assert content["queue"][-1]["owner"] == "me"
    assert gateway.refusal("x")["holder"]["owner"] == "10.0.0.7"
    waiter.close()
    foreign.wait_claims(lock, 3)


def test_held_claim_deleted_by_hand(gateway, foreign):
    """An administrator breaks a lock in this way: the holder learns of that.
    """
    lock = gateway.znode("x")
    for worker in gateway.worker_pids():
        holder = gateway.hold("x", worker=worker)
        foreign.delete(lock + "/" + foreign.claims(lock)[0])
        gone(gateway, "x", holder.token, worker)
        gateway.release("x", gateway.hold("x", timeout=SOON).token)


def test_waiting_claim_deleted_by_hand(gateway, foreign):
    """The waiter queues again, behind the present claims, and is granted."""
    lock = gateway.znode("x")
    for worker in gateway.worker_pids():
        ahead = foreign.make_claim(lock)
        waiter = gateway.begin("x", worker=worker)
        ours = foreign.wait_claims(lock, 2)[1]
        behind = foreign.make_claim(lock)
        foreign.delete(lock + "/" + ours)
        foreign.delete(ahead)
        claims = foreign.wait_claims(lock, lambda claims: len(claims) == 2
                                     and lock + "/" + claims[0] == behind)
        assert claims[1] != ours
        settle(gateway, waiter)
        foreign.delete(behind)
        response = waiter.response(SOON)
        grant(response, "x")
        gateway.release("x", response.token)


# children with names that somebody has made up

STRAYS = int(os.environ.get("ZK_LOCK_STRAYS") or 150)


def plant(tree, lock, number, layout="-lock-"):
    """A child that the parent has not given the number to, as in a copy."""
    tree.client.ensure_path(lock)
    return tree.client.create("%s/_c_%s%s%010d" % (lock, uuid.uuid4(), layout,
                                                   number), b"")


def named(gateway, child):
    return gateway.log_text().count('"%s" in' % child.rpartition("/")[2])


def test_number_of_the_future(gateway, foreign):
    """The claims behind wait for the child, none is forgotten."""
    lock = gateway.znode("x")
    child = plant(foreign, lock, 100)
    for _ in range(12):
        problem(gateway.acquire("x", mode="shared", ttl="1s", wait="0"), 423)
    assert foreign.claims(lock) == [child.rpartition("/")[2]]

    waiters = [gateway.begin("x", mode="shared") for _ in range(12)]
    foreign.wait_claims(lock, 13)
    settle(gateway, waiters[0])
    assert 1 <= named(gateway, child) <= len(gateway.worker_pids())

    foreign.delete(child)
    tokens = [waiter.response(SOON).token for waiter in waiters]
    assert len(foreign.claims(lock)) == 12
    for token in tokens:
        assert gateway.release("x", token).status == 204
    assert foreign.claims(lock) == []


def test_number_of_the_future_beside_holders(gateway, foreign):
    lock = gateway.znode("x")
    workers = gateway.worker_pids() * 3
    tokens = [gateway.hold("x", mode="shared", worker=worker).token
              for worker in workers]
    child = plant(foreign, lock, 7)
    waiters = [gateway.begin("x", mode="shared", worker=worker)
               for worker in workers]
    foreign.wait_claims(lock, 13)
    settle(gateway, waiters[0])
    foreign.delete(child)
    tokens += [waiter.response(SOON).token for waiter in waiters]
    for token in tokens:
        assert gateway.release("x", token).status == 204
    assert foreign.claims(lock) == []


def test_leases_end_beside_a_number_of_the_future(gateway, foreign):
    lock = gateway.znode("x")
    for worker in gateway.worker_pids() * 2:
        gateway.hold("x", mode="shared", ttl="1s", worker=worker)
    child = plant(foreign, lock, 2000000)
    for worker in gateway.worker_pids() * 2:
        problem(gateway.acquire("x", mode="shared", wait="0",
                                worker=worker), 423)
    foreign.wait_claims(lock, 1, timeout=SOON)
    foreign.delete(child)
    gateway.release("x", gateway.hold("x", timeout=SOON).token)
    foreign.wait_claims(lock, 0)


def test_numbers_of_the_past(gateway, foreign):
    lock = gateway.znode("x")
    for worker in gateway.worker_pids() * 3:
        gateway.release("x", gateway.hold("x", worker=worker).token)
    child = plant(foreign, lock, 3)
    for worker in gateway.worker_pids():
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
    foreign.delete(child)
    gateway.release("x", gateway.hold("x", timeout=SOON).token)


def test_copies_of_claims(gateway, foreign):
    """A child with the id of a claim, but with another number."""
    lock = gateway.znode("x")
    for worker in gateway.worker_pids():
        holder = gateway.hold("x", worker=worker)
        waiter = gateway.begin("x", worker=worker)
        claims = foreign.wait_claims(lock, 2)
        copies = [lock + "/" + claim[:-10] + "%010d" % (sequence(claim) + 50)
                  for claim in claims]
        for copy in copies:
            foreign.client.create(copy, b"")

        foreign.delete(lock + "/" + claims[0])
        gone(gateway, "x", holder.token, worker)
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
        settle(gateway, waiter)
        for copy in copies:
            foreign.delete(copy)
        gateway.release("x", waiter.response(SOON).token)
        foreign.wait_claims(lock, 0)


def test_copy_of_a_claim_that_has_ended(gateway, foreign):
    """The copy blocks when the gateway has forgotten the claim, too."""
    lock = gateway.znode("x")
    for worker in gateway.worker_pids():
        holder = gateway.hold("x", worker=worker)
        claim, = foreign.claims(lock)
        copy = lock + "/" + claim[:-10] + "%010d" % (sequence(claim) + 50)
        foreign.client.create(copy, b"")
        gateway.release("x", holder.token)
        for other in gateway.worker_pids():
            problem(gateway.acquire("x", wait="0", worker=other), 423)
        foreign.delete(copy)
        gateway.release("x", gateway.hold("x", timeout=SOON).token)


def test_many_acquires_beside_a_number_of_the_future(gateway, foreign):
    """The session does not fill up with znodes that no record knows."""
    lock = gateway.znode("x")
    child = plant(foreign, lock, 10 ** 9)
    for _ in range(STRAYS):
        problem(gateway.acquire("x", mode="shared", wait="0"), 423)
    assert foreign.claims(lock) == [child.rpartition("/")[2]]
    foreign.delete(child)
    gateway.release("x", gateway.hold("x", timeout=SOON).token)


def copied(tree, path):
    """(path, data) of all below path that belongs to no session."""
    found = []
    for name in tree.children(path):
        try:
            data, stat = tree.client.get(path + "/" + name)
        except NoNodeError:
            continue
        if stat.owner_session_id is None:
            found.append((path + "/" + name, data))
            found += copied(tree, path + "/" + name)
    return found


def copy_tree(gateway, tree, other):
    """Copies the gateway's durable leases, by name, but none of the GATEs."""
    nodes = copied(tree, gateway.root)
    entries = [(path, data) for path, data in copied(tree, GATES)
               if gateway.root.encode() in data]
    nodes += [(path.rpartition("/")[0], b"") for path, _ in entries] + entries
    for path, data in nodes:
        other.make(path, data)


@pytest.fixture
def copied_lease(start_gateway, foreign, private_zookeeper, connect_tree):
    """A lease with number 15, and the other ensemble's tree with a copy."""
    old = start_gateway()
    for _ in range(15):
        old.release("x", old.hold("x").token)
    holder = old.hold("x", ttl="60s", durable="1")
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    copy_tree(old, foreign, tree)
    yield holder, tree
    old.release("x", holder.token)


def test_tree_copied_to_another_ensemble(start_gateway, private_zookeeper,
                                         copied_lease):
    """The claims have old numbers, below parents that count from 0: the leases
    that were copied are held until their end, and other claims wait.
    """
    _, tree = copied_lease
    new = start_gateway(zookeeper=private_zookeeper)
    lock = new.znode("x")
    claim = tree.claims(lock)[0]
    assert sequence(claim) == 15 and tree.is_durable(lock + "/" + claim)

    waiters = []
    for worker in new.worker_pids():
        waiters.append(new.begin("x", worker=worker))
        tree.wait_claims(lock, 1 + len(waiters))
    assert [sequence(name) for name in tree.wait_claims(lock, 3)[:2]] == [1, 2]
    for worker in new.worker_pids():
        problem(new.acquire("x", wait="0", worker=worker), 423)
    settle(new, waiters[0])

    tree.delete(lock + "/" + claim)
    for waiter in waiters:
        new.release("x", waiter.response(SOON).token)
    tree.wait_claims(lock, 0)
    new.finish()


@pytest.mark.parametrize("change", ["connection", "owner", "share"])
def test_copied_lease_stays_ahead(start_gateway, private_zookeeper,
                                  copied_lease, start_proxy, change):
    """The parent has given the lease's number, too, when the waiter's worker
    lists the claims anew; the waiter's number is smaller.
    """
    holder, tree = copied_lease
    owner = start_gateway(zookeeper=private_zookeeper)
    wait_until(lambda: owner.inspect("x", holder.token).status == 200, SOON)

    proxy = start_proxy(private_zookeeper)
    new = start_gateway(servers=proxy.address, wait_sessions=False, workers=1)
    new.wait_served()
    waiter = new.begin("x", wait="1m")
    tree.wait_claims(new.znode("x"), 2)
    for _ in range(20):
        problem(owner.acquire("x", wait="0"), 423)

    if change == "connection":
        proxy.kill()
        new.wait_served()
    elif change == "owner":
        owner.stop()
        wait_until(lambda: "is counted by this worker" in new.log_text(), SOON)
    else:
        assert owner.renew("x", holder.token, mode="shared").status == 200
    assert waiter.silent_for(3)

    assert new.release("x", holder.token).status == 204
    new.release("x", waiter.response(SOON).token)


@pytest.mark.parametrize("where", ["worker", "sibling", "gateway"])
def test_waiting_claim_deleted_by_hand_behind_a_young_holder(
        start_gateway, foreign, where):
    """The holder becomes durable after two seconds, which all workers are told
    as a release elsewhere is: the waiter queues again all the same.
    """
    here, there = start_gateway(), start_gateway()
    lock = here.znode("x")
    one, other = here.worker_pids()
    holder = (there.hold("x") if where == "gateway" else
              here.hold("x", worker=one if where == "worker" else other))
    waiter = here.begin("x", worker=one, wait="1m")
    ours = foreign.wait_claims(lock, 2)[1]
    foreign.delete(lock + "/" + ours)
    claims = foreign.wait_claims(lock, 2)
    assert claims[1] != ours
    assert here.release("x", holder.token).status == 204
    response = waiter.response(SOON)
    assert "queued again" in grant(response, "x")["note"]
    here.release("x", response.token)


# the parent

@pytest.mark.parametrize("depth", [1, 2, 10])
def test_missing_parents_are_made(start_gateway, tree, root, depth):
    deep = root + "".join("/%d" % i for i in range(depth))
    gateway = start_gateway(root=deep)
    response = gateway.hold("x")
    assert len(tree.claims(deep + "/x")) == 1
    gateway.release("x", response.token)


def test_missing_parents_of_many_at_once(start_gateway, tree):
    """Fifty requests for fifty locks whose znodes are not there yet."""
    gateway = start_gateway()
    waiters = [gateway.begin("x%d" % i) for i in range(50)]
    for i, waiter in enumerate(waiters):
        response = waiter.response(SOON)
        grant(response, "x%d" % i)
        gateway.release("x%d" % i, response.token)


def test_parent_vanishes_between_two_grants(gateway, tree):
    lock = gateway.znode("x")
    for _ in range(10):
        response = gateway.hold("x", timeout=SOON)
        gateway.release("x", response.token)
        tree.client.delete(lock)
    tree.delete_tree(gateway.root)
    tree.delete_tree(gateway.root.rpartition("/")[0])
    gateway.release("x", gateway.hold("x", timeout=SOON).token)


def test_parent_made_anew_proves_nothing(gateway, foreign):
    """Numbers begin again with the parent, so the gateway, which knew all old
    claims, must not think that it knows all claims ahead of the new claim.
    """
    lock = gateway.znode("x")
    for known in (1, 3, 5):
        for worker in gateway.worker_pids():
            foreign.delete_tree(lock)
            for _ in range(known):
                gateway.release("x", gateway.hold("x", worker=worker).token)
            assert foreign.stat(lock).children_count == 0

            foreign.client.delete(lock)
            claims = [foreign.make_claim(lock) for _ in range(known)]
            for claim in claims[:-1]:
                foreign.delete(claim)
            assert sequence(claims[-1]) == known - 1

            waiter = gateway.begin("x", worker=worker)
            ours = foreign.wait_claims(lock, 2)[1]
            assert sequence(ours) == known
            settle(gateway, waiter)
            foreign.delete(claims[-1])
            gateway.release("x", waiter.response(SOON).token)


def test_claim_that_came_between(gateway, foreign):
    """Between two grants of a worker a foreign claim joined and stays."""
    lock = gateway.znode("x")
    worker = gateway.worker_pids()[0]
    for gap in (1, 2, 5):
        gateway.release("x", gateway.hold("x", worker=worker).token)
        claims = [foreign.make_claim(lock) for _ in range(gap)]
        for claim in claims[1:]:
            foreign.delete(claim)
        waiter = gateway.begin("x", worker=worker)
        foreign.wait_claims(lock, 2)
        settle(gateway, waiter)
        foreign.delete(claims[0])
        gateway.release("x", waiter.response(SOON).token)


def test_container_is_reaped_and_made_anew(tmp_path, private_zookeeper,
                                           start_gateway, connect_tree):
    """An unused lock leaves no znode, and the fencing tokens still grow."""
    private_zookeeper.properties.append("-Dznode.container.checkIntervalMs=200")
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    gateway = start_gateway(zookeeper=private_zookeeper)
    fencing = 0
    for worker in gateway.worker_pids():
        for _ in range(2):
            response = gateway.hold("x", worker=worker)
            assert response.fencing > fencing
            fencing = response.fencing
            claim, = tree.claims(gateway.znode("x"))
            assert sequence(claim) == 0
            gateway.release("x", response.token)
            tree.wait_gone(gateway.znode("x"), SOON)


def test_server_without_containers(start_gateway, start_proxy, zookeeper, tree,
                                   root):
    """An old server knows no containers: the parents are persistent then, and
    a new worker's first locks, which are made at once, are made so, too.
    """
    tree.make(root)
    proxy = start_proxy(zookeeper)
    proxy.lack("createContainer")
    gateway = start_gateway(servers=proxy.address, root=root, workers=1,
                            wait_sessions=False)
    gateway.wait_served()
    proxy.delay = 0.1
    waiters = {name: gateway.begin(name) for name in ("x", "y", "z")}
    for name, waiter in waiters.items():
        response = waiter.response(SOON)
        grant(response, name)
        gateway.release(name, response.token)
    assert proxy.requests["createContainer"] == len(waiters)


class Room:
    """The client that is inside, and the claims' numbers in order of entry."""

    def __init__(self):
        self.inside = []
        self.numbers = []
        self.lock = threading.Lock()

    def enter(self, who, number):
        with self.lock:
            assert not self.inside, "%s beside %s" % (who, self.inside)
            self.inside.append(who)
            self.numbers.append(number)

    def leave(self, who):
        with self.lock:
            self.inside.remove(who)


def test_load_with_kazoo(start_gateway, zookeeper, connect_tree):
    """Half of the clients are kazoo's and half are the gateways': each is
    alone, in the order of the claims, and each kind has a share.
    """
    gateways = [start_gateway(), start_gateway()]
    room, failed = Room(), []
    granted = {"kazoo": 0, "ours": 0}
    connect_tree(zookeeper.address).make(gateways[0].znode("x"))

    def come(kind, visit):
        try:
            while sum(granted.values()) < GRANTS and not failed:
                visit()
                granted[kind] += 1
        except BaseException as e:      # pylint: disable=broad-except
            failed.append(e)

    def ours(gateway):
        def visit():
            response = gateway.acquire("x", wait="1m", timeout=90)
            assert response.status == 201, response
            number = sequence(claim_of(response.token))
            room.enter(response.token, number)
            room.leave(response.token)
            assert gateway.release("x", response.token).status == 204
        return visit

    def kazoos(client):
        def visit():
            lock = client.Lock(gateways[0].znode("x"), "kazoo",
                               extra_lock_patterns=CURATOR_PATTERN)
            assert lock.acquire(timeout=60)
            room.enter(lock, sequence(lock.node))
            room.leave(lock)
            lock.release()
        return visit

    threads = [threading.Thread(target=come, args=("ours", ours(gateway)))
               for gateway in gateways * 2]
    threads += [threading.Thread(target=come, args=(
        "kazoo", kazoos(connect_tree(zookeeper.address).client)))
        for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert room.numbers == sorted(room.numbers)
    assert min(granted.values()) * 10 > max(granted.values()), granted
