"""What the run puts under faults: an ensemble of three, and two gateways.

Each server and each gateway has a separate network namespace, and each server's
transaction log has a small separate disk (a tmpfs).  Where the machine lacks
the rights for namespaces or disks, the arena goes on without and says so in
`missing`.

Durable leases survive the death of the gateway; other leases end with the
session.
"""

import ctypes
import functools
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import traceback

from chaos import witness
from chaos.network import Loopback, Network, NoRights
from lib import claims
from lib.gateway import Gateway
from lib.process import wait_until
from lib.zookeeper import Server, Tree

SESSION_TIMEOUT = 4.0
TICK = 500
DISK = "512m"
ROOT = "/chaos/locks"
QUORUM_TIMEOUT = 120.0
STUCK = 40.0
UNREADABLE = (b"Unable to load database on disk",
              b"Committed proposal cached out of order")
FULL = b"No space left on device"

# Elections begin anew after a second, not after a minute, and no log is
# allocated far ahead, so that a full disk is felt at once.
PROPERTIES = ["-Dzookeeper.cnxTimeout=1000",
              "-Dzookeeper.fastleader.maxNotificationInterval=1000",
              "-Dzookeeper.preAllocSize=64",
              "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server."
              "ZooKeeperServer=debug"]

CLONE_NEWNS = 0x00020000

SESSION = re.compile(r"Established session 0x([0-9a-f]+) with .* for client "
                     r"/([0-9.]+):")

# what nginx logs when a test kills or stops a process
EXPECTED = [r"exited on signal 9", r"signal process started"]


class Counter:
    """Counts words in a growing file; each call reads only the new part."""

    def __init__(self, path, words):
        self.path = path
        self.found = dict.fromkeys(words, 0)
        self.offset = 0
        self.lock = threading.Lock()

    def count(self, word):
        with self.lock:
            try:
                with open(self.path, "rb") as f:
                    f.seek(self.offset)
                    new = f.read()
            except FileNotFoundError:
                new = b""
            whole = new.rfind(b"\n") + 1
            self.offset += whole
            for each in self.found:
                self.found[each] += new.count(each, 0, whole)
            return self.found[word]


class Arena:
    def __init__(self, directory, loopback=False, roots=(ROOT, ROOT)):
        self.directory = str(directory)
        self.missing = []
        self.servers = []
        self.gateways = []
        # a path in a deep directory may be too long for a socket
        self.sockets = tempfile.mkdtemp(prefix="chaos")
        self.witness = os.path.join(self.sockets, "witness")
        self.network = self._network(loopback)
        try:
            self.disks = self._mounts()
            self._make_servers()
            self._make_gateways(roots)
        except BaseException:
            self.close()
            raise

    def _network(self, loopback):
        why = "as was asked for"
        if not loopback:
            try:
                return Network()
            except NoRights as e:
                why = "no network namespaces here (%s)" % e
        self.missing.append("no partitions, no late or lost frames: " + why)
        return Loopback()

    def _mounts(self):
        """Private mounts, which end with this process."""
        libc = ctypes.CDLL(None, use_errno=True)
        if (libc.unshare(CLONE_NEWNS) == 0
                and subprocess.call(["mount", "--make-rprivate", "/"]) == 0):
            return True
        self.missing.append("no full disks: no mounts here")
        return False

    def _make_servers(self):
        self.nodes = [self.network.node("s%d" % i) for i in (1, 2, 3)]
        peers = ["server.%d=%s:%d:%d" % (i, node.address, node.port(2888),
                                         node.port(3888))
                 for i, node in enumerate(self.nodes, 1)]
        for i, node in enumerate(self.nodes, 1):
            path = os.path.join(self.directory, node.name)
            disk = os.path.join(path, "disk")
            os.makedirs(disk)
            if self.disks:
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + DISK,
                                "chaos", disk], check=True)
            server = Server(path, port=node.port(2181), tick=TICK,
                            host=node.address, enter=node.enter,
                            properties=PROPERTIES,
                            config=peers + ["dataLogDir=" + disk,
                                            "initLimit=8", "syncLimit=4"])
            with open(os.path.join(path, "data", "myid"), "w") as f:
                f.write("%d\n" % i)
            server.name, server.node, server.disk = node.name, node, disk
            server.unreadable = server.replaced = server.stuck = 0
            server.says = Counter(server.log, UNREADABLE + (FULL,)).count
            self.servers.append(server)

    def _make_gateways(self, roots):
        for i, root in enumerate(roots, 1):
            node = self.network.node("g%d" % i)
            prefix = os.path.join(self.directory, node.name)
            gateway = Gateway(prefix, servers=self.address, root=root,
                              session_timeout="%gs" % SESSION_TIMEOUT,
                              host=node.address, enter=node.enter,
                              http="zk_lock_grace 3s;\n", level="info",
                              server=witness.location(root, self.witness))
            for pattern in EXPECTED:
                gateway.allow(pattern)
            gateway.name, gateway.node = node.name, node
            self.gateways.append(gateway)

    @property
    def address(self):
        return ",".join(server.address for server in self.servers)

    # life

    def start(self):
        for server in self.servers:
            server.start(wait=False)
        self.wait_quorum()
        for gateway in self.gateways:
            gateway.start(wait_sessions=False)
        return self

    def close(self):
        """Ends all processes and removes all mounts, whatever happened."""
        ends = [functools.partial(self._end_gateway, gateway)
                for gateway in self.gateways]
        ends += [server.kill for server in self.servers]
        ends += [functools.partial(subprocess.call,
                                   ["umount", "-l", server.disk])
                 for server in self.servers if self.disks]
        ends.append(functools.partial(shutil.rmtree, self.sockets))
        for end in ends + [self.network.close]:
            try:
                end()
            except (AssertionError, OSError):
                traceback.print_exc()

    @staticmethod
    def _end_gateway(gateway):
        """Also ends a gateway whose master is dead."""
        if gateway.process is not None and gateway.process.poll() is not None:
            gateway.process = None
        if gateway.process is not None:
            gateway.kill()
        gateway.kill_orphans()

    def wait_quorum(self, timeout=QUORUM_TIMEOUT):
        """All servers serve; a server that has ended is started again.

        So is a server that does not serve for long: ZooKeeper may wait for ever
        in the end of a leader or a follower.
        """
        begin = time.monotonic()

        def whole():
            nonlocal begin
            if self._all_serve():
                return True
            if time.monotonic() - begin > STUCK:
                begin = time.monotonic()
                for server in self.servers:
                    if self.mode(server) is None:
                        server.kill()
                        server.stuck += 1
                        server.start(wait=False)
            return False

        wait_until(whole, timeout, "the ensemble is whole")

    def _all_serve(self):
        for server in self.servers:
            if self._broken(server):
                self._replace(server)
            elif server.process is None or server.process.poll() is not None:
                server.process = None
                server.start(wait=False)
        return all(self.mode(server) in ("leader", "follower")
                   for server in self.servers)

    def _broken(self, server):
        """Whether this server will never serve, though the other servers do.

        A full disk may leave half a transaction in the middle of the log, and
        an election may leave a hole; ZooKeeper's only cure is to delete the
        server's data.
        """
        return (self._unreadable(server) > server.unreadable
                and self.mode(server) is None
                and all(self.mode(other) for other in self.servers
                        if other is not server))

    @staticmethod
    def _unreadable(server):
        return sum(server.says(words) for words in UNREADABLE)

    def _replace(self, server):
        """Starts an empty server that copies the data, as an operator would."""
        server.kill()
        for path in (server.disk, os.path.join(server.directory, "data")):
            shutil.rmtree(os.path.join(path, "version-2"), ignore_errors=True)
        server.unreadable = self._unreadable(server)
        server.replaced += 1
        server.start(wait=False)

    @staticmethod
    def mode(server):
        try:
            found = re.search(r"^Mode: (\w+)", server.command("srvr", 1.0),
                              re.M)
        except OSError:
            return None
        return found.group(1) if found else None

    def leader(self):
        return wait_until(lambda: next((s for s in self.servers
                                        if self.mode(s) == "leader"), None),
                          QUORUM_TIMEOUT, "there is a leader")

    # what is known at the end

    def compare(self, record, timeout, root=ROOT):
        """Notes what the records know and what ZooKeeper has, when both are the
        same, or else after so many seconds.
        """
        tree = Tree(self.address)
        seen = {}

        def alike():
            numbers = claims.known(self.gateways)
            if numbers is None:
                return False
            seen.update(zip(("every", "sure"), numbers),
                        ephemerals=sorted(tree.ephemerals(root)),
                        durables=tree.durables(root))
            return claims.differ(**seen) is None

        try:
            wait_until(alike, timeout)
        except AssertionError:
            pass                # the checker tells
        record.write("claims", **seen)
        tree.close()

    def sessions(self):
        """(session, gateways) of sessions that a gateway may have opened."""
        found = set()
        for server in self.servers:
            with open(server.log, errors="replace") as f:
                found.update(SESSION.findall(f.read()))
        for session, address in found:
            gateways = [gateway.name for gateway in self.gateways
                        if gateway.host == address]
            if gateways:
                yield int(session, 16), gateways

    def expirations(self):
        """(session, monotonic time) of the sessions that servers expired."""
        offset = time.time() - time.monotonic()
        for server in self.servers:
            for session, at in server.expirations().items():
                yield session, at - offset

    def bad_lines(self):
        for gateway in self.gateways:
            for line in gateway._bad_lines():
                yield gateway.name, line
