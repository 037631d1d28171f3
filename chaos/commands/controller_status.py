"""The status of a controller over HTTP: metrics of its runs, liveness and readiness. It can only be
read, so it needs no token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from stormcast.chaos.commands.listeners import serve_status
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.node.control.settings import ControlSettings

ERROR: Final = "error"
"""In place of a verdict: the run never began, or met a bug. A run that breaks off is unknown."""
VERDICTS: Final = ("holds", "unknown", "violated", "unsupported", ERROR)
_OUTCOMES: Final = "`holds`, `unknown`, `violated`, `unsupported` or `error`"
HANG_SECONDS: Final = 3600.0
"""A controller that did not call `hear` for so long hangs, unless its run may take longer: then it
has so long beyond that, to start members, and to judge."""


class ControllerStatus:
    """The figures of a controller."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.registry = CollectorRegistry()
        self.is_ready = False
        """Whether runs can be made: the backend has answered."""
        self._faults: dict[str, tuple[str, ...]] = {}
        """By scenario: the faults of which there are figures."""
        self._heard = time.monotonic()
        self._run_seconds = 0.0
        """How long the current run may take by the limits of its scenario."""
        self._tell = tell
        self._runs = Counter(
            "stormcast_runs",
            f"Runs that ended, by what came out: {_OUTCOMES}.",
            ("scenario", "verdict"),
            registry=self.registry,
        )
        self._messages = Counter(
            "stormcast_run_messages",
            "Messages that members sent in all runs.",
            ("scenario",),
            registry=self.registry,
        )
        self._running = self._gauge("stormcast_run_active", "1 while it runs.", "scenario")
        self._ended = self._gauge(
            "stormcast_run_last_end_timestamp_seconds", "When its last run ended.", "scenario"
        )
        self._lasted = self._gauge(
            "stormcast_run_last_duration_seconds", "How long its last run lasted.", "scenario"
        )
        self._resync = self._gauge(
            "stormcast_run_last_resync_seconds",
            "From the last heal until all was well again, in its last run.",
            "scenario",
        )
        self._bites = self._gauge(
            "stormcast_run_last_bites",
            "Frames or members on which a fault had an effect, in its last run.",
            "scenario",
            "fault",
        )
        self._rounds = Counter(
            "stormcast_rounds", "Rounds over all scenarios so far.", registry=self.registry
        )

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self.registry)

    # -- Called by the controller ----------------------------------------------------------------

    def hear(self) -> None:
        """Note that the controller is alive."""
        self._heard = time.monotonic()

    def expect(self, seconds: float) -> None:
        """Note that a run begins that may take so long."""
        self.hear()
        self._run_seconds = seconds

    def know(self, scenarios: Iterable[str]) -> None:
        """Make figures of these scenarios, at first zero: a missing figure would be ambiguous."""
        for scenario in scenarios:
            self._running.labels(scenario)
            for verdict in VERDICTS:
                self._runs.labels(scenario, verdict)

    def begin(self, scenario: str) -> None:
        """Note that a scenario runs now."""
        self._running.labels(scenario).set(1)

    def end(self, scenario: str, verdict: str, outcome: RunOutcome | None) -> None:
        """Note that a run of a scenario has ended, with its figures if it has an outcome."""
        self.expect(0.0)
        self._running.labels(scenario).set(0)
        self._runs.labels(scenario, verdict).inc()
        self._ended.labels(scenario).set(time.time())
        self._forget(scenario)
        if outcome is None:
            return
        run = outcome.run
        self._messages.labels(scenario).inc(run.sent)
        self._lasted.labels(scenario).set(run.seconds)
        if run.resync is not None and run.resync.seconds is not None:
            self._resync.labels(scenario).set(run.resync.seconds)
        for fault, number in run.bites.items():
            self._bites.labels(scenario, fault).set(number)
        self._faults[scenario] = tuple(run.bites)

    def _forget(self, scenario: str) -> None:
        """Remove the figures of a scenario's run before the last one."""
        for figure in (self._lasted, self._resync):
            with suppress(KeyError):
                figure.remove(scenario)
        for fault in self._faults.pop(scenario, ()):
            self._bites.remove(scenario, fault)

    def count_round(self) -> None:
        """Count a round over all scenarios."""
        self._rounds.inc()

    # -- Endpoints -------------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Whether the controller goes on."""
        silence = time.monotonic() - self._heard
        return silence < HANG_SECONDS + self._run_seconds

    def serve(self, settings: ControlSettings, probes: ControlSettings | None = None) -> list[str]:
        """Answer requests in a thread; returns the addresses."""
        return serve_status(self, settings, probes, self._tell)
