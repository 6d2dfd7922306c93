"""The gateway as a process: what opens a session, what closes it, and when.

Only workers have sessions, and only where the module is asked for.  A clean
end closes them, so that locks are free at once.  A configuration that cannot
work is refused by nginx -t with a sentence.
"""

import time

import pytest

from lib.checks import grant, problem
from lib.client import lock_path
from lib.process import threads, wait_until

CACHE = "proxy_cache_path cache levels=1:2 keys_zone=cache:1m;"


def connections_stay(proxy, number):
    """The proxy sees so many connections, and no more come."""
    wait_until(lambda: proxy.accepted >= number, 10,
               "%d connections" % number)
    time.sleep(0.3)     # for one too many there is nothing to wait for
    assert proxy.accepted == number


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_session_a_worker(zookeeper, start_gateway, start_proxy, workers):
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            workers=workers)
    connections_stay(proxy, workers)
    for worker in gateway.worker_pids():
        token = gateway.hold("x", worker=worker).token
        gateway.release("x", token)
    assert proxy.accepted == workers


def test_cache_processes_have_no_session(zookeeper, start_gateway,
                                         start_proxy):
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            http=CACHE)
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
def test_clean_end_frees_the_locks(start_gateway, private_zookeeper,
                                   connect_tree, end):
    """The sessions are counted, so the server is the test's own."""
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
        tree.wait_claims(gateway.znode("x%d" % i), 0, 3)
    assert time.monotonic() - began < 5
    assert private_zookeeper.global_sessions() == sessions
    assert "open socket" not in gateway.log_text()
    gateway.finish()


def test_end_without_zookeeper(private_zookeeper, start_gateway):
    """Nobody is left to close the session with; nginx ends all the same."""
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
    """A fast end cuts them, and leaves no claim."""
    gateway = start_gateway(session_timeout="60s")
    gateway.hold("x")
    waiters = [gateway.begin("x") for _ in range(20)]
    tree.wait_claims(gateway.znode("x"), 21)
    gateway.terminate()
    tree.wait_claims(gateway.znode("x"), 0, 3)
    for waiter in waiters:
        assert waiter.closed_by_server(5)


def test_first_request_of_all(start_gateway):
    """The session is not there yet: the request waits for it."""
    for _ in range(3):
        gateway = start_gateway(wait_sessions=False)
        response = gateway.acquire("x")
        grant(response, "x")
        gateway.stop()


def test_reload_without_locks(start_gateway, private_zookeeper):
    """New workers serve at once, the old ones and their sessions go."""
    private_zookeeper.start()
    sessions = private_zookeeper.global_sessions()
    gateway = start_gateway(zookeeper=private_zookeeper)
    for _ in range(3):
        gateway.reload()
        response = gateway.acquire("x", timeout=10)
        grant(response, "x")
        gateway.release("x", response.token)
        wait_until(lambda: not gateway.worker_pids(leaving=True), 10,
                   "the old workers are gone")
    wait_until(lambda: private_zookeeper.global_sessions()
               == sessions + gateway.workers, 10, "their sessions are gone")


def test_reload_changes_directives(start_gateway):
    gateway = start_gateway(location="zk_lock_ttl 7s;")
    token = gateway.hold("x").token
    assert gateway.inspect("x", token).json["ttl_ms"] == 7000
    gateway.release("x", token)
    gateway.change_conf("zk_lock_ttl 7s;", "zk_lock_ttl 9s;")
    gateway.reload()
    response = gateway.hold("x", timeout=10)
    assert response.json["ttl_ms"] == 9000
    gateway.release("x", response.token)


def test_killed_worker(start_gateway, tree):
    """Its waiters are cut off, a new one takes its place, and sooner or later
    every lock can be had again: nobody waits for the dead for ever.
    """
    gateway = start_gateway(session_timeout="2s")
    victim, other = gateway.worker_pids()
    gateway.hold("x", ttl="2s", worker=victim)
    cut_off = gateway.begin("x", worker=victim)
    tree.wait_claims(gateway.znode("x"), 2)
    waiter = gateway.begin("x", wait="1m", worker=other)
    tree.wait_claims(gateway.znode("x"), 3)

    gateway.kill_worker(victim)
    assert cut_off.closed_by_server(5)
    response = waiter.response(15)
    grant(response, "x")
    gateway.release("x", response.token)
    wait_until(lambda: len(gateway.worker_pids()) == 2, 5, "a new worker")
    for worker in gateway.worker_pids():
        token = gateway.hold("x", worker=worker, timeout=10).token
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
    gateway.release("x", waiter.response(5).token)


def test_zookeepers_expired_session_is_replaced(private_zookeeper,
                                                start_gateway, connect_tree):
    """The session is over: new requests are served by a new one."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, session_timeout="2s",
                            workers=1)
    tree = connect_tree(private_zookeeper.address, timeout=30.0)
    gateway.hold("x")
    old = tree.stat(gateway.znode("x") + "/"
                    + tree.claims(gateway.znode("x"))[0]).ephemeralOwner
    worker, = gateway.worker_pids()
    with gateway.frozen_worker(worker):
        tree.wait_claims(gateway.znode("x"), 0, 15)
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
    "unknown host": ("zk_lock_servers no-such-host.invalid:2181;",
                     "no-such-host.invalid"),
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
}


@pytest.mark.parametrize("what", sorted(BAD_CONF))
def test_bad_configuration(start_gateway, what):
    directives, word = BAD_CONF[what]
    gateway = start_gateway(zookeeper=None, start=False, http=directives)
    gateway.allow(r"\[emerg\]")
    code, output = gateway.test_conf()
    assert code != 0, output
    text = output + gateway.log_text()
    assert "[emerg]" in text
    assert word in text


def test_api_without_servers(start_gateway):
    gateway = start_gateway(zookeeper=None, start=False,
                            server="location /locks/ { zk_lock_api; }")
    gateway.allow(r"\[emerg\]")
    code, output = gateway.test_conf()
    assert code != 0
    assert "zk_lock_servers" in output + gateway.log_text()


def test_zone_says_how_much_it_holds(start_gateway):
    gateway = start_gateway(http="zk_lock_zone 1m;")
    lines = [line for line in gateway.log_text().splitlines()
             if "zone" in line and "claims" in line]
    assert lines, "the log does not tell how many claims the zone holds"


def test_full_zone(start_gateway, tree):
    """No room for a record: 503, and those who have one are not harmed."""
    gateway = start_gateway(http="zk_lock_zone 256k;", workers=1)
    held = []
    with gateway.connect() as connection:
        for i in range(5000):
            response = connection.request("POST", lock_path("x%d" % i))
            if response.status != 201:
                break
            held.append(response.token)
        problem(response, 503)
        assert held
        response = connection.request("DELETE", lock_path("x0", held[0]))
        # 503: a stall of ZooKeeper; the gateway carries the release out
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
    """Neither behind an `if`, which is no location, nor to a lock."""
    gateway = start_gateway(
        location="if ($arg_owner) { post_action @after; }",
        server="location @after { return 204; }"
               "location /other { post_action /locks/y; return 200; }")
    assert gateway.call("POST", lock_path("x"),
                        {"owner": "me"}).status == 403
    assert gateway.call("GET", "/other").status == 200
    for name in ("x", "y"):
        assert gateway.inspect(name).status == 404
