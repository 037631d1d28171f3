"""The rig's own trace: what was done to a run and when, next to what its members write.

The oracles must know when each fault began and ended, which member it struck, how often it bit, and
from when on nothing more was done.
"""

from __future__ import annotations

import json
import time
from operator import itemgetter
from typing import Any, Final, NamedTuple

from xxhash import xxh3_64_intdigest

from stormcast.chaos import faults
from stormcast.chaos.language.schedule import TimedStep
from stormcast.chaos.records.exits import MemberExit
from stormcast.node import trace
from stormcast.node.trace.tracer import Tracer

RIG: Final = 0
"""The short id under which the rig itself writes events."""
UNCONFIRMED: Final = 1e9
"""Seconds within which a change was made that nobody confirmed."""
STANDSTILL: Final = "still-"
"""How the ids of pauses begin that no step ordered: the machine did not let a member run."""


def fault_text(step: TimedStep, phase: str, member: int | None = None) -> dict[str, Any]:
    """Return the content of a fault's event; `member` is the short id of the struck member."""
    text: dict[str, Any] = {"id": step.fault, "do": step.do, "phase": phase}
    if member is not None:
        text["member"] = member
    if isinstance(step.action, faults.SetAttribute):
        text |= {"attribute": step.action.attribute, "value": step.action.value}
    if isinstance(step.action, faults.Rule) and step.action.does == "duplicate":
        text["copies"] = step.action.copies
    if late := _lateness(step.action):
        text["late"] = late
    return text


def _lateness(action: object) -> float:
    """Return for how many seconds a fault, or a network, may keep frames under way."""
    match action:
        case faults.Delay():
            return action.delay + action.jitter
        case faults.Reorder():
            return action.by
        case faults.Rule(does="delay"):
            return action.delay
        case faults.Link():
            is_usual = action.delay <= faults.Link().delay
            held_back = action.reorder_by if action.reorder else 0.0
            return (0.0 if is_usual else action.delay) + action.jitter + held_back
        case _:
            return 0.0


def base_text(base: faults.Link) -> dict[str, Any] | None:
    """Return the event of a network that may lose or delay frames without any fault; None: it does
    neither."""
    late = _lateness(base)
    if not base.can_lose and not late:
        return None
    # A network that loses nothing is no cause of a loss: it is told as one that delays.
    text: dict[str, Any] = {"id": faults.BASE, "do": faults.BASE if base.can_lose else "delay"}
    text["phase"] = "on"
    return text | {"late": late} if late else text


class Overheard(NamedTuple):
    """A frame that a stranger took for a batch of messages; only the oracles know whether it was
    one."""

    at: float
    flags: int
    protocol: int
    sender: int
    """The short id of the sender that the frame names."""
    conn: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    lo: int
    size: int
    digest: int
    """XXH3-64 of the body as the stranger read it."""


class RigTrace:
    """The rig's events. They may be noted in any order, and are written in order of time."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        """The kind of every fault of the run, by its id."""
        self._keeping: dict[str, float] = {}
        """Seconds for which each fault that acts, or the network, may keep frames under way."""
        self.landed_at = 0.0
        """When the frames have arrived that were kept by faults that are over."""
        self._events: list[tuple[float, int, dict[str, Any]]] = []
        """Time, kind, and the other fields of each."""

    def begin(
        self, at: float, step: TimedStep, member: int | None = None, *, within: float = 0.0
    ) -> None:
        """Note that a fault begins, or that something is done to a member; a member that was asked
        to change a setting did so within so many seconds."""
        if not isinstance(step.action, faults.Resume | faults.Consume):
            self.kinds.setdefault(step.fault, step.do)
        text = fault_text(step, "on", member)
        if within and isinstance(step.action, faults.SetAttribute):
            text["within"] = within
        self._keeping[step.fault] = text.get("late", 0.0)
        self._add(at, trace.FAULT, text)

    def end(self, at: float, fault: str, member: int | None = None) -> None:
        """Note that a fault is over."""
        if self._keeping.get(fault):
            self.landed_at = max(self.landed_at, at + self.travel)
            del self._keeping[fault]
        text: dict[str, Any] = {"id": fault, "do": self.kinds.get(fault, "end"), "phase": "off"}
        if member is not None:
            text["member"] = member
        self._add(at, trace.FAULT, text)

    def network(self, at: float, base: faults.Link) -> None:
        """Note that the network loses or delays frames by itself, if it may: the oracles must
        know."""
        text = base_text(base)
        if text is not None:
            self._keeping[faults.BASE] = text.get("late", 0.0)
            self._add(at, trace.FAULT, text)

    @property
    def travel(self) -> float:
        """The seconds for which the network, and the faults that act, may keep a frame."""
        return sum(self._keeping.values())

    def stood_still(self, start: float, end: float, member: int) -> None:
        """Note that the machine did not let a member run: to the oracles that is a pause."""
        number = sum(1 for *_, more in self._events if '"still' in more.get("text", ""))
        text = {"id": f"{STANDSTILL}{number}", "do": "pause", "phase": "on", "member": member}
        self._add(start, trace.FAULT, text)
        self._add(end, trace.FAULT, text | {"phase": "off"})

    def exit(self, ended: MemberExit, member: int | None) -> None:
        """Note that the process of a member ended; `member` is its short id, if it is known."""
        how = {"signal": -ended.code} if ended.code < 0 else {"code": ended.code}
        text: dict[str, Any] = {"name": ended.name, "incarnation": ended.incarnation, **how}
        text["ordered"] = ended.is_ordered
        if member is not None:
            text["member"] = member
        if ended.why:
            text["why"] = ended.why
        self._add(ended.at, trace.EXIT, text)

    def phase(self, at: float, what: str) -> None:
        """Note that a phase begins: `begin`, `quiet` or `end`."""
        self._events.append((at, trace.PHASE, {"text": what}))

    def probe(self, at: float, fault: str, bites: int) -> None:
        """Note how often a fault bit."""
        self._add(at, trace.PROBE, {"id": fault, "do": self.kinds[fault], "bit": bites})

    def overheard(self, what: Overheard) -> None:
        """Note what a stranger read."""
        more = what._asdict()
        at, more["peer"] = more.pop("at"), more.pop("sender")
        more["hi"] = what.lo + what.count - 1 if what.lo else 0
        self._events.append((at, trace.OVERHEARD, more))

    def blocks(self, wall_ns: int) -> bytes:
        """Return all events as a trace; `wall_ns` is the wall clock when the run's clock was 0."""
        blocks: list[bytes] = []
        tracer = Tracer(RIG, wall_ns, xxh3_64_intdigest, blocks.append)
        for at, kind, more in sorted(self._events, key=itemgetter(0)):
            tracer.record(kind, at, **more)
        tracer.seal()
        return b"".join(blocks)

    def _add(self, at: float, kind: int, text: dict[str, Any]) -> None:
        self._events.append((at, kind, {"text": json.dumps(text)}))


def wall_at_zero(now: float) -> int:
    """Return what the wall clock showed, in nanoseconds, when a clock that shows `now` was 0."""
    return max(0, time.time_ns() - int(now * 1e9))
