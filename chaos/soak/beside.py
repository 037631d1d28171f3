"""Two soaks, or two runs, side by side: what each cost, window by window, with intervals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.costs import costs_in
from stormcast.chaos.session.samples import FEWEST, in_words, interval
from stormcast.chaos.soak.directory import SOAK, STATUS, Kept, SoakDirectory
from stormcast.chaos.soak.drift import JUDGE
from stormcast.chaos.soak.second_judge import disputed_windows
from stormcast.chaos.soak.storm import Storm, what_runs
from stormcast.node.core.errors import ConfigError
from stormcast.node.trace.files import read_traces
from stormcast.weights import AGENT

MEBIBYTE: Final = 1 << 20
NOT_ALIKE: Final = "they were not played alike: seed, members, loads, faults or network differ"
Part = Mapping[str, Any]
"""A window of a soak, or a run: its `verdict`, `sent`, `costs` and `weights`. A window that broke
off has no costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A soak, or a run."""

    path: Path
    played: str
    """What was played, as text: equal texts are one storm, or one scenario, of one seed."""
    parts: tuple[Part, ...]
    whole: str
    """The verdict on all of it."""
    facts: Mapping[str, str]
    """What was played where, in words for a reader."""
    is_soak: bool

    @property
    def verdicts(self) -> Mapping[str, int]:
        """How many parts there are of each verdict."""
        return Counter(str(part["verdict"]) for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """Return what a page tells of the side, besides its figures."""
        return {
            "path": str(self.path),
            "is_soak": self.is_soak,
            "whole": self.whole,
            "facts": dict(self.facts),
            "parts": [
                {"number": int(part.get("window", 0)), "verdict": str(part["verdict"])}
                for part in self.parts
            ],
        }


@dataclass(frozen=True)
class Line:
    """One figure of both sides."""

    name: str
    by_part: tuple[tuple[float | None, ...], tuple[float | None, ...]]
    """By side, a value of each part; None: that part has none."""

    @cached_property
    def values(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The values that there are."""
        first, second = (
            tuple(value for value in values if value is not None) for values in self.by_part
        )
        return first, second

    @property
    def ratio(self) -> float | None:
        """The second median by the first; None where there is none, or the first is 0."""
        if not all(self.values):
            return None
        first, second = map(median, self.values)
        return second / first if first else None

    @cached_property
    def intervals(self) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
        """By side, bounds of the median; None: there are too few values."""
        # Of thousands of windows they take a second, so they are computed once.
        first, second = (
            interval(values) if len(values) >= FEWEST else None for values in self.values
        )
        return first, second

    @property
    def cells(self) -> tuple[str, str, str]:
        """Both sides, and the ratio, in words."""
        first, second = map(_median_in_words, self.values, self.intervals)
        return first, second, "" if self.ratio is None else f"{self.ratio:.2f}"

    def as_json(self) -> dict[str, Any]:
        """Return the figure as JSON has it."""
        sides = [
            {
                "median": median(values) if values else None,
                "interval": list(bounds) if bounds is not None else None,
                "parts": len(values),
            }
            for values, bounds in zip(self.values, self.intervals, strict=True)
        ]
        return {"figure": self.name, "first": sides[0], "second": sides[1], "ratio": self.ratio}


def _median_in_words(values: Sequence[float], bounds: tuple[float, float] | None) -> str:
    if not values:
        return "-"
    middle = in_words(median(values))
    if bounds is None:
        return middle
    low, high = map(in_words, bounds)
    return f"{middle} ({low} to {high})"


def read_side(path: Path) -> Side:
    """Read a soak or a run; ConfigError if a directory is neither."""
    return _read_soak(path) if (path / SOAK).is_file() else _read_run(path)


def _read_soak(path: Path) -> Side:
    kept = SoakDirectory(path).read()
    if not any("costs" in one for one in kept.windows):
        raise ConfigError(f"{path}: its windows have no costs: an older version played them")
    try:
        disputed = disputed_windows(path)
        parts = tuple(_window(one, disputed) for one in kept.windows)
        whole = _whole(path / STATUS, parts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: its files cannot be read ({error}): name what stormcast soak has left"
        ) from None
    # All but the protocols, which are what two soaks differ in.
    members = Cluster(members=kept.storm.cluster.members)
    storm = replace(kept.storm, name="", about="", cluster=members)
    return Side(
        path=path,
        played=f"{kept.seed} {storm}",
        parts=parts,
        whole=whole,
        facts=_facts_of_soak(kept),
        is_soak=True,
    )


def _window(line: Part, disputed: frozenset[int]) -> Part:
    """Return the line of a window, with the verdict that both judges leave."""
    costs = line.get("costs", {})
    for name, value in costs.items():
        if value is not None and not isfinite(value):
            raise ValueError(f"window {line['window']}: {name} is {value}")
    if int(line["window"]) in disputed:
        return {**line, "verdict": str(Verdict.UNKNOWN)}
    return line


def _whole(status: Path, parts: Sequence[Part]) -> str:
    """Return the worst of what a soak says of itself and of its windows: it knows more than these,
    such as that it broke off."""
    said = [str(part["verdict"]) for part in parts]
    if status.is_file() and (verdict := json.loads(status.read_text()).get("verdict")):
        said.append(str(verdict))
    return str(max(map(_verdict, said)))


def _verdict(word: str) -> Verdict:
    """Return the verdict of a word; of one that is none nobody knows what it means."""
    known = {str(verdict): verdict for verdict in Verdict}
    return known.get(word, Verdict.UNKNOWN)


def _facts_of_soak(kept: Kept) -> dict[str, str]:
    played_by = [(first, _versions(said)) for first, said in kept.played_by]
    later = [f"; from window {first} on {said}" for first, said in played_by[1:]]
    versions = "".join([played_by[0][1], *later]) if played_by else ""
    return {
        "soak of the storm": kept.storm.name,
        "seed": str(kept.seed),
        **_facts_of_cluster(kept.storm.cluster),
        **_turns(kept.storm),
        "backend": kept.backend,
        "versions": versions or "not known",
        "windows": f"{len(kept.windows)}, each with {in_words(kept.storm.window)} s of storm",
    }


def _facts_of_cluster(cluster: Cluster) -> dict[str, str]:
    return {
        "members": str(len(cluster.members)),
        "stack": cluster.stack,
        "unicast": cluster.unicast or "that of the stack",
        "timing": cluster.timing,
    }


def _turns(storm: Storm) -> dict[str, str]:
    if not storm.turns:
        return {}
    return {"by turns": "; ".join(what_runs(turn.cluster) for turn in storm.by_turn())}


def _versions(said: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in said.items())


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
        versions = path / "versions.json"
        played_by = _versions(json.loads(versions.read_text())) if versions.is_file() else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is no run and no soak ({error}): name what stormcast run or soak has left"
        ) from None
    part = {"verdict": verdict, "sent": sent, "costs": {**costs, "resync": resync}, "weights": {}}
    return Side(
        path=path,
        played=f"{seed} {scenario.cluster.members} {scenario.network} {scenario.workload} "
        f"{scenario.timeline}",
        parts=(part,),
        whole=verdict,
        facts={
            "run of the scenario": scenario.name,
            "seed": str(seed),
            **_facts_of_cluster(scenario.cluster),
            "backend": str(said.get("backend", "not known")),
            "versions": played_by or "not known",
        },
        is_soak=False,
    )


def warnings_of(first: Side, second: Side) -> list[str]:
    """Return what makes the two no fair comparison, in words; empty: nothing that is known."""
    return [NOT_ALIKE] if first.played != second.played else []


def lines_of(first: Side, second: Side) -> list[Line]:
    """Return all figures that one of the sides has."""
    lines = [
        Line(name=name, by_part=(_values(first, of), _values(second, of)))
        for name, of in _FIGURES.items()
    ]
    return [line for line in lines if any(line.values)]


def page_of(first: Side, second: Side, lines: Sequence[Line]) -> dict[str, Any]:
    """Return all that the page of two sides shows, as JSON: the figures as the table has them, and
    their values by part."""
    figures = [
        {**line.as_json(), "cells": list(line.cells), "by_part": list(map(list, line.by_part))}
        for line in lines
    ]
    names = {line.name for line in lines}
    return {
        "warnings": warnings_of(first, second),
        "sides": [first.as_json(), second.as_json()],
        "figures": figures,
        "of_neither": [name for name in _FIGURES if name not in names],
    }


def _values(side: Side, of: Callable[[Part], float | None]) -> tuple[float | None, ...]:
    return tuple(of(part) if "costs" in part else None for part in side.parts)


def _per_thousand(name: str) -> Callable[[Part], float | None]:
    def of(part: Part) -> float | None:
        return 1000 * part["costs"][name] / part["sent"] if part["sent"] else None

    return of


def _cost(name: str) -> Callable[[Part], float | None]:
    return lambda part: part["costs"].get(name)


def _memory(part: Part) -> float | None:
    weights: Sequence[Mapping[str, float]] = [
        one for name, one in part["weights"].items() if name != JUDGE and not name.startswith(AGENT)
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
    "seconds from sending to delivery, of half of them": _cost("latency"),
    "seconds until all is well after the last heal": _cost("resync"),
    "memory of the largest member, MiB": _memory,
}
