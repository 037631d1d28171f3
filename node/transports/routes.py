"""The destinations of datagrams for the group and for everyone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stormcast.node.transports.interfaces import SocketAddress
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.peer_places import Places
from stormcast.node.transports.reach import Reach


class Routes:
    """Chooses one multicast for the members that hear it, and one datagram for each other."""

    def __init__(
        self,
        owner: TransportOwner,
        places: Places,
        group: SocketAddress | None,
        reach: Reach | None,
        counters: Counter[str],
    ) -> None:
        self._owner = owner
        self._places = places
        self._group = group
        self._reach = reach
        """Knows who hears the group; None: nobody needs to prove it, or there is no group."""
        self._counters = counters

    def to_group(self) -> list[SocketAddress]:
        """Return the destinations of a frame for the group."""
        group, reach = self._group, self._reach
        if group is not None and reach is None:
            return [group]
        dests = self._owner.destinations()
        if group is None or reach is None or not reach.reached:
            return self._to_each(dests)
        return [group, *self._to_each([one for one in dests if one not in reach.reached])]

    def _to_each(self, dests: Sequence[int]) -> list[SocketAddress]:
        found = []
        for dest in dests:
            at = self._places.at.get(dest)
            if at is None:
                self.miss(dest)
            else:
                found.append(at)
        return found

    def to_everyone(self, where: str) -> list[SocketAddress]:
        """Return the destinations of a frame that must reach other groups, too; without this
        member, which is at `where`."""
        told = self._places.of_everyone(self._owner.hosts())
        told.pop(self._places.resolve(where) or ("", 0), None)
        return [self._group, *told] if self._group is not None else list(told)

    def miss(self, dest: int) -> None:
        """Count a frame for a member whose place is not known, and ask for that place."""
        self._counters["unknown_address"] += 1
        self._owner.want_address(dest)
