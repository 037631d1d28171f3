"""The records of a turn: only packed, and kept in a journal, too. A batch is a turn here, and a
message one of its records.

The journal's lines are its cost to a member per turn: packing, writing, the faults of fresh pages
and new segments. A message may have to wait for the longest turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final
from weakref import finalize

from xxhash import xxh3_64_intdigest

from bench.micro.measure import NANO, Work
from stormcast.node.trace import SENT
from stormcast.node.trace.journal import Journal, JournalConfig
from stormcast.node.trace.tracer import Tracer

TURNS: Final = 20_000
RECORDS: Final = (1, 5, 20)
MEMBER: Final = 0x5C0FFEE5
MICRO: Final = 1e6


def records(count: int) -> list[tuple[float, ...]]:
    """Return the records of a turn: batches with the numbers that a busy member has."""
    return [
        (SENT, 0, 1, 0, MEMBER, 7, 1, 3, 60, 1 << 30, (1 << 30) + 59, 61_440, (1 << 64) - number,
         0, 0, 12_345.678)
        for number in range(1, count + 1)
    ]  # fmt: skip  # a record's columns


def pack_only(count: int) -> Callable[[], None]:
    """Return turns of the tracer alone: their cost to a member without a journal."""
    return _turns(Tracer(MEMBER, 0, xxh3_64_intdigest, lambda _block: None), count)


def keep(count: int) -> Callable[[], None]:
    """Return turns of tracer and journal, on the disk that temporary files are on."""
    folder = tempfile.TemporaryDirectory(prefix="stormcast-bench-")
    journal = Journal(JournalConfig(directory=Path(folder.name)), "n0-1", xxh3_64_intdigest)
    turns = _turns(journal.tracer(MEMBER, 0), count)

    def run() -> None:
        turns()
        assert journal.blocks == TURNS

    # Untimed: it is done after the round, when nothing refers to `run` any more.
    finalize(run, _clean, journal, folder)
    return run


def _clean(journal: Journal, folder: tempfile.TemporaryDirectory[str]) -> None:
    journal.close()
    folder.cleanup()


def _turns(tracer: Tracer, count: int) -> Callable[[], None]:
    events = records(count)

    def run() -> None:
        turn = tracer.turn
        for _ in range(TURNS):
            tracer.records += events
            turn()

    return run


def longest_turns(count: int, turns: int, directory: Path) -> list[float]:
    """Time turns of a journal that drops its oldest segments; return seconds, longest first."""
    config = JournalConfig(directory=directory, limit_bytes=16 << 20)
    journal = Journal(config, "n0-1", xxh3_64_intdigest)
    tracer, events = journal.tracer(MEMBER, 0), records(count)
    taken = []
    for _ in range(turns):
        began = perf_counter()
        tracer.records += events
        tracer.turn()
        taken.append(perf_counter() - began)
    journal.close()
    return sorted(taken, reverse=True)


def describe_longest() -> str:
    """Return the longest turns in words."""
    with tempfile.TemporaryDirectory(prefix="stormcast-bench-") as folder:
        taken = longest_turns(5, 10 * TURNS, Path(folder))
    worst, thousandth = taken[0] * MICRO, taken[len(taken) // 1000] * MICRO
    return (
        f"{'journal: longest of ' + str(len(taken)) + ' turns':34}{worst:12,.0f} µs"
        f"   p99.9 {thousandth:,.1f} µs   median {taken[len(taken) // 2] * NANO:,.0f} ns"
    )


WORKS: Final = tuple(
    Work(
        name=f"journal: {name}, {count} records",
        batches=TURNS,
        messages=count,
        prepare=partial(prepare, count),
    )
    for count in RECORDS
    for name, prepare in (("packed only", pack_only), ("kept", keep))
)
