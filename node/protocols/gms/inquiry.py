"""Asks members for the views they hold, as the leader of a merge, and keeps their answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from stormcast.node.core import wire
from stormcast.node.core.model import Address
from stormcast.node.core.packing import MAX_MEMBERS, MAX_NAMED
from stormcast.node.core.wire import Head
from stormcast.node.protocols.gms.messages import MergeAnswer, MergeId, pack_merge_id

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.coordinator import Coordinator
    from stormcast.node.protocols.gms.newcomers import Newcomers
    from stormcast.node.protocols.gms.state import Membership


class Inquiry:
    """The members that the leader of the current merge asked, and their answers."""

    def __init__(self, state: Membership, coordinator: Coordinator, newcomers: Newcomers) -> None:
        self._state = state
        self._newcomers = newcomers
        self._coordinator = coordinator
        self._merge: MergeId | None = None
        self.asked: dict[int, Address] = {}
        """By short id; this member is among them."""
        self.answers: dict[Address, MergeAnswer] = {}
        self._doubtful: dict[Address, MergeAnswer] = {}
        """Answers of members that have yet to prove where they are."""
        self._waiting: set[Address] = set()
        """Members that have not answered, or not proved where they are."""
        self._named = 0
        """Members that the answers name, counted as often as they are named."""

    @property
    def is_complete(self) -> bool:
        """Whether nobody's answer is missing."""
        return not self._waiting

    def begin(self, own: MergeAnswer) -> None:
        """Begin with this member's own answer."""
        me = self._state.me
        self._merge = own.merge
        self.asked = {me.short: me}
        self.answers = {me: own}

    def ask(self, member: Address, kind: int, now: float) -> None:
        """Ask a member, once, unless it is believed dead; the number of members is bounded, because
        answers may name members that do not exist."""
        is_known = member.short in self.asked or member in self._coordinator.suspects(now)
        if is_known or len(self.asked) >= MAX_MEMBERS:
            return
        assert self._merge is not None
        self.asked[member.short] = member
        self._waiting.add(member)
        self._state.repeats.say(
            ("merge", member.short),
            member.short,
            kind,
            self._merge.number,
            pack_merge_id(self._merge),
            now,
        )

    def take(self, head: Head, answer: MergeAnswer, now: float) -> bool:
        """Take an answer, and ask whom it names; return whether it was waited for."""
        state = self._state
        member = self.asked.get(head.source)
        if member is None or answer.merge != self._merge:
            state.port.drop("merge-unknown")
        elif member not in answer.view.members or not state.is_plausible(answer.view.id):
            state.port.drop("merge-answer")
        elif member in self._waiting:
            before = self._doubtful.pop(member, None)
            if before is not None:
                self._named -= len(before.view.members)
            if self._named + len(answer.view.members) > MAX_NAMED:
                state.port.drop("merge-too-large")
                return False
            self._named += len(answer.view.members)
            if not self._newcomers.among((member,)):
                self._believe(member, answer, now)
                return True
            self._doubtful[member] = answer
            # It was asked with the question; that it answers again says that this was lost.
            if before is not None or not self._newcomers.is_asked(member):
                self._newcomers.ask((member,), answer.merge, 0, head.transmission, now)
        return False

    def _believe(self, member: Address, answer: MergeAnswer, now: float) -> None:
        state = self._state
        self._waiting.discard(member)
        self.answers[member] = answer
        state.repeats.stop(("merge", member.short))
        state.ltime = max(state.ltime, answer.view.id.number)
        if not answer.is_rejected:
            for other in answer.view.members:
                self.ask(other, wire.GET_DIGEST_REQ, now)

    def on_proof(self, member: Address, now: float) -> bool:
        """Take the answer of a member that has proved where it is; return whether there is one."""
        answer = self._doubtful.pop(member, None)
        if answer is None:
            return False
        self._believe(member, answer, now)
        return True

    def on_cookie(self, head: Head, now: float) -> None:
        """Ask a member again that does not know this one: with the cookie that it sent. If this one
        does not know it either, it has to prove where it is, too, and may do so meanwhile."""
        assert self._merge is not None
        key = ("merge", head.source)
        if head.lo == self._merge.number and head.mark and key in self._state.repeats:
            self._state.repeats.prove(key, head.mark, now)
            newcomers = self._newcomers.among((self.asked[head.source],))
            self._newcomers.ask(newcomers, self._merge, 0, head.transmission, now)
        else:
            self._state.port.drop("merge-unknown")

    def forget(self, members: Collection[Address]) -> None:
        """Wait for these no longer, and go on without what they answered: they are dead."""
        for member in members:
            self._waiting.discard(member)
            self._doubtful.pop(member, None)
            if self.answers.pop(member, None) is None:
                self._state.repeats.stop(("merge", member.short))

    def end(self) -> None:
        """Ask nobody any more, and forget the answers."""
        self._state.repeats.stop_all(("merge", short) for short in self.asked)
        self._merge = None
        self.asked = {}
        self.answers = {}
        self._doubtful = {}
        self._named = 0
        self._waiting = set()
