"""HTML and SVG as text, in which nothing that comes from a trace can be markup."""

from __future__ import annotations

from html import escape
from typing import Final
from unicodedata import category

_VOID: Final = frozenset({"meta", "br", "hr", "link"})
_UNSHOWN: Final = frozenset({"Cc", "Cf", "Cs", "Co"})
"""Controls, marks that turn the direction of a line, half characters, private ones."""
_KEPT: Final = frozenset("\n\t")


class Markup(str):
    """Text that is markup: it is put in as it is, anything else is escaped first."""

    __slots__ = ()


Child = str | None
"""Markup, or text to be escaped; None is nothing."""
Value = str | int | float | None
"""Of an attribute; None leaves it out."""


def tag(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element. `class_` is `class`, and underscores in names of attributes are dashes."""
    opening = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{opening}/>")
    return Markup(f"<{name}{opening}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """One after the other."""
    return Markup("".join(map(_child, (each for each in children if each is not None))))


def plain(text: str) -> str:
    """What can be shown of a text that anybody may have written."""
    return "".join(
        char if char in _KEPT or category(char) not in _UNSHOWN else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def short(text: str, length: int) -> str:
    """A text that fits; its end is what is left out."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _child(child: str) -> str:
    return child if isinstance(child, Markup) else escape(plain(child), quote=False)


def _attribute(value: str | float) -> str:
    if isinstance(value, float):
        return number(value)
    return escape(plain(str(value)))


def number(value: float) -> str:
    """A coordinate: a hundredth of a pixel is more than anyone sees."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
