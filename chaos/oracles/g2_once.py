"""G2, at most once: within an epoch always; across epochs except what the sender still owed.

A multicast is delivered once by a member, in whatever windows: one that is opened again begins
above what was delivered in the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from chaos.oracles import application, hand_over
from chaos.oracles.evidence import Evidence
from chaos.oracles.groups import Stream, Window
from chaos.oracles.history import Entry, Epoch, Violation
from node.trace import Event

Delivered = tuple[Epoch, Event]
Where = TypeVar("Where")


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Pairs of deliveries that share a seqno, and may not."""
    for epoch in evidence.epochs():
        for (_, first), (_, again) in repeats([(epoch, event) for event in epoch.delivered]):
            receiver = epoch.connection.receiver
            detail = (
                f"seqno {_shared(first, again)[0]} was delivered twice within one receive window"
            )
            yield Violation(again.time, detail, ((receiver, first), (receiver, again)))
    for entry in evidence.entries():
        if len(entry.connection.epochs) > 1:
            for before, after in repeats(entry.delivered):
                if before[0] is not after[0]:
                    yield from _across_epochs(entry, before, after)
    for stream in evidence.streams.values():
        for short in stream.windows:
            yield from _multicast_twice(stream, list(stream.windows[short].values()))
    yield from hand_over.found_in(evidence, "G2")
    yield from application.sent_again(evidence)


def _multicast_twice(stream: Stream, windows: list[Window]) -> Iterator[Violation]:
    delivered = [(window, event) for window in windows for event in window.delivered]
    for (first_window, first), (window, again) in repeats(delivered):
        detail = f"multicast {_shared(first, again)[0]} of {stream.sender.name} was delivered twice"
        if first_window is not window:
            detail += ", in two windows"
        receiver = window.receiver
        yield Violation(again.time, detail, ((receiver, first), (receiver, again)))


def repeats(
    delivered: Sequence[tuple[Where, Event]],
) -> Iterator[tuple[tuple[Where, Event], tuple[Where, Event]]]:
    """Pairs of deliveries that share a seqno, the earlier one first."""
    # Nearly all streams ascend, and need no sorting to be seen to.
    if all(before[1].hi < after[1].lo for before, after in pairwise(delivered)):
        return
    reaching: list[tuple[int, tuple[Where, Event]]] = []
    for lo, index, pair in sorted(
        ((pair[1].lo, index, pair) for index, pair in enumerate(delivered)),
        key=lambda each: each[:2],
    ):
        if reaching:
            reaching = [other for other in reaching if other[1][1].hi >= lo]
            for other_index, other in reaching:
                yield (other, pair) if other_index < index else (pair, other)
        reaching.append((index, pair))


def _shared(one: Event, other: Event) -> tuple[int, int]:
    return max(one.lo, other.lo), min(one.hi, other.hi)


def _across_epochs(entry: Entry, before: Delivered, after: Delivered) -> Iterator[Violation]:
    """A repeat is fair when the first window was gone, and the sender still owed the message."""
    (first_epoch, first), (epoch, again) = before, after
    receiver, opened, removed = entry.connection.receiver, epoch.opened, first_epoch.removed
    lo, hi = _shared(first, again)
    if opened is None or removed is None or removed.number > opened.number:
        detail = f"seqno {lo} was delivered in two windows, and no removal of the first is logged"
        yield Violation(again.time, detail, ((receiver, first), (receiver, again)))
        return
    for purge in entry.purged:
        if purge.time < opened.event.time and purge.lo <= hi and lo <= purge.hi:
            seqno = max(lo, purge.lo)
            detail = f"seqno {seqno} was delivered again, in a window opened after it was purged"
            witness = (
                (receiver, first),
                (entry.connection.sender, purge),
                (receiver, opened.event),
                (receiver, again),
            )
            yield Violation(again.time, detail, witness)
            return
