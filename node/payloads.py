"""Payloads that are made from the seed, so that every receiver can check them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from stormcast.node.core.codec import pack_body
from stormcast.node.core.model import Payload

INDEX_BYTES: Final = 8
PROVABLE_BYTES: Final = 16
"""From this size on a payload carries its number and enough of its fingerprint to be checked."""


def stream_of(seed: int, name: str, short: int, dest: int) -> PayloadStream:
    """Return the messages of one incarnation to a destination (a short id; 0 is the group)."""
    return PayloadStream(seed, f"{name}:{short:x}", f"{dest:x}")


class PayloadStream:
    """The messages of one member incarnation to another: the n-th is a function of n and size."""

    __slots__ = ("_key", "sent")

    def __init__(self, seed: int, source: str, dest: str) -> None:
        self._key = xxh3_64_intdigest(f"{seed}/{source}/{dest}".encode())
        self.sent = 0

    def payload(self, index: int, size: tuple[int, int]) -> bytes:
        """Return message number `index`: its number, then its fingerprint, repeated to the size.

        The size is between the two of `size`, and follows from the fingerprint.
        """
        return self._make(index.to_bytes(INDEX_BYTES, "big"), *size)

    def batch(self, first: int, count: int, size: tuple[int, int]) -> list[bytes]:
        """Return `count` messages from number `first` on, as `payload` makes them. If all are
        equally long, the length is worked out once."""
        key = self._key
        least, most = size
        numbers = [index.to_bytes(INDEX_BYTES, "big") for index in range(first, first + count)]
        if least != most or least < PROVABLE_BYTES:
            return [self._make(number, least, most) for number in numbers]
        repeats, rest = divmod(least - INDEX_BYTES, 8)
        if not rest:
            return [number + xxh3_64_digest(number, key) * repeats for number in numbers]
        marks = [xxh3_64_digest(number, key) for number in numbers]
        return [
            number + mark * repeats + mark[:rest]
            for number, mark in zip(numbers, marks, strict=True)
        ]

    def digest(self, first: int, count: int, size: tuple[int, int]) -> int:
        """Return the digest that the trace holds for a batch of these messages, so that a checker
        that knows the stream can tell which messages were in the batch."""
        return pack_body(self.batch(first, count, size), xxh3_64_intdigest).digest

    def strangers(self, payloads: Iterable[Payload]) -> int:
        """Count the payloads that are not of this stream, among those of PROVABLE_BYTES or more."""
        key, wrong, known, repeats = self._key, 0, -1, 0
        for payload in payloads:
            size = len(payload)
            if size != known:
                known, repeats = size, size // 8
            # To compare a memoryview with bytes, element by element, costs ten times a copy.
            told = bytes(payload)
            mark = xxh3_64_digest(told[:INDEX_BYTES], key)
            if (mark * repeats)[: size - INDEX_BYTES] != told[INDEX_BYTES:]:
                wrong += size >= PROVABLE_BYTES
        return wrong

    def _make(self, number: bytes, least: int, most: int) -> bytes:
        mark = xxh3_64_digest(number, self._key)
        length = least + int.from_bytes(mark[:4], "big") % (most - least + 1)
        return (number + mark * (length // 8))[:length]
