"""What is done to a simulated cluster lasts for as long as somebody renews it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError
from stormcast.chaos.backends.sim.engine import Engine


class Lease:
    """One lease in virtual time, on all that is done."""

    def __init__(self, engine: Callable[[], Engine], lapse: Callable[[], bool]) -> None:
        self.has_lapsed = False
        """Whether what was applied ended for want of a renewal."""
        self._engine = engine
        self._lapse = lapse
        """Undoes everything, and says whether anything was applied."""
        self._end = 0.0
        self._taken = 0

    def take(self) -> None:
        """From here on somebody has to renew what is done to the cluster."""
        self.renew()
        self._taken += 1
        self._watch(self._taken)

    def renew(self) -> None:
        """Have it last from now on; BackendError where it has ended."""
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
