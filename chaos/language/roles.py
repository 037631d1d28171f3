"""The member that a step means by a role: known when the step is done, the same until its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stormcast.chaos import faults
from stormcast.chaos.faults import Names


class Roles:
    """Finds the member that has a role, by asking `coordinator` and `participant`."""

    def __init__(
        self,
        members: Names,
        coordinator: Callable[[], str | None],
        participant: Callable[[str], str | None],
        dead: Callable[[str], str | None],
    ) -> None:
        self._members = members
        self._coordinator = coordinator
        self._participant = participant
        self._dead = dead
        self._struck: dict[str, str] = {}
        """The member that each fault with a role has struck, by the id of the fault."""

    def name_of(self, fault: str, action: Any) -> str | None:  # noqa: ANN401 whatever has a member
        """Return the member that a step means; None where nobody has the role, or had it."""
        name: str = action.member
        if name == faults.RANDOM:
            return self._dead(fault)
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
        """Return the action; `isolate-coordinator` now gets its groups, by who coordinates."""
        if not isinstance(action, faults.Partition) or action.shape != "isolate-coordinator":
            return action
        alone = self._coordinator() or self._members[0]
        rest = tuple(name for name in self._members if name != alone)
        return faults.Partition(groups=((alone,), rest), shape=action.shape)
