"""An application's callbacks: which ones can be called, and what they may return.

They are called between two turns, and nobody awaits them: a coroutine function would be called, and
then nothing of it would ever run. So it is refused when it is set; a function that turns out to
return a coroutine is treated as one that has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, isroutine
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Final, TypeVar

from stormcast.node.core.errors import ConfigError, require

Call = TypeVar("Call", bound=Callable[..., object] | None)

FAILURES: Final = (Exception, asyncio.CancelledError)
"""What a callback may raise without ending the turn, and with it all that is still to be handed
over. A future that was cancelled raises the second one at whoever asks for its result."""
_NEVER_RUN: Final = frozenset((CoroutineType, GeneratorType, AsyncGeneratorType))
_REMEDY: Final = (
    "write a plain function that starts a task, or receive with `async for batch in channel`"
)


def as_callback(name: str, call: Call) -> Call:
    """A callback, or None; ConfigError for one whose calls nobody would run."""
    if call is None:
        return call
    require(callable(call), f"{name} is {call!r}: write a function, or None")
    called = call if isinstance(call, partial) or isroutine(call) else type(call).__call__
    require(
        not (iscoroutinefunction(called) or isasyncgenfunction(called))
        and not isgeneratorfunction(called),
        f"{name} is {call!r}, whose calls would have to be awaited: {_REMEDY}",
    )
    return call


def check_result(result: object) -> None:
    """Refuse what a callback has returned if it is something to run, and nobody runs it."""
    if type(result) not in _NEVER_RUN:
        return
    if isinstance(result, CoroutineType | GeneratorType):
        # Or it would complain itself, where nobody knows whose it was.
        result.close()
    raise ConfigError(f"the callback returned {result!r}, which nobody awaits: {_REMEDY}")
