"""One side forgets the other: how they find each other again, and what may not come back (G7)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from stormcast.node import trace
from stormcast.node.core.model import FIRST, OOB
from stormcast.node.core.serial import is_newer
from stormcast.node.core.wire import ACK, CLOSE, DATA, RESET_TO, SFS, STABLE, XMIT_REQ
from stormcast.node.protocols.unicast.entries import ReceiverEntry, SenderEntry, State
from tests.helpers.forge import Forger
from tests.helpers.world import (
    ALWAYS,
    EVERY,
    TIMINGS,
    Member,
    Pair,
    World,
    numbered,
    on,
    on_every_generation,
)

SCENARIOS = on("UNICAST2", "UNICAST3-SYNC", "UNICAST4")
"""Where the nine scenarios of the UNICAST2 note are run."""

End = Callable[[Member, str], None]


def softly(member: Member, peer: str) -> None:
    """The protocol's own close: state CLOSING, everything still there."""
    member.close(peer)


def hard(member: Member, peer: str) -> None:
    """The state is lost, as a close of old lost it."""
    member.forget(peer)


both_ways = pytest.mark.parametrize("end", [softly, hard])


def sending(member: Member, peer: str = "B") -> SenderEntry:
    entry = member.sender(peer)
    assert entry is not None
    return entry


def receiving(member: Member, peer: str = "A") -> ReceiverEntry:
    entry = member.receiver(peer)
    assert entry is not None
    return entry


# -- One side, or both, close ------------------------------------------------------------------


@both_ways
@on_every_generation
def test_after_both_closed_exactly_the_new_messages_arrive(
    generation: str, timing: str, end: End
) -> None:
    """U-02: ten each way, both close, ten more each way."""
    pair = Pair(generation, timing, conn_close_timeout=60.0)
    pair.open()
    end(pair.a, "B")
    end(pair.b, "A")
    pair.a.send(*numbered(11, 20), to="B")
    pair.b.send(*numbered(11, 20), to="A")
    pair.settle()

    assert pair.a.delivered == pair.b.delivered == numbered(11, 20)
    pair.assert_idle()


@both_ways
@on_every_generation
def test_after_the_sender_closed_exactly_the_new_messages_arrive(
    generation: str, timing: str, end: End
) -> None:
    """U-03: A closes alone; hard, its stream starts at 1 again and B must switch windows."""
    pair = Pair(generation, timing, conn_close_timeout=60.0)
    pair.open()
    before = receiving(pair.b).conn
    end(pair.a, "B")
    pair.a.send(*numbered(11, 20))
    pair.settle()

    assert pair.b.delivered == numbered(11, 20)
    after = receiving(pair.b).conn
    assert is_newer(after, before) if end is hard else after == before
    pair.assert_idle()


@both_ways
@on_every_generation
def test_after_the_receiver_closed_exactly_the_new_messages_arrive(
    generation: str, timing: str, end: End
) -> None:
    """U-04: B closes alone; hard, it asks for the first seqno of a stream that is at 11."""
    pair = Pair(generation, timing, conn_close_timeout=60.0)
    pair.open()
    before = receiving(pair.b).conn
    end(pair.b, "A")
    pair.a.send(*numbered(11, 20))
    pair.settle()

    assert pair.b.delivered == numbered(11, 20)
    assert receiving(pair.b).conn == before
    assert (pair.count("B", SFS) > 0) == (end is hard)
    pair.assert_idle()


@on_every_generation
def test_a_receiver_acks_what_is_pending_before_it_forgets(generation: str, timing: str) -> None:
    """U-05: B forgets right after ten messages, before any ack was due; ten more follow."""
    pair = Pair(generation, timing)
    pair.a.send(*numbered(1, 10))
    pair.advance(pair.delay)
    assert pair.b.take() == numbered(1, 10)
    pair.b.forget("A")
    pair.deliver()
    assert pair.a.unacked("B") == 0

    pair.a.send(*numbered(11, 20))
    pair.settle()
    assert pair.b.delivered == numbered(11, 20)
    pair.assert_idle()


@on_every_generation
def test_a_receiver_that_forgets_in_the_middle_of_a_stream_misses_nothing_new(
    generation: str, timing: str
) -> None:
    """P-07 on a wire that keeps its order: every frame of 30 is followed by a lapse of memory."""
    for lapse in range(1, 30, 4):
        pair = Pair(generation, timing)
        for number in range(1, 31):
            pair.a.send(b"%d" % number)
            pair.advance(pair.delay / 3)
            if number == lapse:
                pair.b.forget("A")
        pair.settle()
        assert pair.b.delivered == numbered(1, 30), f"forgot after {lapse}"
        pair.assert_idle()


@on_every_generation
def test_a_restarted_peer_is_a_stranger_and_gets_only_what_is_meant_for_it(
    generation: str, timing: str
) -> None:
    """B crashes and comes back as another process: nothing of the old stream reaches it."""
    pair = Pair(generation, timing)
    pair.open()
    pair.partition("A", "B")
    pair.a.send(*numbered(11, 20))
    pair.intervals(2)
    pair.b.crash()
    pair.heal()
    reborn = pair.start("B")
    pair.a.send(*numbered(21, 30))
    pair.intervals(10)

    assert reborn.delivered == numbered(21, 30)


# -- The nine scenarios of the UNICAST2 note -----------------------------------------------------


@SCENARIOS
def test_scenario_1_a_opens(generation: str, timing: str) -> None:
    """A has no entry for B: it opens one under a new id, and message 1 says it is the first."""
    pair = Pair(generation, timing)
    assert pair.a.sender("B") is None
    pair.a.send(b"1")

    (opening,) = pair.sent("A")
    assert (opening.kind, opening.lo) == (DATA, 1)
    assert opening.head.flags & FIRST
    assert opening.head.conn == sending(pair.a).conn != 0
    pair.a.send(b"2")
    following = pair.wire[-1]
    assert (following.lo, following.head.conn) == (2, opening.head.conn)
    assert not following.head.flags & FIRST


@SCENARIOS
def test_scenario_2_b_sees_the_opening(generation: str, timing: str) -> None:
    """B opens a window under A's id, delivers, and says so."""
    pair = Pair(generation, timing)
    pair.a.send(b"1")
    pair.deliver()

    entry = receiving(pair.b)
    assert pair.b.delivered == [b"1"]
    assert (entry.conn, entry.window.delivered) == (sending(pair.a).conn, 1)
    pair.intervals(1)
    (ack,) = pair.sent("B", ACK)
    assert (ack.lo, ack.head.conn) == (1, entry.conn)
    assert sending(pair.a).established


@SCENARIOS
def test_scenario_3_both_close(generation: str, timing: str) -> None:
    """Both forgot both halves: the next message either way is number 1 of a new connection."""
    pair = Pair(generation, timing)
    pair.open()
    old = {sending(pair.a, "B").conn, sending(pair.b, "A").conn}
    hard(pair.a, "B")
    hard(pair.b, "A")
    before = len(pair.wire)
    pair.a.send(b"x", to="B")
    pair.b.send(b"y", to="A")

    opened = pair.wire[before:]
    assert [(sent.source, sent.lo) for sent in opened] == [("A", 1), ("B", 1)]
    assert all(sent.head.flags & FIRST and sent.head.conn not in old for sent in opened)
    pair.settle()
    assert (pair.b.delivered, pair.a.delivered) == ([b"x"], [b"y"])


@SCENARIOS
def test_scenario_4_a_closes_alone_then_sends(generation: str, timing: str) -> None:
    """B switches to the newer id; a late message 26 of the old connection is not delivered."""
    pair = Pair(generation, timing)
    pair.open(25)
    held = pair.hold("A", DATA, 26)
    pair.a.send(b"late")
    hard(pair.a, "B")
    pair.a.send(b"new")
    pair.deliver()
    assert pair.b.delivered == [b"new"]
    asked = pair.count("B", SFS)

    pair.release(held)
    pair.deliver()
    assert pair.b.delivered == [b"new"]
    assert pair.b.refused["old-connection"] == 1
    assert pair.count("B", SFS) == asked
    pair.settle()
    pair.assert_idle()


@SCENARIOS
def test_scenario_5_b_closes_alone_and_a_sends(generation: str, timing: str) -> None:
    """A retains 21..25 because no ack came through: B is sent those again, and 26, from 21 on. It
    has forgotten A, but not what it delivered: only 26 is new (G2)."""
    pair = Pair(generation, timing, conn_expiry_timeout=600.0)
    pair.open(20)
    pair.cut("B", "A")
    pair.a.send(*numbered(21, 25))
    pair.deliver()
    assert pair.b.take() == numbered(21, 25)
    hard(pair.b, "A")
    pair.heal()
    assert sending(pair.a).window.low == 20

    pair.a.send(b"26")
    pair.deliver()
    if generation != "UNICAST2":  # Its answer brings the newest with the lowest (D-9).
        (answer,) = [sent for sent in pair.wire if sent.head.stamp and sent.kind == DATA]
        assert answer.lo == 21
        assert answer.head.flags & FIRST
    pair.settle()
    assert pair.b.delivered == [b"26"]
    assert receiving(pair.b).conn == sending(pair.a).conn
    pair.assert_idle()


@on_every_generation
def test_what_was_delivered_before_a_long_silence_is_not_delivered_after_it(
    generation: str, timing: str
) -> None:
    """Nothing comes back from B, which then finds A idle and removes its window. In time it forgets
    that it did, but not what it delivered: 5 out of band, before its turn."""
    pair = Pair(generation, timing, conn_expiry_timeout=600.0)
    pair.open(2)
    pair.cut("B", "A")
    lost = pair.drop("A", DATA, 4)
    for number in range(3, 7):
        pair.a.send(b"%d" % number, flags=OOB if number == 5 else 0)
        pair.deliver()
    assert lost.taken == 1
    assert pair.b.take() == [b"3", b"5"]
    pair.cut("A", "B")
    pair.b.set("conn_expiry_timeout", 5.0)
    pair.b.set("conn_close_timeout", 5.0)
    pair.advance(30.0)
    assert pair.b.receiver("A") is None
    assert sending(pair.a).window.low < 3

    pair.heal()
    pair.settle()
    assert pair.b.delivered == [b"4", b"6"]
    pair.assert_idle()


@SCENARIOS
def test_scenario_6_the_first_message_of_the_new_connection_is_lost(
    generation: str, timing: str
) -> None:
    """1 of c2 is lost, while B still holds the window of c1: 2 and 3 go into no window, nothing of
    c2 is acked before it has one, and 1 2 3 arrive (JGRP-968)."""
    pair = Pair(generation, timing)
    pair.open(25)
    hard(pair.a, "B")
    lost = pair.drop("A", DATA, 1)
    held = pair.hold("B", SFS)
    pair.a.send(*numbered(1, 3))
    pair.deliver()
    assert lost.taken == 1
    assert pair.b.delivered == []
    assert receiving(pair.b).conn != sending(pair.a).conn
    new = sending(pair.a).conn
    assert pair.count("B", ACK, conn=new) + pair.count("B", STABLE, conn=new) == 0

    pair.release(held)
    pair.settle()
    assert pair.b.delivered == numbered(1, 3)
    assert receiving(pair.b).conn == new
    pair.assert_idle()


@SCENARIOS
def test_scenario_7_two_that_were_alone_merge(generation: str, timing: str) -> None:
    """Views {A} and {B} outlast the close timeout; after the healing both start anew."""
    pair = Pair(generation, timing, conn_close_timeout=2.0, conn_expiry_timeout=600.0)
    pair.open()
    pair.partition("A", "B")
    pair.a.see("A")
    pair.b.see("B")
    pair.advance(3.0)
    assert pair.a.sender("B") is pair.a.receiver("B") is None
    assert pair.b.sender("A") is pair.b.receiver("A") is None

    pair.heal()
    pair.a.see("A", "B")
    pair.b.see("A", "B")
    pair.a.send(*numbered(1, 5), to="B")
    pair.b.send(*numbered(1, 5), to="A")
    pair.deliver()
    assert pair.a.delivered == pair.b.delivered == numbered(1, 5)
    assert pair.count(kind=SFS) == 0
    pair.settle()
    pair.assert_idle()


@SCENARIOS
def test_scenario_8_a_dropped_its_half_and_b_did_not(generation: str, timing: str) -> None:
    """A:{A}, B:{A,B}, and the CLOSE is lost: A's next message opens a new connection, B replaces
    its window."""
    pair = Pair(generation, timing, conn_close_timeout=2.0, conn_expiry_timeout=600.0)
    pair.drop("A", CLOSE)
    pair.b.see("A", "B")
    pair.open()
    old = receiving(pair.b).conn
    pair.a.see("A")
    pair.advance(3.0)
    assert pair.a.sender("B") is None
    assert receiving(pair.b).conn == old

    pair.a.send(*numbered(1, 5))
    pair.deliver()
    assert pair.b.delivered == numbered(1, 5)
    assert is_newer(receiving(pair.b).conn, old)


@SCENARIOS
def test_scenario_9_b_dropped_its_half_and_a_did_not(generation: str, timing: str) -> None:
    """A:{A,B}, B:{B}: A goes on at 25, B asks for the first, and gets exactly what is new."""
    pair = Pair(generation, timing, conn_close_timeout=2.0, conn_expiry_timeout=600.0)
    pair.a.see("A", "B")
    pair.open(24)
    pair.b.see("B")
    pair.advance(3.0)
    assert pair.b.receiver("A") is None
    before = len(pair.wire)

    pair.a.send(*numbered(25, 30))
    assert pair.wire[before].lo == 25
    pair.settle()
    assert pair.count("B", SFS) > 0
    assert pair.b.delivered == numbered(25, 30)
    pair.assert_idle()


# -- The worked examples of UNICAST3 with sync ---------------------------------------------------


@on_every_generation
def test_example_2_an_ack_that_is_overtaken_by_a_sync_purges_nothing(
    generation: str, timing: str
) -> None:
    """JGRP-1873: the ACK of 25 is stuck while B forgets A and asks for the first seqno; believed
    when it comes at last, it would purge what the new window waits for."""
    pair = Pair(generation, timing, conn_expiry_timeout=600.0)
    pair.open(20)
    acks = pair.hold("B", STABLE if generation == "UNICAST2" else ACK)
    pair.a.send(*numbered(21, 25))
    while not acks.held:
        pair.intervals(1)
    assert pair.b.take() == numbered(21, 25)
    hard(pair.b, "A")
    sync = pair.hold("A", DATA, 21)
    pair.a.send(b"26")
    while not sync.held:
        pair.intervals(0.5)

    pair.release(acks)
    pair.deliver()
    assert pair.a.refused["stable-old-stamp" if generation == "UNICAST2" else "ack-old-stamp"] >= 1
    assert sending(pair.a).window.low == 20

    pair.release(sync)
    pair.settle()
    assert pair.b.delivered == [b"26"]
    pair.assert_idle()


@on("UNICAST3", "UNICAST3-SYNC", "UNICAST4")
def test_example_3_a_split_that_heals_before_the_close_timeout_changes_nothing(
    generation: str, timing: str
) -> None:
    """A:{A,B}, B:{B}, both busy: B's entries are CLOSING but whole. UNICAST and UNICAST2 remove at
    once, and are not promised here."""
    pair = Pair(generation, timing, conn_close_timeout=20.0, conn_expiry_timeout=600.0)
    pair.a.see("A", "B")
    pair.b.see("A", "B")
    pair.open()
    names = {member.name: _conns(member) for member in pair}
    pair.partition("A", "B")
    pair.a.send(*numbered(11, 15), to="B")
    pair.b.send(*numbered(11, 15), to="A")
    pair.intervals(2)
    pair.b.see("B")
    assert receiving(pair.b).state is State.CLOSING
    pair.a.send(*numbered(16, 20), to="B")
    pair.intervals(4)

    pair.heal()
    pair.settle()
    assert receiving(pair.b).state is State.OPEN
    pair.b.see("A", "B")
    pair.b.send(*numbered(16, 20), to="A")
    pair.settle()
    assert pair.a.delivered == pair.b.delivered == numbered(11, 20)
    assert names == {member.name: _conns(member) for member in pair}
    pair.assert_idle()


@on("UNICAST3", "UNICAST3-SYNC", "UNICAST4")
def test_example_3_a_split_that_heals_after_the_close_timeout_starts_anew(
    generation: str, timing: str
) -> None:
    """A→B: B asks for the first; B→A: B opens a new id, and A replaces its window. What B had not
    got acked in the old connection is lost, and nothing comes twice."""
    pair = Pair(generation, timing, conn_close_timeout=2.0, conn_expiry_timeout=600.0)
    pair.a.see("A", "B")
    pair.b.see("A", "B")
    pair.open()
    old = receiving(pair.a, "B").conn
    pair.partition("A", "B")
    pair.a.send(*numbered(11, 15), to="B")
    pair.b.send(b"lost", to="A")
    pair.b.see("B")
    pair.advance(4.0)
    assert pair.b.receiver("A") is pair.b.sender("A") is None

    pair.heal()
    pair.b.see("A", "B")
    pair.a.send(*numbered(16, 20), to="B")
    pair.b.send(*numbered(16, 20), to="A")
    pair.settle()
    assert pair.b.delivered == numbered(11, 20)
    assert pair.a.delivered == numbered(16, 20)
    assert is_newer(receiving(pair.a, "B").conn, old)
    pair.assert_idle()


@on_every_generation
def test_example_3_views_that_differ_while_packets_flow_do_not_stop_unicasts(
    generation: str, timing: str
) -> None:
    """A:{A,B}, B:{B} on a perfect wire: both directions go on."""
    pair = Pair(generation, timing)
    pair.a.see("A", "B")
    pair.b.see("A", "B")
    pair.open()
    pair.b.see("B")
    pair.a.send(*numbered(11, 20), to="B")
    pair.b.send(*numbered(11, 20), to="A")
    pair.settle()

    assert pair.a.delivered == pair.b.delivered == numbered(11, 20)
    pair.assert_idle()


@on("UNICAST3", "UNICAST3-SYNC", "UNICAST4")
def test_example_4_a_thousand_messages_without_a_window_cause_one_sync_and_one_answer(
    generation: str, timing: str
) -> None:
    """JGRP-1874: B has no entry, 101..1100 are in flight: one SFS, one message in return, and
    requests for the rest. UNICAST and UNICAST2 answer with more than the lowest."""
    pair = Pair(generation, timing)
    pair.open(100)
    flight = pair.hold("A", DATA)
    pair.a.send(*numbered(101, 1100))
    hard(pair.b, "A")
    # The highest and most others are lost; what arrives has no window.
    pair.release(flight, lambda frames: frames[1:-100])
    pair.settle()

    assert pair.b.delivered == numbered(101, 1100)
    assert pair.count("B", SFS) == 1
    (answer,) = [sent for sent in pair.sent("A", DATA) if sent.head.stamp]
    assert (answer.lo, answer.hi) == (101, 101)
    pair.assert_idle()


@on_every_generation
def test_syncs_to_one_sender_keep_their_distance(generation: str, timing: str) -> None:
    """U-7: no answer comes through for ten seconds, while A goes on sending."""
    pair = Pair(generation, timing, conn_expiry_timeout=600.0)
    pair.open()
    hard(pair.b, "A")
    pair.cut("B", "A")
    for number in range(11, 111):
        pair.a.send(b"%d" % number)
        pair.advance(0.1)
    times = [sent.at for sent in pair.sent("B", SFS)]
    spacing = pair.b.stack.unicast.bounds()["sync_spacing"]

    assert len(times) >= 2
    assert min(later - earlier for earlier, later in pairwise(times)) >= (spacing * 0.999)
    pair.heal()
    pair.settle()
    assert pair.b.delivered == numbered(11, 110)
    pair.assert_idle()


@on_every_generation
def test_the_least_time_between_two_syncs_is_what_it_is_set_to(
    generation: str, timing: str
) -> None:
    """Set to ten seconds, in either timing: two in twenty seconds."""
    pair = Pair(generation, timing, conn_expiry_timeout=6000.0, sync_min_interval=10.0)
    pair.open()
    hard(pair.b, "A")
    pair.cut("B", "A")
    for _ in range(195):
        pair.a.send(b"x")
        pair.advance(0.1)
    times = [sent.at for sent in pair.sent("B", SFS)]
    assert len(times) == 2
    assert times[1] - times[0] >= 10.0


@on_every_generation
def test_fast_asks_more_often_where_nobody_set_how_often(generation: str, timing: str) -> None:
    """Two seconds in `compatible` (each look, in the first UNICAST3), round trips in `fast`."""
    pair = Pair(generation, timing, conn_expiry_timeout=600.0)
    pair.open()
    hard(pair.b, "A")
    pair.cut("B", "A")
    for _ in range(190):
        pair.a.send(b"x")
        pair.advance(0.01)
    often = pair.count("B", SFS)
    if timing == "fast":
        assert often >= 4
    else:
        assert often == (4 if generation == "UNICAST3" else 1)


@pytest.mark.parametrize("after", ["sfs", "ack"])
@on_every_generation
def test_a_sync_that_is_not_newer_than_what_was_believed_is_dropped(
    generation: str, timing: str, after: str
) -> None:
    """Its timestamp must be above those of all acks and syncs before: an old or an equal one is
    counted and brings nothing, the next one brings the lowest message."""
    world = World(generation, timing, members="A")
    a, b = world["A"], Forger(world, "B", "A")
    a.send(*numbered(1, 3))
    conn = sending(a).conn
    a.receive(b.sfs(conn, 1, 10) if after == "sfs" else b.ack(conn, 1, 10))
    answered = world.count("A", DATA)
    before = a.state()
    for stamp in (10, 9, 1, 10):
        a.receive(b.sfs(conn, 3, stamp))
    assert world.count("A", DATA) == answered
    assert a.state() == before
    assert a.refused["sfs-old-stamp"] == 4

    a.receive(b.sfs(conn, 3, 11))
    answer = world.sent("A", DATA)[answered]
    assert (answer.lo, answer.head.stamp) == (1 if after == "sfs" else 2, 11)
    assert answer.head.flags & FIRST


# -- What must not come back ---------------------------------------------------------------------


@pytest.mark.parametrize("copy", ["message", "answer"])
@on_every_generation
def test_a_late_first_frame_does_not_reopen_a_removed_connection(
    generation: str, timing: str, copy: str
) -> None:
    """R-3: a copy of message 1, or of the answer to an earlier sync, comes after the removal: the
    tombstone says no."""
    pair = Pair(generation, timing)
    pair.a.send(*numbered(1, 5))
    pair.settle()
    if copy == "answer":
        hard(pair.b, "A")
        pair.a.send(*numbered(6, 10))
        pair.settle()
    firsts = [sent for sent in pair.sent("A", DATA) if sent.head.flags & FIRST]
    late = firsts[-1]
    assert bool(late.head.stamp) == (copy == "answer")
    pair.b.take()
    hard(pair.b, "A")

    pair.b.receive(late.data)
    pair.settle()
    assert pair.b.receiver("A") is None
    assert pair.b.delivered == []

    pair.a.send(*numbered(11, 15))
    pair.settle()
    assert pair.b.delivered == numbered(11, 15)
    pair.assert_idle()


@on_every_generation
def test_a_late_first_frame_does_not_reopen_what_its_sender_closed(
    generation: str, timing: str
) -> None:
    """R-3 after a CLOSE: the copy of message 1 is not delivered a second time."""
    pair = Pair(generation, timing, conn_close_timeout=3.0)
    pair.a.send(*numbered(1, 5))
    pair.settle()
    (first,) = pair.sent("A", DATA, 1)
    pair.a.close("B")
    pair.advance(3.1)
    assert pair.b.receiver("A") is None
    pair.b.take()

    pair.b.receive(first.data)
    pair.settle()
    assert pair.b.delivered == []

    pair.a.send(b"new")
    pair.settle()
    assert pair.b.delivered == [b"new"]


@on_every_generation
def test_no_first_frame_of_any_earlier_connection_passes_the_tombstone(
    generation: str, timing: str
) -> None:
    """R-3: the third connection is removed; the openings of all three come again, oldest first."""
    pair = Pair(generation, timing)
    for number in range(1, 4):
        pair.a.send(b"%d" % number)
        pair.settle()
        hard(pair.a, "B")
    hard(pair.b, "A")
    openings = [sent for sent in pair.sent("A", DATA, 1) if sent.head.flags & FIRST]
    assert pair.b.take() == numbered(1, 3)

    for opening in openings:
        pair.b.receive(opening.data)
    pair.settle()
    assert len({opening.head.conn for opening in openings}) == 3
    assert pair.b.receiver("A") is None
    assert pair.b.delivered == []


@pytest.mark.parametrize(("seconds", "opens"), [(4.9, False), (5.1, True)])
@on_every_generation
def test_a_tombstone_stands_for_the_close_timeout_as_it_is_set_by_then(
    generation: str,
    timing: str,
    seconds: float,
    opens: bool,
) -> None:
    """The boundary: no frame may be under way for longer than conn_close_timeout. What it brings
    was delivered, and is not again (G2)."""
    pair = Pair(generation, timing, conn_close_timeout=600.0)
    pair.b.set("conn_close_timeout", 5.0)
    pair.a.send(b"1")
    pair.settle()
    hard(pair.b, "A")
    pair.b.take()
    pair.advance(seconds)

    pair.b.receive(pair.sent("A", DATA, 1)[0].data)
    assert (pair.b.receiver("A") is not None) == opens
    assert pair.b.delivered == []


@on_every_generation
def test_a_first_frame_of_a_newer_connection_passes_the_tombstone(
    generation: str, timing: str
) -> None:
    """The tombstone names one connection and what came before it, not those that follow."""
    pair = Pair(generation, timing)
    for number in range(1, 6):
        pair.a.send(b"%d" % number)
        pair.settle()
        hard(pair.a, "B")
        hard(pair.b, "A")
    assert pair.b.delivered == numbered(1, 5)
    assert pair.count("B", SFS) == 0


@on_every_generation
def test_frames_of_an_older_connection_are_ignored_in_any_order(
    generation: str, timing: str
) -> None:
    """P-05, G7: three connections follow each other; everything of the first two comes again."""
    pair = Pair(generation, timing)
    for number in range(1, 4):
        pair.a.send(b"%d" % number, b"%d more" % number)
        pair.settle()
        if number < 3:
            hard(pair.a, "B")
    current = receiving(pair.b).conn
    delivered = pair.b.take()
    asked = pair.count("B", SFS)
    old = [sent for sent in pair.sent("A", DATA) if sent.head.conn != current]
    assert len(delivered) == 6

    for sent in [*old, *reversed(old)]:
        pair.b.receive(sent.data)
    pair.settle()
    assert pair.b.delivered == []
    assert receiving(pair.b).conn == current
    assert pair.count("B", SFS) == asked
    assert pair.b.refused["old-connection"] == 2 * len(old)
    pair.assert_idle()


@pytest.mark.parametrize(
    ("generation", "kind"),
    [(generation, kind) for generation in EVERY for kind in ("ack", "sfs", "request")]
    + [("UNICAST2", "stable")],
)
@pytest.mark.parametrize("timing", TIMINGS)
def test_what_speaks_of_another_connection_changes_nothing_at_the_sender(
    generation: str, timing: str, kind: str
) -> None:
    """P-05, JGRP-1577: a late control frame of the previous connection reaches the new one."""
    pair = Pair(generation, timing)
    pair.open(5)
    old = sending(pair.a).conn
    hard(pair.a, "B")
    pair.cut("A", "B")
    pair.a.send(*numbered(1, 5))
    b = Forger(pair, "B", "A")
    frame = {
        "ack": b.ack(old, 5, 1000),
        "sfs": b.sfs(old, 5, 1000),
        "request": b.request(old, (1, 5)),
        "stable": b.stable(old, 5, 5, 1000),
    }[kind]
    before = pair.a.state()
    sent = pair.count("A", DATA)

    pair.a.receive(frame)
    assert pair.a.state() == before
    assert pair.count("A", DATA) == sent
    assert pair.a.refused[f"{kind}-other-connection"] == 1


@on_every_generation
def test_a_request_for_what_was_acked_is_answered_with_the_end_of_it(
    generation: str, timing: str
) -> None:
    """R-5: nothing can be sent for seqnos at or below the acked: RESET_TO, and no endless
    request."""
    pair = Pair(generation, timing)
    pair.open(10)
    entry = sending(pair.a)
    pair.a.receive(Forger(pair, "B", "A").request(entry.conn, (2, 3)))

    (reset,) = pair.sent("A", RESET_TO)
    assert (reset.head.conn, reset.lo) == (entry.conn, 10)
    pair.deliver()
    # B has delivered all of that: it skips nothing.
    assert pair.b.events(trace.SKIPPED) == []
    assert receiving(pair.b).window.delivered == 10


@on("UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")
def test_what_a_forgetful_sender_can_not_resend_is_not_asked_for_for_ever(
    generation: str, timing: str
) -> None:
    """R-5: 2 is lost and A forgets B: nobody can ever answer B's request for it. B falls silent,
    and the next connection starts clean. UNICAST asks for nothing."""
    pair = Pair(generation, timing, conn_expiry_timeout=600.0)
    pair.drop("A", DATA, 2)
    pair.a.send(*numbered(1, 3))
    pair.deliver()
    pair.a.forget("B")
    pair.settle()
    pair.assert_silent()

    pair.a.send(*numbered(4, 6))
    pair.settle()
    assert pair.b.delivered == [b"1", *numbered(4, 6)]
    pair.assert_idle()


@on_every_generation
def test_a_reset_moves_the_window_and_is_recorded_as_a_loss(generation: str, timing: str) -> None:
    """R-5: 2..4 can never be sent again: 5, which waited behind them, is delivered, and the trace
    says that three messages were skipped."""
    world = World(generation, timing, members="B")
    b, a = world["B"], Forger(world, "A", "B")
    b.receive(a.data(7, 1, b"1"))
    b.receive(a.data(7, 5, b"5"))
    assert b.delivered == [b"1"]

    b.receive(a.reset(7, 4))
    assert b.delivered == [b"1", b"5"]
    (skipped,) = b.events(trace.SKIPPED)
    assert (skipped.count, skipped.hi) == (3, 4)
    before = len(world.wire)
    world.settle()
    assert not [sent for sent in world.wire[before:] if sent.kind == XMIT_REQ]


# -- Numbers that wrap ---------------------------------------------------------------------------


@on_every_generation
def test_connection_ids_stay_in_order_over_the_wrap(generation: str, timing: str) -> None:
    """D-5: the first id is the last before the wrap; each connection replaces the one before."""
    pair = Pair(generation, timing, first_conn=0xFFFFFFFF)
    conns = []
    for number in range(1, 5):
        pair.a.send(b"%d" % number)
        pair.settle()
        conns.append(receiving(pair.b).conn)
        hard(pair.a, "B")

    assert pair.b.delivered == numbered(1, 4)
    assert conns == [0xFFFFFFFF, 1, 2, 3]


@on_every_generation
def test_a_connection_from_before_the_wrap_is_old(generation: str, timing: str) -> None:
    """A copy of the first frame of 2^32-1 comes when 1 is there."""
    pair = Pair(generation, timing, first_conn=0xFFFFFFFF)
    pair.a.send(b"before")
    pair.settle()
    hard(pair.a, "B")
    pair.a.send(b"after")
    pair.settle()

    pair.b.receive(pair.sent("A", DATA)[0].data)
    assert pair.b.delivered == [b"before", b"after"]
    assert receiving(pair.b).conn == 1


@on_every_generation
def test_timestamps_stay_in_order_over_the_wrap(generation: str, timing: str) -> None:
    """Acks of 1, 2, 3 with stamps around the wrap are believed; an older one is not."""
    world = World(generation, timing, members="A")
    a, b = world["A"], Forger(world, "B", "A")
    a.send(*numbered(1, 5))
    conn = sending(a).conn
    lows = []
    for seqno, stamp in ((1, 0xFFFFFFFE), (2, 0xFFFFFFFF), (3, 1), (4, 0xFFFFFFFF), (4, 1), (4, 2)):
        a.receive(b.ack(conn, seqno, stamp))
        lows.append(sending(a).window.low)

    assert lows == [1, 2, 3, 3, 3, 4]
    assert a.refused["ack-old-stamp"] == 2


@on_every_generation
def test_no_order_and_no_copies_of_acks_change_where_the_sender_ends(
    generation: str, timing: str
) -> None:
    """P-06: the acks of ten messages arrive newest first, each twice."""
    world = World(generation, timing, members="A")
    a, b = world["A"], Forger(world, "B", "A")
    a.send(*numbered(1, 10))
    conn = sending(a).conn
    acks = [b.ack(conn, seqno, 100 + seqno) for seqno in range(1, 11)]

    for ack in [*reversed(acks), *acks]:
        a.receive(ack)
        assert (sending(a).window.low, sending(a).window.high) == (10, 10)
    assert sending(a).last_stamp == 110
    world.assert_idle()


# -- Early frames --------------------------------------------------------------------------------


@on_every_generation
def test_what_is_cached_of_a_connection_without_a_window_has_a_bound(
    generation: str, timing: str
) -> None:
    """D-6: 30 frames come before the first one; 20 are kept, and all 31 arrive in the end."""
    pair = Pair(generation, timing, max_cached_frames=20)
    first = pair.drop("A", DATA, 1, times=ALWAYS)
    pair.a.send(*numbered(1, 31))
    pair.deliver()
    assert pair.b.cached() == 20

    pair.release(first)
    pair.settle()
    assert pair.b.delivered == numbered(1, 31)
    assert pair.b.cached() == 0
    pair.assert_idle()


def _conns(member: Member) -> list[int]:
    peer = "B" if member.name == "A" else "A"
    return [sending(member, peer).conn, receiving(member, peer).conn]
