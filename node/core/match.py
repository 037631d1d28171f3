"""Selects frames: conditions as data, and a matcher that counts the frames that meet them.

Every condition can be tested on a frame's preamble. The frames of a network rule, of a test
protocol in a stack, and of a rule in the kernel are all described by one `Match`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from stormcast.node.core import wire
from stormcast.node.core.errors import require
from stormcast.node.core.model import FLAG_NAMES
from stormcast.node.core.wire import Head

Direction = Literal["up", "down"]
DIRECTIONS: Final = (*get_args(Direction), "both")
FLAG_BY_NAME: Final = {name: bit for bit, name in FLAG_NAMES.items()}
FOREVER: Final = 1 << 62

Range = tuple[int, int]
"""First and last, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Selects the frames that meet every condition; an empty condition is met by all frames."""

    protocols: tuple[str, ...] = ()
    """Names as in stormcast.node.core.wire."""

    kinds: tuple[str, ...] = ()
    """Names as in stormcast.node.core.wire."""

    sources: tuple[str, ...] = ()
    """Names of members; for a test protocol also their short ids in hexadecimal."""

    dests: tuple[str, ...] = ()
    """As `sources`; for a test protocol `group` selects frames to all members."""

    connection: int | None = None
    """For a network rule: 1 is the first connection between source and dest, 2 the second."""

    seqno: Range | None = None
    """Selects batches with any of these seqnos, and control frames that carry one of them."""

    transmission: Range | None = None
    """0 is the first transmission, 1 its first repeat."""

    flags: tuple[str, ...] = ()
    """All of them must be set."""

    direction: str = "both"
    """For a test protocol: `up`, `down` or `both`."""

    occurrence: Range | None = None
    """Selects by number, from 1, among the frames that meet all other conditions."""

    times: int = FOREVER
    """Selects at most so many frames."""

    def __post_init__(self) -> None:
        _known("protocol", self.protocols, wire.PROTOCOL_BY_NAME)
        _known("kind", self.kinds, wire.KIND_BY_NAME)
        _known("flags", self.flags, FLAG_BY_NAME)
        require(
            self.direction in DIRECTIONS,
            f"direction is {self.direction!r}: choose one of {', '.join(DIRECTIONS)}",
        )
        for name in ("seqno", "transmission", "occurrence"):
            ends = getattr(self, name)
            require(
                ends is None or 0 <= ends[0] <= ends[1],
                f"{name} is {ends}: the first must not be above the last",
            )
        require(self.times > 0, f"times is {self.times}: it must be positive")


def _known(what: str, names: tuple[str, ...], known: Mapping[str, int]) -> None:
    for name in names:
        require(name in known, f"{what} {name!r} is unknown; known: {', '.join(known)}")


ANYTHING: Final = Match()
"""Met by every frame."""


class Connections:
    """Numbers the connections between members in the order in which their data appears."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[tuple[int, int], list[int]] = {}

    def note(self, head: Head) -> None:
        """Number the connection of a frame of data, if it is new."""
        if head.kind == wire.DATA:
            seen = self._ids.setdefault((head.source, head.dest), [])
            if head.conn not in seen:
                seen.append(head.conn)

    def ordinal(self, head: Head) -> int:
        """Return the number of a frame's connection, from 1; 0 if no data of it was seen."""
        # Control frames travel against the data whose connection they name.
        for pair in ((head.source, head.dest), (head.dest, head.source)):
            seen = self._ids.get(pair, ())
            if head.conn in seen:
                return seen.index(head.conn) + 1
        return 0


class Matcher:
    """Tests frames against a match, and counts those that meet it.

    The caller tests the names of members and the direction: a frame contains neither.
    """

    __slots__ = ("_connections", "flags", "kinds", "match", "met", "protocols", "taken")

    def __init__(self, match: Match, connections: Connections | None = None) -> None:
        self.match = match
        self.protocols = frozenset(wire.PROTOCOL_BY_NAME[name] for name in match.protocols)
        self.kinds = frozenset(wire.KIND_BY_NAME[name] for name in match.kinds)
        self.flags = sum(FLAG_BY_NAME[name] for name in frozenset(match.flags))
        self.met = 0
        """Frames that met every condition but the occurrence."""
        self.taken = 0
        self._connections = Connections() if connections is None else connections

    def takes(self, head: Head) -> bool:
        """Whether a frame is selected. Counts the frame, so call this once for each."""
        match = self.match
        if self.taken >= match.times or not self._meets(head):
            return False
        self.met += 1
        if not _overlaps(match.occurrence, self.met, self.met):
            return False
        self.taken += 1
        return True

    def _meets(self, head: Head) -> bool:
        match = self.match
        last = head.lo + max(head.count, 1) - 1 if head.kind == wire.DATA else head.lo
        return (
            (not self.protocols or head.protocol in self.protocols)
            and (not self.kinds or head.kind in self.kinds)
            and head.flags & self.flags == self.flags
            and _overlaps(match.seqno, head.lo, last)
            and _overlaps(match.transmission, head.transmission, head.transmission)
            and (match.connection is None or self._connections.ordinal(head) == match.connection)
        )


def _overlaps(wanted: Range | None, lo: int, hi: int) -> bool:
    return wanted is None or (lo <= wanted[1] and wanted[0] <= hi)
