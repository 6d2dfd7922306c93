"""Names with slashes: "%2F" in the path, and in the name of the znode.

The lock of "team/job" is the znode "team%2Fjob".  The name of that znode is
also a name of the lock, with "%25" for its "%".
"""

import itertools

import pytest

from lib.checks import grant, problem
from lib.client import lock_path

PLAIN = "/locks/"


@pytest.fixture
def gateway(shared_gateway):
    return shared_gateway


numbers = itertools.count()


@pytest.fixture
def name():
    """A name with a slash, as in a path."""
    return "n%d%%2Fjob" % next(numbers)


def acquire(gateway, path):
    return gateway.call("POST", PLAIN + path, {"wait": "0"})


def release(gateway, path, token):
    response = gateway.call("DELETE", PLAIN + path,
                            headers={"Lock-Token": token})
    assert response.status == 204, response


def others(name):
    """Other paths that name the same lock."""
    return [name.replace("%2F", "%2f"), name.replace("%2F", "%252F"),
            "%2F" + name]


def test_acquire(gateway, tree, name):
    """The answer has the znode's name, and where the claim is."""
    response = acquire(gateway, name)
    content = grant(response, name)
    assert len(tree.claims(gateway.znode(name))) == 1
    for path in [name] + others(name):
        problem(acquire(gateway, path), 423)
    location = response.headers["Location"]
    assert location.endswith(lock_path(name, content["token"]))
    assert gateway.call("DELETE", location).status == 204
    assert tree.claims(gateway.znode(name)) == []


def test_every_call(gateway, name):
    """Each path of the lock will do, with the token in it or in a header."""
    for path in [name] + others(name):
        token = acquire(gateway, path).token
        for path in [name] + others(name):
            place = PLAIN + path
            assert gateway.call("GET", place).json["holders"]
            for method in "GET", "PUT":
                for answer in (gateway.call(method, place + "/" + token),
                               gateway.call(method, place,
                                            headers={"Lock-Token": token})):
                    assert answer.status == 200, answer
                    assert answer.json["name"] == name
        assert gateway.call("DELETE", PLAIN + name + "/" + token
                            ).status == 204
        problem(gateway.call("GET", PLAIN + name), 404)


def test_not_the_lock_of_a_segment(gateway, name):
    """A token of "team/job" is none of "team"."""
    token = acquire(gateway, name).token
    short = name.partition("%2F")[0]
    problem(gateway.call("GET", PLAIN + short), 404)
    problem(gateway.call("DELETE", PLAIN + short + "/" + token), 404)
    problem(gateway.call("DELETE", PLAIN + short, headers={
        "Lock-Token": token}), 404)
    second = acquire(gateway, short)
    assert second.status == 201
    release(gateway, short, second.token)
    release(gateway, name, token)


@pytest.mark.parametrize("path, znode", [
    ("a%2Fb%2Fc", "a%2Fb%2Fc"), ("a%2F", "a%2F"), ("%2Fa%2F", "a%2F"),
    ("a%2F...", "a%2F..."), ("a%2F.b", "a%2F.b"),
    ("%c3%a4%2F%20", "\u00e4%2F "), ("a%2F%3F%23", "a%2F?#"),
    ("%252F", "%2F"), ("a%252fb", "a%2fb"),
    ("a%25252F", "a%252F"), ("%2Fzookeeper2", "zookeeper2"),
    ("a%2F%2e%2e%2e", "a%2F..."), ("%2e%2e%2e%2Fa", "...%2Fa")])
def test_znodes(gateway, tree, path, znode):
    response = acquire(gateway, path)
    assert grant(response, znode)["name"] == znode
    assert len(tree.claims(gateway.znode(znode))) == 1
    release(gateway, path, response.token)


@pytest.mark.parametrize("path", ["%2Fzookeeper", "a%2F%01", "a%2F%ff"])
def test_what_no_name_has(gateway, path):
    problem(acquire(gateway, path), 400)


def test_length(gateway):
    """Each slash counts as the three characters of the znode's name."""
    problem(acquire(gateway, "%2Fn" * 51), 400, "200")
    path = "n%2F" * 50
    response = acquire(gateway, path)
    assert response.json["name"] == path
    release(gateway, path, response.token)


def test_page(gateway, name):
    """The page of all locks has the znode's name."""
    response = acquire(gateway, name)
    page = gateway.call("GET", PLAIN, {"prefix": name}).json
    assert [lock["name"] for lock in page["locks"]] == [name]
    release(gateway, name, response.token)


def test_several_locks(gateway, name):
    """A list has the znode's name, which is no path."""
    held = gateway.call("POST", PLAIN, body={"names": [name, "z" + name]})
    assert held.status == 201, held
    problem(acquire(gateway, name), 423)
    assert gateway.call("DELETE", PLAIN, headers={"Lock-Token": held.token}
                        ).status == 204
    release(gateway, name, acquire(gateway, name).token)


def test_http2(gateway, name):
    with gateway.connect_http2() as connection:
        response = connection.request("POST", PLAIN + name)
    grant(response, name)
    release(gateway, name, response.token)


@pytest.mark.parametrize("merge", ["on", "off"])
def test_merge_slashes(start_gateway, merge):
    """nginx merges slashes in a row, as in $uri, or does not.

    A slash at the beginning is merged with the slash in front of the name.
    """
    double = "a%2Fb" if merge == "on" else "a%2F%2Fb"
    gateway = start_gateway(server="merge_slashes %s;" % merge)
    for path, znode in ("a%2Fb", "a%2Fb"), ("a%2F%2Fb", double):
        response = acquire(gateway, path)
        assert response.json["name"] == znode, path
        release(gateway, path, response.token)
    answer = acquire(gateway, "%2Fa%2Fb")
    if merge == "on":
        assert answer.json["name"] == "a%2Fb"
        release(gateway, "a%2Fb", answer.token)
    else:
        problem(answer, 400, "%2F")
    for path in "a//b", "/a", "a%2F/b", "a/%2Fb":
        answer = acquire(gateway, path)
        assert answer.status in (400, 404, 405), (path, answer)


def test_rewrite(start_gateway, tree):
    """Behind a rewrite the path that was sent tells nothing: "%252F" works."""
    gateway = start_gateway(server="""
        location /v1/ { rewrite ^/v1/(.*)$ /locks/$1; }
        location /lockz/ { rewrite ^/lockz/(.*)$ /locks/$1; }
        """)
    for prefix in "/v1/", "/lockz/":
        response = gateway.call("POST", prefix + "plain")
        assert response.json["name"] == "plain"
        release(gateway, "plain", response.token)
        before = tree.children(gateway.root)
        problem(gateway.call("POST", prefix + "team%2Fjob"), 400, "%2F")
        problem(gateway.call("POST", prefix + "team/job"), 400, "%2F")
        # meanwhile ZooKeeper may remove what is empty, once a minute
        assert set(tree.children(gateway.root)) <= set(before)
        response = gateway.call("POST", prefix + "team%252Fjob")
        assert response.json["name"] == "team%2Fjob"
        release(gateway, "team%2Fjob", response.token)


def test_location_without_a_slash(start_gateway):
    gateway = start_gateway(server="location /bare { zk_lock_api; }")
    response = gateway.call("POST", "/bare/team%2Fjob")
    assert response.json["name"] == "team%2Fjob"
    release(gateway, "team%2Fjob", response.token)
    problem(gateway.call("POST", "/bare%2Fteam"), 400, "%2F")
