"""zk-lock is a careful holder: it waits on through what passes, and says of
whom it has heard nothing.
"""

import base64
import contextlib
import itertools
import os
import random
import socket
import threading

import pytest

from lib.jobs import (LOST, OUT_OF_REACH, TAKEN, USAGE, ZK_LOCK, Job,
                      gateway_that_says, is_free)
from lib.process import free_port, wait_until
from lib.wire import Wire

NUMBERS = itertools.count(1)


def url(port):
    return "http://127.0.0.1:%d/locks" % port


def port_of(gateway):
    return int(gateway.url.rpartition(":")[2].partition("/")[0])


@pytest.fixture
def name():
    return "lock%d" % next(NUMBERS)


@pytest.fixture
def zk_run(start_script):
    """A function that starts zk-lock run at a port."""
    def start(port, *arguments, **options):
        return start_script(ZK_LOCK, "run", "-u", url(port), *arguments,
                            **options)

    return start


def test_the_gateway_is_not_up_yet(zk_run, start_gateway, name, job):
    gateway = start_gateway(start=False)
    script = zk_run(gateway.port, "-w", "60", name, *job.command)
    gateway.start()
    job.wait_running()
    job.go()
    assert script.wait() == 3


def test_the_gateway_restarts(zk_run, start_gateway, tree, name, job):
    gateway = start_gateway()
    token = gateway.hold(name, durable="1", ttl="60s").token
    script = zk_run(gateway.port, "-w", "60", name, *job.command)
    tree.wait_claims(gateway.znode(name), 2)
    gateway.terminate()
    gateway.start()
    tree.wait_claims(gateway.znode(name), 2, 30)
    assert gateway.release(name, token).status in (200, 204)
    job.wait_running()
    job.go()
    assert script.wait() == 3


def test_a_balancer_cuts_the_wait(zk_run, shared_gateway, start_gateway, tree,
                                  tmp_path, name):
    """After a second with 504: the place in the queue is kept."""
    front = start_gateway(servers=None, server=(
        "location /locks/ {\n    proxy_pass http://127.0.0.1:%d;\n"
        "    proxy_read_timeout 1s;\n}" % shared_gateway.port))
    token = shared_gateway.hold(name).token
    jobs = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        jobs.append(Job(tmp_path / str(i)))
    wire = Wire(front.port)
    first = zk_run(wire.port, "-w", "60", name, *jobs[0].command)
    tree.wait_claims(shared_gateway.znode(name), 2)
    second = zk_run(shared_gateway.port, "-w", "60", name, *jobs[1].command)
    tree.wait_claims(shared_gateway.znode(name), 3)
    wait_until(lambda: wire.answered.count(b" 504 ") > 1, 20.0, "two cuts")
    keys = {line for line in wire.asked.split(b"\r\n")
            if line.startswith(b"Idempotency-Key:")}
    assert len(keys) == 1
    shared_gateway.release(name, token)
    jobs[0].wait_running()
    assert jobs[1].lines() == []
    for job, script in zip(jobs, (first, second)):
        job.wait_running()
        job.go()
        assert script.wait() == 3
    wire.close()


def test_other_permits(zk_run, shared_gateway, tree, name, job):
    """While the semaphore is used with other permits, the wait goes on."""
    holder = zk_run(shared_gateway.port, "--permits", "2", name, *job.command)
    job.wait_running()
    other = zk_run(shared_gateway.port, "--permits", "3", "-w", "60", name,
                   "true")
    late = zk_run(shared_gateway.port, "--permits", "3", "-w", "2", name,
                  "true")
    assert late.wait() == USAGE and "409" in late.said()
    job.go()
    assert holder.wait() == 3
    assert other.wait() == 0


def test_redirects_are_not_followed(zk_run, name):
    with gateway_that_says(b"{}") as elsewhere, gateway_that_says(
            b"", status=307, headers={"Location": elsewhere.url + "/x"}
            ) as gateway:
        script = zk_run(port_of(gateway), name, "true")
        assert script.wait() == USAGE and "307" in script.said()
        assert elsewhere.paths == [] and len(gateway.paths) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_what_may_pass_is_repeated(zk_run, name, status):
    with gateway_that_says(b"{}", status=status) as gateway:
        port = port_of(gateway)
        assert zk_run(port, name, "true").wait() == OUT_OF_REACH
        asked = len(gateway.paths)
        assert zk_run(port, "-w", "3", name, "true").wait() == OUT_OF_REACH
        assert len(gateway.paths) > asked + 1


def test_a_renewal_is_repeated(zk_run, shared_gateway, start_gateway, name,
                               job):
    """The proxy in between is away for a while: the lock is kept."""
    front = start_gateway(servers=None, server=(
        "location /locks/ {\n    proxy_pass http://127.0.0.1:%d;\n}"
        % shared_gateway.port))
    script = zk_run(front.port, "-t", "30", name, *job.command)
    job.wait_running()
    front.kill()
    wait_until(lambda: shared_gateway.inspect(name).json["holders"][0][
        "expires_in_ms"] < 19000, 30.0, "a renewal is due")
    front.start()
    wait_until(lambda: shared_gateway.inspect(name).json["holders"][0][
        "expires_in_ms"] > 25000, 30.0, "a renewal")
    job.go()
    assert script.wait() == 3
    assert is_free(shared_gateway, name)


def test_a_renewal_without_an_answer_is_repeated(zk_run, shared_gateway, name,
                                                 job):
    """On another connection, in time for the lease."""
    wire = Wire(shared_gateway.port)
    script = zk_run(wire.port, "-t", "12", name, *job.command)
    job.wait_running()
    wait_until(lambda: wire.asked.count(b"PUT "), 20.0, "a renewal")
    wire.lose()
    wait_until(lambda: wire.asked.count(b"PUT ") > 3, 30.0, "three more")
    job.go()
    assert script.wait() == 3
    assert is_free(shared_gateway, name)
    wire.close()


def test_renewals_have_a_connection(zk_run, shared_gateway, name, job):
    """One for the acquire, and one for all renewals and the release."""
    wire = Wire(shared_gateway.port)
    script = zk_run(wire.port, "-t", "16", name, *job.command)
    job.wait_running()
    wait_until(lambda: wire.asked.count(b"PUT ") > 1, 40.0, "two renewals")
    job.go()
    assert script.wait() == 3
    assert len(wire.connections) == 2
    assert wire.connections[0].startswith(b"POST ")
    assert b"POST" not in wire.connections[1]
    assert wire.connections[1].count(b"DELETE ") == 1
    wire.close()


# secrets, and where the locks are

SECRET = "s3cr3t-p%40ss"


@pytest.mark.parametrize("how", ["option", "glued", "variable"])
def test_a_password_in_the_url(start_script, shared_gateway, name, how, job):
    """It is sent, and is in no argument and no message."""
    wire = Wire(shared_gateway.port)
    where = "http://me:%s@127.0.0.1:%d/locks" % (SECRET, wire.port)
    options = {"option": ["-u", where], "glued": ["--url=" + where],
               "variable": []}[how]
    environment = {"ZK_LOCK_URL": where} if how == "variable" else {}
    script = start_script(ZK_LOCK, "run", *options, name, *job.command,
                          environment=environment)
    job.wait_running()
    for pid in script.processes():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(
                "/proc/%d/cmdline" % pid, "rb") as file:
            assert b"s3cr3t" not in file.read()
    assert b"Authorization: Basic " + base64.b64encode(
        b"me:s3cr3t-p@ss") in wire.asked
    other = start_script(ZK_LOCK, "run", *options, name, "true",
                         environment=environment)
    assert other.wait() == TAKEN
    assert "taken" in other.said() and "s3cr3t" not in other.said()
    job.go()
    assert script.wait() == 3
    wire.close()


def test_a_file_of_options(start_script, shared_gateway, tmp_path, name):
    wire = Wire(shared_gateway.port)
    config = tmp_path / "curlrc"
    config.write_text('# a comment\n\n--user = "me:a \\"b\\""\n'
                      'header: "X-One: 1"\n-H "X-Two: 2"\n-AAgent\nsilent\n')
    script = start_script(ZK_LOCK, "run", "-K", str(config), "-u",
                          url(wire.port), name, "true")
    assert script.wait() == 0, script.said()
    assert wire.asked.count(b"Authorization: Basic " + base64.b64encode(
        b'me:a "b"')) == 2
    for line in b"X-One: 1", b"X-Two: 2", b"User-Agent: Agent":
        assert wire.asked.count(b"\r\n" + line + b"\r\n") == 2
    wire.close()

    for text, word in ('output = "x"', "output"), ("-Z", "Z"), (
            'netrc-file-x = "y"', "netrc-file-x"):
        config.write_text(text + "\n")
        script = start_script(ZK_LOCK, "ls", "-K", str(config))
        assert script.wait() == USAGE and word in script.said()
    script = start_script(ZK_LOCK, "ls", "-K", str(tmp_path / "none"))
    assert script.wait() == USAGE and "none" in script.said()


def test_the_variables(start_script, shared_gateway):
    here, nowhere = url(shared_gateway.port), url(free_port())
    for variables, status in (
            ({"LOCKS": here}, 0), ({"ZK_LOCK_URL": here}, 0),
            ({"ZK_LOCK_URL": "", "LOCKS": here}, 0),
            ({"ZK_LOCK_URL": here, "LOCKS": nowhere}, 0),
            ({"ZK_LOCK_URL": nowhere, "LOCKS": here}, OUT_OF_REACH),
            ({"LOCKS": "ftp://example.com"}, USAGE)):
        script = start_script(ZK_LOCK, "ls", environment=dict(
            {"ZK_LOCK_URL": "", "LOCKS": ""}, **variables))
        assert script.wait() == status, (variables, script.said())


# a server that answers with anything

def deep(dice):
    return b"[" * dice.choice([100, 100000])


def torn(dice):
    text = b'{"name":"x","holders":[{"owner":"a"}],"queue":[],"held":1}'
    return text[:dice.randrange(len(text))]


def bytes_of(dice):
    return bytes(dice.randrange(256) for _ in range(dice.randrange(2000)))


def numbers(dice):
    return (b'{"ttl_ms":%d,"expires_in_ms":%d,"fencing_token":%d,"held":1e999,'
            b'"holders":[1,null,{"owner":7,"expires_in_ms":-1}],"queue":{}}'
            % tuple(dice.choice([0, -1, 1, 1 << 31, 1 << 63, 10 ** 30])
                    for _ in range(3)))


def long_text(dice):
    return b'"' + b"x" * dice.choice([65535, 65536, 1 << 20]) + b'"'


class Hostile:
    """Answers with the bytes that dice make, some of which are HTTP."""

    BODIES = [deep, torn, bytes_of, numbers, long_text, lambda _: b""]
    HEADERS = [b"Lock-Token: ABC", b"Lock-Token: " + b"x" * 300,
               b"Lock-Token:", b"Retry-After: 99999999999999999999",
               b"Retry-After: -1", b"Retry-After: 0", b"ETag: \xff\x00",
               b"X: " + b"y" * 90000, b"Content-Encoding: gzip",
               b"Transfer-Encoding: chunked", b"Location: file:///etc/passwd",
               b"Lock-Fencing-Token: $(touch pwned)"]

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.recv(65536)
                client.sendall(self.answer())
                client.shutdown(socket.SHUT_WR)

    def answer(self):
        dice = self.dice
        body = dice.choice(self.BODIES)(dice)
        if dice.random() < 0.1:
            return body
        status = dice.choice([0, 99, 100, 200, 200, 200, 201, 201, 204, 301,
                              404, 410, 423, 503, 999])
        lines = [b"HTTP/1.1 %d x" % status]
        lines += dice.sample(self.HEADERS, dice.randrange(5))
        if dice.random() < 0.7:
            lines.append(b"Content-Length: %d" % (
                len(body) + dice.choice([0, 0, 0, 1, -1])))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize("seed", range(4))
def test_a_hostile_server(start_script, tmp_path, seed):
    """Nothing breaks, nothing is run that it names, and memory is bounded."""
    hostile = Hostile(seed)
    commands = [["run", "-g", "0", "x", "true"], ["ls"], ["show", "x"],
                ["show", "--owners", "x"], ["show", "--json", "x"],
                ["drain", "status"], ["break", "x", "7"],
                ["run", "-w", "1", "x", "true"]]
    known = {0, 1, USAGE, OUT_OF_REACH, LOST, TAKEN}
    for number in range(24):
        command = commands[number % len(commands)]
        script = start_script(ZK_LOCK, *command, "-u", url(hostile.port)
                              ) if command[0] != "run" else start_script(
            ZK_LOCK, "run", "-u", url(hostile.port), *command[1:])
        assert script.wait(60) in known, (command, script.said())
        assert "Sanitizer" not in script.said()
    hostile.listener.close()
    assert not (tmp_path / "pwned").exists()
    assert not os.path.exists("pwned")
