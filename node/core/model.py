"""The nouns of the stack: addresses, views, message flags and deliveries."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, overload

from stormcast.node.core.errors import ConfigError

Payload = bytes | memoryview


def as_payload(message: object) -> Payload:
    """Return a message as the stack keeps it: bytes, or a memoryview on plain bytes. Other buffers
    are copied: their items may be larger than a byte, or the buffer may be resized. Raise
    ConfigError for what is not a readable buffer."""
    try:
        view = memoryview(message)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        remedy = "encode it, as in text.encode()" if isinstance(message, str) else "write bytes"
        why = f" ({error})" if isinstance(error, ValueError) else ""
        raise ConfigError(
            f"a message is of type {type(message).__name__}{why}, and no bytes: {remedy}"
        ) from None
    if isinstance(message, bytes):
        return message
    is_plain = view.format == "B" and view.ndim == 1 and view.contiguous
    # A view of its own: the caller may release the one that it has.
    return view if is_plain and isinstance(message, memoryview) else view.tobytes()


# Flags of a message. A batch has one set of them: a change closes the batch.
OOB: Final = 0x01
"""Deliver at once, ahead of missing messages with lower seqnos."""
DONT_BUNDLE: Final = 0x02
"""Leave at once and alone; what is pending for the destination leaves first."""
NO_FC: Final = 0x04
"""Spend no credits of flow control."""
NO_RELIABILITY: Final = 0x08
"""Neither numbered nor repaired: a lost message stays lost."""
DONT_LOOPBACK: Final = 0x10
"""Not to be delivered to its own sender."""
MESSAGE_FLAGS: Final = OOB | DONT_BUNDLE | NO_FC | NO_RELIABILITY | DONT_LOOPBACK

# Flags of a frame, set by protocols only.
FIRST: Final = 0x20
"""The receiver may open a window at this batch."""
RESET: Final = 0x40
"""The sender can no longer provide what lies before."""

FRAGMENT: Final = 0x80
"""One piece of a larger message: the body begins with a fragment's header."""

FLAG_NAMES: Final = {
    OOB: "OOB",
    DONT_BUNDLE: "DONT_BUNDLE",
    NO_FC: "NO_FC",
    NO_RELIABILITY: "NO_RELIABILITY",
    DONT_LOOPBACK: "DONT_LOOPBACK",
    FIRST: "FIRST",
    RESET: "RESET",
    FRAGMENT: "FRAGMENT",
}


def flag_names(flags: int) -> str:
    """The flags in words, joined by `|`."""
    return "|".join(name for bit, name in FLAG_NAMES.items() if flags & bit)


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """One incarnation of a member: never reused, so old traffic cannot meet a new process.

    `short` is what frames and tables carry. Thirty-two of the 128 random bits are enough within a
    cluster; membership refuses a joiner whose short id is taken.
    """

    identity: int
    name: str
    where: str = ""
    """The address of the member's transport, `host[port]`; empty in the simulator."""
    short: int = field(init=False)

    def __post_init__(self) -> None:
        assert 0 < self.identity < 1 << 128
        # 0 means "nobody" in a frame.
        object.__setattr__(self, "short", (self.identity & 0xFFFFFFFF) or 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and self.identity == other.identity

    def __hash__(self) -> int:
        return self.short

    def is_at_same_place(self, other: Address) -> bool:
        """Whether the other address is this one, and says the same of where it is."""
        return self.identity == other.identity and self.where == other.where

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ViewId:
    """Orders views: by number, then by creator."""

    number: int
    creator: Address

    def __lt__(self, other: ViewId) -> bool:
        return (self.number, self.creator.identity) < (other.number, other.creator.identity)

    def __str__(self) -> str:
        return f"{self.creator}:{self.number}"


@dataclass(frozen=True, slots=True)
class View:
    """The members of a group, in order of rank; the first one coordinates."""

    id: ViewId
    members: tuple[Address, ...]

    def __post_init__(self) -> None:
        assert len(set(self.members)) == len(self.members), "a view names each member once"

    @property
    def coordinator(self) -> Address:
        return self.members[0]

    def joined(self, older: View) -> tuple[Address, ...]:
        """Members of this view that `older` lacks."""
        return tuple(member for member in self.members if member not in older.members)

    def left(self, older: View) -> tuple[Address, ...]:
        """Members of `older` that this view lacks."""
        return tuple(member for member in older.members if member not in self.members)

    def __str__(self) -> str:
        return f"{self.id}{{{','.join(map(str, self.members))}}}"


# Below this size a copy is cheaper than a memoryview, and does not keep the datagram alive.
VIEW_FROM_BYTES: Final = 1024
# A splitter takes 32 bytes per payload and is cached. Peers choose the number of payloads, so a
# splitter is made for at most this many: the cache must not fill memory (G5).
CUT_AT_ONCE: Final = 1024


@lru_cache(maxsize=256)
def _splitter(size: int, count: int) -> struct.Struct:
    """Return a struct that cuts `count` equal payloads in one C call. Cached, because full batches
    repeat the same few sizes and counts."""
    return struct.Struct(f"{size}s" * count)


def _cut_equal(body: Payload, start: int, size: int, count: int) -> Sequence[bytes]:
    if count <= CUT_AT_ONCE:
        return _splitter(size, count).unpack_from(body, start)
    cut: list[bytes] = []
    for first in range(0, count, CUT_AT_ONCE):
        splitter = _splitter(size, min(CUT_AT_ONCE, count - first))
        cut += splitter.unpack_from(body, start + first * size)
    return cut


def split_payloads(
    body: Payload, start: int, lengths: int | Sequence[int], count: int
) -> Sequence[Payload]:
    """Cut the payloads out of `body`; `lengths` is one number when all are equally long."""
    if isinstance(lengths, int):
        if count == 1 and lengths < VIEW_FROM_BYTES:
            return (bytes(body[start : start + lengths]),)
        if lengths < VIEW_FROM_BYTES:
            return _cut_equal(body, start, lengths, count)
        source = memoryview(body)
        return [source[at : at + lengths] for at in range(start, start + lengths * count, lengths)]
    ends = list(accumulate(lengths, initial=start))
    source = memoryview(body)
    return [
        source[low:high] if high - low >= VIEW_FROM_BYTES else bytes(source[low:high])
        for low, high in pairwise(ends)
    ]


class Delivery(Sequence[Payload]):
    """Messages of one sender, in its order, handed to the application as one batch.

    The payloads are cut out of the frame on first use, so that a receiver which only counts pays
    nothing for them.
    """

    __slots__ = (
        "_body",
        "_lengths",
        "_messages",
        "_start",
        "conn",
        "dest",
        "flags",
        "headers",
        "hi",
        "lo",
        "settled",
        "source",
    )

    def __init__(
        self,
        source: int,
        conn: int,
        lo: int,
        hi: int,
        flags: int,
        body: Payload,
        start: int,
        lengths: int | Sequence[int],
        dest: int,
        headers: int = 0,
    ) -> None:
        self.source = source
        self.dest = dest
        """0 for a multicast, else the receiver."""
        self.headers = headers
        """Bytes at the start of the frame's body that belong to upper protocols."""
        self.conn = conn
        self.lo = lo
        self.hi = hi
        self.flags = flags
        self.settled = 0
        """For a fragment: all seqnos up to this one were handed up before it, or never will be."""
        self._body = body
        self._start = start
        self._lengths = lengths
        self._messages: Sequence[Payload] | None = None

    @property
    def is_multicast(self) -> bool:
        return not self.dest

    @property
    def size(self) -> int:
        """Bytes of the payloads together."""
        if isinstance(self._lengths, int):
            return self._lengths * (self.hi - self.lo + 1)
        return sum(self._lengths)

    @property
    def header(self) -> bytes:
        """The part of the body that belongs to upper protocols."""
        return bytes(self._body[: self.headers])

    @property
    def messages(self) -> Sequence[Payload]:
        """The payloads, cut once."""
        cut = self._messages
        if cut is None:
            cut = split_payloads(self._body, self._start, self._lengths, self.hi - self.lo + 1)
            self._messages = cut
        return cut

    def have(self, messages: Sequence[Payload]) -> None:
        """Set the payloads, where the caller has them: they need not be cut out of the frame."""
        self._messages = messages

    def __len__(self) -> int:
        return self.hi - self.lo + 1

    def __iter__(self) -> Iterator[Payload]:
        return iter(self.messages)

    @overload
    def __getitem__(self, index: int) -> Payload: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Payload]: ...

    def __getitem__(self, index: int | slice) -> Payload | Sequence[Payload]:
        return self.messages[index]
