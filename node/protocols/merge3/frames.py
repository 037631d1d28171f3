"""What the frames of MERGE3 say."""

from __future__ import annotations

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import Reader, Writer
from stormcast.node.core.wire import Head


def unpack_info_untrusted(head: Head, body: bytes) -> tuple[Address, ViewId]:
    """Unpack an INFO: its sender, and the id of the view that this holds."""
    reader = Reader(body)
    sender = reader.address_untrusted()
    view_id = reader.view_id_untrusted()
    reader.end_untrusted()
    if sender.short != head.source:
        raise BadFrame("identity")
    return sender, view_id


def unpack_asker_untrusted(head: Head, body: bytes) -> Address:
    """Unpack a VIEW_REQ: the member that asks."""
    reader = Reader(body)
    asker = reader.address_untrusted()
    reader.end_untrusted()
    if asker.short != head.source:
        raise BadFrame("identity")
    return asker


def unpack_view_untrusted(body: bytes) -> View:
    """Unpack a VIEW_RSP."""
    reader = Reader(body)
    view = reader.view_untrusted()
    reader.end_untrusted()
    return view


def least_info(member: Address) -> int:
    """Return the bytes that an INFO of a member had at least: the view id in it has as many more as
    a number and the identity of its creator."""
    return wire.HEAD_SIZE + len(Writer().address(member).bytes()) + 24
