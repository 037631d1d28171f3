"""Bugs in the product, for a while: attributes of its classes and modules, replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Patches:
    """Attributes of classes and modules, replaced for a while."""

    def __init__(self) -> None:
        self._old: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: object) -> None:
        """Replace one; it must be there."""
        self._old.append((owner, name, vars(owner).get(name, self)))
        assert hasattr(owner, name), f"{owner} has no {name}"
        setattr(owner, name, value)

    def method(self, owner: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Replace the method of the same name."""

        def put(function: Callable[..., Any]) -> Callable[..., Any]:
            self.put(owner, function.__name__, function)
            return function

        return put

    def undo(self) -> None:
        """Put everything back."""
        while self._old:
            owner, name, value = self._old.pop()
            if value is self:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextmanager
def applied(bug: Callable[[Patches], None]) -> Iterator[None]:
    """While this lasts the product has the bug."""
    patches = Patches()
    try:
        bug(patches)
        yield
    finally:
        patches.undo()
