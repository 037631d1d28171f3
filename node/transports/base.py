"""What every transport does, and what it sees of its member."""

from __future__ import annotations

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.core.model import Address
from stormcast.node.protocols.port import Frame
from stormcast.node.settings.transports import PORTS, TransportConfig
from stormcast.node.transports.interfaces import Interface, SocketAddress

MAX_NAMED: Final = 1024
"""Members of past views that are still asked: groups that were apart find each other by that."""
MAX_LEARNED: Final = 4096
"""Senders without a view in common whose address is remembered."""


class BindError(NodeError):
    """The system refused a socket: says which, why, and what to do."""


class Station(Protocol):
    """A member, as its transport sees it."""

    loop: asyncio.AbstractEventLoop

    def now(self) -> float:
        """Monotonic seconds."""

    def receive(self, datagram: memoryview, now: float) -> int:
        """Take the frames of a datagram; returns the short id of who sent one that is good."""

    def turn(self, *, has_more: bool = False) -> None:
        """Let what was received take effect; there may be more that has arrived already."""

    def on_connection_lost(self, peer: int) -> None:
        """What was under way from and to a peer may be lost."""

    def hosts(self) -> Iterable[SocketAddress]:
        """Where discovery says that members may be."""

    def destinations(self) -> tuple[int, ...]:
        """Who is meant by the group: members, and those of a view that is on its way."""

    def want_address(self, peer: int) -> None:
        """Nobody knows where a peer is: discovery should ask."""

    def say(self, line: str) -> None:
        """Tell who runs this member, once per change."""


class Transport(ABC):
    """Carries frames; may lose, repeat and reorder them, and never makes any up."""

    def __init__(self, config: TransportConfig, station: Station) -> None:
        self.station = station
        self.address: Address
        """This member's; known once it is bound."""
        self.where = ""
        """What others are told."""
        self.port = 0
        """What is bound."""
        self.is_full = False
        """Whether more waits to be sent than may: the outbox should hold messages back."""
        self._named: dict[int, Address] = {}
        """Who was in a view of this member, the latest last."""
        self.counters: dict[str, int] = {}
        """What happened how often, by name; rare things are added when they happen."""
        self._base = config
        self._interface: Interface

    # -- Life --------------------------------------------------------------------------------

    @abstractmethod
    def open(self, interface: Interface) -> None:
        """Bind; afterwards `where` is known. BindError says why not."""

    @abstractmethod
    def start(self, address: Address, cluster: int) -> None:
        """Begin to receive, as this member."""

    @abstractmethod
    def close(self) -> None:
        """Let everything go that can leave at once, and close."""

    async def drain(self) -> None:  # noqa: B027 not every transport has to
        """Before it closes: wait, within a bound, until what waits to be sent has left."""

    @abstractmethod
    def frame_limit(self) -> int:
        """Bytes of a frame that travels whole."""

    @abstractmethod
    def describe(self) -> list[str]:
        """What is bound, a line each."""

    # -- Frames ------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take what has arrived, and have a turn."""
        self.station.turn()

    @abstractmethod
    def send(self, frames: list[Frame]) -> None:
        """Send, or keep for later; what does not fit is dropped and counted."""

    @abstractmethod
    def locate(self, address: Address) -> None:
        """A view says where a member is."""

    def _place(self, where: str) -> SocketAddress | None:
        """Where to send what is for a place; None if nothing can be sent there from here."""
        at = parse_where(where)
        return at if at is None else self._interface.reach(at)

    def on_view(self, members: Sequence[Address]) -> None:
        """The group has changed."""
        for member in members:
            self.locate(member)
            self._named.pop(member.short, None)
            self._named[member.short] = member
        while len(self._named) > MAX_NAMED:
            del self._named[next(iter(self._named))]

    def _askable(self) -> dict[SocketAddress, None]:
        """Where a frame for everyone goes: where discovery says, and to whoever is, or was, in a
        view. What strangers say of themselves is no reason to go and ask there."""
        told = dict.fromkeys(self.station.hosts())
        for member in self._named.values():
            at = self._place(member.where)
            if at is not None and member != self.address:
                told[at] = None
        return told

    @abstractmethod
    def queued(self) -> tuple[int, int]:
        """Frames and bytes that wait to be sent."""

    def stats(self) -> dict[str, int | float]:
        """Counters and gauges, by name."""
        frames, size = self.queued()
        return {**self.counters, "queued_frames": frames, "queued_bytes": size}

    def count(self, what: str, number: int = 1) -> None:
        """Something rare happened."""
        self.counters[what] = self.counters.get(what, 0) + number

    # -- For the transports ------------------------------------------------------------------

    def _announce(self, host: str, port: int) -> None:
        """Make the place that others are told."""
        config = self._base
        self.port = port
        self.where = f"{config.external_addr or host}[{config.external_port or port}]"


def bind_in_range(
    make: Callable[[], socket.socket],
    host: SocketAddress,
    config: TransportConfig,
    what: str,
    backlog: int = 0,
) -> socket.socket:
    """A socket on the first free port of `bind_port..bind_port + port_range`; it listens if there
    is a backlog."""
    first = config.bind_port
    last = min(first + config.port_range, PORTS - 1) if first else 0
    for port in range(first, last + 1):
        bound = make()
        try:
            bound.bind((host[0], port, *host[2:]))
            if backlog:
                # Of two that bind at once, only this tells who has the port.
                bound.listen(backlog)
        except OSError as error:
            bound.close()
            if error.errno != errno.EADDRINUSE:
                raise BindError(f"cannot bind {what} {host[0]}[{port}]: {reason(error)}") from None
        else:
            return bound
    ports = f"{first}" if first == last else f"{first}..{last}"
    raise BindError(
        f"{what} {host[0]}[{ports}]: in use; choose another bind_port, or raise port_range"
    )


def reason(error: OSError) -> str:
    """What the system said, in words, and what to do where that is known."""
    remedy = {
        errno.EACCES: "; ports below 1024 need a right, choose a higher one",
        errno.EADDRNOTAVAIL: "; no interface has this address, see `ip address`",
        errno.ENETUNREACH: "; no route leads there, see `ip route`",
    }.get(error.errno or 0, "")
    return f"{(error.strerror or str(error)).lower()}{remedy}"


def parse_where(where: str) -> SocketAddress | None:
    """`host[port]` of a member, as a socket wants it; only numbers, for a stranger's text must not
    make this member ask a name server."""
    host, bracket, port = where.removesuffix("]").partition("[")
    # `isdigit` alone is true of digits that `int` does not know.
    if not bracket or not (port.isascii() and port.isdigit()) or not 0 < int(port) < PORTS:
        return None
    return numeric(host, int(port))


def numeric(host: str, port: int) -> SocketAddress | None:
    """A numeric host, as a socket wants it; None for a name."""
    host, _percent, scope = host.partition("%")
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, host)
        except (OSError, ValueError):
            # ValueError: a zero byte, which only a stranger writes.
            continue
        text = socket.inet_ntop(family, packed)
        if family == socket.AF_INET:
            return text, port
        return text, port, 0, _scope(scope)
    return None


def _scope(name: str) -> int:
    if not name:
        return 0
    try:
        number = int(name) if name.isascii() and name.isdigit() else socket.if_nametoindex(name)
    except (OSError, ValueError):
        return 0
    return number if number < 1 << 32 else 0


def set_buffer(sock: socket.socket, option: int, force: int, wanted: int) -> int:
    """Ask for a buffer of so many bytes, beyond the system's limit where that is allowed; returns
    what was given."""
    if wanted:
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, wanted)
        except OSError:
            try:
                sock.setsockopt(socket.SOL_SOCKET, option, wanted)
            except OSError as error:
                raise ConfigError(f"a buffer of {wanted} bytes: {reason(error)}") from None
    # The kernel doubles what it was asked for, for its own bookkeeping.
    return sock.getsockopt(socket.SOL_SOCKET, option) // 2


SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
