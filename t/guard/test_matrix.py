"""Guarded requests: each content, in each version of HTTP, at each event.

A case is a request with a lock and a log line of its own, so the cases of a
test can go on at the same time.  Events that are quick have a gateway for all
tests; slow events have a gateway each, and meet all cases at once.
"""

import itertools
import os
import signal

import pytest

from lib.backend import Backend
from lib.client import encode
from lib.exchanges import PROTOCOLS, begin
from lib.guards import LOG, SOON, Line, location, lose
from lib.process import alive, wait_until, whole_lines

SMALL = b"0123456789"
LARGE = b"0123456789abcdef" * 600

PROXY = """\
proxy_pass http://{%s};
proxy_set_header X-Fencing-Token $zk_lock_fencing_token;
"""

HTTP = PROXY % "http"

UWSGI = """\
uwsgi_pass {uwsgi};
uwsgi_param REQUEST_METHOD $request_method;
uwsgi_param REQUEST_URI $request_uri;
uwsgi_param CONTENT_LENGTH $content_length;
uwsgi_param HTTP_X_FENCING_TOKEN $zk_lock_fencing_token;
"""

PUT = """\
root {root};
dav_methods PUT;
create_full_put_path on;
"""


class Content:
    """What a guarded location does, and the request for that."""

    def __init__(self, conf, status=200, method="GET", body=None, headers=None,
                 upstream=None, held_back=0, slow=True, protocols=PROTOCOLS,
                 locked=True):
        self.conf = conf
        self.status = status
        self.method = method
        self.body = body
        self.headers = headers
        self.upstream = upstream    # of Site.backends
        self.held_back = held_back  # bytes of the body that come later
        self.slow = slow            # whether the test says when the end comes
        self.protocols = protocols
        self.locked = locked


CONTENTS = {
    "buffered": Content(HTTP, upstream="http"),
    "posted": Content(HTTP, upstream="http", method="POST", body=LARGE),
    "unbuffered": Content(HTTP + "proxy_buffering off;", upstream="http"),
    "streamed": Content(
        HTTP + "proxy_buffering off; proxy_request_buffering off;\n"
        "zk_lock_request_body off;",
        upstream="http", method="POST", body=LARGE),
    "uwsgi": Content(UWSGI, upstream="uwsgi", method="POST", body=SMALL),
    "websocket": Content(
        HTTP + "proxy_http_version 1.1;\n"
        "proxy_set_header Upgrade $http_upgrade;\n"
        "proxy_set_header Connection upgrade;",
        status=101, upstream="http", protocols=["1.1"],
        headers={"Connection": "Upgrade", "Upgrade": "websocket"}),
    "file": Content("root {root}; limit_rate 16k;"),
    "upload": Content(PUT + "zk_lock_request_body off;", status=201,
                      method="PUT", body=SMALL, held_back=5),
    "put": Content(PUT, status=201, method="PUT", body=SMALL, slow=False),
    "put_large": Content(PUT, status=201, method="PUT", body=LARGE,
                         slow=False),
    "nothing": Content("try_files /nonexistent =204;", status=204, slow=False),
    "return": Content("return 204;", status=204, slow=False, locked=False),
}

# a backend of its own shows connections; no server listens on port 1
OTHERS = {
    "streamed_half": Content(
        PROXY % "half" + "proxy_buffering off; proxy_request_buffering off;\n"
        "zk_lock_request_body off;",
        upstream="half", method="POST", body=LARGE, held_back=5),
    "refused_buffered": Content("proxy_pass http://127.0.0.1:1;", status=502),
    "refused_unbuffered": Content(
        "proxy_pass http://127.0.0.1:1; proxy_buffering off;\n"
        "proxy_request_buffering off; zk_lock_request_body off;",
        status=502, method="POST", body=SMALL),
    "refused_uwsgi": Content("uwsgi_pass 127.0.0.1:1;", status=502),
}

ALL = [(name, protocol) for name, content in CONTENTS.items()
       for protocol in content.protocols]
LOCKED = [pair for pair in ALL if CONTENTS[pair[0]].locked]
SLOW = [pair for pair in ALL if CONTENTS[pair[0]].slow]
FILES = [pair for pair in ALL if pair[0] == "file"]
UPSTREAM = [pair for pair in ALL if CONTENTS[pair[0]].upstream]

# whether the client has the header; of a file the client has, of an upload not
MOMENTS = [pair + (behind,) for pair in SLOW for behind in (False, True)
           if pair[0] != ("upload" if behind else "file")]

RULES = {
    "wait": "zk_lock $arg_lock wait=1m;",
    "brief": "zk_lock $arg_lock wait=100ms;",
    "pass": "zk_lock $arg_lock wait=1m; zk_lock_unreachable pass;",
    "continue": "zk_lock $arg_lock wait=1m; zk_lock_lost continue;",
}

_numbers = itertools.count(1)


class Site:
    """A gateway whose locations /RULES/CONTENT/ are guarded."""

    def __init__(self, make, directory, tree, **options):
        self.tree = tree
        self.root = str(directory)
        self.backends = {"http": Backend(), "uwsgi": Backend(uwsgi=True),
                         "half": Backend()}
        self.seen = {}
        os.chmod(self.root, 0o755)
        options["http"] = (LOG + "client_body_buffer_size 1k;\n"
                           + options.get("http", ""))
        self.gateway = make(server=self._locations(), **options)

    def _locations(self):
        values = {name: backend.address
                  for name, backend in self.backends.items()}
        return "".join(
            location(rules, content.conf.format(root=self.root, **values),
                     "/%s/%s/" % (rule, name))
            for rule, rules in RULES.items()
            for name, content in dict(CONTENTS, **OTHERS).items())

    def close(self):
        for backend in self.backends.values():
            backend.close()

    def find(self, name, lock, timeout=SOON):
        """The request for the lock that has come to a backend."""
        backend = self.backends[name]
        while lock not in self.seen:
            seen = backend.next(timeout)
            self.seen[seen.path.rpartition("=")[2]] = seen
        return self.seen.pop(lock)

    def came(self, name, lock):
        """Whether a request for the lock has come to a backend."""
        backend = self.backends[name]
        while not backend.idle():
            seen = backend.next()
            self.seen[seen.path.rpartition("=")[2]] = seen
        return lock in self.seen


class Case:
    """A guarded request, and the lock, whose name is that of the case."""

    def __init__(self, site, content, protocol, rule="wait", size=10):
        self.site = site
        self.gateway = site.gateway
        self.content = CONTENTS.get(content) or OTHERS[content]
        self.protocol = protocol
        self.name = "%s-%s-%d" % (content, protocol, next(_numbers))
        self.uri = "/%s/%s/%s" % (rule, content, self.name)
        self.znode = site.gateway.znode(self.name)
        self.seen = None
        self.begun = False
        self.exchange = None
        self.holder = None
        if content == "file":
            self._make_file(size)

    def __repr__(self):
        return self.name

    def _make_file(self, size):
        path = self.site.root + self.uri
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(b"x" * size)

    # before

    def hold(self):
        """Another client takes the lock."""
        self.holder = self.gateway.hold(self.name)
        return self

    def release(self):
        self.gateway.release(self.name, self.holder.token)

    def hold_by_hand(self):
        """A client that is no gateway takes the lock."""
        self.holder = self.site.tree.make_claim(self.znode)
        return self

    def release_by_hand(self):
        self.site.tree.delete(self.holder)

    # the request

    def begin(self):
        content = self.content
        self.exchange = begin(self.protocol, self.gateway, content.method,
                              self.uri + "?lock=" + self.name,
                              content.headers, content.body,
                              content.held_back)
        return self

    def waits(self):
        """The request waits behind the holder, and went no further."""
        self.claims(2)
        assert self.untouched()
        return self

    def served(self, behind=False):
        """The request is being served; behind: the client has the header."""
        self.claims(1)
        if self.content.upstream:
            self.reached()
        else:
            self.gateway.catch_up(self.name)    # the worker knows of the grant
        if behind:
            self.begin_answer()
        return self

    def reached(self):
        """The upstream has the request, with the body and fencing token."""
        self.seen = self.site.find(self.content.upstream, self.name)
        assert self.seen.method == self.content.method
        assert self.seen.body == (self.content.body or b"")
        return self.seen

    def begin_answer(self):
        if self.content.status == 101:
            self.seen.switch()
        elif self.content.upstream:
            self.seen.begin(200)
            self.seen.send(LARGE)
        self.begun = True
        self.exchange.header()

    def finish(self, lives=True):
        """The request is served to the end; returns the log's line.

        lives: the connection takes another request then.
        """
        content = self.content
        if content.status == 101:
            return self._finish_websocket()
        if content.upstream and not self.begun:
            seen = self.seen or self.reached()
            seen.answer(200, LARGE)
        elif content.upstream:
            self.seen.end()
        self.exchange.finish()
        response = self.exchange.response(lives)
        assert response.status == content.status, self
        if content.upstream:
            assert response.body == LARGE
        if content.method == "PUT":
            with open(self.site.root + self.uri, "rb") as f:
                assert f.read() == content.body
        return self.line()

    def _finish_websocket(self):
        seen = self.seen or self.reached()
        if not self.begun:
            seen.switch()
        assert self.exchange.answer().status == 101
        self.talk()
        seen.end()
        assert self.exchange.connection.closed_by_server()
        return self.line()

    def talk(self):
        """Both directions of a connection that has switched."""
        self.exchange.connection.socket.sendall(b"ping")
        assert self.seen.receive(4) == b"ping"
        self.seen.send(b"pong")
        assert self.exchange.exactly(4) == b"pong"

    # behind

    def claims(self, number):
        self.site.tree.wait_claims(self.znode, number)

    def untouched(self):
        """Whether neither an upstream nor the disk has seen the request."""
        if self.content.upstream:
            return not self.site.came(self.content.upstream, self.name)
        if self.content.method == "PUT":
            return not os.path.exists(self.site.root + self.uri)
        return True

    def line(self):
        """The line of the access log."""
        def find():
            path = self.gateway.prefix + "/guarded.log"
            lines = [read_line(text) for text in whole_lines(path)]
            return [line for line in lines if line.uri == self.uri]

        lines = wait_until(find, SOON, "a line of %s" % self)
        assert len(lines) == 1
        return lines[0]

    def logged(self, status, outcome):
        """The line of the access log, which says so."""
        line = self.line()
        name = self.name if self.content.locked else ""
        assert line[:3] == (str(status), name, outcome), self
        return line

    def ended(self, status, outcome, claims=0):
        """The line says so, and no claim of the request is left."""
        line = self.logged(status, outcome)
        self.claims(claims)
        return line

    def cut(self):
        """No whole answer comes, and the upstream is cut off, too."""
        if self.content.status == 101 and self.begun:
            assert self.exchange.answer().status == 101
            assert self.exchange.connection.closed_by_server()
        else:
            self.exchange.cut()
        if self.seen:
            self.seen.wait_cut()


def read_line(text):
    """A line of the access log; a variable without a value is empty."""
    return Line(*("" if value == "-" else value for value in text.split("|")))


def granted(case, line):
    """The request was served under the lock."""
    assert line == case.ended(case.content.status, "granted")
    assert int(line.fencing) > 0 and line.fencings == line.fencing
    if case.seen:
        assert case.seen.headers["X-Fencing-Token"] == line.fencing


@pytest.fixture(scope="module")
def shared_site(start_shared, tmp_path_factory, tree):
    site = Site(start_shared, tmp_path_factory.mktemp("files"), tree)
    yield site
    site.close()


@pytest.fixture
def site(shared_site):
    """The gateway of all tests, which no test may harm."""
    workers = shared_site.gateway.worker_pids()
    yield shared_site
    assert shared_site.gateway.worker_pids() == workers
    assert not shared_site.gateway._bad_lines()


@pytest.fixture
def make_site(start_gateway, tmp_path, tree):
    """Makes a gateway for a test alone."""
    sites = []

    def make(**options):
        files = tmp_path / ("files%d" % len(sites))
        files.mkdir()
        options.setdefault("tree", tree)
        sites.append(Site(start_gateway, files, **options))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


# quick events


@pytest.mark.parametrize("content, protocol", ALL)
def test_lock_is_free(site, content, protocol):
    case = Case(site, content, protocol).begin()
    line = case.finish()
    if case.content.locked:
        granted(case, line)
    else:
        assert line == case.ended(204, "")
        assert line.fencings == ""
        assert site.tree.claims(case.znode) == []


@pytest.mark.parametrize("content, protocol", LOCKED)
def test_busy_then_granted(site, content, protocol):
    case = Case(site, content, protocol).hold().begin().waits()
    case.release()
    line = case.finish()
    granted(case, line)
    assert int(line.fencing) > case.holder.fencing


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_return_takes_no_lock(site, protocol):
    """The answer comes although another client holds the lock."""
    case = Case(site, "return", protocol).hold().begin()
    case.finish()
    case.ended(204, "", claims=1)
    case.release()


@pytest.mark.parametrize("content, protocol", LOCKED)
def test_busy_to_the_end(site, content, protocol):
    cases = []

    def ask():
        case = Case(site, content, protocol, "brief").hold().begin()
        cases.append(case)
        return (case.exchange.answer() if case.content.held_back
                else case.exchange.response())

    response = site.gateway.in_reach(ask)
    *unreachable, case = cases
    for other in unreachable:
        other.exchange.finish()
        other.release()
        other.ended(503, "unreachable")
    assert response.status == 423
    assert response.headers["Content-Type"] == "application/problem+json"
    case.exchange.finish()
    line = case.ended(423, "taken", claims=1)
    assert line.fencings == ""
    assert case.untouched()
    case.release()
    case.claims(0)


@pytest.mark.parametrize("reset", [False, True], ids=["leaves", "reset"])
@pytest.mark.parametrize("content, protocol", LOCKED)
def test_client_leaves_while_waiting(site, content, protocol, reset):
    case = Case(site, content, protocol).hold().begin().waits()
    case.exchange.leave(reset)
    line = case.ended(499, "gone", claims=1)
    assert line.fencings == ""
    case.release()
    case.claims(0)
    assert case.untouched()


@pytest.mark.parametrize("content, protocol, behind", MOMENTS)
def test_client_leaves_while_served(site, content, protocol, behind):
    case = Case(site, content, protocol, size=200000).begin().served(behind)
    case.exchange.leave(reset=True)
    if case.seen:
        case.seen.wait_cut()
    case.ended(case.content.status if behind
               else 400 if content == "upload" and protocol != "2"
               else 499, "granted")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("content", ["refused_buffered", "refused_unbuffered",
                                     "refused_uwsgi"])
def test_upstream_refuses(site, content, protocol):
    case = Case(site, content, protocol).begin()
    granted(case, case.finish())


@pytest.mark.parametrize("content, protocol", UPSTREAM)
def test_upstream_closes_without_an_answer(site, content, protocol):
    case = Case(site, content, protocol).begin().served()
    case.seen.end()
    assert case.exchange.response().status == 502
    case.ended(502, "granted")


@pytest.mark.parametrize("content, protocol", UPSTREAM)
def test_upstream_closes_within_the_answer(site, content, protocol):
    case = Case(site, content, protocol).begin().served()
    case.seen.begin(200, 1000)
    case.seen.send(SMALL)
    case.seen.end()
    case.exchange.cut()
    case.ended(200, "granted")


def test_websocket_holds_as_long_as_the_connection(site):
    case = Case(site, "websocket", "1.1").begin().served(behind=True)
    assert case.exchange.answer().status == 101
    case.talk()
    assert site.gateway.acquire(case.name, wait="0").status == 423
    case.talk()
    case.exchange.leave()
    case.seen.wait_cut()
    granted(case, case.line())


def test_pipelined_requests_lock_in_turn(site):
    """Two guarded requests at once on a connection: one lock after another."""
    cases = [Case(site, "buffered", "1.1") for _ in range(2)]
    connection = site.gateway.connect()
    connection.send_bytes(b"".join(
        encode("GET", case.uri + "?lock=" + case.name) for case in cases))
    for case in cases:
        case.served()
        assert all(other.untouched() for other in cases if not other.seen)
        case.seen.answer(200, b"hello\n")
        assert connection.response().body == b"hello\n"
        granted(case, case.line())
    first, second = (int(case.line().fencing) for case in cases)
    assert first < second


def test_streams_have_claims_each(site):
    """Two streams of a connection wait for one lock, and one leaves."""
    case = Case(site, "buffered", "2").hold()
    connection = site.gateway.connect_http2()
    path = case.uri + "?lock=" + case.name
    gone, stays = (connection.send("GET", path) for _ in range(2))
    case.claims(3)
    connection.cancel(gone)
    case.claims(2)
    case.release()
    case.reached().answer()
    assert connection.response(stays).status == 200
    case.claims(0)


# slow events, which meet all cases at once


def cases_of(site, pairs, rule="wait", size=10):
    return [Case(site, content, protocol, rule, size)
            for content, protocol in pairs]


def lose_all(cases):
    """Deletes the claims by hand; a gateway looks at a held one within 2 s."""
    for case in cases:
        lose(case.site.tree, case.gateway, case.name)


def test_lost_before_the_header(site):
    """503 if an upstream works on the request."""
    cases = [case.begin().served() for case in cases_of(site, UPSTREAM)]
    lose_all(cases)
    for case in cases:
        response = case.exchange.response()
        assert response.status == 503, case
        assert "lost" in response.json["detail"]
        case.seen.wait_cut()
        case.ended(503, "lost")


def test_lost_within_an_upload(site):
    """There is no upstream yet whose end would make an answer safe."""
    cases = [case.begin().served() for case
             in cases_of(site, [("upload", protocol)
                                for protocol in PROTOCOLS])]
    lose_all(cases)
    for case in cases:
        case.exchange.cut()
        assert case.line().outcome == "lost"
        assert case.untouched()
        case.claims(0)


def test_lost_while_a_body_is_passed_on(site):
    """An upstream that has a part of the body is cut off, and 503 is safe."""
    backend = site.backends["half"]
    cases = [case.begin() for case in
             cases_of(site, [("streamed_half", protocol)
                             for protocol in PROTOCOLS])]
    wait_until(lambda: backend.connections() == len(cases), SOON,
               "the upstream")
    for case in cases:
        case.claims(1)
    lose_all(cases)
    for case in cases:
        assert case.exchange.answer().status == 503
    wait_until(lambda: backend.connections() == 0, SOON, "the cut")
    for case in cases:
        case.exchange.leave(reset=True)
        case.ended(503, "lost")
        assert case.untouched()


def test_lost_behind_the_header(site):
    """The answer does not look whole: the connection, or stream, is reset."""
    pairs = [pair for pair in SLOW if pair[0] != "upload"]
    cases = [case.begin().served(behind=True)
             for case in cases_of(site, pairs, size=200000)]
    lose_all(cases)
    for case in cases:
        case.cut()
        case.ended(case.content.status, "lost")


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_lost_and_served_on(site, behind):
    cases = [case.begin().served(behind)
             for case in cases_of(site, UPSTREAM, "continue")]
    lose_all(cases)
    for case in cases:
        wait_until(lambda: '%s" was lost' % case in site.gateway.log_text(),
                   SOON, "the loss of %s" % case)
        case.finish()
        case.ended(case.content.status, "lost")


# events of the gateway and of ZooKeeper, each with a gateway of its own


def waiting(site, pairs=LOCKED, rule="wait"):
    """All contents at once, behind locks that are taken."""
    return [case.waits() for case in
            [case.hold_by_hand().begin()
             for case in cases_of(site, pairs, rule)]]


def serving(site, pairs, behind=False, rule="wait", size=200000):
    """All contents at once, which hold the locks."""
    return [case.served(behind) for case in
            [case.begin() for case in cases_of(site, pairs, rule, size)]]


def finished(cases, outcome="granted", lives=True):
    for case in cases:
        case.finish(lives)
        case.ended(case.content.status, outcome)


def not_served(cases):
    for case in cases:
        assert case.untouched()
        case.release_by_hand()
    for case in cases:
        case.claims(0)


def gone(pids):
    wait_until(lambda: not any(alive(pid) for pid in pids), 30,
               "the workers %s are gone" % pids)


def test_zookeeper_away_for_a_moment(private_zookeeper, connect_tree,
                                     make_site):
    """Requests that hold or wait go on; others are refused, or pass."""
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    site = make_site(tree=tree, zookeeper=private_zookeeper,
                     session_timeout="60s", http="zk_lock_timeout 500ms;")
    waiters = waiting(site, UPSTREAM)
    served = serving(site, UPSTREAM)
    private_zookeeper.kill()

    refused = [case.begin() for case in cases_of(site, LOCKED, "brief")]
    passing = [case.begin() for case in cases_of(site, LOCKED, "pass")]
    for case in refused:
        assert case.exchange.answer().status == 503, case
        case.exchange.finish()
        assert case.logged(503, "unreachable").fencings == ""
        assert case.untouched()
    for case in passing:
        line = case.finish()
        assert line == case.logged(case.content.status, "unlocked")
        assert line.fencings == ""
        if case.seen:
            assert not case.seen.headers.get("X-Fencing-Token")

    private_zookeeper.start()
    tree.wait_back()
    site.gateway.wait_served()
    finished(served)
    for case in waiters:
        case.release_by_hand()
    finished(waiters)
    for case in refused + passing:
        case.claims(0)


def test_zookeeper_away_for_long(private_zookeeper, connect_tree, make_site):
    """The locks are lost, and the requests that hold the locks cut off."""
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    site = make_site(tree=tree, zookeeper=private_zookeeper,
                     session_timeout="10s")
    before = serving(site, UPSTREAM)
    behind = serving(site, [pair for pair in SLOW if pair[0] != "upload"],
                     behind=True, size=1000000)
    served_on = serving(site, UPSTREAM, rule="continue")
    private_zookeeper.kill()
    for case in before:
        assert case.exchange.response().status == 503
        case.seen.wait_cut()
        case.logged(503, "lost")
    for case in behind:
        case.cut()
        case.logged(case.content.status, "lost")
    for case in served_on:
        case.finish()
        case.logged(case.content.status, "lost")
    private_zookeeper.start()
    tree.wait_back()
    for case in before + behind + served_on:
        # ZooKeeper times the sessions anew
        tree.wait_claims(case.znode, 0, 30)


def test_reload_while_waiting(make_site):
    """The old workers go on waiting, and serve."""
    site = make_site()
    cases = waiting(site)
    old = site.gateway.reload()
    assert all(alive(pid) for pid in old)
    for case in cases:
        case.release_by_hand()
    finished(cases, lives=False)
    gone(old)


def test_reload_while_served(make_site):
    site = make_site()
    cases = serving(site, [pair for pair in SLOW if pair[0] != "file"])
    cases += serving(site, FILES, behind=True, size=64000)
    cases += serving(site, UPSTREAM, behind=True)
    old = site.gateway.reload()
    assert all(alive(pid) for pid in old)
    finished(cases, lives=False)
    gone(old)


def test_killed(make_site):
    """The claims of a worker that is killed go with the session."""
    site = make_site()
    waiters = waiting(site)
    served = serving(site, UPSTREAM) + serving(site, SLOW[-4:])
    for pid in site.gateway.worker_pids():
        site.gateway.kill_worker(pid)
    for case in waiters + served:
        case.exchange.cut()
    for case in served:
        if case.seen:
            case.seen.wait_cut()
        case.claims(0)
    for case in waiters:
        case.claims(1)
    not_served(waiters)
    site.gateway.wait_served()
    finished(case.begin() for case in cases_of(site, UPSTREAM))


def test_shutdown_timeout_while_waiting(make_site):
    """The waiters are refused, and may come again."""
    site = make_site(main="worker_shutdown_timeout 1s;")
    cases = waiting(site)
    old = site.gateway.reload()
    for case in cases:
        response = case.exchange.answer()
        assert response.status == 503, case
        assert response.headers["Retry-After"] == "1"
        case.ended(503, "shut", claims=1)
    not_served(cases)
    gone(old)


def test_shutdown_timeout_while_served(make_site):
    """nginx cuts the requests off, and the locks are released.

    Of an answer without a length HTTP/1.0 has no end that would show the cut.
    """
    site = make_site(main="worker_shutdown_timeout 1s;")
    before = serving(site, [pair for pair in SLOW if pair[0] != "file"])
    behind = serving(site, FILES + [pair for pair in UPSTREAM
                                    if pair[1] != "1.0"], behind=True)
    old = site.gateway.reload()
    for case in before:
        case.cut()
        case.ended(499 if case.protocol == "2" else "000", "granted")
    for case in behind:
        case.cut()
        case.ended(case.content.status, "granted")
    gone(old)


def test_quit(make_site):
    """What is served is served to the end; waiters are refused."""
    site = make_site()
    waiters = waiting(site)
    served = serving(site, [pair for pair in SLOW if pair[0] != "file"])
    served += serving(site, FILES, behind=True, size=64000)
    site.gateway.process.send_signal(signal.SIGQUIT)
    for case in waiters:
        response = case.exchange.answer()
        assert response.status == 503, case
        case.ended(503, "shut", claims=1)
    finished(served, lives=False)
    site.gateway.process.wait(30)
    site.gateway.process = None
    wait_until(lambda: not site.gateway.left(), SOON, "all processes are gone")
    not_served(waiters)
