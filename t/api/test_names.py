"""Names with slashes, and names that no znode can have.

The lock of "team/job" is the znode "team%2Fjob".  The name of that znode is
also a name of the lock, with "%25" for its "%".
"""

import hashlib
import itertools
import os
import re
import textwrap
from urllib.parse import quote

import pytest

from lib.checks import grant, problem
from lib.client import lock_path

PLAIN = "/locks/"
TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


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
            name.replace("%2F", "/"), name.replace("%2F", "%2F%2F"),
            "%2F" + name, "%252F" + name]


def hashed(name):
    """The znode of a name that no znode can have, as docs/interop.md says."""
    start = ""
    for c in name.decode(errors="surrogateescape"):
        code = ord(c)
        if (code < 0x20 or 0x7f <= code <= 0x9f or 0xd800 <= code <= 0xf8ff
                or code >= 0xfff0 or len((start + c).encode()) > 154):
            break
        start += c
    return start + "%sha1-" + hashlib.sha1(name).hexdigest()


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


def documented():
    """The function znode() of docs/interop.md."""
    with open(os.path.join(TOP, "docs", "interop.md")) as f:
        text = f.read()
    code, = re.findall(r"(?m)^    def znode.*\n(?:     .*\n)+", text)
    found = {"re": re, "hashlib": hashlib}
    exec(textwrap.dedent(code), found)
    return found["znode"]


@pytest.mark.parametrize("name", [
    "a", "/a//b/", "/", "a%2F%2Fb", "zookeeper", "/zookeeper", "\u9396" * 70,
    "\u9396" * 51 + "x" * 47 + "\u9396", "x" * 200, "x" * 201, "a/" * 50,
    "a/" * 60, "lock \U0001f512 it", "\ud7ff\uf900\uffef", "\ufff0",
    "a\x7f", "\xa0"])
def test_znodes_as_documented(gateway, tree, name):
    held = gateway.call("POST", PLAIN, body={"names": [name]})
    znode = documented()(name)
    assert len(tree.claims(gateway.znode(znode))) == 1, znode
    assert gateway.call("DELETE", PLAIN, headers={
        "Lock-Token": held.token}).status == 204


ODD = [
    "x" * 201, "n%2F" * 51 + "n", "\u9396" * 70, "lock \U0001f512 it",
    "\U0001f512", "zookeeper", "a%2F\x01", "private \ue000", "\uffff"]


@pytest.mark.parametrize("name", ODD)
def test_names_that_no_znode_has(gateway, tree, name):
    """The znode has the beginning and a hash; all calls take the full name."""
    znode = hashed(name.encode())
    shown = znode if "\x01" in name else name
    path = quote(name, safe="")
    response = acquire(gateway, path)
    content = grant(response, shown)
    claim, = tree.claims(gateway.znode(znode))
    data = tree.data("%s/%s" % (gateway.znode(znode), claim)).decode()
    assert ('"name":' in data) == (shown == name)
    assert gateway.call("GET", response.headers["Location"]).status == 200
    problem(acquire(gateway, path), 423)
    listed = gateway.call("GET", PLAIN + path).json
    assert listed["name"] == shown and len(listed["holders"]) == 1
    problem(gateway.call("POST", PLAIN, body={"names": [name],
                                              "wait": 0}), 423)
    # by the name of the znode a lock is shown, and never acquired
    other = PLAIN + quote(znode, safe="")
    assert gateway.call("GET", other).json["holders"]
    for answer in (gateway.call("POST", other),
                   gateway.call("POST", PLAIN, body={"names": [znode]})):
        problem(answer, 400, "%sha1-")
    release(gateway, path, content["token"])
    several = gateway.call("POST", PLAIN, body={"names": [name, "a", "z"]})
    assert [lock["name"] for lock in several.json["locks"]
            ].count(shown) == 1, several
    problem(acquire(gateway, path), 423)
    assert gateway.call("DELETE", PLAIN, headers={
        "Lock-Token": several.token}).status == 204
    assert tree.claims(gateway.znode(znode)) == []


def test_names_that_are_no_text(gateway, tree):
    path = "a%ffb"
    response = acquire(gateway, path)
    znode = hashed(b"a\xffb")
    grant(response, znode)
    assert len(tree.claims(gateway.znode(znode))) == 1
    problem(acquire(gateway, path), 423)
    release(gateway, path, response.token)


def test_names_with_quotes(gateway, tree):
    """The most bytes of a name that the claim data can have, each escaped."""
    name = '"' * 255 + "\\" * 257
    response = gateway.call("POST", PLAIN + quote(name), body={
        "owner": "o" * 255, "data": "d" * 1022})
    grant(response, name)
    holder, = gateway.call("GET", PLAIN + quote(name)).json["holders"]
    assert holder["owner"] == "o" * 255 and holder["data"] == "d" * 1022
    release(gateway, quote(name), response.token)
    # a longer name is not in the claim data, and so is not told
    response = acquire(gateway, quote(name + "x"))
    grant(response, hashed((name + "x").encode()))
    release(gateway, quote(name + "x"), response.token)


def test_length(gateway):
    """Each slash counts as the three characters of the znode's name."""
    path = "n%2F" * 50
    response = acquire(gateway, path)
    assert response.json["name"] == path
    release(gateway, path, response.token)


def test_one_lock_of_a_path_and_a_body(gateway, name):
    """Slashes in a row are one slash, wherever the name is."""
    double = name.replace("%2F", "%2F%2F")
    for text in double, double.replace("%2F", "/"), "/" + name, "%2F" + name:
        held = gateway.call("POST", PLAIN, body={"names": [text]})
        assert [lock["name"] for lock in held.json["locks"]] == [name]
        for path in [name] + others(name):
            problem(acquire(gateway, path), 423)
        problem(gateway.call("POST", PLAIN, body={
            "names": [text, name]}), 400, "twice")
        assert gateway.call("DELETE", PLAIN, headers={
            "Lock-Token": held.token}).status == 204


# what a decoding proxy sends

def test_tail_like_a_token(gateway, tree):
    """Behind a slash that was not escaped, 32 characters are a token."""
    digest = hashlib.md5(b"").hexdigest()
    for method in "POST", "LOCK", "UNLOCK":
        problem(gateway.call(method, PLAIN + "cache/" + digest), 400,
                "proxy", "%252F")
    for method in "GET", "PUT", "DELETE":
        problem(gateway.call(method, PLAIN + "cache/" + digest), 404, "%252F")
    for path in "cache%2F" + digest, "cache%252F" + digest:
        response = acquire(gateway, path)
        grant(response, "cache%2F" + digest)
        assert gateway.call("GET", PLAIN + path + "/" + response.token
                            ).status == 200
        release(gateway, path, response.token)
    held = acquire(gateway, "cache/more/" + digest[1:])
    grant(held, "cache%2Fmore%2F" + digest[1:])
    release(gateway, "cache/more/" + digest[1:], held.token)


def test_slash_at_the_end(gateway, name):
    for path in name + "/", name + "%2F/":
        problem(acquire(gateway, path), 400, "%2F", "%252F", "proxy")
    for path in name + "%2F", name + "%252F", name + "%2F%2F", name + "/%2F":
        response = acquire(gateway, path)
        grant(response, name + "%2F")
        assert gateway.call("DELETE", response.headers["Location"]
                            ).status == 204


@pytest.mark.parametrize("slash", ["%2F", "%252F", "/"])
def test_proxy_that_decodes(gateway, start_gateway, tree, name, slash):
    """proxy_pass with a URI sends the path decoded, with dots resolved."""
    proxy = start_gateway(server="""
        location /decoded/ { proxy_pass http://127.0.0.1:%d/locks/; }
        """ % gateway.port)
    path = "/decoded/" + name.replace("%2F", slash)
    response = proxy.call("POST", path)
    grant(response, name)
    problem(acquire(gateway, name), 423)
    assert proxy.call("PUT", path + "/" + response.token).status == 200
    assert proxy.call("DELETE", path, headers={
        "Lock-Token": response.token}).status == 204
    for sent, znode in ((slash + name, name), (name + slash * 2 + "x",
                                               name + "%2Fx")):
        response = proxy.call("POST", "/decoded/" + sent)
        grant(response, znode)
        release(gateway, znode, response.token)


def test_odd_names_through_a_proxy_that_decodes(gateway, start_gateway, name):
    """With "%252F" each name passes as it is."""
    proxy = start_gateway(server="""
        location /decoded/ { proxy_pass http://127.0.0.1:%d/locks/; }
        """ % gateway.port)
    for text in (name + "%2F", "a%2F..%2F" + name, ".%2F" + name, "%2F",
                 name + "%2F" + "0" * 32):
        response = proxy.call("POST", "/decoded/" + quote(text))
        grant(response, text)
        problem(gateway.call("POST", PLAIN + quote(text),
                             {"wait": "0"}), 423)
        release(gateway, quote(text), response.token)


def listed(gateway, **query):
    return sorted(lock["name"] for lock in gateway.call(
        "GET", PLAIN, query).json["locks"])


def test_prefix(gateway, name):
    """The prefix is written as a name is."""
    folder = name.partition("%2F")[0]
    locks = [folder, folder + "%2F", name, folder + "s%2Fjob",
             name + "%2Fx\U0001f512", name + "%2F" + "\u9396" * 70]
    tokens = [acquire(gateway, quote(lock, safe="")).token for lock in locks]
    assert listed(gateway, prefix=folder) == sorted(locks)
    for prefix in (folder + "/", folder + "%2F", "/" + folder + "//"):
        assert listed(gateway, prefix=prefix) == sorted(locks[1:3] + locks[4:])
    for prefix in name + "/x\U0001f512", name + "%2Fx\U0001f512":
        assert listed(gateway, prefix=prefix) == [locks[4]]
        assert listed(gateway, prefix=prefix, holders=1) == [locks[4]]
        assert listed(gateway, prefix=prefix, sort="since") == [locks[4]]
    assert listed(gateway, prefix=name + "/x\U0001f513") == []
    assert listed(gateway, prefix=name + "/" + "\u9396" * 55) == [locks[5]]
    assert listed(gateway, prefix=name + "/" + "\u9396" * 55 + "x") == []
    assert listed(gateway, prefix=hashed(locks[4].encode())) == [locks[4]]
    assert listed(gateway, prefix="/", limit=1000) == listed(gateway,
                                                             limit=1000)
    for lock, token in zip(locks, tokens):
        release(gateway, quote(lock, safe=""), token)


def test_full_names_of_lists(gateway, tree):
    """A full name is told if the hash is that of the znode."""
    names = ["\U0001f512" + str(i) for i in range(5)]
    tokens = [acquire(gateway, quote(lock)).token for lock in names]
    cursor = {}
    found = []
    while cursor is not None:
        page = gateway.call("GET", PLAIN, dict(cursor, limit=2,
                                               prefix="\U0001f512")).json
        found += [lock["name"] for lock in page["locks"]]
        cursor = {"after": page["next"]} if "next" in page else None
    assert sorted(found) == names
    znode = gateway.znode(hashed(names[0].encode()))
    claim, = tree.claims(znode)
    data = tree.data(znode + "/" + claim)
    other = names[0].replace("0", "9").encode()
    tree.client.set(znode + "/" + claim, data.replace(names[0].encode(), other))
    assert listed(gateway, prefix="%sha1-") == sorted(
        [znode.rpartition("/")[2]] + names[1:])
    for lock, token in zip(names, tokens):
        release(gateway, quote(lock), token)


def test_full_name_of_a_durable_claim(gateway, start_gateway, tree, name):
    """The claim data keep the name, whichever gateway writes them."""
    other = start_gateway(root=gateway.root)
    full = name + "\U0001f512"
    path = PLAIN + quote(full)
    token = gateway.call("POST", path, {"durable": "1", "ttl": "1h"}).token
    znode = gateway.znode(hashed(full.encode()))
    for there in other, gateway, other:
        answer = there.call("PUT", path, {"ttl": "2h"}, {"Lock-Token": token})
        assert (answer.status, answer.json["name"]) == (200, full)
        assert listed(there, prefix=full) == [full]
    claim, = tree.claims(znode)
    assert not tree.stat(znode + "/" + claim).ephemeralOwner
    assert other.call("DELETE", path, headers={
        "Lock-Token": token}).status == 204


def test_znodes_that_are_no_names(gateway, tree, name):
    """A list has no name that would be the name of another lock."""
    made = [gateway.znode(name.replace("%2F", "%2F%2F")), gateway.znode(name)]
    for znode in made:
        tree.client.create(znode + "/lock-", sequence=True, makepath=True)
    assert listed(gateway, prefix=name.partition("%2F")[0]) == [name]
    for znode in made:
        for child in tree.children(znode):
            tree.client.delete(znode + "/" + child)


def test_page(gateway, name):
    """The page of all locks has the znode's name."""
    response = acquire(gateway, name)
    page = gateway.call("GET", PLAIN, {"prefix": name}).json
    assert [lock["name"] for lock in page["locks"]] == [name]
    release(gateway, name, response.token)


def test_several_locks(gateway, name):
    """The names of a body may be those of the znodes."""
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
    """Slashes in a row are one slash, whether nginx merges them or not."""
    gateway = start_gateway(server="merge_slashes %s;" % merge)
    for path in "a%2Fb", "a%2F%2Fb", "a//b", "a%2F/b", "a/%2Fb", "a/b":
        response = acquire(gateway, path)
        assert response.json["name"] == "a%2Fb", path
        release(gateway, path, response.token)
    for path in "%2Fa%2Fb", "/a%2Fb":
        answer = acquire(gateway, path)
        if merge == "on":
            assert answer.json["name"] == "a%2Fb"
            release(gateway, "a%2Fb", answer.token)
        else:
            problem(answer, 400, "slash")


def test_rewrite(start_gateway, tree):
    """Behind a rewrite the path is decoded, too."""
    gateway = start_gateway(server="""
        location /v1/ { rewrite ^/v1/(.*)$ /locks/$1; }
        location /lockz/ { rewrite ^/lockz/(.*)$ /locks/$1; }
        """)
    for prefix in "/v1/", "/lockz/":
        for path, name in (("plain", "plain"), ("team%2Fjob", "team%2Fjob"),
                           ("team/job", "team%2Fjob"),
                           ("team%252Fjob", "team%2Fjob")):
            response = gateway.call("POST", prefix + path)
            assert response.json["name"] == name
            assert gateway.call("PUT", prefix + path + "/" + response.token
                                ).status == 200
            release(gateway, name, response.token)


def test_location_without_a_slash(start_gateway):
    gateway = start_gateway(server="location /bare { zk_lock_api; }")
    for path in "/bare/team%2Fjob", "/bare%2Fteam%2Fjob", "/bare/team/job":
        response = gateway.call("POST", path)
        assert response.json["name"] == "team%2Fjob"
        release(gateway, "team%2Fjob", response.token)
    assert gateway.call("POST", "/barely").status == 404
