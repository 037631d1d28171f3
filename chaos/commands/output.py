"""The output of the rig's sub-commands: results on stdout, other lines on stderr, an exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import BACKENDS, DOCKER, NETNS, SIM
from stormcast.chaos.backends.leftovers import leftovers_of
from stormcast.chaos.campaigns.replay import KeptRun
from stormcast.exits import Exit
from stormcast.machine import in_words, is_exhausted
from stormcast.node.core.errors import NodeError
from stormcast.node.core.names import printable

QUIET_SECONDS: Final = 10.0
"""The time between two lines of progress where they do not replace each other."""
SHORT_SECONDS: Final = 90.0
"""Longer times are shown in minutes."""


RUNS: Final = Path("runs")


DICE: Final = "xxh3"
"""The dice that are used unless others are asked for."""


def unsupported(refusal: Unsupported, *, as_json: bool, seed: int) -> int:
    """Print that a backend does not support a scenario; returns the exit code."""
    if as_json:
        print(
            json.dumps(
                {
                    "verdict": "unsupported",
                    "reason": str(refusal),
                    "guarantees": {},
                    "seed": seed,
                    "run": None,
                }
            )
        )
    say(f"unsupported: {refusal}")
    return Exit.UNKNOWN


def lacks(backend: str) -> bool:
    """Whether a backend other than the simulator was asked for; if so, print that this command
    needs the simulator."""
    if backend == SIM:
        return False
    known = "it needs the simulator" if backend in BACKENDS else "there is no such backend"
    say(f"unsupported: backend {backend!r}: {known}; drop it, or write --backend {SIM}")
    return True


def give_up(error: NodeError, seed: int) -> int:
    """Print that a run broke off by an error of the rig; returns the exit code: no verdict, and no
    wrong usage."""
    say(f"stormcast: the run broke off (seed {seed}): {error}")
    return Exit.UNKNOWN


def no_longer(kept: KeptRun, error: Exception) -> int:
    """Print that this version refuses a kept scenario, and which versions differ; returns the exit
    code: unknown if versions differ or the backend lacks support, else usage."""
    say(f"stormcast: the scenario of {kept.directory} cannot be run: {error}")
    for name, (then, now) in kept.other_versions().items():
        say(f"version of {name}: {then}, now {now}")
    return Exit.UNKNOWN if kept.other_versions() or isinstance(error, Unsupported) else Exit.USAGE


def refuse(error: Exception) -> int:
    """Print an error of the user, which can be corrected, or what the machine has run out of;
    returns the exit code of wrong usage, or that of no verdict."""
    say(f"stormcast: {in_words(error) if isinstance(error, OSError) else error}")
    return Exit.UNKNOWN if is_exhausted(error) else Exit.USAGE


def say(text: str) -> None:
    """Print a text to stderr, with nothing in its lines that a terminal would act on."""
    print(in_plain_lines(text), file=sys.stderr)


def in_plain_lines(text: str) -> str:
    """Return a text with nothing in its lines that a terminal would act on: names and texts of
    traces, and what processes have said, may hold anything."""
    return "\n".join(map(printable, text.splitlines()))


def say_leftovers(backend: str) -> None:
    """Print how many leftovers of killed runs of a backend there are, if any; they do not disturb a
    run."""
    if backend not in (NETNS, DOCKER):
        return
    # What cannot be looked for is no matter here: the run itself says what is missing.
    with suppress(NodeError):
        if found := leftovers_of(backend):
            say(f"{len(found)} leftovers of killed runs are there: stormcast clean removes them")


def progress(text: str) -> None:
    """Show a line that replaces the one before, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


class Meter:
    """Shows how many runs of all are done, and how long the rest will take."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._began = self._told = clock()

    def line(self, done: int) -> str:
        """Return the line: runs done, time spent, and time left by the rate so far."""
        spent = self._clock() - self._began
        text = f"{done}/{self._total} runs, {spent:.0f}s"
        if 0 < done < self._total:
            text += f", {about(spent / done * (self._total - done))} left"
        return text

    def tell(self, done: int, more: str) -> None:
        """Show the line: on a terminal each time, elsewhere every `QUIET_SECONDS`."""
        line = f"{self.line(done)}{more}"
        if sys.stderr.isatty():
            progress(line)
        elif self._clock() - self._told >= QUIET_SECONDS:
            self._told = self._clock()
            say(line)


def about(seconds: float) -> str:
    """Return the text of an estimated time."""
    if seconds < SHORT_SECONDS:
        return f"about {max(1, round(seconds))}s"
    return f"about {max(1, round(seconds / 60))}min"


def end_progress() -> None:
    """End the line of progress, so that it stays on the terminal."""
    if sys.stderr.isatty():
        print(file=sys.stderr)


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines of text, with their cells aligned in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
