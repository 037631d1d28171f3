"""What flow control knows of the windows below."""

from __future__ import annotations

from typing import Protocol

from stormcast.node.core.credits import StreamEnd


class WindowsBelow(Protocol):
    """What flow control asks of the windows below; the stack hands it in."""

    def sent(self, peer: int) -> StreamEnd:
        """Where the stream to `peer` ends; where no connection is, seqno 0 of the first that may
        come."""

    def taken(self, peer: int) -> tuple[int, int] | None:
        """Connection and seqno up to which `peer`'s messages were delivered, without a gap; None
        when there is no window for them."""
