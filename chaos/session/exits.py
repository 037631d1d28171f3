"""The ends of members' processes in the rig's trace: who ended when, how, and by whose order."""

from __future__ import annotations

from collections.abc import Mapping

from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import Backend, NotesExits
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.records.exits import MemberExit
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session.facts import name_of
from stormcast.chaos.session.roster import Roster


class Exits:
    """Notes each end once. A backend without processes has none."""

    def __init__(self, backend: Backend, roster: Roster) -> None:
        self._source = backend if isinstance(backend, NotesExits) else None
        self._roster = roster
        self._found: list[tuple[MemberExit, int | None]] = []
        """Each end, and the short id that the incarnation had told."""
        self._seen = 0

    def look(self, *, is_over: bool = False) -> None:
        """Note who has ended since the last look. Once the run is over the rig itself ends all
        members, and only who died before that is noted."""
        if self._source is None:
            return
        ends = self._source.exits()
        for end in ends[self._seen :]:
            if not (is_over and end.is_ordered):
                self._found.append((end, self._roster.shorts.get(end.name)))
        self._seen = len(ends)

    def write(self, rig: RigTrace, traces: Mapping[str, bytes]) -> None:
        """Write the ends that were noted since the last call, with the members they are about."""
        is_untold = any(short is None for _end, short in self._found)
        untold = self._untold(traces) if is_untold else {}
        for end, short in self._found:
            # One that died before it told its id left the only untold trace of its name, if any.
            mine = [one for one, name in untold.items() if name == end.name]
            only = mine[0] if len(mine) == 1 else None
            rig.exit(end, only if short is None else short)
        self._found.clear()

    def _untold(self, traces: Mapping[str, bytes]) -> dict[int, str]:
        """Return the names of incarnations that wrote traces and never told their ids."""
        evidence = Evidence.from_blocks(traces, xxh3_64_intdigest)
        return {
            member.short: name_of(member)
            for member in evidence.members.values()
            if member.short not in self._roster.names
        }
