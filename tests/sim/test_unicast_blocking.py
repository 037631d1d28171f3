"""Full windows: the outbox refuses instead of blocking, and continues, or ends, when it must."""

from __future__ import annotations

from math import inf

import pytest

from stormcast.node import trace
from stormcast.node.core.errors import ClosedError
from stormcast.node.core.model import OOB
from stormcast.node.core.wire import ACK, DATA
from stormcast.node.protocols.unicast.entries import State
from stormcast.node.stack.lane import MESSAGE_OVERHEAD
from tests.helpers.forge import Forger
from tests.helpers.world import ALWAYS, Member, Pair, World, numbered, on, on_every_generation

FIVE = MESSAGE_OVERHEAD * 5 + 20
"""Bytes of outbox for five small messages."""
SMALL = {"window_messages": 5, "ack_threshold": 1}
on_unicast4 = on("UNICAST4")


def offer_one_by_one(member: Member, payloads: list[bytes], to: str = "B") -> int:
    """Send each in a turn of its own until one is refused; returns how many were accepted."""
    accepted = 0
    for payload in payloads:
        if not member.offer(payload, to=to):
            break
        accepted += 1
    return accepted


def blocked(member: Member, peer: str = "B") -> bool:
    """Whether the trace says that messages for `peer` are waiting."""
    events = member.events(trace.BLOCKED, trace.UNBLOCKED)
    short = member.world.short(peer)
    return [event.kind for event in events if event.peer == short][-1:] == [trace.BLOCKED]


@on_unicast4
def test_the_outbox_refuses_at_a_full_window_and_continues_after_the_acks(
    generation: str, timing: str
) -> None:
    """U-41: the acks of B are lost; ten fill the window, five wait, the next is refused; then the
    acks come through, all fifteen arrive, and there is room again."""
    pair = Pair(generation, timing, window_messages=10, ack_threshold=2, outbox_bytes=FIVE)
    acks = pair.drop("B", ACK, times=ALWAYS)
    assert offer_one_by_one(pair.a, numbered(1, 20)) == 15
    assert pair.a.unacked("B") == 10
    assert pair.a.stack.outbox.pending(pair.short("B")) == 5
    assert blocked(pair.a)
    pair.intervals(4)
    assert pair.b.delivered == numbered(1, 10)

    pair.release(acks)
    pair.intervals(4)
    assert pair.b.delivered == numbered(1, 15)
    assert not blocked(pair.a)
    assert [event.count for event in pair.a.events(trace.BLOCKED)] == [1]
    assert offer_one_by_one(pair.a, numbered(16, 20)) == 5
    pair.settle()
    assert pair.b.delivered == numbered(1, 20)
    pair.assert_idle(1.0)


@on_every_generation
def test_a_window_holds_its_capacity_and_not_one_more(generation: str, timing: str) -> None:
    """G5: five unacked messages, whatever is offered; a number is taken after the wait (R-1)."""
    pair = Pair(generation, timing, window_messages=5, max_batch=None, **_threshold(generation))
    pair.cut("A", "B")
    pair.a.send(*numbered(1, 5))
    assert not blocked(pair.a)
    pair.a.send(b"6")
    assert blocked(pair.a)
    assert (pair.a.unacked("B"), pair.a.stack.outbox.pending(pair.short("B"))) == (5, 1)
    assert max(sent.hi for sent in pair.sent("A", DATA)) == 5

    pair.heal()
    pair.settle()
    assert pair.b.delivered == numbered(1, 6)
    assert not blocked(pair.a)


@on_every_generation
def test_a_long_stream_through_a_small_window_is_not_stuck(generation: str, timing: str) -> None:
    """P-09: every ack wakes who waits; 60 messages pass a window of 5, with every tenth frame lost
    in each direction."""
    pair = Pair(generation, timing, window_messages=5, max_batch=None, **_threshold(generation))
    for nth in range(5, 60, 10):
        pair.drop("A", after=nth)
        pair.drop("B", after=nth)
    pair.a.send(*numbered(1, 60))
    pair.intervals(60)

    assert pair.b.delivered == numbered(1, 60)
    assert not blocked(pair.a)
    pair.heal()
    pair.assert_idle(1.0)


@on_every_generation
def test_a_message_larger_than_the_window_passes_alone(generation: str, timing: str) -> None:
    """One message of any size enters an empty window; what follows waits for it."""
    pair = Pair(generation, timing, window_bytes=1000)
    large = bytes(5000)
    pair.a.send(b"before", large, b"after")
    assert pair.a.sender("B").window.high == 1
    pair.settle()
    pair.settle()

    assert pair.b.delivered == [b"before", large, b"after"]
    pair.assert_idle(1.0)


@on_unicast4
def test_one_silent_peer_does_not_hold_up_the_other(generation: str, timing: str) -> None:
    """U-36: B is dead; i goes to B, then to C, for i = 1..10. B's lane blocks, C has everything; a
    view {A,C} and two seconds later nobody waits any more."""
    world = World(generation, timing, members="ABC", conn_close_timeout=2.0, **SMALL)
    for member in world:
        member.see("A", "B", "C")
    world["B"].crash()
    for payload in numbered(1, 10):
        world["A"].send(payload, to="B")
        world["A"].send(payload, to="C")
        world.deliver()
    world.settle()
    assert world["C"].delivered == numbered(1, 10)
    assert blocked(world["A"], "B")

    world["A"].see("A", "C")
    assert blocked(world["A"], "B")
    world.advance(2.0 + world.interval)
    assert not blocked(world["A"], "B")
    assert world["A"].abandoned["connection-closed"] == 5
    assert world["A"].sender("B") is None
    assert world["B"].delivered == []


@on_every_generation
def test_stopping_releases_who_waits_and_ends_everything(generation: str, timing: str) -> None:
    """U-37, P-39: A's lane is blocked on a dead peer; A stops. The wait is over, further sends are
    an error, nothing is due any more."""
    pair = Pair(generation, timing, window_messages=5, **_threshold(generation))
    pair.b.crash()
    pair.a.send(*numbered(1, 8))
    assert blocked(pair.a)
    pair.a.stop()

    assert not blocked(pair.a)
    assert pair.a.abandoned["connection-closed"] == 3
    assert not pair.a.stack.unicast.send_connections()
    assert pair.a.stack.next_deadline() == inf
    with pytest.raises(ClosedError):
        pair.a.stack.try_send(pair.short("B"), b"9")


@on_every_generation
def test_stopping_acks_what_was_received(generation: str, timing: str) -> None:
    """JGRP-1755: B stops right after ten messages, before an ack was due; A is free."""
    pair = Pair(generation, timing)
    pair.a.send(*numbered(1, 10))
    pair.advance(pair.delay)
    pair.b.stop()
    pair.deliver()

    assert pair.b.delivered == numbered(1, 10)
    assert pair.a.unacked("B") == 0


@on_every_generation
def test_stopping_in_the_turn_of_a_send_leaves_nothing_to_wait_for(
    generation: str, timing: str
) -> None:
    """P-39: a message is accepted and the member stops before the turn ends."""
    pair = Pair(generation, timing)
    assert pair.a.stack.try_send(pair.short("B"), b"1")
    pair.a.stop()

    assert not pair.a.stack.unicast.send_connections()
    assert pair.a.stack.next_deadline() == inf


@on_every_generation
def test_stopping_twice_is_stopping_once(generation: str, timing: str) -> None:
    pair = Pair(generation, timing)
    pair.open()
    pair.a.stop()
    sent = len(pair.wire)
    pair.a.stop()

    assert len(pair.wire) == sent
    assert pair.a.stack.next_deadline() == inf


@on_unicast4
def test_a_view_without_the_peer_releases_who_waits_after_the_close_timeout(
    generation: str, timing: str
) -> None:
    """U-38: B hears nothing; not at the view, but within the close timeout A's sender is free."""
    pair = Pair(generation, timing, conn_close_timeout=2.0, **SMALL)
    pair.a.see("A", "B")
    pair.cut("A", "B")
    pair.a.send(*numbered(1, 8))
    pair.a.see("A")
    pair.advance(1.9)
    assert blocked(pair.a)
    pair.advance(0.2)

    assert not blocked(pair.a)
    assert pair.b.delivered == []
    assert pair.a.sender("B") is None


@on_unicast4
def test_a_peer_that_is_back_before_the_close_timeout_gets_all_that_waited(
    generation: str, timing: str
) -> None:
    """JGRP-2854: {A}, then {A,B} in time: eight messages arrive, five that were sent and three that
    waited."""
    pair = Pair(generation, timing, conn_close_timeout=3.0, **SMALL)
    pair.a.see("A", "B")
    pair.cut("A", "B")
    pair.a.send(*numbered(1, 8))
    pair.a.see("A")
    pair.advance(2.0)
    pair.heal()
    pair.a.see("A", "B")
    pair.intervals(6)

    assert pair.b.delivered == numbered(1, 8)
    assert not blocked(pair.a)
    assert pair.a.sender("B").conn == 1


@on_unicast4
def test_a_stray_send_after_the_view_does_not_block_for_ever(generation: str, timing: str) -> None:
    """JGRP-2929: after the view {A} the application sends once more to B: the finite timeouts end
    that too."""
    pair = Pair(generation, timing, conn_close_timeout=2.0, conn_expiry_timeout=3.0, **SMALL)
    pair.a.see("A", "B")
    pair.b.crash()
    pair.a.send(*numbered(1, 4))
    pair.a.see("A")
    pair.a.send(*numbered(5, 8))
    assert pair.a.sender("B").state is State.OPEN
    assert blocked(pair.a)
    pair.advance(3.0 + 2.0 + pair.interval)

    assert not blocked(pair.a)
    assert pair.a.sender("B") is None
    assert pair.a.abandoned["connection-closed"] == 3


@on_every_generation
def test_forgetting_the_peer_releases_who_waits(generation: str, timing: str) -> None:
    """P-09, local close: what waited for the lost connection is counted, and new messages go."""
    pair = Pair(generation, timing, window_messages=5, **_threshold(generation))
    pair.cut("A", "B")
    pair.a.send(*numbered(1, 8))
    pair.a.forget("B")
    assert not blocked(pair.a)
    assert pair.a.abandoned["connection-closed"] == 3

    pair.heal()
    pair.a.send(b"new")
    pair.settle()
    assert pair.b.delivered == [b"new"]


@on_unicast4
def test_a_slow_application_blocks_its_sender_and_loses_nothing(
    generation: str, timing: str
) -> None:
    """D-12: acks say what was consumed; a receiver that consumes nothing holds one window, and A
    stops there."""
    pair = Pair(generation, timing, outbox_bytes=FIVE, conn_expiry_timeout=600.0, **SMALL)
    pair.b.consume(consuming=False)
    assert offer_one_by_one(pair.a, numbered(1, 20)) == 10
    pair.intervals(20)
    assert pair.b.delivered == []
    assert (pair.a.sender("B").window.low, pair.a.sender("B").window.high) == (0, 5)
    assert pair.a.stack.outbox.pending(pair.short("B")) == 5
    assert len(pair.b.receiver("A").window) == 5

    pair.b.consume(consuming=True)
    pair.intervals(10)
    assert pair.b.delivered == numbered(1, 10)
    assert not blocked(pair.a)
    pair.assert_idle(1.0)


@on("UNICAST3", "UNICAST3-SYNC")
def test_acks_of_unicast3_say_what_was_received(generation: str, timing: str) -> None:
    """JGRP-1664: an application that is slow must not cause resends."""
    pair = Pair(generation, timing)
    pair.b.consume(consuming=False)
    pair.a.send(*numbered(1, 10))
    pair.settle()
    assert pair.a.unacked("B") == 0
    assert pair.a.events(trace.RETRANSMITTED) == []

    pair.b.consume(consuming=True)
    assert pair.b.delivered == numbered(1, 10)


@on_every_generation
def test_an_application_that_pauses_gets_everything_in_order_afterwards(
    generation: str, timing: str
) -> None:
    """More than a window is sent while B consumes nothing, not even what is OOB (G5)."""
    pair = Pair(generation, timing, window_messages=8, **_threshold(generation))
    pair.b.consume(consuming=False)
    pair.a.send(b"1", b"2")
    pair.a.send(b"3", flags=OOB)
    pair.a.send(*numbered(4, 30))
    pair.intervals(8)
    assert pair.b.delivered == []

    pair.b.consume(consuming=True)
    pair.intervals(60)
    assert pair.b.delivered == numbered(1, 30)


@pytest.mark.parametrize("end", ["idle", "close", "closed-by-sender", "forget", "view", "replaced"])
@on_every_generation
def test_an_application_that_stalls_is_handed_nothing_when_its_window_has_to_go(
    generation: str, timing: str, end: str
) -> None:
    """Whatever ends the window of A at B while B takes nothing: B is handed what it had in order
    once it goes on, before anything newer, and once."""
    pair = Pair(
        generation,
        timing,
        conn_expiry_timeout=2.0,
        conn_close_timeout=2.0,
        **_threshold(generation),
    )
    pair.a.send(*numbered(1, 3))
    pair.deliver()
    assert pair.b.take() == numbered(1, 3)
    pair.b.consume(consuming=False)
    pair.a.send(*numbered(4, 6))
    pair.deliver()
    entry = pair.a.sender("B")
    assert entry is not None
    if end == "close":
        pair.b.close("A")
    elif end == "closed-by-sender":
        pair.b.receive(Forger(pair, "A", "B").close(entry.conn))
    elif end == "forget":
        pair.b.forget("A")
    elif end == "view":
        pair.b.see("B")
    elif end == "replaced":
        pair.a.forget("B")
        pair.a.send(*numbered(7, 9))
    pair.advance(20.0)
    assert pair.b.delivered == []

    pair.b.consume(consuming=True)
    pair.intervals(4)
    assert pair.b.delivered == numbered(4, 9 if end == "replaced" else 6)


@on_every_generation
def test_a_window_with_untaken_messages_is_not_idle(generation: str, timing: str) -> None:
    """A is silent for longer than an idle window lives, and B has yet to take what it has. Only
    then is the window idle."""
    pair = Pair(
        generation,
        timing,
        conn_expiry_timeout=2.0,
        conn_close_timeout=2.0,
        **_threshold(generation),
    )
    pair.b.consume(consuming=False)
    pair.a.send(*numbered(1, 3))
    pair.deliver()
    pair.partition("A", "B")
    pair.advance(20.0)
    entry = pair.b.receiver("A")
    assert entry is not None
    assert entry.state is State.OPEN

    pair.b.consume(consuming=True)
    pair.advance(20.0)
    assert pair.b.delivered == numbered(1, 3)
    assert pair.b.receiver("A") is None


@on_every_generation
def test_what_is_kept_for_a_stalled_application_has_a_bound(generation: str, timing: str) -> None:
    """A forgets B and begins anew, again and again, with five messages each: B keeps those of a
    window that had to go, and opens no further one; nothing of the last connection is lost."""
    pair = Pair(generation, timing, window_messages=5, **_threshold(generation))
    pair.b.consume(consuming=False)
    for number in range(10):
        pair.a.send(*numbered(10 * number + 1, 10 * number + 5))
        pair.deliver()
        pair.a.forget("B")
    pair.a.send(*numbered(101, 105))
    pair.intervals(4)
    assert pair.b.refused["not-consuming"] > 0

    pair.b.consume(consuming=True)
    pair.intervals(8)
    assert pair.b.delivered == [*numbered(1, 5), *numbered(11, 15), *numbered(101, 105)]


@on_every_generation
def test_test_protocols_see_once_what_a_stalled_application_takes_later(
    generation: str, timing: str
) -> None:
    """DUPLICATE doubles what rises through it: also where it has to wait there for many turns."""
    pair = Pair(generation, timing)
    pair.b.stack.set_test_protocol("DISCARD", {"up": 0.5}, pair.now, generation.partition("-")[0])
    pair.b.consume(consuming=False)
    pair.a.send(*numbered(1, 40))
    pair.deliver()
    pair.b.forget("A")
    pair.advance(10.0)
    pair.b.consume(consuming=True)
    assert 8 < len(pair.b.delivered) < 32


@on_every_generation
def test_messages_to_self_wait_while_the_application_pauses(generation: str, timing: str) -> None:
    world = World(generation, timing, members="A")
    world["A"].consume(consuming=False)
    world["A"].send(*numbered(1, 5), to="A")
    assert world["A"].delivered == []
    world["A"].consume(consuming=True)
    assert world["A"].delivered == numbered(1, 5)


@on_every_generation
def test_a_receiver_with_a_smaller_window_gets_everything(generation: str, timing: str) -> None:
    """R-2: A may have forty under way, B holds five, and the first is lost."""
    pair = Pair(generation, timing, window_messages=40)
    small = pair.start("B", window_messages=5, **_threshold(generation))
    pair.drop("A", DATA, 2)
    pair.a.send(*numbered(1, 40))
    pair.intervals(40)

    assert small.delivered == numbered(1, 40)
    pair.assert_idle(1.0)


def _threshold(generation: str) -> dict[str, object]:
    """A threshold that a small window can have."""
    return {"ack_threshold": 1} if "3" in generation or "4" in generation else {}
