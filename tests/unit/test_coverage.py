"""Ranges of seqnos: what lies between others."""

from __future__ import annotations

import pytest

from stormcast.chaos.oracles.coverage import between


@pytest.mark.parametrize(
    ("lo", "hi", "whole", "found"),
    [
        (1, 5, [], [(1, 5)]),
        (1, 5, [(6, 9)], [(1, 5)]),
        (6, 9, [(1, 5)], [(6, 9)]),
        (6, 6, [(1, 5), (9, 9)], [(6, 6)]),
        (1, 9, [(2, 3), (5, 5)], [(1, 1), (4, 4), (6, 9)]),
        (3, 9, [(1, 4), (8, 12)], [(5, 7)]),
        (3, 4, [(1, 9)], []),
    ],
)
def test_what_lies_in_none_of_some_ranges_is_found(
    lo: int, hi: int, whole: list[tuple[int, int]], found: list[tuple[int, int]]
) -> None:
    assert list(between(lo, hi, whole)) == found
