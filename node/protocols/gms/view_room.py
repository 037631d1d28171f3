"""Says whether a view has room for joiners."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from stormcast.node.core.packing import MAX_MEMBERS
from stormcast.node.protocols.gms.messages import room_for_members, size_in_view

if TYPE_CHECKING:
    from stormcast.node.core.model import Address, View


class ViewRoom:
    """The room of views, each of which travels in one frame."""

    def __init__(self, largest_body: int) -> None:
        self._room = room_for_members(largest_body)
        """Bytes that the members of a view may take."""
        self._sized: View | None = None
        self._size = 0
        """The bytes that the members of `_sized` take."""

    def shortage(self, view: View, joiners: Collection[Address]) -> str:
        """Return why these joiners do not all fit the view; empty if they do. A view that nobody
        takes, or that no frame can carry, would end the group's views for good."""
        if len(view.members) + len(joiners) > MAX_MEMBERS:
            return f"a view has at most {MAX_MEMBERS} members"
        if view is not self._sized:
            self._sized, self._size = view, sum(map(size_in_view, view.members))
        if self._size + sum(map(size_in_view, joiners)) > self._room:
            return f"no frame carries a view of more than {len(view.members)} members"
        return ""
