"""The whole table: measures, judges and writes down every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bench import idle, machine
from bench.cluster import Plan, Say, measure
from bench.errors import BenchError
from bench.goals import ROWS, Judged, Row, is_good, judge, judge_idle
from bench.report import as_json
from bench.work import OURS, Work

IDLE_ROW: Final = "memory of an idle member"
IDLE_WORK: Final = Work(mode="multicast")
IDLE_PEERS: Final = ["jgroups"]


@dataclass(slots=True)
class Table:
    """The rows that were measured so far."""

    rows: list[Row] = field(default_factory=list)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By row: the JSON of its run."""
    idle: dict[str, idle.Figures] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """By row: why it has no figures."""
    is_interrupted: bool = False

    def judged(self) -> dict[str, list[Judged]]:
        """Judge the goals of each row."""
        found = {row.name: judge(row, self.reports) for row in self.rows}
        if self.idle:
            found[IDLE_ROW] = judge_idle(self.idle[OURS])
        return found

    @property
    def is_met(self) -> bool | None:
        """Whether all goals are met; None when that is not known."""
        verdicts = [each.is_met for judged in self.judged().values() for each in judged]
        if False in verdicts:
            return False
        return None if None in verdicts or self.problems or self.is_interrupted else True

    @property
    def has_problems(self) -> bool:
        """Whether a row, or a peer in it, could not be measured."""
        return bool(self.problems) or any(each["failed"] for each in self.reports.values())

    @property
    def holds(self) -> bool:
        """Whether no check of a run has failed."""
        checks = [report["check"] for report in self.reports.values()]
        return all(check is None or check["holds"] for check in checks)


def measure_all(
    like: Plan,
    tell: Say,
    rows: Sequence[Row] = ROWS,
    keep: Callable[[Table], None] = lambda _table: None,
) -> Table:
    """Measure all rows; the plans are like `like` in all but work and teams. `keep` gets the table
    after each row, so that nothing is lost."""
    table = Table()
    try:
        for row in rows:
            tell(row.name)
            plan = replace(like, work=row.work, teams=(OURS, *row.peers))
            try:
                result = measure(plan, tell)
            except BenchError as error:
                table.problems[row.name] = str(error)
                tell(f"  {error}")
                continue
            if result.is_interrupted:
                raise KeyboardInterrupt
            table.rows.append(row)
            table.reports[row.name] = as_json(result)
            keep(table)
        tell(IDLE_ROW)
        try:
            table.idle = idle.measure(IDLE_WORK, IDLE_PEERS)
        except BenchError as error:
            table.problems[IDLE_ROW] = str(error)
    except KeyboardInterrupt:
        table.is_interrupted = True
    keep(table)
    return table


def table_json(table: Table) -> dict[str, Any]:
    """Return everything about a table."""
    return {
        "rows": table.reports,
        "goals": {
            name: [each.as_json() for each in judged] for name, judged in table.judged().items()
        },
        "idle": table.idle,
        "problems": table.problems,
        "met": table.is_met,
        "holds": table.holds,
        "interrupted": table.is_interrupted,
        **machine.describe(),
    }


def markdown(table: Table) -> str:
    """Return the table for people."""
    about = machine.describe()
    lines = [
        f"{about['machine']['cpu']}, {about['machine']['cores']} cores shared by all members, "
        f"kernel {about['machine']['kernel']}, Python {about['python']}, commit {about['commit']}.",
        "",
        "| measured | ours | spread | JGroups stock | JGroups tuned | Aeron | Aeron 60 KB "
        "| × raw sockets | goal | met |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    judged = table.judged()
    lines += [_row_line(row, table.reports[row.name], judged[row.name]) for row in table.rows]
    if table.idle:
        lines.append(_idle_line(table, judged[IDLE_ROW]))
    lines += [f"\n{name}: not measured: {why}" for name, why in table.problems.items()]
    for name, report in table.reports.items():
        lines += [f"\n{name}: {peer} is out: {why}" for peer, why in report["failed"].items()]
        check = report["check"]
        if check is not None and not check["holds"]:
            lines.append(f"\n{name}: the figure of ours does not count: {check['findings']}")
    if table.is_interrupted:
        lines.append("\nInterrupted: the rows above are what there is.")
    return "\n".join(lines) + "\n"


def _row_line(row: Row, report: dict[str, Any], judged: list[Judged]) -> str:
    peers, is_latency = report["peers"], row.work.is_latency
    cells = [row.name, "", ""]
    if is_good(report) or report["check"] is None:
        ours = number(report["ours"]) + _tail(report, OURS)
        cells = [row.name, ours, per_cent(report["spread"].get(OURS))]
    else:
        # Nor does what is measured by it.
        report = {**report, "ratio": {}}
    for peer in ("jgroups", "jgroups-tuned", "aeron", "aeron-60k"):
        factor = report["ratio"].get(peer)
        by = f" (× {factor:.2f})" if factor is not None and not is_latency else ""
        cells.append(f"{number(peers.get(peer))}{_tail(report, peer)}{by}")
    raw = report["ratio"].get("raw")
    cells.append("" if raw is None else f"{raw:.2f}")
    return _cells([*cells, *_goal_cells(judged)])


def _idle_line(table: Table, judged: list[Judged]) -> str:
    def cell(name: str) -> str:
        figures = table.idle.get(name)
        if not figures:
            return ""
        memory = max(each["rss_mb"] for each in figures)
        return f"{memory:.0f} MB, {max(each['threads'] for each in figures)} threads"

    cells = [IDLE_ROW, cell(OURS), "", cell("jgroups"), "", "", "", ""]
    return _cells([*cells, *_goal_cells(judged)])


def _goal_cells(judged: list[Judged]) -> list[str]:
    words = {True: "yes", False: "**no**", None: "unknown"}
    goals = "; ".join(str(each.goal) for each in judged)
    return [goals, "; ".join(words[each.is_met] for each in judged)]


def _tail(report: dict[str, Any], who: str) -> str:
    """Return the p99 of round trips, and how many there were; empty for other traffic."""
    found = report["details"].get(who)
    if not found or report["ours" if who == OURS else "peers"] is None:
        return ""
    return f" / {number(found['p99_us'])}; {number(found['count_in_5_s'])} in 5 s"


def number(value: float | None) -> str:
    """Return a figure for people; empty when there is none."""
    return "" if value is None else f"{value:,.0f}"


def per_cent(value: float | None) -> str:
    """Return a share for people; empty when there is none."""
    return "" if value is None else f"{value:.0%}"


def _cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
