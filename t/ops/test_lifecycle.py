"""The gateway as a process: what opens a session, what closes a session, when.

Only workers have sessions, and only where the configuration uses the module.  A
clean end closes the sessions, so that locks are free at once.  nginx -t refuses
a configuration that cannot work, and says why.
"""

import re
import signal
import time

import pytest

from lib.checks import grant, problem
from lib.client import lock_path
from lib.process import threads, wait_until
from lib.sessions import stay_ephemeral

CACHE = "proxy_cache_path cache levels=1:2 keys_zone=cache:1m;"


def connections_stay(proxy, number):
    """The proxy sees the given number of connections, and no further one."""
    wait_until(lambda: proxy.accepted >= number, 10,
               "%d connections" % number)
    time.sleep(0.3)     # an absence can only be waited out
    assert proxy.accepted == number


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_session_a_worker(zookeeper, start_gateway, start_proxy, workers):
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout="60s", workers=workers)
    connections_stay(proxy, workers)
    for worker in gateway.worker_pids():
        token = gateway.hold("x", worker=worker).token
        gateway.release("x", token)
    assert proxy.accepted == workers


def test_cache_processes_have_no_session(zookeeper, start_gateway,
                                         start_proxy):
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout="60s", http=CACHE)
    wait_until(lambda: len(gateway.helper_pids()) == 2, 10)
    helpers = gateway.helper_pids()
    connections_stay(proxy, 2)
    assert [threads(pid) for pid in helpers] == [1, 1]
    assert threads(gateway.process.pid) == 1


def test_configuration_test_has_no_session(zookeeper, start_gateway,
                                           start_proxy):
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, start=False)
    code, output = gateway.test_conf()
    assert code == 0, output
    assert proxy.accepted == 0


def test_without_directives_it_costs_nothing(start_gateway):
    gateway = start_gateway(zookeeper=None)
    assert [threads(pid) for pid in gateway.worker_pids()] == [1, 1]
    assert "zk_lock" not in gateway.log_text()


@pytest.mark.parametrize("end", ["stop", "terminate"])
def test_clean_end_closes_the_sessions(start_gateway, private_zookeeper,
                                       connect_tree, end):
    """Young leases are durable then, if the workers had the time, or free,
    because a worker that still runs may adopt what the first worker left.

    The test counts sessions, so the test has a server alone.
    """
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    sessions = private_zookeeper.global_sessions()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout="60s")
    for i in range(20):
        gateway.hold("x%d" % i, ttl="1h")
    began = time.monotonic()
    getattr(gateway, end)()
    for i in range(20):
        znode = gateway.znode("x%d" % i)
        if end == "stop":
            assert len(tree.durables(znode)) == 1
        else:
            tree.wait_claims(znode, lambda claims: len(claims)
                             == len(tree.durables(znode)), 20)
    wait_until(lambda: private_zookeeper.global_sessions() == sessions, 20,
               "the sessions are closed")
    assert not tree.ephemerals(gateway.root)
    # and not because the sessions have expired
    assert time.monotonic() - began < 40
    assert "open socket" not in gateway.log_text()
    gateway.finish()


def test_end_without_zookeeper(private_zookeeper, start_gateway):
    """No server answers the close of the session; nginx ends all the same."""
    for how in ("stop", "freeze"):
        if private_zookeeper.process is None:
            private_zookeeper.start()
        gateway = start_gateway(zookeeper=private_zookeeper,
                                session_timeout="4s")
        gateway.hold("held when it " + how + "s")
        getattr(private_zookeeper, how)()
        gateway.stop(timeout=15)


def test_end_when_zookeeper_was_never_there(private_zookeeper,
                                            start_gateway):
    gateway = start_gateway(zookeeper=private_zookeeper, wait_sessions=False)
    gateway.stop()


def test_end_with_waiters(start_gateway, tree):
    """A fast end cuts the waiters, and leaves no claim."""
    gateway = start_gateway(session_timeout="60s")
    stay_ephemeral(tree, gateway.znode("x"))
    gateway.hold("x")
    waiters = [gateway.begin("x") for _ in range(20)]
    tree.wait_claims(gateway.znode("x"), 21)
    gateway.terminate()
    tree.wait_claims(gateway.znode("x"), 0, 20)
    for waiter in waiters:
        assert waiter.closed_by_server()


def test_first_request_of_all(start_gateway):
    """The request comes before the session is there, and waits."""
    for _ in range(3):
        gateway = start_gateway(wait_sessions=False)
        response = gateway.acquire("x")
        grant(response, "x")
        assert gateway.release("x", response.token).status == 204
        gateway.stop()


def test_reload_without_locks(start_gateway, private_zookeeper):
    """New workers serve at once; the old workers and their sessions go."""
    private_zookeeper.start()
    sessions = private_zookeeper.global_sessions()
    gateway = start_gateway(zookeeper=private_zookeeper,
                            session_timeout="60s")
    for _ in range(3):
        gateway.reload()
        response = gateway.acquire("x", timeout=20)
        grant(response, "x")
        gateway.release("x", response.token)
        wait_until(lambda: not gateway.worker_pids(leaving=True), 20,
                   "the old workers are gone")
    wait_until(lambda: private_zookeeper.global_sessions()
               == sessions + gateway.workers, 20, "their sessions are gone")


def test_reload_changes_directives(start_gateway):
    gateway = start_gateway(location="zk_lock_ttl 7s;")
    token = gateway.hold("x").token
    assert gateway.inspect("x", token).json["ttl_ms"] == 7000
    gateway.release("x", token)
    gateway.change_conf("zk_lock_ttl 7s;", "zk_lock_ttl 9s;")
    gateway.reload()
    response = gateway.hold("x")
    assert response.json["ttl_ms"] == 9000
    gateway.release("x", response.token)


def test_killed_worker(start_gateway, tree):
    """The dead worker's waiters are cut off, a new worker starts, and every
    lock can be acquired again after a while: no waiter waits for ever.
    """
    gateway = start_gateway(session_timeout="6s")
    victim, other = gateway.worker_pids()
    holder = gateway.hold("x", ttl="1h", worker=victim)
    cut_off = gateway.begin("x", worker=victim)
    tree.wait_claims(gateway.znode("x"), 2)
    waiter = gateway.begin("x", wait="1m", worker=other)
    tree.wait_claims(gateway.znode("x"), 3)
    assert gateway.renew("x", holder.token, ttl="6s").status == 200

    gateway.kill_worker(victim)
    assert cut_off.closed_by_server(20)
    response = waiter.response(30)
    grant(response, "x")
    gateway.release("x", response.token)
    wait_until(lambda: len(gateway.worker_pids()) == 2, 20, "a new worker")
    for worker in gateway.worker_pids():
        token = gateway.hold("x", worker=worker).token
        gateway.release("x", token)


def test_single_process(start_gateway, tree):
    gateway = start_gateway(master=False, workers=1)
    holder = gateway.hold("x")
    waiter = gateway.begin("x")
    leaver = gateway.begin("x")
    tree.wait_claims(gateway.znode("x"), 3)
    leaver.close()
    tree.wait_claims(gateway.znode("x"), 2)
    gateway.release("x", holder.token)
    gateway.release("x", waiter.response().token)


def test_zookeepers_expired_session_is_replaced(private_zookeeper,
                                                start_gateway, connect_tree):
    """The session expired: a new session serves new requests."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, session_timeout="5s",
                            workers=1)
    tree = connect_tree(private_zookeeper.address, timeout=30.0)
    stay_ephemeral(tree, gateway.znode("x"))
    gateway.hold("x")
    old = tree.stat(gateway.znode("x") + "/"
                    + tree.claims(gateway.znode("x"))[0]).ephemeralOwner
    worker, = gateway.worker_pids()
    with gateway.frozen_worker(worker):
        tree.wait_claims(gateway.znode("x"), 0, 20)
    response = wait_until(
        lambda: [r for r in [gateway.acquire("x", wait="5s", timeout=10)]
                 if r.status == 201], 20, "the gateway is back")[0]
    claim, = tree.claims(gateway.znode("x"))
    assert tree.stat(gateway.znode("x") + "/" + claim).ephemeralOwner != old
    gateway.release("x", response.token)


# configurations

BAD_CONF = {
    "bad port": ("zk_lock_servers 127.0.0.1:99999;", "port"),
    "no servers": ("zk_lock_servers ;", "zk_lock_servers"),
    "empty server": ("zk_lock_servers 127.0.0.1:1,,127.0.0.1:2;", ""),
    "bad chroot": ("zk_lock_servers 127.0.0.1:1/a//b;", ""),
    "chroot with a slash": ("zk_lock_servers 127.0.0.1:1/a/;", ""),
    "servers twice": ("zk_lock_servers 127.0.0.1:1; "
                      "zk_lock_servers 127.0.0.1:1;", "duplicate"),
    "bad timeout": ("zk_lock_servers 127.0.0.1:1; "
                    "zk_lock_session_timeout soon;",
                    "zk_lock_session_timeout"),
    "no timeout": ("zk_lock_servers 127.0.0.1:1; "
                   "zk_lock_session_timeout 0;", "zk_lock_session_timeout"),
    "tiny zone": ("zk_lock_servers 127.0.0.1:1; zk_lock_zone 1k;",
                  "zk_lock_zone"),
    "bad zone": ("zk_lock_servers 127.0.0.1:1; zk_lock_zone much;",
                 "zk_lock_zone"),
    "bad root": ("zk_lock_servers 127.0.0.1:1; zk_lock_root locks;",
                 "root"),
    "root of ZooKeeper": ("zk_lock_servers 127.0.0.1:1; "
                          "zk_lock_root /zookeeper;", "zookeeper"),
    "root with dots": ("zk_lock_servers 127.0.0.1:1; zk_lock_root /a/../b;",
                       "root"),
    "root with a slash": ("zk_lock_servers 127.0.0.1:1; zk_lock_root /a/;",
                          "root"),
    "bad wait": ("zk_lock_servers 127.0.0.1:1; zk_lock_wait long;",
                 "zk_lock_wait"),
    "bad ttl": ("zk_lock_servers 127.0.0.1:1; zk_lock_ttl -1;",
                "zk_lock_ttl"),
    "bad queue": ("zk_lock_servers 127.0.0.1:1; zk_lock_max_queue many;",
                  "zk_lock_max_queue"),
    "post_action": ("zk_lock_servers 127.0.0.1:1; server { listen 127.0.0.1:1;"
                    " location / { zk_lock_api; post_action @after; } }",
                    "post_action"),
    "unknown variable": ("zk_lock_servers 127.0.0.1:1; "
                         "zk_lock_root /locks/$no_such_variable;",
                         "no_such_variable"),
    "blank between servers": ("zk_lock_servers 127.0.0.1:1, 127.0.0.1:2;",
                              "blank"),
    "servers as a URL": ("zk_lock_servers http://127.0.0.1:1;", "http://"),
    "digest without a password": ("zk_lock_servers 127.0.0.1:1; "
                                  "zk_lock_auth digest gateway;",
                                  "USER:PASSWORD"),
    "digest without a user": ("zk_lock_servers 127.0.0.1:1; "
                              "zk_lock_auth digest :secret;",
                              "USER:PASSWORD"),
    "digest with an empty password": ("zk_lock_servers 127.0.0.1:1; "
                                      "zk_lock_auth digest gateway:;",
                                      "USER:PASSWORD"),
}

# what zk_lock and zk_lock_require do not take, and a part of the complaint
BAD_RULES = {
    "no name": ("zk_lock;", "number of arguments"),
    "unknown parameter": ("zk_lock x colour=red;", '"colour=red"'),
    "mode without a value": ("zk_lock x mode;", '"mode"'),
    "bad mode": ("zk_lock x mode=exclusiv;", '"exclusiv"'),
    "no mode": ("zk_lock x mode=;", "semaphore"),
    "mode in capitals": ("zk_lock x mode=SHARED;", '"SHARED"'),
    "permits without semaphore": ("zk_lock x permits=3;", "mode=semaphore"),
    "permits of readers": ("zk_lock x mode=shared permits=3;",
                           "mode=semaphore"),
    "semaphore without permits": ("zk_lock x mode=semaphore;", '"permits"'),
    "no permits": ("zk_lock x mode=semaphore permits=0;", '"permits=0"'),
    "too many permits": ("zk_lock x mode=semaphore permits=1001;",
                         '"permits=1001"'),
    "bad permits": ("zk_lock x mode=semaphore permits=many;",
                    '"permits=many"'),
    "bad wait": ("zk_lock x wait=long;", '"wait=long"'),
    "negative wait": ("zk_lock x wait=-1;", '"wait=-1"'),
    "no wait": ("zk_lock x wait=;", '"wait="'),
    "unknown variable in a name": ("zk_lock $no_such_variable;",
                                   "no_such_variable"),
    "unknown variable in an owner": ("zk_lock x owner=$no_such_variable;",
                                     "no_such_variable"),
    "lock twice": ("zk_lock x; zk_lock x mode=shared;", "same lock twice"),
    "with post_action": ("zk_lock x; post_action /after;", "post_action"),
    "require and post_action": ("zk_lock_require x; post_action /after;",
                                "post_action"),
    "status without an answer": ("zk_lock_status 499;", "499"),
    "status below": ("zk_lock_status 399;", "400"),
    "status above": ("zk_lock_status 600;", "599"),
    "bad status": ("zk_lock_status busy;", "invalid number"),
    "status twice": ("zk_lock_status 423; zk_lock_status 429;", "duplicate"),
    "bad unreachable": ("zk_lock_unreachable wait;", '"wait"'),
    "bad lost": ("zk_lock_lost abandon;", '"abandon"'),
    "bad body": ("zk_lock_request_body maybe;", '"maybe"'),
    "node and readers": ("zk_lock_layout node; zk_lock x mode=shared;",
                         "zk_lock_layout node"),
    "node and seats": (
        "zk_lock_layout node; zk_lock x mode=semaphore permits=2;",
        "zk_lock_layout node"),
    "require without a name": ("zk_lock_require;", "number of arguments"),
    "require, unknown": ("zk_lock_require x if_free;", '"if_free"'),
    "require, bad mode": ("zk_lock_require x mode=write;", '"mode=write"'),
    "require, bad lost": ("zk_lock_require x lost=cut;", '"lost=cut"'),
    "require, unknown variable": ("zk_lock_require x token=$no_such_variable;",
                                  "no_such_variable"),
    "in a block of if": ("if ($arg_x) { zk_lock x; }", "not allowed here"),
    "in limit_except": ("limit_except GET { zk_lock x; }",
                        "not allowed here"),
}

# two directives that both answer a location's requests, or do not go together
TWO_ANSWERS = {
    "lock and api": ("zk_lock_api; zk_lock x;", "does not go with"),
    "lock before the api": ("zk_lock x; zk_lock_api;", "does not go with"),
    "lock and metrics": ("zk_lock_metrics; zk_lock x;", "does not go with"),
    "require and api": ("zk_lock_api; zk_lock_require x;",
                        "zk_lock_require"),
    "require and metrics": ("zk_lock_metrics; zk_lock_require x;",
                            "zk_lock_require"),
    "api twice": ("zk_lock_api; zk_lock_api;", "is duplicate"),
    "metrics twice": ("zk_lock_metrics; zk_lock_metrics;", "is duplicate"),
    "page and lock": ("zk_lock_page /x/; zk_lock x;", "zk_lock_page"),
    "page twice": ("zk_lock_page /x/; zk_lock_page /y/;", "is duplicate"),
    "page behind": ("zk_lock_metrics; zk_lock_page /x/;", "does not go with"),
    "proxy_pass behind a page": (
        "zk_lock_page /x/; proxy_pass http://127.0.0.1:1;", "zk_lock_page"),
    "page without a path": ("zk_lock_page;", "number of arguments"),
    "page of no path": ("zk_lock_page '';", "begins and ends in a slash"),
    "page of a path without slashes": ("zk_lock_page x;",
                                       "begins and ends in a slash"),
    "page of a path that goes on": ("zk_lock_page /x;",
                                    "begins and ends in a slash"),
    "page of another host": ("zk_lock_page //example.com/;",
                             "begins and ends in a slash"),
    "page, unknown": ("zk_lock_page /x/ health;", '"health"'),
    "page, health of another host": (
        "zk_lock_page /x/ health=//example.com;", '"health=//example.com"'),
    "page, health of no path": ("zk_lock_page /x/ health=;", '"health="'),
    "page, health twice": ("zk_lock_page /x/ health=/a health=/b;",
                           '"health=/b"'),
    "page, admin twice": ("zk_lock_page /x/ admin admin;", '"admin"'),
    "metrics behind": ("zk_lock_api; zk_lock_metrics;", "does not go with"),
    "api behind": ("zk_lock_metrics; zk_lock_api;", "does not go with"),
    "proxy_pass before": ("proxy_pass http://127.0.0.1:1; zk_lock_api;",
                          "does not go with"),
    "proxy_pass behind": ("zk_lock_api; proxy_pass http://127.0.0.1:1;",
                          "does not go with"),
    "empty_gif behind": ("zk_lock_metrics; empty_gif;", "does not go with"),
}

# values that are too small: the directive, and what the directive accepts
TOO_SMALL = {
    "zk_lock_session_timeout": ("100ms", "at least 1s"),
    "zk_lock_zone": ("4k", "at least 256k"),
    "zk_lock_ttl": ("0", "above zero"),
    "zk_lock_max_ttl": ("0", "above zero"),
    "zk_lock_grace": ("0", "above zero"),
}

# accepted but hardly meant: what goes into the server block
SUSPICIOUS = {
    "location without a slash": ("location /bare { zk_lock_api; }",
                                 '"/bare/"'),
    "ttl above the longest": (
        "location /x/ { zk_lock_api; zk_lock_ttl 2d; }", "zk_lock_max_ttl"),
    "ttl above it, elsewhere": (
        "zk_lock_ttl 2m; zk_lock_max_ttl 1m; location /x/ { zk_lock_api; }",
        "zk_lock_max_ttl"),
    "wait above the longest": (
        "location /x/ { zk_lock_api; zk_lock_max_wait 20s; zk_lock_wait 25s; }",
        "zk_lock_max_wait"),
    "wait of a guard above the longest": (
        "location /x/ { zk_lock x wait=25s; zk_lock_max_wait 20s; }",
        "zk_lock_max_wait"),
    "wait of all guards above the longest": (
        "location /x/ { zk_lock x; zk_lock_max_wait 20s; zk_lock_wait 25s; }",
        "zk_lock_max_wait"),
    "admin without the API": ("location /x/ { zk_lock_admin on; }",
                              "zk_lock_admin"),
    "admin below the API": (
        "location /x/ { zk_lock_api; location /x/y/ { zk_lock_admin on; } }",
        "zk_lock_admin"),
    "admin of a server": (
        "zk_lock_admin on; location /x/ { return 204; }"
        " location /y/ { zk_lock_api; zk_lock_admin off; }",
        "any client of a location may break locks"),
    "a root of a user whom nothing checks": (
        "location /x/ { zk_lock_api; zk_lock_root /t/$remote_user; }",
        '$remote_user in "zk_lock_root"'),
    "a root of a user, with another way in": (
        "location /x/ { zk_lock_api; zk_lock_root /t/${remote_user}/locks;"
        " auth_basic x; auth_basic_user_file users; satisfy any; }",
        '$remote_user in "zk_lock_root"'),
    "a root of a user, without passwords": (
        "location /x/ { zk_lock_api; zk_lock_root /t/$remote_user;"
        " auth_basic x; }", '$remote_user in "zk_lock_root"'),
    "an owner whom nothing checks": (
        "auth_basic x; auth_basic_user_file users; location /x/ { zk_lock x;"
        " auth_basic off; zk_lock_owner 'user $remote_user'; }",
        '$remote_user in "zk_lock_owner"'),
    "a quota of a user whom nothing checks": (
        "location /x/ { zk_lock_api; zk_lock_max_claims 9 $remote_user; }",
        '$remote_user in "zk_lock_max_claims"'),
    "a quota by a header": (
        "location /x/ { zk_lock_api; zk_lock_max_claims 9 $http_x_client; }",
        'client chooses the variable in "zk_lock_max_claims"'),
    "a root by an argument": (
        "location /x/ { zk_lock_require x; zk_lock_root /t/${arg_t}; }",
        'client chooses the variable in "zk_lock_root"'),
    "a root by a cookie": (
        "location /x/ { zk_lock x; zk_lock_root /t/$cookie_t$arg_x; }",
        'client chooses the variable in "zk_lock_root"'),
    "return beside a rule": (
        "location /x/ { zk_lock_require x; return 200 served; }",
        '"return" answers before "zk_lock_require"'),
    "return after a block": (
        "location /x/ { zk_lock_require x; if ($arg_x) { return 403; }"
        " return 204; }", '"return" answers before "zk_lock_require"'),
    "rewrite beside a rule": (
        "location /x/ { zk_lock_require x; rewrite ^/x/(.*) /y/$1; }",
        '"rewrite" leads to another location'),
    "rewrite within a block": (
        "location /x/ { zk_lock_require x;"
        " if ($arg_x) { rewrite ^ /y/ last; } }",
        '"rewrite" leads to another location'),
    "refused requests are served": (
        "location /x/ { zk_lock_require x; error_page 423 = @pass; }"
        " location @pass { proxy_pass http://127.0.0.1:1; }",
        '"error_page 423"'),
    "refused requests are served elsewhere": (
        "zk_lock_status 409; error_page 404 409 =200 /y/z;"
        " location /x/ { zk_lock_require x; }"
        " location /y/ { proxy_pass http://127.0.0.1:1; }",
        'served by location "/y/"'),
}

# correct directives that look similar
SOUND = {
    "slash": "location / { zk_lock_api; }",
    "longest ttl below the default": (
        "zk_lock_max_ttl 5s; location /x/ { zk_lock_api; }"),
    "longest wait below the default": (
        "location /x/ { zk_lock_api; zk_lock_max_wait 5s;"
        " if ($arg_x) { set $x 1; } limit_except GET { deny all; } }"),
    "admin above the API": (
        "location /x/ { zk_lock_admin on;"
        " location /x/y/ { location /x/y/z/ { zk_lock_api; } } }"),
    "users whose passwords are checked": (
        "auth_basic x; auth_basic_user_file users; location /x/ {"
        " zk_lock_api; zk_lock_root /t/$remote_user;"
        " zk_lock_owner $remote_user; zk_lock_max_claims 9 $remote_user;"
        " satisfy all; }"
        " location /y/ { zk_lock_api; auth_basic $host;"
        " zk_lock_root /t/$remote_user; }"),
    "variables that no client chooses": (
        "location /x/ { zk_lock_api; zk_lock_root /t/$server_name;"
        " zk_lock_max_claims 9 $binary_remote_addr; zk_lock_owner $arg_o; }"),
    "variables that sound alike": (
        "set $arg 1; set $args_of_mine 1; set $remote_user_id 1;"
        " location /x/ { zk_lock_api;"
        " zk_lock_root /t/$arg$args_of_mine$remote_user_id; }"),
    "a rule that nothing goes around": (
        "location /x/ { zk_lock_require x; if ($arg_x) { return 403; }"
        " if ($arg_y) { set $x 1; } set $y 1;"
        " rewrite ^/x/(.*) /x/y/$1 break;"
        " rewrite ^/x/z https://example.com/ redirect;"
        " error_page 423 = @told; error_page 412 503 /y/told;"
        " error_page 404 = @pass; proxy_pass http://127.0.0.1:1; }"
        " location @told { return 423 taken; } location /y/ { root html; }"
        " location @pass { proxy_pass http://127.0.0.1:1; }"),
    "refused requests meet the rule again": (
        "location /x/ { zk_lock_require x; error_page 423 = @again; }"
        " location @again { zk_lock_require x;"
        " proxy_pass http://127.0.0.1:1; }"),
    "a rule of the server, and a location that answers": (
        "zk_lock_require x; location /x/ { return 204; }"),
    "guards, and the API": (
        "zk_lock all; zk_lock_require /all if_held; location /x/ {"
        " zk_lock /a/b mode=semaphore permits=1000 wait=0 owner=$host;"
        " zk_lock ''; zk_lock_status 400; if ($arg_x) { set $x 1; }"
        " limit_except GET { deny all; } }"
        " location /y/ { zk_lock_api; location /y/z/ { zk_lock y; } }"),
    "a guard's longest wait below the default": (
        "zk_lock all; zk_lock_max_wait 5s;"
        " location /x/ { zk_lock x wait=5s; zk_lock_status 599; }"),
    "a guard of the longest name": (
        "location /x/ { zk_lock /%s; }" % ("x" * 200)),
    "proxy_pass in places of its own": (
        "location /x/ { zk_lock_api;"
        " if ($arg_x) { proxy_pass http://127.0.0.1:1; }"
        " limit_except GET { proxy_pass http://127.0.0.1:1; }"
        " location /x/y/ { proxy_pass http://127.0.0.1:1; } }"),
}


def lines_of(gateway, level):
    """nginx -t: the exit code, and the output lines of that level.

    The path of the file contains the name of the test, and is cut.
    """
    code, output = gateway.test_conf()
    return code, [line for line in output.replace(gateway.conf, "nginx.conf"
                                                  ).splitlines()
                  if "[%s]" % level in line]


@pytest.mark.parametrize("what", sorted(BAD_CONF))
def test_bad_configuration(start_gateway, what):
    directives, word = BAD_CONF[what]
    gateway = start_gateway(zookeeper=None, start=False, http=directives)
    gateway.allow(r"\[emerg\]")
    code, (line,) = lines_of(gateway, "emerg")
    assert code != 0
    assert word in line
    # nginx itself does not name the place of an unknown variable
    assert (re.search(r" in nginx\.conf:\d+$", line)
            or what == "unknown variable")


@pytest.mark.parametrize("what", sorted(BAD_RULES))
def test_bad_rules(start_gateway, what):
    """One complaint, which names the place, in a location and in a server."""
    directives, word = BAD_RULES[what]
    for server in "location /x/ { %s }", "%s":
        if server == "%s" and "not allowed" in word:
            continue
        gateway = start_gateway(servers="127.0.0.1:1", start=False,
                                server=server % directives)
        gateway.allow(r"\[emerg\]")
        code, lines = lines_of(gateway, "emerg")
        assert code != 0 and len(lines) == 1, lines
        assert word in lines[0]
        # nginx itself does not name the place of an unknown variable
        assert (re.search(r" in nginx\.conf:\d+$", lines[0])
                or "no_such_variable" in word)


@pytest.mark.parametrize("what", sorted(TWO_ANSWERS))
def test_two_answers(start_gateway, what):
    directives, word = TWO_ANSWERS[what]
    gateway = start_gateway(servers="127.0.0.1:1", start=False,
                            server="location /x/ { %s }" % directives)
    gateway.allow(r"\[emerg\]")
    code, lines = lines_of(gateway, "emerg")
    assert code != 0 and len(lines) == 1
    assert word in lines[0]
    assert re.search(r" in nginx\.conf:\d+$", lines[0])


@pytest.mark.parametrize("name", sorted(TOO_SMALL))
def test_too_small(start_gateway, name):
    """The error names the directive, no other directive, and the place."""
    value, takes = TOO_SMALL[name]
    gateway = start_gateway(zookeeper=None, start=False, http=(
        "zk_lock_servers 127.0.0.1:1;\n\n%s %s;\n" % (name, value)))
    gateway.allow(r"\[emerg\]")
    code, lines = lines_of(gateway, "emerg")
    assert code != 0 and len(lines) == 1
    assert re.findall(r"zk_lock_\w+", lines[0]) == [name]
    assert takes in lines[0]
    with open(gateway.conf, encoding="utf-8") as file:
        number, = [number for number, line in enumerate(file, 1)
                   if line.strip().startswith(name)]
    assert lines[0].endswith(" in nginx.conf:%d" % number)


@pytest.mark.parametrize("what", sorted(SUSPICIOUS))
def test_suspicious_configuration(start_gateway, what):
    """The configuration works; exactly one warning tells the consequence."""
    server, word = SUSPICIOUS[what]
    gateway = start_gateway(servers="127.0.0.1:1", start=False, server=server)
    gateway.change_conf("location /locks/ {", "location /other/ {")
    code, lines = lines_of(gateway, "warn")
    assert code == 0
    if server.startswith("zk_lock_ttl"):
        # a warning for each location that inherits the directive
        assert sorted(re.search('"(/.*?)"', line).group(1) for line in lines
                      ) == ["/other/", "/x/"]
    else:
        assert len(lines) == 1
    assert all(word in line for line in lines)


@pytest.mark.parametrize("what", sorted(SOUND))
def test_sound_configuration(start_gateway, what):
    gateway = start_gateway(servers="127.0.0.1:1", start=False,
                            server=SOUND[what])
    assert lines_of(gateway, "warn") == (0, [])


@pytest.mark.parametrize("directive", ["zk_lock_api;", "zk_lock x;",
                                       "zk_lock_require x;"])
def test_api_without_servers(start_gateway, directive):
    gateway = start_gateway(zookeeper=None, start=False,
                            server="location /locks/ { %s }" % directive)
    gateway.allow(r"\[emerg\]")
    code, (line,) = lines_of(gateway, "emerg")
    assert code != 0
    assert "zk_lock_servers" in line
    assert re.search(r" in nginx\.conf:\d+$", line)


def test_path_without_its_slash(start_gateway):
    """The redirect that nginx makes for proxy_pass, with the arguments."""
    gateway = start_gateway()
    for query in "", "?prefix=a&limit=3":
        response = gateway.call("GET", "/locks" + query)
        assert response.status == 301
        assert response.headers["Location"].endswith(
            ":%d/locks/%s" % (gateway.port, query))


def test_location_without_a_slash(start_gateway, tree):
    """A path that begins with the name but lacks the slash names no lock."""
    gateway = start_gateway(server="location /bare { zk_lock_api; }")
    for method, path in (("POST", "/baresmith"), ("GET", "/baresmith"),
                         ("GET", "/bare"), ("PUT", "/bare.x/y")):
        problem(gateway.call(method, path), 404, "slash")
    assert gateway.inspect("smith").status == 404
    assert gateway.call("GET", "/bare/").json["locks"] == []
    response = gateway.call("POST", "/bare/smith")
    grant(response, "smith", prefix="/bare/")
    gateway.release("smith", response.token)


def test_too_few_descriptors(start_gateway):
    """A worker without descriptors for connections is not started."""
    gateway = start_gateway()
    token = gateway.hold("x").token
    gateway.allow(r"worker_rlimit_nofile 64")
    gateway.change_conf("worker_rlimit_nofile 16384;",
                        "worker_rlimit_nofile 64;")
    code, text = gateway.test_conf()
    assert code != 0
    said = re.search(r'"worker_rlimit_nofile 64" leaves a worker no '
                     r'descriptors for connections: .* at least (\d+),', text)
    assert said, text
    refusals = gateway.log_text().count("worker_rlimit_nofile 64")
    gateway.process.send_signal(signal.SIGHUP)
    wait_until(lambda: gateway.log_text().count("worker_rlimit_nofile 64")
               > refusals, 20.0, "the reload is refused")
    assert gateway.inspect("x", token).status == 200

    gateway.change_conf("worker_rlimit_nofile 64;",
                        "worker_rlimit_nofile %s;" % said.group(1))
    gateway.change_conf("worker_connections 2048;", "worker_connections 32;")
    gateway.reload()
    gateway.wait_served()
    gateway.release("x", token)


def test_zone_says_how_much_it_holds(start_gateway):
    gateway = start_gateway(http="zk_lock_zone 1m;")
    lines = [line for line in gateway.log_text().splitlines()
             if "zone" in line and "claims" in line]
    assert lines, "the log does not tell how many claims the zone holds"


def test_full_zone(start_gateway, tree):
    """No room for a record: 503, and claims that have a record stay."""
    gateway = start_gateway(http="zk_lock_zone 256k;", workers=1)
    held = []
    with gateway.connect() as connection:
        for i in range(5000):
            response = connection.request("POST", lock_path("x%d" % i),
                                          {"ttl": "1h"})
            if response.status != 201:
                break
            held.append(response.token)
        content = problem(response, 503, "zk_lock_zone")
        assert content["type"] == "/problems/no-room"
        assert held
        for _ in range(3):
            problem(connection.request("POST", lock_path("y")), 503)
        line, = [line for line in gateway.log_text().splitlines()
                 if "no room" in line]
        assert "[error]" in line and '"zk_lock_zone"' in line
        response = connection.request("DELETE", lock_path("x0", held[0]))
        # 503: ZooKeeper stalled; the gateway carries the release out
        assert response.status in (204, 503)
        grant(connection.request("POST", lock_path("x0")), "x0")


def test_servers_by_name(start_gateway, zookeeper):
    gateway = start_gateway(servers="localhost:%d" % zookeeper.port,
                            wait_sessions=False)
    response = gateway.hold("x")
    gateway.release("x", response.token)


def test_a_dead_server_in_the_list(start_gateway, zookeeper,
                                   private_zookeeper):
    servers = private_zookeeper.address + "," + zookeeper.address
    gateway = start_gateway(servers=servers, wait_sessions=False)
    response = wait_until(
        lambda: [r for r in [gateway.acquire("x")] if r.status == 201], 20)[0]
    gateway.release("x", response.token)


def test_post_action_leads_nowhere(start_gateway):
    """Neither from an `if`, which is not a location, nor to a lock."""
    gateway = start_gateway(
        location="if ($arg_owner) { post_action @after; }",
        server="location @after { return 204; }"
               "location /other { post_action /locks/y; return 200; }")
    assert gateway.call("POST", lock_path("x"),
                        {"owner": "me"}).status == 403
    assert gateway.call("GET", "/other").status == 200
    for name in ("x", "y"):
        assert gateway.inspect(name).status == 404
