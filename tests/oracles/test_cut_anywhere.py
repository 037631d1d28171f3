"""A run that is cut into chapters anywhere is judged as the whole is: nothing is missed because its
past is told by a prologue, and nothing is blamed for it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from stormcast.chaos.oracles.verdict import Judgement, Verdict
from tests.oracles.corpus import Case
from tests.oracles.cut import chapters_of, moments_of
from tests.oracles.sentence_corpus import CASES

ROUNDS: Final = 4
"""How often each run is cut anew at up to four moments, besides once at each of its moments."""

# What docs/soak.md says that chapters do not judge as a whole run.
TOLD_AS: Final = {
    "a_message_that_was_given_up_in_the_middle_leaves_all_the_same": {"G2": {"G4"}},
    "what_is_lost_behind_what_is_handed_over_twice": {"G2": {"G4"}},
    "a_message_is_handed_over_again": {"G2": {"G4"}},
    "a_message_in_pieces_is_handed_over_again": {"G2": {"G3", "G4"}},
    "an_old_connection_delivers_after_the_ids_wrapped": {"G7": {"G4", "G7"}},
    "without_connection_ids_an_old_message_comes_up_late": {"G7": {"G4"}},
}
"""Messages of an earlier chapter, or of a connection that ended in it, that come up again: told, by
another name."""
NOT_TOLD: Final = {"credits_are_asked_for_by_a_connection_that_is_gone": {"C1"}}
"""Questions about a connection that ended in an earlier chapter."""
UNEXCUSED: Final = {
    "an_alarm_after_a_fault_has_a_cause": {"G1"},
    "an_alarm_after_a_test_protocol_took_something_has_a_cause": {"G1"},
    "an_alarm_after_a_view_left_somebody_out_has_a_cause": {"G1"},
}
"""All that a fault struck was there at the moment of rest, so it excuses no later alarm."""


def cuts_of(case: Case) -> Iterator[list[float]]:
    moments, dice = moments_of(case.blocks), Random(case.name)
    yield from ([moment] for moment in moments)
    for _round in range(ROUNDS):
        yield sorted(dice.choice(moments) for _ in range(dice.randint(2, 4)))


def expected(case: Case, found: set[str]) -> set[str]:
    """What chapters show of a run: what the whole shows, or that by the names that are known."""
    known = {*TOLD_AS, *NOT_TOLD, *UNEXCUSED}
    if case.name not in known or found == set(case.violates):
        return set(case.violates)
    renamed = TOLD_AS.get(case.name, {})
    as_told = {name for each in case.violates for name in renamed.get(each, {each})}
    return (as_told - NOT_TOLD.get(case.name, set())) | UNEXCUSED.get(case.name, set())


def sends_unnumbered(case: Case) -> bool:
    """Such a message may come late, or again, whenever it was sent; storms send none."""
    return "unnumbered" in case.name or "without_a_number" in case.name


def violated(judgement: Judgement) -> dict[str, str]:
    """The details of what is violated, by guarantee."""
    findings = judgement.findings
    return {one.guarantee: one.detail for one in findings if one.verdict is Verdict.VIOLATED}


@pytest.mark.parametrize(
    "case", [one for one in CASES.values() if not sends_unnumbered(one)], ids=lambda case: case.name
)
def test_a_run_in_chapters_is_judged_as_the_whole(case: Case) -> None:
    for cuts in cuts_of(case):
        chapters = [violated(one.judgement) for one in chapters_of(case.blocks, cuts, case.budget)]
        found = {name for chapter in chapters for name in chapter}
        assert found == expected(case, found), (cuts, chapters)


@pytest.mark.parametrize("name", [*TOLD_AS, *NOT_TOLD, *UNEXCUSED])
def test_what_is_known_to_be_judged_otherwise_is(name: str) -> None:
    """Else it is known no more, and must be listed no longer."""
    case = CASES[name]
    cuts = ([moment] for moment in moments_of(case.blocks))
    found = [
        {name for chapter in chapters_of(case.blocks, one) for name in violated(chapter.judgement)}
        for one in cuts
    ]
    assert any(one != set(case.violates) for one in found)


def test_most_runs_are_cut() -> None:
    """Else the test above would say nothing."""
    cut = sum(
        any(len(list(chapters_of(case.blocks, cuts))) > 1 for cuts in cuts_of(case))
        for case in CASES.values()
    )
    assert cut > len(CASES) * 0.5
