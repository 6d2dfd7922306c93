"""Lists that answer questions: holders, owners, and the order of the answer.

`holders=1` tells of each lock's holders what a look at the lock tells.
`owner=TEXT` lists the locks that a claim of exactly this owner holds, page by
page.  `sort=since` and `sort=waiting` put the lock that has been held longest,
or the longest queue, first; "complete" says whether all locks were looked at.
"""

import itertools
import threading
import time
import uuid

import pytest
from kazoo.security import make_digest_acl

from lib.checks import problem
from lib.client import lock_path
from lib.process import wait_until

PATH = "/locks/"
AT_ONCE = 200       # requests of a test that are under way
NAMES_MAX = 10000   # names that a list with an owner or a sort looks at
SHOWN_MAX = 100     # holders that a list describes for a lock
SEARCHES = 4        # lists with holders that a worker makes at a time
HIDDEN = [make_digest_acl("stranger", "s", all=True)]
CURATOR = ["-lock-", "-__READ__", "-__WRIT__"]

_prefixes = itertools.count()


@pytest.fixture
def prefix():
    """A prefix of lock names that only this test uses."""
    return "l%d." % next(_prefixes)


def ask(gateway, worker=None, **query):
    response = gateway.call("GET", PATH, query, worker=worker)
    assert response.status == 200, response
    content = response.json
    assert set(content) <= {"locks", "next", "complete"}, content
    assert ("complete" in content) == ("sort" in query or "owner" in query)
    assert not ("next" in content and "sort" in query)
    assert len(content["locks"]) <= int(query.get("limit", 100))
    for lock in content["locks"]:
        assert lock["held"] > 0 and lock["queued"] >= 0 and lock["mode"]
        assert ("holders" in lock) == bool(query.get("holders",
                                                     "owner" in query))
    return content


def names_of(content):
    return [lock["name"] for lock in content["locks"]]


def pages(gateway, **query):
    content = ask(gateway, **query)
    yield content
    while "next" in content:
        content = ask(gateway, **dict(query, after=content["next"]))
        yield content


def everything(gateway, **query):
    return [name for content in pages(gateway, **query)
            for name in names_of(content)]


def everywhere(pair):
    return [(gateway, worker) for gateway in pair
            for worker in gateway.worker_pids()]


def owners(lock):
    return [holder.get("owner") for holder in lock["holders"]]


def timeless(holders):
    """The holders without what another moment changes."""
    for holder in holders:
        if "expires_in_ms" in holder:
            assert 0 <= holder.pop("expires_in_ms") <= holder["ttl_ms"]
    return holders


@pytest.fixture
def hold():
    """A function that holds locks until the test is over."""
    held = []

    def make(gateway, name, **query):
        query.setdefault("ttl", "1h")
        token = gateway.hold(name, **query).token
        held.append((gateway, name, token))
        return token

    yield make
    for gateway, name, token in held:
        assert gateway.release(name, token).status == 204


@pytest.fixture
def by_hand(foreign):
    """A function that makes locks with a claim each, or several."""
    made = []

    def make(gateway, names, owner=b"", claims=1, layout="-lock-"):
        foreign.client.ensure_path(gateway.root)
        locks = [gateway.znode(name) for name in names]
        new = [lock for lock in locks if lock not in made]
        made.extend(new)
        in_turns([lambda lock=lock: foreign.client.create_async(lock)
                  for lock in new])
        in_turns([lambda lock=lock: foreign.client.create_async(
            "%s/_c_%s%s" % (lock, uuid.uuid4(), layout), owner,
            ephemeral=True, sequence=True)
            for lock in locks for _ in range(claims)])

    yield make
    for lock in made:
        in_turns([lambda path=lock + "/" + child:
                  foreign.client.delete_async(path)
                  for child in foreign.children(lock)])
    in_turns([lambda lock=lock: foreign.client.delete_async(lock)
              for lock in made])


def in_turns(requests):
    for i in range(0, len(requests), AT_ONCE):
        for sent in [request() for request in requests[i:i + AT_ONCE]]:
            sent.get(30)


def next_second():
    """The times of grants are told in seconds."""
    now = int(time.time())
    wait_until(lambda: int(time.time()) != now, 5, "the next second")


# holders

def test_holders_are_those_of_a_look(shared_pair, tree, hold, prefix):
    """In every mode, at every worker, of claims of both gateways."""
    here, there = shared_pair
    hold(here, prefix + "alone", owner="me", ttl="1h",
         body={"data": {"a": [1]}})
    for i in range(3):
        hold(shared_pair[i % 2], prefix + "shared", mode="shared",
             owner="reader%d" % i)
        hold(shared_pair[i % 2], prefix + "seats", mode="semaphore",
             permits=3, owner="seat%d" % i)
        hold(shared_pair[i % 2], prefix + "members", mode="member")
    waiters = [there.begin(prefix + name, wait="1m", owner="waits")
               for name in ("alone", "shared")]
    for number, name in ((2, "alone"), (4, "shared")):
        tree.wait_claims(here.znode(prefix + name), number)
    for gateway, worker in everywhere(shared_pair):
        plain = ask(gateway, worker, prefix=prefix)
        assert names_of(plain) == [prefix + name for name in
                                   ("alone", "members", "seats", "shared")]
        assert plain == ask(gateway, worker, prefix=prefix, holders=0)
        content = ask(gateway, worker, prefix=prefix, holders=1)
        for before, lock in zip(plain["locks"], content["locks"]):
            look = gateway.inspect(lock["name"], worker=worker).json
            holders = lock.pop("holders")
            assert lock == before
            assert len(holders) == lock["held"]
            assert timeless(holders) == timeless(look["holders"])
    assert owners(ask(here, prefix=prefix, holders=1)["locks"][3]) == [
        "reader0", "reader1", "reader2"]
    for waiter in waiters:
        waiter.close()
    for number, name in ((1, "alone"), (3, "shared")):
        tree.wait_claims(here.znode(prefix + name), number)


def test_names_with_slashes(shared_gateway, hold, prefix):
    hold(shared_gateway, prefix + "team/job", owner="me")
    for query in ({"holders": 1}, {"owner": "me"}, {"sort": "since"}):
        content = ask(shared_gateway, prefix=prefix, **query)
        assert names_of(content) == [prefix + "team%2Fjob"]


def test_head(shared_gateway, hold, prefix):
    hold(shared_gateway, prefix, owner="me")
    for query in ("holders=1", "owner=me", "sort=since", "sort=waiting"):
        answer = shared_gateway.call("HEAD", PATH, query)
        assert answer.status == 200 and answer.body == b""


def test_locks_of_one_znode(start_gateway):
    gateway = start_gateway(
        server="location /nodes/ { zk_lock_api; zk_lock_layout node; }")
    problem(gateway.call("GET", "/nodes/", "owner=me"), 400, "no list")
    # the same root: a lock of one znode has no claims below
    token = gateway.call("POST", "/nodes/x", "owner=me").token
    assert everything(gateway, owner="me") == []
    gateway.call("DELETE", "/nodes/x", headers={"Lock-Token": token})


@pytest.mark.parametrize("query, words", [
    ("holders=2", ["1 or 0"]), ("holders=", ["1 or 0"]),
    ("holders=true", ["1 or 0"]), ("holders=1&holders=1", ["twice"]),
    ("sort=name", ["since", "waiting"]), ("sort=", ["since", "waiting"]),
    ("sort=sinc", ["since", "waiting"]), ("sort=Since", ["since"]),
    ("sort=since&after=eA", ["no pages", "after", "limit"]),
    ("sort=waiting&after=", ["no pages"]),
    ("owner=" + 256 * "x", ["255"]), ("owner=%00", ["control"]),
    ("owner=%ff", ["UTF-8"]), ("sort=since&limit=1001", ["1000"]),
    ("mode=shared", ["no place"])])
def test_refused_queries(shared_gateway, query, words):
    problem(shared_gateway.call("GET", PATH, query), 400, *words)


# owners

def test_owner(shared_pair, tree, hold, prefix):
    """Exactly this owner, of a holder, at any gateway."""
    here, there = shared_pair
    texts = ["host07", "host0", "host077", "HOST07", "a \"b\" 'c' \\",
             "Jürgen & Söhne +1 100%", "<b>x</b>", "日本", "🔒", None]
    for i, text in enumerate(texts):
        query = {} if text is None else {"owner": text}
        hold(shared_pair[i % 2], prefix + "n%02d" % i, **query)
    waiter = here.begin(prefix + "n01", owner="host07")
    tree.wait_claims(here.znode(prefix + "n01"), 2)
    for gateway, worker in everywhere(shared_pair):
        for i, text in enumerate(texts):
            content = ask(gateway, worker, prefix=prefix, owner=text or "")
            assert content["complete"] is True
            lock, = content["locks"]
            assert lock["name"] == prefix + "n%02d" % i
            assert owners(lock) == [text]
        assert ask(gateway, worker, prefix=prefix,
                   owner="host")["locks"] == []
    waiter.close()
    tree.wait_claims(here.znode(prefix + "n01"), 1)


def test_owner_among_others(shared_pair, hold, prefix):
    """Only this owner's claims are shown; held counts all."""
    here, _ = shared_pair
    for i, owner in enumerate(["a", "b", "a", "c", "b"]):
        hold(shared_pair[i % 2], prefix + "x", mode="shared", owner=owner)
    hold(here, prefix + "y", owner="c")
    for gateway, worker in everywhere(shared_pair):
        for owner, found in (("a", ["x"]), ("b", ["x"]), ("c", ["x", "y"])):
            content = ask(gateway, worker, prefix=prefix, owner=owner)
            assert names_of(content) == [prefix + name for name in found]
            for lock in content["locks"]:
                assert set(owners(lock)) == {owner}
            lock = content["locks"][0]
            assert lock["held"] == 5
            look = gateway.inspect(lock["name"]).json["holders"]
            assert [holder["fencing_token"] for holder in lock["holders"]] == [
                holder["fencing_token"] for holder in look
                if holder["owner"] == owner]
        content = ask(gateway, worker, prefix=prefix, owner="a", sort="since")
        assert owners(content["locks"][0]) == ["a", "a"]


def test_claims_of_other_clients(shared_pair, foreign, curator, prefix):
    """The owner of such a claim is the first line of its data."""
    here, _ = shared_pair
    kazoo = foreign.client.Lock(here.znode(prefix + "kazoo"), "a kazoo",
                                extra_lock_patterns=CURATOR)
    assert kazoo.acquire()
    client = curator.client()
    client.acquire("mutex", here.znode(prefix + "curator"))
    claim = foreign.make_claim(here.znode(prefix + "odd"),
                               data=b"\xff\xfe no text")
    for gateway, worker in everywhere(shared_pair):
        content = ask(gateway, worker, prefix=prefix, owner="a kazoo")
        assert names_of(content) == [prefix + "kazoo"]
        content = ask(gateway, worker, prefix=prefix, holders=1, sort="since")
        assert content["complete"] is True
        found = {lock["name"][len(prefix):]: lock for lock in content["locks"]}
        assert set(found) == {"kazoo", "curator", "odd"}
        assert owners(found["odd"]) == [None]
        for lock in found.values():
            look = gateway.inspect(lock["name"], worker=worker).json
            assert lock["holders"] == look["holders"]
            assert lock["holders"][0]["since"]
        owner, = owners(found["curator"])
        assert prefix + "curator" in everything(gateway, prefix=prefix,
                                                owner=owner)
    kazoo.release()
    client.release()
    foreign.delete(claim)


# what the gateway may not read

def test_claim_that_is_hidden(shared_gateway, foreign, hold, prefix):
    """The owner and the time of such a holder are not known."""
    gateway = shared_gateway
    hold(gateway, prefix + "b", owner="me")
    lock = gateway.znode(prefix + "a")
    foreign.client.ensure_path(lock)
    claim = foreign.client.create(lock + "/_c_%s-lock-" % uuid.uuid4(), b"me",
                                  ephemeral=True, sequence=True, acl=HIDDEN)
    content = ask(gateway, prefix=prefix, holders=1)
    assert names_of(content) == [prefix + "a", prefix + "b"]
    look = gateway.inspect(prefix + "a").json["holders"]
    assert content["locks"][0]["holders"] == look
    assert "owner" not in look[0] and "since" not in look[0]
    content = ask(gateway, prefix=prefix, sort="since")
    assert names_of(content) == [prefix + "b", prefix + "a"]
    assert content["complete"] is False
    for owner, found in (("me", [prefix + "b"]), ("", [])):
        content = ask(gateway, prefix=prefix, owner=owner)
        assert names_of(content) == found
        assert content["complete"] is False
    assert ask(gateway, prefix=prefix, sort="waiting")["complete"] is True
    foreign.delete(claim)


def test_lock_that_is_hidden(shared_gateway, foreign, hold, prefix):
    gateway = shared_gateway
    hold(gateway, prefix + "b", owner="me")
    foreign.client.create(gateway.znode(prefix + "a"), acl=HIDDEN)
    assert names_of(ask(gateway, prefix=prefix)) == [prefix + "b"]
    for query in ({"owner": "me"}, {"sort": "since"}, {"sort": "waiting"}):
        content = ask(gateway, prefix=prefix, **query)
        assert names_of(content) == [prefix + "b"]
        assert content["complete"] is False
        assert ask(gateway, prefix=prefix + "b",
                   **query)["complete"] is True
    foreign.delete(gateway.znode(prefix + "a"))


# the order

ROUNDS = [["d"], ["b", "e"], ["a"], ["c"]]
OLDEST_FIRST = [name for names in ROUNDS for name in names]


def held_longest(places, prefix):
    expected = [prefix + name for name in OLDEST_FIRST]
    for gateway, worker in places:
        content = ask(gateway, worker, prefix=prefix, sort="since", holders=1)
        assert names_of(content) == expected
        assert content["complete"] is True
        oldest = [min(holder["since"] for holder in lock["holders"])
                  for lock in content["locks"]]
        # the two locks of a round may be taken before and after a full second
        assert oldest == sorted(oldest) and len(set(oldest)) >= len(ROUNDS)
        for limit in range(1, 6):
            assert names_of(ask(gateway, worker, prefix=prefix, sort="since",
                                limit=limit)) == expected[:limit]
        content = ask(gateway, worker, prefix=prefix, sort="since",
                      owner="o1", holders=0)
        assert names_of(content) == [prefix + name for name in "bec"]
        content = ask(gateway, worker, prefix=prefix, sort="since",
                      owner="late")
        assert names_of(content) == [prefix + "c", prefix + "d"]


def test_held_longest(shared_gateway, hold, prefix):
    """The oldest holder counts, not the name; with an owner, that owner's."""
    gateway = shared_gateway
    for i, names in enumerate(ROUNDS):
        for name in names:
            hold(gateway, prefix + name, owner="o%d" % (i % 2), mode="shared")
        if names == ["c"]:
            hold(gateway, prefix + "c", owner="late", mode="shared")
        next_second()
    hold(gateway, prefix + "d", owner="late", mode="shared")
    held_longest(everywhere([gateway]), prefix)


def test_held_longest_by_other_clients(shared_pair, by_hand, prefix):
    """Every gateway tells the same times of claims that no gateway made."""
    here, _ = shared_pair
    for i, names in enumerate(ROUNDS):
        by_hand(here, [prefix + name for name in names], b"o%d" % (i % 2),
                layout="-__READ__")
        if names == ["c"]:
            by_hand(here, [prefix + "c"], b"late", layout="-__READ__")
        next_second()
    by_hand(here, [prefix + "d"], b"late", layout="-__READ__")
    held_longest(everywhere(shared_pair), prefix)


def test_longest_queue(shared_pair, by_hand, prefix):
    here, _ = shared_pair
    claims = {"a": 2, "b": 5, "c": 1, "d": 5, "e": 3, "f": 2}
    for name, number in claims.items():
        by_hand(here, [prefix + name], claims=number)
    for gateway, worker in everywhere(shared_pair):
        content = ask(gateway, worker, prefix=prefix, sort="waiting")
        assert [(lock["name"][len(prefix):], lock["queued"])
                for lock in content["locks"]] == [
            ("b", 4), ("d", 4), ("e", 2), ("a", 1), ("f", 1), ("c", 0)]
        assert content["complete"] is True
        content = ask(gateway, worker, prefix=prefix, sort="waiting",
                      holders=1, limit=3)
        assert names_of(content) == [prefix + name for name in "bde"]
        assert all(len(lock["holders"]) == 1 for lock in content["locks"])


def test_nothing_to_sort(start_gateway):
    gateway = start_gateway()
    for query in ({"sort": "since"}, {"sort": "waiting"}, {"owner": "me"}):
        assert ask(gateway, **query) == {"locks": [], "complete": True}


# very many

def test_very_many(start_gateway, by_hand):
    """2000 locks of two owners: each once, in order, on pages of any length;
    sorted, the first of all.
    """
    gateway = start_gateway(location="zk_lock_timeout 20s;")
    names = ["n%04d" % i for i in range(2000)]
    by_hand(gateway, names[::2], b"even")
    by_hand(gateway, names[1::2], b"odd")
    by_hand(gateway, ["n1234x"], b"rare", claims=3)
    assert everything(gateway, holders=1, limit=1000) == sorted(
        names + ["n1234x"])
    for limit in (1000, 333):
        found = list(pages(gateway, owner="odd", limit=limit))
        assert [name for content in found
                for name in names_of(content)] == names[1::2]
        assert all(owners(lock) == ["odd"] for content in found
                   for lock in content["locks"])
        assert len(found) <= 1000 // limit + 1
    for limit in (1, 100):
        found = list(pages(gateway, owner="rare", limit=limit))
        assert names_of(found[0]) == ["n1234x"]
        assert [content["locks"] for content in found[1:]] in ([], [[]])
    content = ask(gateway, sort="waiting", limit=10)
    assert names_of(content)[0] == "n1234x" and content["complete"]
    content = ask(gateway, sort="since", limit=1000, holders=1)
    since = [lock["holders"][0]["since"] for lock in content["locks"]]
    assert len(since) == 1000 and since == sorted(since)
    assert content["complete"] is True


def test_more_names_than_are_looked_at(start_gateway, foreign, by_hand, hold):
    """A sorted list says that it lacks some; the pages lead to all."""
    gateway = start_gateway(location="zk_lock_timeout 60s;")
    names = ["n%05d" % i for i in range(NAMES_MAX + 1)]
    by_hand(gateway, names, claims=0)
    for name in (names[0], names[NAMES_MAX - 1], names[-1]):
        hold(gateway, name, owner="me")
    for sort in ("since", "waiting"):
        content = ask(gateway, sort=sort)
        assert names_of(content) == [names[0], names[NAMES_MAX - 1]]
        assert content["complete"] is False
        content = ask(gateway, sort=sort, prefix="n0")
        assert content["complete"] is True
    contents = list(pages(gateway, owner="me"))
    assert [names_of(content) for content in contents] == [
        [names[0], names[NAMES_MAX - 1]], [names[-1]]]
    assert all(content["complete"] for content in contents)


def test_more_holders_than_are_described(start_gateway, by_hand):
    """A page ends early then, and a sorted list has fewer locks: the small
    locks do not come in the place of the large locks in front.
    """
    gateway = start_gateway(location="zk_lock_timeout 60s;")
    large = ["n%02d" % i for i in range(81)]
    small = ["z%02d" % i for i in range(40)]
    by_hand(gateway, large[:1], b"me", SHOWN_MAX // 2, "-__READ__")
    by_hand(gateway, large[1:], b"me", SHOWN_MAX + 10, "-__READ__")
    by_hand(gateway, small, b"me")
    for query in ({"holders": 1}, {"owner": "me"}):
        contents = list(pages(gateway, limit=1000, **query))
        assert [name for content in contents
                for name in names_of(content)] == large + small
        assert len(contents) == 3
        for lock in contents[0]["locks"][1:]:
            assert lock["held"] == SHOWN_MAX + 10
            assert len(lock["holders"]) == SHOWN_MAX
    content = ask(gateway, sort="waiting", holders=1, limit=1000)
    assert names_of(content) == large[:40] and content["complete"] is True
    content = ask(gateway, sort="waiting", limit=1000)
    assert names_of(content) == large + small


def test_more_holders_than_are_read(shared_gateway, by_hand, prefix):
    """What the holders behind the first 1000 own is not known."""
    gateway = shared_gateway
    by_hand(gateway, [prefix], b"me", 1001, "-__READ__")
    lock, = ask(gateway, prefix=prefix, holders=1)["locks"]
    assert lock["held"] == 1001 and len(lock["holders"]) == SHOWN_MAX
    for query in ({"owner": "me"}, {"owner": "you"}, {"sort": "since"}):
        assert ask(gateway, prefix=prefix, **query)["complete"] is False
    assert ask(gateway, prefix=prefix, sort="waiting")["complete"] is True


# changes meanwhile

def test_locks_that_change_hands(shared_pair, prefix):
    """Claims vanish between the list and the read; each answer is sound, and
    the lock that stays is in each answer.
    """
    here, there = shared_pair
    token = here.hold(prefix + "stays", owner="me", ttl="1h").token
    over = threading.Event()

    def work(gateway, name):
        with gateway.connect() as connection:
            while not over.is_set():
                held = connection.request("POST", lock_path(prefix + name),
                                          {"owner": "me"})
                assert held.status == 201
                connection.request("DELETE", lock_path(prefix + name),
                                   headers={"Lock-Token": held.token})

    threads = [threading.Thread(target=work, args=(gateway, name))
               for gateway in shared_pair for name in ("a", "b", "z")]
    for thread in threads:
        thread.start()
    try:
        for gateway, worker in 25 * everywhere(shared_pair):
            for query in ({"holders": 1}, {"owner": "me"},
                          {"sort": "since", "holders": 1}):
                content = ask(gateway, worker, prefix=prefix, **query)
                assert prefix + "stays" in names_of(content)
                for lock in content["locks"]:
                    assert set(owners(lock)) <= {"me"}
    finally:
        over.set()
        for thread in threads:
            thread.join()
    here.release(prefix + "stays", token)


def test_clients_leave(start_gateway, by_hand):
    """A list whose client has left gives its turn back."""
    gateway = start_gateway(workers=1)
    names = ["n%03d" % i for i in range(400)]
    by_hand(gateway, names, b"me")
    for i in range(10 * SEARCHES):
        connection = gateway.connect()
        connection.send("GET", PATH, [{"holders": "1", "limit": "1000"},
                                      {"owner": "me"}, {"sort": "since"},
                                      {"sort": "waiting"}][i % 4])
        if i // 4 % 2:
            connection.reset()
        else:
            connection.close()
    assert everything(gateway, holders=1, limit=1000) == names


def test_many_at_once(start_gateway, by_hand):
    """The lists that have no turn at once are answered, too."""
    gateway = start_gateway(workers=1, location="zk_lock_timeout 20s;")
    names = ["n%03d" % i for i in range(200)]
    by_hand(gateway, names, b"me")
    connections = [gateway.connect() for _ in range(5 * SEARCHES)]
    for connection in connections:
        connection.send("GET", PATH, {"owner": "me", "limit": "1000"})
    for connection in connections:
        assert names_of(connection.response().json) == names


def test_reload_meanwhile(start_gateway, by_hand):
    """A worker that leaves still answers the requests that came before."""
    gateway = start_gateway()
    names = ["n%03d" % i for i in range(300)]
    by_hand(gateway, names, b"me")
    connections = gateway.each_worker().values()
    for connection in connections:
        connection.send("GET", PATH, {"owner": "me", "limit": "1000"})
    gateway.reload()
    for connection in connections:
        assert names_of(connection.response().json) == names


# ZooKeeper

QUESTIONS = ({"holders": "1"}, {"owner": "me"}, {"sort": "since"},
             {"sort": "waiting"})


def answered(gateway, query, worker=None):
    """Waits until ZooKeeper is in reach; the list has the lock "x"."""
    answer = wait_until(lambda: [
        answer for answer in [gateway.call("GET", PATH, query, worker=worker)]
        if answer.status == 200], 30)[0]
    assert names_of(answer.json) == ["x"]


def test_zookeeper_does_not_answer(private_zookeeper, start_gateway):
    """More lists than have turns wait: each is told why."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, workers=1,
                            session_timeout="20s",
                            location="zk_lock_timeout 2s;")
    worker, = gateway.worker_pids()
    token = gateway.hold("x", ttl="1h", owner="me").token
    answered(gateway, {"owner": "me"})
    connections = [gateway.connect() for _ in range(SEARCHES + 2)]
    # the worker hears of all questions before it knows of the silence
    with gateway.frozen_worker(worker):
        private_zookeeper.freeze()
        for i, connection in enumerate(connections):
            connection.send("GET", PATH, QUESTIONS[i % 4])
    details = [problem(connection.response(), 503)["detail"]
               for connection in connections]
    assert sum("out of reach" in detail for detail in details) == SEARCHES
    assert sum("at a time" in detail for detail in details) == 2
    private_zookeeper.thaw()
    for query in QUESTIONS:
        answered(gateway, query)
    gateway.release("x", token)


def test_zookeeper_is_gone(private_zookeeper, start_gateway):
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout="20s",
                            location="zk_lock_timeout 1s;")
    token = gateway.hold("x", ttl="1h", owner="me").token
    private_zookeeper.kill()
    for query in QUESTIONS:
        problem(gateway.call("GET", PATH, query), 503)
    private_zookeeper.start()
    for worker in gateway.worker_pids():
        answered(gateway, {"owner": "me"}, worker)
    gateway.release("x", token)


def test_connections_that_break(start_gateway, start_proxy, zookeeper,
                                by_hand):
    """A list begins again what had no answer, and lacks no lock."""
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout="20s", workers=1)
    gateway.wait_served()
    names = ["n%04d" % i for i in range(1000)]
    by_hand(gateway, names, b"me")
    for _ in range(5):
        connection = gateway.connect()
        connection.send("GET", PATH, {"owner": "me", "limit": "1000"})
        proxy.kill()
        response = connection.response()
        assert response.status == 200, response
        found = names_of(response.json)
        assert found == names[:len(found)]
        assert ("next" in response.json) == (len(found) < len(names))
