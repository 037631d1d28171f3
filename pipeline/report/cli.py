"""`stormcast report`: writes reports again from run directories, without Spark."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from stormcast.exits import Exit
from stormcast.machine import in_words, is_exhausted
from stormcast.pipeline.report.run_files import NotARun
from stormcast.pipeline.report.writing import write


def report(argv: list[str]) -> int:
    """Run `stormcast report RUN…`: write report.html, and one page for a directory of runs."""
    parser = argparse.ArgumentParser(
        prog="stormcast report",
        description="Write report.html again from what runs keep, without Spark. What stormcast "
        "verify has measured is shown. Exit 0 written, 2 usage.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "run", type=Path, nargs="+", help="a run directory, or a directory of run directories"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value on stdout")
    args = parser.parse_args(argv)
    written: list[Path] = []
    try:
        for directory in args.run:
            written += write(directory)
    except (NotARun, OSError) as error:
        said = in_words(error) if isinstance(error, OSError) else error
        print(f"stormcast: {said}", file=sys.stderr)
        return Exit.UNKNOWN if is_exhausted(error) else Exit.USAGE
    if args.json:
        print(json.dumps({"reports": [str(path) for path in written]}))
    else:
        print(written[-1] if len(args.run) == 1 else "\n".join(map(str, written)))
    return 0
