"""Sessions that a test ends."""


def expire(gateway, proxy, tree, *names):
    """The way to ZooKeeper is cut until the sessions are over of those who
    have claims for these locks: each session ends when ZooKeeper finds it.
    """
    for name in names:
        gateway.catch_up(name)
    proxy.hole()
    for name in names:
        tree.wait_claims(gateway.znode(name), 0, 20)
    proxy.pass_on()
