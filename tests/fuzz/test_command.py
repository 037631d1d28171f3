"""The command: its exit codes, and what it prints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stormcast.exits import Exit
from tests.fuzz import __main__ as command
from tests.fuzz.campaign import Campaign
from tests.fuzz.rounds import Result, Round

WORDS = ("--target", "udp", "--part", "plain", "--frames", "800", "--shrink-trials", "0")


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Rounds that send nothing; a test says what they find, or what they raise."""
    told: dict[str, Any] = {"findings": [], "verdict": "holds", "error": None}

    def play(_target: object, one: Round, *_rest: object) -> Result:
        if told["error"] is not None:
            raise told["error"]
        result = Result(round=one, verdict=told["verdict"], findings=list(told["findings"]))
        result.sent = {"frames": one.count}
        return result

    monkeypatch.setattr(command, "why_not", lambda: None)
    monkeypatch.setattr(command, "Campaign", partial(Campaign, play_=play))
    return told


@pytest.mark.usefixtures("plays")
def test_where_all_holds_the_table_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*WORDS, "--out", str(tmp_path)]) == Exit.HOLDS
    assert "udp plain  800" in capsys.readouterr().out


def test_a_finding_is_a_line_with_what_repeats_it(
    plays: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plays["findings"] = ["n0 ended with -11: killed"]
    assert command.main([*WORDS, "--out", str(tmp_path)]) == Exit.VIOLATED
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("udp: n0 ended with -11: killed; repeat: python -m tests.fuzz --target")


def test_what_could_not_be_judged_or_played_proves_nothing(
    plays: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plays["verdict"] = "unknown"
    assert command.main([*WORDS, "--out", str(tmp_path / "a")]) == Exit.UNKNOWN
    plays["error"] = OSError("no room")
    assert command.main([*WORDS, "--out", str(tmp_path / "b")]) == Exit.UNKNOWN
    assert "could not be played: no room" in capsys.readouterr().err


def test_ctrl_c_ends_it_and_the_same_command_goes_on(plays: dict[str, Any], tmp_path: Path) -> None:
    words = [*WORDS, "--round", "400", "--out", str(tmp_path)]
    plays["error"] = KeyboardInterrupt()
    assert command.main(words) == Exit.INTERRUPTED
    plays["error"] = None
    assert command.main(words) == Exit.HOLDS
    assert len((tmp_path / "rounds.jsonl").read_text().splitlines()) == 2
    assert command.main([*words, "--seed", "2"]) == Exit.USAGE


@pytest.mark.usefixtures("plays")
def test_keys_leave_no_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--target", "udp", "--frames", "800", "--keyed", "--out", str(tmp_path))
    assert command.main(words) == Exit.HOLDS
    assert "udp keyed  800" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        command.main([*words, "--part", "plain"])
    assert ended.value.code == Exit.USAGE


def test_without_namespaces_it_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "why_not", lambda: "network namespaces need root")
    assert command.main([*WORDS, "--out", str(tmp_path / "none")]) == Exit.UNKNOWN
    assert "need root" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
