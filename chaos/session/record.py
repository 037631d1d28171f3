"""What a run leaves behind, in virtual time or on real machines: what its judges look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.node.trace.files import count_events

Pair = tuple[str, str]
"""Sender and receiver, by name."""
Reached = dict[Pair, list[tuple[float, int]]]
"""When how many messages of a pair had been delivered."""


class ViewSeen(NamedTuple):
    """A view, as one member installed it."""

    time: float
    number: int
    creator: str
    members: tuple[str, ...]
    """Incarnations: `n1-2` is the second of n1."""


class Life(NamedTuple):
    """How long an incarnation of a member lived."""

    name: str
    start: float
    end: float
    """Infinity: to the end of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncTimes:
    """How long it took, after the last heal, until all was well again (G8). Seconds."""

    after: float
    """When that heal was, from the start of the run."""
    first_delivery: float | None
    """Until the last pair had its first delivery; None: some pair had none."""
    repaired: float
    """Until the last message that was sent before the heal had arrived."""
    one_view: float | None
    """Until the last view was installed, 0 where it was before; None without a group."""

    @property
    def seconds(self) -> float | None:
        """Until all of it was so; None where it never was."""
        if self.first_delivery is None:
            return None
        return max(self.first_delivery, self.repaired, self.one_view or 0.0)

    def as_json(self) -> dict[str, float | None]:
        """A part of verdict.json."""
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
    """What a run leaves behind. Times are seconds from its start."""

    traces: dict[str, bytes]
    """Per member incarnation (and the rig), its blocks."""
    evidence: Evidence = field(repr=False, compare=False)
    """The same, read."""
    events: int
    """What a simulator processed, which says how much work it was; elsewhere, of its members."""
    seconds: float
    sent: int
    """Messages accepted from the workload."""
    delivered: int
    bites: dict[str, int]
    """How often each fault had an effect, by id."""
    kinds: dict[str, str]
    """What each fault is, by id."""
    mismatches: list[str]
    """Deliveries whose payload is not what its sender made."""
    sent_by_pair: dict[Pair, int]
    reached: Reached
    complete: bool
    """Whether the workload ended within the limits."""
    stalled_for: float
    """Seconds without any delivery at the end, where members still held messages to send."""
    views: dict[str, list[ViewSeen]] = field(default_factory=dict)
    """What each incarnation installed, in order; empty where nobody forms a group."""
    lives: dict[str, Life] = field(default_factory=dict)
    """When each incarnation started and ended."""
    control: dict[str, int] = field(default_factory=dict)
    """Control frames sent in a group, by `protocol/kind`."""
    control_most: dict[str, int] = field(default_factory=dict)
    """The same, of the incarnation that sent most of each."""
    backend: str = "sim"
    bites_by_pair: dict[str, Mapping[Pair, int]] = field(default_factory=dict)
    """The same as `bites` per sender and receiver, of faults of the network that have them."""
    resync: ResyncTimes | None = None
    """None where nothing was healed."""
    notes: tuple[str, ...] = ()
    """What whoever reads the verdict must know of how the run was done."""
    is_cut_short: bool = False
    """Whether somebody ended it before its time."""
    broke_off: str = ""
    """Why it could not go on; what there is until then proves nothing."""
    late: float = 0.0
    """Seconds by which something was done later than the scenario says, at most."""

    @property
    def recorded(self) -> int:
        """Events in the traces, those of the rig among them: whoever reads them counts as many."""
        return sum(map(count_events, self.traces.values()))
