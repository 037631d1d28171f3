"""The merge that a member takes part in: one at a time, and none again that is over."""

from __future__ import annotations

from random import Random
from typing import Any

from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.timers import Timers
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.events import ResumeStability, Role, SuspendStability
from stormcast.node.protocols.gms.config import GmsConfig
from stormcast.node.protocols.gms.current_merge import CurrentMerge, PastMerges
from stormcast.node.protocols.gms.messages import MergeId
from stormcast.node.protocols.gms.state import Membership
from stormcast.node.protocols.layer import MemberContext
from tests.helpers.parts import ME, Parts

A, B, C = Address(ME, "a"), Address(2, "b"), Address(3, "c")
HELD = View(ViewId(1, A), (A,))
OF_B, OF_C = MergeId(B, 1), MergeId(C, 1)


class Member:
    """A member that casts no view, of which only the merge is seen, and whether requests wait."""

    is_waiting = False

    def __init__(self, *known: int) -> None:
        self.stopped: set[str] = set()
        self.port = Parts().port
        context = MemberContext(Role(A), self.port, Timers(), Timing(), Random(1))
        seqnos = dict.fromkeys(known, (3, 3))
        state = Membership(GmsConfig(), context, lambda: Digest(seqnos))
        this: Any = self
        self.merge = CurrentMerge(state, this, this)

    def stop(self, reason: str) -> None:
        self.stopped.add(reason)

    def resume(self, reason: str, _now: float) -> None:
        self.stopped.discard(reason)


def test_who_takes_part_holds_up_requests_and_stability_until_the_merge_is_over() -> None:
    member = Member(ME, 2)
    own = member.merge.enter(OF_B, HELD, 0.0)
    assert own is not None
    assert (own.view, own.digest) == (HELD, Digest({ME: (3, 3)}))
    assert not member.merge.is_led_here
    assert member.stopped == {"merge"}
    assert not member.merge.may_enter(OF_C, 0.0)
    member.merge.end(1.0)
    assert (member.merge.id, member.merge.own, member.stopped) == (None, None, set())
    assert OF_B in member.merge.past
    assert [type(event) for event in member.port.events] == [SuspendStability, ResumeStability]
    assert member.merge.may_enter(OF_C, 1.0)


def test_who_does_not_know_its_own_multicasts_takes_no_part() -> None:
    member = Member(2)
    assert member.merge.enter(OF_B, HELD, 0.0) is None
    assert member.merge.id is None
    assert member.stopped == set()


def test_the_latest_twenty_merges_are_remembered() -> None:
    past = PastMerges()
    merges = [MergeId(B, number) for number in range(21)]
    for merge in merges:
        past.add(merge)
    assert [merge in past for merge in merges] == [False] + 20 * [True]
