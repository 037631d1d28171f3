"""UFC and MFC at their members: who waits, who asks whom and when, and what is refused."""

from __future__ import annotations

import pytest

from stormcast.node.core import wire
from stormcast.node.core.credits import UNLIMITED
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import DONT_LOOPBACK, FIRST
from stormcast.node.protocols.flow import FlowConfig, FlowControl, Mfc, Ufc
from tests.helpers.flow import Flow

BOTH = pytest.mark.parametrize("kind", [Ufc, Mfc])
MAX = 1000


def dest_of(flow: Flow) -> str:
    """B, by name or as part of the group."""
    return "B" if flow.kind is Ufc else ""


def room(flow: Flow, name: str = "A") -> int:
    return flow[name].layer.room(flow["B"].short if flow.kind is Ufc else wire.GROUP)


def quiet(kind: type[FlowControl], names: str = "AB", **rest: object) -> Flow:
    """Members whose applications take nothing, except from themselves."""
    flow = Flow(kind, names, **rest)  # type: ignore[arg-type]
    for member in flow.members.values():
        member.is_consuming = False
    flow["A"].is_consuming = True
    return flow


# -- Spending --------------------------------------------------------------------------------------


@BOTH
def test_a_sender_stops_at_its_credits_to_the_byte(kind: type[FlowControl]) -> None:
    flow = quiet(kind)
    flow["A"].send(400, 600, to=dest_of(flow))
    assert not flow["A"].waits()
    assert room(flow) == 0
    flow["A"].send(1, to=dest_of(flow))
    assert flow["A"].waits()


@BOTH
def test_what_the_application_does_not_take_brings_no_credits(kind: type[FlowControl]) -> None:
    """B has it all in its window; its application is slow, and that is what is measured."""
    flow = quiet(kind)
    flow["A"].send(*[500] * 3, to=dest_of(flow))
    flow.arrive("A", "B")
    flow.advance(60.0)
    assert flow["A"].pending() == 1
    flow["B"].take("A")
    flow.advance(0.1)
    assert flow["A"].pending() == 0


@BOTH
def test_a_stream_that_is_taken_never_waits_for_a_question(kind: type[FlowControl]) -> None:
    """Two hundred budgets: after the introduction, limits come by themselves."""
    flow = Flow(kind, adaptive=False, max_credits=MAX)
    for _ in range(2000):
        flow["A"].send(100, to=dest_of(flow))
        assert not flow["A"].waits()
        flow.advance()
    assert flow.count(wire.CREDIT_REQ, "A", "B") == 1
    assert 200 <= flow.count(wire.CREDIT, "B", "A") <= 300


@BOTH
def test_pairs_that_say_little_exchange_nothing(kind: type[FlowControl]) -> None:
    flow = Flow(kind, "ABC")
    flow["A"].send(500, to=dest_of(flow))
    flow.advance(10.0)
    assert flow.wire == []
    flow["A"].send(1, to=dest_of(flow))
    flow.advance()
    assert flow.count(wire.CREDIT_REQ, "A", "B") == 1


def test_the_slowest_member_decides() -> None:
    """C-04: A, B and D take, C does not; a view without C lets all ten go."""
    flow = Flow(Mfc, "ABCD")
    flow["C"].is_consuming = False
    flow["A"].send(*[950] + [100] * 10)
    flow.advance(30.0)
    assert flow["A"].pending() == 10
    flow.view(2, "ABD")
    assert flow["A"].pending() == 0


def test_a_unicast_waits_for_its_own_receiver_only() -> None:
    flow = quiet(Ufc, "ABC")
    flow["A"].send(1000, 1000, to="B")
    flow["A"].send(1000, to="C")
    assert flow["A"].pending() == 1


def test_a_receiver_that_leaves_releases_who_waited_for_it() -> None:
    """C-07: and from then on it is sent to without limit, as any non-member."""
    flow = quiet(Ufc)
    flow["A"].send(*[600] * 4, to="B")
    assert flow["A"].pending() == 3
    flow.view(2, "A")
    assert flow["A"].pending() == 0
    assert room(flow) == UNLIMITED


@BOTH
def test_a_member_that_comes_back_gets_full_credits(kind: type[FlowControl]) -> None:
    flow = quiet(kind, "ABC")
    flow["A"].send(900, to=dest_of(flow))
    flow.view(2, "AC")
    flow.view(3, "ABC")
    expected = MAX if kind is Ufc else MAX - 900  # C has not taken its 900 either.
    assert room(flow) == expected


def test_a_view_that_comes_late_evicts_nobody() -> None:
    """JGRP-3036: credits of a member that is alive vanished with an older view."""
    flow = quiet(Ufc)
    flow["A"].send(600, to="B")
    flow["A"].install(5, "AB")
    flow["A"].install(4, "A")
    assert room(flow) == 400


@BOTH
def test_what_a_member_sends_to_itself_is_counted_without_a_frame(kind: type[FlowControl]) -> None:
    """C-02, C-08: half the budget is half of it; a hundred budgets pass without a stall."""
    flow = Flow(kind, "A")
    flow["A"].send(500, to="A" if kind is Ufc else "")
    dest = flow["A"].short if kind is Ufc else wire.GROUP
    assert flow["A"].layer.room(dest) == 500
    for _ in range(1000):
        flow["A"].send(100, to="A" if kind is Ufc else "")
        flow.advance()
    assert flow["A"].pending() == 0
    assert flow.wire == []


@BOTH
def test_what_does_not_loop_back_costs_no_credits_of_oneself(kind: type[FlowControl]) -> None:
    """P-33."""
    flow = Flow(kind, "A")
    layer = flow["A"].layer
    dest = flow["A"].short if kind is Ufc else wire.GROUP
    for _ in range(50):
        assert layer.room(dest) >= 100
        layer.spent(dest, 100, 0.0, DONT_LOOPBACK)
    assert flow["A"].port.drops == {}


# -- Asking ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("adaptive", "least", "most"), [(False, 12, 14), (True, 120, 130)])
def test_questions_are_spaced_while_a_receiver_is_silent(
    *, kind: type[FlowControl], adaptive: bool, least: int, most: int
) -> None:
    """Five seconds apart; where timing adapts, from 40 ms on up to half a second."""
    flow = quiet(kind, adaptive=adaptive)
    flow.loss = 1.0
    flow["A"].send(500, 500, 500, to=dest_of(flow))
    flow.settle_turn(flow["A"])
    flow.advance(60.0)
    assert least <= flow.count(wire.CREDIT_REQ, "A", "B") <= most
    asked = [(head.lo, head.mark, head.transmission) for *_, head in flow.wire]
    assert len(set(asked)) == len(asked)


@BOTH
def test_a_question_buys_nothing_from_who_has_taken_nothing(kind: type[FlowControl]) -> None:
    """Amounts granted on request let a sender push a budget per question into a stuck receiver."""
    flow = quiet(kind)
    flow["A"].send(*[500] * 10, to=dest_of(flow))
    flow.advance(60.0)
    assert flow.count(wire.CREDIT, "B", "A") > 100
    assert flow["A"].pending() == 8


@BOTH
def test_a_question_buys_no_crumbs(kind: type[FlowControl]) -> None:
    """B takes one message of ten, and is asked: its limit stays until little is left of it."""
    flow = quiet(kind)
    flow["A"].send(*[100] * 20, to=dest_of(flow))
    flow.arrive("A", "B")
    flow["B"].take("A", 7)
    flow.advance(2.0)
    assert flow["A"].pending() == 10
    flow["B"].take("A")
    flow.advance(2.0)
    flow.arrive("A", "B")
    assert flow["A"].pending() == 0
    flow["B"].take("A", 1)
    flow["A"].send(100, to=dest_of(flow))
    flow.advance(2.0)
    assert flow["A"].pending() == 1


@BOTH
def test_a_question_is_answered_once_and_again_when_all_was_taken(kind: type[FlowControl]) -> None:
    """Not with each message that is taken on the way there."""
    flow = quiet(kind, adaptive=False)
    flow["A"].send(*[100] * 11, to=dest_of(flow))
    flow.settle_turn(flow["A"])
    flow.advance()
    flow.arrive("A", "B")
    answers = flow.count(wire.CREDIT, "B", "A")
    for _ in range(9):
        flow["B"].take("A", 1)
        flow.advance()
    assert flow.count(wire.CREDIT, "B", "A") == answers
    flow["B"].take("A", 1)
    flow.advance()
    assert flow.count(wire.CREDIT, "B", "A") == answers + 1
    assert flow["A"].pending() == 0


@BOTH
@pytest.mark.parametrize("lost", [wire.CREDIT, wire.CREDIT_REQ])
def test_a_lost_credit_or_question_costs_one_interval(kind: type[FlowControl], lost: int) -> None:
    """T-9: nobody waits longer than max_block_time for a receiver that takes what arrives."""
    flow = Flow(kind, adaptive=False)
    flow.loss = 1.0 if lost == wire.CREDIT_REQ else 0.0
    flow["A"].send(900, 900, to=dest_of(flow))
    flow.settle_turn(flow["A"])
    flow.exchange()
    flow.loss = 1.0
    flow.advance(0.0)
    flow.loss = 0.0
    flow.advance(4.9)
    assert flow["A"].pending() == 1
    flow.advance(0.2)
    assert flow["A"].pending() == 0


@BOTH
def test_bytes_lost_with_a_connection_cost_no_credits(kind: type[FlowControl]) -> None:
    """P-33: twenty times most of a budget is lost; each costs one question."""
    flow = quiet(kind)
    for _ in range(20):
        flow["A"].send(900, to=dest_of(flow))
        flow.reset("A", "B")
        flow.advance(1.0)
    assert flow["A"].pending() == 0


@BOTH
def test_views_that_disagree_cost_one_question(kind: type[FlowControl]) -> None:
    """A excludes B and takes it back, B never notices; then the other way round."""
    flow = Flow(kind)
    number = 1
    for victim in "ABABAB":
        flow.view(number + 1, victim, at=victim)
        flow.view(number + 2, "AB", at=victim)
        number += 2
        flow["A"].send(*[300] * 20, to=dest_of(flow))
        flow.settle_turn(flow["A"])
        flow.advance(3.0)
        assert flow["A"].pending() == 0
    assert flow["A"].port.drops == {}


def test_a_sender_whose_receiver_does_not_have_it_in_its_view_goes_on() -> None:
    """P-13: B answers from A's own words, and keeps nothing of A (P-10)."""
    flow = Flow(Ufc)
    flow.view(2, "B", at="B")
    flow["A"].send(*[400] * 20, to="B")
    flow.settle_turn(flow["A"])
    flow.advance(10.0)
    assert flow["A"].pending() == 0
    assert flow["B"].layer.room(flow["A"].short) == UNLIMITED


@BOTH
def test_a_credit_from_an_earlier_meeting_lets_nothing_out(kind: type[FlowControl]) -> None:
    """It was under way while A excluded B and took it back."""
    flow = quiet(kind)
    flow["A"].send(900, to=dest_of(flow))
    flow.settle_turn(flow["A"])
    flow.arrive("A", "B")
    flow["B"].take("A")
    flow.advance(1.0)
    late = next(head for *_, kind, head in flow.wire if kind == wire.CREDIT)
    flow["A"].install(2, "A")
    flow["A"].install(3, "AB")
    before = room(flow)
    assert before == MAX
    flow["A"].layer.receive(late, b"", flow.now)
    assert room(flow) == before


@BOTH
def test_who_stops_asks_no_more(kind: type[FlowControl]) -> None:
    """C-05."""
    flow = quiet(kind)
    flow["A"].send(900, 900, to=dest_of(flow))
    flow["A"].layer.stop(flow.now)
    frames = len(flow.wire)
    flow["A"].port.frames.clear()
    flow.advance(60.0)
    assert len(flow.wire) == frames


# -- Refusing --------------------------------------------------------------------------------------


class Hostile:
    """A has sent 400 bytes, which nobody has taken, and asked nothing; C is a stranger."""

    def __init__(self, kind: type[FlowControl]) -> None:
        self.flow = flow = quiet(kind, "ABC", view=False)
        flow.view(1, "AB")
        flow["A"].send(400, to=dest_of(flow))

    def refuses(
        self, reason: str, source: str, kind: int, lo: int, *, at: str = "A", **fields: int
    ) -> None:
        """The frame is counted by this reason, changes no room, and is not answered."""
        flow = self.flow
        frame = flow[source].port.codec.pack_control(
            kind, flow["A"].layer.protocol, flow[at].short, fields.pop("conn", 0), lo, **fields
        )
        before = room(flow)
        flow.wire.clear()
        flow.hand(flow[at], frame)
        flow.advance(1.0)
        assert flow[at].port.drops == {reason: 1}
        assert room(flow) == before
        assert not [entry for entry in flow.wire if entry[0] == at and entry[1] == source]


@BOTH
def test_a_credit_beyond_what_was_sent_is_refused(kind: type[FlowControl]) -> None:
    Hostile(kind).refuses("credit-beyond-limit", "B", wire.CREDIT, 1401)


def test_a_credit_up_to_what_was_sent_is_believed() -> None:
    flow = Hostile(Ufc).flow
    flow.hand(
        flow["A"],
        flow["B"].port.codec.pack_control(wire.CREDIT, wire.UFC, flow["A"].short, 0, 1400),
    )
    assert room(flow) == MAX


@BOTH
def test_a_credit_that_answers_what_was_never_asked_is_refused(kind: type[FlowControl]) -> None:
    Hostile(kind).refuses("credit-beyond-limit", "B", wire.CREDIT, 1300, mark=401)


@BOTH
def test_a_credit_of_a_stranger_is_refused(kind: type[FlowControl]) -> None:
    Hostile(kind).refuses("credit-not-member", "C", wire.CREDIT, 1400)


@BOTH
def test_a_question_beyond_any_count_is_refused(kind: type[FlowControl]) -> None:
    Hostile(kind).refuses("credit-beyond-limit", "A", wire.CREDIT_REQ, (1 << 62) + 1, at="B")


@BOTH
def test_a_question_of_a_stranger_with_messages_under_way_is_refused(
    kind: type[FlowControl],
) -> None:
    Hostile(kind).refuses("credit-not-member", "C", wire.CREDIT_REQ, 900, mark=3, stamp=3, conn=1)


@BOTH
def test_a_frame_of_another_kind_is_refused(kind: type[FlowControl]) -> None:
    Hostile(kind).refuses("kind", "B", wire.ACK, 1)


@BOTH
def test_a_credit_with_a_body_is_refused(kind: type[FlowControl]) -> None:
    Hostile(kind).refuses("body-long", "B", wire.CREDIT, 1400, body=b"x")  # type: ignore[arg-type]


@BOTH
def test_a_flood_of_questions_gets_one_answer_a_turn(kind: type[FlowControl]) -> None:
    flow = Hostile(kind).flow
    frame = flow["A"].port.codec.pack_control(
        wire.CREDIT_REQ, flow["A"].layer.protocol, flow["B"].short, 1, 400, mark=9, flags=FIRST
    )
    for _ in range(100):
        flow.hand(flow["B"], frame)
    flow.advance(1.0)
    assert flow.count(wire.CREDIT, "B", "A") <= 2


@BOTH
def test_a_forged_total_is_put_right_by_the_next_question(kind: type[FlowControl]) -> None:
    """B is told that A sent far more than it did: what it then names is refused, and A asks."""
    flow = Flow(kind)
    flow["A"].send(100, to=dest_of(flow))
    flow.advance(0.1)
    frame = flow["A"].port.codec.pack_control(
        wire.CREDIT_REQ, flow["A"].layer.protocol, flow["B"].short, 1, 1 << 40
    )
    flow.hand(flow["B"], frame)
    flow["A"].send(*[400] * 20, to=dest_of(flow))
    flow.settle_turn(flow["A"])
    flow.advance(3.0)
    assert flow["A"].port.drops["credit-beyond-limit"] > 0
    assert flow["A"].pending() == 0


# -- Settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"max_credits": 0}, {"min_threshold": 0.0}, {"min_threshold": 1.0}, {"max_block_time": 0.0}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        FlowConfig(**wrong)  # type: ignore[arg-type]


@BOTH
def test_a_message_as_large_as_the_credits_can_be_sent(kind: type[FlowControl]) -> None:
    flow = Flow(kind)
    assert flow["A"].layer.max_message == MAX
    flow["A"].send(*[MAX] * 5, to=dest_of(flow))
    flow.settle_turn(flow["A"])
    flow.advance(3.0)
    assert flow["A"].pending() == 0
