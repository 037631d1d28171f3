"""The page of a soak: every window of hours on one page, what did not hold, and what grows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import quote

from stormcast.pipeline.report import quantities, scales
from stormcast.pipeline.report.axes import Axes
from stormcast.pipeline.report.markup import Markup, join, tag
from stormcast.pipeline.report.page import chip, figure, headline, page, section, table, tone
from stormcast.pipeline.report.plot import AXIS, WIDTHS, Width, legend
from stormcast.pipeline.report.run_files import HOLDS, REPORT, NotARun, rank
from stormcast.pipeline.report.scales import Linear
from stormcast.pipeline.report.second_verdicts import SecondVerdict, second_verdicts, worse
from stormcast.weights import AGENT

SOAK: Final = "soak.json"
WINDOWS: Final = "windows.jsonl"
STATUS: Final = "status.json"
JUDGE: Final = "judge"
TOLD: Final = 100
"""The most windows that did not hold which are listed one by one."""
MIB: Final = 1 << 20
_SECOND: Final = 8.0
"""Pixels below a window for Spark's verdict on it."""
_UNITS: Final = {
    "memory": ("MiB", MIB),
    "journal": ("MiB", MIB),
    "cpu": ("ms for 1,000 messages", 1e-3),
    "latency": ("ms", 1e-3),
}
"""By figure of what grows: the unit in which it is said, and how much that is."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A window, as its line says, and the hours in which it was played."""

    line: Mapping[str, Any]
    start: float
    end: float
    second: SecondVerdict | None = None
    """What Spark says of its chapter; None: nothing."""

    @property
    def verdict(self) -> str:
        return worse(str(self.line.get("verdict", "unknown")), self.second)

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class KeptSoak:
    """The content of a soak's directory."""

    path: Path
    seed: object
    backend: str
    windows: Sequence[Placed]
    status: Mapping[str, Any]

    @property
    def end(self) -> float:
        return self.windows[-1].end if self.windows else 0.0


def is_soak(directory: Path) -> bool:
    """Whether a directory is what a soak has left."""
    return (directory / WINDOWS).is_file()


def read_soak(directory: Path) -> KeptSoak:
    """Read the directory of a soak; NotARun if its files are none of a soak."""
    try:
        told = json.loads((directory / SOAK).read_text())
        status_file = directory / STATUS
        status = json.loads(status_file.read_text()) if status_file.is_file() else {}
        lines = (directory / WINDOWS).read_text().splitlines()
        windows = list(_placed(lines, second_verdicts(directory)))
        return KeptSoak(directory, told["seed"], str(told["backend"]), windows, status)
    except (ValueError, KeyError, TypeError) as error:
        raise NotARun(f"{directory} is no soak ({error}): name what stormcast soak left") from None


def _placed(lines: Sequence[str], second: Mapping[int, SecondVerdict]) -> Iterator[Placed]:
    at = 0.0
    for number, text in enumerate(lines):
        try:
            line = json.loads(text)
        except ValueError:
            if number == len(lines) - 1:
                return  # The soak was killed while it wrote its last line.
            raise
        end = at + float(line["seconds"])
        yield Placed(line, at, end, second.get(line["window"]))
        at = end


def soak_report(kept: KeptSoak) -> str:
    """Return the page of a soak."""
    found = [window.verdict for window in kept.windows] or ["unknown"]
    # Of the whole the soak knows more than its windows: that it was cut short, or went nowhere.
    said = kept.status.get("verdict")
    worst = min([*found, *([str(said)] if said else [])], key=rank)
    counts = Counter(window.verdict for window in kept.windows)
    name = kept.path.resolve().name
    words = [f"on {kept.backend}", f"seed {kept.seed}"]
    if not kept.status.get("is_over", False):
        words.append("still going, or killed")
    header = headline(
        worst,
        tag("p", tag("strong", name), *(tag("span", word) for word in words), class_="names"),
        lead=_lead(kept),
        below=_figures(kept, counts),
    )
    body = join(_course(kept), _bad(kept), _growth(kept), _faults(kept))
    return page(f"{name}: {_lead(kept)}", header, body)


def _lead(kept: KeptSoak) -> str:
    count = len(kept.windows)
    if not count:
        return "No window has ended yet."
    held = sum(window.verdict == HOLDS for window in kept.windows)
    length = quantities.duration(kept.end)
    if held == count:
        return f"All {quantities.counted(count, 'window')} of {length} hold."
    return f"{quantities.count(held)} of {quantities.counted(count, 'window')} hold, in {length}."


def _figures(kept: KeptSoak, counts: Counter[str]) -> Markup:
    sent = sum(int(window.line["sent"]) for window in kept.windows)
    bites = sum(sum(window.line["faults"].values()) for window in kept.windows)
    seconds = [window.second for window in kept.windows if window.second is not None]
    told = [
        ("windows", quantities.count(len(kept.windows))),
        ("violated", quantities.count(counts["violated"])),
        ("unknown", quantities.count(counts["unknown"])),
        *([("judged by Spark", quantities.count(_judged(seconds)))] if seconds else []),
        ("messages sent", quantities.count(sent)),
        ("effects of faults", quantities.count(bites)),
    ]
    rows = (tag("div", tag("dt", word), tag("dd", value)) for word, value in told)
    return tag("dl", *rows, class_="figures")


def _judged(seconds: Sequence[SecondVerdict]) -> int:
    return sum(bool(one.line["judged"]) for one in seconds)


# -- The course of time ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chart:
    """A chart over the hours of a soak, of one width."""

    kept: KeptSoak
    width: Width
    top: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @cached_property
    def x(self) -> Linear:
        left, right = self.width.left, self.width.pixels - self.width.right
        return Linear(0.0, max(self.kept.end, 1.0), left, right)

    @cached_property
    def axes(self) -> Axes:
        return Axes(self.x, self.kept.end, self.bottom)

    def svg(self, about: str, *marks: Markup | None) -> Markup:
        return tag(
            "svg",
            tag("title", about),
            *marks,
            self.axes.time(),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {self.width.pixels:g} {self.bottom + AXIS:g}",
            class_=f"chart {self.width.name}",
            role="img",
        )

    def steps(self, of: Callable[[Placed], float | None], y: Linear, class_: str) -> Markup | None:
        """Return a line that is level in each window; a window without a value is a gap."""
        path = []
        for window in self.kept.windows:
            value = of(window)
            if value is not None:
                path.append(f"M{self.x(window.start):.2f} {y(value):.2f}H{self.x(window.end):.2f}")
        return tag("path", class_=class_, d="".join(path)) if path else None


def _course(kept: KeptSoak) -> Markup | None:
    if not kept.windows:
        return None
    return section(
        "Course",
        "Each window by its verdict, with what was sent and delivered in it.",
        figure(*(_strip(kept, width) for width in WIDTHS), caption=_caption(kept)),
        figure(*(_rates(kept, width) for width in WIDTHS), caption="Messages per second"),
        id_="course",
        class_="full",
    )


def _caption(kept: KeptSoak) -> str:
    is_followed = any(window.second is not None for window in kept.windows)
    return "Verdict of each window" + (", and below it Spark's" if is_followed else "")


def _strip(kept: KeptSoak, width: Width) -> Markup:
    chart = _Chart(kept, width, 6.0, 26.0)
    cells = []
    for window in kept.windows:
        height = chart.height if window.second is None else chart.height - _SECOND
        cell = _cell(chart, window, window.verdict, chart.top, height)
        link = _link(window)
        cells.append(tag("a", cell, href=link) if link else cell)
        if window.second is not None:
            top = chart.bottom - _SECOND + 1.0
            said = window.second.verdict
            cells.append(_cell(chart, window, said, top, _SECOND - 1.0, "spark", "by Spark "))
    return chart.svg("Verdict of each window", *cells)


def _cell(
    chart: _Chart,
    window: Placed,
    verdict: str,
    top: float,
    height: float,
    class_: str = "window",
    by: str = "",
) -> Markup:
    left, right = chart.x(window.start), chart.x(window.end)
    return tag(
        "rect",
        tag("title", f"window {window.line['window']}: {by}{verdict}{_of(window)}"),
        class_=f"{class_} {tone(verdict)}",
        x=left,
        y=top,
        # A hairline between two windows, as long as there is room for it.
        width=max(1.0, right - left - (1.0 if right - left > 3.0 else 0.0)),  # noqa: PLR2004 pixels
        height=height,
    )


def _rates(kept: KeptSoak, width: Width) -> Markup:
    chart = _Chart(kept, width, 34.0, 130.0)

    def rate(of: str) -> Callable[[Placed], float | None]:
        return lambda window: window.line[of] / window.seconds if window.seconds else None

    lines = {"delivered": rate("delivered"), "sent": rate("sent")}
    most = max((one(w) or 0.0 for one in lines.values() for w in kept.windows), default=0.0)
    y = Linear(0.0, scales.round_up(most), chart.bottom, chart.top)
    return chart.svg(
        "Messages per second",
        chart.axes.values(y),
        *(chart.steps(one, y, f"line {name}") for name, one in lines.items()),
        tag("text", "messages per second", class_="unit", x=0, y=14),
        legend(width, ("sent", "sent"), ("delivered", "delivered")),
    )


# -- What did not hold -----------------------------------------------------------------------------


def _link(window: Placed) -> str | None:
    incident = window.line.get("incident")
    if window.second is not None and window.second.is_disputed:
        incident = window.second.chapter
    return quote(f"{incident}/{REPORT}") if incident else None


def _bad(kept: KeptSoak) -> Markup | None:
    bad = [window for window in kept.windows if window.verdict != HOLDS or not _is_held(window)]
    if not bad:
        return None
    bad.sort(key=lambda window: (rank(window.verdict), window.start))
    is_followed = any(window.second is not None for window in kept.windows)
    names = ("window", "at", "verdict", *(("Spark",) if is_followed else ()), "why")
    head = [tag("th", text) for text in names]
    rows = [
        tag(
            "tr",
            tag("td", f"{window.line['window']}{_of(window)}"),
            tag("td", quantities.duration(window.start)),
            tag("td", chip(window.verdict, _link(window))),
            tag("td", _chip_of_spark(window)) if is_followed else None,
            tag("td", _why(window), class_="detail"),
        )
        for window in bad[:TOLD]
    ]
    rest = len(bad) - len(rows)
    return section(
        "What did not hold",
        "Worst first. Each report shows the evidence; stormcast soak cut makes a scenario of it.",
        table("bad", head, rows),
        tag("p", f"and {quantities.count(rest)} more", class_="quiet") if rest else None,
        id_="bad",
    )


def _of(window: Placed) -> str:
    """Return what members ran in a window; older soaks do not say it."""
    runs = window.line.get("runs")
    return f" ({runs})" if runs else ""


def _is_held(window: Placed) -> bool:
    """Whether Spark does not say otherwise of a window."""
    return window.second is None or window.second.verdict == HOLDS


def _chip_of_spark(window: Placed) -> Markup | str:
    return "–" if window.second is None else chip(window.second.verdict)


def _why(window: Placed) -> str:
    findings = sorted(window.line.get("findings", ()), key=lambda one: rank(str(one["verdict"])))
    told = [f"{one['guarantee']}: {one['detail']}" for one in findings[:2]]
    second = window.second
    if second is not None and (second.is_disputed or not second.line["judged"]):
        told.append(second.in_words())
    return "; ".join(told)


# -- What grows ------------------------------------------------------------------------------------


def _growth(kept: KeptSoak) -> Markup | None:
    drifts = kept.status.get("drift", ())
    if not drifts:
        return None
    head = [tag("th", text) for text in ("figure", "of", "in an hour", "samples", "verdict")]
    rows = [
        tag(
            "tr",
            tag("td", one["figure"]),
            tag("td", one["of"]),
            tag("td", _per_hour(one)),
            tag("td", quantities.count(int(one["samples"]))),
            tag("td", one["verdict"]),
        )
        for one in drifts
    ]
    charts = figure(
        *(_memory(kept, width) for width in WIDTHS), caption="Memory: median of members, and judge"
    )
    return section(
        "What grows",
        "The median slope of each process, after its warm-up. It grows if that is no chance.",
        charts,
        table("drift", head, rows),
        id_="growth",
    )


def _per_hour(drift: Mapping[str, Any]) -> str:
    if drift["per_hour"] is None:
        return "–"
    unit, scale = _UNITS.get(drift["figure"], ("", 1))
    value = float(drift["per_hour"]) / scale
    sign = "+" if value > 0 else ""
    return f"{sign}{quantities.significant(value)} {unit}".strip()


def _memory(kept: KeptSoak, width: Width) -> Markup:
    chart = _Chart(kept, width, 34.0, 110.0)

    def members(window: Placed) -> float | None:
        weights: Mapping[str, Any] = window.line.get("weights", {})
        found = [
            one["memory"] / MIB
            for who, one in weights.items()
            if who != JUDGE and not who.startswith(AGENT)
        ]
        return median(found) if found else None

    def judge(window: Placed) -> float | None:
        weight = window.line.get("weights", {}).get(JUDGE)
        return weight["memory"] / MIB if weight else None

    values = [value for of in (members, judge) for w in kept.windows if (value := of(w))]
    y = Linear(0.0, scales.round_up(max(values, default=1.0)), chart.bottom, chart.top)
    return chart.svg(
        "Resident memory in MiB",
        chart.axes.values(y),
        chart.steps(members, y, "line delivered"),
        chart.steps(judge, y, "line sent"),
        tag("text", "MiB", class_="unit", x=0, y=14),
        legend(width, ("sent", "judge"), ("delivered", "members")),
    )


# -- Faults ----------------------------------------------------------------------------------------


def _faults(kept: KeptSoak) -> Markup | None:
    begun: Counter[str] = Counter()
    bites: Counter[str] = Counter()
    for window in kept.windows:
        for fault, number in window.line["faults"].items():
            kind = _kind(fault)
            begun[kind] += 1
            bites[kind] += int(number)
    if not begun:
        return None
    head = [tag("th", text) for text in ("fault", "how often", "effects")]
    rows = [
        tag(
            "tr",
            tag("td", kind),
            tag("td", quantities.count(number)),
            tag("td", quantities.count(bites[kind])),
        )
        for kind, number in begun.most_common()
    ]
    return section(
        "Faults",
        "What the storm did, by kind, and how often that had an effect.",
        table("faults", head, rows),
        id_="faults",
    )


def _kind(fault: str) -> str:
    """Return the kind of a fault by its id, such as `w12-loss-3`."""
    return fault.partition("-")[2].rpartition("-")[0] or fault
