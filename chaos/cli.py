"""`stormcast run`, `replay`, `shrink`, `plan`, `chaos-test`, `museum`, `search`, `compare`. Results
on stdout, talk on stderr."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from chaos.cluster import GENERATIONS, TIMINGS
from chaos.compare import compare as compare_generations
from chaos.fate import FATES
from chaos.generate import CELLS
from chaos.library import GROUP_STACKS, SideResult, library, run_sides, sides_of
from chaos.museum import EXHIBITS, WINGS, Exhibit, Setting, Shown, tour
from chaos.oracles.verdict import Verdict, worst
from chaos.record import Resync
from chaos.replay import KeptRun, NotARunError, Result, read_run
from chaos.replay import replay as replay_run
from chaos.runner import (
    BACKENDS,
    SIM,
    Outcome,
    Unsupported,
    check_supported,
    make_backend,
    run_on,
    run_scenario,
)
from chaos.scenario import Scenario, load_scenario
from chaos.schedule import format_plan
from chaos.search import SearchResult, empty_cells
from chaos.search import search as search_seeds
from chaos.shrink import NothingToShrink, Over, Shrinker, regression
from chaos.units import DURATION, UnitError
from chaos.yaml_nodes import ScenarioError
from node.core.errors import ConfigError, NodeError

if TYPE_CHECKING:
    from chaos.live import LiveResult

EXIT: Final = {Verdict.HOLDS: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}
USAGE: Final = 2
UNSUPPORTED: Final = 3
RUNS: Final = Path("runs")
REPLAYED: Final = {Result.IDENTICAL: 0, Result.DIFFERENT: 1, Result.UNPROVEN: 3}
DICE: Final = "xxh3"
"""The dice that are thrown unless others are asked for."""
AUTO: Final = "auto"
REPORT: Final = "chaos-test.json"
"""What chaos-test leaves in its directory besides its runs."""
MINIMAL: Final = "minimal.yaml"
"""What a run is shrunk to, in its directory."""


class Again(NamedTuple):
    """What a second judge says of a batch of runs."""

    verdict: Verdict
    text: str
    report: Path


JudgeAgain = Callable[[Path, Sequence[Path]], Again]
"""From the directory of a batch of runs, and those of the runs."""


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
    parser.add_argument("--timing", choices=TIMINGS, help="in place of the one of the file")
    parser.add_argument("--out", type=Path, help="the run directory (default runs/NAME-SEED)")
    parser.add_argument(
        "--fate",
        choices=tuple(FATES),
        help="the dice of chance faults in the simulator: xxh3 is fast, jhash is the kernel's, "
        "which real networks throw (default xxh3)",
    )
    parser.add_argument("--namespace", help="of the members in Kubernetes")
    parser.add_argument("--release", help="of the chart in Kubernetes")
    _add_json(parser)
    args = parser.parse_args(argv)
    try:
        scenario = load_scenario(args.file)
        if args.timing and args.timing != scenario.cluster.timing:
            cluster = replace(scenario.cluster, timing=args.timing)
            scenario = replace(scenario, cluster=cluster, text="")
        check_supported(scenario, args.backend)
        out = args.out or RUNS / f"{scenario.name}-{args.seed}"
        outcome = _run(scenario, args, out)
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
    if outcome.run.is_cut_short:
        raise KeyboardInterrupt
    return EXIT[outcome.verdict]


def _run(scenario: Scenario, args: argparse.Namespace, out: Path) -> Outcome:
    """On the backend that was asked for."""
    chosen = {name: getattr(args, name) for name in ("namespace", "release")}
    given = {name: value for name, value in chosen.items() if value is not None}
    if given and args.backend != "kubernetes":
        raise ConfigError(f"--{next(iter(given))} is of --backend kubernetes; drop it")
    if args.backend == SIM:
        return run_scenario(scenario, args.seed, out=out, fate=args.fate or DICE)
    if args.fate == DICE:
        raise ConfigError(f"--fate {DICE}: a real network throws the kernel's dice; drop it")
    backend = make_backend(args.backend, **given)
    if args.backend == "netns":
        _say_leftovers()
    try:
        return run_on(backend, scenario, args.seed, out=out, tell=_progress)
    finally:
        _end_progress()


def _say_leftovers() -> None:
    """What killed runs left behind is in nobody's way; but somebody should know of it."""
    from chaos.backends.netns import what_is_missing  # noqa: PLC0415 only where there is netns
    from chaos.backends.netns.leftovers import leftovers  # noqa: PLC0415

    if what_is_missing() is None:
        spaces, folders = leftovers()
        if spaces or folders:
            _say(
                f"{len(spaces) + len(folders)} leftovers of killed runs are there: "
                "stormcast clean removes them"
            )


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
    if (where := kept.verdict.get("backend", SIM)) != SIM:
        # Equal fate for equal frames, but no two real runs are equal.
        again = f"stormcast run {args.run}/scenario.yaml --seed {kept.seed} --backend {where}"
        return _refuse(ValueError(f"{args.run} ran on {where}, which nothing repeats: {again}"))
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


def chaos_test(argv: list[str], judge_again: JudgeAgain | None = None) -> int:
    """`stormcast chaos-test`: on real packets where this machine can, else in the simulator.

    What was run on real packets is handed to a second judge, if there is one."""
    parser = _parser(
        "chaos-test",
        "As root: scenarios on every protocol, as processes in network namespaces, in ten minutes. "
        "Without root, or with --backend sim: every scenario on every unicast generation or group "
        "stack that it is meant for, then the museum. A table, one verdict.",
    )
    parser.add_argument(
        "--backend",
        default=AUTO,
        help=f"where members live: {SIM}, netns, or {AUTO}: netns if possible (default {AUTO})",
    )
    parser.add_argument("--seed", type=_seed, default=1)
    parser.add_argument(
        "--timing", choices=(*TIMINGS, "all"), default="all", help="in the simulator (default all)"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="on netns, what has this in its name"
    )
    parser.add_argument(
        "--out", type=Path, default=RUNS / "chaos-test", help="where the runs are kept"
    )
    parser.add_argument(
        "--workers", type=_positive, help="processes (default: one per core; on netns 3)"
    )
    _add_json(parser)
    args = parser.parse_args(argv)
    if args.backend not in (AUTO, SIM, "netns"):
        _say(f"unsupported: backend {args.backend!r}: chaos-test has {AUTO}, {SIM}, netns")
        return UNSUPPORTED
    if args.backend == SIM:
        return _chaos_test_in_virtual_time(args)
    why = _why_no_namespaces()
    if why is None:
        return _chaos_test_on_real_packets(args, judge_again)
    if args.backend == "netns":
        return _unsupported(Unsupported(why), as_json=args.json, seed=args.seed)
    _say(f"{why}: so the simulator runs instead of real packets")
    return _chaos_test_in_virtual_time(args)


def _why_no_namespaces() -> str | None:
    """Why nothing can be run on real packets here; None: it can."""
    from chaos.backends.netns import probe as probe_netns  # noqa: PLC0415 only where it is wanted

    return probe_netns()


def _chaos_test_on_real_packets(args: argparse.Namespace, judge_again: JudgeAgain | None) -> int:
    from chaos.backends.netns.backend import probe as probe_features  # noqa: PLC0415
    from chaos.live import LANES, live_runs, run_live, table_of  # noqa: PLC0415

    _say("backend netns: processes in network namespaces of their own, real packets")
    _say_leftovers()
    began = time.monotonic()
    features = probe_features()
    runs = [run for run in live_runs() if all(word in run.directory for word in args.only)]
    if not runs:
        return _refuse(ValueError(f"no run has {' and '.join(args.only)} in its name"))
    done: list[LiveResult] = []

    def show() -> None:
        _end_progress()
        if not args.json:
            print(_table(table_of(done)))
            print(_live_details(done))

    try:
        lanes = args.workers or LANES
        for result in run_live(runs, args.seed, args.out, features, lanes=lanes):
            done.append(result)
            told = _progress if sys.stderr.isatty() else _say
            told(
                f"{len(done)}/{len(runs)} runs, {time.monotonic() - began:.0f}s, "
                f"{result.run.scenario.name} on {result.run.kind}: {result.cell}"
            )
    except KeyboardInterrupt:
        show()
        _say(f"interrupted after {len(done)} of {len(runs)} runs; what is there is in {args.out}")
        raise
    verdicts = [result.verdict for result in done if result.verdict is not None]
    verdict = worst(verdicts) if verdicts else Verdict.UNKNOWN
    whole = {
        "verdict": str(verdict),
        "backend": "netns",
        "seed": args.seed,
        "seconds": round(time.monotonic() - began, 1),
        "runs": [result.as_json() for result in done],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / REPORT).write_text(json.dumps(whole, indent=2) + "\n")
    show()
    shown = f"report: {args.out / REPORT}"
    if judge_again is not None:
        again = judge_again(args.out, [args.out / run.run.directory for run in done])
        verdict = worst((verdict, again.verdict))
        whole |= {"verdict": str(verdict), "again": again.text, "report": str(again.report)}
        shown = f"{again.text}\nreport: {again.report}"
    if args.json:
        print(json.dumps(whole))
    else:
        print(
            f"verdict: {verdict}   {len(verdicts)} runs on netns in {whole['seconds']:.0f}s   "
            f"seed {args.seed}\n{shown}\n"
            "every scenario in virtual time, and the museum of flaws: "
            "stormcast chaos-test --backend sim"
        )
    return EXIT[verdict]


def _live_details(done: Sequence[LiveResult]) -> str:
    """What does not hold, and what a mark in the table means."""
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


def _chaos_test_in_virtual_time(args: argparse.Namespace) -> int:
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
        f"{run.seconds:.1f} {'virtual ' if run.backend == SIM else ''}seconds"
        f"{'' if run.backend == SIM else f' on {run.backend}'}",
        _table(rows),
    ]
    for finding in outcome.judgement.findings:
        lines += [f"  {finding.guarantee} witness: {line}" for line in finding.witness]
    bitten = ", ".join(f"{fault} {count}" for fault, count in run.bites.items())
    lines.append(f"faults, and how often each had an effect: {bitten or 'none'}")
    if run.resync is not None:
        lines.append(_resync(run.resync))
    lines += run.notes
    if run.control:
        control = ", ".join(
            f"{what} {total / len(run.lives):.0f} (most {run.control_most[what]})"
            for what, total in run.control.items()
        )
        lines.append(f"control frames per member of the group: {control}")
    lines.append(f"run: {outcome.directory}")
    return "\n".join(lines)


def _resync(resync: Resync) -> str:
    """How long it took to be well again."""
    first = "some pair never" if resync.first_delivery is None else f"{resync.first_delivery:.3f}s"
    parts = [f"first delivery {first}", f"full repair {resync.repaired:.3f}s"]
    if resync.one_view is not None:
        parts.append(f"last view {resync.one_view:.3f}s")
    return f"after the last heal, t={resync.after:.3f}s: {', '.join(parts)}"


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
    """Whether there is no such backend for what only the simulator does, which is then said."""
    if backend == SIM:
        return False
    known = "it needs the simulator" if backend in BACKENDS else "there is no such backend"
    _say(f"unsupported: backend {backend!r}: {known}; drop it, or write --backend {SIM}")
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
