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

    def send(self, _dest: int, payloads: list[bytes], *_rest: object) -> None:
        self.sent.append(len(payloads))
        self.messages -= len(payloads)
        self.unacked += len(payloads)


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
