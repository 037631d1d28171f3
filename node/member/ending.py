"""How a member comes to its end: by a command, a signal, a second signal, or a bug."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

from stormcast.exits import Exit

SIGNALLED: Final = 128
"""Plus its number, as a shell reports a process that a signal has ended."""


class Ending:
    """What has told a member to end, and the exit code that follows from it."""

    def __init__(
        self, say: Callable[[str], None], tell_failure: Callable[[Exception], None]
    ) -> None:
        self.is_told = asyncio.Event()
        """Set when the member is to leave, or cannot go on."""
        self.crash: Exception | None = None
        """The bug after which the member cannot go on."""
        self._say = say
        self._tell_failure = tell_failure
        self._signals: list[int] = []
        self._leave: asyncio.Task[None] | None = None

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take signals, and exceptions that nobody awaits, from now on."""
        loop.set_exception_handler(self.on_failure)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.on_signal, number)

    def on_signal(self, number: int) -> None:
        """Have the member leave; at the second signal, end at once."""
        self._signals.append(number)
        name = signal.Signals(number).name
        if len(self._signals) == 1:
            self._say(f"{name}: it is to leave")
            self.is_told.set()
        else:
            self._say(f"{name} again: it ends at once")
            self.is_told.set()
            if self._leave is not None:
                self._leave.cancel()

    def on_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an exception that nobody awaits. After a bug the member ends: it must not go on
        with a stack that nothing drives."""
        error = context.get("exception")
        self._say(f"failed: {context.get('message')}")
        if not isinstance(error, Exception) or isinstance(error, OSError):
            return
        self._tell_failure(error)
        self.crash = error
        self.is_told.set()

    def cancel_when_told_again(self, leave: asyncio.Task[None]) -> None:
        """Cancel the task in which the member leaves at a second signal, which may have come."""
        self._leave = leave
        if self._is_told_twice:
            leave.cancel()

    def code(self, code: int) -> int:
        """Return the exit code: `code`, unless a bug or a second signal ended the member."""
        if self.crash is not None:
            return Exit.UNKNOWN
        return SIGNALLED + self._signals[-1] if self._is_told_twice else code

    @property
    def _is_told_twice(self) -> bool:
        """Whether a second signal has said that it is to end at once."""
        return len(self._signals) > 1
