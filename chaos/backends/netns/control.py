"""Requests to a member's control endpoint, over its unix socket, which no network fault touches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.backends.base import MemberError
from stormcast.node.control import client
from stormcast.node.core.names import one_line

TIMEOUT_SECONDS: Final = 5.0


def ask(
    path: Path, method: str, target: str, body: object = None, timeout: float = TIMEOUT_SECONDS
) -> Any:  # noqa: ANN401 whatever the member says
    """Send one request; returns the answer, parsed if it is JSON. MemberError if the member does
    not answer or refuses."""
    try:
        answer = client.ask(path, method, target, body, timeout)
    except client.NoAnswerError as error:
        raise MemberError(str(error)) from None
    if not answer.is_ok:
        raise MemberError(f"{method} {target}: {answer.status} {one_line(answer.text)}")
    if not answer.kind.startswith("application/json"):
        return answer.text
    try:
        return json.loads(answer.text)
    except (ValueError, RecursionError):
        raise MemberError(
            f"{method} {target}: the answer is no JSON: {answer.text[:200]!r}"
        ) from None
