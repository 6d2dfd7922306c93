"""Commands that a test runs under a lock, and gateways that answer as told.
"""

import contextlib
import http.server
import os
import threading

from lib.gateway import TREE
from lib.process import wait_until, whole_lines

LOST, TAKEN, OUT_OF_REACH, USAGE = 70, 75, 69, 64
NO_START, TOO_LONG = 71, 124

# the program of tests of zk-lock, also with a sanitizer
ZK_LOCK = os.environ.get("ZK_LOCK_COMMAND",
                         os.path.join(TREE, "build", "zk-lock"))


class Job:
    """A command that runs until the test ends the command.

    The command writes the pid, the fencing token, and in the end "done" into a
    file.  With beats it says all the time when it still ran.
    """

    SCRIPT = ('echo "$$ $LOCK_FENCING_TOKEN" >> "$0"\n'
              'until [ -e "$0.go" ]; do sleep 0.02; done\n'
              'echo done >> "$0"\n'
              'exit 3\n')

    BEATS = ('(while :; do /bin/date +%s.%N >> "$0.beats"\n'
             'sleep 0.02; done) &\n'
             'until [ -e "$0.beats" ]; do sleep 0.02; done\n')
    PAUSE = 1.0         # between two beats: the machine stood still

    def __init__(self, directory, before="", beats=False):
        self.path = str(directory / "job")
        before += self.BEATS if beats else ""
        self.command = ["sh", "-c", before + self.SCRIPT, self.path]

    def lines(self):
        try:
            return whole_lines(self.path)
        except FileNotFoundError:
            return []

    def wait_running(self):
        """The pid of the job."""
        wait_until(self.lines, 20.0, "the job runs")
        return int(self.lines()[0].split()[0])

    def ended_by(self, end):
        """Whether the job did not run any more at that moment, or, where the
        machine stood still then, soon after the machine went on.
        """
        beats = [float(line) for line in whole_lines(self.path + ".beats")]
        late = [beat for beat in beats if beat >= end]
        before = max([beat for beat in beats if beat < end], default=0.0)
        return not late or (late[0] - before > self.PAUSE
                            and late[-1] - late[0] < self.PAUSE)

    def go(self):
        with open(self.path + ".go", "w"):
            pass


def is_free(gateway, name):
    return gateway.inspect(name).status == 404


class Words(http.server.BaseHTTPRequestHandler):
    """Sends the server's words to each client; a stream stays open."""

    def do_POST(self):
        status, words = self.server.status, self.server.words
        self.server.paths.append(self.path)
        self.server.joined += 1
        self.send_response(status)
        for header in self.server.headers.items():
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(words)
        if words.startswith(b'{"event":'):
            self.server.over.wait()

    do_GET = do_POST

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def gateway_that_says(*words, status=200, headers=()):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Words)
    server.joined = 0
    server.paths = []
    server.status = status
    server.headers = dict(headers)
    server.url = "http://127.0.0.1:%d/locks" % server.server_address[1]
    server.words = b"".join(word + b"\n" for word in words)
    server.over = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
