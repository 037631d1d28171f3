"""Builds a settings dataclass from plain values: each is converted to its field's type, or
refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from stormcast.node.core.errors import ConfigError, require, suggestion
from stormcast.node.core.match import names_of, read_match
from stormcast.node.reading.quantities import SETTING_DURATION, SETTING_SIZE, SHARE

T = TypeVar("T")
Known = Mapping[str, object]

Share: TypeAlias = float
"""A field that is a fraction, such as 0.2. A field that is a `float` is a duration."""

_MOST: Final = 1 << 63
"""Above any number that a setting may be, in whatever unit."""


def build(
    kind: type[T],
    values: Mapping[str, object],
    what: str,
    hint: Callable[[str, str, Known], str] | None = None,
) -> T:
    """Build a settings dataclass from plain values; refuse unknown names and wrong types. `hint`
    may return a better message for an unknown name, or nothing."""
    known = {
        field.name: field
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        # Historical flaws are set elsewhere, and only in museum stacks.
        if field.name != "historical"
    }
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                (hint and hint(what, name, known))
                or f"{what}: unknown setting {name}{suggestion(name, known)}"
            )
        checked[name] = convert(f"{what}.{name}", value, known[name].type)
    return kind(**checked)


def convert(name: str, value: object, wanted: object) -> object:  # noqa: PLR0911 one per type
    """Return a value converted to its setting's type: text with a unit becomes a number."""
    wanted = str(wanted)
    if wanted in ("float", "Share"):
        return _number(name, value, is_share=wanted == "Share")
    if wanted == "int":
        if isinstance(value, str):
            require(
                value[:1].isdigit(),
                f"{name} is {value!r}: write a whole number, or a size such as 1KiB",
            )
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
        return names_of(name, value)
    if wanted == "Match":
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} is {value!r}: write conditions as a mapping")
        return read_match(value)
    require(isinstance(value, str), f"{name} is {value!r}: write a word")
    return value


def _number(name: str, value: object, *, is_share: bool) -> float:
    if isinstance(value, str):
        return (SHARE if is_share else SETTING_DURATION).read(value, name)
    remedy = "write a number" if is_share else "write a duration with its unit, such as 500ms"
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _MOST:
        raise ConfigError(f"{name} is {value!r}: {remedy}")
    return float(value)
