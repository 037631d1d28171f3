"""`stormcast bench core`: two full stacks in memory, send to purge, on one core.

One `try_send` per message with distinct payloads made beforehand, integrity and trace on, the
receiver touches each message. The figure is messages per second through both stacks together.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Final

from xxhash import xxh3_64_intdigest

from bench.rounds import Rounds
from stormcast.node.core.model import Address
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

TURN: Final = 2048
"""Messages the sender hands over between two turns of its stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreFigure(Rounds):
    """One size, several rounds."""

    size: int


class Pair:
    """A sender and a receiver that hand each other their frames."""

    def __init__(self, settings: StackSettings) -> None:
        self.trace_bytes = 0
        self.sender = self._stack(1, "a", settings)
        self.receiver = self._stack(2, "b", settings)
        self.now = 0.0

    def _stack(self, number: int, name: str, settings: StackSettings) -> Stack:
        address = Address(number << 64 | number, name)
        tracer = Tracer(number, 0, xxh3_64_intdigest, self._take_block)
        return Stack(address, "bench", settings, xxh3_64_intdigest, tracer, 0.0)

    def _take_block(self, block: bytes) -> None:
        self.trace_bytes += len(block)

    def turn(self) -> int:
        """Let both stacks take a turn; return how many messages the receiver touched."""
        self.now += 1e-4
        now = self.now
        receiver, sender = self.receiver, self.sender
        for _dest, head, body in sender.end_turn(now):
            receiver.receive(head + body, now)
        touched = 0
        for delivery in receiver.take_deliveries():
            for message in delivery:
                touched += message[0] is not None
        if receiver.next_deadline() <= now:
            receiver.tick(now)
        for _dest, head, body in receiver.end_turn(now):
            sender.receive(head + body, now)
        if sender.next_deadline() <= now:
            sender.tick(now)
        return touched


def measure(
    size: int, messages: int, rounds: int, unicast: str = "UNICAST3-SYNC", timing: str = "fast"
) -> CoreFigure:
    """Send `messages` messages of `size` bytes, `rounds` times, after one round to warm up."""
    payloads = [
        number.to_bytes(8, "big") * (size // 8) + bytes(size % 8) for number in range(messages)
    ]
    return CoreFigure(
        size=size, rounds=tuple([_round(payloads, unicast, timing) for _ in range(rounds + 1)][1:])
    )


def _round(payloads: list[bytes], unicast: str, timing: str) -> float:
    pair = Pair(load_settings(timing=timing, unicast=unicast))
    dest = pair.receiver.address.short
    try_send = pair.sender.try_send
    messages = len(payloads)
    touched = 0
    gc.collect()
    began = perf_counter()
    for start in range(0, messages, TURN):
        for payload in payloads[start : start + TURN]:
            while not try_send(dest, payload):
                touched += pair.turn()
        touched += pair.turn()
    while touched < messages or pair.sender.unicast.send_connections()[dest].window.bytes:
        touched += pair.turn()
        assert pair.now < inf
    seconds = perf_counter() - began
    assert touched == messages
    return messages / seconds
