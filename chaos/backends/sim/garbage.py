"""Python's cyclic garbage collector, which is off while it would only cost."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Have the collector off within the block, and on again after it if it was.

    What a simulated run makes is freed with the run, in one pass after the block. Until then each
    pass would walk every batch of every window, and free nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
