"""The HTTP clients of a run: they take locks, hold, renew and leave.

usage: clients.py JOB     (a file of JSON, see Job)

One process, many clients, each with a single acquire at a time.  A client draws
the turn at random:

    plain       waits for a lock, holds the lock, renews at a third of the lease
                at any gateway, operates the guarded resource after each answer
                that says held, and releases until that is confirmed
    long        the same, but holds the lock until the lease is durable
    key         the same with an Idempotency-Key: a call that was cut off, now
                and then on purpose, is repeated
    dies        takes the lock and sends no more: the lease has to end
    leaves      hangs up while the request waits
    guarded     sends a request through a guard, and may hang up

Each client calls all gateways, or, if the job `stays`, one.  Some leases are to
be durable from the start.

A client is a careful holder: the client stops on 410, and when the lease is
over by the client's clock, counted from the sending of the call.  A client that
is planted to outlive goes on.  When the standard input ends, no client begins a
new turn, and the process waits for all turns.
"""

import asyncio
import json
import os
import random
import socket
import sys
import time
import uuid

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from chaos.guard import Guarded                             # noqa: E402
from chaos.record import Record                             # noqa: E402
from chaos.witness import WAIT                              # noqa: E402
from lib.client import AsyncConnection, Gone, lock_path     # noqa: E402

CONNECT = 5.0
PATIENCE = 40.0             # how much longer than the wait a call may take
TRIES = 60                  # of a release
PAUSE = 0.2                 # before a call is repeated


class Job:
    """What clients are told: attributes of the same names."""

    def __init__(self, path):
        with open(path) as f:
            self.__dict__.update(json.load(f))


def keep_alive(writer):
    """A connection whose other end is gone ends within half a minute."""
    s = writer.get_extra_info("socket")
    s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 25)


class Client:
    def __init__(self, job, record, guard, number, stop):
        name = "%s%d" % (job.name, number)
        gateways = sorted(job.gateways.items())
        self.gateways = (gateways if not job.stays
                         else [gateways[number % len(gateways)]])
        self.job = job
        self.record = record
        self.guard = guard
        self.name = name
        self.stop = stop
        self.rng = random.Random("%s %s" % (job.seed, name))
        self.lock = None

    async def run(self):
        while not self.stop.is_set():
            self.lock = self.rng.choice(self.job.locks)
            self.mode = self._mode()
            turn = self.rng.choices(list(self.job.turns),
                                    list(self.job.turns.values()))[0]
            await getattr(self, turn)()
            await asyncio.sleep(self.rng.uniform(0, self.job.pause))

    def _mode(self):
        if self.lock.startswith("rw"):
            return self.rng.choice(["shared", "shared", "write"])
        return "semaphore" if self.lock.startswith("sem") else "exclusive"

    # turns

    async def plain(self):
        await self._hold(await self._acquire())

    async def long(self):
        grant = await self._acquire()
        await self._hold(grant, self.rng.uniform(*self.job.long))

    async def key(self):
        key = str(uuid.UUID(int=self.rng.getrandbits(128)))
        ttl = self._ttl()
        durable = self._durable()
        deadline = time.monotonic() + self.job.wait + PATIENCE
        while True:
            cut = self.rng.random() < 0.3 and self.rng.uniform(0, 1)
            grant = await self._acquire(key=key, ttl=ttl, leave=cut,
                                        durable=durable)
            if grant is not None:
                return await self._hold(grant)
            if (self.status == 423 or self.stop.is_set()
                    or time.monotonic() > deadline):
                return None
            await asyncio.sleep(PAUSE)

    async def dies(self):
        await self._acquire(ttl=self.rng.uniform(*self.job.ttl) / 2)

    async def leaves(self):
        grant = await self._acquire(leave=self.rng.uniform(0, 1))
        await self._hold(grant)

    async def guarded(self):
        """The witness holds the lock for the client, and writes that down."""
        if self.mode != "exclusive":
            return await self.plain()
        leave = self.rng.random() < 0.1 and self.rng.uniform(0, 2)
        query = {"lock": self.lock, "owner": self.name, "id": uuid.uuid4().hex,
                 "seconds": "%.3f" % self.rng.uniform(*self.job.hold),
                 "asked": "%.6f" % time.monotonic()}
        _, answer = await self._call("guarded", "GET", "/guarded/", query,
                                     None, leave, wait=WAIT)
        await self._back_off(answer)

    async def outlives(self):
        """Planted: the client operates the resource after the lease is over."""
        grant = await self._acquire(ttl=0.5)
        if grant is not None:
            claim, fencing, until = grant
            await asyncio.sleep(1.5)
            self._operate(claim, fencing, until)

    # parts of turns

    def _ttl(self):
        return round(self.rng.uniform(*self.job.ttl), 3)

    def _durable(self):
        return self.rng.random() < self.job.durable

    async def _acquire(self, key=None, ttl=None, leave=None, durable=None):
        """(claim, fencing token, when the lease is over), or None."""
        ttl = self._ttl() if ttl is None else ttl
        wait = round(self.rng.uniform(0, self.job.wait), 3)
        query = {"wait": "%.3f" % wait, "ttl": "%.3f" % ttl,
                 "owner": self.name, "mode": self.mode}
        if self.mode == "semaphore":
            query["permits"] = str(self.job.permits)
        durable = self._durable() if durable is None else durable
        if durable:
            query["durable"] = "1"
        headers = {"Idempotency-Key": key} if key else None
        asked, answer = await self._call(
            "acquire", "POST", lock_path(self.lock), query, headers, leave,
            wait=wait, ttl=ttl, key=key, durable=durable or None)
        if self.status not in (200, 201):
            await self._back_off(answer)
            return None
        body = answer.json
        waited = body["waited_ms"] / 1000 if self.status == 201 else 0
        return (body["token"], body["fencing_token"],
                asked + waited + body.get("expires_in_ms", 0) / 1000)

    async def _back_off(self, answer):
        if answer is None or self.status == 503:
            await asyncio.sleep(self.rng.uniform(0, 2 * PAUSE))

    async def _hold(self, grant, seconds=None):
        if grant is None:
            return
        claim, fencing, until = grant
        if seconds is None:
            seconds = self.rng.uniform(*self.job.hold)
        end = time.monotonic() + seconds
        self._operate(claim, fencing, until)
        while time.monotonic() < min(end, until):
            left = min(end, until) - time.monotonic()
            await asyncio.sleep(self.rng.uniform(0, max(0, left) / 2) + 0.01)
            kind = self.rng.choice(["renew", "look"])
            asked, answer = await self._ask(kind, claim)
            if self.status == 410:
                return
            if self.status == 200:
                until = max(until, asked + answer.json.get("expires_in_ms", 0)
                            / 1000)
                self._operate(claim, fencing, until)
            else:
                await asyncio.sleep(PAUSE)
        await self._release(claim)

    async def _release(self, claim):
        for _ in range(TRIES):
            await self._ask("release", claim)
            if self.status in (204, 410):
                return
            await asyncio.sleep(PAUSE)

    def _operate(self, claim, fencing, until):
        if self.mode != "exclusive":
            return
        asked = time.monotonic()
        over = asked > until
        if over and not self.job.outlive:
            return
        ok = self.guard.operate(self.lock, fencing)
        self.record.write("op", who=self.name, lock=self.lock, claim=claim,
                          fencing=fencing, asked=round(asked, 6), ok=ok,
                          over=over or None)

    async def _ask(self, kind, claim):
        method = {"renew": "PUT", "look": "GET", "release": "DELETE"}[kind]
        return await self._call(kind, method, lock_path(self.lock), None,
                                {"Lock-Token": claim}, None, claim=claim)

    async def _call(self, kind, method, path, query, headers, leave, wait=0.0,
                    **fields):
        """(sending time, the answer or None); self.status says more."""
        gateway, (host, port) = self.rng.choice(self.gateways)
        number = self.record.ask(
            who=self.name, kind=kind, lock=self.lock, mode=self.mode,
            gateway=gateway, wait=wait, **fields)
        asked = time.monotonic()
        answer = None
        patience = PATIENCE + wait if leave is None or leave is False \
            else leave
        try:
            answer = await asyncio.wait_for(
                self._exchange(host, port, method, path, query, headers),
                patience)
            self.status = answer.status
        except asyncio.TimeoutError:
            self.status = "timeout" if patience >= PATIENCE else "left"
        except ConnectionRefusedError:
            self.status = "unreached"
        except Unreached:
            self.status = "unreached"
        except (Gone, OSError):
            self.status = "cut"
        self.record.write("told", id=number, status=self.status,
                          **self._told(kind, answer))
        return asked, answer

    def _told(self, kind, answer):
        if (kind == "guarded" or answer is None
                or answer.status not in (200, 201)):
            return {}
        body = answer.json
        told = {"claim": body["token"], "fencing": body["fencing_token"]}
        if "expires_in_ms" in body:
            told["expires"] = body["expires_in_ms"] / 1000
        if "waited_ms" in body:
            told["waited"] = body["waited_ms"] / 1000
        return told

    @staticmethod
    async def _exchange(host, port, method, path, query, headers):
        connection = AsyncConnection(port, host=host)
        try:
            try:
                await asyncio.wait_for(connection.open(), CONNECT)
            except (asyncio.TimeoutError, OSError):
                raise Unreached() from None
            keep_alive(connection.writer)
            return await connection.request(method, path, query, headers)
        finally:
            connection.close()


class Unreached(Exception):
    """There was no connection, so no request was sent."""


async def main(job):
    record = Record(job.record, job.name)
    guard = Guarded(job.guard)
    stop = asyncio.Event()
    clients = [Client(job, record, guard, i, stop)
               for i in range(job.clients)]
    tasks = [asyncio.ensure_future(client.run()) for client in clients]
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    await asyncio.gather(*tasks)
    record.close()


if __name__ == "__main__":
    asyncio.run(main(Job(sys.argv[1])))
