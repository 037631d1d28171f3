"""Pauses of a member's process, none of which outlasts its lease."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from stormcast.node.keeper.incarnation import Incarnation


class Pauses:
    """Stops and resumes one member at a time."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.lapses = 0
        """The number of pauses that ended because they were not renewed in time."""
        self._say = say
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, member: Incarnation, lease: float) -> bool:
        """Stop a member's process for no longer than the lease; return whether it ran until now."""
        was_running = not member.is_paused
        member.signal(signal.SIGSTOP)
        member.is_paused = True
        self.renew(member, lease)
        return was_running

    def renew(self, member: Incarnation | None, lease: float) -> None:
        """Let a pause last `lease` seconds from now; do nothing if the member is not paused."""
        self._cancel_timer()
        if member is not None and member.is_paused and member.code is None:
            self._timer = asyncio.get_running_loop().call_later(lease, self._lapse, member)

    def end(self, member: Incarnation | None) -> None:
        """Resume a paused member."""
        self._cancel_timer()
        if member is not None and member.is_paused:
            member.is_paused = False
            member.signal(signal.SIGCONT)

    def _lapse(self, member: Incarnation) -> None:
        if not member.is_paused:
            # It has ended meanwhile.
            return
        self.lapses += 1
        self._say("nobody renewed the pause: the member goes on")
        self.end(member)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
