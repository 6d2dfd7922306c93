"""What a guarded request asks of ZooKeeper."""

import pytest

from conftest import top
from lib.guards import free
from lib.process import wait_until
from lib.tokens import claim_of

TIMES = 20


@pytest.fixture
def spent(zookeeper, root):
    """A function that tells the (reads, writes) of what it calls."""
    def counts():
        return zookeeper.reads(top(root)), zookeeper.writes(top(root))

    def spend(function, *arguments):
        before = counts()
        function(*arguments)
        return tuple(now - then for now, then in zip(counts(), before))

    return spend


def ask(gateway, headers=None, worker=None):
    connection = gateway.connect(worker)
    for _ in range(TIMES):
        response = connection.request("GET", "/app/", None, headers)
        assert response.status == 204, response


def test_a_lock_costs_two_writes(guarded, tree, spent):
    """A create and a delete for each request, and no read for each."""
    gateway = guarded("zk_lock one;", "try_files /none =204;")
    worker = gateway.worker_pids()[0]

    def asked():
        ask(gateway, worker=worker)
        free(tree, gateway)

    asked()
    reads, writes = spent(asked)
    assert writes == 2 * TIMES
    assert reads < TIMES / 4


@pytest.mark.parametrize("shown", ["token", "fencing token"])
def test_a_token_costs_a_read(guarded, zookeeper, tree, spent, shown):
    """At any gateway; two reads at another gateway for the fencing token."""
    rule = "zk_lock_require one fencing=$http_lock_fencing_token;"
    near, far = (guarded(rule, "try_files /none =204;") for _ in range(2))
    held = near.hold("one").json
    # the lease becomes durable, and then the claim is read and watched once
    claim = "%s/%s" % (near.znode("one"), claim_of(held["token"]))
    wait_until(lambda: tree.durables(near.znode("one")) == [claim], 20)
    wait_until(lambda: claim in zookeeper.watched_paths(), 20)
    headers = ({"Lock-Token": held["token"]} if shown == "token" else
               {"Lock-Fencing-Token": str(held["fencing_token"])})
    most = 1 if shown == "token" else 2
    assert spent(ask, near, headers) == (most * TIMES, 0)
    assert spent(ask, far, headers) == (most * TIMES, 0)
    near.release("one", held["token"])
