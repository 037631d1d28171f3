"""Unpacks the tar of a pod's folder. The pod may have been taken over, so nothing that the tar says
is believed: names, numbers and sizes are checked before anything is written.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path, PurePosixPath
from typing import Final

from stormcast.node.core.errors import NodeError, shortened
from stormcast.node.core.names import one_line

MAX_FILES: Final = 10_000
"""Files of one member: its incarnations have a log, and a journal of some hundred segments each."""
MAX_PATH: Final = 512
"""Bytes of a file's path in the tar."""
MAX_PARTS: Final = 8
_PLAIN: Final = "r:"
"""Mode of a tar that is not compressed: a few compressed bytes could become any number."""


class BadArchive(NodeError):
    """A tar that is refused; the text says why."""


def unpack_untrusted(data: bytes, place: Path) -> None:
    """Unpack the regular files of a tar under `place`; BadArchive if it is damaged, or holds more
    than files with plain paths. Not by `extractall`: the tar must not write outside of `place`, nor
    make links or devices, nor files with holes, whose size is whatever they claim."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode=_PLAIN) as tar:
            for number, entry in enumerate(tar, 1):
                if number > MAX_FILES:
                    raise BadArchive(f"there are more than {MAX_FILES} files")
                _unpack_entry(tar, entry, place, len(data))
    except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError) as error:
        # tarfile converts some fields without checking them, and follows long names by recursion.
        raise BadArchive(f"the tar is damaged: {one_line(error)}") from None


def _unpack_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo, place: Path, most: int) -> None:
    what = repr(shortened(entry.name))
    path = _checked_path(entry.name)
    if not entry.isreg() or entry.issparse():
        raise BadArchive(f"{what} is no plain file")
    if not 0 <= entry.size <= most:
        raise BadArchive(f"{what} claims {entry.size} bytes, and the whole tar has {most}")
    file = tar.extractfile(entry)
    assert file is not None, "it is a regular file"
    made = place / path
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(file.read())


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
