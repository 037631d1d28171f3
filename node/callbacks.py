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

EXITS: Final = (SystemExit, KeyboardInterrupt)
"""Exceptions that end the program, whoever raises them. No other exception of a callback ends the
turn, which may have more messages to hand over: not that of a cancelled future, and not those of
test frameworks, which are no `Exception` either."""
_NEVER_RUN: Final = frozenset((CoroutineType, GeneratorType, AsyncGeneratorType))
_REMEDY: Final = (
    "write a plain function that starts a task, or receive with `async for batch in channel`"
)


def as_callback(name: str, call: Call) -> Call:
    """Return `call`, which may be None; ConfigError if its calls would have to be awaited."""
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
    """Refuse a coroutine or generator that a callback has returned: nobody would run it."""
    if type(result) not in _NEVER_RUN:
        return
    if isinstance(result, CoroutineType | GeneratorType):
        # Unclosed, a coroutine warns when it is freed, and does not say which callback made it.
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
        """Replace the function; ConfigError if its calls would have to be awaited."""
        self.call = as_callback(self._name, call)
        self._on_set()

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the function, if there is one. A failure is reported, and does not end the turn."""
        if self.call is None:
            return
        try:
            check_result(self.call(*args, **kwargs))
        except EXITS:
            raise
        except BaseException as error:  # noqa: BLE001 see EXITS
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
