"""A network for a run: namespaces on a bridge, and the faults of the network.

Network makes a bridge and hands out Nodes, each a network namespace with an
interface on the bridge; the machine has an address on the bridge, too, from
which clients call.  Needs root and iproute2, and no firewall: a frame that a
node is to lose goes to a hardware address that no machine has.  That drops one
direction, silently, as a cable would.

    cut(A)      what this node sends to A is lost; mend(A)
    down()      the node's cable is out: no node reaches this node; up()
    spoil()     every frame from and to the node is late by a random time, or
                lost; restore().  A relay does so (relay.py), because many
                kernels lack netem.

Names begin with the pid of the run.  close() removes all, and the next run
removes what a killed run left behind.  Loopback is the same without any of
this, for machines that give no rights.
"""

import ctypes
import fcntl
import os
import random
import re
import socket
import struct
import subprocess
import sys

from lib.process import alive, free_port, tied

HERE = os.path.dirname(os.path.abspath(__file__))
NOBODY = "02:00:00:00:00:01"
NAME = re.compile(r"\bzkc(\d+)[a-z]\w*")

SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17


class NoRights(Exception):
    """The machine does not allow namespaces; says why."""


def ip(*words, check=True):
    run = subprocess.run(("ip",) + words, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, timeout=30)
    if check and run.returncode != 0:
        raise OSError("ip %s: %s" % (" ".join(words),
                                     run.stderr.decode().strip()))
    return run.stdout.decode()


def whole_checksums(interface):
    """The kernel computes checksums itself, because a relay could not."""
    value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP16x", interface.encode(),
                          ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCETHTOOL, request)


def remove_left():
    """Removes what is left of runs that are dead."""
    for line in ip("netns", "list", check=False).splitlines():
        found = NAME.match(line)
        if found and not alive(int(found.group(1))):
            ip("netns", "del", found.group(0), check=False)
    for name in os.listdir("/sys/class/net"):
        found = NAME.match(name)
        if found and not alive(int(found.group(1))):
            ip("link", "del", name, check=False)


class Network:
    partitions = True

    def __init__(self):
        self.prefix = "zkc%d" % os.getpid()
        self.bridge = self.prefix + "b"
        self.nodes = []
        try:
            remove_left()
            self._make_bridge()
        except OSError as e:
            self.close()
            raise NoRights(str(e)) from None

    def _make_bridge(self):
        taken = ip("-4", "addr") + ip("-4", "route")
        while True:
            self.net = "10.%d.%d" % (random.randrange(64, 250),
                                     random.randrange(1, 250))
            if self.net + "." not in taken:
                break
        ip("link", "add", self.bridge, "type", "bridge")
        whole_checksums(self.bridge)
        ip("addr", "add", self.net + ".254/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def node(self, name):
        try:
            self.nodes.append(Node(self, name, len(self.nodes) + 1))
        except OSError as e:
            self.close()
            raise NoRights(str(e)) from None
        return self.nodes[-1]

    def close(self):
        for node in self.nodes:
            node.remove()
        self.nodes = []
        ip("link", "del", self.bridge, check=False)


class Node:
    def __init__(self, network, name, number):
        self.name = name
        self.bridge = network.bridge
        self.namespace = "%s%s" % (network.prefix, name)
        self.address = "%s.%d" % (network.net, number)
        self.enter = ["nsenter", "--net=/run/netns/" + self.namespace]
        self.cable = self.namespace + "c"       # the bridge's end of the pair
        self.detour = self.namespace + "d"      # leads to the bridge, too
        self.relay = None
        try:
            self._make()
        except OSError:
            self.remove()
            raise

    def _make(self):
        far, end = self.namespace + "f", self.namespace + "e"
        ip("netns", "add", self.namespace)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", far)
        ip("link", "add", self.detour, "type", "veth", "peer", "name", end)
        for interface in (self.cable, far, self.detour, end):
            whole_checksums(interface)
        ip("link", "set", far, "netns", self.namespace, "name", "eth0")
        for interface in (self.cable, end):
            ip("link", "set", interface, "master", self.bridge)
        for interface in (self.cable, self.detour, end):
            ip("link", "set", interface, "up")
        inside = ("-n", self.namespace)
        ip(*inside, "addr", "add", self.address + "/24", "dev", "eth0")
        ip(*inside, "link", "set", "lo", "up")
        ip(*inside, "link", "set", "eth0", "up")

    def remove(self):
        self._end_relay()
        ip("netns", "del", self.namespace, check=False)
        for interface in (self.cable, self.detour):
            ip("link", "del", interface, check=False)

    def port(self, usual):
        return usual

    # faults

    def cut(self, other):
        ip("-n", self.namespace, "neigh", "replace", other.address, "lladdr",
           NOBODY, "dev", "eth0", "nud", "permanent")

    def mend(self, other):
        ip("-n", self.namespace, "neigh", "del", other.address, "dev", "eth0",
           check=False)

    def down(self):
        ip("link", "set", self.cable, "down")

    def up(self):
        ip("link", "set", self.cable, "up")

    def spoil(self, delay, loss, seed):
        """delay: the latest a frame may be, in seconds; loss: a share."""
        self.relay = subprocess.Popen(
            tied([sys.executable, os.path.join(HERE, "relay.py"), self.cable,
                  self.detour, str(delay), str(loss), str(seed)]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if not self.relay.stdout.readline():
            raise OSError("the relay of %s did not start" % self.name)
        ip("link", "set", self.cable, "nomaster")

    def restore(self):
        """Returns how many frames the relay passed on and lost."""
        ip("link", "set", self.cable, "master", self.bridge)
        return self._end_relay()

    def _end_relay(self):
        if self.relay is None:
            return None
        self.relay.terminate()
        words = self.relay.stdout.read().split()
        self.relay.wait()
        self.relay.stdout.close()
        self.relay = None
        return tuple(int(word) for word in words)


class Loopback:
    """No rights: a single network without network faults."""

    partitions = False

    def __init__(self):
        self.nodes = []

    def node(self, name):
        return LoopbackNode(name)

    def close(self):
        pass


class LoopbackNode:
    address = "127.0.0.1"
    enter = []

    def __init__(self, name):
        self.name = name

    def port(self, usual):
        return free_port()
