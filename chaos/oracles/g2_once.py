"""G2, at most once: a message is delivered once by a member, in whatever windows.

A window that is opened again begins above what the last one delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from stormcast.chaos.oracles import application, hand_over
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Stream, Window
from stormcast.chaos.oracles.history import Violation
from stormcast.node.trace import Event

Where = TypeVar("Where")


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Two deliveries of one seqno, where there may be only one; and messages that left twice."""
    for epoch in evidence.unicasts.epochs():
        for (_, first), (_, again) in repeats([(epoch, event) for event in epoch.delivered]):
            receiver = epoch.connection.receiver
            detail = (
                f"seqno {_shared(first, again)[0]} was delivered twice within one receive window"
            )
            yield Violation(again.time, detail, ((receiver, first), (receiver, again)))
    for entry in evidence.unicasts.entries():
        if len(entry.connection.epochs) > 1:
            for (epoch, first), (other, again) in repeats(entry.delivered):
                if epoch is not other:
                    receiver = entry.connection.receiver
                    detail = (
                        f"seqno {_shared(first, again)[0]} was delivered again, in another window"
                    )
                    yield Violation(again.time, detail, ((receiver, first), (receiver, again)))
    for stream in evidence.groups.streams.values():
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
    """Yield pairs of deliveries that share a seqno, the earlier one first."""
    # Nearly all lists ascend; then there are none, and sorting is not needed to see it.
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
