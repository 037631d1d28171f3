"""Files that are written as a whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


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
