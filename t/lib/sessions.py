"""Sessions that a test ends."""


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
