"""`stormcast run`, `plan`, `chaos-test`, `museum`, `search`, `compare`. Results on stdout, talk on
stderr."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from chaos.cluster import GENERATIONS, TIMINGS
from chaos.compare import compare as compare_generations
from chaos.fate import FATES
from chaos.generate import KINDS
from chaos.museum import EXHIBITS, Exhibit, tour
from chaos.oracles.verdict import Verdict, worst
from chaos.runner import BACKENDS, Outcome, Unsupported, check_supported, run_scenario
from chaos.scenario import Scenario, load_scenario, parse_scenario
from chaos.schedule import format_plan
from chaos.search import SearchResult, empty_cells
from chaos.search import search as search_seeds
from chaos.yaml_nodes import ScenarioError
from node.core.errors import ConfigError, NodeError

EXIT: Final = {Verdict.HOLDS: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}
USAGE: Final = 2
UNSUPPORTED: Final = 3
RUNS: Final = Path("runs")
NOT_FOR_ALL: Final = ("storm",)
"""Scenarios with a command of their own."""


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
        default="xxh3",
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
    """`stormcast chaos-test`: every scenario of the library on every generation, and the museum."""
    parser = _parser(
        "chaos-test",
        "Run every scenario on every unicast generation, then the museum; one table, one verdict.",
    )
    _add_backend(parser)
    parser.add_argument("--seed", type=_seed, default=1)
    parser.add_argument("--timing", choices=(*TIMINGS, "all"), default="all")
    parser.add_argument(
        "--out", type=Path, default=RUNS / "chaos-test", help="where the runs are kept"
    )
    _add_json(parser)
    args = parser.parse_args(argv)
    if _lacks(args.backend):
        return UNSUPPORTED
    _say("backend sim: virtual time, no rights and no network needed")
    timings = TIMINGS if args.timing == "all" else (args.timing,)
    rows: list[dict[str, object]] = []
    verdicts = []
    try:
        for scenario in library():
            for timing in timings:
                for generation in GENERATIONS:
                    cluster = replace(scenario.cluster, unicast=generation, timing=timing)
                    side = replace(scenario, cluster=cluster, text="")
                    out = args.out / f"{scenario.name}-{generation.lower()}-{timing}"
                    outcome = run_scenario(side, args.seed, out=out)
                    verdicts.append(outcome.verdict)
                    rows.append(
                        {
                            "scenario": scenario.name,
                            "unicast": generation,
                            "timing": timing,
                            "verdict": str(outcome.verdict),
                            "run": str(out),
                        }
                    )
                    _progress(
                        f"{len(rows)} runs, {scenario.name} on {generation} {timing}: "
                        f"{outcome.verdict}"
                    )
        _end_progress()
        shown = list(tour())
    except (ScenarioError, ConfigError, OSError) as error:
        return _refuse(error)
    except NodeError as error:
        return _give_up(error, args.seed)
    except KeyboardInterrupt:
        _end_progress()
        print(_matrix(rows))
        _say(f"interrupted after {len(rows)} runs; their traces are in {args.out}")
        raise
    verdicts += [Verdict.HOLDS if one.is_as_described else Verdict.VIOLATED for one in shown]
    verdict = worst(verdicts)
    if args.json:
        print(
            json.dumps(
                {
                    "verdict": str(verdict),
                    "seed": args.seed,
                    "runs": rows,
                    "museum": [one.as_json() for one in shown],
                }
            )
        )
    else:
        print(_matrix(rows))
        good = sum(one.is_as_described for one in shown)
        print(
            f"\nflaw museum: {good} of {len(shown)} exhibits as described "
            "(stormcast museum shows them)"
        )
        print(f"verdict: {verdict}   seed {args.seed}   runs in {args.out}")
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
        rows: list[Sequence[str]] = [
            ("exhibit", "guarantee", "flawed", "", "fixed", "", "witness of the flaw")
        ]
        for one in shown:
            witness = next(
                iter(one.as_json()["witness"]),
                one.flawed.judgement.of(one.exhibit.guarantee).detail,
            )
            rows.append(
                (
                    one.exhibit.name,
                    one.exhibit.guarantee,
                    _setting(one.exhibit.flawed),
                    str(one.flawed.verdict),
                    _setting(one.exhibit.fixed),
                    str(one.fixed.verdict),
                    witness,
                )
            )
        print(_table(rows))
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
        empty = empty_cells(result, GENERATIONS, tuple(KINDS))
        print(
            f"{result.seeds} seeds from {args.first}, {len(result.violations)} violated, "
            f"{len(result.unknown)} unknown, {result.events} events in {result.seconds:.1f}s"
        )
        cells = len(GENERATIONS) * len(KINDS)
        print(f"generation × fault: {cells - len(empty)} of {cells} met")
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


# -- Scenarios -----------------------------------------------------------------------------------


def library() -> Iterable[Scenario]:
    """The scenario files that ship with the rig, in order of their names."""
    folder = files("chaos").joinpath("scenarios")
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".yaml") and entry.name.removesuffix(".yaml") not in NOT_FOR_ALL:
            yield parse_scenario(entry.read_text(), entry.name)


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
    lines.append(f"run: {outcome.directory}")
    return "\n".join(lines)


def _matrix(rows: Sequence[dict[str, object]]) -> str:
    """Scenario and timing down, generation across."""
    by_line: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        by_line.setdefault((str(row["scenario"]), str(row["timing"])), {})[str(row["unicast"])] = (
            str(row["verdict"])
        )
    table: list[Sequence[str]] = [("scenario", "timing", *GENERATIONS)]
    table += [
        (*line, *(cells.get(name, "-") for name in GENERATIONS)) for line, cells in by_line.items()
    ]
    return _table(table)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _setting(values: object) -> str:
    assert isinstance(values, dict)
    rest = [f"{key}={str(value).lower()}" for key, value in values.items() if key != "unicast"]
    return " ".join([str(values["unicast"]), *rest])


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
