"""Makes the parts of a run's metrics from rows of aggregates: pure, and without Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import floor, log10
from typing import Final

from stormcast.pipeline.measured import (
    FaultWindow,
    Flow,
    Grid,
    LatencyBin,
    Life,
    Pair,
    Phase,
    ResyncTimes,
    View,
    ViewSpan,
    natural,
)
from stormcast.pipeline.rows import (
    WHOLE,
    BlockedRow,
    Fault,
    LatencyRow,
    LifeRow,
    Noted,
    PairRow,
    PhaseRow,
    Span,
    TrafficRow,
    ViewRow,
    name_of,
)
from stormcast.pipeline.words import EPSILON

LONGEST_SPAN: Final = 10.0
"""The most seconds before and after a fault that are compared with it."""
SHORTEST_SPAN: Final = 1.0
_CURES: Final = frozenset({"heal", "release", "resume", "consume", "end"})
"""Words of the timeline that end a fault, and are no faults."""
_KILLS: Final = frozenset({"crash", "restart", "leave", "kill"})
_HOUR: Final = 3600.0


def grid_of(seconds: float, bins: int) -> Grid:
    """Return a grid of about `bins` bins, of a round width; the very end is in the last bin."""
    least = max(seconds, 1e-3) / bins
    scale = 10.0 ** floor(log10(least))
    width = next(step * scale for step in (1, 2, 5, 10) if step * scale >= least * (1 - 1e-9))
    return Grid(width=width, count=floor(seconds / width * (1 + 1e-9)) + 1)


def faults_of(rig: Iterable[Noted]) -> list[Fault]:
    """Read the faults of a run, with start and end; a fault that begins twice is two entries."""
    faults: list[Fault] = []
    bites: dict[str, int] = {}
    for kind, at, text in sorted(rig, key=lambda noted: noted.at):
        if kind == "probe":
            said = json.loads(text)
            bites[str(said["id"])] = int(said["bit"])
        elif kind == "fault":
            _note(faults, json.loads(text), at)
    # Bites are counted per fault id: the first entry of an id has them.
    return [fault._replace(bites=bites.pop(fault.id, None)) for fault in faults]


def _note(faults: list[Fault], said: Mapping[str, object], at: float) -> None:
    name, do, member = str(said["id"]), str(said["do"]), said.get("member")
    short = member if isinstance(member, int) else None
    if said["phase"] == "on":
        if do not in _CURES:
            faults.append(Fault(str(len(faults)), name, do, at, None, short, None))
        return
    for number, fault in enumerate(faults):
        is_meant = fault.id == name and fault.end is None
        if is_meant and (short is None or fault.member in (None, short)):
            faults[number] = fault._replace(end=at)


def spans_of(faults: Iterable[Fault], seconds: float) -> list[Span]:
    """Return the spans in which traffic is counted: the run, and before, during and after faults.

    Before and after are as long as the fault, within bounds, so that they can be compared with it.
    """
    # The span of the whole run has margins, so that it contains all events.
    spans = [Span(WHOLE, "during", -seconds - _HOUR, seconds + EPSILON)]
    for fault in faults:
        end = fault.end
        if end is None:
            end = fault.start if fault.is_over_at_once else seconds
        length = min(LONGEST_SPAN, max(SHORTEST_SPAN, end - fault.start))
        if fault.is_over_at_once:
            length = LONGEST_SPAN
        spans.append(Span(fault.key, "before", max(0.0, fault.start - length), fault.start))
        spans.append(Span(fault.key, "during", fault.start, end))
        spans.append(Span(fault.key, "after", end, min(seconds, end + length)))
    return [span for span in spans if span.end > span.start]


def phases_of(
    spans: Iterable[Span],
    counted: Iterable[PhaseRow],
    blocked: Iterable[BlockedRow],
) -> dict[tuple[str, str], Phase]:
    """Return the traffic in each span."""
    messages: dict[tuple[str, str, str], int] = {}
    acks: dict[tuple[str, str], int] = {}
    for row in counted:
        messages[row.fault, row.span, row.kind] = row.messages
        if row.kind == "acked":
            acks[row.fault, row.span] = row.events
    waited = {(row.fault, row.span): row.seconds for row in blocked}
    return {
        (fault, span): Phase(
            seconds=end - start,
            sent=messages.get((fault, span, "sent"), 0),
            delivered=messages.get((fault, span, "delivered"), 0),
            resent=messages.get((fault, span, "retransmitted"), 0),
            requested=messages.get((fault, span, "requested"), 0),
            acks=acks.get((fault, span), 0),
            blocked_seconds=waited.get((fault, span), 0.0),
        )
        for fault, span, start, end in spans
    }


def deaths_of(rig: Iterable[Noted]) -> dict[int, float]:
    """Return when members died that nobody had ended, by short id."""
    exits = [(json.loads(noted.text), noted.at) for noted in rig if noted.kind == "exit"]
    return {
        said["member"]: at
        for said, at in exits
        if not said.get("ordered") and isinstance(said.get("member"), int)
    }


def lives_of(
    rows: Iterable[LifeRow], faults: Sequence[Fault], deaths: Mapping[int, float]
) -> list[Life]:
    """Return the life of each incarnation: until it stopped, was killed, died, or the next one
    began."""
    by_age = sorted(rows, key=lambda row: row.first)
    # The first kill of a member counts: a restart, too, names the incarnation that it replaces.
    killed = {fault.member: fault.start for fault in reversed(faults) if fault.do in _KILLS}
    by_name: dict[str, list[Life]] = defaultdict(list)
    for row in by_age:
        end = row.stop if row.stop is not None else killed.get(row.short, deaths.get(row.short))
        before = by_name[row.name]
        if before and before[-1].end is None:
            previous = before.pop()
            before.append(
                Life(label=previous.label, name=row.name, start=previous.start, end=row.first)
            )
        before.append(Life(label=row.label, name=row.name, start=max(0.0, row.first), end=end))
    lives = [life for lives in by_name.values() for life in lives]
    return sorted(lives, key=lambda life: (natural(life.name), life.start))


def flows_of(
    rows: Iterable[TrafficRow],
    kind: str,
    names: Mapping[str, str],
    grid: Grid,
    pair: tuple[bool, bool],
) -> tuple[Flow, ...]:
    """Return the messages per bin; `pair` says whether to tell apart senders, and receivers."""
    flows: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row.kind != kind or not 0 <= row.bin < grid.count:
            continue
        writer, other = name_of(row.member, names), name_of(row.other or "", names)
        sender, receiver = (writer, other) if kind == "sent" else (other, writer)
        key = sender if pair[0] else "", receiver if pair[1] else ""
        flows.setdefault(key, [0] * grid.count)[row.bin] += row.messages
    return tuple(
        Flow(sender=sender, receiver=receiver, messages=tuple(messages))
        for (sender, receiver), messages in sorted(
            flows.items(), key=lambda flow: (natural(flow[0][1]), natural(flow[0][0]))
        )
    )


def latency_bins(rows: Iterable[LatencyRow]) -> tuple[list[LatencyBin], LatencyBin | None, int]:
    """Return quantiles per bin and of the whole run, and how many messages could not be timed."""
    by_bin: dict[int, list[LatencyRow]] = defaultdict(list)
    untimed = 0
    for row in rows:
        if row.bucket is None:
            untimed += row.messages
        else:
            by_bin[row.bin].append(row)
    bins = [_quantiles(number, by_bin[number]) for number in sorted(by_bin)]
    timed = [row for rows in by_bin.values() for row in rows]
    return bins, _quantiles(0, timed) if timed else None, untimed


def _quantiles(number: int, rows: Sequence[LatencyRow]) -> LatencyBin:
    ascending = sorted((row.mean or 0.0, row.messages) for row in rows)
    return LatencyBin(
        bin=number,
        messages=sum(messages for _seconds, messages in ascending),
        p50=quantile(ascending, 0.5),
        p90=quantile(ascending, 0.9),
        p99=quantile(ascending, 0.99),
        most=max(row.most or 0.0 for row in rows),
    )


def quantile(ascending: Sequence[tuple[float, int]], share: float) -> float:
    """Return the value up to which a share of the messages lies, of pairs (value, messages)."""
    wanted = share * sum(messages for _value, messages in ascending)
    seen = 0
    for value, messages in ascending:
        seen += messages
        if seen >= wanted:
            return value
    return ascending[-1][0]


def pairs_of(rows: Iterable[PairRow], names: Mapping[str, str]) -> tuple[Pair, ...]:
    """Return the traffic between each two members, by protocol."""
    sums: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row.other is None:
            continue
        writer, other = name_of(row.member, names), name_of(row.other, names)
        is_senders = row.kind in ("sent", "retransmitted")
        sender, receiver = (writer, other) if is_senders else (other, writer)
        sums[sender, receiver, row.protocol][row.kind] += row.messages
    return tuple(
        Pair(
            sender=sender,
            receiver=receiver,
            protocol=protocol,
            delivered=counts["delivered"],
            sent=counts["sent"],
            resent=counts["retransmitted"],
            requested=counts["requested"],
        )
        for (sender, receiver, protocol), counts in sorted(
            sums.items(),
            key=lambda item: (natural(item[0][0]), natural(item[0][1]), item[0][2]),
        )
        if counts["sent"] or counts["delivered"] or counts["requested"]
    )


def views_of(
    rows: Iterable[ViewRow], names: Mapping[str, str], shorts: Mapping[int, str]
) -> tuple[list[View], list[ViewSpan]]:
    """Return all views, each once, and which member held which view from when on."""
    views: dict[View, int] = {}
    spans = []
    for row in sorted(rows, key=lambda row: (row.at, row.label)):
        members = (int(member, 16) for member in row.members.split(",") if member)
        view = View(
            number=row.number,
            creator=_named(row.creator, names, shorts) if row.creator else None,
            members=tuple(_named(member, names, shorts) for member in members),
        )
        number = views.setdefault(view, len(views))
        name = name_of(row.label, names)
        spans.append(
            ViewSpan(name=name, label=row.label, start=row.at, view=number, is_merge=row.is_merge)
        )
    return list(views), spans


def _named(short: int, names: Mapping[str, str], shorts: Mapping[int, str]) -> str:
    return name_of(shorts.get(short, f"{short:x}"), names)


def window_of(
    fault: Fault,
    shorts: Mapping[int, str],
    names: Mapping[str, str],
    phases: Mapping[tuple[str, str], Phase],
    resync: ResyncTimes | None,
) -> FaultWindow:
    """Return a fault with its measurements."""
    member = None if fault.member is None else _named(fault.member, names, shorts)
    return FaultWindow(
        id=fault.id,
        do=fault.do,
        start=fault.start,
        end=fault.end,
        is_over_at_once=fault.is_over_at_once,
        member=member,
        bites=fault.bites,
        before=phases.get((fault.key, "before")),
        during=phases.get((fault.key, "during")),
        after=phases.get((fault.key, "after")),
        resync=resync,
    )
