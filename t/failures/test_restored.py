"""ZooKeeper has lost its data, or was restored from an older copy.

The servers then know less than the gateway has seen, and refuse the gateway's
sessions, which are gone or have the znodes of another time.  The gateway has to
notice that, to tell that from an outage, and to work again without help.

ZK_LOCK_ROUNDS says how often each test's servers lose data; with -s each round
tells how long the gateway took.
"""

import os
import shutil
import time

import pytest

from lib.checks import grant, problem
from lib.metrics import series
from lib.process import wait_until
from lib.sessions import stay_ephemeral

ROUNDS = int(os.environ.get("ZK_LOCK_ROUNDS", "2"))
SESSION = 4         # seconds
BACK = 60.0
BEHIND = "ZooKeeper knows less than this gateway has seen"


@pytest.fixture(params=[1, 3], ids=["one server", "three servers"])
def servers(request, private_zookeeper, ensemble):
    """(what a gateway is given, all servers), which run."""
    zookeeper = private_zookeeper if request.param == 1 else ensemble
    zookeeper.start()
    return zookeeper, getattr(zookeeper, "servers", [zookeeper])


def folder(server):
    return os.path.join(server.directory, "data", "version-2")


def empty(server, copy):
    shutil.rmtree(folder(server))


def set_epoch(servers, epoch):
    """The next election has this epoch, or a later one.

    Transactions are numbered within epochs, and a slow machine makes more
    elections than one.
    """
    if len(servers) > 1:
        for server in servers:
            os.makedirs(folder(server), exist_ok=True)
            with open(os.path.join(folder(server), "acceptedEpoch"), "w",
                      encoding="ascii") as file:
                file.write("%d\n" % epoch)


def restore(server, copy):
    shutil.rmtree(folder(server))
    shutil.copytree(copy[server], folder(server))


def stop(servers):
    for server in servers:
        server.stop()


def start(servers):
    for server in servers:
        server.start(wait=False)


def copied(zookeeper, servers, directory, epoch=0):
    """server -> a copy of the server's data, of now."""
    stop(servers)
    copy = {}
    for i, server in enumerate(servers):
        copy[server] = str(directory / ("copy%d" % i))
        shutil.copytree(folder(server), copy[server])
    if epoch:
        set_epoch(servers, epoch)
    zookeeper.start()
    return copy


def works(gateway):
    """Each worker grants again."""
    for worker in gateway.worker_pids():
        token = wait_until(
            lambda: [r for r in [gateway.acquire("works", worker=worker,
                                                 wait="1s")]
                     if r.status == 201], BACK, "the gateway works")[0].token
        gateway.in_reach(lambda: gateway.release("works", token,
                                                 worker=worker))


def value(gateway, name):
    return series(gateway)[name]


@pytest.mark.parametrize("lose", [empty, restore])
def test_works_again(servers, start_gateway, connect_tree, tmp_path, lose):
    """After each loss, with claims that are lost, and claims that come back."""
    zookeeper, servers = servers
    gateway = start_gateway(zookeeper=zookeeper, metrics=True,
                            session_timeout="%ds" % SESSION)
    tree = connect_tree(zookeeper.address)
    stay_ephemeral(tree, gateway.znode("before"))
    early = gateway.hold("before", ttl="1h")
    epoch = 1000 * (ROUNDS + 1)
    copy = copied(zookeeper, servers, tmp_path, epoch)
    works(gateway)
    gateway.in_reach(lambda: gateway.release("before", early.token))

    for i in range(1, ROUNDS + 1):
        # more transactions than an election or a start of workers makes
        for _ in range(20):
            last = gateway.hold("works")
            gateway.release("works", last.token)
        durable = gateway.hold("durable", ttl="1h", durable="1")
        young = gateway.hold("young", ttl="1h")
        waiter = gateway.begin("durable", wait="2m")

        lost = time.monotonic()
        stop(servers)
        for server in servers:
            lose(server, copy)
        epoch -= 1000
        set_epoch(servers, epoch)
        zookeeper.start()
        there = time.monotonic()
        works(gateway)
        now = time.monotonic()
        print("%s of %d, round %d: %.1f s after the loss, %.1f s after "
              "ZooKeeper served" % (lose.__name__, len(servers), i,
                                    now - lost, now - there))

        text = gateway.log_text()
        assert text.count(BEHIND) == i, "one line for each loss"
        assert value(gateway, "zk_lock_zookeeper_rollbacks_total") == i
        assert value(gateway, "zk_lock_zookeeper_behind") == 1

        # what was lost is told as lost, and the lock is free for the waiter
        response = waiter.response()
        grant(response, "durable")
        gateway.release("durable", response.token)
        for name, token in (("durable", durable.token),
                            ("young", young.token)):
            for worker in gateway.worker_pids():
                said = problem(gateway.in_reach(
                    lambda: gateway.inspect(name, token, worker=worker)), 410)
                assert said.get("reason") == "session", said

        # a claim of the copy, which was released since, blocks no lock
        for name in "before", "young":
            response = gateway.acquire(name, wait="%ds" % (4 * SESSION))
            grant(response, name)
            gateway.release(name, response.token)


@pytest.mark.parametrize("lose", [empty, restore])
def test_tokens_grow(servers, start_gateway, tmp_path, lose):
    """The steps of docs/operations.md: numbers and tokens grow on."""
    zookeeper, servers = servers
    gateway = start_gateway(zookeeper=zookeeper, metrics=True,
                            session_timeout="%ds" % SESSION)
    lost = gateway.hold("lost", ttl="1h", durable="1")
    copy = copied(zookeeper, servers, tmp_path)
    works(gateway)
    released = gateway.in_reach(lambda: gateway.release("lost", lost.token))
    assert released.status == 204
    before = gateway.hold("works", durable="1")

    gateway.stop()
    stop(servers)
    for server in servers:
        lose(server, copy)
    set_epoch(servers, 1000)
    if len(servers) == 1:
        raise_snapshot(zookeeper, tmp_path / "logs")
    zookeeper.start()
    time.sleep(SESSION)         # as the page says
    gateway.start()

    after = gateway.hold("works")
    assert after.json["fencing_token"] > before.json["fencing_token"]
    assert BEHIND not in gateway.log_text()
    assert value(gateway, "zk_lock_zookeeper_behind") == 0
    if lose is restore:
        # released since, and there again: an operator breaks the lease
        problem(gateway.acquire("lost", wait="0"), 423)


def test_gateway_goes_on(ensemble, start_gateway, connect_tree, tmp_path):
    """The copy has the gateway's sessions, with claims that were released, and
    larger numbers, so that the servers take these sessions back.
    """
    servers = ensemble.servers
    ensemble.start()
    gateway = start_gateway(zookeeper=ensemble, metrics=True,
                            session_timeout="30s")
    tree = connect_tree(ensemble.address, timeout=60.0)
    names = ["lost%d" % i for i in range(8)]
    stay_ephemeral(tree, *[gateway.znode(name) for name in names])
    tokens = [gateway.hold(name, ttl="1h").token for name in names]
    copy = copied(ensemble, servers, tmp_path)
    works(gateway)
    for name, token in zip(names, tokens):
        answer = gateway.in_reach(lambda: gateway.release(name, token))
        assert answer.status == 204, answer
    works(gateway)

    stop(servers)
    for server in servers:
        restore(server, copy)
    set_epoch(servers, 1000)
    start(servers)
    works(gateway)
    for name in names:
        grant(gateway.acquire(name, wait="20s"), name)
    assert "older copy of zookeeper's data" in gateway.log_text()


def raise_snapshot(server, logs):
    server.start()
    server.stop()
    logs.mkdir()
    files = os.listdir(folder(server))
    for name in files:
        if name.startswith("log."):
            shutil.move(os.path.join(folder(server), name), str(logs / name))
    newest = max((name for name in files if name.startswith("snapshot.")),
                 key=lambda name: int(name.partition(".")[2], 16))
    os.rename(os.path.join(folder(server), newest),
              os.path.join(folder(server), "snapshot.3e800000000"))


def test_door_that_closes(private_zookeeper, start_proxy, start_gateway,
                          connect_tree):
    """A balancer takes connections, and closes them, while ZooKeeper is away
    for longer than a session lives; the servers then have all sessions still,
    because they count anew, and so nothing is lost.
    """
    private_zookeeper.start()
    proxy = start_proxy(private_zookeeper)
    gateway = start_gateway(servers=proxy.address, metrics=True,
                            session_timeout="%ds" % SESSION)
    tree = connect_tree(private_zookeeper.address, timeout=60.0)
    stay_ephemeral(tree, gateway.znode("young"))
    young = gateway.hold("young", ttl="1h")
    waiter = gateway.begin("young", wait="2m")
    tree.wait_claims(gateway.znode("young"), 2)
    gateway.catch_up("young")

    for _ in range(ROUNDS):
        private_zookeeper.stop()
        accepted = proxy.accepted
        time.sleep(1.5 * SESSION)
        assert proxy.accepted > accepted, "connections are taken"
        private_zookeeper.start()
        works(gateway)
        for worker in gateway.worker_pids():
            response = gateway.in_reach(
                lambda: gateway.renew("young", young.token, worker=worker))
            assert response.status == 200, response
    assert "another handle asks for the session" in gateway.log_text()
    assert "session is over" not in gateway.log_text()
    assert value(gateway, "zk_lock_zookeeper_rollbacks_total") == 0

    gateway.release("young", young.token)
    response = waiter.response()
    grant(response, "young")
    assert "note" not in response.json, "the place was kept"
    gateway.release("young", response.token)
