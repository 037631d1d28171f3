"""What an agent does: it carries out one desired state, for as long as somebody renews it.

The kernel alone ends what nobody renews, soon after an agent was killed. One that lives does more:
when the lease lapses it lets go whatever is held and takes away all it has put anywhere.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from stormcast.chaos.drivers.base import Bites, Driver, DriverError, driver_of
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError


class LapsedError(NodeError):
    """There is nothing left to renew."""


class Agent:
    """Some drivers under one lease. Its verbs may be called at any time; they wait in line."""

    def __init__(self, drivers: Sequence[Driver]) -> None:
        self.drivers = tuple(drivers)
        """In the order in which a state is carried out; it is taken back the other way round, so
        that nobody is given a packet who does not listen yet, or any more."""
        self.lapses = 0
        """How often nobody renewed in time."""
        self.trouble: str | None = None
        """Why something could not be taken back when a lease lapsed."""
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._until: float | None = None
        """When the lease ends; None: nothing acts."""
        self._has_lapsed = False
        self._alarm: asyncio.TimerHandle | None = None
        self._lapse: asyncio.Task[None] | None = None

    @property
    def left(self) -> float | None:
        """Seconds left of the lease; None: nothing acts."""
        return None if self._until is None else max(0.0, self._until - self._loop.time())

    async def features(self) -> dict[str, str | None]:
        """What there is here, by feature, and why not where there is not."""
        async with self._lock:
            found: dict[str, str | None] = {}
            for driver in self.drivers:
                found |= await driver.features()
            return found

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Make the sites so for a lease; if that fails, nothing acts on them any more."""
        self._check(state)
        async with self._lock:
            self._extend(lease)
            try:
                for driver in self.drivers:
                    await driver.apply(state, lease)
            except BaseException:
                await self._clear()
                raise

    def _check(self, state: NetworkState) -> None:
        there = {driver.name for driver in self.drivers}
        for fault_id, fault in state.faults.items():
            if (wanted := driver_of(fault)) not in there:
                raise DriverError(f"{fault_id} takes the driver {wanted}, which is not here")

    async def renew(self, lease: float) -> None:
        """Have what acts go on; LapsedError if it has ended."""
        async with self._lock:
            if self._has_lapsed:
                raise LapsedError("the lease has lapsed, and the network is healed; apply again")
            if self._until is None:
                return
            self._extend(lease)
            for driver in self.drivers:
                await driver.renew(lease)

    async def clear(self) -> None:
        """Have nothing act any more."""
        async with self._lock:
            self._has_lapsed = False
            await self._clear()

    async def release(self, fault: str | None) -> None:
        """Let go what `hold` rules keep."""
        async with self._lock:
            for driver in self.drivers:
                await driver.release(fault)

    async def bites(self) -> Bites:
        """What was done so far, by all drivers together."""
        async with self._lock:
            return merged([await driver.bites() for driver in self.drivers])

    async def close(self) -> None:
        """Leave nothing behind."""
        if self._lapse is not None:
            self._lapse.cancel()
        await self.clear()

    def _extend(self, lease: float) -> None:
        """Count from before anything is done: what the kernel counts begins later."""
        self._has_lapsed = False
        self._until = self._loop.time() + lease
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._until, self._on_alarm)

    def _on_alarm(self) -> None:
        self._lapse = self._loop.create_task(self._end_lease())

    async def _end_lease(self) -> None:
        async with self._lock:
            if self._until is None or self._loop.time() < self._until:
                # Somebody was quicker.
                return
            self.lapses += 1
            self._has_lapsed = True
            try:
                await self._clear()
            except NodeError as error:
                # The kernel ends it all the same; who asks next is told.
                self.trouble = str(error)

    async def _clear(self) -> None:
        self._until = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        failures: list[Exception] = []
        for driver in reversed(self.drivers):
            try:
                await driver.clear()
            except NodeError as error:
                # The others have something to take back, too.
                failures.append(error)
        if failures:
            raise failures[0]


def merged(parts: Sequence[Bites]) -> dict[str, Mapping[tuple[str, str], int]]:
    """Counts of several drivers, or agents, as one."""
    found: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for part in parts:
        for fault, pairs in part.items():
            for pair, count in pairs.items():
                found[fault][pair] = found[fault].get(pair, 0) + count
    return dict(found)
