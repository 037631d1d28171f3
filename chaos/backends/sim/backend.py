"""The simulator as a backend: a cluster in virtual time, steered by the verbs of a backend.

Only the members' code is real. Virtual time passes only in `wait` (and in `restart`); equal calls
give equal runs, to the byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.backends.base import (
    LEASE_SECONDS,
    BackendError,
    Bites,
    ClusterPlan,
    MemberError,
    Observed,
    Unsupported,
)
from stormcast.chaos.backends.sim.lease import Lease
from stormcast.chaos.backends.sim.members import SimMember
from stormcast.chaos.backends.sim.traces import WALL_NS
from stormcast.chaos.backends.sim.world import World
from stormcast.chaos.faults import BASE
from stormcast.chaos.language.features import FEATURES, ONLY_REAL
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.member.settings import MemberSettings, read_member

POLL_SECONDS: Final = 0.02
"""Virtual seconds between two calls of `is_done` in a wait."""
RESTART_SECONDS: Final = 0.001
"""Between a member's end and its next incarnation: only their times tell which came first."""
RENEW_SECONDS: Final = LEASE_SECONDS / 3
RULES: Final = frozenset({"rule-drop", "rule", "rule-on-streams"})
_OK: Final = range(200, 300)


class SimBackend:
    """Members in virtual time."""

    name = "sim"
    is_virtual = True
    wall_ns: int = WALL_NS
    """The wall clock when virtual time began, as all traces have it."""

    def __init__(
        self,
        *,
        fate: str = "xxh3",
        make_unicast: Callable[..., Any] | None = None,
        make_multicast: Callable[..., Any] | None = None,
        keys: tuple[ClusterKey, ...] = (),
    ) -> None:
        """`keys`: those of sealed members; without any, the simulator draws one from the seed."""
        self._make = partial(
            World, fate=fate, make_unicast=make_unicast, make_multicast=make_multicast, keys=keys
        )
        self._opened: World | None = None
        self._plan = ClusterPlan(run="", members=(), folder=Path())
        self._test_protocols: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        """By member, the test protocols with which it is started."""
        self._is_applied = False
        self._lease = Lease(lambda: self._world.engine, self._lapse)

    def features(self) -> Mapping[str, str | None]:
        """Return all features: the simulator has each of them."""
        return {**dict.fromkeys(FEATURES), **ONLY_REAL}

    def open(self, plan: ClusterPlan) -> None:
        """Make the world of a cluster, in which no member runs yet."""
        if self._opened is not None:
            raise BackendError("this simulator has a cluster; make another one for another run")
        _check_needs(plan, self.features())
        self._plan = plan
        self._opened = self._make(plan, _settings(plan))
        if plan.needs & RULES:
            self._opened.paths.number_connections()

    def close(self) -> None:
        """Forget the world."""
        self._opened = None
        self._is_applied = self._lease.has_lapsed = False

    # -- Time ----------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the virtual time, in seconds."""
        return self._world.engine.now

    def wait(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        """Run the engine for `seconds`, or until `is_done`; returns whether `is_done`."""
        engine = self._world.engine
        until = engine.now + seconds
        step = RENEW_SECONDS if is_done is None else POLL_SECONDS
        while True:
            if is_done is not None and is_done():
                return True
            if engine.now >= until:
                return False
            self.renew()
            engine.run(min(until, engine.now + step))

    # -- Members -------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a member as a new incarnation."""
        _check_known(self._plan, name)
        if self.is_alive(name):
            raise BackendError(f"{name} runs already; restart it, or stop it before")
        self._world.start(name)
        for test_protocol, values in self._test_protocols.get(name, {}).items():
            self._living(name).host.stack.set_test_protocol(test_protocol, values, self.now())

    def set_test_protocols(
        self, name: str, test_protocols: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Have a member begin with these test protocols when it is started next."""
        _check_known(self._plan, name)
        self._test_protocols[name] = test_protocols

    def stop(self, name: str) -> None:
        """Have a member leave; a paused one does when it is resumed."""
        self._living(name).leave()

    def kill(self, name: str) -> None:
        """End a member at once."""
        _check_known(self._plan, name)
        member = self._world.members.get(name)
        if member is not None:
            self._world.crash(member.host)

    def restart(self, name: str) -> None:
        """Kill a member, if it runs, and start a new incarnation."""
        self.kill(name)
        self.wait(RESTART_SECONDS)
        self.start(name)

    def pause(self, name: str) -> None:
        """Pause a member, for as long as the lease is renewed."""
        self._living(name).host.is_paused = True
        self._lease.take()

    def resume(self, name: str) -> int:
        """Resume a paused member: it takes the frames that its socket buffer kept."""
        host = self._living(name).host
        return self._world.engine.resume(host) if host.is_paused else 0

    def change_keys(self, step: str) -> None:
        """Change the keys; each member notices when it looks next."""
        self._world.change_keys(step)

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        member = self._world.members.get(name)
        if member is None:
            _check_known(self._plan, name)
            return False
        return member.host.is_alive

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever the member says
        """Return the answer of a member's control endpoint; MemberError if there is none."""
        member = self._world.members.get(name)
        if member is None or not member.host.is_alive:
            _check_known(self._plan, name)
            raise MemberError(f"{name} does not answer {method} {target}: it does not run")
        if member.host.is_paused:
            raise MemberError(f"{name} does not answer {method} {target}: it is paused")
        try:
            answer = member.answer(method, target, {} if body is None else body)
        except NodeError as error:
            raise MemberError(f"{name}: {method} {target}: {error}") from None
        said = answer.content.decode() if isinstance(answer.content, bytes) else answer.content
        if answer.status not in _OK:
            raise MemberError(f"{name}: {method} {target}: {answer.status} {said}")
        return said

    # -- The network ---------------------------------------------------------------------------

    def apply(self, state: NetworkState) -> None:
        """Set every path as the state says."""
        if state.members != self._plan.names:
            raise BackendError(
                f"the state is of {' '.join(state.members)}, and the cluster of "
                f"{' '.join(self._plan.names)}; say what all of its links are like"
            )
        self._world.paths.apply(state, self.now())
        self._is_applied = True
        self._lease.has_lapsed = False
        self._lease.take()

    def renew(self) -> None:
        """Extend the lease; BackendError if it has lapsed."""
        self._lease.renew()

    def clear(self) -> None:
        """Heal every path."""
        self._lease.has_lapsed = False
        if self._opened is not None and self._is_applied:
            self._is_applied = False
            healed = NetworkState(members=self._plan.names, seed=self._plan.seed)
            self._opened.paths.apply(healed, self.now())

    def release(self, fault: str | None) -> None:
        """Release the frames that `hold` rules keep."""
        self._world.paths.release(fault, self.now())

    def bites(self) -> Bites:
        """Return the bites of every fault, by sender and receiver."""
        return self._world.network.decider.counted()

    def _lapse(self) -> bool:
        """Clear the network and resume all members, as an agent does when nobody renews its lease;
        returns whether a network state was applied."""
        was_applied = self._is_applied
        self.clear()
        for name in self._plan.names:
            if self.is_alive(name):
                self.resume(name)
        return was_applied

    # -- The end -------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop all members at one moment, for good."""
        self._world.freeze()

    def collect(self) -> Mapping[str, bytes]:
        """Return the traces of every incarnation so far, by label."""
        return self._world.take_traces()

    def forget(self, gone: Collection[str]) -> None:
        """Forget what was collected, and the bites of faults that have ended."""
        self._world.forget_traces()
        self._world.network.decider.forget({BASE, *self._world.paths.acting})

    def observed(self) -> Observed:
        """Return the figures of a run that only a simulator can see."""
        world = self._world
        return Observed(
            events=world.engine.events,
            mismatches=tuple(world.mismatches),
            control=world.sender.control_totals(sum),
            control_most=world.sender.control_totals(max),
            overheard=tuple(world.strangers.overheard),
        )

    # -- The world and its members ---------------------------------------------------------------

    @property
    def _world(self) -> World:
        if self._opened is None:
            raise BackendError("the simulator has no cluster: open it before")
        return self._opened

    def _living(self, name: str) -> SimMember:
        _check_known(self._plan, name)
        member = self._world.members.get(name)
        if member is None or not member.host.is_alive:
            raise BackendError(f"{name} does not run; start it before")
        return member


def _check_needs(plan: ClusterPlan, features: Mapping[str, str | None]) -> None:
    for need in sorted(plan.needs):
        why = features.get(need, "no backend has such a feature")
        if why:
            raise Unsupported(f"sim has no {need}: {why}")


def _check_known(plan: ClusterPlan, name: str) -> None:
    if name not in plan.names:
        raise BackendError(f"no member {name}; there is {' '.join(plan.names)}")


def _settings(plan: ClusterPlan) -> dict[str, MemberSettings]:
    """Read each member's settings as `stormcast node --config` reads them; equal configurations
    are read once."""
    read: dict[str, MemberSettings] = {}
    found: dict[str, MemberSettings] = {}
    for member in plan.members:
        words = json.dumps(member.config)
        if words not in read:
            try:
                read[words] = read_member(member.config, member.name)
            except NodeError as error:
                raise BackendError(str(error)) from None
        found[member.name] = replace(read[words], name=member.name)
    return found
