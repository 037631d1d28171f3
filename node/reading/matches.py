"""How conditions on frames are written, in a scenario's rules and in test protocols."""

from __future__ import annotations

from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.match import DIRECTIONS, FLAG_BY_NAME, FOREVER, Match
from stormcast.node.reading.items import LARGEST
from stormcast.node.reading.notations import (
    NAMES,
    Notation,
    one_of,
    some_of,
    whole,
    whole_range,
)
from stormcast.node.reading.shapes import Key, Shape


def match_keys(members: Notation) -> dict[str, Key]:
    """Return the conditions that there are everywhere; `members` reads the names in them."""
    return {
        "protocol": Key("protocols", some_of(wire.PROTOCOL_BY_NAME, "protocol"), ()),
        "kind": Key("kinds", some_of(wire.KIND_BY_NAME, "kind of frame"), ()),
        "from": Key("sources", members, ()),
        "to": Key("dests", members, ()),
        "seqno": Key("seqno", whole_range(0), None),
        "occurrence": Key("occurrence", whole_range(1), None),
        "transmission": Key("transmission", whole_range(0, 255), None),
        "flags": Key("flags", some_of(FLAG_BY_NAME, "flag"), ()),
    }


MATCH: Final = Shape(
    Match,
    match_keys(NAMES)
    | {
        "direction": Key("direction", one_of(DIRECTIONS, "direction"), "both"),
        "times": Key("times", whole(1, LARGEST), FOREVER),
    },
)
"""The conditions of a test protocol."""
