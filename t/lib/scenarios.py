"""A request of every kind, to be played under bad conditions.

A scenario is a generator with three parts.  The part before the first `yield`
runs in peace; the second part runs under the bad conditions; the third part
runs in peace again, and does what a client would do to clean up.

    World       a gateway under test, and a second gateway on the same root
    Play        a turn of a scenario: the requests, and the answers
    play()      one turn, from the beginning to a check of what is left
"""

import collections
import contextlib
import itertools
import uuid

from kazoo.exceptions import NoNodeError

from lib import streams
from lib.backend import Backend
from lib.client import Gone, lock_path
from lib.process import wait_until

PATH = "/locks/"
NODES = "/nodes/"
CALM = 10.0
PATIENCE = 15.0
CUT = (Gone, ConnectionError)
FAILED = (500, 503)
NO_GATEWAY = (502,)         # by nginx, if a proxy has no memory
API = (PATH, NODES)

# each request names the application, the lock and another lock
PROXY = """
proxy_pass http://$http_application;
proxy_http_version 1.1;
proxy_set_header Upgrade $http_upgrade;
proxy_set_header Connection $http_connection;
proxy_set_header X-Fencing-Tokens $zk_lock_fencing_tokens;
"""

GUARDED = """
location /one/ { zk_lock $arg_lock wait=4s; %(proxy)s }
location /two/ {
    zk_lock $arg_other wait=4s; zk_lock $arg_lock wait=4s; %(proxy)s
}
location /next/ {
    zk_lock $arg_other wait=4s; zk_lock_request_body off;
    try_files /none /second/?lock=$arg_lock;
}
location /second/ { zk_lock $arg_lock wait=4s; %(proxy)s }
location /refused/ {
    zk_lock $arg_lock wait=0; error_page 423 = /busy/; %(proxy)s
}
location /busy/ { zk_lock $arg_other; %(proxy)s }
location /shown/ {
    zk_lock_require $arg_lock fencing=$http_lock_fencing_token; %(proxy)s
}
location /watched/ {
    zk_lock_require $arg_lock lost=abort fencing=$http_lock_fencing_token;
    %(proxy)s
}
""" % {"proxy": PROXY}

OPTIONS = {"session_timeout": "60s", "metrics": True, "workers": 1,
           "location": "zk_lock_admin on; zk_lock_grace 300ms;",
           "server": "location %s { zk_lock_api; zk_lock_layout node; }\n"
                     % NODES + GUARDED}


class World:
    """A gateway under test, and a second gateway; shortage may be None."""

    def __init__(self, tried, other, tree, shortage=None):
        self.tried = tried
        self.other = other
        self.tree = tree
        self.shortage = shortage
        self.worker, = tried.worker_pids()
        self.answers = collections.Counter()
        self.spoiled = False
        self.also = ()          # statuses that are right at any time
        self.others = 0         # further claims in the gateway under test

    def relieve(self):
        if self.shortage is not None:
            self.shortage.disarm()


class Play:
    """One turn of a scenario: what was requested, and what to undo."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.connections = []
        self.tokens = []        # (path, token)
        self.wrong = []
        self.seen = []          # the statuses that came back
        self.applications = []

    def ask(self, method, path, query=None, headers=None, body=None,
            gateway=None, ok=(200, 201, 202, 204)):
        """The answer, None if the connection was cut."""
        try:
            connection = self.begin(method, path, query, headers, body,
                                    gateway)
            return self.answer(connection, path, ok)
        except CUT:
            self.world.answers[None] += 1
            return None

    def begin(self, method, path, query=None, headers=None, body=None,
              gateway=None):
        connection = (gateway or self.world.tried).connect()
        self.connections.append(connection)
        return connection.send(method, path, query, headers, body)

    def answer(self, connection, path, ok=(200, 201, 202, 204)):
        try:
            response = connection.response(PATIENCE)
        except CUT:
            self.world.answers[None] += 1
            return None
        self.world.answers[response.status] += 1
        self.seen.append(response)
        failed = FAILED if path.startswith(API) else FAILED + NO_GATEWAY
        if response.status not in ok + failed + self.world.also:
            self.wrong.append(response)
        if "Lock-Token" in response.headers:
            self.tokens.append((path, response.token))
        return response

    def acquire(self, name=None, gateway=None, headers=None, body=None,
                ok=(201,), **query):
        if body is None:
            query.setdefault("wait", "4s")      # of PATIENCE
        return self.ask("POST", lock_path(name or self.name), query, headers,
                        body, gateway, ok)

    def hold(self, **arguments):
        response = self.acquire(**arguments)
        assert response is not None and response.status == 201, response
        return response

    def with_token(self, method, response, path=None, gateway=None, ok=(200,),
                   **query):
        return self.ask(method, path or lock_path(self.name), query,
                        {"Lock-Token": response.token}, None, gateway, ok)

    def claims(self):
        return self.world.tree.claims(self.world.tried.znode(self.name))

    def wait(self, number, connection):
        """Waits for so many claims, or for an answer."""
        wait_until(lambda: (len(self.claims()) == number
                            or not connection.silent_for(0)),
                   PATIENCE, "a claim waits")

    # guarded requests

    def application(self, answers=True):
        """An application, which sees that each request holds the locks."""
        self.applications.append(Backend(work=self._serve if answers
                                         else None))

    def _serve(self, seen):
        # a session that the gateway gave up has no claims any more
        if not self.world.also:
            self.locked(seen)
        return 200, b"done\n"

    def locked(self, seen):
        tokens = (seen.headers.get("X-Fencing-Tokens") or "").split(",")
        both = [self.name + "2", self.name]
        names = {"/one/": [self.name], "/two/": both, "/second/": both
                 }.get(seen.path.partition("?")[0], [])
        for name, token in itertools.zip_longest(names, filter(None, tokens)):
            right = name is not None and token in self.fencings(name)
            # the gateway ends the connection first, and then the claims
            if not right and not seen.cut():
                self.wrong.append("%s holds %s for %s"
                                  % (seen.path, token, name))

    def fencings(self, name):
        """The fencing tokens of claims: the first may have been released."""
        tree, path = self.world.tree, self.world.tried.znode(name)
        found = []
        for claim in tree.claims(path):
            with contextlib.suppress(NoNodeError):
                found.append(str(tree.made(path + "/" + claim) << 8))
        return found

    def guarded(self, path, method="GET", headers=None, body=None):
        """Sends a request for the last application."""
        query = {"lock": self.name, "other": self.name + "2"}
        headers = dict(headers or {}, Application=self.applications[-1].address)
        return self.begin(method, path, query, headers, body)

    def served(self, path, ok=(200, 423), **request):
        try:
            return self.answer(self.guarded(path, **request), path, ok)
        except CUT:
            self.world.answers[None] += 1
            return None

    def arrival(self, connection):
        """The request at the application; None if the gateway has ended it."""
        application = self.applications[-1]
        wait_until(lambda: (not application.idle()
                            or not connection.silent_for(0)),
                   PATIENCE, "the request arrives")
        return None if application.idle() else application.next()

    def ends(self, connection):
        """A request that lost the lock is refused, or cut off."""
        try:
            response = connection.response(PATIENCE)
        except CUT:
            return
        self.seen.append(response)
        if response.status not in FAILED + NO_GATEWAY + self.world.also:
            self.wrong.append(response)

    # the end

    def undo(self):
        self.hang_up()
        for application in self.applications:
            application.close()
        tokens, self.tokens = self.tokens, []
        for path, token in dict.fromkeys(tokens):
            response = self.ask("DELETE", path, None, {"Lock-Token": token},
                                ok=(204, 404, 410))
            assert response is not None, "no answer to a release"
            assert response.status not in FAILED, response
        self.hang_up()

    def hang_up(self):
        for connection in self.connections:
            connection.close()


def released(play, holder, gateway=None, path=None):
    """Releases the claim, if need be by a repeat with memory enough."""
    response = play.with_token("DELETE", holder, path, gateway, ok=(204,))
    if response is None or response.status != 204:
        play.world.relieve()
        play.with_token("DELETE", holder, path, gateway, ok=(204, 410))


# scenarios: the parts before the first and after the second `yield` have memory
# enough

def acquire_and_release(play):
    yield
    response = play.acquire(owner="me")
    if response is not None and response.status == 201:
        play.with_token("DELETE", response, ok=(204,))
    yield


def first_acquire(play):
    """The lock is new."""
    play.name += uuid.uuid4().hex[:8]
    yield
    play.acquire(body={"owner": "me", "data": {"a": [1, 2]}, "wait": "5s"})
    yield


def taken(play):
    play.hold()
    yield
    play.acquire(wait="0", ok=(423,))
    yield


def wait_and_grant(play):
    holder = play.hold()
    yield
    waiter = play.begin("POST", lock_path(play.name), {"wait": "4s"})
    play.wait(2, waiter)
    released(play, holder)
    play.answer(waiter, lock_path(play.name), ok=(201, 423))
    yield


def wait_behind_another(play):
    """The other gateway has the holder."""
    holder = play.hold(gateway=play.world.other)
    yield
    waiter = play.begin("POST", lock_path(play.name), {"wait": "4s"})
    play.wait(2, waiter)
    released(play, holder, play.world.other)
    play.answer(waiter, lock_path(play.name), ok=(201, 423))
    yield


def wait_and_leave(play):
    play.hold()
    yield
    waiter = play.begin("POST", lock_path(play.name), {"wait": "10s"})
    play.wait(2, waiter)
    waiter.close()
    yield
    wait_until(lambda: len(play.claims()) == 1, PATIENCE, "it has left")


def renew(play):
    holder = play.hold()
    yield
    play.with_token("PUT", holder, ttl="20s")
    play.with_token("PUT", holder, path=lock_path(play.name) + "/"
                    + "A" * 32, ok=(400,))
    yield


def renew_elsewhere(play):
    holder = play.hold(gateway=play.world.other)
    yield
    play.with_token("PUT", holder, ttl="20s")
    yield


def release_elsewhere(play):
    holder = play.hold(gateway=play.world.other)
    yield
    play.with_token("DELETE", holder, ok=(204,))
    yield


def hold_once_more(play):
    holder = play.hold(gateway=play.world.other)
    yield
    again = play.with_token("POST", holder)
    yield
    if again is None or again.status != 200:
        again = play.with_token("GET", holder)
    for _ in range(again.json.get("holds", 1)):
        play.with_token("DELETE", holder, ok=(200, 204))


def inspect(play):
    holder = play.hold(owner="me", body={"data": {"a": {"b": [1, None]}}})
    play.begin("POST", lock_path(play.name), {"wait": "10s"},
               gateway=play.world.other)
    play.world.tree.wait_claims(play.world.tried.znode(play.name), 2)
    yield
    play.with_token("GET", holder)
    play.ask("GET", lock_path(play.name))
    yield
    play.connections.pop().close()


def lists(play):
    play.hold()
    play.hold(name=play.name + "2", gateway=play.world.other)
    yield
    play.ask("GET", PATH)
    play.ask("GET", PATH, {"limit": "1", "prefix": play.name})
    yield


def lists_of_holders(play):
    """Of claims of both gateways, with an owner, and sorted."""
    play.hold(owner="me", body={"owner": "me", "wait": "4s",
                                "data": {"a": [1]}})
    for gateway in (play.world.tried, play.world.other):
        play.hold(name=play.name + "2", gateway=gateway, mode="shared",
                  owner="me")
    yield
    for query in ({"holders": "1", "limit": "1"}, {"owner": "me"},
                  {"sort": "since", "holders": "1"}, {"sort": "waiting"}):
        response = play.ask("GET", PATH, dict(query, prefix=play.name))
        if response is not None and response.status == 200:
            owners = {holder.get("owner") for lock in response.json["locks"]
                      for holder in lock.get("holders", [])}
            if not owners <= {"me"}:
                play.wrong.append(response)
    yield


def several(play):
    names = [play.name, play.name + "2", play.name + "3"]
    yield
    response = play.ask("POST", PATH, body={"names": names, "wait": "5s"})
    if response is not None and response.status == 201:
        play.with_token("PUT", response, path=PATH)
        play.with_token("GET", response, path=PATH)
        play.with_token("DELETE", response, path=PATH, ok=(204,))
    yield


def stream(play):
    yield
    events = streams.hold(play.world.tried, play.name, wait="5s")
    play.connections.append(events.connection)
    try:
        if events.head().status == 200:
            events.next()
    except CUT:
        play.world.answers[None] += 1
    events.close()
    yield
    wait_until(lambda: not play.claims(), PATIENCE, "the stream's claim ends")


def watch(play):
    holder = play.hold()
    yield
    events = streams.watch(play.world.tried, play.name)
    play.connections.append(events.connection)
    try:
        if events.head().status == 200:
            events.next()
            released(play, holder)
            play.world.relieve()
            events.next()
    except CUT:
        play.world.answers[None] += 1
    yield


def poll(play):
    holder = play.hold()
    tag = play.ask("GET", lock_path(play.name)).headers["ETag"]
    yield
    waiter = play.begin("GET", lock_path(play.name), {"wait": "5s"},
                        {"If-None-Match": tag})
    released(play, holder)
    play.answer(waiter, lock_path(play.name), ok=(200, 304, 404))
    yield


def keyed(play):
    headers = {"Idempotency-Key": '"%s"' % uuid.uuid4()}
    yield
    play.acquire(headers=headers, wait="4s", ok=(201, 423))
    play.acquire(headers=headers, wait="4s", ok=(200, 201, 423))
    yield
    play.acquire(headers=headers, ok=(200, 201))


def respond_async(play):
    play.hold()
    yield
    response = play.acquire(headers={"Prefer": "respond-async"}, wait="5s",
                            ok=(202,))
    if response is not None and response.status == 202:
        # 410: no client polled the claim in time
        play.with_token("GET", response, ok=(200, 410))
    yield


def terraform(play):
    info = {"ID": str(uuid.uuid4()), "Operation": "OperationTypeApply",
            "Info": "", "Who": "ci@runner", "Version": "1.9.8",
            "Created": "2026-11-21T13:28:37.123456789Z", "Path": ""}
    path = lock_path(play.name)
    yield
    play.ask("LOCK", path, {"wait": "4s"}, body=info, ok=(200, 423))
    play.ask("LOCK", path, {"wait": "0"}, body=dict(info, ID="other"),
             ok=(200, 423))
    play.ask("UNLOCK", path, body=info, ok=(200, 409))
    yield
    for who in (info["ID"], "other"):
        play.ask("UNLOCK", path, body=dict(info, ID=who),
                 ok=(200, 409, 410))


def share(play):
    holder = play.hold()
    yield
    play.with_token("PUT", holder, mode="shared")
    yield


def admin(play):
    holder = play.hold()
    path = lock_path(play.name)
    match = {"If-Match": str(holder.fencing)}
    yield
    play.ask("PUT", path, {"revoke": "1"}, match)
    play.ask("DELETE", path, {"force": "1"}, match)
    yield


def bad_input(play):
    yield
    play.acquire(wait="never", ok=(400,))
    play.acquire(name="%sha1-" + 40 * "0", ok=(400,))
    play.acquire(body=b'{"owner": "\xff"}',
                 headers={"Content-Type": "application/json"}, ok=(400,))
    play.acquire(body=b"x" * 9000, ok=(413, 415),
                 headers={"Content-Type": "text/plain"})
    play.ask("PATCH", lock_path(play.name), ok=(405,))
    yield


def one_znode(play):
    """The same, where a lock is one znode and claims have no znodes."""
    name = "one_znode_of_all"
    path = lock_path(name, prefix=NODES)
    yield
    holder = play.ask("POST", path, {"wait": "4s"}, ok=(201, 423))
    if holder is not None and holder.status == 201:
        waiter = play.begin("POST", path, {"wait": "4s"})
        play.with_token("GET", holder, path)
        play.ask("GET", path)
        play.with_token("PUT", holder, path)
        released(play, holder, path=path)
        play.answer(waiter, path, ok=(201, 423))
    yield
    play.undo()
    play.world.tree.wait_gone(play.world.tried.znode(name), CALM)


def metrics(play):
    yield
    play.ask("GET", "/metrics")
    yield


# guarded requests

def guard(play):
    """The lock is new."""
    play.name += uuid.uuid4().hex[:8]
    play.application()
    yield
    play.served("/one/")
    yield


def guard_two(play):
    play.application()
    yield
    play.served("/two/")
    yield


def guard_body(play):
    """A body that stays in memory, and a body that becomes a file."""
    play.application()
    yield
    for size in (100, 40000):
        play.served("/one/", method="POST", body=b"x" * size)
    yield


def guard_waits(play):
    holder = play.hold()
    play.application()
    yield
    waiter = play.guarded("/one/")
    play.wait(2, waiter)
    released(play, holder)
    play.answer(waiter, "/one/", ok=(200, 423))
    yield


def guard_gone(play):
    """The client leaves while the request waits."""
    play.hold()
    play.application()
    yield
    waiter = play.guarded("/one/")
    play.wait(2, waiter)
    waiter.close()
    yield
    wait_until(lambda: len(play.claims()) == 1, PATIENCE, "it has left")


def guard_next(play):
    """An internal redirect: a second lock, and a body between the two."""
    play.application()
    yield
    play.served("/next/", method="POST", body=b"x" * 100)
    yield


def guard_refused(play):
    """The error page is the application's, and takes no lock."""
    play.hold()
    play.application()
    yield
    play.served("/refused/", ok=(200,), method="POST", body=b"x" * 100)
    yield


def guard_lost(play):
    play.application(answers=False)
    yield
    client = play.guarded("/one/")
    seen = play.arrival(client)
    if seen is not None:
        forced(play)
    play.world.relieve()
    play.ends(client)
    yield


def guard_lost_late(play):
    """The header of the answer was sent: the connection is cut."""
    play.application(answers=False)
    yield
    client = play.guarded("/one/")
    seen = play.arrival(client)
    if seen is not None:
        try:
            seen.begin(200, 1000)
            seen.send(b"x")
        except OSError:
            pass
        forced(play)
    play.world.relieve()
    play.ends(client)
    yield


def guard_upgraded(play):
    """A websocket, or any other protocol that follows."""
    play.application(answers=False)
    yield
    client = play.guarded("/one/", headers={"Connection": "upgrade",
                                            "Upgrade": "text"})
    seen = play.arrival(client)
    if seen is not None:
        with contextlib.suppress(*CUT):
            seen.begin(101, headers={"Connection": "upgrade",
                                     "Upgrade": "text"})
            play.answer(client, "/one/", ok=(101,))
            client.send_bytes(b"to the application")
            seen.send(b"to the client")
    client.close()
    yield


def required(play):
    """A token, a fencing token, nothing, and a number of no holder."""
    holder = play.hold()
    play.application()
    token = {"Lock-Token": holder.token}
    fencing = {"Lock-Fencing-Token": str(holder.fencing)}
    yield
    for headers in (token, fencing):
        play.served("/watched/", ok=(200,), headers=headers)
    play.served("/shown/", ok=(423,))
    play.served("/shown/", ok=(412,), headers={"Lock-Fencing-Token": "1"})
    yield


def required_elsewhere(play):
    """The other gateway has the holder."""
    holder = play.hold(gateway=play.world.other)
    play.application()
    yield
    play.served("/shown/", ok=(200,), headers={
        "Lock-Token": holder.token, "Lock-Fencing-Token": str(holder.fencing)})
    yield


def required_lost(play):
    """A change that comes when the worker has no memory may go unnoticed; with
    memory enough a further change leads to the loss.
    """
    holder = play.hold(gateway=play.world.other)
    play.application(answers=False)
    yield
    client = play.guarded("/watched/", headers={"Lock-Token": holder.token})
    seen = play.arrival(client)
    if seen is not None:
        released(play, holder, play.world.other)
        play.world.relieve()
        while client.silent_for(0.1):
            again = play.hold(gateway=play.world.other)
            released(play, again, play.world.other)
    play.ends(client)
    yield


def forced(play):
    """The other gateway breaks the lock, unless the request has ended."""
    path, other = lock_path(play.name), play.world.other
    answer = play.ask("GET", path, gateway=other, ok=(200, 404))
    for holder in answer.json.get("holders", []):
        play.ask("DELETE", path, {"force": "1"},
                 {"If-Match": str(holder["fencing_token"])}, gateway=other,
                 ok=(204, 404, 412))


SCENARIOS = [acquire_and_release, first_acquire, taken, wait_and_grant,
             wait_behind_another, wait_and_leave, renew, renew_elsewhere,
             release_elsewhere, hold_once_more, inspect, lists,
             lists_of_holders, several, stream, watch, poll, keyed,
             respond_async, terraform, share,
             admin, bad_input, one_znode, metrics, guard, guard_two, guard_body,
             guard_waits, guard_gone, guard_next, guard_refused,
             guard_lost, guard_lost_late, guard_upgraded, required,
             required_elsewhere, required_lost]


def play(world, scenario, conditions=contextlib.nullcontext()):
    """One turn, with the second part under these conditions."""
    turn = Play(world, scenario.__name__)
    steps = scenario(turn)
    try:
        next(steps)
        with conditions:
            next(steps)
        next(steps, None)
        turn.undo()
        check(world, turn)
    except Exception as e:
        e.add_note("answers: %s" % turn.seen)
        raise


def check(world, play):
    """The worker lives, and no claim of the turn is left."""
    assert world.tried.worker_pids() == [world.worker], "it died"
    assert not play.wrong, play.wrong
    names = [play.name, play.name + "2", play.name + "3"]
    for name in names:
        world.tree.wait_claims(world.tried.znode(name), 0, CALM)
    for gateway, others in ((world.tried, world.others), (world.other, 0)):
        wait_until(lambda: claims_of(gateway) == others, CALM,
                   "no records are left")
    response = world.tried.acquire(play.name, wait="0")
    assert response.status == 201, response
    assert world.tried.release(play.name, response.token).status == 204


def claims_of(gateway):
    return sum(number for (what, _), number in gateway.metrics().items()
               if what == "claims")
