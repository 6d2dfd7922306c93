"""conf-examples/terraform.conf: states, and the locks of Terraform."""

import os
import re
import shutil

import pytest

from lib.checks import problem
from lib.examples import basic
from lib.process import wait_until


def run_info(number, who):
    """What Terraform sends with LOCK and UNLOCK."""
    return {"ID": "6f8c1e0e-0000-0000-0000-%012d" % number,
            "Operation": "OperationTypeApply", "Info": "", "Who": who,
            "Version": "1.11.4", "Created": "2026-11-21T13:28:37.123456789Z",
            "Path": ""}


@pytest.fixture
def terraform_backend(make_example, tree):
    example = make_example("terraform.conf")
    tree.make(example.chroot)       # else the first durable lease gets 500
    prefix = example.gateway.prefix
    os.makedirs(os.path.join(prefix, "terraform", "state"))
    example.shell("password() { openssl passwd -apr1 $1; }\n"
                  "echo root:$(password secret) > lock-admins\n"
                  "cat lock-admins > lock-users\n"
                  "echo alice:$(password secret) >> lock-users\n")
    return example.start()


def test_terraform_backend(terraform_backend):
    """The calls that Terraform makes, for states and for locks."""
    def call(method, path, body=None, user="alice", query=None):
        return terraform_backend.call(method, path, query,
                                      basic(user, "secret"), body)

    one, other = run_info(1, "alice@one"), run_info(2, "alice@other")
    for method in "GET", "PUT", "DELETE":
        assert terraform_backend.call(method, "/state/prod").status == 401
    for method in "LOCK", "UNLOCK":
        assert terraform_backend.call(method, "/locks/prod", body=one
                                      ).status == 401

    assert call("LOCK", "/locks/prod", one).status == 200
    assert call("LOCK", "/locks/prod", one).status == 200
    response = call("LOCK", "/locks/prod", other)
    assert response.status == 423
    assert response.json["ID"] == one["ID"]
    assert response.json["Who"] == "alice@one"
    assert call("UNLOCK", "/locks/prod", other).status == 409

    assert call("GET", "/state/prod").status == 404
    for serial, status in (1, 201), (2, 204):
        assert call("PUT", "/state/prod", {"serial": serial},
                    query={"ID": one["ID"]}).status == status
        assert call("GET", "/state/prod").json == {"serial": serial}
    waiter = terraform_backend.connect().send(
        "LOCK", "/locks/prod", {"wait": "60s"}, basic("alice", "secret"),
        other)
    wait_until(lambda: call("GET", "/locks/prod").json["queued"] == 1)
    assert call("UNLOCK", "/locks/prod", one).status == 200
    assert waiter.response().status == 200

    # an admin breaks a lock that was left behind
    assert call("UNLOCK", "/locks/prod").status == 403
    assert call("UNLOCK", "/force/prod").status == 401
    assert call("UNLOCK", "/force/prod", user="root").status == 200
    assert call("LOCK", "/locks/prod", one).status == 200
    assert call("UNLOCK", "/locks/prod", one).status == 200
    assert call("GET", "/locks/prod").status == 404


def test_terraform_state_needs_its_lock(terraform_backend):
    """A state is written by the run that holds the state's lock alone."""
    def call(method, path, body=None, identity=None, user="alice"):
        return terraform_backend.call(
            method, path, {"ID": identity} if identity else None,
            basic(user, "secret"), body)

    def put(serial, identity=None, state="/state/team/prod"):
        return call("PUT", state, {"serial": serial}, identity)

    one, other = run_info(1, "alice@one"), run_info(2, "alice@other")
    first, second = one["ID"], other["ID"]
    lock = "/locks/team%2Fprod"

    problem(put(1), 423)
    problem(put(1, "anything"), 412)
    assert call("LOCK", lock, one).status == 200
    assert put(1, first).status == 201
    for identity, status in (None, 423), ("anything", 412), (second, 412):
        problem(put(9, identity), status)
        problem(call("DELETE", "/state/team/prod", None, identity), status)
    problem(put(9, first, "/state/prod"), 412)
    assert call("GET", "/state/team/prod").json == {"serial": 1}

    # the holder of "team/" deletes no state in the folder
    folder = run_info(3, "alice@folder")
    assert call("LOCK", "/locks/team%2F", folder).status == 200
    assert call("DELETE", "/state/team/", None, folder["ID"]).status >= 400
    assert call("UNLOCK", "/locks/team%2F", folder).status == 200
    assert call("GET", "/state/team/prod").json == {"serial": 1}

    # an admin breaks the lock: the first run is late
    assert call("UNLOCK", "/force/team%2Fprod", user="root").status == 200
    problem(put(9, first), 412)
    assert call("LOCK", lock, other).status == 200
    problem(put(9, first), 412)
    assert put(2, second).status == 204
    assert call("GET", "/state/team/prod").json == {"serial": 2}
    assert call("UNLOCK", lock, other).status == 200
    problem(put(9, second), 412)


RESOURCE = """
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "echo >> running; until [ -e go ]; do sleep 0.05; done"
  }
}
"""


APPLY = ("apply", "-auto-approve", "-input=false", "-no-color")


@pytest.fixture
def terraform(terraform_backend, start_script, tmp_path):
    """A function that starts Terraform, with the backend of the comment."""
    if not shutil.which("terraform"):
        pytest.skip("no Terraform here")
    config = tmp_path / "terraformrc"
    config.write_text("disable_checkpoint = true\n")
    environment = {"TF_CLI_CONFIG_FILE": str(config), "TF_IN_AUTOMATION": "1",
                   "TF_HTTP_USERNAME": "alice", "TF_HTTP_PASSWORD": "secret"}

    def start(*arguments):
        return start_script("terraform", *arguments, environment=environment)

    (tmp_path / "main.tf").write_text(terraform_backend.blocks[0] + RESOURCE)
    initial = start("init", "-input=false", "-no-color")
    assert initial.wait(60) == 0, initial.said()
    return start


def break_lock(terraform_backend):
    """The command of the comment."""
    terraform_backend.shell(terraform_backend.blocks[1].replace(
        "NAME:PASSWORD", "root:secret"))


def test_terraform(terraform_backend, terraform, tmp_path):
    """Terraform itself: a lock that is taken, and one that is left behind."""
    first = terraform(*APPLY)
    wait_until((tmp_path / "running").exists, 60.0, "Terraform runs")
    second = terraform(*APPLY)
    assert second.wait(60) == 1
    assert "Error acquiring the state lock" in second.said()
    identity = re.search(r"ID: +([0-9a-f-]{36})", second.said()).group(1)

    # the first Terraform dies, and leaves the lock
    first.kill()
    assert terraform(*APPLY).wait(60) == 1
    assert terraform("force-unlock", "-force", identity).wait(60) == 1
    break_lock(terraform_backend)

    (tmp_path / "go").touch()
    last = terraform(*APPLY)
    assert last.wait(60) == 0, last.said()
    state = terraform_backend.call("GET", "/state/prod", None,
                                   basic("alice", "secret")).json
    assert [resource["name"] for resource in state["resources"]] == ["x"]
    assert terraform_backend.call("GET", "/locks/prod", None,
                                  basic("alice", "secret")).status == 404


def test_terraform_comes_too_late(terraform_backend, terraform, tmp_path):
    """A run whose lock was broken does not write the state."""
    run = terraform(*APPLY)
    wait_until((tmp_path / "running").exists, 60.0, "Terraform runs")
    break_lock(terraform_backend)
    (tmp_path / "go").touch()
    assert run.wait(60) == 1
    assert "412" in run.said()
    assert terraform_backend.call("GET", "/state/prod", None,
                                  basic("alice", "secret")).status == 404

    push = terraform("state", "push", "errored.tfstate")
    assert push.wait(60) == 0, push.said()
    assert terraform_backend.call("GET", "/state/prod", None,
                                  basic("alice", "secret")).status == 200


def test_terraform_without_the_lock(terraform_backend, terraform, tmp_path):
    """-lock=false: Terraform may look, and writes nothing."""
    (tmp_path / "go").touch()
    assert terraform("plan", "-lock=false", "-no-color").wait(60) == 0
    run = terraform(*APPLY, "-lock=false")
    assert run.wait(60) == 1
    assert "423" in run.said()
    assert terraform_backend.call("GET", "/state/prod", None,
                                  basic("alice", "secret")).status == 404
