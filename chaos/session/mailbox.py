"""Requests for members that cannot answer now: they are kept, and sent when the member can."""

from __future__ import annotations

from collections.abc import Callable

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.session.roster import Roster


class Mailbox:
    """Requests that wait, by member."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._waiting: dict[str, list[Callable[[], object]]] = {}

    def tell(self, name: str, do: Callable[[], object]) -> None:
        """Send a request to a member: now, or, if it is paused, when it goes on, or, if it cannot
        be asked because it starts, when it is ready."""
        if name in self._roster.paused or name in self._waiting:
            self._keep(name, do)
        else:
            self._send(name, do)

    def tell_what_waited(self, name: str) -> None:
        """Send what waited for a member that has gone on, or is ready."""
        if name in self._roster.paused:
            return
        for do in self._waiting.pop(name, ()):
            self._send(name, do)

    def _send(self, name: str, do: Callable[[], object]) -> None:
        roster = self._roster
        try:
            do()
        except MemberError:
            if name in roster.joining and roster.is_alive(name):
                self._keep(name, do)
            elif name not in roster.leaving and roster.is_alive(name):
                # A member that leaves need not answer.
                raise

    def _keep(self, name: str, do: Callable[[], object]) -> None:
        self._waiting.setdefault(name, []).append(do)

    def discard(self, name: str) -> None:
        """Forget what waits for a member whose process ends."""
        self._waiting.pop(name, None)
