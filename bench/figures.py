"""Makes figures of rounds: medians, spread, ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Any, Final

from bench.rounds import Rounds
from bench.teams import Round
from bench.work import OURS, Work

PERCENTILES: Final = ("p50_us", "p99_us", "p99_9_us")
SPAN: Final = 5.0
"""Round trips are given per so many seconds, however long a round took."""


def headline(work: Work, figures: Round) -> float | None:
    """Return the one number of a round; None when nothing came back in it."""
    value = figures.get("p50_us") if work.is_latency else figures["rate"]
    return None if value is None else float(value)


def summary(work: Work, rounds: Sequence[Round]) -> Rounds | None:
    """Return the headlines of several rounds; None when some round has none: a median of the others
    would be too good."""
    values = [value for each in rounds if (value := headline(work, each)) is not None]
    return Rounds(rounds=tuple(values)) if values and len(values) == len(rounds) else None


def details(work: Work, rounds: Sequence[Round]) -> dict[str, float | None]:
    """Return the percentiles of round trips, and how many there were; nothing for other traffic."""
    if not work.is_latency or not rounds:
        return {}
    found: dict[str, float | None] = {}
    for name in PERCENTILES:
        values = [each[name] for each in rounds if each.get(name) is not None]
        found[name] = round(median(values), 1) if values else None
    counts = [each["count"] * SPAN / each["seconds"] for each in rounds if each["seconds"]]
    found["count_in_5_s"] = round(median(counts)) if counts else None
    return found


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Return ours divided by theirs; of a time, less than 1 is better."""
    return round(ours / theirs, 3) if ours is not None and theirs else None


def _spread(found: Rounds | None) -> float | None:
    """Return the spread, as far as JSON can have it."""
    return round(found.spread, 4) if found and isfinite(found.spread) else None


def report(work: Work, rounds: Mapping[str, Sequence[Round]]) -> dict[str, Any]:
    """Return the figures of a run, as JSON has them."""
    summaries = {name: summary(work, done) for name, done in rounds.items()}
    medians = {name: round(found.median, 1) if found else None for name, found in summaries.items()}
    ours = medians.get(OURS)
    return {
        "ours": ours,
        "unit": work.unit,
        "peers": {name: value for name, value in medians.items() if name != OURS},
        "ratio": {name: ratio(ours, value) for name, value in medians.items() if name != OURS},
        "spread": {name: _spread(found) for name, found in summaries.items()},
        "details": {name: details(work, done) for name, done in rounds.items()},
        "rounds": {name: list(done) for name, done in rounds.items()},
    }
