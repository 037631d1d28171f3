"""Large messages while the group changes: whole or not at all, and in their place."""

from __future__ import annotations

import pytest

from stormcast.node.core.model import OOB, View, ViewId
from stormcast.node.core.wire import DATA
from stormcast.node.trace import ABANDONED
from tests.helpers.group import ALWAYS, STACKS, GroupWorld, formed, numbered
from tests.helpers.world import TIMINGS

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)
PIECES = {"FRAG": {"frag_size": 1000}}
HASTY = {"MERGE3": {"min_interval": 0.5, "max_interval": 1.0, "check_interval": 3.0}}


def large(number: int, pieces: int = 5) -> bytes:
    """A message of so many pieces of a thousand bytes, all of which tell its number."""
    return b"%04d" % number * (250 * pieces - 1) + b"!"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@everywhere
def test_large_and_small_keep_their_order_over_a_bad_wire(
    stack: str, timing: str, seed: int
) -> None:
    """FR-01, FR-05: everybody multicasts and sends both; frames are lost, doubled and late."""
    world = GroupWorld("ABC", stack, timing, protocols=PIECES)
    world.weather(seed, loss=0.1, copies=0.1, spread=0.02)
    said = [large(number) if number % 3 else b"%04d" % number for number in range(30)]
    for payload in said:
        for name, other in ("AB", "BC", "CA"):
            world.multicast(name, payload)
            world[name].send(payload, to=other)
        world.advance(0.005)
    world.advance(10.0)
    world.heal()
    world.settle()
    for name, other in ("AB", "BC", "CA"):
        assert world.everyone_got(name, said, name)
        got = world[other].deliveries
        for is_multicast in (True, False):
            stream = [
                bytes(payload)
                for delivery in got
                if delivery.source == world.short(name) and delivery.is_multicast == is_multicast
                for payload in delivery
            ]
            assert stream == said


@everywhere
def test_large_oob_messages_wait_for_nobody(stack: str, timing: str) -> None:
    """The first is missing a piece: the second is delivered before it, each of them once."""
    world = GroupWorld("AB", stack, timing, protocols=PIECES)
    world.drop("A", DATA, 3, dest="B")
    world.multicast("A", large(1), flags=OOB)
    world.multicast("A", large(2), flags=OOB)
    world.multicast("A", large(3))
    world.deliver()
    assert world.got("B", "A") == [large(2)]
    world.settle()
    assert world.got("B", "A")[0] == large(2)
    assert sorted(world.got("B", "A")) == [large(1), large(2), large(3)]
    assert world.got("A", "A") == [large(1), large(2), large(3)]


@pytest.mark.slow
@everywhere
def test_a_joiner_gets_large_messages_whole_or_not_at_all(stack: str, timing: str) -> None:
    """Its windows begin anywhere, in the middle of a message, too: pieces without their beginning
    are not delivered, and do not stand in the way of the next."""
    world = formed("AB", stack, timing, protocols=PIECES)
    world.start("C")
    for number in range(60):
        if number == 20:
            world.join("C")
        world.multicast("A", large(number))
        world.advance(0.05)
    world.advance_until(lambda: world.views_agree("ABC"), 30.0)
    world.multicast("A", large(60))
    world.settle()
    everything = [large(number) for number in range(61)]
    assert world.got("B", "A") == everything
    got = world.got("C", "A")
    assert got
    assert got == everything[-len(got) :]


@pytest.mark.slow
@everywhere
def test_pieces_from_before_a_split_join_with_nothing_after_it(stack: str, timing: str) -> None:
    """Half a message arrives, the wire is cut, and after the merge its sender speaks again."""
    world = formed("AB", stack, timing, protocols={**PIECES, **HASTY})
    world.multicast("A", large(1))
    world.settle()
    low = world.machine("A").own.high
    for seqno in (low + 3, low + 4, low + 5):
        world.drop("A", DATA, seqno, protocol=world.machine("A").protocol, times=ALWAYS)
    world.multicast("A", large(2))
    world.deliver()
    world.partition("A", "B")
    world.advance_until(lambda: world.view("A") == "A" and world.view("B") == "B", 90.0)
    world.heal()
    world.advance_until(lambda: world.views_agree("AB"), 30.0)
    world.multicast("A", large(3), b"small", large(4))
    world["A"].send(large(5), to="B")
    world.settle()
    assert world.got("B", "A")[:1] == [large(1)]
    assert sorted(world.got("B", "A")[1:]) == sorted([large(3), b"small", large(4), large(5)])


@everywhere
def test_a_large_message_of_who_leaves_arrives_before_it_is_gone(stack: str, timing: str) -> None:
    """What was multicast before the leave is delivered by all, large or small."""
    world = formed("ABC", stack, timing, protocols=PIECES)
    world.multicast("C", large(1, pieces=40), *numbered(1, 3))
    world.depart("C")
    world.settle()
    assert world.everyone_got("C", [large(1, pieces=40), *numbered(1, 3)], "AB")


@pytest.mark.parametrize("flags", [0, OOB])
@everywhere
def test_the_last_piece_may_come_in_the_turn_in_which_its_sender_is_excluded(
    stack: str, timing: str, flags: int
) -> None:
    """B was paused: when it goes on it takes the rest of a message, and then the view without A.
    All of it was delivered, so the application is handed it."""
    world = GroupWorld("AB", stack, timing, protocols=PIECES)
    last = world.hold("A", DATA, 5, dest="B")
    world.multicast("A", large(1), flags=flags)
    world.deliver()
    assert world.got("B", "A") == []
    b = world["B"]
    b.stack.receive(last.held[0].data, b.now)
    alone = View(ViewId(9, b.address), (b.address,))
    b.stack.install_view(alone, b.now)
    b.turn()
    assert world.got("B", "A") == [large(1)]


@everywhere
def test_what_a_stranger_began_waits_for_an_application_that_is_stalled(
    stack: str, timing: str
) -> None:
    """A is excluded at B in the middle of a unicast. B's application takes nothing for longer than
    any connection lives without an answer; then it gets the message whole."""
    world = GroupWorld("AB", stack, timing, protocols=PIECES)
    last = world.hold("A", DATA, 5, dest="B")
    world["A"].send(large(1), to="B")
    world.deliver()
    world.install("B", at="B", number=9)
    world["B"].consume(consuming=False)
    world.release(last)
    world.advance(1000.0)
    assert world.got("B", "A") == []
    world["B"].consume(consuming=True)
    world.advance(5.0)
    assert world.got("B", "A") == [large(1)]


# -- What may be unfinished ------------------------------------------------------------------------

TIGHT = {
    "FRAG": {
        "frag_size": 1000,
        "max_message_size": 5000,
        "max_open_bytes": 5700,
        "max_open_messages": 2,
    }
}
"""Two OOB messages may be unfinished, or one of the largest."""


@pytest.mark.slow
@pytest.mark.parametrize("to", ["", "B"])
@everywhere
def test_oob_messages_in_pieces_are_never_refused_after_they_were_acked(
    stack: str, timing: str, to: str
) -> None:
    """A third of all frames is lost and the rest shuffled, and of 60 messages two may be unfinished
    at a receiver. Its sender waits with the next one, so none is thrown away."""
    world = formed("AB", stack, timing, protocols=TIGHT)
    world.weather(1, loss=0.3, copies=0.1, spread=0.02)
    said = [large(number, 2 + number % 4) for number in range(60)]
    for payload in said:
        if to:
            world["A"].send(payload, to=to, flags=OOB)
        else:
            world.multicast("A", payload, flags=OOB)
    world.advance(20.0)
    world.heal()
    world.advance(100.0)
    got = [
        bytes(payload)
        for delivery in world["B"].deliveries
        if delivery.source == world.short("A")
        for payload in delivery
    ]
    assert sorted(got) == sorted(said)
    assert not [why for why in world["B"].refused if why.startswith("fragment-")]


@everywhere
def test_members_who_send_large_messages_at_once_do_not_cost_each_other_theirs(
    stack: str, timing: str
) -> None:
    """What may be unfinished is counted for each sender: three of the largest are under way."""
    bounds = {"frag_size": 1000, "max_message_size": 50_000, "max_open_bytes": 60_000}
    flows = {"MFC": {"max_credits": 6000, "min_threshold": 0.5}} if stack == "udp" else {}
    world = formed("ABC", stack, timing, protocols={"FRAG": bounds, **flows})
    said = large(1, 50)
    for name in "ABC":
        world.multicast(name, said)
    world.settle()
    for name in "ABC":
        assert world.everyone_got(name, [said], name)


@everywhere
def test_a_message_ends_with_the_connection_in_the_middle_of_which_it_is(
    stack: str, timing: str
) -> None:
    """Half of its pieces have left when A forgets B: the rest would be of no use. A is told of one
    message, and the next arrives."""
    world = formed(
        "AB",
        stack,
        timing,
        protocols={**PIECES, "UFC": {"max_credits": 6000, "min_threshold": 0.5}},
    )
    for seqno in range(1, 20):
        world.drop("A", DATA, seqno, dest="B")
    world["A"].send(large(1, 20), to="B")
    world.advance(0.2)
    world["A"].stack.unicast.forget(world.short("B"), world.now)
    world["A"].turn()
    world.heal()
    world["A"].send(large(2), to="B")
    world.settle()
    assert world.got("B", "A") == [large(2)]
    assert sum(world["A"].abandoned.values()) == 1
    told = world["A"].events(ABANDONED)
    assert [(one.lo, one.hi, one.count) for one in told if not one.protocol] == [(1, 1, 0)]
    assert sum(one.count for one in told) == 1
