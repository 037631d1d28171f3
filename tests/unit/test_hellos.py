"""The hellos that a member says on its connections, and what it answers to those of others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.transports.exchange import Exchange
from stormcast.node.transports.handshake import LENGTH
from stormcast.node.transports.hellos import Hellos

CLUSTER = 0xC1
ANN, BOB = Address(1, "ann", "127.0.0.1[1]"), Address(2, "bob", "127.0.0.1[2]")


class Standing:
    """A connection that notes what it is told."""

    def __init__(self, hellos: Hellos, remote: str = "127.0.0.1", *, is_initiated: bool) -> None:
        self.remote = (remote, 9)
        self.is_initiated = is_initiated
        self.exchange = Exchange(hellos.roles)
        self.peer: Address | None = None
        self.serial = 0
        self.patience = 0.0
        self.said: list[bytes] = []
        self._hellos = hellos

    def wait_for_hello(self, timeout: float) -> None:
        self.patience = timeout

    def say_hello(self) -> None:
        connection: Any = self
        self.said.append(self._hellos.next_of(connection))

    def drop(self, cause: str) -> None:
        self.said.append(cause.encode())


class Member:
    """A member, its hellos, and what it says to its people."""

    def __init__(self, own: Address = ANN, cluster: int = CLUSTER) -> None:
        self.unknown: dict[Any, str] = {}
        self.counters: Counter[str] = Counter()
        self.lines: list[str] = []
        owner: Any = self
        self.hellos = Hellos(owner, self.unknown, self.counters, 5.0)
        self.hellos.start(own, cluster, None)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def connection(self, remote: str = "127.0.0.1", *, is_initiated: bool = False) -> Any:
        return Standing(self.hellos, remote, is_initiated=is_initiated)

    def hello(self) -> bytes:
        """The first hello on a connection that it dials, without its length."""
        connection = self.connection(is_initiated=True)
        self.hellos.number(connection)
        return self.hellos.next_of(connection)[LENGTH.size :]


def test_each_connection_has_a_greater_number_than_the_one_before() -> None:
    ann, bob = Member(ANN), Member(BOB)
    said = [bob.hellos.read_untrusted(ann.hello()) for _ in range(2)]
    assert [(one.address, one.serial) for one in said] == [(ANN, 1), (ANN, 2)]


def test_who_is_proving_a_connection_has_the_one_that_this_end_makes_replace_none() -> None:
    member = Member()
    connection, proving = member.connection(is_initiated=True), member.connection()
    member.hellos.number(connection)
    connection.peer = proving.exchange.claimed = BOB
    member.unknown[proving] = "127.0.0.1"
    body = member.hellos.next_of(connection)[LENGTH.size :]
    assert member.hellos.read_untrusted(body).serial == 0


def test_a_claim_is_answered_unless_it_is_to_be_this_member() -> None:
    member = Member()
    own, other = member.connection(), member.connection()
    member.hellos.on_claim(own, ANN)
    member.hellos.on_claim(other, BOB)
    assert own.said == [b"self"]
    assert (other.serial, other.patience, len(other.said)) == (1, 5.0, 1)


def test_a_host_of_another_cluster_is_reported_once() -> None:
    member, foreign = Member(), Member(BOB, cluster=CLUSTER + 1)
    with pytest.raises(BadFrame) as bad:
        member.hellos.read_untrusted(foreign.hello())
    for host in ("127.0.0.2", "127.0.0.2", "127.0.0.3"):
        connection = member.connection(host)
        member.hellos.on_refused(connection, bad.value.reason)
        assert not connection.said
    assert member.counters == {"refused_hello-cluster": 3}
    assert [line.split()[0] for line in member.lines] == ["127.0.0.2", "127.0.0.3"]


@pytest.mark.parametrize("is_initiated", [True, False])
def test_only_who_dialled_learns_that_it_has_another_key(*, is_initiated: bool) -> None:
    member = Member()
    connection = member.connection(is_initiated=is_initiated)
    member.hellos.on_refused(connection, "sealed")
    assert len(connection.said) == (0 if is_initiated else 1)
    assert member.counters == {"refused_sealed": 1}
