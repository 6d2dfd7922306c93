"""Memory that runs short: allocations of a process fail, one or all.

shortage.c is preloaded into a gateway's nginx and shares a file with this:

    arm(pid, first)     the allocation of that number fails, from now on
    arm(pid, first, for_good=True)
                        that allocation and all later allocations fail
    disarm()            no allocation fails any more
    count, failed       allocations since arm(), and how many of these failed

libzookeeper's own allocations never fail, because libzookeeper writes to what
malloc() returned without a check.

traces() tells where the failures were, as functions, the innermost first.
"""

import ctypes
import mmap
import os
import re
import subprocess

from lib.gateway import TREE

LIBRARY = os.path.join(TREE, "build", "t", "shortage.so")
SPARED = "libzookeeper_mt"

LOOP = 1
OTHERS = 2
NEVER = (1 << 63) - 1
NOTES = 24
DEPTH = 16


class Shared(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("pid", "threads", "first", "last", "low", "high", "count",
                 "failed")] + [("notes", ctypes.c_uint64 * DEPTH * NOTES)]


class Shortage:
    def __init__(self, directory):
        self.path = os.path.join(str(directory), "shortage")
        with open(self.path, "wb") as f:
            f.truncate(ctypes.sizeof(Shared))
        with open(self.path, "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), ctypes.sizeof(Shared))
        self.shared = Shared.from_buffer(self.memory)
        self.texts = {}         # pid -> [(begin, end, offset, file)]
        self.names = {}         # (file, address) -> function

    @property
    def environment(self):
        assert os.path.exists(LIBRARY), "no %s: make %s" % (LIBRARY, LIBRARY)
        return {"LD_PRELOAD": LIBRARY, "ZK_LOCK_SHORTAGE": self.path}

    def arm(self, pid, first=NEVER, for_good=False, threads=LOOP,
            spare=SPARED):
        shared = self.shared
        shared.pid = 0
        shared.low, shared.high = self._text(pid, spare)
        shared.threads = threads
        shared.first = first
        shared.last = NEVER if for_good else first
        shared.count = shared.failed = 0
        ctypes.memset(shared.notes, 0, ctypes.sizeof(shared.notes))
        shared.pid = pid

    def disarm(self):
        self.shared.pid = 0

    @property
    def count(self):
        return self.shared.count

    @property
    def failed(self):
        return self.shared.failed

    def traces(self, pid):
        """For each failure, the functions that led there."""
        notes = self.shared.notes
        return [[self._function(pid, address) for address in notes[i]
                 if address] for i in range(min(self.failed, NOTES))]

    def _mapped(self, pid):
        if pid not in self.texts:
            with open("/proc/%d/maps" % pid) as f:
                found = re.findall(r"^(\w+)-(\w+) ..x. (\w+) \S+ \d+ +(/.*)$",
                                   f.read(), re.M)
            self.texts[pid] = [(int(begin, 16), int(end, 16),
                                int(offset, 16), path)
                               for begin, end, offset, path in found]
        return self.texts[pid]

    def _text(self, pid, spare):
        for begin, end, _, path in self._mapped(pid):
            if spare and spare in path:
                return begin, end
        return 0, 0

    def _function(self, pid, address):
        for begin, end, offset, path in self._mapped(pid):
            if begin <= address < end:
                # the address of the call, not the return address
                return self._named(path, address - begin + offset - 1)
        return "?"

    def _named(self, path, address):
        key = path, address
        if key not in self.names:
            run = subprocess.run(["addr2line", "-fse", path, hex(address)],
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, timeout=60)
            lines = run.stdout.decode().split()
            self.names[key] = (
                "%s (%s)" % (lines[0], lines[1]) if lines[0] != "??"
                else os.path.basename(path))
        return self.names[key]
