"""`stormcast bench table|sweep`: many runs, one after another."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench import sweep, table
from bench.cluster import Plan, say
from bench.errors import BenchError
from bench.goals import ROWS
from bench.members_cli import add_options, check_rounds, interruptible, options_of
from bench.work import OURS, PEERS
from stormcast.exits import Exit


def bench(what: str, argv: list[str]) -> int:
    """Measure the rows of the table, or the series of a sweep."""
    parser = _parser(what)
    args = parser.parse_args(argv)
    try:
        check_rounds(args)
        like = Plan(
            work=sweep.BASE,
            teams=(OURS, *dict.fromkeys(args.peer if what == "sweep" else ())),
            rounds=args.rounds,
            seconds=args.seconds,
            warm_rounds=args.warm_up,
            options=options_of(args),
        )
    except BenchError as error:
        parser.error(str(error))
    with interruptible():
        if what == "sweep":
            swept = sweep.measure_series(args.only or list(sweep.SERIES), like, say)
            _write(args, sweep.sweep_json(swept), sweep.markdown(swept, like.teams))
            return _exit_code(swept.holds, swept.is_interrupted, swept.has_problems)
        rows = [row for row in ROWS if not args.row or any(part in row.name for part in args.row)]
        if not rows:
            parser.error(f"--row: none of {', '.join(row.name for row in ROWS)}")

        def keep(so_far: table.Table) -> None:
            _keep(args.out, table.table_json(so_far), table.markdown(so_far))

        done = table.measure_all(like, say, rows, keep)
        _write(args, table.table_json(done), table.markdown(done))
        return _exit_code(done.holds, done.is_interrupted, done.has_problems)


def _parser(what: str) -> argparse.ArgumentParser:
    about = {
        "table": "Measure every row of the table, with its peers, against its goals.",
        "sweep": "Measure how cost grows with members, size, loss and delay.",
    }
    parser = argparse.ArgumentParser(
        prog=f"stormcast bench {what}", description=about[what], allow_abbrev=False
    )
    add = parser.add_argument
    add("--rounds", type=int, default=5 if what == "table" else 3, metavar="R")
    add("--seconds", type=float, default=3.0 if what == "table" else 2.0, metavar="S")
    add("--json", action="store_true", help="one JSON object on stdout, instead of the table")
    add("--out", type=Path, metavar="FILE", help="write FILE.md and FILE.json, too")
    if what == "table":
        add("--row", action="append", default=[], metavar="TEXT", help="only rows with it")
    else:
        add("--only", action="append", choices=tuple(sweep.SERIES), help="one series; repeatable")
        add("--peer", action="append", default=[], choices=PEERS, help="compare with; repeatable")
    add_options(parser)
    return parser


def _write(args: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    print(json.dumps(data) if args.json else text)
    _keep(args.out, data, text)


def _keep(out: Path | None, data: dict[str, Any], text: str) -> None:
    if out is None:
        return
    stem = out.with_suffix("") if out.suffix in {".md", ".json"} else out
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text(text)
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")


def _exit_code(holds: bool, is_interrupted: bool, has_problems: bool) -> Exit:  # noqa: FBT001 three facts
    """Return the exit code. Missed goals are printed, and are no error: a figure is a fact about a
    machine."""
    if is_interrupted:
        return Exit.INTERRUPTED
    if not holds:
        return Exit.VIOLATED
    return Exit.UNKNOWN if has_problems else Exit.HOLDS
