"""Heat maps: one cell per directed pair, senders down, receivers across."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from stormcast.pipeline.measured import Metrics, Pair
from stormcast.pipeline.report import quantities
from stormcast.pipeline.report.markup import Markup, number, short, tag

MOST: Final = 48
"""The most members that a map shows; with more, cells would be too small."""
_SIDE: Final = 420.0
_ROOM: Final = 56.0
"""Pixels for names, at the left and above."""
_DARK: Final = 0.55
"""The opacity of a cell above which its text is light."""


class Cell(NamedTuple):
    """The cell of a pair: the strength of its colour, its text, and its tooltip."""

    strength: float
    text: str
    about: str


def delivered_map(metrics: Metrics) -> Markup:
    """Return the map of delivered messages."""
    sums = _by_pair(metrics, lambda pair: pair.delivered)
    most = max(sums.values(), default=0) or 1
    cells = {
        pair: Cell(
            value / most,
            _brief(value),
            f"{pair[0]} → {pair[1]}: {quantities.count(value)} delivered",
        )
        for pair, value in sums.items()
    }
    return _map(metrics.names, "Messages delivered, by sender and receiver", cells)


def repaired_map(metrics: Metrics) -> Markup | None:
    """Return the map of the shares of messages that were repaired; None if none were."""
    repaired = _by_pair(metrics, lambda pair: pair.repaired)
    if not any(repaired.values()):
        return None
    delivered = _by_pair(metrics, lambda pair: pair.delivered)
    shares = {
        pair: value / max(1, delivered.get(pair, 0), value) for pair, value in repaired.items()
    }
    most = max(shares.values()) or 1.0
    cells = {
        pair: Cell(
            part / most,
            f"{quantities.significant(100 * part, 2)}%",
            f"{pair[0]} → {pair[1]}: {quantities.count(repaired[pair])} said again, "
            f"{quantities.count(delivered.get(pair, 0))} delivered",
        )
        for pair, part in shares.items()
    }
    return _map(metrics.names, "Share of messages said again, by sender and receiver", cells)


def struck_map(members: Sequence[str], fault: str, struck: Mapping[tuple[str, str], int]) -> Markup:
    """Return the map of how often a fault struck frames of each pair."""
    most = max(struck.values(), default=0) or 1
    cells = {
        pair: Cell(
            value / most,
            _brief(value),
            f"{pair[0]} → {pair[1]}: {fault} struck {quantities.counted(value, 'time')}",
        )
        for pair, value in struck.items()
    }
    return _map(members, f"How often {fault} struck, by sender and receiver", cells)


def _by_pair(metrics: Metrics, value: Callable[[Pair], int]) -> Mapping[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for pair in metrics.pairs:
        if pair.sender != pair.receiver:
            sums[pair.sender, pair.receiver] += value(pair)
    return sums


def _brief(value: int) -> str:
    for least, unit in ((10_000_000, "M"), (10_000, "k")):
        if value >= least:
            return f"{value / (least / 10):.0f}{unit}"
    return str(value)


def _map(members: Sequence[str], about: str, cells: Mapping[tuple[str, str], Cell]) -> Markup:
    names = members[:MOST]
    side = min(46.0, (_SIDE - _ROOM) / max(1, len(names)))
    step = max(1, round(14 / side))
    parts: list[Markup] = []
    for at, name in enumerate(names):
        middle = _ROOM + (at + 0.5) * side
        if at % step == 0:
            letters = 7 if step == 1 else 5
            parts.append(
                tag(
                    "text",
                    short(name, letters),
                    class_="label",
                    x=_ROOM - 8,
                    y=middle + 4,
                    text_anchor="end",
                )
            )
            parts.append(_above(short(name, letters), middle, side))
    for row, sender in enumerate(names):
        for column, receiver in enumerate(names):
            x, y = _ROOM + column * side, _ROOM + row * side
            parts += _cell(cells.get((sender, receiver)), x, y, side, is_own=row == column)
    whole = _ROOM + len(names) * side + 2
    return tag(
        "svg",
        tag("title", about),
        tag("text", "receiver", class_="unit", x=_ROOM, y=12),
        tag("text", "sender", class_="unit", x=0, y=_ROOM - 8),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(max(whole, 160.0))} {number(whole)}",
        width=max(whole, 160.0),
        class_="map",
        role="img",
    )


def _above(text: str, middle: float, side: float) -> Markup:
    """Return the name above a column, rotated if the column is narrow."""
    if len(text) * 6.6 < side:
        return tag("text", text, class_="label", x=middle, y=_ROOM - 8, text_anchor="middle")
    turn = f"rotate(-60 {number(middle)} {number(_ROOM - 6)})"
    return tag("text", text, class_="label", x=middle, y=_ROOM - 6, transform=turn)


def _cell(cell: Cell | None, x: float, y: float, side: float, *, is_own: bool) -> list[Markup]:
    box = {"x": x + 0.75, "y": y + 0.75, "width": side - 1.5, "height": side - 1.5}
    if is_own or cell is None:
        return [tag("rect", class_="own" if is_own else "none", **box)]
    parts = [
        tag("rect", tag("title", cell.about), class_="heat", fill_opacity=_opacity(cell), **box)
    ]
    if len(cell.text) * 7 < side:
        class_ = "in dark" if _opacity(cell) > _DARK else "in"
        parts.append(
            tag(
                "text",
                cell.text,
                class_=class_,
                x=x + side / 2,
                y=y + side / 2 + 4,
                text_anchor="middle",
            )
        )
    return parts


def _opacity(cell: Cell) -> float:
    return 0.06 + 0.86 * cell.strength
