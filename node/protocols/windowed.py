"""Functions that unicast and multicast, the protocols with windows, share: take what is new of a
batch, ask for what is missing, note what is sent again, change a setting, state the bounds on
requests, record how full a window is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.batch import Arrival, Batch
from stormcast.node.core.codec import unpack_lengths_untrusted
from stormcast.node.core.errors import BadFrame, ConfigError
from stormcast.node.core.gaps import MAX_REQUESTS_PER_LOOK, GapLook, Ranges, split_ranges
from stormcast.node.core.islands import Piece
from stormcast.node.core.model import FRAGMENT, OOB
from stormcast.node.core.timing import Timing
from stormcast.node.core.window import ReceiveWindow, SendWindow, Stored
from stormcast.node.core.wire import Head
from stormcast.node.protocols.deliveries import hand_up
from stormcast.node.protocols.port import Port
from stormcast.node.trace.tracer import Tracer


class RequestSizes(Protocol):
    """The settings that bound a request."""

    @property
    def max_xmit_req_size(self) -> int:
        """Seqnos in one request."""

    @property
    def max_xmit_req_ranges(self) -> int:
        """Ranges in one request."""


def unpack_arrival_untrusted(head: Head, body: bytes) -> Arrival:
    """Return the batch that a DATA frame contains."""
    if not 0 < head.lo <= wire.MAX_SEQNO - head.count:
        raise BadFrame("seqno")
    start, lengths = unpack_lengths_untrusted(head, body)
    if head.mark >= head.lo + head.count - 1:
        raise BadFrame("mark")
    return Arrival(head, body, start, lengths)


def drop_refused(port: Port, window: ReceiveWindow[Any], head: Head) -> None:
    """Count a frame of which a window took nothing, by the reason."""
    if head.lo + head.count - 1 <= window.deliverable:
        port.drop("duplicate")
    elif head.lo > window.delivered + window.capacity:
        port.drop("beyond-window")
    else:
        port.drop("duplicate-or-no-room")


def request_missing(
    port: Port,
    protocol: int,
    sizes: RequestSizes,
    gaps: GapLook,
    ranges: Ranges,
    now: float,
    *,
    dest: int,
    named: int,
    peer: int,
    conn: int = 0,
    epoch: int,
    view: int = 0,
    stream: int = trace.REPAIR,
) -> None:
    """Request ranges from `dest`, in frames of bounded size, at most `MAX_REQUESTS_PER_LOOK` of
    them: other ranges wait for the next look. `named` identifies the window in the frame: the
    connection, or for multicasts the sender."""
    requests = split_ranges(ranges, sizes.max_xmit_req_size, sizes.max_xmit_req_ranges)
    transmission = gaps.transmission()
    for part, count in requests[:MAX_REQUESTS_PER_LOOK]:
        lo, hi = part[0][0], part[-1][1]
        port.tracer.requested(
            now,
            protocol=protocol,
            peer=peer,
            conn=conn,
            epoch=epoch,
            view=view,
            stream=stream,
            count=count,
            lo=lo,
            hi=hi,
        )
        frame = port.codec.pack_control(
            wire.XMIT_REQ, protocol, dest, named, hi, transmission=transmission, ranges=part
        )
        port.frames.append((dest, frame, b""))


def unconfirmed(window: SendWindow[Batch]) -> tuple[int, int]:
    """Return how many messages of the application a window keeps, and the number of the last. Of a
    message in pieces any piece counts as the message."""
    low, count, last = window.low, 0, 0
    for stored in window:
        batch = stored.item
        if not batch.flags & FRAGMENT:
            count += stored.hi - max(stored.lo - 1, low)
        elif batch.number != last:
            count += 1
        last = batch.number if batch.flags & FRAGMENT else batch.number + batch.body.count - 1
    return count, last


def take_new(
    port: Port,
    window: ReceiveWindow[Arrival],
    arrival: Arrival,
    conn: int,
    epoch: int,
    view: int,
    now: float,
    *,
    oob: bool,
) -> int:
    """Add a batch to a window; with `oob`, hand up its new messages at once. Returns how many
    messages are new."""
    head = arrival.head
    new = window.add(head.lo, head.lo + head.count - 1, len(arrival.body), arrival, oob=oob)
    if not new:
        drop_refused(port, window, head)
        return 0
    taken = 0
    for piece in new:
        taken += piece.hi - piece.lo + 1
    if oob:
        try:
            _hand_up_early(port, window, new, conn, epoch, view, now)
        except BaseException:
            window.put_back_early(new)
            raise
    return taken


def hand_up_oob(
    port: Port, window: ReceiveWindow[Arrival], conn: int, epoch: int, view: int, now: float
) -> int:
    """Hand up the OOB messages that came behind a gap while the application took nothing. Returns
    how many there are."""
    pieces = window.take_early(_is_oob)
    try:
        taken = sum(piece.hi - piece.lo + 1 for piece in pieces)
        _hand_up_early(port, window, pieces, conn, epoch, view, now)
    except BaseException:
        window.put_back_early(pieces)
        raise
    return taken


def _hand_up_early(
    port: Port,
    window: ReceiveWindow[Arrival],
    pieces: list[Piece[Arrival]],
    conn: int,
    epoch: int,
    view: int,
    now: float,
) -> None:
    """Hand up OOB messages whose places the window keeps. `pieces` are then those that could not
    be handed up, for a bug or for want of memory: the window has to hold them again."""
    while pieces:
        lo, hi, _size, arrival = pieces[0]
        assert arrival is not None, "a place is not taken"
        hand_up(port, arrival, lo, hi, conn, epoch, view, window.delivered, now)
        del pieces[0]


def _is_oob(arrival: Arrival) -> bool:
    return bool(arrival.head.flags & OOB)


def note_resent(
    tracer: Tracer,
    stored: Stored[Batch],
    now: float,
    *,
    protocol: int,
    peer: int,
    conn: int = 0,
    view: int = 0,
    flags: int,
) -> None:
    """Record that a batch is sent again: only its transmission number changes."""
    batch = stored.item
    batch.transmission = wire.told_apart(batch.transmission + 1)
    tracer.retransmitted(
        now,
        protocol=protocol,
        peer=peer,
        conn=conn,
        view=view,
        flags=flags,
        transmission=batch.transmission,
        lo=stored.lo,
        hi=stored.hi,
        size=stored.size,
        digest=batch.body.digest,
    )


class WindowSettings(Protocol):
    """The settings that both unicast and multicast have."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    settable: ClassVar[frozenset[str]]

    @property
    def window_messages(self) -> int:
        """Seqnos in a window."""

    @property
    def window_bytes(self) -> int:
        """The same bound in bytes."""

    @property
    def max_xmit_req_size(self) -> int:
        """Seqnos in one request."""


C = TypeVar("C", bound=WindowSettings)


def changed(config: C, name: str, value: object) -> C:
    """Return the settings with one value changed, if it may change at run time."""
    if name not in config.settable:
        raise ConfigError(
            f"{name} can not change at run time; what can: {', '.join(sorted(config.settable))}"
        )
    change: dict[str, Any] = {name: value}
    return replace(config, **change)


def is_withholding(port: Port, peer: int, config: WindowSettings, *, is_multicast: bool) -> bool:
    """Whether removed windows of a peer left as much for a stalled application as a window holds:
    until the application has taken it, no more is taken of the peer (G5)."""
    held = [
        delivery
        for delivery in (*port.withheld, *port.deliveries)
        if delivery.source == peer and delivery.is_multicast == is_multicast
    ]
    return (
        sum(len(delivery) for delivery in held) >= config.window_messages
        or sum(delivery.size for delivery in held) >= config.window_bytes
    )


def request_bounds(config: WindowSettings, timing: Timing, interval: float) -> dict[str, Any]:
    """Return what is promised of requests (C1), and after how many seconds all is repaired."""
    looks = config.window_messages / (MAX_REQUESTS_PER_LOOK * config.max_xmit_req_size)
    return {
        "request_spacing": timing.min_wait if timing.adaptive else interval,
        "request_patience": 0.0 if timing.adaptive else interval,
        "request_size": config.max_xmit_req_size,
        # Twelve intervals, and one more for each look that requesting a whole window may take.
        "quiet_within": (12 + looks) * interval,
    }


def gauge_sent(port: Port, protocol: int, peer: int, window: SendWindow[Any], now: float) -> None:
    """Record how full a send window is (G5)."""
    if window.low < window.high:
        gauge(port, protocol, trace.SEND_MESSAGES, peer, len(window), window.capacity, now)
        gauge(port, protocol, trace.SEND_BYTES, peer, window.bytes, window.bytes_bound(), now)


def gauge_received(
    port: Port, protocol: int, peer: int, window: ReceiveWindow[Any], now: float
) -> None:
    """Record how full a receive window is (G5)."""
    # Not bytes: places of OOB messages behind a gap have none.
    if held := len(window):
        gauge(port, protocol, trace.RECEIVE_MESSAGES, peer, held, window.capacity, now)
        gauge(port, protocol, trace.RECEIVE_BYTES, peer, window.bytes, window.bytes_bound(), now)


def gauge(
    port: Port, protocol: int, stream: int, peer: int, value: int, bound: int, now: float
) -> None:
    """Record a value and its bound."""
    port.tracer.record(
        trace.GAUGE, now, protocol=protocol, stream=stream, peer=peer, lo=value, hi=bound
    )
