"""Datagrams in: whose they are, and which protocol takes each of their frames."""

from __future__ import annotations

from typing import Any

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.wire import GROUP, Head
from stormcast.node.keys import replays
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.stack.receiving import MOST_REPEATS, NOT_TAKEN, Receiver
from tests.helpers.parts import ME, PEER, Parts

THIRD = 3
PEER_CODEC = Codec(7, PEER, hash64)


class Taker:
    """A protocol that keeps what it is given, and refuses what is marked so."""

    protocol = wire.UNICAST3

    def __init__(self) -> None:
        self.got: list[int] = []

    def receive(self, head: Head, _body: bytes, _now: float) -> None:
        if head.mark:
            raise BadFrame("marked")
        self.got.append(head.lo)


class Probes:
    """Test protocols that hand over one frame late, with the next."""

    def __init__(self) -> None:
        self.is_on = False
        self.held: list[tuple[Head, bytes]] = []

    def up(self, head: Head, body: bytes, _now: float) -> list[tuple[Head, bytes]]:
        passed, self.held = self.held, [(head, body)]
        return passed


class Reception(Parts):
    def __init__(self, seals: Seals | None = None) -> None:
        super().__init__()
        self.taker, self.bare, self.probes = Taker(), Taker(), Probes()
        stands: Any = (self.taker, self.bare, None, self.probes, lambda: None)
        self.receiver = Receiver(self.port, *stands, seals)


def ack(
    lo: int,
    *,
    dest: int = ME,
    codec: Codec = PEER_CODEC,
    mark: int = 0,
    protocol: int = wire.UNICAST3,
) -> bytes:
    return codec.pack_control(wire.ACK, protocol, dest, 1, lo, mark=mark)


def test_each_frame_of_a_datagram_goes_to_its_protocol() -> None:
    there = Reception()
    assert there.receiver.receive(ack(1) + ack(2, protocol=wire.NONE) + ack(3), 0.0) == PEER
    assert (there.taker.got, there.bare.got) == ([1, 3], [2])


@pytest.mark.parametrize(
    "frame",
    [
        ack(1, dest=THIRD),
        ack(1, dest=GROUP),
        ack(1, protocol=wire.UNICAST4),
        ack(1, codec=Codec(7, ME, hash64)),
        ack(1, mark=1),
    ],
    ids=["other-destination", "protocol-of-no-group", "protocol", "bad-source", "bad-frame"],
)
def test_what_was_not_taken_does_not_say_where_its_sender_is(frame: bytes) -> None:
    """A recorded frame for another member, which has a seal, had its sender sought where it was
    sent from. It does not count as damaged either: a connection that brought it stays."""
    there = Reception()
    assert there.receiver.receive(frame, 0.0) == NOT_TAKEN
    assert there.receiver.receive(ack(1) + frame, 0.0) == PEER


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (ack(1, dest=THIRD), "other-destination"),
        (ack(1, dest=GROUP), "protocol"),
        (ack(1, protocol=wire.UNICAST4), "protocol"),
        (ack(1, codec=Codec(7, ME, hash64)), "bad-source"),
        (ack(1, codec=Codec(8, PEER, hash64)), "cluster"),
        (ack(1)[:-1], "short"),
    ],
)
def test_what_is_not_for_us_is_counted_and_given_to_nobody(frame: bytes, why: str) -> None:
    there = Reception()
    there.receiver.receive(frame, 0.0)
    assert (there.taker.got, there.bare.got) == ([], [])
    assert there.port.drops == {why: 1}


def test_a_frame_that_its_protocol_refuses_ends_the_datagram() -> None:
    there = Reception()
    there.receiver.receive(ack(1) + ack(2, mark=1) + ack(3), 0.0)
    assert (there.taker.got, there.port.drops) == ([1], {"marked": 1})


def test_frames_that_test_protocols_let_go_are_independent_of_the_one_that_came() -> None:
    """The one that was held back is refused, and the datagram that freed it is taken whole."""
    there = Reception()
    there.probes.is_on = True
    there.receiver.receive(ack(1, mark=1), 0.0)
    there.receiver.receive(ack(2) + ack(3), 0.0)
    assert (there.taker.got, there.port.drops) == ([2], {"marked": 1})


def test_a_member_that_stopped_takes_nothing() -> None:
    there = Reception()
    there.receiver.is_open = False
    assert there.receiver.receive(ack(1), 0.0) == 0
    assert (there.taker.got, there.port.drops) == ([], {})


# -- Repeats ---------------------------------------------------------------------------------------


def sealed(count: int) -> tuple[Reception, list[bytes]]:
    """A member with a key, and frames of a peer, sealed in this order."""
    keys = (ClusterKey(bytes(32)),)
    frames = [(ME, ack(lo), b"") for lo in range(1, count + 1)]
    made = Seals(keys, 7, PEER).seal(frames, PEER_CODEC)
    return Reception(Seals(keys, 7, ME)), [head + body for _dest, head, body in made]


def dropped(there: Reception) -> dict[str, int]:
    return dict(there.port.drops)


def test_a_frame_that_comes_again_takes_none_of_those_behind_it_away() -> None:
    """A listener sends the first frame of a datagram alone, and is there a moment earlier."""
    there, frames = sealed(3)
    assert there.receiver.receive(frames[0], 0.0) == PEER
    assert there.receiver.receive(b"".join(frames), 0.0) == PEER
    assert there.taker.got == [1, 2, 3]
    assert dropped(there) == {"replayed": 1}


def test_only_repeats_are_good_frames_that_nobody_took() -> None:
    """A connection stays, and no place is learnt."""
    there, frames = sealed(2)
    there.receiver.receive(b"".join(frames), 0.0)
    assert there.receiver.receive(b"".join(frames), 0.0) == NOT_TAKEN
    assert dropped(there) == {"replayed": 2}


def test_repeats_around_a_frame_that_is_bad() -> None:
    there, frames = sealed(3)
    there.receiver.receive(frames[0], 0.0)
    forged = frames[1][:-1] + bytes([frames[1][-1] ^ 1])
    assert there.receiver.receive(frames[0] + forged + frames[2], 0.0) == NOT_TAKEN
    assert there.taker.got == [1]
    assert dropped(there) == {"replayed": 1, "forged": 1}


@pytest.mark.parametrize("count", [MOST_REPEATS - 1, MOST_REPEATS])
def test_the_repeats_that_one_datagram_may_cost_are_bounded(count: int) -> None:
    there, frames = sealed(count + 1)
    for frame in frames[:-1]:
        there.receiver.receive(frame, 0.0)
    there.receiver.receive(b"".join(frames), 0.0)
    assert dropped(there) == {"replayed": count}
    assert (there.taker.got[-1] == count + 1) == (count < MOST_REPEATS)


def test_what_is_too_old_to_be_told_from_a_repeat_is_a_bad_frame() -> None:
    """It may be new: on a connection that is a loss, and protocols hear of it when that ends."""
    there, frames = sealed(replays.DEPTH + 2)
    there.receiver.receive(frames[-1], 0.0)
    assert there.receiver.receive(frames[0], 0.0) == 0
    assert there.receiver.receive(frames[2], 0.0) == PEER
    assert dropped(there) == {"replayed": 1}
