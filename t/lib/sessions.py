"""Sessions that a test ends, and leases that end with their sessions."""

from kazoo.security import make_acl

NO_WRITE = make_acl("world", "anyone", read=True, create=True, delete=True,
                    admin=True)


def stay_ephemeral(tree, *locks):
    """No lease of these locks becomes durable, however slow the test is.

    The change to a persistent znode sets the lock's znode, which the ACL
    forbids.  So does a release at another gateway.
    """
    for lock in locks:
        tree.client.ensure_path(lock)
        tree.client.set_acls(lock, [NO_WRITE])


def expire(gateway, proxy, tree, *names):
    """Cuts the way to ZooKeeper until the sessions that have claims for these
    locks are over: each session ends when ZooKeeper expires the session.
    """
    for name in names:
        gateway.catch_up(name)
    proxy.hole()
    for name in names:
        tree.wait_claims(gateway.znode(name), 0, 20)
    proxy.pass_on()
