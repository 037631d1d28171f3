"""The file with a member's keys, which is read again when it changes: members run meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stormcast.node.core.errors import ConfigError
from stormcast.node.keys.cluster_keys import ClusterKey, read_keys

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

    from stormcast.node.keys.seals import Seals

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the file."""

State = tuple[int, int, int, int, int]
"""Device, inode, size, and when bytes and attributes were changed: a mounted Secret is replaced,
other files are written, and one that others could read is given another mode or owner."""


class KeyFile:
    """Gives one member its seals, and new keys to them."""

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._keys: tuple[ClusterKey, ...] = ()
        self._state: State | None = None
        """Of the file from which the keys were read."""
        self._refused = ""
        """Why the file could not be read last, which was said."""
        self._seals: Seals | None = None
        self._timer: TimerHandle | None = None

    def read(self) -> None:
        """Read the keys; ConfigError if there are none."""
        self._state = self._look()
        self._keys = read_keys(self._path)

    def start(self, cluster: int, short: int, loop: AbstractEventLoop) -> Seals:
        """Return the seals of this incarnation, and look after the file from now on."""
        from stormcast.node.keys.seals import Seals  # noqa: PLC0415 only who has keys pays for it

        self._seals = Seals(self._keys, cluster, short)
        self._wait(loop)
        return self._seals

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def describe(self) -> str:
        """Return a line that names the keys by their ids."""
        first, *more = (key.name for key in self._keys)
        also = f", and opens what key {more[0]} sealed" if more else ""
        return f"seals with key {first}{also}"

    def _wait(self, loop: AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_SECONDS, self._look_again, loop)

    def _look_again(self, loop: AbstractEventLoop) -> None:
        state = self._look()
        if state == self._state:
            self._refused = ""
        else:
            self._change(state)
        self._wait(loop)

    def _look(self) -> State | None:
        try:
            found = Path(self._path).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _change(self, state: State | None) -> None:
        """Read the file, whose state is another one; a file that cannot be read is tried again."""
        try:
            keys = read_keys(self._path)
        except ConfigError as error:
            # Half a file, while it is written, or a mistake: what was read before is still right.
            if str(error) != self._refused:
                self._refused = str(error)
                self._say(f"{error}; the keys stay as they were")
            return
        self._state, self._refused = state, ""
        if keys == self._keys or self._seals is None:
            return
        self._keys = keys
        self._seals.set_keys(keys)
        self._say(self.describe())
