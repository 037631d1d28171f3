"""What the application gets of a member's turns, in order: messages, views, and notices.

Where a callback exits the program, what was taken from the stack for the application is kept, and
comes first in the next turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stormcast.node.core.model import Delivery, View
from stormcast.node.protocols.port import Abandoned


class Application:
    """Hands messages over, and tells of each view before the first message of who is new in it."""

    def __init__(self) -> None:
        self.on_deliveries: Callable[[list[Delivery]], None] = ignore
        self.on_view: Callable[[View], None] = ignore
        self.on_left: Callable[..., None] = ignore
        self.on_abandoned: Callable[[Abandoned], None] = ignore
        self.unhanded: list[Delivery] = []
        """Deliveries that were taken from the stack by a turn that failed, and not handed over."""
        self._view: View | None = None
        """The last view of which the application was told."""
        self._told = 0
        """Of the stack's views: how many the application was told of before they are news."""
        self._has_left = False

    # -- Messages --------------------------------------------------------------------------------

    def take_unhanded(self, arrived: list[Delivery]) -> list[Delivery]:
        """Return what is to be handed over: first what a turn that failed has left."""
        deliveries, self.unhanded = self.unhanded + arrived, []
        return deliveries

    def hand_over(self, deliveries: list[Delivery], views: list[View]) -> None:
        """Hand over deliveries, and tell of each view before the first message of who is new in it.
        Views without such a message are told of when frames have left."""
        start = 0
        try:
            first_views = _first_views(views, self._view, self._told)
            for at, delivery in enumerate(deliveries):
                until = first_views.get(delivery.source, 0)
                if until > self._told:
                    part, start = deliveries[start:at], at
                    if part:
                        self.on_deliveries(part)
                    self._tell_views(views, until)
            part, start = deliveries[start:], len(deliveries)
            self.on_deliveries(part)
        except BaseException:
            # The receiver keeps what it did not come to of the part that it was given.
            self.unhanded = deliveries[start:]
            raise

    def hand_over_last(
        self, take: Callable[[], list[Delivery]], views: list[View]
    ) -> list[BaseException]:
        """Hand over what is left; return what failed. A receive window that ends hands up the
        messages that waited in it: they were acked."""
        failures: list[BaseException] = []
        deliveries = self.take_unhanded(take())
        # With each failure a message or a view is past, at least.
        tries = len(deliveries) + len(views)
        while deliveries and len(failures) < tries:
            try:
                self.hand_over(deliveries, views)
            except BaseException as failure:  # noqa: BLE001 it is raised when all is done
                failures.append(failure)
            deliveries = self.take_unhanded(take())
        return failures

    # -- News ------------------------------------------------------------------------------------

    def view_steps(self, views: list[View]) -> list[Callable[[], None]]:
        """Return a step for each view that is news, unless it was told of before a message."""
        untold, self._told = views[self._told :], 0
        return [partial(self._tell_view, view) for view in untold]

    def abandoned_steps(self, abandoned: list[Abandoned]) -> list[Callable[[], None]]:
        """Return a step for each notice of messages given up."""
        return [partial(self._tell_abandoned, one) for one in abandoned]

    def tell_left(self) -> None:
        """Tell it, once, that this member has left."""
        if not self._has_left:
            self._has_left = True
            self.on_left()

    def _tell_views(self, views: list[View], until: int) -> None:
        """Tell of the first `until` views, except those that it was told of."""
        for view in views[self._told : until]:
            self._told += 1
            self._tell_view(view)

    def _tell_view(self, view: View) -> None:
        self._view = view
        self.on_view(view)

    def _tell_abandoned(self, one: Abandoned) -> None:
        self.on_abandoned(one)


def _first_views(views: list[View], before: View | None, told: int) -> dict[int, int]:
    """Return, by short id of who is new, the number of the first view with it; views are counted
    from 1, and the first `told` of them are past."""
    first: dict[int, int] = {}
    known = {member.short for member in before.members} if before is not None else set()
    for number, view in enumerate(views[told:], told + 1):
        members = {member.short for member in view.members}
        for short in members - known:
            first.setdefault(short, number)
        known = members
    return first


def ignore(*_what: object) -> None:
    """Do nothing: for an event to which nobody listens."""
