"""Where messages wait, unnumbered, until the windows admit them. The one place that refuses.

One lane per destination, bounded in bytes (each message also costs a fixed overhead, which bounds
the count). A lane is a queue of runs: payloads that share their flags and may travel in one batch.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from node.core.model import Payload

MESSAGE_OVERHEAD: Final = 64
"""What a queued message costs besides its bytes: about what its object takes."""

LENGTH_COST: Final = 4
"""What a message's length takes in a frame at most."""


class Run:
    """Messages of one set of flags, in order."""

    __slots__ = ("at", "flags", "header", "payloads")

    def __init__(self, flags: int, header: bytes = b"") -> None:
        self.flags = flags
        self.header = header
        """An upper protocol's, for the one batch that this run becomes."""
        self.payloads: list[Payload] = []
        self.at = 0
        """Index of the first message not yet taken."""


class Taken(NamedTuple):
    """What left a lane as one batch."""

    payloads: list[Payload]
    flags: int
    header: bytes
    size: int
    """Bytes of the payloads."""
    lengths: list[int]
    """Of each payload: counted once, because doing so is a part of a message's cost."""


class Lane:
    """The queue towards one destination."""

    __slots__ = ("blocked_since", "dest", "is_queued", "room", "run", "runs")

    def __init__(self, dest: int, room: int) -> None:
        self.dest = dest
        self.room = room
        """Bytes still accepted."""
        self.run = Run(0)
        self.runs: deque[Run] = deque((self.run,))
        self.is_queued = False
        """Whether the stack will look at this lane at the end of the turn. While it will, one more
        message like the last may simply be appended, if there is room."""
        self.blocked_since = -1.0

    def is_empty(self) -> bool:
        """Whether nothing waits; every run but the last holds something."""
        return not self.run.payloads and len(self.runs) == 1

    def cut(self, flags: int, header: bytes = b"") -> Run:
        """Begin a run: the flags changed, or the message must travel alone."""
        if self.run.payloads:
            self.run = Run(flags, header)
            self.runs.append(self.run)
        else:
            self.run.flags = flags
            self.run.header = header
        return self.run

    def take(self, messages: int, size: int, single: int) -> Taken | None:
        """Messages of the first run that fit; None when not even one does.

        At most `messages` of them and `size` bytes together; one message alone may have `single`
        bytes.
        """
        run = self.runs[0]
        payloads, at = run.payloads, run.at
        waiting = len(payloads)
        extra = len(run.header)
        # Most messages of a run are about as long as the next one: look at no more than fit then.
        first = len(payloads[at]) if at < waiting else 0
        likely = max(1, (size - extra) // (first + LENGTH_COST))
        end = min(waiting, at + messages, at + likely)
        taken = payloads[at:end] if at or end < waiting else payloads
        lengths = list(map(len, taken))
        total = sum(lengths)
        if total + LENGTH_COST * len(taken) + extra > size:
            number, total = _fitting(lengths, total, size - extra)
            taken, lengths = taken[:number], lengths[:number]
            if number == 1 and total + LENGTH_COST + extra > single:
                return None
            end = at + number
        self.room += total + MESSAGE_OVERHEAD * len(taken)
        if end < len(payloads):
            run.at = end
            if end > len(payloads) >> 1:
                # A producer that is always ahead never lets the run end: what left must go (G5).
                del payloads[:end]
                run.at = 0
        else:
            self._finish_run(run)
        return Taken(taken, run.flags, run.header, total, lengths)

    def next_size(self) -> int:
        """Bytes of the message that would leave next; 0 when none waits."""
        run = self.runs[0]
        return len(run.payloads[run.at]) if run.at < len(run.payloads) else 0

    def _finish_run(self, run: Run) -> None:
        if run is self.run:
            # A header is for one batch only.
            fresh = Run(0 if run.header else run.flags)
            self.run = self.runs[0] = fresh
        else:
            self.runs.popleft()

    def clear(self) -> int:
        """Throw away everything; returns how many messages that were."""
        count = sum(len(run.payloads) - run.at for run in self.runs)
        for run in self.runs:
            self.room += sum(len(payload) + MESSAGE_OVERHEAD for payload in run.payloads[run.at :])
        self.run = Run(0)
        self.runs.clear()
        self.runs.append(self.run)
        return count

    def __len__(self) -> int:
        return sum(len(run.payloads) - run.at for run in self.runs)


def _fitting(lengths: list[int], total: int, size: int) -> tuple[int, int]:
    """How many messages from the first on, of `total` bytes, are within `size` bytes, but at least
    one; and their bytes."""
    number = len(lengths)
    while number > 1 and total + LENGTH_COST * number > size:
        number -= 1
        total -= lengths[number]
    return number, total
