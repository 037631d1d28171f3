"""S1, unread: nobody but members reads a message that was sent.

The rig notes what strangers took for messages. It was one if a member sent a batch of these bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import EPSILON, Member, Violation
from stormcast.node.trace import SENT, Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Batches that a stranger read as their sender packed them."""
    overheard = evidence.rig.overheard
    if not overheard:
        return
    sent = _sent(evidence)
    for event in overheard:
        batch = sent.get((event.peer, event.digest))
        if batch is None or batch.time > event.time + EPSILON:
            continue
        sender: Member = evidence.find(event.peer)
        detail = f"a stranger read what {sender.name} sent, {event.bytes} bytes"
        yield Violation(event.time, detail, ((evidence.rig.trace, event), (sender, batch)))


def _sent(evidence: Evidence) -> dict[tuple[int, int], Event]:
    """Return the first batch of each content, by sender and digest."""
    found: dict[tuple[int, int], Event] = {}
    for member in evidence.members.values():
        for event in member.events:
            if event.kind == SENT:
                found.setdefault((member.short, event.digest), event)
    return found
