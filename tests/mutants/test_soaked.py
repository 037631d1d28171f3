"""Bugs that are planted into a soak: one that its storm meets is told of, and one that it does not
meet is named as missed."""

from __future__ import annotations

import pytest

from tests.mutants.soaked import Told, in_words, main, planted

pytestmark = pytest.mark.slow


def test_a_planted_bug_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acks-before-delivery", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "acks-before-delivery" in shown
    assert "G6" in shown
    assert "1 of 1 told of" in shown


def test_what_no_window_shows_is_named_as_missed() -> None:
    told = Told("early", "udp", 70.0, ("G1", "L1"))
    words = in_words([Told("never", "udp", None), told]).splitlines()
    assert words[0].split() == ["early", "udp", "70", "s", "G1,", "L1"]
    assert words[1].split() == ["never", "udp", "–"]
    assert words[2] == "1 of 2 told of"


def test_only_bugs_that_runs_can_show_are_planted() -> None:
    names = planted()
    assert "stamps-ignored" not in names
    assert len(names) > 90
