"""A DNS server on loopback that answers from a dictionary.

    names["zk.test"] = ["127.0.0.1", "::1"]     the addresses, from now on
    names["zk.test"] = NXDOMAIN, SERVFAIL       an answer without an address
    names["zk.test"] = SILENT                   no answer

A name that is not in the dictionary does not exist (NXDOMAIN).  The time to
live of each answer is a second.  asked counts the questions by name.
"""

import collections
import ipaddress
import socket
import struct
import threading

NXDOMAIN = 3
SERVFAIL = 2
SILENT = None

TTL = 1
A, AAAA = 1, 28


class Dns:
    def __init__(self, host="127.0.0.1", port=0):
        self.host = host
        self.names = {}
        self.asked = collections.Counter()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, port))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def address(self):
        return "%s:%d" % (self.host, self.port)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"", (self.host, self.port))
        self.thread.join(5)
        self.socket.close()

    # inside

    def _serve(self):
        while True:
            query, client = self.socket.recvfrom(4096)
            if not query:
                return
            answer = self._answer(query)
            if answer is not None:
                self.socket.sendto(answer, client)

    def _answer(self, query):
        name, kind, end = question(query)
        known = self.names.get(name, NXDOMAIN)
        self.asked[name] += 1
        if known is SILENT:
            return None
        code, addresses = (known, []) if isinstance(known, int) else (0, known)
        records = [record(kind, address) for address in addresses
                   if (kind == AAAA) == (":" in address)]
        return (query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1,
                                        len(records), 0, 0)
                + query[12:end] + b"".join(records))


def question(query):
    """(the name, the type, the end) of the question of a query."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    return ".".join(labels).lower(), query[at + 2], at + 5


def record(kind, address):
    """An answer to the question, whose name is at offset 12."""
    data = ipaddress.ip_address(address).packed
    return struct.pack(">HHHIH", 0xc00c, kind, 1, TTL, len(data)) + data
