"""State that the parts of membership share: the view, the Lamport time of views, frames and
timers."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.protocols.events import BecameServer, Install, ResumeStability, SuspendStability
from stormcast.node.protocols.gms.messages import MAX_NUMBER, pack_view_id
from stormcast.node.protocols.gms.repeats import Repeats
from stormcast.node.protocols.proof import Proof

if TYPE_CHECKING:
    from stormcast.node.core.digest import Digest
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.gms.config import GmsConfig
    from stormcast.node.protocols.layer import MemberContext

DigestSource = Callable[[], "Digest"]

MAX_STEP: Final = 1 << 32
"""No group is this many views ahead of another one: a number beyond is hostile."""
_CHAIN: Final = 50
"""Views of the past that are remembered."""


class Membership:
    """One member's knowledge of its group. Where there is GMS, it alone writes to the role."""

    def __init__(
        self,
        config: GmsConfig,
        context: MemberContext,
        digest_source: DigestSource,
    ) -> None:
        self.config = config
        self.role = context.role
        self.me = context.role.address
        self.port = context.port
        self.dice = context.dice
        self.digest_source = digest_source
        self._timers = context.timers
        self.largest_body = context.largest_body
        self.repeats = Repeats(
            context.port,
            context.timing,
            config.repeat_interval,
            lambda when: self.wake_by("repeat", when),
        )
        self.ltime = 0
        """The highest view number seen or made; a new view gets a higher one."""
        self.is_gone = False
        self._by_short: dict[int, Address] = {}
        self._chain: dict[ViewId, None] = {}
        """The latest views in order, back to the one that came with a digest. A member that holds
        one of them has missed regular views only, and needs no digest to catch up."""
        self.merged = 0
        """The number of the latest merge view that led to the current one, 0: none did."""
        self.expects_merge_view = False
        """Whether this member has answered the leader of a merge, and awaits its view."""
        self._put_off: tuple[View, Head] | None = None
        """The newest view that follows a merge view which may still come."""
        self._holds: set[str] = set()
        self.proof = Proof(context.dice)

    # -- The view -----------------------------------------------------------------------------

    @property
    def view(self) -> View | None:
        return self.role.view

    def member(self, short: int) -> Address | None:
        """The member of the view with this short id."""
        return self._by_short.get(short)

    def follows(self, view_id: ViewId) -> bool:
        """Whether regular views alone lead from `view_id` to the current view."""
        return view_id in self._chain

    def next_number(self) -> int:
        """Return the number of a new view. It counts as used from now on, whether the view is
        installed or not: two views of one creator never share a number."""
        held = self.view.id.number if self.view is not None else 0
        self.ltime = max(self.ltime, held) + 1
        return self.ltime

    def is_plausible(self, view_id: ViewId) -> bool:
        """Whether the number can be that of a view. Counting on from a hostile number would push
        the numbers of this group beyond what others accept."""
        return 0 < view_id.number < MAX_NUMBER and view_id.number - self.ltime <= MAX_STEP

    def obstacle(self, view: View) -> str:
        """Return why a view from the network cannot be installed; empty when it can.

        Numbers alone decide: a view with the current view's number is not newer, whoever created
        it.
        """
        if not self.is_plausible(view.id):
            return "view-number"
        number = view.id.number
        self.ltime = max(self.ltime, number)
        if self.view is not None and number <= self.view.id.number:
            return "view-old"
        if self.me not in view.members:
            return "view-without-me"
        return ""

    def forget_past(self) -> None:
        """Forget older views: no member that holds one may catch up to the next view."""
        self._chain.clear()

    def install(
        self, view: View, digest: Digest | None = None, mutual: frozenset[int] | None = None
    ) -> None:
        """Make `view` the current one, and tell the other protocols of this member."""
        assert self.me in view.members
        self.ltime = max(self.ltime, view.id.number)
        self.role.view = view
        self._by_short = {member.short: member for member in view.members}
        self._put_off = None
        if mutual is not None:
            self.merged = view.id.number
        if digest is not None:
            self._chain.clear()
        self._chain[view.id] = None
        if len(self._chain) > _CHAIN:
            del self._chain[next(iter(self._chain))]
        is_first = not self.role.is_server
        self.role.is_server = True
        self.port.events.append(Install(view, digest, mutual))
        if is_first:
            self.port.events.append(BecameServer())

    def take_regular(self, view: View, head: Head) -> None:
        """Install a regular view from a member of the current view, and answer with the id of the
        view that is held then."""
        assert self.view is not None
        if view.id != self.view.id:
            if obstacle := self.obstacle(view):
                self.port.drop(obstacle)
                if view.id.number >= self.view.id.number:
                    return
                # The sender may lag behind: the answer tells it so, and stops its repeats.
            elif self.expects_merge_view and self.view.id.number < head.mark:
                self._put_off_until_merged(view, head)
            else:
                self.note_merged(view, head)
                self.install(view)
        self.say_view_id(head.source, wire.VIEW_ACK, head.transmission)

    def note_merged(self, view: View, head: Head) -> None:
        """Note which merge view led to a regular one, as its sender says."""
        self.merged = max(self.merged, min(head.mark, view.id.number))

    def _put_off_until_merged(self, view: View, head: Head) -> None:
        """Do not take a view before the merge view that it follows, which says where windows
        begin. The answer has whoever can repeat the merge view do so."""
        self.port.drop("view-before-merge")
        if self._put_off is None or view.id.number > self._put_off[0].id.number:
            self._put_off = view, head

    def take_put_off(self) -> None:
        """Take the view that was put off, if no merge view comes any more: without it, what others
        multicast to this member since the merge would be lost."""
        if self._put_off is not None and not self.expects_merge_view:
            (view, head), self._put_off = self._put_off, None
            self.take_regular(view, head)

    def leave(self) -> None:
        """Drop view, repeats and suspensions: this member is out of the group."""
        self.is_gone = True
        self.role.view = None
        self.role.is_server = False
        self._by_short = {}
        self.repeats.clear()
        for reason in list(self._holds):
            self.resume(reason)

    # -- Stability ----------------------------------------------------------------------------

    def suspend(self, reason: str, seconds: float) -> None:
        """Suspend stability for this reason: a digest is in use."""
        self._holds.add(reason)
        self.port.events.append(SuspendStability(seconds))

    def resume(self, reason: str) -> None:
        """Drop a reason of `suspend`; purging goes on once no reason is left."""
        if reason in self._holds:
            self._holds.discard(reason)
            if not self._holds:
                self.port.events.append(ResumeStability())

    # -- Frames and time ----------------------------------------------------------------------

    def send(
        self, dest: int, kind: int, body: bytes, *, lo: int = 0, mark: int = 0, again: int = 0
    ) -> None:
        """Send a frame once. `again` is the transmission number of the question it answers, so that
        the answer to a repeated question has a fate of its own."""
        self.port.control(dest, kind, wire.GMS, lo, body=body, mark=mark, transmission=again)

    def believes(self, stranger: Address, head: Head, now: float) -> bool:
        """Whether a stranger has proved to be where it says; if not, it is sent its cookie."""
        return self.proof.believes(self.port, wire.GMS, stranger, head, now)

    def say_view_id(self, dest: int, kind: int, again: int) -> None:
        """Tell `dest` which view this member has: a VIEW_ACK or a GET_VIEW."""
        assert self.view is not None
        view_id = self.view.id
        self.send(dest, kind, pack_view_id(view_id), lo=view_id.number, again=again)

    def wake_at(self, what: str, when: float) -> None:
        """Call the layer's `on_timer(what)` at `when`; infinity is never."""
        self._timers.set((wire.GMS, what), when)

    def wake_by(self, what: str, when: float) -> None:
        """Call the layer's `on_timer(what)` at `when`, unless it is called earlier anyway."""
        if when < inf:
            self._timers.set_earlier((wire.GMS, what), when)
