"""A run directory is of one run: nobody gets that of another, however many begin at once."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.records.directory import BEGUN, LATEST, TakenError, make_fresh, take, taken
from stormcast.chaos.session import runner
from stormcast.chaos.session.outcome import RunOutcome, write_run
from stormcast.chaos.session.runner import run_scenario
from stormcast.whole import write_whole

MANY = 24


def test_each_run_of_one_name_has_a_directory_of_its_own(tmp_path: Path) -> None:
    names = [make_fresh(tmp_path, "storm-7").name for _ in range(3)]
    assert names == ["storm-7", "storm-7-2", "storm-7-3"]


def test_runs_that_begin_at_once_never_share_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(MANY) as pool:
        made = list(pool.map(lambda _: make_fresh(tmp_path, "x"), range(MANY)))
    assert len(set(made)) == MANY


def test_of_those_who_take_one_directory_at_once_one_gets_it(tmp_path: Path) -> None:
    def gets_it(_number: int) -> bool:
        try:
            take(tmp_path / "x")
        except TakenError:
            return False
        return True

    with ThreadPoolExecutor(MANY) as pool:
        assert sum(pool.map(gets_it, range(MANY))) == 1


def test_the_link_leads_to_the_one_begun_last(tmp_path: Path) -> None:
    for name in ("a", "b", "a"):
        make_fresh(tmp_path, name)
    assert (tmp_path / LATEST).readlink() == Path("a-2")
    assert (tmp_path / LATEST).resolve() == tmp_path / "a-2"


def test_a_directory_of_the_users_own_with_the_name_of_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / LATEST).mkdir()
    make_fresh(tmp_path, "a")
    assert not (tmp_path / LATEST).is_symlink()


def test_one_that_holds_anything_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(TakenError, match=r"not empty.*--out"):
        take(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_an_empty_one_is_taken_once(tmp_path: Path) -> None:
    take(tmp_path)
    with pytest.raises(TakenError):
        take(tmp_path)


def test_of_a_run_that_never_began_nothing_is_left(tmp_path: Path) -> None:
    directory = make_fresh(tmp_path / "runs", "a")
    _break_off(directory, "logs/n0")
    assert list(tmp_path.iterdir()) == []


def test_of_a_run_that_broke_off_everything_is_left(tmp_path: Path) -> None:
    directory = make_fresh(tmp_path, "a")
    _break_off(directory, "logs", "log")
    assert {path.name for path in directory.iterdir()} == {BEGUN, "logs", "log"}


def test_what_another_run_makes_in_a_directory_that_is_free_again_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is free as soon as BEGUN is gone: then nothing in it is of the run that broke off."""
    unlink = Path.unlink

    def unlink_and_be_overtaken(path: Path, *, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        if path.name == BEGUN:
            take(tmp_path / "a")
            (tmp_path / "a" / "logs").mkdir()

    monkeypatch.setattr(Path, "unlink", unlink_and_be_overtaken)
    _break_off(tmp_path / "a", "logs/n0")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {BEGUN, "logs"}


def _break_off(directory: Path, folder: str, file: str | None = None) -> None:
    """A run that makes these, and then cannot go on."""
    with suppress(KeyError), taken(directory):
        (directory / folder).mkdir(parents=True)
        if file is not None:
            (directory / file).write_text("why")
        raise KeyError


def test_no_run_is_written_over_another(tmp_path: Path) -> None:
    scenario = find_shipped("order-under-loss").read()
    outcome = run_scenario(scenario, 1, out=tmp_path / "a")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")}
    with pytest.raises(TakenError):
        run_scenario(scenario, 2, out=tmp_path / "a")
    with pytest.raises(TakenError):
        write_run(outcome, tmp_path / "a")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")} == before


# -- What a kill or a full disk leaves ------------------------------------------------------------


class _Played:
    """A run on a backend that has just been played: its journals lie in its logs."""

    def __init__(self, outcome: RunOutcome, monkeypatch: pytest.MonkeyPatch) -> None:
        self._outcome = outcome
        monkeypatch.setattr(runner, "play", self._play)

    def _play(
        self, _scenario: object, _seed: int, _backend: object, logs: Path, **_: object
    ) -> Any:
        journal = logs / "n0" / "journal" / "n0-1"
        journal.mkdir(parents=True)
        (journal / "000000.trace").write_bytes(b"STRC")
        return self._outcome.run

    def run_in(self, directory: Path) -> None:
        runner.run_on(SimBackend(), self._outcome.scenario, 1, out=directory)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> _Played:
    return _Played(run_scenario(find_shipped("order-under-loss").read(), 1), monkeypatch)


def test_what_members_wrote_is_kept_before_it_is_judged(
    tmp_path: Path, played: _Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed while it judges has the traces on disk, and no verdict."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "judge_run", die)
    with pytest.raises(KeyboardInterrupt):
        played.run_in(tmp_path / "run")
    kept = {path.name for path in (tmp_path / "run" / "trace").iterdir()}
    assert kept == {f"{label}.trace" for label in played._outcome.run.traces}
    assert not (tmp_path / "run" / "verdict.json").exists()
    assert not list((tmp_path / "run" / "logs").glob("*/journal"))


def test_journals_stay_where_there_is_no_room_for_traces(
    tmp_path: Path, played: _Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes = Path.write_bytes

    def run_out(path: Path, data: bytes) -> int:
        if path.name == "rig.trace":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", run_out)
    with pytest.raises(OSError, match="No space left"):
        played.run_in(tmp_path / "run")
    assert (tmp_path / "run/logs/n0/journal/n0-1/000000.trace").exists()
    assert not [path for path in (tmp_path / "run").rglob("*") if path.parent.name == "trace"]
    assert not (tmp_path / "run" / ".trace.part").exists()


def test_a_verdict_is_there_as_a_whole_or_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verdict.json"
    write_whole(path, '{"verdict": "unknown"}')
    write_text = Path.write_text

    def half(path: Path, text: str, **words: Any) -> int:
        write_text(path, text[: len(text) // 2], **words)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, '{"verdict": "holds"}')
    assert path.read_text() == '{"verdict": "unknown"}'
    assert list(tmp_path.iterdir()) == [path]
