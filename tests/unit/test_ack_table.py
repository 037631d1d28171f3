"""Ack tables: the minimum over the members is what nobody needs any more (B-43, P-17)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.ack_table import AckTable

A, B, C, D, STRANGER = 1, 2, 3, 4, 9


def table(**acked: int) -> AckTable:
    """A table of members that have acked so much: `table(a=3, b=5)`."""
    made = AckTable()
    made.adjust([ord(name) - ord("a") + 1 for name in acked], 0)
    for name, seqno in acked.items():
        made.ack(ord(name) - ord("a") + 1, seqno)
    return made


# -- Members -------------------------------------------------------------------------------------


def test_an_empty_table_that_gets_four_members_holds_four_at_nothing() -> None:
    """B-43."""
    acks = AckTable()
    acks.adjust([A, B, C, D], 0)
    assert (len(acks), acks.minimum) == (4, 0)
    assert [acks.of(member) for member in (A, B, C, D)] == [0] * 4


def test_who_left_no_longer_holds_the_minimum_down() -> None:
    """JGRP-2853: this is what releases a sender that waits for a crashed member."""
    acks = table(a=10, b=3, c=7)
    acks.adjust([A, C], 0)
    assert (len(acks), acks.minimum, acks.of(B)) == (2, 7, None)
    assert B not in acks


def test_who_is_new_begins_where_purging_stands_and_the_others_keep_what_they_acked() -> None:
    acks = table(a=10, b=8)
    acks.adjust([A, B, C], 5)
    assert [acks.of(member) for member in (A, B, C)] == [10, 8, 5]
    assert acks.minimum == 5


def test_who_left_and_came_back_begins_anew() -> None:
    acks = table(a=10, b=8)
    acks.adjust([A], 0)
    acks.adjust([A, B], 2)
    assert (acks.of(B), acks.minimum) == (2, 2)


def test_who_is_new_is_unheard_until_it_acks_what_is_purged() -> None:
    """An older ack was on its way since before the member came back."""
    acks = table(a=10, b=8)
    assert not acks.unheard
    acks.adjust([A, B, C, D], 5)
    assert acks.unheard == {C, D}
    acks.ack(C, 4)
    assert acks.unheard == {C, D}
    acks.ack(C, 5)
    assert acks.unheard == {D}
    acks.adjust([A, B], 5)
    assert not acks.unheard


def test_where_nothing_is_purged_nobody_needs_to_be_told() -> None:
    acks = AckTable()
    acks.adjust([A, B], 0)
    assert not acks.unheard


def test_a_table_without_members_stands_where_purging_does() -> None:
    acks = table(a=10)
    acks.adjust([], 6)
    assert (len(acks), acks.minimum, acks.slowest()) == (0, 6, [])


def test_a_cleared_table_knows_nobody() -> None:
    acks = table(a=10, b=8)
    acks.clear()
    assert (len(acks), acks.minimum, acks.of(A)) == (0, 0, None)
    assert acks.ack(A, 11) is None


# -- Acks ----------------------------------------------------------------------------------------


def test_the_minimum_rises_with_the_slowest_member_only() -> None:
    acks = table(a=0, b=0)
    assert acks.ack(A, 5) is False
    assert acks.minimum == 0
    assert acks.ack(B, 3) is True
    assert acks.minimum == 3
    assert acks.ack(A, 9) is False
    assert acks.minimum == 3
    assert acks.ack(B, 20) is True
    assert acks.minimum == 9


def test_the_minimum_waits_for_every_member_that_holds_it() -> None:
    acks = table(a=0, b=0, c=0)
    assert [acks.ack(member, 4) for member in (A, B, C)] == [False, False, True]
    assert acks.slowest() == [A, B, C]


def test_an_old_ack_changes_nothing() -> None:
    """Acks may be reordered: one that is not above what is known says nothing new."""
    acks = table(a=5, b=5)
    assert acks.ack(A, 5) is False
    assert acks.ack(A, 1) is False
    assert (acks.of(A), acks.minimum) == (5, 5)


def test_an_ack_of_a_stranger_makes_no_entry() -> None:
    """JGRP-2904: an entry for who left, or is not in yet, would never move."""
    acks = table(a=5, b=3)
    assert acks.ack(STRANGER, 100) is None
    assert acks.ack(STRANGER, 0) is None
    assert (len(acks), STRANGER in acks, acks.of(STRANGER), acks.minimum) == (2, False, None, 3)


def test_the_slowest_are_those_at_the_minimum() -> None:
    acks = table(a=5, b=3, c=3)
    assert acks.slowest() == [B, C]
    acks.ack(B, 4)
    assert acks.slowest() == [C]


# -- Against a model -------------------------------------------------------------------------------


@dataclass
class Model:
    """A mapping, and the minimum counted anew each time."""

    acks: dict[int, int] = field(default_factory=dict)
    low: int = 0

    @property
    def minimum(self) -> int:
        return min(self.acks.values(), default=self.low)

    def ack(self, member: int, seqno: int) -> bool | None:
        if member not in self.acks:
            return None
        before = self.minimum
        self.acks[member] = max(self.acks[member], seqno)
        return self.minimum > before

    def adjust(self, members: frozenset[int], low: int) -> None:
        self.acks = {member: self.acks.get(member, low) for member in members}
        self.low = low


MEMBERS = st.integers(1, 5)
ACKS = st.tuples(st.just("ack"), MEMBERS, st.integers(0, 30))
ADJUSTS = st.tuples(st.just("adjust"), st.frozensets(MEMBERS), st.integers(0, 30))


@given(st.lists(ACKS | ACKS | ACKS | ADJUSTS, max_size=60))
def test_the_minimum_is_that_of_exactly_the_members_and_falls_only_with_them(
    deeds: list[tuple[object, ...]],
) -> None:
    """P-17: acks of others have no effect, and while the members stay it never falls."""
    acks, model = AckTable(), Model()
    for deed in deeds:
        match deed:
            case ("ack", int(member), int(seqno)):
                before = acks.minimum
                assert acks.ack(member, seqno) == model.ack(member, seqno)
                assert acks.minimum >= before
            case ("adjust", frozenset(members), int(low)):
                acks.adjust(members, low)
                model.adjust(members, low)
        assert acks.minimum == model.minimum
        assert len(acks) == len(model.acks)
        assert {member: acks.of(member) for member in model.acks} == model.acks
        slowest = {member for member, seqno in model.acks.items() if seqno == model.minimum}
        assert {*acks.slowest()} == slowest
