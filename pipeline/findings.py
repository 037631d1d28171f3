"""Findings of two judges: of Spark, and of the oracles of the run, as its verdict.json has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stormcast.findings import RUN, Finding, Verdict

SPARK: Final = "spark"
THE_RUN: Final = "run"
"""The makers of findings: Spark, or the oracles of the run, when it ended."""


def read_finding(content: Mapping[str, Any], by: str) -> Finding:
    """Read a part of verdict.json; `by` is used if it does not say who found it."""
    verdict, witness, at = (content.get(key) for key in ("verdict", "witness", "at"))
    return Finding(
        guarantee=str(content.get("guarantee", RUN)),
        verdict=_VERDICTS.get(str(verdict), Verdict.UNKNOWN),
        detail=str(content.get("detail", "")),
        witness=tuple(map(str, witness)) if isinstance(witness, list | tuple) else (),
        at=float(at) if isinstance(at, int | float) and not isinstance(at, bool) else None,
        by=str(content.get("by") or by),
    )


_VERDICTS: Final = {str(verdict): verdict for verdict in Verdict}
