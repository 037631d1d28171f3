"""Dialling: one connection to each place, none to this member, and a pause after each failure."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from stormcast.node.settings.transports import TcpConfig
from stormcast.node.transports.dialler import SELF_SECONDS, Dialler
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.peer_places import MAX_LEARNED

LO = Interface("lo", 1, "127.0.0.1", "loopback")
AT = ("127.0.0.1", 9)
OTHER = ("127.0.0.1", 100)


class Dialled:
    """A connection that only its test moves."""

    def __init__(self, sock: socket.socket, remote: SocketAddress) -> None:
        self.sock = sock
        self.remote = remote

        self.on_closed: Any = None

    def connect(self, timeout: float) -> None:
        self.timeout = timeout

    def drop(self, cause: str) -> None:
        self.on_closed(self, cause)


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
        self.made[-1].on_closed = self.dialler.on_closed
        return self.made[-1]

    def now(self) -> float:
        return self.at

    def dial(self, at: SocketAddress = AT, *, is_peer: bool = True) -> Any:
        return self.dialler.dial(at, is_peer=is_peer)

    def dial_strangers(self, count: int, hosts: int) -> None:
        """So many places that somebody has named, at so many hosts by turns."""
        for number in range(count):
            self.dial((f"127.66.0.{1 + number % hosts}", 1000 + number), is_peer=False)

    @property
    def hosts(self) -> list[str]:
        return [host for host, *_ in self.dialler.dialled]

    def fail(self) -> None:
        """The last one ends before it stands."""
        last: Any = self.made[-1]
        assert self.dialler.on_closed(last, "refused")


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


def test_an_address_at_which_this_member_answered_is_dialled_again_in_time(caller: Caller) -> None:
    """Anybody can say what it was told, and an honest member may be there later."""
    caller.dialler.note_self(AT)
    caller.at = SELF_SECONDS - 1.0
    assert caller.dial() is None
    caller.at = SELF_SECONDS
    assert caller.dial() is not None


def test_an_address_of_a_member_is_dialled_whoever_answered_there_before(caller: Caller) -> None:
    caller.dialler.note_self(AT)
    caller.dialler.note_answer(AT, 7)
    assert caller.dial() is not None


def test_of_addresses_that_answered_as_this_member_the_latest_are_known(caller: Caller) -> None:
    for number in range(MAX_LEARNED + 1):
        caller.dialler.note_self((f"127.66.0.{number % 250}", 1 + number))
    assert len(caller.dialler._selves) == MAX_LEARNED
    assert caller.dial(("127.66.0.0", 1)) is not None
    assert caller.dial(("127.66.0.1", 2)) is None


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
    assert not caller.dialler.on_closed(stands, "lost")
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
            caller.dialler.on_closed(one, "connect-timeout")
        caller.at += 10.0
    tried = [one.remote for one in caller.made if one.remote != OTHER]
    assert sorted(tried) == gone
    for one in caller.made:
        one.sock.close()


@pytest.fixture(name="busy")
def _busy() -> Iterator[Caller]:
    made = Caller(most=16)
    yield made
    for one in made.made:
        one.sock.close()


def test_dials_for_strangers_have_half_of_the_places_and_one_host_half_of_those(
    busy: Caller,
) -> None:
    busy.dial_strangers(20, hosts=1)
    assert len(busy.hosts) == 4
    busy.dial_strangers(20, hosts=10)
    assert len(busy.hosts) == 8
    newest = busy.dial(("127.66.9.9", 1), is_peer=False)
    assert busy.dialler.dialled[newest.remote] is newest
    assert len(busy.hosts) == 8


def test_a_member_is_dialled_however_many_places_strangers_name(busy: Caller) -> None:
    busy.dial_strangers(20, hosts=10)
    members = [("127.0.0.1", 1 + number) for number in range(16)]
    assert all(busy.dial(at) is not None for at in members)
    assert busy.hosts == ["127.0.0.1"] * 16
    assert busy.dial(OTHER) is None
    assert busy.dial(("127.66.9.9", 1), is_peer=False) is None


@pytest.mark.parametrize("search", [False, True])
def test_a_place_that_a_stranger_named_first_is_a_members_once_one_is_to_be_there(
    busy: Caller, *, search: bool
) -> None:
    first = busy.dial(is_peer=False)
    found = busy.dialler.search([AT])[0] if search else busy.dial()
    assert found is first
    busy.dial_strangers(40, hosts=20)
    assert busy.dialler.dialled[AT] is first


def test_a_dial_that_ends_for_another_is_followed_by_no_pause(busy: Caller) -> None:
    """Else whoever has a member's place dialled, and many more, keeps the member from it."""
    busy.dial(is_peer=False)
    busy.dial_strangers(20, hosts=10)
    assert AT not in busy.dialler.dialled
    assert busy.dial() is not None
