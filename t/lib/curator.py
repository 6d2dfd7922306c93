"""Curator's locks, from Debian's jars, in a Java process.

Curator is a process with a session; Client is a thread of the process, which
takes and releases a lock at a time.  Curator's answers come as futures, so that
a test can wait for an answer, and see that no answer comes.

Needs the packages libcurator-recipes-java and default-jdk-headless.
"""

import os
import queue
import shutil
import subprocess
import threading
from concurrent.futures import Future, TimeoutError as NotYet

from lib.process import tied
from lib.zookeeper import JARS, JAVA

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "Contender.java")
NAMES = ("curator-recipes", "curator-framework", "curator-client",
         "zookeeper", "guava", "slf4j-nop")
TIMEOUT = 20.0


def compile_contender(directory):
    """The class path of Contender, compiled into a directory."""
    return compile_program(SOURCE, directory)


def compile_program(source, directory):
    """The same for any program that uses Curator."""
    javac = os.environ.get("JAVAC") or shutil.which("javac")
    assert javac, "no Java compiler: install default-jdk-headless"
    jars = [os.path.join(JARS, name + ".jar") for name in NAMES]
    for jar in jars:
        assert os.path.exists(jar), (
            "no %s: install libcurator-recipes-java" % jar)
    path = ":".join([str(directory)] + jars)
    subprocess.run([javac, "-J-XX:TieredStopAtLevel=1", "-d", str(directory),
                    "-cp", path, source], check=True, timeout=60)
    return path


class Curator:
    def __init__(self, class_path, address, log, session_timeout=10000):
        self.asked = {}         # client's name -> futures, oldest first
        self.lock = threading.Lock()
        self.number = 0
        with open(str(log), "ab") as stderr:
            self.process = subprocess.Popen(
                tied([JAVA, "-Xmx128m", "-XX:+UseSerialGC",
                      "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
                      "-cp", class_path, "Contender", address,
                      str(session_timeout)]),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        self.ready = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def wait_ready(self):
        self.session = self.ready.get(timeout=TIMEOUT)
        assert self.session, "Curator did not start"
        return self

    def client(self):
        self.number += 1
        return Client(self, "client%d" % self.number)

    def ask(self, client, *words):
        future = Future()
        line = " ".join((client,) + words) + "\n"
        with self.lock:
            self.asked.setdefault(client, []).append(future)
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        return future

    def kill(self):
        """Kills the process, without a close of the session."""
        self.process.kill()
        self._wait()

    def close(self):
        """Ends the session, and with the session all claims."""
        if self.process.poll() is None:
            self.process.stdin.close()
        self._wait()

    def _wait(self):
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def _read(self):
        for line in self.process.stdout:
            name, *words = line.decode().split()
            if name == "ready":
                self.ready.put(int(words[0]))
                continue
            with self.lock:
                future = self.asked[name].pop(0)
            if words[0] == "error":
                future.set_exception(AssertionError(line.decode()))
            else:
                future.set_result(words)
        self.ready.put(None)


class Client:
    """A client of Curator; kind is mutex, read or write."""

    def __init__(self, curator, name):
        self.curator = curator
        self.name = name

    def begin(self, kind, path, seconds=60):
        """A future of the claim's name, None if the wait is over."""
        return Waiting(self.curator.ask(self.name, "acquire", kind, path,
                                        str(int(seconds * 1000))))

    def acquire(self, kind, path, seconds=TIMEOUT):
        """The name of the claim that holds the lock, None if refused."""
        return self.begin(kind, path, seconds).claim(seconds + TIMEOUT)

    def begin_release(self):
        return self.curator.ask(self.name, "release")

    def release(self):
        self.begin_release().result(TIMEOUT)

    def participants(self, kind, path):
        """The names of the claims that Curator lists as participants."""
        future = self.curator.ask(self.name, "participants", kind, path)
        return [claim.rpartition("/")[2]
                for claim in future.result(TIMEOUT)[1:]]


class Waiting:
    def __init__(self, future):
        self.future = future

    def claim(self, timeout=TIMEOUT):
        words = self.future.result(timeout)
        return (words[1].rpartition("/")[2] if words[0] == "held" else None)

    def silent_for(self, seconds):
        """Whether no answer comes for so long."""
        try:
            self.future.result(seconds)
        except NotYet:
            return True
        return False
