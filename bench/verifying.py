"""`stormcast bench verify`: what Spark's verdict on large runs costs, beside a database that judges
the core of it on the same files."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bench import large_run, machine
from bench.errors import BenchError
from bench.members_cli import interruptible
from bench.rounds import Rounds
from bench.tree import Cost, cost_of
from stormcast.exits import Exit

OURS: Final = "verify"
DUCKDB: Final = "duckdb"
EVENTS: Final = (100_000, 1_000_000)
LEAST: Final = 10_000
"""A run of fewer events may have no unicasts."""
MOST_BATCH: Final = 1024
"""More messages than a member may ask for at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the judges of one run cost."""

    events: int
    batch: int
    costs: dict[str, tuple[Cost, ...]]
    """By judge, in the order of the rounds."""

    def cpu(self, judge: str) -> Rounds:
        """Return the seconds of CPU of each round."""
        return Rounds(rounds=tuple(cost.cpu for cost in self.costs[judge]))

    @property
    def ratio(self) -> float | None:
        """How many times the CPU of the peer ours takes; None without a peer."""
        if DUCKDB not in self.costs:
            return None
        return self.cpu(OURS).median / self.cpu(DUCKDB).median

    def as_json(self) -> dict[str, Any]:
        """Return medians and spreads."""
        told: dict[str, Any] = {"events": self.events, "batch": self.batch}
        for judge, costs in self.costs.items():
            cpu, seconds = self.cpu(judge), Rounds(rounds=tuple(cost.seconds for cost in costs))
            told[judge] = {
                "cpu": round(cpu.median, 2),
                "cpu_spread": round(cpu.spread, 3),
                "seconds": round(seconds.median, 2),
                "memory_mib": max(cost.memory for cost in costs),
            }
        if self.ratio is not None:
            told["ratio"] = round(self.ratio, 1)
        return told


def bench(_what: str, argv: list[str]) -> int:
    """Measure, and print a table."""
    args = _arguments(argv)
    if args.peer and find_spec(DUCKDB) is None:
        print(f"stormcast bench verify: no {DUCKDB} here: pip install {DUCKDB}", file=sys.stderr)
        return Exit.UNKNOWN
    judges = (OURS, *dict.fromkeys(args.peer))
    rows: list[Row] = []
    with interruptible(), tempfile.TemporaryDirectory(prefix="stormcast-bench-") as folder:
        try:
            for events in args.events or EVENTS:
                rows.append(measure(Path(folder), events, judges, args))
                if not args.json:
                    print(_line(rows[-1], heading=len(rows) == 1), flush=True)
        except BenchError as error:
            print(f"stormcast bench verify: {error}", file=sys.stderr)
            return Exit.UNKNOWN
    if args.json:
        print(json.dumps({"rows": [row.as_json() for row in rows], **machine.describe()}))
    return Exit.HOLDS


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="stormcast bench verify",
        description="Make sound runs of many events, and measure what judging them costs.",
        allow_abbrev=False,
    )
    sizes = " and ".join(f"{size:,}" for size in EVENTS)
    parser.add_argument(
        "--events", type=int, action="append", help=f"of a run; again for another (default {sizes})"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", choices=[DUCKDB], action="append", default=[])
    parser.add_argument(
        "--senders", type=int, default=large_run.MEMBERS, help="of the five members (default all)"
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=large_run.BATCH,
        help=f"messages of a batch (default {large_run.BATCH})",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    if any(events < LEAST for events in args.events or ()):
        parser.error(f"--events: {LEAST} or more")
    if not 1 <= args.senders <= large_run.MEMBERS:
        parser.error(f"--senders: 1 to {large_run.MEMBERS}")
    if not 1 <= args.batch <= MOST_BATCH or args.rounds < 1:
        parser.error(f"--batch: 1 to {MOST_BATCH}, --rounds: 1 or more")
    return args


def measure(folder: Path, events: int, judges: Sequence[str], args: argparse.Namespace) -> Row:
    """Make a run, and have its judges take turns."""
    run = folder / f"{events}"
    print(f"making a run of some {events:,} events", file=sys.stderr)
    made = large_run.make(run / "parquet", events, senders=args.senders, batch=args.batch)
    costs: dict[str, list[Cost]] = {judge: [] for judge in judges}
    for number in range(args.rounds):
        for judge in judges:
            print(f"round {number + 1}: {judge}", file=sys.stderr)
            costs[judge].append(_judged(judge, run))
    return Row(made, args.batch, {judge: tuple(each) for judge, each in costs.items()})


def _judged(judge: str, run: Path) -> Cost:
    if judge == OURS:
        words = ["stormcast", "verify", "--json", "--out", str(run / "out"), str(run)]
    else:
        words = ["bench.peers.duckdb_judge", str(run / "parquet")]
    cost, said = cost_of([sys.executable, "-m", *words])
    # A sound run that is judged otherwise was not judged.
    told = json.loads(said) if cost.code == 0 else {}
    if not told or (any(told.values()) if judge != OURS else told["verdict"] != "holds"):
        raise BenchError(f"{judge} does not say that a sound run holds, so this is no figure")
    return cost


def _line(row: Row, *, heading: bool) -> str:
    lines = []
    if heading:
        lines.append(
            f"  {'events':>10}  {'judge':<7} {'CPU s':>8} {'spread':>7} {'s':>7} {'MiB':>6}"
        )
    told = row.as_json()
    for judge in row.costs:
        one = told[judge]
        lines.append(
            f"  {row.events:>10,}  {judge:<7} {one['cpu']:>8.1f} {one['cpu_spread']:>7.0%} "
            f"{one['seconds']:>7.1f} {one['memory_mib']:>6}"
        )
    if row.ratio is not None:
        lines.append(f"  {'':>10}  {OURS} takes {row.ratio:.1f} times the CPU of {DUCKDB}")
    return "\n".join(lines)
