"""What an operator may do to holders of a lock where zk_lock_admin is on.

The operator breaks a claim by the fencing token, so that no other claim is hit
by mistake, or breaks all claims that hold the lock.  A waiter stays and is
granted the lock.  The maker of the claim does not matter: another gateway,
Curator or kazoo.

A revoked holder learns of the revocation from the answer to the next call, and
is free to ignore the message.
"""

import base64
import itertools
import json
import os

import pytest
from kazoo.security import make_acl

from conftest import gateways, new_root
from lib import streams
from lib.checks import gone, grant, problem
from lib.client import lock_path
from lib.process import wait_until
from lib.queues import SOON, wait
from lib.tokens import claim_of, token_of

ADMIN = "zk_lock_admin on;"
GUID = "_c_6e5fbf11-8d39-4dc3-8ff1-f4b3c1f4ef71"


@pytest.fixture(scope="module")
def shared_pair(request, tmp_path_factory, zookeeper, tree):
    """Two gateways for all tests that leave them as they were."""
    with gateways(request.node, tmp_path_factory.mktemp("pair"), zookeeper,
                  tree, new_root()) as make:
        yield make(location=ADMIN), make(location=ADMIN)


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


@pytest.fixture(params=["here", "there"])
def here_and_there(request, shared_pair):
    """(the gateway that grants, where the operator is)"""
    here, there = shared_pair
    return here, here if request.param == "here" else there


_names = itertools.count()


@pytest.fixture
def name():
    return "x%d" % next(_names)


def everywhere(*pair):
    return [(gateway, worker) for gateway in pair
            for worker in gateway.worker_pids()]


def if_match(match):
    return None if match is None else {"If-Match": match}


def break_(gateway, name, match, worker=None, headers=()):
    return gateway.call("DELETE", lock_path(name), {"force": "1"},
                        dict(if_match(match) or {}, **dict(headers)),
                        worker=worker)


def revoke(gateway, name, match=None, worker=None, headers=()):
    return gateway.call("PUT", lock_path(name), {"revoke": "1"},
                        dict(if_match(match) or {}, **dict(headers)),
                        worker=worker)


def asked(response, name, number):
    assert response.status == 202, response
    assert response.json == {"name": name, "asked": number}


def begin(gateway, tree, name, **query):
    """A waiter whose claim is in the queue now."""
    before = len(tree.claims(gateway.znode(name)))
    waiter = gateway.begin(name, wait="1m", **query)
    tree.wait_claims(gateway.znode(name), before + 1)
    return waiter


def fencing_tokens(gateway, name):
    return [holder["fencing_token"]
            for holder in gateway.inspect(name).json["holders"]]


# where the calls are not allowed

@pytest.mark.parametrize("location", ["", "zk_lock_admin off;"])
def test_not_allowed(start_gateway, location):
    gateway = start_gateway(location=location)
    holder = gateway.hold("x")
    for match in (None, "*", str(holder.fencing), "1", "no"):
        for worker in gateway.worker_pids():
            problem(break_(gateway, "x", match, worker), 403)
            problem(revoke(gateway, "x", match, worker), 403)
            problem(break_(gateway, "free", match, worker), 403)
    content = gateway.inspect("x", holder.token).json
    assert content["state"] == "held" and "revoke" not in content
    assert gateway.release("x", holder.token).status == 204


def test_allowed_in_one_location(start_gateway):
    gateway = start_gateway(server="""
        location /admin/ {
            zk_lock_api;
            zk_lock_admin on;
        }
        """)
    gateway.hold("x")
    problem(break_(gateway, "x", "*"), 403)
    response = gateway.call("DELETE", "/admin/x", {"force": "1"},
                            {"If-Match": "*"})
    assert response.status == 204
    problem(gateway.inspect("x"), 404)


# which holder is meant

@pytest.mark.parametrize("form", ["%d", '"%d"', 'W/"%d"', "*"])
def test_holder_is_broken(here_and_there, tree, name, form):
    here, there = here_and_there
    for worker in here.worker_pids():
        for operator in there.worker_pids():
            holder = here.hold(name, worker=worker)
            match = form % holder.fencing if "%" in form else form
            response = break_(there, name, match, operator)
            assert response.status == 204 and response.body == b""
            assert tree.claims(here.znode(name)) == []
            problem(here.inspect(name), 404)
            for gateway, asked_one in everywhere(here, there):
                problem(gateway.inspect(name, holder.token, asked_one), 410)
                problem(gateway.renew(name, holder.token, worker=asked_one),
                        410)
                assert gateway.release(name, holder.token,
                                       asked_one).status in (204, 410)


def test_whom_is_missing(here_and_there, name):
    """No holder is broken by mistake."""
    here, there = here_and_there
    problem(break_(there, name, None), 428)
    holder = here.hold(name)
    for _, worker in everywhere(there):
        problem(break_(there, name, None, worker), 428, "if-match")
    assert here.release(name, holder.token).status == 204


@pytest.mark.parametrize("match", [
    "", '""', "x", '"x"', '"*"', "0", '"0"', "-1", "1.5", "1, 2", '"1", "2"',
    '"1', '1"', 'W/1', 'w/"1"', 'W/""', "0x10", "**", "99999999999999999999",
    '"'])
@pytest.mark.parametrize("how", [break_, revoke])
def test_whom_is_none(gateway, name, how, match):
    holder = gateway.hold(name)
    problem(how(gateway, name, match), 400, "if-match")
    assert gateway.inspect(name, holder.token).json["state"] == "held"
    gateway.release(name, holder.token)


@pytest.mark.parametrize("how", [break_, revoke])
def test_whom_is_said_twice(gateway, name, how):
    holder = gateway.hold(name)
    method, query = (("DELETE", "force=1") if how is break_
                     else ("PUT", "revoke=1"))
    request = ("%s %s?%s HTTP/1.1\r\nHost: x\r\nIf-Match: %d\r\n"
               "If-Match: *\r\n\r\n" % (method, lock_path(name), query,
                                        holder.fencing))
    with gateway.connect() as connection:
        connection.send_bytes(request.encode(), method)
        assert connection.response().status == 400
    assert gateway.inspect(name, holder.token).json["state"] == "held"
    gateway.release(name, holder.token)


@pytest.mark.parametrize("how", [break_, revoke])
def test_another_holder_is_meant(here_and_there, name, how):
    """The named holder has left, and another client holds the lock."""
    here, there = here_and_there
    former = here.hold(name)
    here.release(name, former.token)
    holder = here.hold(name)
    for match in (str(former.fencing), '"%d"' % former.fencing,
                  str(holder.fencing + 256), "1"):
        problem(how(there, name, match), 412)
    content = there.inspect(name, holder.token).json
    assert content["state"] == "held" and "revoke" not in content
    assert here.release(name, holder.token).status == 204


@pytest.mark.parametrize("match", ["*", "256"])
@pytest.mark.parametrize("how", [break_, revoke])
def test_nobody_holds_it(here_and_there, tree, name, how, match):
    here, there = here_and_there
    problem(how(there, name, match), 404)
    here.release(name, here.hold(name).token)
    problem(how(there, name, match), 404)
    assert tree.claims(here.znode(name)) == []


def test_beside_other_arguments(gateway, name):
    holder = gateway.hold(name)
    for method, query in (("DELETE", "force=1&wait=1"), ("DELETE", "force=0"),
                          ("DELETE", "force"), ("DELETE", "revoke=1"),
                          ("PUT", "revoke=1&ttl=1m"), ("PUT", "revoke=2"),
                          ("PUT", "revoke=1&mode=shared"),
                          ("PUT", "force=1"), ("POST", "force=1"),
                          ("GET", "force=1"), ("GET", "revoke=1")):
        problem(gateway.call(method, lock_path(name), query,
                             {"If-Match": "*"}), 400)
    for method, query in (("DELETE", "force=1"), ("PUT", "revoke=1")):
        problem(gateway.call(method, lock_path(name, holder.token), query,
                             {"If-Match": "*"}), 400)
    assert gateway.inspect(name, holder.token).json["state"] == "held"
    gateway.release(name, holder.token)


# waiters

@pytest.mark.parametrize("match", ["*", "number"])
def test_waiters_stay(here_and_there, tree, name, match):
    """The next waiter is granted the lock at once."""
    here, there = here_and_there
    holder = here.hold(name)
    waiters = [begin(gateway, tree, name)
               for gateway in (here, there, here)]
    for waiter in waiters:
        wait(*waiters[waiters.index(waiter):])
        assert break_(there, name, "*" if match == "*"
                      else str(holder.fencing)).status == 204
        response = waiter.response(SOON)
        grant(response, name)
        assert response.fencing > holder.fencing
        holder = response
    assert here.release(name, holder.token).status == 204


def test_waiter_is_not_meant(here_and_there, tree, name):
    """A waiter's fencing token is not valid yet."""
    here, there = here_and_there
    holder = here.hold(name)
    waiter = begin(here, tree, name)
    claim = tree.claims(here.znode(name))[1]
    czxid = tree.stat(here.znode(name) + "/" + claim).czxid
    for index in range(3):
        problem(break_(there, name, str(czxid * 256 + index)), 412)
        problem(revoke(there, name, str(czxid * 256 + index)), 412)
    here.release(name, holder.token)
    response = waiter.response(SOON)
    assert break_(there, name, str(response.fencing)).status == 204


def test_who_holds_by_a_connection_is_broken(here_and_there, name):
    """The stream says that the lock is lost."""
    here, there = here_and_there
    events = streams.hold(here, name, accept=None)
    events.event("granted")
    assert break_(there, name, "*").status == 204
    events.event("lost")
    assert events.ended()
    problem(here.inspect(name), 404)


def test_held_more_than_once(here_and_there, name):
    """One break ends all holds of the claim."""
    here, there = here_and_there
    holder = here.hold(name)
    for _ in range(2):
        response = here.call("POST", lock_path(name),
                             headers={"Lock-Token": holder.token})
        assert response.status == 200, response
    assert break_(there, name, str(holder.fencing)).status == 204
    problem(here.inspect(name), 404)
    problem(there.inspect(name, holder.token), 410)


# several holders

@pytest.mark.parametrize("seat", range(3))
def test_one_seat_of_a_semaphore(here_and_there, tree, name, seat):
    here, there = here_and_there
    holders = [gateway.hold(name, mode="semaphore", permits=3)
               for gateway in (here, there, here)]
    waiter = begin(there, tree, name, mode="semaphore", permits=3)
    wait(waiter)
    assert break_(there, name, '"%d"' % holders[seat].fencing).status == 204
    last = waiter.response(SOON)
    assert last.status == 201, last
    problem(here.inspect(name, holders.pop(seat).token), 410)
    for holder in holders + [last]:
        assert there.inspect(name, holder.token).json["state"] == "held"
        assert there.release(name, holder.token).status == 204
    tree.wait_claims(here.znode(name), 0)


@pytest.mark.parametrize("mode, permits", [("shared", None), ("member", None),
                                           ("semaphore", 3)])
def test_all_holders(here_and_there, tree, name, mode, permits):
    here, there = here_and_there
    query = {"mode": mode}
    if permits:
        query["permits"] = permits
    holders = [gateway.hold(name, worker=worker, **query)
               for gateway, worker in everywhere(here, there)[:3]]
    assert break_(there, name, "*").status == 204
    assert tree.claims(here.znode(name)) == []
    for holder in holders:
        problem(here.inspect(name, holder.token), 410)
    assert break_(there, name, "*").status == 404


def test_no_more_than_all_holders(here_and_there, tree, name):
    """Waiters that are granted the lock after the break are not hit."""
    here, there = here_and_there
    for _ in range(2):
        here.hold(name, mode="semaphore", permits=2)
    waiters = [begin(gateway, tree, name, mode="semaphore", permits=2)
               for gateway in (here, there)]
    assert break_(there, name, "*").status == 204
    for waiter in waiters:
        response = waiter.response(SOON)
        assert response.status == 201, response
        assert here.release(name, response.token).status == 204


def test_very_many_holders(shared_pair, tree, foreign, name):
    """More holders than a look at the lock describes, which are 1000, and a
    writer behind.
    """
    here, there = shared_pair
    lock = here.znode(name)
    first = here.hold(name, mode="shared", ttl="1h")
    made = [foreign.client.create_async(lock + "/reader-__READ__",
                                        ephemeral=True, sequence=True)
            for _ in range(1010)]
    for answer in made:
        answer.get(SOON)
    last = here.hold(name, mode="shared", ttl="1h")
    waiter = begin(there, tree, name, mode="write")
    reader = begin(here, tree, name, mode="shared")
    assert break_(there, name, "*").status == 204
    response = waiter.response(SOON)
    assert response.status == 201, response
    wait(reader)
    for holder in first, last:
        problem(here.inspect(name, holder.token), 410)
    there.release(name, response.token)
    here.release(name, reader.response(SOON).token)
    tree.wait_claims(lock, 0)


def test_one_of_very_many_holders(shared_pair, tree, name):
    """The claim is found at any place of the queue."""
    here, there = shared_pair
    connections = [here.connect(worker) for worker in here.worker_pids()]
    holders = [connections[i % 2].request("POST", lock_path(name), {
        "mode": "shared", "ttl": "1h"}) for i in range(250)]
    holder = holders[180]
    for gateway in shared_pair:
        asked(revoke(gateway, name, str(holder.fencing)), name, 1)
        asked(revoke(gateway, name), name, 250)
    assert break_(there, name, str(holder.fencing)).status == 204
    problem(here.inspect(name, holder.token), 410)
    assert len(tree.claims(here.znode(name))) == 249
    assert break_(there, name, "*").status == 204
    tree.wait_claims(here.znode(name), 0)


def test_several_locks_are_broken_one_by_one(here_and_there, name):
    here, there = here_and_there
    names = [name, name + "y"]
    response = here.call("POST", "/locks/", body={"names": names})
    assert response.status == 201, response
    first = response.json["locks"][0]
    assert break_(there, name, str(first["fencing_token"])).status == 204
    answer = here.call("DELETE", "/locks/",
                       headers={"Lock-Token": response.token})
    assert problem(answer, 410)["gone"] == [name]


# claims of other clients

@pytest.mark.parametrize("before, layout", [
    (None, "-lock-"), ("lock-", None), (GUID[3:].replace("-", "")
                                        + "__lock__", None)])
@pytest.mark.parametrize("match", ["*", "number"])
def test_claim_by_hand(here_and_there, tree, foreign, name, before, layout,
                       match):
    here, there = here_and_there
    foreign.make_claim(here.znode(name), layout or "", b"10.0.0.7", before)
    waiter = begin(here, tree, name)
    wait(waiter)
    number, = fencing_tokens(there, name)
    problem(break_(there, name, str(number + 1)), 412)
    assert break_(there, name, "*" if match == "*" else str(number)
                  ).status == 204
    response = waiter.response(SOON)
    grant(response, name)
    assert here.release(name, response.token).status == 204


def test_kazoo(here_and_there, foreign, name):
    here, there = here_and_there
    lock = foreign.client.Lock(here.znode(name), "kazoo")
    assert lock.acquire(timeout=SOON)
    number, = fencing_tokens(there, name)
    content = there.inspect(name).json
    assert content["holders"][0]["owner"] == "kazoo"
    assert break_(there, name, str(number)).status == 204
    response = here.hold(name, wait="0")
    here.release(name, response.token)
    lock.release()


def test_curator(here_and_there, tree, curator, name):
    """The Curator holder finds the mark, and then that the claim is gone."""
    here, there = here_and_there
    client = curator.client()
    claim = client.acquire("mutex", here.znode(name))
    assert claim
    waiter = begin(here, tree, name)
    asked(revoke(there, name), name, 1)
    path = here.znode(name) + "/" + claim
    assert tree.data(path) == b"__REVOKE__"
    asked(revoke(there, name), name, 1)
    assert break_(there, name, str(fencing_tokens(here, name)[0])
                  ).status == 204
    tree.wait_gone(path)
    response = waiter.response(SOON)
    grant(response, name)
    assert here.release(name, response.token).status == 204


# revocation

@pytest.mark.parametrize("match", [None, "*", "number", "quoted"])
def test_holder_is_asked(here_and_there, tree, name, match):
    here, there = here_and_there
    for worker in here.worker_pids():
        holder = here.hold(name, {"owner": "me", "data": [1]}, worker=worker,
                           ttl="90s")
        waiter = begin(there, tree, name)
        said = {"number": "%d", "quoted": '"%d"'}.get(match, "")
        asked(revoke(there, name, said % holder.fencing if said else match),
              name, 1)
        for gateway, asked_one in everywhere(here, there):
            for content in (
                    gateway.inspect(name, holder.token, asked_one).json,
                    gateway.renew(name, holder.token, worker=asked_one).json,
                    gateway.inspect(name, worker=asked_one).json["holders"][0]
                    ):
                assert content["revoke"] is True, content
                assert content["owner"] == "me" and content["data"] == [1]
                assert content["fencing_token"] == holder.fencing
                assert content["ttl_ms"] == 90000
        wait(waiter)
        assert here.release(name, holder.token).status == 204
        response = waiter.response(SOON)
        grant(response, name)
        content = here.inspect(name, response.token).json
        assert "revoke" not in content
        there.release(name, response.token)


def test_some_holders_are_asked(here_and_there, name):
    here, there = here_and_there
    holders = [gateway.hold(name, mode="semaphore", permits=4)
               for gateway in (here, there, here)]
    asked(revoke(there, name, str(holders[1].fencing)), name, 1)
    for holder, is_asked in zip(holders, (False, True, False)):
        content = here.inspect(name, holder.token).json
        assert content.get("revoke", False) is is_asked
    asked(revoke(there, name), name, 3)
    for holder in holders:
        assert there.renew(name, holder.token).json["revoke"] is True
        assert here.release(name, holder.token).status == 204


@pytest.mark.parametrize("first", [False, True])
def test_one_of_two_cannot_be_asked(here_and_there, tree, name, first):
    """The answer is that of the failure, whichever answer is the last."""
    here, there = here_and_there
    holders = [here.hold(name, mode="shared") for _ in range(2)]
    claims = tree.claims(here.znode(name))
    tree.client.set_acls(
        here.znode(name) + "/" + claims[0 if first else 1],
        [make_acl("world", "anyone", read=True, delete=True, admin=True)])
    problem(revoke(there, name), 500)
    assert [holder.get("revoke") for holder
            in there.inspect(name).json["holders"]] == [
                None if first else True, True if first else None]
    for holder in holders:
        assert here.release(name, holder.token).status == 204


def test_who_holds_by_a_connection_is_asked(here_and_there, name):
    here, there = here_and_there
    events = streams.hold(here, name, streams.LINES)
    events.event("granted")
    number, = fencing_tokens(there, name)
    asked(revoke(there, name), name, 1)
    events.event("revoke")
    assert here.inspect(name).json["holders"][0]["revoke"] is True
    assert break_(there, name, str(number)).status == 204
    events.event("lost")
    assert events.ended()


def test_asked_by_a_curator_client(here_and_there, tree, foreign, name):
    """The mark overwrites the claim data; the gateway restores the data."""
    here, there = here_and_there
    holder = here.hold(name, {"owner": "me", "data": [1]}, ttl="90s")
    claim = here.znode(name) + "/" + claim_of(holder.token)
    wait_until(lambda: here.znode(name) + "/" + claim_of(holder.token)
               in here.zookeeper.watched_paths(), 10)
    foreign.client.set(claim, b"__REVOKE__")
    wait_until(lambda: tree.data(claim) != b"__REVOKE__")
    for gateway, worker in everywhere(here, there):
        content = gateway.inspect(name, holder.token, worker).json
        assert content["revoke"] is True and content["owner"] == "me"
        assert content["data"] == [1]
        assert content["fencing_token"] == holder.fencing
    assert there.release(name, holder.token).status == 204


@pytest.mark.parametrize("holds", [1, 2])
def test_mark_on_the_claim_of_a_dead_worker(start_gateway, zookeeper, tree,
                                            foreign, holds):
    """The gateway restores the data; then any gateway can release the claim."""
    here, there = start_gateway(), start_gateway()
    holder = here.hold("x", ttl="1h", worker=here.worker_pids()[0])
    token = {"Lock-Token": holder.token}
    for _ in range(holds - 1):
        assert here.call("POST", lock_path("x"),
                         headers=token).status == 200
    here.kill_worker(holder.worker)
    claim = "%s/%s" % (here.znode("x"), claim_of(holder.token))
    wait_until(lambda: claim in zookeeper.watched_paths())
    foreign.client.set(claim, b"__REVOKE__")
    wait_until(lambda: tree.data(claim) != b"__REVOKE__")
    told = there.inspect("x", holder.token).json
    assert told["revoke"] is True and told.get("holds", 1) == holds
    assert told["fencing_token"] == holder.fencing
    for left in reversed(range(holds)):
        response = there.call("DELETE", lock_path("x"), headers=token)
        assert response.status == (200 if left else 204), response
    tree.wait_gone(claim)


def test_renewals_go_on_after_a_mark(shared_pair, zookeeper, tree, foreign,
                                     name):
    """The gateway restores the overwritten data, and renewals still count."""
    here, there = shared_pair
    holder = here.hold(name, ttl="7s")
    for _ in range(3):
        assert there.renew(name, holder.token, ttl="8s").status == 200
    claim = "%s/%s" % (here.znode(name), claim_of(holder.token))
    wait_until(lambda: claim in zookeeper.watched_paths())
    foreign.client.set(claim, b"__REVOKE__")
    wait_until(lambda: tree.data(claim) != b"__REVOKE__")
    assert there.renew(name, holder.token, ttl="1h").status == 200
    waiter = begin(here, tree, name)
    assert waiter.silent_for(10)
    assert there.release(name, holder.token).status == 204
    response = waiter.response(SOON)
    grant(response, name)
    assert here.release(name, response.token).status == 204



def test_several_locks_are_asked_for(here_and_there, name):
    here, there = here_and_there
    names = [name, name + "y"]
    response = here.call("POST", "/locks/", body={"names": names})
    asked(revoke(there, names[1]), names[1], 1)
    for method in ("GET", "PUT"):
        content = there.call(method, "/locks/", headers={
            "Lock-Token": response.token}).json
        assert content["revoke"] is True
        assert [lock.get("revoke") for lock in content["locks"]] == [None,
                                                                    True]
    assert here.call("DELETE", "/locks/", headers={
        "Lock-Token": response.token}).status == 204


# the log

def lines(gateway, *words, level="error"):
    """The log lines of a break; the default level, error, shows them."""
    return [line for line in gateway.log_text().splitlines()
            if "[%s]" % level in line and all(word in line for word in words)]


def basic(user):
    return {"Authorization": "Basic " + base64.b64encode(
        (user + ":secret").encode()).decode()}


def test_broken_is_logged(here_and_there, name):
    here, there = here_and_there
    holder = here.hold(name, owner="owner of " + name)
    break_(there, name, "*", headers=basic("ann"))
    line, = lines(there, '"owner of %s"' % name)
    for word in ('lock "%s"' % name, "fencing token %d " % holder.fencing,
                 "broken", '"-"', "from 127.0.0.1"):
        assert word in line, line
    assert "secret" not in line and "ann" not in line


LOCATIONS = """
location /known/ {
    zk_lock_api; zk_lock_admin on;
    auth_basic $host; auth_basic_user_file users;
    location /known/off/ {
        zk_lock_api; zk_lock_admin on; auth_basic off;
    }
    location /known/sometimes/ {
        zk_lock_api; zk_lock_admin on; auth_basic $http_x_realm;
    }
    location /known/any/ {
        zk_lock_api; zk_lock_admin on; satisfy any; allow all;
    }
}
location /nowhere/ {
    zk_lock_api; zk_lock_admin on; auth_basic locks;
}
"""


@pytest.fixture
def operators(start_gateway):
    """A gateway whose operators have passwords, in some locations."""
    def make(*names):
        gateway = start_gateway(start=False, server=LOCATIONS,
                                http="zk_lock_log locks.log;",
                                location=ADMIN)
        with open(os.path.join(gateway.prefix, "users"), "w",
                  encoding="utf-8") as f:
            f.write("".join("%s:{PLAIN}secret\n" % name for name in names))
        gateway.start()
        gateway.allow("was broken by user")
        return gateway

    return make


def test_the_user_is_one_whose_password_was_checked(operators):
    """The name in a header that nothing checks is anyone's choice."""
    gateway = operators("ann")
    for n, (path, user) in enumerate([
            ("/known/", "ann"), ("/known/sometimes/", "-"),
            ("/known/off/", "-"), ("/known/any/", "-"), ("/nowhere/", "-"),
            ("/locks/", "-")]):
        gateway.hold("y%d" % n, owner="owner %d" % n)
        assert gateway.call("DELETE", "%sy%d" % (path, n),
                            {"force": "1"},
                            dict(basic("ann"), **{"If-Match": "*",
                                                "X-Realm": "off"})
                            ).status == 204
        line, = lines(gateway, '"owner %d"' % n)
        assert 'by user "%s" from' % user in line, (path, line)
        with open(os.path.join(gateway.prefix, "locks.log"),
                  encoding="utf-8") as f:
            told, = [line for line in map(json.loads, f)
                     if line["event"] == "break"
                     and line["owner"] == "owner %d" % n]
        assert told["user"] == user, path
    gateway.hold("x")
    assert gateway.call("DELETE", "/known/x", {"force": "1"}, dict(
        basic("bob"), **{"If-Match": "*"})).status == 401


def test_revoked_is_logged(here_and_there, name):
    here, there = here_and_there
    holder = here.hold(name, owner="owner of " + name)
    revoke(there, name)
    line, = lines(there, '"owner of %s"' % name, level="warn")
    for word in ('lock "%s"' % name, "fencing token %d " % holder.fencing,
                 "revoked", '"-"', "from 127.0.0.1"):
        assert word in line, line
    here.release(name, holder.token)


def test_nothing_is_logged_of_what_was_not_done(here_and_there, name):
    here, there = here_and_there
    holder = here.hold(name, owner="owner of " + name)
    problem(break_(there, name, "1"), 412)
    problem(revoke(there, name, "1"), 412)
    for level in ("error", "warn"):
        assert lines(there, "owner of %s" % name, level=level) == []
    here.release(name, holder.token)


def test_log_is_not_forged(operators, name):
    """A name of a user, an owner or a lock cannot forge a log line."""
    user = 'a"[alert] x\x1b\\'
    gateway = operators(user)
    name += '" \\'
    gateway.hold(name, owner='o" \\ ö')
    assert gateway.call(
        "DELETE", lock_path(name).replace("/locks/", "/known/"),
        {"force": "1"}, dict(basic(user), **{"If-Match": "*"})).status == 204
    line, = lines(gateway, r'a\x22[alert] x\x1B\x5C')
    assert r'lock "%s\x22 \x5C"' % name[:-3] in line
    assert r'"o\x22 \x5C ö"' in line
    gateway.allow(r"\[alert\] x")


def test_outcomes_are_logged(start_gateway, tmp_path):
    gateway = start_gateway(workers=1, http="""
        log_format outcomes '$request_method $status $zk_lock_outcome';
        """, location=ADMIN + "access_log %s outcomes;" % (tmp_path / "log"))
    holder = gateway.hold("x")
    revoke(gateway, "x")
    break_(gateway, "x", "1")
    break_(gateway, "x", str(holder.fencing))
    break_(gateway, "x", "*")
    gateway.stop()
    with open(tmp_path / "log") as f:
        assert f.read().splitlines() == [
            "POST 201 granted", "PUT 202 revoked", "DELETE 412 refused",
            "DELETE 204 broken", "DELETE 404 free"]
    gateway.start()


# what happens meanwhile

def test_operator_leaves(shared_pair, tree, name):
    """The break is carried out or not; the lock works either way."""
    here, there = shared_pair
    for i in range(10):
        holder = here.hold(name)
        connection = there.connect()
        connection.send("DELETE", lock_path(name), {"force": "1"},
                        {"If-Match": "*"})
        if i % 2:
            connection.reset()
        else:
            connection.close()
        waiter = there.begin(name, wait="1m")
        assert here.release(name, holder.token).status in (204, 410)
        response = waiter.response(SOON)
        grant(response, name)
        there.release(name, response.token)
    tree.wait_claims(here.znode(name), 0)


def test_broken_and_released_at_once(shared_pair, tree, name):
    """Break or release comes first; the waiter is granted the lock once."""
    here, there = shared_pair
    for i in range(20):
        holder = here.hold(name)
        waiter = begin(shared_pair[i % 2], tree, name)
        operator, client = there.connect(), here.connect()
        operator.send("DELETE", lock_path(name), {"force": "1"},
                      {"If-Match": '"%d"' % holder.fencing})
        client.send("DELETE", lock_path(name),
                    headers={"Lock-Token": holder.token})
        assert operator.response().status in (204, 412)
        assert client.response().status in (204, 410)
        response = waiter.response(SOON)
        grant(response, name)
        claim, = tree.claims(here.znode(name))
        assert token_of(here.znode(name), claim) == response.token
        assert here.release(name, response.token).status == 204


def test_zookeeper_does_not_answer(private_zookeeper, start_gateway):
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, location=ADMIN,
                            session_timeout="20s")
    holder = gateway.hold("x", ttl="1h")
    private_zookeeper.freeze()
    problem(break_(gateway, "x", "*"), 503)
    problem(revoke(gateway, "x"), 503)
    private_zookeeper.thaw()
    wait_until(lambda: gateway.release("x", holder.token).status != 503)
    gateway.wait_served()
    gone(gateway, "x", holder.token)
