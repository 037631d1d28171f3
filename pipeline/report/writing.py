"""Writes reports: one in each run directory, and one page for a directory of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from stormcast.pipeline.report.batch import Entry, batch_report
from stormcast.pipeline.report.comparison import read_comparison
from stormcast.pipeline.report.comparison_page import comparison_page
from stormcast.pipeline.report.run_files import (
    BEGUN,
    HOLDS,
    REPORT,
    TRACES,
    NotARun,
    has_begun,
    read_run,
)
from stormcast.pipeline.report.run_report import run_report
from stormcast.pipeline.report.soak_report import SOAK, is_soak, read_soak, soak_report
from stormcast.pipeline.report.suite_file import read_suite
from stormcast.whole import write_whole

DEEP: Final = 3
"""Levels below a batch's directory down to which runs are looked for."""


def write_report(run: Path, verify: Path | None = None, stored: str = "") -> Path:
    """Write the report of one run from its files; no Spark is needed.

    If Spark's results are in another directory (`verify`), the report is written there. `stored` is
    where the run lies, if the directory is a copy that will be removed.
    """
    path = (verify or run) / REPORT
    kept = read_run(run, verify)
    if stored:
        # Its commands read directories: they are for a copy that somebody makes.
        kept = replace(kept, directory=run.name, stored=stored)
    write_whole(path, run_report(kept))
    return path


def write_batch(batch: Path, again: str = HOLDS) -> Path:
    """Write the page of all runs in a directory, with links to their reports. `again` is what a
    second judge has found of all of them."""
    runs = runs_below(batch)
    entries = [Entry(read_run(run, has_metrics=False), _link(batch, run)) for run in runs]
    suite = read_suite(batch, runs, {entry.kept.verdict.backend for entry in entries})
    path = batch / REPORT
    said = [again] if suite.verdict is None else [again, suite.verdict]
    write_whole(path, batch_report(batch.resolve().name, entries, suite.without, said))
    return path


def write_soak(directory: Path) -> Path:
    """Write the page of a soak, and the report of each incident that has none."""
    kept = read_soak(directory)
    for window in kept.windows:
        incident = directory / str(window.line.get("incident", ""))
        if incident != directory and is_run(incident) and not (incident / REPORT).exists():
            write_report(incident)
    path = directory / REPORT
    write_whole(path, soak_report(kept))
    return path


def write_comparison(file: Path, told: Mapping[str, Any]) -> None:
    """Write the page of two soaks or runs, of which `stormcast compare` tells."""
    write_whole(file, comparison_page(read_comparison(told)))


def runs_below(batch: Path) -> list[Path]:
    """Find the run directories in a directory, also of runs that have no verdict."""
    judged = {path.parent for path in _below(batch, "verdict.json")}
    traced = {path.parent.parent for path in _below(batch, TRACES)}
    begun = {path.parent for path in _below(batch, BEGUN) if not _is_of_soak(path.parent)}
    # A directory of runs is begun, too.
    above = {path for run in judged | traced | begun for path in run.parents}
    found = judged | traced | (begun - above)
    # The folder with Spark's verdict on a run is no run directory.
    return sorted(path for path in found if path.name != "verify" or path.parent not in found)


def _below(batch: Path, name: str) -> Iterator[Path]:
    """Yield what has such a name in the directories below, each once: beside runs there is a link
    to the latest."""
    home = batch.resolve()
    for deep in range(1, DEEP + 1):
        for path in batch.glob("*/" * deep + name):
            place = path.parent.resolve()
            is_there = place == home / path.parent.relative_to(batch)
            if is_there or not place.is_relative_to(home):
                yield path


def _is_of_soak(directory: Path) -> bool:
    """Whether a directory is of a soak, which may have no window yet."""
    return (directory / SOAK).exists()


def is_run(directory: Path) -> bool:
    """Whether a directory is the run directory of one run."""
    return (directory / "verdict.json").exists() or (directory / "verify/verdict.json").exists()


def write(directory: Path) -> list[Path]:
    """Write the report of a run, or those of a directory of runs and then its page; returns the
    paths."""
    if is_run(directory):
        return [write_report(directory)]
    if is_soak(directory):
        return [write_soak(directory)]
    runs = runs_below(directory)
    if runs:
        return [*map(write_report, runs), write_batch(directory)]
    if has_begun(directory) and not _is_of_soak(directory):
        return [write_report(directory)]
    raise NotARun(
        f"{directory} holds no verdict.json: name a run directory, or a directory of them"
    )


def _link(batch: Path, run: Path) -> str | None:
    """Return the link from the page to a report, quoted: names of directories may hold anything."""
    report = run / REPORT
    if not report.exists():
        return None
    return quote(os.path.relpath(report.resolve(), batch.resolve()))
