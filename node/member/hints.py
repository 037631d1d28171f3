"""Says of a member that is alone what may be wrong with how it was started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormcast.node.member.member import Member

WATCH_SECONDS: Final = 2.0
_STRANGERS: Final = ("stack.refused.cluster", "transport.refused_hello-cluster")
"""Counters of frames and connections of members with another cluster's name."""
_SEALED: Final = ("stack.refused.sealed", "transport.refused_sealed")
"""The same of members that have a key, counted by one that has none."""


class Hints:
    """The lines that one member may say while it is alone."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def watch(self) -> None:
        """While the member is alone, say once whom it should have found, and whether it hears
        members of another cluster. Either may be a mistake in how it was started."""
        hints = [self._hint_of_keys, self._hint_of_strangers, self._hint_of_seeds]
        while hints and self._is_alone():
            await asyncio.sleep(WATCH_SECONDS)
            for hint in list(hints):
                line = hint() if self._is_alone() else ""
                if line:
                    self._member.say(line)
                    hints.remove(hint)

    def _is_alone(self) -> bool:
        view = self._member.view
        return view is not None and len(view.members) == 1

    def _hint_of_keys(self) -> str:
        stats = self._member.channel.stats()
        if not any(stats.get(figure) for figure in _SEALED):
            return ""
        return (
            "is alone, and hears members that seal what they send; if it belongs to them, start "
            "it with their --key-file"
        )

    def _hint_of_strangers(self) -> str:
        stats = self._member.channel.stats()
        if not any(stats.get(figure) for figure in _STRANGERS):
            return ""
        return (
            f"is alone in cluster {self._member.settings.cluster}, and hears members of another "
            "one; if it belongs to them, start it with their --cluster"
        )

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
