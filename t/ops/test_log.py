"""zk_lock_log: who had which lock, since when, and how that ended.

Also zk_lock_owner, an owner that the client cannot choose, and
zk_lock_max_claims, how many claims a client may have.
"""

import base64
import collections
import contextlib
import itertools
import json
import os
import signal

import pytest

from lib import examples
from lib.client import lock_path
from lib.process import wait_until, whole_lines
from lib.sessions import expire, stay_ephemeral
from lib.streams import hold

SOON = 15.0
TIMES = ["held_ms", "waited_ms"]

USERS = ("auth_basic locks; auth_basic_user_file users;\n"
         "zk_lock_owner $remote_user;")


class Journal:
    """The lines of a gateway's zk_lock_log."""

    def __init__(self, gateway, name="locks.log"):
        self.path = os.path.join(gateway.prefix, name)

    def lines(self, **wanted):
        """The lines that have these members."""
        if not os.path.exists(self.path):
            return []
        lines = [json.loads(line) for line in whole_lines(self.path)]
        return [line for line in lines
                if all(line.get(key) == value
                       for key, value in wanted.items())]

    def wait(self, **wanted):
        """The only line that has these members."""
        line, = wait_until(lambda: self.lines(**wanted), SOON,
                           "a line with %s" % wanted)
        return line


@pytest.fixture
def logged(start_gateway):
    """A function that makes a gateway with a log, and gives both."""
    def make(parameters="", **options):
        options.setdefault("location", "zk_lock_admin on;")
        gateway = start_gateway(http="zk_lock_log locks.log %s;" % parameters,
                                **options)
        return gateway, Journal(gateway)
    return make


def of(response):
    return {"fencing_token": response.fencing}


def test_a_grant_and_a_release(logged):
    """Each is a line, with the same owner, fencing token and request."""
    gateway, journal = logged()
    holder = gateway.acquire("x", owner='"a" \u00e9', mode="semaphore",
                             permits="3")
    granted = journal.wait(event="granted")
    assert granted["path"] == gateway.znode("x")
    assert granted["owner"] == '"a" \u00e9'
    assert (granted["mode"], granted["permits"]) == ("semaphore", 3)
    assert granted["from"] == "127.0.0.1"
    assert granted["fencing_token"] == holder.fencing
    assert granted["waited_ms"] >= 0
    assert len(granted["request"]) == 32
    assert gateway.release("x", holder.token).status == 204
    ended = journal.wait(event="ended")
    assert (ended["reason"], ended["held_ms"] >= 0) == ("released", True)
    for line in (granted, ended):
        for key in ["time", "event", "reason"] + TIMES:
            line.pop(key, None)
    assert granted == ended


def test_the_address_is_not_what_a_client_says(logged):
    gateway, journal = logged()
    response = gateway.acquire("x", {"owner": 'o","from":"1.2.3.4',
                                     "data": {"from": "1.2.3.4"}})
    assert response.status == 201, response
    line = journal.wait(event="granted")
    assert line["from"] == "127.0.0.1"
    assert line["owner"] == 'o","from":"1.2.3.4'


def test_a_wait_is_told(logged):
    gateway, journal = logged()
    holder = gateway.acquire("x")
    waiter = gateway.begin("x", wait="1m")
    wait_until(lambda: gateway.inspect("x").json["queued"] == 1)
    assert gateway.release("x", holder.token).status == 204
    second = waiter.response(SOON)
    assert second.status == 201
    line = journal.wait(event="granted", **of(second))
    assert line["waited_ms"] > 0
    journal.wait(event="ended", **of(holder))
    # a wait that ends without the grant has no line
    assert gateway.acquire("x", wait="0").status == 423
    assert len(journal.lines()) == 3


@pytest.mark.parametrize("durable", ["", "1"])
def test_a_lease_that_is_over(logged, durable):
    gateway, journal = logged()
    # a durable lease begins three answers of ZooKeeper before the grant is told
    seconds = 6 if durable else 0.2
    query = {"durable": "1"} if durable else {}
    holder = gateway.acquire("x", owner="a", ttl="%gs" % seconds, **query)
    line = journal.wait(event="ended")
    assert line["reason"] == "expired"
    assert line["owner"] == "a"
    assert line["fencing_token"] == holder.fencing
    assert line["held_ms"] >= seconds * 1000


def test_a_break(logged):
    """The operator's line, and the end of the claim."""
    gateway, journal = logged()
    gateway.allow("was broken by user")
    holder = gateway.acquire("x", owner="a")
    worker = next(pid for pid in gateway.worker_pids())
    assert gateway.call("DELETE", lock_path("x"), {"force": "1"},
                        {"If-Match": '"%d"' % holder.fencing},
                        worker=worker).status == 204
    line = journal.wait(event="break")
    assert line["owner"] == "a" and line["user"] == "-"
    assert line["fencing_token"] == holder.fencing
    wait_until(lambda: journal.lines(event="ended", reason="broken"), SOON,
               "the end")


def test_a_revocation(logged):
    gateway, journal = logged()
    holder = gateway.acquire("x", owner="a")
    assert gateway.call("PUT", lock_path("x"), {"revoke": "1"},
                        {"If-Match": '"%d"' % holder.fencing}).status == 202
    line = journal.wait(event="revoke")
    assert line["fencing_token"] == holder.fencing
    assert not journal.lines(event="ended")


def test_a_release_at_another_gateway(logged, start_gateway):
    """Both gateways have a line, with the same fencing token and owner."""
    gateway, journal = logged()
    other = start_gateway(http="zk_lock_log locks.log;")
    holder = gateway.acquire("x", owner="a", mode="shared")
    assert other.release("x", holder.token).status == 204
    line = Journal(other).wait(event="ended")
    assert line["reason"] == "released" and "held_ms" not in line
    assert (line["owner"], line["mode"]) == ("a", "shared")
    assert line["fencing_token"] == holder.fencing
    line = journal.wait(event="ended")
    assert line["reason"] == "deleted" and line["held_ms"] >= 0
    assert line["fencing_token"] == holder.fencing


def test_a_worker_dies(logged):
    """Another worker takes the lease over, and tells of the end."""
    gateway, journal = logged()
    worker = gateway.worker_pids()[0]
    holder = gateway.acquire("x", worker=worker)
    gateway.kill_worker(worker)
    assert journal.wait(event="taken_over")["fencing_token"] == holder.fencing
    assert gateway.release("x", holder.token).status == 204
    line = journal.wait(event="ended")
    assert line["reason"] == "released"
    assert line["fencing_token"] == holder.fencing


def test_a_session_expires(logged, start_proxy, zookeeper, tree):
    """A lease that is not durable is lost with the session."""
    proxy = start_proxy(zookeeper)
    gateway, journal = logged(
        servers=proxy.address, wait_sessions=False,
        session_timeout="6s")
    stay_ephemeral(tree, gateway.znode("x"))
    holder = gateway.hold("x", ttl="1h")
    expire(gateway, proxy, tree, "x")
    line = wait_until(lambda: journal.lines(event="ended"), 20, "the end")[0]
    assert line["reason"] == "session"
    assert line["fencing_token"] == holder.fencing


def test_a_lease_is_over_before_its_session(logged, start_proxy, zookeeper,
                                            tree):
    """The claim could not be deleted: the lease has ended first."""
    proxy = start_proxy(zookeeper)
    gateway, journal = logged(servers=proxy.address, wait_sessions=False,
                              session_timeout="4s")
    holder = gateway.hold("x", ttl="1s")
    proxy.hole()
    tree.wait_claims(gateway.znode("x"), 0, 20)
    proxy.pass_on()
    line = wait_until(lambda: journal.lines(event="ended"), 20, "the end")[0]
    assert line["reason"] == "expired"
    assert line["fencing_token"] == holder.fencing


def test_several_locks_and_guards(logged):
    """Each lock of a request has lines; all have the request's id."""
    gateway, journal = logged(
        server="location /app/ { zk_lock guarded owner=app; "
               "try_files /none =204; }")
    response = gateway.call("POST", lock_path(""),
                            body={"names": ["a", "b"]})
    assert response.status == 201, response
    lines = wait_until(lambda: len(journal.lines(event="granted")) == 2
                       and journal.lines(), SOON, "two grants")
    assert {line["path"] for line in lines} == {
        gateway.znode("a"), gateway.znode("b")}
    assert len({line["request"] for line in lines}) == 1
    assert gateway.call("GET", "/app/").status == 204
    granted = journal.wait(event="granted", path=gateway.znode("guarded"))
    assert granted["owner"] == "app"
    ended = journal.wait(event="ended", path=gateway.znode("guarded"))
    assert ended["reason"] == "released"
    assert ended["request"] == granted["request"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_connection_that_ends(logged, dies):
    """Releases the lock; so does the end of the connection's worker."""
    gateway, journal = logged()
    worker = gateway.worker_pids()[0]
    stream = hold(gateway, "x", worker=worker)
    granted = journal.wait(event="granted")
    if dies:
        gateway.kill_worker(worker)
    else:
        stream.close()
    ended = journal.wait(event="ended")
    assert ended["reason"] == "released"
    assert ended["fencing_token"] == granted["fencing_token"]


def test_a_znode_that_is_deleted(logged, tree):
    gateway, journal = logged()
    gateway.allow("deleted by somebody else")
    gateway.hold("x")
    claim, = tree.claims(gateway.znode("x"))
    tree.delete(gateway.znode("x") + "/" + claim)
    assert journal.wait(event="ended")["reason"] == "deleted"


def test_the_request_id_joins_the_logs(logged):
    """$request_id in the access log is the id of the line."""
    gateway, journal = logged(
        server="add_header X-Request-ID $request_id always;")
    response = gateway.acquire("x")
    assert (journal.wait(event="granted")["request"]
            == response.headers["X-Request-ID"])


def test_a_release_fills_the_variables(start_gateway):
    """Also at a gateway that has not granted the claim."""
    options = {"http": "log_format l '$request_method $zk_lock_name "
                       "$zk_lock_outcome $zk_lock_fencing_token';",
               "server": "access_log l.log l;"}
    gateways = [start_gateway(**options) for _ in range(2)]
    for gateway in gateways:
        holder = gateways[0].acquire("x")
        assert gateway.release("x", holder.token).status == 204
        wanted = "DELETE x released %d" % holder.fencing
        wait_until(lambda: wanted in whole_lines(gateway.prefix + "/l.log"),
                   SOON, wanted)


def test_logs_are_reopened(logged):
    """As other logs of nginx: after USR1 the lines go to a new file."""
    gateway, journal = logged()
    assert gateway.acquire("x").status == 201
    journal.wait(event="granted")
    os.rename(journal.path, journal.path + ".1")
    gateway.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: os.path.exists(journal.path), SOON, "the new file")
    for worker in gateway.worker_pids():
        # the worker opens the file after the master, so a line may still go to
        # the old file
        names = map(("y%d-%%d" % worker).__mod__, itertools.count())
        wait_until(lambda: journal.lines(event="granted", **of(
            gateway.acquire(next(names), worker=worker))), SOON, "a line")


@pytest.mark.parametrize("parameters", ["", "buffer=16k"])
def test_not_all_users_of_the_machine_read_the_log(logged, parameters):
    """Also the file that USR1 makes; a file that exists keeps its mode."""
    gateway, journal = logged(parameters, start=False)
    before = os.umask(0)
    try:
        gateway.start()
        assert os.stat(journal.path).st_mode & 0o777 == 0o640
        os.rename(journal.path, journal.path + ".1")
        gateway.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: os.path.exists(journal.path), SOON, "the new file")
        # nginx reopens its logs one by one: a signal later all
        # is done
        gateway.process.send_signal(signal.SIGUSR1)
        assert gateway.acquire("x").status == 201
        assert os.stat(journal.path).st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    os.chmod(journal.path, 0o600)
    gateway.reload()
    assert os.stat(journal.path).st_mode & 0o777 == 0o600


def test_a_buffer(logged):
    """Lines are whole, and come when nginx reopens the logs, or "flush"."""
    gateway, journal = logged("buffer=16k", workers=1)
    assert gateway.acquire("x").status == 201
    assert journal.lines() == []
    gateway.process.send_signal(signal.SIGUSR1)
    journal.wait(event="granted")


def test_a_buffer_is_flushed(logged):
    gateway, journal = logged("buffer=16k flush=100ms", workers=1)
    assert gateway.acquire("x").status == 201
    journal.wait(event="granted")


def test_a_full_buffer(logged):
    """No line is lost, and none is cut."""
    gateway, journal = logged("buffer=16k", workers=1)
    for n in range(60):
        holder = gateway.acquire("x%d" % n, owner="o" * 255)
        assert gateway.release("x%d" % n, holder.token).status == 204
    assert journal.lines(event="granted")
    gateway.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: len(journal.lines(event="ended")) == 60, SOON, "all")
    assert len(journal.lines()) == 120


def test_a_worker_that_leaves_writes_its_buffer(logged):
    gateway, journal = logged("buffer=16k")
    assert gateway.acquire("x", durable="1").status == 201
    gateway.finish()
    assert len(journal.lines(event="granted")) == 1


@pytest.mark.parametrize("first", ["zk_lock_log", "access_log"])
def test_an_access_log_has_the_same_file(start_gateway, first):
    """Without "buffer" the lines of both come at once."""
    logs = {"zk_lock_log": "zk_lock_log locks.log;",
            "access_log": "access_log locks.log l;"}
    gateway = start_gateway(
        workers=1,
        http="log_format l escape=json '{\"event\":\"$request_method\"}';"
             + logs.pop(first) + "".join(logs.values()))
    journal = Journal(gateway)
    assert gateway.acquire("x").status == 201
    journal.wait(event="granted")
    wait_until(lambda: journal.lines(event="POST"), SOON, "the access")


CONFS = {
    "twice": ("zk_lock_log a.log; zk_lock_log b.log;", "is duplicate"),
    "a buffer": ("zk_lock_log a.log buffer=1k;", "at least 16k"),
    "flush": ("zk_lock_log a.log flush=1s;", "with \"buffer\" only"),
    "no time": ("zk_lock_log a.log buffer=16k flush=x;", "above zero"),
    "what": ("zk_lock_log a.log gzip;", "takes a path"),
    "syslog": ("zk_lock_log syslog:server=127.0.0.1;", "the path of a file"),
    "stderr": ("zk_lock_log stderr;", "the path of a file"),
    "variables": ("zk_lock_log $host.log;", "the path of a file"),
    "claims": ("zk_lock_max_claims 0;", "above zero"),
    "claims twice": ("zk_lock_max_claims 1; zk_lock_max_claims 2;",
                     "is duplicate"),
    "owner twice": ("zk_lock_owner a; zk_lock_owner b;", "is duplicate"),
    "owner": ("zk_lock_owner $nonesuch;", "unknown \"nonesuch\" variable"),
}


@pytest.mark.parametrize("what", CONFS)
def test_directives_that_are_wrong(start_gateway, what):
    directives, error = CONFS[what]
    gateway = start_gateway(start=False, http=directives)
    gateway.allow("emerg")
    code, output = gateway.test_conf()
    assert code != 0 and error in output, output


def test_off(start_gateway):
    gateway = start_gateway(http="zk_lock_log off; zk_lock_owner off; "
                                 "zk_lock_max_claims off;")
    assert gateway.acquire("x", owner="a").json["owner"] == "a"


def user(name):
    return {"Authorization": "Basic %s" % base64.b64encode(
        ("%s:%s" % (name, name)).encode()).decode()}


@pytest.fixture
def owned(logged):
    """A gateway with users, whose names are the owners."""
    gateway, journal = logged(start=False, location=USERS)
    with open(os.path.join(gateway.prefix, "users"), "w") as f:
        f.write("".join("%s:{PLAIN}%s\n" % (name, name)
                        for name in ("ann", "bob")))
    gateway.start()
    return gateway, journal


def test_an_owner_that_the_client_cannot_choose(owned):
    gateway, journal = owned
    response = gateway.acquire("x", headers=user("ann"))
    assert response.status == 201 and response.json["owner"] == "ann"
    assert journal.wait(event="granted")["owner"] == "ann"
    response = gateway.acquire("y", owner="root", headers=user("bob"))
    assert response.status == 400
    assert "owner" in response.json["detail"]


def test_a_guard_has_the_owner(start_gateway, tree):
    """Unless its zk_lock names another."""
    gateway = start_gateway(
        server="zk_lock_owner $arg_who;\n"
               "location /app/ { zk_lock x; zk_lock a owner=mine; "
               "proxy_pass http://127.0.0.1:1; proxy_connect_timeout 1s; }")
    gateway.allow(r"connect\(\) failed")
    other = gateway.acquire("x")
    waiter = gateway.connect().send("GET", "/app/?who=ann")
    wait_until(lambda: gateway.inspect("x").json["queued"] == 1)
    queue = gateway.inspect("x").json["queue"]
    assert queue[0]["owner"] == "ann"
    holder, = gateway.inspect("a").json["holders"]
    assert holder["owner"] == "mine"
    assert gateway.release("x", other.token).status == 204
    assert waiter.response(SOON).status == 502


def limited(start_gateway, limit, **options):
    return start_gateway(location="zk_lock_max_claims %s;" % limit, **options)


def test_a_client_has_as_many_claims_as_it_may(start_gateway):
    """Held and waiting claims count, at all workers; a release makes room."""
    gateway = limited(start_gateway, '2 $http_x_who', workers=2)
    gateway.allow("zk_lock_max_claims")
    ann, bob = {"X-Who": "ann"}, {"X-Who": "bob"}
    first, second = gateway.worker_pids()
    holder = gateway.acquire("x", headers=ann, worker=first)
    waiter = gateway.begin("x", headers=ann, worker=second, wait="1m")
    wait_until(lambda: gateway.inspect("x").json["queued"] == 1)
    for worker in (first, second):
        response = gateway.acquire("y", headers=ann, worker=worker)
        assert response.status == 429, response
        assert "zk_lock_max_claims" in response.json["detail"]
        assert response.headers["Retry-After"]
    assert gateway.acquire("y", headers=bob).status == 201
    assert gateway.acquire("z").status == 201       # no key: not counted
    assert gateway.acquire("u").status == 201
    assert gateway.acquire("v").status == 201
    # a renewal and a release are served
    assert gateway.renew("x", holder.token).status == 200
    assert gateway.release("x", holder.token).status == 204
    assert waiter.response(SOON).status == 201
    wait_until(lambda: gateway.acquire("w", headers=ann).status == 201)
    assert gateway.acquire("t", headers=ann).status == 429


def test_claims_of_a_worker_that_died_count(start_gateway):
    """Until the claims have ended, and not any longer."""
    gateway = limited(start_gateway, '1 $http_x_who', workers=2)
    gateway.allow("zk_lock_max_claims")
    ann = {"X-Who": "ann"}
    worker = gateway.worker_pids()[0]
    holder = gateway.acquire("x", headers=ann, worker=worker)
    gateway.kill_worker(worker)
    assert gateway.acquire("y", headers=ann).status == 429
    assert gateway.release("x", holder.token).status == 204
    wait_until(lambda: gateway.acquire("y", headers=ann).status == 201)


def test_several_locks_count_each(start_gateway):
    gateway = limited(start_gateway, '2 $http_x_who')
    gateway.allow("zk_lock_max_claims")
    ann = {"X-Who": "ann"}
    response = gateway.call("POST", lock_path(""), headers=ann,
                            body={"names": ["a", "b", "c"]})
    assert response.status == 429, response
    # none of the three is left
    wait_until(lambda: gateway.call(
        "POST", lock_path(""), headers=ann,
        body={"names": ["a", "b"]}).status == 201)


def test_a_greedy_client_stops_no_other(start_gateway):
    """Hundreds of acquires over one connection, in a zone that has room for
    fewer.
    """
    gateway = limited(start_gateway, "50 $http_x_who",
                      http="zk_lock_zone 256k;", workers=1)
    gateway.allow("zk_lock_max_claims")
    with contextlib.closing(gateway.connect_http2()) as connection:
        statuses = collections.Counter(connection.request(
            "POST", lock_path("x%d" % n), {"ttl": "1h"},
            headers={"x-who": "ann"}).status
            for n in range(832))
    assert statuses == {201: 50, 429: 782}
    assert gateway.acquire("x0", wait="0",
                           headers={"X-Who": "bob"}).status == 423
    for n in range(50):
        assert gateway.acquire("y%d" % n,
                               headers={"X-Who": "bob"}).status == 201


PATH_BYTES = 1000000        # of all claims of a session


def test_a_refusal_takes_no_room(start_gateway, root):
    """Of what a session and the zone have room for, a refused claim takes
    nothing.
    """
    gateway = limited(start_gateway, "1 $http_x_who", workers=1,
                      root=root + "/" + "r" * 230)
    gateway.allow("zk_lock_max_claims")
    who, name = {"x-who": "ann"}, "n" * 200
    room = PATH_BYTES // len(gateway.znode(name)) + 1
    holder = gateway.hold(name, headers=who)
    used = gateway.metrics()["claims_used", ""]
    asked = {"names": [name, "m" * 200]}
    with contextlib.closing(gateway.connect_http2()) as connection:
        for path, body in ((lock_path(name), None), (lock_path(""), asked)):
            for _ in range(room // 50 + 1):
                streams = [connection.send("POST", path, None, who, body)
                           for _ in range(50)]
                assert {connection.response(stream).status
                        for stream in streams} == {429}
    assert gateway.metrics()["claims_used", ""] == used
    assert gateway.acquire(name, wait="0", headers={"X-Who": "bob"}
                           ).status == 423
    assert gateway.release(name, holder.token).status == 204


def released(gateway, who):
    gateway.release("x", gateway.acquire("x", headers=who).token)


def leased(gateway, who):
    assert gateway.acquire("x", ttl="100ms", headers=who).status == 201


def refused_at_once(gateway, who):
    holder = gateway.acquire("x")
    assert gateway.acquire("x", wait="0", headers=who).status == 423
    gateway.release("x", holder.token)


def left(gateway, who):
    holder = gateway.acquire("x")
    waiter = gateway.begin("x", headers=who, wait="1m")
    wait_until(lambda: gateway.inspect("x").json["queued"] == 1)
    waiter.close()
    wait_until(lambda: gateway.inspect("x").json["queued"] == 0)
    gateway.release("x", holder.token)


def cancelled(gateway, who):
    holder = gateway.acquire("x")
    waiter = gateway.acquire("x", wait="1m", headers=dict(
        who, Prefer="respond-async"))
    assert waiter.status == 202
    gateway.release("x", waiter.token)
    gateway.release("x", holder.token)


def broken(gateway, who):
    assert gateway.acquire("x", headers=who).status == 201
    assert gateway.call("DELETE", lock_path("x"), {"force": "1"},
                        {"If-Match": "*"}).status == 204


def streamed(gateway, who):
    stream = hold(gateway, "x", headers=who)
    stream.event("granted")
    stream.close()


def in_another_mode(gateway, who):
    holder = gateway.acquire("x", mode="shared")
    assert gateway.acquire("x", mode="semaphore", permits=2, headers=who
                           ).status == 409
    gateway.release("x", holder.token)


def one_of_two(gateway, who):
    holder = gateway.acquire("x")
    assert gateway.call("POST", lock_path(""), headers=who, body={
        "names": ["a", "x"], "wait": 0}).status == 423
    gateway.release("x", holder.token)


def died(gateway, who):
    worker = gateway.worker_pids()[0]
    stream = hold(gateway, "x", headers=who, worker=worker)
    stream.event("granted")
    gateway.kill_worker(worker)


def test_what_has_ended_does_not_count(start_gateway):
    """A client that may have two claims has two again after each ending."""
    gateway = start_gateway(
        location="zk_lock_max_claims 2 $http_x_who; zk_lock_admin on;")
    gateway.allow("zk_lock_max_claims")
    for ending in (released, leased, refused_at_once, left, cancelled, broken,
                   streamed, in_another_mode, one_of_two, died):
        who = {"X-Who": ending.__name__}
        ending(gateway, who)
        tokens = [wait_until(lambda: acquired(gateway, name, who), SOON,
                             ending.__name__) for name in ("a", "b")]
        assert gateway.acquire("c", headers=who).status == 429
        for name, token in zip("ab", tokens):
            assert gateway.release(name, token).status == 204


def acquired(gateway, name, who):
    """The token, or None."""
    response = gateway.acquire(name, headers=who)
    return response.token if response.status == 201 else None


def murmur(key):
    """MurmurHash2 as nginx has it, which takes no secret."""
    multiplier, wide = 0x5bd1e995, 0xffffffff
    at, left = 0, len(key)
    h = left
    while left >= 4:
        k = int.from_bytes(key[at:at + 4], "little") * multiplier & wide
        k = (k ^ k >> 24) * multiplier & wide
        h = h * multiplier & wide ^ k
        at, left = at + 4, left - 4
    if left:
        h = (h ^ int.from_bytes(key[at:], "little")) * multiplier & wide
    h = (h ^ h >> 13) * multiplier & wide
    return h ^ h >> 15


def test_a_key_that_has_the_hash_of_another(start_gateway):
    """A client that chooses its key by the hash takes no place of a victim."""
    seen = {}
    for n in range(1000000):
        key = "client-%d" % n
        other = seen.setdefault(murmur(key.encode()), key)
        if other != key:
            break
    assert other != key
    gateway = limited(start_gateway, '1 $http_x_who')
    assert gateway.acquire("x", headers={"X-Who": key}).status == 201
    assert gateway.acquire("y", headers={"X-Who": other}).status == 201


def test_one_client_with_many_addresses(start_gateway):
    """The recipe: 64 bits of an address of IPv6 count, all of one of IPv4."""
    names = iter(range(100))

    def status(address):
        return gateway.acquire("x%d" % next(names), headers={
            "X-Forwarded-For": address}).status

    gateway = limited(
        start_gateway, "1 $network",
        http=examples.codes("docs/recipes.md",
                            "One client with many addresses")[0]
        .split("zk_lock_max_claims")[0],
        server="set_real_ip_from 127.0.0.1;\nreal_ip_header X-Forwarded-For;")
    gateway.allow("zk_lock_max_claims")
    for address in ("2001:db8:0:1::1", "2001:db8::1:0:0:1", "2001:db8:1::1",
                    "10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3",
                    "::ffff:10.0.0.4", "2001:a0a:a0a:a0a:a0a:a0a:a0a:a0a"):
        assert status(address) == 201, address
    for address in ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1:ffff::",
                    "2001:db8:0:0:1:0:0:2", "2001:db8::1", "2001:db8:1:0:9::",
                    "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.4",
                    "2001:a0a:a0a:a0a::"):
        assert status(address) == 429, address


def test_a_guard_counts(start_gateway):
    gateway = start_gateway(
        server="location /app/ { zk_lock_max_claims 1 all; zk_lock $arg_n; "
               "try_files /none =204; }\n")
    gateway.allow("zk_lock_max_claims")
    other = gateway.acquire("x")
    waiter = gateway.connect().send("GET", "/app/?n=x")
    wait_until(lambda: gateway.inspect("x").json["queued"] == 1)
    assert gateway.call("GET", "/app/?n=y").status == 429
    assert gateway.release("x", other.token).status == 204
    assert waiter.response(SOON).status == 204
    wait_until(lambda: gateway.call("GET", "/app/?n=y").status == 204)


def test_a_refusal_is_in_the_error_log(start_gateway):
    gateway = limited(start_gateway, '1 $http_x_who')
    gateway.allow("zk_lock_max_claims")
    ann = {"X-Who": "ann"}
    assert gateway.acquire("x", headers=ann).status == 201
    assert gateway.acquire("y", headers=ann).status == 429
    assert gateway.call("POST", "/locks/y,z", headers=ann).status == 429
    lines = wait_until(
        lambda: [line for line in gateway.log_text().splitlines()
                 if 'a claim of "ann" is refused' in line][1:],
        SOON, "a line for each")
    assert "POST /locks/y,z" in lines[0]
