"""Every kind of call in peace: the gateway answers and leaves no znode behind.

This shows that the scenarios, which other files play under bad conditions,
pass without such conditions.  The main purpose is valgrind (make valgrind),
which finds leaked memory and reads of memory that was never written.  Valgrind
is too slow for much more, and runs nginx without a master: the test covers a
worker from start to end, with the session and each kind of call, repeated.

Guarded requests are played often enough to see that neither the worker's memory
nor its descriptors grow, however the requests end.

Environment:
    ZK_LOCK_ROUNDS  how often each scenario is played
"""

import os
import re
import time

import pytest

from conftest import gateways, new_root
from lib import scenarios
from lib.process import wait_until
from lib.scenarios import OPTIONS, SCENARIOS, World, play

ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS", "2"))

# how guarded requests end: granted, gone, refused, lost, an upgrade, required
GUARDED = [scenarios.guard_two, scenarios.guard_body, scenarios.guard_next,
           scenarios.guard_waits, scenarios.guard_gone,
           scenarios.guard_refused, scenarios.guard_lost,
           scenarios.guard_lost_late, scenarios.guard_upgraded,
           scenarios.required, scenarios.required_lost]
TURNS = 40
GROWTH = 100        # KiB: less than a request's pool for each turn
WAITING = 20


@pytest.fixture(scope="module")
def world(request, tmp_path_factory, zookeeper, tree):
    directory = tmp_path_factory.mktemp("leaks")
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        yield World(make(master=False, **OPTIONS),
                    make(master=False, **OPTIONS), tree)


@pytest.mark.parametrize("scenario", SCENARIOS,
                         ids=lambda scenario: scenario.__name__)
def test_calls(world, scenario):
    for _ in range(ROUNDS):
        play(world, scenario)
    assert not world.answers[None], "an answer was cut"
    assert not any(world.answers[status] for status in (500, 502, 503)), (
        world.answers)


def test_connection_breaks(private_zookeeper, start_gateway, connect_tree):
    """The session goes on, and so does the waiter."""
    private_zookeeper.start()
    tree = connect_tree(private_zookeeper.address)
    gateway = start_gateway(zookeeper=private_zookeeper, master=False,
                            workers=1, session_timeout="60s")
    holder = gateway.hold("x")
    waiter = gateway.begin("x", wait="2m")
    tree.wait_claims(gateway.znode("x"), 2)
    gateway.catch_up("x")
    private_zookeeper.stop()
    assert gateway.release("x", holder.token).status == 503
    private_zookeeper.start()
    response = waiter.response(60)
    assert response.status == 201, response
    assert gateway.release("x", response.token).status == 204


def test_clients_leave(start_gateway, tree):
    """Clients leave early; then nginx ends while waiters are connected."""
    gateway = start_gateway(master=False, workers=1)
    holder = gateway.hold("x")
    connections = [gateway.begin("x", wait="20s") for _ in range(10)]
    tree.wait_claims(gateway.znode("x"), 11)
    for connection in connections[:5]:
        connection.reset()
    tree.wait_claims(gateway.znode("x"), 6)
    assert gateway.release("x", holder.token).status == 204
    assert connections[5].response().status == 201
    gateway.terminate()
    assert all(connection.closed_by_server(5)
               for connection in connections[6:])


def memory(pid):
    """The KiB that a process has in memory."""
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"^VmRSS:\s*(\d+) kB$", f.read(), re.M).group(1))


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


@pytest.mark.plain("they keep what is freed")
@pytest.mark.skipif("VALGRIND_NGINX" in os.environ,
                    reason="valgrind keeps what is freed")
@pytest.mark.parametrize("scenario", GUARDED,
                         ids=lambda scenario: scenario.__name__)
def test_guarded_requests_leave_nothing(world, scenario):
    for _ in range(5):
        play(world, scenario)
    before, opened = memory(world.worker), descriptors(world.worker)
    for _ in range(TURNS):
        play(world, scenario)
    wait_until(lambda: descriptors(world.worker) <= opened,
               what="the descriptors of all requests are closed")
    grown = memory(world.worker) - before
    assert grown < GROWTH, "%d KiB" % grown


@pytest.mark.plain("they keep what is freed")
@pytest.mark.skipif("VALGRIND_NGINX" in os.environ,
                    reason="valgrind keeps what is freed")
def test_repeats_that_begin_again_and_again(start_gateway):
    """The claim with the key is cancelled, and made anew, while requests with
    the key wait.
    """
    gateway = start_gateway(master=False, workers=1)
    worker, = gateway.worker_pids()
    holder = gateway.hold("x", ttl="1h")
    key = {"Idempotency-Key": "k"}
    polled = dict(key, Prefer="respond-async")
    waiting = []

    def turn():
        response = gateway.acquire("x", headers=polled)
        assert response.status == 202
        for connection in list(waiting):
            if not connection.silent_for(0):

                # this request's own claim was cancelled

                assert connection.response().status == 410
                connection.close()
                waiting.remove(connection)
        while len(waiting) < WAITING:
            waiting.append(gateway.begin("x", headers=key, wait="5m"))
        time.sleep(0.1)
        assert gateway.release("x", response.token).status == 204

    for _ in range(10):
        turn()
    before = memory(worker)
    for _ in range(2 * TURNS):
        turn()
    grown = memory(worker) - before
    for connection in waiting:
        connection.close()
    assert gateway.release("x", holder.token).status == 204
    assert grown < WAITING * GROWTH / 2, "%d KiB" % grown
