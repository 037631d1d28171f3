"""Checks and unpacks a frame that several members receive once for all of them."""

from __future__ import annotations

from stormcast.node.core.codec import Codec, Hash64
from stormcast.node.core.model import Payload
from stormcast.node.core.wire import Head

_unpack = Codec.unpack_untrusted


class LastFrame:
    """The datagram that was unpacked last in a world, and its frame."""

    __slots__ = ("datagram", "frame")

    def __init__(self) -> None:
        self.datagram: Payload = b""
        self.frame: tuple[Head, bytes] | None = None


class SharingCodec(Codec):
    """A codec that does not unpack a datagram again that another member has just unpacked.

    A multicast is one object that arrives at its receivers one after the other; a copy that was
    corrupted on its way to a receiver is another object. Each receiver checks a bad frame itself.
    """

    __slots__ = ("_last",)

    def __init__(self, cluster: int, source: int, hash64: Hash64, last: LastFrame) -> None:
        super().__init__(cluster, source, hash64)
        self._last = last

    def unpack_untrusted(self, buffer: Payload, offset: int = 0) -> tuple[Head, bytes]:
        """Return the frame at `offset`, checked to be intact; BadFrame with the reason if not."""
        last = self._last
        if buffer is last.datagram and not offset and last.frame is not None:
            return last.frame
        frame = _unpack(self, buffer, offset)
        if not offset:
            last.datagram, last.frame = buffer, frame
        return frame
