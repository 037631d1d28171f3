"""Frames that a stranger forges: a member without a key believes them, and none with one does."""

from __future__ import annotations

from random import Random

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.sim import forging
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body, unpack_lengths_untrusted
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST, OOB, Address, View, ViewId
from stormcast.node.keys.cluster_keys import KEY_SIZE, ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.protocols.gms.messages import pack_view, unpack_address_untrusted

CLUSTER, SOURCE, DEST = 77, 0xA0, 0xB1
KEY = ClusterKey(bytes(range(KEY_SIZE)))
WITHOUT_LENGTHS = 5
"""A width that no DATA frame has."""


def batch(*payloads: bytes, lo: int = 7, header: bytes = b"", flags: int = FIRST) -> bytes:
    body = pack_body(payloads, hash64, header)
    head = Codec(CLUSTER, SOURCE, hash64).pack_data(
        wire.UNICAST3, DEST, 3, lo, body, flags, 2, 5, 9
    )
    return head + body.data


def control(kind: int, protocol: int, body: bytes = b"", dest: int = DEST) -> bytes:
    return Codec(CLUSTER, SOURCE, hash64).pack_control(kind, protocol, dest, 0, 2, body=body)


def sealed(frame: bytes) -> bytes:
    seals = Seals([KEY], CLUSTER, SOURCE, Random(1).randbytes)
    head, body = frame[: wire.HEAD_SIZE], frame[wire.HEAD_SIZE :]
    ((_dest, front, content),) = seals.seal([(DEST, head, body)], Codec(CLUSTER, SOURCE, hash64))
    return front + content


def refusal(frame: bytes) -> str:
    """Why a member with the key refuses a frame, which heard the one that was sealed."""
    seals = Seals([KEY], CLUSTER, DEST, Random(2).randbytes)
    with pytest.raises(BadFrame) as refused:
        seals.unpack_untrusted(Codec(CLUSTER, DEST, hash64), frame)
    return refused.value.reason


@pytest.mark.parametrize(
    ("payloads", "header"),
    [
        ((b"one",), b""),
        ((b"one", b"two"), b""),
        ((b"one", b"three"), b""),
        ((b"one", bytes(70_000)), b""),
        ((b"one",), b"24 bytes of FRAG's header"),
    ],
)
def test_the_next_messages_follow_and_are_as_long(
    payloads: tuple[bytes, ...], header: bytes
) -> None:
    (forged,) = forging.next_messages(batch(*payloads, header=header))
    head, body = Codec(CLUSTER, DEST, hash64).unpack_untrusted(forged)
    assert (head.source, head.dest, head.conn) == (SOURCE, DEST, 3)
    assert (head.lo, head.count) == (7 + len(payloads), len(payloads))
    assert not head.flags & FIRST
    assert head.transmission == 0
    at, lengths = unpack_lengths_untrusted(head, body)
    assert [*map(len, payloads)] == (
        [lengths] * head.count if isinstance(lengths, int) else [*lengths]
    )
    assert body[: len(header)] == header
    assert body[at:].startswith(b"a stranger says "[: len(body) - at])


def test_other_flags_stay() -> None:
    (forged,) = forging.next_messages(batch(b"one", flags=FIRST | OOB))
    assert forging.read_head(forged).flags == OOB


def test_nothing_follows_what_has_no_number_or_no_messages() -> None:
    assert forging.next_messages(batch(b"one", lo=0)) == []
    assert forging.next_messages(control(wire.ACK, wire.UNICAST3)) == []
    broken = bytearray(batch(b"one"))
    broken[wire.OFFSETS["width"]] = WITHOUT_LENGTHS
    assert forging.next_messages(bytes(broken)) == []


def test_with_a_key_neither_a_borrowed_seal_nor_none_is_believed() -> None:
    borrowed, bare = forging.next_messages(sealed(batch(b"one")))
    assert refusal(borrowed) == "forged"
    assert refusal(bare) == "not-sealed"
    assert forging.read_head(borrowed).lo == forging.read_head(bare).lo == 8
    assert Codec(CLUSTER, DEST, hash64).unpack_untrusted(bare), "it is whole but for the seal"


def test_a_wish_to_leave_is_of_whom_the_view_was_sent_to() -> None:
    maker, receiver = Address((1 << 64) | SOURCE, "a"), Address((1 << 80) | DEST, "b")
    view = pack_view(View(ViewId(2, maker), (maker, receiver)))
    wish = forging.leave(control(wire.VIEW, wire.GMS, view))
    assert wish is not None
    head, body = Codec(CLUSTER, SOURCE, hash64).unpack_untrusted(wish)
    assert (head.kind, head.source, head.dest) == (wire.LEAVE_REQ, DEST, SOURCE)
    assert unpack_address_untrusted(body) == receiver


def test_who_cannot_read_the_view_makes_an_identity_up() -> None:
    maker, receiver = Address((1 << 64) | SOURCE, "a"), Address((1 << 80) | DEST, "b")
    view = pack_view(View(ViewId(2, maker), (maker, receiver)))
    wish = forging.leave(sealed(control(wire.VIEW, wire.GMS, view)))
    assert wish is not None
    named = unpack_address_untrusted(wish[wire.HEAD_SIZE :])
    assert named != receiver
    assert named.short == receiver.short
    assert refusal(wish) == "not-sealed"


@pytest.mark.parametrize(
    "frame",
    [
        control(wire.VIEW, wire.GMS, dest=wire.GROUP),
        control(wire.VIEW_ACK, wire.GMS),
        control(wire.HEARTBEAT, wire.FD_ALL3),
    ],
    ids=["to the group", "of GMS", "of another protocol"],
)
def test_nobody_leaves_for_other_frames(frame: bytes) -> None:
    assert forging.leave(frame) is None


def test_of_a_sealed_body_a_stranger_has_no_more_than_its_length() -> None:
    plain = batch(b"the message")
    body = plain[wire.HEAD_SIZE :]
    hidden = sealed(plain)
    heard = forging.read_body(forging.read_head(hidden), hidden)
    assert forging.read_body(forging.read_head(plain), plain) == body
    assert len(heard) == len(body)
    assert heard != body
