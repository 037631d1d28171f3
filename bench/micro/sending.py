"""The cost of a message at the API: each way to hand one over, while the outbox has room. A batch
is a message here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import finalize

from bench.micro.measure import Work
from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.settings import load_settings

MESSAGES: Final = 20_000
SIZE: Final = 100


def _open() -> tuple[asyncio.Runner, Channel]:
    """Open a member alone on loopback; its event loop stands still while a round is timed."""
    runner = asyncio.Runner()
    settings = load_settings("udp", "fast", protocols={"UDP": {"bind_addr": "127.0.0.1"}})
    channel = runner.run(_connect(ChannelConfig(settings=settings, cluster="micro")))
    return runner, channel


async def _connect(config: ChannelConfig) -> Channel:
    channel = Channel(config)
    await channel.connect()
    return channel


def _close(runner: asyncio.Runner, channel: Channel) -> None:
    runner.run(channel.close())
    runner.close()


def by_try_send() -> Callable[[], None]:
    """Return work that calls `channel.try_send(None, payload)`."""
    runner, channel = _open()
    payloads = [number.to_bytes(4, "big") + bytes(SIZE - 4) for number in range(MESSAGES)]

    def run() -> None:
        try_send = channel.try_send
        for payload in payloads:
            try_send(None, payload)

    finalize(run, _close, runner, channel)
    return run


def by_publication() -> Callable[[], None]:
    """Return work that calls `channel.publication(None).offer(payload)`."""
    runner, channel = _open()
    payloads = [number.to_bytes(4, "big") + bytes(SIZE - 4) for number in range(MESSAGES)]

    def run() -> None:
        offer = channel.publication(None).offer
        for payload in payloads:
            offer(payload)

    finalize(run, _close, runner, channel)
    return run


WORKS: Final = tuple(
    Work(name=name, batches=MESSAGES, messages=0, prepare=partial(prepare))
    for name, prepare in (
        ("a message by try_send", by_try_send),
        ("a message by publication", by_publication),
    )
)
