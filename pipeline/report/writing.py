"""Reports on disk: beside each run, and one page for a directory of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from stormcast.pipeline.report.batch import Entry, batch_report
from stormcast.pipeline.report.run_files import REPORT, NotARun, read_run
from stormcast.pipeline.report.run_report import run_report

DEEP: Final = 3
"""Directories below a batch in which runs are looked for."""


def write_report(run: Path, verify: Path | None = None) -> Path:
    """Render the report of one run from what it keeps; no Spark is needed.

    Where Spark's findings were kept apart (`verify`), the report lies beside them.
    """
    path = (verify or run) / REPORT
    path.write_text(run_report(read_run(run, verify)), encoding="utf-8")
    return path


def write_batch(batch: Path, runs: Iterable[Path]) -> Path:
    """Write the page of many runs; reports that they have are linked."""
    entries = [Entry(read_run(run, has_metrics=False), _link(batch, run)) for run in runs]
    path = batch / REPORT
    path.write_text(batch_report(batch.resolve().name, entries), encoding="utf-8")
    return path


def runs_below(batch: Path) -> list[Path]:
    """The run directories in a directory."""
    found = {
        path.parent
        for deep in range(1, DEEP + 1)
        for path in batch.glob("/".join(["*"] * deep) + "/verdict.json")
    }
    # What Spark said of a run is no run of its own.
    return sorted(path for path in found if path.name != "verify" or path.parent not in found)


def is_run(directory: Path) -> bool:
    """Whether a directory was left behind by one run."""
    return (directory / "verdict.json").exists() or (directory / "verify/verdict.json").exists()


def write(directory: Path) -> list[Path]:
    """All reports of a run, or of a directory of runs, whose page comes last."""
    if is_run(directory):
        return [write_report(directory)]
    runs = runs_below(directory)
    if not runs:
        raise NotARun(
            f"{directory} holds no verdict.json: name a run directory, or a directory of them"
        )
    return [*(write_report(run) for run in runs), write_batch(directory, runs)]


def _link(batch: Path, run: Path) -> str | None:
    """The way from the page to a report; names of directories may hold anything."""
    report = run / REPORT
    if not report.exists():
        return None
    return quote(report.resolve().relative_to(batch.resolve()).as_posix())
