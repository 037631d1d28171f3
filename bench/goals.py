"""The goals of our members: one row per kind of traffic, with the peers of the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.work import Work

FIGURE: Final = "figure"
"""The headline of a row; other figures are among its details."""
ROW: Final = "row "
"""The beginning of `Goal.against` where that is another row, not a peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound, or a multiple of what a peer or another row reached."""

    factor: float
    against: str = ""
    """A peer of the same run, or another row; empty: `factor` is the bound itself."""
    figure: str = FIGURE
    is_ceiling: bool = False
    """Whether the figure is to be at or below the bound; else at or above."""

    def is_met(self, ours: float | None, theirs: float | None = None) -> bool | None:
        """Whether the goal is met; None when a figure for it is missing."""
        measure = 1.0 if not self.against else theirs
        if ours is None or measure is None:
            return None
        bound = self.factor * measure
        return ours <= bound if self.is_ceiling else ours >= bound

    def __str__(self) -> str:
        sign = "≤" if self.is_ceiling else "≥"
        what = "" if self.figure == FIGURE else f"{self.figure} "
        if not self.against:
            return f"{what}{sign} {self.factor:,.10g}"
        return f"{what}{sign} {self.factor:g} × {self.against}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of traffic, its peers, and its goals."""

    name: str
    work: Work
    peers: tuple[str, ...]
    goals: tuple[Goal, ...]


def below(against: str, figure: str) -> Goal:
    """Return the goal to need at most what a peer needs."""
    return Goal(factor=1.0, against=against, figure=figure, is_ceiling=True)


JGROUPS: Final = ("raw", "jgroups", "jgroups-tuned")
AERON: Final = ("aeron", "aeron-60k")
LOSS: Final = 0.05

ROWS: Final = (
    Row(
        name="multicast UDP, 3 senders, 1 KB",
        work=Work(mode="multicast", size=1000),
        peers=JGROUPS,
        goals=(Goal(factor=1.3, against="jgroups-tuned"),),
    ),
    Row(
        name="multicast UDP, 3 senders, 100 B",
        work=Work(mode="multicast", size=100),
        peers=JGROUPS,
        goals=(Goal(factor=1.0, against="jgroups-tuned"),),
    ),
    Row(
        name="multicast TCP, 3 senders, 1 KB",
        work=Work(mode="multicast", transport="tcp", size=1000),
        peers=("raw", "jgroups"),
        goals=(Goal(factor=1.3, against="jgroups"),),
    ),
    Row(
        name="unicast UDP, 1 KB",
        work=Work(mode="unicast", members=2, size=1000),
        peers=(*JGROUPS, *AERON),
        goals=(
            Goal(factor=1.0, against="jgroups-tuned"),
            Goal(factor=1.0, against="aeron"),
            Goal(factor=0.6, against="aeron-60k"),
        ),
    ),
    Row(
        name="unicast UDP, 100 B",
        work=Work(mode="unicast", members=2, size=100),
        peers=(*JGROUPS, *AERON),
        goals=(Goal(factor=0.7, against="jgroups-tuned"), Goal(factor=1.0, against="aeron")),
    ),
    Row(
        name="unicast TCP, 1 KB",
        work=Work(mode="unicast", transport="tcp", members=2, size=1000),
        peers=("raw", "jgroups"),
        goals=(Goal(factor=5.0, against="jgroups"),),
    ),
    Row(
        name="unicast TCP, 100 B",
        work=Work(mode="unicast", transport="tcp", members=2, size=100),
        peers=("raw", "jgroups"),
        goals=(Goal(factor=5.0, against="jgroups"),),
    ),
    Row(
        name="round trip UDP, 100 B (µs)",
        work=Work(mode="roundtrip", members=2, size=100),
        peers=JGROUPS,
        goals=tuple(below(peer, figure) for figure in ("p50_us", "p99_us") for peer in JGROUPS[1:]),
    ),
    Row(
        name="unicast UDP, 1 KB, 5 % loss",
        work=Work(mode="unicast", members=2, size=1000, loss=LOSS),
        peers=("jgroups", "jgroups-tuned", *AERON),
        goals=(
            Goal(factor=0.3, against=f"{ROW}unicast UDP, 1 KB"),
            *(Goal(factor=1.5, against=peer) for peer in AERON),
        ),
    ),
    Row(
        name="round trip UDP, 100 B, 5 % loss (µs)",
        work=Work(mode="roundtrip", members=2, size=100, loss=LOSS),
        peers=("jgroups", "jgroups-tuned"),
        goals=(Goal(factor=10_000, figure="count_in_5_s"),),
    ),
)

IDLE_GOALS: Final = (
    Goal(factor=45, figure="rss_mb", is_ceiling=True),
    Goal(factor=1, figure="threads", is_ceiling=True),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal, its figures, and whether it is met."""

    goal: Goal
    ours: float | None
    theirs: float | None
    is_met: bool | None

    def as_json(self) -> dict[str, Any]:
        return {
            "goal": str(self.goal),
            "ours": self.ours,
            "theirs": self.theirs,
            "met": self.is_met,
        }


def judge(row: Row, said: Mapping[str, Mapping[str, Any]]) -> list[Judged]:
    """Judge the goals of a row, by the reports of all rows measured so far."""
    report = said[row.name]
    judged = []
    for goal in row.goals:
        ours = _figure(report, "ours", goal.figure)
        theirs = None
        if goal.against.startswith(ROW):
            other = said.get(goal.against.removeprefix(ROW))
            theirs = _figure(other, "ours", goal.figure) if other else None
        elif goal.against:
            theirs = _figure(report, goal.against, goal.figure)
        judged.append(Judged(goal, ours, theirs, goal.is_met(ours, theirs)))
    return judged


def is_good(report: Mapping[str, Any]) -> bool:
    """Whether the figure of ours counts: not if the journals of its run do not hold."""
    return bool((report.get("check") or {}).get("holds"))


def judge_idle(figures: Sequence[Mapping[str, float]]) -> list[Judged]:
    """Judge the goals of members that do nothing: the largest figure counts."""
    judged = []
    for goal in IDLE_GOALS:
        ours = max((each[goal.figure] for each in figures), default=None)
        judged.append(Judged(goal, ours, None, goal.is_met(ours)))
    return judged


def _figure(report: Mapping[str, Any], who: str, figure: str) -> float | None:
    if who == "ours" and not is_good(report):
        return None
    if figure != FIGURE:
        found: float | None = report["details"].get(who, {}).get(figure)
        return found
    headline: float | None = report["ours"] if who == "ours" else report["peers"].get(who)
    return headline
