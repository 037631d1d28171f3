"""A soak as it goes: what is written, said and counted after each window."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.commands.output import (
    end_progress,
    in_plain_lines,
    progress,
    refuse,
    say,
)
from stormcast.chaos.commands.soak_figures import SoakFigures
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.soak.directory import Kept, SoakDirectory
from stormcast.chaos.soak.drift import CPU, LATENCY, Drift, drifts
from stormcast.chaos.soak.kept_chapters import KeptChapters
from stormcast.chaos.soak.player import Window
from stormcast.chaos.soak.second_judge import SecondJudge
from stormcast.exits import Exit
from stormcast.node.reading.quantities import DURATION

LINE_SECONDS: Final = 60.0
"""Real seconds between two lines on how it goes, besides those on incidents."""
DRIFT_SECONDS: Final = 60.0
"""Real seconds between two looks at what grows."""
Report = Callable[[Path], None]
"""Writes the page of a soak into its directory."""


class Watch:
    """Follows a soak: writes each window, says how it goes, and knows when it is over."""

    def __init__(
        self,
        directory: SoakDirectory,
        kept: Kept,
        args: argparse.Namespace,
        report: Report,
        chapters: KeptChapters | None,
        figures: SoakFigures,
    ) -> None:
        self._report = report
        self._chapters = chapters
        self._figures = figures
        self._second = SecondJudge(directory.path)
        self._directory = directory
        self._kept = kept
        self._args = args
        self._verdicts = Counter(str(one["verdict"]) for one in kept.windows)
        self._seconds = sum(float(one["seconds"]) for one in kept.windows)
        self._sent = sum(int(one["sent"]) for one in kept.windows)
        self._faults = sum(sum(one["faults"].values()) for one in kept.windows)
        # What a soak goes on with counts, where its time is that of all its starts.
        self._lived = self._seconds if args.go_on is not None else 0.0
        self._told_at = time.monotonic()
        self._unrest = ""
        self._drifts: list[Drift] = []
        self._drifts_at = -inf
        self.is_interrupted = False
        self.is_broken = False
        """Whether it ended by an error: no more than `unknown` can be told of it."""
        self.tell = None if args.json else progress

    def note(self, window: Window, took: float) -> bool:
        """Take a window that has ended; returns whether it was the last."""
        self._verdicts[str(window.judgement.verdict)] += 1
        incident = self._directory.add(window, took)
        self._seconds += window.run.seconds
        self._lived += window.run.seconds
        self._sent += window.sent
        self._faults += sum(window.run.bites.values())
        self._unrest = window.unrest
        if self._chapters is not None:
            self._chapters.take(window)
        if incident is not None:
            bad = [one for one in window.judgement.findings if one.verdict is not Verdict.HOLDS]
            what = "; ".join(f"{one.guarantee} {one.verdict}: {one.detail}" for one in bad[:3])
            end_progress()
            say(f"window {window.number}: {window.judgement.verdict}: {what}\n  {incident}")
        self._publish(is_over=False)
        if time.monotonic() - self._told_at >= LINE_SECONDS:
            self._told_at = time.monotonic()
            end_progress()
            say(self.line())
            self._write_report()
        elif not self._args.json:
            progress(self.line())
        is_bad = window.judgement.verdict is not Verdict.HOLDS
        return self.is_over or (is_bad and self._args.until_violated)

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return bool(self._lived >= self._args.seconds)

    def _publish(self, *, is_over: bool) -> dict[str, Any]:
        status = self.status(is_over=is_over)
        self._figures.update(status)
        self._directory.say(status)
        return status

    def note_broken(self, number: int, why: str, took: float) -> bool:
        """Take a window that broke off by an error of the rig; returns whether it was the last."""
        self._directory.add_broken(number, why, took)
        self.end_chapter()
        self._verdicts[str(Verdict.UNKNOWN)] += 1
        self._publish(is_over=False)
        if self._args.until_violated:
            end_progress()
            say(f"window {number}: {Verdict.UNKNOWN}: {why}")
        return bool(self._args.until_violated)

    def end_chapter(self) -> None:
        """Keep the chapter that went on: no window of it follows."""
        if self._chapters is not None:
            self._chapters.end()

    def line(self) -> str:
        """Say how the soak is, in one line."""
        windows = sum(self._verdicts.values())
        bad = ", ".join(f"{self._verdicts[one]} {one}" for one in ("violated", "unknown"))
        left = max(0.0, self._args.seconds - self._lived)
        return (
            f"{windows} windows, {DURATION.write(round(self._seconds))}, {bad}, {self._sent} sent, "
            f"{self._faults} bites of faults; {DURATION.write(round(left))} left"
        )

    def status(self, *, is_over: bool) -> dict[str, Any]:
        """Return what `status.json` says."""
        second = self._second.as_json()
        return {
            "windows": sum(self._verdicts.values()),
            "verdicts": dict(self._verdicts),
            "verdict": str(self._verdict()),
            "seconds": round(self._seconds, 3),
            "sent": self._sent,
            "bites": self._faults,
            "unrest": self._unrest,
            "drift": [drift.as_json() for drift in self._drift(is_over=is_over)],
            **({} if second is None else {"spark": second}),
            "is_over": is_over,
        }

    def _drift(self, *, is_over: bool) -> list[Drift]:
        """Return what grows. To compare all pairs of samples takes long after many windows, so it
        is done now and then."""
        if is_over or time.monotonic() - self._drifts_at >= DRIFT_SECONDS:
            self._drifts_at = time.monotonic()
            self._drifts = drifts([*self._kept.windows, *self._directory.lines])
        return self._drifts

    def _verdict(self) -> Verdict:
        if self._verdicts["violated"]:
            return Verdict.VIOLATED
        is_unknown = self._verdicts["unknown"] or self.is_broken or self._second.disagrees
        if is_unknown or not self._verdicts["holds"]:
            return Verdict.UNKNOWN
        return Verdict.HOLDS

    def _write_report(self) -> None:
        """Write the page; where that fails, the soak goes on: what was judged is kept."""
        try:
            self._report(self._directory.path)
        except Exception as error:  # noqa: BLE001 a page is worth no soak, whatever spoiled it
            say(f"no report of the soak: {error}")

    def end(self) -> int:
        """Say what became of it; returns the exit code."""
        self.end_chapter()
        try:
            status = self._publish(is_over=True)
        except OSError as error:
            self.is_broken = True
            refuse(error)
            status = self.status(is_over=True)
        self._write_report()
        if self._args.json:
            print(json.dumps({**status, "soak": str(self._directory.path)}))
        else:
            print(
                in_plain_lines(f"soak: {self._verdict()}   seed {self._kept.seed}   {self.line()}")
            )
            for line in _drift_lines(self._drift(is_over=True)):
                print(in_plain_lines(line))
            print(in_plain_lines(f"soak: {self._directory.path}"))
        if self.is_interrupted and self._verdict() is not Verdict.VIOLATED:
            raise KeyboardInterrupt
        return Exit.of(self._verdict())


_UNITS: Final = {
    "memory": ("MiB", 1 << 20),
    "journal": ("MiB", 1 << 20),
    CPU: ("ms for 1,000 messages", 1e-3),
    LATENCY: ("ms", 1e-3),
}
"""By figure: the unit in which it is said, and how much that is."""


def _drift_lines(drifts: Iterable[Drift]) -> Iterator[str]:
    """Yield a line for each figure that was measured, and one for the others."""
    unmeasured: dict[str, list[str]] = {}
    for drift in drifts:
        if drift.as_json()["per_hour"] is None:
            unmeasured.setdefault(drift.of, []).append(drift.figure)
        else:
            yield _drift_line(drift)
    if unmeasured:
        what = "; ".join(f"{of} ({', '.join(figures)})" for of, figures in unmeasured.items())
        yield f"drift: too short to tell of {what}"


def _drift_line(drift: Drift) -> str:
    slope = drift.slope
    unit, scale = _UNITS.get(drift.figure, ("", 1))
    verdict = drift.as_json()["verdict"]
    growth = " ".join(filter(None, (f"{slope.value / scale:+.2f}", unit)))
    return (
        f"drift: {drift.figure} of {drift.of}: {verdict}, {growth} an hour by {slope.samples} "
        f"samples (above {drift.limit / scale:.3g} it grows)"
    )
