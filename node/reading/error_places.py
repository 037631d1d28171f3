"""Gives errors the place of the value that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from stormcast.node.core.errors import ConfigError, Place

T = TypeVar("T")


@contextmanager
def placed(place: Place | None) -> Iterator[None]:
    """Add this place to a ConfigError that is raised inside, unless it has a place already."""
    try:
        yield
    except ConfigError as error:
        if place is None or error.place is not None:
            raise
        raise ConfigError(error.message, place) from None


def to_blame(said: Sequence[T], complaint: str, make_without: Callable[[T], object]) -> T | None:
    """Return the last value without which the complaint does not come, or None. The check that
    complains may compare several values, and does not know where they are written."""
    for one in reversed(said):
        try:
            make_without(one)
        except ConfigError as error:
            if error.message == complaint:
                continue
        return one
    return None
