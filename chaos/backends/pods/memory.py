"""How much memory this process may take: the limit of its container, where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files in which a container finds its limit: of cgroups, version 2 and 1."""


def memory_limit() -> int | None:
    """Return the bytes beyond which the kernel ends this container; None if nobody says."""
    for path in LIMITS:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            # Not there, or the word `max`.
            continue
    return None
