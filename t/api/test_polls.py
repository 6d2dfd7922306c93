"""Clients poll a lock again and again, and each answer may wait for a change.

The ETag of a lock's answer, free or not, changes when a claim comes, goes or is
granted, and only then.  A poll that sends the ETag in If-None-Match with a wait
is answered when the lock has changed; a poll until the lock is free is answered
when the lock is free.  However many polls wait, each worker reads ZooKeeper
once a change.
"""

import gzip
import itertools
import json
import re
import time

import pytest

from lib.checks import problem, retry_after
from lib.client import lock_path
from lib.holders import wait_dead
from lib.process import alive, wait_until
from lib.queues import SOON, chance, kill, wait
from lib.zookeeper import Server

FREE = 'W/"free"'
TAG = re.compile(r'^W/"[^"\s\\]+"$')
PLACES = ("worker", "sibling", "gateway", "gateway's other")
FOLLOWERS = 40
LINE = 100              # more claims than a worker reads at a time


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


@pytest.fixture
def places(shared_pair):
    return [(gateway, worker) for gateway in shared_pair
            for worker in gateway.worker_pids()]


@pytest.fixture
def at(places):
    return dict(zip(PLACES, places))


@pytest.fixture
def name():
    return "p%d" % next(numbers)


numbers = itertools.count()


def look(place, name, tag=None, headers=None, **query):
    gateway, worker = place
    headers = dict(headers or {})
    if tag is not None:
        headers["If-None-Match"] = tag
    return gateway.call("GET", lock_path(name), query, headers, worker=worker)


def begin(place, name, tag=None, method="GET", **query):
    """A poll; the test reads the answer from the connection."""
    gateway, worker = place
    connection = gateway.connect(worker)
    headers = {} if tag is None else {"If-None-Match": tag}
    return connection.send(method, lock_path(name), query, headers)


def tag_of(response):
    """The ETag of an answer, whose other parts are checked."""
    tag = response.headers["ETag"]
    if response.status == 404:
        problem(response, 404)
        assert tag == FREE
    else:
        assert response.status in (200, 304), response
        assert TAG.match(tag) and tag != FREE, tag
        assert (response.body == b"") == (response.status == 304)
    assert "Lock-Token" not in response.headers
    return tag


def same(response, tag):
    """The answer says that the lock has not changed."""
    assert response.status == 304, response
    assert response.body == b""
    assert response.headers["ETag"] == tag
    assert "Content-Type" not in response.headers
    return response


def changed(response, tag):
    """The new tag of a lock that has changed."""
    assert response.status in (200, 404), response
    assert tag_of(response) != tag
    return tag_of(response)


def agreed(places, name):
    """The tag, which has to be the same at each place."""
    tags = {tag_of(look(place, name)) for place in places}
    assert len(tags) == 1, tags
    return tags.pop()


# tags

def test_tag_changes_with_the_lock(places, tree, name):
    """Looks, renewals and time do not change the tag."""
    gateway = places[0][0]
    znode = gateway.znode(name)
    tags = [agreed(places, name)]
    assert tags == [FREE]

    def step():
        tags.append(agreed(places, name))
        for place in places:
            same(look(place, name, tags[-1]), tags[-1])

    holder = gateway.hold(name)
    step()
    waiters = []
    for mode in ("shared", "shared", "exclusive"):
        waiters.append(gateway.begin(name, mode=mode, wait="2m"))
        tree.wait_claims(znode, 1 + len(waiters))
        step()
    waiters[1].close()
    tree.wait_claims(znode, 3)
    step()
    for each, _ in places:
        assert each.renew(name, holder.token, ttl="10m").status == 200
    assert agreed(places, name) == tags[-1]
    gateway.release(name, holder.token)
    reader = waiters[0].response(SOON)
    step()
    gateway.release(name, reader.token)
    last = waiters[2].response(SOON)
    step()
    assert gateway.renew(name, last.token, mode="shared").status == 200
    step()
    gateway.release(name, last.token)
    assert agreed(places, name) == FREE
    assert len(set(tags)) == len(tags), tags


def test_tag_is_not_used_again(places, name):
    """Each later holder causes a tag that the lock never had before."""
    seen = set()
    for place in places * 3:
        holder = place[0].hold(name, worker=place[1], owner="me")
        tag = agreed(places, name)
        assert tag not in seen
        seen.add(tag)
        place[0].release(name, holder.token)
        assert tag_of(look(places[0], name)) == FREE


@pytest.mark.parametrize("head", [False, True])
def test_lists_of_tags(places, name, head):
    """The tag is weak or strong, alone or in a list."""
    gateway, worker = places[0]
    method = "HEAD" if head else "GET"

    def status(text):
        with gateway.connect(worker) as connection:
            return connection.request(
                method, lock_path(name),
                headers={"If-None-Match": text}).status

    for held in (False, True):
        if held:
            holder = gateway.hold(name)
        tag = tag_of(look(places[0], name))
        strong = tag[2:]
        for text in (tag, strong, '"a", ' + tag, tag + ', "b"',
                     'W/"a",%s,"b"' % strong, '"a",\t"b" , %s' % tag,
                     '"free","gone",' + tag):
            assert status(text) == 304, text
        now = 200 if held else 404
        other = tag[:-2] + ("x" if tag[-2] != "x" else "y") + '"'
        for text in ('"a"', 'W/"a", "b"', other, '""', "W/", tag[:-1],
                     strong[1:-1], '"a%s"' % strong[1:-1],
                     '"%sa"' % strong[1:-1], "nonsense", ""):
            assert status(text) == now, text
        # a free lock has nothing that "*" could stand for
        assert status("*") == (304 if held else 404)
    gateway.release(name, holder.token)


def test_other_conditions_do_not_count(places, name):
    gateway = places[0][0]
    holder = gateway.hold(name)
    tag = tag_of(look(places[0], name))
    late = {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"}
    assert look(places[0], name, headers=late).status == 200
    assert look(places[0], name, '"a"', late).status == 200
    same(look(places[0], name, tag, {
        "If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}), tag)
    gateway.release(name, holder.token)


def test_claims_are_not_polled_by_tag(places, name):
    """The answer to a token has no ETag, and ignores If-None-Match."""
    gateway, worker = places[0]
    holder = gateway.hold(name)
    tag = tag_of(look(places[0], name))
    for text in (tag, FREE):
        response = look(places[0], name, text,
                        {"Lock-Token": holder.token})
        assert response.status == 200 and "ETag" not in response.headers
        assert response.json["token"] == holder.token
    gateway.release(name, holder.token)


def test_compressed(start_gateway, tree):
    """A compressed answer has the same tag, and a poll with the tag works
    alike.
    """
    gateway = start_gateway(
        workers=1, http="gzip on;\ngzip_min_length 1;\n"
        "gzip_types application/json application/problem+json;")
    place = gateway, gateway.worker_pids()[0]
    accepts = {"Accept-Encoding": "gzip"}
    zipped = look(place, "x", headers=accepts)
    assert zipped.headers["ETag"] == FREE
    holder = gateway.hold("x", data="[" + "1," * 300 + "1]")
    plain = look(place, "x")
    zipped = look(place, "x", headers=accepts)
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    members = json.loads(gzip.decompress(zipped.body).decode())
    assert members["holders"][0]["data"] == plain.json["holders"][0]["data"]
    tag = tag_of(plain)
    assert zipped.headers["ETag"] == tag
    same(look(place, "x", tag, accepts), tag)
    poll = gateway.connect()
    poll.send("GET", "/locks/x", {"wait": "1m"},
              dict(accepts, **{"If-None-Match": tag}))
    waiter = gateway.begin("x")
    response = poll.response(SOON)
    assert response.headers["ETag"] != tag
    assert b'"queued":1' in gzip.decompress(response.body)
    gateway.release("x", holder.token)
    gateway.release("x", waiter.response(SOON).token)


# polls that wait

@pytest.mark.parametrize("where", PLACES)
def test_poll_waits_for_a_change(at, places, tree, name, where):
    """Changes of every kind, at each place, answer each of the polls."""
    gateway, worker = at[where]
    znode = gateway.znode(name)
    tag = FREE
    held = []

    def poll_over(change):
        """Polls at all places, which a change has to answer."""
        polls = [begin(place, name, tag, wait="1m") for place in places]
        wait(*polls)
        result = change()
        tags = {changed(poll.response(SOON), tag) for poll in polls}
        assert tags == {agreed(places, name)}
        return result, tags.pop()

    def join():
        waiter = gateway.begin(name, worker=worker)
        tree.wait_claims(znode, len(held) + 1)
        return waiter

    for _ in range(3):
        waiter, tag = poll_over(join)
        held.append(waiter)
    _, tag = poll_over(held.pop().close)
    while held:
        token = held.pop(0).response(SOON).token
        _, tag = poll_over(lambda: gateway.release(name, token, worker))
    assert tag == FREE


@pytest.mark.parametrize("where", PLACES)
def test_poll_of_a_lock_whose_lease_ends(at, places, name, where):
    gateway, worker = at[where]
    holder = gateway.hold(name, worker=worker)
    tag = agreed(places, name)
    polls = [begin(place, name, tag, wait="1m") for place in places]
    wait(*polls)
    assert gateway.renew(name, holder.token, worker=worker,
                         ttl="300ms").status == 200
    for poll in polls:
        assert changed(poll.response(SOON), tag) == FREE


def test_poll_that_is_answered_at_once(places, name):
    """A poll does not wait without a tag, with an old tag, or if the lock is
    free.
    """
    gateway = places[0][0]
    for place in places:
        problem(look(place, name, wait="1m"), 404)
        problem(look(place, name, '"a"', wait="1m"), 404)
    holder = gateway.hold(name)
    for place in places:
        tag = tag_of(look(place, name, wait="1m"))
        for text in (FREE, '"a"', 'W/"0", "b"'):
            changed(look(place, name, text, wait="1m"), FREE)
        same(look(place, name, tag, wait="0"), tag)
        same(look(place, name, tag), tag)
        same(look(place, name, tag, headers={"Prefer": "wait=0"}), tag)
    gateway.release(name, holder.token)


def test_wait_is_over(places, name):
    """304, for a free lock and for a held lock."""
    gateway = places[0][0]
    for held in (False, True):
        if held:
            holder = gateway.hold(name)
        tag = tag_of(look(places[0], name))
        for place in places:
            waits(0.29, place, name, tag, wait="300ms")
            waits(0, place, name, tag, {"Prefer": "wait=1"}, wait="10ms")
        waits(0.99, places[0], name, tag, {"Prefer": "wait=1"})
    gateway.release(name, holder.token)


def waits(seconds, place, name, tag, headers=None, **query):
    """A poll is told no sooner that the lock has not changed."""
    def poll():
        nonlocal began
        began = time.monotonic()
        return look(place, name, tag, headers, **query)

    began = None
    same(place[0].in_reach(poll), tag)
    assert time.monotonic() - began >= seconds


@pytest.mark.parametrize("arguments", [
    {"wait": "soon"}, {"wait": "-1"}, {"wait": ""}, {"until": "held"},
    {"until": ""}, {"until": "free", "etag": "1"}, {"ttl": "1m"},
    {"mode": "shared"}, {"owner": "me"}])
def test_arguments_that_are_none(places, name, arguments):
    problem(look(places[0], name, **arguments), 400)
    problem(look(places[0], name, FREE, **arguments), 400)


def test_wait_has_an_upper_limit(start_gateway):
    """zk_lock_max_wait limits each kind of poll."""
    gateway = start_gateway(http="zk_lock_max_wait 300ms;")
    place = gateway, gateway.worker_pids()[0]
    holder = gateway.hold("x")
    tag = tag_of(look(place, "x"))
    for query in ({"tag": tag, "wait": "1h"}, {"tag": tag, "wait": "100d"}):
        same(gateway.in_reach(lambda: look(place, "x", **query)), tag)
    for query in ({"wait": "1h"}, {}):
        problem(gateway.in_reach(lambda: look(place, "x", until="free",
                                              **query)), 423)
    gateway.release("x", holder.token)


# until the lock is free

def test_free_already(places, name):
    for place in places:
        for query in ({}, {"wait": "0"}, {"wait": "1m"}):
            response = look(place, name, until="free", **query)
            assert response.status == 204 and response.body == b""
    # also if the lock had a znode
    places[0][0].release(name, places[0][0].hold(name).token)
    for place in places:
        assert look(place, name, until="free").status == 204


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("how", ["released", "expired", "deleted"])
def test_until_it_is(at, places, tree, name, where, how):
    """A waiter that leaves in between does not answer the polls."""
    gateway, worker = at["worker"]
    ttl = "900ms" if how == "expired" else "1h"
    holder = gateway.hold(name, worker=worker, ttl=ttl)
    polls = [begin(place, name, until="free", wait="1m") for place in places]
    if how != "expired":
        waiter = gateway.begin(name, worker=worker)
        tree.wait_claims(gateway.znode(name), 2)
        waiter.close()
        tree.wait_claims(gateway.znode(name), 1)
        wait(*polls)
    if how == "released":
        there, asked = at[where]
        assert there.release(name, holder.token, asked).status == 204
    elif how == "deleted":
        claim, = tree.claims(gateway.znode(name))
        tree.delete(gateway.znode(name) + "/" + claim)
    for poll in polls:
        assert poll.response(SOON).status == 204


def test_handed_over_is_not_free(places, tree, name):
    """The lock goes from holder to waiter, and is free only after the last."""
    gateway = places[0][0]
    holder = gateway.hold(name)
    waiters = []
    for each, worker in places:
        waiters.append(each.begin(name, worker=worker))
        tree.wait_claims(gateway.znode(name), 1 + len(waiters))
    polls = [begin(place, name, until="free", wait="1m") for place in places]
    token = holder.token
    for waiter in waiters:
        wait(*polls)
        assert gateway.release(name, token).status == 204
        token = waiter.response(SOON).token
    wait(*polls)
    gateway.release(name, token)
    for poll in polls:
        assert poll.response(SOON).status == 204


@pytest.mark.parametrize("use", [
    {"mode": "shared"}, {"mode": "member"},
    {"mode": "semaphore", "permits": 3}])
def test_last_of_several_holders(places, name, use):
    gateway = places[0][0]
    holders = [each.hold(name, worker=worker, **use)
               for each, worker in places[1:]]
    polls = [begin(place, name, until="free", wait="1m") for place in places]
    for holder in holders:
        wait(*polls)
        gateway.release(name, holder.token)
    for poll in polls:
        assert poll.response(SOON).status == 204


def test_not_free_in_time(places, name):
    """The refusal names the holder."""
    gateway = places[0][0]
    holder = gateway.hold(name, {"owner": "me", "data": {"a": 1}})
    for place in places:
        for query in ({"wait": "0"}, {"wait": "100ms"}):
            response = place[0].in_reach(
                lambda: look(place, name, until="free", **query))
            refusal = problem(response, 423)
            retry_after(response)
            assert refusal["holder"]["owner"] == "me"
            assert refusal["holder"]["data"] == {"a": 1}
            assert refusal["holder"]["fencing_token"] == holder.fencing
            assert "token" not in refusal["holder"]
    gateway.release(name, holder.token)


def test_until_free_by_default(start_gateway):
    """A poll without a wait waits for zk_lock_wait, as an acquire does."""
    gateway = start_gateway(http="zk_lock_wait 200ms;")
    holder = gateway.hold("x")
    place = gateway, None
    problem(gateway.in_reach(lambda: look(place, "x", until="free")), 423)
    gateway.release("x", holder.token)
    assert gateway.in_reach(
        lambda: look(place, "x", until="free")).status == 204


# polls and what happens meanwhile

@pytest.mark.parametrize("kind", ["tag", "free"])
@pytest.mark.parametrize("leave", ["close", "reset", "half_close"])
def test_polls_leave(proxied, foreign, kind, leave):
    """Clients leave in every way; the rest are answered, and no worker reads
    the lock when no poll is left.
    """
    proxy, here, there = proxied
    holder = there.hold("x", ttl="1h")
    places = [(here, worker) for worker in here.worker_pids()]
    tag = tag_of(first_look(places, "x"))
    query = {"until": "free"} if kind == "free" else {"tag": tag}
    polls = [begin(place, "x", wait="1m", **query)
             for place in places for _ in range(10)]
    wait(*polls)
    for poll in polls[::2]:
        getattr(poll, leave)()
    for poll in polls[::2]:
        if leave == "half_close":
            assert poll.closed_by_server(SOON)
    wait(*polls[1::2])
    there.release("x", holder.token)
    for poll in polls[1::2]:
        assert poll.response(SOON).status == (204 if kind == "free" else 404)

    # unlike a lease, this claim does not become durable meanwhile
    holder = foreign.make_claim(here.znode("x"))
    tag = tag_of(first_look(places, "x"))
    query = {"until": "free"} if kind == "free" else {"tag": tag}
    polls = [begin(place, "x", wait="1m", **query)
             for place in places for _ in range(10)]
    wait(*polls)
    for poll in polls:
        getattr(poll, leave)()
    for worker in here.worker_pids():
        here.connect(worker).close()
    before = lists(proxy, here)
    foreign.delete(holder)
    for place in places:
        assert look(place, "y").status == 404
    assert lists(proxy, here) == before


@pytest.mark.parametrize("kind", ["tag", "free"])
def test_http2(shared_pair, name, kind):
    """Many polls on the same connection; the client cancels some."""
    gateway = shared_pair[0]
    holder = gateway.hold(name)
    tag = tag_of(look((gateway, None), name))
    query, headers = (({"until": "free"}, {}) if kind == "free"
                      else ({}, {"If-None-Match": tag}))
    query["wait"] = "1m"
    connection = gateway.connect_http2()
    streams = [connection.send("GET", lock_path(name), query, headers)
               for _ in range(12)]
    assert connection.silent_for(0.2)
    for stream in streams[::3]:
        connection.cancel(stream)
    gateway.release(name, holder.token)
    for i, stream in enumerate(streams):
        if i % 3:
            response = connection.response(stream, SOON)
            assert response.status == (204 if kind == "free" else 404)
    connection.close()


@pytest.fixture
def proxied(start_gateway, start_proxy, zookeeper):
    """A proxy, a gateway behind the proxy, and a gateway without a proxy."""
    proxy = start_proxy(zookeeper)
    return (proxy,
            start_gateway(servers=proxy.address, session_timeout="60s",
                          wait_sessions=False), start_gateway())


def lists(proxy, gateway):
    """The reads of "x"; workers also list the gates, when a gate changes."""
    return proxy.lists[gateway.znode("x")]


def first_look(places, name):
    """The last place's answer, when the gateway has connected at each place."""
    for place in places:
        response = wait_until(lambda: [r for r in [look(place, name)]
                                       if r.status != 503], 20)[0]
    return response


@pytest.fixture
def sturdy(start_gateway):
    gateway = start_gateway(session_timeout="60s")
    return gateway


def polled(places):
    """Each place polls for a change of "x", and until "x" is free."""
    tag = tag_of(first_look(places, "x"))
    polls = [begin(place, "x", tag, wait="1m") for place in places]
    frees = [begin(place, "x", until="free", wait="1m") for place in places]
    wait(*polls, *frees)
    return tag, polls, frees


def test_reload(sturdy):
    """A worker that leaves answers the polls that wait, and then ends."""
    holder = sturdy.hold("x")
    places = [(sturdy, worker) for worker in sturdy.worker_pids()]
    tag, polls, frees = polled(places)
    old = sturdy.reload()
    assert all(alive(pid) for pid in old)
    sturdy.wait_served()
    assert sturdy.release("x", holder.token).status == 204
    for poll in polls:
        assert changed(poll.response(SOON), tag) == FREE
    for poll in frees:
        assert poll.response(SOON).status == 204
    wait_dead(old)


def test_worker_of_the_holder_dies(sturdy):
    """The polls at the other worker still hear of the release."""
    dead, other = sturdy.worker_pids()
    holder = sturdy.hold("x", worker=dead)
    tag = tag_of(look((sturdy, other), "x"))
    lost = begin((sturdy, dead), "x", tag, wait="1m")
    polls = [begin((sturdy, other), "x", tag, wait="1m"),
             begin((sturdy, other), "x", until="free", wait="1m")]
    wait(lost, *polls)
    kill(sturdy, dead)
    assert lost.closed_by_server(SOON)
    wait(*polls)
    assert tag_of(look((sturdy, other), "x")) == tag
    assert wait_until(lambda: sturdy.release(
        "x", holder.token, other).status != 503, 20)
    assert changed(polls[0].response(SOON), tag) == FREE
    assert polls[1].response(SOON).status == 204


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_connection_to_zookeeper_breaks(proxied, when):
    """When the connection is back, the polls hear what happened meanwhile."""
    proxy, here, there = proxied
    holder = there.hold("x", ttl="1h")
    places = [(here, worker) for worker in here.worker_pids()]
    tag, polls, frees = polled(places)
    if when == "before":
        there.release("x", holder.token)
        proxy.kill()
    else:
        proxy.refuse()
        proxy.kill()
        if when == "while":
            there.release("x", holder.token)
        proxy.listen()
        if when == "after":
            first_look(places, "x")
            there.release("x", holder.token)
    for poll, place in zip(polls, places):
        response = poll.response(20)
        if when == "before" and response.status == 503:
            # the poll's read of the lock was under way at the break
            response = first_look([place], "x")
        assert changed(response, tag) == FREE
    for poll in frees:
        assert poll.response(20).status in (
            (204, 503) if when == "before" else (204,))


def test_session_ends(start_gateway, start_proxy, zookeeper):
    """The next session watches the locks that the last session watched."""
    proxy = start_proxy(zookeeper)
    there = start_gateway()
    before = zookeeper.living_sessions()
    here = start_gateway(servers=proxy.address, session_timeout="2s",
                         wait_sessions=False)
    holder = there.hold("x", ttl="1h")
    places = [(here, worker) for worker in here.worker_pids()]
    tag, polls, frees = polled(places)
    ends = zookeeper.living_sessions() - before
    proxy.refuse()
    proxy.kill()
    wait_until(lambda: not ends & zookeeper.living_sessions(), 20)
    proxy.listen()
    first_look(places, "x")
    wait(*polls, *frees)
    there.release("x", holder.token)
    for poll in polls:
        assert changed(poll.response(20), tag) == FREE
    for poll in frees:
        assert poll.response(20).status == 204


def test_session_ends_while_many_locks_are_polled(start_gateway, start_proxy,
                                                  zookeeper):
    """The next session watches each of the locks."""
    proxy = start_proxy(zookeeper)
    there = start_gateway()
    before = zookeeper.living_sessions()
    here = start_gateway(servers=proxy.address, session_timeout="2s",
                         wait_sessions=False)
    place = here, here.worker_pids()[0]
    first_look([place], "x0")
    tokens, polls = {}, {}
    for name in ["x%d" % i for i in range(16)]:
        tokens[name] = there.hold(name, ttl="1h").token
        polls[name] = begin(place, name, until="free", wait="1m")
    wait(*polls.values())
    ends = zookeeper.living_sessions() - before
    proxy.refuse()
    proxy.kill()
    wait_until(lambda: not ends & zookeeper.living_sessions(), 20)
    proxy.listen()
    first_look([place], "x0")
    wait(*polls.values())
    for name, token in tokens.items():
        assert there.release(name, token).status == 204
    told = {name: poll.response(20).status for name, poll in polls.items()}
    assert told == dict.fromkeys(polls, 204)


def test_zookeeper_is_out_of_reach(proxied):
    """A new poll gets 503 when its time is over; a poll that waits waits on."""
    proxy, here, _ = proxied
    holder = here.hold("x", ttl="1h")
    place = here, here.worker_pids()[0]
    tag = tag_of(first_look([place], "x"))
    polls = [begin(place, "x", tag, wait="1m"),
             begin(place, "x", until="free", wait="1m")]
    wait(*polls)
    proxy.refuse()
    proxy.kill()
    for query in ({"tag": tag}, {"until": "free"}):
        problem(look(place, "x", wait="1s", **query), 503)
    wait(*polls)
    proxy.listen()
    wait_until(lambda: here.release("x", holder.token).status in (204, 410),
               20)
    assert changed(polls[0].response(20), tag) == FREE
    assert polls[1].response(20).status == 204


def test_change_while_it_is_looked_at(proxied, foreign):
    """The worker reads a long queue in several steps.  A claim that comes after
    the list, and before the last step, answers the poll all the same.
    """
    proxy, here, _ = proxied
    place = here, here.worker_pids()[0]
    line = [foreign.make_claim(here.znode("x")) for _ in range(LINE)]
    tag = tag_of(first_look([place], "x"))
    for _ in range(2):
        proxy.delay = 0.2
        before = lists(proxy, here)
        poll = begin(place, "x", tag, wait="1m")
        # the poll's watch is set, and the poll's own list is read
        wait_until(lambda: lists(proxy, here) >= before + 2)
        line.append(foreign.make_claim(here.znode("x")))
        new = changed(poll.response(20), tag)
        proxy.pass_on()
        assert tag_of(look(place, "x")) == new
        tag = new
    for claim in line:
        foreign.delete(claim)


# a chain of polls misses nothing

def test_polls_at_random(places, tree, name):
    """Each follower's last tag is the tag of the lock's last state."""
    dice = chance()
    gateway = places[0][0]
    polls = [[place, FREE, begin(place, name, FREE, wait="5m")]
             for place in places * 2]
    held, waiting = None, []
    for _ in range(60):
        each, worker = dice.choice(places)
        if held is None or dice.random() < 0.45:
            waiting.append(each.begin(name, worker=worker, wait="5m",
                                      ttl="1h"))
            tree.wait_claims(gateway.znode(name),
                             len(waiting) + (held is not None))
        elif waiting and dice.random() < 0.3:
            # the claim is gone before another claim takes the known number
            waiting.pop(dice.randrange(len(waiting))).close()
            tree.wait_claims(gateway.znode(name), len(waiting) + 1)
        else:
            each.release(name, held.token, worker)
            held = None
        if held is None and waiting:
            held = waiting.pop(0).response(SOON)
        for poll in polls:
            if not poll[2].silent_for(0):
                follow(poll, name)
    while held is not None:
        gateway.release(name, held.token)
        held = waiting.pop(0).response(SOON) if waiting else None
    deadline = time.monotonic() + 20
    for poll in polls:
        while poll[1] != FREE:
            assert time.monotonic() < deadline, poll
            follow(poll, name)


def follow(poll, name):
    place, tag, connection = poll
    response = connection.response(20)
    connection.close()
    poll[1] = changed(response, tag)
    poll[2] = begin(place, name, poll[1], wait="5m")


# the cost of polls

@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("counted"),
                    container_check=3600000).start()
    yield server
    server.stop()


@pytest.mark.parametrize("kind", ["tag", "free"])
def test_many_polls_look_once_a_change(proxied, foreign, kind):
    """No worker reads the lock between the changes.  A lease would become
    durable in the meantime, and that is a change.
    """
    proxy, here, _ = proxied
    holder = foreign.make_claim(here.znode("x"))
    places = [(here, worker) for worker in here.worker_pids()]
    tag = tag_of(first_look(places, "x"))
    query = {"until": "free"} if kind == "free" else {"tag": tag}
    polls = [begin(place, "x", wait="1m", **query)
             for place in places for _ in range(FOLLOWERS // 2)]
    wait(*polls)
    for place in places:
        look(place, "x")        # served after the earlier reads

    before = lists(proxy, here)
    wait(*polls)
    assert lists(proxy, here) == before, "polls that wait ask all the time"

    foreign.delete(holder)
    for poll in polls:
        assert poll.response(SOON).status == (204 if kind == "free" else 404)
    spent = lists(proxy, here) - before
    assert spent <= len(polls) + 2 * len(places), (
        "%d lists for %d polls" % (spent, len(polls)))


def test_handed_over_again_and_again_is_not_free(start_gateway, tree):
    """A worker that reads the claims may find that the first claim is gone."""
    gateway = start_gateway()
    holder = gateway.hold("x")
    places = [(gateway, worker) for worker in gateway.worker_pids()]
    polls = [begin(place, "x", wait="5m", until="free")
             for place in places for _ in range(FOLLOWERS // 2)]
    for _ in range(200):
        waiter = gateway.begin("x", wait="1m")
        tree.wait_claims(gateway.znode("x"), 2)
        gateway.release("x", holder.token)
        holder = waiter.response(SOON)
        assert holder.status == 201
    wait(*polls)
    gateway.release("x", holder.token)
    for poll in polls:
        assert poll.response(SOON).status == 204


def test_waiting_polls_cost_nothing(start_gateway, counted, connect_tree):
    """Polls cause no reads or writes, and a single watch for each worker."""
    tree = connect_tree(counted.address)
    # a worker without a write for a third of this time makes a transaction
    gateway = start_gateway(zookeeper=counted, session_timeout="2m")
    top = "/" + gateway.root.split("/")[1]
    holder = gateway.hold("x")
    places = [(gateway, worker) for worker in gateway.worker_pids()]
    tag = tag_of(look(places[0], "x"))
    polls = [begin(place, "x", tag, wait="1m")
             for place in places for _ in range(FOLLOWERS // 2)]
    wait(*polls)
    # a claim that is held for long becomes durable, which the polls notice, and
    # then the workers read and watch the claim
    claim, = wait_until(lambda: tree.durables(gateway.znode("x")), 20)
    wait_until(lambda: claim in counted.watched_paths(), 20)
    for place in places:
        look(place, "x")        # served after the earlier reads
    before = counted.transactions(), counted.reads(top)
    assert polls[0].silent_for(1.0)
    assert (counted.transactions(), counted.reads(top)) == before
    watched = counted.watched_paths()
    assert len(watched[gateway.znode("x")]) <= len(places)
    gateway.release("x", holder.token)
    for poll in polls:
        assert changed(poll.response(SOON), tag) == FREE
