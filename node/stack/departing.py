"""The last steps of the frames of a turn: test protocols, the transport's queue, seals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormcast.node.protocols.port import Frame

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals
    from stormcast.node.protocols.port import Port
    from stormcast.node.settings.transports import TransportConfig
    from stormcast.node.stack.testing import TestProtocols


class Departing:
    """Takes the frames that leave at the end of a turn, for one member."""

    def __init__(
        self,
        config: TransportConfig,
        port: Port,
        test_protocols: TestProtocols,
        seals: Seals | None,
    ) -> None:
        self.passed: list[Frame] = []
        """Frames that have passed all protocols: released by a test protocol, or too many for the
        last turn."""
        self._most = config.queue_frames
        self._may_drop = config.drop_when_full
        self._port = port
        self._test_protocols = test_protocols
        self._seals = seals
        self._cut_at = 0
        """Where the next full queue begins to take the frames that take turns."""

    def take(self, now: float) -> list[Frame]:
        """Return the frames that leave: those that pass the test protocols, and no more than the
        transport queues."""
        port = self._port
        frames, port.frames = port.frames, []
        if port.contacts.is_on or port.challenged:
            frames = port.admitted(frames)
        if self._test_protocols.is_on:
            frames = self._test_protocols.down(frames, now)
        if self.passed:
            frames = self.passed + frames
            self.passed.clear()
        if len(frames) > self._most:
            self._overflow(frames)
        if self._seals is not None:
            # Below all protocols, and as late as can be: a frame that waits has no number yet.
            frames = self._seals.seal(frames, port.codec)
        return frames

    def _overflow(self, frames: list[Frame]) -> None:
        """Cut off the frames beyond the transport's queue: they are dropped, which a protocol above
        repairs, or wait for the next turn.

        Of frames that may be dropped, the first ones have half of the queue, and the others have
        the other half in turn: what is repeated for a dead member, in the same order each time,
        would keep the same frames for the living out for ever.
        """
        room = self._most
        if not self._may_drop:
            self.passed += frames[room:]
            del frames[room:]
            return
        self._port.drop("transport-queue-full", len(frames) - room)
        others = frames[room // 2 :]
        start, count = self._cut_at % len(others), room - room // 2
        self._cut_at = start + count
        frames[room // 2 :] = (others[start:] + others[:start])[:count]
