"""The stack of one member: what goes in as messages comes out as frames, and the other way round.

Two stacks that hand each other their datagrams; time moves only when a test says so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.errors import ClosedError, ConfigError
from stormcast.node.core.model import (
    DONT_BUNDLE,
    DONT_LOOPBACK,
    FIRST,
    NO_RELIABILITY,
    OOB,
    Address,
    View,
    ViewId,
)
from stormcast.node.settings import GENERATIONS, StackSettings, load_settings
from stormcast.node.stack import Stack
from stormcast.node.stack.handover import FLUSH_INTERVAL
from stormcast.node.stack.lane import MESSAGE_OVERHEAD
from stormcast.node.trace import Event, read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

A, B, STRANGER = 0xA, 0xB, 0xC


@cache
def settings_of(generation: str, overrides: tuple[tuple[str, object], ...]) -> StackSettings:
    """Settings as a stack file gives them; reading the file takes longer than most tests."""
    return load_settings(unicast=generation, overrides=dict(overrides))


class Member:
    """A stack, its trace, and what its application got."""

    def __init__(
        self,
        short: int,
        name: str,
        cluster: str = "test",
        generation: str = "UNICAST3",
        settings: StackSettings | None = None,
        **overrides: object,
    ) -> None:
        self.blocks: list[bytes] = []
        self.short = short
        self.stack = Stack(
            Address(short, name),
            cluster,
            settings or settings_of(generation, tuple(overrides.items())),
            hash64,
            Tracer(short, 0, hash64, self.blocks.append),
            0.0,
        )
        self.delivered: list[bytes] = []

    def send(self, dest: int, *payloads: bytes, flags: int = 0) -> None:
        for payload in payloads:
            assert self.stack.try_send(dest, payload, flags)

    def turn(self, now: float = 0.0) -> list[bytes]:
        """End a turn; returns the datagrams that leave, one per frame."""
        if self.stack.next_deadline() <= now:
            self.stack.tick(now)
        datagrams = [head + body for _dest, head, body in self.stack.end_turn(now)]
        self.consume()
        return datagrams

    def receive(self, datagrams: Iterable[bytes], now: float = 0.0) -> None:
        for datagram in datagrams:
            self.stack.receive(datagram, now)

    def consume(self) -> None:
        for delivery in self.stack.take_deliveries():
            self.delivered += map(bytes, delivery)

    def events(self, *kinds: int) -> list[Event]:
        return [
            event
            for block in self.blocks
            for one in read_blocks_untrusted(block, hash64)
            for event in one.events
            if event.kind in kinds
        ]

    def state(self) -> object:
        """Everything a connection is, as values that can be compared."""
        unicast = self.stack.unicast
        return (
            {
                peer: (one.conn, one.state, one.window.low, one.window.high, one.window.bytes)
                for peer, one in unicast.send_connections().items()
            },
            {
                peer: (
                    one.conn,
                    one.state,
                    one.epoch,
                    one.window.delivered,
                    one.window.deliverable,
                    one.window.seen,
                    one.window.bytes,
                    len(one.window),
                )
                for peer, one in unicast.receive_connections().items()
            },
        )


class Pair:
    """Two members on a wire without delay."""

    def __init__(self, generation: str = "UNICAST3", **overrides: object) -> None:
        self.a = Member(A, "a", generation=generation, **overrides)
        self.b = Member(B, "b", generation=generation, **overrides)
        self.now = 0.0

    def exchange(self) -> None:
        """Hand over frames until there are none at this moment."""
        for _ in range(1000):
            from_a, from_b = self.a.turn(self.now), self.b.turn(self.now)
            if not from_a and not from_b:
                return
            self.b.receive(from_a, self.now)
            self.a.receive(from_b, self.now)
        pytest.fail("the stacks do not come to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, visiting every deadline on the way."""
        until = self.now + seconds
        while True:
            self.exchange()
            due = min(self.a.stack.next_deadline(), self.b.stack.next_deadline())
            if due > until:
                break
            self.now = max(due, self.now)
        self.now = until


def speaking_for(source: int, dest: int = B, cluster: str = "test") -> Codec:
    """The codec of somebody who writes frames by hand."""
    del dest
    return Codec(hash64(cluster.encode()) & 0xFFFFFFFF, source, hash64)


def data(
    *payloads: bytes,
    source: int = A,
    dest: int = B,
    conn: int = 1,
    lo: int = 1,
    protocol: int = wire.UNICAST3,
    flags: int = FIRST,
    cluster: str = "test",
    mark: int = 0,
) -> bytes:
    body = pack_body(payloads, hash64)
    codec = speaking_for(source, cluster=cluster)
    return codec.pack_data(protocol, dest, conn, lo, body, flags, 0, mark, 0) + body.data


def patched(frame: bytes, **values: int) -> bytes:
    """A frame with some fields of its head changed and the head's check made right again."""
    head = wire.Head._make(wire.HEAD_STRUCT.unpack_from(frame))._replace(**values)
    front = wire.HEAD_STRUCT.pack(*head)[: wire.CHECK_OFFSET]
    return front + struct.pack(">I", hash64(front) & 0xFFFFFFFF) + frame[wire.HEAD_SIZE :]


# -- Frames in and out -----------------------------------------------------------------------------


def test_the_messages_of_a_turn_leave_in_one_frame_and_arrive_in_order() -> None:
    pair = Pair()
    pair.a.send(B, b"1", b"2", b"3")
    frames = pair.a.turn()
    assert len(frames) == 1
    pair.b.receive(frames)
    pair.b.turn()
    assert pair.b.delivered == [b"1", b"2", b"3"]


def test_several_frames_in_one_datagram_are_all_taken() -> None:
    """A run of OOB and normal messages makes three frames; a transport may bundle them."""
    pair = Pair()
    pair.a.send(B, b"1", b"2")
    pair.a.send(B, b"3", flags=OOB)
    pair.a.send(B, b"4")
    frames = pair.a.turn()
    assert len(frames) == 3
    pair.b.receive([b"".join(frames)])
    pair.b.turn()
    assert pair.b.delivered == [b"1", b"2", b"3", b"4"]


def test_what_follows_a_bad_frame_in_a_datagram_is_lost_and_what_is_before_it_is_not() -> None:
    """Where a frame cannot be believed, nothing says where the next one begins."""
    pair = Pair()
    for number in range(3):
        pair.a.send(B, b"%d" % number, flags=DONT_BUNDLE)
    first, second, third = pair.a.turn()
    pair.b.receive([first + second[:-1] + b"?" + third])
    pair.b.turn()
    assert pair.b.delivered == [b"0"]
    assert pair.b.stack.record.refused == {"digest": 1}


def test_a_foreign_frame_in_a_datagram_does_not_hide_the_next_one() -> None:
    """A frame for somebody else is whole, so the one behind it is found."""
    b = Member(B, "b")
    b.receive([data(b"not mine", dest=STRANGER) + data(b"mine")])
    b.turn()
    assert b.delivered == [b"mine"]
    assert b.stack.record.refused == {"other-destination": 1}


GOOD = data(b"hello", b"world")


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (data(b"x", cluster="other"), "cluster"),
        (patched(GOOD, version=2), "version"),
        (b"\x00" + GOOD[1:], "magic"),
        (GOOD[:-1] + b"?", "digest"),
        (GOOD[:40] + bytes([GOOD[40] ^ 1]) + GOOD[41:], "head-check"),
        (GOOD[:-1], "truncated"),
        (GOOD[: wire.HEAD_SIZE], "truncated"),
        (GOOD[: wire.HEAD_SIZE - 1], "short"),
        (GOOD[:1], "short"),
        (data(b"x", dest=STRANGER), "other-destination"),
        (data(b"x", source=B), "bad-source"),
        (data(b"x", source=0), "bad-source"),
        (data(b"x", protocol=wire.UNICAST4), "protocol"),
        (data(b"x", protocol=99), "protocol"),
        (speaking_for(A).pack_control(wire.ACK, wire.NONE, B, 1, 1), "kind"),
        (data(b"x", dest=wire.GROUP), "protocol"),
        (speaking_for(A).pack_control(99, wire.UNICAST3, B, 1, 1), "kind"),
        (data(b"x", conn=0), "no-conn"),
        (data(b"x", lo=0), "seqno"),
        (data(b"x", lo=wire.MAX_SEQNO), "seqno"),
        (data(b"x", mark=1), "mark"),
        (patched(GOOD, count=0), "no-messages"),
        (patched(GOOD, count=3), "lengths"),
        (patched(GOOD, width=3), "width"),
        (patched(GOOD, headers=60_000), "size"),
        (patched(GOOD, size=wire.MAX_BODY + 1), "size"),
        (speaking_for(A).pack_control(wire.XMIT_REQ, wire.UNICAST3, B, 1, 1), "ranges"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_frame_for_us_is_counted_by_its_reason_and_changes_nothing(
    datagram: bytes, reason: str
) -> None:
    b = Member(B, "b")
    before = b.state()
    b.receive([datagram])
    assert b.turn() == []
    assert b.delivered == []
    assert b.stack.record.refused == {reason: 1}
    assert b.state() == before
    dropped = b.events(trace.DROPPED)
    assert [event.count for event in dropped] == [1]


def test_drops_are_traced_once_per_turn_and_reason_and_summed_over_the_run() -> None:
    b = Member(B, "b")
    b.receive([b"noise", b"more noise", GOOD[:-1] + b"?"])
    b.turn()
    b.receive([b"noise"])
    b.turn()
    assert b.stack.record.refused == {"short": 3, "digest": 1}
    assert [event.count for event in b.events(trace.DROPPED)] == [2, 1, 1]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_acks_beyond_what_was_sent_are_refused(generation: str) -> None:
    """The peer may ack what was sent and not one more; what it may not changes nothing."""
    a = Member(A, "a", generation=generation)
    a.send(B, b"1", b"2")
    (frame,) = a.turn()
    protocol = frame[wire.OFFSETS["protocol"]]
    before = a.state()

    def ack(seqno: int) -> bytes:
        return speaking_for(B).pack_control(wire.ACK, protocol, A, 1, seqno, stamp=1)

    a.receive([ack(3)])
    a.turn()
    assert a.state() == before
    assert a.stack.record.refused == {"ack-beyond-sent": 1}
    a.receive([ack(2)])
    a.turn()
    assert a.state() != before
    assert len(a.stack.unicast.send_connections()[B].window) == 0


# -- Flags -----------------------------------------------------------------------------------------


def test_an_unreliable_message_is_delivered_unnumbered() -> None:
    pair = Pair()
    pair.a.send(B, b"1", b"2", flags=NO_RELIABILITY)
    pair.b.receive(pair.a.turn())
    assert pair.b.turn() == []  # Nobody acks it.
    assert pair.b.delivered == [b"1", b"2"]
    assert pair.a.state() == pair.b.state() == ({}, {})
    (sent,) = pair.a.events(trace.SENT)
    assert (sent.protocol, sent.conn, sent.lo, sent.count) == (wire.NONE, 0, 0, 2)
    (delivered,) = pair.b.events(trace.DELIVERED)
    assert (delivered.protocol, delivered.count) == (wire.NONE, 2)
    assert delivered.digest == sent.digest


def test_an_unreliable_message_that_is_lost_is_never_repaired() -> None:
    """2 is unreliable and lost; 1 and 3 are numbered without it, and nothing asks for it."""
    pair = Pair()
    pair.a.send(B, b"1")
    pair.a.send(B, b"2", flags=NO_RELIABILITY)
    pair.a.send(B, b"3")
    first, _lost, third = pair.a.turn()
    pair.b.receive([first, third])
    pair.advance(30.0)
    assert pair.b.delivered == [b"1", b"3"]
    assert pair.a.events(trace.RETRANSMITTED) == pair.b.events(trace.REQUESTED) == []


def test_a_sender_of_large_batches_brings_empty_messages_across() -> None:
    """Its batches may have 65,535 messages; of empty ones its receiver takes 1,024 in a frame."""
    largest = replace(settings_of("UNICAST3", ()), max_batch=wire.MAX_COUNT, max_frame=1 << 20)
    a, b = Member(A, "a", settings=largest), Member(B, "b")
    for flags in (0, NO_RELIABILITY):
        a.send(B, *[b""] * 3000, flags=flags)
        b.receive(a.turn())
        b.consume()
        assert b.delivered == [b""] * 3000
        assert b.events(trace.DROPPED) == []
        b.delivered.clear()


def test_each_unreliable_frame_has_an_identity_of_its_own() -> None:
    """The preamble is what a frame's fate is drawn from: equal ones are all lost, or none."""
    a = Member(A, "a")
    preambles = set()
    for number in range(10):
        a.send(B, b"%d" % number, flags=NO_RELIABILITY)
        (frame,) = a.turn()
        preambles.add(frame[: wire.PREAMBLE_SIZE])
    assert len(preambles) == 10


def test_a_message_to_self_is_delivered_in_its_turn_and_leaves_no_frame() -> None:
    a = Member(A, "a")
    a.send(A, b"1", b"2")
    a.send(A, b"3", flags=OOB)
    a.send(A, b"4", flags=NO_RELIABILITY)
    assert a.turn() == []
    assert a.delivered == [b"1", b"2", b"3", b"4"]
    # All that is left is to write down what was offered and handed over.
    assert a.stack.next_deadline() == FLUSH_INTERVAL
    assert a.turn(FLUSH_INTERVAL) == []
    assert a.stack.next_deadline() == inf


@pytest.mark.parametrize("reliability", [0, NO_RELIABILITY])
def test_a_message_that_must_not_loop_back_is_not_delivered_to_its_sender(
    reliability: int,
) -> None:
    pair = Pair()
    pair.a.send(A, b"1", flags=DONT_LOOPBACK | reliability)
    pair.a.send(B, b"2", flags=DONT_LOOPBACK | reliability)
    pair.exchange()
    assert pair.a.delivered == []
    assert pair.b.delivered == [b"2"]


def test_messages_of_unequal_lengths_to_self_are_cut_as_they_were_sent() -> None:
    a = Member(A, "a")
    sent = [b"", b"x", b"yy" * 700, b"z" * 70_000]
    a.send(A, *sent)
    a.turn()
    assert a.delivered == sent


def test_unknown_flags_are_refused() -> None:
    a = Member(A, "a")
    with pytest.raises(ConfigError, match="message flags 0x40: unknown"):
        a.stack.try_send(B, b"x", 0x40)
    assert a.stack.outbox.pending(B) == 0


def test_refused_flags_take_no_room() -> None:
    a = Member(A, "a")
    for _ in range(2):
        while a.stack.try_send(B, bytes(100_000)):
            with pytest.raises(ConfigError):
                a.stack.try_send(B, bytes(1000), 0x40)
    bound = a.stack.settings.outbox_bytes
    assert a.stack.outbox.pending(B) == bound // (100_000 + MESSAGE_OVERHEAD)


@pytest.mark.parametrize("dest", [-1, 0, 1 << 32])
def test_a_destination_that_no_frame_can_name_is_refused(dest: int) -> None:
    a = Member(A, "a")
    with pytest.raises(ConfigError, match="dest"):
        a.stack.try_send(dest, b"x")
    assert a.turn() == []


@pytest.mark.parametrize("flags", [0, OOB, NO_RELIABILITY])
def test_what_is_no_bytes_is_refused_at_once_and_leaves_nothing_behind(flags: int) -> None:
    """Text has a length, too: it would wait in its lane, and fail where batches are packed."""
    a, b = Member(A, "a"), Member(B, "b")
    for message in ("text", "", None, 5, ["x"]):
        with pytest.raises(ConfigError, match=type(message).__name__):
            a.stack.try_send(B, message, flags)  # type: ignore[arg-type]
    assert a.turn() == []
    assert not a.stack.outbox.has_backlog
    assert a.stack.try_send(B, bytearray(b"changed"), flags)  # type: ignore[arg-type]
    for datagram in a.turn():
        b.stack.receive(datagram, 0.0)
    b.turn()
    assert b.delivered == [b"changed"]


def test_a_buffer_that_is_changed_after_it_was_accepted_is_sent_as_it_was() -> None:
    a, b = Member(A, "a"), Member(B, "b")
    buffer = bytearray(b"before")
    assert a.stack.try_send(B, buffer)  # type: ignore[arg-type]
    buffer[:] = b"after, and longer"
    for datagram in a.turn():
        b.stack.receive(datagram, 0.0)
    b.turn()
    assert b.delivered == [b"before"]


def test_a_message_larger_than_any_frame_is_refused() -> None:
    """The receiver refuses a body above MAX_BODY, so it would be resent for ever."""
    a = Member(A, "a")
    assert a.stack.try_send(B, bytes(wire.MAX_BODY - 4))
    a.turn()
    with pytest.raises(ConfigError, match="bytes"):
        a.stack.try_send(STRANGER, bytes(wire.MAX_BODY - 3))


# -- Closing ---------------------------------------------------------------------------------------


def test_a_stopped_stack_refuses_to_send() -> None:
    pair = Pair()
    pair.a.send(B, b"1")
    pair.exchange()
    pair.a.stack.stop(1.0)
    for dest in (A, B):
        with pytest.raises(ClosedError, match="a is closed: open a new channel to send"):
            pair.a.stack.try_send(dest, b"2")
    assert [event.kind for event in pair.a.events(*trace.EVENT_NAMES)][-1] == trace.STOP


def test_stopping_acks_what_was_delivered() -> None:
    """B delivered one message and its delayed ack is not due: it leaves now, or never."""
    pair = Pair()
    pair.a.send(B, b"1")
    pair.b.receive(pair.a.turn())
    assert pair.b.turn() == []
    pair.a.receive([head + body for _dest, head, body in pair.b.stack.stop(0.0)])
    assert len(pair.a.stack.unicast.send_connections()[B].window) == 0


def test_what_is_sent_in_the_last_turn_leaves_on_the_connection_it_was_meant_for() -> None:
    pair = Pair()
    pair.a.send(B, b"1")
    pair.exchange()
    pair.a.send(B, b"2")
    pair.b.receive(head + body for _dest, head, body in pair.a.stack.stop(0.0))
    pair.b.turn()
    assert pair.b.delivered == [b"1", b"2"]
    assert {event.conn for event in pair.a.events(trace.SENT)} == {1}


def test_a_stopped_stack_neither_answers_nor_wakes() -> None:
    pair = Pair()
    pair.a.send(B, b"1")
    pair.exchange()
    pair.b.stack.stop(1.0)
    pair.a.send(B, b"2")
    pair.b.receive(pair.a.turn(1.0), 1.0)
    assert pair.b.stack.end_turn(1.0) == []
    assert pair.b.stack.take_deliveries() == []
    assert pair.b.stack.next_deadline() == inf


# -- The trace -------------------------------------------------------------------------------------


def test_a_frame_is_in_the_trace_before_it_is_out() -> None:
    """The journal survives a crash between two turns: whatever left is written down already."""
    pair = Pair()
    for turn in range(5):
        pair.a.send(B, *[b"%d" % turn] * 3)
        datagrams = [head + body for _dest, head, body in pair.a.stack.end_turn(pair.now)]
        written = {(event.lo, event.digest) for event in pair.a.events(trace.SENT)}
        for datagram in datagrams:
            head = wire.Head._make(wire.HEAD_STRUCT.unpack_from(datagram))
            assert (head.lo, head.digest) in written
        pair.b.receive(datagrams, pair.now)
        deliveries = pair.b.stack.end_turn(pair.now) and pair.b.stack.take_deliveries()
        got = {(event.lo, event.hi) for event in pair.b.events(trace.DELIVERED)}
        assert {(one.lo, one.hi) for one in deliveries} <= got
        pair.now += 0.5


def test_the_first_event_says_who_and_how() -> None:
    a = Member(A, "a", generation="UNICAST4")
    a.turn()
    (block, *_rest) = read_blocks_untrusted(a.blocks[0], hash64)
    assert block.events[0].kind == trace.START
    name, identity, described = block.text(block.events[0]).split(" ", 2)
    assert (name, int(identity, 16)) == ("a", A)
    assert '"protocol": "UNICAST4"' in described
    assert '"bounds"' in described


def test_a_view_is_traced_and_closes_what_leads_out_of_it() -> None:
    pair = Pair()
    pair.a.send(B, b"1")
    pair.exchange()
    address = pair.a.stack.address
    pair.a.stack.install_view(View(ViewId(1, address), (address,)), 1.0)
    pair.a.turn(1.0)
    (view,) = pair.a.events(trace.VIEW)
    assert (view.lo, view.count) == (1, 1)
    assert trace.SENDER_CLOSING in [event.stream for event in pair.a.events(trace.CONN)]


# -- Bounded memory (G5) ---------------------------------------------------------------------------

SMALL = {"window_messages": 40, "window_bytes": 8192, "ack_threshold": 10}


def small(generation: str) -> dict[str, object]:
    return {
        name: value
        for name, value in SMALL.items()
        if name != "ack_threshold" or generation.startswith(("UNICAST3", "UNICAST4"))
    }


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_sender_to_a_silent_peer_stops_at_its_bounds(generation: str) -> None:
    """Nobody answers: window, then outbox fill up, and no repair makes room."""
    patience = {"max_retransmit_time": 0, "conn_expiry_timeout": 200, "conn_close_timeout": 200}
    a = Member(A, "a", generation=generation, **small(generation), **patience)
    stack = a.stack
    now = 0.0
    while now < 60.0:
        while stack.try_send(B, bytes(1000)):
            pass
        now = min(max(stack.next_deadline(), now + 0.1), now + 5.0)
        a.turn(now)
        window = stack.unicast.send_connections()[B].window
        assert len(window) <= SMALL["window_messages"]
        assert window.bytes <= SMALL["window_bytes"]
        waiting = stack.outbox.pending(B) * (1000 + MESSAGE_OVERHEAD)
        assert waiting <= stack.settings.outbox_bytes
    assert not stack.try_send(B, bytes(1000))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_peer_that_stays_silent_too_long_is_given_up_and_its_messages_let_go(
    generation: str,
) -> None:
    """JGRP-942: without a view nobody else would ever say that it is gone."""
    patience = {"max_retransmit_time": 20, "conn_expiry_timeout": 200, "conn_close_timeout": 200}
    a = Member(A, "a", generation=generation, **small(generation), **patience)
    accepted = 0
    while a.stack.try_send(B, bytes(1000)):
        accepted += 1
    a.turn()
    now = 0.0
    while B in a.stack.unicast.send_connections():
        now = a.stack.next_deadline()
        a.turn(now)
    assert now == pytest.approx(20.0)
    assert a.stack.outbox.pending(B) == 0
    # Who sent them is told of each: what was on its way, and what waited.
    told = a.stack.take_news().abandoned
    assert [(one.dest, one.why) for one in told] == [(B, "aged"), (B, "connection-closed")]
    assert sum(one.count for one in told) == accepted
    assert a.stack.outbox.abandoned == {one.why: one.count for one in told}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_receiver_whose_application_stalls_stops_at_its_bounds_and_catches_up(
    generation: str,
) -> None:
    """B stops taking. Windows fill, A blocks in the end; when B goes on, everything arrives."""
    patience = {"conn_expiry_timeout": 200, "conn_close_timeout": 200}
    pair = Pair(generation, **small(generation), **patience)
    pair.b.stack.set_consuming(False, 0.0)
    sent = []
    for _ in range(40):
        while len(sent) < 300 and pair.a.stack.try_send(B, b"%04d" % len(sent) + bytes(500)):
            sent.append(b"%04d" % len(sent) + bytes(500))
        pair.advance(0.5)
        entry = pair.b.stack.unicast.receive_connections()[A]
        assert len(entry.window) <= SMALL["window_messages"]
        assert entry.window.bytes <= SMALL["window_bytes"]
        assert pair.b.delivered == []
    assert pair.a.stack.outbox.pending(B) > 0
    pair.b.stack.set_consuming(True, pair.now)
    for _ in range(200):
        pair.advance(0.5)
        if len(pair.b.delivered) == len(sent):
            break
    assert pair.b.delivered == sent


@pytest.mark.parametrize("flags", [OOB, NO_RELIABILITY])
def test_what_overtakes_the_order_is_bounded_too_while_the_application_stalls(flags: int) -> None:
    """B stops taking: neither OOB nor unreliable messages may pile up where nobody fetches them."""
    pair = Pair(window_messages=100_000, window_bytes=8192)
    pair.b.stack.set_consuming(False, 0.0)
    for turn in range(50):
        now = float(turn)
        pair.a.send(B, bytes(1000), flags=flags)
        pair.b.receive(pair.a.turn(now), now)
        pair.b.stack.tick(now)
        pair.a.receive((head + body for _to, head, body in pair.b.stack.end_turn(now)), now)
    held = sum(len(one) for delivery in pair.b.stack.take_deliveries() for one in delivery)
    assert held <= 8192


def test_a_member_that_talks_to_itself_blocks_while_it_does_not_listen() -> None:
    a = Member(A, "a")
    a.stack.set_consuming(False, 0.0)
    while a.stack.try_send(A, bytes(100_000)):
        pass
    a.turn()
    assert a.delivered == []
    assert not a.stack.try_send(A, bytes(100_000))
    a.stack.set_consuming(True, 1.0)
    a.turn(1.0)
    assert len(a.delivered) > 80
    assert a.stack.try_send(A, bytes(100_000))


# -- Fuzz ------------------------------------------------------------------------------------------


def in_conversation(generation: str) -> tuple[Pair, list[bytes]]:
    """A pair in the middle of things, and frames of every kind that went from A to B.

    B has a gap and A has unacked messages, so there is state of every kind to damage.
    """
    pair = Pair(generation)
    seen: list[bytes] = []
    for number in range(6):
        pair.a.send(B, b"a%d" % number, b"longer" * number)
        pair.b.send(A, b"b%d" % number)
        from_a, from_b = pair.a.turn(pair.now), pair.b.turn(pair.now)
        seen += from_a
        if number != 3:
            pair.b.receive(from_a, pair.now)
        if number != 4:
            pair.a.receive(from_b, pair.now)
        pair.now += 0.3
    protocol = seen[0][wire.OFFSETS["protocol"]]
    codec = speaking_for(A)
    seen += [
        codec.pack_control(kind, protocol, B, 1, lo, stamp=900 + lo, mark=6)
        for kind in (wire.ACK, wire.SFS, wire.STABLE, wire.CLOSE, wire.RESET_TO)
        for lo in (1, 6)
    ]
    seen.append(codec.pack_control(wire.XMIT_REQ, protocol, B, 1, 5, ranges=((1, 2), (4, 5))))
    pair.b.turn(pair.now)
    return pair, seen


TALKS = {generation: in_conversation(generation) for generation in GENERATIONS}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A valid frame with at least one byte changed, or cut short at either end."""
    generation = draw(st.sampled_from(sorted(GENERATIONS)))
    frame = draw(st.sampled_from(TALKS[generation][1]))
    how = draw(st.sampled_from(["flip", "flip", "flip", "head", "tail", "insert"]))
    if how == "head":
        return generation, frame[: draw(st.integers(0, len(frame) - 1))]
    if how == "tail":
        return generation, frame[draw(st.integers(1, len(frame))) :]
    if how == "insert":
        at = draw(st.integers(0, len(frame) - 1))
        noise = draw(st.binary(min_size=1, max_size=8))
        changed = frame[:at] + noise + frame[at:]
        return generation, b"" if changed.startswith(frame) else changed
    flipped = bytearray(frame)
    places = st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4, unique=True)
    for at in draw(places):
        flipped[at] ^= draw(st.integers(1, 255))
    return generation, bytes(flipped)


def unmoved_by(generation: str, datagram: bytes) -> None:
    """B takes a datagram, raises nothing, and is what it was."""
    pair, _seen = TALKS[generation]
    b, before = pair.b, pair.b.state()
    delivered = len(b.delivered)
    b.stack.receive(datagram, pair.now)
    assert b.stack.end_turn(pair.now) == []
    b.consume()
    assert b.state() == before
    assert len(b.delivered) == delivered


@pytest.mark.slow
@settings(max_examples=4 * settings.default.max_examples)
@given(damaged())
def test_a_damaged_frame_never_changes_the_state_of_a_connection(
    damage: tuple[str, bytes],
) -> None:
    unmoved_by(*damage)


@given(generation=st.sampled_from(sorted(GENERATIONS)), noise=st.binary(max_size=300))
@example(generation="UNICAST3", noise=b"")
@example(generation="UNICAST3", noise=bytes([wire.MAGIC, wire.VERSION]) * 100)
def test_noise_never_changes_the_state_of_a_connection(generation: str, noise: bytes) -> None:
    unmoved_by(generation, noise)


EDGES = st.sampled_from([n + (1 << bits) for bits in (0, 3, 16, 31, 32, 63) for n in (-1, 0)])
NUMBERS = st.integers(0, 40) | EDGES
FIELD_BITS = {name: 8 * struct.calcsize(">" + field.code) for name, field in wire.FIELDS.items()}


@st.composite
def hostile(draw: st.DrawFn, generation: str) -> bytes:
    """A frame under correct hashes whose fields say what they like."""
    frame = draw(st.sampled_from(TALKS[generation][1]))
    names = ("count", "kind", "flags", "transmission", "conn", "lo", "mark", "stamp", "source")
    says = draw(st.dictionaries(st.sampled_from(names), NUMBERS, max_size=3))
    if "kind" in says:
        says["kind"] %= 9
    values = {name: value & (1 << FIELD_BITS[name]) - 1 for name, value in says.items()}
    return patched(frame, **values)


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
@given(chosen=st.data())
def test_a_stranger_with_correct_hashes_cannot_make_a_stack_raise_or_grow(
    generation: str, chosen: st.DataObject
) -> None:
    """Fields say anything; B lives on, ticks, keeps its bounds, and still talks to somebody new."""
    bounds = small(generation)
    b = Member(B, "b", generation=generation, **bounds)
    b.send(A, b"1", b"2")
    now = 0.0
    b.turn(now)
    for datagram in chosen.draw(st.lists(hostile(generation), max_size=12)):
        b.stack.receive(datagram, now)
        b.turn(now)
        now = min(b.stack.next_deadline(), now + 1.0)
        for entry in b.stack.unicast.receive_connections().values():
            assert len(entry.window) <= SMALL["window_messages"]
            assert entry.window.delivered <= entry.window.deliverable
        for sender in b.stack.unicast.send_connections().values():
            assert sender.window.low <= sender.window.high
    friend = Member(STRANGER, "c", generation=generation, **bounds)
    friend.send(B, b"still there?")
    before = len(b.delivered)
    b.receive(friend.turn(now), now)
    b.turn(now)
    assert b.delivered[before:] == [b"still there?"]


def test_the_last_frames_of_a_member_leave_once() -> None:
    """It has a message to ack when it stops; nothing else was to be sent in that turn."""
    pair = Pair()
    pair.a.send(B, b"x")
    pair.b.receive(pair.a.turn())
    pair.b.turn()
    frames = pair.b.stack.stop(0.0)
    assert [head[4] for _dest, head, _body in frames] == [wire.ACK]
