"""Message rules: which frames one takes, counted as they pass."""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest as hash64

from chaos.faults import Match, Rule
from chaos.faults.message_rules import RuleState
from node.core import wire
from node.core.codec import Codec, pack_body
from node.core.model import FIRST, OOB

A, B = 0xA, 0xB


def data(
    lo: int, count: int = 1, *, conn: int = 1, flags: int = 0, transmission: int = 0,
    source: int = A, dest: int = B, protocol: int = wire.UNICAST3,
) -> bytes:  # fmt: skip
    body = pack_body([b"x"] * count, hash64)
    codec = Codec(0xC1, source, hash64)
    head = codec.pack_data(protocol, dest, conn, lo, body, flags, transmission, 0, 0)
    return head + body.data


def control(kind: int, lo: int = 1, *, conn: int = 1, source: int = B, dest: int = A) -> bytes:
    return Codec(0xC1, source, hash64).pack_control(kind, wire.UNICAST3, dest, conn, lo)


def rule(
    match: Match | None = None,
    *,
    connections: dict[tuple[int, int], list[int]] | None = None,
    kinds: Iterable[int] = (),
    protocols: Iterable[int] = (),
    flags: int = 0,
    times: int | None = None,
) -> RuleState:
    """A rule as the nemesis makes it: names have become numbers."""
    return RuleState(
        fault="f1",
        rule=Rule(match=match or Match(), times=times),
        protocols=frozenset(protocols),
        kinds=frozenset(kinds),
        flags=flags,
        connections={} if connections is None else connections,
        held=[],
    )


def taken(state: RuleState, frames: Iterable[bytes]) -> list[int]:
    """The places of the frames that the rule takes, from 1."""
    return [place for place, frame in enumerate(frames, 1) if state.takes(frame)]


def test_a_rule_without_conditions_takes_everything() -> None:
    frames = [data(1), control(wire.ACK), data(2, conn=0, protocol=wire.NONE)]
    assert taken(rule(), frames) == [1, 2, 3]


def test_a_rule_takes_the_kinds_it_names() -> None:
    frames = [data(1), control(wire.ACK), control(wire.XMIT_REQ), control(wire.SFS)]
    assert taken(rule(kinds=[wire.ACK, wire.SFS]), frames) == [2, 4]


def test_a_rule_takes_the_protocols_it_names() -> None:
    frames = [data(1), data(1, protocol=wire.UNICAST4), data(1, protocol=wire.NONE)]
    assert taken(rule(protocols=[wire.UNICAST4, wire.NONE]), frames) == [2, 3]


def test_a_rule_takes_frames_with_all_of_its_flags() -> None:
    frames = [data(1), data(1, flags=OOB), data(1, flags=FIRST), data(1, flags=OOB | FIRST)]
    assert taken(rule(flags=OOB), frames) == [2, 4]
    assert taken(rule(flags=OOB | FIRST), frames) == [4]


def test_a_rule_takes_batches_that_hold_any_of_its_seqnos() -> None:
    """The rule wants 10..20; both ends are in, and so is a batch around them."""
    outside = [data(1, 9), data(21, 5)]
    inside = [data(1, 10), data(10), data(12), data(20, 5), data(1, 40)]
    assert taken(rule(Match(seqno=(10, 20))), [*outside, *inside]) == [3, 4, 5, 6, 7]


def test_of_a_control_frame_the_seqno_is_the_one_it_carries() -> None:
    acks = [control(wire.ACK, lo) for lo in (9, 10, 20, 21)]
    assert taken(rule(Match(seqno=(10, 20))), acks) == [2, 3]


def test_a_rule_takes_transmissions_both_ends_in() -> None:
    frames = [data(1, transmission=number) for number in range(6)]
    assert taken(rule(Match(transmission=(0, 0))), frames) == [1]
    assert taken(rule(Match(transmission=(2, 4))), frames) == [3, 4, 5]


def test_occurrences_count_the_frames_that_meet_all_other_conditions() -> None:
    """Of acks the second and third; data in between does not count."""
    frames = [control(wire.ACK), data(1), control(wire.ACK), data(2), control(wire.ACK)]
    state = rule(Match(occurrence=(2, 3)), kinds=[wire.ACK])
    assert taken(state, [*frames, control(wire.ACK)]) == [3, 5]
    assert (state.matched, state.taken) == (4, 2)


def test_a_rule_ends_after_so_many_frames() -> None:
    state = rule(times=2, kinds=[wire.ACK])
    frames = [control(wire.ACK), data(1), control(wire.ACK), control(wire.ACK)]
    assert taken(state, frames) == [1, 3]
    assert state.taken == 2


def test_connections_are_numbered_in_the_order_in_which_their_data_appears() -> None:
    """Ids 7, 9, 8 of one pair are its connections 1, 2, 3, and another pair counts on its own."""
    connections: dict[tuple[int, int], list[int]] = {}
    frames = [
        data(1, conn=7),
        data(1, conn=9),
        data(2, conn=7),
        data(1, conn=8),
        data(1, conn=8, source=B, dest=A),
    ]
    second = rule(Match(connection=2), connections=connections)
    first = rule(Match(connection=1), connections=connections)
    hits: dict[str, list[int]] = {"first": [], "second": []}
    for place, frame in enumerate(frames, 1):
        RuleState.note_connection(connections, frame)
        if first.takes(frame):
            hits["first"].append(place)
        if second.takes(frame):
            hits["second"].append(place)
    assert connections == {(A, B): [7, 9, 8], (B, A): [8]}
    assert hits == {"first": [1, 3, 5], "second": [2]}


def test_a_control_frame_belongs_to_the_connection_of_the_data_it_answers() -> None:
    connections = {(A, B): [7, 9]}
    state = rule(Match(connection=2), connections=connections)
    assert not state.takes(control(wire.ACK, conn=7))
    assert state.takes(control(wire.ACK, conn=9))
    assert not state.takes(control(wire.ACK, conn=3))


def test_control_frames_open_no_connection() -> None:
    connections: dict[tuple[int, int], list[int]] = {}
    RuleState.note_connection(connections, control(wire.SFS, conn=5))
    assert connections == {}


def test_all_conditions_must_be_met() -> None:
    match = Match(seqno=(5, 5), transmission=(0, 0), occurrence=(2, 9))
    state = rule(match, kinds=[wire.DATA], flags=OOB)
    frames = [
        data(5, flags=OOB),
        data(5),
        data(5, flags=OOB, transmission=1),
        data(6, flags=OOB),
        data(5, flags=OOB),
    ]
    assert taken(state, frames) == [5]
