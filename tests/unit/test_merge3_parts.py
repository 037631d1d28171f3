"""What MERGE3 keeps: the view ids that members sent, and their answers in a check."""

from __future__ import annotations

from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.timing import Timing
from stormcast.node.core.wire import Head
from stormcast.node.protocols.merge3.heard import MAX_STRANGERS, Heard
from stormcast.node.protocols.merge3.questions import Questions
from tests.helpers.parts import Parts

A, B, C = (Address(1, "a"), Address(2, "b"), Address(3, "c"))
OLD, NEW = ViewId(1, A), ViewId(2, A)


def test_an_info_that_was_overtaken_is_no_news() -> None:
    heard = Heard(Parts().port)
    assert heard.note(B, NEW, 2, 0.0)
    assert not heard.note(B, OLD, 1, 1.0)
    assert not heard.note(B, NEW, 2, 1.0)
    assert heard.note(B, NEW, 3, 1.0)
    assert heard.take(since=0.0) == {B: NEW}


def test_what_a_member_said_last_outlives_checks_until_it_is_old() -> None:
    heard = Heard(Parts().port)
    heard.note(B, OLD, 1, 1.0)
    assert heard.take(since=1.0) == {B: OLD}
    assert heard.take(since=1.0) == {}
    assert heard.latest() == {B: OLD}
    heard.take(since=1.5)
    assert heard.latest() == {}


def test_one_stranger_more_pushes_out_the_first_and_no_member_of_a_past_view() -> None:
    parts = Parts()
    parts.port.contacts.on_view((B,))
    heard = Heard(parts.port)
    strangers = [Address(10 + number, str(number)) for number in range(MAX_STRANGERS + 1)]
    for sender in (B, *strangers):
        heard.note(sender, OLD, 1, 0.0)
    assert [*heard.take(since=0.0)] == [B, *strangers[1:]]
    assert parts.port.drops == {"heard-full": 1}


# -- Questions -------------------------------------------------------------------------------------


def head(source: Address, check: int = 1) -> Head:
    blank = dict.fromkeys(Head._fields, 0) | {"source": source.short, "lo": check}
    return Head(**blank)


def begun(parts: Parts, *living: Address) -> Questions:
    """A's questions to B and C, in its first check."""
    questions = Questions(A, parts.port, Timing())
    questions.begin(View(OLD, (A,)), (A, B, C), living)
    return questions


def test_the_last_answer_ends_a_check_which_reports_views_that_differ() -> None:
    parts = Parts()
    questions = begun(parts)
    questions.ask()
    assert [dest for dest, _head, _body in parts.port.frames] == [B.short, C.short]
    other = View(ViewId(1, B), (B, C))
    assert not questions.take(head(B), other)
    assert not questions.take(head(C, check=2), other)
    assert questions.take(head(C), other)
    assert parts.port.drops == {"unasked": 1}
    assert questions.take_answers() == {A: View(OLD, (A,)), B: other, C: other}
    assert not questions.are_open


def test_answers_that_agree_are_not_reported() -> None:
    own = View(OLD, (A, B))
    questions = Questions(A, Parts().port, Timing())
    questions.begin(own, (B,), ())
    assert questions.take(head(B), own)
    assert questions.take_answers() == {}


def test_strangers_that_live_are_waited_for_once_and_only_while_answers_agree() -> None:
    assert not begun(Parts()).take_late()
    questions = begun(Parts(), B)
    assert questions.take_late()
    assert not questions.take_late()
    questions = begun(Parts(), B)
    questions.take(head(C), View(ViewId(1, C), (C,)))
    assert not questions.take_late()
