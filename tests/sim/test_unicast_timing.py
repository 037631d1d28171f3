"""When acks, requests and resends leave, how many of them, and settings that change under way."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stormcast.node import trace
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.wire import ACK, CLOSE, DATA, SFS, STABLE, XMIT_REQ
from stormcast.node.settings import GENERATIONS
from tests.helpers.forge import Forger
from tests.helpers.world import ALWAYS, NEWEST, Pair, World, numbered, on, on_every_generation

COMPATIBLE = ("compatible",)
ASKING = ("UNICAST2", *NEWEST)


# -- Example 1: highest acked and highest sent ---------------------------------------------------


@on(*NEWEST, timings=COMPATIBLE)
def test_example_1_lost_messages_are_repaired_by_the_second_tick_and_then_it_is_silent(
    generation: str, timing: str
) -> None:
    """1..50 were sent, 45 are acked, 46 and 48 are lost. Tick 1 remembers, at tick 2 A repeats 50
    and B asks for 46 and 48, and that is all."""
    pair = Pair(generation, timing)
    pair.a.send(*numbered(1, 45))
    pair.settle()
    assert pair.a.unacked("B") == 0
    before = len(pair.wire)
    start = pair.now
    pair.drop("A", DATA, 46)
    pair.drop("A", DATA, 48)
    pair.a.send(*numbered(46, 50))
    pair.settle()

    assert pair.b.delivered == numbered(1, 50)
    after = pair.wire[before:]
    resent = sorted(sent.lo for sent in after if sent.kind == DATA and sent.at > start)
    (request,) = [sent for sent in after if sent.kind == XMIT_REQ]
    assert request.asks_for() == [(46, 46), (48, 48)]
    assert 1 < (request.at - start) / pair.interval <= 2
    # The ack of a tick crosses what A repeats at the same tick: 50 may go twice.
    assert resent[:3] == [46, 48, 50]
    assert resent[3:] in ([], [50])
    pair.assert_idle()


@on(*NEWEST)
def test_a_lost_ack_costs_resends_of_the_newest_only(generation: str, timing: str) -> None:
    """Ten messages arrived, their ack is lost: the last message is repeated, twice at most, since
    the ack of a tick crosses what A repeats at the same tick."""
    pair = Pair(generation, timing)
    # In `fast` the first of ten frames is acked at once, and the rest a millisecond later.
    pair.drop("B", ACK, times=1 if timing == "compatible" else 2)
    pair.a.send(*numbered(1, 10))
    pair.settle()

    resent = [event.lo for event in pair.a.events(trace.RETRANSMITTED)]
    assert resent in ([10], [10, 10])
    assert pair.a.unacked("B") == 0
    pair.assert_idle()


@on(*ASKING)
def test_nothing_is_repeated_while_the_highest_sent_moves(generation: str, timing: str) -> None:
    """No ack comes, but a new message before each look: highest acked and highest sent are not what
    they were at the look before. When A falls silent it repeats."""
    pair = Pair(generation, timing)
    pair.cut("B", "A")
    step = 0.02 if timing == "fast" else 0.9 * pair.interval
    for number in range(1, 41):
        pair.a.send(b"%d" % number)
        pair.advance(step)
    assert pair.a.events(trace.RETRANSMITTED) == []
    assert pair.a.unacked("B") == 40

    pair.intervals(3)
    assert pair.a.events(trace.RETRANSMITTED) != []


@on("UNICAST")
def test_unicast_repeats_everything_that_is_unacked(generation: str, timing: str) -> None:
    """Its acks are lost: all ten are repeated; this is what the later generations save."""
    pair = Pair(generation, timing)
    pair.drop("B", ACK, times=ALWAYS)
    pair.a.send(*numbered(1, 10))
    pair.intervals(3)
    pair.heal()
    pair.settle()

    assert {event.lo for event in pair.a.events(trace.RETRANSMITTED)} == set(range(1, 11))
    pair.assert_idle()


# -- Gaps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [0.05, 0.35, 0.95])
@on(*ASKING, timings=COMPATIBLE)
def test_a_gap_is_asked_for_between_one_and_two_intervals_after_it_appears_then_at_every_one(
    generation: str, timing: str, phase: float
) -> None:
    """The two-tick rule, at any phase of the grid; nothing of A's answers comes through."""
    pair = Pair(generation, timing)
    pair.open(1)
    pair.intervals(1 - pair.now / pair.interval % 1 + phase)
    pair.drop("A", DATA, 2)
    pair.a.send(b"2", b"3")
    appeared = pair.now + pair.delay
    pair.deliver()
    pair.drop("A", DATA, times=ALWAYS)
    pair.intervals(6)

    asked = [sent.at for sent in pair.sent("B", XMIT_REQ)]
    assert len(asked) >= 4
    assert 1 <= (asked[0] - appeared) / pair.interval <= 2
    assert [later - earlier for earlier, later in pairwise(asked)] == (
        pytest.approx([pair.interval] * (len(asked) - 1))
    )


@on(*ASKING)
def test_nothing_delivered_is_asked_for_and_no_request_is_larger_than_allowed(
    generation: str, timing: str
) -> None:
    """P-15, JGRP-2574: gaps of many sizes, requests of at most seven seqnos in three ranges."""
    pair = Pair(generation, timing, max_xmit_req_size=7, max_xmit_req_ranges=3)
    for seqno in (*range(2, 12), 14, 16, 18, *range(21, 40, 2)):
        pair.drop("A", DATA, seqno)
    pair.a.send(*numbered(1, 41))
    pair.settle()

    assert pair.b.delivered == numbered(1, 41)
    asked = []
    for request in pair.sent("B", XMIT_REQ):
        ranges = request.asks_for()
        assert len(ranges) <= 3
        assert sum(hi - lo + 1 for lo, hi in ranges) <= 7
        asked += [seqno for lo, hi in ranges for seqno in range(lo, hi + 1)]
    assert sorted(asked) == [*range(2, 12), 14, 16, 18, *range(21, 40, 2)]


@on(*ASKING)
def test_a_gap_that_fills_before_its_request_is_not_asked_for(generation: str, timing: str) -> None:
    """2 and 5 are missing; 2 comes by itself before the second look."""
    pair = Pair(generation, timing)
    two = pair.hold("A", DATA, 2)
    pair.drop("A", DATA, 5)
    pair.a.send(*numbered(1, 6))
    pair.advance(pair.delay)
    pair.release(two)
    pair.settle()

    assert pair.b.delivered == numbered(1, 6)
    assert {gap for one in pair.sent("B", XMIT_REQ) for gap in one.asks_for()} == {(5, 5)}


# -- Acks ----------------------------------------------------------------------------------------


@on(*NEWEST, timings=COMPATIBLE)
def test_there_is_one_ack_per_tick_and_one_per_full_threshold(generation: str, timing: str) -> None:
    """U-8, the example of the note: 101 messages within two seconds, and not an ack each."""
    pair = Pair(generation, timing, ack_threshold=40)
    for number in range(1, 102):
        pair.a.send(b"%d" % number)
        pair.advance(0.02)
    pair.settle()

    ticks = 2.02 / pair.interval + 1
    assert pair.count("B", ACK) <= ticks + 101 / 40
    assert pair.a.unacked("B") == 0


@on(*NEWEST, timings=COMPATIBLE)
def test_a_full_threshold_is_acked_at_once_and_one_less_is_not(
    generation: str, timing: str
) -> None:
    """The boundary: nine messages wait for the tick, ten do not."""
    for number, acks in ((9, 0), (10, 1)):
        pair = Pair(generation, timing, ack_threshold=10)
        pair.a.send(*numbered(1, number))
        pair.deliver()
        assert pair.count("B", ACK) == acks
        pair.intervals(1)
        assert pair.count("B", ACK) == 1


@on("UNICAST")
def test_unicast_acks_every_frame(generation: str, timing: str) -> None:
    pair = Pair(generation, timing)
    for payload in numbered(1, 20):
        pair.a.send(payload)
        pair.deliver()
    assert pair.count("B", ACK) == 20


@on(*NEWEST, "UNICAST")
def test_a_duplicate_is_acked_too(generation: str, timing: str) -> None:
    """A repeats only because it misses our ack: silence would make it repeat for ever."""
    world = World(generation, timing, members="B")
    frame = Forger(world, "A", "B").data(7, 1, b"1")
    world["B"].receive(frame)
    world.intervals(1)
    acks = world.count("B", ACK)
    world["B"].receive(frame)
    world.intervals(1)

    assert world.count("B", ACK) == acks + 1
    assert world["B"].delivered == [b"1"]


@on(*NEWEST)
def test_a_batch_is_acked_once(generation: str, timing: str) -> None:
    pair = Pair(generation, timing, max_batch=None, ack_threshold=1)
    for _ in range(5):
        pair.a.send(*numbered(1, 50))
        pair.deliver()
    assert pair.count("A", DATA) == pair.count("B", ACK) == 5


@on("UNICAST2", timings=COMPATIBLE)
def test_reports_of_an_unchanged_stream_end(generation: str, timing: str) -> None:
    """The report of UNICAST2 is lost each time; their number is limited while nothing arrives, and
    A, which repeats its last, gets one in the end."""
    pair = Pair(generation, timing, max_stable_msgs=3)
    pair.drop("B", STABLE, times=2)
    pair.a.send(*numbered(1, 5))
    pair.settle()

    assert pair.a.unacked("B") == 0
    assert pair.count("B", STABLE) <= 6
    pair.assert_idle(30.0)


@on("UNICAST2")
def test_a_report_that_lacks_the_end_of_the_stream_brings_it_at_once(
    generation: str, timing: str
) -> None:
    """JGRP-1548: B saw up to 3; A repeats 4 and 5, which are old enough to have arrived, and not 6,
    which may be under way (D-15: nor 3)."""
    world = World(generation, timing, members="A")
    a, b = world["A"], Forger(world, "B", "A")
    a.send(*numbered(1, 5))
    world.intervals(1)
    a.send(b"6")
    before = len(world.wire)
    a.receive(b.stable(a.sender("B").conn, 3, 3, 1))

    assert [sent.lo for sent in world.wire[before:]] == [4, 5]


@on("UNICAST2", timings=COMPATIBLE)
def test_many_bytes_are_reported_before_the_interval(generation: str, timing: str) -> None:
    """max_bytes of one sender cause a STABLE at once; one byte less does not."""
    for size, reports in ((99, 0), (100, 1)):
        pair = Pair(generation, timing, max_bytes=10 * (100 + 4))
        for _ in range(10):
            pair.a.send(bytes(size))
        pair.deliver()
        assert pair.count("B", STABLE) == reports


# -- Settings that change while the stack runs ---------------------------------------------------


@on(*ASKING, timings=COMPATIBLE)
def test_a_shorter_xmit_interval_repairs_sooner(generation: str, timing: str) -> None:
    """A gap at an interval of 100 s; half a minute later the interval becomes 100 ms."""
    pair = Pair(generation, timing, xmit_interval=100.0, conn_expiry_timeout=6000.0)
    pair.drop("A", DATA, 2)
    pair.a.send(*numbered(1, 3))
    pair.advance(30.0)
    assert pair.b.delivered == [b"1"]

    pair.b.set("xmit_interval", 0.1)
    pair.advance(0.25)
    assert pair.b.delivered == numbered(1, 3)


@on("UNICAST", "UNICAST2", *NEWEST, timings=COMPATIBLE)
def test_a_shorter_xmit_interval_of_the_sender_resends_sooner(generation: str, timing: str) -> None:
    """The only message is lost at an interval of 100 s."""
    pair = Pair(generation, timing, xmit_interval=100.0, conn_expiry_timeout=6000.0)
    pair.drop("A", DATA)
    pair.a.send(b"1")
    pair.advance(50.0)
    pair.a.set("xmit_interval", 0.1)
    pair.advance(0.25)

    assert pair.b.delivered == [b"1"]


@on("UNICAST3", timings=COMPATIBLE)
def test_a_shorter_xmit_interval_asks_sooner_for_the_first_message(
    generation: str, timing: str
) -> None:
    """The SFS of the first UNICAST3 waits for a tick 100 s away; the interval becomes 100 ms."""
    pair = Pair(generation, timing, xmit_interval=100.0, conn_expiry_timeout=6000.0)
    pair.drop("A", DATA, 1)
    pair.a.send(*numbered(1, 3))
    pair.advance(30.0)
    assert pair.count("B", SFS) == 0
    pair.b.set("xmit_interval", 0.1)
    pair.advance(0.15)

    assert pair.count("B", SFS) == 1
    assert pair.b.delivered == numbered(1, 3)


@on("UNICAST2", *NEWEST, timings=COMPATIBLE)
def test_a_shorter_xmit_interval_of_the_receiver_acks_sooner(generation: str, timing: str) -> None:
    """The ack (or report) of ten messages waits for a tick 100 s away; the interval becomes
    100 ms."""
    pair = Pair(generation, timing, xmit_interval=100.0, conn_expiry_timeout=6000.0)
    pair.a.send(*numbered(1, 10))
    pair.advance(30.0)
    assert pair.a.unacked("B") >= 9  # UNICAST2 acked the first.
    pair.b.set("xmit_interval", 0.1)
    pair.advance(0.25)

    assert pair.a.unacked("B") == 0


@on("UNICAST", "UNICAST2", *NEWEST, timings=COMPATIBLE)
def test_a_longer_xmit_interval_resends_more_seldom(generation: str, timing: str) -> None:
    """Nobody answers: ten intervals of 1 s, then 40 s of intervals of 10 s."""
    world = World(
        generation,
        timing,
        members="A",
        xmit_interval=1.0,
        max_retransmit_time=0.0,
        conn_expiry_timeout=6000.0,
    )
    world["A"].send(b"1", to="X")
    world.advance(10.5)
    often = world.count("A", DATA)
    world["A"].set("xmit_interval", 10.0)
    world.advance(40.0)

    assert often >= 9
    assert 3 <= world.count("A", DATA) - often <= 4


@on("UNICAST", "UNICAST2", "UNICAST3-SYNC", "UNICAST4", timings=COMPATIBLE)
def test_a_shorter_sync_min_interval_asks_more_often(generation: str, timing: str) -> None:
    """B has no window and hears a message every 100 ms: two SFS in ten seconds, then one each
    second."""
    pair = Pair(generation, timing, sync_min_interval=8.0, conn_expiry_timeout=6000.0)
    pair.open()
    pair.b.forget("A")
    pair.cut("B", "A")

    def talk(seconds: int) -> int:
        before = pair.count("B", SFS)
        for _ in range(10 * seconds):
            pair.a.send(b"x")
            pair.advance(0.1)
        return pair.count("B", SFS) - before

    assert talk(10) == 2
    pair.b.set("sync_min_interval", 1.0)
    assert 9 <= talk(10) <= 10


@on_every_generation
def test_a_shorter_conn_expiry_timeout_closes_what_is_idle(generation: str, timing: str) -> None:
    """An hour of patience becomes two seconds, for connections that exist."""
    pair = Pair(generation, timing, conn_expiry_timeout=3600.0, conn_close_timeout=3600.0)
    pair.open()
    pair.advance(60.0)
    pair.a.set("conn_expiry_timeout", 2.0)
    pair.advance(2.1)

    closing = [event.stream for event in pair.a.events(trace.CONN)][-2:]
    assert sorted(closing) == [trace.SENDER_CLOSING, trace.RECEIVER_CLOSING]


@on_every_generation
def test_a_shorter_conn_close_timeout_removes_what_is_closing(generation: str, timing: str) -> None:
    pair = Pair(generation, timing, conn_expiry_timeout=3600.0, conn_close_timeout=3600.0)
    pair.open()
    pair.a.close("B")
    pair.advance(60.0)
    assert pair.a.sender("B") is not None
    pair.a.set("conn_close_timeout", 2.0)
    pair.advance(2.1)

    assert pair.a.sender("B") is pair.a.receiver("B") is None
    assert pair.count("A", CLOSE) == 1


@on_every_generation
def test_a_shorter_max_retransmit_time_gives_strangers_up(generation: str, timing: str) -> None:
    world = World(
        generation, timing, members="A", max_retransmit_time=3600.0, conn_expiry_timeout=3600.0
    )
    world["A"].send(b"1", to="X")
    world.advance(60.0)
    world["A"].set("max_retransmit_time", 5.0)
    world.advance(0.1)

    assert world["A"].sender("X") is None


@on(*ASKING)
def test_a_smaller_max_xmit_req_size_makes_smaller_requests(generation: str, timing: str) -> None:
    pair = Pair(generation, timing)
    pair.b.set("max_xmit_req_size", 3)
    for seqno in range(2, 12):
        pair.drop("A", DATA, seqno)
    pair.a.send(*numbered(1, 12))
    pair.settle()

    sizes = [sum(hi - lo + 1 for lo, hi in one.asks_for()) for one in pair.sent("B", XMIT_REQ)]
    assert max(sizes) == 3
    assert pair.b.delivered == numbered(1, 12)


@on(*NEWEST, timings=COMPATIBLE)
def test_a_smaller_ack_threshold_acks_sooner(generation: str, timing: str) -> None:
    pair = Pair(generation, timing, ack_threshold=100)
    pair.a.send(*numbered(1, 10))
    pair.deliver()
    assert pair.count("B", ACK) == 0
    pair.settle()
    acks = pair.count("B", ACK)
    pair.b.set("ack_threshold", 5)
    pair.a.send(*numbered(11, 15))
    pair.deliver()

    assert pair.count("B", ACK) == acks + 1


@on("UNICAST2", timings=COMPATIBLE)
def test_fewer_max_bytes_report_sooner(generation: str, timing: str) -> None:
    pair = Pair(generation, timing)
    pair.b.set("max_bytes", 1000)
    pair.a.send(bytes(2000))
    pair.deliver()
    assert pair.count("B", STABLE) == 1


@on("UNICAST2", timings=COMPATIBLE)
def test_a_shorter_stable_interval_reports_while_the_stream_runs(
    generation: str, timing: str
) -> None:
    """A stream that never pauses is reported after the stable interval, not before."""
    pair = Pair(generation, timing)

    def talk(seconds: int) -> int:
        before = pair.count("B", STABLE)
        for _ in range(10 * seconds):
            pair.a.send(b"x")
            pair.advance(0.1)
        return pair.count("B", STABLE) - before

    talk(5)
    assert talk(20) <= 1
    pair.b.set("stable_interval", 4.0)
    assert talk(20) >= 4


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_must_not_change_says_what_may(generation: str) -> None:
    pair = Pair(generation)
    with pytest.raises(ConfigError, match="window_messages can not change at run time; what can:"):
        pair.a.set("window_messages", 7)
    with pytest.raises(ConfigError, match="xmit_interval is 0"):
        pair.a.set("xmit_interval", 0)
