"""Whether the run of a drawn scenario tests enough to be the result of its seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from stormcast.chaos.campaigns.generate import cell_of, least_of
from stormcast.chaos.faults import SetAttribute
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.language.timeline import CURES, WORDS, Step
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.node.settings import is_of_test_protocol

DEEDS: Final = frozenset({"change-keys"})
"""Kinds of steps that bite whenever they are done, whether or not they trouble anybody."""


def is_enough(seed: int, outcome: RunOutcome) -> bool:
    """Whether a run met what `least_of` asks for, its leading fault among the faults that bit."""
    least, owed = least_of(seed), outcome.judgement.owed
    if owed is None or owed.owed < least.owed or outcome.run.sent < least.messages:
        return False
    _stack, leading = cell_of(seed)
    kinds = bitten_kinds(outcome)
    return leading in kinds and sum(kind not in DEEDS for kind in kinds) >= least.bites


def bitten_kinds(outcome: RunOutcome) -> list[str]:
    """Return the kind of each fault that bit, without changes of a setting to the value that it
    had."""
    bites = outcome.run.bites
    bitten = {name: step for name, step in _faults(outcome.scenario) if bites.get(name)}
    idle = _idle_changes(outcome.scenario) if _has_change(bitten.values()) else set()
    return [WORDS[type(step.action)] for name, step in bitten.items() if name not in idle]


def _faults(scenario: Scenario) -> Iterator[tuple[str, Step]]:
    """Yield for every fault of a scenario its id in the run, and its step. The kind is the word of
    the step: a churn runs as leaves and joins, whose words differ."""
    steps = (step for step in scenario.timeline if not isinstance(step.action, CURES))
    for number, step in enumerate(steps, 1):
        yield step.name or f"f{number}", step


def _has_change(steps: Iterable[Step]) -> bool:
    return any(isinstance(step.action, SetAttribute) for step in steps)


def _idle_changes(scenario: Scenario) -> set[str]:
    """Return the ids of steps that give a setting the value that it has by the steps before."""
    settings = settings_of(scenario)
    present: dict[str, dict[str, Any]] = {}
    idle = set()
    for name, step in sorted(_faults(scenario), key=lambda fault: fault[1].at):
        action = step.action
        if not isinstance(action, SetAttribute) or is_of_test_protocol(action.attribute):
            continue
        configs = present.setdefault(action.member, {})
        protocol, config = settings.with_attribute(action.attribute, action.value, configs)
        if config == configs.get(protocol, settings.of(protocol)):
            idle.add(name)
        configs[protocol] = config
    return idle
