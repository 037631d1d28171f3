"""Payloads that prove themselves: whoever holds one can say whether it is what was sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from stormcast.node.core.model import Address
from stormcast.node.payloads import PROVABLE_BYTES, PayloadStream, stream_of
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace import SENT, read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

HUNDRED = (100, 100)


def stream(seed: int = 1, source: str = "n0:a", dest: str = "b") -> PayloadStream:
    return PayloadStream(seed, source, dest)


def test_the_nth_payload_is_a_function_of_n() -> None:
    one, other = stream(), stream()
    assert [one.payload(n, HUNDRED) for n in range(50)] == [
        other.payload(n, HUNDRED) for n in range(50)
    ]
    assert one.payload(3, HUNDRED) == other.payload(3, HUNDRED)
    assert len({one.payload(n, HUNDRED) for n in range(50)}) == 50


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 23, 24, 100, 1000, 65536])
def test_a_payload_has_the_size_that_was_asked_for(size: int) -> None:
    payload = stream().payload(5, (size, size))
    assert len(payload) == size
    assert stream().strangers([payload]) == 0


def test_sizes_are_spread_over_their_whole_range_and_stay_within() -> None:
    sizes = {len(stream().payload(n, (20, 29))) for n in range(500)}
    assert sizes == set(range(20, 30))


@pytest.mark.parametrize(
    "other",
    [stream(seed=2), stream(source="n0:c"), stream(dest="c")],
    ids=["another run", "another incarnation", "another receiver"],
)
def test_a_payload_of_another_stream_is_not_recognised(other: PayloadStream) -> None:
    assert other.strangers([stream().payload(1, HUNDRED)]) == 1


@given(
    size=st.integers(PROVABLE_BYTES, 300),
    number=st.integers(0, 1 << 40),
    at=st.integers(0, 8 * 300 - 1),
)
def test_a_changed_bit_is_noticed(size: int, number: int, at: int) -> None:
    payload = bytearray(stream().payload(number, (size, size)))
    at %= 8 * size
    payload[at >> 3] ^= 1 << (at & 7)
    assert stream().strangers([bytes(payload)]) == 1


def test_a_payload_is_recognised_in_whatever_it_arrives() -> None:
    payload = stream().payload(9, (2000, 2000))
    assert stream().strangers([memoryview(payload)]) == 0
    assert stream().strangers([memoryview(payload[:-1] + b"?")]) == 1


def test_payloads_too_short_to_prove_anything_are_taken_at_their_word() -> None:
    assert stream().strangers([b"x" * (PROVABLE_BYTES - 1)]) == 0
    assert stream().strangers([b"x" * PROVABLE_BYTES]) == 1


@pytest.mark.parametrize(
    "size",
    [
        (1, 1),
        (8, 8),
        (15, 15),
        (16, 16),
        (100, 100),
        (1000, 1000),
        (1003, 1003),
        (0, 40),
        (20, 2000),
    ],
)
def test_a_batch_is_made_of_the_same_payloads(size: tuple[int, int]) -> None:
    one, other = stream(), stream()
    assert one.batch(5, 70, size) == [other.payload(number, size) for number in range(5, 75)]


def test_strangers_are_counted() -> None:
    payloads: list[bytes | memoryview] = [*stream().batch(0, 20, HUNDRED)]
    assert stream().strangers(payloads) == 0
    payloads[3] = memoryview(b"x" * 2000)
    payloads[9] = b"x" * 100
    assert stream().strangers(payloads) == 2


def test_the_digest_of_a_batch_is_the_one_in_the_trace() -> None:
    """A stack sends messages of a stream; whoever knows the stream computes the same digests."""
    blocks: list[bytes] = []
    source, dest = Address(5, "n0"), Address(9, "n1")
    tracer = Tracer(source.short, 0, xxh3_64_intdigest, blocks.append)
    stack = Stack(source, "c", load_settings("unicast-only"), xxh3_64_intdigest, tracer, 0.0)
    messages = stream_of(3, source.name, source.short, dest.short)
    for payload in messages.batch(0, 50, (20, 300)):
        assert stack.try_send(dest.short, payload)
    stack.end_turn(0.0)
    for payload in messages.batch(50, 7, HUNDRED):
        assert stack.try_send(dest.short, payload)
    stack.end_turn(0.0)
    tracer.seal()
    sent = [
        event
        for block in read_blocks_untrusted(b"".join(blocks), xxh3_64_intdigest)
        for event in block.events
        if event.kind == SENT
    ]
    assert [(event.lo, event.count) for event in sent] == [(1, 50), (51, 7)]
    assert [event.digest for event in sent] == [
        messages.digest(0, 50, (20, 300)),
        messages.digest(50, 7, HUNDRED),
    ]
