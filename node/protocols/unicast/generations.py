"""The four generations, and the choices in which they differ. See docs/protocols/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stormcast.node.core import wire
from stormcast.node.protocols.unicast.config import (
    Unicast1Config,
    Unicast2Config,
    Unicast3Config,
    Unicast4Config,
    UnicastConfig,
)
from stormcast.node.protocols.unicast.repairs import Repeats
from stormcast.node.protocols.unicast.reports import AckEach, AckLate, ReportNowAndThen, Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The choices of one generation."""

    protocol: int
    """Its number on the wire."""
    config_type: type[UnicastConfig]
    repeats: Repeats
    """The messages that a sender repeats when acks do not come."""
    reports: type[Reports]
    """When a receiver reports what it has."""
    acks_delivered: bool = False
    """Whether acks report what was delivered, not what was received in order."""
    asks_for_gaps: bool = True
    """Whether the receiver requests what is missing."""
    last_ack: int = wire.ACK
    """The kind of the last ack, sent when a window is removed."""
    closes_at_once: bool = False
    """Whether a view without the peer removes its connections at once instead of letting them
    flush."""


UNICAST1: Final = Generation(
    protocol=wire.UNICAST,
    config_type=Unicast1Config,
    repeats=Repeats.UNACKED,
    reports=AckEach,
    asks_for_gaps=False,
    closes_at_once=True,
)
"""Lost first and last messages are harmless because the sender keeps trying; the price is an ack
per frame, and a resend of the whole window whenever one ack is late. Reference only."""

UNICAST2: Final = Generation(
    protocol=wire.UNICAST2,
    config_type=Unicast2Config,
    repeats=Repeats.ENDS,
    reports=ReportNowAndThen,
    acks_delivered=True,
    last_ack=wire.STABLE,
    closes_at_once=True,
)
"""Reports (STABLE) replace acks. A lost first message is repeated until its one ACK came; a lost
last one is noticed by the report that follows the silence, or by the sender whose window does not
empty."""

UNICAST3: Final = Generation(
    protocol=wire.UNICAST3,
    config_type=Unicast3Config,
    repeats=Repeats.NEWEST,
    reports=AckLate,
)
"""Cumulative delayed acks. One newest message is enough to make every hole visible to the receiver,
which then asks for just what it misses."""

UNICAST4: Final = Generation(
    protocol=wire.UNICAST4,
    config_type=Unicast4Config,
    repeats=Repeats.NEWEST,
    reports=AckLate,
    acks_delivered=True,
)
"""UNICAST3 on a window of fixed size. Acking what was consumed, not what arrived, makes the window
the flow control: a slow receiver fills it, and the outbox of the sender refuses."""
