"""Collects all metrics of runs from Spark, into one object per run: only aggregated or thinned rows
leave Spark, and every query is made once for all runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import inf
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stormcast.pipeline import gather, measured, metrics
from stormcast.pipeline.halves import Runs, in_halves
from stormcast.pipeline.measured import (
    Grid,
    Life,
    Mark,
    Metrics,
    Pair,
    Phase,
    Track,
    View,
    ViewSpan,
)
from stormcast.pipeline.resync import one_view_at, resync_of
from stormcast.pipeline.rows import (
    WHOLE,
    BlockedRow,
    Fault,
    LatencyRow,
    LifeRow,
    Noted,
    OfferRow,
    PairRow,
    PhaseRow,
    ReturnRow,
    Span,
    TrafficRow,
    ViewRow,
)
from stormcast.pipeline.side_by_side import side_by_side
from stormcast.pipeline.tables.buckets import Buckets
from stormcast.pipeline.tables.by_kind import MANY
from stormcast.pipeline.tables.kept import given, keep

BINS: Final = 120
"""The approximate number of bins of charts over time."""
SEQUENCE_BINS: Final = 240
SEQUENCES: Final = 12
"""The most sequence charts of a run."""
FAULTS: Final = 48
"""The most faults that are measured one by one."""
VIEWS: Final = 2_000
"""The most installations of views that are shown."""
TELL_APART: Final = 16
"""Deliveries are counted by sender in runs with at most so many members."""
SHOWN_AFTER: Final = 1.03
"""The length of charts, as a multiple of the time up to the last event worth showing."""

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""Rows of aggregates by run."""


class _Extent(NamedTuple):
    """The extent of a run, by its own clock."""

    events: int
    begin: float | None
    first: float | None
    last: float | None
    busy: float | None
    widest: int | None = None

    @property
    def origin(self) -> float:
        """The time at which the run began."""
        return self.first or 0.0 if self.begin is None else self.begin

    @property
    def seconds(self) -> float:
        return max(0.0, (self.last or 0.0) - self.origin)

    @property
    def shown(self) -> float:
        """Seconds that charts show."""
        busy = self.seconds if self.busy is None else self.busy - self.origin
        return min(self.seconds, max(0.0, busy) * SHOWN_AFTER)


@dataclass(frozen=True)
class _KnownRun:
    """The facts of a run that are collected before its faults are measured."""

    run: str
    extent: _Extent
    marks: Mapping[str, float]
    """By phase: the time at which it began."""
    faults: list[Fault]
    names: dict[str, str]
    """Names of members, by label."""
    shorts: dict[int, str]
    """Labels by short id."""
    lives: list[Life]
    views: list[View]
    view_spans: list[ViewSpan]
    views_until: float
    """The time until which all views are among them."""
    pairs: tuple[Pair, ...]

    def one_view_at(self, healed: float) -> float | None:
        """Return when all were in one view after a heal; None: never, or not known."""
        if healed > self.views_until:
            return None
        return one_view_at(healed, self.lives, self.views, self.view_spans)

    @property
    def grid(self) -> Grid:
        return gather.grid_of(self.extent.shown, BINS)

    @property
    def fine(self) -> Grid:
        return gather.grid_of(self.extent.shown, SEQUENCE_BINS)

    @property
    def measured(self) -> list[Fault]:
        """The faults that are measured one by one."""
        return self.faults[:FAULTS]

    @property
    def spans(self) -> list[Span]:
        return gather.spans_of(self.measured, self.extent.seconds)


def measure(events: DataFrame, run: str) -> Metrics:
    """Measure one run; to measure several together is cheaper."""
    return measure_runs(events, [run])[run]


def measure_runs(events: DataFrame, runs: Sequence[str]) -> dict[str, Metrics]:
    """Measure runs: rows of docs/trace-format.md, on one clock (`tables/clock.py`)."""
    extents = dict.fromkeys(runs, _Extent(0, None, None, None, None))
    for row in metrics.extents(events).collect():
        extents[row["run"]] = _Extent(*row[1:])
    every = metrics.since(events, _grids(events, extents))
    timed = keep(metrics.shown(every))
    delivered = keep(metrics.deliveries(timed, _buckets(extents.values())))
    return _measured(every, timed, delivered, extents)


def _buckets(extents: Collection[_Extent]) -> Buckets | None:
    if sum(extent.events for extent in extents) < MANY:
        return None
    return Buckets(max(extent.widest or 0 for extent in extents))


def measure_in_halves(events: DataFrame, runs: Runs) -> tuple[dict[str, Metrics], dict[str, str]]:
    """As `measure_runs`; of runs that cannot be measured, return the reasons."""

    def of_some(some: Runs) -> dict[str, Metrics]:
        told = events if some == runs else events.where(F.col("run").isin(*some))
        return measure_runs(told, some)

    found, failed = in_halves(events.sparkSession, runs, of_some)
    return {run: metrics for some in found for run, metrics in some.items()}, failed


def chosen(pairs: Sequence[Pair]) -> list[Pair]:
    """Choose the pairs for sequence charts: of each protocol in turn, those with most repairs, then
    those with most traffic."""
    by_protocol: dict[str, list[Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: (-pair.repaired, -pair.delivered)):
        if pair.sender != pair.receiver and pair.delivered:
            by_protocol.setdefault(pair.protocol, []).append(pair)
    in_turn = zip_longest(*by_protocol.values())
    return [pair for each in in_turn for pair in each if pair is not None][:SEQUENCES]


def _grids(events: DataFrame, extents: Mapping[str, _Extent]) -> DataFrame:
    """Return the time at which each run began, and the widths of its bins."""
    rows = [
        (
            run,
            extent.origin,
            gather.grid_of(extent.shown, BINS).width,
            gather.grid_of(extent.shown, SEQUENCE_BINS).width,
        )
        for run, extent in extents.items()
    ]
    return given(
        events.sparkSession, rows, "run string, origin double, width double, fine_width double"
    )


def _measured(
    every: DataFrame, events: DataFrame, delivered: DataFrame, extents: Mapping[str, _Extent]
) -> dict[str, Metrics]:
    spark = events.sparkSession
    rows = side_by_side(
        spark,
        {
            "traffic": lambda: _collect(metrics.traffic(events)),
            "latencies": lambda: _collect(metrics.latencies(delivered)),
            "noted": lambda: _collect(metrics.noted(events)),
            "lives": lambda: _collect(metrics.lives(every)),
            "installed": lambda: _collect(metrics.installed(events, VIEWS)),
            "pairs": lambda: _collect(metrics.pairs(events)),
        },
    )
    told = list(_tell(rows, extents))
    works: dict[str, Callable[[], Any]] = {
        "phases": lambda: _phases(events, told),
        "resyncs": lambda: _resyncs(events, delivered, told),
        "sequences": lambda: _sequences(events, told),
    }
    done = side_by_side(spark, works)
    phases, resyncs, sequences = done["phases"], done["resyncs"], done["sequences"]
    traffic, latencies = rows["traffic"], rows["latencies"]
    return {
        each.run: _assembled(
            each,
            [TrafficRow._make(row) for row in traffic.get(each.run, ())],
            [LatencyRow._make(row) for row in latencies.get(each.run, ())],
            phases[each.run],
            resyncs[each.run],
            sequences[each.run],
        )
        for each in told
    }


def _assembled(
    told: _KnownRun,
    cube: list[TrafficRow],
    latencies: list[LatencyRow],
    phases: Mapping[tuple[str, str], Phase],
    resyncs: Mapping[str, measured.ResyncTimes],
    sequences: tuple[measured.Sequence, ...],
) -> Metrics:
    names, grid, seconds = told.names, told.grid, told.extent.seconds
    latency, latency_whole, untimed = gather.latency_bins(latencies)
    by_sender = len(set(names.values())) <= TELL_APART
    return Metrics(
        schema=measured.SCHEMA,
        run=told.run,
        seconds=seconds,
        events=told.extent.events,
        quiet=told.marks.get("quiet"),
        grid=grid,
        sequence_grid=told.fine,
        lives=tuple(told.lives),
        whole=replace(phases[WHOLE, "during"], seconds=seconds),
        faults=tuple(
            gather.window_of(fault, told.shorts, names, phases, resyncs.get(fault.key))
            for fault in told.faults
        ),
        sent=gather.flows_of(cube, "sent", names, grid, (True, False)),
        heard=gather.flows_of(cube, "delivered", names, grid, (by_sender, True)),
        resent=_total(gather.flows_of(cube, "retransmitted", names, grid, (False, False))),
        requested=_total(gather.flows_of(cube, "requested", names, grid, (False, False))),
        latency=tuple(latency),
        latency_whole=latency_whole,
        untimed=untimed,
        views=tuple(told.views),
        view_spans=tuple(told.view_spans),
        pairs=told.pairs,
        sequences=sequences,
    )


def _tell(rows: Mapping[str, Rows], extents: Mapping[str, _Extent]) -> Iterator[_KnownRun]:
    """Yield for each run its members, faults, views and pairs."""
    rig, people = rows["noted"], rows["lives"]
    installed, pairs = rows["installed"], rows["pairs"]
    for run, extent in extents.items():
        noted = [Noted._make(row) for row in rig.get(run, ())]
        lives = [LifeRow._make(row) for row in people.get(run, ())]
        names = {row.label: row.name for row in lives}
        shorts = {row.short: row.label for row in lives}
        faults = gather.faults_of(noted)
        view_rows = [ViewRow._make(row) for row in installed.get(run, ())]
        views, view_spans = gather.views_of(view_rows, names, shorts)
        yield _KnownRun(
            run=run,
            extent=extent,
            marks={each.text: each.at for each in noted if each.kind == "phase"},
            faults=faults,
            names=names,
            shorts=shorts,
            lives=gather.lives_of(lives, faults, gather.deaths_of(noted)),
            views=views,
            view_spans=view_spans,
            views_until=max(row.at for row in view_rows) if len(view_rows) == VIEWS else inf,
            pairs=gather.pairs_of([PairRow._make(row) for row in pairs.get(run, ())], names),
        )


def _phases(
    events: DataFrame, told: Sequence[_KnownRun]
) -> dict[str, dict[tuple[str, str], Phase]]:
    """Return the traffic of each run, and that before, during and after each of its faults."""
    spans = given(
        events.sparkSession,
        [(each.run, *span) for each in told for span in each.spans],
        "run string, fault string, span string, start double, end double",
    )
    counted = _collect(metrics.phases(events, spans))
    waited = _collect(metrics.blocked_within(metrics.blocked(events), spans))
    return {
        each.run: gather.phases_of(
            each.spans,
            [PhaseRow._make(row) for row in counted.get(each.run, ())],
            [BlockedRow._make(row) for row in waited.get(each.run, ())],
        )
        for each in told
    }


def _resyncs(
    events: DataFrame, delivered: DataFrame, told: Sequence[_KnownRun]
) -> dict[str, dict[str, measured.ResyncTimes]]:
    """Return for each fault that ended how fast the pairs and the group recovered."""
    healed = [
        (each.run, fault.key, fault.end)
        for each in told
        for fault in each.measured
        if fault.end is not None
    ]
    found: dict[str, dict[str, measured.ResyncTimes]] = {each.run: {} for each in told}
    if not healed:
        return found
    heals = given(events.sparkSession, healed, "run string, fault string, healed double")
    returns, offers = (
        _collect(metrics.returns(delivered, heals)),
        _collect(metrics.offers(events, heals)),
    )
    of_run = {each.run: each for each in told}
    for run, key, at in healed:
        each = of_run[run]
        found[run][key] = resync_of(
            at,
            [row for row in map(ReturnRow._make, returns.get(run, ())) if row.fault == key],
            [row for row in map(OfferRow._make, offers.get(run, ())) if row.fault == key],
            each.names,
            each.one_view_at(at),
        )
    return found


def _sequences(
    events: DataFrame, told: Sequence[_KnownRun]
) -> dict[str, tuple[measured.Sequence, ...]]:
    """Return the sequence charts of the chosen pairs of each run."""
    pairs = {each.run: chosen(each.pairs) for each in told}
    wanted = [(each.run, *pair) for each in told for pair in _by_label(each, pairs[each.run])]
    if not wanted:
        return {each.run: () for each in told}
    frame = given(
        events.sparkSession, wanted, "run string, protocol string, sender string, receiver string"
    )
    rows = _collect(metrics.sequences(events, frame))
    return {
        each.run: tuple(
            measured.Sequence(
                sender=pair.sender,
                receiver=pair.receiver,
                protocol=pair.protocol,
                tracks=_tracks(each, pair, rows.get(each.run, ())),
            )
            for pair in pairs[each.run]
        )
        for each in told
    }


def _by_label(told: _KnownRun, pairs: Sequence[Pair]) -> Iterator[tuple[str, str, str]]:
    """Yield all incarnations of these pairs."""
    for pair in pairs:
        for sender, name in told.names.items():
            for receiver, other in told.names.items():
                if (name, other) == (pair.sender, pair.receiver):
                    yield pair.protocol, sender, receiver


def _tracks(told: _KnownRun, wanted: Pair, rows: Sequence[tuple[Any, ...]]) -> tuple[Track, ...]:
    tracks: dict[tuple[str, int], list[Mark]] = {}
    for protocol, sender, receiver, kind, conn, at, lo, hi in sorted(rows):
        pair = told.names[sender], told.names[receiver], protocol
        is_shown = 0 <= at < told.fine.count
        if is_shown and pair == (wanted.sender, wanted.receiver, wanted.protocol):
            tracks.setdefault((kind, conn), []).append(Mark(bin=at, lo=lo, hi=hi))
    return tuple(
        Track(kind=kind, conn=conn, marks=tuple(sorted(marks, key=lambda mark: mark.bin)))
        for (kind, conn), marks in sorted(tracks.items())
    )


def _total(flows: Sequence[measured.Flow]) -> tuple[int, ...]:
    return flows[0].messages if flows else ()


def _collect(frame: DataFrame) -> Rows:
    """Collect aggregates by run; `run` is their first column."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for row in frame.collect():
        rows.setdefault(row[0], []).append(tuple(row)[1:])
    return rows
