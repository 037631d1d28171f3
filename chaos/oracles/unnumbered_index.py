"""Indexes the events of messages that are neither numbered nor repaired (NO_RELIABILITY)."""

from __future__ import annotations

from typing import Final

from stormcast.chaos.oracles.history import Member
from stormcast.node.trace import DELIVERED, SENT, Event

UNNUMBERED: Final = 0
"""The number in place of their protocol."""


class UnnumberedIndex:
    """The index of such messages. It is fed with the events of one member after another."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], list[Event]] = {}
        """By sender and receiver; 0 is the group."""
        self.delivered: dict[tuple[int, int], list[Event]] = {}
        """By receiver and sender."""

    def note(self, member: Member, event: Event) -> None:
        """Note a batch that was sent or delivered."""
        key = member.short, event.peer
        if event.kind == SENT:
            self.sent.setdefault(key, []).append(event)
        elif event.kind == DELIVERED:
            self.delivered.setdefault(key, []).append(event)
