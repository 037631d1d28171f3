"""A client of an agent, for backends: plain calls, over whichever transport reaches the agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.agent import unix_http
from stormcast.chaos.agent.endpoints import read_bites
from stormcast.chaos.agent.unix_http import NoAnswerError
from stormcast.chaos.drivers.base import Bites
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError

TIMEOUT_SECONDS: Final = 15.0
"""An agent runs programs before it answers; each takes some milliseconds."""
_OK: Final = range(200, 300)
_LAPSED: Final = 409

Ask = Callable[[str, str, object], Any]
"""Method, target and body (None: no body) of a request, to the value of its JSON answer; AgentError
for any other end."""


class AgentError(NodeError):
    """An agent did not answer, or refused."""


class LeaseLapsedError(AgentError):
    """The lease was not renewed in time: the network has healed, and the faults have ended."""


class AgentClient:
    """The verbs of one agent."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def features(self) -> dict[str, str | None]:
        """Return by feature (`stormcast.chaos.language.features.FEATURES`) None, or why not."""
        found: dict[str, str | None] = self._ask("GET", "/features", None)
        return found

    def apply(self, state: NetworkState, lease: float) -> None:
        """Bring the networks of the agent's sites into `state`, for `lease` seconds."""
        self._ask("POST", "/apply", {"state": state.to_text(), "lease": lease})

    def renew(self, lease: float) -> None:
        """Extend the lease of what `apply` set; LeaseLapsedError if it has lapsed."""
        self._ask("POST", "/renew", {"lease": lease})

    def clear(self) -> None:
        """End all faults."""
        self._ask("POST", "/clear", {})

    def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep: of one fault, or of all (None)."""
        self._ask("POST", "/release", {"fault": fault})

    def bites(self) -> Bites:
        """Return the bites of each fault since the agent was started, per sender and receiver."""
        return read_bites(self._ask("GET", "/bites", None))

    def is_alive(self) -> bool:
        """Whether the agent answers."""
        try:
            self._ask("GET", "/livez", None)
        except AgentError:
            return False
        return True


def over_unix(path: Path, timeout: float = TIMEOUT_SECONDS) -> Ask:
    """Return a function that asks the agent at a unix socket of this machine."""

    def ask_agent(method: str, target: str, body: object) -> Any:  # noqa: ANN401 as answered
        try:
            answer = unix_http.ask(path, method, target, body, timeout)
        except NoAnswerError as error:
            raise AgentError(f"the agent does not answer {error}") from None
        return read_answer(f"{method} {target}", answer.status, answer.text)

    return ask_agent


def read_answer(what: str, status: int, text: str) -> Any:  # noqa: ANN401 as answered
    """Return the value of an answer, over whichever transport; AgentError if it is a refusal."""
    try:
        value = json.loads(text)
    except ValueError:
        raise AgentError(f"the agent's answer to {what} is no JSON: {text[:200]!r}") from None
    if status in _OK:
        return value
    why = value.get("error", text) if isinstance(value, dict) else text
    raise (LeaseLapsedError if status == _LAPSED else AgentError)(f"{what}: {why}")
