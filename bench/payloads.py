"""The messages of our members while they are measured: no two of a pool are equal.

The first byte says what kind a message is of, so that a receiver that reads the kind has touched
the message.
"""

from __future__ import annotations

from typing import Final

LOAD: Final = 0
REQUEST: Final = 1
REPLY: Final = b"\x02"

POOL: Final = 65_536
"""Distinct messages per sender."""
POOL_BYTES: Final = 1 << 20
"""Most bytes of a pool: so it stays in the cache, as a message does that was just made. A larger
pool measures memory: a tenth of a sender's time went into lengths that no cache held."""
LEAST: Final = 64


def make_pool(size: int, sender: int) -> list[bytes]:
    """Return messages of `size` bytes, distinct as far as so few bytes can be."""
    count = max(LEAST, min(POOL, POOL_BYTES // size))
    tail = sender.to_bytes(4, "little")
    return [_payload(size, number, tail) for number in range(count)]


def _payload(size: int, number: int, tail: bytes) -> bytes:
    # The number first: of a message of three bytes it is what makes it distinct.
    unit = number.to_bytes(3, "little") + tail
    return (bytes([LOAD]) + unit * (size // len(unit) + 1))[:size]


def request(size: int, number: int) -> bytes:
    """Return a request; its second byte comes back, so that a late answer is known as one."""
    return bytes([REQUEST, number & 0xFF]).ljust(size, b"\xa5")
