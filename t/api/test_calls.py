"""The calls of an exclusive lock, as clients make the calls in turn.

What a grant's answer says, how clients inspect, renew and release a claim, how
clients give arguments, and that any worker serves any call for any claim.
test_wait.py tests waiting, test_bad_input.py tests refused requests.
"""

import itertools
import json
import re
import subprocess
import time
from urllib.parse import urlencode

import pytest
from kazoo.exceptions import NoAuthError

from lib.checks import (TOKEN, gone, grant, left_at_least, problem,
                        retry_after)
from lib.client import lock_path
from lib.process import wait_until, whole_lines
from lib.sessions import stay_ephemeral
from lib.streams import hold

DEFAULT_TTL = 60000
NUMBERS = itertools.count(1)


@pytest.fixture
def gateway(shared_gateway):
    return shared_gateway


@pytest.fixture
def name():
    """A name that only this test uses."""
    return "lock%d" % next(NUMBERS)


def test_acquire_and_release(gateway, tree, name):
    response = gateway.acquire(name)
    content = grant(response, name)
    assert content["ttl_ms"] == DEFAULT_TTL
    assert len(tree.claims(gateway.znode(name))) == 1

    response = gateway.release(name, content["token"])
    assert response.status == 204
    assert response.body == b""
    assert tree.claims(gateway.znode(name)) == []


def test_claim_is_in_curators_layout(gateway, tree, name):
    stay_ephemeral(tree, gateway.znode(name))
    response = gateway.hold(name, owner="me")
    claim, = tree.claims(gateway.znode(name))
    uuid = claim[3:39]
    assert claim == "_c_%s-lock-%s" % (uuid, claim[-10:])
    assert [len(part) for part in uuid.split("-")] == [8, 4, 4, 4, 12]
    path = gateway.znode(name) + "/" + claim
    assert tree.stat(path).ephemeralOwner != 0
    assert tree.data(path).split(b"\n")[0] == b"me"
    gateway.release(name, response.token)


def test_release_by_path_or_by_header(gateway, name):
    for headers, path in (({}, lambda token: lock_path(name, token)),
                          ("token", lambda token: lock_path(name))):
        token = gateway.hold(name).token
        if headers:
            headers = {"Lock-Token": token}
        response = gateway.call("DELETE", path(token), headers=headers)
        assert response.status == 204
        problem(gateway.inspect(name), 404)


def test_released_claim_is_gone(gateway, name):
    token = gateway.hold(name).token
    gateway.release(name, token)
    for worker in gateway.worker_pids():
        gone(gateway, name, token, worker)


def test_old_token_does_not_release_the_next_holder(gateway, name):
    first = gateway.hold(name).token
    gateway.release(name, first)
    second = gateway.hold(name).token
    assert first != second
    gone(gateway, name, first)
    assert gateway.inspect(name, second).json["state"] == "held"
    assert gateway.release(name, second).status == 204


def test_location_leads_to_the_claim(gateway, name):
    response = gateway.hold(name)
    location = response.headers["Location"]
    path = location[location.index("/locks/"):]
    assert gateway.call("GET", path).json["token"] == response.token
    assert gateway.call("DELETE", path).status == 204


@pytest.mark.parametrize("path", [
    "/locks/team%2Fjob", "/locks/team%252Fjob", "/locks/%2Fteam%2fjob"])
def test_location_of_a_name_with_a_slash(gateway, path):
    """The name is that of the znode, and no part of the request's path."""
    response = gateway.call("POST", path)
    location = response.headers["Location"]
    assert location == "/locks/team%252Fjob/" + response.token
    assert gateway.call("DELETE", location).status == 204


def test_claim_as_its_holder_sees_it(gateway, name):
    asked = time.monotonic()
    response = gateway.hold(name, ttl="30s")
    for seen in (gateway.inspect(name, response.token),
                 gateway.call("GET", lock_path(name),
                              headers={"Lock-Token": response.token})):
        content = grant(seen, name, 200)
        assert content["state"] == "held"
        assert content["token"] == response.token
        assert content["fencing_token"] == response.fencing
        assert content["ttl_ms"] == 30000
        assert left_at_least(content, asked)
    gateway.release(name, response.token)


@pytest.mark.parametrize("said", [
    {}, {"owner": "me"}, {"data": "[1]"}, {"owner": "\u00e4", "data": "{}"}],
    ids=str)
def test_grant_and_claim_have_one_shape(gateway, name, said):
    """A 201 says what a GET of the claim says, and how long the wait took."""
    response = gateway.hold(name, **said)
    content = dict(response.json)
    assert content.pop("waited_ms") >= 0
    for worker in gateway.worker_pids():
        seen = gateway.inspect(name, response.token, worker=worker).json
        assert abs(content["expires_in_ms"]
                   - seen.pop("expires_in_ms")) < 30000
        assert dict(seen, expires_in_ms=content["expires_in_ms"]) == content
    assert content.get("owner") == said.get("owner")
    assert ("data" in content) == ("data" in said)
    gateway.release(name, response.token)


def test_grant_and_claims_have_one_shape(gateway, name):
    response = gateway.call("POST", "/locks/", None, None, {
        "names": [name + "a", name + "b"], "owner": "me", "data": {"job": 1}})
    assert response.status == 201, response
    seen = gateway.call("GET", "/locks/", None,
                        {"Lock-Token": response.token}).json
    assert set(response.json) - set(seen) == {"waited_ms"}
    for member in ("state", "locks", "owner", "data", "mode", "ttl_ms"):
        assert response.json[member] == seen[member], member
    gateway.call("DELETE", "/locks/", None, {"Lock-Token": response.token})


def test_lock_as_others_see_it(gateway, name):
    asked = time.monotonic()
    response = gateway.hold(name, {"owner": "night shift", "ttl": "20s",
                                   "data": {"job": [1, 2]}})
    waiter = gateway.begin(name, owner="day shift")
    seen = wait_for_queue(gateway, name, 1)
    assert response.token.encode() not in seen.body

    content = seen.json
    assert content["name"] == name
    assert content["mode"] == "exclusive"
    holder, = content["holders"]
    assert holder["owner"] == "night shift"
    assert holder["data"] == {"job": [1, 2]}
    assert holder["fencing_token"] == response.fencing
    assert holder["ttl_ms"] == 20000 and holder["expires_in_ms"] <= 20000
    assert left_at_least(holder, asked)
    assert "since" in holder
    assert [claim["owner"] for claim in content["queue"]] == ["day shift"]
    assert content["queued"] == 1

    gateway.release(name, response.token)
    gateway.release(name, waiter.response().token)


def wait_for_queue(gateway, name, number):
    deadline = time.monotonic() + 10
    while True:
        seen = gateway.inspect(name)
        if seen.status == 200 and seen.json["queued"] == number:
            return seen
        assert time.monotonic() < deadline, seen


def test_every_worker_sees_the_lock_alike(gateway, name):
    token = gateway.hold(name, owner="me").token
    for worker in gateway.worker_pids():
        content = gateway.inspect(name, worker=worker).json
        assert [holder["owner"] for holder in content["holders"]] == ["me"]
        assert content["queue"] == []
        assert content["queued"] == 0
    gateway.release(name, token)


def test_free_lock_is_not_there(gateway, name):
    problem(gateway.inspect(name), 404)
    gateway.release(name, gateway.hold(name).token)
    for worker in gateway.worker_pids():
        problem(gateway.inspect(name, worker=worker), 404)


def test_taken_lock_refuses_a_try(gateway, tree, name):
    holder = gateway.hold(name, {"owner": "me", "data": {"a": "b"}})
    for worker in gateway.worker_pids():
        response = gateway.acquire(name, wait="0", worker=worker)
        content = problem(response, 423, '"wait"')
        assert content["holder"]["owner"] == "me"
        assert holder.token.encode() not in response.body
        assert content.get("retry_after_ms", 0) >= 0
        retry_after(response)
    tree.wait_claims(gateway.znode(name), 1)
    gateway.release(name, holder.token)


def test_try_of_a_free_lock_is_granted(gateway, name):
    for worker in gateway.worker_pids():
        token = gateway.hold(name, wait="0", worker=worker).token
        gateway.release(name, token)


# arguments

@pytest.mark.parametrize("text, milliseconds", [
    ("10s", 10000), ("1500ms", 1500), ("2m", 120000), ("7", 7000),
    ("1h", 3600000), ("1.5s", 1500), ("24h", 86400000)])
def test_durations(gateway, name, text, milliseconds):
    for arguments in ({"ttl": text}, {"body": {"ttl": text}}):
        response = gateway.hold(name, **arguments)
        assert response.json["ttl_ms"] == milliseconds
        gateway.release(name, response.token)


def test_durations_as_numbers(gateway, name):
    response = gateway.hold(name, {"ttl": 3, "wait": 0})
    assert response.json["ttl_ms"] == 3000
    gateway.release(name, response.token)


def test_body_wins_over_query(gateway, name):
    response = gateway.hold(name, {"ttl": "5s", "data": None},
                            ttl="7s", owner="query")
    assert response.json["ttl_ms"] == 5000
    holder, = gateway.inspect(name).json["holders"]
    assert holder["owner"] == "query"
    gateway.release(name, response.token)


@pytest.mark.parametrize("content_type", [
    "application/json", "application/json; charset=utf-8",
    "Application/JSON", "application/vnd.example+json",
    "application/LD+JSON ; charset=utf-8", None])
def test_content_types_that_are_json(gateway, name, content_type):
    headers = {"Content-Type": content_type} if content_type else {}
    response = gateway.hold(name, body=b'{"ttl":"5s"}', headers=headers)
    assert response.json["ttl_ms"] == 5000
    gateway.release(name, response.token)


def test_body_in_pieces(gateway, name):
    """The client sends chunks of a byte each, and the parser reads the same."""
    body = json.dumps({"owner": "\u00e4\U0001f512", "ttl": "5s",
                       "data": {"a": ["\u20ac", 1.5, None, True]}})
    connection = gateway.connect()
    connection.send_bytes(
        b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/json\r\n\r\n" % lock_path(name).encode())
    for byte in body.encode():
        connection.socket.sendall(b"1\r\n%c\r\n" % byte)
    connection.socket.sendall(b"0\r\n\r\n")
    response = connection.response()
    grant(response, name)
    holder, = gateway.inspect(name).json["holders"]
    assert holder["owner"] == "\u00e4\U0001f512"
    assert holder["data"] == {"a": ["\u20ac", 1.5, None, True]}
    gateway.release(name, response.token)


@pytest.mark.parametrize("directive", ["client_body_in_file_only clean;",
                                       "client_body_buffer_size 16;"])
def test_body_in_a_file(start_gateway, directive):
    """nginx has the body, or a part of the body, in a file; blanks count."""
    gateway = start_gateway(http=directive)
    as_json = {"Content-Type": "application/json"}

    def padded(content, size):
        text = json.dumps(content).encode()
        return text[:-1] + b" " * (size - len(text)) + b"}"

    content = {"owner": "me", "data": {"a": "x" * 1000}}
    info = {"ID": "4711", "Who": "me", "Info": "y" * 900}
    for size in (1200, 5000, 8192):
        response = gateway.hold("x", padded(content, size), headers=as_json)
        holder, = gateway.inspect("x").json["holders"]
        assert {key: holder[key] for key in content} == content
        gateway.release("x", response.token)
        several = gateway.call("POST", "/locks/", None, as_json, padded(
            {"names": ["a", "b"]}, size))
        assert len(several.json["locks"]) == 2
        gateway.call("DELETE", "/locks/", headers={
            "Lock-Token": several.token})

        body = padded(info, size)
        assert gateway.call("LOCK", lock_path("t"), body=body).status == 200
        other = gateway.call("LOCK", lock_path("t"), {"wait": "0"},
                             body=padded(dict(info, ID="1"), size))
        assert (other.status, other.json["ID"]) == (423, "4711")
        assert gateway.call("UNLOCK", lock_path("t"), body=body).status == 200
    for method in ("POST", "LOCK"):
        problem(gateway.call(method, lock_path("x"), None, as_json,
                             padded(info, 8193)), 413)


def test_empty_body_is_no_body(gateway, name):
    for body in (b"", b" \n"):
        response = gateway.hold(name, body=body,
                                headers={"Content-Type": "application/json"})
        gateway.release(name, response.token)


def test_data_of_a_kibibyte(gateway, name):
    data = "x" * 1022
    response = gateway.hold(name, {"data": data})
    holder, = gateway.inspect(name).json["holders"]
    assert holder["data"] == data
    gateway.release(name, response.token)


def test_owner_of_any_alphabet(gateway, name):
    for owner in ("a b", "\u65e5\u672c", "a+b&c=d%", "\"\\", "x" * 255):
        response = gateway.hold(name, owner=owner)
        holder, = gateway.inspect(name).json["holders"]
        assert holder["owner"] == owner
        gateway.release(name, response.token)


def test_blanks_in_a_query(gateway, name):
    """The query is encoded as HTTP libraries encode a form: a blank is "+"."""
    query = urlencode({"owner": "backup job, a+b", "data": '{"a": "b c"}'})
    assert "backup+job" in query
    response = gateway.call("POST", lock_path(name), query)
    assert response.status == 201, response
    holder, = gateway.inspect(name).json["holders"]
    assert holder["owner"] == "backup job, a+b"
    assert holder["data"] == {"a": "b c"}
    gateway.release(name, response.token)


def test_prefer_wait(gateway, name):
    holder = gateway.hold(name)
    for preference in ("wait=0", "wait=1", "respond-sync, wait=1"):
        problem(gateway.in_reach(lambda: gateway.acquire(
            name, headers={"Prefer": preference}, timeout=10)), 423)
    gateway.release(name, holder.token)


@pytest.mark.parametrize("name", [
    "a", "UPPER.lower", "...", "a b", "a+b", "50%", "x?y", "x#y", "\u00e4",
    "\u65e5\u672c\u8a9e", "a:b;c,d", "'\"\\", "n" * 200, "~-_.!*()",
    "_c_00000000-0000-0000-0000-000000000000-lock-0000000000"])
def test_names(gateway, tree, name):
    response = gateway.hold(name)
    grant(response, name)
    assert name in tree.children(gateway.root)
    assert gateway.inspect(name).json["name"] == name
    location = response.headers["Location"]
    path = location[location.index("/locks/"):]
    assert gateway.call("GET", path).status == 200
    assert gateway.release(name, response.token).status == 204


def test_name_is_not_rewritten(gateway, name):
    """Different spellings of the same bytes name the same lock."""
    token = gateway.hold(name + "-a").token
    spelled = "/locks/" + name + "-%61"
    problem(gateway.call("POST", spelled, {"wait": "0"}), 423)
    other = gateway.hold(name + "-A", wait="0").token
    gateway.release(name + "-a", token)
    gateway.release(name + "-A", other)


# every worker

def test_any_worker_serves_any_claim(gateway, name):
    workers = gateway.worker_pids()
    assert len(workers) == 2
    for owner in workers:
        for other in workers:
            response = gateway.hold(name, worker=owner)
            token = response.token
            seen = gateway.inspect(name, token, worker=other)
            assert seen.json["fencing_token"] == response.fencing
            assert seen.json["state"] == "held"
            renewed = gateway.renew(name, token, worker=other, ttl="90s")
            assert grant(renewed, name, 200)["ttl_ms"] == 90000
            seen = gateway.inspect(name, token, worker=owner)
            assert seen.json["ttl_ms"] == 90000
            assert gateway.release(name, token, worker=other).status == 204
            gone(gateway, name, token, owner)


def test_release_at_another_worker_grants_the_next(gateway, name):
    one, other = gateway.worker_pids()
    for waiting in (one, other):
        holder = gateway.hold(name, worker=one)
        waiter = gateway.begin(name, worker=waiting)
        wait_for_queue(gateway, name, 1)
        assert gateway.release(name, holder.token, other).status == 204
        response = waiter.response(10)
        grant(response, name)
        assert response.fencing > holder.fencing
        gateway.release(name, response.token)


@pytest.mark.shows("fencing tokens grow with each grant")
def test_fencing_tokens_grow_over_workers(gateway, name):
    last = 0
    for _ in range(10):
        for worker in gateway.worker_pids():
            response = gateway.hold(name, worker=worker)
            assert response.fencing > last
            last = response.fencing
            gateway.release(name, response.token)


def test_tokens_are_unlike(gateway, name):
    tokens = set()
    for _ in range(20):
        token = gateway.hold(name).token
        assert TOKEN.match(token)
        tokens.add(token)
        gateway.release(name, token)
    assert len(tokens) == 20
    ends = {token[:6] for token in tokens} | {token[-6:] for token in tokens}
    assert len(ends) > 20


def test_one_connection_for_everything(gateway, name):
    with gateway.connect() as connection:
        for _ in range(20):
            response = connection.request("POST", lock_path(name))
            content = grant(response, name)
            response = connection.request(
                "DELETE", lock_path(name),
                headers={"Lock-Token": content["token"]})
            assert response.status == 204


def test_pipelined_release_waits_its_turn(gateway, name):
    """A second request behind a waiter does not mean that the client left."""
    holder = gateway.hold(name)
    connection = gateway.begin(name)
    wait_for_queue(gateway, name, 1)
    connection.send("GET", "/ready")
    assert connection.silent_for(0.2)
    gateway.release(name, holder.token)
    response = connection.response(10)
    grant(response, name)
    assert connection.response(10).status == 204
    gateway.release(name, response.token)


def test_head_is_get_without_a_body(gateway, name):
    token = gateway.hold(name).token
    for path, status in ((lock_path(name), 200),
                         (lock_path(name, token), 200),
                         (lock_path(name, token[::-1]), 404),
                         (lock_path(name + "-free"), 404)):
        response = gateway.call("HEAD", path)
        assert response.status == status
        assert response.body == b""
    gateway.release(name, token)


def test_long_queue_is_shown_in_part(gateway, tree, name):
    """The answer counts all waiters and describes the first."""
    holder = gateway.hold(name, owner="first")
    with gateway.connect_http2() as connection:
        for _ in range(120):
            connection.send("POST", lock_path(name), {"wait": "1m"})
        tree.wait_claims(gateway.znode(name), 121)
        content = gateway.inspect(name).json
        assert content["holders"][0]["owner"] == "first"
        assert content["queued"] == 120
        assert 50 <= len(content["queue"]) <= 120
    tree.wait_claims(gateway.znode(name), 1)
    gateway.release(name, holder.token)


def test_modes_of_a_queue(gateway, tree, name):
    """A waiter's mode is told if it is not that of the first claim."""
    holder = gateway.hold(name, mode="shared")
    waiters = []
    for mode in ("write", "write", "shared", "write"):
        waiters.append(gateway.begin(name, mode=mode, wait="1m"))
        tree.wait_claims(gateway.znode(name), 1 + len(waiters))
    content = gateway.inspect(name).json
    assert content["mode"] == "shared"
    assert [claim.get("mode") for claim in content["queue"]] == [
        "write", "write", None, "write"]
    while waiters:
        waiters.pop().close()
        tree.wait_claims(gateway.znode(name), 1 + len(waiters))
    gateway.release(name, holder.token)


# where locks live

def test_root_of_all(start_gateway, tree, root):
    """The locks of zk_lock_root / are znodes at the top."""
    gateway = start_gateway(root="/", server="location /app/ {"
                            " zk_lock $arg_n wait=0; try_files /none =204; }")
    name = root.split("/")[1] + "-alone"
    holder = gateway.hold(name)
    assert len(tree.claims("/" + name)) == 1
    assert gateway.call("GET", "/app/?n=" + name).status == 423
    listed = gateway.call("GET", "/locks/", {"prefix": name}).json["locks"]
    assert [lock["name"] for lock in listed] == [name]
    assert gateway.release(name, holder.token).status == 204
    several = gateway.call("POST", "/locks/", body={"names": [name]})
    assert len(tree.claims("/" + name)) == 1
    assert gateway.call("DELETE", "/locks/", headers={
        "Lock-Token": several.token}).status == 204
    tree.delete_tree("/" + name)


def test_two_locations_one_lock(start_gateway, tree):
    gateway = start_gateway(server="location /admin/ { zk_lock_api; }")
    response = gateway.call("POST", "/admin/x")
    grant(response, "x", prefix="/admin/")
    problem(gateway.acquire("x", wait="0"), 423)
    assert gateway.release("x", response.token).status == 204


def test_roots_keep_tenants_apart(start_gateway, tree, root):
    gateway = start_gateway(root=root + "/$http_x_tenant")
    a, b = {"X-Tenant": "a"}, {"X-Tenant": "b"}
    mine = gateway.hold("x", headers=a)
    yours = gateway.hold("x", headers=b)
    assert len(tree.claims(root + "/a/x")) == 1
    assert len(tree.claims(root + "/b/x")) == 1

    path = lock_path("x", mine.token)
    problem(gateway.call("DELETE", path, headers=b), 404)
    assert gateway.call("DELETE", path, headers=a).status == 204
    path = lock_path("x", yours.token)
    assert gateway.call("DELETE", path, headers=b).status == 204


def test_root_that_a_client_breaks(start_gateway, tree, root):
    """The gateway checks the value of a variable as strictly as a name."""
    gateway = start_gateway(root=root + "/$http_x_tenant")
    for tenant in ("..", "a/../b", "a//b", "\x01", "\xff", ""):
        response = gateway.acquire("x", headers={"X-Tenant": tenant})
        assert 400 <= response.status < 600 and response.status != 503
    assert tree.children(root) == []


def test_chroot(start_gateway, zookeeper, tree, root):
    top = "/" + root.split("/")[1]
    tree.make(top + "/chroot")
    gateway = start_gateway(servers=zookeeper.address + top + "/chroot",
                            root="/a/b", wait_sessions=False)
    response = gateway.hold("x")
    znode = top + "/chroot/a/b/x"
    assert len(tree.claims(znode)) == 1
    foreign = tree.make_claim(znode)
    waiter = gateway.begin("x")
    tree.wait_claims(znode, 3)
    gateway.release("x", response.token)
    tree.wait_claims(znode, 2)
    assert waiter.silent_for(0.2)
    tree.delete(foreign)
    assert gateway.release("x", waiter.response().token).status == 204


def test_identity(start_gateway, tree, connect_tree, zookeeper, root):
    """Only clients with the gateway's identity may use the gateway's znodes."""
    gateway = start_gateway(http="zk_lock_auth digest gateway:secret;")
    holder = gateway.hold("x", owner="me")
    with pytest.raises(NoAuthError):
        tree.children(gateway.znode("x"))
    known = connect_tree(zookeeper.address)
    known.client.add_auth("digest", "gateway:secret")
    claim, = known.claims(gateway.znode("x"))
    acl, = known.client.get_acls(gateway.znode("x") + "/" + claim)[0]
    assert (acl.id.scheme, acl.id.id.split(":")[0]) == ("digest", "gateway")
    assert gateway.release("x", holder.token).status == 204

    stranger = start_gateway()
    for response in (stranger.acquire("x"), stranger.inspect("x")):
        problem(response, 500)
    known.delete_tree("/" + root.split("/")[1])


def calls_logged(path):
    """The lines of a log that are about the lock "a b", but those of 503."""
    return [line for line in whole_lines(path)
            if " a b " in line and " 503 a b unreachable " not in line]


def test_variables(start_gateway):
    """The log of the test has a line for each call, in the calls' order."""
    gateway = start_gateway(
        workers=1,
        http="log_format locks '$request_method $status $zk_lock_name "
             "$zk_lock_outcome $zk_lock_wait_time $zk_lock_fencing_token';",
        server="access_log locks.log locks;")
    holder = gateway.hold("a b")
    gateway.in_reach(lambda: gateway.acquire("a b", wait="200ms"))
    gateway.release("a b", holder.token)
    gateway.inspect("a b")
    path = gateway.prefix + "/locks.log"
    wait_until(lambda: len(calls_logged(path)) == 4)
    post, refused, delete, get = calls_logged(path)
    assert re.fullmatch(r"POST 201 a b granted \d\.\d{3} %d" % holder.fencing,
                        post)
    assert re.match(r"POST 423 a b taken \d\.\d{3} ", refused)
    assert float(refused.split()[5]) >= 0.2
    assert delete.startswith("DELETE 204 a b released ")
    assert get.startswith("GET 404 a b free ")


def test_limits_of_a_location(start_gateway):
    gateway = start_gateway(
        location="zk_lock_ttl 25s; zk_lock_max_ttl 40s;"
                 "zk_lock_wait 0; zk_lock_max_wait 500ms;")
    holder = gateway.hold("x")
    assert holder.json["ttl_ms"] == 25000
    for wait in {}, {"wait": "1h"}:
        problem(gateway.in_reach(lambda: gateway.acquire(
            "x", timeout=10, **wait)), 423)
    renewed = gateway.renew("x", holder.token, ttl="1h")
    assert renewed.json["ttl_ms"] == 40000
    gateway.release("x", holder.token)
    assert gateway.hold("x", ttl="41s").json["ttl_ms"] == 40000


@pytest.fixture
def strict(start_gateway):
    return start_gateway(
        location="zk_lock_max_ttl 40s; zk_lock_max_wait 300ms;")


LONG = [{"ttl": "400d"}, {"ttl": "41s"}, {"ttl": "40001ms"}]


@pytest.mark.parametrize("asked", LONG, ids=str)
def test_note_of_a_lease_that_was_cut(strict, name, asked):
    """Each kind of answer has the note."""
    holder = strict.hold(name, **asked)
    answers = [holder, strict.renew(name, holder.token, **asked),
               strict.acquire(name, headers={"Lock-Token": holder.token},
                              **asked),
               strict.in_reach(lambda: strict.call(
                   "POST", "/locks/", None, None,
                   dict(asked, names=[name + "-s"])))]
    answers += [strict.call("PUT", "/locks/", asked,
                            {"Lock-Token": answers[-1].token}),
                strict.acquire(name, headers={"Prefer": "respond-async"},
                               **asked)]
    for answer in answers:
        assert answer.status in (200, 201, 202), answer
        assert answer.json["ttl_ms"] == 40000
        for word in ('"ttl"', "zk_lock_max_ttl", "40000 ms"):
            assert word in answer.json["note"], answer
    for token in (holder.token, holder.token, answers[-1].token):
        assert strict.release(name, token).status in (200, 204)
    strict.call("DELETE", "/locks/", None, {"Lock-Token": answers[3].token})


def test_note_of_a_wait_that_was_cut(strict, name):
    """The note comes when the wait is over, and while the wait goes on."""
    holder = strict.hold(name)
    asks = [lambda: strict.acquire(name, wait="400d", timeout=10),
            lambda: strict.call("GET", lock_path(name), {"until": "free",
                                                         "wait": "400d"}),
            lambda: strict.call("POST", "/locks/", None, None,
                                {"names": [name], "wait": "400d"}),
            lambda: strict.acquire(name, headers={"Prefer": "wait=301"})]
    contents = [problem(strict.in_reach(ask), 423) for ask in asks]
    polled = strict.in_reach(lambda: strict.acquire(
        name, headers={"Prefer": "respond-async"}, wait="301ms"))
    assert polled.status == 202, polled
    contents += [polled.json, wait_until(lambda: taken(strict, name), 60.0)]
    for content in contents:
        for word in ('"wait"', "zk_lock_max_wait", "300 ms"):
            assert word in content["note"], content
    strict.release(name, holder.token)


def taken(gateway, name):
    """The data of the event that ends a stream's wait.

    None if ZooKeeper stands still when the wait is over, as in in_reach().
    """
    stream = hold(gateway, name, wait="400d")
    if stream.head().status == 503:
        return None
    stream.event("queued")
    event = stream.next()
    if event.name == "lost" and event.data["reason"] == "unreachable":
        return None
    assert event.name == "taken", event
    return event.data


def test_no_note_of_what_was_not_cut(strict, name):
    holder = strict.hold(name, ttl="40s", wait="300ms")
    answers = [holder, strict.hold(name + "-w", wait="400d"),
               strict.acquire(name, wait="300ms"),
               strict.acquire(name), strict.renew(name, holder.token),
               strict.call("GET", lock_path(name, holder.token),
                           {"wait": "400d"}),
               strict.renew(name, holder.token, ttl="40s")]
    assert not [answer for answer in answers if "note" in answer.json]
    strict.release(name, holder.token)
    strict.release(name + "-w", answers[1].token)


@pytest.mark.parametrize("preference, applied", [
    ("wait=0", "wait=0"), ("wait=0.25", "wait=0.250"),
    ("wait=100", "wait=0.300"), ("x, Wait=0 ; a=b", "wait=0")])
def test_preference_is_applied(strict, name, preference, applied):
    """RFC 7240: the answer names the preference and the value that applied."""
    headers = {"Prefer": preference}
    holder = strict.in_reach(lambda: strict.acquire(name, headers=headers))
    assert holder.status == 201, holder
    tagged = dict(headers, **{
        "If-None-Match": strict.inspect(name).headers["ETag"]})
    answers = [holder] + [strict.in_reach(ask) for ask in (
        lambda: strict.call("GET", lock_path(name), None, tagged),
        lambda: strict.acquire(name, headers=headers, timeout=10),
        lambda: strict.call("GET", lock_path(name), {"until": "free"},
                            headers),
        lambda: strict.call("GET", lock_path(name, holder.token), None,
                            headers),
        lambda: strict.call("POST", "/locks/", None, headers,
                            {"names": [name]}))]
    assert [answer.status for answer in answers] == [201, 304, 423, 423, 200,
                                                     423]
    for answer in answers:
        assert answer.headers["Preference-Applied"] == applied
    strict.release(name, holder.token)


def test_preferences_are_applied(strict, name):
    holder = strict.hold(name)
    polled = strict.acquire(name, headers={"Prefer": "respond-async, wait=1"})
    assert polled.status == 202, polled
    assert (sorted(polled.headers.all("Preference-Applied"))
            == ["respond-async", "wait=0.300"])
    strict.release(name, holder.token)


def test_preference_that_is_not_applied(strict, name):
    """The query and the body win, and some calls do not wait."""
    headers = {"Prefer": "wait=1"}
    holder = strict.in_reach(lambda: strict.acquire(name, {"wait": "1s"},
                                                    headers))
    for answer in (holder, strict.acquire(name, headers=headers, wait="0"),
                   strict.acquire(name, headers=headers, x="0"),
                   strict.call("PUT", lock_path(name, holder.token), None,
                               headers),
                   strict.acquire(name, headers={"Prefer": "return=minimal"}),
                   strict.call("DELETE", lock_path(name, holder.token), None,
                               headers)):
        assert "Preference-Applied" not in answer.headers, answer


# the client of the README

def curl(gateway, *arguments):
    """(status, headers and body) as curl prints them."""
    run = subprocess.run(
        ["curl", "-sS", "-i", "--max-time", "10"] + list(arguments),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20,
        check=True)
    text = run.stdout.decode()
    return int(text.split()[1]), text


def field(text, name):
    lines = [line for line in text.splitlines()
             if line.lower().startswith(name.lower() + ":")]
    return lines[0].partition(":")[2].strip()


def test_curl(gateway, name):
    url = "http://127.0.0.1:%d/locks/%s" % (gateway.port, name)
    status, text = curl(gateway, "-X", "POST", url + "?wait=5s&ttl=10s")
    assert status == 201
    token = field(text, "Lock-Token")
    status, _ = curl(gateway, "-X", "POST", url + "?wait=0")
    assert status == 423
    status, text = curl(gateway, url)
    assert status == 200
    status, _ = curl(gateway, "-X", "PUT", "-H", "Lock-Token: " + token, url)
    assert status == 200
    status, _ = curl(gateway, "-X", "DELETE", "-H", "Lock-Token: " + token,
                     url)
    assert status == 204
    status, text = curl(gateway, "-d", '{"ttl":"10s"}', "-H",
                        "Content-Type: application/json", url)
    assert status == 201
    status, _ = curl(gateway, "-X", "DELETE",
                     url + "/" + field(text, "Lock-Token"))
    assert status == 204


def test_curl_that_forgot_the_content_type(gateway, name):
    url = "http://127.0.0.1:%d/locks/%s" % (gateway.port, name)
    status, text = curl(gateway, "-d", '{"ttl":"10s"}', url)
    assert status == 415
    assert "Content-Type: application/json" in text
    assert "query" in text


@pytest.mark.parametrize("name, value", [
    ("If-Match", '"1"'), ("If-Match", '"no number"'), ("If-None-Match", "*"),
    ("If-Unmodified-Since", "Wed, 21 Oct 2015 07:28:00 GMT")])
def test_conditions_are_not_for_claims(gateway, tree, name, value):
    """Conditional headers, which nginx would obey, change nothing here."""
    condition = {name: value}
    holder = gateway.call("POST", lock_path("x"), headers=condition)
    token = dict(condition, **{"Lock-Token": grant(holder, "x")["token"]})
    assert gateway.call("PUT", lock_path("x"), headers=token).status == 200
    assert gateway.call("GET", lock_path("x", holder.token),
                        headers=condition).json["state"] == "held"
    assert gateway.call("DELETE", lock_path("x", holder.token)).status == 204
    locked = gateway.call("LOCK", lock_path("x"), headers=condition,
                          body={"ID": "a"})
    assert locked.status == 200 and locked.json
    assert gateway.call("UNLOCK", lock_path("x"), headers=condition,
                        body={"ID": "a"}).status == 200
    tree.wait_claims(gateway.znode("x"), 0)
