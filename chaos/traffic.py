"""Payloads that prove themselves: made from the seed, recognised by whoever receives them."""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from node.core.model import Payload

INDEX_BYTES: Final = 8
PROVABLE_BYTES: Final = 16
"""From this size on a payload carries its number and enough of its fingerprint to be checked."""


class Stream:
    """The messages of one member incarnation to another: the n-th payload is a function of n."""

    __slots__ = ("_key", "_spread", "sent", "size")

    def __init__(self, seed: int, source: str, dest: str, size: tuple[int, int]) -> None:
        self._key = xxh3_64_intdigest(f"{seed}/{source}/{dest}".encode())
        self.size = size[0]
        self._spread = size[1] - size[0]
        self.sent = 0

    def payload(self, index: int) -> bytes:
        """Message number `index`: its number, then a fingerprint repeated to its size."""
        number = index.to_bytes(INDEX_BYTES, "big")
        mark = xxh3_64_digest(number, self._key)
        size = self.size
        if self._spread:
            size += int.from_bytes(mark[:4], "big") % (self._spread + 1)
        return (number + mark * (size // 8))[:size]

    def recognises(self, payload: Payload) -> bool:
        """Whether a payload is one of this stream, bit for bit."""
        if len(payload) < PROVABLE_BYTES:
            return True
        mark = xxh3_64_digest(payload[:INDEX_BYTES], self._key)
        return (mark * (len(payload) // 8 + 1))[: len(payload) - INDEX_BYTES] == payload[
            INDEX_BYTES:
        ]
