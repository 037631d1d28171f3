"""Makes frames in the name of members as a stranger can: of what was heard, and of nothing else.

A stranger knows the wire format and has no key. Where a frame is sealed it tries what is left to
it: the seal that it heard around another body, and no seal at all.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_intdigest

from stormcast.node.core import wire
from stormcast.node.core.codec import Body, Codec, pack_body, unpack_lengths_untrusted
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST, Address
from stormcast.node.core.wire import LOW_HALF, Head
from stormcast.node.protocols.gms.messages import pack_address, unpack_view_untrusted

TEXT: Final = b"a stranger says "
"""Stands in forged messages, again and again."""
_SEAL: Final = wire.SEAL_STRUCT.size


def read_head(frame: bytes) -> Head:
    """Return the head of a frame as anybody can read it, unchecked."""
    return Head(*wire.HEAD_STRUCT.unpack_from(frame))


def read_body(head: Head, frame: bytes) -> bytes:
    """Return what stands where a frame has its body, without the seal around it, if it has one."""
    body = frame[wire.HEAD_SIZE :]
    return body[_SEAL : -wire.SEAL_TAG] if head.seal else body


def next_messages(frame: bytes) -> list[bytes]:
    """Return forgeries of the batch that will follow a batch, with as many messages of the same
    sizes; none if the frame has no numbered messages."""
    head = read_head(frame)
    if head.kind != wire.DATA or not head.lo:
        return []
    if head.seal:
        return [_in_its_seal(head, frame), _unsealed(head, frame)]
    try:
        begin = unpack_lengths_untrusted(head, frame[wire.HEAD_SIZE :])[0]
    except BadFrame:
        return []
    said = frame[wire.HEAD_SIZE :][:begin]
    data = said + _words(head.size - begin)
    body = Body(data, xxh3_64_intdigest(data), head.count, head.width, head.headers)
    return [_data(head, body)]


def leave(frame: bytes) -> bytes | None:
    """Return the wish to leave of the member that a view is sent to; None if it is no view for one
    member. Who cannot read the view makes the rest of that member's identity up."""
    head = read_head(frame)
    if (head.kind, head.protocol) != (wire.VIEW, wire.GMS) or head.dest == wire.GROUP:
        return None
    try:
        members = unpack_view_untrusted(read_body(head, frame)).view.members
    except BadFrame:
        members = ()
    address = next((one for one in members if one.short == head.dest), Address(head.dest, "x"))
    codec = Codec(head.cluster, head.dest, xxh3_64_intdigest)
    return codec.pack_control(
        wire.LEAVE_REQ, wire.GMS, head.source, 0, 0, body=pack_address(address)
    )


def _words(size: int) -> bytes:
    return (TEXT * (size // len(TEXT) + 1))[:size]


def _data(head: Head, body: Body) -> bytes:
    codec = Codec(head.cluster, head.source, xxh3_64_intdigest)
    front = codec.pack_data(
        head.protocol,
        head.dest,
        head.conn,
        head.lo + head.count,
        body,
        head.flags & ~FIRST,
        0,
        head.mark,
        head.stamp,
    )
    return front + body.data


def _in_its_seal(head: Head, frame: bytes) -> bytes:
    """Return the next batch in the seal of this one: its mark and tag, and the next number."""
    following = head._replace(lo=head.lo + head.count, digest=head.digest + 1)
    front = wire.HEAD_STRUCT.pack(*following)[: wire.CHECK_OFFSET]
    check = (xxh3_64_intdigest(front) & LOW_HALF).to_bytes(4, "big")
    mark = frame[wire.HEAD_SIZE : wire.HEAD_SIZE + _SEAL]
    hidden = len(read_body(head, frame))
    return front + check + mark + _words(hidden) + frame[-wire.SEAL_TAG :]


def _unsealed(head: Head, frame: bytes) -> bytes:
    """Return the next batch without a seal, with one message of about the size that it hides."""
    payload = _words(len(read_body(head, frame)))
    return _data(head._replace(seal=0), pack_body([payload], xxh3_64_intdigest))
