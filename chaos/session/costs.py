"""What a run cost its members, by their traces: frames, acks, repairs, memory, time."""

from __future__ import annotations

from collections import defaultdict, deque
from statistics import median
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.session.record import RunRecord
from stormcast.node import trace
from stormcast.node.trace import Event, read_blocks_untrusted

RIG: Final = "rig"
"""The label of the rig's trace."""


class Costs(NamedTuple):
    """Figures of one run, of all members together."""

    messages: int
    """Messages that left."""
    frames: int
    """Batches that left, each in one frame."""
    acks: int
    """ACK frames, and STABLE frames of UNICAST2."""
    requests: int
    """Requests to send something again."""
    resent: int
    """Messages that were sent again."""
    resent_frames: int
    """Batches that were sent again, each in one frame."""
    syncs: int
    """SEND_FIRST_SEQNO, and what asks for the same of a group: HIGHEST_SEQNO, BASELINE."""
    unacked: int
    """The most messages that one member kept of what it had sent."""
    unacked_bytes: int
    """The bytes of what one member kept, at most."""
    latency: float | None
    """Seconds from the first sending of a batch to its delivery at another member, as half of them
    needed; None: nothing arrived."""


def costs_of(run: RunRecord) -> Costs:
    """Return the figures of a run."""
    return costs_in(run.evidence, run.sent, run.zero)


def costs_in(evidence: Evidence, messages: int, since: float) -> Costs:
    """Return the figures of what members recorded from a time on, in which so many messages left:
    the traces of a soak may begin with an earlier window."""
    per_member = [
        [event for event in member.events if event.time >= since]
        for member in evidence.members.values()
    ]
    events = [event for one in per_member for event in one]
    peaks = [_kept_peaks(one) for one in per_member]
    return Costs(
        messages=messages,
        frames=_count(events, trace.SENT),
        acks=_count(events, trace.ACKED),
        requests=_count(events, trace.REQUESTED),
        resent=sum(event.count for event in events if event.kind == trace.RETRANSMITTED),
        resent_frames=_count(events, trace.RETRANSMITTED),
        syncs=_count(events, trace.SYNC),
        unacked=max((kept for kept, _size in peaks), default=0),
        unacked_bytes=max((size for _kept, size in peaks), default=0),
        latency=_latency(evidence, since),
    )


def _latency(evidence: Evidence, since: float) -> float | None:
    members = evidence.members.values()
    sent: dict[tuple[int, ...], float] = {}
    for member in members:
        for event in member.events:
            if event.kind == trace.SENT and event.lo and event.time >= since:
                dest = 0 if event.protocol in MULTICAST else event.peer
                sent[event.protocol, member.short, dest, event.conn, event.lo] = event.time
    found = []
    for member in members:
        for event in member.events:
            if event.kind == trace.DELIVERED and event.peer != member.short:
                dest = 0 if event.protocol in MULTICAST else member.short
                at = sent.get((event.protocol, event.peer, dest, event.conn, event.lo))
                if at is not None:
                    found.append(event.time - at)
    return median(found) if found else None


def resync_seconds(run: RunRecord) -> float:
    """Return the time from the moment a receiver lost its window to its next delivery."""
    events = all_events(run)
    lost_at = next(
        event.time
        for event in events
        if event.kind == trace.CONN and event.stream == trace.RECEIVER_REMOVED
    )
    back_at = next(
        event.time for event in events if event.kind == trace.DELIVERED and event.time > lost_at
    )
    return back_at - lost_at


def last_arrival_seconds(run: RunRecord) -> float:
    """Return the time from the first transmission of the last batch to its delivery."""
    events = all_events(run)
    last = max((event for event in events if event.kind == trace.SENT), key=lambda one: one.hi)
    return (
        max(
            event.time
            for event in events
            if event.kind == trace.DELIVERED and event.hi >= last.hi and event.time >= last.time
        )
        - last.time
    )


def repaired_seconds(run: RunRecord) -> float:
    """Return the time from the end of the last fault until all that was sent before it had been
    delivered. Order makes the delivery of the highest seqno prove those below it."""
    events, healed_at = all_events(run), _healed_at(run)
    highest = max(e.hi for e in events if e.kind == trace.SENT and e.time <= healed_at)
    return (
        next(
            event.time
            for event in events
            if event.kind == trace.DELIVERED and event.time > healed_at and event.hi >= highest
        )
        - healed_at
    )


def all_events(run: RunRecord) -> list[Event]:
    """Return the events of all members, in the order of time."""
    members = run.evidence.members.values()
    return sorted((event for member in members for event in member.events), key=_time)


def _time(event: Event) -> float:
    return event.time


def _count(events: list[Event], kind: int) -> int:
    return sum(1 for event in events if event.kind == kind)


def _healed_at(run: RunRecord) -> float:
    return max(
        event.time
        for block in read_blocks_untrusted(run.traces[RIG], xxh3_64_intdigest)
        for event in block.events
        if event.kind == trace.FAULT and '"off"' in block.text(event)
    )


def _kept_peaks(events: list[Event]) -> tuple[int, int]:
    """Return the most messages, and the most bytes, that a member kept of what it had sent."""
    lanes: defaultdict[tuple[int, int, int], deque[Event]] = defaultdict(deque)
    kept = size = most = most_bytes = 0
    for event in events:
        if event.kind == trace.SENT:
            lanes[event.protocol, event.peer, event.conn].append(event)
            kept, size = kept + event.count, size + event.bytes
        elif event.kind == trace.PURGED:
            # Acks are cumulative; what was sent before the first event counts for nothing.
            lane = lanes[event.protocol, event.peer, event.conn]
            while lane and lane[0].lo <= event.hi:
                batch = lane.popleft()
                gone = min(batch.hi, event.hi) - batch.lo + 1
                gone_bytes = batch.bytes * gone // batch.count
                kept, size = kept - gone, size - gone_bytes
                if gone < batch.count:
                    rest = batch._replace(
                        lo=event.hi + 1, count=batch.count - gone, bytes=batch.bytes - gone_bytes
                    )
                    lane.appendleft(rest)
                    break
        most, most_bytes = max(most, kept), max(most_bytes, size)
    return most, most_bytes
