"""The page of zk_lock_page, in a browser.

A page shows what clients do, as they do it, and takes what clients say for
text.  An operator breaks the claim that the page has shown, and no other.
"""

import base64
import functools
import hashlib
import itertools
import json
import os
import re
import signal
import time
from datetime import datetime

import pytest
from selenium.webdriver.common.keys import Keys

from conftest import gateways, new_root
from lib import process
from lib.browser import Browser
from lib.checks import problem
from lib.gateway import TREE

LOCATIONS = """
location /admin/ {
    zk_lock_api;
    zk_lock_admin on;
}

location = /page { zk_lock_page /locks/ health=/health; }
location = /any { zk_lock_page /locks/ health=/members; }
location = /operator { zk_lock_page /admin/ admin; }
location = /refused { zk_lock_page /locks/ admin; }
location = /astray { zk_lock_page /nowhere/; }

location = /health { zk_lock_health; }

location = /members {
    default_type application/json;
    return 200 '{"a": 1, "b": {"c": "x", "d": [true, null]}}';
}
"""

HOSTILE = [
    "<img src=x onerror=\"document.title='hit'\">",
    "</td></table><script>document.title='hit'</script>",
    "'\"><svg onload=document.title='hit'>",
    "${document.title='hit'} {{7*7}} &lt;b&gt; &#x41;",
    "javascript:document.title='hit'",
    "__proto__",
    "x" * 180,
    "\u05d0\u05d1 \u0639\u0631\u0628 Z\u0300\u0301\u0302",
]

_names = itertools.count()

# a browser may be slow
wait_until = functools.partial(process.wait_until, timeout=30.0)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def site(request, tmp_path_factory, zookeeper, tree):
    """A gateway for all tests that leave the gateway without claims."""
    with gateways(request.node, tmp_path_factory.mktemp("site"), zookeeper,
                  tree, new_root()) as make:
        yield make(server=LOCATIONS)


@pytest.fixture
def claims(site):
    """A function that acquires; what is held is released at the end."""
    held = []

    def make(name, body=None, **query):
        query.setdefault("ttl", "1h")
        holder = site.hold(name, body, **query)
        held.append((name, holder.token))
        return holder

    yield make
    for name, token in held:
        assert site.release(name, token).status in (204, 410)


@pytest.fixture
def name():
    return "x%d" % next(_names)


@pytest.fixture(autouse=True)
def no_complaint(browser):
    """No test leaves a complaint of the browser behind."""
    browser.emulate()
    browser.complaints()
    yield
    assert browser.complaints() == []


def url(gateway, path):
    return "http://127.0.0.1:%d%s" % (gateway.port, path)


def show(browser, gateway, path="/page"):
    browser.open(url(gateway, path))
    browser.wait_no_text("being loaded")


def row(browser, name):
    """The cells of the lock's row, or None."""
    return next((cells for cells in browser.rows("rows") if cells[0] == name),
                None)


def cell(browser, name, column):
    cells = row(browser, name)
    return cells and cells[column]


def show_lock(browser, gateway, name, path="/page"):
    show(browser, gateway, path)
    browser.press(name)
    wait_until(lambda: browser.texts("#lock-state") != [""],
               what="the lock is shown")


LOCK, MODE, OWNER, SINCE, LASTS, LEFT, FENCING, QUEUE = range(8)


# what is shown

def test_holders_are_listed(browser, site, claims):
    one = claims("alone", owner="ann", ttl="90s")
    claims("read", owner="bob", mode="shared")
    claims("read", owner="carl", mode="shared")
    claims("seats", mode="semaphore", permits=3)
    show(browser, site)
    wait_until(lambda: cell(browser, "alone", OWNER) == "ann")
    cells = row(browser, "alone")
    assert cells[MODE] == "exclusive"
    assert cells[SINCE] == one.json["since"].replace("T", " ")
    assert re.fullmatch(r"\d+s", cells[LASTS])
    assert re.fullmatch(r"1m [0-2]\ds", cells[LEFT])
    assert cells[FENCING] == str(one.fencing)
    assert cells[QUEUE] == "0"
    wait_until(lambda: cell(browser, "read", OWNER) == "bob and 1 more")
    assert row(browser, "seats")[MODE] == "semaphore 1/3"
    assert "3 locks in use; 0 claims wait" in browser.text("#summary")


def test_change_of_another_client_shows(browser, site, claims, name):
    show(browser, site)
    holder = site.hold(name, owner="first")
    wait_until(lambda: cell(browser, name, OWNER) == "first")
    waiter = site.begin(name, owner="second", wait="1m")
    wait_until(lambda: cell(browser, name, QUEUE) == "1")
    site.release(name, holder.token)
    wait_until(lambda: cell(browser, name, OWNER) == "second")
    site.release(name, waiter.response().token)
    wait_until(lambda: row(browser, name) is None)


def test_queue_is_shown_in_order(browser, site, claims, tree, name):
    holder = claims(name, owner="ann", data='{"build":7}')
    waiters = []
    for i, owner in enumerate(("bob", "carl", "dora")):
        waiters.append(site.begin(name, owner=owner, wait="1m"))
        tree.wait_claims(site.znode(name), i + 2)
    show_lock(browser, site, name)
    (cells,) = browser.rows("holders")
    assert cells[0] == "ann" and cells[1] == "127.0.0.1"
    assert cells[5] == str(holder.fencing) and cells[6] == '{"build":7}'
    assert [cells[:2] for cells in browser.rows("queue")] == [
        ["1", "bob"], ["2", "carl"], ["3", "dora"]]
    assert browser.text("#lock-state") == (
        "exclusive; held by ann; 3 claims wait")

    waiters[1].close()
    wait_until(lambda: [cells[1] for cells in browser.rows("queue")]
               == ["bob", "dora"])
    for waiter in waiters[0], waiters[2]:
        waiter.close()
    wait_until(lambda: not browser.rows("queue"))
    site.release(name, holder.token)
    browser.wait_text("Free", "#lock-state")
    browser.press("Close")
    assert not browser.find("#lock")


def test_health_is_shown(browser, site):
    show(browser, site)
    browser.wait_text("status\nok", "#members")
    browser.wait_text("drained\nfalse", "#members")


def test_any_members_of_health_are_shown(browser, site):
    show(browser, site, "/any")
    wait_until(lambda: browser.texts("#members div")
               == ["a\n1", "b c\nx", "b d 0\ntrue", "b d 1\nnull"])


def test_search_order_and_pages(browser, site, claims):
    oldest = claims("zz-oldest", owner="someone")
    # times have whole seconds
    wait_until(lambda: datetime.utcnow().isoformat()
               > oldest.json["since"])
    for i in range(130):
        claims("many-%03d" % i, owner="o%d" % i)
    waiter = site.begin("many-077", wait="1m")
    show(browser, site)
    assert len(browser.rows("rows")) == 100
    assert "100 locks loaded, more follow" in browser.text("#summary")
    assert "1 to 100 of 100" in browser.text("#where")
    browser.press("Next")
    wait_until(lambda: len(browser.rows("rows")) == 31)
    assert browser.rows("rows")[0][LOCK] == "many-100"
    browser.press("Previous")
    wait_until(lambda: len(browser.rows("rows")) == 100)

    browser.choose("#load", "1000")
    browser.wait_text("131 locks in use", "#summary")
    browser.press("Next")
    wait_until(lambda: "101 to 131 of 131" in browser.text("#where"))

    browser.choose("#sort", "longest queue")
    wait_until(lambda: browser.rows("rows")[0][LOCK] == "many-077")
    browser.choose("#sort", "held longest")
    wait_until(lambda: browser.rows("rows")[0][LOCK] == "zz-oldest"
               and "1 to 100" in browser.text("#where"))

    browser.fill("#prefix", "many-01")
    wait_until(lambda: len(browser.rows("rows")) == 10)
    browser.fill("#text", "MANY-013")
    wait_until(lambda: [cells[LOCK] for cells in browser.rows("rows")]
               == ["many-013"])
    browser.fill("#text", "127.0.0.1")
    wait_until(lambda: len(browser.rows("rows")) == 10)
    browser.fill("#text", "no such owner")
    browser.wait_text("no lock is found")
    waiter.close()


def test_a_fencing_token_keeps_all_digits(browser, site):
    show(browser, site)
    assert browser.script("return fencing(parsed("
                          "'{\"fencing_token\":9223372036854775807}'))"
                          ) == "9223372036854775807"


# what clients say is text

def test_hostile_texts_are_shown(browser, site, claims):
    """Names, owners and data are read as they were sent, and do nothing."""
    show(browser, site)
    for i, text in enumerate(HOSTILE):
        claims(text if "/" not in text else "slash-%d" % i,
               {"owner": text, "data": {text: [text]}})
    wait_until(lambda: sorted(cells[OWNER] for cells in browser.rows("rows"))
               == sorted(HOSTILE))
    for name, text in [(cells[LOCK], cells[OWNER])
                       for cells in browser.rows("rows")]:
        browser.press(name, "#rows button")
        wait_until(lambda: [cells[0] for cells in browser.rows("holders")]
                   == [text])
        assert json.loads(browser.rows("holders")[0][6]) == {text: [text]}
        browser.press("Close")
    assert browser.script(
        "return document.querySelectorAll('img, svg, a, iframe').length") == 0
    assert browser.script("return document.scripts.length") == 1
    assert browser.driver.title == "Locks of /locks/"


def test_texts_that_turn_around_are_spelled_out(browser, site, claims):
    claims("gnp\u202egpj.exe", owner="a\u2066b\u200bc\ufeff")
    show(browser, site)
    wait_until(lambda: cell(browser, "gnp[U+202E]gpj.exe", OWNER)
               == "a[U+2066]b[U+200B]c[U+FEFF]")


def test_a_hostile_health_is_text(browser, start_gateway):
    text = '{"<img src=x>": {"a": ["<b>", {"__proto__": null}]}}'
    gateway = start_gateway(server="""
        location = /page { zk_lock_page /locks/ health=/health; }
        location = /health { return 503 '%s'; }
        """ % text)
    show(browser, gateway)
    browser.wait_text("<img src=x> a 0\n<b>", "#members")


def test_policy_refuses_what_is_not_the_pages_own(browser, site):
    """Even with a script of its own a page could not make markup of text."""
    show(browser, site)
    assert browser.script("""
        try {
            document.body.insertAdjacentHTML("beforeend", "<b>x</b>");
            return "made";
        } catch (error) {
            return error.name;
        }
        """) == "TypeError"
    browser.script("""
        const style = document.createElement("style");
        style.textContent = "body { color: red }";
        document.head.append(style);
        const script = document.createElement("script");
        window.broken = [];
        document.addEventListener("securitypolicyviolation",
            event => window.broken.push(event.effectiveDirective));
        fetch("http://127.0.0.1:1/").catch(() => {});
        """)
    wait_until(lambda: "connect-src" in browser.script("return window.broken"))
    assert browser.script("return getComputedStyle(document.body).color"
                          ) != "rgb(255, 0, 0)"
    assert browser.complaints()


def test_requests_go_to_the_gateway_alone(browser, site, claims, name):
    claims(name)
    browser.requests()
    show_lock(browser, site, name, "/operator")
    browser.press("Break")
    browser.press("Break the claim")
    browser.wait_text("was broken", "#said")
    asked = browser.requests()
    assert ("DELETE", url(site, "/admin/%s?force=1" % name)) in asked
    assert [line for _, line in asked
            if not line.startswith((url(site, "/"), "data:,"))] == []


def test_source_makes_no_markup_of_text():
    """A grep: no call that takes a text for markup, and no other resource."""
    with open(os.path.join(TREE, "src", "http", "page.html")) as file:
        text = file.read()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "write(",
                 "DOMParser", "eval", "Function(", "setTimeout(\"", "srcdoc",
                 "://", "url(", "@import", " src=", "createContextualFragment"):
        assert word not in text, word


# operators

@pytest.mark.parametrize("what", ["break", "ask"])
def test_holder_is_hit_after_a_question(browser, site, claims, name, what):
    holder = claims(name, owner="ann")
    show_lock(browser, site, name, "/operator")
    first = {"break": "Break", "ask": "Ask to let go"}[what]
    browser.press(first)
    browser.wait_text("fencing token %d" % holder.fencing, "#ask-text")
    browser.press("Cancel")
    assert not browser.find("#ask")
    assert "revoke" not in site.inspect(name, holder.token).json

    browser.press(first)
    if what == "break":
        browser.press("Break the claim")
        browser.wait_text("with fencing token %d was broken" % holder.fencing,
                          "#said")
        problem(site.inspect(name, holder.token), 410)
        browser.wait_text("Free", "#lock-state")
    else:
        browser.press("Ask the holder")
        browser.wait_text("was asked to let go", "#said")
        assert site.inspect(name, holder.token).json["revoke"] is True
        browser.wait_text("asked to let go", "#holders")


@pytest.mark.parametrize("what", [("Break", "Break the claim"),
                                  ("Ask to let go", "Ask the holder")])
def test_only_the_shown_claim_is_hit(browser, site, claims, name, what):
    """The holder has changed since the question was asked."""
    former = claims(name, owner="ann")
    show_lock(browser, site, name, "/operator")
    browser.press(what[0])
    site.release(name, former.token)
    holder = claims(name, owner="bob")
    browser.wait_text("held by bob", "#lock-state")
    browser.wait_text("fencing token %d" % former.fencing, "#ask-text")
    browser.press(what[1])
    browser.wait_text("No claim was touched", "#said")
    content = site.inspect(name, holder.token).json
    assert content["state"] == "held" and "revoke" not in content


def test_one_of_many_holders_is_hit(browser, site, claims, name):
    holders = [claims(name, mode="shared", owner="o%d" % i) for i in range(3)]
    show_lock(browser, site, name, "/operator")
    wait_until(lambda: len(browser.find("#holders tr")) == 3)
    browser.press("Break", "#holders tr:nth-child(2) button")
    browser.press("Break the claim")
    browser.wait_text("was broken", "#said")
    wait_until(lambda: [cells[0] for cells in browser.rows("holders")]
               == ["o0", "o2"])
    assert [site.inspect(name, holder.token).status for holder in holders] == [
        200, 410, 200]


def test_a_location_without_admin_refuses(browser, site, claims, name):
    holder = claims(name)
    show_lock(browser, site, name, "/refused")
    browser.press("Break")
    browser.press("Break the claim")
    browser.wait_text("The gateway answers 403 (this takes a location with "
                      "zk_lock_admin)", "#said")
    assert site.inspect(name, holder.token).status == 200


def test_no_buttons_without_admin(browser, site, claims, name):
    claims(name)
    show_lock(browser, site, name)
    assert browser.rows("holders")
    assert not browser.find("#holders button") and not browser.find("#calls")


# trouble

def test_lost_connection_shows_and_comes_back(browser, start_gateway):
    gateway = start_gateway(server=LOCATIONS)
    gateway.hold("before", owner="ann")
    show(browser, gateway)
    wait_until(lambda: cell(browser, "before", OWNER) == "ann")
    gateway.stop()
    browser.wait_text("Connection to the gateway lost since 20", "#banner")
    assert row(browser, "before")
    gateway.start()
    wait_until(lambda: not browser.find("#banner"))
    gateway.hold("after", owner="bob")
    wait_until(lambda: cell(browser, "after", OWNER) == "bob")


def test_a_gateway_that_hangs_shows(browser, start_gateway):
    gateway = start_gateway(server=LOCATIONS)
    show(browser, gateway)
    for worker in gateway.worker_pids():
        os.kill(worker, signal.SIGSTOP)
    try:
        browser.wait_text("Connection to the gateway lost", "#banner", 60.0)
    finally:
        for worker in gateway.worker_pids():
            os.kill(worker, signal.SIGCONT)
    wait_until(lambda: not browser.find("#banner"))


def test_refusal_of_the_api_shows(browser, site):
    browser.open(url(site, "/astray"))
    browser.wait_text("The gateway answers 404 since 20", "#banner")


def test_hidden_page_asks_nothing(browser, site):
    show(browser, site)
    browser.script("""
        Object.defineProperty(document, "visibilityState",
                              {value: "hidden", configurable: true});
        """)
    browser.requests()
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() > begun + 3)
    # what was under way
    assert len(browser.requests()) <= 4
    browser.script("""
        delete document.visibilityState;
        document.dispatchEvent(new Event("visibilitychange"));
        """)
    wait_until(lambda: browser.requests())


# people

def test_keyboard_is_enough(browser, site, claims, name):
    """From the top to a broken claim, and back, by Tab, Enter and Escape."""
    holder = claims(name)
    show(browser, site, "/operator")

    def tab_to(text):
        for _ in range(40):
            browser.keys(Keys.TAB)
            if browser.focused() == text:
                return
        raise AssertionError("Tab does not lead to %s" % text)

    tab_to(name)
    browser.keys(Keys.ENTER)
    assert browser.focused() == name
    wait_until(lambda: browser.find("#holders button"))
    tab_to("Break")
    browser.keys(Keys.ENTER)
    assert browser.focused() == "Cancel"
    browser.keys(Keys.ESCAPE)
    assert not browser.find("#ask") and browser.focused() == "Break"
    browser.keys(Keys.ENTER)
    tab_to("Break the claim")
    browser.keys(Keys.ENTER)
    browser.wait_text("was broken", "#said")
    problem(site.inspect(name, holder.token), 410)


def test_focus_stays_while_rows_come_and_go(browser, site, claims):
    claims("b")
    show(browser, site)
    wait_until(lambda: row(browser, "b"))
    browser.script("document.querySelector('#rows button').focus()")
    before = claims("a")
    claims("c")
    wait_until(lambda: [cells[LOCK] for cells in browser.rows("rows")]
               == ["a", "b", "c"])
    assert browser.focused() == "b"
    site.release("a", before.token)
    wait_until(lambda: [cells[LOCK] for cells in browser.rows("rows")]
               == ["b", "c"])
    assert browser.focused() == "b"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser, site, claims, name, scheme):
    """WCAG AA: 4.5 to 1, for all texts, also those of rare states."""
    claims(name, owner="ann")
    browser.emulate(scheme)
    show_lock(browser, site, name, "/operator")
    browser.press("Break")
    found = browser.contrasts("note('list', 'A trouble');"
                              "node('health').hidden = false;")
    assert {"A trouble", "Break", "Cancel"} <= {
        text.split(" since")[0] for text, _ in found}
    assert [pair for pair in found if pair[1] < 4.5] == []
    back = browser.script(
        "return getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")


def test_phone(browser, site, claims, name):
    """On a narrow screen nothing is cut off."""
    claims(name, owner="o" * 200)
    claims("n" * 200)
    browser.emulate(width=360)
    show_lock(browser, site, name, "/operator")
    wait_until(lambda: row(browser, name))
    assert len(row(browser, name)) == 4
    assert browser.script("return document.documentElement.scrollWidth") <= 360


def test_document_is_described(browser, site, claims, name):
    claims(name)
    show_lock(browser, site, name, "/operator")
    assert browser.driver.title == "Locks of /admin/"
    said = browser.script("""
        const all = selector => [...document.querySelectorAll(selector)];
        return {
            lang: document.documentElement.lang,
            headings: all("h1").length,
            unlabelled: all("input, select").filter(
                element => element.labels.length === 0).length,
            unnamed: all("button").filter(
                element => element.checkVisibility()
                           && !element.innerText.trim()).length,
            captions: all("table").every(table => table.caption.innerText),
            scopes: all("th").every(cell => cell.scope),
            live: all("[role=status], [role=alert]").map(each => each.id),
        };
        """)
    assert said == {"lang": "en", "headings": 1, "unlabelled": 0, "unnamed": 0,
                    "captions": True, "scopes": True,
                    "live": ["banner", "said", "lock-state"]}


# the answer

def test_answer(site):
    response = site.call("GET", "/page")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-cache"
    text = response.body.decode("ascii")
    policy = dict(part.strip().split(" ", 1) for part
                  in response.headers["Content-Security-Policy"].split(";"))
    for tag in "script", "style":
        inside, = re.findall("<%s>(.*?)</%s>" % (tag, tag), text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest())
        assert policy.pop(tag + "-src") == "'sha256-%s'" % digest.decode()
    assert policy == {
        "default-src": "'none'", "connect-src": "'self'", "img-src": "data:",
        "base-uri": "'none'", "form-action": "'none'",
        "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
        "trusted-types": "'none'"}

    with open(os.path.join(TREE, "src", "http", "page.html")) as file:
        head, tail = file.read().split("<!-- configuration -->\n")
    assert text == (head + '<meta name="zk-lock-api" content="/locks/">\n'
                    '<meta name="zk-lock-health" content="/health">\n'
                    '<meta name="zk-lock-admin" content="off">\n' + tail)


def test_methods(site):
    head = site.call("HEAD", "/page")
    assert head.status == 200 and head.body == b""
    assert int(head.headers["Content-Length"]) == len(
        site.call("GET", "/page").body)
    for method in "POST", "PUT", "DELETE", "LOCK":
        response = site.call(method, "/page", body={})
        problem(response, 405)
        assert response.headers["Allow"] == "GET, HEAD"


def test_paths_are_escaped(browser, start_gateway):
    path = "/a \"b<c>'d&amp;%?#;\u00e9/"
    gateway = start_gateway(server="""
        location "%s" { zk_lock_api; }
        location = /page { zk_lock_page "%s"; }
        """ % ((path.replace('"', '\\"'),) * 2))
    holder = gateway.hold("x", owner="ann")
    show(browser, gateway)
    wait_until(lambda: cell(browser, "x", OWNER) == "ann")
    assert gateway.release("x", holder.token).status == 204


def test_page_is_not_guarded(start_gateway):
    """A lock around a server's requests is not one around the page."""
    gateway = start_gateway(server="""
        zk_lock all wait=0;
        location = /page {
            zk_lock_page /locks/;
            if ($arg_x) { set $x 1; }
            limit_except GET { deny all; }
        }
        """)
    gateway.hold("all")
    for path in "/page", "/page?x=1":
        assert b"<!doctype html>" in gateway.call("GET", path).body
    assert gateway.call("POST", "/page").status == 403
