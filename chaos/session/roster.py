"""The members of a run on any backend: which of them run, their ids, and what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from stormcast.chaos.backends.base import Backend, BackendError, MemberError
from stormcast.chaos.faults import Names

READY_SECONDS: Final = 90.0
"""Seconds that members may take to be ready, in any timing."""
POLL_SECONDS: Final = 0.1
"""Seconds between two looks at members while something is expected of them."""

State = dict[str, Any]
"""A member's answer to `GET /state` (docs/node.md)."""


class Roster:
    """Members by name, each in its newest incarnation."""

    def __init__(self, backend: Backend, members: Names, seed: int, *, has_group: bool) -> None:
        self.backend = backend
        self.members = members
        self.has_group = has_group
        self.paused: set[str] = set()
        """Members that are not asked, because they would not answer."""
        self.leaving: set[str] = set()
        self.joining: set[str] = set()
        """Members that were started and are not ready yet."""
        self.shorts: dict[str, int] = {}
        """Short ids of the newest incarnations, as far as they told them."""
        self.names: dict[int, str] = {}
        """Names by the short ids of all incarnations."""
        self._seed = seed
        self._people: dict[str, State] = {}
        """Name, identity and place of members that are ready."""

    # -- Starts and ends -------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a member, or start it anew."""
        if self.backend.is_alive(name):
            self.backend.restart(name)
        else:
            self.backend.start(name)
        self._forget(name)
        self.joining.add(name)

    def kill(self, name: str) -> None:
        """Kill a member."""
        self.backend.kill(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        for held in (self.paused, self.leaving, self.joining):
            held.discard(name)
        self.shorts.pop(name, None)
        self._people.pop(name, None)

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        return self.backend.is_alive(name)

    def living(self) -> list[str]:
        """Return all members that run, in the order of the scenario."""
        return [name for name in self.members if self.is_alive(name)]

    def answering(self) -> list[str]:
        """Return all members that run and are not paused."""
        return [name for name in self.living() if name not in self.paused]

    # -- What members say ------------------------------------------------------------------------

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever it says
        """Send one request to a member, and return the answer."""
        return self.backend.ask(name, method, target, body)

    def tell(self, name: str, target: str, body: object) -> None:
        """Have a member do something; one that leaves, or has just ended, need not answer."""
        try:
            self.ask(name, "POST", target, body)
        except MemberError:
            if name not in self.leaving and self.is_alive(name):
                raise

    def state(self, name: str) -> State | None:
        """Return what a member says of itself; None if it does not answer."""
        if name in self.paused or not self.is_alive(name):
            return None
        try:
            state: State = self.ask(name, "GET", "/state")
        except MemberError:
            return None
        if "short" in state:
            self.shorts[name] = int(state["short"], 16)
            self.names[self.shorts[name]] = name
        return state

    def states(self) -> dict[str, State]:
        """Return what each member that answers says of itself."""
        found = {name: self.state(name) for name in self.answering()}
        return {name: state for name, state in found.items() if state is not None}

    def short(self, name: str) -> int | None:
        """Return the short id of the newest incarnation; None if it never told it."""
        if name not in self.shorts:
            self.state(name)
        return self.shorts.get(name)

    def person(self, name: str) -> State | None:
        """Return name, identity and place of a member, for commands; None before it is ready."""
        if name not in self._people:
            state = self.state(name)
            if state is None or "identity" not in state:
                return None
            self._people[name] = {key: state[key] for key in ("name", "identity", "where")}
        return self._people[name]

    def coordinator(self) -> str | None:
        """Return the living member that most see as the coordinator; without views, the first."""
        votes = Counter(
            state["view"]["coordinator"] for state in self.states().values() if state["view"]
        )
        for name, _number in votes.most_common():
            if self.is_alive(name):
                return str(name)
        return next(iter(self.living()), None)

    def participant(self, fault: str) -> str | None:
        """Return a living member that does not coordinate, drawn by seed and fault, if any."""
        first = self.coordinator()
        fitting = [name for name in self.living() if name != first]
        return Random(f"{self._seed}:{fault}").choice(fitting) if fitting else None

    def dead(self, fault: str) -> str | None:
        """Return a member that does not run, drawn by seed and fault; if all run, one of all."""
        fitting = [name for name in self.members if not self.is_alive(name)]
        return Random(f"{self._seed}:{fault}").choice(fitting or list(self.members))

    # -- Waiting until members are ready ---------------------------------------------------------

    def start_together(self, names: Iterable[str], meanwhile: Callable[[], None]) -> None:
        """Start members at once, do `meanwhile`, and wait until all are one group, or bound."""
        wanted = tuple(names)
        for name in wanted:
            self.start(name)
        meanwhile()
        self.wait_for(lambda: self.are_one(wanted), f"one view of {' '.join(wanted)}")
        self.welcome()

    def start_in_turn(self, names: Iterable[str]) -> None:
        """Start members, each when the one before it is in the view."""
        wanted = tuple(names)
        for number, name in enumerate(wanted, 1):
            self.start(name)
            there = wanted[:number]
            self.wait_for(lambda there=there: self.are_one(there), f"one view with {name} in it")  # type: ignore[misc]
        self.welcome()

    def wait_for(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait until `is_done`; BackendError after READY_SECONDS, or if a started member ends."""

        def is_so() -> bool:
            for name in self.joining:
                if not self.is_alive(name):
                    raise BackendError(f"{name} ended before it was ready; its log says why")
            return is_done()

        waited = 0.0
        while not is_so():
            if waited > READY_SECONDS:
                raise BackendError(f"not within {READY_SECONDS:g}s: {what}")
            self.backend.wait(POLL_SECONDS)
            waited += POLL_SECONDS

    def are_one(self, names: Names) -> bool:
        """Whether these members hold one view of just these; without a group: are all bound."""
        found = [self.state(name) for name in names]
        states = [state for state in found if state is not None]
        if len(states) < len(names):
            return False
        if not self.has_group:
            return all(state["state"] == "connected" for state in states)
        views = [state["view"] for state in states]
        first = views[0]
        return (
            first is not None
            and sorted(member["name"] for member in first["members"]) == sorted(names)
            and all(view is not None and _same(view, first) for view in views)
        )

    def welcome(self) -> list[str]:
        """Return the started members that are ready by now, and count them as joining no more."""
        ready = [name for name in sorted(self.joining) if self._is_ready(name)]
        self.joining.difference_update(ready)
        if ready and not self.has_group:
            self._tell_all()
        return ready

    def _is_ready(self, name: str) -> bool:
        state = self.state(name)
        return state is not None and state["state"] == "connected" and self.person(name) is not None

    def went_on(self, name: str) -> None:
        """Note that a member is paused no more. Without a group, all are told anew who is there."""
        self.paused.discard(name)
        if not self.has_group:
            self._tell_all()

    def _tell_all(self) -> None:
        """Tell every member which members there are: without a group nobody else does."""
        people = [self.person(name) for name in self.living() if name not in self.joining]
        there = [person for person in people if person is not None]
        for person in there:
            if person["name"] in self.paused:
                continue
            self.tell(person["name"], "/peers", {"members": there})


def _same(view: State, other: State) -> bool:
    return bool(view["id"] == other["id"] and view["members"] == other["members"])
