"""One request in several versions of HTTP, and what becomes of the request.

    exchange = begin(protocol, gateway, "GET", "/x", worker=pid)
    exchange.response()     # the answer, and what the connection can do then
    exchange.cut()          # the end came instead of a whole answer
    exchange.leave()        # the client leaves

PROTOCOLS: "1.0" ends with the connection, "1.1" is kept alive, "pipelined" has
a second request behind the first, and "2" is a stream beside others.
"""

import time

import pytest

from lib.client import Connection, Gone, Http2Connection, encode

PROTOCOLS = ["1.0", "1.1", "pipelined", "2"]

READY = encode("GET", "/ready")


def begin(protocol, gateway, method, path, headers=None, body=None,
          held_back=0):
    """Sends a request, but for the last bytes of the body if held_back."""
    kind = Stream if protocol == "2" else Plain
    return kind(protocol, gateway, method, path, headers, body, held_back)


def split(body, held_back):
    body = body or b""
    at = len(body) - held_back
    return body[:at], body[at:]


class Plain:
    """HTTP/1."""

    def __init__(self, protocol, gateway, method, path, headers, body,
                 held_back):
        self.protocol = protocol
        self.connection = Connection(gateway.port, host=gateway.host)
        gateway.connections.append(self.connection)
        sent, self.held_back = split(body, held_back)
        head = encode(method, path, headers, body)
        head = head[:len(head) - len(body or b"")]
        if protocol == "1.0":
            head = head.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
        if protocol == "pipelined" and not held_back:
            sent += READY
        self.connection.send_bytes(head + sent, method)

    def finish(self):
        """Sends what was held back of the body."""
        if self.held_back:
            behind = READY if self.protocol == "pipelined" else b""
            self.connection.socket.sendall(self.held_back + behind)

    def header(self):
        """Waits for the header, which response() still gives."""
        connection = self.connection
        connection.deadline = time.monotonic() + connection.timeout
        while b"\r\n\r\n" not in connection.buffer:
            connection._fill()

    def answer(self):
        """The answer alone."""
        return self.connection.response()

    def exactly(self, size):
        """The next bytes on a connection that has switched."""
        connection = self.connection
        connection.deadline = time.monotonic() + connection.timeout
        return connection._exactly(size)

    def response(self, lives=True):
        """The answer; the connection lives on, or ends, as it should."""
        response = self.connection.response()
        if self.protocol == "1.0":
            assert self.connection.closed_by_server()
        elif lives:
            if self.protocol == "1.1":
                self.connection.send_bytes(READY)
            assert self.connection.response().status == 204
        return response

    def cut(self):
        with pytest.raises((Gone, ConnectionError)):
            self.connection.response()

    def leave(self, reset=False):
        if reset:
            self.connection.reset()
        else:
            self.connection.close()


class Stream:
    """HTTP/2: a stream of a connection that is used again."""

    def __init__(self, protocol, gateway, method, path, headers, body,
                 held_back):
        self.protocol = protocol
        self.connection = Http2Connection(gateway.http2_port)
        gateway.connections.append(self.connection)
        headers = dict(headers or {})
        if body is not None:
            headers["Content-Length"] = str(len(body))
        sent, self.held_back = split(body, held_back)
        self.stream = self.connection.send(
            method, path, None, headers, sent if body is not None else None,
            end=not held_back)

    def finish(self):
        if self.held_back and self.stream not in self.connection.ended:
            self.connection.send_more(self.stream, self.held_back)

    def header(self):
        connection = self.connection
        while self.stream not in connection.answers:
            assert self.stream not in connection.broken
            connection._take(connection.timeout)

    def answer(self):
        return self.connection.response(self.stream)

    def response(self, lives=True):
        response = self.answer()
        if lives:
            self._lives()
        return response

    def cut(self, lives=True):
        """The stream was reset; the connection lives on, unless not lives."""
        with pytest.raises((Gone, ConnectionError)):
            self.connection.response(self.stream)
        if lives and self.stream in self.connection.broken:
            self._lives()

    def leave(self, reset=False):
        """With reset the connection ends, otherwise the stream alone."""
        if reset:
            self.connection.reset()
            return
        self.connection.cancel(self.stream)
        self._lives()

    def _lives(self):
        assert self.connection.request("GET", "/ready").status == 204
