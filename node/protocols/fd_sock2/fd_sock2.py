"""One member's watch over the next member of the ring that can be reached."""

from __future__ import annotations

from math import inf
from typing import TypeVar

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View
from stormcast.node.core.wire import Head
from stormcast.node.protocols.fd_sock2.config import FdSock2Config
from stormcast.node.protocols.fd_sock2.suspicions import Suspicions
from stormcast.node.protocols.layer import Layer, MemberContext

T = TypeVar("T")


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
        self._suspicions = Suspicions(self, context.port, config.suspect_msg_interval)
        self.suspects = self._suspicions.suspects
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
        self._parting: dict[int, float] = {}
        """Members that said that they leave, and when they are suspected if they are still in the
        view by then: once their connection has ended."""
        self._ring: tuple[Address, ...] = ()
        """The last view's members: `role.view` may be gone when a goodbye is due."""
        self._is_stopped = False

    # -- The verbs ----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        sender = self._member(head.source)
        if sender is None:
            self._port.drop("stranger")
        elif head.kind == wire.SUSPECT:
            self._suspicions.on_suspect(sender, body, now)
        elif head.kind == wire.UNSUSPECT:
            self._watch_again(self._suspicions.on_unsuspect(body, now), now)
        elif head.kind == wire.CLOSE and not body:
            self._parting.setdefault(sender.short, inf)
            # The frame may come after the end of the connection, but before others were told of it.
            if self._found.pop(sender.short, None) is not None:
                self._let_part(sender.short, now)
        else:
            raise BadFrame("kind")

    def on_timer(self, what: str, now: float) -> None:
        if what == "connect":
            self._fail(now)
        elif what == "tell":
            self._tell_found(now)
        elif what == "repeat":
            self._suspicions.repeat(now)
        elif what == "part":
            self._part(now)
        else:
            self._walk(now)

    def on_view(self, view: View, now: float) -> None:
        members = {member.short for member in view.members}
        self._ring = view.members
        self._suspicions.keep(members)
        self._found = _only(self._found, members)
        self._tried = _only(self._tried, members)
        self._parting = _only(self._parting, members)
        self._wait_for_parting()
        # All members are tried again, except those that were tried too short a time ago.
        self._skipped = {
            short: when for short, when in _only(self._skipped, members).items() if when < inf
        }
        if self.watched is not None and self.watched.short not in members:
            # A member that is out of the view may close its connection: that is no suspicion.
            self._port.links.append((self.watched.short, False))
            self.watched = None
        self._walk(now)

    def stop(self, now: float) -> None:
        self._is_stopped = True
        self._say_goodbye()
        self._unwatch()
        for what in ("connect", "tell", "part", "retry"):
            self.cancel(what)
        self._suspicions.clear()
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
            self._watch_again(self._suspicions.on_cleared(member, now), now)

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
            self._let_part(lost.short, now)
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

    def _let_part(self, short: int, now: float) -> None:
        """Give a leaver, whose connection has ended, time until the view without it."""
        end = now + self.config.suspect_msg_interval
        self._parting[short] = min(self._parting[short], end)
        self._wait_for_parting()

    def _wait_for_parting(self) -> None:
        self.wake_at("part", min(self._parting.values(), default=inf))

    def _part(self, now: float) -> None:
        """Suspect members that said that they leave, are long gone, and are still in the view."""
        for short in sorted(short for short, end in self._parting.items() if end <= now):
            del self._parting[short]
            member = self._member(short)
            if member is not None and self._skipped.get(short) == inf:
                self._found[short] = member
        self._wait_for_parting()
        self._tell_found(now)

    # -- Suspicion ----------------------------------------------------------------------------

    def _tell_found(self, now: float) -> None:
        """Tell everybody what the walk found so far."""
        self.cancel("tell")
        found, self._found = self._found, {}
        if found:
            self._suspicions.tell(found, now)

    def _watch_again(self, restored: list[Address], now: float) -> None:
        """Let members that are alive be watched again."""
        for member in restored:
            short = member.short
            if short in self._skipped:
                pace = self._tried.get(short, -inf) + self.config.suspect_msg_interval
                self._skipped[short] = max(now, pace)
        self._walk(now)


def _only(table: dict[int, T], members: set[int]) -> dict[int, T]:
    return {short: value for short, value in table.items() if short in members}
