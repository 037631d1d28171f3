"""Payloads that prove themselves: made from the seed, recognised by whoever receives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from node.core.model import Payload

INDEX_BYTES: Final = 8
REMEMBERED: Final = 4096
"""Payloads of a stream that are known by heart, twice."""
PROVABLE_BYTES: Final = 16
"""From this size on a payload carries its number and enough of its fingerprint to be checked."""


class Stream:
    """The messages of one member incarnation to another: the n-th is a function of n and size."""

    __slots__ = ("_before", "_key", "_recent", "sent")

    def __init__(self, seed: int, source: str, dest: str) -> None:
        self._key = xxh3_64_intdigest(f"{seed}/{source}/{dest}".encode())
        self.sent = 0
        # What was made lately, in two halves: a multicast is recognised many times, and looking it
        # up costs a tenth of making it again.
        self._recent: set[bytes] = set()
        self._before: set[bytes] = set()

    def payload(self, index: int, size: tuple[int, int]) -> bytes:
        """Message number `index`: its number, then a fingerprint repeated to its size.

        Where `size` leaves a choice, the fingerprint makes it.
        """
        number = index.to_bytes(INDEX_BYTES, "big")
        mark = xxh3_64_digest(number, self._key)
        least, most = size
        length = least + int.from_bytes(mark[:4], "big") % (most - least + 1)
        made = (number + mark * (length // 8))[:length]
        recent = self._recent
        if len(recent) >= REMEMBERED:
            self._before, self._recent = recent, set()
            recent = self._recent
        recent.add(made)
        return made

    def recognises_all(self, payloads: Sequence[Payload]) -> bool:
        """Whether all payloads are of this stream, bit for bit."""
        if self._recent.issuperset(payloads) or self._before.issuperset(payloads):
            return True
        return all(map(self.recognises, payloads))

    def recognises(self, payload: Payload) -> bool:
        """Whether a payload is one of this stream, bit for bit."""
        if len(payload) < PROVABLE_BYTES:
            return True
        mark = xxh3_64_digest(payload[:INDEX_BYTES], self._key)
        return (mark * (len(payload) // 8 + 1))[: len(payload) - INDEX_BYTES] == payload[
            INDEX_BYTES:
        ]
