"""`stormcast trace`: the traces of a run, as text, in figures, and as Parquet."""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from time import sleep
from typing import Final

from stormcast.exits import Exit
from stormcast.node.core.names import printable
from stormcast.node.trace.export import ExportError, export
from stormcast.node.trace.files import Source, find_sources, member_names
from stormcast.node.trace.tail import Tail
from stormcast.node.trace.words import Figures, NamedEvent, tell

TAIL_LINES: Final = 10
LOOK_INTERVAL: Final = 0.2
"""Seconds between two looks at a trace that is followed."""


def trace(argv: list[str]) -> int:
    """Run `stormcast trace cat|tail|stats|export RUN`; return the exit code."""
    args = _parser().parse_args(argv)
    everyone = find_sources(args.run)
    sources = [source for source in everyone if args.member in (None, source.label)]
    if not sources:
        return _fail(f"no traces in {args.run}: give a run directory or a .trace file", Exit.USAGE)
    notes: list[str] = []
    names = member_names(everyone)
    try:
        match args.what:
            case "cat":
                _cat(sources, names, notes, as_json=args.json)
            case "stats":
                _stats(sources, notes, as_json=args.json)
            case "tail":
                _tail(args, notes)
            case _:
                _export(args, sources, names, notes)
    except ExportError as error:
        return _fail(str(error), Exit.UNKNOWN)
    _say(notes)
    return Exit.UNKNOWN if notes else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stormcast trace", description="Read the traces of a run.", allow_abbrev=False
    )
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument(
        "run", type=Path, help="a run directory, the journal of a member, or one .trace file"
    )
    shared.add_argument("--member", help="only this member (the name of its trace or journal)")
    shared.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per event; stats: one for all counts",
    )
    commands = parser.add_subparsers(dest="what", required=True)
    for name, about in (
        ("cat", "print one line per event, in the order of time"),
        ("tail", "print the last events; with --follow, new ones as they are written"),
        ("stats", "print how many events of each kind each member has"),
        ("export", "write the events as Parquet, one file per member"),
    ):
        command = commands.add_parser(
            name, help=about, description=about, parents=[shared], allow_abbrev=False
        )
        if name == "tail":
            command.add_argument(
                "-f", "--follow", action="store_true", help="print new events until Ctrl-C"
            )
            command.add_argument(
                "--lines",
                type=_count,
                default=TAIL_LINES,
                metavar="N",
                help=f"how many of the last events to print first (default {TAIL_LINES})",
            )
        elif name == "export":
            command.add_argument("out", type=Path, help="a directory that is new or empty")
            command.add_argument(
                "--run-name", help="value of the column `run` (default: the argument run)"
            )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 0")
    return int(text)


def _fail(message: str, code: int) -> int:
    print(f"stormcast trace: {printable(message)}", file=sys.stderr)
    return code


def _say(notes: list[str]) -> None:
    for note in notes:
        print(f"stormcast trace: {printable(note)}", file=sys.stderr)


def _cat(sources: list[Source], names: dict[int, str], notes: list[str], *, as_json: bool) -> None:
    # A member's clock never goes back. So its events are in order already, and no more than one
    # segment of a journal is in memory at a time.
    for told in heapq.merge(*(_told(source, notes) for source in sources)):
        print(told.as_json() if as_json else told.line(names))


def _told(source: Source, notes: list[str]) -> Iterator[NamedEvent]:
    return (told for block in source.blocks(notes) for told in tell(source.label, block))


def _stats(sources: list[Source], notes: list[str], *, as_json: bool) -> None:
    totals: dict[str, Figures] = {}
    for source in sources:
        figures = totals[source.label] = Figures()
        for block in source.blocks(notes):
            figures.add(block)
    if as_json:
        print(json.dumps({label: figures.as_json() for label, figures in totals.items()}))
        return
    for label, figures in totals.items():
        for line in figures.report(label):
            print(line)


def _tail(args: argparse.Namespace, notes: list[str]) -> None:
    tail = Tail(args.run, args.member)

    def show(found: list[NamedEvent]) -> None:
        for told in found:
            print(told.as_json() if args.json else told.line(tail.names))
        sys.stdout.flush()

    # The user ends `--follow` by Ctrl-C, whatever is being printed.
    with suppress(KeyboardInterrupt) if args.follow else nullcontext():
        show(tail.last(args.lines, notes))
        while args.follow:
            _say(notes)
            notes.clear()
            sleep(LOOK_INTERVAL)
            show(tail.more(notes))


def _export(
    args: argparse.Namespace, sources: list[Source], names: dict[int, str], notes: list[str]
) -> None:
    run = args.run_name or args.run.resolve().name
    files = list(export(sources, args.out, run, names, notes))
    if args.json:
        print(json.dumps({file.path.name: {"rows": file.rows} for file in files}))
        return
    for file in files:
        print(printable(f"{file.path}: {file.rows} rows"))
