"""An application behind a gateway, whose requests a test answers by hand.

    backend = Backend()                 # HTTP; Backend(uwsgi=True)
    seen = backend.next()               # a request that has come
    seen.answer(200, b"text")           # or begin(), send() and end()
    seen.wait_cut()                     # the gateway has closed the connection

With `Backend(work=function)` each request is answered at once with what the
function returns, as (status, body).  `inside` is how many requests are being
served, `most` the largest such number.
"""

import queue
import socket
import struct
import threading

from lib.client import Headers

TIMEOUT = 10.0


class Seen:
    """A request that the gateway has passed on."""

    def __init__(self, backend, connection, method, path, headers, body):
        self.backend = backend
        self.connection = connection
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.over = threading.Event()
        self.counted = False

    def answer(self, status=200, body=b"done\n", headers=None):
        """The request counts as left before the gateway can know."""
        self.begin(status, len(body), headers)
        self.backend.count_down(self)
        self.send(body)
        self.end()

    def begin(self, status=200, length=None, headers=None):
        """Sends the header; without a length the body ends with the answer."""
        lines = ["HTTP/1.1 %d Status" % status]
        if length is not None:
            lines.append("Content-Length: %d" % length)
        lines += ["%s: %s" % item for item in (headers or {}).items()]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    def send(self, data):
        self.connection.sendall(data)

    def switch(self, protocol="websocket"):
        """Sends 101: receive() and send() have the connection then."""
        self.begin(101, headers={"Upgrade": protocol, "Connection": "Upgrade"})

    def receive(self, size):
        """The next bytes on a connection that has switched."""
        data = b""
        self.connection.settimeout(TIMEOUT)
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            assert more, "the end, after %r" % data
            data += more
        return data

    def end(self):
        self.backend.left(self)

    def cut(self):
        """Whether the gateway has closed the connection."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK
                                            | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def wait_cut(self, timeout=TIMEOUT):
        """Waits until the gateway has closed the connection."""
        self.connection.settimeout(timeout)
        try:
            while self.connection.recv(4096):
                pass
        except ConnectionResetError:
            pass
        self.end()


class Backend:
    def __init__(self, uwsgi=False, work=None):
        self.uwsgi = uwsgi
        self.work = work
        self.inside = 0
        self.most = 0
        self.total = 0
        self._lock = threading.Lock()
        self._requests = queue.Queue()
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    def next(self, timeout=TIMEOUT):
        return self._requests.get(timeout=timeout)

    def idle(self):
        """Whether no request has come that next() did not give."""
        return self._requests.empty()

    def connections(self):
        """The number of open connections, with a request or without."""
        with self._lock:
            return len(self._open)

    def count_down(self, seen):
        with self._lock:
            self.inside -= not seen.counted
            seen.counted = True

    def left(self, seen):
        self.count_down(seen)
        seen.over.set()

    def close(self):
        # a thread that accepts keeps the socket open
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                connection.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,),
                             daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                request = (self._read_uwsgi(connection) if self.uwsgi
                           else self._read_http(connection))
                if request is not None:
                    self._handle(Seen(self, connection, *request))
            except OSError:
                pass
        with self._lock:
            self._open.discard(connection)

    def _handle(self, seen):
        with self._lock:
            self.inside += 1
            self.total += 1
            self.most = max(self.most, self.inside)
        if self.work is None:
            self._requests.put(seen)
        else:
            try:
                seen.answer(*self.work(seen))
            finally:
                self.left(seen)
        seen.over.wait()

    @staticmethod
    def _read_http(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = Headers([line.split(": ", 1) if ": " in line
                           else (line.rstrip(":"), "") for line in lines])
        length = int(headers.get("Content-Length") or 0)
        while len(body) < length:
            more = connection.recv(65536)
            if not more:
                return None
            body += more
        return method, path, headers, body

    @staticmethod
    def _read_uwsgi(connection):
        stream = connection.makefile("rb")
        _, size, _ = struct.unpack("<BHB", stream.read(4))
        data = stream.read(size)
        variables = {}
        while data:
            texts = []
            for _ in range(2):
                length, = struct.unpack_from("<H", data)
                texts.append(data[2:2 + length].decode("latin-1"))
                data = data[2 + length:]
            variables[texts[0]] = texts[1]
        headers = Headers([(name[5:].replace("_", "-"), value)
                           for name, value in variables.items()
                           if name.startswith("HTTP_")])
        body = stream.read(int(variables.get("CONTENT_LENGTH") or 0))
        return (variables["REQUEST_METHOD"], variables["REQUEST_URI"],
                headers, body)
