"""The public API on loopback: life and errors, sending while full, receiving slowly, and two
addresses without a group."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.node.channel import Channel, ChannelConfig, LeaveTimeoutError
from stormcast.node.core.errors import ClosedError, ConfigError, NodeError
from stormcast.node.core.model import DONT_BUNDLE, Address, Delivery, View
from stormcast.node.inbox import HELD_BYTES
from stormcast.node.runtime import LATENESS
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.files import read_traces
from stormcast.node.trace.journal import JournalConfig
from stormcast.node.transports.binding import BindError
from tests.helpers.station import on_a_loop, until

PORTS = count(19_000)
MIB = 1 << 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def udp(stack: str = "udp", **protocols: dict[str, object]) -> StackSettings:
    number = next(PORTS)
    bound = {
        "bind_addr": "127.0.0.1",
        "mcast_addr": f"239.78.{number % 250}.1",
        "mcast_port": number,
    }
    return load_settings(
        stack, "fast", protocols={**protocols, "UDP": {**bound, **protocols.get("UDP", {})}}
    )


def tcp(stack: str = "tcp", **protocols: dict[str, object]) -> StackSettings:
    """All of them know where the first one is."""
    port = free_port()
    name = "TCP" if stack == "tcp" else "TCP_NIO2"
    bound = {"bind_addr": "127.0.0.1", "bind_port": port}
    return load_settings(
        stack,
        "fast",
        protocols={
            "STATIC": {"initial_hosts": f"127.0.0.1[{port}]", "port_range": 5},
            **protocols,
            name: {**bound, **protocols.get(name, {})},
        },
    )


KINDS: dict[str, Callable[[], StackSettings]] = {
    "udp": udp,
    "udp-mtu": lambda: udp(UDP={"frames": "mtu"}),
    "tcp": tcp,
    "tcp-nio2": lambda: tcp("tcp-nio2"),
    "tcp-no-retransmit": lambda: tcp("tcp-no-retransmit"),
    "mcast": lambda: udp("mcast"),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@asynccontextmanager
async def group(settings: StackSettings, *names: str, **more: Any) -> AsyncIterator[list[Channel]]:
    """Members that have all joined; gone at the end, however it ends."""
    cluster = f"c{next(PORTS)}"
    channels: list[Channel] = []
    try:
        for name in names:
            channel = Channel(ChannelConfig(settings=settings, cluster=cluster, name=name, **more))
            channels.append(channel)
            await channel.connect()
        if settings.has_group:
            await until(lambda: all(size(one) == len(names) for one in channels), "a view of all")
        yield channels
    finally:
        for channel in channels:
            await channel.close()


def size(channel: Channel) -> int:
    return len(channel.view.members) if channel.view is not None else 0


def gather(channel: Channel) -> list[tuple[str, bytes]]:
    """What it gets, and from whom."""
    got: list[tuple[str, bytes]] = []
    channel.on_message = lambda payload, sender: got.append((sender.name, bytes(payload)))
    return got


def unicast_only(**udp_settings: object) -> StackSettings:
    return udp("unicast-only", UDP={"ip_mcast": "never", **udp_settings})


# -- Life ------------------------------------------------------------------------------------------


@kinds
@on_a_loop
async def test_members_find_each_other_talk_and_leave(kind: str) -> None:
    async with group(KINDS[kind](), "a", "b", "c") as (a, b, c):
        got = {one.name: gather(one) for one in (a, b, c)}
        assert a.state == "connected"
        assert a.view is not None
        assert str(a.view.coordinator) == "a"
        await a.send(None, b"to all")
        await b.send(c.address, b"to c")
        await c.send(c.member("b"), b"to b")
        await a.send(a.address.short, b"to me")
        await until(lambda: sum(map(len, got.values())) == 6)
        assert sorted(got["a"]) == [("a", b"to all"), ("a", b"to me")]
        assert sorted(got["b"]) == [("a", b"to all"), ("c", b"to b")]
        assert sorted(got["c"]) == [("a", b"to all"), ("b", b"to c")]
        # Later, a frame of one that has left may still be under way.
        assert "stack.refused" not in str(b.stats())
        loop = asyncio.get_running_loop()
        for left, stays in ((a, 2), (c, 1), (b, 0)):
            begun = loop.time()
            await left.leave()
            # At once, and not by a repeat of what was asked.
            assert loop.time() - begun < 1.0
            assert left.state == "closed"
            living = [one for one in (a, b, c) if one.state != "closed"]
            await until(lambda stays=stays, living=living: all(size(x) == stays for x in living))


@pytest.mark.parametrize("kind", ["tcp", "tcp-nio2"])
@on_a_loop
async def test_who_leaves_over_connections_gets_the_answer_before_its_connection_ends(
    kind: str,
) -> None:
    """The coordinator's transport forgets a member with the view that is without it: what the
    turn of that view had for the member must have gone before."""
    async with group(KINDS[kind](), "a", "b", "c") as (a, b, c):
        for member in (c, b):
            begun = asyncio.get_running_loop().time()
            await member.leave()
            assert asyncio.get_running_loop().time() - begun < 0.3
        assert not a.stats().get("transport.dropped_not_connected")


@on_a_loop
async def test_a_channel_is_used_once() -> None:
    channel = Channel(ChannelConfig(settings=unicast_only(), name="a"))
    assert (channel.state, channel.view) == ("new", None)
    with pytest.raises(ClosedError, match="a has no address yet: connect first"):
        _ = channel.address
    with pytest.raises(ClosedError, match="a is new: nothing can be sent"):
        channel.try_send(1, b"x")
    with pytest.raises(ClosedError, match="a is not connected yet"):
        channel.set_attribute("xmit_interval", "1s")
    await channel.connect()
    with pytest.raises(ClosedError, match="a was used before: open a new channel"):
        await channel.connect()
    await channel.close()
    await channel.close()
    await channel.leave()
    assert channel.state == "closed"
    with pytest.raises(ClosedError, match="a is closed: nothing can be sent"):
        channel.try_send(1, b"x")
    with pytest.raises(ClosedError, match="a is closed"):
        channel.set_consuming(True)
    with pytest.raises(ClosedError):
        await channel.connect()


@on_a_loop
async def test_a_channel_that_never_began_can_be_closed_and_left() -> None:
    for end in (Channel.close, Channel.leave):
        channel = Channel(ChannelConfig(settings=unicast_only()))
        await end(channel)
        assert channel.state == "closed"


@pytest.mark.parametrize("end", [Channel.close, Channel.leave], ids=["close", "leave"])
@pytest.mark.parametrize("after", [0, 1, 5])
@on_a_loop
async def test_who_waits_for_a_view_hears_that_the_channel_was_closed(
    end: Callable[[Channel], Any], after: int
) -> None:
    """Nobody answers: the join goes on for its time, and then the member is alone. It is ended
    before that, at any moment."""
    settings = tcp(GMS={"join_timeout": "20s"}, STATIC={"initial_hosts": "127.0.0.1[9]"})
    channel = Channel(ChannelConfig(settings=settings, name="a"))
    joining = asyncio.ensure_future(channel.connect())
    for _ in range(after):
        await asyncio.sleep(0.01)
    if after == 0:
        await asyncio.sleep(0)
    with contextlib.suppress(LeaveTimeoutError):
        await asyncio.wait_for(end(channel), 15.0)
    with pytest.raises(ClosedError, match="a was closed before it had joined"):
        await asyncio.wait_for(joining, 1.0)
    assert channel.state == "closed"
    assert not channel.runtime.is_running


@on_a_loop
async def test_a_join_that_is_cancelled_leaves_nothing_behind() -> None:
    settings = tcp(GMS={"join_timeout": "20s"}, STATIC={"initial_hosts": "127.0.0.1[9]"})
    channel = Channel(ChannelConfig(settings=settings))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(channel.connect(), 0.05)
    assert channel.state == "closed"
    again = Channel(ChannelConfig(settings=settings))
    # Its port is free again, at once.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(again.connect(), 0.05)


@on_a_loop
async def test_what_cannot_be_bound_is_refused_in_one_line() -> None:
    async with group(unicast_only(), "a") as (a,):
        port = a.runtime.transport.port
        for settings, kind in (
            (unicast_only(bind_port=port, port_range=0), BindError),
            (unicast_only(bind_addr="no-such-interface"), ConfigError),
        ):
            channel = Channel(ChannelConfig(settings=settings))
            with pytest.raises(kind) as refused:
                await channel.connect()
            assert isinstance(refused.value, NodeError)
            assert "\n" not in str(refused.value)
            assert channel.state == "closed"


@on_a_loop
async def test_leaving_without_an_answer_ends_all_the_same() -> None:
    async with group(tcp(FD_ALL3={"timeout": "60s"}), "a", "b") as (a, b):
        # The coordinator's process hangs: it takes nothing in any more.
        a.runtime.receive = lambda _datagram, _now: 1  # type: ignore[method-assign]
        with pytest.raises(LeaveTimeoutError, match=r"b has left without an answer .* 0\.2 s"):
            await b.leave(timeout=0.2)
        assert b.state == "closed"


@on_a_loop
async def test_leaving_without_a_group_waits_until_everything_is_acked() -> None:
    async with group(unicast_only(), "a", "b") as (a, b):
        got = gather(a)
        for number in range(500):
            await b.send(a.address, b"%d" % number)
        await b.leave()
        await until(lambda: len(got) == 500)


@on_a_loop
async def test_the_context_manager_joins_and_leaves() -> None:
    async with Channel(ChannelConfig(settings=udp(), cluster="x", name="a")) as channel:
        assert size(channel) == 1
        lines = channel.runtime.describe()
        assert lines[0].startswith("udp 127.0.0.1[")
        assert lines[-1].startswith("FD_SOCK2 listens on port ")
    assert channel.state == "closed"


# -- Sending ---------------------------------------------------------------------------------------


@on_a_loop
async def test_two_addresses_talk_without_a_group() -> None:
    """An address says where it is; who is written to learns from that where to answer."""
    async with group(unicast_only(), "a", "b") as (a, b):
        got_a, got_b = gather(a), gather(b)
        await a.send(b.address, b"ping")
        await until(lambda: got_b)
        await b.send(a.address.short, b"pong")
        await until(lambda: got_a)
        assert got_b[0][1] == b"ping"
        assert a.view is None
        with pytest.raises(ConfigError, match="short id of an address"):
            a.try_send(None, b"x")
        with pytest.raises(ConfigError, match="no member named 'z' in the view"):
            a.member("z")
        await b.leave()


@kinds
@on_a_loop
async def test_what_is_no_bytes_is_refused_at_once_and_leaving_takes_no_longer(kind: str) -> None:
    """Accepted, it would fail in the loop, again and again, and what waits behind it with it."""
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: failures.append(str(context))
    )
    async with group(KINDS[kind](), "a", "b") as (a, b):
        got = gather(b)
        for dest in (None, b.address, b.address.short, "b"):
            publication = a.publication(dest)
            publication.offer(b"1")
            for message in ("text", None, 17):
                wrong: Any = message
                with pytest.raises(ConfigError, match=type(message).__name__):
                    a.try_send(dest, wrong)
                with pytest.raises(ConfigError, match=type(message).__name__):
                    await a.send(dest, wrong)
                with pytest.raises(ConfigError, match=type(message).__name__):
                    publication.offer(wrong)
            with pytest.raises(ConfigError, match="of type str"):
                await a.send_many(dest, "text")  # type: ignore[arg-type]
            publication.offer(memoryview(b"12")[1:])
        await until(lambda: len(got) == 8)
        assert sorted(payload for _sender, payload in got) == [b"1"] * 4 + [b"2"] * 4
        begun = asyncio.get_running_loop().time()
        await a.leave()
        assert asyncio.get_running_loop().time() - begun < 2.0
        assert failures == []


@on_a_loop
async def test_a_destination_is_also_a_name_and_an_unknown_one_says_who_is_there() -> None:
    early = Channel(ChannelConfig(settings=udp(), name="early"))
    with pytest.raises(ClosedError, match="early is not connected yet"):
        early.try_send("b", b"x")
    async with group(udp(), "a", "b") as (a, b):
        got = gather(b)
        await a.send("b", b"by name")
        await a.send_many("b", [b"and", b"more"])
        await until(lambda: len(got) == 3)
        there = "no member named 'z' in the view; there is a, b"
        with pytest.raises(ConfigError, match=there):
            a.try_send("z", b"x")
        with pytest.raises(ConfigError, match=there):
            await a.send("z", b"x")
        with pytest.raises(ConfigError, match="no member named 'z'"):
            a.publication("z")
        wrong: Any
        for wrong in (1.5, b"b", a, ["b"]):
            with pytest.raises(ConfigError, match=f"dest is of type {type(wrong).__name__}: write"):
                a.try_send(wrong, b"x")
            with pytest.raises(ConfigError, match="dest is of type"):
                a.publication(wrong)


@on_a_loop
async def test_a_full_outbox_refuses_and_says_when_there_is_room() -> None:
    """The other end takes nothing: the window fills, then the outbox."""
    async with group(udp(), "a", "b") as (a, b):
        b.set_consuming(False)
        payload = bytes(50_000)
        accepted = refusals = 0
        # What is still on its way makes room once more: full is what stays full.
        while refusals < 50:
            if a.try_send(b.address, payload):
                accepted, refusals = accepted + 1, 0
            else:
                refusals += 1
                await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(a.send(b.address, payload))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        got = 0

        def take(delivery: Delivery) -> None:
            nonlocal got
            got += len(delivery)

        b.on_batch = take
        b.set_consuming(True)
        await waiting
        assert a.runtime.stack.outbox.room(b.address.short) >= 4 * MIB - 64 - 5
        await until(lambda: got == accepted + 1)


@on_a_loop
async def test_who_waits_for_room_hears_that_the_channel_was_closed() -> None:
    settings = unicast_only()
    async with group(settings, "a") as (a,):
        # Nobody is there, and nobody acks.
        gone = Address(99, "gone", f"127.0.0.1[{free_port()}]")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    await a.send(gone, bytes(60_000))
        waiting = asyncio.ensure_future(a.send(gone, bytes(60_000)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await a.close()
        with pytest.raises(ClosedError):
            await waiting


@pytest.mark.parametrize("kind", ["udp", "tcp", "tcp-nio2"])
@on_a_loop
async def test_many_arrive_in_order_however_full_it_is(kind: str) -> None:
    """Ten times what the outbox holds, of all sizes, fragments among them."""
    async with group(KINDS[kind](), "a", "b") as (a, b):
        sizes = [0, 1, 100, 1000, 70_000, 300_000]
        payloads = [number.to_bytes(4, "big") + bytes(sizes[number % 6]) for number in range(1200)]
        got: list[bytes] = []
        b.on_message = lambda payload, sender: got.append(bytes(payload))  # noqa: ARG005 as it is called
        await a.send_many(b.address, payloads)
        await until(lambda: len(got) == len(payloads), "all of them", 25)
        assert got == payloads


@on_a_loop
async def test_what_no_frame_carries_is_refused_before_it_is_accepted() -> None:
    """Without FRAG, a message must fit what the transport carries: at the limit, and one more."""
    async with group(unicast_only(), "a", "b") as (a, b):
        got = gather(b)
        limit = a.runtime.stack.acceptor.largest_message
        assert limit == 65_507 - 64 - 4
        await a.send(b.address, bytes(limit))
        with pytest.raises(
            ConfigError,
            match=rf"a message of {limit + 1} bytes: UDP carries {limit}; split it, or add FRAG",
        ):
            await a.send(b.address, bytes(limit + 1))
        await until(lambda: got)
        assert len(got[0][1]) == limit
        await b.close()


@on_a_loop
async def test_over_connections_the_limit_is_max_length() -> None:
    """A longer frame would end its connection, and be sent again on the next, for ever."""
    port = free_port()
    bound = {"bind_addr": "127.0.0.1", "bind_port": port, "max_length": 100_000}
    static = {"initial_hosts": f"127.0.0.1[{port}]", "port_range": 5}
    settings = load_settings("tcp", "fast", protocols={"TCP": bound, "STATIC": static})
    layers = tuple(layer for layer in settings.layers if layer[0] not in ("FRAG", "MFC", "UFC"))
    settings = StackSettings(layers=layers, timing=settings.timing)
    async with group(settings, "a", "b") as (a, b):
        got = gather(b)
        limit = a.runtime.stack.acceptor.largest_message
        assert limit == 100_000 - 64 - 4
        await a.send(b.address, bytes(limit))
        with pytest.raises(ConfigError, match=f"TCP carries {limit}"):
            await a.send(b.address, bytes(limit + 1))
        await until(lambda: got)
        assert not a.stats().get("transport.closed_bad-length")
        assert not b.stats().get("transport.closed_bad-length")


@on_a_loop
async def test_messages_larger_than_the_outbox_travel_in_pieces() -> None:
    async with group(udp(FRAG={"max_message_size": 32 * MIB}), "a", "b") as (a, b):
        got: list[int] = []
        b.on_message = lambda payload, sender: got.append(len(payload))  # noqa: ARG005 as it is called
        await a.send(b.address, bytes(20 * MIB))
        await a.send(b.address, b"after it")
        await until(lambda: len(got) == 2, "both", 25)
        assert got == [20 * MIB, 8]


@on_a_loop
async def test_a_publication_sends_as_the_channel_does() -> None:
    async with group(unicast_only(), "a", "b") as (a, b):
        got = gather(b)
        to_b = a.publication(b.address)
        for number in range(100):
            assert to_b.offer(b"%d" % number)
        await until(lambda: len(got) == 100)
        assert [payload for _name, payload in got] == [b"%d" % number for number in range(100)]
        await b.close()
        await a.close()
        with pytest.raises(ClosedError):
            to_b.offer(b"x")


# -- Receiving -------------------------------------------------------------------------------------


@on_a_loop
async def test_iterating_gives_batches_and_ends_with_the_channel() -> None:
    async with group(udp(), "a", "b") as (a, b):
        payloads = [b"%d" % number for number in range(300)]
        await a.send_many(None, payloads)
        got: list[bytes] = []
        async for batch in b:
            assert batch.is_multicast
            assert str(b.sender(batch)) == "a"
            got += map(bytes, batch)
            if len(got) == len(payloads):
                break
        assert got == payloads
        await a.send(None, b"one more")
        await until(lambda: len(b._inbox))
        await b.close()
        # What was delivered before the end is still there.
        assert [bytes(one) for batch in [batch async for batch in b] for one in batch] == [
            b"one more"
        ]


@pytest.mark.parametrize("dest", ["group", "member"])
@on_a_loop
async def test_an_application_that_iterates_slowly_makes_senders_wait(dest: str) -> None:
    """Nothing is lost, and what waits is bounded."""
    async with group(udp(), "a", "b") as (a, b):
        # A group is as slow as its slowest member, so the sender must take its own.
        gather(a)
        to = None if dest == "group" else b.address
        total, payload = 2400, bytes(20_000)
        sending = asyncio.ensure_future(a.send_many(to, [payload] * total))
        await until(lambda: b._inbox.is_stalled)
        await asyncio.sleep(0.3)
        assert not sending.done()
        # One burst more than the bound may have been on its way up.
        assert b._inbox.held_bytes < 2 * HELD_BYTES
        got = 0
        async for batch in b:
            got += len(batch)
            if got == total:
                break
        await sending
        assert not len(b._inbox)


@on_a_loop
async def test_empty_messages_that_wait_are_bounded_too() -> None:
    async with group(udp(), "a", "b") as (a, b):
        gather(a)
        sending = asyncio.ensure_future(a.send_many(b.address, [b""] * 400_000))
        await until(lambda: b._inbox.is_stalled, "a stall", 20)
        sending.cancel()


@on_a_loop
async def test_a_callback_that_comes_late_gets_what_waited() -> None:
    async with group(udp(), "a", "b") as (a, b):
        gather(a)
        sending = asyncio.ensure_future(a.send_many(b.address, [bytes(20_000)] * 1500))
        await until(lambda: b._inbox.is_stalled)
        got = 0

        def take(delivery: Delivery) -> None:
            nonlocal got
            got += len(delivery)

        b.on_batch = take
        await sending
        await until(lambda: got == 1500)


@on_a_loop
async def test_callbacks_that_raise_cost_nobody_else_a_message() -> None:
    """The loop's handler is told; the next message comes all the same."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(f"{context['message']}: {context['exception']}")
    )
    async with group(udp(), "a", "b") as (a, b):
        got: list[bytes] = []

        def pick(payload: Any, sender: Address) -> None:  # noqa: ARG001 as an application has it
            if bytes(payload) == b"bad":
                raise RuntimeError("no")
            got.append(bytes(payload))

        def on_view(_view: View) -> None:
            raise RuntimeError("no view")

        b.on_message = pick
        b.on_view = on_view
        await a.send_many(b.address, [b"1", b"bad", b"2"])
        await until(lambda: got == [b"1", b"2"])
        assert told == ["b: a callback failed: no"]
        b.on_message = None
        b.on_batch = lambda _batch: on_view  # type: ignore[assignment, return-value]
        await a.leave()
        await until(lambda: size(b) == 1)
        assert told[1:] == ["b: a callback failed: no view"]


@on_a_loop
async def test_a_callback_that_cannot_be_called_is_refused_and_the_one_before_it_stays() -> None:
    async def late(*_args: object) -> None: ...

    async with group(udp(), "a") as (a,):
        got = gather(a)
        for name in ("on_message", "on_batch", "on_view"):
            for wrong in (late, 17):
                with pytest.raises(ConfigError, match=f"{name} is "):
                    setattr(a, name, wrong)
        with pytest.raises(ConfigError, match=r"on_notice is .* starts a task"):
            Channel(ChannelConfig(on_notice=late))
        await a.send(None, b"1")
        await until(lambda: got == [("a", b"1")])


@on_a_loop
async def test_a_callback_that_returns_a_coroutine_is_told_each_time() -> None:
    """Which a lambda does whose body calls a coroutine function: nobody would run it."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(str(context["exception"]))
    )

    async def late(*_args: object) -> None: ...

    async with group(udp(), "a", "b") as (a, b):
        got: list[bytes] = []
        b.on_message = lambda *what: late(what) if got.append(bytes(what[0])) is None else None
        await a.send_many(b.address, [b"1", b"2"])
        await until(lambda: len(told) == 2)
        assert got == [b"1", b"2"]
        b.on_batch = lambda batch: (late(batch) for _ in batch)
        await a.send(b.address, b"3")
        await until(lambda: len(told) == 3)
        b.on_view = late_view = lambda view: late(view)  # noqa: PLW0108 that is the point
        assert b.on_view is late_view
        await a.leave()
        await until(lambda: len(told) == 4)
        assert all("nobody awaits: write a plain function" in one for one in told)


@on_a_loop
async def test_a_callback_that_is_cancelled_costs_nobody_else_a_message() -> None:
    """Whoever asks a future for its result may be told that it was cancelled. That must not end
    the turn: the messages that it was still to hand over would be lost."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(context["exception"])
    )
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    async with group(udp(), "a", "b") as (a, b):
        got: list[bytes] = []

        def take(payload: Any, _sender: Address) -> None:
            got.append(bytes(payload))
            cancelled.result()

        b.on_message = take
        b.on_view = lambda _view: cancelled.result()
        # Apart, so that several batches are handed over in one turn.
        for number in range(5):
            a.try_send(b.address, b"%d" % number, DONT_BUNDLE)
        await until(lambda: len(got) == 5)
        await a.leave()
        await until(lambda: len(told) == 6)
        assert got == [b"%d" % number for number in range(5)]
        assert {type(one) for one in told} == {asyncio.CancelledError}


@on_a_loop
async def test_a_notice_that_fails_does_not_fail_who_gives_it() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(str(context["exception"]))
    )

    def on_notice(line: str) -> None:
        raise RuntimeError(f"no {line}")

    async with group(udp(), "a", on_notice=on_notice) as (a,):
        a.runtime.say("news")
        assert told == ["no news"]


@on_a_loop
async def test_views_are_told_in_order_and_before_anything_of_who_is_in_them() -> None:
    settings = udp()
    async with group(settings, "a") as (a,):
        story: list[str] = []
        a.on_view = lambda view: story.append(",".join(map(str, view.members)))
        a.on_message = lambda payload, sender: story.append(f"{sender}: {bytes(payload).decode()}")
        b = Channel(ChannelConfig(settings=settings, cluster=a.config.cluster, name="b"))
        await b.connect()
        await b.send(None, b"hi")
        await until(lambda: len(story) == 2)
        await b.leave()
        await until(lambda: len(story) == 3)
        assert story == ["a,b", "b: hi", "a"]


@on_a_loop
async def test_a_reply_from_a_callback_is_sent_at_once() -> None:
    async with group(udp(), "a", "b") as (a, b):
        rounds = 0
        done = asyncio.Event()

        def pong(payload: Any, sender: Address) -> None:
            b.try_send(sender, bytes(payload))

        def ping(payload: Any, sender: Address) -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 200:
                done.set()
            else:
                a.try_send(sender, bytes(payload))

        a.on_message, b.on_message = ping, pong
        begun = asyncio.get_running_loop().time()
        a.try_send(b.address, b"ball")
        await done.wait()
        # Far below one timer of a protocol each.
        assert asyncio.get_running_loop().time() - begun < 2.0


# -- While it runs ---------------------------------------------------------------------------------


@on_a_loop
async def test_attributes_are_set_and_refused() -> None:
    async with group(udp(), "a") as (a,):
        a.set_attribute("NAKACK2.xmit_interval", "50ms")
        assert a.runtime.stack.multicast is not None
        assert a.runtime.stack.multicast.config.xmit_interval == 0.05
        with pytest.raises(ConfigError):
            a.set_attribute("NAKACK2.xmit_interval", "soon")
        with pytest.raises(ConfigError):
            a.set_attribute("GMS.join_timeout", "1s")
        assert a.stats()["transport.datagrams_sent"] > 0


@on_a_loop
async def test_another_cluster_on_the_same_addresses_is_another_group() -> None:
    settings = udp()
    async with group(settings, "a", "b") as (a, b), group(settings, "x", "y") as (x, y):
        got = gather(b)
        for one in (x, y):
            gather(one)
        await a.send(None, b"ours")
        await x.send(None, b"theirs")
        await until(lambda: got)
        await asyncio.sleep(0.05)
        assert got == [("a", b"ours")]
        assert b.stats()["stack.refused.cluster"] > 0


@on_a_loop
async def test_a_group_over_ipv6() -> None:
    port = free_port()
    settings = load_settings(
        "tcp",
        "fast",
        protocols={
            "TCP": {"bind_addr": "::1", "bind_port": port},
            "STATIC": {"initial_hosts": f"::1[{port}]", "port_range": 5},
        },
    )
    async with group(settings, "a", "b", "c") as (a, b, c):
        got = gather(c)
        gather(a)
        gather(b)
        await a.send(None, b"x")
        await until(lambda: got)


@pytest.mark.parametrize("mcast_addr", ["", "239.1.2.3"])
@on_a_loop
async def test_a_member_that_would_find_nobody_by_multicast_is_refused(mcast_addr: str) -> None:
    """A loopback interface has no route to IPv6 groups, and no IPv4 group on an IPv6 address."""
    settings = udp(UDP={"bind_addr": "::1", "mcast_addr": mcast_addr}, PING={})
    alone = Channel(ChannelConfig(settings=settings))
    with pytest.raises(ConfigError, match=r"^PING finds members by multicast, and nobody is .*"):
        await alone.connect()
    assert alone.state == "closed"


@on_a_loop
async def test_without_a_way_to_the_group_members_find_each_other_by_a_list() -> None:
    port = free_port()
    bound = {"bind_addr": "::1", "bind_port": port, "mcast_addr": ""}
    hosts = {"initial_hosts": f"::1[{port}]", "port_range": 5}

    def settings(ip_mcast: str) -> StackSettings:
        return load_settings(
            "udp",
            "fast",
            protocols={"UDP": {**bound, "ip_mcast": ip_mcast}, "STATIC": hosts},
            discovery="STATIC",
        )

    async with group(settings("auto"), "a", "b") as (a, _b):
        assert size(a) == 2
    with pytest.raises(ConfigError, match=r"^ip_mcast is always, and nobody is reached by .*auto$"):
        await Channel(ChannelConfig(settings=settings("always"))).connect()


@on_a_loop
async def test_a_list_of_the_other_family_is_refused() -> None:
    settings = tcp(STATIC={"initial_hosts": "::1[7800]"})
    with pytest.raises(
        ConfigError, match="initial_hosts has ::1, and an IPv4 address is bound; list addresses"
    ):
        await Channel(ChannelConfig(settings=settings)).connect()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": 5}, "name is of type int: write a str"),
        ({"name": b"a"}, "name is of type bytes: write a str"),
        ({"cluster": None}, "cluster is of type NoneType: write a str"),
        ({"settings": "udp"}, "settings is of type str: write what load_settings(…) returns"),
        ({"journal": "journals"}, "journal is of type str: write a JournalConfig, or None"),
        ({"on_notice": "print"}, "on_notice is of type str: write a function, or None"),
        ({"key_file": True}, "key_file is of type bool: write the path of a file, a str"),
    ],
)
def test_a_setting_of_another_type_is_refused_when_it_is_made(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        ChannelConfig(**given)
    assert str(error.value) == said


@on_a_loop
async def test_what_is_no_config_no_time_and_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^config is of type StackSettings: write a Channel"):
        Channel(udp())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^journal.directory is of type str: write a pathlib"):
        JournalConfig(directory="journals")  # type: ignore[arg-type]
    async with group(udp(), "a") as (a,):
        for timeout in ("x", None, -1, float("nan")):
            with pytest.raises(ConfigError, match=r"^timeout is .*: write .* seconds"):
                await a.leave(timeout=timeout)  # type: ignore[arg-type]
        assert a.state == "connected"
        with pytest.raises(ConfigError, match=r"^dest is of type str: write an Address"):
            a.meet("b")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"^name is of type int: write the name of a sett"):
            a.set_attribute(5, "1s")  # type: ignore[arg-type]


@kinds
@on_a_loop
async def test_a_publication_is_try_send_with_the_way_looked_up_before(kind: str) -> None:
    """Plain messages, flags in between, and more than the outbox takes: all arrive in order."""
    async with group(KINDS[kind](), "a", "b") as (a, b):
        got: list[bytes] = []
        b.on_message = lambda payload, _sender: got.append(bytes(payload))
        to_b = a.publication(b.address)
        sent = []
        for number in range(3000):
            payload = number.to_bytes(4, "big") + bytes(4000)
            if not to_b.offer(payload, DONT_BUNDLE if number % 1000 == 7 else 0):
                await a.send(b.address, payload)
            sent.append(payload)
        await until(lambda: len(got) >= len(sent), "all have arrived")
        assert got == sent


@on_a_loop
async def test_a_publication_refuses_when_the_outbox_is_full_and_raises_when_closed() -> None:
    async with group(udp(), "a") as (a,):
        everyone = a.publication(None)
        payload = bytes(60_000)
        taken = 0
        while everyone.offer(payload):
            taken += 1
            assert taken < 1000
        assert taken == a.runtime.stack.settings.outbox_bytes // (len(payload) + 64)
    with pytest.raises(ClosedError):
        everyone.offer(b"late")
    with pytest.raises(ClosedError):
        a.publication(None)


@on_a_loop
async def test_a_member_promises_no_more_than_real_time_lets_it_keep(tmp_path: Path) -> None:
    """Its trace begins with bounds that allow for turns which are late."""
    settings = udp("unicast-only")
    async with group(settings, "a", journal=JournalConfig(directory=tmp_path)):
        pass
    ((_label, trace),) = read_traces(tmp_path).items()
    first = next(read_blocks_untrusted(trace, xxh3_64_intdigest))
    _name, _identity, said = first.text(first.events[0]).split(" ", 2)
    promised = json.loads(said)["bounds"]
    assert promised["ack_within"] == settings.unicast_config.xmit_interval + LATENESS
