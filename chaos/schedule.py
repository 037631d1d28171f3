"""Scenario and seed to timed steps; pure. (Interim.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chaos import faults
from chaos.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    at: float
    fault: str
    do: str
    action: Any


def schedule(scenario: Scenario, seed: int) -> tuple[TimedStep, ...]:
    steps = []
    last = 0.0
    for number, step in enumerate(scenario.timeline, 1):
        fault = step.name or f"f{number}"
        do = type(step.action).__name__.lower()
        steps.append(TimedStep(at=step.at, fault=fault, do=do, action=step.action))
        last = max(last, step.at)
        if step.duration is not None:
            steps.append(TimedStep(at=step.at + step.duration, fault=fault, do="end", action=End(fault=fault)))
            last = max(last, step.at + step.duration)
    for load in scenario.workload:
        last = max(last, load.start + load.count / load.rate)
    steps.append(TimedStep(at=last, fault="heal", do="heal", action=faults.Heal()))
    for member in scenario.cluster.members:
        steps.append(TimedStep(at=last, fault="heal", do="resume", action=faults.Resume(member=member)))
        steps.append(TimedStep(at=last, fault="heal", do="consume", action=faults.Consume(member=member)))
    return tuple(sorted(steps, key=lambda step: step.at))
