"""Verdicts on runs with guests: nothing holds that was not proven."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stormcast.chaos.guests.judging import Seen, judge_guests
from stormcast.chaos.guests.scenario import GuestScenario
from stormcast.chaos.guests.scenario_file import parse_guests
from stormcast.chaos.histories.judging import FaultWindow
from stormcast.chaos.histories.operations import History
from stormcast.chaos.oracles.verdict import Verdict
from tests.histories.clients import history

SCENARIO = parse_guests(
    """\
name: one
guests: {a: {command: serve, ready: {tcp: 80}}}
client: {command: c, model: set}
expect: {ready_within: 2s}
"""
)
KEPT = history(
    "0 invoke add 1", "0 ok add", "0 invoke add 2", "0 ok add", "0 invoke read", "0 ok read [1,2]"
)
LOST = history(
    "0 invoke add 1", "0 ok add", "0 invoke add 2", "0 ok add", "0 invoke read", "0 ok read [2]"
)


def seen(found: History = KEPT) -> Seen:
    """Operations from 1 s to 6 s; a fault from 2 s to 4 s; ready from 4.5 s on."""
    return Seen(
        history=found,
        seconds=7.0,
        windows=[FaultWindow(2.0, 4.0, "f1")],
        bites={"f1": 3},
        samples={"a": [(3.0, False), (4.5, True), (6.5, True)]},
    )


def verdict(told: Seen, scenario: GuestScenario = SCENARIO) -> tuple[Verdict, str]:
    judgement = judge_guests(scenario, told)
    worst = max(judgement.findings, key=lambda one: one.verdict)
    return judgement.verdict, worst.detail


def test_it_holds_where_a_fault_struck_and_all_is_there() -> None:
    assert verdict(seen())[0] is Verdict.HOLDS


def test_a_lost_element_is_a_violation_with_its_operations() -> None:
    judgement = judge_guests(SCENARIO, seen(LOST))
    assert judgement.verdict is Verdict.VIOLATED
    [found] = [one for one in judgement.findings if one.verdict is Verdict.VIOLATED]
    assert found.guarantee == "H2"
    assert found.witness


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"windows": []}, "no fault was done"),
        ({"bites": {"f1": 0}}, "fault f1 had no effect"),
        (
            {"windows": [FaultWindow(0.1, 0.2, "f1")], "samples": {"a": [(1.0, True)]}},
            "did not strike",
        ),
        ({"history": history()}, "printed no operation"),
        ({"doubts": ["a ended by itself with 3"]}, "ended by itself"),
        ({"samples": {"a": []}}, "nobody asked"),
        ({"stayed_down": frozenset({"a"})}, "killed for good"),
        ({"seconds": 3.0}, "after the end of the run"),
    ],
)
def test_what_proves_nothing_is_unknown(change: dict[str, object], said: str) -> None:
    judgement = judge_guests(SCENARIO, replace(seen(), **change))  # type: ignore[arg-type]
    assert judgement.verdict is Verdict.UNKNOWN
    assert said in " ".join(one.detail for one in judgement.findings)


def test_times_of_another_clock_prove_no_violation() -> None:
    assert verdict(replace(seen(LOST), seconds=3.0))[0] is Verdict.UNKNOWN


def test_a_doubt_takes_no_violation_back() -> None:
    assert verdict(replace(seen(LOST), doubts=["a ended by itself"]))[0] is Verdict.VIOLATED


def test_who_has_ended_by_itself_violates_nothing_by_that() -> None:
    told = replace(seen(), samples={"a": [(3.0, False), (6.5, False)]})
    assert verdict(told)[0] is Verdict.VIOLATED
    told.ended.add("a")
    told_now, detail = verdict(told)
    assert told_now is Verdict.UNKNOWN
    assert detail.endswith("; it had ended")


def test_who_is_late_violates_h5() -> None:
    late = replace(seen(), samples={"a": [(4.5, False), (6.5, False), (6.8, True)]})
    told, detail = verdict(late)
    assert told is Verdict.VIOLATED
    assert detail.startswith("a: not ready at 6.5s")
