"""Waiting for a lock: order, hand-over, the end of a wait, a full queue."""

import time

import pytest

from lib.checks import grant, problem, retry_after, wait_over
from lib.client import lock_path
from lib.process import wait_until


def queue_up(gateway, tree, name, number, workers=None, **query):
    """Waiters in the order of the queue; the test holds the lock already."""
    znode = gateway.znode(name)
    waiters = []
    for i in range(number):
        before = set(tree.claims(znode))
        worker = workers[i % len(workers)] if workers else None
        waiters.append(gateway.begin(name, worker=worker, **query))
        # a short wait may be over before the test sees the claim
        tree.wait_claims(znode, lambda claims: (
            set(claims) - before or not waiters[-1].silent_for(0)))
    return waiters


def pass_through(gateway, name, holder, waiters):
    """Releases one claim after the other; each waiter gets the lock in turn."""
    token, fencing = holder.token, holder.fencing
    for i, waiter in enumerate(waiters):
        for behind in waiters[i:i + 3]:
            assert behind.silent_for(0)
        assert gateway.release(name, token).status == 204
        response = waiter.response(10)
        grant(response, name)
        assert response.fencing > fencing
        token, fencing = response.token, response.fencing
    assert gateway.release(name, token).status == 204


@pytest.mark.parametrize("spread", ["one worker", "alternating",
                                    "one behind the other"])
def test_first_come_first_served(gateway, tree, spread):
    one, other = gateway.worker_pids()
    workers = {"one worker": [one], "alternating": [one, other],
               "one behind the other": [one] * 6 + [other] * 6}[spread]
    holder = gateway.hold("x", worker=one)
    waiters = queue_up(gateway, tree, "x", 12, workers)
    pass_through(gateway, "x", holder, waiters)
    tree.wait_claims(gateway.znode("x"), 0)


def test_one_worker_process(start_gateway, tree):
    gateway = start_gateway(workers=1)
    holder = gateway.hold("x")
    pass_through(gateway, "x", holder, queue_up(gateway, tree, "x", 10))


def test_many_workers(start_gateway, tree):
    gateway = start_gateway(workers=4)
    holder = gateway.hold("x")
    waiters = queue_up(gateway, tree, "x", 16, gateway.worker_pids())
    pass_through(gateway, "x", holder, waiters)


def test_waiting_costs_others_nothing(start_gateway, tree):
    """A worker with waiters goes on serving, and other locks are free."""
    gateway = start_gateway(workers=1)
    holder = gateway.hold("x")
    waiters = queue_up(gateway, tree, "x", 5)
    assert gateway.call("GET", "/ready", timeout=10).status == 204
    other = gateway.hold("y", timeout=10)
    assert gateway.release("y", other.token).status == 204
    pass_through(gateway, "x", holder, waiters)


def test_waited_ms_tells_the_wait(gateway, tree):
    holder = gateway.hold("x")
    began = time.monotonic()
    waiter, = queue_up(gateway, tree, "x", 1)
    queued = time.monotonic()
    assert waiter.silent_for(0.3)
    before = time.monotonic()
    gateway.release("x", holder.token)
    response = waiter.response()
    after = time.monotonic()
    waited = response.json["waited_ms"] / 1000
    assert before - queued - 0.05 <= waited <= after - began + 0.05


def test_wait_is_over(gateway, tree):
    holder = gateway.hold("x", owner="me")
    for worker in gateway.worker_pids():
        def ask():
            asked.append(time.monotonic())
            return gateway.acquire("x", wait="300ms", worker=worker)

        asked = []
        response = gateway.in_reach(ask)
        assert 0.25 < time.monotonic() - asked[-1] < 10
        content = problem(response, 423)
        assert content["holder"]["owner"] == "me"
        retry_after(response)
        tree.wait_claims(gateway.znode("x"), 1)
    gateway.release("x", holder.token)


def test_claim_is_gone_before_the_refusal(gateway, tree):
    """A claim that got 423 is not in the queue any more."""
    holder = gateway.hold("x")

    def ask():
        tree.wait_claims(gateway.znode("x"), 1)
        return gateway.acquire("x", wait="50ms")

    for _ in range(5):
        problem(gateway.in_reach(ask), 423)
        assert len(tree.claims(gateway.znode("x"))) == 1
    gateway.release("x", holder.token)


def test_wait_that_ends_in_the_middle(gateway, tree):
    holder = gateway.hold("x")
    workers = gateway.worker_pids()
    first = queue_up(gateway, tree, "x", 2, workers)
    short = queue_up(gateway, tree, "x", 2, workers, wait="1s")
    last = queue_up(gateway, tree, "x", 2, workers)
    for waiter in short:
        wait_over(waiter.response(), gateway)
    pass_through(gateway, "x", holder, first + last)


def test_wait_of_the_first_in_line_ends(gateway, tree):
    """The waiter behind moves up, and waits while the lock is held."""
    holder = gateway.hold("x")
    workers = gateway.worker_pids()
    short = queue_up(gateway, tree, "x", 2, workers, wait="1s")
    last = queue_up(gateway, tree, "x", 2, workers)
    for waiter in short:
        wait_over(waiter.response(), gateway)
    assert last[0].silent_for(0.2)
    pass_through(gateway, "x", holder, last)


def test_release_and_end_of_wait_at_once(gateway, tree):
    """Grant and refusal are both fine, but no claim may be left behind."""
    for i in range(20):
        holder = gateway.hold("x")
        waiter = gateway.begin("x", wait="100ms")
        tree.wait_claims(gateway.znode("x"), lambda claims: (
            len(claims) == 2 or not waiter.silent_for(0)))
        assert waiter.silent_for(0.08 + i * 0.001) or True
        gateway.release("x", holder.token)
        response = waiter.response()
        if response.status == 201:
            assert gateway.release("x", response.token).status == 204
        else:
            wait_over(response, gateway)
        tree.wait_claims(gateway.znode("x"), 0)


def test_full_queue(start_gateway, tree):
    gateway = start_gateway(location="zk_lock_max_queue 3;")
    holder = gateway.hold("x")
    waiters = queue_up(gateway, tree, "x", 3, gateway.worker_pids()[:1])
    response = gateway.acquire("x", worker=gateway.worker_pids()[0])
    problem(response, 429)
    retry_after(response)
    assert len(tree.claims(gateway.znode("x"))) == 4
    assert gateway.hold("y").status == 201

    waiters.pop().close()
    tree.wait_claims(gateway.znode("x"), 3)
    gateway.catch_up("x")       # the worker, too, knows of the free place
    waiters += queue_up(gateway, tree, "x", 1, gateway.worker_pids()[:1])
    pass_through(gateway, "x", holder, waiters)


def test_full_queue_over_workers(start_gateway, tree):
    gateway = start_gateway(location="zk_lock_max_queue 4;")
    holder = gateway.hold("x")
    waiters = queue_up(gateway, tree, "x", 4, gateway.worker_pids())
    for worker in gateway.worker_pids():
        problem(gateway.acquire("x", worker=worker), 429)
    pass_through(gateway, "x", holder, waiters)


def test_holder_gets_in_line_again(gateway, tree):
    """Release and acquire: the waiter comes first."""
    holder = gateway.hold("x")
    waiter, = queue_up(gateway, tree, "x", 1)
    connection = gateway.connect()
    connection.send("DELETE", lock_path("x"),
                    headers={"Lock-Token": holder.token})
    assert connection.response().status == 204
    connection.send("POST", lock_path("x"))
    response = waiter.response()
    grant(response, "x")
    assert connection.silent_for(0.2)
    gateway.release("x", response.token)
    again = connection.response()
    assert again.fencing > response.fencing
    gateway.release("x", again.token)


def test_queue_is_shown_in_order(gateway, tree):
    holder = gateway.hold("x", owner="holder")
    for i in range(6):
        gateway.begin("x", owner="w%d" % i,
                      worker=gateway.worker_pids()[i % 2])
        tree.wait_claims(gateway.znode("x"), i + 2)
    for worker in gateway.worker_pids():
        content = gateway.inspect("x", worker=worker).json
        assert [h["owner"] for h in content["holders"]] == ["holder"]
        assert ([claim["owner"] for claim in content["queue"]]
                == ["w%d" % i for i in range(6)])
        assert content["queued"] == 6
    assert holder.status == 201


def test_answer_comes_without_any_other_traffic(gateway, tree):
    """The release alone wakes the next waiter."""
    one, other = gateway.worker_pids()
    holder = gateway.hold("x", worker=one)
    waiter, = queue_up(gateway, tree, "x", 1, [other])
    releaser = gateway.connect(one)
    assert waiter.silent_for(0.5)
    releaser.send("DELETE", lock_path("x", holder.token))
    assert waiter.response(10).status == 201
    wait_until(lambda: len(tree.claims(gateway.znode("x"))) == 1)
