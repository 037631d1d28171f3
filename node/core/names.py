"""The one rule for names and texts that come from outside.

A name that the user chooses is refused unless it keeps `NAME`. A name or text from the network, a
file or another process's answer is shown by `printable`: a line break or an escape sequence in it
must reach no terminal, log or label.
"""

from __future__ import annotations

import re
from typing import Final

from stormcast.node.core.errors import require, shortened

MAX_NAME: Final = 63
"""Characters of a name: what a host name may have."""
NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")
"""A name is also a word of a trace's START event, and part of the names of files and labels."""
MAX_LINE: Final = 1000
"""Characters of a text from outside in one line that is shown."""


def check_name(what: str, name: str) -> str:
    """Return a name that the user chose; ConfigError unless it keeps `NAME`."""
    require(
        NAME.fullmatch(name) is not None,
        f"{what} is {shortened(name)!r}: write letters, digits, dots and dashes, {MAX_NAME} at "
        "most",
    )
    return name


def as_name(text: str, most: int = MAX_NAME) -> str:
    """Return a name made of a text: what a name cannot have becomes a dash, and it is cut."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-")[:most] or "x"


def printable(text: str, most: int | None = None) -> str:
    """Return a text as it may be shown: what is not printable is escaped as in Python (`\\x1b`),
    and what is longer than `most` characters is cut. A text once treated so stays as it is."""
    if most is not None and len(text) > most:
        # Escapes only lengthen a text: no more of it than this can be shown.
        text = text[:most] + "…"
    if not text.isprintable():
        text = "".join(map(_escaped, text))
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def one_line(text: object, most: int = MAX_LINE) -> str:
    """Return what another process said as one printable line: blanks and line breaks between its
    words become single spaces."""
    return printable(" ".join(str(text).split()), most)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
