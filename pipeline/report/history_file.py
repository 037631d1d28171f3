"""Reads the history of a run with guests, for its chart; its lines are of strangers, and not
trusted: what is no operation is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

HISTORY: Final = "history.jsonl"
MOST_BYTES: Final = 64 << 20
"""The rig reads no more of it either."""
OPEN: Final = "info"
"""How an operation ended of whose end nothing is known."""
ENDS: Final = ("ok", "fail", OPEN)


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of one client process."""

    process: str
    start: float
    end: float | None
    """None: it has no end."""
    outcome: str


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """The time in which a fault was done."""

    fault: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Clients:
    """What clients of guests did, and when faults were done."""

    model: str
    seconds: float
    spans: tuple[Span, ...]
    faults: tuple[FaultSpan, ...]
    file: str = ""
    """The scenario file, as it was named."""
    doubt: str = ""
    """Why nothing is shown of the history."""


def read_clients(directory: Path, said: Mapping[str, Any]) -> Clients | None:
    """Return what clients did in a run, by its verdict; None where it has no guests."""
    if not isinstance(said.get("guests"), list):
        return None
    seconds = _seconds(said.get("virtual_seconds")) or 0.0
    faults = tuple(_faults(said.get("windows"), seconds))
    model, named = str(said.get("model") or ""), str(said.get("file") or "")
    content = b""
    try:
        with (directory / HISTORY).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError:
        pass
    wanted = said.get("history_digest")
    if wanted is not None and sha256(content).hexdigest() != wanted:
        doubt = f"The {HISTORY} that lies here is not the one that was judged: it is not shown."
        return Clients(model, seconds, (), faults, named, doubt)
    return Clients(model, seconds, tuple(_spans(content)), faults, named)


def _faults(told: object, seconds: float) -> Iterator[FaultSpan]:
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict):
            start, end = _seconds(one.get("start")), _seconds(one.get("end"))
            if start is not None and end is not None:
                yield FaultSpan(str(one.get("fault")), start, min(max(start, end), seconds))


def _spans(content: bytes) -> Iterator[Span]:
    begun: dict[str, float] = {}
    for line in content.splitlines():
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        at = _seconds(told.get("time")) if isinstance(told, dict) else None
        if at is None:
            continue
        process, kind = str(told.get("process")), told.get("type")
        if kind == "invoke":
            if process in begun:
                yield Span(process, begun[process], None, OPEN)
            begun[process] = at
        elif kind in ENDS and process in begun:
            yield Span(process, begun.pop(process), at, kind)
    yield from (Span(process, start, None, OPEN) for process, start in begun.items())


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e9 else None  # noqa: PLR2004 thirty years
