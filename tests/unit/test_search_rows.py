"""The directory of a search: rows that are whole, each seed once, and no two searches in one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.campaigns.rows import (
    PART,
    Reader,
    SearchDirectory,
    SeedResult,
    StorageError,
    keep_run,
    plan_of,
    read_line,
    read_plan,
)
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.core.errors import ConfigError

SMALL = """\
name: small
guarantees: [G1]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: n1, count: 1}
"""


def a_row(seed: int, **more: Any) -> SeedResult:
    given: dict[str, Any] = {"verdict": Verdict.HOLDS, "events": 10, "messages": 5, "faults": ()}
    return SeedResult(seed=seed, **(given | more))


def begun(path: Path, seeds: int = 40) -> SearchDirectory:
    directory = SearchDirectory(path)
    with directory.opened(plan_of([0], seeds)):
        return directory


def write(directory: SearchDirectory, lines: Iterable[str], part: range = range(20)) -> None:
    with directory.writer(part) as file:
        file.writelines(lines)


# -- Rows ------------------------------------------------------------------------------------------


def test_a_row_says_what_was_asked_of_it_and_reads_back_as_it_was() -> None:
    row = a_row(
        5,
        verdict=Verdict.VIOLATED,
        faults=("loss", "cut"),
        broken=("G1: “lost”",),
        guarantee="G1",
        fingerprint="G1: lost",
        attempt=2,
        owed=12,
        seconds=0.25,
    )
    kept = json.loads(row.as_line())
    assert kept == {
        "seed": 5,
        "cell": "UNICAST×delay",
        "verdict": "violated",
        "guarantee": "G1",
        "fingerprint": "G1: lost",
        "events": 10,
        "messages": 5,
        "attempt": 2,
        "owed": 12,
        "seconds": 0.25,
        "faults": ["loss", "cut"],
        "broken": ["G1: “lost”"],
    }
    assert read_line(row.as_line().encode()) == row


def test_a_row_of_an_older_search_is_read() -> None:
    """It does not say which of the scenarios of its seed was run, nor what was owed."""
    kept = json.loads(a_row(5, attempt=2, owed=7).as_line())
    del kept["attempt"], kept["owed"]
    assert read_line(json.dumps(kept).encode()) == a_row(5, attempt=None, owed=None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b"\0\0\0",
        b'{"seed": 1, "verd',
        a_row(1).as_line()[:-1].encode(),
        a_row(1).as_line().replace("holds", "fine").encode(),
    ],
)
def test_a_damaged_line_is_no_row(line: bytes) -> None:
    assert read_line(line) is None


def test_rows_are_read_as_they_come_each_seed_once(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    reader = Reader(directory)
    assert list(reader.new()) == []
    with directory.writer(range(20)) as file:
        file.write(a_row(1).as_line() + "\n")
        assert [row.seed for row in reader.new()] == [1]
        assert list(reader.new()) == []
        file.write(a_row(2).as_line() + "\n" + a_row(1, events=7).as_line() + "\n")
        assert [row.seed for row in reader.new()] == [2]
    write(directory, [a_row(seed).as_line() + "\n" for seed in (2, 3)])
    assert [row.seed for row in reader.new()] == [3]
    assert reader.seeds == {1, 2, 3}


def test_a_line_that_was_not_finished_is_no_row_until_it_is(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    reader = Reader(directory)
    line = a_row(1).as_line() + "\n"
    with directory.writer(range(20)) as file:
        file.write(line[:-1])
        file.flush()
        assert list(reader.new()) == []
        assert [row.seed for row in directory.rows_of(range(20))] == [1]
        file.write(line[-1:])
        assert [row.seed for row in reader.new()] == [1]


def test_the_rows_of_a_part_are_those_of_all_who_ran_it(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    write(directory, [a_row(0).as_line() + "\n", a_row(1).as_line()[:9]])
    write(directory, [a_row(1).as_line() + "\n"])
    write(directory, [a_row(20).as_line() + "\n"], range(20, 40))
    assert sorted(row.seed for row in directory.rows_of(range(20))) == [0, 1]


# -- Plans -----------------------------------------------------------------------------------------


def test_a_plan_is_cut_into_parts_within_its_ranges() -> None:
    plan = plan_of([100, 0], PART + 1)
    assert plan.parts() == [range(100, 120), range(120, 121), range(20), range(20, 21)]
    assert len(plan) == 42
    assert plan.words() == "--seeds 21 --from 100 --from 0"


def test_ranges_may_touch_and_not_overlap() -> None:
    assert len(plan_of([10, 0], 10)) == 20
    with pytest.raises(ConfigError, match="11 seeds from 0 and from 10 overlap"):
        plan_of([10, 0], 11)


# -- Directories -----------------------------------------------------------------------------------


def test_a_directory_of_the_same_search_is_gone_on_with(tmp_path: Path) -> None:
    plan = plan_of([3, 50], 7)
    for _ in range(2):
        with SearchDirectory(tmp_path / "new" / "deep").opened(plan):
            assert read_plan(tmp_path / "new" / "deep") == plan


def test_another_range_is_refused_with_the_one_it_is_of(tmp_path: Path) -> None:
    begun(tmp_path)
    with (
        pytest.raises(ConfigError, match="is of another search: --seeds 40 --from 0;"),
        SearchDirectory(tmp_path).opened(plan_of([0], 41)),
    ):
        pass


def test_another_version_is_refused_with_what_differs(tmp_path: Path) -> None:
    begun(tmp_path)
    kept = json.loads((tmp_path / "search.json").read_text())
    kept["versions"]["code"] = "older"
    (tmp_path / "search.json").write_text(json.dumps(kept))
    with (
        pytest.raises(ConfigError, match=r"begun by another version \(code older, here "),
        SearchDirectory(tmp_path).opened(plan_of([0], 40)),
    ):
        pass


@pytest.mark.parametrize("text", ["", "[]", '{"ranges": [], "versions": {}}', '{"ranges": 3}'])
def test_a_damaged_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(ConfigError, match="is damaged"):
        read_plan(tmp_path)


def test_what_is_no_search_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("words")
    with (
        pytest.raises(ConfigError, match="is not empty, and no search"),
        SearchDirectory(tmp_path).opened(plan_of([0], 40)),
    ):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_search_that_was_killed_before_its_plan_was_there_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / ".unfinished-search.json").write_text('{"ranges": [{"fr')
    begun(tmp_path)
    assert len(read_plan(tmp_path)) == 40
    assert not (tmp_path / ".unfinished-search.json").exists()


def test_two_searches_at_once_do_not_share_a_directory(tmp_path: Path) -> None:
    plan = plan_of([0], 40)
    with (
        SearchDirectory(tmp_path).opened(plan),
        pytest.raises(ConfigError, match="another search runs in"),
        SearchDirectory(tmp_path).opened(plan),
    ):
        pass
    with SearchDirectory(tmp_path).opened(plan):
        pass


# -- Kept runs -------------------------------------------------------------------------------------


def an_outcome() -> RunOutcome:
    return run_scenario(parse_scenario(SMALL), 1)


def test_a_run_is_kept_whole_and_stays(tmp_path: Path) -> None:
    """The second time it is the same run; what was added to the first is not lost."""
    for _ in range(2):
        keep_run(an_outcome(), tmp_path / "seed-1")
        (tmp_path / "seed-1" / "minimal.yaml").touch()
    assert [one.name for one in tmp_path.iterdir()] == ["seed-1"]
    assert (tmp_path / "seed-1" / "minimal.yaml").exists()
    assert (tmp_path / "seed-1" / "verdict.json").is_file()


def test_a_run_that_cannot_be_kept_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "seed-1").touch()
    with pytest.raises(StorageError, match="seed-1 cannot be written: "):
        keep_run(an_outcome(), tmp_path / "seed-1")
    assert [one.name for one in tmp_path.iterdir()] == ["seed-1"]


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    (tmp_path / ".unfinished-seed-3-abc" / "trace").mkdir(parents=True)
    with directory.opened(plan_of([0], 40)):
        pass
    assert not list(tmp_path.glob(".unfinished*"))
