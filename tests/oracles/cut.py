"""Cuts a run into chapters at any moments, as a soak does at moments of rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.rest import unrest
from stormcast.chaos.oracles.verdict import Judgement, Verdict, judge
from stormcast.chaos.soak.chapters import RIG, Chapters
from stormcast.node.trace import PHASE, Event, pack_block, pack_text, read_blocks_untrusted
from tests.oracles.corpus import Budget
from tests.oracles.story import as_version_1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One event of a trace, with all that its block says."""

    short: int
    wall_ns: int
    version: int
    event: Event
    text: str

    @property
    def is_end(self) -> bool:
        return self.event.kind == PHASE and self.text == "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A chapter that ended at a moment of rest, or with the run."""

    ends: float
    traces: dict[str, bytes]
    judgement: Judgement


@dataclass(slots=True)
class _Trace:
    """A trace, and how much of it was written by now."""

    records: list[Record]
    written: int = 0
    blocks: bytes = b""

    def until(self, time: float) -> list[Record]:
        """Return the records up to the first that is later, but those that were taken before."""
        upto = self.written
        while upto < len(self.records) and self.records[upto].event.time <= time:
            upto += 1
        new, self.written = self.records[self.written : upto], upto
        return new


@dataclass(slots=True)
class _Run:
    """A run that is written moment by moment."""

    traces: dict[str, _Trace]
    chapters: Chapters = field(default_factory=Chapters)

    def write(self, until: float) -> None:
        """Write what happened up to a moment; if the run goes on, the rig says that a window ends
        here."""
        members: dict[str, bytes] = {}
        rig = b""
        for label, trace in self.traces.items():
            first, new = trace.written, trace.until(until)
            if label == RIG:
                rig = _packed([*new, *self._end_of_window(new, until)], 0)
            else:
                trace.blocks += _packed(new, first)
                members[label] = trace.blocks
        self.chapters.add({label: data for label, data in members.items() if data}, rig)

    def _end_of_window(self, new: Sequence[Record], until: float) -> Iterator[Record]:
        if until < inf and not any(record.is_end for record in new):
            end = next(record for record in self.traces[RIG].records if record.is_end)
            yield Record(
                short=end.short,
                wall_ns=self.traces[RIG].records[0].wall_ns,
                version=end.version,
                event=end.event._replace(time=until),
                text=end.text,
            )

    def names_one_to_come(self) -> bool:
        """Whether anybody has to do with a member that has yet to start: in a soak nobody has."""
        waiting = (one for one in self.traces.values() if not one.written)
        to_come = {one.records[0].short for one in waiting} - {0}
        written = (one for trace in self.traces.values() for one in trace.records[: trace.written])
        return any(record.event.peer in to_come for record in written)

    def turn(self, evidence: Evidence) -> None:
        """End the chapter. A member whose trace is of version 1 has its past told in version 1."""
        self.chapters.turn(evidence)
        told = self.chapters._prologue
        for label, data in told.items():
            if self.traces[label].records[0].version == 1 and label != RIG:
                told[label] = as_version_1(data)


def moments_of(blocks: Mapping[str, bytes]) -> list[float]:
    """Return the times at which anything happened before the run was over, ascending."""
    records = [record for data in blocks.values() for record in _records(data)]
    end = next(record.event.time for record in records if record.is_end)
    return sorted({one.event.time for one in records if one.event.time < end})


def chapters_of(
    blocks: Mapping[str, bytes], cuts: Sequence[float], budget: Budget | None = None
) -> Iterator[Chapter]:
    """Yield the chapters of a run: one ends at each of these moments where all is at rest and holds
    so far, and the last one with the run. A budget is for the whole run."""
    run = _Run({label: _Trace([*_records(data)]) for label, data in blocks.items()})
    for cut in (*sorted(cuts), inf):
        run.write(cut)
        traces = run.chapters.traces()
        evidence = Evidence.from_blocks(traces, hash64)
        is_last = cut == inf
        goes_on = evidence.defects or run.names_one_to_come() or unrest(evidence)
        if goes_on and not is_last:
            continue
        judgement = judge(evidence, budget=budget if is_last else None)
        violated = any(one.verdict is Verdict.VIOLATED for one in judgement.findings)
        if violated and not is_last:
            # A window of a soak lasts until all should be well.
            continue
        yield Chapter(ends=cut, traces=traces, judgement=judgement)
        if not is_last:
            run.turn(evidence)


def _records(data: bytes) -> Iterator[Record]:
    for block in read_blocks_untrusted(data, hash64):
        for event in block.events:
            yield Record(
                short=block.member,
                wall_ns=block.wall_ns,
                version=block.version,
                event=event,
                text=block.text(event),
            )


def _packed(records: Sequence[Record], first: int) -> bytes:
    if not records:
        return b""
    events, heap, texts = list[Event](), b"", 0
    for record in records:
        if record.text:
            texts += 1
            heap += pack_text(record.text)
        events.append(record.event._replace(text=texts if record.text else 0))
    one = records[0]
    block = pack_block(one.short, first, one.wall_ns, events, heap, hash64)
    return as_version_1(block) if one.version == 1 else block
