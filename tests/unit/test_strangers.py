"""What strangers may make a member keep: frames in any number of names, and what they cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.model import FIRST, FRAGMENT, OOB
from stormcast.node.core.strangers import (
    BEGUN_SECONDS,
    MAX_BEGUN,
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_SAID,
    MAX_SAID_TO_ONE,
    SharedPace,
    Strangers,
)
from stormcast.node.protocols.frag import HEADER
from stormcast.node.protocols.unicast.incoming import MAX_AHEAD
from tests.helpers.group import GroupWorld
from tests.helpers.world import CLUSTER, NEWEST, Member, numbered

MEMORY = 8 << 20
"""Bytes that strangers may cost a member."""
NAMES = 60
JOURNAL = 120_000
"""Bytes that strangers may cost the journal of a member in a second."""
UNICAST, MULTICAST = "unicast", "multicast"


def frame(
    source: int, dest: int, protocol: int, lo: int, *payloads: bytes, flags: int = 0
) -> bytes:
    codec = Codec(hash64(CLUSTER.encode()) & 0xFFFFFFFF, source, hash64)
    body = pack_body(payloads, hash64)
    conn = 0 if dest == wire.GROUP else 1
    return codec.pack_data(protocol, dest, conn, lo, body, flags, 0, 0, 0) + body.data


def gapped(member: Member, source: int, frames: int, *payloads: bytes) -> Iterator[bytes]:
    """A first frame, and many after a gap: a window keeps all of them."""
    protocol = member.stack.unicast.protocol
    yield frame(source, member.short, protocol, 1, b"first", flags=FIRST)
    for number in range(frames):
        lo = 3 + number * len(payloads)
        yield frame(source, member.short, protocol, lo, *payloads)


def early(member: Member, source: int, frames: int, *payloads: bytes) -> Iterator[bytes]:
    """Frames that have no window yet."""
    protocol = member.stack.unicast.protocol
    for number in range(frames):
        yield frame(source, member.short, protocol, 2 + number * len(payloads), *payloads)


def multicasts(member: Member, source: int, frames: int, *payloads: bytes) -> Iterator[bytes]:
    """Multicasts of somebody who is in no view."""
    multicast = member.stack.multicast
    assert multicast is not None
    for number in range(frames):
        lo = 1 + number * len(payloads)
        yield frame(source, wire.GROUP, multicast.protocol, lo, *payloads)


def harm(world: GroupWorld, member: Member, frames: Iterator[bytes]) -> None:
    for one in frames:
        member.stack.receive(one, world.now)
    member.turn()


@pytest.mark.parametrize("payload", [b"x", b"x" * 50_000])
@pytest.mark.parametrize("kind", [gapped, early, multicasts])
@pytest.mark.parametrize("stack", ["udp", "tcp-no-retransmit"])
@pytest.mark.parametrize("joined", [True, False])
def test_strangers_cost_a_member_no_more_than_their_budget(
    stack: str, kind: type, payload: bytes, *, joined: bool
) -> None:
    """Hundreds of names, each with what one window admits: before, each of them cost MiBs."""
    world = GroupWorld("AB", stack, joined=joined)
    member = world["B"]
    frames = (1 << 20) // len(payload) if len(payload) > 1 else 400
    harm(world, member, kind(member, 0x7000_0000, 1, payload))
    tracemalloc.start()
    try:
        before, _peak = tracemalloc.get_traced_memory()
        for number in range(NAMES):
            harm(world, member, kind(member, 0x7100_0000 + number, frames, payload))
            world.advance(0.05)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    member.blocks.clear()
    strangers = member.stack.strangers
    assert strangers.bytes <= MAX_BYTES
    assert strangers.entries <= MAX_ENTRIES
    assert peak - before < MEMORY, (peak - before) >> 20
    assert after - before < MEMORY


def flood(world: GroupWorld, member: Member) -> None:
    """What strangers may have kept is used up by others."""
    for number in range(8):
        harm(world, member, gapped(member, 0x7100_0000 + number, 10, b"x" * 50_000))


@pytest.mark.parametrize("generation", NEWEST)
def test_a_sender_outside_of_the_view_repeats_what_a_flood_pushed_out(generation: str) -> None:
    """Its window is given up with what came after a gap, and none of that was acked."""
    world = GroupWorld("AB", unicast=generation, joined=False)
    world.cut("A", "B")
    world["A"].send(b"1")
    world.heal()
    world["A"].send(b"2", b"3")
    world.advance(0.0015)
    assert world["B"].stack.strangers.senders() == [world.short("A")]
    flood(world, world["B"])
    assert world.short("A") not in world["B"].stack.strangers.senders()
    assert any(reason.startswith("stranger-") for reason in world["B"].stack.record.refused)
    world.advance(20.0)
    assert world["B"].from_("A") == [b"1", b"2", b"3"]


def test_multicasts_that_a_flood_pushed_out_before_the_first_view_are_asked_for() -> None:
    """Also where nothing is retransmitted by itself: the window is completed."""
    world = GroupWorld("AB", "tcp-no-retransmit", joined=False)
    world.install("AB", at="A")
    world.multicast("A", b"1", b"2", b"3")
    world.advance(0.01)
    assert world["B"].stack.strangers.senders() == [world.short("A")]
    flood(world, world["B"])
    assert world.short("A") not in world["B"].stack.strangers.senders()
    world.install_digest("B", "AB", {"A": (0, 0), "B": (0, 0)})
    world.settle()
    assert world["B"].from_("A") == [b"1", b"2", b"3"]


def test_who_becomes_a_member_is_no_stranger_any_more() -> None:
    world = GroupWorld("AB", joined=False)
    world.cut("A", "B")
    world["A"].send(b"1")
    world.heal()
    world["A"].send(b"2")
    world.advance(0.0015)
    strangers = world["B"].stack.strangers
    assert strangers.entries
    world.install("AB")
    assert (strangers.entries, strangers.bytes, strangers.senders()) == (0, 0, [])
    flood(world, world["B"])
    world.settle()
    assert world["B"].from_("A") == [b"1", b"2"]
    world.install("B", at="B")
    world["A"].send(b"3")
    assert world.short("A") in strangers.senders()


def test_a_stalled_application_is_owed_what_was_acked() -> None:
    """While it takes nothing, no more is taken of strangers than the budget admits, and of that
    nothing is given up."""
    world = GroupWorld("AB", joined=False)
    protocol = world["B"].stack.unicast.protocol
    world["B"].consume(consuming=False)
    world["A"].send(*numbered(1, 20))
    world.advance(0.1)
    flood(world, world["B"])
    for number in range(200):
        stranger = 0x7200_0000 + number
        first = frame(stranger, world.short("B"), protocol, 1, b"y" * 50_000, flags=FIRST)
        harm(world, world["B"], iter([first]))
        world.advance(0.1)
    assert world["B"].stack.strangers.bytes <= MAX_BYTES
    world["B"].consume(consuming=True)
    world.advance(5.0)
    assert world["B"].from_("A") == numbered(1, 20)


def test_what_a_stalled_application_took_of_a_stranger_counts_no_longer() -> None:
    world = GroupWorld("AB", joined=False)
    world["B"].consume(consuming=False)
    world["A"].send(*(b"x" * 50_000 for _ in range(20)))
    world.advance(1.0)
    strangers = world["B"].stack.strangers
    assert strangers.bytes >= 20 * 50_000
    world["B"].consume(consuming=True)
    world["B"].turn()
    assert strangers.bytes == 0


def test_windows_of_strangers_are_opened_at_a_bounded_pace() -> None:
    """Each leaves records in the journal; a sender that exists tries again."""
    world = GroupWorld("AB")
    member = world["B"]
    protocol = member.stack.unicast.protocol
    for number in range(3 * MAX_BEGUN):
        first = frame(0x7100_0000 + number, member.short, protocol, 1, b"x", flags=FIRST)
        harm(world, member, iter([first]))
    assert len(member.stack.unicast.receive_connections()) == MAX_BEGUN
    assert member.stack.record.refused["stranger-windows"] == 2 * MAX_BEGUN


@pytest.mark.parametrize("let_in", [True, False])
def test_an_ack_that_was_put_off_leaves_when_its_sender_is_let_in(let_in: bool) -> None:
    """Else a member of the view would wait as long as a stranger. L1."""
    world = GroupWorld("AB", timing="fast", unicast="UNICAST4", settings={"ack_threshold": 1})
    world.install("B", at="B")
    strangers = world["B"].stack.strangers
    while strangers.said.admits(world.now):
        pass
    world["A"].send(b"1")
    world.advance(0.3)
    assert world["B"].from_("A") == [b"1"]
    assert world["A"].unacked("B") == 1
    if let_in:
        world.install("AB", at="B")
    world.advance(0.1)
    assert world["A"].unacked("B") == (0 if let_in else 1)
    world.advance(1.0)
    assert world["A"].unacked("B") == 0


# -- The counts ------------------------------------------------------------------------------------


def test_what_is_kept_is_counted_by_sender_and_keeper() -> None:
    strangers = Strangers()
    strangers.keep(1, UNICAST, 3, 100)
    strangers.keep(2, MULTICAST, 1, 10)
    strangers.keep(1, MULTICAST, 2, 20)
    strangers.keep(1, UNICAST, 1, 50)
    assert (strangers.entries, strangers.bytes) == (4, 80)
    assert strangers.senders() == [1, 2]
    strangers.keep(1, UNICAST, 0, 0)
    assert (strangers.entries, strangers.bytes) == (3, 30)
    strangers.forget(1)
    strangers.keep(2, MULTICAST, 0, 0)
    strangers.keep(3, UNICAST, 0, 0)
    assert (strangers.entries, strangers.bytes, strangers.senders()) == (0, 0, [])


@pytest.mark.parametrize(("entries", "size"), [(1, MAX_BYTES + 1), (MAX_ENTRIES + 1, 0)])
def test_either_bound_is_exceeded_by_itself(entries: int, size: int) -> None:
    strangers = Strangers()
    strangers.keep(1, UNICAST, entries, size)
    assert strangers.is_over
    strangers.keep(1, UNICAST, min(entries, MAX_ENTRIES), min(size, MAX_BYTES))
    assert not strangers.is_over


# -- Large messages --------------------------------------------------------------------------------


def pieces_of(member: Member, source: int, number: int, total: int) -> Iterator[bytes]:
    """The first pieces of a message that never ends."""
    protocol = member.stack.unicast.protocol
    codec = Codec(hash64(CLUSTER.encode()) & 0xFFFFFFFF, source, hash64)
    for index in range(number):
        header = HEADER.pack(1, index, total // 50_000, total)
        body = pack_body([b"x" * 50_000], hash64, header)
        flags = FRAGMENT | (FIRST if not index else 0)
        head = codec.pack_data(protocol, member.short, 1, 1 + index, body, flags, 0, 0, 0)
        yield head + body.data


def test_large_messages_of_strangers_are_begun_only_as_far_as_there_is_room() -> None:
    """They are acked piece by piece: what is refused is not, and its sender is told in the end."""
    world = GroupWorld("AB")
    member = world["B"]
    for number in range(20):
        harm(world, member, pieces_of(member, 0x7100_0000 + number, 20, 10_000_000))
    assert member.stack.strangers.bytes <= MAX_BYTES + 20 * 50_128, "and what one turn brings"
    refused = member.stack.record.refused
    assert sum(count for why, count in refused.items() if why.startswith("stranger-")) > 300
    assert "fragment-expired" not in member.stack.record.refused
    world["A"].send(b"z" * 1_000_000)
    world.advance(1.0)
    assert member.from_("A") == [b"z" * 1_000_000], "members are not concerned"
    world.advance(500.0)
    assert member.stack.strangers.bytes == 0
    assert member.stack.record.refused["fragment-expired"]


def test_a_large_message_from_outside_of_the_view_arrives_once_its_sender_is_in_it() -> None:
    world = GroupWorld("AB", joined=False)
    world.install("B", at="B")
    large = b"z" * (MAX_BYTES + 1_000_000)
    world["A"].send(large)
    world.advance(5.0)
    assert not world["B"].take()
    assert world["B"].stack.strangers.bytes <= MAX_BYTES
    world.install("AB")
    world.advance(30.0)
    assert world["B"].from_("A") == [large]


def test_a_large_message_that_is_never_let_in_is_told_to_its_sender() -> None:
    world = GroupWorld("AB", joined=False)
    world.install("B", at="B")
    world["A"].send(b"z" * (MAX_BYTES + 1_000_000))
    world.advance(200.0)
    assert not world["B"].take()
    (told,) = world["A"].events(trace.ABANDONED)
    assert (told.peer, told.count) == (world.short("B"), 1)


def test_what_a_stranger_sent_out_of_order_is_not_remembered_without_end() -> None:
    """Every second message, each to be delivered at once: a few are, the others wait for their
    turn. What is remembered of the window when it is gone is small, and all arrives once."""
    world = GroupWorld("AB")
    member, source = world["B"], 0x7000_0000
    protocol = member.stack.unicast.protocol

    def send(lo: int, flags: int = OOB) -> None:
        member.receive(frame(source, member.short, protocol, lo, b"%d" % lo, flags=flags))

    send(1, FIRST)
    for lo in range(3, 403, 2):
        send(lo)
    assert 1 < len(member.delivered) <= 1 + MAX_AHEAD
    entry = member.stack.unicast.receive_connections()[source]
    assert len(entry.window.places()) <= MAX_AHEAD
    for lo in range(2, 403, 2):
        send(lo, 0)
    assert sorted(map(int, member.delivered)) == list(range(1, 403))


@pytest.mark.parametrize(("number", "early"), [(3, [3, 5, 7]), (MAX_AHEAD, [])])
def test_what_a_stranger_sent_during_a_stall_overtakes_as_little(
    number: int, early: list[int]
) -> None:
    world = GroupWorld("AB")
    member, source = world["B"], 0x7000_0000
    protocol = member.stack.unicast.protocol

    def send(lo: int, flags: int = OOB) -> None:
        member.receive(frame(source, member.short, protocol, lo, b"%d" % lo, flags=flags))

    send(1, FIRST)
    member.consume(consuming=False)
    for place in range(number):
        send(3 + 2 * place)
    member.consume(consuming=True)
    assert list(map(int, member.delivered)) == [1, *early]
    for lo in range(2, 3 + 2 * number):
        send(lo, 0)
    assert sorted(map(int, member.delivered)) == list(range(1, 3 + 2 * number))


def journal_bytes(member: Member) -> int:
    """What the member's journal has grown by since the last call."""
    member.host.tracer.seal()
    size = sum(map(len, member.blocks))
    member.blocks.clear()
    return size


def refused(_member: Member, number: int) -> bytes:
    return b"x" + b"%d" % number


def repeated(member: Member, _number: int) -> bytes:
    protocol = member.stack.unicast.protocol
    return frame(0x7000_0000, member.short, protocol, 1, b"x", flags=FIRST)


def gaps(member: Member, number: int) -> bytes:
    source, lo = 0x7000_0000 + number % 50, 1 + number // 50 * 2
    flags = FIRST if lo == 1 else 0
    return frame(source, member.short, member.stack.unicast.protocol, lo, b"x", flags=flags)


def without_window(member: Member, number: int) -> bytes:
    source = 0x7000_0000 + number % 2000
    return frame(source, member.short, member.stack.unicast.protocol, 2 + number, b"x")


def opening(member: Member, number: int) -> bytes:
    source = 0x7000_0000 + number
    return frame(source, member.short, member.stack.unicast.protocol, 1, b"x", flags=FIRST)


def asking_for_credits(member: Member, number: int) -> bytes:
    codec = Codec(hash64(CLUSTER.encode()) & 0xFFFFFFFF, 0x7000_0000, hash64)
    return codec.pack_control(wire.CREDIT_REQ, wire.UFC, member.short, 0, number)


def early_multicast(member: Member, number: int) -> bytes:
    multicast = member.stack.multicast
    assert multicast is not None
    return frame(0x7000_0000 + number, wire.GROUP, multicast.protocol, 1 + number, b"x")


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["compatible", "fast"])
@pytest.mark.parametrize(
    "kind",
    [refused, repeated, gaps, without_window, opening, asking_for_credits, early_multicast],
)
def test_a_flood_of_strangers_does_not_fill_the_journal(kind: Any, timing: str) -> None:
    """Five thousand frames in a second, each in a turn of its own."""
    world = GroupWorld("AB", timing=timing)
    member = world["B"]
    journal_bytes(member)
    for number in range(5000):
        member.receive(kind(member, number))
        world.advance(0.0002)
    size = journal_bytes(member)
    print(kind.__name__, timing, size)
    assert size < JOURNAL


# -- What strangers are told -----------------------------------------------------------------------


def test_one_stranger_is_told_no_more_than_its_share() -> None:
    """Others are told something, too, in the same second."""
    pace = SharedPace()
    assert sum(pace.admits_for(1, 0.5) for _ in range(1000)) == MAX_SAID_TO_ONE
    others = sum(pace.admits_for(2 + number // 10, 0.5) for number in range(1000))
    assert others == MAX_SAID - MAX_SAID_TO_ONE
    assert pace.admits_for(1, 0.5 + BEGUN_SECONDS)


@pytest.mark.parametrize("generation", ["UNICAST", "UNICAST2", *NEWEST])
def test_a_stranger_that_sends_much_is_acked_at_a_pace(generation: str) -> None:
    """UNICAST2 reports at once where much has come: these reports are acks like others."""
    world = GroupWorld("AB", unicast=generation, joined=False, settings={"window_messages": 4})
    member = world["B"]
    protocol, source = member.stack.unicast.protocol, 0x7100_0000
    for number in range(400):
        flags = FIRST if not number else 0
        one = frame(source, member.short, protocol, 1 + number, b"x", flags=flags)
        harm(world, member, iter([one]))
        world.advance(0.002)
    assert 1 <= len(member.events(trace.ACKED)) <= MAX_SAID_TO_ONE


# -- What is remembered ----------------------------------------------------------------------------


def small_ones_in_two_pieces(member: Member, source: int, number: int) -> Iterator[bytes]:
    """Messages of two bytes, whole and out of order: nothing is left of them but their ids."""
    protocol = member.stack.unicast.protocol
    codec = Codec(hash64(CLUSTER.encode()) & 0xFFFFFFFF, source, hash64)
    for lo in range(1, 2 * number + 1):
        header = HEADER.pack((lo + 1) // 2, (lo + 1) % 2, 2, 2)
        body = pack_body([b"x"], hash64, header)
        flags = FRAGMENT | OOB | (FIRST if lo == 1 else 0)
        head = codec.pack_data(protocol, member.short, 1, lo, body, flags, 0, 0, 0)
        yield head + body.data


def test_ids_of_messages_that_are_over_count_and_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """256 ids were remembered of each name for seven minutes: 3,300 names cost 40 MiB."""
    monkeypatch.setattr("stormcast.node.core.strangers.MAX_BYTES", 100_000)
    world = GroupWorld("AB")
    member = world["B"]
    strangers = member.stack.strangers
    names = range(0x7100_0000, 0x7100_0000 + 60)
    for name in names:
        harm(world, member, small_ones_in_two_pieces(member, name, 50))
        world.advance(0.05)
        assert strangers.bytes <= 100_000
    remembered = strangers.remembered()
    assert names[-1] in remembered
    assert names[0] not in remembered
    assert 5 < len(remembered) < 30
    assert strangers.bytes > 60_000, "they are counted"
    assert strangers.has_room(), "and keep nobody out"
    world["A"].send(b"z" * 1_000_000)
    world.advance(1.0)
    assert member.from_("A") == [b"z" * 1_000_000]
    world.advance(500.0)
    assert (strangers.entries, strangers.bytes, strangers.remembered()) == (0, 0, [])


def test_what_is_only_remembered_goes_before_what_is_kept() -> None:
    world = GroupWorld("AB")
    member, strangers = world["B"], world["B"].stack.strangers
    harm(world, member, small_ones_in_two_pieces(member, 0x7100_0000, 20))
    world.advance(0.05)
    assert strangers.remembered() == [0x7100_0000]
    before = strangers.bytes
    strangers.keep(1, MULTICAST, 1, MAX_BYTES - before + 1)
    assert strangers.is_over
    harm(world, member, gapped(member, 0x7100_0001, 3, b"x"))
    assert strangers.remembered() == []
    assert not strangers.is_over
    assert {0x7100_0001, 1} <= set(strangers.senders())


def test_who_becomes_a_member_is_remembered_out_of_the_budget() -> None:
    strangers = Strangers()
    strangers.remember(1, 1, 100)
    strangers.remember(2, 1, 100)
    strangers.remember(1, 1, 150)
    assert (strangers.entries, strangers.bytes, strangers.remembered()) == (2, 250, [2, 1])
    strangers.forget(2)
    strangers.remember(1, 0, 0)
    assert (strangers.entries, strangers.bytes, strangers.remembered()) == (0, 0, [])
