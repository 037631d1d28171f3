"""The acks of all members for one sender's multicasts."""

from __future__ import annotations

from collections.abc import Iterable


class AckTable:
    """Maps each member to its highest ack; nobody needs messages up to the minimum any more.

    Only members count: an ack of someone who left, or is not yet in, changes nothing (JGRP-2904).
    While the members stay the same the minimum never falls.
    """

    __slots__ = ("_acks", "minimum", "unheard")

    def __init__(self) -> None:
        self._acks: dict[int, int] = {}
        self.minimum = 0
        self.unheard: set[int] = set()
        """Members that have not acked since they came in: they may not know what is purged."""

    def __len__(self) -> int:
        return len(self._acks)

    def __contains__(self, member: int) -> bool:
        return member in self._acks

    def ack(self, member: int, seqno: int) -> bool | None:
        """Take an ack; return whether the minimum rose, or None if `member` is not in the table."""
        before = self._acks.get(member)
        if before is None:
            return None
        if seqno >= before:
            # An older ack was sent before the member came in, and says nothing of what it knows.
            self.unheard.discard(member)
        if seqno <= before:
            return False
        self._acks[member] = seqno
        # Only the ack of a slowest member can move the minimum.
        if before > self.minimum:
            return False
        old = self.minimum
        self.minimum = min(self._acks.values())
        return self.minimum > old

    def adjust(self, members: Iterable[int], low: int) -> None:
        """Drop those who are not members, and add new members at `low`: they need nothing that is
        purged."""
        acks = self._acks
        self._acks = {member: acks.get(member, low) for member in members}
        self.minimum = min(self._acks.values(), default=low)
        new = self._acks.keys() - acks.keys() if low else set()
        self.unheard = self.unheard & self._acks.keys() | new

    def slowest(self) -> list[int]:
        """The members that hold the minimum."""
        return [member for member, seqno in self._acks.items() if seqno == self.minimum]

    def of(self, member: int) -> int | None:
        """Return what a member has acked; None if it is not in the table."""
        return self._acks.get(member)

    def clear(self) -> None:
        """Forget everyone."""
        self._acks.clear()
        self.unheard.clear()
        self.minimum = 0
