"""A wire between a client and a gateway, for tests that look at what passes,
or that hold it up.
"""

import socket
import threading


class Wire:
    """Connections to a port of loopback, as connections to the gateway's.

        asked, answered     the bytes that the client and the gateway sent
        connections         of each connection the bytes that the client sent
        hold()              what the gateway sends is kept back
        go()                what was kept back, and all that comes, passes
        lose()              what the gateway sends on the connections that are
                            there is lost
    """

    def __init__(self, port):
        self.target = port
        self.asked = self.answered = b""
        self.connections = []
        self._open = threading.Event()
        self._open.set()
        self._lost = 0              # so many connections lose the answers
        self._sockets = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def hold(self):
        self._open.clear()

    def go(self):
        self._open.set()

    def lose(self):
        self._lost = len(self.connections)

    def close(self):
        self.go()
        self._listener.close()
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _start(self, target, *args):
        threading.Thread(target=target, args=args, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                gateway = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self._sockets += [client, gateway]
            self.connections.append(b"")
            number = len(self.connections) - 1
            self._start(self._pass, client, gateway, "asked", number)
            self._start(self._pass, gateway, client, "answered", number)

    def _pass(self, source, sink, name, number):
        while True:
            try:
                words = source.recv(65536)
                setattr(self, name, getattr(self, name) + words)
                if name == "answered":
                    self._open.wait()
                    if words and number < self._lost:
                        continue
                else:
                    self.connections[number] += words
                if not words:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(words)
            except OSError:
                return
