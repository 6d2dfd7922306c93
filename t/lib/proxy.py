"""A TCP proxy in front of a ZooKeeper server, to break connections with.

The proxy runs in a thread of the test run and understands just enough of
ZooKeeper's protocol to separate requests: every message is a length and a body,
and every request but the first of a connection begins with a number (xid) and
an operation.  So the proxy can

    pass            let everything through
    hole            let nothing through, either way; keep the connections
    noreply         let requests through and swallow the answers
    keep(n)         let requests through and, after n more answers, none back
                    until the mode ends; then all of them, in order
    delay           let everything through, later
    kill()          reset all connections
    refuse()        take no new connections; listen() takes them again
    retarget(port)  lead new connections to another server
    greet_late(s)   the answer to the next connection's first message is late
    fault(op, how)  break at the next request of a kind, in a chosen way
    cut_off(id)     a hole for one session alone, and for all its connections
    lack(op)        the server does not know a kind of request from now on

    pass_on()       ends every mode and every cut

and counts connections, requests by operation, and lists of children by path.
A transaction of one set or check, which gateways send in front of reads, is a
"barrier" and no "multi".
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

LISTS = ("getChildren", "getChildren2")

LOSE = "lose"               # the request is not passed on; cut
HALF = "half"               # half of the request is passed on; cut
CUT = "cut"                 # passed on; cut at once: it may arrive or not
UNANSWERED = "unanswered"   # passed on; cut when the answer comes
TORN = "torn"               # passed on; half of the answer, and then cut
SWALLOWED = "swallowed"     # passed on; the answer, and only that, is lost
LAST = "last"               # passed on; the answer is the last: a hole

ON_REQUEST = (LOSE, HALF, CUT)

UNIMPLEMENTED = -6


class Fault:
    """A break to come, at an operation or the first of several operations.

    happened is set when the break did happen.
    """

    def __init__(self, operation, how):
        self.operations = ((operation,) if isinstance(operation, str)
                           else tuple(operation))
        self.how = how
        self.happened = threading.Event()

    def wait(self, timeout=10.0):
        assert self.happened.wait(timeout), "no %s came to be %s" % (
            " or ".join(self.operations), self.how)


class Proxy:
    def __init__(self, target, port=None, host="127.0.0.1"):
        self.host = host
        self.port = port or free_port()
        self.target = target
        self.mode = "pass"
        self.delay = 0.0
        self.accepted = 0
        self.requests = collections.Counter()
        self.lists = collections.Counter()
        self.faults = []
        self.greeting = 0.0
        self.passing = 0            # answers, before they are kept
        self._cut_off = set()
        self._lacks = set()
        self._links = set()
        self._tasks = set()
        self._server = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever,
                                        daemon=True)
        self._thread.start()
        self.listen()

    @property
    def address(self):
        return "%s:%d" % (self.host, self.port)

    # the calls of tests

    def pass_on(self):
        self.mode = "pass"
        self.delay = 0.0
        self._cut_off = set()

    def cut_off(self, session):
        self._cut_off = self._cut_off | {session}

    def lack(self, operation):
        self._lacks = self._lacks | {operation}

    def hole(self):
        self.mode = "hole"

    def noreply(self):
        self.mode = "noreply"

    def keep(self, passing=0):
        self.passing = passing
        self.mode = "keep"

    def retarget(self, port):
        self.target = port

    def greet_late(self, seconds):
        self.greeting = seconds

    def fault(self, operation, how):
        fault = Fault(operation, how)
        self.faults.append(fault)
        return fault

    def kill(self, session=None):
        """Resets all connections, or those of one session."""
        self._run(self._kill(session))

    def refuse(self):
        self._run(self._refuse())

    def listen(self):
        self._run(self._listen())

    def connections(self):
        return len(self._links)

    def close(self):
        self._run(self._refuse())
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # inside

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine,
                                                self._loop).result(20)

    async def _listen(self):
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, self.host, self.port)

    async def _refuse(self):
        if self._server is not None:
            # not wait_closed(): since Python 3.12 it waits for the links, too
            self._server.close()
            self._server = None

    async def _kill(self, session=None):
        for link in list(self._links):
            if session is None or link.session == session:
                link.cut()

    async def _end(self):
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        self.accepted += 1
        link = _Link(self, writer)
        self._links.add(link)
        self._tasks.add(asyncio.current_task())
        try:
            await link.run(reader)
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            self._links.discard(link)
            link.cut()

    def _is_hole(self, session):
        return self.mode == "hole" or session in self._cut_off


class _Link:
    """A client's connection and the connection to the server behind."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = None
        self.session = None         # the id, after the server told the id
        self.first_request = True
        self.first_reply = True
        self.awaited = {}           # xid -> the fault that the answer sets off
        self.refused = set()        # xids of requests that are not known

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
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()

    async def _while_hole(self):
        while self.proxy._is_hole(self.session):
            await asyncio.sleep(0.005)

    async def _pump(self, reader, handle):
        """Takes each message, and passes the message on when due."""
        messages = asyncio.Queue()
        passing = asyncio.ensure_future(self._pass_on(messages, handle))
        taking = asyncio.ensure_future(self._take(reader, messages))
        try:
            await asyncio.wait([passing, taking],
                               return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                messages.put_nowait((0.0, None))
                await passing
        finally:
            passing.cancel()
            taking.cancel()

    async def _take(self, reader, messages):
        while True:
            try:
                head = await reader.readexactly(4)
                body = await reader.readexactly(struct.unpack(">i", head)[0])
            except (OSError, asyncio.IncompleteReadError):
                return
            due = time.monotonic() + self.proxy.delay
            messages.put_nowait((due, head + body))

    async def _pass_on(self, messages, handle):
        while True:
            due, frame = await messages.get()
            if frame is None:
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if handle == self._request and self.first_request:
                self._attach(frame_session(frame, 20))
            await self._while_hole()
            try:
                if not await handle(frame):
                    return
            except OSError:
                return

    def _attach(self, session):
        if session:
            self.session = session

    async def _request(self, frame):
        fault = None
        if self.first_request:
            self.first_request = False
        else:
            fault = self._note(frame)
            if operation_of(frame) in self.proxy._lacks:
                frame = self._refuse(frame)

        how = fault.how if fault is not None else None
        if how == HALF:
            self.server.write(frame[:len(frame) // 2])
        elif how != LOSE:
            self.server.write(frame)
        await self.server.drain()
        return self._happen(fault) if how in ON_REQUEST else True

    def _note(self, frame):
        """Counts a request; returns the fault that the request sets off."""
        xid, = struct.unpack_from(">i", frame, 4)
        operation = operation_of(frame)
        if operation == "multi" and is_barrier(frame):
            operation = "barrier"
        self.proxy.requests[operation] += 1
        if operation in LISTS:
            self.proxy.lists[path_of(frame)] += 1
        for fault in self.proxy.faults:
            if operation in fault.operations:
                self.proxy.faults.remove(fault)
                if fault.how not in ON_REQUEST:
                    self.awaited[xid] = fault
                return fault
        return None

    def _refuse(self, frame):
        """A request of no effect instead, to refuse in the right order."""
        xid, = struct.unpack_from(">i", frame, 4)
        self.refused.add(xid)
        exists = struct.pack(">iii", xid, 3, 1) + b"/" + struct.pack(">?", 0)
        return struct.pack(">i", len(exists)) + exists

    async def _reply(self, frame):
        fault = None
        if self.first_reply:
            self.first_reply = False
            self._attach(frame_session(frame, 12))
            late, self.proxy.greeting = self.proxy.greeting, 0.0
            await asyncio.sleep(late)
        elif len(frame) >= 8:
            xid, = struct.unpack_from(">i", frame, 4)
            fault = self.awaited.pop(xid, None)
            if xid in self.refused:
                self.refused.remove(xid)
                frame = (struct.pack(">i", 16) + frame[4:16]
                         + struct.pack(">i", UNIMPLEMENTED))
        if fault is not None and fault.how == SWALLOWED:
            fault.happened.set()
            return True
        if fault is not None and fault.how == LAST:
            self.proxy.hole()
            fault.happened.set()
            fault = None
        if fault is not None and fault.how == TORN:
            self.client.write(frame[:len(frame) // 2])
            await self.client.drain()
        if fault is not None:
            return self._happen(fault)
        await self._while_kept()
        if self.proxy.mode != "noreply":
            self.client.write(frame)
            await self.client.drain()
        return True

    async def _while_kept(self):
        if self.proxy.mode == "keep" and self.proxy.passing > 0:
            self.proxy.passing -= 1
            return
        while self.proxy.mode == "keep":
            await asyncio.sleep(0.005)

    def _happen(self, fault):
        fault.happened.set()
        self.cut()
        return False


def operation_of(frame):
    code, = struct.unpack_from(">i", frame, 8)
    return OPERATIONS.get(code, str(code))


def is_barrier(frame):
    """Whether a transaction has one operation, which sets or checks data."""
    code, = struct.unpack_from(">i", frame, 12)
    end = 21 + 4 + struct.unpack_from(">i", frame, 21)[0]
    if OPERATIONS.get(code) == "setData":
        end += 4 + max(0, struct.unpack_from(">i", frame, end)[0])
    elif OPERATIONS.get(code) != "check":
        return False
    # the version, and a header that has no type
    return struct.unpack_from(">i", frame, end + 4)[0] == -1


def path_of(frame):
    """The path of an operation that begins with a path, as clients see it."""
    length, = struct.unpack_from(">i", frame, 12)
    return frame[16:16 + length].decode()


def frame_session(frame, offset):
    """The session's id in the first message of either side, or 0."""
    if len(frame) < offset + 8:
        return 0
    return struct.unpack_from(">q", frame, offset)[0]
