"""Requests that are repeated with a key, and claims that wait without a
request: the gateways, calls and answers of the tests of both.

The grace is a minute at the gateways of `pair`, where no claim may end by the
grace, or six seconds at those of `kept`, where a claim has to.
"""

import re
import uuid

import pytest

from lib.client import lock_path
from lib.process import wait_until
from lib.tokens import token_of

SOON = 15.0
KEPT = 6.0              # the grace of claims that clients keep for longer
ASYNC = {"Prefer": "respond-async"}
LEAVES = ["close", "reset", "half_close"]
PLACES = ["same", "sibling", "other"]


@pytest.fixture(scope="module")
def pair(start_shared):
    """Two gateways whose grace is longer than a test."""
    return [start_shared(location="zk_lock_grace 1m;") for _ in range(2)]


@pytest.fixture(scope="module")
def kept(start_shared):
    """Two gateways whose grace ends while a test waits."""
    return [start_shared(location="zk_lock_grace %ds;" % KEPT)
            for _ in range(2)]


@pytest.fixture
def name(request, pair, tree):
    """A name that only this test uses, also as the beginning of names; the test
    leaves no claim.
    """
    name = re.sub(r"\W", "-", request.node.name)
    yield name
    for lock in tree.children(pair[0].root):
        if lock.startswith(name):
            tree.wait_claims(pair[0].znode(lock), 0, SOON)


# requests

def new_key():
    return str(uuid.uuid4())


def keyed(key, **headers):
    return dict(headers, **{"Idempotency-Key": key})


def acquire(gateway, name, key, worker=None, body=None, **query):
    return gateway.acquire(name, body, keyed(key), worker, **query)


def begin(gateway, name, key, worker=None, **query):
    query.setdefault("wait", "1m")
    return gateway.begin(name, None, keyed(key), worker, **query)


def queue(gateway, name, key=None, worker=None, **query):
    """An acquire that is answered 202 while the claim waits."""
    headers = dict(ASYNC) if key is None else keyed(key, **ASYNC)
    return gateway.acquire(name, None, headers, worker, **query)


def poll(gateway, name, token, worker=None, wait=None):
    query = None if wait is None else {"wait": wait}
    return gateway.call("GET", lock_path(name, token), query, worker=worker)


def everywhere(*several):
    return [(gateway, worker) for gateway in several
            for worker in gateway.worker_pids()]


def elsewhere(pair, place):
    """(gateway, worker) of a first request, and of a later request."""
    here, there = pair
    one, sibling = here.worker_pids()[:2]
    other = {"same": (here, one), "sibling": (here, sibling),
             "other": (there, there.worker_pids()[0])}[place]
    return (here, one), other


def kind(mode):
    return mode.get("mode", "exclusive")


# answers

def told(response, status, name, state, mode="exclusive", position=None):
    """The token of a claim in that state; docs/openapi.yaml describes the rest
    of the answer.
    """
    assert response.status == status, response
    content = response.json
    assert (content["name"], content["state"], content["mode"],
            content.get("position")) == (name, state, mode, position), content
    assert response.headers["Lock-Token"] == content["token"]
    if status != 200:
        assert response.headers["Location"].endswith(
            lock_path(name, content["token"]))
    return content["token"]


def granted(response, name, status=201, mode="exclusive"):
    """The token of a grant, the first grant or a repeated grant."""
    assert response.headers["Lock-Fencing-Token"] == str(response.fencing)
    return told(response, status, name, "held", mode)


def queued(response, name, position=0):
    """The token of a 202."""
    assert "respond-async" in response.headers.all("Preference-Applied")
    return told(response, 202, name, "queued", position=position)


def waits(response, name, token, position=0):
    return told(response, 200, name, "queued", position=position) == token


def holds(response, name, token):
    return granted(response, name, 200) == token


def joined(gateway, tree, name, number):
    """The token of the last claim, when there are so many."""
    znode = gateway.znode(name)
    return token_of(znode, tree.wait_claims(znode, number, SOON)[-1])


def only(gateway, tree, name, token):
    """Only the claim of that token is left."""
    assert joined(gateway, tree, name, 1) == token


def alike(answers, name, mode="exclusive"):
    """Of requests with the same key, the first gets 201, the rest get 200."""
    assert [200] * (len(answers) - 1) + [201] == sorted(
        a.status for a in answers), answers
    assert len({a.fencing for a in answers}) == 1, answers
    token, = {granted(a, name, a.status, mode) for a in answers}
    return token


def unless_away(ask):
    """The first answer that is not 503, and the number of the try."""
    answers = []
    wait_until(lambda: answers.append(ask()) or answers[-1].status != 503,
               SOON)
    return answers[-1], len(answers)


def released(gateway, name, token):
    """Repeats a release until it is confirmed; an early try may have worked."""
    answer, tries = unless_away(lambda: gateway.release(name, token))
    assert answer.status in ((204,) if tries == 1 else (204, 410)), answer
