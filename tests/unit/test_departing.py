"""The frames that leave at the end of a turn: all, or as many as the transport queues."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from stormcast.node.core.model import Address
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.port import Frame
from stormcast.node.protocols.unicast import Unicast3Config
from stormcast.node.settings import StackSettings
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.stack.departing import Departing
from stormcast.node.stack.testing import TestProtocols
from tests.helpers.parts import PEER, Parts

QUEUE = 4


def made(parts: Parts, **transport: Any) -> Departing:
    udp = UdpConfig(queue_frames=QUEUE, **transport)
    settings = StackSettings(layers=(("UNICAST3", Unicast3Config()), ("UDP", udp)), timing=Timing())
    test_protocols = TestProtocols(settings, parts.port, Random(1), str)
    return Departing(settings.transport_config, parts.port, test_protocols, None)


def frames(*numbers: int) -> list[Frame]:
    return [(PEER, b"%d" % number, b"") for number in numbers]


def test_released_frames_leave_before_those_of_the_turn() -> None:
    parts = Parts()
    departing = made(parts)
    departing.passed += frames(1, 2)
    parts.port.frames += frames(3, 4)
    assert departing.take(0.0) == frames(1, 2, 3, 4)
    assert departing.take(0.0) == []
    assert parts.port.drops == {}


def test_a_transport_that_drops_drops_others_in_each_turn() -> None:
    """The first half of its queue is for the first frames, the other half for others in turn."""
    parts = Parts()
    departing = made(parts)
    left = []
    for _ in range(3):
        parts.port.frames += frames(1, 2, 3, 4, 5)
        left.append(departing.take(0.0))
    assert left == [frames(1, 2, 3, 4), frames(1, 2, 5, 3), frames(1, 2, 4, 5)]
    assert parts.port.drops == {"transport-queue-full": 3}


@pytest.mark.parametrize("more", [(), (6,)])
def test_a_transport_that_drops_nothing_has_the_others_wait(more: tuple[int, ...]) -> None:
    parts = Parts()
    departing = made(parts, drop_when_full=False)
    parts.port.frames += frames(1, 2, 3, 4, 5)
    assert departing.take(0.0) == frames(1, 2, 3, 4)
    parts.port.frames += frames(*more)
    assert departing.take(0.0) == frames(5, *more)
    assert parts.port.drops == {}


def test_where_no_stranger_was_heard_a_challenge_holds_no_frame_back() -> None:
    """Also frames to those that nobody vouches for leave, and the challenge ends with the turn."""
    parts = Parts()
    departing = made(parts)
    parts.port.contacts.trusted.clear()
    parts.port.challenge(Address(9, "x", "127.0.0.1[9]"))
    parts.port.frames += frames(1)
    assert not parts.port.contacts.is_on
    assert departing.take(0.0) == frames(1)
    assert parts.port.challenged == {}
