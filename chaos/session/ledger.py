"""Which messages members owe each other: all that were sent to a member, without those that had not
arrived when the two parted.

They are told apart one by one. A message that had not arrived then may come all the same, as where
only one of the two took a view without the other; it must not stand in for one that is still owed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

Direction = tuple[int, int]
"""Sender and receiver, by their short ids."""
Numbering = tuple[str, int]
"""What counts messages: a connection, a stream, or for messages without seqnos their digest."""


class Messages(NamedTuple):
    """Messages that left, or arrived, together."""

    numbering: Numbering
    lo: int
    hi: int


class Arrival(NamedTuple):
    """Messages that arrived, each counted once."""

    time: float
    direction: Direction
    new: int
    """Those that had not arrived before."""
    owed: int
    """Those of them that were owed."""


class Spans:
    """Numbers, as ranges without a gap."""

    def __init__(self) -> None:
        self._los: list[int] = []
        self._his: list[int] = []

    def __len__(self) -> int:
        return sum(hi - lo + 1 for lo, hi in zip(self._los, self._his, strict=True))

    def add(self, lo: int, hi: int) -> None:
        """Add numbers of which none is there yet."""
        at = len(self._los)
        if at and lo < self._los[-1]:
            at = bisect_right(self._los, lo)
        if at and self._his[at - 1] == lo - 1:
            self._his[at - 1] = hi
        else:
            self._los.insert(at, lo)
            self._his.insert(at, hi)

    def take(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Remove the numbers of a range that are there, and return them."""
        taken: list[tuple[int, int]] = []
        if not self._los or lo > self._his[-1]:
            # What comes for the first time, mostly.
            return taken
        if lo == self._los[0] and hi < self._his[0]:
            # What is owed is taken from its beginning, mostly.
            self._los[0] = hi + 1
            return [(lo, hi)]
        at = max(0, bisect_right(self._los, lo) - 1)
        while at < len(self._los) and self._los[at] <= hi:
            first, last = self._los[at], self._his[at]
            if last < lo:
                at += 1
                continue
            taken.append((max(first, lo), min(last, hi)))
            left = [(one, two) for one, two in ((first, lo - 1), (hi + 1, last)) if one <= two]
            self._los[at : at + 1] = [one for one, _two in left]
            self._his[at : at + 1] = [two for _one, two in left]
            at += len(left)
        return taken


class _Way:
    """The messages of one member for another."""

    def __init__(self) -> None:
        self.sent: list[Messages] = []
        self.came: list[Messages] = []
        """Since the two parted last."""
        self.owed: defaultdict[Numbering, Spans] = defaultdict(Spans)
        """Those of before that had arrived."""
        self.seen_sent: Counter[Numbering] = Counter()
        self.seen_came: Counter[Numbering] = Counter()
        """How many there were so far of equal messages without seqnos. Those that came are counted
        from the last parting."""
        self.all_came: defaultdict[Numbering, Spans] = defaultdict(Spans)
        self.equal_came: Counter[Numbering] = Counter()
        """What came since the begin: with seqnos, and without."""

    def part(self) -> None:
        """Keep of what was sent what has arrived."""
        under_way: defaultdict[Numbering, Spans] = defaultdict(Spans)
        for numbering, lo, hi in self.sent:
            under_way[numbering].add(lo, hi)
        for numbering, lo, hi in self.came:
            for span in under_way[numbering].take(lo, hi):
                self.owed[numbering].add(*span)
        self.sent, self.came = [], []
        # Of equal messages without seqnos nobody knows which were lost: what comes is a new one.
        self.seen_came = self.seen_sent.copy()

    def come(self, messages: Messages, left: int) -> int:
        """Note messages that came; returns how many of them had not come before. Of equal messages
        without seqnos as many can come as have left."""
        numbering, lo, hi = messages
        if not lo:
            before = self.equal_came[numbering]
            self.equal_came[numbering] += hi
            return min(before + hi, left) - min(before, left)
        came = self.all_came[numbering]
        again = sum(last - first + 1 for first, last in came.take(lo, hi))
        came.add(lo, hi)
        return hi - lo + 1 - again

    def all_owed(self) -> dict[Numbering, Spans]:
        """Return all that is owed, at the end of a run."""
        for numbering, lo, hi in self.sent:
            self.owed[numbering].add(lo, hi)
        self.sent = []
        return self.owed


class Ledger:
    """All that members owe each other. It is told what happened in order of time."""

    def __init__(self) -> None:
        self._ways: defaultdict[Direction, _Way] = defaultdict(_Way)
        self._arrivals: list[tuple[float, Direction, Messages, Messages]] = []
        """With their own numbers, and with those that `_counted` gives."""
        self._left: Counter[tuple[int, Numbering]] = Counter()
        """The messages without seqnos that left, by sender and digest."""

    def leave(self, sender: int, messages: Messages, count: int) -> None:
        """Note messages that left, for whomever."""
        if not messages.lo:
            self._left[sender, messages.numbering] += count

    def send(self, sender: int, receiver: int, messages: Messages) -> None:
        """Note messages that left for a member."""
        way = self._ways[sender, receiver]
        way.sent.append(_counted(messages, way.seen_sent))

    def arrive(self, time: float, sender: int, receiver: int, messages: Messages) -> None:
        """Note messages that arrived at a member."""
        way = self._ways[sender, receiver]
        counted = _counted(messages, way.seen_came)
        way.came.append(counted)
        self._arrivals.append((time, (sender, receiver), messages, counted))

    def part(self, one: int, other: int) -> None:
        """Note that two members parted: what is under way between them is owed no more."""
        for direction in ((one, other), (other, one)):
            if direction in self._ways:
                self._ways[direction].part()

    def owed(self) -> Iterator[tuple[Direction, int]]:
        """Yield how many messages each member owed to each other one."""
        for direction, way in self._ways.items():
            yield direction, sum(map(len, way.all_owed().values()))

    def arrivals(self) -> Iterator[Arrival]:
        """Yield what arrived, in order of time. Ends the ledger: what arrived is owed no more."""
        owed = {direction: way.all_owed() for direction, way in self._ways.items()}
        for time, direction, messages, (numbering, lo, hi) in self._arrivals:
            left = self._left[direction[0], numbering]
            new = self._ways[direction].come(messages, left)
            spans = owed[direction].get(numbering)
            taken = spans.take(lo, hi) if spans is not None else ()
            yield Arrival(time, direction, new, sum(last - first + 1 for first, last in taken))


def _counted(messages: Messages, seen: Counter[Numbering]) -> Messages:
    """Give messages without seqnos the next numbers of their kind."""
    if messages.lo:
        return messages
    first = seen[messages.numbering] + 1
    seen[messages.numbering] += messages.hi
    return Messages(messages.numbering, first, first + messages.hi - 1)
