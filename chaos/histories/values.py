"""Values of a history: JSON made such that two are equal if, and only if, JSON says so.

Python holds 1, 1.0 and True to be equal; JSON tells true from 1, and not 1.0 from 1. So a scalar
or an object becomes its JSON text, in ASCII and in one spelling, and a list a tuple of these.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

Value = str | tuple["Value", ...]

NULL: Final = "null"
DEEPEST: Final = 8
"""Levels of lists and objects in a value."""
MOST_NUMBER: Final = 2**64
"""Bound of whole numbers: what is larger does not pass through most clients unchanged."""
MOST_EXPONENT: Final = 30
MOST_DIGITS: Final = 40
"""Bounds of numbers with a fraction, which are kept exactly."""
_CONSTANTS: Final = ((None, NULL), (True, "true"), (False, "false"))
_WORDS: Final = frozenset(text for _constant, text in _CONSTANTS)
_SHOWN: Final = 60
"""Characters of a value that a message shows."""


class BadValue(ValueError):
    """A value that no history may have; its text is the reason, and the remedy."""


class Freezer:
    """Makes values of parsed JSON. Equal scalars share one text: lists of a history repeat them."""

    def __init__(self) -> None:
        self._numbers: dict[int, str] = {}
        self._strings: dict[str, str] = {}

    def freeze(self, found: object, depth: int = 0) -> Value:
        """Return the value; BadValue if a history may not have it."""
        if type(found) is int:
            return self._whole(found)
        if type(found) is str:
            return self._string(found)
        if isinstance(found, list | dict):
            return self._nested(found, depth)
        if isinstance(found, Decimal):
            return _fraction(found)
        for constant, text in _CONSTANTS:
            if found is constant:
                return text
        raise BadValue(f"{type(found).__name__} is no JSON")

    def _nested(self, found: list[Any] | dict[str, Any], depth: int) -> Value:
        if depth == DEEPEST:
            raise BadValue(f"lists and objects may stand {DEEPEST} deep: write it as a string")
        if isinstance(found, list):
            return tuple([self.freeze(one, depth + 1) for one in found])
        parts = [
            f"{json.dumps(name)}: {text_of(self.freeze(one, depth + 1))}"
            for name, one in sorted(found.items())
        ]
        return "{" + ", ".join(parts) + "}"

    def _whole(self, number: int) -> str:
        text = self._numbers.get(number)
        if text is None:
            if abs(number) > MOST_NUMBER:
                raise BadValue("a number beyond 2^64: write it as a string")
            text = self._numbers[number] = str(number)
        return text

    def _string(self, string: str) -> str:
        text = self._strings.get(string)
        if text is None:
            text = self._strings[string] = json.dumps(string)
        return text


def text_of(value: Value) -> str:
    """Return the whole value as JSON."""
    if isinstance(value, str):
        return value
    return "[" + ", ".join(map(text_of, value)) + "]"


def shown(value: Value) -> str:
    """Return the value as messages show it: strings of letters bare, and nothing too long."""
    text = text_of(value)
    if value[:1] == '"' and text[1:-1].isidentifier() and text[1:-1] not in _WORDS:
        text = text[1:-1]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _fraction(number: Decimal) -> str:
    """Return a number that is written with a fraction or an exponent: 1.50 is 1.5, and 2.0 is 2."""
    if not number:
        return "0"
    # Before anything else: a whole number of a large exponent takes all memory.
    if abs(number.adjusted()) > MOST_EXPONENT or len(number.as_tuple().digits) > MOST_DIGITS:
        raise BadValue("a number too large, too small or too exact: write it as a string")
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if len(text) > MOST_DIGITS or abs(number) > MOST_NUMBER:
        raise BadValue("a number too large, too small or too exact: write it as a string")
    return text
