"""Asking a peer for what is missing."""

from __future__ import annotations

from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.gaps import Ranges
from stormcast.node.protocols.unicast.entries import ReceiverEntry
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.windowed import request_missing

_LEAST_BYTES: Final = wire.HEAD_SIZE + wire.RANGE_STRUCT.size


class Asking:
    """Looks at the gaps of receiver entries."""

    def __init__(self, state: Connections) -> None:
        self._state = state
        self._pacer = state.pacer

    def notice(self, entry: ReceiverEntry, now: float) -> None:
        """Look at a gap that appeared: now in `fast`, else at the next tick."""
        entry.look_due = self._pacer.first_gap_look(now)
        if entry.look_due <= now:
            self.look(entry, now)
        self._state.looks.set_earlier(entry, entry.look_due)

    def look(self, entry: ReceiverEntry, now: float) -> None:
        """Request what was missing at the previous look already, and set the next look."""
        ask, entry.look_due = entry.gaps.look(entry.window, self._pacer, now)
        if ask:
            self._request(entry, ask, now)

    def _request(self, entry: ReceiverEntry, ranges: Ranges, now: float) -> None:
        state = self._state
        port = state.port
        if entry.is_stranger and not (
            port.contacts.may_send(entry.peer, _LEAST_BYTES)
            and port.strangers.said.admits_for(entry.peer, now)
        ):
            # The request would not leave, or strangers were told too much lately: it must not fill
            # the journal either.
            return
        request_missing(
            port,
            state.generation.protocol,
            state.config,
            entry.gaps,
            ranges,
            now,
            dest=entry.peer,
            named=entry.conn,
            peer=entry.peer,
            conn=entry.conn,
            epoch=entry.epoch,
        )
