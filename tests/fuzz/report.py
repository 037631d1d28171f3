"""What a campaign found, as a table and a line per finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from stormcast.chaos.oracles.verdict import Verdict
from stormcast.exits import Exit
from stormcast.node.core import wire
from tests.fuzz.powers import PAUSE_FRAMES, VIEW_FRAMES, VIEW_HELLO
from tests.fuzz.rounds import FORGED, KEYED, MIB, Result
from tests.fuzz.streams import UNASKED

HEADINGS: Final = (
    "target", "frames", "refused", "foreseen", "lost", "MiB before", "after", "bytes/frame",
    "views", "verdict",
)  # fmt: skip  # one line of a table
MOST_REASONS: Final = 6


def table(results: Sequence[Result]) -> str:
    """Return a line per target and part."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.round.target, result.round.part), []).append(result)
    rows = [HEADINGS, *(_row(name, part, found) for (name, part), found in groups.items())]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in rows]  # fmt: skip  # two lines say it
    return "\n".join(lines)


def _row(name: str, part: str, found: Sequence[Result]) -> tuple[str, ...]:
    frames = sum(result.sent.get("frames", 0) for result in found)
    refused = sum(
        number for result in found for why, number in result.refused.items() if why != UNASKED
    )
    memory = [values for result in found for values in result.memory.values()]
    worst = max(memory, key=lambda values: values[1] - values[0], default=(0, 0, 0.0, 0.0))
    steepest = max((values[2] for values in memory), default=0.0)
    verdicts = Counter(result.verdict for result in found)
    return (
        f"{name} {part}",
        str(frames),
        str(refused),
        str(sum(result.foreseen for result in found)),
        str(sum(result.lost for result in found)),
        f"{worst[0] / MIB:.1f}",
        f"{worst[1] / MIB:.1f}",
        f"{steepest:.1f}",
        str(sum(result.views for result in found)),
        ", ".join(f"{verdict} × {number}" for verdict, number in verdicts.items()),
    )


def reasons(results: Sequence[Result]) -> list[str]:
    """Return a line per target: for which reasons most was refused, or how requests were
    answered."""
    by_target: dict[str, Counter[str]] = {}
    for result in results:
        counts = by_target.setdefault(result.round.target, Counter())
        counts.update(result.refused)
        counts.update({why: n for why, n in result.sent.items() if why.startswith("status")})
    return [
        f"{name}: "
        + ", ".join(f"{why} {number}" for why, number in counts.most_common(MOST_REASONS))
        for name, counts in by_target.items()
    ]


def powers(results: Sequence[Result]) -> list[str]:
    """Return what was sent that a group without keys has to believe, by kind, and what can change a
    view under which condition."""
    keyed, _sent = _believed(results, KEYED)
    first, sent = _believed(results, FORGED)
    # Which of them a group without keys believes is said where they had power.
    lines = [*keyed, *first]
    for label, conditions in (("view", VIEW_FRAMES), ("pause", PAUSE_FRAMES)):
        for name, number in sent.items():
            what = name.removeprefix(f"{label}: ")
            if name != what:
                known = {pair_name(pair): why for pair, why in conditions.items()}
                condition = known.get(what, VIEW_HELLO)
                lines.append(f"    {label}: {what} {number}: {condition}".rstrip(": "))
    return lines


def _believed(results: Sequence[Result], part: str) -> tuple[list[str], Counter[str]]:
    """Return a line of what was sent in one part that members without keys believe, and it."""
    sent: Counter[str] = Counter()
    views = 0
    for result in results:
        if result.round.part == part:
            sent.update(result.powers)
            views += result.views
    if not sent:
        return [], sent
    without = "" if part == FORGED else " without keys"
    line = (
        f"{part}: {sent['view']} frames that can change a view{without}, {sent['pause']} that can "
        f"hold one up, {sent['messages']} that can change messages; views changed {views} times"
    )
    return [line], sent


def pair_name(pair: tuple[int, int]) -> str:
    """Return a protocol and a kind as `KIND of PROTOCOL`."""
    return f"{wire.KINDS[pair[1]][0]} of {wire.PROTOCOLS[pair[0]]}"


def findings(results: Sequence[Result]) -> list[str]:
    """Return a line per finding, with the words that repeat it."""
    return [
        f"{result.round.target}: {what}; repeat: {result.repeat}"
        for result in results
        for what in result.findings
    ]


def exit_of(results: Sequence[Result], left: int) -> Exit:
    """Return the exit code: a finding is a violation; what was not played, or not judged, proves
    nothing."""
    if any(result.findings for result in results):
        return Exit.VIOLATED
    judged = all(result.verdict != str(Verdict.UNKNOWN) for result in results)
    return Exit.HOLDS if results and judged and not left else Exit.UNKNOWN
