"""`stormcast verify --follow` without Spark: what it refuses, and what it leaves of a soak."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stormcast import verify as glue
from stormcast.cli import Exit
from stormcast.locks import is_held, lock
from stormcast.pipeline import session
from stormcast.pipeline.follow import FollowOrder
from tests.helpers.shell import Shell
from tests.pipeline.soaks import MadeSoak


@pytest.fixture(name="orders")
def _orders(monkeypatch: pytest.MonkeyPatch) -> list[FollowOrder]:
    """What the command orders, where Java and PySpark are here."""
    for name in ("check_java", "check_pyspark", "check_pyarrow"):
        monkeypatch.setattr(session, name, lambda: None)
    orders = list[FollowOrder]()

    def follow(order: FollowOrder, _master: str, _settings: Mapping[str, str]) -> int:
        orders.append(order)
        return 0

    monkeypatch.setattr(glue, "follow", follow)
    return orders


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a run directory, or a soak with --follow"),
        (["--follow", "soak", "run"], "--follow: it is in place of runs; drop one of them"),
        (["--follow", "soak", "--out", "x"], "--out: it is about runs"),
        (["--follow", "soak", "--tables", "x"], "--tables: it is about runs"),
        (["run", "--until-over"], "--until-over: it is about a soak"),
        (["--follow", "nowhere"], "nowhere is no soak: name what stormcast soak has left"),
        (["--follow", "empty"], "empty is no soak: name what stormcast soak has left"),
        (["--follow", "plain"], "plain keeps no chapters: stormcast soak --keep-chapters does"),
        (["--follow", "other"], "other/follow is of another soak: remove it, or follow that one"),
        (["--follow", "half"], "half/follow is of another soak: remove it, or follow that one"),
        (["--follow", "torn"], "torn/chapters/about.json is no JSON"),
    ],
)
def test_what_cannot_be_followed_is_refused_in_a_line(
    shell: Shell, orders: list[FollowOrder], words: list[str], said: str
) -> None:
    Path("empty").mkdir()
    Path("plain").mkdir()
    Path("plain/soak.json").write_text("{}")
    for name in ("soak", "other", "half", "torn"):
        MadeSoak(Path(name))
    Path("other/follow").mkdir()
    Path("other/follow/of").write_text("another\n")
    Path("half/follow/checkpoint").mkdir(parents=True)
    Path("torn/chapters/about.json").write_text("{half")

    done = shell("verify", *words)

    assert done.code == Exit.USAGE
    assert said in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert orders == []


def test_without_java_or_pyspark_the_remedy_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    MadeSoak(Path("soak"))
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nowhere")
        patched.delenv("JAVA_HOME", raising=False)
        done = shell("verify", "--follow", "soak")
    assert done.code == Exit.UNKNOWN
    assert "install one (apt-get install openjdk-17-jre-headless)" in done.err
    for name in ("pyspark", "pyarrow"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, None)
            done = shell("verify", "--follow", "soak")
        assert done.code == Exit.UNKNOWN
        assert "pip install 'stormcast[verify]'" in done.err
    assert not Path("soak/follow").exists()


def test_of_two_that_follow_one_soak_the_second_is_refused(
    shell: Shell, orders: list[FollowOrder]
) -> None:
    MadeSoak(Path("soak"))
    assert shell("verify", "--follow", "soak").code == Exit.HOLDS
    with ExitStack() as held:
        assert lock(Path("soak/follow"), held) is None
        done = shell("verify", "--follow", "soak")
    assert done.code == Exit.USAGE
    assert "another stormcast verify writes to soak/follow" in done.err
    assert len(orders) == 1


def test_it_is_over_when_no_chapter_can_come(shell: Shell, orders: list[FollowOrder]) -> None:
    """A soak that is played goes on, whatever an earlier process of it has said; one that was
    killed may be resumed."""
    made = MadeSoak(Path("soak"))
    shell("verify", "--follow", "soak")
    soak = orders[0].soak

    assert soak.is_over(until_over=False)
    assert not soak.is_over(until_over=True), "it was killed"
    made.end()
    assert soak.is_over(until_over=True)
    with ExitStack() as held:
        assert is_held(made.path) is False
        lock(made.path, held)
        assert is_held(made.path) is True
        assert not soak.is_over(until_over=False)
    assert is_held(made.path) is False


def test_where_storage_has_no_locks_the_status_says_that_it_is_over(
    shell: Shell, orders: list[FollowOrder], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeSoak(Path("soak"))
    shell("verify", "--follow", "soak")
    monkeypatch.setattr("stormcast.pipeline.followed.is_held", lambda _path: None)
    assert not orders[0].soak.is_over(until_over=False)
    made.end()
    assert orders[0].soak.is_over(until_over=False)


def line(**more: object) -> str:
    told = {"chapter": 0, "first": 0, "verdict": "violated", "own": "holds", "judged": True}
    return json.dumps({**told, "agrees": False, "why": "", "findings": [], **more}) + "\n"


@pytest.mark.parametrize(
    ("said", "wanted"), [("holds", "unknown"), ("unknown", "unknown"), ("violated", "violated")]
)
def test_at_the_end_page_and_status_of_the_soak_show_what_spark_said(
    shell: Shell, orders: list[FollowOrder], said: str, wanted: str
) -> None:
    made = MadeSoak(Path("soak"))
    made.play(0)
    made.end(verdict=said)
    shell("verify", "--follow", "soak")
    Path("soak/follow/verdicts.jsonl").write_text(line())

    orders[0].on_end()

    status = json.loads(Path("soak/status.json").read_text())
    assert (status["verdict"], status["is_over"]) == (wanted, True)
    assert status["spark"]["disputed"] == [0]
    assert 'class="spark violated"' in Path("soak/report.html").read_text()


def test_a_soak_that_is_played_writes_its_page_itself(
    shell: Shell, orders: list[FollowOrder]
) -> None:
    made = MadeSoak(Path("soak"))
    made.play(0)
    shell("verify", "--follow", "soak")
    with ExitStack() as held:
        lock(made.path, held)
        orders[0].on_end()
    assert not Path("soak/report.html").exists()


def test_a_page_that_cannot_be_written_is_a_line(
    shell: Shell, orders: list[FollowOrder], capsys: pytest.CaptureFixture[str]
) -> None:
    made = MadeSoak(Path("soak"))
    (made.path / "windows.jsonl").write_text("{half\n{}\n")
    shell("verify", "--follow", "soak")
    orders[0].on_end()
    assert "stormcast verify: no report of the soak: " in capsys.readouterr().err


def test_a_chapter_is_asked_about_as_a_run(shell: Shell, orders: list[FollowOrder]) -> None:
    """With what the oracles found, and without a word about its export."""
    soak: Any = shell("soak", "--for", "5s", "--keep-chapters", "--out", "soak", "--seed", 3)
    assert soak.code == Exit.HOLDS
    shell("verify", "--follow", "soak")
    question = orders[0].ask(Path("soak/chapters/000000"), "000000")
    assert (question.run, question.min_bites, question.is_interrupted) == ("000000", 0, False)
    assert question.guarantees is not None
    assert "G8" in question.guarantees
    assert question.expected is not None
    assert {str(one.verdict) for one in question.own} == {"holds"}
    assert shell.said() == ("", "")
