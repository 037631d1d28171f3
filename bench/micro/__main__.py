"""`python -m bench.micro [--rounds N] [NAME]`: medians over rounds, with their spread."""

from __future__ import annotations

import argparse
import sys

from bench.micro import codec, journal, sending, windows
from bench.micro.measure import measure


def main(argv: list[str] | None = None) -> int:
    """Measure what the name selects, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="a part of the names to measure")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds: write a whole number from 1")
    chosen = [
        work
        for work in (*windows.WORKS, *codec.WORKS, *sending.WORKS, *journal.WORKS)
        if args.name in work.name
    ]
    if not chosen:
        parser.error(f"nothing to measure has {args.name!r} in its name")
    for work in chosen:
        print(measure(work, args.rounds), flush=True)
    if any(work in chosen for work in journal.WORKS):
        print(journal.describe_longest(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
