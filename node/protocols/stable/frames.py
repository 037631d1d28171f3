"""Packs votes (GOSSIP) and STABILITYs, and checks those of others."""

from __future__ import annotations

from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import ViewId
from stormcast.node.core.packing import Reader, Writer
from stormcast.node.core.wire import LOW_HALF, Head
from stormcast.node.protocols.events import Role
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.stable.known import Known

ASKS: Final = 1
"""In a STABILITY: vote if you have more. In a vote: its sender is blocked."""


def send(
    port: Port,
    view_id: ViewId,
    dest: int,
    kind: int,
    number: int,
    digest: Digest,
    *,
    mark: int = 0,
    stamp: int = 0,
    transmission: int = 0,
) -> None:
    """Send a vote or a STABILITY."""
    port.control(
        dest,
        kind,
        wire.STABLE_PROTOCOL,
        view_id.number,
        body=Writer().view_id(view_id).digest(digest).bytes(),
        conn=number & LOW_HALF,
        mark=mark,
        stamp=stamp,
        transmission=transmission,
    )


def objection(known: Known, role: Role, head: Head, view_id: ViewId, digest: Digest) -> str:
    """Return why a frame is refused; empty if it is not. Votes of two views never mix (G6)."""
    named = digest.seqnos.keys()
    if known.is_suspended:
        return "suspended"
    if role.view is None or view_id != known.view_id:
        return "other-view"
    if head.source not in known.members:
        return "stranger"
    if head.kind == wire.GOSSIP:
        objections = [
            (not role.is_coordinator, "not-coordinator"),
            (named != known.members, "digest-members"),
        ]
    else:
        objections = [
            (head.source != role.view.coordinator.short, "not-from-coordinator"),
            (not named <= known.members, "digest-members"),
            # The minimum of all votes is not above one's own.
            (digest.is_beyond(known.reported), "stability-beyond-vote"),
        ]
    return next((reason for holds, reason in objections if holds), "")


def unpack_untrusted(head: Head, body: bytes) -> tuple[ViewId, Digest]:
    """Return the view and the digest of a vote or a STABILITY."""
    if head.kind not in (wire.GOSSIP, wire.STABILITY):
        raise BadFrame("kind")
    reader = Reader(body)
    view_id = reader.view_id_untrusted()
    digest = reader.digest_untrusted()
    reader.end_untrusted()
    if view_id.number != head.lo:
        raise BadFrame("view")
    return view_id, digest
