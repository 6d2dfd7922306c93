"""The files of conf-examples/ do what they say.

Each configuration runs in nginx with the addresses and paths of the test (see
lib/examples.py), and each script against a gateway.
"""

import base64
import contextlib
import http.server
import itertools
import json
import os
import re
import shutil
import signal
import threading
import time

import pytest

from lib import examples
from lib.checks import problem, retry_after
from lib.client import Connection, lock_path
from lib.examples import Example, Script
from lib.gateway import TREE
from lib.process import alive, free_port, wait_until

NUMBERS = itertools.count(1)
LOCKED = ("docs/recipes.md", "A command under a lock")
LOST, TAKEN, OUT_OF_REACH, USAGE = 70, 75, 69, 64


@pytest.fixture
def name():
    """A lock that only this test uses."""
    return "lock%d" % next(NUMBERS)


@pytest.fixture
def start_script(tmp_path, start_gateway):
    """A function that starts a script; no process may be left at the end.

    This end comes before the end of the test's gateways.
    """
    scripts = []

    def start(*command, **options):
        scripts.append(Script(tmp_path, command, **options))
        return scripts[-1]

    yield start
    left = {}
    deadline = time.monotonic() + 15
    for script in scripts:
        try:
            script.wait_gone(deadline - time.monotonic())
        except AssertionError:
            left[script.pid] = script.said()
            script.kill()
    assert not left, left


def take_away(gateway, tree, name):
    """Deletes the only claim; the holder has lost the lock."""
    claim, = tree.claims(gateway.znode(name))
    tree.delete(gateway.znode(name) + "/" + claim)


def expires_in(gateway, name):
    """The milliseconds that are left of the holder's lease."""
    holder, = gateway.inspect(name).json["holders"]
    return holder["expires_in_ms"]


def is_free(gateway, name):
    return gateway.inspect(name).status == 404


@pytest.fixture
def make_example(start_gateway):
    """A function that makes an example's gateway, not started yet."""
    def make(name, ports=(8080,), text=None):
        return Example(name, start_gateway(start=False), ports, text)

    return make


def test_all_of_them_are_tested():
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    for example in os.listdir(examples.EXAMPLES):
        assert '"%s"' % example in text, example


def release(example, name, response):
    assert example.call("DELETE", lock_path(name), headers={
        "Lock-Token": response.token}).status == 204


def test_minimal(make_example):
    example = make_example("minimal.conf").start()
    release(example, "x", example.hold("/locks/x"))


def test_ten_lines(make_example):
    text = examples.code("README.md", "Configuration in ten lines")
    assert len(text.split("\n")) < 14
    example = make_example(None, text=text.replace(
        "10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181", "127.0.0.1:2181"))
    # where an nginx that is not Debian's has the log and the pid
    os.makedirs(os.path.join(os.path.dirname(example.gateway.conf), "logs"),
                exist_ok=True)
    example.start()
    release(example, "x", example.hold("/locks/x"))


def test_dozen_calls(start_script, gateway, name):
    """Each call of the README is answered with the status that is said."""
    with open(os.path.join(TREE, "README.md"), encoding="utf-8") as file:
        calls = re.findall(r"(?m)^    (curl .*?) +# (\d{3})", file.read())
    assert len(calls) == 12
    token = None
    for call, status in calls:
        call = re.sub(r"\$url/(\w)", r"$url/%s-\1" % name, call)
        call = re.sub(r'"(disk|tape)"', r'"%s-\1"' % name, call)
        script = start_script("sh", "-c", call, environment={
            "url": "http://127.0.0.1:%d/locks" % gateway.port,
            "token": token or "", "key": name + "-8e03"})
        wait_until(lambda: "HTTP/1.1 %s " % status in script.said(), 10.0,
                   "%s of %s" % (status, call))
        found = re.search(r"(?m)^Lock-Token: (\S+)", script.said())
        token = token or found.group(1)
        if "hold=connection" in call:
            script.kill()
        else:
            assert script.wait() == 0


def streams_of(*pages):
    """The curl commands of these pages that open streams."""
    lines = []
    for page in pages:
        with open(os.path.join(TREE, page), encoding="utf-8") as file:
            lines += re.findall(r"(?m)^    (curl .*\$url/.*)$", file.read())
    return [line for line in lines
            if re.search("hold=connection|Accept: ", line)]


@pytest.mark.parametrize("line", streams_of("README.md", "docs/calls.md",
                                           "docs/recipes.md"))
def test_streams_through_a_pipe(start_script, start_gateway, line):
    """Events are seen when the gateway sends them, not when a buffer is full.
    """
    gateway = start_gateway()
    script = start_script(
        "sh", "-c", line.split("   #")[0] + " | cat", environment={
            "url": "http://127.0.0.1:%d/locks" % gateway.port})
    wait_until(lambda: re.search("granted|change", script.said()), 10.0,
               "an event")
    script.kill()
    for name in "web", "nightly", "x":
        wait_until(lambda name=name: is_free(gateway, name))


# owners of the locks

def basic(user, password):
    credentials = base64.b64encode(("%s:%s" % (user, password)).encode())
    return {"Authorization": "Basic " + credentials.decode()}


def tenants_are_apart(example, tree, one, other):
    """Two clients with different headers have separate locks of the same name.

    The first headers are alice's.
    """
    tokens = []
    for headers in one, other:
        tokens.append(example.hold("/locks/nightly", {"wait": "0"},
                                   headers).token)
    assert len(tree.claims(example.znode("/tenants/alice/nightly"))) == 1

    for method in "GET", "PUT", "DELETE":
        headers = dict(other, **{"Lock-Token": tokens[0]})
        problem(example.call(method, "/locks/nightly", None, headers), 404)
    for headers, token in zip((one, other), tokens):
        headers = dict(headers, **{"Lock-Token": token})
        assert example.call("GET", "/locks/nightly", None,
                            headers).json["state"] == "held"
        assert example.call("DELETE", "/locks/nightly", None,
                            headers).status == 204


def test_tenants(make_example, tree):
    example = make_example("tenants.conf")
    users, call = example.blocks
    example.shell(users)
    example.start()
    alice = basic("alice", "alices-secret")
    bob = basic("bob", "bobs-secret")

    assert json.loads(example.shell(call))["name"] == "nightly"
    claim, = tree.claims(example.znode("/tenants/alice/nightly"))
    tree.delete(example.znode("/tenants/alice/nightly/" + claim))
    tenants_are_apart(example, tree, alice, bob)

    for headers in None, basic("alice", "bobs-secret"), basic("carol", ""):
        for method in "GET", "POST", "DELETE":
            response = example.call(method, "/locks/nightly", None, headers)
            assert response.status == 401


MORE_CERTIFICATES = """
certify bob extendedKeyUsage=clientAuth
certify a%2fb extendedKeyUsage=clientAuth

# bob's name, but alice has signed it, as if she were a CA
openssl x509 -req -in bob.csr -CA alice.crt -CAkey alice.key \
    -CAcreateserial -out forged.crt
cat alice.crt >> forged.crt
cp bob.key forged.key

# alice's name, from a CA that nobody knows
mkdir other
cd other
"""


def test_tls(make_example, tree):
    example = make_example("tls.conf", ports=(8443,))
    make, call = example.blocks
    tls = os.path.join(example.gateway.prefix, "tls")
    os.mkdir(tls)
    example.shell("exec 2>&1\n" + make + MORE_CERTIFICATES
                  + make.replace("cd " + tls, ""))
    example.start()

    def answer(who, *arguments):
        """(status, body) of the call in the comment, with a certificate."""
        certificate = "--cert %s.crt --key %s.key" % (who, who) if who else ""
        command = call.strip().replace("--cert alice.crt --key alice.key",
                                       certificate)
        out = example.shell("cd tls\n%s -w '\\n%%{http_code}' %s"
                            % (command, " ".join(arguments)))
        body, _, status = out.rpartition("\n")
        return int(status), body

    tokens = {}
    for who in "alice", "bob":
        status, body = answer(who)
        assert status == 201
        tokens[who] = "-X DELETE -H 'Lock-Token: %s'" % (
            json.loads(body)["token"])
        znode = example.znode("/tenants/%s/nightly" % who)
        assert len(tree.claims(znode)) == 1

    for who, why in (("", "No required SSL certificate was sent"),
                     ("forged", "The SSL certificate error"),
                     ("other/alice", "The SSL certificate error")):
        for arguments in "", tokens["alice"]:
            status, body = answer(who, arguments)
            assert status == 400 and why in body, who
    assert answer("a%2fb")[0] == 403

    assert answer("bob", tokens["alice"])[0] == 404
    assert answer("alice", tokens["alice"])[0] == 204
    assert answer("bob", tokens["bob"])[0] == 204


class AuthService(http.server.BaseHTTPRequestHandler):
    """Decides by the word in a header, and remembers each request."""

    protocol_version = "HTTP/1.1"
    users = {"alice": (204, "alice"), "bob": (204, "bob"),
             "nobody": (204, None), "mallory": (403, None)}

    def do_GET(self):
        self.server.seen.append(dict(self.headers))
        status, tenant = self.users.get(self.headers["X-User"], (401, None))
        self.send_response(status)
        if tenant:
            self.send_header("X-Tenant", tenant)
        if status == 401:
            self.send_header("WWW-Authenticate", "Word")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def auth_service(port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), AuthService)
    server.daemon_threads = True
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_auth_request(make_example, tree):
    example = make_example("auth-request.conf", ports=(8080, 9000)).start()
    with auth_service(example.ports[9000]) as service:
        asks_the_service(example, tree, service.seen)


def test_auth_request_without_its_service(make_example):
    example = make_example("auth-request.conf", ports=(8080, 9000)).start()
    assert example.call("POST", "/locks/x", None, {"X-User": "alice"}
                        ).status == 500


def asks_the_service(example, tree, seen):
    tenants_are_apart(example, tree, {"X-User": "alice"}, {"X-User": "bob"})
    assert not any("Lock-Token" in headers for headers in seen)

    del seen[:]
    body = {"owner": "me", "wait": 0}
    response = example.hold("/locks/a%20b", {"ttl": "5s"},
                            {"X-User": "alice"}, body)
    call = seen[-1]
    assert call["X-Original-Method"] == "POST"
    assert call["X-Original-URI"] == "/locks/a%20b?ttl=5s"
    assert example.call("DELETE", "/locks/a%20b", None, {
        "X-User": "alice", "Lock-Token": response.token}).status == 204

    response = example.call("POST", "/locks/x", None, None, body)
    assert response.status == 401
    assert response.headers["WWW-Authenticate"] == "Word"
    assert example.call("POST", "/locks/x", None, {"X-User": "mallory"}
                        ).status == 403
    # the service named no tenant, so the lock has no owner
    assert example.call("POST", "/locks/x", None, {"X-User": "nobody"}
                        ).status == 500
    assert example.call("GET", "/auth", None, {"X-User": "alice"}
                        ).status == 404


# limits

def waiters(example, tree, name, number, source):
    """Sends waiting acquires of a held lock from one address."""
    znode = example.znode("/locks/" + name)
    before = len(tree.claims(znode))
    connections = [example.connect(source).send("POST", lock_path(name))
                   for _ in range(number)]
    tree.wait_claims(znode, before + number)
    return connections


def test_limit_of_waiters(make_example, tree):
    """A client at the limit gets no more, but can renew and release."""
    greedy, modest = "127.0.0.2", "127.0.0.3"
    example = make_example("limits.conf").start()
    own = example.hold("/locks/own", source=greedy)
    held = example.hold("/locks/x", source=modest)
    held_on = waiters(example, tree, "x", 20, greedy)

    for method in "POST", "GET":
        response = example.call(method, "/locks/free", source=greedy)
        content = problem(response, 429, "too many")
        assert content["retry_after_ms"] == 1000
        assert retry_after(response) == 1
    release(example, "free", example.hold("/locks/free", source=modest))

    token = {"Lock-Token": own.token}
    assert example.call("PUT", "/locks/own", headers=token,
                        source=greedy).status == 200
    assert example.call("DELETE", "/locks/own", headers=token,
                        source=greedy).status == 204

    held_on.pop().close()
    tree.wait_claims(example.znode("/locks/x"), 20)
    response = wait_until(
        lambda: granted(example.call("POST", "/locks/free", source=greedy)))
    release(example, "free", response)
    for waiter in held_on:
        waiter.close()
    tree.wait_claims(example.znode("/locks/x"), 1)
    release(example, "x", held)


def granted(response):
    assert response.status in (201, 429), response
    return response if response.status == 201 else None


def test_limit_of_the_queue(make_example, tree):
    example = make_example("limits.conf").start()
    held = example.hold("/locks/x")
    crowd = [waiter for i in range(5)
             for waiter in waiters(example, tree, "x", 20,
                                   "127.0.0.%d" % (10 + i))]
    content = problem(example.call("POST", "/locks/x", source="127.0.0.20"),
                      429)
    assert "too many" not in content["detail"].lower()
    release(example, "y", example.hold("/locks/y", source="127.0.0.20"))
    for waiter in crowd:
        waiter.close()
    tree.wait_claims(example.znode("/locks/x"), 1)
    release(example, "x", held)


def test_limit_of_calls(make_example):
    """More than fifty calls a second, and a hundred at once, is too fast."""
    greedy, modest = "127.0.0.2", "127.0.0.3"
    example = make_example("limits.conf").start()
    connection = example.connect(greedy)

    def is_refused():
        request = b"GET /locks/x HTTP/1.1\r\nHost: a\r\n\r\n"
        connection.send_bytes(100 * request)
        statuses = {connection.response().status for _ in range(100)}
        return 429 in statuses

    with connection:
        wait_until(is_refused, what="too many calls")
    response = example.hold("/locks/x", source=modest)
    for method, status in ("PUT", 200), ("DELETE", 204):
        assert example.call(method, "/locks/x", headers={
            "Lock-Token": response.token}, source=greedy).status == status


def test_limits_of_a_call(make_example):
    example = make_example("limits.conf").start()
    assert example.call("POST", "/locks/x", body=b" " * 8193).status == 413
    for query, ttl in (None, 30000), ({"ttl": "1d"}, 600000):
        response = example.hold("/locks/x", query)
        assert response.json["ttl_ms"] == ttl
        release(example, "x", response)


# Terraform

def run_info(number, who):
    """What Terraform sends with LOCK and UNLOCK."""
    return {"ID": "6f8c1e0e-0000-0000-0000-%012d" % number,
            "Operation": "OperationTypeApply", "Info": "", "Who": who,
            "Version": "1.11.4", "Created": "2026-11-21T13:28:37.123456789Z",
            "Path": ""}


@pytest.fixture
def terraform_backend(make_example, tree):
    example = make_example("terraform.conf")
    tree.make(example.chroot)       # else the first durable lease gets 500
    prefix = example.gateway.prefix
    os.makedirs(os.path.join(prefix, "terraform", "state"))
    example.shell("password() { openssl passwd -apr1 $1; }\n"
                  "echo root:$(password secret) > lock-admins\n"
                  "cat lock-admins > lock-users\n"
                  "echo alice:$(password secret) >> lock-users\n")
    return example.start()


def test_terraform_backend(terraform_backend):
    """The calls that Terraform makes, for states and for locks."""
    def call(method, path, body=None, user="alice", query=None):
        return terraform_backend.call(method, path, query,
                                      basic(user, "secret"), body)

    one, other = run_info(1, "alice@one"), run_info(2, "alice@other")
    for method in "GET", "PUT", "DELETE":
        assert terraform_backend.call(method, "/state/prod").status == 401
    for method in "LOCK", "UNLOCK":
        assert terraform_backend.call(method, "/locks/prod", body=one
                                      ).status == 401

    assert call("LOCK", "/locks/prod", one).status == 200
    assert call("LOCK", "/locks/prod", one).status == 200
    response = call("LOCK", "/locks/prod", other)
    assert response.status == 423
    assert response.json["ID"] == one["ID"]
    assert response.json["Who"] == "alice@one"
    assert call("UNLOCK", "/locks/prod", other).status == 409

    assert call("GET", "/state/prod").status == 404
    for serial, status in (1, 201), (2, 204):
        assert call("PUT", "/state/prod", {"serial": serial},
                    query={"ID": one["ID"]}).status == status
        assert call("GET", "/state/prod").json == {"serial": serial}
    waiter = terraform_backend.connect().send(
        "LOCK", "/locks/prod", {"wait": "60s"}, basic("alice", "secret"),
        other)
    wait_until(lambda: call("GET", "/locks/prod").json["queued"] == 1)
    assert call("UNLOCK", "/locks/prod", one).status == 200
    assert waiter.response().status == 200

    # an admin breaks a lock that was left behind
    assert call("UNLOCK", "/locks/prod").status == 403
    assert call("UNLOCK", "/force/prod").status == 401
    assert call("UNLOCK", "/force/prod", user="root").status == 200
    assert call("LOCK", "/locks/prod", one).status == 200
    assert call("UNLOCK", "/locks/prod", one).status == 200
    assert call("GET", "/locks/prod").status == 404


RESOURCE = """
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "echo >> running; until [ -e go ]; do sleep 0.05; done"
  }
}
"""


@pytest.mark.skipif(not shutil.which("terraform"), reason="no Terraform here")
def test_terraform(terraform_backend, start_script, tmp_path):
    """Terraform itself, with the backend from the comment."""
    config = tmp_path / "terraformrc"
    config.write_text("disable_checkpoint = true\n")
    environment = {"TF_CLI_CONFIG_FILE": str(config), "TF_IN_AUTOMATION": "1",
                   "TF_HTTP_USERNAME": "alice", "TF_HTTP_PASSWORD": "secret"}

    def terraform(*arguments):
        return start_script("terraform", *arguments, environment=environment)

    (tmp_path / "main.tf").write_text(terraform_backend.blocks[0] + RESOURCE)
    apply = ("apply", "-auto-approve", "-input=false", "-no-color")
    initial = terraform("init", "-input=false", "-no-color")
    assert initial.wait(60) == 0, initial.said()

    first = terraform(*apply)
    wait_until((tmp_path / "running").exists, 60.0, "Terraform runs")
    second = terraform(*apply)
    assert second.wait(60) == 1
    assert "Error acquiring the state lock" in second.said()
    identity = re.search(r"ID: +([0-9a-f-]{36})", second.said()).group(1)

    # the first Terraform dies, and leaves the lock
    first.kill()
    assert terraform(*apply).wait(60) == 1
    assert terraform("force-unlock", "-force", identity).wait(60) == 1
    terraform_backend.shell(terraform_backend.blocks[1].replace(
        "NAME:PASSWORD", "root:secret"))

    (tmp_path / "go").touch()
    last = terraform(*apply)
    assert last.wait(60) == 0, last.said()
    state = terraform_backend.call("GET", "/state/prod", None,
                                   basic("alice", "secret")).json
    assert [resource["name"] for resource in state["resources"]] == ["x"]
    assert terraform_backend.call("GET", "/locks/prod", None,
                                  basic("alice", "secret")).status == 404


# elections

class Candidate:
    """leader.sh, with a command that shows when it runs, and never beside the
    command of another candidate, unless the lock was taken away by force.
    """

    COMMAND = """
        mkdir "$0.room" || [ -e "$0.taken" ] || echo overlap >> "$0.bad"
        trap 'rmdir "$0.room"; exit 5' TERM
        echo "$1 $$ $LOCK_FENCING_TOKEN" >> "$0"
        until [ -e "$0.go" ]; do sleep 0.02; done
        rmdir "$0.room"
        exit 3
    """

    def __init__(self, start_script, example, directory, name):
        self.name = name
        self.script = start_script(
            examples.path("leader.sh"), "scheduler", "sh", "-c", self.COMMAND,
            str(directory / "leaders"), name, environment={
                "LOCKS": "http://127.0.0.1:%d/locks" % example.ports[8080],
                "CANDIDATE": name})


class Term:
    def __init__(self, name, pid, fencing):
        self.name = name
        self.pid = int(pid)
        self.fencing = int(fencing)


def test_election(make_example, start_script, tree, tmp_path):
    """The leader leaves, is killed, and loses the lock; a new leader follows
    each time.  After the first two changes the new leader starts when the last
    leader's command has ended.
    """
    example = make_example("election.conf").start()
    znode = example.znode("/locks/scheduler")
    listener = start_script("sh", "-c", "exec " + example.blocks[1])
    candidates = {name: Candidate(start_script, example, tmp_path, name)
                  for name in ("one", "two", "three", "four")}
    terms = []

    def leader():
        """The next term."""
        lines = wait_until(lambda: started(len(terms)), 30.0, "a new leader")
        terms.append(Term(*lines[len(terms)].split()))
        assert len(lines) == len(terms)
        return terms[-1]

    def heard_of(term):
        lines = listener.said().splitlines() or ["{}"]
        holders = json.loads(lines[-1]).get("holders", [])
        return [holder["owner"] for holder in holders] == [term.name]

    def started(number):
        try:
            lines = (tmp_path / "leaders").read_text().splitlines()
        except FileNotFoundError:
            return None
        return lines if len(lines) > number else None

    first = leader()
    wait_until(lambda: heard_of(first), what="the first is known")
    tree.wait_claims(znode, 4)
    script = candidates[first.name].script
    script.signal(signal.SIGTERM)
    second = leader()
    assert script.wait() == 128 + signal.SIGTERM
    assert not alive(first.pid)

    script = candidates[second.name].script
    script.signal(signal.SIGKILL)
    third = leader()
    wait_until(lambda: heard_of(third), what="the third is known")
    assert not alive(second.pid)
    assert script.wait() == -signal.SIGKILL

    # a candidate whose claim is taken away is a candidate again after learning
    # of the loss, which may be later than the next leader's start
    (tmp_path / "leaders.taken").touch()
    tree.delete(znode + "/" + tree.claims(znode)[0])
    fourth = leader()
    assert fourth.name != third.name
    wait_until(lambda: not alive(third.pid), what="the third has ended")
    tree.wait_claims(znode, 2)

    # a candidate whose command ends does not come back
    (tmp_path / "leaders.go").touch()
    for name in third.name, fourth.name:
        assert candidates[name].script.wait() == 3
    fifth = leader()
    assert fifth.name == third.name

    fencing = [term.fencing for term in terms]
    assert fencing == sorted(set(fencing))
    assert not (tmp_path / "leaders.bad").exists()
    tree.wait_claims(znode, 0)
    listener.signal(signal.SIGTERM)


# live servers

@pytest.fixture
def live_servers(start_script, make_example):
    """A function that starts live-servers.sh, and the gateway."""
    example = make_example("live-servers.conf").start()

    def start(*arguments):
        return start_script(
            examples.path("live-servers.sh"), *arguments, environment={
                "LOCKS": "http://127.0.0.1:%d/locks" % example.ports[8080]})

    return start, example


def test_live_servers(live_servers, tmp_path):
    start, _ = live_servers
    healthy = tmp_path / "healthy"
    watcher = start("watch", "web")
    wait_until(lambda: watcher.said() == "\n", what="nobody is there")

    def wait_list(*addresses):
        """The watcher and a list call see the same servers."""
        wait_until(lambda: (sorted(watcher.said().splitlines()[-1].split())
                            == sorted(addresses)),
                   30.0, "the list is %s" % (addresses,))
        script = start("list", "web")
        assert script.wait() == 0
        assert sorted(script.said().split()) == sorted(addresses)

    servers = {}
    for number in range(4):
        address = "10.0.0.%d:80" % number
        check = ("test", "-e", str(healthy)) if number == 3 else ()
        servers[address] = start("join", "web", address, *check)
    one, two, three, ill = servers
    wait_list(one, two, three)
    healthy.touch()
    wait_list(one, two, three, ill)

    servers[one].signal(signal.SIGTERM)
    wait_list(two, three, ill)
    assert servers[one].wait() == 128 + signal.SIGTERM

    # the gateway's next event reveals both
    servers[two].signal(signal.SIGKILL)
    healthy.unlink()
    wait_list(three)
    healthy.touch()
    wait_list(three, ill)

    for address in three, ill:
        servers[address].signal(signal.SIGTERM)
    wait_list()
    watcher.signal(signal.SIGTERM)


def test_live_servers_lose_their_gateway(live_servers):
    """The servers are listed again when the gateway is back."""
    start, example = live_servers
    server = start("join", "web", "10.0.0.1:80")

    def is_listed():
        return example.call("GET", "/locks/web").status == 200

    wait_until(is_listed, 20.0, "it is listed")
    example.gateway.terminate()
    example.gateway.start()
    wait_until(is_listed, 20.0, "it is listed again")
    server.signal(signal.SIGTERM)
    assert server.wait() == 128 + signal.SIGTERM


class Words(http.server.BaseHTTPRequestHandler):
    """Sends the server's words to each client; a stream stays open."""

    def do_POST(self):
        self.server.joined += 1
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.words)
        if self.server.words.startswith(b'{"event":'):
            self.server.over.wait()

    do_GET = do_POST

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def gateway_that_says(*words, status=200):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Words)
    server.joined = 0
    server.status = status
    server.url = "http://127.0.0.1:%d/locks" % server.server_address[1]
    server.words = b"".join(word + b"\n" for word in words)
    server.over = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_live_servers_may_be_queued(start_script, tmp_path):
    """A queued server waits on as long as signs of life come."""
    checks = tmp_path / "checks"
    with gateway_that_says(b'{"event":"queued","name":"web","position":0}',
                           b'{"event":"granted","name":"web"}',
                           b'{"event":"alive"}') as gateway:
        script = start_script(
            examples.path("live-servers.sh"), "join", "web", "10.0.0.1:80",
            "sh", "-c", 'echo >> "$0"', str(checks),
            environment={"LOCKS": gateway.url})
        wait_until(lambda: checks.exists() and checks.stat().st_size == 2,
                   what="it is asked again at the sign of life")
        assert script.said() == ""
        assert gateway.joined == 1
        script.signal(signal.SIGTERM)
        script.wait_gone()


PROBLEM = (b'{"type":"urn:zk-lock:not-found","title":"Not found",'
           b'"status":404,"detail":"no such claim"}')

NO_LISTS = {
    "unreachable": (503, b'{"status":503,"detail":"ZooKeeper is away"}'),
    "wrong path": (404, b"<html>\r\n<head><title>404</title></head></html>"),
    "wrong path within the API": (404, PROBLEM),
    "too many": (429, b'{"status":429,"detail":"too many calls"}'),
    "proxy": (502, b"<html>\r\n<head><title>502</title></head></html>"),
    "redirect": (302, b""),
    "nothing": (200, b""),
    "another page": (200, b"<html></html>"),
    "no stream": (200, b'{"name":"web","holders":[]}'),
    "torn": (200, b'{"event":"change","name":"web","holders":[{"owner":"a'),
}


@pytest.mark.parametrize("what", sorted(NO_LISTS))
def test_live_servers_without_a_list(start_script, what):
    """A script that feeds a balancer must not read this as an empty list."""
    status, words = NO_LISTS[what]
    with gateway_that_says(words, status=status) as gateway:
        script = start_script(examples.path("live-servers.sh"), "list", "web",
                              environment={"LOCKS": gateway.url})
        assert script.wait() == 1
    assert "live-servers.sh: " in script.said()
    assert gateway.url + "/web" in script.said()
    assert status == 200 or str(status) in script.said()


def test_live_servers_at_a_wrong_path(live_servers, start_script):
    _, example = live_servers
    port = example.ports[8080]
    for path in "", "locks/a", "lock":
        script = start_script(
            examples.path("live-servers.sh"), "list", "web", environment={
                "LOCKS": "http://127.0.0.1:%d/%s" % (port, path)})
        assert script.wait() == 1
        assert "live-servers.sh: " in script.said()


def test_live_servers_without_a_gateway(start_script):
    script = start_script(
        examples.path("live-servers.sh"), "list", "web",
        environment={"LOCKS": "http://127.0.0.1:%d/locks" % free_port()})
    assert script.wait() == 1
    assert "live-servers.sh: " in script.said()


CHANGE = json.dumps({
    "event": "change", "name": "web", "mode": "member", "held": 3,
    "holders": [
        {"owner": "10.0.0.1:80", "data": {"owner": "10.0.0.8:80"}},
        {"data": "\\", "from": "10.0.0.7"},
        {"owner": 'quoted "\u00e4"', "data": ['"owner":"10.0.0.9:80"']}],
    "queued": 1, "queue": [{"owner": "10.0.0.6:80"}]},
    separators=(",", ":")).encode()


@pytest.mark.parametrize("reader", ["jq", "python3", None])
def test_live_servers_reads_json(start_script, tmp_path, reader):
    """Owners of holders and no other text, with either program."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in ("cat", "curl", "mkfifo", "mktemp", "paste", "rm", "sed",
                    "sh", "sleep", "tail"):
        (programs / program).symlink_to(shutil.which(program))
    if reader:
        path = "/usr/bin/" + reader
        if not os.path.exists(path):
            pytest.skip("no " + path)
        (programs / reader).symlink_to(path)
    with gateway_that_says(CHANGE) as gateway:
        environment = {"LOCKS": gateway.url, "PATH": str(programs)}
        script = start_script(examples.path("live-servers.sh"), "list", "web",
                              environment=environment)
        code = script.wait()
        if reader is None:
            assert code == 1
            assert "jq" in script.said() and "python3" in script.said()
            assert gateway.joined == 0
            return
        assert (code, script.said()) == (
            0, '10.0.0.1:80\nquoted "\u00e4"\n')
        watcher = start_script(examples.path("live-servers.sh"), "watch",
                               "web", environment=environment)
        wait_until(lambda: watcher.said()
                   == '10.0.0.1:80 quoted "\u00e4"\n')
        watcher.signal(signal.SIGTERM)
        watcher.wait_gone()


def test_live_servers_are_joined_from_within(live_servers):
    """Other addresses may look, but not join."""
    _, example = live_servers
    assert example.call("GET", "/locks/web", source="127.0.0.2").status == 404
    for method in "POST", "PUT", "DELETE":
        assert example.call(method, "/locks/web", source="127.0.0.2"
                            ).status == 403


# run-once.sh

class Job:
    """A command for run-once.sh that runs until the test ends the command.

    The command writes the pid, the fencing token, and in the end "done" into a
    file.
    """

    SCRIPT = ('echo "$$ $LOCK_FENCING_TOKEN" >> "$0"\n'
              'until [ -e "$0.go" ]; do sleep 0.02; done\n'
              'echo done >> "$0"\n'
              'exit 3\n')

    def __init__(self, directory, before=""):
        self.path = str(directory / "job")
        self.command = ["sh", "-c", before + self.SCRIPT, self.path]

    def lines(self):
        try:
            with open(self.path) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def wait_running(self):
        """The pid of the job."""
        wait_until(self.lines, 20.0, "the job runs")
        return int(self.lines()[0].split()[0])

    def go(self):
        with open(self.path + ".go", "w"):
            pass


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def run_once(start_script, shared_gateway):
    """A function that starts run-once.sh."""
    def start(*arguments, gateway=shared_gateway, shell=None, **options):
        command = [shell] if shell else []
        command += [examples.path("run-once.sh"), "-u",
                    "http://127.0.0.1:%d/locks" % gateway.port]
        return start_script(*command, *arguments, **options)

    return start


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_locked(start_script, shared_gateway, tmp_path, name, job, shell):
    """The short script of docs/recipes.md."""
    path = tmp_path / "locked"
    path.write_text(examples.code(*LOCKED))
    script = start_script(shell, str(path), name, *job.command, environment={
        "LOCKS": "http://127.0.0.1:%d/locks" % shared_gateway.port})
    job.wait_running()
    holder, = shared_gateway.inspect(name).json["holders"]
    assert job.lines()[0].split()[1] == str(holder["fencing_token"])
    job.go()
    assert script.wait() == 3
    assert is_free(shared_gateway, name)
    assert script.said() == ""


@pytest.fixture
def start_locked(start_script, tmp_path, job):
    """A function that runs the short script at a URL, with the job."""
    path = tmp_path / "locked"
    path.write_text(examples.code(*LOCKED))

    def start(url, name, *command):
        return start_script("sh", str(path), name, *(command or job.command),
                            environment={"LOCKS": url})

    return start


@pytest.mark.parametrize("status, code", [
    (423, TAKEN), (429, OUT_OF_REACH), (500, OUT_OF_REACH),
    (502, OUT_OF_REACH), (503, OUT_OF_REACH), (301, USAGE), (400, USAGE),
    (403, USAGE), (404, USAGE), (409, USAGE)])
def test_locked_is_not_granted(start_locked, job, name, status, code):
    """75 is for a lock that is taken, and for no other refusal."""
    with gateway_that_says(b'{"detail":"this is why"}',
                           status=status) as gateway:
        script = start_locked(gateway.url, name)
        assert script.wait() == code
        assert gateway.joined == 1
    assert job.lines() == []
    assert script.said().startswith("locked: ")
    assert "is taken" in script.said() if status == 423 else (
        str(status) in script.said() and "this is why" in script.said())


def test_locked_by_its_name(start_locked, shared_gateway, job, name):
    url = "http://127.0.0.1:%d" % shared_gateway.port
    for path, wrong in (("/locks", ".."), ("/locks", "zookeeper"),
                        ("/locks", "a b"), ("/locks", ""), ("/lock", name)):
        script = start_locked(url + path, wrong)
        assert script.wait() == USAGE, wrong
        assert script.said().startswith("locked: ") or "curl: " in (
            script.said())
    assert job.lines() == []


def test_locked_without_a_command(start_script, tmp_path, name):
    """The script prints the usage, and sends no request."""
    path = tmp_path / "locked"
    path.write_text(examples.code(*LOCKED))
    with gateway_that_says(b"") as gateway:
        for arguments in (), (name,):
            script = start_script("sh", str(path), *arguments,
                                  environment={"LOCKS": gateway.url})
            assert script.wait() == USAGE
            assert "COMMAND" in script.said()
        assert gateway.joined == 0


def test_locked_without_a_gateway(start_locked, start_gateway, job, name):
    port = free_port()
    assert start_locked("http://127.0.0.1:%d/locks" % port, name
                        ).wait() == OUT_OF_REACH
    gateway = start_gateway(servers="127.0.0.1:%d" % port,
                            wait_sessions=False, location="zk_lock_wait 2s;")
    script = start_locked("http://127.0.0.1:%d/locks" % gateway.port, name)
    assert script.wait(60.0) == OUT_OF_REACH
    assert "503" in script.said()
    assert job.lines() == []


@pytest.mark.parametrize("shell", [None, "dash", "bash"])
def test_run_once(run_once, shared_gateway, tree, name, job, shell):
    script = run_once("-o", "nobody&co=1", name, *job.command, shell=shell)
    job.wait_running()
    holder, = shared_gateway.inspect(name).json["holders"]
    assert holder["owner"] == "nobody&co=1"
    assert job.lines()[0].split()[1] == str(holder["fencing_token"])
    job.go()
    assert script.wait() == 3
    assert job.lines()[1:] == ["done"]
    assert is_free(shared_gateway, name)
    assert script.said() == ""


def test_run_once_in_a_fleet(run_once, shared_gateway, name, job):
    """Eight at the same minute: one script runs the job, seven do not."""
    fleet = [run_once(name, *job.command) for _ in range(8)]
    wait_until(lambda: [script.process.poll() for script in fleet
                        ].count(TAKEN) == 7, 30.0, "seven have found it taken")
    job.go()
    assert sorted(script.wait() for script in fleet) == [3] + 7 * [TAKEN]
    assert len(job.lines()) == 2
    assert is_free(shared_gateway, name)


@pytest.mark.parametrize("command, code", [
    ("true", 0), ("exit 1", 1), ("exit 70", 70), ("exit 127", 127),
    ("kill -s KILL $$", 137), ("kill -s INT $$; exit 4", 4),
    ("exec /nonexistent/command", 127)])
def test_run_once_passes_on_the_exit_code(run_once, shared_gateway, name,
                                          command, code):
    assert run_once(name, "sh", "-c", command).wait() == code
    assert is_free(shared_gateway, name)


def test_run_once_without_a_command(run_once, shared_gateway, name):
    for arguments in ((), (name,), ("-x", name, "true"),
                      ("-t", "1m", name, "true"), ("-t", "5", name, "true"),
                      ("-g", "9", name, "true"), ("-w", "", name, "true")):
        assert run_once(*arguments).wait() == USAGE
    assert run_once(name, "/nonexistent/command").wait() == 127
    assert is_free(shared_gateway, name)


def test_run_once_and_names_that_curl_would_read(run_once, shared_gateway,
                                                 name):
    """Braces and brackets are parts of a name, and not a list of URLs."""
    for more in ("{1,2}", "[1-2]"):
        assert run_once(name + more, "true").wait() == 0
    for more in ("?owner=me", "#1"):
        assert run_once(name + more, "true").wait() == USAGE
    for more in ("", "1", "2"):
        assert is_free(shared_gateway, name + more)


@pytest.mark.parametrize("arguments, word", [
    (("-w", "5s"), "-w"), (("-w", "08"), "-w"), (("-t", "1m"), "-t"),
    (("-g", ""), "-g"), (("-m", "1.5"), "-m"), (("-x",), "-x"), (("-w",), "-w"),
    ((), "COMMAND"), (("-t", "5"), "-t"), (("-g", "9"), "-g")])
def test_run_once_says_which_argument(run_once, name, arguments, word):
    """A line names the argument, and a second line tells the usage."""
    more = (name, "true") if len(arguments) != 1 and arguments else ()
    script = run_once(*arguments, *more)
    assert script.wait() == USAGE
    lines = script.said().splitlines()
    assert len(lines) <= 2
    assert lines[0].startswith("run-once.sh: ") and word in lines[0]


def test_run_once_is_a_filter(run_once, name):
    read, write = os.pipe()
    script = run_once(name, "tr", "a-z", "A-Z", stdin=read)
    os.close(read)
    with open(write, "w") as file:
        file.write("what it reads\n")
    assert script.wait() == 0
    assert script.said() == "WHAT IT READS\n"


def test_run_once_waits(run_once, shared_gateway, tree, name, job):
    response = shared_gateway.hold(name)
    script = run_once("-w", "60", name, *job.command)
    tree.wait_claims(shared_gateway.znode(name), 2)
    assert job.lines() == []
    shared_gateway.release(name, response.token)
    job.wait_running()
    job.go()
    assert script.wait() == 3


def test_run_once_waits_for_nothing(run_once, shared_gateway, name, job):
    response = shared_gateway.hold(name)
    script = run_once("-w", "1", name, *job.command)
    assert script.wait() == TAKEN
    assert job.lines() == []
    shared_gateway.release(name, response.token)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP,
                                 signal.SIGKILL])
def test_run_once_ends_while_it_waits(run_once, shared_gateway, tree, name,
                                      job, how):
    response = shared_gateway.hold(name)
    script = run_once("-w", "60", name, *job.command)
    tree.wait_claims(shared_gateway.znode(name), 2)
    script.signal(how)
    assert script.wait() == (128 + how if how != signal.SIGKILL else -how)
    tree.wait_claims(shared_gateway.znode(name), 1)
    shared_gateway.release(name, response.token)
    script.wait_gone()
    assert job.lines() == []


def test_run_once_keeps_the_lock_for_a_while(run_once, shared_gateway, tree,
                                             name, job):
    """A machine with a late clock comes when the job is done already."""
    job.go()
    assert run_once("-m", "60", name, *job.command).wait() == 3
    assert run_once("-m", "60", name, *job.command).wait() == TAKEN
    assert len(job.lines()) == 2
    assert 10000 < expires_in(shared_gateway, name) <= 61000
    take_away(shared_gateway, tree, name)


def test_run_once_renews(run_once, shared_gateway, name, job):
    script = run_once("-t", "9", name, *job.command)
    job.wait_running()
    seen = [9000]

    def is_renewed():
        seen.append(expires_in(shared_gateway, name))
        return seen[-1] > seen[-2]

    for _ in range(2):
        wait_until(is_renewed, 20.0, "a renewal")
    job.go()
    assert script.wait() == 3
    assert is_free(shared_gateway, name)


class Spy:
    """A curl in front of the real curl that records requests and answers.
    """

    PROGRAM = """\
#!/bin/sh
PATH=${PATH#*:}
printf '%%s ' "$@" >> %s/asked
curl "$@" | tee -a %s/answered
"""

    def __init__(self, directory):
        directory.mkdir()
        self.directory = directory
        curl = directory / "curl"
        curl.write_text(self.PROGRAM % (directory, directory))
        curl.chmod(0o755)
        self.environment = {"PATH": "%s:%s" % (directory, os.environ["PATH"])}

    def asked(self):
        return (self.directory / "asked").read_text()

    def token(self):
        answered = (self.directory / "answered").read_text()
        return re.search('"token":"(.*?)"', answered).group(1)


@pytest.fixture
def spy(tmp_path):
    return Spy(tmp_path / "spy")


def test_run_once_keeps_the_secret(run_once, shared_gateway, tmp_path, name,
                                   spy):
    """The token is in no command line, and the command cannot see it."""
    # the shell would pass variables from outside on to the command
    outside = {"token": "mine", "answer": "yes", "secret": "none"}
    job = Job(tmp_path, before='env > "$0.env"\n')
    script = run_once("-t", "8", name, *job.command,
                      environment=dict(spy.environment, **outside))
    job.wait_running()
    assert shared_gateway.inspect(name, spy.token()).json["state"] == "held"
    wait_until(lambda: "PUT" in spy.asked(), 20.0, "a renewal")
    job.go()
    assert script.wait() == 3
    assert "DELETE" in spy.asked()
    assert spy.token() not in spy.asked()
    assert spy.token() not in (tmp_path / "job.env").read_text()


@pytest.mark.parametrize("how", ["TERM", "HUP", "USR1", "INT"])
def test_run_once_passes_on_signals(run_once, shared_gateway, tmp_path, name,
                                    how):
    received = "TERM" if how == "INT" else how
    job = Job(tmp_path, before="trap 'exit 9' %s\n" % received)
    script = run_once(name, *job.command)
    job.wait_running()
    script.signal(getattr(signal, "SIG" + how))
    assert script.wait() == 9
    assert job.lines()[1:] == []
    assert is_free(shared_gateway, name)


def test_run_once_bears_a_signal_that_its_job_bears(run_once, name, tmp_path):
    job = Job(tmp_path, before="trap 'echo trapped >> \"$0\"' TERM\n")
    script = run_once(name, *job.command)
    job.wait_running()
    script.signal(signal.SIGTERM)
    wait_until(lambda: job.lines()[1:] == ["trapped"])
    job.go()
    assert script.wait() == 3


@pytest.mark.parametrize("before", ["", "trap '' TERM\n", "sh -c 'trap \"\" "
                                    "TERM; while :; do sleep 1; done' &\n"])
def test_run_once_loses_the_lock(run_once, shared_gateway, tree, tmp_path,
                                 name, before):
    """The claim goes: the job ends, willing or not, with all children."""
    job = Job(tmp_path, before)
    script = run_once("-t", "8", name, *job.command)
    pid = job.wait_running()
    take_away(shared_gateway, tree, name)
    assert script.wait() == LOST
    assert not alive(pid)
    assert job.lines()[1:] == []
    assert "the lock is lost" in script.said()
    script.wait_gone()


def test_run_once_learns_it_at_the_end(run_once, shared_gateway, name, job,
                                       spy):
    """The job is done before the next renewal: too late to help."""
    script = run_once("-t", "3600", name, *job.command,
                      environment=spy.environment)
    job.wait_running()
    assert shared_gateway.release(name, spy.token()).status == 204
    job.go()
    assert script.wait() == LOST
    assert job.lines()[1:] == ["done"]
    assert "the lock was lost" in script.said()


def test_run_once_loses_its_gateway(run_once, start_gateway, tree, tmp_path,
                                    name):
    """nginx is killed; the job is dead while ZooKeeper has the claim."""
    gateway = start_gateway(session_timeout="15s")
    job = Job(tmp_path, before="trap '' TERM\n")
    script = run_once("-t", "8", name, *job.command, gateway=gateway)
    pid = job.wait_running()
    gateway.kill()
    assert script.wait() == LOST
    assert not alive(pid)
    assert "the lock is lost" in script.said()
    tree.wait_claims(gateway.znode(name), 1)
    tree.wait_claims(gateway.znode(name), 0, 30)


def test_run_once_is_cut_off(run_once, shared_gateway, start_gateway, tree,
                             tmp_path, name):
    """The proxy between script and gateway dies, and the gateway does not
    notice: the job is dead while the lease lasts.
    """
    front = start_gateway(servers=None, server=(
        "location /locks/ {\n    proxy_pass http://127.0.0.1:%d;\n}"
        % shared_gateway.port))
    job = Job(tmp_path, before="trap '' TERM\n")
    script = run_once("-t", "8", name, *job.command, gateway=front)
    pid = job.wait_running()
    front.kill()
    assert script.wait() == LOST
    assert not alive(pid)
    assert expires_in(shared_gateway, name) > 0
    take_away(shared_gateway, tree, name)


@pytest.mark.parametrize("whom", ["script", "group"])
@pytest.mark.parametrize("before", ["", "trap '' TERM\n"])
def test_run_once_is_killed(run_once, shared_gateway, tmp_path, name, whom,
                            before):
    """After -9 on the script the job soon ends, and the lock is free."""
    job = Job(tmp_path, before)
    script = run_once(name, *job.command)
    pid = job.wait_running()
    if whom == "group":
        os.killpg(script.pid, signal.SIGKILL)
    else:
        script.signal(signal.SIGKILL)
    # the script is a zombie, because no process waited yet: alive() is enough
    wait_until(lambda: not alive(pid), what="the job is dead")
    wait_until(lambda: is_free(shared_gateway, name), what="it is free")
    assert script.wait() == -signal.SIGKILL
    script.wait_gone()
    assert job.lines()[1:] == []


def test_run_once_without_setsid(run_once, shared_gateway, tmp_path, name):
    """Without setsid, a job that starts no other process ends as well."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in ("cat", "curl", "id", "mkfifo", "mktemp", "rm", "sed",
                    "sh", "sleep", "uname"):
        (programs / program).symlink_to(shutil.which(program))
    job = Job(tmp_path)
    job.command = ["sh", "-c", 'echo $$ >> "$0"; exec sleep 60', job.path]
    script = run_once(name, *job.command, environment={"PATH": str(programs)})
    pid = job.wait_running()
    script.signal(signal.SIGKILL)
    wait_until(lambda: not alive(pid), what="the job is dead")
    wait_until(lambda: is_free(shared_gateway, name), what="it is free")
    assert script.wait() == -signal.SIGKILL


def test_run_once_and_all_its_helpers_are_killed(run_once, shared_gateway,
                                                 name, job):
    """No process can release: the lock is free when the lease is over."""
    script = run_once("-t", "8", name, *job.command)
    job.wait_running()
    script.kill()
    assert not is_free(shared_gateway, name)
    wait_until(lambda: is_free(shared_gateway, name), 20.0, "it is free")


def test_run_once_without_a_gateway(run_once, start_gateway, name, job):
    gateway = start_gateway(servers="127.0.0.1:%d" % free_port(),
                            wait_sessions=False)
    assert run_once(name, *job.command, gateway=gateway).wait() == (
        OUT_OF_REACH)
    gateway.stop()
    assert run_once(name, *job.command, gateway=gateway).wait() == (
        OUT_OF_REACH)
    assert job.lines() == []


def test_run_once_wants_its_lease(run_once, start_gateway, name, job):
    """The script refuses a shortened lease, which needs sooner renewals."""
    gateway = start_gateway(location="zk_lock_max_ttl 9s;")
    assert run_once(name, *job.command, gateway=gateway).wait() == (
        OUT_OF_REACH)
    assert is_free(gateway, name)
    assert job.lines() == []


# quickstart

@pytest.mark.plain("it builds the module for Debian's nginx")
def test_quickstart(start_script, private_zookeeper):
    """The printed JSON is valid, and the hint for a lost token works."""
    private_zookeeper.start()
    port = free_port()
    script = start_script("env", "-u", "NGINX_BIN", "-u", "ZK_LOCK_MODULE",
                          os.path.join(TREE, "quickstart"), "--port",
                          str(port), "--zookeeper", private_zookeeper.address)
    wait_until(lambda: "Ctrl-C ends it all" in script.said()
               or script.process.poll() is not None, 300.0, "it is your turn")
    text = script.said()
    answers = [json.loads(answer) for answer
               in re.findall(r"(?m)^\{\n(?: .*\n)+\}$", text)]
    assert [answer.get("name", answer.get("status")) for answer in answers] == [
        "demo", 423, "demo", "demo"]

    with Connection(port) as connection:
        def acquire():
            return connection.request("POST", "/locks/mine", {"wait": "0"})

        assert acquire().status == 201
        assert acquire().status == 423
        line, = re.findall(r"(?m)^  (curl .*force=1.*)$", text)
        forced = start_script("sh", "-c", line)
        assert forced.wait() == 0
        assert "204 No Content" in forced.said()
        assert acquire().status == 201
    script.signal(signal.SIGINT)
    assert script.wait() == 0
