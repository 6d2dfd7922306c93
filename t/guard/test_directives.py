"""zk_lock together with the other directives of nginx, and with other clients.

The tests of access control hold the lock by the API meanwhile: a request that
asked for the lock would get 423.
"""

import contextlib
import threading

import pytest

from lib.backend import Backend
from lib.checks import problem, retry_after, wait_over
from lib.client import Gone
from lib.guards import SOON, begin, free, location, log, lose
from lib.process import wait_until
from lib.queues import Kazoo

CUT = (Gone, ConnectionResetError)
NOW = "zk_lock one wait=0;"
USER = {"Authorization": "Basic dXNlcjpzZWNyZXQ="}      # user:secret


@pytest.fixture
def quick():
    """An application that answers at once."""
    backend = Backend(work=lambda seen: (200, b"quick\n"))
    yield backend
    backend.close()


@pytest.fixture
def users(tmp_path):
    """auth_basic, with one user."""
    path = tmp_path / "users"
    path.write_text("user:{PLAIN}secret\n")
    return "auth_basic x; auth_basic_user_file %s;" % path


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "files"
    path.mkdir()
    return path


def proxy(backend):
    return "proxy_pass http://%s;" % backend.address


def taken(gateway, name="one"):
    """Another client does not get the lock now."""
    problem(gateway.acquire(name, wait="0"), 423)


def available(gateway, name="one"):
    """Another client gets the lock now."""
    response = gateway.acquire(name, wait="0")
    assert response.status == 201, response
    assert gateway.release(name, response.token).status == 204


def served(backend, client, body=b"done\n"):
    """The request comes to the application, which answers."""
    backend.next().answer(200, body)
    response = client.response()
    assert (response.status, response.body) == (200, body)


def alive(gateway, workers):
    assert set(gateway.worker_pids()) == set(workers)


# access control and limits

def test_auth_basic(guarded, backend, tree, users):
    """A client that may not pass takes no lock."""
    gateway = guarded(NOW + users)
    holder = gateway.hold("one")
    assert gateway.call("GET", "/app/").status == 401
    assert log(gateway, 1).outcome == "-"
    problem(gateway.call("GET", "/app/", headers=USER), 423)
    gateway.release("one", holder.token)
    client = begin(gateway, headers=USER)
    served(backend, client)
    free(tree, gateway)


def test_satisfy_any(guarded, backend, tree, users):
    gateway = guarded(NOW + users + "satisfy any; deny all;")
    holder = gateway.hold("one")
    assert gateway.call("GET", "/app/").status == 401
    problem(gateway.call("GET", "/app/", headers=USER), 423)
    gateway.release("one", holder.token)
    served(backend, begin(gateway, headers=USER))
    free(tree, gateway)


def test_limit_req(guarded, backend):
    """A delayed request asks for the lock after the delay."""
    # one worker takes the requests in their order
    gateway = guarded(NOW + "limit_req zone=rate burst=1;",
                      http="limit_req_zone $server_port zone=rate:1m "
                           "rate=12r/m;\n", workers=1)
    holder = gateway.hold("one")
    problem(gateway.call("GET", "/app/"), 423)
    gateway.release("one", holder.token)
    delayed = begin(gateway)
    assert gateway.call("GET", "/app/").status == 503
    assert log(gateway, 2).outcome == "-"
    holder = gateway.hold("one")
    assert delayed.silent_for(0)
    problem(delayed.response(), 423)
    gateway.release("one", holder.token)
    assert backend.idle()


def test_limit_conn(guarded, backend, tree):
    """A request that waits for the lock counts as a connection."""
    gateway = guarded("zk_lock one; limit_conn all 1;",
                      http="limit_conn_zone $server_port zone=all:1m;\n")
    holder = gateway.hold("one")
    client = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 2)
    assert gateway.call("GET", "/app/").status == 503
    assert log(gateway, 1).outcome == "-"
    gateway.release("one", holder.token)
    served(backend, client)
    free(tree, gateway)


@pytest.fixture
def asking(guarded, backend):
    """auth_request; the lock is inherited by both locations."""
    return guarded("auth_request /auth;", server="zk_lock one;\n"
                   + location("internal;", proxy(backend), "= /auth"))


def test_auth_request(asking, backend, tree):
    """The subrequest takes no lock."""
    client = begin(asking)
    question = backend.next()
    assert question.path == "/auth"
    available(asking)
    question.answer(204, b"")
    seen = backend.next()
    assert seen.path == "/app/"
    taken(asking)
    seen.answer()
    assert client.response().status == 200
    free(tree, asking)


def test_auth_request_refuses(asking, backend):
    holder = asking.hold("one")
    client = begin(asking)
    backend.next().answer(403, b"")
    assert client.response().status == 403
    assert log(asking, 1).outcome == "-"
    asking.release("one", holder.token)


# internal redirects

def inner(gateway, client, backend, tree, names, uri):
    """The request is served at another location, with these locks."""
    seen = backend.next()
    for name in names:
        assert len(tree.claims(gateway.znode(name))) == 1
        taken(gateway, name)
    seen.answer()
    assert client.response().status == 200
    for name in names:
        free(tree, gateway, name)
    line = log(gateway, 1)
    assert line[:3] == ("200", names[0], "granted")
    assert line.uri == uri
    tokens = line.fencings.split(",")
    assert len(tokens) == len(names)
    assert line.fencing == tokens[0]


@pytest.mark.parametrize("names", [["one"], ["one", "two"], ["two", "one"]])
def test_try_files(guarded, backend, tree, names):
    """A lock is not taken twice; a new one is taken in addition."""
    other = "".join("zk_lock %s;" % name for name in {"one", names[-1]})
    gateway = guarded("zk_lock %s;" % names[0],
                      "try_files /none /other/file;",
                      location("internal;" + other, proxy(backend), "/other/"))
    inner(gateway, begin(gateway), backend, tree, names, "/other/file")


def test_x_accel_redirect(guarded, backend, tree):
    """The first lock stays held, the second is waited for."""
    gateway = guarded(server=location("internal; zk_lock two;",
                                      proxy(backend), "/inner/"))
    holder = gateway.hold("two")
    client = begin(gateway)
    backend.next().answer(200, b"", {"X-Accel-Redirect": "/inner/file"})
    tree.wait_claims(gateway.znode("two"), 2)
    taken(gateway, "one")
    assert backend.idle()
    gateway.release("two", holder.token)
    inner(gateway, client, backend, tree, ["one", "two"], "/inner/file")


def test_refused_behind_a_redirect(guarded, backend, tree):
    gateway = guarded(server=location("internal; zk_lock two wait=0;",
                                      proxy(backend), "/inner/"))
    holder = gateway.hold("two")
    client = begin(gateway)
    backend.next().answer(200, b"", {"X-Accel-Redirect": "/inner/file"})
    problem(client.response(), 423)
    free(tree, gateway)
    assert backend.idle()
    gateway.release("two", holder.token)


def test_first_lock_is_lost_behind_a_redirect(guarded, backend, tree):
    gateway = guarded(server=location("internal; zk_lock two;",
                                      proxy(backend), "/inner/"))
    client = begin(gateway)
    backend.next().answer(200, b"", {"X-Accel-Redirect": "/inner/file"})
    seen = backend.next()
    lose(tree, gateway)
    assert client.response().status == 503
    seen.wait_cut()
    free(tree, gateway, "two")


def test_first_lock_is_lost_while_the_second_waits(guarded, backend, tree):
    gateway = guarded(server=location("internal; zk_lock two;",
                                      proxy(backend), "/inner/"))
    holder = gateway.hold("two")
    client = begin(gateway)
    backend.next().answer(200, b"", {"X-Accel-Redirect": "/inner/file"})
    tree.wait_claims(gateway.znode("two"), 2)
    lose(tree, gateway)
    problem(client.response(), 503, "lost")
    tree.wait_claims(gateway.znode("two"), 1)
    assert backend.idle()
    gateway.release("two", holder.token)


def test_lost_while_the_body_still_comes(guarded, backend, tree):
    """The refused request asks for nothing more, although it is not over."""
    gateway = guarded("zk_lock one; zk_lock_request_body off;",
                      "try_files /none /other/file;",
                      location("internal; zk_lock two; "
                               "zk_lock_request_body off;",
                               proxy(backend), "/other/"))
    holder = gateway.hold("two")
    client = gateway.connect()
    client.send_bytes(b"POST /app/ HTTP/1.1\r\nHost: x\r\n"
                      b"Content-Length: 10\r\n\r\nhalf")
    tree.wait_claims(gateway.znode("two"), 2)
    lose(tree, gateway)
    problem(client.response(), 503, "lost")
    gateway.release("two", holder.token)
    free(tree, gateway, "two")
    assert backend.idle()
    client.socket.sendall(b"behind")
    client.send("GET", "/ready")
    assert client.response().status == 204


def test_index(guarded, files, tree):
    """The redirect to the index of a folder takes the lock once."""
    (files / "app").mkdir()
    (files / "app" / "index.html").write_text("index\n")
    gateway = guarded(content="index index.html; root %s;" % files)
    response = gateway.call("GET", "/app/")
    assert (response.status, response.body) == (200, b"index\n")
    free(tree, gateway)
    line = log(gateway, 1)
    assert (line.outcome, line.uri) == ("granted", "/app/index.html")
    assert line.fencing == line.fencings


# error pages

def test_error_page(guarded, quick, backend):
    """The page takes no lock, although its location inherits one."""
    gateway = guarded("error_page 423 = @busy;",
                      server=NOW + location("", proxy(quick), "@busy"))
    holder = gateway.hold("one")
    response = gateway.call("GET", "/app/")
    assert (response.status, response.body) == (200, b"quick\n")
    assert retry_after(response) == 1
    assert log(gateway, 1)[:3] == ("200", "one", "taken")
    assert backend.idle() and quick.total == 1
    gateway.release("one", holder.token)


def test_error_page_of_a_file(guarded, files):
    """Without "=" the status stays, and a POST gets the page, too."""
    (files / "busy.html").write_text("busy\n")
    gateway = guarded("error_page 423 /busy.html;",
                      server=NOW + location("", "root %s;" % files,
                                            "= /busy.html"))
    holder = gateway.hold("one")
    for method, body in (("GET", None), ("POST", b"text")):
        response = gateway.call(method, "/app/", body=body)
        assert (response.status, response.body) == (423, b"busy\n")
        assert retry_after(response) == 1
    gateway.release("one", holder.token)


def test_error_page_when_out_of_reach(guarded, quick):
    gateway = guarded("error_page 503 = @away;",
                      server=NOW + "zk_lock_timeout 300ms;"
                      + location("", proxy(quick), "@away"),
                      servers="127.0.0.1:1", wait_sessions=False)
    response = gateway.call("GET", "/app/")
    assert (response.status, response.body) == (200, b"quick\n")
    assert retry_after(response) == 1
    assert log(gateway, 1).outcome == "unreachable"


def test_recursive_error_pages(guarded, quick):
    """The page of a page takes no lock either."""
    gateway = guarded("error_page 423 = @busy;",
                      server=NOW + "recursive_error_pages on;"
                      + location("error_page 404 = @none;",
                                 "try_files /none =404;", "@busy")
                      + location("", proxy(quick), "@none"))
    holder = gateway.hold("one")
    response = gateway.call("GET", "/app/")
    assert (response.status, response.body) == (200, b"quick\n")
    assert retry_after(response) == 1
    assert log(gateway, 1).outcome == "taken"
    gateway.release("one", holder.token)


def test_error_page_of_the_upstream(guarded, backend, tree):
    """A page for the application's error is served while the lock is held."""
    gateway = guarded("proxy_intercept_errors on; error_page 500 = @wrong;",
                      server="zk_lock one;"
                      + location("", proxy(backend), "@wrong"))
    client = begin(gateway)
    backend.next().answer(500)
    inner(gateway, client, backend, tree, ["one"], "/app/")


# upstreams

def test_next_upstream(guarded, backend, tree):
    """One lock for both tries."""
    with contextlib.closing(Backend()) as second:
        gateway = guarded(
            "zk_lock one; proxy_next_upstream http_503;",
            "proxy_pass http://both;",
            http="upstream both { server %s; server %s backup; }\n"
                 % (backend.address, second.address))
        client = begin(gateway)
        seen = backend.next()
        claims = tree.claims(gateway.znode("one"))
        seen.answer(503)
        seen = second.next()
        assert tree.claims(gateway.znode("one")) == claims
        taken(gateway)
        seen.answer()
        assert client.response().status == 200
        free(tree, gateway)
        line = log(gateway, 1)
        assert line.fencing == line.fencings


@pytest.fixture
def cached(guarded, tmp_path):
    """The rules of a location with a cache."""
    def make(rules):
        return guarded("proxy_cache pages; proxy_cache_valid 200 1h;" + rules,
                       http="proxy_cache_path %s keys_zone=pages:1m;\n"
                            % (tmp_path / "cache"))

    return make


def test_cache(cached, backend, tree):
    """An answer from the cache waits for the lock as well."""
    gateway = cached("zk_lock one;")
    served(backend, begin(gateway))
    free(tree, gateway)
    holder = gateway.hold("one")
    client = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 2)
    gateway.release("one", holder.token)
    assert client.response().status == 200
    free(tree, gateway)
    assert log(gateway, 2).outcome == "granted"
    assert backend.idle()


def two_in_the_cache(gateway, backend, tree):
    """One request at the application, another that waits for the answer."""
    first = begin(gateway)
    seen = backend.next()
    second = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 2)
    return first, seen, second


SEATS = "zk_lock one mode=semaphore permits=2;"
CACHE_LOCK = ("proxy_cache_lock on; proxy_cache_lock_timeout 30s; "
              "proxy_cache_lock_age 30s;")


def test_cache_lock(cached, backend, tree):
    gateway = cached(SEATS + CACHE_LOCK)
    first, seen, second = two_in_the_cache(gateway, backend, tree)
    seen.answer()
    for client in first, second:
        response = client.response()
        assert (response.status, response.body) == (200, b"done\n")
    free(tree, gateway)
    assert backend.idle()


def test_lost_while_the_cache_is_locked(cached, backend, tree):
    gateway = cached(SEATS + CACHE_LOCK)
    workers = gateway.worker_pids()
    first, seen, second = two_in_the_cache(gateway, backend, tree)
    lose(tree, gateway)
    problem(first.response(), 503, "lost")
    seen.wait_cut()
    with pytest.raises(CUT):
        second.response()
    assert backend.idle()
    alive(gateway, workers)


# subrequests, and what changes the answer

@pytest.fixture
def mirrored(guarded, backend):
    return guarded("zk_lock one; mirror /mirror;",
                   server=location("internal; zk_lock two; proxy_set_header "
                                   "X-Token $zk_lock_fencing_token;",
                                   proxy(backend), "= /mirror"))


def both(backend):
    """The requests of the main request and of the mirror."""
    seen = {seen.path: seen for seen in (backend.next(), backend.next())}
    return seen["/app/"], seen["/mirror"]


def test_mirror(mirrored, backend, tree):
    """The mirror takes no lock, and can be told the request's token."""
    client = begin(mirrored)
    main, mirror = both(backend)
    available(mirrored, "two")
    main.answer()
    mirror.answer()
    assert client.response().status == 200
    free(tree, mirrored)
    assert log(mirrored, 1).fencings == mirror.headers["X-Token"]


def test_lost_while_mirrored(mirrored, backend, tree):
    workers = mirrored.worker_pids()
    client = begin(mirrored)
    main, mirror = both(backend)
    lose(tree, mirrored)
    problem(client.response(), 503, "lost")
    main.wait_cut()
    mirror.answer()
    assert log(mirrored, 1)[:3] == ("503", "one", "lost")
    alive(mirrored, workers)


FILTERS = {
    "sub_filter": "sub_filter done gone; sub_filter_types *;",
    "gzip": "gzip on; gzip_types *; gzip_min_length 1;",
}


@pytest.mark.parametrize("what", sorted(FILTERS))
def test_filters(guarded, backend, tree, what):
    gateway = guarded("zk_lock one;" + FILTERS[what])
    client = begin(gateway, headers={"Accept-Encoding": "gzip"})
    backend.next().answer(200, b"done " * 100, {"Content-Type": "text/plain"})
    response = client.response()
    assert response.status == 200
    assert response.body and response.body != b"done " * 100
    free(tree, gateway)


@pytest.mark.parametrize("what", sorted(FILTERS))
def test_lost_in_a_filter(guarded, backend, tree, what):
    """A cut answer does not look whole, although its length is not known."""
    gateway = guarded("zk_lock one; proxy_buffering off;" + FILTERS[what])
    client = begin(gateway, headers={"Accept-Encoding": "gzip"})
    seen = backend.next()
    seen.begin(200, 1000000, {"Content-Type": "text/plain"})
    seen.send(b"done " * 1000)
    lose(tree, gateway)
    with pytest.raises(CUT):
        client.response()
    seen.wait_cut()


@pytest.fixture
def page(guarded, backend, tree):
    """A page that includes a guarded part: (gateway, client, the part)."""
    gateway = guarded("zk_lock one; ssi on;",
                      server=location("zk_lock two;", proxy(backend), "/part"))
    client = begin(gateway)
    backend.next().answer(200, b'<!--# include virtual="/part" -->;',
                          {"Content-Type": "text/html"})
    part = backend.next()
    assert part.path == "/part"
    return gateway, client, part


def test_ssi(page, tree):
    """The subrequest takes no lock, and is served while the lock is held."""
    gateway, client, part = page
    available(gateway, "two")
    taken(gateway)
    part.answer(200, b"part")
    response = client.response()
    assert (response.status, response.body) == (200, b"part;")
    free(tree, gateway)


@pytest.mark.parametrize("begun", [False, True])
def test_lost_in_a_subrequest(page, tree, begun):
    gateway, client, part = page
    workers = gateway.worker_pids()
    if begun:
        part.begin(200, 100)
        part.send(b"text")
    lose(tree, gateway)
    with pytest.raises(CUT):
        client.response()
    part.wait_cut()
    assert log(gateway, 1).outcome == "lost"
    alive(gateway, workers)


# levels of the configuration

def test_if(guarded, quick, tree):
    """A block of if inherits the lock."""
    gateway = guarded("zk_lock one wait=0; if ($arg_x) { set $y 1; }",
                      proxy(quick))
    assert gateway.call("GET", "/app/?x=1").status == 200
    assert log(gateway, 1)[:3] == ("200", "one", "granted")
    free(tree, gateway)
    holder = gateway.hold("one")
    problem(gateway.call("GET", "/app/?x=1"), 423)
    gateway.release("one", holder.token)


def test_limit_except(guarded, quick, tree, users):
    # one worker writes the lines of the log in order
    gateway = guarded(NOW + "limit_except GET { %s }" % users, proxy(quick),
                      workers=1)
    holder = gateway.hold("one")
    assert gateway.call("POST", "/app/").status == 401
    problem(gateway.call("POST", "/app/", headers=USER), 423)
    problem(gateway.call("GET", "/app/"), 423)
    gateway.release("one", holder.token)
    assert gateway.call("GET", "/app/").status == 200
    assert gateway.call("POST", "/app/", headers=USER).status == 200
    free(tree, gateway)
    assert [log(gateway, n).outcome for n in (4, 5)] == ["granted"] * 2


LEVELS = """
    location /a/ { PROXY }
    location /b/ {
        zk_lock b;
        PROXY
        location /b/c/ { PROXY }
        location /b/d/ { zk_lock d; zk_lock e; PROXY }
        location /b/f/ { zk_lock ""; PROXY }
    }
"""


@pytest.mark.parametrize("server, of_all", [("", "all"), ("zk_lock s;", "s"),
                                            ('zk_lock "";', "-")])
def test_inheritance(guarded, quick, server, of_all):
    """A level that has a lock of its own inherits none."""
    gateway = guarded("", proxy(quick), http="zk_lock all;\n",
                      server=server + LEVELS.replace("PROXY", proxy(quick)))
    expected = {"/a/": of_all, "/b/": "b", "/b/c/": "b", "/b/d/": "d",
                "/b/f/": "-"}
    for n, (path, name) in enumerate(expected.items(), 1):
        assert gateway.call("GET", path).status == 200
        line = log(gateway, n)
        assert (line.uri, line.name) == (path, name)
        assert len(line.fencings.split(",")) == (2 if name == "d" else 1)


def test_api_and_metrics_are_not_guarded(guarded):
    """The lock of the server is not that of its API."""
    gateway = guarded("", "try_files /none =204;", server=NOW, metrics=True)
    holder = gateway.hold("one")
    assert gateway.call("GET", "/metrics").status == 200
    problem(gateway.call("GET", "/app/"), 423)
    assert gateway.release("one", holder.token).status == 204
    assert gateway.call("GET", "/app/").status == 204


def test_map(guarded, quick):
    """The name is chosen by a map; without a name there is no lock."""
    gateway = guarded("zk_lock $lock wait=0;", proxy(quick),
                      http='map $request_method $lock '
                           '{ default ""; POST deploy-$arg_env; }\n',
                      workers=1)
    holder = gateway.hold("deploy-test")
    assert gateway.call("GET", "/app/?env=test").status == 200
    problem(gateway.call("POST", "/app/?env=test"), 423)
    assert gateway.call("POST", "/app/?env=live").status == 200
    gateway.release("deploy-test", holder.token)
    assert [log(gateway, n).name for n in (1, 2, 3)] == [
        "-", "deploy-test", "deploy-live"]


def test_root(guarded, quick, root):
    gateway = guarded("zk_lock one wait=0; zk_lock_root %s/$arg_tenant;"
                      % root, proxy(quick),
                      server=location("zk_lock_root %s/a;" % root,
                                      "zk_lock_api;", "/a/"))
    holder = gateway.call("POST", "/a/one")
    assert holder.status == 201
    problem(gateway.call("GET", "/app/?tenant=a"), 423)
    assert gateway.call("GET", "/app/?tenant=b").status == 200
    assert gateway.call("GET", "/app/?tenant=..").status == 500
    assert quick.total == 1
    assert gateway.call("DELETE", "/a/one/" + holder.token).status == 204


# refusals

@pytest.mark.parametrize("status", [400, 423, 429, 503, 599])
def test_status(guarded, status):
    gateway = guarded(NOW + "zk_lock_status %d;" % status)
    holder = gateway.hold("one")
    response = gateway.call("GET", "/app/")
    assert problem(response, status)["type"] == "/problems/taken"
    assert retry_after(response) == 1
    gateway.release("one", holder.token)


def test_status_that_closes(guarded):
    gateway = guarded(NOW + "zk_lock_status 444;")
    holder = gateway.hold("one")
    assert begin(gateway).closed_by_server(SOON)
    gateway.release("one", holder.token)


@pytest.mark.parametrize("rule", ["zk_lock one;", "zk_lock one wait=1m;"])
def test_longest_wait(guarded, rule):
    """zk_lock_max_wait cuts the default, too, which is half a minute."""
    gateway = guarded(rule + "zk_lock_max_wait 300ms;")
    holder = gateway.hold("one")
    wait_over(begin(gateway).response(SOON), gateway)
    gateway.release("one", holder.token)


def test_queue_is_full(guarded, backend, tree):
    gateway = guarded("zk_lock one; zk_lock_max_queue 1;", workers=1)
    holder = gateway.hold("one")
    waiter = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 2)
    problem(gateway.call("GET", "/app/"), 429)
    assert log(gateway, 1)[:3] == ("429", "one", "full")
    gateway.release("one", holder.token)
    served(backend, waiter)
    free(tree, gateway)


# modes

def test_conflict(guarded):
    """The API's user and the guard use the lock in different modes."""
    gateway = guarded(SEATS)
    holder = gateway.hold("one")
    problem(gateway.call("GET", "/app/"), 409)
    assert log(gateway, 1)[:3] == ("409", "one", "conflict")
    gateway.release("one", holder.token)


def test_shared_and_write(guarded, backend, tree):
    gateway = guarded("zk_lock one mode=shared;",
                      server=location("zk_lock one mode=write;",
                                      proxy(backend), "/write/"))
    readers = [begin(gateway), begin(gateway)]
    seen = [backend.next(), backend.next()]
    writer = begin(gateway, "/write/")
    tree.wait_claims(gateway.znode("one"), 3)
    late = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 4)
    for reader in seen:
        assert backend.idle()
        reader.answer()
    writing = backend.next()
    assert writing.path == "/write/" and backend.idle()
    writing.answer()
    served(backend, late)
    for client in readers + [writer]:
        assert client.response().status == 200
    free(tree, gateway)


def test_semaphore(guarded, backend, tree):
    gateway = guarded(SEATS)
    clients = [begin(gateway) for _ in range(2)]
    seen = [backend.next(), backend.next()]
    third = begin(gateway)
    tree.wait_claims(gateway.znode("one"), 3)
    assert backend.idle() and third.silent_for(0)
    seen[0].answer()
    served(backend, third)
    seen[1].answer()
    for client in clients:
        assert client.response().status == 200
    free(tree, gateway)


def test_layout_node(guarded, backend, tree):
    """The lock is one znode, for the API and for the guard."""
    gateway = guarded(NOW, http="zk_lock_layout node;\n")
    holder = gateway.hold("one")
    problem(gateway.call("GET", "/app/"), 423)
    gateway.release("one", holder.token)
    client = begin(gateway)
    seen = backend.next()
    assert tree.stat(gateway.znode("one")).ephemeralOwner
    taken(gateway)
    seen.answer()
    assert client.response().status == 200
    tree.wait_gone(gateway.znode("one"))


def test_layout_node_is_lost(guarded, backend, tree):
    gateway = guarded("zk_lock one;", http="zk_lock_layout node;\n")
    client = begin(gateway)
    seen = backend.next()
    tree.delete(gateway.znode("one"))
    problem(client.response(), 503, "lost")
    seen.wait_cut()


# several locks

def test_own_waits(guarded, backend, tree):
    """Each lock has its own wait; a request that fails keeps none."""
    gateway = guarded("zk_lock a wait=20s; zk_lock b wait=300ms;")
    held = {name: gateway.hold(name) for name in "ab"}
    client = begin(gateway)
    tree.wait_claims(gateway.znode("a"), 2)
    assert len(tree.claims(gateway.znode("b"))) == 1
    # the wait for b, too, began with the request
    assert client.silent_for(0.4)
    gateway.release("a", held["a"].token)
    wait_over(client.response(), gateway)
    free(tree, gateway, "a")
    gateway.release("b", held["b"].token)
    assert backend.idle()
    served(backend, begin(gateway))
    free(tree, gateway, "a")
    free(tree, gateway, "b")


def test_all_or_none(guarded, backend, tree):
    """A request waits for the second lock with the first lock held."""
    gateway = guarded("zk_lock a; zk_lock b wait=0;",
                      server=location("zk_lock b; zk_lock a;", proxy(backend),
                                      "/turned/"))
    holder = gateway.hold("b")
    problem(gateway.call("GET", "/app/"), 423)
    free(tree, gateway, "a")
    client = begin(gateway, "/turned/")
    tree.wait_claims(gateway.znode("b"), 2)
    taken(gateway, "a")
    gateway.release("b", holder.token)
    served(backend, client)
    free(tree, gateway, "a")
    free(tree, gateway, "b")


def test_opposite_order(guarded, quick, tree):
    """Requests that name the locks in opposite order never block each other.

    The locks of a blocked pair would be refused at the end of the wait.
    """
    gateway = guarded("zk_lock a; zk_lock b;", proxy(quick),
                      server=location("zk_lock b; zk_lock a;", proxy(quick),
                                      "/turned/"))
    statuses = []

    def visit(path):
        with gateway.connect() as connection:
            for _ in range(20):
                statuses.append(connection.request("GET", path).status)

    threads = [threading.Thread(target=visit, args=(path,))
               for path in ("/app/", "/turned/") * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 160
    assert quick.most == 1
    free(tree, gateway, "a")
    free(tree, gateway, "b")


def test_lock_twice(guarded, backend, tree):
    gateway = guarded("zk_lock one; zk_lock $arg_other; zk_lock /one;")
    client = begin(gateway, "/app/?other=one")
    seen = backend.next()
    assert len(tree.claims(gateway.znode("one"))) == 1
    seen.answer()
    assert client.response().status == 200
    free(tree, gateway)
    line = log(gateway, 1)
    assert line.fencing == line.fencings


@pytest.mark.parametrize("mode", ["shared", "write", "semaphore permits=2"])
def test_lock_in_two_modes(guarded, backend, tree, mode):
    gateway = guarded("zk_lock one; zk_lock $arg_other mode=%s;" % mode)
    problem(gateway.call("GET", "/app/?other=one"), 400, "two modes")
    assert backend.idle()
    assert tree.claims(gateway.znode("one")) == []


# who holds the lock

OWNERS = {
    "plain": (b"deploy", "deploy"),
    "text": ("caf\u00e9 \u20ac".encode(), "caf\u00e9 \u20ac"),
    "empty": (b"", None),
    "control": (b"a\x01b\x7fc", "a?b?c"),
    "not UTF-8": (b"a\xffb\xc3", "a?b?"),
    "quotes": (b'a"b\\c', 'a"b\\c'),
}


def owner(gateway, backend, name):
    """The owner that others see while a request is served."""
    client = begin(gateway, headers={"X-Owner": name.decode("latin-1")})
    seen = backend.next()
    holder, = gateway.inspect("one").json["holders"]
    seen.answer()
    assert client.response().status == 200
    return holder.get("owner")


@pytest.mark.parametrize("what", sorted(OWNERS))
def test_owner(guarded, backend, tree, what):
    gateway = guarded("zk_lock one owner=$http_x_owner;")
    sent, shown = OWNERS[what]
    assert owner(gateway, backend, sent) == shown
    free(tree, gateway)


@pytest.mark.parametrize("sent", [b"x" * 5000, "\u20ac".encode() * 500])
def test_long_owner(guarded, backend, tree, sent):
    """An owner is cut between two characters."""
    gateway = guarded("zk_lock one owner=$http_x_owner;")
    shown = owner(gateway, backend, sent)
    assert shown and set(shown) == set(sent.decode())
    assert sent.decode().startswith(shown) and len(shown) < 500
    free(tree, gateway)


# other clients

def test_one_line(guarded, backend, tree, foreign, curator):
    """Clients of the API, requests, Curator and kazoo are served in turn."""
    gateway = guarded("zk_lock one mode=write;")
    path = gateway.znode("one")
    holder = gateway.hold("one", mode="write")

    def waits(number):
        tree.wait_claims(path, number)
        assert backend.idle()

    first = begin(gateway)
    waits(2)
    client = curator.client()
    future = client.begin("write", path)
    waits(3)
    second = begin(gateway)
    waits(4)
    kazoo = Kazoo(foreign, path, "write").begin()
    waits(5)
    third = begin(gateway)
    waits(6)
    user = gateway.begin("one", mode="write")
    waits(7)

    gateway.release("one", holder.token)
    served(backend, first)
    assert future.claim(SOON)
    assert backend.idle()
    client.release()
    served(backend, second)
    wait_until(kazoo.got.is_set, SOON, "kazoo's grant")
    assert backend.idle()
    kazoo.release()
    served(backend, third)
    response = user.response()
    assert response.status == 201
    gateway.release("one", response.token)
    free(tree, gateway)
