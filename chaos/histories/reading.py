"""Reads a history: JSON, one line for each invocation and one for each end (docs/histories.md).

Clients are programs of strangers, and may be killed in the middle of a line. Whatever stands in the
lines, nothing is raised: each problem is noted with its place.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from math import inf, isfinite
from typing import Any, Final, NoReturn, Protocol

from stormcast.chaos.histories.operations import NEVER, History, Operation, Outcome
from stormcast.chaos.histories.values import NULL, BadValue, Freezer, Value

MOST_LINE_BYTES: Final = 4 * 2**20
"""A line may hold a set of some hundred thousand elements."""
MOST_BYTES: Final = 64 * 2**20
MOST_LINES: Final = 1_000_000
MOST_PROBLEMS: Final = 20
"""Problems that are kept in words. All are counted."""
MOST_NAME: Final = 100
"""Characters of a process, a key or the name of an operation."""
MOST_SECONDS: Final = 10**10
"""Bound of times: what is larger was not written in seconds."""
_MOST_PROCESS: Final = 2**31
_INVOKE: Final = "invoke"
_TYPES: Final = (_INVOKE, *(outcome.value for outcome in Outcome))


class Lines(Protocol):
    """A file that is open for reading bytes."""

    def readline(self, size: int, /) -> bytes:
        """Return the rest of the line, at most `size` bytes of it; nothing at the end."""


def read_history_untrusted(lines: Lines, source: str) -> History:
    """Return the history that is written in a file; `source` is its name in messages."""
    reader = _Reader(source)
    reader.read(lines)
    return reader.history()


class _Reader:
    """Reads lines, and joins invocations with their ends."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._line = 0
        self._time = 0.0
        self._open: dict[str, Operation] = {}
        """By process: what was invoked, and has not ended."""
        self._operations: list[Operation] = []
        self._problems: list[str] = []
        self._problem_count = 0
        self._freezer = Freezer()

    def history(self) -> History:
        operations = [*self._operations, *self._open.values()]
        operations.sort(key=lambda one: one.invoked)
        return History(self._source, tuple(operations), tuple(self._problems), self._problem_count)

    def read(self, lines: Lines) -> None:
        """Read all lines, up to the bounds."""
        left = MOST_BYTES
        while line := lines.readline(min(MOST_LINE_BYTES, left) + 1):
            self._line += 1
            left -= len(line)
            if left < 0 or self._line > MOST_LINES:
                self._note(
                    f"the history ends here for its reader, which takes {MOST_LINES} lines and "
                    f"{MOST_BYTES >> 20} MiB: run the client for a shorter time"
                )
                return
            if len(line) > MOST_LINE_BYTES:
                self._note(f"longer than {MOST_LINE_BYTES >> 20} MiB: read fewer elements at once")
                left -= _skip_line(lines, line, left)
            elif line.strip():
                self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        try:
            found = _parse(line)
            self._take(found)
        except BadValue as problem:
            self._note(str(problem))

    def _note(self, problem: str) -> None:
        self._problem_count += 1
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(f"{self._source}:{self._line}: {problem}")

    def _take(self, found: dict[str, Any]) -> None:
        """Take the object of one line."""
        for name in ("process", "type", "f", "time"):
            if name not in found:
                raise BadValue(f"no {name}: write it into every line")
        kind = found["type"]
        if kind not in _TYPES:
            raise BadValue(f"type is none of {', '.join(_TYPES)}")
        process = self._process(found["process"])
        f = found["f"]
        if not isinstance(f, str) or not _is_name(f):
            raise BadValue(f"f is no string of 1 to {MOST_NAME} printable characters")
        key = self._key(found["key"]) if "key" in found else None
        value = self._freezer.freeze(found["value"]) if "value" in found else None
        time = self._at(found["time"])
        if kind == _INVOKE:
            self._invoke(process, f, NULL if key is None else key, value, time)
        else:
            self._end(process, f, key, value, time, Outcome(kind))

    def _invoke(self, process: str, f: str, key: Value, value: Value | None, time: float) -> None:
        former = self._open.get(process)
        if former is not None:
            # What it was is no more known, but the second one may be well.
            self._operations.append(former)
            self._note(
                f"process {process} invokes an operation, and its last one (line {former.invoked}) "
                "has not ended: write its end, or give the second one a process of its own"
            )
        self._open[process] = Operation(
            process=process,
            f=f,
            key=key,
            argument=value,
            result=None,
            outcome=Outcome.INFO,
            invoked=self._line,
            ended=NEVER,
            start=time,
            end=inf,
        )

    def _end(
        self,
        process: str,
        f: str,
        key: Value | None,
        value: Value | None,
        time: float,
        outcome: Outcome,
    ) -> None:
        begun = self._open.get(process)
        if begun is None:
            raise BadValue(f"process {process} ends an operation that no line before invokes")
        if f != begun.f or (key is not None and key != begun.key):
            raise BadValue(
                f"process {process} ends another operation than the one that it has invoked "
                f"(line {begun.invoked}): write the f and the key of that one"
            )
        del self._open[process]
        self._operations.append(
            Operation(
                process=process,
                f=f,
                key=begun.key,
                argument=begun.argument,
                result=value if outcome is Outcome.OK else None,
                outcome=outcome,
                invoked=begun.invoked,
                ended=self._line,
                start=begun.start,
                end=time,
            )
        )

    def _process(self, found: object) -> str:
        if type(found) is int and 0 <= found < _MOST_PROCESS:
            return str(found)
        if isinstance(found, str) and _is_name(found):
            return json.dumps(found)
        raise BadValue("process is neither a number from 0 on nor a short printable string")

    def _key(self, found: object) -> Value:
        if isinstance(found, list | dict) or (isinstance(found, str) and not _is_name(found)):
            raise BadValue("key is neither a number nor a short printable string")
        return self._freezer.freeze(found)

    def _at(self, found: object) -> float:
        """Return the time of a line, which is not before that of the last one."""
        if type(found) is not int and not isinstance(found, Decimal):
            raise BadValue("time is no number of seconds")
        if not 0 <= found <= MOST_SECONDS:
            raise BadValue("time is no number of seconds from 0 to 10^10")
        time = float(found)
        if time < self._time:
            raise BadValue(
                f"time goes back from {self._time:g} to {time:g}: take the time, and write the "
                "line, under one lock"
            )
        self._time = time
        return time


def _skip_line(lines: Lines, line: bytes, left: int) -> int:
    """Read the rest of a line that is too long, up to a bound; return its length."""
    skipped = 0
    while not line.endswith(b"\n") and skipped <= left:
        line = lines.readline(2**16)
        if not line:
            break
        skipped += len(line)
    return skipped


def _parse(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; BadValue if it is none."""
    try:
        found = json.loads(
            line.decode(),
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_decimal,
        )
    except UnicodeDecodeError:
        raise BadValue("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadValue(f"no JSON: {error.msg} at column {error.colno}") from None
    except BadValue:
        raise
    except (ValueError, RecursionError):
        # Of a whole number of thousands of digits, and of thousands of open brackets.
        raise BadValue("a number too long, or too many levels: write it as a string") from None
    if not isinstance(found, dict):
        raise BadValue("no JSON object")
    return found


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadValue("an object names one field twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise BadValue(f"{name} is no JSON")


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise BadValue("a number of too large an exponent") from None
    if not isfinite(float(number)):
        raise BadValue("a number of too large an exponent")
    return number


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MOST_NAME and text.isprintable()
