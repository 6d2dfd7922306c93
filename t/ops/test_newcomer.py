"""What a newcomer runs from the README and the first pages."""

import itertools
import json
import os
import re
import signal

import pytest

from lib import examples
from lib.client import Connection
from lib.gateway import TREE
from lib.jobs import is_free
from lib.process import free_port, wait_until

NUMBERS = itertools.count(1)


@pytest.fixture
def name():
    """A lock that only this test uses."""
    return "lock%d" % next(NUMBERS)


def test_ten_lines(make_example):
    text = examples.code("README.md", "Configuration in ten lines")
    assert len(text.split("\n")) < 14
    example = make_example(None, text=text.replace(
        "10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181", "127.0.0.1:2181"))
    # where an nginx that is not Debian's has the log and the pid
    os.makedirs(os.path.join(os.path.dirname(example.gateway.conf), "logs"),
                exist_ok=True)
    example.start()
    example.release("x", example.hold("/locks/x"))


def test_dozen_calls(start_script, gateway, name):
    """Each call of the README is answered with the status that is said."""
    with open(os.path.join(TREE, "README.md"), encoding="utf-8") as file:
        calls = re.findall(r"(?m)^    (curl .*?) +# (\d{3})", file.read())
    assert len(calls) == 12
    token = None
    for call, status in calls:
        call = re.sub(r"\$url/(\w)", r"$url/%s-\1" % name, call)
        call = re.sub(r'"(disk|tape)"', r'"%s-\1"' % name, call)
        script = start_script("sh", "-c", call, environment={
            "url": "http://127.0.0.1:%d/locks" % gateway.port,
            "token": token or "", "key": name + "-8e03"})
        if "hold=connection" in call:
            wait_until(lambda: "HTTP/1.1 %s " % status in script.said(), 20.0,
                       "%s of %s" % (status, call))
            script.kill()
            continue
        assert script.wait() == 0
        assert "HTTP/1.1 %s " % status in script.said(), call
        found = re.search(r"(?m)^Lock-Token: (\S+)", script.said())
        token = token or found.group(1)


def streams_of(*pages):
    """The curl commands of these pages that open streams."""
    lines = []
    for page in pages:
        with open(os.path.join(TREE, page), encoding="utf-8") as file:
            lines += re.findall(r"(?m)^    (curl .*\$url/.*)$", file.read())
    return [line for line in lines
            if re.search("hold=connection|Accept: ", line)]


@pytest.mark.parametrize("line", streams_of("README.md", "docs/calls.md",
                                           "docs/recipes.md"))
def test_streams_through_a_pipe(start_script, start_gateway, line):
    """Events are seen when the gateway sends them, not when a buffer is full.
    """
    gateway = start_gateway()
    script = start_script(
        "sh", "-c", line.split("   #")[0] + " | cat", environment={
            "url": "http://127.0.0.1:%d/locks" % gateway.port})
    wait_until(lambda: re.search("granted|change", script.said()), 20.0,
               "an event")
    script.kill()
    for name in "web", "nightly", "x":
        wait_until(lambda name=name: is_free(gateway, name), 20.0)


@pytest.mark.plain("it builds the module for Debian's nginx")
def test_quickstart(start_script, private_zookeeper):
    """The printed JSON is valid, and the hint for a lost token works."""
    private_zookeeper.start()
    port = free_port()
    script = start_script("env", "-u", "NGINX_BIN", "-u", "ZK_LOCK_MODULE",
                          os.path.join(TREE, "quickstart"), "--port",
                          str(port), "--zookeeper", private_zookeeper.address)
    wait_until(lambda: "Ctrl-C ends it all" in script.said()
               or script.process.poll() is not None, 300.0, "it is your turn")
    text = script.said()
    answers = [json.loads(answer) for answer
               in re.findall(r"(?m)^\{\n(?: .*\n)+\}$", text)]
    assert [answer.get("name", answer.get("status")) for answer in answers] == [
        "demo", 423, "demo", "demo"]

    with Connection(port) as connection:
        def acquire():
            return connection.request("POST", "/locks/mine", {"wait": "0"})

        assert acquire().status == 201
        assert acquire().status == 423
        line, = re.findall(r"(?m)^  (curl .*force=1.*)$", text)
        forced = start_script("sh", "-c", line)
        assert forced.wait() == 0
        assert "204 No Content" in forced.said()
        assert acquire().status == 201

        # the last lines show the page, health and metrics
        last = text[text.index("Your turn"):]
        base = "http://127.0.0.1:%d" % port
        for path, answered in (("/", "<title>"), ("/health", '"status":"ok"'),
                               ("/metrics", "zk_lock_claims{")):
            assert base + path in last, last
            response = connection.request("GET", path)
            assert response.status == 200, response
            assert answered in response.body.decode()
    script.signal(signal.SIGINT)
    assert script.wait() == 0


# balancers

def balancers():
    """Each text that may have an upstream of gateways: (where, text)."""
    for top in "docs", "conf-examples", "docker", "kubernetes":
        for directory, _, files in os.walk(os.path.join(TREE, top)):
            for file in files:
                path = os.path.join(directory, file)
                with open(path, encoding="utf-8") as text:
                    yield os.path.relpath(path, TREE), text.read()


def test_no_balancer_counts_faults():
    """Each gateway of an upstream says max_fails=0; an upstream of gateways is
    one that locks or gateways are the name of, or a file that one includes.
    """
    seen = []
    for where, text in balancers():
        upstreams = re.findall(
            r"(?ms)^ *upstream (?:locks|gateways) \{\n(.*?)\}", text)
        if os.path.basename(where) == "gateways.conf":
            upstreams.append(text)
        servers = [line for upstream in upstreams for line
                   in re.findall(r"(?m)^ *server .*;", upstream)]
        seen += [where] * bool(servers)
        for line in servers:
            assert " max_fails=0;" in line, (where, line)
    assert sorted(seen) == ["docker/cluster/balancer/gateways.conf",
                            "docs/monitoring.md"]


def test_waits_that_are_too_long_for_the_balancer(start_gateway):
    """A wait above the balancer's timeout at each gateway gets 504, and the
    clients after these are served.
    """
    gateways = [start_gateway(workers=1), start_gateway(workers=1)]
    upstream, location = examples.codes("docs/monitoring.md",
                                        "Health")[2].split("\n\n", 1)
    for host, gateway in zip(("10.0.0.11:8080", "10.0.0.12:8080"), gateways):
        assert upstream.count(host) == 1
        upstream = upstream.replace(host, "127.0.0.1:%d" % gateway.port)
    assert location.count(" 6m;") == 1
    balancer = start_gateway(servers=None, zookeeper=None, workers=1,
                             http=upstream,
                             server=location.replace(" 6m;", " 1s;"))

    gateways[0].hold("x")
    waiters = [balancer.begin("x", wait="1m") for _ in gateways]
    assert [waiter.response().status for waiter in waiters] == [504, 504]
    for i in range(4):
        response = balancer.acquire("y%d" % i)
        assert response.status == 201, response
