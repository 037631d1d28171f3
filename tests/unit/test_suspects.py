"""Who counts as dead, and for how long; and whom a view has no room for."""

from __future__ import annotations

import pytest

from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import MAX_MEMBERS
from stormcast.node.protocols.gms.messages import room_for_members, size_in_view
from stormcast.node.protocols.gms.suspects import Suspects
from stormcast.node.protocols.gms.view_room import ViewRoom

A, B, C = (Address(number, name) for number, name in enumerate("abc", 1))


def test_a_suspicion_counts_for_as_long_as_it_lives_and_is_given_up_once() -> None:
    suspects = Suspects(10.0)
    suspects.add((B,), 0.0)
    suspects.add((C,), 5.0)
    assert suspects.believed(10.0) == {B, C}
    assert suspects.take_old(10.0) == ()
    assert suspects.believed(10.1) == {C}
    assert [*suspects.all] == [B, C]
    assert suspects.take_old(10.1) == (B,)
    assert [*suspects.all] == [C]


def test_a_suspect_that_is_alive_is_forgotten() -> None:
    suspects = Suspects(10.0)
    suspects.add((B, C), 0.0)
    suspects.discard(B)
    suspects.discard(A)
    assert suspects.believed(0.0) == {C}


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_joiners_fit_a_view_that_one_frame_carries(spare: int, fits: bool) -> None:
    """The largest body is such that the members of A, B and C take all of it, or a byte more."""
    largest = next(
        body
        for body in range(10_000)
        if room_for_members(body) == sum(map(size_in_view, (A, B, C)))
    )
    room = ViewRoom(largest + spare)
    view = View(ViewId(1, A), (A,))
    assert room.shortage(view, (B,)) == ""
    assert (room.shortage(view, (B, C)) == "") == fits


def test_a_view_has_a_most_of_members() -> None:
    members = tuple(Address(number, "m") for number in range(1, MAX_MEMBERS + 1))
    view = View(ViewId(1, members[0]), members)
    assert "at most" in ViewRoom(1 << 30).shortage(view, (Address(MAX_MEMBERS + 1, "m"),))
