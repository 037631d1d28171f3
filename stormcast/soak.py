"""`stormcast soak`: storms without end, and a page about each.

This is glue: the rig knows nothing of reports.
"""

from __future__ import annotations

from pathlib import Path

from stormcast.chaos.commands import soak as command
from stormcast.pipeline.report.writing import write_soak


def soak(argv: list[str]) -> int:
    """Run `stormcast soak`; its page is written as it goes."""
    return command.soak(argv, _report)


def _report(directory: Path) -> None:
    write_soak(directory)
