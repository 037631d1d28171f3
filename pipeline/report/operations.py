"""The chart of what clients of guests did: a row per process, operations by how they ended, faults
shaded, violations as red lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stormcast.findings import Finding, Verdict
from stormcast.pipeline.measured import natural
from stormcast.pipeline.report import quantities
from stormcast.pipeline.report.axes import Axes
from stormcast.pipeline.report.history_file import ENDS, Clients, FaultSpan, Span
from stormcast.pipeline.report.markup import Markup, number, short, tag
from stormcast.pipeline.report.page import figure, section
from stormcast.pipeline.report.plot import AXIS, WIDTHS, Width, legend
from stormcast.pipeline.report.scales import Linear

ROWS: Final = 24
"""The most processes with a row; the others are counted."""
_ROW: Final = 22.0
_MARK: Final = 14.0
_TOP: Final = 30.0
_LETTER: Final = 6.6
_NARROWEST: Final = 1.0
"""Pixels: an operation of a millisecond is to be seen, too."""


def operations_section(clients: Clients, findings: Iterable[Finding]) -> Markup | None:
    """Return the section with the chart; None if nothing was done."""
    if clients.doubt:
        return section("Operations", None, tag("p", clients.doubt, class_="note"), id_="operations")
    if not clients.spans or not clients.seconds:
        return None
    processes = sorted({span.process for span in clients.spans}, key=natural)
    left_out = len(processes) - ROWS
    more = f" {quantities.counted(left_out, 'process', 'processes')} more." if left_out > 0 else ""
    ends = ", ".join(
        f"{quantities.count(sum(span.outcome == end for span in clients.spans))} {end}"
        for end in ENDS
    )
    broken = [one for one in findings if one.verdict is Verdict.VIOLATED and one.at is not None]
    return section(
        "Operations",
        f"What clients did, by process: {ends}. Faults are shaded; a red line is a violation. "
        f"Of info nobody knows whether it happened.{more}",
        figure(*(_chart(clients, processes[:ROWS], broken, width) for width in WIDTHS)),
        id_="operations",
    )


def _chart(
    clients: Clients, processes: Sequence[str], broken: Sequence[Finding], width: Width
) -> Markup:
    x = Linear(0.0, clients.seconds, width.left, width.pixels - width.right)
    bottom = _TOP + len(processes) * _ROW
    letters = int((width.left - 8) / _LETTER)
    rows: list[Markup] = []
    for row, process in enumerate(processes):
        top = _TOP + row * _ROW
        rows.append(
            tag("text", tag("title", process), short(process, letters), class_="label", x=0,
                y=top + 13)
        )  # fmt: skip
        spans = [span for span in clients.spans if span.process == process]
        rows += (_marks(spans, end, x, top + 3) for end in ENDS)
    return tag(
        "svg",
        tag("title", "Operations of clients"),
        *(_band(fault, x, bottom) for fault in clients.faults),
        *rows,
        *_breaches(broken, x, bottom),
        Axes(x, clients.seconds, bottom).time(),
        legend(width, *((f"op-{end}", end) for end in ENDS)),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width.pixels)} {number(bottom + AXIS)}",
        class_=f"chart {width.name}",
        role="img",
    )


def _marks(spans: Iterable[Span], end: str, x: Linear, top: float) -> Markup:
    """Return the operations of one process that ended in one way, as one path. Those that would be
    drawn on the same pixels are drawn once."""
    seen: set[tuple[int, int]] = set()
    for span in spans:
        if span.outcome == end:
            until = x.high if span.end is None else span.end
            seen.add((round(x(span.start)), round(x(until))))
    parts = [
        f"M{left} {number(top)}h{number(max(_NARROWEST, right - left))}v{number(_MARK)}H{left}Z"
        for left, right in sorted(seen)
    ]
    return tag("path", class_=f"op-{end}", d="".join(parts))


def _band(fault: FaultSpan, x: Linear, bottom: float) -> Markup:
    return tag(
        "rect",
        tag("title", f"{fault.fault}, from {quantities.moment(fault.start)}"),
        class_="band",
        x=x(fault.start),
        y=_TOP,
        width=max(1.0, x(fault.end) - x(fault.start)),
        height=bottom - _TOP,
    )


def _breaches(broken: Iterable[Finding], x: Linear, bottom: float) -> Iterator[Markup]:
    for finding in broken:
        assert finding.at is not None
        at = x(finding.at)
        told = f"{finding.guarantee} at {quantities.moment(finding.at)}: {finding.detail}"
        line = tag("line", class_="breach", x1=at, x2=at, y1=_TOP, y2=bottom)
        yield tag("g", tag("title", told), line)
