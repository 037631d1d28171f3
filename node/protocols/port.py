"""A protocol's access to its member: lists to enqueue into, and nothing that calls back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.contacts import Contacts
from stormcast.node.core.strangers import Strangers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stormcast.node.core.codec import Codec
    from stormcast.node.core.model import Address, Delivery
    from stormcast.node.protocols.events import Event
    from stormcast.node.trace.tracer import Tracer

EVERYONE: Final = -1
"""Destination of a frame that must reach members of other groups, too: over a network with
multicast, the multicast group; over connections, every address that discovery knows."""

Frame = tuple[int, bytes, bytes]
"""Destination (a short id, wire.GROUP or EVERYONE), head, body: two parts, so that a transport may
gather instead of copy."""


class Abandoned(NamedTuple):
    """Messages that this member accepted, then gave up; some may have arrived."""

    dest: int
    """A short id, or wire.GROUP."""
    count: int  # type: ignore[assignment]  # hides tuple.count
    why: str
    last: int
    """Number of the last of them among the application's messages to `dest`."""


class Port:
    """The interface between a protocol and the stack: protocols only enqueue, the stack takes."""

    __slots__ = (
        "abandoned",
        "challenged",
        "closed",
        "codec",
        "contacts",
        "deliveries",
        "doubted",
        "drops",
        "events",
        "frames",
        "links",
        "located",
        "me",
        "proved",
        "strangers",
        "tracer",
        "waiting",
        "withheld",
        "woken",
    )

    def __init__(self, codec: Codec, tracer: Tracer) -> None:
        self.codec = codec
        self.me = codec.source
        self.tracer = tracer
        self.frames: list[Frame] = []
        self.deliveries: list[Delivery] = []
        self.withheld: list[Delivery] = []
        """Deliveries of windows that were removed while the application takes none."""
        self.woken: list[int] = []
        """Destinations whose window has room again."""
        self.abandoned: list[Abandoned] = []
        """Messages that were given up; the application is told."""
        self.strangers = Strangers()
        """The budget for what is kept of strangers: senders that are not in the view."""
        self.contacts = Contacts()
        """The addresses that frames may go to, with a bound for each stranger."""
        self.waiting: set[int] = set()
        """Destinations for which messages wait in the outbox, for a window or for credits."""
        self.closed: list[int] = []
        """Peers whose sender entry was removed."""
        self.drops: dict[str, int] = {}
        """By reason, the number of refusals in this turn; the stack records and counts them."""
        self.events: list[Event] = []
        """Events for other protocols of this member."""
        self.located: dict[int, Address] = {}
        """Members that were named, by short id: their addresses tell a transport where they are."""
        self.proved: list[Address] = []
        """Strangers that were proved to be where their addresses say."""
        self.doubted: list[int] = []
        """Short ids of strangers whose proof is void: another address has the same short id."""
        self.challenged: dict[int, Address] = {}
        """Strangers that are sent a cookie in this turn, by short id."""
        self.links: list[tuple[int, bool]] = []
        """Monitored connections to open (True) or to close, by peer; see FD_SOCK2."""

    def locate(self, addresses: Iterable[Address]) -> None:
        """Note those of the addresses that say where the member is."""
        for address in addresses:
            # Where a cookie goes in this turn is not for others to say.
            if address.where and self._is_unchallenged(address):
                self.located[address.short] = address

    def _is_unchallenged(self, address: Address) -> bool:
        """Whether no cookie for another place goes to this short id in this turn."""
        return self.challenged.get(address.short, address).where == address.where

    def admitted(self, frames: list[Frame]) -> list[Frame]:
        """Return the frames of a turn, but no more to a stranger than came in its name."""
        self.challenged.clear()
        contacts = self.contacts
        if not contacts.is_on:
            return frames
        trusted, takes = contacts.trusted, contacts.takes
        taken = [frame for frame in frames if frame[0] in trusted or takes(*frame)]
        if len(taken) < len(frames):
            self.drop("stranger-answer", len(frames) - len(taken))
        return taken

    def may_challenge(self, stranger: Address) -> bool:
        """Whether frames to this short id can go to this address in this turn. A cookie must go
        there and nowhere else, and frames name their receiver by its short id alone."""
        if self._is_unchallenged(stranger) and not self.contacts.is_taken(stranger):
            return True
        self.drop("short-id-taken")
        return False

    def reach(self, stranger: Address, came: int) -> None:
        """Have frames to a stranger that does not answer go to the address it gives, if another
        stranger proved a different address for the same short id. A frame of `came` bytes was heard
        from it."""
        proved = self.contacts.proved.get(stranger.short, stranger)
        if not proved.is_at_same_place(stranger) and self._is_unchallenged(stranger):
            self.challenge(stranger, came)

    def challenge(self, stranger: Address, came: int = wire.HEAD_SIZE) -> None:
        """Have frames to a stranger go where its address says: it is sent a cookie. A stranger that
        had proved another address for the same short id has to prove it again."""
        short = stranger.short
        self.challenged[short] = stranger
        if self.contacts.doubt(short, came):
            self.doubted.append(short)
            self.proved = [one for one in self.proved if one.short != short]
        self.locate((stranger,))

    def prove(self, address: Address) -> None:
        """Note that a stranger has proved to be where its address says."""
        self.contacts.prove(address)
        self.proved.append(address)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count something refused or thrown away."""
        self.drops[reason] = self.drops.get(reason, 0) + count

    def control(
        self,
        dest: int,
        kind: int,
        protocol: int,
        lo: int = 0,
        *,
        body: bytes = b"",
        conn: int = 0,
        mark: int = 0,
        stamp: int = 0,
        flags: int = 0,
        transmission: int = 0,
    ) -> None:
        """Send a control frame. `transmission` tells repeats apart: the fate of a frame is drawn
        from its preamble, so a repeat that equals a lost frame would be lost for ever."""
        frame = self.codec.pack_control(
            kind,
            protocol,
            dest if dest > 0 else wire.GROUP,
            conn,
            lo,
            transmission=wire.told_apart(transmission),
            mark=mark,
            stamp=stamp,
            flags=flags,
            body=body,
        )
        self.frames.append((dest, frame, b""))
