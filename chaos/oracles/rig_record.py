"""The trace of the rig: the phases of a run, its faults, and how often each of them bit."""

from __future__ import annotations

import json
from functools import cached_property
from math import inf
from typing import Any, Final, NamedTuple

from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.reading import noting_nonsense
from stormcast.node.trace import EXIT, FAULT, OVERHEARD, PHASE, PROBE, Event

DIED: Final = "died"
"""Stands in place of a fault for the death of a member that nobody ordered."""
_KILLS: Final = frozenset({"crash", "restart", DIED})
_COPIES: Final = frozenset({"duplicate", "rule"})


class FaultStep(NamedTuple):
    """The beginning or the end of a fault, or an action that was done at once."""

    time: float
    id: str
    do: str
    phase: str
    member: int | None
    """The short id of the member that it strikes; None: the network, or all members."""
    copies: int
    """The number of copies that arrive besides a frame."""
    attribute: str
    """The setting that is changed; before it may stand its protocol and a dot."""
    value: Any
    late: float = 0.0
    """Seconds for which it may keep frames under way; 0: not told, or it keeps none."""

    @property
    def begins(self) -> bool:
        return self.phase == "on"

    @property
    def kills(self) -> bool:
        return self.begins and self.do in _KILLS


class Probe(NamedTuple):
    """The number of bites of one fault, by the rig's event."""

    fault: str
    kind: str
    bites: int


class Death(NamedTuple):
    """The death of a member that nothing in the scenario did."""

    time: float
    who: str
    how: str
    """By which signal, or with which exit code."""
    member: int | None
    """Its short id; None where it was never known."""

    def tell(self, begin: float) -> str:
        """Say when and how it died, in a run that began at `begin`."""
        since = self.time - begin
        when = f"at {since:.1f} s" if since >= 0 else "as the scenario began, or before,"
        return f"{self.who} died {when} of {self.how}; nothing in the scenario did that"


class RigRecord:
    """The trace of the rig, read. Events that cannot be read are listed in `defects`."""

    def __init__(self, trace: Member, defects: list[str]) -> None:
        self.steps: list[FaultStep] = []
        """In the order in which they were done."""
        self.probes: list[Probe] = []
        self.deaths: list[Death] = []
        self.trace = trace
        self.overheard: list[Event] = []
        """Events of messages that strangers read, in the order of time."""
        self.begin: float | None = None
        """The time at which the run began, on the clock of the traces; None: no event says so."""
        self.quiet = inf
        """The time from which on the rig did nothing."""
        self.end = inf
        for number, event in enumerate(trace.events):
            text = trace.texts.get(number, "")
            if event.kind == PHASE:
                self._note_phase(text, event.time)
                continue
            if event.kind == OVERHEARD:
                self.overheard.append(event)
                continue
            with noting_nonsense(defects, trace.label, text):
                if event.kind == FAULT:
                    self.steps.append(_fault_step(event.time, json.loads(text)))
                elif event.kind == PROBE:
                    self.probes.append(_probe(json.loads(text)))
                elif event.kind == EXIT:
                    self._note_exit(event.time, json.loads(text))

    def _note_exit(self, time: float, text: dict[str, Any]) -> None:
        if text["ordered"]:
            return
        death = _death(time, text)
        self.deaths.append(death)
        self.steps.append(
            FaultStep(
                time=time,
                id=f"{DIED}-{len(self.deaths)}",
                do=DIED,
                phase="on",
                member=death.member,
                copies=0,
                attribute="",
                value=None,
            )
        )

    def _note_phase(self, phase: str, time: float) -> None:
        if phase == "begin" and self.begin is None:
            self.begin = time
        elif phase == "quiet":
            self.quiet = time
        elif phase == "end":
            self.end = time

    @property
    def killed(self) -> set[int]:
        """The short ids of members that were killed."""
        return {step.member for step in self.steps if step.kills and step.member is not None}

    @property
    def standing(self) -> dict[str, str]:
        """The kinds of the faults that nothing ended, by id."""
        found: dict[str, str] = {}
        for step in self.steps:
            if step.begins:
                found[step.id] = step.do
            else:
                found.pop(step.id, None)
        return found

    @cached_property
    def most_copies(self) -> int:
        """The most often that one frame may have arrived: any network may repeat a frame once, and
        faults that duplicate add their copies."""
        return 2 + sum(step.copies for step in self.steps if step.begins and step.do in _COPIES)


def _fault_step(time: float, text: dict[str, Any]) -> FaultStep:
    member = text.get("member")
    return FaultStep(
        time=time,
        do=str(text["do"]),
        phase=str(text["phase"]),
        id=str(text["id"]),
        member=None if member is None else int(member),
        copies=int(text.get("copies", 1)),
        attribute=str(text.get("attribute", "")),
        value=text.get("value"),
        late=float(text.get("late", 0.0)),
    )


def _death(time: float, text: dict[str, Any]) -> Death:
    member, number = text.get("member"), int(text.get("incarnation", 1))
    how = f"signal {text['signal']}" if "signal" in text else f"exit code {text['code']}"
    return Death(
        time=time,
        who=f"{text['name']}-{number}" if number > 1 else str(text["name"]),
        how=f"{how} ({text['why']})" if text.get("why") else how,
        member=None if member is None else int(member),
    )


def _probe(text: dict[str, Any]) -> Probe:
    return Probe(str(text["id"]), str(text["do"]), int(text["bit"]))
