"""Which callbacks are taken: those whose calls do something when they are called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from stormcast.node.callbacks import Callback, CallbackAttribute, as_callback, check_result
from stormcast.node.core.errors import ConfigError


def plain(*_what: object) -> None: ...


async def coroutine(*_what: object) -> None: ...


async def stream(*_what: object) -> AsyncIterator[int]:
    yield 1


def generator(*_what: object) -> Iterator[int]:
    yield 1


class Plain:
    def __call__(self, *_what: object) -> None: ...

    def method(self, *_what: object) -> None: ...


class Awaited:
    async def __call__(self, *_what: object) -> None: ...

    async def method(self, *_what: object) -> None: ...


@pytest.mark.parametrize(
    "call",
    [None, plain, partial(plain, 1), Plain(), Plain().method, [].append, print, Plain, lambda: 1],
)
def test_what_can_be_called_is_taken(call: object) -> None:
    assert as_callback("on_view", call) is call  # type: ignore[type-var]


@pytest.mark.parametrize(
    "call",
    [
        coroutine,
        stream,
        generator,
        partial(coroutine, 1),
        Awaited(),
        Awaited().method,
        partial(partial(generator, 1), 2),
    ],
)
def test_what_would_have_to_be_awaited_is_refused_with_what_to_write(call: object) -> None:
    with pytest.raises(ConfigError, match=r"on_view is .*awaited: write a plain function"):
        as_callback("on_view", call)  # type: ignore[type-var]


@pytest.mark.parametrize("call", [17, "print", b"x", [plain]])
def test_what_cannot_be_called_is_refused(call: object) -> None:
    with pytest.raises(ConfigError, match=r"on_view is .*: write a function, or None"):
        as_callback("on_view", call)  # type: ignore[type-var]


def test_what_runs_by_itself_may_be_returned() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        for result in (None, True, 1, "x", [coroutine], loop.create_future()):
            check_result(result)
        task = asyncio.ensure_future(coroutine())
        check_result(task)
        await task

    asyncio.run(story())


@pytest.mark.parametrize("call", [coroutine, stream, generator])
def test_what_nobody_would_run_may_not_be_returned(call: type) -> None:
    """Warnings are errors here: that it was never awaited is said once, and not by Python, too."""
    with pytest.raises(ConfigError, match="which nobody awaits: write a plain function"):
        check_result(call())


class Holder:
    """Has a callback, as a channel has."""

    on_number: CallbackAttribute[[int]] = CallbackAttribute("kept", "Is called with a number.")

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.set_times = 0
        self.kept: Callback[[int]] = Callback("on_number", self.failures.append, self._note)

    def _note(self) -> None:
        self.set_times += 1


def test_an_attribute_reads_and_sets_the_function() -> None:
    holder, got = Holder(), list[int]()
    assert holder.on_number is None
    holder.kept.tell(1)
    holder.on_number = got.append
    assert holder.on_number == got.append
    holder.kept.tell(2)
    assert got == [2]
    assert holder.set_times == 1
    assert Holder.on_number.__doc__ == "Is called with a number."


def test_one_that_nobody_would_run_is_refused_under_its_name_and_the_old_one_stays() -> None:
    holder = Holder()
    holder.on_number = plain
    with pytest.raises(ConfigError, match="on_number is "):
        holder.on_number = coroutine
    assert holder.on_number is plain


def test_a_callback_that_fails_is_complained_of_and_ends_nothing() -> None:
    holder = Holder()
    holder.on_number = lambda number: 1 // number
    holder.kept.tell(0)
    (failure,) = holder.failures
    assert isinstance(failure, ZeroDivisionError)
