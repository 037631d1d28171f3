"""What unicast delivers when nothing goes wrong: everything, once, in order (G1, G2, G3)."""

from __future__ import annotations

from random import Random

import pytest

from stormcast.node import trace
from stormcast.node.core.model import DONT_BUNDLE, DONT_LOOPBACK, OOB
from stormcast.node.core.wire import DATA
from tests.helpers.world import Pair, World, numbered, on_every_generation

MIXED = {1: 0, 2: 0, 3: OOB, 4: DONT_LOOPBACK, 5: 0}
"""Flags of the five messages of U-43."""


@pytest.mark.parametrize("max_batch", [1, None])
@on_every_generation
def test_two_members_talk_without_any_view(
    generation: str, timing: str, max_batch: int | None
) -> None:
    """U-01: 100 messages to B, then 50 to A; nobody ever installs a view."""
    pair = Pair(generation, timing, max_batch=max_batch)

    pair.a.send(*numbered(1, 100), to="B")
    pair.settle()
    pair.b.send(*numbered(1, 50), to="A")
    pair.settle()

    assert pair.b.delivered == numbered(1, 100)
    assert pair.a.delivered == numbered(1, 50)
    assert pair.a.stack.view is None
    assert pair.b.stack.view is None
    pair.assert_idle()


@on_every_generation
def test_two_members_that_talk_to_each_other_and_to_themselves_resend_nothing(
    generation: str, timing: str
) -> None:
    """U-10: 100 to self and 100 to the other, interleaved, on both sides; not one is repeated."""
    pair = Pair(generation, timing)
    for payload in numbered(1, 100):
        pair.a.send(payload, to="A")
        pair.a.send(payload, to="B")
        pair.b.send(payload, to="A")
        pair.b.send(payload, to="B")
    pair.settle()

    for member in pair:
        assert member.from_("A") == numbered(1, 100)
        assert member.from_("B") == numbered(1, 100)
        assert member.events(trace.RETRANSMITTED) == []
    pair.assert_idle()


@on_every_generation
def test_ten_thousand_messages_to_self_arrive_in_order(generation: str, timing: str) -> None:
    """U-15: 10 000 messages of 1000 bytes, each with its number."""
    world = World(generation, timing, members="A", max_batch=None)
    sent = [number.to_bytes(4) + bytes(996) for number in range(1, 10_001)]
    for start in range(0, 10_000, 1000):
        world["A"].send(*sent[start : start + 1000], to="A")

    assert world["A"].delivered == sent


@on_every_generation
def test_messages_to_self_never_touch_the_network(generation: str, timing: str) -> None:
    """U-53: 1000 messages to self; no frame leaves, and no timer is left."""
    world = World(generation, timing, members="A")
    world["A"].send(*numbered(1, 1000), to="A")
    world.settle()

    assert world["A"].delivered == numbered(1, 1000)
    assert world.wire == []
    world.assert_idle()


@pytest.mark.parametrize("max_batch", [1, None])
@on_every_generation
def test_to_self_what_is_flagged_dont_loopback_is_not_delivered_and_leaves_nothing_behind(
    generation: str, timing: str, max_batch: int | None
) -> None:
    """U-46: nine messages; 4, 6 and 7 are DONT_LOOPBACK, 5 is OOB; no window is left to fill."""
    world = World(generation, timing, members="A", max_batch=max_batch)
    flags = {4: DONT_LOOPBACK, 6: DONT_LOOPBACK, 7: DONT_LOOPBACK, 5: OOB}
    for number in range(1, 10):
        world["A"].send(b"%d" % number, to="A", flags=flags.get(number, 0))
    world.settle()

    assert world["A"].delivered == [b"1", b"2", b"3", b"5", b"8", b"9"]
    assert world["A"].unacked("A") == 0
    world.assert_idle()


@pytest.mark.parametrize("max_batch", [1, None])
@on_every_generation
def test_every_kind_of_message_reaches_the_other_and_is_acked(
    generation: str, timing: str, max_batch: int | None
) -> None:
    """U-43: regular, regular, OOB, DONT_LOOPBACK, regular; one turn each, then all in one turn."""
    pair = Pair(generation, timing, max_batch=max_batch)
    for number, flags in MIXED.items():
        pair.a.send(b"%d" % number, flags=flags)
    pair.settle()
    for number, flags in MIXED.items():
        assert pair.a.stack.try_send(pair.short("B"), b"%d" % number, flags)
    pair.a.turn()
    pair.settle()

    assert pair.b.delivered == numbered(1, 5) * 2
    assert pair.a.unacked("B") == 0
    pair.assert_idle()


@on_every_generation
def test_four_members_send_to_everybody_including_themselves(generation: str, timing: str) -> None:
    """U-44: five numbered messages from each of four to each of four."""
    world = World(generation, timing, members="ABCD")
    for source in world:
        for payload in numbered(1, 5):
            for dest in world:
                source.send(payload, to=dest.name)
    world.settle()

    for dest in world:
        assert len(dest.delivered) == 20
        for source in world:
            assert dest.from_(source.name) == numbered(1, 5)
    world.assert_idle()


@pytest.mark.parametrize(
    "views",
    [
        {"A": "ABC", "B": "ABC", "C": "ABC"},
        {"A": "ABC", "B": "ABC", "C": "C"},
        {"A": "AB", "B": "BC", "C": "CA"},
        {"A": "A", "B": "B", "C": "C"},
    ],
    ids=lambda views: "-".join(views.values()),
)
@on_every_generation
def test_views_in_any_disagreement_do_not_stop_unicasts(
    generation: str, timing: str, views: dict[str, str]
) -> None:
    """U-48, U-51: everyone sends five to everyone, before and after the views are handed out."""
    world = World(generation, timing, members="ABC")
    for phase in (numbered(1, 5), numbered(6, 10)):
        for source in world:
            for dest in world:
                source.send(*phase, to=dest.name)
        world.settle()
        for dest in world:
            assert {source.name: dest.from_(source.name) for source in world} == dict.fromkeys(
                "ABC", phase
            )
            dest.take()
        for name, members in views.items():
            world[name].see(*members)
    world.assert_idle()


@on_every_generation
def test_two_streams_keep_their_order_while_everything_is_shuffled(
    generation: str, timing: str
) -> None:
    """O-02: both directions at once, each group of up to 100 frames arrives in random order."""
    pair = Pair(generation, timing)
    random = Random(2)
    for start in range(1, 1001, 100):
        held = pair.hold(kind=DATA)
        pair.a.send(*numbered(start, start + 99), to="B")
        pair.b.send(*numbered(start, start + 99), to="A")
        pair.release(held, lambda frames: random.sample(frames, len(frames)))
        pair.deliver()
    pair.settle()

    assert pair.b.delivered == pair.a.delivered == numbered(1, 1000)
    pair.assert_idle()


@on_every_generation
def test_five_oob_messages_that_travelled_alone_arrive_from_one_datagram(
    generation: str, timing: str
) -> None:
    """BU-07: five OOB frames are held and let go as one datagram."""
    pair = Pair(generation, timing, max_batch=None)
    held = pair.hold("A", DATA)
    pair.a.send(*numbered(1, 5), flags=OOB | DONT_BUNDLE)
    assert len(held.held) == 5

    pair.release(held, as_one=True)
    pair.deliver()
    assert pair.b.delivered == numbered(1, 5)


@on_every_generation
def test_oob_messages_that_came_during_a_stall_wait_for_no_gap(
    generation: str, timing: str
) -> None:
    """P-02: they overtake what is missing as soon as the application listens again, each once."""
    pair = Pair(generation, timing)
    pair.open(1)
    held = pair.hold("A", DATA, 3)
    pair.b.consume(consuming=False)
    for payload, flags in ((b"2", 0), (b"3", 0), (b"4", OOB), (b"5", 0), (b"6", OOB)):
        pair.a.send(payload, flags=flags)
    pair.deliver()
    assert pair.b.delivered == []
    pair.b.consume(consuming=True)
    assert pair.b.delivered == [b"2", b"4", b"6"]

    pair.release(held)
    pair.settle()
    assert pair.b.delivered == [b"2", b"4", b"6", b"3", b"5"]
    pair.assert_idle()


@on_every_generation
def test_messages_that_must_not_be_bundled_arrive_one_by_one(generation: str, timing: str) -> None:
    """N-27, unicast half: 100 DONT_BUNDLE messages of a turn are 100 frames and 100 deliveries."""
    pair = Pair(generation, timing, max_batch=None)
    pair.a.send(*numbered(1, 100), flags=DONT_BUNDLE)
    pair.settle()

    assert pair.count("A", DATA) == 100
    assert [len(delivery) for delivery in pair.b.deliveries] == [1] * 100
    assert pair.b.delivered == numbered(1, 100)


@on_every_generation
def test_one_turn_is_one_frame_and_one_delivery(generation: str, timing: str) -> None:
    """100 messages accepted in one turn travel as one batch, and are handed up as one."""
    pair = Pair(generation, timing, max_batch=None)
    pair.a.send(*numbered(1, 100))
    pair.settle()

    assert pair.count("A", DATA) == 1
    assert [len(delivery) for delivery in pair.b.deliveries] == [100]
