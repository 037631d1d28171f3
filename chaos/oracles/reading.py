"""Reads traces: makes members of them, and lists their defects.

A torn, foreign, truncated or empty trace is evidence of nothing, because every check also draws
conclusions from events that are absent. One exception: the last block of a member that the rig
killed may be torn. A block is written before the frames of its turn leave, so no peer has seen
anything of a turn that was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import RIG, Member
from stormcast.chaos.oracles.records import impossible
from stormcast.node.core import wire
from stormcast.node.core.codec import Hash64
from stormcast.node.core.errors import BadTrace
from stormcast.node.trace import (
    START,
    TORN,
    TRUNCATED,
    Block,
    describe_loss,
    read_blocks_untrusted,
)

Traces = Mapping[str, bytes] | Iterable[tuple[str, bytes]]
"""A label for each member incarnation (and the rig), and its blocks."""

APART_SECONDS: Final = 0.5
"""Seconds from which on a difference between two members' zeros means two clocks. A smaller one may
be of one clock, when the wall clock was set."""
_MOST_COPIES: Final = 1_000_000
"""More copies of a frame than any member makes."""
_WORDS_OF_START: Final = 3
"""Name, identity and settings: the words in the text of a START."""


@contextmanager
def noting_nonsense(defects: list[str], label: str, text: str) -> Iterator[None]:
    """Note a defect if the block of code fails because a text is not the JSON object that it should
    be."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        defects.append(f"{label}: {text[:40]!r} does not say what it should: {error!r}")


class TraceReader:
    """Reads one trace after the other, and makes a member of each."""

    def __init__(self, hash64: Hash64) -> None:
        self._hash64 = hash64
        self.members: dict[int, Member] = {}
        """By short id; the rig is not among them."""
        self.rig = Member("rig", RIG)
        self.defects: list[str] = []
        self.torn: dict[int, str] = {}
        """By short id: the reason why the end of a trace is not whole."""
        self._walls: dict[int, int] = {}
        """The wall clock, in nanoseconds, when the own clock of a member, or the rig's, was 0."""

    def read_all(self, traces: Traces) -> None:
        """Read the traces of a run, and put all times on one clock."""
        for label, data in traces.items() if isinstance(traces, Mapping) else traces:
            self._read(label, data)
        # Sorted, so that of two violations at one time the same one is shown in any order of files.
        self.members = dict(sorted(self.members.items()))
        self._align_clocks()

    def _read(self, label: str, data: bytes) -> None:
        member: Member | None = None
        try:
            for block in read_blocks_untrusted(data, self._hash64):
                if member is None:
                    member = Member(label, block.member)
                    member.version = block.version
                    self._walls.setdefault(block.member, block.wall_ns)
                _add_block(member, block)
        except (BadTrace, IndexError) as error:
            if member is None or not str(error).startswith(TORN):
                self.defects.append(f"{label}: {error}")
                return
            self.torn[member.short] = str(error)
        if member is None or not member.events:
            self.defects.append(f"{label}: empty trace")
            return
        if reason := impossible(member.events):
            self.defects.append(f"{label}: {reason}")
        self._add(member)

    def _add(self, member: Member) -> None:
        twin = self.rig if member.short == RIG else self.members.get(member.short)
        if twin is not None and twin.events:
            self.defects.append(f"{member.label}: the same member as {twin.label}")
        elif member.short == RIG:
            self.rig = member
        else:
            self.members[member.short] = member
            self._introduce(member)

    def _introduce(self, member: Member) -> None:
        """Read a member's name, start and settings from its first event."""
        first = member.events[0]
        words = member.texts.get(0, "").split(" ", _WORDS_OF_START - 1)
        if first.kind != START or len(words) != _WORDS_OF_START:
            self.defects.append(f"{member.label}: does not begin with its start")
            return
        member.name = words[0]
        member.started = first.time
        with noting_nonsense(self.defects, member.label, words[-1]):
            _settle(member, json.loads(words[-1]))

    def _align_clocks(self) -> None:
        """Shift the times of members on other hosts, whose clocks have other zeros, to the clock of
        the rig. They are as exact as the wall clocks of the hosts agree."""
        if RIG not in self._walls:
            return
        for member in self.members.values():
            apart = (self._walls[member.short] - self._walls[RIG]) / 1e9
            if abs(apart) > APART_SECONDS:
                member.shift(apart)


def _add_block(member: Member, block: Block) -> None:
    """Add the next block of a member's trace; BadTrace if the block is not the next one."""
    if block.member != member.short:
        raise BadTrace("block of another member")
    if block.first != len(member.events):
        raise BadTrace(f"events {len(member.events)}..{block.first} are missing")
    for number, event in enumerate(block.events, block.first):
        if event.kind == TRUNCATED:
            raise BadTrace(describe_loss(event, block.text(event)))
        if event.text:
            member.texts[number] = block.text(event)
    member.events += block.events


def _settle(member: Member, settings: dict[str, Any]) -> None:
    """Note the bounds and settings of a member; an error if one is not what it should be."""
    member.bounds.update(_bounds(settings))
    member.historical.update(_historical(settings))
    for name, values in (settings.get("protocols") or {}).items():
        _check_protocol(values)
        member.protocols[name] = values
    for protocol in MULTICAST:
        values = member.protocols.get(wire.PROTOCOLS[protocol])
        if values is not None:
            interval = values.get("xmit_interval")
            member.intervals.append((member.started, None if interval is None else float(interval)))


def _check_protocol(values: dict[str, Any]) -> None:
    """Raise an error unless the settings of a protocol are such that checks can use them."""
    _bounds(values)
    _historical(values)
    interval, copies = values.get("xmit_interval"), values.get("copies")
    if interval is not None:
        float(interval)
    if copies is not None and (type(copies) is not int or not 0 <= copies <= _MOST_COPIES):
        raise ValueError(f"copies is {str(copies)[:20]!r}")


def _historical(settings: dict[str, Any]) -> dict[str, Any]:
    historical = settings.get("historical")
    if historical is None:
        return {}
    if not isinstance(historical, dict):
        raise ValueError(f"historical is {str(historical)[:20]!r}")
    return historical


def _bounds(settings: dict[str, Any]) -> dict[str, float | None]:
    """Return what settings promise; ValueError if a bound is no number: no check could use it."""
    bounds: dict[str, float | None] = settings.get("bounds") or {}
    for name, value in bounds.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"bound {name} is {value!r}")
        if value is not None and not float(value) >= 0:
            raise ValueError(f"bound {name} is {value}")
    return bounds
