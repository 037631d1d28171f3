"""The flaw museum: each flaw shows itself where it is said to, and is gone where it was mended."""

from __future__ import annotations

from dataclasses import fields, replace
from importlib.resources import files

import pytest

from chaos.cluster import GENERATIONS
from chaos.museum import EXHIBITS, Exhibit, Shown, exhibit_scenario, tour
from chaos.oracles.verdict import Verdict
from chaos.runner import run_scenario
from node.protocols.unicast import Historical

BY_NAME = {exhibit.name: exhibit for exhibit in EXHIBITS}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_a_flaw_breaks_its_guarantee_and_its_fix_holds(exhibit: Exhibit, seed: int) -> None:
    (shown,) = tour((exhibit,), seed)
    finding = shown.flawed.judgement.of(exhibit.guarantee)
    assert finding.verdict is Verdict.VIOLATED
    assert exhibit.witness in " ".join((finding.detail, *finding.witness))
    assert finding.witness
    assert shown.flawed.verdict is Verdict.VIOLATED
    assert shown.fixed.verdict is Verdict.HOLDS, shown.fixed.judgement.findings
    assert all(shown.flawed.run.bites.values())
    assert all(shown.fixed.run.bites.values())
    assert shown.is_as_described


def test_every_exhibit_has_its_file_and_every_file_its_exhibit() -> None:
    folder = files("chaos").joinpath("scenarios", "museum")
    there = {entry.name.removesuffix(".yaml") for entry in folder.iterdir()}
    assert there == set(BY_NAME)
    assert len(BY_NAME) == len(EXHIBITS)


def test_every_historical_flaw_is_on_show() -> None:
    shown = {key for exhibit in EXHIBITS for key in exhibit.flawed if key != "unicast"}
    assert shown == {field.name for field in fields(Historical)}


def test_every_generation_is_on_show_but_the_last() -> None:
    """UNICAST4 is UNICAST3 with a fixed window: it brought no flaw of its own into the notes."""
    shown = {side["unicast"] for one in EXHIBITS for side in (one.flawed, one.fixed)}
    assert shown == set(GENERATIONS) - {"UNICAST4"}


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_both_sides_of_an_exhibit_differ_in_their_protocol_only(exhibit: Exhibit) -> None:
    flawed, fixed = (exhibit_scenario(exhibit, side) for side in (exhibit.flawed, exhibit.fixed))
    assert flawed != fixed
    bare = [
        replace(side, cluster=replace(side.cluster, unicast=None, historical=()))
        for side in (flawed, fixed)
    ]
    assert bare[0] == bare[1]
    assert not fixed.cluster.historical
    assert flawed.timeline
    assert exhibit.guarantee in flawed.guarantees


@pytest.mark.parametrize(
    "exhibit",
    [exhibit for exhibit in EXHIBITS if len(exhibit.flawed) > 1],
    ids=lambda exhibit: exhibit.name,
)
def test_a_flaw_is_in_the_setting_not_in_the_generation(exhibit: Exhibit) -> None:
    """The generation that had the flaw, without it: the guarantee of the exhibit holds."""
    mended = exhibit_scenario(exhibit, {"unicast": exhibit.flawed["unicast"]})
    outcome = run_scenario(mended, 1)
    assert outcome.judgement.of(exhibit.guarantee).verdict is Verdict.HOLDS


def test_an_exhibit_that_shows_nothing_is_noticed() -> None:
    """A flaw that does not show, a witness that is another, a fix that does not hold."""
    exhibit = BY_NAME["last-message-dropped"]
    (good,) = tour((exhibit,))
    assert good.is_as_described
    assert not Shown(exhibit, good.fixed, good.fixed).is_as_described
    assert not Shown(exhibit, good.flawed, good.flawed).is_as_described
    other_witness = replace(exhibit, witness="seqno 4711")
    assert not Shown(other_witness, good.flawed, good.fixed).is_as_described
    other_guarantee = replace(exhibit, guarantee="G2")
    assert not Shown(other_guarantee, good.flawed, good.fixed).is_as_described


def test_the_table_says_what_was_run_and_what_came_of_it() -> None:
    (shown,) = tour((BY_NAME["stored-for-ever"],))
    row = shown.as_json()
    assert row["exhibit"] == "stored-for-ever"
    assert row["flawed"] == {"unicast": "UNICAST", "conn_ids": "none"}
    assert row["fixed"] == {"unicast": "UNICAST2"}
    assert (row["flawed_verdict"], row["fixed_verdict"]) == ("violated", "holds")
    assert row["guarantee"] == "G1"
    assert row["as_described"] is True
    assert any("25..25" in line for line in row["witness"])
