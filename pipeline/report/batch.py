"""The page of many runs: scenario × protocol × verdict, worst first, with a link to each report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stormcast.pipeline.measured import natural
from stormcast.pipeline.report import quantities, wording
from stormcast.pipeline.report.markup import Markup, join, tag
from stormcast.pipeline.report.page import chip, headline, page, section, table
from stormcast.pipeline.report.run_files import HOLDS, NO_RETRANSMISSION, Kept, rank

PROTOCOLS: Final = (
    "UNICAST",
    "UNICAST2",
    "UNICAST3",
    "UNICAST3-SYNC",
    "UNICAST4",
    "NAKACK2 on UDP",
    "NAKACK2 on TCP",
    f"NAKACK2 on TCP{NO_RETRANSMISSION}",
    "NAKACK2 on TCP_NIO2",
    f"NAKACK2 on TCP_NIO2{NO_RETRANSMISSION}",
    "MCAST",
)
"""The order of the columns; others come after them by name."""
TOLD: Final = 50
"""The most runs that did not hold which are listed one by one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of the batch."""

    kept: Kept
    link: str | None
    """The link to its report, relative to the page; None: it has none."""

    @property
    def verdict(self) -> str:
        return self.kept.verdict.verdict


def batch_report(
    name: str, found: Sequence[Entry], without: Sequence[Kept] = (), said: Sequence[str] = ()
) -> str:
    """Return the page of a batch: of the runs that were found, and of those without a directory.
    `said` are verdicts on all of them, which tell which runs without a directory count."""
    verdicts = [entry.verdict for entry in found] or ["unknown"]
    worst = min([*verdicts, *said], key=rank)
    entries = [*found, *(Entry(kept, None) for kept in without)]
    lead = _lead(entries, worst)
    header = headline(
        worst,
        tag("p", tag("strong", name), *_shared(found), class_="names"),
        lead=lead,
        below=_tally(entries),
    )
    alone = [entry for entry in entries if not entry.kept.is_group]
    groups = [entry for entry in entries if entry.kept.is_group]
    body = join(
        _bad(entries),
        _matrix("Members on their own", "One column per generation of unicast.", alone, "alone"),
        _matrix("Groups", "One column per stack and what it is set to.", groups, "groups"),
    )
    return page(f"{name}: {lead}", header, body)


def _shared(entries: Sequence[Entry]) -> list[Markup]:
    """Return the backends of the runs, and their seed if all have the same."""
    # Of a run without a verdict nobody knows the backend.
    backends = {entry.kept.verdict.backend for entry in entries} - {""}
    seeds = {entry.kept.verdict.seed for entry in entries}
    words = [f"on {', '.join(sorted(backends))}"] if backends else []
    words += [f"seed {seed}" for seed in seeds if len(seeds) == 1 and seed is not None]
    return [tag("span", word) for word in words]


def _lead(entries: Sequence[Entry], worst: str) -> str:
    if not entries:
        return "No runs were found."
    held = sum(entry.verdict == HOLDS for entry in entries)
    if held < len(entries):
        return f"{quantities.count(held)} of {quantities.counted(len(entries), 'run')} hold."
    all_of_them = "The only run holds" if held == 1 else f"All {quantities.count(held)} runs hold"
    if worst != HOLDS:
        return f"{all_of_them}, but the verdict on the whole is {worst}."
    return f"{all_of_them}."


def _tally(entries: Sequence[Entry]) -> Markup:
    counts = Counter(entry.verdict for entry in entries)
    known = sorted(counts, key=lambda verdict: (rank(verdict), verdict))
    return tag(
        "p",
        *(chip(verdict, before=f"{quantities.count(counts[verdict])} ") for verdict in known),
        class_="tally",
    )


def _bad(entries: Sequence[Entry]) -> Markup | None:
    bad = sorted((entry for entry in entries if entry.verdict != HOLDS), key=_place)
    if not bad:
        return None
    head = [tag("th", text) for text in ("scenario", "protocol", "verdict", "why")]
    rows = [
        tag(
            "tr",
            tag("td", entry.kept.verdict.scenario),
            tag("td", entry.kept.protocol, tag("small", entry.kept.timing)),
            tag("td", chip(entry.verdict, entry.link)),
            tag("td", _why(entry.kept), class_="detail"),
        )
        for entry in bad[:TOLD]
    ]
    rest = len(bad) - len(rows)
    return section(
        "What did not hold",
        "Worst first. Each report shows the evidence and the command that runs it again.",
        table("bad", head, rows),
        tag("p", f"and {quantities.count(rest)} more", class_="quiet") if rest else None,
        id_="bad",
    )


def _why(kept: Kept) -> str:
    findings = kept.verdict.findings_worst_first()
    first = next((finding for finding in findings if not finding.holds), None)
    return wording.summary(first) or kept.verdict.reason


def _matrix(title: str, about: str, entries: Sequence[Entry], id_: str) -> Markup | None:
    """Return a table: a row per scenario and timing, a column per protocol; worst rows first."""
    if not entries:
        return None
    columns = sorted({entry.kept.protocol for entry in entries}, key=_column)
    lines: dict[tuple[str, str], dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in sorted(entries, key=_place):
        line = entry.kept.verdict.scenario, entry.kept.timing
        lines[line][entry.kept.protocol].append(entry)
    has_timing = len({timing for _scenario, timing in lines}) > 1
    head = [
        tag("th", "scenario"),
        tag("th", "timing") if has_timing else None,
        *(tag("th", column) for column in columns),
    ]
    rows = [
        tag(
            "tr",
            tag("td", scenario),
            tag("td", timing, class_="quiet") if has_timing else None,
            *(tag("td", *_cell(cells.get(column, ()))) for column in columns),
        )
        for (scenario, timing), cells in sorted(lines.items(), key=_worst_line)
    ]
    whole = table("matrix", [cell for cell in head if cell], rows)
    return section(title, about, whole, id_=id_, class_="full")


def _cell(entries: Iterable[Entry]) -> list[Markup]:
    return [join(chip(entry.verdict, entry.link), " ") for entry in entries]


def _worst_line(
    line: tuple[tuple[str, str], dict[str, list[Entry]]],
) -> tuple[int, str, str]:
    (scenario, timing), cells = line
    worst = min(rank(entry.verdict) for entries in cells.values() for entry in entries)
    return worst, scenario, timing


def _place(entry: Entry) -> tuple[int, str, tuple[int, tuple[str, int, str]], str]:
    kept = entry.kept
    return rank(entry.verdict), kept.verdict.scenario, _column(kept.protocol), kept.directory


def _column(protocol: str) -> tuple[int, tuple[str, int, str]]:
    known = PROTOCOLS.index(protocol) if protocol in PROTOCOLS else len(PROTOCOLS)
    return known, natural(protocol)
