"""Values that settings are read from. Each knows what errors call it, and where it was written.

A notation (`notations.py`) reads a value without knowing whether a file has it (`yaml_nodes.py`,
`documents.py`), a flag or variable (`TextItem`), or a program (`PlainItem`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from stormcast.node.core.errors import ConfigError, Place, shortened, suggestion
from stormcast.node.reading.quantities import SETTING_SIZE, Quantity, UnitError

Hint = Callable[[str, str, Collection[str]], str]
"""Takes the name of a mapping, a key that it must not have, and those it may have; returns a
message, or an empty text."""
Where = Callable[..., Place | None]
"""Takes the keys and numbers that lead from a value to one inside it; returns the place of that."""

LARGEST: Final = (1 << 63) - 1
"""The largest number that a setting may be, in whatever unit."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_MAPPING: Final = "write a mapping of keys to values"


class Item(ABC):
    """One value, and what it is called."""

    __slots__ = ()

    key: str

    @property
    @abstractmethod
    def place(self) -> Place | None:
        """Where it is written; None if that is in no file, flag or variable."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A key of a mapping, as text."""

    @abstractmethod
    def shown(self) -> str:
        """Return the value as a message quotes it."""

    def error(self, message: str) -> ConfigError:
        """Return an error with the place of this value."""
        return ConfigError(message, self.place)

    def refuse(self, remedy: str) -> ConfigError:
        """Return an error that names key, value and remedy."""
        return self.error(f"{self.key} is {self.shown()}: {remedy}")

    # -- Mappings and lists ----------------------------------------------------------------------

    @abstractmethod
    def is_list(self) -> bool: ...

    @abstractmethod
    def is_mapping(self) -> bool: ...

    @abstractmethod
    def pairs(self) -> Sequence[tuple[Item, Item]]:
        """Return the keys and values of a mapping."""

    @abstractmethod
    def items(self) -> Sequence[Item]:
        """Return the values of a list."""

    def items_or_self(self) -> Sequence[Item]:
        """Return the values of a list, or the one value that stands for a list of one."""
        return self.items() if self.is_list() else [self]

    @abstractmethod
    def unknown(self, key: Item, noun: str, known: Collection[str]) -> ConfigError:
        """Return the error for a key that a mapping must not have."""

    def entries(
        self,
        required: Collection[str],
        optional: Collection[str],
        noun: str = "key",
        hint: Hint | None = None,
    ) -> dict[str, Item]:
        """Return a mapping's values by key: all of `required`, any of `optional`, no others. `noun`
        is the word for a key."""
        known = [*required, *optional]
        found: dict[str, Item] = {}
        for key, value in self.pairs():
            if key.name not in known:
                told = hint(self.key, key.name, known) if hint is not None else ""
                raise key.error(told) if told else self.unknown(key, noun, known)
            found[key.name] = value
        for name in required:
            if name not in found:
                raise _missing(self, name)
        return found

    def peek(self, name: str) -> Item:
        """Return the value of one key, which must be there; other keys are not checked."""
        for key, value in self.pairs():
            if key.name == name:
                return value
        raise _missing(self, name)

    def has(self, name: str) -> bool:
        """Whether a mapping has a key."""
        return any(key.name == name for key, _value in self.pairs())

    # -- Single values ---------------------------------------------------------------------------

    @abstractmethod
    def text(self, remedy: str = "write text") -> str:
        """Return any text."""

    @abstractmethod
    def whole(self, low: int, high: int) -> int:
        """Return a whole number within bounds."""

    @abstractmethod
    def flag(self) -> bool:
        """Return true or false."""

    @abstractmethod
    def quantity(self, quantity: Quantity) -> float:
        """Return a number with its unit, in the base unit."""

    @abstractmethod
    def amount(self, quantity: Quantity) -> float:
        """Return the same; a program may give it as a number of the base unit."""

    @abstractmethod
    def count(self) -> int:
        """Return a whole number that may be written as a size, such as 1KiB."""

    def size(self) -> int:
        """Return a number of bytes, which may be written as a size."""
        return self.count()

    @abstractmethod
    def ends(self) -> Sequence[Item]:
        """Return the two ends of a range such as 5..9, or the one value."""

    def word(self, pattern: re.Pattern[str], remedy: str) -> str:
        """Return text of a given form."""
        value = self.text(remedy)
        if pattern.fullmatch(value) is None:
            raise self.refuse(remedy)
        return value

    def one_of(self, known: Collection[str], kind: str) -> str:
        """Return a word, which must be one of `known`."""
        named = [name for name in known if name]
        value = self._word(f"choose one of {', '.join(named)}")
        if value not in known:
            near = suggestion(value, named)
            raise self.error(f"{self.key} is {self.shown()}: there is no such {kind}{near}")
        return value

    def _word(self, remedy: str) -> str:
        return self.text(remedy)


def _missing(mapping: Item, name: str) -> ConfigError:
    return mapping.error(f"{mapping.key}: the key {name!r} is missing; add it")


def parsed(item: Item, text: str, quantity: Quantity) -> float:
    """Return the quantity that the text of an item says."""
    try:
        return quantity.parse(text)
    except UnitError as error:
        raise item.refuse(str(error)) from None


def bounds_in_words(low: int, high: int) -> str:
    """Return what a message says of a number that is out of bounds."""
    return f"it must be {low} or more" if high == LARGEST else f"it must be {low}..{high}"


def nowhere(*_keys: object) -> None:
    """Return None: the place of what is in no file."""


@dataclass(frozen=True, slots=True)
class PlainItem(Item):
    """A value as Python has it: from a program, from JSON, or of a file that was read whole."""

    value: object
    key: str = ""
    where: Where = nowhere
    joint: str = "."
    """Stands between the names of a mapping and of a key, where errors name a value in it."""

    @property
    def place(self) -> Place | None:
        return self.where()

    @property
    def name(self) -> str:
        return str(self.value)

    def shown(self) -> str:
        if isinstance(self.value, str):
            return repr(shortened(self.value))
        return shortened(repr(self.value))

    def called(self, key: str, joint: str = ".") -> PlainItem:
        """Return the same value under another name."""
        return replace(self, key=key, joint=joint)

    def is_list(self) -> bool:
        return isinstance(self.value, list | tuple)

    def is_mapping(self) -> bool:
        return isinstance(self.value, Mapping)

    def pairs(self) -> Sequence[tuple[PlainItem, PlainItem]]:
        if not isinstance(self.value, Mapping):
            raise self.refuse(_MAPPING) if self.key else self.error(_MAPPING)
        return [self._pair(name, value) for name, value in self.value.items()]

    def _pair(self, name: object, value: object) -> tuple[PlainItem, PlainItem]:
        where: Where
        if isinstance(value, PlainItem):
            # Put together from several files, flags or variables: each value knows its own place.
            where = value.where
        else:
            where = partial(self.where, name)
            called = f"{self.key}{self.joint}{name}" if self.key else str(name)
            value = PlainItem(value, called, where, self.joint)
        return PlainItem(str(name), f"a key of {self.key}", where), value

    def items(self) -> Sequence[PlainItem]:
        if not isinstance(self.value, list | tuple):
            raise self.refuse("write a list ([a, b])")
        return [
            PlainItem(value, self.key, partial(self.where, number), self.joint)
            for number, value in enumerate(self.value)
        ]

    def unknown(self, key: Item, noun: str, known: Collection[str]) -> ConfigError:
        before = f"{self.key}: " if self.key else ""
        return key.error(f"{before}unknown {noun} {key.name}{suggestion(key.name, known)}")

    def text(self, remedy: str = "write text") -> str:
        if not isinstance(self.value, str):
            raise self.refuse(remedy)
        return self.value

    def whole(self, low: int, high: int) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.refuse("write a whole number")
        if not low <= self.value <= high:
            raise self.refuse(bounds_in_words(low, high))
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refuse("write true or false")
        return self.value

    def quantity(self, quantity: Quantity) -> float:
        text = self.text(f"write {quantity.kind} with its unit, such as {quantity.example}")
        return parsed(self, text, quantity)

    def amount(self, quantity: Quantity) -> float:
        value = self.value
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST:
            return float(value)
        return self.quantity(quantity)

    def count(self) -> int:
        value = self.value
        if isinstance(value, str):
            if not value[:1].isdigit():
                raise self.refuse("write a whole number, or a size such as 1KiB")
            return int(self.quantity(SETTING_SIZE))
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST:
            raise self.refuse("write a whole number")
        return value

    def ends(self) -> Sequence[Item]:
        parts = self.items_or_self()
        if isinstance(self.value, str):
            parts = [TextItem(part, self.key, self.where) for part in self.value.split("..")]
        if not 1 <= len(parts) <= 2:  # noqa: PLR2004 a range has two ends
            raise self.refuse("write one value, or a range such as 5..9")
        return parts


@dataclass(frozen=True, slots=True)
class TextItem(PlainItem):
    """The text of a flag or a variable: what it means follows from what it is read as."""

    value: str

    def is_list(self) -> bool:
        return "," in self.value or self.value.startswith("[")

    def items(self) -> Sequence[PlainItem]:
        # With brackets and quotes as in YAML, or without.
        parts = self.value.removeprefix("[").removesuffix("]").split(",")
        names = [part.strip(" '\"") for part in parts]
        return [TextItem(name, self.key, self.where) for name in names if name]

    def whole(self, low: int, high: int) -> int:
        is_number = _INTEGER.fullmatch(self.value) is not None
        return self._as(int(self.value) if is_number else self.value).whole(low, high)

    def flag(self) -> bool:
        return self._as({"true": True, "false": False}.get(self.value, self.value)).flag()

    def amount(self, quantity: Quantity) -> float:
        if _DECIMAL.fullmatch(self.value) is None:
            return self.quantity(quantity)
        number = float(self.value)
        if number and "ms" in quantity.units:
            raise self.refuse(
                f"write its unit, as {self.value}ms or {self.value}s; in JGroups it is milliseconds"
            )
        return number

    def count(self) -> int:
        is_number = _INTEGER.fullmatch(self.value) is not None
        return self._as(int(self.value) if is_number else self.value).count()

    def _as(self, value: object) -> PlainItem:
        return PlainItem(value, self.key, self.where)


def item_of(value: object, key: str, joint: str = ".") -> Item:
    """Return a value that a program gives as an item, unless it is one already."""
    return value if isinstance(value, Item) else PlainItem(value, key, joint=joint)
