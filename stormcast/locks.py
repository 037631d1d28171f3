"""Locks of directories: two commands that write to one would remove each other's files."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path


def lock(directory: Path, held: ExitStack) -> str | None:
    """Lock a directory until `held` is closed. If another process has it, return that one as text:
    with its number, where the kernel says it."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    held.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(handle)
    except OSError:
        # This storage has no locks.
        return None
    return None


def _holder(handle: int) -> str:
    about = os.fstat(handle)
    where = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 08:01:131075 0 EOF"; 0 or less: of another namespace.
        words = line.split()
        if words[1] == "FLOCK" and words[5] == where and int(words[4]) > 0:
            return f"process {words[4]}"
    return "another process"


def is_held(directory: Path) -> bool | None:
    """Whether a process holds the lock of a directory; None: this storage has no locks."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Shared, and for no longer than this: it is in the way of nobody who only looks.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False
