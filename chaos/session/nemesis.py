"""Carries out the steps of the schedule over the verbs of any backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stormcast.chaos import faults
from stormcast.chaos.backends.base import Backend
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.language.roles import Roles
from stormcast.chaos.language.schedule import End, TimedStep
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session.effects import ONCE, Effects
from stormcast.chaos.session.mailbox import Mailbox
from stormcast.chaos.session.manual_views import ManualViews
from stormcast.chaos.session.member_faults import MemberFaults
from stormcast.chaos.session.member_rules import MemberRules
from stormcast.chaos.session.roster import Roster
from stormcast.chaos.session.traffic import Traffic


class Nemesis:
    """Keeps the state of the network, and hands each step to the object that does its kind."""

    def __init__(
        self,
        backend: Backend,
        roster: Roster,
        traffic: Traffic,
        rig: RigTrace,
        state: NetworkState,
        *,
        in_members: bool,
    ) -> None:
        self.state = state
        """The state of the network now."""
        self.effects = Effects(backend.now)
        self._mailbox = mailbox = Mailbox(roster)
        self.member_rules = MemberRules(roster, mailbox, self.effects)
        self._members = MemberFaults(
            backend, roster, traffic, rig, self.member_rules, mailbox, self.effects
        )
        self._views = ManualViews(roster, mailbox, self.effects)
        self._roles = Roles(roster.members, roster.coordinator, roster.participant, roster.dead)
        self._backend = backend
        self.rig = rig
        self._in_members = in_members
        """Whether rules are done inside of members."""
        self._is_gathering = self._is_changed = False
        self._over: list[str] = []
        """Faults that end with the next change of the network."""

    def do_all(self, steps: Iterable[TimedStep]) -> None:
        """Do steps that are due; their changes of the network are applied in one go."""
        self._is_gathering = True
        try:
            for step in steps:
                self.do(step)
        finally:
            self._is_gathering = False
            self._apply()

    def do(self, step: TimedStep) -> None:
        """Do one step of the schedule."""
        action = step.action
        if not isinstance(action, faults.NetworkFault | faults.Heal | End):
            self._apply()
        if isinstance(action, End):
            self._end(action.fault)
        elif isinstance(action, faults.Heal):
            self._heal(action.name)
        elif isinstance(action, faults.Release):
            self._backend.release(action.name)
        elif isinstance(action, faults.NetworkFault):
            self._begin(step, action)
        elif isinstance(action, faults.InstallView):
            at = self._now()
            self.rig.kinds.setdefault(step.fault, step.do)
            if self._views.install(step.fault, action):
                self.rig.begin(at, step)
        elif isinstance(action, faults.ChangeKeys):
            self.rig.begin(self._now(), step)
            self._backend.change_keys(action.step)
            self.effects.bite(step.fault)
        else:
            assert not isinstance(action, faults.Churn)
            name = self._roles.name_of(step.fault, action)
            if not isinstance(action, faults.Resume | faults.Consume):
                # Also where nobody has the role: the fault is then one that did not bite.
                self.rig.kinds.setdefault(step.fault, step.do)
            if name is not None:
                self._members.do(step, name)

    def look_after(self, ready: Iterable[str]) -> None:
        """Give members that are ready by now what waited for them, and start those again that have
        left by now."""
        self.member_rules.look_after()
        for name in ready:
            self._mailbox.tell_what_waited(name)
        self._members.start_those_that_left()

    def awaited(self) -> frozenset[str]:
        """Return the members that are started as soon as they have left."""
        return self._members.awaited()

    def bites(self) -> dict[str, int]:
        """Return how often each fault has bitten so far."""
        found = dict.fromkeys(self.rig.kinds, 0)
        for fault, pairs in self._backend.bites().items():
            if fault in found:
                found[fault] = sum(pairs.values())
        for counted in (self.effects.bites, self.member_rules.bites()):
            for fault, number in counted.items():
                found[fault] = found.get(fault, 0) + number
        for fault in self._members.held_by():
            # A pause or stall that lasts counts once: nobody will see how much it holds.
            found[fault] = found.get(fault, 0) + ONCE
        return found

    def heal_all(self) -> None:
        """End all faults, pauses and stalls, also where a run is ended early."""
        self._heal(None)
        self._backend.clear()
        self._members.end_all()

    def _now(self) -> float:
        return self._backend.now()

    def _begin(self, step: TimedStep, action: faults.NetworkFault) -> None:
        if step.fault in self._over:
            # Where steps are late, it would go on without a pause, and its counts with it.
            self._apply()
        self.rig.begin(self._now(), step)
        if self._in_members and isinstance(action, faults.Rule):
            self.member_rules.begin(step.fault, action)
            return
        self._set({**self.state.faults, step.fault: self._roles.aimed(action)})

    def _set(self, active: dict[str, faults.NetworkFault]) -> None:
        self.state = replace(self.state, faults=active)
        self._is_changed = True
        if not self._is_gathering:
            self._apply()

    def _apply(self) -> None:
        """Apply the state of the network, and note the faults that ended with that."""
        if self._is_changed:
            self._is_changed = False
            self._backend.apply(self.state)
        over, self._over = self._over, []
        for fault in over:
            self.rig.end(self._now(), fault)

    def _end(self, fault: str) -> None:
        if fault in self.state.faults:
            # The time that healing itself takes counts as time until all is well again.
            self.effects.heal()
            self._over.append(fault)
            self._set({key: one for key, one in self.state.faults.items() if key != fault})
            return
        if fault in self.member_rules:
            self.member_rules.end(fault)
        if not self._members.end(fault):
            self.rig.end(self._now(), fault)

    def _heal(self, name: str | None) -> None:
        if name is not None:
            self._end(name)
            return
        if self.state.faults:
            # All faults end at once: no member sees only some of them gone.
            self.effects.heal()
            self._over += self.state.faults
            self._set({})
        for fault in self.member_rules.active():
            self.member_rules.end(fault)
            self.rig.end(self._now(), fault)
