"""The stack that a scenario asks for, as every backend sets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from stormcast.chaos.faults import SetAttribute
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.protocol_settings import Settings
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.workload import ExpectView
from stormcast.node.core.errors import ConfigError, Place, require
from stormcast.node.reading.documents import read_document
from stormcast.node.reading.error_places import to_blame
from stormcast.node.settings import StackSettings, is_of_test_protocol, load_settings

STREAM_TRANSPORTS: Final = frozenset({"TCP", "TCP_NIO2"})
_NO_STACK: Final = Cluster(members=())
_SINGLE: Final = ("stack", "timing", "unicast", "max_batch", "outbox_bytes")
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
        raise ConfigError(error.message, _place(scenario, "cluster", *(keys or ()))) from None
    _check_changes(scenario, settings)
    _check_views(scenario, settings)
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
            raise ConfigError(error.message, _place(scenario, "timeline", number)) from None
        configs[protocol] = config


def _check_views(scenario: Scenario, settings: StackSettings) -> None:
    """Refuse to expect a view of a stack that has none: its members could only be blamed for it."""
    if settings.has_group:
        return
    for number, expected in enumerate(scenario.expect):
        if isinstance(expected, ExpectView):
            message = (
                f"expect: a view is expected, and stack {scenario.cluster.stack} has no group; "
                "choose one that has, such as udp"
            )
            raise ConfigError(message, _place(scenario, "expect", number))


def _place(scenario: Scenario, *keys: str | int) -> Place | None:
    if not scenario.text:
        return None
    return read_document(scenario.text, scenario.path).place(*keys)


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
        outbox_bytes=cluster.outbox_bytes,
    )
    if cluster.multicast_settings:
        # Only the stack knows which protocol these settings are for.
        multicast = load().multicast or ""
        require(
            bool(multicast),
            f"multicast_settings: stack {cluster.stack} has no multicast; choose another stack",
        )
        of_multicast = dict(cluster.multicast_settings)
        _check_once("multicast_settings", of_multicast, multicast, protocols)
        protocols[multicast] = protocols.get(multicast, {}) | of_multicast
    if cluster.settings and protocols:
        _check_once("settings", dict(cluster.settings), load().unicast, protocols)
    return load(protocols=protocols) if protocols else load()


def _check_once(
    part: str, said: Mapping[str, Any], protocol: str, protocols: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuse a setting that a part of the cluster and `protocols` both have."""
    for name in said.keys() & protocols.get(protocol, {}).keys():
        raise ConfigError(f"{part}: {name} is in protocols.{protocol}, too; leave one of them out")


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
