"""Answers to requests, refusals, and the bodies of requests as values."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

from stormcast.node.core.errors import NodeError

MAX_DEPTH: Final = 32
"""The deepest nesting of a body: deeper than any command needs."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""JSON can spell half of a surrogate pair; no encoding can."""

Handler = Callable[[object], "Answer | Awaitable[Answer]"]
"""Takes a request's body: bytes, or, when called within the process, the value parsed already."""
Table = Mapping[str, Mapping[str, Handler]]
"""Endpoints by path, then by method."""
Pass = Callable[[str, str, bytes], Awaitable["Answer"]]
"""Takes method, target and body of any request below a path."""


class Answer(NamedTuple):
    """The answer to a request."""

    content: object
    """Bytes are sent as they are; any other value is sent as JSON."""
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    parts: Iterable[bytes] | None = None
    """The rest of the body, for a body that is too long to be held whole."""

    @property
    def body(self) -> bytes:
        """The bytes that are sent for `content`."""
        if isinstance(self.content, bytes):
            return self.content
        return json.dumps(self.content).encode() + b"\n"


class RefusedError(NodeError):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def as_json(value: object, status: int = 200) -> Answer:
    """Return an answer with a value as JSON."""
    return Answer(value, status)


def parse_body(body: object) -> Any:  # noqa: ANN401 whatever was sent
    """Return the JSON value of a request's body; an empty body is an empty mapping."""
    if not isinstance(body, bytes):
        return body
    if not body.strip():
        return {}
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is no JSON: {error}") from None
    _check_plain(value)
    return value


def _refuse_constant(name: str) -> None:
    raise RefusedError(400, f"the body is no JSON: {name} is no number there; write a finite one")


def _check_plain(value: object) -> None:
    """Refuse text with half a surrogate pair, infinite numbers, and deep nesting: no command
    means them, and a program that shows or stores the value may be unable to write them."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner += (*one, *one.values())
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str) and _SURROGATE.search(one):
                raise RefusedError(
                    400, f"the body has half a character in {one!r}; write all of it"
                )
            elif isinstance(one, float) and not isfinite(one):
                raise RefusedError(400, "the body has a number that is too large; write less")
        level = inner
        if not level:
            return
    raise RefusedError(400, f"the body is nested deeper than {MAX_DEPTH} times; write it flatter")


def parse_mapping(body: object, example: str) -> dict[str, Any]:
    """Return the JSON mapping of a request's body; refuse an empty one, and other values."""
    value = parse_body(body)
    if not isinstance(value, dict) or not value:
        raise RefusedError(400, f"write a mapping such as {example}")
    return value
