"""`stormcast run`: one scenario, and a page about it where its guests have a history.

This is glue: the rig knows nothing of reports.
"""

from __future__ import annotations

from pathlib import Path

from stormcast.chaos.commands import run as command


def run(argv: list[str]) -> int:
    """Run `stormcast run`."""
    return command.run(argv, page_of)


def page_of(directory: Path) -> Path:
    """Write the page of a run directory, and return its path."""
    # Most runs are without: it takes a moment to import.
    from stormcast.pipeline.report.writing import write_report  # noqa: PLC0415

    return write_report(directory)
