"""Findings, as verdict.json has them and as both judges sum them up."""

from __future__ import annotations

from math import inf

import pytest

from stormcast.findings import RUN, Finding, Verdict, worst, worst_by_guarantee
from stormcast.pipeline.findings import SPARK, THE_RUN, read_finding

LATE = Finding("G8", Verdict.VIOLATED, "not delivered in time", ("n0#1",), 2.0000004)


def test_the_worst_verdict_counts() -> None:
    assert worst([Verdict.UNKNOWN, Verdict.VIOLATED, Verdict.HOLDS]) is Verdict.VIOLATED
    assert worst([]) is Verdict.HOLDS


def test_each_guarantee_has_the_worst_verdict_on_it_and_the_run_has_none() -> None:
    findings = [
        LATE,
        Finding("G8", Verdict.HOLDS, "one view"),
        Finding("G1", Verdict.HOLDS, "no violation found"),
        Finding(RUN, Verdict.UNKNOWN, "nothing was sent"),
    ]
    assert worst_by_guarantee(findings) == {"G8": "violated", "G1": "holds"}


def test_a_finding_of_one_judge_does_not_say_whose_it_is() -> None:
    assert LATE.as_json() == {
        "guarantee": "G8",
        "verdict": "violated",
        "detail": "not delivered in time",
        "witness": ["n0#1"],
        "at": 2.0,
    }


@pytest.mark.parametrize("at", [None, inf])
def test_a_time_that_is_not_known_is_left_out(at: float | None) -> None:
    assert "at" not in Finding("G1", Verdict.HOLDS, "no violation found", at=at).as_json()


def test_a_finding_is_read_as_it_was_written() -> None:
    told = Finding("G2", Verdict.UNKNOWN, "its check crashed", at=1.5, by=THE_RUN)
    assert read_finding(told.as_json(), SPARK) == told
    assert read_finding(LATE.as_json(), SPARK).by == SPARK


def test_what_is_no_finding_is_read_as_a_doubt_about_the_run() -> None:
    assert read_finding({"verdict": "well"}, SPARK) == Finding(RUN, Verdict.UNKNOWN, "", by=SPARK)
