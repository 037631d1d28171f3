"""Loss, duplication and disorder on the wire, and what the receiver's application sees of it."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core.model import OOB
from stormcast.node.core.wire import ACK, DATA, SFS, STABLE, XMIT_REQ
from tests.helpers.world import ALWAYS, Pair, numbered, on, on_every_generation

ASKING = ("UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")
"""Generations whose receivers ask for gaps; UNICAST repeats everything instead."""


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("seqno", [1, 3, 5], ids=["first", "middle", "last"])
@on_every_generation
def test_a_lost_message_is_repaired_within_a_few_intervals(
    generation: str, timing: str, seqno: int, times: int
) -> None:
    """U-12 and its siblings: one of five is lost, so many times, and nothing follows them."""
    pair = Pair(generation, timing)
    pair.drop("A", DATA, seqno, times=times)

    pair.a.send(*numbered(1, 5))
    pair.deliver()
    assert pair.b.delivered == numbered(1, seqno - 1)

    pair.intervals(3 + times)
    if seqno == 1:
        # The receiver has no window: its requests for the first message are spaced.
        pair.advance((times - 1) * pair.a.stack.unicast.bounds()["sync_spacing"])
    assert pair.b.delivered == numbered(1, 5)
    pair.settle()
    pair.assert_idle()


@pytest.mark.parametrize("times", [1, 3])
@on_every_generation
def test_the_only_message_is_repaired_though_nothing_follows_it(
    generation: str, timing: str, times: int
) -> None:
    """P-04: the one message ever sent is lost, so many times."""
    pair = Pair(generation, timing)
    pair.drop("A", DATA, times=times)
    pair.a.send(b"1")
    pair.intervals(3 + times)

    assert pair.b.delivered == [b"1"]
    pair.settle()
    pair.assert_idle()


@pytest.mark.parametrize("window", ["none", "older", "closing", "removed"])
@pytest.mark.parametrize("lost", [1, 2, 3, 5, 8])
@on_every_generation
def test_the_first_frames_of_a_connection_may_all_be_lost(
    generation: str, timing: str, lost: int, window: str
) -> None:
    """P-04: the first frames of a new connection are lost, whatever window the receiver has."""
    pair = Pair(generation, timing, conn_close_timeout=60.0)
    if window != "none":
        pair.open()
        pair.a.forget("B")
    if window == "closing":
        pair.b.close("A")
    if window == "removed":
        pair.b.forget("A")
    pair.drop("A", DATA, times=lost)
    pair.a.send(*numbered(1, 5))
    pair.settle()

    assert pair.b.delivered == numbered(1, 5)
    pair.assert_idle()


@on_every_generation
def test_a_message_lost_three_times_and_one_that_comes_twice_change_nothing(
    generation: str, timing: str
) -> None:
    """U-17: 3 is lost three times, 4 is duplicated; B gets 1..5 within six intervals."""
    pair = Pair(generation, timing)
    pair.drop("A", DATA, 3, times=3)
    pair.duplicate("A", DATA, 4)

    pair.a.send(*numbered(1, 5))
    pair.intervals(6)
    assert pair.b.delivered == numbered(1, 5)


@on_every_generation
def test_an_oob_message_overtakes_a_gap_and_is_delivered_once(generation: str, timing: str) -> None:
    """U-18: as U-17 with 4 OOB: it is delivered at once, and 5 still waits for 3."""
    pair = Pair(generation, timing)
    pair.drop("A", DATA, 3, times=3)
    pair.duplicate("A", DATA, 4)

    for number in range(1, 6):
        pair.a.send(b"%d" % number, flags=OOB if number == 4 else 0)
    pair.deliver()
    assert pair.b.delivered == [b"1", b"2", b"4"]

    pair.intervals(6)
    assert pair.b.delivered == [b"1", b"2", b"4", b"3", b"5"]
    pair.settle()
    pair.assert_idle()


@on_every_generation
def test_a_regular_message_waits_for_the_oob_message_before_it(
    generation: str, timing: str
) -> None:
    """O-06 (JGRP-780): 2 is OOB and lost once; 3 is neither stuck for ever nor delivered before."""
    pair = Pair(generation, timing)
    pair.drop("A", DATA, 2)
    for number in (1, 2, 3):
        pair.a.send(b"%d" % number, flags=OOB if number == 2 else 0)
    pair.deliver()
    assert pair.b.delivered == [b"1"]

    pair.intervals(4)
    assert pair.b.delivered == numbered(1, 3)


@pytest.mark.parametrize("as_one", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("flags", [0, OOB], ids=["regular", "oob"])
@on_every_generation
def test_a_connection_may_arrive_last_message_first(
    generation: str, timing: str, flags: int, *, as_one: bool
) -> None:
    """U-19, U-20: both sides forgot each other; 1..5 of the new connection arrive as 5 4 3 2 1."""
    pair = Pair(generation, timing)
    pair.open()
    pair.a.forget("B")
    pair.b.forget("A")
    held = pair.hold("A", DATA)
    pair.a.send(*numbered(1, 5), flags=flags)

    pair.release(held, lambda frames: list(reversed(frames)), as_one=as_one)
    pair.deliver()
    if flags:
        assert sorted(pair.b.delivered) == numbered(1, 5)
    else:
        assert pair.b.delivered == numbered(1, 5)
    pair.settle()
    assert len(pair.b.delivered) == 5
    assert pair.b.cached() == 0
    pair.assert_idle()


@on(*ASKING)
def test_a_gap_list_larger_than_a_request_is_asked_for_in_several(
    generation: str, timing: str
) -> None:
    """U-23: every second of 1600 messages is lost, the first one too; a request asks for 100."""
    pair = Pair(generation, timing, max_xmit_req_size=100)
    held = pair.hold("A", DATA)
    pair.a.send(*numbered(1, 1600))
    pair.release(held, lambda frames: frames[1::2])
    pair.settle()

    assert pair.b.delivered == numbered(1, 1600)
    requests = pair.sent("B", XMIT_REQ)
    asked = [hi - lo + 1 for request in requests for lo, hi in request.asks_for()]
    # The first of all came as the answer to SEND_FIRST_SEQNO; the rest was asked for, once.
    assert len(requests) >= 8
    assert sum(asked) == 799
    assert max(sum(hi - lo + 1 for lo, hi in one.asks_for()) for one in requests) <= 100
    pair.assert_idle()


@on(*ASKING)
def test_only_what_is_missing_is_asked_for_and_resent(generation: str, timing: str) -> None:
    """2 and 4 of 1..5 are lost: they are asked for once and resent once, and nothing else is."""
    pair = Pair(generation, timing)
    pair.drop("A", DATA, 2)
    pair.drop("A", DATA, 4)
    pair.a.send(*numbered(1, 5))
    pair.settle()

    assert pair.b.delivered == numbered(1, 5)
    # In `fast` each gap has its own moment.
    assert [gap for one in pair.sent("B", XMIT_REQ) for gap in one.asks_for()] == [(2, 2), (4, 4)]
    resent = [event.lo for event in pair.a.events(trace.RETRANSMITTED)]
    # The look of the sender may repeat its newest before the ack of the whole came.
    assert [seqno for seqno in resent if seqno != 5] == [2, 4]


@on(*ASKING)
def test_messages_that_are_merely_late_are_not_asked_for(generation: str, timing: str) -> None:
    """JGRP-1539: a gap that fills itself before the second look causes no request."""
    pair = Pair(generation, timing)
    pair.late(0.0005, "A", DATA, 2)
    pair.a.send(*numbered(1, 5))
    pair.deliver()
    assert pair.b.delivered == numbered(1, 5)

    pair.settle()
    assert pair.count("B", XMIT_REQ) == 0
    assert pair.a.events(trace.RETRANSMITTED) == []


@on_every_generation
def test_lost_acks_are_repeated_until_the_sender_is_free(generation: str, timing: str) -> None:
    """The first four frames of B are lost, whatever they are: A is free in the end, B asked for
    nothing (no endless requests after a dropped ack)."""
    pair = Pair(generation, timing)
    lost = pair.drop("B", times=4)
    pair.a.send(*numbered(1, 20))
    pair.settle()

    assert lost.taken >= 1
    assert pair.b.delivered == numbered(1, 20)
    assert pair.a.unacked("B") == 0
    assert pair.count("B", XMIT_REQ) == 0
    assert pair.count("B", SFS) == 0
    pair.assert_idle()


@pytest.mark.parametrize("max_batch", [1, None], ids=["single", "batched"])
@pytest.mark.parametrize("flags", [0, OOB], ids=["regular", "oob"])
@on_every_generation
def test_copies_of_every_frame_are_delivered_once(
    generation: str, timing: str, flags: int, max_batch: int | None
) -> None:
    """O-11, to the other: ten messages; every frame in both directions arrives six times."""
    pair = Pair(generation, timing, max_batch=max_batch)
    pair.duplicate(times=ALWAYS, copies=5)
    for payload in numbered(1, 10):
        pair.a.send(payload, flags=flags)
    pair.a.send(*numbered(11, 20), flags=flags)
    pair.settle()

    assert pair.b.delivered == numbered(1, 20)
    assert pair.b.refused["duplicate"] >= 50 if max_batch else True
    pair.assert_idle()


@pytest.mark.parametrize("flags", [0, OOB], ids=["regular", "oob"])
@on_every_generation
def test_copies_on_the_wire_do_not_reach_messages_to_self(
    generation: str, timing: str, flags: int
) -> None:
    """O-11, to self: ten messages, whatever the wire copies."""
    pair = Pair(generation, timing)
    pair.duplicate(times=ALWAYS, copies=5)
    pair.a.send(*numbered(1, 10), to="A", flags=flags)
    pair.settle()

    assert pair.a.delivered == numbered(1, 10)


@on_every_generation
def test_a_resent_batch_is_cut_to_what_is_new(generation: str, timing: str) -> None:
    """A batch 1..10 comes again as part of what the sender repeats: nothing is delivered twice."""
    pair = Pair(generation, timing, max_batch=None)
    pair.cut("B", "A")
    pair.a.send(*numbered(1, 10))
    pair.intervals(3)
    pair.a.send(*numbered(11, 20))
    pair.intervals(3)
    pair.heal()
    pair.settle()

    assert pair.count("A", DATA) > 2
    assert pair.b.delivered == numbered(1, 20)
    pair.assert_idle()


@on_every_generation
def test_an_outage_in_the_middle_of_a_stream_loses_nothing(generation: str, timing: str) -> None:
    """Three seconds of silence in both directions; both sides go on sending all the while."""
    pair = Pair(generation, timing)
    for number in range(1, 51):
        if number == 10:
            pair.partition("A", "B")
        if number == 40:
            pair.heal()
        pair.a.send(b"%d" % number, to="B")
        pair.b.send(b"%d" % number, to="A")
        pair.advance(0.1)
    pair.settle()

    assert pair.a.delivered == pair.b.delivered == numbered(1, 50)
    pair.assert_idle()


@on("UNICAST2")
def test_a_receiver_that_is_not_asked_stays_silent(generation: str, timing: str) -> None:
    """UNICAST2: one ACK says that the connection stands; then only a report after the silence."""
    pair = Pair(generation, timing)
    for number in range(1, 101):
        pair.a.send(b"%d" % number)
        pair.advance(0.002)
    assert pair.count("B", ACK) == 1
    assert pair.count("B", XMIT_REQ) == 0

    pair.settle()
    assert pair.count("B", STABLE) <= 2
    assert pair.a.unacked("B") == 0
