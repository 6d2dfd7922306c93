"""zk-lock lead, join and watch, with election.conf and live-servers.conf."""

import json
import signal

import pytest

from lib.jobs import ZK_LOCK
from lib.process import alive, wait_until


def example_url(example):
    return {"ZK_LOCK_URL": "http://127.0.0.1:%d/locks" % example.ports[8080]}


class Candidate:
    """zk-lock lead, with a command that shows when it runs, and never beside
    the command of another candidate, unless the lock was taken away by force.
    """

    COMMAND = """
        mkdir "$0.room" || [ -e "$0.taken" ] || echo overlap >> "$0.bad"
        trap 'rmdir "$0.room"; exit 5' TERM
        echo "$1 $$ $LOCK_FENCING_TOKEN" >> "$0"
        until [ -e "$0.go" ]; do sleep 0.02; done
        rmdir "$0.room"
        exit 3
    """

    def __init__(self, start_script, example, directory, name):
        self.name = name
        self.script = start_script(
            ZK_LOCK, "lead", "-t", "15", "-o", name, "scheduler", "--", "sh",
            "-c", self.COMMAND, str(directory / "leaders"), name,
            environment=example_url(example))


class Term:
    def __init__(self, name, pid, fencing):
        self.name = name
        self.pid = int(pid)
        self.fencing = int(fencing)


def test_election(make_example, start_script, tree, tmp_path):
    """The leader leaves, is killed, and loses the lock; a new leader follows
    each time.  After the first two changes the new leader starts when the last
    leader's command has ended.
    """
    example = make_example("election.conf").start()
    znode = example.znode("/locks/scheduler")
    listener = start_script("sh", "-c", "exec " + example.blocks[1])
    candidates = {name: Candidate(start_script, example, tmp_path, name)
                  for name in ("one", "two", "three", "four")}
    terms = []

    def leader():
        """The next term."""
        lines = wait_until(lambda: started(len(terms)), 30.0, "a new leader")
        terms.append(Term(*lines[len(terms)].split()))
        assert len(lines) == len(terms)
        return terms[-1]

    def heard_of(term):
        lines = [line for line in listener.said().split("\n")[:-1]
                 if '"holders"' in line]
        return lines != [] and [holder["owner"] for holder in json.loads(
            lines[-1])["holders"]] == [term.name]

    def started(number):
        try:
            lines = (tmp_path / "leaders").read_text().splitlines()
        except FileNotFoundError:
            return None
        return lines if len(lines) > number else None

    first = leader()
    wait_until(lambda: heard_of(first), 20.0, "the first is known")
    tree.wait_claims(znode, 4, 20)
    script = candidates[first.name].script
    script.signal(signal.SIGTERM)
    second = leader()
    assert script.wait() == 5
    assert not alive(first.pid)

    script = candidates[second.name].script
    script.signal(signal.SIGKILL)
    third = leader()
    wait_until(lambda: heard_of(third), 20.0, "the third is known")
    assert not alive(second.pid)
    assert script.wait() == -signal.SIGKILL

    # a candidate whose claim is taken away is a candidate again after learning
    # of the loss, which may be later than the next leader's start
    (tmp_path / "leaders.taken").touch()
    tree.delete(znode + "/" + tree.claims(znode)[0])
    fourth = leader()
    assert fourth.name != third.name
    wait_until(lambda: not alive(third.pid), 20.0, "the third has ended")
    tree.wait_claims(znode, 2, 20)

    # a candidate whose command ends does not come back
    (tmp_path / "leaders.go").touch()
    for name in third.name, fourth.name:
        assert candidates[name].script.wait() == 3
    fifth = leader()
    assert fifth.name == third.name

    fencing = [term.fencing for term in terms]
    assert fencing == sorted(set(fencing))
    assert not (tmp_path / "leaders.bad").exists()
    tree.wait_claims(znode, 0)
    listener.signal(signal.SIGTERM)


# live servers

@pytest.fixture
def live_servers(start_script, make_example):
    """A function that starts zk-lock, and the gateway."""
    example = make_example("live-servers.conf").start()

    def start(*arguments):
        return start_script(ZK_LOCK, *arguments,
                            environment=example_url(example))

    return start, example


def test_live_servers(live_servers, tmp_path):
    start, _ = live_servers
    healthy = tmp_path / "healthy"
    watcher = start("watch", "--owners", "web")
    wait_until(lambda: watcher.said() == "\n", what="nobody is there")

    def wait_list(*addresses):
        """The watcher and a list call see the same servers."""
        wait_until(lambda: (sorted(watcher.said().splitlines()[-1].split())
                            == sorted(addresses)),
                   30.0, "the list is %s" % (addresses,))
        script = start("show", "--owners", "web")
        assert script.wait() == 0
        assert sorted(script.said().split()) == sorted(addresses)

    servers = {}
    for number in range(4):
        address = "10.0.0.%d:80" % number
        check = ("test", "-e", str(healthy)) if number == 3 else ()
        servers[address] = start("join", "-t", "30", "web", address, *check)
    one, two, three, ill = servers
    wait_list(one, two, three)
    healthy.touch()
    wait_list(one, two, three, ill)

    servers[one].signal(signal.SIGTERM)
    wait_list(two, three, ill)
    assert servers[one].wait() == 128 + signal.SIGTERM

    # the gateway's next event reveals both
    servers[two].signal(signal.SIGKILL)
    healthy.unlink()
    wait_list(three)
    healthy.touch()
    wait_list(three, ill)

    for address in three, ill:
        servers[address].signal(signal.SIGTERM)
    wait_list()
    watcher.signal(signal.SIGTERM)


def test_live_servers_lose_their_gateway(live_servers):
    """The servers are listed again when the gateway is back."""
    start, example = live_servers
    server = start("join", "web", "10.0.0.1:80")

    def is_listed():
        return example.call("GET", "/locks/web").status == 200

    wait_until(is_listed, 20.0, "it is listed")
    example.gateway.terminate()
    example.gateway.start()
    wait_until(is_listed, 20.0, "it is listed again")
    server.signal(signal.SIGTERM)
    assert server.wait() == 128 + signal.SIGTERM


def test_live_servers_are_joined_from_within(live_servers):
    """Other addresses may look, but not join."""
    _, example = live_servers
    assert example.call("GET", "/locks/web", source="127.0.0.2").status == 404
    for method in "POST", "PUT", "DELETE":
        assert example.call(method, "/locks/web", source="127.0.0.2"
                            ).status == 403
