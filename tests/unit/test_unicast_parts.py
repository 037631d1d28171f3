"""The parts of unicast, each alone: what it promises to the others."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from stormcast.node.core import wire
from stormcast.node.core.acks import AckState
from stormcast.node.core.credits import UNLIMITED
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST, OOB, Address
from stormcast.node.core.timers import Timers
from stormcast.node.core.window import ReceiveWindow
from stormcast.node.protocols import windowed
from stormcast.node.protocols.unicast import (
    UNICAST1,
    UNICAST2,
    UNICAST3,
    UNICAST4,
    Generation,
    incoming,
    receivers,
)
from stormcast.node.protocols.unicast.acks import Acks
from stormcast.node.protocols.unicast.asking import Asking
from stormcast.node.protocols.unicast.entries import ReceiverEntry, SenderEntry, State
from stormcast.node.protocols.unicast.feedback import Feedback
from stormcast.node.protocols.unicast.incoming import Incoming
from stormcast.node.protocols.unicast.lifetimes import Lifetimes
from stormcast.node.protocols.unicast.outgoing import Outgoing
from stormcast.node.protocols.unicast.receivers import Receivers
from stormcast.node.protocols.unicast.repairs import Repairs
from stormcast.node.protocols.unicast.resync import Resync
from stormcast.node.protocols.unicast.senders import Senders
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.unicast.tombstones import MAX_PEERS, MAX_STRANGERS, Tombstones
from stormcast.node.protocols.windowed import changed, drop_refused
from tests.helpers.unicast import ME, PEER, connections, control, data, recorded, sent

CONN = 7
GENERATIONS = (UNICAST1, UNICAST2, UNICAST3, UNICAST4)
on_every_generation = pytest.mark.parametrize(
    "generation", GENERATIONS, ids=["UNICAST", "UNICAST2", "UNICAST3", "UNICAST4"]
)


class Sending:
    """The parts that send, and what they share."""

    def __init__(self, generation: Generation = UNICAST3, **settings: float | str) -> None:
        self.state = connections(generation, **settings)
        self.lifetimes = Lifetimes(self.state)
        self.senders = Senders(self.state, self.lifetimes)
        self.outgoing = Outgoing(self.state, self.senders)
        self.repairs = Repairs(self.state, self.outgoing)
        self.feedback = Feedback(self.state, self.outgoing, self.repairs)

    def send(self, *payloads: bytes, now: float = 0.0, to: int = PEER) -> None:
        self.outgoing.send(to, payloads, 0, now)

    @property
    def entry(self) -> SenderEntry:
        return self.state.senders[PEER]

    def look(self) -> None:
        """Let the next look come."""
        now = self.state.looks.next_deadline()
        for _entry in self.state.looks.take_due(now):
            self.repairs.visit(self.entry, now)

    def seqnos(self) -> list[int]:
        return [head.lo for head in sent(self.state)]


class Receiving:
    """The parts that receive, and what they share."""

    def __init__(self, generation: Generation = UNICAST3, **settings: float | str) -> None:
        self.state: Connections = connections(generation, **settings)
        self.acks = Acks(self.state)
        self.tombs = Tombstones(self.state)
        self.resync = Resync(self.state)
        self.receivers = Receivers(
            self.state, Lifetimes(self.state), self.acks, self.tombs, self.resync
        )
        reports = generation.reports(self.state, self.acks)
        self.incoming = Incoming(
            self.state, self.receivers, self.acks, reports, self.tombs, self.resync
        )

    def open(self, now: float = 0.0) -> ReceiverEntry:
        return self.receivers.open(PEER, CONN, 0, now)

    def take(self, lo: int, *payloads: bytes, now: float = 0.0, **fields: int) -> None:
        self.incoming.on_data(*data(self.state, lo, *payloads, **fields), now)

    def look(self, now: float) -> None:
        """Do what is due."""
        for entry in self.state.looks.take_due(now):
            assert isinstance(entry, ReceiverEntry)
            self.incoming.visit(entry, now)

    def delivered(self) -> list[int]:
        return [delivery.lo for delivery in self.state.port.deliveries]


# -- Outgoing --------------------------------------------------------------------------------------


def test_batches_are_numbered_kept_and_sent_as_one_frame_each() -> None:
    part = Sending()
    part.send(b"1", b"2")
    part.send(b"3")
    first, second = sent(part.state)
    assert (first.lo, first.count, first.flags & FIRST) == (1, 2, FIRST)
    assert (second.lo, second.count, second.flags & FIRST) == (3, 1, 0)
    assert len(part.entry.window) == 3
    assert recorded(part.state) == ["conn", "sent", "sent"]


def test_what_is_in_a_window_is_repeated_though_the_rest_of_its_sending_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = Sending()
    with monkeypatch.context() as patch:
        patch.setattr(part.outgoing, "_emit", out_of_memory)
        with pytest.raises(MemoryError):
            part.send(b"1")
    assert sent(part.state) == []
    part.look()
    part.look()
    assert part.seqnos() == [1]


def test_a_batch_whose_look_could_not_be_set_is_not_numbered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = Sending()
    with monkeypatch.context() as patch:
        patch.setattr(Timers, "set_earlier", out_of_memory)
        with pytest.raises(MemoryError):
            part.send(b"1")
    part.send(b"1")
    assert part.seqnos() == [1]
    part.look()
    part.look()
    assert part.seqnos() == [1]


def out_of_memory(*_rest: object, **_named: object) -> None:
    raise MemoryError


def test_room_is_what_the_window_of_a_peer_has_left() -> None:
    part = Sending(window_messages=4)
    assert part.outgoing.room(PEER)[0] == 4
    part.send(b"1", b"2", b"3")
    assert part.outgoing.room(PEER)[0] == 1


def test_messages_to_self_need_no_window_but_an_application_that_listens() -> None:
    part = Sending()
    assert part.outgoing.room(ME) == (UNLIMITED, UNLIMITED)
    part.send(b"1", b"2", to=ME)
    assert part.outgoing.sent_to_self() == (1, 2)
    assert [delivery.hi for delivery in part.state.port.deliveries] == [2]
    assert sent(part.state) == []

    part.state.is_consuming = False
    assert part.outgoing.room(ME) == (0, 0)


def test_a_batch_that_is_sent_again_differs_in_its_transmission_only() -> None:
    part = Sending()
    part.send(b"1")
    (before,) = sent(part.state)
    oldest = part.entry.window.oldest()
    assert oldest is not None
    part.outgoing.resend(part.entry, oldest, 1.0)
    (again,) = sent(part.state)
    assert again.transmission == 1
    assert again._replace(transmission=0, check=before.check) == before


# -- Feedback --------------------------------------------------------------------------------------


def test_an_ack_purges_and_wakes_the_outbox() -> None:
    part = Sending()
    part.send(b"1", b"2")
    part.feedback.on_ack(control(part.state, wire.ACK, 2, stamp=1)[0], 0.1)
    assert (part.entry.window.low, part.entry.established) == (2, True)
    assert part.state.port.woken == [PEER]


@pytest.mark.parametrize(
    ("conn", "stamp", "reason"),
    [(2, 9, "ack-other-connection"), (1, 4, "ack-old-stamp"), (1, 5, "ack-old-stamp")],
)
def test_an_ack_that_is_not_believed_changes_nothing(conn: int, stamp: int, reason: str) -> None:
    part = Sending()
    part.send(b"1", b"2")
    part.entry.last_stamp, part.entry.last_stamp_at = 5, 0.0
    part.feedback.on_ack(control(part.state, wire.ACK, 2, conn=conn, stamp=stamp)[0], 0.1)
    assert part.entry.window.low == 0
    assert part.state.port.drops == {reason: 1}


def test_after_a_silence_longer_than_any_way_every_stamp_is_new() -> None:
    """The peer acked 2**31 times to others meanwhile: its stamp now looks older."""
    part = Sending()
    part.send(b"1", b"2")
    part.feedback.on_ack(control(part.state, wire.ACK, 1, stamp=5)[0], 0.0)
    late, old = part.feedback._longest_way(), 5 + (1 << 31)
    part.feedback.on_ack(control(part.state, wire.ACK, 2, stamp=old)[0], late)
    assert part.entry.window.low == 1
    part.feedback.on_ack(control(part.state, wire.ACK, 2, stamp=old)[0], late + 0.1)
    assert part.entry.window.low == 2


def test_an_ack_of_what_was_not_sent_is_bad() -> None:
    part = Sending()
    part.send(b"1")
    with pytest.raises(BadFrame, match="ack-beyond-sent"):
        part.feedback.on_ack(control(part.state, wire.ACK, 2, stamp=1)[0], 0.1)


def test_a_request_is_answered_and_what_is_purged_is_said_to_be_gone() -> None:
    part = Sending()
    for payload in (b"1", b"2", b"3"):
        part.send(payload)
    part.feedback.on_ack(control(part.state, wire.ACK, 1, stamp=1)[0], 0.1)
    sent(part.state)
    head, body = control(part.state, wire.XMIT_REQ, 3, ranges=[(1, 1), (3, 3)])
    part.feedback.on_request(head, body, 0.2)
    assert [(head.kind, head.lo) for head in sent(part.state)] == [
        (wire.DATA, 3),
        (wire.RESET_TO, 1),
    ]


@on_every_generation
def test_only_unicast2_takes_reports(generation: Generation) -> None:
    part = Sending(generation)
    part.send(b"1")
    head = control(part.state, wire.STABLE, 1, mark=1, stamp=1)[0]
    if generation is UNICAST2:
        part.feedback.on_stable(head, 0.1)
        assert part.entry.window.low == 1
    else:
        with pytest.raises(BadFrame, match="kind"):
            part.feedback.on_stable(head, 0.1)


# -- Repairs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "again"),
    [(UNICAST1, [1, 2, 3]), (UNICAST2, [1]), (UNICAST3, [3]), (UNICAST4, [3])],
)
def test_a_look_that_finds_nothing_changed_repeats_what_the_generation_says(
    generation: Generation, again: list[int]
) -> None:
    """In `compatible` the first look remembers, and the second repeats."""
    part = Sending(generation)
    for payload in (b"1", b"2", b"3"):
        part.send(payload)
    sent(part.state)
    part.look()
    assert part.seqnos() == []
    part.look()
    assert part.seqnos() == again
    assert part.state.looks.next_deadline() < inf


def test_nothing_is_looked_at_once_all_is_acked() -> None:
    part = Sending()
    part.send(b"1")
    part.entry.window.ack(1)
    part.repairs.visit(part.entry, part.entry.look_due)
    assert part.entry.look_due == inf


@pytest.mark.parametrize(
    ("generation", "again"),
    [(UNICAST1, [1, 2]), (UNICAST2, [1, 3]), (UNICAST3, [1]), (UNICAST4, [1])],
)
def test_a_receiver_without_a_window_gets_a_start_with_its_own_stamp(
    generation: Generation, again: list[int]
) -> None:
    """It has seen 2 of 1, 2, 3."""
    part = Sending(generation)
    for payload in (b"1", b"2", b"3"):
        part.send(payload)
    sent(part.state)
    part.repairs.answer_sfs(part.entry, control(part.state, wire.SFS, 2, stamp=9)[0], 0.1)
    heads = sent(part.state)
    assert [head.lo for head in heads] == again
    assert (heads[0].flags & FIRST, heads[0].stamp) == (FIRST, 9)


# -- Senders and Lifetimes -------------------------------------------------------------------------


def test_a_sender_that_is_removed_gives_up_what_is_unacked_and_leaves_no_timer() -> None:
    part = Sending()
    part.send(b"1", b"2")
    entry = part.entry
    part.senders.remove(entry, "forgot", 0.1)
    assert part.state.senders == {}
    assert part.state.port.closed == [PEER]
    assert [(one.count, one.why) for one in part.state.port.abandoned] == [(2, "forgot")]
    assert part.state.looks.due(entry) == part.state.expiries.due(entry) == inf


@on_every_generation
def test_a_view_without_the_peer_closes_or_ends_its_sender(generation: Generation) -> None:
    part = Sending(generation)
    part.send(b"1")
    entry = part.entry
    sent(part.state)
    part.state.members = frozenset({ME})
    part.senders.on_view(part.state.members, 1.0)
    if generation.closes_at_once:
        assert [head.kind for head in sent(part.state)] == [wire.CLOSE]
        assert part.state.senders == {}
    else:
        assert entry.state is State.CLOSING
        part.senders.on_view(frozenset({ME, PEER}), 2.0)
        assert entry.state is State.OPEN


@pytest.mark.parametrize(("is_member", "is_aged"), [(False, True), (True, False)])
def test_a_silent_peer_ages_unless_a_view_has_it(is_member: bool, is_aged: bool) -> None:
    part = Sending(max_retransmit_time=10.0)
    part.send(b"1", now=1.0)
    part.state.members = frozenset({PEER}) if is_member else frozenset()
    assert not part.lifetimes.is_aged(part.entry, 10.9)
    assert part.lifetimes.is_aged(part.entry, 11.0) is is_aged


def test_a_removal_that_failed_half_way_is_told_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = Sending()
    part.send(b"1", b"2")
    entry = part.entry
    with monkeypatch.context() as patch:
        patch.setattr(part.lifetimes, "record", out_of_memory)
        with pytest.raises(MemoryError):
            part.senders.expire(entry, 1000.0)
    part.senders.expire(entry, 1001.0)
    port = part.state.port
    assert (port.closed, [one.count for one in port.abandoned]) == ([PEER], [2])
    assert part.state.expiries.next_deadline() == inf


def test_a_window_whose_removal_failed_half_way_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = Receiving(conn_expiry_timeout=1.0)
    entry = part.open()
    part.take(1, b"1")
    part.receivers.close(entry, "close", 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(part.receivers._lifetimes, "record", out_of_memory)
        with pytest.raises(MemoryError):
            part.receivers.expire(entry, 1000.0)
    part.receivers.expire(entry, 1001.0)
    assert part.tombs.conn(PEER, 1001.0) == CONN


def test_an_entry_is_idle_once_it_was_unused_for_as_long_as_is_set() -> None:
    part = Sending(conn_expiry_timeout=10.0, max_retransmit_time=0.0)
    part.send(b"1", now=1.0)
    assert part.state.expiries.due(part.entry) == 11.0
    assert not part.lifetimes.is_idle(part.entry, 10.9)
    assert part.lifetimes.is_idle(part.entry, 11.0)


def test_what_a_member_of_the_group_owes_is_waited_for() -> None:
    part = Sending(conn_expiry_timeout=10.0)
    part.send(b"1", now=1.0)
    part.state.members = frozenset({PEER})
    part.state.is_grouped = True
    assert not part.lifetimes.is_idle(part.entry, 1e6)
    part.entry.window.ack(1)
    assert part.lifetimes.is_idle(part.entry, 1e6)


# -- Incoming and Receivers ------------------------------------------------------------------------


def test_what_is_next_is_delivered_and_the_rest_waits_for_it() -> None:
    part = Receiving()
    part.open()
    part.take(2, b"2")
    assert part.delivered() == []
    part.take(1, b"1")
    assert part.delivered() == [1, 2]


def test_a_frame_without_a_window_is_kept_until_the_first_one_comes() -> None:
    part = Receiving()
    part.take(2, b"2")
    assert dict(part.resync.cached_counts()) == {PEER: 1}
    part.take(1, b"1")
    assert part.delivered() == [1, 2]
    assert dict(part.resync.cached_counts()) == {}


def test_a_window_that_goes_hands_up_acks_and_is_remembered() -> None:
    part = Receiving()
    entry = part.open()
    part.take(1, b"1", b"2")
    part.receivers.remove(entry, "closed", 1.0)
    assert [(head.kind, head.lo) for head in sent(part.state)] == [(wire.ACK, 2)]
    assert part.tombs.conn(PEER, 1.0) == CONN
    assert part.tombs.delivered(PEER, CONN) == (2, [])
    assert part.open(2.0).window.delivered == 2


def test_a_window_that_went_owes_no_ack_at_the_end_of_the_turn() -> None:
    part = Receiving(UNICAST1)
    entry = part.open()
    part.take(1, b"1")
    part.receivers.remove(entry, "closed", 0.0)
    sent(part.state)
    part.acks.finish_turn(0.0)
    assert sent(part.state) == []


def test_a_late_first_frame_of_a_removed_connection_is_no_answer() -> None:
    part = Receiving()
    part.receivers.remove(part.open(), "closed", 0.0)
    part.take(1, b"1")
    assert part.state.receivers == {}
    stamp = part.state.next_stamp()
    part.take(1, b"1", stamp=stamp)
    assert PEER in part.state.receivers


def test_a_tombstone_ends_but_still_says_what_was_delivered() -> None:
    part = Receiving(conn_close_timeout=5.0)
    part.open()
    part.take(1, b"1")
    part.receivers.remove(part.state.receivers[PEER], "closed", 1.0)
    assert part.tombs.conn(PEER, 5.9) == CONN
    assert part.tombs.conn(PEER, 6.0) == 0
    assert part.tombs.delivered(PEER, CONN) == (1, [])


@pytest.mark.parametrize(
    ("before", "after", "is_known"),
    [(0.0, 9.0, True), (2.0, 9.0, True), (9.0, 2.0, False), (2.0, 0.0, True)],
)
def test_a_tombstone_lives_for_as_long_as_is_set_now(
    before: float, after: float, *, is_known: bool
) -> None:
    """An old copy of a first frame is under way for five seconds, and the setting is changed."""
    part = Receiving(conn_close_timeout=before)
    part.receivers.remove(part.open(), "closed", 0.0)
    part.state.config = changed(part.state.config, "conn_close_timeout", after)
    assert part.tombs.conn(PEER, 5.0) == (CONN if is_known else 0)


def bury(part: Receiving, peer: int) -> None:
    part.receivers.open(peer, CONN, 0, 0.0)
    part.receivers.remove(part.state.receivers[peer], "closed", 0.0)


@pytest.mark.parametrize("is_past", [False, True])
def test_strangers_take_the_places_of_strangers_alone(*, is_past: bool) -> None:
    """5,000 of them had every member forgotten: a late frame opened again what was over."""
    part = Receiving()
    part.state.is_grouped = True
    for members in ([PEER], [] if is_past else [PEER]):
        part.state.port.contacts.on_view([Address(peer, "member") for peer in members])
        part.state.members = frozenset(members)
    bury(part, PEER)
    strangers = range(10_000, 10_000 + MAX_PEERS + 1)
    for stranger in strangers:
        bury(part, stranger)
    assert part.tombs.conn(PEER, 0.0) == CONN
    remembered = [one for one in strangers if part.tombs.conn(one, 0.0)]
    assert remembered == list(strangers[-MAX_STRANGERS:])


def test_without_a_group_nobody_is_a_stranger() -> None:
    part = Receiving()
    for peer in range(1, MAX_PEERS + 12):
        bury(part, peer)
    assert (part.tombs.conn(11, 0.0), part.tombs.conn(12, 0.0)) == (0, CONN)


# -- Acks and reports ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "stalled"), [(UNICAST1, 2), (UNICAST2, 0), (UNICAST3, 2), (UNICAST4, 0)]
)
def test_an_ack_says_what_was_received_or_what_was_delivered(
    generation: Generation, stalled: int
) -> None:
    part = Receiving(generation)
    entry = part.open()
    part.state.is_consuming = False
    part.take(1, b"1", b"2")
    assert part.acks.value(entry) == stalled


def test_acks_of_one_turn_are_one() -> None:
    part = Receiving(UNICAST1)
    part.open()
    for seqno in (1, 2, 3):
        part.take(seqno, b"x")
    assert sent(part.state) == []
    part.acks.finish_turn(0.0)
    assert [head.lo for head in sent(part.state)] == [3]


def test_an_ack_that_failed_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Receiving()
    entries = [part.receivers.open(peer, CONN, 0, 0.0) for peer in (5, 6, 7)]
    for entry in entries:
        part.acks.soon(entry)
    with monkeypatch.context() as patch:
        patch.setattr(part.acks, "send", out_of_memory)
        with pytest.raises(MemoryError):
            part.acks.finish_turn(0.0)
    part.acks.finish_turn(0.1)
    assert [head.dest for head in sent(part.state)] == [6, 7]
    for entry in entries:
        part.acks.soon(entry)
    part.acks.finish_turn(0.2)
    assert [head.dest for head in sent(part.state)] == [5, 6, 7]


def test_what_could_not_be_handed_up_comes_later_in_order_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of four, the application has 1 when 2 fails: 2, 3 and what comes next wait for a look."""
    part = Receiving()
    part.open()
    part.state.is_consuming = False
    for lo in (1, 2, 3):
        part.take(lo, b"x")
    with monkeypatch.context() as patch:
        patch.setattr(receivers, "hand_up", failing_at(2, receivers.hand_up))
        with pytest.raises(MemoryError):
            part.incoming.set_consuming(True, 1.0)
    assert part.delivered() == [1]
    part.look(9.0)
    part.take(4, b"x", now=9.0)
    assert part.delivered() == [1, 2, 3, 4]
    assert recorded(part.state).count("delivered") == 4


def test_what_failed_when_it_came_is_handed_up_though_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = Receiving()
    entry = part.open()
    with monkeypatch.context() as patch:
        patch.setattr(incoming, "hand_up", out_of_memory)
        with pytest.raises(MemoryError):
            part.take(1, b"x")
    part.look(9.0)
    assert part.delivered() == [1]
    assert (entry.window.delivered, entry.window.bytes) == (1, 0)


def test_an_oob_message_that_failed_is_not_delivered_by_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for lo in (1, 2):
        part = Receiving()
        part.open()
        with monkeypatch.context() as patch:
            for module in (incoming, windowed):
                patch.setattr(module, "hand_up", out_of_memory)
            with pytest.raises(MemoryError):
                part.take(lo, b"x", flags=OOB)
        part.look(9.0)
        part.take(1, b"x", now=9.0)
        assert part.delivered() == [*range(1, lo + 1)]


def test_one_window_that_fails_holds_no_other_back(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Receiving()
    part.state.is_consuming = False
    for peer in (5, 6):
        part.receivers.open(peer, CONN, 0, 0.0)
        head, body = data(part.state, 1, b"x")
        part.incoming.on_data(head._replace(source=peer), body, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(receivers, "hand_up", out_of_memory)
        with pytest.raises(MemoryError):
            part.incoming.set_consuming(True, 1.0)
    assert part.state.port.woken == [part.state.port.me]
    part.look(9.0)
    assert part.delivered() == [1, 1]


def failing_at(seqno: int, real: Callable[..., None]) -> Callable[..., None]:
    """A function that hands up, and has no memory for one message."""

    def hand_up(port: Any, arrival: Any, lo: int, *rest: Any) -> None:
        if lo == seqno:
            raise MemoryError
        real(port, arrival, lo, *rest)

    return hand_up


def test_an_ack_waits_for_the_threshold_or_for_its_moment() -> None:
    part = Receiving(UNICAST3, ack_threshold=2)
    entry = part.open()
    part.take(1, b"1", now=0.1)
    assert (part.acks.wanted, entry.ack_due) == ([], 0.5)
    part.take(2, b"2", now=0.2)
    assert part.acks.wanted == [entry]
    part.acks.finish_turn(0.2)
    assert entry.ack_due == inf


def test_unicast2_acks_the_first_message_and_reports_when_it_is_quiet() -> None:
    part = Receiving(UNICAST2)
    entry = part.open()
    part.take(1, b"1", now=0.1)
    part.take(2, b"2", now=0.2)
    assert [(head.kind, head.lo) for head in sent(part.state)] == [(wire.ACK, 1)]
    part.incoming.visit(entry, entry.report_due)
    assert [(head.kind, head.lo) for head in sent(part.state)] == [(wire.STABLE, 2)]
    assert entry.report_due == inf


def test_a_repeated_ack_tells_that_it_is_one() -> None:
    """Beyond what a frame can count it begins again in the middle."""
    acks = AckState()
    assert [acks.note_sent(5, 0.0), acks.note_sent(5, 1.0), acks.note_sent(6, 2.0)] == [0, 1, 0]
    acks.repeats = 255
    assert [acks.note_sent(6, 3.0), acks.note_sent(6, 4.0)] == [128, 129]


# -- Asking ----------------------------------------------------------------------------------------


def test_what_is_missing_at_two_looks_is_asked_for() -> None:
    part = Receiving()
    asking = Asking(part.state)
    entry = part.open()
    part.take(3, b"3")
    asking.look(entry, entry.look_due)
    assert sent(part.state) == []
    asking.look(entry, entry.look_due)
    (request,) = sent(part.state)
    assert (request.kind, request.conn, request.lo) == (wire.XMIT_REQ, CONN, 2)


@pytest.mark.parametrize(("ranges", "asked"), [(1, 1), (3, 3), (4, 3)])
def test_a_request_to_a_stranger_is_no_larger_than_may_leave(ranges: int, asked: int) -> None:
    """Three ranges fit: of more, the first three are asked for, and the rest at a later look."""
    part = Receiving()
    part.state.is_grouped = True
    entry = part.open()
    for number in range(1, ranges + 1):
        part.take(2 * number, b"x")
    part.state.port.contacts.heard(PEER, wire.HEAD_SIZE + 3 * wire.RANGE_STRUCT.size)
    for now in (1.0, 2.0):
        Asking(part.state).look(entry, now)
    ((_dest, head, body),) = part.state.port.frames
    assert len(head + body) == wire.HEAD_SIZE + asked * wire.RANGE_STRUCT.size
    assert recorded(part.state).count("requested") == 1


def test_a_stranger_is_told_once_while_it_is_asked_for_more() -> None:
    """Until something changes, the request is the answer: both would be more than it sent."""
    part = Receiving()
    part.state.is_grouped = True
    entry = part.open()
    for lo in (1, 3):
        part.take(lo, b"x")
    told = []
    for now in (1.0, 2.0):
        part.acks.send_paced(entry, now)
        told.append([head.kind for head in sent(part.state)])
    part.take(2, b"x")
    part.acks.send_paced(entry, 3.0)
    told.append([head.lo for head in sent(part.state)])
    assert told == [[wire.ACK], [], [3]]


def test_unicast_does_not_ask() -> None:
    part = Receiving(UNICAST1)
    entry = part.open()
    part.take(3, b"3")
    assert entry.look_due == inf


@pytest.mark.parametrize(
    ("lo", "reason"), [(1, "duplicate"), (6, "beyond-window"), (3, "duplicate-or-no-room")]
)
def test_a_refused_frame_is_counted_by_its_reason(lo: int, reason: str) -> None:
    state = connections()
    window: ReceiveWindow[object] = ReceiveWindow(1, 4, 1000)
    head, _body = data(state, lo, b"x")
    drop_refused(state.port, window, head)
    assert state.port.drops == {reason: 1}


@pytest.mark.parametrize(("owner", "step"), [(Asking, "look"), (Timers, "set_earlier")])
def test_a_gap_whose_first_look_failed_is_noticed_with_the_next_frame(
    owner: type, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Receiving(fast=True)
    part.open()
    part.take(1, b"1")
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, out_of_memory)
        with pytest.raises(MemoryError):
            part.take(3, b"3")
    sent(part.state)
    part.take(3, b"3", now=1.0)
    part.look(2.0)
    assert wire.XMIT_REQ in {head.kind for head in sent(part.state)}


# -- Resync ----------------------------------------------------------------------------------------


def test_a_sender_is_asked_at_the_end_of_the_turn_unless_its_window_opened_in_it() -> None:
    for end, asked in ((lambda _part: None, [wire.SFS]), (Receiving.open, [])):
        _check_asked(end, asked)


def _check_asked(end: Callable[[Receiving], object], asked: list[int]) -> None:
    part = Receiving()
    part.take(2, b"2")
    end(part)
    part.resync.finish_turn(0.0)
    assert [head.kind for head in sent(part.state)] == asked


def test_a_question_that_failed_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Receiving()
    head, body = data(part.state, 2, b"2")
    for peer in (5, 6, 7):
        part.incoming.on_data(head._replace(source=peer), body, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(part.resync, "_send", out_of_memory)
        with pytest.raises(MemoryError):
            part.resync.finish_turn(0.0)
    part.resync.finish_turn(0.1)
    assert [head.dest for head in sent(part.state)] == [6, 7]
    part.incoming.on_data(head._replace(source=5), body, 0.2)
    part.resync.finish_turn(0.2)
    assert [head.dest for head in sent(part.state)] == [5]


def test_a_deferred_question_has_a_moment_and_a_window_cancels_it() -> None:
    part = Receiving(UNICAST3, sync="deferred", sync_min_interval=0.001)
    part.take(2, b"2", now=0.1)
    assert part.resync.wanted == []
    assert part.state.looks.next_deadline() == 0.5
    part.open(0.2)
    assert part.state.looks.next_deadline() == inf


def test_a_sender_that_fell_silent_is_forgotten() -> None:
    part = Receiving(max_retransmit_time=10.0)
    part.take(2, b"2", now=1.0)
    (sync,) = part.resync.wanted
    part.resync.expire(sync, 10.9)
    assert part.resync.knows(PEER)
    part.resync.expire(sync, 11.0)
    assert not part.resync.knows(PEER)
    assert part.state.expiries.next_deadline() == inf
