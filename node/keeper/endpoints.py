"""The HTTP endpoints of a keeper: a table of small functions, and requests passed to its member."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from stormcast.node.control.answers import (
    Answer,
    Pass,
    RefusedError,
    Table,
    as_json,
    parse_body,
    parse_mapping,
)
from stormcast.node.control.client import MAX_ANSWER, HttpError, LongAnswerError, ask_from_loop
from stormcast.node.keeper.busy import BusyError
from stormcast.node.keeper.folders import INCARNATIONS
from stormcast.node.keeper.keeper import CONTROL, Keeper
from stormcast.node.keeper.tar_stream import tar_of

MEMBER: Final = "/member/"
LEASE_SECONDS: Final = 3.0
LONGEST_LEASE: Final = 600.0
LONGEST_NAME: Final = 200
ANSWER_SECONDS: Final = 8.0
"""Seconds that a member may take to answer: less than a client of the keeper waits."""
READY_SECONDS: Final = 1.0
NOT_READY: Final = 503
ACCEPTED: Final = 202
BUSY: Final = 409
GONE: Final = 502
LATE: Final = 504


def endpoints(keeper: Keeper) -> Table:
    """Return the handlers by path and method."""
    return {
        "/livez": {"GET": lambda _: as_json({"live": True})},
        "/readyz": {"GET": lambda _: _ready(keeper)},
        "/state": {"GET": lambda _: as_json(keeper.state())},
        "/claim": {"POST": lambda body: _claim(keeper, body)},
        "/give-back": {"POST": lambda body: _give_back(keeper, body)},
        "/start": {"POST": lambda body: _start(keeper, body)},
        "/stop": {"POST": lambda _: _stop(keeper)},
        "/kill": {"POST": lambda _: _kill(keeper)},
        "/pause": {"POST": lambda body: _pause(keeper, body)},
        "/renew": {"POST": lambda body: _renew(keeper, body)},
        "/resume": {"POST": lambda _: _resume(keeper)},
        "/weight": {"GET": lambda _: _weight(keeper)},
        "/journals/forget": {"POST": lambda body: _forget(keeper, body)},
        "/journals": {
            "GET": lambda _: _journals(keeper),
            "DELETE": lambda _: as_json({"deleted": keeper.delete()}),
        },
    }


def passes(keeper: Keeper) -> dict[str, Pass]:
    """Return the function that passes requests below /member/ to the member's own endpoint."""

    async def ask(method: str, target: str, body: bytes) -> Answer:
        target = target.removeprefix(MEMBER[:-1])
        return await ask_member(keeper, method, target, body, ANSWER_SECONDS)

    return {MEMBER: ask}


# -- Commands ------------------------------------------------------------------------------------


def _claim(keeper: Keeper, body: object) -> Answer:
    """Claim the keeper for one run, which must claim it again before its lease is over."""
    try:
        is_fresh = keeper.claim.take(_run(body), _lease(body))
    except BusyError as error:
        raise RefusedError(BUSY, str(error)) from None
    return as_json({"fresh": is_fresh})


async def _give_back(keeper: Keeper, body: object) -> Answer:
    await keeper.give_back(_run(body))
    return as_json(keeper.state())


def _run(body: object) -> str:
    run = parse_mapping(body, '{"run": "order-7", "lease": 30.0}').get("run")
    if not isinstance(run, str) or not 0 < len(run) <= LONGEST_NAME or not run.isprintable():
        raise RefusedError(
            400,
            f"run is {run!r}: write a word for the run, printable and of at "
            f"most {LONGEST_NAME} characters",
        )
    return run


def _start(keeper: Keeper, body: object) -> Answer:
    """Start the default member, or one with the settings of `config`."""
    given = parse_body(body)
    config = given.get("config") if isinstance(given, dict) else given
    if config is not None and not isinstance(config, dict):
        raise RefusedError(400, 'write {"config": {…}} as docs/node.md has it, or nothing')
    try:
        member = keeper.start(config)
    except BusyError as error:
        raise RefusedError(BUSY, str(error)) from None
    return as_json({"incarnation": member.number}, ACCEPTED)


def _stop(keeper: Keeper) -> Answer:
    try:
        keeper.stop()
    except BusyError as error:
        raise RefusedError(BUSY, str(error)) from None
    return as_json({"stopping": True}, ACCEPTED)


async def _kill(keeper: Keeper) -> Answer:
    try:
        await keeper.kill()
    except BusyError as error:
        raise RefusedError(BUSY, str(error)) from None
    return as_json(keeper.state())


def _pause(keeper: Keeper, body: object) -> Answer:
    lease, incarnation = _lease(body), _incarnation(body)
    try:
        was_running = keeper.pause(lease, incarnation)
    except BusyError as error:
        raise RefusedError(BUSY, str(error)) from None
    return as_json(_paused(keeper) | {"fresh": was_running})


def _renew(keeper: Keeper, body: object) -> Answer:
    keeper.renew(_lease(body))
    return as_json(_paused(keeper))


def _resume(keeper: Keeper) -> Answer:
    keeper.resume()
    return as_json(_paused(keeper))


def _weight(keeper: Keeper) -> Answer:
    try:
        return as_json(keeper.weight())
    except BusyError as error:
        raise RefusedError(BUSY, str(error)) from None


def _forget(keeper: Keeper, body: object) -> Answer:
    """Delete the journals and logs of some incarnations, which have ended."""
    example = '{"incarnations": [1, 2]}'
    numbers = parse_mapping(body, example).get("incarnations")
    if not isinstance(numbers, list) or not all(type(one) is int and one > 0 for one in numbers):
        raise RefusedError(400, f"write {example}: numbers of incarnations")
    try:
        return as_json({"deleted": keeper.forget(numbers)})
    except BusyError as error:
        raise RefusedError(BUSY, str(error)) from None


def _paused(keeper: Keeper) -> dict[str, Any]:
    """Return the number of lapses, too: by it whoever pauses a member notices that it went on
    meanwhile."""
    return {"paused": keeper.state()["paused"], "lapses": keeper.pauses.lapses}


def _incarnation(body: object) -> int | None:
    """Return the incarnation that alone is meant; None: whichever runs."""
    if isinstance(body, bytes) and not body.strip():
        return None
    number = parse_mapping(body, '{"incarnation": 3}').get("incarnation")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise RefusedError(400, f"incarnation is {number!r}: write a number, or leave it out")
    return number


def _lease(body: object) -> float:
    """Return the lease in seconds, up to LONGEST_LEASE: a pause must end by itself."""
    if isinstance(body, bytes) and not body.strip():
        return LEASE_SECONDS
    lease = parse_mapping(body, '{"lease": 3.0}').get("lease", LEASE_SECONDS)
    if (
        not isinstance(lease, int | float)
        or isinstance(lease, bool)
        or not 0 < lease <= LONGEST_LEASE
    ):
        raise RefusedError(400, f"lease is {lease!r}: write seconds, up to {LONGEST_LEASE:g}")
    return float(lease)


def _journals(keeper: Keeper) -> Answer:
    """Send the journals and logs of all incarnations that were not deleted, as a tar."""
    folder = keeper.settings.folder / INCARNATIONS
    return Answer(b"", content_type="application/x-tar", parts=tar_of(folder))


async def _ready(keeper: Keeper) -> Answer:
    """Answer 200 while the member says that it is ready."""
    try:
        return await ask_member(keeper, "GET", "/readyz", b"", READY_SECONDS)
    except RefusedError as error:
        return as_json({"ready": False, "why": str(error)}, NOT_READY)


# -- The way to the member -----------------------------------------------------------------------


async def ask_member(
    keeper: Keeper,
    method: str,
    target: str,
    body: bytes,
    timeout: float,  # noqa: ASYNC109 it ends the whole question
) -> Answer:
    """Pass one request to the member's own endpoint, and return its answer."""
    if not keeper.is_alive:
        raise RefusedError(BUSY, "no member runs")
    if keeper.state()["paused"]:
        raise RefusedError(LATE, "the member is paused")
    try:
        async with asyncio.timeout(timeout):
            found = await ask_from_loop(keeper.settings.folder / CONTROL, method, target, body)
    except TimeoutError:
        raise RefusedError(LATE, f"the member does not answer within {timeout:g} s") from None
    except LongAnswerError:
        raise RefusedError(GONE, f"the member's answer has more than {MAX_ANSWER} bytes") from None
    except (OSError, HttpError) as error:
        raise RefusedError(GONE, f"the member cannot be asked: {error}") from None
    return Answer(found.body, found.status, found.kind or "application/json")
