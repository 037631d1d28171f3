"""`stormcast compare`: the costs of each generation of unicast in the scenario `storm`, or of two
soaks or runs; with `--notes`, what the design notes claim, answered by measurements."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.campaigns.compare import compare as compare_generations
from stormcast.chaos.campaigns.notes.answers import Answer, answers
from stormcast.chaos.campaigns.notes.claims import CLAIMS
from stormcast.chaos.campaigns.notes.page import check_place, figure_of, written
from stormcast.chaos.commands.arguments import (
    add_backend,
    add_json,
    add_seed,
    parser_of,
    read_count,
)
from stormcast.chaos.commands.output import (
    end_progress,
    in_columns,
    lacks,
    progress,
    refuse,
    say,
)
from stormcast.chaos.language.cluster import TIMINGS
from stormcast.chaos.oracles.verdict import Verdict, worst
from stormcast.chaos.soak.beside import Line, Side, lines_of, page_of, read_side, warnings_of
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError
from stormcast.whole import write_whole

SEEDS: Final = 15
TWO: Final = 2
PAGES: Final = (".html", ".htm")
Report = Callable[[Path, Mapping[str, Any]], None]
"""Writes the page of two sides into a file, from what `page_of` tells of them."""


def compare(argv: list[str], report: Report) -> int:
    """Run `stormcast compare`: two soaks or runs, all generations on the scenario `storm`, or the
    notes' claims."""
    args = _arguments(argv)
    try:
        if args.page is not None:
            _check_page(args)
        if args.notes and args.sides:
            raise ConfigError("--notes plays runs of its own: name no directories")
        if args.notes:
            return _answer_notes(args)
        if args.write or args.seeds is not None:
            raise ConfigError("--seeds and --write are of --notes, which is missing")
        if args.sides:
            return _compare_sides(args, report)
    except (ConfigError, OSError) as error:
        return refuse(error)
    if lacks(args.backend):
        return Exit.UNKNOWN
    return _compare_generations(args)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(
        "compare",
        "Print what two soaks or runs cost, side by side. Without them, run the storm scenario on "
        "every generation and print what each pays; or, with --notes, measure in the simulator "
        "what the design notes claim.",
    )
    parser.add_argument(
        "sides",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="two directories that stormcast soak, or stormcast run, has left",
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE.html", help="draw the two directories on a page as well"
    )
    add_backend(parser)
    add_seed(parser)
    parser.add_argument("--timing", choices=TIMINGS, default="compatible")
    add_json(parser)
    notes = parser.add_argument_group("of the design notes")
    notes.add_argument("--notes", action="store_true", help="answer their claims")
    notes.add_argument(
        "--seeds", type=read_count, help=f"how many, from --seed on (default {SEEDS})"
    )
    notes.add_argument(
        "--write", type=Path, metavar="FILE", help="write the answers into a page, at its markers"
    )
    return parser.parse_args(argv)


def _compare_generations(args: argparse.Namespace) -> int:
    say(f"seed {args.seed}")
    rows = list(compare_generations(args.seed, args.timing))
    if args.json:
        print(json.dumps([row.as_json() for row in rows]))
    else:
        table = [
            (
                "unicast",
                "verdict",
                "frames",
                "acks",
                "requests",
                "resent",
                "syncs",
                "unacked peak",
                "resync",
                "repaired",
            )
        ]
        table += [
            (
                row.unicast,
                row.verdict,
                str(row.data_frames),
                str(row.acks),
                str(row.requests),
                str(row.resent),
                str(row.syncs),
                f"{row.unacked_peak} ({row.unacked_peak_bytes / 1024:.0f} KiB)",
                f"{row.resync_ms:.0f} ms",
                f"{row.repaired_ms:.0f} ms",
            )
            for row in rows
        ]
        print(in_columns(table))
    return Exit.of(worst(Verdict[row.verdict.upper()] for row in rows))


def _check_page(args: argparse.Namespace) -> None:
    """Refuse a page of nothing, and a file that cannot be one, before anything is read."""
    if args.notes or len(args.sides) != TWO:
        raise ConfigError("--page is of two soaks or runs: name their two directories, no --notes")
    # Any other file may be evidence, such as the windows of a soak.
    if args.page.suffix not in PAGES:
        raise ConfigError(f"--page {args.page}: name a file that ends in .html")
    if not args.page.parent.is_dir():
        raise ConfigError(f"--page {args.page}: {args.page.parent} is no directory: make it first")
    if args.page.is_dir():
        raise ConfigError(f"--page {args.page} is a directory: name a file in it")


def _compare_sides(args: argparse.Namespace, report: Report) -> int:
    """Print the figures of two soaks or runs, whose verdicts were told before."""
    if len(args.sides) != TWO:
        raise ConfigError(f"{len(args.sides)} directories: name two, or none")
    first, second = map(read_side, args.sides)
    lines = lines_of(first, second)
    if args.page is not None:
        # Before the table: what cannot be written is one line, and nothing beside it.
        report(args.page, page_of(first, second, lines))
    for warning in warnings_of(first, second):
        say(warning)
    if args.json:
        verdicts = [dict(first.verdicts), dict(second.verdicts)]
        figures = [line.as_json() for line in lines]
        is_alike = first.played == second.played
        print(json.dumps({"alike": is_alike, "verdicts": verdicts, "figures": figures}))
        return Exit.HOLDS
    header = ("", str(first.path), str(second.path), "second / first")
    verdicts_row = ("verdicts", _verdicts(first), _verdicts(second), "")
    print(in_columns([header, verdicts_row, *map(_line, lines)]))
    if args.page is not None:
        print(f"page: {args.page}")
    return Exit.HOLDS


def _verdicts(side: Side) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(side.verdicts.items()))


def _line(line: Line) -> tuple[str, ...]:
    return (line.name, *line.cells)


def _answer_notes(args: argparse.Namespace) -> int:
    """Measure, print, and write where that is asked for. The exit code is that of the worst run: a
    claim that does not hold is an answer, and no violation."""
    page = args.write.read_text() if args.write else ""
    if args.write:
        check_place(page)
    seeds = range(args.seed, args.seed + (args.seeds or SEEDS))
    numbers = range(len(CLAIMS))
    cores = os.cpu_count() or 1
    found = list(
        answers(numbers, seeds, cores, lambda done, all_: progress(f"{done} of {all_} runs"))
    )
    end_progress()
    if args.write:
        write_whole(args.write, written(page, found, seeds))
    if args.json:
        print(json.dumps([answer.as_json() for answer in found]))
    else:
        print(in_columns([("note", "figure", "first", "second", "answer"), *map(_row, found)]))
    return Exit.of(worst(answer.verdict for answer in found))


def _row(answer: Answer) -> tuple[str, ...]:
    claim = answer.claim
    sides = (figure_of(answer.first), figure_of(answer.second))
    return (claim.note, f"{claim.figure.name}, {claim.figure.unit}", *sides, answer.says)
