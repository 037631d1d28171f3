"""Lines for the person who runs a member, and what its application is told of lost messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stormcast.node.callbacks import Callback
from stormcast.node.core.model import Address
from stormcast.node.core.wire import GROUP
from stormcast.node.known_members import KnownMembers
from stormcast.node.protocols.port import Abandoned


class Notices:
    """Calls `on_notice` with lines, and `on_abandoned` with messages that were given up."""

    def __init__(
        self,
        name: str,
        on_notice: Callable[[str], None] | None,
        members: KnownMembers,
        complain: Callable[[BaseException], None],
    ) -> None:
        self.on_abandoned: Callback[[Address | None, int, str]] = Callback("on_abandoned", complain)
        self._on_notice: Callback[[str]] = Callback("on_notice", complain)
        self._on_notice.set(on_notice)
        self._name = name
        self._members = members
        self.say = self._on_notice.tell

    def warn(self, line: str) -> None:
        """Tell whoever listens to notices; the loop's exception handler, which logs, if nobody
        does."""
        if self._on_notice.call is not None:
            self.say(line)
        else:
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": f"{self._name}: {line}"})

    def tell_abandoned(self, lost: Abandoned) -> None:
        """Tell that messages were given up."""
        dest = self._members.of(lost.dest) if lost.dest != GROUP else None
        try:
            self.say(
                f"{lost.count} messages to {dest or 'the group'} were given up: {lost.why}; "
                "some may have arrived"
            )
        finally:
            # Whoever hears of it otherwise may exit the program, and go on with the member.
            self.on_abandoned.tell(dest, lost.count, lost.why)
