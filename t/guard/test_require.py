"""zk_lock_require: only the holder of a lock is served.

The gateways of the file have a location for each variant of the rule; the name
of the lock is an argument, so that each test has a lock of its own.  The tests
run at the gateway that granted the lock, and at another gateway.
"""

import itertools

import pytest

from conftest import gateways, new_root
from lib.backend import Backend
from lib.checks import problem
from lib.client import Gone, lock_path
from lib.guards import LOG, SOON, location
from lib.process import wait_until

CUT = (Gone, ConnectionResetError)
ADMIN = "zk_lock_admin on;"
RULE = "zk_lock_require $arg_lock fencing=$http_lock_fencing_token"

# answered at once
CHECKED = {
    "/app/": RULE + ";",
    "/if/": RULE + " if_held;",
    "/if/abort/": RULE + " if_held lost=abort;",
    "/any/": RULE + " mode=shared;",
    "/any/if/": RULE + " mode=shared if_held;",
    "/secret/": "zk_lock_require $arg_lock;",
    "/fence/": "zk_lock_require $arg_lock token= fencing=$arg_fencing;",
    "/two/": "zk_lock_require $arg_lock token=$http_x_one;"
             "zk_lock_require $arg_other token=$http_x_other;",
}

# answered by hand
WORKING = {
    "/busy/": RULE + ";",
    "/abort/": RULE + " lost=abort;",
    "/abort/any/": RULE + " lost=abort mode=shared;",
    "/on/": RULE + " lost=continue;",
    "/both/": RULE + "; zk_lock own-$arg_lock wait=0;",
}

FILES = {
    "/files/": "zk_lock_require $uri;",
    "/stream/": "zk_lock_require $uri lost=abort; zk_lock_request_body off;",
}

_names = itertools.count()


@pytest.fixture(scope="module")
def app():
    app = Backend()
    yield app
    app.close()


@pytest.fixture(scope="module")
def quick():
    app = Backend(work=lambda seen: (200, b"quick\n"))
    yield app
    app.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for path in FILES:
        (folder / path.strip("/")).mkdir()
    return folder


@pytest.fixture(scope="module")
def server(app, quick, folder):
    places = [(path, rules, "proxy_pass http://%s;" % backend.address)
              for backend, table in ((quick, CHECKED), (app, WORKING))
              for path, rules in table.items()]
    places += [(path, rules, "dav_methods PUT; root %s;" % folder)
               for path, rules in FILES.items()]
    return "".join(location(rules, content, path)
                   for path, rules, content in places)


@pytest.fixture(scope="module")
def pair(request, tmp_path_factory, zookeeper, tree, server):
    with gateways(request.node, tmp_path_factory.mktemp("pair"), zookeeper,
                  tree, new_root()) as make:
        yield [make(server=server, http=LOG, location=ADMIN)
               for _ in range(2)]


@pytest.fixture
def gateway(pair):
    return pair[0]


@pytest.fixture(params=["here", "there"])
def here_and_there(request, pair):
    """(the gateway that grants, the gateway that checks)"""
    here, there = pair
    return here, here if request.param == "here" else there


@pytest.fixture
def name():
    return "r%d" % next(_names)


def shown(token=None, fencing=None):
    """The headers of a client that shows these."""
    headers = {}
    if token is not None:
        headers["Lock-Token"] = token
    if fencing is not None:
        headers["Lock-Fencing-Token"] = str(fencing)
    return headers


def ask(gateway, name, token=None, fencing=None, path="/app/"):
    """The answer of every worker, which is the same."""
    answers = [gateway.call("GET", path, {"lock": name},
                            shown(token, fencing), worker=worker)
               for worker in gateway.worker_pids()]
    assert len({answer.status for answer in answers}) == 1, answers
    return answers[-1]


def begin(gateway, name, path, token=None, fencing=None):
    return gateway.connect().send("GET", path, {"lock": name},
                                  shown(token, fencing))


def release(gateway, name, *holders):
    for holder in holders:
        assert gateway.release(name, holder.token).status == 204


# a token

def test_right_token(here_and_there, name):
    here, there = here_and_there
    holder = here.hold(name)
    response = ask(there, name, holder.token)
    assert (response.status, response.body) == (200, b"quick\n")
    release(here, name, holder)


@pytest.mark.parametrize("token", ["x", "x" * 32, "\xff" * 32, "x" * 5000])
def test_token_that_is_none(gateway, name, token):
    problem(ask(gateway, name, token), 412, "no token of this request's lock")
    holder = gateway.hold(name)
    problem(ask(gateway, name, token), 412)
    problem(ask(gateway, name, holder.token[:-1]), 412)
    problem(ask(gateway, name, holder.token, path="/app/?lock=%s-&x=" % name),
            412)
    release(gateway, name, holder)


def test_token_of_another_lock(here_and_there, name):
    here, there = here_and_there
    holder, other = here.hold(name), here.hold(name + "-other")
    for path in "/app/", "/if/", "/any/":
        problem(ask(there, name, other.token, path=path), 412)
    release(here, name, holder)
    problem(ask(there, name, other.token, path="/if/"), 412)
    release(here, name + "-other", other)


def test_token_of_a_waiter(here_and_there, name):
    """A client that polls has a token before the client holds the lock."""
    here, there = here_and_there
    holder = here.hold(name)
    waiter = here.acquire(name, headers={"Prefer": "respond-async"},
                          wait="1m")
    assert waiter.status == 202
    for path in "/app/", "/if/", "/any/":
        problem(ask(there, name, waiter.token, path=path), 412, "waits")
    release(here, name, holder)
    for worker in there.worker_pids():
        wait_until(lambda: there.call("GET", "/app/", {"lock": name},
                                      shown(waiter.token), worker=worker
                                      ).status == 200, SOON, "the grant")
    release(here, name, waiter)


def let_go(gateway, name, holder):
    release(gateway, name, holder)


def let_break(gateway, name, holder):
    response = gateway.call("DELETE", lock_path(name), {"force": "1"},
                            {"If-Match": str(holder.fencing)})
    assert response.status in (200, 204), response


def let_expire(gateway, name, holder):
    """The lease is cut short, and ends."""
    response = gateway.renew(name, holder.token, ttl="50ms")
    assert response.status == 200, response


ENDS = {"released": let_go, "broken": let_break, "expired": let_expire}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_former_holder(here_and_there, name, tree, how):
    """412 while the lock is free, and when another client holds the lock."""
    here, there = here_and_there
    holder = here.hold(name)
    assert ask(there, name, holder.token).status == 200
    ENDS[how](here, name, holder)
    tree.wait_claims(here.znode(name), 0)
    for token, fencing in ((holder.token, None), (None, holder.fencing),
                           (holder.token, holder.fencing)):
        problem(ask(there, name, token, fencing), 412)
        problem(ask(there, name, token, fencing, "/if/"), 412)
    second = here.hold(name)
    problem(ask(there, name, holder.token), 412)
    problem(ask(there, name, None, holder.fencing), 412)
    assert ask(there, name, second.token).status == 200
    release(here, name, second)


# a fencing token

def test_fencing_token(here_and_there, name):
    here, there = here_and_there
    holder = here.hold(name)
    assert ask(there, name, None, holder.fencing).status == 200
    for wrong in holder.fencing - 1, holder.fencing + 1, 1, (1 << 63) - 1:
        problem(ask(there, name, None, wrong), 412)
    release(here, name, holder)


def test_fencing_token_of_another_lock(here_and_there, name):
    here, there = here_and_there
    holder, other = here.hold(name), here.hold(name + "-other")
    problem(ask(there, name, None, other.fencing), 412)
    release(here, name, holder)
    release(here, name + "-other", other)


@pytest.mark.parametrize("path", ["/app/", "/any/"])
def test_fencing_token_before_the_release_is_done(
        start_gateway, start_proxy, zookeeper, tree, server, name, path):
    """A gateway hands the lock over while the delete of the former claim is
    under way: another gateway waits for that.
    """
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s",
                         workers=1, wait_sessions=False)
    there = start_gateway(server=server)
    here.wait_served()
    former = here.hold(name)
    waiter = here.begin(name, wait="1m")
    tree.wait_claims(here.znode(name), 2)
    here.catch_up(name)
    proxy.hole()
    end = here.connect().send("DELETE", lock_path(name, former.token))
    holder = waiter.response(SOON)
    assert holder.status == 201
    assert len(tree.claims(here.znode(name))) == 2
    client = there.connect().send("GET", path, {"lock": name},
                                  shown(None, holder.fencing))
    assert client.silent_for(0.3)
    assert len(tree.claims(here.znode(name))) == 2
    proxy.pass_on()
    answer = client.response()
    assert len(tree.claims(here.znode(name))) == 1
    assert answer.status == 200
    assert end.response(SOON).status == 204
    release(here, name, holder)


def test_durable_fencing_token_before_the_release_is_done(
        start_gateway, start_proxy, zookeeper, tree, server, name):
    """A claim with a key is async, but a durable claim is held: another
    gateway waits, however long the delete of the former claim takes.
    """
    proxy = start_proxy(zookeeper)
    here = start_gateway(servers=proxy.address, session_timeout="60s")
    there = start_gateway(server=server)
    worker, sibling = here.worker_pids()
    former = here.hold(name, worker=worker)
    session = tree.stat("%s/%s" % (here.znode(name), tree.wait_claims(
        here.znode(name), 1)[0])).ephemeralOwner
    waiter = here.begin(name, headers={"Idempotency-Key": name}, wait="1m",
                        durable="1", worker=sibling)
    tree.wait_claims(here.znode(name), 2)
    here.catch_up(name)
    proxy.cut_off(session)
    end = here.connect(worker).send("DELETE", lock_path(name, former.token))
    holder = waiter.response(SOON)
    assert holder.status == 201
    client = begin(there, name, "/app/", None, holder.fencing)
    assert client.silent_for(2.0)
    assert len(tree.claims(here.znode(name))) == 2
    proxy.pass_on()
    assert client.response(SOON).status == 200
    assert end.response(SOON).status == 204
    release(here, name, holder)


@pytest.mark.parametrize("prefer", ["respond-async", ""])
def test_fencing_token_of_a_waiter(here_and_there, name, tree, prefer):
    """An async claim waits, and that is told soon; of any other claim no
    client has the fencing token before the claim is held.
    """
    here, there = here_and_there
    former = here.hold(name)
    waiter = here.begin(name, headers={"Prefer": prefer}, wait="1m")
    claim = tree.wait_claims(here.znode(name), 2)[-1]
    fencing = tree.made(here.znode(name) + "/" + claim) << 8
    problem(there.call("GET", "/app/", {"lock": name}, shown(None, fencing)),
            412 if prefer else 503)
    release(here, name, former)
    holder = waiter.response(SOON)
    if prefer:
        wait_until(lambda: here.inspect(name, holder.token).json["state"]
                   == "held")
    assert ask(there, name, None, fencing).status == 200
    release(here, name, holder)


def test_fencing_token_behind_many_holders(here_and_there, foreign, name):
    """The first 1000 holders are looked at; of one behind only the token tells
    that it holds the lock.
    """
    here, there = here_and_there
    former = here.hold(name, mode="shared")
    first = here.hold(name, mode="shared")
    release(here, name, former)
    made = [foreign.client.create_async(
        here.znode(name) + "/reader-__READ__", ephemeral=True, sequence=True)
        for _ in range(999)]
    made = [answer.get(30) for answer in made]
    last = here.hold(name, mode="shared")
    for path in "/any/", "/any/if/":
        assert ask(there, name, None, first.fencing, path).status == 200
        problem(ask(there, name, None, former.fencing, path), 412, "no holder")
        problem(ask(there, name, None, last.fencing, path), 503, "more holders")
        assert ask(there, name, last.token, None, path).status == 200
    problem(ask(there, name, None, last.fencing), 412, "no holder")
    foreign.delete(made[0])
    assert ask(there, name, None, last.fencing, "/any/").status == 200
    for answer in [foreign.client.delete_async(path) for path in made[1:]]:
        answer.get(30)
    release(here, name, first, last)


def test_fencing_token_under_a_mark(pair, foreign, tree, app, name):
    """A mark of Curator's Revoker hides the fencing token of a durable claim,
    until the claim's gateway, which stands still, writes the token anew.
    """
    here, there = pair
    worker = here.worker_pids()[0]
    holder = here.hold(name, worker=worker, durable="1", ttl="1m")
    claim = "%s/%s" % (here.znode(name), tree.claims(here.znode(name))[0])
    client = begin(there, name, "/abort/", None, holder.fencing)
    seen = app.next()
    assert there.inspect(name, holder.token
                         ).json["fencing_token"] == holder.fencing
    with here.frozen_worker(worker):
        foreign.client.set(claim, b"__REVOKE__")
        waiter = there.begin(name, wait="1m")
        tree.wait_claims(here.znode(name), 2)
        for token in None, holder.token:
            problem(ask(there, name, token, holder.fencing), 503, "hides")
        assert ask(there, name, holder.token).status == 200
        told = there.inspect(name, holder.token)
        assert told.json["state"] == "held"
        assert "fencing_token" not in told.json
        told, = there.inspect(name).json["holders"]
        assert "fencing_token" not in told
        assert client.silent_for(0.5)
    wait_until(lambda: tree.data(claim) != b"__REVOKE__")
    assert ask(there, name, None, holder.fencing).status == 200
    assert there.inspect(name, holder.token
                         ).json["fencing_token"] == holder.fencing
    seen.answer()
    assert client.response().status == 200
    release(here, name, holder)
    release(here, name, waiter.response(SOON))


def test_both(here_and_there, name):
    """Both have to be right."""
    here, there = here_and_there
    holder = here.hold(name)
    assert ask(there, name, holder.token, holder.fencing).status == 200
    problem(ask(there, name, holder.token, holder.fencing + 1), 412)
    problem(ask(there, name, holder.token[::-1], holder.fencing), 412)
    release(here, name, holder)


@pytest.mark.parametrize("fencing", [
    "x", "0", "-1", "+1", "1.5", "1e3", "0x10", "1 2", "1,2", "9" * 30,
    "9223372036854775808", "\xb2"])
def test_garbage(gateway, name, fencing):
    problem(ask(gateway, name, None, fencing), 400, "fencing token")
    holder = gateway.hold(name)
    problem(ask(gateway, name, None, fencing), 400)
    problem(ask(gateway, name, holder.token, fencing), 400)
    release(gateway, name, holder)


def test_no_fencing_token_by_default(here_and_there, name):
    """A fencing token is no secret: without fencing= none counts."""
    here, there = here_and_there
    holder = here.hold(name)
    problem(ask(there, name, None, holder.fencing, "/secret/"), 423)
    for fencing in holder.fencing, holder.fencing + 1, "x":
        assert ask(there, name, holder.token, fencing,
                   "/secret/").status == 200
    release(here, name, holder)
    problem(ask(there, name, holder.token, holder.fencing, "/secret/"), 412)


def test_where_the_tokens_are(here_and_there, name):
    """token= and fencing= say so; the headers mean nothing then."""
    here, there = here_and_there
    holder = here.hold(name)
    path = "/fence/?lock=%s&fencing=" % name
    for fencing, status in ((holder.fencing, 200), (holder.fencing - 1, 412),
                            ("x", 400), ("", 423)):
        response = there.call("GET", path + str(fencing),
                              headers=shown(holder.token, holder.fencing))
        assert response.status == status, fencing
    release(here, name, holder)


# nothing is shown

def test_nothing_is_shown(here_and_there, name):
    """423, which names the holder but not the holder's token."""
    here, there = here_and_there
    content = problem(ask(there, name), 423)
    assert "holder" not in content
    holder = here.hold(name, {"owner": "me"})
    response = ask(there, name)
    content = problem(response, 423)
    assert content["holder"]["owner"] == "me"
    assert content["holder"]["fencing_token"] == holder.fencing
    assert holder.token.encode() not in response.body
    release(here, name, holder)


@pytest.mark.parametrize("path", ["/if/", "/if/abort/"])
def test_if_held(here_and_there, name, path):
    """Without a token the request passes while the lock is free."""
    here, there = here_and_there
    assert ask(there, name, path=path).status == 200
    holder = here.hold(name)
    content = problem(ask(there, name, path=path), 423)
    assert content["holder"]["fencing_token"] == holder.fencing
    assert ask(there, name, holder.token, path=path).status == 200
    release(here, name, holder)
    assert ask(there, name, path=path).status == 200


@pytest.mark.parametrize("path", ["/if/", "/any/if/"])
def test_if_held_by_readers(here_and_there, name, path):
    here, there = here_and_there
    reader = here.hold(name, mode="shared")
    problem(ask(there, name, path=path), 423)
    release(here, name, reader)
    assert ask(there, name, path=path).status == 200


def test_empty_name(gateway):
    """A rule with an empty name requires nothing."""
    for token, fencing in ((None, None), ("x", "x")):
        assert ask(gateway, "", token, fencing).status == 200


@pytest.mark.parametrize("name", ["x" * 201, "zookeeper"])
def test_name_that_no_znode_has(gateway, name):
    """The lock is that of the API."""
    token = gateway.hold(name).token
    assert ask(gateway, name, token).status == 200
    assert gateway.release(name, token).status == 204
    problem(ask(gateway, name, token), 412)


# modes

ALONE = [{}, {"mode": "write"}]
TOGETHER = [{"mode": "shared"}, {"mode": "semaphore", "permits": "2"}]


@pytest.mark.parametrize("query", ALONE + TOGETHER, ids=str)
def test_mode(here_and_there, name, query):
    """A holder that may not be alone is refused without mode=shared."""
    here, there = here_and_there
    holder = here.hold(name, **query)
    status = 200 if query in ALONE else 412
    for token, fencing in ((holder.token, None), (None, holder.fencing)):
        for path in "/app/", "/if/":
            assert ask(there, name, token, fencing, path).status == status
        for path in "/any/", "/any/if/":
            assert ask(there, name, token, fencing, path).status == 200
    release(here, name, holder)


@pytest.mark.parametrize("query", TOGETHER, ids=str)
def test_every_holder(here_and_there, name, query):
    here, there = here_and_there
    holders = [here.hold(name, **query) for _ in range(2)]
    for holder in holders:
        assert ask(there, name, holder.token, path="/any/").status == 200
        assert ask(there, name, None, holder.fencing,
                   "/any/").status == 200
    release(here, name, holders[0])
    problem(ask(there, name, None, holders[0].fencing, "/any/"), 412)
    assert ask(there, name, None, holders[1].fencing, "/any/").status == 200
    release(here, name, holders[1])


# several rules

def test_two_rules(here_and_there, name):
    """Each lock has to be held."""
    here, there = here_and_there
    other = name + "-other"
    holders = here.hold(name), here.hold(other)
    query = {"lock": name, "other": other}

    def two(one, two):
        return there.call("GET", "/two/", query,
                          {"X-One": one, "X-Other": two}).status

    one, second = [holder.token for holder in holders]
    assert two(one, second) == 200
    assert two(second, one) == 412
    assert two(one, one) == 412
    assert two(one, "") == 423
    assert two("", second) == 423
    release(here, other, holders[1])
    assert two(one, second) == 412
    query["other"] = ""
    assert two(one, "") == 200
    release(here, name, holders[0])
    assert two(one, "") == 412


def test_beside_a_lock(here_and_there, name, app, tree):
    """The rule is checked first; then the request takes a lock of its own."""
    here, there = here_and_there
    own = "own-" + name
    problem(ask(there, name, path="/both/"), 423)
    assert tree.claims(here.znode(own)) == []
    holder = here.hold(name)
    client = begin(there, name, "/both/", holder.token)
    seen = app.next()
    problem(here.acquire(own, wait="0"), 423)
    problem(there.call("GET", "/both/", {"lock": name}, shown(holder.token)),
            423, "the wait is over")
    seen.answer()
    assert client.response().status == 200
    tree.wait_claims(here.znode(own), 0)
    release(here, name, holder)


def test_error_page(guarded, quick, backend):
    """The page is served, although its location inherits the rule."""
    gateway = guarded("error_page 412 423 = @refused;",
                      server="zk_lock_require one;"
                      + location("", "proxy_pass http://%s;" % quick.address,
                                 "@refused"))
    holder = gateway.hold("one")
    for headers in {}, shown("x"):
        response = gateway.call("GET", "/app/", headers=headers)
        assert (response.status, response.body) == (200, b"quick\n")
    release(gateway, "one", holder)
    assert backend.idle()


# ZooKeeper is out of reach

def test_out_of_reach(start_gateway, start_proxy, zookeeper, quick, name):
    """503, because what the gateway knows may be old."""
    proxy = start_proxy(zookeeper)
    here = start_gateway()
    rule, content = ("zk_lock_require $arg_lock;",
                     "proxy_pass http://%s;" % quick.address)
    there = start_gateway(
        servers=proxy.address, wait_sessions=False,
        server=location(rule, content)
        + location(rule + "zk_lock_timeout 300ms;", content, "/hasty/"))
    there.wait_served()
    holder = here.hold(name)
    assert ask(there, name, holder.token).status == 200
    proxy.hole()
    total = quick.total
    for token, fencing in ((holder.token, None), (None, holder.fencing),
                           (None, None)):
        problem(ask(there, name, token, fencing, "/hasty/"), 503)
    assert quick.total == total
    proxy.pass_on()
    there.wait_served()
    assert ask(there, name, holder.token).status == 200
    release(here, name, holder)


# the lock is lost while the request is served

def let_delete(gateway, name, tree):
    for claim in tree.claims(gateway.znode(name)):
        tree.delete(gateway.znode(name) + "/" + claim)


@pytest.mark.parametrize("how", sorted(ENDS) + ["deleted"])
def test_lost_and_aborted(here_and_there, name, app, tree, how):
    """503, and the application is cut off."""
    here, there = here_and_there
    holder = here.hold(name)
    client = begin(there, name, "/abort/", holder.token)
    seen = app.next()
    if how == "deleted":
        let_delete(here, name, tree)
    else:
        ENDS[how](here, name, holder)
    problem(client.response(), 503, "lost")
    seen.wait_cut()


def test_lost_to_a_waiter(here_and_there, name, app, tree):
    """The same when the next client holds the lock at once."""
    here, there = here_and_there
    holder = here.hold(name)
    waiter = here.begin(name)
    tree.wait_claims(here.znode(name), 2)
    client = begin(there, name, "/abort/", None, holder.fencing)
    seen = app.next()
    release(here, name, holder)
    problem(client.response(), 503, "lost")
    seen.wait_cut()
    release(here, name, waiter.response())


def test_lost_beside_a_mark(pair, foreign, tree, app, name):
    """A mark of Curator's Revoker hides another holder's fencing token, so the
    loss shows only once that holder's gateway has written the token anew.
    """
    here, there = pair
    worker = here.worker_pids()[0]
    other = here.hold(name, worker=worker, mode="shared", durable="1", ttl="1m")
    claim = "%s/%s" % (here.znode(name), tree.claims(here.znode(name))[0])
    holder = there.hold(name, mode="shared")
    client = begin(there, name, "/abort/any/", None, holder.fencing)
    seen = app.next()
    with here.frozen_worker(worker):
        foreign.client.set(claim, b"__REVOKE__")
        release(there, name, holder)
        assert client.silent_for(0.5)
    problem(client.response(SOON), 503, "lost")
    seen.wait_cut()
    release(here, name, other)


def test_lost_behind_the_header(here_and_there, name, app):
    here, there = here_and_there
    holder = here.hold(name)
    client = begin(there, name, "/abort/", holder.token)
    seen = app.next()
    seen.begin(200, 1000)
    seen.send(b"x" * 10)
    release(here, name, holder)
    with pytest.raises(CUT):
        client.response()
    seen.wait_cut()


def test_not_lost(here_and_there, name, app, tree):
    """Renewals, and waiters that come and leave, change nothing."""
    here, there = here_and_there
    holder = here.hold(name)
    client = begin(there, name, "/abort/", holder.token)
    seen = app.next()
    waiter = here.begin(name)
    tree.wait_claims(here.znode(name), 2)
    assert here.renew(name, holder.token).status == 200
    waiter.close()
    tree.wait_claims(here.znode(name), 1)
    there.catch_up(name)
    assert client.silent_for(0)
    seen.answer()
    assert client.response().status == 200
    release(here, name, holder)


def test_not_lost_before_the_release_is_done(
        start_gateway, start_proxy, zookeeper, tree, server, app, name):
    """A change of the lock's claims while the former holder's claim, which the
    holder's worker deletes, is still in ZooKeeper.
    """
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, session_timeout="60s",
                            server=server)
    worker, sibling = gateway.worker_pids()
    former = gateway.hold(name, worker=worker)
    waiter = gateway.begin(name, wait="1m", worker=worker)
    claim = tree.wait_claims(gateway.znode(name), 2)[-1]
    gateway.catch_up(name)
    proxy.cut_off(tree.stat(gateway.znode(name) + "/" + claim).ephemeralOwner)
    end = gateway.connect(worker).send("DELETE",
                                       lock_path(name, former.token))
    holder = waiter.response(SOON)
    assert holder.status == 201
    client = gateway.connect(sibling).send(
        "GET", "/abort/", {"lock": name}, shown(None, holder.fencing))
    seen = app.next()
    tree.wait_claims(gateway.znode(name), 2)
    last = gateway.begin(name, wait="1m", worker=sibling)
    tree.wait_claims(gateway.znode(name), 3)
    assert client.silent_for(1.0)
    proxy.pass_on()
    seen.answer()
    assert client.response().status == 200
    assert end.response(SOON).status == 204
    release(gateway, name, holder)
    release(gateway, name, last.response(SOON))


@pytest.mark.parametrize("path", ["/busy/", "/on/"])
def test_lost_and_served_on(here_and_there, name, app, tree, path):
    here, there = here_and_there
    holder = here.hold(name)
    client = begin(there, name, path, holder.token)
    seen = app.next()
    release(here, name, holder)
    tree.wait_claims(here.znode(name), 0)
    problem(ask(there, name, holder.token), 412)
    assert client.silent_for(0)
    seen.answer()
    assert client.response().status == 200


# a client that was paused

def upload(gateway, path, token):
    """A PUT whose body is being read, and not whole yet."""
    client = gateway.connect()
    client.send_bytes(b"PUT %s HTTP/1.1\r\nHost: x\r\nLock-Token: %s\r\n"
                      b"Expect: 100-continue\r\nContent-Length: 8\r\n\r\n"
                      % (path.encode(), token.encode()), "PUT")
    assert client.response().status == 100
    client.send_bytes(b"late", "PUT")
    return client


def put(gateway, path, token, body):
    return gateway.call("PUT", path, headers=shown(token), body=body).status


def passed_on(here, there, name, path, tree):
    """(a late write of a client that has lost the lock, the new holder)"""
    holder = here.hold(name)
    waiter = here.begin(name)
    tree.wait_claims(here.znode(name.replace("/", "%2F")), 2)
    client = upload(there, path, holder.token)
    let_expire(here, name, holder)
    second = waiter.response()
    assert second.status == 201
    return client, second


def test_late_write(here_and_there, folder, tree):
    """The upload begins before the loss and ends behind it: no change."""
    here, there = here_and_there
    name = "files/%d" % next(_names)
    file = folder / name
    holder = here.hold(name)
    assert put(there, "/" + name, holder.token, b"first") == 201
    release(here, name, holder)

    client, second = passed_on(here, there, name, "/" + name, tree)
    client.socket.sendall(b"rest")
    problem(client.response(), 412)
    assert file.read_bytes() == b"first"

    assert put(there, "/" + name, second.token, b"second") == 204
    assert file.read_bytes() == b"second"
    release(here, name, second)


def test_late_write_to_an_application(here_and_there, name, app, tree):
    """The application is never asked."""
    here, there = here_and_there
    client, second = passed_on(here, there, name, "/busy/?lock=" + name, tree)
    client.socket.sendall(b"rest")
    problem(client.response(), 412)
    assert app.idle()
    release(here, name, second)


def test_late_write_that_is_not_read_before(here_and_there, folder, tree):
    """The lock is checked ahead of the body, and its loss ends the upload."""
    here, there = here_and_there
    name = "stream/%d" % next(_names)
    file = folder / name
    file.write_bytes(b"first")
    holder = here.hold(name)
    client = upload(there, "/" + name, holder.token)
    release(here, name, holder)
    with pytest.raises(CUT):
        client.response()
    assert "the client lost the lock" in there.log_text()
    assert file.read_bytes() == b"first"
