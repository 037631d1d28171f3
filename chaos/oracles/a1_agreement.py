"""A1, agreement: members that stay together deliver the same multicasts of a sender that stays.

Of a crashed or expelled sender each of them delivers a prefix, by G3, and prefixes may differ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from stormcast.chaos.oracles.coverage import Range, gaps
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.g1_multicast import was_told
from stormcast.chaos.oracles.groups import Stream, Window, covered, last_view, view_at
from stormcast.chaos.oracles.history import Member, Violation
from stormcast.node.trace import Event

Spans = tuple[tuple[int, int], ...]
ViewIds = tuple[tuple[int, int], ...]


class Held(NamedTuple):
    """The seqnos of a stream that a member ends with, and its views since the window opened."""

    views: ViewIds
    begins: int
    """Seqnos up to this one were not to be delivered."""
    spans: Spans


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Pairs of members that went through the same views, and delivered differently of a sender."""
    for stream in evidence.groups.streams.values():
        if not stream.sender.lives:
            continue
        held: dict[Held, Window] = {}
        for receiver in evidence.members.values():
            if receiver.lives and receiver is not stream.sender:
                window = stream.current(receiver)
                if window is not None and (has := _held(stream, window)) is not None:
                    held.setdefault(has, window)
        for (one, window), (other, another) in combinations(held.items(), 2):
            yield from _differ(evidence, (one, window), (other, another))


def _held(stream: Stream, window: Window) -> Held | None:
    """Return what a member has of a stream at the end; None if the sender is not in its view."""
    receiver = window.receiver
    last = last_view(receiver)
    first = view_at(receiver, window.opened_at)
    if last is None or first is None or stream.sender.short not in last.members:
        return None
    views = tuple(view.id for view in receiver.views[first.place :])
    begins = window.given_up
    return Held(views, begins, tuple(window.spans(begins)))


def _differ(
    evidence: Evidence, one: tuple[Held, Window], other: tuple[Held, Window]
) -> Iterator[Violation]:
    """The first multicast that one of two members delivered and the other did not, above where both
    windows begin."""
    longer, shorter = sorted((one, other), key=lambda each: len(each[0].views), reverse=True)
    if longer[0].views[-len(shorter[0].views) :] != shorter[0].views:
        return
    sent_before = _sent_before(one[1].stream, shorter[0].views[0])
    begins = max(one[0].begins, other[0].begins, sent_before)
    for has, lacks in ((one, other), (other, one)):
        for seqno in _beyond(has[1].spans(begins), lacks[1], begins):
            if not _is_excused(evidence, lacks[1], seqno):
                yield _violation(has[1], lacks[1], seqno)
                return


def _sent_before(stream: Stream, view: tuple[int, int]) -> int:
    """Return the last seqno that was sent before the sender installed a view: a member that was
    with the sender before may have it, and another one need not."""
    place = next((each.place for each in stream.sender.views if each.id == view), None)
    return max(
        (
            sent.hi
            for sent, where in zip(stream.sent, stream.sent_in, strict=True)
            if place is None or where < place
        ),
        default=0,
    )


def _is_excused(evidence: Evidence, window: Window, seqno: int) -> bool:
    return was_told(evidence, window.stream, window.receiver, seqno)


def _beyond(has: list[tuple[int, int]], lacks: Window, above: int) -> Iterator[int]:
    """Yield the first seqno of each standstill of a window that is in `has`, ascending. What the
    window lacks above it, up to its next delivery in order, waits there, and may not be lost."""
    lacking = lacks.spans(above)
    regular = lacks.stream.regular(lacks.receiver)
    stood_at = -1
    high = has[-1][1] if has else 0
    for gap in gaps(above + 1, high, (Range(*span) for span in lacking)):
        first = next((max(lo, gap.lo) for lo, hi in has if hi >= gap.lo), high + 1)
        if first > gap.hi:
            continue
        stands_at = bisect_left(regular, gap.lo)
        if stands_at != stood_at:
            yield first
        stood_at = stands_at


def _violation(has: Window, lacks: Window, seqno: int) -> Violation:
    delivered = covered(seqno, has.delivered)
    assert delivered is not None, "the seqno is of its spans"
    witness: list[tuple[Member, Event]] = [(has.receiver, delivered)]
    if lacks.opened is not None:
        witness.append((lacks.receiver, lacks.opened.event))
    detail = (
        f"multicast {seqno} of {has.stream.sender.name} was delivered by {has.receiver.name} "
        f"and not by {lacks.receiver.name}, which went through the same views"
    )
    return Violation(delivered.time, detail, tuple(witness))
