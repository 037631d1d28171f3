"""The addresses at which discovery expects members: listed hosts, by number or name, and DNS.

Names are looked up in the background, again while they are needed, because answers change: pods
come and go. Only the start waits for a name server; later an answer holds until the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from stormcast.node.core.errors import ConfigError
from stormcast.node.protocols.discovery import Discovery, DnsPing
from stormcast.node.transports.dns import DnsLookup
from stormcast.node.transports.interfaces import SocketAddress
from stormcast.node.transports.peer_places import numeric

LOOKUP_INTERVAL: Final = 2.0
"""Least seconds between two look-ups."""


class HostBook:
    """The addresses behind discovery's list of hosts."""

    def __init__(
        self,
        discovery: Discovery | None,
        family: socket.AddressFamily,
        default_port: int,
        say: Callable[[str], None],
    ) -> None:
        self._family = family
        self._is_closed = False
        self._say = say
        self._said = ""
        self._listed: list[SocketAddress] = []
        self._strange: list[str] = []
        """Listed addresses of the other family, to which a socket of this one cannot send."""
        self._names: list[tuple[str, int]] = []
        self._answers: dict[tuple[str, int] | DnsLookup, list[SocketAddress]] = {}
        """The last answer about each name, and of DNS."""
        self._resolved: list[SocketAddress] = []
        self._due = 0.0
        self._task: asyncio.Task[None] | None = None
        self._dns: DnsLookup | None = None
        if isinstance(discovery, DnsPing):
            self._dns = DnsLookup(discovery.config, family, default_port)
        for host, port in discovery.listed() if discovery is not None else ():
            at = numeric(host, port)
            if at is None:
                self._names.append((host, port))
            elif self._fits(at):
                self._listed.append(at)
            else:
                self._strange.append(host)

    async def open(self) -> None:
        """Look up all names once, so that the first question of discovery goes somewhere. Listed
        names that nobody knows are a mistake, and refused; DNS may know no member yet."""
        if self._strange and not self._listed and not self._names:
            bound = "an IPv6" if self._family == socket.AF_INET6 else "an IPv4"
            raise ConfigError(
                f"initial_hosts has {', '.join(dict.fromkeys(self._strange))}, and {bound} address "
                "is bound; list addresses of that kind, or set bind_addr"
            )
        if self._names or self._dns is not None:
            failures = await self._look_up()
            if self._names and not self._resolved and not self._listed:
                raise ConfigError(
                    f"initial_hosts: {'; '.join(failures)}; "
                    "correct the name, or write the address as a number"
                )
            self._complain(failures)

    def hosts(self, now: float, loop: asyncio.AbstractEventLoop) -> Iterable[SocketAddress]:
        """Return the addresses that are known; look names up again in the background."""
        is_asked = bool(self._names) or self._dns is not None
        if is_asked and now >= self._due and self._task is None and not self._is_closed:
            self._due = now + LOOKUP_INTERVAL
            self._task = loop.create_task(self._refresh())
        return (*self._listed, *self._resolved)

    def close(self) -> None:
        """Stop looking names up."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    def _fits(self, at: SocketAddress) -> bool:
        return (":" in at[0]) == (self._family == socket.AF_INET6)

    async def _refresh(self) -> None:
        try:
            self._complain(await self._look_up())
        finally:
            self._task = None

    def _complain(self, failures: list[str]) -> None:
        """Report failures when they change, because look-ups are repeated."""
        said = "; ".join(failures)
        if said and said != self._said:
            self._say(f"discovery: {said}")
        self._said = said

    async def _look_up(self) -> list[str]:
        """Renew the addresses, and return what failed. A name that gave no answer keeps its old
        addresses."""
        failures: list[str] = []
        if self._dns is not None:
            answer, failure = await self._dns.look_up()
            if failure:
                failures.append(failure)
            else:
                self._answers[self._dns] = answer
        for host, port in self._names:
            try:
                answer = await _look_up_beside(host, port, self._family)
            except OSError as error:
                failures.append(f"{host}: {(error.strerror or str(error)).lower()}")
            except UnicodeError:
                failures.append(f"{host}: not a name")
            else:
                self._answers[host, port] = answer
        found = [*chain.from_iterable(self._answers.values())]
        fitting = list(filter(self._fits, found))
        if found and not fitting:
            failures.append("all addresses found are of another family than the one that is bound")
        self._resolved = list(dict.fromkeys(fitting))
        return failures


async def _look_up_beside(
    host: str, port: int, family: socket.AddressFamily
) -> list[SocketAddress]:
    """Ask the system's resolver, which blocks, in a daemon thread: neither the end of this member
    nor that of its process waits for it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[SocketAddress]] = loop.create_future()

    def tell(found: list[SocketAddress], error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found)

    def ask() -> None:
        found: list[SocketAddress] = []
        failed: Exception | None = None
        try:
            answers = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
            found = [one[4] for one in answers]  # type: ignore[misc]
        except (OSError, UnicodeError) as error:
            failed = error
        with contextlib.suppress(RuntimeError):
            # The loop may be gone by now.
            loop.call_soon_threadsafe(tell, found, failed)

    threading.Thread(target=ask, daemon=True, name="look-up").start()
    return await answer
