"""Shapes: a mapping and the record that it becomes, declared once for reading and for writing.

A `Shape` has the keys of a mapping, with the notation and the default of each. Reading refuses a
wrong value with its place; writing leaves out defaults, and what it writes reads back equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.error_places import to_blame
from stormcast.node.reading.items import Hint, Item
from stormcast.node.reading.notations import Names, Notation, Plain

REQUIRED: Final = object()


class Key(NamedTuple):
    """One key of a mapping: the attribute that it sets, its notation, and its default."""

    attribute: str | Names
    """One attribute, or several that the notation reads and writes as a tuple."""
    notation: Notation
    default: Any = REQUIRED

    def values(self, value: Any) -> dict[str, Any]:  # noqa: ANN401 of the notation's kind
        """Return a value by the attribute, or the attributes, that it sets."""
        if isinstance(self.attribute, str):
            return {self.attribute: value}
        return dict(zip(self.attribute, value, strict=True))


@dataclass(frozen=True, slots=True)
class Shape:
    """One mapping, and the dataclass it becomes."""

    make: Callable[..., Any]
    keys: dict[str, Key]
    check: Callable[[Item, Any], None] | None = None
    """Refuses values that contradict each other."""
    noun: str = "key"
    """The word for a key in errors."""
    hint: Hint | None = None
    """May return a better message for an unknown key."""
    _required: list[str] = field(init=False, repr=False, compare=False)
    _optional: list[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        required = [name for name, key in self.keys.items() if key.default is REQUIRED]
        optional = [name for name in self.keys if name not in required]
        object.__setattr__(self, "_required", required)
        object.__setattr__(self, "_optional", optional)

    def read(self, item: Item, besides: Collection[str] = ()) -> Any:  # noqa: ANN401 the type is `make`'s
        """Read the record of a mapping; keys in `besides` are read by the caller."""
        found = item.entries(self._required, [*self._optional, *besides], self.noun, self.hint)
        values: dict[str, Any] = {}
        for name, key in self.keys.items():
            value = key.notation.read(found[name]) if name in found else key.default
            values |= key.values(value)
        record = self._made(item, found, values)
        if self.check is not None:
            self.check(item, record)
        return record

    def _made(self, item: Item, found: Mapping[str, Item], values: dict[str, Any]) -> Any:  # noqa: ANN401 as `read`
        """Make the record. What it refuses of itself gets the place of the value to blame."""
        try:
            return self.make(**values)
        except ConfigError as error:
            if error.place is not None:
                raise
            complaint = error.message
        said = [name for name in found if name in self._optional and name in self.keys]

        def make_without(name: str) -> object:
            key = self.keys[name]
            return self.make(**values | key.values(key.default))

        wrong = to_blame(said, complaint, make_without)
        raise (found[wrong] if wrong is not None else item).error(complaint)

    def write(self, record: object) -> dict[str, Plain]:
        """Return the mapping that `read` turns into an equal record."""
        values = ((name, key, _value(record, key.attribute)) for name, key in self.keys.items())
        return {
            name: key.notation.write(value) for name, key, value in values if value != key.default
        }

    def notation(self) -> Notation:
        """Return the shape as the notation of a value in another shape."""
        return Notation(self.read, self.write)


def _value(record: object, attribute: str | Names) -> object:
    if isinstance(attribute, str):
        return getattr(record, attribute)
    return tuple(getattr(record, name) for name in attribute)
