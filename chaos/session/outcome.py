"""A run with its verdict, and the directory that it is kept in."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from stormcast.chaos.language.scenario import Scenario, dump
from stormcast.chaos.oracles.verdict import Judgement, Verdict
from stormcast.chaos.records.digest import EVIDENCE, digest_of
from stormcast.chaos.records.directory import TakenError
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.unowed import unowed_loads
from stormcast.chaos.session.versions import versions
from stormcast.findings import worst_by_guarantee
from stormcast.node.settings import is_path
from stormcast.whole import write_whole

TRACE: Final = "trace"
_PART: Final = ".trace.part"
"""The folder of traces while it is written."""
STACKS: Final = "stacks"
"""The folder of a run directory for the stack of the scenario, if that is a file of its own."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run: what was run, its verdict, its record and its directory."""

    scenario: Scenario
    seed: int
    judgement: Judgement
    run: RunRecord
    directory: Path | None = None
    fate: str = "xxh3"
    """The name of the fate function of its chance faults."""
    min_bites: int | None = None
    """The fewest bites that each fault must have; None: the default."""
    given_key: str | None = None
    """The name of the key by which simulated members sealed, if it was given and not drawn."""

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    def unowed(self) -> tuple[str, ...]:
        """Return lines on loads that were never for some members; none where a finding says so."""
        found = {finding.detail for finding in self.judgement.findings}
        lines = unowed_loads(self.scenario, self.run)
        return tuple(line for line in lines if line not in found)

    def verdicts(self) -> dict[str, str]:
        """Return the worst verdict on each guarantee."""
        return worst_by_guarantee(self.judgement.findings)

    def files(self) -> dict[str, bytes]:
        """Return the files that the verdict is made from: scenario, seed and traces."""
        return _told(self.scenario, self.seed) | {
            f"{TRACE}/{label}": blocks for label, blocks in _traces(self.run).items()
        }

    def as_json(self) -> dict[str, Any]:
        """Return the object that `stormcast run --json` prints."""
        return {
            "scenario": self.scenario.name,
            "verdict": str(self.verdict),
            "guarantees": self.verdicts(),
            "findings": [finding.as_json() for finding in self.judgement.findings],
            "backend": self.run.backend,
            "seed": self.seed,
            "fate": self.fate,
            "min_bites": self.min_bites,
            "given_key": self.given_key,
            "run": str(self.directory) if self.directory else None,
            EVIDENCE: digest_of(self.files()),
            "messages": self.run.sent,
            "delivered": self.run.delivered,
            "owed": self.judgement.owed.as_json() if self.judgement.owed else None,
            "unowed": list(self.unowed()),
            "events": self.run.recorded,
            "virtual_seconds": round(self.run.seconds, 6),
            "interrupted": self.run.is_cut_short or bool(self.run.broke_off),
            "complete": self.run.complete and not self.run.is_cut_short,
            "faults": self.run.bites,
            "faults_by_pair": {
                fault: {f"{source} {dest}": number for (source, dest), number in pairs.items()}
                for fault, pairs in self.run.bites_by_pair.items()
            },
            "resync": self.run.resync.as_json() if self.run.resync is not None else None,
            "notes": list(self.run.notes),
            "control": self.run.control,
            "control_most": self.run.control_most,
        }


def write_run(outcome: RunOutcome, directory: Path) -> None:
    """Write a run directory: what the verdict is made from, and the verdict."""
    write_evidence(outcome.scenario, outcome.seed, outcome.run, directory)
    write_verdict(outcome, directory)


def write_evidence(scenario: Scenario, seed: int, run: RunRecord, directory: Path) -> None:
    """Write what a verdict is made from: scenario, seed, versions, and the traces, which are there
    all at once or not at all. TakenError: there are traces of another run."""
    traces, part = directory / TRACE, directory / _PART
    if traces.exists():
        raise TakenError(f"{directory} holds the traces of another run")
    try:
        part.mkdir(parents=True)
    except FileExistsError:
        raise TakenError(f"{directory} holds the traces of another run") from None
    try:
        _keep_stack(scenario, directory)
        for name, content in _told(scenario, seed).items():
            (directory / name).write_bytes(content)
        (directory / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")
        for name, blocks in _traces(run).items():
            (part / name).write_bytes(blocks)
        part.rename(traces)
    except OSError as error:
        # A full disk, for instance: half of the traces are of no use to anybody.
        rmtree(part, ignore_errors=True)
        error.filename = error.filename or str(directory)
        raise


def write_verdict(outcome: RunOutcome, directory: Path) -> None:
    """Write the verdict on a run whose evidence is there."""
    write_whole(directory / "verdict.json", json.dumps(outcome.as_json(), indent=2) + "\n")


def _told(scenario: Scenario, seed: int) -> dict[str, bytes]:
    """Return the files that say what was run."""
    return {"scenario.yaml": _kept_text(scenario).encode(), "seed": f"{seed}\n".encode()}


def _traces(run: RunRecord) -> dict[str, bytes]:
    """Return the files of the folder of traces."""
    return {f"{label}.trace": blocks for label, blocks in run.traces.items()}


def _kept_text(scenario: Scenario) -> str:
    """Return the scenario's text for its run directory, where a stack file is kept beside it."""
    stack = scenario.cluster.stack
    if not is_path(stack):
        return scenario.text or dump(scenario)
    cluster = replace(scenario.cluster, stack=f"{STACKS}/{Path(stack).name}")
    return dump(replace(scenario, cluster=cluster))


def _keep_stack(scenario: Scenario, directory: Path) -> None:
    stack = scenario.cluster.stack
    if is_path(stack):
        kept = directory / STACKS / Path(stack).name
        kept.parent.mkdir(exist_ok=True)
        if not (kept.exists() and kept.samefile(stack)):
            kept.write_bytes(Path(stack).read_bytes())
