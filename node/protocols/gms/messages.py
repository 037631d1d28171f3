"""Packs and unpacks bodies of membership's frames. Each has all that is needed to check it."""

from __future__ import annotations

from typing import Final, NamedTuple

from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import MAX_MEMBERS, Reader, Writer

MAX_NUMBER: Final = 1 << 62
"""View numbers from here on are refused: above a hostile number, others must be left to use."""

TAKEN: Final = "its short id is taken"
"""Why a joiner is refused for as long as it has this address; other reasons may pass."""
_ENTRY: Final = 24
"""Bytes for a member in a digest and among the partners of a merge."""
_AROUND_MEMBERS: Final = 1 << 11
"""Bytes of all else in a body with a view: two addresses with the longest names, and numbers."""


class MergeId(NamedTuple):
    """One merge: its leader, and the leader's count of merges."""

    leader: Address
    number: int


class JoinAnswer(NamedTuple):
    """A joiner's first view and where its windows begin."""

    view: View
    digest: Digest


class JoinRefusal(NamedTuple):
    """The reason why a joiner cannot be let in."""

    joiner: Address
    reason: str


class MergePart(NamedTuple):
    """The part of a merge view that is for one of its members alone."""

    merge: MergeId
    digest: Digest
    partners: frozenset[int]
    """Members whose own view, when they were asked, contained the member this is sent to."""

    def mutual(self, held: View) -> frozenset[int]:
        """Return the members that were in this member's view, and had this member in theirs."""
        return frozenset(member.short for member in held.members) & self.partners


class ViewNotice(NamedTuple):
    """A view to install."""

    view: View
    merged: MergePart | None


class MergeAnswer(NamedTuple):
    """A member's answer when it is asked to merge."""

    merge: MergeId
    is_rejected: bool
    view: View
    """The view it holds."""
    digest: Digest
    """The seqnos of its own multicasts, and only these: its knowledge of those of others may be
    ahead of what they can supply, or behind (JGRP-948). Empty in a rejection."""


def size_in_view(member: Address) -> int:
    """Return the bytes that a member takes in the largest body that brings a view."""
    return len(pack_address(member)) + _ENTRY


def room_for_members(largest_body: int) -> int:
    """Return the bytes that the members of a view may take in a body of that size."""
    return largest_body - _AROUND_MEMBERS


def pack_address(address: Address) -> bytes:
    """The body of JOIN_REQ, LEAVE_REQ and LEAVE_RSP."""
    return Writer().address(address).bytes()


def unpack_address_untrusted(body: bytes) -> Address:
    """Unpack the body of JOIN_REQ, LEAVE_REQ or LEAVE_RSP."""
    reader = Reader(body)
    address = reader.address_untrusted()
    reader.end_untrusted()
    return address


def pack_join_answer(view: View, digest: Digest) -> bytes:
    """The body of a JOIN_RSP that lets a joiner in."""
    return Writer().u8(1).view(view).digest(digest).bytes()


def pack_join_refusal(joiner: Address, reason: str) -> bytes:
    """The body of a JOIN_RSP that refuses a joiner."""
    return Writer().u8(0).address(joiner).text(reason).bytes()


def unpack_join_answer_untrusted(body: bytes) -> JoinAnswer | JoinRefusal:
    """Unpack the body of a JOIN_RSP."""
    reader = Reader(body)
    if _bool_untrusted(reader):
        view = _view_untrusted(reader)
        answer = JoinAnswer(view, _whole_digest_untrusted(reader, view))
        reader.end_untrusted()
        return answer
    refusal = JoinRefusal(reader.address_untrusted(), reader.text_untrusted())
    reader.end_untrusted()
    return refusal


def pack_view(view: View) -> bytes:
    """The body of a VIEW for members of the view before."""
    return Writer().u8(0).view(view).bytes()


def pack_merge_view(view: View, part: MergePart) -> bytes:
    """The body of a VIEW that ends a merge, for one member."""
    writer = _write_merge_id(Writer().u8(1).view(view), part.merge)
    writer.digest(part.digest).u16(len(part.partners))
    for partner in sorted(part.partners):
        writer.u32(partner)
    return writer.bytes()


def unpack_view_untrusted(body: bytes) -> ViewNotice:
    """Unpack the body of a VIEW."""
    reader = Reader(body)
    is_merge = _bool_untrusted(reader)
    view = _view_untrusted(reader)
    part = None
    if is_merge:
        merge = _merge_id_untrusted(reader)
        digest = _whole_digest_untrusted(reader, view)
        part = MergePart(merge, digest, _partners_untrusted(reader))
    reader.end_untrusted()
    return ViewNotice(view, part)


def pack_view_id(view_id: ViewId) -> bytes:
    """The body of VIEW_ACK and GET_VIEW."""
    return Writer().view_id(view_id).bytes()


def unpack_view_id_untrusted(body: bytes) -> ViewId:
    """Unpack the body of VIEW_ACK or GET_VIEW: the id of the view that the sender has."""
    reader = Reader(body)
    view_id = reader.view_id_untrusted()
    reader.end_untrusted()
    if view_id.number >= MAX_NUMBER:
        raise BadFrame("view-number")
    return view_id


def pack_merge_id(merge: MergeId) -> bytes:
    """The body of MERGE_REQ, GET_DIGEST_REQ and CANCEL_MERGE."""
    return _write_merge_id(Writer(), merge).bytes()


def unpack_merge_id_untrusted(body: bytes) -> MergeId:
    """Unpack the body of MERGE_REQ, GET_DIGEST_REQ or CANCEL_MERGE."""
    reader = Reader(body)
    merge = _merge_id_untrusted(reader)
    reader.end_untrusted()
    return merge


def pack_merge_answer(answer: MergeAnswer) -> bytes:
    """The body of MERGE_RSP and GET_DIGEST_RSP."""
    writer = _write_merge_id(Writer(), answer.merge).u8(answer.is_rejected)
    return writer.view(answer.view).digest(answer.digest).bytes()


def unpack_merge_answer_untrusted(source: int, body: bytes) -> MergeAnswer:
    """Unpack the answer of member `source`: its view must contain it, its digest only it."""
    reader = Reader(body)
    merge = _merge_id_untrusted(reader)
    is_rejected = _bool_untrusted(reader)
    view = _view_untrusted(reader)
    digest = reader.digest_untrusted()
    reader.end_untrusted()
    if all(member.short != source for member in view.members):
        raise BadFrame("view-members")
    if set(digest) != (set() if is_rejected else {source}):
        raise BadFrame("digest-members")
    return MergeAnswer(merge, is_rejected, view, digest)


def _bool_untrusted(reader: Reader) -> bool:
    value = reader.u8_untrusted()
    if value > 1:
        raise BadFrame("flag")
    return bool(value)


def _view_untrusted(reader: Reader) -> View:
    view = reader.view_untrusted()
    if not 0 < view.id.number < MAX_NUMBER:
        raise BadFrame("view-number")
    return view


def _whole_digest_untrusted(reader: Reader, view: View) -> Digest:
    digest = reader.digest_untrusted()
    if set(digest) != {member.short for member in view.members}:
        raise BadFrame("digest-members")
    return digest


def _partners_untrusted(reader: Reader) -> frozenset[int]:
    count = reader.u16_untrusted()
    if count > MAX_MEMBERS:
        raise BadFrame("count")
    return frozenset(reader.u32_untrusted() for _ in range(count))


def _write_merge_id(writer: Writer, merge: MergeId) -> Writer:
    return writer.address(merge.leader).u64(merge.number)


def _merge_id_untrusted(reader: Reader) -> MergeId:
    return MergeId(reader.address_untrusted(), reader.u64_untrusted())
