"""The fate of a frame: a keyed hash of its identity, never the next number of a generator.

So timing does not change what is lost: the same frame of the same connection, in the same
transmission, has the same fate in every run with the same seed, and on every backend that uses the
same function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from xxhash import xxh3_64_intdigest

Fate = Callable[[bytes, int], int]
"""Maps the identity of a frame (stormcast.node.core.wire) and a key to a uniform 64-bit number."""

WHOLE: Final = 1 << 64


def fate_key(seed: int, rule: str, receiver: str) -> int:
    """Return the key of the dice that one fault throws for one receiver."""
    return xxh3_64_intdigest(f"{seed}/{rule}/{receiver}".encode())


def jhash_fate(known: bytes, key: int) -> int:
    """The kernel's dice (`jhash` of nftables), so that runs on real packets replay here."""
    return jhash(known, key & 0xFFFFFFFF) << 32


FATES: Final[dict[str, Fate]] = {"xxh3": xxh3_64_intdigest, "jhash": jhash_fate}
"""The functions by name: xxh3 is the simulator's own and fast, jhash the kernel's."""


def threshold(share: float) -> int:
    """Return the bound below which a fate lies with probability `share`."""
    return int(share * WHOLE)


def unit(fate: int) -> float:
    """Return a fate as a number in [0, 1)."""
    return (fate >> 11) / (1 << 53)


def jhash(key: bytes, seed: int) -> int:
    """Bob Jenkins' lookup3 as the kernel computes it; the key is a multiple of four bytes long."""
    assert len(key) % 4 == 0
    words = [int.from_bytes(key[at : at + 4], "little") for at in range(0, len(key), 4)]
    mask = 0xFFFFFFFF

    def rot(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & mask

    a = b = c = (0xDEADBEEF + len(key) + seed) & mask
    at = 0
    while len(words) - at > 3:  # noqa: PLR2004 lookup3 mixes three words at a time
        a, b, c = (a + words[at]) & mask, (b + words[at + 1]) & mask, (c + words[at + 2]) & mask
        a = ((a - c) & mask) ^ rot(c, 4)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ rot(a, 6)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ rot(b, 8)
        b = (b + a) & mask
        a = ((a - c) & mask) ^ rot(c, 16)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ rot(a, 19)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ rot(b, 4)
        b = (b + a) & mask
        at += 3
    tail = words[at:]
    if not tail:
        return c
    if len(tail) == 3:  # noqa: PLR2004 all three
        c = (c + tail[2]) & mask
    if len(tail) > 1:
        b = (b + tail[1]) & mask
    a = (a + tail[0]) & mask
    c = ((c ^ b) - rot(b, 14)) & mask
    a = ((a ^ c) - rot(c, 11)) & mask
    b = ((b ^ a) - rot(a, 25)) & mask
    c = ((c ^ b) - rot(b, 16)) & mask
    a = ((a ^ c) - rot(c, 4)) & mask
    b = ((b ^ a) - rot(a, 14)) & mask
    return ((c ^ b) - rot(b, 24)) & mask
