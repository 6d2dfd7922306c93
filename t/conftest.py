"""The fixtures: one ZooKeeper for the whole run, and gateways for each test.

    zookeeper       a standalone server that lives as long as the run; each test
                    uses a separate root
    private_zookeeper, ensemble
                    servers that a test may stop, freeze and kill
    tree            looks into `zookeeper`, and makes claims
    root            a path for the test's locks; none of the parents exists
    start_gateway   makes and starts gateways; at the end each gateway is
                    stopped and judged, and no ephemeral znode may be left in
                    ZooKeeper; durable leases are deleted.  Before that,
                    records and znodes are the same claims
    gateway         a gateway with two workers and all defaults
    shared_gateway  the same, for all tests of a file; these leave the gateway
    shared_pair     and the two gateways as they were
    start_shared    start_gateway for all tests of a file
    commands        the programs that use the clients of clients/
    start_proxy     proxies in front of a server
    backend         an application that answers by hand
    guarded         makes a gateway with a guarded location /app/
    start_script    starts scripts, of which no process may be left at the end
    job             a command that runs until the test ends the command

A failed test shows where the gateway's files are and the end of the log.
"""

import contextlib
import itertools
import os
import sys
import time

import pytest
from kazoo.retry import KazooRetry

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib import claims, openapi, unseen     # noqa: E402
from lib.backend import Backend             # noqa: E402
from lib.curator import Curator, compile_contender     # noqa: E402
from lib.dns import Dns                      # noqa: E402
from lib.drivers import build                # noqa: E402
from lib.gateway import MODULE, Gateway     # noqa: E402
from lib.examples import Example, Script    # noqa: E402
from lib.guards import LOG, location        # noqa: E402
from lib.jobs import Job                    # noqa: E402
from lib.process import wait_until          # noqa: E402
from lib.proxy import Proxy                 # noqa: E402
from lib.zookeeper import Ensemble, Server, Tree    # noqa: E402

LOG_TAIL = 4000
ALIKE = 20.0        # for records and znodes to be the same claims

_numbers = itertools.count(1)


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "plain(why): not under the sanitizers, and why not")
    config.addinivalue_line(
        "markers", "shows(promise): for docs/promises.md")


# the files that take longest: in a parallel run these come first
LONGEST = ["test_rolling", "test_grace", "test_repeats", "test_holds",
           "test_streams", "test_allocations", "test_conf_examples",
           "test_zk_lock", "test_strangers", "test_seats"]


def pytest_collection_modifyitems(items):
    def place(item):
        name = item.path.stem
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


def pytest_sessionfinish():
    if "OPENAPI_SEEN" in os.environ:
        unseen.save(os.environ["OPENAPI_SEEN"])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    for node in item.listchain():
        for gateway in getattr(node, "gateways", []):
            report.sections.append(("files in " + gateway.prefix,
                                    gateway.log_text()[-LOG_TAIL:]))


@pytest.fixture(autouse=True)
def described():
    """Each answer in a test is as docs/openapi.yaml says."""
    yield
    drifts = openapi.drifts()
    assert not drifts, "%d: %s" % (len(drifts), "\n".join(drifts[:5]))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tree(zookeeper):
    tree = Tree(zookeeper.address)
    yield tree
    tree.close()


@pytest.fixture
def private_zookeeper(tmp_path):
    """A server for this test alone, not started yet."""
    server = Server(tmp_path / "zookeeper")
    yield server
    server.kill()


@pytest.fixture
def ensemble(tmp_path):
    """Three servers for this test alone, not started yet."""
    servers = Ensemble(tmp_path / "ensemble")
    yield servers
    servers.stop()


@pytest.fixture
def connect_tree():
    """Trees that look into any server, by address."""
    trees = []

    def connect(address, **options):
        trees.append(Tree(address, **options))
        return trees[-1]

    yield connect
    for tree in trees:
        tree.close()


@pytest.fixture
def foreign(zookeeper, connect_tree):
    """Another client of ZooKeeper, with a separate session."""
    return connect_tree(zookeeper.address)


def new_root():
    return "/t%d/deep/locks" % next(_numbers)


def top(path):
    """The top-level znode of a path; the server's counters are per top."""
    return "/" + path.split("/")[1]


@pytest.fixture
def root():
    return new_root()


def left_by_gateways(tree, root):
    """path -> the session, of ephemerals that no client of a test has made."""
    found = KazooRetry(max_tries=5)(tree.ephemerals, top(root))
    return {path: hex(owner) for path, owner in found.items()
            if owner not in Tree.sessions}


def unlike(gateways, zookeeper, tree, root):
    """How the claims of records and znodes differ (lib/claims.py), or None."""
    before = claims.known(gateways)
    if before is None:
        return None
    every, sure = before
    if not all(gateway.zookeeper is zookeeper
               and top(gateway.root) == top(root) for gateway in gateways):
        sure = 0        # the claims may be in another tree
    ephemerals = [path for path in left_by_gateways(tree, root)
                  if "/zk_lock_gates/" not in path]     # below a chroot
    durables = tree.durables(top(root)) if sure > len(ephemerals) else []
    return claims.differ(every, sure, ephemerals, durables)


@contextlib.contextmanager
def gateways(node, directory, zookeeper, tree, root):
    """Gives a function that makes gateways; ends and judges all of them."""
    made = []
    # a node may have several such fixtures, and shows the gateways of all
    node.gateways = getattr(node, "gateways", [])

    def make(start=True, wait_sessions=True, **options):
        if options.setdefault("module", MODULE):
            assert os.path.exists(options["module"]), (
                "no module at %s: make build" % options["module"])
        if "zookeeper" not in options and "servers" not in options:
            options["zookeeper"] = zookeeper
        options.setdefault("root", root)
        gateway = Gateway(directory / ("gateway%d" % next(_numbers)),
                          **options)
        made.append(gateway)
        node.gateways.append(gateway)
        if start:
            gateway.start(wait_sessions=wait_sessions)
        return gateway

    yield make

    complaints = []
    try:
        wait_until(lambda: not unlike(made, zookeeper, tree, root), ALIKE)
    except AssertionError:
        complaints.append(str(unlike(made, zookeeper, tree, root)))
    for gateway in made:
        try:
            gateway.finish()
        except AssertionError as e:
            complaints.append(str(e))
    try:
        # a process ends when the request that closes its session is sent; no
        # session expires as soon as that
        wait_until(lambda: not left_by_gateways(tree, root), 1.0)
    except AssertionError:
        complaints.append("left in ZooKeeper after a clean end: %s"
                          % left_by_gateways(tree, root))
    tree.forget(top(root))
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def start_gateway(request, tmp_path, zookeeper, tree, root):
    """A function that makes a gateway on `zookeeper` with root `root`."""
    with gateways(request.node, tmp_path, zookeeper, tree, root) as make:
        yield make


@pytest.fixture(scope="module")
def shared_gateway(request, tmp_path_factory, zookeeper, tree):
    """A gateway for all tests of a file; the tests leave no claims behind."""
    name = request.node.name.rpartition("/")[2].rpartition(".")[0]
    directory = tmp_path_factory.mktemp(name)
    with gateways(request.node, directory, zookeeper, tree,
                  new_root()) as make:
        yield make()


@pytest.fixture(scope="module")
def start_shared(request, tmp_path_factory, zookeeper, tree):
    """A function that makes gateways for all tests of a file."""
    with gateways(request.node, tmp_path_factory.mktemp("shared"), zookeeper,
                  tree, new_root()) as make:
        yield make


@pytest.fixture(scope="module")
def shared_pair(request, tmp_path_factory, zookeeper, tree):
    with gateways(request.node, tmp_path_factory.mktemp("pair"), zookeeper,
                  tree, new_root()) as make:
        yield make(), make()


@pytest.fixture
def gateway(start_gateway):
    return start_gateway()


@pytest.fixture
def backend():
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture
def dns():
    server = Dns()
    yield server
    server.close()


@pytest.fixture
def guarded(start_gateway, backend):
    """A function of the rules of /app/, and of the content, if not a proxy."""
    def make(rules="zk_lock one;", content=None, server="", http="",
             **options):
        content = content or "proxy_pass http://%s;" % backend.address
        return start_gateway(server=location(rules, content) + server,
                             http=LOG + http, **options)

    return make


@pytest.fixture
def start_proxy():
    proxies = []

    def start(server, **options):
        proxies.append(Proxy(server.port, **options))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture(scope="session")
def class_path(tmp_path_factory):
    return compile_contender(tmp_path_factory.mktemp("contender"))


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """The drivers of the clients: language -> command."""
    return build(tmp_path_factory.mktemp("drivers"))


@pytest.fixture
def curator(class_path, zookeeper, tmp_path):
    curator = Curator(class_path, zookeeper.address, tmp_path / "curator.log")
    yield curator.wait_ready()
    curator.close()


@pytest.fixture
def behind_proxy(zookeeper, start_gateway, start_proxy):
    proxy = start_proxy(zookeeper)
    gateway = start_gateway(servers=proxy.address, wait_sessions=False,
                            session_timeout="4s")
    gateway.wait_served()
    return gateway, proxy


@pytest.fixture
def make_example(start_gateway):
    """A function that makes an example's gateway, not started yet."""
    def make(name, ports=(8080,), text=None):
        return Example(name, start_gateway(start=False), ports, text)

    return make


@pytest.fixture
def start_script(tmp_path, start_gateway):
    """A function that starts a script; no process may be left at the end.

    This end comes before the end of the test's gateways.
    """
    scripts = []

    def start(*command, **options):
        scripts.append(Script(tmp_path, command, **options))
        return scripts[-1]

    yield start
    left = {}
    deadline = time.monotonic() + 15
    for script in scripts:
        try:
            script.wait_gone(deadline - time.monotonic())
        except AssertionError:
            left[script.pid] = script.said()
            script.kill()
    assert not left, left


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)
