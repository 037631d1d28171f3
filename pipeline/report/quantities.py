"""Formats quantities for readers: with a unit, and only significant digits."""

from __future__ import annotations

from typing import Final

THIN_SPACE: Final = "\N{NARROW NO-BREAK SPACE}"
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_STEPS: Final = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "µs", 1e6))


def count(value: int) -> str:
    """Format a count: 12,345."""
    return f"{value:,}"


def significant(value: float, digits: int = 3) -> str:
    """Format a number with so many significant digits: 1,230, 12.3, 0.012."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.12f}".rstrip("0").rstrip(".")


def duration(seconds: float) -> str:
    """Format a length of time: 2.1 ms, 16 s, 4 min 43 s."""
    if seconds >= _HOUR:
        return _two_units(round(seconds / _MINUTE), "h", "min")
    if seconds >= 2 * _MINUTE:
        return _two_units(round(seconds), "min", "s")
    if not seconds:
        return f"0{THIN_SPACE}s"
    for least, unit, factor in _STEPS:
        if seconds >= least * 0.9995:
            return f"{significant(seconds * factor)}{THIN_SPACE}{unit}"
    return f"<{THIN_SPACE}1{THIN_SPACE}µs"


def _two_units(value: int, large: str, small: str) -> str:
    whole, rest = divmod(value, 60)
    first = f"{whole}{THIN_SPACE}{large}"
    return f"{first} {rest}{THIN_SPACE}{small}" if rest else first


def moment(seconds: float) -> str:
    """Format a time on the clock of the run: 12.345 s, always in seconds, as in findings."""
    text = f"{seconds:.3f}".rstrip("0").rstrip(".")
    return f"{text}{THIN_SPACE}s"


def rate(per_second: float) -> str:
    """Format a rate: 120/s."""
    return f"{significant(per_second)}/s"


def share(part: float, whole: float) -> str:
    """Format a share: 12 %. A small share is never shown as 0, nor one below the whole as 100."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:  # noqa: PLR2004 what would be shown as 0.0
        return f"<{THIN_SPACE}0.1{THIN_SPACE}%"
    if 99.9 < percent < 100:  # noqa: PLR2004 what would be shown as 100
        return f">{THIN_SPACE}99.9{THIN_SPACE}%"
    return f"{significant(percent)}{THIN_SPACE}%"


def counted(value: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun: 1 message, 2 messages."""
    return f"{count(value)} {one if value == 1 else many or one + 's'}"
