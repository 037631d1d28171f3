"""Scenarios like a given one, with other steps or settings."""

from __future__ import annotations

from dataclasses import replace

from stormcast.chaos import faults
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad


def with_steps(scenario: Scenario, *steps: Step) -> Scenario:
    """Add steps to the timeline."""
    timeline = sorted([*scenario.timeline, *steps], key=lambda step: step.at)
    return replace(scenario, timeline=tuple(timeline))


def with_loads(scenario: Scenario, *loads: ScenarioLoad) -> Scenario:
    """Add loads to the workload."""
    return replace(scenario, workload=(*scenario.workload, *loads))


def with_unicast(scenario: Scenario, **values: object) -> Scenario:
    """Set settings of the unicast protocol."""
    settings = {**dict(scenario.cluster.settings), **values}
    cluster = replace(scenario.cluster, settings=tuple(sorted(settings.items())))
    return replace(scenario, cluster=cluster)


def with_multicast(scenario: Scenario, **values: object) -> Scenario:
    """Set settings of the multicast protocol."""
    settings = {**dict(scenario.cluster.multicast_settings), **values}
    cluster = replace(scenario.cluster, multicast_settings=tuple(sorted(settings.items())))
    return replace(scenario, cluster=cluster)


def with_protocol(scenario: Scenario, name: str, **values: object) -> Scenario:
    """Set settings of another protocol."""
    protocols = dict(scenario.cluster.protocols)
    settings = {**dict(protocols.get(name, ())), **values}
    protocols[name] = tuple(sorted(settings.items()))
    cluster = replace(scenario.cluster, protocols=tuple(protocols.items()))
    return replace(scenario, cluster=cluster)


def longer_by(scenario: Scenario, seconds: float) -> Scenario:
    """Have closed connections remembered, and alarms wait, for longer than the scenario says: by as
    much later a frame may come."""
    life, alarm = _close_timeout(scenario), _gap_alarm(scenario)
    if life is not None:
        scenario = with_unicast(scenario, conn_close_timeout=life + seconds)
    if alarm is not None:
        scenario = with_multicast(scenario, gap_alarm=alarm + seconds)
    return scenario


def remembering_for(scenario: Scenario, seconds: float) -> Scenario:
    """Have closed connections remembered, and alarms wait, for so long at least."""
    life, alarm = _close_timeout(scenario), _gap_alarm(scenario)
    if life is not None:
        scenario = with_unicast(scenario, conn_close_timeout=max(life, seconds))
    if alarm is not None:
        scenario = with_multicast(scenario, gap_alarm=max(alarm, seconds))
    return scenario


def _close_timeout(scenario: Scenario) -> float | None:
    value = dict(scenario.cluster.settings).get("conn_close_timeout")
    return value if isinstance(value, float) else None


def _gap_alarm(scenario: Scenario) -> float | None:
    value = dict(scenario.cluster.multicast_settings).get("gap_alarm")
    return value if isinstance(value, float) else None


def never_repairs(scenario: Scenario) -> bool:
    """Whether multicasts are not retransmitted, or not for a while."""
    return scenario.cluster.stack == "tcp-no-retransmit" or any(
        isinstance(step.action, faults.SetAttribute)
        and step.action.attribute == "NAKACK2.xmit_interval"
        and step.action.value == 0.0
        for step in scenario.timeline
    )
