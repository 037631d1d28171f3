"""`stormcast shrink`: finds the smallest scenario that fails as a run did."""

from __future__ import annotations

import json
import time
from pathlib import Path

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import SIM
from stormcast.chaos.campaigns.replay import (
    OTHERS,
    KeptRun,
    NotARunError,
    NotRepeatableError,
    read_run,
)
from stormcast.chaos.campaigns.shrink.failure import NothingToShrink
from stormcast.chaos.campaigns.shrink.trials import Trials
from stormcast.chaos.campaigns.shrunk import MINIMAL, Shrunk, shrink_until
from stormcast.chaos.commands.arguments import add_json, parser_of, read_duration
from stormcast.chaos.commands.output import (
    end_progress,
    give_up,
    no_longer,
    progress,
    refuse,
    say,
)
from stormcast.chaos.guests.scenario_file import has_guests
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.records.directory import settled
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.whole import write_whole


def shrink(argv: list[str]) -> int:
    """Run `stormcast shrink RUN`: find and write the smallest scenario that fails as a run did."""
    parser = parser_of(
        "shrink",
        "Look for the smallest scenario that violates the same guarantee as a failed run of the "
        "simulator, with the same seed, and write it as a scenario file. Ctrl-C ends the search "
        "and keeps the best so far. Exit 0 written, 2 usage or nothing to shrink, 3 the run is "
        "unknown or breaks off.",
    )
    parser.add_argument("run", type=Path, help="what stormcast run, search or chaos-test has left")
    parser.add_argument("--out", type=Path, help=f"the file to write (default RUN/{MINIMAL})")
    parser.add_argument(
        "--budget",
        type=read_duration,
        default=60.0,
        help="how long to look, such as 5min (default 60s)",
    )
    parser.add_argument(
        "--guarantee", help="what must still be violated (default: the first that the run violates)"
    )
    add_json(parser)
    args = parser.parse_args(argv)
    args.run = settled(args.run)
    out = args.out or args.run / MINIMAL
    began = time.monotonic()

    def tell(trials: Trials) -> None:
        spent = time.monotonic() - began
        progress(
            f"{spent:.0f}s of {args.budget:g}s, {trials.tally.runs} runs, "
            f"{trials.tally.kept} smaller: {trials.best.size}"
        )

    try:
        kept = read_run(args.run)
        if has_guests(args.run / "scenario.yaml"):
            raise NotRepeatableError(
                f"{args.run} is of guests, real programs, which nothing repeats often enough to "
                f"shrink: take steps out of its scenario.yaml by hand; stormcast replay {args.run} "
                "does all of them again"
            )
        if kept.backend != SIM:
            advice = " runs it in the simulator, and if it fails there, shrink that run"
            raise kept.real_run_error(f"--fate {kept.fate}", advice)
        if not out.parent.is_dir():
            raise NotADirectoryError(
                f"{out.parent} is no directory: make it first, or name another"
            )
    except (NotARunError, NotRepeatableError, OSError) as error:
        return refuse(error)
    if kept.is_of_others:
        say(f"stormcast: {args.run}: {OTHERS}; what counts is what its scenario does now")
    try:
        trials = Trials(
            kept.scenario(),
            args.guarantee,
            kept.run_again,
            lambda: time.monotonic() - began > args.budget,
            tell,
        )
    except NothingToShrink as nothing:
        return _nothing_to_shrink(kept, nothing)
    except (ConfigError, Unsupported, OSError) as error:
        return no_longer(kept, error)
    except NodeError as error:
        return give_up(error, kept.seed)
    end = shrink_until(trials)
    end_progress()
    shrunk = Shrunk(trials, kept, out, end)
    try:
        write_whole(out, shrunk.text)
    except OSError as error:
        # The search took its time: print its result, as it cannot be written.
        print(shrunk.text)
        return refuse(error)
    print(json.dumps(shrunk.as_json()) if args.json else shrunk.report())
    if end == "interrupted":
        raise KeyboardInterrupt
    return 0


def _nothing_to_shrink(kept: KeptRun, nothing: NothingToShrink) -> int:
    """Print that a run does not fail, or no longer; returns the exit code."""
    say(f"stormcast: nothing to shrink: {nothing}")
    if kept.verdict["verdict"] == str(Verdict.VIOLATED) and nothing.verdict < Verdict.VIOLATED:
        say(f"it was violated when it ran: stormcast replay {kept.directory} shows what changed")
    return Exit.UNKNOWN if nothing.verdict is Verdict.UNKNOWN else Exit.USAGE
