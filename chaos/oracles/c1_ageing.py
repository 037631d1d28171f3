"""C1, ageing: what nobody answers is not repeated for ever."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import EPSILON, Member, SenderLife, Violation
from stormcast.node.trace import CONN, RETRANSMITTED, SENDER_REMOVED, VIEW


def violations(evidence: Evidence) -> Iterator[Violation]:
    """For each member, the first message resent to another one that is in no view, and did not
    answer for longer than connections age."""
    for member in evidence.members.values():
        yield from _never_aged(evidence, member)


def _never_aged(evidence: Evidence, member: Member) -> Iterator[Violation]:
    age, slack = member.bounds.get("age_within"), member.bounds.get("quiet_within")
    if age is None or slack is None:
        return
    slack += evidence.long_travel
    view, viewed_at = frozenset[int](), 0.0
    removals: Counter[tuple[int, int]] = Counter()
    for number, event in enumerate(member.events):
        if event.kind == VIEW:
            view, viewed_at = _members_of(member.texts.get(number, "")), event.time
        elif event.kind == CONN and event.stream == SENDER_REMOVED:
            removals[event.peer, event.conn] += 1
        if event.kind != RETRANSMITTED or event.protocol in MULTICAST:
            continue
        gone = max(evidence.find(event.peer).ended, 0.0)
        # In the turn of the view that drops a member its connection is still there.
        early = max(gone + age + slack, viewed_at + EPSILON)
        if event.time <= early or event.peer in view:
            continue
        connection = evidence.unicasts.connections[member.short, event.peer, event.conn]
        entry = connection.entries[removals[event.peer, event.conn]]
        silent = event.time - max(gone, _unanswered_since(entry, event.time))
        if silent > age + slack and not member.is_hindered(gone, event.time):
            detail = (
                f"a message was resent after {silent:.3f}s in which nobody could answer: "
                f"connections to nobody age in {age:g}s"
            )
            yield Violation(event.time, detail, ((member, event),))
            return


def _members_of(text: str) -> frozenset[int]:
    """Return the short ids in the text of a view, also of one that was handed in."""
    try:
        return frozenset(int(word, 16) for word in text.split(",") if word)
    except ValueError:
        return frozenset()


def _unanswered_since(entry: SenderLife, now: float) -> float:
    """Return the later of the last answer that purged anything and the first sending of the oldest
    batch that was not acked then."""
    answers = bisect_right(entry.purged, now, key=lambda purge: purge.time)
    answer = entry.purged[answers - 1] if answers else None
    reached = answer.hi if answer else 0
    oldest = max(0, bisect_right(entry.batches.lows, reached + 1) - 1)
    unacked = next((sent for sent in entry.sent[oldest : oldest + 2] if sent.hi > reached), None)
    return max(answer.time if answer else 0.0, unacked.time if unacked else now)
