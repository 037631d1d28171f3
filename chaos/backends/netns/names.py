"""The names of what a run makes, by which leftovers of killed runs are found: its namespaces,
tables, mounts and temporary folders, and a variable in the environment of its processes.

A run is named after the process that owns it: its pid, and the time at which that process was
started, because pids are used again.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

from stormcast.chaos.language.cluster import MAX_MEMBERS

BRIDGE: Final = "bridge"
"""The bridge's name among the members' namespaces; no member can be called so."""
_FIRST4: Final = IPv4Address("198.18.0.2")
_FIRST6: Final = IPv6Address("fd00:5c::2")
OF_RUN: Final = "SC_RUN"
"""The variable that names the run in the environment of each process that a run starts."""
PREFIX4: Final = 15
PREFIX6: Final = 64

_RUN: Final = re.compile(r"sc(\d{1,10})-(\d{1,20})-(\d{1,6})(?:-(.+))?")
_MEMBER: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
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


def check_names(names: tuple[str, ...]) -> None:
    """Refuse (AssertionError) names that members of one run cannot have."""
    assert 1 <= len(names) <= MAX_MEMBERS, f"{len(names)} members: 1..{MAX_MEMBERS} fit"
    assert len(set(names)) == len(names), f"two members have one name: {' '.join(names)}"
    for name in names:
        assert _MEMBER.fullmatch(name), f"{name!r}: small letters, digits and dashes"
        assert name != BRIDGE, f"{name!r} is the name of the bridge"


def address4(index: int) -> str:
    """Return the IPv4 address of the member at this index."""
    return str(_FIRST4 + index)


def address6(index: int) -> str:
    """Return the IPv6 address of the member at this index."""
    return str(_FIRST6 + index)


def link_address(index: int) -> str:
    """Return the link layer's address of the member at this index: a locally administered one."""
    return f"02:5c:00:00:{index >> 8:02x}:{index & 0xFF:02x}"
