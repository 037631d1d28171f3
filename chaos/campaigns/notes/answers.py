"""Answers the claims of the notes: plays both runs of each with several seeds, and compares.

The runs of one seed meet the same dice. A figure is the median over the seeds; its interval holds
the median of all seeds with a probability of 95 % or more, by the order of the values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from stormcast.chaos.campaigns.notes.claims import CLAIMS, Claim
from stormcast.chaos.campaigns.pool import ProcessPool
from stormcast.chaos.oracles.verdict import Verdict, worst
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.samples import FEWEST, interval
from stormcast.node.core.errors import ConfigError

HOLDS: Final = "holds"
REFUTED: Final = "does not hold"
OPEN: Final = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure over all seeds."""

    values: tuple[float, ...]
    verdict: Verdict
    """The worst of the runs."""

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        return interval(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A claim, and what was measured."""

    claim: Claim
    first: Sample
    second: Sample

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all runs: figures of runs that do not hold are worth nothing."""
        return worst((self.first.verdict, self.second.verdict))

    @property
    def says(self) -> str:
        """HOLDS, REFUTED, or OPEN where the intervals leave it open."""
        if self.verdict is not Verdict.HOLDS:
            return OPEN
        low, high = self.second.interval
        least, most = self.first.interval
        if self.claim.at_most is not None:
            if high <= self.claim.at_most * least:
                return HOLDS
            return REFUTED if low > self.claim.at_most * most else OPEN
        assert self.claim.at_least is not None
        if low >= self.claim.at_least * most:
            return HOLDS
        return REFUTED if high < self.claim.at_least * least else OPEN

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON has it."""
        claim = self.claim
        return {
            "note": claim.note,
            "claim": claim.says,
            "figure": claim.figure.name,
            "unit": claim.figure.unit,
            "clusters": list(claim.clusters),
            "at_most": claim.at_most,
            "at_least": claim.at_least,
            "first": _as_json(self.first),
            "second": _as_json(self.second),
            "verdict": str(self.verdict),
            "answer": self.says,
        }


def _as_json(sample: Sample) -> dict[str, Any]:
    return {"median": sample.median, "interval": list(sample.interval), "values": sample.values}


Key = tuple[int, int, int]
"""A run: the number of its claim, the number of the cluster in it, and the seed."""


def runs_of(numbers: Sequence[int], seeds: Sequence[int]) -> list[Key]:
    """Return all runs that claims of these numbers take; ConfigError where seeds are too few."""
    if len(seeds) < FEWEST:
        raise ConfigError(f"{len(seeds)} seeds say little of others: {FEWEST} or more do")
    return [(number, side, seed) for number in numbers for side in range(2) for seed in seeds]


def answers(
    numbers: Sequence[int], seeds: Sequence[int], workers: int, told: Callable[[int, int], None]
) -> Iterator[Answer]:
    """Play the runs of claims, on several cores; yields their answers, in order. `told` is called
    after each run, with how many are done and how many there are."""
    keys, found = runs_of(numbers, seeds), dict[Key, tuple[float, Verdict]]()
    with ProcessPool(workers) as pool:
        for one in pool.each(play, keys):
            if one is not None:
                found[one[0]] = one[1]
                told(len(found), len(keys))
    for number in numbers:
        first, second = (
            _sample([found[number, side, seed] for seed in seeds]) for side in range(2)
        )
        yield Answer(claim=CLAIMS[number], first=first, second=second)


def play(key: Key) -> tuple[float, Verdict]:
    """Play one run; returns the figure of its claim, and the verdict."""
    number, side, seed = key
    claim = CLAIMS[number]
    outcome = run_scenario(claim.scenario_of(side), seed)
    return claim.figure.of(outcome.run), outcome.verdict


def _sample(measured: Sequence[tuple[float, Verdict]]) -> Sample:
    return Sample(
        values=tuple(value for value, _verdict in measured),
        verdict=worst(verdict for _value, verdict in measured),
    )
