"""Records a member's events: a method for each event of the hot path, one for all rare events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stormcast.node import trace
from stormcast.node.core.codec import Body, Hash64
from stormcast.node.trace import pack_block, pack_text

_NUMBER_BITS: Final = 0xFFFFFFFF
"""A record has 32 bits for the number of a message among the application's."""


class Tracer:
    """Collects one member's events and seals them into blocks.

    Recording appends a tuple in the order of Event's fields: the packing is paid once per block.
    Methods that are called for each batch take their fields by place: thirteen keywords would cost
    as much as the record.
    `sink` is given each block before the frames of its turn leave.
    """

    __slots__ = (
        "_hash64",
        "_member",
        "_sink",
        "_texts",
        "_wall_ns",
        "numbered",
        "records",
        "seal_at",
    )

    def __init__(
        self,
        member: int,
        wall_ns: int,
        hash64: Hash64,
        sink: Callable[[bytes], None],
        seal_at: int = 1,
    ) -> None:
        self._member = member
        self._wall_ns = wall_ns
        self._hash64 = hash64
        self._sink = sink
        self._texts: list[bytes] = []
        self.numbered = 0
        self.seal_at = seal_at
        self.records: list[tuple[float, ...]] = []

    # -- Messages -----------------------------------------------------------------------------

    def sent(
        self,
        now: float,
        protocol: int,
        peer: int,
        conn: int,
        view: int,
        flags: int,
        body: Body,
        number: int,
        lo: int,
        hi: int,
    ) -> None:
        """Record that a batch leaves, with its seqnos, if it has any. `number` is that of its first
        message among the application's to this peer."""
        self.records.append(
            (trace.SENT, flags, protocol, 0, peer, conn, 0, view,
             body.count, lo, hi, len(body.data), body.digest, number & _NUMBER_BITS, 0, now)
        )  # fmt: skip  # a record's columns

    def retransmitted(
        self,
        now: float,
        *,
        protocol: int,
        peer: int,
        conn: int,
        flags: int,
        transmission: int,
        lo: int,
        hi: int,
        size: int,
        digest: int,
        view: int = 0,
    ) -> None:
        """Record that a batch leaves again."""
        self.records.append(
            (trace.RETRANSMITTED, flags, protocol, transmission, peer, conn, 0, view,
             hi - lo + 1, lo, hi, size, digest, 0, 0, now)
        )  # fmt: skip  # a record's columns

    def delivered(
        self,
        now: float,
        protocol: int,
        peer: int,
        conn: int,
        epoch: int,
        view: int,
        flags: int,
        lo: int,
        hi: int,
        size: int,
        digest: int,
        stream: int,
        trim: int,
    ) -> None:
        """Record that a batch of a peer, or the new part of it, was handed up in its place."""
        self.records.append(
            (trace.DELIVERED, flags, protocol, stream, peer, conn, epoch, view,
             hi - lo + 1, lo, hi, size, digest, trim, 0, now)
        )  # fmt: skip  # a record's columns

    def offered(self, now: float, *, peer: int, lo: int, hi: int) -> None:
        """Record that the application offered its messages `lo..hi` to a peer to the stack."""
        self.records.append(
            (trace.OFFERED, 0, 0, 0, peer, 0, 0, 0, hi - lo + 1, lo, hi, 0, 0, 0, 0, now)
        )

    def handed(self, now: float, *, protocol: int, peer: int, conn: int, lo: int, hi: int) -> None:
        """Record that the application was handed these messages of a peer, as delivered."""
        self.records.append(
            (trace.HANDED, 0, protocol, trace.AS_DELIVERED, peer, conn, 0, 0,
             hi - lo + 1, lo, hi, 0, 0, 0, 0, now)
        )  # fmt: skip  # a record's columns

    def answered(
        self, now: float, *, protocol: int, peer: int, conn: int, count: int, lo: int, hi: int
    ) -> None:
        """Record that a peer's request for `count` of `lo..hi` came: what is resent to it next is
        the answer."""
        self.records.append(
            (trace.ANSWERED, 0, protocol, 0, peer, conn, 0, 0, count, lo, hi, 0, 0, 0, 0, now)
        )

    # -- What receivers report ----------------------------------------------------------------

    def requested(
        self,
        now: float,
        *,
        protocol: int,
        peer: int,
        conn: int = 0,
        epoch: int,
        view: int = 0,
        stream: int = trace.REPAIR,
        count: int,
        lo: int,
        hi: int,
    ) -> None:
        """Record that of a peer's messages `lo..hi` `count` are missing, and were asked for."""
        self.records.append(
            (trace.REQUESTED, 0, protocol, stream, peer, conn, epoch, view,
             count, lo, hi, 0, 0, 0, 0, now)
        )  # fmt: skip  # a record's columns

    def acked(
        self,
        now: float,
        *,
        protocol: int,
        kind: int,
        peer: int,
        conn: int = 0,
        epoch: int,
        view: int = 0,
        seqno: int,
    ) -> None:
        """Record that a frame of this kind tells a peer that everything up to `seqno` is here."""
        self.records.append(
            (trace.ACKED, 0, protocol, kind, peer, conn, epoch, view, 0, seqno, 0, 0, 0, 0, 0, now)
        )

    def purged(
        self,
        now: float,
        *,
        protocol: int,
        peer: int,
        conn: int = 0,
        view: int = 0,
        lo: int,
        hi: int,
    ) -> None:
        """Record that the sender no longer keeps these messages."""
        self.records.append(
            (trace.PURGED, 0, protocol, 0, peer, conn, 0, view,
             hi - lo + 1, lo, hi, 0, 0, 0, 0, now)
        )  # fmt: skip  # a record's columns

    # -- Everything else ----------------------------------------------------------------------

    def record(
        self,
        kind: int,
        time: float,
        *,
        flags: int = 0,
        protocol: int = 0,
        stream: int = 0,
        peer: int = 0,
        conn: int = 0,
        epoch: int = 0,
        view: int = 0,
        count: int = 0,
        lo: int = 0,
        hi: int = 0,
        size: int = 0,
        digest: int = 0,
        text: str = "",
    ) -> None:
        """Record a rare event."""
        at = self._text(text) if text else 0
        self.records.append(
            (kind, flags, protocol, stream, peer, conn, epoch, view,
             count, lo, hi, size, digest, 0, at, time)
        )  # fmt: skip  # a record's columns

    def turn(self) -> None:
        """End a turn: hand the sink a block once `seal_at` events have come together."""
        if len(self.records) >= self.seal_at:
            self.seal()

    def seal(self) -> None:
        """Hand the sink everything recorded so far."""
        records = self.records
        if not records:
            return
        self.records = []
        texts = b""
        if self._texts:
            texts = b"".join(self._texts)
            self._texts = []
        first = self.numbered
        self.numbered = first + len(records)
        self._sink(pack_block(self._member, first, self._wall_ns, records, texts, self._hash64))

    def _text(self, text: str) -> int:
        """Keep a text; return its number within the block, from 1."""
        self._texts.append(pack_text(text))
        return len(self._texts)
