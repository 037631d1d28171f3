"""Whatever is packed comes out as it went in, and no damage goes unnoticed (P-23, G4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import (
    Codec,
    pack_body,
    unpack_lengths_untrusted,
    unpack_ranges_untrusted,
)
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Delivery, Payload

U8, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 32, 64))
SHORT = st.binary(max_size=40)
# Around the size from which payloads are views, and around the one from which lengths are wider.
LONG = st.builds(bytes, st.sampled_from([1023, 1024, 1025, 65535, 65536]))
EQUAL = st.builds(
    lambda size, fill, count: [bytes([fill + n & 255]) * size for n in range(count)],
    st.sampled_from([0, 1, 7, 1023, 1024]),
    st.integers(0, 255),
    st.integers(1, 60),
)
PAYLOADS = st.lists(SHORT | LONG, min_size=1, max_size=12) | EQUAL
VIEWED = st.sampled_from([False, True])


@given(
    payloads=PAYLOADS, viewed=VIEWED, cluster=U32, source=U32, protocol=U8, dest=U32, conn=U32,
    lo=U64, flags=U8, transmission=U8, mark=U64, stamp=U32, before=SHORT, after=SHORT,
)  # fmt: skip  # a header's fields
def test_any_batch_comes_out_as_it_went_in(
    *, payloads: list[bytes], viewed: bool, cluster: int, source: int, protocol: int, dest: int,
    conn: int, lo: int, flags: int, transmission: int, mark: int, stamp: int, before: bytes,
    after: bytes,
) -> None:  # fmt: skip  # a header's fields
    """Payloads, head and place in the datagram, for every shape of lengths."""
    codec = Codec(cluster, source, hash64)
    given_as: list[Payload] = [memoryview(p) for p in payloads] if viewed else list(payloads)
    packed = pack_body(given_as, hash64)
    frame = codec.pack_data(protocol, dest, conn, lo, packed, flags, transmission, mark, stamp)

    head, body = codec.unpack_untrusted(before + frame + packed.data + after, len(before))
    assert body == packed.data
    assert (head.kind, head.protocol, head.flags) == (wire.DATA, protocol, flags)
    assert (head.cluster, head.source, head.dest, head.conn) == (cluster, source, dest, conn)
    assert (head.lo, head.mark, head.stamp) == (lo, mark, stamp)
    assert (head.transmission, head.digest) == (transmission, hash64(body))
    assert head.count == len(payloads)

    start, lengths = unpack_lengths_untrusted(head, body)
    hi = lo + head.count - 1
    delivery = Delivery(source, conn, lo, hi, flags, body, start, lengths, 1)
    assert list(delivery) == payloads


@given(
    kind=U8,
    protocol=U8,
    source=U32,
    dest=U32,
    conn=U32,
    lo=U64,
    transmission=U8,
    mark=U64,
    stamp=U32,
)
def test_any_control_frame_comes_out_as_it_went_in(
    kind: int,
    protocol: int,
    source: int,
    dest: int,
    conn: int,
    lo: int,
    transmission: int,
    mark: int,
    stamp: int,
) -> None:
    codec = Codec(1, source, hash64)
    frame = codec.pack_control(kind, protocol, dest, conn, lo, transmission, mark, stamp)
    head, body = codec.unpack_untrusted(frame)
    assert (head.kind, head.protocol, head.source, head.dest) == (kind, protocol, source, dest)
    assert (head.conn, head.lo, head.transmission) == (conn, lo, transmission)
    assert (head.mark, head.stamp, head.size, body) == (mark, stamp, 0, b"")
    assert len(frame) == wire.HEAD_SIZE


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 1 << 20)), min_size=1))
def test_any_ascending_ranges_come_out_as_they_went_in(steps: list[tuple[int, int]]) -> None:
    """B-41: gaps of any width between ranges of any length."""
    ranges, at = [], 0
    for gap, length in steps:
        lo = at + 1 + gap
        at = lo + length - 1
        ranges.append((lo, at))
    codec = Codec(1, 2, hash64)
    frame = codec.pack_control(wire.XMIT_REQ, wire.UNICAST3, 3, 4, at, ranges=ranges)
    head, body = codec.unpack_untrusted(frame)
    assert unpack_ranges_untrusted(head, body) == ranges


@given(payloads=PAYLOADS, data=st.data())
def test_any_damage_to_a_frame_is_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    """Any byte changed to anything else, anywhere in it."""
    codec = Codec(1, 2, hash64)
    body = pack_body(payloads, hash64)
    frame = codec.pack_data(wire.UNICAST3, 3, 4, 5, body, 0, 0, 0, 0) + body.data
    bad = bytearray(frame)
    bad[data.draw(st.integers(0, len(bad) - 1), label="at")] ^= data.draw(
        st.integers(1, 255), label="change"
    )
    with pytest.raises(BadFrame):
        codec.unpack_untrusted(bytes(bad))
    with pytest.raises(BadFrame):
        codec.unpack_untrusted(frame[: data.draw(st.integers(0, len(frame) - 1), label="cut")])


@given(cluster=U32, other=U32, payload=SHORT)
def test_a_frame_is_read_in_its_own_cluster_only(cluster: int, other: int, payload: bytes) -> None:
    body = pack_body([payload], hash64)
    frame = Codec(cluster, 1, hash64).pack_data(1, 2, 3, 4, body, 0, 0, 0, 0) + body.data
    if cluster == other:
        Codec(other, 2, hash64).unpack_untrusted(frame)
    else:
        with pytest.raises(BadFrame, match="cluster"):
            Codec(other, 2, hash64).unpack_untrusted(frame)
