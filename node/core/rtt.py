"""Round-trip estimation: smoothed mean and deviation, and the waits derived from them."""

from __future__ import annotations


class RoundTrip:
    """Estimates one peer's round trip (gains 1/8 and 1/4, as TCP does)."""

    __slots__ = ("deviation", "smoothed")

    def __init__(self, initial: float) -> None:
        self.smoothed = initial
        self.deviation = initial / 2

    def sample(self, seconds: float) -> None:
        """Take one measurement of a message that was sent once only (Karn's rule)."""
        error = seconds - self.smoothed
        self.smoothed += error / 8
        self.deviation += (abs(error) - self.deviation) / 4

    def wait(self, floor: float, ceiling: float) -> float:
        """Return how many seconds of silence mean loss."""
        return min(ceiling, max(floor, self.smoothed + 4 * self.deviation))
