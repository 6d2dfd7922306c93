"""The network faults of t/chaos do what they say: frames tell.

Skipped where the machine gives no rights for network namespaces.
"""

import os
import subprocess
import sys

import pytest

from chaos.network import Network, NoRights, ip
from lib.process import tied

PORT = 7000
SOON = 20.0
NEVER = 0.5         # long enough for a frame that is not lost

# answers each datagram with the same datagram
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", %d))
print("ready", flush=True)
while True:
    data, sender = s.recvfrom(100)
    print(data.decode(), flush=True)
    s.sendto(data, sender)
""" % PORT

# sends to an address, again and again, until an answer comes or the time ends
ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.1)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        s.sendto(sys.argv[3].encode(), (sys.argv[1], %d))
        s.recv(100)
    except OSError:
        time.sleep(0.05)
        continue
    sys.exit(0)
sys.exit(1)
""" % PORT


class Echo:
    """A node that answers, and remembers every word."""

    def __init__(self, node):
        self.node = node
        self.process = subprocess.Popen(
            tied(node.enter + [sys.executable, "-c", ECHO]),
            stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def end(self):
        """All words that the node has received."""
        self.process.kill()
        heard = set(self.process.stdout.read().split())
        self.process.wait()
        self.process.stdout.close()
        return heard


def asked(node, address, word, seconds=SOON):
    """Whether a node (None: this machine) gets an answer."""
    return subprocess.call(
        (node.enter if node else []) + [sys.executable, "-c", ASK, address,
                                        str(seconds), word]) == 0


@pytest.fixture
def network():
    try:
        network = Network()
    except NoRights as e:
        pytest.skip("no network namespaces here: %s" % e)
    yield network
    network.close()
    assert not [name for name in os.listdir("/sys/class/net")
                if name.startswith(network.prefix)]
    assert network.prefix not in ip("netns", "list")


@pytest.fixture
def nodes(network):
    return network.node("a"), network.node("b")


@pytest.fixture
def echo(nodes):
    echo = Echo(nodes[1])
    yield echo
    echo.end()


def test_whole(nodes, echo):
    a, b = nodes
    assert asked(a, b.address, "a") and asked(None, b.address, "us")
    assert not asked(None, a.address, "nobody", NEVER)


def test_one_way_there(nodes):
    a, b = nodes
    echo = Echo(b)
    assert asked(a, b.address, "before")
    a.cut(b)
    assert not asked(a, b.address, "lost", NEVER)
    assert asked(None, b.address, "us")
    a.mend(b)
    assert asked(a, b.address, "after")
    assert echo.end() == {"before", "us", "after"}


def test_one_way_back(nodes):
    a, b = nodes
    echo = Echo(b)
    b.cut(a)
    assert not asked(a, b.address, "unanswered", NEVER)
    b.mend(a)
    assert asked(a, b.address, "after")
    assert echo.end() == {"unanswered", "after"}


def test_cable(nodes, echo):
    a, b = nodes
    b.down()
    assert not asked(a, b.address, "a", NEVER)
    assert not asked(None, b.address, "us", NEVER)
    b.up()
    assert asked(a, b.address, "a") and asked(None, b.address, "us")


def test_late_and_lost_frames(nodes, echo):
    a, b = nodes
    assert asked(a, b.address, "before")
    b.spoil(0.05, 0, 1)
    assert asked(a, b.address, "late")
    passed, lost = b.restore()
    assert passed > 0 and lost == 0

    b.spoil(0, 1, 1)
    assert not asked(a, b.address, "lost", NEVER)
    passed, lost = b.restore()
    assert passed == 0 and lost > 0
    assert asked(a, b.address, "after")
