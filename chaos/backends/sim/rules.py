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
    """Connection ids seen, per source and destination, in order of appearance; shared by all rules."""
    held: list[tuple[Any, int, bytes]]

    def takes(self, frame: bytes) -> bool:
        """Whether the rule acts on this frame; counts occurrences as they pass."""
        if self.rule.times is not None and self.taken >= self.rule.times:
            return False
        preamble = _PREAMBLE.unpack_from(frame)
        _magic, _version, count, kind, protocol, transmission, flags = preamble[:7]
        source, dest, conn, lo = preamble[8:12]
        match = self.rule.match
        if (self.protocols and protocol not in self.protocols) or (self.kinds and kind not in self.kinds):
            return False
        if self.flags & ~flags:
            return False
        if match.transmission is not None and not match.transmission[0] <= transmission <= match.transmission[1]:
            return False
        if match.seqno is not None:
            hi = lo + count - 1 if kind == wire.DATA and count else lo
            if hi < match.seqno[0] or lo > match.seqno[1]:
                return False
        if match.connection is not None and self._ordinal(source, dest, conn) != match.connection:
            return False
        self.matched += 1
        if match.occurrence is not None and not match.occurrence[0] <= self.matched <= match.occurrence[1]:
            return False
        self.taken += 1
        return True

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
