"""The files of conf-examples/, as a test runs them.

A configuration is taken as it is but for what belongs to a machine:

    in the example                  in a test
    modules/ngx_http_....so         the module under test
    user www-data;                  root, or none if the tests are not root's
    worker_processes auto;          two
    /etc/nginx/, /run/, /var/log/nginx/, /var/lib/
                                    the gateway's own directory
    127.0.0.1:2181                  the test's ZooKeeper, and a chroot that is
                                    the test's own
    listen 8080                     a free port of loopback; so are others,
                                    wherever they are named

It is no daemon, and has one server more, by which the harness sees that it
runs.  What stands in within comments, in lines that begin with "#   ", is
changed alike.

Script is a process of an example's script, with all that comes of it.
"""

import itertools
import os
import re
import signal
import socket
import subprocess
import textwrap

from lib.client import Connection
from lib.gateway import TREE
from lib.process import alive, die_with_parent, free_port, wait_until

EXAMPLES = os.path.join(TREE, "conf-examples")

# /etc/nginx/ is the prefix of all relative paths of a configuration, too
DIRECTORIES = ("/etc/nginx/", "/run/", "/var/log/nginx/", "/var/lib/")
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")

DOOR = """
    server {
        listen 127.0.0.1:%d reuseport;

        location = /ready {
            return 204;
        }
    }
"""


def path(name):
    return os.path.join(EXAMPLES, name)


def read(name):
    with open(path(name), encoding="utf-8") as file:
        return file.read()


def readme(title):
    """The first block of code of a section of README.md."""
    with open(os.path.join(TREE, "README.md"), encoding="utf-8") as file:
        text = file.read().split("\n## %s\n" % title, 1)[1]
    code = re.search(r"(?m)^```sh\n((?:.*\n)*?)```$"
                     r"|^(    \S.*\n(?:    .*\n|\n)*)", text)
    return code.group(1) or textwrap.dedent(code.group(2))


def blocks(text):
    """What stands in within comments, commands or pieces of files."""
    return ["".join(line[4:] + "\n" for line in block.splitlines())
            for block in re.findall(r"(?m)(?:^#   .*\n)+", text)]


class Example:
    """A configuration, and the gateway (not started yet) that is to run it.

    ports is what takes the place of the example's ports, by those; blocks is
    what stands in within its comments, changed as the rest.  text is instead of
    the file.
    """

    def __init__(self, name, gateway, ports, text=None):
        self.gateway = gateway
        self.ports = {port: free_port() for port in ports}
        self.chroot = "/" + gateway.root.split("/")[1]
        self.text = self._changed(read(name) if text is None else text)
        self.blocks = blocks(self.text)

    def start(self):
        front, http, back = self.text.partition("http {\n")
        assert http, "no http block"
        self.gateway.write_conf("daemon off;\n" + front + http
                                + self._temporary_paths()
                                + DOOR % self.gateway.port + back)
        self.gateway.start()
        return self

    def _changed(self, text):
        with open(self.gateway.conf, encoding="utf-8") as file:
            module = re.search(r"load_module (\S+);", file.read()).group(1)
        text = text.replace("modules/ngx_http_zk_lock_module.so", module)
        text = re.sub(r"(?m)^user .*\n",
                      "user root;\n" if os.geteuid() == 0 else "", text)
        text = text.replace("worker_processes auto;", "worker_processes 2;")
        for directory in DIRECTORIES:
            text = re.sub(r"(?<![\w.])" + directory,
                          self.gateway.prefix + "/", text)
        text = text.replace("127.0.0.1:2181",
                            self.gateway.zookeeper.address + self.chroot)
        for old, new in self.ports.items():
            text = re.sub(r"\blisten( +)(127\.0\.0\.1:)?%d\b" % old,
                          r"listen\g<1>127.0.0.1:%d" % new, text)
            text = re.sub(r":%d\b" % old, ":%d" % new, text)
        return text

    def _temporary_paths(self):
        """nginx makes all of them, and Debian's are not for us."""
        return "".join("    %s_temp_path %s_temp;\n" % (name, name)
                       for name in TEMPORARY
                       if name + "_temp_path" not in self.text)

    # talk

    def shell(self, commands):
        """What the commands print; they have to succeed."""
        run = subprocess.run(["sh", "-e", "-c", commands], timeout=60,
                             cwd=self.gateway.prefix, encoding="utf-8",
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        assert run.returncode == 0, (commands, run.stdout, run.stderr)
        return run.stdout

    def connect(self, source=None):
        port = self.ports[8080]
        connection = (ConnectionFrom(port, source) if source
                      else Connection(port))
        self.gateway.connections.append(connection)
        return connection

    def call(self, method, path, query=None, headers=None, body=None,
             source=None):
        with self.connect(source) as connection:
            return connection.request(method, path, query, headers, body)

    def hold(self, path, query=None, headers=None, body=None, source=None):
        """A grant to begin with: ZooKeeper's disk may stall for a moment."""
        def answer():
            response = self.call("POST", path, query, headers, body, source)
            return None if response.status == 503 else response

        response = wait_until(answer, what="a grant")
        assert response.status == 201, response
        return response

    def znode(self, path):
        """The path of a znode as the tests see it."""
        return self.chroot + path


class ConnectionFrom(Connection):
    """A connection from another address of this machine."""

    def __init__(self, port, source):
        super().__init__(port)
        self.socket.close()
        self.socket = socket.create_connection(
            ("127.0.0.1", port), self.timeout, (source, 0))


def as_from_a_terminal():
    """For Popen(preexec_fn=): a shell cannot trap a signal that was ignored
    when it began, as INT is in what another shell runs in the background;
    the test run may be such a thing.
    """
    die_with_parent()
    for how in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT:
        signal.signal(how, signal.SIG_DFL)


class Script:
    """A process that runs one of the scripts, and all that comes of it.

    Whatever it starts inherits a word in its environment, by which it is
    found wherever it has gone.
    """

    numbers = itertools.count(1)

    def __init__(self, directory, command, environment=(), stdin=None):
        number = next(self.numbers)
        self.mark = "ZK_LOCK_EXAMPLE=%d-%d" % (os.getpid(), number)
        self.output = str(directory / ("output%d" % number))
        key, _, value = self.mark.partition("=")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                command, cwd=str(directory), stdout=output, stderr=output,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                env=dict(os.environ, **dict(environment, **{key: value})),
                start_new_session=True, preexec_fn=as_from_a_terminal)
        self.pid = self.process.pid

    def wait(self, timeout=30.0):
        """Its exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError("it runs on after %g s: %s"
                                 % (timeout, self.said())) from None

    def signal(self, how):
        self.process.send_signal(how)

    def said(self):
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return file.read()

    def processes(self):
        """The pids of those that run, its own among them."""
        return [int(entry) for entry in os.listdir("/proc")
                if entry.isdigit() and alive(int(entry))
                and self._is_ours(entry)]

    def _is_ours(self, pid):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                return self.mark.encode() in file.read().split(b"\0")
        except OSError:
            return False

    def wait_gone(self, timeout=15.0):
        wait_until(lambda: not self.processes(), timeout,
                   "all that the script had started is gone")

    def kill(self):
        """The end of all of it."""
        def kill_all():
            pids = self.processes()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not pids

        wait_until(kill_all)
        self.process.wait()
