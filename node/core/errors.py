"""Every error the product raises on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

_SHOWN: Final = 60
"""Characters of a value that a message shows."""


class NodeError(Exception):
    """The root of all errors raised by this package."""


class Place(NamedTuple):
    """The place where a setting is written."""

    source: str
    """A file, a flag or a variable; only a file has lines."""
    line: int = 0
    """Counted from 1, as is the column; 0 where there are no lines."""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


class ConfigError(NodeError):
    """A setting that cannot work: names the setting, its value and the remedy, and where the
    setting is written, if that is known."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message if place is None else f"{place}: {message}")
        self.message = message
        self.place = place


class ClosedError(NodeError):
    """The channel, or the connection that the call needs, is closed."""


class BadFrame(NodeError):
    """Bytes from the network that are not a frame of ours; `reason` is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RepeatedFrame(BadFrame):
    """A frame that was taken before, sealed by a member. It ends where `end` says, and the frames
    behind it may be new."""

    def __init__(self, end: int = 0) -> None:
        super().__init__("replayed")
        self.end = end


class BadTrace(NodeError):
    """Bytes that are not a trace block of ours; `reason` says what is wrong with them."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def require(condition: bool, message: str) -> None:  # noqa: FBT001 as in an assert statement
    """Raise ConfigError with `message` unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def require_type(what: str, value: object, wanted: type | tuple[type, ...], remedy: str) -> None:
    """Raise ConfigError unless a value is of a type; the remedy says what to write."""
    # To Python a bool is a number; nobody who writes one means that.
    is_number = isinstance(value, bool) and wanted is not bool
    if is_number or not isinstance(value, wanted):
        raise ConfigError(f"{what} is of type {type(value).__name__}: write {remedy}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message on an unknown name: `; did you mean X?`, or all known names."""
    names = list(known)
    return f"; {did_you_mean(name, names) or 'known: ' + ', '.join(names)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean X?` if a known name is close to `name`, else an empty text."""
    close = get_close_matches(shortened(name), list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def shortened(text: str) -> str:
    """Return a text as a message shows it: of a long text, the beginning."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


UNKEYED: Final = frozenset({"sealed", "not-sealed", "key-unknown"})
"""Reasons of a BadFrame whose sender does not have the keys of this member."""
