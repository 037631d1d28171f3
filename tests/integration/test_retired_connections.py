"""What connections that are retired hold, and for how long: who has its connection replaced again
and again must not collect them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from stormcast.node.settings.transports import Nio2Config, TcpConfig
from stormcast.node.transports import connection
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.frame_reader import CLOSING, FrameReader
from stormcast.node.transports.handshake import LENGTH, Hello, pack_hello
from stormcast.node.transports.strangers import UNFINISHED_BYTES
from stormcast.node.transports.stream_buffers import STRANGERS_BYTES
from tests.helpers.station import CLUSTER, Station, on_a_loop, stations, tcp, until
from tests.integration.test_tcp import MIB, Peer, begun, both, connections, frame_of, meet

ROUNDS = 40


def held(station: Station[Any]) -> int:
    """Bytes that the retired connections hold."""
    return sum(
        one.reader.buffer.size + one.out.size
        for one in station.transport._table.retired.connections
    )


@pytest.fixture(autouse=True)
def _peers_are_closed() -> Any:
    yield
    while Peer.opened:
        Peer.opened.pop().close()


def in_the_name_of(member: Station[Any], serial: int) -> Peer:
    """Somebody who says that it is a member."""
    peer = Peer(serial=serial)
    peer.address = member.address
    peer.hello = pack_hello(Hello(CLUSTER, serial, member.address))
    return peer


async def begin_and_go_on(a: Station[Any], member: Station[Any], serials: list[int]) -> list[Peer]:
    """Connect in a member's name, again and again, and begin a frame of a MiB each time."""
    made = []
    opened = a.counters.get("opened", 0)
    for number, serial in enumerate(serials, 1):
        peer = await in_the_name_of(member, serial).dial(a)
        await peer.say(peer.hello)
        await until(lambda number=number: a.counters.get("opened", 0) == opened + number)
        with contextlib.suppress(ConnectionError):
            await peer.say(begun())
        made.append(peer)
    return made


@both
@pytest.mark.parametrize("serials", [list(range(10, 10 + ROUNDS)), [0] * ROUNDS])
@on_a_loop
async def test_who_takes_a_members_name_again_and_again_collects_no_buffers(
    serials: list[int], kind: type[TcpConfig]
) -> None:
    """By later connections that replace the one before, and by those that cross it. The member has
    one connection, and one that is retired."""
    async with stations(tcp(kind), "a", "b", a=1, b=2) as (a, b):
        meet(a, b)
        b.send(a.short, b"x")
        await until(lambda: a.got)
        await begin_and_go_on(a, b, serials)
        await until(lambda: a.closes("evicted") >= ROUNDS - 6)
        assert held(a) <= UNFINISHED_BYTES + 2 * MIB + ROUNDS * STRANGERS_BYTES


@on_a_loop
async def test_members_that_have_left_take_no_buffers_with_them() -> None:
    """Each had a quarter of a MiB as a member, and an unfinished frame."""
    async with stations(tcp(), "a") as (a,):
        peers = [Peer(identity=100 + number) for number in range(20)]
        a.members = tuple(peer.address.short for peer in peers)
        for peer in peers:
            await peer.join(a)
            await peer.say(begun())
        await asyncio.sleep(0.1)
        a.members = ()
        a.transport.on_view([a.address])
        assert held(a) <= UNFINISHED_BYTES + 20 * (STRANGERS_BYTES + 8)


async def is_over(station: Station[Any], peer: Peer, words: bytes, seconds: float) -> bool:
    """Say something small again and again, for a while; return whether the connection has ended."""
    until_then = station.now() + seconds
    while station.now() < until_then:
        with contextlib.suppress(ConnectionError):
            await peer.say(words)
        await asyncio.sleep(0.05)
        if not station.transport._table.retired.connections:
            return True
    return False


@both
@on_a_loop
async def test_a_byte_now_and_then_is_no_progress_of_a_retired_connection(
    kind: type[TcpConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETIRE_SECONDS", 0.3)
    async with stations(tcp(kind), "a") as (a,):
        peer = await Peer(serial=1).join(a)
        await peer.say(begun())
        again = await Peer(serial=2).dial(a)
        await again.say(again.hello)
        await until(lambda: a.counters.get("replaced") == 1)
        assert await is_over(a, peer, b"\0", 1.5)
        assert a.closes("retire-timeout") == 1


@pytest.mark.parametrize("what", ["frames", "goodbyes"])
@on_a_loop
async def test_a_stranger_has_a_limited_time_to_end_a_retired_connection(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says meanwhile. Of goodbyes one is enough."""
    monkeypatch.setattr(connection, "RETIRE_SECONDS", 0.3)
    monkeypatch.setattr(connection, "STRANGERS_RETIRE_SECONDS", 0.8)
    async with stations(tcp(), "a") as (a,):
        peer = await Peer(serial=1).join(a)
        again = await Peer(serial=2).dial(a)
        await again.say(again.hello)
        await until(lambda: a.counters.get("replaced") == 1)
        words = frame_of(peer, 1) if what == "frames" else LENGTH.pack(CLOSING)
        begun_at = a.now()
        assert await is_over(a, peer, words, 2.0)
        assert (a.now() - begun_at > 0.6) is (what == "frames")


@pytest.mark.parametrize("is_member", [False, True])
@on_a_loop
async def test_a_peer_that_has_said_all_and_does_not_read_costs_no_time(
    is_member: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of its stream is read once or twice, not for as long as frames wait for it."""
    reads = []
    real = FrameReader.on_readable
    monkeypatch.setattr(
        FrameReader, "on_readable", lambda self, one: (reads.append(self), real(self, one))
    )
    async with stations(tcp(send_buffer=4096), "a") as (a,):
        peer = await Peer().join(a)
        if is_member:
            a.members = (peer.address.short,)
            a.transport.on_view([a.address, peer.address])
        a.send(peer.address.short, *[bytes(8000)] * 40)
        await peer.say(LENGTH.pack(CLOSING))
        peer.sock.shutdown(socket.SHUT_WR)
        await until(lambda: a.transport._table.retired.connections)
        before = len(reads)
        await asyncio.sleep(0.3)
        (retired,) = a.transport._table.retired.connections
        assert retired.out.parts
        assert len(reads) - before <= 2
        assert len(await peer.frames(40)) == 40
        await until(lambda: a.closes("finished") == 1)


@on_a_loop
async def test_what_waits_in_a_connection_that_its_peer_has_lost_is_thrown_away() -> None:
    """It will not be read, and the protocols are told that it may be lost."""
    async with stations(tcp(Nio2Config, send_buffer=4096), "a") as (a,):
        for serial in range(1, 6):
            peer = await Peer(serial=serial).dial(a)
            await peer.say(peer.hello)
            await until(lambda serial=serial: a.counters.get("opened", 0) == serial)
            a.send(7, *[bytes(500_000)] * 10)
        assert held(a) <= 4 * (600_000 + STRANGERS_BYTES)
        assert a.counters["dropped_unsent"] >= 4 * 8
        assert a.lost == [7] * 4


@on_a_loop
async def test_what_waits_for_those_who_have_left_has_the_budget_of_strangers() -> None:
    async with stations(tcp(Nio2Config, send_buffer=4096), "a") as (a,):
        peers = [Peer(identity=100 + number) for number in range(6)]
        a.members = tuple(peer.address.short for peer in peers)
        for peer in peers:
            await peer.join(a)
            a.send(peer.address.short, *[bytes(100_000)] * 10)
        a.members = ()
        a.transport.on_view([a.address])
        assert held(a) <= UNFINISHED_BYTES + 6 * STRANGERS_BYTES
        assert len(a.transport._table.retired.connections) == 2


@both
@on_a_loop
async def test_a_member_may_take_its_time_to_end_one_connection(
    kind: type[TcpConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loser of a crossing, while strangers do their worst: a frame of a MiB comes on it in
    small pieces, and arrives."""
    monkeypatch.setattr(connection, "RETIRE_SECONDS", 0.3)
    monkeypatch.setattr(connection, "STRANGERS_RETIRE_SECONDS", 0.5)
    async with stations(tcp(kind), "a", "b", a=2, b=1) as (a, b):
        meet(a, b)
        a.send(b.short, b"x")
        await until(lambda: b.got)
        (crossing,) = await begin_and_go_on(a, b, [0])
        assert a.counters["crossed"] == 1
        stranger = await Peer(serial=1).dial(a)
        for serial in range(2, 8):
            await stranger.say(stranger.hello)
            with contextlib.suppress(ConnectionError):
                await stranger.say(begun())
            stranger = await Peer(serial=serial).dial(a)
        for _ in range(20):
            await crossing.say(bytes(1000))
            await asyncio.sleep(0.05)
        assert any(one.peer == b.address for one in a.transport._table.retired.connections)
        assert connections(a) <= 2


@on_a_loop
async def test_a_connection_that_ends_for_another_idle_one_is_not_retired_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member's connection expires. The one that it replaced then counts among strangers', and
    some of theirs, idle as well, end for what it holds."""
    async with stations(tcp(conn_expire_time=100.0), "a") as (a,):
        old = await Peer(identity=100, serial=1).join(a)
        a.members = (old.address.short,)
        a.transport.on_view([a.address, old.address])
        await old.say(begun())
        newer = await Peer(identity=100, serial=2).dial(a)
        await newer.say(newer.hello)
        await until(lambda: a.counters.get("replaced") == 1)
        for number in range(3):
            stranger = await Peer(identity=200 + number).join(a)
            await stranger.say(begun(600_000))
        await until(lambda: held(a) >= MIB and len(a.transport._table.strangers._held) == 3)
        late = a.now() + 200.0
        monkeypatch.setattr(a, "now", lambda: late)
        a.transport._table._reap()
        assert a.closes("evicted") >= 1
        assert State.CLOSED not in {one.state for one in a.transport._table.retired.connections}
