"""C1, questions for credits: they name seqnos of living connections, and end when all is acked."""

from __future__ import annotations

from collections.abc import Iterator

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.trace import ASKED, CONN, CREDIT, SENDER_REMOVED, Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Questions about ended connections, and questions that go on though all was acked."""
    for member in evidence.members.values():
        yield from _of_the_past(member)
        yield from _unanswered(evidence, member)


def _of_the_past(member: Member) -> Iterator[Violation]:
    """The first question about a seqno of a connection that the sender had ended itself."""
    ended: dict[tuple[int, int], Event] = {}
    for event in member.events:
        if event.kind == CONN and event.stream == SENDER_REMOVED and event.conn:
            ended[event.peer, event.conn] = event
        elif event.kind == CREDIT and event.stream == ASKED and event.lo:
            gone = ended.get((event.peer, event.conn))
            if gone is not None:
                detail = f"credits were asked for seqno {event.lo} of a connection that had ended"
                yield Violation(event.time, detail, ((member, gone), (member, event)))
                return


def _unanswered(evidence: Evidence, member: Member) -> Iterator[Violation]:
    """Questions that are repeated in a quiet run although all that they name was acked."""
    calm = evidence.calm + EPSILON
    first: dict[tuple[int, int, int], Event] = {}
    for event in member.events:
        if event.kind != CREDIT or event.stream != ASKED or event.count or event.time <= calm:
            continue
        within = member.bound(event.protocol, "ask_within")
        begun = first.setdefault((event.peer, event.protocol, event.bytes), event)
        waited = event.time - begun.time
        if within is None or waited <= 2 * within + evidence.long_travel + EPSILON:
            continue
        receiver = evidence.find(event.peer)
        hindered = (who.is_hindered(begun.time, event.time) for who in (member, receiver))
        if any(hindered):
            continue
        detail = (
            f"credits were asked for during {waited:.3f}s after all that was sent was acked: "
            f"one question in {within:g}s is enough"
        )
        yield Violation(event.time, detail, ((member, begun), (member, event)))
        return
