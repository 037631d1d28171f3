"""Makes a member wait before it leaves, until all accepted messages have left, and the members that
are there have confirmed them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.stack.group import Group
    from stormcast.node.stack.outbox import Outbox

CONFIRM_SECONDS: Final = 4.0
"""Seconds after which a member of a group gives up, if nothing left and nothing was confirmed."""
LOOK_SECONDS: Final = 0.005
"""Seconds between two looks whether all is confirmed."""


class BeforeLeaving:
    """Lets a member begin to leave when nothing that it sent is open any more.

    In a group it gives up when nothing moved for CONFIRM_SECONDS: a member may be stalled. Messages
    left over are then reported as given up. Without a group the wait has no end, unless the caller
    that ordered to leave stops it.
    """

    def __init__(self, outbox: Outbox, unicast: Unicast, group: Group | None) -> None:
        self.look_at = inf
        """When to look again; `inf` where nothing waits."""
        self.is_over = False
        self._outbox = outbox
        self._unicast = unicast
        self._group = group
        self._at = (-1, -1)
        """At the last look: the number of open messages, and the sum of the confirmed seqnos."""
        self._moved_at = 0.0

    @property
    def has_left(self) -> bool:
        """Whether this member has left its group; without one, whether it may end."""
        return self.is_over if self._group is None else self._group.has_left

    def start(self, now: float) -> None:
        """Begin to wait, unless that has begun already."""
        if self.look_at == inf and not self.is_over:
            self.look(now)

    def look(self, now: float) -> None:
        """Begin to leave if nothing is open, or nothing moves; else look again soon."""
        at, group = self._measure(), self._group
        if at != self._at:
            self._at, self._moved_at = at, now
        is_open = at[0] > 0
        if not is_open or (group is not None and now > self._moved_at + CONFIRM_SECONDS):
            self.stop()
            self.is_over = True
            if group is not None:
                group.leave(now)
            return
        if group is not None and group.stable is not None and not self._outbox.has_backlog:
            # Members say soon what they have.
            group.stable.hurry(now)
        self.look_at = now + LOOK_SECONDS

    def stop(self) -> None:
        """Look no more."""
        self.look_at = inf

    def _measure(self) -> tuple[int, int]:
        """Count messages that wait to leave, or that members which are there are not known to have;
        and add up the seqnos that are confirmed."""
        multicast = self._group.multicast if self._group is not None else None
        windows = [
            one.window
            for peer, one in self._unicast.send_connections().items()
            if multicast is None or peer in multicast.members
        ]
        if multicast is not None:
            windows.append(multicast.own)
        waiting = sum(map(len, self._outbox.lanes.values()))
        return waiting + sum(map(len, windows)), sum(window.low for window in windows)
