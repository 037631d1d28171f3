"""C1, control traffic is bounded: syncs and requests are spaced, acks few, and silence follows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Protocol

from stormcast.chaos.oracles import (
    c1_ageing,
    c1_credits,
    c1_multicast,
    c1_requests,
    c1_resends,
)
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import EPSILON, Member, Violation, longest
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import ACKED, REQUESTED, RETRANSMITTED, SENT, SYNC, Event

TRAFFIC: Final = frozenset({SENT, ACKED, REQUESTED, RETRANSMITTED, SYNC})


class Budget(Protocol):
    """The control traffic that a scenario allows; None is no limit."""

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
    """Control traffic beyond the bounds that the members' own settings promise."""
    for (short, _peer), syncs in evidence.unicasts.syncs.items():
        yield from _hasty_syncs(evidence.find(short), syncs)
    yield from c1_requests.violations(evidence)
    yield from c1_resends.violations(evidence)
    yield from c1_multicast.violations(evidence)
    yield from c1_credits.violations(evidence)
    yield from c1_ageing.violations(evidence)
    for member in evidence.members.values():
        yield from _not_quiet(evidence, member)


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
    """Events of a kind beyond the limit; the witness is the first one beyond it."""
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
        if sync.time - before.time >= spacing - EPSILON:
            continue
        # A sync that a pause held up comes late, and the next one comes in time.
        if not member.is_hindered(before.time - spacing, sync.time):
            detail = f"two syncs {sync.time - before.time:.6f}s apart: the spacing is {spacing:g}s"
            yield Violation(sync.time, detail, ((member, before), (member, sync)))


def _not_quiet(evidence: Evidence, member: Member) -> Iterator[Violation]:
    """Traffic with a living peer later than `quiet_within` after the last fault, send, view and
    alarm (P-03).

    A late view, as of a merge after a heal, has windows opened and filled again, and an alarm has
    missing messages asked for after all: so the time begins anew with each.
    """
    quiet = evidence.calm + EPSILON
    for event in reversed(member.events):
        if event.time <= quiet:
            return
        if event.kind not in TRAFFIC:
            continue
        own = member.bound(event.protocol, "quiet_within")
        if own is None or event.time <= quiet + own + evidence.long_travel:
            continue
        hearers = _hearers(evidence, member, event)
        within = longest([member, *hearers], event.protocol, "quiet_within") if hearers else None
        if within is None:
            continue
        if event.time <= quiet + within + evidence.long_travel:
            continue
        late = event.time - evidence.calm
        detail = (
            f"not quiet {late:.3f}s after the last fault, send, view and alarm: "
            f"the bound is {within:g}s"
        )
        yield Violation(event.time, detail, ((member, event),))


def _hearers(evidence: Evidence, member: Member, event: Event) -> list[Member]:
    """Return the living members that an event is for: its peer, or of the group all others."""
    if event.peer == GROUP:
        return [one for one in evidence.members.values() if one.lives and one is not member]
    peer = evidence.find(event.peer)
    return [peer] if peer.lives else []
