"""The lanes of one member: which are looked at, and what becomes of them when connections end."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.node import trace
from stormcast.node.core.errors import ClosedError, ConfigError
from stormcast.node.core.model import Address
from stormcast.node.core.wire import GROUP
from stormcast.node.stack.lane import MESSAGE_OVERHEAD, Lane
from stormcast.node.stack.outbox import REMEMBERED_LANES, Outbox
from tests.helpers.parts import ME, PEER, Parts

BOUND = 10_000


class Boxed(Parts):
    """An outbox, and a sender that takes what it is told to."""

    def __init__(self, *, has_group: bool = False) -> None:
        super().__init__()
        self.outbox = Outbox(Address(ME, "a"), self.port, BOUND, has_group=has_group)
        self.admits = 1 << 40
        self.fails = 0
        """The destination for which nothing can be sent."""

    def put(self, *payloads: bytes, dest: int = PEER) -> Lane:
        lane = self.outbox.lane(dest)
        for payload in payloads:
            lane.room -= len(payload) + MESSAGE_OVERHEAD
            lane.run.payloads.append(payload)
        self.outbox.queue(lane)
        return lane

    def send_waiting(self, lane: Lane, now: float) -> bool:
        if lane.dest == self.fails:
            raise MemoryError
        if self.admits and not lane.is_empty():
            lane.take(self.admits, 1 << 40, 1 << 40)
        return lane.is_empty()

    def pull(self, now: float = 0.0) -> None:
        sender: Any = self
        self.outbox.pull(sender, sender, now)


def test_a_lane_is_looked_at_once_however_often_it_is_queued() -> None:
    boxed = Boxed()
    lane = boxed.put(b"x")
    boxed.outbox.queue(lane)
    assert boxed.outbox.queued == [lane]
    boxed.pull()
    assert boxed.outbox.queued == []
    assert not lane.is_queued


def test_a_lane_that_is_not_emptied_is_blocked_until_it_is() -> None:
    boxed = Boxed()
    boxed.admits = 0
    lane = boxed.put(b"x", b"y")
    boxed.pull(1.0)
    assert boxed.port.waiting == {PEER}
    boxed.port.woken.append(PEER)
    boxed.admits = 2
    boxed.outbox.settle(2.0)
    assert boxed.outbox.queued == [lane]
    boxed.pull(2.0)
    assert boxed.port.waiting == set()
    said = [(one.kind, one.time) for one in boxed.recorded(trace.BLOCKED, trace.UNBLOCKED)]
    assert said == [(trace.BLOCKED, 1.0), (trace.UNBLOCKED, 2.0)]


def test_an_empty_lane_is_not_woken() -> None:
    boxed = Boxed()
    boxed.put(b"x")
    boxed.pull()
    boxed.port.woken += [PEER, PEER + 1]
    boxed.outbox.settle(0.0)
    assert boxed.outbox.queued == []


def test_when_a_connection_ends_what_was_blocked_is_given_up_and_told() -> None:
    boxed = Boxed()
    boxed.admits = 1
    boxed.put(b"a", b"b", b"c")
    boxed.pull()
    boxed.port.closed.append(PEER)
    boxed.outbox.settle(1.0)
    (told,) = boxed.outbox.take_abandoned()
    assert (told.dest, told.count, told.why, told.last) == (PEER, 2, "connection-closed", 3)
    assert boxed.outbox.abandoned == {"connection-closed": 2}
    assert boxed.outbox.take_abandoned() == []
    assert boxed.outbox.room(PEER) == BOUND


@pytest.mark.parametrize("is_flushed", [True, False])
def test_messages_are_numbered_on_where_a_lane_ended_with_its_connection(is_flushed: bool) -> None:
    """Also where the lane ended before it was time to record what was offered."""
    boxed = Boxed()
    boxed.put(b"a", b"b")
    boxed.pull()
    if is_flushed:
        boxed.outbox.flush(0.0)
    boxed.port.closed.append(PEER)
    boxed.outbox.settle(0.0)
    assert boxed.outbox.lanes == {}
    boxed.put(b"c")
    boxed.outbox.flush(0.0)
    assert [(one.lo, one.hi) for one in boxed.recorded(trace.OFFERED)] == [(1, 2), (3, 3)]


def test_a_lane_that_fails_leaves_the_others_to_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boxed = Boxed()
    boxed.put(b"a", dest=1)
    boxed.put(b"b", dest=2)

    def fails(_lane: Lane, _now: float) -> bool:
        raise ValueError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(boxed, "send_waiting", fails)
        with pytest.raises(ValueError, match="a bug"):
            boxed.pull()
    assert [lane.dest for lane in boxed.outbox.queued] == [2]
    boxed.pull()
    assert boxed.outbox.pending(2) == 0
    # The lane that failed is looked at again when something is put in.
    boxed.put(b"c", dest=1)
    boxed.pull()
    assert boxed.outbox.pending(1) == 0


def test_lanes_that_ended_are_forgotten_in_time() -> None:
    """Each incarnation of a member is another destination, for as long as a member lives: who was
    one long ago does not come back."""
    boxed = Boxed()
    for dest in range(1, REMEMBERED_LANES + 10):
        boxed.put(b"a", b"b", dest=dest)
        boxed.pull()
        boxed.port.closed.append(dest)
        boxed.outbox.settle(0.0)
    assert len(boxed.outbox._numbers) == REMEMBERED_LANES
    assert boxed.put(b"c", dest=REMEMBERED_LANES).accepted == 3
    assert boxed.put(b"c", dest=1).accepted == 1


def test_what_a_lane_holds_when_the_member_stops_is_given_up() -> None:
    boxed = Boxed()
    boxed.put(b"a", b"b")
    boxed.outbox.stop(0.0)
    assert boxed.outbox.abandoned == {"stop": 2}
    assert not boxed.outbox.has_backlog
    with pytest.raises(ClosedError, match="open a new channel"):
        boxed.outbox.lane(PEER)


@pytest.mark.parametrize("dest", [-1, 1 << 32, GROUP])
def test_a_destination_must_be_one(dest: int) -> None:
    with pytest.raises(ConfigError, match="must be the short id"):
        Boxed().outbox.lane(dest)


def test_only_a_group_can_be_sent_to_as_one() -> None:
    assert Boxed(has_group=True).outbox.lane(GROUP).dest == GROUP


def test_only_lanes_that_hold_something_are_gauged() -> None:
    boxed = Boxed()
    boxed.outbox.lane(PEER + 1)
    boxed.put(b"xyz")
    boxed.outbox.gauge(0.0)
    (gauge,) = boxed.recorded(trace.GAUGE)
    assert (gauge.peer, gauge.lo, gauge.hi) == (PEER, 3 + MESSAGE_OVERHEAD, BOUND)


def test_a_lane_that_failed_is_looked_at_again_but_not_in_each_turn() -> None:
    """Turns in between come to their end: frames of others leave, though this lane fails again."""
    boxed = Boxed()
    boxed.fails = PEER
    failing, other = boxed.put(b"x"), boxed.put(b"y", dest=9)
    with pytest.raises(MemoryError):
        boxed.pull(1.0)
    assert boxed.outbox.queued == [other]
    boxed.pull(1.1)
    assert (other.is_empty(), len(failing)) == (True, 1)

    boxed.fails = 0
    boxed.outbox.flush(boxed.outbox.flush_at)
    assert boxed.outbox.queued == [failing]
    boxed.pull(2.0)
    assert failing.is_empty()


def test_what_a_bug_left_of_a_turn_is_done_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that were woken, and connections that ended."""
    boxed = Boxed()
    boxed.admits = 0
    lanes = [boxed.put(b"x", dest=dest) for dest in (5, 6, 7)]
    boxed.pull()
    boxed.port.closed += [5, 6]
    boxed.port.woken += [7]
    with monkeypatch.context() as patch:
        patch.setattr(boxed.outbox, "_abandon", failing)
        with pytest.raises(MemoryError):
            boxed.outbox.settle(1.0)
    boxed.outbox.settle(2.0)
    assert boxed.outbox.queued == [lanes[2]]
    assert boxed.outbox.abandoned["connection-closed"] >= 1
    assert 6 not in boxed.outbox.lanes


def failing(*_rest: object) -> None:
    raise MemoryError
