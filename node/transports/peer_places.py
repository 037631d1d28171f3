"""The places of members: the addresses that they give, as a socket wants them."""

from __future__ import annotations

import socket
from collections.abc import Container, Iterable, Sequence
from typing import Final

from stormcast.node.core.contacts import MAX_KNOWN, MAX_PROVED
from stormcast.node.core.model import Address
from stormcast.node.settings.transports import PORTS
from stormcast.node.transports.interfaces import Interface, SocketAddress

MAX_NAMED: Final = MAX_KNOWN
"""Members of past views that are still asked, at the places that views named: so groups that were
apart find each other."""
MAX_LEARNED: Final = 4096
"""Members and strangers whose place is remembered."""
MAX_HEARD: Final = MAX_LEARNED // 2
"""Of them, those whose place is the source of their frames; the oldest is forgotten first."""


class Places:
    """The places of members and of strangers, up to a bound."""

    def __init__(self, interface: Interface, own: Address, kept: Container[int]) -> None:
        self.at: dict[int, SocketAddress] = {}
        """By short id. The dict is never replaced, so callers may keep it."""
        self.own = own
        self._interface = interface
        self._kept = kept
        """Short ids that a full table does not forget."""
        self._named: dict[int, Address] = {}
        """Members of all views of this member, the latest last."""
        self._proved: dict[int, Address] = {}
        """Strangers that proved to be where they say, the latest last."""

    def resolve(self, where: str) -> SocketAddress | None:
        """Return the socket address of a place; None if nothing can be sent there from here."""
        at = parse_where(where)
        return at if at is None else self._interface.reach(at)

    def locate(self, address: Address) -> bool:
        """Remember the place that an address names; False for one that leads nowhere, or here. Who
        was in a view stays where that said, and who proved to be somewhere stays there: anybody can
        send an address with another place."""
        short = address.short
        at = self.resolve((self._named.get(short) or self._proved.get(short, address)).where)
        if at is None or address == self.own:
            return False
        self.put(address.short, at)
        return True

    def shorts_at(self, at: SocketAddress) -> set[int]:
        """Return the short ids of those whose place this is."""
        return {short for short, place in self.at.items() if place == at}

    def trust(self, stranger: Address) -> None:
        """Remember where a stranger is that has proved it."""
        self._proved.pop(stranger.short, None)
        self._proved[stranger.short] = stranger
        if len(self._proved) > MAX_PROVED:
            del self._proved[next(iter(self._proved))]
        if not self.locate(stranger):
            # A place that its frames came from is not proved: they may have been forged.
            self.at.pop(stranger.short, None)

    def doubt(self, short: int) -> None:
        """Forget where a stranger proved to be: it proves it again, or another one does."""
        self._proved.pop(short, None)

    def is_fixed(self, short: int) -> bool:
        """Whether a view has said where a member is, or a stranger has proved it."""
        return short in self._named or short in self._proved

    def put(self, short: int, at: SocketAddress) -> None:
        """Remember the place of a short id."""
        if len(self.at) >= MAX_LEARNED and short not in self.at:
            # Between two views, strangers can name any number of members.
            self.forget_all_but({one for one in self.at if one in self._kept or self.is_fixed(one)})
        self.at[short] = at

    def forget_all_but(self, kept: Container[int]) -> None:
        """Forget the places of all others."""
        for short in [short for short in self.at if short not in kept]:
            del self.at[short]

    def on_view(self, members: Sequence[Address]) -> None:
        """Remember where the members of a view are, also for when they have left it."""
        for member in members:
            self._named.pop(member.short, None)
            self._named[member.short] = member
            self._proved.pop(member.short, None)
            self.locate(member)
        for stranger in self._proved.values():
            self.locate(stranger)
        while len(self._named) > MAX_NAMED:
            del self._named[next(iter(self._named))]

    def of_everyone(self, listed: Iterable[SocketAddress]) -> dict[SocketAddress, None]:
        """Return the destinations of a frame for everyone: the listed hosts, and the members of
        present and past views. Places that strangers name are not asked."""
        told = dict.fromkeys(listed)
        for member in self._named.values():
            at = self.resolve(member.where)
            if at is not None and member != self.own:
                told[at] = None
        return told


class HeardPlaces:
    """Places for datagrams: a peer whose address is not known is answered where its frames come
    from."""

    def __init__(self, interface: Interface, own: Address) -> None:
        self._told: set[int] = set()
        """Short ids whose place their address has named since the last view: no frame changes it.
        """
        self._heard: dict[int, None] = {}
        """Short ids whose place is the source of their frames, the latest last."""
        self.places = Places(interface, own, self._told)

    def locate(self, address: Address) -> bool:
        """Remember the place that an address names; False if there were too many since the last
        view."""
        if len(self._told) >= MAX_LEARNED and address.short not in self._told:
            at = self.places.at
            # A cookie goes where the address says, or nowhere: not to who asks from elsewhere.
            if not self.places.is_fixed(address.short) and at.get(
                address.short
            ) != self.places.resolve(address.where):
                at.pop(address.short, None)
            return False
        if self.places.locate(address):
            self._told.add(address.short)
        return True

    def doubt(self, short: int) -> None:
        """Forget where a stranger proved to be, and that its address has named a place."""
        self._told.discard(short)
        self.places.doubt(short)

    def learn(self, short: int, source: SocketAddress) -> None:
        """Remember that frames of this member came from a source that is not its place. Whatever
        moved it there, the next frame of its own moves it back."""
        if short <= 0 or self._is_told(short):
            return  # Nobody's: the frames were good, but not for this member.
        # Not by `put`: a stranger for each frame must not have the table gone over for each.
        self.places.at[short] = source
        self._heard.pop(short, None)
        self._heard[short] = None
        if len(self._heard) > MAX_HEARD:
            oldest = next(iter(self._heard))
            del self._heard[oldest]
            if not self._is_told(oldest):
                self.places.at.pop(oldest, None)

    def _is_told(self, short: int) -> bool:
        return short in self._told or self.places.is_fixed(short)

    def on_view(self, members: Sequence[Address]) -> None:
        """Take in a view: frames may change the places of those again that were in no view, and if
        the table is more than half full, the places of all others are forgotten."""
        shorts = {member.short for member in members}
        if len(self.places.at) > MAX_LEARNED // 2:
            self.places.forget_all_but(shorts)
        self._told.clear()
        self._told.update(shorts)
        self.places.on_view(members)


def parse_where(where: str) -> SocketAddress | None:
    """Read `host[port]` of a member as a socket address; None if it is none. The host must be a
    number: a stranger's text must not make this member ask a name server."""
    host, bracket, port = where.removesuffix("]").partition("[")
    # `isdigit` alone is true of digits that `int` does not know.
    if not bracket or not (port.isascii() and port.isdigit()) or not 0 < int(port) < PORTS:
        return None
    return numeric(host, int(port))


def numeric(host: str, port: int) -> SocketAddress | None:
    """Return a numeric host as a socket address; None for a name."""
    host, _percent, scope = host.partition("%")
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, host)
        except (OSError, ValueError):
            # ValueError: a zero byte, which only a stranger writes.
            continue
        text = socket.inet_ntop(family, packed)
        if family == socket.AF_INET:
            return text, port
        return text, port, 0, _scope(scope)
    return None


def _scope(name: str) -> int:
    if not name:
        return 0
    try:
        number = int(name) if name.isascii() and name.isdigit() else socket.if_nametoindex(name)
    except (OSError, ValueError):
        return 0
    return number if number < 1 << 32 else 0
