"""What came of a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

POLL_SECONDS = 0.02


class Missed(Exception):
    """The victim, or its phase, was over before the kill: it is tried again with less delay."""


class Late(AssertionError):
    """What must come did not."""


@dataclass(slots=True)
class Found:
    """What a kill brought to light, and what is known of it."""

    victim: str
    phase: str
    killed: float = 0.0
    acted: bool | None = None
    """Whether a fault acted when it came; None: nobody looked."""
    before: dict[str, list[bytes]] = field(default_factory=dict, repr=False)
    """The blocks on disk right before the kill."""
    blocks: int = 0
    """How many those were."""
    verdict: str = ""
    misses: int = 0
    lines: list[str] = field(default_factory=list)
    """What must not be."""

    def add(self, where: str, lines: Iterable[str]) -> None:
        self.lines += [f"{where}: {line}" for line in lines]


def until(is_so: Callable[[], bool], seconds: float, what: str, poll: float = POLL_SECONDS) -> None:
    """Wait until something is so; Late if it never comes."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= deadline:
            raise Late(f"not within {seconds:g}s: {what}")
        time.sleep(poll)
