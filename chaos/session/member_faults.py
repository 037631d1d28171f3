"""Faults of single members: they are killed, started, paused, stalled, or told to do something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

from stormcast.chaos import faults
from stormcast.chaos.backends.base import Backend, MemberError
from stormcast.chaos.language.schedule import TimedStep
from stormcast.chaos.records.rig_trace import UNCONFIRMED, RigTrace
from stormcast.chaos.session.effects import ONCE, Effects
from stormcast.chaos.session.mailbox import Mailbox
from stormcast.chaos.session.member_rules import MemberRules
from stormcast.chaos.session.roster import Roster
from stormcast.chaos.session.traffic import Traffic

Command = faults.SetAttribute | faults.Forget | faults.Close
"""Actions that a member itself is told to do."""
Hold = Literal["pause", "stall"]


class MemberFaults:
    """Does the faults of single members, and knows which fault pauses or stalls which member."""

    def __init__(
        self,
        backend: Backend,
        roster: Roster,
        traffic: Traffic,
        rig: RigTrace,
        rules: MemberRules,
        mailbox: Mailbox,
        effects: Effects,
    ) -> None:
        self._backend = backend
        self._roster = roster
        self._traffic = traffic
        self._rig = rig
        self._rules = rules
        self._mailbox = mailbox
        self._effects = effects
        self._held: dict[tuple[Hold, str], str] = {}
        """The fault of each pause and stall that lasts, by its kind and its member."""
        self._stalled: set[str] = set()
        """Members whose application was told to take nothing: a paused one is told later."""
        self._enders: set[str] = set()
        """The faults that end members: a step of theirs that starts a member is their end."""
        self._down: dict[str, str] = {}
        """By member that is down or leaves: the first fault that ended it, or found it down by no
        fault. Only its end starts the member."""
        self._first_asked: dict[str, float] = {}
        """By fault: when a member that starts was first asked to change a setting."""
        self._awaited: dict[str, TimedStep] = {}
        """Steps that start members which have not left yet."""

    def do(self, step: TimedStep, name: str) -> None:
        """Do a step that is about one member."""
        action = step.action
        if isinstance(action, faults.Resume | faults.Consume):
            what: Hold = "pause" if isinstance(action, faults.Resume) else "stall"
            if self._held.get((what, name)) == step.fault or not step.fault:
                self._undo(what, name)
        elif isinstance(action, faults.Restart | faults.Join):
            self._start(step, name)
        elif isinstance(action, faults.Crash | faults.Leave):
            self._own(step.fault, name)
            self._strike(step, name)
        # What strikes nobody does not begin: to judges it would be a cause of all that follows.
        elif not self._roster.is_alive(name):
            return
        elif isinstance(action, Command):
            self._mailbox.tell(name, partial(self._command, step, action, name))
        elif isinstance(action, faults.Stall):
            before = self._take_over("stall", name, step.fault)
            self._mailbox.tell(name, partial(self._stall, step, name, before))
        elif isinstance(action, faults.Pause):
            before = self._take_over("pause", name, step.fault)
            self._end_earlier(before, name, self._backend.now())
            self._pause(step, name)

    def _own(self, fault: str, name: str) -> None:
        """Note that a fault is to end a member: its end starts the member again, unless an earlier
        fault holds it down. One that is awaited counts as back, so this fault is the first."""
        self._enders.add(fault)
        if self._awaited.pop(name, None) is not None:
            self._down[name] = fault
        else:
            self._down.setdefault(name, fault)

    def _take_over(self, what: Hold, name: str, fault: str) -> str | None:
        """Make this fault the one that holds the member; return the one that held it before, which
        is over: the member goes on when the newer one ends."""
        before = self._held.get((what, name))
        self._held[what, name] = fault
        return before

    def _end_earlier(self, before: str | None, name: str, at: float) -> None:
        """Record that another fault has taken over: without an end of the one before, judges would
        excuse the member for the rest of the run."""
        if before is not None:
            self._effects.bite(before)
            self._rig.end(at, before, self._roster.shorts.get(name))

    def end(self, fault: str) -> bool:
        """End a pause or a stall; returns whether the fault was one that lasted."""
        for (what, name), by in self._held.items():
            if by == fault:
                self._undo(what, name)
                return True
        return False

    def end_all(self) -> None:
        """End all pauses and stalls."""
        for what, name in list(self._held):
            self._undo(what, name)

    def held_by(self) -> list[str]:
        """Return the fault of each pause and stall that lasts."""
        return list(self._held.values())

    def _start(self, step: TimedStep, name: str) -> None:
        """Start a member; a restart ends the incarnation that may still run."""
        roster = self._roster
        if step.fault in self._enders and self._down.get(name) != step.fault:
            # It is the end of a fault, and the member was back since, or is down by another one.
            return
        if isinstance(step.action, faults.Join) and roster.is_alive(name):
            if name in roster.leaving:
                self._awaited[name] = step
            return
        self._awaited.pop(name, None)
        self._down.pop(name, None)
        self._traffic.note_end(name)
        self._rig.begin(self._backend.now(), step, roster.shorts.get(name))
        self._effects.bite(step.fault)
        self._rules.count_in(name)
        self._forget_process(name)
        self._effects.heal()
        self._rules.prepare(name)
        roster.start(name)

    def start_those_that_left(self) -> None:
        """Start members that a step would have started before they had left."""
        for name in [name for name in self._awaited if not self._roster.is_alive(name)]:
            self._start(self._awaited.pop(name), name)

    def awaited(self) -> frozenset[str]:
        """Return the members that are started as soon as they have left."""
        return frozenset(self._awaited)

    def _strike(self, step: TimedStep, name: str) -> None:
        """Kill a member, or have it leave, if it is there and does not leave already."""
        roster, is_leave = self._roster, isinstance(step.action, faults.Leave)
        if not roster.is_alive(name) or (is_leave and name in roster.leaving):
            return
        self._rig.begin(self._backend.now(), step, roster.short(name))
        self._rules.count_in(name)
        self._traffic.note_end(name)
        if is_leave:
            roster.leaving.add(name)
            self._backend.stop(name)
        else:
            self._forget_process(name)
            roster.kill(name)
        self._effects.bite(step.fault)

    def _pause(self, step: TimedStep, name: str) -> None:
        self._rig.begin(self._backend.now(), step, self._roster.short(name))
        self._rules.count_in(name)
        self._traffic.note_sent(name)
        self._roster.paused.add(name)
        self._backend.pause(name)

    def _undo(self, what: Hold, name: str) -> None:
        """End a pause or a stall."""
        fault, roster = self._held.pop((what, name), None), self._roster
        if fault is None:
            return
        if not roster.is_alive(name):
            self._note_held(what, name, fault)
            return
        self._effects.heal()
        if what == "pause":
            held = self._backend.resume(name)
            self._effects.bite(fault, ONCE if held is None else held)
            roster.went_on(name)
            self._mailbox.tell_what_waited(name)
            # It does not know of loads that began meanwhile: without them a run may seem over.
            self._traffic.catch_up()
            self._rig.end(self._backend.now(), fault, roster.shorts.get(name))
        else:
            self._mailbox.tell(name, partial(self._consume, fault, name))

    def _stall(self, step: TimedStep, name: str, before: str | None) -> None:
        """Have an application take nothing, and record it now: a paused member is told later."""
        with self._beginning(step, name, before):
            self._roster.ask(name, "POST", "/consume", {"consuming": False})
        self._stalled.add(name)

    @contextmanager
    def _beginning(self, step: TimedStep, name: str, before: str | None = None) -> Iterator[None]:
        """Record that a step begins by a request to its member, and that the fault before it ends.
        Where a member that starts does not answer yet, the mailbox asks again: it begins then. But
        a setting may have been changed by the first request, as one in a socket is read later."""
        at, within, is_asked_again = self._backend.now(), UNCONFIRMED, False
        is_setting = isinstance(step.action, faults.SetAttribute)
        if is_setting:
            at = self._first_asked.pop(step.fault, at)
        try:
            yield
            within = self._backend.now() - at
        except MemberError:
            is_asked_again = name in self._roster.joining
            raise
        finally:
            # Of any other that does not answer nobody knows whether it has heard.
            if is_asked_again and is_setting:
                self._first_asked[step.fault] = at
            elif not is_asked_again:
                self._end_earlier(before, name, at)
                self._rig.begin(at, step, self._roster.short(name), within=within)

    def _consume(self, fault: str, name: str) -> None:
        """Have an application go on, and record it now: until now a paused member had taken
        nothing of what it had acked."""
        answer = self._roster.ask(name, "POST", "/consume", {"consuming": True})
        self._stalled.discard(name)
        self._effects.bite(fault, int(answer["waited"]))
        self._rig.end(self._backend.now(), fault, self._roster.shorts.get(name))

    def _forget_process(self, name: str) -> None:
        """Forget the pause and stall of a process that ends, its rules and waiting requests."""
        for what, held in [held for held in self._held if held[1] == name]:
            self._note_held(what, held, self._held.pop((what, held)))
        self._stalled.discard(name)
        self._mailbox.discard(name)
        self._rules.discard(name)

    def _note_held(self, what: Hold, name: str, fault: str) -> None:
        """Count a pause or a stall whose member is gone, if it ever began."""
        if what == "pause" or name in self._stalled:
            self._effects.bite(fault)

    # -- Commands --------------------------------------------------------------------------------

    def _command(self, step: TimedStep, action: Command, name: str) -> None:
        """Do a command, and record it now: until now a paused member kept its old promises."""
        if isinstance(action, faults.SetAttribute):
            with self._beginning(step, name):
                self._roster.ask(name, "POST", "/attributes", {action.attribute: action.value})
            self._effects.bite(step.fault)
        else:
            self._lose_connection(step, action, name)

    def _lose_connection(
        self, step: TimedStep, action: faults.Forget | faults.Close, name: str
    ) -> None:
        """Have a member lose a connection, and record it if there was one."""
        short, person = self._roster.short(name), self._roster.person(action.peer)
        if person is None:
            # Nobody is connected to a member that has not come yet.
            return
        body: dict[str, str] = {"peer": person["identity"]}
        target = "/close"
        if isinstance(action, faults.Forget):
            body["half"], target = action.half, "/forget"
        at = self._backend.now()
        answer = self._roster.ask(name, "POST", target, body)
        if answer["connected"]:
            self._rig.begin(at, step, short)
            self._effects.bite(step.fault, int(answer["connected"]))
