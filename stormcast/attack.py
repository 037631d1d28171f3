"""`stormcast attack`: faults by hand, and a page about each.

This is glue: the rig knows nothing of reports.
"""

from __future__ import annotations

from stormcast.chaos.commands import attack as command
from stormcast.pipeline.report.writing import write_report


def attack(argv: list[str]) -> int:
    """Run `stormcast attack`; its run directory gets a report."""
    return command.attack(argv, write_report)
