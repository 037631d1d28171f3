"""Which callbacks are taken: those whose calls do something when they are called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from stormcast.node.callbacks import as_callback, check_result
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
    [coroutine, stream, generator, partial(coroutine, 1), Awaited(), Awaited().method,
     partial(partial(generator, 1), 2)],
)  # fmt: skip
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
