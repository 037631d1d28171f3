"""What each member has acknowledged of one sender's multicasts."""

from __future__ import annotations

from collections.abc import Iterable


class AckTable:
    """Member to its highest ack; the minimum is what nobody needs any more.

    Only members count: an ack of someone who left, or is not yet in, changes nothing (JGRP-2904).
    While the members stay the same the minimum never falls.
    """

    __slots__ = ("_acks", "minimum")

    def __init__(self) -> None:
        self._acks: dict[int, int] = {}
        self.minimum = 0

    def __len__(self) -> int:
        return len(self._acks)

    def __contains__(self, member: int) -> bool:
        return member in self._acks

    def ack(self, member: int, seqno: int) -> bool | None:
        """Take an ack; whether the minimum rose, or None when `member` is not in the table."""
        before = self._acks.get(member)
        if before is None:
            return None
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
        """Drop who is not a member, add who is new at `low`: what is purged it cannot need."""
        acks = self._acks
        self._acks = {member: acks.get(member, low) for member in members}
        self.minimum = min(self._acks.values(), default=low)

    def slowest(self) -> list[int]:
        """The members that hold the minimum."""
        return [member for member, seqno in self._acks.items() if seqno == self.minimum]

    def of(self, member: int) -> int | None:
        """What a member has acked; None for a stranger."""
        return self._acks.get(member)

    def clear(self) -> None:
        """Forget everyone."""
        self._acks.clear()
        self.minimum = 0
