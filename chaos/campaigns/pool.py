"""Processes that work is spread over, and that are gone when nobody waits for it any more.

ProcessPoolExecutor by itself waits on its way out for all that was submitted, also when it is left
by Ctrl-C; and a process that Ctrl-C reaches in the middle of a task goes on with the next one.
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
from types import FrameType, TracebackType
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

GRACE_SECONDS: Final = 1.0
"""Between asking a process to end and killing it."""
ENDS: Final = (signal.SIGINT, signal.SIGTERM)


class ProcessPool(ProcessPoolExecutor):
    """A pool whose processes end with its block: when all is done, or at once where the block is
    left by an exception. They also end when this process is killed."""

    def __init__(self, workers: int, begin: Callable[[], None] | None = None) -> None:
        """`begin` is called first in each process: without one, they ignore Ctrl-C, which is for
        this process to act on."""
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
        """Call a function with each item; yields items and results as they are ready, and None
        where nothing was for so many seconds. Ctrl-C and SIGTERM end it, between two of them: an
        executor that is interrupted somewhere else may keep a lock that its own end waits for."""
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
        """Give up what is not done, and end all processes."""
        with _undisturbed():
            left = self._children()
            for child in left:
                child.terminate()
            for child in _outlast(left, GRACE_SECONDS):
                child.kill()
            _outlast(left, GRACE_SECONDS)
            # Without its processes this does not last; a thread of it that went on would be in the
            # way of this process's own end.
            self.shutdown(cancel_futures=True)

    def interrupt(self) -> None:
        """Have each process act as if it saw Ctrl-C."""
        for child in self._children():
            if child.pid is not None and child.is_alive():
                os.kill(child.pid, signal.SIGINT)

    def _children(self) -> list[BaseProcess]:
        return [child for child in active_children() if child not in self._others]


def _outlast(children: Sequence[BaseProcess], seconds: float) -> list[BaseProcess]:
    """Wait for their ends for so long; returns those that have not ended."""
    left = {child.sentinel: child for child in children}
    deadline = time.monotonic() + seconds
    while left and (room := deadline - time.monotonic()) > 0:
        for sentinel in wait(list(left), room):
            assert isinstance(sentinel, int)
            del left[sentinel]
    return list(left.values())


def _begin(begin: Callable[[], None]) -> None:
    # What this process inherited is its parent's way to end.
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
def sigterm_interrupts() -> Iterator[None]:
    """Within, SIGTERM does what Ctrl-C does: without that it would end this process alone, and
    leave those that it started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _told(tell: Callable[[], None]) -> Iterator[None]:
    """Within, signals to end interrupt nothing, and are told; what ignored them ignores them."""
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
    """Within, whoever is impatient has to wait: it takes two seconds at most."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, signal.SIG_IGN) for number in ENDS]
    try:
        yield
    finally:
        for number, handler in zip(ENDS, before, strict=True):
            signal.signal(number, handler)
