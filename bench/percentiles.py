"""Percentiles of measured times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHARES: Final = (("p50_us", 0.5), ("p99_us", 0.99), ("p99_9_us", 0.999))


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the values below which shares of all lie, in microseconds; None without any."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        name: round(ordered[min(last, int(len(ordered) * share))] * 1e6, 1) if ordered else None
        for name, share in SHARES
    }
