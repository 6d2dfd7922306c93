"""GET of the location's own path lists the locks, page by page.

The list has a lock if a claim holds the lock or waits for the lock; whether the
lock has a znode does not matter.  The names come in the order of their bytes,
each with the lock's mode and the numbers of holders and waiters.  A page's
"next" leads to the names behind the page, whatever has changed meanwhile.
"""

import itertools
import re
import uuid

import pytest

from lib.checks import problem
from lib.process import wait_until

PATH = "/locks/"
CURSOR = re.compile(r"^[A-Za-z0-9_-]+$")
AT_ONCE = 200       # requests of a test that are under way


@pytest.fixture
def gateway(shared_pair):
    return shared_pair[0]


_prefixes = itertools.count()


@pytest.fixture
def prefix():
    """A prefix of lock names that only this test uses."""
    return "p%d." % next(_prefixes)


def page(gateway, worker=None, **query):
    """The JSON of a page; query has the arguments of the URL."""
    response = gateway.call("GET", PATH, query, worker=worker)
    assert response.status == 200, response
    assert (response.headers["Content-Type"].split(";")[0]
            == "application/json")
    content = response.json
    assert set(content) <= {"locks", "next"}, content
    names = [lock["name"].encode() for lock in content["locks"]]
    assert names == sorted(set(names))
    for lock in content["locks"]:
        assert lock["held"] > 0 and lock["queued"] >= 0
        assert lock["mode"]
    if "next" in content:
        assert CURSOR.match(content["next"])
    return content


def names_of(content):
    return [lock["name"] for lock in content["locks"]]


def pages(gateway, **query):
    """All pages, in their order."""
    content = page(gateway, **query)
    yield content
    while "next" in content:
        content = page(gateway, after=content["next"], **query)
        yield content


def everything(gateway, **query):
    return [name for content in pages(gateway, **query)
            for name in names_of(content)]


def make_many(tree, paths, **options):
    """Makes znodes, many at a time; the parents exist."""
    for i in range(0, len(paths), AT_ONCE):
        for made in [tree.client.create_async(path, b"", **options)
                     for path in paths[i:i + AT_ONCE]]:
            made.get(30)


def delete_many(tree, paths):
    for i in range(0, len(paths), AT_ONCE):
        for deleted in [tree.client.delete_async(path)
                        for path in paths[i:i + AT_ONCE]]:
            deleted.wait(30)


@pytest.fixture
def many(foreign):
    """A function that makes locks by hand, each with a claim."""
    made = []

    def make(gateway, names, layout="-lock-"):
        foreign.client.ensure_path(gateway.root)
        locks = [gateway.znode(name) for name in names]
        made.extend(locks)
        make_many(foreign, locks)
        if layout is not None:
            make_many(foreign, ["%s/_c_%s%s" % (lock, uuid.uuid4(), layout)
                                for lock in locks],
                      ephemeral=True, sequence=True)

    yield make
    for lock in made:
        for child in foreign.children(lock):
            foreign.delete(lock + "/" + child)
    delete_many(foreign, made)


# what a page is

def test_there_is_nothing(start_gateway, tree):
    """First the root does not exist, and then the root is empty."""
    gateway = start_gateway()
    assert tree.stat(gateway.root) is None
    for worker in gateway.worker_pids():
        assert page(gateway, worker) == {"locks": []}
    assert tree.stat(gateway.root) is None
    tree.make(gateway.root)
    for worker in gateway.worker_pids():
        assert page(gateway, worker) == {"locks": []}


def test_locks_come_and_go(shared_pair, prefix):
    here, there = shared_pair
    tokens = {}
    for i in (3, 1, 2):
        name = prefix + str(i)
        tokens[name] = here.hold(name).token
        for gateway in shared_pair:
            for worker in gateway.worker_pids():
                content = page(gateway, worker, prefix=prefix)
                assert content == {"locks": [
                    {"name": name, "mode": "exclusive", "held": 1,
                     "queued": 0} for name in sorted(tokens)]}
    for name in sorted(tokens):
        there.release(name, tokens.pop(name))
        for gateway in shared_pair:
            assert names_of(page(gateway, prefix=prefix)) == sorted(tokens)


def test_modes_and_counts(shared_pair, tree, prefix):
    here, there = shared_pair
    lines = {
        "exclusive": ["exclusive"] * 3,
        "shared": ["shared"] * 3 + ["write", "shared"],
        "write": ["write", "shared", "exclusive"],
        "semaphore": ["semaphore"] * 3,
        "member": ["member"] * 4,
    }
    told = {"exclusive": (1, 2), "shared": (3, 2), "write": (1, 2),
            "semaphore": (2, 1), "member": (4, 0)}
    waiters = []
    for name, modes in lines.items():
        for i, mode in enumerate(modes):
            query = {"mode": mode}
            if mode == "semaphore":
                query["permits"] = 2
            waiters.append(shared_pair[i % 2].begin(prefix + name, wait="1m",
                                                    **query))
            tree.wait_claims(here.znode(prefix + name), i + 1)
    for gateway in shared_pair:
        for worker in gateway.worker_pids():
            locks = page(gateway, worker, prefix=prefix)["locks"]
            assert locks == [dict(
                {"name": prefix + name, "mode": name, "held": told[name][0],
                 "queued": told[name][1]},
                **({"permits": 2} if name == "semaphore" else {}))
                for name in sorted(lines)]
    for waiter in waiters:
        waiter.close()
    for name in lines:
        for claim in tree.claims(here.znode(prefix + name)):
            tree.delete(here.znode(prefix + name) + "/" + claim)


def test_several_locks_are_listed(shared_pair, prefix):
    here, there = shared_pair
    names = [prefix + name for name in "abc"]
    response = here.call("POST", PATH, body={"names": names})
    assert everything(there, prefix=prefix) == names
    there.call("DELETE", PATH, headers={"Lock-Token": response.token})
    assert everything(here, prefix=prefix) == []


@pytest.mark.parametrize("before", [None, "lock-"])
def test_claims_by_hand_are_counted(shared_pair, foreign, prefix, before):
    here, _ = shared_pair
    claims = [foreign.make_claim(here.znode(prefix + "x"), before=before)
              for _ in range(3)]
    lock, = page(here, prefix=prefix)["locks"]
    assert (lock["mode"], lock["held"], lock["queued"]) == ("exclusive", 1, 2)
    for claim in claims:
        foreign.delete(claim)


def test_head(gateway, prefix):
    token = gateway.hold(prefix).token
    answer = gateway.call("HEAD", PATH, {"prefix": prefix})
    assert answer.status == 200 and answer.body == b""
    gateway.release(prefix, token)


def test_token_is_for_several(gateway):
    """A GET with a token is another call."""
    problem(gateway.call("GET", PATH, headers={"Lock-Token": 32 * "a"}), 404)


# what is no lock

def test_locks_without_claims(gateway, many, prefix):
    """The znodes of free locks stay for a while; no page lists them."""
    names = [prefix + "%02d" % i for i in range(40)]
    many(gateway, names, layout=None)
    assert page(gateway, prefix=prefix) == {"locks": []}
    token = gateway.hold(names[20]).token
    assert names_of(page(gateway, prefix=prefix)) == [names[20]]
    for limit in (1, 2, 40):
        assert everything(gateway, prefix=prefix,
                          limit=limit) == [names[20]]
    gateway.release(names[20], token)


def test_children_that_are_no_claims(gateway, foreign, prefix):
    lock = gateway.znode(prefix + "x")
    for child in ("config", "_c_", "lock", "0000000001"):
        foreign.make(lock + "/" + child)
    foreign.make(gateway.znode(prefix + "deep") + "/" + prefix + "deeper")
    claim = foreign.make_claim(gateway.znode(prefix + "deep") + "/deeper")
    assert page(gateway, prefix=prefix) == {"locks": []}
    token = gateway.hold(prefix + "x").token
    lock, = page(gateway, prefix=prefix)["locks"]
    assert (lock["name"], lock["held"]) == (prefix + "x", 1)
    gateway.release(prefix + "x", token)
    foreign.delete(claim)
    for name in ("x", "deep"):
        foreign.delete_tree(gateway.znode(prefix + name))


def test_names_that_cannot_be_asked_for(gateway, many, prefix):
    """A znode may have a name that no lock can have."""
    names = [prefix + 200 * "l", prefix + 300 * "l", prefix + "ok"]
    many(gateway, names)
    assert everything(gateway, prefix=prefix) == [prefix + "ok"]


def test_top_of_the_tree(start_gateway):
    """The root "/" has ZooKeeper's own znode in it, and foreign trees."""
    gateway = start_gateway(root="/")
    name = "top.%s" % uuid.uuid4()
    token = gateway.hold(name).token
    assert everything(gateway, prefix="top.") == [name]
    assert name in everything(gateway)
    assert "zookeeper" not in everything(gateway)
    gateway.release(name, token)


def test_chroot(start_gateway, zookeeper, tree, root):
    tree.make(root)
    gateway = start_gateway(servers=zookeeper.address + root, root="/",
                            zookeeper=None)
    wait_until(lambda: gateway.call("GET", PATH).status == 200)
    assert page(gateway) == {"locks": []}
    token = gateway.hold("x").token
    assert everything(gateway) == ["x"]
    gateway.release("x", token)


def test_roots_of_tenants(start_gateway, root):
    """Each tenant sees the locks of that tenant only."""
    here = start_gateway(root=root + "/a")
    there = start_gateway(root=root + "/b")
    tokens = here.hold("x").token, there.hold("y").token
    assert everything(here) == ["x"] and everything(there) == ["y"]
    here.release("x", tokens[0])
    there.release("y", tokens[1])


# prefixes, limits, cursors

def test_prefixes(gateway, many, prefix):
    ends = ["", "a", "aa", "ab", "b", "ä", "äö", "a b", "a%b", "\uffee"]
    names = sorted((prefix + "n" + end for end in ends), key=str.encode)
    many(gateway, names)
    assert everything(gateway, prefix=prefix) == names
    for end in ends + ["x", "aab", "a/b", "%", "*"]:
        begin = prefix + "n" + end
        expected = [name for name in names if name.startswith(begin)]
        for limit in (1, 3, 1000):
            assert everything(gateway, prefix=begin,
                              limit=limit) == expected, begin


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 16, 17, 40, 41, 1000])
def test_limits(gateway, many, prefix, limit):
    """Every page but the last is full."""
    names = [prefix + "%02d" % i for i in range(41)]
    many(gateway, names)
    contents = list(pages(gateway, prefix=prefix, limit=limit))
    assert [name for content in contents
            for name in names_of(content)] == names
    assert all(len(content["locks"]) == limit for content in contents[:-1])
    assert "next" not in contents[-1]
    assert len(contents) <= len(names) // limit + 1


def test_limit_that_is_not_said(gateway, many, prefix):
    names = [prefix + "%03d" % i for i in range(101)]
    many(gateway, names)
    contents = list(pages(gateway, prefix=prefix))
    assert [len(content["locks"]) for content in contents] == [100, 1]
    assert everything(gateway, prefix=prefix) == names


@pytest.mark.parametrize("query", [
    "limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=1.5",
    "limit=1&limit=2", "prefix=%00", "prefix=%0a", "prefix=%ff",
    "prefix=" + 201 * "a", "after=*", "after=" + 401 * "A", "after=a",
    "after=AA", "after=Lg", "after=YS9i", "after=", "wait=1s", "until=free",
    "x=1", "force=1"])
def test_refused_queries(shared_gateway, query):
    problem(shared_gateway.call("GET", PATH, query), 400)


def test_cursor_of_a_lock_that_is_gone(gateway, prefix):
    tokens = {prefix + name: gateway.hold(prefix + name).token
              for name in "abcd"}
    content = page(gateway, prefix=prefix, limit=2)
    assert names_of(content) == [prefix + "a", prefix + "b"]
    for name in "ab":
        gateway.release(prefix + name, tokens.pop(prefix + name))
    rest = page(gateway, prefix=prefix, limit=2, after=content["next"])
    assert names_of(rest) == [prefix + "c", prefix + "d"]
    for name, token in tokens.items():
        gateway.release(name, token)


def test_cursors_are_good_everywhere(shared_pair, many, prefix):
    names = [prefix + name for name in ("a b", "ö", "%2F", "\uffee", "-")]
    many(shared_pair[0], names)
    places = itertools.cycle([(gateway, worker) for gateway in shared_pair
                              for worker in gateway.worker_pids()])
    found, query = [], {}
    while query is not None:
        content = page(*next(places), prefix=prefix, limit=1, **query)
        found += names_of(content)
        query = ({"after": content["next"]} if "next" in content else None)
    assert found == sorted(names, key=str.encode)


# very many

def test_very_many(start_gateway, many):
    """The pages list each lock once, and in order, however long a page is."""
    gateway = start_gateway()
    names = ["n%04d" % i for i in range(3000)]
    many(gateway, names)
    for limit in (999, 1000):
        contents = list(pages(gateway, limit=limit))
        assert [name for content in contents
                for name in names_of(content)] == names
        assert [len(content["locks"]) for content in contents[:3]] == (
            [limit] * 3)
    assert everything(gateway, prefix="n29",
                      limit=30) == names[2900:]
    assert everything(gateway, prefix="n2999") == names[2999:]


def test_very_many_without_claims(start_gateway, many):
    """Pages may be empty then, and still lead to the next page."""
    gateway = start_gateway()
    names = ["n%04d" % i for i in range(4500)]
    many(gateway, names, layout=None)
    tokens = {name: gateway.hold(name).token
              for name in (names[0], names[2500], names[-1])}
    contents = list(pages(gateway))
    assert [name for content in contents
            for name in names_of(content)] == list(tokens)
    assert len(contents) <= 4
    for name, token in tokens.items():
        gateway.release(name, token)
    assert everything(gateway) == []


def test_all_that_stays_is_listed_once(start_gateway, many):
    """Other locks come and go between the pages."""
    gateway = start_gateway()
    names = ["n%03d" % i for i in range(300)]
    many(gateway, names[::3])
    found, tokens = [], {}
    for i, content in enumerate(pages(gateway, limit=10)):
        found += names_of(content)
        for name in (names[1 + 3 * i], names[298 - 3 * i]):
            if name not in tokens:
                tokens[name] = gateway.hold(name).token
            elif tokens[name]:
                gateway.release(name, tokens[name])
                tokens[name] = None
    assert len(found) == len(set(found))
    assert [name for name in found if name not in tokens] == names[::3]
    for name, token in tokens.items():
        if token:
            gateway.release(name, token)


def test_client_leaves(start_gateway, many):
    gateway = start_gateway()
    names = ["n%03d" % i for i in range(400)]
    many(gateway, names)
    for i in range(20):
        connection = gateway.connect()
        connection.send("GET", PATH, {"limit": "1000"})
        if i % 2:
            connection.reset()
        else:
            connection.close()
    assert everything(gateway, limit=1000) == names


# ZooKeeper

def all_list(gateway):
    """Waits, because a server that begins may serve connections late."""
    for worker in gateway.worker_pids():
        wait_until(lambda: gateway.call("GET", PATH, worker=worker).status
                   == 200, 30)


def test_zookeeper_does_not_answer(private_zookeeper, start_gateway):
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout="20s")
    token = gateway.hold("x", ttl="1h").token
    private_zookeeper.freeze()
    for worker in gateway.worker_pids():
        problem(gateway.call("GET", PATH, worker=worker), 503)
    private_zookeeper.thaw()
    all_list(gateway)
    assert everything(gateway) == ["x"]
    gateway.release("x", token)


def test_zookeeper_is_gone(private_zookeeper, start_gateway):
    """The gateway answers as soon as ZooKeeper is back."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout="20s")
    token = gateway.hold("x", ttl="1h").token
    private_zookeeper.kill()
    problem(gateway.call("GET", PATH), 503)
    private_zookeeper.start()
    all_list(gateway)
    assert everything(gateway) == ["x"]
    gateway.release("x", token)


def test_reload_meanwhile(start_gateway, many):
    """A worker that leaves still answers the requests that came before."""
    gateway = start_gateway()
    names = ["n%03d" % i for i in range(300)]
    many(gateway, names)
    connections = gateway.each_worker().values()
    for connection in connections:
        connection.send("GET", PATH, {"limit": "1000"})
    gateway.reload()
    for connection in connections:
        assert names_of(connection.response().json) == names
