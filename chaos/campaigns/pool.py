"""A pool of processes that ends at once when its caller is interrupted.

A plain ProcessPoolExecutor waits at its end for all submitted tasks, even after Ctrl-C; and a
process that Ctrl-C reaches in the middle of a task goes on with the next one.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from multiprocessing import active_children, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

GRACE_SECONDS: Final = 1.0
"""The time between asking a process to end and killing it."""
ENDS: Final = (signal.SIGINT, signal.SIGTERM)


class ProcessPool(ProcessPoolExecutor):
    """A pool whose processes end with its `with` block: when all tasks are done, or at once when an
    exception leaves the block. They also end when this process is killed."""

    def __init__(self, workers: int, begin: Callable[[], None] | None = None) -> None:
        """Make a pool. Each process calls `begin` first; by default, processes ignore Ctrl-C, on
        which only this process is to act."""
        self._others = frozenset(active_children())
        self._ahead = 2 * workers
        super().__init__(workers, initializer=_begin, initargs=(begin or _ignore_interrupts,))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            try:
                self.shutdown()
            except BaseException:
                self.end()
                raise
        else:
            self.end()

    def each(
        self, function: Callable[[T], R], items: Iterable[T], seconds: float | None = None
    ) -> Generator[tuple[T, R] | None]:
        """Call a function with each item; yields items and results as they are ready, and None when
        none was ready for `seconds`. Ctrl-C and SIGTERM raise KeyboardInterrupt between two
        results: an executor that is interrupted elsewhere may keep a lock that its own end waits
        for."""
        ended: SimpleQueue[tuple[T, Future[R]] | None] = SimpleQueue()
        waiting, begun = iter(items), 0
        with _told(lambda: ended.put(None)):
            while True:
                for item in islice(waiting, self._ahead - begun):
                    begun += 1
                    future = self.submit(function, item)
                    future.add_done_callback(lambda done, item=item: ended.put((item, done)))  # type: ignore[misc]
                if not begun:
                    return
                try:
                    one = ended.get(timeout=seconds)
                except Empty:
                    yield None
                    continue
                if one is None:
                    raise KeyboardInterrupt
                item, future = one
                begun -= 1
                yield item, future.result()

    def end(self) -> None:
        """Give up all unfinished tasks, and end all processes."""
        with _undisturbed():
            left = self._children()
            for child in left:
                child.terminate()
            for child in _outlast(left, GRACE_SECONDS):
                child.kill()
            _outlast(left, GRACE_SECONDS)
            # Without its processes the executor shuts down soon; a thread of it that went on would
            # hold up this process's own end.
            self.shutdown(cancel_futures=True)

    def interrupt(self) -> None:
        """Send each process SIGINT, as Ctrl-C does."""
        for child in self._children():
            if child.pid is not None and child.is_alive():
                os.kill(child.pid, signal.SIGINT)

    def _children(self) -> list[BaseProcess]:
        return [child for child in active_children() if child not in self._others]


def _outlast(children: Sequence[BaseProcess], seconds: float) -> list[BaseProcess]:
    """Wait at most `seconds` for processes to end; returns those that have not ended."""
    left = {child.sentinel: child for child in children}
    deadline = time.monotonic() + seconds
    while left and (room := deadline - time.monotonic()) > 0:
        for sentinel in wait(list(left), room):
            assert isinstance(sentinel, int)
            del left[sentinel]
    return list(left.values())


def _begin(begin: Callable[[], None]) -> None:
    # The inherited handler is the parent's; here SIGTERM is to end the process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    begin()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _told(tell: Callable[[], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM only call `tell` within the block; ignored signals stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: tell())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM within the block, which takes two seconds at most."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, signal.SIG_IGN) for number in ENDS]
    try:
        yield
    finally:
        for number, handler in zip(ENDS, before, strict=True):
            signal.signal(number, handler)
