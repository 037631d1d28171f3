"""The lease of a simulated cluster: faults and pauses last for as long as it is renewed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError
from stormcast.chaos.backends.sim.engine import Engine


class Lease:
    """One lease in virtual time, for the network state and all pauses."""

    def __init__(self, engine: Callable[[], Engine], lapse: Callable[[], bool]) -> None:
        self.has_lapsed = False
        """Whether a network state ended because the lease was not renewed."""
        self._engine = engine
        self._lapse = lapse
        """Undoes everything, and returns whether a network state was applied."""
        self._end = 0.0
        self._taken = 0

    def take(self) -> None:
        """Begin the lease: from now on it lapses unless it is renewed."""
        self.renew()
        self._taken += 1
        self._watch(self._taken)

    def renew(self) -> None:
        """Extend the lease to `LEASE_SECONDS` from now; BackendError if it has lapsed."""
        if self.has_lapsed:
            raise BackendError("the lease has lapsed, and the network is healed; apply again")
        self._end = self._engine().now + LEASE_SECONDS

    def _watch(self, number: int) -> None:
        if number != self._taken:
            return
        engine = self._engine()
        if engine.now < self._end:
            engine.call(self._end, partial(self._watch, number))
        else:
            self.has_lapsed = self._lapse()
