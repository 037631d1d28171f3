"""Says of a member that is alone what may be wrong with how it was started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormcast.node.member.member import Member

WATCH_SECONDS: Final = 2.0


class Hints:
    """The lines that one member may say while it is alone."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def watch(self) -> None:
        """While the member is alone, say once whom it should have found: it may be a mistake in how
        it was started."""
        await asyncio.sleep(WATCH_SECONDS)
        line = self._hint_of_seeds() if self._is_alone() else ""
        if line:
            self._member.say(line)

    def _is_alone(self) -> bool:
        view = self._member.view
        return view is not None and len(view.members) == 1

    def _hint_of_seeds(self) -> str:
        finder = next(
            (c for _, c in self._member.settings.stack.layers if hasattr(c, "initial_hosts")), None
        )
        listed = finder.initial_hosts.split(",") if finder is not None else []
        me = self._member.me.where if self._member.me is not None else ""
        seeds = [seed for seed in map(str.strip, listed) if seed and seed != me]
        if not seeds:
            return ""
        return (
            f"is alone: nobody answers at {', '.join(seeds)}; if its group is there, see whether "
            "address, port and firewall are right"
        )
