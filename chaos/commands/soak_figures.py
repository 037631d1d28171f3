"""The figures of a soak over HTTP: metrics, liveness and readiness."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge

HANG_SECONDS: Final = 3600.0
"""A soak whose windows end so much later than they may take hangs."""
VERDICTS: Final = ("holds", "unknown", "violated")


class SoakFigures:
    """What a soak says of itself."""

    def __init__(self, window: float) -> None:
        """`window`: seconds that a window may take."""
        self.registry = CollectorRegistry()
        self.is_ready = False
        """Whether the members are there, and the storm has begun."""
        self._window = window
        self._heard = time.monotonic()
        self._windows = self._gauge(
            "stormcast_soak_windows", "Windows that ended, by their verdict.", "verdict"
        )
        self._sent = self._gauge("stormcast_soak_messages", "Messages that members sent so far.")
        self._bites = self._gauge(
            "stormcast_soak_bites", "Frames or members on which faults had an effect so far."
        )
        self._seconds = self._gauge(
            "stormcast_soak_seconds", "How long members have lived in all windows."
        )
        self._ended = self._gauge(
            "stormcast_soak_last_window_timestamp_seconds", "When the last window ended."
        )
        self._over = self._gauge("stormcast_soak_over", "1 when its time is over.")
        self._grows = self._gauge(
            "stormcast_soak_grows", "1 while this grows, with a test against noise.", "of", "figure"
        )
        self._chapters = self._gauge(
            "stormcast_soak_spark_chapters", "Chapters that Spark has judged.", "verdict"
        )
        self._disputed = self._gauge(
            "stormcast_soak_disagreements", "Chapters about which the two judges disagree."
        )
        for verdict in VERDICTS:
            # At first zero: a missing figure would be ambiguous.
            self._windows.labels(verdict)
            self._chapters.labels(verdict)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self.registry)

    def update(self, status: Mapping[str, Any]) -> None:
        """Take what `status.json` says after a window."""
        self._heard = time.monotonic()
        for verdict in VERDICTS:
            self._windows.labels(verdict).set(status["verdicts"].get(verdict, 0))
        self._sent.set(status["sent"])
        self._bites.set(status["bites"])
        self._seconds.set(status["seconds"])
        self._over.set(status["is_over"])
        self._ended.set_to_current_time()
        for drift in status["drift"]:
            grows = self._grows.labels(drift["of"], drift["figure"])
            grows.set(drift["verdict"] == "grows")
        second = status.get("spark") or {}
        for verdict in VERDICTS:
            self._chapters.labels(verdict).set(second.get("verdicts", {}).get(verdict, 0))
        self._disputed.set(second.get("disagreements", 0))

    def hear(self) -> None:
        """Note that the soak is alive."""
        self._heard = time.monotonic()

    @property
    def is_live(self) -> bool:
        """Whether its windows end in time."""
        return time.monotonic() - self._heard < HANG_SECONDS + self._window
