"""What is done to guests by the steps of a timeline, and for how long each fault is said to act."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.chaos import faults
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.guests.nemesis import AFTERMATH_SECONDS, GuestNemesis
from stormcast.chaos.language.schedule import End, TimedStep
from stormcast.chaos.records.rig_trace import RigTrace


class FakeGuest:
    def __init__(self) -> None:
        self.is_alive, self.is_paused, self.starts = True, False, 1

    def kill(self) -> None:
        self.is_alive = False

    def start(self) -> None:
        assert not self.is_alive
        self.is_alive, self.starts = True, self.starts + 1

    def resume(self) -> None:
        self.is_paused = False


class FakeLab:
    """Guests without processes, and a network that may refuse."""

    def __init__(self) -> None:
        self.guests = {"a": FakeGuest(), "b": FakeGuest()}
        self.applied: list[tuple[str, ...]] = []
        self.refuses = False

    def apply(self, active: dict[str, Any]) -> None:
        if self.refuses:
            raise BackendError("what acted has ended")
        self.applied.append(tuple(active))

    def pause(self, name: str) -> int:
        self.guests[name].is_paused = True
        return 1

    def bites(self) -> dict[str, dict[tuple[str, str], int]]:
        return {}


class Stage:
    def __init__(self) -> None:
        self.lab = FakeLab()
        self.nemesis = GuestNemesis(self.lab, RigTrace())  # type: ignore[arg-type]

    def do(self, *steps: tuple[str, Any]) -> None:
        self.nemesis.do_all(
            TimedStep(at=0.0, fault=fault, do=type(action).__name__.lower(), action=action)
            for fault, action in steps
        )

    def lasted(self) -> dict[str, float]:
        now = 1e6
        return {one.name: one.end - one.start for one in self.nemesis.windows(0.0, now)}


CUT = faults.Cut(sources=("a",), dests=("b",))


def test_changes_of_the_network_that_are_due_together_are_one() -> None:
    stage = Stage()
    stage.do(("f1", CUT), ("f2", CUT))
    stage.do(("f1", End(fault="f1")), ("f3", CUT))
    stage.do(("", faults.Heal()))
    assert stage.lab.applied == [("f1", "f2"), ("f2", "f3"), ()]
    assert set(stage.lasted()) == {"f1", "f2", "f3"}


def test_a_fault_that_nothing_has_ended_lasts_until_now() -> None:
    stage = Stage()
    stage.do(("f1", CUT))
    stage.lab.refuses = True
    with pytest.raises(BackendError):
        stage.nemesis.heal_all()
    assert stage.lasted()["f1"] > 1000


def test_the_end_of_a_crash_is_no_fault_of_its_own() -> None:
    stage = Stage()
    stage.do(("f1", faults.Crash(member="a")))
    assert stage.nemesis.stayed_down() == {"a"}
    stage.do(("f1", faults.Restart(member="a")))
    assert stage.lab.guests["a"].starts == 2
    assert (stage.nemesis.bites(), stage.nemesis.stayed_down()) == ({"f1": 1}, frozenset())
    assert list(stage.lasted()) == ["f1"]


def test_who_is_killed_for_good_is_a_fault_for_a_moment() -> None:
    stage = Stage()
    stage.do(("f1", faults.Crash(member="a")))
    stage.nemesis.heal_all()
    assert stage.lasted() == {"f1": pytest.approx(AFTERMATH_SECONDS)}


def test_a_crash_ends_the_pause_of_that_guest() -> None:
    stage = Stage()
    stage.do(("f1", faults.Pause(member="a")), ("f2", faults.Crash(member="a")))
    stage.do(("f1", faults.Resume(member="a")))
    assert stage.nemesis.bites() == {"f1": 1, "f2": 1}
    assert stage.lasted()["f1"] < 1000


def test_what_strikes_the_dead_has_no_effect() -> None:
    stage = Stage()
    stage.do(("f1", faults.Crash(member="a")), ("f2", faults.Pause(member="a")))
    stage.do(("f3", faults.Crash(member="a")))
    assert stage.nemesis.bites() == {"f1": 1, "f2": 0, "f3": 0}
