"""nginx ends and is started again: with zk_lock_state_path nothing is lost.

The file keeps the sessions, with all that is held in them, and ZooKeeper keeps
these for as long as their timeout.  A gateway that is back earlier finds its
locks as they were, with the same tokens and znodes, whether it was stopped, was
killed or changed its binary.  The waiters are gone, and so are their claims.

Without the directive a clean end frees at once what is not durable.  A file
that cannot be what it has to be is refused in words, and harms nothing.
"""

import os
import re
import shutil
import signal
import stat
import time

import pytest

from lib.checks import gone, grant, problem
from lib.client import lock_path
from lib.holders import Held, Keeper, Sessions, wait_dead
from lib.process import alive, title, wait_until

SOON = 5.0
ENDS = ["stop", "terminate", "kill"]


@pytest.fixture
def sessions(zookeeper, tree):
    return Sessions(zookeeper, tree)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "state")


@pytest.fixture
def start(sessions, start_gateway, path):
    def start(**options):
        options.setdefault("session_timeout", "20s")
        return start_gateway(http="zk_lock_state_path %s;" % path, **options)
    return start


@pytest.fixture
def gateway(start):
    return start()


@pytest.fixture
def held(gateway, tree):
    return Held(gateway, tree)


def end(gateway, how):
    """The old processes are gone; so are the connections to them."""
    getattr(gateway, how)()


def restart(gateway, how):
    end(gateway, how)
    gateway.start()


def status_in_time(gateway, name, token):
    """What a renewal is told as soon as ZooKeeper is in reach."""
    return wait_until(lambda: [r.status for r in [gateway.renew(name, token)]
                               if r.status != 503], 20, "an answer")[0]


@pytest.mark.parametrize("how", ENDS)
def test_held_locks(gateway, held, sessions, how):
    held.spread(6)
    end(gateway, how)
    held.check_znodes()
    gateway.start()
    held.check()
    held.add("new")
    held.check()
    held.release()
    sessions.wait_owning(2)


def test_again_and_again(gateway, held, sessions):
    """Every generation adds locks of its own to those that it inherits."""
    for i, how in enumerate(["terminate", "kill", "stop", "kill",
                             "terminate"]):
        held.spread(2, "%d.%%d" % i)
        restart(gateway, how)
        held.check()
    held.release()
    sessions.wait_owning(2)


def test_heirs_are_gone_at_once(gateway, held, sessions):
    """They are killed while they take over, and those after them."""
    held.spread(6)
    for _ in range(3):
        end(gateway, "kill")
        gateway.start(wait_sessions=False)
    held.check()
    held.release()
    sessions.wait_owning(2)


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_waiters(gateway, held, tree, how):
    """They are cut off, and their claims do not come back with the rest."""
    held.add("x")
    waiters = [gateway.begin("x", wait="1m", worker=worker)
               for worker in gateway.worker_pids()]
    tree.wait_claims(gateway.znode("x"), 3)
    restart(gateway, how)
    for waiter in waiters:
        assert waiter.closed_by_server(SOON)
    tree.wait_claims(gateway.znode("x"), 1, SOON)
    held.check()

    waiter = gateway.begin("x", wait="1m")
    tree.wait_claims(gateway.znode("x"), 2)
    held.release()
    response = waiter.response(SOON)
    grant(response, "x")
    assert gateway.release("x", response.token).status == 204


def test_taken_locks_are_taken(gateway, held):
    """By those who were told so before the end."""
    held.add("x", owner="somebody")
    restart(gateway, "terminate")
    held.check()
    for worker in gateway.worker_pids():
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
        holders = gateway.inspect("x", worker=worker).json["holders"]
        assert [holder["owner"] for holder in holders] == ["somebody"]
    held.release()


@pytest.mark.parametrize("workers", [1, 4])
def test_number_of_workers_changes(gateway, held, sessions, workers):
    held.spread(6)
    end(gateway, "terminate")
    gateway.change_conf("worker_processes 2;",
                        "worker_processes %d;" % workers)
    gateway.workers = workers
    gateway.start()
    held.check()
    held.release()
    sessions.wait_owning(workers)


def test_after_crash_and_reload(gateway, held, sessions):
    """What was inherited once is inherited again."""
    held.spread(4)
    gateway.reload()
    held.spread(4, "more%d")
    gateway.kill_worker(gateway.worker_pids()[0])
    end(gateway, "kill")
    gateway.start()
    held.check()
    held.release()
    sessions.wait_owning(2)


def ask_for_many(gateway, name):
    """Every worker is busy with claims when this returns."""
    for worker in gateway.worker_pids():
        response = gateway.hold("y", worker=worker)
        assert gateway.release("y", response.token).status == 204
    connections = [gateway.connect(worker)
                   for worker in gateway.worker_pids() for _ in range(10)]
    names = [name % i for i in range(len(connections))]
    for connection, name in zip(connections, names):
        connection.send("POST", lock_path(name), {"ttl": "1s"})
    return names


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_end_while_much_is_under_way(gateway, tree, sessions, how):
    """Nobody knows which of the claims were made: all of them go."""
    names = []
    for i in range(5):
        names += ask_for_many(gateway, "x%d.%%d" % i)
        time.sleep(i * 0.001)
        restart(gateway, how)
    for name in names:
        tree.wait_claims(gateway.znode(name), 0)
    sessions.wait_owning(2)


# leases

def test_lease_goes_on(gateway, held):
    """Its deadline is the same, not one that begins anew."""
    lock = held.add("x", ttl="1h")
    assert gateway.renew("x", lock.token, ttl="30m").status == 200
    before = gateway.inspect("x", lock.token).json
    restart(gateway, "terminate")
    wait_until(lambda: gateway.inspect("x", lock.token).status == 200)
    after = gateway.inspect("x", lock.token).json
    assert after["ttl_ms"] == before["ttl_ms"] == 1800000
    assert 1700000 < after["expires_in_ms"] < before["expires_in_ms"]
    held.release()


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_lease_that_ended_meanwhile(gateway, tree, how):
    """It is over when nginx is back, and the lock is free."""
    ends = time.monotonic() + 1.0
    holder = gateway.hold("x", ttl="1s")
    end(gateway, how)
    assert len(tree.claims(gateway.znode("x"))) == 1
    time.sleep(max(0.0, ends + 0.1 - time.monotonic()))
    gateway.start()
    tree.wait_claims(gateway.znode("x"), 0, SOON)
    assert status_in_time(gateway, "x", holder.token) == 410
    gone(gateway, "x", holder.token)
    response = gateway.hold("x", wait="0")
    assert gateway.release("x", response.token).status == 204


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_longer_than_the_session_lives(start, tree, sessions, how):
    """ZooKeeper gave up: each holder is told, and all is free."""
    gateway = start(session_timeout="1s")
    holders = {"x%d" % i: gateway.hold("x%d" % i, ttl="1h")
               for i in range(4)}
    end(gateway, how)
    for name in holders:
        tree.wait_claims(gateway.znode(name), 0, 10)
    gateway.start()
    for name, holder in holders.items():
        assert status_in_time(gateway, name, holder.token) == 410
        for worker in gateway.worker_pids():
            gone(gateway, name, holder.token, worker)
        gateway.release(name, gateway.hold(name, wait="0").token)
    sessions.wait_owning(2)


def test_released_after_its_session(start, tree):
    """Nobody who asks before that is known is told that he released it."""
    gateway = start(session_timeout="1s")
    holders = [gateway.hold("x%d" % i, ttl="1h") for i in range(4)]
    gateway.terminate()
    for i in range(len(holders)):
        tree.wait_claims(gateway.znode("x%d" % i), 0, 10)
    gateway.start(wait_sessions=False)
    for i, holder in enumerate(holders):
        response = gateway.release("x%d" % i, holder.token)
        assert response.status in (410, 503), response


# without the directive

def test_clean_end_without_a_file(start_gateway, tree, sessions):
    """A young lease is free at once, for everybody and for the next nginx."""
    gateway = start_gateway(session_timeout="60s")
    holder = gateway.hold("x", ttl="1h")
    end(gateway, "terminate")
    tree.wait_claims(gateway.znode("x"), 0, SOON)
    assert not sessions.now()
    gateway.start()
    again = gateway.hold("x", wait="0")
    assert gateway.renew("x", holder.token).status in (404, 410)
    assert gateway.release("x", again.token).status == 204


@pytest.mark.parametrize("how, query", [("stop", {}),
                                        ("stop", {"durable": "1"}),
                                        ("terminate", {"durable": "1"})])
def test_durable_lease_without_a_file(start_gateway, tree, sessions, how,
                                      query):
    """It is held by nobody's session; the next nginx goes on with it.

    A worker that is told to quit makes durable what is not so yet.
    """
    gateway = start_gateway(session_timeout="60s")
    holder = gateway.hold("x", ttl="1h", **query)
    claim, = tree.claims(gateway.znode("x"))
    end(gateway, how)
    assert tree.claims(gateway.znode("x")) == [claim]
    assert not tree.ephemerals(gateway.root)
    assert not sessions.now()
    gateway.start()
    for worker in gateway.worker_pids():
        problem(gateway.acquire("x", wait="0", worker=worker), 423)
    assert status_in_time(gateway, "x", holder.token) == 200
    assert gateway.release("x", holder.token).status == 204
    tree.wait_claims(gateway.znode("x"), 0, SOON)


def test_clean_end_while_much_is_under_way(start_gateway, sessions):
    """What ZooKeeper answers just then does not keep a session open."""
    gateway = start_gateway(session_timeout="60s")
    for i in range(5):
        ask_for_many(gateway, "x%d.%%d" % i)
        time.sleep(i * 0.001)
        end(gateway, "terminate")
        wait_until(lambda: not sessions.now(), SOON, "no session is left")
        gateway.start()


def test_killed_without_a_file(start_gateway, tree):
    """The locks are free when their sessions are over, and no earlier."""
    gateway = start_gateway(session_timeout="6s")
    holder = gateway.hold("x", ttl="1h")
    restart(gateway, "kill")
    problem(gateway.acquire("x", wait="0"), 423)
    response = gateway.hold("x", wait="20s")
    assert response.fencing > holder.fencing
    assert gateway.release("x", response.token).status == 204


# the master

def test_master_and_orphans_die(gateway, held, sessions):
    """Workers without a master serve on; then they are gone, too."""
    held.spread(6)
    orphans = gateway.kill_master()
    held.check(orphans)
    gateway.kill_orphans()
    gateway.start()
    held.check()
    held.release()
    sessions.wait_owning(2)


def test_orphan_inherits_from_an_orphan(gateway, held):
    """There is nobody to replace the one that dies."""
    held.spread(4)
    dead, other = gateway.kill_master()
    connection = gateway.connect(other)
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: not alive(dead))
    held.check_at(connection)
    gateway.kill_orphans()
    gateway.start()
    held.check()
    held.release()


def test_start_beside_orphans(gateway, held, sessions):
    """A new nginx serves while workers of the old one still do: nobody takes
    a session from the living, everybody knows every token.
    """
    held.spread(4)
    orphans = gateway.kill_master()
    gateway.start()
    held.spread(4, "new%d")
    held.check()
    held.check(orphans)
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in orphans))
    held.check()
    held.release()
    sessions.wait_owning(2)


def test_upgrade(start, tree, sessions):
    """SIGUSR2: two masters share the file until the old one leaves."""
    gateway = start(daemon=True)
    held = Held(gateway, tree).spread(4)
    held.add("x")
    with Keeper(held) as keeper:
        waiter = gateway.begin("x", wait="1m", ttl="1h")
        tree.wait_claims(gateway.znode("x"), 2)
        old, workers = gateway.upgrade()
        held.spread(4, "new%d")
        held.check()
        held.check(workers)
        keeper.next_rounds()

        held.release("x")
        held.note("x", waiter.response(SOON))
        gateway.end_upgrade(old, workers)
        held.check()
        keeper.next_rounds()
    held.release()
    sessions.wait_owning(2)


def test_upgrade_and_waiters(start, tree, sessions):
    """Old workers stay for those who wait at them, as over a reload."""
    gateway = start(daemon=True)
    held = Held(gateway, tree)
    held.add("x", gateway.worker_pids()[0])
    waiters = {worker: gateway.begin("x", wait="1m", worker=worker)
               for worker in gateway.worker_pids()}
    tree.wait_claims(gateway.znode("x"), 3)
    old, workers = gateway.upgrade()
    old.send_signal(signal.SIGWINCH)
    wait_until(lambda: all("shutting down" in title(pid) for pid in workers))
    held.check()
    held.release()
    for _ in workers:
        worker = wait_until(lambda: [w for w in waiters
                                     if not waiters[w].silent_for(0)])[0]
        response = waiters.pop(worker).response()
        grant(response, "x")
        assert response.worker == worker
        assert gateway.release("x", response.token).status == 204
    gateway.end_upgrade(old, workers)
    tree.wait_claims(gateway.znode("x"), 0)
    sessions.wait_owning(2)


@pytest.mark.plain("a new binary is without their options")
def test_upgrade_is_taken_back(start, tree, sessions):
    """The new master is the one that leaves; what it granted stays."""
    gateway = start(daemon=True)
    held = Held(gateway, tree).spread(4)
    old, workers = gateway.upgrade()
    held.spread(4, "new%d")
    gateway.downgrade(old)
    held.check()
    assert sorted(gateway.worker_pids()) == sorted(workers)
    held.release()
    sessions.wait_owning(2)


# the file

def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_file_is_nobody_elses_business(start, path):
    """Who can read it can take over the sessions."""
    before = os.umask(0)
    try:
        gateway = start()
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert os.lstat(path).st_uid == os.geteuid()
    inode = os.lstat(path).st_ino
    token = gateway.hold("x").token
    restart(gateway, "terminate")
    assert status_in_time(gateway, "x", token) == 200
    assert mode(path) == 0o600
    assert os.lstat(path).st_ino == inode
    gateway.release("x", token)
    left = [name for name in os.listdir(os.path.dirname(path))
            if name.startswith("state")]
    assert left == ["state"]


def test_configuration_test_leaves_it_alone(gateway, held, path):
    held.spread(2)
    for down in (False, True):
        if down:
            end(gateway, "terminate")
        before = os.lstat(path), read(path)
        code, output = gateway.test_conf()
        assert code == 0, output
        after = os.lstat(path)
        assert after.st_ino == before[0].st_ino
        assert after.st_size == before[0].st_size
        if down:
            assert after.st_mtime_ns == before[0].st_mtime_ns
            assert read(path) == before[1]
        held.check_znodes()
    gateway.start()
    held.check()
    held.release()


def test_configuration_test_makes_none(start, path):
    gateway = start(start=False)
    code, output = gateway.test_conf()
    assert code == 0, output
    assert not os.path.lexists(path)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def boot():
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


def truncate(path):
    os.truncate(path, os.path.getsize(path) // 2 + 1)


def truncate_to_a_page(path):
    os.truncate(path, 4096)


def empty(path):
    os.truncate(path, 0)


def lengthen(path):
    with open(path, "ab") as f:
        f.write(b"x")


def garbage(path):
    size = os.path.getsize(path)
    write(path, os.urandom(size))


def zeroes(path):
    write(path, bytes(os.path.getsize(path)))


def text(path):
    write(path, b"This is somebody's notes, and not a file of nginx.\n")


def readable(path):
    os.chmod(path, 0o644)


def writable(path):
    os.chmod(path, 0o622)


def other_owner(path):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(path, 54321, 54321)


def symlink(path):
    os.rename(path, path + ".elsewhere")
    os.symlink(path + ".elsewhere", path)


def dangling(path):
    os.unlink(path)
    os.symlink(path + ".nowhere", path)


def fifo(path):
    os.unlink(path)
    os.mkfifo(path, 0o600)


def other_boot(path):
    """The file says, in one way or another, which boot it is of."""
    data = read(path)
    for mark in (boot().encode(), boot().replace("-", "").encode(),
                 bytes.fromhex(boot().replace("-", ""))):
        if mark in data:
            write(path, data.replace(mark, mark[::-1]))
            return
    pytest.fail("the file does not say of which boot it is")


DAMAGES = [truncate, truncate_to_a_page, empty, lengthen, garbage, zeroes,
           text, readable, writable, other_owner, symlink, dangling, fifo,
           other_boot]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_refused_file(gateway, tree, path, damage):
    """A warning that names it, and a gateway that serves without it."""
    state_of_a_held_lock(gateway, path)
    damage(path)
    gateway.start()
    assert refusals(gateway, path), gateway.log_text()[-2000:]
    serves(gateway, tree)
    if damage in (symlink, dangling):
        assert not os.path.exists(path + ".nowhere")

    gateway.terminate()
    before = len(refusals(gateway, path))
    gateway.start()
    serves(gateway, tree)
    if os.path.isfile(path) and not os.path.islink(path):
        assert mode(path) == 0o600
        assert len(refusals(gateway, path)) == before


@pytest.mark.plain("nginx frees nothing when it refuses a file")
def test_path_that_cannot_be_a_file(gateway, path):
    """nginx does not start without what it was told to keep, and says so."""
    gateway.terminate()
    os.unlink(path)
    os.mkdir(path)
    gateway.allow(r"\[emerg\].*" + re.escape(path))
    gateway.allow(r"ended by itself")
    with pytest.raises(AssertionError):
        gateway.start()
    assert os.listdir(path) == []
    os.rmdir(path)
    gateway.start()


def state_of_a_held_lock(gateway, path):
    """nginx is down, and its file is as if a lock were still held."""
    holder = gateway.hold("x", ttl="1h")
    shutil.copy2(path, path + ".copy")
    assert gateway.release("x", holder.token).status == 204
    gateway.terminate()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
        f.write(read(path + ".copy"))
    os.unlink(path + ".copy")
    return holder


def refusals(gateway, path):
    return re.findall(r"\[warn\].*%s.*" % re.escape(path),
                      gateway.log_text())


def serves(gateway, tree):
    for worker in gateway.worker_pids():
        response = gateway.hold("y", worker=worker)
        assert gateway.renew("y", response.token).status == 200
        assert gateway.release("y", response.token).status == 204
    tree.wait_claims(gateway.znode("y"), 0)


def test_symlink_is_not_followed(gateway, tree, path):
    """What it leads to is not written to."""
    gateway.terminate()
    os.unlink(path)
    write(path + ".precious", b"precious")
    os.symlink(path + ".precious", path)
    gateway.start()
    serves(gateway, tree)
    assert refusals(gateway, path)
    assert read(path + ".precious") == b"precious"


def test_file_of_sessions_that_are_over(start, tree, sessions, path):
    """Whole, and of no use: all that it tells of is gone."""
    gateway = start(session_timeout="1s")
    holder = state_of_a_held_lock(gateway, path)
    wait_until(lambda: not sessions.now(), 10, "the sessions are over")
    gateway.start()
    assert status_in_time(gateway, "x", holder.token) == 410
    serves(gateway, tree)
    sessions.wait_owning(2)


def test_file_of_other_servers(gateway, tree, zookeeper, private_zookeeper,
                               connect_tree, path):
    """Another ensemble knows nothing of these sessions."""
    state_of_a_held_lock(gateway, path)
    private_zookeeper.start()
    gateway.change_conf(zookeeper.address, private_zookeeper.address)
    gateway.zookeeper = private_zookeeper
    gateway.start()
    assert refusals(gateway, path)
    serves(gateway, connect_tree(private_zookeeper.address))


def test_file_of_another_zone(start, tree, path):
    """Its size is another: nothing in it is where it has to be."""
    gateway = start()
    state_of_a_held_lock(gateway, path)
    gateway.change_conf("zk_lock_state_path",
                        "zk_lock_zone 1m;\n    zk_lock_state_path")
    gateway.start()
    assert refusals(gateway, path)
    serves(gateway, tree)


def test_file_in_use_is_not_replaced(gateway, held, path):
    """A reload that needs another file is refused; all goes on as it was."""
    held.spread(4)
    gateway.allow(r"\[emerg\].*" + re.escape(path) + ".* is in use")
    workers = gateway.worker_pids()
    gateway.change_conf("zk_lock_servers", "zk_lock_zone 1m;\nzk_lock_servers")
    gateway.reload(wait=False)
    wait_until(lambda: "is in use" in gateway.log_text(), 10, "the refusal")
    held.check()
    assert gateway.worker_pids() == workers
    gateway.change_conf("zk_lock_zone 1m;\n", "")
    wait_dead(gateway.reload())
    held.check()
    held.release()


def test_file_that_is_removed(gateway, tree, path):
    """Nothing can come after nginx then, so its end frees the locks."""
    gateway.hold("x", ttl="1h")
    os.unlink(path)
    gateway.terminate()
    tree.wait_claims(gateway.znode("x"), 0, SOON)
