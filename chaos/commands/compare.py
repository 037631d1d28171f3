"""`stormcast compare`: the costs of each generation of unicast in the scenario `storm`, or of two
soaks or runs; with `--notes`, what the design notes claim, answered by measurements."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

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
from stormcast.chaos.session.samples import FEWEST, in_words, interval
from stormcast.chaos.soak.beside import Line, Side, lines_of, read_side
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError
from stormcast.whole import write_whole

SEEDS: Final = 15
TWO: Final = 2


def compare(argv: list[str]) -> int:
    """Run `stormcast compare`: all generations on the scenario `storm`, or the notes' claims."""
    args = _arguments(argv)
    try:
        if args.notes and args.sides:
            raise ConfigError("--notes plays runs of its own: name no directories")
        if args.notes:
            return _answer_notes(args)
        if args.write or args.seeds is not None:
            raise ConfigError("--seeds and --write are of --notes, which is missing")
        if args.sides:
            return _compare_sides(args)
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


def _compare_sides(args: argparse.Namespace) -> int:
    """Print the figures of two soaks or runs, whose verdicts were told before."""
    if len(args.sides) != TWO:
        raise ConfigError(f"{len(args.sides)} directories: name two, or none")
    first, second = map(read_side, args.sides)
    if first.played != second.played:
        say("they were not played alike: seed, members, loads, faults or network differ")
    lines = lines_of(first, second)
    if args.json:
        verdicts = [dict(first.verdicts), dict(second.verdicts)]
        figures = [line.as_json() for line in lines]
        is_alike = first.played == second.played
        print(json.dumps({"alike": is_alike, "verdicts": verdicts, "figures": figures}))
        return Exit.HOLDS
    header = ("", str(first.path), str(second.path), "second / first")
    verdicts_row = ("verdicts", _verdicts(first), _verdicts(second), "")
    print(in_columns([header, verdicts_row, *map(_line, lines)]))
    return Exit.HOLDS


def _verdicts(side: Side) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(side.verdicts.items()))


def _line(line: Line) -> tuple[str, ...]:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    return (line.name, *map(_values, line.values), ratio)


def _values(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = in_words(median(values))
    if len(values) < FEWEST:
        return middle
    low, high = interval(values)
    return f"{middle} ({in_words(low)} to {in_words(high)})"


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
