"""Tokens from claims and claims from tokens, as every gateway makes them.

To a client a token is opaque.  A token that is made here from a claim's znode
lets a test call with a token that no client was told yet, and a token that is
taken apart here tells which znode a client's token stands for.
"""

import base64
import re
import struct
import uuid

WORD = (1 << 64) - 1
KINDS = ("-lock-", "-__READ__", "-__WRIT__", "-member-", "-permit%d-")
PERMITS = re.compile(r"-permit(\d+)-")


def token_of(lock, claim):
    """The token of a claim, a znode's name below the lock's path."""
    marker = claim[39:-10]
    permits = PERMITS.fullmatch(marker)
    if permits:
        kind = KINDS.index("-permit%d-") << 13 | int(permits.group(1))
    else:
        kind = KINDS.index(marker) << 13
    head = (struct.pack(">H", kind) + uuid.UUID(claim[3:39]).bytes
            + struct.pack(">I", int(claim[-10:])))
    return base64.urlsafe_b64encode(head + check(head + lock.encode())
                                    ).decode()


def claim_of(token):
    """The name of the claim's znode that a token stands for."""
    data = base64.urlsafe_b64decode(token)
    kind, = struct.unpack_from(">H", data)
    marker = KINDS[kind >> 13]
    if "%" in marker:
        marker %= kind & 0x1fff
    return "_c_%s%s%010d" % (uuid.UUID(bytes=data[2:18]), marker,
                             struct.unpack_from(">I", data, 18)[0])


def check(data):
    """FNV-1a, and a finish that spreads every bit; the first two bytes."""
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & WORD
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
        value = (value ^ value >> 33) * factor & WORD
    value ^= value >> 33
    return struct.pack(">Q", value)[:2]
