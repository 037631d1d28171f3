"""Keeps which view each member said it holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormcast.node.core.model import Address, ViewId
    from stormcast.node.protocols.port import Port

MAX_STRANGERS: Final = 1024
"""Strangers whose INFO is kept until the next check; the one that was heard first is forgotten for
another. Members of past views do not count: strangers must not push them out."""


class Heard:
    """The view ids that members said they hold: since the last check, and latest of all."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._held: dict[Address, ViewId] = {}
        """By member, the newest view id that it sent since the last check."""
        self._numbers: dict[Address, int] = {}
        """By member, the number of the INFO in which it last sent its view id."""
        self._latest: dict[Address, tuple[float, ViewId]] = {}
        """By member, when its last INFO came, and what that said. It outlives checks and views, as
        these may come more often than INFOs; of strangers, each check may add `MAX_STRANGERS`."""
        self._strangers: dict[Address, None] = {}
        """Members heard of that were in no view with this one; the latest last."""

    def note(self, sender: Address, view_id: ViewId, number: int, now: float) -> bool:
        """Note the view id that a member sent in its INFO of this number; return False if that was
        delayed on its way, or came before."""
        known = self._held.get(sender)
        if known is None and not self._port.contacts.trusts(sender):
            self._make_room_for(sender)
        is_news = known is None or (known, self._numbers[sender]) < (view_id, number)
        if is_news:
            self._held[sender] = view_id
            self._numbers[sender] = number
            self._latest[sender] = now, view_id
        return is_news

    def _make_room_for(self, stranger: Address) -> None:
        self._strangers[stranger] = None
        if len(self._strangers) > MAX_STRANGERS:
            first = next(iter(self._strangers))
            del self._strangers[first], self._held[first], self._numbers[first]
            self._latest.pop(first, None)
            self._port.drop("heard-full")

    def take(self, since: float) -> dict[Address, ViewId]:
        """Return the view ids that were heard since the last check, and forget those that are the
        latest of a member but were heard before `since`."""
        held = self._held
        self.forget()
        self._latest = {who: info for who, info in self._latest.items() if info[0] >= since}
        return held

    def latest(self) -> dict[Address, ViewId]:
        """Return by member the view id that it sent last."""
        return {member: view_id for member, (_at, view_id) in self._latest.items()}

    def forget_members(self, members: Iterable[Address]) -> None:
        """Forget what these members sent since the last check."""
        for member in members:
            self._held.pop(member, None)
            self._numbers.pop(member, None)
            self._strangers.pop(member, None)

    def forget(self) -> None:
        """Forget what was sent since the last check."""
        self._held = {}
        self._numbers = {}
        self._strangers = {}

    def clear(self) -> None:
        """Forget everything."""
        self.forget()
        self._latest = {}
