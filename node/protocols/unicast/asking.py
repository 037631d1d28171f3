"""Asking a peer for what is missing."""

from __future__ import annotations

from math import inf

from stormcast.node.core import wire
from stormcast.node.core.gaps import Ranges, split_ranges
from stormcast.node.protocols.unicast.entries import ReceiverEntry
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.windowed import request_missing


class Asking:
    """Looks at the gaps of receiver entries."""

    def __init__(self, state: Connections) -> None:
        self._state = state
        self._pacer = state.pacer

    def notice(self, entry: ReceiverEntry, now: float) -> None:
        """Look at a gap that appeared: now in `fast`, else at the next tick."""
        entry.look_due = self._pacer.first_gap_look(now)
        try:
            if entry.look_due <= now:
                self.look(entry, now)
            self._state.looks.set_earlier(entry, entry.look_due)
        except BaseException:
            # So that the next frame notices the gap: nothing else looks at it.
            entry.look_due = inf
            raise

    def look(self, entry: ReceiverEntry, now: float) -> None:
        """Request what was missing at the previous look already, and set the next look."""
        ask, entry.look_due = entry.gaps.look(entry.window, self._pacer, now)
        if ask:
            self._request(entry, ask, now)

    def _request(self, entry: ReceiverEntry, ranges: Ranges, now: float) -> None:
        state = self._state
        port = state.port
        if entry.is_stranger:
            ranges = self._admitted(entry.peer, ranges, now)
            if not ranges:
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

    def _admitted(self, stranger: int, ranges: Ranges, now: float) -> Ranges:
        """Return the ranges that a stranger may be asked for now: none, if strangers were told too
        much lately, and as many as the request that would leave has room for. One that does not
        leave must not fill the journal either."""
        port, config = self._state.port, self._state.config
        most = (port.contacts.largest(stranger) - wire.HEAD_SIZE) // wire.RANGE_STRUCT.size
        if most <= 0 or not port.strangers.said.admits_for(stranger, now):
            return []
        if stranger in port.contacts.trusted:
            return ranges
        most = min(most, config.max_xmit_req_ranges)
        first, _count = split_ranges(ranges, config.max_xmit_req_size, most)[0]
        return first
