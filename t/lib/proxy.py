"""A TCP proxy in front of a ZooKeeper server, to break the connection with.

It runs in a thread of the test run and understands just enough of ZooKeeper's
protocol to tell one request from the next: every message is a length and a
body, and every request but the first of a connection begins with its number
(xid) and its operation.  So it can

    pass            let everything through
    hole            let nothing through, either way; keep the connections
    noreply         let requests through and swallow the answers
    delay           let everything through, later
    kill()          reset all connections
    refuse()        take no new connections; listen() takes them again
    retarget(port)  lead new connections to another server
    fault(op, how)  break at the next request of one kind, in a chosen way

and it counts connections and requests by operation.
"""

import asyncio
import collections
import struct
import threading
import time

from lib.process import free_port

OPERATIONS = {
    1: "create", 2: "delete", 3: "exists", 4: "getData", 5: "setData",
    6: "getACL", 7: "setACL", 8: "getChildren", 9: "sync", 11: "ping",
    12: "getChildren2", 13: "check", 14: "multi", 15: "create2",
    18: "removeWatches", 19: "createContainer", 21: "createTTL",
    100: "auth", 101: "setWatches", 105: "setWatches2", -11: "close",
}

LOSE = "lose"               # the request is not passed on; cut
HALF = "half"               # half of the request is passed on; cut
UNANSWERED = "unanswered"   # passed on; cut when its answer comes


class Fault:
    """One break to come; happened is set when it did."""

    def __init__(self, operation, how):
        self.operation = operation
        self.how = how
        self.happened = threading.Event()


class Proxy:
    def __init__(self, target, port=None):
        self.port = port or free_port()
        self.target = target
        self.mode = "pass"
        self.delay = 0.0
        self.accepted = 0
        self.requests = collections.Counter()
        self.faults = []
        self._links = set()
        self._server = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever,
                                        daemon=True)
        self._thread.start()
        self.listen()

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    # what tests do to it

    def pass_on(self):
        self.mode = "pass"
        self.delay = 0.0

    def hole(self):
        self.mode = "hole"

    def noreply(self):
        self.mode = "noreply"

    def retarget(self, port):
        self.target = port

    def fault(self, operation, how):
        fault = Fault(operation, how)
        self.faults.append(fault)
        return fault

    def kill(self):
        self._run(self._kill())

    def refuse(self):
        self._run(self._refuse())

    def listen(self):
        self._run(self._listen())

    def connections(self):
        return len(self._links)

    def close(self):
        self._run(self._refuse())
        self._run(self._kill())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # inside

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine,
                                                self._loop).result(5)

    async def _listen(self):
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, "127.0.0.1", self.port)

    async def _refuse(self):
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _kill(self):
        for link in list(self._links):
            link.cut()

    async def _accept(self, reader, writer):
        self.accepted += 1
        link = _Link(self, writer)
        self._links.add(link)
        try:
            await link.run(reader)
        finally:
            self._links.discard(link)
            link.cut()


class _Link:
    """One client's connection and the one to the server behind it."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = None
        self.first_request = True
        self.awaited = {}           # xid -> the fault that its answer sets off

    def cut(self):
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()

    async def run(self, reader):
        await self._while_hole()
        try:
            server_reader, self.server = await asyncio.open_connection(
                "127.0.0.1", self.proxy.target)
        except OSError:
            return
        pumps = [asyncio.ensure_future(self._pump(reader, self._request)),
                 asyncio.ensure_future(self._pump(server_reader,
                                                  self._reply))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()

    async def _while_hole(self):
        while self.proxy.mode == "hole":
            await asyncio.sleep(0.005)

    async def _pump(self, reader, handle):
        due = collections.deque()
        while True:
            try:
                head = await reader.readexactly(4)
                body = await reader.readexactly(struct.unpack(">i", head)[0])
            except (OSError, asyncio.IncompleteReadError):
                return
            due.append(time.monotonic() + self.proxy.delay)
            await asyncio.sleep(max(0.0, due.popleft() - time.monotonic()))
            await self._while_hole()
            try:
                if not await handle(head + body):
                    return
            except OSError:
                return

    async def _request(self, frame):
        fault = None
        if self.first_request:
            self.first_request = False
        else:
            fault = self._note(frame)

        if fault is not None and fault.how == LOSE:
            return self._happen(fault)
        if fault is not None and fault.how == HALF:
            self.server.write(frame[:len(frame) // 2])
            await self.server.drain()
            return self._happen(fault)

        self.server.write(frame)
        await self.server.drain()
        return True

    def _note(self, frame):
        """Counts a request; returns the fault that it sets off, if any."""
        xid, code = struct.unpack_from(">ii", frame, 4)
        operation = OPERATIONS.get(code, str(code))
        self.proxy.requests[operation] += 1
        for fault in self.proxy.faults:
            if fault.operation == operation:
                self.proxy.faults.remove(fault)
                if fault.how == UNANSWERED:
                    self.awaited[xid] = fault
                return fault
        return None

    async def _reply(self, frame):
        fault = None
        if len(frame) >= 8:
            fault = self.awaited.pop(struct.unpack_from(">i", frame, 4)[0],
                                     None)
        if fault is not None:
            return self._happen(fault)
        if self.proxy.mode != "noreply":
            self.client.write(frame)
            await self.client.drain()
        return True

    def _happen(self, fault):
        fault.happened.set()
        self.cut()
        return False
