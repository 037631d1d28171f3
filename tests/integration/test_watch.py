"""The process that notes when the machine stood still, and what becomes of a run without it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns.process import until
from stormcast.chaos.backends.netns.watch import Watch
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.session import play

PAIR = """
name: pair
guarantees: [G1, G3]
cluster: {members: 2, timing: fast}
workload: [{do: unicast, from: n0, to: n1, count: 10, rate: 50/s}]
"""


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(RunId.next(), tmp_path)
    yield watch
    watch.close()


def test_a_time_without_a_look_is_noted(watch: Watch, tmp_path: Path) -> None:
    """A watch that is stopped sees what it sees when the whole machine is."""
    started = time.monotonic()
    deadline = 10.0
    while not watch.spans() and time.monotonic() < started + deadline:
        os.kill(watch.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(watch.pid, signal.SIGCONT)
        time.sleep(0.1)

    start, end = watch.spans()[-1]
    assert started - 0.1 < start < end - 0.2 < time.monotonic()
    assert (tmp_path / "watch.log").read_text().count("\n") == len(watch.spans())


def test_a_watch_that_was_killed_says_so(watch: Watch) -> None:
    os.kill(watch.pid, signal.SIGKILL)
    with pytest.raises(BackendError, match=r"the watch over the clock ended \(-9\)"):
        until(lambda: bool(watch.spans()), 10.0, lambda: "it is dead")


@pytest.mark.parametrize("words", ["Traceback (most recent call last):", "1.5", "1 2 3", "12.5 1x"])
def test_what_a_watch_never_writes_is_no_span(watch: Watch, tmp_path: Path, words: str) -> None:
    with (tmp_path / "watch.log").open("a") as log:
        log.write(f"{words}\n")
    with pytest.raises(BackendError, match="the watch over the clock wrote"):
        watch.spans()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "nonsense"])
def test_a_run_without_its_watch_is_unknown_and_keeps_its_traces(
    watch: Watch, tmp_path: Path, *, is_killed: bool
) -> None:
    class Watched(SimBackend):
        def standstills(self) -> list[tuple[float, float]]:
            return watch.spans()

    if is_killed:
        os.kill(watch.pid, signal.SIGKILL)
    (tmp_path / "watch.log").write_text("Traceback (most recent call last):\n")
    scenario = parse_scenario(PAIR)

    run = play(scenario, 1, Watched(), tmp_path)

    assert judge_run(scenario, run).verdict is Verdict.UNKNOWN
    assert "the watch over the clock" in run.broke_off
    assert {"n0-1", "n1-1", "rig"} == set(run.traces)
