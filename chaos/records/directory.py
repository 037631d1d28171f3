"""The directories that runs are kept in: no two runs share one.

A run takes its directory before it starts: it makes a file there that only one process can make,
and a directory that holds anything is refused. Where no directory is named, the next free name is
used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from stormcast.node.core.errors import ConfigError

BEGUN: Final = "begun"
"""A file that is made when a directory is taken: it says when, and by which process."""
LATEST: Final = "latest"
"""A link beside run directories, to the one that was begun last."""


class TakenError(ConfigError):
    """A directory that is of another run, or holds something else; the text says what to do."""


def make_fresh(root: Path, name: str) -> Path:
    """Make a directory below `root`: NAME, or the first of NAME-2, NAME-3 … that is not there."""
    root.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        directory = root / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            # Of two runs that try the same name, only one can make the directory.
            directory.mkdir()
            break
    _point(root / LATEST, directory.name)
    return directory


@contextmanager
def taken(directory: Path) -> Iterator[Path]:
    """Take a directory for one run. If the run fails and leaves nothing, it is free again."""
    take(directory)
    try:
        yield directory
    except BaseException:
        give_back(directory)
        raise


def take(directory: Path) -> None:
    """Reserve a directory for one run; TakenError unless it is empty or not there."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise _taken(directory)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        # Of two processes that saw it empty, only one can make the file.
        file = (directory / BEGUN).open("x")
    except FileExistsError:
        raise _taken(directory) from None
    try:
        with file:
            file.write(f"{now}, process {os.getpid()}\n")
    except OSError as error:
        error.filename = str(directory)
        give_back(directory)
        raise


def give_back(directory: Path) -> None:
    """Remove what `take` made, where nothing else is in it but empty directories."""
    if any(path.is_file() and path != directory / BEGUN for path in directory.rglob("*")):
        return
    with suppress(OSError):
        # It may be a mount point, or another run may take it as soon as BEGUN is gone. So all else
        # goes before BEGUN: it would be of that run.
        for path in sorted(directory.rglob("*"), reverse=True):
            if path != directory / BEGUN:
                path.rmdir()
        (directory / BEGUN).unlink(missing_ok=True)
        directory.rmdir()
    link = directory.parent / LATEST
    if link.is_symlink() and link.readlink() == Path(directory.name):
        link.unlink()
        with suppress(OSError):
            # The parent, too, was made for this run, unless other runs are in it.
            link.parent.rmdir()


def settled(directory: Path) -> Path:
    """Return a path that stays with what a path leads to now: a link in it, such as `latest`, may
    be moved."""
    here = directory.resolve()
    if here == Path(os.path.abspath(directory)):  # noqa: PTH100 links are what it is about
        return directory
    return here if directory.is_absolute() else Path(os.path.relpath(here))


def _taken(directory: Path) -> TakenError:
    return TakenError(
        f"{directory} is not empty, and a run directory is of one run: name another with --out, "
        "or remove it first"
    )


def _point(link: Path, target: str) -> None:
    """Make or move a link in one step, so that it leads somewhere at any time."""
    if link.exists() and not link.is_symlink():
        return  # Somebody's own directory has this name.
    # Nobody else has a run of this name, so nobody else makes this link.
    part = link.with_name(f".{link.name}-{target}")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)
