"""The members that anybody suspects, and how the others are told of them."""

from __future__ import annotations

from collections.abc import Iterable

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import Address
from stormcast.node.core.packing import Reader, Writer
from stormcast.node.core.policy import is_first
from stormcast.node.protocols.events import Lagging, Suspected, Vouched
from stormcast.node.protocols.layer import Layer
from stormcast.node.protocols.port import Port


class Suspicions:
    """Suspects in the view. What this member found out itself is repeated, until a view without
    them."""

    def __init__(self, layer: Layer, port: Port, interval: float) -> None:
        self.suspects: dict[int, Address] = {}
        """Members that anybody suspects."""
        self._layer = layer
        self._role = layer.role
        self._port = port
        self._interval = interval
        """Seconds between two repeats, at most."""
        self._told: dict[int, Address] = {}
        """Suspects of this member that it sends to others."""
        self._repeats = 0
        self._number = 0

    def keep(self, members: set[int]) -> None:
        """Forget those that are in the view no longer."""
        for table in (self.suspects, self._told):
            for short in table.keys() - members:
                del table[short]
        self._end_repeats()

    def clear(self) -> None:
        """Forget everybody: this member leaves."""
        self._layer.cancel("repeat")
        self.suspects.clear()
        self._told.clear()

    def tell(self, found: dict[int, Address], now: float) -> None:
        """Tell everybody of suspects that were found here."""
        self._told |= found
        self._repeats = 0
        self.repeat(now)

    def repeat(self, now: float) -> None:
        """Tell everybody again."""
        if not self._told:
            return
        told = list(self._told.values())
        self._send(wire.SUSPECT, told)
        wait = self._layer.timing.repeat_wait(self._interval, self._repeats)
        self._repeats += 1
        self._layer.wake_at("repeat", now + wait)
        self._suspect(told, now)

    def on_suspect(self, sender: Address, body: bytes, now: float) -> None:
        """Take the suspicions of another member."""
        named, members = _unpack_untrusted(body), set(self._role.members)
        # The sender names members that are not in the view: it missed a view.
        if self._role.is_coordinator and any(member not in members for member in named):
            self._port.events.append(Lagging(sender))
        elif members.isdisjoint(named):
            self._port.drop("not-a-member")
        self._suspect([member for member in named if member in members], now)

    def on_unsuspect(self, body: bytes, now: float) -> list[Address]:
        """Take the news that suspects are alive; returns those that were suspected here."""
        restored = self._restore(_unpack_untrusted(body), now)
        if not restored:
            self._port.drop("not-suspected")
        self._port.events.extend(map(Vouched, restored))
        return restored

    def on_cleared(self, member: Address, now: float) -> list[Address]:
        """Tell everybody that a suspect is alive; returns it, if it was suspected here."""
        self._send(wire.UNSUSPECT, [member])
        return self._restore([member], now)

    def _restore(self, named: Iterable[Address], now: float) -> list[Address]:
        """Stop suspecting members that are alive; returns those that were suspected."""
        restored = [member for member in named if self.suspects.pop(member.short, None) is not None]
        for member in restored:
            self._record(trace.CLEARED, member, now)
            self._told.pop(member.short, None)
        self._end_repeats()
        return restored

    def _end_repeats(self) -> None:
        if not self._told:
            self._layer.cancel("repeat")

    def _suspect(self, named: Iterable[Address], now: float) -> None:
        """Note suspects; report all of them if this member would coordinate without them."""
        me = self._role.address
        new = [member for member in named if member != me]
        for member in new:
            if member.short not in self.suspects:
                self.suspects[member.short] = member
                self._record(trace.SUSPECTED, member, now)
        everyone = tuple(self.suspects.values())
        if new and is_first(me, self._role.members, everyone):
            self._port.events.append(Suspected(everyone))

    def _send(self, kind: int, members: list[Address]) -> None:
        # Numbered: a repeat must not share the fate of the frame that it repeats.
        self._number += 1
        body = Writer().addresses(members).bytes()
        self._port.control(wire.GROUP, kind, wire.FD_SOCK2, self._number, body=body)

    def _record(self, what: int, member: Address, now: float) -> None:
        self._port.tracer.record(
            trace.SUSPECT, now, protocol=wire.FD_SOCK2, stream=what, peer=member.short
        )


def _unpack_untrusted(body: bytes) -> tuple[Address, ...]:
    """Return the members that a SUSPECT or UNSUSPECT names."""
    reader = Reader(body)
    named = reader.addresses_untrusted()
    reader.end_untrusted()
    return named
