"""`stormcast bench pairs COMMIT`."""

from __future__ import annotations

import argparse
import json
import sys

from bench import machine
from bench.cluster import say
from bench.errors import BenchError
from bench.members_cli import interruptible
from bench.pairs import PARTS, SEALED, Row, checked_out, measure_in, measure_pairs
from stormcast.exits import Exit


def bench(_what: str, argv: list[str]) -> int:
    """Measure this tree beside another commit."""
    args = _parser().parse_args(argv)
    parts = SEALED if args.encrypt else PARTS
    chosen = [part for part in parts if not args.part or any(w in part.name for w in args.part)]
    if not chosen:
        _parser().error(f"--part: none of {', '.join(part.name for part in parts)}")
    if args.pairs < 1:
        _parser().error("--pairs: write a whole number from 1")
    rows: list[Row] = []
    code = Exit.HOLDS
    with interruptible():
        try:
            with checked_out(args.commit) as tree:
                for row in measure_pairs(chosen, tree, args.pairs, measure_in, say):
                    rows.append(row)
                    if not args.json:
                        print(row, flush=True)
        except BenchError as error:
            print(f"stormcast: {error}", file=sys.stderr)
            code = Exit.UNKNOWN
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
    if args.json:
        found = {"there": args.commit, "rows": [row.as_json() for row in rows]}
        print(json.dumps(found | machine.describe()))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stormcast bench pairs",
        description="Measure this tree and another commit in turns, and print the ratios of the "
        "pairs: above 1 this tree is faster. Run nothing beside it.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("commit", metavar="COMMIT", help="whatever git takes for one: main, HEAD~1, 1a2b3c4")
    add("--pairs", type=int, default=7, metavar="N", help="of each part (default 7)")
    names = ", ".join(part.name for part in PARTS)
    add("--part", action="append", default=[], metavar="TEXT", help=f"only parts with it: {names}")
    add("--encrypt", action="store_true", help="what a key costs: members of this tree seal")
    add("--json", action="store_true", help="one JSON object on stdout")
    return parser
