"""The shape of a dataclass of settings follows from its fields: their names, types and defaults."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeAlias

from stormcast.node.core.match import Match
from stormcast.node.reading.items import Hint
from stormcast.node.reading.matches import MATCH
from stormcast.node.reading.notations import (
    BYTES,
    COUNT,
    NAMES,
    SETTING_SHARE,
    SETTING_TIME,
    TRUTH,
    WORD,
    Notation,
)
from stormcast.node.reading.shapes import Key, Shape

Share: TypeAlias = float
"""A field that is a fraction, such as 0.2. A field that is a `float` is a duration."""

_HISTORICAL: Final = "historical"
"""The field of flaws, which are set elsewhere, and only in museum stacks."""
_NOTATIONS: Final[dict[str, Notation]] = {
    "float": SETTING_TIME,
    "Share": SETTING_SHARE,
    "int": COUNT,
    "bool": TRUTH,
    "str": WORD,
    "tuple[str, ...]": NAMES,
    Match.__name__: MATCH.notation(),
}
"""By the type of a field."""
_made: dict[tuple[type[Any], Hint | None], Shape] = {}
"""A program has some thirty dataclasses of settings, and asks for the same ones for each stack."""


def notation_of(kind: type, name: str) -> Notation:
    """Return how a field of a dataclass of settings is read and written."""
    return shape_of(kind).keys[name].notation


def shape_of(kind: type[Any], hint: Hint | None = None) -> Shape:
    """Return the shape of a dataclass of settings."""
    if (kind, hint) not in _made:
        _made[kind, hint] = _shape(kind, hint)
    return _made[kind, hint]


def _shape(kind: type[Any], hint: Hint | None) -> Shape:
    keys = {
        field.name: Key(field.name, notation_for(str(field.type), field.name), _default(field))
        for field in dataclasses.fields(kind)
        if field.name != _HISTORICAL
    }
    return Shape(kind, keys, noun="setting", hint=hint)


def notation_for(kind: str, name: str) -> Notation:
    """Return how a field of this type and name is read and written."""
    return BYTES if kind == "int" and name.endswith("bytes") else _NOTATIONS[kind]


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
