"""Serial numbers keep their order across the wrap while they are less than half a turn apart."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.serial import is_newer, next_serial

WRAP = 1 << 32
HALF = 1 << 31
NEAR_THE_WRAP = st.integers(WRAP - 100, WRAP - 1) | st.integers(0, 100)
VALUES = st.integers(0, WRAP - 1) | NEAR_THE_WRAP


@given(value=VALUES, distance=st.integers(1, HALF - 1) | st.integers(1, 200))
def test_a_later_value_is_newer_and_never_the_other_way_round(value: int, distance: int) -> None:
    """G7 depends on it: an old connection is never taken for a new one."""
    later = (value + distance) % WRAP
    assert is_newer(later, value)
    assert not is_newer(value, later)


@given(VALUES)
def test_nothing_is_newer_than_itself(value: int) -> None:
    assert not is_newer(value, value)


@given(VALUES, VALUES)
def test_of_two_values_at_most_one_is_newer(one: int, other: int) -> None:
    assert not (is_newer(one, other) and is_newer(other, one))
    is_ordered = is_newer(one, other) or is_newer(other, one)
    assert is_ordered == (one != other and (one - other) % WRAP != HALF)


@pytest.mark.parametrize("value", [0, 1, HALF, WRAP - 1])
def test_order_holds_just_below_half_a_turn_and_fails_at_it(value: int) -> None:
    assert is_newer((value + HALF - 1) % WRAP, value)
    assert not is_newer((value + HALF) % WRAP, value)
    assert not is_newer((value + HALF + 1) % WRAP, value)


@given(VALUES)
def test_the_next_value_is_newer_and_never_zero(value: int) -> None:
    """0 means "none" on the wire."""
    following = next_serial(value)
    assert is_newer(following, value)
    assert 0 < following < WRAP


def test_counting_skips_zero_at_the_wrap() -> None:
    values = [WRAP - 2]
    for _ in range(4):
        values.append(next_serial(values[-1]))
    assert values == [WRAP - 2, WRAP - 1, 1, 2, 3]
    assert all(is_newer(later, earlier) for earlier, later in pairwise(values))


@pytest.mark.parametrize(
    ("later", "earlier"),
    [(1, WRAP - 1), (1, 0), (HALF - 1, 0), (HALF, 1), (HALF + 5, 10), (5, HALF + 10)],
)
def test_examples_of_newer(later: int, earlier: int) -> None:
    assert is_newer(later, earlier)
    assert not is_newer(earlier, later)
