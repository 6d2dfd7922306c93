"""The files of docker/ and kubernetes/: nginx takes the configurations, which
serve locks, and the files name only what exists.

scripts/test-image runs the containers; here the configurations run in the nginx
of the tests, by lib/examples.py.  The DNS server of a test stands for that of
Docker or Kubernetes.
"""

import glob
import os
import re

import pytest
import yaml

from lib import compose
from lib.checks import problem
from lib.client import Connection
from lib.examples import Example
from lib.gateway import TREE
from lib.process import wait_until

COMPOSE = ["docker/compose.yaml", "docker/compose.cluster.yaml"]
SERVERS = ["docker/zookeeper.conf", "docker/cluster/zookeeper.conf",
           "kubernetes/zookeeper.conf"]
INCLUDE = "include zookeeper/zookeeper.conf;"


def read(*path):
    with open(os.path.join(TREE, *path), encoding="utf-8") as file:
        return file.read()


def manifests():
    """All objects of kubernetes/ by kind and name."""
    objects = {}
    for path in glob.glob(os.path.join(TREE, "kubernetes", "*.yaml")):
        for one in yaml.safe_load_all(read(path)):
            name = one.get("metadata", {}).get("name")
            objects[one["kind"], name] = one
    return objects


def pod(kind, name):
    return manifests()[kind, name]["spec"]["template"]["spec"]


def settings(text):
    """The lines of a configuration without comments."""
    return sorted(line for line in text.splitlines()
                  if line and not line.startswith("#"))


@pytest.fixture
def start_gateway_of(start_gateway, dns, zookeeper):
    """A function that starts docker/nginx.conf with the servers of a file.

    All names of the file lead to the test's ZooKeeper.
    """
    def start(path):
        text = read(path)
        names, = re.findall(r"(?m)^zk_lock_servers (\S+) resolve;$", text)
        text = re.sub(r"(?m)^resolver \S+", "resolver " + dns.address, text)
        for server in names.split(","):
            name, port = server.split(":")
            assert port == "2181"
            dns.names[name] = ["127.0.0.1"]
        text = text.replace(":2181", ":%d" % zookeeper.port)
        gateway = start_gateway(start=False)
        chroot = "/" + gateway.root.split("/")[1]
        text = text.replace(" resolve;", chroot + " resolve;")
        conf = read("docker", "nginx.conf").replace("/tmp/", "/run/")
        assert conf.count(INCLUDE) == 1
        return Example(None, gateway, (8080, 8081),
                       conf.replace(INCLUDE, text).replace(
                           "/dev/stdout", "access.log")).start()

    return start


def ask(example, port, method, path):
    with Connection(example.ports[port]) as connection:
        return connection.request(method, path)


@pytest.mark.parametrize("path", SERVERS)
def test_gateway(start_gateway_of, path):
    """Clients have locks and the health on one port, operators the rest on the
    other."""
    example = start_gateway_of(path)
    wait_until(lambda: ask(example, 8081, "GET", "/health").status == 200)
    response = example.hold("/locks/x")
    problem(example.call("POST", "/locks/x", {"wait": "0"}), 423)

    for hidden in "/metrics", "/alive", "/operator/health":
        assert example.call("GET", hidden).status == 404
    assert ask(example, 8081, "GET", "/alive").status == 204
    assert ask(example, 8081, "GET", "/metrics").status == 200
    drain = "/operator/health?drain="
    assert ask(example, 8081, "PUT", drain + "on").status == 200
    assert example.call("GET", "/health").status == 503
    assert ask(example, 8081, "GET", "/alive").status == 204
    assert ask(example, 8081, "PUT", drain + "off").status == 200
    assert example.call("DELETE", response.headers["Location"]).status == 204
    logged(example, response, " DELETE x 204 released ")


def logged(example, response, *lines):
    """The lines come into the access log, and no token does."""
    path = os.path.join(example.gateway.prefix, "access.log")
    for line in lines:
        wait_until(lambda: line in open(path, encoding="utf-8").read(), 15.0,
                   line)
    with open(path, encoding="utf-8") as file:
        assert response.token not in file.read()


def test_what_operators_do(start_gateway_of):
    """The commands of the comment drain the gateway, and break a lock."""
    example = start_gateway_of(SERVERS[0])
    wait_until(lambda: ask(example, 8081, "GET", "/health").status == 200)
    example.hold("/locks/NAME")
    example.shell(example.blocks[0])
    assert example.call("GET", "/locks/NAME").status == 404
    assert example.call("GET", "/health").status == 503


def test_balancer(start_gateway, gateway):
    """Locks and the health are passed on, and no more.  Without a gateway the
    answer is that of a gateway without ZooKeeper: 503, to be repeated."""
    conf = read("docker", "balancer.conf").replace("/tmp/", "/run/")
    include = "include gateways/gateways.conf;"
    assert conf.count(include) == 1
    balancer = start_gateway(start=False, wait_sessions=False)
    balancer = Example(None, balancer, (8080,), conf.replace(
        include, "server 127.0.0.1:%d max_fails=0;" % gateway.port).replace(
            "/dev/stdout", "access.log"))
    balancer.start(wait_sessions=False)

    response = balancer.hold("/locks/x")
    assert balancer.call("PUT", "/locks/x?ttl=1m", headers={
        "Lock-Token": response.token}).status == 200
    assert balancer.call("DELETE",
                         response.headers["Location"]).status == 204
    for hidden in "/metrics", "/operator/health", "/":
        assert balancer.call("GET", hidden).status == 404
    logged(balancer, response, " PUT x 200 ", " DELETE x 204 ", " GET - 404 ")
    gateway.stop()
    content = problem(balancer.call("POST", "/locks/x"), 503, "no gateway")
    assert content["type"] == "/problems/unavailable"


@pytest.mark.parametrize("path", COMPOSE)
def test_compose(path):
    """Each file and each stage exists; ports are on loopback; a service is
    started behind healthy services."""
    stages = set(re.findall(r"(?m)^FROM \S+ AS (\w+)$",
                            read("docker", "Dockerfile")))
    assert {"gateway", "zookeeper"} <= stages
    text = compose.read(os.path.join(TREE, path))
    volumes = set(text["volumes"])
    used = set()
    for service in compose.services(os.path.join(TREE, path)):
        build = service.text["build"]
        assert service.target in stages
        context = os.path.join(TREE, os.path.dirname(path), build["context"])
        assert os.path.exists(os.path.join(context, build["dockerfile"]))
        for source, _ in service.binds:
            assert os.path.exists(source), source
        used |= {name for name, _ in service.volumes}
        assert service.read_only and service.tmpfs == "/tmp"
        for port in service.text.get("ports", []):
            assert port.startswith("127.0.0.1:") and port.endswith(":8080")
        for condition in service.text.get("depends_on", {}).values():
            assert condition == {"condition": "service_healthy"}
    assert used == volumes


def test_images():
    """The Dockerfile copies only what exists and is not left out."""
    kept = re.findall(r"(?m)^!(\S+)$", read("docker",
                                            "Dockerfile.dockerignore"))
    sources = [word for words in re.findall(
        r"(?m)^COPY ((?!--).*) \S+$", read("docker", "Dockerfile"))
        for word in words.split()]
    assert sources
    for source in sources:
        assert os.path.exists(os.path.join(TREE, source)), source
        assert source.split("/")[0] in kept, source
    for name in os.listdir(os.path.join(TREE, "docker", "bin")):
        assert os.access(os.path.join(TREE, "docker", "bin", name), os.X_OK)


def test_version():
    """The image has the version of the package, unless told otherwise."""
    version = re.search(r"\((\S+)\)", read("debian", "changelog")).group(1)
    assert set(re.findall(r"(?m)^ARG VERSION=(\S+)$",
                          read("docker", "Dockerfile"))) == {version}
    tags = [image["newTag"] for image in manifests()[
        "Kustomization", None]["images"]]
    assert tags == [version, version]


def test_times_of_an_end():
    """What ends a container waits longer than nginx takes."""
    quit_time = int(re.search(r"(?m)^worker_shutdown_timeout (\d+)s;",
                              read("docker", "nginx.conf")).group(1))
    for path in COMPOSE:
        for service in compose.services(os.path.join(TREE, path)):
            if service.name.startswith("gateway"):
                assert service.grace > quit_time
    spec = pod("Deployment", "lock-gateway")
    drain = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert spec["terminationGracePeriodSeconds"] > quit_time + int(drain[1])


def test_servers_of_zookeeper():
    """The files for several servers differ in the names alone, and a gateway
    is told of the names that the servers have of each other."""
    def peers(path):
        return re.findall(r"(?m)^server\.\d=([\w.-]+):2888:3888$", read(path))

    def clients(path):
        return re.findall(r"([\w.-]+):2181", read(path))

    def rest(path):
        return [line for line in settings(read(path))
                if not line.startswith("server.")]

    assert rest("docker/cluster/zoo.cfg") == rest("kubernetes/zoo.cfg")
    assert set(settings(read("docker/zoo.cfg"))) < set(
        rest("docker/cluster/zoo.cfg"))
    assert peers("docker/cluster/zoo.cfg") == clients(
        "docker/cluster/zookeeper.conf")

    objects = manifests()
    namespace = objects["Kustomization", None]["namespace"]
    assert ("Namespace", namespace) in objects
    servers = objects["StatefulSet", "zookeeper"]["spec"]
    assert ("Service", servers["serviceName"]) in objects
    assert peers("kubernetes/zoo.cfg") == [
        "zookeeper-%d.%s" % (i, servers["serviceName"])
        for i in range(servers["replicas"])]
    assert clients("kubernetes/zookeeper.conf") == [
        "%s.%s.svc.cluster.local" % (peer, namespace)
        for peer in peers("kubernetes/zoo.cfg")]


def test_manifests():
    """Files, ConfigMaps, images, commands and ports that are named exist."""
    kustomization = manifests()["Kustomization", None]
    for path in kustomization["resources"] + [
            name for one in kustomization["configMapGenerator"]
            for name in one["files"]]:
        assert os.path.exists(os.path.join(TREE, "kubernetes", path)), path
    made = {one["name"] for one in kustomization["configMapGenerator"]}
    images = {image["name"] for image in kustomization["images"]}
    commands = set(os.listdir(os.path.join(TREE, "docker", "bin")))

    for kind, name in ("Deployment", "lock-gateway"), ("StatefulSet",
                                                       "zookeeper"):
        spec = pod(kind, name)
        container, = spec["containers"]
        assert container["image"] in images
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert spec["securityContext"]["runAsNonRoot"]
        user = str(spec["securityContext"]["runAsUser"])
        assert re.search(r"(?m)^USER %s:%s$" % (user, user),
                         read("docker", "Dockerfile"))
        for volume in spec["volumes"]:
            assert volume.get("configMap", {}).get("name") in made | {None}
        ports = {port["name"] for port in container["ports"]}
        for probe in "readinessProbe", "livenessProbe":
            for how in container[probe].values():
                if isinstance(how, dict) and "port" in how:
                    assert how["port"] in ports
                elif isinstance(how, dict):
                    assert how["command"][0] in commands
    command = pod("Deployment", "lock-gateway")["containers"][0][
        "lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] in commands
