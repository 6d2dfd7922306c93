"""A gateway: an nginx with the module, in a separate directory.

Gateway writes a configuration around the directives that a test gives, starts
nginx with the configuration, knows the processes, and sends calls.  Every
answer carries the pid of the worker that answered (X-Worker), and workers have
separate listening sockets (reuseport), so that new connections reach all
workers and a test can pick a worker.

finish() ends the gateway and then judges: a process that is left, a line of
[alert], [emerg] or [crit] in the log, or a report of a sanitizer fails the
test.  A test that causes such a line on purpose says so with allow().

Environment:
    NGINX_BIN           the nginx to run
    ZK_LOCK_MODULE      the module to load
    ZK_LOCK_LOG         the level of the error log, info if not set
    ASAN_OPTIONS, UBSAN_OPTIONS, TSAN_OPTIONS
                        put in front of the options that the harness needs
"""

import contextlib
import functools
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

from lib import openapi
from lib.checks import problem
from lib.client import (Connection, Http2Connection, lock_path)
from lib.process import (Daemon, alive, birth, children, free_port, state, tied,
                         title, wait_until)

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
NGINX = (os.environ.get("NGINX_BIN") or shutil.which("nginx")
         or "/usr/sbin/nginx")
MODULE = os.path.abspath(
    os.environ.get("ZK_LOCK_MODULE")
    or os.path.join(TREE, "build", "ngx_http_zk_lock_module.so"))

QUIT_TIMEOUT = 20.0
START_TIMEOUT = 60.0

# the master may write to a process that has ended and was not waited for yet
BROKEN_PIPE = re.compile(r"sendmsg\(\) failed \(32")
# what a worker notes of ZooKeeper's silence, and of the end of the silence
OUTAGE = re.compile(r" (\d+)#\d+: zookeeper (is out of reach|answers again"
                    r"|session is (?:open|back))")
BAD_LINE = re.compile(r"\[(alert|emerg|crit)\]|Sanitizer|runtime error:")

CONF = """\
{load}{user}daemon {daemon};
master_process {master};
worker_processes {workers};
worker_rlimit_nofile 16384;
worker_rlimit_core 500m;
working_directory {prefix};
pid {prefix}/nginx.pid;
error_log {prefix}/error.log {level};
{main}

events {{
    worker_connections 2048;
    {events}
}}

http {{
    client_body_temp_path {prefix}/body;
    proxy_temp_path {prefix}/proxy;
    fastcgi_temp_path {prefix}/fastcgi;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;

    log_format calls '$time_iso8601 $pid $connection "$request" $status '
                     '$body_bytes_sent $request_time';
    access_log {prefix}/access.log calls;
    keepalive_timeout 60s;
    keepalive_requests 1000000;
    lingering_close off;

{http}

    server {{
        listen {host}:{port} {reuseport} backlog=4096;
        listen {host}:{port2}{http2_listen} {reuseport} backlog=4096;
        {http2_on}
        add_header X-Worker $pid always;

        location = /ready {{
            return 204;
        }}

{metrics}{server}

        {locations}
    }}
}}
"""

LOCATION = """\
location /locks/ {{
            zk_lock_api;
{location}
        }}
"""

METRICS = """\
        location = %s {
            zk_lock_metrics;
        }

"""

# nginx frees no memory when it only sends a signal
OPERATED = """\
nginx() (
    test $# = 0 || export LSAN_OPTIONS=detect_leaks=0
    exec %s "$@"
)
"""

METRIC = re.compile(r'^zk_lock_(\w+)(?:\{state="(\w+)"\})? (\d+)$', re.M)


@functools.lru_cache()
def leaks_can_be_found():
    """Whether LeakSanitizer works here: a container may forbid the trace."""
    run = subprocess.run([NGINX, "-v"], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=30,
                         env=dict(os.environ, ASAN_OPTIONS="detect_leaks=1"))
    return b"LeakSanitizer has encountered a fatal error" not in run.stdout


@functools.lru_cache()
def version():
    """What "nginx -v" tells: the version, and the name if it is a fork."""
    return subprocess.run([NGINX, "-v"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=30).stdout


def http2_is_of_listen():
    """From 1.25.1 on "listen ... http2" is deprecated, and nginx warns."""
    number = re.search(rb"nginx/(\d+)\.(\d+)\.(\d+)", version())
    return (number is not None
            and tuple(int(part) for part in number.groups()) < (1, 25, 1))


def indent(text, width):
    return "\n".join(" " * width + line for line in text.splitlines())


class Gateway:
    def __init__(self, prefix, zookeeper=None, servers=None, root="/locks",
                 workers=2, session_timeout="10s", main="", events="",
                 http="", server="", location="", master=True, module=MODULE,
                 level=None, metrics=False, daemon=False, environment=None,
                 host="127.0.0.1", enter=()):
        self.prefix = str(prefix)
        self.host = host
        self.enter = list(enter)    # the words in front of the command
        self.zookeeper = zookeeper
        self.root = root
        self.workers = workers
        self.master = master
        self.daemon = daemon
        self.environment = dict(environment or {})
        self.port = free_port()
        self.http2_port = free_port()
        self.process = None
        self.seen = {}              # pid -> birth, of all processes
        self.allowed = [BROKEN_PIPE]
        self.connections = []
        # lib/claims.py asks every gateway
        self.gauges = "/metrics" if metrics else "/zone"
        os.makedirs(self.prefix, exist_ok=True)

        if servers is None and zookeeper is not None:
            servers = zookeeper.address
        if servers is not None:
            http = ("zk_lock_servers %s;\nzk_lock_session_timeout %s;\n"
                    "zk_lock_root %s;\n%s"
                    % (servers, session_timeout, root, http))

        self.write_conf(CONF.format(
            load="load_module %s;\n" % module if module else "",
            user="user root;\n" if os.geteuid() == 0 else "",
            daemon="on" if daemon else "off",
            master="on" if master else "off", workers=workers,
            prefix=self.prefix, main=main, events=events,
            level=level or os.environ.get("ZK_LOCK_LOG", "info"),
            http=indent(http, 4), server=indent(server, 8),
            metrics=(METRICS % self.gauges
                     if metrics or (module and servers is not None) else ""),
            host=host, port=self.port, port2=self.http2_port,
            http2_listen=" http2" if http2_is_of_listen() else "",
            http2_on="" if http2_is_of_listen() else "http2 on;",
            reuseport="reuseport" if master else "",
            locations=(LOCATION.format(location=indent(location, 12))
                       if servers is not None else "")))

    # files

    @property
    def conf(self):
        return os.path.join(self.prefix, "nginx.conf")

    @property
    def pid_file(self):
        return os.path.join(self.prefix, "nginx.pid")

    @property
    def error_log(self):
        return os.path.join(self.prefix, "error.log")

    def write_conf(self, text):
        with open(self.conf, "w") as f:
            f.write(text)
        openapi.serves(text)

    def change_conf(self, old, new):
        """Edits the configuration file, to be loaded by reload()."""
        with open(self.conf) as f:
            text = f.read()
        assert old in text
        self.write_conf(text.replace(old, new))

    def log_text(self):
        text = ""
        for path in [self.error_log, os.path.join(self.prefix, "stderr.log")]:
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as f:
                    text += f.read()
        return text

    # life

    def start(self, wait_sessions=True):
        before = set()
        wait_sessions = wait_sessions and self.zookeeper is not None
        if wait_sessions:
            before = self._connected()

        with open(os.path.join(self.prefix, "stderr.log"), "ab") as log:
            self.process = subprocess.Popen(
                tied(self._command()), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=self._environment(), cwd=self.prefix)
        if self.daemon:
            self._follow_daemon()
        self._wait_workers()
        if wait_sessions:
            wait_until(lambda: (len(self._connected() - before)
                                >= self.workers),
                       START_TIMEOUT, "every worker has a session")
        return self

    def _wait_workers(self):
        wait_until(self._answers, START_TIMEOUT,
                   "nginx answers (see %s)" % self.prefix)
        wait_until(lambda: len(self.worker_pids()) == self.workers,
                   START_TIMEOUT, "all workers run")
        self._note_processes()

    def _follow_daemon(self):
        """nginx leaves the started process, and writes the new pid."""
        starter = self.process.pid
        code = self.process.wait(START_TIMEOUT)
        assert code == 0, self.log_text()[-2000:]
        self.process = Daemon(wait_until(lambda: self._master_after(starter),
                                         START_TIMEOUT, "nginx runs"))

    def restarted(self, timeout=QUIT_TIMEOUT):
        """An operator has ended this daemon, and has started nginx again."""
        former, self.process = self.process, None
        former.wait(timeout)
        wait_until(lambda: not self.left(), timeout, "all processes are gone")
        self.process = Daemon(wait_until(
            lambda: self._master_after(former.pid), START_TIMEOUT,
            "nginx runs again"))
        self._wait_workers()

    def _master_after(self, former):
        """The pid in the file, if a new, living master has this pid."""
        try:
            with open(self.pid_file) as f:
                pid = int(f.read() or 0)
        except FileNotFoundError:
            return None
        return pid if pid != former and alive(pid) else None

    def test_conf(self, *options):
        """nginx -t, or with these options: (exit code, output)."""
        # nginx frees no memory of a configuration that nginx refuses
        environment = dict(self._environment(), LSAN_OPTIONS="detect_leaks=0")
        run = subprocess.run(self._command() + list(options or ["-t"]),
                             cwd=self.prefix, env=environment, timeout=30,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        return run.returncode, run.stdout.decode("utf-8", "replace")

    def reload(self, wait=True):
        """SIGHUP; waits until only workers of the new configuration serve.

        Returns the pids of the old workers, which may still be leaving.
        """
        old = set(self.worker_pids())
        self.process.send_signal(signal.SIGHUP)
        if wait:
            wait_until(lambda: self._renewed(old), START_TIMEOUT,
                       "new workers have taken over")
            self._note_processes()
        return old

    def wait_served(self):
        """Waits until every worker has a session: until then calls get 503."""
        for worker in self.worker_pids():
            wait_until(lambda: self.inspect("nobodys", worker=worker).status
                       != 503, START_TIMEOUT, "a session of each worker")

    def _renewed(self, old):
        now = set(self.worker_pids())
        return len(now) >= self.workers and not now & old

    def upgrade(self):
        """SIGUSR2: a new master, with new workers, beside the old master.

        Returns the old master, which end_upgrade() ends, and the old workers.
        nginx takes the signal only as a daemon.
        """
        old, workers = self.process, self.worker_pids()
        old.send_signal(signal.SIGUSR2)
        self.process = Daemon(wait_until(lambda: self._master_after(old.pid),
                                         START_TIMEOUT, "a new master"))
        wait_until(lambda: len(self.worker_pids()) == self.workers,
                   START_TIMEOUT, "all new workers run")
        self._note_processes()
        return old, workers

    def end_upgrade(self, old, workers, timeout=QUIT_TIMEOUT):
        """SIGWINCH: the old workers leave; then the old master leaves."""
        old.send_signal(signal.SIGWINCH)
        wait_until(lambda: not any(alive(pid) for pid in workers), timeout,
                   "the old workers are gone")
        old.send_signal(signal.SIGQUIT)
        old.wait(timeout)

    def downgrade(self, old, timeout=QUIT_TIMEOUT):
        """The new master leaves, and the old master is the master again."""
        new, self.process = self.process, old
        new.send_signal(signal.SIGTERM)
        new.wait(timeout)
        wait_until(lambda: self._master_after(new.pid) == old.pid, timeout,
                   "the old master has taken note")

    def stop(self, timeout=QUIT_TIMEOUT):
        """A graceful end: SIGQUIT, and all processes gone."""
        self._signal_and_wait(signal.SIGQUIT, timeout)

    def terminate(self, timeout=QUIT_TIMEOUT):
        """A fast end: SIGTERM."""
        self._signal_and_wait(signal.SIGTERM, timeout)

    def kill(self):
        """The end of all processes at once, as of a machine."""
        if self.process is not None:
            # the master must not make a new worker between two of these lines
            self.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: state(self.process.pid) in "TZ")
            self._note_processes()
        for pid in self.left():
            self._kill(pid)
        if self.process is not None:
            self.process.wait()
            self.process = None
        wait_until(lambda: not self.left(), QUIT_TIMEOUT,
                   "all processes are gone")

    def kill_master(self):
        """Only the master dies; returns the workers, which serve on."""
        self._note_processes()
        workers = self.worker_pids()
        self._kill(self.process.pid)
        self.process.wait()
        self.process = None
        return workers

    def kill_orphans(self):
        """Kills the workers that a dead master left behind."""
        assert self.process is None
        for pid in self.left():
            self._kill(pid)
        wait_until(lambda: not self.left(), QUIT_TIMEOUT,
                   "all processes are gone")

    def kill_worker(self, pid, how=signal.SIGKILL):
        """Kills a worker; the master's complaint about that is allowed."""
        self.allow(r"worker process %d exited on signal" % pid)
        os.kill(pid, how)

    @contextlib.contextmanager
    def frozen_worker(self, pid):
        """Stops a worker for a while, as a machine that hangs would."""
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def worker_pids(self, leaving=False):
        """The workers; with leaving, only those that are shutting down."""
        if not self.master:
            return [self.process.pid]
        return [pid for pid in children(self.process.pid)
                if "worker process" in title(pid)
                and ("shutting down" in title(pid)) == leaving]

    def helper_pids(self):
        """The cache manager and the cache loader."""
        return [pid for pid in children(self.process.pid)
                if "cache" in title(pid)]

    def left(self):
        """Processes of this gateway that still run."""
        self.seen = {pid: since for pid, since in self.seen.items()
                     if birth(pid) == since}
        return sorted(self.seen)

    def allow(self, pattern):
        """Lines of the log that match are expected."""
        self.allowed.append(re.compile(pattern))

    def finish(self):
        """Ends and judges; raises AssertionError with all complaints."""
        complaints = []
        with open(self.conf) as f:
            openapi.forget(f.read())
        for connection in self.connections:
            connection.close()
        if self.process is not None:
            complaints += self._finish_process()
        complaints += ["in the log: " + line for line in self._bad_lines()]
        complaints += ["a process is left: %d %s" % (pid, title(pid))
                       for pid in self.left()]
        for pid in self.left():
            self._kill(pid)
        if complaints:
            complaints += self._backtraces()
        assert not complaints, "%s:\n%s" % (self.prefix,
                                            "\n".join(complaints))

    def _finish_process(self):
        if self.process.poll() is not None:
            code, self.process = self.process.returncode, None
            return ["nginx ended by itself with %s" % code]
        try:
            self.stop()
        except AssertionError as e:
            self.kill()
            return [str(e)]
        return []

    def _signal_and_wait(self, how, timeout):
        self._note_processes()
        process = self.process
        process.send_signal(how)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                "nginx has not ended %g s after signal %d" % (timeout, how)
                ) from None
        self.process = None
        wait_until(lambda: not self.left(), QUIT_TIMEOUT,
                   "all processes are gone")

    def _bad_lines(self):
        lines = self.log_text().splitlines()
        for path in glob.glob(os.path.join(self.prefix, "sanitizer.*")):
            with open(path, errors="replace") as f:
                lines += ["%s: %s" % (os.path.basename(path), line)
                          for line in f.read().splitlines() if line.strip()]
        return [line for line in lines
                if (BAD_LINE.search(line) or line.startswith("sanitizer."))
                and not any(p.search(line) for p in self.allowed)]

    def _backtraces(self):
        """Where workers crashed, if a worker left a core and there is a gdb."""
        cores = glob.glob(os.path.join(self.prefix, "core*"))
        if not shutil.which("gdb"):
            return cores
        return [subprocess.run(["gdb", "-batch", "-ex", "bt", NGINX, core],
                               stdout=subprocess.PIPE, timeout=60,
                               stderr=subprocess.DEVNULL
                               ).stdout.decode("utf-8", "replace")
                for core in cores]

    def _note_processes(self):
        if self.process is not None and self.process.poll() is None:
            for pid in children(self.process.pid) + [self.process.pid]:
                since = birth(pid)
                if since is not None:
                    self.seen[pid] = since

    def _connected(self):
        servers = getattr(self.zookeeper, "servers", [self.zookeeper])
        return set().union(*(server.connected() for server in servers
                             if server.process is not None))

    def _answers(self):
        assert self.process.poll() is None, (
            "nginx ended with %s:\n%s" % (self.process.returncode,
                                          self.log_text()[-2000:]))
        try:
            return self.call("GET", "/ready", timeout=5).status == 204
        except OSError:
            return False

    def _command(self):
        return self.enter + [NGINX, "-p", self.prefix, "-c", self.conf,
                             "-e", self.error_log]

    def operate(self, script, timeout=120.0):
        """Runs an operator's script, whose nginx is this gateway's."""
        script = OPERATED % shlex.join(self._command()) + script
        subprocess.run(["sh", "-euc", script], check=True, timeout=timeout,
                       env=self._environment(), cwd=self.prefix,
                       stdin=subprocess.DEVNULL)

    def _environment(self):
        environment = dict(os.environ, **self.environment)
        log = "log_path=%s/sanitizer" % self.prefix
        asan = environment.get("ASAN_OPTIONS",
                               "detect_leaks=%d" % leaks_can_be_found())
        ubsan = environment.get("UBSAN_OPTIONS", "print_stacktrace=1")
        # a library that is preloaded comes before the sanitizer's
        environment["ASAN_OPTIONS"] = (asan + ":verify_asan_link_order=0:"
                                       + log)
        environment["UBSAN_OPTIONS"] = ubsan + ":" + log
        environment["TSAN_OPTIONS"] = ":".join((
            environment.get("TSAN_OPTIONS", "second_deadlock_stack=1"),
            "suppressions=" + os.path.join(HERE, "tsan.supp"), log))
        environment["LSAN_OPTIONS"] = (
            "print_suppressions=0:suppressions="
            + os.path.join(HERE, "lsan.supp"))
        return environment

    @staticmethod
    def _kill(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    # calls

    def connect(self, worker=None):
        """A connection, to the given worker if a pid is given."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            assert time.monotonic() < deadline, (
                "no connection leads to worker %d" % worker)
            connection = Connection(self.port, host=self.host)
            self.connections.append(connection)
            if worker is None:
                return connection
            if connection.request("GET", "/ready").worker == worker:
                return connection
            connection.close()

    def connect_http2(self):
        connection = Http2Connection(self.http2_port)
        self.connections.append(connection)
        return connection

    def each_worker(self):
        """pid -> a connection, for every worker."""
        return {pid: self.connect(pid) for pid in self.worker_pids()}

    def call(self, method, path, query=None, headers=None, body=None,
             timeout=None, worker=None):
        """One request on a new connection."""
        if worker is not None:
            connection = self.connect(worker)
        else:
            connection = Connection(self.port, host=self.host)
        with connection:
            return connection.request(method, path, query, headers, body,
                                      timeout)

    def acquire(self, name, body=None, headers=None, worker=None,
                timeout=None, **query):
        return self.call("POST", lock_path(name), query, headers, body,
                         timeout, worker)

    def hold(self, name, body=None, **arguments):
        """A grant to begin with: ZooKeeper's disk may stall for a moment."""
        response = wait_until(lambda: self._unless_out_of_reach(
            self.acquire(name, body, **arguments)), START_TIMEOUT, "a grant")
        assert response.status == 201, response
        return response

    def refused(self, name, body=None, **arguments):
        """The refusal of an acquire: the lock is taken.

        A short wait that ends while ZooKeeper does not answer for a second
        gets 503, which does not tell whether the lock is taken.
        """
        return problem(self.in_reach(
            lambda: self.acquire(name, body, **arguments)), 423)

    def refusal(self, name, **arguments):
        """The refusal of an acquire that does not wait, with the holder.

        The gateway looks for the holder for 0.9 s at most: a refusal that came
        so late, without the holder, is not judged.
        """
        def in_time():
            sent = time.monotonic()
            content = problem(self.acquire(name, wait="0", **arguments), 423)
            late = time.monotonic() - sent >= 0.9
            return None if late and "holder" not in content else content
        return wait_until(in_time, START_TIMEOUT, "a refusal in time")

    @staticmethod
    def _unless_out_of_reach(response):
        return None if response.status == 503 else response

    def in_reach(self, ask):
        """The answer to ask(), which is repeated after a 503 that is right:
        ZooKeeper stalled as a wait ended, and the log tells of that.
        """
        def unless_away():
            before = self.outages()
            response = ask()
            if response.status == 503 and self.told_of_outage(before):
                return None
            return response

        return wait_until(unless_away, START_TIMEOUT, "ZooKeeper's answer")

    def outages(self):
        """How many the log tells of, and the workers for which one goes on."""
        number, away = 0, set()
        for pid, what in OUTAGE.findall(self.log_text()):
            if what == "is out of reach":
                number += 1
                away.add(int(pid))
            else:
                away.discard(int(pid))
        return number, away.intersection(self.worker_pids())

    def told_of_outage(self, before=(0, ())):
        """Whether there was an outage since then; the log may tell of it a
        moment after a call was refused.
        """
        number, away = before
        deadline = time.monotonic() + 2.0
        while not away and self.outages()[0] == number:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def begin(self, name, body=None, headers=None, worker=None, **query):
        """Sends an acquire; the answer is to be read from the connection."""
        connection = self.connect(worker)
        connection.send("POST", lock_path(name), query, headers, body)
        return connection

    def release(self, name, token, worker=None):
        return self.call("DELETE", lock_path(name),
                         headers={"Lock-Token": token}, worker=worker)

    def inspect(self, name, token=None, worker=None):
        return self.call("GET", lock_path(name, token), worker=worker)

    def renew(self, name, token, body=None, worker=None, **query):
        return self.call("PUT", lock_path(name, token), query, None, body,
                         worker=worker)

    def metrics(self, worker=None):
        """The gauges of zk_lock_metrics: (what, state or "") -> number."""
        response = self.call("GET", self.gauges, worker=worker)
        assert response.status == 200, response
        text = response.body.decode()
        return {(what, state): int(number)
                for what, state, number in METRIC.findall(text)}

    def catch_up(self, name):
        """Every worker knows of the worker's claims for a lock in use.

        A claim may be in ZooKeeper before the worker hears so, but the answer
        to this look comes behind all earlier answers.
        """
        for worker in self.worker_pids():
            assert self.inspect(name, worker=worker).status == 200

    def znode(self, name):
        """The path of a lock's znode."""
        return self.root.rstrip("/") + "/" + name
