"""`stormcast soak --keep-chapters`: what a follower finds, and what is dropped."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.soak import kept_chapters
from stormcast.chaos.soak.player import Soak, Window
from stormcast.chaos.soak.second_judge import SecondJudge
from stormcast.cli import Exit
from stormcast.node.trace.files import read_traces
from stormcast.pipeline.evidence import digest_of
from tests.helpers.shell import Shell
from tests.helpers.soaks import GENTLE, windows

CHAPTERS = Path("kept/chapters")


@pytest.fixture(name="play")
def _play(shell: Shell, tmp_path: Path) -> Any:
    storm = tmp_path / "gentle.yaml"
    storm.write_text(GENTLE)

    def play(*words: object, seconds: int = 35) -> Any:
        return shell("soak", "--storm", storm, "--for", f"{seconds}s", "--out", "kept", *words)

    return play


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def manifests() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((CHAPTERS / "announced").iterdir())]


def covered(told: list[dict[str, Any]]) -> list[int]:
    return sorted(n for one in told for n in range(one["first"], one["chapter"] + 1))


def played() -> list[int]:
    return windows("kept")


def unresting(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """The chapters go on after these windows."""
    play = Soak._window

    def changed(soak: Soak, number: int) -> Window:
        window = play(soak, number)
        return replace(window, unrest="5 is under way") if number in numbers else window

    monkeypatch.setattr(Soak, "_window", changed)


def test_each_chapter_that_has_ended_is_a_run_directory_and_announced(play: Any) -> None:
    done = play("--keep-chapters")

    assert done.code == Exit.HOLDS
    told = manifests()
    assert covered(told) == played()
    assert len(told) >= 3
    for one in told:
        directory = Path("kept") / one["path"]
        said = json.loads((directory / "verdict.json").read_text())
        assert directory.name == f"{one['chapter']:06}"
        assert one["digest"] == digest_of(directory) == said["evidence_digest"]
        assert one["verdict"] == said["verdict"] == "holds"
        assert (said["min_bites"], said["interrupted"]) == (0, False)
        assert len(read_traces(directory)) == 4
        assert (directory / "scenario.yaml").is_file()
    ended = [one["ended"] for one in told]
    assert ended == sorted(ended)
    assert not list(CHAPTERS.glob(".*"))
    assert not (CHAPTERS / "dropped.jsonl").exists()


def test_without_the_flag_no_traces_are_kept(play: Any) -> None:
    assert play().code == Exit.HOLDS
    assert not CHAPTERS.exists()


def test_a_chapter_that_goes_on_is_kept_when_it_ends(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that is the end of the soak."""
    unresting(monkeypatch, 0, 3)
    play("--keep-chapters", seconds=33)

    told = manifests()
    assert played() == [0, 1, 2, 3] or played() == [0, 1, 2]
    assert (told[0]["first"], told[0]["chapter"]) == (0, 1)
    assert covered(told) == played()


def test_a_chapter_that_goes_on_is_kept_where_the_soak_is_interrupted(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unresting(monkeypatch, 1)
    window = Soak._window

    def interrupted(soak: Soak, number: int) -> Window:
        if number == 2:
            raise KeyboardInterrupt
        return window(soak, number)

    monkeypatch.setattr(Soak, "_window", interrupted)
    done = play("--keep-chapters")

    assert done.code == Exit.INTERRUPTED
    assert covered(manifests()) == played() == [0, 1]


def test_a_chapter_that_goes_on_is_kept_where_the_rig_fails(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Window 2 breaks off, and leaves no traces; a new cluster begins with 3."""
    unresting(monkeypatch, 1)
    window = Soak._window

    def failing(soak: Soak, number: int) -> Window:
        if number == 2:
            raise BackendError("an agent died")
        return window(soak, number)

    monkeypatch.setattr(Soak, "_window", failing)
    play("--keep-chapters", seconds=45)

    told = manifests()
    assert [(one["first"], one["chapter"]) for one in told[:3]] == [(0, 0), (1, 1), (3, 3)]


def test_within_the_bound_the_oldest_are_dropped_and_each_is_named(play: Any) -> None:
    play("--keep-chapters", seconds=60)
    sizes = [one["bytes"] for one in manifests()]
    bound = sizes[-1] + sizes[-2]

    done = play("--keep-chapters", f"{bound}B", "--out", "other", seconds=60)

    assert done.code == Exit.HOLDS
    assert done.err.count("is dropped before Spark judged it") == 1
    other = Path("other/chapters")
    dropped = lines(other / "dropped.jsonl")
    left = sorted(path.stem for path in (other / "announced").iterdir())
    assert [one["chapter"] for one in dropped] == list(range(len(sizes) - 2))
    assert all("waited to be judged" in one["why"] for one in dropped)
    assert left == [f"{len(sizes) - 2:06}", f"{len(sizes) - 1:06}"]
    assert sorted(path.name for path in other.glob("0*")) == left
    assert not list(other.glob(".*"))


def test_what_was_judged_takes_no_room_and_is_not_dropped(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower has removed chapter 0, and keeps 1 as evidence; 2 waits."""
    write = kept_chapters.write_run

    def written(outcome: Any, directory: Path) -> None:
        if directory.name == ".000003":
            (CHAPTERS / "000001/verify").mkdir()
            (CHAPTERS / "000001/verify/verdict.json").write_text("{}")
            (CHAPTERS / "000000").rename("elsewhere")
        write(outcome, directory)

    monkeypatch.setattr(kept_chapters, "write_run", written)
    play("--keep-chapters", "1MiB", seconds=60)
    chapters = kept_chapters.KeptChapters(Path("kept"), lambda _text: None)
    chapters.begin(None, 0)
    before = {one.number: one.size for one in chapters._waiting}
    assert 1 not in before
    assert 0 not in before
    chapters._bound = sum(before.values())
    chapters._make_room(1)

    assert (CHAPTERS / "000001").is_dir()
    assert [one["chapter"] for one in lines(CHAPTERS / "dropped.jsonl")] == [2]
    assert not (CHAPTERS / "000002").exists()


def test_a_chapter_that_alone_is_too_large_is_dropped(play: Any) -> None:
    done = play("--keep-chapters", "1KiB")

    assert done.code == Exit.HOLDS
    dropped = lines(CHAPTERS / "dropped.jsonl")
    assert covered(dropped) == played()
    assert "alone it is larger than 1KiB" in dropped[0]["why"]
    assert manifests() == []


def test_where_there_is_no_room_the_soak_goes_on_and_says_so(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "chapters")

    monkeypatch.setattr(kept_chapters, "write_run", full)
    say = kept_chapters.append_lines
    calls: list[str] = []

    def sometimes(path: Path, text: str) -> None:
        """For the first line there is no room either."""
        calls.append(text)
        if len(calls) == 1:
            full()
        say(path, text)

    monkeypatch.setattr(kept_chapters, "append_lines", sometimes)
    done = play("--keep-chapters")

    assert done.code == Exit.HOLDS
    dropped = lines(CHAPTERS / "dropped.jsonl")
    assert covered(dropped) == played()
    assert "no space left on device" in dropped[0]["why"]
    assert not list(CHAPTERS.glob(".*"))


def test_a_soak_that_goes_on_keeps_chapters_as_it_did(play: Any, shell: Shell) -> None:
    play("--keep-chapters", "1MiB")
    about = json.loads((CHAPTERS / "about.json").read_text())
    # What a kill has left: a part of a chapter, and a part of a line.
    (CHAPTERS / ".000009").mkdir()
    (CHAPTERS / "dropped.jsonl").write_text('{"chapter": 9, "fir')

    assert shell("soak", "--resume", "kept", "--for", "5s").code == Exit.HOLDS

    assert json.loads((CHAPTERS / "about.json").read_text()) == about
    assert (about["bound"], about["first"]) == (1 << 20, 0)
    assert covered(manifests()) == played()
    assert {one["soak"] for one in manifests()} == {about["soak"]}
    assert not (CHAPTERS / ".000009").exists()
    assert lines(CHAPTERS / "dropped.jsonl") == []


def test_a_soak_may_begin_to_keep_chapters_later(play: Any, shell: Shell) -> None:
    play(seconds=15)
    first = len(played())
    shell("soak", "--resume", "kept", "--for", "5s", "--keep-chapters", "2MiB")

    about = json.loads((CHAPTERS / "about.json").read_text())
    assert (about["first"], about["bound"]) == (first, 2 << 20)
    assert covered(manifests()) == played()[first:]


def verdict(chapter: int, **more: object) -> str:
    told = {"chapter": chapter, "verdict": "holds", "judged": True, "agrees": True, **more}
    return json.dumps(told) + "\n"


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (verdict(0), Exit.HOLDS, {"holds": 1}),
        (verdict(0, verdict="violated", agrees=False), Exit.UNKNOWN, {"unknown": 1}),
        (verdict(0, verdict="unknown", agrees=False, judged=False), Exit.HOLDS, {"unknown": 1}),
        (verdict(0) + '{"chapter": 1, "ver', Exit.HOLDS, {"holds": 1}),
    ],
    ids=["agrees", "disagrees", "dropped", "half a line"],
)
def test_the_status_says_what_the_second_judge_says(
    play: Any, shell: Shell, line: str, code: Exit, said: dict[str, int]
) -> None:
    """Where the judges disagree nothing is known; where the second has no verdict the first has."""
    play("--keep-chapters", seconds=15)
    Path("kept/follow").mkdir()
    Path("kept/follow/verdicts.jsonl").write_text(line)
    done = shell("soak", "--resume", "kept", "--for", "5s")

    assert done.code == code
    status = json.loads(Path("kept/status.json").read_text())
    assert status["spark"]["verdicts"] == said
    assert status["spark"]["disputed"] == ([0] if code is Exit.UNKNOWN else [])
    assert status["verdict"] == ("unknown" if code is Exit.UNKNOWN else "holds")


def test_verdicts_are_read_as_they_are_written_and_each_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "follow/verdicts.jsonl"
    second = SecondJudge(tmp_path)
    assert second.as_json() is None
    path.parent.mkdir()
    path.write_text(verdict(0) + verdict(1)[:20])
    for _again in range(2):
        said = second.as_json()
        assert said is not None
        assert said["verdicts"] == {"holds": 1}
    path.write_text(verdict(0) + verdict(1) + verdict(2, verdict="violated", agrees=False))
    said = second.as_json()
    assert said == {
        "chapters": 3,
        "verdicts": {"holds": 2, "unknown": 1},
        "disagreements": 1,
        "disputed": [2],
    }
    # Somebody has removed what was found, and follows anew.
    path.write_text(verdict(0))
    assert (second.as_json() or {})["verdicts"] == {"holds": 1}
    assert not second.disagrees


@pytest.mark.parametrize("size", ["0", "many", "5"])
def test_a_size_has_a_unit(shell: Shell, size: str) -> None:
    done = shell("soak", "--keep-chapters", size)
    assert done.code == Exit.USAGE
    assert "--keep-chapters" in done.err
