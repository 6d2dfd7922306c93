"""monitoring/: the alert rules and the dashboard, with a real Prometheus.

promtool judges the rules.  A Prometheus on loopback asks a gateway, each
expression of the dashboard has a result there, and the alert of an outage fires
and resolves while ZooKeeper stands still and goes on.
"""

import json
import os
import re
import shutil
import subprocess

import pytest

from lib.client import Connection
from lib.gateway import TREE
from lib.metrics import series
from lib.process import free_port, tied, wait_until

MONITORING = os.path.join(TREE, "monitoring")
FAR = 60.0

CONF = """
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 200ms
rule_files: [alerts.yml]
scrape_configs:
- job_name: zk_lock
  static_configs:
  - targets: ["127.0.0.1:%d"]
"""

GUARDED = "location = /guarded { zk_lock $arg_lock; try_files /none =204; }"
VALUES = re.compile(r'(?:state|event|operation|outcome)=~?"([\w|]+)"')


def read(name):
    with open(os.path.join(MONITORING, name), encoding="ascii") as file:
        return file.read()


def promtool(*words):
    program = shutil.which("promtool")
    assert program, "no promtool: scripts/install-deps test"
    run = subprocess.run([program, *words], cwd=MONITORING, timeout=60,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return run.returncode, run.stdout.decode()


def rules():
    """The rules without the texts, which name directives, too."""
    return re.sub(r"(?m)^      description: >-\n(?:        .*\n)+", "",
                  read("alerts.yml"))


def panels():
    return json.loads(read("grafana.json"))["panels"]


def expressions():
    return [target["expr"] for panel in panels()
            for target in panel["targets"]]


class Prometheus:
    """A server with the alert rules, whose times are cut."""

    def __init__(self, directory, port):
        self.port = free_port()
        (directory / "alerts.yml").write_text(re.sub(
            r"(?m)^    for: \w+$", "    for: 4s", read("alerts.yml")))
        (directory / "prometheus.yml").write_text(CONF % port)
        with open(directory / "log", "wb") as log:
            self.process = subprocess.Popen(
                tied([shutil.which("prometheus"),
                      "--config.file=prometheus.yml",
                      "--storage.tsdb.path=data",
                      "--web.listen-address=127.0.0.1:%d" % self.port]),
                cwd=directory, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)

    def ready(self):
        try:
            return self.ask("/-/ready").status == 200
        except OSError:
            return False

    def ask(self, path, query=None):
        with Connection(self.port) as connection:
            return connection.request("GET", path, query)

    def query(self, expression):
        response = self.ask("/api/v1/query", {"query": expression})
        assert response.status == 200, (expression, response)
        return response.json["data"]["result"]

    def alerts(self, state):
        return {row["metric"]["alertname"] for row
                in self.query('ALERTS{alertstate="%s"}' % state)}

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_prometheus(tmp_path):
    made = []

    def start(gateway):
        directory = tmp_path / "prometheus"
        directory.mkdir()
        made.append(Prometheus(directory, gateway.port))
        wait_until(made[-1].ready, FAR, "Prometheus is ready")
        return made[-1]

    yield start
    for prometheus in made:
        prometheus.close()


@pytest.mark.parametrize("words", [
    ("check", "rules", "alerts.yml"),
    ("check", "config", "prometheus.yml"),
    ("test", "rules", "alerts_test.yml")], ids=" ".join)
def test_promtool(words):
    code, output = promtool(*words)
    assert code == 0 and "FAILED" not in output, output


def test_each_rule_is_tested():
    names = re.findall(r"(?m)^  - alert: (\w+)$", rules())
    tests = read("alerts_test.yml")
    for name in names:
        assert "alertname: %s}" % name in tests, name
    for what in ("summary", "description"):
        assert read("alerts.yml").count(what + ": ") == len(names) > 5


def test_names(start_gateway):
    """Rules and dashboard name only metrics and labels that there are."""
    gateway = start_gateway(metrics=True)
    names = {re.split(r"[{ ]", name)[0] for name in series(gateway)}
    names.add("zk_lock_requests_total")
    with open(os.path.join(TREE, "src", "http", "metrics.c"),
              encoding="ascii") as file:
        source = file.read()
    for text in [rules()] + expressions():
        used = set(re.findall(r"\bzk_lock_\w+", text))
        assert used and used <= names, used - names
        for values in VALUES.findall(text):
            for value in values.split("|"):
                assert '"%s' % value in source, value


def test_dashboard():
    """Panels do not overlap; each has a title and names the data source."""
    taken = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["title"] and panel["targets"]
        for one in [panel] + panel["targets"]:
            assert one["datasource"]["uid"] == "${datasource}"
    board = json.loads(read("grafana.json"))
    assert board["schemaVersion"] >= 37
    assert [variable["name"] for variable in board["templating"]["list"]
            ] == ["datasource", "job", "instance"]


def test_expressions(start_gateway, start_prometheus):
    """Each expression of the dashboard has a result after some requests."""
    gateway = start_gateway(metrics=True, server=GUARDED)
    prometheus = start_prometheus(gateway)

    def resulting():
        gateway.call("GET", "/guarded", {"lock": "x"})
        return [expression for expression in expressions()
                if not prometheus.query(filled(expression))] == []

    wait_until(resulting, FAR, "each expression has a result")
    # a rule that cannot be evaluated is in an error state
    groups = prometheus.ask("/api/v1/rules").json["data"]["groups"]
    for rule in groups[0]["rules"]:
        assert rule["health"] == "ok", rule


def filled(expression):
    """With values in the place of Grafana's variables."""
    for name, value in (("$__rate_interval", "10s"), ("$job", "zk_lock"),
                        ("$instance", ".*")):
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def test_outage(private_zookeeper, start_gateway, start_prometheus):
    """No request for a lock comes; the alert fires, and resolves."""
    private_zookeeper.start()
    gateway = start_gateway(zookeeper=private_zookeeper, metrics=True,
                            session_timeout="6s")
    prometheus = start_prometheus(gateway)
    wait_until(lambda: prometheus.query("zk_lock_session_alive_seconds > 0"),
               FAR, "Prometheus has asked")
    assert "ZkLockOutOfZooKeeper" not in prometheus.alerts("firing")
    private_zookeeper.freeze()
    wait_until(lambda: "ZkLockOutOfZooKeeper" in prometheus.alerts("firing"),
               FAR, "the alert fires")
    assert "ZkLockGatewayDown" not in prometheus.alerts("firing")
    private_zookeeper.thaw()
    wait_until(lambda: "ZkLockOutOfZooKeeper" not in (
        prometheus.alerts("firing") | prometheus.alerts("pending")),
        FAR, "the alert resolves")


def test_gateway_down(start_gateway, start_prometheus):
    gateway = start_gateway(metrics=True)
    prometheus = start_prometheus(gateway)
    wait_until(lambda: prometheus.query("up == 1"), FAR)
    gateway.stop()
    wait_until(lambda: "ZkLockGatewayDown" in prometheus.alerts("firing"),
               FAR, "the alert fires")
    gateway.start()
    wait_until(lambda: "ZkLockGatewayDown" not in prometheus.alerts("firing"),
               FAR, "the alert resolves")
