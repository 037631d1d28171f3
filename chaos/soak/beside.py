"""Two soaks, or two runs, side by side: what each cost, window by window, with intervals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.session.costs import costs_in
from stormcast.chaos.session.samples import FEWEST, interval
from stormcast.chaos.soak.directory import SOAK, SoakDirectory
from stormcast.chaos.soak.drift import JUDGE
from stormcast.node.core.errors import ConfigError
from stormcast.node.trace.files import read_traces

MEBIBYTE: Final = 1 << 20
Part = Mapping[str, Any]
"""A window of a soak, or a run: its verdict, `sent`, `costs` and `weights`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A soak, or a run."""

    path: Path
    played: str
    """What was played, as text: equal texts are one storm, or one scenario, of one seed."""
    parts: tuple[Part, ...]
    verdicts: Mapping[str, int]
    """How many parts there are of each verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of both sides."""

    name: str
    values: tuple[tuple[float, ...], tuple[float, ...]]

    @property
    def ratio(self) -> float | None:
        """The second median by the first; None where there is none, or the first is 0."""
        if not all(self.values):
            return None
        first, second = map(median, self.values)
        return second / first if first else None

    def as_json(self) -> dict[str, Any]:
        """Return the figure as JSON has it."""
        sides = [
            {
                "median": median(values) if values else None,
                "interval": list(interval(values)) if len(values) >= FEWEST else None,
                "parts": len(values),
            }
            for values in self.values
        ]
        return {"figure": self.name, "first": sides[0], "second": sides[1], "ratio": self.ratio}


def read_side(path: Path) -> Side:
    """Read a soak or a run; ConfigError if a directory is neither."""
    return _read_soak(path) if (path / SOAK).is_file() else _read_run(path)


def _read_soak(path: Path) -> Side:
    kept = SoakDirectory(path).read()
    if not any("costs" in one for one in kept.windows):
        raise ConfigError(f"{path}: its windows have no costs: an older version played them")
    # All but the protocols, which are what two soaks differ in.
    members = Cluster(members=kept.storm.cluster.members)
    storm = replace(kept.storm, name="", about="", cluster=members)
    return Side(
        path=path,
        played=f"{kept.seed} {storm}",
        parts=tuple(one for one in kept.windows if "costs" in one),
        verdicts=Counter(str(one["verdict"]) for one in kept.windows),
    )


def _read_run(path: Path) -> Side:
    try:
        said = json.loads((path / "verdict.json").read_text())
        traces = read_traces(path)
        if not traces:
            raise ConfigError(f"{path} holds no traces")
        evidence = Evidence.from_blocks(traces, xxh3_64_intdigest)
        scenario = load_scenario(path / "scenario.yaml")
        sent, seed, verdict = int(said["messages"]), said["seed"], str(said["verdict"])
        costs = costs_in(evidence, sent, evidence.begin)._asdict()
        resync = (said.get("resync") or {}).get("seconds")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is no run and no soak ({error}): name what stormcast run or soak has left"
        ) from None
    part = {"verdict": verdict, "sent": sent, "costs": {**costs, "resync": resync}, "weights": {}}
    return Side(
        path=path,
        played=f"{seed} {scenario.cluster.members} {scenario.network} {scenario.workload} "
        f"{scenario.timeline}",
        parts=(part,),
        verdicts={verdict: 1},
    )


def lines_of(first: Side, second: Side) -> list[Line]:
    """Return all figures that one of the sides has."""
    lines = [
        Line(name=name, values=(_values(first, of), _values(second, of)))
        for name, of in _FIGURES.items()
    ]
    return [line for line in lines if any(line.values)]


def _values(side: Side, of: Callable[[Part], float | None]) -> tuple[float, ...]:
    found = (of(part) for part in side.parts)
    return tuple(value for value in found if value is not None)


def _per_thousand(name: str) -> Callable[[Part], float | None]:
    def of(part: Part) -> float | None:
        return 1000 * part["costs"][name] / part["sent"] if part["sent"] else None

    return of


def _cost(name: str) -> Callable[[Part], float | None]:
    return lambda part: part["costs"].get(name)


def _memory(part: Part) -> float | None:
    weights: Sequence[Mapping[str, float]] = [
        one for name, one in part["weights"].items() if name != JUDGE
    ]
    return max((one["memory"] for one in weights), default=0.0) / MEBIBYTE or None


_FIGURES: Final[Mapping[str, Callable[[Part], float | None]]] = {
    "messages": lambda part: float(part["sent"]),
    "frames per 1,000 messages": _per_thousand("frames"),
    "acks per 1,000": _per_thousand("acks"),
    "requests per 1,000": _per_thousand("requests"),
    "messages sent again per 1,000": _per_thousand("resent"),
    "SEND_FIRST_SEQNO and the like": _cost("syncs"),
    "messages that a sender keeps, at most": _cost("unacked"),
    "bytes that a sender keeps, at most": _cost("unacked_bytes"),
    "seconds until all is well after the last heal": _cost("resync"),
    "memory of the largest member, MiB": _memory,
}
