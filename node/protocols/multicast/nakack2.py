"""NAKACK2: silence means all is well. Receivers ask for gaps, senders keep what is not stable.

Stability (STABLE) says what everyone has delivered. Without retransmission (`xmit_interval` 0) the
windows only restore order; see docs/protocols/nakack2.md.
"""

from __future__ import annotations

from node.core import wire
from node.core.digest import Digest
from node.protocols.multicast.config import Nakack2Config
from node.protocols.multicast.inbound import Inbound
from node.protocols.multicast.machinery import Multicast
from node.protocols.multicast.receiving import MAX_AHEAD


class Nakack2(Multicast):
    """Negative acknowledgement."""

    protocol = wire.NAKACK2
    config_type = Nakack2Config
    config: Nakack2Config

    def _after_data(self, entry: Inbound, new: int, now: float) -> None:
        """Nobody acks: stability is a matter of its own."""

    def _announced(self, entry: Inbound, now: float) -> None:
        """Silence stays the answer."""

    def _own_progress(self, now: float) -> None:
        if len(self.members) == 1 and not self.is_frozen:
            self._purge(self.own.high, now)

    def _members_changed(self, now: float) -> None:
        self._own_progress(now)

    def _has_more_to_announce(self) -> bool:
        return (
            self.own.low < self.own.high
            and self._announcements < self.config.resend_last_seqno_max_times
        )

    def on_stability(self, digest: Digest, now: float) -> None:
        """Purge what everyone has delivered, and ask for what others have received and this member
        has not: the loss of a last message, however often its announcement was lost."""
        for peer in digest:
            delivered, received = digest[peer]
            if peer == self._port.me:
                # Never beyond what was sent: a vote about it would be a lie.
                self._purge(min(delivered, self.own.high), now)
                continue
            entry = self._inbound.get(peer)
            if entry is None:
                continue
            self._drop_kept(entry, delivered)
            # What is merely under way will be there at the second look (JGRP-2678).
            if received > entry.window.delivered + 2 * entry.window.capacity + MAX_AHEAD:
                # Nobody has received what its sender cannot have sent: it waits for this member.
                self._port.drop("stability-beyond-window")
            elif entry.window.seen < received:
                entry.window.note(received)
                self._notice_gap(entry, now)
