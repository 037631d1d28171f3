"""From lanes into windows: as much as window and credits admit, in batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stormcast.node.core.credits import StreamEnd
from stormcast.node.core.model import FRAGMENT, NO_FC, NO_RELIABILITY, OOB
from stormcast.node.protocols.frag import CutMessage, FragConfig
from stormcast.node.protocols.unicast import Unicast3Config
from stormcast.node.stack.lane import Lane
from stormcast.node.stack.sending import Sender
from tests.helpers.parts import PEER, Parts, bare_settings

ROOM = 1 << 20


@dataclass
class Below:
    """A window, the credits, and where the stream stands: what a sender asks and tells."""

    messages: int = 1 << 20
    size: int = Unicast3Config().window_bytes
    credit: int = 1 << 20
    unacked: int = 0
    sent: list[int] = field(default_factory=list)
    """Messages of each batch."""
    spent: list[int] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)
    bare: int = 0
    config: Unicast3Config = field(default_factory=Unicast3Config)

    def room(self, _dest: int) -> tuple[int, int]:
        return self.messages, self.size

    fails: str = ""
    """Where the next send fails: before it is numbered, or after."""
    left: list[bytes] = field(default_factory=list)

    def send(self, _dest: int, payloads: list[bytes], *_rest: object) -> None:
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise MemoryError
        self.left += payloads
        self.sent.append(len(payloads))
        self.messages -= len(payloads)
        self.unacked += len(payloads)
        if fails == "after":
            raise MemoryError


@dataclass
class Credits:
    below: Below

    def room(self, _dest: int) -> int:
        return self.below.credit

    def spent(self, _dest: int, size: int, _now: float, _flags: int) -> None:
        self.below.credit -= size
        self.below.spent.append(size)

    def blocked(self, _dest: int, size: int, _now: float) -> None:
        self.below.blocked.append(size)


@dataclass
class Positions:
    below: Below

    def sent(self, _dest: int) -> StreamEnd:
        return StreamEnd(1, sum(self.below.sent), self.below.unacked)

    def taken(self, _dest: int) -> None:
        return None


@dataclass
class Bare:
    below: Below

    def send(self, lane: Lane, _now: float) -> None:
        lane.take(1, ROOM, ROOM)
        self.below.bare += 1


def sender(below: Below, frag: FragConfig | None = None, **values: Any) -> Sender:
    settings = bare_settings(**values)
    if frag is not None:
        object.__setattr__(settings, "layers", (("FRAG", frag), *settings.layers))
    stands: Any = (below, Positions(below), Credits(below), Bare(below))
    return Sender(settings, Parts().port, *stands)


def lane_of(*payloads: bytes, flags: int = 0) -> Lane:
    lane = Lane(PEER, ROOM)
    lane.begin(flags).payloads.extend(payloads)
    return lane


def test_everything_leaves_in_batches_of_what_a_frame_may_hold() -> None:
    below = Below()
    assert sender(below, max_batch=4).send_waiting(lane_of(*[b"x"] * 10), 0.0)
    assert below.sent == [4, 4, 2]


def test_a_window_admits_so_many_messages_and_the_rest_waits() -> None:
    below = Below(messages=3)
    lane = lane_of(*[b"x"] * 5)
    assert not sender(below).send_waiting(lane, 0.0)
    assert (below.sent, len(lane)) == ([3], 2)


def test_credits_are_spent_by_the_bytes_of_payloads() -> None:
    below = Below(credit=250)
    lane = lane_of(*[bytes(100)] * 4)
    assert not sender(below).send_waiting(lane, 0.0)
    assert (below.sent, below.spent) == ([2], [200])
    assert below.blocked == [100], "the receiver is asked for credits for the next message"


def test_messages_without_flow_control_need_no_credits() -> None:
    below = Below(credit=0)
    assert sender(below).send_waiting(lane_of(b"x", flags=NO_FC), 0.0)
    assert (below.sent, below.spent) == ([1], [])


def test_an_empty_window_admits_one_message_of_any_size() -> None:
    below = Below(size=100, config=Unicast3Config(window_bytes=100))
    lane = lane_of(bytes(5000), bytes(5000))
    sender(below).send_waiting(lane, 0.0)
    assert below.sent[0] == 1


def test_what_needs_no_reliability_asks_no_window() -> None:
    below = Below(messages=0)
    assert sender(below).send_waiting(lane_of(b"x", b"y", flags=NO_RELIABILITY), 0.0)
    assert (below.sent, below.bare) == ([], 2)


@pytest.mark.parametrize(("unacked", "begins"), [(0, True), (2, False)])
def test_an_oob_message_in_pieces_begins_when_those_before_it_are_acked(
    unacked: int, *, begins: bool
) -> None:
    """FRAG lets one be open: the second waits while pieces of the first are not acked."""
    below = Below()
    made = sender(below, FragConfig(max_open_messages=1))
    lane = Lane(PEER, ROOM)
    lane.begin_large(OOB, CutMessage(1, [b"a", b"b"], 2, 0)).payloads = [b"a", b"b"]
    assert lane.runs[0].flags == OOB | FRAGMENT
    assert made.send_waiting(lane, 0.0)
    below.unacked = unacked
    lane.begin_large(OOB, CutMessage(2, [b"c", b"d"], 2, 0)).payloads = [b"c", b"d"]
    assert made.send_waiting(lane, 0.0) is begins
    assert below.sent == ([1] * 4 if begins else [1] * 2)


@pytest.mark.parametrize("max_batch", [2, 3, 4, 5, 9])
def test_a_batch_that_could_not_be_packed_leaves_with_the_next_look(max_batch: int) -> None:
    """Whether it was all of a run, its beginning, or its end."""
    below = Below()
    made = sender(below, max_batch=max_batch)
    payloads = [b"%d" % number for number in range(5)]
    lane = lane_of(*payloads)
    lane.begin(OOB).payloads.extend([b"5", b"6"])
    before = lane.room
    for fails in range(4):
        below.fails = "before"
        with pytest.raises(MemoryError):
            made.send_waiting(lane, 0.0)
        lane.run.payloads.append(b"%d" % (7 + fails))
        assert (lane.room, lane.numbered) == (before, 0)
        assert (len(lane), lane.accepted) == (8 + fails, 8 + fails)
    assert made.send_waiting(lane, 0.0)
    assert below.left == [b"%d" % number for number in range(11)]
    assert (lane.numbered, lane.accepted, lane.is_empty()) == (11, 11, True)


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_a_piece_that_could_not_be_packed_leaves_with_the_next_look(piece: int) -> None:
    below = Below()
    made = sender(below, FragConfig(), max_batch=1)
    lane = Lane(PEER, ROOM)
    lane.begin_large(0, CutMessage(1, [b"a", b"b", b"c"], 3, 0)).payloads = [b"a", b"b", b"c"]
    below.messages = piece
    assert not made.send_waiting(lane, 0.0)
    below.messages, before = 9, lane.room
    below.fails = "before"
    with pytest.raises(MemoryError):
        made.send_waiting(lane, 0.0)
    assert (lane.room, lane.numbered, len(lane)) == (before, 0, 1)
    lane.begin(0).payloads.append(b"d")
    assert made.send_waiting(lane, 0.0)
    assert below.left == [b"a", b"b", b"c", b"d"]
    assert (lane.numbered, lane.accepted) == (2, 2)


def test_a_batch_that_is_in_the_window_is_not_sent_twice() -> None:
    below = Below(fails="after")
    made = sender(below)
    lane = lane_of(b"x", b"y")
    with pytest.raises(MemoryError):
        made.send_waiting(lane, 0.0)
    assert made.send_waiting(lane, 0.0)
    assert (below.left, lane.numbered) == ([b"x", b"y"], 2)
