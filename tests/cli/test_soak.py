"""`stormcast soak`: its directory, its lines, and what it says of bad input."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.scenario import Scenario, load_scenario
from stormcast.chaos.oracles.verdict import Finding, Judgement, Verdict
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.versions import versions
from stormcast.chaos.soak.directory import SoakDirectory
from stormcast.chaos.soak.player import Soak, Window
from stormcast.chaos.soak.storm_file import dump_storm, parse_storm
from stormcast.cli import Exit
from stormcast.locks import lock
from stormcast.node.core.errors import ConfigError
from tests.helpers.shell import Shell
from tests.helpers.soaks import GENTLE, windows


def test_a_soak_leaves_a_line_for_each_window_and_goes_on_where_it_was(
    shell: Shell, storm: str
) -> None:
    done = shell("soak", "--storm", storm, "--for", "25s", "--out", "kept")

    assert done.code == Exit.HOLDS
    assert done.out.startswith("soak: holds   seed 1")
    said = "drift: too short to tell of judge (descriptors, memory, threads); messages (latency)"
    assert f"{said}\n" in done.out
    assert windows("kept") in ([0, 1], [0, 1, 2])
    first = len(windows("kept"))
    status = json.loads(Path("kept/status.json").read_text())
    assert (status["verdict"], status["windows"], status["is_over"]) == ("holds", first, True)
    assert not Path("kept/incidents").exists()

    # A line that a kill cut short does not count, and spoils none that follows.
    with Path("kept/windows.jsonl").open("a") as file:
        file.write('{"window": 9, "verd')
    for more in (1, 2):
        # The folder of a cluster that was killed in its first window is there already.
        Path(f"kept/logs/{first + more - 1:06}").mkdir()
        again = shell("soak", "--resume", "kept", "--for", "5s")

        assert again.code == Exit.HOLDS
        assert f"a new cluster begins with window {first + more - 1}" in again.err
        assert windows("kept") == list(range(first + more))
    # Each process is weighed apart from those before it.
    lines = [json.loads(line) for line in Path("kept/windows.jsonl").read_text().splitlines()]
    assert [line["process"] for line in lines] == [0] * first + [first, first + 1]


def test_two_do_not_play_in_one_directory(shell: Shell, storm: str) -> None:
    shell("soak", "--storm", storm, "--for", "5s", "--out", "kept")
    with ExitStack() as held:
        assert lock(Path("kept"), held) is None
        done = shell("soak", "--resume", "kept")
    assert done.code == Exit.USAGE
    assert "another stormcast soak plays in kept" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--for", "soon"], "write a duration"),
        (["--storm", "nowhere.yaml"], "nowhere.yaml"),
        (["--resume", "nowhere"], "nowhere is no soak"),
        (["--resume", "nowhere", "--seed", "4"], "--seed: a soak goes on as it began; drop it"),
        (["--backend", "moon"], "backend 'moon' is not there yet; this version has: sim, netns"),
        (["--stack", "moon"], "moon"),
    ],
)
def test_bad_input_is_refused_in_a_line(shell: Shell, words: list[str], said: str) -> None:
    done = shell("soak", *words)

    assert done.code in (Exit.USAGE, Exit.UNKNOWN)
    assert said in done.err
    assert not Path("runs").exists()


def failing(monkeypatch: pytest.MonkeyPatch, *numbers: int, error: Exception | None = None) -> None:
    """The rig fails in these windows."""
    play = Soak._window
    reason = error or BackendError("the agent of n1 has ended\nand said nothing")

    def window(soak: Soak, number: int) -> Window:
        if number in numbers:
            raise reason
        return play(soak, number)

    monkeypatch.setattr(Soak, "_window", window)


def test_where_the_rig_fails_a_new_cluster_goes_on(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, 1)
    done = shell("soak", "--storm", storm, "--for", "25s", "--out", "kept")

    assert done.code == Exit.UNKNOWN
    assert (
        "the agent of n1 has ended and said nothing: a new cluster begins with window 2" in done.err
    )
    lines = [json.loads(one) for one in Path("kept/windows.jsonl").read_text().splitlines()]
    assert [line["verdict"] for line in lines][:3] == ["holds", "unknown", "holds"]
    assert [line["window"] for line in lines][:3] == [0, 1, 2]


def test_a_rig_that_fails_at_once_ends_the_soak(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, 1, 2)
    done = shell("soak", "--storm", storm, "--for", "60s", "--out", "kept")

    assert done.code == Exit.UNKNOWN
    assert windows("kept") == [0, 1]
    assert "the agent of n1 has ended" in done.err.splitlines()[-2]


def test_a_piece_of_a_soak_is_a_scenario_that_runs(shell: Shell, storm: str) -> None:
    shell("soak", "--storm", storm, "--for", "35s", "--seed", 4, "--out", "kept")
    kept = SoakDirectory(Path("kept")).read()
    first = float(kept.windows[0]["seconds"])

    done = shell("soak", "cut", "kept", "--from", "11s", "--out", "piece.yaml")
    again = shell("soak", "cut", "kept", "--from", "11s", "--out", "piece.yaml")
    never = shell("soak", "cut", "kept", "--from", "9h")

    assert done.code == Exit.HOLDS
    assert (again.code, never.code) == (Exit.USAGE, Exit.USAGE)
    assert "name a new file" in again.err
    assert "no window was played in that time" in never.err
    piece = load_scenario("piece.yaml")
    if first <= 11.0:
        assert piece.timeline[0].name == "w1-" + (piece.timeline[0].name or "").partition("-")[2]
    assert len(piece.workload) == len(kept.windows) - (first <= 11.0)
    ran = shell("run", "piece.yaml", "--seed", 4, "--out", "ran")
    assert ran.code == Exit.HOLDS


def test_a_window_that_broke_off_does_not_hold_either(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, 1)
    done = shell("soak", "--storm", storm, "--for", "60s", "--out", "kept", "--until-violated")

    assert done.code == Exit.UNKNOWN
    assert windows("kept") == [0, 1]
    assert "window 1: unknown: the agent of n1 has ended and said nothing" in done.err
    assert "a new cluster" not in done.err


def test_in_a_piece_a_window_that_broke_off_has_a_time_of_its_own(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long it was played nobody knows: its loads and faults do not meet those of the next."""
    failing(monkeypatch, 1)
    shell("soak", "--storm", storm, "--for", "25s", "--seed", 4, "--out", "kept")
    kept = SoakDirectory(Path("kept")).read()
    first = float(kept.windows[0]["seconds"])
    assert float(kept.windows[1]["seconds"]) == 0.0

    shell("soak", "cut", "kept", "--out", "piece.yaml")
    shell("soak", "cut", "kept", "--from", f"{first}s", "--out", "rest.yaml")

    assert [load.start for load in load_scenario("piece.yaml").workload[:3]] == [
        pytest.approx(start) for start in (0.0, first, first + kept.storm.window)
    ]
    rest = load_scenario("rest.yaml")
    assert rest.name.startswith("gentle-1-")
    assert [load.start for load in rest.workload[:2]] == [0.0, kept.storm.window]
    ends = [step.at for step in rest.timeline if (step.name or "").startswith("w1-")]
    assert all(at < kept.storm.window for at in ends)


def test_where_the_code_has_changed_a_soak_says_that_windows_may_be_others(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows 0 and later are of this version, what was resumed is of another one."""
    said = "other versions than here (code "
    shell("soak", "--storm", storm, "--for", "5s", "--out", "kept")
    first = float(SoakDirectory(Path("kept")).read().windows[0]["seconds"])
    same = shell("soak", "cut", "kept")
    again = shell("soak", "--resume", "kept", "--for", "5s")
    assert said not in same.err + again.err

    now = versions()
    other = {**now, "code": "5eed"}
    monkeypatch.setattr("stormcast.chaos.soak.directory.versions", lambda: other)
    monkeypatch.setattr("stormcast.chaos.commands.soak_cut.versions", lambda: other)
    cut = shell("soak", "cut", "kept", "--to", "1s")
    resumed = shell("soak", "--resume", "kept", "--for", "5s")
    for done in (cut, resumed):
        assert done.err.count(f"{said}{now['code']}, here 5eed)") == 1

    kept = SoakDirectory(Path("kept")).read()
    assert [len(kept.windows), kept.versions_of(0), kept.versions_of(2)] == [3, now, other]
    assert said not in shell("soak", "cut", "kept", "--from", f"{2 * first + 5}s").err
    assert said in shell("soak", "cut", "kept", "--from", "1s").err


def test_a_soak_that_kept_no_versions_can_be_resumed(shell: Shell, storm: str) -> None:
    shell("soak", "--storm", storm, "--for", "5s", "--out", "kept")
    Path("kept/soak.json").write_text('{"seed": 1, "backend": "sim"}')
    done = shell("soak", "--resume", "kept", "--for", "5s")

    assert done.code == Exit.HOLDS
    assert "code unknown, here" in done.err
    assert "code unknown, here" in shell("soak", "cut", "kept").err
    assert SoakDirectory(Path("kept")).read().versions_of(1) == versions()


def test_a_directory_with_anything_in_it_is_refused(shell: Shell) -> None:
    Path("full").mkdir()
    Path("full/note").write_text("mine")

    done = shell("soak", "--out", "full")

    assert done.code == Exit.USAGE
    assert "full" in done.err
    assert Path("full/note").read_text() == "mine"


TURNS = GENTLE + "turns: [{}, {stack: mcast}]\nturn: 2\n"


def test_by_turns_other_members_play_a_soak(shell: Shell) -> None:
    Path("turns.yaml").write_text(TURNS)
    done = shell(
        "soak", "--storm", "turns.yaml", "--for", "35s", "--out", "kept", "--keep-chapters"
    )
    again = shell("soak", "--resume", "kept", "--for", "35s")

    assert (done.code, again.code) == (Exit.HOLDS, Exit.HOLDS)
    assert "the turn of udp, fast is over: a new cluster begins with window 2" in done.err
    lines = [json.loads(line) for line in Path("kept/windows.jsonl").read_text().splitlines()]
    assert len(lines) >= 5
    assert {line["runs"] for line in lines if line["window"] % 4 < 2} == {"udp, fast"}
    assert {line["runs"] for line in lines if line["window"] % 4 >= 2} == {"mcast, fast"}
    # A chapter is of one cluster.
    told = [json.loads(one.read_text()) for one in Path("kept/chapters/announced").iterdir()]
    assert sum(one["chapter"] - one["first"] + 1 for one in told) == len(lines)
    assert all(one["first"] // 2 == one["chapter"] // 2 for one in told)

    second = sum(float(line["seconds"]) for line in lines[:2])
    both = shell("soak", "cut", "kept")
    of_mcast = shell("soak", "cut", "kept", "--from", f"{second + 1}s", "--to", f"{second + 2}s")
    assert both.code == Exit.USAGE
    assert "window 2 is of another turn than window 0" in both.err
    assert "stack: mcast" in of_mcast.out

    for flag, value in (("--stack", "tcp"), ("--timing", "fast")):
        refused = shell("soak", "--storm", "turns.yaml", flag, value)
        assert refused.code == Exit.USAGE
        assert f"{flag}: the storm has turns" in refused.err


def test_a_turn_that_ends_without_rest_ends_its_chapter(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is of another cluster, and its chapter is, too."""
    play = Soak._window

    def restless(soak: Soak, number: int) -> Window:
        window = play(soak, number)
        return replace(window, unrest="5 is under way") if number == 1 else window

    monkeypatch.setattr(Soak, "_window", restless)
    Path("turns.yaml").write_text(TURNS)
    shell("soak", "--storm", "turns.yaml", "--for", "35s", "--out", "kept", "--keep-chapters")
    told = [json.loads(one.read_text()) for one in Path("kept/chapters/announced").iterdir()]
    assert {(one["first"], one["chapter"]) for one in told} >= {(0, 0), (1, 1), (2, 2)}


def test_a_turn_that_cannot_be_played_is_refused_before_the_first(shell: Shell) -> None:
    Path("turns.yaml").write_text(TURNS.replace("mcast", "moon"))
    done = shell("soak", "--storm", "turns.yaml", "--out", "kept")
    assert done.code == Exit.USAGE
    assert "moon" in done.err
    assert not Path("kept").exists()


@pytest.mark.parametrize("text", [GENTLE, TURNS])
def test_a_storm_file_reads_back_equal(text: str) -> None:
    storm = parse_storm(text)
    assert parse_storm(dump_storm(storm)) == storm


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kinds: [rain]", "rain"),
        ("every: 8s..1s", "it ends before it begins"),
        ("loads: 9..2", "it ends before it begins"),
        ("sizes: [1B..100B]", "messages below 16 bytes cannot be told apart"),
        ("cluster: {members: 2, stack: udp}", "a storm needs 3 members or more"),
        ("cluster: {members: 4, stack: udp, late: [n1]}", "drop it"),
        ("at_once: 0", "at_once"),
        ("weather: fine", "weather"),
        ("turns: [{members: 5}]", "members"),
        ("turn: 0", "turn"),
    ],
)
def test_a_wrong_storm_is_refused_with_its_place(line: str, said: str) -> None:
    key = line.partition(":")[0]
    kept = [one for one in GENTLE.splitlines() if not one.startswith(f"{key}:")]
    with pytest.raises(ConfigError, match=r"storm\.yaml:\d+") as refused:
        parse_storm("\n".join([*kept, line]) + "\n", "storm.yaml")
    assert said in str(refused.value)


def violate_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows with the number 0 are violated."""
    play = Soak._window

    def changed(soak: Soak, number: int) -> Window:
        window = play(soak, number)
        bad = Judgement(Verdict.VIOLATED, (Finding("G1", Verdict.VIOLATED, "5 was lost"),))
        lost = {"judgement": bad, "lost": "5 is under way"}
        return replace(window, **lost) if number == 0 else window  # type: ignore[arg-type]

    monkeypatch.setattr(Soak, "_window", changed)


def test_a_violation_stands_though_there_is_no_room_for_its_evidence(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "incidents")

    violate_the_first(monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr("stormcast.chaos.soak.directory.write_run", full)
        done = shell("soak", "--storm", storm, "--for", "25s", "--out", "full")

    assert done.code == Exit.VIOLATED
    assert "no space left on device" in done.err
    assert done.out.startswith("soak: violated")
    assert json.loads(Path("full/status.json").read_text())["verdict"] == "violated"
    assert windows("full") == [0]
    assert shell("soak", "--resume", "full", "--for", "5s").code == Exit.VIOLATED


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BackendError("an agent died")])
def test_a_window_is_kept_before_its_journals_are_forgotten(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A signal, or an error of the rig, while they are forgotten leaves the violation and its
    evidence."""

    def violated(scenario: Scenario, run: RunRecord, **more: Any) -> Judgement:
        found = judge_run(scenario, run, **more)
        bad = Finding("G2", Verdict.VIOLATED, "5 was delivered twice")
        return Judgement(Verdict.VIOLATED, (*found.findings, bad), found.owed)

    def forget(_backend: SimBackend, _gone: Collection[str]) -> None:
        raise error

    monkeypatch.setattr("stormcast.chaos.soak.player.judge_run", violated)
    monkeypatch.setattr(SimBackend, "forget", forget)
    done = shell("soak", "--storm", storm, "--for", "15s", "--out", "kept")

    assert done.code == Exit.VIOLATED
    assert windows("kept")[0] == 0
    assert json.loads(Path("kept/status.json").read_text())["verdicts"]["violated"] >= 1
    assert json.loads(Path("kept/incidents/000000/verdict.json").read_text())["verdict"] == (
        "violated"
    )


def test_a_violation_stands_though_no_other_cluster_comes_up(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Soak] = []
    start = Soak.open

    def once(soak: Soak) -> None:
        opened.append(soak)
        if len(opened) > 1:
            raise BackendError("no agent answers")
        start(soak)

    violate_the_first(monkeypatch)
    monkeypatch.setattr(Soak, "open", once)
    done = shell("soak", "--storm", storm, "--for", "25s", "--out", "alone")

    assert done.code == Exit.VIOLATED
    assert "no agent answers" in done.err
    assert json.loads(Path("alone/status.json").read_text())["is_over"] is True


@pytest.mark.parametrize("error", [MemoryError(), AssertionError("a view without members")])
def test_a_violation_stands_though_our_own_code_fails_later(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It ends as a soak ends, the window proves nothing, and stderr says where it failed."""
    violate_the_first(monkeypatch)
    failing(monkeypatch, 1, error=error)
    done = shell("soak", "--storm", storm, "--for", "25s", "--out", "kept")

    assert done.code == Exit.VIOLATED
    assert done.out.startswith("soak: violated")
    assert f"{type(error).__name__}" in done.err
    assert "Traceback" in done.err
    status = json.loads(Path("kept/status.json").read_text())
    assert (status["verdict"], status["is_over"]) == ("violated", True)
    assert status["verdicts"] == {"violated": 1, "unknown": 1}
    last = json.loads(Path("kept/windows.jsonl").read_text().splitlines()[-1])
    assert (last["window"], last["verdict"]) == (1, "unknown")
    assert type(error).__name__ in last["findings"][0]["detail"]


def test_a_soak_whose_first_window_cannot_be_judged_ends_unknown(
    shell: Shell, storm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, 0, error=AssertionError("a view without members"))
    done = shell("soak", "--storm", storm, "--for", "25s", "--out", "kept")

    assert done.code == Exit.UNKNOWN
    assert json.loads(Path("kept/status.json").read_text())["is_over"] is True
    assert windows("kept") == [0]


def test_a_line_that_lacks_its_end_is_of_no_window_to_all(shell: Shell, storm: str) -> None:
    """Not to `--resume` once, and not to the next one, which would forget what it says."""
    shell("soak", "--storm", storm, "--for", "5s", "--out", "cut")
    path = Path("cut/windows.jsonl")
    path.write_text(path.read_text() + path.read_text().rstrip("\n").replace("0", "1", 1))
    shell("soak", "--resume", "cut", "--for", "5s")
    assert windows("cut") == [0, 1]


@pytest.mark.parametrize("line", ["null", '{"window": 1}'])
def test_a_line_of_no_window_is_refused(shell: Shell, storm: str, line: str) -> None:
    shell("soak", "--storm", storm, "--for", "5s", "--out", "odd")
    with Path("odd/windows.jsonl").open("a") as file:
        file.write(f"{line}\n")
    done = shell("soak", "--resume", "odd", "--for", "5s")
    assert done.code == Exit.USAGE
    assert "line 2 of windows.jsonl" in done.err
