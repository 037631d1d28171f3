"""Computes how connections and the group recovered after a fault (G8): pure, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from stormcast.pipeline.measured import Life, PairTime, ResyncTimes, View, ViewSpan
from stormcast.pipeline.rows import OfferRow, ReturnRow, name_of
from stormcast.pipeline.words import EPSILON


def one_view_at(
    healed: float,
    lives: Sequence[Life],
    views: Sequence[View],
    spans: Sequence[ViewSpan],
) -> float | None:
    """Return the first time, from `healed` on, at which all living members hold one view of just
    these; None if there is none."""
    for now in sorted({healed, *(span.start for span in spans if span.start > healed)}):
        living = {
            life.label: life.name
            for life in lives
            if life.start <= now + EPSILON and (life.end is None or now < life.end)
        }
        held = {span.label: span.view for span in spans if span.start <= now}
        holding = {held.get(label) for label in living}
        view = holding.pop() if len(holding) == 1 else None
        if view is not None and sorted(views[view].members) == sorted(living.values()):
            return now
    return None


def resync_of(
    healed: float,
    returns: Sequence[ReturnRow],
    offers: Iterable[OfferRow],
    names: Mapping[str, str],
    one_view: float | None,
) -> ResyncTimes:
    """Return how fast the pairs recovered after one fault.

    The clock of a pair starts when there is something to deliver: at the end of the fault if
    messages waited, else with the first message that its sender sends.
    """
    offered = {(row.protocol, row.sender, row.other): row.offered for row in offers}
    firsts, repairs = [], []
    for row in returns:
        pair = name_of(row.sender, names), name_of(row.receiver, names)
        since = healed
        if not row.messages:
            known = [
                offered.get((row.protocol, row.sender, other)) for other in (row.receiver, None)
            ]
            since = min((at for at in known if at is not None), default=healed)
        firsts.append((max(0.0, row.first - since), pair))
        if row.repaired is not None and row.messages:
            repairs.append((row.repaired - healed, pair))
    return ResyncTimes(
        pairs=len({pair for _seconds, pair in firsts}),
        first_median=median(seconds for seconds, _pair in firsts) if firsts else None,
        first_slowest=_slowest(firsts),
        repaired_messages=sum(row.messages for row in returns),
        repaired_slowest=_slowest(repairs),
        one_view=None if one_view is None else one_view - healed,
    )


def _slowest(times: Sequence[tuple[float, tuple[str, str]]]) -> PairTime | None:
    if not times:
        return None
    seconds, (sender, receiver) = max(times)
    return PairTime(sender=sender, receiver=receiver, seconds=seconds)
