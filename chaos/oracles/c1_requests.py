"""C1, requests and acks: requests are bounded, spaced and patient, acks are few, in any window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import EPSILON, Batches, Epoch, Member, Violation
from stormcast.node.core.model import OOB
from stormcast.node.trace import Event

SPARE_ACKS: Final = 3
"""Acks besides those of the two rates: at the opening, for the last message, at the removal."""

Bound = Callable[[str], float | None]
"""Returns a bound that a receiver's settings promise, by its name."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Requests and acks of unicast windows beyond the bounds that their receiver promises."""
    for epoch in evidence.unicasts.epochs():
        receiver = epoch.connection.receiver
        bound = receiver.bounds.get
        yield from large_requests(receiver, epoch.requested, bound)
        yield from hasty_requests(receiver, epoch.requested, bound("request_spacing"))
        yield from _late_requests(epoch)
        yield from _impatient_requests(epoch)
        yield from _many_acks(evidence, epoch)


def large_requests(
    receiver: Member, requested: Sequence[Event], bound: Bound
) -> Iterator[Violation]:
    """Requests for more seqnos than one may name."""
    size = bound("request_size")
    if size is None:
        return
    for request in requested:
        if request.count > size:
            detail = f"{request.count} seqnos in one request: the limit is {size:g}"
            yield Violation(request.time, detail, ((receiver, request),))


def hasty_requests(
    receiver: Member, requested: Sequence[Event], spacing: float | None
) -> Iterator[Violation]:
    """The first request of a window that asks for something again too soon."""
    if spacing is None:
        return
    first = 0
    for index, request in enumerate(requested):
        while requested[first].time <= request.time - spacing + EPSILON and first < index:
            first += 1
        for before in requested[first:index]:
            if request.time - before.time < spacing - EPSILON and _share_a_seqno(before, request):
                detail = (
                    f"the same seqno was requested again after {request.time - before.time:.6f}s: "
                    f"the spacing is {spacing:g}s"
                )
                yield Violation(request.time, detail, ((receiver, before), (receiver, request)))
                return


def _impatient_requests(epoch: Epoch) -> Iterator[Violation]:
    """The first request of a window for a seqno that may simply be under way (JGRP-1539)."""
    receiver = epoch.connection.receiver
    patience = receiver.bounds.get("request_patience")
    if not patience:
        return
    entries = epoch.connection.entries
    for request in epoch.requested:
        # A later life that began after this sent nothing that it could ask for.
        lives = [one for one in entries[1:] if one.opened_at <= request.time + EPSILON]
        batches = (one.batches.at(request.hi) for one in reversed([*entries[:1], *lives]))
        sent = next((batch for batch in batches if batch is not None), None)
        if sent is not None and is_impatient(receiver, request, sent, patience):
            yield impatience(receiver, request, epoch.connection.sender, sent, patience)
            return


def _late_requests(epoch: Epoch) -> Iterator[Violation]:
    """The first request of a window for a seqno that it had delivered: it was not lost."""
    receiver = epoch.connection.receiver
    if not epoch.requested:
        return
    early = Early(epoch.delivered)
    delivered = iter(epoch.delivered)
    had: Event | None = None
    following = next(delivered, None)
    for request in epoch.requested:
        while following is not None and following.time < request.time - EPSILON:
            if not following.flags & OOB and (had is None or following.hi > had.hi):
                had = following
            following = next(delivered, None)
        if had is not None and request.lo <= had.hi:
            detail = f"seqno {request.lo} was requested after {had.hi} was delivered"
            yield Violation(request.time, detail, ((receiver, had), (receiver, request)))
            return
        if found := early.asked_for(request):
            seqno, came = found
            detail = f"seqno {seqno} was requested after it was delivered out of band"
            yield Violation(request.time, detail, ((receiver, came), (receiver, request)))
            return


class Early:
    """The OOB deliveries of one window."""

    def __init__(self, delivered: Sequence[Event]) -> None:
        # Of several that begin at one seqno, the first one is the last here, and is found.
        early = [event for event in reversed(delivered) if event.flags & OOB]
        self._early = Batches(sorted(early, key=lambda event: event.lo))

    def asked_for(self, request: Event) -> tuple[int, Event] | None:
        """Return a seqno that a request surely asks for, its first or its last one, and the
        delivery that it had before; None: there is none."""
        for seqno in (request.lo, request.hi):
            came = self._early.at(seqno)
            if came is not None and came.time < request.time - EPSILON:
                return seqno, came
        return None


def is_impatient(receiver: Member, request: Event, sent: Event, patience: float) -> bool:
    """Whether the highest seqno of a request was sent less than two looks ago."""
    if request.time - sent.time >= patience - EPSILON:
        return False
    # After a look that a pause delayed, the next one on the grid comes sooner.
    return not receiver.is_hindered(request.time - 2 * patience, request.time)


def impatience(
    receiver: Member, request: Event, sender: Member, sent: Event, patience: float
) -> Violation:
    """Return the violation by a request that came too early."""
    detail = (
        f"seqno {request.hi} was requested {request.time - sent.time:.6f}s after it was sent: "
        f"two looks take {patience:g}s"
    )
    return Violation(request.time, detail, ((sender, sent), (receiver, request)))


def _share_a_seqno(one: Event, other: Event) -> bool:
    """Whether two requests surely ask for the same seqno.

    A request records its first and last seqno and how many it asks for, but not its holes. It asks
    for both ends, and surely for all between if the number leaves no room for a hole.
    """
    return (
        _surely_asks(one, other.lo)
        or _surely_asks(one, other.hi)
        or _surely_asks(other, one.lo)
        or _surely_asks(other, one.hi)
    )


def _surely_asks(request: Event, seqno: int) -> bool:
    if seqno in (request.lo, request.hi):
        return True
    return request.lo < seqno < request.hi and request.count == request.hi - request.lo + 1


def _many_acks(evidence: Evidence, epoch: Epoch) -> Iterator[Violation]:
    """Acks of an epoch beyond those for the messages that were sent to it in its life."""
    receiver = epoch.connection.receiver
    if not epoch.acked:
        return
    start = min(epoch.opened_at, epoch.acked[0].time) if epoch.opened else receiver.started
    # Messages that wait behind a gap count, too; the traces say only that they were sent.
    received = sum(
        batch.count
        for entry in epoch.connection.entries
        for batch in entry.sent
        if batch.time <= epoch.removed_at
    )
    delivered = sum(event.count for event in epoch.delivered)
    life = min(epoch.removed_at, receiver.ended, evidence.over) - start
    yield from many_acks(
        receiver, epoch.acked, delivered, max(delivered, received), life, receiver.bounds.get
    )


def many_acks(
    receiver: Member,
    acked: Sequence[Event],
    delivered: int,
    messages: int,
    life: float,
    bound: Bound,
) -> Iterator[Violation]:
    """Acks beyond one per threshold of messages, one per spacing of time, and a few at the ends."""
    threshold, spacing = bound("ack_threshold"), bound("ack_spacing")
    if not threshold or not spacing:
        return
    allowed = messages / threshold + life / spacing + SPARE_ACKS
    if len(acked) > allowed + EPSILON:
        detail = (
            f"{len(acked)} acks for {delivered} messages in {life:.3f}s: "
            f"one per {threshold:g} messages and one per {spacing:g}s allow {int(allowed)}"
        )
        breaking = acked[int(allowed)]
        yield Violation(breaking.time, detail, ((receiver, acked[0]), (receiver, breaking)))
