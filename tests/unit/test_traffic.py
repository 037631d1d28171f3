"""Payloads that prove themselves: whoever holds one can say whether it is what was sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.traffic import PROVABLE_BYTES, Stream

HUNDRED = (100, 100)


def stream(seed: int = 1, source: str = "n0:a", dest: str = "b") -> Stream:
    return Stream(seed, source, dest)


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
    assert stream().recognises(payload)


def test_sizes_are_spread_over_their_whole_range_and_stay_within() -> None:
    sizes = {len(stream().payload(n, (20, 29))) for n in range(500)}
    assert sizes == set(range(20, 30))


@pytest.mark.parametrize(
    "other",
    [stream(seed=2), stream(source="n0:c"), stream(dest="c")],
    ids=["another run", "another incarnation", "another receiver"],
)
def test_a_payload_of_another_stream_is_not_recognised(other: Stream) -> None:
    assert not other.recognises(stream().payload(1, HUNDRED))


@given(
    size=st.integers(PROVABLE_BYTES, 300),
    number=st.integers(0, 1 << 40),
    at=st.integers(0, 8 * 300 - 1),
)
def test_a_changed_bit_is_noticed(size: int, number: int, at: int) -> None:
    payload = bytearray(stream().payload(number, (size, size)))
    at %= 8 * size
    payload[at >> 3] ^= 1 << (at & 7)
    assert not stream().recognises(bytes(payload))


def test_a_payload_is_recognised_in_whatever_it_arrives() -> None:
    payload = stream().payload(9, (2000, 2000))
    assert stream().recognises(memoryview(payload))
    assert not stream().recognises(memoryview(payload[:-1] + b"?"))


def test_payloads_too_short_to_prove_anything_are_taken_at_their_word() -> None:
    assert stream().recognises(b"x" * (PROVABLE_BYTES - 1))
    assert not stream().recognises(b"x" * PROVABLE_BYTES)
