"""The trace of the rig: the phases of a run, its faults, and how often each of them bit."""

from __future__ import annotations

import json
from functools import cached_property
from math import inf, isfinite
from typing import Any, Final, NamedTuple, TypeVar

from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.reading import noting_nonsense
from stormcast.chaos.oracles.records import MOST
from stormcast.node.trace import EXIT, FAULT, OVERHEARD, PHASE, PROBE, Event

DIED: Final = "died"
"""Stands in place of a fault for the death of a member that nobody ordered."""
SLOW_NETWORK: Final = ("network", "delay")
"""Id and kind of what tells that the network as it is, without a fault, delays frames."""
_KILLS: Final = frozenset({"crash", "restart", DIED})
_COPIES: Final = frozenset({"duplicate", "rule"})
_NEVER_COUNTED: Final = frozenset({DIED, "network", "resume", "consume"})
"""What is told as a fault and is none, or undoes one."""
STANDSTILL: Final = "still-"
"""How the ids of pauses begin that no step ordered: the machine did not let a member run."""
UNCONFIRMED: Final = 1e9
"""Seconds within which a change was made that nobody confirmed."""
_MOST_COPIES: Final = 1_000_000
"""More copies of a frame than any fault makes."""
_MOST_SHORT: Final = (1 << 32) - 1
"""The largest short id."""
_PHASES: Final = frozenset({"on", "off"})


_Fields = dict[str, Any]
"""What a text says, by name; null is the same as nothing."""
_T = TypeVar("_T")


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
    within: float = 0.0
    """Seconds within which a member changed its setting; 0: at once."""

    @property
    def begins(self) -> bool:
        return self.phase == "on"

    @property
    def kills(self) -> bool:
        return self.begins and self.do in _KILLS


class UnderWay(NamedTuple):
    """How long frames were under way, and may be at the end of a run."""

    landed: float
    """When the frames have arrived that were kept by faults that are over; -inf: none was kept."""
    travel: float
    """Seconds for which the network, and what nothing ended, may keep a frame."""


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
        self.noted: list[FaultStep] = []
        """All steps but deaths, and that the network delays frames by itself, which is no step."""
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
                    self._note_step(_fault_step(event.time, _fields(text)))
                elif event.kind == PROBE:
                    self.probes.append(_probe(_fields(text)))
                elif event.kind == EXIT:
                    self._note_exit(event.time, _fields(text))

    def _note_step(self, step: FaultStep) -> None:
        self.noted.append(step)
        if (step.id, step.do) != SLOW_NETWORK:
            self.steps.append(step)

    def _note_exit(self, time: float, text: _Fields) -> None:
        is_ordered = text.get("ordered")
        if not isinstance(is_ordered, bool):
            raise _odd("ordered", is_ordered)
        death = _death(time, text, is_ordered=is_ordered)
        if is_ordered:
            return
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

    @cached_property
    def under_way(self) -> UnderWay:
        """How long frames were, and may still be, under way."""
        acting: dict[str, float] = {}
        landed = -inf
        for step in self.noted:
            if step.id in acting:
                if not step.begins:
                    landed = max(landed, step.time + sum(acting.values()))
                del acting[step.id]
            if step.begins and step.late:
                acting[step.id] = step.late
        return UnderWay(landed, sum(acting.values()))

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

    @property
    def uncounted(self) -> dict[str, str]:
        """The kinds of the faults of which no event says how often they bit, by id. Those that
        began before the run are of its past, which was judged."""
        counted = {probe.fault for probe in self.probes}
        begin = self.begin if self.begin is not None else -inf
        return {
            step.id: step.do
            for step in self.steps
            if step.begins
            and step.time >= begin
            and step.do not in _NEVER_COUNTED
            and not step.id.startswith(STANDSTILL)
            and step.id not in counted
        }

    @cached_property
    def most_copies(self) -> int:
        """The most often that one frame may have arrived: any network may repeat a frame once, and
        faults that duplicate add their copies."""
        return 2 + sum(step.copies for step in self.steps if step.begins and step.do in _COPIES)


def _fault_step(time: float, text: _Fields) -> FaultStep:
    phase = _needed("phase", _word(text, "phase"))
    if phase not in _PHASES:
        raise _odd("phase", phase)
    copies = _whole(text, "copies", _MOST_COPIES)
    return FaultStep(
        time=time,
        do=_needed("do", _word(text, "do")),
        phase=phase,
        id=_needed("id", _word(text, "id")),
        member=_whole(text, "member", _MOST_SHORT),
        copies=1 if copies is None else copies,
        attribute=_word(text, "attribute") or "",
        value=text.get("value"),
        late=_seconds(text, "late") or 0.0,
        within=_seconds(text, "within") or 0.0,
    )


def _death(time: float, text: _Fields, *, is_ordered: bool) -> Death:
    """Return the end of a process; of one that was ordered nothing need say how it ended."""
    name, why = _needed("name", _word(text, "name")), _word(text, "why")
    number = _whole(text, "incarnation", MOST - 1, least=1) or 1
    signal = _whole(text, "signal", MOST - 1, least=1 - MOST)
    code = _whole(text, "code", MOST - 1, least=1 - MOST)
    if signal is None and code is None and not is_ordered:
        raise ValueError("it has neither signal nor code")
    how = f"signal {signal}" if signal is not None else f"exit code {code}"
    return Death(
        time=time,
        who=f"{name}-{number}" if number > 1 else name,
        how=f"{how} ({why})" if why else how,
        member=_whole(text, "member", _MOST_SHORT),
    )


def _probe(text: _Fields) -> Probe:
    return Probe(
        fault=_needed("id", _word(text, "id")),
        kind=_needed("do", _word(text, "do")),
        bites=_needed("bit", _whole(text, "bit", MOST - 1)),
    )


# -- Fields of a text ------------------------------------------------------------------------------


def _fields(text: str) -> _Fields:
    told = json.loads(text)
    if not isinstance(told, dict):
        raise ValueError("it is no object")
    return told


def _needed(name: str, value: _T | None) -> _T:
    if value is None:
        raise ValueError(f"it has no {name}")
    return value


def _word(text: _Fields, name: str) -> str | None:
    value = text.get(name)
    if value is not None and not isinstance(value, str):
        raise _odd(name, value)
    return value


def _whole(text: _Fields, name: str, most: int, *, least: int = 0) -> int | None:
    value = text.get(name)
    # A bool is an int to Python, and no number to anybody else.
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise _odd(name, value)
    return value


def _seconds(text: _Fields, name: str) -> float | None:
    value = text.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _odd(name, value)
    if not isfinite(value) or value < 0:
        raise _odd(name, value)
    return float(value)


def _odd(name: str, value: object) -> ValueError:
    return ValueError(f"{name} is {str(value)[:20]!r}")
