"""`stormcast bench faults`: how long a fault takes from its request until it is in force, and back.

A backend's `apply` returns when what was asked for acts on every member: the conformance suite
sends frames as soon as it has returned, and sees each struck. So the time that it takes is the
figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import machine
from bench.members_cli import interruptible
from stormcast.chaos import faults
from stormcast.chaos.backends.base import (
    Backend,
    BackendError,
    ClusterPlan,
    MemberPlan,
    Unsupported,
)
from stormcast.chaos.backends.by_name import SIM, make_backend
from stormcast.chaos.commands.arguments import (
    add_backend,
    add_flags_of_one_backend,
    add_json,
    own_options,
)
from stormcast.chaos.faults import NetworkFault
from stormcast.chaos.language.network_state import NetworkState
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError, NodeError

ROUNDS: Final = 20
MOST_MEMBERS: Final = 50
NONE: Final[dict[str, NetworkFault]] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """The times of one kind of fault, in milliseconds."""

    fault: str
    begin: tuple[float, ...]
    end: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        """Return medians with the least and the most."""
        return {"fault": self.fault, "begin_ms": _spread(self.begin), "end_ms": _spread(self.end)}

    def __str__(self) -> str:
        return f"  {self.fault:<10} {_in_words(self.begin)}   {_in_words(self.end)}"


def _spread(times: Sequence[float]) -> dict[str, float]:
    return {"median": median(times), "least": min(times), "most": max(times)}


def _in_words(times: Sequence[float]) -> str:
    return f"{median(times):8.1f} ({min(times):.1f} to {max(times):.1f})"


def bench(_what: str, argv: list[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        prog="stormcast bench faults",
        description="Measure how long a fault takes from its request until it is in force, "
        "and back.",
        allow_abbrev=False,
    )
    add_backend(parser)
    add_flags_of_one_backend(parser)
    parser.add_argument("--members", type=int, default=3, help="members (default 3)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds (default {ROUNDS})")
    add_json(parser)
    args = parser.parse_args(argv)
    if args.backend == SIM:
        parser.error("--backend: name one with real networks; the simulator's clock stands still")
    if not 2 <= args.members <= MOST_MEMBERS or args.rounds < 1:  # noqa: PLR2004 a fault is between two
        parser.error(f"--members: 2 to {MOST_MEMBERS}, --rounds: 1 or more")
    try:
        with interruptible(), tempfile.TemporaryDirectory() as folder:
            backend = make_backend(args.backend, **own_options(args))
            try:
                first, rows = measure(backend, args.members, args.rounds, Path(folder))
            finally:
                backend.close()
    except (ConfigError, NodeError, BackendError, Unsupported) as error:
        print(f"stormcast bench faults: {error}", file=sys.stderr)
        return Exit.USAGE if isinstance(error, ConfigError) else Exit.UNKNOWN
    if args.json:
        said = {"backend": args.backend, "members": args.members, "first_ms": first}
        print(json.dumps({**said, "rows": [row.as_json() for row in rows], **machine.describe()}))
        return Exit.HOLDS
    print(
        f"{args.backend}, {args.members} members, {args.rounds} rounds: milliseconds, median (all)"
    )
    print(f"  the first request, which starts what does faults: {first:.1f}")
    print(f"  {'fault':<10} from request to in force   from request to gone")
    for row in rows:
        print(row)
    return Exit.HOLDS


def measure(backend: Backend, members: int, rounds: int, folder: Path) -> tuple[float, list[Row]]:
    """Return how long the first request took, and the times of each kind of fault, in rounds that
    take turns."""
    names = tuple(f"n{number}" for number in range(members))
    config = {"stack": "udp", "timing": "fast", "cluster": "bench"}
    backend.open(
        ClusterPlan(
            run="bench",
            members=tuple(MemberPlan(name=name, config=config) for name in names),
            folder=folder,
        )
    )

    def apply(active: dict[str, NetworkFault]) -> float:
        began = time.perf_counter()
        backend.apply(NetworkState(members=names, faults=active))
        return (time.perf_counter() - began) * 1e3

    first = apply(NONE)
    kinds = dict(_kinds(names))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _round in range(rounds):
        for name, fault in kinds.items():
            begun = apply({"f1": fault})
            times[name].append((begun, apply(NONE)))
    rows = []
    for name, found in times.items():
        begun_all, ended_all = zip(*found, strict=True)
        rows.append(Row(name, begun_all, ended_all))
    return first, rows


def _kinds(names: tuple[str, ...]) -> Iterator[tuple[str, NetworkFault]]:
    """Yield a fault of each driver, from the first member to all others."""
    here, there = names[:1], names[1:]
    yield "partition", faults.Partition(groups=(here, there))
    yield "loss", faults.Loss(sources=here, dests=there, rate=0.1)
    yield "delay", faults.Delay(sources=here, dests=there, delay=0.05)
    yield "bandwidth", faults.Bandwidth(sources=here, dests=there, rate=50_000.0)
