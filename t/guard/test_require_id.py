"""zk_lock_require with id=: the ID of Terraform's LOCK is shown, and no token.

The ID leads to the claim at each worker of each gateway, as at an UNLOCK.
"""

import uuid

import pytest

from lib.checks import problem
from lib.client import lock_path
from lib.guards import begin, free, log, lose

GUARDED = "try_files /nonexistent =204;"
RULE = "zk_lock_require one id=$arg_ID;"


def new_id():
    return str(uuid.uuid4())


def lock(gateway, identity, **query):
    return gateway.call("LOCK", lock_path("one"), query, None,
                        {"ID": identity, "Who": "ci@runner"})


def locked(gateway, identity):
    response = lock(gateway, identity)
    assert response.status == 200, response
    return response


def unlock(gateway, identity):
    response = gateway.call("UNLOCK", lock_path("one"), None, None,
                            {"ID": identity})
    assert response.status == 200, response


def write(gateway, identity=None, headers=None, worker=None):
    query = None if identity is None else {"ID": identity}
    return gateway.call("GET", "/app/", query, headers, worker=worker)


def test_only_the_holder(guarded, tree):
    """At each worker of two gateways, one of which has not granted."""
    gateways = [guarded(RULE, GUARDED) for _ in range(2)]
    places = [(gateway, worker) for gateway in gateways
              for worker in gateway.worker_pids()]
    holder, other = new_id(), new_id()
    locked(gateways[0], holder)
    for gateway, worker in places:
        assert write(gateway, holder, worker=worker).status == 204
        problem(write(gateway, other, worker=worker), 412, "does not hold")
        response = write(gateway, worker=worker)
        problem(response, 423, "shows no token")
        assert response.json["holder"]["owner"] == "ci@runner"
    unlock(gateways[0], holder)
    for gateway, worker in places:
        problem(write(gateway, holder, worker=worker), 412, "does not hold")
        problem(write(gateway, worker=worker), 423)
    free(tree, gateways[0])


def test_next_holder(guarded):
    """The lock is broken and taken anew: the late write is refused."""
    gateway = guarded(RULE, GUARDED, location="zk_lock_admin on;")
    first, second = new_id(), new_id()
    locked(gateway, first)
    assert write(gateway, first).status == 204
    assert gateway.call("UNLOCK", lock_path("one")).status == 200
    locked(gateway, second)
    problem(write(gateway, first), 412)
    assert write(gateway, second).status == 204
    unlock(gateway, second)


def test_same_id_again(guarded, tree):
    gateway = guarded(RULE, GUARDED)
    identity = new_id()
    for _ in range(2):
        locked(gateway, identity)
        assert write(gateway, identity).status == 204
        lose(tree, gateway)
        problem(write(gateway, identity), 412)


def test_waiting_is_not_holding(guarded, tree):
    gateway = guarded(RULE, GUARDED)
    holder, waiting = new_id(), new_id()
    locked(gateway, holder)
    waiter = gateway.connect().send("LOCK", lock_path("one"), None, None,
                                    {"ID": waiting})
    tree.wait_claims(gateway.znode("one"), 2)
    problem(write(gateway, waiting), 412)
    assert write(gateway, holder).status == 204
    unlock(gateway, holder)
    assert waiter.response().status == 200
    assert write(gateway, waiting).status == 204
    unlock(gateway, waiting)


def test_beside_a_token(guarded):
    """A token that is shown counts, and the ID does not."""
    gateway = guarded(RULE, GUARDED)
    identity = new_id()
    token = locked(gateway, identity).token
    shown = {"Lock-Token": token}
    assert write(gateway, None, shown).status == 204
    assert write(gateway, new_id(), shown).status == 204
    problem(write(gateway, identity, {"Lock-Token": "x" + token[1:]}), 412)
    unlock(gateway, identity)


def test_beside_a_fencing_token(guarded):
    """Both have to be those of the holder."""
    gateway = guarded("zk_lock_require one id=$arg_ID "
                      "fencing=$http_lock_fencing_token;", GUARDED)
    identity = new_id()
    fencing = locked(gateway, identity).fencing
    for number, status in (fencing, 204), (fencing + 1, 412):
        assert write(gateway, identity, {
            "Lock-Fencing-Token": str(number)}).status == status
    unlock(gateway, identity)


def test_id_is_no_key(guarded):
    """An Idempotency-Key of the same text leads to another claim."""
    gateway = guarded(RULE, GUARDED)
    identity = new_id()
    held = gateway.hold("one", headers={"Idempotency-Key": identity})
    problem(write(gateway, identity), 412)
    assert write(gateway, None, {"Lock-Token": held.token}).status == 204
    gateway.release("one", held.token)


@pytest.mark.parametrize("rule", ["zk_lock_require one;",
                                  "zk_lock_require one id=;"])
def test_without_the_parameter(guarded, rule):
    gateway = guarded(rule, GUARDED)
    identity = new_id()
    locked(gateway, identity)
    problem(write(gateway, identity), 423)
    unlock(gateway, identity)


def test_if_held(guarded):
    """Without an ID a request passes while no claim holds the lock."""
    gateway = guarded("zk_lock_require one id=$arg_ID if_held;", GUARDED)
    identity = new_id()
    assert write(gateway).status == 204
    problem(write(gateway, identity), 412)
    locked(gateway, identity)
    problem(write(gateway), 423)
    assert write(gateway, identity).status == 204
    unlock(gateway, identity)


def test_lost_while_served(guarded, backend, tree):
    gateway = guarded("zk_lock_require one id=$arg_ID lost=abort;")
    identity = new_id()
    locked(gateway, identity)
    client = begin(gateway, "/app/?ID=" + identity)
    seen = backend.next()
    lose(tree, gateway)
    assert client.response().status == 503
    seen.wait_cut()
    assert log(gateway, 1).outcome == "lost"
