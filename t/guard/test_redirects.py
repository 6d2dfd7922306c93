"""Guarded requests that nginx redirects to a location with other rules.

Each kind of redirect leads from a location with the first rules to a location
with the second rules, for the same lock: the header X-Lock names the lock.  A
`rewrite` is done before the rules of the first location are looked at.
"""

import itertools

import pytest

from lib.backend import Backend
from lib.checks import problem
from lib.guards import LOG, location

RULES = {
    "none": "",
    "strict": "zk_lock $http_x_lock wait=0;",
    "pass": "zk_lock $http_x_lock wait=0; zk_lock_unreachable pass;",
    "shared": "zk_lock $http_x_lock wait=0 mode=shared;",
    "write": "zk_lock $http_x_lock wait=0 mode=write;",
    "require": "zk_lock_require $http_x_lock;",
}

# the way from the first location; {to} is the second
KINDS = {
    "try_files": "try_files /none {to};",
    "named": "try_files /none @{then};",
    "error_page": "error_page 404 = {to}; proxy_intercept_errors on;",
    "error_page_named": "error_page 404 = @{then}; proxy_intercept_errors on;",
    "rewrite": "rewrite ^ {to} last;",
    "accel": "",
}

# answers of the application in the first location
FIRST = {
    "error_page": lambda seen, then: seen.answer(404, b""),
    "error_page_named": lambda seen, then: seen.answer(404, b""),
    "accel": lambda seen, then: seen.answer(
        headers={"X-Accel-Redirect": "/to/%s/file" % then}),
}

KEPT = [(first, then)
        for first, then in itertools.product(("strict", "pass"), repeat=2)]

_locks = ("lock-%d" % n for n in itertools.count(1))


def locations(backend):
    proxy = "proxy_pass http://%s; proxy_set_header X-Then %%s;" % (
        backend.address)
    conf = ["zk_lock_timeout 1s;\n"]
    for then, rules in RULES.items():
        conf.append(location("internal;" + rules, proxy % then,
                             "/to/%s/" % then))
        conf.append(location(rules, proxy % then, "@" + then))
        for kind, first in itertools.product(KINDS, RULES):
            way = KINDS[kind].format(to="/to/%s/file" % then, then=then)
            conf.append(location(
                RULES[first] + way, proxy % "first",
                "/%s/%s/%s/" % (kind, first, then)))
    return "".join(conf)


class Request:
    at_first = False            # the first location is where the request ends

    def __init__(self, gateway, backend, kind, first, then):
        self.lock = next(_locks)
        self.then = then
        self.backend = backend
        self.client = gateway.connect().send(
            "GET", "/%s/%s/%s/" % (kind, first, then), None,
            {"X-Lock": self.lock})
        if kind in FIRST and not self.at_first:
            seen = backend.next()
            assert seen.headers["X-Then"] == "first"
            FIRST[kind](seen, then)

    def served(self):
        """The request has come to the second location's application."""
        seen = self.backend.next()
        assert seen.headers["X-Then"] == self.then
        return seen


class Refused(Request):
    """The first location's rules refuse the request."""

    at_first = True


@pytest.fixture(scope="module")
def app():
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture
def site(start_gateway, app):
    return start_gateway(server=locations(app), http=LOG)


@pytest.mark.parametrize("kind", KINDS)
def test_the_lock_is_held_once(site, app, tree, kind):
    """By the first location already, and until the request has ended."""
    for first, then in KEPT + [("none", "strict"), ("strict", "none"),
                               ("write", "shared")]:
        request = Request(site, app, kind, first, then)
        seen = request.served()
        path = site.znode(request.lock)
        held = (kind, then) != ("rewrite", "none")
        assert len(tree.claims(path)) == held, (first, then)
        seen.answer()
        assert request.client.response().status == 200, (first, then)
        tree.wait_claims(path, 0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "rewrite"])
def test_another_mode(site, app, tree, kind):
    """A request does not wait for itself; a writer may read, though."""
    for first, then in ("shared", "write"), ("strict", "shared"):
        request = Request(site, app, kind, first, then)
        problem(request.client.response(), 400, "two modes")
        tree.wait_claims(site.znode(request.lock), 0)
    assert app.idle()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_request_shows(site, app, kind):
    """A request that holds a lock by itself shows no token of a holder."""
    for first in "none", "strict":
        request = Request(site, app, kind, first, "require")
        problem(request.client.response(), 423)
    assert app.idle()


def test_zookeeper_is_away(private_zookeeper, start_gateway, app):
    """A lock that was passed without is not held behind the redirect."""
    private_zookeeper.start()
    gateway = start_gateway(server=locations(app), http=LOG,
                            zookeeper=private_zookeeper)
    private_zookeeper.freeze()

    try:
        for kind in KINDS:
            both = Request(gateway, app, kind, "pass", "pass")
            both.served().answer()
            assert both.client.response().status == 200, kind

            strict = Request(gateway, app, kind, "pass", "strict")
            assert strict.client.response().status == 503, kind

            first = "strict" if kind != "rewrite" else "none"
            refused = Refused(gateway, app, kind, first,
                              "pass" if kind != "rewrite" else "strict")
            assert refused.client.response().status == 503, kind
            assert app.idle(), kind
    finally:
        private_zookeeper.thaw()
