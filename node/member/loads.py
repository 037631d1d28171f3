"""Loads: what a member sends, written as in a scenario's workload, with `closed` and `duration`.

Scenarios are read by the rig; this module reads what one member is told. Words and meaning are the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError, Place, require, suggestion
from stormcast.node.core.model import FLAG_NAMES, MESSAGE_FLAGS
from stormcast.node.reading.error_places import placed
from stormcast.node.reading.quantities import SETTING_DURATION, SETTING_RATE, SETTING_SIZE

Names = tuple[str, ...]
Where = Callable[..., Place | None]
"""Takes the keys and numbers that lead to a value; returns its place."""

MAX_LOADS: Final = 64
MAX_LABEL: Final = 64
MOST: Final = 1_000_000_000
FLAGS: Final = {name: bit for bit, name in FLAG_NAMES.items() if bit & MESSAGE_FLAGS}
LOADS: Final = ("unicast", "multicast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Messages that are offered to the outbox: `count` from each source to each dest."""

    do: str
    sources: Names = ()
    """Members by name; none: everyone."""
    dests: Names = ()
    """Members by name; none: everyone."""
    excludes_self: bool = True
    """Whether a source that is among its dests leaves itself out."""
    count: int | None = 1000
    """None: as many as `duration` has room for."""
    rate: float = 200.0
    """Messages per second of one source to one dest."""
    size: tuple[int, int] = (100, 100)
    """Bytes: smallest and largest."""
    start: float = 0.0
    burst: int = 1
    """Messages offered at once; the rate stays what it is."""
    flags: Names = ()
    oob_every: int = 0
    """Each n-th message is OOB; 0 none."""
    closed: bool = False
    """True: there is no rate; as much is offered as the outbox takes."""
    duration: float | None = None
    """Seconds after which nothing more is offered; None: `count` ends it."""
    label: str = ""
    """A word by which the member tells how much of this load it has sent; empty: it does not."""

    @property
    def bits(self) -> int:
        """The flags of its messages as a number."""
        return sum(FLAGS[name] for name in self.flags)


def nowhere(*_keys: object) -> None:
    """Return None: the place of values that are in no file."""


def read_loads(values: object, where: Where = nowhere) -> tuple[Load, ...]:
    """Read one load or a list of loads, as parsed from YAML or JSON."""
    if not isinstance(values, list):
        return (read_load(values, where),)
    count = len(values)
    require(count <= MAX_LOADS, f"workload: {count} loads; write at most {MAX_LOADS}")
    return tuple(read_load(one, partial(where, number)) for number, one in enumerate(values))


def read_load(values: object, where: Where = nowhere) -> Load:
    """Read one load, as a scenario writes it, with `closed` and `duration`."""
    with placed(where()):
        if not isinstance(values, Mapping):
            raise ConfigError("workload: write a mapping such as {do: multicast, rate: 200/s}")
        return _load(values, where)


def _load(values: Mapping[str, object], where: Where) -> Load:
    do = values.get("do")
    require(do is not None, "workload: do is missing; write unicast or multicast")
    with placed(where("do")):
        require(do in LOADS, f"workload: do is {do!r}: write unicast or multicast")
    known = [key for key in _READERS if key != "to" or do == "unicast"]
    found: dict[str, Any] = {"do": do}
    for key, value in values.items():
        if key == "do":
            continue
        with placed(where(key)):
            if key not in known:
                near = suggestion(str(key), ["do", *known])
                raise ConfigError(f"workload: unknown key {key}{near}")
            found |= _READERS[key](f"workload: {key}", value)
    closed, duration = found.get("closed", False), found.get("duration")
    require(
        not closed or "rate" not in values,
        "workload: closed is true, so there is no rate; keep one of them",
    )
    if duration is not None:
        found.setdefault("count", None)
    sources, dests = found.get("sources", ()), found.get("dests", ())
    if sources and dests and set(sources).isdisjoint(dests):
        # Where no source is a dest, both values mean the same: keep one of them.
        found["excludes_self"] = True
    if do == "multicast":
        found["excludes_self"] = False
    return Load(**found)


def write_load(load: Load) -> dict[str, object]:
    """Return the mapping that `read_load` turns into this load."""
    written: dict[str, object] = {"do": load.do}
    if load.sources:
        written["from"] = list(load.sources)
    if load.do == "unicast":
        if load.dests:
            written["to"] = list(load.dests)
        else:
            written["to"] = "others" if load.excludes_self else "all"
    if load.count is not None:
        written["count"] = load.count
    if not load.closed:
        written["rate"] = SETTING_RATE.write(load.rate)
    low, high = load.size
    written["size"] = f"{low}B" if low == high else f"{low}B..{high}B"
    for name in ("start", "duration"):
        seconds = getattr(load, name)
        if seconds:
            written[name] = SETTING_DURATION.write(seconds)
    if load.burst != 1:
        written["burst"] = load.burst
    if load.flags:
        written["flags"] = list(load.flags)
    for name in ("oob_every", "closed", "label"):
        if value := getattr(load, name):
            written[name] = value
    return written


def _read_members(what: str, value: object) -> Names:
    listed = value if isinstance(value, list | tuple) else [value]
    require(bool(listed), f"{what} is empty: name a member, or write all")
    for name in listed:
        require(
            isinstance(name, str) and bool(name),
            f"{what} is {value!r}: write a member's name, a list of names, or all",
        )
        require(listed.count(name) == 1, f"{what}: {name} is listed twice; keep one")
    return tuple(listed)


def _read_from(what: str, value: object) -> dict[str, object]:
    return {"sources": () if value == "all" else _read_members(what, value)}


def _read_to(what: str, value: object) -> dict[str, object]:
    if value in ("all", "others"):
        return {"dests": (), "excludes_self": value == "others"}
    return {"dests": _read_members(what, value), "excludes_self": False}


def _read_whole(what: str, value: object, most: int = MOST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigError(f"{what} is {value!r}: write a whole number, 1..{most}")
    return value


def _read_seconds(what: str, value: object) -> float:
    if not isinstance(value, str):
        raise ConfigError(f"{what} is {value!r}: write a duration with its unit, such as 500ms")
    return SETTING_DURATION.read(value, what)


def _read_rate(what: str, value: object) -> float:
    if not isinstance(value, str):
        raise ConfigError(f"{what} is {value!r}: write a rate such as 200/s")
    rate = SETTING_RATE.read(value, what)
    require(rate > 0, f"{what} is {value!r}: it must be above 0")
    return rate


def _read_size(what: str, value: object) -> tuple[int, int]:
    if not isinstance(value, str):
        raise ConfigError(f"{what} is {value!r}: write a size with its unit, such as 1KiB")
    ends = [int(SETTING_SIZE.read(part, what)) for part in value.split("..")]
    require(
        len(ends) <= 2 and ends[0] <= ends[-1] <= wire.MAX_BODY,  # noqa: PLR2004 two ends
        f"{what} is {value!r}: write a size, or the smaller and the larger end of a range such as "
        f"10B..2KiB, up to {wire.MAX_BODY}B",
    )
    return ends[0], ends[-1]


def _read_flags(what: str, value: object) -> Names:
    listed = value if isinstance(value, list | tuple) else [value]
    for name in listed:
        if not isinstance(name, str) or name not in FLAGS:
            near = suggestion(str(name), FLAGS)
            raise ConfigError(f"{what}: unknown message flag {name}{near}")
        require(listed.count(name) == 1, f"{what}: {name} is listed twice; keep one")
    return tuple(listed)


def _read_closed(what: str, value: object) -> bool:
    require(isinstance(value, bool), f"{what} is {value!r}: write true or false")
    return bool(value)


def _read_duration(what: str, value: object) -> float:
    seconds = _read_seconds(what, value)
    require(seconds > 0, f"{what} is {value!r}: it must be above 0")
    return seconds


def _read_label(what: str, value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_LABEL:
        raise ConfigError(f"{what} is {value!r}: write a word of 1..{MAX_LABEL} letters")
    return value


def _one(name: str, read: Callable[[str, object], object]) -> Callable[[str, object], Any]:
    return lambda what, value: {name: read(what, value)}


_READERS: Final[dict[str, Callable[[str, object], dict[str, object]]]] = {
    "from": _read_from,
    "to": _read_to,
    "count": _one("count", _read_whole),
    "rate": _one("rate", _read_rate),
    "size": _one("size", _read_size),
    "start": _one("start", _read_seconds),
    "burst": _one("burst", _read_whole),
    "flags": _one("flags", _read_flags),
    "oob_every": _one("oob_every", _read_whole),
    "closed": _one("closed", _read_closed),
    "duration": _one("duration", _read_duration),
    "label": _one("label", _read_label),
}
"""The keys of a load, each with the function that reads its value."""
