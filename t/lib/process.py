"""Processes, ports and deadlines, as every part of the harness needs them.

A process that a test starts dies with the test run in every case, and no
function here sleeps for a fixed time: a condition is polled until the condition
holds or a deadline is over.
"""

import collections
import ctypes
import os
import random
import signal
import socket
import subprocess
import time

PR_SET_PDEATHSIG = 1
POLL = 0.01
RARELY = 0.1
RANGES = 64     # one for each process that takes ports
EACH = 400      # ports of a range
RECENT = 200    # of these, that are not handed out again

_libc = ctypes.CDLL(None, use_errno=True)
_handed_out = collections.deque(maxlen=RECENT)
_ranges = {}    # by pid: the ports, and the socket that keeps them


def die_with_parent():
    """This process is killed when the process that has started it dies."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def tied(command):
    """The command, as a process that is killed when the test run dies.

    For a preexec_fn Popen() would copy the whole test run's memory maps.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--"] + list(command)


def as_from_a_terminal(command):
    """The same, and the process hears signals that the test run ignores.

    A shell that runs a command in the background, as the test run may be, has
    the command ignore INT; and a shell cannot trap such a signal.
    """
    return ["env", "--default-signal=HUP,INT,QUIT"] + tied(command)


def free_port():
    """A loopback port that no process listens on.

    The port is below the range from which the kernel picks the ports of
    outgoing connections, so that no such connection can take the port
    meanwhile; processes that run at the same time, of this run of the tests or
    of another, use disjoint ranges.
    """
    ports = _range_of_ports()

    while True:
        port = random.choice(ports)
        if port in _handed_out:
            continue
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.append(port)
        return port


def _range_of_ports():
    """The ports that belong to this process until it ends.

    A name in the abstract namespace is taken with the range.  The kernel
    keeps such names for each network namespace, as it keeps ports, and frees
    them with the process.
    """
    if not _ranges:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
            top = int(f.read().split()[0])

        for low in random.sample(range(top - RANGES * EACH, top, EACH), RANGES):
            taken = socket.socket(socket.AF_UNIX)
            try:
                taken.bind("\0zk-lock-tests-ports-%d" % low)
            except OSError:
                taken.close()
                continue
            _ranges[os.getpid()] = range(low, low + EACH), taken
            break

    if os.getpid() not in _ranges:
        raise AssertionError("no range of ports is free, or this is a fork")

    return _ranges[os.getpid()][0]


def wait_until(condition, timeout=10.0, what="the condition"):
    """The first true value of condition(); fails after timeout seconds.

    The last look begins when the time is over, so that a look that takes long,
    because this process or what is asked stands still, is not the only one.
    The longer the wait the rarer the looks, which cost the others time.
    """
    begin = time.monotonic()
    while True:
        past = time.monotonic() - begin
        last = past > timeout
        value = condition()
        if value:
            return value
        if last:
            raise AssertionError("%s did not hold within %g s (last: %r)"
                                 % (what, timeout, value))
        time.sleep(min(max(POLL, past / 8), RARELY))


def whole_lines(path):
    """The lines of a file that another process may be writing to."""
    with open(path) as f:
        return f.read().split("\n")[:-1]


class Daemon:
    """A process that has left the parent: the part of Popen that tests need.

    A guard ends the process group when the test run dies.
    """

    GUARD = "read _; kill -s KILL -- -%d"

    def __init__(self, pid):
        self.pid = pid
        self.returncode = None
        self.guard = subprocess.Popen(
            ["/bin/sh", "-c", self.GUARD % os.getpgid(pid)],
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def send_signal(self, how):
        os.kill(self.pid, how)

    def poll(self):
        """0, because the exit code is unknown; None while the process runs."""
        if self.returncode is None and not alive(self.pid):
            self.guard.kill()
            self.guard.communicate()
            self.returncode = 0
        return self.returncode

    def wait(self, timeout=None):
        deadline = time.monotonic() + (timeout or 60.0)
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("daemon", timeout)
            time.sleep(POLL)
        return self.returncode


def alive(pid):
    """Whether a process exists and is no zombie; a thread that is still on the
    way out counts as alive, because until then the sockets are open.
    """
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return False
    return any(state(int(task)) not in (None, "Z", "X") for task in tasks)


def state(pid):
    """The letter of a process's state, or None."""
    fields = _stat(pid)
    return fields[0] if fields else None


def birth(pid):
    """When a process was started, in the kernel's ticks, or None.

    The kernel may reuse a pid; the birth tells the processes apart.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def children(pid):
    """The pids of a process's living children."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        fields = _stat(int(entry))
        if fields and int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(entry))
    return sorted(found)


def title(pid):
    """A process's command line, which nginx rewrites as a title."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode("latin-1").strip()
    except OSError:
        return ""


def threads(pid):
    """The number of a process's threads."""
    return len(os.listdir("/proc/%d/task" % pid))


def _stat(pid):
    """The fields of /proc/PID/stat behind the name: state, ppid, ..."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()
    except OSError:
        return None
