"""The results of a comparison as a part of a page in Markdown, between its markers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stormcast.chaos.campaigns.versus.contests import LeftOut
from stormcast.chaos.campaigns.versus.rows import Row, pairs_of
from stormcast.node.core.errors import ConfigError

BEGIN: Final = "<!-- compared -->"
END: Final = "<!-- /compared -->"
_KILO: Final = 1000


def check_place(page: str, name: str) -> None:
    """Raise ConfigError if a page has no place for the results."""
    if not 0 <= page.find(BEGIN) < page.find(END):
        raise ConfigError(f"{name} has no place for the results: put {BEGIN} and {END} there")


def written(page: str, rows: Sequence[Row], left_out: Sequence[LeftOut]) -> str:
    """Return the page with these results between its markers."""
    check_place(page, "the page")
    before, _, rest = page.partition(BEGIN)
    _old, _, after = rest.partition(END)
    parts = [_about(rows), "\n".join(_table(rows)), _violations(rows), _left_out(left_out)]
    text = "\n\n".join(filter(None, parts))
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the table: a header, and a line per scenario and stack."""
    header = (
        *("scenario", "stack"),
        *("Stormcast", "resync", "packets", "kB"),
        *("JGroups", "resync", "packets", "kB"),
    )
    return [header, *(_line(*pair) for pair in pairs_of(rows))]


def _line(ours: Row | None, theirs: Row | None) -> tuple[str, ...]:
    one = ours or theirs
    assert one is not None, "a pair has one row at least"
    return (one.scenario, one.stack, *_side(ours), *_side(theirs))


def _side(row: Row | None) -> tuple[str, str, str, str]:
    if row is None:
        return ("not played", "", "", "")
    resync = "never" if row.healed else ""
    if row.resync is not None:
        resync = f"{row.resync:.2f} s"
    return (row.sum, resync, str(row.packets), f"{row.bytes / _KILO:.0f}")


def _table(rows: Sequence[Row]) -> list[str]:
    header, *lines = cells(rows)
    rule = tuple("---" for _cell in header)
    return [f"| {' | '.join(line)} |" for line in (header, rule, *lines)]


def _about(rows: Sequence[Row]) -> str:
    """Return where, and with what, rows were measured: what most of them were, and then others."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row.about, []).append(row.scenario)
    (first, _of), *others = sorted(names.items(), key=lambda one: -len(one[1]))
    return "\n\n".join(
        [first, *(f"{', '.join(sorted(set(of)))}: {about}" for about, of in others)]
    ).strip()


def _violations(rows: Sequence[Row]) -> str:
    """Return what was found in each run that does not hold, with the witness."""
    parts = []
    for row in rows:
        if not row.findings:
            continue
        what = f"**{row.scenario} on {row.stack}, {row.system}**"
        lines = [f"{what}: {row.owed}" if row.owed else what, ""]
        lines += [f"- {name} {verdict}: {detail}" for name, verdict, detail in row.findings]
        lines += ["", "```", *row.witness, "```"] if row.witness else []
        parts.append("\n".join(lines))
    return "\n\n".join(["## What did not hold", *parts]) if parts else ""


def _left_out(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return ""
    rows = [f"| {one.name} | {one.why} |" for one in left_out]
    return "\n".join(["## Not played", "", "| scenario | why |", "|---|---|", *rows])
