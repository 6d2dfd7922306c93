"""Terraform and OpenTofu lock their states, as their HTTP backend does.

A client makes an ID and sends the ID with a description of the operation: LOCK
and UNLOCK, or POST and DELETE, with a body of JSON. Success is 200 and no other
status.  If the lock is taken, the client reads what the holder sent, in the
holder's own members.  The same ID is the same claim, at each gateway and
however often the ID comes.
"""

import base64
import hashlib
import json
import time
import uuid

import pytest

from lib.checks import TERRAFORM, problem, retry_after
from lib.client import lock_path
from lib.holders import wait_dead
from lib.process import wait_until
from lib.proxy import CUT, HALF, LOSE, TORN, UNANSWERED
from lib.queues import SOON, chance, kill, wait

WAYS = {"webdav": ("LOCK", "UNLOCK"), "gitlab": ("POST", "DELETE")}
BREAKS = (LOSE, HALF, CUT, UNANSWERED, TORN)
MAX_TTL = 24 * 3600000


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


@pytest.fixture
def places(shared_pair):
    return everywhere(shared_pair)


@pytest.fixture
def name():
    return "state-" + uuid.uuid4().hex[:12]


def everywhere(pair):
    return [(gateway, worker) for gateway in pair
            for worker in gateway.worker_pids()]


def compact(info):
    return json.dumps(info, separators=(",", ":"),
                      ensure_ascii=False).encode()


def headers_of(body):
    """The headers that the backend sends with a body."""
    return {"Content-Type": "application/json",
            "Content-MD5": base64.b64encode(hashlib.md5(body).digest()
                                            ).decode(),
            "User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip",
            "Authorization": "Basic " + base64.b64encode(b"ci:x").decode()}


class Client:
    """A run of terraform, with the ID that the run made."""

    tokens = {}                 # of all runs: (name, fencing token) -> token

    def __init__(self, way=WAYS["webdav"], who="ci@runner", **members):
        self.locks, self.unlocks = way
        self.info = {"ID": str(uuid.uuid4()),
                     "Operation": "OperationTypeApply", "Info": "",
                     "Who": who, "Version": "1.9.8",
                     "Created": "2026-11-21T13:28:37.123456789Z", "Path": ""}
        self.info.update(members)

    def body(self):
        return compact(self.info)

    def begin(self, place, name, body=None, method=None, **query):
        gateway, worker = place
        body = self.body() if body is None else body
        connection = gateway.connect(worker)
        return connection.send(method or self.locks, lock_path(name), query,
                               headers_of(body), body)

    def send(self, method, place, name, body=None, **query):
        with self.begin(place, name, body, method, **query) as connection:
            return connection.response()

    def lock(self, place, name, **query):
        return self.send(self.locks, place, name, **query)

    def unlock(self, place, name, body=None, **query):
        return self.send(self.unlocks, place, name, body, **query)

    def force_unlock(self, place, name):
        """As Terraform does: the body is empty."""
        return self.send("UNLOCK", place, name, b"")

    def force_unlock_by_id(self, place, name):
        """As OpenTofu does: the body has the ID."""
        return self.unlock(place, name, compact({
            "ID": self.info["ID"], "Operation": "", "Info": "", "Who": "",
            "Version": "", "Created": "0001-01-01T00:00:00Z", "Path": ""}))

    def locked(self, response, name):
        """The token of the client's claim.

        A repeat is told no token, and has the claim of the first answer.
        """
        assert response.status == 200, response
        content = response.json
        assert content["name"] == name and content["mode"] == "exclusive"
        assert content["fencing_token"] > 0
        claim = name, content["fencing_token"]
        if "token" in content:
            assert claim not in self.tokens
            assert response.headers["Lock-Token"] == content["token"]
            self.tokens[claim] = content["token"]
        else:
            assert "Lock-Token" not in response.headers
            assert "Location" not in response.headers
        return self.tokens.get(claim, claim)

    def holds(self, place, name, ttl=MAX_TTL):
        """Each client sees this client as the holder."""
        gateway, worker = place
        holder, = gateway.inspect(name, worker=worker).json["holders"]
        assert holder["owner"] == self.info["Who"]
        assert holder["data"] == self.info
        assert holder["ttl_ms"] == ttl

    def shown(self, response, status):
        """A refusal that Terraform reads as a description of the holder."""
        assert response.status == status, response
        content_type = response.headers["Content-Type"].split(";")[0]
        assert content_type == "application/problem+json"
        pairs = json.loads(response.body.decode(), object_pairs_hook=list)
        names = [key.lower() for key, _ in pairs]
        assert len(set(names)) == len(names), "a member twice: %s" % names
        content = response.json
        for key, value in self.info.items():
            assert content[key] == value, key
        assert response.body.startswith(self.body()[:-1] + b",")
        assert content["status"] == status
        assert content["title"] and content["detail"] and content["type"]
        others = set(content) - set(self.info)
        assert not TERRAFORM & {key.lower() for key in others}, others
        if status == 423:
            assert content["retry_after_ms"] > 0
            retry_after(response)


def unlocked(response, name):
    assert response.status == 200, response
    assert response.headers["Content-Type"].split(";")[0] == (
        "application/json")
    assert response.json == {"name": name}


# lock and unlock

def test_lock_and_unlock(places, tree, way, name):
    """At every place; every client sees what the holder sent."""
    for place in places:
        for other in places:
            client = Client(way)
            token = client.locked(client.lock(place, name), name)
            client.holds(other, name)
            unlocked(client.unlock(other, name), name)
            assert tree.claims(place[0].znode(name)) == []
            ended = place[0].inspect(name, token)
            problem(ended, 410)
            assert ended.json.get("reason") in ("released", None)


def test_the_same_id_again(places, tree, way, name):
    """The ID's claim exists already, and no claim is added."""
    client = Client(way)
    token = client.locked(client.lock(places[0], name), name)
    for place in places * 2:
        assert client.locked(client.lock(place, name), name) == token
        again = client.lock(place, name, wait="0", ttl="1m")
        assert client.locked(again, name) == token
    assert len(tree.claims(places[0][0].znode(name))) == 1
    client.holds(places[-1], name)
    unlocked(client.unlock(places[1], name), name)


def test_a_stranger_with_the_holders_id(places, way, name):
    """The body that a 423 shows finds the claim, and not the claim's token."""
    holder = Client(way)
    token = holder.locked(holder.lock(places[0], name), name)
    stranger = Client(way)
    shown = stranger.lock(places[-1], name, wait="0")
    holder.shown(shown, 423)
    stranger.info = {key: shown.json[key] for key in stranger.info}
    waiting = Client(way)
    behind = waiting.begin(places[0], name)
    wait_until(lambda: places[0][0].inspect(name).json["queued"] == 1)
    for place in places:
        told = stranger.lock(place, name, wait="0")
        assert told.status == 200
        assert token not in told.body.decode() + str(told.headers.pairs)
    waiter, = places[0][0].inspect(name).json["queue"]
    also = Client(way)
    also.info = waiter["data"]
    beside = also.begin(places[-1], name)
    unlocked(holder.unlock(places[0], name), name)
    token = waiting.locked(behind.response(SOON), name)
    told = beside.response(SOON)
    assert told.status == 200
    assert token not in told.body.decode() + str(told.headers.pairs)
    unlocked(waiting.unlock(places[0], name), name)


def test_the_same_id_says_something_else(places, way, name):
    """Only the ID counts, and the first request's members stay."""
    client = Client(way)
    token = client.locked(client.lock(places[0], name), name)
    other = Client(way, who="somebody", Operation="OperationTypePlan",
                   ID=client.info["ID"])
    for place in places:
        assert other.locked(other.lock(place, name), name) == token
    client.holds(places[0], name)
    unlocked(other.unlock(places[-1], name), name)


def test_the_same_id_of_other_locks(places, tree, way):
    """An ID belongs to a single lock, not to all locks."""
    client = Client(way)
    names = ["one-" + client.info["ID"], "two-" + client.info["ID"]]
    tokens = {client.locked(client.lock(place, name), name)
              for place in places for name in names}
    assert len(tokens) == 2
    unlocked(client.unlock(places[0], names[0]), names[0])
    client.holds(places[0], names[1])
    unlocked(client.unlock(places[0], names[1]), names[1])


def test_id_is_no_key(places, way, name):
    """An Idempotency-Key with the same text is another key."""
    client = Client(way)
    client.locked(client.lock(places[0], name), name)
    problem(places[0][0].acquire(
        name, headers={"Idempotency-Key": client.info["ID"]}, wait="0"), 423)
    unlocked(client.unlock(places[0], name), name)


def test_taken(places, tree, way, name):
    """423 with what the holder sent, at once or when the wait is over."""
    holder, other = Client(way, who="a@b"), Client(way)
    holder.locked(holder.lock(places[0], name), name)
    for place in places:
        for query in ({"wait": "0"}, {"wait": "150ms"}):
            def ask():
                tree.wait_claims(place[0].znode(name), 1)
                return other.lock(place, name, **query)

            holder.shown(place[0].in_reach(ask), 423)
            assert len(tree.claims(place[0].znode(name))) == 1
    unlocked(holder.unlock(places[0], name), name)
    other.locked(other.lock(places[1], name, wait="0"), name)
    unlocked(other.unlock(places[2], name), name)


def test_taken_by_somebody_else(places, way, name):
    """Another kind of holder has no member that Terraform would read."""
    gateway = places[0][0]
    client = Client(way)
    for body in ({"owner": "me", "data": {"Who": "x"}}, {"owner": "me"},
                 {"data": {"ID": 7}, "owner": "me"},
                 {"data": [{"ID": "x"}], "owner": "me"}):
        holder = gateway.hold(name, body)
        for place in places:
            for status, response in (
                    (423, client.lock(place, name, wait="0")),
                    (409, client.unlock(place, name))):
                content = problem(response, status)
                assert content["holder"]["owner"] == "me"
                assert content["holder"].get("data") == body.get("data")
        gateway.release(name, holder.token)


def test_others_see_who_holds_it(places, way, name):
    """An acquire that is not Terraform's is refused as always."""
    client = Client(way)
    client.locked(client.lock(places[0], name), name)
    for gateway, worker in places:
        content = problem(gateway.acquire(name, wait="0", worker=worker),
                          423)
        assert content["holder"]["data"] == client.info
        assert content["holder"]["owner"] == client.info["Who"]
    unlocked(client.unlock(places[0], name), name)


def test_unlock_again(places, way, name):
    """An unlock of a free lock is answered 200."""
    client = Client(way)
    for place in places:
        unlocked(client.unlock(place, name), name)
    client.locked(client.lock(places[0], name), name)
    for place in places * 2:
        unlocked(client.unlock(place, name), name)


def test_unlock_what_another_one_holds(places, tree, way, name):
    """409 with what the holder sent; the holder still holds the lock."""
    holder, other = Client(way, who="a@b"), Client(way)
    holder.locked(holder.lock(places[0], name), name)
    for place in places:
        holder.shown(other.unlock(place, name), 409)
        holder.shown(other.force_unlock_by_id(place, name), 409)
    holder.holds(places[0], name)
    unlocked(holder.unlock(places[0], name), name)


def test_unlock_by_the_id_alone(places, tree, way, name):
    """As force-unlock of OpenTofu does; also with a body of the ID alone."""
    for place in places:
        client = Client(way)
        for body in (None, compact({"ID": client.info["ID"]})):
            client.locked(client.lock(places[0], name), name)
            if body is None:
                unlocked(client.force_unlock_by_id(place, name), name)
            else:
                unlocked(client.unlock(place, name, body), name)
            assert tree.claims(places[0][0].znode(name)) == []


def test_held_more_than_once(places, tree, way, name):
    """An unlock ends all holds that the token added."""
    for place in places:
        client = Client(way)
        token = client.locked(client.lock(places[0], name), name)
        for gateway, worker in places:
            again = gateway.acquire(name, headers={"Lock-Token": token},
                                    worker=worker)
            assert again.status == 200, again
        unlocked(client.unlock(place, name), name)
        assert tree.claims(places[0][0].znode(name)) == []


def test_token_of_its_claim(places, tree, way, name):
    """The token works as any other: GET, PUT and DELETE."""
    client = Client(way)
    token = client.locked(client.lock(places[0], name), name)
    for gateway, worker in places:
        assert gateway.inspect(name, token, worker).json["data"] == (
            client.info)
        assert gateway.renew(name, token, worker=worker).status == 200
    assert places[-1][0].release(name, token).status == 204
    unlocked(client.unlock(places[0], name), name)


def test_token_beside_an_id(places, name):
    """LOCK and UNLOCK refuse a token, because their success would be false."""
    client = Client()
    token = client.locked(client.lock(places[0], name), name)
    for gateway, worker in places:
        for method in WAYS["webdav"]:
            for body in (client.body(), b""):
                problem(gateway.call(method, lock_path(name), None,
                                     {"Lock-Token": token}, body,
                                     worker=worker), 400)
    client.holds(places[0], name)
    unlocked(client.unlock(places[0], name), name)


# force-unlock

def test_force_unlock_is_not_allowed(places, name):
    """403 for a free lock too, so the answer does not tell the lock's state."""
    client = Client()
    for held in (False, True):
        if held:
            client.locked(client.lock(places[0], name), name)
        for place in places:
            problem(Client().force_unlock(place, name), 403, "zk_lock_admin")
    client.holds(places[0], name)
    unlocked(client.unlock(places[0], name), name)


def test_force_unlock(start_gateway, tree, way):
    """With zk_lock_admin on, the lock is free, whoever held the lock."""
    here = start_gateway(location="zk_lock_admin on;")
    there = start_gateway()
    for place in everywhere([here]):
        for holds in (here, there):
            client = Client(way)
            client.locked(client.lock((holds, None), "x"), "x")
            unlocked(client.force_unlock(place, "x"), "x")
            assert tree.claims(here.znode("x")) == []
            there.hold("x", owner="me")
            unlocked(client.force_unlock(place, "x"), "x")
            assert tree.claims(here.znode("x")) == []
            unlocked(client.force_unlock(place, "x"), "x")
    problem(client.force_unlock((there, None), "x"), 403)
    # a DELETE with an empty body is not Terraform's
    problem(here.call("DELETE", "/locks/x"), 400)


# what a client sends

@pytest.mark.parametrize("query", [
    "ID=%s", "ID=", "ID=a&ID=b", "wait=0&ID=%s", "ID=%s&wait=0",
    "ttl=1m&ID=%s&wait=1s"])
def test_id_in_the_query(places, way, name, query):
    """Updates of the state have the ID in the query; a LOCK ignores that ID."""
    client = Client(way)
    query = query.replace("%s", str(uuid.uuid4()))
    for method in way:
        for place in places[::2]:
            response = place[0].call(method, lock_path(name), query,
                                     headers_of(client.body()), client.body())
            assert response.status == 200, response


@pytest.mark.parametrize("query", [
    "owner=me", "mode=shared", "data=1", "permits=2", "hold=connection",
    "foo=bar", "ttl=0", "ttl=soon", "wait=soon", "wait=-1", "wait=1&wait=2",
    "ID", "id=7", "until=free"])
def test_other_arguments(places, tree, way, name, query):
    client = Client(way)
    for place in places[::2]:
        problem(place[0].call(way[0], lock_path(name), query,
                              headers_of(client.body()), client.body()), 400)
    assert tree.children(places[0][0].znode(name)) == []


@pytest.mark.parametrize("md5", ["", "AAAAAAAAAAAAAAAAAAAAAA==", "no"])
def test_md5_does_not_matter(places, way, name, md5):
    client = Client(way)
    headers = dict(headers_of(client.body()), **{"Content-MD5": md5})
    for method in way:
        response = places[0][0].call(method, lock_path(name), None, headers,
                                     client.body())
        assert response.status == 200, response


def test_body_is_written_compactly(places, tree, way, name):
    """The members stay as the client sent the members, in their order."""
    client = Client(way, Info='a "quoted" \\ back\u00e9', Extra={"b": [1, 2]})
    body = json.dumps(client.info, indent=8).encode()
    assert client.send(way[0], places[0], name, body).status == 200
    client.holds(places[1], name)
    client.shown(Client(way).lock(places[-1], name, wait="0"), 423)
    unlocked(client.unlock(places[0], name, body), name)


def test_size(places, tree, way, name):
    """1024 bytes, without the blanks between the members."""
    client = Client(way)
    client.info["Info"] = "x" * (1024 - len(client.body()))
    assert len(client.body()) == 1024
    client.locked(client.lock(places[0], name), name)
    client.holds(places[-1], name)
    client.shown(Client(way).lock(places[-1], name, wait="0"), 423)
    unlocked(client.unlock(places[1], name), name)

    spaces = json.dumps(client.info, indent=60).encode()
    assert len(spaces) > 1400
    assert client.send(way[0], places[0], name, spaces).status == 200
    unlocked(client.unlock(places[0], name), name)

    for more in (1, 500, 6000):
        large = Client(way, Info=client.info["Info"] + "x" * more)
        problem(large.lock(places[0], name), 413)
    for size in (9000, 100000):
        large = Client(way, Info="x" * size)
        problem(large.lock(places[0], name), 413)
    assert tree.claims(places[0][0].znode(name)) == []


@pytest.mark.parametrize("body", [
    b"{", b"", b"[]", b'"ID"', b"null", b"{}", b'{"ID":""}', b'{"ID":7}',
    b'{"ID":null}', b'{"ID":["a"]}', b'{"id":"a"}', b'{"Id":"a"}',
    b'{"ID":"a","ID":"b"}', b'{"ID":"a\\u0000"}', b'{"ID":"a\nb"}',
    b'{"ID":"\xff"}', b'{"ID":"a"', b'{"ID":"a"}{}', b'{"ID":"a",}',
    b'{"ID":"' + b"a" * 256 + b'"}', b'{"Who":"a"}'])
def test_bodies_that_are_none(places, tree, name, body):
    """400 with an explanation; an UNLOCK without a body is another case."""
    for method in WAYS["webdav"]:
        if method == "UNLOCK" and not body:
            continue
        response = places[0][0].call(method, lock_path(name), None,
                                     headers_of(body), body)
        problem(response, 400)
    assert tree.children(places[0][0].znode(name)) == []


@pytest.mark.parametrize("name_of_id", ["a", "x" * 255, "\u00e9\u00fc/?& %",
                                        "'\"\\"])
def test_any_id(places, tree, way, name, name_of_id):
    client = Client(way, ID=name_of_id)
    token = client.locked(client.lock(places[0], name), name)
    assert client.locked(client.lock(places[-1], name), name) == token
    assert Client(way).lock(places[0], name, wait="0").status == 423
    unlocked(client.unlock(places[-1], name), name)


@pytest.mark.parametrize("who", ["", "x" * 256, "a\nb", None, 7])
def test_who_that_is_no_owner(places, way, name, who):
    """The answer then has no owner, and the data stay complete."""
    client = Client(way, who=who)
    response = client.lock(places[0], name)
    if who == 7:
        # the gateway may refuse the body as not Terraform's
        assert response.status in (200, 400)
        if response.status == 400:
            return
    client.locked(response, name)
    holder, = places[0][0].inspect(name).json["holders"]
    assert "owner" not in holder and holder["data"] == client.info
    unlocked(client.unlock(places[1], name), name)


def test_bodies_of_other_acquires(places, name):
    """A POST without an ID works as always."""
    gateway = places[0][0]
    holder = gateway.hold(name, {"owner": "me", "wait": 0,
                                 "data": {"ID": "x"}})
    assert holder.status == 201
    gateway.release(name, holder.token)
    for body in ({"ID": 7}, {"ID": ""}, {"id": "a"}, {"Who": "me"}):
        problem(gateway.acquire(name, body), 400)
        problem(gateway.call("DELETE", lock_path(name), body=body), 400)


def test_put_of_terraform(places, tree, name):
    """lock_method = "PUT": the answer names the methods that lock."""
    gateway = places[0][0]
    body = Client().body()
    for query in None, {"ttl": "1m"}:
        problem(gateway.call("PUT", lock_path(name), query, headers_of(body),
                             body), 400, "LOCK or POST")
    assert tree.children(gateway.znode(name)) == []
    # a PUT of another client
    problem(gateway.call("PUT", lock_path(name), None, None, {"ttl": "1m"}),
            400, "token")


def test_methods_elsewhere(places, name):
    """LOCK and UNLOCK are for a lock, not for all locks or a claim."""
    gateway = places[0][0]
    client = Client()
    token = client.locked(client.lock(places[0], name), name)
    for method in WAYS["webdav"]:
        for path in ("/locks/", lock_path(name, token)):
            response = gateway.call(method, path, None,
                                    headers_of(client.body()), client.body())
            problem(response, 405)
            assert method not in response.headers["Allow"]
    allowed = gateway.call("PATCH", lock_path(name)).headers["Allow"]
    assert {"LOCK", "UNLOCK"} <= set(allowed.split(", "))
    unlocked(client.unlock(places[0], name), name)


def test_http2(places, way, name):
    """The same connection locks, is refused, waits and unlocks."""
    connection = places[0][0].connect_http2()
    holder, other = Client(way), Client(way)

    def send(client, method, **query):
        return connection.send(method, lock_path(name), query,
                               headers_of(client.body()), client.body())

    first = connection.response(send(holder, way[0]))
    holder.locked(first, name)
    holder.shown(connection.response(send(other, way[0], wait="0")), 423)
    waiting = send(other, way[0], wait="1m")
    holder.shown(connection.response(send(other, way[0], wait="0")), 423)
    assert connection.silent_for(0.1)
    unlocked(connection.response(send(holder, way[1])), name)
    other.locked(connection.response(waiting, SOON), name)
    unlocked(connection.response(send(other, way[1])), name)
    connection.close()


# waiting

def test_waiters_take_turns(places, tree, way, name):
    """First come, first served, over all gateways."""
    znode = places[0][0].znode(name)
    clients = [Client(way, who="w%d" % i) for i in range(6)]
    waiting = []
    for i, client in enumerate(clients):
        waiting.append(client.begin(places[i % 4], name, wait="1m"))
        tree.wait_claims(znode, i + 1)
    for i, client in enumerate(clients):
        client.locked(waiting[i].response(SOON), name)
        client.holds(places[i % 4], name)
        if waiting[i + 1:]:
            wait(*waiting[i + 1:])
        unlocked(client.unlock(places[(i + 2) % 4], name), name)
    tree.wait_claims(znode, 0)


def test_the_same_id_waits_twice(places, tree, way, name):
    """All requests share a claim, and all hear of the grant."""
    znode = places[0][0].znode(name)
    holder, client = Client(way), Client(way)
    holder.locked(holder.lock(places[0], name), name)
    waiting = []
    for place in places * 2:
        waiting.append(client.begin(place, name, wait="1m"))
        tree.wait_claims(znode, 2)
    wait(*waiting)
    assert len(tree.claims(znode)) == 2
    unlocked(holder.unlock(places[1], name), name)
    answers = [each.response(SOON) for each in waiting]
    for answer in answers:
        client.locked(answer, name)
    assert len({answer.fencing for answer in answers}) == 1
    unlocked(client.unlock(places[-1], name), name)
    tree.wait_claims(znode, 0)


@pytest.mark.parametrize("leave", ["close", "reset", "half_close"])
def test_the_first_of_them_leaves(places, tree, way, name, leave):
    """The remaining requests with the same ID keep the claim's place."""
    znode = places[0][0].znode(name)
    holder, client, late = Client(way), Client(way), Client(way)
    holder.locked(holder.lock(places[0], name), name)
    first = client.begin(places[0], name, wait="1m")
    tree.wait_claims(znode, 2)
    others = [client.begin(place, name, wait="1m") for place in places]
    behind = late.begin(places[1], name, wait="1m")
    tree.wait_claims(znode, 3)
    wait(*others)
    getattr(first, leave)()
    getattr(others[0], leave)()
    wait(*others[1:])
    unlocked(holder.unlock(places[1], name), name)
    for each in others[1:]:
        client.locked(each.response(SOON), name)
    wait(behind)
    unlocked(client.unlock(places[0], name), name)
    late.locked(behind.response(SOON), name)
    unlocked(late.unlock(places[0], name), name)


def test_who_leaves_for_good(start_gateway, tree, way):
    """The claim ends after the grace, while it waits or once it is granted."""
    gateway = start_gateway(http="zk_lock_grace 400ms;")
    znode = gateway.znode("x")
    places = everywhere([gateway])
    holder, client = Client(way), Client(way)
    holder.locked(holder.lock(places[0], "x"), "x")
    for place in places:
        client.begin(place, "x", wait="1m").close()
    tree.wait_claims(znode, 1)
    for place in places:
        waiting = client.begin(place, "x", wait="1m")
        tree.wait_claims(znode, 2)
        waiting.close()
        tree.wait_claims(znode, 1)
    waiting = client.begin(places[0], "x", wait="1m")
    tree.wait_claims(znode, 2)
    waiting.close()
    unlocked(holder.unlock(places[1], "x"), "x")
    tree.wait_claims(znode, 0)


def test_who_comes_back_in_time(places, tree, way, name):
    """The client repeats at another place; the claim keeps its place."""
    znode = places[0][0].znode(name)
    holder, client, late = Client(way), Client(way), Client(way)
    holder.locked(holder.lock(places[0], name), name)
    waiting = client.begin(places[0], name, wait="1m")
    tree.wait_claims(znode, 2)
    behind = late.begin(places[1], name, wait="1m")
    claims = tree.wait_claims(znode, 3)
    for place in places:
        waiting.close()
        waiting = client.begin(place, name, wait="1m")
        wait(waiting, behind)
        assert tree.claims(znode) == claims
    waiting.close()
    unlocked(holder.unlock(places[0], name), name)
    client.locked(client.lock(places[2], name), name)
    unlocked(client.unlock(places[3], name), name)
    late.locked(behind.response(SOON), name)
    unlocked(late.unlock(places[0], name), name)


def test_unlock_of_one_that_waits(places, tree, way, name):
    """The claim does not wait any more, and its request hears so."""
    znode = places[0][0].znode(name)
    holder, client = Client(way), Client(way)
    holder.locked(holder.lock(places[0], name), name)
    for place in places:
        waiting = client.begin(places[1], name, wait="1m")
        tree.wait_claims(znode, 2)
        unlocked(client.unlock(place, name), name)
        tree.wait_claims(znode, 1)
        response = waiting.response(SOON)
        assert response.status in (410, 423), response
    holder.holds(places[0], name)
    unlocked(holder.unlock(places[0], name), name)


def test_polls_with_the_same_id(places, tree, way, name):
    """As with -lock-timeout: the client repeats, and gets the holder."""
    holder, client = Client(way), Client(way)
    holder.locked(holder.lock(places[0], name), name)
    for place in places:
        holder.shown(client.lock(place, name, wait="0"), 423)
        tree.wait_claims(place[0].znode(name), 1)
    unlocked(holder.unlock(places[0], name), name)
    client.locked(client.lock(places[-1], name, wait="0"), name)
    unlocked(client.unlock(places[0], name), name)


# leases

def test_lease(start_gateway, tree, way):
    """The lease is the query's ttl, or the longest: no client renews."""
    here = start_gateway(http="zk_lock_ttl 1s;\nzk_lock_max_ttl 2h;")
    there = start_gateway()
    for query, ttl in (({}, 7200000), ({"ttl": "90s"}, 90000),
                       ({"ttl": "9h"}, 7200000)):
        client = Client(way)
        client.locked(client.lock((here, None), "x", **query), "x")
        client.holds((here, None), "x", ttl)
        client.holds((there, None), "x", ttl)
        unlocked(client.unlock((there, None), "x"), "x")


def test_lease_ends(places, tree, way, name):
    """Then the ID makes a new claim."""
    client, other = Client(way), Client(way)
    client.locked(client.lock(places[0], name, ttl="300ms"), name)
    waiting = other.begin(places[-1], name, wait="1m")
    other.locked(waiting.response(SOON), name)
    other.shown(client.unlock(places[0], name), 409)
    unlocked(other.unlock(places[1], name), name)
    unlocked(client.unlock(places[0], name), name)
    first = client.locked(client.lock(places[0], name, ttl="300ms"), name)
    tree.wait_claims(places[0][0].znode(name), 0)
    assert client.locked(client.lock(places[1], name), name) != first
    unlocked(client.unlock(places[0], name), name)


def test_shared_locks_are_in_the_way(places, tree, way, name):
    """Terraform's claim is exclusive."""
    gateway = places[0][0]
    reader = gateway.hold(name, mode="shared")
    client = Client(way)
    problem(client.lock(places[-1], name, wait="0"), 423)
    waiting = client.begin(places[-1], name, wait="1m")
    tree.wait_claims(gateway.znode(name), 2)
    gateway.release(name, reader.token)
    client.locked(waiting.response(SOON), name)
    problem(gateway.acquire(name, mode="shared", wait="0"), 423)
    unlocked(client.unlock(places[0], name), name)


# what a lock survives

def asked(client, method, place, name, **query):
    """The first answer other than 503; a gateway may have no connection yet."""
    return wait_until(lambda: [r for r in [client.send(method, place, name,
                                                       **query)]
                               if r.status != 503], 20, "an answer")[0]


def judge(client, places, name):
    """That ID holds the lock, and no other ID does, until an unlock."""
    other = Client()
    token = client.locked(asked(client, client.locks, places[0], name), name)
    for place in places:
        again = asked(client, client.locks, place, name)
        assert client.locked(again, name) == token
        client.shown(asked(other, other.locks, place, name, wait="0"), 423)
        client.shown(other.unlock(place, name), 409)


@pytest.fixture
def sturdy(start_gateway):
    """Two gateways, as conf-examples/terraform.conf sets up gateways."""
    return [start_gateway(session_timeout="4s", http="zk_lock_durable on;")
            for _ in range(2)]


@pytest.mark.parametrize("end", ["crash", "reload", "stop", "kill"])
def test_worker_ends(sturdy, tree, way, end):
    """The granting worker ends, and so does the connection of the LOCK."""
    here, _ = sturdy
    clients = {}
    for i, place in enumerate(everywhere(sturdy)):
        clients["x%d" % i] = client = Client(way)
        client.locked(client.lock(place, "x%d" % i), "x%d" % i)
    if end == "crash":
        for worker in here.worker_pids():
            kill(here, worker)
    elif end == "reload":
        wait_dead(here.reload())
    else:
        getattr(here, end)()
        here.start()
    places = everywhere(sturdy)
    for i, (name, client) in enumerate(clients.items()):
        judge(client, places, name)
        unlocked(asked(client, client.unlocks, places[-i], name), name)
        tree.wait_claims(here.znode(name), 0)


def test_reload_while_it_waits(sturdy, tree, way):
    """An old worker answers; so do the new workers that got a repeat."""
    here, there = sturdy
    holder, client = Client(way), Client(way)
    holder.locked(holder.lock(everywhere(sturdy)[0], "x"), "x")
    waiting = client.begin(everywhere(sturdy)[1], "x", wait="1m")
    tree.wait_claims(here.znode("x"), 2)
    old = here.reload()
    here.wait_served()
    more = [client.begin(place, "x", wait="1m")
            for place in everywhere(sturdy)]
    wait(waiting, *more)
    unlocked(holder.unlock(everywhere(sturdy)[0], "x"), "x")
    tokens = {client.locked(each.response(SOON), "x")
              for each in [waiting] + more}
    assert len(tokens) == 1
    unlocked(client.unlock(everywhere(sturdy)[0], "x"), "x")
    wait_dead(old)
    tree.wait_claims(here.znode("x"), 0)


@pytest.mark.parametrize("operation", ["lock", "unlock"])
@pytest.mark.parametrize("how", BREAKS)
def test_connection_to_zookeeper_breaks(start_gateway, start_proxy,
                                        zookeeper, tree, way, operation,
                                        how):
    """200 or 503, and then 200 for the repeat that Terraform makes."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         wait_sessions=False)
    there = start_gateway()
    here.wait_served()
    places = everywhere([here, there])
    client = Client(way)
    # the lock's znode exists, and the gateways are connected
    for place in places:
        asked(client, client.locks, place, "x")
        asked(client, client.unlocks, place, "x")
    if operation == "unlock":
        client.locked(client.lock(places[0], "x"), "x")
    fault = proxy.fault(("create", "create2", "delete", "multi"), how)
    response = client.send(way[operation == "unlock"], places[0], "x")
    fault.wait()
    if response.status != 200:
        problem(response, 503)
        retry_after(response)
    if operation == "lock":
        judge(client, [places[1], places[-1]], "x")
        assert len(tree.claims(here.znode("x"))) == 1
    unlocked(asked(client, client.unlocks, places[-1], "x"), "x")
    tree.wait_claims(here.znode("x"), 0)


def test_zookeeper_is_out_of_reach(start_gateway, start_proxy, zookeeper,
                                   way):
    """503 with a Retry-After, which the client obeys."""
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         wait_sessions=False, location="zk_lock_wait 2s;")
    here.wait_served()
    place = here, here.worker_pids()[0]
    client = Client(way)
    client.locked(asked(client, way[0], place, "x"), "x")
    proxy.refuse()
    proxy.kill()
    for each, method in ((client, way[0]), (client, way[1]),
                         (Client(way), way[0])):
        response = each.send(method, place, "x")
        problem(response, 503)
        retry_after(response)
    proxy.listen()
    # an operation with 503 may have been done
    token = client.locked(asked(client, way[0], place, "x"), "x")
    assert here.inspect("x", token).status == 200
    unlocked(asked(client, way[1], place, "x"), "x")


def test_answers_that_are_lost(places, tree, way, name):
    """The client hangs up at any moment, and repeats elsewhere: the only claim
    is the client's.
    """
    dice = chance()
    znode = places[0][0].znode(name)
    for _ in range(25):
        client = Client(way)
        for _ in range(dice.randrange(1, 4)):
            connection = client.begin(dice.choice(places), name, wait="1m")
            time.sleep(dice.random() * 0.004)
            getattr(connection, dice.choice(["close", "reset"]))()
        client.locked(client.lock(dice.choice(places), name, wait="1m"),
                      name)
        tree.wait_claims(znode, 1)
        unlocked(client.unlock(dice.choice(places), name), name)
        # of a request that is read only now, the claim lasts for the grace
        tree.wait_claims(znode, 0, 30)


def test_clients_at_once(places, tree, way, name):
    """Each client sends several requests with its ID: one lock, one holder."""
    clients = [Client(way, who="c%d" % i) for i in range(4)]
    waiting = {client: [client.begin(place, name, wait="1m")
                        for place in places] for client in clients}
    last = 0
    while waiting:
        tree.wait_claims(places[0][0].znode(name),
                         lambda claims: len(claims) == len(waiting))
        holder = wait_until(lambda: [client for client in waiting
                                     if not waiting[client][0].silent_for(0)],
                            SOON, "one of them has the lock")
        assert len(holder) == 1
        answers = [each.response(SOON) for each in waiting.pop(holder[0])]
        for answer in answers:
            holder[0].locked(answer, name)
        assert len({answer.fencing for answer in answers}) == 1
        assert answers[0].fencing > last
        last = answers[0].fencing
        if waiting:
            wait(*(each for more in waiting.values() for each in more))
        unlocked(holder[0].unlock(places[0], name), name)
    tree.wait_claims(places[0][0].znode(name), 0)
