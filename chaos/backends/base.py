"""What every backend can do: the verbs that a run is made of, in virtual time or on real machines.

A backend is where members live. It starts and ends them, makes the network between them what a
`NetworkState` says, passes questions to them, and hands over what they wrote. When what happens,
and what it means, is the business of `chaos/session`: so a backend is small, and all of them are
held to one suite (tests/conformance).

The verbs are plain calls. Time passes only in `wait`, and in what a verb itself takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from stormcast.chaos.faults import Names
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError

LEASE_SECONDS: Final = 3.0
"""How long what acts on a network lasts when nobody renews it."""


class BackendError(NodeError):
    """Something is not as it should be, and the run cannot go on: one line, with the remedy."""


class Unsupported(Exception):
    """The backend cannot give this scenario its meaning; nothing was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """How one member is run: the content of its configuration, in the words of docs/node.md."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """As `stormcast node --config` reads it. What depends on where the member lives (address,
    journal, control endpoint, discovery) is the backend's to add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What is to be run: everything a backend must know before anything starts."""

    run: str
    """A word for this run, which also keeps its cluster apart from others."""
    members: tuple[MemberPlan, ...]
    folder: Path
    """Where the backend may keep logs and journals."""
    seed: int = 1
    needs: frozenset[str] = frozenset()
    """Words of `stormcast.chaos.language.features.FEATURES` that the run makes use of."""
    rules_in_members: bool = False
    """Whether rules act inside of the members that receive, for want of a way in between."""
    first_conn: int = 1
    """The connection id from which members count, where the backend can have them begin there."""
    trace_bytes: int = 1 << 62
    """What all journals may hold together, where nothing else bounds them."""

    @property
    def names(self) -> Names:
        return tuple(member.name for member in self.members)


Bites = Mapping[str, Mapping[tuple[str, str], int]]
"""Per fault id, per sender and receiver: frames (or packets) on which it had an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What only a simulator can see of a run."""

    events: int
    """Frame arrivals and fired timers: how much work the run was."""
    mismatches: tuple[str, ...]
    """What applications got that was not what was sent, of all incarnations."""
    control: Mapping[str, int]
    """Control frames sent in a group, by `protocol/kind`."""
    control_most: Mapping[str, int]
    """The same, of the incarnation that sent most of each."""


@runtime_checkable
class Observes(Protocol):
    """A backend that sees every frame and every application."""

    def observed(self) -> Observed:
        """Of the run so far."""
        ...


class Backend(Protocol):
    """Where members live, for one run. Use it as: open, verbs, collect, close."""

    name: str
    is_virtual: bool
    """Whether its time is virtual: waiting costs only what happens meanwhile."""

    def features(self) -> Mapping[str, str | None]:
        """Every feature of `stormcast.chaos.language.features.FEATURES`: None where this backend
        has it here, else why not and what to do, in one line. Found by trying, and leaves nothing
        behind."""
        ...

    def open(self, plan: ClusterPlan) -> None:
        """Have a place for each member; nobody runs yet. BackendError with the remedy if not."""
        ...

    def close(self) -> None:
        """End everything and leave nothing behind. Safe at any time, and twice."""
        ...

    # -- Time --

    def now(self) -> float:
        """Seconds of the clock by which members date their events."""
        ...

    def wait(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        """Let time pass, but no more than until `is_done`; returns whether it is. Renews what must
        be renewed meanwhile. BackendError when a part of the backend itself has ended."""
        ...

    # -- Members --

    def start(self, name: str) -> None:
        """Start a member as a new incarnation; does not wait until it is ready."""
        ...

    def stop(self, name: str) -> None:
        """Have a member leave and end in an orderly way; does not wait for its end."""
        ...

    def kill(self, name: str) -> None:
        """End a member at once, paused or not."""
        ...

    def restart(self, name: str) -> None:
        """Kill a member, if it runs, and start it anew."""
        ...

    def pause(self, name: str) -> None:
        """Have a member do nothing. It goes on by itself when nobody is there to resume it."""
        ...

    def resume(self, name: str) -> int | None:
        """Have it go on; returns how much the pause held (frames, timers), None if nobody knows."""
        ...

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        ...

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever the member says
        """One request to a member's control endpoint (docs/node.md), over a path that no fault
        touches; MemberError when it does not answer or refuses."""
        ...

    # -- The network --

    def apply(self, state: NetworkState) -> None:
        """Make the network so, whatever it was, in one step; from here on it is renewed."""
        ...

    def renew(self) -> None:
        """Have what was applied go on for another lease. BackendError when that is too late: the
        network has healed by itself, and nobody may believe otherwise."""
        ...

    def clear(self) -> None:
        """Have nothing act on the network any more. Safe at any time, and twice."""
        ...

    def release(self, fault: str | None) -> None:
        """Let go the frames that `hold` rules keep: of one fault, or of all."""
        ...

    def bites(self) -> Bites:
        """What every fault of this run has done so far, those included that are over."""
        ...

    # -- The end --

    def freeze(self) -> None:
        """Stop all members at one moment, for ever: nobody sees another one go."""
        ...

    def collect(self) -> Mapping[str, bytes]:
        """The traces of every incarnation so far, by label."""
        ...


class MemberError(BackendError):
    """A member did not answer, or refused."""
