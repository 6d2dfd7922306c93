"""A client of the lock gateway, for Python 3.7 and later, without dependencies.

    from zk_lock import lock

    with lock("nightly", wait=60, ttl=30) as held:
        write(record, held.fencing_token)   # the resource refuses smaller ones
        held.check()                        # raises Lost if the lock is lost

A thread renews the lease at a third of its time, and a second thread watches
the clock.  The end of the block releases the lock, and raises Lost if the lock
was lost.

The lease counts from before the last confirmed request was sent, by a clock
that no clock change moves.  So this client says "lost" no later than the
gateway does, as long as the process runs.  Each call has its own connection.
"""

import http.client
import json
import os
import sys
import threading
import time
import urllib.parse
import uuid

CONNECT = 5.0       # seconds for a connection to be made
PATIENCE = 10.0     # how much longer than its wait an answer may take
RELEASE = 10.0      # how long a release is repeated

now = time.monotonic


class LockError(Exception):
    """status is that of the last answer, 0 without an answer."""

    def __init__(self, message, status=0):
        super().__init__(message)
        self.status = status


class Taken(LockError):
    """The wait is over, and another claim has the lock."""


class Unreachable(LockError):
    """The wait is over, and a claim that may be held is gone after its ttl."""


class Refused(LockError):
    """The gateway refuses the call: the message says why."""


class Lost(LockError):
    """The lock was held, and is not sure to be held any more."""


class lock:
    """A lock to be held by a `with` block, or by acquire() and release().

    url         where the locks are; default is $ZK_LOCK_URL, or $LOCKS
    wait, ttl   seconds; the wait counts for all repeats together
    mode        exclusive, shared, write, semaphore (with permits) or member
    owner       what other clients see; leave out where the gateway says that
    durable     the lease is durable before the block begins.  Without, a lease
                counts for `session` seconds at most: zk_lock_session_timeout
    headers     of each request: {"Authorization": "Bearer ..."}
    on_lost     called with the Held, by a thread, when the lock is lost
    context     an ssl.SSLContext for https
    """

    def __init__(self, name, url=None, wait=30.0, ttl=30.0, mode="exclusive",
                 permits=None, owner=None, durable=True, session=10.0,
                 headers=None, on_lost=None, context=None):
        if name in ("", ".", ".."):
            raise Refused("%r is no name of a lock" % name)
        self.name, self.wait, self.ttl = name, wait, ttl
        self.mode, self.permits, self.owner = mode, permits, owner
        self.durable, self.session, self.context = durable, session, context
        self.headers, self.on_lost = dict(headers or {}), on_lost
        url = url or os.environ.get("ZK_LOCK_URL") or os.environ.get("LOCKS")
        self.url = urllib.parse.urlsplit(url or "http://127.0.0.1:8080/locks")
        self._blocks = []       # the frame and the thread, and the Held

    def __enter__(self):
        held = self.acquire()
        self._blocks.append((sys._getframe(1), threading.get_ident(), held))
        return held

    def __exit__(self, kind, *_):
        # a thread may have the blocks of several coroutines
        here = sys._getframe(1), threading.get_ident()
        block = *_, held = max(self._blocks[::-1], key=lambda b: (
            b[0] is here[0], b[1] == here[1]))
        self._blocks.remove(block)
        try:
            held.is_held()          # on_lost may raise
        finally:
            held.release()
        if held.lost and kind is None:
            raise Lost(held.lost)

    def acquire(self):
        """A Held; raises Taken, Unreachable or Refused.

        All requests have the same key, so a repeat makes no second claim.  An
        exception, as of Ctrl-C, takes the claim back, for some seconds at most.
        """
        key = {"Idempotency-Key": str(uuid.uuid4())}
        try:
            return self._acquire(key)
        except LockError:
            raise
        except BaseException:
            # so a claim that waits has a token, too
            key["Prefer"] = "respond-async"
            answer = self._call("POST", key, CONNECT, self._query())
            if "Lock-Token" in answer.headers:
                Held(self, answer, now()).release()
            raise

    def _acquire(self, key):
        end = now() + self.wait
        while True:
            sent, held = now(), None
            left = max(0.0, end - sent)
            answer = self._call("POST", key, left + PATIENCE, self._query(left))
            if answer.status in (200, 201) and "Lock-Token" in answer.headers:
                # where the lease may have begun before: renew, then count
                held = Held(self, answer, sent)
                if (answer.status == 201 and now() - sent < held.lease / 3
                        or held._confirm()):
                    return held._start()
                answer = held._answer
            over = end - now() <= answer.pause()
            if not (held or answer.may_change(self.permits and not over)):
                raise Refused(answer.detail(), answer.status)
            if over:
                if held:
                    held.release()
                kind = Taken if answer.status in (423, 429) else Unreachable
                raise kind(answer.detail(), answer.status)
            time.sleep(answer.pause())

    def _query(self, wait=None):
        query = {"ttl": "%dms" % (self.ttl * 1000), "mode": self.mode,
                 "owner": self.owner, "permits": self.permits}
        if wait is not None:
            query.update(wait="%dms" % (wait * 1000),
                         durable=1 if self.durable else None)
        return "?" + urllib.parse.urlencode({
            name: value for name, value in query.items() if value is not None})

    def _call(self, method, headers, timeout, query=""):
        """The Answer; of status 0 without a whole answer."""
        connection = self._connection(min(timeout, CONNECT))
        try:
            connection.connect()
            connection.sock.settimeout(timeout)
            name = urllib.parse.quote(self.name.replace("/", "%2F"), safe="")
            path = "%s/%s%s" % (self.url.path.rstrip("/"), name, query)
            connection.request(method, path, headers=dict(
                self.headers, Connection="close", **headers))
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        except (OSError, http.client.HTTPException) as e:
            return Answer(0, {}, str(e) or type(e).__name__)
        finally:
            connection.close()

    def _connection(self, timeout):
        kind, options = http.client.HTTPConnection, {}
        if self.url.scheme == "https":
            kind = http.client.HTTPSConnection
            options = {"context": self.context}
        return kind(self.url.hostname, self.url.port, timeout=timeout,
                    **options)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def may_change(self, permits=None):
        """Whether a repeat may get another answer; a 409 may be of permits."""
        return (self.status in (0, 423, 429) or self.status >= 500
                or self.status == 409 and permits)

    def pause(self):
        value = self.headers.get("Retry-After", "")
        return float(value) if value.isdigit() else 1.0

    def json(self):
        try:
            value = json.loads(self.body.decode("utf-8"))
        except (AttributeError, ValueError):
            value = None
        return value if isinstance(value, dict) else {}

    def detail(self):
        if self.status == 0:
            return "no answer: %s" % self.body
        return self.json().get("detail") or "status %d" % self.status


class Held:
    """A lock that was acquired.

    token, fencing_token, owner, mode, permits; ttl in seconds, as granted;
    lost: None, or how the lock was lost
    """

    def __init__(self, lock, answer, sent):
        self.name, self.owner = lock.name, answer.json().get("owner")
        self.mode, self.permits = lock.mode, lock.permits
        self.token = answer.headers["Lock-Token"]
        self.fencing_token = int(answer.headers.get("Lock-Fencing-Token", 0))
        self.ttl = answer.json().get("ttl_ms", lock.ttl * 1000) / 1000
        self.lease = self.ttl if lock.durable else min(self.ttl, lock.session)
        self.lost, self._lock = None, lock
        self._sent = sent           # when the last confirmed request was
        self._answer = answer       # to the last renewal
        self._ended, self._mutex = threading.Event(), threading.Lock()

    def left(self):
        """The seconds that the lock is held for without a renewal."""
        if self.lost or self._ended.is_set():
            return 0.0
        return max(0.0, self._sent + self.lease - now())

    def is_held(self):
        if self.left() == 0:
            self._lose("the lease is over by the client's clock")
        return self.left() > 0

    def check(self):
        """Raises Lost unless the lock is held."""
        if not self.is_held():
            raise Lost(self.lost or "the lock was released",
                       self._answer.status)

    def release(self):
        """Whether the gateway has confirmed that this call freed the lock.

        An unconfirmed release is no error: the lease ends by itself.
        """
        self._ended.set()
        end = now() + RELEASE
        while True:
            answer = self._call("DELETE", CONNECT)
            if not answer.may_change() or end - now() <= answer.pause():
                return answer.status == 204
            time.sleep(answer.pause())

    def _start(self):
        for work in self._keep, self._watch:
            threading.Thread(target=work, daemon=True).start()
        return self

    def _keep(self):
        """Renews at a third of the lease, and sooner after a failure."""
        pause = self._sent + self.lease / 3 - now()
        while not self._ended.wait(max(0.0, pause)):
            if self._renew(min(self.lease / 3, self.left())):
                pause = self._sent + self.lease / 3 - now()
            elif self._answer.status in (404, 410):
                self._lose(self._answer.detail())
            else:
                pause = min(self._answer.pause(), self.lease / 3)

    def _watch(self):
        while not self._ended.wait(self.left()):
            self.is_held()

    def _confirm(self):
        self._sent = now()          # not known to be held before this
        return self._renew(self.lease / 3)

    def _renew(self, timeout):
        """Whether the lease counts from now; a lease that is over is not."""
        sent = now()
        self._answer = self._call("PUT", max(timeout, 0.01))
        with self._mutex:
            if self._answer.status != 200 or self.left() == 0:
                return False
            self._sent = sent
            return True

    def _call(self, method, timeout):
        return self._lock._call(method, {"Lock-Token": self.token}, timeout)

    def _lose(self, how):
        with self._mutex:
            if self._ended.is_set() or (self.left() and "clock" in how):
                return
            self.lost = how
            self._ended.set()
        if self._lock.on_lost:
            self._lock.on_lost(self)
