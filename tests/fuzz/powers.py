"""What a frame may do to a group that has no keys: the frames that a member has to believe.

A check sum is no signature, so whoever is let in to the network can write frames in a member's
name. `power_of` says which of them a member cannot tell from true ones, and what they can change.
Frames without power are those against which the guarantees hold without keys, too. A group with
keys is sent all of them, and nothing may come of any.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

from stormcast.node.core import wire
from stormcast.node.core.codec import unpack_lengths_untrusted, unpack_ranges_untrusted
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST
from stormcast.node.core.packing import Reader
from stormcast.node.core.wire import Head
from stormcast.node.protocols.gms import messages
from tests.fuzz.facts import Facts
from tests.fuzz.reading import heard

WINDOWS: Final = frozenset({wire.UNICAST, wire.UNICAST2, wire.UNICAST3, wire.UNICAST4})
MULTICAST: Final = frozenset({wire.NAKACK2, wire.MCAST})
CREDITS: Final = frozenset({wire.UFC, wire.MFC})
T = TypeVar("T")
GUESSABLE: Final = 1 << 16
"""Checks of MERGE3 and merges are counted from 1: a stranger may guess their numbers."""


class Power(Enum):
    """What a believed frame may change, at worst."""

    NONE = "none"
    MESSAGES = "messages"
    """It is delivered, or has messages lost, repeated or held up that others sent."""
    VIEW = "view"
    """It may lead to another view."""
    PAUSE = "pause"
    """While it comes again and again, at times no view is made and nothing is purged."""


VIEW_FRAMES: Final[dict[tuple[int, int], str]] = {
    (
        wire.GMS,
        wire.VIEW,
    ): "of a member; or of anybody who proved its address, as the end of a merge that it began",
    (wire.GMS, wire.JOIN_RSP): "of a member, with a view that is newer",
    (wire.GMS, wire.LEAVE_REQ): "of a member, which then is let go",
    (wire.GMS, wire.MERGE_RSP): "of anybody, while a member leads a merge whose number it guesses",
    (wire.GMS, wire.GET_DIGEST_RSP): "of anybody whom such a merge asks, with its number",
    (wire.MERGE3, wire.VIEW_RSP): "of whom MERGE3 has just asked, with the number of its check",
    (wire.FD_SOCK2, wire.SUSPECT): "of a member: who does not answer in time is excluded",
}
"""The frames that can change the view without keys, and under which condition."""
VIEW_HELLO: Final = "whose connection it replaces: once others hear nothing of it, they exclude it"
"""The same, of the hello of a connection in a member's name."""
PAUSE_FRAMES: Final[dict[tuple[int, int], str]] = {
    (wire.GMS, wire.MERGE_REQ): "of anybody, in its own name",
    (wire.GMS, wire.GET_DIGEST_REQ): "of anybody, in its own name",
}
_OF_WINDOWS: Final = frozenset(
    {wire.ACK, wire.SFS, wire.XMIT_REQ, wire.STABLE, wire.CLOSE, wire.RESET_TO}
)
_OF_MULTICAST: Final = frozenset(
    {wire.ACK, wire.XMIT_REQ, wire.HIGHEST_SEQNO, wire.BASELINE, wire.BASELINE_REQ}
)
_SAID_OF_MESSAGES: Final[dict[int, frozenset[int]]] = {
    **dict.fromkeys(WINDOWS, _OF_WINDOWS),
    **dict.fromkeys(MULTICAST, _OF_MULTICAST),
    **dict.fromkeys(CREDITS, frozenset({wire.CREDIT, wire.CREDIT_REQ})),
    wire.STABLE_PROTOCOL: frozenset({wire.GOSSIP, wire.STABILITY}),
}
"""By protocol: what members tell each other of messages, besides the messages."""


def power_of(data: bytes, facts: Facts) -> Power:
    """Return what the first frame of these bytes may do to members without a key."""
    head = heard(data, facts.cluster)
    if isinstance(head, str) or not head.source:
        return Power.NONE
    if head.dest == head.source or head.dest not in (*facts.shorts, wire.GROUP):
        return Power.NONE
    routes = facts.group if head.dest == wire.GROUP else facts.alone
    if head.protocol not in routes:
        return Power.NONE
    body = data[wire.HEAD_SIZE : wire.HEAD_SIZE + head.size]
    try:
        return _of(head, body, facts)
    except BadFrame:
        # A member refuses it for what it says, whoever says it.
        return Power.NONE


def _of(head: Head, body: bytes, facts: Facts) -> Power:
    protocol = head.protocol
    is_member = head.source in facts.shorts
    if head.kind == wire.DATA:
        return _of_data(head, body, is_member=is_member)
    if protocol == wire.GMS:
        return _of_gms(head, body, facts, is_member=is_member)
    if protocol == wire.MERGE3 and head.kind == wire.VIEW_RSP:
        view = _read(body, Reader.view_untrusted)
        named = any(member.short == head.source for member in view.members)
        return Power.VIEW if named and head.lo < GUESSABLE else Power.NONE
    if not is_member:
        return Power.NONE
    if protocol == wire.FD_SOCK2 and head.kind == wire.SUSPECT:
        named = _read(body, Reader.addresses_untrusted)
        return Power.VIEW if set(named) & set(facts.members) else Power.NONE
    if head.kind == wire.XMIT_REQ and protocol in WINDOWS | MULTICAST:
        unpack_ranges_untrusted(head, body)
    return Power.MESSAGES if head.kind in _SAID_OF_MESSAGES.get(protocol, ()) else Power.NONE


def _of_data(head: Head, body: bytes, *, is_member: bool) -> Power:
    unpack_lengths_untrusted(head, body)
    if head.protocol in WINDOWS:
        # A stranger's is kept for a while; it is delivered once a first one came.
        return Power.MESSAGES if is_member or head.flags & FIRST else Power.NONE
    if head.protocol == wire.NONE:
        return Power.MESSAGES if is_member or head.dest != wire.GROUP else Power.NONE
    return Power.MESSAGES if is_member and head.protocol in MULTICAST else Power.NONE


def _of_gms(head: Head, body: bytes, facts: Facts, *, is_member: bool) -> Power:
    kind = head.kind
    if kind == wire.VIEW:
        notice = messages.unpack_view_untrusted(body)
        leads = notice.merged is not None and notice.merged.merge.leader.short == head.source
        return Power.VIEW if leads or (is_member and notice.merged is None) else Power.NONE
    if kind == wire.JOIN_RSP:
        answer = messages.unpack_join_answer_untrusted(body)
        is_view = isinstance(answer, messages.JoinAnswer)
        return Power.VIEW if is_view and is_member else Power.NONE
    if kind == wire.LEAVE_REQ:
        leaver = messages.unpack_address_untrusted(body)
        leaves = leaver.short == head.source and leaver in facts.members
        return Power.VIEW if leaves else Power.NONE
    if kind in {wire.MERGE_RSP, wire.GET_DIGEST_RSP}:
        reply = messages.unpack_merge_answer_untrusted(head.source, body)
        is_ours = reply.merge.leader in facts.members and reply.merge.number < GUESSABLE
        return Power.VIEW if is_ours else Power.NONE
    if kind in {wire.MERGE_REQ, wire.GET_DIGEST_REQ}:
        merge = messages.unpack_merge_id_untrusted(body)
        return Power.PAUSE if merge.leader.short == head.source else Power.NONE
    return Power.NONE


def _read(body: bytes, read: Callable[[Reader], T]) -> T:
    reader = Reader(body)
    value = read(reader)
    reader.end_untrusted()
    return value
