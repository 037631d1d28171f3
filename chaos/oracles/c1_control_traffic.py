"""C1, control traffic is bounded: syncs and requests are spaced, acks few, and then it is quiet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Protocol

from chaos.oracles.evidence import Evidence
from chaos.oracles.history import EPSILON, Epoch, Member, Violation
from node.trace import ACKED, REQUESTED, RETRANSMITTED, SENT, SYNC, VIEW, Event

TRAFFIC: Final = frozenset({SENT, ACKED, REQUESTED, RETRANSMITTED, SYNC})
SPARE_ACKS: Final = 3
"""Acks that no rate accounts for: of the opening, of the last message, at the removal."""


class Budget(Protocol):
    """What control traffic a scenario allows; None is no limit."""

    @property
    def acks(self) -> float | None:
        """Acks per message sent."""

    @property
    def resends(self) -> float | None:
        """Resent messages per message sent."""

    @property
    def syncs(self) -> int | None:
        """SEND_FIRST_SEQNO in the whole run."""

    @property
    def requests(self) -> int | None:
        """Retransmission requests in the whole run."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Control traffic beyond what the members' own settings promise."""
    for (short, _peer), syncs in evidence.syncs.items():
        yield from _hasty_syncs(evidence.find(short), syncs)
    for epoch in evidence.epochs():
        yield from _large_requests(epoch)
        yield from _hasty_requests(epoch)
        yield from _impatient_requests(epoch)
        yield from _many_acks(evidence, epoch)
    for member in evidence.members.values():
        yield from _not_quiet(evidence, member)
        yield from _never_aged(evidence, member)


def over_budget(evidence: Evidence, budget: Budget) -> Iterator[Violation]:
    """Control traffic of the whole run beyond what the scenario allows."""
    sent = evidence.messages_sent
    if budget.acks is not None:
        yield from _over(
            evidence, ACKED, "acks", budget.acks * sent, f"{budget.acks:g} per message", sent
        )
    if budget.resends is not None:
        yield from _over(
            evidence,
            RETRANSMITTED,
            "messages resent",
            budget.resends * sent,
            f"{budget.resends:g} per message",
            sent,
        )
    if budget.syncs is not None:
        yield from _over(evidence, SYNC, "syncs", budget.syncs, f"{budget.syncs}", sent)
    if budget.requests is not None:
        yield from _over(
            evidence, REQUESTED, "requests", budget.requests, f"{budget.requests}", sent
        )


def _over(
    evidence: Evidence, kind: int, what: str, limit: float, said: str, sent: int
) -> Iterator[Violation]:
    """All of a kind, counted; the witness is the one that broke the budget."""
    events = [
        (member, event)
        for member in evidence.members.values()
        for event in member.events
        if event.kind == kind
    ]
    events.sort(key=lambda pair: pair[1].time)
    total, breaking = 0, None
    for pair in events:
        total += pair[1].count if kind == RETRANSMITTED else 1
        if breaking is None and total > limit + EPSILON:
            breaking = pair
    if breaking is not None:
        share = f" ({total / sent:.3f} per message)" if sent else ""
        yield Violation(
            breaking[1].time,
            f"{total} {what} for {sent} messages{share}: the budget is {said}",
            (breaking,),
        )


def _hasty_syncs(member: Member, syncs: list[Event]) -> Iterator[Violation]:
    spacing = member.bounds.get("sync_spacing")
    if spacing is None:
        return
    for before, sync in pairwise(syncs):
        if sync.time - before.time < spacing - EPSILON:
            detail = f"two syncs {sync.time - before.time:.6f}s apart: the spacing is {spacing:g}s"
            yield Violation(sync.time, detail, ((member, before), (member, sync)))


def _large_requests(epoch: Epoch) -> Iterator[Violation]:
    receiver = epoch.connection.receiver
    size = receiver.bounds.get("request_size")
    if size is None:
        return
    for request in epoch.requested:
        if request.count > size:
            detail = f"{request.count} seqnos in one request: the limit is {size:g}"
            yield Violation(request.time, detail, ((receiver, request),))


def _hasty_requests(epoch: Epoch) -> Iterator[Violation]:
    receiver = epoch.connection.receiver
    spacing = receiver.bounds.get("request_spacing")
    if spacing is None:
        return
    requested = epoch.requested
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
    """Requests for what may simply be under way: the two-look rule (JGRP-1539)."""
    receiver = epoch.connection.receiver
    patience = receiver.bounds.get("request_patience")
    if not patience:
        return
    for request in epoch.requested:
        sent = next(
            (
                batch
                for entry in reversed(epoch.connection.entries)
                if (batch := entry.batch_at(request.hi)) is not None
            ),
            None,
        )
        if sent is None or request.time - sent.time >= patience - EPSILON:
            continue
        # A grid tick that a pause delayed is followed by the next one sooner.
        if receiver.is_hindered(request.time - 2 * patience, request.time):
            continue
        detail = (
            f"seqno {request.hi} was requested {request.time - sent.time:.6f}s after it was sent: "
            f"two looks take {patience:g}s"
        )
        witness = ((epoch.connection.sender, sent), (receiver, request))
        yield Violation(request.time, detail, witness)
        return


def _share_a_seqno(one: Event, other: Event) -> bool:
    """Whether two requests surely ask for the same seqno.

    A request records its first and last seqno and their number, not its holes: its ends are asked
    for, and everything between when the number leaves no room for a hole.
    """
    return any(_surely_asks(one, seqno) for seqno in (other.lo, other.hi)) or any(
        _surely_asks(other, seqno) for seqno in (one.lo, one.hi)
    )


def _surely_asks(request: Event, seqno: int) -> bool:
    if seqno in {request.lo, request.hi}:
        return True
    return request.lo < seqno < request.hi and request.count == request.hi - request.lo + 1


def _many_acks(evidence: Evidence, epoch: Epoch) -> Iterator[Violation]:
    """An ack per threshold of messages, one per spacing of time, and a few at the ends."""
    receiver = epoch.connection.receiver
    threshold, spacing = receiver.bounds.get("ack_threshold"), receiver.bounds.get("ack_spacing")
    if not threshold or not spacing or not epoch.acked:
        return
    start = min(epoch.opened_at, epoch.acked[0].time) if epoch.opened else receiver.started
    life = min(epoch.removed_at, receiver.ended, evidence.end) - start
    delivered = sum(event.count for event in epoch.delivered)
    # What waits behind a gap counts too; all that is known of it is that it was sent.
    received = sum(
        batch.count
        for entry in epoch.connection.entries
        for batch in entry.sent
        if batch.time <= epoch.removed_at
    )
    allowed = max(delivered, received) / threshold + life / spacing + SPARE_ACKS
    if len(epoch.acked) > allowed + EPSILON:
        detail = (
            f"{len(epoch.acked)} acks for {delivered} messages in {life:.3f}s: "
            f"one per {threshold:g} messages and one per {spacing:g}s allow {int(allowed)}"
        )
        breaking = epoch.acked[int(allowed)]
        yield Violation(breaking.time, detail, ((receiver, epoch.acked[0]), (receiver, breaking)))


def _never_aged(evidence: Evidence, member: Member) -> Iterator[Violation]:
    """Messages resent to a member that is gone, and in no view, longer than connections age."""
    age, slack = member.bounds.get("age_within"), member.bounds.get("quiet_within")
    if age is None or slack is None:
        return
    view: tuple[str, ...] = ()
    for number, event in enumerate(member.events):
        if event.kind == VIEW:
            view = tuple(member.texts.get(number, "").split(","))
        if event.kind != RETRANSMITTED:
            continue
        peer = evidence.find(event.peer)
        gone = max(peer.ended, 0.0)
        if event.time <= gone + age + slack or f"{event.peer:08x}" in view:
            continue
        if not member.is_hindered(gone, event.time):
            detail = (
                f"a message was resent {event.time - gone:.3f}s after its receiver was gone: "
                f"connections to nobody age in {age:g}s"
            )
            yield Violation(event.time, detail, ((member, event),))
            return


def _not_quiet(evidence: Evidence, member: Member) -> Iterator[Violation]:
    """Traffic with a living peer after everything has had its time to settle (P-03)."""
    within = member.bounds.get("quiet_within")
    if within is None:
        return
    silent_from = evidence.quiet + within + EPSILON
    for event in reversed(member.events):
        if event.time <= silent_from:
            return
        if event.kind in TRAFFIC and evidence.find(event.peer).lives:
            late = event.time - evidence.quiet
            detail = (
                f"not quiet {late:.3f}s after the last fault and send: the bound is {within:g}s"
            )
            yield Violation(event.time, detail, ((member, event),))
