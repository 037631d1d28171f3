"""Messages without reliability: sent once, told apart by nothing that a window keeps."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import DONT_LOOPBACK, NO_RELIABILITY, Address, View, ViewId
from stormcast.node.core.wire import GROUP, Head
from stormcast.node.stack import unreliable
from stormcast.node.stack.lane import Lane
from stormcast.node.stack.unreliable import Unreliable
from tests.helpers.parts import ME, PEER, Parts, bare_settings


class Members:
    """A multicast, as far as this asks it."""

    members = frozenset({ME, PEER})


class Bare(Parts):
    def __init__(self, me: int = ME, *, in_group: bool = True) -> None:
        super().__init__(me)
        multicast: Any = Members() if in_group else None
        self.unreliable = Unreliable(bare_settings(), self.port, self.unicast, multicast)

    def send(self, dest: int, *payloads: bytes, flags: int = 0) -> None:
        lane = Lane(dest, 1 << 20)
        lane.begin(NO_RELIABILITY | flags).payloads.extend(payloads)
        self.unreliable.send(lane, 0.0)

    def frames(self) -> list[tuple[int, Head, bytes]]:
        return [
            (dest, Head._make(wire.HEAD_STRUCT.unpack(head)), body)
            for dest, head, body in self.port.frames
        ]

    def got(self) -> list[bytes]:
        return [bytes(one) for delivery in self.port.deliveries for one in delivery]


def test_a_batch_leaves_as_one_frame_and_arrives_as_one_delivery() -> None:
    here, there = Bare(), Bare(PEER)
    here.send(PEER, b"x", b"yz")
    ((dest, head, body),) = here.frames()
    assert (dest, head.count) == (PEER, 2)
    there.unreliable.receive(head, body, 0.0)
    assert there.got() == [b"x", b"yz"]
    assert len(there.recorded(trace.DELIVERED)) == 1


def test_what_could_not_be_packed_stays_in_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    here, lane = Bare(), Lane(PEER, 1 << 20)
    lane.begin(NO_RELIABILITY).payloads.append(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(unreliable, "pack_body", out_of_memory)
        with pytest.raises(MemoryError):
            here.unreliable.send(lane, 0.0)
    assert (len(lane), lane.numbered, here.frames()) == (1, 0, [])
    here.unreliable.send(lane, 0.0)
    assert len(here.frames()) == len(here.recorded(trace.SENT)) == 1


def out_of_memory(*_rest: object) -> None:
    raise MemoryError


def test_no_two_frames_are_alike() -> None:
    """The fate of a frame is drawn from its preamble: one that is lost must not doom the next."""
    here = Bare()
    here.send(PEER, b"x")
    here.send(PEER, b"x")
    (first, second) = (head for _dest, head, _body in here.frames())
    assert first.lo != second.lo


@pytest.mark.parametrize(("dest", "leaves"), [(ME, 0), (GROUP, 1)])
def test_what_is_for_oneself_too_is_delivered_at_once(dest: int, leaves: int) -> None:
    here = Bare()
    here.send(dest, b"x")
    assert (here.got(), len(here.port.frames)) == ([b"x"], leaves)
    here.send(dest, b"y", flags=DONT_LOOPBACK)
    assert here.got() == [b"x"]


def test_an_application_that_takes_nothing_loses_it() -> None:
    here, there = Bare(), Bare(PEER)
    here.send(PEER, b"x", b"y")
    there.unicast.set_consuming(False, 0.0)
    ((_dest, head, body),) = here.frames()
    there.unreliable.receive(head, body, 0.0)
    assert (there.got(), there.port.drops) == ([], {"not-consuming": 2})


def test_a_multicast_of_a_stranger_is_refused() -> None:
    stranger, here = Bare(3), Bare()
    stranger.send(GROUP, b"x")
    ((_dest, head, body),) = stranger.frames()
    here.unreliable.receive(head, body, 0.0)
    assert (here.got(), here.port.drops) == ([], {"unknown-sender": 1})


ADDRESSES = {short: Address(short, str(short), "x[1]") for short in (ME, PEER, 3)}


def view(number: int, *shorts: int) -> View:
    members = tuple(ADDRESSES[short] for short in shorts)
    return View(ViewId(number, members[0]), members)


def test_what_was_multicast_before_a_member_came_is_not_delivered_to_it() -> None:
    """Somebody recorded it; the seal of such a frame is good."""
    peer, here = Bare(PEER), Bare()
    for number, members in ((1, (PEER, 3)), (2, (PEER, ME)), (3, (PEER, ME, 3))):
        peer.unreliable.on_view(view(number, *members))
        peer.send(GROUP, b"%d" % number)
    here.unreliable.on_view(view(2, PEER, ME))
    here.unreliable.on_view(view(3, PEER, ME, 3))
    for _dest, head, body in peer.frames():
        here.unreliable.receive(head, body, 0.0)
    # What it multicast in the view before this one may only be late.
    assert (here.got(), here.port.drops) == ([b"2", b"3"], {"other-view": 1})


def test_who_is_ahead_by_a_view_is_heard() -> None:
    peer, here = Bare(PEER), Bare()
    here.unreliable.on_view(view(2, PEER, ME))
    peer.unreliable.on_view(view(5, PEER, ME, 3))
    peer.send(GROUP, b"x")
    ((_dest, head, body),) = peer.frames()
    here.unreliable.receive(head, body, 0.0)
    assert here.got() == [b"x"]


def test_who_was_away_begins_with_the_view_of_its_return() -> None:
    peer, here = Bare(PEER), Bare()
    peer.unreliable.on_view(view(2, PEER, ME))
    peer.send(GROUP, b"before it was away")
    for members in ((2, PEER, ME), (3, ME), (4, ME, PEER)):
        here.unreliable.on_view(view(*members))
    ((_dest, head, body),) = peer.frames()
    here.unreliable.receive(head, body, 0.0)
    assert (here.got(), here.port.drops) == ([], {"other-view": 1})
