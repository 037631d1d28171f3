"""Simplifies the parts of a failing scenario: shorter lists, narrower ranges, smaller numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from math import floor, log10
from typing import Any, Final, get_args, get_origin

from stormcast.chaos.campaigns.shrink.members import WITHOUT_EFFECT
from stormcast.chaos.campaigns.shrink.paths import Path, default_of, hints_of, tuple_hint
from stormcast.chaos.campaigns.shrink.trials import GRID, REPAIRS, Trials
from stormcast.chaos.language.scenario import Scenario

LOWERED: Final = frozenset({"count"})
"""Fields whose number is lowered even from its default, and never raised to it: each message adds
events that somebody must read."""
JUDGES: Final = frozenset({"expect", "budget"})
"""Fields by which a run is judged: entries may be removed, but are not changed."""
HALVINGS: Final = 6
"""Halvings of the range of a number in the search for a smaller one: to a sixty-fourth."""
DIGITS: Final = (1, 2, 3)
"""Significant digits that a time or a share is rounded to, the fewest first."""
PAIRED: Final = 8
"""A list of at most so many entries is also tried without each pair of them."""


class ScenarioParts:
    """Tries simpler values for each part of the smallest scenario so far."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials

    def simplify(self) -> None:
        """Visit all parts once."""
        self._visit((), Scenario)

    def _visit(self, path: Path, hint: Any, default: object = MISSING) -> None:  # noqa: ANN401 hints have no type
        """Simplify one part of the best scenario, and the parts in it."""
        value = self._trials.part(path)
        if _may_return_to(default, value, path) and self._trials.try_at(path, default):
            return
        if is_dataclass(value):
            kind: Any = type(value)
            hints = hints_of(kind)
            for part in fields(value):
                if part.compare and not (path == () and part.name in WITHOUT_EFFECT):
                    self._visit((*path, part.name), hints[part.name], default_of(part))
        elif isinstance(value, tuple):
            self._visit_tuple(path, tuple_hint(hint), default)
        elif path[0] in JUDGES or (value == default and path[-1] not in LOWERED):
            return
        elif isinstance(value, int) and not isinstance(value, bool):
            self._lower_whole(path, _floor(default, path))
        elif isinstance(value, float):
            self._lower(path, default)

    def _visit_tuple(self, path: Path, hint: Any, default: object) -> None:  # noqa: ANN401 hints have no type
        """Shorten a list, or narrow a tuple of fixed length, such as a range."""
        inner = get_args(hint)
        if len(inner) == 2 and inner[1] is Ellipsis:  # noqa: PLR2004 `tuple[X, ...]` has two
            # members.py removes members; a shorter list within `expect` or `budget` would be easier
            # or harder to meet.
            if path == ("cluster", "members") or (path[0] in JUDGES and len(path) > 1):
                return
            self._thin(path)
            for at in range(len(self._trials.part(path))):
                self._visit((*path, at), inner[0])
        elif set(inner) == {int}:
            if self._trials.part(path) != default:
                self._narrow(path)
        else:
            for at, part in enumerate(inner):
                if get_origin(part) is tuple:
                    self._visit((*path, at), part)

    def _thin(self, path: Path) -> None:
        """Remove as much of a list as possible: all, halves, quarters, …, single entries, pairs."""
        # Other entries that are invalid without a removed one go, too; not so for names in a list.
        repairs = REPAIRS if len(path) == 1 else 0
        chunk = len(self._trials.part(path))
        while chunk:
            at = 0
            while at < len(items := self._trials.part(path)):
                if not self._trials.try_at(path, items[:at] + items[at + chunk :], repairs=repairs):
                    at += chunk
            chunk //= 2
        if repairs:
            self._thin_by_pairs(path)

    def _thin_by_pairs(self, path: Path) -> None:
        """Try to remove pairs: a fault and its cure may have to go together."""
        one, two = 0, 1
        while two < len(items := self._trials.part(path)) <= PAIRED:
            rest = (*items[:one], *items[one + 1 : two], *items[two + 1 :])
            if self._trials.try_at(path, rest, repairs=REPAIRS):
                one, two = 0, 1
                continue
            two += 1
            if two >= len(items):
                one, two = one + 1, one + 2

    def _narrow(self, path: Path) -> None:
        """Replace a range by one of its ends, and lower that."""
        low, high = self._trials.part(path)
        if low != high and not self._trials.try_at(path, (low, low)):
            self._trials.try_at(path, (high, high))
        low, high = self._trials.part(path)
        if low == high:
            self._search(0, low, lambda number: self._trials.try_at(path, (number, number)))

    # -- Numbers ---------------------------------------------------------------------------------

    def _lower_whole(self, path: Path, lowest: int) -> None:
        value = self._trials.part(path)
        self._search(lowest, value, lambda number: self._trials.try_at(path, number))

    @staticmethod
    def _search(low: int, high: int, fails: Callable[[int], bool]) -> None:
        """Search for a smaller number that still fails, by bisection."""
        for small in (low, low + 1):
            if small < high and fails(small):
                return
        low += 1
        while high - low > 1:
            middle = (low + high) // 2
            if fails(middle):
                high = middle
            else:
                low = middle

    def _lower(self, path: Path, default: object) -> None:
        """Lower a float, such as seconds or a share, towards its default or 0, and round it."""
        low = 0.0 if default is MISSING or default is None else default
        high = self._trials.part(path)
        assert isinstance(low, float | int)
        if high > low:
            high = self._halve(path, float(low), high)
        for digits in DIGITS:
            rounded = _rounded(high, digits)
            if len(repr(rounded)) < len(repr(high)) and self._trials.try_at(path, rounded):
                return

    def _halve(self, path: Path, low: float, high: float) -> float:
        if low == 0.0 and self._trials.try_shorter(path, 0.0):
            return 0.0
        for _ in range(HALVINGS):
            middle = round(_rounded((low + high) / 2, 2), GRID)
            if not low < middle < high:
                break
            if self._trials.try_shorter(path, middle):
                high = middle
            else:
                low = middle
        return high


def _may_return_to(default: object, value: object, path: Path) -> bool:
    """Whether a default would be simpler than the value."""
    if default is MISSING or default == value:
        return False
    if isinstance(default, tuple) and isinstance(value, tuple):
        return len(default) <= len(value)
    if path[-1] in LOWERED:
        return isinstance(default, int) and isinstance(value, int) and default < value
    return True


def _floor(default: object, path: Path) -> int:
    """Return the lowest value that a whole number may get."""
    if isinstance(default, int) and path[-1] not in LOWERED:
        return default
    return 0


def _rounded(value: float, digits: int) -> float:
    if value == 0.0:
        return 0.0
    return round(value, digits - 1 - floor(log10(abs(value))))
