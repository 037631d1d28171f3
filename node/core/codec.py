"""Packs and unpacks frames. A received frame is accepted only if every length and hash agrees.

The hash function is handed in (XXH3-64 in the product), because the core imports only the standard
library. The body is hashed once at each side, and its digest is also what the journal records.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from sys import byteorder
from typing import Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Payload
from stormcast.node.core.wire import LOW_HALF, Head

Hash64 = Callable[[Payload], int]

_unpack_head: Final = wire.HEAD_STRUCT.unpack_from
# Half of the cost of `Head._make`, which is a function written in Python.
_new_tuple: Final = tuple.__new__
_FRONT: Final = struct.Struct(wire.HEAD_STRUCT.format[:-1])
_CHECK: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">I")
_MAGIC, _VERSION, _CLUSTER, _CHECK_FIELD = map(
    Head._fields.index, ("magic", "version", "cluster", "check")
)
_SWAP: Final = byteorder == "little"
_VECTOR_CODES: Final = {2: "H", 4: "I"}

assert _FRONT.size == wire.CHECK_OFFSET


class Body(NamedTuple):
    """A batch's payloads as they travel, hashed; made once and resent as is."""

    data: bytes
    digest: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    width: int
    headers: int
    """Bytes before the lengths, which belong to upper protocols."""


def pack_body(
    payloads: Sequence[Payload],
    hash64: Hash64,
    header: bytes = b"",
    lengths: list[int] | None = None,
) -> Body:
    """Pack an upper protocol's header (if there is one), the lengths, the payloads back to back.

    `lengths` are those of the payloads, where the caller has them already.
    """
    count = len(payloads)
    if lengths is None:
        lengths = list(map(len, payloads))
    size = lengths[0]
    if header:
        vector = array("I", lengths)
        if _SWAP:
            vector.byteswap()
        data = b"".join((header, vector.tobytes(), *payloads))
        return Body(data, hash64(data), count, 4, len(header))
    if count == 1:
        data = _LENGTH.pack(size) + payloads[0]
        return Body(data, hash64(data), 1, 0, 0)
    if lengths.count(size) == count:
        data = b"".join((_LENGTH.pack(size), *payloads))
        return Body(data, hash64(data), count, 0, 0)
    width = 2 if max(lengths) < 1 << 16 else 4
    vector = array(_VECTOR_CODES[width], lengths)
    if _SWAP:
        vector.byteswap()
    data = b"".join((vector.tobytes(), *payloads))
    return Body(data, hash64(data), count, width, 0)


def unpack_lengths_untrusted(head: Head, body: bytes) -> tuple[int, int | Sequence[int]]:
    """Return where the payloads of a DATA body start, and their lengths: one if all are equal."""
    count, width, start = head.count, head.width, head.headers
    if not count:
        raise BadFrame("no-messages")
    if width == 0:
        at = start + _LENGTH.size
        if at > len(body):
            raise BadFrame("lengths")
        length: int = _LENGTH.unpack_from(body, start)[0]
        if at + length * count != len(body):
            raise BadFrame("lengths")
        if count > wire.MAX_EMPTY and not length:
            raise BadFrame("empty-messages")
        return at, length
    code = _VECTOR_CODES.get(width)
    if code is None:
        raise BadFrame("width")
    at = start + width * count
    if at > len(body):
        raise BadFrame("lengths")
    vector = array(code, body[start:at])
    if _SWAP:
        vector.byteswap()
    if at + sum(vector) != len(body):
        raise BadFrame("lengths")
    return at, vector


def pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    """The body of an XMIT_REQ: ascending, disjoint ranges, both ends included."""
    pack = wire.RANGE_STRUCT.pack
    return b"".join([pack(lo, hi - lo + 1) for lo, hi in ranges])


def unpack_ranges_untrusted(head: Head, body: bytes) -> list[tuple[int, int]]:
    """The ranges of an XMIT_REQ, checked to be ascending, disjoint and not empty."""
    if not head.count or head.count * wire.RANGE_STRUCT.size != len(body):
        raise BadFrame("ranges")
    ranges = []
    previous = 0
    for lo, length in wire.RANGE_STRUCT.iter_unpack(body):
        hi = lo + length - 1
        if lo <= previous or hi < lo or hi > wire.MAX_SEQNO:
            raise BadFrame("ranges")
        ranges.append((lo, hi))
        previous = hi
    return ranges


class Codec:
    """Packs and checks the frames of one member in one cluster."""

    __slots__ = ("cluster", "hash64", "source")

    def __init__(self, cluster: int, source: int, hash64: Hash64) -> None:
        self.cluster = cluster
        self.source = source
        self.hash64 = hash64

    def pack_data(
        self,
        protocol: int,
        dest: int,
        conn: int,
        lo: int,
        body: Body,
        flags: int,
        transmission: int,
        mark: int,
        stamp: int,
    ) -> bytes:
        """The head of a DATA frame; the caller sends it followed by `body.data`."""
        data, digest, count, width, headers = body
        front = _FRONT.pack(
            wire.MAGIC, wire.VERSION, count, wire.DATA, protocol, transmission, flags,
            self.cluster, self.source, dest, conn, lo,
            digest, mark, stamp, len(data), headers, width, 0,
        )  # fmt: skip  # a header's fields
        return front + _CHECK.pack(self.hash64(front) & LOW_HALF)

    def pack_control(
        self,
        kind: int,
        protocol: int,
        dest: int,
        conn: int,
        lo: int,
        transmission: int = 0,
        mark: int = 0,
        stamp: int = 0,
        ranges: Sequence[tuple[int, int]] = (),
        *,
        flags: int = 0,
        body: bytes = b"",
    ) -> bytes:
        """A whole control frame; its body is either ranges or what the protocol packed itself."""
        if ranges:
            body = pack_ranges(ranges)
        front = _FRONT.pack(
            wire.MAGIC, wire.VERSION, len(ranges), kind, protocol, transmission, flags,
            self.cluster, self.source, dest, conn, lo,
            self.hash64(body) if body else 0, mark, stamp, len(body), 0, 0, 0,
        )  # fmt: skip  # a header's fields
        return front + _CHECK.pack(self.hash64(front) & LOW_HALF) + body

    def readdress(self, head: Head, dest: int, transmission: int) -> bytes:
        """Pack the head of any member's frame anew, to repeat the frame on behalf of its sender."""
        front = _FRONT.pack(*head._replace(dest=dest, transmission=transmission)[:-1])
        return front + _CHECK.pack(self.hash64(front) & LOW_HALF)

    def unpack_untrusted(self, buffer: Payload, offset: int = 0) -> tuple[Head, bytes]:
        """Return the head and body of the frame at `offset`, or raise BadFrame with the reason."""
        head = _new_tuple(Head, self.unpack_fields_untrusted(buffer, offset))
        if head.seal:
            raise BadFrame("sealed")
        body_at = offset + wire.HEAD_SIZE
        size = head.size
        if size > wire.MAX_BODY or head.headers > size:
            raise BadFrame("size")
        # Copied, because a transport reuses its buffer.
        body = bytes(buffer[body_at : body_at + size])
        if len(body) != size:
            raise BadFrame("truncated")
        if size and self.hash64(body) != head.digest:
            raise BadFrame("digest")
        return head, body

    def unpack_fields_untrusted(self, buffer: Payload, offset: int) -> tuple[int, ...]:
        """Return the fields of the head at `offset`, undamaged and of this cluster, or raise
        BadFrame with the reason."""
        if len(buffer) - offset < wire.HEAD_SIZE:
            raise BadFrame("short")
        fields = _unpack_head(buffer, offset)
        if fields[_MAGIC] != wire.MAGIC:
            raise BadFrame("magic")
        if fields[_VERSION] != wire.VERSION:
            raise BadFrame("version")
        if fields[_CLUSTER] != self.cluster:
            raise BadFrame("cluster")
        check_at = offset + wire.CHECK_OFFSET
        if self.hash64(buffer[offset:check_at]) & LOW_HALF != fields[_CHECK_FIELD]:
            raise BadFrame("head-check")
        return fields
