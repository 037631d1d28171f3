"""Frames handed to one stack by hand: which of them open a window, wait for one, or are delivered.

A is nobody here: its frames are made by hand, so that any order and any bundling can be tried.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from stormcast.node.core.codec import Codec, pack_body, unpack_lengths_untrusted
from stormcast.node.core.model import FIRST, OOB
from stormcast.node.core.wire import DATA, SFS
from stormcast.node.protocols.unicast import UNICAST3, UnicastConfig
from stormcast.node.protocols.unicast.entries import Arrival
from stormcast.node.protocols.unicast.resync import Resync
from stormcast.node.protocols.unicast.tombstones import MAX_PEERS
from tests.helpers.forge import Forger
from tests.helpers.unicast import connections
from tests.helpers.world import World, hash64, numbered, on_every_generation

CONN = 7

Batch = Callable[[int, int], list[bytes]]


class Fixture:
    """B, and the frames of an A that does not exist."""

    def __init__(self, generation: str, timing: str, flags: int = 0, **overrides: object) -> None:
        self.world = World(generation, timing, members="B", **overrides)
        self.b = self.world["B"]
        self.a = Forger(self.world, "A", "B")
        self.flags = flags

    def whole(self, lo: int, hi: int) -> list[bytes]:
        """`lo..hi` as one batch in one frame."""
        flags = self.flags | (FIRST if lo == 1 else 0)
        return [self.a.data(CONN, lo, *numbered(lo, hi), flags=flags)]

    def single(self, lo: int, hi: int) -> list[bytes]:
        """`lo..hi` as a frame each."""
        return [frame for seqno in range(lo, hi + 1) for frame in self.whole(seqno, seqno)]

    def cut(self, shape: str) -> Batch:
        return self.whole if shape == "whole" else self.single

    def epochs(self) -> list[int]:
        return [entry.epoch for entry in self.b.stack.unicast.receive_connections().values()]


shapes = pytest.mark.parametrize("shape", ["whole", "single"])
kinds = pytest.mark.parametrize("flags", [0, OOB], ids=["regular", "oob"])


@on_every_generation
def test_a_first_frame_opens_one_window_however_often_it_comes(
    generation: str, timing: str
) -> None:
    """U-25: seqno 1, first, of one connection, twice: one entry, and it is the same one."""
    fixture = Fixture(generation, timing)
    fixture.b.receive(*fixture.whole(1, 1))
    entry = fixture.b.receiver("A")
    fixture.b.receive(*fixture.whole(1, 1))

    assert entry is not None
    assert fixture.b.receiver("A") is entry
    assert entry.conn == CONN
    assert len(fixture.epochs()) == 1
    assert fixture.b.delivered == [b"1"]


@on_every_generation
def test_a_frame_that_is_not_the_first_opens_nothing_and_asks_once(
    generation: str, timing: str
) -> None:
    """U-26: seqno 2 without a window: no entry, and exactly one SFS."""
    fixture = Fixture(generation, timing)
    fixture.b.receive(*fixture.whole(2, 2))
    # The first UNICAST3 asks at the next tick, the others at once.
    fixture.world.intervals(1)

    assert fixture.b.receiver("A") is None
    (sync,) = fixture.world.sent("B")
    assert (sync.kind, sync.head.conn, sync.lo) == (SFS, CONN, 2)
    assert sync.head.stamp
    assert fixture.b.delivered == []


@on_every_generation
def test_a_sender_is_not_asked_sooner_because_it_was_silent(generation: str, timing: str) -> None:
    """The least time is longer than a silent sender is remembered otherwise."""
    fixture = Fixture(generation, timing, sync_min_interval=100.0)
    fixture.b.receive(*fixture.whole(2, 2))
    for seconds, syncs in ((65.0, 1), (30.0, 1), (10.0, 2)):
        fixture.world.advance(seconds)
        fixture.b.receive(*fixture.whole(3, 3))
        fixture.world.advance(0.5)
        assert fixture.world.count("B", SFS) == syncs


@shapes
@kinds
@on_every_generation
def test_a_batch_that_begins_with_the_first_is_delivered_in_order(
    generation: str, timing: str, flags: int, shape: str
) -> None:
    """U-28: 1..10 in one datagram, regular or OOB."""
    fixture = Fixture(generation, timing, flags)
    fixture.b.receive(*fixture.cut(shape)(1, 10))
    assert fixture.b.delivered == numbered(1, 10)


@shapes
@on_every_generation
def test_what_came_before_the_first_message_is_not_lost(
    generation: str, timing: str, shape: str
) -> None:
    """U-29: 2..10, then 11..20 with 1 at the end of the same datagram."""
    fixture = Fixture(generation, timing)
    batch = fixture.cut(shape)
    fixture.b.receive(*batch(2, 10))
    assert fixture.b.delivered == []

    fixture.b.receive(*batch(11, 20), *batch(1, 1))
    assert fixture.b.delivered == numbered(1, 20)
    assert fixture.b.cached() == 0


@pytest.mark.parametrize("order", [(2, 1, 3), (3, 2, 1), (2, 3, 1)])
@pytest.mark.parametrize("datagrams", [1, 3])
@on_every_generation
def test_the_first_message_may_come_last_in_a_turn_and_nobody_is_asked_for_it(
    generation: str, timing: str, datagrams: int, order: tuple[int, ...]
) -> None:
    """As if the first one were added first: no SFS, and what one would cost is not spent: the
    window is lost, and the next frame without one asks at once."""
    fixture = Fixture(generation, timing, sync_min_interval=50.0)
    frames = [frame for seqno in order for frame in fixture.whole(seqno, seqno)]
    for datagram in [frames] if datagrams == 1 else [[frame] for frame in frames]:
        fixture.b.stack.receive(b"".join(datagram), fixture.world.now)
    fixture.b.turn()
    assert fixture.b.delivered == numbered(1, 3)
    fixture.world.advance(10.0)
    assert fixture.world.count("B", SFS) == 0

    fixture.b.forget("A")
    fixture.b.receive(*fixture.whole(4, 4))
    fixture.world.intervals(1)
    assert fixture.world.count("B", SFS) == 1


@shapes
@on_every_generation
def test_a_batch_that_repeats_what_came_early_delivers_it_once(
    generation: str, timing: str, shape: str
) -> None:
    """U-31: 2..10, then 1..20."""
    fixture = Fixture(generation, timing)
    batch = fixture.cut(shape)
    fixture.b.receive(*batch(2, 10))
    fixture.b.receive(*batch(1, 20))

    assert fixture.b.delivered == numbered(1, 20)


@shapes
@on_every_generation
def test_the_first_message_alone_sets_free_what_came_early(
    generation: str, timing: str, shape: str
) -> None:
    """U-33, regular: 2..10, then only 1: in order."""
    fixture = Fixture(generation, timing)
    fixture.b.receive(*fixture.cut(shape)(2, 10))
    fixture.b.receive(*fixture.whole(1, 1))

    assert fixture.b.delivered == numbered(1, 10)


@shapes
@on_every_generation
def test_oob_messages_that_came_early_are_delivered_before_the_first(
    generation: str, timing: str, shape: str
) -> None:
    """U-33, OOB: 2..10, then only 1: as they came, each once."""
    fixture = Fixture(generation, timing, OOB)
    fixture.b.receive(*fixture.cut(shape)(2, 10))
    fixture.b.receive(*fixture.whole(1, 1))
    assert fixture.b.delivered == [*numbered(2, 10), b"1"]

    fixture.b.receive(*fixture.single(1, 10))
    assert len(fixture.b.delivered) == 10


@shapes
@kinds
@on_every_generation
def test_any_bundling_of_copies_delivers_each_message_once(
    generation: str, timing: str, flags: int, shape: str
) -> None:
    """Overlapping batches 1..4, 3..8, 2..2, 7..12, twice over."""
    fixture = Fixture(generation, timing, flags)
    batch = fixture.cut(shape)
    for lo, hi in ((1, 4), (3, 8), (2, 2), (7, 12)) * 2:
        fixture.b.receive(*batch(lo, hi))

    assert fixture.b.delivered == numbered(1, 12)


@on_every_generation
def test_the_newer_connection_of_two_in_one_datagram_wins(generation: str, timing: str) -> None:
    """JGRP-2852: frames of two connections in one datagram, in either order."""
    for order in (1, -1):
        fixture = Fixture(generation, timing)
        frames = [
            fixture.a.data(CONN, 1, b"old 1", b"old 2"),
            fixture.a.data(CONN + 1, 1, b"new 1", b"new 2"),
        ][::order]
        fixture.b.receive(*frames)
        assert fixture.b.delivered[-2:] == [b"new 1", b"new 2"]
        assert fixture.b.receiver("A").conn == CONN + 1

        fixture.b.receive(fixture.a.data(CONN, 3, b"old 3"))
        assert fixture.b.delivered[-1] == b"new 2"


@on_every_generation
def test_resets_with_several_ids_end_at_the_newest_whatever_their_order(
    generation: str, timing: str
) -> None:
    """JGRP-1347: first frames of five connections, shuffled and copied: what is adopted only
    grows."""
    fixture = Fixture(generation, timing)
    adopted = []
    for conn in (9, 7, 11, 10, 8, 11, 9, 7, 10, 8):
        fixture.b.receive(fixture.a.data(conn, 1, b"%d" % conn))
        adopted.append(fixture.b.receiver("A").conn)

    assert adopted == [9, 9, 11, 11, 11, 11, 11, 11, 11, 11]
    assert fixture.b.delivered == [b"9", b"11"]


@on_every_generation
def test_early_frames_of_an_older_connection_are_thrown_away(generation: str, timing: str) -> None:
    """D-5: 2 and 3 of c7 and then of c8 wait; 1 of c8 opens c8 with c8's frames only."""
    fixture = Fixture(generation, timing)
    for conn in (7, 8):
        fixture.b.receive(fixture.a.data(conn, 2, b"%d: 2" % conn, b"%d: 3" % conn))
    fixture.b.receive(fixture.a.data(8, 1, b"8: 1"))

    assert fixture.b.delivered == [b"8: 1", b"8: 2", b"8: 3"]
    assert fixture.b.cached() == 0


@on_every_generation
def test_late_frames_of_an_older_connection_do_not_push_out_early_ones_of_a_newer(
    generation: str, timing: str
) -> None:
    """2 of c8 waits; a late 30 of c7 comes; 1 of c8 finds 2 still there."""
    fixture = Fixture(generation, timing)
    fixture.b.receive(fixture.a.data(8, 2, b"2"))
    fixture.b.receive(fixture.a.data(7, 30, b"late"))
    fixture.b.receive(fixture.a.data(8, 1, b"1"))

    assert fixture.b.delivered == [b"1", b"2"]


@on_every_generation
def test_a_batch_may_begin_below_what_the_sender_still_keeps(generation: str, timing: str) -> None:
    """The answer to SFS is a batch 1..10 of which the sender has purged 1..6: 7..10 are delivered,
    the rest was, in the window before this one."""
    fixture = Fixture(generation, timing)
    fixture.b.receive(fixture.a.data(CONN, 1, *numbered(1, 10), flags=FIRST, mark=6))

    assert fixture.b.delivered == numbered(7, 10)
    fixture.b.receive(fixture.a.data(CONN, 11, b"11", mark=6))
    assert fixture.b.delivered == numbered(7, 11)


# -- The cache of early frames -------------------------------------------------------------------


def arrival(source: int, seqno: int, size: int = 1) -> Arrival:
    """A frame with one message, as a receiver keeps it."""
    body = pack_body([bytes(size)], hash64)
    data = Codec(1, source, hash64).pack_data(3, 2, CONN, seqno, body, 0, 0, 0, 0) + body.data
    head, unpacked = Codec(1, 2, hash64).unpack_untrusted(data)
    assert head.kind == DATA
    return Arrival(head, unpacked, *unpack_lengths_untrusted(head, unpacked))


def early_frames(config: UnicastConfig) -> Resync:
    return Resync(connections(UNICAST3, config))


def counts(cache: Resync) -> dict[int, int]:
    return dict(cache.cached_counts())


def test_the_cache_keeps_senders_apart() -> None:
    """U-55: five of A and five of B; nobody's is empty, B's are taken and leave five, then none."""
    a, b, nobody = 0xA, 0xB, 0xC
    cache = early_frames(UnicastConfig())
    for seqno in range(2, 7):
        cache.remember(arrival(a, seqno), 0.0)
        cache.remember(arrival(b, seqno), 0.0)
    assert sum(counts(cache).values()) == 10
    assert cache.take_cached(nobody, CONN) == []
    assert cache.take_cached(0, CONN) == []

    assert [early.head.lo for early in cache.take_cached(b, CONN)] == [2, 3, 4, 5, 6]
    assert counts(cache) == {a: 5}
    assert len(cache.take_cached(a, CONN)) == 5
    assert counts(cache) == {}
    assert cache.take_cached(a, CONN) == []


def test_the_cache_is_bounded_in_frames_of_one_sender() -> None:
    """At the limit all are kept, one more is not."""
    for number, kept in ((5, 5), (6, 5)):
        cache = early_frames(UnicastConfig(max_cached_frames=5))
        for seqno in range(2, 2 + number):
            cache.remember(arrival(0xA, seqno), 0.0)
        assert counts(cache) == {0xA: kept}


def test_the_cache_is_bounded_in_bytes_of_all_senders_together() -> None:
    """G5: a thousand strangers with large early frames keep no more than a window does."""
    cache = early_frames(UnicastConfig(window_bytes=100_000))
    for source in range(1, 1001):
        cache.remember(arrival(source, 2, 996), 0.0)
    assert sum(counts(cache).values()) == 100

    taken = sum(len(cache.take_cached(source, CONN)) for source in range(1, 1001))
    assert taken == 100
    cache.remember(arrival(0xA, 2, 996), 0.0)
    assert sum(counts(cache).values()) == 1


def test_the_cache_is_bounded_in_senders() -> None:
    """A flood of sources: the oldest goes first, and no more than the bound are kept."""
    cache = early_frames(UnicastConfig())
    early = arrival(0xA, 2)
    for source in range(1, MAX_PEERS + 11):
        cache.remember(early._replace(head=early.head._replace(source=source)), 0.0)

    assert len(counts(cache)) == MAX_PEERS
    assert 10 not in counts(cache)
    assert 11 in counts(cache)


def test_a_sender_that_is_forgotten_leaves_no_timer() -> None:
    """G5: what a flood of sources pushes out is not kept until it would have expired."""
    state = connections(UNICAST3, UnicastConfig())
    cache = Resync(state)
    early = arrival(0xA, 2)
    syncs = []
    for source in range(1, MAX_PEERS + 2):
        head = early.head._replace(source=source)
        cache.ask(early._replace(head=head), 0.0)
        syncs.append(cache.wanted[-1])

    assert state.expiries.due(syncs[0]) == inf
    assert state.expiries.due(syncs[1]) == 60.0
