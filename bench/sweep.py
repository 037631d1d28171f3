"""How cost grows with members, size, loss and delay, one of which changes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bench import machine
from bench.cluster import Plan, Say, measure
from bench.errors import BenchError
from bench.goals import is_good
from bench.report import as_json
from bench.table import number, per_cent
from bench.work import OURS, Work

BASE: Final = Work(mode="multicast", size=1000)
PAIR: Final = Work(mode="unicast", members=2, size=1000)

SERIES: Final[dict[str, tuple[Work, ...]]] = {
    "members": tuple(replace(BASE, members=number) for number in (2, 3, 4, 6, 8, 12, 16)),
    "size": tuple(
        replace(BASE, size=size) for size in (10, 100, 1_000, 10_000, 100_000, 1_000_000)
    ),
    "loss": tuple(
        replace(base, loss=loss)
        for base in (BASE, PAIR)
        for loss in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
    ),
    "delay": tuple(
        replace(base, delay=delay)
        for base in (BASE, PAIR)
        for delay in (0.0, 0.001, 0.005, 0.02, 0.05)
    ),
}
"""By the name of what changes."""


@dataclass(slots=True)
class Sweep:
    """The reports so far, and what could not be measured."""

    reports: list[tuple[str, Work, dict[str, Any]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_interrupted: bool = False

    @property
    def has_problems(self) -> bool:
        """Whether something, or some peer, could not be measured."""
        return bool(self.problems) or any(each["failed"] for _name, _work, each in self.reports)

    @property
    def holds(self) -> bool:
        """Whether no check of a run has failed."""
        checks = [report["check"] for _name, _work, report in self.reports]
        return all(check is None or check["holds"] for check in checks)


def measure_series(names: list[str], like: Plan, tell: Say) -> Sweep:
    """Measure the named series; the plans are like `like` in all but the work."""
    sweep = Sweep()
    try:
        for name in names:
            for work in SERIES[name]:
                tell(f"{name}: {work}")
                try:
                    result = measure(replace(like, work=work), tell)
                except BenchError as error:
                    sweep.problems.append(f"{name}: {work}: {error}")
                    continue
                if result.is_interrupted:
                    raise KeyboardInterrupt
                sweep.reports.append((name, work, as_json(result)))
    except KeyboardInterrupt:
        sweep.is_interrupted = True
    return sweep


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """Return everything about a sweep."""
    return {
        "points": [{"series": name, **report} for name, _work, report in sweep.reports],
        "problems": sweep.problems,
        "holds": sweep.holds,
        "interrupted": sweep.is_interrupted,
        **machine.describe(),
    }


def markdown(sweep: Sweep, teams: Sequence[str]) -> str:
    """Return the series as a table for people."""
    peers = [team for team in teams if team != OURS]
    lines = [
        f"| changes | traffic | ours | MB/s | spread | {'| '.join(f'{p} ' for p in peers)}"
        f"{'| ' if peers else ''}G1–G4 |",
        "|---|---|---|---|---|" + "---|" * (len(peers) + 1),
    ]
    for name, work, report in sweep.reports:
        changes = f"{name}, by {report['settings']['delayed_by']}" if work.delay else name
        cells = [changes, str(work), *_ours(work, report)]
        cells += [number(report["peers"].get(peer)) for peer in peers]
        cells.append("hold" if is_good(report) else "**failed**")
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\nnot measured: {problem}" for problem in sweep.problems]
    for name, work, report in sweep.reports:
        lines += [
            f"\n{name}: {work}: {peer} is out: {why}" for peer, why in report["failed"].items()
        ]
    return "\n".join(lines) + "\n"


def _ours(work: Work, report: dict[str, Any]) -> list[str]:
    """Return rate, MB/s and spread; empty where the check of the run fails: that is no figure."""
    ours = report["ours"] if is_good(report) else None
    if ours is None:
        return ["", "", ""]
    return [number(ours), f"{ours * work.size / 1e6:,.1f}", per_cent(report["spread"].get(OURS))]
