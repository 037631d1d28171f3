"""A stack file and a timing file to checked settings: which protocols, in which order, set how.

A stack says *what* (protocols, top to bottom), a timing says *when*. What cannot work is refused
here, before anything starts, with the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormcast.node.core.errors import ConfigError, require, suggestion
from stormcast.node.core.timing import Timing
from stormcast.node.settings.files import is_museum, is_path, read_layers, read_shipped
from stormcast.node.settings.jgroups_names import protocol_here
from stormcast.node.settings.layers import Values, build_layer, check_flaws
from stormcast.node.settings.protocols import DISCOVERIES, GENERATIONS, RELIABLE_UNICAST
from stormcast.node.settings.rules import check_order
from stormcast.node.settings.stack_settings import StackSettings
from stormcast.node.settings.values import build


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
) -> StackSettings:
    """A stack file and a timing file, made one. A stack that ends in .yaml is the path of a file,
    any other the name of one that ships.

    `unicast` replaces the stack's own generation, `discovery` its way to find members, `overrides`
    sets the unicast, `protocols` sets any protocol, and `historical` brings flaws back, of unicast
    or of multicast.
    """
    listed = list_layers(stack, unicast, discovery)
    require(
        not historical or is_museum(stack),
        "historical flaws are for museum stacks only: drop `historical`, "
        f"or use stack unicast-museum, not {stack}",
    )
    timing_file = read_shipped("timings", timing)
    given: dict[str, dict[str, object]] = {
        name: dict(values) for name, values in (protocols or {}).items()
    }
    reliable = next(name for name, _values in listed if name in RELIABLE_UNICAST)
    given[reliable] = {**given.get(reliable, {}), **(overrides or {})}
    names = [name for name, _values in listed]
    check_flaws(historical or {}, names, stack)
    for name in given:
        if name not in names:
            near = protocol_here(name) or suggestion(name, names)
            raise ConfigError(f"stack {stack} has no protocol {name}{near}")
    paced = timing_file.get("protocols") or {}
    layers = tuple(
        (name, build_layer(name, {**paced.get(name, {}), **values, **given.get(name, {})},
                            historical or {}))
        for name, values in listed
    )  # fmt: skip
    return StackSettings(
        name=Path(stack).stem if is_path(stack) else stack,
        layers=layers,
        timing=build(Timing, {"name": timing, **(timing_file.get("timing") or {})}, "timing"),
        is_museum=is_museum(stack),
        **({"max_batch": max_batch} if max_batch is not None else {}),
    )


def list_layers(
    stack: str, unicast: str | None = None, discovery: str | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """The protocols of a stack, top to bottom, with what was chosen in place of its own."""
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


def _with_generation(
    name: str, values: dict[str, Any], unicast: str | None
) -> tuple[str, dict[str, Any]]:
    if unicast is None or name not in RELIABLE_UNICAST:
        return name, values
    require(
        unicast in GENERATIONS,
        f"unicast is {unicast!r}: choose one of {', '.join(GENERATIONS)}",
    )
    return GENERATIONS[unicast]
