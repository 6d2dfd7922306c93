"""Whether ZooKeeper's servers tell the same story.

A lock service is no better than the ZooKeeper below, and some versions have
faults: a server may lose what was committed, or keep an ephemeral znode whose
session is over.  Then two clients at two servers see different queues, and no
gateway can know.  The audit proves such cases, so that the run does not blame
the gateways:

    a server A has the znode,
    then B, which has applied all that A had then, does not have the znode,
    then A, which has applied all that B had then, still has the znode.

Claim names are never used twice, so B has seen the end of that znode and A has
missed the end.  The audit looks at B twice, because a server shows the effect
of a transaction a moment before the zxid.  A thread for each server looks at
the ephemerals (`dump`), and at the zxid (`srvr`) before and after, over
connections without a session.
"""

import re
import threading
import time

PAUSE = 0.25
KEPT = 10.0                     # seconds of looks
TIMEOUT = 1.0

ZXID = re.compile(r"^Zxid: 0x([0-9a-f]+)", re.M)


class Look:
    def __init__(self, before, paths, after):
        self.before = before
        self.paths = paths
        self.after = after
        self.t = time.monotonic()


def look(server, root):
    """What a server has, or None if the server does not serve."""
    try:
        before = ZXID.search(server.command("srvr", TIMEOUT))
        dump = server.command("dump", TIMEOUT)
        after = ZXID.search(server.command("srvr", TIMEOUT))
    except OSError:
        return None
    if before is None or after is None or "ephemeral nodes dump" not in dump:
        return None
    paths = set(re.findall(r"^\t(%s/\S+)$" % re.escape(root), dump, re.M))
    return Look(int(before.group(1), 16), paths, int(after.group(1), 16))


def outlived(last, former, others):
    """The znodes of A's last look whose end B has seen, and A has not.

    former are the earlier looks of A, others are the looks of B.
    """
    found = set()
    for middle, again in zip(others, others[1:]):
        if again.after > last.before:
            continue
        for path in last.paths - middle.paths - again.paths:
            if any(path in look.paths and look.after <= middle.before
                   for look in former):
                found.add(path)
    return found


class Audit:
    def __init__(self, servers, root, record):
        self.servers = servers
        self.root = root
        self.record = record
        self.looks = {server.name: [] for server in servers}
        self.told = set()
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(server,),
                                         daemon=True) for server in servers]
        for thread in self.threads:
            thread.start()

    def _run(self, server):
        while not self.stop.wait(PAUSE):
            seen = look(server, self.root)
            if seen is None:
                continue
            with self.lock:
                looks = self.looks[server.name]
                looks.append(seen)
                while looks[0].t < seen.t - KEPT:
                    looks.pop(0)
                self._compare(server.name, seen)

    def _compare(self, name, seen):
        for other in self.looks:
            if other != name:
                self._tell(outlived(seen, self.looks[name],
                                    self.looks[other]), name, other)

    def _tell(self, paths, name, other):
        for path in paths - self.told:
            self.told.add(path)
            self.record.write("zookeeper", path=path, server=name, other=other,
                              lock=path.rsplit("/", 2)[1])

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
