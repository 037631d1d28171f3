"""Histories as tests tell them: `0 invoke write@x 1` is a line of process 0, a second per line."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from stormcast.chaos.histories.operations import History
from stormcast.chaos.histories.reading import read_history_untrusted

SOURCE = "ops.jsonl"


def as_line(told: str, time: float) -> dict[str, Any]:
    process, kind, what, *value = told.split(" ", 3)
    f, _at, key = what.partition("@")
    line: dict[str, Any] = {"process": int(process), "type": kind, "f": f, "time": time}
    if key:
        line["key"] = key
    if value:
        line["value"] = json.loads(value[0])
    return line


def read_lines(lines: list[dict[str, Any]]) -> History:
    return read_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def read_bytes(data: bytes) -> History:
    return read_history_untrusted(BytesIO(data), SOURCE)


def history(*told: str) -> History:
    """The history of lines, the first at 1 s, the second at 2 s, and so on."""
    found = read_lines([as_line(one, float(at)) for at, one in enumerate(told, 1)])
    assert not found.problems, found.problems
    return found
