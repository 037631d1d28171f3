"""`stormcast chaos-test`: tests every protocol, on real packets or in the simulator."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import DOCKER, NETNS, SIM
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.campaigns.errors import error_in_words
from stormcast.chaos.campaigns.library import GROUP_STACKS, SideResult, library, run_sides, sides_of
from stormcast.chaos.campaigns.museum import Shown, tour
from stormcast.chaos.language.cluster import GENERATIONS, TIMINGS
from stormcast.chaos.oracles.verdict import Verdict, worst
from stormcast.chaos.records.directory import TakenError, make_fresh, take
from stormcast.exits import Exit
from stormcast.machine import in_words
from stormcast.node.core.errors import ConfigError
from stormcast.whole import write_whole

if TYPE_CHECKING:
    from stormcast.chaos.campaigns.live import LiveResult, LiveRun

from stormcast.chaos.commands.arguments import add_json, add_seed, parser_of, read_count
from stormcast.chaos.commands.install import InstallError, install_lacking
from stormcast.chaos.commands.key_file import Keys, add_key_file, read_key_file
from stormcast.chaos.commands.output import (
    RUNS,
    Meter,
    about,
    end_progress,
    in_columns,
    in_plain_lines,
    progress,
    refuse,
    say,
    say_leftovers,
    unsupported,
)
from stormcast.chaos.commands.real_places import features_of, why_no_containers, why_no_namespaces

AUTO: Final = "auto"


BATCH: Final = "chaos-test"
LIBRARY: Final = "library"
SIDE_SECONDS: Final = 1.5
"""Seconds that a run in the simulator takes, for an estimate of the time that all runs take."""
REPORT: Final = "chaos-test.json"
"""The file with all results, beside the runs."""


class Again(NamedTuple):
    """The judgement of a second judge on a batch of runs."""

    verdict: Verdict
    text: str
    report: Path


PLACES: Final = (SIM, NETNS, DOCKER)
_OF_THEIR_OWN: Final = {NETNS: "network namespaces", DOCKER: "containers and networks"}
JudgeAgain = Callable[[Path, Sequence[Path]], Again]
"""Takes the directory of a batch and its run directories; returns a second judgement."""


def chaos_test(argv: list[str], judge_again: JudgeAgain | None = None) -> int:
    """Run `stormcast chaos-test`: on real packets where this machine can, else in the simulator.

    Runs on real packets are also judged by `judge_again`, if given."""
    parser = parser_of(
        "chaos-test",
        "As root: scenarios on every protocol, as processes in network namespaces, in ten minutes; "
        "with --backend docker in containers. Without root, or with --backend sim: every scenario "
        "on every unicast generation or group stack that it is meant for, then the museum. A "
        "table, one verdict.",
    )
    parser.add_argument(
        "--backend",
        default=AUTO,
        help=f"where members live: {', '.join(PLACES)}, or {AUTO}: netns if possible (default "
        f"{AUTO})",
    )
    add_seed(parser)
    parser.add_argument(
        "--timing", choices=(*TIMINGS, "all"), default="all", help="in the simulator (default all)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="on real packets, what has this in its name",
    )
    parser.add_argument(
        "--library",
        action="store_true",
        help="on real packets, every file of the library instead: half an hour",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="as root on Debian: install what real packets take and is missing, and say so before",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="where the runs are kept, empty or not there yet (default runs/chaos-test, or "
        "runs/library, or with -2, -3 … where that is there)",
    )
    parser.add_argument(
        "--workers", type=read_count, help="processes (default: one per core; on real packets 3)"
    )
    add_key_file(parser)
    add_json(parser)
    args = parser.parse_args(argv)
    if args.backend not in (AUTO, *PLACES):
        say(f"unsupported: backend {args.backend!r}: chaos-test has {AUTO}, {', '.join(PLACES)}")
        return Exit.UNKNOWN
    try:
        keys = read_key_file(args.key_file)
    except (ConfigError, OSError) as error:
        return refuse(error)
    is_sim = args.backend == SIM
    if is_sim and not args.library:
        return _chaos_test_in_virtual_time(args, keys, "")
    why = f"{SIM} has no real packets" if is_sim else _why_no_real_packets(args)
    if why is None:
        return _chaos_test_on_real_packets(args, judge_again)
    if args.backend != AUTO or args.library:
        # Do not turn to the simulator: it was not asked for, or `--library` is its usual work.
        return unsupported(Unsupported(why), as_json=args.json, seed=args.seed)
    say(f"no real packets here: {why}")
    say("so every scenario is run in the simulator instead, which has no network of a kernel")
    return _chaos_test_in_virtual_time(args, keys, f"nothing was run on real packets: {why}")


def _why_no_real_packets(args: argparse.Namespace) -> str | None:
    """Return why nothing can be run on real packets here, else None; with `--install`, missing
    packages are installed before."""
    if args.backend == DOCKER:
        return why_no_containers()
    lacks = ""
    if args.install:
        try:
            install_lacking(say)
        except InstallError as error:
            lacks = str(error)
    why = why_no_namespaces()
    if lacks and why is None:
        say(f"not all that real packets can take is here, which leaves some runs out: {lacks}")
    return why and (lacks or why)


def _chaos_test_on_real_packets(args: argparse.Namespace, judge_again: JudgeAgain | None) -> int:
    from stormcast.chaos.campaigns.live import (  # noqa: PLC0415 as above
        BUDGET_SECONDS,
        LANES,
        LIBRARY_RUN_SECONDS,
        RUN_SECONDS,
        library_runs,
        live_runs,
        run_live,
    )

    place = DOCKER if args.backend == DOCKER else NETNS
    say_leftovers(place)
    began = time.monotonic()
    features = features_of(place)
    known = library_runs() if args.library else live_runs()
    runs = [run for run in known if all(word in run.directory for word in args.only)]
    if not runs:
        return refuse(ValueError(f"no run has {' and '.join(args.only)} in its name"))
    try:
        out = _directory(args)
    except (TakenError, OSError) as error:
        return refuse(error)
    lanes = args.workers or LANES
    each = LIBRARY_RUN_SECONDS if args.library else RUN_SECONDS
    say(
        f"backend {place}: {len(runs)} runs on real packets, {lanes} side by side, in "
        f"{_OF_THEIR_OWN[place]} of their own: {about(each * len(runs) / min(lanes, len(runs)))}"
    )
    done: list[LiveResult] = []
    under_way: list[LiveRun] = []
    broken: Exception | None = None
    meter = Meter(len(runs))

    try:
        budget = inf if args.library else BUDGET_SECONDS
        results = run_live(
            runs,
            args.seed,
            out,
            features,
            lanes=lanes,
            budget=budget,
            begins=under_way.append,
            key_file=args.key_file,
            backend=place,
        )
        with sigterm_interrupts(), closing(results):
            for result in results:
                done.append(result)
                # A run whose steps came late was begun twice: remove both.
                under_way[:] = [run for run in under_way if run != result.run]
                now = ", ".join(f"{run.scenario.name} on {run.kind}" for run in under_way)
                told = progress if sys.stderr.isatty() else say
                told(
                    f"{meter.line(len(done))}; {result.run.scenario.name} on {result.run.kind}: "
                    f"{result.cell}{f'; now {now}' if now else ''}"
                )
    except KeyboardInterrupt:
        end_progress()
        if not args.json:
            _show_live(done)
        say(f"interrupted after {len(done)} of {len(runs)} runs; what is there is in {out}")
        raise
    except Exception as error:  # noqa: BLE001 whatever it is, it must not hide what is done
        broken = error
    end_progress()
    if broken is not None:
        say(
            f"stormcast: broken off after {len(done)} of {len(runs)} runs: {error_in_words(broken)}"
        )
    seconds = time.monotonic() - began
    return _Ended(args, out, done, seconds, is_whole=broken is None).tell(judge_again)


class _Ended:
    """Tells of the runs on real packets of one call, after their end: first of all the table, which
    no later error of this machine is to hide."""

    def __init__(
        self,
        args: argparse.Namespace,
        out: Path,
        done: Sequence[LiveResult],
        seconds: float,
        *,
        is_whole: bool,
    ) -> None:
        self._args = args
        self._out = out
        self._done = done
        counted = [one.counted for one in done if one.counted is not None]
        self._verdict = worst(counted if counted and is_whole else [*counted, Verdict.UNKNOWN])
        self._report: dict[str, Any] = {
            "verdict": str(self._verdict),
            "backend": DOCKER if args.backend == DOCKER else NETNS,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "runs": [one.as_json() for one in done],
        }

    def tell(self, judge_again: JudgeAgain | None) -> int:
        """Print and write everything; returns the exit code."""
        if not self._args.json:
            _show_live(self._done)
        shown = self._write() or f"report: {self._out / REPORT}"
        if judge_again is not None:
            again = self._again(judge_again)
            self._verdict = worst((self._verdict, again.verdict))
            self._report |= {
                "verdict": str(self._verdict),
                "again": again.text,
                "report": str(again.report),
            }
            shown = f"{again.text}\n{self._write() or f'report: {again.report}'}"
        if self._args.json:
            print(json.dumps(self._report))
        else:
            print(self._last_lines(shown))
        return Exit.of(self._verdict)

    def _again(self, judge_again: JudgeAgain) -> Again:
        runs = [self._out / one.run.directory for one in self._done]
        try:
            return judge_again(self._out, runs)
        except Exception as error:  # noqa: BLE001 whatever it is, the oracles have judged
            why = f"no second judge: {error_in_words(error)}"
            return Again(Verdict.UNKNOWN, why, self._out / REPORT)

    def _write(self) -> str:
        """Write the report; returns why that cannot be done, which makes a verdict that holds
        unknown. None is then there, rather than one with another verdict."""
        path = self._out / REPORT
        try:
            write_whole(path, json.dumps(self._report, indent=2) + "\n")
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            self._verdict = worst((self._verdict, Verdict.UNKNOWN))
            self._report["verdict"] = str(self._verdict)
            return f"no report: {in_words(error)}"
        return ""

    def _last_lines(self, shown: str) -> str:
        run = sum(one.verdict is not None for one in self._done)
        return "\n".join(
            [
                f"verdict: {self._verdict}   {run} runs on {self._report['backend']} in "
                f"{self._report['seconds']:.0f}s   seed {self._args.seed}",
                *map(in_plain_lines, _unsupported_lines(self._done)),
                shown,
                "every scenario in virtual time, and the museum of flaws: "
                "stormcast chaos-test --backend sim",
            ]
        )


def _unsupported_lines(done: Sequence[LiveResult]) -> list[str]:
    """Return a line for each thing that this machine lacks, with the number of runs it takes."""
    lacking = Counter(result.lacking for result in done if result.lacking)
    return [
        f"{count} {'run is' if count == 1 else 'runs are'} unsupported here: {what}"
        for what, count in lacking.items()
    ]


def _directory(args: argparse.Namespace) -> Path:
    """Take the directory for the runs: the one that was asked for, or a fresh one."""
    out: Path | None = args.out
    if out is None:
        out = make_fresh(RUNS, LIBRARY if args.library else BATCH)
    take(out)
    return out


def _show_live(done: Sequence[LiveResult]) -> None:
    from stormcast.chaos.campaigns.live import table_of  # noqa: PLC0415 as above

    print(in_columns(table_of(done)))
    print(in_plain_lines(_live_details(done)))


def _live_details(done: Sequence[LiveResult]) -> str:
    """Return the lines below the table: its marks explained, and all runs that do not hold."""
    lines = [
        "seconds: from the last heal until all was well again",
        "-: nobody can hold frames of TCP back; without retransmission what is lost is lost",
    ]
    if any(result.notes for result in done):
        lines.append("*: frames were struck inside of members, for none can be taken out of TCP")
    for result in done:
        if result.verdict is not Verdict.HOLDS:
            what = "unsupported" if result.verdict is None else str(result.verdict)
            where = f"  {result.directory}" if result.directory and result.verdict else ""
            lines.append(
                f"{result.run.scenario.name} on {result.run.kind}: {what}: {result.detail}{where}"
            )
    return "\n".join(lines)


def _chaos_test_in_virtual_time(args: argparse.Namespace, keys: Keys, remark: str) -> int:
    """Run the library and the museum in the simulator. `remark` is printed with the verdict, so
    that it is not overlooked far above."""
    timings = TIMINGS if args.timing == "all" else (args.timing,)
    done: list[SideResult] = []
    try:
        sides = [side for scenario in library() for side in sides_of(scenario, timings)]
        out = _directory(args)
    except (ConfigError, OSError) as error:
        return refuse(error)
    workers = args.workers or os.cpu_count() or 1
    say(
        f"backend sim: {len(sides)} runs in virtual time, {workers} side by side: "
        f"{about(SIDE_SECONDS * len(sides) / workers)}"
    )
    meter = Meter(len(sides))
    shown: list[Shown] = []
    broken: Exception | None = None
    try:
        results = run_sides(sides, args.seed, out, workers, keys)
        with sigterm_interrupts(), closing(results):
            for result in results:
                done.append(result)
                side = result.side
                meter.tell(
                    len(done), f"; {side.name} on {side.kind} {side.timing}: {result.verdict}"
                )
        end_progress()
        say("now the museum of flaws: about a minute")
        shown += tour()
    except KeyboardInterrupt:
        end_progress()
        print(_matrices(done))
        say(f"interrupted after {len(done)} runs; their traces are in {out}")
        raise
    except Exception as error:  # noqa: BLE001 whatever it is, it must not hide what is done
        end_progress()
        broken = error
    done.sort(key=lambda result: sides.index(result.side))
    verdict = _virtual_verdict(done, shown, broken)
    _tell_virtual(args, out, verdict, done, shown)
    if broken is not None:
        code = _refuse_the_rest(broken, args.seed)
        return Exit.VIOLATED if verdict is Verdict.VIOLATED else code
    if remark and not args.json:
        print(remark)
    return Exit.of(verdict)


def _virtual_verdict(
    done: Sequence[SideResult], shown: Sequence[Shown], error: Exception | None
) -> Verdict:
    verdicts = [result.verdict for result in done]
    verdicts += [Verdict.HOLDS if one.is_as_described else Verdict.VIOLATED for one in shown]
    return worst([*verdicts, Verdict.HOLDS if error is None else Verdict.UNKNOWN])


def _refuse_the_rest(error: Exception, seed: int) -> int:
    """Print what ended the runs; returns the exit code."""
    if isinstance(error, ConfigError | OSError):
        return refuse(error)
    say(f"stormcast: the runs broke off (seed {seed}): {error_in_words(error)}")
    return Exit.UNKNOWN


def _tell_virtual(
    args: argparse.Namespace,
    out: Path,
    verdict: Verdict,
    done: Sequence[SideResult],
    shown: Sequence[Shown],
) -> None:
    """Print the tables and the verdict, or all of it as one object."""
    if args.json:
        whole = {
            "verdict": str(verdict),
            "seed": args.seed,
            "runs": [result.as_json() for result in done],
            "museum": [one.as_json() for one in shown],
        }
        print(json.dumps(whole))
        return
    print(_matrices(done))
    good = sum(one.is_as_described for one in shown)
    print(
        f"\nflaw museum: {good} of {len(shown)} exhibits as described (stormcast museum shows them)"
    )
    print(f"verdict: {verdict}   {len(done)} runs   seed {args.seed}   traces in {out}")


def _matrices(results: Sequence[SideResult]) -> str:
    """Return the tables: one for unicast alone, one for groups, neither if it has no rows."""
    tables = []
    for is_group, columns in ((False, GENERATIONS), (True, GROUP_STACKS)):
        rows = [result for result in results if result.side.is_group == is_group]
        if rows:
            tables.append(_matrix(rows, columns))
    return "\n\n".join(tables)


def _matrix(results: Sequence[SideResult], columns: Sequence[str]) -> str:
    """Return a table: a row per scenario and timing, a column per generation or stack."""
    by_line: dict[tuple[str, str], dict[str, str]] = {}
    for result in results:
        side = result.side
        by_line.setdefault((side.name, side.timing), {})[side.kind] = str(result.verdict)
    table: list[Sequence[str]] = [("scenario", "timing", *columns)]
    table += [
        (*line, *(cells.get(name, "-") for name in columns))
        for line, cells in sorted(by_line.items())
    ]
    return in_columns(table)
