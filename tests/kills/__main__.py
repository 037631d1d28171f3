"""`make kill-test`: SIGKILLs at moments drawn from a seed, and what each must not leave behind.

Exit 0 nothing was found, 1 something was, 2 usage, 3 it cannot be done here, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from stormcast.chaos.backends.netns import why_not
from stormcast.chaos.commands.arguments import read_count, read_seed
from stormcast.exits import Exit
from stormcast.pipeline.questions import CannotError
from stormcast.pipeline.session import check_java, check_pyspark
from tests.kills.campaign import AT_ONCE, Campaign, table


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if why := why_not():
        _say(f"kills: {why}")
        return Exit.UNKNOWN
    folder: Path = args.out or Path(tempfile.mkdtemp(prefix="stormcast-kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(
        seed=args.seed,
        folder=folder.resolve(),
        at_once=args.at_once,
        has_spark=not args.no_spark and _has_spark(),
        say=_Progress(args.kills),
        is_kept=args.keep,
    )
    code: int = Exit.HOLDS
    try:
        campaign.run(range(args.first, args.first + args.kills))
    except KeyboardInterrupt:
        _say("interrupted: this is what there is")
        code = Exit.INTERRUPTED
    print(table(campaign))
    for name, lines in campaign.bad:
        print(f"{name}\n" + "\n".join(f"    {line}" for line in lines))
    if campaign.bad:
        number = next((kill.number for kill, found in campaign.done if found.lines), args.first)
        print(f"one again: make kill-test KILLS=1 ARGS='--seed {args.seed} --from {number} --keep'")
        print(f"kept in {folder}")
    elif not args.keep and args.out is None:
        shutil.rmtree(folder)
    return code or (Exit.VIOLATED if campaign.bad else Exit.HOLDS)


class _Progress:
    """Lines on stderr, with how long it has taken."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        _say(f"{time.monotonic() - self._began:6.0f}s  {text}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _has_spark() -> bool:
    try:
        check_pyspark()
        check_java()
    except CannotError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=read_count, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=read_seed, default=1, help="draws each of them (default 1)")
    parser.add_argument(
        "--from", dest="first", type=read_seed, default=0, help="the first number (default 0)"
    )
    parser.add_argument(
        "--at-once", type=read_count, default=AT_ONCE, help=f"kills at a time (default {AT_ONCE})"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave out those of verify")
    parser.add_argument("--out", type=Path, help="where runs are (default a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep runs that found nothing, too")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
