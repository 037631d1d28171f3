"""Rules for frames that test protocols carry out inside of members: between members, nothing can
take a frame out of a TCP connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from stormcast.chaos import faults
from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.faults import Names
from stormcast.chaos.session.effects import Effects
from stormcast.chaos.session.mailbox import Mailbox
from stormcast.chaos.session.plans import as_test_protocol
from stormcast.chaos.session.roster import Roster


@dataclass(slots=True)
class MemberRule:
    """A rule that acts inside of members."""

    rule: faults.Rule
    dests: Names
    there: set[str] = field(default_factory=set)
    """Members whose running process has the rule, or gets it when the member goes on."""
    struck: dict[str, int] = field(default_factory=dict)
    """The number of bites in each running member, when it was last asked."""
    struck_before: dict[str, int] = field(default_factory=dict)
    """The number of bites in each member's processes that ended."""

    @property
    def bites(self) -> int:
        """The number of bites of the rule, as far as is known."""
        return sum(self.struck_before.values()) + sum(self.struck.values())

    @property
    def kind(self) -> str:
        """The test protocol that carries out the rule."""
        (kind,) = as_test_protocol(self.rule)
        return kind

    def discard(self, name: str) -> None:
        """Note that a member's process ended, with the rule in it."""
        self.there.discard(name)
        struck = self.struck.pop(name, 0)
        self.struck_before[name] = self.struck_before.get(name, 0) + struck

    def left_for(self, name: str) -> faults.Rule | None:
        """Return what is left of the rule for a member's next process, which counts from 1; None if
        it is used up. Frames before the first occurrence are not known, and are counted anew."""
        before = self.struck_before.get(name, 0)
        times, occurrence = self.rule.times, self.rule.match.occurrence
        if before and times is not None:
            times -= before
        if before and occurrence is not None:
            first, last = occurrence
            occurrence = (1, last - first + 1 - before)
        if (times is not None and times < 1) or (occurrence is not None and occurrence[1] < 1):
            return None
        match = replace(self.rule.match, occurrence=occurrence)
        return replace(self.rule, times=times, match=match)


class MemberRules:
    """The rules that act inside of members at the moment, by fault."""

    def __init__(self, roster: Roster, mailbox: Mailbox, effects: Effects) -> None:
        self.begun: set[str] = set()
        """All rules that ever acted, by fault."""
        self._roster = roster
        self._mailbox = mailbox
        self._effects = effects
        self._active: dict[str, MemberRule] = {}
        self._given: set[str] = set()
        """Members that are started with rules inside of them."""
        self._waiting: dict[str, dict[str, dict[str, Any] | None]] = {}
        """By member that starts, and cannot be asked yet: what it is to be told, by test protocol;
        None: to take it out."""

    def __contains__(self, fault: str) -> bool:
        """Whether the rule of this fault acts."""
        return fault in self._active

    def active(self) -> list[str]:
        """Return the faults whose rules act."""
        return list(self._active)

    def begin(self, fault: str, rule: faults.Rule) -> None:
        """Have a rule act in every member that it is for."""
        self.begun.add(fault)
        active = self._active[fault] = MemberRule(rule, rule.match.dests or self._roster.members)
        for name in active.dests:
            self._insert(name, active)

    def end(self, fault: str) -> None:
        """Take a rule out of all members."""
        self._count(self._active[fault])
        ended = self._active.pop(fault)
        self._effects.bite(fault, ended.bites)
        for name in sorted(ended.there.intersection(self._roster.living())):
            self._tell(name, {ended.kind: None})
        self._effects.heal()

    def prepare(self, name: str) -> None:
        """Have a member that is about to start begin with the rules that act on it: there is no
        frame of it that they miss."""
        words: dict[str, dict[str, Any]] = {}
        for active in self._active.values():
            left = active.left_for(name) if name in active.dests else None
            if left is not None:
                words |= as_test_protocol(left)
                active.there.add(name)
        if words or name in self._given:
            self._given.add(name)
            self._roster.backend.set_test_protocols(name, words)

    def look_after(self) -> None:
        """Tell members that start what they could not be told before: a rule that has ended may be
        what keeps one from being ready."""
        for name in list(self._waiting):
            self._try(name)

    def discard(self, name: str) -> None:
        """Note that a process ended, with the test protocols in it."""
        self._waiting.pop(name, None)
        for active in self._active.values():
            active.discard(name)

    def count(self) -> None:
        """Ask members how often the rules inside of them bit."""
        for active in self._active.values():
            self._count(active)

    def count_in(self, name: str) -> None:
        """Ask one member, which is about to end or to be paused."""
        for active in self._active.values():
            if name in active.there:
                self._count_one(active, name)

    def bites(self) -> dict[str, int]:
        """Return how often each acting rule had bitten when members were last asked."""
        return {fault: active.bites for fault, active in self._active.items()}

    def _insert(self, name: str, active: MemberRule) -> None:
        if self._roster.is_alive(name):
            active.there.add(name)
            self._tell(name, as_test_protocol(active.rule))

    def _tell(self, name: str, words: Mapping[str, dict[str, Any] | None]) -> None:
        """Have a member put test protocols in, or take them out: now, when it goes on, or, if it
        starts, as soon as it can be asked."""
        roster = self._roster
        if name not in roster.joining and name not in self._waiting:
            self._mailbox.tell(name, partial(roster.ask, name, "POST", "/probes", words))
            return
        waiting = self._waiting.setdefault(name, {})
        for kind, values in words.items():
            if values is None and waiting.get(kind) is not None:
                # It was never put in.
                del waiting[kind]
            else:
                waiting[kind] = values
        self._try(name)

    def _try(self, name: str) -> None:
        roster, words = self._roster, self._waiting[name]
        if name in roster.paused:
            return
        try:
            if words:
                roster.ask(name, "POST", "/probes", words)
        except MemberError:
            if name not in roster.joining and name not in roster.leaving and roster.is_alive(name):
                raise
            if roster.is_alive(name):
                return
        del self._waiting[name]

    def _count(self, active: MemberRule) -> None:
        for name in active.there.intersection(self._roster.answering()):
            self._count_one(active, name)

    def _count_one(self, active: MemberRule, name: str) -> None:
        if name not in self._roster.answering():
            return
        try:
            listed = self._roster.ask(name, "GET", "/probes")
        except MemberError:
            # It ends, or has ended by itself a moment ago.
            is_starting = name in self._roster.joining
            if self._roster.is_alive(name) and not is_starting and name not in self._roster.leaving:
                raise
            return
        active.struck[name] = sum(one["struck"] for one in listed if one["name"] == active.kind)
