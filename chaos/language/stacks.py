"""The stack that a scenario asks for, as every backend sets it."""

from __future__ import annotations

from functools import partial
from typing import Final

from stormcast.chaos.language.scenario import Scenario
from stormcast.node.core.errors import require
from stormcast.node.settings import StackSettings, load_settings

STREAM_TRANSPORTS: Final = frozenset({"TCP", "TCP_NIO2"})


def settings_of(scenario: Scenario) -> StackSettings:
    """The stack that a scenario asks for."""
    cluster = scenario.cluster
    protocols = {name: dict(values) for name, values in cluster.protocols}
    load = partial(
        load_settings,
        cluster.stack,
        cluster.timing,
        unicast=cluster.unicast,
        overrides=dict(cluster.settings),
        historical=dict(cluster.historical),
        max_batch=cluster.max_batch,
    )
    if cluster.multicast_settings:
        # Which protocol they are for, only the stack knows.
        multicast = load().multicast or ""
        require(
            bool(multicast),
            f"multicast_settings: stack {cluster.stack} has no multicast; choose another stack",
        )
        of_multicast = dict(cluster.multicast_settings)
        protocols[multicast] = protocols.get(multicast, {}) | of_multicast
    return load(protocols=protocols) if protocols else load()


def is_stream(scenario: Scenario) -> bool:
    """Whether frames travel within connections."""
    return settings_of(scenario).transport in STREAM_TRANSPORTS
