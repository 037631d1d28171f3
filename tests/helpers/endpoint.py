"""A control endpoint on a thread of its own, for clients that wait for their answers."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from stormcast.node.control.answers import Table
from stormcast.node.control.connections import Limits
from stormcast.node.control.server import Control
from stormcast.node.control.settings import NO_TLS, ControlSettings, TlsSettings


class Endpoint:
    """It listens on loopback, and serves any Host, as one that others reach does."""

    def __init__(
        self,
        table: Table,
        *,
        token: str = "",
        tls: TlsSettings = NO_TLS,
        host: str = "127.0.0.1",
        limits: Limits | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        settings = ControlSettings(host=host, token=token, tls=tls)
        self.control = Control(settings, table, limits=limits)
        self.port = 0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        where = asyncio.run_coroutine_threadsafe(self.control.open(), self._loop).result(10)
        self.control.hosts = frozenset()
        self.port = int(where.rpartition(":")[2])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.control.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
