"""`stormcast soak --go-on` and `--listen`: how others start it again, and ask it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stormcast.chaos.commands.listeners import table_of
from stormcast.chaos.commands.soak_figures import HANG_SECONDS, SoakFigures
from stormcast.cli import Exit
from tests.helpers.shell import Shell
from tests.helpers.soaks import windows

STATUS = {
    "verdicts": {"holds": 4, "violated": 1},
    "sent": 90,
    "bites": 7,
    "seconds": 50.0,
    "is_over": False,
    "drift": [
        {"of": "judge", "figure": "memory", "verdict": "grows"},
        {"of": "n1", "figure": "threads", "verdict": "steady"},
    ],
    "spark": {"verdicts": {"holds": 3, "unknown": 1}, "disagreements": 2},
}


def test_a_soak_begins_and_goes_on_by_the_same_words_until_its_time_is_over(
    shell: Shell, storm: str
) -> None:
    words = ("soak", "--storm", storm, "--go-on", "kept", "--seed", 3)
    assert shell(*words, "--for", "15s").code == Exit.HOLDS
    first = windows("kept")
    again = shell(*words, "--for", "40s")
    assert again.code == Exit.HOLDS
    assert f"a new cluster begins with window {len(first)}" in again.err
    assert "began with" not in again.err
    lived = json.loads(Path("kept/status.json").read_text())["seconds"]
    assert 40 <= lived < 60, "the time is that of all starts"

    over = windows("kept")
    assert shell(*words, "--for", "40s").code == Exit.HOLDS
    assert windows("kept") == over, "its time was over"


def test_other_words_are_told_and_not_followed(shell: Shell, storm: str) -> None:
    assert shell("soak", "--storm", storm, "--go-on", "kept", "--for", "5s").code == Exit.HOLDS
    said = shell("soak", "--go-on", "kept", "--stack", "mcast", "--seed", 9, "--for", "30s")
    assert said.code == Exit.HOLDS
    assert "kept goes on with the storm it began with" in said.err
    assert "kept began with seed 1, and goes on with that" in said.err
    refused = shell("soak", "--go-on", "kept", "--resume", "kept")
    assert refused.code == Exit.USAGE
    assert "--resume: --go-on names the directory" in refused.err


def test_listeners_need_what_listens(shell: Shell) -> None:
    said = shell("soak", "--probes", "127.0.0.1:7", "--for", "5s")
    assert said.code == Exit.USAGE
    assert "--probes goes with --listen" in said.err
    said = shell("soak", "--namespace", "x", "--for", "5s")
    assert said.code == Exit.USAGE
    assert "--namespace is of --backend kubernetes; drop it" in said.err


def test_a_signal_may_come_as_soon_as_it_says_that_it_waits_for_one(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(text: str) -> None:
        if "told until SIGTERM" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr("stormcast.chaos.commands.soak.say", said)
    words = ("--for", "5s", "--listen", "127.0.0.1:0", "--tls", "none")
    assert shell("soak", "--storm", storm, "--go-on", "kept", *words).code == Exit.HOLDS


def figures(told: SoakFigures) -> dict[str, float]:
    answer = table_of(told)["/metrics"]["GET"]({})
    assert isinstance(answer.content, bytes)
    lines = [line for line in answer.content.decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_figures_are_those_of_the_status() -> None:
    told = SoakFigures(60.0)
    assert figures(told)['stormcast_soak_windows{verdict="violated"}'] == 0
    told.update(STATUS)
    found = figures(told)
    assert found['stormcast_soak_windows{verdict="holds"}'] == 4
    assert found['stormcast_soak_windows{verdict="violated"}'] == 1
    assert found['stormcast_soak_windows{verdict="unknown"}'] == 0
    assert found['stormcast_soak_grows{figure="memory",of="judge"}'] == 1
    assert found['stormcast_soak_grows{figure="threads",of="n1"}'] == 0
    assert found['stormcast_soak_spark_chapters{verdict="unknown"}'] == 1
    assert found["stormcast_soak_disagreements"] == 2
    assert (found["stormcast_soak_messages"], found["stormcast_soak_over"]) == (90, 0)


def test_one_whose_windows_do_not_end_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told = SoakFigures(60.0)

    def is_live() -> bool:
        answer = table_of(told)["/livez"]["GET"]({})
        return answer.status == 200

    now[0] += HANG_SECONDS + 59
    assert is_live()
    now[0] += 2
    assert not is_live()
    told.update(STATUS)
    assert is_live()
    assert table_of(told)["/readyz"]["GET"]({}).status == 503
