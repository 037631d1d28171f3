"""Frames that several members receive: checked once for all, and never instead of another one."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.sim.frames import LastFrame, SharingCodec
from stormcast.chaos.faults.outcome import damaged
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Payload

CLUSTER = 0xC1


class Group:
    """The codecs of two receivers, and how often a frame was hashed for them."""

    def __init__(self) -> None:
        self.hashed = 0
        last = LastFrame()
        self.one = SharingCodec(CLUSTER, 0xB, self._hash, last)
        self.other = SharingCodec(CLUSTER, 0xC, self._hash, last)

    def _hash(self, data: Payload) -> int:
        self.hashed += 1
        return xxh3_64_intdigest(data)


def frame(lo: int = 1) -> bytes:
    """A multicast of one message."""
    body = pack_body([b"message %d" % lo], xxh3_64_intdigest)
    codec = Codec(CLUSTER, 0xA, xxh3_64_intdigest)
    return codec.pack_data(wire.NAKACK2, wire.GROUP, 0, lo, body, 0, 0, 0, 1) + body.data


def test_a_frame_is_checked_once_for_all_who_receive_it() -> None:
    """Head and body are hashed for the first receiver; the second gets what the first got."""
    group, sent = Group(), frame()

    first = group.one.unpack_untrusted(sent)
    hashed = group.hashed
    second = group.other.unpack_untrusted(sent)

    assert first == second == Codec(CLUSTER, 0xD, xxh3_64_intdigest).unpack_untrusted(sent)
    assert hashed == group.hashed == 2


def test_a_corrupted_copy_is_refused_though_the_frame_was_good() -> None:
    """The copy of one receiver was hit on its way: neither does it pass, nor does it spoil the
    next one's."""
    group, sent = Group(), frame()
    group.one.unpack_untrusted(sent)

    for bit in (0, 100, 8 * wire.HEAD_SIZE + 3):
        with pytest.raises(BadFrame):
            group.other.unpack_untrusted(damaged(sent, (bit,)))

    assert group.one.unpack_untrusted(sent)[0].lo == 1


def test_a_bad_frame_is_refused_by_each_who_receives_it() -> None:
    group, bad = Group(), damaged(frame(), (100,))
    for codec in (group.one, group.other, group.one):
        with pytest.raises(BadFrame):
            codec.unpack_untrusted(bad)


def test_frames_of_one_datagram_are_told_apart() -> None:
    """The second frame of a datagram is not the first one, for either receiver."""
    group, two = Group(), frame(1) + frame(2)
    at = len(frame(1))
    for codec in (group.one, group.other):
        assert codec.unpack_untrusted(two)[0].lo == 1
        assert codec.unpack_untrusted(two, at)[0].lo == 2
