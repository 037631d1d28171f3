"""Views that a scenario hands to members, in place of those of the membership protocol."""

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

    def install(self, fault: str, action: faults.InstallView) -> bool:
        """Make one view, and hand it to each member that the action names and that lives, a paused
        one when it goes on; returns whether there is any."""
        roster = self._roster
        people = [roster.person(name) for name in action.members]
        there = [person for person in people if person is not None]
        if not there:
            return False
        living = roster.living()
        # Who has not said yet who it is would be told of a view without itself.
        known = {person["name"] for person in there}
        told = [name for name in action.at_members if name in living and name in known]
        self._made += 1
        view: dict[str, Any] = {"number": self._made, "creator": there[0], "members": there}
        if roster.has_group:
            made = self._id_of_view(told)
            if made is None:
                # No member can be its creator yet: try again when a paused one goes on.
                waiting = [name for name in told if name in roster.paused][:1]
                for name in waiting:
                    self._mailbox.tell(name, partial(self.install, fault, action))
                return bool(waiting)
            view |= made
        for name in told:
            self._mailbox.tell(name, partial(self._hand_in, fault, name, view))
        return bool(told)

    def _id_of_view(self, told: list[str]) -> dict[str, Any] | None:
        """Return number and creator of a view as if one of the told members had made it: later than
        all views, under an id that nobody else uses; None if no member can be the creator. A
        leaving member without a view cannot, since nobody knows which numbers it used; nor can a
        paused one, which may make a view of this number before it learns of this view."""
        roster = self._roster
        views = {name: state["view"] for name, state in roster.states().items()}
        held = [each["number"] for each in views.values() if each]
        asked = [name for name in told if name in views]
        makers = [name for name in asked if views[name] or name not in roster.leaving]
        people = [person for person in map(roster.person, makers) if person is not None]
        return {"number": 1 + max(held, default=0), "creator": people[0]} if people else None

    def _hand_in(self, fault: str, name: str, view: Mapping[str, Any]) -> None:
        if self._roster.has_group and self._has_later_view(name, view["number"]):
            # The member was paused, and has come to a later view by itself.
            return
        try:
            answer = self._roster.ask(name, "POST", "/view", view)
        except MemberError:
            if self._roster.is_alive(name):
                raise
            return
        # Without a group a view matters only to connections.
        has_effect = self._roster.has_group or answer["connections"] > 0
        self._effects.bite(fault, int(has_effect))

    def _has_later_view(self, name: str, number: int) -> bool:
        state = self._roster.state(name)
        return bool(state and state["view"] and state["view"]["number"] >= number)
