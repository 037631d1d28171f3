"""A member's control endpoint, over its unix socket: reached whatever its network is like."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.agent.unix_http import UnixConnection
from stormcast.node.core.errors import NodeError

TIMEOUT_SECONDS: Final = 5.0
_OK: Final = range(200, 300)


class ControlError(NodeError):
    """A member did not answer, or refused."""


def ask(
    path: Path, method: str, target: str, body: object = None, timeout: float = TIMEOUT_SECONDS
) -> Any:  # noqa: ANN401 whatever the member says
    """One request; returns the answer, read where it is JSON. ControlError for any other end."""
    connection = UnixConnection(path, timeout)
    try:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method, target, data, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"{method} {target} on {path}: {error!r}") from None
    finally:
        connection.close()
    if answer.status not in _OK:
        raise ControlError(f"{method} {target}: {answer.status} {text.strip()}")
    is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
    return json.loads(text) if is_json else text
