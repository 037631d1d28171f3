"""What grows over the windows of a soak is told from noise, and from members that begin anew."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random
from typing import Any

import pytest

from stormcast.chaos.soak.drift import JUDGE, LIMITS, MOST, Drift, drifts
from stormcast.weights import weigh

MIB = 1 << 20


def windows(
    number: int, leak: float = 0.0, lives: int = 10, first: int = 0
) -> list[dict[str, Any]]:
    """A line for each minute; n0 is started anew after so many, and members leak MiB an hour."""
    dice, found = Random(1), []
    for nth in range(number):
        weights = {}
        for name, pid, age in (("n0", nth // lives, nth % lives), ("n1", 0, nth)):
            # A young process takes less, and soon has what it needs.
            memory = 30 * MIB + min(age, 2) * MIB + leak * MIB * age / 60 + dice.gauss(0, MIB / 20)
            weights[f"{name}:{first + pid}"] = weight(memory)
        judge = {"memory": 90 * MIB, "descriptors": 9 + nth // 5, "threads": 3, "cpu": 5}
        found.append(line({**weights, JUDGE: judge}, first))
    return found


def weight(memory: float) -> dict[str, float]:
    return {"memory": memory, "descriptors": 20, "threads": 1, "cpu": 1}


def line(weights: dict[str, dict[str, float]], process: int = 0) -> dict[str, Any]:
    """A line of a window that lasted a minute; the soak was begun, or resumed, with another."""
    return {"seconds": 60.0, "weights": weights, "process": process}


def short_lived(
    number: int, lives: int, rises: int, names: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Members that are started anew after so many minutes, and take a MiB a minute for a while."""
    return [
        line(
            {
                f"{name}:{nth // lives}": weight((30 + min(nth % lives, rises)) * MIB)
                for name in names
            }
        )
        for nth in range(number)
    ]


def told(lines: list[dict[str, Any]], latest: int = MOST) -> dict[tuple[str, str], Drift]:
    return {(one.of, one.figure): one for one in drifts(lines, latest)}


def test_a_leak_is_found_and_noise_is_none() -> None:
    found = told(windows(61, leak=20.0))
    assert found["members", "memory"].grows
    assert 15 * MIB < found["members", "memory"].slope.value < 25 * MIB
    assert not told(windows(60))["members", "memory"].grows


def test_members_that_begin_anew_grow_no_more_for_it() -> None:
    """Each incarnation is compared with itself alone."""
    assert not told(windows(61, lives=6))["members", "memory"].grows
    assert told(windows(61, leak=40.0, lives=6))["members", "memory"].grows


@pytest.mark.parametrize("lives", [3, 10, 30])
def test_of_members_that_live_for_minutes_nothing_is_said(lives: int) -> None:
    """Hours of windows are no hours of a process: what it takes when it is young is no growth."""
    lines = short_lived(240, lives, rises=2, names=("n0", "n1", "n2"))
    assert told(lines)["members", "memory"].as_json()["verdict"] == "too short"


def test_what_young_members_take_is_not_compared() -> None:
    """Nine that live for ten minutes grow all the time; one lives for an hour, and does not."""
    young = short_lived(61, 10, rises=10, names=tuple(f"n{n}" for n in range(1, 10)))
    lines = [line({**one["weights"], "n0:1": weight(50 * MIB)}) for one in young]
    found = told(lines)["members", "memory"]
    assert found.as_json()["verdict"] == "steady"
    assert found.slope.value == 0


def test_one_member_that_lives_for_hours_is_enough() -> None:
    young = short_lived(121, 3, rises=2, names=("n1", "n2", "n3"))
    lines = [
        line({**one["weights"], "n0:1": weight((50 + nth / 6) * MIB)})
        for nth, one in enumerate(young)
    ]
    found = told(lines)["members", "memory"]
    assert found.grows
    assert found.slope.value == pytest.approx(10 * MIB)


def judged(number: int, process: int) -> list[dict[str, Any]]:
    """A judge that takes 20 MiB more an hour."""
    weights = [{JUDGE: weight((90 + nth / 3) * MIB)} for nth in range(number)]
    return [line(one, process) for one in weights]


def test_a_soak_that_went_on_is_judged_by_another_process() -> None:
    """Each leaks; the second began with what the first took at its begin."""
    found = told([*judged(61, 0), *judged(61, 61)])[JUDGE, "memory"]
    assert found.grows
    assert found.slope.value == pytest.approx(20 * MIB)
    parts = [one for nth in range(4) for one in judged(30, 30 * nth)]
    assert told(parts)[JUDGE, "memory"].as_json()["verdict"] == "too short"


def busy(
    number: int, cpu: float = 0.0, latency: float = 0.0, **more: object
) -> list[dict[str, Any]]:
    """Windows of 4,000 messages each, which take n0 and the agent 2 s of CPU, and 5 ms from sending
    to delivery; more by the hour."""
    dice, found, taken = Random(2), [], 0.0
    for nth in range(number):
        taken += (2.0 + cpu * nth / 60) * dice.uniform(0.9, 1.1)
        both = {name: weight(50 * MIB) | {"cpu": taken} for name in ("n0:1", "agent:a")}
        costs = {"latency": (0.005 + latency * nth / 60) * dice.uniform(0.8, 1.2)}
        window = line(both) | {"sent": 1000, "delivered": 3000, "costs": costs}
        found.append(window | more)
    return found


def test_messages_that_take_more_cpu_each_or_longer_are_found() -> None:
    found = told(busy(91, cpu=2.0, latency=0.004))
    for of in ("members", "agents"):
        assert found[of, "cpu"].grows
        # Two seconds an hour, in windows of 4,000 messages.
        assert found[of, "cpu"].slope.value == pytest.approx(0.5, rel=0.2)
    assert found["messages", "latency"].grows
    assert found["messages", "latency"].slope.value == pytest.approx(0.004, rel=0.3)
    steady = told(busy(91))
    assert {one.as_json()["verdict"] for one in steady.values()} == {"steady"}
    assert steady["members", "cpu"].limit == pytest.approx(0.125, rel=0.1)


def test_cpu_counts_from_the_window_before_and_where_messages_were_enough() -> None:
    few = busy(91, sent=0, delivered=999)
    assert ("members", "cpu") not in told(few)
    # By turns another stack plays: what the agent takes meanwhile is of no window of this one.
    turns = [one | {"runs": f"{nth % 2}"} for nth, one in enumerate(busy(91))]
    assert ("agents", "cpu") not in told(turns)


def test_what_another_stack_takes_is_no_growth() -> None:
    """Four have a quarter of the soak each, and each takes more than the one before."""
    lines, cpu = [], 0.0
    for nth in range(240):
        turn = nth // 60
        cpu += 2.0 * 4**turn
        figures = weight((50 + 50 * turn) * MIB) | {"cpu": cpu}
        lines.append(line({"agent:a": figures}) | {"sent": 4000, "runs": str(turn)})
    assert not any(one.grows for one in told(lines).values())
    alike = [one | {"runs": "udp"} for one in lines]
    assert {one.figure for one in told(alike).values() if one.grows} == {"cpu", "memory"}


def test_a_journal_that_is_not_emptied_is_found() -> None:
    lines = [line({"n0:1": weight(MIB) | {"journal": nth * MIB}}) for nth in range(91)]
    assert told(lines)["members", "journal"].grows


def test_the_judge_is_weighed_too() -> None:
    found = told(windows(61))
    assert found[JUDGE, "descriptors"].grows
    assert found[JUDGE, "descriptors"].as_json()["verdict"] == "grows"
    assert found[JUDGE, "memory"].as_json()["verdict"] == "steady"


def test_of_a_few_windows_nothing_is_said() -> None:
    found = told(windows(5, leak=1000.0))
    assert {one.as_json()["verdict"] for one in found.values()} == {"too short"}
    assert found["members", "memory"].as_json()["per_hour"] is None
    assert told([{"seconds": 60.0}]) == {}


def test_before_a_process_is_an_hour_old_nothing_is_said() -> None:
    """Until then it may still take what it needs."""
    early = told(windows(60, leak=40.0))["members", "memory"]
    assert not early.grows
    assert early.as_json()["verdict"] == "too short"
    assert early.as_json()["per_hour"] is not None
    assert told(windows(61, leak=40.0))["members", "memory"].grows


def test_only_the_latest_windows_are_compared_however_long_the_soak_is() -> None:
    """Sixty-one that leaked, and then as many that did not. A process is as old as it is, however
    few windows are compared."""
    lines = [*windows(61, leak=40.0), *windows(61, first=100)]
    assert told(lines[:61], latest=50)["members", "memory"].grows
    found = told(lines, latest=50)
    assert not found["members", "memory"].grows
    assert {one.as_json()["verdict"] for one in found.values()} <= {"steady", "grows"}


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
    assert set(LIMITS) - {"journal"} < set(weight)
    assert weight["threads"] == 2
    assert weight["descriptors"] >= 4
    assert 2 * MIB < weight["memory"] < 200 * MIB
    with pytest.raises(OSError, match=str(child.pid)):
        weigh(child.pid)
    assert weigh(os.getpid())["cpu"] > 0
