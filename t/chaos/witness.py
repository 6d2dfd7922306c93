"""The application behind the guarded locations of the gateways.

A gateway passes a request on while the gateway holds the lock of the request.
The witness serves the request for as long as the request says, and writes down
a holder, as kazoo's clients do: an acquire, which is told when the request
arrives, looks for the claim behind a sync, and a release, before the answer is
sent or when the gateway has closed the connection.  So the holder is certain of
what the looks show, and no more: a gateway that does not know that the claim is
lost cannot cut the request off.  At the arrival, and after each look that shows
the claim, the holder operates the guarded resource, and a request whose fencing
token the resource refuses is answered with 409.

The witness listens at a path, because a gateway in any network namespace can
connect to a path, and no fault strikes there.
"""

import http.server
import os
import select
import socketserver
import threading
import time
from urllib.parse import parse_qs, urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

FAILURES = (KazooException, KazooTimeoutError, OSError)
PATIENCE = 3.0              # of a look
PAUSE = 0.2                 # between looks, at most

# asked: when the client sent the request, by the clock of the whole run
LOCATION = """
location /guarded/ {
    zk_lock $arg_lock wait=%(wait)gs owner=$arg_owner;
    proxy_set_header X-Fencing-Token $zk_lock_fencing_token;
    proxy_set_header X-Wait-Time $zk_lock_wait_time;
    proxy_set_header X-Root %(root)s;
    proxy_pass http://unix:%(path)s;
}
"""
WAIT = 8.0


def location(root, path):
    return LOCATION % {"wait": WAIT, "root": root, "path": path}


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = False      # server_close() waits for all visits
    request_queue_size = 256


class Witness:
    def __init__(self, path, guard, record, servers):
        self.guard = guard
        self.record = record
        self.zk = KazooClient(hosts=servers, timeout=10.0)
        self.zk.start(timeout=30)
        if os.path.exists(path):
            os.unlink(path)
        witness = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                Visit(witness, self).serve()

            def log_message(self, *_):
                pass

        self.server = Server(path, Handler)
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.zk.stop()
        self.zk.close()

    def get(self, call, *arguments):
        return call(*arguments).get(timeout=PATIENCE)


class Visit:
    """A request that is served, as a holder."""

    def __init__(self, witness, request):
        self.witness = witness
        self.request = request
        query = {name: values[0] for name, values
                 in parse_qs(urlsplit(request.path).query).items()}
        headers = request.headers
        self.seconds = float(query["seconds"])
        self.asked = float(query["asked"])
        self.fencing = int(headers.get("X-Fencing-Token") or 0)
        self.waited = float(headers.get("X-Wait-Time") or 0)
        self.path = headers["X-Root"] + "/" + query["lock"]
        self.claim = "guarded:" + query["id"]
        self.fields = {"who": query["owner"], "lock": query["lock"],
                       "mode": "exclusive"}
        self.znode = None

    def serve(self):
        record = self.witness.record
        number = record.ask(kind="acquire", wait=WAIT, t=self.asked,
                            guarded=True, **self.fields)
        record.write("told", id=number, status=201, claim=self.claim,
                     fencing=self.fencing, waited=self.waited)
        status = self.hold()
        number = record.ask(kind="release", claim=self.claim, **self.fields)
        record.write("told", id=number, status=204)
        if status is not None:
            self.answer(status)

    def hold(self):
        """The status of the answer; None if the gateway cut the request."""
        end = time.monotonic() + self.seconds
        if not self.operate():
            return 409
        while True:
            if self.look() and not self.operate():
                return 409
            left = end - time.monotonic()
            if left <= 0:
                return 200
            if select.select([self.request.connection], [], [],
                             min(left, PAUSE))[0]:
                return None

    def operate(self):
        asked = time.monotonic()
        ok = self.witness.guard.operate(self.fields["lock"], self.fencing)
        self.witness.record.write("op", claim=self.claim, asked=asked, ok=ok,
                                  fencing=self.fencing, guarded=True,
                                  **self.fields)
        if not ok:
            self.look()         # whether a holder was refused
        return ok

    def look(self):
        record = self.witness.record
        number = record.ask(kind="look", claim=self.claim, **self.fields)
        try:
            status = 200 if self.exists() else 410
        except FAILURES:
            status = "error"
        record.write("told", id=number, status=status)
        return status == 200

    def exists(self):
        """Whether a server that is not behind has the claim."""
        get, zk = self.witness.get, self.witness.zk
        get(zk.sync_async, self.path)
        if self.znode is not None:
            return get(zk.exists_async, self.znode) is not None
        for name in get(zk.get_children_async, self.path):
            znode = self.path + "/" + name
            stat = get(zk.exists_async, znode)
            if stat is not None and stat.czxid * 256 == self.fencing:
                self.znode = znode
                return True
        return False

    def answer(self, status):
        body = b"%d\n" % self.fencing
        try:
            self.request.send_response(status)
            self.request.send_header("Content-Length", str(len(body)))
            self.request.end_headers()
            self.request.wfile.write(body)
        except OSError:
            pass            # the client will be told by the gateway
