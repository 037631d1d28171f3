"""The verdict on a run: the oracles' findings in its traces, and findings about the run itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from stormcast.chaos.language.scenario import Expect, ExpectView, Scenario
from stormcast.chaos.oracles.verdict import (
    RUN,
    Finding,
    Judgement,
    Verdict,
    death_findings,
    explained,
    judge,
    worst,
)
from stormcast.chaos.session.facts import name_of
from stormcast.chaos.session.record import RunRecord, ViewSeen
from stormcast.chaos.session.unowed import unowed_findings
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import STOP

NEEDS_THE_END: Final = frozenset({"G1", "A1", "V4", "L1", "C1"})
"""Guarantees that can only be judged of a run that came to its end. So can G5 where it speaks of
the end: a receive window may then hold messages behind a gap whose repair is under way."""
STANDSTILL_SECONDS: Final = 60.0
"""Without a delivery for so long, in a healed network, waiting messages are stuck."""
LATE_SECONDS: Final = 1.0
"""A run in which a step came later than this is not the run that the scenario describes."""


def judge_run(scenario: Scenario, run: RunRecord, min_bites: int | None = None) -> Judgement:
    """Judge a run: by the oracles, by its expectations, and by how it came to its end."""
    if run.broke_off:
        return _judge_broken_off(scenario, run)
    # G8 is judged here: no trace knows what a scenario expects, nor that a group is to be one at
    # the end.
    is_hoped = bool(scenario.expect or run.views)
    asked = [name for name in scenario.guarantees if name != "G8" or not is_hoped]
    judgement = judge(run.evidence, asked, budget=scenario.budget, min_bites=min_bites)
    findings = [*judgement.findings, *_own_findings(scenario, run)]
    if min_bites != 0:
        # With `min_bites` 0 a run may prove nothing: then a load may reach nobody, too.
        findings += floor_findings(scenario, run)
    if run.late > LATE_SECONDS:
        detail = f"a step came {run.late:.1f}s late: this machine has too much to do for this run"
        findings.append(Finding(RUN, Verdict.UNKNOWN, detail))
    findings = _in_view_of_the_end(findings, scenario, run)
    verdict = worst(finding.verdict for finding in findings)
    return Judgement(verdict, tuple(findings), judgement.owed)


def _own_findings(scenario: Scenario, run: RunRecord) -> list[Finding]:
    """Return the findings on what applications received and on what the scenario expects."""
    expected = zip(scenario.expect, expectation_findings(scenario, run), strict=True)
    findings = content_findings(run)
    findings += [_counted(run, finding, expect.by) for expect, finding in expected]
    findings += load_findings(run)
    findings += shortfall_findings(scenario, run)
    findings += unowed_findings(scenario, run)
    if run.views and "G8" in scenario.guarantees:
        findings.append(_counted(run, one_group_finding(run), run.seconds))
    return findings


def _counted(run: RunRecord, finding: Finding, by: float) -> Finding:
    """Return a finding that was counted from the traces: `unknown` where they are not whole, or a
    death explains it. `by`: the second of the run at which it was due."""
    if run.evidence.defects:
        detail = "; ".join(run.evidence.defects)
        return replace(finding, verdict=Verdict.UNKNOWN, detail=detail, witness=())
    return explained(run.evidence, finding, run.zero + by)


def _judge_broken_off(scenario: Scenario, run: RunRecord) -> Judgement:
    """Judge a run that broke off: it proves nothing, but a violation until then is one."""
    asked = [name for name in scenario.guarantees if name not in NEEDS_THE_END | {"G8"}]
    seen = judge(run.evidence, asked).findings
    findings = death_findings(run.evidence)
    findings += [
        finding
        for finding in seen
        if finding.verdict is Verdict.VIOLATED and not _needs_the_end(finding, run)
    ]
    findings.append(Finding(RUN, Verdict.UNKNOWN, f"it broke off: {run.broke_off}"))
    return Judgement(worst(finding.verdict for finding in findings), tuple(findings))


def _in_view_of_the_end(
    findings: list[Finding], scenario: Scenario, run: RunRecord
) -> list[Finding]:
    """Weaken the findings on a run that was cut short: what was under way might have arrived."""
    if run.complete and not run.is_cut_short:
        return findings
    findings = [
        replace(finding, verdict=Verdict.UNKNOWN)
        if finding.verdict is Verdict.VIOLATED and _needs_the_end(finding, run)
        else finding
        for finding in findings
    ]
    if run.is_cut_short:
        return [*findings, Finding(RUN, Verdict.UNKNOWN, "it was interrupted before its end")]
    return [*findings, _unfinished(scenario, run)]


def _needs_the_end(finding: Finding, run: RunRecord) -> bool:
    """Whether a violation may be one only because the run has no proper end."""
    if finding.guarantee == "G5":
        end = run.evidence.rig.end - run.evidence.begin
        return finding.at is not None and finding.at >= end
    return finding.guarantee in NEEDS_THE_END or (finding.guarantee == "G8" and run.is_cut_short)


def _unfinished(scenario: Scenario, run: RunRecord) -> Finding:
    """Return the finding on a run that did not come to rest: it stood still, or was too short."""
    if run.stalled_for > STANDSTILL_SECONDS and not run.evidence.defects:
        detail = f"messages wait, and none was delivered in the last {run.stalled_for:.1f}s"
        return _counted(run, Finding("G8", Verdict.VIOLATED, detail), run.seconds)
    if run.is_unsettled:
        return Finding(
            RUN,
            Verdict.UNKNOWN,
            "messages still arrived, or were to be repaired, when the run had to end: "
            "raise limits.settle",
        )
    return Finding(
        RUN,
        Verdict.UNKNOWN,
        f"the workload did not end within {scenario.limits.run:g}s: "
        "raise limits.run or lower the load",
        run.unsent[:5],
    )


def content_findings(run: RunRecord) -> list[Finding]:
    """Return the finding on payloads that receiving applications did not recognise (G4)."""
    if not run.mismatches:
        return []
    detail = f"{len(run.mismatches)} batches were not what was sent"
    return [Finding("G4", Verdict.VIOLATED, detail, tuple(run.mismatches[:3]))]


def load_findings(run: RunRecord) -> list[Finding]:
    """Return a doubt where a load ended before all of it was offered: less was tried than the
    scenario asks for."""
    if not run.load_errors:
        return []
    detail = "a load ended by an error, before all of it was offered"
    return [Finding(RUN, Verdict.UNKNOWN, detail, run.load_errors[:5])]


def shortfall_findings(scenario: Scenario, run: RunRecord) -> list[Finding]:
    """Return a doubt where a member offered less than its loads say, and lives: whatever kept it
    from that, less was tried than the scenario asks for. Of a member that was killed nobody knows
    what it offered last."""
    evidence = run.evidence
    if not run.complete or run.is_cut_short or evidence.defects:
        return []
    asked: Counter[tuple[str, str | None]] = Counter()
    for load in scenario.workload:
        if load.do == "multicast":
            asked.update({(source, None): load.count for source in load.sources})
        else:
            asked.update(dict.fromkeys(load.pairs(), load.count))
    offered: Counter[tuple[str, str | None]] = Counter()
    # Of several incarnations of one member each has a name of its own.
    names = {member.short: run.lives[member.label].name for member in evidence.members.values()}
    for (source, to), outgoing in evidence.application.outgoing.items():
        if outgoing.offered is not None and (to == GROUP or to in names):
            new = outgoing.offered.hi - run.offered_before.get((source, to), 0)
            offered[names[source], names.get(to)] += new
    ended = [member for member in evidence.members.values() if not member.lives]
    living = {None, *(names[one.short] for one in evidence.members.values() if one.lives)}
    killed = {names[member.short] for member in ended if member.events[-1].kind != STOP}
    never = {name for pair in asked for name in pair if name not in (None, *names.values())}
    short = [
        f"{source} offered {offered[source, dest]} of {count} messages to {dest or 'the group'}"
        for (source, dest), count in asked.items()
        if {source, dest} <= living | never
        and source not in killed
        and offered[source, dest] < count
    ]
    if not short:
        return []
    detail = "less was offered than the workload says"
    return [Finding(RUN, Verdict.UNKNOWN, detail, tuple(short[:5]))]


def floor_findings(scenario: Scenario, run: RunRecord) -> list[Finding]:
    """Return a doubt where a load, or a pair of it, delivered nothing: real members may be kept
    from sending by causes that no trace shows."""
    if scenario.workload and not run.delivered:
        return [Finding(RUN, Verdict.UNKNOWN, "nothing was delivered")]
    last = _last_sent(run)
    silent = sorted(
        {
            f"{source} to {dest}"
            for load in scenario.workload
            for source, dest in load.pairs()
            if (source, dest) not in run.reached
            and _lived_together(
                run,
                source,
                dest,
                load.start,
                # What is late, or kept waiting, leaves after the end that the scenario foresees.
                max(load.end, last.get((source, None if load.do == "multicast" else dest), 0.0)),
            )
            and not (source == dest and "DONT_LOOPBACK" in load.flags)
        }
    )
    if not silent:
        return []
    detail = f"{len(silent)} pairs of the workload delivered nothing: traffic is below the floor"
    return [Finding(RUN, Verdict.UNKNOWN, detail, tuple(silent[:5]))]


def _last_sent(run: RunRecord) -> dict[tuple[str, str | None], float]:
    """Return when each member sent last to each dest; no dest: the group."""
    evidence = run.evidence
    names = {member.short: name_of(member) for member in evidence.members.values()}
    last: dict[tuple[str, str | None], float] = {}
    for (source, to), outgoing in evidence.application.outgoing.items():
        if outgoing.events and (to == GROUP or to in names):
            pair = names[source], names.get(to)
            at = outgoing.events[-1].time - run.zero
            last[pair] = max(last.get(pair, 0.0), at)
    return last


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
    """Return one finding on each expectation of the scenario: was it met in time (G8)."""
    return [
        _viewed(expect, run) if isinstance(expect, ExpectView) else _delivered(expect, run)
        for expect in scenario.expect
    ]


def _delivered(expect: Expect, run: RunRecord) -> Finding:
    late = []
    pairs = expect.wanted(run.sent_by_pair)
    if not pairs:
        detail = f"nobody sent what was expected by t={expect.by:g}"
        return Finding("G8", Verdict.UNKNOWN, detail)
    arrived = run.reached if expect.count is not None else run.reached_of_sent
    for pair, wanted in pairs.items():
        reached = [count for time, count in arrived.get(pair, []) if time <= expect.by]
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
    """Judge whether all members that live at the end hold one view of just themselves (G8)."""
    living = living_at(run, run.seconds)
    seen = {name: view_at(run, label, run.seconds) for name, label in living.items()}
    return _one_view(seen, frozenset(living.values()), "at the end")


def living_at(run: RunRecord, time: float) -> dict[str, str]:
    """Return the incarnation of each member that lives at a time, by name."""
    return {life.name: label for label, life in run.lives.items() if life.start <= time < life.end}


def view_at(run: RunRecord, label: str | None, time: float) -> ViewSeen | None:
    """Return the view that an incarnation holds at a time; None before the first."""
    views = [view for view in run.views.get(label or "", ()) if view.time <= time]
    return views[-1] if views else None


def _one_view(seen: dict[str, ViewSeen | None], wanted: frozenset[str], when: str) -> Finding:
    """Judge whether all hold one view, of exactly the wanted members."""
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
