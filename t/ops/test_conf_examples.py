"""The files of conf-examples/ do what they say, as lib/examples.py runs them.
"""

import contextlib
import http.server
import json
import os
import pathlib
import socket
import threading

import pytest

from lib import examples
from lib.backend import Backend
from lib.checks import problem, retry_after
from lib.client import lock_path
from lib.examples import basic
from lib.process import free_port, wait_until


def test_all_of_them_are_tested():
    text = "".join(test.read_text()
                   for test in pathlib.Path(__file__).parent.glob("test_*"))
    for example in os.listdir(examples.EXAMPLES):
        assert '"%s"' % example in text, example


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

    log = pathlib.Path(example.gateway.prefix, "access.log")
    wait_until(lambda: " DELETE x 204 " in log.read_text(), 15.0, "the line")
    assert held.token not in log.read_text()


# owners of the locks

def tenants_are_apart(example, tree, one, other):
    """Two clients with different headers have separate locks of the same name.

    The first headers are alice's.
    """
    tokens = []
    for headers in one, other:
        held = example.hold("/locks/nightly", {"wait": "0"}, headers)
        tokens.append(held.token)
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


@pytest.fixture
def asking(make_example):
    """The gateway, and what its service has seen."""
    example = make_example("auth-request.conf", ports=(8080, 9000)).start()
    # without the service
    assert example.call("POST", "/locks/x", None, {"X-User": "alice"}
                        ).status == 500

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", example.ports[9000]), AuthService)
    server.daemon_threads = True
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield example, server.seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_auth_request(asking, tree):
    example, seen = asking
    tenants_are_apart(example, tree, {"X-User": "alice"}, {"X-User": "bob"})
    assert not any("Lock-Token" in headers for headers in seen)

    def post(user, path="/locks/x", query=None):
        return example.call("POST", path, query, {"X-User": user},
                            {"owner": "me", "wait": 0})

    response = post("alice", "/locks/a%20b", {"ttl": "50s"})
    assert seen[-1]["X-Original-Method"] == "POST"
    assert seen[-1]["X-Original-URI"] == "/locks/a%20b?ttl=50s"
    assert example.call("DELETE", "/locks/a%20b", None, {
        "X-User": "alice", "Lock-Token": response.token}).status == 204

    assert post("unknown").status == 401
    assert post("unknown").headers["WWW-Authenticate"] == "Word"
    assert post("mallory").status == 403
    # the service names no tenant, so the lock has no owner
    assert post("nobody").status == 500
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
    example.hold("/locks/x", source=modest)
    held_on = waiters(example, tree, "x", 20, greedy)

    for method in "POST", "GET":
        response = example.call(method, "/locks/free", source=greedy)
        content = problem(response, 429, "too many")
        assert content["retry_after_ms"] == 1000
        assert retry_after(response) == 1
    example.release("free", example.hold("/locks/free", source=modest))

    for method, status in ("PUT", 200), ("DELETE", 204):
        assert example.call(method, "/locks/own", source=greedy, headers={
            "Lock-Token": own.token}).status == status

    def is_granted():
        status = example.call("POST", "/locks/free", source=greedy).status
        assert status in (201, 429)
        return status == 201

    held_on.pop().close()
    wait_until(is_granted)


def test_limit_of_the_queue(make_example, tree):
    example = make_example("limits.conf").start()
    example.hold("/locks/x")
    crowd = [waiter for i in range(5)
             for waiter in waiters(example, tree, "x", 20,
                                   "127.0.0.%d" % (10 + i))]
    content = problem(example.call("POST", "/locks/x", source="127.0.0.20"),
                      429)
    assert "too many" not in content["detail"].lower()
    example.release("y", example.hold("/locks/y", source="127.0.0.20"))


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
    token = {"Lock-Token": example.hold("/locks/x", source=modest).token}
    for method, status in ("PUT", 200), ("DELETE", 204):
        assert example.call(method, "/locks/x", headers=token,
                            source=greedy).status == status


def test_limits_of_a_call(make_example):
    example = make_example("limits.conf").start()
    assert example.call("POST", "/locks/x", body=b" " * 8193).status == 413
    for query, ttl in (None, 30000), ({"ttl": "1d"}, 600000):
        response = example.hold("/locks/x", query)
        assert response.json["ttl_ms"] == ttl
        example.release("x", response)


# a lock around a request

@pytest.fixture
def legacy():
    with contextlib.closing(Backend()) as backend:
        yield backend


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
    """One at a time for each environment, through any gateway, in order of the
    fencing tokens.
    """
    gateways = [make_front("deploy.conf", backend).start() for _ in range(2)]
    znode = gateways[0].znode("/locks/deploy-staging")
    first = deploy(gateways[0])
    one = backend.next()
    second = deploy(gateways[1])
    tree.wait_claims(znode, 2)

    for more in ("production", "POST"), ("staging", "GET"):
        answered(deploy(gateways[0], *more), backend.next())
    assert backend.idle() and len(tree.claims(znode)) == 2

    answered(first, one)
    other = backend.next()
    answered(second, other)
    tokens = [int(seen.headers["X-Fencing-Token"]) for seen in (one, other)]
    assert tokens[0] < tokens[1]
    tree.wait_claims(znode, 0)


def test_deploy_too_late(make_front, backend, tree):
    """The wait is over: the text; the test does not wait for 20 seconds."""
    example = make_front("deploy.conf", backend)
    example.text = example.text.replace("wait=20s", "wait=300ms")
    example.start()
    first = deploy(example)
    seen = backend.next()
    response = deploy(example).response()
    assert response.status == 423
    assert response.headers["Content-Type"] == "text/plain"
    retry_after(response)
    assert response.body == b"Another deploy of staging is under way.\n"

    # a path leads to this lock or to none
    for path in "/deploy/", "/deploy/a/b", "/deploy/Staging", "/deploy/a%20":
        assert example.call("POST", path).status == 404
    assert example.call("POST", "/deploy/%73taging").status == 423
    assert backend.idle()
    answered(first, seen)
    tree.wait_claims(example.znode("/locks/deploy-staging"), 0)


def test_reports(make_front, backend, legacy, start_gateway, tree):
    """Three at once in the whole cluster, and the next when one is done."""
    gateways = [make_front("reports.conf", backend, legacy).start()
                for _ in range(2)]
    znode = gateways[0].znode("/locks/reports")
    api = start_gateway(root=gateways[0].znode("/locks"))
    clients = [gateways[i % 2].connect().send("GET", "/reports/%d" % i)
               for i in range(6)]
    tree.wait_claims(znode, 6)
    content = api.inspect("reports").json
    assert (len(content["holders"]), content["queued"]) == (3, 3)

    inside = [backend.next() for _ in range(3)]
    for left in range(6, 0, -1):
        assert backend.idle()
        seen = inside.pop(0)
        answered(clients[int(seen.path[-1])], seen)
        if left > 3:
            inside.append(backend.next())
    tree.wait_claims(znode, 0)


def test_reports_without_zookeeper(make_front, backend, legacy):
    """A limit of load yields; a lock that protects does not."""
    example = make_front("reports.conf", backend, legacy)
    example.text = example.text.replace(example.gateway.zookeeper.address,
                                        "127.0.0.1:%d" % free_port())
    example.text = example.text.replace("wait=30s", "wait=300ms")
    example.start(wait_sessions=False)
    answered(example.connect().send("GET", "/reports/sales"), backend.next())
    problem(example.call("GET", "/legacy/"), 503)
    assert legacy.idle()


def test_legacy(make_front, backend, legacy, tree):
    """One at a time; ten wait, and the next is refused at once."""
    example = make_front("reports.conf", backend, legacy).start()
    znode = example.znode("/locks/legacy")
    clients = []
    for number in range(1, 12):
        clients.append(example.connect().send("GET", "/legacy/"))
        tree.wait_claims(znode, number)
    refusal = example.call("GET", "/legacy/")
    problem(refusal, 429)
    retry_after(refusal)
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
    webdav.release("files/a.txt", held)
    webdav.release("files/b.txt", other)


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
    webdav.release("files/a.txt", held)
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
    webdav.release("files/c/a.txt", held)


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
        pathlib.Path(example.gateway.prefix, "mime.types").write_text(
            "types {\n    image/png png;\n}\n")
        return example.start()

    return make


def tile(example, path="/tiles/1/2.png", method="GET", headers=None):
    return example.connect().send(method, path, None, headers)


def test_warm(make_warm, backend, tree):
    """Several clients of two gateways ask at once: the origin is asked once.  A
    file has no header: what is stored is not compressed, and has a type.
    """
    gateways = [make_warm(), make_warm()]
    znode = gateways[0].znode("/locks/tiles%2F1%2F2.png")
    clients = [tile(gateways[0], headers={"Accept-Encoding": "gzip"})]
    seen = backend.next()
    assert "Accept-Encoding" not in seen.headers
    clients += [tile(gateways[i % 2]) for i in range(1, 6)]
    tree.wait_claims(znode, 2)
    assert backend.idle()
    seen.answer(200, b"a picture", {"Content-Type": "image/png"})
    for client in clients:
        response = client.response()
        assert (response.status, response.body) == (200, b"a picture")
        assert response.headers["Content-Type"] == "image/png"
    assert backend.total == 1

    # and from now on no gateway takes the lock
    for gateway in gateways:
        for path in "/tiles/1/2.png", "/tiles/1/2.png?x=1":
            response = tile(gateway, path).response()
            assert response.headers["X-Cache"] == "HIT"
    assert backend.total == 1
    tree.wait_claims(znode, 0)


@pytest.mark.parametrize("shared, status", [(False, 200), (True, 500)])
def test_warm_of_what_is_not_there(make_warm, backend, tree, shared, status):
    """Gateways without a common directory ask once each, one at a time, as the
    comment says; an error is not stored, so the next request asks again.
    """
    gateways = [make_warm(shared), make_warm(shared)]
    znode = gateways[0].znode("/locks/tiles%2F1%2F2.png")
    clients = [tile(gateways[0])]
    seen = backend.next()
    clients.append(tile(gateways[1]))
    tree.wait_claims(znode, 2)
    assert backend.idle()
    seen.answer(status, b"first")
    response = clients[0].response()
    assert (response.status, response.body) == (status, b"first")
    answered(clients[1], backend.next(), b"a picture")
    assert tile(gateways[1]).response().body == b"a picture"
    assert backend.total == 2
    tree.wait_claims(znode, 0)


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
