"""Digests: values that merge to the element-wise maximum (B-46, B-48, P-19)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.digest import Digest

PAIRS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: tuple(sorted(pair)))
DIGESTS = st.dictionaries(st.integers(1, 6), PAIRS).map(Digest)


def is_at_least(digest: Digest, other: Digest) -> bool:
    """Whether nothing in `other` is missing from `digest` or further on than there."""
    return all(
        member in digest
        and digest[member][0] >= other[member][0]
        and digest[member][1] >= other[member][1]
        for member in other
    )


@given(DIGESTS, DIGESTS)
def test_merging_is_commutative(one: Digest, other: Digest) -> None:
    assert one.merged(other) == other.merged(one)


@given(DIGESTS, DIGESTS, DIGESTS)
def test_merging_is_associative(one: Digest, two: Digest, three: Digest) -> None:
    assert one.merged(two).merged(three) == one.merged(two.merged(three))


@given(DIGESTS)
def test_merging_is_idempotent_and_nothing_is_its_unit(digest: Digest) -> None:
    assert digest.merged(digest) == digest
    assert digest.merged(Digest()) == Digest().merged(digest) == digest


@given(DIGESTS, DIGESTS)
def test_the_merged_digest_is_the_least_that_is_both(one: Digest, other: Digest) -> None:
    """P-19: no member is lost, none moves back, and no number comes from nowhere."""
    merged = one.merged(other)
    assert is_at_least(merged, one)
    assert is_at_least(merged, other)
    for member in merged:
        pairs = [digest[member] for digest in (one, other) if member in digest]
        assert merged[member] == (max(p[0] for p in pairs), max(p[1] for p in pairs))


@given(DIGESTS, DIGESTS)
def test_merging_leaves_both_as_they_were(one: Digest, other: Digest) -> None:
    before = (dict(one.seqnos), dict(other.seqnos))
    one.merged(other)
    assert (dict(one.seqnos), dict(other.seqnos)) == before


@given(DIGESTS, st.frozensets(st.integers(1, 8)))
def test_restricting_keeps_the_named_members_only(digest: Digest, members: frozenset[int]) -> None:
    """B-46: members without an entry are not made up."""
    restricted = digest.restricted(members)
    assert set(restricted) == set(digest) & members
    assert all(restricted[member] == digest[member] for member in restricted)


def test_a_digest_does_not_follow_the_mapping_it_was_made_from() -> None:
    """B-46: copies are independent."""
    seqnos = {1: (2, 3)}
    digest = Digest(seqnos)
    seqnos[1] = (9, 9)
    seqnos[2] = (1, 1)
    assert dict(digest.seqnos) == {1: (2, 3)}


def test_digests_are_equal_when_their_entries_are() -> None:
    assert Digest({1: (2, 3), 4: (5, 6)}) == Digest({4: (5, 6), 1: (2, 3)})
    assert Digest({1: (2, 3)}) != Digest({1: (2, 4)})
    assert Digest({1: (2, 3)}) != Digest({2: (2, 3)})
    assert Digest() == Digest({})


def test_nothing_is_delivered_that_was_not_received() -> None:
    assert Digest({1: (3, 3)})[1] == (3, 3)
    with pytest.raises(AssertionError):
        Digest({1: (4, 3)})
    with pytest.raises(AssertionError):
        Digest({1: (-1, 3)})
    with pytest.raises(KeyError):
        Digest({1: (3, 3)})[2]
