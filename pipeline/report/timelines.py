"""The charts over time: faults, throughput, deliveries by sender, latency, repairs, views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from stormcast.pipeline.measured import FaultWindow, Life, Metrics, View
from stormcast.pipeline.report import quantities, scales
from stormcast.pipeline.report.markup import Markup, join, number, short, tag
from stormcast.pipeline.report.plot import Plot, Width, colour, legend
from stormcast.pipeline.report.scales import Linear, Log

LANES: Final = 12
"""The most rows of faults; further faults are in the table only."""
ROWS: Final = 40
"""The most members that have a row of their own."""
TALL: Final = 12
"""With at most so many members, rows are tall enough for text in them."""
_LETTER: Final = 6.6
"""The approximate width of a letter, in pixels."""
_LANE: Final = 26.0
_LABEL: Final = 16.0
"""The height that text needs, in pixels."""


def faults(metrics: Metrics, width: Width) -> Markup:
    """Return the chart of when each fault acted."""
    plot = Plot("faults", metrics, width, 6.0, 0.0)
    free: list[float] = []
    bars = []
    for fault in metrics.faults:
        bar = _place(plot, fault)
        lane = next((at for at, until in enumerate(free) if until <= bar.left), len(free))
        if lane < LANES:
            free[lane : lane + 1] = [bar.right + 8]
            bars.append(_bar(fault, bar, plot.top + lane * _LANE))
    height = max(1, len(free)) * _LANE
    return Plot("faults", metrics, width, 6.0, height, has_bands=False).svg(
        "When which fault acted", *bars
    )


class _Bar(NamedTuple):
    """The positions of a fault's bar and its label, in pixels from the left."""

    start: float
    end: float
    label: float
    anchor: str | None
    left: float
    right: float


def _place(plot: Plot, fault: FaultWindow) -> _Bar:
    """Place a bar, with its label inside if it fits, or else after, or else before it."""
    start = plot.x(fault.start)
    end = start + 3.0
    if not fault.is_over_at_once:
        end = max(end, plot.x(plot.metrics.seconds if fault.end is None else fault.end))
    needed = len(_fault_words(fault)) * _LETTER + 12
    if needed <= end - start:
        return _Bar(start, end, start + 7, None, start, end)
    if end + needed <= plot.x.end or start - needed < plot.x.start:
        return _Bar(start, end, end + 6, None, start, end + needed)
    return _Bar(start, end, start - 6, "end", start - needed, end)


def _bar(fault: FaultWindow, bar: _Bar, top: float) -> Markup:
    bit = fault.bites is None or fault.bites > 0
    text = _fault_words(fault)
    return tag(
        "g",
        tag("title", f"{fault.id}: {text}, from {quantities.moment(fault.start)}"),
        tag(
            "rect",
            class_="fault" if bit else "fault toothless",
            x=bar.start,
            y=top + 3,
            width=bar.end - bar.start,
            height=_LANE - 8,
            rx=2,
        ),
        tag("text", text, class_="label", x=bar.label, y=top + 16, text_anchor=bar.anchor),
    )


def _fault_words(fault: FaultWindow) -> str:
    whom = f" {short(fault.member, 12)}" if fault.member else ""
    bites = "" if fault.bites is None else f" · {quantities.count(fault.bites)}×"
    return f"{short(fault.do, 20)}{whom}{bites}"


def throughput(metrics: Metrics, width: Width) -> Markup:
    """Return the chart of messages per second: sent, and delivered by all members together."""
    plot = Plot("throughput", metrics, width, 34.0, 150.0)
    sent = _rates(metrics, [flow.messages for flow in metrics.sent])
    delivered = _rates(metrics, [flow.messages for flow in metrics.heard])
    y = Linear(0.0, scales.round_up(max([*sent, *delivered])), plot.bottom, plot.top)
    return plot.svg(
        "Messages per second",
        plot.axes.values(y),
        tag("path", class_="area delivered", d=plot.closed(delivered, y)),
        tag("path", class_="line delivered", d=plot.steps(delivered, y)),
        tag("path", class_="line sent", d=plot.steps(sent, y)),
        tag("text", "messages per second", class_="unit", x=0, y=14),
        legend(width, ("sent", "sent"), ("delivered", "delivered")),
    )


def _rates(metrics: Metrics, flows: Sequence[Sequence[int]]) -> list[float]:
    """Return the sum of flows, per second."""
    sums = [sum(values) for values in zip(*flows, strict=True)] or [0] * metrics.grid.count
    return [value / metrics.grid.width for value in sums]


def heard(metrics: Metrics, width: Width) -> Markup:
    """Return the chart of what each member delivered, in the colours of the senders."""
    names = metrics.names[:ROWS]
    height, gap = (40.0, 8.0) if len(names) <= TALL else (16.0, 4.0)
    plot = Plot("heard", metrics, width, 24.0, len(names) * (height + gap))
    flows = {name: [flow for flow in metrics.heard if flow.receiver == name] for name in names}
    rates = {name: _rates(metrics, [flow.messages for flow in flows[name]]) for name in names}
    most = scales.round_up(_usual([value for rate in rates.values() for value in rate]))
    rows = []
    for row, name in enumerate(names):
        base = plot.top + (row + 1) * (height + gap)
        y = Linear(0.0, most, base, base - height)
        rows.append(_row_label(metrics, plot, name, base - height / 2 + 4))
        rows.extend(_stack(metrics, plot, [(f.sender, f.messages) for f in flows[name]], y))
        rows.extend(_lifeline(metrics, plot, name, base))
    is_cut = any(value > most for rate in rates.values() for value in rate)
    scale = f"a full row is {quantities.rate(most)}{', bursts are cut off' if is_cut else ''}"
    return plot.svg(
        "What each member delivered, by sender",
        tag("text", scale, class_="unit", x=0, y=14),
        *rows,
    )


def _usual(values: Sequence[float]) -> float:
    """Return a value that nearly all bins stay below, so that one burst does not flatten all."""
    some = sorted(value for value in values if value)
    return some[int(len(some) * 0.97)] if some else 1.0


def _stack(
    metrics: Metrics, plot: Plot, flows: Sequence[tuple[str, Sequence[int]]], y: Linear
) -> Iterator[Markup]:
    """Yield stacked areas, one per sender."""
    lower = [0.0] * metrics.grid.count
    for sender, messages in flows:
        upper = [
            low + value / metrics.grid.width for low, value in zip(lower, messages, strict=True)
        ]
        class_ = colour(metrics.names, sender) if sender else "all"
        if any(messages):
            yield tag("path", class_=f"fill {class_}", d=plot.between(lower, upper, y))
        lower = upper


def _row_label(metrics: Metrics, plot: Plot, name: str, at: float) -> Markup:
    letters = int((plot.width.left - 20) / _LETTER)
    return join(
        tag(
            "rect", class_=colour(metrics.names, name), x=0, y=at - 9, width=9.0, height=9.0, rx=1.5
        ),
        tag("text", tag("title", name), short(name, letters), class_="label", x=15, y=at),
    )


def _lifeline(metrics: Metrics, plot: Plot, name: str, base: float) -> Iterator[Markup]:
    """Yield a line while a member lives, and a cross at its end."""
    for life in metrics.lives:
        if life.name == name:
            end = plot.x(metrics.grid.end if life.end is None else life.end)
            yield tag("line", class_="base", x1=plot.x(life.start), x2=end, y1=base, y2=base)
            if life.end is not None and life.end < metrics.grid.end:
                yield _cross(end, base)


def _cross(x: float, y: float) -> Markup:
    low, high = number(y - 4), number(y + 4)
    left, right = number(x - 4), number(x + 4)
    return tag("path", class_="gone", d=f"M{left} {low}L{right} {high}M{left} {high}L{right} {low}")


def latency(metrics: Metrics, width: Width) -> Markup:
    """Return the latency chart: per bin a bar from the median to p99, and a dot for the slowest."""
    plot = Plot("latency", metrics, width, 34.0, 150.0)
    fastest = min((one.p50 for one in metrics.latency), default=1e-3)
    slowest = max((one.most for one in metrics.latency), default=1e-2)
    low, high = scales.decades(max(fastest, 1e-6), max(slowest, 1e-6))
    y = Log(low, high, plot.bottom, plot.top)
    parts: list[Markup] = []
    for value in scales.decade_ticks(low, high):
        parts += [
            plot.axes.hairline(y(value)),
            plot.axes.tick(y(value), quantities.duration(value)),
        ]
    bin_width = metrics.grid.width
    bars, medians, dots = [], [], []
    for one in metrics.latency:
        left, right = plot.x(one.bin * bin_width), plot.x((one.bin + 1) * bin_width)
        middle, top = number(y(one.p50)), number(y(one.p99))
        bars.append(f"M{number(left + 0.5)} {middle}V{top}H{number(right - 0.5)}V{middle}Z")
        medians.append(f"M{number(left)} {middle}H{number(right)}")
        if one.most > one.p99 * 1.05:
            dots.append(f"M{number((left + right) / 2)} {number(y(one.most))}h0")
    return plot.svg(
        "From sending to delivery",
        *parts,
        tag("path", class_="spread", d="".join(bars)),
        tag("path", class_="median", d="".join(medians)),
        tag("path", class_="most", d="".join(dots)),
        tag("text", "sent to delivered", class_="unit", x=0, y=14),
        legend(width, ("delivered", "median"), ("spread", "to p99"), ("most", "slowest")),
    )


def repairs(metrics: Metrics, width: Width) -> Markup | None:
    """Return the chart of repairs: resent messages upwards, requested ones downwards."""
    resent, asked = metrics.resent, metrics.requested
    if not any(resent) and not any(asked):
        return None
    plot = Plot("repairs", metrics, width, 34.0, 110.0)
    up = _rates(metrics, [resent]) if resent else [0.0] * metrics.grid.count
    down = _rates(metrics, [asked]) if asked else [0.0] * metrics.grid.count
    most = scales.round_up(max([*up, *down]))
    middle = plot.top + plot.height / 2
    above, below = Linear(0.0, most, middle, plot.top), Linear(0.0, most, middle, plot.bottom)
    return plot.svg(
        "Messages sent again and asked for, per second",
        plot.axes.hairline(plot.top),
        plot.axes.hairline(middle),
        plot.axes.tick(plot.top, quantities.significant(most)),
        plot.axes.tick(middle, "0"),
        plot.axes.tick(plot.bottom, quantities.significant(most)),
        tag("path", class_="fill resent", d=plot.closed(up, above)),
        tag("path", class_="fill requested", d=plot.closed(down, below)),
        tag("text", "messages per second", class_="unit", x=0, y=14),
        legend(width, ("resent", "sent again"), ("requested", "asked for")),
    )


def views(metrics: Metrics, width: Width) -> Markup | None:
    """Return the chart of the views that members held, in the colours of the views' creators."""
    if not metrics.view_spans:
        return None
    names = metrics.names[:ROWS]
    height, gap = (22.0, 6.0) if len(names) <= TALL else (12.0, 3.0)
    plot = Plot("views", metrics, width, 6.0, len(names) * (height + gap))
    rows: list[Markup] = []
    for row, name in enumerate(names):
        top = plot.top + row * (height + gap)
        rows.append(_row_label(metrics, plot, name, top + height / 2 + 4))
        for life in metrics.lives:
            if life.name == name:
                rows += _held(metrics, plot, life, top, height)
    return plot.svg("Which view each member held", *rows)


def _held(metrics: Metrics, plot: Plot, life: Life, top: float, height: float) -> Iterator[Markup]:
    """Yield the views of one incarnation, one after the other."""
    over = metrics.seconds if life.end is None else life.end
    spans = [span for span in metrics.view_spans if span.label == life.label]
    # A member that was killed while it joined held no view.
    ends = [*(span.start for span in spans[1:]), over] if spans else []
    for span, end in zip(spans, ends, strict=True):
        yield _block(
            metrics, plot, span.start, max(span.start, end), metrics.views[span.view], top, height
        )
    if life.end is not None and life.end < metrics.grid.end:
        yield _cross(plot.x(life.end), top + height / 2)


def _block(
    metrics: Metrics, plot: Plot, start: float, end: float, view: View, top: float, height: float
) -> Markup:
    left, right = plot.x(start), plot.x(end)
    class_ = colour(metrics.names, view.creator or "")
    made = f"made by {view.creator}" if view.creator else "handed in"
    about = (
        f"view {view.number}, {made}, of {' '.join(view.members)}; "
        f"from {quantities.moment(start)} to {quantities.moment(end)}"
    )
    # Take the first text that fits in the block; short views have none.
    size = quantities.counted(len(view.members), "member")
    texts = (f"view {view.number} · {size}", f"{view.number} · {len(view.members)}")
    fitting = (text for text in texts if len(text) * _LETTER + 12 < right - left)
    text = next(fitting, None) if height > _LABEL else None
    return tag(
        "g",
        tag("title", about),
        tag(
            "rect",
            class_=f"view {class_}",
            x=left,
            y=top,
            width=max(0.8, right - left - 1),
            height=height,
        ),
        tag(
            "rect",
            class_=f"edge {class_}",
            x=left,
            y=top,
            width=max(0.8, right - left - 1),
            height=3.0,
        ),
        tag("text", text, class_="label", x=left + 6, y=top + 16) if text else None,
    )
