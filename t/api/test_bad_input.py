"""Invalid requests get a refusal with a reason, and leave nothing behind.

Each line of the tables is a request that the gateway has to refuse, with the
code that the API has for the mistake and a text that helps.  After all of the
requests the first workers still serve, the log has no alert, and ZooKeeper has
no new znode.
"""

import json
import random
import re
import string
from urllib.parse import unquote

import pytest

from lib.checks import problem
from lib.client import Gone, encode, lock_path

BODY_MAX = 8192
MASKED = "x" * 32
TOKEN = re.compile("[A-Za-z0-9_-]{32}")


@pytest.fixture(scope="module")
def gateway(shared_gateway, tree):
    workers = set(shared_gateway.worker_pids())
    yield shared_gateway
    assert set(shared_gateway.worker_pids()) == workers
    assert tree.ephemerals(shared_gateway.root) == {}


@pytest.fixture(scope="module")
def taken(gateway):
    """A lock that the test holds; the fixture gives the token."""
    response = gateway.hold("taken", ttl="1h")
    yield response.token
    assert gateway.release("taken", response.token).status == 204


# names

@pytest.mark.parametrize("name", ["%00", "a%00"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_names_that_nginx_refuses(gateway, tree, method, name):
    before = set(tree.children(gateway.root))
    assert gateway.call(method, "/locks/" + name).status == 400
    assert set(tree.children(gateway.root)) <= before


@pytest.mark.parametrize("name", [
    "%01", "a%1f", "%7f", "%c2%80", "%c2%9f",
    "%ee%80%80", "%ef%a3%bf", "%ef%bf%b0", "%ef%bf%bf",
    "%f0%9f%94%92",
    "%ff", "%c3", "%c3%28", "%80", "a%c0%80", "%ed%a0%80", "%f8%88%80%80%80",
    "zookeeper", "n" * 201, "%41" * 201, "%e2%82%ac" * 67])
def test_names_that_no_znode_has(gateway, tree, name):
    """Each has a lock, whose znode has a name that ZooKeeper takes."""
    path = "/locks/" + name
    response = gateway.call("POST", path, {"wait": "0"})
    assert response.status == 201, response
    assert gateway.call("GET", path).json["name"] == response.json["name"]
    problem(gateway.call("DELETE", path), 400, "token")
    problem(gateway.call("POST", path, {"wait": "0"}), 423)
    assert gateway.call("DELETE", response.headers["Location"]).status == 204


@pytest.mark.parametrize("path", [
    "/locks/", "/locks/./", "/locks/%2e", "/locks/a/%2e%2e/", "/locks/%2e%2e",
    "/locks/%2f", "/locks/a/" + "t" * 32, "/locks/a/b/" + "t" * 32,
    "/locks/a/" + "t" * 9000, "/locks/%2e%2e%2flocks%2f", "/locks/a/"])
def test_paths_that_are_no_name(gateway, tree, path):
    before = set(tree.children(gateway.root))
    response = gateway.call("POST", path)
    assert response.status in (400, 404, 405, 414, 501), response
    assert set(tree.children(gateway.root)) <= before


@pytest.mark.parametrize("method", ["POST", "GET", "PUT", "DELETE"])
@pytest.mark.parametrize("path", [
    "/locks/.", "/locks/%2e", "/locks/%2E", "/locks/./", "/locks/./x",
    "/locks/x/..", "/locks/x/%2e%2e", "/locks/x/.%2E/", "/locks/x/../y",
    "/locks/../locks/x", "/locks/%2e%2e/locks/x"])
def test_dots_are_no_name(gateway, method, path):
    """nginx resolves the dots, and the path is still within the location."""
    problem(gateway.call(method, path), 400, '"."', '".."', "%252F")


@pytest.mark.parametrize("path", ["/locks/..", "/locks/%2e%2e", "/locks/.%2E/"])
def test_dots_that_lead_out_of_the_location(gateway, path):
    """The path is "/" then, so nginx itself answers."""
    assert gateway.call("GET", path).status == gateway.call("GET", "/").status
    assert "json" not in gateway.call("POST", path).headers["Content-Type"]


def test_dots_that_the_client_has_resolved(gateway):
    problem(gateway.call("POST", "/locks/"), 400, '"."', '"names"')


@pytest.mark.parametrize("method", ["POST", "LOCK", "UNLOCK"])
@pytest.mark.parametrize("path", ["team/", "team/" + "t" * 32])
def test_what_a_decoded_slash_may_be(gateway, method, path):
    content = problem(gateway.call(method, "/locks/" + path), 400, "%2F",
                      "%252F", "proxy")
    assert "Allow" not in content["detail"]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("path", [
    "/locks/a%2F..%2Fb", "/locks/a%2F.%2Fb", "/locks/a%2f%2e%2e%2fb",
    "/locks/.%2Fa", "/locks/a%2F..", "/locks/a%2F.", "/locks/a%2F../b",
    "/locks/a/..%2Fb", "/locks/a%2F../../locks/b", "/locks/..%2Flocks%2Fb",
    "/x%2F../locks/a", "/locks/%2F..%2Flocks%2Fb"])
def test_dots_between_escaped_slashes(gateway, tree, method, path):
    """nginx has resolved the dots."""
    before = set(tree.children(gateway.root))
    problem(gateway.call(method, path), 400, "%252F")
    assert set(tree.children(gateway.root)) <= before


@pytest.mark.parametrize("names", [["."], ["a", ".."], ["/.", "b"]])
def test_dots_in_names_of_several_locks(gateway, names):
    problem(gateway.call("POST", "/locks/", body={"names": names}), 400,
            '".."')


@pytest.mark.parametrize("method, status", [
    ("GET", 404), ("PUT", 400), ("DELETE", 400)])
def test_calls_of_a_name_with_a_slash(gateway, method, status):
    """What does not look like a token belongs to the name."""
    problem(gateway.call(method, "/locks/team/job"), status,
            "" if status == 404 else "token")


# tokens

def flips(token):
    """The token with a single character changed, for each of its characters."""
    alphabet = string.ascii_letters + string.digits + "-_"
    for i, c in enumerate(token):
        other = alphabet[(alphabet.index(c) + 1) % len(alphabet)]
        yield token[:i] + other + token[i + 1:]


def wrong_tokens(token):
    generator = random.Random(1)
    alphabet = string.ascii_letters + string.digits + "-_"
    yield from (token[:i] for i in range(1, len(token), 5))
    yield from (token + "A", token + token, token * 20, token.swapcase(),
                token[::-1], "0", "-", "_", "x" * 8000, "%00", "%ff",
                token[:-1] + "%0a", token + "%20", "a%20b", "..%2e",
                "\u00e4".encode().hex(), "=" * 32, "+" * 32)
    for _ in range(20):
        yield "".join(generator.choice(alphabet) for _ in token)
    yield from flips(token)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_tokens_that_are_none(gateway, taken, method):
    with gateway.connect() as connection:
        for wrong in wrong_tokens(taken):
            if "%00" in wrong:
                continue
            response = connection.request(method, lock_path("taken", wrong))
            if method == "GET" or TOKEN.fullmatch(unquote(wrong, "latin-1")):
                problem(response, 404)
            else:
                problem(response, 400, "token")     # this belongs to the name
            if "%" in wrong:
                continue
            response = connection.request(method, lock_path("taken"),
                                          headers={"Lock-Token": wrong})
            problem(response, 404)
    assert gateway.inspect("taken", taken).json["state"] == "held"


def test_token_with_a_zero_byte(gateway, taken):
    response = gateway.call("GET", "/locks/taken/%00")
    assert response.status == 400
    assert gateway.inspect("taken", taken).status == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_token_of_another_lock(gateway, taken, method):
    other = gateway.hold("other")
    for name, token in (("other", taken), ("taken", other.token),
                        ("nobodys", taken), ("Taken", taken)):
        for worker in gateway.worker_pids():
            response = gateway.call(method, lock_path(name, token),
                                    worker=worker)
            problem(response, 404)
    assert gateway.inspect("taken", taken).json["state"] == "held"
    assert gateway.release("other", other.token).status == 204


def test_token_in_header_with_odd_bytes(gateway, taken):
    for odd in ("", " ", "\xff" * 32, taken + ";", '"%s"' % taken,
                "<%s>" % taken, taken + ", " + taken, "\x01"):
        response = gateway.call("DELETE", lock_path("taken"),
                                headers={"Lock-Token": odd})
        assert response.status in (400, 404), (odd, response)
    assert gateway.inspect("taken", taken).json["state"] == "held"


def test_two_tokens(gateway, taken):
    """The path and the header have different tokens, or two headers do."""
    response = gateway.call("DELETE", lock_path("taken", taken),
                            headers={"Lock-Token": MASKED})
    assert response.status in (400, 404), response
    with gateway.connect() as connection:
        connection.send_bytes(
            b"DELETE /locks/taken HTTP/1.1\r\nHost: a\r\n"
            b"Lock-Token: %s\r\nLock-Token: %s\r\n\r\n"
            % (MASKED.encode(), MASKED.encode()), "DELETE")
        assert connection.response().status in (400, 404)
    assert gateway.inspect("taken", taken).json["state"] == "held"


def test_release_without_a_token(gateway, taken):
    problem(gateway.call("DELETE", lock_path("taken")), 400, "Lock-Token")
    problem(gateway.call("DELETE", lock_path("free")), 400, "Lock-Token")
    problem(gateway.call("PUT", lock_path("taken")), 400, "Lock-Token")


# arguments

BAD_DURATIONS = [
    "", "s", "ms", "x", "-1", "-1s", "+1s", "1 s", " 1s", "1s ", "1S", "1MS",
    "1w", "1e3", "0x10", "1.", ".5", "1.5ms", "1.2345s", "1,5s", "1s1s",
    "10ss", "99999999999999999999", "9" * 400, "1m30s", "NaN", "inf",
    "315360001", "3651d", "\u0661s", "1\u00a0s"]


@pytest.mark.parametrize("argument", ["wait", "ttl"])
@pytest.mark.parametrize("text", BAD_DURATIONS)
def test_durations(gateway, argument, text):
    problem(gateway.call("POST", lock_path("x"), {argument: text}), 400,
            argument)
    problem(gateway.acquire("x", {argument: text}), 400, argument)


@pytest.mark.parametrize("argument", ["wait", "ttl"])
@pytest.mark.parametrize("value", [
    "-1", "1e3", "1.2345", "99999999999999999999", "1e400", "true", "null",
    "[]", "{}", "[1]", '{"s":1}', "-0.5", "1E2"])
def test_durations_in_json(gateway, argument, value):
    body = ('{"%s":%s}' % (argument, value)).encode()
    response = gateway.acquire("x", body, {"Content-Type":
                                           "application/json"})
    if response.status == 201:
        gateway.release("x", response.token)
        pytest.fail("granted with %s" % body)
    problem(response, 400)


@pytest.mark.parametrize("preference", [
    "wait=", "wait=x", "wait=-1", "wait=1.5", "wait=99999999999999999999",
    "wait", "wait=1;wait=2", "=", ";;,,", "wait=\"1\"", "foo=bar", "",
    "x" * 3000])
def test_preferences(gateway, preference):
    """The gateway ignores or refuses a preference that makes no sense."""
    response = gateway.acquire("x", headers={"Prefer": preference})
    if response.status != 201:
        problem(response, 400)
    else:
        gateway.release("x", response.token)


@pytest.mark.parametrize("query", [
    "foo=1", "foo", "=", "=1", "Wait=1s", "wait=1s&wait=2s", "ttl=1s&ttl=1s",
    "wait=1s&foo=2", "wait=%", "wait=%1", "wait=%zz", "%77ait=1s%00",
    "owner=%ff", "owner=%00", "owner=%0a", "owner=a%0d%0aX-Evil:%201",
    "owner=%c3", "owner=%ed%a0%80", "owner=" + "x" * 256,
    "owner=a&owner=b", "data=%7b", "data=x", "data={}{}", "data=",
    "mode=", "mode=exclusiv", "mode=EXCLUSIVE", "mode=" + "x" * 100,
    "mode=exclusive&mode=exclusive", "token=" + MASKED, "wait", "ttl",
    "&".join("a%d=1" % i for i in range(300)), "foo[]=1", "wait[]=1s",
    "until=never", "force=2", "permits=1", "ttl=1s;wait=1s"])
def test_queries(gateway, query):
    response = gateway.call("POST", lock_path("x"), query)
    if response.status == 201:
        gateway.release("x", response.token)
        pytest.fail("granted with " + query)
    problem(response, 400)


def test_refusal_names_the_culprit(gateway):
    problem(gateway.call("POST", lock_path("x"), "colour=1"), 400, "colour")
    problem(gateway.acquire("x", {"colour": 1}), 400, "colour")
    problem(gateway.acquire("x", {"ttl": "soon"}), 400, "ttl")


def test_refusal_repeats_nothing_dangerous(gateway):
    """A refusal echoes what the client sent as JSON."""
    for query in ("%22%3cscript%3e=1", "%ff%fe=1", "a%0ab=1", "%5c=1",
                  "%e2%80%a8=1", "x" * 3000 + "=1"):
        problem(gateway.call("POST", lock_path("x"), query), 400)


def test_arguments_in_calls_without(gateway, taken):
    for method in ("GET", "DELETE"):
        response = gateway.call(method, lock_path("taken", taken), "foo=1")
        problem(response, 400, "foo")
    problem(gateway.call("GET", lock_path("taken"), "foo=1"), 400, "foo")
    problem(gateway.renew("taken", taken, foo="1"), 400, "foo")
    problem(gateway.renew("taken", taken, {"foo": 1}), 400, "foo")
    problem(gateway.renew("taken", taken, wait="1s"), 400, "wait")
    assert gateway.inspect("taken", taken).json["state"] == "held"


# bodies

def nested(depth, opening="[", closing="]"):
    return '{"data":%s%s}' % (opening * depth, closing * depth)


BAD_BODIES = {
    "no object": "[]", "a string": '"x"', "a number": "1", "a word": "true",
    "null": "null", "not closed": "{", "not closed in a value": '{"wait":',
    "not closed string": '{"wait":"1', "closed twice": "{}}",
    "two objects": "{}{}", "text behind": "{} x", "text before": "x {}",
    "string begun behind": '{} "x', "word begun behind": "{}t",
    "bare key": "{wait:1}", "single quotes": "{'wait':1}",
    "comma at the end": '{"wait":1,}', "comment": '{"wait":1/* */}',
    "line comment": '{} // x', "NaN": '{"wait":NaN}',
    "leading zero": '{"wait":01}', "plus": '{"wait":+1}',
    "unknown field": '{"colour":1}', "unknown null": '{"colour":null}',
    "upper case": '{"Wait":1}', "empty key": '{"":1}',
    "key with a zero": '{"wait\\u0000":1}',
    "key twice": '{"wait":1,"wait":2}', "data twice": '{"data":1,"data":1}',
    "owner number": '{"owner":1}', "owner list": '{"owner":["a"]}',
    "owner object": '{"owner":{}}', "owner true": '{"owner":true}',
    "owner line": '{"owner":"a\\nb"}', "owner zero": '{"owner":"a\\u0000b"}',
    "owner delete": '{"owner":"\\u007f"}', "owner c1": '{"owner":"\\u0085"}',
    "owner half a pair": '{"owner":"\\ud800"}',
    "owner other half": '{"owner":"\\udc00x"}',
    "owner too long": json.dumps({"owner": "x" * 256}),
    "owner too long in bytes": json.dumps({"owner": "\u20ac" * 86}),
    "control in a string": '{"owner":"a\tb"}',
    "bad escape": '{"owner":"\\x41"}', "short escape": '{"owner":"\\u12"}',
    "mode number": '{"mode":1}', "mode unknown": '{"mode":"exclusiv"}',
    "mode list": '{"mode":["exclusive"]}',
    "mode with a zero": '{"mode":"exclusive\\u0000"}',
    "data too long": json.dumps({"data": "x" * 1023}),
    "data too long in items": json.dumps({"data": list(range(300))}),
    "deep list": nested(17), "deep object": nested(17, '{"a":', "1}")
    .replace('{"a":}', '{"a":1}'), "very deep": nested(3900),
    "very deep, not closed": '{"data":' + "[" * 8000,
    "deep in an unknown field": '{"x":' + "[" * 4000 + "]" * 4000 + "}",
    "huge number": '{"wait":' + "9" * 7000 + "}",
    "huge fraction": '{"wait":0.' + "1" * 7000 + "}",
    "huge key": '{"%s":1}' % ("k" * 8000),
    "huge string": '{"owner":"%s"}' % ("x" * 8000),
    "escapes without end": '{"owner":"%s"}' % ("\\u0041" * 1300),
    "utf-16": '{"wait":1}'.encode("utf-16"),
    "half a bom": b'\xef\xbb{"wait":1}', "two boms": b"\xef\xbb\xbf" * 2,
    "bom behind a blank": b' \xef\xbb\xbf{"wait":1}',
    "latin-1": b'{"owner":"\xe4"}',
    "overlong": b'{"owner":"\xc0\xaf"}',
    "surrogate": b'{"owner":"\xed\xa0\x80"}',
    "cut character": b'{"owner":"\xe2\x82"}', "latin-1 key": b'{"\xe4":1}',
    "latin-1 in data": b'{"data":{"\xe4":"\xe4"}}',
    "zero byte": b'{"wait":1}\0', "zeros": b"\0" * 100,
    "binary": bytes(range(256)), "vertical tab": b'{\x0b"wait":1}',
    "form": b"wait=1s&ttl=2s", "xml": b"<wait>1s</wait>",
}


@pytest.mark.parametrize("what", sorted(BAD_BODIES))
def test_bodies(gateway, what):
    body = BAD_BODIES[what]
    body = body.encode() if isinstance(body, str) else body
    assert len(body) <= BODY_MAX
    response = gateway.acquire("x", body,
                               {"Content-Type": "application/json"})
    if response.status == 201:
        gateway.release("x", response.token)
        pytest.fail("granted with %r" % body[:100])
    problem(response, 400)


def test_byte_order_mark(gateway):
    """As some editors and PowerShell write in front of a text."""
    for body in '{"wait":1,"data":{"a":1}}', "", " ", " {} ":
        response = gateway.acquire("x", body.encode("utf-8-sig"),
                                   {"Content-Type": "application/json"})
        assert response.status == 201, response
        assert response.json.get("data") == ({"a": 1} if "data" in body
                                             else None)
        gateway.release("x", response.token)


def test_byte_order_mark_in_pieces(gateway):
    """Each byte comes alone, also to the file that nginx may write."""
    body = '{"wait":1}'.encode("utf-8-sig")
    connection = gateway.connect()
    head, _, _ = encode("POST", "/locks/x", {
        "Transfer-Encoding": "chunked",
        "Content-Type": "application/json"}).partition(b"\r\n\r\n")
    connection.send_bytes(head + b"\r\n\r\n")
    for i in range(len(body)):
        connection.socket.sendall(b"1\r\n" + body[i:i + 1] + b"\r\n")
    connection.socket.sendall(b"0\r\n\r\n")
    response = connection.response()
    assert response.status == 201, response
    gateway.release("x", response.token)


def test_body_byte_by_byte_is_refused_alike(gateway):
    """A body that is cut into pieces is refused for the same reason."""
    for what in ("surrogate", "overlong", "owner half a pair", "two objects",
                 "deep list", "key twice", "not closed string"):
        body = BAD_BODIES[what]
        body = body.encode() if isinstance(body, str) else body
        connection = gateway.connect()
        connection.send_bytes(
            b"POST /locks/x HTTP/1.1\r\nHost: a\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n")
        for byte in body:
            connection.socket.sendall(b"1\r\n%c\r\n" % byte)
        connection.socket.sendall(b"0\r\n\r\n")
        problem(connection.response(), 400)


@pytest.mark.shows("bad input is answered with 4xx, and harms nothing")
def test_random_bodies(gateway):
    """No random body crashes a worker, and no claim stays."""
    generator = random.Random(2)
    pieces = ['{', '}', '[', ']', '"', ':', ',', '"wait"', '"ttl"', '"data"',
              '"owner"', '"mode"', '1', '"1s"', 'null', 'true', '\\u0041',
              '\\ud83d', '\\', '\x00', '\u00e4', ' ', '\n', '1e9', '-']
    with gateway.connect() as connection:
        for _ in range(500):
            text = "".join(generator.choice(pieces)
                           for _ in range(generator.randrange(1, 40)))
            response = connection.request(
                "POST", lock_path("x"), body=("{" + text).encode(),
                headers={"Content-Type": "application/json"})
            if response.status == 201:
                gateway.release("x", response.token)
            else:
                problem(response, 400)


def test_body_too_large(gateway):
    for size in (BODY_MAX + 1, 2 * BODY_MAX, 100000):
        body = b'{"wait":1' + b" " * (size - 10) + b"}"
        response = gateway.acquire("x", body,
                                   {"Content-Type": "application/json"})
        problem(response, 413)
    body = b'{"ttl":1' + b" " * (BODY_MAX - 9) + b"}"
    response = gateway.hold("x", body=body)
    gateway.release("x", response.token)


def test_body_too_large_in_chunks(gateway):
    connection = gateway.connect()
    connection.send_bytes(
        b"POST /locks/x HTTP/1.1\r\nHost: a\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n")
    try:
        for _ in range(64):
            connection.socket.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        connection.socket.sendall(b"0\r\n\r\n")
    except ConnectionError:
        pass
    try:
        assert connection.response().status == 413
    except (Gone, ConnectionError):
        pass        # the 413 came before the test read


@pytest.mark.parametrize("content_type", [
    "application/x-www-form-urlencoded", "text/plain", "text/json",
    "application/xml", "multipart/form-data; boundary=x", "json",
    "application/jsonx", "application/", "x" * 1000, "+json"])
def test_content_types_that_are_not_json(gateway, content_type):
    for body in (b'{"ttl":1}', b"ttl=1"):
        response = gateway.acquire("x", body, {"Content-Type": content_type})
        problem(response, 415, "application/json")


# HTTP

@pytest.mark.parametrize("method, path", [
    ("PATCH", "/locks/x"), ("OPTIONS", "/locks/x"), ("MKCOL", "/locks/x"),
    ("PROPFIND", "/locks/x"),
    ("PATCH", "/locks/x/" + MASKED)])
def test_methods(gateway, method, path):
    response = gateway.call(method, path)
    problem(response, 405)
    allowed = response.headers["Allow"].replace(" ", "").split(",")
    assert method not in allowed
    assert {"GET", "DELETE"} <= set(allowed)


def test_post_with_a_token_in_the_path(gateway, taken):
    response = gateway.call("POST", lock_path("taken", taken))
    problem(response, 405)
    assert "POST" not in response.headers["Allow"]


@pytest.mark.parametrize("header", [
    "X-HTTP-Method-Override", "X-HTTP-Method", "x-method-override"])
def test_another_method_by_a_header(gateway, header):
    """A POST that means DELETE would hold the claim once more."""
    token = gateway.hold("x").token
    claim = {"Lock-Token": token}

    for method, other in [("POST", "DELETE"), ("POST", "PUT"),
                          ("POST", ""), ("POST", "POSTS"), ("GET", "DELETE"),
                          ("DELETE", "GET"), ("PUT", "PATCH")]:
        problem(gateway.call(method, "/locks/x", None,
                             dict(claim, **{header: other})),
                400, "X-HTTP-Method-Override", "request line")
    with gateway.connect() as connection:
        connection.send_bytes(encode("POST", "/locks/x", claim).replace(
            b"\r\n\r\n", b"\r\n%s: POST\r\n%s: DELETE\r\n\r\n"
            % ((header.encode(),) * 2)))
        problem(connection.response(), 400)
    assert "holds" not in gateway.inspect("x", token).json

    # the same method again
    answer = gateway.call("DELETE", "/locks/x", None,
                          dict(claim, **{header: "delete"}))
    assert answer.status == 204


@pytest.mark.parametrize("head", [
    b"POST /locks/x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /locks/x HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    b"POST /locks/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\n{}",
    b"POST /locks/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n",
    b"POST /locks/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"zz\r\n",
    b"POST /locks/x HTTP/1.1\r\n\r\n", b"POST\r\n\r\n", b"\r\n\x00\r\n\r\n"])
def test_broken_http(gateway, head):
    connection = gateway.connect()
    connection.send_bytes(head)
    assert connection.response().status in (400, 501)


def test_old_http(gateway):
    """HTTP/1.0 works; an answer without keep-alive ends the connection."""
    connection = gateway.connect()
    connection.send_bytes(b"POST /locks/old HTTP/1.0\r\n\r\n")
    response = connection.response()
    assert response.status == 201
    with pytest.raises(Gone):
        connection.response()
    gateway.release("old", response.token)


def test_expect_continue(gateway):
    connection = gateway.connect()
    request = encode("POST", "/locks/expect", {"Expect": "100-continue"},
                     {"ttl": "5s"})
    head, _, body = request.partition(b"\r\n\r\n")
    connection.send_bytes(head + b"\r\n\r\n")
    connection.methods.append("POST")
    assert connection.response().status == 100
    connection.socket.sendall(body)
    response = connection.response()
    assert response.json["ttl_ms"] == 5000
    gateway.release("expect", response.token)


def test_keep_alive_survives_refusals(gateway):
    """A refusal that read the whole request does not end the connection."""
    with gateway.connect() as connection:
        for body in (b"{", b'{"colour":1}', b"[]") * 5:
            response = connection.request(
                "POST", lock_path("x"), body=body,
                headers={"Content-Type": "application/json"})
            problem(response, 400)
        response = connection.request("POST", lock_path("x"))
        assert response.status == 201
        response = connection.request("DELETE",
                                      lock_path("x", response.token))
        assert response.status == 204
