"""The agenda of a scenario: steps to come, also when they are late."""

from __future__ import annotations

from stormcast.chaos import faults
from stormcast.chaos.language.schedule import TimedStep
from stormcast.chaos.session.agenda import Agenda


def agenda(*steps: TimedStep) -> Agenda:
    return Agenda(steps, (), ("n0", "n1"))


def step(at: float, action: faults.Action) -> TimedStep:
    return TimedStep(at=at, fault="f1", do="on", action=action)


def test_a_start_that_is_late_is_still_to_come_until_it_is_taken() -> None:
    """Who has a load for that member is told of it in this moment (seed 7862675919)."""
    steps = agenda(step(1.0, faults.Join(member="n1")), step(2.0, faults.Join(member="n1")))

    assert steps.take_steps(0.9) == []
    assert list(steps.still_to_come()) == ["n1"]
    assert len(steps.take_steps(1.5)) == 1
    assert list(steps.still_to_come()) == ["n1"]
    assert len(steps.take_steps(2.5)) == 1
    assert list(steps.still_to_come()) == []


def test_a_start_by_role_may_be_that_of_anyone() -> None:
    steps = agenda(step(1.0, faults.Restart(member="random")))

    assert list(steps.still_to_come()) == ["n0", "n1"]
    steps.take_steps(1.0)
    assert list(steps.still_to_come()) == []
