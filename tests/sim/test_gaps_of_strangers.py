"""A member asks a stranger for what was lost, though it may send no more frames than it hears."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

A, B = Address(1, "A"), Address(2, "B")
WAY = 0.001
"""Seconds that a frame is under way."""


class Meeting:
    """A, which is in no group, sends to B, which is in one of its own."""

    def __init__(self, generation: str, timing: str) -> None:
        self.now = 0.0
        self.got: list[bytes] = []
        self.lost = 0
        self._under_way: list[tuple[float, Stack, bytes]] = []
        self.a = self._stack(A, load_settings(timing=timing, unicast=generation))
        self.b = self._stack(B, load_settings("udp", timing=timing, unicast=generation))
        self.b.install_view(View(ViewId(1, B), (B,)), 0.0)
        self.b.end_turn(0.0)

    @staticmethod
    def _stack(me: Address, settings: StackSettings) -> Stack:
        tracer = Tracer(me.short, 0, hash64, lambda _block: None)
        return Stack(me, "test", settings, hash64, tracer, 0.0)

    def say(self, payload: bytes, then: float) -> None:
        """A sends, and time passes."""
        assert self.a.try_send(B.short, payload)
        self._turn(self.a)
        self.run(then)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self._next()) <= end:
            self.now = max(self.now, due)
            arrived = [one for one in self._under_way if one[0] <= self.now]
            self._under_way = [one for one in self._under_way if one[0] > self.now]
            for _at, stack, frame in arrived:
                stack.receive(frame, self.now)
            for stack in (self.a, self.b):
                if stack.next_deadline() <= self.now:
                    stack.tick(self.now)
                self._turn(stack)
        self.now = end

    def _next(self) -> float:
        return min(
            self.a.next_deadline(),
            self.b.next_deadline(),
            *(at for at, _stack, _frame in self._under_way[:1]),
        )

    def _turn(self, stack: Stack) -> None:
        for dest, head, body in stack.end_turn(self.now):
            other = self.b if stack is self.a else self.a
            if dest == other.address.short and not self._is_lost(head):
                self._under_way.append((self.now + WAY, other, head + body))
        for delivery in stack.take_deliveries():
            self.got += map(bytes, delivery)

    def _is_lost(self, head: bytes) -> bool:
        """The network loses the second message of A, once."""
        fields = wire.Head._make(wire.HEAD_STRUCT.unpack(head[: wire.HEAD_SIZE]))
        is_lost = not self.lost and fields.kind == wire.DATA and fields.lo == 2
        self.lost += is_lost
        return is_lost


@pytest.mark.parametrize("gap", [0.003, 0.7])
@pytest.mark.parametrize("timing", ["compatible", "fast"])
@pytest.mark.parametrize("generation", ["UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4"])
def test_one_lost_message_of_a_stranger_is_repaired(
    generation: str, timing: str, gap: float
) -> None:
    """Each repeat of A lets B send one frame. An ack that says nothing new would be that frame, and
    B could never ask."""
    meeting = Meeting(generation, timing)
    for payload in (b"1", b"2", b"3"):
        meeting.say(payload, then=gap)
    meeting.run(60.0)
    assert meeting.lost == 1
    assert meeting.got == [b"1", b"2", b"3"]
