"""The name of a run among the things of a machine, by which leftovers of killed runs are found.

A run is named after the process that owns it: its pid, and the time at which that process was
started, because pids are used again.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_RUN: Final = re.compile(r"sc(\d{1,10})-(\d{1,20})-(\d{1,6})(?:-(.+))?")
_counter = itertools.count(1)


@dataclass(frozen=True, slots=True)
class RunId:
    """One run of one process."""

    pid: int
    started: int
    """The start time of that process, in clock ticks since boot."""
    number: int
    """The number of the run within that process."""

    @classmethod
    def next(cls) -> RunId:
        """Make the id of a new run of this process."""
        pid = os.getpid()
        started = start_of(pid)
        assert started is not None, "this process runs"
        return cls(pid, started, next(_counter))

    @classmethod
    def parse(cls, text: str) -> RunId | None:
        """Read the run from the name of one of its things; None for any other name."""
        matched = _RUN.fullmatch(text)
        return cls(*map(int, matched.groups()[:3])) if matched else None

    def __str__(self) -> str:
        return f"sc{self.pid}-{self.started}-{self.number}"

    @property
    def table(self) -> str:
        """The name of this run's nft table: without dashes, which nft would take for minus."""
        return str(self).replace("-", "_")

    def namespace(self, name: str) -> str:
        """Return the namespace of a member, or of the bridge."""
        return f"{self}-{name}"

    def has_owner(self) -> bool:
        """Whether the process that made this run still runs."""
        return start_of(self.pid) == self.started


def start_of(pid: int) -> int | None:
    """Return the start time of a process, in clock ticks since boot; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, and may hold anything.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])
