"""Questions: the runs to verify, and what is known of each besides its traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stormcast.pipeline.findings import Finding


class VerifyError(Exception):
    """Nothing can be verified; the text says what is wrong and what to do."""


class CannotError(VerifyError):
    """This machine lacks something that is needed to verify anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most control traffic that a scenario accepts; None: not judged."""

    acks: float | None = None
    """Acks per message."""
    resends: float | None = None
    """Messages sent again per message."""
    syncs: int | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One run to verify, and what is known of it."""

    run: str
    """Its name in the traces; no two runs have the same."""
    traces: Path
    """The directory of its Parquet files."""
    guarantees: tuple[str, ...] | None = None
    """None: all that can be judged."""
    budget: Budget | None = None
    min_bites: int = 1
    """The least bites that each fault must have had."""
    is_complete: bool = True
    """Whether the workload came to its end; if not, messages under way might still have arrived."""
    own: tuple[Finding, ...] = ()
    """The findings of the run's own oracles."""
    about: dict[str, Any] = field(default_factory=dict)
    """Further facts for the verdict: where it comes from."""
