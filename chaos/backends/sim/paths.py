"""Makes the paths of the simulated network what a state says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.faults import Names
from stormcast.chaos.faults.paths import PathMaker
from stormcast.chaos.language.network_state import NetworkState


class Paths:
    """The paths of all members."""

    def __init__(self, network: Network, members: Names, on_change: Callable[[], None]) -> None:
        self._network = network
        self._maker = PathMaker()
        self._on_change = on_change
        self._state = NetworkState(members=members)
        self._rebuild()

    def number_connections(self) -> None:
        """From the beginning on, because a rule may ask for it later."""
        self._maker.selects_by_connection = True
        self._rebuild()

    def apply(self, state: NetworkState, now: float) -> None:
        """Make the network what a state says, whatever it was; a rule that is still there goes on
        counting and holding where it was."""
        self._state = state
        ended = self._maker.renew(state.seed, state.faults)
        self._rebuild()
        for fault in ended:
            self._network.release(fault, now)

    def release(self, name: str | None, now: float) -> None:
        """Let go what one rule holds, or all do."""
        for fault in self._maker.rules_named(name):
            self._network.release(fault, now)

    def _rebuild(self) -> None:
        state = self._state
        for source, dest in permutations(state.members, 2):
            path = self._maker.path(source, dest, state.base, state.faults)
            self._network.set_path(path)
        self._on_change()
