"""The judgement of a run: its findings, and the run in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stormcast.findings import Finding, Verdict, worst, worst_by_guarantee
from stormcast.pipeline.questions import Question


class Probe(NamedTuple):
    """The kind of a fault, and how often it bit."""

    kind: str
    bites: int


class Death(NamedTuple):
    """A death that nothing in the scenario did."""

    at: float
    """Seconds from the begin of the run."""
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A run in a few numbers."""

    messages: int = 0
    """Messages that left: one in pieces counts once."""
    delivered: int = 0
    """Messages that arrived, at each receiver."""
    has_sent: bool = False
    """Whether anything left, if only a piece of a message."""
    events: int = 0
    begin: float = 0.0
    """The time at which the run began, on the clock of its traces."""
    seconds: float = 0.0
    bites: Mapping[str, Probe]
    """By fault id: how often the fault had an effect."""
    uncounted: Mapping[str, str] = field(default_factory=dict)
    """The kinds of the faults of which no event says that, by id."""
    deaths: tuple[Death, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The findings of a run; the worst of them is its verdict."""

    question: Question
    findings: tuple[Finding, ...]
    figures: Figures
    violations: Mapping[str, int]
    """By guarantee: the number of violations."""
    not_judged: tuple[str, ...]
    """Guarantees that were asked for, but judged neither by Spark nor by the run's oracles."""

    @property
    def verdict(self) -> Verdict:
        return worst(finding.verdict for finding in self.findings)

    def verdicts(self) -> dict[str, str]:
        """Return the worst verdict on each guarantee."""
        return worst_by_guarantee(self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `stormcast verify --json` prints, and verdict.json contains."""
        figures = self.figures
        return {
            "scenario": self.question.run,
            "verdict": str(self.verdict),
            "guarantees": self.verdicts(),
            "findings": [finding.as_json() for finding in self.findings],
            "min_bites": self.question.min_bites,
            **self.question.about,
            "judged_by": "spark",
            "not_judged": list(self.not_judged),
            "violations": dict(self.violations),
            "messages": figures.messages,
            "delivered": figures.delivered,
            "events": figures.events,
            "seconds": round(figures.seconds, 6),
            "faults": {fault: one.bites for fault, one in figures.bites.items()},
        }
