"""Runs a scenario with a seed, has it judged, and leaves a run directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from stormcast.chaos.backends.base import Backend
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.records.directory import taken
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.outcome import (
    RunOutcome,
    write_evidence,
    write_run,
    write_verdict,
)
from stormcast.chaos.session.plans import check_supported
from stormcast.chaos.session.session import Tell, play
from stormcast.chaos.session.simulation import simulate
from stormcast.node.keys.cluster_keys import ClusterKey

KERNEL_DICE: Final = "jhash"
"""The dice of chance faults on real networks."""
LOGS: Final = "logs"
"""The folder of a run directory for what real members left besides their journals."""


def run_scenario(
    scenario: Scenario,
    seed: int,
    *,
    out: Path | None = None,
    make_unicast: Callable[..., Any] | None = None,
    make_multicast: Callable[..., Any] | None = None,
    min_bites: int | None = None,
    fate: str = "xxh3",
    keys: tuple[ClusterKey, ...] = (),
) -> RunOutcome:
    """Run in the simulator and judge; with `out`, write a run directory. `keys`: those of sealed
    members, in place of one that follows from the seed.

    Ctrl-C ends the run early. With `out` what there is of it is judged and kept; without, nobody
    is to take that for a result, and KeyboardInterrupt is raised."""
    check_supported(scenario)
    with taken(out) if out is not None else nullcontext():
        run = simulate(
            scenario,
            seed,
            make_unicast=make_unicast,
            make_multicast=make_multicast,
            fate=fate,
            keys=keys,
        )
        if run.is_cut_short and out is None:
            raise KeyboardInterrupt
        judgement = judge_run(scenario, run, min_bites)
        given = keys[0].name if keys else None
        outcome = RunOutcome(scenario, seed, judgement, run, out, fate, min_bites, given)
        if out is not None:
            write_run(outcome, out)
    return outcome


def run_on(
    backend: Backend,
    scenario: Scenario,
    seed: int,
    *,
    out: Path,
    min_bites: int | None = None,
    run: str = "",
    tell: Tell | None = None,
) -> RunOutcome:
    """Run on a backend and judge; the run directory is written to `out`."""
    check_supported(scenario, backend.name)
    with taken(out):
        logs = out / LOGS
        logs.mkdir()
        try:
            record = play(scenario, seed, backend, logs, run=run, tell=tell)
            # The journals go only when the traces are there: until then they are the only copy that
            # outlives this process. Where one did not come there are no traces, but other journals.
            write_evidence(scenario, seed, record, out)
            if record.evidence.members:
                _remove_journals(logs)
        finally:
            _remove_sockets(logs)
    judgement = judge_run(scenario, record, min_bites)
    outcome = RunOutcome(scenario, seed, judgement, record, out, KERNEL_DICE, min_bites)
    write_verdict(outcome, out)
    return outcome


def _remove_journals(logs: Path) -> None:
    """Remove journals, which are kept as traces."""
    for journal in logs.glob("*/journal"):
        rmtree(journal)


def _remove_sockets(logs: Path) -> None:
    """Remove the files of sockets that nobody listens at any more."""
    for path in logs.rglob("*.sock"):
        path.unlink()
