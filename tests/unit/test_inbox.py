"""Messages for the application: handed to its callback, or held until it asks."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from stormcast.node.application import Application
from stormcast.node.core.model import Delivery, View, ViewId
from stormcast.node.inbox import HELD_BYTES, UNREAD, Inbox
from stormcast.node.known_members import KnownMembers
from tests.helpers.channel import address, delivery
from tests.helpers.station import on_a_loop

A = address("a")


class Reader:
    """An inbox, and all that it does."""

    def __init__(self) -> None:
        self.application = Application()
        self.members = KnownMembers()
        self.failures: list[BaseException] = []
        self.consuming: list[bool] = []
        self.said: list[str] = []
        self.inbox = Inbox(
            self.application, self.members, self.failures.append, self._consume, self.said.append
        )

    def _consume(self, consuming: bool) -> int:
        self.consuming.append(consuming)
        return 7 if consuming else 0

    def get(self, *payloads: bytes) -> Delivery:
        """A turn has a batch."""
        batch = delivery(A, 0, list(payloads))
        self.application.on_deliveries([batch])
        return batch

    def fill(self) -> None:
        """Turns have more than is held."""
        for _ in range(3):
            self.get(bytes(HELD_BYTES // 2))
        assert self.inbox.is_stalled


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


@pytest.mark.parametrize("kind", ["on_message", "on_batch"])
@pytest.mark.parametrize("error", [BaseException, pytest.fail.Exception, GeneratorExit])
@on_a_loop
async def test_no_failure_takes_the_rest_of_a_turn(kind: str, error: type[BaseException]) -> None:
    reader = Reader()
    got: list[bytes] = []

    def fail(payload: Any, *_sender: object) -> None:
        got.extend(payload if kind == "on_batch" else [payload])
        raise error

    getattr(reader.inbox, kind).set(fail)
    reader.application.on_deliveries([delivery(A, 0, [b"1", b"2"]), delivery(A, 0, [b"3"])])
    assert got == [b"1", b"2", b"3"]
    assert len(reader.failures) == (2 if kind == "on_batch" else 3)


@pytest.mark.parametrize("kind", ["on_message", "on_batch"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@on_a_loop
async def test_what_came_after_a_callback_that_exits_comes_first_when_the_member_goes_on(
    kind: str, error: type[BaseException]
) -> None:
    reader = Reader()
    got: list[bytes] = []

    def exit_once(payload: Any, *_sender: object) -> None:
        got.extend(payload if kind == "on_batch" else [payload])
        if len(got) == 2:
            raise error

    getattr(reader.inbox, kind).set(exit_once)
    with pytest.raises(error):
        reader.application.on_deliveries(
            [delivery(A, 0, [b"1", b"2"]), delivery(A, 0, [b"3", b"4"])]
        )
    assert got == [b"1", b"2"]
    reader.get(b"5")
    assert got == [b"1", b"2", b"3", b"4", b"5"]
    reader.get(b"6")
    assert got[5:] == [b"6"]
    assert not reader.failures


@on_a_loop
async def test_too_much_that_is_held_makes_senders_wait_until_half_is_taken() -> None:
    reader = Reader()
    reader.fill()
    await reader.inbox.next()
    await reader.inbox.next()
    assert reader.consuming == [False]
    await reader.inbox.next()
    assert reader.consuming == [False, True]


@on_a_loop
async def test_a_batch_is_not_taken_where_senders_could_not_be_let_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader()
    reader.fill()
    for _ in range(2):
        await reader.inbox.next()
    with monkeypatch.context() as patch:
        patch.setattr(reader.inbox, "_set_consuming", out_of_memory)
        with pytest.raises(MemoryError):
            await reader.inbox.next()
    assert await reader.inbox.next() is not None
    assert (len(reader.inbox), reader.inbox.held_bytes) == (0, 0)


def out_of_memory(_consuming: bool) -> int:
    raise MemoryError


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


# -- Messages that nobody takes --------------------------------------------------------------------


@on_a_loop
async def test_who_never_takes_a_message_is_told_so_once() -> None:
    reader = Reader()
    reader.get(bytes(HELD_BYTES // 2))
    assert reader.said == []
    reader.fill()
    assert reader.said == [UNREAD]
    for _ in range(4):
        await reader.inbox.next()
    reader.fill()
    assert reader.said == [UNREAD]


@on_a_loop
async def test_who_iterates_slowly_is_told_nothing() -> None:
    reader = Reader()
    reader.get(b"1")
    await reader.inbox.next()
    reader.fill()
    assert reader.said == []


@on_a_loop
async def test_a_stop_by_hand_outlasts_a_stall_of_the_inbox() -> None:
    reader = Reader()
    reader.fill()
    assert reader.inbox.set_consuming(False) == 0
    for _ in range(3):
        await reader.inbox.next()
    assert not reader.inbox.is_stalled
    assert True not in reader.consuming
    assert reader.inbox.set_consuming(True) == 7
    assert reader.consuming[-1]


@on_a_loop
async def test_a_stall_of_the_inbox_outlasts_a_start_by_hand() -> None:
    reader = Reader()
    reader.fill()
    reader.inbox.set_consuming(False)
    assert reader.inbox.set_consuming(True) == 0
    assert True not in reader.consuming
    for _ in range(3):
        await reader.inbox.next()
    assert reader.consuming[-1]


@on_a_loop
async def test_at_its_end_a_member_takes_all_that_comes() -> None:
    reader = Reader()
    reader.fill()
    reader.inbox.take_all()
    assert reader.consuming == [False, True]
    reader.get(bytes(HELD_BYTES))
    assert reader.consuming == [False, True]
    assert len(reader.inbox) == 4


@on_a_loop
async def test_a_stop_by_hand_lasts_until_the_end() -> None:
    reader = Reader()
    reader.fill()
    reader.inbox.set_consuming(False)
    reader.inbox.take_all()
    assert True not in reader.consuming


# -- Callbacks that are replaced while they are called ---------------------------------------------


class Handler:
    """Callbacks that note what they get, and replace one another."""

    def __init__(self, reader: Reader) -> None:
        self.inbox = reader.inbox
        self.got: list[str] = []

    def note(self, payload: object, _sender: object = None) -> None:
        self.got.append(f"then {bytes(payload).decode()}")  # type: ignore[call-overload]

    def note_batch(self, batch: Delivery) -> None:
        assert len(batch) == batch.hi - batch.lo + 1
        words = b" ".join(map(bytes, batch)).decode()
        self.got.append(f"{batch.lo}..{batch.hi} {words} of {batch.size}")

    def first_message(self, payload: object, _sender: object) -> None:
        self.inbox.on_message.set(self.note)
        self.got.append(f"first {bytes(payload).decode()}")  # type: ignore[call-overload]


@on_a_loop
async def test_a_callback_that_replaces_itself_is_not_called_again() -> None:
    reader = Reader()
    handler = Handler(reader)
    reader.inbox.on_message.set(handler.first_message)
    reader.application.on_deliveries(
        [delivery(A, 0, [b"1", b"2", b"3"]), delivery(A, 0, [b"4"], 4)]
    )
    assert handler.got == ["first 1", "then 2", "then 3", "then 4"]
    reader.get(b"5")
    assert handler.got[-1] == "then 5"
    assert (len(reader.inbox), reader.inbox.held_bytes) == (0, 0)


@on_a_loop
async def test_callbacks_that_replace_one_another_with_each_message_get_all_in_order() -> None:
    reader = Reader()
    got: list[int] = []

    def one(payload: object, _sender: object) -> None:
        got.append(int(bytes(payload)))  # type: ignore[call-overload]
        reader.inbox.on_message.set(other)

    def other(payload: object, _sender: object) -> None:
        got.append(int(bytes(payload)))  # type: ignore[call-overload]
        reader.inbox.on_message.set(one)

    reader.inbox.on_message.set(one)
    reader.get(*(b"%d" % number for number in range(2000)))
    assert got == list(range(2000))


@on_a_loop
async def test_the_rest_of_a_batch_goes_to_a_callback_for_batches() -> None:
    reader = Reader()
    handler = Handler(reader)

    def first(payload: object, sender: object) -> None:
        handler.first_message(payload, sender)
        reader.inbox.on_batch.set(handler.note_batch)

    reader.inbox.on_message.set(first)
    reader.application.on_deliveries(
        [delivery(A, 0, [b"1", b"2", b"33"]), delivery(A, 0, [b"4"], 4)]
    )
    assert handler.got == ["first 1", "2..3 2 33 of 3", "4..4 4 of 1"]


@on_a_loop
async def test_what_a_callback_that_clears_itself_has_not_got_can_be_iterated() -> None:
    reader = Reader()
    got: list[Delivery] = []

    def take_one(batch: Delivery) -> None:
        got.append(batch)
        reader.inbox.on_batch.set(None)

    reader.inbox.on_batch.set(take_one)
    batches = [delivery(A, 0, [b"%d" % number], number) for number in (1, 2, 3)]
    reader.application.on_deliveries(batches)
    assert got == batches[:1]
    assert [await reader.inbox.next(), await reader.inbox.next()] == batches[1:]
    assert reader.inbox.held_bytes == 0
