"""The sliding windows: traffic in order, a sender that is acked, and a gap that is filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.micro.measure import Work
from stormcast.node.core.window import ReceiveWindow, SendWindow

BATCHES: Final = 20_000
MESSAGES: Final = 100
SIZE: Final = MESSAGES * 100
CAPACITY: Final = 1 << 20
CAPACITY_BYTES: Final = 1 << 34
ACK_EVERY: Final = 10
"""Batches that one ack covers."""
GAP_BEHIND: Final = 100
"""Batches that arrive while the first one is missing."""


def receive_in_order() -> Callable[[], None]:
    """Return work that adds and takes each batch at once: the fast path of every receiver."""
    window: ReceiveWindow[int] = ReceiveWindow(0, CAPACITY, CAPACITY_BYTES)

    def run() -> None:
        add, take_ready = window.add, window.take_ready
        for lo in range(1, BATCHES * MESSAGES, MESSAGES):
            add(lo, lo + MESSAGES - 1, SIZE, lo)
            take_ready()
        assert window.delivered == BATCHES * MESSAGES

    return run


def receive_behind_gaps() -> Callable[[], None]:
    """Return work in which one batch of each hundred comes last: the others wait behind it, then
    all leave at once."""
    window: ReceiveWindow[int] = ReceiveWindow(0, CAPACITY, CAPACITY_BYTES)
    stride = GAP_BEHIND * MESSAGES

    def run() -> None:
        add, take_ready, missing = window.add, window.take_ready, window.missing
        for first in range(1, BATCHES * MESSAGES, stride):
            for lo in range(first + MESSAGES, first + stride, MESSAGES):
                add(lo, lo + MESSAGES - 1, SIZE, lo)
            assert missing(CAPACITY) == [(first, first + MESSAGES - 1)]
            add(first, first + MESSAGES - 1, SIZE, first)
            take_ready()
        assert window.delivered == BATCHES * MESSAGES

    return run


def send_and_ack() -> Callable[[], None]:
    """Return work that numbers and keeps batches; an ack for each ten of them purges them."""
    window: SendWindow[int] = SendWindow(CAPACITY, CAPACITY_BYTES)

    def run() -> None:
        append, ack = window.append, window.ack
        for number in range(1, BATCHES + 1):
            append(MESSAGES, SIZE, number)
            if number % ACK_EVERY == 0:
                ack(number * MESSAGES)
        assert window.low == window.high == BATCHES * MESSAGES

    return run


WORKS: Final = tuple(
    Work(name=name, batches=BATCHES, messages=MESSAGES, prepare=prepare)
    for name, prepare in (
        ("window: receive in order", receive_in_order),
        ("window: receive behind gaps", receive_behind_gaps),
        ("window: send and ack", send_and_ack),
    )
)
