"""The counters and gauges of a member, collected from its parts."""

from __future__ import annotations

from collections.abc import Iterable

from stormcast.node.stack import Stack
from stormcast.node.trace.journal import Journal
from stormcast.node.transports.base import Transport
from stormcast.node.transports.monitors import Monitors

Figures = dict[str, int | float]


def collect_figures(
    turns: int,
    transport: Transport,
    monitors: Monitors | None,
    stack: Stack,
    journal: Journal | None,
) -> Figures:
    """Return the figures of all parts, by name."""
    figures: Figures = {"runtime.turns": turns}
    figures |= _named("transport", transport.stats().items())
    if monitors is not None:
        watchers = monitors.stats().items()
        figures |= _named("transport", ((name, number) for name, number in watchers if number))
    figures |= _named("stack.refused", stack.record.refused.items())
    figures |= _named("stack.abandoned", stack.outbox.abandoned.items())
    if journal is not None:
        figures |= _named("journal", journal.stats().items())
    return figures


def _named(part: str, figures: Iterable[tuple[str, int | float]]) -> Figures:
    return {f"{part}.{name}": number for name, number in figures}
