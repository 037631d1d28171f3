"""The stack that a scenario asks for, as every backend sets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from stormcast.chaos.faults import SetAttribute
from stormcast.chaos.language.cluster import Cluster, Settings
from stormcast.chaos.language.scenario import Scenario
from stormcast.node.core.errors import ConfigError, require
from stormcast.node.reading.documents import read_document
from stormcast.node.reading.error_places import to_blame
from stormcast.node.settings import StackSettings, is_of_test_protocol, load_settings

STREAM_TRANSPORTS: Final = frozenset({"TCP", "TCP_NIO2"})
_NO_STACK: Final = Cluster(members=())
_SINGLE: Final = ("stack", "timing", "unicast", "max_batch")
_OF_PROTOCOLS: Final = ("settings", "historical", "multicast_settings")

Keys = tuple[str, ...]
"""The keys that lead to a value within `cluster`."""


def settings_of(scenario: Scenario) -> StackSettings:
    """Return the stack that a scenario asks for. A setting that cannot work is refused with its
    place in the file."""
    cluster = scenario.cluster
    try:
        settings = _settings(cluster)
    except ConfigError as error:
        if error.place is not None or not scenario.text:
            raise
        keys = to_blame(
            list(_said(cluster)), error.message, lambda keys: _settings(_without(cluster, keys))
        )
        place = read_document(scenario.text, scenario.path).place("cluster", *(keys or ()))
        raise ConfigError(error.message, place) from None
    _check_changes(scenario, settings)
    return settings


def _check_changes(scenario: Scenario, settings: StackSettings) -> None:
    """Refuse steps that change a setting to what no member would take: else a run breaks off in its
    middle."""
    present: dict[str, dict[str, Any]] = {}
    steps = [
        (step.at, number, step.action)
        for number, step in enumerate(scenario.timeline)
        if isinstance(step.action, SetAttribute)
    ]
    for _at, number, action in sorted(steps, key=lambda step: step[:2]):
        if is_of_test_protocol(action.attribute):
            continue
        configs = present.setdefault(action.member, {})
        try:
            protocol, config = settings.with_attribute(action.attribute, action.value, configs)
        except ConfigError as error:
            if error.place is not None or not scenario.text:
                raise
            place = read_document(scenario.text, scenario.path).place("timeline", number)
            raise ConfigError(error.message, place) from None
        configs[protocol] = config


def _settings(cluster: Cluster) -> StackSettings:
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
        # Only the stack knows which protocol these settings are for.
        multicast = load().multicast or ""
        require(
            bool(multicast),
            f"multicast_settings: stack {cluster.stack} has no multicast; choose another stack",
        )
        of_multicast = dict(cluster.multicast_settings)
        protocols[multicast] = protocols.get(multicast, {}) | of_multicast
    return load(protocols=protocols) if protocols else load()


def _said(cluster: Cluster) -> Iterator[Keys]:
    """Yield the keys of everything that a cluster says of its stack."""
    yield from ((name,) for name in _SINGLE if getattr(cluster, name) != getattr(_NO_STACK, name))
    for part in _OF_PROTOCOLS:
        yield from ((part, name) for name, _value in getattr(cluster, part))
    for protocol, values in cluster.protocols:
        yield "protocols", protocol
        yield from (("protocols", protocol, name) for name, _value in values)


def _without(cluster: Cluster, keys: Keys) -> Cluster:
    part, *rest = keys
    if part != "protocols":
        values = getattr(cluster, part)
        left: Any = _rest(values, rest[0]) if rest else getattr(_NO_STACK, part)
        return replace(cluster, **{part: left})
    protocol, *names = rest
    kept = [
        (name, _rest(values, names[0]) if names and name == protocol else values)
        for name, values in cluster.protocols
        if names or name != protocol
    ]
    return replace(cluster, protocols=tuple(kept))


def _rest(settings: Settings, name: str) -> Settings:
    return tuple(pair for pair in settings if pair[0] != name)


def is_stream(scenario: Scenario) -> bool:
    """Whether frames travel within connections."""
    return settings_of(scenario).transport in STREAM_TRANSPORTS
