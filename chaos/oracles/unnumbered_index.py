"""What traces say of messages that are neither numbered nor repaired (NO_RELIABILITY), indexed."""

from __future__ import annotations

from typing import Final

from stormcast.chaos.oracles.history import Member
from stormcast.node.trace import DELIVERED, SENT, Event

UNNUMBERED: Final = 0
"""Their protocol: none."""


class UnnumberedIndex:
    """Fed with one member's events after another's, each in order."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], list[Event]] = {}
        """By sender and receiver; 0 is the group."""
        self.delivered: dict[tuple[int, int], list[Event]] = {}
        """By receiver and sender."""

    def note(self, member: Member, event: Event) -> None:
        """Note what was sent or delivered."""
        key = member.short, event.peer
        if event.kind == SENT:
            self.sent.setdefault(key, []).append(event)
        elif event.kind == DELIVERED:
            self.delivered.setdefault(key, []).append(event)
