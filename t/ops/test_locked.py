"""The short script of docs/recipes.md, a command under a lock."""

import itertools

import pytest

from lib import examples
from lib.jobs import (OUT_OF_REACH, TAKEN, USAGE, gateway_that_says, is_free)
from lib.process import free_port

LOCKED = ("docs/recipes.md", "A command under a lock")
NUMBERS = itertools.count(1)


@pytest.fixture
def name():
    """A lock that only this test uses."""
    return "lock%d" % next(NUMBERS)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_locked(start_script, shared_gateway, tmp_path, name, job, shell):
    """The short script of docs/recipes.md."""
    path = tmp_path / "locked"
    path.write_text(examples.code(*LOCKED))
    script = start_script(shell, str(path), name, *job.command, environment={
        "LOCKS": "http://127.0.0.1:%d/locks" % shared_gateway.port})
    job.wait_running()
    holder, = shared_gateway.inspect(name).json["holders"]
    assert job.lines()[0].split()[1] == str(holder["fencing_token"])
    job.go()
    assert script.wait() == 3
    assert is_free(shared_gateway, name)
    assert script.said() == ""


@pytest.fixture
def start_locked(start_script, tmp_path, job):
    """A function that runs the short script at a URL, with the job."""
    path = tmp_path / "locked"
    path.write_text(examples.code(*LOCKED))

    def start(url, name, *command):
        return start_script("sh", str(path), name, *(command or job.command),
                            environment={"LOCKS": url})

    return start


@pytest.mark.parametrize("status, code", [
    (423, TAKEN), (429, OUT_OF_REACH), (500, OUT_OF_REACH),
    (502, OUT_OF_REACH), (503, OUT_OF_REACH), (301, USAGE), (400, USAGE),
    (403, USAGE), (404, USAGE), (409, USAGE)])
def test_locked_is_not_granted(start_locked, job, name, status, code):
    """75 is for a lock that is taken, and for no other refusal."""
    with gateway_that_says(b'{"detail":"this is why"}',
                           status=status) as gateway:
        script = start_locked(gateway.url, name)
        assert script.wait() == code
        assert gateway.joined == 1
    assert job.lines() == []
    assert script.said().startswith("locked: ")
    assert "is taken" in script.said() if status == 423 else (
        str(status) in script.said() and "this is why" in script.said())


def test_locked_by_its_name(start_locked, shared_gateway, job, name):
    url = "http://127.0.0.1:%d" % shared_gateway.port
    for path, wrong in (("/locks", ".."), ("/locks", "team/"),
                        ("/locks", "a b"), ("/locks", ""), ("/lock", name)):
        script = start_locked(url + path, wrong)
        assert script.wait() == USAGE, wrong
        assert script.said().startswith("locked: ") or "curl: " in (
            script.said())
    assert job.lines() == []


def test_locked_without_a_command(start_script, tmp_path, name):
    """The script prints the usage, and sends no request."""
    path = tmp_path / "locked"
    path.write_text(examples.code(*LOCKED))
    with gateway_that_says(b"") as gateway:
        for arguments in (), (name,):
            script = start_script("sh", str(path), *arguments,
                                  environment={"LOCKS": gateway.url})
            assert script.wait() == USAGE
            assert "COMMAND" in script.said()
        assert gateway.joined == 0


def test_locked_without_a_gateway(start_locked, start_gateway, job, name):
    port = free_port()
    assert start_locked("http://127.0.0.1:%d/locks" % port, name
                        ).wait() == OUT_OF_REACH
    gateway = start_gateway(servers="127.0.0.1:%d" % port,
                            wait_sessions=False, location="zk_lock_wait 2s;")
    script = start_locked("http://127.0.0.1:%d/locks" % gateway.port, name)
    assert script.wait(60.0) == OUT_OF_REACH
    assert "503" in script.said()
    assert job.lines() == []
