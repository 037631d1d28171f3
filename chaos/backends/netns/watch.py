"""Whether the machine itself stood still: a process that does nothing but look at the clock.

Bounds of time say what a member does that runs. One that gets no processor, because its host
paused the whole machine or others starve it, breaks them without having done anything wrong; so
a session notes such a time as what it is, a pause of every member.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.netns.commands import bound_to_me
from stormcast.chaos.backends.netns.process import Process, environment

LATE_SECONDS: Final = 0.2
"""A look that comes so late was not held up by one busy neighbour."""
_PROGRAM: Final = f"""
import time
last = time.monotonic()
while True:
    time.sleep(0.02)
    now = time.monotonic()
    if now - last > {LATE_SECONDS}:
        print(last, now, flush=True)
    last = now
"""


class Watch:
    """A process that is to have a turn fifty times a second."""

    def __init__(self, folder: Path) -> None:
        argv = bound_to_me((sys.executable, "-I", "-c", _PROGRAM))
        self._process = Process(argv, folder, "watch", environment({}))

    @property
    def pid(self) -> int:
        return self._process.pid

    def spans(self) -> list[tuple[float, float]]:
        """When it had none: from and to, on the clock of everyone."""
        lines = self._process.log.read_text().splitlines()
        times = [tuple(map(float, line.split())) for line in lines]
        return [(start, end) for start, end in times]

    def close(self) -> None:
        """Look no more."""
        self._process.kill()
