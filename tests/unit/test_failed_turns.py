"""A turn that failed, for a bug or for want of memory: what it had begun, the next ones end."""

from __future__ import annotations

from typing import Any

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import GROUP
from stormcast.node.protocols import frag
from stormcast.node.protocols.events import Cleared
from stormcast.node.protocols.multicast import outgoing as multicast_outgoing
from stormcast.node.protocols.multicast import windows
from stormcast.node.protocols.port import Abandoned
from stormcast.node.protocols.unicast import outgoing, receivers
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

A, B, C = Address(1, "A"), Address(2, "B"), Address(3, "C")
STEP = 0.001


class Once:
    """A function that runs out of memory at its first call after `fail`."""

    def __init__(self, real: Any, applies: Any = lambda *_: True) -> None:
        self._real = real
        self._applies = applies
        self.fails = False

    def fail(self) -> None:
        self.fails = True

    def __call__(self, *rest: Any, **named: Any) -> Any:
        if self.fails and self._applies(*rest):
            self.fails = False
            raise MemoryError
        return self._real(*rest, **named)


class Two:
    """Two stacks, A and B, over a network without faults; a turn that fails is followed by
    others."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.now = 0.0
        self.failed = 0
        self.got: list[bytes] = []
        self.own: list[bytes] = []
        """What A has of its own messages."""
        self.told: list[Abandoned] = []
        made = load_settings(*names, timing="fast", **settings)
        self.a, self.b = (
            Stack(one, "test", made, hash64, Tracer(one.short, 0, hash64, lambda _block: None), 0.0)
            for one in (A, B)
        )
        if made.has_group:
            for stack in (self.a, self.b):
                stack.install_view(View(ViewId(1, A), (A, B)), 0.0)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP
            for stack, other in ((self.a, self.b), (self.b, self.a)):
                try:
                    self._turn(stack, other)
                except MemoryError:
                    self.failed += 1

    def _turn(self, stack: Stack, other: Stack) -> None:
        if stack.next_deadline() <= self.now:
            stack.tick(self.now)
        self._take(stack)
        frames = stack.end_turn(self.now)
        self._take(stack)
        if stack.has_news():
            self.told += stack.take_news().abandoned
        for dest, head, body in frames:
            if dest in {0, other.address.short}:
                other.receive(head + body, self.now)

    def _take(self, stack: Stack) -> None:
        taken = [bytes(one) for delivery in stack.take_deliveries() for one in delivery]
        taken_before = self.got if stack is self.b else self.own
        taken_before += taken


@pytest.mark.parametrize("sent_before", [0, 3])
def test_what_could_not_be_packed_leaves_later(
    sent_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two()
    pack = Once(outgoing.pack_body)
    monkeypatch.setattr(outgoing, "pack_body", pack)
    sent = [b"%d" % number for number in range(sent_before + 3)]
    for payload in sent[:sent_before]:
        assert two.a.try_send(B.short, payload)
    two.run(0.01)
    pack.fail()
    for payload in sent[sent_before:]:
        assert two.a.try_send(B.short, payload)
    two.run(1.0)
    assert (two.failed, two.got, two.told) == (1, sent, [])


def test_what_could_not_be_joined_is_handed_over_later(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two("udp")
    joined = Once(frag.Joined)
    monkeypatch.setattr(frag, "Joined", joined)
    joined.fail()
    sent = [b"first", b"L" * 200_000, b"second", b"third"]
    for payload in sent:
        assert two.a.try_send(B.short, payload)
    two.run(1.0)
    assert (two.failed, two.got, two.told) == (1, sent, [])


@pytest.mark.parametrize("name", ["udp", "mcast", "tcp-no-retransmit"])
@pytest.mark.parametrize("failing", ["pack_body", "pack_head", "hand_to_self"])
def test_a_multicast_that_could_not_be_sent_comes_to_its_own_sender_too(
    name: str, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two(name)
    _fail_at(failing, multicast_outgoing, two.a.multicast, monkeypatch)
    sent = [b"one", b"two", b"L" * 200_000]
    for payload in sent:
        assert two.a.try_send(GROUP, payload)
        two.run(1.0)
    assert two.failed == 1
    assert two.own == two.got == sent


def test_a_multicast_is_sent_once_though_it_could_not_be_purged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A is alone in its group, so that nothing stays in its window."""
    two = Two("udp")
    two.a.install_view(View(ViewId(2, A), (A,)), 0.0)
    purged = Once(Tracer.purged)

    def method(*rest: Any, **named: Any) -> None:
        purged(*rest, **named)

    monkeypatch.setattr(Tracer, "purged", method)
    purged.fail()
    for payload in (b"one", b"two"):
        assert two.a.try_send(GROUP, payload)
        two.run(1.0)
    assert (two.failed, two.own) == (1, [b"one", b"two"])
    assert two.a.multicast is not None
    assert len(two.a.multicast.own) == 0


@pytest.mark.parametrize("failing", ["pack_body", "hand_to_self"])
def test_a_unicast_to_oneself_that_failed_is_numbered_once(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two()
    _fail_at(failing, outgoing, two.a.unicast, monkeypatch)
    for payload in (b"one", b"two"):
        assert two.a.try_send(A.short, payload)
        two.run(1.0)
    assert (two.failed, two.own) == (1, [b"one", b"two"])
    assert two.a.unicast.sent_to_self()[1] == 2


def _fail_at(step: str, module: Any, protocol: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next message fail at one step of its sending."""
    owner, name = (protocol._outgoing, "_emit") if step == "pack_head" else (module, step)
    fails = Once(getattr(owner, name))
    monkeypatch.setattr(owner, name, fails)
    fails.fail()


@pytest.mark.parametrize("name", ["udp", "mcast"])
@pytest.mark.parametrize("failing", [windows, receivers])
def test_the_end_of_a_stall_that_failed_loses_nothing(
    name: str, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B has acked unicasts and multicasts of A, which come later in its windows of A."""
    two = Two(name)
    two.b.set_consuming(False, two.now)
    sent = [b"%d" % number for number in range(6)]
    for payload in sent:
        assert two.a.try_send(B.short, b"u" + payload)
        assert two.a.try_send(GROUP, b"m" + payload)
    two.run(0.5)
    hand_up = Once(failing.hand_up)
    monkeypatch.setattr(failing, "hand_up", hand_up)
    hand_up.fail()
    with pytest.raises(MemoryError):
        two.b.set_consuming(True, two.now)
    two.run(3.0)
    for kind in (b"u", b"m"):
        assert [one[1:] for one in two.got if one[:1] == kind] == sent


def test_events_behind_one_that_failed_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Two("udp").a.group
    assert group is not None
    passed: list[int] = []
    take = Once(lambda event, _now: passed.append(event.member))
    monkeypatch.setattr(group.events, "on_event", take)
    take.fail()
    group._port.events += [Cleared(1), Cleared(2), Cleared(3)]
    with pytest.raises(MemoryError):
        group.drain(0.0)
    group.drain(0.0)
    assert passed == [2, 3]


def test_a_view_outlasts_the_messages_of_the_one_before_it_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B's application is stalled when A leaves: the view of B alone comes, behind A's message."""
    two = Two("udp")
    two.b.set_consuming(False, two.now)
    assert two.a.try_send(GROUP, b"last")
    two.run(0.1)
    hand_up = Once(windows.hand_up)
    monkeypatch.setattr(windows, "hand_up", hand_up)
    hand_up.fail()
    alone = View(ViewId(2, B), (B,))
    with pytest.raises(MemoryError):
        two.b.install_view(alone, two.now)
    two.b.end_turn(two.now)
    assert two.b.pending_news.views[-1] == alone
    two.b.set_consuming(True, two.now)
    assert [bytes(one) for batch in two.b.take_deliveries() for one in batch] == [b"last"]


def test_a_look_that_failed_ends_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sends to B and C, which answer nothing. The repeat to B fails once: both are repeated."""
    a = Two().a
    resend = Once(a.unicast._repairs._resend, lambda entry, *_rest: entry.peer == B.short)
    monkeypatch.setattr(a.unicast._repairs, "_resend", resend)
    for peer in (B, C):
        assert a.try_send(peer.short, b"x")
    a.end_turn(0.0)
    resend.fail()
    repeats = {B.short: 0, C.short: 0}
    now, failed = 0.0, 0
    while now < 10.0:
        now = max(now + STEP, a.next_deadline())
        try:
            a.tick(now)
        except MemoryError:
            failed += 1
            continue
        for dest, _head, _body in a.end_turn(now):
            repeats[dest] += 1
    assert failed == 1
    assert min(repeats.values()) > 5


def test_a_timer_of_a_protocol_that_failed_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat of FD_ALL3 fails once: others still hear that this member is alive."""
    two = Two("udp")
    group = two.a.group
    assert group is not None
    assert group.fd_all is not None
    beat = Once(group.fd_all._beat)
    beats: list[float] = []
    monkeypatch.setattr(group.fd_all, "_beat", lambda now: (beats.append(now), beat(now)))
    beat.fail()
    two.run(10.0)
    assert two.failed == 1
    assert len(beats) > 3
