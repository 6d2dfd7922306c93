"""What the command of zk-lock gets: all that zk-lock got, and each signal once.
"""

import contextlib
import itertools
import os
import pty
import re
import resource
import select
import signal
import subprocess
import time

import pytest

from lib.gateway import TREE
from lib.jobs import LOST, NO_START, TOO_LONG, ZK_LOCK, Job, is_free
from lib.process import alive, children, wait_until, whole_lines

NUMBERS = itertools.count(1)


def url(port):
    return "http://127.0.0.1:%d/locks" % port


@pytest.fixture
def name():
    return "lock%d" % next(NUMBERS)


@pytest.fixture
def zk_lock(start_script, shared_gateway):
    def start(*arguments, prefix=(), environment=(), **options):
        return start_script(
            *prefix, ZK_LOCK, *arguments, environment=dict(
                environment, ZK_LOCK_URL=url(shared_gateway.port)), **options)

    return start


@pytest.fixture(scope="module")
def inherited(tmp_path_factory):
    """A program that prints what it was started with."""
    program = tmp_path_factory.mktemp("inherited") / "inherited"
    subprocess.run(["cc", "-o", str(program),
                    os.path.join(TREE, "t", "lib", "inherited.c")],
                   check=True, timeout=60)
    return str(program)


HOSTILE = {
    "PR_TITLE": ";touch pwned;#",
    "PR_BODY": "x\nexport SHELLOPTS=x",
    "BASH_FUNC_log%%": "() { echo $1\n}",
    "spring.profile": "x",
    "X-Y": "1",
    "SHELLOPTS": "braceexpand",
    "BASHOPTS": "extquote",
    "token": "mine", "answer": "yes", "status": "no"}


def as_a_service(ignored, directory):
    """For Popen(preexec_fn=): what a program seldom is started with."""
    def prepare():
        with open(directory / "input", "w+b") as file:
            number = file.fileno()
            for fd in 3, 8, 9, 17, 20:
                os.dup2(number, fd)
            os.closerange(4, 8)
        for how in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(how, signal.SIG_IGN if how in ignored
                              else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, {
            signal.SIGWINCH, signal.SIGALRM, signal.SIGUSR2})
        resource.setrlimit(resource.RLIMIT_NOFILE, (333, 333))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(0o027)
        os.nice(3)

    return prepare


@pytest.mark.parametrize("ignored", [
    (), (signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE,
         signal.SIGTSTP)], ids=["as usual", "some ignored"])
@pytest.mark.parametrize("command", ["run", "lead", "join"])
def test_command_gets_what_zk_lock_got(shared_gateway, inherited, tmp_path,
                                       name, command, ignored):
    environment = dict(os.environ, ZK_LOCK_URL=url(shared_gateway.port))
    environment.update(HOSTILE)

    def said(*arguments):
        path = tmp_path / "output"
        with open(path, "wb") as output:
            process = subprocess.Popen(
                [*arguments, inherited], env=environment, cwd=tmp_path,
                stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.DEVNULL, close_fds=False,
                start_new_session=True,
                preexec_fn=as_a_service(ignored, tmp_path))
        wait_until(lambda: "done" in path.read_text(), 20.0, "it was run")
        process.terminate()
        process.wait(30)
        text = path.read_bytes().decode().split("done\n")[0]
        return re.sub("session: [0-9]+", "", text)

    plain = said()
    under = said(ZK_LOCK, command, name,
                 *(["owner"] if command == "join" else []))
    fencing = re.findall("variable: LOCK_FENCING_TOKEN=[0-9]+\n", under)
    # a check of "join" comes before the lock
    assert len(fencing) == (0 if command == "join" else 1)
    assert under.replace("".join(fencing), "") == plain
    assert not (tmp_path / "pwned").exists()
    wait_until(lambda: is_free(shared_gateway, name), what="it is free")


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)])
def test_descriptors_that_are_closed(zk_lock, shared_gateway, tmp_path, name,
                                     closed):
    """Nothing of zk-lock takes the place of what was closed."""
    job = "for i in 0 1 2; do [ ! -e /proc/$$/fd/$i ] || echo $i; done > seen"
    closing = " ".join("%d>&-" % fd for fd in closed)
    script = zk_lock("run", name, "sh", "-c", job, prefix=[
        "sh", "-c", 'exec "$@" ' + closing, "sh"])
    assert script.wait() == 0
    # the shell has the file as 1 while it writes
    assert {int(line) for line in whole_lines(str(tmp_path / "seen"))} - {
        1} == {0, 2} - set(closed)
    assert is_free(shared_gateway, name)


def test_no_temporary_file(zk_lock, tmp_path, name):
    script = zk_lock("run", name, "true", environment={
        "TMPDIR": "/nonexistent"})
    assert script.wait() == 0 and script.said() == ""
    assert [path.name for path in tmp_path.iterdir()] == [
        os.path.basename(script.output)]


def test_cannot_be_started_here(zk_lock, name):
    """No descriptor is left."""
    script = zk_lock("run", name, "true", prefix=["prlimit", "--nofile=4"])
    assert script.wait() == NO_START
    assert script.said().startswith("zk-lock: ")


# signals

COUNTED = """trap 'echo %(how)s >> "$0.signals"' %(how)s
"""


@pytest.mark.parametrize("how", ["TERM", "INT", "HUP", "USR1"])
@pytest.mark.parametrize("whom", ["zk-lock", "all", "group"])
def test_a_signal_comes_once(zk_lock, tmp_path, name, how, whom):
    """To zk-lock alone, to all of a control group as systemd sends it, and to
    the process group of zk-lock.
    """
    job = Job(tmp_path, before=COUNTED % {"how": how})
    script = zk_lock("run", name, *job.command)
    job.wait_running()
    number = getattr(signal, "SIG" + how)
    if whom == "group":
        os.killpg(script.pid, number)
    else:
        for pid in script.processes() if whom == "all" else [script.pid]:
            # what the job runs besides would not bear it
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open("/proc/%d/comm" % pid) as file:
                    if file.read() != "sleep\n":
                        os.kill(pid, number)
    path = tmp_path / "job.signals"
    wait_until(path.exists, what="the signal came")
    time.sleep(0.5)
    job.go()
    assert script.wait() == 3
    assert path.read_text() == how + "\n"


def test_foreground_gets_a_signal_once(zk_lock, tmp_path, name):
    """As a supervisor sends to the group, in which the command is."""
    job = Job(tmp_path, before=COUNTED % {"how": "TERM"})
    job.command[-2] = job.command[-2].replace("sleep 0.02", "read x < fifo")
    os.mkfifo(tmp_path / "fifo")
    script = zk_lock("run", "--foreground", name, *job.command)
    pid = job.wait_running()
    assert os.getpgid(pid) == script.pid
    os.killpg(script.pid, signal.SIGTERM)
    path = tmp_path / "job.signals"
    wait_until(path.exists, what="the signal came")
    time.sleep(0.5)
    assert len(whole_lines(str(path))) == 1
    script.signal(signal.SIGTERM)
    wait_until(lambda: len(whole_lines(str(path))) > 1, what="once more")
    time.sleep(0.5)
    assert len(whole_lines(str(path))) == 2
    job.go()
    with open(tmp_path / "fifo", "w") as fifo:
        fifo.write("\n")
    assert script.wait() == 3


def test_ignored_signals_stay_ignored(zk_lock, tmp_path, name):
    """nohup zk-lock run ... outlives the terminal."""
    job = Job(tmp_path)
    script = zk_lock("run", name, *job.command, prefix=["nohup"])
    pid = job.wait_running()
    script.signal(signal.SIGHUP)
    time.sleep(0.5)
    assert alive(pid)
    job.go()
    assert script.wait() == 3


def test_lead_passes_hup_on(zk_lock, tmp_path, name):
    """As ExecReload= of a unit: the daemon reads its configuration again."""
    job = Job(tmp_path, before=COUNTED % {"how": "HUP"})
    script = zk_lock("lead", name, *job.command)
    job.wait_running()
    script.signal(signal.SIGHUP)
    wait_until((tmp_path / "job.signals").exists, what="the signal came")
    job.go()
    assert script.wait() == 3


def keeper_of(script):
    return [pid for pid in children(script.pid)][0]


@pytest.mark.parametrize("how, reason", [
    (signal.SIGKILL, "killed"), (signal.SIGSTOP, "nothing was heard")])
@pytest.mark.parametrize("before", ["", "trap '' TERM\n"])
def test_the_keeper_is_killed(zk_lock, shared_gateway, tmp_path, name, before,
                              how, reason):
    """Or stopped: the guard ends the command while the lease lasts, and
    releases the lock.
    """
    job = Job(tmp_path, before, beats=True)
    script = zk_lock("run", "-t", "9", "-g", "1", name, *job.command)
    pid = job.wait_running()
    end = time.time() + 9
    os.kill(keeper_of(script), how)
    assert script.wait() == LOST
    assert not alive(pid) and job.ended_by(end)
    assert reason in script.said()
    wait_until(lambda: is_free(shared_gateway, name), what="it is free")


def test_zk_lock_is_suspended(zk_lock, shared_gateway, name, job):
    """The lease is renewed while zk-lock is stopped, and the command runs."""
    script = zk_lock("run", "-t", "8", name, *job.command)
    pid = job.wait_running()
    script.signal(signal.SIGSTOP)
    time.sleep(9)
    assert alive(pid) and not is_free(shared_gateway, name)
    script.signal(signal.SIGCONT)
    job.go()
    assert script.wait() == 3
    assert is_free(shared_gateway, name)


def test_max_hold(zk_lock, shared_gateway, tmp_path, name):
    """A job that hangs is ended, and the lock is free."""
    job = Job(tmp_path, before="trap '' TERM\n")
    script = zk_lock("run", "--max-hold", "2s", "-g", "1", name, *job.command)
    pid = job.wait_running()
    assert script.wait() == TOO_LONG
    assert "--max-hold" in script.said()
    assert not alive(pid) and is_free(shared_gateway, name)


def test_taken_status(zk_lock, shared_gateway, name):
    token = shared_gateway.hold(name).token
    assert zk_lock("run", "-E", "200", name, "true").wait() == 200
    assert zk_lock("run", "--taken-status=0", name, "true").wait() == 0
    shared_gateway.release(name, token)
    assert zk_lock("run", "-E", "200", name, "sh", "-c", "exit 75").wait() == 75


# terminals

class Terminal:
    """An interactive bash on a terminal of its own."""

    def __init__(self, directory, port):
        self.text = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            for how in signal.SIGINT, signal.SIGQUIT, signal.SIGHUP:
                signal.signal(how, signal.SIG_DFL)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], dict(
                os.environ, PS1="prompt> ", ZK_LOCK_URL=url(port),
                ZK_LOCK=ZK_LOCK))

    def type(self, keys):
        os.write(self.master, keys.encode())

    def wait(self, word, timeout=20.0):
        def seen():
            while select.select([self.master], [], [], 0.02)[0]:
                self.text += os.read(self.master, 4096).decode()
            return word in self.text

        wait_until(seen, timeout, "%r in %r" % (word, self.text))
        self.text = self.text.partition(word)[2]

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path, shared_gateway):
    terminal = Terminal(tmp_path, shared_gateway.port)
    terminal.wait("prompt> ")
    yield terminal
    terminal.close()


def test_ctrl_c(terminal, shared_gateway, name):
    """The command's trap runs, and can use the terminal."""
    terminal.type("$ZK_LOCK run %s -- sh -c 'trap \"echo cl''ean > /dev/tty; "
                  "exit 9\" INT; echo be''gun; while :; do sleep 0.1; done'; "
                  "echo status $?\n" % name)
    terminal.wait("begun")
    terminal.type("\x03")
    terminal.wait("clean")
    terminal.wait("status 9")
    terminal.wait("prompt> ")
    assert is_free(shared_gateway, name)


def test_ctrl_c_ends_a_loop(terminal, shared_gateway, name):
    """A command that INT ends is the end of the script around zk-lock."""
    # exec: dash can lose an INT that comes while it starts a process
    terminal.type("for i in 1 2 3; do $ZK_LOCK run %s -- sh -c "
                  "'echo be''gun; exec sleep 60'; done; echo af''ter\n" % name)
    terminal.wait("begun")
    terminal.type("\x03")
    terminal.wait("prompt> ")
    assert "begun" not in terminal.text and "after" not in terminal.text
    wait_until(lambda: is_free(shared_gateway, name), what="it is free")


@pytest.mark.parametrize("more", ["", "--foreground"])
def test_ctrl_z(terminal, shared_gateway, name, more):
    """The job stops, the lease is renewed, and fg continues the job."""
    terminal.type("$ZK_LOCK run -t 8 %s %s -- sh -c 'echo be''gun; read x; "
                  "echo got $x'\n" % (more, name))
    terminal.wait("begun")
    terminal.type("\x1a")
    terminal.wait("Stopped")
    terminal.wait("prompt> ")
    time.sleep(9)
    assert not is_free(shared_gateway, name)
    terminal.type("fg\n")
    terminal.wait("run -t 8")
    terminal.type("this\n")
    terminal.wait("got this")
    terminal.wait("prompt> ")
    assert is_free(shared_gateway, name)


def test_a_job_in_the_background(terminal, shared_gateway, name):
    """It does not take the terminal, stops when it reads, and goes on."""
    terminal.type("$ZK_LOCK run %s -- sh -c 'echo be''gun; read x; echo got "
                  "$x' &\n" % name)
    terminal.wait("begun")
    terminal.type("\n")
    terminal.wait("prompt> ")
    terminal.type("jobs\n")
    terminal.wait("Stopped")
    terminal.type("fg\n")
    terminal.wait("run " + name)
    terminal.type("that\n")
    terminal.wait("got that")
    wait_until(lambda: is_free(shared_gateway, name), what="it is free")
