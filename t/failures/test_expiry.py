"""The gateway's memory is wrong, and ZooKeeper knows better.

A session that is over, a claim that another client deleted, a lock whose znode
was removed and made anew, a holder whose znode cannot be read: in each case the
gateway has to notice before a client is harmed.
"""

import select

import pytest
from kazoo.security import make_digest_acl

from lib.checks import grant, problem
from lib.process import wait_until
from lib.sessions import expire, stay_ephemeral
from lib.zookeeper import sequence


def answered(connections, timeout):
    """The connections on which an answer has begun."""
    ready = select.select([c.socket for c in connections], [], [], timeout)[0]
    return [c for c in connections if c.socket in ready]


def told(ask):
    """The first status that is not 503: ZooKeeper is in reach again."""
    return wait_until(lambda: [
        status for status in [ask().status] if status != 503], 40,
        "an answer")[0]


@pytest.mark.parametrize("waiters", [0, 1, 20])
def test_session_expires(behind_proxy, tree, waiters):
    """The holder learns of the loss; each waiter queues again, once."""
    gateway, proxy = behind_proxy
    stay_ephemeral(tree, gateway.znode("x"), gateway.znode("alone"))
    holder = gateway.hold("x", ttl="1h")
    other = gateway.hold("alone", ttl="1h")
    waiting = [gateway.begin("x", wait="2m", ttl="1h")
               for _ in range(waiters)]
    tree.wait_claims(gateway.znode("x"), 1 + waiters)

    expire(gateway, proxy, tree, "x", "alone")

    for worker in gateway.worker_pids():
        for name, token in ("x", holder.token), ("alone", other.token):
            for ask in gateway.renew, gateway.inspect:
                assert told(lambda: ask(name, token, worker=worker)) == 410

    while waiting:
        ready = answered(waiting, 20)
        assert len(ready) == 1, "one at a time"
        waiting.remove(ready[0])
        response = ready[0].response()
        grant(response, "x")
        assert "session" in response.json["note"]
        gateway.release("x", response.token)

    tree.wait_claims(gateway.znode("x"), 0)


def test_waits_end_while_the_session_expires(behind_proxy, tree):
    """Many waits end at the moment of the expiry: each is answered once."""
    gateway, proxy = behind_proxy
    lock = gateway.znode("x")
    stay_ephemeral(tree, lock)
    gateway.hold("x", ttl="1h")
    waiting = [gateway.begin("x", wait="%dms" % (4000 + 10 * i))
               for i in range(300)]
    # the last of all has come; the first waits may be over on a slow machine
    tree.wait_claims(lock, lambda claims: sequence(claims[-1]) >= 300)
    expire(gateway, proxy, tree, "x")
    while waiting:
        connection = answered(waiting, 20)[0]
        waiting.remove(connection)
        response = connection.response()
        assert response.status in (201, 423, 503)
        if response.status == 201:
            gateway.release("x", response.token)
    tree.wait_claims(gateway.znode("x"), 0)


@pytest.mark.parametrize("where", ["same worker", "sibling"])
def test_claim_deleted_by_somebody_else(gateway, tree, where):
    """The lock is free in ZooKeeper: the waiter does not wait for the lease.
    """
    first, second = gateway.worker_pids()
    holder = gateway.hold("x", ttl="1h", worker=first)
    waiter = gateway.begin("x", wait="1m", worker=(
        first if where == "same worker" else second))
    tree.wait_claims(gateway.znode("x"), 2)
    tree.delete("%s/%s" % (gateway.znode("x"),
                           tree.claims(gateway.znode("x"))[0]))
    response = waiter.response(20)
    grant(response, "x")
    problem(gateway.renew("x", holder.token), 410)
    gateway.release("x", response.token)
    tree.wait_claims(gateway.znode("x"), 0)


def test_lock_removed_and_made_anew(gateway, tree):
    """A foreign claim is first in the new znode: no waiter is granted beside.
    """
    znode = gateway.znode("x")
    holder = gateway.hold("x", ttl="1h")
    tree.delete_tree(znode)
    tree.make(znode)
    foreign = tree.make_claim(znode)

    waiters = [gateway.begin("x", wait="1m", worker=worker)
               for worker in gateway.worker_pids()]
    tree.wait_claims(znode, 3)
    problem(gateway.inspect("x", holder.token), 410)
    problem(gateway.acquire("x", wait="0"), 423)
    assert not answered(waiters, 0.3)

    tree.delete(foreign)
    first = answered(waiters, 20)
    assert len(first) == 1
    response = first[0].response()
    gateway.release("x", response.token)
    waiters.remove(first[0])
    response = waiters[0].response(20)
    gateway.release("x", response.token)
    tree.wait_claims(znode, 0)


@pytest.mark.parametrize("wait", ["0", "300ms"])
def test_holder_that_cannot_be_read(gateway, tree, wait):
    """A claim with a separate ACL blocks the lock, and a wait for it ends."""
    znode = gateway.znode("x")
    tree.make(znode)
    foreign = tree.make_claim(znode)
    tree.client.set_acls(foreign, [make_digest_acl("u", "p", all=True)])
    gateway.refused("x", wait=wait)
    tree.delete(foreign)
    grant(gateway.acquire("x", wait="10s", timeout=20), "x")
