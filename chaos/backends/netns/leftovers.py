"""Finds, by their names, namespaces and mounts of runs whose process was killed; removes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stormcast.chaos.backends.netns import commands
from stormcast.chaos.backends.netns.names import RunId
from stormcast.chaos.backends.netns.network import namespaces, remove_spaces
from stormcast.chaos.backends.netns.running import Run, run_command

_MOUNTS = Path("/proc/self/mounts")


def _has_no_owner(run: RunId) -> bool:
    return not run.has_owner()


def leftovers(
    do: Run = run_command, is_left: Callable[[RunId], bool] = _has_no_owner
) -> tuple[list[str], list[Path]]:
    """Return the namespaces and mounted folders of all runs for which `is_left` is true: by
    default, of those whose process is gone."""

    def mine(name: str) -> bool:
        run = RunId.parse(name)
        return run is not None and is_left(run)

    mounts = [line.split()[:2] for line in _MOUNTS.read_text().splitlines()]
    folders = [_path(folder) for source, folder in mounts if mine(source)]
    return [space for space in namespaces(do) if mine(space)], folders


def clean(do: Run = run_command, is_left: Callable[[RunId], bool] = _has_no_owner) -> list[str]:
    """Remove the leftovers of killed runs, not those of living ones; returns their names."""
    spaces, folders = leftovers(do, is_left)
    remove_spaces(spaces, do)
    for folder in folders:
        command = commands.remove_disk(folder)
        do(command.argv, command.stdin)
    return [*spaces, *map(str, folders)]


def _path(word: str) -> Path:
    """Read a folder's path as the kernel writes it: with octal escapes, for instance of spaces."""
    return Path(word.encode().decode("unicode_escape"))
