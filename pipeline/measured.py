"""What is measured of a run: aggregates only, small however long it was, and kept as JSON.

Members go by name, incarnations by label. Times are seconds since the run began, on one clock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

SCHEMA: Final = 2
"""What a file must say that is read back; a report of another version is made again by Spark."""

T = TypeVar("T")


class BadMetrics(Exception):
    """A file that holds no metrics of this version: what is wrong, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The bins that time is cut into."""

    width: float
    """Seconds of one bin."""
    count: int

    @property
    def end(self) -> float:
        return self.width * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation of a member."""

    label: str
    name: str
    start: float
    end: float | None
    """None: it lived to the end of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What happened in one stretch of time, over all members. Messages, not batches."""

    seconds: float
    sent: int = 0
    delivered: int = 0
    resent: int = 0
    requested: int = 0
    acks: int = 0
    """Reports, whatever they cover."""
    blocked_seconds: float = 0.0
    """Added up over all members and their peers."""

    @property
    def rate(self) -> float:
        """Deliveries per second."""
        return self.delivered / self.seconds if self.seconds else 0.0

    @property
    def amplification(self) -> float | None:
        """Transmissions of a message, of which one is needed; None: nothing was sent."""
        return (self.sent + self.resent) / self.sent if self.sent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTime:
    """Something that took a directed pair so many seconds."""

    sender: str
    receiver: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncTimes:
    """How fast connections came back after the end of a fault (G8)."""

    pairs: int
    """Directed pairs that delivered anything afterwards."""
    first_median: float | None
    """From when there was something to deliver to the first delivery."""
    first_slowest: PairTime | None
    repaired_messages: int
    """Sent before the end of the fault, and delivered after it."""
    repaired_slowest: PairTime | None
    """Until the last of those was delivered."""
    one_view: float | None
    """Until all living members held one view that holds just them; None: never, or no group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """What was done to the run, from when to when, and what came of it."""

    id: str
    do: str
    start: float
    end: float | None
    """None: it was never ended, or there was nothing to end."""
    is_over_at_once: bool
    """Such as a crash that nobody undid: it is done, and does not act any longer."""
    member: str | None
    """Whom it was done to, where that is one."""
    bites: int | None
    """How often it had an effect; None: nobody counted."""
    before: Phase | None = None
    during: Phase | None = None
    after: Phase | None = None
    resync: ResyncTimes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A violation, as charts mark it."""

    guarantee: str
    at: float
    """Seconds of the run."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view that somebody installed."""

    number: int
    creator: str | None
    """None: it was handed in, in place of a membership protocol."""
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpan:
    """One member that holds one view, until its next one or its end."""

    name: str
    label: str
    start: float
    view: int
    """Which of the views of the run, counted from 0."""
    is_merge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Messages per bin from one to another; "" stands for all of them."""

    sender: str
    receiver: str
    messages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyBin:
    """Seconds from sending to delivery, of the messages delivered in one bin."""

    bin: int
    messages: int
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """All that went one way between two members in one protocol."""

    sender: str
    receiver: str
    protocol: str
    delivered: int
    sent: int = 0
    """0 of multicasts, which are sent to nobody in particular."""
    resent: int = 0
    requested: int = 0

    @property
    def repaired(self) -> int:
        """Messages that had to be said again."""
        return max(self.resent, self.requested)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Seqnos that one kind of event touched in one bin."""

    bin: int
    lo: int
    hi: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One kind of event on one connection, over time."""

    kind: str
    conn: int
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """The sequence chart of one directed pair."""

    sender: str
    receiver: str
    protocol: str
    tracks: tuple[Track, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Everything that is measured of one run."""

    schema: int
    run: str
    seconds: float
    """How long the run was, the silence at its end included."""
    events: int
    quiet: float | None
    """From here on nothing was done nor offered."""
    grid: Grid
    """Up to the last thing that happened."""
    sequence_grid: Grid
    lives: tuple[Life, ...]
    whole: Phase
    faults: tuple[FaultWindow, ...]
    sent: tuple[Flow, ...]
    """By sender."""
    heard: tuple[Flow, ...]
    """By receiver, and by sender in groups that are small enough to tell them apart."""
    resent: tuple[int, ...]
    requested: tuple[int, ...]
    latency: tuple[LatencyBin, ...]
    latency_whole: LatencyBin | None
    untimed: int
    """Messages delivered of which no sending is recorded, or one that is later."""
    views: tuple[View, ...]
    view_spans: tuple[ViewSpan, ...]
    pairs: tuple[Pair, ...]
    sequences: tuple[Sequence, ...]
    breaches: tuple[Breach, ...] = ()
    """The first violations of each guarantee that Spark judged."""

    @property
    def names(self) -> tuple[str, ...]:
        """Members, in the order of their numbers."""
        return tuple(sorted({life.name for life in self.lives}, key=natural))

    def write(self, path: Path) -> None:
        """Keep them beside the verdict."""
        path.write_text(json.dumps(asdict(self), separators=(",", ":"), allow_nan=False) + "\n")


def natural(name: str) -> tuple[str, int, str]:
    """A key that sorts n2 before n10."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits.isascii() and digits else -1, name


def read_metrics(path: Path) -> Metrics:
    """What `write` wrote."""
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise BadMetrics(f"{path} is no JSON ({error}): run stormcast verify again") from None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise BadMetrics(f"{path} is of another version: run stormcast verify again")
    try:
        return from_json(Metrics, value)
    except (KeyError, TypeError, ValueError) as error:
        raise BadMetrics(f"{path} is not whole ({error!r}): run stormcast verify again") from None


def from_json(kind: type[T], value: dict[str, Any]) -> T:
    """A dataclass, and all within it, from what `asdict` made of it."""
    hints = get_type_hints(kind)
    assert is_dataclass(kind)
    return kind(**{each.name: _typed(hints[each.name], value[each.name]) for each in fields(kind)})


def _typed(hint: Any, value: Any) -> Any:  # noqa: ANN401 a hint is any kind of object
    if isinstance(hint, UnionType):
        if value is None:
            return None
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return tuple(_typed(item, each) for each in value)
    if is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise TypeError(f"{value!r} is no {hint.__name__}")
    return value
