"""Scenario files to frozen dataclasses (values; the parser is being written)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    members: Names
    stack: str = "unicast-only"
    unicast: str | None = None
    timing: str = "compatible"
    settings: tuple[tuple[str, object], ...] = ()
    historical: tuple[tuple[str, object], ...] = ()
    max_batch: int | None = None
    unicast_first_conn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    delay: float = 0.001
    jitter: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_by: float = 0.0
    corrupt: float = 0.0
    bandwidth: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    do: str = "unicast"
    sources: Names
    dests: Names
    excludes_self: bool = True
    count: int
    rate: float
    size: tuple[int, int] = (100, 100)
    start: float = 0.0
    burst: int = 1
    flags: Names = ()
    oob_every: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    at: float
    action: Any
    name: str | None = None
    duration: float | None = None
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    by: float
    source: str | None = None
    dest: str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    acks: float | None = None
    resends: float | None = None
    syncs: int | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    run: float = 60.0
    settle: float = 20.0
    trace: int = 200 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    about: str = ""
    guarantees: Names = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "C1", "L1")
    needs: Names = ()
    cluster: Cluster
    network: Link = field(default_factory=Link)
    workload: tuple[Load, ...] = ()
    timeline: tuple[Step, ...] = ()
    expect: tuple[Expect, ...] = ()
    budget: Budget | None = None
    limits: Limits = field(default_factory=Limits)
    path: str = ""
    text: str = ""
