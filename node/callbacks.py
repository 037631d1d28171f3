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
from operator import attrgetter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Final, Generic, ParamSpec, Self, TypeVar, overload

from stormcast.node.core.errors import ConfigError, require

Call = TypeVar("Call", bound=Callable[..., object] | None)
P = ParamSpec("P")

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


def complain(name: str, error: BaseException) -> None:
    """Tell the loop's exception handler that a callback of this member has failed."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"{name}: a callback failed", "exception": error}
    )


class Callback(Generic[P]):
    """A function of the application, or None."""

    __slots__ = ("_complain", "_name", "_on_set", "call")

    def __init__(
        self,
        name: str,
        complain: Callable[[BaseException], None],
        on_set: Callable[[], None] = lambda: None,
    ) -> None:
        self.call: Callable[P, object] | None = None
        self._name = name
        self._complain = complain
        self._on_set = on_set

    def set(self, call: Callable[P, object] | None) -> None:
        """Have another one called; ConfigError for one whose calls nobody would run."""
        self.call = as_callback(self._name, call)
        self._on_set()

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call it; that it fails must not end the turn in which it is called."""
        if self.call is None:
            return
        try:
            check_result(self.call(*args, **kwargs))
        except FAILURES as error:
            self._complain(error)


class CallbackAttribute(Generic[P]):
    """An attribute of a class that reads and sets the function of a `Callback`."""

    def __init__(self, path: str, about: str) -> None:
        self._callback_of = attrgetter(path)
        self.__doc__ = about

    @overload
    def __get__(self, holder: None, kind: type) -> Self: ...

    @overload
    def __get__(self, holder: object, kind: type) -> Callable[P, object] | None: ...

    def __get__(self, holder: object, kind: type) -> Self | Callable[P, object] | None:
        if holder is None:
            return self
        callback: Callback[P] = self._callback_of(holder)
        return callback.call

    def __set__(self, holder: object, call: Callable[P, object] | None) -> None:
        callback: Callback[P] = self._callback_of(holder)
        callback.set(call)
