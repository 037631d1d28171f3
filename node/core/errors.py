"""Every error the product raises on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches


class NodeError(Exception):
    """The root of all errors raised by this package."""


class ConfigError(NodeError):
    """A setting that cannot work: names the setting, its value and the remedy."""


class ClosedError(NodeError):
    """The channel, or the connection that the call needs, is closed."""


class BadFrame(NodeError):
    """Bytes from the network that are not a frame of ours; `reason` is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BadTrace(NodeError):
    """Bytes that are not a trace block of ours; `reason` says what is wrong with them."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def require(condition: bool, message: str) -> None:  # noqa: FBT001 as in an assert statement
    """Raise ConfigError with `message` unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def suggestion(name: str, known: Mapping[str, object] | Sequence[str]) -> str:
    """`; did you mean X?`, or what there is: the end of a message about an unknown name."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
