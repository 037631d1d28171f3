"""Spark and the in-process oracles judge the same traces alike, sound ones and broken ones."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.session.facts import facts_of
from stormcast.findings import Finding
from stormcast.pipeline.judgement import Judgement
from tests.oracles.corpus import Case
from tests.oracles.sentence_corpus import CASES
from tests.oracles.test_corpus import judged

pytestmark = pytest.mark.slow

JUDGED = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "A1", "V1", "V2", "V3", "V4", "C1", "L1", "S1")
BROKEN = [case for case in CASES.values() if set(case.violates) & set(JUDGED)]


def _violated(judgement: Judgement) -> dict[str, Finding]:
    return {
        finding.guarantee: finding
        for finding in judgement.findings
        if str(finding.verdict) == "violated"
    }


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_both_find_the_same_guarantees_broken(case: Case, judgements: dict[str, Judgement]) -> None:
    judgement = judgements[case.name]

    violated = _violated(judgement)
    assert set(violated) == set(case.violates) & set(JUDGED), violated
    assert {finding.guarantee for finding in judgement.findings} == set(JUDGED)
    assert all(str(finding.verdict) != "unknown" for finding in judgement.findings)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_both_count_the_same_messages(case: Case, judgements: dict[str, Judgement]) -> None:
    """A message in pieces is one."""
    facts = facts_of(Evidence.from_blocks(case.blocks, xxh3_64_intdigest))
    figures = judgements[case.name].figures
    assert (figures.messages, figures.delivered) == (facts.sent, facts.delivered)


@pytest.mark.parametrize(
    "case",
    [case for case in BROKEN if case.violates[0] in JUDGED],
    ids=lambda case: case.name,
)
def test_both_show_the_same_few_events(case: Case, judgements: dict[str, Judgement]) -> None:
    guarantee = case.violates[0]
    witness = judged(case).of(guarantee).witness
    assert _violated(judgements[case.name])[guarantee].witness == witness


def test_there_are_enough_broken_traces_for_each_check() -> None:
    assert len(BROKEN) >= 30
    for guarantee in JUDGED:
        assert sum(guarantee in case.violates for case in BROKEN) >= 3, guarantee


def test_a_violation_is_counted_and_has_a_member_and_a_position(
    judgements: dict[str, Judgement],
) -> None:
    judgement = judgements["a_batch_is_lost"]

    assert judgement.violations == {"G1": 1}
    assert judgement.as_json()["guarantees"]["G1"] == "violated"
