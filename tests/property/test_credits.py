"""Flow control under lost credits and views that disagree: never too much (P-33), never for ever
(P-34, P-09)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core import wire
from stormcast.node.protocols.flow import FlowControl, Mfc, Ufc
from tests.helpers.flow import Flow, Member

STEPS = 80
MAX = 1000
BOTH = pytest.mark.parametrize("kind", [Ufc, Mfc])


class Chaos:
    """Members that send, take, lose connections and change views, each as chance has it."""

    def __init__(self, kind: type[FlowControl], seed: int, loss: float) -> None:
        self.flow = Flow(kind, "ABC", seed=seed, adaptive=seed % 2 == 0, max_credits=MAX)
        self.flow.loss = loss
        self.flow.copies = 0.2
        self.dice = self.flow.dice
        self.number = 1

    def some(self) -> Member:
        return self.dice.choice(list(self.flow.members.values()))

    def step(self) -> None:
        flow, dice = self.flow, self.dice
        one, other = self.some(), self.some()
        what = dice.random()
        if what < 0.35:
            to = "" if flow.kind is Mfc else other.name
            one.send(*[dice.randint(1, dice.choice([50, 400, MAX]))] * dice.randint(1, 4), to=to)
            flow.settle_turn(one)
        elif what < 0.55:
            flow.arrive(one.name, other.name, dice.randint(1, 5))
            other.take(one.name, dice.randint(1, 5))
            flow.settle_turn(other)
        elif what < 0.65:
            flow.reset(one.name, other.name)
        elif what < 0.75:
            self.number += 1
            names = [name for name in "ABC" if name == one.name or dice.random() < 0.6]
            flow.view(self.number, names, at=one.name)
        else:
            flow.now += dice.choice([0.0, 0.01, 0.1, 6.0])
            self.timers()
        if dice.random() < 0.5:
            dice.shuffle(flow.flying)
            flow.exchange()

    def timers(self) -> None:
        for member in self.flow.members.values():
            for _protocol, what in member.timers.take_due(self.flow.now):
                member.layer.on_timer(what, self.flow.now)
            self.flow.settle_turn(member)

    def check(self) -> None:
        for source in self.flow.members.values():
            for dest in source.role.members:
                assert self.flow.outstanding(source, self.flow.at(dest.short)) <= MAX
            for refused in source.port.drops:
                assert refused == "credit-not-member"


@BOTH
@given(seed=st.integers(0, 2**32 - 1), loss=st.sampled_from([0.0, 0.1, 0.5, 0.9]))
def test_no_more_than_the_credits_is_ever_under_way(
    kind: type[FlowControl], seed: int, loss: float
) -> None:
    """Of one meeting: a member that is met anew gets full credits, whatever it still holds."""
    chaos = Chaos(kind, seed, loss)
    for member in chaos.flow.members.values():
        member.is_consuming = False
    for _ in range(STEPS):
        chaos.step()
        chaos.check()


@BOTH
@given(seed=st.integers(0, 2**32 - 1), loss=st.sampled_from([0.0, 0.3, 0.9]))
def test_nobody_waits_for_ever_once_receivers_take_what_arrives(
    kind: type[FlowControl], seed: int, loss: float
) -> None:
    """Any history of views and losses, then one view and a wire that loses half: all is sent."""
    chaos = Chaos(kind, seed, loss)
    flow = chaos.flow
    for _ in range(STEPS):
        chaos.step()
    flow.loss = 0.5
    flow.view(chaos.number + 1, "ABC")
    interval = 0.5 if flow.timing.adaptive else flow.config.max_block_time
    messages = sum(member.pending() for member in flow.members.values())
    # A message may cost a block; a block costs a question and an answer, each lost half the time.
    for _ in range(40 + 40 * messages):
        if not any(member.pending() for member in flow.members.values()):
            break
        flow.advance(interval, step=interval)
    assert [member.pending() for member in flow.members.values()] == [0, 0, 0]
    assert not any(member.waits() for member in flow.members.values())


@given(seed=st.integers(0, 2**32 - 1))
def test_unicasts_go_on_across_any_views_that_stay(seed: int) -> None:
    """P-13: whoever has whom in its view, for good, all that is sent leaves."""
    chaos = Chaos(Ufc, seed, 0.2)
    flow = chaos.flow
    for _ in range(STEPS):
        chaos.step()
    for member in flow.members.values():
        for other in "ABC":
            member.send(*[700] * 5, to=other)
        flow.settle_turn(member)
    flow.advance(400.0, step=1.0)
    assert [member.pending() for member in flow.members.values()] == [0, 0, 0]


@BOTH
@given(seed=st.integers(0, 2**32 - 1), loss=st.sampled_from([0.0, 0.5]))
def test_when_all_is_sent_and_taken_there_is_silence(
    kind: type[FlowControl], seed: int, loss: float
) -> None:
    """P-03."""
    chaos = Chaos(kind, seed, loss)
    flow = chaos.flow
    for _ in range(STEPS):
        chaos.step()
    flow.loss = 0.0
    flow.view(chaos.number + 1, "ABC")
    flow.advance(200.0, step=1.0)
    frames = len(flow.wire)
    flow.advance(100.0, step=1.0)
    assert len(flow.wire) == frames
    assert all(kind in {wire.CREDIT, wire.CREDIT_REQ} for _, _, kind, _ in flow.wire)
