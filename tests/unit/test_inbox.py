"""Messages for the application: handed to its callback, or held until it asks."""

from __future__ import annotations

import asyncio
import tracemalloc

from stormcast.node.core.model import Delivery, View, ViewId
from stormcast.node.inbox import HELD_BYTES, Inbox
from stormcast.node.known_members import KnownMembers
from stormcast.node.turns import Turns
from tests.helpers.channel import address, delivery
from tests.helpers.station import on_a_loop

A = address("a")


class Reader:
    """An inbox, and all that it does."""

    def __init__(self) -> None:
        self.turns = Turns(lambda: 0.0)
        self.members = KnownMembers()
        self.failures: list[BaseException] = []
        self.consuming: list[bool] = []
        self.inbox = Inbox(self.turns, self.members, self.failures.append, self.consuming.append)

    def get(self, *payloads: bytes) -> Delivery:
        """A turn has a batch."""
        batch = delivery(A, 0, list(payloads))
        self.turns.on_deliveries([batch])
        return batch


@on_a_loop
async def test_what_came_before_a_callback_goes_to_it_first() -> None:
    reader = Reader()
    got: list[Delivery] = []
    held = reader.get(b"1")
    reader.inbox.on_batch.set(got.append)
    assert got == [held]
    assert (len(reader.inbox), reader.inbox.held_bytes) == (0, 0)
    assert got == [held, reader.get(b"2")]


@on_a_loop
async def test_each_message_comes_with_its_sender() -> None:
    reader = Reader()
    reader.members.on_view(View(ViewId(1, A), (A,)))
    got: list[tuple[bytes, str]] = []
    reader.inbox.on_message.set(lambda payload, sender: got.append((bytes(payload), sender.name)))
    reader.get(b"1", b"2")
    assert got == [(b"1", "a"), (b"2", "a")]


@on_a_loop
async def test_a_callback_that_fails_gets_the_next_message_all_the_same() -> None:
    reader = Reader()
    got: list[bytes] = []

    def fail(payload: object, _sender: object) -> None:
        got.append(bytes(payload))  # type: ignore[call-overload]
        raise ValueError(payload)

    reader.inbox.on_message.set(fail)
    reader.get(b"1", b"2")
    assert got == [b"1", b"2"]
    assert len(reader.failures) == 2


@on_a_loop
async def test_too_much_that_is_held_makes_senders_wait_until_half_is_taken() -> None:
    reader = Reader()
    half = bytes(HELD_BYTES // 2)
    for _ in range(3):
        reader.get(half)
    assert reader.inbox.is_stalled
    await reader.inbox.next()
    await reader.inbox.next()
    assert reader.consuming == [False]
    await reader.inbox.next()
    assert reader.consuming == [False, True]


@on_a_loop
async def test_what_is_held_takes_no_more_memory_than_it_counts_for() -> None:
    """Batches of one empty message took four times as much, and no sender waited."""
    reader = Reader()
    number = 10_000
    body = bytes(8)
    tracemalloc.start()
    try:
        for _ in range(number):
            reader.inbox._hold([Delivery(A.short, 1, 1, 1, 0, body, 0, 0, 0)])
        taken, _most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert number * 100 < taken < reader.inbox.held_bytes


@on_a_loop
async def test_one_that_iterates_waits_and_ends_when_all_is_taken() -> None:
    reader = Reader()
    waiting = asyncio.ensure_future(reader.inbox.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    first, second = reader.get(b"1"), reader.get(b"2")
    reader.inbox.close()
    assert await waiting is first
    assert await reader.inbox.next() is second
    assert await reader.inbox.next() is None
