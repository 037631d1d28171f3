"""A rig that is killed while it starts its members leaves no process, wherever it was."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns import RunId, clean
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.backends.netns.process import environment, until
from stormcast.chaos.backends.run_id import start_of
from tests.helpers.sessions import session_of

pytestmark = [pytest.mark.root, pytest.mark.slow]

KILLS = 10
SEED = 1
CHILDREN = 7
"""Processes that stay, in the order of their start: an agent that tells the features, the watch,
three members, the agent of the run; a kill after one more never comes."""
HESITATION = 0.1
"""Seconds that each child takes before it asks to die with its parent: else a point between its
start and that moment would hardly ever be met."""
END_SECONDS = 10.0
SCENARIO = """
name: pair
guarantees: [G1]
cluster: {members: 3, stack: udp, timing: fast}
workload:
  - {do: multicast, from: all, count: 100, rate: 50/s, size: 16B}
timeline:
  - {at: 500ms, do: cut, from: n0, to: n1, for: 500ms}
limits: {run: 20s, settle: 2s}
"""
_SLOW_TO_ASK = f"""#!/bin/sh
echo $$ >> "$STARTED"
sleep {HESITATION}
PATH=${{PATH#*:}}
exec setpriv "$@"
"""


def test_a_rig_that_is_killed_at_any_point_of_starting_leaves_nothing(tmp_path: Path) -> None:
    """Ten points drawn from a seed, by how many children were started and how long ago."""
    scenario, tools = tmp_path / "pair.yaml", tmp_path / "tools"
    scenario.write_text(SCENARIO)
    tools.mkdir()
    (tools / "setpriv").write_text(_SLOW_TO_ASK)
    (tools / "setpriv").chmod(0o755)
    draw = random.Random(SEED)
    for number in range(KILLS):
        after, pause = draw.randrange(1, CHILDREN), draw.uniform(0.0, 1.2 * HESITATION)
        kill_one(tmp_path / str(number), scenario, tools, after, pause)


def kill_one(folder: Path, scenario: Path, tools: Path, after: int, pause: float) -> None:
    """Kill a rig `pause` seconds after its child number `after` was started."""
    folder.mkdir()
    started = folder / "started"
    started.touch()
    words = (sys.executable, "-m", "stormcast", "run", str(scenario), "--backend", "netns")
    told = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "STARTED": str(started)}
    with (folder / "log").open("wb") as log:
        rig = subprocess.Popen(
            (*words, "--out", str(folder / "run")),
            env=environment(told),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    mine = rig.pid, start_of(rig.pid)

    def was_its(run: RunId) -> bool:
        return (run.pid, run.started) == mine

    try:
        until(
            lambda: len(started.read_text().split()) >= after or rig.poll() is not None,
            60.0,
            (folder / "log").read_text,
        )
        assert rig.poll() is None, (folder / "log").read_text()
        time.sleep(pause)
        rig.kill()
        rig.wait()
        until(
            lambda: not session_of(rig.pid),
            END_SECONDS,
            lambda: "\n".join(map(str, session_of(rig.pid))),
        )
        assert not leftovers(is_left=was_its).processes
    finally:
        rig.kill()
        rig.wait()
        clean(is_left=was_its)
    assert not leftovers(is_left=was_its).names()
