"""A loss while zk_lock_require looks at the lock for the first time.

A proxy keeps ZooKeeper's answers to the gateway that looks, from the first one
on or from a later one; meanwhile the lock is lost, or a session ends.  What
the look saw may be told, because the request came before the loss; but a
request of a rule with lost=abort is not served on: it gets a refusal, or the
503 of a loss, and the application is cut off.
"""

import itertools
import queue

import pytest

from conftest import gateways, new_root
from lib.backend import Backend
from lib.checks import problem
from lib.client import Gone, lock_path
from lib.guards import SOON, location
from lib.process import wait_until
from lib.proxy import Proxy

RULE = "zk_lock_require $arg_lock fencing=$http_lock_fencing_token"
PLACES = {"/abort/": RULE + " lost=abort;",
          "/any/": RULE + " lost=abort mode=shared;",
          "/on/": RULE + ";"}
KEPT = range(5)         # answers of the look that come before the loss

_names = itertools.count()


@pytest.fixture
def name():
    return "f%d" % next(_names)


@pytest.fixture(scope="module")
def app():
    app = Backend()
    yield app
    app.close()


@pytest.fixture(scope="module")
def server(app):
    return "".join(location(rules, "proxy_pass http://%s;" % app.address, path)
                   for path, rules in PLACES.items())


@pytest.fixture(scope="module")
def start(request, tmp_path_factory, zookeeper, tree, server):
    """A function that makes the gateway that looks, behind its own proxy."""
    proxies = []
    with gateways(request.node, tmp_path_factory.mktemp("there"), zookeeper,
                  tree, new_root()) as make:
        def start(session_timeout):
            proxies.append(Proxy(zookeeper.port))
            there = make(servers=proxies[-1].address, wait_sessions=False,
                         session_timeout=session_timeout, server=server,
                         http="zk_lock_timeout 20s;", workers=1)
            there.wait_served()
            return there, proxies[-1]

        start.make = make
        yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture(scope="module")
def pair(start):
    return start("60s")


@pytest.fixture
def there(pair):
    return pair[0]


@pytest.fixture
def way(pair):
    yield pair[1]
    pair[1].pass_on()


@pytest.fixture(scope="module")
def here(start):
    return start.make(location="zk_lock_admin on;")


def shown(what, holder):
    if what == "token":
        return {"Lock-Token": holder.token}
    return {"Lock-Fencing-Token": str(holder.fencing)}


def begin(way, there, app, name, path, headers, kept):
    """A request whose look is under way, and has so many answers."""
    before = sum(way.requests.values())
    way.keep(kept)
    client = there.connect().send("GET", path, {"lock": name}, headers)
    wait_until(lambda: sum(way.requests.values()) > before
               and (way.passing == 0 or not app.idle()), SOON, "the look")
    return client


def let_release(here, name, holder, tree):
    assert here.release(name, holder.token).status == 204


def let_break(here, name, holder, tree):
    response = here.call("DELETE", lock_path(name), {"force": "1"},
                         {"If-Match": "*"})
    assert response.status in (200, 204), response


def let_expire(here, name, holder, tree):
    # a slow gateway tells that the short lease is over
    assert here.renew(name, holder.token, ttl="50ms").status in (200, 410)


def let_delete(here, name, holder, tree):
    for claim in tree.claims(here.znode(name)):
        tree.delete(here.znode(name) + "/" + claim)


LOSSES = [let_release, let_break, let_expire, let_delete]


def next_seen(app, seconds=1.0):
    try:
        return app.next(seconds)
    except queue.Empty:
        return None


def ends(client, app, path):
    """The request ends as it should after the loss."""
    if path == "/on/":
        seen = next_seen(app)
        if seen is not None:
            seen.answer()
        assert client.response(SOON).status == (412 if seen is None else 200)
        return
    try:
        response = client.response(SOON)
    except (Gone, ConnectionError):
        response = None
    seen = next_seen(app)
    if seen is None:
        problem(response, 412)
        return
    seen.wait_cut()
    if response is not None:
        problem(response, 503, "lost")


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("what", ["token", "fencing token"])
@pytest.mark.parametrize("path", sorted(PLACES))
def test_released(there, here, way, app, tree, name, path, what,
                  kept):
    holder = here.hold(name, ttl="1h")
    client = begin(way, there, app, name, path, shown(what, holder), kept)
    let_release(here, name, holder, tree)
    tree.wait_claims(here.znode(name), 0)
    way.pass_on()
    ends(client, app, path)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("what", ["token", "fencing token"])
def test_lost(there, here, way, app, tree, name, loss, what):
    holder = here.hold(name, ttl="1h")
    client = begin(way, there, app, name, "/abort/", shown(what, holder), 2)
    loss(here, name, holder, tree)
    tree.wait_claims(here.znode(name), 0)
    way.pass_on()
    ends(client, app, "/abort/")


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("what", ["token", "fencing token"])
def test_lost_to_a_waiter(there, here, way, app, tree, name, what,
                          kept):
    holder = here.hold(name, ttl="1h")
    waiter = here.begin(name, wait="1m")
    tree.wait_claims(here.znode(name), 2)
    client = begin(way, there, app, name, "/abort/", shown(what, holder),
                   kept)
    let_release(here, name, holder, tree)
    second = waiter.response(SOON)
    assert second.status == 201
    way.pass_on()
    ends(client, app, "/abort/")
    let_release(here, name, second, tree)


@pytest.mark.parametrize("kept", KEPT)
def test_followed_already(there, here, way, app, tree, name, kept):
    """Another request follows the lock, so that news need no look."""
    holder = here.hold(name, ttl="1h")
    headers = shown("token", holder)
    first = there.connect().send("GET", "/abort/", {"lock": name}, headers)
    served = app.next()
    client = begin(way, there, app, name, "/abort/", headers, kept)
    let_release(here, name, holder, tree)
    tree.wait_claims(here.znode(name), 0)
    way.pass_on()
    problem(first.response(SOON), 503, "lost")
    served.wait_cut()
    ends(client, app, "/abort/")


@pytest.mark.parametrize("kept", [5, 20, 60])
def test_lost_while_other_holders_are_read(there, here, way, app, foreign,
                                           name, kept):
    """The look has read the claim, and reads many other holders yet, as the
    news come; so the look's answer is of before the loss.
    """
    holder = here.hold(name, ttl="1h", mode="shared")
    made = [foreign.client.create_async(
        here.znode(name) + "/reader-__READ__", ephemeral=True, sequence=True)
        for _ in range(400)]
    made = [answer.get(30) for answer in made]
    client = begin(way, there, app, name, "/any/",
                   shown("fencing token", holder), kept)
    let_release(here, name, holder, foreign)
    foreign.wait_claims(here.znode(name), len(made))
    way.pass_on()
    ends(client, app, "/any/")
    for answer in [foreign.client.delete_async(path) for path in made]:
        answer.get(30)


@pytest.mark.parametrize("kept", [5, 20, 60])
def test_lost_in_a_later_look(there, here, way, app, foreign, name, kept):
    """The same while the request is served: a new holder leads to the look."""
    holder = here.hold(name, ttl="1h", mode="shared")
    made = [foreign.client.create_async(
        here.znode(name) + "/reader-__READ__", ephemeral=True, sequence=True)
        for _ in range(400)]
    made = [answer.get(30) for answer in made]
    client = there.connect().send("GET", "/any/", {"lock": name},
                                  shown("fencing token", holder))
    served = app.next()
    before = sum(way.requests.values())
    way.keep(kept)
    made.append(foreign.make_claim(here.znode(name), "-__READ__"))
    wait_until(lambda: sum(way.requests.values()) > before
               and way.passing == 0, SOON, "the look")
    let_release(here, name, holder, foreign)
    foreign.wait_claims(here.znode(name), len(made))
    way.pass_on()
    problem(client.response(SOON), 503, "lost")
    served.wait_cut()
    for answer in [foreign.client.delete_async(path) for path in made]:
        answer.get(30)


@pytest.mark.parametrize("what", ["token", "fencing token"])
@pytest.mark.parametrize("lost", ["lost", "not lost"])
def test_the_session_ends(start, here, app, tree, zookeeper, name, lost,
                          what):
    """The session of the gateway that looks ends before the look is answered:
    the next session looks, or the answer is 503.
    """
    before = zookeeper.living_sessions()
    there, way = start("4s")
    holder = here.hold(name, ttl="1h")
    own = zookeeper.living_sessions() - before
    assert own
    client = begin(way, there, app, name, "/abort/", shown(what, holder), 0)
    way.hole()
    wait_until(lambda: not own & zookeeper.living_sessions(), 30, "the end")
    if lost == "lost":
        let_release(here, name, holder, tree)
        tree.wait_claims(here.znode(name), 0)
    way.pass_on()
    seen = next_seen(app, 20.0 if lost == "not lost" else 1.0)
    if seen is not None:
        seen.answer()
    status = client.response(30).status
    assert status in ((200, 503) if lost == "not lost" else (412, 503))
    assert (seen is not None) == (status == 200)
    there.wait_served()
    if lost == "not lost":
        let_release(here, name, holder, tree)
