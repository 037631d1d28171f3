"""The HTTP endpoints of an agent, as a table for the control server."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterable
from typing import Any, Final

import stormcast
from stormcast.chaos.agent.agent import Agent, LapsedError
from stormcast.chaos.drivers.base import Bites, DriverError
from stormcast.chaos.faults import BASE
from stormcast.chaos.language.network_state import FAULT_ID, parse_state
from stormcast.node.control.answers import Answer, RefusedError, Table, as_json, parse_body
from stormcast.node.core.errors import shortened
from stormcast.node.core.names import NAME
from stormcast.weights import weigh

MAX_BODY: Final = 1 << 20
"""The largest request, in bytes: it bounds the text of a network state."""
LEASES: Final = (0.1, 3600.0)
"""Shortest and longest lease in seconds: a shorter one could not be renewed in time, and a longer
one would hardly ever lapse."""
API: Final = 1
"""The version of these endpoints (docs/agent-api.yaml)."""
VERSIONS: Final = {"api": API, "stormcast": stormcast.__version__}


def endpoints(agent: Agent) -> Table:
    """Return the endpoints by path, then by method."""

    async def features(_body: object) -> Answer:
        try:
            return as_json(await agent.features())
        except DriverError as error:
            raise RefusedError(503, str(error)) from None

    async def apply(body: object) -> Answer:
        asked = _mapping(body, "state", "lease")
        text = asked.get("state")
        if not isinstance(text, str):
            raise RefusedError(400, 'write {"state": TEXT, "lease": SECONDS}')
        return await _do(agent, agent.apply(parse_state(text), _lease(asked)))

    async def renew(body: object) -> Answer:
        return await _do(agent, agent.renew(_lease(_mapping(body, "lease"))))

    async def clear(body: object) -> Answer:
        _mapping(body)
        return await _do(agent, agent.clear())

    async def release(body: object) -> Answer:
        fault = _mapping(body, "fault").get("fault")
        if not (fault is None or (isinstance(fault, str) and FAULT_ID.fullmatch(fault))):
            raise RefusedError(400, 'write {"fault": ID}, or {"fault": null} for all')
        return await _do(agent, agent.release(fault))

    async def bites(_body: object) -> Answer:
        return as_json(write_bites(await agent.bites()))

    async def forget_bites(_body: object) -> Answer:
        return await _do(agent, agent.forget_bites())

    async def weight(_body: object) -> Answer:
        return as_json({"agent": agent.id, **weigh(os.getpid())})

    return {
        "/livez": {"GET": lambda _body: as_json({"alive": True})},
        "/version": {"GET": lambda _body: as_json(VERSIONS)},
        "/state": {"GET": lambda _body: as_json(_state(agent))},
        "/features": {"GET": features},
        "/apply": {"POST": apply},
        "/renew": {"POST": renew},
        "/clear": {"POST": clear},
        "/release": {"POST": release},
        "/bites": {"GET": bites, "DELETE": forget_bites},
        "/weight": {"GET": weight},
    }


async def _do(agent: Agent, work: Awaitable[None]) -> Answer:
    """Answer with the state: it says whether anything lapsed since the last request."""
    try:
        await work
    except LapsedError as error:
        raise RefusedError(409, str(error)) from None
    except DriverError as error:
        # The request is valid, but this machine refuses it.
        raise RefusedError(503, str(error)) from None
    return as_json(_state(agent))


def _state(agent: Agent) -> dict[str, object]:
    return {
        "agent": agent.id,
        "lease": agent.left,
        "lapses": agent.lapses,
        "trouble": agent.trouble,
    }


def write_bites(bites: Bites) -> dict[str, dict[str, int]]:
    """Write bites for JSON: a pair (sender, receiver) becomes one key of two words."""
    return {
        fault: {" ".join(pair): count for pair, count in pairs.items()}
        for fault, pairs in bites.items()
    }


def read_bites_untrusted(answer: Any) -> dict[str, dict[tuple[str, str], int]]:  # noqa: ANN401 as answered
    """Read the form that `write_bites` returns; ValueError if it is another, or has a name or an id
    that no fault or member can have: they would become labels of metrics."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for fault, pairs in _items(answer):
        if fault != BASE and FAULT_ID.fullmatch(fault) is None:
            raise ValueError(f"{shortened(fault)!r} is no id of a fault")
        found[fault] = {_pair(words): _count(number) for words, number in _items(pairs)}
    return found


def _items(value: object) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"{shortened(repr(value))} is no mapping")
    return value.items()


def _pair(words: str) -> tuple[str, str]:
    source, _space, dest = words.partition(" ")
    if NAME.fullmatch(source) is None or NAME.fullmatch(dest) is None:
        raise ValueError(f"{shortened(words)!r} is no sender and receiver")
    return source, dest


def _count(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{shortened(repr(number))} is no count")
    return number


def _mapping(body: object, *known: str) -> dict[str, Any]:
    value = parse_body(body)
    if not isinstance(value, dict) or not set(value) <= set(known):
        raise RefusedError(400, f"write a mapping of {', '.join(known) or 'nothing'}")
    return value


def _lease(asked: dict[str, Any]) -> float:
    lease = asked.get("lease")
    least, most = LEASES
    if isinstance(lease, int | float) and least <= lease <= most:
        return float(lease)
    raise RefusedError(400, f"lease is {lease!r}: write seconds, {least:g}..{most:g}")
