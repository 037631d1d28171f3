"""What a stack and its transport ask of each other: to wait, how much fits, where members are."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import NO_RELIABILITY, Address, View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.port import EVERYONE
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.stack.lane import MAX_MESSAGE, MESSAGE_OVERHEAD
from stormcast.node.trace.tracer import Tracer

A = Address(0xA, "a", "198.18.0.1[7800]")
B = Address(0xB, "b", "198.18.0.2[7800]")
C = Address(0xC, "c", "198.18.0.3[7800]")


def make(stack: str = "unicast-only", **protocols: dict[str, object]) -> Stack:
    settings = load_settings(stack, "fast", protocols=protocols)
    return Stack(A, "test", settings, hash64, Tracer(A.short, 0, hash64, lambda _block: None), 0.0)


def member(*others: Address, stack: str = "udp") -> Stack:
    """One in a view."""
    made = make(stack)
    made.install_view(View(ViewId(1, A), (A, *others)), 0.0)
    made.end_turn(0.0)
    made.take_news()
    return made


def payloads(frames: list[tuple[int, bytes, bytes]]) -> int:
    """Messages in the DATA among these frames."""
    return sum(
        int.from_bytes(head[2:4], "big")
        for _to, head, body in frames
        if body and head[4] == wire.DATA
    )


# -- is_held ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, NO_RELIABILITY])
def test_a_transport_that_is_full_keeps_the_outbox_back_until_it_is_not(flags: int) -> None:
    stack = make()
    stack.is_held = True
    for _ in range(5):
        assert stack.try_send(B.short, b"x", flags)
    assert payloads(stack.end_turn(0.0)) == 0
    assert stack.outbox.pending(B.short) == 5
    assert stack.outbox.has_backlog
    stack.is_held = False
    assert payloads(stack.end_turn(0.0)) == 5
    assert not stack.outbox.has_backlog


def test_what_is_kept_back_fills_the_outbox_which_then_refuses() -> None:
    stack = make()
    stack.is_held = True
    bound = stack.settings.outbox_bytes
    payload = bytes(60_000)
    accepted = 0
    while stack.try_send(B.short, payload):
        accepted += 1
        if not accepted % 10:
            stack.end_turn(0.0)
    assert accepted == bound // (len(payload) + MESSAGE_OVERHEAD)
    assert stack.outbox.room(B.short) == bound - accepted * (len(payload) + MESSAGE_OVERHEAD)
    # Another destination has an outbox of its own.
    assert stack.try_send(C.short, payload)
    stack.is_held = False
    stack.end_turn(0.0)
    assert stack.try_send(B.short, payload)


def test_what_protocols_say_goes_on_while_the_outbox_is_held() -> None:
    """An ack is what the other end waits for: to hold it back would hold back both."""
    a, b = make(), make()
    b = Stack(B, "test", b.settings, hash64, Tracer(B.short, 0, hash64, lambda _block: None), 0.0)
    a.try_send(B.short, b"x")
    ((_to, head, body),) = a.end_turn(0.0)
    b.is_held = True
    b.receive(head + body, 0.0)
    frames = b.end_turn(0.0)
    b.tick(0.01)
    frames += b.end_turn(0.01)
    assert [head[4] for _to, head, _body in frames] == [wire.ACK]


# -- room ------------------------------------------------------------------------------------------


def test_room_is_all_of_it_until_something_waits() -> None:
    stack = make()
    bound = stack.settings.outbox_bytes
    assert stack.outbox.room(B.short) == bound
    stack.try_send(B.short, b"123")
    assert stack.outbox.room(B.short) == bound - 3 - MESSAGE_OVERHEAD
    assert stack.outbox.has_backlog
    stack.end_turn(0.0)
    assert stack.outbox.room(B.short) == bound
    assert not stack.outbox.has_backlog


def test_a_message_that_the_window_does_not_admit_is_a_backlog() -> None:
    stack = make(UNICAST3={"window_messages": 2})
    for _ in range(3):
        stack.try_send(B.short, b"x")
    assert payloads(stack.end_turn(0.0)) == 2
    assert stack.outbox.has_backlog
    assert stack.outbox.pending(B.short) == 1


# -- limit_messages --------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, NO_RELIABILITY])
def test_a_message_fits_at_the_limit_and_is_refused_past_it(flags: int) -> None:
    stack = make()
    stack.acceptor.limit_messages(1000)
    assert stack.acceptor.largest_message == 1000
    assert stack.try_send(B.short, bytes(1000), flags)
    with pytest.raises(
        ConfigError,
        match="a message of 1001 bytes: UDP carries 1000; split it, or add FRAG to the stack",
    ):
        stack.try_send(B.short, bytes(1001), flags)
    assert stack.outbox.pending(B.short) == 1


def test_a_limit_only_ever_falls() -> None:
    stack = make()
    stack.acceptor.limit_messages(1 << 40)
    assert stack.acceptor.largest_message == MAX_MESSAGE
    stack.acceptor.limit_messages(500)
    stack.acceptor.limit_messages(1000)
    assert stack.acceptor.largest_message == 500


def test_with_fragments_a_larger_message_is_cut_and_an_unreliable_one_refused() -> None:
    stack = member(B)
    stack.acceptor.limit_messages(65_439)
    assert stack.try_send(B.short, bytes(200_000))
    with pytest.raises(ConfigError, match="a message of 200000 bytes: UDP carries 65439"):
        stack.try_send(B.short, bytes(200_000), NO_RELIABILITY)


# -- Where members are -----------------------------------------------------------------------------


def test_a_view_says_where_members_are_once() -> None:
    stack = make("udp")
    stack.install_view(View(ViewId(1, A), (A, B, Address(0xD, "d"))), 0.0)
    located = {one.short: one.where for one in stack.take_news().located}
    # Who does not say where it is cannot be located.
    assert located == {A.short: A.where, B.short: B.where}
    assert stack.take_news().located == []


def test_who_answers_a_search_is_located_and_so_is_its_coordinator() -> None:
    stack = make("udp")
    stack.start(0.0)
    stack.end_turn(0.0)
    body = Writer().address(B).u8(3).address(C).bytes()
    codec = Codec(hash64(b"test") & 0xFFFFFFFF, B.short, hash64)
    stack.receive(
        codec.pack_control(wire.GET_MBRS_RSP, wire.DISCOVERY, A.short, 0, 1, body=body), 0.0
    )
    stack.tick(5.0)
    stack.end_turn(5.0)
    assert {one.short for one in stack.take_news().located} >= {B.short, C.short}


def test_who_gives_back_its_cookie_is_told_to_the_transport_as_proved() -> None:
    """The cookie goes to where the question says its sender is; nothing else is sent to it."""
    stack = make("udp")
    stack.install_view(View(ViewId(1, A), (A,)), 0.0)
    stack.take_news()
    codec = Codec(hash64(b"test") & 0xFFFFFFFF, B.short, hash64)
    body = Writer().address(B).bytes()

    def ask(cookie: int) -> list[bytes]:
        question = codec.pack_control(
            wire.VIEW_REQ, wire.MERGE3, A.short, 0, 1, mark=cookie, body=body
        )
        stack.receive(question, 1.0)
        return [head for to, head, _body in stack.end_turn(1.0) if to == B.short]

    (cookie,) = ask(0)
    news = stack.take_news()
    assert (news.located, news.proved) == ([B], [])
    (answer,) = ask(int.from_bytes(cookie[wire.span("mark")], "big"))
    assert answer[4] == wire.VIEW_RSP
    assert stack.take_news().proved == [B]


def test_everybody_is_asked_when_somebody_s_place_is_unknown() -> None:
    stack = member(B)
    stack.ask_around(0.0)
    asked = [(to, head[4]) for to, head, _body in stack.end_turn(0.0) if head[5] == wire.DISCOVERY]
    assert asked == [(EVERYONE, wire.GET_MBRS_REQ)]


def test_a_stack_without_a_group_has_nobody_to_ask() -> None:
    stack = make()
    stack.ask_around(0.0)
    assert stack.end_turn(0.0) == []
    assert stack.destinations() == ()
    assert stack.take_news().located == []


def test_destinations_are_the_others() -> None:
    assert member(B, C).destinations() == (B.short, C.short)


def test_a_connection_that_was_lost_concerns_members_only() -> None:
    """To a member is said what there is to be had; what it held may be lost."""
    stack = member(B, stack="tcp")
    stack.on_connection_lost(C.short, 0.0)
    assert stack.end_turn(0.0) == []
    stack.on_connection_lost(B.short, 0.0)
    said = {(to, head[4]) for to, head, _body in stack.end_turn(0.0)}
    assert said == {(B.short, wire.BASELINE)}
