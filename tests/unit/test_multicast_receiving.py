"""The parts of multicast that receive, each alone: windows, requests, acks, early frames."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST, OOB
from stormcast.node.core.wire import Head
from stormcast.node.protocols import windowed
from stormcast.node.protocols.multicast import MCAST, HistoricalMulticast, incoming, windows
from stormcast.node.protocols.multicast.alarms import Alarms
from stormcast.node.protocols.multicast.early import Early
from stormcast.node.protocols.multicast.inbound import MAX_AHEAD, Inbound
from stormcast.node.protocols.multicast.incoming import Incoming
from stormcast.node.protocols.multicast.state import ACK, ALARM, HAND_UP, LOOK, SYNC
from tests.helpers.multicast import ME, OTHER, PEER, STRANGER, Parts


class Receiver(Parts):
    """With what takes frames, too; frames that come too early are taken by nobody."""

    def __init__(self, *generation: object, **settings: object) -> None:
        super().__init__(*generation, **settings)  # type: ignore[arg-type]
        self.taken: list[int] = []
        self.early = Early(self.state, self._take)
        self.incoming = Incoming(
            self.state, self.windows, self.asking, self.baselines, self.reports, self.early
        )

    def _take(self, head: Head, _body: bytes, _now: float) -> None:
        if head.lo == 13:
            raise BadFrame("unlucky")
        self.taken.append(head.lo)

    def open(self, offset: int = 0, now: float = 0.0) -> Inbound:
        return self.windows.open(PEER, offset, "view", now)

    def look(self, now: float) -> None:
        """Hand up what is due."""
        for what, _peer in self.state.timers.take_due(now):
            if what == HAND_UP:
                self.incoming.deliver_untaken(now)

    def data_comes(self, lo: int, *payloads: bytes, now: float = 0.0, **fields: int) -> None:
        self.incoming.on_data(*self.data(lo, *payloads, **fields), now)


def out_of_memory(*_rest: object) -> None:
    raise MemoryError


# -- Windows ----------------------------------------------------------------------------------


def test_a_window_that_is_opened_again_begins_above_what_was_delivered() -> None:
    """In order up to 1, and 3 out of band: neither comes twice, whatever a digest says (G2)."""
    parts = Receiver()
    entry = parts.open()
    parts.data_comes(1, b"1")
    parts.data_comes(3, b"3", flags=OOB)
    assert parts.delivered() == [(1, 1), (3, 3)]
    parts.windows.remove(entry, "view", 1.0)
    again = parts.open(0)
    assert (again.window.delivered, again.epoch) == (1, 2)
    parts.data_comes(1, b"1", b"2", b"3")
    assert parts.delivered() == [(2, 2)]
    assert again.window.delivered == 3


def test_a_window_that_holds_places_only_is_gauged() -> None:
    """Places have no bytes; a window with nothing but these waits behind a gap all the same."""
    parts = Receiver()
    parts.open()
    parts.state.gauge(0.0)
    assert "gauge" not in parts.recorded()
    parts.data_comes(2, b"2", flags=OOB)
    parts.state.gauge(0.0)
    assert "gauge" in parts.recorded()


def test_a_removed_window_leaves_no_timer() -> None:
    parts = Receiver(MCAST)
    entry = parts.open(5)
    parts.data_comes(7, b"7")
    assert parts.state.timers.next_deadline() < inf
    parts.windows.remove(entry, "view", 1.0)
    assert parts.state.timers.next_deadline() == inf


@pytest.mark.parametrize(
    ("is_synced", "is_of_this_view", "names"),
    [(False, True, []), (True, True, ["alarm"]), (True, False, [])],
)
def test_what_a_sender_purged_is_lost_only_to_a_complete_window_of_its_view(
    is_synced: bool, is_of_this_view: bool, names: list[str]
) -> None:
    """In another view it may have been without this member, and purged what was not for it."""
    parts = Receiver()
    entry = parts.open()
    parts.data_comes(3, b"3")
    entry.is_synced = is_synced
    tag = parts.state.view_tag = 7
    parts.windows.skip_to(entry, 2, tag if is_of_this_view else 8, 1.0)
    assert parts.delivered() == [(3, 3)]
    assert [name for name in parts.recorded() if name in {"alarm", "skipped"}] == [
        *names,
        "skipped",
    ]


def test_a_window_moves_past_its_end_only_when_the_application_has_all_of_it() -> None:
    parts = Receiver(window_messages=10)
    entry = parts.open()
    parts.data_comes(1, b"1")
    parts.state.is_consuming = False
    parts.data_comes(2, b"2")
    parts.windows.skip_to(entry, 50, 0, 1.0)
    assert (entry.window.delivered, entry.window.deliverable) == (1, 11)
    parts.state.is_consuming = True
    parts.windows.skip_to(entry, 50, 0, 2.0)
    assert entry.window.delivered == 50
    assert parts.delivered() == [(1, 1), (2, 2)]


# -- Incoming ---------------------------------------------------------------------------------


def test_in_order_at_once_and_each_once() -> None:
    parts = Receiver()
    parts.open()
    parts.data_comes(2, b"2")
    parts.data_comes(1, b"1")
    parts.data_comes(1, b"1", b"2", b"3")
    assert parts.delivered() == [(1, 1), (2, 2), (3, 3)]
    parts.data_comes(3, b"3")
    assert parts.port.drops == {"duplicate": 1}


def test_a_complete_window_refuses_what_its_sender_cannot_have_sent_and_asks() -> None:
    parts = Receiver(window_messages=10)
    entry = parts.open()
    entry.is_synced = True
    parts.data_comes(20 + MAX_AHEAD, b"x")
    with pytest.raises(BadFrame, match="beyond-window"):
        parts.data_comes(21 + MAX_AHEAD, b"x", now=1.0)
    with pytest.raises(BadFrame, match="highest-beyond-window"):
        parts.incoming.on_highest(parts.control(wire.HIGHEST_SEQNO, 99, mark=21)[0], 1.1)
    assert len(parts.sent(wire.BASELINE_REQ)) == 1


def test_a_batch_with_a_connection_is_none_of_multicast() -> None:
    parts = Receiver()
    parts.open()
    with pytest.raises(BadFrame, match="seqno"):
        parts.data_comes(1, b"1", conn=4)


def test_an_announcement_shows_a_last_message_that_was_lost() -> None:
    parts = Receiver()
    entry = parts.open()
    parts.incoming.on_highest(parts.control(wire.HIGHEST_SEQNO, 2)[0], 0.5)
    assert entry.window.missing(9) == [(1, 2)]
    assert parts.state.timers.due((LOOK, PEER)) == 1.0
    with pytest.raises(BadFrame, match="highest-order"):
        parts.incoming.on_highest(parts.control(wire.HIGHEST_SEQNO, 2, mark=3)[0], 0.5)
    parts.incoming.on_highest(parts.control(wire.HIGHEST_SEQNO, 2, source=OTHER)[0], 0.5)
    assert parts.port.drops == {"highest-no-window": 1}


def test_what_others_may_ask_for_is_kept_until_its_sender_purged_it() -> None:
    parts = Receiver(xmit_from_random_member=True)
    entry = parts.open()
    for lo in (1, 2, 3):
        parts.data_comes(lo, b"x")
    assert len(entry.kept) == 3
    parts.data_comes(4, b"x", mark=2)
    assert [arrival.head.lo for arrival in entry.kept] == [3, 4]


def test_what_waited_for_the_application_is_delivered_and_counted() -> None:
    parts = Receiver()
    parts.open()
    parts.state.is_consuming = False
    parts.data_comes(1, b"1", b"2")
    assert parts.delivered() == []
    parts.state.is_consuming = True
    assert parts.incoming.deliver_untaken(1.0) == 2
    assert parts.delivered() == [(1, 2)]


@pytest.mark.parametrize("keeps", [False, True])
def test_what_could_not_be_handed_up_comes_later_in_order_and_once(
    monkeypatch: pytest.MonkeyPatch, *, keeps: bool
) -> None:
    """Of four, the application has 1 when 2 fails: 2, 3 and what comes next wait."""
    parts = Receiver(xmit_from_random_member=keeps)
    entry = parts.open()
    parts.state.is_consuming = False
    for lo in (1, 2, 3):
        parts.data_comes(lo, b"x")
    parts.state.is_consuming = True
    with monkeypatch.context() as patch:
        patch.setattr(windows, "hand_up", failing_at(2, windows.hand_up))
        with pytest.raises(MemoryError):
            parts.incoming.deliver_untaken(1.0)
    assert parts.delivered() == [(1, 1)]
    parts.look(9.0)
    parts.data_comes(4, b"x", now=9.0)
    assert parts.delivered() == [(2, 2), (3, 3), (4, 4)]
    assert parts.recorded().count("delivered") == 4
    assert [arrival.head.lo for arrival in entry.kept] == ([1, 2, 3, 4] if keeps else [])


def test_what_failed_when_it_came_is_handed_up_though_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Receiver(xmit_from_random_member=True)
    entry = parts.open()
    with monkeypatch.context() as patch:
        patch.setattr(incoming, "hand_up", out_of_memory)
        with pytest.raises(MemoryError):
            parts.data_comes(1, b"x")
    assert entry.window.delivered == 0
    parts.look(9.0)
    assert parts.delivered() == [(1, 1)]
    assert (entry.window.delivered, entry.window.bytes, len(entry.kept)) == (1, 0, 1)


@pytest.mark.parametrize("step", ["hand_up", "_hand_up_early"])
@pytest.mark.parametrize("is_stalled", [False, True])
def test_an_oob_message_that_failed_is_not_delivered_by_its_place(
    step: str, monkeypatch: pytest.MonkeyPatch, *, is_stalled: bool
) -> None:
    """2 overtakes 1, as it comes or when a stall is over, and fails: it overtakes 1 later."""
    parts = Receiver()
    parts.open()
    if is_stalled:
        parts.state.is_consuming = False
        parts.data_comes(2, b"x", flags=OOB)
        parts.state.is_consuming = True
    with monkeypatch.context() as patch:
        patch.setattr(windowed, step, out_of_memory)
        with pytest.raises(MemoryError):
            parts.incoming.deliver_untaken(0.0) if is_stalled else parts.data_comes(
                2, b"x", flags=OOB
            )
    parts.incoming.deliver_untaken(9.0)
    assert parts.delivered() == [(2, 2)]
    parts.data_comes(1, b"x", now=9.0)
    assert parts.delivered() == [(1, 1)]


def failing_at(seqno: int, real: Callable[..., None]) -> Callable[..., None]:
    """A function that hands up, and has no memory for one message."""

    def hand_up(port: Any, arrival: Any, lo: int, *rest: Any) -> None:
        if lo == seqno:
            raise MemoryError
        real(port, arrival, lo, *rest)

    return hand_up


# -- Reports ----------------------------------------------------------------------------------


def test_nakack2_says_nothing() -> None:
    parts = Receiver()
    parts.open(5)
    parts.data_comes(6, b"x")
    parts.reports.finish_turn(1.0)
    assert parts.reports.wanted == parts.sent() == []
    assert parts.reports.bounds() == {}


def test_mcast_acks_at_the_threshold_once_a_turn_and_else_at_the_tick() -> None:
    parts = Receiver(MCAST, ack_threshold=3)
    parts.open()
    parts.data_comes(1, b"1", b"2", now=0.2)
    assert parts.reports.wanted == []
    assert parts.state.timers.due((ACK, PEER)) == 1.0
    for lo in (3, 4):
        parts.data_comes(lo, b"x", now=0.3)
    parts.reports.finish_turn(0.3)
    assert [head.lo for head in parts.sent(wire.ACK)] == [4]
    assert parts.state.timers.due((ACK, PEER)) == inf
    assert parts.reports.wanted == []


def test_an_ack_that_failed_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Receiver(MCAST, ack_threshold=1)
    for peer in (PEER, OTHER):
        parts.windows.open(peer, 0, "view", 0.0)
        parts.data_comes(1, b"1", source=peer)
    with monkeypatch.context() as patch:
        patch.setattr(parts.reports, "_send", out_of_memory)
        with pytest.raises(MemoryError):
            parts.reports.finish_turn(0.0)
    parts.reports.finish_turn(0.1)
    assert [head.dest for head in parts.sent(wire.ACK)] == [OTHER]
    for peer in (PEER, OTHER):
        parts.data_comes(2, b"2", source=peer, now=0.2)
    parts.reports.finish_turn(0.2)
    assert [head.dest for head in parts.sent(wire.ACK)] == [PEER, OTHER]


def test_an_ack_repeated_is_another_transmission() -> None:
    parts = Receiver(MCAST)
    entry = parts.open()
    parts.data_comes(1, b"1")
    for now in (1.0, 2.0):
        parts.reports.soon(entry)
        parts.reports.finish_turn(now)
    assert [(head.lo, head.transmission) for head in parts.sent(wire.ACK)] == [(1, 0), (1, 1)]


def test_duplicates_announcements_and_windows_that_begin_above_0_are_acked() -> None:
    parts = Receiver(MCAST)
    entry = parts.open()
    assert parts.state.timers.due((ACK, PEER)) == inf
    for happen in (
        lambda: parts.data_comes(1, b"1"),
        lambda: parts.data_comes(1, b"1"),
        lambda: parts.reports.announced(entry, 0.0),
        lambda: parts.open(5),
    ):
        parts.state.timers.cancel((ACK, PEER))
        happen()
        assert parts.state.timers.due((ACK, PEER)) < inf


def test_no_ack_leaves_while_they_are_frozen() -> None:
    parts = Receiver(MCAST, ack_threshold=1)
    parts.open()
    parts.state.is_frozen = True
    parts.data_comes(1, b"1")
    parts.reports.finish_turn(0.0)
    assert parts.sent(wire.ACK) == []
    parts.state.is_frozen = False
    parts.reports.finish_turn(1.0)
    assert [head.lo for head in parts.sent(wire.ACK)] == [1]


def test_a_window_that_is_gone_by_the_end_of_the_turn_is_not_acked() -> None:
    parts = Receiver(MCAST, ack_threshold=1)
    entry = parts.open()
    parts.data_comes(1, b"1")
    parts.windows.remove(entry, "view", 0.0)
    parts.open()
    parts.reports.finish_turn(0.0)
    assert parts.sent(wire.ACK) == []


# -- Asking and alarms ------------------------------------------------------------------------


def test_only_what_was_missing_at_the_look_before_is_asked_for() -> None:
    parts = Receiver()
    entry = parts.open()
    parts.data_comes(2, b"2", now=0.5)
    parts.asking.look(entry, 1.0)
    parts.data_comes(4, b"4", now=1.5)
    assert parts.sent() == []
    parts.asking.look(entry, 2.0)
    (head,) = parts.sent()
    assert (head.kind, head.dest, head.conn, head.lo) == (wire.XMIT_REQ, PEER, PEER, 1)


def test_each_second_request_goes_to_the_sender() -> None:
    parts = Receiver(xmit_from_random_member=True)
    parts.state.members = frozenset({ME, OTHER})
    entry = parts.open()
    parts.data_comes(2, b"2")
    for now in (1.0, 2.0, 3.0, 4.0):
        parts.asking.look(entry, now)
    assert [head.dest for head in parts.sent()] == [OTHER, PEER, OTHER]


def test_everyone_is_asked_where_anyone_may_have_kept_it() -> None:
    parts = Receiver(use_mcast_xmit_req=True)
    entry = parts.open()
    parts.data_comes(2, b"2")
    parts.asking.request(entry, [(1, 1)], 1.0)
    assert [head.dest for head in parts.sent()] == [wire.GROUP]


def complete(parts: Receiver) -> Inbound:
    """A window of which nothing more is asked."""
    entry = parts.open()
    entry.is_synced = True
    return entry


def test_a_gap_that_moves_is_no_alarm_and_one_that_stands_is() -> None:
    parts = Receiver(xmit_interval=0.0, gap_alarm=5.0)
    entry = complete(parts)
    alarms = Alarms(parts.state, parts.baselines)
    parts.data_comes(2, b"2")
    assert parts.state.timers.due((ALARM, PEER)) == 5.0
    parts.data_comes(1, b"1", now=1.0)
    parts.data_comes(4, b"4", now=1.0)
    alarms.look(entry, 5.0)
    assert parts.state.timers.due((ALARM, PEER)) == 10.0
    assert entry.is_synced
    alarms.look(entry, 10.0)
    assert parts.port.drops == {"gap-alarm": 1}
    assert not entry.is_synced
    assert "alarm" in parts.recorded()


def test_a_gap_that_closed_is_forgotten() -> None:
    parts = Receiver(xmit_interval=0.0)
    entry = complete(parts)
    parts.data_comes(2, b"2")
    parts.data_comes(1, b"1")
    Alarms(parts.state, parts.baselines).look(entry, 30.0)
    assert (entry.gap_at, parts.port.drops) == (-1, {})


# -- Baselines --------------------------------------------------------------------------------


def baseline(parts: Parts, hi: int, stamp: int, mark: int = 0) -> Head:
    return parts.control(wire.BASELINE, hi, stamp=stamp, mark=mark, flags=FIRST)[0]


def question(parts: Receiver, entry: Inbound, now: float) -> int:
    parts.baselines.look(entry, now)
    (head,) = parts.sent(wire.BASELINE_REQ)
    return head.stamp


def test_without_retransmission_only_an_answer_completes_a_window() -> None:
    parts = Receiver(xmit_interval=0.0)
    entry = parts.open()
    parts.data_comes(1, b"1", b"2")
    asked = question(parts, entry, 0.5)
    parts.baselines.on_baseline(baseline(parts, 2, parts.state.view_tag), 0.6)
    assert not entry.is_synced
    parts.baselines.on_baseline(baseline(parts, 2, asked), 0.7)
    assert entry.is_synced
    assert parts.state.timers.due((SYNC, PEER)) == inf


def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    parts = Receiver(xmit_interval=0.0)
    entry = parts.open()
    parts.data_comes(1, b"1")
    early = question(parts, entry, 0.5)
    parts.baselines.desync(entry, 0.6)
    later = question(parts, entry, 1.1)
    assert early != later
    parts.baselines.on_baseline(baseline(parts, 1, early), 1.2)
    assert not entry.is_synced


def test_a_repeated_question_is_the_same_question() -> None:
    parts = Receiver(xmit_interval=0.0)
    entry = parts.open()
    assert question(parts, entry, 0.5) == question(parts, entry, 1.0)


def test_what_the_answer_names_and_is_missing_is_asked_for() -> None:
    parts = Receiver(xmit_interval=0.0)
    entry = parts.open()
    asked = question(parts, entry, 0.5)
    parts.baselines.on_baseline(baseline(parts, 3, asked), 0.7)
    assert not entry.is_synced
    assert parts.state.timers.due((LOOK, PEER)) < inf
    parts.data_comes(1, b"1", b"2", b"3", now=0.8)
    assert entry.is_synced


@pytest.mark.parametrize("stamp", ["this view", "another"])
def test_with_retransmission_what_was_said_in_this_view_completes_a_window(stamp: str) -> None:
    parts = Receiver()
    entry = parts.open()
    tag = parts.state.view_tag
    parts.baselines.on_baseline(baseline(parts, 0, tag if stamp == "this view" else tag + 1), 0.5)
    assert entry.is_synced == (stamp == "this view")


def test_a_baseline_that_no_window_can_follow_is_believed_as_an_answer_only() -> None:
    parts = Receiver(window_messages=10)
    entry = complete(parts)
    with pytest.raises(BadFrame, match="baseline-beyond-window"):
        parts.baselines.on_baseline(baseline(parts, 99, 5, mark=99), 1.0)
    (head,) = parts.sent(wire.BASELINE_REQ)
    parts.baselines.on_baseline(baseline(parts, 99, head.stamp, mark=99), 1.1)
    assert entry.window.delivered == 99


def test_a_baseline_that_contradicts_itself_or_has_no_window_is_refused() -> None:
    parts = Receiver()
    with pytest.raises(BadFrame, match="baseline-order"):
        parts.baselines.on_baseline(baseline(parts, 1, 5, mark=2), 1.0)
    parts.baselines.on_baseline(baseline(parts, 1, 5), 1.0)
    assert parts.port.drops == {"baseline-no-window": 1}


# -- Early ------------------------------------------------------------------------------------


def test_the_queue_before_the_first_view_is_bounded_and_replayed() -> None:
    """A bad frame among those that were kept does not cost the others."""
    parts = Receiver(become_server_queue_size=3)
    for lo in (1, 13, 3, 4):
        parts.early.queue(*parts.data(lo, b"x"))
    assert parts.port.drops == {"become-server-queue-full": 1}
    parts.early.replay_queue(1.0)
    assert parts.taken == [1, 3]
    assert parts.port.drops == {"become-server-queue-full": 1, "unlucky": 1}
    parts.early.queue(*parts.data(5, b"x"))
    assert parts.port.drops["become-server-queue-full"] == 1


def test_without_retransmission_the_queue_has_no_bound_unless_a_flaw_has() -> None:
    free = Receiver(become_server_queue_size=1, xmit_interval=0.0)
    flawed = Receiver(
        become_server_queue_size=1,
        xmit_interval=0.0,
        historical=HistoricalMulticast(queue_overflow="drop-oldest"),
    )
    for parts in (free, flawed):
        for lo in (1, 2):
            parts.early.queue(*parts.data(lo, b"x"))
        parts.early.replay_queue(1.0)
    assert (free.taken, flawed.taken) == ([1, 2], [2])


def test_a_stranger_is_kept_for_and_who_left_is_not() -> None:
    parts = Receiver(unknown_sender_timeout=5.0)
    parts.early.forget_of([OTHER])
    parts.data_comes(1, b"x", source=OTHER, now=1.0)
    parts.data_comes(1, b"x", source=STRANGER, now=1.0)
    parts.data_comes(2, b"x", source=STRANGER, now=3.0)
    assert parts.port.drops == {"former-member": 1}
    assert parts.state.timers.next_deadline() == 6.0
    parts.early.replay_of(STRANGER, 5.0)
    assert parts.taken == [1, 2]


def test_a_stranger_that_no_view_adds_is_forgotten() -> None:
    parts = Receiver(unknown_sender_timeout=5.0, max_unknown_messages=2)
    for source, now in ((STRANGER, 1.0), (OTHER, 3.0), (OTHER, 3.0)):
        parts.data_comes(1, b"x", source=source, now=now)
    assert parts.port.drops == {"unknown-sender": 1}
    parts.early.expire(6.0)
    assert parts.port.drops == {"unknown-sender": 2}
    assert parts.state.timers.next_deadline() == 8.0
    parts.early.replay_of(OTHER, 7.0)
    assert parts.taken == [1]
