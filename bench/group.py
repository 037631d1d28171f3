"""`stormcast bench core`, the group's part: N full stacks in memory, all of them multicast.

The complete stack: fragmentation, flow control, membership, stability, failure detection, integrity
and trace on. One `try_send` per message with distinct payloads made beforehand; every receiver
touches each message. The figure is deliveries per second, without those to the sender itself,
through all stacks together on one core; its ratio is to the bare unicast figure of the same run.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from xxhash import xxh3_64_intdigest

from bench.rounds import Rounds
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import GROUP
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

TURN: Final = 1024
"""Messages a sender hands over between two turns of its stack."""
STEP: Final = 1e-4
"""Virtual seconds of a turn."""
PATIENCE: Final = 100_000
"""Turns without a delivery after which the group is stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigure(Rounds):
    """One size and number of members, several rounds."""

    size: int
    members: int
    stack: str


class Members:
    """Stacks of one view that hand each other their frames."""

    def __init__(self, number: int, settings: StackSettings) -> None:
        self.trace_bytes = 0
        self.now = 0.0
        self.stacks = [self._stack(place, settings) for place in range(1, number + 1)]
        self._by_short = {stack.address.short: stack for stack in self.stacks}
        addresses = tuple(stack.address for stack in self.stacks)
        view = View(ViewId(1, addresses[0]), addresses)
        for stack in self.stacks:
            # Installed here: forming the group is not what is measured.
            stack.install_view(view, 0.0)

    def _stack(self, number: int, settings: StackSettings) -> Stack:
        address = Address(number << 64 | number, f"n{number}")
        tracer = Tracer(number, 0, xxh3_64_intdigest, self._take_block)
        return Stack(address, "bench", settings, xxh3_64_intdigest, tracer, 0.0)

    def _take_block(self, block: bytes) -> None:
        self.trace_bytes += len(block)

    def turn(self) -> int:
        """Let every stack take a turn; return how many messages of others were touched."""
        self.now += STEP
        now = self.now
        touched = 0
        for stack in self.stacks:
            if stack.next_deadline() <= now:
                stack.tick(now)
            for dest, head, body in stack.end_turn(now):
                frame = head + body
                if dest > 0:
                    self._by_short[dest].receive(frame, now)
                    continue
                for other in self.stacks:
                    if other is not stack:
                        other.receive(frame, now)
            me = stack.address.short
            for delivery in stack.take_deliveries():
                is_other = delivery.source != me
                for message in delivery:
                    touched += is_other and bool(message)
        return touched


def measure(
    members: int, size: int, messages: int, rounds: int, stack: str = "udp", timing: str = "fast"
) -> GroupFigure:
    """Have each of `members` multicast its share of `messages`, `rounds` times, after one round to
    warm up."""
    payloads = [
        number.to_bytes(8, "big") * (size // 8) + bytes(size % 8) for number in range(messages)
    ]
    settings = load_settings(stack, timing)
    rates = [_round(members, payloads, settings) for _ in range(rounds + 1)]
    return GroupFigure(size=size, members=members, stack=stack, rounds=tuple(rates[1:]))


def _round(members: int, payloads: list[bytes], settings: StackSettings) -> float:
    group = Members(members, settings)
    share = len(payloads) // members
    wanted = share * members * (members - 1)
    touched = 0
    gc.collect()
    began = perf_counter()
    for start in range(0, share, TURN):
        end = min(start + TURN, share)
        for place, stack in enumerate(group.stacks):
            try_send = stack.try_send
            for payload in payloads[place * share + start : place * share + end]:
                while not try_send(GROUP, payload):
                    touched += group.turn()
        touched += group.turn()
    idle = 0
    while touched < wanted:
        got = group.turn()
        touched += got
        idle = 0 if got else idle + 1
        assert idle < PATIENCE, f"stuck: {touched} of {wanted} deliveries"
    seconds = perf_counter() - began
    assert touched == wanted
    return touched / seconds
