"""Values with units: durations and sizes, as settings and scenario files write them."""

from __future__ import annotations

import re
from typing import Final

from stormcast.node.core.errors import ConfigError

DURATIONS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 1000, "MB": 1_000_000}
# So many digits are beyond any use, and as many as one likes are beyond what a float holds.
_VALUE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z]+)")


def parse_duration(text: str, what: str) -> float:
    """Seconds of `500ms`, `5s`, `2min`."""
    number, unit = _split(text, what, DURATIONS, "a duration such as 500ms")
    return number * DURATIONS[unit]


def parse_size(text: str, what: str) -> int:
    """Bytes of `100B`, `4MiB`."""
    number, unit = _split(text, what, SIZES, "a size such as 64KiB")
    size = number * SIZES[unit]
    if size != int(size):
        raise ConfigError(f"{what} is {text!r}: write a size such as 64KiB, of whole bytes")
    return int(size)


def _split(
    text: str, what: str, units: dict[str, float] | dict[str, int], wanted: str
) -> tuple[float, str]:
    match = _VALUE.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ConfigError(f"{what} is {text!r}: write {wanted} (units: {', '.join(units)})")
    return float(match[1]), match[2]
