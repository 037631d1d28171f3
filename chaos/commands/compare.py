"""`stormcast compare`: the costs of each generation of unicast in the scenario `storm`; with
`--notes`, what the design notes claim, answered by measurements."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
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
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError
from stormcast.whole import write_whole

SEEDS: Final = 15


def compare(argv: list[str]) -> int:
    """Run `stormcast compare`: all generations on the scenario `storm`, or the notes' claims."""
    args = _arguments(argv)
    try:
        if args.notes:
            return _answer_notes(args)
        if args.write or args.seeds is not None:
            raise ConfigError("--seeds and --write are of --notes, which is missing")
    except (ConfigError, OSError) as error:
        return refuse(error)
    if lacks(args.backend):
        return Exit.UNKNOWN
    return _compare_generations(args)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(
        "compare",
        "Run the storm scenario on every generation and print what each pays; or, with --notes, "
        "measure in the simulator what the design notes claim.",
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
