"""FD_SOCK2: each member keeps a connection to its neighbour; when that closes, the neighbour is
gone. Notices crashed processes at once, but no hung ones and no cut cables: FD_ALL3 does.

The neighbour is the next member in the ring of the view. A member that refuses, or does not answer,
is suspected and skipped, so a row of dead neighbours is found in one walk. Suspicions are sent to
everybody and repeated until a view without the suspects; the member that would coordinate without
the suspects reports them to the other protocols.

Differences from JGroups: a member that leaves says so to its left neighbour, which then does not
suspect it when the connection closes. A member that was cleared is tried again at once only if the
last try is `suspect_msg_interval` ago, so a port that always refuses costs two messages per
interval and not per round trip. What was found is sent after `connect_timeout`, even while the walk
goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, TypeVar

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import Address, View
from stormcast.node.core.packing import Reader, Writer
from stormcast.node.core.policy import is_first
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Lagging, Suspected
from stormcast.node.protocols.layer import Layer, MemberContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FdSock2Config:
    """Settings of FD_SOCK2. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    offset: int = 100
    """The detector listens on the transport's port plus this."""

    port_range: int = 3
    """How many more ports are tried, at either end, if that one is taken."""

    connect_timeout: float = 1.0
    """What one port may take to answer. All together are the price of a host that is gone."""

    suspect_msg_interval: float = 5.0
    """Between two repeats of a suspicion, and two tries to reach a member that was cleared."""

    def __post_init__(self) -> None:
        require(
            0 < self.offset < 1 << 16,
            f"fd_sock2.offset is {self.offset}: it must be 1..{(1 << 16) - 1}",
        )
        for name in ("connect_timeout", "suspect_msg_interval"):
            value = getattr(self, name)
            require(value > 0, f"fd_sock2.{name} is {value:g}: it must be positive")
        require(
            self.port_range >= 0,
            f"fd_sock2.port_range is {self.port_range}: it must not be negative",
        )

    @property
    def patience(self) -> float:
        """Seconds after which a member is taken not to answer on any port."""
        return self.connect_timeout * (self.port_range + 1)


class FdSock2(Layer):
    """Watches the next member of the ring that can be reached."""

    protocol = wire.FD_SOCK2
    config_type = FdSock2Config
    config: FdSock2Config

    def __init__(
        self,
        config: FdSock2Config,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self.suspects: dict[int, Address] = {}
        """Members that anybody suspects. Members of the view only, as in the tables below."""
        self.watched: Address | None = None
        """The neighbour to which a connection is open."""
        self._wanted: Address | None = None
        """The member to which a connection is being opened."""
        self._skipped: dict[int, float] = {}
        """From when on a member that could not be reached may be tried again."""
        self._tried: dict[int, float] = {}
        """When this member last began to connect to a member."""
        self._found: dict[int, Address] = {}
        """Suspects of the current walk, not yet sent to others."""
        self._told: dict[int, Address] = {}
        """Suspects of this member that it sends to others, until a view without them."""
        self._parting: set[int] = set()
        """Members that said that they leave."""
        self._ring: tuple[Address, ...] = ()
        """The last view's members: `role.view` may be gone when a goodbye is due."""
        self._repeats = 0
        self._number = 0
        self._is_stopped = False

    # -- The verbs ----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        sender = self._member(head.source)
        if sender is None:
            self._port.drop("stranger")
        elif head.kind == wire.SUSPECT:
            self._on_suspect(sender, _unpack_untrusted(body), now)
        elif head.kind == wire.UNSUSPECT:
            cleared = _unpack_untrusted(body)
            if self.suspects.keys().isdisjoint(member.short for member in cleared):
                self._port.drop("not-suspected")
            self._restore(cleared, now)
        elif head.kind == wire.CLOSE and not body:
            self._parting.add(sender.short)
            # The frame may come after the end of the connection, but before others were told of it.
            if self._found.pop(sender.short, None) is not None:
                self.wake_by("part", now + self.config.suspect_msg_interval)
        else:
            raise BadFrame("kind")

    def on_timer(self, what: str, now: float) -> None:
        if what == "connect":
            self._fail(now)
        elif what == "tell":
            self._tell_found(now)
        elif what == "repeat":
            self._repeat(now)
        elif what == "part":
            self._part(now)
        else:
            self._walk(now)

    def on_view(self, view: View, now: float) -> None:
        members = {member.short for member in view.members}
        self._ring = view.members
        self.suspects = _only(self.suspects, members)
        self._found = _only(self._found, members)
        self._told = _only(self._told, members)
        self._tried = _only(self._tried, members)
        self._parting &= members
        # All members are tried again, except those that were tried too short a time ago.
        self._skipped = {
            short: when for short, when in _only(self._skipped, members).items() if when < inf
        }
        if not self._told:
            self.cancel("repeat")
        if self.watched is not None and self.watched.short not in members:
            # A member that is out of the view may close its connection: that is no suspicion.
            self._port.links.append((self.watched.short, False))
            self.watched = None
        self._walk(now)

    def stop(self, now: float) -> None:
        self._is_stopped = True
        self._say_goodbye()
        self._unwatch()
        for what in ("connect", "tell", "repeat", "part", "retry"):
            self.cancel(what)
        self.suspects.clear()
        self._told.clear()
        self._found.clear()

    def bounds(self) -> dict[str, float]:
        config = self.config
        return {
            "connect_within": config.patience,
            "suspect_spacing": config.suspect_msg_interval,
        }

    def on_link(self, peer: int, is_up: bool, now: float) -> None:  # noqa: FBT001 it is the whole message
        """React to a requested connection that was opened, refused or closed."""
        if self._is_stopped:
            return
        if self._wanted is not None and peer == self._wanted.short:
            if is_up:
                self._reach(now)
            else:
                self._fail(now)
        elif self.watched is not None and peer == self.watched.short:
            if not is_up:
                lost, self.watched = self.watched, None
                self._miss(lost, now)
                self._walk(now)
        elif is_up:
            # The member answered after it was given up.
            self._port.links.append((peer, False))

    def on_cleared(self, member: Address, now: float) -> None:
        """Tell everybody that a suspect is alive."""
        if member.short in self.suspects:
            self._send(wire.UNSUSPECT, [member])
            self._restore([member], now)

    # -- The ring -----------------------------------------------------------------------------

    def _member(self, short: int) -> Address | None:
        for member in self.role.members:
            if member.short == short:
                return member
        return None

    def _neighbour(self, now: float) -> Address | None:
        """The next member after this one that may be tried."""
        members = self.role.members
        if self.role.address not in members:
            return None
        at = members.index(self.role.address)
        for member in members[at + 1 :] + members[:at]:
            if self._skipped.get(member.short, 0.0) <= now:
                return member
        return None

    def _walk(self, now: float) -> None:
        """Connect to the neighbour, unless this member is connected, or connecting, to it."""
        if self._is_stopped:
            return
        neighbour = self._neighbour(now)
        if neighbour is None:
            self._unwatch()
            self._tell_found(now)
        elif neighbour == self.watched:
            self._give_up_wanted()
            self._tell_found(now)
        elif neighbour != self._wanted:
            self._give_up_wanted()
            self._wanted = neighbour
            self._tried[neighbour.short] = now
            self._port.links.append((neighbour.short, True))
            self.wake_at("connect", now + self.config.patience)
        later = min((when for when in self._skipped.values() if when > now), default=inf)
        self.wake_at("retry", later)

    def _reach(self, now: float) -> None:
        """Watch the neighbour that has answered, in place of the one before."""
        self.cancel("connect")
        old, self.watched, self._wanted = self.watched, self._wanted, None
        if old is not None:
            self._port.links.append((old.short, False))
        self._tell_found(now)

    def _fail(self, now: float) -> None:
        """Try the next member: the neighbour refused, or did not answer in time."""
        lost = self._wanted
        self._give_up_wanted()
        if lost is not None:
            self._miss(lost, now)
        self._walk(now)

    def _miss(self, lost: Address, now: float) -> None:
        self._skipped[lost.short] = inf
        if lost.short in self._parting:
            self.wake_by("part", now + self.config.suspect_msg_interval)
        else:
            self._found[lost.short] = lost
            self.wake_by("tell", now + self.config.connect_timeout)

    def _give_up_wanted(self) -> None:
        if self._wanted is not None:
            self._port.links.append((self._wanted.short, False))
            self._wanted = None
            self.cancel("connect")

    def _unwatch(self) -> None:
        self._give_up_wanted()
        if self.watched is not None:
            self._port.links.append((self.watched.short, False))
            self.watched = None

    # -- Leaving ------------------------------------------------------------------------------

    def _say_goodbye(self) -> None:
        """Tell the left neighbour, whose connection to this member is about to end, that this
        member leaves. Twice, because a frame may be lost."""
        members = self._ring
        if self.role.address in members and len(members) > 1:
            left = members[members.index(self.role.address) - 1]
            for transmission in (0, 1):
                self._port.control(left.short, wire.CLOSE, self.protocol, transmission=transmission)

    def _part(self, now: float) -> None:
        """Suspect members that said that they leave, are gone, and are still in the view."""
        for short in sorted(self._parting):
            member = self._member(short)
            if member is not None and self._skipped.get(short) == inf:
                self._found[short] = member
        self._parting.clear()
        self._tell_found(now)

    # -- Suspicion ----------------------------------------------------------------------------

    def _tell_found(self, now: float) -> None:
        """Tell everybody what the walk found so far."""
        self.cancel("tell")
        found, self._found = self._found, {}
        if found:
            self._told |= found
            self._repeats = 0
            self._repeat(now)

    def _repeat(self, now: float) -> None:
        if not self._told:
            return
        told = list(self._told.values())
        self._send(wire.SUSPECT, told)
        wait = self.timing.repeat_wait(self.config.suspect_msg_interval, self._repeats)
        self._repeats += 1
        self.wake_at("repeat", now + wait)
        self._suspect(told, now)

    def _on_suspect(self, sender: Address, named: tuple[Address, ...], now: float) -> None:
        members = set(self.role.members)
        # The sender names members that are not in the view: it missed a view.
        if self.role.is_coordinator and any(member not in members for member in named):
            self._port.events.append(Lagging(sender))
        elif members.isdisjoint(named):
            self._port.drop("not-a-member")
        self._suspect([member for member in named if member in members], now)

    def _suspect(self, named: Iterable[Address], now: float) -> None:
        """Note suspects; report all of them if this member would coordinate without them."""
        me = self.role.address
        new = [member for member in named if member != me]
        for member in new:
            if member.short not in self.suspects:
                self.suspects[member.short] = member
                self._record(trace.SUSPECTED, member, now)
        everyone = tuple(self.suspects.values())
        if new and is_first(me, self.role.members, everyone):
            self._port.events.append(Suspected(everyone))

    def _restore(self, named: Iterable[Address], now: float) -> None:
        """Stop suspecting members that are alive: they may be watched again."""
        for member in named:
            short = member.short
            if self.suspects.pop(short, None) is None:
                continue
            self._record(trace.CLEARED, member, now)
            self._told.pop(short, None)
            if short in self._skipped:
                pace = self._tried.get(short, -inf) + self.config.suspect_msg_interval
                self._skipped[short] = max(now, pace)
        if not self._told:
            self.cancel("repeat")
        self._walk(now)

    def _send(self, kind: int, members: list[Address]) -> None:
        # Numbered: a repeat must not share the fate of the frame that it repeats.
        self._number += 1
        self._port.control(
            wire.GROUP,
            kind,
            self.protocol,
            self._number,
            body=Writer().addresses(members).bytes(),
        )

    def _record(self, what: int, member: Address, now: float) -> None:
        self._port.tracer.record(
            trace.SUSPECT, now, protocol=self.protocol, stream=what, peer=member.short
        )


def _only(table: dict[int, T], members: set[int]) -> dict[int, T]:
    return {short: value for short, value in table.items() if short in members}


def _unpack_untrusted(body: bytes) -> tuple[Address, ...]:
    """The members that a SUSPECT or UNSUSPECT names."""
    reader = Reader(body)
    named = reader.addresses_untrusted()
    reader.end_untrusted()
    return named
