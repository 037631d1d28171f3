"""A member with nothing above its transport: it frames what it is given, and keeps what it gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Generic, TypeVar

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.core.wire import GROUP
from stormcast.node.descriptors import share
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.protocols.port import Frame
from stormcast.node.settings.transports import TcpConfig, TransportConfig, UdpConfig
from stormcast.node.transports.base import Transport
from stormcast.node.transports.interfaces import SocketAddress, choose
from stormcast.node.transports.tcp import TcpTransport
from stormcast.node.transports.udp import UdpTransport

CLUSTER = 0xC1
T = TypeVar("T", bound=Transport)


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine: it has a loop of its own, and half a minute."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def until(holds: Callable[[], object], what: str = "", seconds: float = 10.0) -> None:
    """Wait until something holds; how long that may take is bounded."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.002)


class Got:
    """A frame as it arrived."""

    __slots__ = ("body", "dest", "number", "source")

    def __init__(self, source: int, dest: int, number: int, body: bytes) -> None:
        self.source, self.dest, self.number, self.body = source, dest, number, body


class Station(Generic[T]):
    """One end, as its transport sees its member."""

    transport: T

    def __init__(
        self, name: str, identity: int = 0, cluster: int = CLUSTER, key: ClusterKey | None = None
    ) -> None:
        self.key = key
        """Seals hellos, and no frame."""
        self.loop = asyncio.get_running_loop()
        self.name = name
        self.cluster = cluster
        self.identity = identity or int.from_bytes(name.encode(), "big")
        self.codec = Codec(cluster, Address(self.identity, name).short, hash64)
        self.got: list[Got] = []
        self.refused: list[str] = []
        self.lost: list[int] = []
        self.said: list[str] = []
        self.asked: list[int] = []
        self.listed: list[SocketAddress] = []
        self.members: tuple[int, ...] = ()
        self.has_group = False
        """Whether those who are no members are strangers."""
        self.datagrams: list[int] = []
        """Bytes of each thing that came."""
        self.turns = 0
        self.shares = share(1 << 20)
        self.is_closed = False
        self._number = 0

    def open(self, config: TransportConfig, *, start: bool = True) -> Station[T]:
        transport: Any
        if isinstance(config, UdpConfig):
            transport = UdpTransport(config, self)
        else:
            transport = TcpTransport(config, self, self.shares)  # type: ignore[arg-type]
        transport.open(choose(config.bind_addr))
        self.transport = transport
        self.address = Address(self.identity, self.name, transport.where)
        if start:
            transport.start(self.address, self.cluster, self.seals())
        return self

    def seals(self) -> Seals | None:
        return Seals([self.key], self.cluster, self.short) if self.key is not None else None

    @property
    def short(self) -> int:
        return self.address.short

    # -- What a transport asks for -----------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def receive(self, datagram: memoryview, now: float) -> int:
        at = source = 0
        self.datagrams.append(len(datagram))
        try:
            while at < len(datagram):
                head, body = self.codec.unpack_untrusted(datagram, at)
                at += wire.HEAD_SIZE + head.size
                source = head.source
                self.got.append(Got(head.source, head.dest, head.lo, body))
        except BadFrame as bad:
            self.refused.append(bad.reason)
        return source

    def turn(self, *, has_more: bool = False) -> None:
        self.turns += 1

    def on_connection_lost(self, peer: int) -> None:
        self.lost.append(peer)

    def hosts(self) -> Iterable[SocketAddress]:
        return self.listed

    def destinations(self) -> tuple[int, ...]:
        return self.members

    def is_peer(self, short: int) -> bool:
        return not self.has_group or short in self.members

    def on_refused(self, at: SocketAddress, kind: int, size: int) -> None:
        pass

    def want_address(self, peer: int) -> None:
        self.asked.append(peer)

    def say(self, line: str) -> None:
        self.said.append(line)

    # -- What a test does --------------------------------------------------------------------

    def frame(self, dest: int, payload: bytes = b"x") -> Frame:
        """The next frame of this member."""
        self._number += 1
        body = pack_body([payload], hash64)
        head = self.codec.pack_data(wire.NONE, max(dest, 0), 0, self._number, body, 0, 0, 0, 0)
        return dest, head, body.data

    def control(self, dest: int) -> Frame:
        """A frame without a body."""
        self._number += 1
        head = self.codec.pack_control(
            wire.ACK, wire.UNICAST3, dest if dest > 0 else GROUP, 1, self._number
        )
        return dest, head, b""

    def send(self, dest: int, *payloads: bytes) -> None:
        """In one turn."""
        self.transport.send([self.frame(dest, payload) for payload in payloads])

    def view(self, *others: Station[Any]) -> None:
        """Be in a view with these."""
        self.members = tuple(other.short for other in others)
        self.transport.on_view([self.address, *(other.address for other in others)])

    def numbers(self, source: Station[Any] | None = None) -> list[int]:
        """Which frames came, in order; of one sender, or of all."""
        return [one.number for one in self.got if source is None or one.source == source.short]

    @property
    def counters(self) -> dict[str, int]:
        return self.transport.counters

    def close(self) -> None:
        """At once."""
        if not self.is_closed:
            self.is_closed = True
            self.transport.close()

    def closes(self, cause: str) -> int:
        """How many connections ended so."""
        return self.counters.get(f"closed_{cause}", 0)


@asynccontextmanager
async def stations(
    config: TransportConfig, *names: str, key: ClusterKey | None = None, **identities: int
) -> AsyncIterator[list[Station[Any]]]:
    """Some that are bound and run; closed at the end."""
    opened = [Station[Any](name, identities.get(name, 0), key=key).open(config) for name in names]
    try:
        yield opened
    finally:
        for station in opened:
            station.close()
        # Sockets that asyncio closes, it closes in its next turn.
        await asyncio.sleep(0)


def udp(**settings: Any) -> UdpConfig:
    return UdpConfig(**{"bind_addr": "127.0.0.1", "mcast_port": 17600, **settings})


def tcp(kind: type[TcpConfig] = TcpConfig, **settings: Any) -> TcpConfig:
    return kind(**{"bind_addr": "127.0.0.1", "bind_port": 0, **settings})
