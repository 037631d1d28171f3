"""A folder as a tar, made while it is sent: memory does not grow with the folder."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from stormcast.node.trace.segments import SUFFIX

CHUNK: Final = 64 << 10


def tar_of(folder: Path) -> Iterator[bytes]:
    """Yield a tar of all regular files below a folder, with names relative to it. A file that grows
    meanwhile is cut at its first length. The oldest segment of a journal may vanish, and is left
    out; FileNotFoundError for any other file, as the tar would lack something."""
    for path in sorted(folder.rglob("*")):
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                continue
            with path.open("rb") as file:
                yield from _entry(file, path.relative_to(folder).as_posix())
        except FileNotFoundError:
            if not _was_oldest(path):
                raise
    yield bytes(2 * tarfile.BLOCKSIZE)


def _was_oldest(gone: Path) -> bool:
    """Whether a journal that is full has dropped this segment: it has younger ones alone."""
    left = list(gone.parent.glob(f"*{SUFFIX}"))
    return gone.suffix == SUFFIX and bool(left) and gone < min(left)


def _entry(file: BinaryIO, name: str) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = file.seek(0, 2)
    file.seek(0)
    yield info.tobuf(tarfile.PAX_FORMAT)
    left = info.size
    while left:
        part = file.read(min(left, CHUNK))
        if not part:
            raise OSError(f"{name} has become shorter while it was read")
        left -= len(part)
        yield part
    yield bytes(-info.size % tarfile.BLOCKSIZE)
