"""Loads: what a member sends, written as in a scenario's workload, with `closed` and `duration`.

Scenarios are read by the rig; this module reads what one member is told. Words and meaning are the
same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from stormcast.node.core import wire
from stormcast.node.core.model import FLAG_NAMES, MESSAGE_FLAGS
from stormcast.node.reading.items import Item, item_of
from stormcast.node.reading.notations import (
    TRUTH,
    Names,
    Notation,
    Plain,
    quantity,
    size_range,
    some_of,
    whole,
    word,
)
from stormcast.node.reading.quantities import (
    SETTING_DURATION,
    SETTING_RATE,
    SETTING_SIZE,
    Quantity,
)
from stormcast.node.reading.shapes import Key, Shape

MAX_LOADS: Final = 64
MAX_LABEL: Final = 64
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


def message_keys(duration: Quantity, rate: Quantity, size: Quantity) -> dict[str, Key]:
    """Return the keys of a load that do not name members; the units of scenarios are stricter."""
    return {
        "count": Key("count", whole(1), 1000),
        "rate": Key("rate", quantity(rate, above_zero=True), 200.0),
        "size": Key("size", size_range(wire.MAX_BODY, size), (100, 100)),
        "start": Key("start", quantity(duration), 0.0),
        "burst": Key("burst", whole(1), 1),
        "flags": Key("flags", some_of(FLAGS, "message flag"), ()),
        "oob_every": Key("oob_every", whole(1), 0),
    }


def read_loads(values: object) -> tuple[Load, ...]:
    """Read one load or a list of loads, as an item, or as parsed from YAML or JSON."""
    item = _as_item(values)
    loads = item.items_or_self()
    if len(loads) > MAX_LOADS:
        raise item.error(f"workload: {len(loads)} loads; write at most {MAX_LOADS}")
    return tuple(map(read_load, loads))


def read_load(values: object) -> Load:
    """Read one load, as a scenario writes it, with `closed`, `duration` and `label`."""
    item = _as_item(values)
    if not item.is_mapping():
        raise item.error("workload: write a mapping such as {do: multicast, rate: 200/s}")
    do = item.peek("do").one_of(LOADS, "load")
    load: Load = _SHAPES[do].read(item, besides=["do"])
    return load


def write_load(load: Load) -> dict[str, Plain]:
    """Return the mapping that `read_load` turns into this load."""
    words = {"do": load.do, **_SHAPES[load.do].write(load)}
    if load.closed:
        words.pop("rate", None)
    return words


_MEMBERS: Final = "write a member's name, a list of names, or all"


def _as_item(values: object) -> Item:
    return item_of(values, "workload", joint=": ")


def _read_members(item: Item) -> Names:
    names: list[str] = []
    for part in item.items_or_self():
        name = part.text(_MEMBERS)
        if not name:
            raise part.refuse(_MEMBERS)
        if name in names:
            raise part.refuse("it is listed twice; keep one")
        names.append(name)
    if not names:
        raise item.refuse("name a member, or write all")
    return tuple(names)


def _read_from(item: Item) -> Names:
    return () if _stands_for_many(item, "all") else _read_members(item)


def _read_to(item: Item) -> tuple[Names, bool]:
    if _stands_for_many(item, "others"):
        return (), True
    return _read_from(item), False


def _stands_for_many(item: Item, word: str) -> bool:
    return not item.is_list() and item.text(_MEMBERS) == word


def _write_to(value: tuple[Names, bool]) -> Plain:
    dests, excludes_self = value
    return list(dests) or ("others" if excludes_self else "all")


def _made(do: str, **values: Any) -> Load:  # noqa: ANN401 of the keys below
    if values["count"] is None and values["duration"] is None:
        values["count"] = _COUNT
    sources, dests = values["sources"], values.get("dests")
    if sources and dests and set(sources).isdisjoint(dests):
        # Where no source is a dest, both values mean the same: keep one of them.
        values["excludes_self"] = True
    return Load(do=do, **values)


def _check(item: Item, load: Load) -> None:
    if load.closed and item.has("rate"):
        raise item.error("workload: closed is true, so there is no rate; keep one of them")


_COUNT: Final = 1000
"""Messages of a load that says neither `count` nor `duration`."""
_KEYS: Final = {
    "from": Key("sources", Notation(_read_from, list), ()),
    **message_keys(SETTING_DURATION, SETTING_RATE, SETTING_SIZE),
    "count": Key("count", whole(1), None),
    "closed": Key("closed", TRUTH, False),
    "duration": Key("duration", quantity(SETTING_DURATION, above_zero=True), None),
    "label": Key(
        "label",
        word(re.compile(rf".{{1,{MAX_LABEL}}}"), f"write a word of 1..{MAX_LABEL} letters"),
        "",
    ),
}
_TO: Final = {"to": Key(("dests", "excludes_self"), Notation(_read_to, _write_to), ((), True))}
_SHAPES: Final = {
    "unicast": Shape(partial(_made, "unicast"), _KEYS | _TO, _check),
    "multicast": Shape(partial(_made, "multicast", excludes_self=False), _KEYS, _check),
}
