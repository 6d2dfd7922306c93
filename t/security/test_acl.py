"""The rights of clients in ZooKeeper, with zk_lock_auth.

A separate server has three users: the gateway, a kazoo client with the same
identity, and a stranger with another identity.  ZooKeeper's rule decides what a
stranger can do where the parents are open: the delete of a znode takes a right
on the parent.
"""

import re
import struct
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl, make_digest_acl

from conftest import gateways, new_root
from lib import streams
from lib.checks import gone, grant, problem
from lib.client import lock_path
from lib.process import alive, wait_until
from lib.tokens import claim_of, token_of
from lib.zookeeper import Server, Tree

USER, PASSWORD = "gateway", "kept-from-others"
AUTH = "zk_lock_auth digest %s:%s;\n" % (USER, PASSWORD)
OURS = make_digest_acl(USER, PASSWORD, all=True)
THEIRS = make_digest_acl("stranger", "s", all=True)
GATES = "/zk_lock_gates"
SOON = 20.0

# what a gateway logs when ZooKeeper stands still for a second
SILENT = "zookeeper is out of reach"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.stop()


@pytest.fixture
def start(request, tmp_path, server, connect_tree, root):
    """start_gateway on `server`; the gateways must leave no znodes there."""
    known = connect(connect_tree, server, USER, PASSWORD)
    known.client.add_auth("digest", "stranger:s")
    with gateways(request.node, tmp_path, server, known, root) as make:
        yield make


def connect(connect_tree, server, user, password):
    tree = connect_tree(server.address)
    tree.client.add_auth("digest", "%s:%s" % (user, password))
    return tree


@pytest.fixture
def same(server, connect_tree):
    """A client with the gateway's identity."""
    return connect(connect_tree, server, USER, PASSWORD)


@pytest.fixture
def stranger(server, connect_tree):
    return connect(connect_tree, server, "stranger", "s")


def parents(path):
    """The path and all znodes above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def denied(stranger, path):
    """ZooKeeper refuses each operation on a znode that needs a right.

    Empty znodes below "/", which is open to all, can be deleted.
    """
    client = stranger.client
    attempts = [lambda: client.get(path), lambda: client.set(path, b"x"),
                lambda: client.get_children(path),
                lambda: client.create(path + "/y"),
                lambda: client.create(path + "/_c_-lock-", ephemeral=True,
                                      sequence=True),
                lambda: client.set_acls(path, [THEIRS])]
    if path.rpartition("/")[0]:
        attempts.append(lambda: client.delete(path))
    for attempt in attempts:
        with pytest.raises(NoAuthError):
            attempt()


def made_by(same, gateway, name):
    """All znodes that exist because of a lock: parents, claims and gates."""
    paths = list(parents(gateway.znode(name)))
    paths += [gateway.znode(name) + "/" + claim
              for claim in same.children(gateway.znode(name))]
    paths += [GATES] + [GATES + "/" + gate for gate in same.children(GATES)]
    return paths


# a second user

@pytest.mark.shows("with `zk_lock_auth`, another user cannot read or delete")
@pytest.mark.parametrize("queued", [0, 30])
def test_what_is_made_is_ours(start, same, stranger, queued):
    gateway = start(http=AUTH)
    holder = gateway.hold("x", owner="me")
    waiters = [gateway.begin("x") for _ in range(queued)]
    same.wait_claims(gateway.znode("x"), 1 + queued)
    paths = made_by(same, gateway, "x")
    assert len(paths) >= 6 + queued
    for path in paths:
        assert same.client.get_acls(path)[0] == [OURS], path
        denied(stranger, path)
    assert gateway.inspect("x", holder.token).json["state"] == "held"
    for waiter in waiters:
        waiter.close()
    assert gateway.release("x", holder.token).status == 204


def test_top_that_is_closed(start, same):
    """A gateway needs no right on "/", except to create the first znodes."""
    gateway = start(http=AUTH)
    gateway.release("x", gateway.hold("x").token)
    opened = same.client.get_acls("/")[0]
    same.client.set_acls("/", [THEIRS])
    try:
        gateway = start(http=AUTH)
        there = start(http=AUTH)
        token = gateway.hold("x").token
        for asked in (gateway, there):
            assert asked.inspect("x", token).json["state"] == "held"
            assert asked.renew("x", token).status == 200
        assert gateway.inspect("y").status == 404
        assert there.release("x", token).status == 204
    finally:
        same.client.add_auth("digest", "stranger:s")
        same.client.set_acls("/", opened)


def test_what_is_renamed_is_ours(start, same, stranger):
    gateway = start(http=AUTH)
    holder = gateway.hold("x")
    assert gateway.renew("x", holder.token, mode="shared").status == 200
    claim, = same.claims(gateway.znode("x"))
    assert "READ" in claim
    denied(stranger, gateway.znode("x") + "/" + claim)
    assert gateway.release("x", holder.token).status == 204


def test_one_znode_is_ours(start, same, stranger):
    gateway = start(http=AUTH, location="zk_lock_layout node;")
    holder = gateway.hold("x")
    denied(stranger, gateway.znode("x"))
    assert gateway.release("x", holder.token).status == 204


def test_without_containers(private_zookeeper, request, tmp_path, root,
                            connect_tree):
    private_zookeeper.properties.append("-Dzookeeper.extendedTypesEnabled"
                                        "=false")
    private_zookeeper.start()
    same = connect(connect_tree, private_zookeeper, USER, PASSWORD)
    stranger = connect(connect_tree, private_zookeeper, "stranger", "s")
    with gateways(request.node, tmp_path, private_zookeeper, same,
                  root) as make:
        gateway = make(http=AUTH)
        holder = gateway.hold("x")
        for path in made_by(same, gateway, "x"):
            denied(stranger, path)
        gateway.release("x", holder.token)


# the same user

@pytest.mark.parametrize("acl", [None, [OURS]])
def test_same_identity_takes_part(start, same, acl):
    """kazoo's recipe takes part, with open claims or closed claims."""
    gateway = start(http=AUTH)
    same.client.default_acl = acl
    lock = same.client.Lock(gateway.znode("x"), "kazoo",
                            extra_lock_patterns=["-lock-"])
    holder = gateway.hold("x")
    assert not lock.acquire(blocking=False)
    assert gateway.release("x", holder.token).status == 204

    assert lock.acquire(timeout=10)
    waiter = gateway.begin("x")
    same.wait_claims(gateway.znode("x"), 2)
    assert gateway.inspect("x").json["holders"][0]["owner"] == "kazoo"
    assert waiter.silent_for(0.2)
    lock.release()
    gateway.release("x", grant(waiter.response(SOON), "x")["token"])


def test_gateways_of_one_identity(start):
    here, there = start(http=AUTH), start(http=AUTH)
    holder = here.hold("x")
    assert there.renew("x", holder.token).status == 200
    waiter = there.begin("x")
    there.catch_up("x")
    assert there.release("x", holder.token).status == 204
    here.release("x", grant(waiter.response(SOON), "x")["token"])


# parents that were there

def test_open_root(start, stranger, root):
    """A root that is there keeps the ACL; the locks below are ours."""
    stranger.make(root)
    gateway = start(http=AUTH)
    holder = gateway.hold("x")
    claim = gateway.znode("x") + "/" + claim_of(holder.token)
    for path in (gateway.znode("x"), claim):
        with pytest.raises(NoAuthError):
            stranger.client.get(path)
    with pytest.raises(NoAuthError):
        stranger.client.delete(claim)
    assert gateway.inspect("x", holder.token).json["state"] == "held"
    assert gateway.release("x", holder.token).status == 204


def test_open_lock(start, stranger):
    """Below a lock's znode that a stranger made, the stranger can delete
    claims, and the holder is told so.  The stranger cannot read claims.
    """
    gateway = start(http=AUTH)
    other = start()
    other.release("y", other.hold("y").token)
    stranger.make(gateway.znode("x"))
    holder = gateway.hold("x")
    claim = gateway.znode("x") + "/" + claim_of(holder.token)
    with pytest.raises(NoAuthError):
        stranger.client.get(claim)
    stranger.client.delete(claim)
    gone(gateway, "x", holder.token)


# what keeps the gateway out

def are_few(lines, gateway, began):
    """Each worker writes one line of a kind in a second at most."""
    assert len(lines) < 20 + gateway.workers * (time.monotonic() - began)


def errors(gateway):
    return [line for line in gateway.log_text().splitlines()
            if "[error]" in line]


def calls(gateway, name, token):
    """Every call about a lock: the call's name and the answer."""
    headers = {"Lock-Token": token}
    path = lock_path(name)
    yield "acquire", gateway.acquire(name)
    yield "try", gateway.acquire(name, wait="0")
    yield "inspect", gateway.inspect(name)
    yield "claim", gateway.call("GET", path, headers=headers)
    yield "renew", gateway.call("PUT", path, headers=headers)
    yield "release", gateway.call("DELETE", path, headers=headers)
    yield "hold", gateway.call("POST", path, headers=headers)
    yield "key", gateway.acquire(name, headers={"Idempotency-Key": "k" * 20})
    yield "poll", gateway.acquire(name, headers={"Prefer": "respond-async"})
    yield "until", gateway.call("GET", path, {"until": "free", "wait": "30s"})
    yield "watch", streams.watch(gateway, name).head()
    yield "stream", streams.hold(gateway, name).head()
    yield "several", gateway.call("POST", "/locks/", body={"names": [name]})
    yield "LOCK", gateway.call("LOCK", path, body={"ID": "a"})
    yield "UNLOCK", gateway.call("UNLOCK", path, body={"ID": "a"})
    yield "break", gateway.call("DELETE", path, {"force": "1"},
                                {"If-Match": "*"})
    yield "revoke", gateway.call("PUT", path, {"revoke": "1"},
                                 {"If-Match": "*"})


def token_for(start, name):
    """A well-formed token of a claim that is gone."""
    gateway = start(http=AUTH)
    holder = gateway.hold(name)
    assert gateway.release(name, holder.token).status == 204
    return holder.token


# a lock that is not there is told so, whatever the ACL above forbids
MAKING = {"acquire", "try", "key", "poll", "stream", "several", "LOCK"}
ANY = (500, 410)
NOT_THERE = (200, 204, 404, 410, 412)


@pytest.mark.parametrize("closed", ["lock", "root", "above"])
def test_foreign_acl(start, stranger, same, root, closed):
    """Every call is answered: by 500, or by what is known without a right."""
    token = token_for(start, "x")
    same.delete_tree(root)
    path = {"lock": root + "/x", "root": root,
            "above": root.rpartition("/")[0]}[closed]
    same.client.ensure_path(path)
    same.client.set_acls(path, [THEIRS])
    began = time.monotonic()
    gateway = start(http=AUTH, location="zk_lock_admin on;")
    for what, answer in calls(gateway, "x", token):
        there = ANY if what in MAKING or closed == "lock" else NOT_THERE
        assert answer.status in there, (what, answer)
        if answer.status == 500:
            problem(answer, 500, "does not let")
    if closed == "root":
        problem(gateway.call("GET", "/locks/"), 500, "does not let")
    lines = [line for line in gateway.log_text().splitlines()
             if "ACL forbids" in line]
    assert lines
    are_few(lines, gateway, began)
    stranger.client.set_acls(path, [OURS])
    gateway.release("x", gateway.hold("x").token)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_claims_that_cannot_be_removed(start, same, elsewhere):
    """Any worker tells a client that waits for the removal, so the client need
    not wait; a released claim is removed when the ACL allows that again.
    """
    gateway = start(http=AUTH)
    lock = gateway.znode("x")
    same.client.ensure_path(lock)
    same.client.set_acls(lock, [make_digest_acl(
        USER, PASSWORD, read=True, write=True, create=True, admin=True)])
    one, other = gateway.worker_pids()
    holder = gateway.hold("x", worker=one)
    asked = other if elsewhere else one
    # with a wait that ends before ZooKeeper has the claim the answer is 503
    problem(gateway.acquire("x", wait="3s", worker=asked), 500)
    left = gateway.begin("x", worker=asked)
    same.wait_claims(lock, 3)
    left.close()
    for worker in (asked, one):
        problem(gateway.call("DELETE", lock_path("x"), None,
                             {"Lock-Token": holder.token}, worker=worker),
                500, "does not let")
    assert len(same.claims(lock)) == 3
    same.client.set_acls(lock, [OURS])
    same.wait_claims(lock, 0)
    gateway.release("x", gateway.hold("x").token)


def test_end_with_claims_that_cannot_be_removed(start, same):
    """The claims go with the session; they keep no worker."""
    gateway = start(http=AUTH)
    lock = gateway.znode("x")
    same.client.ensure_path(lock)
    same.client.set_acls(lock, [make_digest_acl(
        USER, PASSWORD, read=True, write=True, create=True, admin=True)])
    holder = gateway.hold("x")
    problem(gateway.release("x", holder.token), 500)
    gateway.stop()
    same.wait_claims(lock, 0, 20)


def test_reload_with_claims_that_cannot_be_removed(start, same):
    """The heir has the claims, too, and can leave all the same; locks that are
    held through the same session stay held.
    """
    began = time.monotonic()
    gateway = start(http=AUTH)
    lock = gateway.znode("x")
    same.client.ensure_path(lock)
    same.client.set_acls(lock, [make_digest_acl(
        USER, PASSWORD, read=True, write=True, create=True, admin=True)])
    worker = gateway.worker_pids()[0]
    stuck = gateway.hold("x", worker=worker)
    held = gateway.hold("y", worker=worker)
    problem(gateway.release("x", stuck.token, worker), 500)
    old = gateway.reload()
    wait_until(lambda: not any(alive(pid) for pid in old), 2 * SOON,
               "the old workers are gone")
    for pid in gateway.worker_pids():
        told = wait_until(lambda: answered(gateway.inspect("y", held.token,
                                                           pid)), SOON)
        assert told.json["state"] == "held"
        told = wait_until(lambda: answered(gateway.inspect("x", stuck.token,
                                                           pid)), SOON)
        assert told.status in (410, 500)
    assert gateway.release("y", held.token).status == 204
    gateway.stop()
    same.wait_claims(lock, 0, SOON)
    are_few(errors(gateway)[30:], gateway, began)


RIGHTS = ["read", "write", "create", "delete", "admin"]


@pytest.mark.parametrize("headers", [None, {"Idempotency-Key": "k" * 20}])
@pytest.mark.parametrize("missing", RIGHTS)
def test_a_right_is_missing(start, same, stranger, missing, headers):
    """A single right on the lock's znode is missing: no call hangs, and no
    call tells that a claim is gone while it is there.
    """
    began = time.monotonic()
    gateway = start(http=AUTH, session_timeout="4s")
    lock = gateway.znode("x")
    rights = {right: right != missing for right in RIGHTS}
    same.client.ensure_path(lock)
    same.client.set_acls(lock, [make_digest_acl(USER, PASSWORD, **rights),
                                THEIRS])
    answer = gateway.acquire("x", wait="1s", ttl="10s", headers=headers)
    assert answer.status in (201, 423, 500, 503), answer
    if answer.status == 201:
        released = gateway.call("DELETE", lock_path("x"),
                                headers={"Lock-Token": answer.token})
        there = stranger.claims(lock)
        assert released.status == (500 if there else 204), released
    inspected = gateway.inspect("x")
    assert inspected.status in (200, 404, 500), inspected
    are_few(errors(gateway), gateway, began)
    gateway.release("y", gateway.hold("y").token)
    stranger.client.set_acls(lock, [OURS])
    same.wait_claims(lock, 0, SOON)


@pytest.mark.parametrize("headers", [
    {}, {"Idempotency-Key": "k" * 20}, {"Prefer": "respond-async"},
    {"Idempotency-Key": "k" * 20, "Prefer": "respond-async"},
    {"Accept": streams.SSE}])
def test_who_is_ahead_cannot_be_known(start, same, stranger, headers):
    """The gateway may not list the claims, so it never knows whose turn it is.
    """
    began = time.monotonic()
    gateway = start(http=AUTH)
    lock = gateway.znode("x")
    same.client.ensure_path(lock)
    ahead = stranger.make_claim(lock)
    same.client.set_acls(lock, [THEIRS, make_digest_acl(
        USER, PASSWORD, write=True, create=True, delete=True, admin=True)])
    problem(gateway.acquire("x", wait="1m", headers=headers), 500)
    stranger.wait_claims(lock, 1)
    stranger.delete(ahead)
    are_few(errors(gateway), gateway, began)


@pytest.mark.parametrize("acl", [THEIRS, make_acl("world", "anyone",
                                                  delete=True)])
def test_a_claim_that_cannot_be_read(start, same, stranger, acl):
    """An unreadable claim counts as an unknown holder until it goes."""
    gateway = start(http=AUTH)
    lock = gateway.znode("x")
    same.client.ensure_path(lock)
    claim = same.make_claim(lock)
    same.client.set_acls(claim, [acl])
    problem(gateway.acquire("x", wait="0"), 423)
    assert gateway.inspect("x").json["held"] == 1
    waiter = gateway.begin("x", wait="20s")
    same.wait_claims(lock, 2)
    assert waiter.silent_for(0.2)
    same.delete(claim)
    gateway.release("x", grant(waiter.response(15), "x")["token"])


# what SECURITY.md says about clients that reach ZooKeeper

def test_a_reader_can_make_tokens(start, stranger):
    """Without zk_lock_auth a reader can release, as SECURITY.md says."""
    gateway = start()
    holder = gateway.hold("x")
    claim, = stranger.claims(gateway.znode("x"))
    made = token_of(gateway.znode("x"), claim)
    assert made == holder.token
    assert gateway.release("x", made).status == 204


def password_of(session):
    """ZooKeeper's algorithm: java.util.Random, seeded with the id."""
    seed = (session ^ 0xb3415c00 ^ 0x5deece66d) & (1 << 48) - 1
    made = b""
    while len(made) < 16:
        seed = (seed * 0x5deece66d + 0xb) & (1 << 48) - 1
        made += struct.pack("<I", seed >> 16)
    return made


def steal(server, session):
    """Takes a session over and ends it, unless the session is over already."""
    thief = KazooClient(hosts=server.address, timeout=10,
                        client_id=(session, password_of(session)))
    try:
        thief.start(10)
    except KazooTimeoutError:
        pass        # the session is over already
    thief.stop()
    thief.close()


def answered(response):
    return None if response.status == 503 else response


def test_a_stolen_session(start, stranger, server):
    """Session ids are consecutive and passwords follow from ids, so a client
    that reaches ZooKeeper can end a session, with or without ACLs: the holder
    is told so, and the gateway goes on.
    """
    gateway = start(http=AUTH)
    lock = gateway.znode("x")
    stranger.client.ensure_path(lock)
    # no lease becomes durable, and outlives its session, if the test is slow
    stranger.client.set_acls(lock, [make_digest_acl(
        USER, PASSWORD, read=True, create=True, delete=True)])
    holder = gateway.hold("x")
    mine, password = stranger.client.client_id
    assert password == password_of(mine)
    living = server.living_sessions()
    assert holder.status == 201 and mine in living

    near = [session for session in living - Tree.sessions
            if abs(session - mine) < 20]
    assert len(near) == gateway.workers
    for _ in range(20):
        left = server.living_sessions() & set(near)
        if not left:
            break
        for session in left:
            steal(server, session)
        # the gateway may be quicker, and have the session back
        wait_until(lambda: gateway.inspect("x", holder.token).status != 503,
                   2 * SOON)
    assert not server.living_sessions() & set(near)
    for worker in gateway.worker_pids():
        problem(wait_until(lambda: answered(gateway.inspect(
            "x", holder.token, worker)), 2 * SOON), 410)
    for worker in gateway.worker_pids():
        gateway.release("x", gateway.hold("x", worker=worker).token)


# wrong credentials

def test_wrong_password(start, same):
    right = start(http=AUTH)
    holder = right.hold("x")
    wrong = start(http="zk_lock_auth digest gateway:guessed;")
    for what, answer in calls(wrong, "x", holder.token):
        problem(answer, 403 if what in ("break", "revoke") else 500)
    assert right.release("x", holder.token).status == 204
    assert "guessed" not in wrong.log_text()


def test_scheme_that_the_server_does_not_know(start):
    """ZooKeeper ends such a session: 503, and no worker runs in circles."""
    gateway = start(http="zk_lock_auth nonsense what-it-takes;",
                    wait_sessions=False)
    problem(gateway.acquire("x", wait="1s"), 503)
    text = wait_until(lambda: "authentication failed" in gateway.log_text()
                      and gateway.log_text())
    assert 'see "zk_lock_auth"' in text and "what-it-takes" not in text
    problem(gateway.inspect("x"), 503)
    assert len(gateway.log_text().splitlines()) < 300


def test_two_identities_on_one_server(start, same):
    """Each identity has a root; gates of the other identity cost only time.
    """
    here = start(http=AUTH)
    there = start(root=new_root(), http="zk_lock_auth digest stranger:s;")
    for gateway in (here, there):
        waiters = [(name, gateway.begin(name))
                   for name in ("x%d" % i for i in range(30))]
        for name, waiter in waiters:
            token = grant(waiter.response(SOON), name)["token"]
            assert gateway.release(name, token).status == 204
        for line in gateway.log_text().splitlines():
            assert (not re.search(r"\[(warn|error)\]", line)
                    or GATES in line or SILENT in line), line


# the file

def written(tmp_path, text):
    path = tmp_path / "credentials"
    path.write_bytes(text)
    return path


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\nnot this\n"])
def test_credentials_in_a_file(start, same, stranger, tmp_path, end):
    path = written(tmp_path, ("%s:%s" % (USER, PASSWORD)).encode() + end)
    gateway = start(http="zk_lock_auth digest file=%s;" % path,
                    level="debug")
    holder = gateway.hold("x")
    assert same.client.get_acls(gateway.znode("x"))[0] == [OURS]
    denied(stranger, gateway.znode("x"))
    gateway.release("x", holder.token)
    assert PASSWORD not in gateway.log_text()


def test_file_is_relative_to_the_configuration(start, same):
    gateway = start(http="zk_lock_auth digest file=secret;", start=False)
    with open(gateway.prefix + "/secret", "w") as f:
        f.write("%s:%s\n" % (USER, PASSWORD))
    gateway.start()
    holder = gateway.hold("x")
    # once a minute ZooKeeper removes a lock that is free
    assert same.client.get_acls(gateway.znode("x"))[0] == [OURS]
    gateway.release("x", holder.token)


def test_file_is_read_again_at_a_reload(start, same, tmp_path):
    """The new identity has no rights on znodes of the old identity."""
    path = written(tmp_path, b"gateway:kept-from-others\n")
    gateway = start(http="zk_lock_auth digest file=%s;" % path)
    gateway.release("x", gateway.hold("x").token)
    gateway.reload()
    gateway.release("x", gateway.hold("x").token)
    written(tmp_path, b"gateway:another\n")
    gateway.reload()
    answer = wait_until(lambda: answered(gateway.acquire("x", wait="0")),
                        SOON)
    problem(answer, 500, "does not let")
    assert "another" not in gateway.log_text()


@pytest.mark.parametrize("text, words", [
    (None, "No such file"), (b"", "is empty"), (b"\nx:y\n", "is empty"),
    (b"x:" + b"y" * 1023, "too long"), (b"x:" + b"y" * 5000, "too long")])
def test_files_that_do_not_do(start, tmp_path, text, words):
    path = tmp_path / "credentials"
    if text is not None:
        written(tmp_path, text)
    gateway = start(http="zk_lock_auth digest file=%s;" % path, start=False)
    code, says = gateway.test_conf()
    assert code != 0 and words in says and str(path) in says
    assert "yyy" not in says
    gateway.allow(r"\[emerg\]")


def test_file_without_a_password(start, tmp_path):
    path = written(tmp_path, b"only-a-password\nuser:password\n")
    gateway = start(http="zk_lock_auth digest file=%s;" % path, start=False)
    code, says = gateway.test_conf()
    assert code != 0 and "USER:PASSWORD" in says
    assert "only-a-password" not in says
    gateway.allow(r"\[emerg\]")


def test_file_is_a_directory(start, tmp_path):
    gateway = start(http="zk_lock_auth digest file=%s;" % tmp_path,
                    start=False)
    code, says = gateway.test_conf()
    assert code != 0 and str(tmp_path) in says
    gateway.allow(r"\[(emerg|crit)\]")
