"""How far a stream was taken, as flow control is told: what waits for the application is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.credits import StreamEnd, is_reached
from stormcast.node.core.model import NO_RELIABILITY, Delivery
from stormcast.node.protocols.port import Port
from stormcast.node.stack.positions import MulticastPositions, UnicastPositions
from stormcast.node.trace.tracer import Tracer

ME, PEER = 0xA, 0xB
LAST_CONN = (1 << 32) - 1
"""The connection after which ids begin anew."""


def delivery(conn: int, lo: int, hi: int, dest: int = ME, flags: int = 0) -> Delivery:
    return Delivery(PEER, conn, lo, hi, flags, b"xx", 0, 1, dest)


def port(*waiting: Delivery, withheld: tuple[Delivery, ...] = ()) -> Port:
    made = Port(Codec(7, ME, hash64), Tracer(ME, 0, hash64, lambda _block: None))
    made.deliveries += waiting
    made.withheld += withheld
    return made


def unicasts(port: Port, conn: int, delivered: int) -> UnicastPositions:
    """Positions above a unicast whose window of the peer has delivered so much."""
    entry = SimpleNamespace(conn=conn, window=SimpleNamespace(delivered=delivered))
    return UnicastPositions(
        cast("Any", SimpleNamespace(receive_connections=lambda: {PEER: entry})), port
    )


@pytest.mark.parametrize("conn", [1, 1 << 31, LAST_CONN])
@pytest.mark.parametrize("is_stalled", [True, False])
def test_messages_without_a_number_do_not_say_how_far_a_stream_was_taken(
    conn: int, *, is_stalled: bool
) -> None:
    """They are of no connection, and stood before those with numbers: 0 is newer than an id in the
    upper half, as if all of that connection had been taken. Credits were granted for what waited,
    and once more when it was handed over."""
    waiting = delivery(0, 0, 0, flags=NO_RELIABILITY), delivery(conn, 3, 4)
    positions = unicasts(port(withheld=waiting) if is_stalled else port(*waiting), conn, 4)
    assert positions.taken(PEER) == (conn, 2)
    assert not is_reached(StreamEnd(conn, 4, 2), positions.taken(PEER))


def test_unnumbered_messages_alone_wait_for_nobody() -> None:
    positions = unicasts(port(delivery(0, 0, 0, flags=NO_RELIABILITY)), 5, 4)
    assert positions.taken(PEER) == (5, 4)


def test_multicasts_and_unicasts_that_wait_are_told_apart() -> None:
    waiting = port(
        delivery(0, 0, 0, dest=wire.GROUP, flags=NO_RELIABILITY),
        delivery(0, 7, 9, dest=wire.GROUP),
        delivery(5, 3, 4),
    )
    entry = SimpleNamespace(window=SimpleNamespace(delivered=9))
    multicast = SimpleNamespace(inbound=lambda: {PEER: entry})
    assert MulticastPositions(cast("Any", multicast), waiting).taken(PEER) == (0, 6)
    assert unicasts(waiting, 5, 4).taken(PEER) == (5, 2)
