"""HTTP clients that can do what HTTP libraries prevent.

Connection is a plain blocking HTTP/1.1 connection: it sends the given bytes,
reads answers in turn (keep-alive), and leaves in every way that a client can:
close, reset, half-close.  AsyncConnection does the same for thousands at a
time.  Http2Connection speaks HTTP/2 without TLS (prior knowledge) and carries
many requests, any of which can be cancelled.

Each class gives a Response: status, headers without regard to case, body; and
compares the Response with docs/openapi.yaml, see lib/openapi.py.
"""

import asyncio
import json
import select
import socket
import struct
import time
from urllib.parse import quote, urlencode

import h2.config
import h2.connection
import h2.events
import h2.errors
from hyperframe.frame import GoAwayFrame

from lib import openapi

TIMEOUT = 30.0


class Gone(Exception):
    """The server closed the connection without a whole answer."""


class Headers:
    """The header fields of an answer, by name without regard to case."""

    def __init__(self, pairs):
        self.pairs = [(name.lower(), value) for name, value in pairs]

    def get(self, name, default=None):
        values = self.all(name)
        return values[0] if values else default

    def all(self, name):
        return [v for n, v in self.pairs if n == name.lower()]

    def __getitem__(self, name):
        values = self.all(name)
        assert len(values) == 1, "%d fields %s in %r" % (len(values), name,
                                                        self.pairs)
        return values[0]

    def __contains__(self, name):
        return bool(self.all(name))


class Response:
    def __init__(self, status, pairs, body=b""):
        self.status = status
        self.headers = Headers(pairs)
        self.body = body

    def __repr__(self):
        return "<%d %s>" % (self.status,
                            self.body[:300].decode("utf-8", "replace"))

    @property
    def json(self):
        return json.loads(self.body.decode("utf-8"))

    @property
    def token(self):
        return self.headers["Lock-Token"]

    @property
    def fencing(self):
        return self.json["fencing_token"]

    @property
    def worker(self):
        """The pid of the worker that answered, by the tests' own header."""
        return int(self.headers["X-Worker"])


# requests and answers as bytes

def target(path, query=None):
    """A request target; query is a mapping, or a text taken as it is."""
    if not query:
        return path
    if not isinstance(query, str):
        query = urlencode(query, quote_via=quote)
    return path + "?" + query


def lock_path(name, token=None, prefix="/locks/"):
    path = prefix + quote(name, safe="")
    return path if token is None else path + "/" + token


def encode(method, target, headers=None, body=None, host="localhost"):
    """A whole request; body is bytes, or any value to be sent as JSON."""
    headers = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    if body is not None:
        headers.setdefault("Content-Length", str(len(body)))
    headers.setdefault("Host", host)
    lines = ["%s %s HTTP/1.1" % (method, target)]
    lines += ["%s: %s" % field for field in headers.items()]
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("latin-1") + (body or b"")


def parse_head(head):
    """(status, pairs) of an answer's head."""
    lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    assert version.startswith("HTTP/1."), "no answer of HTTP: %r" % head[:80]
    pairs = []
    for line in lines[1:]:
        name, _, value = line.partition(":")
        pairs.append((name, value.strip()))
    return int(rest.split(" ")[0]), pairs


def body_length(method, status, headers):
    """The body's length, None for chunked, -1 for up to the end."""
    if method == "HEAD" or status in (204, 304) or status < 200:
        return 0
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        return None
    length = headers.get("Content-Length")
    return -1 if length is None else int(length)


class Connection:
    """A blocking HTTP/1.1 connection."""

    def __init__(self, port, timeout=TIMEOUT, source=None,
                 host="127.0.0.1"):
        self.port = port
        self.timeout = timeout
        self.buffer = b""
        self.methods = []
        self.asked = []         # (method, target) of each request line
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # requests

    def request(self, method, path, query=None, headers=None, body=None,
                timeout=None):
        self.send(method, path, query, headers, body)
        return self.response(timeout)

    def send(self, method, path, query=None, headers=None, body=None):
        self.send_bytes(encode(method, target(path, query), headers, body),
                        method)
        return self

    def send_bytes(self, data, method="POST"):
        """Sends bytes as they are; method is that of the answer to come."""
        self.methods.append(method)
        self.asked += openapi.requests_of(data)
        self.socket.sendall(data)

    def response(self, timeout=None):
        self.deadline = time.monotonic() + (timeout or self.timeout)
        method = self.methods.pop(0) if self.methods else "GET"
        status, pairs = parse_head(self._until(b"\r\n\r\n"))
        length = body_length(method, status, Headers(pairs))
        if length is None:
            body = self._chunks()
        elif length < 0:
            body = self._rest()
        else:
            body = self._exactly(length)
        return self.answered(Response(status, pairs, body))

    def answered(self, response, with_body=True):
        """Compares the answer to the first request that has no answer yet."""
        if response.status >= 200 and self.asked:
            openapi.check(self.port, self.asked.pop(0), response, with_body)
        return response

    def silent_for(self, seconds):
        """Whether neither an answer nor the end comes for so long."""
        return not self.buffer and not select.select([self.socket], [], [],
                                                     seconds)[0]

    def closed_by_server(self, timeout=TIMEOUT):
        """Whether the connection ends within timeout without an answer."""
        self.socket.settimeout(timeout)
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True
        except socket.timeout:
            return False

    # leaving

    def close(self):
        self.socket.close()

    def reset(self):
        """Leaves with a RST instead of a FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                               struct.pack("ii", 1, 0))
        self.socket.close()

    def half_close(self):
        """Ends the sending side; answers can still be read."""
        self.socket.shutdown(socket.SHUT_WR)

    # reading

    def _fill(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(65536)
        except socket.timeout:
            raise TimeoutError("no answer in time") from None
        if not data:
            raise Gone("the server closed the connection after %r"
                       % self.buffer[:200])
        self.buffer += data

    def _until(self, mark):
        while mark not in self.buffer:
            self._fill()
        head, _, self.buffer = self.buffer.partition(mark)
        return head + mark

    def _exactly(self, length):
        while len(self.buffer) < length:
            self._fill()
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        return data

    def _chunks(self):
        body = b""
        while True:
            size = int(self._until(b"\r\n").split(b";")[0], 16)
            body += self._exactly(size)
            self._until(b"\r\n")
            if size == 0:
                return body

    def _rest(self):
        try:
            while True:
                self._fill()
        except Gone:
            data, self.buffer = self.buffer, b""
            return data


class AsyncConnection:
    """The same for asyncio, with a single request at a time."""

    def __init__(self, port, host="127.0.0.1"):
        self.port = port
        self.host = host
        self.asked = None
        self.reader = None
        self.writer = None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection(
            self.host, self.port)
        return self

    async def request(self, method, path, query=None, headers=None,
                      body=None):
        await self.send(method, path, query, headers, body)
        return await self.response(method)

    async def send(self, method, path, query=None, headers=None, body=None):
        if self.writer is None:
            await self.open()
        self.asked = method, target(path, query)
        self.writer.write(encode(method, target(path, query), headers, body))
        await self.writer.drain()

    async def response(self, method="POST"):
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            status, pairs = parse_head(head)
            length = body_length(method, status, Headers(pairs))
            assert length is not None, "chunked answers are not expected"
            if length < 0:
                body = await self.reader.read()
            else:
                body = await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Gone(str(e)) from None
        response = Response(status, pairs, body)
        openapi.check(self.port, self.asked, response)
        return response

    def close(self):
        if self.writer is not None:
            self.writer.close()

    def reset(self):
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def half_close(self):
        self.writer.write_eof()


async def ask(port, method, path, query=None, headers=None, body=None):
    """A request over a separate connection."""
    connection = AsyncConnection(port)
    try:
        return await connection.request(method, path, query, headers, body)
    finally:
        connection.close()


class Http2Connection:
    """HTTP/2 over a plain connection, many requests at a time."""

    def __init__(self, port, timeout=TIMEOUT):
        self.port = port
        self.timeout = timeout
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=True,
                                             header_encoding="latin-1"))
        # GOAWAY is not the end here: open streams go on, which h2 would forbid
        self.h2._frame_dispatch_table[GoAwayFrame] = lambda frame: ([], [])
        self.h2.initiate_connection()
        self.asked = {}         # stream -> (method, target)
        self.answers = {}       # stream -> [status, pairs, body]
        self.ended = set()
        self.broken = {}        # stream -> error code of the reset
        self._flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # requests

    def request(self, method, path, query=None, headers=None, body=None,
                timeout=None):
        stream = self.send(method, path, query, headers, body)
        return self.response(stream, timeout)

    def send(self, method, path, query=None, headers=None, body=None,
             end=True):
        """Begins a request; returns its stream."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        fields = [(":method", method), (":scheme", "http"),
                  (":authority", "localhost"), (":path", target(path, query))]
        fields += [(name.lower(), value) for name, value in headers.items()]
        stream = self.h2.get_next_available_stream_id()
        self.asked[stream] = method, target(path, query)
        self.h2.send_headers(stream, fields,
                             end_stream=end and body is None)
        if body is not None:
            self.h2.send_data(stream, body, end_stream=end)
        self._flush()
        return stream

    def send_more(self, stream, body, end=True):
        """Sends more of a body that send() did not end."""
        self.h2.send_data(stream, body, end_stream=end)
        self._flush()

    def response(self, stream, timeout=None):
        deadline = time.monotonic() + (timeout or self.timeout)
        while stream not in self.ended:
            if stream in self.broken:
                raise Gone("stream %d was reset with %d"
                           % (stream, self.broken[stream]))
            self._take(deadline - time.monotonic())
        response = Response(*self.answers.pop(stream))
        openapi.check(self.port, self.asked.pop(stream), response)
        return response

    def silent_for(self, seconds):
        """Whether no request is answered or reset for so long."""
        deadline = time.monotonic() + seconds
        before = len(self.ended), len(self.broken)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return before == (len(self.ended), len(self.broken))
            try:
                self._take(left)
            except TimeoutError:
                pass

    # leaving

    def cancel(self, stream):
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def close(self):
        self.socket.close()

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                               struct.pack("ii", 1, 0))
        self.socket.close()

    # inside

    def _flush(self):
        data = self.h2.data_to_send()
        if data:
            self.socket.sendall(data)

    def _take(self, timeout):
        if timeout <= 0:
            raise TimeoutError("no answer in time")
        self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(65536)
        except socket.timeout:
            raise TimeoutError("no answer in time") from None
        if not data:
            raise Gone("the server closed the connection")
        for event in self.h2.receive_data(data):
            self._event(event)
        self._flush()

    def _event(self, event):
        if isinstance(event, h2.events.ResponseReceived):
            pairs = [(n, v) for n, v in event.headers if n[0] != ":"]
            status = int(dict(event.headers)[":status"])
            self.answers[event.stream_id] = [status, pairs, b""]
        elif isinstance(event, h2.events.DataReceived):
            self.answers[event.stream_id][2] += event.data
            self.h2.acknowledge_received_data(
                event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.broken[event.stream_id] = event.error_code
