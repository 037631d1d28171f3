"""The flaw of numbering and sending apart, for museum stacks."""

from __future__ import annotations

from stormcast.node.protocols.port import Frame, Port


class Interruption:
    """The thread that has number 2 is interrupted before it sends, until number 4 has left."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._late: Frame | None = None

    def come_between(self, lo: int) -> None:
        """Hold back the frame that was just sent, or let the one held back go after it."""
        frames = self._port.frames
        place = lo % 5
        if place == 2:  # noqa: PLR2004 the number in the story: 1, 3, 4, 2, 5
            self._late = frames.pop()
        elif place == 4 and self._late is not None:  # noqa: PLR2004 see the order above
            frames.append(self._late)
            self._late = None
