"""`stormcast run` and `stormcast plan` of a file with `guests:`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.commands.output import (
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
from stormcast.chaos.guests.playing import GuestOutcome, play_guests
from stormcast.chaos.guests.scenario import GuestScenario
from stormcast.chaos.guests.scenario_file import load_guests
from stormcast.chaos.language.schedule import plan_table
from stormcast.chaos.records.directory import make_fresh
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.reading.quantities import DURATION

Report = Callable[[Path], Path]
"""Writes the page of a run directory, and returns its path."""


def run_guests(
    path: str,
    backend: str | None,
    seed: int,
    out: Path | None,
    *,
    as_json: bool,
    page_of: Report | None,
) -> int:
    """Play a scenario with guests and judge it; return the exit code."""
    try:
        scenario = load_guests(path)
        _check_backend(scenario, backend)
        say_leftovers(scenario.backend)
        directory = out or make_fresh(RUNS, f"{scenario.name}-{seed}")
        try:
            outcome = play_guests(scenario, seed, directory, progress)
        finally:
            end_progress()
        page = page_of(directory) if page_of is not None else None
    except Unsupported as refusal:
        return unsupported(refusal, as_json=as_json, seed=seed)
    except (ConfigError, OSError) as error:
        return refuse(error)
    except NodeError as error:
        return give_up(error, seed)
    if as_json:
        print(json.dumps(outcome.as_json()))
    else:
        print(in_plain_lines(_text(outcome, page)))
    if outcome.is_cut_short:
        raise KeyboardInterrupt
    return Exit.of(outcome.judgement.verdict)


def plan_guests(path: str, seed: int) -> int:
    """Print the timed steps of a scenario with guests."""
    try:
        scenario = load_guests(path)
    except (ConfigError, OSError) as error:
        return refuse(error)
    limits = scenario.limits
    client = f", {scenario.client.model} client" if scenario.client else ""
    head = (
        f"{scenario.name}, seed {seed}: {len(scenario.guests)} guests "
        f"({' '.join(guest.name for guest in scenario.guests)}){client}, "
        f"at most {DURATION.write(limits.run)}, then {DURATION.write(limits.finish)} to finish"
    )
    print("\n".join([head, "", *plan_table(scenario.plan(), seed), ""]))
    return Exit.HOLDS


def _check_backend(scenario: GuestScenario, backend: str | None) -> None:
    if backend in (None, scenario.backend):
        return
    raise Unsupported(
        f"{scenario.name} has guests, which live on {scenario.backend} only, and not on {backend}; "
        "drop --backend"
    )


def _text(outcome: GuestOutcome, page: Path | None) -> str:
    findings = outcome.judgement.findings
    seen = outcome.seen
    operations = "no client"
    if seen.history is not None:
        ends = [one.outcome.value for one in seen.history.operations]
        operations = f"{len(ends)} operations (" + ", ".join(
            f"{ends.count(end)} {end}" for end in ("ok", "fail", "info")
        ) + ")"  # fmt: skip
    lines = [
        f"{outcome.scenario.name}: {outcome.judgement.verdict}   seed {outcome.run.seed}   "
        f"{operations}, {seen.seconds:.1f} seconds on "
        f"{outcome.scenario.backend}",
        in_columns([(one.guarantee, str(one.verdict), one.detail) for one in findings]),
    ]
    for one in findings:
        lines += [f"  {one.guarantee} witness: {line}" for line in one.witness]
    bitten = ", ".join(f"{fault} {count}" for fault, count in seen.bites.items())
    lines.append(f"faults, and how often each had an effect: {bitten or 'none'}")
    lines.append(
        f"run: {outcome.run.directory}" + (f"   report: {page}" if page is not None else "")
    )
    return "\n".join(lines)
