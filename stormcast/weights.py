"""The resources that a process uses, read from /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

AGENT: Final = "agent:"
"""What the name begins with under which an agent is weighed."""
_TICK: Final = os.sysconf("SC_CLK_TCK")
_UTIME: Final = 11
"""Of the fields of /proc/PID/stat after the name: user time, and then system time."""


def bytes_in(folder: Path) -> int:
    """Return the bytes of the files in a folder, some of which may go while they are counted."""
    found = 0
    for parent, _folders, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                found += os.stat(os.path.join(parent, name)).st_size  # noqa: PTH116, PTH118 thousands
    return found


def weigh(pid: int) -> dict[str, float]:
    """Return what a process takes: memory (resident bytes), descriptors, threads, cpu (seconds so
    far). OSError when it is gone."""
    folder = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    if "VmRSS" not in status:
        raise ProcessLookupError(f"pid {pid} is gone")
    # The name of a process may hold anything, a closing bracket too.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    user, system = fields[_UTIME : _UTIME + 2]
    return {
        "memory": int(status["VmRSS"].split()[0]) * 1024,
        "descriptors": len(os.listdir(folder / "fd")),  # noqa: PTH208 a name for each is not needed
        "threads": int(status["Threads"]),
        "cpu": (int(user) + int(system)) / _TICK,
    }
