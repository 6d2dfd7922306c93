"""The zone has no room for a further record, in the midst of a call.

Locks that are held for long take all room but what a scenario needs at the
beginning, and then that room, too.  A request that needs no room is served, and
any other gets 503.  The existing claims are not harmed, and as soon as the zone
has room again all requests are served again.
"""

import contextlib

import pytest

from conftest import gateways, new_root
from lib.client import lock_path
from lib.scenarios import OPTIONS, SCENARIOS, World, play

ZONE = "zk_lock_zone 256k;"
FEW = 8         # records that a scenario may need before its second part
MANY = 20000
REFUSALS = 5000     # of a long name: more than a session may have in ZooKeeper


class Filler:
    """Locks that are held so that no other lock can be acquired."""

    def __init__(self, gateway, names="filler%d"):
        self.connection = gateway.connect()
        self.names = names
        self.tokens = []        # (path, token)

    def fill(self):
        while len(self.tokens) < MANY:
            path = lock_path(self.names % len(self.tokens))
            response = self.connection.request("POST", path, {"ttl": "1h"})
            if response.status != 201:
                assert response.status == 503, response
                return
            self.tokens.append((path, response.token))
        raise AssertionError("the zone does not get full")

    def leave(self, number):
        for _ in range(number):
            path, token = self.tokens.pop()
            response = self.connection.request(
                "DELETE", path, None, {"Lock-Token": token})
            assert response.status == 204, response

    @contextlib.contextmanager
    def nothing_left(self, others):
        self.fill()
        try:
            yield
        finally:
            self.leave(len(self.tokens) - others)


@pytest.fixture(scope="module")
def world(request, tmp_path_factory, zookeeper, tree):
    with gateways(request.node, tmp_path_factory.mktemp("full"), zookeeper,
                  tree, new_root()) as make:
        world = World(make(http=ZONE, **OPTIONS), make(**OPTIONS), tree)
        world.filler = Filler(world.tried)
        world.filler.fill()
        world.filler.leave(FEW)
        world.others = len(world.filler.tokens)
        yield world


@pytest.mark.shows("no memory for a request harms no other request")
@pytest.mark.parametrize("scenario", SCENARIOS,
                         ids=lambda scenario: scenario.__name__)
def test_no_room_for_one_more(world, scenario):
    play(world, scenario, world.filler.nothing_left(world.others))


def test_refusals_leave_nothing_behind(start_gateway):
    """The room that a claim has reserved is given back if there is no record.
    """
    gateway = start_gateway(workers=1, http=ZONE)
    filler = Filler(gateway)
    filler.fill()
    path = lock_path("x" * 200)
    for _ in range(REFUSALS):
        response = filler.connection.request("POST", path)
        assert response.status == 503, response
    filler.leave(len(filler.tokens))
    for i in range(300):
        path = lock_path("%0200d" % i)
        response = filler.connection.request("POST", path)
        assert response.status == 201, response
        filler.tokens.append((path, response.token))
    filler.leave(len(filler.tokens))


def test_cells_of_long_names(start_gateway):
    """The metric counts the cells of the records, so a full zone shows in it.
    """
    gateway = start_gateway(workers=1, http=ZONE, metrics=True)
    filler = Filler(gateway, "%0200d")
    filler.fill()
    held = len(filler.tokens)
    metrics = gateway.metrics()
    assert metrics["claims", "held"] == held > 0
    assert metrics["claims_used", ""] == 2 * held

    # records do not reach from one 64 cells into the next
    assert metrics["claims_limit", ""] - metrics["claims_used", ""] < 64
    filler.leave(held)
    assert gateway.metrics()["claims_used", ""] == 0
