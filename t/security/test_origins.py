"""Pages of other origins change no locks by the rights of a browser's user.

What a browser says of a page is in Origin and Sec-Fetch-Site.  The last tests
have Chromium say so: a page of another site, one of another port of the same
host, and the pages that the configuration allows.
"""

import contextlib
import json
import uuid

import pytest

from conftest import gateways, new_root
from lib.browser import Browser
from lib.checks import problem
from lib.examples import code

APP = "https://app.example.com"
OWN = "gateway.example.com:8080"

# the headers of a request to OWN, and whether the request may change a lock
SENT = {
    "no browser": ({}, True),
    "cross-site": ({"Sec-Fetch-Site": "cross-site"}, False),
    "cross-site, its own origin": (
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://" + OWN}, False),
    "cross-site, an origin": (
        {"Sec-Fetch-Site": "cross-site", "Origin": APP}, False),
    "same-site, another origin": (
        {"Sec-Fetch-Site": "same-site", "Origin": "http://example.com"},
        False),
    "same-site, another port": (
        {"Sec-Fetch-Site": "same-site",
         "Origin": "http://gateway.example.com"}, False),
    "same-site, no origin": ({"Sec-Fetch-Site": "same-site"}, False),
    "same-origin": (
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://" + OWN}, True),
    "same-origin, behind a proxy that replaces the Host": (
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://front"}, True),
    "typed by the user": ({"Sec-Fetch-Site": "none"}, True),
    "an old browser's own page": ({"Origin": "http://" + OWN}, True),
    "TLS ends in front": ({"Origin": "https://" + OWN}, True),
    "capitals": ({"Origin": "HTTP://" + OWN.upper()}, True),
    "an old browser's other page": ({"Origin": APP}, False),
    "another port": ({"Origin": "http://gateway.example.com"}, False),
    "a proxy names the port": (
        {"Host": "gateway:80", "Origin": "http://gateway"}, True),
    "a proxy names the port of TLS": (
        {"Host": "gateway:443", "Origin": "https://gateway"}, True),
    "the port of the other scheme": (
        {"Host": "gateway:80", "Origin": "https://gateway"}, False),
    "a longer host": ({"Origin": "http://%s.evil.com" % OWN}, False),
    "a shorter host": ({"Origin": "http://" + OWN[:-1]}, False),
    "no origin at all": ({"Origin": "null"}, False),
    "a scheme alone": ({"Origin": "http://"}, False),
    "an empty origin": ({"Origin": ""}, False),
    "an unknown word": (
        {"Sec-Fetch-Site": "elsewhere", "Origin": APP}, False),
}


@pytest.fixture(scope="module")
def gateway(request, tmp_path_factory, zookeeper, tree):
    with gateways(request.node, tmp_path_factory.mktemp("origins"), zookeeper,
                  tree, new_root()) as make:
        yield make(location="zk_lock_admin on;", server="""
            location = /health { zk_lock_health; zk_lock_admin on; }
            """)


def origin_refused(response):
    problem(response, 403, "zk_lock_allow_origin")


@pytest.mark.parametrize("what", sorted(SENT))
def test_who_may_change_a_lock(gateway, what):
    """Each call that changes something, and none that looks."""
    sent, allowed = SENT[what]
    sent = dict({"Host": OWN}, **sent)
    x, y = uuid.uuid4().hex, uuid.uuid4().hex
    held = gateway.hold(x, ttl="1m")
    shown = dict(sent, **{"Lock-Token": held.token})
    body = b'{"ID":"1"}'
    typed = dict(sent, **{"Content-Type": "text/plain"})
    for method, path, query, headers, content in (
            ("POST", y, {"wait": "0"}, sent, None),
            ("POST", y, {"wait": "0"}, typed, body),
            ("LOCK", y, {"wait": "0"}, typed, body),
            ("PUT", x, None, shown, None),
            ("POST", x, None, shown, None),
            ("DELETE", x, None, shown, None),
            ("DELETE", x, {"force": "1"},
             dict(sent, **{"If-Match": "*"}), None),
            ("UNLOCK", x, None, sent, None),
            ("POST", "", {"wait": "0"},
             dict(sent, **{"Content-Type": "application/json"}),
             json.dumps({"names": [y, y + "b"]}).encode())):
        response = gateway.call(method, "/locks/" + path, query, headers,
                                content)
        if allowed:
            assert response.status not in (403, 415), (method, response)
        else:
            origin_refused(response)
    for method in "GET", "HEAD":
        assert gateway.call(method, "/locks/" + y, None,
                            sent).status in (200, 404)
    drained = gateway.call("PUT", "/health", {"drain": "off"}, sent)
    if allowed:
        assert drained.status == 200
    else:
        origin_refused(drained)
        assert gateway.inspect(x, held.token).json["state"] == "held"
        assert gateway.inspect(y).status == 404


def test_a_header_twice(gateway):
    for header in "Origin", "Sec-Fetch-Site":
        response = gateway.call("POST", "/locks/x", headers={
            header: "none", header.lower(): "none"})
        problem(response, 400, header)


def test_http2(gateway):
    """The host is that of ":authority"."""
    name = uuid.uuid4().hex
    with contextlib.closing(gateway.connect_http2()) as connection:
        def status(origin):
            return connection.request("POST", "/locks/" + name, {"wait": "0"},
                                      {"origin": origin}).status

        assert status("http://localhost.evil.example.com") == 403
        assert status("http://localhost:8080") == 403
        assert status("http://localhost") == 201
        assert status("http://localhost") == 423


def test_a_body_without_a_type(gateway):
    """A page sends a Blob without asking first; other clients may be lazy."""
    own = {"Host": OWN, "Origin": "http://" + OWN}
    for body in b'{"ttl":"1m"}', b'{"ID":"1","Who":"me"}':
        problem(gateway.call("POST", "/locks/x", None, own, body), 415,
                "application/json")
        typed = dict(own, **{"Content-Type": "application/json"})
        response = gateway.call("POST", "/locks/x", None, typed, body)
        assert response.status in (200, 201)
        assert gateway.release("x", response.token).status == 204
    response = gateway.call("POST", "/locks/x", None, {"Host": OWN},
                            b'{"ttl":"1m"}')
    assert response.status == 201


ALLOWED = """
map $http_origin $app { "%s" $http_origin; }
""" % APP


@pytest.mark.parametrize("text", [APP, "$app", "HTTPS://APP.example.com"])
def test_an_origin_that_is_allowed(start_gateway, text):
    gateway = start_gateway(http=ALLOWED,
                            location="zk_lock_allow_origin %s;" % text,
                            server="location /own/ { zk_lock_api; "
                                   "zk_lock_allow_origin off; }")
    for site in None, "cross-site", "same-site":
        sent = {"Host": OWN, "Origin": APP}
        if site:
            sent["Sec-Fetch-Site"] = site
        response = gateway.call("POST", "/locks/x", None, sent)
        assert response.status == 201
        assert gateway.release("x", response.token).status == 204
        origin_refused(gateway.call("POST", "/own/x", None, sent))
        for other in "https://evil.example.com", APP + ".evil.com", "null":
            origin_refused(gateway.call("POST", "/locks/x", None,
                                        dict(sent, Origin=other)))
        origin_refused(gateway.call(
            "POST", "/locks/x", None,
            {"Host": OWN, "Sec-Fetch-Site": "cross-site"}))


# a browser

@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


ATTACK = """
    const [url, kind, done] = arguments;
    const options = {method: "POST", mode: "no-cors", credentials: "include"};
    if (kind === "blob") {
        options.body = new Blob(['{"ttl":"24h"}']);
    } else if (kind === "text") {
        options.body = '{"ID":"1","Who":"me"}';
    }
    fetch(url, options).then(() => done("sent"), e => done(String(e)));
"""
PAGE = """
    keepalive_timeout 0;        # a browser keeps connections, and spare ones
    client_header_timeout 1s;
    location = /favicon.ico { return 204; }
    location = /page { default_type text/html; return 200 '<p>page</p>'; }
"""


@pytest.mark.parametrize("kind", ["plain", "blob", "text", "form"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_page_takes_no_lock(browser, start_gateway, host, kind):
    """A page of another site, and one of another port of the same host."""
    victim = start_gateway(server=PAGE)
    stranger = start_gateway(server=PAGE)
    browser.open("http://%s:%d/page" % (host, stranger.port))
    url = "http://127.0.0.1:%d/locks/x?ttl=24h" % victim.port
    if kind == "form":
        browser.script("""
            const form = document.createElement("form");
            form.method = "post";
            form.action = arguments[0];
            document.body.append(form);
            form.submit();
            """, url)
        browser.wait_text("zk_lock_allow_origin")
    else:
        assert browser.driver.execute_async_script(ATTACK, url,
                                                   kind) == "sent"
    assert victim.inspect("x").status == 404


CALL = """
    const [url, done] = arguments;
    (async () => {
        const answer = await fetch(url, {method: "POST"});
        const token = answer.headers.get("Lock-Token");
        const gone = await fetch(url, {method: "DELETE",
                                       headers: {"Lock-Token": token}});
        done([answer.status, gone.status]);
    })().catch(e => done(String(e)));
"""


def test_a_page_that_the_recipe_allows(browser, start_gateway):
    """docs/clients.md: the map's origin takes and releases, others do not."""
    app, stranger = start_gateway(server=PAGE), start_gateway(server=PAGE)
    http, server = code("docs/clients.md", "Browsers").split("server {")
    location = server.split("listen 8080;")[1].rstrip().rstrip("}")
    origin = "http://localhost:%d" % app.port
    gateway = start_gateway(
        http=http.replace(APP, origin),
        server=PAGE + location.replace("/locks/", "/web/"))
    url = "http://127.0.0.1:%d/web/x" % gateway.port
    browser.open(origin + "/page")
    assert browser.driver.execute_async_script(CALL, url) == [201, 204]
    browser.open("http://localhost:%d/page" % stranger.port)
    assert "TypeError" in browser.driver.execute_async_script(CALL, url)
    assert browser.driver.execute_async_script(ATTACK, url, "blob") == "sent"
    assert gateway.inspect("x").status == 404


def test_a_page_of_the_gateway(browser, start_gateway):
    gateway = start_gateway(server=PAGE)
    browser.open("http://127.0.0.1:%d/page" % gateway.port)
    assert browser.driver.execute_async_script(
        CALL, "/locks/x") == [201, 204]


@pytest.mark.parametrize("text", [
    "app.example.com", "https://app.example.com/", "*", "https://", "null"])
def test_what_is_no_origin(start_gateway, text):
    gateway = start_gateway(start=False,
                            location="zk_lock_allow_origin %s;" % text)
    gateway.allow(r"\[emerg\]")
    code, output = gateway.test_conf()
    assert code != 0 and "takes an origin" in output
