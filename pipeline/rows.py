"""The rows that leave Spark: each is an aggregate of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

WHOLE: Final = ""
"""Stands for the fault of the span that is the whole run."""
_AT_ONCE: Final = frozenset(
    {
        "crash",
        "kill",
        "restart",
        "leave",
        "join",
        "forget",
        "close",
        "install-view",
        "set-attribute",
    }
)
"""Faults that are over at once, unless they are undone later."""


class Noted(NamedTuple):
    """An event of the rig."""

    kind: str
    at: float
    text: str


class Fault(NamedTuple):
    """A fault as the rig's trace has it."""

    key: str
    """A key of its own; several steps of one fault (churn) share an id."""
    id: str
    do: str
    start: float
    end: float | None
    member: int | None
    bites: int | None

    @property
    def is_over_at_once(self) -> bool:
        """Whether the fault was over at once, and was not undone later."""
        return self.end is None and self.do in _AT_ONCE


class LifeRow(NamedTuple):
    """An incarnation, and its first, last and stopping event."""

    label: str
    name: str
    short: int
    first: float
    last: float
    stop: float | None


class TrafficRow(NamedTuple):
    """Events of one kind in one bin."""

    kind: str
    member: str
    other: str | None
    bin: int
    messages: int
    events: int


class PairRow(NamedTuple):
    """Events of one kind over the whole run."""

    kind: str
    protocol: str
    member: str
    other: str | None
    messages: int
    events: int


class LatencyRow(NamedTuple):
    """Messages that took about the same time, in one bin."""

    bin: int
    bucket: int | None
    messages: int
    mean: float | None
    most: float | None


class Span(NamedTuple):
    """A span of time in which traffic is counted."""

    fault: str
    span: str
    start: float
    end: float


class PhaseRow(NamedTuple):
    """Events of one kind in one span."""

    fault: str
    span: str
    kind: str
    messages: int
    events: int


class BlockedRow(NamedTuple):
    """Seconds for which lanes were blocked in one span."""

    fault: str
    span: str
    seconds: float


class ReturnRow(NamedTuple):
    """The recovery of a directed pair after a fault."""

    fault: str
    protocol: str
    sender: str
    receiver: str
    first: float
    repaired: float | None
    messages: int


class OfferRow(NamedTuple):
    """The first message that was sent after a fault; `other` is None for the group."""

    fault: str
    protocol: str
    sender: str
    other: str | None
    offered: float


class ViewRow(NamedTuple):
    """A view that a member installed; creator and members by short id."""

    label: str
    number: int
    at: float
    creator: int
    is_merge: bool
    members: str


def name_of(label: str, names: Mapping[str, str]) -> str:
    """Return the name of an incarnation's member; the label itself if it is unknown."""
    return names.get(label, label)
