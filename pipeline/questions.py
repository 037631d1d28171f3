"""Questions: the runs to verify, and what is known of each besides its traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stormcast.findings import Finding

_CALLED: Final = "An error occurred while calling"
_CAUSE: Final = "Caused by: "
"""How lines of Java's exceptions begin, in the texts of Py4J."""


class VerifyError(Exception):
    """Nothing can be verified; the text says what is wrong and what to do."""


class CannotError(VerifyError):
    """This machine lacks something that is needed to verify anything."""


def one_line(error: Exception) -> str:
    """Return the line of an error that says most, or its name if it says nothing."""
    first, *rest = str(error).strip().splitlines() or [type(error).__name__]
    if first.startswith(_CALLED):
        # What was called says nothing: the last cause does.
        causes = [line for line in rest if line.startswith(_CAUSE)]
        first = (causes or rest or [first])[-1 if causes else 0].removeprefix(_CAUSE).lstrip(": ")
    return first[:200]


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
class Arrivals:
    """By a time, so many messages of each source have arrived at each dest."""

    by: float
    """Seconds from the begin of the run."""
    sources: tuple[str, ...]
    dests: tuple[str, ...]
    count: int | None = None
    """None: all that were sent, except for what two members had not when they parted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneView:
    """At a time some members hold one view, of exactly these members."""

    by: float
    seen_by: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """The arrivals and views that a scenario expects, each by its time."""

    awaited: tuple[Arrivals | OneView, ...] = ()
    asks_one_group: bool = False
    """Whether all who live at the end must hold one view of just themselves, if there are views."""


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
    expected: Expectations | None = None
    """None: it is not known, and G8 is not judged."""
    min_bites: int = 1
    """The least bites that each fault must have had."""
    is_complete: bool = True
    """Whether the workload came to its end; if not, messages under way might still have arrived."""
    is_interrupted: bool = False
    """Whether it ended before its time, so that what was expected might still have happened."""
    own: tuple[Finding, ...] = ()
    """The findings of the run's own oracles."""
    doubts: tuple[str, ...] = ()
    """Reasons why its traces prove nothing, whatever they say."""
    about: dict[str, Any] = field(default_factory=dict)
    """Further facts for the verdict: where it comes from."""
