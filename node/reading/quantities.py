"""Quantities as files and flags write them: a number and its unit, exact in both directions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from stormcast.node.core.errors import ConfigError, NodeError

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
    units: dict[str, Fraction]
    most: Fraction
    """What is larger is a mistake, and an unbounded run or allocation."""
    is_whole: bool = field(default=False, kw_only=True)
    """True: bytes, which come in whole numbers."""
    is_spaced: bool = field(default=False, kw_only=True)
    """Whether spaces may stand around the number and in the unit."""
    written: tuple[str, ...] = field(default=(), kw_only=True)
    """The units that `write` chooses from; none: all."""

    def parse(self, text: str) -> float:
        """The value in the base unit: seconds, bytes, bytes per second, or a share of one."""
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
        scale = self.units[unit]
        # Whole numbers until the end: they are exact, and faster than fractions.
        above = int(whole + decimals) * scale.numerator
        below: int = scale.denominator * 10 ** len(decimals)
        if above * self.most.denominator > self.most.numerator * below:
            raise UnitError(f"it is above the limit of {self.write(float(self.most))}; write less")
        if self.is_whole and above % below:
            raise UnitError("it is not a whole number of bytes; write a whole number")
        return above / below

    def read(self, text: str, what: str) -> float:
        """The value of a setting that is called `what`."""
        try:
            return self.parse(text)
        except UnitError as error:
            raise ConfigError(f"{what} is {text!r}: {error}") from None

    def write(self, value: float) -> str:
        """The text that `parse` turns into exactly this value; without a point if it can, short."""
        exact = Fraction(repr(value))
        texts = [
            number + unit
            for unit in self.written or self.units
            if (number := _decimal(exact / self.units[unit])) is not None
        ]
        assert texts, f"{value!r} has too many digits to be written"
        return min(texts, key=lambda text: ("." in text, len(text)))

    def names(self) -> str:
        """The units there are, for a message."""
        return ", ".join(self.units)


def _decimal(value: Fraction) -> str | None:
    """A fraction in plain decimals, or None when it does not come out even."""
    scaled = value * 10**_DECIMALS
    if scaled.denominator != 1 or value < 0:
        return None
    digits = str(scaled.numerator).rjust(_DECIMALS + 1, "0")
    whole, rest = digits[:-_DECIMALS], digits[-_DECIMALS:].rstrip("0")
    return f"{whole}.{rest}" if rest else whole


_KI: Final = Fraction(1024)
_K: Final = Fraction(1000)

DURATION: Final = Quantity(
    "a duration",
    "500ms",
    # The base unit first: of two texts of one length the first is written.
    {"s": Fraction(1), "ms": 1 / _K, "us": 1 / _K**2, "min": Fraction(60), "h": Fraction(3600)},
    most=Fraction(1000 * 3600),
)
SIZE: Final = Quantity(
    "a size",
    "1KiB",
    {"B": Fraction(1), "KiB": _KI, "MiB": _KI**2, "GiB": _KI**3, "KB": _K, "MB": _K**2},
    most=_KI**4,
    is_whole=True,
)
RATE: Final = Quantity("a rate", "200/s", {"/s": Fraction(1), "/min": Fraction(1, 60)}, most=_K**3)
SHARE: Final = Quantity("a share", "5%", {"%": Fraction(1, 100)}, most=Fraction(1))
RATIO: Final = Quantity("a ratio", "150%", {"%": Fraction(1, 100)}, most=_K)
"""A share of something smaller: it may exceed the whole."""
BANDWIDTH: Final = Quantity(
    "a bandwidth",
    "8Mbit/s",
    {
        "B/s": Fraction(1),
        "KiB/s": _KI,
        "MiB/s": _KI**2,
        "bit/s": Fraction(1, 8),
        "kbit/s": _K / 8,
        "Mbit/s": _K**2 / 8,
        "Gbit/s": _K**3 / 8,
    },
    most=_K**4,
)

# The settings of a member and of its protocols: a timeout may be longer than any run, and a bound
# above any memory.
_MOST: Final = Fraction(1 << 63)
SETTING_DURATION: Final = replace(DURATION, most=_MOST, is_spaced=True, written=("s", "ms", "us"))
SETTING_SIZE: Final = replace(SIZE, most=_MOST, is_spaced=True, written=("B", "KiB", "MiB", "GiB"))
SETTING_RATE: Final = replace(RATE, is_spaced=True, written=("/s",))
