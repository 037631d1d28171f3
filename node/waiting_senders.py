"""Coroutines that wait until the outbox has room."""

from __future__ import annotations

import asyncio

from stormcast.node.runtime import Runtime


class WaitingSenders:
    """Futures by destination, checked after each turn while there are any."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._futures: dict[int, list[asyncio.Future[None]]] = {}

    async def wait(self, dest: int) -> None:
        """Wait until half of the outbox for `dest` is free: with less, each message that left would
        wake a sender for one message."""
        future = asyncio.get_running_loop().create_future()
        if not self._futures:
            self._runtime.turns.after.append(self._look)
        self._futures.setdefault(dest, []).append(future)
        await future

    def _look(self) -> None:
        stack = self._runtime.stack
        half = stack.settings.outbox_bytes // 2
        for dest in [dest for dest in self._futures if stack.outbox.room(dest) >= half]:
            for future in self._futures.pop(dest):
                if not future.done():
                    future.set_result(None)
        if self._futures:
            self._runtime.turns.after.append(self._look)

    def fail(self, error: Exception) -> None:
        """Raise an error in all that wait: there will be no room any more."""
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        self._futures.clear()
