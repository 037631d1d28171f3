"""The parts of multicast that send, each alone: what is numbered, kept, purged and repeated."""

from __future__ import annotations

import pytest

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import DONT_LOOPBACK
from stormcast.node.protocols.events import Suspected
from stormcast.node.protocols.multicast import (
    MCAST,
    NAKACK2,
    Generation,
    HistoricalMulticast,
    outgoing,
)
from stormcast.node.protocols.multicast.feedback import Feedback
from stormcast.node.protocols.multicast.retention import UntilAcked
from stormcast.node.protocols.multicast.state import OWN, SLOW
from stormcast.node.protocols.windowed import unpack_arrival_untrusted
from tests.helpers.multicast import ME, OTHER, PEER, STRANGER, Parts


def feedback(parts: Parts) -> Feedback:
    return Feedback(parts.state, parts.outgoing, parts.retention, parts.asking, parts.baselines)


def all_delivered(parts: Parts) -> None:
    """Everyone else has what was sent."""
    assert isinstance(parts.retention, UntilAcked)
    for peer in (PEER, OTHER):
        parts.retention.acks.ack(peer, parts.state.own.high)


# -- Outgoing --------------------------------------------------------------------------------


def test_a_batch_is_numbered_sent_to_all_and_delivered_here_in_one_step() -> None:
    parts = Parts()
    parts.send(b"1", b"2")
    parts.send(b"3")
    assert [(head.dest, head.lo, head.count) for head in parts.sent()] == [(0, 1, 2), (0, 3, 1)]
    assert parts.delivered() == [(1, 2), (3, 3)]
    assert parts.state.own_delivered == parts.state.own.high == 3


def test_nothing_is_sent_before_the_first_view() -> None:
    parts = Parts(window_messages=5)
    assert parts.outgoing.room() == (5, 4 << 20)
    parts.state.view = None
    assert parts.outgoing.room() == (0, 0)


def test_own_messages_wait_in_order_for_the_application() -> None:
    """One that it never gets waits, too, behind one that it gets."""
    parts = Parts()
    parts.state.is_consuming = False
    parts.send(b"not for me", flags=DONT_LOOPBACK)
    assert parts.state.own_delivered == 1
    parts.send(b"for me")
    parts.send(b"not for me", flags=DONT_LOOPBACK)
    assert parts.state.own_delivered == 1
    parts.state.is_consuming = True
    parts.outgoing.deliver_held(1.0)
    assert parts.state.own_delivered == 3
    assert parts.delivered() == [(2, 2)]


def test_nothing_is_purged_that_was_not_delivered_here() -> None:
    parts = Parts()
    parts.state.is_consuming = False
    parts.send(b"1", b"2")
    parts.outgoing.purge(2, 1.0)
    assert parts.state.own.low == 0
    parts.state.is_consuming = True
    parts.outgoing.deliver_held(1.0)
    parts.outgoing.purge(2, 1.0)
    assert parts.state.own.low == 2
    assert parts.port.woken == [wire.GROUP]


@pytest.mark.parametrize("step", ["_emit", "_hand"])
def test_nothing_is_left_of_a_batch_that_could_not_be_sent(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one has its number, and it alone is recorded."""
    parts = Parts()
    with monkeypatch.context() as patch:
        patch.setattr(parts.outgoing, step, out_of_memory)
        with pytest.raises(MemoryError):
            parts.send(b"1", b"2")
    own = parts.state.own
    assert (own.high, own.bytes, len(list(own))) == (0, 0, 0)
    parts.send(b"3")
    assert [(head.lo, head.count) for head in parts.sent()] == [(1, 1)]
    assert parts.delivered() == [(1, 1)]
    assert parts.recorded() == ["sent", "delivered"]


def test_own_messages_that_could_not_be_handed_up_wait_on(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    parts.state.is_consuming = False
    parts.send(b"1")
    parts.send(b"2")
    parts.state.is_consuming = True
    with monkeypatch.context() as patch:
        patch.setattr(outgoing, "hand_to_self", out_of_memory)
        with pytest.raises(MemoryError):
            parts.outgoing.deliver_held(1.0)
    parts.send(b"3")
    assert parts.state.own_delivered == 0
    assert parts.outgoing.deliver_held(2.0) == 3
    assert parts.delivered() == [(1, 1), (2, 2), (3, 3)]


def out_of_memory(*_rest: object) -> None:
    raise MemoryError


def test_one_answer_serves_all_who_ask_at_about_the_same_time() -> None:
    parts = Parts()
    parts.send(b"1")
    parts.sent()
    (stored,) = parts.state.own.covering([(1, 1)])
    wait = parts.state.pacer.timing.min_wait
    for now in (1.0, 1.0 + 0.9 * wait, 1.0 + 1.1 * wait):
        parts.outgoing.resend(stored, PEER, now)
    assert [(head.dest, head.transmission) for head in parts.sent()] == [(0, 1), (0, 2)]


def test_who_asked_is_answered_alone_where_answers_are_not_multicast() -> None:
    parts = Parts(use_mcast_xmit=False)
    parts.send(b"1")
    parts.sent()
    (stored,) = parts.state.own.covering([(1, 1)])
    for peer in (PEER, OTHER):
        parts.outgoing.resend(stored, peer, 1.0)
    assert [head.dest for head in parts.sent()] == [PEER, OTHER]


def test_the_flaw_of_two_steps_sends_2_after_4() -> None:
    parts = Parts(MCAST, historical=HistoricalMulticast(split_send=True))
    for number in range(1, 6):
        parts.send(b"%d" % number)
    assert [head.lo for head in parts.sent()] == [1, 3, 4, 2, 5]


# -- Announcing -------------------------------------------------------------------------------


def test_the_highest_seqno_is_announced_after_a_silent_look() -> None:
    parts = Parts()
    parts.send(b"1", now=0.5)
    assert parts.state.timers.due((OWN, 0)) == 1.0
    parts.announcing.look(1.0)
    assert parts.sent(wire.HIGHEST_SEQNO) == []
    parts.announcing.look(2.0)
    (head,) = parts.sent(wire.HIGHEST_SEQNO)
    assert (head.lo, head.mark) == (1, 0)


@pytest.mark.parametrize(("generation", "times"), [(NAKACK2, 1), (MCAST, 9)])
def test_nakack2_announces_once_and_mcast_while_an_ack_is_missing(
    generation: Generation, times: int
) -> None:
    parts = Parts(generation)
    parts.send(b"1")
    for now in range(1, 11):
        parts.announcing.look(float(now))
    assert len(parts.sent(wire.HIGHEST_SEQNO)) == times


def test_what_is_purged_is_not_announced() -> None:
    parts = Parts(MCAST)
    parts.send(b"1")
    parts.announcing.look(1.0)
    parts.outgoing.purge(1, 1.5)
    parts.announcing.look(2.0)
    assert parts.sent(wire.HIGHEST_SEQNO) == []


def test_a_new_member_hears_an_announcement_that_was_made() -> None:
    parts = Parts()
    parts.send(b"1")
    for now in (1.0, 2.0, 3.0):
        parts.announcing.look(now)
    parts.announcing.restart(3.0)
    parts.announcing.look(4.0)
    assert len(parts.sent(wire.HIGHEST_SEQNO)) == 2


def test_nothing_is_announced_where_nothing_is_retransmitted() -> None:
    parts = Parts(xmit_interval=0.0)
    parts.send(b"1")
    assert parts.state.timers.next_deadline() == float("inf")


# -- Retention --------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [NAKACK2, MCAST])
def test_who_is_alone_keeps_what_a_digest_in_use_promises(generation: Generation) -> None:
    parts = Parts(generation, alone=True)
    parts.retention.members_changed()
    parts.state.is_frozen = True
    parts.send(b"1", b"2")
    assert parts.state.own.low == 0
    parts.state.is_frozen = False
    parts.outgoing.purge(parts.retention.delivered_here(), 1.0)
    assert parts.state.own.low == 2


def test_who_is_alone_keeps_nothing() -> None:
    parts = Parts(alone=True)
    parts.send(b"1", b"2")
    assert parts.state.own.low == 2


def test_until_stable_nothing_is_purged_and_an_ack_is_no_frame() -> None:
    parts = Parts()
    parts.send(b"1")
    assert parts.state.own.low == parts.retention.members_changed() == 0
    with pytest.raises(BadFrame, match="kind"):
        feedback(parts).on_ack(parts.control(wire.ACK, 1)[0], 1.0)


def test_until_acked_the_slowest_member_decides() -> None:
    parts = Parts(MCAST)
    parts.retention.members_changed()
    parts.send(b"1", b"2", b"3")
    feedback(parts).on_ack(parts.control(wire.ACK, 3)[0], 1.0)
    assert parts.state.own.low == 0
    feedback(parts).on_ack(parts.control(wire.ACK, 2, source=OTHER)[0], 1.0)
    assert parts.state.own.low == 2


def test_an_ack_of_a_stranger_or_of_what_was_not_sent_changes_nothing() -> None:
    parts = Parts(MCAST)
    parts.retention.members_changed()
    parts.send(b"1")
    assert parts.retention.on_ack(parts.control(wire.ACK, 1, source=STRANGER)[0]) == 0
    assert parts.port.drops == {"ack-stranger": 1}
    with pytest.raises(BadFrame, match="ack-beyond-sent"):
        parts.retention.on_ack(parts.control(wire.ACK, 2)[0])


def test_who_is_coming_is_waited_for_and_who_left_is_not() -> None:
    parts = Parts(MCAST)
    parts.retention.members_changed()
    parts.state.coming = frozenset({ME, PEER, STRANGER})
    parts.retention.members_coming()
    parts.send(b"1")
    all_delivered(parts)
    assert parts.retention.delivered_here() == 0
    parts.state.coming, parts.state.members = frozenset(), frozenset({ME, PEER})
    assert parts.retention.members_changed() == 1


# -- Slow members -----------------------------------------------------------------------------


def blocked() -> Parts:
    """A full window that PEER and OTHER have not acked, watched from 0 to 5."""
    parts = Parts(MCAST, window_messages=2, slow_member_timeout=5.0, ack_threshold=1)
    parts.retention.members_changed()
    parts.send(b"1", b"2")
    parts.port.waiting.add(wire.GROUP)
    parts.retention.on_blocked(0.0)
    assert parts.state.timers.due((SLOW, 0)) == 5.0
    parts.state.timers.cancel((SLOW, 0))
    return parts


def test_the_slowest_members_are_suspected() -> None:
    parts = blocked()
    feedback(parts).on_ack(parts.control(wire.ACK, 2)[0], 1.0)
    parts.retention.look_at_slow(5.0)
    (event,) = parts.port.events
    assert isinstance(event, Suspected)
    assert [member.short for member in event.members] == [OTHER]
    assert parts.state.timers.due((SLOW, 0)) == 10.0


def test_a_window_that_moved_is_watched_on_and_one_for_which_nothing_waits_is_not() -> None:
    parts = blocked()
    all_delivered(parts)
    parts.outgoing.purge(2, 1.0)
    parts.send(b"3", b"4")
    parts.retention.look_at_slow(5.0)
    assert parts.port.events == []
    assert parts.state.timers.due((SLOW, 0)) == 10.0
    parts.state.timers.cancel((SLOW, 0))
    parts.port.waiting.clear()
    parts.retention.look_at_slow(10.0)
    assert parts.state.timers.due((SLOW, 0)) == float("inf")


# -- Feedback ---------------------------------------------------------------------------------


def test_a_request_is_answered_with_batches_and_a_baseline_for_what_is_gone() -> None:
    parts = Parts()
    for number in (b"1", b"2", b"3"):
        parts.send(number)
    parts.outgoing.purge(1, 0.0)
    parts.sent()
    head, body = parts.control(wire.XMIT_REQ, 2, conn=ME, ranges=[(1, 2)])
    feedback(parts).on_request(head, body, 1.0)
    again, baseline = parts.sent()
    assert (again.kind, again.lo, again.transmission) == (wire.DATA, 2, 1)
    assert (baseline.kind, baseline.dest, baseline.mark, baseline.lo) == (wire.BASELINE, PEER, 1, 3)


def test_a_request_for_what_was_not_sent_or_of_a_stranger_is_refused() -> None:
    parts = Parts()
    parts.send(b"1")
    parts.sent()
    head, body = parts.control(wire.XMIT_REQ, 2, conn=ME, ranges=[(1, 2)])
    with pytest.raises(BadFrame, match="request-beyond-sent"):
        feedback(parts).on_request(head, body, 1.0)
    head, body = parts.control(wire.XMIT_REQ, 1, conn=ME, ranges=[(1, 1)], source=STRANGER)
    feedback(parts).on_request(head, body, 1.0)
    feedback(parts).on_baseline_request(parts.control(wire.BASELINE_REQ, source=STRANGER)[0])
    assert parts.port.drops == {"request-stranger": 2}
    assert parts.sent() == []


def test_who_kept_it_answers_for_another_member() -> None:
    parts = Parts(use_mcast_xmit_req=True)
    entry = parts.windows.open(OTHER, 0, "view", 0.0)
    for lo in (1, 2):
        arrival = unpack_arrival_untrusted(*parts.data(lo, b"x", source=OTHER))
        entry.window.add(lo, lo, len(arrival.body), arrival)
    parts.windows.deliver_ready(entry, 0.0)
    head, body = parts.control(wire.XMIT_REQ, 2, conn=OTHER, ranges=[(2, 2)])
    feedback(parts).on_request(head, body, 1.0)
    (again,) = parts.sent()
    assert (again.source, again.dest, again.lo, again.transmission) == (OTHER, PEER, 2, 1)
    head, body = parts.control(wire.XMIT_REQ, 2, conn=STRANGER, ranges=[(2, 2)])
    feedback(parts).on_request(head, body, 1.0)
    assert parts.port.drops == {"request-unknown-sender": 1}


def test_an_answer_to_a_question_repeats_it_and_is_final_only_to_a_member() -> None:
    parts = Parts()
    feedback(parts).on_baseline_request(parts.control(wire.BASELINE_REQ, stamp=5)[0])
    parts.state.coming = frozenset({STRANGER})
    feedback(parts).on_baseline_request(
        parts.control(wire.BASELINE_REQ, stamp=6, source=STRANGER)[0]
    )
    assert [(head.stamp, bool(head.flags)) for head in parts.sent()] == [(5, True), (6, False)]


def test_stability_purges_and_tells_what_is_missing() -> None:
    parts = Parts()
    parts.send(b"1", b"2")
    entry = parts.windows.open(PEER, 0, "view", 0.0)
    feedback(parts).on_stability(Digest({ME: (1, 9), PEER: (0, 3)}), 1.0)
    assert parts.state.own.low == 1
    assert entry.window.seen == 3
    assert parts.state.timers.due(("look", PEER)) == 2.0


def test_stability_beyond_any_window_is_refused() -> None:
    parts = Parts()
    entry = parts.windows.open(PEER, 0, "view", 0.0)
    most = entry.farthest()
    feedback(parts).on_stability(Digest({PEER: (0, most + 1)}), 1.0)
    assert parts.port.drops == {"stability-beyond-window": 1}
    assert entry.window.seen == 0
