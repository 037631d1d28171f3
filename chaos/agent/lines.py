"""Requests to an agent, and its answers, as lines of JSON: for whoever is attached to its standard
input and output, as to those of a container. Nobody else can ask, so there is neither a port nor a
token.

    {"number": 7, "method": "POST", "target": "/renew", "body": {"lease": 3.0}}
    {"number": 7, "status": 200, "value": {"agent": "…", "lease": 3.0, "lapses": 0}}
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from itertools import count
from threading import Lock
from typing import Any, Final, Protocol

from stormcast.chaos.agent.client import AgentError, read_answer
from stormcast.chaos.agent.endpoints import MAX_BODY
from stormcast.node.control.answers import Answer, RefusedError, Table, parse_body
from stormcast.node.core.errors import NodeError

MAX_LINE: Final = MAX_BODY + 4096
"""Bytes of a line."""
SILENCE_SECONDS: Final = 30.0
"""Seconds without a request after which the agent ends: whoever started it was killed before it was
attached, or cannot reach it any more. Longer than any lease of those who ask."""
ANSWER_SECONDS: Final = 10.0
"""Seconds that an answer may take: an agent runs programs before it answers."""


# -- The agent's side ----------------------------------------------------------------------------


async def serve_lines(
    table: Table,
    lines: asyncio.StreamReader,
    write: Callable[[bytes], object],
    on_failure: Callable[[Exception], None],
    silence: float = SILENCE_SECONDS,
) -> str:
    """Answer each line of the input; return why that is over."""
    while True:
        try:
            async with asyncio.timeout(silence):
                line = await lines.readline()
        except TimeoutError:
            return f"nobody asked anything for {silence:g} s"
        except ValueError:
            return f"a request has more than {MAX_LINE} bytes"
        if not line.endswith(b"\n"):
            return "whoever was attached is gone"
        write(await _answered(table, line, on_failure))


async def _answered(table: Table, line: bytes, on_failure: Callable[[Exception], None]) -> bytes:
    number: object = None
    try:
        asked = parse_body(line)
        if not isinstance(asked, dict):
            raise RefusedError(400, 'write {"number": …, "method": …, "target": …}')
        number = asked.get("number")
        answer = await _answer(table, asked)
        told: Mapping[str, object] = {"status": answer.status, "value": answer.content}
    except NodeError as error:
        status = error.status if isinstance(error, RefusedError) else 400
        told = {"status": status, "value": {"error": str(error)}}
    except Exception as error:  # noqa: BLE001 a question must not end the agent
        on_failure(error)
        told = {"status": 500, "value": {"error": f"{type(error).__name__}; a bug"}}
    return json.dumps({"number": number, **told}).encode() + b"\n"


async def _answer(table: Table, asked: Mapping[str, Any]) -> Answer:
    target, method = str(asked.get("target")), str(asked.get("method"))
    handler = table.get(target, {}).get(method)
    if handler is None:
        raise RefusedError(404, f"there is no {method} {target}")
    body = asked.get("body")
    answer = handler({} if body is None else body)
    return answer if isinstance(answer, Answer) else await answer


# -- The side of those who ask -------------------------------------------------------------------


class Wire(Protocol):
    """Carries lines to an agent and back."""

    def send(self, line: bytes) -> None:
        """Send a line; NodeError if the agent is out of reach."""
        ...

    def receive(self, seconds: float) -> bytes:
        """Return the next line; NodeError if none comes in time, or ever."""
        ...

    def close(self) -> None:
        """End the wire: the agent then ends, too. May be called twice."""
        ...


class LineClient:
    """Asks an agent over a wire; several threads may do so."""

    def __init__(self, whose: str, wire: Wire) -> None:
        self._whose = whose
        self._wire = wire
        self._numbers = count(1)
        self._lock = Lock()

    def ask(self, method: str, target: str, body: object) -> Any:  # noqa: ANN401 as answered
        """Send one request, and return the value of its answer; AgentError for any other end."""
        what = f"{self._whose}: {method} {target}"
        with self._lock:
            number = next(self._numbers)
            asked = {"number": number, "method": method, "target": target, "body": body}
            try:
                self._wire.send(json.dumps(asked).encode() + b"\n")
                told = self._answer_to(number)
            except NodeError as error:
                raise AgentError(f"{what}: {error}") from None
        return read_answer(what, told["status"], json.dumps(told["value"]))

    def _answer_to(self, number: int) -> dict[str, Any]:
        """Return the answer to a request; one to an earlier request, which came late, is passed
        over."""
        while True:
            line = self._wire.receive(ANSWER_SECONDS)
            try:
                match json.loads(line):
                    case {"number": int(found), "status": int(), "value": _} as told:
                        if found == number:
                            return dict(told)
                    case _:
                        raise AgentError("its answer has no number, status and value")
            except (ValueError, RecursionError):
                raise AgentError(f"its answer is no JSON: {line[:200]!r}") from None
