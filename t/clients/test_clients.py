"""The clients in clients/ hold, wait, renew, tell of the loss and let go.

lib/drivers.py says what the driver of a language does.  What takes seconds runs
for all languages at once, with a lock for each.
"""

import asyncio
import base64
import contextlib
import importlib.util
import os
import re
import signal
import threading
import time

import pytest
from kazoo.exceptions import LockTimeout

from lib.client import lock_path
from lib.cutter import Cutter
from lib.drivers import CLIENTS, LANGUAGES, Driver
from lib.jobs import gateway_that_says
from lib.process import wait_until
from lib.sessions import stay_ephemeral

PASSWORD = "Basic " + base64.b64encode(b"alice:secret").decode()
PRIVATE = """\
location /private/ {
    if ($http_authorization != "%s") {
        return 401;
    }
    zk_lock_api;
}
location /patient/ {
    zk_lock_grace 10m;
    zk_lock_api;
}
location /hasty/ {
    zk_lock_max_wait 300ms;
    zk_lock_wait 0;
    zk_lock_api;
}
location /named/ {
    zk_lock_owner gateway;
    zk_lock_api;
}
""" % PASSWORD

each = pytest.mark.parametrize("language", LANGUAGES)


@pytest.fixture
def start(commands):
    """A function that starts drivers; at the end no driver is left."""
    drivers = []

    def start(language, port, name, path="/locks/", **options):
        url = "http://127.0.0.1:%d%s" % (port, path)
        drivers.append(Driver(commands[language], url, name, **options))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


@pytest.fixture(scope="module")
def locks(start_shared):
    return start_shared(server=PRIVATE, location="zk_lock_admin on;")


@pytest.fixture
def start_all(start):
    """A function that starts the driver of each language, a lock for each."""
    def start_all(port, name, **options):
        return [start(language, port, "%s-%s" % (name, language), **options)
                for language in LANGUAGES]

    return start_all


def is_free(gateway, name):
    return gateway.inspect(name).status == 404


def wait_queued(gateway, name, number):
    wait_until(lambda: gateway.inspect(name).json["queued"] == number, 30.0,
               "a queue of %d" % number)


def logged(gateway, call):
    """How many lines of the access log have a call; a pattern."""
    with open(gateway.prefix + "/access.log") as f:
        return len(re.findall(call, f.read()))


def renewals(gateway, name):
    """How often a renewal of the lock was confirmed."""
    return logged(gateway, '"PUT %s HTTP/1.1" 200' % lock_path(name))


def wait_renewals(gateway, name, number):
    wait_until(lambda: renewals(gateway, name) >= number, 60.0,
               "%d renewals" % number)


@each
def test_released(locks, start, language):
    driver = start(language, locks.port, "quick-" + language, owner="me",
                   ttl=20)
    token, fencing, owner, mode = driver.hears("held")
    holder, = locks.inspect(driver.name).json["holders"]
    assert holder["fencing_token"] == int(fencing)
    assert holder["owner"] == owner == "me" and holder["ttl_ms"] == 20000
    assert mode == "exclusive"
    assert locks.inspect(driver.name, token).json["mode"] == "exclusive"
    assert driver.is_held()
    driver.release()
    assert is_free(locks, driver.name)


@each
def test_names_and_options(locks, tree, start, language):
    """Any name may be used, and the header goes with each call."""
    name = "team/a+b %s?ü" % language
    driver = start(language, locks.port, name, "/private/", auth=PASSWORD,
                   mode="semaphore", permits=2, owner="a&b=%+ü", ttl=20,
                   durable=1)
    words = driver.hears("held")
    assert words[2:] == ["a&b=%+ü", "semaphore"]
    seen = locks.inspect(name).json
    assert seen["mode"] == "semaphore" and seen["permits"] == 2
    assert seen["holders"][0]["owner"] == "a&b=%+ü"
    claim, = tree.claims(locks.znode(name.replace("/", "%2F")))
    assert not tree.stat(locks.znode(name.replace("/", "%2F")) + "/"
                         + claim).ephemeralOwner
    driver.release()
    assert is_free(locks, name)


@each
def test_names_through_a_proxy_that_decodes(locks, start_gateway, start,
                                            language):
    """proxy_pass with a URI decodes the path, and resolves the dots."""
    proxy = start_gateway(server="""
        location /decoded/ { proxy_pass http://127.0.0.1:%d/locks/; }
        """ % locks.port)
    for name in "team/" + language, "a/../%s//" % language:
        driver = start(language, proxy.port, name, "/decoded/")
        driver.hears("held")
        assert locks.inspect(name.replace("/", "%2F")).json["holders"]
        driver.release()
        assert is_free(locks, name.replace("/", "%2F"))


@each
def test_lease_that_is_not_durable(locks, tree, start, language):
    """No owner is sent unless given, so the gateway may name the owner."""
    stay_ephemeral(tree, locks.znode("volatile-" + language))
    driver = start(language, locks.port, "volatile-" + language, "/named/",
                   durable=0, ttl=60)
    assert driver.hears("held")[2] == "gateway"
    claim, = tree.claims(locks.znode(driver.name))
    assert driver.is_held()
    assert tree.stat(locks.znode(driver.name) + "/" + claim).ephemeralOwner
    driver.release()


@each
def test_refused(locks, start, language):
    """A refusal is told at once, with the sentence of the gateway."""
    drivers = [start(language, locks.port, "x", mode="nonsense"),
               start(language, locks.port, "x", "/private/"),
               start(language, locks.port, "..")]
    for driver in drivers:
        assert driver.hears("end")[0] == "refused"


@each
def test_wait_of_an_hour(locks, start, language):
    """A long wait is a number of milliseconds, too, without an exponent."""
    driver = start(language, locks.port, "patient-" + language, wait=3600)
    driver.hears("held")
    driver.release()


@each
def test_taken(locks, start, language):
    name = "taken-" + language
    token = locks.hold(name, owner="before").token
    drivers = [start(language, locks.port, name, wait=wait)
               for wait in (0, 0.5)]
    for driver in drivers:
        how, *message = driver.hears("end")
        assert how == "taken"
        assert " ".join(message) == locks.acquire(name, wait=0).json["detail"]
    assert locks.release(name, token).status == 204


@each
def test_other_permits(locks, start, language):
    """After the 409 of a wait that the gateway cut, the client's goes on."""
    name = "permits-" + language
    token = locks.hold(name, mode="semaphore", permits=2, ttl="1h").token
    options = {"path": "/hasty/", "mode": "semaphore", "permits": 3}
    other = start(language, locks.port, name, wait=60, owner="other", **options)
    refused = [start(language, locks.port, name, wait=wait, **options)
               for wait in (0, 1.5)]
    refused.append(start(language, locks.port, name, wait=60))
    for driver in refused:
        how, *message = driver.hears("end")
        assert how == "refused" and "permits" in message
    wait_until(lambda: logged(
        locks, r'"POST /hasty/%s\?\S*owner=other\S* HTTP/1.1" 409' % name),
        30.0, "an answer")
    assert locks.release(name, token).status == 204
    assert other.hears("held")[3] == "semaphore"
    assert locks.inspect(name).json["permits"] == 3
    other.release()


@each
def test_fencing_token_is_hidden(start, language):
    """An answer to a repeat tells none while a mark of Curator's Revoker hides
    the claim's data.
    """
    with gateway_that_says(b'{"ttl_ms":60000}', status=201,
                           headers={"Lock-Token": "x"}) as gateway:
        driver = start(language, gateway.server_address[1], "hidden")
        assert list(driver.hears("held"))[:2] == ["x", "0"]
        driver.kill()


def test_wait_is_over_in_a_pause(start):
    """The last repeat has no wait, and no wait below zero."""
    with gateway_that_says(b"{}", status=503) as gateway:
        drivers = []
        for language in LANGUAGES:
            drivers.append(start(language, gateway.server_address[1], language,
                                 wait=1.9))
            # a driver before this may have repeated its call meanwhile
            wait_until(lambda: any(lock_path(language) in path
                                   for path in list(gateway.paths)), 30.0,
                       "a call")
            time.sleep(0.2)     # for the answer; the client pauses for 1 s
            drivers[-1].process.send_signal(signal.SIGSTOP)
        time.sleep(1.9)
        for driver in drivers:
            driver.process.send_signal(signal.SIGCONT)
        for driver in drivers:
            assert driver.hears("end")[0] == "unreachable"
    assert not [path for path in gateway.paths if "wait=-" in path]


@pytest.fixture
def pool(locks):
    """An object of the client for Python, to be shared."""
    spec = importlib.util.spec_from_file_location("zk_lock", os.path.join(
        CLIENTS, "python", "zk_lock.py"))
    zk_lock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(zk_lock)
    yield zk_lock.lock("blocks", "http://127.0.0.1:%d/locks" % locks.port,
                       mode="semaphore", permits=4)
    assert is_free(locks, "blocks")


def test_one_object_for_several_blocks(pool):
    """Of threads, and one within another: each block releases its own claim.
    """
    inside = threading.Barrier(2)

    def work():
        with pool as outer, pool as inner:
            assert outer.token != inner.token
            inside.wait(30)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_one_object_for_several_coroutines(pool):
    """Of one thread, and the block that began first is the first to end."""
    async def work(begun, until):
        with pool as held:
            begun.set()
            await until.wait()
            held.check()

    async def both():
        begun, end, late = (asyncio.Event() for _ in range(3))
        first = asyncio.create_task(work(begun, end))
        await begun.wait()
        begun.clear()
        second = asyncio.create_task(work(begun, late))
        await begun.wait()
        end.set()
        await first
        late.set()
        await second

    asyncio.run(both())


def test_one_object_in_stacks(pool):
    """An ExitStack ends its blocks wherever the stack is left."""
    with contextlib.ExitStack() as outer:
        first = outer.enter_context(pool)
        with pool as second:
            pass
        first.check()
        assert not second.is_held()
        rest = outer.pop_all()
    closer = threading.Thread(target=rest.close)
    closer.start()
    closer.join()
    assert not first.is_held()


@each
def test_exception_releases(locks, start, language):
    driver = start(language, locks.port, "raises-" + language)
    driver.hears("held")
    driver.say("raise")
    assert driver.hears("end") == ["raised"]
    assert is_free(locks, driver.name)


def test_one_at_a_time(locks, start, foreign):
    """Clients of all languages and kazoo are granted in their turn."""
    path = locks.znode("line")
    line = [locks.hold("line", ttl="1h")]
    drivers = []
    for language in LANGUAGES:
        drivers.append(start(language, locks.port, "line", wait=120))
        foreign.wait_claims(path, len(drivers) + 1, 30)
    kazoo = foreign.client.Lock(path, "kazoo",
                                extra_lock_patterns=["-lock-"])
    with pytest.raises(LockTimeout):
        kazoo.acquire(timeout=0.2)
    got = threading.Event()
    thread = threading.Thread(target=lambda: kazoo.acquire() and got.set())
    thread.start()
    foreign.wait_claims(path, len(drivers) + 2, 30)

    fencing = line[0].fencing
    locks.release("line", line[0].token)
    for number, driver in enumerate(drivers):
        last, fencing = fencing, int(driver.hears("held")[1])
        assert fencing > last
        assert all(later.silent() for later in drivers[number + 1:])
        assert not got.is_set()
        driver.release()
    assert got.wait(20)
    thread.join()
    behind = start("python", locks.port, "line", wait=0)
    assert behind.hears("end")[0] == "taken"
    kazoo.release()


def test_wait_longer_than_the_lease(locks, start_all):
    """A lease does not count from before a wait that is longer than that."""
    names = ["patient-" + language for language in LANGUAGES]
    holders = [locks.hold(name, ttl="1h") for name in names]
    waiters = start_all(locks.port, "patient", wait=60, ttl=5)
    for name in names:
        wait_queued(locks, name, 1)
    assert locks.call("GET", lock_path(names[0]), {
        "until": "free", "wait": "5200ms"}).status == 423
    for waiter, holder in zip(waiters, holders):
        locks.release(waiter.name, holder.token)
        waiter.hears("held")
        assert waiter.is_held()
        waiter.release()


def test_renewed(locks, start_all):
    """A lease is kept for several times its ttl.

    Two thirds of the ttl, the time for the repeats of a renewal, are longer
    than a pause of ZooKeeper's machine.
    """
    drivers = start_all(locks.port, "long", ttl=9)
    for driver in drivers:
        driver.hears("held")
    for driver in drivers:
        wait_renewals(locks, driver.name, 8)
        assert driver.is_held()
        driver.release()
        assert is_free(locks, driver.name)


def test_holder_beside_a_crowd(locks, start_all):
    """120 waiters of the holder's own process do not delay its renewals."""
    drivers = start_all(locks.port, "crowd", waiters=120, ttl=12)
    for driver in drivers:
        driver.hears("held")
    for driver in drivers:
        wait_queued(locks, driver.name, 120)
    begun = [renewals(locks, driver.name) for driver in drivers]
    for driver, before in zip(drivers, begun):
        wait_renewals(locks, driver.name, before + 4)
        assert driver.is_held()
        driver.say("release")
    for driver in drivers:
        assert driver.hears("granted") == ["120"]
        assert driver.hears("end") == ["released"]
        assert is_free(locks, driver.name)


def broken(gateway, tree, name):
    holder, = gateway.inspect(name).json["holders"]
    assert gateway.call("DELETE", lock_path(name), {"force": "1"}, {
        "If-Match": '"%d"' % holder["fencing_token"]}).status == 204


def deleted(gateway, tree, name):
    claim, = tree.claims(gateway.znode(name))
    tree.delete(gateway.znode(name) + "/" + claim)


@pytest.mark.parametrize("how", [broken, deleted])
def test_lost(locks, tree, start_all, how):
    """The next renewal tells, and the end of the block is no success."""
    drivers = start_all(locks.port, how.__name__, ttl=9)
    for driver in drivers:
        driver.hears("held")
        how(locks, tree, driver.name)
    for driver in drivers:
        driver.hears("lost")
        assert not driver.is_held()
        driver.say("release")
        assert driver.hears("end")[0] == "lost"


def test_killed(locks, start_all):
    """The lock of a client that was killed is free after the lease."""
    drivers = start_all(locks.port, "killed", ttl=2)
    for driver in drivers:
        driver.hears("held")
        driver.process.kill()
    for driver in drivers:
        assert locks.call("GET", lock_path(driver.name), {
            "until": "free", "wait": "20s"}).status == 204


def test_answer_is_lost(locks, tree, start):
    """The repeat finds the claim of the first request, and renews at once."""
    cutters = [Cutter(locks.port) for _ in LANGUAGES]
    cuts = [cutter.cut(answer=0) for cutter in cutters]
    drivers = [start(language, cutter.port, "cut-" + language, ttl=200)
               for language, cutter in zip(LANGUAGES, cutters)]
    for driver, cut in zip(drivers, cuts):
        lost = cut.wait().lost
        token = driver.hears("held")[0]
        assert b"201 Created" in lost and token.encode() in lost
        wait_renewals(locks, driver.name, 1)    # long before a third of it
        assert len(tree.claims(locks.znode(driver.name))) == 1
        driver.release()
    for cutter in cutters:
        cutter.close()


# a client of Node cannot be cancelled
cancelled = pytest.mark.parametrize("language", ["python", "go", "java"])


@cancelled
def test_waiter_is_cancelled(locks, start, language):
    """The claim is gone at once, and not after zk_lock_grace."""
    name = "left-" + language
    token = locks.hold(name).token
    driver = start(language, locks.port, name, "/patient/", wait=60)
    wait_queued(locks, name, 1)
    driver.cancel()
    assert driver.hears("end") == ["cancelled"]
    wait_queued(locks, name, 0)
    assert locks.release(name, token).status == 204


@cancelled
def test_cancelled_before_the_lease_counts(locks, start, language):
    """A token that the client knows already is released."""
    cutter = Cutter(locks.port)
    cutter.cut(answer=0)
    cutter.cut()
    renewal = cutter.cut(hang=True)
    driver = start(language, cutter.port, "early-" + language, "/patient/",
                   ttl=200)
    assert renewal.came.wait(30)
    driver.cancel()
    assert driver.hears("end") == ["cancelled"]
    wait_until(lambda: is_free(locks, driver.name), 30.0, "a free lock")
    cutter.close()


def test_release_is_interrupted(locks, start):
    """The release is repeated.  In Python Ctrl-C ends the release, too, and in
    Go and Node a release is not cancelled."""
    cutter = Cutter(locks.port)
    cutter.cut()
    release = cutter.cut(hang=True)
    driver = start("java", cutter.port, "interrupted", ttl=200)
    driver.hears("held")
    driver.say("release")
    assert release.came.wait(30)
    driver.cancel()
    assert driver.hears("end") == ["released"]
    assert is_free(locks, driver.name)
    cutter.close()


@pytest.mark.parametrize("language", ["python", "java"])
def test_exception_of_the_loss(locks, start, language):
    """The lock is released, though the end of the block raises."""
    driver = start(language, locks.port, "thrown-" + language, ttl=6, raises=1)
    driver.hears("held")
    driver.say("late")
    assert driver.hears("end") == ["raised"]
    wait_until(lambda: logged(locks, '"DELETE ' + lock_path(driver.name)),
               30.0, "a release")


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_gateway_ends(start_gateway, tree, start_all, end):
    """A waiter goes on at the gateway that is started again, in one place."""
    gateway = start_gateway(session_timeout="4s")
    drivers = start_all(gateway.port, "again", wait=60, ttl=30)
    for driver in drivers:
        driver.hears("held")
    waiters = start_all(gateway.port, "again", wait=60, ttl=30)
    for waiter in waiters:
        tree.wait_claims(gateway.znode(waiter.name), 2, 30)

    getattr(gateway, end)()
    gateway.start(wait_sessions=False)
    gateway.wait_served()
    for driver, waiter in zip(drivers, waiters):
        wait_queued(gateway, waiter.name, 1)
        assert waiter.silent() and driver.is_held()
        driver.release()
        waiter.hears("held")
        assert len(tree.claims(gateway.znode(waiter.name))) == 1
        waiter.release()


def test_zookeeper_is_away(private_zookeeper, start_gateway, connect_tree,
                           start_all):
    """The lock is lost by the client's clock, and no acquire is "taken"."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, session_timeout="4s")
    drivers = start_all(gateway.port, "away", ttl=3)
    for driver in drivers:
        driver.hears("held")
    private_zookeeper.freeze()
    late = start_all(gateway.port, "away", wait=1)
    for driver in drivers:
        driver.hears("lost")
        assert not driver.is_held()
    for driver in late:
        assert driver.hears("end")[0] == "unreachable"
    private_zookeeper.thaw()
    for driver in drivers:
        assert not driver.is_held()
        driver.say("release")
        assert driver.hears("end")[0] == "lost"
