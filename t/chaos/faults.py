"""The faults, and the lanes that choose the faults.

Each fault is a function of a Lane that makes the fault, heals the fault and
knows the name of the kind.  A lane is a thread that injects faults in turn: one
for the servers, one for each gateway, one for the network's quality.  So a
server and both gateways may be broken at the same time and the network slow,
but the ensemble is whole again before the next fault of a server.  A lane takes
the rarest kind so far, or draws among the rarest with the run's seed.
"""

import os
import random
import threading

from chaos.arena import FULL
from chaos.network import Loopback
from lib.process import wait_until

SERVE_TIMEOUT = 8.0
FELT_TIMEOUT = 30.0
WORKERS_TIMEOUT = 30.0
CHUNK = 1 << 20


class Lane(threading.Thread):
    def __init__(self, arena, record, name, kinds, seed, stop, target=None):
        super().__init__(name=name, daemon=True)
        self.arena = arena
        self.record = record
        self.rng = random.Random("%s %s" % (seed, name))
        self.counts = dict.fromkeys(kinds, 0)
        self.stop = stop
        self.target = target
        self.error = None
        self.done = threading.Event()
        self.may_end = threading.Event()

    def run(self):
        """The thread stays to the end, because child processes die with it."""
        try:
            self._inject()
        finally:
            self.done.set()
        self.may_end.wait()

    def _inject(self):
        try:
            while not self.stop.wait(self.rng.uniform(0.1, 0.9)):
                least = min(self.counts.values())
                kind = self.rng.choice([kind for kind in self.counts
                                        if self.counts[kind] == least])
                kind(self)
                self.counts[kind] += 1
        except Exception as e:      # the run has to know of any error
            self.error = e
            self.stop.set()

    def sleep(self, least, most):
        """Sleeps for a random time, or until the run ends."""
        self.stop.wait(self.rng.uniform(least, most))

    def fault(self, kind, target, **fields):
        return Fault(self.record, kind, target, fields)


class Fault:
    """Writes the begin and the end; the body makes and heals the fault."""

    numbers = 0

    def __init__(self, record, kind, target, fields):
        Fault.numbers += 1
        self.id = Fault.numbers
        self.record = record
        self.fields = dict(fields, id=self.id, kind=kind, target=target)

    def __enter__(self):
        self.record.write("fault", **self.fields)
        return self.fields

    def __exit__(self, *_):
        self.record.write("fault", healed=True, **self.fields)


# --- servers ------------------------------------------------------------------

def _kill_server(lane, kind, server):
    with lane.fault(kind, server.name):
        server.kill()
        lane.sleep(0.1, 1.5)
        server.start(wait=False)
        lane.arena.wait_quorum()


def _freeze_server(lane, kind, server):
    with lane.fault(kind, server.name):
        server.freeze()
        try:
            lane.sleep(0.3, 3)
        finally:
            server.thaw()
        lane.arena.wait_quorum()


def kill_server(lane):
    _kill_server(lane, "server killed", lane.rng.choice(lane.arena.servers))


def kill_leader(lane):
    _kill_server(lane, "leader killed", lane.arena.leader())


def freeze_server(lane):
    _freeze_server(lane, "server stopped", lane.rng.choice(lane.arena.servers))


def freeze_leader(lane):
    _freeze_server(lane, "leader stopped", lane.arena.leader())


def lose_quorum(lane):
    servers = lane.rng.sample(lane.arena.servers, 2)
    with lane.fault("quorum lost", " ".join(s.name for s in servers)):
        try:
            for server in servers:
                server.freeze()
            lane.sleep(0.3, 4)
        finally:
            for server in servers:
                server.thaw()
        lane.arena.wait_quorum()


def part_servers(lane):
    """Parts a server, half of the time the leader, from the other servers."""
    alone = (lane.arena.leader() if lane.rng.random() < 0.5
             else lane.rng.choice(lane.arena.servers))
    others = [s for s in lane.arena.servers if s is not alone]
    with lane.fault("server cut off from servers", alone.name):
        try:
            for other in others:
                alone.node.cut(other.node)
                other.node.cut(alone.node)
            lane.sleep(0.3, 4)
        finally:
            for other in others:
                alone.node.mend(other.node)
                other.node.mend(alone.node)
        lane.arena.wait_quorum()


def depose_leader(lane):
    """Cuts the leader off and restarts the other servers: these elect a new
    leader, while the former leader goes on and does not know.
    """
    alone = lane.arena.leader()
    others = [s for s in lane.arena.servers if s is not alone]
    with lane.fault("leader deposed", alone.name):
        try:
            for other in others:
                alone.node.cut(other.node)
                other.node.cut(alone.node)
                other.kill()
            for other in others:
                other.start(wait=False)
            lane.sleep(4, 9)
        finally:
            for other in others:
                alone.node.mend(other.node)
                other.node.mend(alone.node)
        lane.arena.wait_quorum()


def one_way_servers(lane):
    one, other = lane.rng.sample(lane.arena.servers, 2)
    with lane.fault("one way between servers",
                    "%s to %s" % (one.name, other.name)):
        one.node.cut(other.node)
        try:
            lane.sleep(0.3, 4)
        finally:
            one.node.mend(other.node)
        lane.arena.wait_quorum()


def fill_disk(lane):
    """A server may end, or leave and join again; the run heals both."""
    server = lane.rng.choice(lane.arena.servers)
    path = os.path.join(server.disk, "full")
    with lane.fault("disk full", server.name) as fields:
        try:
            before = server.says(FULL)
            fields["filled"] = _fill(path)
            wait_until(lambda: server.says(FULL) > before, FELT_TIMEOUT,
                       "%s feels that its disk is full" % server.name)
            lane.sleep(0.2, 3)
            fields["ended"] = server.process.poll() is not None
            fields["mode"] = lane.arena.mode(server)
        finally:
            os.unlink(path)
        _serve_again(lane, server)
        lane.arena.wait_quorum()


def _fill(path):
    """Fills the disk to the last byte; returns the number of bytes."""
    with open(path, "wb", buffering=0) as f:
        for size in (CHUNK, 1):
            try:
                while True:
                    f.write(bytes(size))
            except OSError:
                pass
        return f.tell()


def _serve_again(lane, server):
    """Ends a server that does not come back, for a new start."""
    try:
        wait_until(lambda: (server.process.poll() is not None
                            or lane.arena.mode(server)), SERVE_TIMEOUT)
    except AssertionError:
        server.kill()


# --- gateways -----------------------------------------------------------------

def kill_worker(lane):
    with lane.fault("worker killed", lane.target.name):
        lane.target.kill_worker(lane.rng.choice(lane.target.worker_pids()))
        _wait_workers(lane.target)


def _wait_workers(gateway):
    wait_until(lambda: len(gateway.worker_pids()) >= gateway.workers,
               WORKERS_TIMEOUT, "all workers run")


def freeze_worker(lane):
    pid = lane.rng.choice(lane.target.worker_pids())
    with lane.fault("worker stopped", lane.target.name):
        with lane.target.frozen_worker(pid):
            lane.sleep(0.3, 6)


def kill_gateway(lane):
    with lane.fault("gateway killed", lane.target.name):
        lane.target.kill()
        lane.sleep(0, 3)
        lane.target.start(wait_sessions=False)


def lose_machine(lane):
    """The gateway's cable is out, so that no server sees the connections end,
    then the processes die; often for longer than the sessions live.
    """
    gateway = lane.target
    with lane.fault("gateway's machine lost", gateway.name):
        gateway.node.down()
        try:
            gateway.kill()
            lane.sleep(1, 10)
        finally:
            gateway.node.up()
        gateway.start(wait_sessions=False)


def kill_master(lane):
    """The master dies; the workers serve on, then the workers die, too."""
    with lane.fault("master killed", lane.target.name):
        lane.target.kill_master()
        lane.sleep(0.2, 2)
        lane.target.kill_orphans()
        lane.target.start(wait_sessions=False)


def reload(lane):
    with lane.fault("reload", lane.target.name):
        lane.target.reload()


def _cut(lane, kind, servers, away, back):
    """What is sent to these servers is lost, or what they send, or both."""
    node = lane.target.node
    with lane.fault(kind, lane.target.name,
                    servers=[server.name for server in servers]):
        try:
            for server in servers:
                if away:
                    node.cut(server.node)
                if back:
                    server.node.cut(node)
            lane.sleep(0.3, 6)
        finally:
            for server in servers:
                node.mend(server.node)
                server.node.mend(node)


def cut_all(lane):
    _cut(lane, "gateway cut off from all servers", lane.arena.servers,
         True, True)


def cut_one(lane):
    _cut(lane, "gateway cut off from one server",
         [lane.rng.choice(lane.arena.servers)], True, True)


def cut_away(lane):
    _cut(lane, "one way, gateway to servers", lane.arena.servers, True, False)


def cut_back(lane):
    _cut(lane, "one way, servers to gateway", lane.arena.servers, False, True)


def unplug(lane):
    with lane.fault("gateway's cable out", lane.target.name):
        lane.target.node.down()
        try:
            lane.sleep(0.3, 4)
        finally:
            lane.target.node.up()


# --- the network's quality ----------------------------------------------------

def _spoil(lane, kind, delay, loss):
    thing = lane.rng.choice(lane.target or (lane.arena.servers
                                            + lane.arena.gateways))
    with lane.fault(kind, thing.name, delay=delay, loss=loss) as fields:
        thing.node.spoil(delay, loss, lane.rng.random())
        try:
            lane.sleep(0.5, 5)
        finally:
            fields["passed"], fields["lost"] = thing.node.restore()


def late_frames(lane):
    _spoil(lane, "late frames", round(lane.rng.uniform(0.01, 0.3), 3), 0)


def lost_frames(lane):
    _spoil(lane, "lost frames", 0, round(lane.rng.uniform(0.05, 0.3), 3))


SERVERS = [kill_server, kill_leader, freeze_server, freeze_leader, lose_quorum]
PARTED_SERVERS = [part_servers, depose_leader, one_way_servers]
GATEWAYS = [kill_worker, freeze_worker, kill_gateway, kill_master, reload]
PARTED_GATEWAYS = [cut_all, cut_one, cut_away, cut_back, unplug,
                   lose_machine]
LINES = [late_frames, lost_frames]


def lanes(arena, record, seed, stop, servers_too=True):
    """All lanes that this machine can run, not started, on request no servers.
    """
    parted = not isinstance(arena.network, Loopback)
    servers = (SERVERS + (PARTED_SERVERS if parted else [])
               + ([fill_disk] if arena.disks else []))
    gateways = GATEWAYS + (PARTED_GATEWAYS if parted else [])
    made = []
    if servers_too:
        made.append(Lane(arena, record, "servers", servers, seed, stop))
    made += [Lane(arena, record, gateway.name, gateways, seed, stop, gateway)
             for gateway in arena.gateways]
    if parted:
        made.append(Lane(arena, record, "lines", LINES, seed, stop,
                         None if servers_too else arena.gateways))
    return made


def least(lanes):
    """How often the rarest kind was injected, by all lanes together."""
    counts = {}
    for lane in lanes:
        for kind, number in lane.counts.items():
            counts[kind] = counts.get(kind, 0) + number
    return min(counts.values())
