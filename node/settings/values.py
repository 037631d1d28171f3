"""Plain values to a settings dataclass: each is converted to what its field wants, or refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, TypeVar

from stormcast.node.core.errors import ConfigError, require, suggestion
from stormcast.node.reading.quantities import SETTING_DURATION, SETTING_SIZE
from stormcast.node.settings.jgroups_names import setting_here

T = TypeVar("T")

_MOST: Final = 1 << 63
"""Above any number that a setting may be, in whatever unit."""


def build(kind: type[T], values: Mapping[str, object], what: str) -> T:
    """A settings dataclass from plain values; unknown names and wrong types are refused."""
    known = {
        field.name: field
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        # Flaws have a place of their own, which only museum stacks have.
        if field.name != "historical"
    }
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                setting_here(what, name, known)
                or f"{what}: unknown setting {name}{suggestion(name, known)}"
            )
        checked[name] = convert(f"{what}.{name}", value, known[name].type)
    return kind(**checked)


def convert(name: str, value: object, wanted: object) -> object:  # noqa: PLR0911 one per type
    """A value as its setting wants it: text with a unit becomes a number."""
    wanted = str(wanted)
    if wanted == "float":
        if isinstance(value, str):
            return SETTING_DURATION.read(value, name)
        require(
            isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST,
            f"{name} is {value!r}: write a duration with its unit, such as 500ms",
        )
        assert isinstance(value, int | float)
        return float(value)
    if wanted == "int":
        if isinstance(value, str):
            return int(SETTING_SIZE.read(value, name))
        require(
            isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST,
            f"{name} is {value!r}: write a whole number",
        )
        return value
    if wanted == "bool":
        require(isinstance(value, bool), f"{name} is {value!r}: write true or false")
        return value
    if wanted.startswith("tuple"):
        require(
            isinstance(value, list | tuple) and all(isinstance(part, str) for part in value),
            f"{name} is {value!r}: write a list of words",
        )
        assert isinstance(value, list | tuple)
        return tuple(value)
    require(isinstance(value, str), f"{name} is {value!r}: write a word")
    return value
