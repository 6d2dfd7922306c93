"""What docs/clients.md shows: a program in each language, and the CORS."""

import os
import shutil
import subprocess
import sys

import pytest

from lib.checks import problem
from lib.drivers import (CLIENTS, LANGUAGES, build_go, build_java, tool)
from lib.examples import code

PAGE = "docs/clients.md"
ORIGIN = "https://app.example.com"
MOD = "module nightly\ngo 1.19\nrequire zklock v0.0.0\nreplace zklock => %s\n"


def python(directory, source):
    shutil.copy(os.path.join(CLIENTS, "python", "zk_lock.py"), str(directory))
    return [sys.executable, write(directory, "nightly.py", source)]


def node(directory, source):
    shutil.copy(os.path.join(CLIENTS, "node", "zk-lock.mjs"), str(directory))
    return [tool("node", "nodejs"), write(directory, "nightly.mjs", source)]


def go(directory, source):
    write(directory, "go.mod", MOD % os.path.join(CLIENTS, "go"))
    write(directory, "main.go", source)
    return build_go(directory, directory / "nightly")


def java(directory, source):
    return build_java(directory, write(directory, "Nightly.java", source))


PROGRAMS = {"python": python, "node": node, "go": go, "java": java}


def write(directory, name, text):
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("variables", [("LOCKS",), ("ZK_LOCK_URL", "LOCKS")])
@pytest.mark.parametrize("language", LANGUAGES)
def test_program(shared_gateway, tmp_path, language, variables):
    """The program of the page holds the lock, and lets go.  Of two variables
    the first counts.
    """
    command = PROGRAMS[language](tmp_path, code(PAGE, language.capitalize()))
    url = "http://127.0.0.1:%d/locks" % shared_gateway.port
    said = subprocess.run(command, check=True, encoding="utf-8", timeout=60,
                          stdout=subprocess.PIPE,
                          env=dict(os.environ, **dict(
                              {"LOCKS": "http://127.0.0.1:1/"},
                              **{variables[0]: url}))).stdout
    first, second, third = [line.split() for line in said.splitlines()]
    assert first[:2] == ["step", "0"] and third[:2] == ["step", "2"]
    assert int(first[2]) == int(second[2]) == int(third[2]) > 0
    assert shared_gateway.inspect("nightly").status == 404


@pytest.fixture
def web(start_gateway):
    """A gateway that has the location of the page at another path."""
    http, server = code(PAGE, "Browsers").split("server {")
    location = server.split("listen 8080;")[1].rstrip().rstrip("}")
    gateway = start_gateway(http=http, server=location.replace("/locks/",
                                                               "/web/"))

    def call(method, path="/web/x", query=None, headers=(), origin=ORIGIN):
        return gateway.call(method, path, query,
                            dict(headers, Origin=origin))

    return call


def listed(response, field):
    """The lower-case words of a list, which may have several fields."""
    return {word.strip().lower() for value in response.headers.all(field)
            for word in value.split(",")}


def test_preflight(web):
    answer = web("OPTIONS", headers={
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "lock-token"})
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert {"put", "post", "delete", "get"} <= listed(
        answer, "Access-Control-Allow-Methods")
    assert {"lock-token", "idempotency-key", "authorization"} <= listed(
        answer, "Access-Control-Allow-Headers")


def test_answers_to_a_page(web):
    """Grants and refusals are readable for the page of the origin."""
    grant = web("POST", query={"ttl": "20s"})
    assert grant.status == 201
    taken = web("POST", query={"wait": "0"})
    problem(taken, 423)
    missing = web("PUT", headers={"Lock-Token": "nonsense"})
    problem(missing, 404)
    bad = web("POST", query={"ttl": "0"})
    problem(bad, 400)
    freed = web("DELETE", headers={"Lock-Token": grant.token})
    assert freed.status == 204
    for answer in grant, taken, missing, bad, freed:
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "origin" in listed(answer, "Vary")
        assert {"lock-token", "lock-fencing-token", "retry-after"} <= listed(
            answer, "Access-Control-Expose-Headers")


def test_another_origin(web):
    for method in "OPTIONS", "GET":
        answer = web(method, origin="https://elsewhere.example.com")
        assert "Access-Control-Allow-Origin" not in answer.headers
