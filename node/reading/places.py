"""Errors get the place of what they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from stormcast.node.core.errors import ConfigError, Place

T = TypeVar("T")


@contextmanager
def placed(place: Place | None) -> Iterator[None]:
    """Whatever is refused within is refused at this place, unless its own is known."""
    try:
        yield
    except ConfigError as error:
        if place is None or error.place is not None:
            raise
        raise ConfigError(error.message, place) from None


def to_blame(said: Sequence[T], complaint: str, make_without: Callable[[T], object]) -> T | None:
    """The value, the last said first, without which nobody makes this complaint. A check may hold
    several values against each other, and knows nothing of files."""
    for one in reversed(said):
        try:
            make_without(one)
        except ConfigError as error:
            if error.message == complaint:
                continue
        return one
    return None
