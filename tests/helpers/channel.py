"""A channel with behaviour and no network: an outbox of a given size, and a view that changes."""

from __future__ import annotations

from typing import NamedTuple

from stormcast.node.core.errors import ClosedError, ConfigError
from stormcast.node.core.model import Address, Delivery, View, ViewId


class Sent(NamedTuple):
    """A message that was accepted."""

    dest: int | None
    payload: bytes
    flags: int
    at: float


def address(name: str, incarnation: int = 1) -> Address:
    """A member; each of its incarnations has an address of its own."""
    number = sum(ord(letter) << 8 * place for place, letter in enumerate(name))
    return Address(number * 100 + incarnation, name)


class FakeChannel:
    """What the workload driver needs of a channel."""

    def __init__(self, name: str = "n0", *others: str, room: int = 1 << 60) -> None:
        self.address = address(name)
        self.view: View | None = None
        self.room = room
        """Messages that the outbox still takes."""
        self.largest = 1 << 20
        self.is_closed = False
        self.sent: list[Sent] = []
        self.now = 0.0
        self._number = 0
        if others or name:
            self.install(name, *others)

    def install(self, *members: str | Address) -> None:
        """A new view."""
        self._number += 1
        listed = tuple(address(member) if isinstance(member, str) else member for member in members)
        self.view = View(ViewId(self._number, listed[0]), listed)

    def try_send(self, dest: Address | int | None, payload: bytes, flags: int = 0) -> bool:
        if self.is_closed:
            raise ClosedError("closed")
        if len(payload) > self.largest:
            raise ConfigError(f"a message of {len(payload)} bytes: split it")
        if not self.room:
            return False
        self.room -= 1
        assert not isinstance(dest, Address)
        self.sent.append(Sent(dest, payload, flags, self.now))
        return True

    def to(self, name: str | None, incarnation: int = 1) -> list[Sent]:
        """What was sent to a member, or to the group."""
        dest = address(name, incarnation).short if name is not None else None
        return [one for one in self.sent if one.dest == dest]


def delivery(source: Address, dest: int, payloads: list[bytes], lo: int = 1) -> Delivery:
    """Messages as they arrive."""
    return Delivery(
        source.short,
        1,
        lo,
        lo + len(payloads) - 1,
        0,
        b"".join(payloads),
        0,
        [len(payload) for payload in payloads],
        dest,
    )
