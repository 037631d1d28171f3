"""Coroutines that wait until the outbox has room."""

from __future__ import annotations

import asyncio

from stormcast.node.runtime import Runtime


class WaitingSenders:
    """Futures by destination, checked after each turn while there are any."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._futures: dict[int, dict[asyncio.Future[None], None]] = {}
        self._is_looking = False
        """Whether there is to be a look after the next turn."""

    def __len__(self) -> int:
        """The number of those that wait."""
        return sum(map(len, self._futures.values()))

    async def wait(self, dest: int) -> None:
        """Wait until half of the outbox for `dest` is free: with less, each message that left would
        wake a sender for one message."""
        future = asyncio.get_running_loop().create_future()
        self._look_after_turn()
        self._futures.setdefault(dest, {})[future] = None
        try:
            await future
        except asyncio.CancelledError:
            self._forget(dest, future)
            raise

    def _forget(self, dest: int, future: asyncio.Future[None]) -> None:
        futures = self._futures.get(dest, {})
        futures.pop(future, None)
        if not futures:
            self._futures.pop(dest, None)

    def _look_after_turn(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._runtime.turns.after.append(self._look)

    def _look(self) -> None:
        self._is_looking = False
        stack = self._runtime.stack
        half = stack.settings.outbox_bytes // 2
        for dest in [dest for dest in self._futures if stack.outbox.room(dest) >= half]:
            for future in self._futures.pop(dest):
                if not future.done():
                    future.set_result(None)
        if self._futures:
            self._look_after_turn()

    def fail(self, error: Exception) -> None:
        """Raise an error in all that wait: there will be no room any more."""
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        self._futures.clear()
