"""What message flags promise a multicast, alone and mixed, and what a view does to what is sent."""

from __future__ import annotations

import pytest

from stormcast.node.core import wire
from stormcast.node.core.model import DONT_BUNDLE, DONT_LOOPBACK, NO_FC, NO_RELIABILITY, OOB
from stormcast.node.core.wire import DATA
from tests.helpers.group import ALWAYS, STACKS, GroupWorld, numbered
from tests.helpers.world import TIMINGS

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)
RELIABLE = {"udp": wire.NAKACK2, "mcast": wire.MCAST}


def say(world: GroupWorld, sender: str, flags_of: dict[int, int], last: int) -> None:
    """Multicast 1..last, each with its flags."""
    for number in range(1, last + 1):
        world.multicast(sender, b"%d" % number, flags=flags_of.get(number, 0))


# -- OOB ------------------------------------------------------------


@everywhere
def test_an_oob_multicast_overtakes_what_is_missing_and_is_delivered_once(
    stack: str, timing: str
) -> None:
    """N-05: 3 is lost a few times and 4 is OOB: 4 comes at once, and everywhere only once."""
    world = GroupWorld("ABC", stack, timing)
    world.drop("A", DATA, 3, times=6)
    world.duplicate("A", DATA, 4, times=2, copies=3)
    say(world, "A", {4: OOB}, 5)
    world.deliver()
    for name in "BC":
        assert world.got(name, "A") == [b"1", b"2", b"4"]
    world.settle()
    for name in "BC":
        assert world.got(name, "A") == [b"1", b"2", b"4", b"3", b"5"]
    assert world.got("A", "A") == numbered(1, 5)
    assert world.unpurged("A") == 0


@everywhere
def test_a_lost_oob_multicast_is_repaired_and_holds_back_what_follows(
    stack: str, timing: str
) -> None:
    """O-08: 1 regular, 2 OOB and lost once, 3 regular; the sender ignores its own."""
    world = GroupWorld("AB", stack, timing)
    world.drop("A", DATA, 2)
    say(world, "A", {1: DONT_LOOPBACK, 2: OOB | DONT_LOOPBACK, 3: DONT_LOOPBACK}, 3)
    world.deliver()
    assert world.got("B", "A") == [b"1"]
    world.settle()
    assert world.got("B", "A") == numbered(1, 3)
    assert world.got("A", "A") == []


@pytest.mark.parametrize("as_one", [False, True], ids=["single", "batched"])
@everywhere
def test_oob_multicasts_last_one_first_are_all_delivered_once(
    stack: str, timing: str, *, as_one: bool
) -> None:
    """N-06: five OOB messages, in one datagram or many, from behind."""
    world = GroupWorld("AB", stack, timing)
    held = world.hold("A", DATA)
    world.multicast("A", *numbered(1, 5), flags=OOB)
    world.release(held, lambda sent: list(reversed(sent)), as_one=as_one)
    world.deliver()
    assert world.got("B", "A") == list(reversed(numbered(1, 5)))
    world.settle()
    assert len(world.got("B", "A")) == 5
    assert world.unpurged("A") == 0


@everywhere
def test_an_application_that_does_not_listen_loses_no_oob_message(stack: str, timing: str) -> None:
    """N-28: they wait like all others, and each is delivered once when it listens again."""
    world = GroupWorld("AB", stack, timing)
    world["B"].consume(consuming=False)
    say(world, "A", {2: OOB, 4: OOB}, 5)
    world.advance(5.0)
    assert world.got("B", "A") == []
    world["B"].consume(consuming=True)
    world.settle()
    assert sorted(world.got("B", "A")) == numbered(1, 5)


# -- DONT_LOOPBACK ------------------------------------------------------------


@pytest.mark.parametrize("max_batch", [1, 3, None])
@everywhere
def test_who_skips_its_own_multicasts_gets_the_others_in_order(
    stack: str, timing: str, max_batch: int | None
) -> None:
    """N-02, N-03: regular and OOB mixed, 4, 5, 8, 9, 10 and 11 not to be looped back."""
    world = GroupWorld("AB", stack, timing, max_batch=max_batch)
    skipped = dict.fromkeys((4, 5, 8, 9, 10, 11), DONT_LOOPBACK)
    oob = {number: skipped.get(number, 0) | OOB for number in (2, 5, 6, 9, 12)}
    say(world, "A", skipped | oob, 12)
    world.settle()
    assert world.got("A", "A") == [b"1", b"2", b"3", b"6", b"7", b"12"]
    assert world.got("B", "A") == numbered(1, 12)


@everywhere
def test_windows_of_messages_that_their_sender_skips_empty_everywhere(
    stack: str, timing: str
) -> None:
    """P-16, JGRP-2605, JGRP-2829: nobody but the others can say that they have them."""
    world = GroupWorld("ABC", stack, timing)
    for sender in "ABC":
        world.multicast(sender, *numbered(1, 500), flags=DONT_LOOPBACK)
    world.settle()
    for sender, other in ("AB", "BC", "CA"):
        assert world.got(sender, sender) == []
        assert world.got(other, sender) == numbered(1, 500)
    assert [world.unpurged(name) for name in "ABC"] == [0, 0, 0]


@everywhere
def test_own_messages_keep_their_order_when_the_application_listens_again(
    stack: str, timing: str
) -> None:
    world = GroupWorld("AB", stack, timing)
    world["A"].consume(consuming=False)
    say(world, "A", {2: DONT_LOOPBACK, 4: OOB}, 5)
    world.advance(2.0)
    assert world.got("A", "A") == []
    world["A"].consume(consuming=True)
    world.settle()
    assert [p for p in world.got("A", "A") if p != b"4"] == [b"1", b"3", b"5"]
    assert world.got("A", "A").count(b"4") == 1
    assert world.unpurged("A") == 0


# -- NO_RELIABILITY ------------------------------------------------------------


@everywhere
def test_an_unreliable_multicast_is_sent_once_to_all_and_repaired_for_none(
    stack: str, timing: str
) -> None:
    """JGRP-2620: lost is lost, and nothing of it remains in a window."""
    world = GroupWorld("ABC", stack, timing)
    world.drop("A", DATA, dest="C", protocol=wire.NONE)
    world.multicast("A", b"once", flags=NO_RELIABILITY)
    world.settle()
    assert world.everyone_got("A", [b"once"], "AB")
    assert world.got("C", "A") == []
    assert world.unpurged("A") == 0
    assert world.count("A", DATA) == 2


@everywhere
def test_unreliable_and_reliable_multicasts_do_not_disturb_each_other(
    stack: str, timing: str
) -> None:
    world = GroupWorld("AB", stack, timing)
    world.drop("A", DATA, 2, protocol=RELIABLE[stack])
    say(world, "A", {2: NO_RELIABILITY, 4: NO_RELIABILITY | DONT_LOOPBACK}, 5)
    world.deliver()
    assert world.got("B", "A") == [b"1", b"2", b"4"]
    world.settle()
    assert world.got("B", "A") == [b"1", b"2", b"4", b"3", b"5"]
    assert world.got("A", "A") == [b"1", b"2", b"3", b"5"]


@everywhere
def test_an_unreliable_multicast_of_a_stranger_is_not_delivered(stack: str, timing: str) -> None:
    world = GroupWorld("ABC", stack, timing)
    world.install("AB", at="AB")
    world.multicast("C", b"hello", flags=NO_RELIABILITY)
    world.deliver()
    assert world.got("A", "C") == []
    assert world["A"].refused["unknown-sender"] == 1


# -- NO_FC and DONT_BUNDLE ------------------------------------------------------------


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_message_without_flow_control_waits_for_no_credit(timing: str) -> None:
    """A has no credits for C, who takes nothing; only what asks for no credit gets through."""
    world = GroupWorld(
        "ABC",
        "udp",
        timing,
        protocols={"MFC": {"max_credits": 4000}, "FRAG": {"frag_size": 500}},
    )
    world["C"].consume(consuming=False)
    world.multicast("A", *[bytes(400)] * 30)
    world.advance(5.0)
    blocked = len(world.got("B", "A"))
    assert blocked < 30
    assert world["A"].stack.outbox.pending(wire.GROUP) == 30 - blocked
    world["C"].consume(consuming=True)
    world.settle()
    assert len(world.got("B", "A")) == 30

    world["C"].consume(consuming=False)
    world.multicast("A", *[bytes(400)] * 30, flags=NO_FC)
    world.deliver()
    assert len(world.got("B", "A")) == 60


@everywhere
def test_an_unbundled_multicast_travels_alone_and_in_its_place(stack: str, timing: str) -> None:
    world = GroupWorld("AB", stack, timing, max_batch=None)
    member = world["A"]
    for number in range(1, 8):
        flags = DONT_BUNDLE if number in {3, 4} else 0
        assert member.stack.try_send(wire.GROUP, b"%d" % number, flags)
    member.turn()
    world.deliver()
    frames = [(sent.lo, sent.hi) for sent in world.sent("A", DATA)]
    assert frames == [(1, 2), (3, 3), (4, 4), (5, 7)]
    assert world.got("B", "A") == numbered(1, 7)


# -- Large messages ------------------------------------------------------------


@everywhere
def test_a_large_multicast_arrives_whole_and_in_its_place(stack: str, timing: str) -> None:
    """FR-01, FR-05: between small ones, empty ones too, with fragments lost on the way."""
    world = GroupWorld("ABC", stack, timing, max_batch=None)
    world.drop("A", DATA, 3, dest="B", times=2)
    world.drop("A", DATA, 5, dest="C")
    large = bytes(range(256)) * 1200
    for payload in (b"before", large, b"", b"after"):
        world.multicast("A", payload)
    world.settle()
    assert world.everyone_got("A", [b"before", large, b"", b"after"], "ABC")
    assert world.unpurged("A") == 0


# -- Views ------------------------------------------------------------


@everywhere
def test_what_is_sent_around_a_view_reaches_who_is_in_both(stack: str, timing: str) -> None:
    """No virtual synchrony: a message of the old view may be delivered in the new one, once."""
    world = GroupWorld("ABC", stack, timing)
    world.drop("A", DATA, 5, dest="B", times=3)
    for turn in range(10):
        world.multicast("A", *numbered(5 * turn + 1, 5 * turn + 5))
        if turn == 3:
            world.install("AB")
        world.advance(0.02)
    world.settle()
    assert world.everyone_got("A", numbered(1, 50), "AB")
    assert world.unpurged("A") == 0


@everywhere
def test_many_views_of_the_same_members_change_nothing(stack: str, timing: str) -> None:
    world = GroupWorld("ABC", stack, timing)
    world.weather(5, loss=0.1, spread=0.02)
    for turn in range(20):
        for sender in "ABC":
            world.multicast(sender, *numbered(5 * turn + 1, 5 * turn + 5))
        world.install("ABC" if turn % 2 else "BCA")
        world.advance(0.05)
    world.heal()
    world.settle()
    for sender in "ABC":
        assert world.everyone_got(sender, numbered(1, 100), "ABC")
    assert [world.unpurged(name) for name in "ABC"] == [0, 0, 0]


@everywhere
def test_nothing_is_kept_for_a_member_that_left(stack: str, timing: str) -> None:
    """P-10: neither of it nor for it, a while after its last frame."""
    world = GroupWorld("ABC", stack, timing)
    world.drop("A", DATA, dest="C", times=ALWAYS)
    for sender in "AC":
        world.multicast(sender, *numbered(1, 20))
    world.advance(0.1)
    world.install("AB")
    world.settle()
    assert world.unpurged("A") == 0
    assert set(world.machine("A").inbound()) == {world.short("B")}
    late = world.sent("C", DATA, dest="A")[-1]
    world["A"].receive(late.data)
    world.advance(15.0)
    assert world["A"].refused["former-member"] == 1
