"""Dialling: one connection to each place, none to this member, and a pause after each failure."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from stormcast.node.settings.transports import TcpConfig
from stormcast.node.transports.dialler import Dialler
from stormcast.node.transports.interfaces import Interface, SocketAddress

LO = Interface("lo", 1, "127.0.0.1", "loopback")
AT = ("127.0.0.1", 9)
OTHER = ("127.0.0.1", 100)


class Dialled:
    """A connection that only its test moves."""

    def __init__(self, sock: socket.socket, remote: SocketAddress) -> None:
        self.sock = sock
        self.remote = remote

    def connect(self, timeout: float) -> None:
        self.timeout = timeout


class Caller:
    """A station with a clock, and the dialler that it has."""

    def __init__(self, most: int = 3) -> None:
        self.at = 0.0
        self.made: list[Dialled] = []
        config = TcpConfig(reconnect_interval=1.0, reconnect_max_interval=4.0)
        station: Any = self
        make: Any = self._make
        self.dialler = Dialler(config, station, LO, Counter(), make, most)

    def _make(self, sock: socket.socket, remote: SocketAddress) -> Dialled:
        self.made.append(Dialled(sock, remote))
        return self.made[-1]

    def now(self) -> float:
        return self.at

    def dial(self, at: SocketAddress = AT) -> Any:
        return self.dialler.dial(at)

    def fail(self) -> None:
        """The last one ends before it stands."""
        last: Any = self.made[-1]
        assert self.dialler.on_closed(last)


@pytest.fixture(name="caller")
def _caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    for one in made.made:
        one.sock.close()


def test_one_place_is_dialled_once_and_another_besides(caller: Caller) -> None:
    first = caller.dial()
    assert first.timeout == 2.0
    assert caller.dial() is first
    assert caller.dial(OTHER) is not first
    assert len(caller.made) == 2


def test_this_member_is_not_dialled_and_nobody_once_it_ends(caller: Caller) -> None:
    caller.dialler.own.add(AT)
    assert caller.dial() is None
    caller.dialler.is_stopped = True
    assert caller.dial(OTHER) is None
    assert caller.made == []


def test_the_pause_after_a_failure_doubles_up_to_its_bound(caller: Caller) -> None:
    for pause in (1.0, 2.0, 4.0, 4.0):
        assert caller.dial() is not None
        caller.fail()
        caller.at += pause - 0.5
        assert caller.dial() is None
        caller.at += 0.5


def test_one_that_stands_is_over_with_its_pauses(caller: Caller) -> None:
    caller.dial()
    caller.fail()
    caller.at = 1.0
    stands = caller.dial()
    caller.dialler.on_established(stands)
    assert caller.dialler.dialled == {}
    # Its end is none of a dialled one.
    assert not caller.dialler.on_closed(stands)
    assert caller.dial() is not None
    caller.fail()
    caller.at = 2.0
    assert caller.dial() is not None


def test_searches_leave_room_for_members_and_come_to_every_place_in_time() -> None:
    """Twenty hosts are gone, and say nothing: two of eight connections may wait for them."""
    caller = Caller(most=8)
    gone = [("127.0.0.1", port) for port in range(1, 21)]
    for _ in range(10):
        assert len(caller.dialler.search(gone)) == 2
        assert caller.dial(OTHER) is not None
        for one in list(caller.dialler.dialled.values()):
            caller.dialler.on_closed(one)
        caller.at += 10.0
    tried = [one.remote for one in caller.made if one.remote != OTHER]
    assert sorted(tried) == gone
    for one in caller.made:
        one.sock.close()
