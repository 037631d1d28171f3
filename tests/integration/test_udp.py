"""UDP on loopback: multicast once it is proven, bundles, frames cut and joined by the kernel, and
what becomes of what does not fit."""

from __future__ import annotations

import asyncio
import errno
import socket
from itertools import count
from random import Random
from typing import Any

import pytest

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address
from stormcast.node.core.wire import GROUP
from stormcast.node.protocols.port import EVERYONE
from stormcast.node.transports import bpf, reach
from stormcast.node.transports.binding import BindError
from stormcast.node.transports.interfaces import Interface
from stormcast.node.transports.udp import UdpTransport
from tests.helpers.station import CLUSTER, Station, on_a_loop, stations, udp, until

PORTS = count(18_000)
"""Groups of tests that run at once must not hear each other; the address tells them apart."""
MTU = 1500


def config(**settings: Any) -> Any:
    """With a group of its own."""
    number = next(PORTS)
    group = f"239.77.{number % 250}.{Random(number).randrange(250)}"
    return udp(mcast_addr=group, mcast_port=number, **settings)


def plain(**settings: Any) -> Any:
    """Without a group, and so without its probes."""
    return udp(ip_mcast="never", **settings)


def meet(*all_of_them: Station[Any]) -> None:
    for one in all_of_them:
        one.view(*(other for other in all_of_them if other is not one))


def sent(station: Station[UdpTransport]) -> int:
    return int(station.transport.stats()["datagrams_sent"])


def reached(station: Station[UdpTransport]) -> int:
    return int(station.transport.stats()["multicast_reached"])


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback carries 64 KiB; as an Ethernet, it has to be told."""
    monkeypatch.setattr(Interface, "mtu", lambda _self: MTU)


class Wire:
    """A socket that fails as it is told, in front of the real one."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.failures: list[int] = []
        """Errors of the next writes; 0 is none."""
        self.segments: list[int] = []
        """Of each write: what the kernel was told to cut at, 0 for nothing."""

    def sendmsg(self, parts: Any, ancillary: Any, flags: int, to: Any) -> int:
        number = self.failures.pop(0) if self.failures else 0
        if number == errno.EAGAIN:
            raise BlockingIOError(number, "full")
        if number:
            raise OSError(number, "failed")
        self.segments.append(int.from_bytes(ancillary[0][2], "little") if ancillary else 0)
        return self.real.sendmsg(parts, ancillary, flags, to)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def wired(station: Station[UdpTransport]) -> Wire:
    transport: Any = station.transport
    transport._writer.socket = Wire(transport._writer.socket)
    made: Wire = transport._writer.socket
    return made


# -- To the group ----------------------------------------------------------------------------------


@on_a_loop
async def test_a_multicast_is_used_for_whom_it_was_proven_and_for_nobody_else() -> None:
    """c does not hear the group. It goes on to get datagrams of its own; b gets one, not two."""
    setting = config()
    async with stations(setting, "a", "b") as (a, b):
        c = Station[Any]("c").open(udp(ip_mcast="never"))
        meet(a, b, c)
        a.send(GROUP, b"before anything is proven")
        await until(lambda: b.got and c.got)
        await until(lambda: reached(a) == 1)
        before = sent(a)
        a.send(GROUP, b"after")
        await until(lambda: len(b.got) == len(c.got) == 2)
        # One multicast, which reaches b, and one datagram to c.
        assert sent(a) - before == 2
        assert [one.number for one in b.got] == [one.number for one in c.got] == [1, 2]
        await asyncio.sleep(0.02)
        assert len(b.got) == len(c.got) == 2
        assert a.got == []
        c.close()


@on_a_loop
async def test_when_all_hear_it_a_multicast_is_one_datagram() -> None:
    async with stations(config(), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        await until(lambda: reached(a) == reached(b) == reached(c) == 2)
        before = sent(a)
        a.send(GROUP, b"1", b"2")
        await until(lambda: len(b.got) == len(c.got) == 2)
        assert sent(a) - before == 2
        assert a.got == []


@on_a_loop
async def test_copies_go_out_again_where_a_network_stops_carrying_multicasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a switch does that forgets c, and later learns of it anew."""
    monkeypatch.setattr(reach, "LONGEST_WAIT", 0.1)
    monkeypatch.setattr(reach, "PROOF_SECONDS", 0.35, raising=False)
    async with stations(config(), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        await until(lambda: reached(a) == 2)
        group = c.transport._group
        assert group is not None
        name = socket.inet_aton(group.at[0]) + socket.inet_aton(c.transport._interface.address)
        group.socket.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, name)
        await until(lambda: reached(a) == 1, "c is known to hear nothing")
        a.send(GROUP, b"a copy for c")
        await until(lambda: b.got and c.got)
        group.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, name)
        await until(lambda: reached(a) == 2, "and to hear again")
        before = sent(a)
        a.send(GROUP, b"one for both")
        await until(lambda: len(b.got) == len(c.got) == 2)
        assert sent(a) - before <= 2


@on_a_loop
async def test_questions_of_others_are_counted() -> None:
    """Two clusters share a multicast group; each says nothing to the other."""
    setting = config()
    async with stations(setting, "a", "b") as (a, b):
        other = Station[Any]("o", cluster=CLUSTER + 1).open(setting)
        meet(a, b)
        await until(lambda: reached(a) == reached(b) == 1)
        assert "refused_reach-cluster" not in a.transport.stats()
        other.view(a)
        await until(lambda: a.transport.stats().get("refused_reach-cluster"))
        other.close()


@on_a_loop
async def test_who_was_away_proves_again_that_it_hears() -> None:
    async with stations(config(), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        await until(lambda: reached(a) == 2)
        a.view(b)
        assert reached(a) == 1
        b_before = len(b.got)
        a.view(b, c)
        a.send(GROUP, b"x")
        await until(lambda: len(b.got) > b_before and c.got)
        await until(lambda: reached(a) == 2)


@on_a_loop
async def test_always_does_not_wait_for_proof() -> None:
    async with stations(config(ip_mcast="always"), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        before = sent(a)
        a.send(GROUP, b"x")
        await until(lambda: b.got and c.got)
        assert sent(a) - before == 1


@on_a_loop
async def test_never_sends_one_datagram_to_each() -> None:
    async with stations(config(ip_mcast="never"), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        before = sent(a)
        a.send(GROUP, b"x")
        await until(lambda: b.got and c.got)
        assert sent(a) - before == 2
        assert "no multicast: a frame for the group goes to every member by itself" in (
            a.transport.describe()
        )


@on_a_loop
async def test_own_copies_are_dropped_by_the_kernel_and_not_taken_for_losses() -> None:
    async with stations(config(), "a", "b") as (a, b):
        meet(a, b)
        await until(lambda: reached(a) == 1)
        before = a.transport.stats()["datagrams_received"]
        for _ in range(50):
            a.send(GROUP, b"x")
        await until(lambda: len(b.got) == 50)
        await asyncio.sleep(0.02)
        assert a.transport.stats()["datagrams_received"] == before
        assert a.transport.stats()["kernel_drops"] == 0
        assert "own copies filtered in the kernel" in a.transport.describe()[1]


@on_a_loop
async def test_without_the_filter_own_copies_are_seen_and_do_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_sock: object, _program: bytes) -> None:
        raise OSError(errno.EPERM, "refused")

    monkeypatch.setattr(bpf, "attach", refused)
    async with stations(config(), "a", "b") as (a, b):
        meet(a, b)
        await until(lambda: reached(a) == 1)
        a.send(GROUP, b"x")
        await until(lambda: b.got and a.got)
        # A stack takes a frame that names itself for nothing: see `bad-source`.
        assert [one.source for one in a.got] == [a.short]
        assert "own copies thrown away here" in a.transport.describe()[1]


@on_a_loop
async def test_what_came_while_the_buffer_was_full_is_counted() -> None:
    async with stations(config(receive_buffer=4096), "a", "b") as (a, b):
        meet(a, b)
        for _ in range(200):
            a.send(b.short, bytes(1000))
        assert b.transport.stats()["kernel_drops"] > 0
        await until(lambda: b.got)
        drops = b.transport.stats()["kernel_drops"]
        assert drops + len(b.got) >= 200


@on_a_loop
async def test_everyone_is_the_group_and_whoever_is_listed_or_known_but_not_this_member() -> None:
    setting = config()
    async with stations(setting, "a", "b") as (a, b):
        c = Station[Any]("c").open(udp(ip_mcast="never"))
        a.listed = [("127.0.0.1", c.transport.port), ("127.0.0.1", a.transport.port)]
        a.transport.send([a.control(EVERYONE)])
        await until(lambda: b.got and c.got)
        await asyncio.sleep(0.02)
        assert a.got == []
        c.close()


@on_a_loop
async def test_a_group_that_cannot_be_joined_is_said_in_one_line_and_done_without() -> None:
    async with stations(udp(ip_mcast="never"), "b") as (b,):
        # An IPv4 group on an IPv6 address.
        a = Station[Any]("a").open(udp(bind_addr="::1", mcast_addr="239.1.2.3"))
        (line,) = a.said
        assert line.startswith("multicast 239.1.2.3[17600] on lo: ")
        assert line.endswith("each frame for the group goes to every member by itself")
        a.view(b)
        a.send(GROUP, b"x")
        assert b.got == []
        a.close()


# -- Addresses -------------------------------------------------------------------------------------


@on_a_loop
async def test_who_is_heard_can_be_answered_and_a_view_knows_better() -> None:
    async with stations(config(), "a", "b", "c") as (a, b, c):
        a.transport.locate(b.address)
        a.send(b.short, b"x")
        await until(lambda: b.got)
        b.send(a.short, b"y")
        await until(lambda: a.got)
        # c says it is b: where a view has named b, nobody else can.
        forger = Station[Any]("b")
        a.view(b)
        c.transport.locate(a.address)
        c.transport.send([forger.frame(a.short)])
        await until(lambda: len(a.got) == 2)
        a.send(b.short, b"z")
        await until(lambda: len(b.got) == 2)
        assert c.got == []


@on_a_loop
async def test_whose_place_is_unknown_is_asked_for() -> None:
    async with stations(config(), "a") as (a,):
        a.send(99, b"x")
        assert a.asked == [99]
        assert a.counters == {"unknown_address": 1}


@on_a_loop
async def test_a_strangers_place_breaks_nothing() -> None:
    """Text of the network that is no place, or one of the other family."""
    async with stations(config(), "a") as (a,):
        for where in ("", "\x00[80]", "1.2.3.4[²]", "::1[80]", "fe80::1%\x00[80]", "name[80]"):
            a.transport.locate(Address(99, "x", where))
        a.send(99, b"x")
        assert a.asked == [99]


@on_a_loop
async def test_addresses_that_strangers_name_are_bounded() -> None:
    async with stations(config(), "a") as (a,):
        for number in range(1, 6000):
            a.transport.locate(Address(number, "x", "127.0.0.1[9]"))
        assert len(a.transport._places.places.at) <= 4096
        assert a.counters["located_full"] > 0
        b = Address(9999, "b", "127.0.0.1[9]")
        a.transport.on_view([a.address, b])
        assert a.transport._places.places.at.keys() == {b.short}


# -- Datagrams -------------------------------------------------------------------------------------


@on_a_loop
async def test_small_frames_for_one_member_share_a_datagram() -> None:
    async with stations(plain(), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        before = sent(a)
        frames = [
            a.frame(dest, bytes(size)) for size in range(1, 11) for dest in (b.short, c.short)
        ]
        a.transport.send([*frames, a.control(b.short)])
        await until(lambda: len(b.got) == 11 and len(c.got) == 10)
        assert sent(a) - before == 2
        assert b.numbers() == [*range(1, 20, 2), 21]


@on_a_loop
async def test_without_a_bundler_each_frame_is_a_datagram_of_its_own() -> None:
    async with stations(plain(bundler="no-bundler"), "a", "b") as (a, b):
        meet(a, b)
        before = sent(a)
        a.send(b.short, *[b"x"] * 10)
        await until(lambda: len(b.got) == 10)
        assert sent(a) - before == 10
        assert len(set(b.datagrams)) == 1


@pytest.mark.parametrize("size", [1, 10, 700, 20_000, 64_000])
@on_a_loop
async def test_any_number_of_frames_of_any_size_fits_some_datagrams(size: int) -> None:
    """Two thousand tiny ones have more parts than one write may have."""
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        number = 2000 if size < 100 else 30
        a.transport.send(
            [
                a.frame(b.short, bytes(size)) if turn % 3 else a.control(b.short)
                for turn in range(number)
            ]
        )
        await until(lambda: len(b.got) == number)
        assert b.numbers() == list(range(1, number + 1))
        assert not a.counters
        assert max(b.datagrams) <= 65_507


@on_a_loop
async def test_an_empty_turn_sends_nothing() -> None:
    async with stations(plain(), "a") as (a,):
        a.transport.send([])
        assert sent(a) == 0


def shapes(dice: Random) -> list[int]:
    """Sizes of frames as turns make them: runs of one length, shorter and longer ones between."""
    sizes: list[int] = []
    for _ in range(20):
        length = dice.choice([0, 1, 100, 1372, 1373, 900])
        sizes += [length] * dice.choice([1, 1, 2, 63, 64, 65, 5])
    return sizes


@pytest.mark.parametrize("seed", range(4))
@on_a_loop
async def test_frames_of_a_packets_size_are_cut_and_joined_by_the_kernel(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        writes = wired(a)
        sizes = shapes(Random(seed))
        a.send(b.short, *map(bytes, sizes))
        await until(lambda: len(b.got) == len(sizes))
        assert b.numbers() == list(range(1, len(sizes) + 1))
        assert [len(one.body) - 4 for one in b.got] == sizes
        assert b.refused == []
        assert not a.counters
        assert len(writes.segments) < len(sizes) // 4
        assert max(writes.segments) <= MTU - 28
        # Joined: what arrived together was handed over together.
        assert len(b.datagrams) < len(sizes) // 4


@on_a_loop
async def test_equal_frames_of_a_packets_size_leave_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow(monkeypatch)
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        writes = wired(a)
        a.send(b.short, *[bytes(900)] * 40, bytes(10))
        await until(lambda: len(b.got) == 41)
        assert writes.segments == [wire.HEAD_SIZE + 4 + 900]
        assert a.transport.frame_limit() == MTU - 28 - wire.HEAD_SIZE
        assert "datagrams up to 1472 bytes, cut and joined by the kernel (GSO, GRO)" in (
            a.transport.describe()
        )


@on_a_loop
async def test_a_kernel_that_does_not_cut_gets_single_packets_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow(monkeypatch)
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        writes = wired(a)
        writes.failures = [errno.EINVAL]
        a.send(b.short, *[bytes(900)] * 10)
        await until(lambda: len(b.got) == 10)
        assert a.counters == {"offload_refused": 1}
        a.send(b.short, *[bytes(900)] * 10)
        await until(lambda: len(b.got) == 20)
        assert set(writes.segments) == {0}
        assert b.numbers() == list(range(1, 21))


@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ENETUNREACH, errno.EPERM])
@on_a_loop
async def test_a_passing_error_does_not_end_the_offload(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue, a firewall, a route that is gone for a while: lost, and counted."""
    narrow(monkeypatch)
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        writes = wired(a)
        writes.failures = [number]
        a.send(b.short, *[bytes(900)] * 10)
        a.send(b.short, *[bytes(900)] * 10)
        await until(lambda: len(b.got) == 10)
        assert "offload_refused" not in a.counters
        assert sum(a.counters.values()) == 1
        assert len(writes.segments) == 1
        assert writes.segments[0] > 0


@on_a_loop
async def test_messages_above_a_packets_size_do_not_end_the_offload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One message larger than a packet is fragmented below; the kernel cuts no segments of it."""
    narrow(monkeypatch)
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        writes = wired(a)
        a.send(b.short, *[bytes(5000)] * 5, *[bytes(900)] * 5)
        await until(lambda: len(b.got) == 10)
        # Loopback would carry such segments; an Ethernet refuses them, and they end the offload.
        assert writes.segments == [0] * 5 + [wire.HEAD_SIZE + 4 + 900]
        assert not a.counters


@on_a_loop
async def test_offload_never_leaves_packets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch)
    async with stations(plain(offload="never", bundler="no-bundler"), "a", "b") as (a, b):
        meet(a, b)
        a.send(b.short, *[bytes(900)] * 10)
        await until(lambda: len(b.got) == 10)
        assert sent(a) >= 10
        assert len(b.datagrams) == 10


@on_a_loop
async def test_garbage_is_counted_and_what_stood_before_it_counts() -> None:
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            at = ("127.0.0.1", b.transport.port)
            _dest, head, body = a.frame(b.short)
            for data in (b"", b"x", bytes(63), bytes(64), bytes(65_507), head + body + b"tail"):
                stranger.sendto(data, at)
        await until(lambda: len(b.refused) == 5)
        assert b.numbers() == [1]
        a.send(b.short, b"still there")
        await until(lambda: len(b.got) == 2)


# -- A full socket ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drops", [True, False], ids=["drop", "wait"])
@on_a_loop
async def test_what_a_full_socket_does_not_take_is_dropped_and_counted_or_waits(
    drops: bool,
) -> None:
    setting = plain(queue_frames=100, drop_when_full=drops, bundler="no-bundler")
    async with stations(setting, "a", "b") as (a, b):
        meet(a, b)
        before = sent(a)
        wired(a).failures = [errno.EAGAIN]
        a.send(b.short, *[b"x"] * 300)
        assert a.transport.room.is_full
        waiting = 100 if drops else 300
        assert a.transport.queued()[0] == waiting
        assert a.counters == ({"dropped_queue_full": 200} if drops else {})
        await until(lambda: len(b.got) == waiting)
        assert b.numbers() == list(range(1, waiting + 1))
        assert a.transport.queued() == (0, 0)
        assert not a.transport.room.is_full
        assert sent(a) - before == waiting


@on_a_loop
async def test_the_outbox_is_closed_by_bytes_and_open_again_when_half_has_left() -> None:
    async with stations(plain(queue_bytes=100_000, bundler="no-bundler"), "a", "b") as (a, b):
        meet(a, b)
        writes = wired(a)
        writes.failures = [errno.EAGAIN]
        a.send(b.short, *[bytes(10_000)] * 9)
        assert not a.transport.room.is_full
        a.send(b.short, *[bytes(10_000)] * 2)
        assert a.transport.room.is_full
        waiting: list[int] = []
        a.turn = lambda **_: waiting.append(a.transport.queued()[0])  # type: ignore[method-assign]
        # It takes four, and is full, with more than half; and three more.
        writes.failures = [0, 0, 0, 0, errno.EAGAIN, 0, 0, 0, errno.EAGAIN]
        await until(lambda: len(b.got) == 11)
        assert waiting == [4]
        assert not a.transport.room.is_full


@on_a_loop
async def test_a_multicast_that_had_to_wait_is_no_loss_either() -> None:
    async with stations(config(), "a", "b") as (a, b):
        meet(a, b)
        await until(lambda: reached(a) == 1)
        wired(a).failures = [errno.EAGAIN]
        for _ in range(10):
            a.send(GROUP, b"x")
        await until(lambda: len(b.got) == 10)
        await asyncio.sleep(0.01)
        assert a.transport.stats()["kernel_drops"] == 0


@on_a_loop
async def test_closing_sends_what_can_leave_at_once() -> None:
    async with stations(plain(), "a", "b") as (a, b):
        meet(a, b)
        wired(a).failures = [errno.EAGAIN]
        a.send(b.short, *[b"x"] * 10)
        a.send(b.short, b"y")
        a.close()
        await until(lambda: len(b.got) == 11)


# -- Binding ---------------------------------------------------------------------------------------


@on_a_loop
async def test_a_taken_port_is_passed_over_within_the_range_and_refused_beyond() -> None:
    async with stations(udp(ip_mcast="never"), "a") as (a,):
        port = a.transport.port
        with pytest.raises(BindError, match=rf"UDP port 127.0.0.1\[{port}\]: in use; choose"):
            Station[Any]("b").open(udp(bind_port=port, port_range=0))
        b = Station[Any]("b").open(udp(bind_port=port, port_range=5))
        assert port < b.transport.port <= port + 5
        b.close()


@on_a_loop
async def test_an_address_that_is_not_ours_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"no interface of this host fits; there is .*lo 127"):
        Station[Any]("a").open(udp(bind_addr="203.0.113.1"))


@on_a_loop
async def test_ipv6_with_fan_out_or_multicast() -> None:
    """Where loopback has no IPv6 multicast, nobody ever proves to hear it."""
    async with stations(udp(bind_addr="::1"), "a", "b", "c") as (a, b, c):
        meet(a, b, c)
        for _ in range(5):
            a.send(GROUP, b"x")
            a.send(b.short, b"y")
            await asyncio.sleep(0.02)
        await until(lambda: {one.number for one in b.got} == set(range(1, 11)))
        await until(lambda: len({one.number for one in c.got}) == 5)
        assert a.transport.where.startswith("::1[")


@on_a_loop
async def test_what_is_bound_is_said() -> None:
    async with stations(config(), "a") as (a,):
        lines = a.transport.describe()
        group = a.transport._group.at
        where = f"127.0.0.1[{a.transport.port}]"
        assert lines[0] == f"udp {where} on lo (rule 127.0.0.1), told to others as {where}"
        assert lines[1] == (
            f"multicast {group[0]}[{group[1]}] on lo, ttl 8; own copies filtered in the kernel; "
            "used once all members hear it"
        )
        assert lines[2] == "datagrams up to 65507 bytes"


@on_a_loop
async def test_a_buffer_that_the_kernel_caps_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stormcast.node.transports.binding.SO_RCVBUFFORCE", socket.SO_RCVBUF)
    with open("/proc/sys/net/core/rmem_max") as limit:  # noqa: ASYNC230, PTH123 no wait, and no path to join
        most = int(limit.read())
    async with stations(plain(receive_buffer=most * 2), "a") as (a,):
        assert a.transport.describe()[-1] == (
            f"warning: receive_buffer is {most} of {2 * most} bytes; raise net.core.rmem_max, "
            "or expect losses under load"
        )


@pytest.mark.parametrize(("patience", "taken"), [(0.0, 1), (0.001, 2)])
@on_a_loop
async def test_who_polls_on_has_the_answer_before_the_loop_turns(patience: str, taken: int) -> None:
    """A's turn makes B answer; A finds the answer in the same call only if it looks once more."""
    a = Station[UdpTransport]("a").open(plain(busy_poll=patience), start=False)
    b = Station[UdpTransport]("b").open(plain(), start=False)
    for one, cluster in ((a, a.cluster), (b, b.cluster)):
        one.transport.start(one.address, cluster)
        a.loop.remove_reader(one.transport._socket.fileno())
    meet(a, b)
    answers = iter([b.frame(a.short)])

    def answer(*, has_more: bool = False) -> None:  # noqa: ARG001 as a turn is called
        b.transport.send(list(filter(None, [next(answers, None)])))

    a.turn = answer  # type: ignore[method-assign]
    b.transport.send([b.frame(a.short)])
    a.transport.poll()
    assert len(a.got) == taken
    a.transport.close()
    b.transport.close()
