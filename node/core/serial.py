"""Serial-number arithmetic: 32-bit counters that may wrap, compared by their distance.

Connection ids and timestamps only ever grow, but the fields that carry them are finite. Two values
less than 2^31 apart keep their order across the wrap.
"""

from __future__ import annotations

SERIAL_BITS = 32
_MASK = (1 << SERIAL_BITS) - 1
_HALF = 1 << (SERIAL_BITS - 1)


def is_newer(candidate: int, reference: int) -> bool:
    """Whether `candidate` was counted after `reference`."""
    return 0 < ((candidate - reference) & _MASK) < _HALF


def next_serial(value: int) -> int:
    """The value after this one; 0 is skipped, because it means "none" on the wire."""
    return ((value + 1) & _MASK) or 1
