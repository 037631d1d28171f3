"""`stormcast search`: what it finds is one table, what it has begun it goes on with."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.campaigns.rows import SearchDirectory, StorageError, keep_run
from stormcast.chaos.campaigns.shrink.trials import Trials
from stormcast.chaos.language.scenario import Scenario, load_scenario, parse_scenario
from stormcast.chaos.session import runner
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.record import RunRecord
from stormcast.node.protocols.unicast import Unicast
from tests.helpers.shell import Shell

LOSSY = """\
name: lossy
guarantees: [G1]
cluster: {members: 3}
workload:
  - {do: unicast, from: n0, to: [n1, n2], count: 5}
timeline:
  - {at: 0s, do: loss, rate: 90%, for: 1s}
"""
"""For a protocol that never repairs."""


class Deaf(Unicast):
    """A mutant that never repairs: whatever is lost last is lost for good."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._repairs._repair = lambda _entry, _now: None


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed is a small scenario, on a protocol that loses messages; the larger the seed, the
    more it does besides."""
    simulate = runner.simulate

    def generate(seed: int, _attempt: int = 0) -> Scenario:
        return parse_scenario(LOSSY.replace("count: 5", f"count: {5 + seed % 10}"))

    def with_a_flaw(scenario: Scenario, seed: int, **more: Any) -> RunRecord:
        return simulate(scenario, seed, **(more | {"make_unicast": Deaf}))

    monkeypatch.setattr("stormcast.chaos.campaigns.search.generate", generate)
    monkeypatch.setattr("stormcast.chaos.session.runner.simulate", with_a_flaw)


def rows_in(directory: Path) -> list[dict[str, Any]]:
    texts = (path.read_text() for path in (directory / "rows").iterdir())
    return [json.loads(line) for text in texts for line in text.splitlines()]


# -- What was found --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("deaf")
def test_what_is_found_is_one_table_with_the_smallest_shrunk(shell: Shell) -> None:
    said = shell("search", "--seeds", 6, "--from", 5, "--workers", 1, "--out", "kept", "--json")
    assert said.code == 1
    assert said.err == "shrinking 1 of them, for 1min 00s each at most\n"
    (found,) = said.json["findings"]
    assert (found["verdict"], found["guarantee"], found["first"]) == ("violated", "G1", 5)
    assert found["fingerprint"] == "G1: seqno 0 was sent and never delivered"
    assert found["seeds"] == said.json["violations"] == 6
    smallest = found["smallest"]
    rows = rows_in(Path("kept"))
    assert min(rows, key=lambda row: (row["events"], row["seed"]))["seed"] == smallest
    assert found["run"] == f"kept/seed-{smallest}"
    assert found["shrunk"] == f"kept/seed-{smallest}/minimal.yaml"
    left = load_scenario(found["shrunk"])
    assert len(left.cluster.members) == 2
    assert sum(load.count for load in left.workload) == 1

    table = shell("search", "--seeds", 6, "--from", 5, "--workers", 1, "--out", "kept")
    assert (table.code, table.err) == (1, "")  # It is shrunk already.
    lines = [line.split(maxsplit=4) for line in table.out.splitlines()]
    assert lines[0] == ["seeds", "first", "verdict", "kept", "failure"]
    assert lines[1] == ["6", "5", "violated", found["shrunk"], found["fingerprint"]]
    assert "again: stormcast search --seeds 1 --from 5" in table.out
    assert "6 seeds from 5 (6 of them before), 6 violated, 0 unknown, " in table.out


@pytest.mark.slow
@pytest.mark.usefixtures("deaf")
def test_nothing_is_shrunk_where_nobody_wants_it(shell: Shell) -> None:
    said = shell(
        "search", "--seeds", 1, "--workers", 1, "--out", "kept", "--shrink-budget", 0, "--json"
    )
    assert (said.code, said.err) == (1, "")
    (found,) = said.json["findings"]
    assert (found["run"], found["shrunk"]) == ("kept/seed-0", None)


@pytest.mark.slow
@pytest.mark.usefixtures("deaf")
def test_ctrl_c_while_it_shrinks_keeps_the_smallest_so_far(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, runs = Trials._judged, []

    def impatient(trials: Trials, candidate: Scenario) -> object:
        runs.append(candidate)
        if len(runs) == 5:
            raise KeyboardInterrupt
        return judged(trials, candidate)

    monkeypatch.setattr(Trials, "_judged", impatient)
    said = shell("search", "--seeds", 1, "--workers", 1, "--out", "kept")
    assert said.code == 130
    assert "interrupted after 1 of 1 seeds" in said.err
    assert "kept/seed-0/minimal.yaml  G1: seqno 0 was sent and never delivered" in said.out
    assert load_scenario("kept/seed-0/minimal.yaml").name == "lossy-minimal"


@pytest.mark.usefixtures("deaf")
def test_ctrl_c_in_a_run_leaves_no_row_of_it_and_ends_the_search(
    shell: Shell, ctrl_c: Callable[[int], None]
) -> None:
    words = ("search", "--seeds", 3, "--workers", 1, "--out", "kept", "--shrink-budget", 0)
    ctrl_c(2)
    said = shell(*words)
    assert said.code == 130
    assert "interrupted after 1 of 3 seeds" in said.err
    assert [row["seed"] for row in rows_in(Path("kept"))] == [0]
    assert shell(*words, "--json").json["violations"] == 3


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """Called with an error: has it come once, in the run of seed 1."""

    def in_run(error: Exception) -> None:
        simulate, left = runner.simulate, [error]

        def fails(scenario: Scenario, seed: int, **more: Any) -> RunRecord:
            if seed == 1 and left:
                raise left.pop()
            return simulate(scenario, seed, **more)

        monkeypatch.setattr("stormcast.chaos.session.runner.simulate", fails)

    return in_run


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MemoryError(), "seed 1 has no result: cannot allocate memory; give it more"),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "seed 1 has no result: too many open files; raise the limit",
        ),
    ],
)
def test_a_machine_that_has_no_more_says_nothing_of_the_run_and_hides_no_violation(
    shell: Shell, exhausted: Callable[[Exception], None], error: Exception, why: str
) -> None:
    words = ("search", "--seeds", 3, "--workers", 1, "--out", "kept", "--shrink-budget", 0)
    exhausted(error)
    said = shell(*words)
    assert said.code == 1
    assert said.err.startswith(f"stormcast: {why}")
    assert said.err.count("\n") == 1
    assert "1 seeds from 0, 1 violated, 0 unknown, " in said.out
    assert [row["seed"] for row in rows_in(Path("kept"))] == [0]

    again = shell(*words, "--json")
    assert (again.json["seeds"], again.json["violations"], again.json["resumed"]) == (3, 3, 1)
    assert [one["guarantee"] for one in again.json["findings"]] == ["G1"]


def test_a_machine_that_has_no_more_is_no_verdict(
    shell: Shell, exhausted: Callable[[Exception], None]
) -> None:
    exhausted(MemoryError())
    said = shell("search", "--seeds", 2, "--workers", 1, "--out", "kept")
    assert said.code == 3
    assert "1 seeds from 0, 0 violated, 0 unknown, " in said.out


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("what", ["runs", "rows"])
def test_a_full_disk_hides_no_violation_that_was_found_before(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The second of two seeds has no room for its run directory, or for its rows."""
    writer = SearchDirectory.writer

    def no_run(outcome: RunOutcome, directory: Path) -> None:
        if directory.name == "seed-100":
            raise StorageError(f"{directory} cannot be written: no room")
        keep_run(outcome, directory)

    def no_rows(directory: SearchDirectory, part: range) -> Any:
        if part.start == 100:
            raise OSError(errno.ENOSPC, "No space left on device", "rows")
        return writer(directory, part)

    if what == "runs":
        monkeypatch.setattr("stormcast.chaos.campaigns.search.keep_run", no_run)
    else:
        monkeypatch.setattr(SearchDirectory, "writer", no_rows)
    words = ("search", "--seeds", 1, "--from", 0, "--from", 100, "--workers", 1, "--out", "kept")
    said = shell(*words, "--shrink-budget", 0)
    assert said.code == 1
    assert "1 seeds from 0, 100, 1 violated, 0 unknown, " in said.out
    assert said.err.startswith("stormcast: ")
    assert "no room" in said.err or "no space left on device" in said.err


# -- Where it begins -------------------------------------------------------------------------------


def test_a_search_begins_where_it_is_told_and_may_begin_at_several_places(shell: Shell) -> None:
    said = shell("search", "--seeds", 1, "--from", 1234, "--from", 88, "--workers", 1, "--json")
    assert said.code == 0
    assert said.json["ranges"] == [{"from": 1234, "seeds": 1}, {"from": 88, "seeds": 1}]
    assert said.json["seeds"] == 2
    assert sorted(row["seed"] for row in rows_in(Path("runs/search"))) == [88, 1234]


def test_a_drawn_range_is_said_so_that_it_can_be_repeated(shell: Shell) -> None:
    said = shell("search", "--seeds", 1, "--from", "random", "--workers", 1, "--json")
    first = said.json["ranges"][0]["from"]
    assert said.err == f"drawn: stormcast search --seeds 1 --from {first}\n"
    other = shell("search", "--seeds", 1, "--from", "random", "--workers", 1, "--json")
    assert other.json["ranges"][0]["from"] != first


def test_each_search_has_a_directory_of_its_own_unless_it_is_told(shell: Shell) -> None:
    for name in ("search", "search-2", "search-3"):
        said = shell("search", "--seeds", 1, "--workers", 1, "--json")
        assert (said.json["out"], said.json["resumed"]) == (f"runs/{name}", 0)
    said = shell("search", "--seeds", 1, "--workers", 1, "--json", "--out", "runs/search-2")
    assert (said.json["seeds"], said.json["resumed"]) == (1, 1)


# -- What is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--from", "soon"), "'soon' is no seed: write a whole number from 0"),
        (("--seeds", 5, "--from", 3, "--from", 7), "5 seeds from 3 and from 7 overlap"),
        (("--shrink-budget", "60"), "'60': "),
        (("--conf", "a=b"), "--conf and --py-files are of --master, which is missing"),
        (("--master", "local", "--workers", 2), "--workers are processes of this machine"),
        (("--master", "local", "--conf", "spark.ui"), "'spark.ui': write KEY=VALUE"),
        (("--master", "local", "--py-files", "a.zip"), "--py-files a.zip is no file"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], why: str
) -> None:
    monkeypatch.setattr("stormcast.pipeline.session.check_java", lambda _who: None)
    said = shell("search", *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err
    assert list(shell.folder.iterdir()) == []


def test_a_directory_of_another_search_is_refused_with_the_reason(shell: Shell) -> None:
    assert shell("search", "--seeds", 1, "--workers", 1, "--out", "kept").code == 0
    said = shell("search", "--seeds", 2, "--workers", 1, "--out", "kept")
    assert (said.code, said.out) == (2, "")
    assert "kept is of another search: --seeds 1 --from 0; ask for that one to go on" in said.err


def test_without_pyspark_a_master_is_refused_with_the_extra_that_has_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    said = shell("search", "--seeds", 1, "--master", "local[2]", "--out", "kept")
    assert (said.code, said.out) == (3, "")
    assert said.err == (
        "stormcast: search --master needs PySpark: pip install 'stormcast[verify]'\n"
    )
    assert not Path("kept").exists()
    assert shell("search", "--seeds", 1, "--workers", 1, "--out", "kept").code == 0
