"""Whom a step means that names a role: only known when it is done, and kept to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stormcast.chaos import faults
from stormcast.chaos.faults import Names


class Roles:
    """Who has a role, by whoever knows the group at the moment."""

    def __init__(
        self,
        members: Names,
        coordinator: Callable[[], str | None],
        participant: Callable[[str], str | None],
    ) -> None:
        self._members = members
        self._coordinator = coordinator
        self._participant = participant
        self._struck: dict[str, str] = {}
        """Which member a fault that names a role has struck, by its id."""

    def name_of(self, fault: str, action: Any) -> str | None:  # noqa: ANN401 whatever has a member
        """The member that a step means; None where nobody has the role, or had it."""
        name: str = action.member
        if name not in faults.ROLES:
            return name
        if isinstance(action, faults.Resume | faults.Join) or (
            isinstance(action, faults.Restart) and fault in self._struck
        ):
            return self._struck.get(fault)
        is_first = name == faults.COORDINATOR
        found = self._coordinator() if is_first else self._participant(fault)
        if found is not None:
            self._struck[fault] = found
        return found

    def aimed(self, action: faults.NetworkFault) -> faults.NetworkFault:
        """A partition around the coordinator, now that it matters who that is."""
        if not isinstance(action, faults.Partition) or action.shape != "isolate-coordinator":
            return action
        alone = self._coordinator() or self._members[0]
        rest = tuple(name for name in self._members if name != alone)
        return faults.Partition(groups=((alone,), rest), shape=action.shape)
