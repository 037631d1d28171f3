"""An agent's work: it carries out one desired network state for as long as the lease is renewed.

When an agent was killed, the kernel ends its faults by itself soon after. A living agent does more:
when the lease lapses, it releases all held packets and removes everything it has installed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex

from stormcast.chaos.agent.network_claim import NetworkClaim
from stormcast.chaos.drivers.base import (
    Bites,
    Driver,
    DriverError,
    RanOutError,
    acts,
    driver_of,
)
from stormcast.chaos.faults import BASE
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError


class LapsedError(NodeError):
    """The lease has lapsed, so it cannot be renewed; or the faults ended before they were."""


class Agent:
    """Some drivers under one lease. A lock orders its verbs, so they may be called at any time."""

    def __init__(self, drivers: Sequence[Driver], claim: NetworkClaim | None = None) -> None:
        """`claim`: on the networks of the drivers' sites; None: nobody else acts there."""
        self._claim = claim
        self.drivers = tuple(drivers)
        """In the order in which they apply a state. They clear it in reverse order, so that no
        driver is given a packet before it listens, or after it has stopped."""
        self.id = token_hex(8)
        """Tells it from an agent that was there before, or will be after it."""
        self.lapses = 0
        """The number of times that the lease lapsed because it was not renewed in time."""
        self.trouble: str | None = None
        """The error of a driver that failed to clear when a lease lapsed; None: there was none."""
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._until: float | None = None
        """The time at which the lease ends; None: no fault acts."""
        self._has_lapsed = False
        self._acting: frozenset[str] = frozenset()
        """The faults of the state that was applied last."""
        self._features: dict[str, str | None] = {}
        """The features found last; empty: nobody asked yet."""
        self._alarm: asyncio.TimerHandle | None = None
        self._lapse: asyncio.Task[None] | None = None

    @property
    def left(self) -> float | None:
        """Seconds left of the lease; None: no fault acts."""
        return None if self._until is None else max(0.0, self._until - self._loop.time())

    async def features(self) -> dict[str, str | None]:
        """Return by feature None where a driver has it here, else the reason why not. While a lease
        runs nothing is tried: another run may ask, and must not disturb the faults of this one."""
        async with self._lock:
            await self._end_if_over()
            if self._until is None or not self._features:
                self._features = await self._tried()
            return dict(self._features)

    async def _tried(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        had_claim = self._claim is not None and self._claim.is_held
        await self._take_claim()
        try:
            for driver in self.drivers:
                found |= await driver.features()
        finally:
            if not had_claim:
                self._give_claim_back()
        return found

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Bring the sites into `state` for a lease; if a driver fails, clear all of them.
        LapsedError if what acted before ended too early."""
        self._check(state)
        async with self._lock, self._in_time():
            await self._end_if_over()
            # From the first fault on until all is cleared: what a fault has needed stays after it.
            if acts(state):
                await self._take_claim()
            self._extend(lease)
            self._acting = frozenset(state.faults)
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
        """Extend the lease of the current state; LapsedError if it has lapsed."""
        async with self._lock, self._in_time():
            await self._end_if_over()
            if self._has_lapsed:
                raise LapsedError("the lease has lapsed, and the network is healed; apply again")
            if self._until is None:
                return
            self._extend(lease)
            for driver in self.drivers:
                await driver.renew(lease)

    async def clear(self) -> None:
        """End all faults, and the lease."""
        async with self._lock:
            await self._end_if_over()
            self._has_lapsed = False
            await self._clear()

    async def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep."""
        async with self._lock:
            for driver in self.drivers:
                await driver.release(fault)

    async def bites(self) -> Bites:
        """Return the bites so far, of all drivers together."""
        async with self._lock:
            return merged([await driver.bites() for driver in self.drivers])

    async def forget_bites(self) -> None:
        """Forget the bites of faults that have ended: who runs for days need not keep them."""
        async with self._lock:
            await self._end_if_over()
            for driver in self.drivers:
                await driver.forget({BASE, *self._acting})

    async def close(self) -> None:
        """Clear everything, and end the task that does so at the end of a lease."""
        if self._lapse is not None:
            self._lapse.cancel()
        await self.clear()

    def _extend(self, lease: float) -> None:
        """Let the lease begin before the drivers act: the kernel's own timeouts begin later."""
        self._has_lapsed = False
        self._until = self._loop.time() + lease
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._until, self._on_alarm)

    def _on_alarm(self) -> None:
        self._lapse = self._loop.create_task(self._end_lease())

    async def _end_lease(self) -> None:
        async with self._lock:
            await self._end_if_over()

    async def _end_if_over(self) -> None:
        """End a lease that is over. Verbs ask for it, too: when the alarm came, another verb may
        have had the lock, and they may have waited before the alarm did."""
        if self._until is not None and self._loop.time() >= self._until:
            await self._end()

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Raise LapsedError, and end the lease, where the faults have ended before it."""
        try:
            yield
        except RanOutError as error:
            await self._end()
            raise LapsedError(f"{error}; apply again") from None

    async def _end(self) -> None:
        self.lapses += 1
        self._has_lapsed = True
        try:
            await self._clear()
        except (NodeError, OSError) as error:
            # The kernel ends the faults all the same; `/state` shows the error.
            self.trouble = str(error)

    async def _clear(self) -> None:
        self._until = None
        self._acting = frozenset()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        failures: list[Exception] = []
        drivers = self.drivers[::-1]
        # All end before one removes anything: what waits in one driver may be lost with what
        # another has installed.
        for verb in [*(each.end for each in drivers), *(each.clear for each in drivers)]:
            try:
                await verb()
            except (NodeError, OSError) as error:
                # The others must act, too. OSError: no descriptor or process is left.
                failures.append(error)
        self._give_claim_back()
        if failures:
            raise failures[0]

    async def _take_claim(self) -> None:
        if self._claim is not None:
            await self._claim.take()

    def _give_claim_back(self) -> None:
        if self._claim is not None:
            self._claim.give_back()


def merged(parts: Sequence[Bites]) -> dict[str, Mapping[tuple[str, str], int]]:
    """Add up the bites that several drivers, or agents, have counted."""
    found: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for part in parts:
        for fault, pairs in part.items():
            for pair, count in pairs.items():
                found[fault][pair] = found[fault].get(pair, 0) + count
    return dict(found)
