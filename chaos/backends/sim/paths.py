"""Sets the paths of the simulated network as a `NetworkState` says."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import permutations

from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.backends.sim.strangers import Strangers
from stormcast.chaos.faults import Names
from stormcast.chaos.faults.paths import PathMaker
from stormcast.chaos.language.network_state import NetworkState


class Paths:
    """The paths of all members."""

    def __init__(
        self,
        network: Network,
        strangers: Strangers,
        members: Names,
        on_change: Callable[[], None],
    ) -> None:
        self._network = network
        self._strangers = strangers
        self._maker = PathMaker()
        self._on_change = on_change
        self._state = NetworkState(members=members)
        self._rebuild()

    def number_connections(self) -> None:
        """Number connections from the beginning on, because a later rule may select by number."""
        self._maker.selects_by_connection = True
        self._rebuild()

    @property
    def acting(self) -> Collection[str]:
        """The faults that act."""
        return self._state.faults.keys()

    def apply(self, state: NetworkState, now: float) -> None:
        """Bring the network into `state`, whatever it was. A rule that stays keeps its counts and
        the frames it holds; frames of a rule that has ended are released."""
        self._state = state
        self._strangers.apply(state.faults)
        ended = self._maker.renew(state.seed, state.faults)
        self._rebuild()
        for fault in ended:
            self._network.release(fault, now)

    def release(self, name: str | None, now: float) -> None:
        """Release the frames that the rules of one fault hold, or all rules (None)."""
        for fault in self._maker.rules_named(name):
            self._network.release(fault, now)

    def _rebuild(self) -> None:
        state = self._state
        for source, dest in permutations(state.members, 2):
            path = self._maker.path(source, dest, state.base, state.faults)
            self._network.set_path(path)
        self._on_change()
