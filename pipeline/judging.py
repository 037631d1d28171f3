"""Makes the judgement of a run from what the checks found: a finding for each guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from stormcast.findings import RUN, Finding, Verdict
from stormcast.pipeline.checks import g5_bounded
from stormcast.pipeline.findings import SPARK, THE_RUN
from stormcast.pipeline.guarantees import ASKS_WHO_STAYS, BUDGET, CHECKS, IN_TIME, NEEDS_THE_END
from stormcast.pipeline.judgement import Death, Figures, Judgement
from stormcast.pipeline.questions import Question
from stormcast.pipeline.words import EPSILON

MOST_DEFECTS: Final = 5
"""The most defects that a finding names one by one."""


class First(NamedTuple):
    """The earliest violation of a guarantee in a run."""

    detail: str
    witness: tuple[str, ...]
    number: int
    time: float
    """The time of the violation, on the clock of the run's traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResults:
    """The results of all checks of some runs."""

    firsts: Mapping[tuple[str, str], First]
    """By run and guarantee."""
    crashed: Mapping[tuple[str, str], str]
    """By guarantee and run: why its check crashed."""
    untold: Mapping[str, str]
    """By run: why its violations cannot be told."""

    def finding(self, question: Question, guarantee: str, begin: float) -> Finding:
        """Return the finding on a guarantee: its earliest violation, if there is one."""
        is_asked = guarantee in (question.guarantees or CHECKS) or guarantee == IN_TIME
        names = [guarantee] if is_asked else []
        if guarantee == "C1" and question.budget is not None:
            names.append(BUDGET)
        if question.run in self.untold:
            why = f"its violations cannot be told: {self.untold[question.run]}"
            return Finding(guarantee, Verdict.UNKNOWN, why)
        keys = [(question.run, name) for name in names]
        if found := [self.firsts[key] for key in keys if key in self.firsts]:
            first = found[0]
            return Finding(
                guarantee, Verdict.VIOLATED, first.detail, first.witness, at=first.time - begin
            )
        for name in names:
            if (name, question.run) in self.crashed:
                why = f"its check crashed: {self.crashed[name, question.run]}"
                return Finding(guarantee, Verdict.UNKNOWN, why)
        return Finding(guarantee, Verdict.HOLDS, "no violation found")


def asked_of(question: Question) -> list[str]:
    """Return the guarantees that a question is about."""
    asked = list(question.guarantees if question.guarantees is not None else CHECKS)
    if question.budget is not None and "C1" not in asked:
        asked.append("C1")
    return asked


def judgement_of(
    question: Question, results: CheckResults, known: Figures, defects: Sequence[str]
) -> Judgement:
    """Return the judgement of one run, of which this is known, or which has these defects."""
    firsts, asked = results.firsts, asked_of(question)
    judged = [name for name in asked if name in CHECKS]
    if question.expected is not None and (
        IN_TIME in asked or (question.run, IN_TIME) in firsts or question.expected.awaited
    ):
        judged.append(IN_TIME)
    if defects:
        detail = _listed(defects)
        findings = [Finding(name, Verdict.UNKNOWN, detail) for name in judged or [RUN]]
    else:
        findings = [results.finding(question, name, known.begin) for name in judged]
        findings += _doubts(question, known)
    findings = _weakened(question, findings, known)
    findings += _own_findings(question, findings)
    findings += _unchecked(asked, findings)
    named = {finding.guarantee for finding in findings}
    counts = {
        name: firsts[question.run, name].number for name in judged if (question.run, name) in firsts
    }
    return Judgement(
        question=question,
        findings=tuple(one if one.by else replace(one, by=SPARK) for one in findings),
        figures=known,
        violations=counts,
        not_judged=tuple(name for name in asked if name not in named),
    )


def _listed(defects: Sequence[str]) -> str:
    more = len(defects) - MOST_DEFECTS
    shown = "; ".join(defects[:MOST_DEFECTS])
    return f"{shown}; and {more} more" if more > 0 else shown


def _weakened(question: Question, findings: list[Finding], known: Figures) -> list[Finding]:
    """Return the findings, of which deaths and an early end leave some unknown, behind those about
    the deaths."""
    findings = [
        *(Finding(RUN, Verdict.UNKNOWN, one.told, at=one.at) for one in known.deaths),
        *(_explained(finding, known.deaths) for finding in findings),
    ]
    if not question.is_complete:
        findings = [_unproven(one) if _needs_the_end(one, known) else one for one in findings]
    if question.is_interrupted:
        findings = [_unproven(one) if one.guarantee == IN_TIME else one for one in findings]
    return findings


def _explained(finding: Finding, deaths: Sequence[Death]) -> Finding:
    """Weaken a violation to unknown that a death before it may have caused."""
    if finding.verdict is Verdict.VIOLATED and finding.guarantee in ASKS_WHO_STAYS:
        for death in deaths:
            if finding.at is None or finding.at >= death.at - EPSILON:
                detail = f"{death.told}: {finding.detail}"
                return replace(finding, verdict=Verdict.UNKNOWN, detail=detail)
    return finding


def _doubts(question: Question, figures: Figures) -> list[Finding]:
    """Return findings because of which even a run without violations proves nothing."""
    found = []
    if not figures.has_sent:
        found.append(Finding(RUN, Verdict.UNKNOWN, "nothing was sent"))
    for fault, one in figures.bites.items():
        if one.bites < question.min_bites:
            detail = f"fault {fault} ({one.kind}) did not bite: {one.bites} times"
            found.append(Finding(RUN, Verdict.UNKNOWN, detail))
    for fault, kind in figures.uncounted.items():
        detail = f"nothing says how often fault {fault} ({kind}) had an effect"
        found.append(Finding(RUN, Verdict.UNKNOWN, detail))
    return found


def _unchecked(asked: Sequence[str], findings: Sequence[Finding]) -> list[Finding]:
    """Return findings about guarantees that were asked for and that nobody has a check for."""
    named = {finding.guarantee for finding in findings}
    return [
        Finding(name, Verdict.UNKNOWN, "no check for it")
        for name in asked
        if name not in CHECKS and name != IN_TIME and name not in named
    ]


def _needs_the_end(finding: Finding, figures: Figures) -> bool:
    """Whether a violation may be one only because the run has no proper end."""
    if finding.guarantee == g5_bounded.GUARANTEE:
        return finding.at is not None and finding.at >= figures.seconds
    return finding.guarantee in NEEDS_THE_END


def _unproven(finding: Finding) -> Finding:
    """Weaken a violation to unknown: what did not happen any more might have mended it."""
    if finding.verdict is Verdict.VIOLATED:
        return replace(finding, verdict=Verdict.UNKNOWN)
    return finding


def _own_findings(question: Question, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings of the run's oracles that Spark cannot make, and findings about
    disagreements.

    A disagreement makes the run at least unknown, because one of the two judges is wrong.
    """
    judged = {*CHECKS, *([IN_TIME] if question.expected is not None else ())}
    by_guarantee = {finding.guarantee: finding.verdict for finding in findings}
    said = {finding.detail for finding in findings}
    own = []
    for one in question.own:
        if one.guarantee == RUN or one.guarantee not in judged:
            if one.guarantee != RUN or one.detail not in said:
                own.append(one)
        elif one.verdict > by_guarantee.get(one.guarantee, Verdict.HOLDS):
            detail = f"{one.guarantee} was {one.verdict} when it ran, and Spark says otherwise"
            detail = f"{detail}: {one.detail}"
            own.append(Finding(RUN, Verdict.UNKNOWN, detail, one.witness, by=THE_RUN))
    return own
