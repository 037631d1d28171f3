"""A client of an agent, for backends: plain calls, over whichever transport reaches the agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.agent.endpoints import read_bites_untrusted
from stormcast.chaos.drivers.base import Bites, acts
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.control.client import OK, NoAnswerError, ask
from stormcast.node.core.errors import NodeError
from stormcast.node.core.names import NAME, one_line
from stormcast.weights import AGENT

TIMEOUT_SECONDS: Final = 15.0
"""An agent runs programs before it answers; each takes some milliseconds."""
_LAPSED: Final = 409
_FAILED: Final = 500

Ask = Callable[[str, str, object], Any]
"""Method, target and body (None: no body) of a request, to the value of its JSON answer; AgentError
for any other end."""


class AgentError(NodeError):
    """An agent did not answer, or refused."""


class AgentRefusalError(AgentError):
    """An agent refused, and its answer says why: there is nothing more to be found in its log."""


class LeaseLapsedError(AgentRefusalError):
    """The lease was not renewed in time: the network has healed, and the faults have ended."""


class AgentClient:
    """The verbs of one agent."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: tuple[str, int] | None = None
        """The agent's id, and how often its lease had lapsed, as it said first."""
        self._acts = False
        """Whether the state that was applied last differs from the network as it is by itself."""

    def features(self) -> dict[str, str | None]:
        """Return by feature (`stormcast.chaos.language.features.FEATURES`) None, or why not."""
        found = self._ask("GET", "/features", None)
        if not isinstance(found, dict) or not all(map(NAME.fullmatch, found)):
            raise AgentError("the agent's answer to GET /features is no mapping of features")
        return {word: None if why is None else one_line(why) for word, why in found.items()}

    def apply(self, state: NetworkState, lease: float) -> None:
        """Bring the networks of the agent's sites into `state`, for `lease` seconds."""
        self._change("/apply", {"state": state.to_text(), "lease": lease})
        self._acts = acts(state)

    def renew(self, lease: float) -> None:
        """Extend the lease of what `apply` set; LeaseLapsedError if it has lapsed."""
        if self._change("/renew", {"lease": lease})["lease"] is None:
            raise LeaseLapsedError("the agent's faults were ended by somebody else")

    def clear(self) -> None:
        """End all faults."""
        self._change("/clear", {})

    def _change(self, target: str, body: object) -> dict[str, Any]:
        """Have something changed; LeaseLapsedError if what acted before ended meanwhile: a lapse is
        over, and renewals succeed again, when a state is applied after it."""
        answer = self._ask("POST", target, body)
        match answer:
            case {"agent": str(agent), "lapses": int(lapses), "lease": _}:
                self._known = self._known or (agent, lapses)
                if agent != self._known[0]:
                    raise LeaseLapsedError("the agent was started anew, and what acted has ended")
                if lapses != self._known[1] and self._acts:
                    raise LeaseLapsedError("what acted has ended: nobody renewed it in time")
                self._known = agent, lapses
                return dict(answer)
        raise AgentError(f"the agent's answer to POST {target} is no state")

    def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep: of one fault, or of all (None)."""
        self._ask("POST", "/release", {"fault": fault})

    def bites(self) -> Bites:
        """Return the bites of each fault since the agent was started, per sender and receiver; of
        those that have ended, unless they were forgotten."""
        try:
            return read_bites_untrusted(self._ask("GET", "/bites", None))
        except ValueError as error:
            raise AgentError(f"the agent's answer to GET /bites has no bites: {error}") from None

    def forget_bites(self) -> None:
        """Have the agent forget the bites of faults that have ended."""
        self._ask("DELETE", "/bites", None)

    def weight(self) -> tuple[str, dict[str, float]]:
        """Return the name of the agent's process, and what that takes of its machine."""
        match self._ask("GET", "/weight", None):
            case {"agent": str(agent), **rest}:
                figures = {str(k): float(v) for k, v in rest.items() if isinstance(v, int | float)}
                if len(figures) == len(rest):
                    return f"{AGENT}{agent}", figures
        raise AgentError("the agent's answer to GET /weight has no weights")

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
            answer = ask(path, method, target, body, timeout)
        except NoAnswerError as error:
            raise AgentError(f"the agent does not answer {error}") from None
        return read_answer(f"{method} {target}", answer.status, answer.text)

    return ask_agent


def read_answer(what: str, status: int, text: str) -> Any:  # noqa: ANN401 as answered
    """Return the value of an answer, over whichever transport; AgentError if it is a refusal."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise AgentError(f"the agent's answer to {what} is no JSON: {text[:200]!r}") from None
    if status in OK:
        return value
    why = value.get("error", text) if isinstance(value, dict) else text
    kinds = {_LAPSED: LeaseLapsedError, _FAILED: AgentError}
    raise kinds.get(status, AgentRefusalError)(f"{what}: {one_line(why)}")
