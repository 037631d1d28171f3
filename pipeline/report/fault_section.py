"""The sections about faults: when each acted, how often it struck, and its effect on traffic."""

from __future__ import annotations

from typing import Final

from stormcast.pipeline.measured import FaultWindow, Metrics, PairTime, Phase, ResyncTimes, natural
from stormcast.pipeline.report import heatmap, quantities, timelines, wording
from stormcast.pipeline.report.markup import Markup, tag
from stormcast.pipeline.report.page import figure, section, table
from stormcast.pipeline.report.plot import WIDTHS
from stormcast.pipeline.report.run_files import Kept

ROWS: Final = 10
"""The most faults in the first table; further ones are in a table to be unfolded."""
MAPS: Final = 6
"""The most faults with a map of the pairs they struck: those that struck most often."""


def fault_section(metrics: Metrics) -> list[Markup]:
    """Return the section, if there were any faults."""
    if not metrics.faults:
        return []
    rows = [_fault_row(fault) for fault in metrics.faults if fault.before or fault.after]
    more, left_out = rows[ROWS:], len(metrics.faults) - len(rows)
    return [
        section(
            "Faults",
            "When each acted, how often it had an effect, and what it cost. Before and after are "
            "as long as the fault, at most 10 seconds. Times are of the slowest pair, since the "
            "fault's end.",
            figure(*(timelines.faults(metrics, width) for width in WIDTHS)),
            _fault_table(rows[:ROWS]),
            _more_faults(more),
            tag("p", f"and {left_out} more, not measured one by one", class_="quiet")
            if left_out
            else None,
            id_="faults",
        )
    ]


def struck_section(kept: Kept) -> list[Markup]:
    """Return the section with the pairs that faults struck, if these were counted."""
    struck = kept.by_the_run.struck
    if not struck:
        return []
    names = {name for pairs in struck.values() for pair in pairs for name in pair}
    members = kept.metrics.names if kept.metrics else sorted(names, key=natural)
    total = {fault: sum(pairs.values()) for fault, pairs in struck.items()}
    most = sorted(struck, key=lambda fault: -total[fault])[:MAPS]
    left_out = len(struck) - len(most)
    maps = [
        figure(
            heatmap.struck_map(members, fault, struck[fault]),
            caption=f"{fault}, {quantities.counted(total[fault], 'time')}",
        )
        for fault in struck
        if fault in most
    ]
    return [
        section(
            "Whom the faults struck",
            "Frames or packets on which each fault had an effect: senders down, receivers across. "
            "A pair without a number was not struck.",
            tag("div", *maps, class_="maps"),
            tag(
                "p", f"and {quantities.counted(left_out, 'fault')} that struck less", class_="quiet"
            )
            if left_out
            else None,
            id_="struck",
        )
    ]


def _more_faults(rows: list[Markup]) -> Markup | None:
    if not rows:
        return None
    return tag("details", tag("summary", f"{len(rows)} more"), _fault_table(rows), class_="print")


def _fault_table(rows: list[Markup]) -> Markup:
    head = [
        tag("th", "fault"),
        tag("th", "when"),
        tag("th", "struck", class_="n"),
        tag("th", "delivered per second", tag("br"), "before → during → after", class_="n"),
        tag("th", "transmissions", tag("br"), "per message", class_="n"),
        tag("th", "first delivery", tag("br"), "after its end", class_="n"),
        tag("th", "all repaired", class_="n"),
        tag("th", "one view", class_="n"),
    ]
    return table("faults", head, rows)


def _fault_row(fault: FaultWindow) -> Markup:
    struck = "–" if fault.bites is None else f"{quantities.count(fault.bites)}×"
    resync = fault.resync
    whom = f"{fault.do} {fault.member}" if fault.member else fault.do
    costly = fault.after if fault.is_over_at_once else fault.during
    amplification = costly.amplification if costly else None
    return tag(
        "tr",
        tag("td", whom, tag("small", fault.id)),
        tag("td", wording.window(fault)),
        tag("td", struck, class_="n"),
        tag(
            "td",
            " → ".join(_rate(p) for p in (fault.before, fault.during, fault.after) if p),
            class_="n",
        ),
        tag("td", "–" if amplification is None else f"{amplification:.2f}", class_="n"),
        _time(resync.first_slowest if resync else None),
        _time(resync.repaired_slowest if resync else None),
        tag("td", _one_view(resync), class_="n"),
    )


def _one_view(resync: ResyncTimes | None) -> str:
    """Return the time until the group had one view again; "kept" if it never lost it."""
    if resync is None or resync.one_view is None:
        return "–"
    return quantities.duration(resync.one_view) if resync.one_view else "kept"


def _rate(phase: Phase) -> str:
    return quantities.significant(phase.rate)


def _time(time: PairTime | None) -> Markup:
    if time is None:
        return tag("td", "–", class_="n")
    pair = tag("small", f"{time.sender} → {time.receiver}")
    return tag("td", quantities.duration(time.seconds), pair, class_="n")
