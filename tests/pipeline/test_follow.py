"""`stormcast verify --follow`: chapters of a soak, judged as they come by a stream of Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stormcast import verify as glue
from stormcast.node.core.names import printable
from stormcast.pipeline import chapter_judge, files, follow
from stormcast.pipeline.chapters import ChapterVerdict
from stormcast.pipeline.follow import Follower, FollowOrder
from stormcast.pipeline.follow_lines import Lines
from stormcast.pipeline.follow_log import Alarm
from stormcast.pipeline.followed import FollowedSoak
from stormcast.pipeline.load import load
from stormcast.pipeline.questions import Question
from stormcast.pipeline.verdict import Verifier
from tests.oracles.corpus import Case
from tests.oracles.sentence_corpus import CASES
from tests.oracles.story import Story
from tests.oracles.test_corpus import judged
from tests.pipeline.soaks import MadeSoak

pytestmark = pytest.mark.slow

SOUND = Story().a_clean_exchange().told()
LOSSY = Story().a_clean_exchange().at(2.0).sends(6).told()
LOST = {"guarantee": "G1", "verdict": "violated", "detail": "6 was lost", "witness": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard(Lines):
    """Lines that call somebody with each verdict, when it is written."""

    on_verdict: Callable[[ChapterVerdict], object] = lambda _verdict: None

    def verdict(self, verdict: ChapterVerdict, alarms: Sequence[Alarm], directory: Path) -> None:
        super(Heard, self).verdict(verdict, alarms, directory)
        self.on_verdict(verdict)


def ask(directory: Path, name: str) -> Question:
    """As the command asks."""
    return glue._question(glue._Run(directory, name), lambda _text: None)


def ask_little(directory: Path, name: str) -> Question:
    """Of one guarantee alone: a tenth of the time."""
    return replace(ask(directory, name), guarantees=("G1",))


def follower(
    made: MadeSoak,
    most: int = 12,
    asking: Callable[[Path, str], Question] = ask_little,
    **lines: Any,
) -> Follower:
    soak = FollowedSoak(made.path)
    soak.begin()
    order = FollowOrder(
        soak=soak,
        ask=asking,
        lines=Heard(shown=printable, **lines),
        until_over=True,
        most=most,
    )
    found = Follower(order)
    found.open()
    return found


def by_chapter(made: MadeSoak) -> dict[int, dict[str, Any]]:
    told = made.verdicts()
    found = {one["chapter"]: one for one in told}
    assert len(found) == len(told), "each chapter has one verdict"
    return found


def in_one_go(spark: SparkSession, directories: Sequence[Path]) -> Mapping[str, Any]:
    """What `stormcast verify` finds in all of them together."""
    questions = [glue._question(run, lambda _text: None) for run in glue._named(directories)]
    tables, defects = load(spark, files.find_all({one.run: one.traces for one in questions}))
    judgements = Verifier(tables, questions, lambda _text: None).judge(defects)
    return {one.question.run: one for one in judgements}


def sample(number: int) -> list[Case]:
    """Some runs of the corpus, three of four broken; without a budget, which no chapter has."""
    plain = [case for case in CASES.values() if case.budget is None]
    dice = Random("follow")
    broken = [case for case in plain if case.violates]
    sound = [case for case in plain if not case.violates]
    return dice.sample(broken, number * 3 // 4) + dice.sample(sound, number // 4)


@pytest.mark.long
def test_runs_that_come_as_chapters_in_any_groups_are_judged_as_in_one_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The next group comes when the one before is judged; the stream cuts groups again."""
    made, cases, dice = MadeSoak(tmp_path / "soak"), sample(12), Random(7)
    dice.shuffle(cases)
    for chapter, case in enumerate(cases):
        made.add_judged(chapter, case.blocks, judged(case))
    wanted = in_one_go(spark, [made.directory(chapter) for chapter in range(len(cases))])
    groups, rest = list[list[int]](), list(range(len(cases)))
    dice.shuffle(rest)
    while rest:
        size = dice.randint(3, 8)
        groups.append(rest[:size])
        rest = rest[size:]
    assert len(groups) > 1
    left = set[int]()

    def next_group() -> None:
        if not groups:
            made.end()
            return
        left.update(groups[-1])
        made.announce(*groups.pop())

    def on_verdict(verdict: ChapterVerdict) -> None:
        left.remove(verdict.chapter)
        if not left:
            next_group()

    next_group()
    assert follower(made, most=6, asking=ask, on_verdict=on_verdict).follow(spark)

    found = by_chapter(made)
    assert sorted(found) == list(range(len(cases)))
    for chapter, case in enumerate(cases):
        told, batch = found[chapter], wanted[f"{chapter:06}"]
        bad = [one.as_json() for one in batch.findings if not one.holds]
        assert (told["verdict"], told["findings"]) == (str(batch.verdict), bad), case.name
        assert (told["judged"], told["agrees"]) == (True, True), case.name
        assert {one["guarantee"] for one in bad} == set(case.violates), case.name
        assert made.directory(chapter).exists() is bool(case.violates), case.name
        assert not made.manifest(chapter).exists()
    alarms = [(one["chapter"], one["guarantee"], one["witness"]) for one in made.alarms()]
    assert sorted(alarms) == sorted(
        (chapter, one["guarantee"], one["witness"])
        for chapter, told in found.items()
        for one in told["findings"]
    )
    broken = next(chapter for chapter, told in found.items() if told["verdict"] == "violated")
    kept = json.loads((made.directory(broken) / "verify/verdict.json").read_text())
    assert (kept["verdict"], kept["judged_by"]) == ("violated", "spark")
    assert (made.directory(broken) / "verify/violations").is_dir()


def test_what_cannot_be_judged_is_unknown_by_name_and_the_rest_is_judged(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "PATIENCE_SECONDS", 3.0)
    made = MadeSoak(tmp_path / "soak")
    for chapter in (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13):
        made.add(chapter, SOUND)
        made.announce(chapter)
    shutil.rmtree(made.directory(1))
    with (made.directory(2) / "trace/n0.trace").open("r+b") as file:
        file.truncate(100)
    (made.directory(3) / "trace/n1.trace").unlink()
    made.manifest(4).write_text('{"soak": "5e')
    made.manifest(5).write_text("")
    made.announce(6, soak="another")
    (made.directory(7) / "scenario.yaml").write_text("name: [half")
    made.announce(7)
    made.drop(8)
    made.manifest(8).unlink()
    shutil.rmtree(made.directory(8))
    made.drop(9, "it cannot be kept: no space left on device")
    made.play(9)
    made.play(10)
    made.play(14, "unknown", trace_bytes=0)
    made.announce(11, path="chapters/../../precious")
    (tmp_path / "precious").mkdir()
    (made.directory(12) / "trace/n0.trace").write_bytes(b"no trace")
    made.announce(12)
    # Dropped while the follower was about to read it.
    made.drop(13)
    shutil.rmtree(made.directory(13))
    made.end()

    assert follower(made).follow(spark)

    found = by_chapter(made)
    assert sorted(found) == list(range(14)), "window 14 broke off, and left no traces"
    assert found[0]["verdict"] == "holds"
    said = {
        1: "its directory is not there",
        2: "its traces are not those that were announced",
        3: "its traces are not those that were announced",
        4: "its manifest 000004.json cannot be read",
        5: "its manifest 000005.json cannot be read",
        6: "its manifest 000006.json is of another soak",
        7: "it cannot be read: ",
        8: "it was dropped: 1GiB waited",
        9: "it was dropped: it cannot be kept: no space left on device",
        10: "it was never announced: the soak was killed before that",
        11: "its manifest 000011.json is of another chapter",
        13: "it was dropped: 1GiB waited",
    }
    out = capsys.readouterr().out
    for chapter, why in said.items():
        told = found[chapter]
        assert (told["verdict"], told["judged"]) == ("unknown", False), chapter
        assert why in told["why"], chapter
        assert out.count(f"chapter {chapter}: unknown: {told['why']}\n") == 1
    # Its traces are those that were announced, and say nothing: Spark says so itself.
    assert (found[12]["verdict"], found[12]["judged"], found[12]["agrees"]) == (
        "unknown",
        True,
        False,
    )
    assert "chapter 12: the judges disagree: holds by the oracles, unknown by Spark\n" in out
    assert made.alarms() == []
    assert not made.directory(0).exists()
    assert all(made.directory(n).is_dir() for n in (2, 3, 4, 5, 6, 7, 11, 12))
    assert (tmp_path / "precious").is_dir()
    assert list((made.chapters / "announced").iterdir()) == []


def test_where_the_judges_disagree_the_chapter_stays_and_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark finds what the oracles did not, and the other way round."""
    made = MadeSoak(tmp_path / "soak")
    made.add(0, LOSSY)
    made.add(1, SOUND, "violated", [LOST])
    made.add(2, LOSSY, "violated", [LOST])
    made.announce(0, 1, 2)
    made.end()
    kept: list[Path] = []

    assert follower(made, on_kept=kept.append).follow(spark)

    found = by_chapter(made)
    assert [found[n]["verdict"] for n in range(3)] == ["violated", "unknown", "violated"]
    assert [found[n]["agrees"] for n in range(3)] == [False, False, True]
    out = capsys.readouterr().out.splitlines()
    assert "chapter 0: the judges disagree: holds by the oracles, violated by Spark" in out
    assert "chapter 1: the judges disagree: violated by the oracles, unknown by Spark" in out
    (alarm,) = [line for line in out if line.startswith("chapter 0: G1 violated")]
    assert alarm.endswith("; n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6")
    assert sorted(kept) == [made.directory(n) for n in range(3)]
    assert [one["chapter"] for one in made.alarms()] == [0, 2]


def test_nothing_of_a_batch_stays_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """However many chapters a soak has. Of one that has several windows, all are judged."""
    made = MadeSoak(tmp_path / "soak", first=1)
    for window in (0, 1, 2):
        made.play(window)
    made.add(3, SOUND)
    made.add(4, LOSSY, "violated", [LOST])
    made.announce(3, first=1)
    made.announce(4)
    made.end()
    before = set(chapter_judge._kept(spark))

    assert follower(made, most=1).follow(spark)

    assert set(chapter_judge._kept(spark)) <= before
    assert not spark.catalog.listTables()
    assert [(one["first"], one["chapter"]) for one in made.verdicts()] == [(1, 3), (4, 4)]


def test_what_crashes_for_one_chapter_is_judged_without_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeSoak(tmp_path / "soak")
    for chapter in range(3):
        made.add(chapter, SOUND)
    made.announce(0, 1, 2)
    made.end()
    find_all = files.find_all

    def crashing(directories: Mapping[str, Path]) -> Any:
        if "000001" in directories:
            raise ValueError("a number that is none")
        return find_all(directories)

    monkeypatch.setattr(files, "find_all", crashing)
    assert follower(made).follow(spark)

    found = by_chapter(made)
    assert [found[n]["verdict"] for n in range(3)] == ["holds", "unknown", "holds"]
    assert found[1]["why"] == "it cannot be judged: a number that is none"
    assert made.directory(1).is_dir()


def test_a_follower_that_was_stopped_claims_nothing_of_what_was_under_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What crashes then, as its jobs are cancelled, is judged at the next start."""
    made = MadeSoak(tmp_path / "soak")
    made.add(0, SOUND)
    made.announce(0)
    made.end()
    stopped = follower(made)
    judge = Verifier.judge

    def cancelled(_verifier: Verifier, _defects: Any) -> Any:
        stopped._stop.set()
        raise RuntimeError("Job 7 cancelled")

    monkeypatch.setattr(Verifier, "judge", cancelled)
    assert not stopped.follow(spark)
    assert made.verdicts() == []
    assert made.directory(0).is_dir()

    monkeypatch.setattr(Verifier, "judge", judge)
    assert follower(made).follow(spark)
    assert [one["verdict"] for one in made.verdicts()] == ["holds"]


def test_chapters_that_were_judged_are_handed_out_again_and_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The checkpoint is lost, and what the last process has left undone is done."""
    made = MadeSoak(tmp_path / "soak")
    made.add(0, SOUND)
    made.add(1, LOSSY, "violated", [LOST])
    made.announce(0, 1)
    shutil.copytree(made.chapters, tmp_path / "before")
    made.end()
    assert follower(made).follow(spark)
    first = made.verdicts()

    shutil.rmtree(made.follow / "checkpoint")
    shutil.rmtree(made.chapters)
    shutil.copytree(tmp_path / "before", made.chapters)
    (made.follow / "alarms.jsonl").unlink()
    made.add(2, SOUND)
    made.announce(2)
    again = follower(made)
    assert not made.directory(0).exists(), "it was through"
    assert made.directory(1).is_dir()
    assert len(made.alarms()) == len(first[1]["findings"])
    assert again.follow(spark)

    assert made.verdicts()[:2] == first
    assert sorted(by_chapter(made)) == [0, 1, 2]
    assert again.counts == {"holds": 2, "violated": 1}


@pytest.mark.parametrize("has_metadata", [False, True])
def test_a_stream_that_does_not_go_on_is_told_with_the_remedy(
    spark: SparkSession, tmp_path: Path, *, has_metadata: bool
) -> None:
    """Spark refuses the one as it starts, and the other once it runs."""
    made = MadeSoak(tmp_path / "soak")
    made.add(0, SOUND)
    made.announce(0)
    made.end()
    spoiled = follower(made)
    (made.follow / "checkpoint/offsets").mkdir(parents=True)
    (made.follow / "checkpoint/offsets/0").write_text("no offsets\n")
    if has_metadata:
        identity = '{"id": "3f8dfb3c-6c4b-4f5e-9a53-0c1f0c3a4c11"}'
        (made.follow / "checkpoint/metadata").write_text(identity)

    with pytest.raises(Exception, match=r"the stream does not go on \(.*remove it") as refused:
        spoiled.follow(spark)
    assert type(refused.value).__name__ == "CannotError"
    assert "\n" not in str(refused.value)


def test_a_line_about_a_chapter_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever texts of traces hold."""
    evil = "n0\x1b[2J\nchapter 9: holds"
    finding = {**LOST, "detail": evil, "witness": [evil, "n1#2"], "by": "spark"}
    told = ChapterVerdict(
        chapter=4,
        first=3,
        verdict="violated",
        own="holds",
        judged=True,
        findings=(finding,),
        at=1.0,
    )
    Lines(shown=printable).verdict(told, list(told.alarms()), tmp_path / "gone")
    out = capsys.readouterr().out.split("\n")
    assert len(out) == 3
    assert all(line.isprintable() for line in out)
    assert out[1].startswith("chapter 4 (windows 3 to 4): the judges disagree")

    Lines(shown=printable, as_json=True).verdict(told, list(told.alarms()), tmp_path / "gone")
    (line, rest) = capsys.readouterr().out.split("\n")
    assert (json.loads(line)["chapter"], rest) == (4, "")
