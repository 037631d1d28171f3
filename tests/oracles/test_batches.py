"""Batches of one numbering, found by their seqnos."""

from __future__ import annotations

import pytest

from stormcast.chaos.oracles.history import Batches
from stormcast.node.trace import SENT, Event

SILENT = Event(*[0] * 15, 0.0)


def sent(lo: int, hi: int, digest: int = 7) -> Event:
    return SILENT._replace(kind=SENT, lo=lo, hi=hi, digest=digest, time=1.0)


ONE, TWO, THREE = sent(1, 1), sent(2, 5), sent(8, 9)
BATCHES = Batches([ONE, TWO, THREE])


@pytest.mark.parametrize(
    ("seqno", "batch"), [(0, None), (1, ONE), (2, TWO), (5, TWO), (6, None), (9, THREE), (10, None)]
)
def test_a_batch_is_found_by_each_of_its_seqnos(seqno: int, batch: Event | None) -> None:
    assert BATCHES.at(seqno) == batch


def test_a_batch_that_is_added_is_found() -> None:
    batches = Batches()
    batches.add(ONE)
    batches.add(TWO)
    assert (batches.at(1), batches.at(3)) == (ONE, TWO)


@pytest.mark.parametrize(
    ("lo", "hi", "found"),
    [(1, 9, [ONE, TWO, THREE]), (3, 4, [TWO]), (5, 8, [TWO, THREE]), (6, 7, []), (10, 20, [])],
)
def test_batches_between_two_seqnos_hold_one_of_these(lo: int, hi: int, found: list[Event]) -> None:
    assert BATCHES.between(lo, hi) == found


@pytest.mark.parametrize(
    "delivered",
    [
        TWO._replace(digest=8),
        TWO._replace(hi=6),
        TWO._replace(time=0.5),
        TWO._replace(lo=6, hi=6),
    ],
)
def test_a_delivery_that_no_batch_accounts_for_has_no_origin(delivered: Event) -> None:
    assert BATCHES.origin(TWO._replace(lo=3, time=1.5)) == TWO
    assert BATCHES.origin(delivered) is None
