"""The metrics of a run: only aggregates, small however long the run was, and kept as JSON.

Members are identified by name, incarnations by label. Times are seconds since the run began, on one
clock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from stormcast.whole import write_whole

SCHEMA: Final = 2
"""The version of the file; for a file of another version, Spark must measure again."""

T = TypeVar("T")

_HINTS: Final = cache(get_type_hints)
"""Returns the types of a dataclass's fields. To find them takes longer than to read a value."""


class BadMetrics(Exception):
    """A file has no metrics of this version; the text says why, and the remedy."""


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
    """None: the incarnation lived to the end of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The traffic in one span of time, of all members: numbers of messages, not of batches."""

    seconds: float
    sent: int = 0
    delivered: int = 0
    resent: int = 0
    requested: int = 0
    acks: int = 0
    """Number of acks, however many messages they cover."""
    blocked_seconds: float = 0.0
    """The sum over all members and their peers."""

    @property
    def rate(self) -> float:
        """Deliveries per second."""
        return self.delivered / self.seconds if self.seconds else 0.0

    @property
    def amplification(self) -> float | None:
        """Transmissions per message, at least 1; None: nothing was sent."""
        return (self.sent + self.resent) / self.sent if self.sent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTime:
    """A number of seconds that something took for a directed pair."""

    sender: str
    receiver: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncTimes:
    """The times in which connections recovered after the end of a fault (G8)."""

    pairs: int
    """Number of directed pairs that delivered anything afterwards."""
    first_median: float | None
    """The median time from when there was something to deliver to the first delivery."""
    first_slowest: PairTime | None
    repaired_messages: int
    """Messages that were sent before the end of the fault, and delivered after it."""
    repaired_slowest: PairTime | None
    """The longest time until the last of those messages was delivered."""
    one_view: float | None
    """The time until all living members held one view of just these; None: never, or no group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """One fault of a run, with its start and end and its effects."""

    id: str
    do: str
    start: float
    end: float | None
    """None: the fault was never ended, or had no end."""
    is_over_at_once: bool
    """Whether the fault is over at once, such as a crash without a restart."""
    member: str | None
    """The member that was struck, if it is one."""
    bites: int | None
    """The number of effects of the fault; None: they were not counted."""
    before: Phase | None = None
    during: Phase | None = None
    after: Phase | None = None
    resync: ResyncTimes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A violation, for the marks in charts."""

    guarantee: str
    at: float
    """The time, in seconds of the run."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view that a member installed."""

    number: int
    creator: str | None
    """None: the view was handed in, in place of a membership protocol."""
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpan:
    """One member that holds one view, until its next one or its end."""

    name: str
    label: str
    start: float
    view: int
    """The index of the view among all views of the run, from 0."""
    is_merge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Messages per bin from a sender to a receiver; "" stands for all members."""

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
    """The traffic from one member to another in one protocol."""

    sender: str
    receiver: str
    protocol: str
    delivered: int
    sent: int = 0
    """0 for multicasts, which are sent to no single member."""
    resent: int = 0
    requested: int = 0

    @property
    def repaired(self) -> int:
        """The number of messages that were resent or requested, whichever is larger."""
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
    """The length of the run, the silence at its end included."""
    events: int
    quiet: float | None
    """The time from which on no fault acted, and no message was offered."""
    grid: Grid
    """The bins of charts, up to the last event worth showing."""
    sequence_grid: Grid
    lives: tuple[Life, ...]
    whole: Phase
    faults: tuple[FaultWindow, ...]
    sent: tuple[Flow, ...]
    """Sent messages, by sender."""
    heard: tuple[Flow, ...]
    """Delivered messages, by receiver, and in small groups by sender, too."""
    resent: tuple[int, ...]
    requested: tuple[int, ...]
    latency: tuple[LatencyBin, ...]
    latency_whole: LatencyBin | None
    untimed: int
    """Delivered messages whose sending is not recorded, or is recorded later than the delivery."""
    views: tuple[View, ...]
    view_spans: tuple[ViewSpan, ...]
    pairs: tuple[Pair, ...]
    sequences: tuple[Sequence, ...]
    breaches: tuple[Breach, ...] = ()
    """The first violations of each guarantee that Spark judged."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of members, in the order of their numbers."""
        return tuple(sorted({life.name for life in self.lives}, key=natural))

    def write(self, path: Path) -> None:
        """Write the metrics as JSON."""
        text = json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)
        write_whole(path, f"{text}\n")


def natural(name: str) -> tuple[str, int, str]:
    """Return a key that sorts n2 before n10."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits) if digits.isascii() and digits else -1, name


def read_metrics(path: Path) -> Metrics:
    """Read a file of `Metrics.write`; BadMetrics if it is damaged or of another version."""
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
    """Make a dataclass, and all dataclasses in it, from the result of `asdict`."""
    assert is_dataclass(kind)
    hints = _HINTS(kind)
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
