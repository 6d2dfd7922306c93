"""The files of conf-examples/, as a test runs them.

A configuration stays as written, except for what belongs to a machine:

    in the example                  in a test
    modules/ngx_http_....so         the module under test
    user www-data;                  root, or none if the tests do not run as
                                    root
    worker_processes auto;          two
    /etc/nginx/, /run/, /var/log/nginx/, /var/lib/, /var/cache/nginx/
                                    the gateway's own directory
    127.0.0.1:2181                  the test's ZooKeeper, and a chroot for this
                                    test alone
    listen 8080                     a free port of loopback; also the other
                                    ports, wherever the example names a port

nginx runs in the foreground, with a further server by which the harness sees
that nginx runs.  Text within comments, in lines that begin with "#   ", is
changed alike.

Script is a process of an example's script, with all child processes.
"""

import base64
import itertools
import os
import re
import signal
import socket
import subprocess
import textwrap

from lib.client import Connection, lock_path
from lib.gateway import TREE
from lib.process import alive, as_from_a_terminal, free_port, wait_until

EXAMPLES = os.path.join(TREE, "conf-examples")

# /etc/nginx/ is the prefix of all relative paths of a configuration, too
DIRECTORIES = ("/etc/nginx/", "/run/", "/var/log/nginx/", "/var/lib/",
               "/var/cache/nginx/")
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


def code(page, title):
    """The first block of code of a section of a page."""
    return codes(page, title)[0]


def codes(page, title):
    """All blocks of code of a section of a page."""
    with open(os.path.join(TREE, page), encoding="utf-8") as file:
        text = file.read().split("\n## %s\n" % title, 1)[1]
    found = re.findall(r"(?m)^```sh\n((?:.*\n)*?)```$"
                       r"|^(    \S.*\n(?:    .*\n|\n)*)",
                       text.split("\n## ")[0] + "\n")
    return [fenced or textwrap.dedent(indented) for fenced, indented in found]


def basic(user, password):
    credentials = base64.b64encode(("%s:%s" % (user, password)).encode())
    return {"Authorization": "Basic " + credentials.decode()}


def blocks(text):
    """The indented text within comments: commands or pieces of files."""
    return ["".join(line[4:] + "\n" for line in block.splitlines())
            for block in re.findall(r"(?m)(?:^#   .*\n)+", text)]


class Example:
    """A configuration, and the gateway (not started yet) that will run it.

    ports maps the example's ports to the test's ports; blocks is the text
    within comments, changed like the rest.  text replaces the file.
    """

    def __init__(self, name, gateway, ports, text=None):
        self.gateway = gateway
        self.ports = {port: free_port() for port in ports}
        self.chroot = "/" + gateway.root.split("/")[1]
        self.text = self._changed(read(name) if text is None else text)
        self.blocks = blocks(self.text)

    def start(self, **options):
        front, http, back = self.text.partition("http {\n")
        assert http, "no http block"
        self.gateway.write_conf("daemon off;\n" + front + http
                                + self._temporary_paths()
                                + DOOR % self.gateway.port + back)
        self.gateway.start(**options)
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
        """nginx makes all of these paths; the tests may not use Debian's."""
        return "".join("    %s_temp_path %s_temp;\n" % (name, name)
                       for name in TEMPORARY
                       if name + "_temp_path" not in self.text)

    # calls

    def shell(self, commands):
        """The output of the commands, which have to succeed."""
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

    def release(self, name, response):
        assert self.call("DELETE", lock_path(name), headers={
            "Lock-Token": response.token}).status == 204

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


class Script:
    """A process that runs a script, and all child processes.

    Every child inherits a word in the environment, by which the test finds the
    child anywhere.
    """

    numbers = itertools.count(1)

    def __init__(self, directory, command, environment=(), stdin=None):
        number = next(self.numbers)
        self.mark = "ZK_LOCK_EXAMPLE=%d-%d" % (os.getpid(), number)
        self.output = str(directory / ("output%d" % number))
        key, _, value = self.mark.partition("=")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                as_from_a_terminal(command), cwd=str(directory),
                stdout=output, stderr=output,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                env=dict(os.environ, **dict(environment, **{key: value})),
                start_new_session=True)
        self.pid = self.process.pid

    def wait(self, timeout=30.0):
        """The exit code."""
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
        """The pids of all running processes of the script."""
        return [int(entry) for entry in os.listdir("/proc")
                if entry.isdigit() and self._is_ours(entry)
                and alive(int(entry))]

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
        """Kills all processes of the script; none sees the end of another."""
        def kill_all():
            pids = self.processes()
            for how in signal.SIGSTOP, signal.SIGKILL:
                for pid in pids:
                    try:
                        os.kill(pid, how)
                    except ProcessLookupError:
                        pass
            return not pids

        wait_until(kill_all)
        self.process.wait()
