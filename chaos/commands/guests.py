"""`stormcast run` and `stormcast plan` of a file with `guests:`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.campaigns.replay import KeptRun
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
from stormcast.chaos.guests.scenario_file import load_guests, parse_guests
from stormcast.chaos.language.schedule import plan_table
from stormcast.chaos.oracles.verdict import Verdict
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

    def load() -> GuestScenario:
        scenario = load_guests(path)
        _check_backend(scenario, backend)
        return scenario

    return _play(load, seed, out, as_json=as_json, page_of=page_of)


def replay_guests(kept: KeptRun, *, as_json: bool, page_of: Report | None) -> int:
    """Do the steps of a run with guests once more, in a new run directory, and compare the
    verdicts; return the exit code."""

    def load() -> GuestScenario:
        file = kept.directory / "scenario.yaml"
        # Commands find what lies beside the file that it was a copy of.
        folder = Path(str(kept.verdict.get("folder", kept.directory)))
        if not folder.is_dir():
            raise ConfigError(
                f"{kept.directory}: the folder of its scenario, {folder}, is gone; stormcast run "
                f"{file} takes what its commands name from beside that copy"
            )
        name = Path(str(kept.verdict.get("file") or file)).name
        return parse_guests(file.read_text(), str(folder / name))

    def compared(outcome: GuestOutcome) -> tuple[str, Exit]:
        now = outcome.judgement.verdict
        before = (str(kept.verdict["verdict"]), kept.verdict.get("guarantees"))
        is_same = before == (str(now), outcome.as_json()["guarantees"])
        how = "the same" if is_same else f"another: it was {before[0]}"
        code = Exit.HOLDS if is_same else Exit.VIOLATED
        if now is Verdict.UNKNOWN and not is_same:
            code = Exit.UNKNOWN
        return f"the steps of {kept.directory} again, by real programs; the verdict is {how}", code

    return _play(load, kept.seed, None, as_json=as_json, page_of=page_of, compared=compared)


def _play(
    load: Callable[[], GuestScenario],
    seed: int,
    out: Path | None,
    *,
    as_json: bool,
    page_of: Report | None,
    compared: Callable[[GuestOutcome], tuple[str, Exit]] | None = None,
) -> int:
    """Play a scenario, and print what came of it; return the exit code of its verdict, or where the
    run is compared with another, the line and exit code of that."""
    try:
        scenario = load()
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
    said, code = "", Exit.of(outcome.judgement.verdict)
    if compared is not None:
        said, code = compared(outcome)
    if as_json:
        print(json.dumps(outcome.as_json() | ({"compared": said} if said else {})))
    else:
        print(in_plain_lines("\n".join(filter(None, (_text(outcome, page), said)))))
    if outcome.is_cut_short:
        raise KeyboardInterrupt
    return code


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
