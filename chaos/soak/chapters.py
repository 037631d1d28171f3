"""Chapters: the traces of a run without end, in parts that are each a whole run to the checks.

A chapter begins with the prologue of what came before (`chaos/oracles/prologue.py`), and goes on
with all that was written since. It ends at a moment of rest; where there was none, it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.prologue import prologue
from stormcast.chaos.oracles.reading import APART_SECONDS
from stormcast.node.trace.files import (
    blocks_from,
    count_events,
    next_number,
    shifted,
    split_rest,
    wall_of,
)

RIG: Final = "rig"


class Chapters:
    """The chapter that is being written: the prologue, and the blocks of each trace since then."""

    def __init__(self) -> None:
        self._prologue: dict[str, bytes] = {}
        self._since: dict[str, bytes] = {}
        self._rests: dict[str, bytes] = {}
        """The bytes behind the last whole block of each trace: of a torn one, or damage."""
        self._told_rests: dict[str, bytes] = {}
        """Those of them that an earlier chapter ended with."""
        self._walls: dict[str, int] = {}
        """The wall clock when the own clock of each trace showed 0, in nanoseconds."""
        self.read: dict[str, int] = {}
        """The number of events of each trace that were added, by label."""
        self._begun_at: dict[str, int] = {}
        """The number of them that came before this chapter."""

    def add(self, traces: Mapping[str, bytes], rig: bytes) -> None:
        """Add what is new in the traces of members, by label, and what the rig wrote since the last
        call, numbered from 0. Of members all may be given again, or what is left of it."""
        new = {label: blocks_from(data, self.read.get(label, 0)) for label, data in traces.items()}
        new[RIG] = shifted(rig, self.read.get(RIG, 0))
        for label, data in new.items():
            whole, self._rests[label] = split_rest(data)
            if not whole:
                continue
            if label not in self._walls:
                self._walls[label] = wall_of(whole)
            self._since[label] = self._since.get(label, b"") + whole
            self.read[label] = max(next_number(whole), self.read.get(label, 0))

    def traces(self) -> dict[str, bytes]:
        """Return the traces of the chapter, each numbered from 0."""
        return {label: self._trace(label) for label in self._labels()}

    def _labels(self) -> Iterator[str]:
        rests = (label for label in self._rests if self._rest(label))
        yield from dict.fromkeys((*self._prologue, *self._since, *rests))

    def _rest(self, label: str) -> bytes:
        """Return what a trace ends with besides whole blocks, unless it was told before: who was
        killed amid a block has it for ever."""
        rest = self._rests.get(label, b"")
        return rest if rest != self._told_rests.get(label) else b""

    def _trace(self, label: str) -> bytes:
        before = self._prologue.get(label, b"")
        # A gap in the numbers stays one: those events are lost, and the chapter proves nothing.
        by = count_events(before) - self._begun_at.get(label, 0)
        return before + shifted(self._since.get(label, b""), by) + self._rest(label)

    def turn(self, evidence: Evidence) -> None:
        """End the chapter, whose evidence is given, at a moment of rest, and write the prologue of
        the next one."""
        told = prologue(evidence, evidence.rig.end)
        self._prologue = {
            label: one.packed(self._walls[label], self._ahead(label), xxh3_64_intdigest)
            for label, one in told.items()
            if one.events
        }
        self._since, self._told_rests = {}, self._rests
        self._rests = {}
        self._begun_at = dict(self.read)

    def _ahead(self, label: str) -> float:
        """Return by how many seconds the evidence has shifted the times of a trace."""
        apart = (self._walls[label] - self._walls[RIG]) / 1e9
        return apart if abs(apart) > APART_SECONDS else 0.0
