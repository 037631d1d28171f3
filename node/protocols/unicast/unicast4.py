"""UNICAST4: UNICAST3 on a window of fixed size, acked as it is delivered.

Acking what was consumed, not what arrived, makes the window the flow control: a slow receiver fills
it, and the outbox of the sender refuses. See docs/protocols/unicast4.md.
"""

from __future__ import annotations

from node.core import wire
from node.core.window import quarter_of
from node.protocols.unicast.config import Unicast4Config
from node.protocols.unicast.entries import ReceiverEntry
from node.protocols.unicast.unicast3 import Unicast3


class Unicast4(Unicast3):
    """The fourth generation."""

    protocol = wire.UNICAST4
    config_type = Unicast4Config
    config: Unicast4Config

    def _ack_threshold(self) -> int:
        return self.config.ack_threshold or quarter_of(self.config.window_messages)

    def _ack_value(self, entry: ReceiverEntry) -> int:
        return entry.window.delivered
