"""Scenarios like a given one, with other steps or settings."""

from __future__ import annotations

from dataclasses import replace

from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import Step


def with_steps(scenario: Scenario, *steps: Step) -> Scenario:
    """Add steps to the timeline."""
    timeline = sorted([*scenario.timeline, *steps], key=lambda step: step.at)
    return replace(scenario, timeline=tuple(timeline))


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


def largest(scenario: Scenario) -> int:
    """Return the size of the largest message that a load may send."""
    return max(load.size[1] for load in scenario.workload)
