"""What a member sent before it leaves: all that stay get it, or the sender is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.core.errors import ClosedError, NodeError
from stormcast.node.core.model import DONT_BUNDLE
from stormcast.node.core.wire import GROUP
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.stack import before_leaving
from stormcast.node.trace.journal import JournalConfig
from tests.helpers.station import on_a_loop, until

PORTS = count(19_700)
MESSAGES = 100


def settings(stack: str) -> StackSettings:
    number = next(PORTS)
    bound = {
        "bind_addr": "127.0.0.1",
        "mcast_addr": f"239.79.{number % 250}.1",
        "mcast_port": number,
    }
    return load_settings(stack, "fast", protocols={"UDP": bound})


def on_tcp() -> StackSettings:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bound = {"bind_addr": "127.0.0.1", "bind_port": port}
    hosts = {"initial_hosts": f"127.0.0.1[{port}]"}
    return load_settings("tcp", "fast", protocols={"TCP": bound, "STATIC": hosts})


def channel(
    name: str, stack: StackSettings, say: Callable[[str], None] = lambda _line: None
) -> Channel:
    return Channel(ChannelConfig(settings=stack, name=name, cluster="leaving", on_notice=say))


@pytest.mark.parametrize("stack", ["udp", "mcast"])
@on_a_loop
async def test_multicasts_that_were_lost_are_repaired_before_their_sender_leaves(
    stack: str,
) -> None:
    shared = settings(stack)
    stays, leaves = channel("b", shared), channel("a", shared)
    got: list[bytes] = []
    told: list[object] = []
    stays.on_message = lambda payload, _sender: got.append(bytes(payload))
    leaves.on_message = lambda *_: None
    leaves.on_abandoned = lambda *what: told.append(what)
    async with stays:
        async with leaves:
            await until(lambda: stays.view is not None and len(stays.view.members) == 2)
            loses = stays.runtime.stack
            loses.set_test_protocol("DISCARD", {"up": 0.3}, stays.runtime.now())
            for number in range(MESSAGES):
                # Each in a frame of its own: some of a hundred are lost for certain.
                await leaves.send(None, b"%d" % number, DONT_BUNDLE)
        assert got == [b"%d" % number for number in range(MESSAGES)]
    assert told == []


@pytest.mark.parametrize("stack", ["udp", "mcast"])
@on_a_loop
async def test_of_multicasts_that_nobody_confirms_the_leaver_is_told(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application of the other member takes nothing."""
    monkeypatch.setattr(before_leaving, "CONFIRM_SECONDS", 0.3)
    shared = settings(stack)
    said: list[str] = []
    stays, leaves = channel("b", shared), channel("a", shared, said.append)
    told: list[tuple[int, str]] = []
    leaves.on_message = lambda *_: None
    leaves.on_abandoned = lambda _dest, number, why: told.append((number, why))
    async with stays:
        async with leaves:
            await until(lambda: stays.view is not None and len(stays.view.members) == 2)
            stays.runtime.set_consuming(False)
            for number in range(10):
                await leaves.send(None, b"%d" % number)
        assert told == [(10, "stop")]
        (line,) = [line for line in said if "given up" in line]
        assert line.startswith("10 messages to the group were given up: stop")
        stays.runtime.set_consuming(True)


@on_a_loop
async def test_a_member_that_closes_without_leaving_is_told_what_is_not_confirmed() -> None:
    shared = settings("udp")
    stays, closes = channel("b", shared), channel("a", shared)
    told: list[tuple[object, int, str]] = []
    closes.on_message = stays.on_message = lambda *_: None
    closes.on_abandoned = lambda *what: told.append(what)
    async with stays:
        await closes.connect()
        await until(lambda: stays.view is not None and len(stays.view.members) == 2)
        stays.runtime.stack.set_test_protocol("DISCARD", {"up": 1.0}, stays.runtime.now())
        for number in range(10):
            await closes.send(None, b"%d" % number)
        await closes.close()
    assert sum(number for _dest, number, why in told if why == "stop") == 10
    assert {dest for dest, _number, _why in told} <= {None, GROUP}
    assert closes.stats()["stack.abandoned.stop"] == 10


@pytest.mark.parametrize("stack", ["udp", "tcp"])
@on_a_loop
async def test_figures_and_places_can_be_asked_for_before_during_and_after_a_life(
    stack: str, tmp_path: Path
) -> None:
    one = Channel(
        ChannelConfig(
            settings=on_tcp() if stack == "tcp" else settings(stack),
            name="a",
            cluster="leaving",
            journal=JournalConfig(directory=tmp_path),
        )
    )
    assert one.stats() == {"runtime.turns": 0}
    assert one.runtime.describe() == []
    async with one:
        assert any(line.startswith(f"{stack} 127.0.0.1[") for line in one.runtime.describe())
        while_open = one.stats()
    assert set(one.stats()) == set(while_open)
    assert one.stats()["runtime.turns"] >= while_open["runtime.turns"] > 0
    assert [line.split()[0] for line in one.runtime.describe()] == ["journal"]


@on_a_loop
async def test_whoever_is_told_that_a_message_was_given_up_finds_it_in_the_figures() -> None:
    closes = channel("a", settings("udp"))
    found: list[float] = []
    closes.on_message = lambda *_: None
    closes.on_abandoned = lambda *_: found.append(closes.stats()["stack.abandoned.stop"])
    stays = channel("b", closes.config.settings)
    stays.on_message = lambda *_: None
    async with stays:
        await closes.connect()
        await until(lambda: stays.view is not None and len(stays.view.members) == 2)
        stays.runtime.stack.set_test_protocol("DISCARD", {"up": 1.0}, stays.runtime.now())
        await closes.send(None, b"lost")
        await closes.close()
    assert found == [1]


@on_a_loop
async def test_a_member_that_could_not_start_has_figures_and_nothing_bound(tmp_path: Path) -> None:
    """Its sockets are open when its journal finds no place."""
    (tmp_path / "file").write_text("")
    config = ChannelConfig(
        settings=settings("udp"), name="a", journal=JournalConfig(directory=tmp_path / "file")
    )
    one = Channel(config)
    with pytest.raises((NodeError, OSError)):
        await one.connect()
    assert one.stats() == {"runtime.turns": 0}
    assert one.runtime.describe() == []


# -- Ends that are disturbed -----------------------------------------------------------------------


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("stack", ["udp", "tcp"])
@on_a_loop
async def test_a_close_that_is_cancelled_goes_on_to_its_end(stack: str) -> None:
    shared = settings(stack) if stack == "udp" else on_tcp()
    stays, one = channel("b", shared), channel("a", shared)
    stays.on_message = lambda *_: None
    await stays.connect()
    before = descriptors()
    await one.connect()
    await until(lambda: stays.view is not None and len(stays.view.members) == 2)

    async def read() -> None:
        async for _ in one:
            pass

    reader = asyncio.create_task(read())
    closing = asyncio.create_task(one.close())
    await asyncio.sleep(0)
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    await one.close()
    async with asyncio.timeout(5.0):
        await reader
    await stays.close()
    await until(lambda: descriptors() < before)


@on_a_loop
async def test_who_calls_leave_once_more_waits_until_it_is_over() -> None:
    shared = settings("udp")
    stays, leaves = channel("b", shared), channel("a", shared)
    stays.on_message = leaves.on_message = lambda *_: None
    async with stays:
        async with leaves:
            leaves.try_send("b", b"x" * 1000)
            first = asyncio.create_task(leaves.leave())
            await asyncio.sleep(0)
        assert leaves.state == "closed"
        await first


@on_a_loop
async def test_nothing_is_sent_while_a_member_leaves() -> None:
    """A producer that goes on would keep it for ever."""
    shared = settings("udp")
    stays, leaves = channel("b", shared), channel("a", shared)
    stays.on_message = leaves.on_message = lambda *_: None

    async def produce() -> None:
        while True:
            await leaves.send(None, b"tick")
            await asyncio.sleep(0)

    async with stays:
        await leaves.connect()
        producer = asyncio.create_task(produce())
        await asyncio.sleep(0.1)
        await leaves.leave()
        with pytest.raises(ClosedError, match="a is leaving"):
            await producer


@on_a_loop
async def test_a_view_may_be_released_after_it_was_sent() -> None:
    shared = settings("udp")
    stays, sends = channel("b", shared), channel("a", shared)
    got: list[bytes] = []
    stays.on_message = lambda payload, _sender: got.append(bytes(payload))
    async with stays, sends:
        with memoryview(b"hello") as part:
            await sends.send("b", part)
        await until(lambda: got == [b"hello"])
