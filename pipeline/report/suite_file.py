"""Reads `chaos-test.json`, which lies beside the runs of one chaos-test: what it says of them all,
and of those that left no directory."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormcast.findings import RUN, Finding, Verdict
from stormcast.pipeline.findings import SPARK
from stormcast.pipeline.report.run_files import BEGUN, UNKNOWN, UNSUPPORTED, Kept, VerdictFile

SUITE: Final = "chaos-test.json"
_TIMING: Final = "fast"
"""The timing of all its runs."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A chaos-test, as far as its runs do not say it themselves."""

    verdict: str | None
    """Its verdict on all runs; None: of these runs there is no such file."""
    without: tuple[Kept, ...] = ()
    """Its runs that left no directory."""


def read_suite(batch: Path, runs: Collection[Path], backends: Collection[str]) -> Suite:
    """Read the file of a directory of runs, of which `runs` have directories."""
    try:
        said = json.loads((batch / SUITE).read_text(errors="replace"))
        told = [row for row in said["runs"] if _is_without(row, runs)]
        return Suite(str(said["verdict"]), tuple(map(_kept, told)))
    except FileNotFoundError:
        # One on real packets writes it when it ends. In virtual time there is none.
        was_killed = (batch / BEGUN).is_file() and "netns" in backends
        return Suite(UNKNOWN if was_killed else None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Suite(UNKNOWN)


def _is_without(row: Mapping[str, Any], runs: Collection[Path]) -> bool:
    directory = str(row.get("run") or "")
    return not directory or Path(directory).name not in {run.name for run in runs}


def _kept(row: Mapping[str, Any]) -> Kept:
    verdict, protocol = str(row["verdict"]), str(row["protocol"])
    detail = str(row.get("detail") or "")
    is_refused = verdict == UNSUPPORTED
    return Kept(
        directory="",
        verdict=VerdictFile(
            scenario=str(row["scenario"]),
            verdict=verdict,
            guarantees={},
            findings=() if is_refused else (Finding(RUN, Verdict.UNKNOWN, detail, by=SPARK),),
            backend="",
            reason=detail,
        ),
        is_verified=False,
        second=None,
        metrics=None,
        no_metrics="",
        # A generation of unicast, or a stack by its name or by that of its table.
        cluster={
            "unicast" if protocol.startswith("UNICAST") else "stack": protocol,
            "timing": _TIMING,
        },
    )
