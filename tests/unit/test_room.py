"""When the outbox is closed, and when it is open again."""

from __future__ import annotations

from typing import Any

from stormcast.node.settings.transports import TransportConfig
from stormcast.node.transports.room import Room


class Turns:
    """A station that counts its turns."""

    number = 0

    def turn(self, *, has_more: bool = False) -> None:
        self.number += 1


def full_room(station: Any) -> Room:
    room = Room(TransportConfig(queue_frames=10, queue_bytes=1000), station)
    room.is_full = True
    return room


def test_it_opens_when_each_queue_is_half_empty_in_frames_and_in_bytes() -> None:
    station = Turns()
    room = full_room(station)
    for queue in ((6, 0), (0, 501)):
        room.reopen([(0, 0), queue])
        assert room.is_full
    room.reopen([(0, 0), (5, 500)])
    assert not room.is_full
    assert station.number == 1


def test_one_that_is_open_has_no_turn() -> None:
    station = Turns()
    room = full_room(station)
    room.is_full = False
    room.reopen([])
    assert station.number == 0
