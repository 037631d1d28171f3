"""`stormcast replay`: a run again, and a page about it where it has guests.

This is glue: the rig knows nothing of reports.
"""

from __future__ import annotations

from stormcast.chaos.commands import replay as command
from stormcast.run import page_of


def replay(argv: list[str]) -> int:
    """Run `stormcast replay`."""
    return command.replay(argv, page_of)
