"""Unpacks the tar of a pod's folder. The pod may have been taken over, so nothing that the tar says
is believed: names, numbers and sizes are checked before anything is written.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

from stormcast.node.core.errors import NodeError, shortened
from stormcast.node.core.names import one_line

MAX_FILES: Final = 10_000
"""Files of one member: its incarnations have a log, and a journal of some hundred segments each."""
MAX_PATH: Final = 512
"""Bytes of a file's path in the tar."""
MAX_PARTS: Final = 8
MAX_HEADER: Final = 64 << 10
"""Bytes that are read of a tar at once: tarfile would hold a header of any size in memory."""
_PLAIN: Final = "r:"
"""Mode of a tar that is not compressed: a few compressed bytes could become any number."""


class BadArchive(NodeError):
    """A tar that is refused; the text says why."""


class _InPieces:
    """A file of which nobody reads much at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER:
            raise tarfile.ReadError(f"a header has {size} bytes")
        return self._file.read(size)


def unpack_untrusted(file: IO[bytes], place: Path) -> set[str]:
    """Unpack the regular files of a tar, from its beginning, under `place`, and return the first
    parts of their paths; BadArchive if it is damaged, or holds more than files with plain paths.
    Not by `extractall`: the tar must not write outside of `place`, nor make links or devices, nor
    files with holes, whose size is whatever they claim. However large the tar is, little of it is
    in memory at a time."""
    try:
        most = file.seek(0, os.SEEK_END)
        file.seek(0)
        with tarfile.open(fileobj=cast("IO[bytes]", _InPieces(file)), mode=_PLAIN) as tar:
            number, found = 0, set[str]()
            while entry := tar.next():
                number += 1
                if number > MAX_FILES:
                    raise BadArchive(f"there are more than {MAX_FILES} files")
                if tar.pax_headers:
                    raise BadArchive("it has headers for all files, and a keeper sends none")
                found.add(_unpack_entry(tar, entry, place, most).parts[0])
                # tarfile remembers all entries, each with its headers.
                tar.members.clear()  # type: ignore[attr-defined]  # not in the stubs
            return found
    except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError) as error:
        # tarfile converts some fields without checking them, and follows long names by recursion.
        raise BadArchive(f"the tar is damaged: {one_line(error)}") from None


def _unpack_entry(
    tar: tarfile.TarFile, entry: tarfile.TarInfo, place: Path, most: int
) -> PurePosixPath:
    what = repr(shortened(entry.name))
    path = _checked_path(entry.name)
    if not entry.isreg() or entry.issparse():
        raise BadArchive(f"{what} is no plain file")
    if not 0 <= entry.size <= most:
        raise BadArchive(f"{what} claims {entry.size} bytes, and the whole tar has {most}")
    content = tar.extractfile(entry)
    assert content is not None, "it is a regular file"
    made = place / path
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.open("wb") as written:
        shutil.copyfileobj(content, written, MAX_HEADER)
    return path


def _checked_path(name: str) -> PurePosixPath:
    """Return the path of a file; BadArchive for one that leads elsewhere, or cannot be shown."""
    path = PurePosixPath(name)
    if (
        not name.isprintable()
        or path.is_absolute()
        or ".." in path.parts
        or not 1 <= len(path.parts) <= MAX_PARTS
        or len(name.encode()) > MAX_PATH
    ):
        raise BadArchive(f"{shortened(name)!r} is no path of a journal or log")
    return path
