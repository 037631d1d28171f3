"""Views that a scenario hands to members, past the membership protocol."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from stormcast.chaos import faults
from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.session.effects import Effects
from stormcast.chaos.session.mailbox import Mailbox
from stormcast.chaos.session.roster import Roster


class ManualViews:
    """Makes views and hands them to members."""

    def __init__(self, roster: Roster, mailbox: Mailbox, effects: Effects) -> None:
        self._roster = roster
        self._mailbox = mailbox
        self._effects = effects
        self._made = 0

    def install(self, fault: str, action: faults.InstallView) -> None:
        """Hand one view to all that are to have it."""
        roster = self._roster
        people = [roster.person(name) for name in action.members]
        there = [person for person in people if person is not None]
        if not there:
            return
        living = roster.living()
        told = [name for name in action.at_members if name in living]
        self._made += 1
        view: dict[str, Any] = {"number": self._made, "creator": there[0], "members": there}
        if roster.has_group:
            made = self._id_of_view(told)
            if made is None:
                # Nobody can have made it yet.
                for name in [name for name in told if name in roster.paused][:1]:
                    self._mailbox.tell(name, partial(self.install, fault, action))
                return
            view |= made
        for name in told:
            self._mailbox.tell(name, partial(self._hand_in, fault, name, view))

    def _id_of_view(self, told: list[str]) -> dict[str, Any] | None:
        """As if one of those that are told had made it: later than all views, under an id that
        nobody else uses. Of one that has no view any more nobody knows which numbers it used, and
        one that is paused may make a view with this number before it learns of this one."""
        roster = self._roster
        views = {name: state["view"] for name, state in roster.states().items()}
        held = [each["number"] for each in views.values() if each]
        asked = [name for name in told if name in views]
        makers = [name for name in asked if views[name] or name not in roster.leaving]
        people = [person for person in map(roster.person, makers) if person is not None]
        return {"number": 1 + max(held, default=0), "creator": people[0]} if people else None

    def _hand_in(self, fault: str, name: str, view: Mapping[str, Any]) -> None:
        if self._roster.has_group and self._has_later_view(name, view["number"]):
            # It was paused, and has come to a view of its own.
            return
        try:
            answer = self._roster.ask(name, "POST", "/view", view)
        except MemberError:
            if self._roster.is_alive(name):
                raise
            return
        self._effects.bite(fault, int(answer["connections"] > 0))

    def _has_later_view(self, name: str, number: int) -> bool:
        state = self._roster.state(name)
        return bool(state and state["view"] and state["view"]["number"] >= number)
