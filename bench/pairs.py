"""`stormcast bench pairs COMMIT`: this tree beside another commit, part by part, turn by turn.

Two runs a minute apart differ by more than most changes do. So both trees measure the same part one
right after the other, the next pair in the other order, and what counts is the median of the ratios
of the pairs. Each tree measures with its own code, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.errors import BenchError
from bench.machine import ROOT
from stormcast.exits import Exit

Figures = Mapping[str, float]
"""Rates by row: more is better."""
Measure = Callable[[Path, Sequence[str]], Mapping[str, Any]]
"""Has the tree in a folder run a command; returns the JSON that it printed."""
Say = Callable[[str], None]
QUARTERS: Final = 4
MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows that one command measures."""

    name: str
    words: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Figures]
    """Returns the rows in the JSON that the command printed."""
    here: tuple[str, ...] = ()
    """More words for this tree alone."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One figure of both trees, pair by pair."""

    name: str
    here: list[float] = field(default_factory=list)
    there: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Of each pair: this tree's rate by that of the other."""
        return [mine / theirs for mine, theirs in zip(self.here, self.there, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        low, high = _middle_half(self.ratios)
        return {
            "row": self.name,
            "ratio": round(median(self.ratios), 4),
            "middle_half": [round(low, 4), round(high, 4)],
            "here": round(median(self.here), 1),
            "there": round(median(self.there), 1),
            "ratios": [round(ratio, 4) for ratio in self.ratios],
        }

    def __str__(self) -> str:
        low, high = _middle_half(self.ratios)
        return (
            f"{self.name:26} {median(self.ratios):6.3f}  half of the pairs {low:.3f}–{high:.3f}  "
            f"here {median(self.here):,.0f}/s, there {median(self.there):,.0f}/s, "
            f"{len(self.here)} pairs"
        )


def _middle_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the two bounds of the middle half of some values."""
    if len(values) == 1:
        return values[0], values[0]
    low, _middle, high = quantiles(values, n=QUARTERS, method="inclusive")
    return low, high


def _core(said: Mapping[str, Any]) -> Figures:
    rows = {f"core {size} B": float(rate) for size, rate in said["messages_per_second"].items()}
    for group in said["groups"]:
        name = f"core {group['stack']} {group['members']} x {group['size']} B"
        rows[name] = float(group["deliveries_per_second"])
    return rows


def _sim(said: Mapping[str, Any]) -> Figures:
    rows = {
        f"sim {name}": float(one["events_per_second"]) for name, one in said["by_timing"].items()
    }
    for name, group in said["groups"].items():
        # Virtual seconds per second: a tree that needs fewer events for a scenario is faster, too.
        rows[f"sim {name}"] = group["virtual_seconds"] / group["seconds"]
    return rows


def _search(said: Mapping[str, Any]) -> Figures:
    # Two trees may draw different scenarios from one seed: events tell how fast they are played.
    return {
        "search": said["seeds"] / said["seconds"],
        "search, events": said["events"] / said["seconds"],
    }


def _members(mode: str, transport: str, size: int) -> Part:
    name = f"{mode} {transport} {size} B"
    return Part(
        name=name,
        words=(
            "bench", mode, "--transport", transport, "--size", str(size),
            "--rounds", "3", "--seconds", "1", "--json",
        ),
        read=lambda said: {name: float(said["ours"])},
    )  # fmt: skip  # a command is read as one


PARTS: Final = (
    Part(name="core", words=("bench", "core", "--rounds", "1", "--json"), read=_core),
    Part(name="sim", words=("bench", "sim", "--rounds", "1", "--json"), read=_sim),
    Part(
        name="search",
        words=("search", "--seeds", "200", "--workers", "1", "--shrink-budget", "0s", "--json"),
        read=_search,
    ),
    *(
        _members(mode, transport, size)
        for mode in ("unicast", "multicast")
        for transport in ("udp", "tcp")
        for size in (100, 1000)
    ),
)


def _round_trips(transport: str) -> Part:
    name = f"roundtrip {transport}"
    return Part(
        name=name,
        words=(
            "bench", "roundtrip", "--transport", transport, "--size", "100",
            "--rounds", "3", "--seconds", "1", "--json",
        ),
        read=lambda said: {name: MICROSECONDS / float(said["ours"])},
    )  # fmt: skip  # a command is read as one


SEALED: Final = tuple(
    replace(part, here=("--encrypt",))
    for part in (
        *(
            _members(mode, transport, size)
            for mode in ("unicast", "multicast")
            for transport in ("udp", "tcp")
            for size in (1000, 60_000)
        ),
        *(_round_trips(transport) for transport in ("udp", "tcp")),
    )
)
"""What a key costs: members of this tree seal, those of the other do not."""


def measure_pairs(
    parts: Sequence[Part], other: Path, pairs: int, measure: Measure, say: Say
) -> Iterator[Row]:
    """Yield the rows of each part, as soon as all of its pairs are done."""
    for part in parts:
        rows: dict[str, Row] = {}
        for number in range(pairs):
            say(f"{part.name}: pair {number + 1} of {pairs}")
            order = (ROOT, other) if number % 2 == 0 else (other, ROOT)
            words = {ROOT: (*part.words, *part.here), other: part.words}
            found = {tree: part.read(measure(tree, words[tree])) for tree in order}
            for name in found[ROOT].keys() & found[other].keys():
                row = rows.setdefault(name, Row(name=name))
                row.here.append(found[ROOT][name])
                row.there.append(found[other][name])
        yield from (rows[name] for name in sorted(rows))


def measure_in(tree: Path, words: Sequence[str]) -> Mapping[str, Any]:
    """Run a command of the `stormcast` in a folder, not of an installed one; return its JSON."""
    with TemporaryDirectory(prefix="stormcast-pairs-") as folder:
        out = ("--out", f"{folder}/out") if words[0] == "search" else ()
        done = subprocess.run(  # noqa: S603 an argv of our own making
            [sys.executable, "-m", "stormcast", *words, *out],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != Exit.HOLDS:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["without a word"]
        raise BenchError(f"{tree}: stormcast {' '.join(words)}: exit {done.returncode}: {last[0]}")
    said: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check the tree of a commit out, into a folder that is removed afterwards."""
    with TemporaryDirectory(prefix="stormcast-pairs-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> None:
    done = subprocess.run(  # noqa: S603 an argv of our own making
        ["git", "-C", str(ROOT), *words],  # noqa: S607 the git of whoever runs this
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["without a word"]
        raise BenchError(f"git {words[0]} {words[1]}: {last[0]}")
