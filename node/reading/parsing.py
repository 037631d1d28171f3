"""Parses YAML to nodes and values; an error has its place in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from stormcast.node.core.errors import ConfigError, Place

MAX_BYTES: Final = 1 << 20

L = TypeVar("L", bound="Loader")
T = TypeVar("T")


class Loader(yaml.SafeLoader):
    """Parses the text of one file, once `begin` was called."""

    def __init__(self, text: str, source: str, what: str) -> None:
        self.text = text
        self.source = source
        self.what = what
        """The word for the file in a message, such as `scenario`."""

    def begin(self) -> None:
        # Raises for a character that YAML does not allow, so `parse` calls it.
        super().__init__(self.text)


def parse(loader: L, take: Callable[[L], T]) -> T:
    """Return what `take` reads from a loader; ConfigError, with the place, for text that is no
    YAML."""
    has_begun = False
    try:
        loader.begin()
        has_begun = True
        return take(loader)
    except yaml.reader.ReaderError as error:
        line, column = _line_and_column(loader.text, error.position)
        character = f"U+{ord(loader.text[error.position]):04X}"
        raise ConfigError(
            f"not YAML: character {character} is not allowed in YAML; remove it",
            Place(loader.source, line, column),
        ) from None
    except yaml.MarkedYAMLError as error:
        raise _explained(error, loader) from None
    except (ValueError, OverflowError, RecursionError) as error:
        # pyyaml converts some escapes, versions and dates without checking them first.
        mark = loader.get_mark() if has_begun else None
        raise ConfigError(f"not YAML: {error}", place_of(mark, loader.source)) from None


def _explained(error: yaml.MarkedYAMLError, loader: Loader) -> ConfigError:
    message = f"not YAML: {', '.join(filter(None, (error.context, error.problem)))}"
    if error.context == "expected a single document in the stream":
        message = f"a second document begins here: write one {loader.what} per file"
    return ConfigError(message, place_of(error.problem_mark or error.context_mark, loader.source))


def place_of(mark: Any, source: str) -> Place:  # noqa: ANN401 pyyaml has two kinds of marks
    """Return the place of a mark in a file; without a mark, the file's beginning."""
    return Place(source, mark.line + 1, mark.column + 1) if mark else Place(source, 1, 1)


# -- Files -----------------------------------------------------------------------------------------


def text_of(path: str, what: str) -> str:
    """Return the text of a file; the ConfigError if it cannot be read begins with `what`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{what}: {path}: {error.strerror}; name a file that can be read"
        ) from None
    return decode(content, path)


def decode(content: bytes, source: str) -> str:
    """Return the content of a file as text."""
    check_size(content, source)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        line, column = _line_and_column(before, len(before))
        raise ConfigError("not UTF-8: save it as UTF-8", Place(source, line, column)) from None


def check_size(content: bytes, source: str) -> None:
    """Refuse a file that is too large."""
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"larger than {MAX_BYTES} bytes: split it, or write less", Place(source, 1, 1)
        )


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return line and column, from 1, of a position in a text."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
