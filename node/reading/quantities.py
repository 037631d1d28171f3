"""Quantities in files and flags: a number and its unit, read and written without rounding."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from stormcast.node.core.errors import ConfigError, NodeError

if TYPE_CHECKING:
    from fractions import Fraction

Ratio = tuple[int, int]

# Bounded, because the time to read a number grows with the square of its digits.
_NUMBER: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,30}))?(.*)", re.DOTALL)
_DECIMALS: Final = 30


class UnitError(NodeError):
    """A quantity that cannot be read; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One kind of quantity: how it is read, and how it is written."""

    kind: str
    example: str
    units: dict[str, Ratio]
    """By name, as fractions of the base unit: numerator and denominator."""
    most: int
    """A larger value is a mistake, and would make a run or an allocation unbounded."""
    is_whole: bool = field(default=False, kw_only=True)
    """True for bytes, which come in whole numbers."""
    is_spaced: bool = field(default=False, kw_only=True)
    """Whether spaces may stand around the number and in the unit."""
    written: tuple[str, ...] = field(default=(), kw_only=True)
    """The units that `write` chooses from; none: all."""

    def parse(self, text: str) -> float:
        """Return the value in the base unit: seconds, bytes, bytes per second, or a share of 1."""
        matched = _NUMBER.fullmatch(text.strip() if self.is_spaced else text)
        if matched is None:
            raise UnitError(f"write {self.kind} such as {self.example}")
        whole, decimals, unit = matched[1], matched[2] or "", matched[3]
        if self.is_spaced:
            unit = "".join(unit.split())
        if unit not in self.units:
            fault = f"has the unknown unit {unit[:20]!r}" if unit else "has no unit"
            raise UnitError(
                f"it {fault}; write {self.kind} such as {self.example} (units: {self.names()})"
            )
        # Whole numbers until the end: they are exact, and faster than fractions.
        above, below = self.units[unit]
        above *= int(whole + decimals)
        below *= int(10 ** len(decimals))
        if above > self.most * below:
            raise UnitError(f"it is above the limit of {self.write(float(self.most))}; write less")
        if self.is_whole and above % below:
            raise UnitError("it is not a whole number of bytes; write a whole number")
        return above / below

    def read(self, text: str, what: str) -> float:
        """Return the value of a setting that is called `what`."""
        try:
            return self.parse(text)
        except UnitError as error:
            raise ConfigError(f"{what} is {text!r}: {error}") from None

    def write(self, value: float) -> str:
        """Return the text that `parse` turns into exactly this value: without a decimal point if
        possible, then the shortest."""
        # A process that only reads, such as a member's parent, does not pay memory for it.
        from fractions import Fraction  # noqa: PLC0415 rarely needed

        exact = Fraction(repr(value))
        texts = [
            number + unit
            for unit in self.written or self.units
            if (number := _decimal(exact / Fraction(*self.units[unit]))) is not None
        ]
        assert texts, f"{value!r} has too many digits to be written"
        return min(texts, key=lambda text: ("." in text, len(text)))

    def names(self) -> str:
        """Return the names of the units, for a message."""
        return ", ".join(self.units)


def _decimal(value: Fraction) -> str | None:
    """Return a fraction as a decimal number, or None if it has no finite one."""
    scaled = value * 10**_DECIMALS
    if scaled.denominator != 1 or value < 0:
        return None
    digits = str(scaled.numerator).rjust(_DECIMALS + 1, "0")
    whole, rest = digits[:-_DECIMALS], digits[-_DECIMALS:].rstrip("0")
    return f"{whole}.{rest}" if rest else whole


_KI: Final = 1 << 10
_MI: Final = 1 << 20
_GI: Final = 1 << 30

DURATION: Final = Quantity(
    "a duration",
    "500ms",
    # The base unit first: `write` takes the first of two texts of one length.
    {"s": (1, 1), "ms": (1, 1000), "us": (1, 1_000_000), "min": (60, 1), "h": (3600, 1)},
    most=1000 * 3600,
)
SIZE: Final = Quantity(
    "a size",
    "1KiB",
    {
        "B": (1, 1),
        "KiB": (_KI, 1),
        "MiB": (_MI, 1),
        "GiB": (_GI, 1),
        "KB": (1000, 1),
        "MB": (1_000_000, 1),
    },
    most=1 << 40,
    is_whole=True,
)
RATE: Final = Quantity("a rate", "200/s", {"/s": (1, 1), "/min": (1, 60)}, most=10**9)
SHARE: Final = Quantity("a share", "5%", {"%": (1, 100)}, most=1)
RATIO: Final = Quantity("a ratio", "150%", {"%": (1, 100)}, most=1000)
"""As a share, but it may exceed 100%."""
BANDWIDTH: Final = Quantity(
    "a bandwidth",
    "8Mbit/s",
    {
        "B/s": (1, 1),
        "KiB/s": (_KI, 1),
        "MiB/s": (_MI, 1),
        "bit/s": (1, 8),
        "kbit/s": (1000, 8),
        "Mbit/s": (1_000_000, 8),
        "Gbit/s": (1_000_000_000, 8),
    },
    most=10**12,
)

# The settings of a member and of its protocols: a timeout may be longer than any run, and a bound
# above any memory.
_MOST: Final = 1 << 63
SETTING_DURATION: Final = replace(DURATION, most=_MOST, is_spaced=True, written=("s", "ms", "us"))
SETTING_SIZE: Final = replace(SIZE, most=_MOST, is_spaced=True, written=("B", "KiB", "MiB", "GiB"))
SETTING_RATE: Final = replace(RATE, is_spaced=True, written=("/s",))
