"""The record of a run, made from its traces and from what the rig saw of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol, runtime_checkable

from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import Backend, BackendError, Bites, Observes
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.records.rig_trace import RigTrace, wall_at_zero
from stormcast.chaos.session.exits import Exits
from stormcast.chaos.session.facts import facts_of, resync_of
from stormcast.chaos.session.nemesis import Nemesis
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.roster import Roster
from stormcast.node.core.errors import NodeError
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import GAUGE, OUTBOX_BYTES

GAUGE_SECONDS: Final = 0.2
"""Seconds that members have to write the gauges that they are asked for at the end."""
Whole = Callable[[Mapping[str, bytes]], dict[str, bytes]]
"""Takes the traces of members and rig that are there, and returns those of the whole."""


@runtime_checkable
class StandsStill(Protocol):
    """A backend that knows when its machine let no member run."""

    def standstills(self) -> list[tuple[float, float]]:
        """Return start and end of each standstill, on the clock that all members share."""
        ...


@dataclass(slots=True)
class Ending:
    """The way in which a run came to its end."""

    complete: bool = False
    is_unsettled: bool = False
    is_cut_short: bool = False
    start: float = 0.0
    at: float = 0.0
    """Start and end by the backend's clock."""
    late: float = 0.0
    """The most seconds by which a step or a load came late."""
    load_errors: tuple[str, ...] = ()
    """Errors that ended loads before all their messages were offered."""
    unsent: tuple[str, ...] = ()
    """Lines about the messages left of loads that did not end."""


class Recorder:
    """Makes the records of the scenarios that one cluster plays, one after the other."""

    def __init__(self, backend: Backend, roster: Roster, exits: Exits) -> None:
        self._backend = backend
        self._roster = roster
        self._exits = exits
        self.wall_ns = 0
        """The wall clock at the zero of the backend's clock."""
        self._since = -inf
        """When the scenario before, if there was one, was over, by the backend's clock."""
        self._wrong: dict[int, int] = {}
        """By short id, the messages that nobody sent, and of which somebody was told."""

    def record(self, nemesis: Nemesis, ending: Ending, whole: Whole | None) -> RunRecord:
        """Make the record of a scenario that has been played; the run is over, unless it is `whole`
        that says what belongs to the record."""
        nemesis.member_rules.count()
        ending.at = self._backend.now()
        nemesis.rig.phase(ending.at, "end")
        # After that moment: what windows still hold is then what they hold at the end (G5).
        mismatches = self._last_words()
        self._exits.look()
        if whole is None:
            self._backend.freeze()
            self._exits.look(is_over=True)
        else:
            # Nobody renews the network's lease while the record is made and judged.
            self._backend.clear()
        bites = self._note_what_was_seen(nemesis, ending.at)
        traces = self._with_rig(nemesis.rig, dict(self._backend.collect()))
        if whole is not None:
            traces = whole(traces)
        self._since = ending.at
        return record_of(self._backend, nemesis, bites, ending, traces, mismatches)

    def broken_off(self, rig: RigTrace, error: NodeError) -> RunRecord:
        """Make the record of a run that cannot go on: why, and, if all members could be frozen, the
        traces up to then."""
        traces: dict[str, bytes] = {}
        with suppress(NodeError, OSError):
            self._exits.look()
        rig.phase(self._backend.now(), "end")
        is_frozen = False
        with suppress(NodeError, OSError):
            self._backend.freeze()
            is_frozen = True
        with suppress(NodeError, OSError):
            self._exits.look(is_over=True)
        with suppress(NodeError, OSError):
            collected = self._backend.collect()
            if is_frozen:
                # Else members go on while journals are fetched: each journal ends at another time,
                # so messages would seem lost, or delivered and never sent.
                traces |= collected
        return broken_record(self._backend, rig, self._with_rig(rig, traces), error)

    def _last_words(self) -> list[str]:
        """Have members write their gauges; return what they say of messages that nobody sent."""
        mismatches = []
        for name, state in self._roster.states().items():
            wrong, short = int(state["workload"]["mismatches"]), int(state["short"], 16)
            if wrong > self._wrong.get(short, 0):
                new = wrong - self._wrong.get(short, 0)
                mismatches.append(f"{name} got {new} messages that nobody sent")
                self._wrong[short] = wrong
            with suppress(BackendError):
                # A member that cannot any more writes no gauges, and its journal shows why.
                self._roster.ask(name, "POST", "/gauge", {})
        self._backend.wait(GAUGE_SECONDS)
        return mismatches

    def _note_what_was_seen(self, nemesis: Nemesis, at: float) -> dict[str, int]:
        """Write into the rig's trace what the backend saw of the run; return the bites."""
        rig = nemesis.rig
        spans = self._backend.standstills() if isinstance(self._backend, StandsStill) else []
        for start, end in spans:
            for short in self._roster.names if end > self._since else ():
                rig.stood_still(start, end, short)
        if isinstance(self._backend, Observes):
            for what in self._backend.observed().overheard:
                rig.overheard(what)
        bites = nemesis.bites()
        for fault in rig.kinds:
            rig.probe(at, fault, bites[fault])
        return bites

    def _with_rig(self, rig: RigTrace, traces: dict[str, bytes]) -> dict[str, bytes]:
        """Add the rig's trace to those of members."""
        self._exits.write(rig, traces)
        traces["rig"] = rig.blocks(self.wall_ns)
        return traces


def record_of(
    backend: Backend,
    nemesis: Nemesis,
    bites: dict[str, int],
    ending: Ending,
    traces: dict[str, bytes],
    mismatches: list[str],
) -> RunRecord:
    """Make the record of a run that came to its end, or was ended early."""
    evidence = Evidence.from_blocks(traces, xxh3_64_intdigest)
    facts = facts_of(evidence, ending.start)
    healed = nemesis.effects.last_heal
    end = round(ending.at - ending.start, 9)
    has_backlog = _has_backlog(evidence, ending.at - 2 * GAUGE_SECONDS)
    is_over = ending.complete and not has_backlog
    seen = backend.observed() if isinstance(backend, Observes) else None
    return RunRecord(
        traces=traces,
        evidence=evidence,
        events=facts.events if seen is None else seen.events,
        seconds=end,
        sent=facts.sent,
        delivered=facts.delivered,
        bites=bites,
        kinds=dict(nemesis.rig.kinds),
        mismatches=mismatches if seen is None else list(seen.mismatches),
        sent_by_pair=facts.sent_by_pair,
        reached=facts.reached,
        reached_of_sent=facts.reached_of_sent,
        complete=is_over and not ending.is_unsettled,
        stalled_for=end - facts.last_arrival if has_backlog else 0.0,
        views=facts.views,
        lives=facts.lives,
        control={} if seen is None else dict(seen.control),
        control_most={} if seen is None else dict(seen.control_most),
        backend=backend.name,
        bites_by_pair={fault: pairs for fault, pairs in backend.bites().items() if fault in bites},
        resync=None if healed is None else resync_of(evidence, healed, ending.start),
        notes=_notes(nemesis),
        is_cut_short=ending.is_cut_short,
        is_unsettled=is_over and ending.is_unsettled,
        late=ending.late,
        load_errors=ending.load_errors,
        unsent=ending.unsent,
    )


def broken_record(
    backend: Backend, rig: RigTrace, traces: dict[str, bytes], error: NodeError
) -> RunRecord:
    """Make the record of a run that could not go on: with what was done until then, as far as the
    traces tell it."""
    evidence = Evidence.from_blocks(traces, xxh3_64_intdigest)
    facts = facts_of(evidence, evidence.begin)
    # If not even a member had started, nobody noted when the run began.
    has_begun = evidence.rig.begin is not None or bool(evidence.members)
    return RunRecord(
        traces=traces,
        evidence=evidence,
        events=facts.events,
        seconds=max(0.0, round(evidence.rig.end - evidence.begin, 9)) if has_begun else 0.0,
        sent=facts.sent,
        delivered=facts.delivered,
        bites={},
        kinds=dict(rig.kinds),
        mismatches=[],
        sent_by_pair={},
        reached={},
        complete=False,
        stalled_for=0.0,
        backend=backend.name,
        broke_off=" ".join(str(error).split()),
    )


def foreign_record(
    rig: RigTrace,
    began: float,
    ended: float,
    backend: str,
    bites: Mapping[str, int],
    struck: Bites,
    **more: Any,  # noqa: ANN401 fields of the record
) -> RunRecord:
    """Make the record of a run of programs that write no traces, from what the rig did to them;
    `struck`: the bites of faults of the network, per sender and receiver."""
    traces = {"rig": rig.blocks(wall_at_zero(ended))}
    return RunRecord(
        traces=traces,
        evidence=Evidence.from_blocks(traces, xxh3_64_intdigest),
        events=0,
        seconds=round(ended - began, 3),
        sent=0,
        delivered=0,
        bites=dict(bites),
        kinds=dict(rig.kinds),
        mismatches=[],
        sent_by_pair={},
        reached={},
        stalled_for=0.0,
        backend=backend,
        bites_by_pair={fault: dict(pairs) for fault, pairs in struck.items()},
        **more,
    )


def _notes(nemesis: Nemesis) -> tuple[str, ...]:
    rules = sorted(nemesis.member_rules.begun)
    return (f"done inside the members: {', '.join(rules)}",) if rules else ()


def _has_backlog(evidence: Evidence, since: float) -> bool:
    """Whether a member that lived to the end still held messages, for its group or for another
    member that lived to the end, which it had not sent."""
    living = {GROUP, *(one.short for one in evidence.members.values() if one.ended == inf)}
    return any(
        event.kind == GAUGE
        and event.stream == OUTBOX_BYTES
        and event.time >= since
        and event.lo > 0
        and event.peer in living
        and member.ended == inf
        for member, event in evidence.gauges
    )
