"""Every oracle is seen failing on what it is for, with its witness, and on nothing else."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import CHECKS, Judgement, Verdict, judge
from tests.oracles.corpus import Case
from tests.oracles.sentence_corpus import CASES

BROKEN = [case for case in CASES.values() if case.violates]
SOUND = [case for case in CASES.values() if not case.violates]


def judged(case: Case) -> Judgement:
    return judge(Evidence.from_blocks(case.blocks, xxh3_64_intdigest), budget=case.budget)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_broken_trace_violates_what_it_breaks_and_no_more(case: Case) -> None:
    judgement = judged(case)

    assert judgement.verdict is Verdict.VIOLATED
    violated = {f.guarantee: f.detail for f in judgement.findings if f.verdict is Verdict.VIOLATED}
    assert set(violated) == set(case.violates), violated
    assert all(finding.verdict is not Verdict.UNKNOWN for finding in judgement.findings)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_violation_shows_the_few_events_that_prove_it(case: Case) -> None:
    finding = judged(case).of(case.violates[0])

    assert case.witness is None or finding.witness == case.witness, finding.detail
    assert 1 <= len(finding.witness) <= 4


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_in_a_sound_trace_everything_holds(case: Case) -> None:
    judgement = judged(case)

    assert judgement.verdict is Verdict.HOLDS, judgement.findings
    assert {finding.guarantee for finding in judgement.findings} == set(CHECKS)


@pytest.mark.parametrize("guarantee", CHECKS)
def test_every_check_is_seen_failing_more_than_once(guarantee: str) -> None:
    assert sum(guarantee in case.violates for case in BROKEN) >= 3


def test_the_order_in_which_traces_are_read_does_not_matter() -> None:
    for case in CASES.values():
        backwards = dict(reversed(case.blocks.items()))
        evidence = Evidence.from_blocks(backwards.items(), xxh3_64_intdigest)
        assert judge(evidence, budget=case.budget) == judged(case), case.name
