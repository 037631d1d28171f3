"""The verdict on evidence: each guarantee asked for is judged by itself, and the worst counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from stormcast.chaos.oracles import (
    a1_agreement,
    c1_control_traffic,
    g1_no_loss,
    g2_once,
    g3_fifo,
    g4_intact,
    g5_bounded,
    g6_purge_safety,
    g7_connections,
    l1_liveness,
    s1_unread,
    v_views,
)
from stormcast.chaos.oracles.c1_control_traffic import Budget
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.g4_intact import Payloads
from stormcast.chaos.oracles.history import EPSILON, Violation
from stormcast.chaos.oracles.owed import Owed, owed_by
from stormcast.chaos.oracles.witness import describe
from stormcast.findings import RUN, Finding, Verdict, worst

__all__ = ["CHECKS", "RUN", "Budget", "Finding", "Judgement", "Verdict", "judge", "worst"]

Check = Callable[[Evidence], Iterator[Violation]]

CHECKS: Final[dict[str, Check]] = {
    "G1": g1_no_loss.violations,
    "G2": g2_once.violations,
    "G3": g3_fifo.violations,
    "G4": g4_intact.violations,
    "G5": g5_bounded.violations,
    "G6": g6_purge_safety.violations,
    "G7": g7_connections.violations,
    "A1": a1_agreement.violations,
    "V1": v_views.one_list,
    "V2": v_views.own_views,
    "V3": v_views.growing_ids,
    "V4": v_views.one_view,
    "C1": c1_control_traffic.violations,
    "L1": l1_liveness.violations,
    "S1": s1_unread.violations,
}
ASKS_WHO_STAYS: Final = frozenset({"G1", "G8", "A1", "V4", "C1", "L1"})
"""Guarantees that speak of members that stay, and of what is due in time or at the end of a run. A
member that dies unforeseen may leave the others no time for it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The findings of a run, one per guarantee and one per doubt about the run, and the worst."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    owed: Owed | None = None
    """Counts of the messages that had to be delivered, and of those that were; None where the
    traces prove nothing."""

    def of(self, guarantee: str) -> Finding:
        """Return the finding on one guarantee."""
        return next(finding for finding in self.findings if finding.guarantee == guarantee)


def judge(
    evidence: Evidence,
    guarantees: Iterable[str] = tuple(CHECKS),
    *,
    budget: Budget | None = None,
    payloads: Payloads | None = None,
    min_bites: int | None = None,
) -> Judgement:
    """Judge the guarantees, and whether the run proves anything.

    A budget is judged under C1 even where C1 itself is not asked for. A fault that had fewer than
    `min_bites` bites (1 unless said otherwise) leaves the run unknown.
    """
    asked = dict.fromkeys(guarantees)
    if budget is not None:
        asked["C1"] = None
    if evidence.defects:
        detail = "; ".join(evidence.defects)
        findings = [Finding(guarantee, Verdict.UNKNOWN, detail) for guarantee in asked or [RUN]]
    else:
        checks = _checks(set(guarantees), budget, payloads)
        findings = [_judge_one(evidence, guarantee, checks.get(guarantee)) for guarantee in asked]
        findings += _doubts(evidence, 1 if min_bites is None else min_bites)
    findings = [*death_findings(evidence), *(explained(evidence, one) for one in findings)]
    owed = None
    if not evidence.defects:
        # With an alarm G1 may hold although messages are missing: then they are counted.
        is_all_there = not evidence.groups.alarms and any(
            finding.guarantee == "G1" and finding.verdict is Verdict.HOLDS for finding in findings
        )
        owed = owed_by(evidence, is_all_there=is_all_there)
    return Judgement(worst(finding.verdict for finding in findings), tuple(findings), owed)


def death_findings(evidence: Evidence) -> list[Finding]:
    """Return a doubt for each member that died without an order: what was played is not what the
    scenario says."""
    return [
        Finding(RUN, Verdict.UNKNOWN, death.tell(evidence.begin), at=death.time - evidence.begin)
        for death in evidence.rig.deaths
    ]


def explained(evidence: Evidence, finding: Finding, by: float | None = None) -> Finding:
    """Return a finding as `unknown` if it is a violation that a death may have caused: one of who
    stays and of what is due in time, not from before the death. `by`: when something was due, on
    the clock of the traces, where the finding itself has no time."""
    if finding.verdict is not Verdict.VIOLATED or finding.guarantee not in ASKS_WHO_STAYS:
        return finding
    if by is None and finding.at is not None:
        by = evidence.begin + finding.at
    for death in evidence.rig.deaths:
        if by is None or by >= death.time - EPSILON:
            detail = f"{death.tell(evidence.begin)}: {finding.detail}"
            return replace(finding, verdict=Verdict.UNKNOWN, detail=detail)
    return finding


def _checks(asked: set[str], budget: Budget | None, payloads: Payloads | None) -> dict[str, Check]:
    """Return the checks, with the scenario's payloads and budget bound to those that use them."""
    checks = dict(CHECKS)
    if payloads is not None:
        checks["G4"] = partial(g4_intact.violations, payloads=payloads)
    if budget is not None:
        promised = CHECKS["C1"] if "C1" in asked else None
        checks["C1"] = partial(_promised_and_budgeted, promised, budget)
    return checks


def _promised_and_budgeted(
    promised: Check | None, budget: Budget, evidence: Evidence
) -> Iterator[Violation]:
    if promised is not None:
        yield from promised(evidence)
    yield from c1_control_traffic.over_budget(evidence, budget)


def _judge_one(evidence: Evidence, guarantee: str, check: Check | None) -> Finding:
    """Run one check, and make a finding of the earliest violation."""
    if check is None:
        return Finding(guarantee, Verdict.UNKNOWN, "no check for it")
    try:
        first = min(check(evidence), key=lambda violation: violation.time, default=None)
    except Exception as error:  # noqa: BLE001 a crashed check proves nothing, whatever crashed it
        return Finding(guarantee, Verdict.UNKNOWN, f"its check crashed: {error!r}")
    if first is None:
        return Finding(guarantee, Verdict.HOLDS, "no violation found")
    witness = tuple(describe(evidence, member, event) for member, event in first.witness)
    at = first.time - evidence.begin
    return Finding(guarantee, Verdict.VIOLATED, first.detail, witness, at)


def _doubts(evidence: Evidence, min_bites: int) -> Iterator[Finding]:
    """Yield the reasons why a run without violations still proves nothing."""
    if not evidence.messages_sent:
        yield Finding(RUN, Verdict.UNKNOWN, "nothing was sent")
    for one in evidence.rig.probes:
        if one.bites < min_bites:
            yield Finding(
                RUN,
                Verdict.UNKNOWN,
                f"fault {one.fault} ({one.kind}) did not bite: {one.bites} times",
            )
    for fault, kind in evidence.rig.uncounted.items():
        yield Finding(
            RUN, Verdict.UNKNOWN, f"nothing says how often fault {fault} ({kind}) had an effect"
        )
