"""A TCP proxy in front of a gateway that cuts a client off.

The proxy leads each connection to the gateway, and cuts the next connection as
cut() says, where a number of bytes below zero counts from the end:

    cut(request=N)  N bytes of the request are passed on, and no more
    cut(unheard=S)  the whole request is; the cut is S seconds after that
    cut(answer=N)   the answer has come, and N bytes of the answer are passed on
    cut(hang=True)  nothing of the request is; the client has to leave
    cut()           nothing is cut

Both sides of the connection end then, the gateway's as `how` says.  A Cut tells
when the cut happened, and has the lost answer, if an answer came.
"""

import socket
import struct
import threading
import time

from lib.client import Headers, body_length, parse_head

HEAD_END = b"\r\n\r\n"


class Cut:
    def __init__(self, request=None, unheard=None, answer=1 << 30, hang=False,
                 how="close"):
        self.request = request
        self.unheard = unheard
        self.answer = answer
        self.hang = hang
        self.came = threading.Event()       # the whole request
        self.how = how
        self.lost = None            # the whole answer
        self.passed_on = 0          # bytes of the request or of the answer
        self._happened = threading.Event()

    def wait(self, timeout=30.0):
        assert self._happened.wait(timeout), "nothing was cut"
        return self

    def happen(self, client, server):
        if self.how == "reset":
            server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                              struct.pack("ii", 1, 0))
        server.close()
        client.close()
        self._happened.set()


class Cutter:
    def __init__(self, port):
        self.target = port
        self.cuts = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def retarget(self, port):
        self.target = port

    def cut(self, **where):
        cut = Cut(**where)
        self.cuts.append(cut)
        return cut

    def close(self):
        # close() alone does not end an accept() that is under way
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)

    # inside

    def _accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            cut = self.cuts.pop(0) if self.cuts else Cut()
            threading.Thread(target=self._lead, args=(client, cut),
                             daemon=True).start()

    def _lead(self, client, cut):
        server = socket.create_connection(("127.0.0.1", self.target))
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            request = read_message(client)
            cut.came.set()
            if cut.hang:
                client.recv(1)
                return
            if cut.request is not None:
                cut.passed_on = count(cut.request, request)
                server.sendall(request[:cut.passed_on])
                return
            server.sendall(request)
            if cut.unheard is not None:
                time.sleep(cut.unheard)
                return
            cut.lost = read_message(server, request.split(b" ")[0].decode())
            cut.passed_on = count(cut.answer, cut.lost)
            client.sendall(cut.lost[:cut.passed_on])
        except OSError:
            pass
        finally:
            cut.happen(client, server)


def count(number, message):
    return max(0, min(len(message), number if number >= 0
                      else len(message) + number))


def read_message(sock, method=None):
    """A whole request, or the whole answer to a request of that method."""
    data = b""
    while HEAD_END not in data:
        data += receive(sock)
    head = data.partition(HEAD_END)[0] + HEAD_END
    if method is None:
        fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        lengths = [int(value) for name, _, value in fields
                   if name.lower() == b"content-length"]
        length = lengths[0] if lengths else 0
    else:
        status, pairs = parse_head(head)
        length = body_length(method, status, Headers(pairs))
        assert length is not None and length >= 0, head
    while len(data) < len(head) + length:
        data += receive(sock)
    return data


def receive(sock):
    data = sock.recv(65536)
    if not data:
        raise ConnectionError("it has left")
    return data
