"""Message rules at work: which frames a rule takes, counted as the kernel would count them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from node.core import wire

if TYPE_CHECKING:
    from chaos.faults import Rule

_PREAMBLE: Final = struct.Struct(">BBHBBBBIIIIQ")
assert _PREAMBLE.size == wire.PREAMBLE_SIZE

ANY: Final = (0, 1 << 63)


@dataclass(slots=True, kw_only=True)
class RuleState:
    """One rule of a run: what it matches, what it does, and what it did."""

    fault: str
    rule: Rule
    protocols: frozenset[int]
    kinds: frozenset[int]
    flags: int
    matched: int = 0
    """Frames that met every condition but the occurrence."""
    taken: int = 0
    connections: dict[tuple[int, int], list[int]]
    """Connection ids per source and dest, in order of appearance; shared by all rules."""
    held: list[tuple[Any, int, bytes]]

    def takes(self, frame: bytes) -> bool:
        """Whether the rule acts on this frame; counts occurrences as they pass."""
        rule = self.rule
        if rule.times is not None and self.taken >= rule.times:
            return False
        if not self._meets_conditions(frame):
            return False
        self.matched += 1
        if not _within(self.matched, rule.match.occurrence):
            return False
        self.taken += 1
        return True

    def _meets_conditions(self, frame: bytes) -> bool:
        """Whether the frame meets everything but the occurrence; by its preamble alone."""
        preamble = _PREAMBLE.unpack_from(frame)
        _magic, _version, count, kind, protocol, transmission, flags = preamble[:7]
        source, dest, conn, lo = preamble[8:12]
        match = self.rule.match
        hi = lo + count - 1 if kind == wire.DATA and count else lo
        return (
            (not self.protocols or protocol in self.protocols)
            and (not self.kinds or kind in self.kinds)
            and not self.flags & ~flags
            and _within(transmission, match.transmission)
            and (match.seqno is None or (lo <= match.seqno[1] and hi >= match.seqno[0]))
            and match.connection in (None, self._ordinal(source, dest, conn))
        )

    @staticmethod
    def note_connection(connections: dict[tuple[int, int], list[int]], frame: bytes) -> None:
        """Remember the order in which connections of a pair appear."""
        preamble = _PREAMBLE.unpack_from(frame)
        if preamble[3] == wire.DATA:
            seen = connections.setdefault((preamble[8], preamble[9]), [])
            if preamble[10] not in seen:
                seen.append(preamble[10])

    def _ordinal(self, source: int, dest: int, conn: int) -> int:
        """Which connection of the pair this is, from 1; 0 when no data of it was ever sent."""
        # Control frames travel against the data whose connection they name.
        for pair in ((source, dest), (dest, source)):
            if conn in self.connections.get(pair, ()):
                return self.connections[pair].index(conn) + 1
        return 0


def _within(value: int, bounds: tuple[int, int] | None) -> bool:
    return bounds is None or bounds[0] <= value <= bounds[1]
