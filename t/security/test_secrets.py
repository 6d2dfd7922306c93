"""A secret is seen only by the client that it was given to.

Secrets are a token, the UUID in the name of the token's claim, from which the
token could be made, and an Idempotency-Key.  A run of all methods gives many of
each, and then the test looks for all secrets in the logs, in the answers to
other clients, and in ZooKeeper.  Also, a token has no effect on another lock,
even if it was made over to look like a token of that lock.

The error log at level debug has lines of nginx, which show whole requests and
answers; the test knows the module's lines by their words.
"""

import base64
import os
import re
import uuid

import pytest
from kazoo.exceptions import NoNodeError

from conftest import gateways, new_root
from lib import streams
from lib.checks import problem
from lib.client import lock_path
from lib.tokens import check, claim_of, token_of

SOON = 20.0

MODULE_LINE = re.compile(r"zk lock|zk_lock|zookeeper|claim|lease|\block\b")
NGINX_LINE = re.compile(
    r"\[debug\] \d+#\d+: (\*\d+ )?(http (?!zk)|posix_memalign|malloc|free|"
    r"writev|recv|send|event|epoll|accept|add cleanup|generic phase|"
    r"rewrite phase|content phase|post |test location|using config|"
    r"timer |reusable|hc |worker cycle|delete posted|posted event|"
    r"shmtx|getsockopt|tcp_nodelay|close)")

LOG_FORMAT = """\
log_format spare '$remote_addr $request_method $zk_lock_name $status '
                 '$zk_lock_outcome $zk_lock_wait_time $zk_lock_fencing_token';
"""

# below the gateway's prefix
ACCESS_LOGS = "access_log combined.log; access_log spare.log spare;\n"


class Secrets:
    """The secrets of a run, in every spelling that gives a secret away."""

    def __init__(self):
        self.words = set()

    def token(self, response, lock=None):
        """The token of an answer; the token is a secret from now on."""
        token = response.headers["Lock-Token"]
        self.words.add(token)
        for part in token.split("."):
            self.words.add(part)
        if lock is not None:
            assert token_of(lock, claim_of(token)) == token
            self.claim(claim_of(token))
        return token

    def claim(self, name):
        number = name[3:39]
        self.words |= {number, number.replace("-", "")}

    def key(self):
        self.words.add("key-of-" + str(uuid.uuid4()))
        return max(word for word in self.words if word.startswith("key-of-"))

    def found_in(self, text):
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return sorted(word for word in self.words
                      if len(word) > 8 and word.lower() in text.lower())

    def absent(self, text):
        found = self.found_in(text)
        assert not found, (found, [line for line in str(text).splitlines()
                                   if self.found_in(line)][:5])


def header(token):
    return {"Lock-Token": token}


def seen_by_others(gateway, name):
    """The answers about a lock that any client of the location gets."""
    answers = [gateway.inspect(name), gateway.acquire(name, wait="0"),
               gateway.call("GET", "/locks/"), gateway.call("GET", "/metrics"),
               gateway.call("HEAD", lock_path(name)),
               gateway.call("GET", lock_path(name), {"wait": "0"})]
    with gateway.connect() as connection:
        stream = streams.watch(gateway, name, connection=connection)
        answers.append("%s" % (stream.next(),))
    return "\n".join(answer if isinstance(answer, str)
                     else "%s %s" % (answer.headers.pairs,
                                     answer.body.decode())
                     for answer in answers)


def all_methods(gateway, other, secrets, seen):
    """Each call of the API, with the token in a header.

    seen gets the answers to other clients in the meantime.
    """
    lock = gateway.znode
    held = gateway.hold("held", owner="me", data='{"a":1}')
    token = secrets.token(held, lock("held"))
    assert secrets.found_in(held.body) == [token]
    waiter = gateway.begin("held", owner="behind", ttl="5s")
    gateway.catch_up("held")
    seen.append(seen_by_others(gateway, "held"))
    seen.append(seen_by_others(other, "held"))

    path = lock_path("held")
    for asked in (gateway, other):
        assert asked.call("GET", path, headers=header(token)).status == 200
        assert asked.call("PUT", path, {"ttl": "1m"},
                          header(token)).status == 200
        assert asked.call("POST", path, headers=header(token)).status == 200
    for _ in range(2):
        assert gateway.release("held", token).status == 200
    problem(gateway.release("held", token[::-1]), 404)
    assert other.release("held", token).status == 204
    problem(gateway.call("PUT", path, None, header(token)), 410)
    secrets.token(waiter.response(SOON), lock("held"))

    writer = gateway.hold("shared", mode="write")
    token = secrets.token(writer, lock("shared"))
    reader = other.begin("shared", mode="shared")
    assert gateway.call("PUT", lock_path("shared"), {"mode": "shared"},
                        header(token)).status == 200
    secrets.token(reader.response(SOON), lock("shared"))
    seen.append(seen_by_others(gateway, "shared"))

    secrets.token(gateway.hold("pool", mode="semaphore", permits="2"),
                  lock("pool"))
    secrets.token(gateway.hold("web", mode="member"), lock("web"))

    key = {"Idempotency-Key": secrets.key()}
    for asked in (gateway, other):
        secrets.token(asked.acquire("keyed", headers=key), lock("keyed"))
    polled = gateway.acquire("keyed", headers={"Prefer": "respond-async"})
    assert polled.status == 202
    token = secrets.token(polled, lock("keyed"))
    seen.append(seen_by_others(other, "keyed"))
    assert gateway.release("keyed", token).status == 204

    several = gateway.call("POST", "/locks/", body={"names": ["s1", "s2"]})
    token = secrets.token(several)
    secrets.claim(claim_of(token.split(".")[0]))
    for asked in (gateway, other):
        assert asked.call("GET", "/locks/",
                          headers=header(token)).status == 200
    seen.append(seen_by_others(other, "s1"))
    assert other.call("DELETE", "/locks/",
                      headers=header(token)).status == 204

    stream = streams.hold(gateway, "stream")
    data = stream.event("granted")
    secrets.words.add(data["token"])
    secrets.claim(claim_of(data["token"]))
    seen.append(seen_by_others(other, "stream"))
    stream.connection.close()

    for method in ("LOCK", "UNLOCK"):
        answer = gateway.call(method, lock_path("state"),
                              body={"ID": "not a secret", "Who": "ci"})
        assert answer.status == 200
        if method == "LOCK":
            secrets.token(answer, lock("state"))
            seen.append(seen_by_others(other, "state"))

    broken = gateway.hold("broken")
    secrets.token(broken, lock("broken"))
    for asked, status, options in (
            (gateway, 202, ("PUT", {"revoke": "1"})),
            (other, 204, ("DELETE", {"force": "1"}))):
        answer = asked.call(options[0], lock_path("broken"), options[1],
                            {"If-Match": "*"})
        assert answer.status == status
        seen.append("%s %s" % (answer.headers.pairs, answer.body.decode()))

    lapsed = gateway.hold("lapsed", ttl="50ms")
    secrets.token(lapsed, lock("lapsed"))
    assert gateway.acquire("lapsed", ttl="10ms").status == 201


def everything(tree, path):
    """All names and data at and below a znode.

    A lease may end meanwhile, and ZooKeeper removes free locks once a minute.
    """
    yield path
    try:
        yield tree.data(path).decode("utf-8", "replace")
    except NoNodeError:
        return
    for child in tree.children(path):
        yield from everything(tree, path.rstrip("/") + "/" + child)


@pytest.fixture(scope="module")
def run(request, tmp_path_factory, zookeeper, tree):
    """Both gateways, the secrets of a run, and what other clients saw."""
    directory = tmp_path_factory.mktemp("secrets")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        pair = [make(level="debug", metrics=True, http=LOG_FORMAT,
                     location="zk_lock_admin on;", server=ACCESS_LOGS)
                for _ in range(2)]
        secrets, seen = Secrets(), []
        all_methods(*pair, secrets, seen)
        assert len(secrets.words) > 30
        yield pair, secrets, seen


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


@pytest.mark.shows("no token in logs, lists, or answers to others")
def test_nobody_else_is_told(run):
    _, secrets, seen = run
    for text in seen:
        secrets.absent(text)


@pytest.mark.shows("no token in logs, lists, or answers to others")
def test_logs(run):
    """Secrets in headers are in no access log and in no line of the module."""
    pair, secrets, _ = run
    for gateway in pair:
        for name in ("combined.log", "spare.log"):
            text = read(os.path.join(gateway.prefix, name))
            assert "held" in text
            secrets.absent(text)

        lines = read(gateway.error_log).splitlines()
        ours = [line for line in lines if MODULE_LINE.search(line)
                and not NGINX_LINE.search(line)]
        assert len(ours) > 50
        for line in ours:
            secrets.absent(line)
        for line in lines:
            if "[debug]" not in line and "[" in line[:40]:
                secrets.absent(line)


def test_a_token_in_the_path(run):
    """nginx logs the path of a request; the module's lines cut the token off.
    """
    pair, secrets, _ = run
    gateway = pair[0]
    held = gateway.hold("path")
    token = secrets.token(held, gateway.znode("path"))
    assert gateway.renew("path", token).status == 200
    assert gateway.inspect("path", token).status == 200
    problem(gateway.inspect("path", token[::-1]), 404)
    assert gateway.call("DELETE", lock_path("path", token)).status == 204
    problem(gateway.call("DELETE", lock_path("path", token)), 410)

    assert token in read(gateway.error_log)
    assert token in read(os.path.join(gateway.prefix, "combined.log"))
    assert token not in read(os.path.join(gateway.prefix, "spare.log"))
    lines = [line for line in read(gateway.error_log).splitlines()
             if re.search(r"zk lock|zookeeper", line)]
    assert any(gateway.znode("path") in line for line in lines)
    for line in lines:
        secrets.absent(line)


def test_what_lies_in_zookeeper(run, tree):
    """ZooKeeper has no token and no key, but the UUID in the claim's name."""
    pair, secrets, _ = run
    numbers = {word for word in secrets.words
               if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
                               word)}
    numbers |= {number.replace("-", "") for number in numbers}
    texts = list(everything(tree, pair[0].root))
    texts += everything(tree, "/zk_lock_gates")
    assert len(texts) > 20
    assert any(secrets.found_in(text) for text in texts)
    secrets.words -= numbers
    for text in texts:
        secrets.absent(text)


def test_refusals_of_zookeeper(start_gateway, foreign):
    """The log of a refusal has a path, which may be a claim's: here of a
    persistent claim that the gateway cannot delete because it has a child.
    """
    gateway = start_gateway(location="zk_lock_admin on;")
    number = str(uuid.uuid4())
    claim = "%s/_c_%s-lock-%010d" % (gateway.znode("x"), number, 0)
    foreign.make(claim + "/deeper")
    answer = gateway.call("DELETE", lock_path("x"), {"force": "1"},
                          {"If-Match": "*"})
    assert answer.status in (500, 503), answer
    text = gateway.log_text()
    assert gateway.znode("x") + '/_c_": not empty' in text
    assert number not in text
    foreign.delete_tree(gateway.znode("x"))


# a token at another lock, or at another tenant

TENANTS = """\
location /other/ {
    zk_lock_api;
    zk_lock_root %s/other;
    zk_lock_layout %s;
    zk_lock_admin on;
}
"""


@pytest.fixture(params=["queue", "node"])
def tenants(request, start_gateway, root):
    """A gateway with /locks/ and /other/, and the layout of both."""
    layout = request.param
    return start_gateway(server=TENANTS % (root, layout),
                         location="zk_lock_layout %s;" % layout), layout


def with_token(gateway, path, token):
    """Every call that takes a token: the method and the answer."""
    headers = header(token)
    for method, query in (("GET", None), ("PUT", None), ("DELETE", None),
                          ("POST", None), ("GET", {"wait": "30s"}),
                          ("PUT", {"mode": "shared"}), ("PUT", {"ttl": "1s"})):
        yield method, gateway.call(method, path, query, headers)
        if method != "POST":
            yield method, gateway.call(method, "%s/%s" % (path, token), query)


@pytest.mark.shows("a token does nothing to another claim, lock or root")
def test_token_of_another_tenant(tenants, tree, root):
    """The lock of the same name at another root is free, and then held.

    The leases are durable from the start: when a lease becomes durable, two
    seconds after the grant, the gateway writes to the znode.
    """
    gateway, layout = tenants
    holder = gateway.hold("x", durable="1")
    token = holder.token
    ours, theirs = gateway.znode("x"), root + "/other/x"
    tokens = [token, for_lock(token, theirs)]
    before = tree.children(ours), tree.data(ours)

    for taken in (False, True):
        if taken:
            other = gateway.call("POST", "/other/x", {"durable": "1"})
            assert other.status == 201
            before_other = tree.children(theirs), tree.data(theirs)
        for stolen in tokens:
            for what, answer in with_token(gateway, "/other/x", stolen):
                assert answer.status in (404, 410, 400), (what, answer)
        if taken:
            assert (tree.children(theirs), tree.data(theirs)) == before_other
            assert gateway.call("DELETE", "/other/x", None,
                                header(other.token)).status == 204

    assert (tree.children(ours), tree.data(ours)) == before
    assert gateway.inspect("x", token).json["state"] == "held"
    assert gateway.release("x", token).status == 204


def for_lock(token, lock):
    """Makes the token over for another lock, which only the last bits tell.

    These bits are no secret, so a client that has a token can do this.
    """
    head = base64.urlsafe_b64decode(token)[:-2]
    return base64.urlsafe_b64encode(head + check(head + lock.encode())
                                    ).decode()


def test_made_over_tokens_are_as_the_gateway_makes_them(gateway):
    """for_lock() is right; otherwise its tokens would test no check."""
    one, other = gateway.hold("x"), gateway.hold("y")
    for held, name in ((one, "x"), (other, "y")):
        assert for_lock(held.token, gateway.znode(name)) == held.token
        assert for_lock(for_lock(held.token, "/a/b"),
                        gateway.znode(name)) == held.token
        gateway.release(name, held.token)


@pytest.mark.shows("a token does nothing to another claim, lock or root")
def test_token_of_another_lock(gateway, tree):
    one, other = gateway.hold("x"), gateway.hold("y")
    for stolen in (one.token, for_lock(one.token, gateway.znode("y"))):
        for worker in gateway.worker_pids():
            for method in ("GET", "PUT", "DELETE", "POST"):
                answer = gateway.call(method, lock_path("y"), None,
                                      header(stolen), worker=worker)
                assert answer.status in (404, 410), (method, answer)
    for held, name in ((one, "x"), (other, "y")):
        assert gateway.inspect(name, held.token).json["state"] == "held"
        assert gateway.release(name, held.token).status == 204


def test_several_elsewhere(start_gateway, root):
    """The token has names, which another tenant's locks have, too."""
    gateway = start_gateway(server=TENANTS % (root, "queue"))
    names = {"names": ["a", "b"]}
    mine = gateway.call("POST", "/locks/", body=names)
    theirs = gateway.call("POST", "/other/", body=names)
    single = gateway.hold("c")
    first = mine.token.split(".")[0]
    for stolen in (mine.token, single.token,
                   for_lock(first, root + "/other") + mine.token[32:],
                   for_lock(first, root + "/other/a") + mine.token[32:],
                   for_lock(single.token, root + "/other") + mine.token[32:]):
        for method in ("GET", "PUT", "DELETE"):
            answer = gateway.call(method, "/other/", None, header(stolen))
            assert answer.status in (400, 404, 410), (method, answer)
    for prefix, response in (("/locks/", mine), ("/other/", theirs)):
        told = gateway.call("GET", prefix, None, header(response.token))
        assert told.status == 200, told
        assert gateway.call("DELETE", prefix, None,
                            header(response.token)).status == 204
    assert gateway.release("c", single.token).status == 204


def test_names_put_into_a_token_of_several(gateway):
    """A client that writes other names into such a token gets no lock."""
    mine = gateway.call("POST", "/locks/", body={"names": ["a", "b"]})
    theirs = gateway.call("POST", "/locks/", body={"names": ["c", "d"]})
    victim = gateway.hold("e")
    a, b = (response.token for response in (mine, theirs))
    for stolen in (a[:33] + b[33:], a[:33] + encode("e"),
                   a[:33] + encode("a") + b[33:]):
        for method in ("GET", "PUT", "DELETE"):
            answer = gateway.call(method, "/locks/", None, header(stolen))
            assert answer.status in (400, 404, 410), (method, answer)
    for response in (mine, theirs):
        assert gateway.call("DELETE", "/locks/", None,
                            header(response.token)).status == 204
    assert gateway.release("e", victim.token).status == 204


def encode(text):
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_keys_and_ids_are_of_one_tenant(start_gateway, root):
    """The same key and the same Terraform ID lead to no other tenant's claim.
    """
    gateway = start_gateway(server=TENANTS % (root, "queue"))
    key = {"Idempotency-Key": "key-of-" + str(uuid.uuid4())}
    mine = gateway.acquire("x", headers=key)
    theirs = gateway.call("POST", "/other/x", None, key)
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.token[:28] != theirs.token[:28]
    assert gateway.call("DELETE", "/other/x", None,
                        header(theirs.token)).status == 204
    assert gateway.inspect("x", mine.token).json["state"] == "held"

    info = {"ID": "one", "Who": "ci"}
    for path in ("/locks/state", "/other/state"):
        assert gateway.call("LOCK", path, body=info).status == 200
    assert gateway.call("UNLOCK", "/other/state", body=info).status == 200
    assert len(gateway.inspect("state").json["holders"]) == 1
    assert gateway.call("UNLOCK", "/locks/state", body=info).status == 200
    gateway.release("x", mine.token)


def test_operators_are_of_one_tenant(start_gateway, root):
    """zk_lock_admin is on at the other tenant's location alone."""
    gateway = start_gateway(server=TENANTS % (root, "queue"))
    holder = gateway.hold("x")
    for method, query in (("DELETE", {"force": "1"}),
                          ("PUT", {"revoke": "1"})):
        answer = gateway.call(method, "/other/x", query, {"If-Match": "*"})
        assert answer.status in (404, 412), answer
        for path in ("/other/..%2fx", "/other/%2e%2e/x", "/other/..%2f..%2fx",
                     "/locks/x"):
            answer = gateway.call(method, path, query, {"If-Match": "*"})
            assert answer.status in (400, 403, 404, 405), (path, answer)
    listed = gateway.call("GET", "/other/").json
    assert listed["locks"] == []
    assert gateway.inspect("x", holder.token).json["state"] == "held"
    assert "revoke" not in gateway.inspect("x", holder.token).json
    assert gateway.release("x", holder.token).status == 204


def test_stream_and_place_elsewhere(start_gateway, root):
    """Tokens of a stream and of a polled claim are unknown at another root."""
    gateway = start_gateway(server=TENANTS % (root, "queue"),
                            location="zk_lock_grace 1m;")
    stream = streams.hold(gateway, "x")
    token = stream.event("granted")["token"]
    polled = gateway.acquire("x", headers={"Prefer": "respond-async"})
    for stolen in (token, polled.token):
        for made in (stolen, for_lock(stolen, root + "/other/x")):
            for what, answer in with_token(gateway, "/other/x", made):
                assert answer.status in (404, 410), (what, answer)
    assert gateway.inspect("x", token).json["state"] == "held"
    assert gateway.inspect("x", polled.token).json["state"] == "queued"
    assert gateway.release("x", polled.token).status == 204
    stream.close()
