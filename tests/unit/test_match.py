"""Which frames a match takes, told by their preambles and counted as they pass."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.match import Connections, Match, Matcher
from stormcast.node.core.model import FIRST, OOB
from stormcast.node.core.wire import Head, read_preamble

A, B = 0xA, 0xB


def data(
    lo: int,
    count: int = 1,
    *,
    conn: int = 1,
    flags: int = 0,
    transmission: int = 0,
    source: int = A,
    dest: int = B,
    protocol: int = wire.UNICAST3,
) -> bytes:
    body = pack_body([b"x"] * count, hash64)
    codec = Codec(0xC1, source, hash64)
    head = codec.pack_data(protocol, dest, conn, lo, body, flags, transmission, 0, 0)
    return head + body.data


def control(kind: int, lo: int = 1, *, conn: int = 1, source: int = B, dest: int = A) -> bytes:
    return Codec(0xC1, source, hash64).pack_control(kind, wire.UNICAST3, dest, conn, lo)


def taken(matcher: Matcher, frames: Iterable[bytes]) -> list[int]:
    """The places of the frames that are taken, from 1."""
    return [place for place, frame in enumerate(frames, 1) if matcher.takes(read_preamble(frame))]


def test_a_rule_without_conditions_takes_everything() -> None:
    frames = [data(1), control(wire.ACK), data(2, conn=0, protocol=wire.NONE)]
    assert taken(Matcher(Match()), frames) == [1, 2, 3]


def test_a_rule_takes_the_kinds_it_names() -> None:
    frames = [data(1), control(wire.ACK), control(wire.XMIT_REQ), control(wire.SFS)]
    assert taken(Matcher(Match(kinds=("ACK", "SFS"))), frames) == [2, 4]


def test_a_rule_takes_the_protocols_it_names() -> None:
    frames = [data(1), data(1, protocol=wire.UNICAST4), data(1, protocol=wire.NONE)]
    assert taken(Matcher(Match(protocols=("UNICAST4", "NONE"))), frames) == [2, 3]


def test_a_rule_takes_frames_with_all_of_its_flags() -> None:
    frames = [data(1), data(1, flags=OOB), data(1, flags=FIRST), data(1, flags=OOB | FIRST)]
    assert taken(Matcher(Match(flags=("OOB",))), frames) == [2, 4]
    assert taken(Matcher(Match(flags=("OOB", "FIRST"))), frames) == [4]


def test_a_rule_takes_batches_that_hold_any_of_its_seqnos() -> None:
    """The rule wants 10..20; both ends are in, and so is a batch around them."""
    outside = [data(1, 9), data(21, 5)]
    inside = [data(1, 10), data(10), data(12), data(20, 5), data(1, 40)]
    assert taken(Matcher(Match(seqno=(10, 20))), [*outside, *inside]) == [3, 4, 5, 6, 7]


def test_of_a_control_frame_the_seqno_is_the_one_it_carries() -> None:
    acks = [control(wire.ACK, lo) for lo in (9, 10, 20, 21)]
    assert taken(Matcher(Match(seqno=(10, 20))), acks) == [2, 3]


def test_a_rule_takes_transmissions_both_ends_in() -> None:
    frames = [data(1, transmission=number) for number in range(6)]
    assert taken(Matcher(Match(transmission=(0, 0))), frames) == [1]
    assert taken(Matcher(Match(transmission=(2, 4))), frames) == [3, 4, 5]


def test_occurrences_count_the_frames_that_meet_all_other_conditions() -> None:
    """Of acks the second and third; data in between does not count."""
    frames = [control(wire.ACK), data(1), control(wire.ACK), data(2), control(wire.ACK)]
    matcher = Matcher(Match(occurrence=(2, 3), kinds=("ACK",)))
    assert taken(matcher, [*frames, control(wire.ACK)]) == [3, 5]
    assert (matcher.met, matcher.taken) == (4, 2)


def test_a_rule_ends_after_so_many_frames() -> None:
    matcher = Matcher(Match(times=2, kinds=("ACK",)))
    frames = [control(wire.ACK), data(1), control(wire.ACK), control(wire.ACK)]
    assert taken(matcher, frames) == [1, 3]
    assert matcher.taken == 2


def test_connections_are_numbered_in_the_order_in_which_their_data_appears() -> None:
    """Ids 7, 9, 8 of one pair are its connections 1, 2, 3, and another pair counts on its own."""
    connections = Connections()
    frames = [
        data(1, conn=7),
        data(1, conn=9),
        data(2, conn=7),
        data(1, conn=8),
        data(1, conn=8, source=B, dest=A),
    ]
    second = Matcher(Match(connection=2), connections)
    first = Matcher(Match(connection=1), connections)
    hits: dict[str, list[int]] = {"first": [], "second": []}
    for place, frame in enumerate(frames, 1):
        head = read_preamble(frame)
        connections.note(head)
        if first.takes(head):
            hits["first"].append(place)
        if second.takes(head):
            hits["second"].append(place)
    assert hits == {"first": [1, 3, 5], "second": [2]}


def test_a_control_frame_belongs_to_the_connection_of_the_data_it_answers() -> None:
    connections = Connections()
    for conn in (7, 9):
        connections.note(read_preamble(data(1, conn=conn)))
    second = Matcher(Match(connection=2), connections)
    assert taken(second, [control(wire.ACK, conn=conn) for conn in (7, 9, 3)]) == [2]


def test_control_frames_open_no_connection() -> None:
    connections = Connections()
    sync = read_preamble(control(wire.SFS, conn=5))
    connections.note(sync)
    assert connections.ordinal(sync) == 0


def test_all_conditions_must_be_met() -> None:
    match = Match(
        kinds=("DATA",), flags=("OOB",), seqno=(5, 5), transmission=(0, 0), occurrence=(2, 9)
    )
    frames = [
        data(5, flags=OOB),
        data(5),
        data(5, flags=OOB, transmission=1),
        data(6, flags=OOB),
        data(5, flags=OOB),
    ]
    assert taken(Matcher(match), frames) == [5]


@given(
    lo=st.integers(0, wire.MAX_SEQNO - 70_000),
    count=st.integers(0, wire.MAX_COUNT),
    kind=st.sampled_from((wire.DATA, wire.ACK)),
    wanted=st.integers(0, wire.MAX_SEQNO),
    near=st.integers(-3, 70_000),
)
def test_a_frame_is_taken_if_and_only_if_it_has_one_of_the_seqnos(
    lo: int, count: int, kind: int, wanted: int, near: int
) -> None:
    """A batch has all from its first; a frame of no messages, or of control, the one it carries."""
    head = Head._make((0,) * len(Head._fields))._replace(lo=lo, count=count, kind=kind)
    has = range(lo, lo + (max(count, 1) if kind == wire.DATA else 1))
    for first in (wanted, max(0, lo + near)):
        last = first + 2
        meets = first <= has[-1] and last >= has[0]
        assert Matcher(Match(seqno=(first, last))).takes(head) is meets


@pytest.mark.parametrize("size", [wire.PREAMBLE_SIZE, wire.HEAD_SIZE])
def test_the_preamble_alone_is_enough(size: int) -> None:
    match = Match(protocols=("UNICAST3",), kinds=("DATA",), seqno=(5, 5), flags=("OOB",))
    assert Matcher(match).takes(read_preamble(data(5, flags=OOB)[:size]))
