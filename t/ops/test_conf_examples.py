"""The files of conf-examples/ do what they say.

Each configuration runs in nginx with the addresses and paths of the test (see
lib/examples.py).
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
import socket
import threading

import pytest

from lib import examples
from lib.backend import Backend
from lib.checks import problem, retry_after
from lib.client import Connection, lock_path
from lib.examples import Example
from lib.gateway import TREE
from lib.jobs import (OUT_OF_REACH, TAKEN, USAGE, ZK_LOCK, gateway_that_says,
                      is_free)
from lib.process import alive, free_port, wait_until

NUMBERS = itertools.count(1)
LOCKED = ("docs/recipes.md", "A command under a lock")


@pytest.fixture
def name():
    """A lock that only this test uses."""
    return "lock%d" % next(NUMBERS)


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


@pytest.mark.parametrize("host, status", [
    ("127.0.0.1", 201), ("localhost", 201), ("localhost:8080", 201),
    (socket.gethostname(), 201), ("evil.example.com", 421),
    ("127.0.0.1.evil.example.com:8080", 421), ("0.0.0.0:8080", 421)])
def test_another_name_is_refused(make_example, host, status):
    """A page of a name that its owner leads to 127.0.0.1 is of that origin."""
    example = make_example("minimal.conf").start()
    own = {"Host": host, "Origin": "http://" + host,
           "Sec-Fetch-Site": "same-origin"}
    assert example.call("POST", "/locks/x", None, own).status == status


@pytest.mark.parametrize("name", [
    "minimal.conf", "limits.conf", "election.conf", "live-servers.conf"])
def test_a_log_has_no_token(make_example, name):
    """Of a client that follows the Location of its grant."""
    example = make_example(name).start()
    held = example.hold("/locks/x")
    assert example.call("PUT", held.headers["Location"]).status == 200
    assert example.call("DELETE", held.headers["Location"]).status == 204

    def log():
        with open(os.path.join(example.gateway.prefix, "access.log"),
                  encoding="utf-8") as file:
            return file.read()

    wait_until(lambda: " DELETE x 204 " in log(), 15.0, "the line")
    assert held.token not in log()


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
        if "hold=connection" in call:
            wait_until(lambda: "HTTP/1.1 %s " % status in script.said(), 20.0,
                       "%s of %s" % (status, call))
            script.kill()
            continue
        assert script.wait() == 0
        assert "HTTP/1.1 %s " % status in script.said(), call
        found = re.search(r"(?m)^Lock-Token: (\S+)", script.said())
        token = token or found.group(1)


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
    wait_until(lambda: re.search("granted|change", script.said()), 20.0,
               "an event")
    script.kill()
    for name in "web", "nightly", "x":
        wait_until(lambda name=name: is_free(gateway, name), 20.0)


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
    response = example.hold("/locks/a%20b", {"ttl": "50s"},
                            {"X-User": "alice"}, body)
    call = seen[-1]
    assert call["X-Original-Method"] == "POST"
    assert call["X-Original-URI"] == "/locks/a%20b?ttl=50s"
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
    connections = [example.connect(greedy) for _ in range(4)]

    def is_refused():
        request = b"GET /locks/x HTTP/1.1\r\nHost: a\r\n\r\n"
        for connection in connections:
            connection.send_bytes(100 * request)
        statuses = {connection.response().status
                    for connection in connections for _ in range(100)}
        return 429 in statuses

    wait_until(is_refused, 30.0, "too many calls")
    for connection in connections:
        connection.close()
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


# a lock around a request

@pytest.fixture
def make_backend():
    """A function that makes an application; all of them end with the test."""
    with contextlib.ExitStack() as made:
        def make():
            return made.enter_context(contextlib.closing(Backend()))

        yield make


@pytest.fixture
def backend(make_backend):
    return make_backend()


@pytest.fixture
def make_front(make_example):
    """A function that makes an example in front of backends, not started yet.

    The backends take the place of the example's ports 9000, 9001 and so on.
    """
    def make(name, *backends, ports=(8080,)):
        text = examples.read(name)
        for port, backend in enumerate(backends, 9000):
            assert "127.0.0.1:%d" % port in text
            text = text.replace("127.0.0.1:%d" % port, backend.address)
        return make_example(name, ports, text)

    return make


def deploy(example, environment="staging", method="POST"):
    return example.connect().send(method, "/deploy/" + environment)


def answered(client, seen, body=b"done\n"):
    """The backend answers, and the client gets the answer."""
    seen.answer(200, body)
    response = client.response()
    assert (response.status, response.body) == (200, body)


def test_deploy(make_front, backend, tree):
    """One at a time for each environment, in order of the fencing tokens."""
    example = make_front("deploy.conf", backend).start()
    znode = example.znode("/locks/deploy-staging")
    first = deploy(example)
    one = backend.next()
    second = deploy(example)
    tree.wait_claims(znode, 2)

    for more in ("production", "POST"), ("staging", "GET"):
        answered(deploy(example, *more), backend.next())
    assert backend.idle() and len(tree.claims(znode)) == 2

    answered(first, one)
    other = backend.next()
    answered(second, other)
    tokens = [int(seen.headers["X-Fencing-Token"]) for seen in (one, other)]
    assert tokens[0] < tokens[1]
    tree.wait_claims(znode, 0)


def test_deploy_through_any_gateway(make_front, backend, tree):
    gateways = [make_front("deploy.conf", backend).start() for _ in range(2)]
    znode = gateways[0].znode("/locks/deploy-staging")
    clients = [deploy(gateways[0])]
    seen = backend.next()
    clients.append(deploy(gateways[1]))
    tree.wait_claims(znode, 2)
    assert backend.idle()
    answered(clients[0], seen)
    answered(clients[1], backend.next())
    tree.wait_claims(znode, 0)


def test_deploy_too_late(make_front, backend, tree):
    """The wait is over: the text; the test does not wait for 20 seconds."""
    example = make_front("deploy.conf", backend)
    assert example.text.count("wait=20s") == 1
    example.text = example.text.replace("wait=20s", "wait=300ms")
    example.start()
    first = deploy(example)
    seen = backend.next()
    response = deploy(example).response()
    assert response.status == 423
    assert response.headers["Content-Type"] == "text/plain"
    retry_after(response)
    assert response.body == b"Another deploy of staging is under way.\n"
    assert backend.idle()
    answered(first, seen)
    tree.wait_claims(example.znode("/locks/deploy-staging"), 0)


def test_deploy_of_what_is_no_environment(make_front, backend, tree):
    """No name for one environment leads to another lock."""
    example = make_front("deploy.conf", backend).start()
    for path in "/deploy/", "/deploy/a/b", "/deploy/Staging", "/deploy/a%20":
        assert example.call("POST", path).status == 404
    client = example.connect().send("POST", "/deploy/%73taging")
    seen = backend.next()
    assert len(tree.claims(example.znode("/locks/deploy-staging"))) == 1
    answered(client, seen)


def test_reports(make_front, make_backend, start_gateway, tree):
    """Three at once in the whole cluster, and the next when one is done."""
    reports, legacy = make_backend(), make_backend()
    gateways = [make_front("reports.conf", reports, legacy).start()
                for _ in range(2)]
    znode = gateways[0].znode("/locks/reports")
    api = start_gateway(root=gateways[0].znode("/locks"))
    clients = [gateways[i % 2].connect().send("GET", "/reports/%d" % i)
               for i in range(6)]
    tree.wait_claims(znode, 6)
    content = api.inspect("reports").json
    assert (len(content["holders"]), content["queued"]) == (3, 3)

    inside = [reports.next() for _ in range(3)]
    for left in range(6, 0, -1):
        assert reports.idle()
        seen = inside.pop(0)
        answered(clients[int(seen.path.split("/")[-1])], seen)
        if left > 3:
            inside.append(reports.next())
    tree.wait_claims(znode, 0)


def test_reports_without_zookeeper(make_front, make_backend):
    """A limit of load yields; a lock that protects does not."""
    reports, legacy = make_backend(), make_backend()
    example = make_front("reports.conf", reports, legacy)
    example.text = example.text.replace(example.gateway.zookeeper.address,
                                        "127.0.0.1:%d" % free_port())
    example.text = example.text.replace("wait=30s", "wait=300ms")
    example.start(wait_sessions=False)
    client = example.connect().send("GET", "/reports/sales")
    answered(client, reports.next())
    problem(example.call("GET", "/legacy/"), 503)
    assert legacy.idle()


def test_legacy(make_front, make_backend, tree):
    """One at a time; ten wait, and the next is refused at once."""
    reports, legacy = make_backend(), make_backend()
    example = make_front("reports.conf", reports, legacy).start()
    znode = example.znode("/locks/legacy")
    clients = []
    for number in range(1, 12):
        clients.append(example.connect().send("GET", "/legacy/"))
        tree.wait_claims(znode, number)
    response = example.call("GET", "/legacy/")
    problem(response, 429)
    retry_after(response)
    for client in clients:
        seen = legacy.next()
        assert legacy.idle()
        answered(client, seen)
    assert legacy.total == 11
    tree.wait_claims(znode, 0)


@pytest.fixture
def webdav(make_example):
    example = make_example("webdav.conf")
    os.makedirs(os.path.join(example.gateway.prefix, "webdav", "files"))
    return example.start()


def put(example, path, body, token=None):
    headers = {"Lock-Token": token} if token else None
    return example.call("PUT", path, None, headers, body)


def test_webdav_call(webdav, tree):
    """The commands of the comment."""
    webdav.shell(webdav.blocks[0])
    assert webdav.call("GET", "/files/a/b.txt").status == 200
    tree.wait_claims(webdav.znode("/locks/files%2Fa%2Fb.txt"), 0)


def test_webdav(webdav):
    """While the lock is held, the holder alone writes; all may read."""
    path, lock = "/files/a.txt", "/locks/files%2Fa.txt"
    assert put(webdav, path, b"free").status == 201
    held = webdav.hold(lock)
    content = problem(put(webdav, path, b"no token"), 423)
    assert content["holder"]["fencing_token"] == held.fencing
    problem(webdav.call("DELETE", path), 423)
    other = webdav.hold("/locks/files%2Fb.txt")
    problem(put(webdav, path, b"another lock's", other.token), 412)
    assert put(webdav, "/files/b.txt", b"b", other.token).status == 201
    assert webdav.call("GET", path).body == b"free"

    assert put(webdav, path, b"held", held.token).status == 204
    assert webdav.call("GET", path).body == b"held"
    assert webdav.call("DELETE", path, None, {
        "Lock-Token": held.token}).status == 204
    assert webdav.call("GET", path).status == 404
    release(webdav, "files/a.txt", held)
    release(webdav, "files/b.txt", other)


def test_webdav_too_late(webdav, tree):
    """A client whose lock was lost writes no more."""
    path, lock = "/files/a.txt", "/locks/files%2Fa.txt"
    late = webdav.hold(lock)
    znode = webdav.znode(lock)
    claim, = tree.claims(znode)
    tree.delete(znode + "/" + claim)
    problem(put(webdav, path, b"late", late.token), 412)
    held = webdav.hold(lock)
    assert put(webdav, path, b"new", held.token).status == 201
    problem(put(webdav, path, b"late", late.token), 412)
    assert webdav.call("GET", path).body == b"new"
    release(webdav, "files/a.txt", held)
    problem(put(webdav, path, b"late", late.token), 412)
    assert put(webdav, path, b"free").status == 204


def test_webdav_and_collections(webdav):
    """A collection is made; no request goes around the lock of a file."""
    assert webdav.call("MKCOL", "/files/c/").status == 201
    held = webdav.hold("/locks/files%2Fc%2Fa.txt")
    assert put(webdav, "/files/c/a.txt", b"a", held.token).status == 201
    for path in "/files/c//a.txt", "/files/c/./a.txt", "/files/%63/a.txt":
        problem(put(webdav, path, b"b"), 423)
    assert put(webdav, "/files/b.txt", b"b").status == 201
    for method, path in (("MOVE", "/files/b.txt"), ("COPY", "/files/b.txt"),
                         ("DELETE", "/files/c/"), ("DELETE", "/files/c"),
                         ("DELETE", "/files/")):
        response = webdav.call(method, path, None, {
            "Destination": "http://localhost/files/c/a.txt", "Depth":
            "infinity", "Overwrite": "T"})
        assert response.status in (405, 409), (method, path)
    assert webdav.call("GET", "/files/c/a.txt").body == b"a"
    release(webdav, "files/c/a.txt", held)


@pytest.fixture
def make_warm(make_front, backend, tmp_path):
    """A function that makes gateways, with one directory for all or not."""
    def make(shared=True):
        example = make_front("warm.conf", backend, ports=(8080, 8081))
        directory = tmp_path / "warm"
        if not shared:
            directory = tmp_path / ("warm%d" % example.ports[8080])
        directory.mkdir(exist_ok=True)
        os.symlink(str(directory), example.gateway.prefix + "/warm")
        with open(example.gateway.prefix + "/mime.types", "w",
                  encoding="utf-8") as file:
            file.write("types {\n    image/png png;\n}\n")
        return example.start()

    return make


def tile(example, path="/tiles/1/2.png", method="GET", headers=None):
    return example.connect().send(method, path, None, headers)


def test_warm(make_warm, backend, tree):
    """Several clients of two gateways ask at once: the origin is asked once.
    """
    gateways = [make_warm(), make_warm()]
    znode = gateways[0].znode("/locks/tiles%2F1%2F2.png")
    clients = [tile(gateways[0])]
    seen = backend.next()
    clients += [tile(gateways[i % 2]) for i in range(1, 6)]
    tree.wait_claims(znode, 2)
    assert backend.idle()
    seen.answer(200, b"a picture")
    for client in clients:
        response = client.response()
        assert (response.status, response.body) == (200, b"a picture")
    assert backend.total == 1

    # and from now on no gateway takes the lock
    for gateway in gateways:
        response = tile(gateway).response()
        assert response.headers["X-Cache"] == "HIT"
    response = tile(gateways[0], "/tiles/1/2.png?x=1").response()
    assert response.headers["X-Cache"] == "HIT"
    assert backend.total == 1
    tree.wait_claims(znode, 0)


def test_warm_without_a_common_directory(make_warm, backend, tree):
    """As the comment says: one request at a time, and one of each gateway."""
    gateways = [make_warm(shared=False), make_warm(shared=False)]
    znode = gateways[0].znode("/locks/tiles%2F1%2F2.png")
    clients = [tile(gateways[0])]
    seen = backend.next()
    clients.append(tile(gateways[1]))
    tree.wait_claims(znode, 2)
    assert backend.idle()
    answered(clients[0], seen, b"a picture")
    answered(clients[1], backend.next(), b"a picture")
    assert backend.total == 2
    tree.wait_claims(znode, 0)


def test_warm_when_the_origin_fails(make_warm, backend, tree):
    """An error is not stored: the next request asks again."""
    gateways = [make_warm(), make_warm()]
    znode = gateways[0].znode("/locks/tiles%2F1%2F2.png")
    clients = [tile(gateways[0])]
    seen = backend.next()
    clients.append(tile(gateways[1]))
    tree.wait_claims(znode, 2)
    seen.answer(500, b"not now")
    assert clients[0].response().status == 500
    answered(clients[1], backend.next(), b"a picture")
    assert tile(gateways[0]).response().body == b"a picture"
    assert backend.total == 2
    tree.wait_claims(znode, 0)


def test_warm_is_told_alike_by_all(make_warm, backend):
    """A file has no header: what is stored is not compressed, and has a type.
    """
    gateways = [make_warm(), make_warm()]
    client = tile(gateways[0], headers={"Accept-Encoding": "gzip"})
    seen = backend.next()
    assert "Accept-Encoding" not in seen.headers
    seen.answer(200, b"a picture", {"Content-Type": "image/png"})
    for response in client.response(), tile(gateways[1]).response():
        assert response.body == b"a picture"
        assert response.headers["Content-Type"] == "image/png"
    assert backend.total == 1


def test_warm_of_other_requests(make_warm, backend):
    example = make_warm()
    for method, path, status in (("POST", "/tiles/1.png", 403),
                                 ("PUT", "/tiles/1.png", 403),
                                 ("GET", "/tiles/", 404),
                                 ("GET", "/tiles/1/", 404)):
        assert tile(example, path, method).response().status == status
    head = tile(example, method="HEAD")
    seen = backend.next()
    assert seen.method == "GET"
    seen.answer(200, b"a picture")
    assert head.response().status == 200
    assert tile(example).response().body == b"a picture"
    assert backend.total == 1


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


def test_terraform_state_needs_its_lock(terraform_backend):
    """A state is written by the run that holds the state's lock alone."""
    def call(method, path, body=None, identity=None, user="alice"):
        return terraform_backend.call(
            method, path, {"ID": identity} if identity else None,
            basic(user, "secret"), body)

    def put(serial, identity=None, state="/state/team/prod"):
        return call("PUT", state, {"serial": serial}, identity)

    one, other = run_info(1, "alice@one"), run_info(2, "alice@other")
    first, second = one["ID"], other["ID"]
    lock = "/locks/team%2Fprod"

    problem(put(1), 423)
    problem(put(1, "anything"), 412)
    assert call("LOCK", lock, one).status == 200
    assert put(1, first).status == 201
    for identity, status in (None, 423), ("anything", 412), (second, 412):
        problem(put(9, identity), status)
        problem(call("DELETE", "/state/team/prod", None, identity), status)
    problem(put(9, first, "/state/prod"), 412)
    assert call("GET", "/state/team/prod").json == {"serial": 1}

    # the holder of "team/" deletes no state in the folder
    folder = run_info(3, "alice@folder")
    assert call("LOCK", "/locks/team%2F", folder).status == 200
    assert call("DELETE", "/state/team/", None, folder["ID"]).status >= 400
    assert call("UNLOCK", "/locks/team%2F", folder).status == 200
    assert call("GET", "/state/team/prod").json == {"serial": 1}

    # an admin breaks the lock: the first run is late
    assert call("UNLOCK", "/force/team%2Fprod", user="root").status == 200
    problem(put(9, first), 412)
    assert call("LOCK", lock, other).status == 200
    problem(put(9, first), 412)
    assert put(2, second).status == 204
    assert call("GET", "/state/team/prod").json == {"serial": 2}
    assert call("UNLOCK", lock, other).status == 200
    problem(put(9, second), 412)


RESOURCE = """
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "echo >> running; until [ -e go ]; do sleep 0.05; done"
  }
}
"""


APPLY = ("apply", "-auto-approve", "-input=false", "-no-color")


@pytest.fixture
def terraform(terraform_backend, start_script, tmp_path):
    """A function that starts Terraform, with the backend of the comment."""
    if not shutil.which("terraform"):
        pytest.skip("no Terraform here")
    config = tmp_path / "terraformrc"
    config.write_text("disable_checkpoint = true\n")
    environment = {"TF_CLI_CONFIG_FILE": str(config), "TF_IN_AUTOMATION": "1",
                   "TF_HTTP_USERNAME": "alice", "TF_HTTP_PASSWORD": "secret"}

    def start(*arguments):
        return start_script("terraform", *arguments, environment=environment)

    (tmp_path / "main.tf").write_text(terraform_backend.blocks[0] + RESOURCE)
    initial = start("init", "-input=false", "-no-color")
    assert initial.wait(60) == 0, initial.said()
    return start


def break_lock(terraform_backend):
    """The command of the comment."""
    terraform_backend.shell(terraform_backend.blocks[1].replace(
        "NAME:PASSWORD", "root:secret"))


def test_terraform(terraform_backend, terraform, tmp_path):
    """Terraform itself: a lock that is taken, and one that is left behind."""
    first = terraform(*APPLY)
    wait_until((tmp_path / "running").exists, 60.0, "Terraform runs")
    second = terraform(*APPLY)
    assert second.wait(60) == 1
    assert "Error acquiring the state lock" in second.said()
    identity = re.search(r"ID: +([0-9a-f-]{36})", second.said()).group(1)

    # the first Terraform dies, and leaves the lock
    first.kill()
    assert terraform(*APPLY).wait(60) == 1
    assert terraform("force-unlock", "-force", identity).wait(60) == 1
    break_lock(terraform_backend)

    (tmp_path / "go").touch()
    last = terraform(*APPLY)
    assert last.wait(60) == 0, last.said()
    state = terraform_backend.call("GET", "/state/prod", None,
                                   basic("alice", "secret")).json
    assert [resource["name"] for resource in state["resources"]] == ["x"]
    assert terraform_backend.call("GET", "/locks/prod", None,
                                  basic("alice", "secret")).status == 404


def test_terraform_comes_too_late(terraform_backend, terraform, tmp_path):
    """A run whose lock was broken does not write the state."""
    run = terraform(*APPLY)
    wait_until((tmp_path / "running").exists, 60.0, "Terraform runs")
    break_lock(terraform_backend)
    (tmp_path / "go").touch()
    assert run.wait(60) == 1
    assert "412" in run.said()
    assert terraform_backend.call("GET", "/state/prod", None,
                                  basic("alice", "secret")).status == 404

    push = terraform("state", "push", "errored.tfstate")
    assert push.wait(60) == 0, push.said()
    assert terraform_backend.call("GET", "/state/prod", None,
                                  basic("alice", "secret")).status == 200


def test_terraform_without_the_lock(terraform_backend, terraform, tmp_path):
    """-lock=false: Terraform may look, and writes nothing."""
    (tmp_path / "go").touch()
    assert terraform("plan", "-lock=false", "-no-color").wait(60) == 0
    run = terraform(*APPLY, "-lock=false")
    assert run.wait(60) == 1
    assert "423" in run.said()
    assert terraform_backend.call("GET", "/state/prod", None,
                                  basic("alice", "secret")).status == 404


# elections



def example_url(example):
    return {"ZK_LOCK_URL": "http://127.0.0.1:%d/locks" % example.ports[8080]}


class Candidate:
    """zk-lock lead, with a command that shows when it runs, and never beside
    the command of another candidate, unless the lock was taken away by force.
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
            ZK_LOCK, "lead", "-t", "15", "-o", name, "scheduler", "--", "sh",
            "-c", self.COMMAND, str(directory / "leaders"), name,
            environment=example_url(example))


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
        lines = [line for line in listener.said().split("\n")[:-1]
                 if '"holders"' in line]
        return lines != [] and [holder["owner"] for holder in json.loads(
            lines[-1])["holders"]] == [term.name]

    def started(number):
        try:
            lines = (tmp_path / "leaders").read_text().splitlines()
        except FileNotFoundError:
            return None
        return lines if len(lines) > number else None

    first = leader()
    wait_until(lambda: heard_of(first), 20.0, "the first is known")
    tree.wait_claims(znode, 4, 20)
    script = candidates[first.name].script
    script.signal(signal.SIGTERM)
    second = leader()
    assert script.wait() == 5
    assert not alive(first.pid)

    script = candidates[second.name].script
    script.signal(signal.SIGKILL)
    third = leader()
    wait_until(lambda: heard_of(third), 20.0, "the third is known")
    assert not alive(second.pid)
    assert script.wait() == -signal.SIGKILL

    # a candidate whose claim is taken away is a candidate again after learning
    # of the loss, which may be later than the next leader's start
    (tmp_path / "leaders.taken").touch()
    tree.delete(znode + "/" + tree.claims(znode)[0])
    fourth = leader()
    assert fourth.name != third.name
    wait_until(lambda: not alive(third.pid), 20.0, "the third has ended")
    tree.wait_claims(znode, 2, 20)

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
    """A function that starts zk-lock, and the gateway."""
    example = make_example("live-servers.conf").start()

    def start(*arguments):
        return start_script(ZK_LOCK, *arguments,
                            environment=example_url(example))

    return start, example


def test_live_servers(live_servers, tmp_path):
    start, _ = live_servers
    healthy = tmp_path / "healthy"
    watcher = start("watch", "--owners", "web")
    wait_until(lambda: watcher.said() == "\n", what="nobody is there")

    def wait_list(*addresses):
        """The watcher and a list call see the same servers."""
        wait_until(lambda: (sorted(watcher.said().splitlines()[-1].split())
                            == sorted(addresses)),
                   30.0, "the list is %s" % (addresses,))
        script = start("show", "--owners", "web")
        assert script.wait() == 0
        assert sorted(script.said().split()) == sorted(addresses)

    servers = {}
    for number in range(4):
        address = "10.0.0.%d:80" % number
        check = ("test", "-e", str(healthy)) if number == 3 else ()
        servers[address] = start("join", "-t", "30", "web", address, *check)
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


def test_live_servers_are_joined_from_within(live_servers):
    """Other addresses may look, but not join."""
    _, example = live_servers
    assert example.call("GET", "/locks/web", source="127.0.0.2").status == 404
    for method in "POST", "PUT", "DELETE":
        assert example.call(method, "/locks/web", source="127.0.0.2"
                            ).status == 403


# the short script of docs/recipes.md

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
    for path, wrong in (("/locks", ".."), ("/locks", "team/"),
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


# balancers

def balancers():
    """Each text that may have an upstream of gateways: (where, text)."""
    for top in "docs", "conf-examples", "docker", "kubernetes":
        for directory, _, files in os.walk(os.path.join(TREE, top)):
            for file in files:
                path = os.path.join(directory, file)
                with open(path, encoding="utf-8") as text:
                    yield os.path.relpath(path, TREE), text.read()


def test_no_balancer_counts_faults():
    """Each gateway of an upstream says max_fails=0; an upstream of gateways is
    one that locks or gateways are the name of, or a file that one includes.
    """
    seen = []
    for where, text in balancers():
        upstreams = re.findall(
            r"(?ms)^ *upstream (?:locks|gateways) \{\n(.*?)\}", text)
        if os.path.basename(where) == "gateways.conf":
            upstreams.append(text)
        servers = [line for upstream in upstreams for line
                   in re.findall(r"(?m)^ *server .*;", upstream)]
        seen += [where] * bool(servers)
        for line in servers:
            assert " max_fails=0;" in line, (where, line)
    assert sorted(seen) == ["docker/cluster/balancer/gateways.conf",
                            "docs/monitoring.md"]


def test_waits_that_are_too_long_for_the_balancer(start_gateway):
    """A wait above the balancer's timeout at each gateway gets 504, and the
    clients after these are served.
    """
    gateways = [start_gateway(workers=1), start_gateway(workers=1)]
    upstream, location = examples.codes("docs/monitoring.md",
                                        "Health")[2].split("\n\n", 1)
    for host, gateway in zip(("10.0.0.11:8080", "10.0.0.12:8080"), gateways):
        assert upstream.count(host) == 1
        upstream = upstream.replace(host, "127.0.0.1:%d" % gateway.port)
    assert location.count(" 6m;") == 1
    balancer = start_gateway(servers=None, zookeeper=None, workers=1,
                             http=upstream,
                             server=location.replace(" 6m;", " 1s;"))

    gateways[0].hold("x")
    waiters = [balancer.begin("x", wait="1m") for _ in gateways]
    assert [waiter.response().status for waiter in waiters] == [504, 504]
    for i in range(4):
        response = balancer.acquire("y%d" % i)
        assert response.status == 201, response


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

        # the last lines show the page, health and metrics
        last = text[text.index("Your turn"):]
        base = "http://127.0.0.1:%d" % port
        for path, answered in (("/", "<title>"), ("/health", '"status":"ok"'),
                               ("/metrics", "zk_lock_claims{")):
            assert base + path in last, last
            response = connection.request("GET", path)
            assert response.status == 200, response
            assert answered in response.body.decode()
    script.signal(signal.SIGINT)
    assert script.wait() == 0
