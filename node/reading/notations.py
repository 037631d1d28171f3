"""Notations: how one value is read, and how it is written. Each is there once, for scenarios,
members and stacks alike.

Reading refuses a wrong value with its place; what is written reads back equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from stormcast.node.reading.items import LARGEST, Item
from stormcast.node.reading.quantities import (
    DURATION,
    SETTING_DURATION,
    SETTING_SIZE,
    SHARE,
    SIZE,
    Quantity,
)

Names = tuple[str, ...]
Plain = str | int | float | bool | Sequence["Plain"] | Mapping[str, "Plain"]
"""A value as it is written: text, numbers, lists and mappings."""

MOST: Final = 1_000_000_000


class Notation(NamedTuple):
    """The functions that read one kind of value, and write it."""

    read: Callable[[Item], Any]
    write: Callable[[Any], Plain]


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 of any kind
    return value


# -- Numbers ---------------------------------------------------------------------------------------


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


def amount(kind: Quantity) -> Notation:
    """The same for settings of protocols, which a program may give as a number of seconds, or as a
    share of 1."""
    return Notation(lambda item: item.amount(kind), kind.write)


SETTING_TIME: Final = amount(SETTING_DURATION)
SETTING_SHARE: Final = amount(SHARE)
COUNT: Final = Notation(lambda item: item.count(), _as_it_is)
"""A whole number, or a size such as 1KiB."""
BYTES: Final = Notation(lambda item: item.size(), SETTING_SIZE.write)
"""Bytes, written as a size."""


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


def size_range(most: int, kind: Quantity = SIZE) -> Notation:
    """A size such as 1KiB, or the ends of a range such as 10B..2KiB."""
    one = quantity(kind)

    def read(item: Item) -> tuple[int, int]:
        ends = [one.read(part) for part in item.ends()]
        return _ordered(item, ends[0], ends[-1], 0, most)

    def write(value: tuple[int, int]) -> str:
        low, high = map(kind.write, value)
        return low if low == high else f"{low}..{high}"

    return Notation(read, write)


def whole(low: int, high: int = MOST) -> Notation:
    """A whole number within bounds."""
    return Notation(lambda item: item.whole(low, high), _as_it_is)


def whole_range(low: int, high: int = LARGEST) -> Notation:
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


# -- Words -----------------------------------------------------------------------------------------


TEXT: Final = Notation(lambda item: item.text(), _as_it_is)
WORD: Final = Notation(lambda item: item.text("write a word"), _as_it_is)
TRUTH: Final = Notation(lambda item: item.flag(), bool)


def word(pattern: re.Pattern[str], remedy: str) -> Notation:
    """Text of a given form."""
    return Notation(lambda item: item.word(pattern, remedy), _as_it_is)


def one_of(known: Collection[str], kind: str) -> Notation:
    """One of the known words."""
    return Notation(lambda item: item.one_of(known, kind), _as_it_is)


def some_of(known: Collection[str], kind: str, *, at_least: int = 0) -> Notation:
    """A list of words, none twice; a single one needs no brackets."""

    def read(item: Item) -> Names:
        found: list[str] = []
        for part in item.items_or_self():
            name = part.one_of(known, kind)
            if name in found:
                raise part.refuse("it is listed twice; keep one")
            found.append(name)
        if len(found) < at_least:
            raise item.refuse(f"it must name {at_least} or more of {', '.join(known)}")
        return tuple(found)

    return Notation(read, _one_or_list)


def _read_names(item: Item) -> Names:
    return tuple(part.text("write a name, or a list of names") for part in item.items_or_self())


def _one_or_list(value: Names) -> Plain:
    return value[0] if len(value) == 1 else list(value)


NAMES: Final = Notation(_read_names, list)
"""Any names."""


# -- Lists -----------------------------------------------------------------------------------------


def list_of(notation: Notation, *, at_least: int = 0) -> Notation:
    """A list of values of one kind."""

    def read(item: Item) -> tuple[Any, ...]:
        parts = item.items()
        if len(parts) < at_least:
            raise item.refuse(f"it must have {at_least} or more entries")
        return tuple(notation.read(part) for part in parts)

    return Notation(read, lambda value: [notation.write(part) for part in value])
