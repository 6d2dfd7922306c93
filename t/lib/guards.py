"""Guarded locations: what the tests of zk_lock and zk_lock_require share.

    gateway = guarded("zk_lock one;")       # the fixture, in guard/conftest.py
    client = begin(gateway)                 # GET /app/, sent and not answered
    lose(tree, gateway)                     # deletes the lock's claims by hand
    free(tree, gateway)                     # waits until no claim is left
    log(gateway, 1)                         # a line of the access log
"""

import collections

from lib.process import wait_until, whole_lines

SOON = 8.0

LOG = ("log_format guarded '$status|$zk_lock_name|$zk_lock_outcome|"
       "$zk_lock_wait_time|$zk_lock_fencing_token|"
       "$zk_lock_fencing_tokens|$uri';\n"
       "access_log guarded.log guarded;\n")

Line = collections.namedtuple(
    "Line", "status name outcome wait fencing fencings uri")


def location(rules, content, path="/app/"):
    return "location %s {\n%s\n%s\n}\n" % (path, rules, content)


def begin(gateway, path="/app/", method="GET", body=None, headers=None,
          worker=None):
    """Sends a request; the answer is to be read from the connection."""
    return gateway.connect(worker).send(method, path, None, headers, body)


def log(gateway, n):
    """The n-th line of the access log, but for those of /ready and /locks/."""
    def lines():
        lines = [Line(*line.split("|"))
                 for line in whole_lines(gateway.prefix + "/guarded.log")]
        lines = [line for line in lines if line.uri != "/ready"
                 and not line.uri.startswith("/locks/")]
        return lines if len(lines) >= n else None
    return wait_until(lines, SOON, "%d lines" % n)[n - 1]


def lose(tree, gateway, name="one"):
    """Deletes the lock's claims by hand; a held one is looked at for 2 s."""
    for claim in tree.claims(gateway.znode(name)):
        tree.delete(gateway.znode(name) + "/" + claim)


def free(tree, gateway, name="one"):
    """Waits until no claim of the lock is left."""
    tree.wait_claims(gateway.znode(name), 0)
