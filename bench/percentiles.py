"""Times to what is said about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHARES: Final = (("p50_us", 0.5), ("p99_us", 0.99), ("p99_9_us", 0.999))


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """The value that a share of all lie below, in microseconds; None where there are none."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        name: round(ordered[min(last, int(len(ordered) * share))] * 1e6, 1) if ordered else None
        for name, share in SHARES
    }
