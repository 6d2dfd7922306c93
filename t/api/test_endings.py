"""How a claim ended, as the 410 of each call with its token says.

Each worker of the gateway that made the claim knows the reason, until another
claim takes the claim's record in the shared zone.  Another gateway does not
know the reason.
"""

import itertools
import time

import pytest

from conftest import gateways, new_root
from lib.checks import problem
from lib.client import lock_path
from lib.process import wait_until
from lib.proxy import SWALLOWED
from lib.tokens import claim_of, token_of

SOON = 15.0
OPTIONS = "zk_lock_admin on;"
BRIEF = "/brief/"       # claims there are not kept for long
SERVER = "location %s { zk_lock_api; zk_lock_grace 500ms; }" % BRIEF
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def pair(request, tmp_path_factory, zookeeper, tree):
    with gateways(request.node, tmp_path_factory.mktemp("pair"), zookeeper,
                  tree, new_root()) as make:
        yield (make(location=OPTIONS, server=SERVER),
               make(location=OPTIONS, server=SERVER))


@pytest.fixture
def name():
    return "x%d" % next(NUMBERS)


def calls(gateway, name, token):
    """Every call that takes a token, at each worker."""
    for worker in gateway.worker_pids():
        yield gateway.inspect(name, token, worker=worker)
        yield gateway.renew(name, token, worker=worker)
        yield gateway.renew(name, token, worker=worker, mode="shared")
        yield gateway.acquire(name, headers={"Lock-Token": token},
                              worker=worker)
        yield gateway.release(name, token, worker=worker)


def is_gone(gateway, name, token):
    return gateway.inspect(name, token).status == 410


def ended(gateway, name, token, reason, *words):
    """Each call at each worker tells that reason, or none if reason is None."""
    for answer in calls(gateway, name, token):
        content = problem(answer, 410, *words)
        assert content.get("reason") == reason, content


def queue(gateway, name, worker=None, prefix="/locks/", **query):
    answer = gateway.in_reach(lambda: gateway.call(
        "POST", lock_path(name, prefix=prefix), query,
        {"Prefer": "respond-async"}, worker=worker))
    assert answer.status == 202, answer
    return answer.token


def break_(gateway, name, worker=None):
    answer = gateway.call("DELETE", lock_path(name), {"force": "1"},
                          {"If-Match": "*"}, worker=worker)
    assert answer.status == 204, answer


def workers_of(gateway):
    """(the worker that grants, the workers that each end a claim)"""
    first = gateway.worker_pids()[0]
    return first, gateway.worker_pids()


def test_released(pair, name):
    here, there = pair
    first, workers = workers_of(here)
    for worker in workers:
        token = here.hold(name, worker=first).token
        assert here.release(name, token, worker=worker).status == 204
        ended(here, name, token, "released", "released")
        ended(there, name, token, None, "released", "lease", "session")


def test_released_at_the_last_of_its_holds(pair, name):
    here, there = pair
    for gateway in (here, there):
        token = here.hold(name).token
        assert here.acquire(name, headers={"Lock-Token": token}).status == 200
        assert here.release(name, token).status == 200
        assert gateway.release(name, token).status == 204
        wait_until(lambda: is_gone(here, name, token), SOON, "its end")
        # this gateway cannot tell what another gateway's delete meant
        ended(here, name, token, "released" if gateway is here else None)


def test_cancelled(pair, name):
    here, there = pair
    first, workers = workers_of(here)
    holder = here.hold(name).token
    for worker in workers:
        token = queue(here, name, worker=first)
        assert here.release(name, token, worker=worker).status == 204
        ended(here, name, token, "released", "released")
    here.release(name, holder)


def test_expired(pair, name):
    here, there = pair
    token = here.hold(name, ttl="100ms").token
    wait_until(lambda: is_gone(here, name, token), SOON, "the end")
    ended(here, name, token, "expired", "lease was over")
    wait_until(lambda: is_gone(there, name, token), SOON, "the end")
    ended(there, name, token, None)


@pytest.mark.parametrize("query", [{}, {"wait": "300ms"}], ids=str)
def test_not_asked_for(pair, tree, name, query):
    """The claim ends because no request asks in time, or because its wait is
    over.
    """
    here, there = pair
    holder = here.hold(name).token
    token = queue(here, name, prefix=BRIEF, **query)
    tree.wait_claims(here.znode(name), 1, SOON)
    ended(here, name, token, "expired", "not asked for in time")
    here.release(name, holder)


def test_broken(pair, name):
    here, there = pair
    first, workers = workers_of(here)
    for worker in workers:
        token = here.hold(name, worker=first).token
        break_(here, name, worker)
        ended(here, name, token, "broken", "operator")
        ended(there, name, token, None)


def test_deleted_elsewhere(pair, tree, name):
    """If another gateway or a person deleted the claim, the reason is not
    known.
    """
    here, there = pair
    for end in ("release", "break", "person"):
        token = here.hold(name).token
        if end == "release":
            assert there.release(name, token).status == 204
        elif end == "break":
            break_(there, name)
        else:
            znode = here.znode(name)
            tree.delete(znode + "/" + tree.claims(znode)[0])
        wait_until(lambda: is_gone(here, name, token), SOON, "its end")
        ended(here, name, token, None, "released", "lease", "session")


def test_released_too_late(pair, tree, name):
    """A person deleted the claim, so the release did not end the claim."""
    here, there = pair
    first, workers = workers_of(here)
    for worker in workers:
        token = here.hold(name, worker=first).token
        tree.delete(here.znode(name) + "/" + claim_of(token))
        content = problem(here.release(name, token, worker=worker), 410)
        assert "reason" not in content, content
        ended(here, name, token, None)


def cut_off(gateway, proxy):
    """The way to ZooKeeper is cut, for a lock that is held and a claim that
    waits for another lock: gives (lock, token) of each.

    A gateway begins to make a lease durable that has been held for two seconds,
    and then does not know the reason.  None if the machine stood still, so that
    the gateway may have begun.
    """
    x, y = ("x%d" % next(NUMBERS) for _ in range(2))
    began = time.monotonic()
    token = gateway.hold(x, ttl="1h").token
    gateway.hold(y, ttl="1h")
    waiting = queue(gateway, y)
    for name in x, y:
        gateway.catch_up(name)
    proxy.hole()
    if time.monotonic() - began < 1.0:
        return (x, token), (y, waiting)
    proxy.pass_on()
    return None


def test_session_is_lost(start_gateway, start_proxy, zookeeper, tree):
    proxy = start_proxy(zookeeper)
    claims = None
    while claims is None:
        gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                                session_timeout="4s",
                                location="zk_lock_grace 1m;")
        gateway.wait_served()
        claims = cut_off(gateway, proxy)
    for name, _ in claims:
        tree.wait_claims(gateway.znode(name), 0, 20)
    proxy.pass_on()
    for name, each in claims:
        for worker in gateway.worker_pids():
            wait_until(lambda: gateway.renew(name, each, worker=worker).status
                       != 503, 20, "ZooKeeper is in reach")
        ended(gateway, name, each, "session", "session")


def test_worker_has_not_heard_that_the_wait_is_over(start_gateway, start_proxy,
                                                    zookeeper):
    """A sibling finds that the znode is gone before the claim's worker does."""
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, session_timeout="30s")
    first, other = gateway.worker_pids()
    holder = gateway.hold("x", ttl="1h", durable="1", worker=first).token
    token = queue(gateway, "x", worker=first, wait="1s")
    fault = proxy.fault(("delete", "multi"), SWALLOWED)
    fault.wait()
    content = problem(gateway.inspect("x", token, worker=other), 410)
    assert content.get("reason") == "expired", content
    ended(gateway, "x", token, "expired")
    assert gateway.in_reach(
        lambda: gateway.release("x", holder)).status == 204


def test_worker_has_not_heard_that_the_session_is_lost(start_gateway, tree):
    gateway = start_gateway(session_timeout="4s")
    first, other = gateway.worker_pids()
    while True:
        began = time.monotonic()
        x, y = ("x%d" % next(NUMBERS) for _ in range(2))
        held = gateway.hold(x, ttl="1h", worker=first).token
        gateway.hold(y, ttl="1h", worker=first)
        waiting = queue(gateway, y, worker=first)
        with gateway.connect(other) as ask, gateway.frozen_worker(first):
            if time.monotonic() - began >= 1.0:
                # the worker may have begun to make a lease durable
                continue
            for name, token in (x, held), (y, waiting):
                tree.wait_claims(gateway.znode(name), 0, 20)
                for method in "GET", "PUT":
                    content = problem(ask.request(
                        method, lock_path(name, token)), 410)
                    assert content.get("reason") == "session", content
        return


@pytest.mark.parametrize("end", ["released", "broken", "expired"])
def test_worker_is_dead(start_gateway, end):
    """Another worker has taken the dead worker's session over."""
    gateway = start_gateway(location=OPTIONS)
    dead, other = gateway.worker_pids()
    token = gateway.hold("x", worker=dead,
                         ttl="2s" if end == "expired" else "1h").token
    gateway.kill_worker(dead)
    wait_until(lambda: "that has gone is adopted" in gateway.log_text()
               and len(gateway.worker_pids()) == 2, SOON, "the takeover")
    gateway.wait_served()
    if end == "released":
        wait_until(lambda: gateway.release("x", token, worker=other).status
                   in (204, 410), SOON, "its end")
    elif end == "broken":
        break_(gateway, "x", other)
    wait_until(lambda: is_gone(gateway, "x", token), SOON, "its end")
    ended(gateway, "x", token, end)


def test_another_claim_in_its_place(start_gateway):
    """A record keeps the reason of its last claim, and of no claim before."""
    gateway = start_gateway(workers=1)
    tokens = []
    with gateway.connect() as connection:
        def call(method, token=None):
            return connection.request(method, lock_path("x", token))
        for _ in range(200):
            tokens.append(call("POST").token)
            assert call("DELETE", tokens[-1]).status == 204
        told = [problem(call("GET", token), 410).get("reason")
                for token in tokens]
    assert told[-1] == "released"
    assert told[0] is None
    assert told == sorted(told, key=lambda reason: reason is not None)


def test_token_that_is_like_it(pair, name):
    """Only the token of that claim gets the reason, no similar token does."""
    here, there = pair
    token = here.hold(name).token
    assert here.release(name, token).status == 204
    claim = claim_of(token)
    assert token_of(here.znode(name), claim) == token
    other = claim[:3] + ("1" if claim[3] == "0" else "0") + claim[4:]
    for claimed, reason in (claim, "released"), (other, None):
        ended(here, name, token_of(here.znode(name), claimed), reason)
