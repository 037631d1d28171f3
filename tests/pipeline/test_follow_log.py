"""What a follower keeps besides Spark: verdicts and alarms, each once, wherever it was killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.pipeline import follow_log
from stormcast.pipeline.chapters import (
    ChapterVerdict,
    Spans,
    manifest_of,
    not_judged,
    read_manifest,
    read_verdict,
)
from stormcast.pipeline.follow_log import FollowLog
from stormcast.pipeline.questions import VerifyError
from stormcast.whole import append_lines, mend_lines
from tests.pipeline.soaks import lines

G1 = {"guarantee": "G1", "verdict": "violated", "detail": "5 was lost", "witness": ["n0#4"]}
G2 = {"guarantee": "G2", "verdict": "violated", "detail": "6 came twice", "witness": ["n1#7"]}
ODD = {"guarantee": "run", "verdict": "unknown", "detail": "nothing was sent", "witness": []}


def verdict(chapter: int, *findings: dict[str, Any], first: int | None = None) -> ChapterVerdict:
    worst = max((one["verdict"] for one in findings), default="holds")
    return ChapterVerdict(
        chapter=chapter,
        first=chapter if first is None else first,
        verdict=worst,
        own=worst,
        agrees=True,
        judged=True,
        findings=findings,
        ended=5.0,
        at=7.0,
    )


def opened(folder: Path) -> FollowLog:
    log = FollowLog(folder)
    log.open(lambda _verdict: None)
    return log


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize(("at", "part"), [(0, 0), (0, 40), (0, None), (1, 0), (1, 40), (1, None)])
def test_wherever_it_is_killed_each_verdict_and_each_alarm_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, part: int | None
) -> None:
    """Before, amid or after the write of the verdict, or that of its alarms."""
    log = opened(tmp_path)
    log.add(verdict(1, G1))
    calls: list[Path] = []

    def killed(path: Path, text: str) -> None:
        calls.append(path)
        if len(calls) - 1 != at:
            append_lines(path, text)
            return
        if part is None:
            append_lines(path, text)
        else:
            with path.open("a") as file:
                file.write(text[:part])
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(follow_log, "append_lines", killed)
        with pytest.raises(Killed):
            log.add(verdict(2, G1, G2))

    again = opened(tmp_path)
    if not again.is_done(2):
        again.add(verdict(2, G1, G2))
    assert [one["chapter"] for one in lines(tmp_path / "verdicts.jsonl")] == [1, 2]
    told = lines(tmp_path / "alarms.jsonl")
    assert [(one["chapter"], one["guarantee"]) for one in told] == [(1, "G1"), (2, "G1"), (2, "G2")]
    assert told[2]["witness"] == ["n1#7"]
    assert again.counts == {"violated": 2}


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 900)), max_size=30))
def test_any_kills_leave_each_once(
    tmp_path_factory: pytest.TempPathFactory, kills: list[tuple[int, int]]
) -> None:
    """Kills come after so many whole writes and so many bytes of the next one."""
    folder = tmp_path_factory.mktemp("log")
    wanted = [verdict(n, *((G1,) if n % 2 else ()), *((G2,) if n % 3 else ())) for n in range(6)]
    before = follow_log.append_lines
    try:
        for whole, part in [*kills, (1 << 30, 0)]:
            follow_log.append_lines = _dying(whole, part)
            with suppress(Killed):
                log = opened(folder)
                for one in wanted:
                    if not log.is_done(one.chapter):
                        log.add(one)
    finally:
        follow_log.append_lines = before

    assert [read_verdict(json.dumps(one)) for one in lines(folder / "verdicts.jsonl")] == wanted
    alarms = [one for each in wanted for one in each.alarms()]
    key = lambda one: (one["chapter"], one["nth"])  # noqa: E731
    assert sorted(lines(folder / "alarms.jsonl"), key=key) == alarms


def _dying(whole: int, part: int) -> Callable[[Path, str], None]:
    left = [whole]

    def write(path: Path, text: str) -> None:
        if left[0] == 0:
            with path.open("a") as file:
                file.write(text[:part])
            raise Killed
        left[0] -= 1
        append_lines(path, text)

    return write


def test_old_verdicts_are_handed_out_and_missing_alarms_told(tmp_path: Path) -> None:
    (tmp_path / "verdicts.jsonl").write_text(verdict(3, G2).as_line() + verdict(4).as_line())
    log, old = FollowLog(tmp_path), list[ChapterVerdict]()

    missing = log.open(old.append)

    assert [one.chapter for one in old] == [3, 4]
    assert [one["guarantee"] for one in missing] == ["G2"]
    assert FollowLog(tmp_path).open(lambda _old: None) == []
    assert (log.is_done(3), log.is_done(5)) == (True, False)


def test_the_worst_counts_and_nothing_is_unknown(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.worst == "unknown"
    log.add(verdict(0))
    assert log.worst == "holds"
    log.add(verdict(1, ODD))
    assert log.worst == "unknown"
    log.add(verdict(2, G1, ODD))
    assert log.worst == "violated"


@pytest.mark.parametrize("text", ["null\n", "{}\n", "[1]\n", "{half\n"])
def test_a_line_of_no_verdict_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / "verdicts.jsonl").write_text(verdict(0).as_line() + text)
    with pytest.raises(VerifyError, match=r"line 2 of .*verdicts\.jsonl cannot be read"):
        opened(tmp_path)


def test_only_what_both_judges_hold_is_through() -> None:
    assert verdict(0).is_through
    assert not verdict(0, G1).is_through
    assert not replace(verdict(0), own="violated", agrees=False).is_through
    assert not replace(verdict(0), judged=False).is_through
    gone = manifest_of({}, "000007.json", "5eed")
    assert gone is not None
    assert not not_judged(gone, "it is gone", 1.0).is_through


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5))))
def test_spans_are_a_set(pairs: list[tuple[int, int]]) -> None:
    spans, numbers = Spans(), set[int]()
    for first, more in pairs:
        spans.add(first, first + more)
        numbers |= set(range(first, first + more + 1))
    assert [number for number in range(-1, 70) if number in spans] == sorted(numbers)
    assert len(spans) == sum(number - 1 not in numbers for number in numbers)


def test_many_chapters_in_a_row_take_the_room_of_one() -> None:
    spans = Spans()
    for number in range(10_000):
        spans.add(number, number)
    assert len(spans) == 1


# -- Manifests -------------------------------------------------------------------------------------

SOUND = {
    "soak": "5eed",
    "chapter": 7,
    "first": 6,
    "path": "chapters/000007",
    "digest": "d",
    "verdict": "holds",
    "bytes": 9,
    "ended": 3.5,
}


def test_a_manifest_says_what_is_announced() -> None:
    found = manifest_of(SOUND, "000007.json", "5eed")
    assert found is not None
    assert (found.chapter, found.first, found.name, found.odd) == (7, 6, "000007", "")
    assert (found.digest, found.own, found.ended) == ("d", "holds", 3.5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chapter": None}, "cannot be read"),
        ({"digest": 5}, "cannot be read"),
        ({"ended": None}, "cannot be read"),
        ({"soak": "another"}, "is of another soak"),
        ({"chapter": 8}, "is of another chapter"),
        ({"path": "chapters/../../home"}, "is of another chapter"),
        ({"first": 8}, "begins after its end"),
        ({"first": -1}, "begins after its end"),
    ],
)
def test_a_manifest_that_is_odd_is_of_its_file_and_no_other(
    change: dict[str, object], said: str
) -> None:
    """No path in it is followed: directories are removed by what it says."""
    found = manifest_of({**SOUND, **change}, "000007.json", "5eed")
    assert found is not None
    assert (found.chapter, found.first) == (7, 7)
    assert said in found.odd


@pytest.mark.parametrize("name", ["notes.json", "000007.txt", "7.json.part", ".json", "٣.json"])
def test_a_file_by_another_name_is_no_manifest(name: str) -> None:
    assert manifest_of(SOUND, name, "5eed") is None


@pytest.mark.parametrize("text", ["", "{half", "[]", "5", "\x00"])
def test_a_manifest_that_cannot_be_read_is_odd(tmp_path: Path, text: str) -> None:
    path = tmp_path / "000007.json"
    path.write_text(text)
    found = read_manifest(path, "5eed")
    assert found is not None
    assert "its manifest 000007.json cannot be read" in found.odd


# -- Files that grow -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 5, 70_000, 200_000])
def test_only_a_line_without_its_end_is_removed(tmp_path: Path, size: int) -> None:
    path = tmp_path / "lines"
    mend_lines(path)
    for whole in ("", "\n", "a\n", "a\n" + "b" * 70_000 + "\n"):
        path.write_text(whole + "c" * size)
        mend_lines(path)
        assert path.read_text() == whole
