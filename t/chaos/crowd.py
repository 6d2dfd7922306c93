"""The clients of a run as processes, and how the run ends them.

HTTP clients (clients.py), kazoo's (foreign.py) and Curator's (Contenders.java)
are a process each.  A process ends when the standard input ends, and the run
waits: a client that never ends has a call that was never answered.
"""

import json
import os
import subprocess
import sys

from chaos.arena import ROOT, SESSION_TIMEOUT
from lib.curator import compile_program
from lib.process import tied
from lib.zookeeper import JAVA

HERE = os.path.dirname(os.path.abspath(__file__))
END_TIMEOUT = 150.0

# the name of a lock says which clients take the lock, and how
HTTP = ["own1", "own2", "own3", "rw1", "sem1"]
KAZOO = ["kazoo1", "kazoo2"]
CURATOR = ["curator1", "curator2"]

TURNS = {"plain": 5, "long": 1, "key": 4, "dies": 1, "leaves": 1,
         "guarded": 4}


class Crowd:
    def __init__(self, directory, guard, servers, gateways, seed):
        self.directory = directory
        self.processes = []
        self.job = {"record": directory, "guard": guard.port, "seed": seed,
                    "root": ROOT, "servers": servers, "gateways": gateways,
                    "session_timeout": SESSION_TIMEOUT, "pause": 0.3,
                    "ttl": [2, 8], "wait": 8, "hold": [0, 1.5], "long": [2, 7],
                    "durable": 0.4, "permits": 2,
                    "turns": TURNS, "outlive": False, "stays": False}

    def http(self, name, clients, locks=tuple(HTTP + KAZOO + CURATOR),
             **changes):
        self._python("clients.py", dict(self.job, name=name, locks=locks,
                                        clients=clients, **changes))

    def kazoo(self, clients):
        self._python("foreign.py", dict(self.job, name="kazoo",
                                        locks=KAZOO, clients=clients))

    def curator(self, clients):
        job = self.job
        path = compile_program(os.path.join(HERE, "Contenders.java"),
                               self.directory)
        self._start("curator", [
            JAVA, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData", "-cp", path, "Contenders", job["servers"],
            str(int(SESSION_TIMEOUT * 1000)),
            os.path.join(self.directory, "curator.jsonl"),
            str(job["guard"]), str(clients), str(job["wait"] * 1000),
            str(int(job["hold"][1] * 1000)), str(job["seed"])]
            + [ROOT + "/" + name for name in CURATOR])

    def _python(self, program, job):
        path = os.path.join(self.directory, job["name"] + ".job")
        with open(path, "w") as f:
            json.dump(job, f)
        self._start(job["name"], [sys.executable,
                                  os.path.join(HERE, program), path])

    def _start(self, name, command):
        with open(os.path.join(self.directory, name + ".log"), "ab") as log:
            process = subprocess.Popen(tied(command), stdin=subprocess.PIPE,
                                       stdout=log, stderr=log)
        process.name = name
        self.processes.append(process)

    def dead(self):
        """The processes that have ended before they were told to."""
        return ["%s ended by itself with %d" % (p.name, p.returncode)
                for p in self.processes if p.poll() is not None]

    def finish(self):
        """Lets all processes end; returns what went wrong."""
        complaints = self.dead()
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                if process.wait(END_TIMEOUT) != 0:
                    complaints.append("%s failed" % process.name)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                complaints.append("%s did not end" % process.name)
        self.processes = []
        return complaints

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
        self.processes = []
