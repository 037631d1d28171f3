"""Records of a scenario file, declared once for both directions: how a value is read and written.

A `Notation` is one value, a `Shape` one mapping: its keys, their notations and defaults. Reading
refuses a wrong value with its place; writing leaves out defaults, and its text reads back equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import yaml

from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.quantities import DURATION, SHARE, SIZE, Quantity
from stormcast.node.reading.yaml_nodes import SWITCHES, Item

Plain = str | int | bool | Sequence["Plain"] | Mapping[str, "Plain"]
"""A value as it is written: text, numbers, lists and mappings."""
Names = tuple[str, ...]

REQUIRED: Final = object()
MOST: Final = 1_000_000_000

_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SETTING_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_UNQUOTED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./%-]*")
_STRING: Final = "tag:yaml.org,2002:str"
_TIMES: Final = ("interval", "timeout", "time")
_BYTES: Final = ("bytes",)
_resolve: Final[Callable[..., object]] = yaml.resolver.Resolver().resolve


class Notation(NamedTuple):
    """The functions that read one kind of value from the file, and write it back."""

    read: Callable[[Item], Any]
    write: Callable[[Any], Plain]


class Key(NamedTuple):
    """One key of a mapping: the attribute that it sets, its notation, and its default."""

    attribute: str | Names
    """One attribute, or several that the notation reads and writes as a tuple."""
    notation: Notation
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True)
class Shape:
    """One mapping of the file, and the dataclass it becomes."""

    make: Callable[..., Any]
    keys: dict[str, Key]
    check: Callable[[Item, Any], None] | None = None
    """Refuses values that contradict each other."""

    def read(self, item: Item, besides: Collection[str] = ()) -> Any:  # noqa: ANN401 the type is `make`'s
        """Read the record of a mapping; keys in `besides` are read by the caller."""
        required = [name for name, key in self.keys.items() if key.default is REQUIRED]
        optional = [name for name, key in self.keys.items() if key.default is not REQUIRED]
        found = item.entries(required, [*optional, *besides])
        values: dict[str, Any] = {}
        for name, key in self.keys.items():
            value = key.notation.read(found[name]) if name in found else key.default
            if isinstance(key.attribute, str):
                values[key.attribute] = value
            else:
                values |= zip(key.attribute, value, strict=True)
        record = self.make(**values)
        if self.check is not None:
            self.check(item, record)
        return record

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


def quantity(kind: Quantity, *, above_zero: bool = False) -> Notation:
    """A number with its unit."""

    def read(item: Item) -> float:
        value = item.quantity(kind)
        if above_zero and value == 0:
            raise item.refuse("it would do nothing; it must be above 0")
        return int(value) if kind.is_whole else value

    return Notation(read, kind.write)


TIME: Final = quantity(DURATION)
POSITIVE_TIME: Final = quantity(DURATION, above_zero=True)


def span(kind: Quantity) -> Notation:
    """A quantity such as 2s, or the least and the most of it, such as 1s..8s."""
    one = quantity(kind, above_zero=True)

    def read(item: Item) -> tuple[float, float]:
        ends = [one.read(part) for part in item.ends()]
        if ends[0] > ends[-1]:
            raise item.refuse("it ends before it begins; write the smaller first")
        return ends[0], ends[-1]

    def write(value: tuple[float, float]) -> str:
        low, high = map(kind.write, value)
        return low if low == high else f"{low}..{high}"

    return Notation(read, write)


def size_range(most: int) -> Notation:
    """A size such as 1KiB, or the ends of a range such as 10B..2KiB."""
    one = quantity(SIZE)

    def read(item: Item) -> tuple[int, int]:
        ends = [one.read(part) for part in item.ends()]
        return _ordered(item, ends[0], ends[-1], 0, most)

    def write(value: tuple[int, int]) -> str:
        low, high = map(SIZE.write, value)
        return low if low == high else f"{low}..{high}"

    return Notation(read, write)


def whole(low: int, high: int = MOST) -> Notation:
    """A whole number within bounds."""
    return Notation(lambda item: item.whole(low, high), lambda value: value)


def whole_range(low: int, high: int = (1 << 63) - 1) -> Notation:
    """A whole number such as 5, or a range such as 5..9, both ends in."""

    def read(item: Item) -> tuple[int, int]:
        ends = [part.whole(low, high) for part in item.ends()]
        return _ordered(item, ends[0], ends[-1], low, high)

    return Notation(
        read, lambda value: value[0] if value[0] == value[1] else f"{value[0]}..{value[1]}"
    )


def _ordered(item: Item, first: int, last: int, low: int, high: int) -> tuple[int, int]:
    if first > last:
        raise item.refuse("it ends before it begins; write the smaller first")
    if not low <= first <= last <= high:
        raise item.refuse(f"it must be within {low}..{high}")
    return first, last


TEXT: Final = Notation(Item.text, lambda value: value)


def word(pattern: re.Pattern[str], remedy: str) -> Notation:
    """Text of a given form."""
    return Notation(lambda item: item.word(pattern, remedy), lambda value: value)


def truth() -> Notation:
    """Read true or false."""
    return Notation(Item.flag, bool)


def one_of(known: Collection[str], kind: str) -> Notation:
    """One of the known words."""
    return Notation(lambda item: item.one_of(known, kind), lambda value: value)


def some_of(known: Collection[str], kind: str, *, at_least: int = 0) -> Notation:
    """A list of words, none twice; a single one needs no brackets."""

    def read(item: Item) -> Names:
        found: list[str] = []
        for part in item.items() if item.is_list() else [item]:
            name = part.one_of(known, kind)
            if name in found:
                raise part.refuse("it is listed twice; keep one")
            found.append(name)
        if len(found) < at_least:
            raise item.refuse(f"it must name {at_least} or more of {', '.join(known)}")
        return tuple(found)

    return Notation(read, lambda value: value[0] if len(value) == 1 else list(value))


def members_of(members: Names, *, everyone: Names | None = None) -> Notation:
    """`all`, a member, or a list of members; `everyone` is what `all` stands for."""
    everyone = members if everyone is None else everyone
    some = some_of(members, "member", at_least=1)

    def read(item: Item) -> Names:
        if not item.is_list() and item.one_of(["all", *members], "member") == "all":
            return everyone
        names: Names = some.read(item)
        return names

    return Notation(read, lambda value: "all" if value == everyone else some.write(value))


def list_of(notation: Notation, *, at_least: int = 0) -> Notation:
    """A list of values of one kind."""

    def read(item: Item) -> tuple[Any, ...]:
        parts = item.items()
        if len(parts) < at_least:
            raise item.refuse(f"it must have {at_least} or more entries")
        return tuple(notation.read(part) for part in parts)

    return Notation(read, lambda value: [notation.write(part) for part in value])


def setting_value(name: str) -> Notation:
    """The value of a setting: a duration, a size, a whole number, true or false, or a word."""
    last = name.rsplit("_", 1)[-1]

    def read(item: Item) -> object:
        if last in _TIMES:
            return item.quantity(DURATION)
        if last in _BYTES:
            return int(item.quantity(SIZE))
        if item.is_number():
            if "." in item.node.value:
                raise item.refuse("write a whole number, or a unit behind it: 50%, 500ms")
            return item.whole(-MOST, MOST)
        return _read_unnamed(item)

    def write(value: object) -> Plain:
        if isinstance(value, bool | str):
            return value
        assert isinstance(value, int | float)
        if isinstance(value, float) or last in _TIMES:
            return DURATION.write(float(value))
        return SIZE.write(value) if last in _BYTES else value

    return Notation(read, write)


def _read_unnamed(item: Item) -> object:
    """Read a value of a setting whose name does not tell its kind: the text itself tells it."""
    if item.is_plain() and item.node.value.lower() in ("true", "false"):
        return item.flag()
    for kind in (DURATION, SIZE, SHARE):
        try:
            value = item.quantity(kind)
        except ConfigError:
            continue
        return int(value) if kind.is_whole else value
    remedy = (
        "write a number with its unit (500ms, 4KiB, 40%), a whole number, true, false, or a word"
    )
    return item.word(_SETTING_WORD, remedy)


def _read_settings(item: Item) -> tuple[tuple[str, object], ...]:
    pairs = []
    for key, value in item.pairs():
        name = key.word(
            _IDENTIFIER, "the name of a setting is in small letters, such as xmit_interval"
        )
        pairs.append((name, setting_value(name).read(value)))
    return tuple(pairs)


SETTINGS: Final = Notation(
    _read_settings, lambda value: {name: setting_value(name).write(part) for name, part in value}
)


def flow(value: Plain) -> str:
    """Write a value on one line, with quotes only where YAML would misread it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value if _is_unquoted(value) else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(name)}: {flow(part)}" for name, part in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]"


def _is_unquoted(text: str) -> bool:
    if _UNQUOTED.fullmatch(text) is None or text.lower() in SWITCHES:
        return False
    return _resolve(yaml.ScalarNode, text, (True, False)) == _STRING


def _quoted(text: str) -> str:
    # The emitter knows which characters YAML wants escaped; `width` keeps it from breaking lines.
    return yaml.dump(text, Dumper=yaml.SafeDumper, default_style='"', width=float("inf")).rstrip(
        "\n"
    )
