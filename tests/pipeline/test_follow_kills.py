"""`stormcast verify --follow` as a process: killed, started again, stopped, and beside a soak that
goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from stormcast.chaos.soak.player import Soak, Window
from stormcast.cli import Exit, main
from stormcast.pipeline import session
from stormcast.pipeline.questions import CannotError
from tests.mutants.hunt import named
from tests.oracles.story import Story
from tests.pipeline.soaks import MadeSoak, lines

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).parents[2]
SECONDS = 400.0
"""For what takes half a minute on a machine that has nothing else to do."""
SOUND = Story().a_clean_exchange().told()
LOSSY = Story().a_clean_exchange().at(2.0).sends(6).told()
LOST = {"guarantee": "G1", "verdict": "violated", "detail": "6 was lost", "witness": []}
DYING = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from stormcast import verify
from stormcast.cli import main
from stormcast.pipeline import follow, follow_log, followed

point, *words = sys.argv[1:]

def after(owner, name, is_now=lambda *words: True):
    do = getattr(owner, name)
    def done(*words):
        found = do(*words)
        if is_now(*words):
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(owner, name, done)

def before(owner, name, is_now=lambda *words: True):
    do = getattr(owner, name)
    def done(*words):
        if is_now(*words):
            os.kill(os.getpid(), signal.SIGKILL)
        return do(*words)
    setattr(owner, name, done)

# One guarantee is enough, and takes a tenth of the time.
ask = verify._question
verify._question = lambda *words: replace(ask(*words), guarantees=("G1",))
{
    "judged": lambda: before(
        follow_log, "append_lines", lambda path, text: '"chapter": 0,' in text),
    "verdict": lambda: after(
        follow_log, "append_lines", lambda path, text: path.name == "verdicts.jsonl"
        and '"chapter": 1,' in text),
    "alarm": lambda: after(
        follow_log, "append_lines", lambda path, text: path.name == "alarms.jsonl"
        and '"chapter": 3,' in text),
    "removed": lambda: before(followed.FollowedSoak, "end"),
    "uncommitted": lambda: after(follow.Follower, "_judge"),
    "nowhere": lambda: None,
}[point]()
sys.exit(main(["verify", "--master", "local[1]", "--follow", *words]))
"""
GENTLE = """\
name: gentle
cluster: {members: 3, stack: udp, timing: fast}
kinds: [partition, cut, loss, delay, duplicate, reorder, corrupt, crash, restart, leave, pause,
  stall]
window: 10s
loads: 1
rate: 5/s..10/s
sizes: [16B..100B]
"""


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        session.check_java()
    except CannotError as why:
        pytest.skip(str(why))


class Follow:
    """One follower, and what it has said so far."""

    def __init__(self, *words: str | Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.out, self.err = list[str](), list[str]()
        self._readers = [
            threading.Thread(target=self._read, args=told, daemon=True)
            for told in ((self._process.stdout, self.out), (self._process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, said: list[str]) -> None:
        said.extend(iter(stream.readline, ""))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        code = self._process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        return code

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def wait_for(is_so: Callable[[], object], said: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, said()
        time.sleep(0.1)


@pytest.fixture(name="made")
def _made(tmp_path: Path) -> MadeSoak:
    """Four chapters, two of them violated."""
    made = MadeSoak(tmp_path / "soak")
    for chapter in range(4):
        is_lossy = chapter % 2 == 1
        made.add(chapter, LOSSY if is_lossy else SOUND, *(("violated", [LOST]) if is_lossy else ()))
        made.announce(chapter)
    made.end()
    return made


def test_wherever_it_is_killed_each_chapter_and_each_alarm_counts_once(made: MadeSoak) -> None:
    """Before a verdict is written, between it and its alarm, before the alarm is told, before a
    manifest is removed, and before the stream's offsets are committed."""
    out = list[str]()
    judged = {"judged": [], "verdict": [0, 1], "alarm": [0, 1, 2, 3], "uncommitted": [0, 1, 2, 3]}
    for point, chapters in judged.items():
        with Follow("-c", DYING, point, made.path) as follower:
            assert follower.end() == -signal.SIGKILL, follower.err
            out += follower.out
        assert [one["chapter"] for one in made.verdicts()] == chapters, point

    made.add(4, SOUND)
    made.announce(4)
    with Follow("-c", DYING, "removed", made.path) as follower:
        assert follower.end() == -signal.SIGKILL, follower.err
        out += follower.out
    assert made.manifest(4).exists()
    assert not made.directory(4).exists()
    with Follow("-c", DYING, "nowhere", made.path) as follower:
        assert follower.end() == Exit.VIOLATED, follower.err
        out += follower.out

    told = made.verdicts()
    assert [one["chapter"] for one in told] == [0, 1, 2, 3, 4]
    assert [one["verdict"] for one in told] == ["holds", "violated", "holds", "violated", "holds"]
    assert [(one["chapter"], one["guarantee"]) for one in made.alarms()] == [(1, "G1"), (3, "G1")]
    # An alarm that is in the file and was not printed when the process was killed stays there.
    for chapter in (1, 3):
        assert sum(line.startswith(f"chapter {chapter}: G1 violated") for line in out) <= 1
    assert out[-1] == "follow: violated   5 chapters: 3 hold, 2 violated, 0 unknown\n"
    assert sorted(path.name for path in made.chapters.glob("0*")) == ["000001", "000003"]
    assert list((made.chapters / "announced").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_it_has(made: MadeSoak, number: signal.Signals) -> None:
    """The soak is not over, so it would wait for ever."""
    made.end(is_over=False)
    for chapter in (1, 3):
        made.manifest(chapter).unlink()
    with Follow("-c", DYING, "nowhere", made.path, "--until-over") as follower:
        wait_for(lambda: len(made.verdicts()) == 2 or follower.is_over, lambda: follower.err)
        follower.send(number)
        assert follower.end() == Exit.INTERRUPTED, follower.err
    assert follower.out == ["follow: holds   2 chapters: 2 hold, 0 violated, 0 unknown\n"]
    assert all(line.startswith("stormcast verify: ") for line in follower.err), follower.err


@pytest.fixture(name="mutant")
def _mutant() -> Iterator[None]:
    """Requests are answered in part: with this seed that shows in window 1 alone."""
    with named("multicast-requests-are-answered-in-part").alive():
        yield


@pytest.mark.usefixtures("mutant")
def test_a_violation_in_a_soak_is_told_while_the_soak_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gentle.yaml").write_text(GENTLE)
    soak = tmp_path / "soak"
    followers = list[Follow]()
    play = Soak._window

    def window(player: Soak, number: int) -> Window:
        """Window 3 begins once the follower has told what was in window 1."""
        if not followers:
            followers.append(Follow("-m", "stormcast", "verify", "--follow", soak))
        (follower,) = followers
        alarms = soak / "follow/alarms.jsonl"
        if number == 3:
            wait_for(lambda: lines(alarms) or follower.is_over, lambda: follower.err)
            assert not follower.is_over, follower.err
        return play(player, number)

    monkeypatch.setattr(Soak, "_window", window)
    words = ("--storm", "gentle.yaml", "--for", "60s", "--out", "soak", "--keep-chapters")
    code = main(["soak", *words])
    (follower,) = followers
    with follower:
        assert follower.end() == code == Exit.VIOLATED, follower.err

    windows = lines(soak / "windows.jsonl")
    bad = [one["window"] for one in windows if one["verdict"] != "holds"]
    assert bad == [1], "else the test shows nothing"
    (alarm,) = lines(soak / "follow/alarms.jsonl")
    assert (alarm["chapter"], alarm["guarantee"]) == (1, windows[1]["findings"][0]["guarantee"])
    assert 0.0 < alarm["told"] - alarm["ended"] < SECONDS
    # Of docs/soak.md: shown by `pytest -rP`.
    sys.stdout.write(f"told {alarm['told'] - alarm['ended']:.1f} s after the end of its window\n")
    assert sum(line.startswith("chapter 1: ") for line in follower.out) == 1
    verdicts = {one["chapter"]: one for one in lines(soak / "follow/verdicts.jsonl")}
    assert sorted(verdicts) == [one["window"] for one in windows]
    assert all(one["judged"] and one["agrees"] for one in verdicts.values())
    assert [path.name for path in (soak / "chapters").glob("0*")] == ["000001"]
    assert (soak / "chapters/000001/report.html").is_file()
    status = json.loads((soak / "status.json").read_text())
    assert status["spark"]["verdicts"] == {"holds": len(windows) - 1, "violated": 1}
    assert 'class="spark violated"' in (soak / "report.html").read_text()
