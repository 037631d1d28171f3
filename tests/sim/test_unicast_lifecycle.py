"""The life of a connection: open, closing, removed; views, idleness, peers that never answer."""

from __future__ import annotations

import pytest

from stormcast.node import trace
from stormcast.node.core.wire import CLOSE, DATA
from stormcast.node.protocols.unicast.entries import State
from tests.helpers.forge import Forger
from tests.helpers.world import (
    ALWAYS,
    NEWEST,
    Member,
    Pair,
    World,
    numbered,
    on,
    on_every_generation,
)

AT_ONCE = ("UNICAST", "UNICAST2")
"""Generations that remove the connections to who is not in the view; the others let them flush."""


def sender_life(member: Member) -> list[tuple[str, str]]:
    """What became of the sending half, and why."""
    return [
        (trace.CONN_STATES[event.stream].removeprefix("sender "), reason)
        for event, reason in member.told(trace.CONN)
        if event.stream in (trace.SENDER_OPEN, trace.SENDER_CLOSING, trace.SENDER_REMOVED)
    ]


def state(member: Member, peer: str = "B") -> State | None:
    entry = member.sender(peer)
    return entry.state if entry else None


# -- Idle ----------------------------------------------------------------------------------------


@on_every_generation
def test_an_idle_connection_starts_closing_then_is_removed_and_its_end_is_told(
    generation: str, timing: str
) -> None:
    """OPEN for 4 s, CLOSING for 3 s more, gone; A says CLOSE, and B drops its window."""
    pair = Pair(generation, timing, conn_expiry_timeout=600.0, conn_close_timeout=3.0)
    pair.open()
    pair.a.set("conn_expiry_timeout", 4.0)
    pair.a.send(b"last")
    start, conn = pair.now, pair.a.sender("B").conn

    pair.advance(3.9)
    assert state(pair.a) is State.OPEN
    pair.advance(0.2)
    assert state(pair.a) is State.CLOSING
    assert pair.count("A", CLOSE) == 0
    pair.advance(2.8)
    assert state(pair.a) is State.CLOSING
    pair.advance(0.2)
    assert state(pair.a) is None

    (close,) = pair.sent("A", CLOSE)
    assert close.head.conn == conn
    assert close.at == pytest.approx(start + 7.0)
    assert pair.b.receiver("A") is None
    assert sender_life(pair.a) == [("open", ""), ("closing", "idle"), ("removed", "closed")]


@on_every_generation
def test_a_connection_in_use_does_not_become_idle(generation: str, timing: str) -> None:
    """A message every second keeps both halves open, though 4 s of silence would close them."""
    pair = Pair(generation, timing, conn_expiry_timeout=4.0, conn_close_timeout=3.0)
    for number in range(1, 21):
        pair.a.send(b"%d" % number)
        pair.advance(1.0)

    assert state(pair.a) is State.OPEN
    assert pair.b.receiver("A").state is State.OPEN
    assert pair.b.delivered == numbered(1, 20)
    assert pair.count(kind=CLOSE) == 0


@on("UNICAST", "UNICAST2", "UNICAST3", "UNICAST3-SYNC")
def test_zero_switches_idle_closing_off(generation: str, timing: str) -> None:
    """A day of silence; UNICAST4 must be able to release a blocked sender, and refuses the zero."""
    pair = Pair(generation, timing, conn_expiry_timeout=0.0)
    pair.open()
    pair.advance(86_400.0)
    assert state(pair.a) is State.OPEN
    assert pair.b.receiver("A").state is State.OPEN


@on_every_generation
def test_a_message_sent_reopens_a_closing_connection(generation: str, timing: str) -> None:
    """The same connection goes on: no new id, nothing twice."""
    pair = Pair(generation, timing, conn_close_timeout=30.0)
    pair.open()
    conn = pair.a.sender("B").conn
    pair.a.close("B")
    pair.advance(1.0)
    assert state(pair.a) is State.CLOSING

    pair.a.send(*numbered(11, 15))
    assert state(pair.a) is State.OPEN
    assert pair.a.sender("B").conn == conn
    pair.settle()
    assert pair.b.delivered == numbered(11, 15)
    assert sender_life(pair.a)[-2:] == [("closing", "close"), ("open", "used")]


@on_every_generation
def test_a_message_received_reopens_a_closing_connection(generation: str, timing: str) -> None:
    pair = Pair(generation, timing, conn_close_timeout=30.0)
    pair.open()
    pair.b.close("A")
    assert pair.b.receiver("A").state is State.CLOSING
    epoch = pair.b.receiver("A").epoch

    pair.a.send(*numbered(11, 15))
    pair.deliver()
    assert pair.b.receiver("A").state is State.OPEN
    assert pair.b.receiver("A").epoch == epoch
    assert pair.b.delivered == numbered(11, 15)


@on_every_generation
def test_a_closing_connection_still_flushes_what_is_unacked(generation: str, timing: str) -> None:
    """JGRP-1586: A closes while its last messages are lost; B has them before A is gone."""
    pair = Pair(generation, timing, conn_close_timeout=60.0)
    pair.open()
    lost = pair.drop("A", DATA, times=3)
    pair.a.send(*numbered(11, 13))
    pair.a.close("B")
    assert lost.taken == 3
    pair.settle()

    assert state(pair.a) is State.CLOSING
    assert pair.b.delivered == numbered(11, 13)
    assert pair.a.unacked("B") == 0


@on_every_generation
def test_a_closing_receiver_still_asks_for_what_is_missing(generation: str, timing: str) -> None:
    """B closes behind a gap, and gets the rest."""
    pair = Pair(generation, timing, conn_close_timeout=60.0)
    pair.open()
    pair.drop("A", DATA, 12)
    pair.a.send(*numbered(11, 15))
    pair.deliver()
    pair.b.close("A")
    pair.settle()

    assert pair.b.delivered == numbered(11, 15)


@on_every_generation
def test_closing_takes_no_longer_because_it_is_asked_for_again(
    generation: str, timing: str
) -> None:
    """A close every second does not keep a closing connection alive."""
    pair = Pair(generation, timing, conn_close_timeout=3.0, conn_expiry_timeout=600.0)
    pair.open()
    for _ in range(4):
        pair.a.close("B")
        pair.advance(0.9)
    assert state(pair.a) is None


# -- CLOSE ---------------------------------------------------------------------------------------


@on_every_generation
def test_a_close_of_another_connection_is_ignored(generation: str, timing: str) -> None:
    pair = Pair(generation, timing)
    pair.open()
    entry = pair.b.receiver("A")
    pair.b.receive(Forger(pair, "A", "B").close(entry.conn + 1))

    assert pair.b.receiver("A") is entry
    assert pair.b.refused["close-other-connection"] == 1


@on_every_generation
def test_a_close_of_this_connection_removes_the_window_and_acks_first(
    generation: str, timing: str
) -> None:
    """JGRP-1755: what was received and not yet acked is acked before the window goes."""
    world = World(generation, timing, members="B")
    b, a = world["B"], Forger(world, "A", "B")
    b.stack.receive(a.data(7, 1, b"1") + a.data(7, 2, b"2") + a.close(7), world.now)
    b.turn()

    assert b.delivered == [b"1", b"2"]
    assert b.receiver("A") is None
    last = world.sent("B")[-1]
    assert (last.head.conn, last.lo) == (7, 2)


@on_every_generation
def test_after_a_close_the_next_message_opens_a_new_connection(
    generation: str, timing: str
) -> None:
    pair = Pair(generation, timing, conn_close_timeout=2.0, conn_expiry_timeout=600.0)
    pair.open()
    old = pair.a.sender("B").conn
    pair.a.close("B")
    pair.advance(2.1)
    assert pair.b.receiver("A") is None

    pair.a.send(b"new")
    pair.deliver()
    assert pair.b.delivered == [b"new"]
    assert pair.a.sender("B").conn != old


# -- Views ---------------------------------------------------------------------------------------


@on(*NEWEST)
def test_who_leaves_the_view_and_comes_back_in_time_finds_the_same_connection(
    generation: str, timing: str
) -> None:
    """P-08: CLOSING in {A}, OPEN again in {A,B}; the ids are what they were. UNICAST and UNICAST2
    remove at once, and do not promise this."""
    pair = Pair(generation, timing, conn_close_timeout=5.0, conn_expiry_timeout=600.0)
    pair.open()
    before = pair.a.sender("B"), pair.a.receiver("B"), pair.b.sender("A"), pair.b.receiver("A")
    for member in pair:
        member.see(member.name)
    assert {entry.state for entry in before} == {State.CLOSING}
    pair.advance(4.0)
    for member in pair:
        member.see("A", "B")
    assert {entry.state for entry in before} == {State.OPEN}
    pair.advance(6.0)

    after = pair.a.sender("B"), pair.a.receiver("B"), pair.b.sender("A"), pair.b.receiver("A")
    assert after == before
    assert pair.count(kind=CLOSE) == 0


@pytest.mark.parametrize(
    ("age", "silent", "out", "is_kept"),
    [
        (60.0, 45.0, 14.0, True),
        (60.0, 45.0, 16.0, False),
        (60.0, 70.0, 1.0, False),
        (0.0, 70.0, 230.0, True),
        (0.0, 70.0, 250.0, False),
        (300.0, 70.0, 200.0, True),
    ],
)
@on(*NEWEST)
def test_silence_in_the_view_counts_once_the_view_has_dropped_the_member(
    generation: str, timing: str, age: float, silent: float, out: float, *, is_kept: bool
) -> None:
    """Cut off, excluded when that is noticed, and back: P-08 holds for who was silent for less than
    `max_retransmit_time` in all. What is given up is told."""
    pair = Pair(generation, timing, max_retransmit_time=age, conn_close_timeout=240.0)
    for member in pair:
        member.stack.unicast.set_grouped()
        member.stack._port.contacts.trusted.update((pair.a.short, pair.b.short))
        member.see("A", "B")
    pair.open(3)
    pair.partition("A", "B")
    pair.a.send(b"1", b"2")
    pair.advance(silent)
    pair.a.see("A")
    pair.advance(out)
    pair.join_again()
    pair.a.see("A", "B")
    pair.advance(60.0)
    assert pair.b.take() == ([b"1", b"2"] if is_kept else [])
    assert sum(pair.a.abandoned.values()) == (0 if is_kept else 2)


@on_every_generation
def test_without_a_group_a_view_by_hand_keeps_a_dead_peer_from_ageing_alone(
    generation: str, timing: str
) -> None:
    """It is given up once it was idle for long enough; by default, UNICAST and UNICAST2 are never
    idle."""
    pair = Pair(generation, timing)
    pair.a.see("A", "B")
    pair.b.crash()
    pair.a.send(b"x")
    pair.advance(2000.0)
    is_kept = generation in {"UNICAST", "UNICAST2"}
    assert pair.a.abandoned == ({} if is_kept else {"closed": 1})


@on_every_generation
def test_a_window_that_nobody_closed_ends_when_it_asks(generation: str, timing: str) -> None:
    """A receiver of UNICAST does not ask: its window stays until a view or another connection."""
    pair = Pair(generation, timing, max_batch=1)
    pair.a.see("A", "B")
    pair.open()
    pair.drop("A", DATA, 11, times=99)
    pair.a.send(b"2")
    pair.a.send(b"3")
    pair.deliver()
    pair.a.forget("B")
    pair.advance(300.0)
    assert (pair.b.receiver("A") is not None) == (generation == "UNICAST")
    pair.a.send(b"4")
    pair.settle()
    assert pair.b.take()[-1] == b"4"


@on(*NEWEST)
def test_who_leaves_the_view_for_good_is_gone_after_the_close_timeout(
    generation: str, timing: str
) -> None:
    """U-11: nothing is left of B at A. B is told, though it is no member: nothing else would end
    its window."""
    pair = Pair(generation, timing, conn_close_timeout=5.0, conn_expiry_timeout=600.0)
    pair.open()
    pair.a.see("A")
    pair.advance(4.9)
    assert state(pair.a) is State.CLOSING
    pair.advance(0.2 + pair.interval)

    assert pair.a.sender("B") is pair.a.receiver("B") is None
    pair.deliver()
    assert pair.count("A", CLOSE) == 1
    assert pair.b.receiver("A") is None


@on(*AT_ONCE)
def test_who_leaves_the_view_is_gone_at_once_in_the_older_generations(
    generation: str, timing: str
) -> None:
    """UNICAST and UNICAST2 know no lazy close: the view removes both halves."""
    pair = Pair(generation, timing)
    pair.open()
    pair.a.see("A")

    assert pair.a.sender("B") is pair.a.receiver("B") is None
    pair.deliver()
    assert pair.count("A", CLOSE) == 1
    assert pair.b.receiver("A") is None


@on(*NEWEST)
def test_a_view_in_between_that_lacks_a_member_costs_nothing(generation: str, timing: str) -> None:
    """Example 3: a suspicion and a join in two views, while messages flow and some are lost."""
    pair = Pair(generation, timing)
    pair.open()
    pair.drop("A", DATA, 12)
    pair.a.send(*numbered(11, 15))
    pair.a.see("A")
    pair.deliver()
    pair.a.see("A", "B")
    pair.a.send(*numbered(16, 20))
    pair.settle()

    assert pair.b.delivered == numbered(11, 20)
    assert pair.a.sender("B").conn == 1
    pair.assert_idle()


@on_every_generation
def test_members_apart_see_size_one_then_size_two_and_talk_again(
    generation: str, timing: str
) -> None:
    """U-45, with views by hand: both are alone while the wire is cut, then together again."""
    pair = Pair(generation, timing)
    for member in pair:
        member.see("A", "B")
    pair.open()
    pair.partition("A", "B")
    for member in pair:
        member.see(member.name)
        assert len(member.stack.view.members) == 1
    pair.advance(3.0)
    pair.heal()
    for member in pair:
        member.see("A", "B")
        assert len(member.stack.view.members) == 2
    pair.a.send(*numbered(11, 20), to="B")
    pair.b.send(*numbered(11, 20), to="A")
    pair.settle()

    assert pair.a.delivered == pair.b.delivered == numbered(11, 20)
    pair.assert_idle()


# -- Strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["", "A"], ids=["no-view", "alone"])
@on_every_generation
def test_a_connection_to_nobody_ages_out(generation: str, timing: str, view: str) -> None:
    """U-09, JGRP-942: a message to an address that nobody owns is given up after 5 s."""
    world = World(
        generation, timing, members="A", max_retransmit_time=5.0, conn_expiry_timeout=600.0
    )
    if view:
        world["A"].see(*view)
    world["A"].send(b"1", to="X")
    world.advance(4.9)
    assert world["A"].sender("X") is not None
    world.advance(0.2)

    assert world["A"].sender("X") is None
    assert sender_life(world["A"])[-1] == ("removed", "aged")
    world.assert_idle(60.0)


@pytest.mark.parametrize("view", ["none", "of A", "of both", "of B"])
@on_every_generation
def test_who_closes_tells_the_peer_whoever_of_them_is_a_member_of_whose_view(
    generation: str, timing: str, view: str
) -> None:
    """A or B may be in the view of the other, or not: no window is left at B, where idleness ends
    nothing."""
    pair = Pair(
        generation,
        timing,
        conn_close_timeout=2.0,
        conn_expiry_timeout=0.0 if generation != "UNICAST4" else 6000.0,
    )
    if view in ("of A", "of both"):
        pair.a.see("A", "B") if view == "of both" else pair.a.see("A")
    if view in ("of B", "of both"):
        pair.b.see("A", "B") if view == "of both" else pair.b.see("B")
    pair.open()
    pair.a.close("B")
    pair.advance(3.0)
    assert pair.a.sender("B") is None
    assert pair.b.receiver("A") is None


@on_every_generation
def test_who_gives_a_peer_up_that_only_hears_ends_its_window(generation: str, timing: str) -> None:
    """Nothing of B reaches A: A ages, and says so; B has what came, and no window that waits."""
    pair = Pair(generation, timing, max_retransmit_time=5.0, conn_expiry_timeout=6000.0)
    pair.cut("B", "A")
    pair.drop("A", DATA, 2, times=ALWAYS)
    pair.a.send(*numbered(1, 3))
    pair.advance(6.0)
    assert pair.a.sender("B") is None
    assert pair.b.delivered == [b"1"]
    assert pair.b.receiver("A") is None
    pair.assert_silent(20.0)


@on_every_generation
def test_zero_switches_ageing_off(generation: str, timing: str) -> None:
    world = World(
        generation, timing, members="A", max_retransmit_time=0.0, conn_expiry_timeout=6000.0
    )
    world["A"].send(b"1", to="X")
    world.advance(600.0)
    assert world["A"].sender("X") is not None


@on_every_generation
def test_a_stranger_that_answers_does_not_age(generation: str, timing: str) -> None:
    """B is no member but acks: a minute of talk and a minute of silence change nothing."""
    pair = Pair(generation, timing, max_retransmit_time=5.0, conn_expiry_timeout=600.0)
    pair.a.see("A")
    conn = None
    for number in range(1, 31):
        pair.a.send(b"%d" % number)
        pair.advance(2.0)
        conn = conn or pair.a.sender("B").conn
    pair.advance(60.0)

    assert pair.a.sender("B").conn == conn
    assert pair.b.delivered == numbered(1, 30)


@on_every_generation
def test_a_stranger_that_goes_silent_ages_from_its_last_sign_of_life(
    generation: str, timing: str
) -> None:
    """B answered for a while; 5 s after the first message that it owes an answer for, it is given
    up."""
    pair = Pair(generation, timing, max_retransmit_time=5.0, conn_expiry_timeout=600.0)
    pair.a.send(*numbered(1, 10))
    pair.settle()
    pair.advance(20.0)
    pair.b.crash()
    pair.a.send(b"11")
    pair.advance(4.9)
    assert pair.a.sender("B") is not None
    pair.advance(0.2)
    assert pair.a.sender("B") is None


@on_every_generation
def test_whoever_becomes_a_member_does_not_age(generation: str, timing: str) -> None:
    """Joining cancels the age-out: A goes on trying, and reaches B when the wire heals."""
    pair = Pair(generation, timing, max_retransmit_time=5.0, conn_expiry_timeout=600.0)
    pair.cut("A", "B")
    pair.a.send(b"1")
    pair.advance(3.0)
    pair.a.see("A", "B")
    pair.advance(20.0)
    assert pair.a.sender("B") is not None

    pair.heal()
    pair.settle()
    assert pair.b.delivered == [b"1"]


@on_every_generation
def test_whoever_leaves_the_view_unheard_ages(generation: str, timing: str) -> None:
    """A member's silence is the failure detector's business; a former member's is ours."""
    pair = Pair(
        generation,
        timing,
        max_retransmit_time=5.0,
        conn_expiry_timeout=600.0,
        conn_close_timeout=60.0,
    )
    pair.a.see("A", "B")
    pair.cut("A", "B")
    pair.a.send(b"1")
    pair.advance(20.0)
    assert pair.a.sender("B") is not None
    pair.a.see("A")
    pair.advance(5.1)
    assert pair.a.sender("B") is None


@on_every_generation
def test_early_frames_of_a_stranger_who_never_opens_go_away(generation: str, timing: str) -> None:
    """P-10: the first message of X never comes, and X is gone: its other frames do not stay for
    ever."""
    world = World(
        generation,
        timing,
        members="B",
        max_retransmit_time=5.0,
        conn_expiry_timeout=5.0,
        conn_close_timeout=5.0,
    )
    x = Forger(world, "X", "B")
    world["B"].receive(*(x.data(7, seqno, b"%d" % seqno) for seqno in range(2, 12)))
    assert world["B"].cached() == 10
    world.advance(60.0)

    assert world["B"].cached() == 0


@on_every_generation
def test_a_view_drops_the_early_frames_of_who_is_not_in_it(generation: str, timing: str) -> None:
    world = World(generation, timing, members="B")
    for name in "XY":
        stranger = Forger(world, name, "B")
        world["B"].receive(*(stranger.data(7, seqno, b"x") for seqno in range(2, 7)))
    assert world["B"].cached() == 10
    world["B"].see("B", "Y")

    assert world["B"].cached() == 5


@on_every_generation
def test_nothing_is_left_of_a_stranger_after_the_traffic(generation: str, timing: str) -> None:
    """P-10: A and B, of no view, talk and fall silent: both forget the other, wholly."""
    pair = Pair(generation, timing, conn_expiry_timeout=4.0, conn_close_timeout=3.0)
    pair.a.send(*numbered(1, 10), to="B")
    pair.b.send(*numbered(1, 10), to="A")
    pair.advance(30.0)

    for member in pair:
        assert not member.stack.unicast.send_connections()
        assert not member.stack.unicast.receive_connections()
        assert member.cached() == 0
        assert member.stack.next_deadline() > pair.now + 1e6
