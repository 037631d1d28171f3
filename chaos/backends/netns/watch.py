"""Finds times at which the machine itself stood still: a process that only looks at the clock.

Time bounds hold for members that run. A member that gets no processor, because the host paused the
whole machine or other processes starve the member, breaks such bounds without a fault of its own.
So a session notes such a time as a pause of every member.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns.process import Process, environment
from stormcast.chaos.backends.run_id import RunId
from stormcast.node.bound import bound_to_me

LATE_SECONDS: Final = 0.2
"""A look that comes this late was held up by more than one busy process."""
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
    """A process that looks at the clock fifty times a second."""

    def __init__(self, run: RunId, folder: Path) -> None:
        argv = bound_to_me((sys.executable, "-I", "-c", _PROGRAM))
        self._process = Process(argv, folder, "watch", environment({}, run))

    @property
    def pid(self) -> int:
        return self._process.pid

    def spans(self) -> list[tuple[float, float]]:
        """Return the spans (from, to) without a look, on the clock that all processes share.
        BackendError if the process has ended, or wrote anything else: then nobody knows of them."""
        if not self._process.is_alive:
            tail = self._process.tail()
            raise BackendError(f"the watch over the clock ended ({self._process.code})\n{tail}")
        return [_span(line) for line in self._process.log.read_bytes().splitlines()]

    def close(self) -> None:
        """End the process."""
        self._process.kill()


def _span(line: bytes) -> tuple[float, float]:
    try:
        start, end = map(float, line.split())
    except ValueError:
        raise BackendError(f"the watch over the clock wrote {line[:200]!r}") from None
    return start, end
