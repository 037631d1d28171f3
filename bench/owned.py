"""Names for what a run makes outside its process: after the process, so that it can be told from
what another run is using, and removed when the process was killed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

PREFIX: Final = "stormcast-bench-"
START_TIME: Final = 19
"""Place of a process's start time in /proc/PID/stat, counted after its name."""


def own_name(pid: int) -> str:
    """Return the name of what a process owns; with its start time, because pids come again."""
    return f"{PREFIX}{pid}-{start_of(pid)}"


def start_of(pid: int) -> int | None:
    """Return the start time of a process, in ticks of the machine; None if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name before it may hold blanks and brackets.
    return int(stat.rpartition(")")[2].split()[START_TIME])


def is_orphan(name: str, start_of: Callable[[int], int | None] = start_of) -> bool:
    """Whether a name is one of ours, and its owner is gone."""
    if not name.startswith(PREFIX):
        return False
    pid, start, *_rest = [*name.removeprefix(PREFIX).split("-"), ""]
    return pid.isdigit() and start.isdigit() and start_of(int(pid)) != int(start)


def make_folder(stack: ExitStack, parent: Path | None = None) -> Path:
    """Make a folder that is removed after the run; remove those that killed runs left beside it."""
    where = Path(tempfile.gettempdir()) if parent is None else parent
    where.mkdir(parents=True, exist_ok=True)
    for path in where.glob(f"{PREFIX}*"):
        if is_orphan(path.name):
            shutil.rmtree(path, ignore_errors=True)
    made = tempfile.TemporaryDirectory(prefix=f"{own_name(os.getpid())}-", dir=where)
    return Path(stack.enter_context(made))
