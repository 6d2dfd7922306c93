"""The guarded resource: takes operations, and refuses old fencing tokens.

The resource is the witness of a run: for each lock the resource remembers the
largest fencing token so far, refuses operations with a smaller token, and
writes down all operations.  The resource serves on loopback, where no fault
strikes, takes lines of "LOCK TOKEN", and answers "ok" or "stale".
"""

import socket
import socketserver
import threading


class Guard:
    def __init__(self, record):
        self.record = record
        self.largest = {}
        self.lock = threading.Lock()
        guard = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                for line in self.rfile:
                    name, token = line.decode().split()
                    answer = guard.operate(name, int(token))
                    self.wfile.write(b"ok\n" if answer else b"stale\n")

        socketserver.ThreadingTCPServer.daemon_threads = True
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0),
                                                      Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever,
                                       daemon=True)
        self.thread.start()

    def operate(self, lock, fencing):
        with self.lock:
            ok = fencing >= self.largest.get(lock, 0)
            if ok:
                self.largest[lock] = fencing
            self.record.write("guard", lock=lock, fencing=fencing, ok=ok)
        return ok

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Guarded:
    """A client's connection to the resource; one operation at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.file = self.socket.makefile("rw")

    def operate(self, lock, fencing):
        self.file.write("%s %d\n" % (lock, fencing))
        self.file.flush()
        return self.file.readline() == "ok\n"

    def close(self):
        self.socket.close()
