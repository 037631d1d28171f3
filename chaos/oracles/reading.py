"""Traces read: the members that wrote them, and what is wrong with what they wrote.

A torn, foreign, truncated or empty trace is evidence of nothing, because every check also concludes
from what is not there. The one exception: the last block of a member that the rig killed may be
torn, since a block is written before the frames of its turn leave, and so nobody has seen what it
lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import RIG, Member
from stormcast.node.core import wire
from stormcast.node.core.codec import Hash64
from stormcast.node.core.errors import BadTrace
from stormcast.node.trace import START, TRUNCATED, Block, describe_loss, read_blocks_untrusted

Traces = Mapping[str, bytes] | Iterable[tuple[str, bytes]]
"""A label for each member incarnation (and the rig), and its blocks."""

APART_SECONDS: Final = 0.5
"""From here on two clocks are two: less is what setting the wall clock makes of one."""
_WORDS_OF_START: Final = 3
"""Name, identity, settings."""


@contextmanager
def noting_nonsense(defects: list[str], label: str, text: str) -> Iterator[None]:
    """Note a defect where a text, used as the JSON object that it should be, turns out to be
    something else."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        defects.append(f"{label}: {text[:40]!r} does not say what it should: {error!r}")


class TraceReader:
    """Makes members of traces, one trace after the other."""

    def __init__(self, hash64: Hash64) -> None:
        self._hash64 = hash64
        self.members: dict[int, Member] = {}
        """By short id; the rig apart."""
        self.rig = Member("rig", RIG)
        self.defects: list[str] = []
        self.torn: dict[int, str] = {}
        """By short id: how a trace ends that is not whole."""
        self._walls: dict[int, int] = {}
        """The wall clock in nanoseconds at the zero of each member's own, and the rig's."""

    def read_all(self, traces: Traces) -> None:
        """Read the traces of a run, and put all times on one clock."""
        for label, data in traces.items() if isinstance(traces, Mapping) else traces:
            self._read(label, data)
        # In whatever order files are read, of two violations at one time the same one is shown.
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
            if member is None or not str(error).startswith("torn"):
                self.defects.append(f"{label}: {error}")
                return
            self.torn[member.short] = str(error)
        if member is None:
            self.defects.append(f"{label}: empty trace")
        else:
            self._add(member)

    def _add(self, member: Member) -> None:
        if member.short == RIG:
            self.rig = member
        elif member.short in self.members:
            twin = self.members[member.short].label
            self.defects.append(f"{member.label}: the same member as {twin}")
        else:
            self.members[member.short] = member
            self._introduce(member)

    def _introduce(self, member: Member) -> None:
        """Who a member is and what it promises, from its first event."""
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
        """Members of other hosts have clocks with other zeros: make all times those of the rig,
        as far as wall clocks agree."""
        if RIG not in self._walls:
            return
        for member in self.members.values():
            apart = (self._walls[member.short] - self._walls[RIG]) / 1e9
            if abs(apart) > APART_SECONDS:
                member.shift(apart)


def _add_block(member: Member, block: Block) -> None:
    """The events of the next block of a member's trace; BadTrace if that is not what it is."""
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
    """What a member's settings say."""
    member.bounds.update(settings.get("bounds") or {})
    member.protocols.update(settings.get("protocols") or {})
    member.historical.update(settings.get("historical") or {})
    for protocol in MULTICAST:
        values = member.protocols.get(wire.PROTOCOLS[protocol])
        if values is not None:
            interval = values.get("xmit_interval")
            member.intervals.append((member.started, None if interval is None else float(interval)))
