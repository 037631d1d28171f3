"""`stormcast compare`: what two soaks or runs cost, and a page about both where one is asked for.

This is glue: the rig knows nothing of reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormcast.chaos.commands import compare as command


def compare(argv: list[str]) -> int:
    """Run `stormcast compare`."""
    return command.compare(argv, _report)


def _report(file: Path, told: Mapping[str, Any]) -> None:
    # Most comparisons are without: it takes a moment to import.
    from stormcast.pipeline.report.writing import write_comparison  # noqa: PLC0415

    write_comparison(file, told)
