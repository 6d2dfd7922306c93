"""A private ZooKeeper: servers from Debian's jars, and looks into the servers.

Server is a process, standalone or a member of an Ensemble, on loopback, with
the data in a directory of the test run.  A test starts, stops, kills, freezes
and thaws the server by pid.  The server does not wait for the disk, unless sync
says so: written data outlives the process anyway, and a disk that stalls for a
second makes the server seem out of reach.  Four-letter words read the server's
counters over connections that have no session, and so disturb no count:

    transactions()    every write that the server ordered, counted once whether
                      a lone operation, a failed operation, or a multi of 200;
                      this is the server's last zxid.  The start and the end of
                      a session count 1 each.
    reads(TOP)        lookups (data, children, existence) of znodes that exist
                      below the top-level znode TOP; pings and the reads of
                      other tests, which use other tops, do not count
    writes(TOP)       creates, deletes and changes below TOP, each operation
                      inside a multi counted
    lookups()         every request of any client that was no write: also pings,
                      syncs and lookups of what does not exist

Tree looks at znodes with kazoo, and makes claims by hand.  Tree's reads count
like any reads: take the counters' difference around what is to be measured, and
look at the tree outside of that.
"""

import datetime
import json
import logging
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError, NoNodeError, NotEmptyError

from lib.process import free_port, state, tied, wait_until

GATES = "/zk_lock_gates"
LEASES = ".leases"

JARS = os.environ.get("ZK_JARS", "/usr/share/java")
JAVA = os.environ.get("JAVA", "java")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

# ZooKeeper's classes as Java maps them: a server starts with a third less work
ARCHIVE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "build", "zookeeper.jsa")

READY_TIMEOUT = 30.0

logging.getLogger("kazoo").setLevel(logging.CRITICAL)


class Server:
    """A ZooKeeper process; start() may be called again after a stop()."""

    def __init__(self, directory, port=None, tick=500, container_check=60000,
                 properties=(), config=(), sync=False, jars=(),
                 host="127.0.0.1", enter=()):
        self.directory = str(directory)
        self.host = host
        self.enter = list(enter)    # the words in front of the command
        self.port = port or free_port()
        self.tick = tick
        self.properties = ["-Dznode.container.checkIntervalMs=%d"
                           % container_check,
                           "-Dzookeeper.forceSync=%s"
                           % ("yes" if sync else "no")] + list(properties)
        self.config = list(config)
        self.jars = list(jars)
        self.process = None
        os.makedirs(os.path.join(self.directory, "data"), exist_ok=True)

    @property
    def address(self):
        return "%s:%d" % (self.host, self.port)

    @property
    def log(self):
        return os.path.join(self.directory, "zookeeper.log")

    # life

    def start(self, wait=True):
        assert self.process is None, "it runs already"
        conf = os.path.join(self.directory, "zoo.cfg")
        with open(conf, "w") as f:
            f.write("\n".join(self._config_lines()) + "\n")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                tied(self._command(conf)), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self):
        wait_until(self.serving, READY_TIMEOUT,
                   "ZooKeeper serves (see %s)" % self.log)

    def serving(self):
        if self.process.poll() is not None:
            with open(self.log, errors="replace") as f:
                raise AssertionError("ZooKeeper died, see %s: %s"
                                     % (self.log, f.read()[-2000:]))
        try:
            # a server that gets a word too early may never answer that word
            return "Mode: " in self.command("srvr", timeout=0.3)
        except OSError:
            return False

    def stop(self):
        """A clean end; sessions go on and are timed anew from the start."""
        self._end(signal.SIGTERM)

    def kill(self):
        self._end(signal.SIGKILL)

    def freeze(self):
        """The server keeps the connections but answers no client."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until(self._stands_still, what="ZooKeeper stands still")

    def _stands_still(self):
        """Whether all threads stand still; the threads stop in turn."""
        tasks = os.listdir("/proc/%d/task" % self.process.pid)
        return all(state(int(task)) in ("T", None) for task in tasks)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def _end(self, how):
        if self.process is None:
            return
        self.process.send_signal(how)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _command(self, conf):
        jars = [os.path.join(JARS, jar)
                for jar in ["zookeeper.jar", "slf4j-simple.jar"] + self.jars]
        return (self.enter
                + [JAVA, "-Xmx256m", "-XX:+UseSerialGC",
                 "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
                + (["-XX:SharedArchiveFile=" + ARCHIVE]
                   if os.path.exists(ARCHIVE) else [])
                + ["-Dzookeeper.4lw.commands.whitelist=*",
                   "-Dzookeeper.admin.enableServer=false",
                   "-Dzookeeper.preAllocSize=4096",
                   "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
                   "-Dorg.slf4j.simpleLogger.showDateTime=true",
                   "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
                + self.properties + ["-cp", ":".join(jars), MAIN, conf])

    def _config_lines(self):
        return ["tickTime=%d" % self.tick,
                "minSessionTimeout=%d" % (2 * self.tick),
                "maxSessionTimeout=120000",
                "initLimit=20",
                "syncLimit=10",
                "maxClientCnxns=0",
                "clientPortAddress=" + self.host,
                "clientPort=%d" % self.port,
                "dataDir=" + os.path.join(self.directory, "data")
                ] + self.config

    # four-letter words

    def command(self, word, timeout=20.0):
        with socket.create_connection((self.host, self.port), timeout) as s:
            s.sendall(word.encode())
            parts = []
            while True:
                part = s.recv(65536)
                if not part:
                    return b"".join(parts).decode("utf-8", "replace")
                parts.append(part)

    def mntr(self):
        """The numeric counters of the server."""
        counters = {}
        for line in self.command("mntr").splitlines():
            key, _, value = line.partition("\t")
            try:
                counters[key] = float(value)
            except ValueError:
                pass
        return counters

    def zxid(self):
        found = re.search(r"^Zxid: (0x[0-9a-f]+)", self.command("srvr"), re.M)
        return int(found.group(1), 16)

    def mode(self):
        """standalone, leader or follower; None without a mode."""
        try:
            found = re.search(r"^Mode: (\w+)", self.command("srvr", 5.0), re.M)
        except OSError:
            return None
        return found.group(1) if found else None

    def transactions(self):
        return self.zxid() & 0xffffffff

    def reads(self, top):
        return self._namespace(top, "read")

    def writes(self, top):
        return self._namespace(top, "write")

    def lookups(self):
        return int(self.mntr().get("zk_cnt_readlatency", 0))

    def _namespace(self, top, what):
        key = "zk_cnt_%s_%s_per_namespace" % (top.strip("/"), what)
        return int(self.mntr().get(key, 0))

    def reset_statistics(self):
        self.command("srst")

    def sessions(self):
        """The ids of the sessions that have a connection to this server."""
        return {int(sid, 16) for sid in
                re.findall(r"\bsid=0x([0-9a-f]+)", self.command("cons"))}

    def connected(self):
        """(client's address, id) of the sessions that have a connection."""
        return {(client, int(sid, 16)) for client, sid in
                re.findall(r"^ /([0-9.:]+)\[.*\bsid=0x([0-9a-f]+)",
                           self.command("cons"), re.M)}

    def living_sessions(self):
        """The ids of all living sessions, connected or not."""
        sessions = self.command("dump").partition("ephemeral nodes dump")[0]
        return {int(sid, 16) for sid in re.findall(r"^\t0x([0-9a-f]+)$",
                                                   sessions, re.M)}

    def owning_sessions(self):
        """The ids of the sessions that own a znode."""
        owners = self.command("dump").partition("ephemeral nodes dump")[2]
        return {int(sid, 16) for sid in re.findall(r"^0x([0-9a-f]+):$",
                                                   owners, re.M)}

    def global_sessions(self):
        """The number of living sessions, connected or not."""
        return int(self.mntr()["zk_global_sessions"])

    def expirations(self):
        """session -> when this server found the session to be expired.

        Seconds since the epoch, by the server's own log; a waiter for a lock of
        the session cannot have been granted the lock before.
        """
        with open(self.log, errors="replace") as f:
            lines = re.findall(r"(\d+:\d+:\d+\.\d+) .*Expiring session "
                               r"0x([0-9a-f]+)", f.read())
        return {int(sid, 16): _moment(clock) for clock, sid in lines}

    def connections(self):
        """The number of client connections, without that of this call."""
        return len(re.findall(r"^ /", self.command("cons"), re.M)) - 1

    def watched_paths(self):
        """path -> ids of the sessions that watch the path."""
        watched = {}
        for line in self.command("wchp").splitlines():
            if line.startswith("/"):
                sessions = watched.setdefault(line.strip(), set())
            elif line.strip().startswith("0x"):
                sessions.add(int(line.strip(), 16))
        return watched


class Ensemble:
    """Three servers (or more); addresses is what a client is given."""

    def __init__(self, directory, size=3, **options):
        config = list(options.pop("config", ()))
        config += ["server.%d=127.0.0.1:%d:%d"
                   % (i, free_port(), free_port())
                   for i in range(1, size + 1)]
        self.servers = [self._member(directory, i, config, options)
                        for i in range(1, size + 1)]

    @staticmethod
    def _member(directory, number, config, options):
        server = Server(os.path.join(str(directory), str(number)),
                        config=config, **options)
        myid = os.path.join(server.directory, "data", "myid")
        with open(myid, "w") as f:
            f.write("%d\n" % number)
        return server

    @property
    def address(self):
        return ",".join(server.address for server in self.servers)

    def start(self):
        for server in self.servers:
            if server.process is None:
                server.start(wait=False)
        for server in self.servers:
            server.wait_ready()
        return self

    def stop(self):
        for server in self.servers:
            server.kill()

    def leader(self):
        return wait_until(lambda: self._having("leader"), READY_TIMEOUT,
                          "there is a leader")

    def follower(self):
        return wait_until(lambda: self._having("follower"), READY_TIMEOUT,
                          "there is a follower")

    def _having(self, mode):
        for server in self.servers:
            if server.process is not None and server.mode() == mode:
                return server
        return None


class Tree:
    """Looks at znodes, waits for changes, makes claims by hand."""

    sessions = set()        # of all trees: the tests' own

    def __init__(self, address, timeout=10.0):
        self.timeout = timeout
        self.client = KazooClient(hosts=address, timeout=timeout)
        self.client.add_listener(self._note_session)
        self.client.start(timeout=READY_TIMEOUT)
        self.sessions.add(self.client.client_id[0])

    def close(self):
        self.client.stop()
        self.client.close()

    def _note_session(self, state):
        """A process that stands still may get another session."""
        if state == KazooState.CONNECTED and self.client.client_id:
            self.sessions.add(self.client.client_id[0])

    @property
    def session(self):
        return self.client.client_id[0]

    def wait_back(self):
        """Waits until kazoo is connected again.  A server that just starts may
        lose a request, and kazoo then waits for timeout before a repeat.
        """
        wait_until(lambda: self.client.connected,
                   2 * self.timeout + READY_TIMEOUT, "kazoo is back")

    # looks

    def children(self, path):
        """The names of the children, [] if there is no znode."""
        try:
            return self.client.get_children(path)
        except NoNodeError:
            return []

    def claims(self, path):
        """The names of a lock's claims in order."""
        return sorted(self.children(path), key=sequence)

    def data(self, path):
        return self.client.get(path)[0]

    def label(self, path):
        """The label of a gateway's claim."""
        return _label(self.data(path))

    def made(self, path):
        """The transaction that made a claim, even if the znode is newer."""
        data, stat = self.client.get(path)
        return _label(data).get("czxid", stat.czxid)

    def stat(self, path):
        return self.client.exists(path)

    def ephemerals(self, top):
        """path -> owner's session, of every ephemeral at or below top."""
        found = {}
        paths = [top]
        while paths:
            stats = [(path, self.client.exists_async(path)) for path in paths]
            paths = []
            for path, answer in stats:
                stat = answer.get(self.timeout)
                if stat and stat.ephemeralOwner:
                    found[path] = stat.ephemeralOwner
                elif stat and stat.numChildren:
                    paths += [path.rstrip("/") + "/" + child
                              for child in self.children(path)]
        return found

    def durables(self, top):
        """The paths of all persistent claims below top."""
        found = []
        try:
            children = self.children(top)
        except NoAuthError:
            return found
        for child in children:
            path = top.rstrip("/") + "/" + child
            if path.endswith(GATES):
                continue                # entries have claim data, too
            if child.startswith("_c_"):
                stat = self.stat(path)
                if stat and not stat.ephemeralOwner:
                    found.append(path)
            elif self.is_durable(path):
                found.append(path)
            else:
                found += self.durables(path)
        return found

    def is_durable(self, path):
        """Whether the znode is a lock that is one znode, and durable."""
        try:
            data, stat = self.client.get(path)
        except (NoNodeError, NoAuthError):
            return False
        return (not stat.ephemeralOwner and not stat.numChildren
                and "gate" in _label(data))

    def entries(self, top):
        """entry -> claim, of the leases of locks below top."""
        found = {}
        for name in self.children(GATES):
            if name.endswith(LEASES):
                for entry in self.children(GATES + "/" + name):
                    path = "%s/%s/%s" % (GATES, name, entry)
                    try:
                        lines = self.client.get(path)[0].decode().split("\n")
                    except NoNodeError:
                        continue
                    if (lines[0] + "/").startswith(top.rstrip("/") + "/"):
                        found[path] = "/".join(filter(None, lines[:2]))
        return found

    def counts(self, path):
        """The session that counts the lease of a durable claim, or None."""
        stat = self.stat(GATES + "/" + self.label(path)["gate"])
        return stat and stat.ephemeralOwner

    def wait_taken_over(self, *paths):
        """Returns a function that waits until another session counts each of
        these leases.
        """
        owners = [self.counts(path) for path in paths]
        assert all(owners)

        def wait(timeout=40.0):
            wait_until(lambda: all(
                self.counts(path) not in (None, owner)
                for path, owner in zip(paths, owners)), timeout,
                "another session counts the leases")
        return wait

    # conditions, by watch

    def wait_claims(self, path, condition, timeout=10.0):
        """Waits until condition(claims) is true, or for so many claims."""
        if not callable(condition):
            number = condition

            def condition(claims):
                return len(claims) == number

        deadline = time.monotonic() + timeout
        while True:
            changed = threading.Event()
            claims = self._watched_claims(path, changed)
            if condition(claims):
                return claims
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError("the %d claims of %s are not as waited "
                                     "for after %g s: %s"
                                     % (len(claims), path, timeout,
                                        claims[:20]))
            changed.wait(min(left, 1.0))

    def _watched_claims(self, path, changed):
        def wake(event):
            changed.set()

        try:
            return sorted(self.client.get_children(path, watch=wake),
                          key=sequence)
        except NoNodeError:
            if self.client.exists(path, watch=wake):
                changed.set()
            return []

    def wait_gone(self, path, timeout=10.0):
        """Waits until a znode does not exist."""
        deadline = time.monotonic() + timeout
        while True:
            changed = threading.Event()
            if not self.client.exists(path, watch=lambda _: changed.set()):
                return
            left = deadline - time.monotonic()
            assert left > 0, "%s still exists after %g s" % (path, timeout)
            changed.wait(min(left, 1.0))

    # changes

    def make(self, path, data=b""):
        """Makes a persistent znode and the missing parents."""
        self.client.ensure_path(path)
        self.client.set(path, data)

    def make_claim(self, lock, layout="-lock-", data=b"", before=None):
        """A claim of Curator's layout, by hand; returns the path."""
        self.client.ensure_path(lock)
        prefix = before if before is not None else "_c_%s%s" % (uuid.uuid4(),
                                                                layout)
        return self.client.create(lock + "/" + prefix, data, ephemeral=True,
                                  sequence=True)

    def delete(self, path):
        try:
            self.client.delete(path)
        except NoNodeError:
            pass

    def forget(self, top):
        """Removes what durable leases below top have left.

        Else gateways would take over the leases.  Without an entry no gateway
        looks for a claim, so a claim that this client may not delete does no
        harm.
        """
        for path in self.durables(top):
            try:
                self.delete(path)
            except NoAuthError:
                pass
        for entry in self.entries(top):
            self.delete(entry)

    def delete_tree(self, path):
        try:
            self.client.delete(path, recursive=True)
        except (NoNodeError, NotEmptyError):
            pass


def _label(data):
    """The text behind the first line; {} unless a gateway made the claim."""
    try:
        label = json.loads(data[data.find(b"\n{") + 1:])
    except ValueError:
        label = None
    return label if isinstance(label, dict) else {}


def _moment(clock):
    """The moment, not far from now, at which local clocks showed so."""
    now = datetime.datetime.now()
    at = datetime.datetime.combine(
        now.date(), datetime.time.fromisoformat(clock))
    days = round((now - at) / datetime.timedelta(days=1))
    return (at + datetime.timedelta(days=days)).timestamp()


def sequence(name):
    """The number that ZooKeeper appended; -1 without a number."""
    digits = name[-10:]
    return int(digits) if len(digits) == 10 and digits.isdigit() else -1


def make_archive():
    """Writes the archive, from what a server and a session need."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(directory,
                        properties=["-XX:ArchiveClassesAtExit=" + ARCHIVE])
        server.start()
        client = KazooClient(server.address)
        client.start(30)
        client.create("/a/b", ephemeral=True, makepath=True)
        client.get_children("/a")
        client.stop()
        server.stop()


if __name__ == "__main__":
    make_archive()
