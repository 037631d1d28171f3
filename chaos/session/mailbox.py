"""Requests for paused members: they are kept, and sent when the member goes on."""

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
        """Send a request to a member: now, or, if it is paused, when it goes on."""
        if name in self._roster.paused:
            self._waiting.setdefault(name, []).append(do)
        else:
            do()

    def tell_what_waited(self, name: str) -> None:
        """Send what waited for a member that has gone on."""
        for do in self._waiting.pop(name, ()):
            try:
                do()
            except MemberError:
                # A member that leaves as soon as it goes on need not answer.
                if name not in self._roster.leaving and self._roster.is_alive(name):
                    raise

    def discard(self, name: str) -> None:
        """Forget what waits for a member whose process ends."""
        self._waiting.pop(name, None)
