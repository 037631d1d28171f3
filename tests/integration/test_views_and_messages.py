"""What an application is told of views, among the messages: a newcomer's come after its view."""

from __future__ import annotations

import asyncio
from itertools import count

from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Payload
from stormcast.node.settings import load_settings
from tests.helpers.station import on_a_loop, until

PORTS = count(19_850)


class Views:
    """Loses the frames with views on their way to a member."""

    def __init__(self, channel: Channel) -> None:
        self.is_lossy = True
        self.lost = 0
        self._codec = channel.runtime.stack._port.codec
        self._receive = channel.runtime.receive
        channel.runtime.receive = self.receive  # type: ignore[method-assign]

    def receive(self, datagram: memoryview, now: float) -> int:
        if self.is_lossy and self._has_view(datagram):
            self.lost += 1
            return 0
        return self._receive(datagram, now)

    def _has_view(self, datagram: Payload) -> bool:
        at = 0
        try:
            while at < len(datagram):
                head, _body = self._codec.unpack_untrusted(datagram, at)
                at += wire.HEAD_SIZE + head.size
                if head.protocol == wire.GMS and head.kind == wire.VIEW:
                    return True
        except BadFrame:
            pass
        return False


def group(*names: str) -> list[Channel]:
    number = next(PORTS)
    bound = {
        "bind_addr": "127.0.0.1",
        "mcast_addr": f"239.80.{number % 250}.1",
        "mcast_port": number,
    }
    settings = load_settings("udp", "fast", protocols={"UDP": bound})
    cluster = f"views{number}"
    return [Channel(ChannelConfig(settings=settings, cluster=cluster, name=one)) for one in names]


@on_a_loop
async def test_a_newcomers_early_multicast_comes_after_the_view_that_lets_it_in() -> None:
    """The view to c is lost and repeated, and what b multicasts is there before it."""
    a, b, c = group("a", "b", "c")
    a.on_message = b.on_message = lambda *_: None
    told: list[object] = []
    async with a, c:
        await until(lambda: c.view is not None and len(c.view.members) == 2)
        c.on_message = lambda payload, sender: told.append((bytes(payload), sender))
        c.on_view = lambda view: told.append([member.name for member in view.members])
        views = Views(c)
        async with b:
            await b.send(None, b"hi")
            await until(lambda: views.lost)
            await asyncio.sleep(0.05)
            assert told == []
            views.is_lossy = False
            await until(lambda: len(told) == 2)
            assert told == [["a", "c", "b"], (b"hi", b.address)]
