"""Each refusal is counted: a frame without power is refused, answered or noted, and few are not."""

from __future__ import annotations

from collections import Counter

import pytest

from stormcast.chaos.oracles.records import impossible
from stormcast.node import trace
from stormcast.node.core import wire
from tests.fuzz.frames import FrameMaker
from tests.fuzz.reading import heard
from tests.fuzz.test_powers import HASTY, NAMES, facts_of
from tests.helpers.group import formed
from tests.sim.test_hostile_group import changes, pictured

OF_MEMBERS: dict[tuple[int, int], str] = {
    (wire.VERIFY_SUSPECT2, wire.I_AM_NOT_DEAD): "the answer to a question that was asked twice",
    (wire.FD_SOCK2, wire.CLOSE): "it leaves",
    (wire.FD_ALL3, wire.HEARTBEAT): "it is alive",
    (wire.GMS, wire.GET_VIEW): "it has the newest view",
    (wire.GMS, wire.VIEW_ACK): "it has the view",
}
"""Frames that change nothing when a member has sent them; a stranger's are counted."""
OF_ANYBODY: dict[tuple[int, int], str] = {
    (wire.MERGE3, wire.VIEW_REQ): "of whom it is not known where it is",
    (wire.DISCOVERY, wire.GET_MBRS_REQ): "the same",
}
"""The same, whoever has sent them."""


@pytest.mark.slow
def test_no_frame_is_refused_in_silence() -> None:
    """One frame at a time, each at a member of a group that is at rest."""
    world = formed(NAMES, "udp", "fast", protocols=HASTY)
    facts = facts_of(world)
    maker = FrameMaker(facts, 9, is_defused=True)
    by_short = {world.short(name): name for name in NAMES}
    silent: Counter[tuple[int, int]] = Counter()
    for frame in maker.frames(0, 800):
        head = heard(frame.data, facts.cluster)
        member = world[by_short[maker.receiver(frame.number // 8).short]]
        refused, sent = sum(member.stack.record.refused.values()), len(world.wire)
        before = pictured(member)
        member.receive(frame.data)
        is_counted = sum(member.stack.record.refused.values()) > refused
        if isinstance(head, str):
            assert is_counted or not frame.data, str(frame)
        elif not (is_counted or len(world.wire) > sent or changes(before, pictured(member))):
            pair = head.protocol, head.kind
            assert pair in OF_ANYBODY or (head.source in by_short and pair in OF_MEMBERS), str(
                frame
            )
            silent[pair] += 1
    assert silent[wire.FD_ALL3, wire.HEARTBEAT] > 0


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["udp", "mcast"])
@pytest.mark.parametrize("is_defused", [True, False], ids=["strangers", "forgers"])
def test_nobody_makes_a_member_write_what_no_member_can_say(stack: str, is_defused: bool) -> None:
    """A number that judges cannot compute with would make a run `unknown`, which held."""
    world = formed(NAMES, stack, "fast", protocols=HASTY)
    facts = facts_of(world)
    maker = FrameMaker(facts, 9, is_defused=is_defused)
    by_short = {world.short(name): name for name in NAMES}
    for frame in maker.frames(0, 4000):
        world[by_short[maker.receiver(frame.number // 8).short]].receive(frame.data)
        if frame.number % 50 == 0:
            world.advance(0.05)
    for name in NAMES:
        events = [event for event, _text in world[name].told(*trace.EVENT_NAMES)]
        assert len(events) > 50
        assert impossible(events) == ""
