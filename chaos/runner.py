"""A scenario and a seed to a run directory and a verdict."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from chaos.backends.sim import SimulatedRun, simulate
from chaos.oracles.evidence import Evidence
from chaos.oracles.verdict import RUN, Finding, Judgement, Verdict, judge, worst
from chaos.scenario import Scenario, dump

SIM_CANNOT: Final[dict[str, str]] = {
    "multicast": "this simulator has no multicast protocol yet; use unicast loads",
    "stream": "the simulated transport is a datagram network; use stack: unicast-only",
    "clock-skew": "simulated members share one clock",
}
"""What a scenario may need and the sim backend has not: the need and what to do."""
NEEDS_THE_END: Final = frozenset({"G1", "L1", "C1"})
"""What can only be judged of a run that came to its end."""
STANDSTILL_SECONDS: Final = 60.0
"""Without a delivery for so long, in a healed network, waiting messages are stuck."""
BACKENDS: Final = ("sim",)


class Unsupported(Exception):
    """The backend can not give this scenario its meaning; nothing was started."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    scenario: Scenario
    seed: int
    judgement: Judgement
    run: SimulatedRun
    directory: Path | None = None

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    def verdicts(self) -> dict[str, str]:
        """The worst that was found of each guarantee."""
        found: dict[str, Verdict] = {}
        for finding in self.judgement.findings:
            if finding.guarantee != RUN:
                before = found.get(finding.guarantee, Verdict.HOLDS)
                found[finding.guarantee] = worst((before, finding.verdict))
        return {guarantee: str(verdict) for guarantee, verdict in found.items()}

    def as_json(self) -> dict[str, Any]:
        """The one object that `stormcast run --json` prints."""
        return {
            "scenario": self.scenario.name,
            "verdict": str(self.verdict),
            "guarantees": self.verdicts(),
            "findings": [
                {
                    "guarantee": finding.guarantee,
                    "verdict": str(finding.verdict),
                    "detail": finding.detail,
                    "witness": list(finding.witness),
                }
                for finding in self.judgement.findings
            ],
            "seed": self.seed,
            "run": str(self.directory) if self.directory else None,
            "messages": self.run.sent,
            "delivered": self.run.delivered,
            "events": self.run.events,
            "virtual_seconds": round(self.run.seconds, 6),
            "faults": self.run.bites,
        }


def check_supported(scenario: Scenario, backend: str = "sim") -> None:
    """Raise Unsupported when a backend lacks what the scenario needs, before anything starts."""
    if backend not in BACKENDS:
        raise Unsupported(
            f"backend {backend!r} is not there yet; this version has: {', '.join(BACKENDS)}"
        )
    for need in scenario.needs:
        if need in SIM_CANNOT:
            raise Unsupported(f"{scenario.name} needs {need}: {SIM_CANNOT[need]}")


def run_scenario(
    scenario: Scenario,
    seed: int,
    *,
    out: Path | None = None,
    make_unicast: Callable[..., Any] | None = None,
    min_bites: int | None = None,
    fate: str = "xxh3",
) -> Outcome:
    """Run in the simulator and judge; with `out`, leave everything needed to look again."""
    check_supported(scenario)
    run = simulate(scenario, seed, make_unicast=make_unicast, fate=fate)
    judgement = judge_run(scenario, run, min_bites)
    outcome = Outcome(scenario, seed, judgement, run, out)
    if out is not None:
        write_run(outcome, out)
    return outcome


def judge_run(scenario: Scenario, run: SimulatedRun, min_bites: int | None = None) -> Judgement:
    """The oracles' findings, and what the run itself can say."""
    evidence = Evidence.from_blocks(run.traces, xxh3_64_intdigest)
    # G8 is what the expectations say: no trace knows what was hoped for.
    asked = [name for name in scenario.guarantees if name != "G8" or not scenario.expect]
    judgement = judge(evidence, asked, budget=scenario.budget, min_bites=min_bites)
    findings = [*judgement.findings, *content_findings(run), *expectation_findings(scenario, run)]
    if not run.complete:
        findings = [_without_haste(finding) for finding in findings]
        findings.append(_unfinished(scenario, run))
    return Judgement(worst(finding.verdict for finding in findings), tuple(findings))


def _without_haste(finding: Finding) -> Finding:
    """A run that was cut short proves no loss: what was under way might have arrived."""
    if finding.guarantee in NEEDS_THE_END and finding.verdict is Verdict.VIOLATED:
        return replace(finding, verdict=Verdict.UNKNOWN)
    return finding


def _unfinished(scenario: Scenario, run: SimulatedRun) -> Finding:
    """Whether the run was too short for its load, or stood still."""
    if run.stalled_for > STANDSTILL_SECONDS:
        return Finding(
            "G8",
            Verdict.VIOLATED,
            f"messages wait, and none was delivered in the last {run.stalled_for:.1f}s",
        )
    return Finding(
        RUN,
        Verdict.UNKNOWN,
        f"the workload did not end within {scenario.limits.run:g}s: "
        "raise limits.run or lower the load",
    )


def content_findings(run: SimulatedRun) -> list[Finding]:
    """What the receiving applications saw: payloads prove themselves (G4)."""
    if not run.mismatches:
        return []
    return [Finding("G4", Verdict.VIOLATED, f"{len(run.mismatches)} batches were not what was sent",
                    tuple(run.mismatches[:3]))]  # fmt: skip


def expectation_findings(scenario: Scenario, run: SimulatedRun) -> list[Finding]:
    """Whether what the scenario expects had happened in time (G8)."""
    findings = []
    for expect in scenario.expect:
        late = []
        for pair, wanted in expect.wanted(run.sent_by_pair).items():
            reached = [count for time, count in run.reached.get(pair, []) if time <= expect.by]
            got = reached[-1] if reached else 0
            if got < wanted:
                late.append(f"{pair[1]} had {got} of {wanted} from {pair[0]} by t={expect.by:g}")
        if late:
            findings.append(
                Finding("G8", Verdict.VIOLATED, "not delivered in time", tuple(late[:3]))
            )
        else:
            findings.append(Finding("G8", Verdict.HOLDS, f"delivered by t={expect.by:g}", ()))
    return findings


def write_run(outcome: Outcome, directory: Path) -> None:
    """The run directory: scenario, seed, versions, trace, verdict."""
    traces = directory / "trace"
    traces.mkdir(parents=True, exist_ok=True)
    for old in traces.glob("*.trace"):
        old.unlink()
    (directory / "scenario.yaml").write_text(outcome.scenario.text or dump(outcome.scenario))
    (directory / "seed").write_text(f"{outcome.seed}\n")
    (directory / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")
    for label, blocks in outcome.run.traces.items():
        (traces / f"{label}.trace").write_bytes(blocks)
    (directory / "verdict.json").write_text(json.dumps(outcome.as_json(), indent=2) + "\n")


def versions() -> dict[str, str]:
    """What ran."""
    try:
        stormcast = version("stormcast")
    except PackageNotFoundError:
        stormcast = "not installed"
    return {
        "stormcast": stormcast,
        "python": platform.python_version(),
        "xxhash": version("xxhash"),
    }
