"""HTML and SVG as text, in which no text from a trace can become markup."""

from __future__ import annotations

from html import escape
from typing import Final
from unicodedata import category

_VOID: Final = frozenset({"meta", "br", "hr", "link"})
_UNSHOWN: Final = frozenset({"Cc", "Cf", "Cs", "Co"})
"""Unicode categories that are not shown: control, format (such as direction marks), surrogate and
private characters."""
_KEPT: Final = frozenset("\n\t")


class Markup(str):
    """Text that is markup: it is inserted as it is; any other text is escaped first."""

    __slots__ = ()


Child = str | None
"""Markup, or text to be escaped; None is left out."""
Value = str | int | float | None
"""The value of an attribute; None leaves the attribute out."""


def tag(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """Return an element. `class_` becomes `class`, and other underscores in names become dashes."""
    opening = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{opening}/>")
    return Markup(f"<{name}{opening}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Join markup and texts, one after the other."""
    return Markup("".join(map(_child, (each for each in children if each is not None))))


def plain(text: str) -> str:
    """Replace characters of an untrusted text that cannot be shown safely."""
    return "".join(
        char if char in _KEPT or category(char) not in _UNSHOWN else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def short(text: str, length: int) -> str:
    """Shorten a text to `length` characters, by its end."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _child(child: str) -> str:
    return child if isinstance(child, Markup) else escape(plain(child), quote=False)


def _attribute(value: str | float) -> str:
    if isinstance(value, float):
        return number(value)
    return escape(plain(str(value)))


def number(value: float) -> str:
    """Format a coordinate, to a hundredth of a pixel, which is precise enough."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
