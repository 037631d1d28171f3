"""Takes views from others: only newer ones, only from members, only with this member in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormcast.node.core.wire import Head
from stormcast.node.protocols.gms.messages import unpack_view_untrusted

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.merging import Merging
    from stormcast.node.protocols.gms.state import Membership


class Participant:
    """The part of membership that every member has, coordinator or not."""

    def __init__(self, state: Membership, merging: Merging) -> None:
        self._state = state
        self._merging = merging

    def on_view_untrusted(self, head: Head, body: bytes, now: float) -> None:
        """Take a VIEW. Regular views are taken from members of the current view only."""
        notice = unpack_view_untrusted(body)
        if notice.merged is not None:
            self._merging.on_view(head, notice, now)
        elif self._state.member(head.source) is None:
            self._state.port.drop("view-from-stranger")
        else:
            self._state.take_regular(notice.view, head)
