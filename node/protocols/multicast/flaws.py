"""A flaw for museum stacks: messages are numbered in one step, and sent in another."""

from __future__ import annotations

from stormcast.node.protocols.port import Frame, Port


class Interruption:
    """Imitates a thread that has number 2, and sends it only after number 4 was sent."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._late: Frame | None = None

    def come_between(self, lo: int) -> None:
        """Hold back the frame that was just sent, or send the frame held back after it."""
        frames = self._port.frames
        place = lo % 5
        if place == 2:  # noqa: PLR2004 the number in the story: 1, 3, 4, 2, 5
            self._late = frames.pop()
        elif place == 4 and self._late is not None:  # noqa: PLR2004 see the order above
            frames.append(self._late)
            self._late = None
