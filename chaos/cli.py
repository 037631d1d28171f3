"""`stormcast run`, `replay`, `shrink`, `plan`, `chaos-test`, `museum`, `search`, `compare`. Results
on stdout, talk on stderr."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.cluster import GENERATIONS, TIMINGS
from chaos.compare import compare as compare_generations
from chaos.fate import FATES
from chaos.generate import CELLS
from chaos.library import GROUP_STACKS, SideResult, library, run_sides, sides_of
from chaos.museum import EXHIBITS, WINGS, Exhibit, Setting, Shown, tour
from chaos.oracles.verdict import Verdict, worst
from chaos.replay import KeptRun, NotARunError, Result, read_run
from chaos.replay import replay as replay_run
from chaos.runner import BACKENDS, Outcome, Unsupported, check_supported, run_scenario
from chaos.scenario import load_scenario
from chaos.schedule import format_plan
from chaos.search import SearchResult, empty_cells
from chaos.search import search as search_seeds
from chaos.shrink import NothingToShrink, Over, Shrinker, regression
from chaos.units import DURATION, UnitError
from chaos.yaml_nodes import ScenarioError
from node.core.errors import ConfigError, NodeError

EXIT: Final = {Verdict.HOLDS: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}
USAGE: Final = 2
UNSUPPORTED: Final = 3
RUNS: Final = Path("runs")
REPLAYED: Final = {Result.IDENTICAL: 0, Result.DIFFERENT: 1, Result.UNPROVEN: 3}
DICE: Final = "xxh3"
"""The dice that are thrown unless others are asked for."""
MINIMAL: Final = "minimal.yaml"
"""What a run is shrunk to, in its directory."""


def run(argv: list[str]) -> int:
    """`stormcast run FILE`: one scenario, one seed, one run directory, one verdict."""
    parser = _parser(
        "run",
        "Run a scenario and judge it. Exit 0 holds, 1 violated, 2 usage, 3 unknown or unsupported.",
    )
    parser.add_argument("file", type=Path, help="the scenario file")
    _add_backend(parser)
    parser.add_argument(
        "--seed",
        type=_seed,
        default=1,
        help="chooses everything that is left to chance (default 1)",
    )
    parser.add_argument("--out", type=Path, help="the run directory (default runs/NAME-SEED)")
    parser.add_argument(
        "--fate",
        choices=tuple(FATES),
        default=DICE,
        help="the dice of chance faults: xxh3 is fast, jhash is the kernel's (default xxh3)",
    )
    _add_json(parser)
    args = parser.parse_args(argv)
    try:
        scenario = load_scenario(args.file)
        check_supported(scenario, args.backend)
        out = args.out or RUNS / f"{scenario.name}-{args.seed}"
        outcome = run_scenario(scenario, args.seed, out=out, fate=args.fate)
    except Unsupported as refusal:
        return _unsupported(refusal, as_json=args.json, seed=args.seed)
    except (ScenarioError, ConfigError, OSError) as error:
        return _refuse(error)
    except NodeError as error:
        return _give_up(error, args.seed)
    if args.json:
        print(json.dumps(outcome.as_json()))
    else:
        print(_report(outcome))
    return EXIT[outcome.verdict]


def replay(argv: list[str]) -> int:
    """`stormcast replay RUN`: a run directory, run again and compared to the byte."""
    parser = _parser(
        "replay",
        "Run a run directory's scenario and seed again, and compare every trace byte for byte, and "
        "the verdict. Exit 0 identical, 1 different, 2 usage, 3 different, but so are the versions "
        "it ran with, which proves nothing.",
    )
    parser.add_argument("run", type=Path, help="what stormcast run, search or chaos-test has left")
    _add_json(parser)
    args = parser.parse_args(argv)
    try:
        kept = read_run(args.run)
    except (NotARunError, OSError) as error:
        return _refuse(error)
    try:
        found = replay_run(kept)
    except (ScenarioError, ConfigError, Unsupported, OSError) as error:
        return _no_longer(kept, error)
    except NodeError as error:
        return _give_up(error, kept.seed)
    print(json.dumps(found.as_json()) if args.json else found.report())
    return REPLAYED[found.result]


def shrink(argv: list[str]) -> int:
    """`stormcast shrink RUN`: the smallest scenario that fails as a run did."""
    parser = _parser(
        "shrink",
        "Look for the smallest scenario that violates the same guarantee as a failed run, with the "
        "same seed, and write it as a scenario file. Ctrl-C ends the search and keeps the best so "
        "far. Exit 0 written, 2 usage or nothing to shrink, 3 the run is unknown or breaks off.",
    )
    parser.add_argument("run", type=Path, help="what stormcast run, search or chaos-test has left")
    parser.add_argument("--out", type=Path, help=f"the file to write (default RUN/{MINIMAL})")
    parser.add_argument(
        "--budget",
        type=_duration,
        default=60.0,
        help="how long to look, such as 5min (default 60s)",
    )
    parser.add_argument(
        "--guarantee", help="what must still be violated (default: the first that the run violates)"
    )
    _add_json(parser)
    args = parser.parse_args(argv)
    out = args.out or args.run / MINIMAL
    began = time.monotonic()

    def tell(shrinker: Shrinker) -> None:
        spent = time.monotonic() - began
        _progress(
            f"{spent:.0f}s of {args.budget:g}s, {shrinker.tally.runs} runs, "
            f"{shrinker.tally.kept} smaller: {shrinker.best.size}"
        )

    try:
        kept = read_run(args.run)
        if not out.parent.is_dir():
            raise NotADirectoryError(
                f"{out.parent} is no directory: make it first, or name another"
            )
    except (NotARunError, OSError) as error:
        return _refuse(error)
    try:
        shrinker = Shrinker(
            kept.scenario(),
            args.guarantee,
            kept.run_again,
            lambda: time.monotonic() - began > args.budget,
            tell,
        )
    except NothingToShrink as nothing:
        return _nothing_to_shrink(kept, nothing)
    except (ScenarioError, ConfigError, Unsupported, OSError) as error:
        return _no_longer(kept, error)
    except NodeError as error:
        return _give_up(error, kept.seed)
    end = _search_smaller(shrinker)
    shrunk = Shrunk(shrinker, kept, out, end)
    try:
        out.write_text(shrunk.text)
    except OSError as error:
        # The search is paid for: what it found is not lost with the file.
        print(shrunk.text)
        return _refuse(error)
    print(json.dumps(shrunk.as_json()) if args.json else shrunk.report())
    if end == "interrupted":
        raise KeyboardInterrupt
    return 0


def _search_smaller(shrinker: Shrinker) -> str:
    """Shrink; returns why it ended, one of ENDS. What was found until then is kept."""
    try:
        shrinker.shrink()
    except Over:
        return "budget"
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        _end_progress()
    return "done"


def plan(argv: list[str]) -> int:
    """`stormcast plan FILE`: what would be done, and when."""
    parser = _parser("plan", "Print the timed steps of a scenario.")
    parser.add_argument("file", type=Path, help="the scenario file")
    parser.add_argument(
        "--seed", type=_seed, default=1, help="decides what the file leaves to chance (default 1)"
    )
    args = parser.parse_args(argv)
    try:
        text = format_plan(load_scenario(args.file), args.seed)
    except (ScenarioError, OSError) as error:
        return _refuse(error)
    print(text)
    return 0


def chaos_test(argv: list[str]) -> int:
    """`stormcast chaos-test`: the library wherever it means the same, and the museum."""
    parser = _parser(
        "chaos-test",
        "Run every scenario on every unicast generation or group stack that it is meant for, then "
        "the museum; two tables, one verdict.",
    )
    _add_backend(parser)
    parser.add_argument("--seed", type=_seed, default=1)
    parser.add_argument("--timing", choices=(*TIMINGS, "all"), default="all")
    parser.add_argument(
        "--out", type=Path, default=RUNS / "chaos-test", help="where the runs are kept"
    )
    parser.add_argument("--workers", type=_positive, help="processes (default: one per core)")
    _add_json(parser)
    args = parser.parse_args(argv)
    if _lacks(args.backend):
        return UNSUPPORTED
    _say("backend sim: virtual time, no rights and no network needed")
    timings = TIMINGS if args.timing == "all" else (args.timing,)
    done: list[SideResult] = []
    try:
        sides = [side for scenario in library() for side in sides_of(scenario, timings)]
        for result in run_sides(sides, args.seed, args.out, args.workers):
            done.append(result)
            _progress(
                f"{len(done)}/{len(sides)} runs, {result.side.name} on {result.side.kind} "
                f"{result.side.timing}: {result.verdict}"
            )
        _end_progress()
        shown = list(tour())
    except (ScenarioError, ConfigError, OSError) as error:
        return _refuse(error)
    except NodeError as error:
        return _give_up(error, args.seed)
    except KeyboardInterrupt:
        _end_progress()
        print(_matrices(done))
        _say(f"interrupted after {len(done)} runs; their traces are in {args.out}")
        raise
    done.sort(key=lambda result: sides.index(result.side))
    verdict = worst(
        [
            *(result.verdict for result in done),
            *(Verdict.HOLDS if one.is_as_described else Verdict.VIOLATED for one in shown),
        ]
    )
    if args.json:
        print(
            json.dumps(
                {
                    "verdict": str(verdict),
                    "seed": args.seed,
                    "runs": [result.as_json() for result in done],
                    "museum": [one.as_json() for one in shown],
                }
            )
        )
    else:
        print(_matrices(done))
        good = sum(one.is_as_described for one in shown)
        print(
            f"\nflaw museum: {good} of {len(shown)} exhibits as described "
            "(stormcast museum shows them)"
        )
        print(f"verdict: {verdict}   {len(done)} runs   seed {args.seed}   traces in {args.out}")
    return EXIT[verdict]


def museum(argv: list[str]) -> int:
    """`stormcast museum`: each flaw shown, and shown gone."""
    parser = _parser(
        "museum", "Run every exhibit on the version that has the flaw and on the one that fixed it."
    )
    _add_backend(parser)
    parser.add_argument("--seed", type=_seed, default=1)
    parser.add_argument("--exhibit", help="only this one")
    _add_json(parser)
    args = parser.parse_args(argv)
    if _lacks(args.backend):
        return UNSUPPORTED
    names = [exhibit.name for exhibit in EXHIBITS]
    if args.exhibit and args.exhibit not in names:
        return _refuse(
            ValueError(f"no exhibit named {args.exhibit}; there are: {', '.join(names)}")
        )
    chosen: tuple[Exhibit, ...] = tuple(one for one in EXHIBITS if args.exhibit in (None, one.name))
    _say(f"seed {args.seed}")
    shown = list(tour(chosen, args.seed))
    if args.json:
        print(json.dumps([one.as_json() for one in shown]))
    else:
        wings = [[one for one in shown if one.exhibit.wing == wing] for wing in WINGS]
        print("\n\n".join(_wing(wing) for wing in wings if wing))
    bad = [one.exhibit.name for one in shown if not one.is_as_described]
    if bad:
        _say(f"not as described: {', '.join(bad)}")
    return 1 if bad else 0


def search(argv: list[str]) -> int:
    """`stormcast search --seeds N`: generated scenarios in parallel."""
    parser = _parser("search", "Run generated scenarios, one per seed, on all cores.")
    parser.add_argument("--seeds", type=_positive, default=500, help="how many (default 500)")
    parser.add_argument(
        "--from", dest="first", type=_seed, default=0, help="the first one (default 0)"
    )
    parser.add_argument(
        "--out", type=Path, default=RUNS / "search", help="where seeds that do not hold are kept"
    )
    parser.add_argument("--workers", type=_positive, help="processes (default: one per core)")
    _add_json(parser)
    args = parser.parse_args(argv)
    seeds = range(args.first, args.first + args.seeds)

    def tell(result: SearchResult) -> None:
        rate = result.seeds / result.seconds if result.seconds else 0.0
        _progress(
            f"{result.seeds}/{len(seeds)} seeds, {len(result.violations)} violated, "
            f"{len(result.unknown)} unknown, {result.events} events, {rate:.1f} seeds/s"
        )

    result = search_seeds(seeds, tell, args.out, args.workers)
    _end_progress()
    if args.json:
        print(json.dumps(result.as_json()))
    else:
        for one in [*result.violations, *result.unknown]:
            print(f"seed {one.seed}: {one.verdict}: {'; '.join(one.broken[:2])}")
            print(
                f"  again: stormcast search --from {one.seed} --seeds 1   "
                f"kept: {args.out}/seed-{one.seed}"
            )
        empty = empty_cells(result)
        print(
            f"{result.seeds} seeds from {args.first}, {len(result.violations)} violated, "
            f"{len(result.unknown)} unknown, {result.events} events in {result.seconds:.1f}s"
        )
        print(f"stack × fault: {len(CELLS) - len(empty)} of {len(CELLS)} met")
        if empty:
            print(f"not met: {', '.join('×'.join(cell) for cell in empty)}")
    if result.violations:
        return EXIT[Verdict.VIOLATED]
    return EXIT[Verdict.UNKNOWN] if result.unknown else 0


def compare(argv: list[str]) -> int:
    """`stormcast compare`: the generations on the same storm."""
    parser = _parser(
        "compare", "Run the storm scenario on every generation and print what each pays."
    )
    _add_backend(parser)
    parser.add_argument("--seed", type=_seed, default=1)
    parser.add_argument("--timing", choices=TIMINGS, default="compatible")
    _add_json(parser)
    args = parser.parse_args(argv)
    if _lacks(args.backend):
        return UNSUPPORTED
    _say(f"seed {args.seed}")
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
        print(_table(table))
    return EXIT[worst(Verdict[row.verdict.upper()] for row in rows)]


# -- Words and tables ------------------------------------------------------------------------------


def _report(outcome: Outcome) -> str:
    rows = [
        (finding.guarantee, str(finding.verdict), finding.detail)
        for finding in outcome.judgement.findings
    ]
    run = outcome.run
    lines = [
        f"{outcome.scenario.name}: {outcome.verdict}   seed {outcome.seed}   "
        f"{run.delivered} delivered of {run.sent} sent, {run.events} events, "
        f"{run.seconds:.1f} virtual seconds",
        _table(rows),
    ]
    for finding in outcome.judgement.findings:
        lines += [f"  {finding.guarantee} witness: {line}" for line in finding.witness]
    bitten = ", ".join(f"{fault} {count}" for fault, count in run.bites.items())
    lines.append(f"faults, and how often each had an effect: {bitten or 'none'}")
    if run.control:
        control = ", ".join(
            f"{what} {total / len(run.lives):.0f} (most {run.control_most[what]})"
            for what, total in run.control.items()
        )
        lines.append(f"control frames per member of the group: {control}")
    lines.append(f"run: {outcome.directory}")
    return "\n".join(lines)


ENDS: Final = {
    "done": "nothing smaller fails",
    "budget": "the time is up: a larger --budget may find smaller ones",
    "interrupted": "interrupted: this is the smallest so far",
}
"""Why a search for a smaller scenario ended."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A failed run, and the smallest scenario that was found to fail like it."""

    shrinker: Shrinker
    kept: KeptRun
    out: Path
    end: str
    """One of ENDS."""

    @property
    def command(self) -> str:
        """What runs it again."""
        dice = "" if self.kept.fate == DICE else f" --fate {self.kept.fate}"
        return f"stormcast run {shlex.quote(str(self.out))} --seed {self.kept.seed}{dice}"

    @property
    def text(self) -> str:
        """The file."""
        shrinker = self.shrinker
        return regression(shrinker.best, shrinker.first.size, self.kept.seed, self.command)

    def as_json(self) -> dict[str, object]:
        """What `stormcast shrink --json` prints."""
        first, best, tally = self.shrinker.first, self.shrinker.best, self.shrinker.tally
        return {
            "scenario": first.scenario.name,
            "run": str(self.kept.directory),
            "seed": self.kept.seed,
            "fate": self.kept.fate,
            "guarantee": best.failure.guarantee,
            "detail": best.failure.detail,
            "witness": list(best.failure.witness),
            "before": first.size.as_json(),
            "after": best.size.as_json(),
            "end": self.end,
            "runs": tally.runs,
            "crashes": tally.crashes,
            "file": str(self.out),
            "replay": self.command,
        }

    def report(self) -> str:
        """What `stormcast shrink` prints."""
        first, best, tally = self.shrinker.first, self.shrinker.best, self.shrinker.tally
        lines = [
            self.text,
            f"before: {first.size}",
            f"after:  {best.size}",
            f"{best.failure.guarantee}: {best.failure.detail}",
            *(f"  witness: {line}" for line in best.failure.witness),
            f"{tally.runs} runs, {tally.kept} found smaller; {ENDS[self.end]}",
        ]
        if tally.crashes:
            lines.append(f"{len(tally.crashes)} runs broke off, the first: {tally.crashes[0]}")
        return "\n".join([*lines, f"written: {self.out}", f"again: {self.command}"])


def _nothing_to_shrink(kept: KeptRun, nothing: NothingToShrink) -> int:
    """A run that does not fail, or not any more."""
    _say(f"stormcast: nothing to shrink: {nothing}")
    if kept.verdict["verdict"] == str(Verdict.VIOLATED) and nothing.verdict < Verdict.VIOLATED:
        _say(f"it was violated when it ran: stormcast replay {kept.directory} shows what changed")
    return EXIT[Verdict.UNKNOWN] if nothing.verdict is Verdict.UNKNOWN else USAGE


def _no_longer(kept: KeptRun, error: Exception) -> int:
    """A kept scenario that this version refuses: which is no wonder if it is another version."""
    _say(f"stormcast: the scenario of {kept.directory} cannot be run: {error}")
    for name, (then, now) in kept.other_versions().items():
        _say(f"version of {name}: {then}, now {now}")
    return UNSUPPORTED if kept.other_versions() or isinstance(error, Unsupported) else USAGE


def _matrices(results: Sequence[SideResult]) -> str:
    """One table for members on their own, one for groups, each without columns that are empty."""
    tables = []
    for is_group, columns in ((False, GENERATIONS), (True, GROUP_STACKS)):
        rows = [result for result in results if result.side.is_group == is_group]
        if rows:
            tables.append(_matrix(rows, columns))
    return "\n\n".join(tables)


def _matrix(results: Sequence[SideResult], columns: Sequence[str]) -> str:
    """Scenario and timing down, generation or stack across."""
    by_line: dict[tuple[str, str], dict[str, str]] = {}
    for result in results:
        side = result.side
        by_line.setdefault((side.name, side.timing), {})[side.kind] = str(result.verdict)
    table: list[Sequence[str]] = [("scenario", "timing", *columns)]
    table += [
        (*line, *(cells.get(name, "-") for name in columns))
        for line, cells in sorted(by_line.items())
    ]
    return _table(table)


def _wing(shown: Sequence[Shown]) -> str:
    """The exhibits of one wing of the museum."""
    rows: list[Sequence[str]] = [
        (
            f"exhibit ({shown[0].exhibit.wing})",
            "guarantee",
            "flawed",
            "",
            "fixed",
            "",
            "witness of the flaw",
        )
    ]
    rows += [
        (
            one.exhibit.name,
            one.exhibit.guarantee,
            _setting(one.exhibit.flawed),
            str(one.flawed.verdict),
            _setting(one.exhibit.fixed),
            str(one.fixed.verdict),
            one.shown_witness,
        )
        for one in shown
    ]
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _setting(values: Setting) -> str:
    """What runs, and what it is set to."""
    what, *rest = values.items()
    return " ".join([str(what[1]), *(f"{key}={str(value).lower()}" for key, value in rest)])


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"stormcast {name}", description=about, allow_abbrev=False)


def _add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", default="sim", help=f"where members live: {', '.join(BACKENDS)} (default sim)"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON value on stdout")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: write a whole number from 0")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1")
    return int(text)


def _duration(text: str) -> float:
    try:
        return DURATION.parse(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _unsupported(refusal: Unsupported, *, as_json: bool, seed: int) -> int:
    if as_json:
        print(
            json.dumps(
                {
                    "verdict": "unsupported",
                    "reason": str(refusal),
                    "guarantees": {},
                    "seed": seed,
                    "run": None,
                }
            )
        )
    _say(f"unsupported: {refusal}")
    return UNSUPPORTED


def _lacks(backend: str) -> bool:
    """Whether there is no such backend, which is then said."""
    if backend in BACKENDS:
        return False
    _say(f"unsupported: backend {backend!r}: this version has: {', '.join(BACKENDS)}")
    return True


def _give_up(error: NodeError, seed: int) -> int:
    """The stacks broke the rig: that is our fault, no verdict and no wrong usage."""
    _say(f"stormcast: the run broke off (seed {seed}): {error}")
    return EXIT[Verdict.UNKNOWN]


def _refuse(error: Exception) -> int:
    _say(f"stormcast: {error}")
    return USAGE


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _progress(text: str) -> None:
    """One line that replaces itself on a terminal, and is left out elsewhere but for the last."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _end_progress() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
