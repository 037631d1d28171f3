"""What grows over the windows of a soak is told from noise, and from members that begin anew."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random
from typing import Any

import pytest

from stormcast.chaos.drivers.weights import weigh
from stormcast.chaos.soak.drift import JUDGE, LIMITS, Drift, drifts

MIB = 1 << 20


def windows(number: int, leak: float = 0.0, lives: int = 10) -> list[dict[str, Any]]:
    """A line for each minute; n0 is started anew after so many, and members leak MiB an hour."""
    dice, found = Random(1), []
    for nth in range(number):
        weights = {}
        for name, pid, age in (("n0", nth // lives, nth % lives), ("n1", 0, nth)):
            # A young process takes less, and soon has what it needs.
            memory = 30 * MIB + min(age, 2) * MIB + leak * MIB * age / 60 + dice.gauss(0, MIB / 20)
            weights[f"{name}:{pid}"] = {"memory": memory, "descriptors": 20, "threads": 1, "cpu": 1}
        weights[JUDGE] = {"memory": 90 * MIB, "descriptors": 9 + nth // 5, "threads": 3, "cpu": 5}
        found.append({"seconds": 60.0, "weights": weights})
    return found


def told(lines: list[dict[str, Any]]) -> dict[tuple[str, str], Drift]:
    return {(one.of, one.figure): one for one in drifts(lines)}


def test_a_leak_is_found_and_noise_is_none() -> None:
    found = told(windows(60, leak=20.0))
    assert found["members", "memory"].grows
    assert 15 * MIB < found["members", "memory"].slope.value < 25 * MIB
    assert not told(windows(60))["members", "memory"].grows


def test_members_that_begin_anew_grow_no_more_for_it() -> None:
    """Each incarnation is compared with itself alone."""
    assert not told(windows(60, lives=6))["members", "memory"].grows
    assert told(windows(60, leak=40.0, lives=6))["members", "memory"].grows


def test_the_judge_is_weighed_too() -> None:
    found = told(windows(60))
    assert found[JUDGE, "descriptors"].grows
    assert found[JUDGE, "descriptors"].as_json()["verdict"] == "grows"
    assert found[JUDGE, "memory"].as_json()["verdict"] == "steady"


def test_of_a_few_windows_nothing_is_said() -> None:
    found = told(windows(5, leak=1000.0))
    assert {one.as_json()["verdict"] for one in found.values()} == {"too short"}
    assert found["members", "memory"].as_json()["per_hour"] is None
    assert told([{"seconds": 60.0}]) == {}


def test_before_an_hour_is_over_nothing_is_said() -> None:
    """Until then a process may still take what it needs."""
    early = told(windows(59, leak=40.0))["members", "memory"]
    assert not early.grows
    assert early.as_json()["verdict"] == "too short"
    assert early.as_json()["per_hour"] is not None
    assert told(windows(60, leak=40.0))["members", "memory"].grows


def test_only_the_latest_windows_are_compared_however_long_the_soak_is() -> None:
    """Sixty that leaked, and then sixty that did not."""
    lines = [*windows(60, leak=40.0), *windows(60)]
    assert not drifts(lines, latest=50)[1].grows
    assert {one.as_json()["verdict"] for one in drifts(lines, latest=50)} <= {"steady", "grows"}


def test_a_process_is_weighed() -> None:
    code = "import sys, threading; e = threading.Event(); t = threading.Thread(target=e.wait)\n"
    code += "t.daemon = True; t.start(); f = open('/dev/null'); print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        weight = weigh(child.pid)
        child.communicate(b"\n")
    assert set(LIMITS) < set(weight)
    assert weight["threads"] == 2
    assert weight["descriptors"] >= 4
    assert 2 * MIB < weight["memory"] < 200 * MIB
    with pytest.raises(OSError, match=str(child.pid)):
        weigh(child.pid)
    assert weigh(os.getpid())["cpu"] > 0
