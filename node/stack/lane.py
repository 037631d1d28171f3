"""Lanes: messages wait in them, unnumbered, until the windows admit them.

There is one lane per destination, bounded in bytes (each message also costs a fixed overhead, which
bounds the count); the acceptor refuses a message when its lane is full. A lane is a queue of runs:
payloads that share their flags and may travel in one batch. A message above `frag_size` is a run of
its own, whose payloads are its pieces.

What may need memory is done first, so that a step that fails takes nothing out of a lane.

A lane counts the messages that it accepted, from 1 on. Batches keep the number of their first
message, so that a trace can say what became of each (G1).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.model import FRAGMENT, Payload

if TYPE_CHECKING:
    from stormcast.node.protocols.frag import CutMessage

MESSAGE_OVERHEAD: Final = 64
"""Bytes that a queued message counts for besides its own: about the size of its object."""

LENGTH_COST: Final = 4
"""Bytes that the length of a message takes in a frame, at most."""

MAX_MESSAGE: Final = wire.MAX_BODY - LENGTH_COST
"""Bytes of the largest message: what one frame can carry."""


class Run:
    """Messages of one set of flags, in order; or the pieces of one large message."""

    __slots__ = ("at", "cut", "flags", "gone", "payloads")

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.cut: CutMessage | None = None
        """The large message that the payloads are pieces of."""
        self.payloads: list[Payload] = []
        self.at = 0
        """Index of the first payload not yet taken."""
        self.gone = 0
        """Payloads that were taken and removed from the list."""

    @property
    def accepted(self) -> int:
        """Messages that were put into this run so far."""
        return self.gone + len(self.payloads) if self.cut is None else 1

    @property
    def waiting(self) -> int:
        """Messages that were not yet wholly taken."""
        return len(self.payloads) - self.at if self.cut is None else 1


class Taken(NamedTuple):
    """Messages that left a lane as one batch."""

    payloads: list[Payload]
    flags: int
    header: bytes
    """An upper protocol's header, which travels before the lengths."""
    size: int
    """Bytes of the payloads."""
    lengths: list[int]
    """Length of each payload: computed once, because that is a part of a message's cost."""
    number: int
    """Number of the first message, as the lane counts messages."""


class Lane:
    """The queue towards one destination."""

    __slots__ = (
        "alone",
        "_closed",
        "blocked_since",
        "dest",
        "is_queued",
        "numbered",
        "offered",
        "open_early",
        "room",
        "run",
        "runs",
    )

    def __init__(self, dest: int, room: int, numbered: int = 0) -> None:
        self.dest = dest
        self.room = room
        """Bytes still accepted."""
        self.alone = 0
        """The cost of a message that was larger than all of the room, and so came in alone."""
        self.run = Run(0)
        self.runs: deque[Run] = deque((self.run,))
        self.is_queued = False
        """Whether the stack will look at this lane at the end of the turn. While it will, one more
        message like the last may simply be appended, if there is room."""
        self.blocked_since = -1.0
        self.numbered = numbered
        """Messages that left: numbered, sent without a number, or thrown away."""
        self.offered = numbered
        """Accepted messages that the trace has recorded as offered."""
        self._closed = numbered
        """Messages that were accepted before the last run began."""
        self.open_early: deque[OpenEarly] = deque()
        """OOB messages in pieces that the receivers may not have completely, in order."""

    def is_empty(self) -> bool:
        """Whether nothing waits: of all runs, only the last can be empty."""
        return not self.run.payloads and len(self.runs) == 1

    @property
    def accepted(self) -> int:
        """Messages that were ever put in. Computed from the runs: counting each message would cost
        more."""
        return self._closed + self.run.accepted

    @property
    def is_within_message(self) -> bool:
        """Whether pieces of the message that would leave next have left already."""
        first = self.runs[0]
        return first.cut is not None and first.at > 0

    def begin(self, flags: int) -> Run:
        """Begin a run: the flags changed, or the message must travel alone."""
        if self.run.payloads:
            self._closed += self.run.accepted
            self.run = Run(flags)
            self.runs.append(self.run)
        else:
            self.run.flags = flags
        return self.run

    def begin_large(self, flags: int, cut: CutMessage) -> Run:
        """Begin a run of the pieces of one message."""
        run = self.begin(flags | FRAGMENT)
        run.cut = cut
        return run

    def take(self, messages: int, size: int, single: int) -> Taken | None:
        """Take the messages of the first run that fit; None when not even one does.

        At most `messages` of them and `size` bytes together; one message alone may have `single`
        bytes.
        """
        run = self.runs[0]
        payloads, at = run.payloads, run.at
        if run.cut is not None:
            return self._take_piece(run, run.cut, max(size, single))
        waiting = len(payloads)
        # Most messages of a run are about as long as the first: look at only so many as fit then.
        first = len(payloads[at]) if at < waiting else 0
        likely = max(1, size // (first + LENGTH_COST))
        end = min(waiting, at + messages, at + likely)
        taken = payloads[at:end] if at or end < waiting else payloads
        lengths = list(map(len, taken))
        total = sum(lengths)
        if not total and len(taken) > wire.MAX_EMPTY:
            end = at + wire.MAX_EMPTY
            taken, lengths = taken[: wire.MAX_EMPTY], lengths[: wire.MAX_EMPTY]
        if total + LENGTH_COST * len(taken) > size:
            number, total = _fitting(lengths, total, size)
            taken, lengths = taken[:number], lengths[:number]
            if number == 1 and total + LENGTH_COST > single:
                return None
            end = at + number
        batch = Taken(taken, run.flags, b"", total, lengths, self.numbered + 1)
        room = self.room + total + MESSAGE_OVERHEAD * len(taken)
        numbered = self.numbered + len(taken)
        if end < len(payloads):
            if end > len(payloads) >> 1:
                # If the producer is always ahead, the run never ends: remove what has left (G5).
                gone = run.gone + end
                del payloads[:end]
                run.gone = gone
                run.at = 0
            else:
                run.at = end
        else:
            self._finish_run(run)
        self.room = room
        self.numbered = numbered
        return batch

    def _take_piece(self, run: Run, cut: CutMessage, most: int) -> Taken | None:
        """Take the next piece of a large message: always a batch of its own."""
        at = run.at
        piece = run.payloads[at]
        size, header = len(piece), cut.header(at)
        if size + LENGTH_COST + len(header) > most:
            return None
        number = self.numbered + 1
        batch = Taken([piece], run.flags, header, size, [size], number)
        room = self.room + size + MESSAGE_OVERHEAD
        if at + 1 == len(run.payloads):
            self._finish_run(run)
            self.numbered = number
        run.at = at + 1
        self.room = room
        return batch

    def put_back(self, run: Run, taken: Taken) -> None:
        """Undo the last `take`, which took from `run`: its messages were not sent."""
        if run.cut is None:
            # A run of their own: what is left of the other one may have moved.
            again = Run(taken.flags)
            again.payloads = taken.payloads
            self.runs.appendleft(again)
            self.numbered -= len(taken.payloads)
        else:
            run.at -= 1
            if self.runs[0] is not run:
                self.numbered -= 1
                self.runs.appendleft(run)
        self.room -= taken.size + MESSAGE_OVERHEAD * len(taken.payloads)

    def has_room_for_early(
        self, cost: int, conn: int, acked: int, max_messages: int, max_bytes: int
    ) -> bool:
        """Whether another OOB message in pieces keeps what receivers hold unfinished within these
        bounds, when `conn` is acked up to `acked`. If no such message is open, one is admitted."""
        opened = self.open_early
        while opened and (opened[0].conn != conn or opened[0].hi <= acked):
            opened.popleft()
        return not opened or (
            len(opened) < max_messages and sum(one.cost for one in opened) + cost <= max_bytes
        )

    def next_size(self) -> int:
        """Bytes of the message, or piece, that would leave next; 0 when none waits."""
        run = self.runs[0]
        return len(run.payloads[run.at]) if run.at < len(run.payloads) else 0

    def _finish_run(self, run: Run) -> None:
        if run is self.run:
            closed = self._closed + run.accepted
            # What follows a large message rarely has its flags.
            self.run = self.runs[0] = Run(run.flags if run.cut is None else 0)
            self._closed = closed
        else:
            self.runs.popleft()

    def clear(self) -> int:
        """Throw away everything that waits; returns how many messages that were."""
        count = len(self)
        self._closed = self.accepted
        for run in self.runs:
            self.room += sum(len(payload) + MESSAGE_OVERHEAD for payload in run.payloads[run.at :])
        self.run = Run(0)
        self.runs.clear()
        self.runs.append(self.run)
        self.open_early.clear()
        self.numbered += count
        return count

    def __len__(self) -> int:
        """Messages that wait, or of which pieces wait."""
        return sum(run.waiting for run in self.runs)


class OpenEarly(NamedTuple):
    """An OOB message in pieces, which its receivers may hold unfinished until the last is acked."""

    conn: int
    hi: int
    """Seqno of its last piece."""
    cost: int
    """The most that it may cost a receiver."""


def _fitting(lengths: list[int], total: int, size: int) -> tuple[int, int]:
    """Return how many messages from the first on fit into `size` bytes, but at least one, and their
    bytes. `total` are the bytes of all."""
    number = len(lengths)
    while number > 1 and total + LENGTH_COST * number > size:
        number -= 1
        total -= lengths[number]
    return number, total
