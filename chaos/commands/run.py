"""`stormcast run`, `stormcast plan`: run one scenario with one seed, or print its steps."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import SIM, make_backend
from stormcast.chaos.commands.arguments import (
    OF_ONE_BACKEND,
    add_backend,
    add_flags_of_one_backend,
    add_json,
    add_scenario,
    add_seed,
    own_options,
    parser_of,
    way_not_verified,
)
from stormcast.chaos.commands.guests import Report, plan_guests, run_guests
from stormcast.chaos.commands.key_file import OF_A_RELEASE, Keys, add_key_file, read_key_file
from stormcast.chaos.commands.output import (
    DICE,
    RUNS,
    end_progress,
    give_up,
    in_columns,
    in_plain_lines,
    progress,
    refuse,
    say_leftovers,
    unsupported,
)
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.guests.scenario_file import has_guests
from stormcast.chaos.language.cluster import TIMINGS
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.schedule import format_plan
from stormcast.chaos.language.shipped import open_scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.records.directory import make_fresh
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.plans import check_supported
from stormcast.chaos.session.record import ResyncTimes
from stormcast.chaos.session.runner import run_on, run_scenario
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError, NodeError


def run(argv: list[str], page_of: Report | None = None) -> int:
    """Run `stormcast run FILE`: one scenario, one seed, one run directory, one verdict; with guests
    also its page, by `page_of`."""
    parser = parser_of(
        "run",
        "Run a scenario and judge it. Exit 0 holds, 1 violated, 2 usage, 3 unknown or unsupported.",
    )
    add_scenario(parser)
    add_backend(parser)
    # Whether it was given matters: guests live in namespaces unless another place is asked for.
    parser.set_defaults(backend=None)
    add_seed(parser)
    parser.add_argument("--timing", choices=TIMINGS, help="in place of the one of the file")
    parser.add_argument(
        "--out",
        type=Path,
        help="the run directory, empty or not there yet (default runs/NAME-SEED, or NAME-SEED-2 … "
        "where that is there)",
    )
    parser.add_argument(
        "--fate",
        choices=tuple(FATES),
        help="the dice of chance faults in the simulator: xxh3 is fast, jhash is the kernel's, "
        "which real networks throw (default xxh3)",
    )
    add_key_file(parser)
    add_flags_of_one_backend(parser)
    add_json(parser)
    args = parser.parse_args(argv)
    if has_guests(args.file):
        if (flag := _of_members(args)) is not None:
            return refuse(ConfigError(f"{flag} is of members, and {args.file} has guests; drop it"))
        return run_guests(
            args.file, args.backend, args.seed, args.out, as_json=args.json, page_of=page_of
        )
    args.backend = args.backend or SIM
    try:
        scenario = open_scenario(args.file)
        if args.timing and args.timing != scenario.cluster.timing:
            cluster = replace(scenario.cluster, timing=args.timing)
            scenario = replace(scenario, cluster=cluster, text="")
        keys: Keys = ()
        if args.key_file is not None:
            scenario, keys = _sealed(scenario, args)
        check_supported(scenario, args.backend)
        outcome = _run(scenario, args, keys)
    except Unsupported as refusal:
        return unsupported(refusal, as_json=args.json, seed=args.seed)
    except (ConfigError, OSError) as error:
        return refuse(error)
    except NodeError as error:
        return give_up(error, args.seed)
    if args.json:
        print(json.dumps(outcome.as_json()))
    else:
        print(in_plain_lines(report(outcome)))
    if outcome.run.is_cut_short:
        raise KeyboardInterrupt
    return Exit.of(outcome.verdict)


def _of_members(args: argparse.Namespace) -> str | None:
    """Return a flag that was given and means nothing to guests."""
    names = ("timing", "fate", "key_file", *OF_ONE_BACKEND)
    return next((f"--{name.replace('_', '-')}" for name in names if getattr(args, name)), None)


def _sealed(scenario: Scenario, args: argparse.Namespace) -> tuple[Scenario, Keys]:
    """Return the scenario with members that have a key, and the keys of the file for them."""
    if args.backend == "kubernetes":
        raise Unsupported(OF_A_RELEASE)
    if scenario.changes_keys:
        raise ConfigError(
            f"--key-file {args.key_file}: {scenario.name} changes the members' keys, and a file "
            "that was given is not changed; drop --key-file"
        )
    keys = read_key_file(args.key_file)
    return scenario.with_keys(), keys


def _run(scenario: Scenario, args: argparse.Namespace, keys: Keys) -> RunOutcome:
    """Run a scenario on the backend that was asked for."""
    given = own_options(args)
    if args.backend == SIM:
        out = _directory(scenario, args)
        return run_scenario(scenario, args.seed, out=out, fate=args.fate or DICE, keys=keys)
    if args.fate == DICE:
        raise ConfigError(f"--fate {DICE}: a real network throws the kernel's dice; drop it")
    if keys:
        given["key_file"] = args.key_file
    backend = make_backend(args.backend, **given)
    if warning := way_not_verified(args.backend, args.ca_file):
        print(f"stormcast run: {warning}", file=sys.stderr)
    say_leftovers(args.backend)
    try:
        return run_on(backend, scenario, args.seed, out=_directory(scenario, args), tell=progress)
    finally:
        end_progress()


def _directory(scenario: Scenario, args: argparse.Namespace) -> Path:
    """Return the run directory that was asked for, or a fresh one. Called after all checks, so that
    a refused run leaves no directory."""
    out: Path | None = args.out
    return out or make_fresh(RUNS, f"{scenario.name}-{args.seed}")


def plan(argv: list[str]) -> int:
    """Run `stormcast plan FILE`: print the timed steps of a scenario."""
    parser = parser_of("plan", "Print the timed steps of a scenario.")
    add_scenario(parser)
    add_seed(parser, "decides what the file leaves to chance")
    args = parser.parse_args(argv)
    if has_guests(args.file):
        return plan_guests(args.file, args.seed)
    try:
        scenario = open_scenario(args.file)
        # Refuse a scenario whose stack is not valid.
        settings_of(scenario)
        text = format_plan(scenario, args.seed)
    except (ConfigError, OSError) as error:
        return refuse(error)
    print(text)
    return 0


def report(outcome: RunOutcome) -> str:
    """Return the text that `stormcast run` prints."""
    rows = [
        (finding.guarantee, str(finding.verdict), finding.detail)
        for finding in outcome.judgement.findings
    ]
    run = outcome.run
    owed = outcome.judgement.owed or f"{run.delivered} delivered of {run.sent} sent"
    lines = [
        f"{outcome.scenario.name}: {outcome.verdict}   seed {outcome.seed}   "
        f"{owed}, {run.recorded} events, "
        f"{run.seconds:.1f} {'virtual ' if run.backend == SIM else ''}seconds"
        f"{'' if run.backend == SIM else f' on {run.backend}'}",
        in_columns(rows),
    ]
    for finding in outcome.judgement.findings:
        lines += [f"  {finding.guarantee} witness: {line}" for line in finding.witness]
    bitten = ", ".join(f"{fault} {count}" for fault, count in run.bites.items())
    lines.append(f"faults, and how often each had an effect: {bitten or 'none'}")
    if run.resync is not None:
        lines.append(_resync(run.resync))
    lines += outcome.unowed()
    lines += run.notes
    if run.control:
        control = ", ".join(
            f"{what} {total / len(run.lives):.0f} (most {run.control_most[what]})"
            for what, total in run.control.items()
        )
        lines.append(f"control frames per member of the group: {control}")
    lines.append(f"run: {outcome.directory}")
    return "\n".join(lines)


def _resync(resync: ResyncTimes) -> str:
    """Return the line about the times until the network was repaired after the last heal."""
    first = "some pair never" if resync.first_delivery is None else f"{resync.first_delivery:.3f}s"
    parts = [f"first delivery {first}", f"full repair {resync.repaired:.3f}s"]
    if resync.one_view is not None:
        parts.append(f"last view {resync.one_view:.3f}s")
    return f"after the last heal, t={resync.after:.3f}s: {', '.join(parts)}"
