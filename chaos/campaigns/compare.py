"""Compares the generations on one scenario, `storm`, in figures: how many acks and resends and how
much memory each needs, and how soon it has repaired everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from xxhash import xxh3_64_intdigest

from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.runner import run_scenario
from stormcast.node import trace
from stormcast.node.trace import Event, read_blocks_untrusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of one generation."""

    unicast: str
    timing: str
    verdict: str
    messages: int
    data_frames: int
    acks: int
    """ACK and STABLE frames."""
    requests: int
    resent: int
    """Messages sent again."""
    syncs: int
    unacked_peak: int
    """Most messages that the sender held at once."""
    unacked_peak_bytes: int
    resync_ms: float
    """From the moment the receiver lost its window to its next delivery."""
    repaired_ms: float
    """From the end of the partition until everything sent before had been delivered."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def storm_scenario() -> Scenario:
    """Read the scenario on which generations are compared."""
    return find_shipped("storm").read()


def compare(seed: int, timing: str) -> Iterator[Row]:
    """Run `storm` on every generation; yields the figures of each."""
    storm = storm_scenario()
    for generation in GENERATIONS:
        cluster = replace(storm.cluster, unicast=generation, timing=timing)
        outcome = run_scenario(replace(storm, cluster=cluster, text=""), seed)
        yield _row(generation, timing, str(outcome.verdict), outcome.run)


def _row(generation: str, timing: str, verdict: str, run: RunRecord) -> Row:
    events = sorted(_events(run), key=lambda event: event.time)
    peak, peak_bytes = _unacked_peaks(events)
    lost_at = next(
        e.time for e in events if e.kind == trace.CONN and e.stream == trace.RECEIVER_REMOVED
    )
    healed_at = _healed_at(run)
    return Row(
        unicast=generation,
        timing=timing,
        verdict=verdict,
        messages=run.sent,
        data_frames=sum(1 for e in events if e.kind == trace.SENT),
        acks=sum(1 for e in events if e.kind == trace.ACKED),
        requests=sum(1 for e in events if e.kind == trace.REQUESTED),
        resent=sum(e.count for e in events if e.kind == trace.RETRANSMITTED),
        syncs=sum(1 for e in events if e.kind == trace.SYNC),
        unacked_peak=peak,
        unacked_peak_bytes=peak_bytes,
        resync_ms=1000
        * (
            next(e.time for e in events if e.kind == trace.DELIVERED and e.time > lost_at) - lost_at
        ),
        repaired_ms=1000 * (_repaired_at(events, healed_at) - healed_at),
    )


def _events(run: RunRecord) -> Iterator[Event]:
    for label, data in run.traces.items():
        if label != "rig":
            for block in read_blocks_untrusted(data, xxh3_64_intdigest):
                yield from block.events


def _healed_at(run: RunRecord) -> float:
    """Return the time at which the last fault ended."""
    ends = [
        event.time
        for block in read_blocks_untrusted(run.traces["rig"], xxh3_64_intdigest)
        for event in block.events
        if event.kind == trace.FAULT and '"off"' in block.text(event)
    ]
    return max(ends)


def _unacked_peaks(events: list[Event]) -> tuple[int, int]:
    sizes: dict[int, int] = {}
    held = held_bytes = peak = peak_bytes = 0
    for event in events:
        if event.kind == trace.SENT:
            held += event.count
            held_bytes += event.bytes
            sizes |= dict.fromkeys(range(event.lo, event.hi + 1), event.bytes // event.count)
        elif event.kind == trace.PURGED:
            held -= event.count
            held_bytes -= sum(sizes.pop(seqno) for seqno in range(event.lo, event.hi + 1))
        peak, peak_bytes = max(peak, held), max(peak_bytes, held_bytes)
    return peak, peak_bytes


def _repaired_at(events: list[Event], healed_at: float) -> float:
    """Return the time by which all messages sent before the heal had been delivered: order makes
    the delivery of the highest seqno prove those below it."""
    highest = max(e.hi for e in events if e.kind == trace.SENT and e.time <= healed_at)
    return next(
        e.time
        for e in events
        if e.kind == trace.DELIVERED and e.time > healed_at and e.hi >= highest
    )
