"""ZooKeeper's servers by name: names that move, or do not resolve.

A proxy stands for an address of the server.  The name moves from one address
to another, on the same port; the DNS server answers with a time to live of a
second.
"""

import os
import re

import pytest

from lib.checks import grant, problem
from lib.dns import NXDOMAIN, SERVFAIL, SILENT
from lib.gateway import version
from lib.holders import Held, Keeper
from lib.process import free_port, wait_until

NAME = "zk-0.zk.test"
OLD, NEW = "127.0.0.1", "127.0.0.2"
RESOLVER = "resolver %s;\nresolver_timeout 1s;\n"
SOON = 30.0


@pytest.fixture
def places(zookeeper, start_proxy):
    """A function: the proxies at these addresses, all on one port."""
    port = free_port()

    def start(*hosts):
        return [start_proxy(zookeeper, port=port, host=host)
                for host in hosts]

    return start


@pytest.fixture
def start_named(start_gateway, dns):
    """A function that starts a gateway whose server is NAME."""
    def start(port, served=True, servers=None, **options):
        options.setdefault("session_timeout", "20s")
        gateway = start_gateway(
            servers=servers or "%s:%d resolve" % (NAME, port),
            wait_sessions=False, http=RESOLVER % dns.address, **options)
        if served:
            gateway.wait_served()
        return gateway

    return start


def lines(gateway, pattern):
    return re.findall(pattern, gateway.log_text())


def not_lost(gateway):
    """No worker has lost a session."""
    assert not lines(gateway, "session is over")


def asked_again(dns, times=6, name=NAME):
    """Waits until the workers have asked, and have heard, a few times more."""
    goal = dns.asked[name] + times
    wait_until(lambda: dns.asked[name] >= goal, SOON, "more questions")


def leave(proxy):
    proxy.refuse()
    proxy.kill()


def test_name_that_moves(places, start_named, dns, tree):
    """The old address is closed; the locks are held on, and renewed."""
    old, new = places(OLD, NEW)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port)
    held = Held(gateway, tree).spread(100)
    with Keeper(held) as keeper:
        waiter = gateway.begin("held0", wait="1m")
        dns.names[NAME] = [NEW]
        leave(old)
        wait_until(lambda: new.connections() >= 2, SOON, "all workers move")
        keeper.next_rounds(2)
    held.check()
    assert waiter.silent_for(0)
    held.release("held0")
    gateway.release("held0", grant_of(waiter, "held0"))
    held.release()
    not_lost(gateway)
    assert len(lines(gateway, r"\[notice\].*has the addresses \"%s:%d\""
                     % (NEW, new.port))) == 2


def grant_of(waiter, name):
    response = waiter.response(SOON)
    grant(response, name)
    return response.token


def test_silent_address(places, start_named, dns, tree):
    """The old address is open, and silent: the session is not lost."""
    old, new = places(OLD, NEW)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port, session_timeout="12s")
    held = Held(gateway, tree).spread(10)
    dns.names[NAME] = [NEW]
    old.hole()
    wait_until(lambda: new.connections() >= 2, SOON, "all workers move")
    held.check()
    held.release()
    not_lost(gateway)


def test_silent_address_at_the_second_attempt(places, start_named, dns, tree):
    """The name moves while libzookeeper waits for the old address again."""
    old, new = places(OLD, NEW)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port, session_timeout="20s")
    held = Held(gateway, tree).spread(10)
    accepted = old.accepted
    old.hole()
    wait_until(lambda: old.accepted >= accepted + 2, SOON, "new attempts")
    dns.names[NAME] = [NEW]
    wait_until(lambda: new.connections() >= 2, SOON, "all workers move")
    held.check()
    held.release()
    not_lost(gateway)


def test_connection_that_works(places, start_named, dns, tree):
    """A connection to an address of before stays as long as it works."""
    old, new = places(OLD, NEW)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port)
    held = Held(gateway, tree).spread(10)
    dns.names[NAME] = [NEW]
    wait_until(lambda: len(lines(gateway, "has the addresses")) == 4, SOON,
               "all workers know")
    held.check()
    assert (old.connections(), new.connections()) == (2, 0)
    leave(old)
    wait_until(lambda: new.connections() == 2, SOON, "all workers move")
    held.check()
    held.release()
    not_lost(gateway)


@pytest.mark.parametrize("answer", [NXDOMAIN, SERVFAIL, SILENT])
def test_unknown_at_the_start(places, start_named, dns, answer):
    """nginx starts, and serves locks when the name resolves."""
    new, = places(NEW)
    dns.names[NAME] = answer
    gateway = start_named(new.port, served=False)
    assert gateway.test_conf()[0] == 0
    for worker in gateway.worker_pids():
        assert gateway.call("GET", "/ready", worker=worker).status == 204
        problem(gateway.acquire("x", wait="1s", worker=worker), 503)
    wait_until(lambda: len(lines(gateway, r"\[warn\].*no address is known"))
               == 2, SOON, "a warning of each worker")
    dns.names[NAME] = [NEW]
    gateway.wait_served()
    for worker in gateway.worker_pids():
        response = gateway.acquire("x", worker=worker)
        grant(response, "x")
        gateway.release("x", response.token)


@pytest.mark.parametrize("answer", [NXDOMAIN, SERVFAIL, SILENT])
def test_resolver_that_fails_later(places, start_named, dns, tree, answer):
    """The last known addresses stay, also for a new connection."""
    old, = places(OLD)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port)
    held = Held(gateway, tree).spread(10)

    def warnings():
        return len(lines(gateway, "last known addresses stay"))

    def notices():
        return len(lines(gateway, r"\[notice\].*resolved again"))

    # an answer that this process sends late is a failure, too, with a warning
    # and a notice of its own
    wait_until(lambda: warnings() == notices(), SOON, "the name is known")
    before = warnings()
    dns.names[NAME] = answer
    wait_until(lambda: warnings() == before + 2, SOON,
               "a warning of each worker")
    asked_again(dns)
    old.kill()
    held.check()
    assert warnings() == before + 2
    assert len(lines(gateway, "could not be resolved")) == before + 2
    dns.names[NAME] = [OLD]
    wait_until(lambda: notices() == warnings(), SOON,
               "a notice of each worker")
    held.release()
    not_lost(gateway)


def test_all_addresses(places, start_named, dns, tree):
    """IPv4 and IPv6 addresses of a name, of which one is open at a time."""
    proxies = places(OLD, NEW, "::1")
    dns.names[NAME] = [proxy.host for proxy in proxies]
    for proxy in proxies[1:]:
        leave(proxy)
    gateway = start_named(proxies[0].port)
    held = Held(gateway, tree).spread(10)
    for now, then in zip(proxies, proxies[1:]):
        then.listen()
        leave(now)
        wait_until(lambda: then.connections() == 2, SOON, "all workers move")
        held.check()
    held.release()
    not_lost(gateway)
    # the order of the addresses changes, which is no change of the addresses
    asked_again(dns)
    assert len(lines(gateway, "has the addresses")) == 2


def test_several_names(places, start_named, dns, zookeeper):
    """Names, numbers and a chroot in one list; one name is unknown."""
    new, = places(NEW)
    dns.names["zk-1.zk.test"] = [NEW]
    gateway = start_named(new.port, servers="%s:%d,127.0.0.3:1,zk-1.zk.test:%d"
                          "%s resolve" % (NAME, new.port, new.port,
                                          "/t-resolve"))
    response = gateway.acquire("x")
    grant(response, "x")
    gateway.release("x", response.token)


def test_adopted_session(places, start_named, dns, tree):
    """A worker dies while ZooKeeper is away; then the name moves."""
    old, new = places(OLD, NEW)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port, session_timeout="20s")
    dead, other = gateway.worker_pids()
    held = Held(gateway, tree)
    for i in range(10):
        held.add("x%d" % i, worker=dead)
    leave(old)
    gateway.kill_worker(dead)
    wait_until(lambda: lines(gateway, "has gone is adopted"), SOON,
               "an adoption")
    asked_again(dns)
    assert new.connections() == 0
    dns.names[NAME] = [NEW]
    wait_until(lambda: new.accepted >= 3, SOON, "all sessions move")
    gateway.wait_served()
    held.check()
    held.release()
    not_lost(gateway)


def test_session_that_is_over(places, start_named, dns):
    """The session that follows an expired session is at the new address."""
    old, new = places(OLD, NEW)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port, session_timeout="2s", workers=1)
    leave(old)
    asked_again(dns, 4)
    dns.names[NAME] = [NEW]
    gateway.wait_served()
    leave(new)
    dns.names[NAME] = [OLD]
    asked_again(dns, 6)
    old.listen()
    gateway.wait_served()
    response = gateway.hold("x")
    grant(response, "x")
    gateway.release("x", response.token)


def test_reload(places, start_named, dns, tree):
    """The same text is the same gateway: the tokens are known on."""
    old, = places(OLD)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port)
    held = Held(gateway, tree).spread(10)
    gateway.reload()
    gateway.wait_served()
    held.check()
    gateway.change_conf(" resolve;", ";")
    gateway.change_conf(NAME, OLD)
    gateway.change_conf(OLD + ":%d" % old.port, NAME + ":%d resolve" % old.port)
    gateway.reload()
    gateway.wait_served()
    held.check()
    held.release()
    not_lost(gateway)


def test_quit_while_a_query_waits(places, start_named, dns):
    """The timers and queries keep no worker."""
    old, = places(OLD)
    dns.names[NAME] = [OLD]
    gateway = start_named(old.port)
    gateway.change_conf("resolver_timeout 1s", "resolver_timeout 1h")
    dns.names[NAME] = SILENT
    before = dns.asked[NAME]
    gateway.reload()
    wait_until(lambda: dns.asked[NAME] >= before + 2, SOON, "queries wait")
    gateway.stop()


@pytest.mark.skipif(b"Angie" in version(),
                    reason="Angie's resolver is that of /etc/resolv.conf")
def test_no_resolver(start_gateway):
    gateway = start_gateway(servers="%s resolve" % NAME, start=False)
    gateway.allow(r"\[emerg\]")
    code, text = gateway.test_conf()
    assert code != 0
    line, = [line for line in text.splitlines() if "[emerg]" in line]
    assert '"resolver"' in line and "zk_lock_servers" in line
    gateway.change_conf("zk_lock_root", "resolver 127.0.0.1;\nzk_lock_root")
    assert gateway.test_conf()[0] == 0


def test_unknown_without_resolve(places, start_gateway):
    """A warning; the other servers are used."""
    old, = places(OLD)
    gateway = start_gateway(servers="no-such-host.invalid:2181,%s:%d"
                            % (OLD, old.port), wait_sessions=False)
    gateway.wait_served()
    response = gateway.acquire("x")
    grant(response, "x")
    gateway.release("x", response.token)
    code, text = gateway.test_conf()
    assert code == 0
    assert re.search(r"\[warn\].*no-such-host.invalid.*\"resolve\"", text)


def test_none_known_without_resolve(start_gateway):
    """nginx starts, and serves all but the locks."""
    gateway = start_gateway(servers="no-such-host.invalid",
                            wait_sessions=False)
    assert gateway.call("GET", "/ready").status == 204
    problem(gateway.acquire("x", wait="1s"), 503)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file")
def test_reload_while_a_name_is_unknown(places, start_gateway, tree, tmp_path):
    """Without "resolve": the addresses from before the reload stay."""
    old, = places(OLD)
    hosts = tmp_path / "hosts"
    hosts.write_text("%s %s\n" % (OLD, NAME))
    gateway = start_gateway(
        servers="%s:%d" % (NAME, old.port), wait_sessions=False,
        enter=["unshare", "-m", "sh", "-c",
               'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)])
    gateway.wait_served()
    held = Held(gateway, tree).spread(10)
    hosts.write_text("")
    gateway.reload()
    gateway.wait_served()
    held.check()
    held.release()
    assert lines(gateway, r"\[warn\].*from before the reload stay: \"%s:%d\""
                 % (OLD, old.port))


def test_ipv6_address(places, start_gateway):
    new, = places("::1")
    gateway = start_gateway(servers="[::1]:%d" % new.port,
                            wait_sessions=False)
    gateway.wait_served()
    response = gateway.acquire("x")
    grant(response, "x")
    gateway.release("x", response.token)
