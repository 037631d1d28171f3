"""The page of two soaks or runs: what was compared, and what each cost, beside the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from stormcast.pipeline.report import quantities
from stormcast.pipeline.report.comparison import Comparison, Figure, Side, Spread
from stormcast.pipeline.report.comparison_charts import LETTERS, course, medians, sign, strips
from stormcast.pipeline.report.markup import Markup, join, tag
from stormcast.pipeline.report.page import chip, figure, page, section, table
from stormcast.pipeline.report.plot import WIDTHS
from stormcast.pipeline.report.run_files import HOLDS, rank

TOLD: Final = 50
"""The most windows that are listed because one side does not hold there."""
_NONE: Final = "has none"
_SURE: Final = f"95{quantities.THIN_SPACE}%"
_ABOUT_INTERVALS: Final = (
    "Below, each mark beside a letter is a median over windows. The line through it is an "
    "interval that holds the median of all windows of such a storm with a probability of "
    f"{_SURE} or more. B / A is the median of B by that of A; it has no interval."
)


def comparison_page(compared: Comparison) -> str:
    """Return the page of two soaks or runs."""
    first, second = (side.path for side in compared.sides)
    body = join(
        _sides(compared),
        _verdicts(compared) if compared.is_of_soaks else None,
        *(_figure(compared, one) for one in compared.figures if one.is_of_both),
        _not_drawn(compared),
    )
    return page(f"{first} and {second}, side by side", _header(compared), body)


def _header(compared: Comparison) -> Markup:
    names = (
        tag("span", sign(number), f"{LETTERS[number]} ", tag("b", side.path), chip(side.whole))
        for number, side in enumerate(compared.sides)
    )
    warnings = (
        tag("p", f"Take care: {warning}.", class_="warning unknown")
        for warning in compared.warnings
    )
    inner = tag("div", tag("h1", *names), tag("p", _lead(compared), class_="lead"), *warnings)
    return tag("header", inner, class_="verdict unsupported compared")


def _lead(compared: Comparison) -> str:
    if compared.is_of_soaks:
        counts = [len(side.verdicts) for side in compared.sides]
        first, second = (quantities.counted(count, "window") for count in counts)
        windows = f"{first} each" if first == second else f"A has {first}, B {second}"
        return f"Two soaks: {windows}."
    if any(side.is_soak for side in compared.sides):
        return "A soak and a run."
    return "Two runs, with one value each."


# -- What was compared -----------------------------------------------------------------------------


def _sides(compared: Comparison) -> Markup:
    first, second = compared.sides
    head = [
        tag("th", ""),
        *(tag("th", sign(number), letter) for number, letter in enumerate(LETTERS)),
    ]
    names = dict.fromkeys([*first.facts, *second.facts])
    rows = [
        _row("directory", first.path, second.path),
        *(_row(name, first.facts.get(name, "–"), second.facts.get(name, "–")) for name in names),
        tag("tr", tag("td", "verdicts"), *(tag("td", *_tally(s)) for s in compared.sides)),
        tag("tr", tag("td", "as a whole"), *(tag("td", chip(s.whole)) for s in compared.sides)),
    ]
    return section(
        "What was compared",
        "What both have in common stands in the middle.",
        table("sides", head, rows),
        tag("p", _ABOUT_INTERVALS, class_="note quiet") if compared.is_of_soaks else None,
        id_="sides",
    )


def _row(name: str, first: str, second: str) -> Markup:
    if first == second:
        return tag("tr", tag("td", name), tag("td", first, colspan=2, class_="both"))
    return tag("tr", tag("td", name), tag("td", first), tag("td", second))


def _tally(side: Side) -> Iterator[Markup]:
    counts = Counter(side.verdicts)
    for verdict in sorted(counts, key=lambda word: (rank(word), word)):
        yield chip(verdict, before=f"{quantities.count(counts[verdict])} ")
        yield tag("br")


# -- Verdicts --------------------------------------------------------------------------------------


def _verdicts(compared: Comparison) -> Markup:
    same = (
        "Windows of one number play the same part of the storm. " if not compared.warnings else ""
    )
    return section(
        "Verdicts",
        f"{same}A higher bar is a worse verdict; where no bar is, the side has no such window.",
        figure(*(strips(compared, width) for width in WIDTHS), caption=_shared(compared)),
        _bad(compared),
        id_="verdicts",
    )


def _shared(compared: Comparison) -> str | None:
    """Say how many windows stand together, where there is no room for each."""
    shared = compared.places.shared
    return f"The worst of each {shared} windows" if shared > 1 else None


def _bad(compared: Comparison) -> Markup:
    first, second = (dict(zip(s.windows, s.verdicts, strict=True)) for s in compared.sides)
    worst = {
        number: min((first.get(number, HOLDS), second.get(number, HOLDS)), key=rank)
        for number in first.keys() | second.keys()
    }
    bad = [number for number, verdict in worst.items() if verdict != HOLDS]
    bad.sort(key=lambda number: (rank(worst[number]), number))
    if not bad:
        return tag("p", "Every window that was played holds.", class_="quiet")
    head = [tag("th", text) for text in ("window", *LETTERS)]
    rows = [
        tag(
            "tr",
            tag("td", str(number)),
            *(tag("td", _chip(s.get(number))) for s in (first, second)),
        )
        for number in bad[:TOLD]
    ]
    rest = len(bad) - len(rows)
    return join(
        table("bad", head, rows),
        tag("p", f"and {quantities.count(rest)} more", class_="quiet") if rest else None,
    )


def _chip(verdict: str | None) -> Markup | str:
    return "–" if verdict is None else chip(verdict)


# -- Figures ---------------------------------------------------------------------------------------


def _figure(compared: Comparison, one: Figure) -> Markup:
    return section(
        one.name,
        f"B / A: {one.ratio}" if one.ratio else "No ratio: the median of A is 0.",
        figure(*(medians(one, width) for width in WIDTHS), caption=_of_medians(one)),
        figure(*(course(compared, one, width) for width in WIDTHS), caption=_by_window(compared))
        if compared.is_of_soaks
        else None,
        id_=f"figure-{compared.figures.index(one)}",
        class_="figure-of-both",
    )


def _of_medians(one: Figure) -> str:
    intervals = [spread.interval is not None for spread in one.spreads]
    if not any(intervals):
        return "Value" if _counts(one) == [1, 1] else "Median: there are too few for an interval"
    if not all(intervals):
        letter = LETTERS[intervals.index(False)]
        return f"Median, with an interval of {_SURE}: {letter} has too few for one"
    return f"Median, with an interval of {_SURE}"


def _counts(one: Figure) -> Sequence[int]:
    return [len(spread.values) for spread in one.spreads]


def _by_window(compared: Comparison) -> str:
    shared = compared.places.shared
    return f"The median of each {shared} windows" if shared > 1 else "By window"


def _not_drawn(compared: Comparison) -> Markup | None:
    rows = [
        tag("tr", tag("td", one.name), *(tag("td", _text(spread)) for spread in one.spreads))
        for one in compared.figures
        if not one.is_of_both
    ]
    rows += [
        tag("tr", tag("td", name), tag("td", _NONE), tag("td", _NONE))
        for name in compared.of_neither
    ]
    if not rows:
        return None
    head = [tag("th", text) for text in ("figure", *LETTERS)]
    return section(
        "Not drawn",
        "A figure is drawn where both sides have it. Members are weighed where they are processes: "
        "in the simulator they have no memory of their own.",
        table("not-drawn", head, rows),
        id_="not-drawn",
    )


def _text(spread: Spread) -> str:
    return _NONE if spread.middle is None else spread.text
