"""The interface of every backend: the verbs that a run is made of, in virtual time or on real
machines.

A backend is the place where members live. It starts and ends them, makes the network between them
what a `NetworkState` says, passes questions to them, and hands over what they wrote.
`chaos/session` decides when each thing happens, and judges the result: so a backend is small, and
all backends pass one suite of tests (tests/conformance).

The verbs are plain calls. Time passes only in `wait`, and in what a verb itself takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from stormcast.chaos.faults import Names
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.records.exits import MemberExit
from stormcast.chaos.records.rig_trace import Overheard
from stormcast.node.core.errors import NodeError

LEASE_SECONDS: Final = 3.0
"""Seconds that faults of a network last when nobody renews them."""


class BackendError(NodeError):
    """The run cannot go on. The text is one line, with the remedy."""


class Unsupported(Exception):
    """The backend cannot give this scenario its meaning; nothing was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """One member of a run: its name and the content of its configuration (docs/node.md)."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """As `stormcast node --config` reads it. The backend adds the settings that depend on where the
    member lives (address, journal, control endpoint, discovery)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The members and limits of a run: everything a backend must know before anything starts."""

    run: str
    """A word for this run, which also keeps its cluster apart from others."""
    members: tuple[MemberPlan, ...]
    folder: Path
    """The folder in which the backend may keep logs and journals."""
    seed: int = 1
    needs: frozenset[str] = frozenset()
    """Features (`stormcast.chaos.language.features.FEATURES`) that the run uses."""
    rules_in_members: bool = False
    """Whether rules act inside the receiving members, where the backend cannot act on the way."""
    sealed: bool = False
    """Whether members have a key, and seal what they send; the backend makes it."""
    first_conn: int = 1
    """The first connection id of each member, on backends that can choose it."""
    trace_bytes: int = 1 << 62
    """The most that all journals may hold together, where nothing else bounds them."""

    @property
    def names(self) -> Names:
        return tuple(member.name for member in self.members)


@runtime_checkable
class NotesExits(Protocol):
    """A backend whose members are processes, which may end without an order."""

    def exits(self) -> Sequence[MemberExit]:
        """Return the ends of all incarnations so far, in the order in which they were noticed."""
        ...


Bites = Mapping[str, Mapping[tuple[str, str], int]]
"""Per fault id, per sender and receiver: frames (or packets) on which the fault had an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Figures of a run that only a simulator can see."""

    events: int
    """Frame arrivals and fired timers: how much work the run was."""
    mismatches: tuple[str, ...]
    """Messages that an application got other than they were sent, of all incarnations."""
    control: Mapping[str, int]
    """Control frames sent in a group, by `protocol/kind`."""
    control_most: Mapping[str, int]
    """The same, but of each kind only the number of the incarnation that sent the most of it."""
    overheard: tuple[Overheard, ...] = ()
    """The messages that strangers read, in the order of time."""


@runtime_checkable
class Observes(Protocol):
    """A backend that sees every frame and every application."""

    def observed(self) -> Observed:
        """Return the figures of the run so far."""
        ...


class Backend(Protocol):
    """The place where members live, for one run. Call: `open`, the verbs, `collect`, `close`."""

    name: str
    is_virtual: bool
    """Whether time is virtual: a wait then costs only the work that is done in it."""

    def features(self) -> Mapping[str, str | None]:
        """Return for every feature of `stormcast.chaos.language.features.FEATURES` None where this
        backend has it here, else one line with the reason and the remedy. Tries the features, and
        leaves nothing behind."""
        ...

    def open(self, plan: ClusterPlan) -> None:
        """Prepare a place for each member; no member runs yet. BackendError if that fails."""
        ...

    def close(self) -> None:
        """End everything and leave nothing behind. May be called at any time, and twice."""
        ...

    # -- Time --

    def now(self) -> float:
        """Return the seconds of the clock by which members date their events."""
        ...

    def wait(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        """Wait for `seconds`, or until `is_done`; returns whether `is_done`. Meanwhile leases are
        renewed. BackendError when a part of the backend itself has ended."""
        ...

    # -- Members --

    def start(self, name: str) -> None:
        """Start a member as a new incarnation; does not wait until it is ready."""
        ...

    def set_test_protocols(
        self, name: str, test_protocols: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Have the incarnations of a member that are started from now on begin with these test
        protocols in their stack, so that none of their frames escapes."""
        ...

    def stop(self, name: str) -> None:
        """Have a member leave its group and end, a paused one when it goes on; does not wait for
        its end."""
        ...

    def kill(self, name: str) -> None:
        """End a member at once, paused or not."""
        ...

    def restart(self, name: str) -> None:
        """Kill a member, if it runs, and start it anew."""
        ...

    def change_keys(self, step: str) -> None:
        """Do one of KEY_STEPS to the keys of all members, which follow within a second."""
        ...

    def pause(self, name: str) -> None:
        """Pause a member. It resumes by itself when nobody is there to do it."""
        ...

    def resume(self, name: str) -> int | None:
        """Resume a paused member; returns how many frames and timers the pause held, or None if
        that is unknown."""
        ...

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        ...

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever the member says
        """Send one request to a member's control endpoint (docs/node.md), over a path that no fault
        touches; MemberError when the member does not answer or refuses."""
        ...

    # -- The network --

    def apply(self, state: NetworkState) -> None:
        """Bring the network into `state` in one step, whatever it was; `wait` renews it."""
        ...

    def renew(self) -> None:
        """Extend what was applied by another lease. BackendError when the lease has lapsed: the
        network has healed by itself, and the run must not go on as if the faults still acted."""
        ...

    def clear(self) -> None:
        """End all faults of the network. May be called at any time, and twice."""
        ...

    def release(self, fault: str | None) -> None:
        """Release the frames that `hold` rules keep: of one fault, or of all (None)."""
        ...

    def bites(self) -> Bites:
        """Return the bites of all faults of this run so far, also of those that have ended."""
        ...

    # -- The end --

    def freeze(self) -> None:
        """Stop all members for good at one moment, so that no member sees another one end."""
        ...

    def collect(self) -> Mapping[str, bytes]:
        """Return the traces of every incarnation so far, by label."""
        ...


class MemberError(BackendError):
    """A member did not answer, or refused."""
