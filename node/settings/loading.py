"""Builds checked settings from a stack file, a timing file, and values that are given.

A stack lists protocols, top to bottom; a timing says when they act. Settings that cannot work are
refused here, before anything starts, with the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stormcast.node.core.errors import ConfigError, require, require_type, suggestion
from stormcast.node.core.timing import Timing
from stormcast.node.reading.config_shapes import shape_of
from stormcast.node.reading.error_places import to_blame
from stormcast.node.reading.items import PlainItem
from stormcast.node.settings.files import (
    Listed,
    is_museum,
    is_path,
    place_named,
    read_layers,
    read_stack,
    read_timing,
    values_of,
)
from stormcast.node.settings.jgroups_names import protocol_here
from stormcast.node.settings.layers import Values, build_layer, check_flaws
from stormcast.node.settings.protocols import DISCOVERIES, GENERATIONS, RELIABLE_UNICAST
from stormcast.node.settings.rules import check_order
from stormcast.node.settings.stack_settings import StackSettings


def load_settings(
    stack: str = "unicast-only",
    timing: str = "compatible",
    *,
    unicast: str | None = None,
    discovery: str | None = None,
    overrides: Values | None = None,
    historical: Values | None = None,
    protocols: Mapping[str, Values] | None = None,
    max_batch: int | None = None,
    outbox_bytes: int | None = None,
) -> StackSettings:
    """Return the settings of a stack file and a timing file together. A stack that ends in .yaml or
    .yml is the path of a file, any other the name of one that ships.

    `unicast` replaces the stack's own generation, `discovery` its discovery protocol; `overrides`
    are settings of the unicast, `protocols` settings of any protocol; `historical` brings flaws of
    earlier designs back, for museum stacks only.
    """
    _check_texts(stack=stack, timing=timing)
    _check_mappings(overrides=overrides, historical=historical, protocols=protocols)
    _check_mappings(**(protocols or {}))
    given_sizes = {"max_batch": max_batch, "outbox_bytes": outbox_bytes}
    sizes = {name: size for name, size in given_sizes.items() if size is not None}
    for name, size in sizes.items():
        require_type(name, size, int, "a whole number")
    listed = list_layers(stack, unicast, discovery)
    require(
        not historical or is_museum(stack),
        "historical flaws are for museum stacks only: drop `historical`, "
        f"or use stack unicast-museum, not {stack}",
    )
    given = {name: dict(values) for name, values in (protocols or {}).items()}
    reliable = next(name for name, _values in listed if name in RELIABLE_UNICAST)
    given[reliable] = {**given.get(reliable, {}), **(overrides or {})}
    names = [name for name, _values in listed]
    check_flaws(historical or {}, names, stack)
    for name in given:
        if name not in names:
            near = protocol_here(name) or suggestion(name, names)
            raise ConfigError(f"stack {stack} has no protocol {name}{near}")
    try:
        return _made(listed, stack, timing, given, historical or {}, sizes)
    except ConfigError as error:
        if error.place is None and is_path(stack):
            _blame_file(stack, timing, error.message)
        raise


def _check_texts(**given: object) -> None:
    for what, value in given.items():
        require_type(what, value, str, "a str")


def _check_mappings(**given: object) -> None:
    for what, value in given.items():
        if value is not None:
            require_type(what, value, Mapping, "a mapping of names to values")


def _made(
    listed: Listed,
    stack: str,
    timing: str,
    given: Mapping[str, Values],
    historical: Values,
    sizes: Mapping[str, int],
) -> StackSettings:
    timing_values, paced = read_timing(timing)
    layers = tuple(
        (
            name,
            build_layer(name, {**paced.get(name, {}), **values, **given.get(name, {})}, historical),
        )
        for name, values in listed
    )
    timed = PlainItem({"name": timing, **values_of(timing_values)}, "timing")
    return StackSettings(
        name=Path(stack).stem if is_path(stack) else stack,
        layers=layers,
        timing=shape_of(Timing).read(timed),
        is_museum=is_museum(stack),
        **sizes,
    )


def _blame_file(stack: str, timing: str, complaint: str) -> None:
    """Raise the complaint with a place in the stack's file, if the file alone causes it."""
    listed = read_layers(stack)

    def make_without(one: tuple[int, str, str]) -> StackSettings:
        return _made(_without(listed, *one), stack, timing, {}, {}, {})

    try:
        _made(listed, stack, timing, {}, {}, {})
    except ConfigError as error:
        if error.message != complaint:
            return
        said = [(number, name, key) for number, (name, own) in enumerate(listed) for key in own]
        wrong, document = to_blame(said, complaint, make_without), read_stack(stack)
        if wrong is not None:
            raise ConfigError(complaint, document.place("protocols", *wrong)) from None
        names = [name for name, _values in listed]
        raise ConfigError(complaint, place_named(complaint, names, document)) from None


def _without(listed: Listed, number: int, name: str, key: str) -> Listed:
    values = {other: value for other, value in listed[number][1].items() if other != key}
    return [*listed[:number], (name, values), *listed[number + 1 :]]


def list_layers(stack: str, unicast: str | None = None, discovery: str | None = None) -> Listed:
    """Return the protocols of a stack, top to bottom, with the unicast and the discovery that were
    chosen in place of its own."""
    listed = [_with_generation(name, values, unicast) for name, values in read_layers(stack)]
    if discovery is None:
        return listed
    require(
        discovery in DISCOVERIES,
        f"discovery is {discovery!r}: choose one of {', '.join(DISCOVERIES)}",
    )
    require(
        any(name in DISCOVERIES for name, _values in listed),
        f"discovery is {discovery}, and stack {stack} finds nobody: it forms no group; drop it, or "
        "use a stack with GMS",
    )
    listed = [
        (discovery, {}) if name in DISCOVERIES and name != discovery else (name, values)
        for name, values in listed
    ]
    check_order([name for name, _values in listed], stack)
    return listed


def _with_generation(name: str, values: Values, unicast: str | None) -> tuple[str, Values]:
    if unicast is None or name not in RELIABLE_UNICAST:
        return name, values
    require(
        unicast in GENERATIONS,
        f"unicast is {unicast!r}: choose one of {', '.join(GENERATIONS)}",
    )
    return GENERATIONS[unicast]
