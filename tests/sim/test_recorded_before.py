"""What a stranger recorded before a member started: it has heard none of it, and must not for long
take it for new."""

from __future__ import annotations

from random import Random

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import LATE_SECONDS, Seals
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

CLUSTER = "demo"
KEYS = (ClusterKey(bytes(32)),)
B, C = Address(2, "b", "b[1]"), Address(3, "c", "c[1]")
FD_TIMEOUT = 3.0


class Speaker:
    """A member that says what it is told to."""

    def __init__(self, address: Address) -> None:
        cluster = hash64(CLUSTER.encode()) & 0xFFFFFFFF
        self._codec = Codec(cluster, address.short, hash64)
        self._seals = Seals(KEYS, cluster, address.short)
        self._beats = 0

    def beats(self) -> bytes:
        self._beats += 1
        frame = self._codec.pack_control(wire.HEARTBEAT, wire.FD_ALL3, wire.GROUP, 0, self._beats)
        ((_dest, head, body),) = self._seals.seal([(wire.GROUP, frame, b"")], self._codec)
        return head + body


class Newcomer:
    """c, which has just come into a view with b."""

    def __init__(self, stack: str = "udp") -> None:
        cluster = hash64(CLUSTER.encode()) & 0xFFFFFFFF
        tracer = Tracer(C.short, 0, hash64, lambda _block: None)
        fd = {"timeout": FD_TIMEOUT, "interval": 0.5}
        settings = load_settings(stack, "fast", protocols={"FD_ALL3": fd})
        self.now = 0.0
        self.stack = Stack(
            C, CLUSTER, settings, hash64, tracer, 0.0, dice=Random(1),
            seals=Seals(KEYS, cluster, C.short),
        )  # fmt: skip  # two lines
        self.stack.install_view(View(ViewId(1, B), (B, C)), 0.0)
        # A process that hangs keeps its connections.
        self.stack.on_link(B.short, True, 0.0)

    def hears(self, datagram: bytes) -> None:
        self.stack.receive(datagram, self.now)
        self.stack.end_turn(self.now)

    def waits(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.stack.next_deadline()) <= until:
            self.now = max(due, self.now)
            self.stack.tick(self.now)
            self.stack.end_turn(self.now)
        self.now = until

    @property
    def suspects(self) -> bool:
        assert self.stack.group is not None
        assert self.stack.group.fd_all is not None
        return bool(self.stack.group.fd_all.suspects) or self.stack.view.members == (C,)  # type: ignore[union-attr]


def test_a_dead_member_is_not_kept_alive_by_what_it_said_before_a_member_came() -> None:
    """Its first frame that c hears is a recorded one, too, so c cannot begin with the live one."""
    b, c = Speaker(B), Newcomer()
    recorded = [b.beats() for _ in range(100)]
    c.hears(recorded.pop(0))
    c.hears(b.beats())
    while not c.suspects:
        c.hears(recorded.pop(0))
        c.waits(1.0)
        assert c.now < 2 * LATE_SECONDS + 3 * FD_TIMEOUT
    assert c.now > LATE_SECONDS, "at first it is not told from what the network reordered"
    assert c.stack.record.refused["replayed"] > 0


@pytest.mark.parametrize(("stack", "is_taken"), [("tcp", True), ("tcp-nio2", True), ("udp", False)])
def test_what_waited_long_for_a_slow_connection_is_taken(stack: str, *, is_taken: bool) -> None:
    """It was sealed before a hello that another connection brought at once."""
    b, c = Speaker(B), Newcomer(stack)
    c.hears(b.beats())
    waiting = b.beats()
    c.hears(b.beats())
    c.waits(2 * LATE_SECONDS + 1.0)
    assert not c.stack.record.refused.get("replayed")
    c.hears(waiting)
    assert (not c.stack.record.refused.get("replayed")) is is_taken
