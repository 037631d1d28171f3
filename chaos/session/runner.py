"""A scenario and a seed to a run directory and a verdict."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import isfinite
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from xxhash import xxh3_64

from stormcast.chaos.backends.base import Backend, BackendError, Unsupported
from stormcast.chaos.language.scenario import Expect, ExpectView, Scenario, dump
from stormcast.chaos.language.stacks import STREAM_TRANSPORTS, settings_of
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.owed import unowed_multicasts
from stormcast.chaos.oracles.verdict import RUN, Finding, Judgement, Verdict, judge, worst
from stormcast.chaos.records.digest import EVIDENCE, digest_of
from stormcast.chaos.records.directory import TakenError, taken
from stormcast.chaos.session.record import RunRecord, ViewSeen
from stormcast.chaos.session.session import Tell, play
from stormcast.chaos.session.simulation import simulate
from stormcast.node.settings import is_path

CANNOT: Final[dict[str, str]] = {
    "clock-skew": "all members share one clock, simulated or real",
}
"""What a scenario may need and no backend has: the need, and why."""
NEEDS_THE_END: Final = frozenset({"G1", "A1", "V4", "L1", "C1"})
"""What can only be judged of a run that came to its end."""
STANDSTILL_SECONDS: Final = 60.0
"""Without a delivery for so long, in a healed network, waiting messages are stuck."""
__all__ = [
    "BACKENDS",
    "LATE_SECONDS",
    "SIM",
    "Outcome",
    "Unsupported",
    "check_supported",
    "judge_run",
    "make_backend",
    "run_on",
    "run_scenario",
    "versions",
    "write_run",
]

SIM: Final = "sim"
BACKENDS: Final = (SIM, "netns", "kubernetes")
MADE_BY: Final = {
    SIM: "stormcast.chaos.backends.sim.backend:SimBackend",
    "netns": "stormcast.chaos.backends.netns.backend:NetnsBackend",
    "kubernetes": "stormcast.chaos.backends.kubernetes.backend:KubernetesBackend",
}
KERNEL_DICE: Final = "jhash"
"""The dice of chance faults on real networks."""
LATE_SECONDS: Final = 1.0
"""A step that comes so late is not what the scenario says any more."""
TRACE: Final = "trace"
LOGS: Final = "logs"
"""Of a run directory: what real members left besides their journals."""
STACKS: Final = "stacks"
"""Of a run directory: the stack of the scenario, where that is a file of its own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    scenario: Scenario
    seed: int
    judgement: Judgement
    run: RunRecord
    directory: Path | None = None
    fate: str = "xxh3"
    """The dice of its chance faults."""
    min_bites: int | None = None
    """Effects that each fault had to have; None: as many as are asked for without a word."""

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

    def files(self) -> dict[str, bytes]:
        """What a verdict is made from, as the run directory holds it: scenario, seed, traces."""
        text = _kept_text(self.scenario)
        named = {"scenario.yaml": text.encode(), "seed": f"{self.seed}\n".encode()}
        return named | {
            f"{TRACE}/{label}.trace": blocks for label, blocks in self.run.traces.items()
        }

    def as_json(self) -> dict[str, Any]:
        """The one object that `stormcast run --json` prints."""
        return {
            "scenario": self.scenario.name,
            "verdict": str(self.verdict),
            "guarantees": self.verdicts(),
            "findings": [_as_json(finding) for finding in self.judgement.findings],
            "backend": self.run.backend,
            "seed": self.seed,
            "fate": self.fate,
            "min_bites": self.min_bites,
            "run": str(self.directory) if self.directory else None,
            EVIDENCE: digest_of(self.files()),
            "messages": self.run.sent,
            "delivered": self.run.delivered,
            "owed": self.judgement.owed.as_json() if self.judgement.owed else None,
            "events": self.run.recorded,
            "virtual_seconds": round(self.run.seconds, 6),
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


def _as_json(finding: Finding) -> dict[str, Any]:
    """A part of verdict.json."""
    told = {
        "guarantee": finding.guarantee,
        "verdict": str(finding.verdict),
        "detail": finding.detail,
        "witness": list(finding.witness),
    }
    at = finding.at
    return told | ({"at": round(at, 6)} if at is not None and isfinite(at) else {})


def check_supported(scenario: Scenario, backend: str = SIM) -> None:
    """Raise Unsupported when a backend lacks what the scenario needs, before anything starts."""
    if backend not in BACKENDS:
        raise Unsupported(
            f"backend {backend!r} is not there yet; this version has: {', '.join(BACKENDS)}"
        )
    if backend == "kubernetes" and is_path(scenario.cluster.stack):
        raise Unsupported(
            f"{scenario.name} has the stack of {scenario.cluster.stack}, and pods do not have that "
            "file; use a stack that ships, with `protocols:`"
        )
    for need in scenario.needs:
        why = CANNOT.get(need) or _stack_lacks(scenario, need)
        if why:
            raise Unsupported(f"{scenario.name} needs {need}: {why}")


def _stack_lacks(scenario: Scenario, need: str) -> str | None:
    """Why the scenario's own stack cannot give what it needs; None: it can."""
    if need not in ("multicast", "stream"):
        return None
    settings, stack = settings_of(scenario), scenario.cluster.stack
    if need == "multicast" and settings.multicast is None:
        return f"stack {stack} has no multicast; choose one with a group, such as udp"
    if need == "stream" and settings.transport not in STREAM_TRANSPORTS:
        return f"stack {stack} runs on a datagram network; choose tcp or tcp-nio2"
    return None


def run_scenario(
    scenario: Scenario,
    seed: int,
    *,
    out: Path | None = None,
    make_unicast: Callable[..., Any] | None = None,
    make_multicast: Callable[..., Any] | None = None,
    min_bites: int | None = None,
    fate: str = "xxh3",
) -> Outcome:
    """Run in the simulator and judge; with `out`, leave everything needed to look again."""
    check_supported(scenario)
    with taken(out) if out is not None else nullcontext():
        run = simulate(
            scenario, seed, make_unicast=make_unicast, make_multicast=make_multicast, fate=fate
        )
        judgement = judge_run(scenario, run, min_bites)
        outcome = Outcome(scenario, seed, judgement, run, out, fate, min_bites)
        if out is not None:
            write_run(outcome, out)
    return outcome


def make_backend(name: str, **options: Any) -> Backend:  # noqa: ANN401 whatever that backend takes
    """A backend by its name; its libraries are only imported now."""
    if name not in MADE_BY:
        raise Unsupported(f"backend {name!r}: this version has: {', '.join(BACKENDS)}")
    module, _, what = MADE_BY[name].partition(":")
    try:
        make = getattr(import_module(module), what)
    except ImportError as error:
        raise BackendError(
            f"backend {name} cannot be loaded ({error}): pip install 'stormcast[chaos]'"
        ) from None
    backend: Backend = make(**options)
    return backend


def run_on(
    backend: Backend,
    scenario: Scenario,
    seed: int,
    *,
    out: Path,
    min_bites: int | None = None,
    run: str = "",
    tell: Tell | None = None,
) -> Outcome:
    """Run on a backend and judge; everything needed to look again is left in `out`."""
    check_supported(scenario, backend.name)
    with taken(out):
        logs = out / LOGS
        logs.mkdir()
        try:
            record = play(scenario, seed, backend, logs, run=run, tell=tell)
        finally:
            _tidy(logs)
    judgement = judge_run(scenario, record, min_bites)
    outcome = Outcome(scenario, seed, judgement, record, out, KERNEL_DICE, min_bites)
    write_run(outcome, out)
    return outcome


def _tidy(logs: Path) -> None:
    """Remove what is kept elsewhere (journals, as traces), and what nobody listens at any more."""
    for journal in logs.glob("*/journal"):
        rmtree(journal)
    for path in logs.rglob("*.sock"):
        path.unlink()


def judge_run(scenario: Scenario, run: RunRecord, min_bites: int | None = None) -> Judgement:
    """The oracles' findings, and what the run itself can say."""
    if run.broke_off:
        return _judge_broken_off(scenario, run)
    evidence = run.evidence
    # G8 is what the expectations say, and of a group that it is one at the end: no trace knows
    # what was hoped for.
    is_hoped = bool(scenario.expect or run.views)
    asked = [name for name in scenario.guarantees if name != "G8" or not is_hoped]
    judgement = judge(evidence, asked, budget=scenario.budget, min_bites=min_bites)
    findings = [*judgement.findings, *content_findings(run), *expectation_findings(scenario, run)]
    findings += unowed_findings(scenario, evidence)
    if run.views and "G8" in scenario.guarantees:
        findings.append(one_group_finding(run))
    if min_bites != 0:
        # Whoever takes a run in which no fault bites takes one in which a load reaches nobody.
        findings += floor_findings(scenario, run)
    if run.late > LATE_SECONDS:
        detail = f"a step came {run.late:.1f}s late: this machine has too much to do for this run"
        findings.append(Finding(RUN, Verdict.UNKNOWN, detail))
    if run.is_cut_short:
        findings = [_without_haste(finding, NEEDS_THE_END | {"G8"}) for finding in findings]
        findings.append(Finding(RUN, Verdict.UNKNOWN, "it was interrupted before its end"))
    elif not run.complete:
        findings = [_without_haste(finding) for finding in findings]
        findings.append(_unfinished(scenario, run))
    verdict = worst(finding.verdict for finding in findings)
    return Judgement(verdict, tuple(findings), judgement.owed)


def _judge_broken_off(scenario: Scenario, run: RunRecord) -> Judgement:
    """It proves nothing; but what had gone wrong by then was wrong."""
    asked = [name for name in scenario.guarantees if name not in NEEDS_THE_END | {"G8"}]
    seen = judge(run.evidence, asked).findings
    findings = [finding for finding in seen if finding.verdict is Verdict.VIOLATED]
    findings.append(Finding(RUN, Verdict.UNKNOWN, f"it broke off: {run.broke_off}"))
    return Judgement(worst(finding.verdict for finding in findings), tuple(findings))


def _without_haste(finding: Finding, needing: frozenset[str] = NEEDS_THE_END) -> Finding:
    """A run that was cut short proves no loss: what was under way might have arrived."""
    if finding.guarantee in needing and finding.verdict is Verdict.VIOLATED:
        return replace(finding, verdict=Verdict.UNKNOWN)
    return finding


def _unfinished(scenario: Scenario, run: RunRecord) -> Finding:
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


def content_findings(run: RunRecord) -> list[Finding]:
    """What the receiving applications saw: payloads prove themselves (G4)."""
    if not run.mismatches:
        return []
    return [Finding("G4", Verdict.VIOLATED, f"{len(run.mismatches)} batches were not what was sent",
                    tuple(run.mismatches[:3]))]  # fmt: skip


def floor_findings(scenario: Scenario, run: RunRecord) -> list[Finding]:
    """Whether there was traffic to judge: real members may be kept from it by what no trace
    shows."""
    if scenario.workload and not run.delivered:
        return [Finding(RUN, Verdict.UNKNOWN, "nothing was delivered")]
    silent = sorted(
        {
            f"{source} to {dest}"
            for load in scenario.workload
            for source, dest in load.pairs()
            if (source, dest) not in run.reached
            and _lived_together(run, source, dest, load.start, load.end)
            and not (source == dest and "DONT_LOOPBACK" in load.flags)
        }
    )
    if not silent:
        return []
    detail = f"{len(silent)} pairs of the workload delivered nothing: traffic is below the floor"
    return [Finding(RUN, Verdict.UNKNOWN, detail, tuple(silent[:5]))]


def _lived_together(run: RunRecord, one: str, other: str, start: float, end: float) -> bool:
    """Whether both lived at some time while a load lasted."""
    lives = {
        name: [life for life in run.lives.values() if life.name == name] for name in (one, other)
    }
    return any(
        max(here.start, there.start, start) < min(here.end, there.end, end)
        for here in lives[one]
        for there in lives[other]
    )


def expectation_findings(scenario: Scenario, run: RunRecord) -> list[Finding]:
    """Whether what the scenario expects had happened in time (G8)."""
    return [
        _viewed(expect, run) if isinstance(expect, ExpectView) else _delivered(expect, run)
        for expect in scenario.expect
    ]


def unowed_findings(scenario: Scenario, evidence: Evidence) -> list[Finding]:
    """Where a file expects all to be delivered: loads that were never for some of whom it expects
    that, as their sender was alone, or in views without them."""
    dests = {
        name
        for expect in scenario.expect
        if isinstance(expect, Expect) and expect.count is None
        for name in expect.dests
    }
    if not dests or evidence.defects:
        return []
    found: dict[str, None] = {}
    for load in scenario.workload:
        if load.do != "multicast":
            continue
        start, end = (evidence.begin + time for time in (load.start, load.end))
        for unowed in unowed_multicasts(evidence, start, end):
            sender = unowed.sender.name
            missing = [name for name in unowed.missing if name in dests]
            if sender not in load.sources or not (
                missing or (unowed.is_alone and dests != {sender})
            ):
                continue
            what = f"{unowed.messages} multicasts of {sender} from t={load.start:g} on were"
            who = f"never for {', '.join(missing)}, who were not in its views"
            found[f"{what} {'sent while it was alone' if unowed.is_alone else who}"] = None
    return [Finding(RUN, Verdict.UNKNOWN, detail) for detail in found]


def _delivered(expect: Expect, run: RunRecord) -> Finding:
    late = []
    for pair, wanted in expect.wanted(run.sent_by_pair).items():
        reached = [count for time, count in run.reached.get(pair, []) if time <= expect.by]
        got = reached[-1] if reached else 0
        if got < wanted:
            late.append(f"{pair[1]} had {got} of {wanted} from {pair[0]} by t={expect.by:g}")
    if late:
        return Finding("G8", Verdict.VIOLATED, "not delivered in time", tuple(late[:3]))
    return Finding("G8", Verdict.HOLDS, f"delivered by t={expect.by:g}", ())


def _viewed(expect: ExpectView, run: RunRecord) -> Finding:
    living = living_at(run, expect.by)
    wanted = frozenset(living.get(name, f"{name}, which is down") for name in expect.view)
    seen = {name: view_at(run, living.get(name), expect.by) for name in expect.seen_by}
    return _one_view(seen, wanted, f"at t={expect.by:g}")


def one_group_finding(run: RunRecord) -> Finding:
    """At the end all who live are one group: they hold one view, and are its members (G8)."""
    living = living_at(run, run.seconds)
    seen = {name: view_at(run, label, run.seconds) for name, label in living.items()}
    return _one_view(seen, frozenset(living.values()), "at the end")


def living_at(run: RunRecord, time: float) -> dict[str, str]:
    """The incarnation of each member that lives at a time."""
    return {life.name: label for label, life in run.lives.items() if life.start <= time < life.end}


def view_at(run: RunRecord, label: str | None, time: float) -> ViewSeen | None:
    """The view that an incarnation holds at a time."""
    views = [view for view in run.views.get(label or "", ()) if view.time <= time]
    return views[-1] if views else None


def _one_view(seen: dict[str, ViewSeen | None], wanted: frozenset[str], when: str) -> Finding:
    """Whether all hold one view, of exactly those members."""
    ids = {(view.number, view.creator) if view is not None else None for view in seen.values()}
    if len(ids) <= 1 and all(
        view is not None and frozenset(view.members) == wanted for view in seen.values()
    ):
        return Finding("G8", Verdict.HOLDS, f"one view {when}", ())
    shown = sorted({_shown(view) for view in seen.values()})
    held = [
        f"{' '.join(name for name, view in seen.items() if _shown(view) == text)} {text}"
        for text in shown
    ]
    detail = f"not one view of {' '.join(sorted(wanted))} {when}"
    return Finding("G8", Verdict.VIOLATED, detail, tuple(held[:5]))


def _shown(view: ViewSeen | None) -> str:
    if view is None:
        return "without a view"
    return f"in view {view.number} by {view.creator} of {' '.join(view.members)}"


def write_run(outcome: Outcome, directory: Path) -> None:
    """A run directory: scenario, seed, versions, trace, verdict. TakenError where a run is."""
    traces = directory / TRACE
    try:
        traces.mkdir(parents=True)
    except FileExistsError:
        raise TakenError(f"{directory} holds the traces of another run") from None
    _keep_stack(outcome.scenario, directory)
    for name, content in outcome.files().items():
        (directory / name).write_bytes(content)
    (directory / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")
    (directory / "verdict.json").write_text(json.dumps(outcome.as_json(), indent=2) + "\n")


def _kept_text(scenario: Scenario) -> str:
    """A scenario as its run directory has it: a stack that is a file of its own is kept there."""
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
        "code": _code(),
    }


@cache
def _code() -> str:
    """A digest of the sources: between two commits the version of the package stays what it is."""
    digest = xxh3_64()
    for package in ("chaos", "node"):
        for place, source in _sources(files(f"stormcast.{package}"), package):
            digest.update(place.encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources(folder: Traversable, place: str) -> Iterator[tuple[str, Traversable]]:
    """What is run, and what it is set to; a scenario is kept with its run. The packages may lie in
    an archive."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name != "scenarios":
                yield from _sources(entry, f"{place}/{entry.name}")
        elif entry.name.endswith((".py", ".yaml")):
            yield f"{place}/{entry.name}", entry
