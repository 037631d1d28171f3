"""The sequence chart: when which seqnos of one directed pair were sent, delivered and repaired."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import Final

from stormcast.pipeline.measured import Mark, Metrics, Sequence
from stormcast.pipeline.report import quantities, scales
from stormcast.pipeline.report.markup import Markup, number, tag
from stormcast.pipeline.report.plot import Plot, Width, legend
from stormcast.pipeline.report.scales import Linear

LINES: Final = ("sent", "delivered", "acked")
"""Kinds of events that are drawn as lines; the others are marks."""
WORDS: Final = {
    "sent": "sent",
    "delivered": "delivered",
    "acked": "acked",
    "retransmitted": "sent again",
    "requested": "asked for",
}
FIT: Final = 3
"""The most entries of a legend that fit beside the name of the axis, on a narrow page."""


def sequence_chart(metrics: Metrics, sequence: Sequence, width: Width) -> Markup:
    """Return the chart of seqnos over time; in each bin a line rises to the highest seqno of it."""
    kinds = [kind for kind in WORDS if any(track.kind == kind for track in sequence.tracks)]
    # On a narrow page a legend of many entries needs a line of its own.
    is_crowded = width.name == "narrow" and len(kinds) > FIT
    plot = Plot("sequence", metrics, width, 54.0 if is_crowded else 34.0, 230.0)
    marks = [mark for track in sequence.tracks for mark in track.marks]
    low = float(min((mark.lo for mark in marks), default=0))
    high = float(max((mark.hi for mark in marks), default=1))
    y = Linear(low, max(high, low + 1), plot.bottom, plot.top)
    parts = [
        *_axis(plot, y),
        *(
            tag("path", class_=f"seq {kind}", d=_path(plot, kind, track.marks, y))
            for kind in WORDS
            for track in sequence.tracks
            if track.kind == kind
        ),
        tag("text", "seqno", class_="unit", x=0, y=14),
        legend(width, *((kind, WORDS[kind]) for kind in kinds), top=36.0 if is_crowded else 14.0),
    ]
    return plot.svg(f"Seqnos from {sequence.sender} to {sequence.receiver}", *parts)


def _axis(plot: Plot, y: Linear) -> list[Markup]:
    step = max(1.0, scales.step_for((y.high - y.low) / 5))
    first = -(-y.low // step) * step
    values = [first + step * each for each in range(int((y.high - first) / step) + 1)]
    return [
        part
        for value in values
        for part in (
            plot.axes.hairline(y(value)),
            plot.axes.tick(y(value), quantities.count(int(value))),
        )
    ]


def _path(plot: Plot, kind: str, marks: Ordered[Mark], y: Linear) -> str:
    bin_width = plot.metrics.sequence_grid.width
    path: list[str] = []
    before: Mark | None = None
    for mark in marks:
        left, right = plot.x(mark.bin * bin_width), plot.x((mark.bin + 1) * bin_width)
        if kind not in LINES:
            # A single seqno is a mark, too: it is at least as high as wide.
            bottom, top = y(mark.lo), min(y(mark.hi), y(mark.lo) - 2.5)
            path.append(f"M{number((left + right) / 2)} {number(bottom)}V{number(top)}")
            continue
        if before is not None and mark.lo >= before.lo:
            # Nothing happened in between, so nothing rises there.
            path.append(f"H{number(left)}V{number(y(mark.lo))}")
        else:
            path.append(f"M{number(left)} {number(y(mark.lo))}")
        path.append(f"L{number(right)} {number(y(mark.hi))}")
        before = mark
    return "".join(path)
