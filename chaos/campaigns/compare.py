"""Compares the generations on one scenario, `storm`, in figures: how many acks and resends and how
much memory each needs, and how soon it has repaired everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.session.costs import costs_of, repaired_seconds, resync_seconds
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.runner import run_scenario


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
    costs = costs_of(run)
    return Row(
        unicast=generation,
        timing=timing,
        verdict=verdict,
        messages=costs.messages,
        data_frames=costs.frames,
        acks=costs.acks,
        requests=costs.requests,
        resent=costs.resent,
        syncs=costs.syncs,
        unacked_peak=costs.unacked,
        unacked_peak_bytes=costs.unacked_bytes,
        resync_ms=1000 * resync_seconds(run),
        repaired_ms=1000 * repaired_seconds(run),
    )
