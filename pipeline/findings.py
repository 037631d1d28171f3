"""Findings: the verdict on one guarantee, with the events that prove it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering
from typing import Any, Final

SPARK: Final = "spark"
THE_RUN: Final = "run"
"""The makers of findings: Spark, or the oracles of the run, when it ended."""
RUN: Final = "run"
"""The `guarantee` of a finding about the run as a whole, which proves nothing."""


@total_ordering
class Verdict(Enum):
    """The verdicts on a guarantee, from best to worst."""

    HOLDS = 0
    UNKNOWN = 1
    """The evidence proves neither."""
    VIOLATED = 2

    def __lt__(self, other: Verdict) -> bool:
        return self.value < other.value

    def __str__(self) -> str:
        return self.name.lower()


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; HOLDS if there are none."""
    return max(verdicts, default=Verdict.HOLDS)


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one guarantee, and the few events that prove it."""

    guarantee: str
    verdict: Verdict
    detail: str
    witness: tuple[str, ...] = ()
    by: str = SPARK
    at: float | None = None
    """The time of the violation, in seconds of the run, if it is known."""

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.HOLDS

    def as_json(self) -> dict[str, Any]:
        """Return a part of verdict.json."""
        content = {
            "guarantee": self.guarantee,
            "verdict": str(self.verdict),
            "detail": self.detail,
            "witness": list(self.witness),
            "by": self.by,
        }
        return content | ({"at": round(self.at, 6)} if self.at is not None else {})


def read_finding(content: Mapping[str, Any], by: str) -> Finding:
    """Read a part of verdict.json; `by` is used if it does not say who found it."""
    verdict, witness, at = (content.get(key) for key in ("verdict", "witness", "at"))
    return Finding(
        str(content.get("guarantee", RUN)),
        _VERDICTS.get(str(verdict), Verdict.UNKNOWN),
        str(content.get("detail", "")),
        tuple(map(str, witness)) if isinstance(witness, list | tuple) else (),
        str(content.get("by") or by),
        float(at) if isinstance(at, int | float) and not isinstance(at, bool) else None,
    )


_VERDICTS: Final = {str(verdict): verdict for verdict in Verdict}
