"""Tokens from claims and claims from tokens, as every gateway makes them.

To a client a token is opaque.  But one that was made here from a claim's
znode lets a test ask for a claim whose client was told no token yet, and one
that is taken apart here tells which znode a client's token stands for.
"""

import base64
import struct
import uuid

WORD = (1 << 64) - 1
KINDS = ("-lock-", "-__READ__", "-__WRIT__")


def token_of(lock, claim):
    """The token of a claim, a znode's name below the lock's path."""
    marker = claim[39:-10]
    head = (bytes([KINDS.index(marker)]) + uuid.UUID(claim[3:39]).bytes
            + struct.pack(">I", int(claim[-10:])))
    return base64.urlsafe_b64encode(head + _check(head + lock.encode())
                                    ).decode()


def claim_of(token):
    """The name of the claim's znode that a token stands for."""
    data = base64.urlsafe_b64decode(token)
    return "_c_%s%s%010d" % (uuid.UUID(bytes=data[1:17]), KINDS[data[0]],
                             struct.unpack_from(">I", data, 17)[0])


def _check(data):
    """FNV-1a, and a finish that spreads every bit; the first three bytes."""
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & WORD
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
        value = (value ^ value >> 33) * factor & WORD
    value ^= value >> 33
    return struct.pack(">Q", value)[:3]
