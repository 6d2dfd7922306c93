"""HTTP/3, many requests at a time on a connection, as Http2Connection does.

The QUIC below is aioquic's (python3-aioquic, or what scripts/build-aioquic
makes).  The HTTP/3 part is small: fields are sent as literals, and this client
knows only those entries of QPACK's static table that nginx writes.

    stop(stream)    STOP_SENDING alone: the client no longer wants the answer
    reset(stream)   RESET_STREAM alone: the request is given up
    cancel(stream)  both, as browsers do
    close()         the connection ends
    vanish()        the same, but the server is not told
"""

import json
import os
import select
import socket
import ssl
import sys
import time

from cryptography.hazmat.primitives.asymmetric import types
from hpack.huffman_table import decode_huffman

from lib import openapi
from lib.client import Gone, Response, target

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.append(os.path.join(TREE, "build", "aioquic"))

# names that aioquic has in annotations, and that Debian 12's library lacks
for name in ("CertificateIssuerPublicKeyTypes", "PrivateKeyTypes"):
    if not hasattr(types, name):
        setattr(types, name, object)

from aioquic.quic import events                             # noqa: E402
from aioquic.quic.configuration import QuicConfiguration    # noqa: E402
from aioquic.quic.connection import QuicConnection          # noqa: E402

TIMEOUT = 10.0

DATA, HEADERS, SETTINGS = 0, 1, 4
CONTROL_STREAM = 0
REQUEST_CANCELLED = 0x10c

STATIC = {
    4: ("content-length", "0"), 6: ("date", ""), 10: ("last-modified", ""),
    12: ("location", ""), 24: (":status", "103"), 25: (":status", "200"),
    26: (":status", "304"), 27: (":status", "404"), 28: (":status", "503"),
    53: ("content-type", "text/plain"), 59: ("vary", "accept-encoding"),
    92: ("server", ""),
}


class Http3Connection:
    def __init__(self, port, timeout=TIMEOUT):
        self.port = port
        self.timeout = timeout
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", port))
        self.address = self.socket.getpeername()
        self.quic = QuicConnection(configuration=QuicConfiguration(
            alpn_protocols=["h3"], server_name="localhost",
            verify_mode=ssl.CERT_NONE))
        self.buffers = {}       # stream -> what is no whole frame yet
        self.asked = {}         # stream -> (method, target)
        self.answers = {}       # stream -> [status, pairs, body]
        self.ended = set()
        self.broken = {}        # stream -> error code of the reset
        self.is_open = False
        self.quic.connect(self.address, time.monotonic())
        self._flush()
        deadline = time.monotonic() + timeout
        while not self.is_open:
            self._take(deadline - time.monotonic())
        self.quic.send_stream_data(
            self.quic.get_next_available_stream_id(is_unidirectional=True),
            integer(CONTROL_STREAM) + frame(SETTINGS, b""))
        self._flush()

    # requests

    def request(self, method, path, query=None, headers=None, body=None,
                timeout=None):
        stream = self.send(method, path, query, headers, body)
        return self.response(stream, timeout)

    def send(self, method, path, query=None, headers=None, body=None,
             flush=True):
        """Begins a request; returns its stream."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        fields = [(":method", method), (":scheme", "https"),
                  (":authority", "localhost"), (":path", target(path, query))]
        fields += [(name.lower(), value) for name, value in headers.items()]
        data = frame(HEADERS, encode_fields(fields))
        if body is not None:
            data += frame(DATA, body)
        stream = self.quic.get_next_available_stream_id()
        self.asked[stream] = method, target(path, query)
        self.quic.send_stream_data(stream, data, end_stream=True)
        if flush:
            self._flush()
        return stream

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
        while time.monotonic() < deadline:
            try:
                self._take(deadline - time.monotonic())
            except TimeoutError:
                pass
        return before == (len(self.ended), len(self.broken))

    # leaving

    def stop(self, stream):
        self.quic.stop_stream(stream, REQUEST_CANCELLED)
        self._flush()

    def reset(self, stream):
        self.quic.reset_stream(stream, REQUEST_CANCELLED)
        self._flush()

    def cancel(self, stream):
        self.quic.reset_stream(stream, REQUEST_CANCELLED)
        self.quic.stop_stream(stream, REQUEST_CANCELLED)
        self._flush()

    def close(self):
        if self.socket.fileno() != -1:
            self.quic.close()
            self._flush()
            self.socket.close()

    def vanish(self):
        self.socket.close()

    # inside

    def _flush(self):
        for data, _ in self.quic.datagrams_to_send(time.monotonic()):
            try:
                self.socket.send(data)
            except ConnectionRefusedError:
                raise Gone("no server is there") from None

    def _take(self, timeout):
        """Takes the next datagram or timer of QUIC."""
        if timeout <= 0:
            raise TimeoutError("no answer in time")
        deadline = time.monotonic() + timeout
        timer = self.quic.get_timer()
        until = deadline if timer is None else min(deadline, timer)
        if select.select([self.socket], [], [],
                         max(0.0, until - time.monotonic()))[0]:
            try:
                self.quic.receive_datagram(self.socket.recv(65536),
                                           self.address, time.monotonic())
            except ConnectionRefusedError:
                raise Gone("no server is there") from None
        elif timer is not None and time.monotonic() >= timer:
            self.quic.handle_timer(time.monotonic())
        event = self.quic.next_event()
        while event is not None:
            self._event(event)
            event = self.quic.next_event()
        self._flush()

    def _event(self, event):
        if isinstance(event, events.HandshakeCompleted):
            self.is_open = True
        elif isinstance(event, events.ConnectionTerminated):
            raise Gone("the connection has ended: %s" % event.reason_phrase)
        elif isinstance(event, events.StreamReset):
            self.broken[event.stream_id] = event.error_code
        elif (isinstance(event, events.StreamDataReceived)
              and event.stream_id % 4 == 0):
            self._data(event.stream_id, event.data)
            if event.end_stream:
                self.ended.add(event.stream_id)

    def _data(self, stream, data):
        data = self.buffers.pop(stream, b"") + data
        while data:
            try:
                kind, at = read_integer(data, 0, 8)
                length, at = read_integer(data, at, 8)
            except IndexError:
                break
            if len(data) < at + length:
                break
            self._frame(stream, kind, data[at:at + length])
            data = data[at + length:]
        self.buffers[stream] = data

    def _frame(self, stream, kind, data):
        if kind == HEADERS:
            fields = decode_fields(data)
            self.answers[stream] = [
                int(dict(fields)[":status"]),
                [(n, v) for n, v in fields if n[0] != ":"], b""]
        elif kind == DATA:
            self.answers[stream][2] += data


# integers of QUIC and QPACK, which share the first byte with flags

def integer(value):
    for size, mark in ((1, 0x00), (2, 0x40), (4, 0x80)):
        if value < 1 << (8 * size - 2):
            data = bytearray(value.to_bytes(size, "big"))
            data[0] |= mark
            return bytes(data)
    raise ValueError(value)


def read_integer(data, at, bits):
    if bits == 8:
        size = 1 << (data[at] >> 6)
        if len(data) < at + size:
            raise IndexError(at)
        value = int.from_bytes(data[at:at + size], "big")
        return value & ((1 << (8 * size - 2)) - 1), at + size
    value = data[at] & ((1 << bits) - 1)
    at += 1
    if value == (1 << bits) - 1:
        shift = 0
        while True:
            value += (data[at] & 0x7f) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
    return value, at


def frame(kind, data):
    return integer(kind) + integer(len(data)) + data


def text(value, bits, flags):
    """A text, neither in a table nor in Huffman's code."""
    data = value.encode("latin-1")
    limit = (1 << bits) - 1
    if len(data) < limit:
        return bytes([flags | len(data)]) + data
    length = bytearray([flags | limit])
    rest = len(data) - limit
    while rest >= 0x80:
        length.append(0x80 | rest & 0x7f)
        rest >>= 7
    length.append(rest)
    return bytes(length) + data


def read_text(data, at, bits):
    huffman = data[at] & 1 << bits
    length, at = read_integer(data, at, bits)
    value = data[at:at + length]
    if huffman:
        value = decode_huffman(value)
    return value.decode("latin-1"), at + length


def encode_fields(fields):
    return b"\0\0" + b"".join(text(name, 3, 0x20) + text(value, 7, 0)
                              for name, value in fields)


def decode_fields(data):
    fields = []
    at = 2
    while at < len(data):
        if data[at] & 0x80:
            index, at = read_integer(data, at, 6)
            name, value = STATIC[index]
        elif data[at] & 0x40:
            index, at = read_integer(data, at, 4)
            name = STATIC[index][0]
            value, at = read_text(data, at, 7)
        else:
            assert data[at] & 0x20, "a dynamic table"
            name, at = read_text(data, at, 3)
            value, at = read_text(data, at, 7)
        fields.append((name, value))
    return fields
