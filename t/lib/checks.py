"""What an answer to any call of the API has to look like."""

import re
import time

from lib.client import lock_path

# Terraform reads these names from any refusal, in any case of letters
TERRAFORM = {"id", "info", "who", "path", "version", "created", "operation"}

TOKEN = re.compile(r"^[A-Za-z0-9_-]{22,200}$")
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")


def problem(response, status, *words):
    """A refusal in the form of RFC 9457; the detail has all of the words."""
    assert response.status == status, response
    media_type = response.headers["Content-Type"].split(";")[0]
    assert media_type == "application/problem+json", response.headers.pairs
    content = response.json
    for member in ("type", "title", "status", "detail"):
        assert member in content, content
    assert content["status"] == status, content
    assert content["title"] and content["detail"], content
    assert not TERRAFORM & {key.lower() for key in content}, content
    for word in words:
        assert word.lower() in content["detail"].lower(), content
    return content


def wait_over(response, *gateways):
    """The wait of an acquire is over: 423."""
    if not stalled(response, *gateways):
        problem(response, 423)


def stalled(response, *gateways):
    """Whether a wait ended with 503, which is right if ZooKeeper stalled then,
    as the log of a gateway tells.
    """
    return response.status == 503 and any(gateway.told_of_outage()
                                          for gateway in gateways)


def retry_after(response):
    """The seconds after which a repeat may succeed."""
    seconds = int(response.headers["Retry-After"])
    assert 0 <= seconds <= 3600
    return seconds


def left_at_least(response, granted):
    """Whether a lease that began after `granted` has as much left as it must.

    The machine may stand still between the grant and the look; nginx's clock
    may be some milliseconds behind.
    """
    spent = (time.monotonic() - granted) * 1000
    return response["expires_in_ms"] >= response["ttl_ms"] - spent - 100


def grant(response, name, status=201, prefix="/locks/"):
    """A grant, with all members that the answer to a grant has."""
    assert response.status == status, response
    assert response.headers["Content-Type"].split(";")[0] == "application/json"
    content = response.json
    assert content["name"] == name
    assert content["state"] == "held"
    assert content["mode"] == "exclusive"
    assert TIME.match(content["since"]), content
    assert TOKEN.match(content["token"]), content
    assert isinstance(content["fencing_token"], int), content
    assert 0 < content["fencing_token"] < 1 << 63
    assert 0 < content["ttl_ms"]
    assert 0 < content["expires_in_ms"] <= content["ttl_ms"]
    assert response.headers["Lock-Token"] == content["token"]
    assert (response.headers["Lock-Fencing-Token"]
            == str(content["fencing_token"]))
    if status == 201:
        assert 0 <= content["waited_ms"]
        assert response.headers["Location"].endswith(
            lock_path(name, content["token"], prefix))
    return content


def may_be_over(sent, response):
    """Whether a granted lease may be over: the answer may be read late.

    The lease began after the wait, which is told up to the answer, and the
    answer may come a moment after the grant.
    """
    content = response.json
    told = content["waited_ms"] + content["ttl_ms"] - 50
    return time.monotonic() >= sent + told / 1000


def gone(gateway, name, token, worker=None):
    """Every call with the token is told that the claim is gone."""
    for response in (gateway.inspect(name, token, worker=worker),
                     gateway.renew(name, token, worker=worker),
                     gateway.release(name, token, worker=worker)):
        problem(response, 410)
