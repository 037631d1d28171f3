"""GMS as a layer: passes frames, events and timers to the part that handles them, then has the
coordinator make the views that follow.

Differences from JGroups. Views travel whole (a hundred members take 3 KB), by unicast frames that
are repeated until acked, not as differences and not through the multicast window. A merge leader
asks every member itself and sends it the merge view itself, with what that member needs to know
which of its windows stay; the leader is the creator of the merge view. Members that missed regular
views catch up without a merge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.protocols.gms.casting import Casting
from stormcast.node.protocols.gms.client import Client
from stormcast.node.protocols.gms.config import GmsConfig
from stormcast.node.protocols.gms.coordinator import JOIN_PACE, Coordinator
from stormcast.node.protocols.gms.leaving import Leaving
from stormcast.node.protocols.gms.merging import Merging
from stormcast.node.protocols.gms.messages import MAX_NUMBER
from stormcast.node.protocols.gms.participant import Participant
from stormcast.node.protocols.gms.state import MAX_STEP, DigestSource, Membership
from stormcast.node.protocols.gms.suspects import SUSPICION_LIFE
from stormcast.node.protocols.layer import Layer, MemberContext

if TYPE_CHECKING:
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.events import Found


class Gms(Layer):
    """Membership of one member. Keeps V1 to V4: views agree, grow, and hold their members."""

    protocol: ClassVar[int] = wire.GMS
    config_type: ClassVar[type[GmsConfig]] = GmsConfig

    def __init__(
        self,
        config: GmsConfig,
        context: MemberContext,
        digest_source: DigestSource,
        suspicion_life: float = SUSPICION_LIFE,
    ) -> None:
        super().__init__(config, context)
        state = Membership(config, context, digest_source)
        self._state = state
        self._casting = Casting(state)
        self._coordinator = Coordinator(state, self._casting, suspicion_life)
        self._client = Client(state)
        self._merging = Merging(state, self._casting, self._coordinator)
        self._leaving = Leaving(state, self._client, self._coordinator)
        self._participant = Participant(state, self._merging)
        self._seen: View | None = None
        """The view that all parts were told of."""
        self._told = 0

    # -- Verbs --------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin to join."""
        self._client.start(now)

    def on_discovered(self, found: Sequence[Found], now: float) -> None:
        """Go on joining with what discovery found."""
        self._client.on_discovered(found, now)
        self._follow(now)

    def on_confirmed(self, members: Collection[Address], now: float) -> None:
        """Exclude members that are dead, as far as can be verified."""
        members = [member for member in members if member != self._state.me]
        self._casting.stop_waiting_for(members)
        self._merging.on_suspected(members, now)
        self._coordinator.on_suspected(members, now)
        self._follow(now)

    def on_cleared(self, member: Address, now: float) -> None:
        """Keep a suspected member, which is alive."""
        self._coordinator.on_cleared(member)
        self._follow(now)

    def on_disagreement(
        self, views: Mapping[Address, View], heard: Mapping[Address, ViewId], now: float
    ) -> None:
        """Merge members that hold different views, if this member is to lead the merge. `heard` are
        the ids of the views that members said they hold, whether they have reported or not."""
        self._merging.on_disagreement(views, heard, now)
        self._follow(now)

    def on_lagging(self, member: Address, now: float) -> None:
        """Tell a member that holds an older view which view it misses."""
        if self._state.member(member.short) is not None:
            # Repeats must not have the same transmission number, or they share the fate of one.
            self._told = (self._told + 1) % (wire.MAX_TRANSMISSION + 1)
            self._state.say_view_id(member.short, wire.VIEW_ACK, self._told)

    def install_by_hand(self, view: View, now: float) -> None:
        """Install a view that nobody agreed on: tests and exhibits make members disagree by it. Not
        one whose number others refuse: they could never merge with this member."""
        require(
            self._state.is_plausible(view.id),
            f"the number of the view is {view.id.number}: write one of 1..{MAX_NUMBER - 1}, not "
            f"more than {MAX_STEP} above {self._state.ltime}, the highest so far",
        )
        self._state.forget_past()
        self._state.install(view)
        self._follow(now)

    def leave(self, now: float) -> None:
        """Leave gracefully; `Left` follows."""
        self._merging.cancel(now)
        self._leaving.start(now)
        self._follow(now)

    def stop(self, now: float) -> None:
        """Stop all repeats: a leaver has sent all it has to, a crashed member sends nothing."""
        self._state.repeats.clear()

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Take one frame of membership."""
        if self._state.is_gone:
            self._port.drop("left")
            return
        self._dispatch_untrusted(head, body, now)
        self._follow(now)

    def _dispatch_untrusted(self, head: Head, body: bytes, now: float) -> None:
        kind = head.kind
        if kind == wire.VIEW:
            self._participant.on_view_untrusted(head, body, now)
        elif kind == wire.VIEW_ACK:
            self._casting.on_ack_untrusted(head, body, now)
        elif kind == wire.JOIN_REQ:
            self._coordinator.on_join_untrusted(head, body, now)
        elif kind == wire.JOIN_RSP:
            self._client.on_answer_untrusted(head, body, now)
        elif kind == wire.COOKIE:
            asker = self._merging if self._merging.is_leading else self._client
            asker.on_cookie(head, now)
        elif kind == wire.PROVE:
            self._state.send(
                head.source, wire.PROOF, b"", lo=head.lo, mark=head.mark, again=head.transmission
            )
        elif kind == wire.LEAVE_REQ:
            self._coordinator.on_leave_untrusted(head, body, now)
        elif kind == wire.LEAVE_RSP:
            self._leaving.on_answer_untrusted(head, body)
        elif kind == wire.GET_VIEW:
            self._casting.on_get_view_untrusted(head, body, now)
        else:
            self._dispatch_merge_untrusted(head, body, now)

    def _dispatch_merge_untrusted(self, head: Head, body: bytes, now: float) -> None:
        kind = head.kind
        if kind in {wire.MERGE_REQ, wire.GET_DIGEST_REQ}:
            self._merging.on_request_untrusted(head, body, now)
        elif kind in {wire.MERGE_RSP, wire.GET_DIGEST_RSP}:
            self._merging.on_answer_untrusted(head, body, now)
        elif kind == wire.CANCEL_MERGE:
            self._merging.on_cancel_untrusted(head, body, now)
        elif kind == wire.PROOF:
            self._merging.on_proof(head, now)
        else:
            raise BadFrame("kind")

    def on_timer(self, what: str, now: float) -> None:
        """Pass a timer that is due to its part."""
        if self._state.is_gone:
            return
        if what == "repeat":
            self._state.repeats.on_timer(now)
        elif what == "join":
            self._client.on_timer(now)
        elif what == "acks":
            self._casting.on_timer()
        elif what == "leave":
            self._leaving.on_timer()
        elif what == JOIN_PACE:
            # `_follow` has the joiners that waited for it in the next view.
            pass
        else:
            self._merging.on_timer(what, now)
        self._follow(now)

    def bounds(self) -> dict[str, float]:
        """Return the seconds that joins, leaves, merges and the acks of a view may take."""
        config = self.config
        rounds = config.max_join_attempts or float("inf")
        return {
            "join": rounds * (2 * config.join_timeout + config.all_clients_retry_timeout),
            "leave": config.leave_timeout + config.view_ack_collection_timeout,
            "merge": 2 * config.merge_timeout,
            "merge_hold": self._merging.longest_hold(),
            "view_acks": config.view_ack_collection_timeout,
        }

    # -- What follows -------------------------------------------------------------------------

    def _follow(self, now: float) -> None:
        """Tell all parts of a new view, and have the next one made if it is due; repeat until no
        new view follows."""
        state = self._state
        while not state.is_gone:
            state.take_put_off()
            view = state.view
            if view is not None and view is not self._seen:
                self._seen = view
                self._client.on_installed()
                self._coordinator.on_installed(view)
                self._casting.on_installed(view)
                self._merging.on_installed(view, now)
            self._coordinator.process(now)
            if state.view is view:
                self._leaving.look(now)
                return
