"""One member process of a keeper: its log, its state and its signals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stormcast.node.bound import bound_to_me
from stormcast.node.core.errors import ConfigError

LOG: Final = "member.log"
LOG_BYTES: Final = 4 << 20
"""Bytes kept of one incarnation's log; what it writes beyond is only passed on."""
LOG_LINES: Final = 40
"""Lines of the log that `state` shows."""
_READ: Final = 64 << 10


@dataclass(slots=True)
class Incarnation:
    """One member process, from its start to its end and after it."""

    number: int
    popen: subprocess.Popen[bytes]
    folder: Path
    is_default: bool
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    logged: int = 0
    code: int | None = None
    """Its exit code, or minus the signal; None while it runs."""
    is_paused: bool = False
    is_told: bool = False
    """Whether it was told to end."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self) -> dict[str, Any]:
        """Return what is known of it, as JSON has it."""
        return {
            "alive": self.code is None,
            "paused": self.is_paused,
            "incarnation": self.number,
            "default": self.is_default,
            "code": self.code,
            "log": "\n".join(self.log),
        }

    def read_log(self, reading: int) -> None:
        """Pass on what it writes, and keep some of it."""
        try:
            data = os.read(reading, _READ)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(reading)
            os.close(reading)
            return
        with suppress(OSError):
            # The reader of stderr may be gone; the member goes on.
            os.write(2, data)
        self.log.extend(data.decode(errors="replace").splitlines())
        if self.logged < LOG_BYTES and self.folder.is_dir():
            self.logged += len(data)
            with (self.folder / LOG).open("ab") as log:
                log.write(data)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, unless it was reaped: until then no other has its pid."""
        if self.code is None:
            os.kill(self.popen.pid, number)


def spawn(
    number: int,
    words: Sequence[str],
    folder: Path,
    *,
    is_default: bool,
    place: Path,
    environ: Mapping[str, str],
) -> Incarnation:
    """Start a member process in `place`, whose log goes to `folder`, too."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        popen = subprocess.Popen(  # noqa: S603 our own words, and no shell
            bound_to_me(words),
            cwd=place,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
        )
    except OSError as error:
        os.close(reading)
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    finally:
        os.close(writing)
    member = Incarnation(number, popen, folder, is_default)
    asyncio.get_running_loop().add_reader(reading, member.read_log, reading)
    return member
