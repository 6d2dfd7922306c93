"""Those that are measured side by side, each in the settings that suit it best.

A contender is a context manager: what it needs is started privately, on free
ports of loopback and with its data in a directory of its own, and is ended
with it.  In between,

    run(work, clients, seconds, warm_up)

makes it work, "own" (each client a lock of its own) or "hot" (all one lock),
and returns what load.c prints, with clients_us, the CPU time of the program
that asks, for each lock.  Raises Failed, with a sentence.  `settings` says in
words what the figures depend on, and pids() are the processes that serve.

gateway, etcd and webdis are asked over HTTP by load.c.  curator and kazoo are
programs with clients of their own, which stay between the runs, and so does
what they have learned; to them the work is told in lines.  raw and http are no
locks.
gateway, gateway-1, curator, kazoo and raw share one ZooKeeper.
"""

import contextlib
import glob
import json
import os
import re
import resource
import select
import shutil
import subprocess
import sys
from importlib.util import find_spec

import kazoo

import common
import kazoo_load

from lib.curator import NAMES
from lib.process import children, free_port, tied, wait_until
from lib.zookeeper import JARS, JAVA

HERE = os.path.dirname(os.path.abspath(__file__))
LOAD = os.path.join(common.OUT, "load")
RAW = os.path.join(common.OUT, "rawzk")
CLASSES = os.path.join(common.OUT, "classes")

# seconds more than a run should take: what was begun is brought to its end
GRACE = 45.0
START = 30.0

CURATOR_SESSIONS = 8
CURATOR_FLAGS = ["-Xmx1g", "-Xms1g", "-Xmn600m", "-XX:+UseSerialGC",
                 "-XX:-UsePerfData"]

WEBDIS_THREADS = 2
WEBDIS_POOL = 1         # connections to Redis, for each thread
WEBDIS_RETRY = 10       # ms; at least so long, and
WEBDIS_RETRY_EACH = 0.1     # so long for each client


class Failed(Exception):
    """A contender could not do what it was asked for."""


class Place:
    """Where all of them live: ZooKeeper, a directory, and for how many."""

    def __init__(self, zookeeper, directory, members=1, clients=1000):
        self.zookeeper = zookeeper
        self.directory = directory
        self.members = members
        self.clients = clients


class Contender:
    name = ""
    package = ""            # of Debian's, that has what it needs
    works = ("own", "hot")
    fencing = False         # its grants have numbers that have to grow
    root = None             # of its znodes, if it lives in ZooKeeper
    asked = False           # it is measured only if it is named
    members = (1, 3)        # how many servers it can have

    def __init__(self, place):
        self.place = place
        self.settings = {}
        self.stack = contextlib.ExitStack()

    @classmethod
    def missing(cls):
        """The package that is missing, or None."""
        return None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def restart(self):
        self.stack.close()
        self.start()

    def start(self):
        raise NotImplementedError

    def run(self, work, clients, seconds, warm_up):
        raise NotImplementedError

    def serves(self):
        """What serves: name -> pids."""
        return {"zookeeper": common.zookeeper_pids(self.place.zookeeper)}

    def pids(self):
        return [pid for pids in self.serves().values() for pid in pids]

    def directory(self, name):
        """An empty directory, which goes when the contender does."""
        path = os.path.join(self.place.directory, name + "-of-bench")
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        self.stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path


# --- programs -----------------------------------------------------------------

def run_json(command, timeout):
    """The JSON object that a program prints, and the CPU it used, in us, for
    each lock; what it complains of is shown.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(tied(command), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        said, complaints = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed("no end after %g s" % timeout) from None
    finally:
        process.kill()
        process.wait()
    complaints = complaints.decode("utf-8", "replace").strip()
    if complaints:
        print("\n*** " + complaints)
    if process.returncode != 0:
        raise Failed((complaints or "it ended with %d" % process.returncode)
                     .splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(said.decode())
    used = (after.ru_utime + after.ru_stime
            - before.ru_utime - before.ru_stime)
    result["clients_us"] = 1e6 * used / max(result["total"], 1)
    return result


class Daemon:
    """A server that stays in the foreground; what it says is in a file."""

    def __init__(self, command, log, directory):
        self.log = log
        with open(log, "wb") as f:
            self.process = subprocess.Popen(
                tied(command), stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                cwd=directory)

    @property
    def pid(self):
        return self.process.pid

    def wait(self, answers):
        """Until answers() is true."""
        wait_until(lambda: self._answers(answers), START,
                   "it serves (see %s)" % self.log)

    def _answers(self, answers):
        if self.process.poll() is not None:
            raise Failed("it ended with %d (see %s)"
                         % (self.process.returncode, self.log))
        try:
            return answers()
        except OSError:
            return False

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Program:
    """Clients of their own: one line asks, one line answers."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            tied(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            bufsize=0)

    def ask(self, line, timeout):
        before = self._cpu()
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            raise Failed("it has ended") from None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            raise Failed("no answer after %g s" % timeout)
        answer = self.process.stdout.readline()
        if not answer.endswith(b"\n"):
            raise Failed("it ended with %s" % self.process.wait(START))
        result = json.loads(answer.decode())
        result["clients_us"] = (1e6 * (self._cpu() - before)
                                / max(result["total"], 1))
        return result

    def _cpu(self):
        """CPU seconds of it and its own processes."""
        pid = self.process.pid
        try:
            return common.cpu_of([pid] + children(pid))
        except OSError:
            raise Failed("it has ended") from None

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def first_line(command):
    """What a program says of its version."""
    run = subprocess.run(command, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         timeout=30)
    return (run.stdout.decode("utf-8", "replace").splitlines() or [""])[0]


class Loaded(Contender):
    """One that is asked over HTTP; ports is what load is told."""

    dialect = ""
    runs = 0

    def run(self, work, clients, seconds, warm_up):
        command = [LOAD, "-d", self.dialect, "-c", str(clients),
                   "-t", str(seconds), "-w", str(warm_up),
                   "-n", self.lock_name(work)]
        for port in self.ports:
            command += ["-p", str(port)]
        if work == "hot":
            command.append("-o")
        return run_json(command + self.more(clients),
                        warm_up + seconds + GRACE)

    def lock_name(self, work):
        """Another one for each run: nothing is left of those before."""
        self.runs += 1
        return "%s%d" % (work, self.runs)

    def more(self, clients):
        return []


# --- those over ZooKeeper -----------------------------------------------------

class Gateway(Loaded):
    name = "gateway"
    dialect = "gateway"
    fencing = True
    root = "/locks"
    workers = 2
    options = {}            # of common.gateway()

    WORKERS = {1: "one, so one session",
               2: "2, a listening socket each (reuseport), a session each"}

    def start(self):
        connections = self.place.clients + 512
        self.gateway = self.stack.enter_context(common.gateway(
            "throughput-" + self.name, self.place.zookeeper,
            workers=self.workers, connections=connections, **self.options))
        self.ports = [self.gateway.port]
        self.settings = {
            "workers": self.WORKERS[self.workers],
            "nginx": "worker_connections %d, %s"
                     % (connections, common.sizes_text(common.SMALL)),
            "module": "zk_lock_zone 16m, access_log off, error_log notice",
        }

    def lock_name(self, work):
        """The same in all runs: the znodes of its locks are there."""
        return work

    def serves(self):
        return dict(super().serves(), workers=self.gateway.worker_pids())


class OneWorker(Gateway):
    """Its clients share transactions that those of two workers do not."""

    name = "gateway-1"
    workers = 1

    def lock_name(self, work):
        """Its own: else what the other gateway remembers would be undone."""
        return work + "1"


class Logged(Gateway):
    """With zk_lock_log, and a location that makes the sessions ask."""

    name = "gateway-log"
    asked = True
    options = {"http": "zk_lock_log locks.log buffer=64k flush=1s;\n"}

    def lock_name(self, work):
        return work + "l"


class Before(Gateway):
    """Another module, at the path that BENCH_BEFORE says."""

    name = "gateway-before"
    package = "another module, and name it in BENCH_BEFORE"
    asked = True

    @classmethod
    def missing(cls):
        return None if os.environ.get("BENCH_BEFORE") else cls.package

    def start(self):
        self.options = {"module": os.environ["BENCH_BEFORE"], "page": False}
        super().start()

    def lock_name(self, work):
        return work + "b"


class Http(Loaded):
    """What HTTP alone costs: the same requests and answers, and no lock."""

    name = "http"
    works = ("own",)
    dialect = "gateway"

    SERVER = """\
location /locks/ {
    add_header Lock-Token AADLVIva6M5hr3qLyZIAAAAOAAAAOL1tAADLVIva6M5h;
    add_header Lock-Fencing-Token 1;
    default_type application/json;
    if ($request_method = DELETE) {
        return 204;
    }
    return 201 '{"name":"own1","state":"held","token":\
"AADLVIva6M5hr3qLyZIAAAAOAAAAOL1tAADLVIva6M5h","fencing_token":42496,\
"mode":"exclusive","ttl_ms":60000,"expires_in_ms":60000,"waited_ms":17}';
}
"""

    def start(self):
        connections = self.place.clients + 512
        self.nginx = self.stack.enter_context(common.plain_nginx(
            "http", self.SERVER, workers=Gateway.workers,
            connections=connections))
        self.ports = [self.nginx.port]
        self.settings = {
            "what": "nginx that answers at once, in as many bytes as the "
                    "gateway; no ZooKeeper, so no lock",
            "workers": "%d, as the gateway's" % Gateway.workers}

    def serves(self):
        return {"workers": self.nginx.worker_pids()}


class Raw(Contender):
    name = "raw"
    works = ("own",)
    root = "/raw"

    def start(self):
        self.settings = {
            "what": "libzookeeper_mt: create and delete of an ephemeral "
                    "sequential znode; no list, no watch, so no lock",
            "sessions": "one, as many requests in flight as clients"}

    def run(self, work, clients, seconds, warm_up):
        return self.load(clients, seconds, warm_up)

    def load(self, clients, seconds, warm_up, *more):
        return run_json([RAW, "-s", self.place.zookeeper.address,
                         "-c", str(clients), "-t", str(seconds),
                         "-w", str(warm_up), "-r", self.root, *more],
                        warm_up + seconds + GRACE)


class Asked(Contender):
    """One whose clients are a program's own."""

    def launch(self, command):
        self.program = Program(command)
        self.stack.callback(self.program.end)

    def run(self, work, clients, seconds, warm_up):
        result = self.program.ask("%s %d %g %g"
                                  % (work, clients, seconds, warm_up),
                                  warm_up + seconds + GRACE)
        if result["unfinished"]:
            self.restart()      # they may be at it still
        return result


class Curator(Asked):
    name = "curator"
    root = "/curator"

    @classmethod
    def missing(cls):
        if not os.path.exists(os.path.join(CLASSES, "CuratorLoad.class")):
            return "default-jdk-headless (CuratorLoad was not compiled)"
        if not all(os.path.exists(jar) for jar in cls._jars()):
            return "libcurator-recipes-java"
        return None

    @staticmethod
    def _jars():
        return [os.path.join(JARS, name + ".jar") for name in NAMES]

    def start(self):
        jars = self._jars()
        self.launch([JAVA] + CURATOR_FLAGS
                    + ["-cp", ":".join([CLASSES] + jars), "CuratorLoad",
                       "-s", self.place.zookeeper.address,
                       "-n", str(CURATOR_SESSIONS)])
        versions = glob.glob(os.path.join(JARS, NAMES[0] + "-[0-9]*.jar"))
        self.settings = {
            "version": " ".join(os.path.basename(jar)[:-len(".jar")]
                                for jar in versions),
            "java": " ".join(CURATOR_FLAGS),
            "locks": "InterProcessMutex, one for each client",
            "sessions": "%d, shared by all clients, a thread for each client"
                        % CURATOR_SESSIONS}


class Kazoo(Asked):
    name = "kazoo"
    root = "/kazoo"

    def start(self):
        engine = "gevent" if find_spec("gevent") else "threads"
        self.launch([sys.executable, os.path.join(HERE, "kazoo_load.py"),
                     "-s", self.place.zookeeper.address,
                     "-p", str(kazoo_load.PROCESSES), "-e", engine])
        self.settings = {
            "version": "%s, Python %s" % (kazoo.__version__,
                                          sys.version.split()[0]),
            "locks": "Lock, one for each client",
            "processes": "%d, a session each" % kazoo_load.PROCESSES,
            "clients": "greenlets (gevent)" if engine == "gevent"
                       else "threads (python3-gevent is not installed)"}


# --- others -------------------------------------------------------------------

class Etcd(Loaded):
    name = "etcd"
    package = "etcd-server"
    dialect = "etcd"
    fencing = True

    @classmethod
    def missing(cls):
        return None if shutil.which("etcd") else cls.package

    def start(self):
        n = self.place.members
        self.ports = [free_port() for _ in range(n)]
        peers = ["http://127.0.0.1:%d" % free_port() for _ in range(n)]
        directory = self.directory("etcd")
        cluster = ",".join("e%d=%s" % item for item in enumerate(peers))
        self.daemons = []
        for i, (port, peer) in enumerate(zip(self.ports, peers)):
            self._launch(directory, "e%d" % i, port, peer, cluster)
        for daemon, port in zip(self.daemons, self.ports):
            daemon.wait(lambda port=port: b'"health":"true"' in
                        common.http_get(port, "/health"))
        self.settings = {
            "version": first_line(["etcd", "--version"]),
            "members": "%d, %s" % (n, "clients dealt out to all of them"
                                   if n > 1 else "every write to its disk"),
            "locks": "/v3/lock/lock, a lease for each client, granted before",
            "note": "its watches begin within 100 ms, so who waits for a lock "
                    "that is soon released is told as late",
            "flags": "none but addresses and directories; fsync on"}

    def _launch(self, directory, name, port, peer, cluster):
        client = "http://127.0.0.1:%d" % port
        daemon = Daemon(
            ["etcd", "--name", name, "--data-dir",
             os.path.join(directory, name), "--logger", "zap",
             "--listen-client-urls", client,
             "--advertise-client-urls", client,
             "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer,
             "--initial-cluster", cluster],
            os.path.join(common.OUT, "etcd-%s.log" % name), directory)
        self.daemons.append(daemon)
        self.stack.callback(daemon.end)

    def serves(self):
        return {"etcd": [daemon.pid for daemon in self.daemons]}


REDIS = """\
bind 127.0.0.1
port %d
dir %s
daemonize no
save ""
appendonly yes
appendfsync always
"""


class Webdis(Loaded):
    name = "webdis"
    package = "redis-server webdis"
    dialect = "webdis"
    members = (1,)

    @classmethod
    def missing(cls):
        lacking = [name for name in cls.package.split()
                   if not shutil.which(name)]
        return " ".join(lacking) or None

    def start(self):
        directory = self.directory("redis")
        self.log = os.path.join(directory, "log")
        port = free_port()
        self.ports = [free_port()]
        self.daemons = {"redis": self._launch_redis(directory, port),
                        "webdis": self._launch_webdis(directory, port)}
        self.settings = {
            "version": "%s; %s" % (self._version(), first_line(
                ["redis-server", "--version"])),
            "redis": "appendonly yes, appendfsync always, save \"\"",
            "webdis": "threads %d, pool_size %d" % (WEBDIS_THREADS,
                                                    WEBDIS_POOL),
            "locks": "SET NX PX 30000; release by EVALSHA, a script that "
                     "compares and deletes",
            "queue": "none: who tries first gets the lock, mostly the one "
                     "that had it; see p99",
            "tries again": "after %g ms, or %g ms for each client if that is "
                           "more" % (WEBDIS_RETRY, WEBDIS_RETRY_EACH)}

    def _version(self):
        """What it says when it starts: it has no option to ask for it."""
        with open(self.log, errors="replace") as f:
            found = re.search(r"Webdis [0-9.]+", f.read())
        return found.group(0) if found else "webdis"

    def _launch(self, command, log, directory, answers):
        daemon = Daemon(command, os.path.join(common.OUT, log), directory)
        self.stack.callback(daemon.end)
        daemon.wait(answers)
        return daemon

    def _launch_redis(self, directory, port):
        conf = os.path.join(directory, "redis.conf")
        with open(conf, "w") as f:
            f.write(REDIS % (port, directory))
        return self._launch(["redis-server", conf], "redis.log", directory,
                            lambda: common.connects(port))

    def _launch_webdis(self, directory, port):
        conf = os.path.join(directory, "webdis.json")
        with open(conf, "w") as f:
            json.dump({"redis_host": "127.0.0.1", "redis_port": port,
                       "http_host": "127.0.0.1", "http_port": self.ports[0],
                       "threads": WEBDIS_THREADS, "pool_size": WEBDIS_POOL,
                       "daemonize": False, "websockets": False,
                       "database": 0, "verbosity": 3,
                       "logfile": self.log,
                       "pidfile": os.path.join(directory, "webdis.pid")}, f)
        return self._launch(["webdis", conf], "webdis.log", directory,
                            lambda: b"PONG" in
                            common.http_get(self.ports[0], "/PING"))

    def more(self, clients):
        return ["-r", str(max(WEBDIS_RETRY, WEBDIS_RETRY_EACH * clients))]

    def serves(self):
        return {name: [daemon.pid] for name, daemon in self.daemons.items()}


ALL = (Gateway, Logged, Before, OneWorker, Curator, Kazoo, Etcd, Webdis, Raw,
       Http)
