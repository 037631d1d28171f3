"""What a judgement makes of the results of checks. No Spark is needed for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stormcast.findings import RUN, Verdict
from stormcast.pipeline.judgement import Death, Figures, Probe
from stormcast.pipeline.judging import CheckResults, First, judgement_of
from stormcast.pipeline.questions import Question

QUESTION = Question(run="run", traces=Path("traces"), guarantees=("G1", "G2"))
SENT = Figures(has_sent=True, begin=10.0, seconds=60.0, bites={})
LOST = First("5 was lost", ("sent 5",), 3, 12.5)


def results(
    firsts: dict[tuple[str, str], First] | None = None,
    crashed: dict[tuple[str, str], str] | None = None,
    untold: dict[str, str] | None = None,
) -> CheckResults:
    return CheckResults(firsts=firsts or {}, crashed=crashed or {}, untold=untold or {})


def test_the_first_violation_is_told_with_its_time_in_the_run() -> None:
    judgement = judgement_of(QUESTION, results({("run", "G1"): LOST}), SENT, ())

    first, second = judgement.findings
    assert (first.verdict, first.detail, first.at) == (Verdict.VIOLATED, "5 was lost", 2.5)
    assert second.verdict is Verdict.HOLDS
    assert judgement.violations == {"G1": 3}


def test_a_crash_a_defect_or_a_fault_that_did_not_bite_proves_nothing() -> None:
    crash = judgement_of(QUESTION, results(crashed={("G2", "run"): "overflow"}), SENT, ())
    untold = judgement_of(QUESTION, results(untold={"run": "overflow"}), SENT, ())
    defect = judgement_of(QUESTION, results(), SENT, ("a gap",))
    dull = replace(SENT, bites={"f1": Probe("loss", 0)})
    no_bite = judgement_of(replace(QUESTION, min_bites=1), results(), dull, ())

    assert [str(one.verdict) for one in crash.findings] == ["holds", "unknown"]
    assert [str(one.verdict) for one in untold.findings] == ["unknown", "unknown"]
    assert [one.detail for one in defect.findings] == ["a gap", "a gap"]
    assert [one.guarantee for one in no_bite.findings if not one.holds] == [RUN]


def test_a_death_or_an_early_end_before_a_violation_may_explain_it() -> None:
    found = results({("run", "G1"): LOST, ("run", "G2"): LOST})
    dead = replace(SENT, deaths=(Death(1.0, "n1 died"),))

    of_death = judgement_of(QUESTION, found, dead, ())
    of_end = judgement_of(replace(QUESTION, is_complete=False), found, SENT, ())

    told = [(one.guarantee, str(one.verdict)) for one in of_death.findings]
    assert told == [(RUN, "unknown"), ("G1", "unknown"), ("G2", "violated")]
    told = [(one.guarantee, str(one.verdict)) for one in of_end.findings]
    assert told == [("G1", "unknown"), ("G2", "violated")]
