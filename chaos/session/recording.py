"""The record of a run, made from its traces and from what the rig saw of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import Backend, Observes
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session.facts import facts_of, resync_of
from stormcast.chaos.session.nemesis import Nemesis
from stormcast.chaos.session.record import RunRecord
from stormcast.node.core.errors import NodeError
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import GAUGE, OUTBOX_BYTES

GAUGE_SECONDS: Final = 0.2
"""Seconds that members have to write the gauges that they are asked for at the end."""


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
    return RunRecord(
        traces=traces,
        evidence=evidence,
        events=facts.events,
        seconds=max(0.0, round(evidence.rig.end - evidence.begin, 9)) if traces else 0.0,
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
