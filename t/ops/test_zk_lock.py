"""zk-lock does what zk-lock(1) says."""

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from lib.gateway import TREE
from lib.jobs import (LOST, NO_START, OUT_OF_REACH, TAKEN, TOO_LONG, USAGE,
                      ZK_LOCK, Job, gateway_that_says, is_free)
from lib.process import alive, free_port, wait_until, whole_lines
from lib.wire import Wire

NUMBERS = itertools.count(1)


def url(port, path="/locks"):
    return "http://127.0.0.1:%d%s" % (port, path)


@pytest.fixture
def name():
    """A lock that only this test uses."""
    return "lock%d" % next(NUMBERS)


@pytest.fixture
def zk_lock(start_script, shared_gateway):
    """A function that starts zk-lock, with a URL in the environment."""
    def start(*arguments, gateway=shared_gateway, prefix=(), environment=(),
              **options):
        return start_script(
            *prefix, ZK_LOCK, *arguments, environment=dict(
                environment, ZK_LOCK_URL=url(gateway.port)), **options)

    return start


@pytest.fixture
def zk_run(zk_lock):
    def start(*arguments, **options):
        return zk_lock("run", *arguments, **options)

    return start


@pytest.fixture
def show(zk_lock):
    """A function that calls zk-lock, and returns the text."""
    def call(*arguments, status=0, **options):
        script = zk_lock(*arguments, **options)
        assert script.wait() == status, script.said()
        return script.said()

    return call


def take_away(gateway, tree, name):
    """Deletes the only claim; the holder has lost the lock."""
    claim, = tree.claims(gateway.znode(name))
    tree.delete(gateway.znode(name) + "/" + claim)


def expires_in(gateway, name):
    """The milliseconds that are left of the holder's lease."""
    holder, = gateway.inspect(name).json["holders"]
    return holder["expires_in_ms"]


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(child) for child in file.read().split()]


def command_line(pid):
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        return file.read()


def lease_end(gateway, name):
    """When the holder's lease is over, or a moment before."""
    asked = time.time()
    return asked + expires_in(gateway, name) / 1000


def test_run(zk_run, shared_gateway, name, job):
    script = zk_run("-o", "nobody&co=1", name, *job.command)
    job.wait_running()
    holder, = shared_gateway.inspect(name).json["holders"]
    assert holder["owner"] == "nobody&co=1"
    assert job.lines()[0].split()[1] == str(holder["fencing_token"])
    job.go()
    assert script.wait() == 3
    assert job.lines()[1:] == ["done"]
    assert is_free(shared_gateway, name)
    assert script.said() == ""


def test_run_in_a_fleet(zk_run, shared_gateway, name, job):
    """Eight at the same minute: one script runs the job, seven do not."""
    fleet = [zk_run(name, *job.command) for _ in range(8)]
    wait_until(lambda: [script.process.poll() for script in fleet
                        ].count(TAKEN) == 7, 30.0, "seven have found it taken")
    job.go()
    assert sorted(script.wait() for script in fleet) == [3] + 7 * [TAKEN]
    assert len(job.lines()) == 2
    assert is_free(shared_gateway, name)


@pytest.mark.parametrize("command, code", [
    ("true", 0), ("exit 1", 1), ("exit 70", 70), ("exit 127", 127),
    ("kill -s KILL $$", 137), ("kill -s INT $$; exit 4", 130),
    ("exec /nonexistent/command", 127)])
def test_run_passes_on_the_exit_code(zk_run, shared_gateway, name,
                                          command, code):
    assert zk_run(name, "sh", "-c", command).wait() == code
    assert is_free(shared_gateway, name)


def test_run_without_a_command(zk_run, shared_gateway, name):
    for arguments in (), (name,), (name, "--"):
        assert zk_run(*arguments).wait() == USAGE
    assert zk_run(name, "/nonexistent/command").wait() == 127
    assert is_free(shared_gateway, name)


def test_run_takes_any_name(zk_run, show, shared_gateway, name):
    """A name is a text, and neither a URL nor a list of URLs."""
    for more in ("{1,2}", "[1-2]", "?owner=me", "#1", "/a b", "%2Fc", "\u00e4"):
        script = zk_run(name + more, "sh", "-c", "echo $LOCK_FENCING_TOKEN")
        assert script.wait() == 0, script.said()
        assert int(script.said())
    for more in ("", "1", "2"):
        assert is_free(shared_gateway, name + more)
    for wrong in "", ".", "..":
        script = zk_run(wrong, "true")
        assert script.wait() == USAGE and "NAME" in script.said()


def test_run_of_a_name_that_is_refused(zk_run):
    script = zk_run("%sha1-" + "0" * 40, "true")
    assert script.wait() == USAGE
    assert "400" in script.said() and "%sha1-" in script.said()


def test_run_is_refused(start_script):
    with gateway_that_says(b'{"detail":"no \\u001b[2J name"}', status=400
                           ) as gateway:
        script = start_script(ZK_LOCK, "run", "-w", "60", "-u", gateway.url,
                              "x", "true")
        assert script.wait() == USAGE
    assert "400 no \\u001b[2J name" in script.said()
    assert len(gateway.paths) == 1


def test_run_of_a_name_with_slashes(zk_run, shared_gateway, name, job):
    """Each slash is %252F, which no proxy decodes to a slash."""
    wire = Wire(shared_gateway.port)
    script = zk_run("team/x/" + name, *job.command, gateway=wire)
    job.wait_running()
    assert b"POST /locks/team%252Fx%252F" + name.encode() in wire.asked
    assert not is_free(shared_gateway, "team/x/" + name)
    job.go()
    assert script.wait() == 3
    wire.close()


WRONG = [
    (("run", "-w", "5x"), "-w"), (("run", "-w", "08"), "-w"),
    (("run", "--wait=1h30m"), "--wait"), (("run", "-g", ""), "-g"),
    (("run", "-m", "1.5"), "-m"), (("run", "-x"), "-x"), (("run", "-w"), "-w"),
    (("run",), "NAME"), (("run", "-t", "5"), "--ttl"),
    (("run", "-t5s"), "--ttl"), (("run", "-g", "9"), "--grace"),
    (("run", "--permits", "0"), "--permits"),
    (("run", "--permits", "few"), "--permits"),
    (("run", "--shared=yes"), "--shared"), (("run", "--all"), "--all"),
    (("lead", "--wait", "1"), "--wait"), (("lead",), "COMMAND"),
    (("join", "x"), "ADDRESS"), (("ls", "--sort", "name"), "--sort"),
    (("ls", "x"), '"x"'), (("show",), "NAME"), (("show", "x", "y"), '"y"'),
    (("watch",), "NAME"), (("break", "x"), "TOKEN"),
    (("break", "x", "y"), '"y"'), (("break", "x", "7", "--all"), "--all"),
    (("drain",), "status"), (("drain", "maybe"), "status"), ((), "command"),
    (("lock",), '"lock"')]


@pytest.mark.parametrize("arguments, word", WRONG)
def test_which_argument_is_wrong(zk_lock, arguments, word):
    """A line names the argument, and a second line tells the usage."""
    if arguments[:1] == ("run",) and len(arguments) > 1 and (
            arguments not in ((("run", "-w")),)):
        arguments += ("x", "true")
    script = zk_lock(*arguments)
    assert script.wait() == USAGE
    lines = script.said().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("zk-lock: ") and word in lines[0]
    assert lines[1].startswith("usage: zk-lock ")


def test_run_is_a_filter(zk_run, name):
    read, write = os.pipe()
    script = zk_run(name, "tr", "a-z", "A-Z", stdin=read)
    os.close(read)
    with open(write, "w") as file:
        file.write("what it reads\n")
    assert script.wait() == 0
    assert script.said() == "WHAT IT READS\n"


def test_run_waits(zk_run, shared_gateway, tree, name, job):
    response = shared_gateway.hold(name)
    script = zk_run("-w", "60", name, *job.command)
    tree.wait_claims(shared_gateway.znode(name), 2)
    assert job.lines() == []
    shared_gateway.release(name, response.token)
    job.wait_running()
    job.go()
    assert script.wait() == 3


def test_run_waits_and_the_wait_is_over(start_script, name):
    """No try says that it waits for less than nothing."""
    with gateway_that_says(b"{}", status=503) as gateway:
        script = start_script(ZK_LOCK, "run", "-w", "2", "-u", gateway.url,
                              name, "true")
        assert script.wait() == OUT_OF_REACH, script.said()
    assert len(gateway.paths) > 1
    assert not [path for path in gateway.paths if "wait=-" in path]


def test_run_learns_of_its_grant_too_late(zk_run, wire, shared_gateway, name,
                                          job):
    """No command begins when the lease may be over before its end."""
    wire.hold()
    script = zk_run("-t", "8", name, *job.command, gateway=wire)
    wait_until(lambda: b"201 Created" in wire.answered, 20.0, "the grant")
    wait_until(lambda: is_free(shared_gateway, name), 20.0, "it is over")
    wire.go()
    assert script.wait() == OUT_OF_REACH, script.said()
    assert job.lines() == []
    assert is_free(shared_gateway, name)


def test_run_where_the_gateway_names_the_owner(zk_run, start_gateway, name,
                                               job):
    """Which refuses any owner: without an owner the lock is granted."""
    gateway = start_gateway(location="zk_lock_owner gateway;")
    refused = zk_run(name, "true", gateway=gateway)
    assert refused.wait() == USAGE and "owner" in refused.said()
    script = zk_run("-o", "", name, *job.command, gateway=gateway)
    job.wait_running()
    holder, = gateway.inspect(name).json["holders"]
    assert holder["owner"] == "gateway"
    job.go()
    assert script.wait() == 3


def test_run_waits_for_nothing(zk_run, shared_gateway, name, job):
    response = shared_gateway.hold(name)
    script = zk_run("-w", "1", name, *job.command)
    assert script.wait() == TAKEN
    assert job.lines() == []
    shared_gateway.release(name, response.token)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP,
                                 signal.SIGKILL])
def test_run_ends_while_it_waits(zk_run, shared_gateway, tree, name,
                                      job, how):
    response = shared_gateway.hold(name)
    script = zk_run("-w", "60", name, *job.command)
    tree.wait_claims(shared_gateway.znode(name), 2)
    script.signal(how)
    assert script.wait() == (128 + how if how != signal.SIGKILL else -how)
    tree.wait_claims(shared_gateway.znode(name), 1)
    shared_gateway.release(name, response.token)
    script.wait_gone()
    assert job.lines() == []


def test_run_keeps_the_lock_for_a_while(zk_run, shared_gateway, tree,
                                             name, job):
    """A machine with a late clock comes when the job is done already."""
    job.go()
    assert zk_run("-m", "60", name, *job.command).wait() == 3
    assert zk_run("-m", "60", name, *job.command).wait() == TAKEN
    assert len(job.lines()) == 2
    assert 10000 < expires_in(shared_gateway, name) <= 61000
    take_away(shared_gateway, tree, name)


def test_run_keeps_the_lock_for_less(zk_run, start_gateway, tree, name):
    """Of what the gateway cuts the user is told."""
    gateway = start_gateway(location="zk_lock_max_ttl 20s;")
    script = zk_run("-m", "10", name, "true", gateway=gateway)
    assert script.wait() == 0 and script.said() == ""
    script = zk_run("-m", "60", name + "-2", "true", gateway=gateway)
    assert script.wait() == 0 and "20000 ms" in script.said()
    for each in name, name + "-2":
        take_away(gateway, tree, each)


def test_run_renews(zk_run, shared_gateway, name, job):
    script = zk_run("-t", "12", name, *job.command)
    job.wait_running()
    seen = [12000]

    def is_renewed():
        seen.append(expires_in(shared_gateway, name))
        return seen[-1] > seen[-2]

    for _ in range(2):
        wait_until(is_renewed, 20.0, "a renewal")
    job.go()
    assert script.wait() == 3
    assert is_free(shared_gateway, name)


@pytest.fixture
def wire(shared_gateway):
    """A wire to the shared gateway."""
    wire = Wire(shared_gateway.port)
    yield wire
    wire.close()


def token_of(wire):
    return re.search(b'"token":"(.*?)"', wire.answered).group(1).decode()


def test_run_keeps_the_secret(zk_run, wire, shared_gateway, tmp_path, name):
    """The token is in no argument and in no environment."""
    job = Job(tmp_path, before='env > "$0.env"\n')
    script = zk_run("-t", "12", name, *job.command, gateway=wire)
    job.wait_running()
    token = token_of(wire)
    assert shared_gateway.inspect(name, token).json["state"] == "held"
    for pid in script.processes():
        for part in "cmdline", "environ":
            with contextlib.suppress(FileNotFoundError), open(
                    "/proc/%d/%s" % (pid, part), "rb") as file:
                assert token.encode() not in file.read()
    wait_until(lambda: b"PUT " in wire.asked, 20.0, "a renewal")
    job.go()
    assert script.wait() == 3
    assert b"DELETE " in wire.asked
    assert token not in (tmp_path / "job.env").read_text()


@pytest.mark.parametrize("how", ["TERM", "HUP", "USR1", "INT"])
def test_run_passes_on_signals(zk_run, shared_gateway, tmp_path, name,
                                    how):
    job = Job(tmp_path, before="trap 'exit 9' %s\n" % how)
    script = zk_run(name, *job.command)
    job.wait_running()
    script.signal(getattr(signal, "SIG" + how))
    assert script.wait() == 9
    assert job.lines()[1:] == []
    assert is_free(shared_gateway, name)


def test_run_is_stopped_with_its_job(zk_run, shared_gateway, tmp_path, name):
    """A service manager sends a signal to all processes at once."""
    for number in range(16):
        (tmp_path / str(number)).mkdir()
        job = Job(tmp_path / str(number))
        job.command[-2] = 'echo "$$" >> "$0"; exec sleep 60'
        script = zk_run(name, *job.command)
        pid = job.wait_running()
        wait_until(lambda: b"sleep" in command_line(pid))
        os.kill(pid, signal.SIGTERM)
        script.signal(signal.SIGTERM)
        assert script.wait() == 128 + signal.SIGTERM
        assert is_free(shared_gateway, name)


def test_run_waits_for_a_job_of_another_user(zk_run, shared_gateway, job,
                                             name):
    """A job that the script cannot signal, as under sudo(8), goes on."""
    if os.geteuid():
        pytest.skip("only root becomes another user")
    job.command[-2] = ('echo "$$" >> "$0"\n'
                       'exec setpriv --reuid 47110 --clear-groups sleep 5\n')
    script = zk_run(name, *job.command, prefix=[
        "setpriv", "--bounding-set", "-kill"])
    pid = job.wait_running()
    wait_until(lambda: command_line(pid).startswith(b"sleep"))
    script.signal(signal.SIGTERM)
    time.sleep(1.0)
    assert alive(pid) and not is_free(shared_gateway, name)
    assert script.wait() == 0
    assert not alive(pid) and is_free(shared_gateway, name)


def test_run_bears_a_signal_that_its_job_bears(zk_run, name, tmp_path):
    job = Job(tmp_path, before="trap 'echo trapped >> \"$0\"' TERM\n")
    script = zk_run(name, *job.command)
    job.wait_running()
    script.signal(signal.SIGTERM)
    wait_until(lambda: job.lines()[1:] == ["trapped"])
    job.go()
    assert script.wait() == 3


@pytest.mark.parametrize("before", ["", "trap '' TERM\n", "sh -c 'trap \"\" "
                                    "TERM; while :; do sleep 1; done' &\n"])
def test_run_loses_the_lock(zk_run, shared_gateway, tree, tmp_path, name,
                            before):
    """The claim goes: the job ends, willing or not, with all children."""
    job = Job(tmp_path, before)
    script = zk_run("-t", "8", name, *job.command)
    pid = job.wait_running()
    take_away(shared_gateway, tree, name)
    assert script.wait() == LOST
    assert not alive(pid)
    assert job.lines()[1:] == []
    assert "the lock is lost" in script.said()
    script.wait_gone()


def test_run_loses_the_lock_and_its_reader(zk_run, shared_gateway, tree, job,
                                           name):
    """The command is ended also if standard error is a broken pipe."""
    script = zk_run("-t", "8", name, *job.command, prefix=[
        "sh", "-c", 'mkfifo broken; exec 5<> broken 2> broken 5<&-; '
        'exec "$@"', "sh"])
    pid = job.wait_running()
    take_away(shared_gateway, tree, name)
    assert script.wait() == LOST
    assert not alive(pid)


def test_run_waits_for_what_a_signal_leaves(zk_run, shared_gateway, tmp_path,
                                            name):
    """The shell ends at once; the child, which bears TERM, has its grace."""
    job = Job(tmp_path, "(trap '' TERM; : > bears; exec sleep 60) &\n"
                        "echo $! > child\n"
                        "until [ -e bears ]; do sleep 0.02; done\n")
    script = zk_run("-t", "60", "-g", "5", name, *job.command)
    shell = job.wait_running()
    script.signal(signal.SIGTERM)
    wait_until(lambda: not alive(shell), what="the shell has ended")
    child = int((tmp_path / "child").read_text())
    assert alive(child) and not is_free(shared_gateway, name)
    assert script.wait() == 128 + signal.SIGTERM
    assert not alive(child) and is_free(shared_gateway, name)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_run_ends_just_after_the_grant(zk_run, wire, shared_gateway, name, job,
                                       how):
    """The signal comes before the answer is read: the lock is released."""
    wire.hold()
    script = zk_run("-t", "1h", name, *job.command, gateway=wire)
    wait_until(lambda: b"201 Created" in wire.answered, 20.0, "the grant")
    script.signal(how)
    wait_until(lambda: b"respond-async" in wire.asked, 20.0, "it asks again")
    wire.go()
    script.wait()
    wait_until(lambda: is_free(shared_gateway, name), 20.0, "it is free")
    assert job.lines() == []


def test_run_without_input(zk_run, name):
    assert zk_run(name, "true", prefix=[
        "sh", "-c", 'exec "$@" <&-', "sh"]).wait() == 0


def test_run_learns_it_at_the_end(zk_run, wire, shared_gateway, name, job):
    """The job is done before the next renewal: too late to help."""
    script = zk_run("-t", "3600", name, *job.command, gateway=wire)
    job.wait_running()
    assert shared_gateway.release(name, token_of(wire)).status == 204
    job.go()
    assert script.wait() == LOST
    assert job.lines()[1:] == ["done"]
    assert "the lock was lost" in script.said()


@pytest.fixture
def run_as_a_number(start_script, shared_gateway):
    """A function that starts zk-lock run as a user without a name, with a
    folder of that user.
    """
    if os.geteuid():
        pytest.skip("only root becomes another user")

    def start(*arguments):
        return start_script(
            "setpriv", "--reuid", "47110", "--clear-groups", "sh", "-c",
            'cd "$0" && exec ./zk-lock run "$@"', folder, *arguments,
            environment={"ZK_LOCK_URL": url(shared_gateway.port)})

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ZK_LOCK, folder)
        os.chmod(folder, 0o777)
        yield folder, start


def test_run_as_a_number(run_as_a_number, shared_gateway, name):
    _, start = run_as_a_number
    script = start("-m", "9", name, "true")
    assert script.wait() == 0, script.said()
    holder, = shared_gateway.inspect(name).json["holders"]
    assert holder["owner"] == "47110@" + os.uname().nodename


def test_run_renews_without_processes(run_as_a_number, shared_gateway, name):
    """A user who may start no more processes keeps the lock."""
    folder, start = run_as_a_number
    script = start("-t", "9", name, "sh", "-c", 'echo $$ > job; exec sleep 60')
    job = os.path.join(folder, "job")
    wait_until(lambda: os.path.exists(job), 20.0, "the job runs")
    for pid in script.processes():
        subprocess.run(["setpriv", "--reuid", "47110", "--clear-groups",
                        "prlimit", "--pid", str(pid), "--nproc=1"],
                       check=True, timeout=60)
    end = lease_end(shared_gateway, name)
    wait_until(lambda: lease_end(shared_gateway, name) > end + 5, 30.0,
               "two renewals")
    script.signal(signal.SIGTERM)
    assert script.wait() == 128 + signal.SIGTERM


def test_run_loses_its_gateway(zk_run, start_gateway, tree, tmp_path,
                                    name):
    """nginx is killed; the job is dead while ZooKeeper has the claim."""
    gateway = start_gateway(session_timeout="20s")
    job = Job(tmp_path, before="trap '' TERM\n")
    script = zk_run("-t", "8", name, *job.command, gateway=gateway)
    pid = job.wait_running()
    gateway.kill()
    assert script.wait() == LOST
    assert not alive(pid)
    assert "the lock is lost" in script.said()
    tree.wait_claims(gateway.znode(name), 1)
    tree.wait_claims(gateway.znode(name), 0, 40)


def test_run_is_cut_off(zk_run, shared_gateway, start_gateway, tree,
                             tmp_path, name):
    """The proxy between script and gateway dies, and the gateway does not
    notice: the job is dead while the lease lasts.
    """
    front = start_gateway(servers=None, server=(
        "location /locks/ {\n    proxy_pass http://127.0.0.1:%d;\n}"
        % shared_gateway.port))
    job = Job(tmp_path, before="trap '' TERM\n", beats=True)
    script = zk_run("-t", "8", name, *job.command, gateway=front)
    pid = job.wait_running()
    front.kill()
    end = lease_end(shared_gateway, name)
    assert script.wait() == LOST
    assert not alive(pid) and job.ended_by(end)
    wait_until(lambda: is_free(shared_gateway, name), 15, "a free lock")


@pytest.mark.parametrize("whom", ["script", "group"])
@pytest.mark.parametrize("before", ["", "trap '' TERM\n"])
def test_run_is_killed(zk_run, shared_gateway, tmp_path, name, whom,
                            before):
    """After -9 on the script the job soon ends, and the lock is free."""
    job = Job(tmp_path, before)
    script = zk_run(name, *job.command)
    pid = job.wait_running()
    if whom == "group":
        os.killpg(script.pid, signal.SIGKILL)
    else:
        script.signal(signal.SIGKILL)
    # the script is a zombie, because no process waited yet: alive() is enough
    wait_until(lambda: not alive(pid), what="the job is dead")
    wait_until(lambda: is_free(shared_gateway, name), what="it is free")
    assert script.wait() == -signal.SIGKILL
    script.wait_gone()
    assert job.lines()[1:] == []


def test_run_and_all_its_helpers_are_killed(zk_run, shared_gateway,
                                                 name, job):
    """No process can release: the lock is free when the lease is over."""
    script = zk_run("-t", "8", name, *job.command)
    job.wait_running()
    script.kill()
    assert not is_free(shared_gateway, name)
    wait_until(lambda: is_free(shared_gateway, name), 20.0, "it is free")


def test_run_without_a_gateway(zk_run, start_gateway, name, job):
    gateway = start_gateway(servers="127.0.0.1:%d" % free_port(),
                            wait_sessions=False)
    assert zk_run(name, *job.command, gateway=gateway).wait() == (
        OUT_OF_REACH)
    gateway.stop()
    assert zk_run(name, *job.command, gateway=gateway).wait() == (
        OUT_OF_REACH)
    assert job.lines() == []


def test_run_wants_its_lease(zk_run, start_gateway, name, job):
    """The script refuses a shortened lease, which needs sooner renewals."""
    gateway = start_gateway(location="zk_lock_max_ttl 9s;")
    assert zk_run(name, *job.command, gateway=gateway).wait() == (
        OUT_OF_REACH)
    assert is_free(gateway, name)
    assert job.lines() == []


PROBLEM = (b'{"type":"/problems/not-found","title":"Not found",'
           b'"status":404,"detail":"no such claim"}')

NO_LISTS = {
    "unreachable": (503, b'{"status":503,"detail":"ZooKeeper is away"}'),
    "wrong path": (404, b"<html>\r\n<head><title>404</title></head></html>"),
    "wrong path within the API": (404, PROBLEM),
    "too many": (429, b'{"status":429,"detail":"too many calls"}'),
    "proxy": (502, b"<html>\r\n<head><title>502</title></head></html>"),
    "redirect": (302, b""),
    "nothing": (200, b""),
    "another page": (200, b"<html></html>"),
    "no lock": (200, b'{"name":"web"}'),
    "torn": (200, b'{"name":"web","holders":[{"owner":"a'),
    "more than JSON": (200, b'{"name":"web","holders":[]}}'),
}


@pytest.mark.parametrize("what", sorted(NO_LISTS))
def test_show_without_a_list(start_script, what):
    """A script that feeds a balancer must not read this as an empty list."""
    status, words = NO_LISTS[what]
    with gateway_that_says(words, status=status) as gateway:
        for more in "--owners", "--json":
            script = start_script(ZK_LOCK, "show", "web", more, "-u",
                                  gateway.url)
            code = USAGE if 300 <= status < 429 else OUT_OF_REACH
            if what != "no lock" or more == "--owners":
                assert script.wait() == code, script.said()
    assert script.said().startswith("zk-lock: ") or what == "no lock"


def test_show_at_a_wrong_path(zk_lock, start_script, shared_gateway):
    for path in "/", "/lock":
        script = start_script(ZK_LOCK, "show", "web", "--owners", "--url",
                              url(shared_gateway.port, path))
        assert script.wait() == USAGE
        assert script.said().startswith("zk-lock: ")


def test_show_without_a_gateway(start_script):
    script = start_script(ZK_LOCK, "show", "web", "-u", url(free_port()))
    assert script.wait() == OUT_OF_REACH
    assert "zk-lock: " in script.said()


LOCK = {
    "name": "web", "mode": "member", "held": 4,
    "holders": [
        {"owner": "10.0.0.1:80", "data": {"owner": "10.0.0.8:80"}},
        {"data": "\\", "from": "10.0.0.7"},
        {"owner": 'quoted "\u00e4" \\', "data": ['"owner":"10.0.0.9:80"']},
        {"owner": "\x1b[2J\n\x7f\x9b\u202e", "fencing_token": 7}],
    "queued": 1, "queue": [{"owner": "10.0.0.6:80"}]}


def test_show_reads_json(start_script):
    """Owners of holders and no other text, and nothing for the terminal."""
    text = json.dumps(LOCK, separators=(",", ":"), ensure_ascii=False)
    with gateway_that_says(text.encode()) as gateway:
        def said(*arguments):
            script = start_script(ZK_LOCK, "show", "web", "-u", gateway.url,
                                  *arguments)
            assert script.wait() == 0
            return script.said()

        assert said("--owners").splitlines() == [
            "10.0.0.1:80", 'quoted "\u00e4" \\', "\\u001b[2J\\n???"]
        lines = said().splitlines()
        assert lines[0] == "4 held, 1 waiting, member: web"
        assert len(lines) == 6
        assert lines[4].endswith(", token 7, by \\u001b[2J\\n???")
        assert said("--json") == text + "\n"


# modes, and the environment

def test_run_as_a_reader(zk_run, shared_gateway, tmp_path, name):
    """Readers run together, and beside no other claim."""
    readers = [Job(tmp_path / str(i)) for i in range(2)]
    scripts = []
    for job in readers:
        os.mkdir(os.path.dirname(job.path))
        scripts.append(zk_run("--shared", name, *job.command))
        job.wait_running()
    assert zk_run(name, "true").wait() == TAKEN
    for job, script in zip(readers, scripts):
        job.go()
        assert script.wait() == 3
    assert is_free(shared_gateway, name)


def test_run_with_permits(zk_run, name, job):
    script = zk_run("--permits=2", name, *job.command)
    job.wait_running()
    assert zk_run("--permits", "2", name, "true").wait() == 0
    other = zk_run("--permits", "3", name, "true")
    assert other.wait() == USAGE and "409" in other.said()
    job.go()
    assert script.wait() == 3


# looking at locks

def test_show(zk_run, show, name, job):
    assert show("show", name) == "0 held, 0 waiting: %s\n" % name
    assert show("show", "--owners", name) == ""
    script = zk_run("-o", "me, and \u00e4", name, *job.command)
    job.wait_running()
    token = job.lines()[0].split()[1]
    lines = show("show", name).splitlines()
    assert lines[0] == "1 held, 0 waiting, exclusive: " + name
    assert re.fullmatch(
        r"    held since \S+Z, token %s, \d s left, from 127\.0\.0\.1, "
        r"by me, and \u00e4" % token, lines[1])
    assert show("show", "--owners", name) == "me, and \u00e4\n"
    assert json.loads(show("show", name, "--json"))["held"] == 1
    job.go()
    assert script.wait() == 3
    assert json.loads(show("show", name, "--json"))["status"] == 404


def test_ls(show, shared_gateway, tree, name):
    """All pages, by prefix, by owner, and in order."""
    held = {word: shared_gateway.hold("%s-%s" % (name, word), owner=word)
            for word in ("b", "a", "c d")}
    prefix = "--prefix=" + name

    def names(*arguments):
        lines = show("ls", prefix, *arguments).splitlines()
        return [line.partition(": %s-" % name)[2] for line in lines
                if not line.startswith(" ")]

    waiter = shared_gateway.begin(name + "-c d")
    tree.wait_claims(shared_gateway.znode(name + "-c d"), 2)
    assert names() == ["a", "b", "c d"]
    assert names("--owner", "b") == ["b"]
    assert names("--owner", "nobody") == []
    assert names("--sort", "waiting")[0] == "c d"
    assert sorted(names("--sort", "since")) == ["a", "b", "c d"]
    assert "by c d" in show("ls", prefix, "--sort", "since")
    assert len(json.loads(show("ls", "--json", prefix))["locks"]) == 3
    waiter.close()
    for word, response in held.items():
        shared_gateway.release("%s-%s" % (name, word), response.token)


def test_ls_of_many(start_script):
    """While a page has a next, there is a next page."""
    page = b'{"locks":[],"next":"bGFzdA"}'
    with gateway_that_says(page) as gateway:
        script = start_script(ZK_LOCK, "ls", "-u", gateway.url)
        wait_until(lambda: gateway.joined > 2, what="a third page")
        gateway.words = b'{"locks":[],"complete":false}'
        assert script.wait() == 0
    assert "complete" in script.said()


def test_watch(zk_lock, shared_gateway, name):
    """Each change of each lock, until a signal, also without a gateway."""
    other = name + "-2"
    watcher = zk_lock("watch", name, other)
    for lock in name, other:
        wait_until(lambda lock=lock: "0 held, 0 waiting: " + lock
                   in watcher.said(), what="it is free")
        response = shared_gateway.hold(lock, owner="me")
        wait_until(lambda lock=lock: "1 held, 0 waiting, exclusive: " + lock
                   in watcher.said(), what="it is held")
        shared_gateway.release(lock, response.token)
    watcher.signal(signal.SIGTERM)
    assert watcher.wait() == 128 + signal.SIGTERM
    watcher.wait_gone()


def test_watch_goes_on(start_script, tmp_path):
    """After a break, of which the script tells once."""
    with gateway_that_says(b"", status=502) as gateway:
        script = start_script(ZK_LOCK, "watch", "x", "--json", "-u",
                              gateway.url)
        wait_until(lambda: gateway.joined > 2, 40, "a third attempt")
        change = b'{"event":"change","name":"x","holders":[],"queue":[]}\n'
        gateway.status, gateway.words = 200, change
        wait_until(lambda: change.decode() in script.said(), 40, "a change")
        script.signal(signal.SIGTERM)
        script.wait_gone()
    assert script.said().count("502") == 1


# operators

OPERATED = """
location /admin/ {
    zk_lock_api;
    zk_lock_admin on;
}

location = /health {
    zk_lock_health;
    zk_lock_admin on;
}
"""


@pytest.fixture(scope="module")
def operated(start_shared):
    return start_shared(server=OPERATED)


def test_break(show, operated, name):
    """By the fencing token, or all; what is not there is status 1."""
    admin = ("-u", url(operated.port, "/admin/"))
    token = operated.hold(name).fencing
    assert "403" in show("break", name, str(token), gateway=operated,
                         status=USAGE)
    show("break", *admin, name, str(int(token) + 1), status=1)
    show("break", *admin, name, str(token))
    assert is_free(operated, name)
    show("break", *admin, name, str(token), status=1)

    for _ in range(2):
        assert operated.acquire(name, mode="shared").status == 201
    show("break", name, "--all", *admin)
    assert is_free(operated, name)


def test_break_ends_a_command(zk_run, show, operated, name, job):
    script = zk_run("-t", "8", name, *job.command, gateway=operated)
    job.wait_running()
    show("break", "-u", url(operated.port, "/admin"), name,
         job.lines()[0].split()[1])
    assert script.wait() == LOST


def test_drain(show, zk_run, operated, name):
    def is_well():
        return show("drain", "status", gateway=operated) == "not drained, ok\n"

    wait_until(is_well, 30.0, "a worker takes locks")
    text = show("drain", "on", gateway=operated)
    assert text.startswith("drained, unavailable: ")
    script = zk_run(name, "true", gateway=operated)
    assert script.wait() == OUT_OF_REACH and "503" in script.said()
    wire = Wire(operated.port)
    waiting = zk_run("-w", "60", name, "true", gateway=wire)
    wait_until(lambda: b" 503 " in wire.answered, 20.0, "the command waits")
    status = json.loads(show("drain", "status", "--json", "--health",
                             url(operated.port, "/health")))
    assert status["drained"] is True
    assert show("drain", "off", gateway=operated).startswith("not drained, ")
    wait_until(is_well, 30.0, "a worker takes locks again")
    assert waiting.wait() == 0
    wire.close()
    assert zk_run(name, "true", gateway=operated).wait() == 0
    show("drain", "on", "--health", url(operated.port, "/locks/x"),
         status=USAGE)


def test_lead_lets_go(zk_lock, operated, name, job):
    """Asked by an operator, a leader is a candidate again."""
    leaders = [zk_lock("lead", "-t", "12", "-o", owner, name, "--",
                       *job.command, gateway=operated) for owner in "ab"]
    job.wait_running()
    assert operated.call("PUT", "/admin/" + name, {"revoke": "1"}
                         ).status == 202
    wait_until(lambda: len(job.lines()) == 2, 30.0, "another leader")
    job.go()
    assert sorted(leader.wait() for leader in leaders) == [3, 3]
    assert "asked for" in "".join(leader.said() for leader in leaders)
    assert is_free(operated, name)


def test_join_needs_its_check(zk_lock, operated, name, tmp_path):
    asked = tmp_path / "asked"
    script = zk_lock("join", name, "10.0.0.1:80", "--", "sh", "-c",
                     'touch "$0"; false', str(asked), gateway=operated)
    wait_until(asked.exists, 20.0, "the check was asked")
    other = zk_lock("join", name, "10.0.0.2:80", gateway=operated)
    wait_until(lambda: not is_free(operated, name), what="one has joined")
    holder, = operated.inspect(name).json["holders"]
    assert holder["owner"] == "10.0.0.2:80"
    for each in script, other:
        each.signal(signal.SIGTERM)
        assert each.wait() == 128 + signal.SIGTERM
    wait_until(lambda: is_free(operated, name), what="it is free")


def test_join_ends_while_its_first_check_hangs(zk_lock, shared_gateway, name,
                                               tmp_path):
    check = Job(tmp_path)
    script = zk_lock("join", name, "10.0.0.1:80", *check.command)
    pid = check.wait_running()
    script.signal(signal.SIGTERM)
    assert script.wait() == 128 + signal.SIGTERM
    assert not alive(pid) and is_free(shared_gateway, name)


# the completion and the manual

def synopsis():
    """Of each command the options, and the short forms, as the source has
    them.
    """
    with open(os.path.join(TREE, "command", "main.c"),
              encoding="utf-8") as file:
        text = file.read()
    table = text.partition("main_commands[] = {")[2].partition("};")[0]
    found = {command: set() for command in re.findall(r'\{ "(\w+)", ', table)}
    table = text.partition("main_options[] = {")[2].partition("};")[0]
    short = {}
    for option, letter, commands in re.findall(
            r"\{ \"(--[\w-]+)\", (0|'\w'), \w+, ([A-Z| ]+), ", table):
        for command in found:
            if commands == "ANY" or command.upper() in commands.split(" | "):
                found[command].add(option)
        if letter != "0":
            short["-" + letter[1]] = option
    assert len(found) == 8 and len(short) == 10
    return found, short


COMPLETION = os.path.join(TREE, "command", "zk-lock.bash")


def complete(*words, environment=()):
    """What the completion offers for the last of the words."""
    quoted = " ".join(words)
    script = """
        . "$1"
        COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=($2) COMP_CWORD=$3
        COMP_WORDS[COMP_CWORD]=$4
        _zk_lock
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    run = subprocess.run(
        ["bash", "-c", script, "bash", COMPLETION, quoted,
         str(len(words) - 1), words[-1]], check=True, timeout=60,
        stdout=subprocess.PIPE, encoding="utf-8",
        env=dict(os.environ, PATH="%s:%s" % (os.path.dirname(ZK_LOCK),
                                             os.environ["PATH"]),
                 **dict(environment)))
    return set(run.stdout.splitlines()) - {""}


def test_completion():
    found, _ = synopsis()
    assert complete("zk-lock", "") == set(found)
    assert complete("zk-lock", "dr") == {"drain"}
    for command, options in found.items():
        assert complete("zk-lock", command, "-") == options, command
        assert complete("zk-lock", command, "--j") == options & {"--json"}
    assert complete("zk-lock", "drain", "o") == {"on", "off"}
    assert complete("zk-lock", "ls", "--sort", "") == {"since", "waiting"}
    assert complete("zk-lock", "run", "--owner", "") == set()


def test_completion_of_names(shared_gateway, tmp_path, name):
    """A name is offered as a word, and never run."""
    tokens = []
    for more in "-1", "-2", "-a b", "-$(touch hit)", "-`touch hit`":
        tokens.append((name + more, shared_gateway.hold(name + more).token))
    where = {"ZK_LOCK_URL": url(shared_gateway.port)}
    assert complete("zk-lock", "show", name + "-1", environment=where) == {
        name + "-1"}
    offered = complete("zk-lock", "run", "-w", "5", name, environment=where)
    assert offered == complete("zk-lock", "break", "-u", where["ZK_LOCK_URL"],
                               name)
    assert len(offered) == 5 and name + r"-a\ b" in offered
    assert name + r"-\$\(touch\ hit\)" in offered
    assert not os.path.exists("hit")
    for lock, token in tokens:
        shared_gateway.release(lock, token)


def test_help(zk_lock):
    found, _ = synopsis()
    for arguments in ("--help",), ("help",), ("run", "-h"):
        script = zk_lock(*arguments)
        assert script.wait() == 0
        for command, options in found.items():
            assert "zk-lock %s [OPTION]..." % command in script.said()
            assert all(option in script.said() for option in options)


def test_manual():
    """Names all commands and options with their short forms, and no other."""
    found, short = synopsis()
    with open(os.path.join(TREE, "man", "zk-lock.1"),
              encoding="utf-8") as file:
        text = file.read()
    told = section(text, "OPTIONS")
    heads = re.findall(r"(?m)^\.It (Fl .*)$", told)
    options = set()
    for head in heads:
        names = re.findall(r"Fl (-?[\w-]+)", head)
        options.add("-" + names[-1])
        if len(names) == 2:
            assert short.pop("-" + names[0]) == "-" + names[1]
    assert options == set().union(*found.values())
    assert not short
    assert re.findall(r"(?m)^\.It Cm (\w+)$", section(text, "DESCRIPTION")
                      ) == list(found)
    assert re.findall(r"(?m)^\.Cm (\w+)$", section(text, "SYNOPSIS")
                      )[:8] == list(found)
    codes = {LOST, TAKEN, OUT_OF_REACH, USAGE, NO_START, TOO_LONG, 1}
    assert {int(code) for code in re.findall(
        r"(?m)^\.It (\d+)$", section(text, "EXIT STATUS"))} == codes


def section(text, title):
    return text.split("\n.Sh %s\n" % title)[1].split("\n.Sh ")[0]


def test_manual_is_well_formed():
    if not shutil.which("mandoc"):
        pytest.skip("no mandoc")
    run = subprocess.run(["mandoc", "-T", "lint", "-W", "warning",
                          os.path.join(TREE, "man", "zk-lock.1")],
                         stdout=subprocess.PIPE, encoding="utf-8", timeout=60,
                         check=False)
    assert run.stdout == ""


# crontabs

class Machine:
    """A machine with a crontab, and a network cable to the gateway.

    The cable is an nginx; while its worker is stopped, what is sent is neither
    refused nor answered.
    """

    def __init__(self, start_script, cable):
        self.start_script = start_script
        self.cable = cable
        self.scripts = []

    def tick(self, line):
        """Runs a line as cron does, with less in the environment."""
        self.scripts.append(self.start_script(
            "sh", "-c", 'exec env -i PATH=/usr/bin:/bin ZK_LOCK_URL="$0" '
            'ZK_LOCK_EXAMPLE="$ZK_LOCK_EXAMPLE" /bin/sh -c "$1"',
            url(self.cable.port), line))
        return self.scripts[-1]


@pytest.fixture
def machines(start_script, start_gateway, shared_gateway):
    cables = [start_gateway(servers=None, workers=1, server=(
        "location /locks/ {\n    proxy_pass http://127.0.0.1:%d;\n"
        "    proxy_read_timeout 1h;\n}" % shared_gateway.port))
        for _ in range(2)]
    return [Machine(start_script, cable) for cable in cables]


class Guarded:
    """A job that finds out if it runs beside another: the kernel's lock of the
    room is as old as the process.  A line of the file is a start or an end.
    """

    SCRIPT = """
        exec 9>> $0.room
        flock -n 9 || echo overlap >> $0.bad
        [ "$2" = mild ] || trap "" TERM
        echo "start $LOCK_FENCING_TOKEN $$ $1" >> $0
        until [ -e "$0.$1" ]; do sleep 0.05 9>&-; done
        echo "end $LOCK_FENCING_TOKEN" >> $0
    """

    def __init__(self, directory):
        self.path = str(directory / "runs")
        (directory / "runs").touch()
        (directory / "job").write_text(self.SCRIPT.replace("$0", self.path))
        self.job = str(directory / "job")

    def line(self, name, round_, how, *options):
        return "exec %s run %s %s -- sh %s %s %s" % (
            ZK_LOCK, " ".join(options), name, self.job, round_, how)

    def starts(self):
        return [line.split() for line in whole_lines(self.path)
                if line.startswith("start ")]

    def next_start(self, number):
        wait_until(lambda: len(self.starts()) > number, 30.0, "a start")
        _, _, pid, who = self.starts()[number]
        return int(pid), who

    def let_end(self, who):
        with open("%s.%s" % (self.path, who), "w"):
            pass

    def judge(self):
        assert not os.path.exists(self.path + ".bad")
        tokens = [int(words[1]) for words in self.starts()]
        assert tokens == sorted(set(tokens))


def test_crontabs_of_two_machines(machines, shared_gateway, tmp_path, name):
    """In each round both machines start the job, and one waits; then the
    runner ends, or is killed, or loses its network.  At most one runs.
    """
    guarded = Guarded(tmp_path)
    dice = random.Random(name)
    faults = ["none", "kill", "cut"] * 4
    dice.shuffle(faults)
    for number, fault in enumerate(faults):
        how = dice.choice(["mild", "stubborn"])
        whos = ["%d-%d" % (number, i) for i in range(2)]
        first = len(guarded.starts())
        scripts = {who: machine.tick(guarded.line(
            name, who, how, "-w", "40", "-t", "8s", "-g", "1"))
            for who, machine in zip(whos, machines)}
        pid, who = guarded.next_start(first)
        runner = scripts[who]
        if fault == "none":
            guarded.let_end(who)
            assert runner.wait() == 0
        elif fault == "kill":
            runner.signal(signal.SIGKILL)
        else:
            cable = machines[whos.index(who)].cable
            with cable.frozen_worker(cable.worker_pids()[0]):
                assert runner.wait() == LOST
                assert not alive(pid)
        _, other = guarded.next_start(first + 1)
        assert other != who and (fault == "none" or not alive(pid))
        guarded.let_end(other)
        assert scripts[other].wait() == 0
        guarded.judge()
    assert len(guarded.starts()) == 2 * len(faults)
    assert is_free(shared_gateway, name)


def test_crontab_where_taken_is_no_failure(machines, tmp_path, name):
    """Ten ticks of the line of the manual: one runs the job, none fails, and
    cron has nothing to mail.
    """
    path = tmp_path / "ran"
    line = "%s run -q -m 1m %s sh -c 'echo >> %s' || [ $? -eq 75 ]" % (
        ZK_LOCK, name, path)
    scripts = [machine.tick(line) for _ in range(5) for machine in machines]
    assert [script.wait() for script in scripts] == 10 * [0]
    assert "".join(script.said() for script in scripts) == ""
    assert path.read_text() == "\n"


@pytest.fixture(scope="module")
def clocks(tmp_path_factory):
    """A library by which a test moves the clocks of zk-lock."""
    path = tmp_path_factory.mktemp("clocks") / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path),
                    os.path.join(TREE, "t", "lib", "clock.c"), "-ldl"],
                   check=True, timeout=60)
    return str(path)


@pytest.fixture
def run_with_clocks(zk_run, clocks, tmp_path):
    """A function that starts zk-lock run, and one that moves its clocks."""
    offsets = tmp_path / "offsets"
    offsets.write_text("0 0")

    def move(date, suspended):
        # zk-lock may read the file at any moment, and reads it whole
        (tmp_path / "other").write_text("%d %d" % (date, suspended))
        (tmp_path / "other").rename(offsets)

    def start(*arguments, **options):
        return zk_run(*arguments, environment={
            "LD_PRELOAD": clocks, "CLOCK_OFFSETS": str(offsets)}, **options)

    return start, move


def without_clocks(job):
    """The job itself has the machine's clocks."""
    job.command[-2] = "unset LD_PRELOAD\n" + job.command[-2]
    return job


def test_date_is_set_back(run_with_clocks, start_gateway, shared_gateway,
                          tmp_path, name):
    """By an hour, while nothing is heard from the gateway: the command ends
    while the lease lasts.
    """
    start, move = run_with_clocks
    cable = start_gateway(servers=None, workers=1, server=(
        "location /locks/ {\n    proxy_pass http://127.0.0.1:%d;\n}"
        % shared_gateway.port))
    job = without_clocks(Job(tmp_path, beats=True))
    script = start("-t", "9", "-g", "0", name, *job.command, gateway=cable)
    pid = job.wait_running()
    with cable.frozen_worker(cable.worker_pids()[0]):
        move(-3600, 0)
        end = lease_end(shared_gateway, name)
        assert script.wait() == LOST
        assert not alive(pid) and job.ended_by(end)
    wait_until(lambda: is_free(shared_gateway, name), 20, "a free lock")


def test_date_is_set(run_with_clocks, shared_gateway, tmp_path, name):
    """Forth and back, while the gateway answers: the lock is kept."""
    start, move = run_with_clocks
    job = without_clocks(Job(tmp_path))
    script = start("-t", "8", name, *job.command)
    job.wait_running()
    for date in 3600, -3600, 86400:
        move(date, 0)
        end = lease_end(shared_gateway, name)
        wait_until(lambda end=end: lease_end(shared_gateway, name) > end + 1,
                   20.0, "a renewal")
    job.go()
    assert script.wait() == 3


def test_machine_was_suspended(run_with_clocks, tmp_path, name):
    """For longer than the lease: the lock is lost, whatever is answered."""
    start, move = run_with_clocks
    job = without_clocks(Job(tmp_path, before="trap '' TERM\n"))
    script = start("-t", "12", name, *job.command)
    pid = job.wait_running()
    move(0, 60)
    assert script.wait() == LOST
    assert not alive(pid) and "nothing was heard" in script.said()
