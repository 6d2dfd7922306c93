"""Whether records and znodes are the same claims, one to one.

Each ephemeral znode below a root is a claim that a record of a gateway knows,
and each claim that waits or is held is a znode.  A znode without a record
would block its lock for as long as the session lives, and a record without a
znode would keep its place in the zone.

A gateway tells how many claims its records know, and no names, so numbers are
compared.  A claim is known shortly before its znode is made and after it is
gone ("new" and "ended"); a claim that was durable before the gateway knew of it
may have no record.
"""


def known(gateways):
    """(claims of the records, those that surely have a znode) of gateways that
    run; None if a gateway cannot tell.
    """
    every = sure = 0
    for gateway in gateways:
        if gateway.process is None or gateway.process.poll() is not None:
            return None
        try:
            metrics = gateway.metrics()
        except (AssertionError, OSError):
            return None
        states = {state: number for (what, state), number in metrics.items()
                  if what == "claims" and state}
        every += sum(states.values())
        sure += states["waiting"] + states["held"]
    return every, sure


def differ(every, sure, ephemerals, durables):
    """What is wrong with these numbers and paths, or None."""
    if len(ephemerals) > every:
        return ("the records know %d claims, and these are ephemeral: %s"
                % (every, ", ".join(sorted(ephemerals))))
    if sure > len(ephemerals) + len(durables):
        return ("%d claims wait or are held, and these are znodes: %s"
                % (sure, ", ".join(sorted([*ephemerals, *durables]))))
    return None
