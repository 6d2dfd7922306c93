"""What every measurement needs: servers, counters of processes, tables.

Everything that is started here is on loopback, in a directory of its own below
build/bench/, and is ended by its pid.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(TREE, "build", "bench")
sys.path.insert(0, os.path.join(TREE, "t"))

from lib.gateway import NGINX, Gateway      # noqa: E402
from lib.zookeeper import Ensemble, Server, Tree    # noqa: E402

# both of Java's compilers, as is its default; the tests do without the second,
# and what is given last counts.  A heap of which most is for what is young, as
# a request is.  With few processors ZooKeeper does more if the thread that
# waits for requests reads and answers them itself
JAVA_FLAGS = ["-XX:TieredStopAtLevel=4", "-Xmx1g", "-Xms1g", "-Xmn600m",
              "-Dzookeeper.nio.numWorkerThreads=0"]

# the kernel picks the port at connect(), when it knows both ends: any port that
# is free for this very pair will do; Python has no name for it yet
IP_BIND_ADDRESS_NO_PORT = 24

# the clock of a process's CPU time is a number made of its pid and of this
CPU_CLOCK = 2

# What a connection and a request take of memory in nginx itself.  The small
# ones are enough for a request of a few headers: all of it is in one block.
SMALL = {
    "connection_pool_size": "256",
    "request_pool_size": "5k",
    "client_header_buffer_size": "512",
    "large_client_header_buffers": "4 4k",
}
DEFAULTS = {
    "connection_pool_size": "512",
    "request_pool_size": "4k",
    "client_header_buffer_size": "1k",
    "large_client_header_buffers": "4 8k",
}

# 'held' holds requests by nginx alone: the first passes, and the others are
# delayed by a minute and more.  'guard', 'limit' and 'plain' have one content,
# and differ in what comes before
HTTP = """\
{sizes}
client_header_timeout 1h;
zk_lock_zone 16m;
zk_lock_max_wait 1h;
zk_lock_max_ttl 1h;
zk_lock_max_queue 1000000;
limit_req_zone $server_port zone=held:1m rate=1r/m;
limit_req_log_level info;
limit_conn_zone $arg_lock zone=each:16m;
"""

SERVER = """\
keepalive_timeout 1h;

location /static/ {{
    root {prefix};
}}

location /held/ {{
    limit_req zone=held burst=1000000;
    alias {prefix}/static/;
}}

location /guard/ {{
    zk_lock $arg_lock wait=1h;
    try_files /nonexistent =204;
}}

location /limit/ {{
    limit_conn each 1;
    try_files /nonexistent =204;
}}

location /plain/ {{
    try_files /nonexistent =204;
}}
"""

# what an older module may not have
PAGE = """\
location /page/ {
    zk_lock_page /locks/;
}
"""


# --- servers ----------------------------------------------------------------

@contextlib.contextmanager
def zookeeper(parent=None, size=1):
    """A private server, or an ensemble of so many; (it, a look into it)."""
    directory = os.path.join(parent or OUT, "zookeeper-of-bench")
    shutil.rmtree(directory, ignore_errors=True)
    options = {"tick": 2000, "properties": JAVA_FLAGS, "sync": True}
    if size > 1:
        server = Ensemble(directory, size, **options)
    else:
        server = Server(directory, **options)
    tree = None
    try:
        server.start()
        tree = Tree(server.address, timeout=30.0)
        yield server, tree
    finally:
        if tree is not None:
            tree.close()
        for each in servers_of(server):
            each.kill()
        stalls = [stall for each in servers_of(server)
                  for stall in stalls_of(each)]
        if stalls:
            print("\n    ZooKeeper itself stood still for its disk: %s s"
                  % ", ".join("%.1f" % stall for stall in stalls))
        if parent:
            shutil.rmtree(directory, ignore_errors=True)


def servers_of(zookeeper):
    """Of an ensemble, or of a server, all servers."""
    return getattr(zookeeper, "servers", [zookeeper])


def zookeeper_pids(zookeeper):
    return [server.process.pid for server in servers_of(zookeeper)]


def stalls_of(server):
    """The fsyncs of more than a second that it complains of, in seconds."""
    with open(server.log, errors="replace") as f:
        return [int(ms) / 1e3 for ms in
                re.findall(r"fsync-ing .* took (\d+)ms", f.read())]


@contextlib.contextmanager
def gateway(name, server, workers=2, connections=1024, sizes=None, http="",
            page=True, **options):
    """A fresh gateway without an access log; ends it and tells complaints."""
    prefix = os.path.join(OUT, "gateway-" + name)
    shutil.rmtree(prefix, ignore_errors=True)
    os.makedirs(os.path.join(prefix, "static"))
    with open(os.path.join(prefix, "static", "1k"), "wb") as f:
        f.write(b"x" * 1023 + b"\n")

    with served(Gateway(prefix, server, workers=workers, level="notice",
                        http=HTTP.format(sizes=sizes_lines(sizes)) + http,
                        server=SERVER.format(prefix=prefix)
                        + (PAGE if page else ""), **options),
                connections) as gw:
        yield gw


@contextlib.contextmanager
def plain_nginx(name, server, workers=2, connections=1024):
    """nginx without the module; `server` is what it is configured to do."""
    prefix = os.path.join(OUT, "nginx-" + name)
    shutil.rmtree(prefix, ignore_errors=True)
    os.makedirs(prefix)
    with served(Gateway(prefix, workers=workers, level="notice", module=None,
                        http=sizes_lines(SMALL), server=server),
                connections) as nginx:
        yield nginx


def sizes_lines(sizes):
    sizes = SMALL if sizes is None else sizes
    return "\n".join("%s %s;" % item for item in sizes.items())


@contextlib.contextmanager
def served(gw, connections):
    """Started, and ended."""
    gw.change_conf("access_log %s/access.log calls;" % gw.prefix,
                   "access_log off;")
    gw.change_conf("worker_connections 2048;",
                   "worker_connections %d;" % connections)
    gw.change_conf("worker_rlimit_nofile 16384;",
                   "worker_rlimit_nofile %d;" % open_files())
    try:
        gw.start()
        with guarded(gw.worker_pids()):
            yield gw
    finally:
        try:
            gw.finish()
        except AssertionError as e:
            print("\n*** the gateway ended badly:\n%s\n" % e)


@contextlib.contextmanager
def guarded(pids):
    """Ends them if this program is killed: nginx's workers do not notice."""
    guard = subprocess.Popen(
        ["/bin/sh", "-c", "read _; kill -s KILL %s" % " ".join(map(str, pids))],
        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def open_files():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files(wanted):
    """As many descriptors as are wanted, or as there may be; the number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE,
                               (wanted, max(hard, wanted)))
        except (ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_files()


# --- processes --------------------------------------------------------------

def memory(pids):
    """Bytes of the processes: private, pss, rss, and pss of shared memory."""
    total = {"private": 0, "pss": 0, "rss": 0, "shared": 0}
    for pid in pids:
        fields = {}
        with open("/proc/%d/smaps_rollup" % pid) as f:
            for line in f:
                found = re.match(r"(\w+): +(\d+) kB", line)
                if found:
                    fields[found.group(1)] = int(found.group(2)) * 1024
        total["private"] += fields["Private_Clean"] + fields["Private_Dirty"]
        total["pss"] += fields["Pss"]
        total["rss"] += fields["Rss"]
        total["shared"] += fields.get("Pss_Shmem", 0)
    return total


def less(after, before):
    return {key: after[key] - before[key] for key in after}


def cpu(pid):
    """CPU seconds of a process, with those of threads that have ended."""
    return time.clock_gettime(CPU_CLOCK | ~pid << 3)


def cpu_of(pids):
    return sum(cpu(pid) for pid in pids)


# --- clients ----------------------------------------------------------------

def http_get(port, path):
    """The body of what a server on loopback answers."""
    with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path),
                                timeout=2) as answer:
        return answer.read()


def connects(port):
    """Whether somebody listens; raises OSError if not."""
    with socket.create_connection(("127.0.0.1", port), 2):
        return True


def crowd(port, n, request=b"", answer=False, source=2):
    """n connections, each with a request sent; source: 127.0.0.N, their own
    address, so that those of an earlier crowd do not use up its ports.
    """
    sockets = []
    for _ in range(n):
        s = socket.socket()
        s.settimeout(30)
        s.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        s.bind(("127.0.0.%d" % source, 0))
        s.connect(("127.0.0.1", port))
        if request:
            s.sendall(request)
        if answer:
            s.recv(65536)
        sockets.append(s)
    return sockets


def answered(sockets):
    """How many have an answer, or an end, to be read."""
    poll = select.poll()
    for s in sockets:
        poll.register(s, select.POLLIN)
    return len(poll.poll(0))


def leave(sockets):
    for s in sockets:
        s.close()


def post(path):
    return ("POST %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path).encode()


def get(path):
    return ("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path).encode()


def run_json(command, timeout):
    """The JSON object that a program prints; its complaints are shown."""
    run = subprocess.run(command, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, timeout=timeout, check=True)
    return json.loads(run.stdout.decode())


# --- what is printed --------------------------------------------------------

def median(values):
    return statistics.median(values)


def spread(values):
    """'median (least..most)'"""
    return "%.3g (%.3g..%.3g)" % (median(values), min(values), max(values))


def setup(args, **more):
    """What the figures depend on."""
    version = subprocess.run([NGINX, "-v"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=30)
    model = ""
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
    facts = {
        "cores": "%d (%s)" % (len(os.sched_getaffinity(0)), model),
        "load_before": "%.2f" % os.getloadavg()[0],
        "kernel": os.uname().release,
        "nginx": version.stdout.decode().strip().rpartition("/")[2],
        "zookeeper": "one private server, loopback, fsync to %s, %s"
                     % (args.data or "build/bench", " ".join(JAVA_FLAGS)),
    }
    facts.update({key: str(value) for key, value in more.items()})
    print("setup")
    for key, value in facts.items():
        print("    %-14s %s" % (key, value))
    return facts


def sizes_text(sizes):
    return " ".join("%s=%s" % (key, value.replace(" ", "x"))
                    for key, value in sizes.items())


def table(title, head, rows):
    """Prints rows, numbers to the right."""
    rows = [[cell if isinstance(cell, str) else number(cell)
             for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [head] + rows)
              for i in range(len(head))]
    print("\n%s" % title)
    for line in [head] + rows:
        print("    " + "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))).rstrip())
    sys.stdout.flush()


def number(value):
    if isinstance(value, int):
        return "{:,}".format(value)
    if value != value:
        return "-"
    if abs(value) >= 1000:
        return "{:,.0f}".format(value)
    return "%.3g" % value


def write(name, results):
    path = os.path.join(OUT, name + ".json")
    with open(path, "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
    print("\nwritten to %s" % os.path.relpath(path, TREE))


def parser(text):
    p = argparse.ArgumentParser(description=text)
    p.add_argument("--quick", action="store_true", help="smaller and shorter")
    p.add_argument("--data", metavar="DIR",
                   help="where ZooKeeper keeps its data; on a tmpfs its disk "
                        "is left out of what is measured (build/bench)")
    return p


def fill_in(args, quick, whole):
    """What was not given is as of a quick run, or of a whole one."""
    for key, value in (quick if args.quick else whole).items():
        if getattr(args, key) is None:
            setattr(args, key, value)
    return args


def end_in_order():
    """A SIGTERM ends this program as an interrupt does: nothing is left."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def now():
    return time.monotonic()
