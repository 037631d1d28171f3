"""The record of a run, in virtual time or on real machines: the verdict is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.node.trace.files import count_events

Pair = tuple[str, str]
"""Sender and receiver, by name."""
Reached = dict[Pair, list[tuple[float, int]]]
"""For each pair, times and how many of its messages had been delivered by then."""


class ViewSeen(NamedTuple):
    """A view, as one member installed it."""

    time: float
    number: int
    creator: str
    members: tuple[str, ...]
    """Incarnations: `n1-2` is the second of n1."""


class Life(NamedTuple):
    """When an incarnation of a member started and ended."""

    name: str
    start: float
    end: float
    """Infinity: to the end of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncTimes:
    """Seconds from the last heal until messages, repairs and views were in order again (G8)."""

    after: float
    """The time of that heal, from the start of the run."""
    first_delivery: float | None
    """Time until the last pair had its first delivery; None: some pair had none."""
    repaired: float
    """Time until the last message that was sent before the heal had arrived."""
    one_view: float | None
    """Time until the last view was installed, 0 where it was before; None without a group."""

    @property
    def seconds(self) -> float | None:
        """The longest of the three; None where some pair had no delivery."""
        if self.first_delivery is None:
            return None
        return max(self.first_delivery, self.repaired, self.one_view or 0.0)

    def as_json(self) -> dict[str, float | None]:
        """Return this part of verdict.json."""
        known = {
            "after": self.after,
            "first_delivery": self.first_delivery,
            "repaired": self.repaired,
            "one_view": self.one_view,
            "seconds": self.seconds,
        }
        return {key: None if value is None else round(value, 6) for key, value in known.items()}


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """Everything that is known of a run. Times are seconds from its start."""

    traces: dict[str, bytes]
    """The trace blocks of each incarnation, and of the rig."""
    evidence: Evidence = field(repr=False, compare=False)
    """The traces, read."""
    events: int
    """Events that the simulator processed: how much work the run was. Elsewhere those in traces."""
    seconds: float
    sent: int
    """Messages that left: one in pieces counts once."""
    delivered: int
    """Messages that arrived, at each receiver."""
    bites: dict[str, int]
    """The number of effects of each fault, by id."""
    kinds: dict[str, str]
    """The kind of each fault, by id."""
    mismatches: list[str]
    """Deliveries whose payload is not the one that its sender made."""
    sent_by_pair: dict[Pair, int]
    """The messages that had to arrive."""
    reached: Reached
    complete: bool
    """Whether the workload ended within the limits, and messages had come to rest."""
    stalled_for: float
    """Seconds without any delivery at the end, where members still held messages to send."""
    reached_of_sent: Reached = field(default_factory=dict)
    """The same, of messages that had to arrive: others do not stand in for them."""
    views: dict[str, list[ViewSeen]] = field(default_factory=dict)
    """The views that each incarnation installed, in order; empty where nobody forms a group."""
    lives: dict[str, Life] = field(default_factory=dict)
    """Start and end of each incarnation."""
    control: dict[str, int] = field(default_factory=dict)
    """Control frames sent in a group, by `protocol/kind`."""
    control_most: dict[str, int] = field(default_factory=dict)
    """The same, of the incarnation that sent most of each."""
    backend: str = "sim"
    bites_by_pair: dict[str, Mapping[Pair, int]] = field(default_factory=dict)
    """The bites per sender and receiver, of faults of the network."""
    resync: ResyncTimes | None = None
    """None where nothing was healed."""
    notes: tuple[str, ...] = ()
    """Sentences about how the run was done, for those who read the verdict."""
    is_cut_short: bool = False
    """Whether the run was interrupted before its end."""
    is_unsettled: bool = False
    """Whether the workload had ended, and messages still arrived, or were being repaired, when the
    time to settle was over."""
    broke_off: str = ""
    """The reason why the run could not go on: it then proves nothing. Empty: it went on."""
    late: float = 0.0
    """The most seconds by which a step or a load began later than the scenario says."""

    offered_before: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By short id of a sender and destination, the messages that were offered before this run
    began: traces count over the whole life of a member."""
    load_errors: tuple[str, ...] = ()
    """Errors that ended loads before all their messages were offered."""
    unsent: tuple[str, ...] = ()
    """Lines about the messages left of loads that did not end."""

    @property
    def zero(self) -> float:
        """The time at which the scenario began, on the clock of the traces: those of a soak may
        begin with an earlier window."""
        return self.evidence.rig.end - self.seconds

    @property
    def recorded(self) -> int:
        """The number of events in the traces, those of the rig among them."""
        return sum(map(count_events, self.traces.values()))
