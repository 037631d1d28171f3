"""A program that takes no messages: it hears why senders wait, and loses nothing when it ends."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.inbox import UNREAD
from stormcast.node.settings import load_settings
from tests.helpers.station import on_a_loop, until

PORTS = count(19_900)
PAYLOAD = bytes(20_000)


def unread(*names: str, notices: list[str] | None = None) -> list[Channel]:
    number = next(PORTS)
    bound = {
        "bind_addr": "127.0.0.1",
        "mcast_addr": f"239.81.{number % 250}.1",
        "mcast_port": number,
    }
    settings = load_settings("udp", "fast", protocols={"UDP": bound})
    say = notices.append if notices is not None else None
    return [
        Channel(ChannelConfig(settings=settings, cluster=f"u{number}", name=one, on_notice=say))
        for one in names
    ]


async def publish_until_stalled(channel: Channel) -> int:
    """Multicast until the own inbox is full and the outbox, too; return how many were accepted."""
    number = refusals = 0
    while refusals < 20:
        if channel.try_send(None, PAYLOAD):
            number, refusals = number + 1, 0
        else:
            refusals += channel._inbox.is_stalled
            await asyncio.sleep(0.005)
    return number


@pytest.mark.parametrize("listens", [True, False], ids=["on_notice", "loop's handler"])
@on_a_loop
async def test_who_only_publishes_is_told_why_it_waits(listens: bool) -> None:
    notices: list[str] = []
    logged: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: logged.append(context["message"])
    )
    (a,) = unread("a", notices=notices if listens else None)
    async with a:
        sending = asyncio.ensure_future(a.send_many(None, [PAYLOAD] * 2000))
        await until(lambda: a._inbox.is_stalled)
        await asyncio.sleep(0.1)
        assert not sending.done()
        assert [line for line in notices if "nobody takes" in line] == [UNREAD] * listens
        assert logged == [f"a: {UNREAD}"] * (not listens)
        # What the line says helps.
        a.on_batch = lambda batch: None  # noqa: ARG005 as it is called
        await sending


@on_a_loop
async def test_who_leaves_with_a_full_inbox_leaves_as_fast_and_gives_up_nothing() -> None:
    a, b = unread("a", "b", notices=[])
    told: list[object] = []
    got = 0

    def take(batch: object) -> None:
        nonlocal got
        got += len(batch)  # type: ignore[arg-type]

    b.on_batch = take
    a.on_abandoned = lambda *what: told.append(what)
    async with b:
        await a.connect()
        await until(lambda: b.view is not None and len(b.view.members) == 2)
        number = await publish_until_stalled(a)
        begun = asyncio.get_running_loop().time()
        await a.leave()
        assert asyncio.get_running_loop().time() - begun < 3.0
        assert told == []
        await until(lambda: got == number)
    assert sum([len(batch) async for batch in a]) == number


@on_a_loop
async def test_who_closes_with_a_full_inbox_keeps_what_it_has_acked() -> None:
    a, b = unread("a", "b", notices=[])
    told: list[object] = []
    a.on_message = lambda *_: None
    a.on_abandoned = lambda *what: told.append(what)
    async with a:
        await b.connect()
        await until(lambda: a.view is not None and len(a.view.members) == 2)
        sending = asyncio.ensure_future(a.send_many(b.address, [PAYLOAD] * 2000))
        await until(lambda: b._inbox.is_stalled)
        await asyncio.sleep(0.3)
        window = b.runtime.stack.unicast.receive_connections()[a.address.short].window
        acked, taken = window.deliverable, sum(map(len, b._inbox._held))
        assert acked > taken
        await b.close()
        sending.cancel()
        await a.close()
        assert sum([len(batch) async for batch in b]) >= acked
