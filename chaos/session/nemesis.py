"""Steps of the schedule, carried out over the verbs of any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from stormcast.chaos import faults
from stormcast.chaos.backends.base import Backend, MemberError
from stormcast.chaos.faults import Names
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.language.roles import Roles
from stormcast.chaos.language.schedule import End, TimedStep
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session.plans import probe_in_member
from stormcast.chaos.session.roster import Roster
from stormcast.chaos.session.traffic import Traffic

ONCE: Final = 1
"""What is done to a member that runs has an effect, and just this one."""


Command = faults.SetAttribute | faults.Forget | faults.Close
"""What a member itself is told to do."""


@dataclass(slots=True)
class InMembers:
    """A rule that acts inside of members."""

    rule: faults.Rule
    dests: Names
    there: set[str] = field(default_factory=set)
    """Those whose running process has it, or gets it when it goes on."""
    struck: dict[str, int] = field(default_factory=dict)
    """How often it had an effect in each."""

    @property
    def kind(self) -> str:
        """The test protocol that does it."""
        (kind,) = probe_in_member(self.rule)
        return kind


class Nemesis:
    """Holds what is wrong at the moment, and has the backend make it so."""

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
        """What the network is like now."""
        self.last_heal: float | None = None
        """When the last fault ended that kept members from each other, or a member came back."""
        self.in_members: set[str] = set()
        """Rules that were done inside members."""
        self._backend = backend
        self._roster = roster
        self._traffic = traffic
        self._rig = rig
        self._in_members = in_members
        """Whether rules are done inside of members."""
        self._bites: dict[str, int] = {}
        """Of what was done to members."""
        self._held: dict[tuple[str, str], str] = {}
        """Pauses and stalls, by what they are and whom they hold: the fault."""
        self._mail: dict[str, list[Callable[[], object]]] = {}
        """What members that are paused are told when they go on."""
        self._roles = Roles(roster.members, roster.coordinator, roster.participant)
        self._probes: dict[str, InMembers] = {}
        self._views = 0
        self._is_gathering = self._is_changed = False
        self._over: list[str] = []
        """Faults that end with the next change of the network."""

    # -- Steps -----------------------------------------------------------------------------------

    def do_all(self, steps: Iterable[TimedStep]) -> None:
        """Do steps that are due: what they make of the network together is made in one go."""
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
            self._rig.begin(self._now(), step)
            self._install_view(step.fault, action)
        else:
            assert not isinstance(action, faults.Churn)
            name = self._roles.name_of(step.fault, action)
            if name is not None:
                self._command(step, name)

    def bites(self) -> dict[str, int]:
        """How often each fault had an effect so far."""
        found = dict.fromkeys(self._rig.kinds, 0)
        for fault, pairs in self._backend.bites().items():
            if fault in found:
                found[fault] = sum(pairs.values())
        for fault, number in self._bites.items():
            found[fault] = found.get(fault, 0) + number
        for fault, probe in self._probes.items():
            found[fault] = found.get(fault, 0) + sum(probe.struck.values())
        for fault in self._held.values():
            # How much it holds nobody will see.
            found[fault] = found.get(fault, 0) + ONCE
        return found

    def heal_all(self) -> None:
        """Let nothing act any more, and everybody go on: a run that is ended early ends well."""
        self._heal(None)
        self._backend.clear()
        for what, name in list(self._held):
            self._undo(what, name)

    def came_back(self, name: str) -> None:
        """A member started anew: what acts inside of members acts in it, too."""
        for probe in self._probes.values():
            if name in probe.dests:
                self._put_probe(name, probe)

    def count_in_members(self) -> None:
        """Ask members how often what acts inside of them had an effect."""
        for fault in self._probes:
            self._count_probe(fault)

    def _now(self) -> float:
        return self._backend.now()

    # -- The network -----------------------------------------------------------------------------

    def _begin(self, step: TimedStep, action: faults.NetworkFault) -> None:
        self._rig.begin(self._now(), step)
        if self._in_members and isinstance(action, faults.Rule):
            self._begin_in_members(step.fault, action)
            return
        self._set({**self.state.faults, step.fault: self._roles.aimed(action)})

    def _set(self, active: dict[str, faults.NetworkFault]) -> None:
        self.state = replace(self.state, faults=active)
        self._is_changed = True
        if not self._is_gathering:
            self._apply()

    def _apply(self) -> None:
        """Make the network so; what ended by that has ended now."""
        if self._is_changed:
            self._is_changed = False
            self._backend.apply(self.state)
        over, self._over = self._over, []
        for fault in over:
            self._rig.end(self._now(), fault)

    def _end(self, fault: str) -> None:
        if fault in self.state.faults:
            # What it takes to heal is part of what it takes to be well again.
            self.last_heal = self._now()
            self._over.append(fault)
            self._set({key: one for key, one in self.state.faults.items() if key != fault})
            return
        if fault in self._probes:
            self._end_in_members(fault)
        for (what, name), by in list(self._held.items()):
            if by == fault:
                self._undo(what, name)
                return
        self._rig.end(self._now(), fault)

    def _heal(self, name: str | None) -> None:
        if name is not None:
            self._end(name)
            return
        if self.state.faults:
            # All at once: nobody sees some of it gone and some not.
            self.last_heal = self._now()
            self._over += self.state.faults
            self._set({})
        for fault in list(self._probes):
            self._end_in_members(fault)
            self._rig.end(self._now(), fault)

    # -- Rules inside members --------------------------------------------------------------------

    def _begin_in_members(self, fault: str, rule: faults.Rule) -> None:
        self.in_members.add(fault)
        probe = self._probes[fault] = InMembers(rule, rule.match.dests or self._roster.members)
        for name in probe.dests:
            self._put_probe(name, probe)

    def _put_probe(self, name: str, probe: InMembers) -> None:
        roster = self._roster
        if roster.is_alive(name) and name not in roster.joining:
            probe.there.add(name)
            words = probe_in_member(probe.rule)
            self._tell(name, partial(roster.ask, name, "POST", "/probes", words))

    def _count_probe(self, fault: str) -> None:
        probe = self._probes[fault]
        for name in probe.there.intersection(self._roster.answering()):
            listed = self._roster.ask(name, "GET", "/probes")
            probe.struck[name] = sum(one["struck"] for one in listed if one["name"] == probe.kind)

    def _end_in_members(self, fault: str) -> None:
        self._count_probe(fault)
        probe = self._probes.pop(fault)
        self._bite(fault, sum(probe.struck.values()))
        for name in sorted(probe.there.intersection(self._roster.living())):
            words = {probe.kind: None}
            self._tell(name, partial(self._roster.ask, name, "POST", "/probes", words))
        self.last_heal = self._now()

    # -- Members ---------------------------------------------------------------------------------

    def _command(self, step: TimedStep, name: str) -> None:
        action = step.action
        if isinstance(action, faults.Resume):
            self._undo("pause", name)
        elif isinstance(action, faults.Consume):
            self._undo("stall", name)
        elif isinstance(action, faults.Restart | faults.Join):
            self._start(step, name)
        elif isinstance(action, Command) and self._roster.is_alive(name):
            self._rig.kinds.setdefault(step.fault, step.do)
            self._tell(name, partial(self._command_now, step, action, name))
        else:
            self._rig.begin(self._now(), step, self._roster.short(name))
            if self._roster.is_alive(name):
                self._strike(step, name)

    def _start(self, step: TimedStep, name: str) -> None:
        """Bring a member up; a restart ends the incarnation that may still run."""
        roster = self._roster
        if isinstance(step.action, faults.Join) and roster.is_alive(name):
            return
        self._traffic.note_end(name)
        self._rig.begin(self._now(), step, roster.shorts.get(name))
        self._bite(step.fault, ONCE)
        self._forget_process(name)
        self.last_heal = self._now()
        roster.start(name)

    def _strike(self, step: TimedStep, name: str) -> None:
        action, roster = step.action, self._roster
        if isinstance(action, faults.Crash):
            self._traffic.note_end(name)
            self._forget_process(name)
            roster.kill(name)
        elif isinstance(action, faults.Leave):
            self._traffic.note_end(name)
            roster.leaving.add(name)
            self._backend.stop(name)
        elif isinstance(action, faults.Pause):
            self._held["pause", name] = step.fault
            roster.paused.add(name)
            self._backend.pause(name)
            return
        elif isinstance(action, faults.Stall):
            self._held["stall", name] = step.fault
            self._tell(name, partial(self._have_consumed, name, consuming=False))
            return
        self._bite(step.fault, ONCE)

    def _command_now(self, step: TimedStep, action: Command, name: str) -> None:
        """Recorded when it is done: until then a paused member is, and promises, what it was."""
        self._rig.begin(self._now(), step, self._roster.short(name))
        if isinstance(action, faults.SetAttribute):
            self._roster.ask(name, "POST", "/attributes", {action.attribute: action.value})
            self._bite(step.fault, ONCE)
        else:
            self._lose_connection(step.fault, action, name)

    def _tell(self, name: str, do: Callable[[], object]) -> None:
        """Tell a member something: now, or when it goes on."""
        if name in self._roster.paused:
            self._mail.setdefault(name, []).append(do)
        else:
            do()

    def _tell_what_waited(self, name: str) -> None:
        for do in self._mail.pop(name, ()):
            try:
                do()
            except MemberError:
                # One that leaves, now that it goes on, need not answer.
                if name not in self._roster.leaving and self._roster.is_alive(name):
                    raise

    def _have_consumed(self, name: str, *, consuming: bool, fault: str = "") -> None:
        answer = self._roster.ask(name, "POST", "/consume", {"consuming": consuming})
        if fault:
            self._bite(fault, int(answer["waited"]))

    def _lose_connection(self, fault: str, action: faults.Forget | faults.Close, name: str) -> None:
        person = self._roster.person(action.peer)
        if person is None:
            # Nobody is connected to who has not come yet.
            return
        body: dict[str, str] = {"peer": person["identity"]}
        target = "/close"
        if isinstance(action, faults.Forget):
            body["half"], target = action.half, "/forget"
        answer = self._roster.ask(name, "POST", target, body)
        self._bite(fault, int(answer["connected"]))

    def _undo(self, what: str, name: str) -> None:
        """End a pause or a stall."""
        fault, roster = self._held.pop((what, name), None), self._roster
        if fault is None or not roster.is_alive(name):
            return
        self.last_heal = self._now()
        if what == "pause":
            held = self._backend.resume(name)
            self._bite(fault, ONCE if held is None else held)
            roster.went_on(name)
            self._tell_what_waited(name)
            # Of loads that began meanwhile it knows nothing: a run could seem to be over.
            self._traffic.catch_up()
        else:
            self._tell(name, partial(self._have_consumed, name, consuming=True, fault=fault))
        self._rig.end(self._now(), fault, roster.shorts.get(name))

    def _forget_process(self, name: str) -> None:
        """A process that ends takes with it what was done to it, and what it was to be told."""
        for held in [held for held in self._held if held[1] == name]:
            self._bite(self._held.pop(held), ONCE)
        self._mail.pop(name, None)
        for probe in self._probes.values():
            probe.there.discard(name)

    def _bite(self, fault: str, number: int) -> None:
        self._bites[fault] = self._bites.get(fault, 0) + number

    # -- Views by hand ---------------------------------------------------------------------------

    def _install_view(self, fault: str, action: faults.InstallView) -> None:
        roster = self._roster
        people = [roster.person(name) for name in action.members]
        there = [person for person in people if person is not None]
        if not there:
            return
        living = roster.living()
        told = [name for name in action.at_members if name in living]
        self._views += 1
        view: dict[str, Any] = {"number": self._views, "creator": there[0], "members": there}
        if roster.has_group:
            made = self._id_of_view(told)
            if made is None:
                # Nobody can have made it yet.
                for name in [name for name in told if name in roster.paused][:1]:
                    self._tell(name, partial(self._install_view, fault, action))
                return
            view |= made
        for name in told:
            self._tell(name, partial(self._hand_in, fault, name, view))

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
        self._bite(fault, int(answer["connections"] > 0))

    def _has_later_view(self, name: str, number: int) -> bool:
        state = self._roster.state(name)
        return bool(state and state["view"] and state["view"]["number"] >= number)
