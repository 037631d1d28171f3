"""A `stormcast verify` that is killed while Java starts: `clean` ends what it has started."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns.leftovers import clean
from stormcast.chaos.backends.netns.process import environment, until
from stormcast.chaos.backends.run_id import RunId, start_of
from tests.helpers.sessions import Seen, session_of
from tests.kills.judges import make_run
from tests.kills.seen import kill_now

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.root, pytest.mark.slow]

SECONDS = 60.0
VERSION = 'if [ "$1" = -version ]; then echo \'openjdk version "17"\' >&2; exit; fi'
"""What an older Java does at once, and a slow one after a while."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.mark.parametrize("tells_version", [True, False])
def test_java_that_is_starting_for_a_killed_judge_is_ended(
    run: Path, tmp_path: Path, tells_version: bool
) -> None:
    """A Java that never gets so far as to see that the judge is gone, for its version or for
    Spark."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    started = tmp_path / "started"
    version = VERSION if tells_version else ""
    java.write_text(f"#!/bin/sh\n{version}\ntouch {started}\nexec sleep 300\n")
    java.chmod(0o755)
    words = (sys.executable, "-m", "stormcast", "verify", run, "--out", tmp_path / "out")
    judge = subprocess.Popen(
        words,
        env=environment({"JAVA_HOME": str(tmp_path / "home")}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    mine = judge.pid, start_of(judge.pid)

    def was_its(run: RunId) -> bool:
        return (run.pid, run.started) == mine

    try:
        until(started.exists, SECONDS, lambda: "Java was not started")
        judge.kill()
        judge.wait()
        assert left_of(judge)
        clean(is_left=was_its)
        assert left_of(judge) == []
        assert not list(Path(tempfile.gettempdir()).glob(f"sc{mine[0]}-{mine[1]}-*"))
    finally:
        judge.kill()
        judge.wait()
        for one in left_of(judge):
            kill_now(one)


def left_of(judge: subprocess.Popen[bytes]) -> list[Seen]:
    return session_of(judge.pid)
