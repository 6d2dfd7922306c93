"""Answers that go on: the events of a stream, read as they come.

A stream is an answer on a Connection or an Http2Connection, whose body is read
piece by piece, as server-sent events or as lines of JSON.

    hold()      a claim that lasts as long as the connection
    watch()     the states of a lock
    head()      the answer's status and headers, without the body
    next()      the next event of any name
    event(NAME) the data of the next event, which must have this name
    ended()     the stream has ended as an answer ends; no more events came

Signs of life are no events, and are counted in `alive`.  A stream that is
`calm` does not give what a stall of ZooKeeper adds: that the claim may be lost,
for reason "zookeeper", and the grant that is told again afterwards.
"""

import collections
import json
import select
import socket
import time
import zlib

from lib import openapi
from lib.client import Gone, Response, lock_path, parse_head, target

TIMEOUT = 10.0
TCP_REPAIR = 19

SSE = "text/event-stream"
LINES = "application/x-ndjson"
FORMATS = [SSE, LINES]

Event = collections.namedtuple("Event", "name data")


def hold(gateway, name, accept=SSE, worker=None, headers=None, path=None,
         connection=None, **query):
    """An acquire that the connection holds; the events are to come."""
    query.setdefault("hold", "connection")
    connection = connection or gateway.connect(worker)
    return Stream(connection, "POST", path or lock_path(name), query,
                  accepting(headers, accept))


def watch(gateway, name, accept=SSE, worker=None, headers=None, path=None,
          connection=None, **query):
    connection = connection or gateway.connect(worker)
    return Stream(connection, "GET", path or lock_path(name), query,
                  accepting(headers, accept))


def accepting(headers, accept):
    headers = dict(headers or {})
    if accept is not None:
        headers["Accept"] = accept
    return headers


class Events:
    """Events in a body that comes in pieces."""

    def __init__(self):
        self.text = b""
        self.size = 0           # bytes of the body so far
        self.over = False
        self.events = collections.deque()
        self.alive = 0
        self.response = None
        self.decoder = None
        self.asked = None       # (method, target)
        self.calm = False
        self.token = None       # of the grant
        self.warned = False     # of a stall, and no grant was told since

    # what tests call

    def head(self, timeout=TIMEOUT):
        """The answer to a refusal is whole, and that of a stream is a head."""
        if self.response is None:
            self.response = self._head(time.monotonic() + timeout)
            encoding = self.response.headers.get("Content-Encoding")
            if encoding == "gzip":
                self.decoder = zlib.decompressobj(31)
        return self.response

    def next(self, timeout=TIMEOUT):
        deadline = time.monotonic() + timeout
        assert self.head(timeout).status == 200, self.response
        while not self.events:
            if self.over:
                raise Gone("the stream has ended")
            self._fill(deadline)
        return self.events.popleft()

    def event(self, name, timeout=TIMEOUT):
        event = self.next(timeout)
        assert event.name == name, event
        return event.data

    def until(self, condition, timeout=TIMEOUT):
        """The data of the first event that meets the condition."""
        deadline = time.monotonic() + timeout
        while True:
            event = self.next(max(0.0, deadline - time.monotonic()))
            if condition(event):
                return event.data

    def ended(self, timeout=TIMEOUT):
        deadline = time.monotonic() + timeout
        while not self.over:
            self._fill(deadline)
        return not self.events and not self.text

    def silent_for(self, seconds):
        """Whether no event, and no end, comes for so long."""
        deadline = time.monotonic() + seconds
        while not self.events and not self.over:
            try:
                self._fill(deadline)
            except TimeoutError:
                return True
        return False

    def wait_alive(self, number, timeout):
        """Waits until so many signs of life have come, and no event."""
        deadline = time.monotonic() + timeout
        self.head(timeout)
        while self.alive < number:
            self._fill(deadline)
            assert not self.events and not self.over, self.events

    # pieces

    def _take(self, data):
        self.size += len(data)
        self.text += self.decoder.decompress(data) if self.decoder else data
        sse = self.response.headers["Content-Type"].startswith(SSE)
        while True:
            block, end, rest = self.text.partition(b"\n\n" if sse else b"\n")
            if not end:
                return
            self.text = rest
            event = (parse_sse if sse else parse_line)(block.decode("utf-8"))
            if event is None:
                self.alive += 1
            else:
                openapi.check_event(self.connection.port, self.asked,
                                    self.response, event.name, event.data)
                if not (self._is_of_a_stall(event) and self.calm):
                    self.events.append(event)

    def _is_of_a_stall(self, event):
        if event.name == "ending" and event.data["reason"] == "zookeeper":
            self.warned = True
            return True
        again = (event.name == "granted" and self.warned
                 and event.data["token"] == self.token)
        if event.name == "granted":
            self.token, self.warned = event.data["token"], False
        return again


def parse_sse(block):
    """An event; None for a comment."""
    if block == ": alive":
        return None
    name, data = block.split("\n")
    assert name.startswith("event: ") and data.startswith("data: "), block
    return Event(name[7:], json.loads(data[6:]))


def parse_line(line):
    data = json.loads(line, object_pairs_hook=collections.OrderedDict)
    assert next(iter(data)) == "event", line
    name = data.pop("event")
    if name == "alive":
        assert not data, line
        return None
    return Event(name, json.loads(json.dumps(data)))


class Stream(Events):
    """A stream over HTTP/1, which has the connection alone."""

    def __init__(self, connection, method, path, query=None, headers=None):
        super().__init__()
        self.connection = connection
        self.method = method
        self.raw = b""
        self.chunked = False
        self.asked = method, target(path, query)
        connection.send(method, path, query, headers)

    def close(self):
        self.connection.close()

    def reset(self):
        self.connection.reset()

    def half_close(self):
        self.connection.half_close()

    def _head(self, deadline):
        connection = self.connection
        connection.deadline = deadline
        head = connection._until(b"\r\n\r\n")
        status, pairs = parse_head(head)
        response = Response(status, pairs)
        if status != 200 or self.method == "HEAD":
            connection.buffer = head + connection.buffer
            return connection.response(deadline - time.monotonic())
        connection.methods.pop(0)
        connection.answered(response, with_body=False)
        self.chunked = response.headers.get("Transfer-Encoding") == "chunked"
        return response

    def _fill(self, deadline):
        """Reads once, or less if data is there."""
        self.head()
        connection = self.connection
        if not connection.buffer:
            connection.deadline = deadline
            try:
                connection._fill()
            except Gone:
                if self.chunked:
                    raise
                self.over = True
                return
        self.raw += connection.buffer
        connection.buffer = b""
        if not self.chunked:
            data, self.raw = self.raw, b""
            self._take(data)
        while self.chunked and self._chunk():
            pass

    def _chunk(self):
        """Takes a chunk, if the whole chunk is there."""
        size, end, rest = self.raw.partition(b"\r\n")
        if not end:
            return False
        size = int(size, 16)
        if len(rest) < size + 2:
            return False
        assert rest[size:size + 2] == b"\r\n"
        self.raw = rest[size + 2:]
        if size != 0:
            self._take(rest[:size])
            return True
        # the rest belongs to the next answer
        self.over = True
        self.connection.buffer, self.raw = self.raw, b""
        return False


class Http2Stream(Events):
    """A stream among many on a connection of HTTP/2."""

    def __init__(self, connection, method, path, query=None, headers=None):
        super().__init__()
        self.connection = connection
        self.asked = method, target(path, query)
        self.stream = connection.send(method, path, query, headers)

    def cancel(self):
        self.connection.cancel(self.stream)

    def _head(self, deadline):
        while self.stream not in self.connection.answers:
            self.connection._take(deadline - time.monotonic())
        status, pairs, _ = self.connection.answers[self.stream]
        if status != 200:
            return self.connection.response(self.stream,
                                            deadline - time.monotonic())
        response = Response(status, pairs)
        openapi.check(self.connection.port, self.asked, response,
                      with_body=False)
        return response

    def _fill(self, deadline):
        self.head()
        answer = self.connection.answers[self.stream]
        while not answer[2]:
            if self.stream in self.connection.ended:
                self.over = True
                return
            if self.stream in self.connection.broken:
                raise Gone("the stream was reset")
            self.connection._take(deadline - time.monotonic())
        data, answer[2] = answer[2], b""
        self._take(data)


def first(*streams, timeout=TIMEOUT):
    """The streams that have data to read, as soon as a stream has."""
    ready = [s for s in streams
             if s.events or s.raw or s.connection.buffer]
    if ready:
        return ready
    found = select.select([s.connection.socket for s in streams], [], [],
                          timeout)[0]
    return [s for s in streams if s.connection.socket in found]


def vanish(connection):
    """The end of a client's machine: no FIN, no RST, not now.

    The kernel forgets the connection; a RST answers only a later packet of the
    gateway.
    """
    connection.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    connection.close()
