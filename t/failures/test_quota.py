"""A quota of ZooKeeper is reached: "setquota -N" or -B with enforceQuota.

ZooKeeper then creates no znode below the path, or lets no data grow.  A call
that needs that gets 503 and the type "no-room", held locks are renewed and
released as ever, and all goes on as soon as there is room.
"""

import pytest

from lib.checks import grant, problem, retry_after
from lib.client import lock_path
from lib.process import wait_until
from lib.zookeeper import Server

HEALTH = "location = /health { zk_lock_health; }"
FAR = 30.0


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "zookeeper",
                    properties=["-Dzookeeper.enforceQuota=true"]).start()
    yield server
    server.kill()


def limit(tree, path, number=-1, size=-1):
    """What "setquota -N" and -B of zkCli do; -1 is "delquota"."""
    quota = "/zookeeper/quota" + path
    text = (b"count=-1,bytes=-1=;byteHardLimit=%d;countHardLimit=%d"
            % (size, number))
    client = tree.client
    if client.exists(quota):
        client.set(quota + "/zookeeper_limits", text)
        return
    client.ensure_path(quota)
    client.create(quota + "/zookeeper_limits", text)
    client.create(quota + "/zookeeper_stats", b"count=0,bytes=0")


def no_room(response):
    content = problem(response, 503, "quota")
    assert content["type"] == "/problems/no-room", content
    assert retry_after(response) == 1


def test_quota_is_reached(server, start_gateway, connect_tree):
    tree = connect_tree(server.address)
    gateway = start_gateway(zookeeper=server, root="/q/locks", server=HEALTH)
    holder = gateway.hold("x")
    waiter = gateway.begin("x", wait="1m")
    tree.wait_claims("/q/locks/x", 2)
    used = 1 + len(tree.children("/q/locks")) + len(tree.claims("/q/locks/x"))
    limit(tree, "/q/locks", used)

    for worker in gateway.worker_pids():
        # a claim; and a lock, which is not there yet
        for name in ("x", "y"):
            no_room(gateway.acquire(name, worker=worker, wait="0"))
            no_room(gateway.acquire(name, worker=worker, wait="1m"))
        assert gateway.renew("x", holder.token, worker=worker).status == 200
        assert gateway.call("GET", "/health", worker=worker).status == 200
        assert gateway.inspect("x", worker=worker).json["queued"] == 1
    assert "quota exceeded (-125)" in gateway.log_text()
    assert gateway.log_text().count("zookeeper's quota forbids") < 20

    # there is room
    assert gateway.release("x", holder.token).status == 204
    token = grant(waiter.response(FAR), "x")["token"]
    assert gateway.acquire("x", wait="0").status == 423
    limit(tree, "/q/locks", -1)
    for name in ("x2", "y"):
        gateway.release(name, gateway.hold(name).token)
    assert gateway.release("x", token).status == 204


def test_data_may_not_grow(server, start_gateway, connect_tree):
    """A renewal with another ttl, and a hold more or less, are written."""
    tree = connect_tree(server.address)
    here, there = (start_gateway(zookeeper=server, root="/q/locks",
                                 location="zk_lock_admin on;")
                   for _ in range(2))
    token = here.hold("x", ttl="1h", durable="1").token
    limit(tree, "/q/locks", size=1)

    for gateway in here, there:
        assert gateway.inspect("x", token).json["state"] == "held"
        for worker in gateway.worker_pids():
            # as many digits, or one more
            assert here.renew("x", token, worker=worker
                              if gateway is here else None).status == 200
            no_room(gateway.renew("x", token, worker=worker, ttl="10h"))
            no_room(gateway.call("POST", lock_path("x"),
                                 headers={"Lock-Token": token},
                                 worker=worker))
        assert "quota exceeded (-125)" in gateway.log_text()

    assert here.inspect("x", token).json.get("holds", 1) == 1
    limit(tree, "/q/locks")
    assert there.renew("x", token, ttl="10h").status == 200
    assert here.acquire("x", headers={"Lock-Token": token}).status == 200
    limit(tree, "/q/locks", size=1)
    no_room(here.release("x", token))
    no_room(here.release("x", token))
    assert here.inspect("x", token).json["holds"] == 2
    limit(tree, "/q/locks")
    assert here.release("x", token).status == 200
    limit(tree, "/q/locks", size=1)
    assert here.release("x", token).status == 204
    tree.wait_claims("/q/locks/x", 0)


def test_lease_becomes_durable_when_there_is_room(server, start_gateway,
                                                  connect_tree):
    """The claim is held as before meanwhile."""
    tree = connect_tree(server.address)
    gateway = start_gateway(zookeeper=server, root="/q/locks")
    gateway.release("x", gateway.hold("x").token)
    limit(tree, "/q/locks", 3)
    holder = gateway.hold("x", ttl="1h")
    wait_until(lambda: "quota exceeded (-125)" in gateway.log_text(), FAR,
               "ZooKeeper has refused to make the lease durable")
    assert gateway.inspect("x", holder.token).json["state"] == "held"
    limit(tree, "/q/locks", -1)
    claim, = tree.claims("/q/locks/x")
    wait_until(lambda: tree.client.exists("/q/locks/x/" + claim
                                          ).ephemeralOwner == 0, FAR,
               "the lease is durable")
    assert gateway.release("x", holder.token).status == 204


def lasting(tree, gateway, name, **arguments):
    """A lease that the worker cannot make durable: its token."""
    worker = gateway.worker_pids()[0]
    token = gateway.hold(name, worker=worker, **arguments).token
    limit(tree, "/q/locks", 1)
    wait_until(lambda: "quota exceeded (-125)" in gateway.log_text(), FAR,
               "ZooKeeper has refused to make the lease durable")
    return worker, token


@pytest.mark.parametrize("how", ["released", "broken", "downgraded", "over"])
def test_lease_that_cannot_become_durable_ends(server, start_gateway,
                                               connect_tree, how):
    """The waiters go on, at the worker that has the claim, too."""
    tree = connect_tree(server.address)
    gateway = start_gateway(zookeeper=server, root="/q/locks",
                            location="zk_lock_admin on;")
    worker, token = lasting(tree, gateway, "x",
                            ttl="6s" if how == "over" else "1h")
    if how == "downgraded":
        # the znode gets another name when there is room
        assert gateway.renew("x", token, worker=worker, mode="read"
                             ).status in (200, 503)
    if how == "broken":
        assert gateway.call("DELETE", lock_path("x"), {"force": "1"},
                            headers={"If-Match": "*"}, worker=worker
                            ).status == 204
    elif how != "over":
        assert gateway.release("x", token, worker=worker).status == 204
    tree.wait_claims("/q/locks/x", 0, FAR)
