"""Frames made by hand: what a peer, or somebody who claims to be one, puts on the wire."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.model import FIRST
from tests.helpers.world import CLUSTER, World

RANGES = list[tuple[int, int]]


class Forger:
    """Makes well-formed frames from one member of a world to another."""

    def __init__(
        self, world: World, source: str, dest: str, *, cluster: str = CLUSTER, protocol: int = 0
    ) -> None:
        self._codec = Codec(hash64(cluster.encode()) & 0xFFFFFFFF, world.short(source), hash64)
        self._dest = world.short(dest)
        self._protocol = protocol or next(iter(world)).stack.unicast.protocol

    def data(
        self,
        conn: int,
        lo: int,
        *payloads: bytes,
        flags: int | None = None,
        mark: int = 0,
        stamp: int = 0,
        transmission: int = 0,
    ) -> bytes:
        """A batch of messages; FIRST where it begins with seqno 1, unless `flags` say otherwise."""
        if flags is None:
            flags = FIRST if lo == 1 else 0
        body = pack_body(payloads, hash64)
        head = self._codec.pack_data(
            self._protocol, self._dest, conn, lo, body, flags, transmission, mark, stamp
        )
        return head + body.data

    def ack(self, conn: int, seqno: int, stamp: int) -> bytes:
        return self._control(wire.ACK, conn, seqno, stamp=stamp)

    def sfs(self, conn: int, seqno: int, stamp: int) -> bytes:
        return self._control(wire.SFS, conn, seqno, stamp=stamp)

    def stable(self, conn: int, delivered: int, high: int, stamp: int) -> bytes:
        return self._control(wire.STABLE, conn, delivered, stamp=stamp, mark=high)

    def close(self, conn: int) -> bytes:
        return self._control(wire.CLOSE, conn, 0)

    def reset(self, conn: int, seqno: int) -> bytes:
        return self._control(wire.RESET_TO, conn, seqno)

    def request(self, conn: int, *ranges: tuple[int, int]) -> bytes:
        return self._control(wire.XMIT_REQ, conn, ranges[-1][1], ranges=list(ranges))

    def _control(
        self,
        kind: int,
        conn: int,
        seqno: int,
        *,
        stamp: int = 0,
        mark: int = 0,
        ranges: RANGES | None = None,
    ) -> bytes:
        return self._codec.pack_control(
            kind,
            self._protocol,
            self._dest,
            conn,
            seqno,
            mark=mark,
            stamp=stamp,
            ranges=ranges or (),
        )
