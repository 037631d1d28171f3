"""The outbox: what it accepts is bounded, keeps its order, and leaves in batches that may."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from stormcast.node.core.model import DONT_BUNDLE, FRAGMENT, NO_FC, OOB, Address, Payload
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import MAX_COUNT, MAX_EMPTY
from stormcast.node.protocols.frag import CutMessage, FragConfig, Fragmenter
from stormcast.node.protocols.unicast import Unicast3Config
from stormcast.node.settings import StackSettings
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.stack import Stack
from stormcast.node.stack.lane import LENGTH_COST, MESSAGE_OVERHEAD, Lane, OpenEarly
from stormcast.node.trace.tracer import Tracer

ROOM = 10_000
ANY = 1 << 40
PEER = 2


def put(lane: Lane, payload: Payload, flags: int = 0) -> None:
    """Queue a message as the stack does it."""
    lane.room -= len(payload) + MESSAGE_OVERHEAD
    run = lane.run
    if flags != run.flags or flags & DONT_BUNDLE:
        run = lane.begin(flags)
    run.payloads.append(payload)


def drain(lane: Lane, messages: int = ANY, size: int = ANY) -> list[tuple[list[Payload], int]]:
    batches = []
    while (batch := lane.take(messages, size, ANY)) is not None and batch.payloads:
        batches.append((batch.payloads, batch.flags))
    return batches


# -- The bound -------------------------------------------------------------------------------------


def a_sender(outbox_bytes: int) -> Stack:
    layers = (("UNICAST3", Unicast3Config()), ("UDP", UdpConfig()))
    settings = StackSettings(layers=layers, timing=Timing(), outbox_bytes=outbox_bytes)
    tracer = Tracer(1, 0, xxh3_64_intdigest, lambda _block: None)
    return Stack(Address(1, "a"), "test", settings, xxh3_64_intdigest, tracer, 0.0)


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_a_lane_is_full_exactly_at_its_bound(size: int) -> None:
    """Five messages fit to the byte, overhead and all; one byte less and the fifth is refused."""
    cost = size + MESSAGE_OVERHEAD
    exact, short = a_sender(5 * cost), a_sender(5 * cost - 1)
    assert [exact.try_send(PEER, bytes(size)) for _ in range(6)] == [True] * 5 + [False]
    assert [short.try_send(PEER, bytes(size)) for _ in range(6)] == [True] * 4 + [False] * 2
    assert exact.outbox.pending(PEER) == 5


def test_empty_messages_are_bounded_in_number_by_their_overhead() -> None:
    stack = a_sender(1 << 20)
    accepted = 0
    while stack.try_send(PEER, b""):
        accepted += 1
    assert accepted == (1 << 20) // MESSAGE_OVERHEAD


def test_an_empty_lane_takes_one_message_larger_than_its_bound_and_then_nothing() -> None:
    """Else that message could never be sent at all."""
    stack = a_sender(1000)
    assert stack.try_send(PEER, bytes(5000))
    assert not stack.try_send(PEER, b"")
    assert stack.outbox.pending(PEER) == 1


def test_a_message_larger_than_the_bound_waits_until_the_lane_is_empty() -> None:
    stack = a_sender(1000)
    assert stack.try_send(PEER, b"small")
    assert not stack.try_send(PEER, bytes(5000))
    stack.end_turn(0.0)
    assert stack.try_send(PEER, bytes(5000))


def test_one_full_lane_does_not_block_another() -> None:
    stack = a_sender(100)
    assert stack.try_send(PEER, bytes(36))
    assert not stack.try_send(PEER, b"")
    assert stack.try_send(3, bytes(36))


def test_a_refused_message_leaves_no_trace_in_the_lane() -> None:
    stack = a_sender(200)
    assert stack.try_send(PEER, bytes(70))
    for _ in range(10):
        assert not stack.try_send(PEER, bytes(70), OOB)
    assert stack.try_send(PEER, bytes(2))
    assert stack.outbox.pending(PEER) == 2


# -- Order and flags -------------------------------------------------------------------------------


def test_a_change_of_flags_closes_the_batch_and_keeps_the_order() -> None:
    lane = Lane(PEER, ROOM)
    for payload, flags in [(b"1", 0), (b"2", 0), (b"3", OOB), (b"4", OOB | NO_FC), (b"5", 0)]:
        put(lane, payload, flags)
    assert drain(lane) == [
        ([b"1", b"2"], 0),
        ([b"3"], OOB),
        ([b"4"], OOB | NO_FC),
        ([b"5"], 0),
    ]


def test_a_message_that_must_not_be_bundled_leaves_alone_and_in_its_place() -> None:
    lane = Lane(PEER, ROOM)
    for payload, flags in [
        (b"1", 0),
        (b"2", DONT_BUNDLE),
        (b"3", DONT_BUNDLE),
        (b"4", 0),
        (b"5", 0),
    ]:
        put(lane, payload, flags)
    assert drain(lane) == [
        ([b"1"], 0),
        ([b"2"], DONT_BUNDLE),
        ([b"3"], DONT_BUNDLE),
        ([b"4", b"5"], 0),
    ]


def test_a_batch_ends_at_its_number_of_messages() -> None:
    lane = Lane(PEER, ROOM)
    for number in range(7):
        put(lane, b"%d" % number)
    assert [len(payloads) for payloads, _flags in drain(lane, messages=3)] == [3, 3, 1]


def test_a_batch_ends_at_its_size_lengths_included() -> None:
    """Three messages of 100 with their lengths take 312 bytes; with one byte less two leave."""
    for size, expected in [(3 * (100 + LENGTH_COST), 3), (3 * (100 + LENGTH_COST) - 1, 2)]:
        lane = Lane(PEER, ROOM)
        for _ in range(4):
            put(lane, bytes(100))
        taken = lane.take(ANY, size, ANY)
        assert taken is not None
        assert (len(taken.payloads), taken.size) == (expected, expected * 100)


def test_a_batch_of_empty_messages_is_one_that_receivers_take() -> None:
    """Of messages that are all empty, a part; with another among them each has a length."""
    for last, expected in [(b"", [MAX_EMPTY, MAX_EMPTY, 2]), (b"x", [2 * MAX_EMPTY + 2])]:
        lane = Lane(PEER, 3 * MAX_EMPTY * MESSAGE_OVERHEAD)
        for payload in [b""] * (2 * MAX_EMPTY + 1) + [last]:
            put(lane, payload)
        batches = [payloads for payloads, _flags in drain(lane, messages=MAX_COUNT)]
        assert [len(batch) for batch in batches] == expected
        assert lane.numbered == 2 * MAX_EMPTY + 2


def test_a_message_larger_than_a_batch_leaves_alone_where_it_may() -> None:
    """The frame has room for 100 bytes, the window for `single`: one more byte and it stays."""
    lane = Lane(PEER, ROOM)
    put(lane, bytes(500))
    put(lane, b"next")
    assert lane.take(ANY, 100, 500 + LENGTH_COST - 1) is None
    assert len(lane) == 2
    assert lane.next_size() == 500
    assert lane.take(ANY, 100, 500 + LENGTH_COST) == ([bytes(500)], 0, b"", 500, [500], 1)
    assert lane.next_size() == 4
    assert lane.take(ANY, 100, 0) == ([b"next"], 0, b"", 4, [4], 2)
    assert lane.next_size() == 0


def test_what_may_not_leave_stays_where_it_is() -> None:
    lane = Lane(PEER, ROOM)
    put(lane, bytes(500))
    room = lane.room
    assert lane.take(ANY, -3, -3) is None
    assert (len(lane), lane.room) == (1, room)


def a_cut(size: int) -> CutMessage:
    """A message in pieces of ten bytes."""
    fragments = FragConfig(frag_size=10, max_message_size=1000)
    return Fragmenter(fragments, xxh3_64_intdigest).cut(bytes(size))


def put_large(lane: Lane, cut: CutMessage, flags: int = 0) -> None:
    lane.begin_large(flags, cut).payloads = cut.pieces
    lane.room -= cut.total + MESSAGE_OVERHEAD * len(cut.pieces)


def test_pieces_leave_one_by_one_each_with_its_own_header() -> None:
    """A header describes one frame: nothing before or after may travel under it."""
    lane, cut = Lane(PEER, ROOM), a_cut(15)
    put(lane, b"before")
    put_large(lane, cut)
    put(lane, b"after")
    assert [lane.take(ANY, ANY, ANY) for _ in range(4)] == [
        ([b"before"], 0, b"", 6, [6], 1),
        ([bytes(10)], FRAGMENT, cut.header(0), 10, [10], 2),
        ([bytes(5)], FRAGMENT, cut.header(1), 5, [5], 2),
        ([b"after"], 0, b"", 5, [5], 3),
    ]
    assert lane.room == ROOM


@pytest.mark.parametrize("size", [5, 15])
def test_a_lane_from_which_nothing_could_be_taken_has_all_of_it(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that would follow cannot be made."""
    lane, cut = Lane(PEER, ROOM), a_cut(15)
    if size > 10:
        put_large(lane, cut)
        lane.take(ANY, ANY, ANY)
    else:
        put(lane, bytes(5))
    before = lane.room, lane.numbered, lane.accepted, len(lane)
    with monkeypatch.context() as patch:
        patch.setattr("stormcast.node.stack.lane.Run", out_of_memory)
        with pytest.raises(MemoryError):
            lane.take(ANY, ANY, ANY)
    assert (lane.room, lane.numbered, lane.accepted, len(lane)) == before
    batch = lane.take(ANY, ANY, ANY)
    assert batch is not None
    assert (batch.payloads, batch.number) == ([bytes(5)], 1)
    assert (lane.room, lane.numbered, lane.accepted, len(lane)) == (ROOM, 1, 1, 0)


def out_of_memory(*_rest: object) -> None:
    raise MemoryError


def test_a_lane_that_ran_empty_forgets_the_header_of_its_last_batch() -> None:
    lane = Lane(PEER, ROOM)
    put_large(lane, a_cut(11), OOB)
    lane.take(ANY, ANY, ANY)
    lane.take(ANY, ANY, ANY)
    lane.run.payloads.append(b"next")
    assert lane.take(ANY, ANY, ANY) == ([b"next"], 0, b"", 4, [4], 2)


def test_a_lane_counts_messages_and_not_pieces() -> None:
    """Whatever waits, is half sent, or was thrown away: accepted is what was put in."""
    lane = Lane(PEER, ROOM)
    for number in range(3):
        put(lane, bytes(number))
    put_large(lane, a_cut(35))
    put(lane, b"", OOB)
    assert (lane.accepted, lane.numbered, len(lane)) == (5, 0, 5)
    lane.take(2, ANY, ANY)
    assert (lane.accepted, lane.numbered, len(lane)) == (5, 2, 3)
    lane.take(ANY, ANY, ANY)
    lane.take(ANY, ANY, ANY)
    assert lane.is_within_message
    assert (lane.accepted, lane.numbered, len(lane)) == (5, 3, 2)
    assert lane.clear() == 2
    assert (lane.accepted, lane.numbered, len(lane)) == (5, 5, 0)
    assert lane.room == ROOM
    put(lane, b"next")
    assert lane.take(ANY, ANY, ANY) == ([b"next"], 0, b"", 4, [4], 6)


def test_oob_messages_in_pieces_wait_for_those_that_are_open() -> None:
    """Two may be open, of a hundred bytes together; one is always admitted."""
    lane = Lane(PEER, ROOM)

    def has_room(cost: int, acked: int, conn: int = 1) -> bool:
        return lane.has_room_for_early(cost, conn, acked, 2, 100)

    assert has_room(500, 0)
    lane.open_early += [OpenEarly(1, 5, 60), OpenEarly(1, 9, 40)]
    assert not has_room(1, 4)
    assert has_room(60, 5)
    assert not has_room(61, 8)
    assert has_room(500, 9)
    lane.open_early += [OpenEarly(1, 5, 60), OpenEarly(1, 9, 40)]
    assert has_room(500, 0, conn=2)


# -- Room and memory -------------------------------------------------------------------------------


def test_clearing_a_lane_returns_its_room_and_says_how_many_were_lost() -> None:
    lane = Lane(PEER, ROOM)
    for number in range(6):
        put(lane, bytes(number), OOB if number > 3 else 0)
    lane.take(2, ANY, ANY)
    assert lane.clear() == 4
    assert (lane.room, len(lane), lane.is_empty()) == (ROOM, 0, True)
    put(lane, b"again")
    assert drain(lane) == [([b"again"], 0)]


def test_a_lane_that_never_runs_empty_keeps_only_what_waits() -> None:
    """G5: a producer that is always ahead must not make the lane keep what it has handed out."""
    lane = Lane(PEER, ROOM)
    born: deque[weakref.ref[memoryview]] = deque()
    for number in range(2000):
        payload = memoryview(bytes([number % 256]))
        born.append(weakref.ref(payload))
        put(lane, payload)
        del payload
        if len(lane) > 20:
            lane.take(1, ANY, ANY)
    gc.collect()
    alive = sum(1 for one in born if one() is not None)
    assert len(lane) == 20
    assert alive <= 2 * len(lane) + 1


# -- Against a model -------------------------------------------------------------------------------


@dataclass
class Model:
    """A lane as one would write it first: a list, and everything counted anew."""

    waiting: list[tuple[bytes, int]] = field(default_factory=list)

    @property
    def room(self) -> int:
        return ROOM - sum(len(payload) + MESSAGE_OVERHEAD for payload, _flags in self.waiting)

    def take(self, messages: int, size: int, single: int) -> tuple[list[bytes], int] | None:
        first_flags = self.waiting[0][1]
        most = 1 if first_flags & DONT_BUNDLE else messages
        taken: list[bytes] = []
        for payload, flags in self.waiting[:most]:
            if flags != first_flags:
                break
            if sum(len(one) + LENGTH_COST for one in [*taken, payload]) > size:
                break
            taken.append(payload)
        if not taken:
            if len(self.waiting[0][0]) + LENGTH_COST > single:
                return None
            taken = [self.waiting[0][0]]
        del self.waiting[: len(taken)]
        return taken, first_flags


FLAGS = st.sampled_from([0, 0, 0, OOB, DONT_BUNDLE, OOB | DONT_BUNDLE])
PUTS = st.tuples(st.just("put"), st.binary(max_size=40), FLAGS)
TAKES = st.tuples(
    st.just("take"), st.integers(1, 6), st.integers(-5, 120), st.sampled_from([-5, 0, 20, ANY])
)
CLEARS = st.just(("clear",))


@given(st.lists(PUTS | PUTS | TAKES | CLEARS, max_size=60))
def test_a_lane_is_a_queue_that_counts_its_room(deeds: list[tuple[object, ...]]) -> None:
    lane, model = Lane(PEER, ROOM), Model()
    for deed in deeds:
        match deed:
            case ("put", bytes(payload), int(flags)):
                put(lane, payload, flags)
                model.waiting.append((payload, flags))
            case ("take", int(messages), int(size), int(single)) if model.waiting:
                taken = lane.take(messages, size, single)
                expected = model.take(messages, size, single)
                assert (taken and (taken.payloads, taken.flags)) == expected
                assert taken is None or taken.size == sum(map(len, taken.payloads))
            case ("clear",):
                assert lane.clear() == len(model.waiting)
                model.waiting.clear()
        assert lane.room == model.room
        assert len(lane) == len(model.waiting)
        assert lane.is_empty() == (not model.waiting)
    left = [payload for payloads, _flags in drain(lane) for payload in payloads]
    assert left == [payload for payload, _flags in model.waiting]
    assert lane.room == ROOM
