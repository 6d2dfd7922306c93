"""Answers that docs/openapi.yaml describes for several operations alike.

Each client of the tests compares the answer with the description, so that a
test has only to make the answer happen.
"""

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from lib.checks import problem
from lib.tokens import token_of

TOKEN = "A" * 32
BODY_MAX = 8192
JSON = {"Content-Type": "application/json"}
CALLS = [(method, path) for path in ("/locks/", "/locks/x", "/locks/x/" + TOKEN)
         for method in ("GET", "POST", "PUT", "DELETE")
         if (method, path) != ("POST", "/locks/x/" + TOKEN)]

each = pytest.mark.parametrize("method, path", CALLS)


@each
def test_body_too_large(shared_gateway, method, path):
    body = b"{" + b" " * BODY_MAX + b"}"
    problem(shared_gateway.call(method, path, None, JSON, body), 413)


@each
def test_body_of_another_type(shared_gateway, method, path):
    token = shared_gateway.hold("x").token
    path = path.replace(TOKEN, token)       # another is not found: 404
    response = shared_gateway.call(method, path, None,
                                   {"Content-Type": "text/plain"}, b"wait=1")
    problem(response, 415, "application/json")
    assert shared_gateway.release("x", token).status == 204


def test_hold_is_taken_back_by_the_path(shared_gateway):
    token = shared_gateway.hold("twice").token
    path = "/locks/twice/" + token
    assert shared_gateway.call("POST", "/locks/twice", None,
                               {"Lock-Token": token}).status == 200
    assert shared_gateway.call("DELETE", path).status == 200
    assert shared_gateway.call("DELETE", path).status == 204


# what other clients of ZooKeeper may do to claims; several locks have one token

NOBODY = make_digest_acl("nobody", "secret", all=True)
JUNK = b"not a gateway's"

places = pytest.mark.parametrize("names", [["one"], ["a", "b"]])


class Grant:
    """A lock that was granted, or several, with one token."""

    def __init__(self, gateway, tree, names):
        self.locks = [gateway.znode(name) for name in names]
        if len(names) > 1:
            self.path, self.headers = "/locks/", {"Lock-Token": gateway.call(
                "POST", "/locks/", body={"names": names}).token}
        else:
            token = gateway.hold(names[0]).token
            self.path, self.headers = "/locks/one/" + token, None
        self.claims = [tree.claims(lock)[0] for lock in self.locks]
        self.paths = [lock + "/" + claim for lock, claim
                      in zip(self.locks, self.claims)]

    def call(self, gateway, method):
        return gateway.call(method, self.path, None, self.headers)

    def end(self, gateway, tree):
        assert self.call(gateway, "DELETE").status in (204, 410)
        for lock in self.locks:
            tree.wait_claims(lock, 0)


@pytest.fixture
def nobody(zookeeper, connect_tree):
    """A client that sees what the gateway does not."""
    tree = connect_tree(zookeeper.address)
    tree.client.add_auth("digest", "nobody:secret")
    return tree


@places
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_acl_forbids(shared_gateway, tree, nobody, method, names):
    grant = Grant(shared_gateway, tree, names)
    for path in grant.paths + grant.locks:
        nobody.client.set_acls(path, [NOBODY])
    problem(grant.call(shared_gateway, method), 500, "does not let")
    for path in grant.locks + grant.paths:
        try:
            nobody.client.set_acls(path, OPEN_ACL_UNSAFE)
        except NoNodeError:
            pass        # a release that was refused happens now
    grant.end(shared_gateway, tree)


@places
def test_renewal_of_a_claim_that_is_no_gateways(shared_pair, tree, names):
    here, there = shared_pair
    grant = Grant(here, tree, names)
    tree.client.set(grant.paths[-1], JUNK)
    problem(grant.call(there, "PUT"), 409, "no lease")
    grant.end(here, tree)


@places
def test_hold_of_a_claim_that_is_no_gateways(shared_gateway, tree, names):
    """What is released is a hold, and the claim data have no number any more.
    """
    grant = Grant(shared_gateway, tree, names)
    token = token_of(grant.locks[-1], grant.claims[-1])
    assert shared_gateway.call("POST", "/locks/" + names[-1], None, {
        "Lock-Token": token}).status == 200
    tree.client.set(grant.paths[-1], JUNK)
    problem(grant.call(shared_gateway, "DELETE"), 409, "no lease")
    grant.end(shared_gateway, tree)


def test_one_of_several_waits(shared_pair, tree, foreign):
    """Another gateway finds a claim ahead that has no gateway either."""
    here, there = shared_pair
    ahead = foreign.make_claim(here.znode("b"))
    foreign.delete(ahead)
    grant = Grant(here, tree, ["a", "b"])
    tree.client.set(grant.paths[-1], JUNK)
    foreign.client.create(ahead, ephemeral=True)
    problem(grant.call(there, "GET"), 409, "waits")
    foreign.delete(ahead)
    grant.end(here, tree)
