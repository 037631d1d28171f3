"""A folder as a tar, made while it is sent: memory does not grow with the folder."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

CHUNK: Final = 64 << 10


def tar_of(folder: Path) -> Iterator[bytes]:
    """Yield a tar of all regular files below a folder, with names relative to it. A file that grows
    meanwhile is cut at its first length; a file that vanishes is left out."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                yield from _entry(file, path.relative_to(folder).as_posix())
        except FileNotFoundError:
            # A journal that is full has dropped its oldest segment.
            continue
    yield bytes(2 * tarfile.BLOCKSIZE)


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
