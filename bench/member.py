"""One member of ours that is measured, through the public API.

Lines on stdin say what to do, and each is answered by one JSON line, as with every program in the
comparison. One call per message, distinct payloads that were made before the clock starts, every
message touched by its receiver; integrity and journal are on.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from bench.payloads import LOAD, REPLY, REQUEST, make_pool, request
from bench.percentiles import percentiles
from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.core.model import Address, Delivery, View
from stormcast.node.member.member import tune_collector
from stormcast.node.protocols.testing import DelayConfig
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.trace.journal import JournalConfig

BURST: Final = 2048
BURST_BYTES: Final = 768 << 10
"""Bytes of messages between two looks at the network, and at most BURST messages: fewer cost more
turns, more let others wait."""
REPLY_SECONDS: Final = 60.0
"""How long the last reply is waited for: under loss it may take a few repairs."""
JOURNAL_BYTES: Final = 16 << 30
"""More than a run writes: a journal that dropped something could not be judged."""

Answer = dict[str, Any]


class BenchMember:
    """A member, and the traffic that it makes."""

    def __init__(self, words: dict[str, Any], channel: Channel) -> None:
        self._channel = channel
        self._members: int = words["members"]
        self._wanted_burst: int = words["burst"]
        self._burst = BURST
        self._profile = words["profile"]
        self._pool: list[bytes] = []
        self._at = 0
        self._is_running = False
        self._sent = 0
        self._delivered = 0
        self._on_reply: Callable[[int], None] = _ignore
        self._is_full = asyncio.Event()
        channel.on_view = self._on_view
        channel.on_batch = self._on_batch

    async def wait_for_all(self) -> None:
        """Wait until the view has all members."""
        await self._is_full.wait()

    def _on_view(self, view: View) -> None:
        if len(view.members) >= self._members:
            self._is_full.set()

    def _on_batch(self, delivery: Delivery) -> None:
        for message in delivery:
            # Touched here: the first byte is the message's kind, which is nearly always LOAD.
            if message[0] != LOAD:
                self._answer(delivery.source, bytes(message))
                return
        self._delivered += len(delivery)

    def _answer(self, source: int, message: bytes) -> None:
        """Answer a request, or take a reply: either travels alone."""
        if message[0] == REQUEST:
            self._channel.try_send(source, REPLY + message[1:])
        else:
            self._on_reply(message[1])

    async def obey(self, words: list[str]) -> Answer:  # noqa: PLR0911 one per command
        """Do what a command says; return the answer."""
        match words:
            case ["prepare", size]:
                return self._prepare(int(size))
            case ["multicast", seconds]:
                return await self._load(None, float(seconds))
            case ["unicast", seconds, name]:
                return await self._load(self._channel.member(name), float(seconds))
            case ["listen", seconds]:
                return await self._hear(float(seconds))
            case ["roundtrip", seconds, name]:
                return await self._round_trips(self._channel.member(name), float(seconds))
            case ["total"]:
                return {"sent": self._sent, "delivered": self._delivered}
            case ["stats"]:
                return {"stats": self._channel.stats()}
        return {"error": f"unknown command {' '.join(words)}"}

    def _prepare(self, size: int) -> Answer:
        self._pool = make_pool(size, self._channel.address.short)
        self._at = 0
        self._burst = self._wanted_burst or max(1, min(BURST, BURST_BYTES // size))
        # As a member process does when it starts; the pool, too, lives as long as the process.
        tune_collector()
        return {"prepared": size, "payloads": len(self._pool)}

    async def _load(self, dest: Address | None, seconds: float) -> Answer:
        """Send as fast as the channel takes messages, while they are counted."""
        before = self._sent
        self._is_running = True
        with self._profiled():
            sending = asyncio.create_task(self._send(dest))
            figures = await self._listen(seconds, before)
            self._is_running = False
            await sending
        return figures

    async def _hear(self, seconds: float) -> Answer:
        """Count what others send."""
        with self._profiled():
            return await self._listen(seconds, self._sent)

    async def _send(self, dest: Address | None) -> None:
        channel, pool, burst = self._channel, self._pool, self._burst
        offer, at = channel.publication(dest).offer, self._at
        while self._is_running:
            chunk = pool[at : at + burst]
            for payload in chunk:
                if not offer(payload):
                    await channel.send(dest, payload)
            # Counted by the burst: a counter of its own per message would be part of the figure.
            self._sent += len(chunk)
            at = at + burst if at + burst < len(pool) else 0
            await asyncio.sleep(0)
        self._at = at

    async def _listen(self, seconds: float, sent: int) -> Answer:
        """Count the messages that arrive within `seconds` from now."""
        before, began = self._delivered, monotonic()
        await asyncio.sleep(seconds)
        arrived, took = self._delivered - before, monotonic() - began
        return {"seconds": took, "sent": self._sent - sent, "delivered": arrived}

    async def _round_trips(self, dest: Address, seconds: float) -> Answer:
        """Send one request at a time; the next leaves when the answer is there."""
        took: list[float] = []
        done = asyncio.get_running_loop().create_future()
        try_send, size = self._channel.try_send, len(self._pool[0])
        number, start = 0, 0.0
        began = monotonic()
        end = began + seconds
        payload = request(size, number)

        def ask() -> None:
            nonlocal payload, start
            payload = request(size, number)
            start = monotonic()
            try_send(dest, payload)

        def on_reply(answered: int) -> None:
            nonlocal number
            now = monotonic()
            if answered != number & 0xFF:
                return
            # An answer after the end does not count: under loss the last one may take long.
            if now > end:
                done.set_result(now)
                self._on_reply = _ignore
                return
            took.append(now - start)
            number += 1
            ask()

        self._on_reply = on_reply
        with self._profiled():
            ask()
            try:
                await asyncio.wait_for(done, seconds + REPLY_SECONDS)
            except TimeoutError:
                return {"error": f"request {number} was never answered"}
        return {"seconds": seconds, "count": len(took), **percentiles(took)}

    @contextmanager
    def _profiled(self) -> Iterator[None]:
        """Write a profile of this round, if one is asked for; the next round's replaces it."""
        if not self._profile:
            yield
            return
        profile = cProfile.Profile()
        profile.enable()
        try:
            yield
        finally:
            profile.disable()
            profile.dump_stats(self._profile)


def _ignore(_number: int) -> None:
    """Ignore a reply that nobody waits for any more."""


def settings_of(words: dict[str, Any]) -> StackSettings:
    """Return the stack of this member; DELAY above the transport makes half of a delay each way."""
    settings = load_settings(words["stack"], words["timing"], protocols=words["protocols"])
    if not words["delay"]:
        return settings
    delay = DelayConfig(delay=words["delay"] / 2, keep_order=True)
    *upper, transport = settings.layers
    return replace(settings, layers=(*upper, ("DELAY", delay), transport))


async def serve(words: dict[str, Any]) -> None:
    """Join, and obey commands until stdin ends."""
    config = ChannelConfig(
        cluster="bench",
        name=words["name"],
        settings=settings_of(words),
        journal=JournalConfig(directory=Path(words["journal"]), limit_bytes=JOURNAL_BYTES),
        key_file=words["key_file"],
    )
    channel = Channel(config)
    member = BenchMember(words, channel)
    await channel.connect()
    say({"joined": True})
    await member.wait_for_all()
    say({"ready": True})
    lines = await stdin_lines()
    while line := await lines.readline():
        say(await member.obey(line.decode().split()))
    await channel.close()


async def stdin_lines() -> asyncio.StreamReader:
    """Return a reader of stdin that does not block the event loop."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader


def say(answer: Answer) -> None:
    """Answer in one line."""
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
