"""The interface by which flow control asks the windows below."""

from __future__ import annotations

from typing import Protocol

from stormcast.node.core.credits import StreamEnd


class WindowsBelow(Protocol):
    """Questions of flow control to the windows below; the stack hands in an object for them."""

    def sent(self, peer: int) -> StreamEnd:
        """Return where the stream to `peer` ends; if no connection is open, seqno 0 of the next."""

    def taken(self, peer: int) -> tuple[int, int] | None:
        """Return connection and seqno up to which `peer`'s messages were delivered, without a gap;
        None when there is no window for them."""
