"""The two protocols, and the choices in which they differ. See docs/protocols/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stormcast.node.core import wire
from stormcast.node.protocols.multicast.config import McastConfig, MulticastConfig, Nakack2Config
from stormcast.node.protocols.multicast.reports import AckDelivered, Reports, Silence
from stormcast.node.protocols.multicast.retention import Retention, UntilAcked, UntilStable


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The choices of one protocol."""

    protocol: int
    """Its number on the wire."""
    config_type: type[MulticastConfig]
    reports: type[Reports]
    """The rule for what a receiver reports: nothing, or acks."""
    retention: type[Retention]
    """The rule for how long a sender keeps its messages."""


NAKACK2: Final = Generation(
    protocol=wire.NAKACK2,
    config_type=Nakack2Config,
    reports=Silence,
    retention=UntilStable,
)
"""Negative acknowledgement: receivers ask for gaps, and stability (STABLE) says what everyone has
delivered. Without retransmission (`xmit_interval` 0) the windows only restore order."""

MCAST: Final = Generation(
    protocol=wire.MCAST,
    config_type=McastConfig,
    reports=AckDelivered,
    retention=UntilAcked,
)
"""A fixed window, acked by every member: flow control is built in, and no STABLE is needed. A
sender is at most `window_messages` ahead of its slowest member; then its outbox waits, and in the
end refuses. Receivers never wait: what does not fit is dropped, and asked for when there is room.
"""
