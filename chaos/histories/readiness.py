"""H5, ready again: a guest is ready within a bound after the last fault, and stays so."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Final

from stormcast.chaos.histories.operations import HistoryError
from stormcast.findings import Finding, Verdict

GUARANTEE: Final = "H5"
EPSILON: Final = 1e-9
"""Seconds for which sums of times may be wrong."""


def judge_readiness(
    samples: Iterable[tuple[float, bool]], heals: Iterable[float], within: float
) -> Finding:
    """Judge whether a guest was ready `within` seconds after the last fault ended, by samples of
    when it said that it was."""
    ends, seen = sorted(heals), sorted(samples)
    times = (*ends, *(time for time, _ready in seen), within)
    if not all(map(isfinite, times)) or within < 0:
        raise HistoryError("a time of a sample, a heal or the bound is no number of seconds")
    if not ends:
        return _unknown("no fault was done, so nothing struck")
    due = ends[-1] + within + EPSILON
    after = [(time, is_ready) for time, is_ready in seen if time >= ends[-1]]
    if not after:
        return _unknown(f"nobody asked whether it was ready after the last heal, {ends[-1]:g}s")
    downs = [time for time, is_ready in after if not is_ready]
    late = [time for time in downs if time > due]
    if late:
        detail = f"not ready at {late[0]:g}s, {late[0] - ends[-1]:g}s after the last heal"
        witness = tuple(
            f"t={time:.3f} {'ready' if is_ready else 'not ready'}"
            for time, is_ready in after
            if time <= late[0]
        )
        return Finding(GUARANTEE, Verdict.VIOLATED, detail, witness[-2:], late[0])
    ups = [time for time, is_ready in after if is_ready and (not downs or time > downs[-1])]
    if not ups:
        return _unknown(f"nobody asked later than {downs[-1]:g}s, and it is due at {due:g}s")
    if ups[0] > due:
        before = downs[-1] if downs else ends[-1]
        return _unknown(
            f"nobody asked between {before:g}s and {ups[0]:g}s, and it is due at {due:g}s"
        )
    took = ups[0] - ends[-1]
    return Finding(GUARANTEE, Verdict.HOLDS, f"ready {took:.3f}s after the last heal")


def _unknown(detail: str) -> Finding:
    return Finding(GUARANTEE, Verdict.UNKNOWN, detail)
