"""The steps and loads of a scenario in order of time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.faults import Names
from stormcast.chaos.language.schedule import TimedStep
from stormcast.chaos.language.workload import ScenarioLoad

EPSILON: Final = 1e-6
"""Seconds by which two equal times may differ."""


class Agenda:
    """The steps and loads that have not begun, by time; at equal times the step is first."""

    def __init__(
        self, steps: Sequence[TimedStep], loads: Iterable[ScenarioLoad], members: Names
    ) -> None:
        items: list[tuple[float, TimedStep | ScenarioLoad]] = [(step.at, step) for step in steps]
        items += [(load.start, load) for load in loads]
        self._items = deque(sorted(items, key=itemgetter(0)))
        self._members = members
        self._starts = Counter(name for step in steps for name in self._started_by(step))
        """By member, the number of steps to come that start it."""

    def next_at(self) -> float | None:
        """Return the time of the next step or load; None: there is none left."""
        return self._items[0][0] if self._items else None

    def take_steps(self, now: float) -> list[TimedStep]:
        """Remove and return the steps that are due and come before the next load."""
        due: list[TimedStep] = []
        while self._items:
            at, item = self._items[0]
            if not isinstance(item, TimedStep) or at > now + EPSILON:
                break
            due.append(item)
            self._items.popleft()
            self._starts.subtract(self._started_by(item))
        return due

    def take_load(self) -> ScenarioLoad:
        """Remove and return the load that comes first."""
        _at, load = self._items.popleft()
        assert isinstance(load, ScenarioLoad)
        return load

    def still_to_come(self) -> Iterator[str]:
        """Yield the members that a step to come starts; it may be due, or late already."""
        return (name for name, steps in self._starts.items() if steps)

    def _started_by(self, step: TimedStep) -> Names:
        action = step.action
        if not isinstance(action, faults.Restart | faults.Join):
            return ()
        # The member that a role stands for is not known yet: it may be anyone.
        return (action.member,) if action.member in self._members else self._members
