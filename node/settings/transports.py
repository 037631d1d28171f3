"""Settings of the transports: what is bound, what is announced, how large a write is, what may
wait."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import ClassVar, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import require

TRANSFER_QUEUE: Final = "transfer-queue"
NO_BUNDLER: Final = "no-bundler"
BUNDLERS: Final = (TRANSFER_QUEUE, NO_BUNDLER)
WHEN: Final = ("auto", "always", "never")
MAX_DATAGRAM: Final = 65_507
"""Bytes that IPv4 carries in one datagram."""
PORTS: Final = 1 << 16
MAX_BUSY_POLL: Final = 0.001
MAX_BUFFER: Final = 1 << 30
"""Bytes of a socket's buffer; the kernel counts in 31 bits, and doubles what it is asked for."""
MAX_PATIENCE: Final = 32767
"""Seconds that the kernel knows how to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig:
    """Settings that all transports share. Durations are seconds, sizes bytes."""

    settable: ClassVar[frozenset[str]] = frozenset()

    bind_addr: str = "auto"
    """The address to bind: an address, an interface, `loopback`, `site_local`, `link_local`,
    `global`, `match-interface:REGEX`, `match-address:REGEX`, or several of these, of which the
    first that fits is taken. `auto`: `site_local`, then `loopback`; never a public address
    unasked."""

    bind_port: int = 0
    """The first port tried; 0 takes any that is free."""

    port_range: int = 10
    """The number of further ports that are tried if that one is taken."""

    external_addr: str = ""
    """The address that others are told, where it is not the one that is bound (NAT)."""

    external_port: int = 0
    """The port that others are told; 0 the one that is bound."""

    bundler: str = TRANSFER_QUEUE
    """`transfer-queue`: the frames of one turn for one destination travel together. `no-bundler`:
    each frame is a datagram, or a write, of its own, so that rules which look at the first frame of
    a packet see every frame."""

    queue_frames: int = 16384
    """Frames that may wait to be sent."""

    queue_bytes: int = 32 << 20
    """Bytes that may wait to be sent; beyond, the outbox stops to let messages go until half of it
    has left."""

    drop_when_full: bool = True
    """Whether frames beyond `queue_frames` (in a connection, or `queue_bytes`) are dropped, which a
    protocol above repairs, or wait. Without retransmission they must wait."""

    receive_queue: int = 0
    """Frames that may wait for a member that is busy; later ones are dropped. 0 is what the kernel
    keeps; anything else is a flaw where nothing is retransmitted."""

    send_buffer: int = 0
    """Bytes of the kernel's buffer for what a socket sends; 0 keeps the kernel's default."""

    receive_buffer: int = 0
    """Bytes of the kernel's buffer for what a socket receives; 0 keeps the kernel's default."""

    @property
    def largest_frame(self) -> int:
        """Bytes of the largest frame that arrives."""
        return wire.HEAD_SIZE + wire.MAX_BODY

    def __post_init__(self) -> None:
        require(self.queue_frames > 0, f"queue_frames is {self.queue_frames}: it must be positive")
        require(self.queue_bytes > 0, f"queue_bytes is {self.queue_bytes}: it must be positive")
        for name in ("receive_queue", "port_range", "send_buffer", "receive_buffer"):
            value = getattr(self, name)
            require(value >= 0, f"{name} is {value}: it must not be negative")
        for name in ("send_buffer", "receive_buffer"):
            value = getattr(self, name)
            require(value <= MAX_BUFFER, f"{name} is {value}: it must be 0..{MAX_BUFFER}")
        require(
            not self.external_addr or _is_address(self.external_addr),
            f"external_addr is {self.external_addr!r}: write the address as a number; "
            "others look up no names",
        )
        for name in ("bind_port", "external_port"):
            value = getattr(self, name)
            require(0 <= value < PORTS, f"{name} is {value}: it must be 0..{PORTS - 1}")
        require(
            self.bundler in BUNDLERS,
            f"bundler is {self.bundler!r}: choose one of {', '.join(BUNDLERS)}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpConfig(TransportConfig):
    """UDP: datagrams, by IP multicast or one to each."""

    ip_mcast: str = "auto"
    """Whether one datagram goes to the whole group. `auto`: once every member has said that the
    network carries it, until then one to each; `always`: multicast only, also where the network
    carries it to some or to none; `never`: one to each."""

    mcast_addr: str = ""
    """The group's address; empty: 239.8.8.8, or ff0e::8:8:8 where an IPv6 address is bound."""

    mcast_port: int = 7600
    """The group's port."""

    ip_ttl: int = 8
    """Routers that a multicast may pass."""

    frames: str = "auto"
    """`large`: batches of up to `max_frame` bytes, which the network fragments where it must.
    `mtu`: batches that fit its packets, so that a lost packet costs one of them. `auto`: `large`
    where the interface carries such a datagram whole, else `mtu`."""

    offload: str = "auto"
    """Whether the kernel cuts and joins datagrams of `mtu` frames (GSO, GRO): fewer system calls.
    `never` where rules on the way look at every frame."""

    busy_poll: float = 0.0
    """Time for which a member that has just received something goes on looking for more before it
    sleeps. It shortens round trips and keeps a core busy: for members with a core of their own."""

    send_buffer: int = 4 << 20

    receive_buffer: int = 8 << 20

    @property
    def largest_frame(self) -> int:
        return MAX_DATAGRAM

    def __post_init__(self) -> None:
        TransportConfig.__post_init__(self)
        for name, words in (
            ("ip_mcast", WHEN),
            ("frames", ("auto", "large", "mtu")),
            ("offload", ("auto", "never")),
        ):
            value = getattr(self, name)
            require(value in words, f"{name} is {value!r}: choose one of {', '.join(words)}")
        require(
            0 <= self.busy_poll <= MAX_BUSY_POLL,
            f"busy_poll is {self.busy_poll:g}: it must be 0..{MAX_BUSY_POLL:g} s",
        )
        require(
            0 < self.mcast_port < PORTS,
            f"mcast_port is {self.mcast_port}: it must be 1..{PORTS - 1}",
        )
        require(0 <= self.ip_ttl <= 255, f"ip_ttl is {self.ip_ttl}: it must be 0..255")  # noqa: PLR2004 a byte
        require(
            not self.mcast_addr or _is_group(self.mcast_addr),
            f"mcast_addr is {self.mcast_addr!r}: write a multicast address such as 239.8.8.8",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpConfig(TransportConfig):
    """TCP: one connection per pair of members, a write for each frame."""

    bind_port: int = 7800

    sock_conn_timeout: float = 2.0
    """Time that making a connection may take. Frames for a host that does not answer wait as
    long."""

    peer_addr_read_timeout: float = 1.0
    """Time that the other end may take to say which member it is."""

    reconnect_interval: float = 0.05
    """Before a refused connection is tried again; doubled each time, up to
    `reconnect_max_interval`."""

    reconnect_max_interval: float = 1.0

    user_timeout: float = 5.0
    """Time for which written bytes may stay unacknowledged before the connection counts as dead.
    The kernel's own patience is a quarter of an hour, and its pauses double."""

    max_length: int = 1 << 20
    """Bytes of the largest frame. One that claims more ends its connection."""

    tcp_nodelay: bool = True
    """Whether writes leave at once; they are bundled here already."""

    linger: int = -1
    """Seconds for which closing a connection, and with it the whole member, waits until everything
    has left; 0 throws away what has not. -1 leaves the wait to the kernel, which goes on in the
    background."""

    conn_expire_time: float = 0.0
    """Idle time after which a connection is closed; 0 never, as it must be without
    retransmission."""

    @property
    def largest_frame(self) -> int:
        return self.max_length

    def __post_init__(self) -> None:
        TransportConfig.__post_init__(self)
        for name in (
            "sock_conn_timeout",
            "peer_addr_read_timeout",
            "reconnect_interval",
            "reconnect_max_interval",
            "user_timeout",
        ):
            value = getattr(self, name)
            require(value > 0, f"{name} is {value:g}: it must be positive")
        require(
            self.reconnect_interval <= self.reconnect_max_interval,
            f"reconnect_interval is {self.reconnect_interval:g}: it must not be above "
            f"reconnect_max_interval ({self.reconnect_max_interval:g})",
        )
        require(
            1 << 16 <= self.max_length <= wire.HEAD_SIZE + wire.MAX_BODY,
            f"max_length is {self.max_length}: it must be {1 << 16}.."
            f"{wire.HEAD_SIZE + wire.MAX_BODY}",
        )
        require(
            self.user_timeout <= MAX_PATIENCE,
            f"user_timeout is {self.user_timeout:g}: it must not be above {MAX_PATIENCE}",
        )
        require(
            -1 <= self.linger <= MAX_PATIENCE,
            f"linger is {self.linger}: it must be -1..{MAX_PATIENCE}",
        )
        require(
            self.conn_expire_time >= 0,
            f"conn_expire_time is {self.conn_expire_time:g}: it must not be negative",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Nio2Config(TcpConfig):
    """TCP_NIO2: writes of many frames at once."""

    max_send_buffers: int = 0
    """Frames that may wait in one connection; a frame beyond is dropped whole. 0: no bound, the
    outbox refuses instead, which is what a stack without retransmission needs."""

    def __post_init__(self) -> None:
        TcpConfig.__post_init__(self)
        require(
            self.max_send_buffers >= 0,
            f"max_send_buffers is {self.max_send_buffers}: it must not be negative",
        )


TRANSPORTS: Final[dict[str, type[TransportConfig]]] = {
    "UDP": UdpConfig,
    "TCP": TcpConfig,
    "TCP_NIO2": Nio2Config,
}
STREAMS: Final = frozenset({"TCP", "TCP_NIO2"})
"""Transports over connections: nothing is lost in one, and nothing is multicast."""


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_group(text: str) -> bool:
    return _is_address(text) and ip_address(text).is_multicast
