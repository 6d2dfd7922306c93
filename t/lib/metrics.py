"""What zk_lock_metrics tells, and clients that count what they are told.

    series()    name and labels, as they are written -> value
    counted()   (call, outcome) -> requests, of zk_lock_requests_total
    Scraper     asks again and again; no counter may go back
    Crowd       clients that make calls of every kind and count the answers
"""

import collections
import random
import re
import threading
import time
import traceback

from lib.client import Connection, Gone, lock_path

LINE = re.compile(r"^(zk_lock_\w+(?:\{.*\})?) ([0-9.]+)$")
REQUESTS = re.compile(r'^zk_lock_requests_total\{call="(\w+)",'
                      r'outcome="(\w+)"\}$')
COUNTER = re.compile(r"^zk_lock_\w+(_total|_bucket|_sum|_count)(\{|$)")
CUT = (OSError, Gone)
ANY = {"If-Match": "*"}


def text(way):
    """The text that Prometheus gets; the way is a gateway or a connection."""
    ask = way.request if hasattr(way, "request") else way.call
    response = ask("GET", "/metrics")
    assert response.status == 200, response
    return response.body.decode()


def series(way):
    return parse(text(way))


def parse(lines):
    found = {}
    for line in lines.splitlines():
        if not line.startswith("#"):
            name, value = LINE.match(line).groups()
            assert name not in found, "two lines of " + name
            found[name] = float(value)
    return found


def counted(way):
    return collections.Counter(
        {REQUESTS.match(name).groups(): int(value)
         for name, value in series(way).items()
         if name.startswith("zk_lock_requests_total")})


def more(after, before):
    """What counters have more, without those that have the same."""
    difference = collections.Counter(after)
    difference.subtract(before)
    return {key: number for key, number in difference.items() if number}


class Threads:
    """Threads that end when the block ends, and whose errors are errors."""

    def __init__(self):
        self.over = threading.Event()
        self.errors = []
        self.threads = []

    def begin(self, *turns):
        self.threads += [threading.Thread(target=self._run, args=(turn,))
                         for turn in turns]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        if kind is None:
            assert not self.errors, "\n".join(self.errors)

    def _run(self, turn):
        try:
            while not self.over.is_set():
                turn()
        except Exception:
            self.errors.append(traceback.format_exc())
            self.over.set()


class Scraper(Threads):
    """Compares each answer with the answer before, of whichever worker."""

    def __init__(self, gateway):
        super().__init__()
        self.gateway = gateway
        self.last = {}
        self.answers = 0
        self.begin(self.turn)

    def turn(self):
        try:
            now = series(self.gateway)
        except CUT:
            return              # a worker that died
        for name, value in self.last.items():
            assert not COUNTER.match(name) or now.get(name, -1) >= value, (
                "%s was %g, is %s" % (name, value, now.get(name)))
        self.last = now
        self.answers += 1


WORDS = {
    "acquire": {201: "granted", 423: "taken"},
    "release": {200: "held", 204: "released", 410: "lost"},
    "renew": {200: "held", 410: "lost"},
    "hold": {200: "held", 410: "lost"},
    "inspect": {200: "held", 410: "lost"},
    "look": {200: "listed", 404: "free"},
    "list": {200: "listed"},
    "watch": {304: "unchanged", 200: "listed", 404: "free"},
    "break": {204: "broken", 404: "free"},
    "revoke": {202: "revoked", 404: "free"},
    "guard": {204: "granted", 423: "taken"},
    "require": {204: "passed", 412: "refused", 423: "refused"},
    "other": {405: "invalid"},
}
DETAILS = [("drained", "drained"), ("leaves", "shut"), ("", "unreachable")]


def word(kind, response):
    """The outcome that a client concludes from an answer."""
    if response.status == 503:
        detail = response.json["detail"]
        return next(word for part, word in DETAILS if part in detail)
    assert response.status in WORDS[kind], (kind, response)
    return WORDS[kind][response.status]


class Client:
    """Makes one call at a time, and counts what the answer tells."""

    def __init__(self, crowd, number):
        self.crowd = crowd
        self.name = "own%d" % number
        self.dice = random.Random(number)
        self.connection = None
        self.worker = None
        self.seen = collections.Counter()
        self.cut = collections.Counter()    # worker -> calls without an answer

    def turn(self):
        """A lock of its own through all calls, and tries of a hot one."""
        self.own()
        hot = "hot%d" % self.dice.randrange(4)
        token = self.acquire(hot, wait=self.dice.choice(("0", "50ms")))
        if token is not None:
            self.call("release", "DELETE", hot, None, token)
        self.call("guard", "GET", None, {"lock": hot}, path="/guarded")
        self.call("look", "GET", hot)
        self.call("break", "DELETE", "free" + self.name, {"force": "1"}, ANY)
        self.call("other", "PATCH", hot)

    def acquire(self, name, **query):
        """The header with the token, None without a grant."""
        response = self.call("acquire", "POST", name, dict(query, ttl="10s"))
        if response is None or response.status != 201:
            return None
        return {"Lock-Token": response.token}

    def own(self):
        token = self.acquire(self.name, wait="5s")
        if token is None:
            return
        calls = [("renew", "PUT", self.name, None, token),
                 ("hold", "POST", self.name, None, token),
                 ("inspect", "GET", self.name, None, token),
                 ("list", "GET", None, {"limit": "1"}, None, "/locks/"),
                 ("require", "GET", None, {"lock": self.name}, token,
                  "/required"),
                 ("require", "GET", None, {"lock": self.name}, None,
                  "/required"),
                 ("revoke", "PUT", self.name, {"revoke": "1"}, ANY)]
        holds = 1
        for call in self.dice.sample(calls, 3):
            self.call(*call)
            holds += (call[0] == "hold")
        look = self.call("look", "GET", self.name)
        if look is not None and look.status == 200:
            self.call("watch", "GET", self.name, {"wait": "1ms"},
                      {"If-None-Match": look.headers["ETag"]})
        if self.dice.random() < 0.2:
            self.call("break", "DELETE", self.name, {"force": "1"}, ANY)
            holds = 1
        for _ in range(holds):
            self.call("release", "DELETE", self.name, None, token)

    def call(self, kind, method, name, query=None, headers=None, path=None):
        """The answer, None if there is none."""
        if not self.connected():
            return None
        try:
            response = self.connection.request(
                method, path or lock_path(name), query, headers)
        except CUT:
            self.cut[self.worker] += 1
            self.leave()
            return None
        assert response.worker == self.worker
        call = "inspect" if kind == "look" else kind
        self.seen[call, word(kind, response)] += 1
        self.crowd.calls += 1
        if response.headers.get("Connection") == "close":
            self.leave()
        return response

    def connected(self):
        if self.connection is None:
            try:
                self.connection = Connection(self.crowd.gateway.port)
                self.worker = self.connection.request("GET", "/ready").worker
            except CUT:
                self.leave()
        return self.connection is not None

    def leave(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Crowd(Threads):
    """A number of clients; `calls` is how many answers they have."""

    def __init__(self, gateway, clients):
        super().__init__()
        self.gateway = gateway
        self.calls = 0
        self.clients = [Client(self, number) for number in range(clients)]
        self.begin(*(client.turn for client in self.clients))

    def wait_calls(self, number, timeout=3600.0):
        deadline = time.monotonic() + timeout
        while self.calls < number and not self.over.wait(0.01):
            assert time.monotonic() < deadline, self.calls

    @property
    def seen(self):
        return sum((client.seen for client in self.clients),
                   collections.Counter())

    def cut(self, workers):
        """How many calls these workers left without an answer."""
        return sum(client.cut[worker] for client in self.clients
                   for worker in workers)
