"""Finds what runs whose process was killed have left, and removes it: namespaces, mounts, processes
and temporary folders. They are recognised by the name of their run, which tells the process that
made them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.netns import commands
from stormcast.chaos.backends.netns.names import OF_RUN
from stormcast.chaos.backends.netns.network import namespaces, remove_spaces
from stormcast.chaos.backends.netns.process import kill_for_sure
from stormcast.chaos.backends.netns.running import Run, run_command
from stormcast.chaos.backends.run_id import RunId, start_of

_MOUNTS: Final = Path("/proc/self/mounts")
_LOOKS: Final = 5
"""A process that is killed may have started another one just before."""


@dataclass(frozen=True, slots=True)
class LeftProcess:
    """A process that a run started, and that outlived it."""

    pid: int
    started: int
    """In clock ticks since boot: the pid alone may be that of another process soon."""
    run: RunId

    def __str__(self) -> str:
        return f"process {self.pid} of {self.run}"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Namespaces, mounts, processes and folders that some runs left."""

    spaces: tuple[str, ...] = ()
    """The network namespaces."""
    mounts: tuple[Path, ...] = ()
    processes: tuple[LeftProcess, ...] = ()
    folders: tuple[Path, ...] = ()
    """Temporary folders; run directories are not among them."""

    def __len__(self) -> int:
        return len(self.names())

    def names(self) -> list[str]:
        """Return a line for each thing."""
        return [
            *map(str, self.processes),
            *self.spaces,
            *map(str, self.mounts),
            *map(str, self.folders),
        ]


def _has_no_owner(run: RunId) -> bool:
    return not run.has_owner()


def leftovers(do: Run = run_command, is_left: Callable[[RunId], bool] = _has_no_owner) -> Leftovers:
    """Return what is left of all runs for which `is_left` is true: by default, of those whose
    process is gone."""

    def mine(name: str) -> bool:
        run = RunId.parse(name)
        return run is not None and is_left(run)

    mounts = [line.split()[:2] for line in _MOUNTS.read_text().splitlines()]
    return Leftovers(
        spaces=tuple(space for space in namespaces(do) if mine(space)),
        mounts=tuple(_path(folder) for source, folder in mounts if mine(source)),
        processes=_processes(is_left),
        folders=tuple(sorted(path for path in _our_folders() if mine(path.name))),
    )


def clean(do: Run = run_command, is_left: Callable[[RunId], bool] = _has_no_owner) -> list[str]:
    """Remove the leftovers of killed runs, not those of living ones; returns their names."""
    found = leftovers(do, is_left)
    left = found.processes
    for _look in range(_LOOKS):
        for process in left:
            kill_for_sure(process.pid, process.started)
        left = _processes(is_left)
        if not left:
            break
    remove_spaces(found.spaces, do)
    for mount in found.mounts:
        command = commands.remove_disk(mount)
        do(command.argv, command.stdin)
    for folder in found.folders:
        shutil.rmtree(folder, ignore_errors=True)
    return found.names()


def _processes(is_left: Callable[[RunId], bool]) -> tuple[LeftProcess, ...]:
    """Return the processes that carry the name of such a run in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        # The start is read first: if the pid is another process's by then, so is the name, and
        # nobody of this start is killed.
        started = start_of(pid)
        run = _run_of(path)
        if started is not None and run is not None and is_left(run):
            found.append(LeftProcess(pid, started, run))
    return tuple(sorted(found, key=lambda one: one.pid))


def _run_of(path: Path) -> RunId | None:
    """Return the run that started a process; None: no run did, or the process has ended."""
    mark = f"{OF_RUN}=".encode()
    try:
        variables = (path / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(mark):
            return RunId.parse(variable.removeprefix(mark).decode(errors="replace"))
    return None


def _our_folders() -> list[Path]:
    """Return the folders of this user among the temporary ones: anybody may make folders there, of
    any name."""
    found = []
    for path in Path(tempfile.gettempdir()).glob("sc*"):
        try:
            is_ours = path.lstat().st_uid == os.geteuid()
        except OSError:
            continue
        if is_ours and path.is_dir() and not path.is_symlink():
            found.append(path)
    return found


def _path(word: str) -> Path:
    """Read a folder's path as the kernel writes it: with octal escapes, for instance of spaces."""
    return Path(word.encode().decode("unicode_escape"))
