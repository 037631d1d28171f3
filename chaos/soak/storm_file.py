"""Storm files: what may happen in a soak, in YAML."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.language.cluster import CLUSTER
from stormcast.chaos.language.scenario import GUARANTEES, NETWORK, Link
from stormcast.chaos.soak.kinds import KINDS
from stormcast.chaos.soak.storm import ALL, SIZES, TURN, WINDOW, Storm, Turn
from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import (
    TEXT,
    Notation,
    Plain,
    list_of,
    quantity,
    size_range,
    some_of,
    span,
    whole,
    whole_range,
    word,
)
from stormcast.node.reading.parsing import MAX_BYTES, decode
from stormcast.node.reading.quantities import DURATION, RATE
from stormcast.node.reading.shapes import Key, Shape
from stormcast.node.reading.writing import flow
from stormcast.node.reading.yaml_nodes import compose

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_MOST_LOADS: Final = 16
_MOST_WINDOWS: Final = 1_000_000
_MOST_MESSAGE: Final = 64 << 20
_LEAST_MESSAGE: Final = 16
"""Smaller messages cannot all be told apart."""
_MOST_PLOTS: Final = 16
_LEAST_MEMBERS: Final = 3
"""With fewer members a group has no majority to speak of, and roles nobody to stand for."""


def _sizes() -> Notation:
    one = size_range(_MOST_MESSAGE)

    def read(item: Item) -> tuple[tuple[int, int], ...]:
        return tuple(one.read(part) for part in item.items_or_self())

    def write(value: tuple[tuple[int, int], ...]) -> list[Plain]:
        return [one.write(part) for part in value]

    return Notation(read, write)


def _check(item: Item, storm: Storm) -> None:
    if len(storm.cluster.members) < _LEAST_MEMBERS:
        raise item.error(f"cluster: a storm needs {_LEAST_MEMBERS} members or more; add some")
    if storm.cluster.late:
        raise item.error("cluster: late: all members of a storm are there at its begin; drop it")
    small = min(low for low, _high in storm.sizes)
    if small < _LEAST_MESSAGE:
        raise item.error(
            f"sizes: messages below {_LEAST_MESSAGE} bytes cannot be told apart; write larger ones"
        )


OF_A_TURN: Final = Shape(
    Turn, {one.name: Key(one.name, CLUSTER.keys[one.name].notation, None) for one in fields(Turn)}
)
STORM: Final = Shape(
    Storm,
    {
        "name": Key("name", word(_NAME, "write a name such as rough-sea"), "storm"),
        "about": Key("about", TEXT, ""),
        "cluster": Key("cluster", CLUSTER.notation()),
        "network": Key("network", NETWORK.notation(), Link()),
        "guarantees": Key("guarantees", some_of(GUARANTEES, "guarantee", at_least=1), ALL),
        "kinds": Key("kinds", some_of(KINDS, "kind of fault"), ()),
        "every": Key("every", span(DURATION), (1.0, 8.0)),
        "lasting": Key("lasting", span(DURATION), (0.2, 6.0)),
        "at_once": Key("at_once", whole(1, 16), 3),
        "window": Key("window", quantity(DURATION, above_zero=True), WINDOW),
        "plots": Key("plots", whole_range(0, _MOST_PLOTS), (0, 2)),
        "loads": Key("loads", whole_range(1, _MOST_LOADS), (2, 4)),
        "rate": Key("rate", span(RATE), (5.0, 60.0)),
        "sizes": Key("sizes", _sizes(), SIZES),
        "settle": Key("settle", quantity(DURATION), 30.0),
        "turns": Key("turns", list_of(OF_A_TURN.notation()), ()),
        "turn": Key("turn", whole(1, _MOST_WINDOWS), TURN),
    },
    _check,
)


def load_storm(path: str | Path) -> Storm:
    """Read a storm file."""
    with Path(path).open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    return parse_storm(decode(content, str(path)), str(path))


def parse_storm(text: str, path: str = "<text>") -> Storm:
    """Read a storm from the text of its file; raises nothing but ConfigError."""
    storm: Storm = STORM.read(compose(text, path, "storm"))
    return storm


def dump_storm(storm: Storm) -> str:
    """Return the text of a file that reads as an equal storm."""
    written: dict[str, Any] = STORM.write(storm)
    return "".join(f"{key}: {flow(value)}\n" for key, value in written.items())
