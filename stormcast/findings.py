"""Findings: the verdict on one guarantee, with the events that prove it. Both judges make them: the
oracles of the rig, and Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering
from math import isfinite
from typing import Any, Final

RUN: Final = "run"
"""Stands in place of a guarantee in a finding that the run as a whole proves nothing."""


@total_ordering
class Verdict(Enum):
    """The verdict on a guarantee, from best to worst."""

    HOLDS = 0
    UNKNOWN = 1
    """The evidence proves neither: a check crashed, a trace is torn, a fault had no effect."""
    VIOLATED = 2

    def __lt__(self, other: Verdict) -> bool:
        return self.value < other.value

    def __str__(self) -> str:
        return self.name.lower()


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; HOLDS where there is none."""
    return max(verdicts, default=Verdict.HOLDS)


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one guarantee, and the few events that prove it."""

    guarantee: str
    verdict: Verdict
    detail: str
    witness: tuple[str, ...] = ()
    at: float | None = None
    """The time of the violation, in seconds of the run; None: there is none, or it is not known."""
    by: str = ""
    """The judge, where the findings of two stand together."""

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.HOLDS

    def as_json(self) -> dict[str, Any]:
        """Return the finding as verdict.json has it."""
        told: dict[str, Any] = {
            "guarantee": self.guarantee,
            "verdict": str(self.verdict),
            "detail": self.detail,
            "witness": list(self.witness),
        }
        if self.by:
            told["by"] = self.by
        if self.at is not None and isfinite(self.at):
            told["at"] = round(self.at, 6)
        return told


def worst_by_guarantee(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the worst verdict on each guarantee, in words; of those about the run none."""
    found: dict[str, Verdict] = {}
    for finding in findings:
        if finding.guarantee != RUN:
            before = found.get(finding.guarantee, Verdict.HOLDS)
            found[finding.guarantee] = worst((before, finding.verdict))
    return {guarantee: str(verdict) for guarantee, verdict in found.items()}
