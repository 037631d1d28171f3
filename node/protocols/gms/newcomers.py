"""Asks strangers that a merge would bring into the view to prove their addresses first.

A stranger that proved its own address may lead a merge, or answer in one, and name any number of
members at other addresses. In the view they would be sent all that members are sent. So each of
them is sent a cookie at the address that is claimed for it, and becomes a member only after it has
given it back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.contacts import MAX_ACCOUNTS

if TYPE_CHECKING:
    from stormcast.node.core.model import Address
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.gms.messages import MergeId
    from stormcast.node.protocols.gms.state import Membership

MOST_AT_ONCE: Final = MAX_ACCOUNTS // 2
"""Newcomers that are asked at once: the account of none of them may push out another's."""
PACKET: Final = wire.HEAD_SIZE + 64
"""Bytes of a cookie on the network, with the headers of its packet, at most."""


class Newcomers:
    """Strangers that the current merge would make members, and those of them that proved their
    address."""

    def __init__(self, state: Membership) -> None:
        self._state = state
        self._asked: dict[int, Address] = {}
        """By short id, strangers that were sent a cookie and have not given it back; the latest
        last. They outlive a merge: over a long path a cookie comes back when the merge is over, and
        is of use to the next one."""
        self._asked_now: set[Address] = set()
        """Strangers that were sent a cookie in the current merge, and have not given it back."""
        self._proved: set[Address] = set()

    def among(self, members: Collection[Address]) -> list[Address]:
        """Return those of the members that have not proved their address."""
        me, trusts = self._state.me, self._state.port.contacts.trusts
        return [one for one in members if one != me and one not in self._proved and not trusts(one)]

    def is_asked(self, member: Address) -> bool:
        """Whether a member was sent a cookie in this merge, and has not given it back."""
        return member in self._asked_now

    def ask(
        self, members: Sequence[Address], merge: MergeId, question: int, again: int, now: float
    ) -> None:
        """Send each member its cookie, with the number of the merge, as a rig would draw one fate
        for equal frames of all merges. Those from which nothing has come are sent no more bytes
        than `question`, the size of the frame that named them: nobody must be able to have more
        sent to others than it sends itself."""
        state, port = self._state, self._state.port
        for member in members[:MOST_AT_ONCE]:
            if not port.contacts.may_send(member.short, wire.HEAD_SIZE):
                if question < PACKET:
                    continue
                question -= PACKET
                port.contacts.heard(member.short, wire.HEAD_SIZE)
            if port.may_challenge(member):
                port.challenge(member)
                self._note_asked(member)
                cookie = state.proof.cookie(member, now)
                state.send(member.short, wire.PROVE, b"", lo=merge.number, mark=cookie, again=again)

    def _note_asked(self, member: Address) -> None:
        self._asked.pop(member.short, None)
        self._asked[member.short] = member
        self._asked_now.add(member)
        if len(self._asked) > MOST_AT_ONCE:
            del self._asked[next(iter(self._asked))]

    def take(self, head: Head, now: float) -> Address | None:
        """Take a cookie; return the member that has proved its address by it."""
        state = self._state
        member = self._asked.get(head.source)
        if member is None:
            state.port.drop("proof-unasked")
        elif not state.proof.is_good(member, head.mark, now):
            state.port.drop("proof")
        else:
            del self._asked[head.source]
            self._asked_now.discard(member)
            self._proved.add(member)
            state.port.prove(member)
            return member
        return None

    def clear(self) -> None:
        """Forget who was asked and has proved its place: the merge is over."""
        self._asked_now = set()
        self._proved = set()
