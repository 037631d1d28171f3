"""Which run has a keeper, for as long as the run claims it again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stormcast.node.keeper.busy import BusyError


class Claim:
    """Reserves the keeper for one run at a time."""

    def __init__(self, say: Callable[[str], None], on_lapse: Callable[[], None]) -> None:
        self.run = ""
        """The run that has the keeper; empty: none."""
        self._say = say
        self._on_lapse = on_lapse
        """Is called when the run has not claimed the keeper again in time; it has it still."""
        self._timer: asyncio.TimerHandle | None = None

    def take(self, run: str, lease: float) -> bool:
        """Reserve the keeper for one run, for `lease` seconds; the run claims it again to keep it.
        Return whether no run had it: a run that claims it again learns so that it had lost it."""
        if self.run not in ("", run):
            raise BusyError(f"run {self.run} has this member; wait for its end, or end it")
        is_fresh = not self.run
        if is_fresh:
            self._say(f"run {run} has the member now")
        self.run = run
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(lease, self._on_lapse)
        return is_fresh

    def release(self, run: str) -> bool:
        """End a run's claim; return False if the run does not have the keeper."""
        if run != self.run:
            return False
        self.run = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return True
