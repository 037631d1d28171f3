"""Joins messages that came in pieces, and counts what is kept of them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node import trace
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import OOB
from stormcast.node.protocols.frag import Joined, Reassembler

if TYPE_CHECKING:
    from stormcast.node.core.model import Delivery
    from stormcast.node.protocols.port import Port
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.settings import StackSettings

_KEEPER: Final = "pieces"


class Pieces:
    """The pieces of one member's stack, with FRAG or without it."""

    def __init__(self, settings: StackSettings, port: Port, unicast: Unicast) -> None:
        self._port = port
        self._unicast = unicast
        config = settings.fragments
        self.reassembler = Reassembler(config, lambda: _longest_life(unicast)) if config else None
        """Joins them; None in a stack without FRAG."""
        self.joined: Joined | None = None
        """A message that could not be handed over yet, for a bug or for want of memory."""
        self.last_piece: Delivery | None = None
        """The piece by which it was joined, and with which it comes again. Whoever has handed the
        message over sets both to None, without a call for each message."""

    def join(self, piece: Delivery, now: float) -> Joined | None:
        """Take a piece; return the whole message if this was its last piece."""
        if self.reassembler is None:
            self._port.drop("fragment")
            return None
        if self.joined is None or piece is not self.last_piece:
            self.joined, self.last_piece = None, piece
            try:
                self.joined = self.reassembler.take(
                    piece.source,
                    piece.is_multicast,
                    bool(piece.flags & OOB),
                    piece.conn,
                    piece.lo,
                    piece.header,
                    piece.messages[0],
                    piece.settled,
                    now,
                )
            except BadFrame as bad:
                self._port.drop(bad.reason)
                return None
            finally:
                self._count_stranger(piece.source)
        return self.joined

    def on_view(self, members: frozenset[int], now: float) -> None:
        """Give up pieces of senders that a view excludes."""
        if self.reassembler is not None:
            self.reassembler.on_view(members, now)
            for source in self.reassembler.strangers():
                self._count_stranger(source)

    def expire(self, now: float) -> None:
        """Give up pieces of messages whose rest will not come."""
        port, reassembler = self._port, self.reassembler
        if reassembler is None or reassembler.next_expiry > now:
            return
        # Deliveries that a stalled application has yet to take may be the rest of a message.
        if self._unicast.is_consuming and not (port.deliveries or port.withheld):
            port.drop("fragment-expired", reassembler.expire(now))
            for source in {*port.strangers.senders(), *port.strangers.remembered()}:
                self._count_stranger(source)

    def _count_stranger(self, source: int) -> None:
        """Count what is kept of a stranger's messages: it was acked, so nothing pushes it out."""
        if self.reassembler is not None and self._unicast.is_stranger(source):
            strangers = self._port.strangers
            strangers.keep(source, _KEEPER, *self.reassembler.kept_of_stranger(source))
            strangers.remember(source, *self.reassembler.remembered(source))
            if strangers.is_over:
                self.forget_remembered()

    def forget_remembered(self) -> None:
        """Forget which messages of strangers are over, of those first that were not heard for
        longest, until no more is kept of all strangers than their budget admits."""
        strangers = self._port.strangers
        for source in strangers.remembered():
            assert self.reassembler is not None, "nothing else remembers"
            self.reassembler.forget_remembered(source)
            strangers.remember(source, 0, 0)
            if not strangers.is_over:
                return

    def gauge(self, now: float) -> None:
        """Record the cost of messages of which pieces are missing (G5)."""
        reassembler = self.reassembler
        if reassembler is not None and reassembler.open_bytes:
            self._port.tracer.record(
                trace.GAUGE,
                now,
                stream=trace.FRAGMENT_BYTES,
                lo=reassembler.open_bytes,
                hi=reassembler.bound(),
            )


def _longest_life(unicast: Unicast) -> float:
    """Return after how many seconds without an answer nobody goes on sending a message to a
    receiver outside its view: the connection has aged, or was idle, and is removed."""
    config = unicast.config
    if not config.max_retransmit_time:
        return inf
    idle = config.conn_expiry_timeout + config.conn_close_timeout
    return config.max_retransmit_time + idle
