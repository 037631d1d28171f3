"""Which frames or deliveries a probe means: conditions as data, read from a file, then looked up.

A probe sees items on their way down and up. Every condition stands in a frame's head, so what is
meant can be told without looking into what the item carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple, get_args

from node.core import wire
from node.core.errors import ConfigError, require
from node.core.model import FLAG_NAMES
from node.core.wire import Head

Direction = Literal["up", "down"]
DIRECTIONS: Final = (*get_args(Direction), "both")
FLAG_BY_NAME: Final = {name: bit for bit, name in FLAG_NAMES.items()}
FOREVER: Final = 1 << 62

Range = tuple[int, int]


class Item(NamedTuple):
    """Something that passes: a frame, or a delivery."""

    peer: int
    """On the way down where it goes (a short id, or the group), on the way up where it is from."""
    head: Head
    data: Any


Items = list[Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which items a probe strikes: those that meet every condition; an empty one is met by all."""

    protocols: tuple[str, ...] = ()
    """Names as in node.core.wire."""

    kinds: tuple[str, ...] = ()
    """Names as in node.core.wire."""

    sources: tuple[str, ...] = ()
    """Names of members, or their short ids in hexadecimal."""

    dests: tuple[str, ...] = ()
    """The same; `group` is what goes to all."""

    seqno: Range | None = None
    """A batch with any of these seqnos; of a control frame the one it carries."""

    transmission: Range | None = None
    """0 is the first transmission, 1 its first repeat."""

    flags: tuple[str, ...] = ()
    """All of them must be set."""

    direction: str = "both"
    """`up`, `down` or `both`."""

    occurrence: Range | None = None
    """The n-th items, from 1, that meet all other conditions."""

    times: int = FOREVER
    """Ends after so many items."""

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
"""Met by every item."""


# What files call a condition, where it is not the name of its field.
_KEYS: Final = {
    "protocol": "protocols",
    "kind": "kinds",
    "from": "sources",
    "to": "dests",
}


def read_match(values: Mapping[str, object]) -> Match:
    """A match from a file: `{kind: DATA, from: [n1], seqno: [3, 5], direction: up, times: 2}`. One
    name or number may stand for a list of one."""
    known = {entry.name for entry in fields(Match)} - set(_KEYS.values()) | set(_KEYS)
    read: dict[str, Any] = {}
    for key, value in values.items():
        require(key in known, f"match: unknown key {key}; known: {', '.join(sorted(known))}")
        name = _KEYS.get(key, key)
        if name == "direction":
            read[name] = value
        elif name == "times":
            read[name] = _number(key, value)
        elif name in {"seqno", "transmission", "occurrence"}:
            read[name] = _range(key, value)
        else:
            read[name] = names_of(f"match: {key}", value)
    return Match(**read)


def names_of(what: str, value: object) -> tuple[str, ...]:
    """A name or a list of names, from a file."""
    listed = value if isinstance(value, list | tuple) else [value]
    require(
        all(isinstance(name, str) for name in listed),
        f"{what} is {value!r}: write a name, or a list of names",
    )
    return tuple(listed)


def _number(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"match: {key} is {value!r}: write a whole number")
    return value


def _range(key: str, value: object) -> Range:
    ends = value if isinstance(value, list | tuple) else (value, value)
    if len(ends) != 2:  # noqa: PLR2004 a range has two ends
        raise ConfigError(f"match: {key} is {value!r}: write a number, or [first, last]")
    return _number(key, ends[0]), _number(key, ends[1])


class Matcher:
    """A match with its names looked up, and its items counted."""

    __slots__ = ("_flags", "_kinds", "_match", "_met", "_name_of", "_protocols", "_struck")

    def __init__(self, match: Match, name_of: Callable[[int], str]) -> None:
        self._match = match
        self._name_of = name_of
        self._protocols = frozenset(wire.PROTOCOL_BY_NAME[name] for name in match.protocols)
        self._kinds = frozenset(wire.KIND_BY_NAME[name] for name in match.kinds)
        self._flags = sum(FLAG_BY_NAME[name] for name in frozenset(match.flags))
        self._met = 0
        self._struck = 0

    def takes(self, item: Item, direction: Direction) -> bool:
        """Whether the item is meant, which counts it."""
        match = self._match
        if self._struck >= match.times or not self._meets(item, direction):
            return False
        self._met += 1
        nth = match.occurrence
        if nth is not None and not nth[0] <= self._met <= nth[1]:
            return False
        self._struck += 1
        return True

    def _meets(self, item: Item, direction: Direction) -> bool:
        match, head = self._match, item.head
        last = head.lo + max(head.count, 1) - 1 if head.kind == wire.DATA else head.lo
        return (
            match.direction in ("both", direction)
            and (not self._protocols or head.protocol in self._protocols)
            and (not self._kinds or head.kind in self._kinds)
            and head.flags & self._flags == self._flags
            and _overlaps(match.seqno, head.lo, last)
            and _overlaps(match.transmission, head.transmission, head.transmission)
            and self.is_named(match.sources, head.source)
            and self.is_named(match.dests, item.peer if direction == "down" else head.dest)
        )

    def is_named(self, names: tuple[str, ...], member: int) -> bool:
        """Whether a member, or the group, is one of those named; of none named, anybody is."""
        if not names:
            return True
        if member <= wire.GROUP:
            return "group" in names
        return self._name_of(member) in names or f"{member:08x}" in names


def _overlaps(wanted: Range | None, lo: int, hi: int) -> bool:
    return wanted is None or (lo <= wanted[1] and wanted[0] <= hi)
