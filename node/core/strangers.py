"""Counts what a member keeps of strangers: senders that are not in its view.

Anybody can send frames in anybody's name. What one sender may have kept is bounded by its window,
but the number of senders is not. So all strangers together have one budget, of bytes and of
entries. Protocols say what they keep of a stranger; beyond the budget the stack has them give up
what they keep of the stranger that has had something kept for the longest time, but nothing that
was acked: so a sender that exists sends it again. What would be acked before the application has it
is refused where it has no room. What is only remembered, of messages that are over, goes before
anything that is kept.
"""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 2 << 20
"""Bytes that are kept of all strangers together."""
LARGE: Final = 64 << 10
"""Bytes of a large frame: a datagram carries no more."""
MAX_ENTRIES: Final = 2048
"""Frames, windows and open questions that are kept of all strangers together: each costs several
hundred bytes, however small the frame is."""
MAX_BEGUN: Final = 64
"""Windows that strangers may open in `BEGUN_SECONDS`, and strangers that may be asked for their
first frame: each leaves records in the journal."""
MAX_SAID: Final = 256
"""Acks, requests and credits for strangers in `BEGUN_SECONDS`, all together: each is a record in
the journal. Those beyond the bound are sent when the stranger repeats itself, or later."""
MAX_SAID_TO_ONE: Final = 32
"""The same bound for one stranger: one that sends much must not use up all of it."""
MAX_GAUGED: Final = 16
"""Strangers of which the journal says from time to time how much is kept of each."""
BEGUN_SECONDS: Final = 1.0


class Pace:
    """Admits a number of things per time."""

    __slots__ = ("_count", "_most", "since")

    def __init__(self, most: int = MAX_BEGUN) -> None:
        self._most = most
        self._count = 0
        self.since = 0.0
        """When the time began in which things are counted now."""

    def admits(self, now: float) -> bool:
        """Whether one more is admitted now; counts it if so."""
        if now >= self.since + BEGUN_SECONDS:
            self.since = now
            self._count = 0
        if self._count >= self._most:
            return False
        self._count += 1
        return True


class SharedPace(Pace):
    """Admits a number of things per time, and to each of those who ask for it a part of them."""

    __slots__ = ("_by", "_most_of_one")

    def __init__(self, most: int = MAX_SAID, most_of_one: int = MAX_SAID_TO_ONE) -> None:
        super().__init__(most)
        self._most_of_one = most_of_one
        self._by: dict[int, int] = {}

    def admits_for(self, one: int, now: float) -> bool:
        """Whether one more is admitted now for `one`; counts it if so."""
        if now >= self.since + BEGUN_SECONDS:
            self._by.clear()
        count = self._by.get(one, 0)
        if count >= self._most_of_one or not self.admits(now):
            return False
        self._by[one] = count + 1
        return True


class Strangers:
    """The count of what is kept of strangers, by sender and by protocol, against one budget."""

    __slots__ = (
        "_kept",
        "_remembered",
        "_remembered_bytes",
        "_remembered_entries",
        "bytes",
        "entries",
        "is_over",
        "questions",
        "said",
        "windows",
    )

    def __init__(self) -> None:
        self.bytes = 0
        self.entries = 0
        self.is_over = False
        """Whether more is kept than the budget admits."""
        self._kept: dict[int, dict[str, tuple[int, int]]] = {}
        """Entries and bytes by sender, the one of which something is kept longest first, and by
        what keeps them."""
        self._remembered: dict[int, tuple[int, int]] = {}
        """The same for what may be forgotten at any time; the sender that was heard last is
        last."""
        self._remembered_entries = 0
        self._remembered_bytes = 0
        self.windows = Pace()
        """The pace at which strangers open windows."""
        self.questions = Pace()
        """The pace at which strangers are asked for their first frame."""
        self.said = SharedPace()
        """The pace of frames sent to strangers, each of which is recorded."""

    def keep(self, sender: int, keeper: str, entries: int, size: int) -> None:
        """Note how much one keeper has of a sender now: `size` bytes in so many entries."""
        kept = self._kept.get(sender)
        before = kept.get(keeper) if kept is not None else None
        if before is not None:
            self.entries -= before[0]
            self.bytes -= before[1]
        if entries or size:
            if kept is None:
                kept = self._kept[sender] = {}
            kept[keeper] = entries, size
            self.entries += entries
            self.bytes += size
        elif kept is not None and before is not None:
            del kept[keeper]
            if not kept:
                del self._kept[sender]
        self._weigh()

    def remember(self, sender: int, entries: int, size: int) -> None:
        """Note how much is remembered of a sender that has been heard just now."""
        before = self._remembered.pop(sender, (0, 0))
        if entries or size:
            self._remembered[sender] = entries, size
        entries, size = entries - before[0], size - before[1]
        self._remembered_entries += entries
        self._remembered_bytes += size
        self.entries += entries
        self.bytes += size
        self._weigh()

    def _weigh(self) -> None:
        self.is_over = self.bytes > MAX_BYTES or self.entries > MAX_ENTRIES

    def remembered(self) -> list[int]:
        """Return the senders of which something is remembered, the one that was heard last as the
        last one."""
        return list(self._remembered)

    def senders(self) -> list[int]:
        """Return the senders of which something is kept, the one that is longest first."""
        return list(self._kept)

    def has_room(self) -> bool:
        """Whether one more frame may be kept, whatever its size: a small one must not pass where a
        large one before it was refused. What is only remembered makes way."""
        kept = self.bytes - self._remembered_bytes
        return kept + LARGE <= MAX_BYTES and self.entries - self._remembered_entries < MAX_ENTRIES

    def forget(self, sender: int) -> None:
        """Note that nothing is kept of a sender any more, or that it is no stranger any more."""
        for entries, size in self._kept.pop(sender, {}).values():
            self.entries -= entries
            self.bytes -= size
        self.remember(sender, 0, 0)
