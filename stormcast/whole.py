"""Files that are written as a whole or not at all, and files that grow by whole lines."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

_STEP = 1 << 16
"""Bytes that are read at a time, from the end of a file on, to find where its last line begins."""


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step: whoever reads it, and whenever this process is killed, it has all
    of the text, or what it had before."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        # What cannot be written at all has not made the part either.
        with suppress(OSError):
            part.unlink(missing_ok=True)
        error.filename = str(path)
        raise


def append_lines(path: Path, text: str) -> None:
    """Append whole lines to a file: all of them, or none where there is no room. Only a kill can
    leave a part of them, which `mend_lines` removes."""
    data = text.encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        before = os.fstat(handle).st_size
        if os.write(handle, data) < len(data):
            os.ftruncate(handle, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


def mend_lines(path: Path) -> None:
    """Remove the last line of a file, if a kill cut it short: else the next one would be spoiled,
    too."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        end = whole = file.seek(0, os.SEEK_END)
        while whole > 0:
            start = max(0, whole - _STEP)
            file.seek(start)
            at = file.read(whole - start).rfind(b"\n")
            if at >= 0:
                whole = start + at + 1
                break
            whole = start
        if whole < end:
            file.truncate(whole)
