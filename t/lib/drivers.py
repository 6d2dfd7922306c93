"""The programs in t/clients that use the clients of clients/, one a language.

A driver holds a lock while the test says so:

    driver URL NAME WAITERS [OPTION=VALUE]...

and says a line for each event: "held TOKEN FENCING OWNER MODE", "lost ...",
"granted N" when so many further waiters of the same process have had the lock,
and "end HOW MESSAGE", where HOW is released, raised, taken, unreachable,
refused, lost or cancelled, which SIGINT does.  The lines "release" and "raise"
end the block of the lock, and "early" releases within the block.  So does
"late", when the lease is over by the client's clock, and no thread of the
client has noticed.  With raises=1 the function that is called at a loss raises
an exception.  Any other line asks whether the lock is held: "yes" or "no".

With loop=SECONDS the driver takes the lock again and again until a line comes,
and works for so long each time: it says "in OWNER FENCING" when the lock is
held, and "out OWNER FENCING" before the release.

Go and Java are compiled once for a run; Go's cache is in build/.
"""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading

from lib.gateway import TREE
from lib.process import as_from_a_terminal
from lib.zookeeper import JAVA

HERE = os.path.join(TREE, "t", "clients")
CLIENTS = os.path.join(TREE, "clients")
LANGUAGES = ["python", "node", "go", "java"]
JVM = [JAVA, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
       "-XX:-UsePerfData"]
TIMEOUT = 30.0


def tool(name, package):
    found = shutil.which(name)
    assert found, "no %s: install %s" % (name, package)
    return found


def build_go(directory, output):
    """Compiles the program of a folder, which has a go.mod."""
    environment = dict(os.environ, GOFLAGS="-mod=mod", GOPROXY="off",
                       GOCACHE=os.path.join(TREE, "build", "go-cache"))
    subprocess.run([tool("go", "golang-go"), "build", "-o", str(output), "."],
                   cwd=str(directory), check=True, timeout=300,
                   env=environment)
    return [str(output)]


def build_java(directory, source):
    """Compiles a program and the client; the name is that of the class."""
    subprocess.run([tool("javac", "default-jdk-headless"),
                    "-J-XX:TieredStopAtLevel=1", "-d", str(directory),
                    os.path.join(CLIENTS, "java", "ZkLock.java"),
                    str(source)], check=True, timeout=120)
    name = os.path.splitext(os.path.basename(str(source)))[0]
    return JVM + ["-cp", str(directory), name]


def build(directory):
    """language -> the command of the driver."""
    return {"python": [sys.executable, os.path.join(HERE, "driver.py")],
            "node": [tool("node", "nodejs"),
                     os.path.join(HERE, "driver.mjs")],
            "go": build_go(os.path.join(HERE, "driver"), directory / "driver"),
            "java": build_java(directory, os.path.join(HERE, "Driver.java"))}


class Driver:
    def __init__(self, command, url, name, waiters=0, **options):
        self.name = name
        self.lines = queue.Queue()
        self.process = subprocess.Popen(
            as_from_a_terminal(
                command + [url, name, str(waiters)]
                + ["%s=%s" % option for option in options.items()]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
            env=dict(os.environ, LC_ALL="C.UTF-8"))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hears(self, word, timeout=TIMEOUT):
        """The words of the next line, of which this is the first."""
        words = self.next(timeout)
        assert words and words[0] == word, (self.name, words)
        return words[1:]

    def next(self, timeout=TIMEOUT):
        """The words of the next line, None at the end."""
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError("%s says no more" % self.name) from None
        return None if line is None else line.split()

    def silent(self):
        return self.lines.empty()

    def is_held(self):
        self.say("?")
        word, = self.next()
        assert word in ("yes", "no"), word
        return word == "yes"

    def cancel(self):
        self.process.send_signal(signal.SIGINT)

    def release(self):
        self.say("release")
        assert self.hears("end") == ["released"]

    def kill(self):
        """Ends the process at once, as a machine's death would."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)
